//! `unbroken cert`: from nothing to a broker with TLS and clients with certificates.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use unbroken_acceptance::Launch;
use unbroken_acceptance::process::binary;
use unbroken_acceptance::tools::Tool;

use crate::programs::{has, mosquitto_pub, port_of};

fn cert(directory: &Path, words: &str) -> Output {
    let mut unbroken = Command::new(binary());
    unbroken.current_dir(directory).arg("cert");
    let output = unbroken.args(words.split(' ')).output();
    output.expect("it starts")
}

fn succeed(directory: &Path, words: &str) -> String {
    let output = cert(directory, words);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words}: {error}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The lines of this kind, as they are to be pasted.
fn lines(printed: &str, keys: &[&str]) -> String {
    let is_one = |line: &&str| {
        keys.iter()
            .any(|key| line.starts_with(&format!("{key} = ")))
    };
    let lines: Vec<_> = printed.lines().filter(is_one).collect();
    assert_eq!(lines.len(), keys.len(), "{printed}");
    lines.join("\n")
}

#[test]
fn the_certificates_of_a_new_authority_serve_a_broker_and_its_clients() {
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let directory = directory.path();
    succeed(directory, "new-ca pki");
    let server = succeed(directory, "issue pki --server localhost --server 127.0.0.1");
    let client = succeed(directory, "issue pki --client pump-7");
    for key in ["ca.key", "localhost.key", "pump-7.key"] {
        let metadata = fs::metadata(directory.join("pki").join(key)).expect("it is there");
        assert_eq!(metadata.permissions().mode() & 0o777, 0o600, "{key}");
    }
    let config = format!(
        "[[listeners]]\nport = 0\n\n[[listeners]]\nprotocol = \"mqtts\"\nport = 0\n{}\n{}\n",
        lines(&server, &["certificate_file", "key_file"]),
        lines(&client, &["client_ca_file"]),
    );
    let broker = Launch::listeners(&config).start();
    let port = port_of(&broker, "mqtts").to_string();
    let pki = |name: &str| directory.join("pki").join(name).display().to_string();
    let (ca, certificate, key) = (pki("ca.pem"), pki("pump-7.pem"), pki("pump-7.key"));
    for host in ["localhost", "127.0.0.1"] {
        let to = ["-h", host, "-p", &port, "--cafile", &ca];
        let as_client = ["--cert", &certificate, "--key", &key];
        let message = ["-t", "news", "-m", "x", "-q", "1", "-i", "of-pump-7"];
        let all = [&to[..], &as_client, &message].concat();
        let published = Command::new(binary()).arg("pub").args(&all).output();
        let published = published.expect("it starts");
        let error = String::from_utf8_lossy(&published.stderr);
        assert!(published.status.success(), "{error}{}", broker.log());
        if has(Tool::Mosquitto) {
            let (succeeded, text) = mosquitto_pub(&all);
            assert!(succeeded, "{text}");
        }
    }
}

#[test]
fn no_file_is_replaced_and_mistakes_are_named() {
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let directory = directory.path();
    succeed(directory, "new-ca pki --days 10");
    let before = fs::read(directory.join("pki/ca.key")).expect("it is there");
    succeed(directory, "issue pki --server localhost");
    for (words, code, part) in [
        ("new-ca pki", 73, "ca.key exists already"),
        ("issue pki --server localhost", 73, "move it away first"),
        ("issue pki --server a/b", 2, "neither the name of a host"),
        ("issue pki --client ../b", 2, "cannot be the name of a file"),
        ("issue none --client b", 66, "cannot read"),
        ("show pki/ca.key", 66, "no certificate"),
    ] {
        let output = cert(directory, words);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{words}: {text}");
        assert!(text.contains(part), "{words}: {text}");
    }
    let after = fs::read(directory.join("pki/ca.key")).expect("it is there");
    assert!(before == after);
    // A certificate ends with its authority, however long it was asked for.
    let shown = succeed(directory, "show pki/localhost.pem");
    assert!(shown.contains("names    localhost"), "{shown}");
    let end = |shown: &str| shown.split(" to ").nth(1).map(|it| it[..10].to_owned());
    assert_eq!(end(&shown), end(&succeed(directory, "show pki/ca.pem")));
    assert!(shown.contains("kind     no authority"), "{shown}");
}
