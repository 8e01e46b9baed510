//! A listener with TLS: Mosquitto's clients, OpenSSL's, and bytes by hand.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use unbroken_acceptance::tools::Tool;
use unbroken_acceptance::{Broker, DEADLINE, Launch};

use crate::certificates::Authority;
use crate::programs::{Listening, has, mosquitto_pub, port_of};

const CONFIG: &str = "\
[limits]
connect_timeout = \"1s\"

[[listeners]]
port = 0

[[listeners]]
protocol = \"mqtts\"
port = 0
certificate_file = \"DIRECTORY/server.pem\"
key_file = \"DIRECTORY/server.key\"
";

const CLIENTS: &str = "client_ca_file = \"DIRECTORY/ca.pem\"\n";
const LIST: &str = "crl_file = \"DIRECTORY/list.pem\"\n";

fn start(authority: &Authority, more: &str) -> (Broker, String) {
    let config = authority.in_config(&format!("{CONFIG}{more}"));
    let broker = Launch::listeners(&config).start();
    let port = port_of(&broker, "mqtts").to_string();
    (broker, port)
}

fn connect(port: &str) -> TcpStream {
    let port: u16 = port.parse().expect("a port");
    let stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    stream.set_read_timeout(Some(DEADLINE)).expect("a timeout");
    stream
}

#[test]
fn mosquittos_clients_exchange_messages_over_tls_and_without() {
    if !has(Tool::Mosquitto) {
        return;
    }
    let authority = Authority::new();
    let ca = authority.name("ca.pem");
    for shards in [1, 3] {
        let config = authority.in_config(CONFIG);
        let broker = Launch::listeners(&config).shards(shards).start();
        let port = port_of(&broker, "mqtts").to_string();
        let plain = broker.address().port().to_string();
        for version in ["mqttv311", "mqttv5"] {
            let tls = [
                "-h",
                "localhost",
                "-p",
                &port,
                "--cafile",
                &ca,
                "-V",
                version,
            ];
            let topic = ["-t", "news", "-q", "2", "-v"];
            let mut over_tls = Listening::start(&[&tls[..], &topic].concat());
            let mut over_tcp = Listening::start(&[&["-p", &plain][..], &topic].concat());
            for qos in ["0", "1", "2"] {
                let message = ["-t", "news", "-q", qos, "-m", qos];
                let (succeeded, text) = mosquitto_pub(&[&tls[..], &message].concat());
                assert!(succeeded, "{text}");
                over_tls.wait_for(&format!("news {qos}"));
                over_tcp.wait_for(&format!("news {qos}"));
            }
            let long = "x".repeat(100_000);
            let message = ["-t", "news", "-q", "1", "-m", &long];
            let (succeeded, text) = mosquitto_pub(&[&["-p", &plain][..], &message].concat());
            assert!(succeeded, "{text}");
            over_tls.wait_for(&format!("news {long}"));
        }
    }
}

#[test]
fn certificates_of_clients_and_their_revocation_with_a_reload() {
    if !has(Tool::Mosquitto) {
        return;
    }
    let authority = Authority::new();
    authority.issue_client(1, "ann");
    authority.issue_client(2, "bob");
    authority.revoke(&[]);
    let (broker, port) = start(&authority, &format!("{CLIENTS}{LIST}"));
    let ca = authority.name("ca.pem");
    let common = [
        "-h",
        "localhost",
        "-p",
        &port,
        "--cafile",
        &ca,
        "-t",
        "news",
    ];
    let of = |name: &str| {
        let files = (
            authority.name(&format!("{name}.pem")),
            authority.name(&format!("{name}.key")),
        );
        ["--cert".to_owned(), files.0, "--key".to_owned(), files.1]
    };
    let says = |name: &str, text: &str| {
        let certificate = of(name);
        let certificate = certificate.iter().map(String::as_str);
        let message = ["-m", text, "-q", "1"];
        let arguments = common.into_iter().chain(certificate).chain(message);
        mosquitto_pub(&arguments.collect::<Vec<_>>()).0
    };
    let certificate = of("bob");
    let certificate = certificate.iter().map(String::as_str);
    let arguments = common.into_iter().chain(certificate).chain(["-v"]);
    let mut bob = Listening::start(&arguments.collect::<Vec<_>>());
    assert!(says("ann", "1"));
    bob.wait_for("news 1");
    let message = ["-m", "none", "-q", "1"];
    assert!(!mosquitto_pub(&[&common[..], &message].concat()).0);
    broker.wait_for_log("peer sent no certificates");
    // Bob's certificate is revoked: his connection stays, and he gets no other one.
    authority.revoke(&[2]);
    authority.issue_server();
    broker.reload();
    broker.wait_for_log("configuration reloaded");
    assert!(!says("bob", "2"));
    broker.wait_for_log("Revoked");
    assert!(says("ann", "3"));
    bob.wait_for("news 3");
    // A file that cannot be used changes nothing.
    authority.write("server.key", "nonsense");
    broker.reload();
    broker.wait_for_log("nothing was changed");
    assert!(broker.log().contains("no private key"), "{}", broker.log());
    assert!(says("ann", "4"));
    bob.wait_for("news 4");
    assert!(!says("bob", "5"));
}

