//! Any bytes as what opens a WebSocket, or as its frames; and frames beside another implementation.
//!
//! Input: one byte for the side, one for the pieces that the bytes come in, then the bytes. For the
//! twin these say which frames there are: four for each, its first byte and its length.

#![no_main]

use std::io::{self, Read, Write};

use libfuzzer_sys::fuzz_target;
use tungstenite::Message;
use tungstenite::protocol::{Role, WebSocket};
use unbroken_websocket::forwarded::{self, Field};
use unbroken_websocket::upgrade::{Answer, REQUEST_BYTES, Rules, answer, check_answer};
use unbroken_websocket::{CONTROL_BYTES, End, Frames, HEADER_BYTES, Violation};

fuzz_target!(|input: &[u8]| {
    let [side, piece, bytes @ ..] = input else {
        return;
    };
    let piece = usize::from(*piece).max(1);
    match side % 5 {
        0 => upgrade(bytes),
        1 => {
            let _ = check_answer(bytes, [7; 16]);
        }
        2 => same_in_pieces(Frames::server, bytes, piece),
        3 => as_the_twin(bytes, piece),
        _ => same_in_pieces(|| Frames::client(|| [1, 2, 3, 4]), bytes, piece),
    }
});

/// A request is answered once, however it comes, and never waits for more than its limit.
fn upgrade(bytes: &[u8]) {
    let rules = Rules {
        path: "/mqtt".to_owned(),
        origins: vec!["https://a.example".to_owned()],
    };
    // Each address has a place of its own in the request.
    for field in [Field::Forwarded, Field::XForwardedFor] {
        assert!(forwarded::chain(bytes, field).len() <= bytes.len());
    }
    let whole = answer(bytes, &rules);
    match &whole {
        Answer::Incomplete => assert!(bytes.len() < REQUEST_BYTES),
        Answer::Upgraded { used, response } => {
            assert!(*used <= bytes.len().min(REQUEST_BYTES));
            assert!(response.starts_with(b"HTTP/1.1 101 "));
            assert_eq!(answer(&bytes[..used - 1], &rules), Answer::Incomplete);
        }
        Answer::Refused { response, .. } => {
            assert!(response.starts_with(b"HTTP/1.1 4"));
            // Nothing of the request is in the answer: there is nothing to inject.
            assert!(response.len() < 2_000);
        }
    }
}

/// What the bytes mean does not depend on the pieces that they come in.
fn same_in_pieces(side: impl Fn() -> Frames, bytes: &[u8], piece: usize) {
    let whole = open(side(), [bytes].into_iter());
    assert_eq!(open(side(), bytes.chunks(piece)), whole);
}

/// A server finds what another implementation finds.
fn as_the_twin(bytes: &[u8], piece: usize) {
    const FRAMES: usize = 4;
    const LONGEST: usize = 70_000;
    let mut wire = Vec::new();
    for frame in bytes.chunks_exact(4).take(FRAMES) {
        let [first, length @ ..] = [frame[0], frame[1], frame[2], frame[3]];
        let length = length
            .iter()
            .fold(0, |sum, byte| sum << 8 | usize::from(*byte));
        masked(first, length % LONGEST, &mut wire);
    }
    masked(0x88, 0, &mut wire);
    // Pieces of a few bytes would take long for so many.
    let (payload, _, end) = open(Frames::server(), wire.chunks(piece * 16));
    let (expected, is_right) = twin(&wire);
    // The other one shows whole messages only, and an end in the middle of one is allowed.
    assert!(payload.starts_with(&expected));
    // It ends well for the other one also with a status code that is not to be sent.
    let is_code = matches!(end, Some(End::Broken(Violation::CloseCode)));
    if is_right {
        assert!(end == Some(End::Closed) || is_code, "{end:?}");
    } else {
        assert!(matches!(end, Some(End::Broken(_))), "{end:?}");
    }
}

/// A frame of a client. Its mask makes the payload other bytes than it sends.
fn masked(first: u8, length: usize, wire: &mut Vec<u8>) {
    wire.push(first);
    match length {
        0..126 => wire.push(0x80 | length as u8),
        126..65_536 => wire.extend([&[0x80 | 126][..], &(length as u16).to_be_bytes()].concat()),
        _ => wire.extend([&[0x80 | 127][..], &(length as u64).to_be_bytes()].concat()),
    }
    wire.extend([0x12, 0x9a, 0x00, 0xff]);
    wire.extend((0..length).map(|at| at as u8));
}

/// A peer that has sent this, and ignores what it is sent.
struct Sent<'a>(&'a [u8]);

impl Read for Sent<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Write for Sent<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// All payload, and whether the bytes were right.
fn twin(wire: &[u8]) -> (Vec<u8>, bool) {
    let mut socket = WebSocket::from_raw_socket(Sent(wire), Role::Server, None);
    let mut payload = Vec::new();
    loop {
        match socket.read() {
            Ok(Message::Binary(bytes)) => payload.extend_from_slice(&bytes),
            Ok(Message::Close(_)) => return (payload, true),
            Ok(Message::Text(_)) | Err(_) => return (payload, false),
            Ok(_) => {}
        }
    }
}

fn open<'a>(
    mut frames: Frames,
    pieces: impl Iterator<Item = &'a [u8]>,
) -> (Vec<u8>, Vec<u8>, Option<End>) {
    let (mut rest, mut payload, mut reply) = (Vec::new(), Vec::new(), Vec::new());
    for piece in pieces {
        rest.extend_from_slice(piece);
        let opened = frames.open(&mut rest, &mut payload, &mut reply);
        rest.drain(..opened.used);
        if opened.end.is_some() {
            return (payload, reply, opened.end);
        }
        assert!(rest.len() < HEADER_BYTES + CONTROL_BYTES);
    }
    (payload, reply, None)
}
