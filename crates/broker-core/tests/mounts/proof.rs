//! The proof of delivery across mounts: a publisher stamps the topic that it knows.

use super::*;
use shard_bus::Received;
use unbroken_broker_core::AuditRule;
use unbroken_merkle_log::{Epoch, Lane, LaneId, LaneLimits, Property as Stamp, Xxh3};

fn stamped(lane: &mut Lane, topic: &str) -> PropertyBuf {
    let stamp = lane.issue(topic.as_bytes(), *b"x", &Xxh3).to_text();
    with(Property::UserProperty("audit", &stamp))
}

fn lane() -> Lane {
    let id = LaneId::new(7).unwrap();
    Lane::new(id, Epoch(1), LaneLimits::default(), Duration::ZERO)
}

fn property<'a>(received: &'a Received, name: &str) -> Option<&'a str> {
    let mut named = received.properties.iter().filter(|(key, _)| key == name);
    named.next().map(|(_, value)| &**value)
}

/// Whether the stamp fits the topic that the message says it covers.
fn fits(received: &Received) -> bool {
    let stamp = Stamp::parse_text(property(received, "audit").unwrap()).unwrap();
    let signed = property(received, "audit-topic").unwrap_or(&received.topic);
    stamp.fits(&Xxh3, signed.as_bytes(), &received.payload)
}

#[test]
fn a_stamp_covers_the_publishers_own_topic_and_receivers_elsewhere_are_given_it() {
    for shards in [1, 3] {
        let mut broker = mounted(shards, &["a/", "a/b/"]);
        let clients = [(0, "service"), (1, "in-a"), (2, "in-a-b")];
        let clients = clients.map(|(on, id)| join(&mut broker, on, id));
        for client in clients {
            subscribe(&mut broker, client, "#", QOS0);
        }
        for (from, topic) in [(0, "a/b/t"), (1, "b/t"), (2, "t")] {
            let mut lane = lane();
            let properties = stamped(&mut lane, topic);
            broker.send(clients[from], message(topic, properties.as_properties()));
            for (client, own) in clients.iter().zip(["a/b/t", "b/t", "t"]) {
                let received = broker.take_publishes(*client);
                assert_eq!(received[0].topic, own);
                assert!(fits(&received[0]), "from {from} to {own}");
            }
        }
        // The publisher's lane is judged by what it has stamped.
        let publishers = broker.shards.iter().map(|it| it.stats().audit.publishers);
        let altered: u64 = publishers.map(|found| found.altered).sum();
        assert_eq!(altered, 0);
    }
}

#[test]
fn the_brokers_own_stamp_covers_the_whole_topic() {
    let mut settings = settings(&["a/"]);
    let forwards = AuditRule {
        forward_stamp: true,
        ..AuditRule::any()
    };
    settings.audit.rules = vec![forwards];
    let mut broker = Broker::with(1, Limits::default(), settings);
    let service = join(&mut broker, 0, "service");
    let a = join(&mut broker, 1, "in-a");
    subscribe(&mut broker, service, "a/#", QOS0);
    subscribe(&mut broker, a, "#", QOS0);
    broker.send(a, publish("t", "x", QOS0, 0));
    let [whole, own] = [service, a].map(|client| broker.take_publishes(client).swap_remove(0));
    assert_eq!(property(&whole, "audit-topic"), None);
    assert_eq!(property(&own, "audit-topic"), Some("a/t"));
    assert!(fits(&whole) && fits(&own));
}

#[test]
fn drops_are_told_on_the_receivers_own_topic() {
    let mut broker = mounted(1, &["a/"]);
    let rules = policy(1, &[("*", "+psr", "#"), ("*", "-r", "a/secret")]);
    set(&mut broker, &rules);
    let [from, to] = ["from", "to"].map(|id| join(&mut broker, 1, id));
    subscribe(&mut broker, to, "#", QOS0);
    subscribe(&mut broker, to, "audit/drop/+", QOS0);
    broker.take(to);
    let mut lane = lane();
    let properties = stamped(&mut lane, "secret");
    broker.send(from, message("secret", properties.as_properties()));
    let received = broker.take_publishes(to);
    assert_eq!(received[0].topic, "audit/drop/0000000000000007");
    assert_eq!(property(&received[0], "audit-receiver"), Some("to"));
}

#[test]
fn a_client_cannot_pose_as_the_broker_behind_a_mount() {
    let mut broker = mounted(1, &["a/"]);
    let service = join(&mut broker, 0, "service");
    let a = join(&mut broker, 1, "in-a");
    subscribe(&mut broker, a, "audit/drop/+", QOS0);
    broker.take(a);
    let poses = with(Property::UserProperty("audit-receiver", "in-a"));
    for (client, topic) in [(service, "a/audit/drop/7"), (a, "audit/drop/7")] {
        broker.send(client, message(topic, poses.as_properties()));
        assert_eq!(broker.take(a), NOTHING, "{topic}");
    }
}

/// What a publisher says of a stamp that is not its own would make a good message look altered.
#[test]
fn a_publisher_says_nothing_of_the_brokers_stamp() {
    let mut settings = settings(&["a/b/"]);
    let forwards = AuditRule {
        forward_stamp: true,
        ..AuditRule::any()
    };
    settings.audit.rules = vec![forwards];
    let mut broker = Broker::with(1, Limits::default(), settings);
    let service = join(&mut broker, 0, "service");
    let a = join(&mut broker, 1, "in-a");
    subscribe(&mut broker, service, "#", QOS0);
    subscribe(&mut broker, a, "#", QOS0);
    broker.take(service);
    broker.take(a);
    let said = with(Property::UserProperty("audit-topic", "t"));
    for (from, topic) in [(service, "a/b/t"), (a, "t")] {
        broker.send(from, message(topic, said.as_properties()));
        let [whole, own] = [service, a].map(|client| broker.take_publishes(client).swap_remove(0));
        assert_eq!(property(&whole, "audit-topic"), None);
        assert_eq!(property(&own, "audit-topic"), Some("a/b/t"));
        assert!(fits(&whole) && fits(&own));
    }
}

/// A will is published when its client loses its mount, or later: its stamp covers the client's own
/// topic.
#[test]
fn a_stamped_will_is_judged_by_its_own_topic_after_the_mount_point_is_gone() {
    for delay_s in [0, 5] {
        let mut broker = mounted(1, &["a/"]);
        let service = join(&mut broker, 0, "service");
        subscribe(&mut broker, service, "#", QOS0);
        broker.take(service);
        let mut lane = lane();
        let mut properties = stamped(&mut lane, "gone");
        let delay = Property::WillDelayInterval(delay_s);
        properties.push(delay).unwrap();
        let will = Will {
            qos: QOS0,
            retain: false,
            topic: "gone",
            payload: b"x",
            properties: properties.as_properties(),
        };
        let expiry = with(Property::SessionExpiryInterval(100));
        let packet = Connect {
            will: Some(will),
            properties: expiry.as_properties(),
            ..connect("mortal")
        };
        let mortal = open(&mut broker, 1, packet);
        assert_eq!(broker.take(mortal), ["CONNACK 0 00"]);
        broker.input(0, Input::MountPointsReplaced(mount_points(&[])));
        broker.advance(Duration::from_secs(6));
        let received = broker.take_publishes(service);
        assert_eq!(received[0].topic, "a/gone");
        assert!(fits(&received[0]));
        let altered = broker.shards[0].stats().audit.publishers.altered;
        assert_eq!(altered, 0, "after {delay_s} s");
    }
}
