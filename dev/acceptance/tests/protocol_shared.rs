//! Shared subscriptions: each message of a group goes to one member, and none is lost when one
//! leaves.

use std::collections::HashSet;
use std::time::Duration;

use unbroken_acceptance::raw::{
    AckKind, Connect, Publish, Subscribe, Unsubscribe, Version, ack_with_reason, id, reason,
};
use unbroken_acceptance::{Broker, Client, Launch, case, collect};

/// [MQTT-3.8.3-4]
#[test]
fn no_local_on_a_shared_subscription_is_a_protocol_error() {
    let broker = Broker::start();
    let mut client = broker.connect("c");
    client.send(Subscribe::to("$share/g/a", Subscribe::NO_LOCAL).encode(Version::V5, 1));
    client.expect_disconnect(reason::PROTOCOL_ERROR);
}

/// [MQTT-4.8.2-1, MQTT-4.8.2-2]
#[test]
fn a_shared_filter_without_a_proper_name_or_filter_ends_the_connection() {
    let broker = Broker::start();
    for filter in [
        "$share",
        "$share/",
        "$share/g",
        "$share/g/",
        "$share//a",
        "$share/+/a",
        "$share/#/a",
        "$share/g#/a",
    ] {
        for version in Version::ALL {
            case(&format!("{version:?}: {filter}"));
            let mut client = broker.connect_as(version, "c");
            client.send(Subscribe::to(filter, 0).encode(version, 1));
            client.expect_dropped(reason::PROTOCOL_ERROR);
            let mut client = broker.connect_as(version, "c");
            client.send(Unsubscribe::from(&[filter]).encode(version, 1));
            client.expect_dropped(reason::PROTOCOL_ERROR);
        }
    }
}

/// [MQTT-3.1.2-24]
#[test]
fn a_message_goes_to_a_member_that_takes_packets_as_long() {
    for shards in [1, 3] {
        let broker = Launch::default().shards(shards).start();
        for qos in 0..=2 {
            case(&format!("{shards} shards, quality {qos}"));
            // So long that a PUBLISH of 100 bytes of payload is one too many.
            let frame = Publish::new("a", "x".repeat(100)).qos(qos).packet_id(1);
            let length = u32::try_from(frame.encode(Version::V5).len()).unwrap();
            let connect = Connect::v5("small").property(id::MAXIMUM_PACKET_SIZE, length - 1);
            let mut small = broker.accept(&connect);
            small.subscribe_to("$share/g/a", qos);
            let connect = Connect::v5("exact").property(id::MAXIMUM_PACKET_SIZE, length);
            let mut exact = broker.accept(&connect);
            exact.subscribe_to("$share/g/a", qos);
            let mut plain = broker.connect_as(Version::V3_1_1, "plain");
            plain.subscribe_to("$share/g/a", qos);
            let mut publisher = broker.connect("publisher");
            for number in 0..20 {
                let payload = format!("{number:0100}");
                publisher.publish(Publish::new("a", payload).qos(qos));
            }
            let members = &mut [&mut small, &mut exact, &mut plain];
            let counts: Vec<_> = collect(members, 20).iter().map(Vec::len).collect();
            assert_eq!(counts, [0, 10, 10]);
            publisher.publish(Publish::new("a", "short").qos(qos));
            small.take_message("a", "short");
            for client in [small, exact, plain] {
                client.disconnect();
            }
        }
    }
}

/// A group: its members, all subscribed to `$share/<name>/<filter>`.
#[track_caller]
fn group(broker: &Broker, name: &str, filter: &str, qos: u8, size: usize) -> Vec<Client> {
    (0..size)
        .map(|number| {
            let mut member = broker.connect(&format!("{name} {number}"));
            member.subscribe_to(&format!("$share/{name}/{filter}"), qos);
            member
        })
        .collect()
}

#[track_caller]
fn collect_all(members: &mut [Client], count: usize) -> Vec<Vec<Publish>> {
    collect(&mut members.iter_mut().collect::<Vec<_>>(), count)
}

