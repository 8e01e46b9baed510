//! Messages that are released before the engine has written them to a table.

use std::fs;

use fjall::AbstractTree as _;

use super::*;
use crate::embedded::snapshot::StoreSnapshot;
use crate::quarantine::{OnCorruption, open};

const LOG: LogId = LogId(0);
const BYTES: usize = 10_000;

fn options() -> Options {
    Options {
        durability: Durability::Off,
        ..Options::default()
    }
}

/// Nothing that can be compressed.
fn payload(number: u64) -> Vec<u8> {
    let mut bytes = vec![0; BYTES];
    blake3::Hasher::new()
        .update(&number.to_be_bytes())
        .finalize_xof()
        .fill(&mut bytes);
    bytes
}

fn write(store: &Embedded, number: u64) {
    let topic = format!("t/{}", number % 3);
    let payload = payload(number);
    let record = MessageRecord::plain(&topic, number, &payload);
    let mut batch = Batch::new();
    batch.append(LOG, Sequence(number), record.encode());
    assert!(store.commit(&[batch]).unwrap()[0].is_ok());
}

/// Messages up to `last`, of which only the last ten are ever needed.
fn write_and_release(store: &Embedded, last: u64) {
    for number in store.bounds(LOG).unwrap().next.0.max(1)..=last {
        write(store, number);
        store.trim(LOG, Sequence(number.saturating_sub(9))).unwrap();
    }
}

/// The engine writes what it has of the log to a table; how large its tables are then.
fn flush(store: &Embedded) -> u64 {
    let published = store.read_published();
    let tree = published.logs[&LOG].generations.live.keyspace.clone();
    drop(published);
    tree.rotate_memtable_and_wait().unwrap();
    tree.disk_space()
}

fn numbers(log: &impl Log) -> Vec<u64> {
    let chunk = log.read(LOG, Sequence::FIRST..Sequence::END, usize::MAX);
    let entries = chunk.unwrap().entries.into_iter();
    let checked = entries.map(|entry| {
        assert_eq!(entry.message.record().payload, payload(entry.sequence.0));
        entry.sequence.0
    });
    checked.collect()
}

fn of_topic(log: &impl Log, topic: &str) -> Vec<u64> {
    let wanted = Selection::new([TopicFilter::parse(topic).unwrap()]);
    let range = Sequence::FIRST..Sequence::END;
    let chunk = log.read_matching(LOG, range, &wanted, usize::MAX).unwrap();
    chunk.entries.iter().map(|entry| entry.sequence.0).collect()
}

#[test]
fn it_is_in_no_table_and_the_rest_is() {
    let temp = tempfile::tempdir().unwrap();
    let store = Embedded::open(temp.path(), options()).unwrap();
    write_and_release(&store, 400);
    let bytes = flush(&store);
    let few = 20 * BYTES as u64;
    assert!((9 * BYTES as u64..few).contains(&bytes), "{bytes} bytes");
    let kept = store.kept_bytes().unwrap().messages;
    assert!(kept < few, "{kept} bytes are kept");
    // Messages in a table stay there, and later ones are released again.
    write_and_release(&store, 800);
    let bytes = flush(&store);
    assert!(bytes < 2 * few, "{bytes} bytes");
    assert_eq!(numbers(&store), (791..=800).collect::<Vec<_>>());
    assert_eq!(of_topic(&store, "t/0"), [792, 795, 798]);
}

/// What overlaps is merged with all that was written before.
#[test]
fn no_table_of_a_generation_overlaps_another() {
    let temp = tempfile::tempdir().unwrap();
    let store = Embedded::open(temp.path(), options()).unwrap();
    for last in [100, 200, 300] {
        write_and_release(&store, last);
        flush(&store);
    }
    let published = store.read_published();
    let version = published.logs[&LOG]
        .generations
        .live
        .keyspace
        .tree
        .current_version();
    let ranges = version.iter_tables().map(|table| {
        let range = &table.metadata.key_range;
        (range.min().clone(), range.max().clone())
    });
    let mut ranges: Vec<_> = ranges.collect();
    ranges.sort();
    assert_eq!(ranges.len(), 3);
    assert!(
        ranges.is_sorted_by(|before, after| before.1 < after.0),
        "{ranges:?}"
    );
}

#[test]
fn nothing_is_written_twice_that_is_kept() {
    let temp = tempfile::tempdir().unwrap();
    let store = Embedded::open(temp.path(), options()).unwrap();
    for number in 1..=100 {
        write(&store, number);
        // Somebody needs the first.
        store.trim(LOG, Sequence::FIRST).unwrap();
    }
    let bytes = flush(&store);
    assert!(bytes >= 100 * BYTES as u64, "{bytes} bytes");
    assert_eq!(numbers(&store), (1..=100).collect::<Vec<_>>());
}

