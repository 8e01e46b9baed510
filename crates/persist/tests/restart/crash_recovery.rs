//! What a crash leaves of lanes.

use std::time::Duration;

use unbroken_broker_core::{Limits, PublishersTotals, QueueFull};
use unbroken_merkle_log::{Checkpoint, EpochEnd, Property, Tree, Xxh3};
use unbroken_mqtt_proto::{
    Ack, Packet, PacketId, Properties, Property as mqtt, PropertyBuf, Publish, QoS, Version, Will,
};
use unbroken_store::lane::{Lane, LaneUser, Own, is_crash_recovery};
use unbroken_store::{Batch, Kv, Space, Store};

use crate::lanes::{Producer, publish_some, send_at, stop};
use crate::shard_bus::{Client, Received, connect, join, publish};
use crate::{QOS1, World};

/// Lanes of which the disk knows so far.
fn on_disk(world: &World) -> usize {
    let page = world.kept.store.scan(Space::Lanes, &[], None, usize::MAX);
    let pairs = page.unwrap().pairs;
    pairs
        .iter()
        .filter(|pair| is_crash_recovery(&pair.key))
        .count()
}

/// A session that stays, and waits for all that is published and told of it.
fn receiver(world: &mut World) -> Client {
    world.resident("s", &[("t", QOS1), ("audit/checkpoint/+", QOS1)])
}

/// Seconds pass, in which the receiver answers.
fn wait(world: &mut World, client: Client, seconds: u32) -> Vec<Received> {
    let mut received = Vec::new();
    for _ in 0..seconds {
        world.broker.advance(Duration::from_secs(1));
        world.broker.stored();
        received.extend(world.broker.take_publishes(client));
    }
    received
}

/// Epoch, size and end.
type Told = (u32, u64, EpochEnd);

/// Epoch and number of each message with a stamp, and the last checkpoint of each epoch, which
/// must be true of these messages.
fn proven(received: &[Received]) -> (Vec<(u32, u64)>, Vec<Told>) {
    // A checkpoint may come before what waits in the log.
    let (messages, told): (Vec<_>, Vec<_>) = received.iter().partition(|m| m.topic == "t");
    let stamps = messages.iter().map(|message| {
        let stamp = message.properties.iter().find(|(name, _)| name == "audit");
        Property::parse_text(&stamp.unwrap().1).unwrap()
    });
    let stamps: Vec<_> = stamps.collect();
    let mut checkpoints: Vec<Told> = Vec::new();
    for message in told {
        let sealed = Checkpoint::parse(&message.payload).unwrap();
        let checkpoint = sealed.open(&Xxh3).unwrap();
        let mut tree = Tree::default();
        for stamp in stamps
            .iter()
            .filter(|stamp| stamp.epoch == checkpoint.epoch)
        {
            assert_eq!(stamp.sequence, tree.size());
            tree.append(&Xxh3, stamp.digest);
        }
        let root = tree.root_at(&Xxh3, checkpoint.size);
        assert_eq!(root, Some(checkpoint.lane_root), "{checkpoint:?}");
        checkpoints.retain(|(epoch, ..)| *epoch != checkpoint.epoch.0);
        checkpoints.push((checkpoint.epoch.0, checkpoint.size, checkpoint.end));
    }
    let messages = stamps.iter().map(|stamp| (stamp.epoch.0, stamp.sequence));
    (messages.collect(), checkpoints)
}

/// What waits for the receiver, and what it is told within some seconds.
fn back(world: &mut World, seconds: u32) -> (Client, Vec<Received>) {
    let client = crate::shard_bus::stay(&mut world.broker, "s", false);
    world.broker.stored();
    let mut received = world.broker.take_publishes(client);
    received.extend(wait(world, client, seconds));
    (client, received)
}

#[test]
fn who_was_away_proves_what_was_stored_before_a_crash_and_before_the_next() {
    for shards in [1, 3] {
        let mut world = World::new(shards);
        let away = receiver(&mut world);
        world.broker.cut(away);
        for life in 0..3 {
            let (device, _) = world.back("forwarded");
            publish_some(&mut world, device, life * 3 + 1..life * 3 + 4);
            // It is stored nowhere, and nobody who is away gets it.
            let unstored = publish("t", "x", QoS::AtMostOnce, 0);
            world.broker.send(device, unstored);
            world.restart();
        }
        let (client, received) = back(&mut world, 3);
        let (messages, checkpoints) = proven(&received);
        let epochs: Vec<u32> = checkpoints.iter().map(|(epoch, ..)| *epoch).collect();
        assert!(epochs.is_sorted() && epochs.len() == 3, "{epochs:?}");
        let of = |epoch: &u32| [(*epoch, 0), (*epoch, 1), (*epoch, 2)];
        assert_eq!(messages, epochs.iter().flat_map(of).collect::<Vec<_>>());
        assert!(
            checkpoints
                .iter()
                .all(|told| (told.1, told.2) == (3, EpochEnd::Cut))
        );
        // Who is told for a minute is told enough.
        assert_eq!(on_disk(&world), 3);
        assert_eq!(wait(&mut world, client, 60).len(), 3 * 5);
        assert_eq!(on_disk(&world), 0, "{shards} shards");
        assert_eq!(wait(&mut world, client, 60).len(), 0);
    }
}

