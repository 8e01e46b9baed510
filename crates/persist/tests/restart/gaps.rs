//! A broker that begins with less than the one before had told: its clients know packet ids that it
//! does not.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use unbroken_broker_core::{Limits, StoreFull};
use unbroken_mqtt_proto::session::{Arrival, Inbound};
use unbroken_mqtt_proto::{Packet, PacketId, Publish};
use unbroken_store::{Memory, Store, backup, store_health};

use crate::shard_bus::{Client, join, publish};
use crate::{QOS1, QOS2, World, ack};

/// A disk that has synced what was committed so far, and nothing that comes.
struct Synced(Memory);

impl Synced {
    fn of(world: &World) -> Self {
        let (mut file, copy) = (Vec::new(), Memory::new());
        let view = world.kept.store.snapshot().unwrap();
        backup::write(&*view, &mut file).unwrap();
        backup::read(&mut &*file, &copy).unwrap();
        Self(copy)
    }

    /// The power is cut, and the broker begins with this.
    fn begin(self, world: &mut World) {
        store_health::begin(&self.0, true).unwrap();
        world.kept.store = Arc::new(self.0);
        world.restart();
    }
}

/// A world whose commits are not synced one by one.
fn unsynced() -> World {
    let world = World::new(1);
    store_health::begin(&*world.kept.store, false).unwrap();
    world
}

fn again<'a>(topic: &'a str, payload: &'a str, id: u16) -> Packet<'a> {
    let Packet::Publish(packet) = publish(topic, payload, QOS2, id) else {
        unreachable!()
    };
    Packet::Publish(Publish {
        dup: true,
        ..packet
    })
}

/// Sends it, and what follows from its PUBREC.
fn hand_in(world: &mut World, publisher: Client, packet: Packet<'_>, id: u16) {
    world.broker.send(publisher, packet);
    world.broker.stored();
    let received = format!("PUBREC #{id} ");
    assert!(world.broker.take(publisher)[0].starts_with(&received));
    world.broker.send(publisher, Packet::PubRel(ack(id)));
    world.broker.stored();
    let released = format!("PUBCOMP #{id} 00");
    assert_eq!(world.broker.take(publisher), [released]);
}

/// What a receiver makes of it that has these ids from before, and gives all others back.
fn delivered(world: &mut World, client: Client, packets: &[String], known: &[u16]) -> Vec<String> {
    let mut fresh = Vec::new();
    for packet in packets.iter().filter(|text| text.starts_with("PUBLISH")) {
        let id = packet.split_once('#').unwrap().1;
        let id: u16 = id.split(' ').next().unwrap().parse().unwrap();
        if !known.contains(&id) {
            fresh.push(packet.split('"').nth(1).unwrap().to_owned());
        }
        assert!(PacketId::new(id).is_some());
        world.broker.send(client, Packet::PubRec(ack(id)));
        world.broker.stored();
        world.broker.send(client, Packet::PubComp(ack(id)));
    }
    world.settle();
    fresh
}

// [MQTT-3.3.1-1] [MQTT311-3.3.1-1]
#[test]
fn a_message_under_an_id_whose_release_was_lost_is_new_unless_it_says_that_it_is_not() {
    for is_new in [true, false] {
        let mut world = unsynced();
        let away = world.resident("s", &[("t", QOS2)]);
        world.broker.cut(away);
        let publisher = world.resident("p", &[]);
        world.broker.send(publisher, publish("t", "one", QOS2, 7));
        world.broker.stored();
        world.settle();
        assert_eq!(world.broker.take(publisher), ["PUBREC #7 00"]);
        let synced = Synced::of(&world);
        if is_new {
            world.broker.send(publisher, Packet::PubRel(ack(7)));
            world.broker.stored();
            assert_eq!(world.broker.take(publisher), ["PUBCOMP #7 00"]);
        }
        synced.begin(&mut world);
        // The doubt is still there if the broker is started again before the client comes.
        world.restart();
        let (publisher, _) = world.back("p");
        let expected = if is_new {
            hand_in(&mut world, publisher, publish("t", "two", QOS2, 7), 7);
            vec!["one", "two"]
        } else {
            hand_in(&mut world, publisher, again("t", "one", 7), 7);
            vec!["one"]
        };
        let (client, received) = world.back("s");
        assert_eq!(delivered(&mut world, client, &received, &[]), expected);
    }
}

/// The store is full, and publishers are told.
fn fill(world: &mut World) {
    let mut limits = Limits::default();
    limits.store_bytes_max = 1_000;
    limits.store_full = StoreFull::Refuse;
    world.broker.reconfigure(limits);
    world.broker.store_size(1_000);
}

