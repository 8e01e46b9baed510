//! `docs/expose.md`, carried out line by line in an empty directory.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};
use std::{env, iter};

use unbroken_acceptance::Launch;
use unbroken_acceptance::process::binary;

use crate::pages::{blocks, replaced};

const PAGE: &str = "expose.md";

/// The files of step 1, as the configuration names them.
const PEM: &str = "\"pki/broker.example.org.pem\"";
const KEY: &str = "\"pki/broker.example.org.key\"";

/// A shell carries these lines out, where `unbroken` is the binary under test.
fn shell(lines: &str, directory: &Path) -> Output {
    let path = env::var_os("PATH").unwrap_or_default();
    let path = iter::once(directory.join("bin")).chain(env::split_paths(&path));
    let mut shell = Command::new("sh");
    shell.args(["-e", "-c", lines]).current_dir(directory);
    shell.env("PATH", env::join_paths(path).expect("names without colons"));
    shell.output().expect("a shell is there")
}

#[track_caller]
fn succeeds(lines: &str, directory: &Path) -> String {
    let output = shell(lines, directory);
    let errors = String::from_utf8_lossy(&output.stderr);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{lines}\n{text}{errors}");
    text
}

#[test]
fn its_lines_lead_to_a_broker_with_tls_users_and_rules() {
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let directory = directory.path();
    fs::create_dir(directory.join("bin")).expect("it is empty");
    let program = fs::canonicalize(binary()).expect("the binary is there");
    symlink(program, directory.join("bin/unbroken")).expect("a link can be made");
    let lines = blocks(PAGE, "sh");
    let [certificates, users, checks, serve, clients] = &lines[..] else {
        panic!("the page has other steps");
    };
    let host = [("broker.example.org", "localhost")];
    succeeds(&replaced(certificates, &host), directory);
    let [config] = &blocks(PAGE, "toml")[..] else {
        panic!("the page has one configuration");
    };
    let named = replaced(config, &[("broker.example.org", "localhost")]);
    fs::write(directory.join("broker.toml"), named).expect("the directory is writable");
    succeeds(users, directory);
    let checked = succeeds(checks, directory);
    assert!(!checked.contains("# weak"), "{checked}");
    assert!(
        checked.contains("allowed: an access rule allows it"),
        "{checked}"
    );

    // Served as the page says, but by the harness, which finds a port and ends it.
    assert_eq!(serve.trim(), "unbroken serve -c broker.toml --data data");
    let named = |name: &str| format!("\"{}\"", directory.join(name).display());
    let config = replaced(
        config,
        &[
            ("bind = \"*\"", "bind = \"127.0.0.1\"\nport = 0"),
            (PEM, &named("pki/localhost.pem")),
            (KEY, &named("pki/localhost.key")),
        ],
    );
    let broker = Launch::listeners(&config).durable().start();
    let data = format!("--data {}", broker.data().display());
    succeeds(&replaced(users, &[("--data data", &data)]), directory);
    let port = format!("-p {}", broker.address().port());
    let clients = replaced(clients, &[host[0], ("-p 8883", &port)]);
    assert_eq!(succeeds(&clients, directory).trim_end(), "21");

    // And who has no right gets nothing. A message that is refused is a warning.
    let (publish, subscribe) = clients.split_once("unbroken sub").expect("both are there");
    let subscribe = format!("unbroken sub{subscribe}");
    let operator = "-u operator -P \"another one\"";
    let ann = "-u ann -P \"a password\"";
    for (lines, says) in [
        (
            replaced(publish, &[("plant/ann/", "plant/bob/")]),
            "Not authorized",
        ),
        (
            replaced(publish, &[("a password", "a guess")]),
            "Bad User Name or Password",
        ),
        (replaced(publish, &[(ann, "")]), "Not authorized"),
        (
            replaced(publish, &[("--cafile pki/ca.pem", "")]),
            "is not MQTT",
        ),
        (replaced(&subscribe, &[(operator, ann)]), "Not authorized"),
    ] {
        let output = shell(&lines, directory);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.contains(says), "{says}: {lines}\n{errors}");
        assert_eq!(output.stdout, b"");
    }
}
