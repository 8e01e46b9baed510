//! Peers that stop in the middle of a handshake, or go through it a byte at a time: the broker
//! closes them at its deadline, whatever they have done before.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use unbroken_acceptance::raw::{Connect, Version};
use unbroken_acceptance::{Broker, DEADLINE, Launch, case};

use crate::certificates::Authority;
use crate::programs::port_named;
use crate::secured::Secured;
use crate::websocket::{REQUEST, frame};

const CONFIG: &str = "\
[limits]
connect_timeout = \"1s\"

[[listeners]]
name = \"plain\"
port = 0

[[listeners]]
name = \"behind\"
port = 0
trusted_proxies = [\"127.0.0.1\"]
allow_anonymous = true

[[listeners]]
name = \"tls\"
protocol = \"mqtts\"
port = 0
certificate_file = \"DIRECTORY/server.pem\"
key_file = \"DIRECTORY/server.key\"

[[listeners]]
name = \"pages\"
protocol = \"ws\"
port = 0

[[listeners]]
name = \"proxied tls\"
protocol = \"mqtts\"
port = 0
certificate_file = \"DIRECTORY/server.pem\"
key_file = \"DIRECTORY/server.key\"
trusted_proxies = [\"127.0.0.1\"]
allow_anonymous = true

[[listeners]]
name = \"proxied pages\"
protocol = \"ws\"
port = 0
trusted_proxies = [\"127.0.0.1\"]
allow_anonymous = true

[[listeners]]
name = \"secured pages\"
protocol = \"wss\"
port = 0
certificate_file = \"DIRECTORY/server.pem\"
key_file = \"DIRECTORY/server.key\"
";

/// The beginning of a header of version 2.
const PROXY_V2: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c";
const PROXY_V1: &[u8] = b"PROXY TCP4 192.0.2.7 127.0.0.1 4711 1883\r\n";

fn connect_packet() -> Vec<u8> {
    Connect::new(Version::V3_1_1, "never").encode()
}

fn half(bytes: &[u8]) -> Vec<u8> {
    bytes[..bytes.len() / 2].to_owned()
}

/// What peers say before they stop, by the listener: each ends at another stage.
fn beginnings() -> Vec<(&'static str, &'static str, Vec<u8>)> {
    let connect = connect_packet();
    let behind = |bytes: &[u8]| [PROXY_V1, bytes].concat();
    let upgraded = |bytes: &[u8]| [REQUEST.as_bytes(), bytes].concat();
    let pings = (0..100)
        .flat_map(|_| frame(0x89, b"ping"))
        .collect::<Vec<u8>>();
    vec![
        ("plain", "nothing", Vec::new()),
        ("plain", "half a CONNECT", half(&connect)),
        ("behind", "nothing", Vec::new()),
        ("behind", "half a header", half(PROXY_V1)),
        ("behind", "half a header of version 2", PROXY_V2.to_owned()),
        ("behind", "a header", PROXY_V1.to_owned()),
        (
            "behind",
            "a header and half a CONNECT",
            behind(&half(&connect)),
        ),
        ("tls", "nothing", Vec::new()),
        (
            "tls",
            "half a ClientHello",
            vec![22, 3, 1, 2, 0, 1, 0, 1, 0xfc],
        ),
        ("pages", "nothing", Vec::new()),
        ("pages", "half a request", half(REQUEST.as_bytes())),
        ("pages", "a request", REQUEST.into()),
        ("pages", "half a frame", upgraded(&[0x82, 0x90, 1])),
        (
            "pages",
            "half a CONNECT",
            upgraded(&frame(0x82, &half(&connect))),
        ),
        (
            "pages",
            "empty frames",
            upgraded(&frame(0x82, b"").repeat(100)),
        ),
        ("pages", "pings", upgraded(&pings)),
        ("proxied tls", "a header", PROXY_V1.to_owned()),
        (
            "proxied tls",
            "a header and half a ClientHello",
            behind(&[22, 3, 1, 2, 0, 1, 0, 1, 0xfc]),
        ),
        ("proxied pages", "a header", PROXY_V1.to_owned()),
        (
            "proxied pages",
            "a header and half a request",
            behind(&half(REQUEST.as_bytes())),
        ),
        ("secured pages", "nothing", Vec::new()),
        (
            "secured pages",
            "half a ClientHello",
            vec![22, 3, 1, 2, 0, 1, 0, 1, 0xfc],
        ),
    ]
}

fn start(authority: &Authority, shards: u32) -> Broker {
    Launch::listeners(&authority.in_config(CONFIG))
        .shards(shards)
        .start()
}

fn open(broker: &Broker, listener: &str) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port_named(broker, listener)));
    let stream = stream.expect("it listens");
    stream.set_read_timeout(Some(DEADLINE)).expect("a timeout");
    stream
}

