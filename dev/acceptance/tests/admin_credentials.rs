//! What callers of the admin server may do with what they show, and for how long.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};
use unbroken_acceptance::admin::Answer;
use unbroken_acceptance::{Admin, Broker, Launch};

fn start() -> Broker {
    Launch::config("").with_admin().start()
}

fn json_of(answer: &Answer) -> Value {
    assert_eq!(answer.status, 200, "{answer:?}");
    serde_json::from_str(&answer.body).expect("JSON")
}

fn sign_in(admin: &Admin, name: &str, password: &str) -> Answer {
    let body = json!({"name": name, "password": password});
    admin
        .with_headers("")
        .post("/api/v1/sign-in", &body.to_string())
}

#[test]
fn unknown_keys_and_parameters_are_refused() {
    let broker = start();
    let admin = Admin::of(&broker);
    for (method, path, body) in [
        (
            "POST",
            "tokens",
            r#"{"name":"x","role":"admin","scopes":["/metrics"]}"#,
        ),
        (
            "POST",
            "tokens",
            r#"{"name":"x","role":"admin","expiry":"2999-01-01T00:00:00Z"}"#,
        ),
        ("PATCH", "accounts/root", r#"{"rol":"admin"}"#),
        (
            "POST",
            "accounts",
            r#"{"name":"x","role":"viewer","password":"12345678","x":1}"#,
        ),
        (
            "POST",
            "sign-in",
            r#"{"name":"root","password":"root's password","x":1}"#,
        ),
        ("GET", "accounts?limits=1", ""),
        ("GET", "tokens?page=2", ""),
        ("GET", "history?x=1", ""),
        ("GET", "incidents?kinds=lost", ""),
        ("GET", "lanes?client=x", ""),
        ("GET", "series?name=x", ""),
        ("GET", "delivery/checkpoints?n=1", ""),
    ] {
        let answer = admin.ask(method, &format!("/api/v1/{path}"), body);
        assert!(
            (400..500).contains(&answer.status),
            "{method} {path}: {answer:?}"
        );
        assert!(
            answer.body.contains("unknown field"),
            "{method} {path}: {answer:?}"
        );
    }
    assert!(!admin.get("/api/v1/tokens").body.contains("\"x\""));
}
