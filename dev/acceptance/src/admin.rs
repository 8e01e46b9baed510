//! The admin server of a broker, asked by raw bytes: of HTTP this knows no more than a status, some
//! headers and a body that ends with the connection.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;

use crate::{Broker, Launch};

const ADDRESS: &str = "admin server on http://";
const LINK: &str = "/#link=";

/// An admin server, and what is shown to it.
#[derive(Clone, Debug)]
pub struct Admin {
    /// Where it listens.
    pub address: SocketAddr,
    /// Sent with each request, each with its end of line.
    pub headers: String,
}

/// What it answers.
#[derive(Clone, Debug)]
pub struct Answer {
    /// 0, if there is none.
    pub status: u16,
    /// Status and headers.
    pub head: String,
    /// The rest.
    pub body: String,
}

impl Launch {
    /// With an admin server on a free port.
    #[must_use]
    pub fn with_admin(self) -> Self {
        self.argument("--admin").argument("127.0.0.1:0")
    }
}

impl Admin {
    /// Of a broker that was started [with one](Launch::with_admin); shows nothing.
    #[track_caller]
    pub fn stranger(broker: &Broker) -> Self {
        let line = broker.wait_for_log(ADDRESS);
        let (_, address) = line.split_once(ADDRESS).expect("it was waited for");
        let address = address.trim().parse().expect("an address");
        Self {
            address,
            headers: String::new(),
        }
    }

    /// The same with a token of the role admin; its broker has no account before.
    #[track_caller]
    pub fn of(broker: &Broker) -> Self {
        Self::stranger(broker)
            .with_first_account(broker)
            .with_token("test", "admin")
    }

    /// Makes the first account, `root` with the password `root's password`; shows its cookie, and
    /// what a page of this server sends.
    #[must_use]
    #[track_caller]
    pub fn with_first_account(&self, broker: &Broker) -> Self {
        let token = link(broker);
        let body =
            format!("{{\"token\":\"{token}\",\"name\":\"root\",\"password\":\"root's password\"}}");
        self.with_session(&self.post("/api/v1/sign-in/link", &body))
    }

    /// Shows the cookie of an answer to a sign-in.
    #[must_use]
    #[track_caller]
    pub fn with_session(&self, signed_in: &Answer) -> Self {
        assert_eq!(signed_in.status, 200, "{signed_in:?}");
        let cookie = signed_in.header("set-cookie").expect("a cookie");
        let cookie = cookie.split(';').next().unwrap_or_default();
        let csrf = signed_in.field("csrf");
        let origin = self.address;
        Self {
            headers: format!(
                "Cookie: {cookie}\r\nX-CSRF-Token: {csrf}\r\nOrigin: http://{origin}\r\n"
            ),
            ..self.clone()
        }
    }

    /// Makes a token, and shows it.
    #[must_use]
    #[track_caller]
    pub fn with_token(&self, name: &str, role: &str) -> Self {
        let body = format!("{{\"name\":\"{name}\",\"role\":\"{role}\"}}");
        let made = self.post("/api/v1/tokens", &body);
        assert_eq!(made.status, 201, "{made:?}");
        Self {
            headers: format!("Authorization: Bearer {}\r\n", made.field("secret")),
            ..self.clone()
        }
    }

    /// With no other headers than these.
    #[must_use]
    pub fn with_headers(&self, headers: &str) -> Self {
        Self {
            headers: headers.to_owned(),
            ..self.clone()
        }
    }

    /// Asks.
    pub fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, "")
    }

    /// Sends JSON.
    pub fn post(&self, path: &str, body: &str) -> Answer {
        self.ask("POST", path, body)
    }

    /// Sends a request with any method.
    pub fn ask(&self, method: &str, path: &str, body: &str) -> Answer {
        let host = format!("Host: {}\r\n{}", self.address, self.headers);
        self.exchange(&request(method, path, &host, body))
    }

    /// Sends these bytes.
    pub fn exchange(&self, request: &str) -> Answer {
        exchange(
            TcpStream::connect(self.address).expect("it listens"),
            request,
        )
    }
}

/// The secret of the link that a broker without accounts has printed last.
#[track_caller]
pub fn link(broker: &Broker) -> String {
    broker.wait_for_log(LINK);
    let log = broker.log();
    let (_, rest) = log.rsplit_once(LINK).expect("it was waited for");
    rest.split_whitespace()
        .next()
        .unwrap_or_default()
        .to_owned()
}

/// Asks at the unix socket in a directory.
#[track_caller]
pub fn ask_socket(directory: &Path, method: &str, path: &str, body: &str) -> Answer {
    let socket = UnixStream::connect(directory.join("admin")).expect("it listens");
    exchange(socket, &request(method, path, "Host: localhost\r\n", body))
}

fn request(method: &str, path: &str, headers: &str, body: &str) -> String {
    let mut text = format!("{method} {path} HTTP/1.1\r\n{headers}Connection: close\r\n");
    if !body.is_empty() {
        let length = body.len();
        write!(
            text,
            "Content-Type: application/json\r\nContent-Length: {length}\r\n"
        )
        .expect("a text takes all");
    }
    format!("{text}\r\n{body}")
}

/// Sends bytes, and reads to the end.
pub fn exchange(mut stream: impl Read + Write, request: &str) -> Answer {
    // It may refuse and close before it has read everything.
    let _ = stream.write_all(request.as_bytes());
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer);
    let status = answer.split(' ').nth(1).and_then(|code| code.parse().ok());
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    Answer {
        status: status.unwrap_or_default(),
        head: head.to_owned(),
        body: body.to_owned(),
    }
}

impl Answer {
    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        let mut values = lines.filter(|(found, _)| found.eq_ignore_ascii_case(name));
        values.next().map(|(_, value)| value)
    }

    /// The first text of this name in a body of JSON.
    #[track_caller]
    pub fn field(&self, name: &str) -> String {
        let begin = format!("\"{name}\":\"");
        let found = self.body.split_once(&begin);
        let (_, rest) = found.unwrap_or_else(|| panic!("there is no {name} in {}", self.body));
        rest.split('"').next().unwrap_or_default().to_owned()
    }
}
