//! The windows of a lane: which of them are proven, faulty or unproven, and why.
//!
//! A window is proven by its own root or by the root of the lane in any later checkpoint, so a
//! checkpoint that is lost costs nothing when all is well. To check the lane's root the ledger
//! keeps the *trunk*, the peaks over the leading windows whose roots are the producer's, and takes
//! the producer's root in the place of its own for a window that is still unresolved: it does not
//! hold up those behind it.
//!
//! **Invariants.** Open windows are ordered. Every window below `reached` that is not open is
//! proven, or was reported as it ended. What is held of a window tells which of its leaves is
//! forged: the leaves where they came out of their turn or a root of the lane has differed, else
//! what [`super::prefix`] keeps of them.
//!
//! **Absent:** the trunk of a late joiner. It proves each window by that window's own checkpoint.

use std::collections::BTreeMap;
use std::ops::Range;

use super::descent::{Answer, Refused, Request};
use super::gaps::Gaps;
use super::limits::{LedgerLimits, WINDOW, WINDOW_LOG2};
use super::open_window::Window;
use super::verdict::{Account, Event, Events, State};
use super::window::{Node, Peaks, SLOTS, root_of_groups, slot};
use crate::hash_list::HashList;
use crate::{Checkpoint, Detail, Digest, EpochEnd, Hash};

/// What a checkpoint says of its lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) number: u32,
    pub(super) first: u64,
    pub(super) size: u64,
    pub(super) window_root: Hash,
    pub(super) lane_root: Hash,
    pub(super) end: EpochEnd,
}

impl From<&Checkpoint> for Claim {
    fn from(checkpoint: &Checkpoint) -> Self {
        Self {
            number: checkpoint.number,
            first: checkpoint.first,
            size: checkpoint.size,
            window_root: checkpoint.window_root,
            lane_root: checkpoint.lane_root,
            end: checkpoint.end,
        }
    }
}

impl Claim {
    /// The one that tells more. That an epoch is closed settles how far it went; who tells that it
    /// was cut may know less than was told before, or after it on another way.
    pub(super) fn or_newer(self, other: &Self) -> Self {
        let rank = |claim: &Self| {
            let roots = (claim.lane_root, claim.window_root);
            let is_closed = claim.end == EpochEnd::Closed;
            (is_closed, claim.size, claim.number, claim.first, roots)
        };
        let end = self.end.max(other.end);
        let newer = if rank(other) > rank(&self) {
            *other
        } else {
            self
        };
        Self { end, ..newer }
    }
}

/// What became of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Claimed {
    Used,
    Unused,
    /// It gives a size of its window another root than one before it. It is not used.
    Contradicts,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Windows {
    pub(super) open: Vec<Window>,
    /// The index of the first window of which nothing was heard.
    pub(super) reached: u64,
    /// Over the windows below `trunk_end`; `None` when some are unknown.
    pub(super) trunk: Option<HashList>,
    pub(super) trunk_end: u64,
    /// The newest claim.
    pub(super) newest: Option<Claim>,
    /// Proven windows stay open, for a merge to find: those of a group's member.
    pub(super) keep_proven: bool,
    /// Leaves are held until a root proves them. For good, once a root has differed or a
    /// checkpoint has told leaves, which are to be compared.
    pub(super) hold_leaves: bool,
    /// Numbers found forged by a descent, until the lane takes them.
    pub(super) found: Vec<Range<u64>>,
}

impl Windows {
    pub(super) fn new(start: Option<u64>) -> Self {
        let reached = start.unwrap_or(0) / WINDOW;
        Self {
            open: Vec::new(),
            reached,
            trunk: (start == Some(0)).then(HashList::default),
            trunk_end: reached,
            newest: None,
            keep_proven: false,
            hold_leaves: false,
            found: Vec::new(),
        }
    }

    /// Opens the windows up to the one of this number; the oldest make room.
    pub(super) fn reach(
        &mut self,
        number: u64,
        limits: &LedgerLimits,
        gaps: &Gaps,
        altered: &BTreeMap<u64, u32>,
        events: &mut Events,
    ) {
        let index = number / WINDOW;
        if index < self.reached {
            return;
        }
        let kept = u64::try_from(limits.open_windows_max).unwrap_or(u64::MAX);
        let from = (index + 1).saturating_sub(kept).max(self.reached);
        if from > self.reached {
            events.push(Event::Window {
                numbers: self.reached * WINDOW..from * WINDOW,
                state: State::Unproven,
                account: Account::default(),
            });
        }
        for index in from..=index {
            if self.open.len() >= limits.open_windows_max.max(1) {
                self.end_oldest(gaps, altered, events);
            }
            self.open.reserve_exact(1);
            self.open.push(Window {
                index,
                ..Window::default()
            });
        }
        if from > self.reached {
            self.trunk = None;
        }
        self.reached = index + 1;
    }

