use proptest::prelude::*;

use super::*;
use crate::ledger::descent::Request;
use crate::{Checkpoint, Epoch, EpochEnd, Hasher, Lane, LaneId, LaneLimits};

const SECOND: Duration = Duration::from_secs(1);

fn lane() -> Lane {
    let id = LaneId::new(7).expect("7 is a lane");
    Lane::new(id, Epoch(0), LaneLimits::default(), Duration::ZERO)
}

/// The checkpoint of a lane that has issued so many messages.
fn checkpoint_at(size: u64) -> Checkpoint {
    let (hasher, mut lane) = (Hasher::xxh3(), lane());
    let mut newest = None;
    for number in 0..size.max(1) {
        lane.issue(*b"t", *b"p", &hasher);
        let now = if number + 1 == size.max(1) {
            SECOND
        } else {
            Duration::ZERO
        };
        newest = lane.poll_checkpoint(now, 0, &hasher).or(newest);
    }
    let newest = newest.expect("a second has passed");
    Checkpoint { size, ..newest }
}

fn hear(ledger: &mut LaneLedger, checkpoint: &Checkpoint) {
    let (limits, hasher) = (LedgerLimits::default(), Hasher::xxh3());
    ledger.checkpoint(checkpoint, SECOND, &limits, &hasher);
}

/// A message that fits its stamp.
fn whole(number: u64, leaf: u8) -> Arrival {
    Arrival {
        number,
        leaf: Hash::new(&[leaf; 16]).expect("16 bytes are a hash"),
        fits: true,
        resent: false,
        part: None,
    }
}

fn arrive(ledger: &mut LaneLedger, number: u64, leaf: u8, limits: &LedgerLimits) -> Verdict {
    ledger.observe(&whole(number, leaf), SECOND, limits, &Hasher::xxh3())
}

#[test]
fn leaves_that_are_to_be_held_are_not_folded() {
    for (hold_leaves, again) in [(true, Verdict::Conflict), (false, Verdict::Repeated)] {
        let limits = LedgerLimits {
            hold_leaves,
            ..LedgerLimits::default()
        };
        let mut ledger = LaneLedger::new(Join::Beginning);
        for number in 0..3 {
            arrive(&mut ledger, number, 1, &limits);
        }
        assert_eq!(arrive(&mut ledger, 1, 2, &limits), again);
    }
}

#[test]
fn a_late_joiner_misses_checkpoints_behind_the_first_that_it_heard() {
    let mut ledger = LaneLedger::new(Join::Late);
    for (number, missed) in [(5, None), (8, Some(6..8))] {
        let checkpoint = Checkpoint {
            number,
            ..checkpoint_at(2)
        };
        hear(&mut ledger, &checkpoint);
        let events = ledger.take_events();
        let found = events.into_iter().find_map(|event| match event {
            Event::CheckpointsMissed(missed) => Some(missed),
            _ => None,
        });
        assert_eq!(found, missed, "{number}");
    }
}

#[test]
fn a_checkpoint_opens_the_windows_that_it_covers_and_no_other() {
    for (size, reached) in [(0, 0), (1, 1), (WINDOW, 1), (WINDOW + 1, 2)] {
        let mut ledger = LaneLedger::new(Join::Beginning);
        hear(&mut ledger, &checkpoint_at(size));
        assert_eq!(ledger.windows.reached, reached, "{size}");
    }
}

#[test]
fn a_checkpoint_contradicts_another_one_once() {
    let mut ledger = LaneLedger::new(Join::Beginning);
    let (first, other) = (checkpoint_at(5), Hash::new(&[1; 16]));
    let other = other.expect("16 bytes are a hash");
    let second = Checkpoint {
        window_root: other,
        lane_root: other,
        ..first.clone()
    };
    hear(&mut ledger, &first);
    hear(&mut ledger, &second);
    assert_eq!(ledger.contradictions, 1);
    let events = ledger.take_events();
    let contradicts = Event::CheckpointContradicts(first.number);
    let count = events.iter().filter(|event| **event == contradicts).count();
    assert_eq!(count, 1, "{events:?}");
}

