//! The examples of `docs/audit.md`, each made anew from what the text says they show.

#![allow(clippy::unwrap_used, reason = "a test fails by panic")]
#![allow(clippy::single_range_in_vec_init, reason = "a list of one gap")]

use std::collections::BTreeMap;
use std::time::Duration;

use unbroken_merkle_log::ledger::{Answer, Request, write_gaps};
use unbroken_merkle_log::{
    Algorithm, Checkpoint, DetailLevel, Digest, Directory, DropReason, DropRecord, Epoch, Hasher,
    Key, Lane, LaneId, LaneLimits, OpenLane, Parents, Property,
};

const DOCUMENT: &str = include_str!("../../../docs/audit.md");
const EPOCH: Epoch = Epoch(3);
const TOPIC: &[u8] = b"plant/7";
const TIME_US: u64 = 1_000_000;

fn id() -> LaneId {
    LaneId::new(0x0102_0304_0506_0708).unwrap()
}

fn hasher(algorithm: Algorithm) -> Hasher {
    let mut key = Key([0; 32]);
    (0..).zip(&mut key.0).for_each(|(at, byte)| *byte = at);
    Hasher::new(algorithm, Some(&key)).unwrap()
}

fn message(hasher: &Hasher, number: u64) -> Property {
    let payload = format!("21.{number}");
    Property::stamp(hasher, id(), EPOCH, number, TOPIC, payload.as_bytes())
}

fn lane(detail: DetailLevel) -> Lane {
    let mut limits = LaneLimits::default();
    limits.detail = detail;
    let mut lane = Lane::new(id(), EPOCH, limits, Duration::ZERO);
    for number in 0..5 {
        let payload = format!("21.{number}");
        lane.issue(TOPIC, payload.as_bytes(), &Hasher::xxh3());
    }
    lane.told(1, 0);
    lane
}

fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"))
}

fn encoded(write: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut bytes = Vec::new();
    write(&mut bytes);
    hex(&bytes)
}

fn examples() -> BTreeMap<String, String> {
    let mut examples = BTreeMap::new();
    let mut add = |name: &str, text: String| {
        assert_eq!(examples.insert(name.to_owned(), text), None);
    };
    for algorithm in Algorithm::ALL {
        let hasher = hasher(algorithm);
        let number = algorithm as u8;
        let leaf = |number| message(&hasher, number).digest;
        add(&format!("leaf-{number}"), leaf(5).to_string());
        let node = hasher.node(&leaf(0), &leaf(1));
        add(&format!("node-{number}"), node.to_string());
    }
    let hasher = hasher(Algorithm::Xxh3);
    let messages: Vec<Property> = (0..6).map(|number| message(&hasher, number)).collect();
    add("property", encoded(|out| messages[5].encode(out)));
    add("property-text", messages[5].to_text());
    let second = Duration::from_secs(1);
    let checkpoint = lane(DetailLevel::None).poll_checkpoint(second, TIME_US, &hasher);
    let checkpoint: Checkpoint = checkpoint.unwrap();
    add("checkpoint", encoded(|out| checkpoint.encode(&hasher, out)));
    let closed = lane(DetailLevel::Fingerprints)
        .close(TIME_US, &hasher)
        .unwrap();
    add(
        "checkpoint-fingerprints",
        encoded(|out| closed.encode(&hasher, out)),
    );
    let directory = Directory {
        producer: 9,
        epoch: Epoch(1),
        number: 0,
        time_us: TIME_US,
        lanes: vec![OpenLane {
            lane: id(),
            epoch: EPOCH,
            size: 5,
        }],
    };
    add(
        "directory",
        encoded(|out| directory.encode(&hasher, out).unwrap()),
    );
    let dropped = [messages[1], messages[2], messages[4]];
    let record = DropRecord::of(DropReason::FILTERED, &dropped).unwrap();
    add("drop", encoded(|out| record.encode(&hasher, out).unwrap()));
    let batch = [messages[0], messages[1], messages[2], messages[4]];
    let parents = Parents::of(&hasher, &batch).unwrap();
    add("parents", encoded(|out| parents.encode(out)));
    let gaps = vec![7..8, 100..300];
    add("gaps", hex(&write_gaps(&gaps)));
    let groups = Request::Groups { window: 0, size: 5 };
    let leaves = Request::Leaves {
        window: 0,
        group: 0,
        size: 5,
    };
    let answer = |request| lane(DetailLevel::None).answer(request, &hasher).unwrap();
    let numbers = Request::Numbers(gaps);
    add("request-numbers", encoded(|out| numbers.encode(EPOCH, out)));
    add("request-groups", encoded(|out| groups.encode(EPOCH, out)));
    add("request-leaves", encoded(|out| leaves.encode(EPOCH, out)));
    add(
        "answer-groups",
        encoded(|out| answer(&groups).encode(EPOCH, out)),
    );
    add(
        "answer-leaves",
        encoded(|out| answer(&leaves).encode(EPOCH, out)),
    );
    let not_held = Answer::NotHeld(vec![7..8]);
    add(
        "answer-not-held",
        encoded(|out| not_held.encode(EPOCH, out)),
    );
    examples
}

/// The fenced blocks with a name, without the breaks in them.
fn written() -> BTreeMap<String, String> {
    let mut written = BTreeMap::new();
    let mut lines = DOCUMENT.lines();
    while let Some(line) = lines.next() {
        let fence = line.strip_prefix("```").filter(|kind| !kind.is_empty());
        let Some((_, name)) = fence.and_then(|kind| kind.split_once(' ')) else {
            continue;
        };
        let block = lines.by_ref().take_while(|line| !line.starts_with("```"));
        let text: String = block.flat_map(str::split_whitespace).collect();
        assert_eq!(written.insert(name.to_owned(), text), None, "{name} twice");
    }
    written
}

#[test]
fn every_example_of_the_document_is_what_is_written_by_us() {
    let (examples, written) = (examples(), written());
    for (name, example) in &examples {
        assert_eq!(written.get(name), Some(example), "{name}");
    }
    assert_eq!(written.len(), examples.len());
}
