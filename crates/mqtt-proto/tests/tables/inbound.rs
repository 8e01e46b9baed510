//! A packet id of the other side against all that can happen to it. Receive Maximum is 1 and there
//! is one other message, so that the window shows.
//!
//! DUP is an event of its own for QoS 2: it tells what the id does not, after a restart from a
//! store that has lost what it knew last.

use unbroken_mqtt_proto::session::{Arrival, Inbound};
use unbroken_mqtt_proto::{PacketId, QoS};

use crate::compare;
use crate::machine::{Event, Machine};

const EVENTS: &[Event<Inbound>] = &[
    ("PUBLISH QoS 0", |session| {
        publish(session, QoS::AtMostOnce, 1)
    }),
    ("PUBLISH QoS 1", |session| {
        publish(session, QoS::AtLeastOnce, 1)
    }),
    ("PUBLISH QoS 2", |session| {
        publish(session, QoS::ExactlyOnce, 1)
    }),
    ("PUBLISH QoS 2, DUP", |session| {
        publish_dup(session, QoS::ExactlyOnce, 1, true)
    }),
    (ACKNOWLEDGED, |session| {
        session.acknowledged(id(1));
        String::new()
    }),
    (RECEIVED, |session| {
        session.received(id(1));
        String::new()
    }),
    ("PUBREL", |session| {
        let known = session.handle_pubrel(id(1));
        (if known { "PUBCOMP" } else { "PUBCOMP 92" }).to_owned()
    }),
    ("the other: PUBLISH QoS 1", |session| {
        publish(session, QoS::AtLeastOnce, 2)
    }),
    (OTHER_ACKNOWLEDGED, |session| {
        session.acknowledged(id(2));
        String::new()
    }),
    ("connection lost", |session| {
        session.handle_disconnected();
        session.set_receive_maximum(1);
        String::new()
    }),
    ("restart", |session| {
        *session = Inbound::restore(session.iter());
        session.set_receive_maximum(1);
        String::new()
    }),
    ("restart with a gap", |session| {
        *session = Inbound::restore_doubted(session.iter());
        session.set_receive_maximum(1);
        String::new()
    }),
];

const ACKNOWLEDGED: &str = "PUBACK, PUBREC from 0x80";
const RECEIVED: &str = "PUBREC below 0x80";
const OTHER_ACKNOWLEDGED: &str = "the other: PUBACK";

// [MQTT-3.3.4-7] [MQTT-4.3.2-5] [MQTT-4.3.3-9] [MQTT-4.3.3-10] [MQTT-4.3.3-11] [MQTT-4.3.3-12]
// [MQTT311-4.3.2-2] [MQTT311-4.3.3-2] [MQTT-3.3.1-1] [MQTT311-3.3.1-1]
#[test]
fn every_state_of_an_incoming_message_answers_every_event_as_recorded() {
    let mut start = Inbound::new();
    start.set_receive_maximum(1);
    let machine = Machine {
        title: "A packet id of the other side's messages; Receive Maximum 1, \
                which another message may take (`full`).",
        start,
        name,
        events: EVENTS,
        occurs: |state, event| match event {
            // An answer that an earlier connection was owed is not sent on this one.
            ACKNOWLEDGED | RECEIVED => !state.contains('*'),
            OTHER_ACKNOWLEDGED => state.contains("full"),
            _ => true,
        },
    };
    compare(
        "inbound.txt",
        &machine.table(),
        include_str!("../snapshots/inbound.txt"),
    );
}

fn name(session: &Inbound) -> String {
    let mut alone = session.clone();
    alone.acknowledged(id(2));
    let other = session.inflight() > alone.inflight();
    let counts = full(&alone);
    assert_eq!(
        full(session),
        counts || other,
        "one message fills a window of 1"
    );
    let mut ended = alone.clone();
    ended.acknowledged(id(1));
    assert!(!full(&ended), "a message that ends gives its slot back");
    let is_qos_2 = alone.iter().next().is_some();
    let state = if alone.inflight() == 0 {
        "free"
    } else if !is_qos_2 {
        "owe PUBACK"
    } else if alone.handle_publish(QoS::ExactlyOnce, id(1)) == Ok(Arrival::InProgress) {
        "owe PUBREC"
    } else if alone.settle_doubt(id(1), false) {
        "doubt PUBREL"
    } else {
        "await PUBREL"
    };
    let earlier = if counts || state == "free" { "" } else { "*" };
    let other = if other { ", full" } else { "" };
    format!("{state}{earlier}{other}")
}

/// Whether the window takes no message that is not known.
fn full(session: &Inbound) -> bool {
    let mut session = session.clone();
    session.handle_publish(QoS::AtLeastOnce, id(3)).is_err()
}

fn id(number: u16) -> PacketId {
    PacketId::new(number).expect("the ids here are not 0")
}

fn publish(session: &mut Inbound, qos: QoS, number: u16) -> String {
    publish_dup(session, qos, number, false)
}

fn publish_dup(session: &mut Inbound, qos: QoS, number: u16, dup: bool) -> String {
    match session.handle_publish(qos, id(number)) {
        Ok(Arrival::Duplicate) if session.settle_doubt(id(number), dup) => "Instead".to_owned(),
        Ok(arrival) => format!("{arrival:?}"),
        Err(_) => "ReceiveMaximumExceeded".to_owned(),
    }
}
