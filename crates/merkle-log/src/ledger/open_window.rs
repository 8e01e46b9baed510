//! One window while it is open: what its root is worth, which of its leaves are forged, what its
//! messages came to.
//!
//! **Invariant.** What is in the slots and what is in the gaps are counted apart, so that the law
//! of the account can fail.

use std::collections::BTreeMap;
use std::ops::Range;

use super::descent::Refused;
use super::doubt::Doubt;
use super::gaps::Gaps;
use super::limits::WINDOW;
use super::prefix::Sum;
use super::verdict::{Account, Event, Events, State};
use super::window::{GROUP, Node, Peaks, SLOTS, Slots, slot};
use super::windows::Claim;
use crate::{Detail, Digest, EpochEnd, Hash};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) index: u64,
    pub(super) slots: Slots,
    /// How many leaves the producer vouches for, and their root.
    pub(super) claim: Option<(u16, Hash)>,
    pub(super) doubt: Doubt,
}

/// What a checkpoint's detail shows of a window.
#[derive(Debug, Default)]
struct Compared {
    /// Not the producer's. Their slots are empty.
    forged: Vec<Range<u64>>,
    /// Of each range one is not.
    suspect: Vec<Range<u64>>,
}

impl Window {
    /// Returns what its checkpoint's detail shows to be forged.
    pub(super) fn review(
        &mut self,
        newest: Option<&Claim>,
        gaps: &Gaps,
        altered: &BTreeMap<u64, u32>,
        digest: &impl Digest,
        events: &mut Events,
    ) -> Vec<Range<u64>> {
        if self.is_done() {
            return Vec::new();
        }
        let passed = newest.is_some_and(|newest| newest.first / WINDOW > self.index);
        match self.claim {
            Some((size, root)) if !passed || size == SLOTS => {
                if self.slots.run_end() < size {
                    if !self.is_decided(size, gaps) {
                        return Vec::new();
                    }
                    let told = self.compare_detail(digest, events);
                    if !told.suspect.is_empty() && !self.doubt.differs {
                        self.begin_descent(told.suspect, events);
                    }
                    if told.forged.is_empty() {
                        self.report(State::Faulty, size, gaps, altered, events);
                    }
                    return told.forged;
                }
                let root_of = |slots: &Slots| {
                    let peaks = slots.peaks_below(size, digest)?;
                    Some((peaks.root(digest)?, peaks))
                };
                let mut own = root_of(&self.slots);
                let mut suspect = Vec::new();
                if own.as_ref().is_some_and(|(own, _)| *own != root) && !self.doubt.differs {
                    let told = self.compare_detail(digest, events);
                    if !told.forged.is_empty() {
                        return told.forged;
                    }
                    suspect = told.suspect;
                    own = root_of(&self.slots);
                }
                match own {
                    Some((own, peaks)) if own == root => {
                        self.prove(size, peaks, events);
                        let over = newest.is_some_and(|newest| newest.end > EpochEnd::Open);
                        let faulty = self
                            .doubt
                            .told
                            .is_some_and(|(state, _)| state == State::Faulty);
                        if size == SLOTS || over || faulty {
                            self.report(State::Proven, size, gaps, altered, events);
                        }
                    }
                    Some(_) if !self.doubt.differs => {
                        if suspect.is_empty() {
                            suspect.push(self.numbers(size));
                        }
                        self.begin_descent(suspect, events);
                    }
                    _ => {}
                }
            }
            // A later checkpoint covers it, and neither its own nor the lane's root proves it.
            _ if passed && (self.slots.run_end() == SLOTS || self.is_decided(SLOTS, gaps)) => {
                self.report(State::Unproven, SLOTS, gaps, altered, events);
            }
            _ => {}
        }
        Vec::new()
    }

    /// The root is not the producer's: which leaf is not is to be asked for. In each of these
    /// ranges one is, as far as is known.
    pub(super) fn begin_descent(&mut self, suspect: Vec<Range<u64>>, events: &mut Events) {
        self.unfold();
        self.doubt.differs = true;
        events.extend(suspect.into_iter().map(Event::RootDiffers));
    }

    /// What is to be compared is not to be folded.
    fn unfold(&mut self) {
        if self.slots.prefix().len() > 0 {
            self.doubt.sums = self.slots.unfold();
        }
    }