#[test]
fn a_later_checkpoint_of_the_same_size_with_another_root_contradicts() {
    for size in [5, WINDOW + 5] {
        let mut ledger = LaneLedger::new(Join::Beginning);
        let first = checkpoint_at(size);
        let second = Checkpoint {
            number: first.number + 1,
            window_root: Hash::new(&[1; 16]).expect("16 bytes are a hash"),
            ..first.clone()
        };
        hear(&mut ledger, &first);
        hear(&mut ledger, &second);
        assert_eq!(ledger.contradictions, 1, "{size}");
    }
}

#[test]
fn the_memory_of_a_lane_grows_with_what_it_remembers() {
    let mut ledger = LaneLedger::new(Join::Beginning);
    arrive(&mut ledger, 0, 1, &LedgerLimits::default());
    let windows = ledger.windows.memory_bytes();
    assert!(windows > 0);
    let mut expected = size_of::<LaneLedger>() + windows;
    assert_eq!(ledger.memory_bytes(), expected);
    for number in [3, 5] {
        let seen = [0; 4];
        ledger.gaps.open(number..number + 1, SECOND, false);
        ledger.altered.insert(number, 1);
        ledger.parts.insert(number, Parts { of: 2, seen });
        expected += 64 + 32 + 80;
        assert_eq!(ledger.memory_bytes(), expected);
    }
    ledger.order.runs.reserve_exact(2);
    expected += ledger.order.runs.capacity() * 24;
    assert_eq!(ledger.memory_bytes(), expected);
    ledger.declared = Some(Box::default());
    assert_eq!(ledger.memory_bytes(), expected + size_of::<Declared>());
}

#[test]
fn only_an_open_epoch_is_unlisted() {
    for (closed, over, expected) in [
        (None, false, &[Event::Unlisted][..]),
        (None, true, &[]),
        (Some(3), false, &[]),
        (Some(3), true, &[]),
    ] {
        let mut ledger = LaneLedger::new(Join::Beginning);
        ledger.closed = closed;
        ledger.over = over;
        ledger.unlisted();
        assert_eq!(ledger.over, over);
        assert_eq!(ledger.take_events(), expected, "{closed:?} {over}");
    }
}

#[test]
fn a_lane_that_was_listed_and_lost_whole_is_silent_and_its_windows_are_those_listed() {
    let (limits, hasher) = (LedgerLimits::default(), Hasher::xxh3());
    let mut ledger = LaneLedger::new(Join::Beginning);
    ledger.listed(WINDOW, Duration::ZERO);
    ledger.poll(SECOND * 60, &limits, &hasher);
    assert_eq!((ledger.next(), ledger.windows.reached), (WINDOW, 1));
    let events = ledger.take_events();
    assert!(events.contains(&Event::Silent(SECOND * 60)), "{events:?}");
    let lost = Event::Lost {
        numbers: 0..WINDOW,
        tail: true,
    };
    assert!(events.contains(&lost), "{events:?}");
}

#[test]
fn a_copy_of_a_known_checkpoint_is_no_sign_of_its_producer() {
    let (limits, hasher) = (LedgerLimits::default(), Hasher::xxh3());
    for end in [EpochEnd::Open, EpochEnd::Cut] {
        let mut ledger = LaneLedger::new(Join::Beginning);
        let known = checkpoint_at(3);
        ledger.checkpoint(&known, Duration::ZERO, &limits, &hasher);
        let copy = Checkpoint { end, ..known };
        for second in 1..=30 {
            if end == EpochEnd::Open {
                ledger.checkpoint(&copy, SECOND * second, &limits, &hasher);
            }
            ledger.poll(SECOND * second, &limits, &hasher);
        }
        let told = ledger.take_events();
        assert!(told.contains(&Event::Silent(SECOND * 2)), "{told:?}");
        ledger.checkpoint(&copy, SECOND * 31, &limits, &hasher);
        let is_heard = ledger.take_events().contains(&Event::Heard(SECOND * 31));
        assert_eq!(
            is_heard,
            end == EpochEnd::Cut,
            "only the first that tells of a cut is new"
        );
    }
}

