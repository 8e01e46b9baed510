//! A state is given too few types, or too many.
session_channels::proto! {
    pub typed<T: Send> {
        start: send { One(T) -> second, Two -> start<T> }
        second<U, V>: recv { Three(U, V) -> start }
    }
}

fn main() {}
