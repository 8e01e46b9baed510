//! The tests. Each opens a store of its own.

mod selection;

use crate::{
    Batch, Bounds, Conflict, Expect, LogId, MessageBytes, MessageRecord, Revision, Selection,
    Sequence, Space, Store, View,
};
use unbroken_mqtt_proto::{Properties, QoS, TopicFilter};

use super::Subject;

pub use self::selection::{
    a_selection_is_read_in_pieces, long_topics_are_selected_too,
    topics_are_selected_by_name_and_by_wildcard,
};

const LOG: LogId = LogId(3);
const ALL: std::ops::Range<Sequence> = Sequence::FIRST..Sequence::END;

pub(crate) fn message(topic: &str, payload: &[u8]) -> MessageBytes {
    MessageRecord {
        topic,
        qos: QoS::AtLeastOnce,
        retain: false,
        stamp_ms: 1_790_000_000_000,
        expires_ms: None,
        publisher: Some("publisher"),
        mark: None,
        properties: Properties::EMPTY,
        payload,
    }
    .encode()
}

pub(crate) fn select(filters: &[&str]) -> Selection {
    Selection::new(filters.iter().map(|text| TopicFilter::parse(text).unwrap()))
}

/// Commits one batch that must be written.
pub(crate) fn write(store: &dyn Store, fill: impl FnOnce(&mut Batch)) -> Revision {
    let mut batch = Batch::new();
    fill(&mut batch);
    let results = store.commit(&[batch]).unwrap();
    let [Ok(committed)] = results[..] else {
        panic!("{results:?}");
    };
    committed.revision
}

/// Appends messages 1, 2, 3 … on these topics, each its own batch of one commit.
fn append(store: &dyn Store, topics: &[&str]) {
    let next = store.bounds(LOG).unwrap().next.0;
    let batches: Vec<_> = topics
        .iter()
        .zip(next..)
        .map(|(topic, at)| {
            let mut batch = Batch::new();
            batch.append(LOG, Sequence(at), message(topic, &at.to_be_bytes()));
            batch
        })
        .collect();
    assert!(store.commit(&batches).unwrap().iter().all(Result::is_ok));
}

/// Reads to the end, and checks what each piece promises.
pub(crate) fn read_all(
    store: &(impl View + ?Sized),
    log: LogId,
    wanted: Option<&Selection>,
    bytes_max: usize,
) -> Vec<(u64, Vec<u8>)> {
    let bounds = store.bounds(log).unwrap();
    let mut from = Sequence::BEFORE_ALL;
    let mut all = Vec::new();
    while from < bounds.next {
        let range = from..Sequence::END;
        let chunk = match wanted {
            Some(wanted) => store.read_matching(log, range, wanted, bytes_max),
            None => store.read(log, range, bytes_max),
        };
        let chunk = chunk.unwrap();
        assert!(chunk.next > from && chunk.next <= bounds.next, "progress");
        let sizes: Vec<_> = chunk
            .entries
            .iter()
            .map(|entry| entry.message.as_bytes().len())
            .collect();
        let before_last: usize = sizes.iter().rev().skip(1).sum();
        assert!(before_last < bytes_max.max(1), "{sizes:?} for {bytes_max}");
        for entry in chunk.entries {
            assert!(from <= entry.sequence && entry.sequence < chunk.next);
            let bytes = entry.message.into_bytes();
            all.push((entry.sequence.0, bytes));
        }
        from = chunk.next;
    }
    assert!(all.is_sorted_by(|one, two| one.0 < two.0));
    all
}

fn numbers(all: &[(u64, Vec<u8>)]) -> Vec<u64> {
    all.iter().map(|(number, _)| *number).collect()
}

