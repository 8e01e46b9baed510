//! One lane under each circumstance that the simulation does not make: no way back to the producer,
//! a late joiner, a member of a group, messages beyond the lateness bound, damaged state.

#![allow(clippy::unwrap_used, reason = "a test fails by panic")]

mod cut;
mod forged;
mod saved;

use std::time::Duration;

use unbroken_merkle_log::ledger::{
    Answer, Arrival, Event, Join, LaneLedger, Ledger, LedgerLimits, Moved, Refused, Request, State,
    StateError, Taken, Verdict,
};
use unbroken_merkle_log::{
    Checkpoint, DetailLevel, Digest, Directory, Epoch, EpochEnd, Hasher, Lane, LaneId, LaneLimits,
    OpenLane, Property,
};

const ZERO: Duration = Duration::ZERO;
const SECOND: Duration = Duration::from_secs(1);

/// A producer and a receiver, and what lies between.
struct Pair {
    hasher: Hasher,
    limits: LedgerLimits,
    lane: Lane,
    ledger: LaneLedger,
}

impl Pair {
    fn new(join: Join) -> Self {
        Self::with_detail(join, DetailLevel::None)
    }

    fn with_detail(join: Join, detail: DetailLevel) -> Self {
        let id = LaneId::new(1).unwrap();
        let mut limits = LaneLimits::default();
        limits.detail = detail;
        Self {
            hasher: Hasher::xxh3(),
            limits: LedgerLimits::default(),
            lane: Lane::new(id, Epoch(0), limits, ZERO),
            ledger: LaneLedger::new(join),
        }
    }

    fn issue(&mut self) -> Property {
        let payload = self.lane.size().to_be_bytes();
        self.lane.issue(*b"t", payload, &self.hasher)
    }

    fn send(&mut self, property: &Property, now: Duration) -> Verdict {
        let arrival = Arrival {
            number: property.sequence,
            leaf: property.digest,
            fits: true,
            resent: property.flags.resent,
            part: None,
        };
        self.ledger
            .observe(&arrival, now, &self.limits, &self.hasher)
    }

    /// Issues this many messages; those that `keep` lets through arrive.
    fn run(&mut self, count: u64, keep: impl Fn(u64) -> bool) {
        for _ in 0..count {
            let property = self.issue();
            if keep(property.sequence) {
                self.send(&property, ZERO);
            }
        }
    }

    fn checkpoint(&mut self, now: Duration) -> Checkpoint {
        self.lane.poll_checkpoint(now, 0, &self.hasher).unwrap()
    }

    fn hear(&mut self, checkpoint: &Checkpoint, now: Duration) {
        self.ledger
            .checkpoint(checkpoint, now, &self.limits, &self.hasher);
    }

    fn poll(&mut self, now: Duration) {
        self.ledger.poll(now, &self.limits, &self.hasher);
    }

    /// Has the producer answer about hashes until only messages are asked for: these.
    fn descend(&mut self) -> Vec<std::ops::Range<u64>> {
        loop {
            let requests = self.ledger.requests();
            if let [Request::Numbers(numbers)] = &requests[..] {
                return numbers.clone();
            }
            let answers = requests
                .iter()
                .filter_map(|request| self.lane.answer(request, &self.hasher))
                .filter(|answer| !matches!(answer, Answer::NotHeld(_)));
            let answers: Vec<Answer> = answers.collect();
            assert!(!answers.is_empty(), "{requests:?}");
            for answer in answers {
                self.ledger.answer(&answer, &self.hasher).unwrap();
            }
        }
    }

    fn windows(&mut self) -> Vec<(u64, State)> {
        let events = self.ledger.take_events();
        let windows = events.into_iter().filter_map(|event| match event {
            Event::Window {
                numbers,
                state,
                account,
            } => {
                assert!(
                    account.is_lawful() || state == State::Unproven,
                    "{account:?}"
                );
                Some((numbers.start, state))
            }
            _ => None,
        });
        windows.collect()
    }

    fn lost(&mut self) -> Vec<u64> {
        let events = self.ledger.take_events();
        let lost = events.into_iter().filter_map(|event| match event {
            Event::Lost { numbers, .. } => Some(numbers),
            _ => None,
        });
        lost.flatten().collect()
    }
}

