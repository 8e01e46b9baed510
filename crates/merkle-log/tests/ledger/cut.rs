//! Epochs that were cut after a crash of the producer.

use super::*;

/// A producer has come back and does not know how far it went: it knows of these messages.
fn cut(pair: &mut Pair, size: u64) -> Checkpoint {
    let mut lane = Pair::new(Join::Beginning);
    lane.run(size, |_| false);
    let mut checkpoint = lane.checkpoint(SECOND);
    checkpoint.number = 1 << 24;
    checkpoint.end = EpochEnd::Cut;
    pair.hear(&checkpoint, SECOND * 5);
    checkpoint
}

#[test]
fn what_an_epoch_had_that_was_cut_is_proven_and_it_is_not_silent() {
    let mut pair = Pair::new(Join::Beginning);
    pair.run(5, |_| true);
    cut(&mut pair, 5);
    assert_eq!(pair.windows(), [(0, State::Proven)]);
    pair.poll(SECOND * 100);
    assert_eq!(pair.ledger.take_events(), []);
    let mut saved = Vec::new();
    pair.ledger.save(&pair.hasher, &mut saved);
    assert_eq!(LaneLedger::restore(&saved, &pair.hasher), Ok(pair.ledger));
}

#[test]
fn what_is_missing_below_a_cut_is_lost() {
    let mut pair = Pair::new(Join::Beginning);
    pair.run(4, |number| number != 2);
    cut(&mut pair, 5);
    pair.poll(SECOND * 100);
    assert_eq!(pair.lost(), [2, 4]);
}

#[test]
fn what_came_beyond_a_cut_is_neither_injected_nor_proven() {
    let mut pair = Pair::new(Join::Beginning);
    pair.run(8, |_| true);
    cut(&mut pair, 5);
    // It comes late.
    let property = pair.issue();
    assert_eq!(pair.send(&property, SECOND * 6), Verdict::InOrder);
    pair.poll(SECOND * 100);
    for event in pair.ledger.take_events() {
        let is_proven = matches!(event, Event::Window { numbers, state: State::Proven, .. }
            if numbers.end > 5);
        assert!(!is_proven, "nobody has said so");
    }
}

#[test]
fn a_checkpoint_from_before_a_cut_that_comes_after_it_is_no_contradiction() {
    let mut pair = Pair::new(Join::Beginning);
    pair.run(8, |_| true);
    let before = pair.checkpoint(SECOND);
    cut(&mut pair, 5);
    pair.hear(&before, SECOND * 6);
    let proven = pair.ledger.take_events();
    let is_whole = |event: &Event| matches!(event, Event::Window { numbers, state: State::Proven, .. } if numbers.end == 8);
    assert!(proven.len() == 1 && is_whole(&proven[0]), "{proven:?}");
}

#[test]
fn of_an_epoch_that_ended_before_a_late_joiner_came_nothing_is_said() {
    for size in [5, 1_024, 1_030] {
        let mut pair = Pair::new(Join::Late);
        pair.run(size, |_| false);
        let mut last = pair.checkpoint(SECOND);
        while let Some(next) = pair.lane.poll_checkpoint(SECOND * 2, 0, &pair.hasher) {
            last = next;
        }
        last.end = EpochEnd::Closed;
        for _ in 0..2 {
            pair.hear(&last, SECOND);
            pair.poll(SECOND * 100);
            let scope = |event: &Event| matches!(event, Event::OutOfScope(_));
            assert!(pair.ledger.take_events().iter().all(scope), "{size}");
        }
    }
}

#[test]
fn who_absorbs_a_cut_does_not_wait_for_more() {
    let mut member = Pair::new(Join::Member);
    member.run(5, |_| true);
    cut(&mut member, 5);
    let mut pair = Pair::new(Join::Beginning);
    let (limits, hasher) = (&pair.limits, &pair.hasher);
    pair.ledger
        .absorb(&member.ledger, SECOND * 5, limits, hasher);
    assert_eq!(pair.windows(), [(0, State::Proven)]);
    pair.poll(SECOND * 100);
    assert_eq!(pair.ledger.take_events(), []);
}

#[test]
fn a_cut_alone_opens_no_ledger() {
    let mut pair = Pair::new(Join::Beginning);
    let checkpoint = cut(&mut pair, 5);
    let hasher = Hasher::xxh3();
    let mut ledger = Ledger::new(hasher, LedgerLimits::default(), Join::Beginning);
    ledger.resume(ZERO);
    assert!(ledger.checkpoint(&checkpoint, SECOND));
    ledger.poll(SECOND * 100);
    assert_eq!(ledger.take_events().count(), 0);
    // So it was over before anybody listened. This one was not.
    let property = pair.issue();
    ledger.message(&property, b"t", &0_u64.to_be_bytes(), SECOND * 100);
    ledger.checkpoint(&checkpoint, SECOND * 101);
    ledger.poll(SECOND * 200);
    let lost = ledger.take_events().filter_map(|(.., event)| match event {
        Event::Lost { numbers, .. } => Some(numbers.collect::<Vec<_>>()),
        _ => None,
    });
    assert_eq!(lost.collect::<Vec<_>>(), [[1, 2, 3, 4]]);
}

#[test]
fn who_tells_of_a_cut_may_know_less_than_the_producer_has_said() {
    let mut pair = Pair::new(Join::Beginning);
    pair.run(8, |_| true);
    let before = pair.checkpoint(SECOND);
    pair.hear(&before, SECOND);
    assert_eq!(pair.windows(), [], "more may come");
    let checkpoint = cut(&mut pair, 5);
    assert_eq!(pair.windows(), [(0, State::Proven)], "all that was said");
    pair.hear(&checkpoint, SECOND * 6);
    assert_eq!(pair.ledger.take_events(), [], "it says nothing new");
}
