//! Messages that sessions were given, wherever in the logs they lie.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant, UNIX_EPOCH};

use unbroken_broker_core::{Message, RestoredEntry};
use unbroken_mqtt_proto::PacketId;
use unbroken_persist::{Restored, Times, restore};
use unbroken_store::session::{Carried, Head, Outbound, Part, key};
use unbroken_store::{
    Batch, Kv, Log, LogId, Memory, MessageRecord, Position, Sequence, Space, Store,
};

use crate::QOS1;

/// Messages of each log: some pages of what is read at a time.
const MESSAGES: u64 = 400;
const PAYLOAD_BYTES: usize = 3_000;
const LOGS: [LogId; 3] = [LogId(0), LogId(1), LogId(7)];
/// What is below is trimmed.
const FIRST: Sequence = Sequence(20);

fn at(log: LogId, number: u64) -> Position {
    let sequence = Sequence(number);
    Position { log, sequence }
}

/// A store with messages that say where they are.
fn store_with_messages() -> Memory {
    let store = Memory::new();
    for log in LOGS {
        for number in 1..=MESSAGES {
            let mut payload = at(log, number).to_string().into_bytes();
            payload.resize(PAYLOAD_BYTES, b' ');
            let message = MessageRecord::plain("t", 1, &payload).encode();
            let mut batch = Batch::new();
            batch.append(log, Sequence(number), message);
            store.commit(&[batch]).unwrap();
        }
        store.trim(log, FIRST).unwrap();
    }
    store
}

/// Notes that a session was given these, in this order.
fn give(store: &Memory, client_id: &str, given: &[Position]) {
    let mut batch = Batch::new();
    let head = Head {
        client_id: client_id.to_owned(),
        expiry_s: NonZeroU32::MAX,
        offline_since_ms: None,
        user: None,
        mount: None,
    };
    batch.put(Space::Sessions, key(client_id, Part::Head), head.encode());
    for (number, at) in (1..).zip(given) {
        let outbound = Outbound {
            what: Carried::Log(*at),
            packet_id: PacketId::new(number),
            qos: QOS1,
            received: false,
            retain: false,
            by_group: false,
            group: None,
            identifiers: Vec::new(),
        };
        let key = key(client_id, Part::Outbound(number.into()));
        batch.put(Space::Sessions, key, outbound.encode());
    }
    store.commit(&[batch]).unwrap();
}

fn restored(store: &Memory) -> Restored {
    let now = Instant::now();
    let times = Times::new(now, UNIX_EPOCH + Duration::from_secs(1_790_000_000));
    restore(store, 1, now, &times).unwrap()
}

/// What each session was given, by number.
fn given(restored: &Restored) -> BTreeMap<String, Vec<(u64, Arc<Message>)>> {
    let sessions = restored.sessions.iter().map(|session| {
        let entries = session.entries.iter().map(|entry| match entry {
            RestoredEntry::Given(entry) => (entry.number, Arc::clone(&entry.message)),
            other => panic!("{other:?}"),
        });
        (session.client_id.to_string(), entries.collect())
    });
    sessions.collect()
}

fn place(message: &Message) -> String {
    let text = String::from_utf8(message.payload().to_vec()).unwrap();
    text.trim_end().to_owned()
}

#[test]
fn a_delivery_is_found_in_any_log_and_one_in_none_is_reported_once() {
    let store = store_with_messages();
    let mut expected: BTreeMap<String, Vec<(u64, String)>> = BTreeMap::new();
    let mut lost = 0;
    // Neighbours, some that are near, and some that are far from each other; forth and back.
    for (session, step) in [1, 2, 5, 12, 13, 14, 40, 133].into_iter().enumerate() {
        let client_id = format!("s{session}");
        let mut places: Vec<Position> = Vec::new();
        for log in [LOGS[2], LOGS[0], LogId(3), LOGS[1]] {
            let numbers = (1..MESSAGES + 30).step_by(step);
            places.extend(numbers.map(|number| at(log, number)));
        }
        if step % 2 == 0 {
            places.reverse();
        }
        give(&store, &client_id, &places);
        let found = (1..).zip(&places).filter(|(_, at)| {
            let is_log = LOGS.contains(&at.log);
            is_log && (FIRST..=Sequence(MESSAGES)).contains(&at.sequence)
        });
        let found: Vec<_> = found.map(|(number, at)| (number, at.to_string())).collect();
        lost += places.len() - found.len();
        expected.insert(client_id, found);
    }
    let first = restored(&store);
    assert_eq!(first.lost.len(), lost);
    let again = restored(&store);
    assert_eq!(again.lost, Vec::<String>::new());
    for restored in [first, again] {
        let given = given(&restored).into_iter().map(|(client_id, given)| {
            let given = given.iter();
            let given = given.map(|(number, message)| (*number, place(message)));
            (client_id, given.collect())
        });
        let given: BTreeMap<String, Vec<(u64, String)>> = given.collect();
        assert_eq!(given, expected);
    }
    let pairs = store.scan(Space::Sessions, &[], None, usize::MAX).unwrap();
    let entries: usize = expected.values().map(Vec::len).sum();
    assert_eq!(pairs.pairs.len(), entries + expected.len(), "and the heads");
    assert!(store.bounds(LOGS[0]).unwrap().first == FIRST);
}

#[test]
fn sessions_that_were_given_the_same_message_share_it() {
    let store = store_with_messages();
    let places = [at(LOGS[0], 30), at(LOGS[0], 300), at(LOGS[1], 30)];
    for session in 0..3 {
        give(&store, &format!("s{session}"), &places);
    }
    let restored = restored(&store);
    let given: Vec<_> = given(&restored).into_values().collect();
    for (_, message) in given.iter().flatten() {
        assert_eq!(
            Arc::strong_count(message),
            2 * 3,
            "here, and in the sessions"
        );
    }
    assert_eq!(given[0].len(), places.len());
}
