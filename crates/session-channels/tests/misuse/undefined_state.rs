//! A message steps to a state that is not there.
session_channels::proto! {
    pub bank {
        login: send { Login(String) -> login_respone }
        login_response: recv { Ok -> !, Invalid -> login }
    }
}

fn main() {}
