//! A subscription that is replaced by one with another QoS, while messages are on their way between
//! the shards and to the disk, and while its session reads what has come before.

use std::collections::BTreeSet;

use unbroken_mqtt_proto::{
    Packet, PacketId, Properties, QoS, RetainHandling, Subscribe, SubscriptionOptions,
    Subscriptions,
};

use unbroken_broker_core::Limits;
use unbroken_store::session::{PartView, parse_key};
use unbroken_store::{Kv, Space};

use super::limits::is_balanced;
use super::shard_bus::{Client, join, publish, stay, subscribe, unsubscribe};
use super::{QOS1, QOS2, World};

const QOS0: QoS = QoS::AtMostOnce;

/// What happens in which order, by a seed.
struct Choice(u64);

impl Choice {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = self.0.wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % end
    }
}

/// A client that asks for `t` again and again, and what it and the publishers know.
struct History {
    world: World,
    choice: Choice,
    publishers: Vec<Client>,
    client: Client,
    /// The QoS of each SUBSCRIBE, by its packet id, from 1.
    asked: Vec<QoS>,
    /// The last of them that was answered.
    answered: usize,
    /// The publisher of each message, whose payload is its place here, from 1.
    published: Vec<usize>,
    /// Payloads, as they came, and whether at QoS 1 or 2.
    received: Vec<(usize, bool)>,
    /// Messages whose PUBACK came.
    acknowledged: BTreeSet<usize>,
    /// Messages that came in while the client knew that it would get them at QoS 1 or 2.
    owed: BTreeSet<usize>,
}

impl History {
    fn new(seed: u64) -> Self {
        let mut choice = Choice(seed);
        let mut world = World::new(3);
        if choice.below(2) == 0 {
            // All shards store what comes, whatever the client asks for.
            for client_id in ["o0", "o1", "o2", "o3", "o4", "o5"] {
                world.resident(client_id, &[("t", QOS1)]);
            }
        }
        let first = [QOS0, QOS1, QOS2][choice.below(3)];
        let mut client = world.resident("s", &[("u", QOS1), ("t", first)]);
        // Some of these are on each shard.
        let publishers: Vec<_> = ["p0", "p1", "p2", "p3", "p4", "p5"]
            .map(|client_id| join(&mut world.broker, client_id))
            .into();
        if choice.below(2) == 0 {
            // It is behind: something waits on disk, and is not read yet.
            world.broker.cut(client);
            let waits = publish("u", "0", QOS1, 1);
            world.broker.send(publishers[0], waits);
            world.settle();
            world.broker.hold_reads = true;
            client = stay(&mut world.broker, "s", false);
            world.broker.stored();
        }
        world.broker.take(client);
        world.broker.take(publishers[0]);
        world.broker.hold_messages = true;
        Self {
            world,
            choice,
            publishers,
            client,
            asked: vec![first],
            answered: 0,
            published: Vec::new(),
            received: Vec::new(),
            acknowledged: BTreeSet::new(),
            owed: BTreeSet::new(),
        }
    }

    fn step(&mut self) {
        match self.choice.below(12) {
            0..2 => self.subscribe(),
            2..5 => self.publish(),
            5..8 => {
                for _ in 0..self.choice.below(6) {
                    self.world.broker.deliver_message();
                }
            }
            8..10 => {
                let count = self.choice.below(4);
                self.world.broker.stored_at_most(count);
            }
            10 => self.world.broker.stored(),
            _ => self.world.broker.hold_reads &= self.choice.below(6) > 0,
        }
        self.look();
    }

    fn subscribe(&mut self) {
        let qos = [QOS0, QOS0, QOS1, QOS2][self.choice.below(4)];
        let options = SubscriptionOptions {
            qos,
            retain_handling: RetainHandling::DoNotSend,
            ..Default::default()
        };
        let list = [("t", options)];
        let packet = Subscribe {
            packet_id: PacketId::new(u16::try_from(self.asked.len()).unwrap()).unwrap(),
            properties: Properties::EMPTY,
            filters: Subscriptions::new(&list),
        };
        self.world
            .broker
            .send(self.client, Packet::Subscribe(packet));
        self.asked.push(qos);
        if qos == QOS0 {
            self.owed.clear(); // what is on its way may come at QoS 0, and be lost with a connection
        }
    }

    fn publish(&mut self) {
        let from = self.choice.below(self.publishers.len());
        self.published.push(from);
        let number = self.published.len();
        let payload = number.to_string();
        let message = publish("t", &payload, QOS1, u16::try_from(number).unwrap());
        self.world.broker.send(self.publishers[from], message);
        let is_told = self.answered + 1 == self.asked.len();
        if is_told && self.asked[self.answered] > QOS0 {
            self.owed.insert(number);
        }
    }

