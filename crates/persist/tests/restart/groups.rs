//! Messages of QoS 2 on their way to members of groups on other shards, over kills.

use std::collections::BTreeMap;
use std::time::Duration;

use unbroken_broker_core::{DropReason, Limits, LogId};
use unbroken_mqtt_proto::{Packet, PacketId, QoS};
use unbroken_store::{Kv, Space, expected_deliveries};

use crate::kills::again;
use crate::limits::{dropped, is_balanced, pass};
use crate::shard_bus::{Client, join, publish, stay, subscribe, unsubscribe};
use crate::{QOS1, QOS2, World, ack};

/// How far a message is when the broker is killed.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Killed {
    /// On the disk of the publisher's shard, and on its way to the others.
    OnTheWay,
    /// Given to members, and that is not on disk.
    Given,
    /// ... it is, and the publisher's shard does not know.
    GivenOnDisk,
    /// ... and those who are here have done with it.
    Done,
    /// The publisher is answered, and what was noted is not yet forgotten on disk.
    Answered,
}

const KILLED: [Killed; 5] = [
    Killed::OnTheWay,
    Killed::Given,
    Killed::GivenOnDisk,
    Killed::Done,
    Killed::Answered,
];

/// Takes what has come, and acknowledges it; how many messages came for the first time.
fn take_all(world: &mut World, client: Client) -> usize {
    let mut came = 0;
    for _ in 0..8 {
        for packet in world.broker.take(client) {
            let id = packet.split('#').nth(1).map(|rest| rest.split(' ').next());
            let Some(id) = id.flatten().and_then(|id| id.parse().ok()) else {
                continue;
            };
            if packet.starts_with("PUBLISH") {
                came += 1;
                world.broker.send(client, Packet::PubRec(ack(id)));
            } else if packet.starts_with("PUBREL") {
                world.broker.send(client, Packet::PubComp(ack(id)));
            }
        }
        world.broker.stored();
    }
    came
}

/// Publishes to two groups and a subscriber, kills the broker, and publishes again as a client does
/// that had no answer. How many messages each got.
fn publish_over_a_kill(
    publisher: &str,
    groups: [&str; 2],
    are_here: bool,
    killed: Killed,
) -> BTreeMap<String, usize> {
    let mut world = World::new(3);
    let mut members = Vec::new();
    for group in groups {
        for member in ["a", "b", "c"] {
            let id = format!("{group}-{member}");
            let client = world.resident(&id, &[(&format!("$share/{group}/t"), QOS2)]);
            members.push((group.to_owned(), id, client));
        }
    }
    let client = world.resident("plain", &[("t", QOS2)]);
    members.push(("plain".to_owned(), "plain".to_owned(), client));
    if !are_here {
        for (_, _, client) in &members {
            world.broker.cut(*client);
        }
    }
    let from = world.resident(publisher, &[]);
    world.settle();
    world.broker.take(from);
    let mut came = BTreeMap::new();
    let mut count = |world: &mut World, group: &str, client| {
        *came.entry(group.to_owned()).or_insert(0) += take_all(world, client);
    };
    world.broker.hold_messages = true;
    world.broker.send(from, publish("t", "x", QOS2, 1));
    world.broker.stored();
    if killed != Killed::OnTheWay {
        world.broker.deliver_messages();
    }
    if !matches!(killed, Killed::OnTheWay | Killed::Given) {
        world.broker.stored();
        for (group, _, client) in members.iter().filter(|_| are_here) {
            if killed == Killed::Done {
                count(&mut world, group, *client);
            }
        }
        world.broker.advance(Duration::from_secs(1));
        world.broker.stored();
    }
    if killed == Killed::Answered {
        world.broker.deliver_messages();
        assert_eq!(world.broker.take(from), ["PUBREC #1 00"]);
    }
    world.restart();
    let (from, _) = world.back(publisher);
    world.broker.send(from, again(publish("t", "x", QOS2, 1)));
    world.broker.stored();
    assert_eq!(world.broker.take(from), ["PUBREC #1 00"]);
    world.broker.send(from, Packet::PubRel(ack(1)));
    world.settle();
    assert_eq!(world.broker.take(from), ["PUBCOMP #1 00"]);
    for (group, id, _) in &members {
        let (client, received) = world.back(id);
        let ids = received
            .iter()
            .filter(|packet| packet.starts_with("PUBLISH"));
        let ids: Vec<_> = ids
            .map(|packet| packet.split(['#', ' ']).nth(5).unwrap().to_owned())
            .collect();
        *came.entry(group.clone()).or_insert(0) += ids.len();
        for id in ids {
            let id = PacketId::new(id.parse().unwrap()).unwrap();
            world.broker.send(client, Packet::PubRec(ack(id.get())));
        }
        world.settle();
    }
    let noted = world
        .kept
        .store
        .scan(Space::Control, expected_deliveries::PREFIX, None, 1)
        .unwrap();
    assert!(noted.pairs.is_empty(), "what was noted is over");
    came
}

