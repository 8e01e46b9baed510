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
use crate::{Detail, Digest, Hash};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) index: u64,
    pub(super) slots: Slots,
    /// How many leaves the producer vouches for, and their root.
    pub(super) claim: Option<(u16, Hash)>,
    pub(super) doubt: Doubt,
}

/// How far what was told of an epoch has come.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stage {
    /// A checkpoint of a later window has come.
    pub(super) is_passed: bool,
    /// No more messages of the epoch come.
    pub(super) is_over: bool,
    /// The receiver gets a share of the messages: alone it calls nothing faulty.
    pub(super) is_share: bool,
    /// Every leaf is held until it is proven for good.
    pub(super) holds_all: bool,
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
        stage: Stage,
        gaps: &Gaps,
        altered: &BTreeMap<u64, u32>,
        digest: &impl Digest,
        events: &mut Events,
    ) -> Vec<Range<u64>> {
        if self.is_done() {
            return Vec::new();
        }
        match self.claim {
            Some((size, root)) if !stage.is_passed || size == SLOTS => {
                // More has come than it covers, and may be folded.
                if self.slots.run_end() > size {
                    return Vec::new();
                }
                if self.slots.run_end() < size {
                    if !self.is_decided(size, gaps) {
                        return Vec::new();
                    }
                    let told = self.compare_detail(digest, events);
                    if !told.suspect.is_empty() && !self.doubt.differs {
                        self.begin_descent(told.suspect, events);
                    }
                    if told.forged.is_empty() && !stage.is_share {
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
                        // Without a key the root of a part may be forged, and a larger one decide
                        // otherwise.
                        let is_final = size == SLOTS || digest.algorithm().is_keyed();
                        let folded = (is_final || !stage.holds_all).then_some(peaks);
                        self.prove(size, folded, events);
                        let faulty = self
                            .doubt
                            .told
                            .is_some_and(|(state, _)| state == State::Faulty);
                        if size == SLOTS || stage.is_over || faulty {
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
            _ if stage.is_passed && self.slots.run_end() == SLOTS => {
                self.report(State::Unproven, SLOTS, gaps, altered, events);
            }
            _ if stage.is_passed && !stage.is_share && self.is_decided(SLOTS, gaps) => {
                self.report(State::Faulty, SLOTS, gaps, altered, events);
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
                compared.forged.push(self.evict_first(at, node, events));
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

    /// The second copy is real. The first was handed on, and the second was not, so the slot waits
    /// for it to come again.
    fn evict_first(&mut self, at: usize, first: Node, events: &mut Events) -> Range<u64> {
        self.doubt.seconds.remove(at);
        let numbers = self.evict(first);
        events.push(Event::Decided {
            number: numbers.start,
            second_is_real: true,
        });
        numbers
    }

    /// Its root holds. Once that is for good, it needs no leaves of its own any more, but what they
    /// are `folded` to.
    fn prove(&mut self, size: u16, folded: Option<Peaks>, events: &mut Events) {
        if let Some(peaks) = folded {
            self.slots.collapse(peaks);
        }
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
            let node = Node::leaf(u64::from(slot), own);
            forged.push(match self.doubt.seconds.iter().position(second) {
                Some(at) => self.evict_first(at, node, events),
                None => self.evict(node),
            });
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

    /// Fills what the node covers. True when nothing is missing any more of what was told, or of
    /// the whole window, which makes it worth a review.
    #[inline]
    pub(super) fn fill(&mut self, node: Node, put: impl FnOnce(&mut Slots)) -> bool {
        let whole = self.claim.map_or(SLOTS, |(size, _)| size);
        let before = self.slots.run_end();
        put(&mut self.slots);
        if !self.doubt.forged.is_empty() {
            let filled = node.start..node.end();
            self.doubt.forged.retain(|slot| !filled.contains(slot));
        }
        let after = self.slots.run_end();
        before < whole && after >= whole || after == SLOTS
    }

    pub(super) fn numbers(&self, size: u16) -> Range<u64> {
        let first = self.index * WINDOW;
        first..first + u64::from(size)
    }

    /// A checkpoint of a later window has come: only a root of all of this one counts.
    pub(super) fn forget_part(&mut self) {
        if self.claim.take_if(|(size, _)| *size < SLOTS).is_some() {
            self.forget_descent();
        }
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
mod tests;
