//! A state takes the name of a trait that a bound means.
session_channels::proto! {
    pub bank<T: Clone> {
        ask: send { Ask(T) -> clone }
        clone: recv { Copy(T) -> ! }
    }
}

fn main() {}
