//! A lane's ledger as older versions have saved it.

#![allow(clippy::unwrap_used, reason = "a test fails by panic")]

use std::time::Duration;

use unbroken_merkle_log::ledger::{Arrival, Join, LaneLedger, LedgerLimits, StateError};
use unbroken_merkle_log::{Checkpoint, Detail, Digest, Epoch, EpochEnd, Hasher, LaneId};

#[test]
fn a_ledger_of_an_older_version_is_read() {
    let hasher = Hasher::xxh3();
    let mut ledger = LaneLedger::new(Join::Beginning);
    for number in [0, 1, 3, 4] {
        let arrival = Arrival {
            number,
            leaf: hasher.leaf(&[&[number.to_be_bytes()[7]]]),
            fits: true,
            resent: false,
            part: None,
        };
        ledger.observe(&arrival, Duration::ZERO, &LedgerLimits::default(), &hasher);
    }
    ledger.take_events();
    let mut saved = Vec::new();
    ledger.save(&hasher, &mut saved);
    // Version 5 has nothing of a cut: an absent option at the end, before the tag.
    let mut fifth = saved.clone();
    fifth.remove(saved.len() - 17);
    // Version 4 has nothing of what is declared: an absent option, behind the count of
    // contradictions, no tail, one gap, one run, nothing altered and no parts.
    let fields = 1 + 1 + (1 + 8) + 1 + 8 + 8 + 8 + 4 + 12 + 1;
    let declared = fields + 4 + 4 + (4 + 8 + 8 + 12 + 1) + (4 + 8 + 8 + 1) + 4 + 4;
    let mut fourth = fifth.clone();
    fourth.remove(declared);
    // Version 3 has no count of contradictions, which lies behind the flags.
    let mut older = fourth.clone();
    older.drain(fields..fields + 4);
    for (version, bytes, is_read) in [
        (1, &older, false),
        (2, &older, true),
        (3, &older, true),
        (4, &fourth, true),
        (5, &fifth, true),
        (6, &saved, true),
        (7, &saved, false),
    ] {
        let mut bytes = bytes.clone();
        let body = bytes.len() - 16;
        bytes[0] = version;
        let tag = hasher.tag(&[&bytes[..body]]);
        bytes[body..].copy_from_slice(&tag.0);
        let read = LaneLedger::restore(&bytes, &hasher);
        if is_read {
            assert_eq!(read.as_ref(), Ok(&ledger));
        } else {
            assert_eq!(read, Err(StateError::Version(version)));
        }
    }
}

#[test]
fn a_cut_that_version_5_saved_as_the_newest_checkpoint_is_read_as_a_cut() {
    let (hasher, limits) = (Hasher::xxh3(), LedgerLimits::default());
    let [lane_root, other] = [0, 1].map(|of: u8| hasher.leaf(&[&[of]]));
    let checkpoint = Checkpoint {
        lane: LaneId::new(1).unwrap(),
        epoch: Epoch(0),
        number: 0,
        window_log2: 10,
        first: 0,
        size: 5,
        time_us: 0,
        window_root: other,
        lane_root,
        end: EpochEnd::Open,
        detail: Detail::None,
    };
    let mut ledger = LaneLedger::new(Join::Beginning);
    ledger.checkpoint(&checkpoint, Duration::ZERO, &limits, &hasher);
    let mut saved = Vec::new();
    ledger.save(&hasher, &mut saved);
    saved.remove(saved.len() - 17);
    saved[0] = 5;
    // The kind of a checkpoint stands behind the root of the lane.
    let mut places = saved.windows(lane_root.width());
    let at = places.position(|bytes| bytes == lane_root.as_bytes());
    let kind = at.unwrap() + lane_root.width();
    let another = Checkpoint {
        lane_root: other,
        ..checkpoint
    };
    // The number of a cut is no number of a checkpoint, so another one contradicts nothing.
    for (value, is_contradicted) in [(0, true), (2, false)] {
        saved[kind] = value;
        let body = saved.len() - 16;
        let tag = hasher.tag(&[&saved[..body]]);
        saved[body..].copy_from_slice(&tag.0);
        let mut restored = LaneLedger::restore(&saved, &hasher).unwrap();
        restored.checkpoint(&another, Duration::ZERO, &limits, &hasher);
        assert_eq!(restored.is_contradicted(), is_contradicted, "{value}");
    }
}
