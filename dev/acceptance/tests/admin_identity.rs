//! Who may ask the admin server: sign-in, sessions, tokens, roles.

use serde_json::Value;
use unbroken_acceptance::admin::link;
use unbroken_acceptance::{Admin, Broker, Launch};

fn start() -> Broker {
    Launch::config("").with_admin().start()
}

/// Method and path of each request that the API's document has, below `/api/v1`.
fn operations(admin: &Admin) -> Vec<(String, String, bool)> {
    let document = admin.get("/api/v1/openapi.json");
    let document: Value = serde_json::from_str(&document.body).expect("JSON");
    let paths = document["paths"].as_object().expect("paths");
    let mut found = Vec::new();
    for (path, methods) in paths {
        for (method, operation) in methods.as_object().expect("methods") {
            let is_open = operation["security"][0] == serde_json::json!({});
            let path = path.replace(['{', '}'], "");
            found.push((method.to_uppercase(), path, is_open));
        }
    }
    found
}

#[test]
fn every_request_needs_credentials_and_what_is_open_is_named() {
    let broker = start();
    let admin = Admin::stranger(&broker);
    let operations = operations(&admin);
    assert!(operations.len() > 10, "{operations:?}");
    let mut open = Vec::new();
    for (method, path, is_open) in &operations {
        if *is_open {
            open.push(&**path);
            continue;
        }
        for headers in [
            "",
            "Authorization: Bearer unb_guessed\r\n",
            "Authorization: Basic cm9vdDpyb290\r\n",
            "Cookie: unbroken-0=guessed; unbroken-7883=guessed\r\n",
        ] {
            let answer = admin.with_headers(headers).ask(method, path, "");
            assert_eq!(
                answer.status, 401,
                "{method} {path} with {headers}: {answer:?}"
            );
            let kind = answer.header("content-type");
            assert_eq!(kind, Some("application/problem+json"), "{answer:?}");
            assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
        }
    }
    open.sort_unstable();
    assert_eq!(open, ["/api/v1/sign-in", "/api/v1/sign-in/link"]);
    for path in ["/healthz", "/readyz", "/metrics", "/api/v1/openapi.json"] {
        assert_eq!(admin.get(path).status, 200, "{path}");
    }
    for path in ["/api/v1/unknown", "/api/", "/api", "/api/v1"] {
        assert_eq!(admin.get(path).status, 401, "{path}");
    }
}

#[test]
fn the_first_link_makes_one_account_once() {
    let broker = start();
    let admin = Admin::stranger(&broker);
    let token = link(&broker);
    let sign_in = |token: &str, name: &str, password: &str| {
        let body = serde_json::json!({ "token": token, "name": name, "password": password });
        admin.post("/api/v1/sign-in/link", &body.to_string())
    };
    assert_eq!(sign_in("guessed", "ann", "a long password").status, 403);
    assert_eq!(sign_in(&token, "ann", "short").status, 422);
    assert_eq!(sign_in(&token, "a name", "a long password").status, 422);
    let answer = sign_in(&token, "ann", "a long password");
    assert_eq!((answer.status, &*answer.field("role")), (200, "admin"));
    let cookie = answer.header("set-cookie").expect("a cookie");
    for part in ["; HttpOnly", "; SameSite=Strict", "; Path=/"] {
        assert!(cookie.contains(part), "{cookie}");
    }
    assert!(
        !cookie.contains("Secure"),
        "it would not be sent back: {cookie}"
    );
    assert_eq!(sign_in(&token, "eve", "a long password").status, 403);
    let ann = admin.with_session(&answer);
    let accounts = ann.get("/api/v1/accounts");
    assert!(
        accounts.body.contains("\"ann\"") && !accounts.body.contains("eve"),
        "{accounts:?}"
    );
    assert!(!accounts.body.contains("argon2"), "{accounts:?}");
}

#[test]
fn a_change_by_cookie_comes_from_a_page_of_this_server() {
    let broker = start();
    let stranger = Admin::stranger(&broker);
    let root = stranger.with_first_account(&broker);
    let (cookie, rest) = root.headers.split_once("\r\n").expect("lines");
    let (csrf, origin) = rest.split_once("\r\n").expect("lines");
    let address = root.address;
    let body = "{\"name\":\"x\",\"role\":\"viewer\"}";
    for (headers, status) in [
        (format!("{cookie}\r\n"), 403),
        (format!("{cookie}\r\n{origin}"), 403),
        (
            format!("{cookie}\r\nX-CSRF-Token: guessed\r\n{origin}"),
            403,
        ),
        (format!("{cookie}\r\n{csrf}\r\n"), 403),
        (
            format!("{cookie}\r\n{csrf}\r\nSec-Fetch-Site: cross-site\r\n{origin}"),
            403,
        ),
        (
            format!("{cookie}\r\n{csrf}\r\nSec-Fetch-Site: same-site\r\n"),
            403,
        ),
        (
            format!("{cookie}\r\n{csrf}\r\nOrigin: http://localhost:1\r\n"),
            403,
        ),
        (
            format!("{cookie}\r\n{csrf}\r\nOrigin: https://evil.example.com\r\n"),
            421,
        ),
        (format!("{cookie}\r\n{csrf}\r\nOrigin: null\r\n"), 421),
        (
            format!("{cookie}\r\n{csrf}\r\nOrigin: http://{address}\r\n"),
            201,
        ),
    ] {
        let answer = root.with_headers(&headers).post("/api/v1/tokens", body);
        assert_eq!(answer.status, status, "{headers}: {answer:?}");
    }
    assert_eq!(
        root.with_headers(&format!("{cookie}\r\n"))
            .get("/api/v1/me")
            .status,
        200
    );
    // Nor can another site sign its reader in.
    let evil = stranger.with_headers("Origin: http://localhost:1\r\n");
    let body = "{\"name\":\"root\",\"password\":\"root's password\"}";
    assert_eq!(evil.post("/api/v1/sign-in", body).status, 403);
    assert_eq!(root.post("/api/v1/sign-out", "").status, 204);
    assert_eq!(root.get("/api/v1/me").status, 401);
}