#[test]
fn a_message_that_is_stored_tells_of_those_before_it_that_are_not() {
    let mut world = World::new(1);
    receiver(&mut world);
    let (device, _) = world.back("forwarded");
    for id in [1, 0, 2, 0, 0] {
        let qos = if id == 0 { QoS::AtMostOnce } else { QOS1 };
        world
            .broker
            .send(device, publish("t", &id.to_string(), qos, id));
        world.broker.stored();
    }
    world.restart();
    let (_, received) = back(&mut world, 2);
    let checkpoint = received.iter().find(|told| told.topic != "t").unwrap();
    let sealed = Checkpoint::parse(&checkpoint.payload).unwrap();
    assert_eq!(sealed.size(), 3);
}

#[test]
fn a_session_that_ends_during_an_absence_is_reported_whole() {
    for kills in [false, true] {
        let mut world = World::new(1);
        let away = receiver(&mut world);
        world.broker.cut(away);
        let device = join(&mut world.broker, "forwarded");
        publish_some(&mut world, device, 1..4);
        world.broker.cut(device);
        world.broker.stored();
        assert_eq!(on_disk(&world), 1);
        if kills {
            world.restart();
        }
        let (_, received) = back(&mut world, 11);
        let (_, checkpoints) = proven(&received);
        let end = if kills {
            EpochEnd::Cut
        } else {
            EpochEnd::Closed
        };
        let told: Vec<_> = checkpoints.iter().map(|told| (told.1, told.2)).collect();
        assert_eq!(told, [(3, end)]);
    }
}

#[test]
fn a_lane_at_rest_goes_on_and_is_not_over() {
    let mut world = World::new(1);
    let away = receiver(&mut world);
    world.broker.cut(away);
    let (device, _) = world.back("forwarded");
    publish_some(&mut world, device, 1..4);
    stop(&mut world);
    world.restart();
    let (device, _) = world.back("forwarded");
    publish_some(&mut world, device, 4..5);
    let (_, received) = back(&mut world, 11);
    let (messages, checkpoints) = proven(&received);
    let epoch = messages[0].0;
    assert_eq!(messages, [0, 1, 2, 3].map(|number| (epoch, number)));
    assert_eq!(checkpoints, [(epoch, 4, EpochEnd::Open)]);
}

/// Whose the lane is outlives the broker, so it is written when it is opened; what follows is not.
#[test]
fn of_what_is_not_stored_only_the_opening_of_its_lane_touches_the_disk() {
    let mut world = World::new(1);
    let mut producer = Producer::new();
    let (device, _) = world.back("forwarded");
    let mut written = Vec::new();
    for id in 0..3 {
        let stamp = producer.issue("x");
        let unstored = (QoS::AtMostOnce, 0);
        send_at(&mut world, device, unstored, ("t", b"x"), Some(&stamp));
        // Nobody who stays waits for it.
        send_at(&mut world, device, (QOS1, id + 1), ("t", b"y"), None);
        world.broker.advance(Duration::from_secs(1));
        world.broker.stored();
        assert_eq!(on_disk(&world), 1);
        let page = world.kept.store.scan(Space::Lanes, &[], None, usize::MAX);
        let pairs = page.unwrap().pairs.into_iter();
        written.push(pairs.map(|pair| pair.value).collect::<Vec<_>>());
    }
    assert!(written.windows(2).all(|pair| pair[0] == pair[1]));
}

/// Sends a message of a publisher's own lane; only one that is `kept` is stored.
fn send(world: &mut World, client: Client, kept: bool, stamp: &str) {
    let how = if kept { (QOS1, 1) } else { UNSTORED };
    send_at(world, client, how, ("t", b"x"), Some(stamp));
}

