//! How fast: the ledger beside only hashing the same bytes, and heritage trees.

use std::hint::black_box;
use std::time::{Duration, Instant};

use unbroken_merkle_log::ledger::{Join, Ledger, LedgerLimits, Verdict};
use unbroken_merkle_log::{
    Algorithm, Checkpoint, Digest, Epoch, Hasher, HeritageTree, Key, Lane, LaneId, LaneLimits,
    Property,
};

use crate::figure::{Bar, Figure};

const PAYLOAD: usize = 200;
const TOPIC: &[u8] = b"plant/7/press/temperature";
/// Messages of one turn, hashed and judged alternately: four windows, so that properties and
/// payloads are still near, as those of messages that have just been read are.
const TURN: usize = 4 * 1_024;
const TURNS: usize = 96;
const HERITAGE_LEAVES: usize = 1 << 20;

const ALGORITHMS: [Algorithm; 3] = [Algorithm::Xxh3, Algorithm::Sha256, Algorithm::Blake3];

pub(super) fn figures() -> Vec<Figure> {
    let ratio = |name, title, bar| Figure::new(name, title, "ratio", Some(Bar::AtLeast(bar)));
    let rate = |name, title| Figure::new(name, title, "M/s", None);
    vec![
        ratio("xxh3", "ledger to only hashing, XXH3-128", 0.35),
        ratio("sha-256", "ledger to only hashing, SHA-256", 0.55),
        ratio("blake3", "ledger to only hashing, keyed BLAKE3", 0.6),
        rate("xxh3-rate", "messages judged, XXH3-128"),
        rate("sha-256-rate", "messages judged, SHA-256"),
        rate("blake3-rate", "messages judged, keyed BLAKE3"),
        Figure::new(
            "heritage",
            "heritage leaves built and serialised, into memory that is there",
            "M/s",
            Some(Bar::AtLeast(15.0)),
        ),
        rate("heritage-new", "the same, into new memory"),
    ]
}

/// Adds one round to [`figures`].
pub(super) fn round(figures: &mut [Figure], smoke: bool) {
    let turns = if smoke { 2 } else { TURNS };
    for (at, algorithm) in ALGORITHMS.into_iter().enumerate() {
        let (hashing, judging) = measure(algorithm, turns);
        let messages = per_second(turns * TURN, judging);
        figures[at].add(hashing.as_secs_f64() / judging.as_secs_f64());
        figures[at + 3].add(messages);
    }
    let (new, there) = heritage(if smoke { 1 << 16 } else { HERITAGE_LEAVES });
    figures[6].add(there);
    figures[7].add(new);
}

fn per_second(count: usize, time: Duration) -> f64 {
    let count = u32::try_from(count).map_or(f64::INFINITY, f64::from);
    count / time.as_secs_f64() / 1e6
}

/// The time to hash all messages, and the time to judge them.
fn measure(algorithm: Algorithm, turns: usize) -> (Duration, Duration) {
    let hasher = Hasher::new(algorithm, Some(&Key([7; 32]))).expect("there is a key");
    match &hasher {
        Hasher::Xxh3(digest) => alternate(digest, &hasher, turns),
        Hasher::Blake3(digest) => alternate(digest, &hasher, turns),
        Hasher::Sha256(digest) => alternate(digest, &hasher, turns),
        Hasher::Heritage(digest) => alternate(digest, &hasher, turns),
    }
}

