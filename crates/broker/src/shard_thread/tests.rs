//! A shard thread turn by turn.

use super::*;
use crate::authenticator::{Door, authenticator};
use crate::bounds::{FLOOD_READ_BYTES, PIECE_BYTES, READ_MUCH};
use crate::coalesce;
use crate::disk::tests::started;
use crate::listener::tests::{any_arrival, arrival_and_peer};
use crate::mailbox::{feed, outside_feed};
use std::io::{Read, Write};
use std::net::TcpStream;
use unbroken_broker_core::{Limits, Settings, ShardOptions, Totals};

#[test]
fn a_message_for_a_shard_that_has_ended_is_named() {
    let now = Instant::now();
    let mut shards = linked_shards(4);
    // Its session lives on the second shard, and outlives the connection.
    let sleeper = b"\x10\x0d\x00\x04MQTT\x04\x00\x00\x00\x00\x01b";
    let subscribe = b"\x82\x06\x00\x01\x00\x01a\x01";
    let publish = b"\x32\x05\x00\x01a\x00\x01";
    for (number, bytes) in [
        (1, [&sleeper[..], subscribe].concat()),
        (0, [CONNECT, publish].concat()),
    ] {
        let ShardThread { shard, driver, .. } = &mut shards[number];
        open(shard, driver, now, any_arrival(bytes));
        if number == 1 {
            hand_over(&mut shards, now);
        }
    }
    for ShardThread { shard, driver, .. } in &mut shards {
        input(shard, driver, now, Input::Drain);
    }
    let dropped = |shards: &[ShardThread; 2]| shards[1].shard.stats().dropped_total();
    assert_eq!(dropped(&shards), 0, "the letter was not handed over");
    settle(&mut shards);
    assert_eq!(dropped(&shards), 1);
}

#[test]
fn feeds_are_looked_into_once_one_of_them_has_rung() {
    let now = Instant::now();
    let (mut from_server, to_shard) = outside_feed();
    let (mut to_first, from_second) = feed(4);
    let mut first = shard_thread(0, [None, Some(from_second)], [None, None]);
    first.from_others.push(to_shard);
    assert!(!first.hears_nothing(), "nobody has looked yet");
    assert!(!first.arm_feeds());
    assert!(first.hears_nothing());
    from_server.send(Parcel::Drain { until: now });
    assert!(!first.hears_nothing());
    first.take_parcels(now, &mut Turn::default());
    assert_eq!(first.driver.drain_until, Some(now));
    assert!(!first.arm_feeds());
    to_first.push(Parcel::Drain { until: now + LATER });
    to_first.flush();
    first.take_parcels(now, &mut Turn::default());
    assert_eq!(first.driver.drain_until, Some(now + LATER));
    assert!(!first.hears_nothing(), "not before all are empty again");
}

#[test]
fn what_others_send_leaves_before_who_sends_much_is_read() {
    let mut thread = shard_thread(0, [None, None], [None, None]);
    thread.shard = Shard::new(options(0, 1));
    let now = Instant::now();
    // Each publishes to itself.
    let connect = b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x00\x00\x01";
    let subscribe = b"\x82\x06\x00\x01\x00\x01";
    let mut peers = [b"f", b"q"].map(|name| {
        let unread = [&connect[..], name, subscribe, name, b"\x00"].concat();
        let (arrival, peer) = arrival_and_peer(unread);
        open(&mut thread.shard, &mut thread.driver, now, arrival);
        peer
    });
    let much = [b"\x30\x83\x80\x01\x00\x01f", &[0; READ_MUCH][..]].concat();
    let little = b"\x30\x03\x00\x01q";
    for (round, leaves) in [(0, [false, false]), (1, [false, true])] {
        for (peer, bytes) in peers.iter_mut().zip([&much[..], little]) {
            say(&mut thread, peer, bytes);
        }
        thread.write_clients(now, &mut Turn::default());
        let mut turn = Turn::default();
        thread.read_clients(now, &mut turn);
        assert_eq!(turn.reads, 2);
        thread.shard.take_dirty(&mut thread.dirty, usize::MAX);
        let waits = |index| {
            thread
                .dirty
                .iter()
                .any(|connection| connection.index == index)
        };
        assert_eq!([0, 1].map(|index| !waits(index)), leaves, "round {round}");
    }
}

