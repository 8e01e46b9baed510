//! One lane under each circumstance that the simulation does not make: no way back to the producer,
//! a late joiner, a member of a group, messages beyond the lateness bound, damaged state.

#![allow(clippy::unwrap_used, reason = "a test fails by panic")]

use std::time::Duration;

use unbroken_merkle_log::ledger::{
    Answer, Arrival, Event, Join, LaneLedger, Ledger, LedgerLimits, Moved, Refused, Request, State,
    StateError, Verdict,
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
        assert!(ledger.directory(&directory, ZERO, |_| true));
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
fn an_epoch_that_was_under_way_begins_at_the_next_window_and_that_is_told() {
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
fn a_forged_message_without_a_way_back_leaves_its_window_unproven() {
    let mut pair = Pair::new(Join::Beginning);
    for _ in 0..3 * 1_024 {
        let mut property = pair.issue();
        if property.sequence == 1_500 {
            property.digest = Property::stamp(
                &pair.hasher,
                property.lane,
                property.epoch,
                1_500,
                b"t",
                b"forged",
            )
            .digest;
        }
        pair.send(&property, ZERO);
    }
    let [first, _, third] = [0, 1, 2].map(|_| pair.checkpoint(SECOND));
    pair.hear(&first, ZERO);
    pair.hear(&third, ZERO);
    pair.poll(SECOND);
    let windows = pair.windows();
    assert!(windows.contains(&(0, State::Proven)));
    assert!(windows.contains(&(1_024, State::Unproven)));
    assert!(windows.contains(&(2_048, State::Proven)));
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
fn an_answer_that_does_not_give_the_root_is_refused() {
    let mut pair = Pair::new(Join::Beginning);
    for _ in 0..1_024 {
        let mut property = pair.issue();
        if property.sequence == 7 {
            property.digest = [9; 16].into();
        }
        pair.send(&property, ZERO);
    }
    let checkpoint = pair.checkpoint(SECOND);
    pair.hear(&checkpoint, ZERO);
    let request = pair.ledger.requests().remove(0);
    let Some(Answer::Groups {
        window,
        size,
        hashes,
    }) = pair.lane.answer(&request, &pair.hasher)
    else {
        panic!("{request:?} is about groups");
    };
    let mut lie = hashes.clone();
    lie.swap(0, 1);
    let lie = Answer::Groups {
        window,
        size,
        hashes: lie,
    };
    assert_eq!(
        pair.ledger.answer(&lie, &pair.hasher),
        Err(Refused::Unproven(0))
    );
    let truth = Answer::Groups {
        window,
        size,
        hashes,
    };
    assert_eq!(pair.ledger.answer(&truth, &pair.hasher), Ok(()));
    let requests = pair.ledger.requests();
    let [Request::Leaves { group: 0, .. }] = requests[..] else {
        panic!("{requests:?}: one group differs");
    };
    let Some(Answer::Leaves {
        window,
        size,
        group,
        leaves,
    }) = pair.lane.answer(&requests[0], &pair.hasher)
    else {
        panic!("{requests:?} is about leaves");
    };
    let mut lie = leaves.clone();
    lie.swap(3, 4);
    let lie = Answer::Leaves {
        window,
        size,
        group,
        leaves: lie,
    };
    assert_eq!(
        pair.ledger.answer(&lie, &pair.hasher),
        Err(Refused::Unproven(0))
    );
    let truth = Answer::Leaves {
        window,
        size,
        group,
        leaves,
    };
    assert_eq!(pair.ledger.answer(&truth, &pair.hasher), Ok(()));
    assert!(pair.ledger.take_events().contains(&Event::Forged(7..8)));
}

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
fn a_checkpoint_with_detail_names_what_is_forged_without_a_way_back() {
    for (detail, hold) in [
        (DetailLevel::Fingerprints, true),
        (DetailLevel::Leaves, true),
        (DetailLevel::Leaves, false),
    ] {
        let mut pair = Pair::with_detail(Join::Beginning, detail);
        pair.limits.hold_leaves = hold;
        // In the first window all has come; of the second one is lost as well.
        for _ in 0..2_048 {
            let mut property = pair.issue();
            if matches!(property.sequence, 7 | 900 | 1_500) {
                property.digest = [9; 16].into();
            }
            if property.sequence != 2_000 {
                pair.send(&property, ZERO);
            }
        }
        let [first, second] = [0, 1].map(|_| pair.checkpoint(SECOND));
        let mut bytes = Vec::new();
        second.encode(&pair.hasher, &mut bytes);
        let per_message = if detail == DetailLevel::Leaves { 16 } else { 4 };
        assert_eq!(bytes.len(), 128 + 1_024 * per_message);
        pair.hear(&first, ZERO);
        pair.hear(&second, ZERO);
        let mut saved = Vec::new();
        pair.ledger.take_events().iter().for_each(|event| {
            let forged = [Event::Forged(7..8), Event::Forged(900..901)];
            let expected = matches!(event, Event::Suspected(_) | Event::Window { .. });
            assert!(expected || forged.contains(event), "{event:?}");
        });
        pair.ledger.save(&pair.hasher, &mut saved);
        pair.ledger = LaneLedger::restore(&saved, &pair.hasher).unwrap();
        pair.poll(SECOND);
        let events = pair.ledger.take_events();
        assert!(events.contains(&Event::Forged(1_500..1_501)), "{events:?}");
        let missing = vec![7..8, 900..901, 1_500..1_501, 2_000..2_001];
        assert_eq!(pair.ledger.requests(), [Request::Numbers(missing)]);
        for number in [7, 900, 1_500, 2_000] {
            let message = pair.lane.resend(number, &pair.hasher).unwrap();
            assert_eq!(pair.send(&message.property, SECOND), Verdict::Repaired);
        }
        let proven = [(0, State::Proven), (1_024, State::Proven)];
        assert_eq!(pair.windows(), proven);
    }
}

#[test]
fn fingerprints_name_the_group_of_a_forged_message_and_a_descent_names_it() {
    let mut pair = Pair::with_detail(Join::Beginning, DetailLevel::Fingerprints);
    for _ in 0..2_048 {
        let mut property = pair.issue();
        if matches!(property.sequence, 900 | 2_000) {
            property.digest = [9; 16].into();
        }
        pair.send(&property, ZERO);
        if property.sequence == 1_023 {
            let checkpoint = pair.checkpoint(SECOND);
            pair.hear(&checkpoint, ZERO);
            let events = pair.ledger.take_events();
            let root_differs = Event::RootDiffers(896..928);
            assert_eq!(
                events,
                [root_differs],
                "one of them, and which is not known"
            );
            assert!(pair.descend().into_iter().flatten().eq([900]));
        }
    }
    // From then on leaves are held.
    let checkpoint = pair.checkpoint(SECOND);
    pair.hear(&checkpoint, ZERO);
    let events = pair.ledger.take_events();
    assert!(events.contains(&Event::Forged(2_000..2_001)), "{events:?}");
}

#[test]
fn two_forged_messages_of_one_folded_group_are_named_with_their_group() {
    for hold in [false, true] {
        let mut pair = Pair::new(Join::Beginning);
        pair.limits.hold_leaves = hold;
        for _ in 0..1_024 {
            let mut property = pair.issue();
            if matches!(property.sequence, 5 | 64 | 70) {
                property.digest = [9; 16].into();
            }
            pair.send(&property, ZERO);
        }
        let checkpoint = pair.checkpoint(SECOND);
        pair.hear(&checkpoint, ZERO);
        let forged = if hold {
            vec![5..6, 64..65, 70..71]
        } else {
            vec![5..6, 64..96]
        };
        assert_eq!(pair.descend(), forged);
        for number in forged.into_iter().flatten() {
            let message = pair.lane.resend(number, &pair.hasher).unwrap();
            assert_eq!(pair.send(&message.property, SECOND), Verdict::Repaired);
        }
        assert_eq!(pair.windows().last(), Some(&(0, State::Proven)));
    }
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
fn messages_beyond_the_end_contradict_the_checkpoint_and_are_judged_like_any_other() {
    for came_first in [false, true] {
        let mut pair = Pair::new(Join::Beginning);
        pair.run(100, |_| true);
        // Forged: the lane goes on.
        let end = pair.lane.clone().close(0, &pair.hasher).unwrap();
        if !came_first {
            pair.hear(&end, ZERO);
        }
        for _ in 0..200 {
            let property = pair.issue();
            assert_eq!(pair.send(&property, ZERO), Verdict::InOrder);
        }
        if came_first {
            pair.hear(&end, ZERO);
        }
        let size = 100;
        let number = 100;
        let contradicted = Event::EndContradicted { size, number };
        let is_window = |event: &Event| matches!(event, Event::Window { .. });
        let mut events = pair.ledger.take_events();
        events.retain(|event| !is_window(event));
        assert_eq!(events, [contradicted]);
        let real = pair.lane.clone().close(0, &pair.hasher).unwrap();
        pair.hear(&real, SECOND);
        pair.poll(SECOND * 3);
        assert_eq!(pair.windows(), [(0, State::Proven)]);
        let again = pair.lane.resend(299, &pair.hasher).unwrap();
        assert_eq!(pair.send(&again.property, SECOND * 3), Verdict::Replayed);
    }
}

#[test]
fn what_does_not_fit_and_is_beyond_the_end_is_injected() {
    let mut pair = Pair::new(Join::Beginning);
    pair.run(10, |_| true);
    let end = pair.lane.clone().close(0, &pair.hasher).unwrap();
    pair.hear(&end, ZERO);
    let property = pair.issue();
    let arrival = Arrival {
        number: property.sequence,
        leaf: property.digest,
        fits: false,
        resent: false,
        part: None,
    };
    let verdict = pair
        .ledger
        .observe(&arrival, ZERO, &pair.limits, &pair.hasher);
    assert_eq!(verdict, Verdict::Injected);
}

#[test]
fn a_repetition_whose_first_copy_is_folded_is_not_called_the_same() {
    let mut pair = Pair::new(Join::Beginning);
    let first = pair.issue();
    assert_eq!(pair.send(&first, ZERO), Verdict::InOrder);
    let mut other = first;
    other.digest = [9; 16].into();
    assert_eq!(pair.send(&other, ZERO), Verdict::Repeated);
    // From here on leaves are held, and compared.
    for _ in 0..2 {
        let second = pair.issue();
        assert_eq!(pair.send(&second, ZERO), Verdict::InOrder);
        assert_eq!(pair.send(&second, ZERO), Verdict::Duplicate);
        let mut other = second;
        other.digest = [9; 16].into();
        assert_eq!(pair.send(&other, ZERO), Verdict::Conflict);
    }
    assert_eq!(pair.ledger.take_events(), [Event::TwoProducers]);
    pair.run(1, |_| true);
    let third = pair.lane.resend(3, &pair.hasher).unwrap().property;
    let mut other = third;
    other.digest = [8; 16].into();
    assert_eq!(pair.send(&other, ZERO), Verdict::Conflict);
    assert_eq!(pair.ledger.take_events(), [], "named once");
}

#[test]
fn two_copies_of_one_producer_are_named_by_their_checkpoints() {
    let mut pair = Pair::new(Join::Beginning);
    pair.run(10, |_| true);
    let mut copy = pair.lane.clone();
    copy.issue(*b"t", *b"of the copy", &pair.hasher);
    let theirs = copy.poll_checkpoint(SECOND, 0, &pair.hasher).unwrap();
    pair.run(5, |_| true);
    let ours = pair.checkpoint(SECOND);
    pair.hear(&ours, SECOND);
    pair.hear(&theirs, SECOND);
    let contradicts = |number| Event::CheckpointContradicts(number);
    assert_eq!(pair.ledger.take_events(), [contradicts(theirs.number)]);
    // Its next one counts fewer messages than the producer's last.
    copy.issue(*b"t", *b"of the copy", &pair.hasher);
    let theirs = copy.poll_checkpoint(SECOND * 2, 0, &pair.hasher).unwrap();
    assert!(theirs.number > ours.number && theirs.size < ours.size);
    pair.hear(&theirs, SECOND * 2);
    let events = pair.ledger.take_events();
    assert_eq!(
        events[..2],
        [contradicts(theirs.number), Event::TwoProducers]
    );
}

#[test]
fn a_detail_decides_which_of_two_copies_is_real() {
    let mut pair = Pair::with_detail(Join::Beginning, DetailLevel::Fingerprints);
    pair.limits.hold_leaves = true;
    for _ in 0..1_024 {
        let property = pair.issue();
        if property.sequence == 5 {
            let mut other = property;
            other.digest = [9; 16].into();
            pair.send(&other, ZERO);
            assert_eq!(pair.send(&property, ZERO), Verdict::Conflict);
        } else {
            pair.send(&property, ZERO);
        }
    }
    let checkpoint = pair.checkpoint(SECOND);
    pair.hear(&checkpoint, ZERO);
    let decided = Event::Decided {
        number: 5,
        second_is_real: true,
    };
    assert!(pair.ledger.take_events().contains(&decided));
    pair.poll(SECOND);
    assert_eq!(pair.ledger.requests(), []);
}

#[test]
fn events_that_nobody_takes_are_counted_beyond_the_limit() {
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
fn what_was_told_before_a_cut_and_comes_behind_it_is_no_contradiction() {
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
