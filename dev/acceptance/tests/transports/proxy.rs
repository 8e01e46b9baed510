//! A listener behind a proxy that says for whom it connects, with bytes by hand.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::net::UnixStream;

use std::process::Command;

use unbroken_acceptance::process::binary;
use unbroken_acceptance::{Broker, DEADLINE, Launch};

use crate::certificates::Authority;
use crate::programs::port_of;
use crate::records::{connect_packet, heard, said, upgrade};
use crate::secured::Secured;

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

const VERSION_1: &[u8] = b"PROXY TCP4 192.0.2.7 127.0.0.1 4711 1883\r\n";

fn version_2() -> Vec<u8> {
    [
        &b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c"[..],
        &[192, 0, 2, 7, 127, 0, 0, 1],
        &4711_u16.to_be_bytes(),
        &1883_u16.to_be_bytes(),
    ]
    .concat()
}

/// What a client of 192.0.2.7 gets for its CONNECT through a proxy that leaves TLS to the broker.
fn connack_behind(
    authority: &Authority,
    broker: &Broker,
    protocol: &str,
    header: &[u8],
) -> Vec<u8> {
    let mut client = Secured::open(authority, port_of(broker, protocol));
    client.stream.write_all(header).expect("it is sent");
    client.shake_hands();
    upgrade(&mut client, protocol);
    client.send(&said(protocol, &connect_packet("abcd")));
    heard(&mut client, protocol, 4)
}

#[test]
fn a_header_stands_in_front_of_tls_and_of_websocket_behind_it() {
    let authority = Authority::new();
    for protocol in ["mqtts", "wss"] {
        let config = authority.in_config(&format!(
            "\
[[listeners]]
port = 0

[[listeners]]
protocol = \"{protocol}\"
port = 0
certificate_file = \"DIRECTORY/server.pem\"
key_file = \"DIRECTORY/server.key\"
trusted_proxies = [\"127.0.0.1\"]
allow_anonymous = true
"
        ));
        let broker = Launch::listeners(&config).durable().start();
        for header in [VERSION_1.to_vec(), version_2()] {
            let connack = connack_behind(&authority, &broker, protocol, &header);
            assert_eq!(connack, [0x20, 2, 0, 0], "{protocol}");
        }
        broker.wait_for_log_times("address=192.0.2.7:4711", 2);

        let mut ban = Command::new(binary());
        ban.args(["ban", "add", "--address", "192.0.2.7", "--data"]);
        let ended = ban.arg(broker.data()).output().expect("it starts");
        assert!(ended.status.success(), "{ended:?}");
        // Its address is only known behind the header, so CONNACK says so.
        let connack = connack_behind(&authority, &broker, protocol, VERSION_1);
        assert_eq!(connack, [0x20, 2, 0, 5], "{protocol}");
    }
}
