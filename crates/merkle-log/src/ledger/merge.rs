//! One ledger of what the members of a shared group saw.
//!
//! Each member sees its share, so alone it claims nothing. Put together they have seen everything:
//! numbers and leaves are united, of checkpoints the one that says most is kept. The union does not
//! depend on who is merged with whom first or how often, so members may report whenever and to
//! whomever they like.
//!
//! A merged ledger is a member's still. To judge, a ledger of the whole lane takes the members' in:
//! [`LaneLedger::absorb`]. What no member has seen is late from then on.
//!
//! A member keeps the windows that it has proven, as one hash each, and those that it has not,
//! until its limit of open windows: reports must not be further apart than that.
//!
//! **Absent:** order, which a shared group does not promise; and duplicates across members, which
//! cannot be told from a report that came twice.

use std::time::Duration;

use super::claim::Claim;
use super::gaps::{Gaps, Hole};
use super::limits::{LedgerLimits, WINDOW};
use super::open_window::Window;
use super::receiver::LaneLedger;
use super::verdict::{Account, State};
use super::windows::Windows;
use crate::{Detail, Digest, Hash};

impl LaneLedger {
    /// Takes in what another member of the group has seen. Both must be members' ledgers of one
    /// epoch of one lane. Events not taken are lost: take them first.
    pub fn merge(&mut self, other: &Self, limits: &LedgerLimits) {
        let known = |one: Option<Hole>, other: Option<Hole>| match (one, other) {
            (Some(one), Some(other)) => Hole {
                noticed: one.noticed.max(other.noticed),
                lost: one.lost || other.lost,
                gone: one.gone || other.gone,
                ..one
            },
            (Some(hole), None) | (None, Some(hole)) => hole,
            (None, None) => Hole::new(Duration::ZERO),
        };
        let gaps = Gaps::common((&self.gaps, self.next), (&other.gaps, other.next), known);
        self.miss_with(other, gaps);
        self.unite(other, limits);
        self.windows.merge(&other.windows);
        self.count_declared();
        while self.windows.open.len() > limits.open_windows_max.max(1) {
            self.windows
                .end_oldest(&self.gaps, &self.altered, &mut self.events);
        }
        self.covered = self.covered.max(other.covered);
        self.heard = self.heard.max(other.heard);
        self.idle &= other.idle;
        self.silent &= other.silent;
        (self.come, self.over) = (self.come | other.come, self.over | other.over);
        self.events.clear();
        for window in &mut self.windows.open {
            window.settle(limits);
        }
    }

    /// Takes in what a member of the group, or several merged, have seen, into a ledger that
    /// judges the whole lane. `now` is on this ledger's clock.
    pub fn absorb(
        &mut self,
        member: &Self,
        now: Duration,
        limits: &LedgerLimits,
        digest: &impl Digest,
    ) {
        let first_seen = member.first_seen();
        if self.start.is_none() && first_seen.is_none() {
            return;
        }
        let start = self.scope(first_seen.unwrap_or_default());
        let known = |own: Option<Hole>, _: Option<Hole>| own.unwrap_or(Hole::new(now));
        let is_news = member.checkpoints > self.checkpoints;
        self.over |= member.over;
        let gaps = Gaps::common((&self.gaps, self.next), (&member.gaps, member.next), known);
        self.miss_with(member, gaps);
        self.gaps.forget_below(start);
        self.unite(member, limits);
        if let Some(last) = member.windows.reached.checked_sub(1) {
            self.reach(last * WINDOW, limits);
        }
        self.windows.absorb(&member.windows, limits);
        self.count_declared();
        let next = self.next;
        self.tails.retain(|(size, _)| *size > next);
        self.tell_tail(member.covered, now);
        if is_news {
            self.hear(now);
            self.idle = member.covered == self.covered;
        }
        self.covered = self.covered.max(member.covered);
        if let Some(size) = self.closed {
            self.close(size);
        }
        self.cut_if_whole();
        self.bound(limits);
        self.review(digest);
    }

