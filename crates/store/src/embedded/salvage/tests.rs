//! Spaces with damage in their tables: which keys are there afterwards, and which are not.

use std::num::NonZeroU32;

use unbroken_mqtt_proto::{QoS, RetainHandling, SubscriptionOptions};

use super::*;
use crate::embedded::fault_injection::{SPACE, Tables, key, value};
use crate::position::Position;
use crate::quarantine::{OnCorruption, mark, open};
use crate::record::MessageRecord;
use crate::session::{self, Head, Part, Will};
use crate::store::{Kv as _, Log as _};

fn values(numbers: impl IntoIterator<Item = u32>, table: u8) -> Batch {
    let mut batch = Batch::new();
    for number in numbers {
        batch.put(SPACE, key(number), value(number, table));
    }
    batch
}

/// In the first table are all; the second has some anew and some no more, in one block.
const COUNT: u32 = 400;
const ANEW: [u32; 3] = [10, 200, 390];
const NO_MORE: u32 = 100;
/// Only the journal has this change.
const LATER: u32 = 201;

fn two_tables() -> Tables {
    let tables = Tables::new();
    tables.flushed(SPACE, values(0..COUNT, 1));
    let mut batch = values(ANEW, 2);
    batch.delete(SPACE, key(NO_MORE));
    tables.flushed(SPACE, batch);
    tables.commit(values([LATER], 3));
    tables
}

/// What is there; each value is the one that was written last.
fn there(store: &Embedded) -> BTreeSet<u32> {
    let page = store.scan(SPACE, b"", None, usize::MAX).unwrap();
    let pairs = page.pairs.into_iter().map(|pair| {
        let text = String::from_utf8(pair.key).unwrap();
        let number = text[1..].parse().unwrap();
        let table = match number {
            LATER => 3,
            _ if ANEW.contains(&number) => 2,
            _ => 1,
        };
        assert!(pair.value.bytes == value(number, table), "{text}");
        number
    });
    pairs.collect()
}

#[test]
fn a_bad_block_of_a_table_costs_what_was_in_it_and_had_not_changed_since() {
    for at in [0, COUNT / 2 + 10, COUNT - 1] {
        let mut tables = two_tables();
        tables.damage(&value(at, 1));
        let (store, quarantined) = tables.salvaged();
        let there = there(&store);
        let gone: Vec<_> = (0..COUNT)
            .filter(|number| *number != NO_MORE && !there.contains(number))
            .collect();
        assert!(!there.contains(&NO_MORE));
        assert!(gone.contains(&at), "{gone:?}");
        // One block, without what changed later.
        let (first, last) = (gone[0], gone[gone.len() - 1]);
        assert!(last - first < 60, "{gone:?}");
        let between = (first..=last).filter(|number| *number != LATER && !ANEW.contains(number));
        assert_eq!(gone, between.collect::<Vec<_>>());
        for number in ANEW.into_iter().chain([LATER]) {
            assert!(there.contains(&number), "{number}");
        }
        let lost = &quarantined.salvaged.lost;
        let [lost] = &lost[..] else {
            panic!("{lost:?}")
        };
        assert!(lost.starts_with("wills: values from key"), "{lost}");
    }
}

/// What it had is in no other place, and what others have of that is old.
#[test]
fn a_bad_block_of_a_small_table_costs_no_key_that_was_not_in_it() {
    let mut tables = two_tables();
    tables.damage(&value(ANEW[1], 2));
    let (store, quarantined) = tables.salvaged();
    let there = there(&store);
    let gone: Vec<_> = (0..COUNT).filter(|it| !there.contains(it)).collect();
    for number in [ANEW[0], NO_MORE, ANEW[1], ANEW[2]] {
        assert!(gone.contains(&number), "{number}");
    }
    // Its filter takes some few others for its own, always the same.
    assert!(gone.len() < 20, "{gone:?}");
    let lost = &quarantined.salvaged.lost;
    assert_eq!(lost.len(), 1 + gone.len(), "{lost:?}");
    assert!(lost[0].contains("from key k0010 to key k0390"), "{lost:?}");
    for (number, lost) in gone.into_iter().zip(&lost[1..]) {
        let words = format!("wills: the value of key k{number:04}: it may be an old one");
        assert_eq!(*lost, words);
    }
}

const LOG: LogId = LogId(1);

fn client(number: u32) -> String {
    format!("client{number:04}")
}

fn filter(client: &str) -> String {
    format!("$share/{client}/to-be-found-here")
}