/// `delete_all` takes what was put before it, in its batch and in earlier ones, and nothing that is
/// put behind it. A prefix of no bytes is a conflict.
pub fn a_prefix_is_deleted_with_what_was_put_before_and_not_what_is_put_behind(
    subject: &impl Subject,
) {
    let store = subject.open();
    let put = |batch: &mut Batch, key: &[u8]| {
        batch.put(Space::Sessions, key.to_vec(), b"value".to_vec());
    };
    write(&*store, |batch| {
        put(batch, b"a");
        put(batch, b"ab");
        put(batch, b"b");
    });
    let mut earlier = Batch::new();
    put(&mut earlier, b"ac");
    let mut batch = Batch::new();
    put(&mut batch, b"ad");
    batch.delete_all(Space::Sessions, b"a".to_vec());
    put(&mut batch, b"ae");
    let results = store.commit(&[earlier, batch]).unwrap();
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    let page = store.scan(Space::Sessions, &[], None, usize::MAX).unwrap();
    let keys: Vec<_> = page.pairs.into_iter().map(|pair| pair.key).collect();
    assert_eq!(keys, [b"ae".to_vec(), b"b".to_vec()]);
    let mut batch = Batch::new();
    batch.delete_all(Space::Sessions, Vec::new());
    let results = store.commit(&[batch]).unwrap();
    assert!(matches!(results[..], [Err(Conflict::Key { .. })]));
}

/// A log that was never written to is not listed and has no bounds; a message comes back byte for
/// byte.
pub fn a_message_is_read_as_it_was_appended(subject: &impl Subject) {
    let store = subject.open();
    assert_eq!(store.logs().unwrap(), []);
    assert_eq!(store.bounds(LOG).unwrap(), Bounds::EMPTY);
    assert_eq!(store.read(LOG, ALL, 1).unwrap().entries, []);
    let first = message("a/b", b"hello");
    write(&*store, |batch| {
        batch.append(LOG, Sequence(1), first.clone());
    });
    assert_eq!(store.logs().unwrap(), [LOG]);
    let chunk = store.read(LOG, ALL, 1).unwrap();
    assert_eq!(chunk.entries[0].message, first);
    assert_eq!(chunk.next, Sequence(2));
    let (first, next) = (Sequence(1), Sequence(2));
    assert_eq!(store.bounds(LOG).unwrap(), Bounds { first, next });
}

/// Pieces of any size, also of 0 bytes, go on where the last one ended, and give each message once.
pub fn messages_are_read_in_order_and_in_pieces(subject: &impl Subject) {
    let store = subject.open();
    append(&*store, &["a"; 50]);
    append(&*store, &["a"; 50]);
    for bytes_max in [0, 1, 100, 1_000, usize::MAX] {
        let all = read_all(&*store, LOG, None, bytes_max);
        assert_eq!(numbers(&all), (1..=100).collect::<Vec<_>>());
    }
    let part = store.read(LOG, Sequence(20)..Sequence(23), 1_000).unwrap();
    let part: Vec<_> = part.entries.iter().map(|entry| entry.sequence.0).collect();
    assert_eq!(part, [20, 21, 22]);
    let none = store.read(LOG, Sequence(20)..Sequence(20), 1_000).unwrap();
    assert_eq!((none.entries.len(), none.next), (0, Sequence(20)));
    let beyond = store
        .read(LOG, Sequence(200)..Sequence(300), 1_000)
        .unwrap();
    assert_eq!((beyond.entries.len(), beyond.next), (0, Sequence(200)));
}

/// A wrong number is a conflict that names the next one, and nothing of its batch is there.
pub fn a_number_that_is_not_the_next_is_refused_with_its_whole_batch(subject: &impl Subject) {
    let store = subject.open();
    append(&*store, &["a"]);
    for given in [0, 1, 3, u64::MAX] {
        let given = Sequence(given);
        let mut batch = Batch::new();
        batch
            .put(Space::Control, b"k".to_vec(), b"v".to_vec())
            .append(LOG, given, message("a", b""));
        let conflict = Conflict::Sequence {
            log: LOG,
            given,
            next: Sequence(2),
        };
        assert_eq!(store.commit(&[batch]).unwrap(), [Err(conflict)]);
    }
    assert_eq!(store.get(Space::Control, b"k").unwrap(), None);
    assert_eq!(store.bounds(LOG).unwrap().next, Sequence(2));
}

