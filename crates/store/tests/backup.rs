//! Backups: what comes back, from which store into which, and what is refused.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::io::{self, Cursor, Read};
use std::path::Path;

use unbroken_store::backup::{self, BackupError, Contents};
use unbroken_store::{
    Batch, Durability, Embedded, Log, LogId, Memory, MessageBytes, MessageRecord, Options,
    Sequence, Space, Store, View, store_health,
};

fn options() -> Options {
    let mut options = Options::default();
    options.durability = Durability::Off;
    options.generation_bytes = 8_000;
    options
}

fn message(number: u64) -> MessageBytes {
    let payload = number.to_be_bytes().repeat(20);
    MessageRecord::plain("plant/7", number, &payload).encode()
}

/// Three logs, the first of them with a beginning that is gone and a hole, the last one empty; and
/// values, one of them larger than what is read at a time.
fn fill(store: &dyn Store) {
    let append = |log: LogId, numbers: std::ops::RangeInclusive<u64>| {
        for number in numbers {
            let mut batch = Batch::new();
            batch.append(log, Sequence(number), message(number));
            assert!(store.commit(&[batch]).unwrap()[0].is_ok());
        }
    };
    let (one, two, empty) = (LogId(0), LogId(4), LogId(5));
    append(one, 1..=100);
    store.go_on_at(one, Sequence(1 << 32)).unwrap();
    append(one, (1 << 32)..=(1 << 32) + 20);
    store.trim(one, Sequence(70)).unwrap();
    append(two, 1..=3);
    store.go_on_at(two, Sequence(9)).unwrap();
    store.go_on_at(empty, Sequence(77)).unwrap();
    let mut batch = Batch::new();
    for space in Space::ALL {
        batch.put(space, vec![0, 1], vec![]);
        batch.put(space, space.name().into(), b"value".to_vec());
    }
    batch.put(Space::Retained, vec![2], vec![7; 3 << 20]);
    assert!(store.commit(&[batch]).unwrap()[0].is_ok());
}

fn written(view: &dyn View) -> (Vec<u8>, Contents) {
    let mut file = Vec::new();
    let contents = backup::write(view, &mut file).unwrap();
    assert_eq!(contents.bytes, file.len() as u64);
    (file, contents)
}

fn same(one: &dyn View, other: &dyn View) {
    assert_eq!(one.logs().unwrap(), other.logs().unwrap());
    for log in one.logs().unwrap() {
        assert_eq!(one.bounds(log).unwrap(), other.bounds(log).unwrap());
    }
    // Messages and values: their backups are the same.
    assert_eq!(written(one), written(other));
}

#[test]
fn what_was_backed_up_comes_back_in_a_store_of_either_kind() {
    let temp = tempfile::tempdir().unwrap();
    let memory = Memory::new();
    fill(&memory);
    let on_disk = Embedded::open(&temp.path().join("first"), options()).unwrap();
    fill(&on_disk);
    same(&memory, &on_disk);

    let (file, contents) = written(&on_disk);
    assert_eq!((contents.messages, contents.values), (31 + 21 + 3, 11));
    let path = temp.path().join("second");
    let restored = backup::restore(&mut Cursor::new(&file), &path, options()).unwrap();
    assert_eq!(restored, contents);
    let restored = Embedded::open(&path, options()).unwrap();
    // Clients may remember more than this.
    assert!(store_health::of(&restored).unwrap().at_risk);
    let mut batch = Batch::new();
    batch.delete(Space::Control, store_health::KEY.to_vec());
    assert!(restored.commit(&[batch]).unwrap()[0].is_ok());
    same(&on_disk, &restored);
    let into_memory = Memory::new();
    backup::read(&mut Cursor::new(&file), &into_memory).unwrap();
    same(&on_disk, &into_memory);

    // Numbers go on as they would have.
    let mut batch = Batch::new();
    let next = restored.bounds(LogId(5)).unwrap().next;
    batch.append(LogId(5), next, message(1));
    assert_eq!(next, Sequence(77));
    assert!(restored.commit(&[batch]).unwrap()[0].is_ok());
}

