//! Clients behind a transform: in memory turn by turn, and over TCP with threads that run.

use super::*;
use crate::channel::EventSender;
use crate::listener::tests::{incoming_over, socket_and_peer};
use crate::transport::Transport;
use crate::transport::envelope::{
    CLOSE, DATA, Envelope, HELLO, PING, PONG, greeting, records, sealed,
};
use crate::transport::memory::{MemoryPeer, memory};

const PLENTY: usize = 1 << 30;
/// Topic `m`, at QoS 0.
const SUBSCRIBE: &[u8] = b"\x82\x06\x00\x01\x00\x01m\x00";
const CONNACK_AND_SUBACK: &[u8] = b"\x20\x02\x00\x00\x90\x03\x00\x01\x00";
const DISCONNECT: &[u8] = b"\xe0\x00";

/// A shard with a subscriber to `m` in memory, which takes so many bytes from here on.
fn subscriber(room: usize) -> (ShardThread, ConnectionId, MemoryPeer) {
    let mut thread = shard_thread(0, [None, None], [None, None]);
    thread.shard = Shard::new(options(0, 1));
    let (socket, peer) = memory(PLENTY);
    let transport = Transport::new(socket, vec![Envelope::boxed()]);
    let (shard, driver) = (&mut thread.shard, &mut thread.driver);
    open(shard, driver, Instant::now(), incoming_over(transport));
    let id = ConnectionId {
        index: 0,
        serial: 1,
    };
    peer.send(&[greeting(), sealed(DATA, CONNECT), sealed(DATA, SUBSCRIBE)].concat());
    turn(&mut thread, id);
    let expected = [(HELLO, Vec::new()), (DATA, CONNACK_AND_SUBACK.to_vec())];
    assert_eq!(records(&peer.received()).0, expected);
    peer.set_room(room);
    (thread, id, peer)
}

/// Both edges, and all that they lead to.
fn turn(thread: &mut ShardThread, id: ConnectionId) {
    let index = id.index as usize;
    let sockets = &mut thread.driver.sockets;
    sockets.note_readable(index, false);
    let writable = sockets.note_writable(index);
    thread.dirty.extend(writable);
    while thread.driver.sockets.has_ready() {
        thread.read_clients(Instant::now(), &mut Turn::default());
    }
    thread.write_clients(Instant::now(), &mut Turn::default());
}

/// Somebody else publishes to `m`.
fn publish(thread: &mut ShardThread) {
    let (incoming, _peer) = incoming_and_peer([CONNECT, TO_MANY].concat());
    open(
        &mut thread.shard,
        &mut thread.driver,
        Instant::now(),
        incoming,
    );
}

#[test]
fn a_message_counts_as_sent_when_the_kernel_takes_its_record() {
    let record = sealed(DATA, TO_MANY).len();
    let (mut thread, id, peer) = subscriber(0);
    publish(&mut thread);
    for byte in 1..=record {
        peer.make_room(1);
        turn(&mut thread, id);
        let is_pending = !thread.shard.pending_output(id).is_empty();
        assert_eq!(is_pending, byte < record, "{byte} of {record}");
    }
    assert_eq!(records(&peer.received()).0, [(DATA, TO_MANY.to_vec())]);
}

#[test]
fn a_message_whose_record_was_sent_in_part_counts_as_lost() {
    let record = sealed(DATA, TO_MANY).len();
    for (room, lost) in [(record - 1, 1), (record, 0)] {
        let (mut thread, id, peer) = subscriber(room);
        publish(&mut thread);
        turn(&mut thread, id);
        let now = Instant::now();
        let (shard, driver) = (&mut thread.shard, &mut thread.driver);
        input(shard, driver, now, Input::Drain);
        thread.driver.close(now);
        thread.driver.sockets.close_all();
        thread.report_unsent(now);
        assert_eq!(thread.shard.stats().dropped_total(), lost);
        assert!(peer.is_closed());
    }
}

