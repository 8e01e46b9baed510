//! A client that only publishes, and to one other shard, is served there.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod shard_bus;

use std::sync::Arc;
use std::time::Duration;

use shard_bus::{Broker, Client, connect, join, publish, retained, subscribe, unsubscribe};
use unbroken_broker_core::{Event, Forget, Limits, Settings, Shard, Stats};
use unbroken_mqtt_proto::{
    Connect, Disconnect, Packet, Properties, Property, PropertyBuf, Publish, QoS, ReasonCode,
    Version, Will,
};

/// Messages in turn after which a client moves.
const AFTER: u32 = 4;

fn settings() -> Settings {
    let mut settings = Settings::default();
    settings.guest_after = AFTER;
    settings
}

/// A broker with a receiver of `t/#` on one shard, and a publisher that lives on another.
struct Pair {
    broker: Broker,
    receiver: Client,
    publisher: Client,
    /// Messages so far.
    sent: u32,
    home: usize,
    host: usize,
}

impl Pair {
    fn new(shards: u8) -> Self {
        Self::with(shards, settings(), &connect("publisher"))
    }

    fn with(shards: u8, settings: Settings, terms: &Connect<'_>) -> Self {
        let mut broker = Broker::with(shards, Limits::default(), settings);
        let publisher = broker.open(Version::V5);
        broker.send(publisher, Packet::Connect(*terms));
        broker.stored();
        broker.take(publisher);
        let home = broker.shard_of(publisher);
        let receiver = join_at(&mut broker, "r", |shard| shard != home);
        let host = broker.shard_of(receiver);
        subscribe(&mut broker, receiver, "t/#", QoS::AtLeastOnce);
        broker.take(receiver);
        Self {
            broker,
            receiver,
            publisher,
            sent: 0,
            home,
            host,
        }
    }

    /// The same, when the publisher has moved.
    fn moved(shards: u8) -> Self {
        let mut pair = Self::new(shards);
        pair.publish(AFTER);
        pair.assert_abroad();
        pair
    }

    fn publish(&mut self, messages: u32) {
        for _ in 0..messages {
            let text = self.sent.to_string();
            let packet = publish("t/a", &text, QoS::AtMostOnce, 0);
            self.broker.send(self.publisher, packet);
            self.sent += 1;
        }
    }

    fn assert_abroad(&self) {
        assert_eq!(self.broker.shard_of(self.publisher), self.host);
    }

    fn assert_home(&self) {
        assert_eq!(self.broker.shard_of(self.publisher), self.home);
    }

    /// All that was published so far has arrived, once and in order; and nothing else.
    fn assert_received(&mut self) {
        let expected: Vec<_> = (0..self.sent).map(|n| n.to_string().into_bytes()).collect();
        assert_eq!(self.broker.take_payloads(self.receiver), expected);
        let stats = self.broker.shards.iter().map(Shard::stats);
        let received: u64 = stats.map(|stats| stats.publishes_received).sum();
        assert_eq!(received, u64::from(self.sent), "each is counted once");
    }

    fn stat(&self, of: impl Fn(&Stats) -> u64) -> u64 {
        self.broker
            .shards
            .iter()
            .map(|shard| of(shard.stats()))
            .sum()
    }
}

/// A client on such a shard.
fn join_at(broker: &mut Broker, prefix: &str, fits: impl Fn(usize) -> bool) -> Client {
    for n in 0..100 {
        let client = join(broker, &format!("{prefix}{n}"));
        if fits(broker.shard_of(client)) {
            return client;
        }
    }
    panic!("of a hundred clients none falls to such a shard");
}

fn publish_all(broker: &mut Broker, publishers: &[Client]) {
    for _ in 0..20 * AFTER {
        for &publisher in publishers {
            broker.send(publisher, publish("t/a", "", QoS::AtMostOnce, 0));
        }
    }
}

#[test]
fn a_client_that_publishes_to_one_other_shard_moves_there() {
    for shards in [2, 3, 8] {
        let mut pair = Pair::new(shards);
        pair.publish(AFTER - 1);
        pair.assert_home();
        pair.publish(1);
        pair.assert_abroad();
        let letters = |pair: &Pair| pair.stat(|stats| stats.publishes_received);
        assert_eq!(letters(&pair), u64::from(AFTER));
        pair.broker.hold_mail = true;
        pair.publish(5);
        assert!(
            !pair.broker.deliver_letter(),
            "what it publishes now crosses nowhere"
        );
        pair.assert_received();
        assert_eq!(pair.stat(|stats| stats.connections_moved), 1);
    }
}

