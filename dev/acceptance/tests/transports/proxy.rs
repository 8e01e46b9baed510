//! A listener behind a proxy that says for whom it connects, with bytes by hand.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::net::UnixStream;

use unbroken_acceptance::{DEADLINE, Launch};

const CONFIG: &str = "\
[[listeners]]
port = 0
trusted_proxies = [\"127.0.0.1\"]
allow_anonymous = true
";

const LATER: &[u8] = b"\x10\x11\x00\x04MQTT\x04\x02\x00\x3c\x00\x05later";
const CONNECT: &[u8] = b"\x10\x10\x00\x04MQTT\x04\x02\x00\x3c\x00\x04abcd";

#[test]
fn a_client_has_the_address_that_a_trusted_proxy_names() {
    for shards in [1, 3] {
        let broker = Launch::listeners(CONFIG).shards(shards).start();
        let mut stream = TcpStream::connect(broker.address()).expect("it listens");
        stream.set_read_timeout(Some(DEADLINE)).expect("a timeout");
        let header = b"PROXY TCP4 192.0.2.7 127.0.0.1 4711 1883\r\n";
        stream.write_all(header).expect("it is sent");
        stream.write_all(CONNECT).expect("it is sent");
        let mut connack = [0; 4];
        stream.read_exact(&mut connack).expect("an answer");
        assert_eq!(connack, [0x20, 2, 0, 0]);
        let line = broker.wait_for_log("client=abcd");
        assert!(line.contains("address=192.0.2.7:4711"), "{line}");
    }
}

/// What is known of one client does not get lost when another one leaves.
#[test]
fn a_client_has_its_own_address_though_another_leaves_behind_its_header() {
    for shards in [1, 3] {
        let broker = Launch::listeners(CONFIG).shards(shards).start();
        let open = |address: &str| {
            let mut stream = TcpStream::connect(broker.address()).expect("it listens");
            stream.set_read_timeout(Some(DEADLINE)).expect("a timeout");
            let header = format!("PROXY TCP4 {address} 127.0.0.1 4711 1883\r\n");
            stream.write_all(header.as_bytes()).expect("it is sent");
            stream
        };
        let mut first = open("192.0.2.7");
        for _ in 0..8 {
            drop(open("192.0.2.8"));
        }
        // An answer to one that came later: the broker has seen the others leave.
        let mut later = open("192.0.2.9");
        later.write_all(LATER).expect("it is sent");
        later.read_exact(&mut [0; 4]).expect("an answer");
        first.write_all(CONNECT).expect("it is sent");
        let mut connack = [0; 4];
        first.read_exact(&mut connack).expect("an answer");
        let line = broker.wait_for_log("client=abcd");
        assert!(line.contains("address=192.0.2.7:4711"), "{line}");
    }
}

#[test]
fn a_trusted_proxy_must_send_a_header_and_others_must_not() {
    let broker = Launch::listeners(CONFIG).start();
    let mut stream = TcpStream::connect(broker.address()).expect("it listens");
    stream.set_read_timeout(Some(DEADLINE)).expect("a timeout");
    stream.write_all(CONNECT).expect("it is sent");
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).expect("it is closed");
    assert_eq!(rest, b"");
    broker.wait_for_log("does not begin with a PROXY header");
    // From an address that is not trusted a client is served without a header.
    let connect = unbroken_acceptance::raw::Connect::v5("direct");
    let mut direct = broker.attempt_from(Ipv4Addr::new(127, 0, 0, 2), &connect);
    direct.expect_connack();
}

#[test]
fn a_proxy_on_a_unix_socket_names_its_client_in_either_version() {
    const ON_A_SOCKET: &str = "\
[[listeners]]
port = 0

[[listeners]]
socket = \"mqtt.sock\"
trusted_proxies = [\"127.0.0.1\"]
allow_anonymous = true
";
    let version_1 = b"PROXY TCP4 192.0.2.7 127.0.0.1 4711 1883\r\n".to_vec();
    let version_2 = [
        &b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c"[..],
        &[192, 0, 2, 7, 127, 0, 0, 1],
        &4711_u16.to_be_bytes(),
        &1883_u16.to_be_bytes(),
    ];
    for header in [version_1, version_2.concat()] {
        let broker = Launch::listeners(ON_A_SOCKET).start();
        let path = broker.directory().join("mqtt.sock");
        let mut stream = UnixStream::connect(path).expect("it listens");
        stream.set_read_timeout(Some(DEADLINE)).expect("a timeout");
        stream.write_all(&header).expect("it is sent");
        stream.write_all(CONNECT).expect("it is sent");
        let mut connack = [0; 4];
        stream.read_exact(&mut connack).expect("an answer");
        assert_eq!(connack, [0x20, 2, 0, 0]);
        let line = broker.wait_for_log("client=abcd");
        assert!(line.contains("address=192.0.2.7:4711"), "{line}");
    }
}
