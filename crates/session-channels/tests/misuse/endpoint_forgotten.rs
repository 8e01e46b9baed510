//! The next endpoint is dropped without a word.
#![deny(unused_must_use)]

session_channels::proto! {
    pub bank {
        login: send { Login(u32) -> answer }
        answer: recv { Ok -> ! }
    }
}

fn main() {
    let (client, _server) = bank::init();
    client.login(1);
}