#[test]
fn who_asks_for_no_moves_has_none() {
    let mut settings = settings();
    settings.guest_after = 0;
    let mut pair = Pair::with(2, settings, &connect("publisher"));
    pair.publish(1_000);
    pair.assert_home();
    pair.assert_received();
}

#[test]
fn a_guest_counts_as_one_client_and_one_session() {
    let mut pair = Pair::moved(3);
    let connected = pair.stat(|stats| stats.clients_connected);
    assert_eq!(pair.stat(|stats| stats.clients_disconnected), 0);
    pair.broker.cut(pair.publisher);
    assert_eq!(pair.stat(|stats| stats.clients_connected), connected - 1);
    assert_eq!(pair.stat(|stats| stats.clients_disconnected), 0);
}

/// Nothing that was written for it before is overtaken, however late that is.
#[test]
fn it_moves_when_every_shard_has_what_it_published_before() {
    let mut pair = Pair::new(3);
    pair.broker.hold_mail = true;
    pair.publish(AFTER + 2);
    pair.assert_home();
    assert!(!pair.broker.wants_input(pair.publisher), "it waits");
    while pair.broker.deliver_letter() {}
    pair.assert_abroad();
    pair.broker.hold_mail = false;
    pair.publish(1);
    pair.assert_received();
}

#[test]
fn whoever_else_wants_its_messages_keeps_it_at_home() {
    for receiver_is_home in [true, false] {
        let mut pair = Pair::new(8);
        let (home, host) = (pair.home, pair.host);
        let other = join_at(&mut pair.broker, "o", |shard| {
            (shard == home) == receiver_is_home && shard != host
        });
        subscribe(&mut pair.broker, other, "t/a", QoS::AtMostOnce);
        pair.publish(3 * AFTER);
        pair.assert_home();
        pair.assert_received();
    }
}

/// Whatever a guest says but to publish at QoS 0 it says at home, and the answer comes from there.
#[test]
fn whatever_else_it_says_it_says_at_home() {
    let says = [
        (publish("t/q", "q", QoS::AtLeastOnce, 7), "PUBACK #7 00"),
        (publish("t/q", "q", QoS::ExactlyOnce, 7), "PUBREC #7 00"),
        (retained("t/kept", "k", QoS::AtMostOnce, 0), ""),
    ];
    for (packet, answer) in says {
        for shards in [2, 3] {
            let mut pair = Pair::moved(shards);
            pair.broker.take(pair.receiver);
            pair.broker.send(pair.publisher, packet);
            pair.assert_home();
            assert_eq!(pair.broker.take(pair.publisher).concat(), answer);
            assert_eq!(pair.broker.take_payloads(pair.receiver).len(), 1);
        }
    }
}

#[test]
fn it_is_answered_where_it_is_when_it_asks_whether_anybody_is_there() {
    let mut pair = Pair::moved(2);
    pair.broker.send(pair.publisher, Packet::PingReq);
    assert_eq!(pair.broker.take(pair.publisher), ["PINGRESP"]);
    pair.assert_abroad();
}

fn with_property<'a>(topic: &'a str, properties: &'a PropertyBuf) -> Packet<'a> {
    let Packet::Publish(packet) = publish(topic, "x", QoS::AtMostOnce, 0) else {
        unreachable!()
    };
    Packet::Publish(Publish {
        properties: properties.as_properties(),
        ..packet
    })
}

#[test]
fn its_topic_aliases_go_with_it() {
    let mut pair = Pair::new(3);
    let mut alias = PropertyBuf::new();
    alias.push(Property::TopicAlias(1)).unwrap();
    pair.broker
        .send(pair.publisher, with_property("t/a", &alias));
    for _ in 0..2 * AFTER {
        pair.broker.send(pair.publisher, with_property("", &alias));
    }
    pair.assert_abroad();
    let got = pair.broker.take_publishes(pair.receiver);
    assert_eq!(got.len(), 2 * AFTER as usize + 1);
    assert!(got.iter().all(|message| message.topic == "t/a"));
}

