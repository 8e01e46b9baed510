//! `unbroken pub` and `unbroken sub` over TLS, WebSocket, both, and a unix socket.

use std::io::Write as _;
use std::process::{Command, Output, Stdio};

use unbroken_acceptance::process::binary;
use unbroken_acceptance::{Broker, Launch};

use crate::certificates::Authority;
use crate::programs::port_of;

const CONFIG: &str = "\
[[listeners]]
port = 0

[[listeners]]
socket = \"mqtt.sock\"

[[listeners]]
protocol = \"mqtts\"
port = 0
certificate_file = \"DIRECTORY/server.pem\"
key_file = \"DIRECTORY/server.key\"
client_ca_file = \"DIRECTORY/ca.pem\"

[[listeners]]
protocol = \"ws\"
port = 0

[[listeners]]
protocol = \"wss\"
port = 0
certificate_file = \"DIRECTORY/server.pem\"
key_file = \"DIRECTORY/server.key\"
";

fn run(command: &str, flags: &[String], more: &[&str]) -> Output {
    let mut unbroken = Command::new(binary());
    let output = unbroken.arg(command).args(flags).args(more).output();
    output.expect("it starts")
}

/// Publishes a retained message this way, and receives it the same way.
#[track_caller]
fn exchange(broker: &Broker, flags: &[String], text: &str) {
    let published = run("pub", flags, &["-t", "news", "-m", text, "-r", "-q", "1"]);
    let error = String::from_utf8_lossy(&published.stderr);
    assert!(
        published.status.success(),
        "{flags:?}: {error}{}",
        broker.log()
    );
    let received = run("sub", flags, &["-t", "news", "-C", "1", "-q", "2"]);
    let payload = String::from_utf8_lossy(&received.stdout);
    assert_eq!(payload.trim_end(), text, "{flags:?}");
}

