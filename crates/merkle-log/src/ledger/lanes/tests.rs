use super::*;
use crate::{Hasher, Lane, LaneLimits, Part};

const SECOND: Duration = Duration::from_secs(1);

fn lane(id: u64) -> Lane {
    let id = LaneId::new(id).expect("not 0");
    Lane::new(id, Epoch(0), LaneLimits::default(), Duration::ZERO)
}

#[test]
fn nothing_is_late_while_the_clock_stands() {
    let hasher = Hasher::xxh3();
    let mut lane = lane(1);
    let mut ledger = Ledger::new(hasher, LedgerLimits::default(), Join::Beginning);
    for number in 0..10 {
        let property = lane.issue(*b"t", [number], &Hasher::xxh3());
        if number != 5 {
            ledger.message(&property, b"t", &[number], Duration::ZERO);
        }
    }
    let checkpoint = lane.poll_checkpoint(SECOND, 0, &Hasher::xxh3());
    assert!(ledger.checkpoint(&checkpoint.expect("a second has passed"), SECOND));
    let lost = |ledger: &mut Ledger<Hasher>, now| {
        ledger.poll(now);
        ledger
            .take_events()
            .any(|(_, _, event)| matches!(event, Event::Lost { .. }))
    };
    assert!(!lost(&mut ledger, SECOND * 60));
    ledger.resume(SECOND * 60);
    ledger.pause(SECOND * 60 + SECOND / 2);
    assert!(!lost(&mut ledger, SECOND * 90));
    ledger.resume(SECOND * 90);
    assert!(lost(&mut ledger, SECOND * 90 + SECOND / 2));
}

#[test]
fn what_is_missing_at_a_restart_is_late_by_the_time_before_and_after_it() {
    let (hasher, limits) = (Hasher::xxh3(), LedgerLimits::default());
    let mut lane = lane(1);
    let mut before = Ledger::new(hasher.clone(), limits.clone(), Join::Beginning);
    // It has run for long, and never stood.
    before.resume(Duration::ZERO);
    for number in 0..3 {
        let property = lane.issue(*b"t", [number], &hasher);
        if number != 1 {
            before.message(&property, b"t", &[number], SECOND * 60);
        }
    }
    let checkpoint = lane.poll_checkpoint(SECOND, 0, &hasher);
    before.checkpoint(&checkpoint.expect("a second has passed"), SECOND * 60);
    let mut saved = Vec::new();
    before.save(&[], SECOND * 60 + SECOND / 2, &mut saved);
    let restored = Ledger::restore(&saved, hasher, limits, Join::Beginning);
    let (mut after, _) = restored.expect("it was just written");
    after.resume(Duration::ZERO);
    after.poll(SECOND / 5);
    assert_eq!(after.take_events().count(), 0);
    after.poll(SECOND / 2);
    let events: Vec<_> = after.take_events().map(|(.., event)| event).collect();
    assert!(matches!(&events[..], [Event::Lost { numbers, .. }, ..] if *numbers == (1..2)));
}

#[test]
fn a_lane_beyond_the_limit_is_not_audited_and_said_so() {
    let limits = LedgerLimits {
        lanes_max: 1,
        ..LedgerLimits::default()
    };
    let mut ledger = Ledger::new(Hasher::xxh3(), limits, Join::Beginning);
    let expected = [(1, Verdict::InOrder), (2, Verdict::NotAudited)];
    for (id, verdict) in expected {
        let property = lane(id).issue(*b"t", *b"p", &Hasher::xxh3());
        assert_eq!(ledger.message(&property, b"t", b"p", SECOND), verdict);
        let is_full = ledger.is_full_for(property.lane, property.epoch);
        assert_eq!(is_full, verdict == Verdict::NotAudited);
    }
}