/// [MQTT-4.8.2-3]
#[test]
fn each_message_reaches_exactly_one_member_of_each_group() {
    let broker = Broker::start();
    let mut first = group(&broker, "first", "a/#", 1, 3);
    let mut second = group(&broker, "second", "a/#", 0, 2);
    let mut alone = broker.connect("alone");
    alone.subscribe_to("a/b", 1);
    let mut publisher = broker.connect("publisher");
    for number in 0..60 {
        publisher.publish(Publish::new("a/b", number.to_string()).qos(1));
    }
    for members in [&mut first, &mut second] {
        let shares = collect_all(members, 60);
        let texts: HashSet<String> = shares.iter().flatten().map(Publish::text).collect();
        assert_eq!(texts.len(), 60, "each message once");
        let fewest = shares.iter().map(Vec::len).min().unwrap();
        assert!(
            fewest >= 5,
            "shares are fair: {:?}",
            shares.iter().map(Vec::len).collect::<Vec<_>>()
        );
    }
    assert_eq!(alone.messages_from(&mut publisher).len(), 60);
}

/// [MQTT-4.8.2-3]
#[test]
fn members_of_a_group_get_the_quality_they_were_granted() {
    let broker = Broker::start();
    let mut members = group(&broker, "g", "a", 0, 1);
    let mut publisher = broker.connect("publisher");
    publisher.publish(Publish::new("a", "x").qos(2));
    assert_eq!(members[0].take_message("a", "x").qos, 0);
}

#[test]
fn shared_subscriptions_get_no_retained_messages_when_they_start() {
    let broker = Broker::start();
    let mut publisher = broker.connect("publisher");
    publisher.publish(Publish::new("a", "kept").qos(1).retained());
    let mut members = group(&broker, "g", "a", 1, 1);
    members[0].expect_nothing_from(&mut publisher);
    publisher.publish(Publish::new("a", "live").qos(1));
    members[0].take_message("a", "live");
}

#[test]
fn shared_subscriptions_exist_in_3_1_1_too() {
    let broker = Broker::start();
    let mut members: Vec<Client> = (0..2)
        .map(|number| {
            let mut member = broker.connect_as(Version::V3_1_1, &format!("member{number}"));
            member.subscribe_to("$share/g/a", 1);
            member
        })
        .collect();
    let mut publisher = broker.connect_as(Version::V3_1_1, "publisher");
    for number in 0..20 {
        publisher.publish(Publish::new("a", number.to_string()).qos(1));
    }
    let shares = collect_all(&mut members, 20);
    assert!(shares.iter().all(|share| !share.is_empty()));
}

/// A subscription of one's own beside the shared one gives a copy of its own.
#[test]
fn a_shared_and_a_plain_subscription_of_one_client_both_deliver() {
    let broker = Broker::start();
    let mut client = broker.connect("c");
    client.subscribe(&Subscribe::to("$share/g/a", 1).identified(1));
    client.subscribe(&Subscribe::to("a", 1).identified(2));
    let mut publisher = broker.connect("publisher");
    publisher.publish(Publish::new("a", "x").qos(1));
    let messages = collect(&mut [&mut client], 2).remove(0);
    let identifiers: HashSet<Vec<u32>> = messages
        .iter()
        .map(|message| message.properties.numbers(id::SUBSCRIPTION_IDENTIFIER))
        .collect();
    assert_eq!(identifiers, HashSet::from([vec![1], vec![2]]));
}

/// [MQTT-3.10.4-2]
#[test]
fn a_member_that_leaves_gets_nothing_more_and_the_others_get_all() {
    let broker = Broker::start();
    let mut members = group(&broker, "g", "a", 1, 2);
    let mut publisher = broker.connect("publisher");
    assert_eq!(members[0].unsubscribe(&["$share/g/a"]).codes, [0]);
    for number in 0..10 {
        publisher.publish(Publish::new("a", number.to_string()).qos(1));
    }
    assert_eq!(collect_all(&mut members, 10)[1].len(), 10);
}

/// While a member is connected, messages go to it rather than into the queue of one that is away.
#[test]
fn members_that_are_away_are_passed_over_while_another_is_there() {
    let broker = Broker::start();
    let connect = Connect::v5("away").persistent();
    let mut away = broker.accept(&connect);
    away.subscribe_to("$share/g/a", 1);
    away.disconnect();
    let mut members = group(&broker, "g", "a", 1, 1);
    let mut publisher = broker.connect("publisher");
    // That somebody has gone is known to another shard a moment later. Once two messages in a row
    // have come here, only one member takes turns.
    let mut in_a_row = 0;
    while in_a_row < 2 {
        publisher.publish(Publish::new("a", "probe").qos(1));
        let probe = members[0].poll_message(Duration::from_millis(100));
        in_a_row = probe.map_or(0, |_| in_a_row + 1);
    }
    for number in 0..10 {
        publisher.publish(Publish::new("a", number.to_string()).qos(1));
    }
    assert_eq!(collect_all(&mut members, 10)[0].len(), 10);
}

