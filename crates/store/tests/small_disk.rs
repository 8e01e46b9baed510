//! A store on a disk that is too small for what it is given, or that others fill: it fails before
//! the next start has no room, and that finds everything.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "a test says that it was skipped")]

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use unbroken_store::{
    Batch, Embedded, FreeSpace, Log, LogId, MessageRecord, Options, Sequence, Store,
};

const LOG: LogId = LogId(0);
const MESSAGE_BYTES: usize = 64 * 1024;

/// A disk in memory.
struct Mounted<'a>(&'a Path);

impl<'a> Mounted<'a> {
    /// None where that is not allowed.
    fn at(place: &'a Path, mib: u32) -> Option<Self> {
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={mib}m"), "test"]);
        let status = mount.arg(place).stderr(Stdio::null()).status();
        let is_there = status.is_ok_and(|status| status.success());
        if !is_there {
            println!("skipped: no small disk can be mounted");
        }
        is_there.then_some(Self(place))
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

/// Bytes that no compression takes out.
fn noise(seed: u64) -> Vec<u8> {
    let bytes = (0..MESSAGE_BYTES as u64).map(|at| {
        let mixed = (seed + at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed ^ mixed >> 29)
            .wrapping_mul(0xbf58_476d_1ce4_e5b9)
            .to_be_bytes()[0]
    });
    bytes.collect()
}

/// Appends messages until that fails, but not more than so many; gives the next number, and the
/// error.
fn append(store: &Embedded, most: u64) -> (u64, Option<String>) {
    let next = store.bounds(LOG).unwrap().next.0;
    for number in next..next + most {
        let mut batch = Batch::new();
        let message = MessageRecord::plain("t", 1, &noise(number)).encode();
        batch.append(LOG, Sequence(number), message);
        match store.commit(&[batch]) {
            Ok(results) => assert!(results[0].is_ok()),
            Err(error) => return (number, Some(error.to_string())),
        }
    }
    (next + most, None)
}

fn open(directory: &Path) -> Embedded {
    Embedded::open(directory, Options::default()).unwrap()
}

/// Has what is in memory written to tables.
fn write_out(store: &Embedded) {
    store.write_out().unwrap();
    while free_space(store).owed > 1 << 20 {
        std::thread::yield_now();
    }
}

fn free_space(store: &Embedded) -> FreeSpace {
    store.free_space().unwrap()
}

/// Everything below this number is there.
fn has_all(store: &Embedded, next: u64) {
    assert_eq!(store.bounds(LOG).unwrap().next, Sequence(next));
    let mut from = Sequence::FIRST;
    while from.0 < next {
        let chunk = store.read(LOG, from..Sequence(next), 1 << 20).unwrap();
        assert_eq!(chunk.entries.first().unwrap().sequence, from);
        from = chunk.next;
    }
}

#[test]
fn a_store_opens_on_the_disk_on_which_it_had_no_more_room() {
    for mib in [64, 96, 128, 200, 320] {
        let temp = tempfile::tempdir().unwrap();
        let Some(_disk) = Mounted::at(temp.path(), mib) else {
            return;
        };
        let directory = temp.path().join("data");
        let mut next = 1;
        // Each start takes a little.
        for round in 0..4 {
            let store = open(&directory);
            has_all(&store, next);
            let (reached, error) = append(&store, 100_000);
            let error = error.unwrap();
            assert!(
                error.contains("no space left") && error.contains("free disk space"),
                "{mib} MiB, round {round}: {error}"
            );
            assert!(
                round > 0 || reached * MESSAGE_BYTES as u64 > u64::from(mib) << 18,
                "a quarter of it holds messages: {reached} on {mib} MiB"
            );
            next = reached;
        }
    }
}

#[test]
fn a_store_opens_on_a_disk_that_others_have_filled() {
    for before in [0, 10, 300, 1_500] {
        let temp = tempfile::tempdir().unwrap();
        let Some(_disk) = Mounted::at(temp.path(), 256) else {
            return;
        };
        let directory = temp.path().join("data");
        let store = open(&directory);
        store.check_place().unwrap();
        assert!(directory.join("reserve").exists());
        let (next, error) = append(&store, before);
        assert_eq!(error, None);
        // As its owner does when space is short.
        write_out(&store);
        let filler = temp.path().join("filler");
        let mut file = File::create(&filler).unwrap();
        let mut piece = vec![7; 1 << 20];
        while !piece.is_empty() {
            if file.write_all(&piece).is_err() {
                piece.truncate(piece.len() / 2);
            }
        }
        let (reached, error) = append(&store, 1);
        assert!(error.is_some_and(|error| error.contains("no space left")));
        assert_eq!(reached, next);
        drop((store, file));
        let store = open(&directory);
        has_all(&store, next);
        assert!(!directory.join("reserve").exists());
        fs::remove_file(&filler).unwrap();
        // It is there again when there is space.
        store.check_place().unwrap();
        assert!(directory.join("reserve").exists());
        assert_eq!(append(&store, 10), (next + 10, None));
    }
}

/// The engine has the files open that it has read.
#[test]
fn trimmed_messages_that_were_read_take_no_space() {
    let temp = tempfile::tempdir().unwrap();
    let Some(_disk) = Mounted::at(temp.path(), 200) else {
        return;
    };
    let store = open(&temp.path().join("data"));
    let (next, _) = append(&store, 600);
    has_all(&store, next);
    let before = free_space(&store).free;
    while store.trim(LOG, Sequence(next)).unwrap() {}
    // At least a generation, which has a sixteenth of the disk.
    let until = Instant::now() + Duration::from_secs(20);
    while free_space(&store).free < before + (200 << 20) / 16 {
        assert!(Instant::now() < until, "{before} were free before");
        std::thread::yield_now();
    }
}