/// A flood and somebody quiet, each of whom publishes to itself.
struct Beside {
    thread: ShardThread,
    now: Instant,
    flood: TcpStream,
    quiet: TcpStream,
    /// Messages of the flood so far.
    sent: u32,
}

fn beside_a_flood() -> Beside {
    let mut thread = shard_thread(0, [None, None], [None, None]);
    thread.shard = Shard::new(options(0, 1));
    let now = Instant::now();
    let connect = b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x00\x00\x01";
    let subscribe = b"\x82\x06\x00\x01\x00\x01";
    let [flood, quiet] = [b"f", b"q"].map(|name| {
        let unread = [&connect[..], name, subscribe, name, b"\x00"].concat();
        let (arrival, mut peer) = arrival_and_peer(unread);
        open(&mut thread.shard, &mut thread.driver, now, arrival);
        thread.write_clients(now, &mut Turn::default());
        peer.read_exact(&mut [0; 9]).unwrap();
        peer.set_nodelay(true).unwrap(); // what is written is there
        peer.set_read_timeout(Some(LATER)).unwrap();
        peer
    });
    Beside {
        thread,
        now,
        flood,
        quiet,
        sent: 0,
    }
}

impl Beside {
    /// Packets of so many bytes (131 to 16,386), numbered, that come to so many at most.
    fn packets(&mut self, size: usize, bytes: usize) -> Vec<u8> {
        let mut packets = Vec::new();
        while packets.len() + size <= bytes {
            let (low, high) = (u8::try_from((size - 3) % 128), (size - 3) / 128);
            let head = [0x30, low.unwrap() | 0x80, u8::try_from(high).unwrap()];
            let rest = vec![0; size - head.len() - 7];
            packets.extend([&head[..], b"\x00\x01f", &self.sent.to_be_bytes(), &rest].concat());
            self.sent += 1;
        }
        packets
    }

    /// The quiet one says so much just when what the flood has sent is read. Answers whether it was
    /// written to in the same turn, before the flood was.
    fn is_answered_between(&mut self, flood: &[u8], payload: u8) -> bool {
        say(&mut self.thread, &mut self.flood, flood);
        // Nobody has looked yet. Units of 128 bytes.
        let rest = vec![7; 128 * usize::from(payload)];
        let message = [&[0x30, 0x83, payload, 0, 1, b'q'][..], &rest].concat();
        self.quiet.write_all(&message).unwrap();
        let mut turn = Turn::default();
        self.thread.read_clients(self.now, &mut turn);
        self.thread.write_clients(self.now, &mut Turn::default());
        if turn.writes == 0 {
            self.thread.wait(self.now).unwrap();
        }
        // Of the flood, what one read had no room for beside others.
        while self.thread.driver.sockets.has_ready() {
            self.thread.read_clients(self.now, &mut Turn::default());
            self.thread.write_clients(self.now, &mut Turn::default());
        }
        for (peer, expected) in [(&mut self.quiet, &message[..]), (&mut self.flood, flood)] {
            let mut found = vec![0; expected.len()];
            peer.read_exact(&mut found).unwrap();
            assert!(found == expected, "what it has said, in its order");
        }
        assert!(turn.writes <= 1, "the flood is written as one");
        turn.writes > 0
    }
}

