//! A type that does not exist is pointed at where it is written.
session_channels::proto! {
    pub bank {
        login: send { Login(Pasword) -> ! }
    }
}

fn main() {}
