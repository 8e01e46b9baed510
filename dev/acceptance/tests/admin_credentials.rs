//! What callers of the admin server may do with what they show, and for how long.

use std::io::Write as _;
use std::net::TcpStream;
use std::time::Instant;

use serde_json::{Value, json};
use unbroken_acceptance::admin::Answer;
use unbroken_acceptance::{Admin, Broker, DEADLINE, Launch};

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

#[test]
fn a_change_whose_caller_has_gone_is_made_and_recorded() {
    let broker = start();
    let admin = Admin::of(&broker);
    for number in 0..20 {
        let body = json!({"name": format!("gone-{number}"), "role": "viewer"}).to_string();
        let (address, headers, length) = (admin.address, &admin.headers, body.len());
        let mut socket = TcpStream::connect(address).expect("it listens");
        let request = format!(
            "POST /api/v1/tokens HTTP/1.1\r\nHost: {address}\r\n{headers}Content-Type: \
             application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        socket.write_all(request.as_bytes()).expect("it reads");
    }
    let deadline = Instant::now() + DEADLINE;
    loop {
        let tokens = admin.get("/api/v1/tokens?limit=1000").body;
        let history = admin.get("/api/v1/history?limit=1000").body;
        let names = (0..20).map(|number| format!("gone-{number}"));
        let made: Vec<_> = names
            .filter(|name| tokens.contains(&format!("\"{name}\"")))
            .collect();
        let recorded = made
            .iter()
            .filter(|name| history.contains(&format!("\"{name} (viewer)\"")))
            .count();
        if made.len() == 20 && recorded == 20 {
            return;
        }
        assert!(
            Instant::now() < deadline,
            "{made:?}, {recorded} of them recorded"
        );
    }
}