    /// Folds the leaf that is due, where that is all there is to do: its window is the last one,
    /// has nothing but folded leaves and no claim, and does not end with it. False, and nothing
    /// has changed, where it is not so.
    #[inline]
    pub(super) fn fold_due(&mut self, number: u64, leaf: &Hash, digest: &impl Digest) -> bool {
        let (hold, slot) = (self.hold_leaves, slot(number));
        self.open.last_mut().is_some_and(|window| {
            let is_plain = window.index == number / WINDOW && window.claim.is_none();
            is_plain && !hold && slot + 1 < SLOTS && window.slots.fold_due(slot, leaf, digest)
        })
    }

    /// Fills a slot with a leaf. True when that makes its window worth a review.
    #[inline]
    pub(super) fn put(
        &mut self,
        number: u64,
        leaf: Hash,
        hold: bool,
        digest: &impl Digest,
    ) -> bool {
        let hold = hold || self.hold_leaves;
        let node = Node::leaf(number, leaf);
        self.find(number / WINDOW).is_some_and(|window| {
            // What is declared is not folded, so that the message can take its place.
            let hold = hold || !window.doubt.dropped.is_empty();
            window.fill(node, |slots| {
                if hold {
                    slots.put(node);
                } else {
                    slots.fold(node, digest);
                }
            })
        })
    }

    /// Fills the slots of a subtree. True when that makes its window worth a review.
    pub(super) fn put_subtree(&mut self, number: u64, node: Node) -> bool {
        self.find(number / WINDOW)
            .is_some_and(|window| window.fill(node, |slots| slots.put(node)))
    }

    /// The hash over these numbers of one window, while it is held.
    pub(super) fn hash_over(&mut self, numbers: &Range<u64>, digest: &impl Digest) -> Option<Hash> {
        let window = self.find(numbers.start / WINDOW)?;
        let from = slot(numbers.start);
        let length = u16::try_from(numbers.end - numbers.start).ok()?;
        window.slots.hash_over(from, from + length, digest)
    }

    pub(super) fn leaf(&mut self, number: u64) -> Option<Hash> {
        self.find(number / WINDOW)?.slots.leaf(slot(number))
    }

    /// Takes what a checkpoint told of the leaves of its window, for when they are to be compared.
    pub(super) fn take_detail(&mut self, index: u64, detail: &Detail) {
        if *detail == Detail::None {
            return;
        }
        self.hold_leaves = true;
        if let Some(window) = self.find(index)
            && !window.is_done()
        {
            window.doubt.detail.clone_from(detail);
        }
    }

    /// Remembers a second copy.
    pub(super) fn contest(&mut self, number: u64, leaf: Hash, limits: &LedgerLimits) {
        if let Some(window) = self.find(number / WINDOW)
            && window.doubt.seconds.len() < limits.suspects_max
        {
            window.doubt.seconds.push((slot(number), leaf));
        }
    }

    /// Whether a checkpoint told of more messages than this.
    pub(super) fn is_told_beyond(&self, size: u64) -> bool {
        self.newest.is_some_and(|newest| newest.size > size)
    }

    /// The epoch is open, although a checkpoint closed it.
    pub(super) fn reopen(&mut self) {
        if let Some(newest) = &mut self.newest {
            newest.end = EpochEnd::Open;
        }
    }

    /// Whether a checkpoint cannot be of the producer that made the newest one: sizes never fall,
    /// and one number is one checkpoint.
    pub(super) fn is_contradicted_by(&self, claim: &Claim) -> bool {
        // The number of one that tells of a cut says nothing.
        let newest = self.newest.filter(|newest| newest.end != EpochEnd::Cut);
        newest.is_some_and(|newest| {
            let says = |claim: &Claim| (claim.size, claim.window_root, claim.lane_root);
            let is_same = claim.number == newest.number;
            let is_later = claim.number > newest.number;
            is_same && says(claim) != says(&newest) || is_later && claim.size < newest.size
        })
    }