#[test]
fn roles_bound_what_callers_may_do() {
    let broker = start();
    let admin = Admin::of(&broker);
    for (role, read, write) in [
        ("viewer", 403, 403),
        ("operator", 403, 403),
        ("admin", 200, 201),
    ] {
        let caller = admin.with_token(role, role);
        assert_eq!(caller.get("/api/v1/node").status, 200, "{role}");
        assert_eq!(caller.get("/api/v1/accounts").status, read, "{role}");
        let body = format!("{{\"name\":\"by-{role}\",\"role\":\"admin\"}}");
        let made = caller.post("/api/v1/tokens", &body);
        assert_eq!(made.status, write, "{role}: {made:?}");
        let me = caller.get("/api/v1/me");
        assert_eq!(
            (me.field("name"), me.field("role")),
            (format!("token:{role}"), role.to_owned())
        );
    }
}

#[test]
fn a_changed_account_is_so_for_its_next_request() {
    let broker = start();
    let admin = Admin::of(&broker);
    let new = "{\"name\":\"ann\",\"role\":\"admin\",\"password\":\"ann's password\"}";
    assert_eq!(admin.post("/api/v1/accounts", new).status, 201);
    assert_eq!(admin.post("/api/v1/accounts", new).status, 409);
    let sign_in = |password: &str| {
        let body = format!("{{\"name\":\"ann\",\"password\":\"{password}\"}}");
        admin.with_headers("").post("/api/v1/sign-in", &body)
    };
    let ann = admin.with_session(&sign_in("ann's password"));
    assert_eq!(ann.get("/api/v1/accounts").status, 200);
    let change = |body| admin.ask("PATCH", "/api/v1/accounts/ann", body).status;
    assert_eq!(change("{\"role\":\"viewer\"}"), 200);
    assert_eq!(ann.get("/api/v1/accounts").status, 403);
    let own = "{\"old\":\"wrong\",\"new\":\"another password\"}";
    assert_eq!(ann.post("/api/v1/me/password", own).status, 403);
    let own = "{\"old\":\"ann's password\",\"new\":\"another password\"}";
    assert_eq!(ann.post("/api/v1/me/password", own).status, 204);
    assert_eq!(ann.get("/api/v1/me").status, 401);
    assert_eq!(sign_in("ann's password").status, 401);
    let ann = admin.with_session(&sign_in("another password"));
    assert_eq!(admin.ask("DELETE", "/api/v1/accounts/ann", "").status, 204);
    assert_eq!(ann.get("/api/v1/me").status, 401);
    assert_eq!(sign_in("another password").status, 401);
    for body in ["", "{\"role\":\"viewer\"}"] {
        let method = if body.is_empty() { "DELETE" } else { "PATCH" };
        let answer = admin.ask(method, "/api/v1/accounts/root", body);
        assert_eq!(answer.status, 409, "the last admin: {answer:?}");
    }
}

