//! The opening handshake (RFC 6455, section 4): a request over HTTP/1.1, and its answer.

#[cfg(test)]
mod tests;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha1::{Digest, Sha1};

/// Bytes of a request or an answer, at most.
pub const REQUEST_BYTES: usize = 8 * 1024;
/// Header fields of one, at most.
pub const HEADERS: usize = 32;

/// The subprotocols that are MQTT [MQTT-6.0.0-3]; `mqttv3.1` is the name before it was registered.
const SUBPROTOCOLS: [&str; 2] = ["mqtt", "mqttv3.1"];

/// What a server accepts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rules {
    /// The path of the request, without a query.
    pub path: String,
    /// Origins whose pages may connect, as browsers write them (`https://example.org`), beside
    /// pages of the same host; `*`: all. A client that names no origin is no page.
    pub origins: Vec<String>,
}

/// What a server answers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// The request is incomplete.
    Incomplete,
    /// Frames follow these bytes of the request.
    Upgraded {
        /// Bytes of the request.
        used: usize,
        /// What the client is sent.
        response: Vec<u8>,
    },
    /// The connection ends.
    Refused {
        /// What the client is sent.
        response: Vec<u8>,
        /// Why; `None`: it is a browser or a probe that asked for a page, and got one.
        why: Option<&'static str>,
    },
}

/// Answers a request.
pub fn answer(request: &[u8], rules: &Rules) -> Answer {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS];
    let mut parsed = httparse::Request::new(&mut headers);
    match parsed.parse(request) {
        Ok(httparse::Status::Complete(used)) if used <= REQUEST_BYTES => {
            match Request(&parsed).accept(rules) {
                Ok(response) => Answer::Upgraded { used, response },
                Err(refusal) => refusal,
            }
        }
        Ok(httparse::Status::Partial) if request.len() < REQUEST_BYTES => Answer::Incomplete,
        Ok(_) | Err(httparse::Error::TooManyHeaders) => {
            let status = "431 Request Header Fields Too Large";
            refused(
                status,
                "its request is longer than 8 KiB or has more than 32 fields",
            )
        }
        Err(_) => refused("400 Bad Request", "its request is not HTTP/1.1"),
    }
}

struct Request<'r, 'h, 'b>(&'r httparse::Request<'h, 'b>);

impl<'b> Request<'_, '_, 'b> {
    fn accept(&self, rules: &Rules) -> Result<Vec<u8>, Answer> {
        let path = self.0.path.unwrap_or_default();
        let path = path.split_once('?').map_or(path, |(path, _)| path);
        if self.0.method != Some("GET") || self.0.version != Some(1) {
            return Err(refused(
                "400 Bad Request",
                "its request is not GET with HTTP/1.1",
            ));
        }
        if self.values("upgrade").next().is_none() {
            return Err(page(rules));
        }
        if path != rules.path {
            return Err(refused("404 Not Found", "its request names another path"));
        }
        if !self.has_token("upgrade", "websocket") || !self.has_token("connection", "upgrade") {
            return Err(refused("400 Bad Request", "it asks for another upgrade"));
        }
        let has_body = |name, none| self.values(name).any(|value| value != none);
        if has_body("content-length", "0") || has_body("transfer-encoding", "") {
            return Err(refused("400 Bad Request", "its request has a body"));
        }
        if self.single("sec-websocket-version") != Some("13") {
            let status = "426 Upgrade Required\r\nSec-WebSocket-Version: 13";
            return Err(refused(
                status,
                "it uses another version of WebSocket than 13",
            ));
        }
        let key = self.single("sec-websocket-key").filter(|key| {
            let decoded = STANDARD.decode(key);
            decoded.is_ok_and(|bytes| bytes.len() == 16)
        });
        let Some(key) = key else {
            return Err(refused(
                "400 Bad Request",
                "its Sec-WebSocket-Key is missing or malformed",
            ));
        };
        if !self.is_of_allowed_page(rules) {
            return Err(refused(
                "403 Forbidden",
                "its Origin is another host, and not among `allowed_origins`",
            ));
        }
        let offered: Vec<_> = self.tokens("sec-websocket-protocol").collect();
        // [MQTT-6.0.0-4]
        let chosen = offered.iter().find(|name| SUBPROTOCOLS.contains(name));
        if chosen.is_none() && !offered.is_empty() {
            return Err(refused(
                "400 Bad Request",
                "it offers no subprotocol that is MQTT",
            ));
        }
        let mut response = format!(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Accept: {}\r\n",
            accept_of(key)
        );
        if let Some(name) = chosen {
            response.push_str("Sec-WebSocket-Protocol: ");
            response.push_str(name);
            response.push_str("\r\n");
        }
        response.push_str("\r\n");
        Ok(response.into_bytes())
    }

    /// Whether it comes from no page, from one of the same host, or from one that is listed: else
    /// each page that a user opens could use a broker that only the user can reach.
    fn is_of_allowed_page(&self, rules: &Rules) -> bool {
        let mut origins = self.values("origin");
        let Some(origin) = origins.next() else {
            return true;
        };
        let is_listed = |listed: &String| listed == "*" || listed.eq_ignore_ascii_case(origin);
        let is_same = || {
            let page = origin.split_once("://").map(|(_, host)| host);
            let hosts = page.zip(self.single("host"));
            hosts.is_some_and(|(page, own)| host_name(page).eq_ignore_ascii_case(host_name(own)))
        };
        origins.next().is_none() && (rules.origins.iter().any(is_listed) || is_same())
    }

