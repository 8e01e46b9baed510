use std::time::Duration;

use super::*;
use crate::Hasher;

fn hash(byte: u8) -> Hash {
    Hash::new(&[byte; 16]).expect("16 bytes are a hash")
}

/// A window with so many leaves from its start on.
fn filled(count: u64) -> Window {
    let mut window = Window::default();
    for number in 0..count {
        let leaf = Node::leaf(number, hash(1));
        window.slots.fold(leaf, &Hasher::xxh3());
    }
    window
}

fn root(window: &Window, size: u16) -> Hash {
    let root = window.slots.hash_over(0, size, &Hasher::xxh3());
    root.expect("the slots are filled")
}

const PASSED: Stage = Stage {
    is_passed: true,
    is_over: false,
    is_share: false,
    holds_all: false,
};

/// What a review reports.
fn review(window: &mut Window, stage: Stage, gaps: &Gaps) -> Vec<Event> {
    let mut events = Events::default();
    let (hasher, altered) = (Hasher::xxh3(), BTreeMap::new());
    window.review(stage, gaps, &altered, &hasher, &mut events);
    events.take()
}

fn states(events: &[Event]) -> Vec<(Range<u64>, State)> {
    let states = events.iter().map(|event| match event {
        Event::Window { numbers, state, .. } => (numbers.clone(), *state),
        event => panic!("{event:?}"),
    });
    states.collect()
}

/// A leaf for each slot, all different.
fn leaf(slot: u16) -> Hash {
    Hasher::xxh3().leaf(&[&slot.to_be_bytes()])
}

/// A window with these leaves, each held by itself.
fn held(index: u64, leaves: impl IntoIterator<Item = (u16, Hash)>) -> Window {
    let mut window = Window {
        index,
        ..Window::default()
    };
    for (start, hash) in leaves {
        let level = 0;
        window.slots.put(Node { start, level, hash });
    }
    window
}

fn lost(numbers: Range<u64>, is_lost: bool) -> Gaps {
    let mut gaps = Gaps::default();
    gaps.open(numbers, Duration::ZERO, is_lost);
    gaps
}

#[test]
fn a_window_that_was_passed_is_reported_when_what_is_missing_is_lost() {
    for (is_lost, expected) in [(true, vec![(0..WINDOW, State::Faulty)]), (false, vec![])] {
        let mut window = filled(100);
        let events = review(&mut window, PASSED, &lost(100..WINDOW, is_lost));
        assert_eq!(states(&events), expected, "{is_lost}");
    }
}

#[test]
fn fingerprints_that_differ_begin_a_descent_where_messages_are_lost_too() {
    let mut window = filled(64);
    window.claim = Some((70, hash(2)));
    let mut prints = vec![hash(1).fingerprint(); 70];
    prints[3] = hash(7).fingerprint();
    window.doubt.detail = Detail::Fingerprints(prints);
    let events = review(&mut window, Stage::default(), &lost(64..70, true));
    assert_eq!(
        events.first(),
        Some(&Event::RootDiffers(0..32)),
        "{events:?}"
    );
    assert_eq!(states(&events[1..]), [(0..70, State::Faulty)]);
    assert!(window.doubt.differs);
}

#[test]
fn a_window_whose_root_is_right_is_proven_whatever_its_detail_says() {
    let mut window = held(0, (0..SLOTS).map(|slot| (slot, leaf(slot))));
    window.claim = Some((SLOTS, root(&window, SLOTS)));
    let mut leaves: Vec<Hash> = (0..SLOTS).map(leaf).collect();
    leaves[3] = hash(7);
    window.doubt.detail = Detail::Leaves(leaves);
    let events = review(&mut window, Stage::default(), &Gaps::default());
    assert_eq!(states(&events), [(0..WINDOW, State::Proven)]);
}

#[test]
fn a_second_copy_is_taken_for_its_own_slot_only() {
    let real: Vec<Hash> = (0..8).map(leaf).collect();
    let ours = (0..8).map(|slot| {
        (
            slot,
            if slot == 3 || slot == 5 {
                hash(7)
            } else {
                leaf(slot)
            },
        )
    });
    let mut window = held(2, ours);
    let whole = held(2, (0..8).map(|slot| (slot, leaf(slot))));
    window.claim = Some((8, root(&whole, 8)));
    window.doubt.detail = Detail::Leaves(real);
    window.doubt.seconds = vec![(5, leaf(5))];
    let (mut events, altered) = (Events::default(), BTreeMap::new());
    let (hasher, gaps) = (Hasher::xxh3(), Gaps::default());
    let forged = window.review(Stage::default(), &gaps, &altered, &hasher, &mut events);
    let first = 2 * WINDOW;
    assert_eq!(forged, [first + 3..first + 4, first + 5..first + 6]);
    let number = first + 5;
    let decided = |second_is_real| Event::Decided {
        number,
        second_is_real,
    };
    assert_eq!(events.take(), [decided(true)]);
    assert_eq!(window.slots.leaf(5), None, "it is to come again");
}

#[test]
fn second_copies_below_a_proven_size_are_decided() {
    let mut window = held(2, (0..8).map(|slot| (slot, leaf(slot))));
    window.claim = Some((8, root(&window, 8)));
    window.doubt.seconds = vec![(3, hash(7)), (8, hash(7))];
    let events = review(&mut window, Stage::default(), &Gaps::default());
    let number = 2 * WINDOW + 3;
    let second_is_real = false;
    let decided = Event::Decided {
        number,
        second_is_real,
    };
    assert_eq!(events, [decided]);
    assert_eq!(window.doubt.seconds, [(8, hash(7))]);
}