    /// What merging and absorbing have in common, once the gaps are known.
    fn unite(&mut self, other: &Self, limits: &LedgerLimits) {
        self.next = self.next.max(other.next);
        self.checkpoints = self.checkpoints.max(other.checkpoints);
        self.contradictions = self.contradictions.max(other.contradictions);
        self.closed = match (self.closed, other.closed) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        for (number, copies) in &other.altered {
            let known = self.altered.entry(*number).or_default();
            *known = (*known).max(*copies);
        }
        let gaps = &self.gaps;
        let next = self.next;
        self.altered
            .retain(|number, _| *number >= next || gaps.find(*number).is_some());
        while self.altered.len() > limits.suspects_max {
            self.altered.pop_last();
        }
        for (number, parts) in &other.parts {
            let known = self.parts.entry(*number).or_insert_with(|| parts.clone());
            known.of = known.of.min(parts.of);
            for (known, seen) in known.seen.iter_mut().zip(parts.seen) {
                *known |= seen;
            }
        }
        self.parts
            .retain(|number, _| *number >= next || gaps.find(*number).is_some());
        while self.parts.len() > limits.suspects_max {
            self.parts.pop_last();
        }
    }

    /// The lowest number seen; what came before a group was there is not the group's.
    fn first_seen(&self) -> Option<u64> {
        if self.next == 0 {
            return None;
        }
        Some(match self.gaps.find(0) {
            Some(hole) => hole.end,
            None => 0,
        })
    }
}

impl Windows {
    /// A window is open while it is open for each that has heard of it: where it is not, it was
    /// reported as it ended.
    fn merge(&mut self, other: &Self) {
        let (own_reached, other_reached) = (self.reached, other.reached);
        let own = std::mem::take(&mut self.open);
        let mut theirs = other.open.iter().peekable();
        for mut window in own {
            while let Some(new) = theirs.next_if(|theirs| theirs.index < window.index) {
                self.open_as(new, own_reached);
            }
            if let Some(same) = theirs.next_if(|theirs| theirs.index == window.index) {
                window.merge(same);
                window.doubt.told = window
                    .doubt
                    .told
                    .filter(|_| window.is_done())
                    .or(same.doubt.told);
            } else if window.index < other_reached {
                continue;
            }
            self.open.push(window);
        }
        for new in theirs {
            self.open_as(new, own_reached);
        }
        self.reached = own_reached.max(other_reached);
        self.take_trunk(other);
        self.take_newest(other);
    }

    /// Takes what another has of the windows that are open here.
    fn absorb(&mut self, other: &Self, limits: &LedgerLimits) {
        for theirs in &other.open {
            if let Some(window) = self.find(theirs.index) {
                window.merge(theirs);
                window.order(limits);
            }
        }
        // One that began late has no trunk from 0 on to continue.
        if self.trunk.is_some() {
            self.take_trunk(other);
        }
        self.take_newest(other);
    }

    /// Takes the trunk that reaches further.
    fn take_trunk(&mut self, other: &Self) {
        let end = |windows: &Self| {
            let trunk = windows.trunk.clone();
            trunk.map(|trunk| (windows.trunk_end, trunk))
        };
        if end(other) > end(self) {
            self.trunk.clone_from(&other.trunk);
            self.trunk_end = other.trunk_end;
        }
    }

    fn take_newest(&mut self, other: &Self) {
        self.newest = Claim::newer(self.newest.as_ref(), other.newest.as_ref());
        let cut = Claim::newer(self.cut.as_deref(), other.cut.as_deref());
        self.cut = cut.map(Box::new);
    }

    fn open_as(&mut self, window: &Window, from: u64) {
        if window.index >= from {
            self.open.push(window.clone());
        }
    }
}

impl Window {
    fn merge(&mut self, other: &Self) {
        let (slots, seconds) = self.slots.union(&other.slots);
        if slots != self.slots {
            self.forget_descent();
        }
        self.slots = slots;
        self.doubt.seconds.extend_from_slice(&other.doubt.seconds);
        self.doubt.seconds.extend(seconds);
        self.doubt.dropped.extend_from_slice(&other.doubt.dropped);
        self.doubt.forged.extend_from_slice(&other.doubt.forged);
        if other.claim > self.claim {
            self.claim = other.claim;
        }
        if rank(&other.doubt.detail) > rank(&self.doubt.detail) {
            self.doubt.detail = other.doubt.detail.clone();
        }
    }

