//! Messages that wait for offline sessions, and what of them the logs must keep.

use super::*;

#[test]
fn what_was_acknowledged_reaches_a_session_that_was_away_over_a_restart() {
    for shards in [1, 3] {
        let mut world = World::new(shards);
        let away = world.resident("s", &[("t/#", QOS1)]);
        world.broker.cut(away);
        world.settle();
        let publisher = join(&mut world.broker, "p");
        for id in 1..=5 {
            let topic = format!("t/{id}");
            world.broker.send(publisher, publish(&topic, "x", QOS1, id));
        }
        world.broker.stored();
        assert_eq!(world.broker.take(publisher).len(), 5);
        world.restart();
        let (_, received) = world.back("s");
        let mut expected = vec!["CONNACK 1 00".to_owned()];
        expected.extend((1..=5).map(|id| format!("PUBLISH t/{id} \"x\" q1 #{id}")));
        assert_eq!(received, expected, "{shards} shards");
    }
}

#[test]
fn what_comes_while_a_session_catches_up_comes_behind_and_once() {
    let mut world = World::new(1);
    let away = world.resident("s", &[("t", QOS1), ("+", QOS2)]);
    world.broker.cut(away);
    let publisher = join(&mut world.broker, "p");
    for id in 1..=3 {
        world
            .broker
            .send(publisher, publish("t", &id.to_string(), QOS1, id));
    }
    world.broker.stored();
    let client = stay(&mut world.broker, "s", false);
    for id in 4..=6 {
        world
            .broker
            .send(publisher, publish("t", &id.to_string(), QOS1, id));
    }
    world.broker.stored();
    for id in 7..=8 {
        world
            .broker
            .send(publisher, publish("t", &id.to_string(), QOS1, id));
    }
    world.broker.stored();
    let received = world.broker.take(client);
    let expected: Vec<_> = (1..=8)
        .map(|id| format!("PUBLISH t \"{id}\" q1 #{id}"))
        .collect();
    assert_eq!(received[1..], expected);
    assert_eq!(world.broker.shards[0].audit_imbalance(), 0);
}

#[test]
fn a_session_gets_what_its_subscriptions_were_for_at_the_time() {
    let mut world = World::new(1);
    let client = world.resident("s", &[("a", QOS1), ("b", QOS1)]);
    let publisher = join(&mut world.broker, "p");
    world.broker.cut(client);
    world
        .broker
        .send(publisher, publish("a", "before", QOS1, 1));
    world
        .broker
        .send(publisher, publish("b", "before", QOS1, 2));
    world
        .broker
        .send(publisher, publish("c", "before", QOS1, 3));
    world.broker.stored();
    // It comes back with a closed window, so that it stays behind, and changes its mind.
    let client = stay(&mut world.broker, "s", false);
    let filters = ["a"];
    let packet = Unsubscribe {
        packet_id: PacketId::FIRST,
        properties: Properties::EMPTY,
        filters: TopicFilters::new(&filters),
    };
    world.broker.send(client, Packet::Unsubscribe(packet));
    subscribe(&mut world.broker, client, "c", QOS1);
    world.broker.stored();
    for (topic, id) in [("a", 4), ("b", 5), ("c", 6)] {
        world
            .broker
            .send(publisher, publish(topic, "after", QOS1, id));
    }
    world.settle();
    world.broker.take(client);
    world.broker.cut(client);
    world.settle();
    world.restart();
    let (_, received) = world.back("s");
    let mut received = received;
    received.retain(|packet| packet.starts_with("PUBLISH"));
    assert_eq!(
        received,
        [
            "PUBLISH a \"before\" q1 #1 dup",
            "PUBLISH b \"before\" q1 #2 dup",
            "PUBLISH b \"after\" q1 #3 dup",
            "PUBLISH c \"after\" q1 #4 dup",
        ]
    );
}