fn words(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

#[test]
fn messages_pass_every_kind_of_listener() {
    let authority = Authority::new();
    authority.issue_client(1, "ann");
    let broker = Launch::listeners(&authority.in_config(CONFIG)).start();
    let (ca, directory) = (authority.name("ca.pem"), broker.directory().display());
    let [mqtts, ws, wss] = ["mqtts", "ws", "wss"].map(|protocol| port_of(&broker, protocol));
    let certificate = format!(
        "--cert {} --key {}",
        authority.name("ann.pem"),
        authority.name("ann.key")
    );
    let long = "x".repeat(200_000);
    for flags in [
        format!("-p {}", broker.address().port()),
        format!("--unix {directory}/mqtt.sock"),
        format!("-L unix:{directory}/mqtt.sock"),
        format!("-h localhost -p {mqtts} --cafile {ca} {certificate}"),
        format!(
            "-h localhost -p {mqtts} --cafile {ca} {certificate} --keyform pem --tls-version tlsv1.2"
        ),
        format!("-h localhost -p {wss} --ws --cafile {ca} --ciphers TLS_AES_128_GCM_SHA256"),
        format!("-h localhost -p {ws} --ws"),
        format!("-h localhost -p {wss} --ws --cafile {ca}"),
    ] {
        let flags = words(&flags);
        exchange(&broker, &flags, "short");
        exchange(&broker, &flags, &long[..100_000]);
    }
    for (scheme, port) in [("ws", ws), ("wss", wss)] {
        let url = format!("{scheme}://localhost:{port}/news");
        let flags = ["-L".to_owned(), url, "--cafile".to_owned(), ca.clone()];
        let flags = &flags[..if scheme == "ws" { 2 } else { 4 }];
        let published = run("pub", flags, &["-m", "by URL", "-r", "-q", "1"]);
        assert!(published.status.success(), "{flags:?}");
    }
}

#[test]
fn audit_and_pipe_pass_every_kind_of_listener() {
    let authority = Authority::new();
    authority.issue_client(1, "ann");
    let broker = Launch::listeners(&authority.in_config(CONFIG)).start();
    let (ca, directory) = (authority.name("ca.pem"), broker.directory().display());
    let [mqtts, ws, wss] = ["mqtts", "ws", "wss"].map(|protocol| port_of(&broker, protocol));
    let (certificate, key) = (authority.name("ann.pem"), authority.name("ann.key"));
    for flags in [
        format!("--unix {directory}/mqtt.sock"),
        format!("-h localhost -p {mqtts} --cafile {ca} --cert {certificate} --key {key}"),
        format!("-h localhost -p {ws} --ws"),
        format!("-h localhost -p {wss} --ws --cafile {ca}"),
    ] {
        let flags = words(&flags);
        let mut pipe = Command::new(binary());
        let pipe = pipe.arg("pipe").args(&flags).args(["--to", "news"]);
        let mut pipe = pipe.stdin(Stdio::piped()).spawn().expect("it starts");
        let mut input = pipe.stdin.take().expect("it is piped");
        input.write_all(b"a line\n").expect("it reads");
        drop(input);
        assert!(pipe.wait().expect("it ends").success(), "{flags:?}");
        // It hears the broker, and nothing to judge.
        let heard = run(
            "audit",
            &[&["status".to_owned()][..], &flags].concat(),
            &["-W", "1"],
        );
        let text = String::from_utf8_lossy(&heard.stdout);
        assert_eq!(heard.status.code(), Some(3), "{flags:?}: {text}");
        assert!(text.contains("the broker says"), "{flags:?}: {text}");
    }
}

#[test]
fn what_fails_is_said_with_the_exit_code_of_mosquitto() {
    let authority = Authority::new();
    let other = Authority::new();
    let broker = Launch::listeners(&authority.in_config(CONFIG)).start();
    let [ws, wss] = ["ws", "wss"].map(|protocol| port_of(&broker, protocol));
    let plain = broker.address().port();
    for (flags, code, part) in [
        (
            format!(
                "-h localhost -p {wss} --ws --cafile {}",
                other.name("ca.pem")
            ),
            8,
            "--cafile",
        ),
        (
            format!("-h 127.0.0.1 -p {plain} --cafile {}", other.name("ca.pem")),
            8,
            "Unable to connect",
        ),
        (format!("-h localhost -p {ws} --ws --ws-path /x"), 8, "404"),
        (
            format!("-h localhost -p {plain} --ws"),
            8,
            "Unable to connect",
        ),
        ("--unix /no/such.sock".to_owned(), 1, "unix:/no/such.sock"),
        ("--tls-version tlsv1.1".to_owned(), 1, "tlsv1.2 or tlsv1.3"),
        ("--ciphers RC4-MD5".to_owned(), 1, "`RC4-MD5` is no cipher"),
        (
            format!(
                "-h localhost -p {wss} --ws --cafile {} --tls-version tlsv1.2 --ciphers \
                 TLS_AES_128_GCM_SHA256",
                authority.name("ca.pem")
            ),
            1,
            "",
        ),
        (
            "--cert a --key b --keyform engine".to_owned(),
            1,
            "engines of OpenSSL",
        ),
    ] {
        let output = run("pub", &words(&flags), &["-t", "news", "-m", "x"]);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{flags}: {text}");
        assert!(text.contains(part), "{flags}: {text}");
    }
}

#[test]
fn the_demonstration_passes_every_kind_of_listener() {
    let authority = Authority::new();
    authority.issue_client(1, "ann");
    let broker = Launch::listeners(&authority.in_config(CONFIG)).start();
    let (ca, directory) = (authority.name("ca.pem"), broker.directory().display());
    let [mqtts, ws, wss] = ["mqtts", "ws", "wss"].map(|protocol| port_of(&broker, protocol));
    let (certificate, key) = (authority.name("ann.pem"), authority.name("ann.key"));
    for flags in [
        format!("--unix {directory}/mqtt.sock"),
        format!("--broker localhost:{mqtts} --cafile {ca} --cert {certificate} --key {key}"),
        format!("--broker ws://localhost:{ws}"),
        format!("--broker wss://ann:password@localhost:{wss} --cafile {ca}"),
    ] {
        let trial = ["--messages", "2000", "--faults", "20", "--rate", "2000"];
        let output = run("demo", &words(&flags), &trial);
        let text = String::from_utf8_lossy(&output.stdout);
        let error = String::from_utf8_lossy(&output.stderr);
        let expect = "named: 20, missing: 0, false: 0, repaired: 20";
        assert!(text.contains(expect), "{flags}: {text}{error}");
    }
}

#[test]
fn the_demonstrations_own_broker_has_one_transport() {
    let output = run("demo", &words("--plain --ws"), &[]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains("name another with --broker"), "{error}");
}
