//! One of everything that a store holds.

use std::num::NonZeroU32;

use unbroken_mqtt_proto::{PacketId, Properties, QoS, SubscriptionOptions};
use unbroken_store::errand::Errand;
use unbroken_store::lane::{FLOOR_KEY, Floor};
use unbroken_store::session::{
    Carried, Cursor, Head, Holding, Inbound, Outbound, Part, Subscription, ToRetain, Will, key,
};
use unbroken_store::{
    Batch, LogId, MessageBytes, MessageRecord, Options, Position, Sequence, Space, Store,
};

pub(crate) const LOG: LogId = LogId(3);
pub(crate) const MESSAGES: u64 = 40;

/// So that there are several generations.
pub(crate) fn options() -> Options {
    let mut options = Options::default();
    options.generation_bytes = 2_000;
    options
}

pub(crate) fn message(number: u64) -> MessageBytes {
    let record = MessageRecord {
        topic: if number.is_multiple_of(7) {
            "rare"
        } else {
            "plant/7"
        },
        qos: QoS::ExactlyOnce,
        retain: false,
        stamp_ms: 1_790_000_000_000 + number,
        expires_ms: Some(1_890_000_000_000),
        publisher: Some("machine"),
        mark: None,
        properties: Properties::EMPTY,
        payload: &number.to_be_bytes().repeat(10),
    };
    record.encode()
}

/// A log with a hole and without its beginning, an empty one, and a value of each kind.
pub(crate) fn fill(store: &dyn Store) {
    for number in 1..=MESSAGES {
        let mut batch = Batch::new();
        batch.append(LOG, Sequence(number), message(number));
        commit(store, batch);
    }
    store.go_on_at(LOG, Sequence(1 << 32)).unwrap();
    let mut batch = Batch::new();
    batch.append(LOG, Sequence(1 << 32), message(1 << 32));
    commit(store, batch);
    store.go_on_at(LogId(4), Sequence(77)).unwrap();
    while store.trim(LOG, Sequence(20)).unwrap() {}
    let phone = |part| key("phone", part);
    let head = Head {
        client_id: "phone".into(),
        expiry_s: NonZeroU32::MAX,
        away_since_ms: Some(1_790_000_000_000),
    };
    let subscription = Subscription {
        filter: "plant/+".into(),
        options: SubscriptionOptions {
            qos: QoS::ExactlyOnce,
            ..SubscriptionOptions::default()
        },
        identifier: NonZeroU32::new(5),
        ended: false,
        retained_due: false,
        holds: vec![Holding {
            log: LOG,
            from: Sequence(1),
            until: None,
        }],
    };
    let position = Position {
        log: LOG,
        sequence: Sequence(30),
    };
    let outbound = |what| Outbound {
        what,
        packet_id: Some(PacketId::FIRST),
        qos: QoS::ExactlyOnce,
        received: false,
        retain: false,
        by_group: false,
        group: None,
        identifiers: Vec::new(),
    };
    let cursor = Cursor {
        through: Sequence(30),
    };
    let will = Will {
        delay_s: 30,
        message: message(1),
    };
    let errand = Errand {
        from: 0,
        to: 1,
        number: 7,
    };
    let to_retain = Inbound {
        retained: Some(ToRetain {
            errand,
            message: message(4),
        }),
    };
    let (filter, era) = ("plant/+", 1);
    let mut batch = Batch::new();
    batch
        .put(Space::Sessions, phone(Part::Head), head.encode())
        .put(
            Space::Sessions,
            phone(Part::Subscription { filter, era }),
            subscription.encode(),
        )
        .put(Space::Sessions, phone(Part::Cursor(LOG)), cursor.encode())
        .put(
            Space::Sessions,
            phone(Part::Outbound(1)),
            outbound(Carried::Log(position)).encode(),
        )
        .put(
            Space::Sessions,
            phone(Part::Outbound(2)),
            outbound(Carried::Own(message(2))).encode(),
        )
        .put(
            Space::Sessions,
            phone(Part::Inbound(PacketId::FIRST)),
            Inbound::default().encode(),
        )
        .put(
            Space::Sessions,
            phone(Part::Inbound(PacketId::new(2).unwrap())),
            to_retain.encode(),
        )
        .put(Space::Control, errand.key(), errand.done())
        .put(Space::Sessions, phone(Part::Will), will.encode())
        .put(
            Space::Retained,
            b"kitchen".to_vec(),
            message(3).into_bytes(),
        )
        .put(
            Space::Lanes,
            FLOOR_KEY.to_vec(),
            Floor {
                epoch: 1_790_000_000,
            }
            .encode(),
        )
        .put(Space::Control, b"of its own".to_vec(), vec![1, 2, 3]);
    commit(store, batch);
}

fn commit(store: &dyn Store, batch: Batch) {
    assert!(store.commit(&[batch]).unwrap()[0].is_ok());
}
