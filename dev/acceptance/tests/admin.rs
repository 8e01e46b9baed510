//! The admin server, asked by raw bytes.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};

use unbroken_acceptance::raw::Publish;
use unbroken_acceptance::{Broker, Launch};

const ADMIN: &str = "admin server on http://";

/// A broker with an admin server, and where that is.
fn start(config: &str) -> (Broker, SocketAddr) {
    let launch = Launch::config(config).argument("--admin");
    let broker = launch.argument("127.0.0.1:0").start();
    let address = address_of(&broker);
    (broker, address)
}

#[track_caller]
fn address_of(broker: &Broker) -> SocketAddr {
    let line = broker.wait_for_log(ADMIN);
    let (_, address) = line.split_once(ADMIN).expect("it was waited for");
    address.trim().parse().expect("an address")
}

/// Status and body of the answer to a request of these bytes.
fn exchange(address: SocketAddr, request: &str) -> (u16, String) {
    let mut socket = TcpStream::connect(address).expect("it listens");
    // It may refuse and close before it has read everything.
    let _ = socket.write_all(request.as_bytes());
    let mut answer = String::new();
    let _ = socket.read_to_string(&mut answer);
    let status = answer.split(' ').nth(1).and_then(|code| code.parse().ok());
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    (status.unwrap_or_default(), body.to_owned())
}

fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let head = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    exchange(address, &head)
}

/// The samples of a text of OpenMetrics, by name and labels.
fn samples(text: &str) -> BTreeMap<&str, f64> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let samples = lines.map(|line| line.rsplit_once(' ').expect("a name and a value"));
    samples
        .map(|(name, value)| (name, value.parse().expect("a number")))
        .collect()
}

#[test]
fn metrics_count_what_clients_do() {
    let (broker, admin) = start("");
    let mut subscriber = broker.connect("subscriber");
    subscriber.subscribe_to("plant/#", 1);
    let mut publisher = broker.connect("publisher");
    for _ in 0..3 {
        publisher.publish(Publish::new("plant/1", "21.5").qos(1));
    }
    publisher.publish(Publish::new("elsewhere", "x").qos(1));
    let (status, text) = get(admin, "/metrics");
    assert_eq!(status, 200, "{text}");
    assert!(text.ends_with("# EOF\n"), "{text}");
    let samples = samples(&text);
    for (name, value) in [
        ("unbroken_messages_received_total", 4.0),
        ("unbroken_messages_sent_total", 3.0),
        ("unbroken_messages_unrouted_total", 1.0),
        ("unbroken_clients_connected", 2.0),
        ("unbroken_connections", 2.0),
        ("unbroken_subscriptions", 1.0),
        ("unbroken_audit_received_total", 4.0),
        ("unbroken_audit_expected_total", 3.0),
        ("unbroken_audit_lost_total", 0.0),
        (
            "unbroken_messages_dropped_total{reason=\"queue-full\"}",
            0.0,
        ),
    ] {
        assert_eq!(samples.get(name), Some(&value), "{name} in {text}");
    }
    for name in ["process_resident_memory_bytes", "process_cpu_seconds_total"] {
        assert!(
            samples.get(name).is_some_and(|value| *value > 0.0),
            "{name} in {text}"
        );
    }
}

#[test]
fn probes_hear_that_the_broker_serves() {
    let (_broker, admin) = start("");
    assert_eq!(get(admin, "/healthz"), (200, "ok\n".to_owned()));
    assert_eq!(get(admin, "/readyz"), (200, "ready\n".to_owned()));
}

#[test]
fn a_page_of_another_site_reads_nothing() {
    let (_broker, admin) = start("[admin]\nhosts = [\"broker.example.org\"]\n");
    for (headers, status) in [
        ("Host: broker.example.org:7883\r\n", 200),
        ("Host: localhost\r\nOrigin: http://localhost:7883\r\n", 200),
        ("Host: rebound.example.com\r\n", 421),
        (
            "Host: localhost\r\nOrigin: https://evil.example.com\r\n",
            421,
        ),
        ("Host: localhost\r\nOrigin: null\r\n", 421),
        ("", 400),
    ] {
        let request = format!("GET /metrics HTTP/1.1\r\n{headers}Connection: close\r\n\r\n");
        let (answered, body) = exchange(admin, &request);
        assert_eq!(answered, status, "{headers}: {body}");
    }
}

#[test]
fn mistakes_are_answered_with_what_is_wrong() {
    let (_broker, admin) = start("");
    let (status, body) = get(admin, "/no/such/page");
    assert_eq!(status, 404);
    assert!(body.contains("/metrics"), "{body}");
    let request = "POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\
                   Connection: close\r\n\r\n";
    let (status, body) = exchange(admin, request);
    assert_eq!(status, 405);
    assert!(body.contains("GET"), "{body}");
    for junk in [
        "\0\0\0",
        "\x10\x0c\0\x04MQTT\x05\x02\0\0\0\0\0",
        "GET / HTTP/9\r\n\r\n",
    ] {
        let (status, _) = exchange(admin, &format!("{junk}\r\n\r\n"));
        assert!(matches!(status, 0 | 400 | 505), "{junk:?}: {status}");
    }
    let long = "x".repeat(100_000);
    let (status, _) = get(admin, &format!("/{long}"));
    assert!(matches!(status, 0 | 414 | 431), "{status}");
    assert_eq!(get(admin, "/healthz").0, 200);
}

#[test]
fn an_address_in_use_is_an_error_where_it_was_chosen() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let taken = listener.local_addr().expect("it listens").to_string();
    let launch = Launch::config("").argument("--admin").argument(&taken);
    let (status, log) = launch.run_to_end();
    assert_eq!(status.code(), Some(69), "{log}");
    assert!(log.contains("admin server"), "{log}");
}
