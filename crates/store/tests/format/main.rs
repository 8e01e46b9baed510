//! Stores and backups as earlier versions have written them, and what they are now.
//!
//! `testdata/format-N.store` and `.backup`, `format-N-kinds` with a value of each kind,
//! `format-N-access` with the kinds that came later, and `format-N-let-go` with a generation of
//! format 2, were written by `cargo run -p unbroken-store
//! --example record-format crates/store/testdata`, when N was the format. They are never written
//! again.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[allow(dead_code, reason = "what records uses the rest")]
mod files;
mod sample;

use std::collections::BTreeSet;
use std::path::Path;

use unbroken_store::session::{Head, Part, key};
use unbroken_store::{
    Embedded, Kv, Log, Memory, Selection, Sequence, Space, ValueKind, View, backup, check_value,
};

const STORE: &[u8] = include_bytes!("../../testdata/format-1.store");
const BACKUP: &[u8] = include_bytes!("../../testdata/format-1.backup");
const STORE_OF_KINDS: &[u8] = include_bytes!("../../testdata/format-1-kinds.store");
const BACKUP_OF_KINDS: &[u8] = include_bytes!("../../testdata/format-1-kinds.backup");
const STORE_OF_ACCESS: &[u8] = include_bytes!("../../testdata/format-1-access.store");
const BACKUP_OF_ACCESS: &[u8] = include_bytes!("../../testdata/format-1-access.backup");
const STORE_LET_GO: &[u8] = include_bytes!("../../testdata/format-1-let-go.store");
const BACKUP_LET_GO: &[u8] = include_bytes!("../../testdata/format-1-let-go.backup");

fn backup_of(view: &dyn View) -> Vec<u8> {
    let mut file = Vec::new();
    backup::write(view, &mut file).unwrap();
    file
}

/// What it holds, as a reader finds it.
fn is_the_sample(store: &dyn View) {
    let bounds = store.bounds(sample::LOG).unwrap();
    assert_eq!(bounds.next, Sequence((1 << 32) + 1));
    let chunk = store
        .read(sample::LOG, Sequence(20)..Sequence::END, usize::MAX)
        .unwrap();
    let numbers = chunk.entries.iter().map(|entry| {
        assert_eq!(entry.message, sample::message(entry.sequence.0));
        entry.sequence.0
    });
    let expected: Vec<_> = (20..=sample::MESSAGES).chain([1 << 32]).collect();
    assert_eq!(numbers.collect::<Vec<_>>(), expected);
    let rare = Selection::new([unbroken_mqtt_proto::TopicFilter::parse("rare").unwrap()]);
    let range = Sequence(20)..Sequence::END;
    let found = store
        .read_matching(sample::LOG, range, &rare, usize::MAX)
        .unwrap();
    let numbers: Vec<_> = found.entries.iter().map(|entry| entry.sequence.0).collect();
    let expected: Vec<_> = expected
        .into_iter()
        .filter(|n| n.is_multiple_of(7))
        .collect();
    assert_eq!(numbers, expected);
    let head = store
        .get(Space::Sessions, &key("phone", Part::Head))
        .unwrap();
    assert_eq!(
        Head::decode(&head.unwrap().bytes).unwrap().client_id,
        "phone"
    );
}

fn unpacked(files: &[u8], path: &Path) -> Embedded {
    let store = path.join("store");
    std::fs::create_dir(&store).unwrap();
    files::unpack(files, &store);
    Embedded::open(path, sample::options()).unwrap()
}

#[test]
fn a_store_of_format_1_is_read_as_it_was_written() {
    let temp = tempfile::tempdir().unwrap();
    let store = unpacked(STORE, temp.path());
    is_the_sample(&store);
    assert_eq!(backup_of(&store), BACKUP);
}