/// What the producer says next of how far it is.
fn checkpoint(producer: &mut Producer, at_s: u64) -> Vec<u8> {
    let now = Duration::from_secs(at_s);
    let checkpoint = producer.lane.poll_checkpoint(now, 0, &Xxh3).unwrap();
    let mut payload = Vec::new();
    checkpoint.encode(&Xxh3, &mut payload);
    payload
}

fn tell(world: &mut World, client: Client, checkpoint: &[u8]) {
    send_at(world, client, UNSTORED, (CHECKPOINTS, checkpoint), None);
}

/// What the broker has found, when everything that was to come is late.
fn found(world: &mut World) -> PublishersTotals {
    for _ in 0..5 {
        world.broker.advance(Duration::from_secs(1));
    }
    world.broker.shards[0].stats().audit.publishers
}

/// How a message is sent that nobody stores.
const UNSTORED: (QoS, u16) = (QoS::AtMostOnce, 0);
/// Where a producer speaks of its lane.
const CHECKPOINTS: &str = "audit/checkpoint/0000000000000007";

/// What was found in the lane of a publisher that stamps 2,048 messages itself, 1,024 of them
/// before the broker is killed; the disk was told of as many, and the producer goes on `from`.
fn own_lane(known: u64, from: u64, loses: Option<u64>) -> PublishersTotals {
    let mut world = World::new(1);
    world.resident("s", &[("t", QOS1)]);
    let mut client = world.resident("p", &[]);
    let mut producer = Producer::new();
    let mut first = String::new();
    for number in 0..2_048_u64 {
        let stamp = producer.issue("x");
        if number == 0 {
            first.clone_from(&stamp);
        }
        if number == 900 {
            world.restart();
            (client, _) = world.back("p");
        }
        if (900..from).contains(&number) || loses == Some(number) {
            continue;
        }
        // Those of which the disk is not told are of QoS 0.
        send(&mut world, client, number < known, &stamp);
        if number + 1 == known {
            world.broker.advance(Duration::from_secs(1));
        }
        world.broker.stored();
        if number == 1_030 {
            send(&mut world, client, false, &first);
        }
        if (number + 1) % 1_024 == 0 {
            let checkpoint = checkpoint(&mut producer, number);
            tell(&mut world, client, &checkpoint);
        }
    }
    let found = found(&mut world);
    let again = (found.duplicated, found.repeated);
    assert_eq!(again, (0, 1), "the first was known before: {found:?}");
    assert_eq!((found.altered, found.injected, found.reordered), (0, 0, 0));
    found
}

#[test]
fn a_ledger_goes_on_over_a_crash() {
    let found = own_lane(900, 900, None);
    assert_eq!((found.windows_proven, found.lost), (2, 0), "{found:?}");
}

#[test]
fn what_may_have_come_before_a_crash_is_not_lost_and_what_did_not_come_since_is() {
    for (known, from) in [(800, 900), (900, 1_000), (700, 1_000)] {
        let found = own_lane(known, from, None);
        let windows = (found.windows_unproven, found.windows_proven);
        assert_eq!(
            (windows, found.lost),
            ((1, 1), 0),
            "{known}, {from}: {found:?}"
        );
    }
    let found = own_lane(800, 900, Some(1_500));
    assert_eq!((found.windows_unproven, found.windows_faulty), (1, 1));
    assert_eq!(found.lost, 1, "{found:?}");
}

#[test]
fn a_ledger_ends_with_its_session() {
    let mut world = World::new(1);
    world.resident("s", &[("t", QOS1)]);
    let client = world.resident("p", &[]);
    let stamp = Producer::new().issue("x");
    send_at(&mut world, client, (QOS1, 1), ("t", b"x"), Some(&stamp));
    for expected in [1, 1, 0] {
        if expected == 0 {
            let client = crate::shard_bus::stay(&mut world.broker, "p", true);
            world.broker.stored();
            world.broker.take(client);
        }
        world.broker.advance(Duration::from_secs(1));
        world.broker.stored();
        assert_eq!(on_disk(&world), expected);
        world.restart();
    }
}

#[test]
fn who_is_away_does_not_find_that_nothing_was_new() {
    let mut world = World::new(1);
    let away = receiver(&mut world);
    world.broker.cut(away);
    let (device, _) = world.back("forwarded");
    publish_some(&mut world, device, 1..4);
    for _ in 0..60 {
        world.broker.advance(Duration::from_secs(1));
        world.broker.send(device, Packet::PingReq);
        world.broker.stored();
    }
    let dropped = world.broker.shards[0].stats().dropped_total();
    assert_eq!(
        dropped, 0,
        "what is for who is here is no drop of who is not"
    );
    let (client, received) = back(&mut world, 1);
    let (messages, checkpoints) = proven(&received);
    assert_eq!((messages.len(), checkpoints.len()), (3, 1));
    assert_eq!(received.len(), 3 + 2, "it is told once, and once more");
    assert!(
        wait(&mut world, client, 100).len() >= 9,
        "who is here hears that it is not silent"
    );
}