#[test]
fn announced_messages_that_are_not_yet_late_are_outstanding() {
    let (limits, hasher) = (LedgerLimits::default(), Hasher::xxh3());
    let mut ledger = LaneLedger::new(Join::Beginning);
    assert_eq!(ledger.outstanding(), None);
    arrive(&mut ledger, 0, 1, &limits);
    hear(&mut ledger, &checkpoint_at(3));
    assert_eq!(ledger.outstanding(), Some(1..3));
    arrive(&mut ledger, 1, 1, &limits);
    assert_eq!(ledger.outstanding(), Some(2..3));
    ledger.poll(SECOND * 3, &limits, &hasher);
    assert_eq!(ledger.outstanding(), None, "it is lost");
}

#[test]
fn announced_messages_that_were_dropped_are_not_outstanding() {
    let (limits, hasher) = (LedgerLimits::default(), Hasher::xxh3());
    let mut ledger = LaneLedger::new(Join::Beginning);
    ledger.listed(3, SECOND);
    let leaves = [whole(0, 1).leaf; 3];
    for (end, outstanding) in [(2, Some(2..3)), (3, None)] {
        ledger.dropped(0, &leaves[..end], SECOND, &limits, &hasher);
        assert_eq!(ledger.outstanding(), outstanding, "{end}");
    }
}

#[test]
fn lost_numbers_that_follow_one_another_are_asked_for_as_one() {
    let mut ledger = LaneLedger::new(Join::Beginning);
    for (numbers, noticed) in [(1..3, SECOND), (3..5, SECOND * 2), (6..7, SECOND)] {
        ledger.gaps.open(numbers, noticed, true);
    }
    assert_eq!(ledger.requests(), [Request::Numbers(vec![1..5, 6..7])]);
}

#[test]
fn a_directory_that_lists_less_than_a_checkpoint_is_no_news() {
    for (closed, size, covered) in [(None, 5, 10), (None, 12, 12), (Some(10), 12, 10)] {
        let mut ledger = LaneLedger::new(Join::Beginning);
        ledger.covered = 10;
        ledger.closed = closed;
        ledger.listed(size, SECOND);
        assert_eq!(ledger.covered, covered, "{closed:?} {size}");
        assert_eq!(ledger.tails.len(), usize::from(covered == 12));
    }
}

#[test]
fn a_lost_message_that_comes_is_found_also_in_a_window_without_any_other() {
    let (limits, hasher) = (LedgerLimits::default(), Hasher::xxh3());
    let mut ledger = LaneLedger::new(Join::Beginning);
    ledger.listed(3, Duration::ZERO);
    ledger.poll(SECOND * 60, &limits, &hasher);
    assert_eq!(arrive(&mut ledger, 0, 1, &limits), Verdict::Found);
    assert_eq!(ledger.next(), 3);
}

#[test]
fn a_message_behind_a_gap_is_judged_with_it_also_in_the_window_after_it() {
    let (limits, hasher) = (LedgerLimits::default(), Hasher::xxh3());
    let mut ledger = LaneLedger::new(Join::Beginning);
    for number in 0..WINDOW - 1 {
        arrive(&mut ledger, number, 1, &limits);
    }
    // What is sent again opens the gap, and has no place in the order.
    for (number, resent) in [(WINDOW, true), (WINDOW + 1, false)] {
        let arrival = Arrival {
            resent,
            ..whole(number, 1)
        };
        let mut other = ledger.clone();
        let verdict = ledger.observe(&arrival, SECOND, &limits, &hasher);
        let expected = other.observe_any(&arrival, SECOND, &limits, &hasher);
        assert_eq!((verdict, &ledger), (expected, &other), "{number}");
    }
}

#[test]
fn altered_and_partial_messages_are_remembered_up_to_a_limit() {
    let hasher = Hasher::xxh3();
    let limits = LedgerLimits {
        suspects_max: 1,
        ..LedgerLimits::default()
    };
    let mut ledger = LaneLedger::new(Join::Beginning);
    for number in [0, 1, 0] {
        let arrival = Arrival {
            fits: false,
            ..whole(number, 1)
        };
        let verdict = ledger.observe(&arrival, SECOND, &limits, &hasher);
        assert_eq!(verdict, Verdict::Altered);
    }
    assert_eq!(ledger.altered.into_iter().collect::<Vec<_>>(), [(0, 2)]);
    let mut ledger = LaneLedger::new(Join::Beginning);
    for (number, part, expected) in [
        (0, 1, Verdict::Part),
        (0, 0, Verdict::Injected),
        (0, 3, Verdict::Injected),
        (1, 1, Verdict::NotAudited),
        (0, 2, Verdict::InOrder),
        (1, 1, Verdict::Part),
    ] {
        let arrival = Arrival {
            part: Some((part, 2)),
            ..whole(number, 1)
        };
        let verdict = ledger.observe(&arrival, SECOND, &limits, &hasher);
        assert_eq!(verdict, expected, "{number}, part {part}");
    }
}

