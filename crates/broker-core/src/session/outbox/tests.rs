//! The bytes are those of the messages that are there, whatever becomes of them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Instant;

use unbroken_mqtt_proto::Properties;

use super::*;
use crate::message::Publication;

/// A message that costs this.
#[expect(clippy::disallowed_methods, reason = "a test's epoch")]
fn delivery(cost: usize) -> Delivery {
    let publication = Publication {
        topic: "t",
        properties: Properties::EMPTY,
        payload: &vec![0; cost - 1],
        qos: QoS::ExactlyOnce,
        retain: false,
        expires: None,
        stamp: Instant::now(),
        mark: None,
    };
    Delivery {
        message: Arc::new(Message::new(&publication, None)),
        retain: false,
        identifiers: Identifiers::new(),
        group: None,
        number: 0,
        counting: Counting::Shown,
        tracked: false,
        again: false,
        entry: 0,
    }
}

fn begin(outbox: &mut Outbox, qos: QoS, cost: usize) -> PacketId {
    outbox.begin(qos, delivery(cost)).unwrap()
}

#[test]
fn the_queue_has_the_bytes_of_what_is_in_it() {
    let mut outbox = Outbox::new();
    for cost in [10, 20, 30] {
        outbox.push(QoS::AtLeastOnce, delivery(cost));
    }
    assert_eq!((outbox.queue_len(), outbox.queue_bytes()), (3, 60));

    let (qos, first) = outbox.pop().unwrap();
    assert_eq!((first.cost(), outbox.queue_bytes()), (10, 50));
    outbox.put_back(qos, first);
    assert_eq!(outbox.queue_bytes(), 60);
    assert_eq!(outbox.front().unwrap().1.cost(), 10, "it is the next again");

    let taken = outbox.take_queued(|_, delivery| (delivery.cost() == 20).then_some("why"));
    assert_eq!(taken.len(), 1);
    let left: Vec<_> = outbox.queued().map(Delivery::cost).collect();
    assert_eq!((left, outbox.queue_bytes()), (vec![10, 30], 40));
}

#[test]
fn a_message_is_in_flight_until_it_comes_back() {
    let mut outbox = Outbox::new();
    let ended: [fn(&mut Outbox, PacketId) -> u64; 4] = [
        |outbox, id| outbox.handle_puback(id).unwrap().cost(),
        |outbox, id| match outbox.handle_pubrec(id, true).unwrap() {
            PubRec::Ended(delivery) => delivery.cost(),
            PubRec::SendPubRel(_) => 0,
        },
        |outbox, id| outbox.forget(id).unwrap().cost(),
        |outbox, id| outbox.let_go(id).unwrap().cost(),
    ];
    begin(&mut outbox, QoS::AtLeastOnce, 7);
    for (n, end) in ended.into_iter().enumerate() {
        let qos = if n == 0 {
            QoS::AtLeastOnce
        } else {
            QoS::ExactlyOnce
        };
        let id = begin(&mut outbox, qos, 100);
        assert_eq!((outbox.inflight_bytes, end(&mut outbox, id)), (107, 100));
        assert_eq!(outbox.inflight_bytes, 7);
    }
    assert_eq!(outbox.in_flight().count(), 1);
}

#[test]
fn pubrec_gives_the_message_back_once_and_pubcomp_has_none() {
    let mut outbox = Outbox::new();
    let id = begin(&mut outbox, QoS::ExactlyOnce, 50);
    let first = outbox.handle_pubrec(id, false).unwrap();
    assert!(matches!(first, PubRec::SendPubRel(Some(_))));
    assert_eq!(outbox.inflight_bytes, 0);
    let again = outbox.handle_pubrec(id, false).unwrap();
    assert!(matches!(again, PubRec::SendPubRel(None)));
    outbox.handle_pubcomp(id).unwrap();
    assert_eq!((outbox.inflight_bytes, outbox.iter().count()), (0, 0));
}

#[test]
fn what_is_held_counts_as_unsent_until_it_leaves_or_its_connection_has_gone() {
    let mut outbox = Outbox::new();
    let held = outbox
        .begin_held(QoS::ExactlyOnce, delivery(5), false)
        .unwrap();
    assert!(outbox.holds_unsent());
    assert!(outbox.mark_sent(held).is_some());
    assert!(!outbox.holds_unsent());

    let ahead = outbox
        .begin_held(QoS::ExactlyOnce, delivery(5), true)
        .unwrap();
    assert!(!outbox.holds_unsent(), "the window has no place for it yet");
    assert_eq!(outbox.start(ahead), Start::Send);
    assert!(outbox.holds_unsent());
    outbox.forget_held();
    assert!(!outbox.holds_unsent());
}

#[test]
fn nothing_is_left_after_all_was_taken() {
    let mut outbox = Outbox::new();
    begin(&mut outbox, QoS::AtLeastOnce, 10);
    outbox.push(QoS::ExactlyOnce, delivery(20));
    let all: Vec<_> = outbox
        .drain()
        .map(|(_, sent, it)| (sent, it.cost()))
        .collect();
    assert_eq!(all, [(true, 10), (false, 20)]);
    assert_eq!((outbox.inflight_bytes, outbox.queue_bytes()), (0, 0));
}
