//! Where connections come from: on the loopback of Linux, each thousand from an address of its own.
//!
//! A connection needs a port that no other between the same two addresses has, and the kernel looks
//! for it among 28,232, in one half of them first. With 15,000 from one address that was 60 % of
//! what the generator did, so that it connected about as many a second to every broker. The
//! loopback has 2^24 addresses; the first thousand come from where the kernel says.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use mio::net::TcpStream;
use nix::libc;
use socket2::{Domain, Protocol, Socket, Type};

/// Begins the connection of this number.
pub(super) fn connect(target: SocketAddr, number: usize) -> io::Result<TcpStream> {
    let Some(source) = source(target, number) else {
        return TcpStream::connect(target);
    };
    let domain = Domain::for_address(target);
    let socket = Socket::new(domain, Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
    socket.bind(&SocketAddr::from((source, 0)).into())?;
    match socket.connect(&target.into()) {
        Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
        _ => Ok(TcpStream::from_std(socket.into())),
    }
}

/// The address to connect from, where it is not left to the kernel.
fn source(target: SocketAddr, number: usize) -> Option<Ipv4Addr> {
    let home = Ipv4Addr::LOCALHOST;
    let block = u32::try_from(number / CONNECTIONS_OF_AN_ADDRESS).ok()?;
    let is_home = target.ip() == IpAddr::V4(home);
    let last = Ipv4Addr::new(127, 255, 255, 254);
    let address = u32::from(home) + block.min(u32::from(last) - u32::from(home));
    (is_home && block > 0).then_some(Ipv4Addr::from(address))
}

/// Few beside the ports of an address.
const CONNECTIONS_OF_AN_ADDRESS: usize = 1_000;

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn each_thousand_but_the_first_has_an_address_of_its_own() {
        let broker = SocketAddr::from((Ipv4Addr::LOCALHOST, 1883));
        let last = |number| source(broker, number).map(|address| address.octets()[3]);
        assert_eq!(last(999), None);
        assert_eq!([1_000, 1_999, 14_999].map(last), [2, 2, 15].map(Some));
        for elsewhere in ["192.0.2.1:1883", "[::1]:1883"] {
            assert_eq!(source(elsewhere.parse().unwrap(), 5_000), None);
        }
    }

    #[test]
    fn a_connection_comes_from_there() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let target = listener.local_addr().unwrap();
        let _connection = connect(target, 7_000).unwrap();
        let (_, peer) = listener.accept().unwrap();
        assert_eq!(peer.ip(), Ipv4Addr::new(127, 0, 0, 8));
    }
}
