//! The members of a shared group: what each saw, put together in whichever way.

#![allow(clippy::unwrap_used, reason = "a test fails by panic")]

use std::time::Duration;

use proptest::prelude::*;
use unbroken_merkle_log::ledger::{
    Arrival, Event, Join, LaneLedger, LedgerLimits, Request, State, Verdict,
};
use unbroken_merkle_log::{
    Checkpoint, CompactRange, Epoch, Hash, Hasher, Lane, LaneId, LaneLimits, Property,
};

const ZERO: Duration = Duration::ZERO;
const SECOND: Duration = Duration::from_secs(1);

/// What a lane issued: leaves, and a checkpoint for each window and for the end.
struct Issued {
    leaves: Vec<Hash>,
    checkpoints: Vec<Checkpoint>,
}

fn issue(count: u64) -> Issued {
    let hasher = Hasher::xxh3();
    let id = LaneId::new(1).unwrap();
    let mut lane = Lane::new(id, Epoch(0), LaneLimits::default(), ZERO);
    let mut issued = Issued {
        leaves: Vec::new(),
        checkpoints: Vec::new(),
    };
    for number in 0..count {
        let property: Property = lane.issue(*b"t", number.to_be_bytes(), &hasher);
        issued.leaves.push(property.digest);
    }
    while let Some(checkpoint) = lane.poll_checkpoint(SECOND, 0, &hasher) {
        issued.checkpoints.push(checkpoint);
    }
    let tail = lane.poll_checkpoint(SECOND * 2, 0, &hasher);
    issued.checkpoints.extend(tail);
    issued
}

fn arrival(number: u64, leaf: Hash, fits: bool) -> Arrival {
    Arrival {
        number,
        leaf,
        fits,
        resent: false,
        part: None,
    }
}

/// Something that one member, by its index, sees.
#[derive(Clone, Debug)]
enum Seen {
    Message(u64),
    Conflict(u64),
    Altered(u64),
    Dropped(u64),
    Batch(u64),
    Checkpoint(usize),
}

fn seen(count: u64) -> impl Strategy<Value = Seen> {
    prop_oneof![
        20 => (0..count).prop_map(Seen::Message),
        1 => (0..count).prop_map(Seen::Conflict),
        1 => (0..count).prop_map(Seen::Altered),
        2 => (0..count).prop_map(Seen::Dropped),
        2 => (0..count / 32).prop_map(Seen::Batch),
        1 => (0..8_usize).prop_map(Seen::Checkpoint),
    ]
}

fn member(issued: &Issued, seen: &[Seen]) -> LaneLedger {
    let (hasher, limits) = (Hasher::xxh3(), LedgerLimits::default());
    let mut ledger = LaneLedger::new(Join::Member);
    let leaf = |number: u64| issued.leaves[usize::try_from(number).unwrap()];
    for (at, seen) in seen.iter().enumerate() {
        let now = Duration::from_millis(u64::try_from(at).unwrap());
        match *seen {
            Seen::Message(number) => {
                ledger.observe(&arrival(number, leaf(number), true), now, &limits, &hasher);
            }
            Seen::Conflict(number) => {
                let other = Hash::new(&[7; 16]).unwrap();
                ledger.observe(&arrival(number, other, true), now, &limits, &hasher);
            }
            Seen::Altered(number) => {
                ledger.observe(&arrival(number, leaf(number), false), now, &limits, &hasher);
            }
            Seen::Dropped(number) => {
                ledger.dropped(number, &[leaf(number)], now, &limits, &hasher);
            }
            Seen::Batch(at) => {
                let mut range = CompactRange::new(at * 32);
                (at * 32..at * 32 + 32).for_each(|number| range.append(&hasher, leaf(number)));
                ledger.parents(&range, now, &limits, &hasher);
            }
            Seen::Checkpoint(at) => {
                if let Some(checkpoint) = issued.checkpoints.get(at) {
                    ledger.checkpoint(checkpoint, now, &limits, &hasher);
                }
            }
        }
    }
    ledger
}