    /// Forgets in which order things came. Of the leaves of one slot the smallest is the first.
    fn order(&mut self, limits: &LedgerLimits) {
        let mut seconds: Vec<(u16, Hash)> = Vec::new();
        for (slot, mut second) in std::mem::take(&mut self.doubt.seconds) {
            if self.slots.is_collapsed(slot) {
                continue;
            }
            if let Some(first) = self.slots.leaf(slot)
                && second < first
            {
                self.slots.replace(slot, second);
                second = first;
            }
            seconds.push((slot, second));
        }
        seconds.sort_unstable();
        seconds.dedup();
        let slots = &self.slots;
        seconds.retain(|(slot, second)| slots.leaf(*slot) != Some(*second));
        seconds.truncate(limits.suspects_max);
        self.doubt.seconds = seconds;
        let doubts = &mut *self.doubt;
        for list in [&mut doubts.dropped, &mut doubts.forged] {
            list.sort_unstable();
            list.dedup();
        }
        doubts
            .forged
            .retain(|slot| slots.leaf(*slot).is_none() && !slots.is_collapsed(*slot));
    }

    /// What a merged window is, whoever reported of it: proven, or not reported yet.
    fn settle(&mut self, limits: &LedgerLimits) {
        self.order(limits);
        self.forget_descent();
        let dropped = self.doubt.dropped.len() as u64;
        let account = Account {
            issued: WINDOW,
            arrived: WINDOW - dropped,
            dropped,
            ..Account::default()
        };
        self.doubt.told = self.is_done().then_some((State::Proven, account));
        if self.is_done() {
            self.doubt.detail = Detail::None;
        }
    }
}