/// One expectation that does not hold keeps back appends and values of its batch, in all spaces.
pub fn a_batch_is_written_whole_or_not_at_all(subject: &impl Subject) {
    let store = subject.open();
    write(&*store, |batch| {
        batch.put(Space::Retained, b"t".to_vec(), b"old".to_vec());
    });
    let mut batch = Batch::new();
    batch
        .append(LOG, Sequence(1), message("t", b""))
        .put(Space::Retained, b"t".to_vec(), b"new".to_vec())
        .delete(Space::Sessions, b"s".to_vec())
        .put_if(
            Space::Wills,
            b"w".to_vec(),
            vec![],
            Expect::Revision(Revision(77)),
        );
    let results = store.commit(&[batch]).unwrap();
    assert!(matches!(results[..], [Err(Conflict::Revision { .. })]));
    let retained = store.get(Space::Retained, b"t").unwrap().unwrap();
    assert_eq!(retained.bytes, b"old");
    assert_eq!(store.bounds(LOG).unwrap(), Bounds::EMPTY);
    // What was refused takes no number.
    append(&*store, &["t"]);
}

/// Batches of one commit take effect one after the other, and changes of one batch do so as well.
pub fn later_batches_see_what_earlier_ones_wrote(subject: &impl Subject) {
    let store = subject.open();
    let key = || b"k".to_vec();
    let put = |value: u8, expect: Expect| {
        let mut batch = Batch::new();
        batch.put_if(Space::Control, key(), vec![value], expect);
        batch
    };
    let mut two = Batch::new();
    two.append(LOG, Sequence(1), message("a", b""))
        .delete(Space::Control, key())
        .put_if(Space::Control, key(), vec![4], Expect::Absent)
        .append(LOG, Sequence(2), message("a", b""));
    let mut three = Batch::new();
    three.append(LOG, Sequence(3), message("a", b""));
    let results = store
        .commit(&[
            put(1, Expect::Absent),
            put(2, Expect::Absent),
            put(3, Expect::Anything),
            two,
            three,
            Batch::new(),
        ])
        .unwrap();
    let ok: Vec<_> = results.iter().map(Result::is_ok).collect();
    assert_eq!(ok, [true, false, true, true, true, true]);
    assert_eq!(store.get(Space::Control, b"k").unwrap().unwrap().bytes, [4]);
    assert_eq!(store.bounds(LOG).unwrap().next, Sequence(4));
}

/// `Expect` is compared with the revision of the value; the conflict says what was found.
pub fn a_value_is_set_only_if_what_is_there_is_as_expected(subject: &impl Subject) {
    let store = subject.open();
    let key = b"k".to_vec();
    let first = write(&*store, |batch| {
        batch.put_if(Space::Sessions, key.clone(), b"1".to_vec(), Expect::Absent);
    });
    assert_eq!(
        store.get(Space::Sessions, &key).unwrap().unwrap().revision,
        first
    );
    assert_eq!(store.get(Space::Wills, &key).unwrap(), None);
    let expect = Expect::Revision(first);
    let second = write(&*store, |batch| {
        batch.put_if(Space::Sessions, key.clone(), b"2".to_vec(), expect);
    });
    let mut batch = Batch::new();
    batch.delete_if(Space::Sessions, key.clone(), expect);
    let conflict = Conflict::Revision {
        space: Space::Sessions,
        key: key.clone(),
        expected: expect,
        found: Some(second),
    };
    assert_eq!(store.commit(&[batch]).unwrap(), [Err(conflict)]);
    write(&*store, |batch| {
        batch.delete_if(Space::Sessions, key.clone(), Expect::Revision(second));
    });
    assert_eq!(store.get(Space::Sessions, &key).unwrap(), None);
}

/// Each change has a revision of its own, one more than the last, over all spaces and restarts.
pub fn revisions_only_grow(subject: &impl Subject) {
    let mut store = subject.open();
    let mut last = Revision(0);
    for round in 0..4 {
        let first = write(&*store, |batch| {
            batch
                .put(Space::Control, b"a".to_vec(), vec![round])
                .put(Space::Control, b"b".to_vec(), vec![round])
                .delete(Space::Control, b"c".to_vec());
        });
        assert!(first > last, "{first:?} after {last:?}");
        let b = store.get(Space::Control, b"b").unwrap().unwrap();
        assert_eq!(b.revision, Revision(first.0 + 1));
        last = Revision(first.0 + 2);
        if crate_keeps(subject) {
            drop(store);
            store = subject.open();
        }
    }
}

