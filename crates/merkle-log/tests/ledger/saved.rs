//! Ledgers that are saved and restored.

use super::*;

#[test]
fn a_saved_ledger_is_restored_equal_and_a_damaged_one_is_refused() {
    let mut pair = Pair::new(Join::Beginning);
    pair.run(1_500, |number| number % 100 != 7);
    let checkpoint = pair.checkpoint(SECOND);
    pair.hear(&checkpoint, ZERO);
    pair.poll(SECOND);
    pair.ledger.take_events();
    let mut saved = Vec::new();
    pair.ledger.save(&pair.hasher, &mut saved);
    assert_eq!(
        LaneLedger::restore(&saved, &pair.hasher).as_ref(),
        Ok(&pair.ledger)
    );
    for at in (0..saved.len()).step_by(97) {
        let mut damaged = saved.clone();
        damaged[at] ^= 1;
        let refused = LaneLedger::restore(&damaged, &pair.hasher);
        assert_eq!(refused, Err(StateError::Tag), "byte {at}");
        assert_eq!(
            LaneLedger::restore(&saved[..at], &pair.hasher),
            Err(StateError::Tag)
        );
    }
}

#[test]
fn a_restored_ledger_knows_each_old_message_and_each_that_is_missing() {
    const COUNT: u64 = 40 * 1_024;
    // In the first window, over an end of windows, and in the last.
    let is_missing = |number| matches!(number, 7 | 20_479..20_482 | 40_000);
    let mut pair = Pair::new(Join::Beginning);
    let mut issued = Vec::new();
    for _ in 0..COUNT {
        let property = pair.issue();
        if !is_missing(property.sequence) {
            pair.send(&property, ZERO);
        }
        issued.push(property);
        if property.sequence % 1_024 == 1_023 {
            let checkpoint = pair.checkpoint(ZERO);
            pair.hear(&checkpoint, ZERO);
        }
    }
    pair.ledger.take_events();
    let mut saved = Vec::new();
    pair.ledger.save(&pair.hasher, &mut saved);
    pair.ledger = LaneLedger::restore(&saved, &pair.hasher).unwrap();
    for property in &issued {
        let number = property.sequence;
        assert_eq!(
            pair.ledger.is_missing(number),
            is_missing(number),
            "{number}"
        );
        if !is_missing(number) {
            let mut again = *property;
            // The leaves of windows with gaps are held, of proven windows they are not.
            let verdict = pair.send(&again, ZERO);
            let is_known = matches!(verdict, Verdict::Repeated | Verdict::Duplicate);
            assert!(is_known, "{number}: {verdict:?}");
            again.flags.resent = true;
            assert_eq!(pair.send(&again, ZERO), Verdict::Replayed, "{number}");
        }
    }
    for property in issued {
        if is_missing(property.sequence) {
            assert_eq!(pair.send(&property, ZERO), Verdict::Late);
            let verdict = pair.send(&property, ZERO);
            let is_known = matches!(verdict, Verdict::Repeated | Verdict::Duplicate);
            assert!(is_known, "{verdict:?}");
        }
    }
    assert!(pair.ledger.is_settled_below(COUNT));
}

#[test]
fn a_ledger_of_lanes_of_an_older_version_is_read() {
    let (hasher, limits) = (Hasher::xxh3(), LedgerLimits::default());
    let lane = LaneId::new(1).unwrap();
    let mut ledger = Ledger::new(hasher.clone(), limits.clone(), Join::Late);
    let directory = Directory {
        producer: 9,
        epoch: Epoch(0),
        number: 3,
        time_us: 0,
        lanes: vec![OpenLane {
            lane,
            epoch: Epoch(7),
            size: 0,
        }],
    };
    ledger.directory(&directory, ZERO, |_| true);
    let property = Property::stamp(&hasher, lane, Epoch(7), 0, b"t", b"p");
    ledger.message(&property, b"t", b"p", ZERO);
    let mut third = Vec::new();
    ledger.save(&[], SECOND, &mut third);
    // Version 2 has no list of directories that were heard: one, behind position, clock, the rule
    // and a producer with one lane.
    let heard = 1 + 4 + 12 + 1 + 4 + (8 + 4 + 4) + (4 + 8 + 4);
    let mut second = third.clone();
    second.drain(heard..heard + 4 + (4 + 4 + 4 + 16));
    // Version 1 has no list of announced lanes, which is the next.
    let mut first = second.clone();
    first.drain(heard..heard + 4);
    for (version, mut saved) in [(1, first), (2, second), (3, third)] {
        saved[0] = version;
        let body = saved.len() - 16;
        let tag = hasher.tag(&[&saved[..body]]);
        saved[body..].copy_from_slice(&tag.0);
        let restored = Ledger::restore(&saved, hasher.clone(), limits.clone(), Join::Late);
        let (mut restored, _) = restored.unwrap();
        assert_eq!(restored.lane(lane, Epoch(7)), ledger.lane(lane, Epoch(7)));
        let listed: Vec<_> = restored.listed_by(9).collect();
        assert_eq!(listed, [lane], "{version}");
        let taken = restored.directory(&directory, SECOND, |_| true);
        // What was not saved as heard is not known as a copy.
        let expected = if version < 3 {
            Taken::Contradicts
        } else {
            Taken::Old
        };
        assert_eq!(taken, expected, "{version}");
    }
}
