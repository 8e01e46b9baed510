//! Packet ids and the order of what was sent, over kills.

use unbroken_broker_core::Limits;
use unbroken_mqtt_proto::{Packet, PacketId};
use unbroken_store::session::{Outbound, Part, key};
use unbroken_store::{Batch, Kv, Space, Store};

use crate::shard_bus::{Client, join, publish};
use crate::{QOS1, QOS2, World, ack};

/// A client that was sent, when its window had room again, "plain" under id 3 and "shared" under id
/// 4, which a group had given to it before; and the publisher.
fn sent_behind_a_closed_window(world: &mut World) -> (Client, Client) {
    let mut limits = Limits::default();
    limits.inflight_max = 2;
    world.broker.reconfigure(limits);
    let client = world.resident("s", &[("u", QOS2), ("$share/g/t", QOS1)]);
    let publisher = join(&mut world.broker, "p");
    for (topic, payload, id) in [
        ("u", "a", 1),
        ("u", "b", 2),
        ("u", "plain", 3),
        ("t", "shared", 4),
    ] {
        let packet = publish(topic, payload, QOS1, id);
        world.broker.send(publisher, packet);
        world.broker.stored();
    }
    let first = ["PUBLISH u \"a\" q1 #1", "PUBLISH u \"b\" q1 #2"];
    assert_eq!(world.broker.take(client), first);
    for id in [1, 2] {
        world.broker.send(client, Packet::PubAck(ack(id)));
    }
    let then = ["PUBLISH u \"plain\" q1 #3", "PUBLISH t \"shared\" q1 #4"];
    assert_eq!(world.broker.take(client), then);
    world.settle();
    (client, publisher)
}

#[test]
fn what_a_group_gave_comes_again_in_its_place_among_what_was_sent() {
    let mut world = World::new(1);
    sent_behind_a_closed_window(&mut world);
    for _ in 0..2 {
        world.restart();
        let (_, received) = world.back("s");
        let expected = [
            "PUBLISH u \"plain\" q1 #3 dup",
            "PUBLISH t \"shared\" q1 #4 dup",
        ];
        assert_eq!(received[1..], expected);
    }
}

#[test]
fn what_a_group_gave_is_not_overtaken_by_what_it_gave_later_and_was_on_disk_first() {
    let mut world = World::new(1);
    let mut limits = Limits::default();
    limits.inflight_max = 2;
    world.broker.reconfigure(limits);
    let client = world.resident("s", &[("$share/g/t", QOS1)]);
    let publisher = join(&mut world.broker, "p");
    for (payload, id) in [("a", 1), ("b", 2), ("waited", 3)] {
        let packet = publish("t", payload, QOS1, id);
        world.broker.send(publisher, packet);
        world.broker.stored();
    }
    for id in [1, 2] {
        world.broker.send(client, Packet::PubAck(ack(id)));
    }
    let later = publish("t", "later", QOS1, 4);
    world.broker.send(publisher, later);
    world.broker.stored();
    let sent = world.broker.take(client);
    assert_eq!(
        sent[2..],
        ["PUBLISH t \"waited\" q1 #3", "PUBLISH t \"later\" q1 #4"]
    );
    // Before the disk is told how far the session is.
    world.restart();
    let (_, received) = world.back("s");
    let place = |payload| received.iter().position(|packet| packet.contains(payload));
    assert!(place("waited") < place("later"), "{received:?}");
}

#[test]
fn an_id_that_is_free_is_not_given_again_at_once_after_a_restart() {
    let mut world = World::new(1);
    sent_behind_a_closed_window(&mut world);
    world.restart();
    let (client, _) = world.back("s");
    world.broker.send(client, Packet::PubAck(ack(4)));
    let publisher = join(&mut world.broker, "p");
    world.broker.send(publisher, publish("u", "next", QOS2, 1));
    world.broker.stored();
    world.broker.stored();
    assert_eq!(world.broker.take(client), ["PUBLISH u \"next\" q2 #5"]);
    world.restart();
    let (_, received) = world.back("s");
    let again = [
        "PUBLISH u \"plain\" q1 #3 dup",
        "PUBLISH t \"shared\" q1 #4 dup",
    ];
    assert_eq!(received[1..3], again, "the end of neither was told");
    assert_eq!(received[3..], ["PUBLISH u \"next\" q2 #5 dup"]);
}

#[test]
fn of_two_messages_under_one_id_the_older_was_over() {
    let mut world = World::new(1);
    let client = world.resident("s", &[("t", QOS2)]);
    let publisher = join(&mut world.broker, "p");
    let entry_on_disk = |world: &World, number| {
        let key = key("s", Part::Outbound(number));
        let found = world.kept.store.get(Space::Sessions, &key).unwrap();
        (key, Outbound::decode(&found.unwrap().bytes).unwrap())
    };
    let mut entries = Vec::new();
    for (number, payload) in [(1, "old"), (2, "new")] {
        world
            .broker
            .send(publisher, publish("t", payload, QOS2, number));
        world.broker.stored();
        world.broker.stored();
        entries.push(entry_on_disk(&world, number.into()));
        world.broker.send(client, Packet::PubRec(ack(number)));
        world.broker.stored();
        world.broker.send(client, Packet::PubComp(ack(number)));
        world.settle();
    }
    // The second had come 65,535 ids later, and all that before the end of the first was told.
    let mut batch = Batch::new();
    for (key, mut entry) in entries {
        entry.packet_id = Some(PacketId::FIRST);
        batch.put(Space::Sessions, key, entry.encode());
    }
    world.kept.store.commit(&[batch]).unwrap();
    for _ in 0..2 {
        world.restart();
        let (_, received) = world.back("s");
        assert_eq!(received[1..], ["PUBLISH t \"new\" q2 #1 dup"]);
    }
    world.settle();
    world.restart();
    let (client, _) = world.back("s");
    world.broker.send(client, Packet::PubRec(ack(1)));
    world.broker.stored();
    world.broker.send(client, Packet::PubComp(ack(1)));
    world.settle();
    world.restart();
    let (_, received) = world.back("s");
    assert_eq!(received, ["CONNACK 1 00"]);
}
