//! A message on its way to the other side against all that can happen to it. Receive Maximum is 1,
//! so that its slot in the window shows.
//!
//! The reasons of PUBACK and PUBCOMP are no events of their own: the session is not told them.

use unbroken_mqtt_proto::session::{AckError, Entry, Outbound, PubRec, Resend};
use unbroken_mqtt_proto::{PacketId, QoS};

use crate::compare;
use crate::machine::{Event, Machine};

const MESSAGE: char = 'm';

const EVENTS: &[Event<Outbound<char>>] = &[
    ("begin QoS 0", |session| {
        begun(session.begin(QoS::AtMostOnce, MESSAGE), "send")
    }),
    ("begin_unsent QoS 1", |session| {
        begun(session.begin_unsent(QoS::AtLeastOnce, MESSAGE), "store")
    }),
    ("begin_unsent QoS 2", |session| {
        begun(session.begin_unsent(QoS::ExactlyOnce, MESSAGE), "store")
    }),
    ("begin QoS 1", |session| {
        begun(session.begin(QoS::AtLeastOnce, MESSAGE), "send")
    }),
    ("begin QoS 2", |session| {
        begun(session.begin(QoS::ExactlyOnce, MESSAGE), "send")
    }),
    (MARK_SENT, |session| {
        let to_send = session.mark_sent(id(session));
        to_send.map(|_| "send".to_owned()).unwrap_or_default()
    }),
    ("PUBACK", |session| {
        answer(session.handle_puback(id(session)).map(back))
    }),
    ("PUBREC below 0x80", |session| {
        answer(session.handle_pubrec(id(session), false).map(pubrec))
    }),
    ("PUBREC from 0x80", |session| {
        answer(session.handle_pubrec(id(session), true).map(pubrec))
    }),
    ("PUBCOMP", |session| {
        answer(session.handle_pubcomp(id(session)).map(|()| String::new()))
    }),
    ("forget", |session| {
        session.forget(id(session)).map(back).unwrap_or_default()
    }),
    ("let_go", |session| {
        session.let_go(id(session)).map(back).unwrap_or_default()
    }),
    ("connection lost", |session| {
        session.handle_disconnected();
        session.set_receive_maximum(1);
        String::new()
    }),
    ("poll_resend", |session| {
        session.poll_resend().map(resent).unwrap_or_default()
    }),
    ("restart", |session| {
        let stored: Vec<_> = session.iter().map(owned).collect();
        *session = Outbound::restore(stored).expect("no id is there twice");
        session.set_receive_maximum(1);
        String::new()
    }),
    ("session over", |session| {
        let messages = session.drain().map(|drained| {
            let sent = if drained.sent { "sent" } else { "unsent" };
            format!("{}, {sent}", back(drained.message))
        });
        messages.collect()
    }),
];

const MARK_SENT: &str = "mark_sent";

// [MQTT-3.3.1-1] [MQTT-3.3.4-9] [MQTT-4.3.2-2] [MQTT-4.3.2-3] [MQTT-4.3.3-2] [MQTT-4.3.3-3]
// [MQTT-4.3.3-4] [MQTT-4.3.3-5] [MQTT-4.3.3-6] [MQTT-4.4.0-1] [MQTT-4.4.0-2] [MQTT311-3.3.1-1]
// [MQTT311-4.3.2-1] [MQTT311-4.3.3-1] [MQTT311-4.4.0-1]
#[test]
fn every_state_of_an_outgoing_message_answers_every_event_as_recorded() {
    let mut start = Outbound::new();
    start.set_receive_maximum(1);
    let machine = Machine {
        title: "An outgoing QoS 1 or 2 message; Receive Maximum 1.",
        start,
        name,
        events: EVENTS,
        // Once for each `begin_unsent`, before the message leaves in any other way.
        occurs: |state, event| event != MARK_SENT || !state.starts_with("await"),
    };
    compare(
        "outbound.txt",
        &machine.table(),
        include_str!("../snapshots/outbound.txt"),
    );
}

fn name(session: &Outbound<char>) -> String {
    let entry = session.iter().next().map(owned);
    assert_eq!(
        session.window_open(),
        entry.is_none(),
        "{entry:?} alone closes a window of 1"
    );
    let mut ended = session.clone();
    if ended.forget(id(session)).is_none() {
        let _ = ended.handle_pubcomp(id(session));
    }
    assert!(
        ended.window_open(),
        "a message that ends gives its slot back"
    );
    let sent = session.clone().drain().all(|drained| drained.sent);
    let state = match entry {
        None => "free",
        Some(Entry::Publish { qos, .. }) => match (sent, qos) {
            (false, QoS::ExactlyOnce) => "unsent QoS 2",
            (false, _) => "unsent QoS 1",
            (true, QoS::ExactlyOnce) => "await PUBREC",
            (true, _) => "await PUBACK",
        },
        Some(Entry::PubRel { .. }) => "await PUBCOMP",
    };
    let earlier = if session.resending() { "*" } else { "" };
    format!("{state}{earlier}")
}

/// The id in use, or one that is not.
fn id(session: &Outbound<char>) -> PacketId {
    match session.iter().next() {
        Some(Entry::Publish { id, .. } | Entry::PubRel { id }) => id,
        None => PacketId::FIRST,
    }
}

fn owned(entry: Entry<&char>) -> Entry<char> {
    match entry {
        Entry::Publish { id, qos, message } => Entry::Publish {
            id,
            qos,
            message: *message,
        },
        Entry::PubRel { id } => Entry::PubRel { id },
    }
}

fn begun(result: Result<PacketId, char>, next: &str) -> String {
    match result {
        Ok(_) => next.to_owned(),
        Err(message) => back(message),
    }
}

fn back(message: char) -> String {
    assert_eq!(message, MESSAGE);
    "message back".to_owned()
}

fn answer(result: Result<String, AckError>) -> String {
    result.unwrap_or_else(|error| format!("{error:?}"))
}

fn pubrec(answer: PubRec<char>) -> String {
    match answer {
        PubRec::SendPubRel(Some(message)) => format!("PUBREL, {}", back(message)),
        PubRec::SendPubRel(None) => "PUBREL".to_owned(),
        PubRec::Ended(message) => back(message),
    }
}

fn resent(resend: Resend<'_, char>) -> String {
    match resend {
        Resend::Publish { qos, dup, .. } => {
            let dup = if dup { " DUP" } else { "" };
            format!("PUBLISH {qos}{dup}")
        }
        Resend::PubRel { .. } => "PUBREL".to_owned(),
    }
}
