//! A shard thread turn by turn.

mod transforms;

use super::*;
use crate::authenticator::{AuthSources, ListenerAuth, authenticator};
use crate::channel::{ShardSender, event_channel, shard_channel};
use crate::disk::tests::started;
use crate::listener::tests::{any_incoming, incoming_and_peer};
use crate::tuning::READ_QUANTUM;
use std::io::{Read, Write};
use std::net::TcpStream;
use unbroken_broker_core::{Limits, Settings, ShardOptions, Totals};

#[test]
fn a_message_for_an_ended_shard_is_counted_under_a_drop_reason() {
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
        open(shard, driver, now, any_incoming(bytes));
        if number == 1 {
            hand_over(&mut shards, now);
        }
    }
    for ShardThread { shard, driver, .. } in &mut shards {
        input(shard, driver, now, Input::Drain);
    }
    let dropped = |shards: &[ShardThread; 2]| shards[1].shard.stats().dropped_total();
    assert_eq!(dropped(&shards), 0, "the message was not handed over");
    exchange_final(&mut shards);
    assert_eq!(dropped(&shards), 1);
}

#[test]
fn channels_are_checked_once_one_of_them_has_notified() {
    let now = Instant::now();
    let (mut from_server, to_shard) = event_channel();
    let (mut to_first, from_second) = shard_channel(4);
    let mut first = shard_thread(0, [None, Some(from_second)], [None, None]);
    first.from_others.push(to_shard);
    assert!(!first.has_no_news(), "nobody has looked yet");
    assert!(!first.arm_channels());
    assert!(first.has_no_news());
    from_server.send(DriverEvent::Drain { until: now });
    assert!(!first.has_no_news());
    first.take_events(now, &mut Turn::default());
    assert_eq!(first.driver.drain_until, Some(now));
    assert!(!first.arm_channels());
    to_first.push(DriverEvent::Drain { until: now + LATER });
    to_first.flush();
    first.take_events(now, &mut Turn::default());
    assert_eq!(first.driver.drain_until, Some(now + LATER));
    assert!(!first.has_no_news(), "not before all are empty again");
}

#[test]
fn a_connection_that_sends_alone_lets_others_in_after_each_quantum() {
    let mut thread = shard_thread(0, [None, None], [None, None]);
    thread.shard = Shard::new(options(0, 1));
    let now = Instant::now();
    let subscribe = |topic: &[u8]| [b"\x82\x06\x00\x01\x00\x01", topic, b"\x00"].concat();
    let mut busy = enter(&mut thread, &subscribe(b"b"));
    let mut quiet = enter(&mut thread, &subscribe(b"q"));
    let message = [&b"\x30\x83\x01\x00\x01b"[..], &[0; 128]].concat();
    let much = message.repeat(5 * READ_QUANTUM / message.len());
    send_bytes(&mut thread, &mut busy, &much);
    // The loop has not looked since.
    quiet.set_nodelay(true).unwrap();
    quiet.write_all(b"\x30\x03\x00\x01q").unwrap();
    let mut turn = Turn::default();
    thread.read_clients(now, &mut turn);
    // A quantum, then a poll, then both.
    assert!((3..=4).contains(&turn.reads), "{turn:?}");
    assert!(thread.driver.sockets.has_ready(), "the busy one has more");
    thread.write_clients(now, &mut turn);
    let mut found = [0; 4 + 5 + 5];
    quiet.set_read_timeout(Some(LATER)).unwrap();
    quiet.read_exact(&mut found).unwrap();
    while thread.driver.sockets.has_ready() {
        thread.read_clients(now, &mut turn);
    }
    thread.write_clients(now, &mut turn);
    let mut found = vec![0; 9 + much.len()];
    busy.set_read_timeout(Some(LATER)).unwrap();
    busy.read_exact(&mut found).unwrap();
    assert!(found.ends_with(&much), "in the order in which it was sent");
}

#[test]
fn a_peer_that_has_sent_everything_gets_its_answers_before_it_is_closed() {
    let mut thread = shard_thread(0, [None, None], [None, None]);
    thread.shard = Shard::new(options(0, 1));
    let mut peer = enter(&mut thread, b"");
    peer.write_all(b"\xc0\x00").unwrap();
    peer.shutdown(std::net::Shutdown::Write).unwrap();
    while !thread.driver.sockets.is_empty() {
        thread.wait(Instant::now()).unwrap();
        thread.read_clients(Instant::now(), &mut Turn::default());
    }
    let mut found = Vec::new();
    peer.set_read_timeout(Some(LATER)).unwrap();
    peer.read_to_end(&mut found).unwrap();
    assert!(found.ends_with(b"\xd0\x00"), "{found:?}");
}