/// A session that stays, with a subscription, and a message that a group has given to it.
fn put_session(batch: &mut Batch, client: &str, number: u64, qos: QoS) {
    let filter = filter(client);
    let options = SubscriptionOptions {
        qos: QoS::ExactlyOnce,
        no_local: false,
        retain_as_published: false,
        retain_handling: RetainHandling::SendAlways,
    };
    let subscription = Subscription {
        filter: filter.clone(),
        options,
        identifier: None,
        ended: false,
        retained_due: false,
        ranges: Vec::new(),
    };
    let outbound = Outbound {
        what: at(number),
        packet_id: None,
        qos,
        received: false,
        retain: false,
        by_group: true,
        group: Some(filter.clone()),
        identifiers: Vec::new(),
    };
    put_head(batch, client);
    let part = Part::Subscription {
        filter: &filter,
        era: 0,
    };
    for (part, value) in [
        (part, subscription.encode()),
        (Part::Outbound(number), outbound.encode()),
        (Part::Will, will(client).encode()),
    ] {
        batch.put(Space::Sessions, session::key(client, part), value);
    }
}

fn put_head(batch: &mut Batch, client: &str) {
    let head = Head {
        client_id: client.to_owned(),
        expiry_s: NonZeroU32::MAX,
        offline_since_ms: None,
        user: None,
        mount: None,
    };
    let key = session::key(client, Part::Head);
    batch.put(Space::Sessions, key, head.encode());
}

fn will(client: &str) -> Will {
    let message = MessageRecord::plain(client, 1, b"gone").encode();
    Will {
        delay_s: 0,
        author: None,
        message,
    }
}

fn at(number: u64) -> Carried {
    Carried::Log(Position {
        log: LOG,
        sequence: Sequence(number),
    })
}

/// How many values of each session there are.
fn parts(store: &Embedded) -> BTreeMap<String, usize> {
    let page = store.scan(Space::Sessions, b"", None, usize::MAX).unwrap();
    let mut parts = BTreeMap::new();
    for pair in page.pairs {
        let client = parse_key(&pair.key).unwrap().client;
        let name = String::from_utf8_lossy(&client[1..]).into_owned();
        *parts.entry(name).or_default() += 1;
    }
    parts
}

/// The messages that sessions have left, by the names of their notes.
fn left(store: &Embedded) -> BTreeMap<u64, Carried> {
    let page = store.scan(Space::Control, hand_over::PREFIX, None, usize::MAX);
    let pairs = page.unwrap().pairs.into_iter().map(|pair| {
        let HandOver { from, number } = HandOver::parse_key(&pair.key).unwrap();
        assert_eq!(from, HandOver::NO_SHARD);
        (number, Left::decode(&pair.value.bytes).unwrap().what)
    });
    pairs.collect()
}

/// A client whose session is present does not subscribe again.
#[test]
fn a_session_of_which_something_may_be_lost_ends_and_leaves_to_its_group_what_it_had() {
    let mut tables = Tables::new();
    let mut batch = Batch::new();
    for number in 0..200 {
        let sequence = u64::from(number) + 1;
        put_session(&mut batch, &client(number), sequence, QoS::AtLeastOnce);
    }
    // Noted before.
    let (from, number) = (HandOver::NO_SHARD, 7);
    let group = filter("before");
    let note = Left {
        group,
        what: at(1_000),
    };
    batch.put(
        Space::Control,
        HandOver { from, number }.key(),
        note.encode(),
    );
    tables.flushed(Space::Sessions, batch);
    tables.damage(filter(&client(100)).as_bytes());
    let (store, quarantined) = tables.salvaged();
    let (parts, mut left) = (parts(&store), left(&store));
    assert_eq!(left.remove(&7), Some(at(1_000)));
    let lost = quarantined.salvaged.lost;
    assert!(lost[0].starts_with("sessions: values from key"), "{lost:?}");
    let mut ended = Vec::new();
    for number in 0..200 {
        let client = client(number);
        match parts.get(&client) {
            Some(4) => {}
            // Of what is left of it, its will.
            None | Some(1) => ended.push(number),
            some => panic!("{client}: {some:?}"),
        }
    }
    assert!(ended.contains(&100) && ended.len() < 30, "{ended:?}");
    let (first, last) = (ended[0], ended[ended.len() - 1]);
    assert_eq!(ended, (first..=last).collect::<Vec<_>>());
    // The report covers what was read of them.
    let names = lost[1..].iter().map(|line| {
        let rest = line.strip_prefix("the session of client \"client").unwrap();
        assert!(rest.contains("which ends: a part of it may have been"));
        rest[..4].parse().unwrap()
    });
    let names: Vec<u32> = names.collect();
    assert!(names.contains(&last));
    assert!(names.iter().all(|name| ended.contains(name)), "{names:?}");
    let left: Vec<_> = left.into_iter().collect();
    assert!(!left.is_empty());
    for (number, (name, what)) in (8..).zip(&left) {
        let Carried::Log(position) = what else {
            panic!("{what:?}")
        };
        assert_eq!(*name, number);
        let client = u32::try_from(position.sequence.0).unwrap() - 1;
        assert!(names.contains(&client), "{client}");
    }
    assert!(store.bounds(LOG).unwrap().next.0 > 200);
}

