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

use super::claim::Claim;
use super::descent::{Answer, Refused, Request};
use super::gaps::Gaps;
use super::limits::{LedgerLimits, WINDOW, WINDOW_LOG2};
use super::open_window::{Stage, Window};
use super::verdict::{Account, Event, Events, State};
use super::window::{Node, Peaks, SLOTS, root_of_groups, slot};
use crate::hash_list::HashList;
use crate::{Detail, Digest, EpochEnd, Hash};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Windows {
    pub(super) open: Vec<Window>,
    /// The index of the first window of which nothing was heard.
    pub(super) reached: u64,
    /// Over the windows below `trunk_end`; `None` when some are unknown.
    pub(super) trunk: Option<HashList>,
    pub(super) trunk_end: u64,
    /// The newest claim that has a number.
    pub(super) newest: Option<Claim>,
    /// The newest claim that the epoch was cut. Its number says nothing. In a box, since few are.
    pub(super) cut: Option<Box<Claim>>,
    /// Proven windows stay open, for a merge to find: those of a group's member.
    pub(super) keep_proven: bool,
    /// Leaves are held until a root proves them. For good, once a root has differed or a
    /// checkpoint has told leaves, which are to be compared.
    pub(super) hold_leaves: bool,
    /// All leaves are held, as the limits say. Not saved.
    pub(super) holds_all: bool,
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
            cut: None,
            keep_proven: false,
            hold_leaves: false,
            holds_all: false,
            found: Vec::new(),
        }
    }

    /// Opens the windows up to the one of this number; the oldest make room.
    #[inline]
    pub(super) fn reach(
        &mut self,
        number: u64,
        limits: &LedgerLimits,
        gaps: &Gaps,
        altered: &BTreeMap<u64, u32>,
        events: &mut Events,
    ) {
        let index = number / WINDOW;
        if index >= self.reached {
            self.open_up_to(index, limits, gaps, altered, events);
        }
    }

    /// Opens the windows up to this one, which was not reached yet.
    fn open_up_to(
        &mut self,
        index: u64,
        limits: &LedgerLimits,
        gaps: &Gaps,
        altered: &BTreeMap<u64, u32>,
        events: &mut Events,
    ) {
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
        self.holds_all = hold;
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
        let second = (slot(number), leaf);
        if let Some(window) = self.find(number / WINDOW)
            && window.doubt.seconds.len() < limits.suspects_max
            && !window.doubt.seconds.contains(&second)
        {
            window.doubt.seconds.push(second);
        }
    }

    /// The claim of the most messages.
    pub(super) fn largest(&self) -> Option<Claim> {
        let newest = self.newest;
        let cut = self.cut.as_deref();
        let larger = cut.filter(|cut| newest.is_none_or(|newest| newest.size < cut.size));
        larger.copied().or(newest)
    }

    /// How many messages checkpoints told of.
    pub(super) fn told(&self) -> u64 {
        self.largest().map_or(0, |claim| claim.size)
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
        self.newest.is_some_and(|newest| {
            let says = |claim: &Claim| (claim.size, claim.window_root, claim.lane_root);
            let is_same = claim.number == newest.number;
            let is_later = claim.number > newest.number;
            is_same && says(claim) != says(&newest) || is_later && claim.size < newest.size
        })
    }

    /// Whether a checkpoint gives the size of its window that was told another root.
    pub(super) fn is_of_another_root(&mut self, claim: &Claim) -> bool {
        let known = self.find(claim.first / WINDOW);
        let known = known.and_then(|window| window.claim);
        known.is_some_and(|(size, root)| size == claim.in_window() && root != claim.window_root)
    }

    /// Takes what a checkpoint says, and answers whether it says anything. Its window must have
    /// been reached, and its root must be no other than the one that was told.
    pub(super) fn claim(&mut self, claim: &Claim, start: u64) -> bool {
        let size = claim.in_window();
        if size == 0 || claim.first < start {
            return false;
        }
        if let Some(window) = self.find(claim.first / WINDOW)
            && window.claim.is_none_or(|(known, _)| known < size)
        {
            window.claim = Some((size, claim.window_root));
            window.forget_descent();
        }
        if claim.end == EpochEnd::Cut {
            let cut = Claim::newer(self.cut.as_deref(), Some(claim));
            self.cut = cut.map(Box::new);
        } else {
            self.newest = Claim::newer(self.newest.as_ref(), Some(claim));
        }
        true
    }

    /// Settles what can be settled. `is_over`: no more messages of the epoch come.
    pub(super) fn review(
        &mut self,
        is_over: bool,
        gaps: &Gaps,
        altered: &BTreeMap<u64, u32>,
        digest: &impl Digest,
        events: &mut Events,
    ) {
        let told_to = self.largest().map_or(0, |newest| newest.first / WINDOW);
        for window in self.open.iter_mut().filter(|window| window.index < told_to) {
            window.forget_part();
        }
        self.prove_by_lane(digest, events);
        for window in &mut self.open {
            let stage = Stage {
                is_passed: told_to > window.index,
                is_over,
                is_share: self.keep_proven,
                holds_all: self.holds_all,
            };
            let found = window.review(stage, gaps, altered, digest, events);
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
        let cut = self.cut.as_ref().map_or(0, |_| size_of::<Claim>());
        self.open.capacity() * size_of::<Window>() + windows.sum::<usize>() + trunk + cut
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
        let newest = self.largest()?;
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