/// Which of two details tells more.
fn rank(detail: &Detail) -> (u8, &[[u8; 4]], &[Hash]) {
    match detail {
        Detail::None => (0, &[], &[]),
        Detail::Fingerprints(prints) => (1, prints, &[]),
        Detail::Leaves(leaves) => (2, &[], leaves),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash_list::HashList;
    use crate::ledger::receiver::{Arrival, Join, Parts};
    use crate::ledger::window::Node;
    use crate::{Epoch, Hasher, Lane, LaneId, LaneLimits};

    const NOW: Duration = Duration::ZERO;

    fn member() -> LaneLedger {
        LaneLedger::new(Join::Member)
    }

    fn see(ledger: &mut LaneLedger, numbers: impl IntoIterator<Item = u64>) {
        for number in numbers {
            let arrival = Arrival {
                number,
                leaf: Hash::new(&[1; 16]).expect("16 bytes are a hash"),
                fits: true,
                resent: false,
                part: None,
            };
            ledger.observe(&arrival, NOW, &LedgerLimits::default(), &Hasher::xxh3());
        }
    }

    fn merged(one: &LaneLedger, other: &LaneLedger) -> LaneLedger {
        let mut merged = one.clone();
        merged.merge(other, &LedgerLimits::default());
        merged
    }

    #[test]
    fn what_one_member_has_given_up_is_given_up() {
        for (one_is_lost, other_is_lost) in [(false, false), (true, false), (false, true)] {
            for gone in [false, true] {
                let with = |lost: bool| {
                    let mut ledger = member();
                    ledger.next = 5;
                    ledger.gaps.open(1..3, NOW, lost);
                    if gone {
                        ledger.gaps.write_off(&(1..3));
                    }
                    ledger
                };
                let merged = merged(&with(one_is_lost), &with(other_is_lost));
                let hole = merged.gaps.find(1).expect("it is missing from both");
                let lost = one_is_lost || other_is_lost;
                assert_eq!((hole.lost, hole.gone), (lost, lost && gone));
            }
        }
    }

    #[test]
    fn a_lane_is_idle_or_silent_if_it_is_for_all_and_over_if_it_is_for_one() {
        for (one, other) in [(false, false), (true, false), (false, true), (true, true)] {
            let with = |is: bool| LaneLedger {
                idle: is,
                silent: is,
                over: is,
                ..member()
            };
            let merged = merged(&with(one), &with(other));
            let all = (merged.idle, merged.silent);
            assert_eq!(all, (one && other, one && other));
            assert_eq!(merged.over, one || other);
        }
    }

    #[test]
    fn no_more_windows_stay_open_than_may() {
        let (mut one, mut other) = (member(), member());
        see(&mut one, [0, WINDOW, 2 * WINDOW]);
        see(&mut other, [1, WINDOW + 1, 2 * WINDOW + 1]);
        for (limit, expect) in [
            (3, vec![0, 1, 2]),
            (2, vec![1, 2]),
            (1, vec![2]),
            (0, vec![2]),
        ] {
            let limits = LedgerLimits {
                open_windows_max: limit,
                ..LedgerLimits::default()
            };
            let mut merged = one.clone();
            merged.merge(&other, &limits);
            let open = merged.windows.open.iter().map(|window| window.index);
            assert_eq!(open.collect::<Vec<_>>(), expect, "{limit}");
        }
    }

    #[test]
    fn what_is_remembered_of_a_number_is_remembered_while_it_is_missing() {
        let parts = |bit: u64| Parts {
            of: 3,
            seen: [bit, 0, 0, 0],
        };
        let numbers = [1, 2, 5, 9];
        let with = |bit| {
            let mut ledger = member();
            ledger.next = 5;
            ledger.gaps.open(2..3, NOW, false);
            ledger.altered = numbers.map(|number| (number, 1)).into();
            ledger.parts = numbers.map(|number| (number, parts(bit))).into();
            ledger
        };
        // 1 came; 2 is missing; 5 and 9 are still to come.
        for (limit, expect) in [(4_096, &[2, 5, 9][..]), (3, &[2, 5, 9]), (2, &[2, 5])] {
            let limits = LedgerLimits {
                suspects_max: limit,
                ..LedgerLimits::default()
            };
            let mut merged = with(1);
            merged.merge(&with(2), &limits);
            let altered: Vec<u64> = merged.altered.keys().copied().collect();
            assert_eq!(altered, expect, "{limit}");
            let seen: Vec<_> = merged.parts.into_iter().collect();
            let expect: Vec<_> = expect.iter().map(|number| (*number, parts(3))).collect();
            assert_eq!(seen, expect, "{limit}");
        }
    }

    #[test]
    fn the_first_number_seen_is_behind_what_is_missing_from_0_on() {
        for (seen, expect) in [(&[][..], None), (&[0], Some(0)), (&[5, 7], Some(5))] {
            let mut ledger = member();
            see(&mut ledger, seen.iter().copied());
            assert_eq!(ledger.first_seen(), expect, "{seen:?}");
        }
    }

    #[test]
    fn a_window_that_one_member_has_ended_does_not_hold_up_the_next() {
        let (mut one, mut other) = (member(), member());
        see(&mut one, [0, WINDOW]);
        one.windows.open.remove(0);
        see(&mut other, [1, WINDOW + 1]);
        for merged in [merged(&one, &other), merged(&other, &one)] {
            let [window] = &merged.windows.open[..] else {
                panic!("{:?}", merged.windows.open);
            };
            assert_eq!((window.index, window.slots.run_end()), (1, 2));
        }
    }

    #[test]
    fn the_trunk_that_reaches_further_is_taken() {
        let with = |end: u64| {
            let hash = Hash::new(&[1; 16]).expect("16 bytes are a hash");
            let mut ledger = member();
            ledger.windows.trunk_end = end;
            ledger.windows.trunk = HashList::of(vec![hash; end.count_ones() as usize].iter());
            ledger
        };
        for (one, other) in [(0, 0), (0, 1), (1, 0), (2, 1)] {
            let merged = merged(&with(one), &with(other)).windows;
            let further = with(one.max(other)).windows;
            assert_eq!(
                (merged.trunk_end, merged.trunk),
                (further.trunk_end, further.trunk)
            );
        }
    }

    #[test]
    fn a_descent_goes_on_while_nothing_new_is_in_its_window() {
        let with = |slots: &[u64]| {
            let mut window = Window::default();
            for slot in slots {
                let hash = Hash::new(&[1; 16]).expect("16 bytes are a hash");
                window.slots.put(Node::leaf(*slot, hash));
            }
            window
        };
        for (other, goes_on) in [(&[0][..], true), (&[1], false)] {
            let mut window = with(&[0, 2]);
            window.doubt.differs = true;
            window.merge(&with(other));
            assert_eq!(window.doubt.differs, goes_on, "{other:?}");
        }
    }

    #[test]
    fn of_two_details_the_one_that_tells_more_is_kept() {
        let leaf = |byte| Hash::new(&[byte; 16]).expect("16 bytes are a hash");
        let details = [
            Detail::None,
            Detail::Fingerprints(vec![[1; 4]]),
            Detail::Fingerprints(vec![[2; 4]]),
            Detail::Leaves(vec![leaf(1)]),
            Detail::Leaves(vec![leaf(2)]),
        ];
        let with = |detail: &Detail| {
            let mut window = Window::default();
            window.doubt.detail = detail.clone();
            window
        };
        for (less, one) in details.iter().enumerate() {
            for (more, other) in details.iter().enumerate() {
                let mut window = with(one);
                window.merge(&with(other));
                assert_eq!(
                    window.doubt.detail,
                    details[less.max(more)],
                    "{less} {more}"
                );
            }
        }
    }

    #[test]
    fn of_the_leaves_of_a_slot_the_smallest_is_the_first() {
        let leaf = |byte| Hash::new(&[byte; 16]).expect("16 bytes are a hash");
        for (first, second) in [(1, 2), (2, 1)] {
            let mut window = Window::default();
            window.slots.put(Node::leaf(0, leaf(first)));
            window.doubt.seconds = vec![(0, leaf(second))];
            window.order(&LedgerLimits::default());
            assert_eq!(window.slots.leaf(0), Some(leaf(1)));
            assert_eq!(window.doubt.seconds, [(0, leaf(2))]);
        }
    }

    #[test]
    fn a_slot_that_is_filled_again_is_not_forged() {
        let hash = Hash::new(&[1; 16]).expect("16 bytes are a hash");
        let mut window = Window::default();
        window.slots.put(Node::leaf(0, hash));
        let (start, level) = (2, 1);
        window.slots.put(Node { start, level, hash });
        window.doubt.forged = vec![0, 1, 2, 3, 4];
        window.order(&LedgerLimits::default());
        assert_eq!(window.doubt.forged, [1, 4]);
    }

    #[test]
    fn only_a_member_that_has_heard_more_is_news() {
        let (limits, hasher) = (LedgerLimits::default(), Hasher::xxh3());
        let with = |checkpoints| LaneLedger {
            checkpoints,
            ..member()
        };
        for (own, other, is_news) in [(1, 2, true), (2, 2, false), (2, 1, false)] {
            let mut whole = LaneLedger::new(Join::Beginning);
            whole.checkpoints = own;
            let now = Duration::from_secs(5);
            whole.absorb(&with(other), now, &limits, &hasher);
            let heard = if is_news { now } else { NOW };
            assert_eq!((whole.heard, whole.idle), (heard, is_news), "{own} {other}");
        }
    }

    #[test]
    fn what_came_to_a_member_is_no_longer_missing_at_the_end() {
        let (limits, hasher) = (LedgerLimits::default(), Hasher::xxh3());
        let mut whole = LaneLedger::new(Join::Beginning);
        whole.tails = vec![(5, NOW), (3, NOW), (2, NOW)];
        let mut one = member();
        see(&mut one, 0..3);
        whole.absorb(&one, NOW, &limits, &hasher);
        assert_eq!((whole.next, whole.tails), (3, vec![(5, NOW)]));
    }

    #[test]
    fn a_merged_window_that_one_member_proved_is_reported_with_its_drops() {
        let (limits, hasher) = (LedgerLimits::default(), Hasher::xxh3());
        let id = LaneId::new(1).expect("1 is a lane");
        let mut lane = Lane::new(id, Epoch(0), LaneLimits::default(), NOW);
        let mut one = member();
        for number in 0..WINDOW {
            let leaf = lane.issue(*b"t", *b"p", &hasher).digest;
            if number == 7 {
                one.dropped(number, &[leaf], NOW, &limits, &hasher);
                continue;
            }
            let arrival = Arrival {
                number,
                leaf,
                fits: true,
                resent: false,
                part: None,
            };
            one.observe(&arrival, NOW, &limits, &hasher);
        }
        let checkpoint = lane.poll_checkpoint(NOW, 0, &hasher);
        one.checkpoint(
            &checkpoint.expect("a window is full"),
            NOW,
            &limits,
            &hasher,
        );
        let merged = merged(&one, &member());
        let window = merged.windows.open.first().expect("a member keeps it");
        let account = Account {
            issued: WINDOW,
            arrived: WINDOW - 1,
            dropped: 1,
            ..Account::default()
        };
        assert_eq!(window.doubt.told, Some((State::Proven, account)));
    }
}
