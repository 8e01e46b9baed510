//! The other end: a listener that a test makes say what a broker would, byte by byte.
//!
//! With it the rules that bind clients are tested on our own commands.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use crate::DEADLINE;
use crate::raw::{self, has_frame, take_frame};

/// A listener on a loopback port of its own.
#[derive(Debug)]
pub struct FakeBroker(TcpListener);

impl FakeBroker {
    /// Starts to listen.
    pub fn listen() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
        // Accepting has a deadline, which a blocking listener does not know.
        listener
            .set_nonblocking(true)
            .expect("an open socket takes options");
        Self(listener)
    }

    /// The port to connect to.
    pub fn port(&self) -> u16 {
        self.0
            .local_addr()
            .expect("a bound socket has an address")
            .port()
    }

    /// The next client, before it has said anything.
    #[track_caller]
    pub fn accept(&self) -> Guest {
        let deadline = Instant::now() + DEADLINE;
        loop {
            match self.0.accept() {
                Ok((stream, _)) => {
                    stream
                        .set_nonblocking(false)
                        .expect("an open socket takes options");
                    return Guest {
                        stream,
                        unread: Vec::new(),
                    };
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => panic!("cannot accept: {error}"),
            }
            assert!(Instant::now() < deadline, "nobody has connected");
            std::thread::park_timeout(Duration::from_millis(5));
        }
    }

    /// The next client, accepted with this CONNACK in hexadecimal.
    #[track_caller]
    pub fn welcome(&self, connack: &str) -> Guest {
        let mut guest = self.accept();
        guest.expect(0x10);
        guest.send_hex(connack);
        guest
    }
}

/// A client as the fake broker sees it.
#[derive(Debug)]
pub struct Guest {
    stream: TcpStream,
    unread: Vec<u8>,
}

impl Guest {
    /// Sends bytes written as hexadecimal text.
    pub fn send_hex(&mut self, text: &str) {
        self.send(raw::hex(text));
    }

    /// Sends bytes. A client that has closed already is judged by what it said before.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let _ = self.stream.write_all(bytes.as_ref());
    }

    /// Sends FIN, and goes on reading.
    pub fn finish(&mut self) {
        let _ = self.stream.shutdown(std::net::Shutdown::Write);
    }

    /// The next packet as first byte and body, or `None` when the client has closed.
    #[track_caller]
    pub fn receive(&mut self) -> Option<(u8, Vec<u8>)> {
        assert!(
            self.fill(Instant::now() + DEADLINE),
            "nothing arrived within {DEADLINE:?}"
        );
        take_frame(&mut self.unread)
    }

    /// The next packet if one comes within `patience`.
    pub fn poll(&mut self, patience: Duration) -> Option<(u8, Vec<u8>)> {
        if self.fill(Instant::now() + patience) {
            take_frame(&mut self.unread)
        } else {
            None
        }
    }

    /// The body of the next packet, which must begin with this byte.
    #[track_caller]
    pub fn expect(&mut self, first_byte: u8) -> Vec<u8> {
        match self.receive() {
            Some((first, body)) if first == first_byte => body,
            Some((first, body)) => {
                panic!(
                    "expected {first_byte:02x}, got {first:02x} {}",
                    raw::to_hex(&body)
                )
            }
            None => panic!("expected {first_byte:02x}, but the client has closed"),
        }
    }

    /// The client closes, and says nothing before.
    #[track_caller]
    pub fn expect_closed(&mut self) {
        let packet = self.receive();
        assert!(
            packet.is_none(),
            "expected the client to close, got {packet:02x?}"
        );
    }

    fn fill(&mut self, deadline: Instant) -> bool {
        let mut chunk = [0; 4096];
        while !has_frame(&self.unread) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            self.stream
                .set_read_timeout(Some(left))
                .expect("the time left is not zero");
            match self.stream.read(&mut chunk) {
                Ok(0) => return true,
                Ok(length) => self.unread.extend(&chunk[..length]),
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => {}
                    _ => return true,
                },
            }
        }
        true
    }
}