/// The ledger of a lane that its publisher stamps is at home.
#[test]
fn a_message_that_bears_a_stamp_is_judged_at_home() {
    let mut pair = Pair::moved(2);
    let mut stamp = PropertyBuf::new();
    stamp
        .push(Property::UserProperty("audit", "of something else"))
        .unwrap();
    pair.broker
        .send(pair.publisher, with_property("t/a", &stamp));
    pair.assert_home();
    let received = pair.stat(|stats| stats.publishes_received);
    assert_eq!(received, u64::from(AFTER) + 1);
    assert_eq!(pair.stat(|stats| stats.audit.publishers.injected), 1);
}

#[test]
fn it_subscribes_at_home_and_gets_what_it_subscribed_to() {
    let mut pair = Pair::moved(3);
    subscribe(&mut pair.broker, pair.publisher, "t/#", QoS::AtMostOnce);
    pair.assert_home();
    assert_eq!(pair.broker.take(pair.publisher), ["SUBACK #1 [00]"]);
    pair.publish(2 * AFTER);
    pair.assert_home();
    let own = pair.broker.take_payloads(pair.publisher).len();
    assert_eq!(own, 2 * AFTER as usize);
    unsubscribe(&mut pair.broker, pair.publisher, "t/#");
    pair.publish(2 * AFTER);
    pair.assert_abroad();
    pair.assert_received();
}

#[test]
fn it_stays_longer_each_time() {
    let mut pair = Pair::moved(2);
    for moves in 1..4 {
        let packet = publish("t/a", "", QoS::AtLeastOnce, 1);
        pair.broker.send(pair.publisher, packet);
        pair.assert_home();
        pair.publish((AFTER << moves) - 1);
        pair.assert_home();
        pair.publish(1);
        pair.assert_abroad();
    }
}

/// Its receivers have gone elsewhere.
#[test]
fn who_has_nobody_left_there_goes_home() {
    let mut pair = Pair::moved(2);
    unsubscribe(&mut pair.broker, pair.receiver, "t/#");
    let home = pair.home;
    let other = join_at(&mut pair.broker, "o", |shard| shard == home);
    subscribe(&mut pair.broker, other, "t/#", QoS::AtMostOnce);
    pair.broker.take(other);
    pair.publish(4 * AFTER);
    pair.assert_home();
    assert_eq!(
        pair.broker.take_payloads(other).len(),
        4 * AFTER as usize,
        "wherever it is"
    );
}