    /// What the clients have got.
    fn look(&mut self) {
        for packet in self.world.broker.take(self.client) {
            if let Some(received) = payload(&packet) {
                self.received.push(received);
            } else if let Some(suback) = packet.strip_prefix("SUBACK #") {
                let id: usize = suback.split(' ').next().unwrap().parse().unwrap();
                self.answered = self.answered.max(id);
            }
        }
        for publisher in &self.publishers {
            for packet in self.world.broker.take(*publisher) {
                let id = packet.strip_prefix("PUBACK #").unwrap();
                let id = id.split(' ').next().unwrap();
                self.acknowledged.insert(id.parse().unwrap());
            }
        }
    }
}

/// The message that this is, and whether it is one of QoS 1 or 2.
fn payload(packet: &str) -> Option<(usize, bool)> {
    let (_, payload) = packet.strip_prefix("PUBLISH ")?.split_once('"')?;
    let (number, rest) = payload.split_once('"')?;
    Some((number.parse().unwrap(), !rest.starts_with(" q0")))
}

// [MQTT-3.8.4-4] [MQTT-4.6.0-5]
#[test]
fn a_client_that_is_here_gets_each_message_once_however_its_subscription_changes() {
    for seed in 0..400 {
        let mut history = History::new(seed);
        for _ in 0..60 {
            history.step();
        }
        history.world.broker.hold_messages = false;
        history.world.broker.hold_reads = false;
        history.world.broker.deliver_messages();
        history.world.settle();
        history.look();
        let received: Vec<_> = history.received.iter().filter(|(id, _)| *id > 0).collect();
        let mut numbers: Vec<_> = received.iter().map(|(id, _)| *id).collect();
        numbers.sort_unstable();
        let all: Vec<_> = (1..=history.published.len()).collect();
        assert_eq!(numbers, all, "seed {seed}");
        for from in 0..history.publishers.len() {
            let kept = received.iter().filter(|(_, is_kept)| *is_kept);
            let of_one = kept.filter(|(id, _)| history.published[id - 1] == from);
            assert!(of_one.is_sorted(), "seed {seed}: {received:?} from {from}");
        }
        assert_eq!(history.answered + 1, history.asked.len(), "seed {seed}");
        is_balanced(&history.world);
    }
}

#[test]
fn a_subscription_that_is_being_replaced_is_there_after_a_kill_and_what_was_owed_by_it() {
    for seed in 0..400 {
        let mut history = History::new(seed);
        for _ in 0..history.choice.below(60) {
            history.step();
        }
        let History {
            mut world,
            asked,
            answered,
            received,
            acknowledged,
            owed,
            ..
        } = history;
        world.restart();
        let (client, again) = world.back("s");
        let again = again.iter().filter_map(|packet| payload(packet));
        let got: BTreeSet<_> = received
            .into_iter()
            .chain(again)
            .map(|(id, _)| id)
            .collect();
        let mut lost = owed.intersection(&acknowledged);
        assert_eq!(lost.find(|id| !got.contains(id)), None, "seed {seed}");
        let publisher = join(&mut world.broker, "p0");
        world.broker.send(publisher, publish("t", "0", QOS2, 1));
        world.broker.stored();
        world.broker.stored();
        let got = world.broker.take(client);
        let may_be: Vec<_> = asked[answered..].iter().map(|qos| *qos as u8).collect();
        let is_right = |qos: &u8| got[0].starts_with(&format!("PUBLISH t \"0\" q{qos}"));
        assert!(
            got.len() == 1 && may_be.iter().any(is_right),
            "seed {seed}: {got:?}, asked for {may_be:?}"
        );
        is_balanced(&world);
    }
}

/// Whether what is published to `t` from each shard now waits for the session of `s`, which is
/// away.
fn waits(world: &mut World) -> usize {
    for (client_id, id) in ["p0", "p1", "p2", "p3", "p4", "p5"].into_iter().zip(1..) {
        let publisher = join(&mut world.broker, client_id);
        world.broker.send(publisher, publish("t", "x", QOS1, id));
        world.broker.stored();
        world.broker.cut(publisher);
    }
    world.settle();
    let (client, received) = world.back("s");
    world.broker.cut(client);
    world.settle();
    received.len() - 1
}