/// Reads up to the end of the connection, which comes as an end or as a reset.
#[track_caller]
fn expect_end(stream: &mut TcpStream) {
    let mut ignored = Vec::new();
    if let Err(error) = stream.read_to_end(&mut ignored) {
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
    }
}

#[test]
fn a_peer_that_falls_silent_at_any_stage_is_closed_at_the_deadline() {
    let authority = Authority::new();
    for shards in [1, 3] {
        let broker = start(&authority, shards);
        let mut bystander = broker.connect("bystander");
        // Together, because each of them takes a second.
        let mut peers = Vec::new();
        for (listener, name, bytes) in beginnings() {
            let mut stream = open(&broker, listener);
            stream.write_all(&bytes).expect("it is sent");
            peers.push((format!("{listener}: {name}"), stream));
        }
        for listener in ["tls", "secured pages"] {
            let port = port_named(&broker, listener);
            // The broker has answered, and waits for the end of the handshake.
            let mut answered = Secured::open(&authority, port);
            let hello = answered.sealed(b"");
            answered.stream.write_all(&hello).expect("it is sent");
            peers.push((format!("{listener}: a ClientHello"), answered.stream));
            for (name, bytes) in [
                ("a handshake", Vec::new()),
                ("half of what comes next", half(REQUEST.as_bytes())),
            ] {
                let bytes = if listener == "tls" && !bytes.is_empty() {
                    half(&connect_packet())
                } else {
                    bytes
                };
                let mut done = Secured::connect(&authority, port);
                done.send(&bytes);
                peers.push((format!("{listener}: {name}"), done.stream));
            }
        }
        for (name, stream) in &mut peers {
            case(name);
            expect_end(stream);
        }
        bystander.expect_pong();
        assert!(!broker.log().contains("client=never"));
    }
}

/// A byte is no reason to wait longer.
#[test]
fn a_peer_that_goes_on_byte_by_byte_is_closed_at_the_deadline() {
    const PAUSE: Duration = Duration::from_millis(40);
    let authority = Authority::new();
    let broker = start(&authority, 1);
    let endless = "X-Field: value\r\n".repeat(100);
    let request = REQUEST.trim_end().to_owned() + "\r\n" + &endless;
    let long = Connect::new(Version::V3_1_1, &"n".repeat(1_000)).encode();
    let hello = {
        let port = port_named(&broker, "tls");
        Secured::open(&authority, port).sealed(b"")
    };
    let mut peers: Vec<_> = [
        ("plain", &long[..]),
        ("behind", PROXY_V1),
        ("tls", &hello),
        ("pages", request.as_bytes()),
        ("secured pages", &hello),
    ]
    .into_iter()
    .map(|(listener, bytes)| {
        let stream = open(&broker, listener);
        stream.set_read_timeout(Some(PAUSE)).expect("a timeout");
        (listener, stream, bytes.iter())
    })
    .collect();
    while !peers.is_empty() {
        peers.retain_mut(|(listener, stream, bytes)| {
            let Some(byte) = bytes.next() else {
                panic!("{listener}: it was not closed before all was said");
            };
            let is_sent = stream.write_all(&[*byte]).is_ok();
            let mut ignored = [0; 1024];
            // The wait for an answer is the pause between two bytes.
            let is_open = match stream.read(&mut ignored) {
                Ok(count) => count > 0,
                Err(error) => matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
            };
            is_sent && is_open
        });
    }
    broker.connect("honest").expect_pong();
}