fn with_will(properties: Properties<'_>) -> Connect<'_> {
    Connect {
        will: Some(Will {
            qos: QoS::AtMostOnce,
            retain: false,
            topic: "t/will",
            payload: b"gone",
            properties,
        }),
        ..connect("publisher")
    }
}

#[test]
fn its_will_follows_what_it_has_published() {
    for shards in [2, 3, 8] {
        let mut pair = Pair::with(shards, settings(), &with_will(Properties::EMPTY));
        pair.publish(AFTER + 3);
        pair.assert_abroad();
        pair.broker.hold_mail = true;
        pair.broker.cut(pair.publisher);
        while pair.broker.deliver_letter() {}
        let got = pair.broker.take_payloads(pair.receiver);
        assert_eq!(got.last().unwrap(), b"gone");
        assert_eq!(got.len(), AFTER as usize + 4);
        let is_end = |event: &&Event| matches!(event, Event::SessionEnded { .. });
        assert_eq!(pair.broker.events.iter().filter(is_end).count(), 1);
    }
}

#[test]
fn who_says_goodbye_there_has_no_will() {
    let mut pair = Pair::with(3, settings(), &with_will(Properties::EMPTY));
    pair.publish(AFTER);
    pair.assert_abroad();
    let goodbye = Disconnect {
        reason: ReasonCode::Success,
        properties: Properties::EMPTY,
    };
    pair.broker
        .send(pair.publisher, Packet::Disconnect(goodbye));
    assert!(!pair.broker.is_open(pair.publisher));
    pair.assert_received();
}

#[test]
fn who_connects_again_takes_over_from_a_guest() {
    for shards in [2, 3] {
        let mut pair = Pair::moved(shards);
        let again = pair.broker.open(Version::V5);
        pair.broker.hold_mail = true;
        let packet = Packet::Connect(connect("publisher"));
        pair.broker.send(again, packet);
        assert!(pair.broker.is_open(pair.publisher), "nobody knows yet");
        assert_eq!(pair.broker.take(again), Vec::<String>::new());
        pair.broker.hold_mail = false;
        pair.broker.deliver_mail();
        pair.broker.advance(Duration::from_nanos(1));
        assert_eq!(pair.broker.take(again), ["CONNACK 0 00"]);
        assert_eq!(pair.broker.take(pair.publisher), ["DISCONNECT 8e"]);
        assert!(!pair.broker.is_open(pair.publisher));
        pair.publisher = again;
        pair.publish(AFTER);
        pair.assert_abroad();
        pair.assert_received();
    }
}

/// Its connection has ended, and its home has not heard of it.
#[test]
fn who_connects_again_waits_until_the_guest_has_gone() {
    let mut pair = Pair::moved(3);
    pair.broker.hold_mail = true;
    pair.broker.cut(pair.publisher);
    let again = pair.broker.open(Version::V5);
    pair.broker
        .send(again, Packet::Connect(connect("publisher")));
    assert_eq!(pair.broker.take(again), Vec::<String>::new());
    pair.broker.hold_mail = false;
    pair.broker.deliver_mail();
    pair.broker.advance(Duration::from_nanos(1));
    assert_eq!(pair.broker.take(again), ["CONNACK 0 00"]);
}

#[test]
fn an_operator_removes_the_session_of_a_guest() {
    let mut pair = Pair::moved(2);
    let client_id = Arc::from("publisher");
    pair.broker.forget(&Forget::Session { client_id });
    pair.broker.advance(Duration::from_nanos(1));
    assert_eq!(pair.broker.take(pair.publisher), ["DISCONNECT 98"]);
}

/// Of ten seconds, so that it is over after fifteen.
fn with_keep_alive() -> Connect<'static> {
    Connect {
        keep_alive: 10,
        ..connect("publisher")
    }
}

#[test]
fn a_guest_that_says_nothing_is_cut_off_in_its_time() {
    let terms = with_keep_alive();
    let mut pair = Pair::with(3, settings(), &terms);
    pair.publish(AFTER);
    pair.assert_abroad();
    pair.broker.advance(Duration::from_millis(14_900));
    assert!(pair.broker.is_open(pair.publisher));
    pair.broker.advance(Duration::from_millis(200));
    assert_eq!(pair.broker.take(pair.publisher), ["DISCONNECT 8d"]);
    let ended = pair.broker.events.iter().any(|event| {
        matches!(event, Event::Disconnected { client_id, .. } if &**client_id == "publisher")
    });
    assert!(ended, "its home says so");
}

/// All that publish to one receiver would else be at one shard.
#[test]
fn a_receiver_of_all_draws_a_part_of_them() {
    let mut pair = Pair::new(2);
    let mut publishers: Vec<_> = (0..200)
        .map(|n| join(&mut pair.broker, &format!("p{n}")))
        .collect();
    publishers.retain(|client| pair.broker.shard_of(*client) == pair.home);
    publish_all(&mut pair.broker, &publishers);
    let abroad = |pair: &Pair| {
        let is_there = |client: &&Client| pair.broker.shard_of(**client) == pair.host;
        publishers.iter().filter(is_there).count()
    };
    let most = abroad(&pair);
    assert!((16..=40).contains(&most), "{most} of {}", publishers.len());
    // For each that leaves another may come.
    let gone = publishers
        .iter()
        .find(|client| pair.broker.shard_of(**client) == pair.host);
    pair.broker.cut(*gone.unwrap());
    publish_all(&mut pair.broker, &publishers);
    assert!(abroad(&pair) >= most, "its place is taken again");
}