fn alternate<D: Digest + Clone>(digest: &D, hasher: &Hasher, turns: usize) -> (Duration, Duration) {
    let payloads: Vec<[u8; PAYLOAD]> = (0..1_024_u32).map(payload).collect();
    let id = LaneId::new(7).expect("7 is a lane");
    let limits = LaneLimits::default();
    let mut lane = Lane::new(id, Epoch(0), limits, Duration::ZERO);
    let mut ledger = Ledger::new(digest.clone(), LedgerLimits::default(), Join::Beginning);
    let (mut hashing, mut judging) = (Duration::ZERO, Duration::ZERO);
    for turn in 0..turns {
        let (messages, checkpoints) = issue(&mut lane, &payloads, digest);
        // Each first in every other turn.
        for part in 0..2 {
            if (turn + part) % 2 == 0 {
                let bytes: Vec<Vec<u8>> = payloads.iter().map(|payload| hashed(payload)).collect();
                hashing += hash(&bytes, hasher);
            } else {
                judging += judge(&mut ledger, &messages, &checkpoints, &payloads);
            }
        }
    }
    (hashing, judging)
}

fn payload(seed: u32) -> [u8; PAYLOAD] {
    let mut payload = [0; PAYLOAD];
    for (at, byte) in payload.iter_mut().enumerate() {
        let mixed = (seed + 1).wrapping_mul(0x9e37_79b9) >> (at % 24);
        *byte = mixed.to_le_bytes()[0];
    }
    payload
}

fn issue(
    lane: &mut Lane,
    payloads: &[[u8; PAYLOAD]],
    digest: &impl Digest,
) -> (Vec<Property>, Vec<Checkpoint>) {
    let mut messages = Vec::with_capacity(TURN);
    let mut checkpoints = Vec::new();
    for payload in payloads.iter().cycle().take(TURN) {
        messages.push(lane.issue(TOPIC, payload.as_slice(), digest));
        checkpoints.extend(lane.poll_checkpoint(Duration::ZERO, 0, digest));
    }
    (messages, checkpoints)
}

/// The bytes that a message's digest covers, in one piece.
fn hashed(payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 25];
    bytes.extend_from_slice(TOPIC);
    bytes.extend_from_slice(payload);
    bytes
}

/// Only the library's hash function, over bytes that lie ready.
fn hash(bytes: &[Vec<u8>], hasher: &Hasher) -> Duration {
    let key = [7; 32];
    let all = bytes.iter().cycle().take(TURN);
    let start = Instant::now();
    match hasher {
        Hasher::Xxh3(_) => all.for_each(|bytes| {
            black_box(xxhash_rust::xxh3::xxh3_128(bytes));
        }),
        Hasher::Blake3(_) => all.for_each(|bytes| {
            black_box(blake3::keyed_hash(&key, bytes));
        }),
        Hasher::Sha256(_) => all.for_each(|bytes| {
            use sha2::Digest as _;
            black_box(sha2::Sha256::digest(bytes));
        }),
        Hasher::Heritage(_) => {}
    }
    start.elapsed()
}

fn judge<D: Digest>(
    ledger: &mut Ledger<D>,
    messages: &[Property],
    checkpoints: &[Checkpoint],
    payloads: &[[u8; PAYLOAD]],
) -> Duration {
    let start = Instant::now();
    let windows = messages.chunks(1_024).zip(checkpoints);
    for (window, checkpoint) in windows {
        for (message, payload) in window.iter().zip(payloads) {
            let verdict = ledger.message(message, TOPIC, payload, Duration::ZERO);
            assert_eq!(verdict, Verdict::InOrder, "nothing was injected");
        }
        ledger.checkpoint(checkpoint, Duration::ZERO);
        black_box(ledger.take_events().count());
    }
    start.elapsed()
}

/// Million leaves built and serialised a second, into new memory and once more into the same.
fn heritage(count: usize) -> (f64, f64) {
    let text = |leaf: usize| {
        let digits = format!("{:040x}", leaf.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        <[u8; 40]>::try_from(digits.as_bytes()).expect("there are 40 digits")
    };
    let leaves: Vec<[u8; 40]> = (0..count).map(text).collect();
    let mut bytes = Vec::new();
    let mut encode = || {
        let start = Instant::now();
        HeritageTree::encode_into(&leaves, &mut bytes).expect("there are two leaves or more");
        black_box(&bytes);
        per_second(count, start.elapsed())
    };
    (encode(), encode())
}
