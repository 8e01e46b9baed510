//! The client of the admin server's unix socket, for commands about a broker that runs.
//!
//! It speaks HTTP/1.0: the answer ends with the connection, so nothing of it needs to be counted or
//! joined.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use unbroken_admin::SOCKET;
use unbroken_broker::local_socket;

use crate::exit::{self, Failure};

/// The admin server of the broker that has a directory.
#[derive(Debug)]
pub(crate) struct AdminClient {
    directory: PathBuf,
}

impl AdminClient {
    pub(crate) const fn new(directory: PathBuf) -> Self {
        Self { directory }
    }

    pub(crate) fn get(&self, path: &str) -> Result<Value, Failure> {
        self.call("GET", path, None)
    }

    /// The answer to a request below `/api/v1`; null, if it has no body. An error says what the
    /// server says is wrong.
    pub(crate) fn call(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, Failure> {
        let mut stream = self.connect()?;
        let body = body.map(Value::to_string).unwrap_or_default();
        let head = format!(
            "{method} /api/v1{path} HTTP/1.0\r\nHost: localhost\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        let answer = stream
            .write_all(format!("{head}{body}").as_bytes())
            .and_then(|()| read_answer(&stream));
        let (status, text) = answer.map_err(|error| self.failed(exit::IO, &error))?;
        let value: Value = if text.trim().is_empty() {
            Value::Null
        } else {
            serde_json::from_str(&text).map_err(|error| self.failed(exit::IO, &error.into()))?
        };
        if (200..300).contains(&status) {
            return Ok(value);
        }
        let detail = value["detail"]
            .as_str()
            .unwrap_or("the request was refused");
        Err(Failure::new(code_of(status), detail))
    }

    /// All entries of a list, page by page. `path` has a query.
    pub(crate) fn list(&self, path: &str) -> Result<Vec<Value>, Failure> {
        let mut all = Vec::new();
        let mut cursor = String::new();
        loop {
            let mut page = self.get(&format!("{path}{cursor}"))?;
            if let Value::Array(items) = page["items"].take() {
                all.extend(items);
            }
            match page["next"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => return Ok(all),
            }
        }
    }

    fn connect(&self) -> Result<UnixStream, Failure> {
        let stream = local_socket::connect(&self.directory, SOCKET).map_err(|error| {
            let shown = self.directory.display();
            match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => Failure::new(
                    exit::UNAVAILABLE,
                    format!(
                        "no broker with an admin server answers in {shown}: start one with \
                         `unbroken serve`, without `--admin off`"
                    ),
                ),
                io::ErrorKind::PermissionDenied => Failure::new(
                    exit::NO_PERMISSION,
                    format!(
                        "{shown} is another user's: run this command as the user of the broker, or \
                         as root"
                    ),
                ),
                _ => self.failed(exit::UNAVAILABLE, &error),
            }
        })?;
        let patience = stream.set_read_timeout(Some(PATIENCE));
        patience.map_err(|error| self.failed(exit::IO, &error))?;
        Ok(stream)
    }

    fn failed(&self, code: u8, error: &io::Error) -> Failure {
        let shown: &Path = &self.directory;
        let shown = shown.display();
        Failure::new(
            code,
            format!("the broker that has {shown} does not answer: {error}"),
        )
    }
}

/// Status and body.
fn read_answer(stream: &UnixStream) -> io::Result<(u16, String)> {
    let mut reader = BufReader::new(stream.take(ANSWER_BYTES_MAX));
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let status = line
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    let status = status.ok_or_else(|| io::Error::other("it is no answer of HTTP"))?;
    while line.trim_end() != "" {
        line.clear();
        reader.read_line(&mut line)?;
    }
    let mut body = String::new();
    reader.read_to_string(&mut body)?;
    Ok((status, body))
}

/// As other commands about a broker end.
const fn code_of(status: u16) -> u8 {
    match status {
        404 | 409 => 1,
        400 | 413 | 415 | 422 => exit::USAGE,
        403 => exit::NO_PERMISSION,
        503 => exit::UNAVAILABLE,
        _ => exit::INTERNAL,
    }
}

const PATIENCE: Duration = Duration::from_secs(30);
const ANSWER_BYTES_MAX: u64 = 64 * 1024 * 1024;
