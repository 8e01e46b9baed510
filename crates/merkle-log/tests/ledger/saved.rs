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
fn a_ledger_of_lanes_of_the_version_before_is_read() {
    let (hasher, limits) = (Hasher::xxh3(), LedgerLimits::default());
    let lane = LaneId::new(1).unwrap();
    let mut ledger = Ledger::new(hasher.clone(), limits.clone(), Join::Late);
    let property = Property::stamp(&hasher, lane, Epoch(7), 0, b"t", b"p");
    ledger.message(&property, b"t", b"p", ZERO);
    let mut saved = Vec::new();
    ledger.save(&[], SECOND, &mut saved);
    // Version 1 has no list of announced lanes, which lies behind position, clock and directories.
    let fields = 1 + 4 + 12 + 1 + 4;
    saved.drain(fields..fields + 4);
    saved[0] = 1;
    let body = saved.len() - 16;
    let tag = hasher.tag(&[&saved[..body]]);
    saved[body..].copy_from_slice(&tag.0);
    let (restored, _) = Ledger::restore(&saved, hasher, limits, Join::Late).unwrap();
    assert_eq!(restored.lane(lane, Epoch(7)), ledger.lane(lane, Epoch(7)));
}