#[test]
fn who_floods_lets_others_come_between() {
    let mut beside = beside_a_flood();
    let mut between = |size, payload, is_waiting| {
        beside.thread.coalescer = if is_waiting {
            coalesce::tests::waiting(0)
        } else {
            Coalescer::new(1)
        };
        // Two reads where others are about, and each brings much.
        let packets = beside.packets(size, 2 * READ_MUCH);
        assert_eq!(packets.len(), 2 * FLOOD_READ_BYTES);
        beside.is_answered_between(&packets, payload)
    };
    let (little, more) = (10, 100);
    assert!(128 * usize::from(more) > PIECE_BYTES);
    assert!(!between(256, little, false), "not known to flood yet");
    assert!(between(256, little, false));
    assert!(!between(256, little, true), "more is to gather");
    assert!(!between(256, more, false), "that is not all in one piece");
    assert!(between(2_048, little, false), "known by what came before");
    assert!(!between(256, little, false), "before were larger packets");
}

/// Whether a flood, which sends as much as two reads beside others bring, leaves some of it for the
/// next turn, where each of so many others says this.
fn spares(others: usize, says: &[u8], is_waiting: bool) -> bool {
    let mut beside = beside_a_flood();
    let mut peers = Vec::new();
    for _ in 0..others {
        let (arrival, peer) = arrival_and_peer(CONNECT.to_vec());
        let ShardThread { shard, driver, .. } = &mut beside.thread;
        open(shard, driver, beside.now, arrival);
        peers.push(peer);
    }
    let mut spared = false;
    for _ in 0..2 {
        // The first shows who floods, and who is about.
        if is_waiting {
            beside.thread.coalescer = coalesce::tests::waiting(0);
        }
        let packets = beside.packets(256, 2 * FLOOD_READ_BYTES);
        say(&mut beside.thread, &mut beside.flood, &packets);
        for peer in &mut peers {
            say(&mut beside.thread, peer, says);
        }
        let Beside { thread, now, .. } = &mut beside;
        thread.read_clients(*now, &mut Turn::default());
        spared = thread.driver.sockets.has_ready();
        thread.write_clients(*now, &mut Turn::default());
        while thread.driver.sockets.has_ready() {
            thread.read_clients(*now, &mut Turn::default());
            thread.write_clients(*now, &mut Turn::default());
        }
        let mut found = vec![0; packets.len()];
        beside.flood.read_exact(&mut found).unwrap();
        assert!(found == packets);
    }
    spared
}

#[test]
fn a_flood_spares_a_few_who_publish_while_nothing_is_gathered() {
    let (publish, ping) = (b"\x30\x03\x00\x01n", b"\xc0\x00");
    assert!(spares(1, publish, false));
    assert!(spares(READS_BEFORE_WRITE, publish, false));
    assert!(
        !spares(READS_BEFORE_WRITE + 1, publish, false),
        "the turn is long as it is"
    );
    assert!(!spares(1, publish, true), "more is to gather");
    assert!(!spares(1, ping, false), "nobody waits for that");
    assert!(!spares(0, ping, false), "nobody is about");
}

#[test]
fn what_a_flood_sends_behind_is_read_behind() {
    let mut beside = beside_a_flood();
    for (bytes, bytes_behind) in [(2 * READ_MUCH, 0), (READ_MUCH - 1, 1_000)] {
        let packets = beside.packets(200, bytes);
        // Much, and then not, with more behind it than the first read has room for.
        say(&mut beside.thread, &mut beside.flood, &packets);
        let behind = beside.packets(200, bytes_behind);
        beside.thread.buffer = vec![0; packets.len()].into_boxed_slice();
        beside.flood.write_all(&behind).unwrap();
        let Beside { thread, now, .. } = &mut beside;
        for _ in 0..2 {
            thread.wait(*now).unwrap();
            thread.read_clients(*now, &mut Turn::default());
        }
        thread.write_clients(*now, &mut Turn::default());
        let expected = [packets, behind].concat();
        let mut found = vec![0; expected.len()];
        beside.flood.read_exact(&mut found).unwrap();
        assert!(found == expected);
    }
}