#[test]
fn what_no_checkpoint_covers_is_never_called_lost() {
    let mut pair = Pair::new(Join::Beginning);
    pair.run(100, |number| number != 50);
    pair.poll(SECOND * 60);
    assert_eq!(pair.lost(), []);
    let checkpoint = pair.checkpoint(SECOND * 60);
    pair.hear(&checkpoint, SECOND * 60);
    pair.poll(SECOND * 60);
    assert_eq!(pair.lost(), [50]);
}

/// A ledger of lanes, and a lane of one topic whose epochs differ.
fn late(announced: Option<Epoch>) -> Ledger<Hasher> {
    let mut ledger = Ledger::new(Hasher::xxh3(), LedgerLimits::default(), Join::Late);
    ledger.resume(ZERO);
    if let Some(epoch) = announced {
        let lane = LaneId::new(1).unwrap();
        let directory = Directory {
            producer: 9,
            epoch: Epoch(1),
            number: 0,
            time_us: 0,
            lanes: vec![OpenLane {
                lane,
                epoch,
                size: 0,
            }],
        };
        assert!(ledger.directory(&directory, ZERO, |_| true).is_whole());
    }
    ledger
}

/// Sends the messages of an epoch without numbers 0 and 500, and what the receiver then misses.
fn miss(ledger: &mut Ledger<Hasher>, epoch: Epoch) -> Vec<u64> {
    let hasher = Hasher::xxh3();
    let id = LaneId::new(1).unwrap();
    let mut lane = Lane::new(id, epoch, LaneLimits::default(), ZERO);
    for number in 0..1_100_u64 {
        let property = lane.issue(*b"t", number.to_be_bytes(), &hasher);
        if ![0, 500].contains(&number) {
            ledger.message(&property, b"t", &number.to_be_bytes(), ZERO);
        }
        if let Some(checkpoint) = lane.poll_checkpoint(ZERO, 0, &hasher) {
            ledger.checkpoint(&checkpoint, ZERO);
        }
    }
    let last = lane.close(0, &hasher).unwrap();
    ledger.checkpoint(&last, ZERO);
    ledger.poll(SECOND * 2);
    let events = ledger.take_events().filter(|(_, of, _)| *of == epoch);
    let lost = events.filter_map(|(_, _, event)| match event {
        Event::Lost { numbers, .. } => Some(numbers),
        _ => None,
    });
    lost.flatten().collect()
}

#[test]
fn an_epoch_that_was_under_way_begins_at_the_next_window_and_that_is_reported() {
    let mut ledger = late(None);
    let lane = LaneId::new(1).unwrap();
    let property = Property::stamp(&Hasher::xxh3(), lane, Epoch(7), 1, b"t", b"p");
    let verdict = ledger.message(&property, b"t", b"p", ZERO);
    assert_eq!(verdict, Verdict::OutOfScope);
    let events: Vec<_> = ledger.take_events().collect();
    assert_eq!(events, [(lane, Epoch(7), Event::OutOfScope(1_024))]);
}

#[test]
fn a_new_epoch_of_a_lane_that_was_heard_is_judged_from_number_0_on() {
    let mut ledger = late(None);
    assert_eq!(miss(&mut ledger, Epoch(7)), []);
    assert_eq!(miss(&mut ledger, Epoch(8)), [0, 500]);
    // A receiver that starts again knows it too.
    let mut saved = Vec::new();
    ledger.save(&[], SECOND, &mut saved);
    let limits = LedgerLimits::default();
    let restored = Ledger::restore(&saved, Hasher::xxh3(), limits, Join::Late);
    let mut ledger = restored.unwrap().0;
    ledger.resume(ZERO);
    assert_eq!(miss(&mut ledger, Epoch(9)), [0, 500]);
}

#[test]
fn an_epoch_that_a_directory_announced_is_judged_from_number_0_on() {
    let mut ledger = late(Some(Epoch(7)));
    let mut saved = Vec::new();
    ledger.save(&[], SECOND, &mut saved);
    assert_eq!(miss(&mut ledger, Epoch(7)), [0, 500]);
    let limits = LedgerLimits::default();
    let restored = Ledger::restore(&saved, Hasher::xxh3(), limits, Join::Late);
    let mut ledger = restored.unwrap().0;
    ledger.resume(ZERO);
    assert_eq!(miss(&mut ledger, Epoch(7)), [0, 500]);
    let mut ledger = late(Some(Epoch(6)));
    let missed = miss(&mut ledger, Epoch(7));
    assert_eq!(missed, [0, 500], "another epoch of the lane was listed");
}

