//! A transport in memory, without sockets of the kernel and without a shard.

use super::envelope::*;
use super::memory::{MemoryPeer, memory};
use super::*;
use crate::bounds::SEALED_BYTES;

const PLENTY: usize = 1 << 30;

/// A transport, its peer, and what its thread has.
struct Pair {
    transport: Transport,
    peer: MemoryPeer,
    scratch: Scratch,
}

impl Pair {
    fn new(room: usize, transforms: Vec<Box<dyn Transform>>) -> Self {
        let (socket, peer) = memory(room);
        Self {
            transport: Transport::new(socket, transforms),
            peer,
            scratch: Scratch::default(),
        }
    }

    /// With one transform that is open.
    fn open(room: usize) -> Self {
        let mut pair = Self::new(PLENTY, vec![Envelope::boxed()]);
        pair.peer.send(&greeting());
        assert_eq!(pair.read(100), bytes(b"", true));
        pair.flush();
        assert_eq!(pair.received(), [(HELLO, b"".to_vec())]);
        pair.peer.set_room(room);
        pair
    }

    fn read(&mut self, most: usize) -> (ReadOutcome, Vec<u8>) {
        let mut into = vec![0; most];
        let outcome = self.transport.read(&mut into, &mut self.scratch);
        let count = match outcome {
            ReadOutcome::Bytes { count, .. } => count,
            _ => 0,
        };
        into.truncate(count);
        (outcome, into)
    }

    /// All that is there.
    fn read_all(&mut self) -> Vec<u8> {
        let mut all = Vec::new();
        while let (ReadOutcome::Bytes { .. }, bytes) = self.read(100) {
            all.extend(bytes);
        }
        all
    }

    fn write(&mut self, bytes: &[u8]) -> WriteOutcome {
        self.transport.write(bytes, &mut self.scratch)
    }

    fn flush(&mut self) {
        let written = self.transport.flush();
        assert_eq!(written, wrote(0, self.transport.wants_write()));
    }

    /// The same while bytes of the shard are sealed.
    fn flush_all(&mut self) {
        self.transport.flush();
        assert!(!self.transport.wants_write());
    }

    fn close(&mut self) {
        self.transport.close(&mut self.scratch);
        self.flush();
    }

    /// Records that have come, all of them whole.
    fn received(&self) -> Vec<(u8, Vec<u8>)> {
        let wire = self.peer.received();
        let (found, used) = records(&wire);
        assert_eq!(used, wire.len());
        found
    }
}

fn bytes(bytes: &[u8], drained: bool) -> (ReadOutcome, Vec<u8>) {
    let count = bytes.len();
    (ReadOutcome::Bytes { count, drained }, bytes.to_vec())
}

fn wrote(count: usize, full: bool) -> WriteOutcome {
    WriteOutcome::Bytes { count, full }
}

fn ended(cause: CloseCause) -> (ReadOutcome, Vec<u8>) {
    (ReadOutcome::Ended(cause), Vec::new())
}

const INVALID: CloseCause = CloseCause::Transport(ErrorKind::InvalidData);

#[test]
fn without_transforms_bytes_are_as_the_socket_has_them() {
    let mut pair = Pair::new(3, Vec::new());
    assert!(pair.transport.is_plain());
    pair.peer.send(b"in");
    assert_eq!(pair.read(2), bytes(b"in", false));
    assert_eq!(pair.read(2), (ReadOutcome::Nothing, Vec::new()));
    assert_eq!(pair.write(b"out!"), wrote(3, true));
    assert!(!pair.transport.wants_write() && !pair.transport.has_unread());
    pair.close();
    assert_eq!(pair.peer.received(), b"out");
}

#[test]
fn a_handshake_needs_no_bytes_of_the_shard_and_may_come_byte_by_byte() {
    let mut pair = Pair::new(PLENTY, vec![Envelope::boxed()]);
    let wire = [greeting(), sealed(DATA, b"plain")].concat();
    let mut found = Vec::new();
    for byte in wire {
        pair.peer.send(&[byte]);
        let (outcome, bytes) = pair.read(100);
        assert!(matches!(outcome, ReadOutcome::Bytes { drained: true, .. }));
        found.extend(bytes);
        pair.flush();
    }
    assert_eq!(found, b"plain");
    assert_eq!(pair.received(), [(HELLO, b"".to_vec())]);
}

