//! Frames by hand, and beside those of another implementation.

use std::io::{self, Read, Write};

use proptest::prelude::*;
use tungstenite::Message;
use tungstenite::protocol::{Role, WebSocket};

use super::*;

const MASK: [u8; 4] = [0x12, 0x9a, 0x00, 0xff];

fn masked(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = payload.to_vec();
    apply(MASK, &mut bytes);
    let mut header = vec![first];
    match (u8::try_from(payload.len()), u16::try_from(payload.len())) {
        (Ok(length @ 0..126), _) => header.push(0x80 | length),
        (_, Ok(length)) => header.extend([&[0xfe][..], &length.to_be_bytes()].concat()),
        _ => {
            let length = u64::try_from(payload.len()).unwrap();
            header.extend([&[0xff][..], &length.to_be_bytes()].concat());
        }
    }
    [&header[..], &MASK, &bytes].concat()
}

/// What a server finds in these bytes when they come in pieces.
fn open<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<u8>, Vec<u8>, Option<End>) {
    let mut frames = Frames::server();
    let (mut rest, mut payload, mut reply) = (Vec::new(), Vec::new(), Vec::new());
    for piece in pieces {
        rest.extend_from_slice(piece);
        let opened = frames.open(&mut rest, &mut payload, &mut reply);
        rest.drain(..opened.used);
        if opened.end.is_some() {
            return (payload, reply, opened.end);
        }
        assert!(rest.len() < HEADER_BYTES + CONTROL_BYTES, "{}", rest.len());
    }
    (payload, reply, None)
}

#[test]
fn frames_of_any_size_with_pings_between_are_one_stream() {
    let wire = [
        masked(0x02, b"one "),
        masked(0x89, b"ping"),
        masked(0x00, b""),
        masked(0x8a, b"unasked"),
        masked(0x80, b"two "),
        masked(0x82, b""),
        masked(0x82, b"three"),
    ]
    .concat();
    let expected = (b"one two three".to_vec(), b"\x8a\x04ping".to_vec(), None);
    assert_eq!(open([&wire[..]]), expected);
    assert_eq!(open(wire.chunks(1)), expected);
    for at in 0..wire.len() {
        let (first, second) = wire.split_at(at);
        assert_eq!(open([first, second]), expected, "{at}");
    }
}

#[test]
fn what_breaks_the_protocol_is_answered_with_a_reason() {
    use Violation::*;
    let text = |code: &[u8], reason: &[u8]| masked(0x88, &[code, reason].concat());
    for (wire, violation) in [
        (masked(0xc2, b"a"), ReservedBit),
        (masked(0x83, b"a"), UnknownKind),
        (masked(0x8b, b"a"), UnknownKind),
        (masked(0x81, b"a"), Text),
        (masked(0x80, b"a"), Order),
        ([masked(0x02, b"a"), masked(0x82, b"b")].concat(), Order),
        (vec![0x82, 0x01, b'a'], Mask),
        (vec![0x82, 0xfe, 0, 125], Length),
        (vec![0x82, 0xff, 0, 0, 0, 0, 0, 0, 0xff, 0xff], Length),
        (vec![0x82, 0xff, 0x80, 0, 0, 0, 0, 1, 0, 0], Length),
        (vec![0x89, 0xfe, 0, 126, 0, 0, 0, 0], Control),
        (masked(0x09, b"a"), Control),
        (masked(0x88, b"\x03"), CloseCode),
        (text(&1005_u16.to_be_bytes(), b""), CloseCode),
        (text(&999_u16.to_be_bytes(), b""), CloseCode),
        (text(&1000_u16.to_be_bytes(), b"\xff"), CloseReason),
    ] {
        let (_, reply, end) = open(wire.chunks(1));
        assert_eq!(end, Some(End::Broken(violation)), "{wire:?}");
        let code = violation.status().to_be_bytes();
        assert_eq!(reply, [&[0x88, 2][..], &code].concat());
    }
}

