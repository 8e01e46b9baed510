//! Nothing is dropped silently: each reason is counted in `$SYS` and told in the log with the
//! client and, where there is one, the topic.

use std::time::Instant;

use unbroken_acceptance::raw::{AckKind, Connect, Publish, Version, ack_with_reason, id, reason};
use unbroken_acceptance::{Broker, Client, DEADLINE};

/// A broker that counts every second, with these limits.
#[track_caller]
fn broker(limits: &str) -> Broker {
    Broker::with_config(&format!(
        "[broker]\nsys_interval = \"1s\"\n[limits]\n{limits}\n"
    ))
}

/// Waits until the counter of the reason shows the number, and gives the line of the log that
/// names the reason.
#[track_caller]
fn dropped(broker: &Broker, reason: &str, count: u64) -> String {
    counted(broker, reason, count);
    broker.wait_for_log(reason)
}

/// Waits until the counter of the reason shows the number.
#[track_caller]
fn counted(broker: &Broker, reason: &str, count: u64) {
    let topic = format!("$SYS/broker/unbroken/dropped/{reason}");
    let mut auditor = broker.connect("auditor");
    auditor.subscribe_to(&topic, 0);
    loop {
        let message = auditor.expect_publish();
        assert_eq!(message.topic, topic);
        let got: u64 = message.text().parse().expect("a counter is a number");
        if got == count {
            return;
        }
        assert!(got < count, "{got} dropped for {reason}, not {count}");
    }
}

/// A persistent subscriber of `a` at quality 1 that has gone, and a publisher.
#[track_caller]
fn away(broker: &Broker, connect: &Connect) -> Client {
    let mut subscriber = broker.accept(connect);
    subscriber.subscribe_to("a", 1);
    subscriber.disconnect();
    broker.connect("publisher")
}

#[test]
fn messages_beyond_the_queue_are_counted_and_named() {
    let broker = broker("queue_messages_max = 2");
    let mut publisher = away(&broker, &Connect::v5("sleeper").persistent());
    for _ in 0..5 {
        publisher.publish(Publish::new("a", "x").qos(1));
    }
    let line = dropped(&broker, "queue-full", 3);
    assert!(line.contains("sleeper"), "{line}");
}

#[test]
fn messages_beyond_the_bytes_of_the_queue_are_counted_and_named() {
    let broker = broker("queue_bytes_max = \"10KiB\"");
    let connect = Connect::v5("sleeper").persistent();
    let mut publisher = away(&broker, &connect);
    for _ in 0..3 {
        publisher.publish(Publish::new("a", "x".repeat(4_000)).qos(1));
    }
    dropped(&broker, "queue-full", 1);
    let mut sleeper = broker.accept(&connect);
    assert_eq!(sleeper.messages_from(&mut publisher).len(), 2);
}

#[test]
fn quality_0_for_a_client_that_is_away_is_counted() {
    let broker = broker("");
    let mut publisher = away(&broker, &Connect::v5("sleeper").persistent());
    publisher.publish(Publish::new("a", "x"));
    publisher.publish(Publish::new("a", "x").qos(1));
    dropped(&broker, "not-connected", 1);
}

/// [MQTT-3.3.2-5]
#[test]
fn expired_messages_are_counted() {
    let broker = broker("");
    let connect = Connect::v5("sleeper").persistent();
    let mut publisher = away(&broker, &connect);
    publisher.publish(
        Publish::new("a", "x")
            .qos(1)
            .property(id::MESSAGE_EXPIRY_INTERVAL, 1),
    );
    broker.let_a_second_pass();
    broker.accept(&connect).expect_nothing_from(&mut publisher);
    dropped(&broker, "expired", 1);
}

/// [MQTT-3.1.2-25]
#[test]
fn messages_too_large_for_a_client_are_counted_and_named() {
    let broker = broker("");
    let mut small = broker.accept(&Connect::v5("small").property(id::MAXIMUM_PACKET_SIZE, 60));
    small.subscribe_to("a", 1);
    let mut publisher = broker.connect("publisher");
    publisher.publish(Publish::new("a", "x".repeat(100)).qos(1));
    publisher.publish(Publish::new("a", "fits").qos(1));
    small.take_message("a", "fits");
    let line = dropped(&broker, "too-large", 1);
    assert!(line.contains("small"), "{line}");
}

#[test]
fn messages_that_wait_when_their_session_ends_are_counted() {
    let broker = broker("");
    let mut publisher = away(&broker, &Connect::v5("sleeper").persistent());
    publisher.publish(Publish::new("a", "x").qos(1));
    publisher.publish(Publish::new("a", "x").qos(1));
    broker.connect("sleeper").disconnect();
    counted(&broker, "session-ended", 2);
    let line = broker.wait_for_log("undelivered=2");
    assert!(line.contains("sleeper"), "{line}");
}