#[test]
fn a_backup_that_was_changed_or_cut_anywhere_is_refused_and_leaves_nothing() {
    let memory = Memory::new();
    fill(&memory);
    let (file, _) = written(&memory);
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("store");
    let refused = |file: &[u8]| {
        let into = Memory::new();
        backup::read(&mut Cursor::new(file), &into).unwrap_err()
    };
    for at in (0..file.len())
        .step_by(file.len() / 60)
        .chain([file.len() - 1])
    {
        let cut = refused(&file[..at]);
        assert!(
            matches!(cut, BackupError::Damaged { .. } | BackupError::NoBackup),
            "{at}: {cut}"
        );
        let mut changed = file.clone();
        changed[at] ^= 1;
        let changed = refused(&changed);
        assert!(
            matches!(changed, BackupError::Damaged { .. } | BackupError::NoBackup),
            "{at}: {changed}"
        );
    }
    let mut longer = file.clone();
    longer.push(0);
    assert!(matches!(refused(&longer), BackupError::Damaged { .. }));
    let half = &file[..file.len() / 2];
    backup::restore(&mut Cursor::new(half), &path, options()).unwrap_err();
    let left = fs::read_dir(&path).unwrap();
    let left: Vec<_> = left.map(|it| it.unwrap().file_name()).collect();
    assert_eq!(left, ["lock"]);
    backup::restore(&mut Cursor::new(file), &path, options()).unwrap();
}

#[test]
fn blocks_that_are_each_whole_are_refused_in_another_order() {
    let store = Memory::new();
    for key in 0..3u8 {
        let mut batch = Batch::new();
        batch.put(Space::Retained, vec![key], vec![key; 2 << 20]);
        assert!(store.commit(&[batch]).unwrap()[0].is_ok());
    }
    let (file, _) = written(&store);
    let line = file.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    let block = |at: usize| {
        let length = u32::from_be_bytes(file[at..at + 4].try_into().unwrap());
        at..at + 36 + length as usize
    };
    let first = block(line);
    let second = block(first.end);
    let rest = &file[second.end..];
    for order in [[&second, &first], [&first, &first], [&second, &second]] {
        let mut other = file[..line].to_vec();
        for block in order {
            other.extend_from_slice(&file[block.clone()]);
        }
        other.extend_from_slice(rest);
        let refused = backup::read(&mut Cursor::new(&other), &Memory::new());
        assert!(matches!(refused, Err(BackupError::Damaged { .. })));
    }
}

#[test]
fn rows_that_are_not_in_their_place_are_refused() {
    let log = |log: u8| vec![1, log, 1, 1];
    let value = |key: u8| [&[3, 8], &b"retained"[..], &[1, key, 0]].concat();
    let end = |values: u8| vec![0, 0, values];
    let read = |rows: &[Vec<u8>]| {
        let mut file = b"unbroken-backup 1\n".to_vec();
        let body = rows.concat();
        let seal = blake3::hash(&[blake3::hash(&file).as_bytes(), &*body].concat());
        file.extend_from_slice(&u32::try_from(body.len()).unwrap().to_be_bytes());
        file.extend_from_slice(seal.as_bytes());
        file.extend_from_slice(&body);
        backup::read(&mut Cursor::new(&file), &Memory::new())
    };
    read(&[log(1), log(2), value(1), value(2), end(2)]).unwrap();
    for rows in [
        [log(2), log(1), end(0)],
        [log(1), log(1), end(0)],
        [value(1), log(1), end(1)],
        [value(2), value(1), end(2)],
        [value(1), value(1), end(2)],
    ] {
        let refused = read(&rows).unwrap_err().to_string();
        assert!(refused.contains("is out of order"), "{refused}");
    }
}