// [MQTT-4.3.3-9] [MQTT311-4.8.0-2]
#[test]
fn a_mark_that_a_new_message_has_shown_to_be_over_is_not_there_after_a_restart() {
    for case in ["refused", "refused and told", "of QoS 1"] {
        let mut world = unsynced();
        let away = world.resident("s", &[("t", QOS2)]);
        world.broker.cut(away);
        let publisher = world.resident("p", &[]);
        world.broker.send(publisher, publish("t", "one", QOS2, 7));
        world.broker.stored();
        world.settle();
        let synced = Synced::of(&world);
        world.broker.send(publisher, Packet::PubRel(ack(7)));
        synced.begin(&mut world);
        match case {
            "refused and told" => {
                let (publisher, _) = world.back("p");
                fill(&mut world);
                world.broker.send(publisher, publish("t", "two", QOS2, 7));
                is_answered_when_the_mark_is_gone(&mut world, publisher, "PUBREC #7 97");
            }
            "refused" => {
                let publisher = world.older("p");
                fill(&mut world);
                world.broker.send(publisher, publish("t", "two", QOS2, 7));
                assert!(!world.broker.is_open(publisher));
                world.broker.stored();
            }
            _ => {
                let (publisher, _) = world.back("p");
                world.broker.send(publisher, publish("u", "two", QOS1, 7));
                is_answered_when_the_mark_is_gone(&mut world, publisher, "PUBACK #7 10");
            }
        }
        world.restart();
        let (publisher, _) = world.back("p");
        // It was lost with a connection the first time, or refused.
        hand_in(&mut world, publisher, again("t", "three", 7), 7);
        let (client, received) = world.back("s");
        let fresh = delivered(&mut world, client, &received, &[]);
        assert_eq!(fresh, ["one", "three"], "{case}");
    }
}

fn is_answered_when_the_mark_is_gone(world: &mut World, publisher: Client, answer: &str) {
    assert_eq!(world.broker.take(publisher), [""; 0]);
    world.broker.stored();
    assert_eq!(world.broker.take(publisher), [answer]);
}

fn publish_each(world: &mut World, publisher: Client, text: &str, ids: RangeInclusive<u16>) {
    for id in ids {
        world.broker.send(publisher, publish("t", text, QOS2, id));
    }
    world.settle();
}

/// The store with the first of four messages, and what the client has received of all.
fn first_and_three_that_are_lost(world: &mut World, client: Client) -> (Synced, Vec<String>) {
    let publisher = join(&mut world.broker, "p");
    publish_each(world, publisher, "first", 1..=1);
    let synced = Synced::of(world);
    publish_each(world, publisher, "lost", 2..=4);
    (synced, world.broker.take(client))
}

#[test]
fn ids_do_not_go_on_among_those_of_before_a_gap_wherever_they_had_got_to() {
    let mut world = unsynced();
    let client = world.resident("s", &[("t", QOS2)]);
    world.broker.cut(client);
    // Ids begin somewhere else.
    Synced::of(&world).begin(&mut world);
    store_health::begin(&*world.kept.store, false).unwrap();
    let (client, _) = world.back("s");
    let (synced, received) = first_and_three_that_are_lost(&mut world, client);
    let known: Vec<_> = received[1..].iter().filter_map(|p| id_of(p)).collect();
    assert_eq!(known, [40_505, 40_506, 40_507]);
    // 28,657 gaps, for which golden sections of the range add up to one id.
    store_health::mark_gap(&synced.0, 28_655).unwrap();
    synced.begin(&mut world);
    for round in 0..20 {
        let publisher = join(&mut world.broker, "p");
        publish_each(&mut world, publisher, "more", 1..=3);
        let (client, received) = world.back("s");
        let packets = received.iter().filter(|text| text.starts_with("PUBLISH"));
        let ids: Vec<_> = packets.filter_map(|text| id_of(text)).collect();
        assert!(ids.iter().all(|id| !known.contains(id)), "{round}: {ids:?}");
        // Most are on their way at each restart.
        world.broker.send(client, Packet::PubRec(ack(ids[0])));
        world.settle();
        world.restart();
    }
}

#[test]
fn what_a_receiver_has_from_before_a_gap_is_not_mistaken_for_what_comes_after_it() {
    let mut world = unsynced();
    let client = world.resident("s", &[("t", QOS2)]);
    let (synced, received) = first_and_three_that_are_lost(&mut world, client);
    assert!(received[3].starts_with("PUBLISH t \"lost\" q2 #4"));
    // It has answered, and waits for PUBREL.
    let known = [2, 3, 4];
    synced.begin(&mut world);
    for round in 0..3 {
        let publisher = join(&mut world.broker, "p");
        publish_each(&mut world, publisher, "more", 1..=3);
        let (client, received) = world.back("s");
        let mut expected = vec!["more"; 3];
        if round == 0 {
            expected.insert(0, "first");
        }
        let fresh = delivered(&mut world, client, &received, &known);
        assert_eq!(fresh, expected, "round {round}: {received:?}");
        world.restart();
    }
}

