//! Lanes of the proof over a restart.

use std::collections::BTreeSet;
use std::time::{Duration, UNIX_EPOCH};

use unbroken_merkle_log::{Epoch, Lane, LaneId, LaneLimits, Xxh3};
use unbroken_mqtt_proto::{Packet, PacketId, Property, PropertyBuf, Publish, QoS};
use unbroken_persist::{Times, restore};
use unbroken_store::{Log, LogId, Memory, Sequence};

use crate::shard_bus::{Client, publish, stay};
use crate::{QOS1, World};

/// Epoch and number of each message in the log.
fn marks(world: &World) -> Vec<(u32, u64)> {
    let all = Sequence::FIRST..Sequence::END;
    let chunk = world.kept.store.read(LogId(0), all, usize::MAX).unwrap();
    let marks = chunk.entries.iter().map(|entry| {
        let mark = entry.message.record().mark.unwrap();
        (mark.epoch, mark.number)
    });
    marks.collect()
}

/// The broker stops in good order.
pub(crate) fn stop(world: &mut World) {
    world.broker.drain();
    world.broker.stored();
}

pub(crate) fn publish_some(world: &mut World, client: Client, payloads: std::ops::Range<u16>) {
    for id in payloads {
        let payload = id.to_string();
        let packet = publish("t", &payload, QOS1, id);
        world.broker.send(client, packet);
        world.broker.stored();
    }
    world.broker.take(client);
}

#[test]
fn a_lane_goes_on_after_the_broker_has_stopped_in_good_order() {
    let mut world = World::new(1);
    world.resident("s", &[("t", QOS1)]);
    let mut client = world.resident("p", &[]);
    let mut id = 1;
    for _ in 0..3 {
        publish_some(&mut world, client, id..id + 3);
        // What is nowhere on disk has a number too.
        let unstored = publish("t", "x", QoS::AtMostOnce, 0);
        world.broker.send(client, unstored);
        id += 3;
        stop(&mut world);
        world.restart();
        (client, _) = world.back("p");
    }
    publish_some(&mut world, client, id..id + 1);
    let marks = marks(&world);
    let epoch = marks[0].0;
    let expected = [0, 1, 2, 4, 5, 6, 8, 9, 10, 12].map(|number| (epoch, number));
    assert_eq!(marks, expected);
}

#[test]
fn no_number_is_given_twice_when_the_broker_is_killed() {
    let mut world = World::new(1);
    world.resident("s", &[("t", QOS1)]);
    let mut client = world.resident("p", &[]);
    let mut id = 1;
    for stops in [false, true, false, false, true, true] {
        publish_some(&mut world, client, id..id + 2);
        id += 2;
        if stops {
            stop(&mut world);
        }
        world.restart();
        (client, _) = world.back("p");
    }
    publish_some(&mut world, client, id..id + 2);
    let marks = marks(&world);
    let distinct: BTreeSet<_> = marks.iter().copied().collect();
    assert_eq!(distinct.len(), marks.len(), "{marks:?}");
    assert!(marks.is_sorted(), "later epochs come later: {marks:?}");
    let epochs: BTreeSet<_> = marks.iter().map(|(epoch, _)| epoch).collect();
    assert_eq!(epochs.len(), 4, "one more for each time it was killed");
}

#[test]
fn no_client_is_accepted_before_stored_lanes_are_void() {
    let mut world = World::new(1);
    let client = world.resident("p", &[]);
    publish_some(&mut world, client, 1..3);
    stop(&mut world);
    world.restart_quietly(1);
    for client_id in ["p", "another"] {
        let client = stay(&mut world.broker, client_id, false);
        assert_eq!(world.broker.take(client), [""; 0]);
    }
    // It is killed before anything was stored: the lane is still at rest, and nothing was numbered.
    world.restart();
    let (client, _) = world.back("p");
    world.resident("s", &[("t", QOS1)]);
    publish_some(&mut world, client, 3..4);
    assert_eq!(marks(&world)[0].1, 2);
}

/// A client that stamps what it publishes.
pub(crate) struct Producer {
    pub(crate) lane: Lane,
}

