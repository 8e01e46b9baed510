//! What is found after a crash. The image of one is a copy of the directory while the store is
//! open: what the process had handed to the operating system, and nothing that closing does.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};

use unbroken_mqtt_proto::QoS;
use unbroken_store::quarantine::{OnCorruption, open};
use unbroken_store::{
    Batch, Durability, Embedded, Kv, Log, LogId, MessageRecord, Options, Sequence, Space, Store,
};

const LOG: LogId = LogId(0);

fn options(durability: Durability) -> Options {
    let mut options = Options::default();
    options.durability = durability;
    options.generation_bytes = 500;
    options
}

/// A message and a value, in one batch.
fn write(store: &Embedded, number: u64) {
    let record = MessageRecord {
        qos: QoS::ExactlyOnce,
        ..MessageRecord::plain("a/b", number, &[7; 100])
    };
    let mut batch = Batch::new();
    let key = number.to_be_bytes().to_vec();
    batch
        .append(LOG, Sequence(number), record.encode())
        .put(Space::Sessions, key, vec![1]);
    assert!(store.commit(&[batch]).unwrap()[0].is_ok());
}

/// How many messages there are; as many values are there.
fn count(store: &Embedded) -> u64 {
    let whole = Sequence::FIRST..Sequence::END;
    let messages = store.read(LOG, whole, usize::MAX).unwrap().entries.len();
    let page = store.scan(Space::Sessions, &[], None, usize::MAX).unwrap();
    assert_eq!(page.pairs.len(), messages);
    let next = store.bounds(LOG).unwrap().next;
    assert_eq!(next.0, messages as u64 + 1);
    messages as u64
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        if ["examining", "list.new"]
            .iter()
            .any(|of| path.ends_with(of))
        {
            // The store's thread makes and removes them, and a start clears what is left of them.
        } else if path.is_dir() {
            copy(&path, &target);
        } else if path.extension().is_some_and(|ending| ending == "jnl") {
            // Without the zeros that are set aside.
            let bytes = fs::read(&path).unwrap();
            let used = bytes
                .iter()
                .rposition(|byte| *byte != 0)
                .map_or(0, |at| at + 1);
            fs::write(target, &bytes[..used]).unwrap();
        } else {
            fs::copy(path, target).unwrap();
        }
    }
}

fn journal(store: &Path) -> PathBuf {
    store.join("store/engine/0.jnl")
}

#[test]
fn what_was_acknowledged_is_there_after_a_crash_at_any_durability() {
    for durability in [Durability::Strict, Durability::Relaxed, Durability::Off] {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("store");
        let store = Embedded::open(&path, options(durability)).unwrap();
        for number in 1..=12 {
            write(&store, number);
            // Some of these are just behind a new generation.
            if u64::is_multiple_of(number, 6) {
                let image = temp.path().join(format!("image {number}"));
                copy(&path, &image);
                let found = open(&image, options(durability), OnCorruption::Refuse);
                assert_eq!(count(&found.unwrap().0), number, "{durability:?}");
            }
        }
    }
}

#[test]
fn a_batch_that_was_being_written_is_gone_whole_and_no_damage() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("store");
    let mut options = options(Durability::Strict);
    options.generation_bytes = 1_000_000;
    let store = Embedded::open(&path, options).unwrap();
    write(&store, 1);
    let before = temp.path().join("before");
    copy(&path, &before);
    write(&store, 2);
    let after = temp.path().join("after");
    copy(&path, &after);
    let written = fs::read(journal(&after)).unwrap();
    let begins = fs::metadata(journal(&before)).unwrap().len();
    let begins = usize::try_from(begins).unwrap();
    let torn = [1, 2, 14, 60, written.len() - begins - 1].map(|length| begins + length);
    let torn = torn.map(|length| written[..length].to_vec());
    // Or all of it but for some bytes in the middle, of the payload or of something else.
    let payload = written[begins..].windows(60).position(|it| it == [7; 60]);
    let payload = begins + payload.unwrap();
    let holes = [(begins, 10), (payload, 20), (written.len() - 40, 20)];
    let with_hole = |(from, bytes): (usize, usize)| {
        let mut written = written.clone();
        written[from..from + bytes].fill(0);
        written
    };
    for (length, torn) in torn.into_iter().chain(holes.map(with_hole)).enumerate() {
        // The disk has part of the batch, and nobody was answered.
        let image = temp.path().join(format!("torn {length}"));
        copy(&before, &image);
        fs::write(journal(&image), &torn).unwrap();
        let found = open(&image, options, OnCorruption::Refuse);
        let found = found.unwrap().0;
        assert_eq!(count(&found), 1, "{length}");
        write(&found, 2);
        drop(found);
        let again = Embedded::open(&image, options).unwrap();
        assert_eq!(count(&again), 2, "{length}");
    }
}
