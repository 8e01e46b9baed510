//! `unbroken bench` over TLS, WebSocket, both, and a unix socket: everything arrives, in its order.

use std::process::{Command, Output};

use unbroken_acceptance::Launch;
use unbroken_acceptance::process::binary;

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

[[listeners]]
protocol = \"ws\"
port = 0

[[listeners]]
protocol = \"wss\"
port = 0
certificate_file = \"DIRECTORY/server.pem\"
key_file = \"DIRECTORY/server.key\"
";

fn bench(flags: &str) -> Output {
    let mut unbroken = Command::new(binary());
    unbroken.args(["bench", "--quiet", "--warm", "0"]);
    let output = unbroken.args(flags.split(' ')).output();
    output.expect("it starts")
}

#[test]
fn a_load_passes_every_kind_of_listener() {
    let authority = Authority::new();
    let broker = Launch::listeners(&authority.in_config(CONFIG)).start();
    let (ca, directory) = (authority.name("ca.pem"), broker.directory().display());
    let [mqtts, ws, wss] = ["mqtts", "ws", "wss"].map(|protocol| port_of(&broker, protocol));
    for (flags, name) in [
        (format!("--unix {directory}/mqtt.sock"), ""),
        (
            format!("-L mqtts://localhost:{mqtts} --cafile {ca}"),
            " over tls",
        ),
        (format!("-h localhost -p {ws} --ws"), " over ws"),
        (
            format!("-L wss://localhost:{wss} --cafile {ca}"),
            " over wss",
        ),
    ] {
        // A frame and a record hold several packets, a packet takes several records, and one
        // publisher's packets leave together.
        for load in [
            "pairs --conns 8 --messages 100 --payload 40000 --qos 1",
            "pairs --conns 8 --messages 500 --batch 20 --qos 2",
            "idle --conns 20 --secs 0",
        ] {
            let output = bench(&format!("{load} {flags}"));
            let text = String::from_utf8_lossy(&output.stdout);
            let error = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{load} {flags}: {text}{error}");
            assert!(
                text.contains(&format!("MQTT 3.1.1{name}")),
                "{flags}: {text}"
            );
        }
    }
}

#[test]
fn what_a_load_cannot_use_is_said() {
    let authority = Authority::new();
    let other = Authority::new();
    let broker = Launch::listeners(&authority.in_config(CONFIG)).start();
    let [mqtts, ws] = ["mqtts", "ws"].map(|protocol| port_of(&broker, protocol));
    for (flags, code, part) in [
        (
            format!("-h localhost -p {mqtts} --cafile {}", other.name("ca.pem")),
            69,
            "closed the connection",
        ),
        (
            format!("-h localhost -p {ws} --ws --ws-path /x"),
            69,
            "closed the connection",
        ),
        (
            "-L mqtt://localhost/news".to_owned(),
            2,
            "names topic \"news\"",
        ),
        ("--unix /no/such.sock".to_owned(), 69, "/no/such.sock"),
    ] {
        let output = bench(&format!("{flags} idle --conns 1"));
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{flags}: {text}");
        assert!(text.contains(part), "{flags}: {text}");
    }
}
