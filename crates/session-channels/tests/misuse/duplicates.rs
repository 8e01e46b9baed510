//! Names that occur twice, or become the same in the code.
session_channels::proto! {
    pub bank {
        login: send { Login -> answer, Login -> ! }
        answer: recv { Ok -> login }
        answer: recv { No -> ! }
        log_in: send { Use -> logIn, TryUse -> ! }
        logIn: recv { Ok -> log_in }
    }
}

fn main() {}
