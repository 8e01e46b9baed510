//! Every message that can come is handled.
session_channels::proto! {
    pub bank {
        connected: send { Deposit(u64) -> !, Withdraw(u64) -> !, Bye -> ! }
    }
}

fn main() {
    let (_client, server) = bank::init();
    match server.recv_blocking().expect("the client is there") {
        bank::Connected::Deposit(_) => {}
        bank::Connected::Bye => {}
    }
}
