//! Readers beside the one writer: what they see is whole, in order, and never ahead of itself.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use unbroken_mqtt_proto::TopicFilter;
use unbroken_store::{
    Batch, Durability, Embedded, Kv, Log, LogId, MessageRecord, Options, Selection, Sequence,
    Space, Store,
};

const LOG: LogId = LogId(0);
const COUNT: u64 = 1_500;

#[test]
fn readers_see_each_batch_whole_through_new_generations_and_trimming() {
    let temp = tempfile::tempdir().unwrap();
    let mut options = Options::default();
    options.durability = Durability::Off;
    options.generation_bytes = 5_000;
    let store = Embedded::open(temp.path(), options).unwrap();
    let done = AtomicBool::new(false);
    let even = Selection::new([TopicFilter::parse("even").unwrap()]);
    let wild = Selection::new([TopicFilter::parse("even/#").unwrap()]);
    thread::scope(|scope| {
        for wanted in [None, Some(&even), Some(&wild)] {
            let (store, done) = (&store, &done);
            scope.spawn(move || {
                while !done.load(Ordering::Acquire) {
                    look(store, wanted);
                }
                look(store, wanted);
            });
        }
        for number in 1..=COUNT {
            write(&store, number);
            if number.is_multiple_of(100) {
                store.trim(LOG, Sequence(number - 50)).unwrap();
            }
        }
        done.store(true, Ordering::Release);
    });
    assert_eq!(store.bounds(LOG).unwrap().next, Sequence(COUNT + 1));
}

/// A message and its number, in one batch.
fn write(store: &Embedded, number: u64) {
    let topic = if number.is_multiple_of(2) {
        "even"
    } else {
        "odd"
    };
    let payload = number.to_be_bytes();
    let record = MessageRecord::plain(topic, number, &payload);
    let mut batch = Batch::new();
    batch.append(LOG, Sequence(number), record.encode()).put(
        Space::Control,
        b"last".to_vec(),
        number.to_be_bytes().to_vec(),
    );
    assert!(store.commit(&[batch]).unwrap()[0].is_ok());
}

fn last(store: &Embedded) -> u64 {
    let value = store.get(Space::Control, b"last").unwrap();
    value.map_or(0, |value| {
        u64::from_be_bytes(value.bytes.try_into().unwrap())
    })
}

fn look(store: &Embedded, wanted: Option<&Selection>) {
    let before = last(store);
    let bounds = store.bounds(LOG).unwrap();
    let after = last(store);
    assert!(before < bounds.next.0, "the key is not ahead of the log");
    assert!(bounds.next.0 <= after + 1, "nor the log ahead of the key");

    let range = bounds.first..bounds.next;
    let chunk = match wanted {
        Some(wanted) => store.read_matching(LOG, range, wanted, usize::MAX),
        None => store.read(LOG, range, usize::MAX),
    };
    let chunk = chunk.unwrap();
    let numbers: Vec<_> = chunk.entries.iter().map(|entry| entry.sequence.0).collect();
    for entry in &chunk.entries {
        assert_eq!(
            entry.message.record().payload,
            entry.sequence.0.to_be_bytes()
        );
    }
    // What was trimmed meanwhile may be missing at the beginning.
    let first = numbers.first().copied().unwrap_or(chunk.next.0);
    let step = if wanted.is_some() { 2 } else { 1 };
    let expected: Vec<_> = (first..chunk.next.0).step_by(step).collect();
    assert_eq!(numbers, expected);
}
