//! A broker that begins with another number of shards, so that publishers move to other logs.

use unbroken_broker_core::Limits;
use unbroken_mqtt_proto::Packet;
use unbroken_store::moves::{self, MOVES_MAX, Moves};
use unbroken_store::{Batch, LogId, Position, Sequence, Space, Store};

use crate::shard_bus::{join, publish};
use crate::{QOS1, QOS2, World, ack};

/// A publisher whose home is the last shard of three, and of two.
const MOVES_DOWN: &str = "p1";

/// Publishes a message from it that the session waits for.
fn publish_one(world: &mut World, payload: &str) {
    let publisher = join(&mut world.broker, MOVES_DOWN);
    world.broker.send(publisher, publish("t", payload, QOS1, 1));
    world.broker.stored();
    world.settle();
}

/// A session that has been away while the broker began with two shards, and with one.
fn away_over_two_moves() -> World {
    let mut world = World::new(3);
    assert!(world.broker.shards[2].is_home_of(MOVES_DOWN));
    let client = world.resident("s", &[("t", QOS2)]);
    world.broker.cut(client);
    world.settle();
    publish_one(&mut world, "of three");
    world.restart_with(2);
    assert!(world.broker.shards[1].is_home_of(MOVES_DOWN));
    publish_one(&mut world, "of two");
    world.restart();
    publish_one(&mut world, "of two again");
    world.restart_with(1);
    publish_one(&mut world, "of one");
    world
}

const IN_ORDER: [&str; 4] = [
    "PUBLISH t \"of three\" q1 #1",
    "PUBLISH t \"of two\" q1 #2",
    "PUBLISH t \"of two again\" q1 #3",
    "PUBLISH t \"of one\" q1 #4",
];

#[test]
fn a_publisher_that_has_moved_twice_is_read_in_its_order() {
    for shards in [1, 2, 3, 8] {
        let mut world = away_over_two_moves();
        world.restart_with(shards);
        let (_, received) = world.back("s");
        assert_eq!(received[1..], IN_ORDER, "{shards} shards");
    }
}

#[test]
fn who_is_between_two_moves_goes_on_in_order() {
    let mut world = away_over_two_moves();
    let mut limits = Limits::default();
    limits.inflight_max = 2;
    world.broker.reconfigure(limits);
    let (client, received) = world.back("s");
    assert_eq!(received[1..], IN_ORDER[..2]);
    for id in [1, 2] {
        world.broker.send(client, Packet::PubAck(ack(id)));
    }
    world.settle();
    world.restart_with(3);
    publish_one(&mut world, "of three again");
    let (_, received) = world.back("s");
    let payloads = received[1..].iter().map(|packet| {
        let mut parts = packet.split('"');
        parts.nth(1).unwrap_or_default()
    });
    let expected = ["of two again", "of one", "of three again"];
    assert_eq!(payloads.collect::<Vec<_>>(), expected);
}

fn noted(world: &World) -> usize {
    moves::of(&*world.kept.store).unwrap().moves.len()
}

#[test]
fn a_move_is_forgotten_when_all_sessions_are_beyond_it() {
    let mut world = away_over_two_moves();
    assert_eq!(noted(&world), 2);
    let (client, received) = world.back("s");
    assert_eq!(received[1..], IN_ORDER);
    for id in 1..=4 {
        world.broker.send(client, Packet::PubAck(ack(id)));
    }
    world.settle();
    world.restart();
    assert_eq!(noted(&world), 0);
    world.restart_with(2);
    assert_eq!(noted(&world), 0, "nobody waits for anything");
}

#[test]
fn of_very_many_moves_the_oldest_are_forgotten_and_all_comes() {
    let mut world = away_over_two_moves();
    for number in 0..MOVES_MAX {
        world.restart_with(if number % 2 == 0 { 2 } else { 1 });
        publish_one(&mut world, "more");
    }
    assert_eq!(noted(&world), MOVES_MAX);
    let (client, received) = world.back("s");
    let received = world.take_rest(client, received);
    assert_eq!(received.len(), 1 + IN_ORDER.len() + MOVES_MAX);
}

#[test]
fn who_is_behind_by_very_many_moves_is_read_in_order() {
    let mut world = World::new(3);
    let client = world.resident("s", &[("t", QOS1)]);
    world.broker.cut(client);
    world.settle();
    for number in 0..100 {
        publish_one(&mut world, &number.to_string());
        world.restart_with(if number % 2 == 0 { 1 } else { 3 });
    }
    let (client, received) = world.back("s");
    let received = world.take_rest(client, received);
    let payloads = received[1..].iter().map(|packet| packet.split('"').nth(1));
    let expected: Vec<_> = (0..100).map(|number| number.to_string()).collect();
    assert!(payloads.eq(expected.iter().map(|payload| Some(&**payload))));
}

#[test]
fn a_move_in_a_log_that_is_gone_keeps_no_session_waiting() {
    let mut world = away_over_two_moves();
    let of_gone = Position {
        log: LogId(7),
        sequence: Sequence(500),
    };
    let moves = Moves {
        shards: 1,
        moves: vec![vec![of_gone]],
    };
    let mut batch = Batch::new();
    batch.put(Space::Control, moves::KEY.to_vec(), moves.encode());
    world.kept.store.commit(&[batch]).unwrap();
    world.restart();
    assert_eq!(noted(&world), 0);
    let (_, received) = world.back("s");
    assert_eq!(received.len(), 1 + IN_ORDER.len());
}
