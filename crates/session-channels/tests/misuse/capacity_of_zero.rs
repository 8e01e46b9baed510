//! A capacity that lets nothing through, or too much.
session_channels::proto! {
    pub feed { open: send(0) { Item(u8) -> open, End -> ! } }
}

session_channels::proto! {
    pub flood { open: send(65_537) { Item(u8) -> open, End -> ! } }
}

fn main() {}
