//! A broker with an admin server, and requests to its API.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use unbroken_acceptance::{Broker, DEADLINE, Launch, admin};

/// A broker that is administrated, by a token of the role admin.
pub(crate) struct Admin {
    pub(crate) broker: Broker,
    server: admin::Admin,
}

/// Status, head and body of an answer.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Admin {
    #[track_caller]
    pub(crate) fn start(launch: Launch) -> Self {
        let broker = launch.with_admin().start();
        let server = admin::Admin::of(&broker);
        Self { broker, server }
    }

    /// The same server, asked by a token of another role.
    #[track_caller]
    pub(crate) fn as_role(&self, role: &str) -> admin::Admin {
        self.server.with_token(role, role)
    }

    /// The line of a header by which it is asked.
    pub(crate) fn credentials(&self) -> &str {
        self.server.headers.trim_end()
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.server.address
    }

    /// Sends a request below `/api/v1`.
    pub(crate) fn send(&self, method: &str, path: &str, kind: &str, body: &str) -> Answer {
        let mut socket = TcpStream::connect(self.address()).expect("it listens");
        let head = format!(
            "{method} /api/v1{path} HTTP/1.1\r\nHost: {}\r\n{}Connection: close\r\n\
             Content-Type: {kind}\r\nContent-Length: {}\r\n\r\n",
            self.address(),
            self.server.headers,
            body.len()
        );
        // It may refuse and close before it has read everything.
        let _ = socket.write_all(head.as_bytes());
        let _ = socket.write_all(body.as_bytes());
        let mut answer = Vec::new();
        let _ = socket.read_to_end(&mut answer);
        let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n");
        let end = end.map_or(answer.len(), |end| end + 4);
        let head = String::from_utf8_lossy(&answer[..end]).into_owned();
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
        Answer {
            status: status.unwrap_or_default(),
            head,
            body: answer.split_off(end),
        }
    }

    /// Status and JSON of the answer to a request.
    #[track_caller]
    pub(crate) fn call(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let text = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        let answer = self.send(method, path, "application/json", &text);
        let body = serde_json::from_slice(&answer.body).unwrap_or_default();
        (answer.status, body)
    }

    /// What is read at a path.
    #[track_caller]
    pub(crate) fn get(&self, path: &str) -> Value {
        let (status, body) = self.call("GET", path, &Value::Null);
        assert_eq!(status, 200, "{path}: {body}");
        body
    }

    /// Reads a path until its answer is as wanted; that can only be polled.
    #[track_caller]
    pub(crate) fn wait_for(&self, path: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let body = self.get(path);
            if wanted(&body) {
                return body;
            }
            assert!(Instant::now() < deadline, "{path}: {body}");
            thread::park_timeout(Duration::from_millis(5));
        }
    }

    /// Does what answers with 204.
    #[track_caller]
    pub(crate) fn done(&self, method: &str, path: &str, body: &Value) {
        let (status, answer) = self.call(method, path, body);
        assert_eq!(status, 204, "{method} {path}: {answer}");
    }

    /// Is refused with this status; answers why.
    #[track_caller]
    pub(crate) fn refused(&self, method: &str, path: &str, body: &Value, expected: u16) -> String {
        let (status, answer) = self.call(method, path, body);
        assert_eq!(status, expected, "{method} {path}: {answer}");
        let detail = answer["detail"].as_str().unwrap_or_default().to_owned();
        assert!(!detail.is_empty(), "{method} {path}: {answer}");
        detail
    }

    /// All items of a list, page by page, of at most this many each.
    #[track_caller]
    pub(crate) fn all(&self, path: &str, limit: usize) -> Vec<Value> {
        let join = if path.contains('?') { '&' } else { '?' };
        let (mut items, mut cursor) = (Vec::new(), String::new());
        loop {
            let page = self.get(&format!("{path}{join}limit={limit}{cursor}"));
            let found = page["items"].as_array().expect("a list");
            assert!(found.len() <= limit, "{path}: {} items", found.len());
            items.extend(found.iter().cloned());
            match page["next"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => return items,
            }
        }
    }
}

/// A text as one part of a path or a query.
pub(crate) fn encoded(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

/// The texts of one key of items.
pub(crate) fn texts<'a>(items: &'a [Value], key: &str) -> Vec<&'a str> {
    let texts = items.iter().filter_map(|item| item[key].as_str());
    texts.collect()
}
