//! Messages have the types that the protocol gives them.
session_channels::proto! {
    pub bank {
        login: send { Login(u32) -> ! }
    }
}

fn main() {
    let (client, _server) = bank::init();
    client.login("ann");
}
