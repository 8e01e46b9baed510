//! Measures the embedded store: `cargo run --release -p unbroken-store --example measure -- DIR
//! [MESSAGES]`.
//!
//! Messages have 100 bytes that do not compress and one of 1,000 topics of about 30 bytes; one in
//! the middle is on a topic of its own. The directory must not exist; it is removed at the end.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a tool for the developer, which fails by panicking"
)]

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use unbroken_mqtt_proto::{Properties, QoS, TopicFilter};
use unbroken_store::{
    Batch, Durability, Embedded, Kv, Log, LogId, MessageBytes, MessageRecord, Options, Selection,
    Sequence, Space, Store,
};

const LOG: LogId = LogId(0);
const PAYLOAD: usize = 100;
const COMMIT: u64 = 1_000;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().unwrap();
    let count: u64 = arguments
        .next()
        .map_or(10_000_000, |text| text.parse().unwrap());
    let path = Path::new(&directory);
    assert!(!path.exists(), "{directory} exists");

    let encoded = fill(path, count);
    let reopened = reopen(path, count);
    catch_up(&reopened, count);
    drop(reopened);
    look(path);
    trim(path, count);
    fs::remove_dir_all(path).unwrap();

    small_commits(path, 5_000);
    fs::remove_dir_all(path).unwrap();
    println!("encoded topic and payload: {encoded} bytes in all");
}

/// Writes all messages, a thousand in a commit.
fn fill(path: &Path, count: u64) -> u64 {
    let store = Embedded::open(path, options(Durability::Strict)).unwrap();
    let before = written_bytes();
    let started = Instant::now();
    let mut encoded = 0;
    let mut random = 88_172_645_463_325_252;
    let mut took = Vec::new();
    let mut next = 1;
    while next <= count {
        let batches: Vec<_> = (next..(next + COMMIT).min(count + 1))
            .map(|number| {
                let (message, bytes) = message(number, count, &mut random);
                encoded += bytes;
                let mut batch = Batch::new();
                batch.append(LOG, Sequence(number), message);
                batch
            })
            .collect();
        next += batches.len() as u64;
        let commit = Instant::now();
        let results = store.commit(&batches).unwrap();
        took.push(commit.elapsed());
        assert!(results.iter().all(Result::is_ok));
    }
    let elapsed = started.elapsed();
    println!(
        "append: {count} messages in {elapsed:.1?}, {:.0}/s; commits of {COMMIT}: {}",
        per_second(count, elapsed),
        percentiles(&mut took),
    );
    let resident = resident_bytes();
    let closing = Instant::now();
    let size = store.size_bytes().unwrap();
    drop(store);
    let written = written_bytes() - before;
    println!(
        "written: {written} bytes, {:.2} x topic and payload; on disk {size}; closed in {:.1?}",
        ratio(written, encoded),
        closing.elapsed(),
    );
    println!("resident, most so far: {resident} KiB");
    encoded
}

fn reopen(path: &Path, count: u64) -> Embedded {
    let started = Instant::now();
    let store = Embedded::open(path, options(Durability::Strict)).unwrap();
    println!("reopen: {:.2?}", started.elapsed());
    assert_eq!(store.bounds(LOG).unwrap().next, Sequence(count + 1));
    store
}

fn catch_up(store: &Embedded, count: u64) {
    for (name, filters, expected) in [
        ("one rare by name", &["rare/one"][..], 1),
        ("one rare by wildcard", &["rare/+"], 1),
        (
            "one of 1,000 topics",
            &["plant/7/line/77/temperature"],
            count / 1_000,
        ),
        ("everything", &["#"], count),
    ] {
        let filters = filters.iter().map(|text| TopicFilter::parse(text).unwrap());
        let wanted = Selection::new(filters);
        for turn in ["first", "again"] {
            let started = Instant::now();
            let mut found = 0;
            let mut from = Sequence::FIRST;
            while from.0 <= count {
                let range = from..Sequence::END;
                let chunk = store.read_matching(LOG, range, &wanted, 1 << 20).unwrap();
                found += chunk.entries.len() as u64;
                from = chunk.next;
            }
            let elapsed = started.elapsed();
            println!("read {name}, {turn}: {found} messages in {elapsed:.1?}");
            // Topics are drawn at random.
            assert!(
                found.abs_diff(expected) <= expected / 4,
                "{expected} expected"
            );
            if expected == count {
                break;
            }
        }
    }
    println!("resident, most so far: {} KiB", resident_bytes());
}