#[test]
fn an_announced_end_is_forgotten_when_all_below_it_has_come() {
    let limits = LedgerLimits::default();
    let mut ledger = LaneLedger::new(Join::Beginning);
    ledger.listed(3, SECOND);
    let lost_at = Some(SECOND + limits.lateness);
    for (number, timeout) in [(0, lost_at), (1, lost_at), (2, None)] {
        let verdict = arrive(&mut ledger, number, 1, &limits);
        assert_eq!(verdict, Verdict::InOrder, "{number}");
        assert_eq!(ledger.timeout(&limits), timeout, "{number}");
    }
}

#[test]
fn nothing_is_waited_for_beyond_the_end_of_an_epoch() {
    let limits = LedgerLimits::default();
    let mut ledger = LaneLedger::new(Join::Beginning);
    ledger.listed(5, SECOND);
    for number in 0..3 {
        arrive(&mut ledger, number, 1, &limits);
    }
    assert_eq!(ledger.outstanding(), Some(3..5));
    let end = Checkpoint {
        end: EpochEnd::Closed,
        ..checkpoint_at(3)
    };
    hear(&mut ledger, &end);
    assert_eq!(
        (ledger.outstanding(), ledger.timeout(&limits)),
        (None, None)
    );
}

#[test]
fn a_whole_message_takes_the_place_of_its_parts() {
    let (limits, hasher) = (LedgerLimits::default(), Hasher::xxh3());
    let mut ledger = LaneLedger::new(Join::Beginning);
    for number in [0, 1] {
        let part = Arrival {
            part: Some((1, 2)),
            ..whole(number, 1)
        };
        ledger.observe(&part, SECOND, &limits, &hasher);
    }
    // Not the usual one, which is folded.
    arrive(&mut ledger, 1, 1, &limits);
    assert_eq!(ledger.parts.into_keys().collect::<Vec<_>>(), [0]);
}

#[test]
fn as_many_gaps_as_the_limit_are_remembered() {
    let limits = LedgerLimits {
        gaps_max: 2,
        ..LedgerLimits::default()
    };
    let mut ledger = LaneLedger::new(Join::Beginning);
    for (number, forgotten) in [(1, None), (3, None), (5, Some(0..1))] {
        arrive(&mut ledger, number, 1, &limits);
        let events = ledger.take_events();
        let found = events.into_iter().find_map(|event| match event {
            Event::Forgotten(numbers) => Some(numbers),
            _ => None,
        });
        assert_eq!(found, forgotten, "{number}");
    }
}

#[test]
fn leaves_are_held_from_the_message_on_at_which_the_limits_say_so() {
    let mut limits = LedgerLimits::default();
    let mut ledger = LaneLedger::new(Join::Beginning);
    for number in 0..3 {
        arrive(&mut ledger, number, 1, &limits);
    }
    limits.hold_leaves = true;
    arrive(&mut ledger, 3, 1, &limits);
    assert_eq!(arrive(&mut ledger, 3, 2, &limits), Verdict::Conflict);
}

#[test]
fn a_message_can_come_in_as_many_parts_as_a_byte_can_count() {
    let (limits, hasher) = (LedgerLimits::default(), Hasher::xxh3());
    let mut ledger = LaneLedger::new(Join::Beginning);
    let of = u8::MAX;
    for index in 1..of {
        let part = Arrival {
            part: Some((index, of)),
            ..whole(0, 1)
        };
        for expected in [Verdict::Part, Verdict::Duplicate] {
            let verdict = ledger.observe(&part, SECOND, &limits, &hasher);
            assert_eq!(verdict, expected, "{index}");
        }
    }
    let last = Arrival {
        part: Some((of, of)),
        ..whole(0, 1)
    };
    let verdict = ledger.observe(&last, SECOND, &limits, &hasher);
    assert_eq!(verdict, Verdict::InOrder);
}