    /// Empties the slots of what is not in the detail. Fingerprints show of a folded group only
    /// that one of its leaves differs, so its slots stay as they are.
    fn compare_detail(&mut self, digest: &impl Digest, events: &mut Events) -> Compared {
        let mut compared = Compared::default();
        if self.doubt.detail == Detail::None {
            return compared;
        }
        self.unfold();
        let detail = std::mem::take(&mut self.doubt.detail);
        let is_real = |slot: u16, leaf: &Hash| match &detail {
            Detail::None => true,
            Detail::Fingerprints(prints) => {
                let print = prints.get(usize::from(slot));
                print.is_none_or(|print| *print == leaf.fingerprint())
            }
            Detail::Leaves(leaves) => leaves
                .get(usize::from(slot))
                .is_none_or(|real| real == leaf),
        };
        let sums = &self.doubt.sums;
        let is_forged = |node: &Node| match &detail {
            _ if node.level == 0 => !is_real(node.start, &node.hash),
            Detail::None => false,
            Detail::Fingerprints(prints) => {
                sum_over(sums, node).is_some_and(|sum| sum.differs(prints))
            }
            Detail::Leaves(leaves) => {
                let leaves = leaves.get(usize::from(node.start)..usize::from(node.end()));
                leaves.is_some_and(|leaves| fold(leaves, digest) != Some(node.hash))
            }
        };
        let nodes = self.slots.nodes_from(0);
        let forged: Vec<Node> = nodes.filter(|node| is_forged(node)).collect();
        for node in forged {
            let real =
                |second: &(u16, Hash)| second.0 == node.start && is_real(second.0, &second.1);
            if let Some(at) = self.doubt.seconds.iter().position(real) {
                self.take_second(at, events);
            } else if let Detail::Leaves(leaves) = &detail {
                compared
                    .forged
                    .push(self.evict_odd(node, 0, leaves, digest));
            } else if node.level == 0 {
                compared.forged.push(self.evict(node));
            } else {
                compared.suspect.push(self.numbers_of(&node));
            }
        }
        self.doubt.detail = detail;
        compared
    }

    /// Puts a second copy, which is real, in the place of the first.
    fn take_second(&mut self, at: usize, events: &mut Events) {
        let (slot, real) = self.doubt.seconds.remove(at);
        self.slots.replace(slot, real);
        events.push(Event::Decided {
            number: self.index * WINDOW + u64::from(slot),
            second_is_real: true,
        });
    }

    /// What its root has proven needs no leaves of its own any more.
    fn prove(&mut self, size: u16, peaks: Peaks, events: &mut Events) {
        self.slots.collapse(peaks);
        let Some(doubt) = self.doubt.get_mut() else {
            return;
        };
        doubt.forget_descent();
        doubt.detail = Detail::None;
        let first = self.index * WINDOW;
        doubt.seconds.retain(|(slot, _)| {
            if *slot < size {
                events.push(Event::Decided {
                    number: first + u64::from(*slot),
                    second_is_real: false,
                });
            }
            *slot >= size
        });
    }

    /// Opens the groups that differ. A subtree that a batch declared and that spans groups is
    /// compared as a whole; returned is what is forged among those.
    pub(super) fn compare_groups(
        &mut self,
        hashes: Vec<Hash>,
        digest: &impl Digest,
    ) -> Vec<Range<u64>> {
        let size = self.claim.map_or(SLOTS, |(size, _)| size);
        let wide = |node: &Node| node.end() - node.start > GROUP && node.end() <= size;
        let wide: Vec<Node> = self.slots.nodes_from(0).filter(wide).collect();
        let mut forged = Vec::new();
        let mut compared = 0_u32;
        for node in wide {
            let groups = usize::from(node.start / GROUP)..usize::from(node.end() / GROUP);
            groups.clone().for_each(|group| compared |= 1 << group);
            let theirs = hashes.get(groups);
            if theirs.and_then(|theirs| fold(theirs, digest)) != Some(node.hash) {
                forged.push(self.evict(node));
            }
        }
        self.doubt.open_groups = 0;
        for (group, (from, theirs)) in (0..size)
            .step_by(usize::from(GROUP))
            .zip(&hashes)
            .enumerate()
        {
            let own = self.slots.hash_over(from, (from + GROUP).min(size), digest);
            self.doubt.open_groups |= u32::from(own != Some(*theirs)) << group;
        }
        self.doubt.open_groups &= !compared;
        self.doubt.groups = hashes;
        if self.doubt.open_groups == 0 {
            self.forget_descent();
        }
        forged
    }

    /// Empties the slots of a node, and returns their numbers.
    fn evict(&mut self, node: Node) -> Range<u64> {
        self.slots.take(node.start);
        self.doubt.forge(node.start..node.end());
        self.numbers_of(&node)
    }