#[test]
fn lanes_of_members_for_which_there_is_no_room_are_named() {
    let (hasher, limits) = (Hasher::xxh3(), LedgerLimits::default());
    let mut members = Ledger::new(hasher.clone(), limits, Join::Member);
    let properties = [1, 2].map(|id| lane(id).issue(*b"t", *b"p", &hasher));
    for property in &properties {
        members.origin(property, SECOND);
    }
    let limits = LedgerLimits {
        lanes_max: 1,
        ..LedgerLimits::default()
    };
    let [taken, no_room] = properties.map(|property| (property.lane, property.epoch));
    for join in [Join::Member, Join::Beginning] {
        let mut ledger = Ledger::new(hasher.clone(), limits.clone(), join);
        let refused = match join {
            Join::Member => ledger.merge(&members),
            _ => ledger.absorb(&members, SECOND),
        };
        assert_eq!(refused, [no_room], "{join:?}");
        assert!(ledger.lane(taken.0, taken.1).is_some(), "{join:?}");
    }
}

#[test]
fn only_messages_that_members_saw_show_a_late_joiner_that_another_epoch_began() {
    let (hasher, limits) = (Hasher::xxh3(), LedgerLimits::default());
    let mut lane = lane(1);
    let property = lane.issue(*b"t", *b"p", &hasher);
    let checkpoint = lane.poll_checkpoint(SECOND, 0, &hasher);
    let checkpoint = checkpoint.expect("a second has passed");
    for (have_seen, verdict) in [
        ([false, false], Verdict::OutOfScope),
        ([true, false], Verdict::Ahead),
        ([false, true], Verdict::Ahead),
        ([true, true], Verdict::Ahead),
    ] {
        let [mut members, other] = have_seen.map(|has_seen| {
            let mut member = Ledger::new(hasher.clone(), limits.clone(), Join::Member);
            if has_seen {
                member.origin(&property, SECOND);
            }
            member.checkpoint(&checkpoint, SECOND);
            member
        });
        assert_eq!(members.merge(&other), []);
        let mut ledger = Ledger::new(hasher.clone(), limits.clone(), Join::Late);
        assert_eq!(ledger.absorb(&members, SECOND), []);
        let later = Property::stamp(&hasher, property.lane, Epoch(1), 5, b"t", b"p");
        let judged = ledger.message(&later, b"t", b"p", SECOND);
        assert_eq!(judged, verdict, "{have_seen:?}");
    }
}

#[test]
fn the_clock_says_when_something_will_be_late() {
    let (hasher, limits) = (Hasher::xxh3(), LedgerLimits::default());
    let (mut lane, lateness) = (lane(1), limits.lateness);
    let mut ledger = Ledger::new(hasher.clone(), limits, Join::Beginning);
    ledger.resume(SECOND);
    assert_eq!(ledger.timeout(), None);
    for number in 0..3 {
        let property = lane.issue(*b"t", [number], &hasher);
        if number != 1 {
            ledger.origin(&property, SECOND * 3);
        }
    }
    let checkpoint = lane.poll_checkpoint(SECOND, 0, &hasher);
    ledger.checkpoint(&checkpoint.expect("a second has passed"), SECOND * 3);
    assert_eq!(ledger.timeout(), Some(SECOND * 3 + lateness));
    ledger.pause(SECOND * 3);
    assert_eq!(ledger.timeout(), None);
    ledger.resume(SECOND * 60);
    assert_eq!(ledger.timeout(), Some(SECOND * 60 + lateness));
}

#[test]
fn a_split_message_is_there_when_all_its_parts_came() {
    let mut ledger = Ledger::new(Hasher::xxh3(), LedgerLimits::default(), Join::Beginning);
    let whole = lane(1).issue(*b"t", *b"p", &Hasher::xxh3());
    let parts = [
        (1, Verdict::Part),
        (1, Verdict::Duplicate),
        (2, Verdict::InOrder),
    ];
    for (index, verdict) in parts {
        let part = Property {
            part: Part::new(index, 2),
            ..whole
        };
        assert_eq!(ledger.origin(&part, SECOND), verdict);
    }
}

#[test]
fn a_message_that_fits_nothing_opens_no_lane() {
    let mut ledger = Ledger::new(Hasher::xxh3(), LedgerLimits::default(), Join::Beginning);
    let property = lane(1).issue(*b"t", *b"p", &Hasher::xxh3());
    let verdict = ledger.message(&property, b"t", b"other", SECOND);
    assert_eq!(verdict, Verdict::Injected);
    assert!(ledger.lane(property.lane, property.epoch).is_none());
}
