//! Sockets of a thread that has no shard.

mod transforms;

use std::io::Write;

use mio::{Events, Poll};

use super::*;
use crate::bounds::READ_BUFFER_BYTES;
use crate::listener::tests::incoming_and_peer;

/// Until so many are to be read.
fn note_readable(poll: &mut Poll, sockets: &mut Sockets, count: usize) {
    while sockets.reads.len() < count {
        let mut events = Events::with_capacity(8);
        poll.poll(&mut events, None).unwrap();
        for event in events.iter().filter(|event| event.is_readable()) {
            sockets.note(event);
        }
    }
}

#[test]
fn a_connection_is_read_by_the_quantum_and_comes_behind_the_others() {
    let mut poll = Poll::new().unwrap();
    let mut sockets = Sockets::new(poll.registry().try_clone().unwrap());
    let (mut peers, mut ids) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        let (incoming, peer) = incoming_and_peer(Vec::new());
        ids.push(sockets.open(incoming).unwrap().0);
        peers.push(peer);
    }
    let mut buffer = vec![0; READ_BUFFER_BYTES];
    for (peer, count) in peers.iter_mut().zip([3 * READ_QUANTUM, 1]) {
        peer.write_all(&vec![0; count]).unwrap();
        let before = sockets.reads.len();
        note_readable(&mut poll, &mut sockets, before + 1);
    }
    // Of a packet that has begun, so much is missing.
    let mut found = Vec::new();
    for missing in [0, 0, READ_QUANTUM + 1, 0] {
        let index = sockets.take_ready().unwrap();
        sockets.note_packet(ids[index as usize], (0, missing));
        if let SocketRead::Bytes { count, more, .. } = sockets.read(index, &mut buffer) {
            found.push((index, count, more));
        }
    }
    let [busy, quiet] = [ids[0].index, ids[1].index];
    let quantum = READ_QUANTUM;
    let expected = [
        (busy, quantum, true),
        (quiet, 1, false),
        (busy, quantum + 1, true),
        (busy, quantum - 1, false),
    ];
    assert_eq!(found, expected);
    assert!(!sockets.has_ready());
}

#[test]
fn packets_that_are_longer_than_a_quantum_are_read_whole() {
    let mut poll = Poll::new().unwrap();
    let mut sockets = Sockets::new(poll.registry().try_clone().unwrap());
    let (incoming, mut peer) = incoming_and_peer(Vec::new());
    let id = sockets.open(incoming).unwrap().0;
    let mut buffer = vec![0; READ_BUFFER_BYTES];
    let length = 2 * READ_QUANTUM;
    peer.write_all(&vec![0; 3 * length]).unwrap();
    note_readable(&mut poll, &mut sockets, 1);
    let mut counts = Vec::new();
    for begun in [Some((length, READ_QUANTUM)), None, Some((100, 50)), None] {
        sockets.take_ready();
        if let SocketRead::Bytes { count, .. } = sockets.read(id.index, &mut buffer) {
            counts.push(count);
        }
        if let Some(begun) = begun {
            sockets.note_packet(id, begun);
        }
    }
    let quantum = READ_QUANTUM;
    assert_eq!(counts, [quantum, quantum, length, quantum]);
}

#[test]
fn a_connection_is_counted_as_taken_when_it_is_read() {
    let poll = Poll::new().unwrap();
    let mut sockets = Sockets::new(poll.registry().try_clone().unwrap());
    (0..3).for_each(|index| sockets.reads.push(index));
    assert_eq!((sockets.read_so_far(), sockets.to_read()), (0, 3));
    assert_eq!(sockets.take_ready(), Some(0));
    assert_eq!((sockets.read_so_far(), sockets.to_read()), (1, 3));
    assert_eq!(sockets.ready_len(), 2);
}
