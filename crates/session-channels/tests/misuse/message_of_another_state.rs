//! A message that the state does not have.
session_channels::proto! {
    pub bank {
        login: send { Login(u32) -> connected }
        connected: send { Deposit(u64) -> ! }
    }
}

fn main() {
    let (client, _server) = bank::init();
    client.deposit(30);
}
