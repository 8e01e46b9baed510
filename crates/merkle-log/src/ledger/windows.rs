//! The windows of a lane: which of them are proven, faulty or unproven, and why.
//!
//! A window is proven by its own root or by the root of the lane in any later checkpoint, so a
//! checkpoint that is lost costs nothing when all is well. To check the lane's root the ledger
//! keeps the *trunk*, the peaks over the leading windows whose roots are the producer's, and takes
//! the producer's root in the place of its own for a window that is still unresolved: it does not
//! hold up those behind it.
//!
//! **Invariants.** Open windows are ordered. Every window below `reached` that is not open is
//! proven, or was reported as it ended. A leaf is held on its own until a root proves it, so that
//! a forged one can be told from the rest.
//!
//! **Absent:** the trunk of a late joiner. It proves each window by that window's own checkpoint.

use std::collections::BTreeMap;
use std::ops::Range;

use super::descent::{Answer, Refused, Request};
use super::gaps::Gaps;
use super::limits::{LedgerLimits, WINDOW, WINDOW_LOG2};
use super::verdict::{Account, Event, Events, State};
use super::window::{GROUP, Node, Peaks, SLOTS, Slots, root_of_groups, slot};
use crate::{Checkpoint, Detail, Digest, Hash};

/// What a checkpoint says of its lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) number: u32,
    pub(super) first: u64,
    pub(super) size: u64,
    pub(super) window_root: Hash,
    pub(super) lane_root: Hash,
    pub(super) closed: bool,
}