#[test]
fn a_store_of_format_1_goes_on_and_is_there_again() {
    let temp = tempfile::tempdir().unwrap();
    for number in 1..4 {
        let store = if number == 1 {
            unpacked(STORE, temp.path())
        } else {
            Embedded::open(temp.path(), sample::options()).unwrap()
        };
        let next = store.bounds(sample::LOG).unwrap().next;
        assert_eq!(next, Sequence((1 << 32) + number));
        let mut batch = unbroken_store::Batch::new();
        batch.append(sample::LOG, next, sample::message(next.0));
        let done = unbroken_store::Store::commit(&store, &[batch]).unwrap();
        assert!(done[0].is_ok());
    }
}

#[test]
fn a_backup_of_format_1_is_read_as_it_was_written() {
    let memory = Memory::new();
    backup::read(&mut &*BACKUP, &memory).unwrap();
    is_the_sample(&memory);
    assert_eq!(backup_of(&memory), BACKUP);
}

/// So that what records the next format does what this says.
#[test]
fn the_sample_is_what_was_recorded() {
    let memory = Memory::new();
    sample::fill(&memory);
    is_the_sample(&memory);
}

#[test]
fn a_generation_of_which_some_was_let_go_is_read_as_it_was_written() {
    let temp = tempfile::tempdir().unwrap();
    let store = unpacked(STORE_LET_GO, temp.path());
    let first = store.bounds(sample::LOG).unwrap().first;
    assert_eq!(first, Sequence(sample::NEEDED));
    let all = store.read(sample::LOG, Sequence::FIRST..Sequence::END, usize::MAX);
    let numbers: Vec<_> = all
        .unwrap()
        .entries
        .iter()
        .map(|it| it.sequence.0)
        .collect();
    let expected: Vec<_> = (sample::NEEDED..=sample::LET_GO_LAST).collect();
    assert_eq!(numbers, expected);
    assert_eq!(backup_of(&store), BACKUP_LET_GO);
    let memory = Memory::new();
    sample::fill_and_let_go(&memory);
    assert_eq!(backup_of(&memory), BACKUP_LET_GO);
}

#[test]
fn values_of_each_kind_of_format_1_are_read_as_they_were_written() {
    let temp = tempfile::tempdir().unwrap();
    let store = unpacked(STORE_OF_KINDS, temp.path());
    assert_eq!(backup_of(&store), BACKUP_OF_KINDS);
    let memory = Memory::new();
    backup::read(&mut &*BACKUP_OF_KINDS, &memory).unwrap();
    assert_eq!(backup_of(&memory), BACKUP_OF_KINDS);
}

#[test]
fn values_of_each_kind_are_written_as_they_were_recorded() {
    let memory = Memory::new();
    sample::fill_with_kinds(&memory);
    assert_eq!(backup_of(&memory), BACKUP_OF_KINDS);
}

#[test]
fn what_commands_say_of_users_is_read_as_it_was_written() {
    let temp = tempfile::tempdir().unwrap();
    let store = unpacked(STORE_OF_ACCESS, temp.path());
    assert_eq!(backup_of(&store), BACKUP_OF_ACCESS);
    let memory = Memory::new();
    sample::fill_with_access(&memory);
    assert_eq!(backup_of(&memory), BACKUP_OF_ACCESS);
}

/// A kind that is new fails here until it is recorded, too.
#[test]
fn what_is_recorded_has_a_value_of_each_kind_that_a_broker_keeps() {
    let memory = Memory::new();
    for mut recorded in [BACKUP_OF_ACCESS, BACKUP_OF_KINDS] {
        backup::read(&mut recorded, &memory).unwrap();
    }
    let mut found = BTreeSet::new();
    for space in Space::ALL {
        let page = memory.scan(space, &[], None, usize::MAX).unwrap();
        for pair in page.pairs {
            check_value(space, &pair.key, &pair.value.bytes).unwrap();
            found.extend(ValueKind::of(space, &pair.key).unwrap());
        }
    }
    assert!(found.iter().eq(ValueKind::ALL), "{found:?}");
}