/// [MQTT-4.5.0-1]
#[test]
fn a_group_whose_members_are_all_away_keeps_messages_for_one_of_them() {
    let broker = Broker::start();
    let connects = ["one", "two"].map(|name| Connect::v5(name).persistent());
    for connect in &connects {
        let mut member = broker.accept(connect);
        member.subscribe_to("$share/g/a", 1);
        member.disconnect();
    }
    let mut publisher = broker.connect("publisher");
    for number in 0..10 {
        publisher.publish(Publish::new("a", number.to_string()).qos(1));
    }
    let mut members: Vec<Client> = connects
        .iter()
        .map(|connect| broker.accept(connect))
        .collect();
    let shares = collect_all(&mut members, 10);
    let texts: HashSet<String> = shares.iter().flatten().map(Publish::text).collect();
    assert_eq!(texts.len(), 10);
}

/// [MQTT-4.8.2-4]
#[test]
fn a_message_already_sent_to_a_member_is_completed_when_it_comes_back() {
    let broker = Broker::start();
    let connect = Connect::v5("one").persistent();
    let mut one = broker.accept(&connect);
    one.subscribe_to("$share/g/a", 2);
    let mut publisher = broker.connect("publisher");
    publisher.publish(Publish::new("a", "x").qos(2));
    let sent = one.expect_message("a", "x");
    one.send_ack(AckKind::PubRec, sent.packet_id);
    one.expect_ack(AckKind::PubRel, sent.packet_id);
    one.vanish();
    let mut one = broker.accept(&connect);
    one.expect_ack(AckKind::PubRel, sent.packet_id);
    one.send_ack(AckKind::PubComp, sent.packet_id);
    one.expect_pong();
}

/// What a member had been sent and not acknowledged goes to another when its session ends; QoS 2
/// does not, because nobody knows whether it arrived.
/// [MQTT-4.8.2-5]
#[test]
fn messages_a_member_leaves_unacknowledged_go_elsewhere_unless_of_quality_2() {
    let broker = Broker::start();
    let mut leaving = broker.connect("leaving");
    leaving.subscribe_to("$share/g/a", 2);
    let mut publisher = broker.connect("publisher");
    publisher.publish(Publish::new("a", "quality 2").qos(2));
    publisher.publish(Publish::new("a", "quality 1").qos(1));
    leaving.expect_message("a", "quality 2");
    leaving.expect_message("a", "quality 1");
    let mut staying = group(&broker, "g", "a", 2, 1).remove(0);
    leaving.disconnect();
    staying.take_message("a", "quality 1");
    publisher.publish(Publish::new("a", "next").qos(2));
    staying.take_message("a", "next");
}

/// [MQTT-4.8.2-6]
#[test]
fn a_message_a_member_refuses_goes_to_no_other_member() {
    let broker = Broker::start();
    let mut members = group(&broker, "g", "a", 1, 2);
    let mut publisher = broker.connect("publisher");
    // Each member gets one; both refuse.
    publisher.publish(Publish::new("a", "1").qos(1));
    publisher.publish(Publish::new("a", "2").qos(1));
    for member in &mut members {
        let message = member.expect_publish();
        member.send(ack_with_reason(
            AckKind::PubAck,
            message.packet_id,
            reason::QUOTA_EXCEEDED,
        ));
        member.ping();
    }
    publisher.publish(Publish::new("a", "3").qos(1));
    publisher.publish(Publish::new("a", "4").qos(1));
    let texts: HashSet<String> = collect_all(&mut members, 2)
        .iter()
        .flatten()
        .map(Publish::text)
        .collect();
    assert_eq!(texts, HashSet::from(["3".to_owned(), "4".to_owned()]));
}

/// [MQTT-3.1.2-25]
#[test]
fn a_message_too_large_for_one_member_does_not_stop_the_group() {
    let broker = Broker::start();
    let mut small = broker.accept(&Connect::v5("small").property(id::MAXIMUM_PACKET_SIZE, 60));
    small.subscribe_to("$share/g/a", 1);
    let mut publisher = broker.connect("publisher");
    publisher.publish(Publish::new("a", "x".repeat(100)).qos(1));
    publisher.publish(Publish::new("a", "fits").qos(1));
    small.take_message("a", "fits");
}