fn crate_keeps<S: Subject>(_: &S) -> bool {
    S::KEEPS
}

/// Keys come in the order of their bytes, whatever the prefix and the size of a piece.
pub fn keys_are_scanned_by_prefix_in_order_and_in_pieces(subject: &impl Subject) {
    let store = subject.open();
    let keys: [&[u8]; 8] = [
        b"\x00",
        b"a",
        b"a\x00",
        b"ab",
        b"a\xff",
        b"a\xff\xff",
        b"b",
        b"\xff\xff",
    ];
    write(&*store, |batch| {
        for key in keys.iter().rev() {
            batch.put(Space::Retained, key.to_vec(), key.repeat(9));
        }
        batch.put(Space::Wills, b"a".to_vec(), vec![]);
    });
    let scan = |prefix: &[u8], bytes_max: usize| {
        let mut found: Vec<Vec<u8>> = Vec::new();
        loop {
            let after = found.last().map(Vec::as_slice);
            let page = store
                .scan(Space::Retained, prefix, after, bytes_max)
                .unwrap();
            assert!(!page.pairs.is_empty() || !page.more);
            for pair in page.pairs {
                assert_eq!(pair.value.bytes, pair.key.repeat(9));
                found.push(pair.key);
            }
            if !page.more {
                return found;
            }
        }
    };
    for bytes_max in [0, 1, 25, usize::MAX] {
        assert_eq!(scan(b"", bytes_max), keys);
        assert_eq!(scan(b"a", bytes_max), keys[1..6]);
        assert_eq!(scan(b"a\xff", bytes_max), keys[4..6]);
        assert_eq!(scan(b"\xff", bytes_max), keys[7..]);
        assert!(scan(b"c", bytes_max).is_empty());
    }
    let before = store.scan(Space::Retained, b"b", Some(b"a"), 99).unwrap();
    assert_eq!(before.pairs.len(), 1);
    let behind = store.scan(Space::Retained, b"a", Some(b"b"), 99).unwrap();
    assert_eq!((behind.pairs.len(), behind.more), (0, false));
}

/// A key of 1 to `KEY_BYTES_MAX` bytes is a key; others are conflicts.
pub fn keys_that_cannot_be_are_refused(subject: &impl Subject) {
    let store = subject.open();
    for (length, good) in [(0, false), (1, true), (65_535, true), (65_536, false)] {
        let mut put = Batch::new();
        put.put(Space::Retained, vec![b'k'; length], vec![1]);
        let mut delete = Batch::new();
        delete.delete(Space::Retained, vec![b'k'; length]);
        for batch in [put, delete] {
            let results = store.commit(&[batch]).unwrap();
            let refused = Err(Conflict::Key {
                space: Space::Retained,
                bytes: length,
            });
            assert_eq!(results[0].is_ok(), good);
            assert!(good || results == [refused]);
        }
        assert_eq!(
            store.get(Space::Retained, &vec![b'k'; length]).unwrap(),
            None
        );
    }
}

/// Trimming raises the first number and never lowers it; an empty log keeps the next one.
pub fn what_is_trimmed_is_not_read_and_numbers_go_on(subject: &impl Subject) {
    let store = subject.open();
    append(&*store, &["a"; 10]);
    store.trim(LOG, Sequence(4)).unwrap();
    store.trim(LogId(9), Sequence(4)).unwrap();
    let (first, next) = (Sequence(4), Sequence(11));
    assert_eq!(store.bounds(LOG).unwrap(), Bounds { first, next });
    for wanted in [None, Some(&select(&["a"])), Some(&select(&["+"]))] {
        let all = read_all(&*store, LOG, wanted, usize::MAX);
        assert_eq!(numbers(&all), [4, 5, 6, 7, 8, 9, 10]);
    }
    store.trim(LOG, Sequence(2)).unwrap();
    assert_eq!(store.bounds(LOG).unwrap(), Bounds { first, next });
    while store.trim(LOG, Sequence::END).unwrap() {}
    let bounds = Bounds { first: next, next };
    assert_eq!(store.bounds(LOG).unwrap(), bounds);
    append(&*store, &["a"; 2]);
    assert_eq!(numbers(&read_all(&*store, LOG, None, 99)), [11, 12]);
}

