//! Connections with a transform, in memory: what is read and written though the shard does nothing.

use super::*;
use crate::listener::tests::incoming_over;
use crate::transport::Transport;
use crate::transport::envelope::{
    ALERT, CLOSE, DATA, Envelope, HELLO, PING, PONG, greeting, records, sealed,
};
use crate::transport::memory::{MemoryPeer, memory};

const PLENTY: usize = 1 << 30;

fn sockets() -> Sockets {
    let poll = Poll::new().unwrap();
    Sockets::new(poll.registry().try_clone().unwrap())
}

/// A connection whose handshake is done, and whose peer takes so many bytes from here on.
fn opened(sockets: &mut Sockets, room: usize) -> (ConnectionId, MemoryPeer) {
    let (socket, peer) = memory(PLENTY);
    let transport = Transport::new(socket, vec![Envelope::boxed()]);
    let (id, ..) = sockets.open(incoming_over(transport)).unwrap();
    say(sockets, id, &peer, &greeting());
    assert_eq!(read(sockets), b"");
    assert_eq!(kinds(&peer), [HELLO]);
    peer.set_room(room);
    (id, peer)
}

/// The peer sends something, and there is an edge.
fn say(sockets: &mut Sockets, id: ConnectionId, peer: &MemoryPeer, bytes: &[u8]) {
    peer.send(bytes);
    sockets.note_readable(id.index as usize, false);
}

/// The peer takes more, and there is an edge.
fn make_room(sockets: &mut Sockets, id: ConnectionId, peer: &MemoryPeer) -> Option<ConnectionId> {
    peer.make_room(PLENTY);
    sockets.note_writable(id.index as usize)
}

/// Reads all that are readable, as often as they are. Answers what they have for the shard.
fn read(sockets: &mut Sockets) -> Vec<u8> {
    let mut all = Vec::new();
    let mut into = [0; 2_048];
    while let Some(index) = sockets.take_ready() {
        match sockets.read(index, &mut into) {
            SocketRead::Bytes { count, .. } => all.extend(&into[..count]),
            SocketRead::Nothing => {}
            ended @ SocketRead::Ended { .. } => panic!("{ended:?}"),
        }
    }
    all
}

fn kinds(peer: &MemoryPeer) -> Vec<u8> {
    records(&peer.received()).0.iter().map(|it| it.0).collect()
}

#[test]
fn a_pong_leaves_though_the_shard_has_nothing_to_write() {
    let mut sockets = sockets();
    let (id, peer) = opened(&mut sockets, PLENTY);
    say(&mut sockets, id, &peer, &sealed(PING, b"?"));
    assert_eq!(read(&mut sockets), b"");
    assert_eq!(records(&peer.received()).0, [(PONG, b"?".to_vec())]);
}

#[test]
fn a_pong_that_did_not_fit_leaves_at_the_write_edge() {
    let mut sockets = sockets();
    let (id, peer) = opened(&mut sockets, 1);
    say(&mut sockets, id, &peer, &sealed(PING, b"?"));
    assert_eq!(read(&mut sockets), b"");
    assert_eq!(sockets.write(id, b"later"), (0, false), "it is full");
    let asked = make_room(&mut sockets, id, &peer);
    assert_eq!(
        asked,
        Some(id),
        "the edge is reported to the shard's thread"
    );
    assert_eq!(sockets.write(id, b""), (0, true), "which has nothing");
    assert_eq!(kinds(&peer), [PONG]);
}

#[test]
fn a_peer_that_takes_no_answers_is_read_again_when_it_does() {
    let mut sockets = sockets();
    let (id, peer) = opened(&mut sockets, 0);
    let pings = sealed(PING, &[0; 1_000]).repeat(100);
    let wire = [pings, sealed(DATA, b"in")].concat();
    say(&mut sockets, id, &peer, &wire);
    assert_eq!(read(&mut sockets), b"");
    assert!(peer.unread() > 30_000, "the rest is not read");
    assert!(!sockets.has_ready(), "and is not looked at again and again");
    assert_eq!(make_room(&mut sockets, id, &peer), Some(id));
    sockets.write(id, b"");
    assert_eq!(read(&mut sockets), b"in");
    assert_eq!(kinds(&peer).len(), 100);
}

#[test]
fn opened_and_sealed_bytes_move_with_their_connection() {
    let (mut sockets, mut others) = (sockets(), sockets());
    let (id, peer) = opened(&mut sockets, 1);
    let wire = [sealed(PING, b"?"), sealed(DATA, b"0123456789")].concat();
    peer.send(&wire[..9]);
    sockets.note_readable(0, false);
    assert_eq!(read(&mut sockets), b"");
    say(&mut sockets, id, &peer, &wire[9..]);
    let index = sockets.take_ready().unwrap();
    let mut into = [0; 8];
    let found = sockets.read(index, &mut into);
    assert!(matches!(
        found,
        SocketRead::Bytes {
            count: 8,
            more: true,
            ..
        }
    ));
    peer.set_room(PLENTY);
    let incoming = sockets.release(id, Vec::new()).unwrap();
    others.open(incoming).unwrap();
    assert_eq!(kinds(&peer), [PONG]);
    assert_eq!([&into[..], &read(&mut others)].concat(), b"0123456789");
}

#[test]
fn a_peer_that_breaks_the_protocol_has_time_to_read_why() {
    for ends in [false, true] {
        let mut sockets = sockets();
        let (id, peer) = opened(&mut sockets, PLENTY);
        say(&mut sockets, id, &peer, &sealed(99, b""));
        let index = sockets.take_ready().unwrap();
        assert_eq!(sockets.read(index, &mut [0; 64]), SocketRead::Nothing);
        let index = sockets.take_ready().unwrap();
        let found = sockets.read(index, &mut [0; 64]);
        let cause = CloseCause::Transport(ErrorKind::InvalidData);
        let connection = id;
        assert_eq!(found, SocketRead::Ended { connection, cause });
        let until = Instant::now();
        sockets.close_ended(until, id);
        assert_eq!(kinds(&peer), [ALERT]);
        assert!(peer.is_shut_down() && !peer.is_closed());
        assert_eq!(sockets.next_deadline(), Some(until));
        if ends {
            peer.send(b"rest");
            peer.end();
            sockets.note_readable(id.index as usize, true);
            assert_eq!(read(&mut sockets), b"");
        } else {
            sockets.close_overdue(until);
        }
        assert!(peer.is_closed() && sockets.is_empty());
    }
}

#[test]
fn a_connection_that_ends_sends_the_end_of_its_transform() {
    let mut sockets = sockets();
    let (id, peer) = opened(&mut sockets, PLENTY);
    sockets.close_ended(Instant::now(), id);
    assert_eq!(kinds(&peer), [CLOSE]);
    assert!(peer.is_closed());
}
