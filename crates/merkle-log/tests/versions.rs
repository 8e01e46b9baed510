//! A lane's ledger as older versions have saved it.

#![allow(clippy::unwrap_used, reason = "a test fails by panic")]

use std::time::Duration;

use unbroken_merkle_log::ledger::{Arrival, Join, LaneLedger, LedgerLimits, StateError};
use unbroken_merkle_log::{Digest, Hasher};

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