#[test]
fn what_another_shard_has_sent_leaves_before_a_flood_is_read() {
    let mut beside = beside_a_flood();
    let quiet = ConnectionId {
        index: 1,
        serial: 2,
    };
    for (letters, writes) in [(0, 0), (0, 0), (1, 1)] {
        let much = beside.packets(200, READ_MUCH + 200);
        say(&mut beside.thread, &mut beside.flood, &much);
        let Beside { thread, now, .. } = &mut beside;
        // As a letter may: somebody who has said nothing is to have something.
        let bytes = b"\x30\x03\x00\x01q";
        let (shard, driver) = (&mut thread.shard, &mut thread.driver);
        let connection = quiet;
        input(shard, driver, *now, Input::Received { connection, bytes });
        let mut turn = Turn {
            letters,
            ..Turn::default()
        };
        thread.read_clients(*now, &mut turn);
        assert_eq!(turn.writes, writes);
        thread.write_clients(*now, &mut turn);
    }
}

#[test]
fn some_are_answered_while_others_are_read_where_nothing_is_gathered() {
    let mut thread = shard_thread(0, [None, None], [None, None]);
    thread.shard = Shard::new(options(0, 1));
    let now = Instant::now();
    let connect = b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x00\x00\x01";
    let rest = 3;
    let mut peers = Vec::new();
    for name in (b'a'..).take(READS_BEFORE_WRITE + rest) {
        let (arrival, peer) = arrival_and_peer([&connect[..], &[name]].concat());
        open(&mut thread.shard, &mut thread.driver, now, arrival);
        peers.push(peer);
    }
    thread.write_clients(now, &mut Turn::default());
    for (is_waiting, unanswered) in [(false, rest), (true, peers.len())] {
        if is_waiting {
            thread.coalescer = coalesce::tests::waiting(0);
        }
        for peer in &mut peers {
            say(&mut thread, peer, b"\xc0\x00");
        }
        thread.read_clients(now, &mut Turn::default());
        thread.shard.take_dirty(&mut thread.dirty, usize::MAX);
        assert_eq!(thread.dirty.len(), unanswered, "waiting: {is_waiting}");
        thread.write_clients(now, &mut Turn::default());
    }
}

/// What a turn writes to, that has read one.
const A_TURN: usize = WRITES_A_READ + WRITES_AHEAD;

/// Somebody who publishes, and so many receivers.
fn many_receivers(receivers: usize) -> (ShardThread, TcpStream, Vec<TcpStream>) {
    let mut thread = shard_thread(0, [None, None], [None, None]);
    thread.shard = Shard::new(options(0, 1));
    let subscribe = b"\x82\x06\x00\x01\x00\x01m\x00";
    let publisher = enter(&mut thread, b"");
    let receivers = (0..receivers).map(|_| enter(&mut thread, subscribe));
    let receivers = receivers.collect();
    // What it looks after from time to time.
    thread.time_out(Instant::now(), &mut Turn::default());
    (thread, publisher, receivers)
}

/// Connects somebody, who says this.
fn enter(thread: &mut ShardThread, says: &[u8]) -> TcpStream {
    let now = Instant::now();
    let (arrival, peer) = arrival_and_peer([CONNECT, says].concat());
    open(&mut thread.shard, &mut thread.driver, now, arrival);
    thread.write_clients(now, &mut Turn::default());
    peer
}

/// A message to all of them.
const TO_MANY: &[u8] = b"\x30\x03\x00\x01m";

/// Those that wait for something to be written.
fn waiting_for_it(thread: &ShardThread, receivers: usize) -> Vec<ConnectionId> {
    let ids = (1..=u32::try_from(receivers).unwrap()).map(|index| ConnectionId {
        index,
        serial: index + 1,
    });
    ids.filter(|id| !thread.shard.pending_output(*id).is_empty())
        .collect()
}