    /// Takes what a checkpoint says. Its window must have been reached.
    pub(super) fn claim(&mut self, claim: &Claim, start: u64) -> Claimed {
        let in_window = claim.size.saturating_sub(claim.first).min(WINDOW);
        let Ok(size) = u16::try_from(in_window) else {
            return Claimed::Unused;
        };
        if size == 0 || claim.first < start {
            return Claimed::Unused;
        }
        if let Some(window) = self.find(claim.first / WINDOW) {
            match window.claim {
                Some((known, root)) if known == size && root != claim.window_root => {
                    return Claimed::Contradicts;
                }
                Some((known, _)) if known >= size => {}
                _ => {
                    window.claim = Some((size, claim.window_root));
                    window.forget_descent();
                }
            }
        }
        self.newest = Some(match self.newest {
            Some(newest) => newest.or_newer(claim),
            None => *claim,
        });
        Claimed::Used
    }

    /// Settles what can be settled.
    pub(super) fn review(
        &mut self,
        gaps: &Gaps,
        altered: &BTreeMap<u64, u32>,
        digest: &impl Digest,
        events: &mut Events,
    ) {
        self.prove_by_lane(digest, events);
        let newest = self.newest;
        for window in &mut self.open {
            let found = window.review(newest.as_ref(), gaps, altered, digest, events);
            self.found.extend(found);
            self.hold_leaves |= window.doubt.differs;
        }
        while let Some(mut trunk) = self.trunk_peaks()
            && let Ok(at) = self
                .open
                .binary_search_by_key(&self.trunk_end, |window| window.index)
            && let Some((SLOTS, root)) = self.open[at].claim
        {
            trunk.push(WINDOW_LOG2, root, digest);
            self.trunk = HashList::of(trunk.peaks.iter().map(|(_, hash)| hash));
            self.trunk_end += 1;
        }
        if self.keep_proven {
            return;
        }
        let passed = self.trunk.is_some().then_some(self.trunk_end);
        self.open
            .retain(|window| !(window.is_done() && passed.is_none_or(|end| window.index < end)));
        self.open.shrink_to(1);
    }

    pub(super) fn requests(&self) -> impl Iterator<Item = Request> {
        self.open
            .iter()
            .filter(|window| window.doubt.differs)
            .flat_map(|window| {
                let index = window.index;
                let size = window.claim.map_or(SLOTS, |(size, _)| size);
                let groups = window.doubt.groups.is_empty().then_some(Request::Groups {
                    window: index,
                    size,
                });
                let leaves = (0..32)
                    .filter(|group| window.doubt.open_groups & (1 << group) != 0)
                    .map(move |group| Request::Leaves {
                        window: index,
                        group,
                        size,
                    });
                groups.into_iter().chain(leaves)
            })
    }