    fn numbers_of(&self, node: &Node) -> Range<u64> {
        let first = self.index * WINDOW;
        first + u64::from(node.start)..first + u64::from(node.end())
    }

    /// Empties the one slot of a folded node whose leaf is not the producer's, and returns its
    /// number; all of them if it cannot be told. `real` are the producer's leaves from slot `first`
    /// on.
    fn evict_odd(
        &mut self,
        node: Node,
        first: u16,
        real: &[Hash],
        digest: &impl Digest,
    ) -> Range<u64> {
        let odd = sum_over(&self.doubt.sums, &node).and_then(|sum| {
            let real = real.get(usize::from(sum.start.checked_sub(first)?)..)?;
            sum.odd_one(&node, real, digest)
        });
        let Some(odd) = odd else {
            return self.evict(node);
        };
        self.slots.take(node.start);
        for (start, hash) in (first..).zip(real) {
            if (node.start..node.end()).contains(&start) && start != odd {
                let (level, hash) = (0, *hash);
                self.slots.put(Node { start, level, hash });
            }
        }
        self.doubt.forged.push(odd);
        let number = self.index * WINDOW + u64::from(odd);
        number..number + 1
    }

    pub(super) fn compare_leaves(
        &mut self,
        group: u8,
        leaves: &[Hash],
        digest: &impl Digest,
        events: &mut Events,
    ) -> Result<Vec<Range<u64>>, Refused> {
        let asked = group < 32 && self.doubt.open_groups & (1 << group) != 0;
        let Some(theirs) = self.doubt.groups.get(usize::from(group)).filter(|_| asked) else {
            return Err(Refused::NotAsked(self.index));
        };
        let size = self.claim.map_or(SLOTS, |(size, _)| size);
        let from = u16::from(group) * GROUP;
        let expected = usize::from((size - from).min(GROUP));
        if leaves.len() != expected || fold(leaves, digest) != Some(*theirs) {
            return Err(Refused::Unproven(self.index));
        }
        let mut forged = Vec::new();
        let end = from + u16::try_from(expected).expect("at most 32");
        let declared = |node: &Node| node.level > 0 && node.end() <= end;
        let declared: Vec<Node> = self
            .slots
            .nodes_from(from)
            .take_while(|node| node.start < end)
            .filter(declared)
            .collect();
        for node in declared {
            let range = usize::from(node.start - from)..usize::from(node.end() - from);
            if fold(&leaves[range], digest) != Some(node.hash) {
                forged.push(self.evict_odd(node, from, leaves, digest));
            }
        }
        for (slot, real) in (from..).zip(leaves) {
            let Some(own) = self.slots.leaf(slot).filter(|own| own != real) else {
                continue;
            };
            debug_assert_ne!(own, *real);
            let second = |second: &(u16, Hash)| *second == (slot, *real);
            if let Some(at) = self.doubt.seconds.iter().position(second) {
                self.take_second(at, events);
            } else {
                let number = self.index * WINDOW + u64::from(slot);
                forged.push(self.evict(Node::leaf(number, own)));
            }
        }
        self.doubt.open_groups &= !(1 << group);
        if self.doubt.open_groups == 0 {
            self.forget_descent();
        }
        Ok(forged)
    }

    pub(super) fn report(
        &mut self,
        state: State,
        size: u16,
        gaps: &Gaps,
        altered: &BTreeMap<u64, u32>,
        events: &mut Events,
    ) {
        let mut account = self.account(size, gaps, altered);
        if state == State::Unproven {
            account.open = account.issued.saturating_sub(account.accounted());
        }
        if self.doubt.told == Some((state, account)) {
            return;
        }
        self.doubt.told = Some((state, account));
        events.push(Event::Window {
            numbers: self.numbers(size),
            state,
            account,
        });
    }

    /// What is in the slots and what is in the gaps are counted apart, so that the law can fail.
    fn account(&self, size: u16, gaps: &Gaps, altered: &BTreeMap<u64, u32>) -> Account {
        let numbers = self.numbers(size);
        let below = |slots: &[u16]| {
            let count = slots.iter().filter(|slot| **slot < size).count();
            u64::try_from(count).expect("a window has 1,024 slots")
        };
        let dropped = below(&self.doubt.dropped);
        let forged = below(&self.doubt.forged);
        let missing = altered.range(numbers.clone()).filter(|(number, _)| {
            gaps.find(**number).is_some() && !self.doubt.forged.contains(&slot(**number))
        });
        let (altered, altered_lost) = missing.fold((0, 0), |(all, lost), (number, _)| {
            let is_lost = gaps.find(*number).is_some_and(|hole| hole.lost);
            (all + 1, lost + u64::from(is_lost))
        });
        Account {
            issued: u64::from(size),
            arrived: u64::from(self.slots.filled_below(size)) - dropped,
            dropped,
            lost: gaps.lost_in(numbers) - altered_lost - forged,
            altered,
            forged,
            open: 0,
        }
    }

