//! What the admin server keeps: accounts, tokens and history over a restart, and its unix socket.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::Value;
use unbroken_acceptance::admin::{ask_socket, link};
use unbroken_acceptance::{Admin, Launch};

#[test]
fn a_restart_keeps_accounts_tokens_and_history_in_files_of_the_user() {
    let mut broker = Launch::config("")
        .with_admin()
        .durable()
        .umask("000")
        .start();
    let admin = Admin::of(&broker);
    for name in ["admin.json", "admin", "admin-history.jsonl"] {
        let found = fs::metadata(broker.data().join(name)).expect(name);
        assert_eq!(found.permissions().mode() & 0o777, 0o600, "{name}");
    }
    let book = fs::read_to_string(broker.data().join("admin.json")).expect("it is there");
    let token = admin
        .headers
        .trim_end()
        .rsplit(' ')
        .next()
        .expect("a token");
    assert!(
        !book.contains("root's password") && !book.contains(token),
        "{book}"
    );
    broker.ask_to_end();
    broker.wait();
    assert!(
        !broker.data().join("admin").exists(),
        "the socket is removed"
    );
    broker.start_again();
    let again = Admin {
        address: Admin::stranger(&broker).address,
        ..admin
    };
    assert_eq!(again.get("/api/v1/me").field("name"), "token:test");
    let history = again.get("/api/v1/history");
    assert!(
        history.body.contains("POST /api/v1/sign-in/link"),
        "{history:?}"
    );
    assert!(!history.body.contains("root's password"), "{history:?}");
    assert!(!broker.log().contains("#link="), "{}", broker.log());
}

#[test]
fn the_history_has_every_change_with_its_caller() {
    let broker = Launch::config("").with_admin().start();
    let admin = Admin::of(&broker);
    let viewer = admin.with_token("viewer", "viewer");
    assert_eq!(viewer.post("/api/v1/tokens", "{}").status, 403);
    assert_eq!(viewer.get("/api/v1/accounts").status, 403);
    assert_eq!(
        admin.ask("DELETE", "/api/v1/accounts/nobody", "").status,
        404
    );
    let history = admin.get("/api/v1/history?limit=3");
    let history: Value = serde_json::from_str(&history.body).expect("JSON");
    let field = |index: usize, name: &str| history["items"][index][name].clone();
    assert_eq!(field(0, "caller"), "token:test");
    assert_eq!(field(0, "action"), "DELETE /api/v1/accounts/{name}");
    assert_eq!(field(0, "target"), "/api/v1/accounts/nobody");
    assert_eq!(field(0, "status"), 404);
    assert_eq!(field(0, "outcome"), "refused");
    assert_eq!(field(0, "address"), "127.0.0.1");
    assert_eq!(field(1, "caller"), "token:viewer");
    assert_eq!(field(1, "outcome"), "refused");
    assert_eq!(field(2, "target"), "viewer (viewer)");
    assert_eq!(field(2, "outcome"), "done");
    let next = history["next"].as_str().expect("there is more");
    let rest = admin.get(&format!("/api/v1/history?cursor={next}"));
    let rest: Value = serde_json::from_str(&rest.body).expect("JSON");
    assert_eq!(rest["items"][1]["action"], "POST /api/v1/sign-in/link");
    assert_eq!(rest["items"][1]["caller"], "root");
    assert!(rest["next"].is_null(), "{rest}");
}

#[test]
fn the_unix_socket_is_for_the_user_of_the_broker() {
    let broker = Launch::config("").with_admin().durable().start();
    let admin = Admin::stranger(&broker);
    let data = broker.data();
    let me = ask_socket(&data, "GET", "/api/v1/me", "");
    assert_eq!((me.status, &*me.field("role")), (200, "admin"), "{me:?}");
    assert!(me.field("name").starts_with("unix:"), "{me:?}");
    let old = link(&broker);
    let made = ask_socket(&data, "POST", "/api/v1/sign-in/links", "");
    assert_eq!(made.status, 201, "{made:?}");
    let body = |token: &str| {
        format!("{{\"token\":\"{token}\",\"name\":\"ann\",\"password\":\"ann's password\"}}")
    };
    assert_eq!(admin.post("/api/v1/sign-in/link", &body(&old)).status, 403);
    let token = made.field("token");
    assert_eq!(
        admin.post("/api/v1/sign-in/link", &body(&token)).status,
        200
    );
    let made = ask_socket(&data, "POST", "/api/v1/sign-in/links", "");
    assert_eq!(made.status, 409, "{made:?}");
    let removed = ask_socket(&data, "DELETE", "/api/v1/accounts/ann", "");
    assert_eq!(removed.status, 204, "{removed:?}");
}

#[test]
fn a_file_in_the_place_of_the_socket_stays() {
    let mut broker = Launch::config("").with_admin().durable().start();
    Admin::stranger(&broker);
    broker.kill();
    let path = broker.data().join("admin");
    assert!(path.exists(), "a killed broker leaves its socket");
    broker.start_again();
    Admin::stranger(&broker);
    broker.ask_to_end();
    broker.wait();
    fs::write(&path, "a file").expect("the directory is writable");
    let (status, log) = broker.start_another();
    assert_eq!(status.code(), Some(69), "{log}");
    assert!(log.contains("is not a socket"), "{log}");
    assert_eq!(fs::read_to_string(&path).expect("it is there"), "a file");
}
