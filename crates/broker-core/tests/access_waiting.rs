//! Access rules and what waits for a session: it is judged when it leaves, for the client that is
//! there then.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod access_rules;
mod shard_bus;

use std::sync::Arc;

use access_rules::{QOS, balances, dropped, join, policy, ruled, set, stay, try_join};
use shard_bus::{Broker, publish, subscribe};
use unbroken_broker_core::{ClientIdRules, Event, Limits, Settings};
use unbroken_mqtt_proto::{QoS, Version};

/// `durable`: what waits is on disk.
fn with_a_session_that_waits(durable: bool) -> Broker {
    let mut settings = Settings::default();
    settings.durable = durable;
    let rules = ClientIdRules {
        takeover_by_anyone: true,
        ..ClientIdRules::default()
    };
    settings.client_ids = Arc::new([rules]);
    let mut broker = Broker::with(1, Limits::default(), settings);
    set(&mut broker, &policy(1, &[("*", "+psr", "#")]));
    let bob = stay(&mut broker, "bob", "b");
    for filter in ["open", "secret"] {
        subscribe(&mut broker, bob, filter, QoS::ExactlyOnce);
        broker.stored();
    }
    broker.take(bob);
    broker.cut(bob);
    let ann = join(&mut broker, "ann", "a");
    for (id, topic) in [(1, "secret"), (2, "open"), (3, "secret"), (4, "open")] {
        let qos = QOS[1 + usize::from(id > 2)];
        broker.send(ann, publish(topic, "x", qos, id));
        broker.stored();
    }
    broker
}

#[test]
fn what_waited_for_a_session_is_judged_when_it_leaves() {
    for durable in [false, true] {
        // Other rules for the same user, while it was away and when it is there again.
        for is_here in [false, true] {
            let mut broker = with_a_session_that_waits(durable);
            let rules = policy(2, &[("*", "+psr", "#"), ("bob", "-r", "secret")]);
            if !is_here {
                set(&mut broker, &rules);
            }
            broker.hold_writes = is_here;
            broker.hold_reads = is_here;
            let bob = try_join(&mut broker, Version::V5, "bob", "b", true);
            if is_here {
                set(&mut broker, &rules);
                broker.hold_reads = false;
                broker.release_writes();
            }
            broker.stored();
            broker.stored();
            let taken = broker.take(bob);
            let secret = taken.iter().filter(|packet| packet.contains("secret"));
            // In memory, what had left when the rules came has left.
            let expected = if is_here && !durable { 2 } else { 0 };
            assert_eq!(secret.count(), expected, "{durable} {is_here} {taken:?}");
            let open = taken.iter().filter(|packet| packet.contains("open"));
            assert_eq!(open.count(), 2, "{durable} {is_here} {taken:?}");
            let dropped: u64 = dropped(&mut broker).iter().map(|(.., count)| count).sum();
            assert_eq!(dropped, 2 - expected as u64, "{durable} {is_here}");
            balances(&broker);
        }
    }
}

#[test]
fn a_session_that_another_user_resumes_keeps_what_that_one_may_have() {
    for durable in [false, true] {
        let mut broker = with_a_session_that_waits(durable);
        let rules = [
            ("*", "+psr", "#"),
            ("eve", "-r", "secret"),
            ("eve", "-s", "secret"),
        ];
        set(&mut broker, &policy(2, &rules));
        broker.events.clear();
        let eve = try_join(&mut broker, Version::V5, "eve", "b", true);
        broker.stored();
        broker.stored();
        let taken = broker.take(eve);
        assert!(!taken.iter().any(|it| it.contains("secret")), "{taken:?}");
        assert_eq!(taken.iter().filter(|it| it.contains("open")).count(), 2);
        let is_revoked = |event: &Event| matches!(event, Event::SubscriptionRevoked { filter, .. } if &**filter == "secret");
        assert!(broker.events.iter().any(is_revoked), "{durable}");
        let ann = join(&mut broker, "ann", "a2");
        broker.send(ann, publish("secret", "x", QoS::AtMostOnce, 0));
        assert_eq!(broker.take(eve), [""; 0]);
        balances(&broker);
    }
}

#[test]
fn a_resumed_session_of_another_user_gets_no_route_of_the_one_before() {
    let mut broker = ruled(1, &[("*", "+psr", "#"), ("eve", "-r", "t")]);
    let publisher = join(&mut broker, "ann", "p");
    let check = |broker: &mut Broker, user: &str, expected: usize| {
        let client = try_join(broker, Version::V5, user, "s", true);
        subscribe(broker, client, "#", QoS::AtMostOnce);
        broker.take(client);
        broker.cut(client);
        let client = try_join(broker, Version::V5, user, "s", true);
        broker.take(client);
        broker.send(publisher, publish("t", "x", QoS::AtMostOnce, 0));
        assert_eq!(broker.take(client).len(), expected, "{user}");
        broker.cut(client);
    };
    for _ in 0..2 {
        check(&mut broker, "bob", 1);
        check(&mut broker, "eve", 0);
    }
}

#[test]
fn a_message_under_way_is_not_sent_again_to_a_client_that_may_not_receive_it() {
    for qos in [QoS::AtLeastOnce, QoS::ExactlyOnce] {
        let mut broker = ruled(1, &[("*", "+psr", "#")]);
        let bob = stay(&mut broker, "bob", "b");
        subscribe(&mut broker, bob, "t", qos);
        let ann = join(&mut broker, "ann", "a");
        broker.send(ann, publish("t", "x", qos, 1));
        assert_eq!(broker.take(bob).len(), 2);
        broker.cut(bob);
        set(
            &mut broker,
            &policy(2, &[("*", "+psr", "#"), ("bob", "-r", "t")]),
        );
        let bob = try_join(&mut broker, Version::V5, "bob", "b", true);
        let taken = broker.take(bob);
        assert!(!taken.iter().any(|it| it.contains("PUBLISH")), "{taken:?}");
        balances(&broker);
    }
}