#[test]
fn between_writes_to_many_who_has_sent_more_is_read() {
    let more = 5;
    let (mut thread, mut publisher, mut receivers) = many_receivers(A_TURN + more);
    let now = Instant::now();
    let mut writes = Vec::new();
    let mut waited = Vec::new();
    for publishes in [true, true, false] {
        if publishes {
            say(&mut thread, &mut publisher, TO_MANY);
        }
        let mut turn = Turn::default();
        thread.read_clients(now, &mut turn);
        thread.write_some(now, &mut turn);
        writes.push(usize::try_from(turn.writes).unwrap());
        let waiting = waiting_for_it(&thread, receivers.len());
        assert!(waiting.iter().all(|id| !waited.contains(id)));
        assert!(thread.has_work(now) || waiting.is_empty());
        waited = waiting;
    }
    // Those who waited had both messages in one write.
    assert_eq!(writes, [A_TURN, A_TURN, more]);
    for peer in &mut receivers {
        let mut found = [0; 4 + 5 + 2 * TO_MANY.len()];
        peer.set_read_timeout(Some(LATER)).unwrap();
        peer.read_exact(&mut found).unwrap();
        assert!(found.ends_with(&TO_MANY.repeat(2)));
    }
}

#[test]
fn more_are_written_to_where_more_were_read_and_all_once_much_was() {
    let all = WRITES_AHEAD + 3 * WRITES_A_READ + 1;
    let (mut thread, mut publisher, _receivers) = many_receivers(all);
    let now = Instant::now();
    let (few, more) = (WRITES_AHEAD, WRITES_AHEAD + 3 * WRITES_A_READ);
    for (reads, letters, unwritten, writes) in [
        (0, 0, 0, few),
        (3, 0, 0, more),
        (2, 1, 0, more),
        (0, 0, READ_BEFORE_WRITE, all),
        (0, 0, READ_BEFORE_WRITE / 2, few),
        (0, 0, 0, few),
    ] {
        say(&mut thread, &mut publisher, TO_MANY);
        thread.read_clients(now, &mut Turn::default());
        thread.unwritten += unwritten;
        let mut turn = Turn {
            reads,
            letters,
            ..Turn::default()
        };
        thread.write_some(now, &mut turn);
        assert_eq!(turn.writes, writes as u64);
        assert_eq!(thread.unwritten == 0, writes == all);
        thread.write_clients(now, &mut turn);
        assert_eq!(thread.unwritten, 0);
    }
}

#[test]
fn what_is_held_for_the_end_of_a_flood_is_not_yet_written() {
    let (mut thread, mut publisher, receivers) = many_receivers(1);
    let now = Instant::now();
    say(&mut thread, &mut publisher, TO_MANY);
    thread.read_clients(now, &mut Turn::default());
    thread.held = waiting_for_it(&thread, receivers.len());
    thread.write_clients(now, &mut Turn::default());
    assert_eq!(thread.unwritten, TO_MANY.len());
}

#[test]
fn what_other_shards_send_counts_as_read() {
    let (mut thread, _publisher, _receivers) = many_receivers(0);
    let (mut to_first, from_second) = feed(4);
    thread.from_shards[1] = Some(from_second);
    let mut arrival = any_arrival(Vec::new());
    arrival.unread = vec![0; 100];
    let parcel = Parcel::Connection(Box::new(arrival));
    let bytes = parcel.bytes();
    to_first.push(parcel);
    to_first.flush();
    thread.take_parcels(Instant::now(), &mut Turn::default());
    assert_eq!(thread.unwritten as u64, bytes);
}

/// Two shards, of which the second has so many subscribers to `m`.
fn two_shards(subscribers: usize) -> ([ShardThread; 2], Vec<TcpStream>) {
    let now = Instant::now();
    let mut shards = linked_shards(64);
    let subscribe = b"\x82\x06\x00\x01\x00\x01m\x00";
    let peers = (0..subscribers).map(|_| enter(&mut shards[1], subscribe));
    let peers = peers.collect();
    hand_over(&mut shards, now);
    shards[1].write_clients(now, &mut Turn::default());
    (shards, peers)
}

