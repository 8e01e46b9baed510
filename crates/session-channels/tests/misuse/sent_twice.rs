//! An endpoint is used once.
session_channels::proto! {
    pub bank {
        login: send { Login(u32) -> answer }
        answer: recv { Ok -> !, No -> login }
    }
}

fn main() {
    let (client, _server) = bank::init();
    let _first = client.login(1);
    let _second = client.login(2);
}
