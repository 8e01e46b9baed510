//! Names that the generated code needs, and type parameters that say nothing.
session_channels::proto! {
    pub feed<T> {
        open: send(4) { Item(T) -> open, Room -> open, Over -> over<T> }
        over<T>: recv { Bye(T) -> ! }
    }
}

session_channels::proto! {
    pub idle {
        start: send { Go -> rest<u8> }
        rest<U>: recv { Rested -> ! }
    }
}

mod inner {
    pub trait Bound {}
    session_channels::proto! {
        pub bounded<T: self::Bound> { give: send { Give(T) -> ! } }
    }
}

fn main() {}
