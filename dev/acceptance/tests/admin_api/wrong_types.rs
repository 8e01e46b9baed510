//! Every operation of the API's document is sent what it does not expect, and never fails for it.

use serde_json::{Value, json};
use unbroken_acceptance::Launch;

use crate::http::{Admin, encoded};

/// Values of parameters; few of them are right anywhere.
const TEXTS: [&str; 12] = [
    "",
    "-1",
    "0",
    "1.5",
    "99999999999999999999",
    "x",
    "true",
    "null",
    "[]",
    "\u{0}",
    "a/+/#",
    "..",
];
const BODY_BYTES_MAX: usize = 256 * 1024;
/// Bodies that are no objects, and no lists either, which can stand for one.
const BODIES: [&str; 5] = ["{", "1", "\"x\"", "\u{0}", "[[[[["];

#[test]
fn no_operation_fails_for_what_it_is_sent() {
    let admin = Admin::start(Launch::config(""));
    let document = admin.get("/openapi.json");
    let mut requests = 0;
    for (path, item) in document["paths"].as_object().expect("paths") {
        let path = path.strip_prefix("/api/v1").expect("below /api/v1");
        for (method, operation) in item.as_object().expect("operations") {
            let streams = operation["responses"].to_string();
            if streams.contains("text/event-stream") || path.starts_with("/demonstration") {
                continue; // it does not end, or begins what goes on
            }
            let method = method.to_uppercase();
            for request in requests_of(&document, path, operation) {
                requests += 1;
                check(&admin, &method, &request);
            }
        }
    }
    assert!(requests > 500, "{requests} requests");
    admin.get("/node");
    for path in [
        "/clients?limit=0",
        "/sessions?limit=1001",
        "/users?no_such_key=1",
    ] {
        admin.refused("GET", path, &Value::Null, 400);
    }
    admin.refused(
        "POST",
        "/publish",
        &json!({"topic": "a", "no_such_key": 1}),
        400,
    );
}

struct Request {
    path: String,
    kind: &'static str,
    body: String,
    /// It cannot be right.
    is_wrong: bool,
}

fn check(admin: &Admin, method: &str, request: &Request) {
    let Request {
        path, kind, body, ..
    } = request;
    let answer = admin.send(method, path, kind, body);
    let text = String::from_utf8_lossy(&answer.body);
    if answer.status == 0 && body.len() > BODY_BYTES_MAX {
        return; // it may close before everything was sent
    }
    let context = || format!("{method} {path} {body:?}: {} {text}", answer.status);
    assert!((200..500).contains(&answer.status), "{}", context());
    assert!(!request.is_wrong || answer.status >= 400, "{}", context());
    if answer.status >= 400 {
        assert!(
            answer.head.contains("application/problem+json"),
            "{}",
            context()
        );
        let problem: Value = serde_json::from_str(&text).expect("JSON");
        assert!(
            problem["detail"].as_str().is_some_and(|it| !it.is_empty()),
            "{}",
            context()
        );
    }
}

fn requests_of(document: &Value, path: &str, operation: &Value) -> Vec<Request> {
    let parameters = operation["parameters"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let body = body_schema(document, operation);
    let usual = |path: String| Request {
        path,
        kind: "application/json",
        body: if body.is_some() {
            "{}".to_owned()
        } else {
            String::new()
        },
        is_wrong: false,
    };
    let mut requests = vec![usual(filled(path, "none"))];
    for text in TEXTS {
        if path.contains('{') && !text.is_empty() && text != ".." {
            requests.push(usual(filled(path, text)));
        }
        for parameter in parameters.iter().filter(|it| it["in"] == "query") {
            let name = parameter["name"].as_str().expect("a name");
            let query = format!("{}?{name}={}", filled(path, "none"), encoded(text));
            requests.push(usual(query));
        }
    }
    let with = |body: String, is_wrong| Request {
        path: filled(path, "none"),
        kind: "application/json",
        body,
        is_wrong,
    };
    if let Some(schema) = body {
        requests.extend(BODIES.map(|body| with(body.to_owned(), true)));
        requests.extend(["", "null", "[]"].map(|body| with(body.to_owned(), false)));
        let plain = with("{}".to_owned(), false);
        requests.push(Request {
            kind: "text/plain",
            ..plain
        });
        requests.push(with(
            format!("{{\"x\":\"{}\"}}", "y".repeat(BODY_BYTES_MAX)),
            true,
        ));
        for name in schema["properties"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, _)| name)
        {
            for value in [
                json!(null),
                json!(-1),
                json!(1e30),
                json!("\u{0}"),
                json!([1]),
                json!({"a": {}}),
            ] {
                requests.push(with(json!({name: value}).to_string(), false));
            }
        }
    }
    requests
}

fn filled(path: &str, value: &str) -> String {
    let mut filled = String::new();
    let mut rest = path;
    while let Some((before, behind)) = rest.split_once('{') {
        filled.push_str(before);
        filled.push_str(&encoded(value));
        rest = behind.split_once('}').map_or("", |(_, rest)| rest);
    }
    filled + rest
}

fn body_schema<'a>(document: &'a Value, operation: &'a Value) -> Option<&'a Value> {
    let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
    if schema.is_null() {
        return None;
    }
    let Some(reference) = schema["$ref"].as_str() else {
        return Some(schema);
    };
    document.pointer(reference.trim_start_matches('#'))
}
