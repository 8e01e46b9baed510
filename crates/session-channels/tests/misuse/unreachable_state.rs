//! No message leads to a state.
session_channels::proto! {
    pub bank {
        login: send { Login -> done }
        done: recv { Done -> ! }
        audit: recv { Report(String) -> audited }
        audited: send { Seen -> audit }
    }
}

fn main() {}
