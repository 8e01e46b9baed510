use std::time::Duration;

use super::*;
use crate::ledger::receiver::{Arrival, Join, LaneLedger};
use crate::{Epoch, Hasher, Lane, LaneId, LaneLimits};

fn hash(byte: u8) -> Hash {
    Hash::new(&[byte; 16]).expect("16 bytes are a hash")
}

fn limits(open_windows_max: usize) -> LedgerLimits {
    LedgerLimits {
        open_windows_max,
        ..LedgerLimits::default()
    }
}

fn reach(windows: &mut Windows, number: u64, limits: &LedgerLimits) -> Vec<Event> {
    let mut events = Events::default();
    let (gaps, altered) = (Gaps::default(), BTreeMap::new());
    windows.reach(number, limits, &gaps, &altered, &mut events);
    events.take()
}

fn claim(number: u32, first: u64, size: u64) -> Claim {
    Claim {
        number,
        first,
        size,
        window_root: hash(1),
        lane_root: hash(2),
        end: EpochEnd::Open,
    }
}

/// A ledger that has heard a lane up to `windows` windows and 100 messages more, without the
/// checkpoints of these windows. One leaf of each of `forged` is another.
fn heard(windows: u64, unheard: &[u64], forged: &[u64]) -> (Lane, LaneLedger) {
    heard_late(windows, unheard, forged, None)
}

/// As [`heard`]; this number comes last.
fn heard_late(
    windows: u64,
    unheard: &[u64],
    forged: &[u64],
    late: Option<u64>,
) -> (Lane, LaneLedger) {
    let (hasher, limits) = (Hasher::xxh3(), LedgerLimits::default());
    let id = LaneId::new(1).expect("1 is a lane");
    let mut lane = Lane::new(id, Epoch(0), LaneLimits::default(), Duration::ZERO);
    let mut ledger = LaneLedger::new(Join::Beginning);
    let (mut now, mut last) = (Duration::ZERO, None);
    for number in 0..windows * WINDOW + 100 {
        let leaf = lane.issue(*b"t", *b"p", &hasher).digest;
        let (index, is_first) = (number / WINDOW, number % WINDOW == 0);
        let arrival = Arrival {
            number,
            leaf: if is_first && forged.contains(&index) {
                hash(9)
            } else {
                leaf
            },
            fits: true,
            resent: false,
            part: None,
        };
        if late == Some(number) {
            last = Some(arrival);
        } else {
            ledger.observe(&arrival, now, &limits, &hasher);
        }
        if number + 1 == windows * WINDOW + 100 {
            now = Duration::from_secs(1);
        }
        if let Some(checkpoint) = lane.poll_checkpoint(now, 0, &hasher)
            && !unheard.contains(&index)
        {
            ledger.checkpoint(&checkpoint, now, &limits, &hasher);
        }
    }
    if let Some(arrival) = last {
        ledger.observe(&arrival, now, &limits, &hasher);
    }
    (lane, ledger)
}

fn groups_of(lane: &Lane, window: u64) -> Answer {
    let request = Request::Groups {
        window,
        size: SLOTS,
    };
    let answer = lane.answer(&request, &Hasher::xxh3());
    answer.expect("the lane holds it")
}

#[test]
fn the_root_of_the_lane_proves_a_window_behind_others_and_leaves_claims_as_they_are() {
    let (_, ledger) = heard(2, &[1], &[]);
    let windows = &ledger.windows;
    assert_eq!(windows.trunk_end, 2);
    let [last] = &windows.open[..] else {
        panic!("{:?}", windows.open);
    };
    assert_eq!(
        (last.index, last.claim.map(|(size, _)| size)),
        (2, Some(100))
    );
    assert_eq!(ledger.requests(), []);
}

