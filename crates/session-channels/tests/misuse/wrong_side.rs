//! The side that receives cannot send, and the side that sends cannot receive.
session_channels::proto! {
    pub bank {
        login: send { Login(u32) -> ! }
    }
}

fn main() {
    let (client, server) = bank::init();
    server.login(1);
    let _ = client.recv_blocking();
}
