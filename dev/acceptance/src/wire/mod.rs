//! The step definitions of the features, served by Cucumber's wire protocol: any Cucumber that
//! speaks it runs `features/*.feature` as they are (`docs/cucumber.md`).
//!
//! Cucumber connects, sends one JSON array a line, and waits for one in answer. Each connection is
//! a [`Session`] of its own, so several runs may go on beside one another. A process that connects
//! can start programs by steps that do, so only this machine can connect.
//!
//! Deliberately absent: comparing tables on Cucumber's side, which no step of ours asks for.

mod definition;
mod message;
mod snippet;
mod steps;

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

pub use message::{Answer, Match, Multiline, Request, RequestError};
pub use steps::Steps;

/// The longest line that is read, in bytes. A session holds one at a time.
pub const LINE_BYTES_MAX: u64 = 1 << 20;

/// How many runs of Cucumber may be connected at once; each has a thread and at most one scenario.
pub const CONNECTIONS_MAX: usize = 24;

/// What answers one connection.
pub trait Session {
    /// Does what is asked.
    fn answer(&mut self, request: &Request) -> Answer;
}

/// Listens on this port of this machine; 0 lets the system choose one.
///
/// # Errors
/// Those of the system: another program has the port, or it may not be used.
pub fn listen(port: u16) -> io::Result<TcpListener> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port))
}

/// Accepts connections and answers each by a session of its own, until accepting fails.
///
/// # Errors
/// Those of the system when a connection is accepted.
pub fn serve<S: Session>(
    listener: &TcpListener,
    open: impl Fn() -> S + Clone + Send + 'static,
) -> io::Result<()> {
    let seats = Arc::new(());
    loop {
        let (stream, _) = listener.accept()?;
        if Arc::strong_count(&seats) > CONNECTIONS_MAX {
            let full = format!("{CONNECTIONS_MAX} connections are open, which is the limit");
            // It is turned away; that it may not even read why is its own matter.
            let _ = write_line(&stream, &Answer::fail(full));
            continue;
        }
        let (seat, open) = (Arc::clone(&seats), open.clone());
        thread::spawn(move || {
            // A connection that fails is as good as one that ends: its session goes with it.
            let _ = converse(&stream, &mut open());
            drop(seat);
        });
    }
}

/// Answers line by line until the other side ends.
fn converse(stream: &TcpStream, session: &mut impl Session) -> io::Result<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let mut line = Vec::new();
        let read = reader
            .by_ref()
            .take(LINE_BYTES_MAX)
            .read_until(b'\n', &mut line)?;
        if read == 0 {
            return Ok(());
        }
        if line.last() != Some(&b'\n') {
            let what = format!("a line has no end within {LINE_BYTES_MAX} bytes");
            return write_line(stream, &Answer::fail(what));
        }
        let answer = match Request::parse(&line) {
            Ok(request) => session.answer(&request),
            Err(error) => Answer::fail(error.to_string()),
        };
        write_line(stream, &answer)?;
    }
}

fn write_line(mut stream: &TcpStream, answer: &Answer) -> io::Result<()> {
    stream.write_all(format!("{answer}\n").as_bytes())
}

#[cfg(test)]
mod tests;