#[test]
fn a_turn_reads_so_many_connections_and_the_next_one_goes_on() {
    let mut thread = shard_thread(0, [None, None], [None, None]);
    thread.shard = Shard::new(options(0, 1));
    let now = Instant::now();
    let more = 5;
    let mut peers: Vec<_> = (0..TURN_READS + more)
        .map(|_| enter(&mut thread, b""))
        .collect();
    for peer in &mut peers {
        send_bytes(&mut thread, peer, b"\xc0\x00");
    }
    for expected in [TURN_READS, more, 0] {
        let mut turn = Turn::default();
        thread.read_clients(now, &mut turn);
        assert_eq!(turn.reads, expected as u64);
    }
}

/// A publisher, and so many receivers.
fn many_receivers(receivers: usize) -> (ShardThread, TcpStream, Vec<TcpStream>) {
    let mut thread = shard_thread(0, [None, None], [None, None]);
    thread.shard = Shard::new(options(0, 1));
    let subscribe = b"\x82\x06\x00\x01\x00\x01m\x00";
    let publisher = enter(&mut thread, b"");
    let receivers = (0..receivers).map(|_| enter(&mut thread, subscribe));
    let receivers = receivers.collect();
    // A timeout of the shard's own.
    thread.time_out(Instant::now(), &mut Turn::default());
    (thread, publisher, receivers)
}

/// Connects a client that sends these bytes.
fn enter(thread: &mut ShardThread, says: &[u8]) -> TcpStream {
    let now = Instant::now();
    let (incoming, peer) = incoming_and_peer([CONNECT, says].concat());
    open(&mut thread.shard, &mut thread.driver, now, incoming);
    thread.write_clients(now, &mut Turn::default());
    peer
}

/// A message to all of them.
const TO_MANY: &[u8] = b"\x30\x03\x00\x01m";

/// Connections with pending output.
fn waiting_for_it(thread: &ShardThread, receivers: usize) -> Vec<ConnectionId> {
    let ids = (1..=u32::try_from(receivers).unwrap()).map(|index| ConnectionId {
        index,
        serial: index + 1,
    });
    ids.filter(|id| !thread.shard.pending_output(*id).is_empty())
        .collect()
}