#[test]
fn a_root_that_a_checkpoint_gave_stands_for_a_window_with_a_forged_leaf() {
    // Window 1 is whole only when the newest checkpoint is of window 3.
    let (_, ledger) = heard_late(3, &[1], &[2], Some(WINDOW + 5));
    assert_eq!(ledger.windows.trunk_end, 3);
    let is_of_2 = |request: &Request| matches!(request, Request::Groups { window: 2, .. });
    let asked = ledger.requests();
    assert!(asked.len() == 1 && asked.iter().all(is_of_2), "{asked:?}");
}

#[test]
fn a_window_that_makes_room_is_faulty_if_that_is_known_and_else_unproven() {
    let claimed = Some((SLOTS, hash(1)));
    for (claim, differs, is_lost, expected) in [
        (None, false, false, State::Unproven),
        (None, true, true, State::Unproven),
        (claimed, false, false, State::Unproven),
        (claimed, true, false, State::Faulty),
        (claimed, false, true, State::Faulty),
    ] {
        let mut windows = Windows::new(Some(0));
        reach(&mut windows, 0, &limits(2));
        windows.open[0].claim = claim;
        windows.open[0].doubt.differs = differs;
        let (mut gaps, mut events) = (Gaps::default(), Events::default());
        gaps.open(3..4, Duration::ZERO, is_lost);
        windows.end_oldest(&gaps, &BTreeMap::new(), &mut events);
        let events = events.take();
        let [Event::Window { state, .. }] = &events[..] else {
            panic!("{events:?}");
        };
        assert_eq!(*state, expected, "{claim:?} {differs} {is_lost}");
    }
}

#[test]
fn the_trunk_ends_with_a_window_that_it_did_not_pass() {
    for (trunk_end, stays) in [(0, false), (1, true)] {
        let mut windows = Windows::new(Some(0));
        reach(&mut windows, 0, &limits(2));
        windows.trunk_end = trunk_end;
        let (gaps, mut events) = (Gaps::default(), Events::default());
        windows.end_oldest(&gaps, &BTreeMap::new(), &mut events);
        assert_eq!(windows.trunk.is_some(), stays, "{trunk_end}");
    }
}

#[test]
fn an_answer_about_a_window_without_a_checkpoint_must_give_the_root_of_the_lane() {
    let hasher = Hasher::xxh3();
    let (lane, mut ledger) = heard(2, &[1], &[1]);
    let asked = ledger.requests();
    assert_eq!(asked.len(), 1, "{asked:?}");
    let real = groups_of(&lane, 1);
    let Answer::Groups { mut hashes, .. } = real.clone() else {
        panic!("{real:?}");
    };
    hashes[3] = hash(8);
    let wrong = Answer::Groups {
        window: 1,
        size: SLOTS,
        hashes,
    };
    assert_eq!(ledger.answer(&wrong, &hasher), Err(Refused::Unproven(1)));
    assert_eq!(ledger.requests(), asked, "it is asked again");
    assert_eq!(ledger.answer(&real, &hasher), Ok(()));
    assert!(matches!(
        ledger.requests()[..],
        [Request::Leaves {
            window: 1,
            group: 0,
            ..
        }]
    ));
    assert_eq!(ledger.answer(&real, &hasher), Err(Refused::NotAsked(1)));
}

#[test]
fn answers_about_two_windows_are_judged_together() {
    let hasher = Hasher::xxh3();
    let (lane, mut ledger) = heard(3, &[1, 2], &[1, 2]);
    assert_eq!(ledger.requests().len(), 2);
    let first = groups_of(&lane, 1);
    assert_eq!(ledger.answer(&first, &hasher), Ok(()));
    assert_eq!(ledger.answer(&first, &hasher), Err(Refused::NotAsked(1)));
    assert_eq!(ledger.answer(&groups_of(&lane, 2), &hasher), Ok(()));
    let leaves = ledger.requests();
    let is_leaves = |request: &Request| matches!(request, Request::Leaves { group: 0, .. });
    assert!(
        leaves.len() == 2 && leaves.iter().all(is_leaves),
        "{leaves:?}"
    );
}