impl Producer {
    pub(crate) fn new() -> Self {
        let lane = LaneId::new(7).unwrap();
        let limits = LaneLimits::default();
        Self {
            lane: Lane::new(lane, Epoch(1), limits, Duration::ZERO),
        }
    }

    /// A message with the next stamp.
    pub(crate) fn issue(&mut self, payload: &str) -> String {
        let stamp = self.lane.issue(*b"t", payload.as_bytes(), &Xxh3);
        stamp.to_text()
    }
}

/// Sends a message of QoS 0, with a stamp.
fn send(world: &mut World, client: Client, topic: &str, payload: &[u8], stamp: Option<&str>) {
    send_at(world, client, (QoS::AtMostOnce, 0), (topic, payload), stamp);
}

/// Sends a message with this id, and with a stamp.
pub(crate) fn send_at(
    world: &mut World,
    client: Client,
    (qos, id): (QoS, u16),
    (topic, payload): (&str, &[u8]),
    stamp: Option<&str>,
) {
    let mut properties = PropertyBuf::new();
    if let Some(stamp) = stamp {
        let property = Property::UserProperty("audit", stamp);
        properties.push(property).unwrap();
    }
    let packet = Publish {
        dup: false,
        qos,
        retain: false,
        topic,
        packet_id: PacketId::new(id),
        properties: properties.as_properties(),
        payload,
    };
    world.broker.send(client, Packet::Publish(packet));
}

#[test]
fn a_window_of_a_publishers_own_lane_is_proven_over_a_stop_and_never_lost_over_a_crash() {
    for stops in [true, false] {
        let mut world = World::new(1);
        let mut client = world.resident("p", &[]);
        let mut producer = Producer::new();
        for number in 0..1_024 {
            if number == 700 {
                if stops {
                    stop(&mut world);
                }
                world.restart();
                (client, _) = world.back("p");
            }
            let stamp = producer.issue("x");
            send(&mut world, client, "t", b"x", Some(&stamp));
            if number == 710 {
                // It comes again, and was known before the broker stopped.
                let again = Producer::new().issue("x");
                send(&mut world, client, "t", b"x", Some(&again));
            }
        }
        let now = Duration::from_secs(1_000);
        let checkpoint = producer.lane.poll_checkpoint(now, 0, &Xxh3).unwrap();
        let mut payload = Vec::new();
        checkpoint.encode(&Xxh3, &mut payload);
        let topic = "audit/checkpoint/0000000000000007";
        send(&mut world, client, topic, &payload, None);
        for _ in 0..5 {
            world.broker.advance(Duration::from_secs(1));
        }
        let found = world.broker.shards[0].stats().audit.publishers;
        // Behind a crash the rest of the window is out of scope.
        let judged = if stops { (324 + 1, 0) } else { (0, 324 + 1) };
        assert_eq!((found.verified, found.unaudited), judged, "{found:?}");
        assert_eq!((found.lost, found.altered, found.injected), (0, 0, 0));
        let again = (found.duplicated, found.repeated);
        assert_eq!(again, (0, u64::from(stops)), "{found:?}");
        assert_eq!(found.windows_proven, u64::from(stops), "{found:?}");
        assert_eq!(found.windows_faulty, 0);
    }
}

/// Where commits are not synced a power cut leaves nothing of a run but what it had when it began,
/// and the machine may be back before the time is beyond its epochs.
#[test]
fn a_run_of_which_nothing_is_left_has_begun_its_epochs_all_the_same() {
    let (store, now) = (Memory::new(), World::new(1).broker.now);
    let times = Times::new(now, UNIX_EPOCH + Duration::from_secs(1_000));
    let floor = |after_s| {
        let now = now + Duration::from_secs(after_s);
        let restored = restore(&store, 1, now, &times);
        restored.unwrap().floor
    };
    assert_eq!(floor(0), 1_000, "nobody was before");
    assert_eq!(floor(5), 1_060 + 5, "beyond what a run begins ahead");
    assert_eq!(floor(10), 1_120 + 5);
    assert_eq!(floor(1_000), 2_000 + 60, "the time is further");
}