#[test]
fn what_is_no_backup_or_a_newer_one_is_refused_by_name() {
    let refused = |bytes: &[u8]| {
        let refused = backup::read(&mut Cursor::new(bytes), &Memory::new());
        refused.unwrap_err().to_string()
    };
    assert!(refused(b"").contains("not a backup"));
    assert!(refused(b"PK\x03\x04").contains("not a backup"));
    assert!(refused(b"unbroken-store 1\n").contains("not a backup"));
    let newer = refused(b"unbroken-backup 2\n");
    assert!(
        newer.contains("has format 2") && newer.contains("up to 1"),
        "{newer}"
    );
    let alone = refused(b"unbroken-backup 1\n");
    assert!(alone.contains("it ends there"), "{alone}");
}

#[test]
fn a_directory_with_something_in_it_is_not_restored_into() {
    let (file, contents) = written(&Memory::new());
    let restore = |path: &Path| backup::restore(&mut Cursor::new(&file), path, options());
    let temp = tempfile::tempdir().unwrap();
    fs::write(temp.path().join("mine"), "precious").unwrap();
    let refused = restore(temp.path()).unwrap_err();
    assert!(refused.to_string().contains("is not empty"), "{refused}");
    assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 1);
    let refused = restore(&temp.path().join("mine")).unwrap_err();
    assert!(matches!(refused, BackupError::NotEmpty { .. }));
    // One that is empty may be there, and what an interrupted attempt left in it.
    let empty = temp.path().join("empty");
    fs::create_dir(&empty).unwrap();
    let left = empty.join("restoring");
    fs::create_dir(&left).unwrap();
    fs::write(left.join("format"), "half").unwrap();
    assert_eq!(restore(&empty).unwrap(), contents);
    assert!(!left.exists());
    drop(Embedded::open(&empty, options()).unwrap());
    let refused = restore(&empty).unwrap_err().to_string();
    assert!(
        refused.contains("there is ") && refused.contains("empty/store"),
        "{refused}"
    );
}

#[test]
fn somebody_who_is_restoring_there_is_not_disturbed() {
    /// Lets another try while it is read.
    struct Other<'a> {
        file: Cursor<&'a [u8]>,
        path: &'a Path,
        tried: bool,
    }

    impl Read for Other<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let at = self.file.position();
            if at > 100 && !self.tried {
                self.tried = true;
                let mut file = Cursor::new(*self.file.get_ref());
                let refused = backup::restore(&mut file, self.path, options()).unwrap_err();
                assert!(refused.to_string().contains("is in use by"), "{refused}");
                assert!(self.path.join("restoring/format").is_file());
            }
            self.file.read(into)
        }
    }

    let store = Memory::new();
    fill(&store);
    let (file, contents) = written(&store);
    let temp = tempfile::tempdir().unwrap();
    let mut other = Other {
        file: Cursor::new(&file),
        path: temp.path(),
        tried: false,
    };
    let restored = backup::restore(&mut other, temp.path(), options()).unwrap();
    assert!(other.tried);
    assert_eq!(restored, contents);
    assert!(temp.path().join("store").is_dir());
    assert!(!temp.path().join("restoring").exists());
}

#[test]
fn a_backup_that_is_taken_while_the_store_goes_on_is_of_one_moment() {
    let temp = tempfile::tempdir().unwrap();
    let store = Embedded::open(&temp.path().join("store"), options()).unwrap();
    fill(&store);
    let snapshot = store.snapshot().unwrap();
    let (before, _) = written(&store);
    store.trim(LogId(0), Sequence::END).unwrap();
    let mut batch = Batch::new();
    batch.append(LogId(4), Sequence(9), message(9));
    batch.delete_all(Space::Sessions, vec![0]);
    assert!(store.commit(&[batch]).unwrap()[0].is_ok());
    assert_eq!(written(&*snapshot).0, before);
    assert_ne!(written(&store).0, before);
}