#[test]
fn the_memory_of_windows_is_that_of_their_parts() {
    let mut windows = Windows::new(Some(0));
    reach(&mut windows, WINDOW, &limits(2));
    windows.trunk_end = 1;
    windows.trunk = HashList::of([hash(1)].iter());
    windows.hold_leaves = true;
    for number in [0, 1, 5] {
        windows.put(number, hash(1), true, &Hasher::xxh3());
    }
    windows.contest(0, hash(2), &limits(2));
    windows.cut = Some(Box::new(claim(0, 0, 1)));
    let window = &windows.open[0];
    let (slots, doubt) = (window.slots.memory_bytes(), window.doubt.memory_bytes());
    let parts = [slots, doubt, 16, size_of::<Claim>()];
    assert!(parts.iter().all(|bytes| *bytes > 1), "{parts:?}");
    let open = windows.open.capacity() * size_of::<Window>();
    assert_eq!(windows.memory_bytes(), open + parts.iter().sum::<usize>());
}

#[test]
fn windows_that_were_never_open_end_unproven() {
    let limits = limits(2);
    let mut windows = Windows::new(Some(0));
    assert_eq!(reach(&mut windows, 0, &limits), []);
    assert!(windows.trunk.is_some());
    let events = reach(&mut windows, 9 * WINDOW, &limits);
    let skipped = Event::Window {
        numbers: WINDOW..8 * WINDOW,
        state: State::Unproven,
        account: Account::default(),
    };
    assert_eq!(events.first(), Some(&skipped), "{events:?}");
    let open: Vec<u64> = windows.open.iter().map(|window| window.index).collect();
    assert_eq!((open, windows.reached), (vec![8, 9], 10));
    assert_eq!(windows.trunk, None);
    // Nothing was open: the trunk has all windows before those that are skipped.
    let mut windows = Windows::new(Some(0));
    windows.trunk_end = 1;
    windows.reached = 1;
    windows.trunk = HashList::of([hash(1)].iter());
    assert_eq!(reach(&mut windows, 9 * WINDOW, &limits), [skipped]);
    assert_eq!(windows.trunk, None);
}

#[test]
fn windows_that_follow_one_another_are_all_open() {
    let limits = limits(2);
    let mut windows = Windows::new(Some(0));
    assert_eq!(reach(&mut windows, WINDOW, &limits), []);
    assert_eq!((windows.open.len(), windows.reached), (2, 2));
    assert!(windows.trunk.is_some());
}

#[test]
fn a_leaf_that_is_due_is_folded_but_the_last_of_its_window() {
    let hasher = Hasher::xxh3();
    let fresh = || {
        let mut windows = Windows::new(Some(0));
        reach(&mut windows, 0, &limits(2));
        windows
    };
    let mut windows = fresh();
    for number in 0..WINDOW - 1 {
        assert!(windows.fold_due(number, &hash(1), &hasher), "{number}");
    }
    assert!(!windows.fold_due(WINDOW - 1, &hash(1), &hasher));
    assert_eq!(windows.open[0].slots.run_end(), SLOTS - 1);
    assert!(
        !fresh().fold_due(WINDOW, &hash(1), &hasher),
        "another window"
    );
    let mut claimed = fresh();
    claimed.open[0].claim = Some((1, hash(1)));
    assert!(!claimed.fold_due(0, &hash(1), &hasher));
    let mut holding = fresh();
    holding.hold_leaves = true;
    assert!(!holding.fold_due(0, &hash(1), &hasher));
}

#[test]
fn no_more_second_copies_are_remembered_than_may() {
    let mut windows = Windows::new(Some(0));
    let limits = LedgerLimits {
        suspects_max: 1,
        ..LedgerLimits::default()
    };
    reach(&mut windows, 0, &limits);
    for slot in [3, 5] {
        windows.contest(slot, hash(1), &limits);
    }
    assert_eq!(windows.open[0].doubt.seconds, [(3, hash(1))]);
}

