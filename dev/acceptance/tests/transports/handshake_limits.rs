//! `max_handshakes` of a listener: beyond it connections wait, and one address has a share of it.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};

use socket2::{Domain, Socket, Type};
use unbroken_acceptance::{DEADLINE, Launch};

use crate::certificates::Authority;
use crate::programs::port_of;
use crate::records::{CONNACK, connect_packet};
use crate::secured::Secured;

const CONFIG: &str = "\
[limits]
connect_timeout = \"1min\"

[[listeners]]
port = 0

[[listeners]]
protocol = \"mqtts\"
port = 0
certificate_file = \"DIRECTORY/server.pem\"
key_file = \"DIRECTORY/server.key\"
allow_anonymous = true
max_handshakes = LIMIT
";

/// A client of this address that says nothing.
fn silent(source: Ipv4Addr, port: u16) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    let bound = socket.bind(&SocketAddr::from((source, 0)).into());
    bound.expect("an address of loopback");
    let connected = socket.connect(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)).into());
    connected.expect("it listens");
    socket.set_read_timeout(Some(DEADLINE)).expect("a timeout");
    socket.into()
}

#[test]
fn beyond_the_limit_a_connection_waits_until_a_handshake_ends() {
    let authority = Authority::new();
    let config = authority.in_config(&CONFIG.replace("LIMIT", "2"));
    let broker = Launch::listeners(&config).shards(1).start();
    let port = port_of(&broker, "mqtts");
    let first = silent(Ipv4Addr::new(127, 0, 0, 2), port);
    let _second = silent(Ipv4Addr::new(127, 0, 0, 3), port);
    let mut third = Secured::open(&authority, port);
    let hello = third.sealed(b"");
    third.stream.write_all(&hello).expect("it is sent");
    // Another listener serves meanwhile, on the one thread that would have answered the third: an
    // answer to a ping says that what came before it was read.
    for name in ["one", "another"] {
        broker.connect(name).ping();
    }
    third.stream.set_nonblocking(true).expect("an open socket");
    let heard = third.stream.peek(&mut [0]);
    assert_eq!(
        heard.map_err(|error| error.kind()),
        Err(ErrorKind::WouldBlock)
    );
    third.stream.set_nonblocking(false).expect("an open socket");
    drop(first);
    third.shake_hands();
    third.send(&connect_packet("third"));
    assert_eq!(third.receive(4), CONNACK);
}

#[test]
fn one_address_has_a_share_and_others_are_served_beside_it() {
    let authority = Authority::new();
    let config = authority.in_config(&CONFIG.replace("LIMIT", "10"));
    let broker = Launch::listeners(&config).start();
    let port = port_of(&broker, "mqtts");
    let greedy = Ipv4Addr::new(127, 0, 0, 2);
    // Nine times as many as are still free.
    let _held: Vec<_> = (0..9).map(|_| silent(greedy, port)).collect();
    let mut tenth = silent(greedy, port);
    assert_eq!(tenth.read(&mut [0]).ok(), Some(0), "it is closed");
    broker.wait_for_log("the share of an address in max_handshakes");
    let mut other = Secured::connect(&authority, port);
    other.send(&connect_packet("other"));
    assert_eq!(other.receive(4), CONNACK);
}