#[test]
fn a_transform_may_speak_first_and_once() {
    let mut pair = Pair::new(PLENTY, vec![Envelope::that_speaks_first()]);
    for _ in 0..2 {
        pair.transport.begin(&mut pair.scratch);
        pair.flush();
    }
    assert_eq!(pair.received(), [(HELLO, b"".to_vec())]);
    pair.peer.send(&[greeting(), sealed(DATA, b"x")].concat());
    assert_eq!(pair.read(100), bytes(b"x", true));
}

#[test]
fn a_message_counts_as_sent_when_the_last_byte_of_its_record_is_taken() {
    let record = sealed(DATA, b"message").len();
    let mut pair = Pair::open(0);
    for byte in 1..=record {
        pair.peer.make_room(1);
        let is_whole = byte == record;
        let count = if is_whole { b"message".len() } else { 0 };
        assert_eq!(pair.write(b"message"), wrote(count, !is_whole), "{byte}");
    }
    assert_eq!(pair.received(), [(DATA, b"message".to_vec())]);
}

#[test]
fn what_is_sealed_is_not_sealed_again_and_what_comes_behind_it_is() {
    let mut pair = Pair::open(1);
    assert_eq!(pair.write(b"first"), wrote(0, true));
    pair.peer.make_room(PLENTY);
    assert_eq!(pair.write(b"first, second"), wrote(13, false));
    let expected = [(DATA, b"first".to_vec()), (DATA, b", second".to_vec())];
    assert_eq!(pair.received(), expected);
}

#[test]
fn what_is_sealed_leaves_though_the_shard_offers_nothing() {
    let mut pair = Pair::open(1);
    assert_eq!(pair.write(b"first"), wrote(0, true));
    assert!(pair.transport.wants_write());
    pair.peer.make_room(PLENTY);
    assert_eq!(pair.write(b""), wrote(5, false));
    assert!(!pair.transport.wants_write());
    assert_eq!(pair.received(), [(DATA, b"first".to_vec())]);
}

#[test]
fn much_is_written_in_order_however_little_the_socket_takes() {
    let message: Vec<u8> = (0..300_000_u32).map(|n| n.to_le_bytes()[0]).collect();
    let mut pair = Pair::open(0);
    let (mut sent, mut most_sealed) = (0, 0);
    while sent < message.len() {
        pair.peer.make_room(70_001);
        let outcome = pair.write(&message[sent..]);
        let WriteOutcome::Bytes { count, full } = outcome else {
            panic!("{outcome:?}");
        };
        sent += count;
        assert_eq!(full, sent < message.len());
        most_sealed = most_sealed.max(pair.transport.stack.as_ref().unwrap().sealed_bytes());
    }
    assert!(most_sealed < 2 * SEALED_BYTES, "{most_sealed}");
    let found: Vec<u8> = pair.received().into_iter().flat_map(|it| it.1).collect();
    assert!(found == message);
}

#[test]
fn opened_bytes_that_were_not_read_need_no_more_of_the_socket() {
    let mut pair = Pair::open(PLENTY);
    // The rest of a record comes with a read that is short, so that it opens more than it took.
    let record = sealed(DATA, b"0123456789abcdef");
    pair.peer.send(&record[..10]);
    assert_eq!(pair.read(10), bytes(b"", false));
    pair.peer.send(&record[10..]);
    assert_eq!(pair.read(10), bytes(b"0123456789", false));
    assert!(pair.transport.has_unread());
    assert_eq!(pair.peer.unread(), 0);
    assert_eq!(pair.read(4), bytes(b"abcd", false));
    assert_eq!(pair.read(4), bytes(b"ef", false));
    assert_eq!(pair.read(4), (ReadOutcome::Nothing, Vec::new()));
}