#[test]
fn a_message_that_a_group_owes_when_the_broker_is_killed_is_given_to_one_member_and_one_only() {
    for (publisher, groups) in [("p", ["g", "h"]), ("q", ["g", "i"]), ("r", ["h", "j"])] {
        for (are_here, killed) in [true, false]
            .into_iter()
            .flat_map(|here| KILLED.map(|at| (here, at)))
        {
            let came = publish_over_a_kill(publisher, groups, are_here, killed);
            let counts: Vec<_> = came.values().copied().collect();
            assert_eq!(
                counts,
                [1, 1, 1],
                "{publisher}, here: {are_here}, killed {killed:?}: {came:?}"
            );
        }
    }
}

#[test]
fn what_a_group_had_for_members_at_qos_0_is_not_given_again_to_one_that_wants_more_by_then() {
    for group in ["g", "h", "i", "j"] {
        let filter = format!("$share/{group}/t");
        let mut world = World::new(3);
        let client = world.resident("p", &[(&filter, QoS::AtMostOnce)]);
        world.settle();
        world.broker.hold_messages = true;
        world.broker.send(client, publish("t", "x", QOS2, 1));
        world.broker.stored();
        subscribe(&mut world.broker, client, &filter, QOS2);
        world.broker.stored();
        // On another shard the group has not heard of that, and what it gives is not on disk.
        world.broker.deliver_messages();
        assert_eq!(world.broker.take_payloads(client), [b"x"], "{group}");
        world.restart();
        let (_, received) = world.back("p");
        assert_eq!(received, ["CONNACK 1 00"], "{group}");
    }
}

/// The publisher's shard knows of one group that keeps messages, and not yet that another does.
#[test]
fn what_a_group_has_given_that_was_not_known_to_keep_messages_is_not_given_again() {
    for (group, publisher) in ["g", "i", "j"]
        .into_iter()
        .flat_map(|group| ["p", "q", "r", "o"].map(|publisher| (group, publisher)))
    {
        for carried in 0..6 {
            let filter = format!("$share/{group}/t");
            let mut world = World::new(3);
            world.resident("known", &[("$share/h/t", QOS2)]);
            let from = world.resident(publisher, &[]);
            let first = join(&mut world.broker, "first");
            subscribe(&mut world.broker, first, &filter, QOS2);
            world.settle();
            world.broker.hold_messages = true;
            let member = stay(&mut world.broker, "s", false);
            subscribe(&mut world.broker, member, &filter, QOS2);
            for _ in 0..carried {
                world.broker.deliver_message();
            }
            world.broker.send(from, publish("t", "x", QOS2, 1));
            world.broker.stored();
            world.broker.deliver_messages();
            // All is on disk, and the publisher's shard does not know.
            world.broker.stored();
            let mut came = world.broker.take_payloads(first).len();
            world.restart();
            for (client_id, before) in [("s", came), ("known", 0)] {
                let (_, received) = world.back(client_id);
                let publishes = received.iter().filter(|one| one.starts_with("PUBLISH"));
                came = before + publishes.count();
                assert_eq!(came, 1, "{client_id}: {group} {publisher} {carried}");
            }
        }
    }
}

/// A message is on its way to a group with one member, `s`, and this filter.
fn on_the_way(group: &str, publisher: &str) -> (World, Client, String) {
    let filter = format!("$share/{group}/t");
    let mut world = World::new(3);
    let member = world.resident("s", &[(&filter, QOS2)]);
    let from = world.resident(publisher, &[]);
    world.settle();
    world.broker.hold_messages = true;
    world.broker.send(from, publish("t", "x", QOS2, 1));
    world.broker.stored();
    (world, member, filter)
}

/// A message is on its way to a group when something becomes of its members, and the broker is
/// killed; its publisher sends it again. How often it came to these clients then.
fn owed_over_a_kill(
    (group, publisher): (&str, &str),
    meanwhile: impl Fn(&mut World, Client, &str),
    members: &[&str],
) -> usize {
    let (mut world, member, filter) = on_the_way(group, publisher);
    meanwhile(&mut world, member, &filter);
    world.broker.stored();
    // What is not needed any more of subscriptions is gone from the disk.
    world.broker.advance(Duration::from_secs(1));
    world.broker.stored();
    world.restart();
    let (from, _) = world.back(publisher);
    world.broker.send(from, again(publish("t", "x", QOS2, 1)));
    world.broker.stored();
    assert_eq!(world.broker.take(from), ["PUBREC #1 00"]);
    let mut came = 0;
    for member in members {
        let (_, received) = world.back(member);
        let publishes = received.iter().filter(|one| one.starts_with("PUBLISH"));
        came += publishes.count();
    }
    came
}

