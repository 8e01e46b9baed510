//! Files of a listener that are renewed while the broker runs: seen by itself, or on a command.

use std::process::{Command, Output};

use unbroken_acceptance::process::binary;
use unbroken_acceptance::{Broker, Launch};

use crate::certificates::Authority;
use crate::programs::port_of;

const CONFIG: &str = "\
[[listeners]]
port = 0

[[listeners]]
protocol = \"mqtts\"
port = 0
allow_anonymous = true
certificate_file = \"DIRECTORY/server.pem\"
key_file = \"DIRECTORY/server.key\"
";

/// Whether a client that trusts this authority can publish.
fn is_trusted(broker: &Broker, authority: &Authority) -> bool {
    let port = port_of(broker, "mqtts").to_string();
    let ca = authority.name("ca.pem");
    let to = ["-h", "localhost", "-p", &port, "--cafile", &ca];
    let message = ["-t", "news", "-m", "x", "-q", "1"];
    let mut unbroken = Command::new(binary());
    let published = unbroken.arg("pub").args(to).args(message).output();
    published.expect("it starts").status.success()
}

#[test]
fn a_renewed_certificate_is_used_without_a_signal_and_a_bad_one_is_not() {
    let (authority, other) = (Authority::new(), Authority::new());
    let broker = Launch::listeners(&authority.in_config(CONFIG)).start();
    broker.wait_for_log("what=\"certificate\"");
    assert!(is_trusted(&broker, &authority));
    let files = ["server.pem", "server.key"];
    let renew = |from: &Authority, file: &str| {
        let text = std::fs::read_to_string(from.path(file)).expect("it is there");
        // Replaced at once, as programs do that renew certificates.
        authority.write("new", &text);
        std::fs::rename(authority.path("new"), authority.path(file)).expect("it is replaced");
    };
    for file in files {
        renew(&other, file);
    }
    broker.wait_for_log("configuration reloaded");
    assert!(is_trusted(&broker, &other) && !is_trusted(&broker, &authority));
    authority.write("server.key", "no key");
    let line = broker.wait_for_log("cannot reload the configuration");
    assert!(line.contains("server.key"), "{line}");
    assert!(is_trusted(&broker, &other));
}

#[test]
fn a_command_reloads_and_says_what_has_changed_or_why_nothing_has() {
    let config = |limit: &str| format!("[limits]\nconnections_max = {limit}\n");
    let broker = Launch::config(&config("7")).durable().start();
    let data = broker.data().display().to_string();
    let reload = || -> Output {
        let mut unbroken = Command::new(binary());
        let output = unbroken.args(["reload", "--data", &data]).output();
        output.expect("it starts")
    };
    broker.rewrite_config(&config("8"));
    let output = reload();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(text, "limits.connections_max: 7 -> 8 (applied)\n");
    let output = reload();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.starts_with("no changes"), "{text}");
    broker.rewrite_config(&config("0"));
    let output = reload();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(78), "{text}");
    assert!(text.contains("limits.connections_max"), "{text}");
}
