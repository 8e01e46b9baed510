//! What callers of the admin server may do with what they show, and for how long.

use std::io::{BufRead as _, BufReader, Write as _};
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

/// The lines of an answer that does not end by itself, behind its status.
fn stream(admin: &Admin, path: &str) -> impl Iterator<Item = String> + use<> {
    let (address, headers) = (admin.address, &admin.headers);
    let mut socket = TcpStream::connect(address).expect("it listens");
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n{headers}\r\n");
    socket.write_all(request.as_bytes()).expect("it reads");
    socket.set_read_timeout(Some(DEADLINE)).expect("a timeout");
    let mut lines = BufReader::new(socket).lines();
    let status = lines.next().expect("a status").expect("text");
    assert!(status.contains(" 200 "), "{path}: {status}");
    lines.map(|line| line.expect("it ends in time"))
}

/// The last chunk of a body that has ended.
fn ends(mut lines: impl Iterator<Item = String>) -> bool {
    lines.any(|line| line == "0")
}

#[test]
fn streams_end_with_the_credentials_of_their_caller() {
    let broker = start();
    let admin = Admin::of(&broker);
    let new = json!({"name": "ann", "role": "operator", "password": "ann's password"});
    let added = admin.post("/api/v1/accounts", &new.to_string());
    assert_eq!(added.status, 201, "{added:?}");
    let trace = admin.post("/api/v1/traces", r#"{"client":"c","for_s":600}"#);
    let trace: Value = serde_json::from_str(&trace.body).expect("JSON");
    let events = format!("/api/v1/traces/{}/events", trace["id"]);

    let ann = admin.with_session(&sign_in(&admin, "ann", "ann's password"));
    let (live, trace) = (stream(&ann, "/api/v1/live"), stream(&ann, &events));
    assert_eq!(ann.post("/api/v1/sign-out", "").status, 204);
    assert!(ends(live) && ends(trace), "after the sign-out");

    let ann = admin.with_session(&sign_in(&admin, "ann", "ann's password"));
    let trace = stream(&ann, &events);
    let lower = admin.ask("PATCH", "/api/v1/accounts/ann", r#"{"role":"viewer"}"#);
    assert_eq!(lower.status, 200, "{lower:?}");
    assert!(ends(trace), "with a lower role");

    let live = stream(&ann, "/api/v1/live");
    let removed = admin.ask("DELETE", "/api/v1/accounts/ann", "");
    assert_eq!(removed.status, 204, "{removed:?}");
    assert!(ends(live), "without an account");

    let made = admin.post("/api/v1/tokens", r#"{"name":"t","role":"viewer"}"#);
    let bearer = format!("Authorization: Bearer {}\r\n", made.field("secret"));
    let live = stream(&admin.with_headers(&bearer), "/api/v1/live");
    let path = format!("/api/v1/tokens/{}", made.field("id"));
    assert_eq!(admin.ask("DELETE", &path, "").status, 204);
    assert!(ends(live), "without a token");
}

#[test]
fn no_name_uses_up_the_attempts_of_the_first_link() {
    let broker = start();
    let stranger = Admin::stranger(&broker);
    for _ in 0..6 {
        assert_eq!(sign_in(&stranger, "link:", "a guess").status, 401);
    }
    let _root = stranger.with_first_account(&broker);
}

#[test]
fn a_caller_without_a_password_cannot_lock_its_address() {
    let broker = start();
    let admin = Admin::of(&broker);
    for _ in 0..6 {
        let own = r#"{"old":"a guess","new":"another guess"}"#;
        assert_eq!(admin.post("/api/v1/me/password", own).status, 409);
    }
    assert_eq!(sign_in(&admin, "root", "root's password").status, 200);
}

#[test]
fn a_token_makes_only_tokens_within_its_scope() {
    let broker = start();
    let admin = Admin::of(&broker);
    let new = json!({"name": "maker", "role": "admin",
        "scope": ["/api/v1/tokens", "GET /api/v1/clients"]});
    let made = admin.post("/api/v1/tokens", &new.to_string());
    assert_eq!(made.status, 201, "{made:?}");
    let maker = admin.with_headers(&format!(
        "Authorization: Bearer {}\r\n",
        made.field("secret")
    ));
    for (name, scope, status) in [
        ("a", json!([]), 403),
        ("b", json!(["/api/v1/accounts"]), 403),
        ("c", json!(["/api/v1/clients"]), 403),
        ("d", json!(["GET /api/v1/clients", "/"]), 403),
        ("e", json!(["GET /api/v1/clients"]), 201),
        ("f", json!(["GET /api/v1/clients/one"]), 201),
    ] {
        let new = json!({"name": name, "role": "admin", "scope": scope});
        let answer = maker.post("/api/v1/tokens", &new.to_string());
        assert_eq!(answer.status, status, "{scope}: {answer:?}");
    }
}

#[test]
fn a_page_continues_behind_an_entry_that_was_removed() {
    let broker = start();
    let admin = Admin::of(&broker);
    for name in ["a", "b", "c"] {
        let body = json!({"name": name, "role": "viewer", "password": "a password"});
        let added = admin.post("/api/v1/accounts", &body.to_string());
        assert_eq!(added.status, 201, "{added:?}");
    }
    let first = json_of(&admin.get("/api/v1/accounts?limit=2"));
    assert_eq!(first["items"][1]["name"], "b", "{first}");
    for name in ["a", "b"] {
        let removed = admin.ask("DELETE", &format!("/api/v1/accounts/{name}"), "");
        assert_eq!(removed.status, 204, "{removed:?}");
    }
    let next = first["next"].as_str().expect("a cursor");
    let rest = json_of(&admin.get(&format!("/api/v1/accounts?limit=2&cursor={next}")));
    assert_eq!(rest["items"][0]["name"], "c", "{rest}");

    let log = |cursor: &str| json_of(&admin.get(&format!("/api/v1/logs?limit=1{cursor}")));
    let first = log("");
    let _client = broker.connect("logs a line");
    broker.wait_for_log("logs a line");
    let next = first["next"].as_str().expect("a cursor");
    let second = log(&format!("&cursor={next}"));
    let number = |page: &Value| page["items"][0]["number"].as_u64().expect("a number");
    assert_eq!(number(&second) + 1, number(&first), "{first} {second}");
}

#[test]
fn the_history_has_what_known_callers_were_refused_and_no_questions() {
    let broker = start();
    let admin = Admin::of(&broker);
    let new = r#"{"name":"reader","role":"viewer","scope":["GET /metrics"]}"#;
    let made = admin.post("/api/v1/tokens", new);
    let bearer = format!("Authorization: Bearer {}\r\n", made.field("secret"));
    for _ in 0..30 {
        let refused = admin
            .with_headers(&bearer)
            .post("/api/v1/publish", r#"{"topic":"t"}"#);
        assert_eq!(refused.status, 403, "{refused:?}");
    }
    let asked = r#"{"action":"connect"}"#;
    assert_eq!(admin.post("/api/v1/access/explain", asked).status, 200);
    let history = json_of(&admin.get("/api/v1/history?limit=1000"));
    let entries = history["items"].as_array().expect("entries");
    let of_reader = entries
        .iter()
        .filter(|entry| entry["caller"] == "token:reader")
        .count();
    assert!((10..=20).contains(&of_reader), "{of_reader}: {history}");
    assert!(!history.to_string().contains("explain"), "{history}");
}