fn groups_and_publishers() -> impl Iterator<Item = (&'static str, &'static str)> {
    let groups = ["g", "h", "i", "j"].into_iter();
    groups.flat_map(|group| ["p", "q", "r", "o"].map(|publisher| (group, publisher)))
}

#[test]
fn a_member_that_subscribes_again_is_given_what_its_group_owes_when_the_broker_is_killed() {
    for at in groups_and_publishers() {
        for qos in [QOS1, QOS2] {
            let again = |world: &mut World, member, filter: &str| {
                subscribe(&mut world.broker, member, filter, qos);
            };
            let came = owed_over_a_kill(at, again, &["s"]);
            assert_eq!(came, 1, "{at:?}, {qos:?}");
        }
    }
}

#[test]
fn a_member_that_came_later_is_given_what_its_group_owes_whose_first_one_has_left() {
    for at in groups_and_publishers() {
        let leave = |world: &mut World, member, filter: &str| {
            let other = stay(&mut world.broker, "s2", false);
            world.broker.stored();
            subscribe(&mut world.broker, other, filter, QOS2);
            world.broker.stored();
            unsubscribe(&mut world.broker, member, filter);
        };
        let came = owed_over_a_kill(at, leave, &["s", "s2"]);
        assert_eq!(came, 1, "{at:?}");
    }
}

#[test]
fn what_a_group_owes_that_has_no_member_any_more_is_named() {
    let mut named = 0;
    for (group, publisher) in groups_and_publishers() {
        let (mut world, member, filter) = on_the_way(group, publisher);
        unsubscribe(&mut world.broker, member, &filter);
        world.broker.stored();
        world.restart();
        let (_, received) = world.back("s");
        assert!(!received.iter().any(|one| one.starts_with("PUBLISH")));
        named += world.undelivered.len();
        let what = format!("group {filter}: a message on t was not delivered when");
        assert!(world.undelivered.iter().all(|one| one.starts_with(&what)));
    }
    assert!(named > 0, "it never happened");
}

/// The message to the member that a group has chosen may be late. Its entry will refer to the log.
#[test]
fn the_log_is_held_while_a_group_gives_a_message() {
    for (group, member) in ["g", "h", "i", "j"].map(|group| (group, format!("of-{group}"))) {
        for qos in [QOS1, QOS2] {
            let mut world = World::new(2);
            world.resident(&member, &[(&format!("$share/{group}/t"), qos)]);
            let publisher = stay(&mut world.broker, "p", false);
            world.settle();
            world.broker.take(publisher);
            let log = LogId(u16::try_from(world.broker.shard_of(publisher)).unwrap());
            world.broker.hold_messages = true;
            world.broker.send(publisher, publish("t", "x", qos, 1));
            let mut carried = 0;
            while world.broker.take(publisher).is_empty() {
                world.broker.stored();
                let shards = world.broker.shards.iter();
                let needed = shards.map(|shard| shard.needed().of(log)).min();
                assert_eq!(needed, Some(0), "{group} {qos:?}, {carried} messages");
                carried += u32::from(world.broker.deliver_message());
            }
        }
    }
}

// As of any other message: `limits.rs`.
#[test]
fn the_id_of_a_group_message_that_was_let_go_after_a_restart_stays_over_the_next_one() {
    let mut limits = Limits::default();
    limits.queue_age_max_s = 40;
    for filter in ["t", "$share/g/t"] {
        let mut world = World::new(1);
        let away = world.resident("s", &[(filter, QOS2)]);
        let publisher = join(&mut world.broker, "p");
        world.broker.send(publisher, publish("t", "1", QOS2, 1));
        world.settle();
        assert_eq!(world.broker.take(away), ["PUBLISH t \"1\" q2 #1"]);
        world.broker.cut(away);
        world.settle();
        world.restart_limited(limits.clone());
        pass(&mut world, 60);
        assert_eq!(dropped(&world, DropReason::TooOld), 1);
        world.settle();
        world.restart();
        let publisher = join(&mut world.broker, "q");
        world.broker.send(publisher, publish("t", "2", QOS2, 1));
        world.settle();
        let (_, received) = world.back("s");
        let expected = ["CONNACK 1 00", "PUBREL #1 00", "PUBLISH t \"2\" q2 #2"];
        assert_eq!(received, expected, "{filter}");
        is_balanced(&world);
    }
}