#[test]
fn final_bytes_are_sent_before_the_end_of_the_transform() {
    let (mut thread, id, peer) = subscriber(1);
    publish(&mut thread);
    turn(&mut thread, id);
    let now = Instant::now();
    let (shard, driver) = (&mut thread.shard, &mut thread.driver);
    input(shard, driver, now, Input::Drain);
    thread.driver.close(now);
    assert!(!peer.is_shut_down());
    peer.make_room(PLENTY);
    turn(&mut thread, id);
    let expected = [(DATA, TO_MANY.to_vec()), (CLOSE, Vec::new())];
    assert_eq!(records(&peer.received()).0, expected);
    assert!(peer.is_shut_down() && !peer.is_closed());
    peer.end();
    turn(&mut thread, id);
    assert!(peer.is_closed());
    assert_eq!(thread.shard.stats().dropped_total(), 0);
}

#[test]
fn a_client_that_disconnects_gets_the_end_of_the_transform() {
    let (mut thread, id, peer) = subscriber(PLENTY);
    peer.send(&sealed(DATA, DISCONNECT));
    turn(&mut thread, id);
    thread.driver.close(Instant::now());
    turn(&mut thread, id);
    assert_eq!(records(&peer.received()).0, [(CLOSE, Vec::new())]);
    assert!(peer.is_shut_down());
}

#[test]
fn a_client_that_has_ended_its_side_gets_the_answers_and_then_the_end() {
    let (mut thread, id, peer) = subscriber(PLENTY);
    peer.send(&[sealed(DATA, b"\xc0\x00"), sealed(CLOSE, b"")].concat());
    turn(&mut thread, id);
    let expected = [(DATA, b"\xd0\x00".to_vec()), (CLOSE, Vec::new())];
    assert_eq!(records(&peer.received()).0, expected);
    assert!(peer.is_closed());
}

#[test]
fn answers_to_pings_pass_messages_but_none_that_is_sealed() {
    let (mut thread, id, peer) = subscriber(0);
    let message = |number: u16| {
        let payload = number.to_be_bytes().repeat(50);
        [&b"\x30\x67\x00\x01m"[..], &payload].concat()
    };
    let sent: Vec<_> = (0..2_000).flat_map(message).collect();
    let (incoming, _publisher) = incoming_and_peer([CONNECT, &sent].concat());
    let (shard, driver) = (&mut thread.shard, &mut thread.driver);
    open(shard, driver, Instant::now(), incoming);
    let (mut wire, mut pings) = (Vec::new(), 0);
    while !thread.shard.pending_output(id).is_empty() {
        if pings < 50 {
            peer.send(&sealed(DATA, b"\xc0\x00"));
            pings += 1;
        }
        peer.make_room(501);
        turn(&mut thread, id);
        wire.extend(peer.received());
    }
    let plain: Vec<_> = records(&wire).0.into_iter().flat_map(|it| it.1).collect();
    let (mut rest, mut messages, mut first_pong) = (&plain[..], Vec::new(), None);
    while let [kind, length, ..] = *rest {
        let (packet, behind) = rest.split_at(2 + usize::from(length));
        if kind == 0x30 {
            messages.extend_from_slice(packet);
        } else {
            assert_eq!(packet, b"\xd0\x00");
            pings -= 1;
            first_pong.get_or_insert(messages.len());
        }
        rest = behind;
    }
    assert!(messages == sent, "not as they were published");
    assert_eq!(pings, 0);
    assert!(first_pong.unwrap() < sent.len() / 2, "{first_pong:?}");
}

#[test]
fn a_client_whose_layers_hold_too_much_is_ended() {
    let (mut thread, id, peer) = subscriber(PLENTY);
    let (shard, driver) = (&mut thread.shard, &mut thread.driver);
    let mut limits = Limits::default();
    limits.memory_bytes_max = 20_000;
    let limits = Box::new(limits);
    input(shard, driver, Instant::now(), Input::Reconfigured(limits));
    let begun = sealed(DATA, &vec![0; 40_000]);
    for (part, is_over) in [(&begun[..15_000], false), (&begun[15_000..30_000], true)] {
        peer.send(part);
        turn(&mut thread, id);
        thread.driver.close(Instant::now());
        let closed = records(&peer.received()).0;
        assert_eq!(!closed.is_empty(), is_over, "{closed:?}");
    }
}