#[test]
fn small_messages_take_more_of_a_feed_than_they_are_to_write() {
    let now = Instant::now();
    let (mut shards, _subscriber) = two_shards(1);
    let _publisher = enter(&mut shards[0], &TO_MANY.repeat(10));
    shards[0].driver.flush_feeds();
    let feed = shards[1].from_shards[0].as_mut().unwrap();
    let parcel = feed.try_recv().unwrap();
    assert!(parcel.cost() > 10_000, "{} of the feed", parcel.cost());
    assert!(parcel.bytes() < 1_000, "{} bytes", parcel.bytes());
    // In their order, for letters have numbers.
    let [first, second] = &mut shards;
    use_parcel(
        &mut second.shard,
        &mut second.driver,
        now,
        Some(ShardId(0)),
        parcel,
    );
    let _other = enter(first, TO_MANY);
    hand_over(&mut shards, now);
    assert!((1..100).contains(&shards[1].unwritten));
}

#[test]
fn of_what_other_shards_send_all_is_written_before_an_output_is_full() {
    let now = Instant::now();
    let (mut shards, mut subscriber) = two_shards(1);
    let mut limits = Limits::default();
    limits.output_bytes_max = 4_096;
    let ShardThread { shard, driver, .. } = &mut shards[1];
    input(shard, driver, now, Input::Reconfigured(Box::new(limits)));
    // Each in a letter of its own, and all of them there at once.
    let message = [&b"\x30\xeb\x07\x00\x01m"[..], &[0; 1_000]].concat();
    let _publishers: Vec<_> = (0..8).map(|_| enter(&mut shards[0], &message)).collect();
    shards[0].driver.flush_feeds();
    let mut turn = Turn::default();
    shards[1].take_mail(now, &mut turn);
    assert!(turn.letters >= 8);
    shards[1].write_clients(now, &mut turn);
    assert_eq!(shards[1].shard.stats().dropped_total(), 0);
    let mut found = vec![0; 4 + 5 + 8 * message.len()];
    subscriber[0].set_read_timeout(Some(LATER)).unwrap();
    subscriber[0].read_exact(&mut found).unwrap();
}

#[test]
fn all_are_written_to_before_who_brings_much_is_read() {
    let (mut thread, mut publisher, receivers) = many_receivers(A_TURN + 5);
    let now = Instant::now();
    let much = [b"\x30\x83\x80\x01\x00\x01f", &[0; READ_MUCH][..]].concat();
    let mut flood = enter(&mut thread, b"");
    say(&mut thread, &mut flood, &much);
    thread.read_clients(now, &mut Turn::default());
    thread.write_clients(now, &mut Turn::default());
    say(&mut thread, &mut publisher, TO_MANY);
    say(&mut thread, &mut flood, &much);
    let mut turn = Turn::default();
    thread.read_clients(now, &mut turn);
    assert_eq!(turn.writes, receivers.len() as u64);
}

#[test]
fn all_are_written_to_at_the_end_of_a_turn_in_which_somebody_brought_much() {
    for brought_much in [false, true] {
        let (mut thread, mut publisher, receivers) = many_receivers(A_TURN + 5);
        let now = Instant::now();
        say(&mut thread, &mut publisher, TO_MANY);
        let mut turn = Turn::default();
        assert!(!thread.read_clients(now, &mut turn));
        thread.take_late_news(now, brought_much, &mut turn);
        assert_eq!(turn.writes == receivers.len() as u64, brought_much);
    }
}

#[test]
fn who_has_more_than_one_write_takes_comes_behind_all_others() {
    let (mut thread, mut publisher, receivers) = many_receivers(3);
    say(&mut thread, &mut publisher, TO_MANY);
    thread.read_clients(Instant::now(), &mut Turn::default());
    let (mut first, mut all) = (Vec::new(), Vec::new());
    thread.shard.take_dirty(&mut first, 1);
    thread.shard.write_later(first[0]);
    thread.shard.take_dirty(&mut all, usize::MAX);
    assert_eq!(all.len(), receivers.len());
    assert_eq!(all.last(), first.first());
}

