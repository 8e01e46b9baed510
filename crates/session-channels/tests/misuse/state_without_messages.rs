//! A state in which nothing can happen.
session_channels::proto! {
    pub bank {
        login: send { Login -> end }
        end: recv { }
    }
}

fn main() {}
