//! Any bytes as what opens a WebSocket, or as its frames.
//!
//! Input: one byte for the side, one for the pieces that the bytes come in, then the bytes.

#![no_main]

use libfuzzer_sys::fuzz_target;
use unbroken_websocket::forwarded::{self, Field};
use unbroken_websocket::upgrade::{Answer, REQUEST_BYTES, Rules, answer, check_answer};
use unbroken_websocket::{CONTROL_BYTES, End, Frames, HEADER_BYTES};

fuzz_target!(|input: &[u8]| {
    let [side, piece, bytes @ ..] = input else {
        return;
    };
    let piece = usize::from(*piece).max(1);
    match side % 4 {
        0 => upgrade(bytes),
        1 => {
            let _ = check_answer(bytes, [7; 16]);
        }
        2 => same_in_pieces(Frames::server, bytes, piece),
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