    /// Takes an answer; what turns out to be forged is in `found`.
    pub(super) fn answer(
        &mut self,
        answer: &Answer,
        digest: &impl Digest,
        events: &mut Events,
    ) -> Result<(), Refused> {
        match answer {
            Answer::NotHeld(_) => Ok(()),
            Answer::Groups {
                window: index,
                size,
                hashes,
            } => {
                let root = root_of_groups(hashes, *size, digest);
                let window = self
                    .find(*index)
                    .filter(|window| window.doubt.differs && window.doubt.groups.is_empty())
                    .ok_or(Refused::NotAsked(*index))?;
                let root = root.ok_or(Refused::Unproven(*index))?;
                if window.claim == Some((*size, root)) {
                    let found = window.compare_groups(hashes.clone(), digest);
                    self.found.extend(found);
                } else if window.is_vouched() || *size != SLOTS {
                    return Err(Refused::Unproven(*index));
                } else {
                    // Only the root of the lane can tell, perhaps with the answers still to come.
                    window.doubt.groups.clone_from(hashes);
                    self.prove_by_lane(digest, events);
                    if self.find(*index).is_some_and(|window| {
                        window.doubt.groups.is_empty() && !window.is_vouched()
                    }) {
                        return Err(Refused::Unproven(*index));
                    }
                }
                Ok(())
            }
            Answer::Leaves {
                window: index,
                size: _,
                group,
                leaves,
            } => {
                let window = self.find(*index).ok_or(Refused::NotAsked(*index))?;
                let found = window.compare_leaves(*group, leaves, digest, events)?;
                self.found.extend(found);
                Ok(())
            }
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let windows = self
            .open
            .iter()
            .map(|window| window.slots.memory_bytes() + window.doubt.memory_bytes());
        let trunk = self.trunk.as_ref().map_or(0, HashList::memory_bytes);
        self.open.capacity() * size_of::<Window>() + windows.sum::<usize>() + trunk
    }

    #[inline]
    pub(super) fn find(&mut self, index: u64) -> Option<&mut Window> {
        if self.open.last()?.index == index {
            return self.open.last_mut();
        }
        let at = self
            .open
            .binary_search_by_key(&index, |window| window.index);
        self.open.get_mut(at.ok()?)
    }

    /// Where the newest lane root holds over the roots we have, they are the producer's. Where it
    /// does not, the windows no checkpoint vouches for are to be compared.
    fn prove_by_lane(&mut self, digest: &impl Digest, events: &mut Events) {
        let Some((newest, roots)) = self.roots_below_newest(digest) else {
            return;
        };
        let Some(mut peaks) = self.trunk_peaks().filter(|_| !roots.is_empty()) else {
            return;
        };
        for root in &roots {
            peaks.push(WINDOW_LOG2, *root, digest);
        }
        let proven = peaks.root_with(Some(newest.window_root), digest) == Some(newest.lane_root);
        let end = newest.first / WINDOW;
        let doubtful = self
            .open
            .iter_mut()
            .filter(|window| (self.trunk_end..end).contains(&window.index) && !window.is_vouched());
        let doubtful: Vec<&mut Window> = doubtful.collect();
        let all_offered = doubtful
            .iter()
            .all(|window| !window.doubt.groups.is_empty());
        for window in doubtful {
            if proven {
                let at = usize::try_from(window.index - self.trunk_end);
                window.claim = at.ok().and_then(|at| Some((SLOTS, *roots.get(at)?)));
                if !window.doubt.groups.is_empty() {
                    let offered = std::mem::take(&mut window.doubt.groups);
                    self.found.extend(window.compare_groups(offered, digest));
                }
            } else if !window.doubt.differs {
                let suspect = vec![window.numbers(SLOTS)];
                window.begin_descent(suspect, events);
            } else if all_offered {
                // One of the answers was wrong: they are asked for again.
                window.doubt.groups = Vec::new();
            }
        }
    }

    /// The trunk as subtrees: one for each bit of the count of its windows, the largest first.
    fn trunk_peaks(&self) -> Option<Peaks> {
        let hashes = self.trunk.as_ref()?.iter();
        let bits = (0..64_u8).rev();
        let levels = bits.filter(|bit| self.trunk_end >> bit & 1 == 1);
        let peaks = levels.map(|bit| bit + WINDOW_LOG2).zip(hashes).collect();
        Some(Peaks { peaks })
    }

    /// The roots of the windows between the trunk and the newest claim: the producer's where it
    /// is known, else what an answer offers, else our own. `None` when one of them is not whole.
    fn roots_below_newest(&self, digest: &impl Digest) -> Option<(Claim, Vec<Hash>)> {
        self.trunk.as_ref()?;
        let newest = self.newest?;
        let from = self
            .open
            .partition_point(|window| window.index < self.trunk_end);
        let mut roots = Vec::new();
        for index in self.trunk_end..newest.first / WINDOW {
            let window = self.open.get(from + roots.len())?;
            if window.index != index {
                return None;
            }
            roots.push(match window.claim {
                Some((SLOTS, root)) => root,
                _ if window.doubt.groups.is_empty() => window.slots.hash_over(0, SLOTS, digest)?,
                _ => root_of_groups(&window.doubt.groups, SLOTS, digest)?,
            });
        }
        Some((newest, roots))
    }

    pub(super) fn end_oldest(
        &mut self,
        gaps: &Gaps,
        altered: &BTreeMap<u64, u32>,
        events: &mut Events,
    ) {
        let mut window = self.open.remove(0);
        if self.trunk_end <= window.index {
            self.trunk = None;
        }
        if !window.is_done() {
            let state = match window.claim {
                Some((size, _))
                    if window.doubt.differs || gaps.lost_in(window.numbers(size)) > 0 =>
                {
                    State::Faulty
                }
                _ => State::Unproven,
            };
            let size = window.claim.map_or(SLOTS, |(size, _)| size);
            window.report(state, size, gaps, altered, events);
        }
    }
}

#[cfg(test)]
mod tests;
