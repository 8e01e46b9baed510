//! What is recorded: a store with logs and what a session has, one with a value of each kind that a
//! broker keeps, and one with a generation of format 2.

use std::num::NonZeroU32;

use unbroken_mqtt_proto::{PacketId, Properties, QoS, SubscriptionOptions};
use unbroken_store::access::{self, Banned};
use unbroken_store::errand::Errand;
use unbroken_store::hand_over::{HandOver, Left};
use unbroken_store::lane::{FLOOR_KEY, Floor, Ingress, Lane, LaneUser, Own, Told};
use unbroken_store::moves::{self, Moves};
use unbroken_store::session::{
    Carried, Cursor, Head, Inbound, LogRange, MaybeSent, Outbound, Part, Subscription, ToRetain,
    Will, key,
};
use unbroken_store::store_health::{self, StoreHealth};
use unbroken_store::{
    Batch, LogId, MessageBytes, MessageRecord, Options, Position, Sequence, Space, Store,
    expected_deliveries,
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

/// The first message that nobody has let go of below, and the last.
pub(crate) const NEEDED: u64 = 8;
pub(crate) const LET_GO_LAST: u64 = 10;

/// A log of one generation, of which some was let go of before it was in a table.
pub(crate) fn fill_and_let_go(store: &dyn Store) {
    for number in 1..=LET_GO_LAST {
        let mut batch = Batch::new();
        batch.append(LOG, Sequence(number), message(number));
        commit(store, batch);
        assert!(!store.trim(LOG, Sequence(NEEDED)).unwrap());
    }
}

/// A log with a hole and without its beginning, an empty one, and what a session has.
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
        offline_since_ms: Some(1_790_000_000_000),
        user: None,
        mount: None,
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
        ranges: vec![LogRange {
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
        author: None,
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

/// A message and a value of each kind, and of each form that a kind has.
pub(crate) fn fill_with_kinds(store: &dyn Store) {
    let mut batch = Batch::new();
    batch.append(LOG, Sequence(1), message(1));
    sessions(&mut batch);
    lanes(&mut batch);
    control(&mut batch);
    batch.put(
        Space::Retained,
        b"kitchen".to_vec(),
        message(3).into_bytes(),
    );
    commit(store, batch);
}

/// Values that the first recording of format 1 has not: what commands say of users, and a session
/// that is a user's.
pub(crate) fn fill_with_access(store: &dyn Store) {
    let mut batch = Batch::new();
    let role = access::Role {
        everyone: false,
        anonymous: true,
        users: vec!["ann".into(), "bob".into()],
        rules: vec![access::RoleRule {
            denies: true,
            text: "publish plant/+".into(),
        }],
    };
    let ban = access::Ban {
        since_ms: 1_790_000_000_000,
        until_ms: Some(1_790_000_060_000),
        reason: "broken".into(),
    };
    let hash = "$7$101$c2FsdHNhbHRzYWx0$AA==".into();
    let banned = [
        Banned::Address("10.0.0.0/8".into()),
        Banned::Client("pump".into()),
        Banned::User("eve".into()),
    ];
    access::Record::User("ann".into(), access::User { hash }).put(&mut batch);
    access::Record::Role("crew".into(), role).put(&mut batch);
    for banned in banned {
        access::Record::Ban(banned, ban.clone()).put(&mut batch);
    }
    let head = Head {
        client_id: "desk".into(),
        expiry_s: NonZeroU32::MIN,
        offline_since_ms: Some(1_790_000_000_000),
        user: Some("ann".into()),
        mount: None,
    };
    batch.put(Space::Sessions, key("desk", Part::Head), head.encode());
    commit(store, batch);
}

const PLACE: Position = Position {
    log: LOG,
    sequence: Sequence(1),
};

fn sessions(batch: &mut Batch) {
    let head = |offline_since_ms| Head {
        client_id: "desk".into(),
        expiry_s: NonZeroU32::MIN,
        offline_since_ms,
        user: None,
        mount: None,
    };
    let subscription = Subscription {
        filter: "$share/crew/plant/+".into(),
        options: SubscriptionOptions {
            qos: QoS::AtLeastOnce,
            ..SubscriptionOptions::default()
        },
        identifier: None,
        ended: true,
        retained_due: true,
        ranges: vec![LogRange {
            log: LOG,
            from: Sequence(1),
            until: Some(Sequence(2)),
        }],
    };
    let outbound = Outbound {
        what: Carried::Log(PLACE),
        packet_id: None,
        qos: QoS::ExactlyOnce,
        received: true,
        retain: true,
        by_group: true,
        group: Some("$share/crew/plant/+".into()),
        identifiers: vec![NonZeroU32::MIN, NonZeroU32::new(300).unwrap()],
    };
    let own = Outbound {
        what: Carried::Own(message(2)),
        ..outbound.clone()
    };
    let maybe_sent = MaybeSent {
        entries: 300,
        through: vec![PLACE],
    };
    let to_retain = Inbound {
        retained: Some(ToRetain {
            errand: ERRAND,
            message: message(4),
        }),
    };
    let will = Will {
        delay_s: 30,
        author: None,
        message: message(5),
    };
    let (filter, era) = ("$share/crew/plant/+", 1);
    let cursor = Cursor {
        through: Sequence(1),
    };
    let inbound = |id| Part::Inbound(PacketId::new(id).unwrap());
    let values = [
        (Part::Head, head(Some(1_790_000_000_000)).encode()),
        (Part::Subscription { filter, era }, subscription.encode()),
        (Part::Cursor(LOG), cursor.encode()),
        (Part::Outbound(1), outbound.encode()),
        (Part::Outbound(2), own.encode()),
        (inbound(1), Inbound::default().encode()),
        (inbound(2), to_retain.encode()),
        (Part::Will, will.encode()),
        (Part::MaybeSent, maybe_sent.encode()),
    ];
    for (part, value) in values {
        batch.put(Space::Sessions, key("desk", part), value);
    }
    batch.put(
        Space::Sessions,
        key("here", Part::Head),
        head(None).encode(),
    );
}

fn lanes(batch: &mut Batch) {
    let ingress = |client_id: &str, told| {
        Lane::Ingress(Ingress {
            client_id: client_id.into(),
            epoch: 1_790_000_000,
            leaves: vec![1, 2, 3],
            told,
        })
    };
    let told = Told {
        checkpoints: 7,
        size: 1 << 40,
        full_root: vec![9; 16],
    };
    let own = Lane::Own(Own {
        client_id: "sensor".into(),
        user: LaneUser::Unknown,
        lane: u64::MAX,
        epoch: 3,
        connected_ms: 1_000,
        refused: Vec::new(),
        ledger: vec![4, 5],
    });
    for lane in [ingress("pump", None), ingress("mill", Some(told)), own] {
        batch.put(Space::Lanes, lane.key(), lane.encode());
    }
    let floor = Floor {
        epoch: 1_790_000_000,
    };
    batch.put(Space::Lanes, FLOOR_KEY.to_vec(), floor.encode());
}

const ERRAND: Errand = Errand {
    from: 0,
    to: 1,
    number: 300,
};

fn control(batch: &mut Batch) {
    let group = "$share/crew/plant/+";
    let left = |what| Left {
        group: group.into(),
        what,
    };
    let hand_over = |from, number| HandOver { from, number };
    let moves = Moves {
        shards: 3,
        moves: vec![Vec::new(), vec![PLACE]],
    };
    let standing = StoreHealth {
        gaps: 300,
        at_risk: true,
    };
    for (key, value) in [
        (ERRAND.key(), ERRAND.done()),
        (
            expected_deliveries::key(PLACE),
            expected_deliveries::value(),
        ),
        (
            expected_deliveries::given_key(PLACE, group),
            expected_deliveries::value(),
        ),
        (hand_over(2, 7).key(), left(Carried::Log(PLACE)).encode()),
        (
            hand_over(HandOver::NO_SHARD, 1).key(),
            left(Carried::Own(message(6))).encode(),
        ),
        (moves::KEY.to_vec(), moves.encode()),
        (store_health::KEY.to_vec(), standing.encode()),
    ] {
        batch.put(Space::Control, key, value);
    }
}

fn commit(store: &dyn Store, batch: Batch) {
    assert!(store.commit(&[batch]).unwrap()[0].is_ok());
}