impl From<&Checkpoint> for Claim {
    fn from(checkpoint: &Checkpoint) -> Self {
        Self {
            number: checkpoint.number,
            first: checkpoint.first,
            size: checkpoint.size,
            window_root: checkpoint.window_root,
            lane_root: checkpoint.lane_root,
            closed: checkpoint.is_last,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Windows {
    pub(super) open: Vec<Window>,
    /// The index of the first window of which nothing was heard.
    pub(super) reached: u64,
    /// Over the windows below `trunk_end`; `None` when some are unknown.
    pub(super) trunk: Option<Peaks>,
    pub(super) trunk_end: u64,
    /// The newest claim.
    pub(super) newest: Option<Claim>,
    /// Proven windows stay open, for a merge to find: those of a group's member.
    pub(super) keep_proven: bool,
    /// Numbers found forged by a descent, until the lane takes them.
    pub(super) found: Vec<Range<u64>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) index: u64,
    pub(super) slots: Slots,
    pub(super) dropped: Vec<u16>,
    pub(super) forged: Vec<u16>,
    /// Second copies that fit and differ.
    pub(super) seconds: Vec<(u16, Hash)>,
    /// How many leaves the producer vouches for, and their root.
    pub(super) claim: Option<(u16, Hash)>,
    /// What a checkpoint told of its leaves one by one.
    pub(super) detail: Detail,
    pub(super) told: Option<(State, Account)>,
    /// Whole, and its root is not the producer's.
    pub(super) differs: bool,
    pub(super) groups: Vec<Hash>,
    /// One bit for each group whose leaves are to be compared.
    pub(super) open_groups: u32,
}

impl Windows {
    pub(super) fn new(start: Option<u64>) -> Self {
        let reached = start.unwrap_or(0) / WINDOW;
        Self {
            open: Vec::new(),
            reached,
            trunk: (start == Some(0)).then(Peaks::default),
            trunk_end: reached,
            newest: None,
            keep_proven: false,
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

    /// Fills a slot. True when that makes its window worth a review.
    #[inline]
    pub(super) fn put(&mut self, number: u64, node: Node) -> bool {
        let Some(window) = self.find(number / WINDOW) else {
            return false;
        };
        window.slots.put(node);
        if !window.forged.is_empty() {
            let filled = node.start..node.end();
            window.forged.retain(|slot| !filled.contains(slot));
        }
        let whole = window.claim.map_or(SLOTS, |(size, _)| size);
        window.slots.run_end() >= whole
    }

    /// The hash over these numbers of one window, while it is held.
    pub(super) fn hash_over(&mut self, numbers: &Range<u64>, digest: &impl Digest) -> Option<Hash> {
        let window = self.find(numbers.start / WINDOW)?;
        let from = slot(numbers.start);
        let length = u16::try_from(numbers.end - numbers.start).ok()?;
        window.slots.hash_over(from, from + length, digest)
    }

    pub(super) fn take(&mut self, number: u64) {
        if let Some(window) = self.find(number / WINDOW) {
            window.slots.take(slot(number));
        }
    }

    pub(super) fn leaf(&mut self, number: u64) -> Option<Hash> {
        self.find(number / WINDOW)?.slots.leaf(slot(number))
    }

    /// Remembers a second copy.
    pub(super) fn contest(&mut self, number: u64, leaf: Hash, limits: &LedgerLimits) {
        if let Some(window) = self.find(number / WINDOW)
            && window.seconds.len() < limits.suspects_max
        {
            window.seconds.push((slot(number), leaf));
        }
    }

    /// Notes that a number was declared dropped. Its window must be open to count it.
    pub(super) fn declare(&mut self, number: u64) {
        if let Some(window) = self.find(number / WINDOW) {
            window.dropped.push(slot(number));
        }
    }

    /// Takes what a checkpoint says. Its window must have been reached. False when it is not used.
    pub(super) fn claim(&mut self, claim: &Claim, start: u64, events: &mut Events) -> bool {
        let in_window = claim.size.saturating_sub(claim.first).min(WINDOW);
        let Ok(size) = u16::try_from(in_window) else {
            return false;
        };
        if size == 0 || claim.first < start {
            return false;
        }
        if let Some(window) = self.find(claim.first / WINDOW) {
            match window.claim {
                Some((known, root)) if known == size && root != claim.window_root => {
                    events.push(Event::CheckpointContradicts(claim.number));
                    return false;
                }
                Some((known, _)) if known >= size => {}
                _ => {
                    window.claim = Some((size, claim.window_root));
                    window.forget_descent();
                }
            }
        }
        if self
            .newest
            .is_none_or(|newest| newest.size < claim.size || claim.closed)
        {
            self.newest = Some(*claim);
        }
        true
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
        }
        while let Some(trunk) = &mut self.trunk
            && let Ok(at) = self
                .open
                .binary_search_by_key(&self.trunk_end, |window| window.index)
            && let Some((SLOTS, root)) = self.open[at].claim
        {
            trunk.push(WINDOW_LOG2, root, digest);
            self.trunk_end += 1;
        }
        if self.keep_proven {
            return;
        }
        let passed = self.trunk.is_some().then_some(self.trunk_end);
        self.open
            .retain(|window| !(window.is_done() && passed.is_none_or(|end| window.index < end)));
    }

    pub(super) fn requests(&self) -> impl Iterator<Item = Request> {
        self.open
            .iter()
            .filter(|window| window.differs)
            .flat_map(|window| {
                let index = window.index;
                let size = window.claim.map_or(SLOTS, |(size, _)| size);
                let groups = window.groups.is_empty().then_some(Request::Groups {
                    window: index,
                    size,
                });
                let leaves = (0..32)
                    .filter(|group| window.open_groups & (1 << group) != 0)
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
                    .filter(|window| window.differs && window.groups.is_empty())
                    .ok_or(Refused::NotAsked(*index))?;
                let root = root.ok_or(Refused::Unproven(*index))?;
                if window.claim == Some((*size, root)) {
                    let found = window.compare_groups(hashes.clone(), digest);
                    self.found.extend(found);
                } else if window.is_vouched() || *size != SLOTS {
                    return Err(Refused::Unproven(*index));
                } else {
                    // Only the root of the lane can tell, perhaps with the answers still to come.
                    window.groups.clone_from(hashes);
                    self.prove_by_lane(digest, events);
                    if self
                        .find(*index)
                        .is_some_and(|window| window.groups.is_empty() && !window.is_vouched())
                    {
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
        let windows = self.open.iter().map(|window| {
            window.slots.memory_bytes()
                + window.dropped.capacity() * 2
                + window.seconds.capacity() * 36
                + window.groups.capacity() * 33
                + window.detail_bytes()
        });
        let trunk = self.trunk.as_ref();
        self.open.capacity() * size_of::<Window>()
            + windows.sum::<usize>()
            + trunk.map_or(0, |trunk| trunk.peaks.capacity() * 34)
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
        let Some(mut peaks) = self.trunk.clone().filter(|_| !roots.is_empty()) else {
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
        let all_offered = doubtful.iter().all(|window| !window.groups.is_empty());
        for window in doubtful {
            if proven {
                let at = usize::try_from(window.index - self.trunk_end);
                window.claim = at.ok().and_then(|at| Some((SLOTS, *roots.get(at)?)));
                let offered = std::mem::take(&mut window.groups);
                if !offered.is_empty() {
                    self.found.extend(window.compare_groups(offered, digest));
                }
            } else if !window.differs {
                window.differs = true;
                events.push(Event::RootDiffers(window.numbers(SLOTS)));
            } else if all_offered {
                // One of the answers was wrong: they are asked for again.
                window.groups = Vec::new();
            }
        }
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
                _ if window.groups.is_empty() => window.slots.hash_over(0, SLOTS, digest)?,
                _ => root_of_groups(&window.groups, SLOTS, digest)?,
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
                Some((size, _)) if window.differs || gaps.lost_in(window.numbers(size)) > 0 => {
                    State::Faulty
                }
                _ => State::Unproven,
            };
            let size = window.claim.map_or(SLOTS, |(size, _)| size);
            window.report(state, size, gaps, altered, events);
        }
    }
}

impl Window {
    /// Returns what its checkpoint's detail shows to be forged.
    fn review(
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
                    let forged = self.compare_detail(digest, events);
                    if forged.is_empty() {
                        self.report(State::Faulty, size, gaps, altered, events);
                    }
                    return forged;
                }
                let root_of = |slots: &Slots| {
                    let peaks = slots.peaks_below(size, digest)?;
                    Some((peaks.root(digest)?, peaks))
                };
                let mut own = root_of(&self.slots);
                if own.as_ref().is_some_and(|(own, _)| *own != root) && !self.differs {
                    let forged = self.compare_detail(digest, events);
                    if !forged.is_empty() {
                        return forged;
                    }
                    own = root_of(&self.slots);
                }
                match own {
                    Some((own, peaks)) if own == root => {
                        self.prove(size, peaks, events);
                        let closed = newest.is_some_and(|newest| newest.closed);
                        let faulty = self.told.is_some_and(|(state, _)| state == State::Faulty);
                        if size == SLOTS || closed || faulty {
                            self.report(State::Proven, size, gaps, altered, events);
                        }
                    }
                    Some(_) if !self.differs => {
                        self.differs = true;
                        events.push(Event::RootDiffers(self.numbers(size)));
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

    /// Takes what a checkpoint told of its leaves, for when they are to be compared.
    pub(super) fn take_detail(&mut self, detail: &Detail) {
        if *detail != Detail::None && !self.is_done() {
            self.detail.clone_from(detail);
        }
    }

    /// Empties the slots of what is not in the detail, and returns their numbers.
    fn compare_detail(&mut self, digest: &impl Digest, events: &mut Events) -> Vec<Range<u64>> {
        if self.detail == Detail::None {
            return Vec::new();
        }
        let detail = std::mem::take(&mut self.detail);
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
        let is_forged = |node: &Node| {
            if node.level == 0 {
                return !is_real(node.start, &node.hash);
            }
            let Detail::Leaves(leaves) = &detail else {
                return false;
            };
            let leaves = leaves.get(usize::from(node.start)..usize::from(node.end()));
            leaves.is_some_and(|leaves| fold(leaves, digest) != Some(node.hash))
        };
        let nodes = self.slots.nodes_from(0);
        let forged: Vec<Node> = nodes.filter(|node| is_forged(node)).copied().collect();
        let mut found = Vec::new();
        for node in forged {
            let real =
                |second: &(u16, Hash)| second.0 == node.start && is_real(second.0, &second.1);
            if let Some(at) = self.seconds.iter().position(real) {
                self.take_second(at, events);
            } else {
                found.push(self.evict(node));
            }
        }
        self.detail = detail;
        found
    }

    /// Puts a second copy, which is real, in the place of the first.
    fn take_second(&mut self, at: usize, events: &mut Events) {
        let (slot, real) = self.seconds.remove(at);
        self.slots.replace(slot, real);
        events.push(Event::Decided {
            number: self.index * WINDOW + u64::from(slot),
            second_is_real: true,
        });
    }

    /// What its root has proven needs no leaves of its own any more.
    fn prove(&mut self, size: u16, peaks: Peaks, events: &mut Events) {
        self.forget_descent();
        self.detail = Detail::None;
        self.slots.collapse(peaks);
        let first = self.index * WINDOW;
        self.seconds.retain(|(slot, _)| {
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
    fn compare_groups(&mut self, hashes: Vec<Hash>, digest: &impl Digest) -> Vec<Range<u64>> {
        let size = self.claim.map_or(SLOTS, |(size, _)| size);
        let wide = |node: &&Node| node.end() - node.start > GROUP && node.end() <= size;
        let wide: Vec<Node> = self.slots.nodes_from(0).filter(wide).copied().collect();
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
        self.open_groups = 0;
        for (group, (from, theirs)) in (0..size)
            .step_by(usize::from(GROUP))
            .zip(&hashes)
            .enumerate()
        {
            let own = self.slots.hash_over(from, (from + GROUP).min(size), digest);
            self.open_groups |= u32::from(own != Some(*theirs)) << group;
        }
        self.open_groups &= !compared;
        self.groups = hashes;
        if self.open_groups == 0 {
            self.forget_descent();
        }
        forged
    }

    /// Empties the slots of a node, and returns their numbers.
    fn evict(&mut self, node: Node) -> Range<u64> {
        self.slots.take(node.start);
        self.forged.extend(node.start..node.end());
        let first = self.index * WINDOW;
        first + u64::from(node.start)..first + u64::from(node.end())
    }

    fn compare_leaves(
        &mut self,
        group: u8,
        leaves: &[Hash],
        digest: &impl Digest,
        events: &mut Events,
    ) -> Result<Vec<Range<u64>>, Refused> {
        let asked = group < 32 && self.open_groups & (1 << group) != 0;
        let Some(theirs) = self.groups.get(usize::from(group)).filter(|_| asked) else {
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
        let declared = |node: &&Node| node.level > 0 && node.end() <= end;
        let declared: Vec<Node> = self
            .slots
            .nodes_from(from)
            .take_while(|node| node.start < end)
            .filter(declared)
            .copied()
            .collect();
        for node in declared {
            let range = usize::from(node.start - from)..usize::from(node.end() - from);
            if fold(&leaves[range], digest) != Some(node.hash) {
                forged.push(self.evict(node));
            }
        }
        for (slot, real) in (from..).zip(leaves) {
            let Some(own) = self.slots.leaf(slot).filter(|own| own != real) else {
                continue;
            };
            debug_assert_ne!(own, *real);
            let second = |second: &(u16, Hash)| *second == (slot, *real);
            if let Some(at) = self.seconds.iter().position(second) {
                self.take_second(at, events);
            } else {
                let number = self.index * WINDOW + u64::from(slot);
                forged.push(self.evict(Node::leaf(number, own)));
            }
        }
        self.open_groups &= !(1 << group);
        if self.open_groups == 0 {
            self.forget_descent();
        }
        Ok(forged)
    }

    fn report(
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
        if self.told == Some((state, account)) {
            return;
        }
        self.told = Some((state, account));
        events.push(Event::Window {
            numbers: self.numbers(size),
            state,
            account,
        });
    }

    fn detail_bytes(&self) -> usize {
        match &self.detail {
            Detail::None => 0,
            Detail::Fingerprints(prints) => prints.capacity() * 4,
            Detail::Leaves(leaves) => leaves.capacity() * size_of::<Hash>(),
        }
    }

    /// What is in the slots and what is in the gaps are counted apart, so that the law can fail.
    fn account(&self, size: u16, gaps: &Gaps, altered: &BTreeMap<u64, u32>) -> Account {
        let numbers = self.numbers(size);
        let below = |slots: &[u16]| {
            let count = slots.iter().filter(|slot| **slot < size).count();
            u64::try_from(count).expect("a window has 1,024 slots")
        };
        let dropped = below(&self.dropped);
        let forged = below(&self.forged);
        let missing = altered.range(numbers.clone()).filter(|(number, _)| {
            gaps.find(**number).is_some() && !self.forged.contains(&slot(**number))
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
    fn is_vouched(&self) -> bool {
        self.claim.is_some_and(|(size, _)| size == SLOTS)
    }

    pub(super) fn is_done(&self) -> bool {
        self.told
            .is_some_and(|(state, account)| state == State::Proven && account.issued == WINDOW)
    }

    fn numbers(&self, size: u16) -> Range<u64> {
        let first = self.index * WINDOW;
        first..first + u64::from(size)
    }

    pub(super) fn forget_descent(&mut self) {
        self.differs = false;
        self.groups = Vec::new();
        self.open_groups = 0;
    }
}

/// The root over hashes of subtrees of one size.
fn fold(hashes: &[Hash], digest: &impl Digest) -> Option<Hash> {
    let mut peaks = Peaks::default();
    for hash in hashes {
        peaks.push(0, *hash, digest);
    }
    peaks.root(digest)
}