#[test]
fn a_gap_younger_than_the_lateness_bound_is_only_suspected() {
    let mut pair = Pair::new(Join::Beginning);
    pair.run(100, |number| number != 50);
    let checkpoint = pair.checkpoint(SECOND);
    pair.hear(&checkpoint, ZERO);
    pair.poll(Duration::from_nanos(799_999_999));
    assert_eq!(pair.lost(), []);
    assert_eq!(
        pair.ledger.timeout(&pair.limits),
        Some(pair.limits.lateness)
    );
    pair.poll(pair.limits.lateness);
    assert_eq!(pair.lost(), [50]);
}

#[test]
fn a_lane_is_settled_below_a_number_when_nothing_below_it_may_still_come() {
    let mut pair = Pair::new(Join::Beginning);
    pair.run(10, |number| number != 4);
    let settled = |pair: &Pair| [4, 5, 10, 11].map(|size| pair.ledger.is_settled_below(size));
    assert_eq!(settled(&pair), [true, false, false, false]);
    let checkpoint = pair.checkpoint(SECOND);
    pair.hear(&checkpoint, SECOND);
    pair.poll(SECOND * 3);
    assert_eq!(pair.lost(), [4]);
    assert_eq!(settled(&pair), [true, false, false, false]);
    let gone = Answer::NotHeld(std::iter::once(4..5).collect());
    pair.ledger.answer(&gone, &pair.hasher).unwrap();
    assert_eq!(settled(&pair), [true, true, true, false]);
}

#[test]
fn a_late_message_is_named_at_once_while_disorder_lasts_and_counted_at_its_end() {
    let mut pair = Pair::new(Join::Beginning);
    let all: Vec<Property> = (0..10).map(|_| pair.issue()).collect();
    let mut events = |number: usize| {
        pair.send(&all[number], ZERO);
        let events = pair.ledger.take_events().into_iter();
        let events = events.filter(|event| !matches!(event, Event::Suspected(_)));
        events.collect::<Vec<Event>>()
    };
    let overtaken = |number, by| vec![Event::Overtaken { number, by }];
    let moved = |number, displacement| {
        let numbers = number..number + 1;
        Event::Moved(Moved {
            numbers,
            displacement,
        })
    };
    // 5 comes far too early; 1 stays away until the end.
    for (number, expected) in [(0, vec![]), (5, vec![]), (2, overtaken(2, 1))] {
        assert_eq!(events(number), expected);
    }
    assert_eq!(events(3), overtaken(3, 1));
    assert_eq!(events(4), overtaken(4, 1));
    assert_eq!(events(6), []);
    assert_eq!(events(8), []);
    assert_eq!(events(7), overtaken(7, 1));
    // Three explain it all, not the five that were late.
    let end = [moved(5, -4), moved(7, 0), moved(1, 7), Event::Settled];
    assert_eq!(events(1), end);
    assert_eq!(pair.ledger.moved(), 3);
}

#[test]
fn a_message_beyond_the_bound_is_found_and_moved() {
    let mut pair = Pair::new(Join::Beginning);
    let first = pair.issue();
    pair.run(9, |_| true);
    let checkpoint = pair.checkpoint(SECOND);
    pair.hear(&checkpoint, ZERO);
    pair.poll(SECOND);
    assert_eq!(pair.lost(), [0]);
    assert_eq!(pair.send(&first, SECOND), Verdict::Found);
    assert_eq!(pair.send(&first, SECOND), Verdict::Repeated);
    assert_eq!(pair.ledger.moved(), 1);
}

#[test]
fn the_root_of_the_lane_proves_a_window_whose_checkpoint_was_lost() {
    let mut pair = Pair::new(Join::Beginning);
    pair.run(3 * 1_024, |_| true);
    let checkpoints = [0, 1, 2].map(|_| pair.checkpoint(SECOND));
    pair.hear(&checkpoints[2], ZERO);
    let proven = [0, 1_024, 2_048].map(|first| (first, State::Proven));
    assert_eq!(pair.windows(), proven);
}