/// A publisher and a subscriber of QoS 2 that forget nothing, and their broker.
struct Couple {
    world: World,
    publisher: Client,
    subscriber: Client,
    /// What the publisher has not finished, by packet id, and whether PUBREC came. It takes the
    /// lowest id that is free, so that ids come again soon.
    unfinished: BTreeMap<u16, (String, bool)>,
    inbound: Inbound,
    delivered: BTreeMap<String, u32>,
    published: u32,
    /// Published since the last power cut.
    fresh: Vec<String>,
}

impl Couple {
    fn new() -> Self {
        let mut world = unsynced();
        let subscriber = world.resident("s", &[("t", QOS2)]);
        let publisher = world.resident("p", &[]);
        world.settle();
        Self {
            world,
            publisher,
            subscriber,
            unfinished: BTreeMap::new(),
            inbound: Inbound::new(),
            delivered: BTreeMap::new(),
            published: 0,
            fresh: Vec::new(),
        }
    }

    fn publish(&mut self) {
        let mut ids = 1..;
        let id = ids.find(|id| !self.unfinished.contains_key(id)).unwrap();
        self.published += 1;
        let text = format!("m{}", self.published);
        let packet = publish("t", &text, QOS2, id);
        self.world.broker.send(self.publisher, packet);
        self.fresh.push(text.clone());
        self.unfinished.insert(id, (text, false));
    }

    fn publisher_reads(&mut self) {
        for packet in self.world.broker.take(self.publisher) {
            let Some(id) = id_of(&packet) else { continue };
            if packet.starts_with("PUBREC") {
                self.unfinished.get_mut(&id).unwrap().1 = true;
                self.world
                    .broker
                    .send(self.publisher, Packet::PubRel(ack(id)));
            } else if packet.starts_with("PUBCOMP") {
                self.unfinished.remove(&id);
            }
        }
    }

    fn subscriber_reads(&mut self) {
        let packets = self.world.broker.take(self.subscriber);
        self.subscriber_has(&packets);
    }

    fn subscriber_has(&mut self, packets: &[String]) {
        for packet in packets {
            let Some(id) = id_of(packet) else { continue };
            let packet_id = PacketId::new(id).unwrap();
            let answer = if packet.starts_with("PUBLISH") {
                if self.inbound.handle_publish(QOS2, packet_id) == Ok(Arrival::New) {
                    let text = packet.split('"').nth(1).unwrap().to_owned();
                    *self.delivered.entry(text).or_default() += 1;
                    self.inbound.received(packet_id);
                }
                Packet::PubRec(ack(id))
            } else {
                self.inbound.handle_pubrel(packet_id);
                Packet::PubComp(ack(id))
            };
            self.world.broker.send(self.subscriber, answer);
        }
    }

    /// Everything takes its way, and what was published since the last power cut has come once.
    fn come_to_rest(&mut self, seed: u64) {
        while !self.unfinished.is_empty() {
            self.world.settle();
            self.publisher_reads();
            self.subscriber_reads();
        }
        for _ in 0..3 {
            self.world.settle();
            self.subscriber_reads();
        }
        for text in &self.fresh {
            let count = self.delivered.get(text);
            assert_eq!(count, Some(&1), "seed {seed}: {text}");
        }
    }

    fn lose_power(&mut self, synced: Synced) {
        synced.begin(&mut self.world);
        store_health::begin(&*self.world.kept.store, false).unwrap();
        self.fresh.clear();
        self.inbound.handle_disconnected();
        let (subscriber, received) = self.world.back("s");
        self.subscriber = subscriber;
        self.subscriber_has(&received);
        (self.publisher, _) = self.world.back("p");
        for (id, (text, has_come)) in &self.unfinished {
            let packet = match has_come {
                true => Packet::PubRel(ack(*id)),
                false => again("t", text, *id),
            };
            self.world.broker.send(self.publisher, packet);
        }
    }
}

fn id_of(packet: &str) -> Option<u16> {
    let (_, id) = packet.split_once('#')?;
    id.split(' ').next()?.parse().ok()
}

#[test]
fn what_is_published_after_a_power_cut_comes_once() {
    for seed in 1..=150 {
        let mut couple = Couple::new();
        let mut synced = Synced::of(&couple.world);
        let mut state = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed);
        let mut draw = |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % below
        };
        for _ in 0..60 {
            match draw(14) {
                0..4 => couple.publish(),
                4..8 => couple.world.broker.stored(),
                8..10 => couple.publisher_reads(),
                10..12 => couple.subscriber_reads(),
                12 => synced = Synced::of(&couple.world),
                _ => {
                    if draw(2) == 0 {
                        couple.come_to_rest(seed);
                    }
                    couple.lose_power(synced);
                    // That it begins with a gap is safe before it tells anything.
                    synced = Synced::of(&couple.world);
                }
            }
        }
        couple.come_to_rest(seed);
    }
}