/// News of its messages arrives at its home, so a lane that is watched stays there.
#[test]
fn who_is_watched_is_at_home() {
    let mut pair = Pair::moved(2);
    let lane = {
        let asker = join(&mut pair.broker, "asker");
        let filter = "$audit/client/publisher";
        subscribe(&mut pair.broker, asker, filter, QoS::AtMostOnce);
        let told = pair.broker.take_payloads(asker).remove(0);
        let told = String::from_utf8(told).unwrap();
        let (_, rest) = told.split_once("\"lane\":\"").unwrap();
        rest.split_once('"').unwrap().0.to_owned()
    };
    let watcher = join(&mut pair.broker, "watcher");
    let filter = format!("$audit/{lane}/receipt");
    subscribe(&mut pair.broker, watcher, &filter, QoS::AtMostOnce);
    pair.broker.take(watcher);
    pair.publish(3 * AFTER);
    pair.assert_home();
    let receipts = pair.broker.take_payloads(watcher);
    assert_eq!(
        receipts.len(),
        3 * AFTER as usize,
        "one for each from then on"
    );
    let other = format!("$audit/{}/receipt", "0".repeat(lane.len()));
    unsubscribe(&mut pair.broker, watcher, &filter);
    subscribe(&mut pair.broker, watcher, &other, QoS::AtMostOnce);
    pair.publish(3 * AFTER);
    pair.assert_received();
}

#[test]
fn a_session_on_disk_keeps_its_publisher() {
    let mut settings = settings();
    settings.durable = true;
    let mut properties = PropertyBuf::new();
    properties
        .push(Property::SessionExpiryInterval(100))
        .unwrap();
    let terms = Connect {
        properties: properties.as_properties(),
        ..connect("publisher")
    };
    let mut pair = Pair::with(2, settings, &terms);
    pair.publish(10 * AFTER);
    pair.assert_home();
}

#[test]
fn the_broker_stops_while_a_guest_is_there() {
    for shards in [2, 3] {
        let mut pair = Pair::with(shards, settings(), &with_will(Properties::EMPTY));
        pair.publish(AFTER);
        pair.assert_abroad();
        pair.broker.drain();
        assert_eq!(pair.broker.take(pair.publisher), [""; 0]);
        assert!(!pair.broker.is_open(pair.publisher));
        assert_eq!(pair.stat(|stats| stats.clients_connected), 0);
        for shard in &pair.broker.shards {
            assert_eq!(shard.audit_imbalance(), 0);
        }
    }
}

/// What is on its way to very many where it was does not keep it from being read where it is.
#[test]
fn a_guest_that_waited_for_a_message_to_very_many_is_read_at_home() {
    let mut settings = settings();
    settings.at_once = 1;
    let mut pair = Pair::with(2, settings, &connect("publisher"));
    for prefix in ["a", "b"] {
        let host = pair.host;
        let more = join_at(&mut pair.broker, prefix, |shard| shard == host);
        subscribe(&mut pair.broker, more, "t/#", QoS::AtMostOnce);
    }
    pair.publish(AFTER);
    pair.assert_abroad();
    pair.publish(16);
    assert!(
        !pair.broker.wants_input(pair.publisher),
        "much is on its way"
    );
    pair.broker.hold_mail = true;
    let again = pair.broker.open(Version::V5);
    pair.broker
        .send(again, Packet::Connect(connect("publisher")));
    pair.broker.cut(again);
    while pair.broker.deliver_letter() {}
    pair.broker.hold_mail = false;
    pair.broker.deliver_mail();
    pair.assert_home();
    pair.broker.advance(Duration::from_secs(1));
    assert!(pair.broker.is_open(pair.publisher), "nobody came");
    assert!(pair.broker.wants_input(pair.publisher));
}

#[test]
fn nobody_is_cut_off_for_being_silent_who_is_not_read() {
    let terms = with_keep_alive();
    let mut pair = Pair::with(2, settings(), &terms);
    pair.broker.hold_mail = true;
    pair.publish(AFTER);
    for _ in 0..3 {
        pair.broker.advance(Duration::from_secs(8));
        assert!(pair.broker.is_open(pair.publisher));
    }
    pair.broker.hold_mail = false;
    pair.broker.deliver_mail();
    pair.assert_abroad();
    pair.broker.advance(Duration::from_secs(14));
    assert!(pair.broker.is_open(pair.publisher), "it has its time anew");
}