#[test]
fn a_late_joiner_claims_nothing_before_the_first_window_begun_after_it_came() {
    let mut pair = Pair::new(Join::Late);
    let missed: Vec<Property> = (0..500).map(|_| pair.issue()).collect();
    let verdict = pair.issue();
    assert_eq!(pair.send(&verdict, ZERO), Verdict::OutOfScope);
    pair.run(523, |_| true);
    assert_eq!(pair.send(&missed[3], ZERO), Verdict::OutOfScope);
    pair.run(1_024, |number| number != 1_500);
    let checkpoints = [0, 1].map(|_| pair.checkpoint(SECOND));
    pair.hear(&checkpoints[0], ZERO);
    pair.hear(&checkpoints[1], ZERO);
    pair.poll(SECOND);
    assert_eq!(
        pair.ledger.requests(),
        [Request::Numbers(std::iter::once(1_500..1_501).collect())]
    );
    assert_eq!(pair.windows(), [(1_024, State::Faulty)]);
}

#[test]
fn a_lone_member_of_a_group_calls_nothing_lost_or_moved() {
    let mut pair = Pair::new(Join::Member);
    pair.run(2_048, |number| number % 3 == 0);
    let checkpoint = pair.checkpoint(SECOND);
    pair.hear(&checkpoint, ZERO);
    pair.poll(SECOND * 9);
    assert_eq!(pair.ledger.requests(), []);
    assert_eq!(pair.ledger.moved(), 0);
    let events = pair.ledger.take_events();
    assert!(
        events.iter().all(|event| matches!(event, Event::Silent(_))),
        "{events:?}"
    );
}

#[test]
fn the_tail_is_lost_when_only_the_checkpoint_tells_of_it() {
    let mut pair = Pair::new(Join::Beginning);
    pair.run(100, |number| number < 97);
    let checkpoint = pair.checkpoint(SECOND);
    pair.hear(&checkpoint, ZERO);
    pair.poll(SECOND);
    assert_eq!(pair.lost(), [97, 98, 99]);
}

#[test]
fn a_checkpoint_of_other_windows_is_named_and_not_used() {
    let mut pair = Pair::new(Join::Beginning);
    pair.run(3, |_| true);
    let mut checkpoint = pair.checkpoint(SECOND);
    checkpoint.window_log2 = 9;
    pair.hear(&checkpoint, SECOND);
    let events = pair.ledger.take_events();
    assert_eq!(events, [Event::OtherWindows(checkpoint.number)]);
}

#[test]
fn a_checkpoint_that_comes_behind_later_messages_claims_nothing_false() {
    let mut pair = Pair::new(Join::Beginning);
    pair.run(40, |_| true);
    let stale = pair.checkpoint(SECOND);
    pair.run(10, |_| true);
    pair.hear(&stale, SECOND);
    pair.poll(SECOND * 2);
    assert_eq!(pair.ledger.take_events(), []);
    assert_eq!(pair.ledger.requests(), []);
    pair.run(1_024 - 50, |_| true);
    let whole = pair.checkpoint(SECOND * 2);
    pair.hear(&whole, SECOND * 2);
    assert_eq!(pair.windows(), [(0, State::Proven)]);
}

#[test]
fn untaken_events_are_counted_beyond_the_limit() {
    use unbroken_merkle_log::ledger::limits::EVENTS_MAX;
    let mut pair = Pair::new(Join::Beginning);
    let rounds = u64::try_from(EVENTS_MAX).unwrap() + 10;
    pair.run(rounds * 2, |number| number % 2 == 1);
    let events = pair.ledger.take_events();
    assert_eq!(events.len(), EVENTS_MAX + 1);
    let Some(Event::Unnamed(count)) = events.last() else {
        panic!("{:?} does not count", events.last());
    };
    assert!(*count >= 10);
    assert_eq!(pair.ledger.take_events(), []);
}

#[test]
fn the_last_number_that_a_checkpoint_can_have_is_one() {
    let mut pair = Pair::new(Join::Beginning);
    pair.run(5, |_| true);
    let mut checkpoint = pair.checkpoint(SECOND);
    checkpoint.number = u32::MAX;
    for _ in 0..2 {
        pair.hear(&checkpoint, SECOND);
    }
    let missed = [Event::CheckpointsMissed(0..u32::MAX)];
    assert_eq!(pair.ledger.take_events(), missed);
}