#[test]
fn nobody_counts_as_slow_whose_turn_has_not_come() {
    for (messages, all_are_written_to) in [(1, false), (2, true)] {
        let (mut thread, mut publisher, receivers) = many_receivers(A_TURN + 5);
        let now = Instant::now();
        let mut limits = Limits::default();
        limits.output_bytes_max = u32::try_from(UNWRITTEN_PARTS * 2 * TO_MANY.len()).unwrap();
        let (shard, driver) = (&mut thread.shard, &mut thread.driver);
        input(shard, driver, now, Input::Reconfigured(Box::new(limits)));
        say(&mut thread, &mut publisher, &TO_MANY.repeat(messages));
        let mut turn = Turn::default();
        thread.read_clients(now, &mut turn);
        thread.write_some(now, &mut turn);
        let is_all = turn.writes == receivers.len() as u64;
        assert_eq!(is_all, all_are_written_to);
    }
}

#[test]
fn a_share_finds_outputs_as_empty_as_they_can_be() {
    let mut thread = shard_thread(0, [None, None], [None, None]);
    let mut options = options(0, 1);
    options.settings.at_once = 1;
    options.limits.output_bytes_max = 32 * 1024;
    thread.shard = Shard::new(options);
    let subscribe = b"\x82\x06\x00\x01\x00\x01c\x00\x82\x06\x00\x02\x00\x01d\x00";
    let _both = [
        enter(&mut thread, subscribe),
        enter(&mut thread, &subscribe[..8]),
    ];
    // More than an output takes before it is full, to one and to both.
    let payload = vec![0; 40_960];
    let message = |topic| [&b"\x30\x83\xc0\x02\x00\x01"[..], topic, &payload].concat();
    let now = Instant::now();
    for bytes in [message(b"d"), message(b"c")] {
        let (arrival, _peer) = arrival_and_peer([CONNECT, &bytes].concat());
        open(&mut thread.shard, &mut thread.driver, now, arrival);
    }
    assert!(thread.shard.has_dirty());
    let mut turn = Turn::default();
    for times in 0..4 {
        thread.time_out(now + times * LATER, &mut turn);
    }
    assert_eq!(thread.shard.stats().dropped_total(), 0);
    assert!(turn.writes >= 3);
}