#[test]
fn clients_are_read_between_the_writes_of_a_large_fan_out() {
    let more = 5;
    let (mut thread, mut publisher, mut receivers) = many_receivers(TURN_WRITES + more);
    let now = Instant::now();
    let mut writes = Vec::new();
    let mut waited = Vec::new();
    for publishes in [true, true, false] {
        if publishes {
            send_bytes(&mut thread, &mut publisher, TO_MANY);
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
    assert_eq!(writes, [TURN_WRITES, TURN_WRITES, more]);
    for peer in &mut receivers {
        let mut found = [0; 4 + 5 + 2 * TO_MANY.len()];
        peer.set_read_timeout(Some(LATER)).unwrap();
        peer.read_exact(&mut found).unwrap();
        assert!(found.ends_with(&TO_MANY.repeat(2)));
    }
}

#[test]
fn all_are_written_to_once_much_was_read() {
    let all = TURN_WRITES + 1;
    let (mut thread, mut publisher, _receivers) = many_receivers(all);
    let now = Instant::now();
    for (unwritten, writes) in [
        (0, TURN_WRITES),
        (TURN_READ_BYTES / 2, TURN_WRITES),
        (TURN_READ_BYTES, all),
    ] {
        send_bytes(&mut thread, &mut publisher, TO_MANY);
        thread.read_clients(now, &mut Turn::default());
        thread.unwritten += unwritten;
        let mut turn = Turn::default();
        thread.write_some(now, &mut turn);
        assert_eq!(turn.writes, writes as u64);
        assert_eq!(thread.unwritten == 0, writes == all);
        thread.write_clients(now, &mut turn);
        assert_eq!(thread.unwritten, 0);
    }
}

#[test]
fn bytes_of_other_shards_count_as_read() {
    let (mut thread, _publisher, _receivers) = many_receivers(0);
    let (mut to_first, from_second) = shard_channel(4);
    thread.from_shards[1] = Some(from_second);
    let mut incoming = any_incoming(Vec::new());
    incoming.unread = vec![0; 100];
    let event = DriverEvent::Connection(Box::new(incoming));
    let bytes = event.bytes();
    to_first.push(event);
    to_first.flush();
    thread.take_events(Instant::now(), &mut Turn::default());
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
fn small_messages_cost_more_in_a_channel_than_their_bytes() {
    let now = Instant::now();
    let (mut shards, _subscriber) = two_shards(1);
    let _publisher = enter(&mut shards[0], &TO_MANY.repeat(10));
    shards[0].driver.flush_channels();
    let channel = shards[1].from_shards[0].as_mut().unwrap();
    let event = channel.try_recv().unwrap();
    assert!(event.cost() > 10_000, "{} of the feed", event.cost());
    assert!(event.bytes() < 1_000, "{} bytes", event.bytes());
    // In their order, because messages between shards are numbered.
    let [first, second] = &mut shards;
    handle_event(
        &mut second.shard,
        &mut second.driver,
        now,
        Some(ShardId(0)),
        event,
    );
    let _other = enter(first, TO_MANY);
    hand_over(&mut shards, now);
    assert!((1..100).contains(&shards[1].unwritten));
}

#[test]
fn messages_of_other_shards_are_written_before_an_output_is_full() {
    let now = Instant::now();
    let (mut shards, mut subscriber) = two_shards(1);
    let mut limits = Limits::default();
    limits.output_bytes_max = 4_096;
    let ShardThread { shard, driver, .. } = &mut shards[1];
    input(shard, driver, now, Input::Reconfigured(Box::new(limits)));
    // Each in a message of its own, and all of them there at once.
    let message = [&b"\x30\xeb\x07\x00\x01m"[..], &[0; 1_000]].concat();
    let _publishers: Vec<_> = (0..8).map(|_| enter(&mut shards[0], &message)).collect();
    shards[0].driver.flush_channels();
    let mut turn = Turn::default();
    shards[1].receive(now, &mut turn);
    assert!(turn.messages >= 8);
    shards[1].write_clients(now, &mut turn);
    assert_eq!(shards[1].shard.stats().dropped_total(), 0);
    let mut found = vec![0; 4 + 5 + 8 * message.len()];
    subscriber[0].set_read_timeout(Some(LATER)).unwrap();
    subscriber[0].read_exact(&mut found).unwrap();
}

#[test]
fn a_connection_with_more_than_one_write_goes_behind_the_others() {
    let (mut thread, mut publisher, receivers) = many_receivers(3);
    send_bytes(&mut thread, &mut publisher, TO_MANY);
    thread.read_clients(Instant::now(), &mut Turn::default());
    let (mut first, mut all) = (Vec::new(), Vec::new());
    thread.shard.take_dirty(&mut first, 1);
    thread.shard.write_later(first[0]);
    thread.shard.take_dirty(&mut all, usize::MAX);
    assert_eq!(all.len(), receivers.len());
    assert_eq!(all.last(), first.first());
}

#[test]
fn no_receiver_counts_as_slow_before_its_turn() {
    for (messages, all_are_written_to) in [(1, false), (2, true)] {
        let (mut thread, mut publisher, receivers) = many_receivers(TURN_WRITES + 5);
        let now = Instant::now();
        let mut limits = Limits::default();
        limits.output_bytes_max = u32::try_from(OUTPUT_PARTS * 2 * TO_MANY.len()).unwrap();
        let (shard, driver) = (&mut thread.shard, &mut thread.driver);
        input(shard, driver, now, Input::Reconfigured(Box::new(limits)));
        send_bytes(&mut thread, &mut publisher, &TO_MANY.repeat(messages));
        let mut turn = Turn::default();
        thread.read_clients(now, &mut turn);
        thread.write_some(now, &mut turn);
        let is_all = turn.writes == receivers.len() as u64;
        assert_eq!(is_all, all_are_written_to);
    }
}

#[test]
fn a_part_of_a_fan_out_finds_outputs_flushed() {
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
        let (incoming, _peer) = incoming_and_peer([CONNECT, &bytes].concat());
        open(&mut thread.shard, &mut thread.driver, now, incoming);
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
fn a_part_of_a_large_fan_out_is_written_before_the_next_read() {
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
            let (incoming, peer) = incoming_and_peer([&connect(name), packet].concat());
            open(&mut thread.shard, &mut thread.driver, now, incoming);
            thread.write_clients(now, &mut Turn::default());
            peer
        });
    for times in 1..=2 {
        let mut turn = Turn::default();
        thread.time_out(now + times * LATER, &mut turn);
        assert_eq!(turn.writes, 1);
    }
}

/// Clients whose CONNACK waits for the disk, because their sessions are persistent.
fn offline_sessions(count: usize) -> (ShardThread, tempfile::TempDir, Vec<TcpStream>) {
    let temp = tempfile::tempdir().unwrap();
    let (disk, from_disk) = started(temp.path());
    let mut thread = shard_thread(0, [None, None], [None, None]);
    let mut options = options(0, 1);
    options.settings.durable = true;
    thread.shard = Shard::new(options);
    thread.from_others.push(from_disk);
    thread.driver.store_handle = disk.store_handle(ShardId(0));
    let now = Instant::now();
    let connect = b"\x10\x0f\x00\x04MQTT\x04\x00\x00\x00\x00\x03";
    let peers = (0..count).map(|number| {
        let name = format!("{number:03}");
        let (incoming, peer) = incoming_and_peer([&connect[..], name.as_bytes()].concat());
        open(&mut thread.shard, &mut thread.driver, now, incoming);
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
fn output_held_for_the_disk_leaves_when_its_answer_is_taken() {
    let answers: [fn(&mut ShardThread, Instant, &mut Turn); 2] =
        [ShardThread::receive, ShardThread::receive_late];
    for take in answers {
        let (mut thread, _temp, peers) = offline_sessions(TURN_WRITES + 5);
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
    let incoming = any_incoming(anybody.to_vec());
    open(&mut thread.shard, &mut thread.driver, now, incoming);
    let connected = |thread: &ShardThread| thread.shard.stats().clients_connected;
    // The thread stood still: the kernel was not polled since.
    thread.time_out(now + 5 * LATER, &mut Turn::default());
    assert_eq!(connected(&thread), 1);
    thread.read_watermark.polled(now + 5 * LATER, 0, 1, 0);
    thread.time_out(now + 6 * LATER, &mut Turn::default());
    assert_eq!(connected(&thread), 0);
}

/// Without a client id.
const CONNECT: &[u8] = b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x00\x00\x00";

const LATER: Duration = Duration::from_secs(1);

/// Lets a peer send bytes, and waits until the thread sees them.
fn send_bytes(thread: &mut ShardThread, peer: &mut impl Write, bytes: &[u8]) {
    peer.write_all(bytes).unwrap();
    let before = thread.driver.sockets.to_read();
    while thread.driver.sockets.to_read() == before {
        thread.wait(Instant::now()).unwrap();
    }
}

/// Passes messages between shards until there are none.
fn hand_over(shards: &mut [ShardThread; 2], now: Instant) {
    for _ in 0..4 {
        for thread in &mut *shards {
            thread.take_events(now, &mut Turn::default());
            thread.driver.flush_channels();
        }
    }
}

/// Two shards, connected by channels for so many messages.
#[allow(clippy::large_stack_arrays, reason = "two of them, in a test")]
fn linked_shards(messages: u32) -> [ShardThread; 2] {
    let (to_second, from_first) = shard_channel(messages);
    let (to_first, from_second) = shard_channel(messages);
    [
        shard_thread(0, [None, Some(from_second)], [None, Some(to_second)]),
        shard_thread(1, [Some(from_first), None], [Some(to_first), None]),
    ]
}

fn shard_thread(
    id: u8,
    from_shards: [Option<EventReceiver>; 2],
    to_shards: [Option<ShardSender>; 2],
) -> ShardThread {
    let poll = Poll::new().unwrap();
    let thread_waker = ThreadWaker::new(poll.registry(), WAKER).unwrap();
    let (mut authenticators, _verifiers) =
        authenticator(vec![event_channel().0], [0; 32], 1, &Arc::default());
    let anybody = AuthSources {
        allow_anonymous: true,
        ..AuthSources::default()
    };
    let anybody = Arc::new(ListenerAuth::new("test".into(), anybody));
    ShardThread::new(Parts {
        shard: Shard::new(options(id, 2)),
        endpoints: Endpoints {
            id: ShardId(id),
            poll,
            thread_waker,
            from_shards: from_shards.into(),
            to_shards: to_shards.into(),
            from_others: Vec::new(),
        },
        acceptor: None,
        authenticator: authenticators.remove(0),
        doors: Arc::default(),
        auth_rules: Arc::new(AuthRules {
            listeners: vec![anybody],
            ..AuthRules::default()
        }),
        store_handle: None,
        is_batching_adaptive: true,
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