#[test]
fn a_claim_of_no_message_or_before_the_start_is_not_used() {
    for (first, size, start, expected) in [
        (WINDOW, WINDOW + 1, WINDOW, true),
        (WINDOW, WINDOW, WINDOW, false),
        (0, 7, WINDOW, false),
    ] {
        let mut windows = Windows::new(Some(start));
        reach(&mut windows, start, &limits(2));
        assert_eq!(windows.claim(&claim(0, first, size), start), expected);
        assert_eq!(windows.newest.is_some(), expected);
    }
}

#[test]
fn the_claim_of_the_most_messages_counts_and_of_one_size_that_with_a_number() {
    for (numbered, cut, is_cut) in [
        (None, Some(5), true),
        (Some(5), None, false),
        (Some(5), Some(4), false),
        (Some(5), Some(5), false),
        (Some(5), Some(6), true),
    ] {
        let mut windows = Windows::new(Some(0));
        windows.newest = numbered.map(|size| claim(3, 0, size));
        let cut = cut.map(|size| Claim {
            end: EpochEnd::Cut,
            ..claim(0, 0, size)
        });
        windows.cut = cut.map(Box::new);
        let expected = if is_cut { cut } else { windows.newest };
        assert_eq!(windows.largest(), expected, "{numbered:?} {cut:?}");
    }
}

#[test]
fn only_a_checkpoint_of_more_messages_ends_what_is_asked_of_a_window() {
    for (size, differs) in [(5, true), (6, false)] {
        let mut windows = Windows::new(Some(0));
        reach(&mut windows, 0, &limits(2));
        windows.claim(&claim(0, 0, 5), 0);
        windows.open[0].doubt.differs = true;
        windows.claim(&claim(1, 0, size), 0);
        assert_eq!(windows.open[0].doubt.differs, differs, "{size}");
    }
}

#[test]
fn a_window_that_was_reported_closes_when_the_trunk_has_passed_it() {
    let hasher = Hasher::xxh3();
    for (trunk_end, open) in [(2, 0), (1, 0), (0, 1)] {
        let mut windows = Windows::new(Some(0));
        reach(&mut windows, 0, &limits(2));
        windows.trunk_end = trunk_end;
        windows.trunk = HashList::of(vec![hash(1); trunk_end.count_ones() as usize].iter());
        let account = Account {
            issued: WINDOW,
            ..Account::default()
        };
        windows.open[0].doubt.told = Some((State::Proven, account));
        let (gaps, altered) = (Gaps::default(), BTreeMap::new());
        windows.review(false, &gaps, &altered, &hasher, &mut Events::default());
        assert_eq!(windows.open.len(), open, "{trunk_end}");
    }
}

#[test]
fn what_is_asked_of_a_part_is_asked_of_the_whole_window_once_a_later_one_is_told() {
    let (hasher, limits) = (Hasher::xxh3(), LedgerLimits::default());
    let id = LaneId::new(1).expect("1 is a lane");
    let mut lane = Lane::new(id, Epoch(0), LaneLimits::default(), Duration::ZERO);
    let mut ledger = LaneLedger::new(Join::Beginning);
    let (mut now, mut asked) = (Duration::ZERO, Vec::new());
    for number in 0..WINDOW + 100 {
        let leaf = lane.issue(*b"t", *b"p", &hasher).digest;
        let arrival = Arrival {
            number,
            leaf: if number == 3 { hash(9) } else { leaf },
            fits: true,
            resent: false,
            part: None,
        };
        ledger.observe(&arrival, now, &limits, &hasher);
        let is_told = [99, WINDOW + 99].contains(&number);
        now += Duration::from_secs(u64::from(is_told));
        let checkpoint = lane.poll_checkpoint(now, 0, &hasher);
        if let Some(checkpoint) = checkpoint.filter(|_| is_told) {
            ledger.checkpoint(&checkpoint, now, &limits, &hasher);
            asked.push(ledger.requests());
        }
    }
    let groups = |size| vec![Request::Groups { window: 0, size }];
    assert_eq!(asked, [groups(100), groups(SLOTS)]);
}