#[test]
fn a_message_that_is_due_overtakes_one_that_is_missing() {
    let (limits, hasher) = (LedgerLimits::default(), Hasher::xxh3());
    let mut ledger = LaneLedger::new(Join::Beginning);
    arrive(&mut ledger, 0, 1, &limits);
    // It leaves a gap of two, and has no place in the order.
    let resent = Arrival {
        resent: true,
        ..whole(3, 1)
    };
    ledger.observe(&resent, SECOND, &limits, &hasher);
    assert_eq!(arrive(&mut ledger, 4, 1, &limits), Verdict::InOrder);
    for number in [1, 2] {
        assert_eq!(arrive(&mut ledger, number, 1, &limits), Verdict::Late);
    }
    let events = ledger.take_events();
    let overtaken = Event::Overtaken { number: 1, by: 1 };
    assert!(events.contains(&overtaken), "{events:?}");
    assert_eq!(ledger.moved(), 1, "{events:?}");
}

#[test]
fn what_came_before_a_late_joiner_was_never_asked_for() {
    let limits = LedgerLimits::default();
    let mut ledger = LaneLedger::new(Join::Late);
    for (number, expected) in [(5, Verdict::OutOfScope), (WINDOW, Verdict::InOrder)] {
        assert_eq!(arrive(&mut ledger, number, 1, &limits), expected);
    }
    let numbers = [5, WINDOW - 1, WINDOW, WINDOW + 1];
    let asked_for = numbers.map(|number| ledger.was_asked_for(number));
    assert_eq!(asked_for, [false, false, true, false]);
}

#[test]
fn a_missing_message_is_asked_for_once_it_is_lost() {
    let (limits, hasher) = (LedgerLimits::default(), Hasher::xxh3());
    let mut ledger = LaneLedger::new(Join::Beginning);
    hear(&mut ledger, &checkpoint_at(3));
    arrive(&mut ledger, 0, 1, &limits);
    arrive(&mut ledger, 2, 1, &limits);
    assert!(!ledger.was_asked_for(1));
    ledger.poll(SECOND + limits.lateness, &limits, &hasher);
    assert!(ledger.was_asked_for(1));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn the_usual_message_is_judged_as_any_other_is(
        steps in prop::collection::vec(0_u8..60, 0..2_600),
    ) {
        let (hasher, limits) = (Hasher::xxh3(), LedgerLimits::default());
        let id = LaneId::new(7).expect("7 is a lane");
        let mut now = Duration::ZERO;
        let mut lane = Lane::new(id, Epoch(0), LaneLimits::default(), now);
        let mut told_apart = LaneLedger::new(Join::Beginning);
        let mut all_alike = told_apart.clone();
        let mut late = None;
        for step in steps {
            now += Duration::from_millis(if step == 4 { 1_000 } else { 1 });
            let property = lane.issue(*b"t", [step], &hasher);
            let arrival = Arrival {
                number: property.sequence,
                leaf: property.digest,
                fits: step != 2,
                resent: step == 3,
                part: (step == 5).then_some((1, 2)),
            };
            let arrivals = match step {
                0 => [late.replace(arrival), None],
                1 => [Some(arrival), Some(arrival)],
                6 => [Some(arrival), late.take()],
                _ => [Some(arrival), None],
            };
            for arrival in arrivals.into_iter().flatten() {
                let verdict = told_apart.observe(&arrival, now, &limits, &hasher);
                let expected = all_alike.observe_any(&arrival, now, &limits, &hasher);
                prop_assert_eq!(verdict, expected);
            }
            let checkpoint = lane.poll_checkpoint(now, 0, &hasher);
            for ledger in [&mut told_apart, &mut all_alike] {
                if let Some(checkpoint) = &checkpoint {
                    ledger.checkpoint(checkpoint, now, &limits, &hasher);
                }
                ledger.poll(now, &limits, &hasher);
            }
        }
        prop_assert_eq!(told_apart, all_alike);
    }
}
