//! `unbroken admin`: accounts, tokens and history from the shell.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use unbroken_acceptance::process::binary;
use unbroken_acceptance::{Admin, Launch};

/// Runs a command about the broker in a directory; its code and what it prints on both streams.
fn run(directory: (&str, &Path), words: &[&str], input: &str) -> (Option<i32>, String) {
    let mut child = Command::new(binary())
        .arg("admin")
        .args(words)
        .arg(directory.0)
        .arg(directory.1)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut stdin = child.stdin.take().expect("it is piped");
    // A command that needs no password does not read it.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    let output = child.wait_with_output().expect("it ends");
    let text = [output.stdout, output.stderr].concat();
    (
        output.status.code(),
        String::from_utf8_lossy(&text).into_owned(),
    )
}

#[test]
fn accounts_and_tokens_are_managed_from_the_shell() {
    let broker = Launch::config("").with_admin().durable().start();
    let admin = Admin::stranger(&broker);
    let data = broker.data();
    let ok = |words: &[&str], input: &str| {
        let (code, text) = run(("--data", &data), words, input);
        assert_eq!(code, Some(0), "{words:?}: {text}");
        text.trim_end().to_owned()
    };
    let fails = |words: &[&str], input: &str, expected: i32| {
        let (code, text) = run(("--data", &data), words, input);
        assert_eq!(code, Some(expected), "{words:?}: {text}");
        text
    };
    assert!(ok(&["link"], "").contains("/#link="));
    ok(
        &["account", "add", "ann", "--role", "admin"],
        "ann's password\n",
    );
    assert!(fails(&["link"], "", 1).contains("account add"));
    assert!(fails(&["account", "add", "ann"], "ann's password\n", 1).contains("already"));
    assert!(fails(&["account", "add", "bob"], "short\n", 2).contains("8 characters"));
    assert!(fails(&["account", "role", "eve", "viewer"], "", 1).contains("eve"));
    let body = "{\"name\":\"ann\",\"password\":\"ann's password\"}";
    let ann = admin.with_session(&admin.post("/api/v1/sign-in", body));
    assert_eq!(ann.get("/api/v1/accounts").status, 200);
    ok(&["account", "passwd", "ann"], "another password\n");
    assert_eq!(ann.get("/api/v1/me").status, 401);
    assert!(ok(&["account", "list"], "").starts_with("ann  admin  "));
    assert!(ok(&["account", "list", "--json"], "").contains("\"role\":\"admin\""));

    let words = [
        "token", "add", "deploy", "--role", "operator", "--for", "90d",
    ];
    let token = ok(&words, "");
    let deploy = admin.with_headers(&format!("Authorization: Bearer {token}\r\n"));
    assert_eq!(deploy.get("/api/v1/me").field("role"), "operator");
    assert!(fails(&words, "", 1).contains("already"));
    assert!(fails(&["token", "add", "x", "--for", "soon"], "", 2).contains("soon"));
    assert!(ok(&["token", "list"], "").contains("deploy  operator"));
    ok(&["token", "remove", "deploy"], "");
    assert_eq!(deploy.get("/api/v1/me").status, 401);
    fails(&["token", "remove", "deploy"], "", 1);
    ok(&["account", "remove", "ann"], "");

    let history = ok(&["history"], "");
    let lines: Vec<_> = history.lines().collect();
    assert!(
        lines[lines.len() - 1].contains("DELETE /api/v1/accounts/{name}"),
        "{history}"
    );
    assert!(
        history.contains("unix:") && history.contains("refused"),
        "{history}"
    );
    assert!(history.contains("ann: a new password"), "{history}");
    assert!(!history.contains("another password"), "{history}");
    assert_eq!(ok(&["history", "-n", "1", "--json"], "").lines().count(), 1);
}

#[test]
fn a_broker_in_memory_is_managed_by_its_control_directory() {
    let control = tempfile::tempdir().expect("a directory");
    let path = control.path().display().to_string();
    let launch = Launch::config("").with_admin();
    let broker = launch.argument("--control").argument(&path).start();
    Admin::stranger(&broker);
    let directory = ("--control", control.path());
    let words = ["account", "add", "ann", "--role", "admin"];
    let (code, text) = run(directory, &words, "ann's password\n");
    assert_eq!(code, Some(0), "{text}");
    let names = fs::read_dir(control.path()).expect("it is there");
    let mut names: Vec<_> = names.map(|it| it.expect("an entry").file_name()).collect();
    names.sort();
    assert_eq!(names, ["admin", "control"], "accounts are in memory");
}

#[test]
fn without_a_broker_the_command_says_so() {
    let empty = tempfile::tempdir().expect("a directory");
    let (code, text) = run(("--data", empty.path()), &["history"], "");
    assert_eq!(code, Some(69), "{text}");
    assert!(text.contains("unbroken serve"), "{text}");
}