#[test]
fn retained_messages_beyond_the_limit_are_refused_and_counted() {
    let broker = broker("retained_bytes_max = \"4KiB\"");
    let mut subscriber = broker.connect("subscriber");
    subscriber.subscribe_to("kept/#", 1);
    let mut publisher = broker.connect("publisher");
    let large = "x".repeat(8_000);
    let message = Publish::new("kept/large", &large).qos(1).retained();
    assert_eq!(publisher.publish(message), reason::QUOTA_EXCEEDED);
    publisher.publish(Publish::new("kept/large", &large).retained());
    subscriber.take_message("kept/large", &large);
    let mut late = broker.connect("late");
    late.subscribe_to("kept/#", 1);
    late.expect_nothing_from(&mut publisher);
    let topic = "$SYS/broker/unbroken/dropped/retained-full";
    late.subscribe_to(topic, 0);
    let line = broker.wait_for_log("retained-full");
    assert!(line.contains("kept/large"), "{line}");
}

/// [MQTT-4.4.0-2]
#[test]
fn messages_a_client_refuses_are_counted_and_named() {
    let broker = broker("");
    let mut choosy = broker.connect("choosy");
    choosy.subscribe_to("a", 1);
    let mut publisher = broker.connect("publisher");
    publisher.publish(Publish::new("a", "x").qos(1));
    let message = choosy.expect_message("a", "x");
    choosy.send(ack_with_reason(
        AckKind::PubAck,
        message.packet_id,
        reason::NOT_AUTHORIZED,
    ));
    let line = dropped(&broker, "refused-by-receiver", 1);
    assert!(line.contains("choosy"), "{line}");
}

#[test]
fn messages_that_are_not_allowed_are_counted_and_named() {
    let broker = broker("");
    let mut liar = broker.connect("liar");
    assert_eq!(
        liar.publish(Publish::new("$SYS/broker/version", "a lie").qos(1)),
        reason::NOT_AUTHORIZED
    );
    let line = dropped(&broker, "denied", 1);
    assert!(line.contains("liar"), "{line}");
}

/// A client that does not read holds up nobody: what is at most once is dropped for it, what is
/// more waits in its queue.
#[test]
fn a_client_that_does_not_read_loses_only_quality_0_and_delays_no_other() {
    let broker = broker("output_bytes_max = \"64KiB\"");
    let mut lazy = broker.connect("lazy");
    lazy.subscribe_to("a/#", 1);
    let mut keen = broker.connect("keen");
    keen.subscribe_to("a/#", 1);
    let mut publisher = broker.connect("publisher");
    let payload = "x".repeat(60_000);
    let deadline = Instant::now() + DEADLINE;
    let mut sent = 0;
    while !broker.log().contains("slow-receiver") {
        assert!(
            Instant::now() < deadline,
            "{sent} messages and none dropped"
        );
        publisher.publish(Publish::new("a/flood", &payload));
        sent += 1;
        keen.take_message("a/flood", &payload);
    }
    publisher.publish(Publish::new("a/important", "kept").qos(1));
    keen.take_message("a/important", "kept");
    let line = broker.wait_for_log("slow-receiver");
    assert!(line.contains("lazy"), "{line}");
    // When it reads again it finds what fitted, and then what was promised.
    let mut got = 0;
    loop {
        let message = lazy.expect_publish();
        lazy.complete(&message);
        if message.topic == "a/important" {
            break;
        }
        got += 1;
    }
    assert!(
        got < sent,
        "{got} of {sent} arrived, so nothing was dropped"
    );
}

#[test]
fn no_more_sessions_are_kept_than_allowed() {
    let broker = broker("sessions_max = 2");
    let mut one = broker.connect("one");
    broker.accept(&Connect::v5("two").persistent()).disconnect();
    broker
        .attempt(&Connect::v5("three"))
        .expect_connack_refusal(reason::QUOTA_EXCEEDED);
    broker
        .attempt(&Connect::v311("three"))
        .expect_connack_refusal(3);
    one.expect_pong();
    // Whoever has a session is not affected, and one that ends makes room.
    broker.connect("two").disconnect();
    broker.connect("three").expect_pong();
}

#[test]
fn subscriptions_of_all_sessions_together_are_limited() {
    let broker = broker("subscriptions_max = 2");
    let mut one = broker.connect("one");
    let mut two = broker.connect_as(Version::V3_1_1, "two");
    one.subscribe_to("a", 0);
    two.subscribe_to("b", 0);
    assert_eq!(
        one.subscribe(&unbroken_acceptance::raw::Subscribe::to("c", 0)),
        [0x97]
    );
    assert_eq!(
        two.subscribe(&unbroken_acceptance::raw::Subscribe::to("c", 0)),
        [0x80]
    );
    two.disconnect();
    let mut three = broker.connect("three");
    three.subscribe_to("c", 0);
}