#[test]
fn the_end_is_answered_with_the_same_code_and_nothing_follows() {
    for (body, code) in [
        (&b""[..], 1000_u16),
        (b"\x03\xe9going", 1001),
        (b"\x0f\xa0", 4000),
    ] {
        let wire = [
            masked(0x82, b"last"),
            masked(0x88, body),
            masked(0x82, b"no"),
        ]
        .concat();
        let reply = [&[0x88, 2][..], &code.to_be_bytes()].concat();
        assert_eq!(
            open([&wire[..]]),
            (b"last".to_vec(), reply, Some(End::Closed))
        );
    }
}

#[test]
fn lengths_are_written_in_as_few_bytes_as_possible() {
    for (length, header) in [
        (0, &[0x82, 0][..]),
        (125, &[0x82, 125]),
        (126, &[0x82, 126, 0, 126]),
        (65_535, &[0x82, 126, 0xff, 0xff]),
        (65_536, &[0x82, 127, 0, 0, 0, 0, 0, 1, 0, 0]),
    ] {
        let mut wire = Vec::new();
        Frames::server().seal(&vec![0; length], &mut wire);
        assert_eq!(wire.len(), header.len() + length);
        assert!(wire.starts_with(header), "{length}");
    }
}

#[test]
fn a_client_is_understood_by_a_server_and_the_other_way_round() {
    let message: Vec<u8> = (0..70_000_u32).map(|n| n.to_le_bytes()[0]).collect();
    let client = Frames::client(|| MASK);
    let mut wire = Vec::new();
    client.seal(&message, &mut wire);
    client.close(status::NORMAL, &mut wire);
    let (payload, reply, end) = open(wire.chunks(1_000));
    assert!(payload == message);
    assert_eq!(end, Some(End::Closed));
    let mut client = Frames::client(|| MASK);
    let mut answer = reply;
    let opened = client.open(&mut answer, &mut Vec::new(), &mut Vec::new());
    assert_eq!(opened.end, Some(End::Closed));
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

/// What another implementation finds in the same bytes, as a server: all payload, and whether it
/// found them right.
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

fn frame() -> impl Strategy<Value = Vec<u8>> {
    let first = prop_oneof![
        8 => Just(0x82_u8),
        3 => Just(0x02),
        4 => Just(0x00),
        4 => Just(0x80),
        2 => Just(0x89),
        1 => any::<u8>(),
    ];
    // Some have a length of two bytes, or of eight.
    let length = prop_oneof![12 => 0_usize..40, 2 => 120_usize..200, 1 => 65_500_usize..70_000];
    (first, length, any::<u8>()).prop_map(|(first, length, seed)| {
        let payload: Vec<_> = (0..length).map(|at| seed ^ at.to_le_bytes()[0]).collect();
        masked(first, &payload)
    })
}

proptest! {
    #[test]
    fn whole_messages_are_those_of_another_implementation(
        frames in proptest::collection::vec(frame(), 1..12),
        size in prop_oneof![1_usize..20, 1_000_usize..3_000],
    ) {
        let wire = [frames.concat(), masked(0x88, b"")].concat();
        let (payload, _, end) = open(wire.chunks(size));
        let (expected, is_right) = twin(&wire);
        // The other one shows whole messages only, and an end in the middle of one is allowed.
        prop_assert!(payload.starts_with(&expected), "{payload:?} {expected:?}");
        // It ends well for the other one also with a status code that is not to be sent.
        let is_code = matches!(end, Some(End::Broken(Violation::CloseCode)));
        if is_right {
            prop_assert!(end == Some(End::Closed) || is_code, "{:?}", end);
        } else {
            prop_assert!(matches!(end, Some(End::Broken(_))), "{:?}", end);
        }
    }

    #[test]
    fn any_bytes_are_taken_without_a_panic(
        wire in proptest::collection::vec(any::<u8>(), 0..200),
        size in 1_usize..20,
    ) {
        let whole = open([&wire[..]]);
        prop_assert_eq!(open(wire.chunks(size)), whole);
    }
}
