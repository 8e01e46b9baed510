//! Tests that reach into the store.

mod release;

use std::sync::atomic::Ordering;

use unbroken_mqtt_proto::TopicFilter;

use super::journals::{Known, Sieve};
use super::opened::OWN;
use super::*;
use crate::batch::Space;
use crate::record::MessageRecord;
use crate::store::{Log, Store as _};

/// Two generations, the first of them with three blocks.
fn filled(path: &Path) -> Embedded {
    let options = Options {
        generation_bytes: 100_000,
        ..Options::default()
    };
    let store = Embedded::open(path, options).unwrap();
    for number in 1..=4 {
        let payload = vec![7; 40_000];
        let record = MessageRecord::plain("a", number, &payload);
        let mut batch = Batch::new();
        batch.append(LogId(0), Sequence(number), record.encode());
        assert!(store.commit(&[batch]).unwrap()[0].is_ok());
    }
    assert_eq!(store.generations(LogId(0)).len(), 2);
    store
}

#[test]
fn a_block_that_is_missing_from_a_sealed_generation_is_damage_and_no_gap() {
    for gone in 1..=3 {
        let temp = tempfile::tempdir().unwrap();
        let store = filled(temp.path());
        let mut key = vec![1];
        key.extend_from_slice(&u64::to_be_bytes(gone));
        let name = Generation::name(LogId(0), Sequence::FIRST);
        let tree = store.engine.database.keyspace(&name, engine::log_options);
        tree.unwrap().remove(key).unwrap();
        store.write_published().snapshot = store.engine.database.snapshot();
        let read = store.read(LogId(0), Sequence::FIRST..Sequence::END, usize::MAX);
        let damage = read.unwrap_err().to_string();
        assert!(
            damage.contains(&format!("message {gone} is missing")),
            "{damage}"
        );
    }
}

/// A commit, and whether it was answered.
fn commits(store: &Embedded, number: u64) -> Result<(), StoreError> {
    let mut batch = Batch::new();
    let record = MessageRecord::plain("a", number, b"x");
    batch.append(LogId(0), Sequence(number), record.encode());
    store.commit(&[batch]).map(drop)
}

#[test]
fn a_store_that_is_not_where_it_was_opened_has_failed() {
    type Harm = fn(&Path) -> std::io::Result<()>;
    const HARMS: [(&str, Harm); 4] = [
        ("deleted", |data| {
            // The store may make a file meanwhile.
            while data.exists() {
                let _ = std::fs::remove_dir_all(data);
            }
            Ok(())
        }),
        ("moved", |data| {
            std::fs::rename(data, data.with_extension("old"))
        }),
        ("replaced", |data| {
            let old = data.with_extension("old");
            std::fs::rename(data, &old)?;
            // The store may remove a file meanwhile: what `cp` then says is no failure here. It may
            // make a directory in the old place, too, into which `cp` without -T would copy.
            std::process::Command::new("cp")
                .arg("-rT")
                .args([&old, data])
                .output()?;
            assert!(data.join("store/acknowledged").exists());
            Ok(())
        }),
        ("witness", |data| {
            std::fs::remove_file(data.join("store/acknowledged"))
        }),
    ];
    for (name, harm) in HARMS {
        for durability in [Durability::Strict, Durability::Relaxed, Durability::Off] {
            let temp = tempfile::tempdir().unwrap();
            let data = temp.path().join("data");
            let options = Options {
                durability,
                ..Options::default()
            };
            let store = Embedded::open(&data, options).unwrap();
            commits(&store, 1).unwrap();
            store.check_place().unwrap();
            harm(&data).unwrap();
            let failed = commits(&store, 2).unwrap_err().to_string();
            let words = "deleted, moved or replaced";
            assert!(failed.contains(words), "{name}: {failed}");
            let dead = commits(&store, 2).unwrap_err();
            assert!(matches!(dead, StoreError::Dead { .. }), "{name}: {dead}");
        }
    }
}

