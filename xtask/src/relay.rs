//! A relay in front of a broker that delays every answer a little.
//!
//! The client inside mqtt5-conformance notes that it waits for an acknowledgement only after it has
//! sent the request, so an answer that takes less than some fifty microseconds finds nobody waiting
//! and the test runs into its time limit. Any broker that is fast enough loses that race now and
//! then. The relay changes no byte, keeps the order and passes on how each side closes.
//!
//! It ends with the process that started it.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

/// Long beside the client's race, short beside every time limit of the suite.
const DELAY: Duration = Duration::from_millis(2);

/// Starts relaying to the broker; gives the address to connect to.
pub(crate) fn start(broker: SocketAddr) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            // A broker that cannot be reached shows as a connection closed at once.
            let _ = relay(client, broker);
        }
    });
    Ok(address)
}

fn relay(client: TcpStream, broker: SocketAddr) -> io::Result<()> {
    let broker = TcpStream::connect(broker)?;
    client.set_nodelay(true)?;
    broker.set_nodelay(true)?;
    let (from_client, to_client) = (client.try_clone()?, client);
    let (from_broker, to_broker) = (broker.try_clone()?, broker);
    thread::spawn(move || copy(from_client, to_broker, Duration::ZERO));
    thread::spawn(move || copy(from_broker, to_client, DELAY));
    Ok(())
}

fn copy(mut from: TcpStream, mut to: TcpStream, delay: Duration) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        thread::sleep(delay);
        if to.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    // One direction has ended: the receiver is told, and the sender is not kept waiting.
    let _ = to.shutdown(Shutdown::Write);
    let _ = from.shutdown(Shutdown::Read);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_the_end_of_them_pass_both_ways() {
        let broker = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
        let address = start(broker.local_addr().expect("it has an address")).expect("it starts");
        let mut client = TcpStream::connect(address).expect("the relay listens");
        let (mut server, _) = broker.accept().expect("the relay connects");

        client.write_all(b"ping").expect("the relay reads");
        client
            .shutdown(Shutdown::Write)
            .expect("the client may stop");
        let mut request = Vec::new();
        server.read_to_end(&mut request).expect("the end arrives");
        assert_eq!(request, b"ping");

        server.write_all(b"pong").expect("the relay reads");
        drop(server);
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).expect("the end arrives");
        assert_eq!(answer, b"pong");
    }
}
