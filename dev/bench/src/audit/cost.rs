//! How much: bytes on the wire and in memory.

use std::time::Duration;

use unbroken_merkle_log::ledger::{Join, LaneLedger, Ledger, LedgerLimits, Request};
use unbroken_merkle_log::{
    Algorithm, DropReason, DropRecord, Epoch, Hasher, Key, Lane, LaneId, LaneLimits, Property,
};

use crate::figure::{Bar, Figure};

const SECOND: Duration = Duration::from_secs(1);

pub(super) fn figures() -> Vec<Figure> {
    let most = |name, title, unit, bar| Figure::new(name, title, unit, Some(Bar::AtMost(bar)));
    let (loss, forged) = naming();
    vec![
        most(
            "standing",
            "checkpoints, for each message of full windows",
            "bytes",
            0.13,
        )
        .with(standing()),
        most(
            "loss",
            "what a receiver sends to name a loss among 10^6",
            "bytes",
            8.0,
        )
        .with(loss),
        most(
            "forged",
            "requests and answers that find a forged one",
            "bytes",
            1_126.4,
        )
        .with(forged),
        most(
            "dropped",
            "drop record, for each of 1,000 messages",
            "bytes",
            17.1,
        )
        .with(dropped()),
        most(
            "lane",
            "memory of a lane in order, at any point of a window",
            "bytes",
            2_048.0,
        )
        .with(memory(Algorithm::Xxh3, false)),
        Figure::new("lane-sha-256", "the same, SHA-256", "bytes", None)
            .with(memory(Algorithm::Sha256, false)),
        Figure::new(
            "lane-held",
            "the same where every leaf is held until it is proven, XXH3-128",
            "bytes",
            None,
        )
        .with(memory(Algorithm::Xxh3, true)),
    ]
}

fn lane() -> Lane {
    let id = LaneId::new(7).expect("7 is a lane");
    Lane::new(id, Epoch(0), LaneLimits::default(), Duration::ZERO)
}

fn issue(lane: &mut Lane) -> Property {
    lane.issue(*b"t", lane.size().to_be_bytes(), &Hasher::xxh3())
}

fn standing() -> f64 {
    let hasher = Hasher::xxh3();
    let mut lane = lane();
    let mut bytes = Vec::new();
    for _ in 0..100 * 1_024 {
        issue(&mut lane);
        if let Some(checkpoint) = lane.poll_checkpoint(Duration::ZERO, 0, &hasher) {
            checkpoint.encode(&hasher, &mut bytes);
        }
    }
    count(bytes.len()) / 102_400.0
}

/// Bytes to name one loss, and to find one forged message.
fn naming() -> (f64, f64) {
    let hasher = Hasher::xxh3();
    let mut bytes = Vec::new();
    Request::Numbers(std::iter::once(999_998..999_999).collect()).encode(Epoch(0), &mut bytes);
    let loss = count(bytes.len());
    let mut lane = lane();
    let mut ledger = Ledger::new(hasher.clone(), LedgerLimits::default(), Join::Beginning);
    for _ in 0..1_024 {
        let mut property = issue(&mut lane);
        if property.sequence == 777 {
            property.digest = [9; 16].into();
        }
        ledger.origin(&property, Duration::ZERO);
    }
    let checkpoint = lane.poll_checkpoint(SECOND, 0, &hasher);
    ledger.checkpoint(&checkpoint.expect("a window is full"), SECOND);
    let mut exchanged = Vec::new();
    let about_hashes = |ledger: &Ledger<Hasher>| {
        let mut requests = ledger.requests();
        requests.find(|(.., request)| !matches!(request, Request::Numbers(_)))
    };
    while let Some((lane_id, epoch, request)) = about_hashes(&ledger) {
        request.encode(epoch, &mut exchanged);
        let answer = lane.answer(&request, &hasher).expect("the window is held");
        answer.encode(epoch, &mut exchanged);
        ledger
            .answer(lane_id, epoch, &answer)
            .expect("the answer is true");
    }
    (loss, count(exchanged.len()))
}

fn dropped() -> f64 {
    let hasher = Hasher::xxh3();
    let mut lane = lane();
    let all: Vec<Property> = (0..2_000).map(|_| issue(&mut lane)).collect();
    let every_second = all.iter().step_by(2);
    let record = DropRecord::of(DropReason::FILTERED, every_second).expect("there are some");
    let mut bytes = Vec::new();
    record
        .encode(&hasher, &mut bytes)
        .expect("the runs are in order");
    count(bytes.len()) / 1_000.0
}

/// The most that a lane takes in 64 windows.
fn memory(algorithm: Algorithm, hold_leaves: bool) -> f64 {
    let hasher = Hasher::new(algorithm, Some(&Key([7; 32]))).expect("there is a key");
    let mut lane = lane();
    let mut limits = LedgerLimits::default();
    limits.hold_leaves = hold_leaves;
    let mut ledger = Ledger::new(hasher.clone(), limits, Join::Beginning);
    let mut most = 0;
    for number in 0..64 * 1_024_u64 {
        let property = lane.issue(*b"t", number.to_be_bytes(), &hasher);
        // A heartbeat just before each window's end, and the checkpoint at it.
        let spoke = number % 1_024 >= 1_022;
        let now = Duration::from_secs(number / 1_024 * 2 + u64::from(spoke));
        ledger.origin(&property, now);
        let known = ledger.lane(property.lane, property.epoch);
        most = most.max(known.map_or(0, LaneLedger::memory_bytes));
        while let Some(checkpoint) = lane.poll_checkpoint(now, 0, &hasher) {
            ledger.checkpoint(&checkpoint, now);
        }
        let _ = ledger.take_events().count();
    }
    count(most)
}

fn count(count: usize) -> f64 {
    u32::try_from(count).map_or(f64::INFINITY, f64::from)
}