/// Reads every byte of the tables, which the system may still have in its memory.
fn look(path: &Path) {
    let started = Instant::now();
    let looked = Embedded::look(path).unwrap();
    let elapsed = started.elapsed();
    assert!(looked.damage.is_empty(), "{:?}", looked.damage);
    let read = looked.table_bytes;
    let each = elapsed.as_secs_f64() * ratio(1 << 30, read);
    println!("look at all tables: {read} bytes in {elapsed:.2?}, {each:.2} s for each GiB");
}

fn trim(path: &Path, count: u64) {
    let store = Embedded::open(path, options(Durability::Strict)).unwrap();
    let started = Instant::now();
    while store.trim(LOG, Sequence(count)).unwrap() {}
    println!("trim all: {:.1?}", started.elapsed());
    let started = Instant::now();
    drop(store);
    println!("close after it: {:.1?}", started.elapsed());

    let mut small = options(Durability::Strict);
    small.generation_bytes = 1;
    let store = Embedded::open(path, small).unwrap();
    let mut random = 1;
    let mut took = Vec::new();
    for number in count + 1..count + 101 {
        let mut batch = Batch::new();
        batch.append(LOG, Sequence(number), message(number, count, &mut random).0);
        let started = Instant::now();
        store.commit(&[batch]).unwrap();
        took.push(started.elapsed());
    }
    println!(
        "commits that begin a generation: {}",
        percentiles(&mut took)
    );
    let started = Instant::now();
    while store.trim(LOG, Sequence(count + 100)).unwrap() {}
    println!("drop of a generation: {:.1?}", started.elapsed() / 100);
}

/// One message and one key in each commit, as from a lone publisher.
fn small_commits(path: &Path, count: u64) {
    for durability in [Durability::Strict, Durability::Relaxed] {
        let place = path.join(format!("{durability:?}"));
        let store = Embedded::open(&place, options(durability)).unwrap();
        let before = written_bytes();
        let mut random = 7;
        let mut took = Vec::new();
        for number in 1..=count {
            let mut batch = Batch::new();
            batch
                .append(LOG, Sequence(number), message(number, count, &mut random).0)
                .put(Space::Sessions, number.to_be_bytes().to_vec(), vec![1; 8]);
            let started = Instant::now();
            store.commit(&[batch]).unwrap();
            took.push(started.elapsed());
        }
        let written = written_bytes() - before;
        assert!(
            store
                .get(Space::Sessions, &1u64.to_be_bytes())
                .unwrap()
                .is_some()
        );
        println!(
            "{durability:?}, commits of one: {}; {written} bytes",
            percentiles(&mut took)
        );
    }
}

fn options(durability: Durability) -> Options {
    let mut options = Options::default();
    options.durability = durability;
    options
}

/// A message, and the bytes of its topic and payload.
fn message(number: u64, count: u64, random: &mut u64) -> (MessageBytes, u64) {
    let mut payload = Vec::with_capacity(PAYLOAD + 8);
    while payload.len() < PAYLOAD {
        *random ^= *random << 13;
        *random ^= *random >> 7;
        *random ^= *random << 17;
        payload.extend_from_slice(&random.to_le_bytes());
    }
    payload.truncate(PAYLOAD);
    let topic = if number == count / 2 {
        "rare/one".to_owned()
    } else {
        let (plant, line) = (*random % 10, *random / 10 % 100);
        format!("plant/{plant}/line/{line}/temperature")
    };
    let record = MessageRecord {
        topic: &topic,
        qos: QoS::AtLeastOnce,
        retain: false,
        stamp_ms: 1_790_000_000_000 + number,
        expires_ms: None,
        publisher: Some("sensor-12345"),
        mark: None,
        properties: Properties::EMPTY,
        payload: &payload,
    };
    (record.encode(), (topic.len() + PAYLOAD) as u64)
}

fn percentiles(took: &mut [Duration]) -> String {
    took.sort_unstable();
    let at = |share: usize| took[(took.len() - 1) * share / 1_000];
    format!(
        "p50 {:.2?}, p99 {:.2?}, p99.9 {:.2?}, max {:.2?}",
        at(500),
        at(990),
        at(999),
        at(1_000)
    )
}

#[expect(clippy::cast_precision_loss, reason = "a figure for a person")]
fn per_second(count: u64, elapsed: Duration) -> f64 {
    count as f64 / elapsed.as_secs_f64()
}

#[expect(clippy::cast_precision_loss, reason = "a figure for a person")]
fn ratio(one: u64, other: u64) -> f64 {
    one as f64 / other as f64
}

/// What this process has caused to be written to disks.
fn written_bytes() -> u64 {
    field("/proc/self/io", "write_bytes: ")
}

/// The most memory that this process has had, in KiB.
fn resident_bytes() -> u64 {
    field("/proc/self/status", "VmHWM:")
}

fn field(file: &str, name: &str) -> u64 {
    let text = fs::read_to_string(file).unwrap();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}