#[test]
fn tokens_have_a_scope_and_an_end() {
    let broker = Launch::config("[admin]\nmetrics = \"token\"\n")
        .with_admin()
        .start();
    let admin = Admin::of(&broker);
    assert_eq!(admin.with_headers("").get("/metrics").status, 401);
    assert_eq!(admin.get("/metrics").status, 200);
    let make = |rest: &str| {
        let body = format!("{{\"name\":\"prometheus\",\"role\":\"viewer\",{rest}}}");
        admin.post("/api/v1/tokens", &body)
    };
    for (rest, status) in [
        ("\"scope\":[\"metrics\"]", 422),
        ("\"scope\":[\"FETCH /metrics\"]", 422),
        ("\"scope\":7", 400),
        ("\"expires\":\"2020-01-01T00:00:00Z\"", 422),
        ("\"expires\":\"soon\"", 422),
    ] {
        assert_eq!(make(rest).status, status, "{rest}");
    }
    let made = make("\"scope\":[\"GET /metrics\"],\"expires\":\"2999-01-01T00:00:00Z\"");
    assert_eq!(made.status, 201, "{made:?}");
    assert_eq!(made.field("expires"), "2999-01-01T00:00:00.000Z");
    let (secret, id) = (made.field("secret"), made.field("id"));
    let prometheus = admin.with_headers(&format!("Authorization: bearer {secret}\r\n"));
    assert_eq!(prometheus.get("/metrics").status, 200);
    assert_eq!(prometheus.get("/api/v1/node").status, 403);
    let list = admin.get("/api/v1/tokens?limit=1000");
    assert!(!list.body.contains(&secret), "{list:?}");
    assert!(
        !list.body.contains("\"last_used\":null"),
        "both were used: {list:?}"
    );
    let first = admin.get("/api/v1/tokens?limit=1");
    assert_eq!(first.field("name"), "prometheus");
    let next = format!("/api/v1/tokens?limit=1&cursor={}", first.field("next"));
    assert_eq!(admin.get(&next).field("name"), "test");
    for query in ["limit=0", "limit=1001", "limit=x", "cursor=x"] {
        let answer = admin.get(&format!("/api/v1/tokens?{query}"));
        assert_eq!(answer.status, 400, "{query}");
        assert_eq!(
            answer.header("content-type"),
            Some("application/problem+json")
        );
    }
    assert_eq!(
        admin
            .ask("DELETE", &format!("/api/v1/tokens/{id}"), "")
            .status,
        204
    );
    assert_eq!(prometheus.get("/metrics").status, 401);
}

#[test]
fn passwords_are_tried_a_few_times_and_then_seldom() {
    let broker = start();
    let admin = Admin::of(&broker);
    let sign_in = |name: &str| {
        let body = format!("{{\"name\":\"{name}\",\"password\":\"guessed one\"}}");
        admin.with_headers("").post("/api/v1/sign-in", &body)
    };
    let answers: Vec<_> = (0..5).map(|_| sign_in("root")).collect();
    assert!(answers.iter().all(|it| it.status == 401), "{answers:?}");
    let unknown = sign_in("nobody");
    assert_eq!(unknown.status, 429, "the address waits: {unknown:?}");
    let wait = unknown
        .header("retry-after")
        .and_then(|it| it.parse::<u64>().ok());
    assert!(wait.is_some_and(|seconds| seconds >= 1), "{unknown:?}");
    assert_eq!(
        admin.get("/api/v1/me").status,
        200,
        "tokens need no sign-in"
    );
    broker.wait_for_log("a sign-in to the admin server failed");
}

#[test]
fn wrong_bodies_are_problems() {
    let broker = start();
    let admin = Admin::of(&broker);
    for (body, status) in [
        ("{", 400),
        ("[]", 400),
        ("{\"name\":1}", 400),
        (
            "{\"name\":\"a\",\"role\":\"emperor\",\"password\":\"12345678\"}",
            400,
        ),
    ] {
        let answer = admin.post("/api/v1/accounts", body);
        assert_eq!(answer.status, status, "{body}: {answer:?}");
        assert_eq!(
            answer.header("content-type"),
            Some("application/problem+json")
        );
        assert!(!answer.field("detail").is_empty());
    }
    let long = format!("{{\"name\":\"{}\"}}", "x".repeat(300_000));
    let answer = admin.post("/api/v1/accounts", &long);
    assert!(matches!(answer.status, 0 | 413), "{answer:?}");
    let answer = admin.ask("POST", "/api/v1/tokens", "");
    assert_eq!(answer.status, 400, "an empty body is {{}}: {answer:?}");
    let answer = admin.ask("PUT", "/api/v1/tokens", "{}");
    assert_eq!(answer.status, 405, "{answer:?}");
    assert!(answer.header("allow").is_some(), "{answer:?}");
}

#[test]
fn every_answer_has_the_headers_that_browsers_heed() {
    let broker = start();
    let admin = Admin::of(&broker);
    for (path, is_api) in [
        ("/healthz", false),
        ("/no/page", false),
        ("/api/v1/me", true),
        ("/api/v1/unknown", true),
    ] {
        let answer = admin.get(path);
        let policy = answer.header("content-security-policy").unwrap_or_default();
        assert!(policy.contains("default-src 'self'"), "{path}: {answer:?}");
        assert!(
            policy.contains("frame-ancestors 'none'"),
            "{path}: {answer:?}"
        );
        assert_eq!(
            answer.header("x-content-type-options"),
            Some("nosniff"),
            "{path}"
        );
        let kept = answer.header("cache-control") != Some("no-store");
        assert_eq!(kept, !is_api, "{path}: {answer:?}");
    }
}

#[test]
fn anonymous_callers_read_where_that_is_configured() {
    let broker = Launch::config("[admin]\nanonymous = \"viewer\"\n")
        .with_admin()
        .start();
    let admin = Admin::stranger(&broker);
    assert_eq!(admin.get("/api/v1/node").status, 200);
    assert_eq!(admin.get("/api/v1/accounts").status, 403);
    assert_eq!(admin.post("/api/v1/tokens", "{}").status, 403);
    let wrong = admin.with_headers("Authorization: Bearer unb_x\r\n");
    assert_eq!(wrong.get("/api/v1/node").status, 401);
}
