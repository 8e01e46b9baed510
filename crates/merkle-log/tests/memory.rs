//! What lanes in order take, counted where memory is asked for: all that a ledger of many lanes
//! has in use, at every point of a window.

mod counting;

use std::time::Duration;

use unbroken_merkle_log::ledger::{Join, Ledger, LedgerLimits, Verdict};
use unbroken_merkle_log::{Algorithm, Checkpoint, Epoch, Hasher, Key, Lane, LaneId, LaneLimits};

/// The most that a lane takes, at every message of as many windows and behind every checkpoint,
/// with all lanes in one ledger.
fn most(lanes: u64, windows: u64, algorithm: Algorithm) -> usize {
    let hasher = Hasher::new(algorithm, Some(&Key([7; 32]))).expect("there is a key");
    let mut producers: Vec<Lane> = (1..=lanes)
        .filter_map(LaneId::new)
        .map(|id| Lane::new(id, Epoch(0), LaneLimits::default(), Duration::ZERO))
        .collect();
    let mut ledger = Ledger::new(hasher.clone(), LedgerLimits::default(), Join::Beginning);
    let (mut in_use, mut most) = (0_usize, 0);
    for number in 0..windows * 1_024 {
        // A heartbeat in each window, ever later in it, and the checkpoint at its end.
        let (window, slot) = (number / 1_024, number % 1_024);
        let spoke = slot >= (window * 333 + 1_022) % 1_024;
        let now = Duration::from_secs(window * 2 + u64::from(spoke));
        for producer in &mut producers {
            let property = producer.issue(*b"t", number.to_be_bytes(), &hasher);
            let checkpoints: Vec<Checkpoint> =
                std::iter::from_fn(|| producer.poll_checkpoint(now, 0, &hasher)).collect();
            let before = counting::in_use();
            assert_eq!(ledger.origin(&property, now), Verdict::InOrder);
            most = most.max(in_use.wrapping_add(counting::in_use()).wrapping_sub(before));
            for checkpoint in &checkpoints {
                ledger.checkpoint(checkpoint, now);
                ledger.take_events().for_each(drop);
            }
            in_use = in_use.wrapping_add(counting::in_use()).wrapping_sub(before);
            most = most.max(in_use);
        }
    }
    most / usize::try_from(lanes).expect("few")
}

#[test]
fn a_lane_in_order_takes_at_most_2_kib_at_every_point_of_a_window() {
    for algorithm in [Algorithm::Xxh3, Algorithm::Blake3] {
        let bytes = most(24, 3, algorithm);
        assert!(bytes <= 2_048, "{algorithm:?}: {bytes}");
    }
}

#[test]
fn a_lane_of_32_byte_hashes_takes_at_most_3_kib() {
    let bytes = most(24, 3, Algorithm::Sha256);
    assert!(bytes <= 3_072, "{bytes}");
}

#[test]
#[ignore = "a million messages of each lane: in the full run, optimised"]
fn a_lane_of_a_million_messages_in_order_takes_at_most_2_kib() {
    let bytes = most(48, 1_000, Algorithm::Xxh3);
    assert!(bytes <= 2_048, "{bytes}");
}