#[test]
fn a_share_of_a_message_to_a_crowd_leaves_before_anything_else_is_read() {
    let mut thread = shard_thread(0, [None, None], [None, None]);
    let mut options = options(0, 1);
    options.settings.at_once = 1;
    thread.shard = Shard::new(options);
    let now = Instant::now();
    let connect = |name| [&b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x00\x00\x01"[..], name].concat();
    let subscribe = b"\x82\x06\x00\x01\x00\x01c\x00";
    let publish = b"\x30\x03\x00\x01c";
    let _peers =
        [(b"a", &subscribe[..]), (b"b", subscribe), (b"p", publish)].map(|(name, packet)| {
            let (arrival, peer) = arrival_and_peer([&connect(name), packet].concat());
            open(&mut thread.shard, &mut thread.driver, now, arrival);
            thread.write_clients(now, &mut Turn::default());
            peer
        });
    for times in 1..=2 {
        let mut turn = Turn::default();
        thread.time_out(now + times * LATER, &mut turn);
        assert_eq!(turn.writes, 1);
    }
}

/// Those whose CONNACK waits for the disk, because their sessions stay.
fn sleepers(count: usize) -> (ShardThread, tempfile::TempDir, Vec<TcpStream>) {
    let temp = tempfile::tempdir().unwrap();
    let (disk, from_disk) = started(temp.path());
    let mut thread = shard_thread(0, [None, None], [None, None]);
    let mut options = options(0, 1);
    options.settings.durable = true;
    thread.shard = Shard::new(options);
    thread.from_others.push(from_disk);
    thread.driver.desk = disk.desk(ShardId(0));
    let now = Instant::now();
    let connect = b"\x10\x0d\x00\x04MQTT\x04\x00\x00\x00\x00\x01";
    let peers = (b'A'..).take(count).map(|name| {
        let (arrival, peer) = arrival_and_peer([&connect[..], &[name]].concat());
        open(&mut thread.shard, &mut thread.driver, now, arrival);
        peer
    });
    let peers = peers.collect();
    let mut turn = Turn::default();
    thread.write_clients(now, &mut turn);
    assert_eq!(turn.writes, 0);
    thread.driver.submit_all();
    (thread, temp, peers)
}

#[test]
fn what_waited_for_the_disk_leaves_when_its_answer_is_taken() {
    let answers: [fn(&mut ShardThread, Instant, &mut Turn); 2] =
        [ShardThread::take_mail, |thread, now, turn| {
            thread.take_late_news(now, false, turn);
        }];
    for take in answers {
        let (mut thread, _temp, peers) = sleepers(A_TURN + 5);
        let mut turn = Turn::default();
        while thread.driver.waits_for_disk() {
            assert_eq!(turn.writes, 0);
            take(&mut thread, Instant::now(), &mut turn);
            thread::yield_now();
        }
        assert_eq!(turn.writes, peers.len() as u64);
    }
}

#[test]
fn a_client_is_silent_once_all_that_it_may_have_sent_was_read() {
    let mut thread = shard_thread(0, [None, None], [None, None]);
    let now = Instant::now();
    // With a keep alive of one second.
    let anybody = b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x01\x00\x00";
    let arrival = any_arrival(anybody.to_vec());
    open(&mut thread.shard, &mut thread.driver, now, arrival);
    let connected = |thread: &ShardThread| thread.shard.stats().clients_connected;
    // The thread stood still: nobody has asked the kernel since.
    thread.time_out(now + 5 * LATER, &mut Turn::default());
    assert_eq!(connected(&thread), 1);
    thread.hearing.polled(now + 5 * LATER, 0, 1, 0);
    thread.time_out(now + 6 * LATER, &mut Turn::default());
    assert_eq!(connected(&thread), 0);
}

/// Of somebody without a name.
const CONNECT: &[u8] = b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x00\x00\x00";

const LATER: Duration = Duration::from_secs(1);

/// Has a peer send bytes, and the thread see that they are there.
fn say(thread: &mut ShardThread, peer: &mut impl Write, bytes: &[u8]) {
    peer.write_all(bytes).unwrap();
    let before = thread.driver.sockets.to_take();
    while thread.driver.sockets.to_take() == before {
        thread.wait(Instant::now()).unwrap();
    }
}

/// Hands letters over until there are none.
fn hand_over(shards: &mut [ShardThread; 2], now: Instant) {
    for _ in 0..4 {
        for thread in &mut *shards {
            thread.take_parcels(now, &mut Turn::default());
            thread.driver.flush_feeds();
        }
    }
}

/// Two, and a feed for so many letters from each to the other.
fn linked_shards(letters: u32) -> [ShardThread; 2] {
    let (to_second, from_first) = feed(letters);
    let (to_first, from_second) = feed(letters);
    [
        shard_thread(0, [None, Some(from_second)], [None, Some(to_second)]),
        shard_thread(1, [Some(from_first), None], [Some(to_first), None]),
    ]
}

fn shard_thread(
    id: u8,
    from_shards: [Option<Incoming>; 2],
    to_shards: [Option<Outgoing>; 2],
) -> ShardThread {
    let poll = Poll::new().unwrap();
    let bell = Doorbell::new(poll.registry(), BELL).unwrap();
    let (mut askers, _verifier) = authenticator(vec![outside_feed().0]);
    let anybody = Door {
        allow_anonymous: true,
        passwords: None,
    };
    ShardThread::new(Parts {
        shard: Shard::new(options(id, 2)),
        poll,
        bell,
        from_shards: from_shards.into(),
        to_shards: to_shards.into(),
        from_others: Vec::new(),
        acceptor: None,
        authenticator: askers.remove(0),
        doors: Arc::new(Doors(vec![anybody])),
        desk: None,
    })
    .unwrap()
}

pub(crate) fn options(id: u8, shards: u8) -> ShardOptions {
    ShardOptions {
        id: ShardId(id),
        shards,
        limits: Limits::default(),
        settings: Settings::default(),
        totals: Arc::new(Totals::default()),
        seed: 0,
        start: Instant::now(),
    }
}
