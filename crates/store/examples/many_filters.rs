//! Measures reads by a session with very many filters, which match nothing or little: `cargo run
//! --release -p unbroken-store --example many_filters -- DIR [FILTERS]`.
//!
//! The log has 65 generations of 1,000 messages, each on a topic of its own. The directory must not
//! exist; it is removed at the end.

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
    Batch, Durability, Embedded, Log, LogId, MessageRecord, Options, Selection, Sequence, Store,
};

const LOG: LogId = LogId(0);
const GENERATIONS: u64 = 65;
const MESSAGES: u64 = 1_000;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().unwrap();
    let count = arguments.next();
    let count: u64 = count.map_or(10_000, |text| text.parse().unwrap());
    let path = Path::new(&directory);
    assert!(!path.exists(), "{directory} exists");
    let store = fill(path);
    for (what, begin, end) in [
        ("names, none there", "none/", "/state"),
        ("names, all of 10 generations there", "site/", "/state"),
        ("wildcards, none fits", "none/", "/+/x"),
        ("wildcards in the first level", "+/", "/none"),
    ] {
        let filters: Vec<_> = (0..count).map(|n| format!("{begin}{n}{end}")).collect();
        let started = Instant::now();
        let wanted = Selection::new(filters.iter().map(|text| TopicFilter::parse(text).unwrap()));
        let made = started.elapsed();
        let (mut longest, mut pieces, mut found) = (Duration::ZERO, 0, 0);
        let mut from = Sequence::FIRST;
        while from < store.bounds(LOG).unwrap().next {
            let started = Instant::now();
            let chunk = store.read_matching(LOG, from..Sequence::END, &wanted, 256 << 10);
            let chunk = chunk.unwrap();
            longest = longest.max(started.elapsed());
            found += chunk.entries.len();
            pieces += 1;
            from = chunk.next;
        }
        let all = started.elapsed();
        println!(
            "{count} filters, {what}: selection in {made:.1?}, longest of {pieces} reads \
             {longest:.1?}, all in {all:.1?}, {found} messages"
        );
    }
    drop(store);
    fs::remove_dir_all(path).unwrap();
}

fn fill(path: &Path) -> Embedded {
    let mut options = Options::default();
    options.durability = Durability::Off;
    options.generation_bytes = 1 << 30;
    let store = Embedded::open(path, options).unwrap();
    for generation in 0..GENERATIONS {
        let first = generation * MESSAGES;
        // Another generation begins where numbers are left out.
        store
            .go_on_at(LOG, Sequence(first + 1 + generation))
            .unwrap();
        let mut batch = Batch::new();
        for number in first..first + MESSAGES {
            let message = MessageRecord {
                topic: &format!("site/{number}/state"),
                qos: QoS::AtLeastOnce,
                retain: false,
                stamp_ms: 1_790_000_000_000,
                expires_ms: None,
                publisher: Some("sensor-12345"),
                mark: None,
                properties: Properties::EMPTY,
                payload: &[7; 100],
            };
            batch.append(LOG, Sequence(number + 1 + generation), message.encode());
        }
        assert!(store.commit(&[batch]).unwrap()[0].is_ok());
    }
    store
}