#[test]
fn a_silent_client_is_closed_at_the_deadline_and_junk_at_once() {
    let authority = Authority::new();
    let (broker, port) = start(&authority, "");
    let mut silent = connect(&port);
    let mut halfway = connect(&port);
    // The beginning of a ClientHello, and nothing more.
    halfway.write_all(&[22, 3, 1, 2, 0, 1]).expect("it is sent");
    for stream in [&mut silent, &mut halfway] {
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).expect("it is closed");
        assert_eq!(rest, b"");
    }
    for (junk, seen) in [
        (&b"GET / HTTP/1.1\r\n\r\n"[..], "HTTP"),
        (
            b"\x10\x10\x00\x04MQTT\x04\x02\x00\x3c\x00\x04abcd",
            "MQTT without TLS",
        ),
    ] {
        let mut stream = connect(&port);
        stream.write_all(junk).expect("it is sent");
        let mut alert = Vec::new();
        stream.read_to_end(&mut alert).expect("it is closed");
        assert_eq!(alert.first(), Some(&21), "{alert:?}");
        broker.wait_for_log(seen);
    }
}

/// It has done its handshake, and has nothing to say.
#[test]
fn openssl_is_closed_at_the_deadline_if_it_says_nothing() {
    if !has(Tool::OpenSsl) {
        return;
    }
    let authority = Authority::new();
    let (broker, port) = start(&authority, "");
    let mut client = Tool::OpenSsl
        .program()
        .args(["s_client", "-connect", &format!("localhost:{port}")])
        .args(["-CAfile", &authority.name("ca.pem"), "-verify_return_error"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    let input = client.stdin.take();
    // It ends when the broker ends the connection, because its input does not.
    let output = client.wait_with_output().expect("it ends");
    drop(input);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("Verification: OK"), "{text}");
    broker.connect("honest").expect_pong();
}

#[test]
fn openssl_verifies_the_broker_and_gets_its_packets() {
    let authority = Authority::new();
    let (_broker, port) = start(&authority, "");
    let mut client = Command::new("openssl")
        .args(["s_client", "-quiet", "-no_ign_eof", "-connect"])
        .arg(format!("localhost:{port}"))
        .args(["-CAfile", &authority.name("ca.pem"), "-verify_return_error"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("openssl is there");
    let mut input = client.stdin.take().expect("it is piped");
    let connect = b"\x10\x10\x00\x04MQTT\x04\x02\x00\x3c\x00\x04abcd";
    input.write_all(connect).expect("it is sent");
    let mut output = client.stdout.take().expect("it is piped");
    let mut connack = [0; 4];
    output.read_exact(&mut connack).expect("an answer");
    assert_eq!(connack, [0x20, 2, 0, 0]);
    input.write_all(b"\xc0\x00").expect("it is sent");
    let mut answer = [0; 2];
    output.read_exact(&mut answer).expect("an answer");
    assert_eq!(answer, [0xd0, 0]);
    input.write_all(b"\xe0\x00").expect("it is sent");
    drop(input);
    let mut rest = Vec::new();
    output.read_to_end(&mut rest).expect("it is closed");
    assert_eq!(rest, b"");
    client.wait().expect("it ends");
}