#[test]
fn a_peer_that_asks_and_takes_no_answers_is_not_read() {
    let mut pair = Pair::open(0);
    let ping = sealed(PING, &[0; 1_000]);
    let mut asked = 0;
    while pair.transport.stack.as_ref().unwrap().sealed_bytes() < SEALED_BYTES {
        pair.peer.send(&ping);
        assert_eq!(pair.read(2_000), bytes(b"", true));
        asked += 1;
    }
    pair.peer.send(&sealed(DATA, b"later"));
    assert_eq!(pair.read(100), (ReadOutcome::Blocked, Vec::new()));
    pair.peer.make_room(PLENTY);
    pair.flush();
    assert_eq!(pair.read(100), bytes(b"later", true));
    assert_eq!(pair.received().len(), asked);
}

#[test]
fn a_peer_that_takes_nothing_is_read_behind_what_the_shard_sends() {
    let mut pair = Pair::open(0);
    let message = vec![0; 2 * SEALED_BYTES];
    assert_eq!(pair.write(&message), wrote(0, true));
    assert!(pair.transport.stack.as_ref().unwrap().sealed_bytes() >= SEALED_BYTES);
    assert!((SEALED_BYTES / 2..message.len()).contains(&pair.transport.sealed()));
    pair.peer.send(&sealed(DATA, b"ack"));
    assert_eq!(pair.read(100), bytes(b"ack", true));
}

#[test]
fn what_a_peer_sent_before_it_was_lost_is_read_to_its_end() {
    for is_flushed in [false, true] {
        let mut pair = Pair::open(0);
        let pings = sealed(PING, &[0; 1_000]).repeat(200);
        pair.peer.send(&[pings, sealed(DATA, b"last")].concat());
        assert_eq!(pair.read_all(), b"");
        pair.peer.reset();
        let broken = WriteOutcome::Broken(ErrorKind::ConnectionReset);
        let outcome = if is_flushed {
            pair.transport.flush()
        } else {
            pair.write(b"")
        };
        assert_eq!(outcome, broken);
        assert_eq!(pair.read_all(), b"last");
        assert_eq!(pair.read(100), ended(CloseCause::Peer));
        assert!(!pair.transport.wants_write());
    }
}

#[test]
fn an_answer_leaves_between_two_messages() {
    let mut pair = Pair::open(1);
    assert_eq!(pair.write(b"one"), wrote(0, true));
    pair.peer.send(&sealed(PING, b"?"));
    assert_eq!(pair.read(100), bytes(b"", true));
    pair.peer.make_room(PLENTY);
    assert_eq!(pair.write(b"onetwo"), wrote(6, false));
    let expected = [
        (DATA, b"one".to_vec()),
        (PONG, b"?".to_vec()),
        (DATA, b"two".to_vec()),
    ];
    assert_eq!(pair.received(), expected);
}

#[test]
fn layers_are_passed_in_order_in_both_directions() {
    let mut pair = Pair::new(PLENTY, vec![Envelope::boxed(), Envelope::boxed()]);
    let inner = [greeting(), sealed(PING, b"?"), sealed(DATA, b"in")].concat();
    // The upper one's records are spread over the lower one's as they please.
    let outer: Vec<u8> = inner.chunks(2).flat_map(|it| sealed(DATA, it)).collect();
    pair.peer.send(&[greeting(), outer].concat());
    assert_eq!(pair.read_all(), b"in");
    pair.flush();
    assert_eq!(pair.write(b"out"), wrote(3, false));
    pair.close();
    let outer = pair.received();
    assert_eq!(outer.first(), Some(&(HELLO, Vec::new())));
    assert_eq!(outer.last(), Some(&(CLOSE, Vec::new())));
    let data = &outer[1..outer.len() - 1];
    assert!(data.iter().all(|(kind, _)| *kind == DATA));
    let inner: Vec<u8> = data.iter().flat_map(|it| it.1.clone()).collect();
    let expected = [
        (HELLO, Vec::new()),
        (PONG, b"?".to_vec()),
        (DATA, b"out".to_vec()),
        (CLOSE, Vec::new()),
    ];
    assert_eq!(records(&inner).0, expected);
}