#[test]
fn a_subtree_over_several_groups_is_compared_as_a_whole() {
    let hasher = Hasher::xxh3();
    let groups: Vec<Hash> = (0..4).map(leaf).collect();
    let mut window = Window::default();
    for (start, hash) in [(0, hasher.node(&groups[0], &groups[1])), (64, hash(7))] {
        let level = 6;
        window.slots.put(Node { start, level, hash });
    }
    window.claim = Some((128, hash(2)));
    window.doubt.differs = true;
    assert_eq!(window.compare_groups(groups, &hasher), [64..128]);
    assert_eq!(window.doubt.open_groups, 0);
    assert!(!window.doubt.differs, "there is nothing to ask for");
    assert_eq!(window.slots.run_end(), 64);
}

#[test]
fn leaves_are_compared_of_groups_that_were_asked_for() {
    let hasher = Hasher::xxh3();
    let real: Vec<Hash> = (0..40).map(leaf).collect();
    let ours = (0..40).map(|slot| (slot, if slot == 35 { hash(7) } else { leaf(slot) }));
    // So many that the index, divided by the messages of a window, is not 0.
    let index = 2 * WINDOW;
    let first = index * WINDOW;
    let mut window = held(index, ours);
    window.claim = Some((40, hash(2)));
    window.doubt.differs = true;
    let groups = real.chunks(32).map(|group| fold(group, &hasher));
    window.doubt.groups = groups
        .map(|group| group.expect("it is not empty"))
        .collect();
    window.doubt.open_groups = 0b10;
    let mut events = Events::default();
    for (group, leaves, expected) in [
        (0, &real[..32], Err(Refused::NotAsked(index))),
        (32, &real[..32], Err(Refused::NotAsked(index))),
        (1, &real[..8], Err(Refused::Unproven(index))),
        (1, &real[32..39], Err(Refused::Unproven(index))),
        (1, &real[32..], Ok(vec![first + 35..first + 36])),
    ] {
        let compared = window.compare_leaves(group, leaves, &hasher, &mut events);
        assert_eq!(compared, expected, "{group}");
    }
    assert!(!window.doubt.differs && events.take().is_empty());
}

#[test]
fn the_account_of_a_window_counts_each_of_its_numbers_once() {
    let leaves = (0..71).filter(|slot| ![3, 5].contains(slot));
    let mut window = held(0, leaves.map(|slot| (slot, leaf(slot))));
    window.doubt.dropped = vec![0, 70];
    window.doubt.forged = vec![3, 70];
    let mut gaps = lost(3..4, true);
    gaps.open(5..6, Duration::ZERO, true);
    // 3 is forged, 5 is missing, and 6 came in the end.
    let altered = BTreeMap::from([(3, 1), (5, 1), (6, 1)]);
    let account = Account {
        issued: 70,
        arrived: 67,
        dropped: 1,
        altered: 1,
        forged: 1,
        ..Account::default()
    };
    assert_eq!(window.account(70, &gaps, &altered), account);
}

#[test]
fn a_window_that_was_claimed_in_part_and_passed_is_not_proven() {
    let mut window = filled(WINDOW);
    window.claim = Some((100, root(&window, 64)));
    let events = review(&mut window, PASSED, &Gaps::default());
    assert_eq!(states(&events), [(0..WINDOW, State::Unproven)]);
}

#[test]
fn a_part_of_a_window_is_proven_when_no_more_comes() {
    for (is_over, come, expected) in [
        (true, 100, vec![(0..100, State::Proven)]),
        (false, 100, vec![]),
        // Whether its leaves are folded makes no difference.
        (true, 101, vec![]),
    ] {
        let mut window = held(0, (0..come).map(|slot| (slot, leaf(slot))));
        window.claim = Some((100, root(&window, 100)));
        let stage = Stage {
            is_over,
            ..Stage::default()
        };
        let events = review(&mut window, stage, &Gaps::default());
        assert_eq!(states(&events), expected, "{is_over} {come}");
    }
}

#[test]
fn a_window_is_worth_a_review_when_what_was_told_of_it_is_whole() {
    let last = u64::from(SLOTS) - 1;
    for (claimed, worth) in [(None, vec![last]), (Some(3), vec![2, last])] {
        let mut window = Window {
            claim: claimed.map(|size| (size, hash(2))),
            ..Window::default()
        };
        let is_worth = |number: &u64| {
            let node = Node::leaf(*number, hash(1));
            window.fill(node, |slots| slots.put(node))
        };
        let reviewed: Vec<u64> = (0..WINDOW).filter(is_worth).collect();
        assert_eq!(reviewed, worth, "{claimed:?}");
    }
}

#[test]
fn leaves_that_are_held_are_folded_once_a_root_proves_them_for_good() {
    let keyed = Hasher::blake3(&crate::Key([7; 32]));
    for (hasher, size, is_folded) in [
        (Hasher::xxh3(), 100, false),
        (Hasher::xxh3(), SLOTS, true),
        (keyed.clone(), 100, true),
        (keyed, SLOTS, true),
    ] {
        let mut window = held(0, (0..size).map(|slot| (slot, leaf(slot))));
        let root = window.slots.hash_over(0, size, &hasher);
        window.claim = root.map(|root| (size, root));
        let stage = Stage {
            holds_all: true,
            ..Stage::default()
        };
        let (gaps, altered, mut events) = (Gaps::default(), BTreeMap::new(), Events::default());
        window.review(stage, &gaps, &altered, &hasher, &mut events);
        let algorithm = hasher.algorithm();
        assert_eq!(
            window.slots.leaf(3).is_none(),
            is_folded,
            "{algorithm:?} {size}"
        );
    }
}