#[test]
fn the_end_of_an_epoch_reaches_an_offline_receiver_once_however_often_the_broker_is_killed() {
    let mut world = World::new(2);
    let away = receiver(&mut world);
    world.broker.cut(away);
    let (device, _) = world.back("forwarded");
    publish_some(&mut world, device, 1..4);
    for shards in [3, 1, 2, 2] {
        world.restart_with(shards);
        for _ in 0..7 {
            world.broker.advance(Duration::from_secs(1));
            world.broker.stored();
        }
        assert_eq!(on_disk(&world), 0, "it waits for who is away");
    }
    let dropped: u64 = world
        .broker
        .shards
        .iter()
        .map(|s| s.stats().dropped_total())
        .sum();
    assert_eq!(
        dropped, 0,
        "what is for who is here is no drop of who is not"
    );
    let (_, received) = back(&mut world, 1);
    let (messages, checkpoints) = proven(&received);
    assert_eq!(messages.len(), 3);
    assert_eq!((checkpoints[0].1, checkpoints[0].2), (3, EpochEnd::Cut));
    assert!(received.len() <= 3 + 2, "{} came", received.len());
}

#[test]
fn an_epoch_of_full_windows_is_proven_after_a_crash() {
    let mut world = World::new(1);
    let away = receiver(&mut world);
    world.broker.cut(away);
    let (device, _) = world.back("forwarded");
    publish_some(&mut world, device, 1..1_025);
    world.restart();
    let (client, mut received) = back(&mut world, 40);
    let mut answered = 0;
    while answered < received.len() {
        for id in received[answered..].iter().filter_map(|it| it.packet_id) {
            let answer = Packet::PubAck(Ack::success(id));
            world.broker.send(client, answer);
        }
        answered = received.len();
        received.extend(wait(&mut world, client, 3));
    }
    let (messages, checkpoints) = proven(&received);
    assert_eq!(messages.len(), 1_024);
    assert_eq!((checkpoints[0].1, checkpoints[0].2), (1_024, EpochEnd::Cut));
}

#[test]
fn a_will_is_the_last_message_of_its_lane() {
    let mut world = World::new(1);
    let away = receiver(&mut world);
    world.broker.cut(away);
    let device = world.broker.open(Version::V5);
    let mut properties = PropertyBuf::new();
    properties.push(mqtt::SessionExpiryInterval(100)).unwrap();
    let mut packet = connect("forwarded");
    packet.properties = properties.as_properties();
    packet.will = Some(Will {
        topic: "t",
        payload: b"gone",
        qos: QOS1,
        retain: false,
        properties: Properties::EMPTY,
    });
    world.broker.send(device, Packet::Connect(packet));
    world.broker.stored();
    publish_some(&mut world, device, 1..3);
    world.broker.cut(device);
    world.broker.stored();
    world.restart();
    let (_, received) = back(&mut world, 3);
    let (messages, checkpoints) = proven(&received);
    assert_eq!(messages.len(), 3);
    assert_eq!(checkpoints[0].1, 3);
}

#[test]
fn a_published_end_of_an_epoch_waits_for_an_offline_receiver() {
    let mut world = World::new(1);
    let away = receiver(&mut world);
    let device = join(&mut world.broker, "forwarded");
    publish_some(&mut world, device, 1..3);
    // Everything has been told, and was repeated.
    wait(&mut world, away, 30);
    world.broker.cut(away);
    world.broker.cut(device);
    world.broker.stored();
    let (_, received) = back(&mut world, 1);
    let told = received.iter().rfind(|told| told.topic != "t").unwrap();
    let checkpoint = Checkpoint::parse(&told.payload)
        .unwrap()
        .open(&Xxh3)
        .unwrap();
    assert_eq!((checkpoint.size, checkpoint.end), (2, EpochEnd::Closed));
}