#[test]
fn the_end_is_behind_all_that_was_written_and_nothing_is_read_after_it() {
    let mut pair = Pair::open(1);
    assert_eq!(pair.write(b"last"), wrote(0, true));
    pair.peer.make_room(PLENTY);
    assert_eq!(pair.write(b"last"), wrote(4, false));
    pair.close();
    pair.close();
    pair.peer.send(&sealed(PING, b"?"));
    let (outcome, _) = pair.read(100);
    assert!(matches!(outcome, ReadOutcome::Bytes { .. }));
    assert!(!pair.transport.wants_write(), "no answer behind the end");
    assert_eq!(
        pair.received(),
        [(DATA, b"last".to_vec()), (CLOSE, b"".to_vec())]
    );
}

#[test]
fn a_layer_that_has_not_begun_has_no_end_to_send() {
    let mut pair = Pair::new(PLENTY, vec![Envelope::boxed(), Envelope::boxed()]);
    pair.peer.send(&sealed(HELLO, b""));
    assert_eq!(pair.read(100), bytes(b"", true));
    pair.close();
    let expected = [(HELLO, Vec::new()), (CLOSE, Vec::new())];
    assert_eq!(pair.received(), expected);
}

#[test]
fn what_the_peer_sent_before_its_end_is_read_and_what_follows_is_not() {
    for (last, cause, answer) in [(CLOSE, CloseCause::Peer, None), (99, INVALID, Some(ALERT))] {
        let mut pair = Pair::open(PLENTY);
        let wire = [sealed(DATA, b"in"), sealed(last, b""), sealed(DATA, b"no")];
        pair.peer.send(&wire.concat());
        assert_eq!(pair.read(100), bytes(b"in", false));
        pair.flush();
        assert_eq!(pair.read(100), ended(cause));
        assert_eq!(pair.transport.has_refused(), answer.is_some());
        let kinds = pair.received().into_iter().map(|it| it.0);
        assert_eq!(kinds.collect::<Vec<_>>(), Vec::from_iter(answer));
    }
}

#[test]
fn a_record_that_never_ends_is_refused() {
    let mut pair = Pair::open(PLENTY);
    pair.peer.send(&[DATA, 0xff, 0xff]);
    pair.peer.send(&vec![0; 60_000]);
    let refused = std::iter::from_fn(|| match pair.read(1_000) {
        (ReadOutcome::Bytes { .. }, _) => Some(None),
        (other, _) => Some(Some(other)),
    });
    assert_eq!(refused.flatten().next(), Some(ReadOutcome::Ended(INVALID)));
    assert!(pair.peer.unread() > 20_000, "the rest is not read");
}

#[test]
fn a_socket_that_ends_has_had_its_bytes_read() {
    let mut pair = Pair::open(PLENTY);
    pair.peer.send(&sealed(DATA, b"in"));
    pair.peer.end();
    assert_eq!(pair.read(1), bytes(b"", false));
    assert_eq!(pair.read(100), bytes(b"in", true));
    assert_eq!(pair.read(100), ended(CloseCause::Peer));
}

#[test]
fn what_a_transport_keeps_is_counted_until_it_is_used_or_the_end_is_sealed() {
    assert_eq!(Pair::new(0, Vec::new()).transport.held_bytes(), 0);
    let mut pair = Pair::open(0);
    assert_eq!(pair.transport.held_bytes(), 0);
    let record = sealed(DATA, &vec![7; 20_000]);
    pair.peer.send(&record[..10_000]);
    assert_eq!(pair.read(20_000), bytes(b"", true));
    assert!(
        pair.transport.held_bytes() >= 10_000,
        "the beginning of a record"
    );
    pair.peer.send(&record[10_000..]);
    pair.read(10_100);
    assert!(pair.transport.held_bytes() >= 9_900, "opened, and not read");
    pair.read_all();
    assert_eq!(pair.transport.held_bytes(), 0);
    pair.write(&vec![0; 30_000]);
    assert!(
        pair.transport.held_bytes() >= 30_000,
        "sealed, and not taken"
    );
    pair.peer.make_room(PLENTY);
    pair.flush_all();
    assert_eq!(pair.transport.held_bytes(), 0);
    pair.peer.send(&record[..10_000]);
    assert_eq!(pair.read(20_000), bytes(b"", true));
    pair.close();
    assert_eq!(pair.transport.held_bytes(), 0, "of no use any more");
}