#[test]
fn a_log_begins_after_a_restart_where_the_rest_begins() {
    let temp = tempfile::tempdir().unwrap();
    for (restart, flushes) in [(1, false), (2, true), (3, true), (4, false)] {
        let store = Embedded::open(temp.path(), options()).unwrap();
        if restart > 1 {
            let first = store.bounds(LOG).unwrap().first.0;
            let all = numbers(&store);
            let last = (restart - 1) * 100;
            // Messages that were released after the last commit are there again.
            assert!((last - 10..=last - 9).contains(&first), "{first}");
            assert_eq!(all, (first..=last).collect::<Vec<_>>());
            let of = (first..=last).filter(|it| it % 3 == 1).collect::<Vec<_>>();
            assert_eq!(of_topic(&store, "t/1"), of);
            assert_eq!(of_topic(&store, "+/1"), of);
        }
        write_and_release(&store, restart * 100);
        if flushes {
            flush(&store);
        }
    }
}

/// The image of a crash after any commit, with what the engine wrote to tables in between.
#[test]
fn a_crash_at_any_moment_leaves_what_is_needed() {
    let temp = tempfile::tempdir().unwrap();
    let store = Embedded::open(&temp.path().join("store"), options()).unwrap();
    for number in 1..=60 {
        write_and_release(&store, number);
        if number % 20 == 15 {
            flush(&store);
        }
        // As a power cut leaves it: tables as they are, the journal up to here.
        let image = temp.path().join(format!("{number}"));
        copy(&temp.path().join("store"), &image);
        let (found, _) = open(&image, options(), OnCorruption::Refuse).unwrap();
        let all = numbers(&found);
        assert!(all.contains(&number) && all[0] <= number.saturating_sub(9).max(1));
        assert_eq!(all, (all[0]..=number).collect::<Vec<_>>());
        write(&found, number + 1);
        drop(found);
        fs::remove_dir_all(image).unwrap();
    }
}

#[test]
fn who_reads_as_it_was_before_reads_it_still() {
    let temp = tempfile::tempdir().unwrap();
    let store = Embedded::open(temp.path(), options()).unwrap();
    for number in 1..=30 {
        write(&store, number);
    }
    let before = store.snapshot().unwrap();
    let frozen = StoreSnapshot::new(&store);
    store.trim(LOG, Sequence(31)).unwrap();
    for number in 31..=40 {
        write(&store, number);
        store.trim(LOG, Sequence(number + 1)).unwrap();
    }
    for _ in 0..2 {
        flush(&store);
        let all = before.read(LOG, Sequence::FIRST..Sequence::END, usize::MAX);
        assert_eq!(all.unwrap().entries.len(), 30);
        assert_eq!(numbers(&frozen), (1..=30).collect::<Vec<_>>());
        write(&store, store.bounds(LOG).unwrap().next.0);
    }
    assert_eq!(numbers(&store), [41, 42]);
}

#[test]
fn a_generation_goes_on_as_long_as_what_is_kept_of_it_is_little() {
    let temp = tempfile::tempdir().unwrap();
    let options = Options {
        generation_bytes: 20 * BYTES as u64,
        ..options()
    };
    let store = Embedded::open(temp.path(), options).unwrap();
    write_and_release(&store, 200);
    assert_eq!(store.generations(LOG), [Sequence::FIRST]);
    for number in 201..=220 {
        write(&store, number);
    }
    let generations = store.generations(LOG);
    assert_eq!(generations.len(), 2, "{generations:?}");
    assert_eq!(
        of_topic(&store, "t/2"),
        [191, 194, 197, 200, 203, 206, 209, 212, 215, 218]
    );
    // What is sealed says where the rest of it begins, too.
    drop(store);
    let store = Embedded::open(temp.path(), options).unwrap();
    assert_eq!(store.generations(LOG), generations);
    assert_eq!(numbers(&store), (191..=220).collect::<Vec<_>>());
    assert_eq!(
        of_topic(&store, "t/2"),
        [191, 194, 197, 200, 203, 206, 209, 212, 215, 218]
    );
}

#[test]
fn what_was_let_go_of_is_not_missed_where_a_damaged_store_is_set_aside() {
    let temp = tempfile::tempdir().unwrap();
    let store = Embedded::open(temp.path(), options()).unwrap();
    write_and_release(&store, 100);
    flush(&store);
    write_and_release(&store, 120);
    drop(store);
    crate::quarantine::mark(temp.path(), &"met in use").unwrap();
    let opened = open(temp.path(), options(), OnCorruption::Quarantine);
    let (store, quarantined) = opened.unwrap();
    let lost = quarantined.unwrap().salvaged.lost;
    assert!(lost.is_empty(), "{lost:?}");
    let all = numbers(&store);
    assert_eq!(all, (all[0]..=120).collect::<Vec<_>>());
    assert!((110..=111).contains(&all[0]), "{all:?}");
}

/// What was being written may be gone before it is copied: then the copy begins again.
fn copy(from: &Path, to: &Path) {
    while copy_once(from, to).is_err() {
        fs::remove_dir_all(to).unwrap();
    }
}

fn copy_once(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            copy_once(&path, &target)?;
        } else if path.extension().is_some_and(|ending| ending == "jnl") {
            // Without the zeros that are set aside.
            let bytes = fs::read(&path)?;
            let used = bytes.iter().rposition(|byte| *byte != 0);
            fs::write(target, &bytes[..used.map_or(0, |at| at + 1)])?;
        } else {
            fs::copy(path, target)?;
        }
    }
    Ok(())
}