/// Messages of QoS 2 that groups gave to it may have been delivered: no other member gets them.
#[test]
fn a_session_whose_newest_values_are_lost_ends_and_does_not_leave_old_ones() {
    for (qos, leaves) in [(QoS::AtLeastOnce, true), (QoS::ExactlyOnce, false)] {
        let mut tables = Tables::new();
        let mut batch = Batch::new();
        for number in [1, 2, 3] {
            put_session(&mut batch, &client(number), number.into(), qos);
        }
        tables.flushed(Space::Sessions, batch);
        let mut batch = Batch::new();
        let changed = client(2);
        put_head(&mut batch, &changed);
        batch.delete(Space::Sessions, session::key(&changed, Part::Outbound(2)));
        tables.flushed(Space::Sessions, batch);
        tables.damage_newest(Space::Sessions);
        let (store, _) = tables.salvaged();
        let mut parts = parts(&store);
        // The will, of which the newer table has nothing.
        assert_eq!(parts.remove(&changed), Some(1));
        assert_eq!(parts.into_values().collect::<Vec<_>>(), [4, 4]);
        let left: Vec<_> = left(&store).into_values().collect();
        assert_eq!(left, if leaves { vec![at(2)] } else { vec![] });
    }
}

#[test]
fn a_session_whose_head_is_lost_ends_by_name_and_a_will_alone_stays() {
    let tables = Tables::new();
    let mut batch = Batch::new();
    put_session(&mut batch, "whole", 1, QoS::AtLeastOnce);
    put_session(&mut batch, "headless", 2, QoS::AtLeastOnce);
    batch.delete(Space::Sessions, session::key("headless", Part::Head));
    let key = session::key("passing", Part::Will);
    batch.put(Space::Sessions, key, will("passing").encode());
    tables.commit(batch);
    let mut tables = tables;
    tables.store = None;
    let (store, quarantined) = tables.salvaged();
    let found: Vec<_> = parts(&store).into_iter().collect();
    let expected = [("headless", 1), ("passing", 1), ("whole", 4)];
    assert_eq!(
        found,
        expected.map(|(name, count)| (name.to_owned(), count))
    );
    assert_eq!(left(&store).into_values().collect::<Vec<_>>(), [at(2)]);
    assert_eq!(
        quarantined.salvaged.lost,
        ["the session of client \"headless\", which ends: its head is missing"]
    );
}

/// A newer version reads it.
#[test]
fn what_a_newer_version_has_written_is_refused_and_not_left_out() {
    let newer = vec![9];
    let mut value = Batch::new();
    value.put(Space::Retained, b"kitchen".to_vec(), newer.clone());
    let mut part = Batch::new();
    part.put(Space::Sessions, session::key("c", Part::Head), newer);
    for batch in [value, part] {
        let mut tables = Tables::new();
        tables.commit(batch);
        tables.store = None;
        tables.trim_journal();
        mark(tables.path(), &StoreError::damaged("it", "met in use")).unwrap();
        let opened = open(tables.path(), Options::default(), OnCorruption::Quarantine);
        let refused = opened.unwrap_err();
        assert!(matches!(refused, StoreError::Format { .. }), "{refused}");
        assert!(tables.path().join("store/engine").is_dir());
    }
}

/// A store that was salvaged before has such a log.
#[test]
fn numbers_that_a_log_has_left_out_are_no_messages_that_are_lost() {
    let temp = tempfile::tempdir().unwrap();
    let mut store = Embedded::open(temp.path(), Options::default()).unwrap();
    for _ in 0..3 {
        let next = store.bounds(LOG).unwrap().next;
        let mut batch = Batch::new();
        for number in next.0..next.0 + 3 {
            let message = MessageRecord::plain("t", 1, b"x").encode();
            batch.append(LOG, Sequence(number), message);
        }
        assert!(store.commit(&[batch]).unwrap()[0].is_ok());
        drop(store);
        mark(temp.path(), &StoreError::damaged("it", "it is said to be")).unwrap();
        let opened = open(temp.path(), Options::default(), OnCorruption::Quarantine);
        let quarantined;
        (store, quarantined) = opened.unwrap();
        assert_eq!(quarantined.unwrap().salvaged.lost, Vec::<String>::new());
    }
    let left_out = store.left_out(LOG).unwrap();
    let numbers = left_out.iter().map(|range| range.end.0 - range.start.0);
    assert_eq!(numbers.collect::<Vec<_>>(), [NUMBERS_LEFT_OUT; 3]);
}
