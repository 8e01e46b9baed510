//! Which brokers `unbroken pub` trusts: by a file, a directory, the system's authorities, a name or
//! none, and what it asks for in the handshake.

use std::fs;
use std::process::{Command, Output};

use unbroken_acceptance::Launch;
use unbroken_acceptance::process::binary;

use crate::certificates::Authority;
use crate::programs::{port_named, port_of};

const CONFIG: &str = "\
[[listeners]]
port = 0

[[listeners]]
protocol = \"mqtts\"
port = 0
certificate_file = \"DIRECTORY/server.pem\"
key_file = \"DIRECTORY/server.key\"
allow_anonymous = true

[[listeners]]
name = \"elsewhere\"
protocol = \"wss\"
port = 0
certificate_file = \"DIRECTORY/elsewhere.pem\"
key_file = \"DIRECTORY/elsewhere.key\"
allow_anonymous = true
";

/// `system`: the file that stands for the authorities of the system.
fn publish(flags: &str, system: Option<&str>) -> Output {
    let mut unbroken = Command::new(binary());
    unbroken.arg("pub").args(flags.split(' '));
    unbroken.args(["-m", "x", "-q", "1"]);
    unbroken
        .env_remove("SSL_CERT_FILE")
        .env_remove("SSL_CERT_DIR");
    if let Some(file) = system {
        unbroken.env("SSL_CERT_FILE", file);
    }
    unbroken.output().expect("it starts")
}

#[test]
fn a_broker_is_trusted_for_the_reasons_that_the_flags_give() {
    let authority = Authority::new();
    authority.issue_for("elsewhere", &["elsewhere.example"]);
    let broker = Launch::listeners(&authority.in_config(CONFIG)).start();
    let (mqtts, elsewhere) = (port_of(&broker, "mqtts"), port_named(&broker, "elsewhere"));
    let directory = tempfile::tempdir().expect("a directory can be made");
    let copied = fs::copy(authority.path("ca.pem"), directory.path().join("ca.crt"));
    copied.expect("it is copied");
    let empty = tempfile::tempdir().expect("a directory can be made");
    let [full, empty] = [&directory, &empty].map(|it| it.path().display().to_string());
    let ca = authority.name("ca.pem");
    let other = Authority::new();
    let not_it = other.name("ca.pem");
    let secured = format!("-t news -h localhost -p {mqtts}");
    let page = format!("-t news -h localhost -p {elsewhere} --ws --cafile {ca}");
    for (flags, system, code, words) in [
        // Another host's certificate is accepted only where that is asked for, and never one of
        // another authority.
        (page.clone(), None, 8, "elsewhere.example"),
        (format!("{page} --insecure"), None, 0, ""),
        (
            format!("{secured} --insecure --cafile {not_it}"),
            None,
            8,
            "",
        ),
        (format!("{secured} --capath {full}"), None, 0, ""),
        (
            format!("{secured} --capath {empty}"),
            None,
            1,
            "has no file *.pem or *.crt",
        ),
        (
            format!("{secured} --cafile {ca} --tls-alpn mqtt"),
            None,
            0,
            "",
        ),
        (
            format!("{secured} --cafile {ca} --tls-alpn h2"),
            None,
            8,
            "NoApplicationProtocol",
        ),
        (format!("{secured} --tls-use-os-certs"), Some(&ca), 0, ""),
        (
            format!("{secured} --tls-use-os-certs"),
            Some(&not_it),
            8,
            "",
        ),
        (
            format!("-L mqtts://localhost:{mqtts}/news"),
            Some(&ca),
            0,
            "",
        ),
        (
            format!("-L mqtts://localhost:{mqtts}/news"),
            Some(&not_it),
            8,
            "",
        ),
    ] {
        let output = publish(&flags, system.map(String::as_str));
        let text = String::from_utf8_lossy(&output.stderr);
        let log = broker.log();
        assert_eq!(output.status.code(), Some(code), "{flags}: {text}{log}");
        assert!(text.contains(words), "{flags}: {text}");
    }
}