/// Its end of a connection over TCP.
struct Client {
    stream: TcpStream,
    /// The beginning of a record.
    rest: Vec<u8>,
}

impl Client {
    fn send(&mut self, kind: u8, bytes: &[u8]) {
        self.stream.write_all(&sealed(kind, bytes)).unwrap();
    }

    /// The next record; `None` at the end.
    fn receive(&mut self) -> Option<(u8, Vec<u8>)> {
        loop {
            if let Some(first) = records(&self.rest).0.into_iter().next() {
                self.rest.drain(..sealed(first.0, &first.1).len());
                return Some(first);
            }
            let mut bytes = [0; 4_096];
            let count = self.stream.read(&mut bytes).unwrap();
            if count == 0 {
                assert!(self.rest.is_empty(), "an end within a record");
                return None;
            }
            self.rest.extend(&bytes[..count]);
        }
    }

    /// So many bytes of DATA.
    fn data(&mut self, length: usize) -> Vec<u8> {
        let mut all = Vec::new();
        while all.len() < length {
            let (kind, bytes) = self.receive().unwrap();
            assert_eq!(kind, DATA);
            all.extend(bytes);
        }
        assert_eq!(all.len(), length);
        all
    }
}

/// A client whose handshake is done, given to a shard.
fn client(to_shard: &mut EventSender) -> Client {
    let (socket, stream) = socket_and_peer();
    let transport = Transport::tcp(socket, vec![Envelope::boxed()]);
    to_shard.send(DriverEvent::Connection(Box::new(incoming_over(transport))));
    let patience = 30 * LATER;
    stream.set_read_timeout(Some(patience)).unwrap();
    let mut client = Client {
        stream,
        rest: Vec::new(),
    };
    // In two steps, the second behind the answer.
    client.send(HELLO, b"");
    assert_eq!(client.receive(), Some((HELLO, Vec::new())));
    client
        .stream
        .write_all(&greeting()[sealed(HELLO, b"").len()..])
        .unwrap();
    client
}

#[test]
fn clients_behind_a_transform_are_served_over_tcp_and_move_between_shards() {
    let mut shards = linked_shards(64);
    let mut feeds = shards.each_mut().map(|thread| {
        let (outside, receiver) = event_channel();
        thread.from_others.push(receiver);
        outside
    });
    let threads = shards.map(|thread| thread::spawn(|| thread.run().map(drop)));

    // Their sessions live on either shard, whichever they came to.
    let large = vec![7; 100_000];
    let message = [&b"\x30\xa3\x8d\x06\x00\x01m"[..], &large].concat();
    let mut clients: Vec<_> = (b'a'..=b'h')
        .map(|name| {
            let mut client = client(&mut feeds[0]);
            let connect = [
                &b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x00\x00\x01"[..],
                &[name],
            ];
            client.send(DATA, &[&connect.concat(), SUBSCRIBE].concat());
            assert_eq!(client.data(CONNACK_AND_SUBACK.len()), CONNACK_AND_SUBACK);
            client
        })
        .collect();
    for piece in message.chunks(777) {
        clients[0].send(DATA, piece);
    }
    for client in &mut clients {
        assert!(client.data(message.len()) == message);
        client.send(PING, b"still there?");
        assert_eq!(client.receive(), Some((PONG, b"still there?".to_vec())));
    }
    clients[1].send(DATA, DISCONNECT);
    clients[2]
        .stream
        .shutdown(std::net::Shutdown::Write)
        .unwrap();
    clients[3].send(CLOSE, b"");
    for client in &mut clients[1..4] {
        assert_eq!(client.receive(), Some((CLOSE, Vec::new())));
        assert_eq!(client.receive(), None);
    }
    for channel in &mut feeds {
        let until = Instant::now() + 30 * LATER;
        channel.send(DriverEvent::Drain { until });
    }
    for client in &mut clients[4..] {
        assert_eq!(client.receive(), Some((CLOSE, Vec::new())));
        assert_eq!(client.receive(), None);
    }
    drop(clients);
    for thread in threads {
        thread.join().unwrap().unwrap();
    }
}