#[test]
fn more_than_memory_holds_waits_on_disk_in_order() {
    let mut world = World::new(1);
    let slow = world.resident("s", &[("t", QOS1)]);
    let publisher = join(&mut world.broker, "p");
    let total = 5_000_u16;
    for id in 1..=total {
        world
            .broker
            .send(publisher, publish("t", &id.to_string(), QOS1, id));
        world.broker.stored();
    }
    world.broker.take(publisher);
    let mut received = Vec::new();
    loop {
        let packets = world.broker.take(slow);
        if packets.is_empty() {
            break;
        }
        for packet in packets {
            let (payload, id) = packet.split_once(" q1 #").unwrap();
            received.push(payload.to_owned());
            world
                .broker
                .send(slow, Packet::PubAck(ack(id.parse().unwrap())));
        }
        world.broker.stored();
    }
    let expected: Vec<_> = (1..=total)
        .map(|id| format!("PUBLISH t \"{id}\""))
        .collect();
    assert_eq!(received, expected);
    assert_eq!(world.broker.shards[0].audit_imbalance(), 0);
    let stats = world.broker.shards[0].stats();
    assert_eq!(stats.messages_waiting, 0);
    assert_eq!(stats.audit.faults(), 0);
}

#[test]
fn a_session_that_is_away_for_too_long_loses_the_oldest_by_name() {
    let mut world = World::new(1);
    let mut limits = Limits::default();
    limits.queue_messages_max = 3;
    world.broker.reconfigure(limits);
    let away = world.resident("s", &[("t", QOS1)]);
    world.broker.cut(away);
    let publisher = join(&mut world.broker, "p");
    for id in 1..=5 {
        let payload = id.to_string();
        world
            .broker
            .send(publisher, publish("t", &payload, QOS1, id));
    }
    world.broker.stored();
    // Nobody has looked at what goes.
    assert_eq!(world.broker.shards[0].stats().messages_waiting, 5);
    let (_, received) = world.back("s");
    assert_eq!(world.broker.shards[0].stats().messages_waiting, 3);
    let expected = ["3", "4", "5"].map(|payload| format!("PUBLISH t \"{payload}\""));
    let received: Vec<_> = received[1..]
        .iter()
        .map(|p| p.split(" q1").next().unwrap())
        .collect();
    assert_eq!(received, expected);
    let stats = world.broker.shards[0].stats();
    assert_eq!(stats.dropped[DropReason::QueueFull as usize], 2);
    assert_eq!(world.broker.shards[0].audit_imbalance(), 0);
}

#[test]
fn what_no_session_needs_may_be_trimmed() {
    let mut world = World::new(1);
    let client = world.resident("s", &[("t", QOS1)]);
    let publisher = join(&mut world.broker, "p");
    for id in 1..=3 {
        world.broker.send(publisher, publish("t", "x", QOS1, id));
    }
    world.broker.stored();
    let log = LogId(0);
    assert_eq!(world.broker.shards[0].needed().of(log), 0);
    world.broker.send(client, Packet::PubAck(ack(1)));
    assert_eq!(world.broker.shards[0].needed().of(log), 1);
    for id in [2, 3] {
        world.broker.send(client, Packet::PubAck(ack(id)));
    }
    assert_eq!(world.broker.shards[0].needed().of(log), 3);
    world.broker.cut(client);
    // Another's message does not keep the log for one that is away.
    let other = world.resident("o", &[("u", QOS1)]);
    world.broker.cut(other);
    world.broker.send(publisher, publish("u", "x", QOS1, 4));
    assert_eq!(world.broker.shards[0].needed().of(log), 3);
}

#[test]
fn a_shard_that_wants_nothing_of_a_log_does_not_hold_on_to_it() {
    let mut world = World::new(2);
    // Both of this shard, whichever that is; the other has no session at all.
    let sleeper = world.resident("s", &[("t", QOS1)]);
    let publisher = stay(&mut world.broker, "s-too", false);
    world.broker.stored();
    world.broker.send(publisher, publish("t", "x", QOS1, 1));
    world.settle();
    world.broker.send(sleeper, Packet::PubAck(ack(1)));
    world.settle();
    world.broker.advance(Duration::from_secs(5));
    let needed = world.broker.shards.iter().map(|shard| {
        let logs = shard.needed();
        logs.iter().map(|(_, number)| number).sum::<u64>()
    });
    assert_eq!(needed.collect::<Vec<_>>(), [1, 1]);
}