#[test]
fn a_store_whose_journals_or_trees_have_gone_has_failed() {
    for (gone, is_tree) in [("engine/keyspaces", true), ("engine/0.jnl", false)] {
        let temp = tempfile::tempdir().unwrap();
        let store = Embedded::open(temp.path(), Options::default()).unwrap();
        commits(&store, 1).unwrap();
        let gone = temp.path().join("store").join(gone);
        if is_tree {
            std::fs::remove_dir_all(&gone).unwrap();
        } else {
            std::fs::remove_file(&gone).unwrap();
        }
        store.check_place().unwrap_err();
        assert!(matches!(commits(&store, 2), Err(StoreError::Dead { .. })));
    }
}

#[test]
fn the_more_filters_a_read_has_the_fewer_generations_it_looks_at() {
    let temp = tempfile::tempdir().unwrap();
    let options = Options {
        generation_bytes: 1,
        durability: Durability::Off,
    };
    let store = Embedded::open(temp.path(), options).unwrap();
    for number in 1..=5 {
        let record = MessageRecord::plain("here", number, b"");
        let mut batch = Batch::new();
        batch.append(LogId(0), Sequence(number), record.encode());
        assert!(store.commit(&[batch]).unwrap()[0].is_ok());
    }
    for (count, reached) in [(1, 6), (64, 6), (LOOKUPS_PER_READ / 2, 3), (100_000, 2)] {
        let names: Vec<_> = (0..count).map(|n| format!("{n}/elsewhere")).collect();
        let filters = names.iter().map(|name| TopicFilter::parse(name).unwrap());
        let wanted = Selection::new(filters);
        let chunk = store.read_matching(LogId(0), Sequence::FIRST..Sequence::END, &wanted, 1);
        let chunk = chunk.unwrap();
        assert_eq!((chunk.entries.len(), chunk.next), (0, Sequence(reached)));
    }
}

#[test]
fn what_is_in_a_generation_that_was_never_begun_is_not_removed() {
    let temp = tempfile::tempdir().unwrap();
    let store = filled(temp.path());
    let mut batch = store.engine.batch(true);
    batch.remove(&store.engine.own, newest_key(LogId(0)));
    batch.commit().unwrap();
    drop(store);
    let refused = Embedded::open(temp.path(), Options::default()).unwrap_err();
    assert!(refused.to_string().contains("never begun"), "{refused}");
}

#[test]
fn every_batch_that_the_engine_wrote_is_read_as_whole() {
    let temp = tempfile::tempdir().unwrap();
    let store = filled(temp.path());
    for value in [vec![1; 10], (0..=255).cycle().take(50_000).collect()] {
        let mut batch = Batch::new();
        batch.put(Space::Wills, b"kept".to_vec(), value.clone());
        batch.put(Space::Wills, b"gone".to_vec(), value);
        assert!(store.commit(&[batch]).unwrap()[0].is_ok());
    }
    let mut batch = Batch::new();
    batch.delete(Space::Wills, b"gone".to_vec());
    assert!(store.commit(&[batch]).unwrap()[0].is_ok());
    let revision = store.read_published().revision;
    let last = store.engine.link.load(Ordering::Relaxed);
    drop(store);
    let engine = temp.path().join("store/engine");
    let names = examine::Trees::new(&engine, &temp.path().join("scratch"), true).names();
    let names = names.unwrap().into_iter();
    let (own, _) = names.into_iter().find(|(_, name)| name == OWN).unwrap();

    let known = || Known {
        own,
        ..Known::default()
    };
    let journals = Journals::read(&engine, known()).unwrap();
    assert_eq!(journals.links, Some((1, last)));
    assert_eq!(journals.own[REVISION_KEY], revision.0.to_be_bytes());
    assert!(!journals.tail().unwrap().torn);

    let bytes = std::fs::read(engine.join("0.jnl")).unwrap();
    let (whole, lost) = Sieve::new(&engine, known()).unwrap().pieces(&bytes);
    let used = bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    assert_eq!(
        (whole, lost),
        (
            vec![Range {
                start: 0,
                end: used
            }],
            vec![]
        )
    );
}
