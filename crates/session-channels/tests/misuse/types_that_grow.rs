//! Each round needs larger messages than the one before.
session_channels::proto! {
    pub nested {
        start: send { Start -> down<u8> }
        down<T>: recv { Down(T) -> up<Vec<T>>, Stop -> ! }
        up<T>: send { Up(T) -> down<Option<T>> }
    }
}

fn main() {}