    /// Every missing number was given up.
    fn is_decided(&self, size: u16, gaps: &Gaps) -> bool {
        let missing = u64::from(size - self.slots.filled_below(size));
        gaps.lost_in(self.numbers(size)) == missing
    }

    /// A checkpoint, its own or one that covers it, gives the root of all of it.
    pub(super) fn is_vouched(&self) -> bool {
        self.claim.is_some_and(|(size, _)| size == SLOTS)
    }

    pub(super) fn is_done(&self) -> bool {
        self.doubt
            .told
            .is_some_and(|(state, account)| state == State::Proven && account.issued == WINDOW)
    }

    /// Fills what the node covers. True when nothing is missing any more, which makes the window
    /// worth a review.
    #[inline]
    pub(super) fn fill(&mut self, node: Node, put: impl FnOnce(&mut Slots)) -> bool {
        let whole = self.claim.map_or(SLOTS, |(size, _)| size);
        let was_whole = self.slots.run_end() >= whole;
        put(&mut self.slots);
        if !self.doubt.forged.is_empty() {
            let filled = node.start..node.end();
            self.doubt.forged.retain(|slot| !filled.contains(slot));
        }
        !was_whole && self.slots.run_end() >= whole
    }

    pub(super) fn numbers(&self, size: u16) -> Range<u64> {
        let first = self.index * WINDOW;
        first..first + u64::from(size)
    }

    pub(super) fn forget_descent(&mut self) {
        if let Some(doubt) = self.doubt.get_mut() {
            doubt.forget_descent();
        }
    }
}

/// The sum that has all leaves of this node.
fn sum_over<'a>(sums: &'a [Sum], node: &Node) -> Option<&'a Sum> {
    sums.iter()
        .find(|sum| sum.start <= node.start && node.end() <= sum.start + sum.count)
}

/// The root over hashes of subtrees of one size.
fn fold(hashes: &[Hash], digest: &impl Digest) -> Option<Hash> {
    let mut peaks = Peaks::default();
    for hash in hashes {
        peaks.push(0, *hash, digest);
    }
    peaks.root(digest)
}

#[cfg(test)]
mod tests {
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

    /// The newest claim, of a window with this index.
    fn newest(index: u64, end: EpochEnd) -> Claim {
        Claim {
            number: 1,
            first: index * WINDOW,
            size: index * WINDOW + 1,
            window_root: hash(2),
            lane_root: hash(3),
            end,
        }
    }

    /// What a review reports.
    fn review(window: &mut Window, newest: Option<Claim>, gaps: &Gaps) -> Vec<Event> {
        let mut events = Events::default();
        let (hasher, altered) = (Hasher::xxh3(), BTreeMap::new());
        window.review(newest.as_ref(), gaps, &altered, &hasher, &mut events);
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
        for (is_lost, expected) in [(true, vec![(0..WINDOW, State::Unproven)]), (false, vec![])] {
            let mut window = filled(100);
            let newest = newest(1, EpochEnd::Open);
            let events = review(&mut window, Some(newest), &lost(100..WINDOW, is_lost));
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
        let events = review(&mut window, None, &lost(64..70, true));
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
        let events = review(&mut window, None, &Gaps::default());
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
        let forged = window.review(None, &gaps, &altered, &hasher, &mut events);
        let first = 2 * WINDOW;
        assert_eq!(forged, [first + 3..first + 4]);
        let number = first + 5;
        let decided = |second_is_real| Event::Decided {
            number,
            second_is_real,
        };
        assert_eq!(events.take(), [decided(true)]);
        assert_eq!(window.slots.leaf(5), Some(leaf(5)));
    }

    #[test]
    fn second_copies_below_a_proven_size_are_decided() {
        let mut window = held(2, (0..8).map(|slot| (slot, leaf(slot))));
        window.claim = Some((8, root(&window, 8)));
        window.doubt.seconds = vec![(3, hash(7)), (8, hash(7))];
        let events = review(&mut window, None, &Gaps::default());
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
        let newest = newest(1, EpochEnd::Open);
        let events = review(&mut window, Some(newest), &Gaps::default());
        assert_eq!(states(&events), [(0..WINDOW, State::Unproven)]);
    }
}