    /// All fields of this name, without blanks around them.
    fn values(&self, name: &str) -> impl Iterator<Item = &'b str> {
        values(self.0.headers, name)
    }

    /// The field of this name, if there is exactly one.
    fn single(&self, name: &str) -> Option<&'b str> {
        let mut values = self.values(name);
        values.next().filter(|_| values.next().is_none())
    }

    /// The parts of a list, which may be spread over several fields.
    fn tokens(&self, name: &str) -> impl Iterator<Item = &'b str> {
        self.values(name)
            .flat_map(|value| value.split(','))
            .map(str::trim)
    }

    fn has_token(&self, name: &str, token: &str) -> bool {
        self.tokens(name).any(|it| it.eq_ignore_ascii_case(token))
    }
}

fn values<'b>(headers: &[httparse::Header<'b>], name: &str) -> impl Iterator<Item = &'b str> {
    let of_name = headers
        .iter()
        .filter(move |it| it.name.eq_ignore_ascii_case(name));
    // A field that is not UTF-8 has no value that is compared with anything.
    of_name.map(|it| std::str::from_utf8(it.value).unwrap_or("\0").trim())
}

/// What proves that the server has read the key (4.2.2).
fn accept_of(key: &str) -> String {
    let mut digest = Sha1::new();
    digest.update(key);
    digest.update("258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    STANDARD.encode(digest.finalize())
}

/// Refuses a request of which the server, beside [`Rules`], demands more.
pub fn refuse(why: &'static str) -> Answer {
    refused("400 Bad Request", why)
}

fn refused(status: &str, why: &'static str) -> Answer {
    let reason = format!("This is an MQTT broker. It refuses this connection: {why}.\n");
    Answer::Refused {
        response: response(status, "text/plain", &reason),
        why: Some(why),
    }
}

/// For a person with a browser, and for probes.
fn page(rules: &Rules) -> Answer {
    let path = escaped(&rules.path);
    let body = format!(
        "<!doctype html><title>MQTT broker</title><h1>This is an MQTT broker</h1>\n<p>Unbroken \
         serves MQTT over WebSocket here. There is nothing to see for a browser: connect an MQTT \
         client to the path <code>{path}</code>.</p>\n"
    );
    let status = "426 Upgrade Required\r\nUpgrade: websocket";
    Answer::Refused {
        response: response(status, "text/html", &body),
        why: None,
    }
}

fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    text.replace('>', "&gt;")
}

fn response(status: &str, kind: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\nConnection: close\r\nContent-Type: {kind}; charset=utf-8\r\n\
         Content-Length: {length}\r\nX-Content-Type-Options: nosniff\r\n\r\n{body}"
    )
    .into_bytes()
}

/// The request of a client, which offers `mqtt` [MQTT-6.0.0-3]. `nonce`: random.
pub fn request(host: &str, path: &str, nonce: [u8; 16]) -> Vec<u8> {
    let key = STANDARD.encode(nonce);
    format!(
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Protocol: mqtt\r\n\r\n"
    )
    .into_bytes()
}

/// Why a server's answer is not an upgrade.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NoUpgrade {
    /// Not HTTP/1.1, or too long.
    #[error("the server does not answer with HTTP/1.1: it may be no WebSocket server")]
    NoHttp,
    /// Another status than 101.
    #[error("the server refuses WebSocket: {status} {reason}")]
    Status {
        /// The status code.
        status: u16,
        /// The server's words.
        reason: String,
    },
    /// The accept value is wrong.
    #[error("the server's answer is not one to this request (Sec-WebSocket-Accept)")]
    Accept,
    /// Another subprotocol than `mqtt`.
    #[error("the server does not speak MQTT over WebSocket (Sec-WebSocket-Protocol)")]
    Subprotocol,
}

/// Reads the answer to [`request`]: `None` if it is incomplete, otherwise how many bytes it has.
pub fn check_answer(answer: &[u8], nonce: [u8; 16]) -> Result<Option<usize>, NoUpgrade> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS];
    let mut parsed = httparse::Response::new(&mut headers);
    let used = match parsed.parse(answer) {
        Ok(httparse::Status::Complete(used)) => used,
        Ok(httparse::Status::Partial) if answer.len() < REQUEST_BYTES => return Ok(None),
        Ok(httparse::Status::Partial) | Err(_) => return Err(NoUpgrade::NoHttp),
    };
    let status = parsed.code.unwrap_or_default();
    if status != 101 {
        let reason = parsed.reason.unwrap_or_default().to_owned();
        return Err(NoUpgrade::Status { status, reason });
    }
    let expected = accept_of(&STANDARD.encode(nonce));
    if !values(parsed.headers, "sec-websocket-accept").eq([expected.as_str()]) {
        return Err(NoUpgrade::Accept);
    }
    if values(parsed.headers, "sec-websocket-protocol").any(|name| name != "mqtt") {
        return Err(NoUpgrade::Subprotocol);
    }
    Ok(Some(used))
}

/// A host without its port.
fn host_name(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}