/// `kept_bytes` falls with each part that is trimmed, to 0 with the last.
pub fn what_is_trimmed_counts_no_more(subject: &impl Subject) {
    let store = subject.open();
    assert_eq!(store.kept_bytes().unwrap().messages, 0);
    // What is left out behind them is no part of them.
    for goes_on in [false, true] {
        let first = store.bounds(LOG).unwrap().next.0;
        append(&*store, &["a"; 100]);
        if goes_on {
            store.go_on_at(LOG, Sequence(1 << 32)).unwrap();
        }
        let mut before = store.kept_bytes().unwrap().messages;
        let least = (before / 100).max(1);
        for trimmed in [25, 50, 75] {
            store.trim(LOG, Sequence(first + trimmed)).unwrap();
            let kept = store.kept_bytes().unwrap().messages;
            assert!(
                kept + least < before,
                "{kept} of {before}, {trimmed} trimmed"
            );
            before = kept;
        }
        store.trim(LOG, Sequence::END).unwrap();
        assert_eq!(store.kept_bytes().unwrap().messages, 0);
    }
    append(&*store, &["a"]);
    assert!(store.kept_bytes().unwrap().messages > 0);
}

/// `go_on_at` leaves a hole that reads pass over, and does nothing for a number that was reached.
pub fn a_log_goes_on_at_a_greater_number_and_at_no_smaller_one<S: Subject>(subject: &S) {
    let mut store = subject.open();
    let other = LogId(8);
    store.go_on_at(LOG, Sequence(0)).unwrap();
    append(&*store, &["a"; 2]);
    for next in [10, 3, 10, 0] {
        store.go_on_at(LOG, Sequence(next)).unwrap();
    }
    append(&*store, &["a", "b"]);
    store.go_on_at(other, Sequence(5)).unwrap();
    for _ in 0..2 {
        assert_eq!(store.logs().unwrap(), [LOG, other]);
        let bounds = store.bounds(LOG).unwrap();
        assert_eq!((bounds.first, bounds.next), (Sequence(1), Sequence(12)));
        let bounds = store.bounds(other).unwrap();
        assert_eq!((bounds.first, bounds.next), (Sequence(5), Sequence(5)));
        assert_eq!(store.left_out(LOG).unwrap(), [Sequence(3)..Sequence(10)]);
        assert_eq!(store.left_out(other).unwrap(), []);
        for (wanted, expected) in [
            (None, &[1, 2, 10, 11][..]),
            (Some(select(&["a"])), &[1, 2, 10]),
            (Some(select(&["+"])), &[1, 2, 10, 11]),
        ] {
            for bytes_max in [1, usize::MAX] {
                let all = read_all(&*store, LOG, wanted.as_ref(), bytes_max);
                assert_eq!(numbers(&all), expected);
            }
        }
        let hole = store.read(LOG, Sequence(3)..Sequence(10), 99).unwrap();
        assert_eq!((hole.entries.len(), hole.next), (0, Sequence(10)));
        if !S::KEEPS {
            break;
        }
        drop(store);
        store = subject.open();
    }
    let mut batch = Batch::new();
    batch.append(other, Sequence(5), message("a", b""));
    assert!(store.commit(&[batch]).unwrap()[0].is_ok());
    store.trim(LOG, Sequence(7)).unwrap();
    assert_eq!(store.bounds(LOG).unwrap().first, Sequence(7));
    assert_eq!(store.left_out(LOG).unwrap(), [Sequence(7)..Sequence(10)]);
    assert_eq!(store.left_out(LogId(9)).unwrap(), []);
    assert_eq!(numbers(&read_all(&*store, LOG, None, 99)), [10, 11]);
}