#[test]
fn what_a_subscription_keeps_is_known_to_all_shards_after_a_restart() {
    for (first, then, expected) in [
        (QOS0, QOS0, 0),
        (QOS0, QOS1, 6),
        (QOS1, QOS0, 0),
        (QOS1, QOS2, 6),
    ] {
        let mut world = World::new(3);
        let client = world.resident("s", &[("t", first), ("t", then)]);
        world.broker.cut(client);
        world.settle();
        world.restart();
        world.broker.take_asked();
        assert_eq!(waits(&mut world), expected, "{first:?}, {then:?}");
        let asked = world.broker.take_asked();
        let stored = asked.iter().filter(|record| *record == "message t");
        assert_eq!(stored.count(), expected, "{first:?}, {then:?}");
        is_balanced(&world);
    }
}

#[test]
fn a_subscription_whose_client_goes_before_its_suback_is_raised_all_the_same() {
    for stored in 0..4 {
        let mut world = World::new(3);
        let client = world.resident("s", &[("t", QOS0)]);
        world.broker.hold_messages = true;
        subscribe(&mut world.broker, client, "t", QOS1);
        world.broker.stored_at_most(stored);
        world.broker.cut(client);
        world.broker.hold_messages = false;
        world.broker.deliver_messages();
        world.settle();
        assert_eq!(waits(&mut world), 6);
        is_balanced(&world);
    }
}

/// How many subscriptions are on disk, past ones among them.
fn subscriptions(world: &World) -> usize {
    let page = world
        .kept
        .store
        .scan(Space::Sessions, &[], None, usize::MAX);
    let pairs = page.unwrap().pairs;
    let part = |key: &[u8]| parse_key(key).unwrap().part;
    let found = pairs
        .iter()
        .filter(|pair| matches!(part(&pair.key), PartView::Subscription { .. }));
    found.count()
}

/// A session that is behind asks for `t` at these QoS, one after the other and after each something
/// comes for it; or unsubscribes. How many of these were refused.
fn ask_while_behind(world: &mut World, asked: impl Iterator<Item = Option<QoS>>) -> usize {
    let publisher = join(&mut world.broker, "p");
    let client = stay(&mut world.broker, "s", false);
    world.broker.stored();
    world.broker.take(client);
    let mut refused = 0;
    for (qos, id) in asked.zip((1..=1_000).cycle()) {
        match qos {
            Some(qos) => subscribe(&mut world.broker, client, "t", qos),
            None => unsubscribe(&mut world.broker, client, "t"),
        }
        world.broker.stored();
        let answer = world.broker.take(client);
        refused += answer.iter().filter(|one| *one == "SUBACK #1 [97]").count();
        world.broker.send(publisher, publish("t", "x", QOS1, id));
        world.broker.stored();
        world.broker.advance(std::time::Duration::from_secs(1));
    }
    world.broker.stored();
    world.broker.cut(client);
    world.broker.cut(publisher);
    refused
}

#[test]
fn a_session_that_is_behind_and_subscribes_again_and_again_is_refused_at_a_limit() {
    let changes = |count| (0..count).map(|at| Some([QOS1, QOS2][at % 2]));
    let leaves = |count| (0..count).map(|at| [Some(QOS1), None][at % 2]);
    let mut limits = Limits::default();
    limits.subscriptions_per_session_max = 1;
    for shards in [1, 3] {
        let mut world = World::new(shards);
        world.broker.reconfigure(limits.clone());
        let client = world.resident("s", &[("t", QOS2)]);
        world.broker.cut(client);
        let publisher = join(&mut world.broker, "p");
        world.broker.send(publisher, publish("t", "x", QOS1, 1));
        world.settle();
        world.broker.hold_reads = true;
        // On the same terms it is one subscription however often it is asked for.
        let same = std::iter::repeat_n(Some(QOS2), 150);
        assert_eq!(ask_while_behind(&mut world, same), 0);
        assert_eq!(subscriptions(&world), 1);
        assert_eq!(ask_while_behind(&mut world, changes(150)), 25);
        assert_eq!(subscriptions(&world), 101);
        assert!(ask_while_behind(&mut world, leaves(10)) > 0);
        assert!(subscriptions(&world) <= 101);
        world.restart();
        world.broker.reconfigure(limits.clone());
        is_balanced(&world);
        // With what waits the past ones go.
        let (client, received) = world.back("s");
        let received = world.take_rest(client, received);
        assert!(received.len() > 300, "{}", received.len());
        world.settle();
        world.broker.cut(client);
        world.settle();
        assert!(subscriptions(&world) <= 1);
        assert_eq!(ask_while_behind(&mut world, changes(2)), 0);
        is_balanced(&world);
    }
}