/// Its client has said all that, and is back.
#[test]
fn what_a_connection_that_was_about_to_leave_has_sent_is_taken_in_before_the_next_is_let_in() {
    let mut pair = Pair::with(3, settings(), &with_will(Properties::EMPTY));
    pair.broker.hold_mail = true;
    pair.publish(AFTER + 5);
    let goodbye = Disconnect {
        reason: ReasonCode::Success,
        properties: Properties::EMPTY,
    };
    pair.broker
        .send(pair.publisher, Packet::Disconnect(goodbye));
    pair.assert_home();
    assert!(pair.broker.is_open(pair.publisher), "it is about to leave");
    let again = pair.broker.open(Version::V5);
    pair.broker
        .send(again, Packet::Connect(connect("publisher")));
    pair.broker.advance(Duration::from_nanos(1));
    pair.broker.hold_mail = false;
    pair.broker.deliver_mail();
    assert_eq!(pair.broker.take(again), ["CONNACK 0 00"]);
    assert_eq!(pair.broker.take(pair.publisher), Vec::<String>::new());
    pair.assert_received();
}

#[test]
fn a_wrong_password_calls_no_guest_home() {
    let mut pair = Pair::moved(2);
    pair.broker.hold_admissions = true;
    let stranger = pair.broker.open(Version::V5);
    pair.broker
        .send(stranger, Packet::Connect(connect("publisher")));
    pair.broker.refuse();
    assert_eq!(pair.broker.take(stranger), ["CONNACK 0 86"]);
    pair.assert_abroad();
}

#[test]
fn the_account_of_a_guest_says_that_its_client_is_connected() {
    let mut pair = Pair::moved(2);
    let asker = join(&mut pair.broker, "asker");
    let filter = "$audit/account/publisher";
    subscribe(&mut pair.broker, asker, filter, QoS::AtMostOnce);
    pair.broker.take(asker);
    pair.broker.advance(Duration::from_secs(1));
    let told = pair.broker.take_payloads(asker).remove(0);
    let told = String::from_utf8(told).unwrap();
    assert!(told.contains("\"connected\":true"), "{told}");
}

#[test]
fn who_connects_while_another_waits_for_the_guest_comes_behind_it() {
    let mut pair = Pair::moved(2);
    pair.broker.hold_mail = true;
    let first = pair.broker.open(Version::V5);
    pair.broker
        .send(first, Packet::Connect(connect("publisher")));
    pair.broker.hold_mail = false;
    pair.broker.deliver_mail();
    pair.assert_home();
    let second = pair.broker.open(Version::V5);
    pair.broker
        .send(second, Packet::Connect(connect("publisher")));
    for _ in 0..2 {
        pair.broker.advance(Duration::from_nanos(1));
    }
    assert_eq!(
        pair.broker.take(first),
        ["CONNACK 0 00", "DISCONNECT 8e"],
        "it was let in first"
    );
    assert_eq!(pair.broker.take(second), ["CONNACK 0 00"]);
    assert!(pair.broker.is_open(second));
}

/// A departure that came to nothing is not a later one's, which waits for more.
#[test]
fn a_departure_that_was_given_up_lets_no_later_one_go() {
    let mut pair = Pair::new(2);
    let mut packet_bytes_max = PropertyBuf::new();
    packet_bytes_max
        .push(Property::MaximumPacketSize(5))
        .unwrap();
    let too_small = Connect {
        properties: packet_bytes_max.as_properties(),
        ..connect("publisher")
    };
    pair.broker.hold_mail = true;
    pair.publish(AFTER);
    assert!(!pair.broker.wants_input(pair.publisher), "it departs");
    let again = pair.broker.open(Version::V5);
    pair.broker.send(again, Packet::Connect(too_small));
    pair.broker.advance(Duration::from_nanos(1));
    assert!(pair.broker.wants_input(pair.publisher), "and stays");
    pair.publish(2 * AFTER);
    assert!(!pair.broker.wants_input(pair.publisher), "it departs again");
    // Each message, both questions, and the answer to the first.
    let letters = AFTER + 1 + 2 * AFTER + 1 + 1;
    for _ in 0..letters {
        assert!(pair.broker.deliver_letter());
    }
    pair.assert_home();
    assert!(pair.broker.deliver_letter(), "the answer to the second");
    pair.assert_abroad();
    pair.broker.hold_mail = false;
    pair.publish(1);
    pair.assert_received();
}