/// A snapshot is of one moment, over logs and values, whatever is trimmed and deleted behind it.
pub fn a_snapshot_stays_as_it_was_whatever_happens_to_the_store(subject: &impl Subject) {
    let store = subject.open();
    let topics = ["a/b", "c", "a/b", "d"].repeat(5);
    append(&*store, &topics);
    write(&*store, |batch| {
        for key in 0..5 {
            batch.put(Space::Retained, vec![key], vec![key]);
        }
    });
    store.trim(LOG, Sequence(3)).unwrap();
    let snapshot = store.snapshot().unwrap();
    let bounds = store.bounds(LOG).unwrap();
    append(&*store, &["a/b"; 20]);
    store.trim(LOG, Sequence(35)).unwrap();
    write(&*store, |batch| {
        batch
            .append(LogId(7), Sequence(1), message("a/b", b""))
            .delete_all(Space::Retained, vec![3])
            .put(Space::Retained, vec![1], b"new".to_vec())
            .put(Space::Retained, vec![9], b"new".to_vec());
    });
    assert_eq!(store.bounds(LOG).unwrap().first, Sequence(35));
    assert_eq!(snapshot.logs().unwrap(), [LOG]);
    assert_eq!(snapshot.bounds(LOG).unwrap(), bounds);
    assert_eq!(snapshot.bounds(LogId(7)).unwrap(), Bounds::EMPTY);
    for bytes_max in [1, 99, usize::MAX] {
        let all = read_all(&*snapshot, LOG, None, bytes_max);
        assert_eq!(numbers(&all), (3..=20).collect::<Vec<_>>());
        for filters in [&["a/b"][..], &["a/+"], &["#"]] {
            let wanted = select(filters);
            let some = read_all(&*snapshot, LOG, Some(&wanted), bytes_max);
            let expected = if filters == ["#"] { 18 } else { 9 };
            assert_eq!(some.len(), expected, "{filters:?}");
        }
    }
    for key in 0..5 {
        let value = snapshot.get(Space::Retained, &[key]).unwrap().unwrap();
        assert_eq!(value.bytes, [key]);
    }
    let page = snapshot.scan(Space::Retained, &[], None, 99).unwrap();
    assert_eq!(page.pairs.len(), 5);
    // What was kept for it only is gone with it, and the store with both.
    drop(snapshot);
    assert_eq!(
        numbers(&read_all(&*store, LOG, None, 99)).first(),
        Some(&35)
    );
}

/// Messages and values; nothing to see with a store that does not keep.
pub fn what_was_committed_is_there_after_a_restart<S: Subject>(subject: &S) {
    if !S::KEEPS {
        return;
    }
    let mut store = subject.open();
    for round in 1..4u8 {
        append(&*store, &["a/b", "c"]);
        write(&*store, |batch| {
            batch
                .put(Space::Sessions, vec![round], vec![round])
                .delete(Space::Sessions, vec![round - 1]);
        });
        drop(store);
        store = subject.open();
        let count = u64::from(round) * 2;
        let all = read_all(&*store, LOG, None, usize::MAX);
        assert_eq!(numbers(&all), (1..=count).collect::<Vec<_>>());
        let odd = read_all(&*store, LOG, Some(&select(&["a/+"])), usize::MAX);
        assert_eq!(odd.len(), usize::from(round));
        let page = store.scan(Space::Sessions, &[], None, 99).unwrap();
        assert_eq!(page.pairs.len(), 1);
        assert_eq!(page.pairs[0].value.bytes, [round]);
    }
}

/// Its next number is remembered; nothing to see with a store that does not keep.
pub fn a_log_that_was_trimmed_empty_goes_on_after_a_restart<S: Subject>(subject: &S) {
    if !S::KEEPS {
        return;
    }
    let store = subject.open();
    append(&*store, &["a"; 5]);
    store.trim(LOG, Sequence::END).unwrap();
    drop(store);
    let store = subject.open();
    assert_eq!(store.bounds(LOG).unwrap().next, Sequence(6));
    append(&*store, &["a"]);
}