#[test]
fn a_ledger_whose_publisher_has_not_spoken_since_a_crash_is_not_at_rest() {
    let mut world = World::new(1);
    world.resident("s", &[("t", QOS1)]);
    let mut client = world.resident("p", &[]);
    let mut producer = Producer::new();
    for number in 0..1_024 {
        let stamp = producer.issue("x");
        if number == 500 {
            world.restart();
            world.back("p");
            stop(&mut world);
            world.restart();
            (client, _) = world.back("p");
        }
        // Of the last hundred before the crash the disk was not told.
        send(&mut world, client, number < 400, &stamp);
        if number == 399 {
            world.broker.advance(Duration::from_secs(1));
        }
        world.broker.stored();
    }
    let checkpoint = checkpoint(&mut producer, 9);
    tell(&mut world, client, &checkpoint);
    let found = found(&mut world);
    assert_eq!(
        (found.lost, found.windows_unproven, found.windows_faulty),
        (0, 1, 0)
    );
}

#[test]
fn what_was_refused_before_a_crash_may_come_after_it() {
    let mut limits = Limits::default();
    limits.queue_full = QueueFull::Refuse;
    limits.queue_messages_max = 2;
    let mut world = World::new(1);
    world.restart_limited(limits.clone());
    world.broker.stored();
    let away = world.resident("s", &[("t", QOS1)]);
    world.broker.cut(away);
    let client = world.resident("p", &[]);
    let mut producer = Producer::new();
    let stamps: Vec<_> = (0..4).map(|_| producer.issue("x")).collect();
    for (id, stamp) in (1..).zip(&stamps[..3]) {
        send_at(&mut world, client, (QOS1, id), ("t", b"x"), Some(stamp));
        world.broker.stored();
    }
    let refused = world.broker.shards[0].stats().audit.publishers.refused;
    assert_eq!(refused, 1);
    world.broker.advance(Duration::from_secs(1));
    world.broker.stored();
    limits.queue_messages_max = 100;
    world.restart_limited(limits);
    world.broker.stored();
    let (client, _) = world.back("p");
    for (id, stamp) in (10..).zip(&stamps[2..]) {
        send_at(&mut world, client, (QOS1, id), ("t", b"x"), Some(stamp));
        world.broker.stored();
    }
    let found = world.broker.shards[0].stats().audit.publishers;
    assert_eq!(
        (found.verified, found.duplicated, found.reordered),
        (2, 0, 0)
    );
}

#[test]
fn a_ledger_whose_session_is_not_there_is_removed() {
    let world = World::new(1);
    let own = Lane::Own(Own {
        client_id: "nobody".to_owned(),
        user: LaneUser::Unknown,
        lane: 7,
        epoch: 1,
        connected_ms: 0,
        refused: Vec::new(),
        ledger: Vec::new(),
    });
    let mut batch = Batch::new();
    batch.put(
        Space::Lanes,
        own.crash_recovery_key(),
        own.encode_crash_recovery(),
    );
    world.kept.store.commit(&[batch]).unwrap()[0]
        .as_ref()
        .unwrap();
    assert_eq!(on_disk(&world), 1);
    let mut world = world;
    world.restart();
    assert_eq!(on_disk(&world), 0);
}

#[test]
fn what_is_sent_again_after_a_crash_says_nothing_of_what_came_before_it() {
    let mut world = World::new(1);
    world.resident("s", &[("t", QOS1)]);
    let mut client = world.resident("p", &[]);
    let mut producer = Producer::new();
    let mut stamps = Vec::new();
    let mut checkpoints = Vec::new();
    for number in 0..1_024_u64 {
        stamps.push(producer.issue("x"));
        if number + 1 == 800 || number + 1 == 1_024 {
            checkpoints.push(checkpoint(&mut producer, number));
        }
    }
    let order = (0..900).chain([950, 820]).chain(900..950).chain(951..1_024);
    for number in order {
        if number == 950 {
            world.restart();
            (client, _) = world.back("p");
            let again = Publish {
                dup: true,
                qos: QOS1,
                retain: false,
                topic: CHECKPOINTS,
                packet_id: PacketId::new(9),
                properties: Properties::EMPTY,
                payload: &checkpoints[0],
            };
            world.broker.send(client, Packet::Publish(again));
        }
        // Of the last two hundred before the crash the disk was not told.
        send(&mut world, client, number < 700, &stamps[number]);
        if number == 699 {
            world.broker.advance(Duration::from_secs(1));
        }
        world.broker.stored();
    }
    found(&mut world);
    tell(&mut world, client, &checkpoints[1]);
    let found = found(&mut world);
    let faults = (found.lost, found.reordered, found.duplicated);
    assert_eq!(faults, (0, 0, 0), "{found:?}");
    assert_eq!((found.windows_proven, found.windows_faulty), (0, 0));
}