fn merged(one: &LaneLedger, other: &LaneLedger) -> LaneLedger {
    let mut merged = one.clone();
    merged.merge(other, &LedgerLimits::default());
    merged
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn merging_does_not_depend_on_order_or_repetition(
        a in prop::collection::vec(seen(2_600), 0..400),
        b in prop::collection::vec(seen(2_600), 0..400),
        c in prop::collection::vec(seen(2_600), 0..400),
    ) {
        let issued = issue(2_600);
        let [a, b, c] = [a, b, c].map(|seen| member(&issued, &seen));
        let ab = merged(&a, &b);
        prop_assert_eq!(&ab, &merged(&b, &a));
        prop_assert_eq!(&merged(&ab, &c), &merged(&a, &merged(&b, &c)));
        prop_assert_eq!(&merged(&ab, &b), &ab);
        prop_assert_eq!(&merged(&ab, &ab), &ab);
        let hasher = Hasher::xxh3();
        let mut saved = Vec::new();
        ab.save(&hasher, &mut saved);
        prop_assert_eq!(LaneLedger::restore(&saved, &hasher), Ok(ab));
    }

    #[test]
    fn what_any_member_saw_is_seen_and_nothing_else_is(
        shares in prop::collection::vec(0..4_usize, 2_100),
    ) {
        // Member 3 is the one that is not there: its share is lost.
        let issued = issue(2_100);
        let (hasher, limits) = (Hasher::xxh3(), LedgerLimits::default());
        let mut members = [(); 3].map(|()| LaneLedger::new(Join::Member));
        for ((number, share), leaf) in (0..).zip(&shares).zip(&issued.leaves) {
            if let Some(member) = members.get_mut(*share) {
                member.observe(&arrival(number, *leaf, true), ZERO, &limits, &hasher);
            }
        }
        for (at, checkpoint) in issued.checkpoints.iter().enumerate() {
            members[at % 3].checkpoint(checkpoint, ZERO, &limits, &hasher);
        }
        let mut whole = LaneLedger::new(Join::Beginning);
        for member in &members {
            whole.absorb(member, SECOND, &limits, &hasher);
        }
        whole.poll(SECOND * 2, &limits, &hasher);
        let missing: Vec<u64> = (0..)
            .zip(&shares)
            .filter(|(_, share)| **share == 3)
            .map(|(number, _)| number)
            .collect();
        let mut lost = Vec::new();
        for event in whole.take_events() {
            if let Event::Lost { numbers, .. } = event {
                lost.extend(numbers);
            }
        }
        lost.sort_unstable();
        prop_assert_eq!(lost, missing);
    }
}

/// Two members that take turns, all of it seen.
fn two_members(count: u64) -> (Issued, [LaneLedger; 2]) {
    let issued = issue(count);
    let (hasher, limits) = (Hasher::xxh3(), LedgerLimits::default());
    let mut members = [(); 2].map(|()| LaneLedger::new(Join::Member));
    for (number, leaf) in (0..).zip(&issued.leaves) {
        let member = usize::try_from(number % 2).unwrap();
        let verdict =
            members[member].observe(&arrival(number, *leaf, true), ZERO, &limits, &hasher);
        assert!(matches!(verdict, Verdict::InOrder | Verdict::Ahead));
    }
    (issued, members)
}

fn windows(ledger: &mut LaneLedger) -> Vec<(u64, State)> {
    let events = ledger.take_events().into_iter();
    let windows = events.filter_map(|event| match event {
        Event::Window {
            numbers,
            state,
            account,
        } => {
            assert!(account.is_lawful(), "{account:?}");
            Some((numbers.start, state))
        }
        _ => None,
    });
    windows.collect()
}

