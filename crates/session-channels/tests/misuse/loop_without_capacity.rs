//! One side could send without end.
session_channels::proto! {
    pub feed {
        open: send { Item(u8) -> more }
        more: send(16) { And(u8) -> open, End -> ! }
    }
}

fn main() {}