#[test]
fn a_group_that_saw_everything_is_proven_and_a_lone_member_is_not() {
    let (issued, mut members) = two_members(3_072);
    let (hasher, limits) = (Hasher::xxh3(), LedgerLimits::default());
    for checkpoint in &issued.checkpoints {
        members[0].checkpoint(checkpoint, ZERO, &limits, &hasher);
    }
    members[0].poll(SECOND * 60, &limits, &hasher);
    assert_eq!(windows(&mut members[0]), []);
    let mut whole = LaneLedger::new(Join::Beginning);
    whole.absorb(&members[0], SECOND, &limits, &hasher);
    assert_eq!(windows(&mut whole), []);
    whole.absorb(&members[1], SECOND, &limits, &hasher);
    let proven = [0, 1_024, 2_048].map(|first| (first, State::Proven));
    assert_eq!(windows(&mut whole), proven);
    // A report that comes again changes nothing, and nothing is lost.
    whole.absorb(&members[0], SECOND * 2, &limits, &hasher);
    whole.poll(SECOND * 2, &limits, &hasher);
    assert_eq!(whole.take_events(), []);
    assert_eq!(whole.requests(), []);
}

#[test]
fn a_lone_member_whose_windows_run_out_calls_them_unproven() {
    let (issued, mut members) = two_members(70 * 1_024);
    let (hasher, limits) = (Hasher::xxh3(), LedgerLimits::default());
    let [member, _] = &mut members;
    assert_eq!(windows(member).len(), 6);
    let issued_more = issue(80 * 1_024);
    for checkpoint in &issued_more.checkpoints {
        member.checkpoint(checkpoint, ZERO, &limits, &hasher);
    }
    drop(issued);
    let ended = windows(member);
    assert!(!ended.is_empty());
    assert!(
        ended.iter().all(|(_, state)| *state == State::Unproven),
        "{ended:?}"
    );
}

#[test]
fn what_the_group_has_not_seen_is_asked_for_after_the_bound() {
    let issued = issue(1_500);
    let (hasher, limits) = (Hasher::xxh3(), LedgerLimits::default());
    let mut members = [(); 2].map(|()| LaneLedger::new(Join::Member));
    for (number, leaf) in (0..1_498).zip(&issued.leaves) {
        if number != 700 {
            let member = usize::from(number >= 750);
            members[member].observe(&arrival(number, *leaf, true), ZERO, &limits, &hasher);
        }
    }
    for checkpoint in &issued.checkpoints {
        members[1].checkpoint(checkpoint, ZERO, &limits, &hasher);
    }
    let mut whole = LaneLedger::new(Join::Beginning);
    for member in &members {
        whole.absorb(member, SECOND, &limits, &hasher);
    }
    whole.poll(SECOND + limits.lateness / 2, &limits, &hasher);
    assert_eq!(whole.requests(), []);
    whole.poll(SECOND * 2, &limits, &hasher);
    let missing = vec![700..701, 1_498..1_500];
    assert_eq!(whole.requests(), [Request::Numbers(missing)]);
}

#[test]
fn what_was_issued_before_the_group_was_there_is_not_lost() {
    let issued = issue(3_072);
    let (hasher, limits) = (Hasher::xxh3(), LedgerLimits::default());
    let mut member = LaneLedger::new(Join::Member);
    for (number, leaf) in (0..).zip(&issued.leaves).skip(500) {
        member.observe(&arrival(number, *leaf, true), ZERO, &limits, &hasher);
    }
    for checkpoint in &issued.checkpoints {
        member.checkpoint(checkpoint, ZERO, &limits, &hasher);
    }
    let mut whole = LaneLedger::new(Join::Late);
    whole.absorb(&member, SECOND, &limits, &hasher);
    whole.poll(SECOND * 9, &limits, &hasher);
    let proven = [1_024, 2_048].map(|first| (first, State::Proven));
    assert_eq!(windows(&mut whole), proven);
}
