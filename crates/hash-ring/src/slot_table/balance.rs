//! From a table with wrong or missing entries to one within its bounds, with few changes.
//!
//! 1. A node above its quota of primaries gives up those slots for which its score is worst.
//! 2. A slot without a primary gets one below its quota: of its replicas the one with the most
//!    room, and if none has room, the node with the best score.
//! 3. Replicas that are now on the primary's node or zone go, and so do those above a quota.
//! 4. A missing replica goes to the node with the best score that has room and is in a zone of its
//!    own.
//! 5. If only nodes have room that may not hold the slot, one of them takes a replica of another
//!    slot, whose holder takes this one.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use super::{NONE, quota};
use crate::hash::Scorer;
use crate::limits::COPIES_MAX;
use crate::node::{Node, NodeId, Zone};

pub(super) fn balance(rows: &mut [u16], copies: u8, seats: &[Option<Node>]) {
    let copies = usize::from(copies);
    let mut balance = Balance::new(rows, copies, seats);
    balance.primaries();
    if copies > 1 {
        balance.replicas();
    }
}

struct Balance<'a> {
    rows: &'a mut [u16],
    /// Entries in a row.
    copies: usize,
    /// Copies that there are nodes for.
    nodes: usize,
    zones: usize,
    seats: &'a [Option<Node>],
    scorers: Vec<Option<Scorer>>,
}

/// How many entries each seat has and should have.
struct Count {
    holds: Vec<u32>,
    quota: Vec<u32>,
}

/// A score, with the node's id to tell equals apart.
type Score = (u64, NodeId);

impl<'a> Balance<'a> {
    fn new(rows: &'a mut [u16], copies: usize, seats: &'a [Option<Node>]) -> Self {
        let zones: BTreeSet<Zone> = seats.iter().flatten().map(|node| node.zone).collect();
        let scorer = |seat: &Option<Node>| seat.as_ref().map(Scorer::new);
        Self {
            rows,
            copies,
            nodes: seats.iter().flatten().count(),
            zones: zones.len(),
            seats,
            scorers: seats.iter().map(scorer).collect(),
        }
    }

    fn slots(&self) -> usize {
        self.rows.len() / self.copies
    }

    fn row(&self, slot: usize) -> &[u16] {
        &self.rows[slot * self.copies..][..self.copies]
    }

    fn score(&self, seat: usize, slot: usize) -> Score {
        match self.scorers[seat] {
            Some(scorer) => scorer.score(slot as u64),
            None => (u64::MAX, NodeId(u64::MAX)),
        }
    }

    /// Steps 1 and 2.
    fn primaries(&mut self) {
        let slots = u32::try_from(self.slots()).expect("a table has at most 65,536 slots");
        let holds = self.held(0..1);
        let mut count = Count {
            quota: quota::primaries(slots, self.seats, &holds),
            holds,
        };
        self.give_up(&mut count, 0..1);
        for slot in 0..self.slots() {
            if self.row(slot)[0] != NONE {
                continue;
            }
            let replicas = self.row(slot)[1..].iter().map(|seat| usize::from(*seat));
            let with_room = |seat: &usize| count.has_room(*seat);
            let heir = replicas.filter(with_room).min_by_key(|seat| {
                let room = count.quota[*seat] - count.holds[*seat];
                (Reverse(room), self.score(*seat, slot))
            });
            let others = (0..self.seats.len()).filter(with_room);
            let first = heir.or_else(|| others.min_by_key(|seat| self.score(*seat, slot)));
            let first = first.expect("quotas add up to the number of slots");
            count.holds[first] += 1;
            self.rows[slot * self.copies] = entry(first);
        }
    }

    /// Steps 3 to 5.
    fn replicas(&mut self) {
        for slot in 0..self.slots() {
            self.remove_conflicts(slot);
        }
        let slots = u32::try_from(self.slots()).expect("a table has at most 65,536 slots");
        let copies = u8::try_from(self.copies).expect("a slot has at most 7 copies");
        let (primaries, holds) = (self.held(0..1), self.held(1..self.copies));
        let mut count = Count {
            quota: quota::replicas(slots, copies, self.seats, &primaries, &holds),
            holds,
        };
        self.give_up(&mut count, 1..self.copies);
        let mut fresh = vec![false; self.rows.len()];
        let mut open = Vec::new();
        let mut scores = Vec::new();
        for slot in 0..self.slots() {
            let wanted = 1..self.copies.min(self.nodes);
            let missing = wanted.filter(|copy| self.row(slot)[*copy] == NONE);
            let missing: Vec<_> = missing.collect();
            scores.clear();
            if !missing.is_empty() {
                let with_room = (0..self.seats.len()).filter(|seat| count.has_room(*seat));
                scores.extend(with_room.map(|seat| (self.score(seat, slot), seat)));
            }
            for copy in missing {
                match self.best(&scores, slot, copy) {
                    Some(seat) => {
                        count.holds[seat] += 1;
                        self.rows[slot * self.copies + copy] = entry(seat);
                        fresh[slot * self.copies + copy] = true;
                    }
                    None => open.push((slot, copy)),
                }
            }
        }
        for (slot, copy) in open {
            self.exchange(slot, copy, &mut count, &fresh);
        }
    }

    /// The seat with the best score that the row may have.
    fn best(&self, scores: &[(Score, usize)], slot: usize, copy: usize) -> Option<usize> {
        let mut best: Option<(Score, usize)> = None;
        for candidate in scores {
            let is_better = best.is_none_or(|best| *candidate < best);
            // In this order, because few are better than the best before them.
            if is_better && self.fits(slot, copy, candidate.1) {
                best = Some(*candidate);
            }
        }
        best.map(|(_, seat)| seat)
    }

    /// How many of these entries of all rows each seat has.
    fn held(&self, copies: std::ops::Range<usize>) -> Vec<u32> {
        let mut held = vec![0; self.seats.len()];
        for row in self.rows.chunks(self.copies) {
            for seat in row[copies.clone()].iter().filter(|seat| **seat != NONE) {
                held[usize::from(*seat)] += 1;
            }
        }
        held
    }

    /// Removes what is above the quotas, the worst scores first.
    fn give_up(&mut self, count: &mut Count, copies: std::ops::Range<usize>) {
        let mut over: Vec<Vec<(Score, usize)>> = vec![Vec::new(); self.seats.len()];
        for slot in 0..self.slots() {
            for copy in copies.clone() {
                let seat = usize::from(self.row(slot)[copy]);
                if seat != usize::from(NONE) && count.holds[seat] > count.quota[seat] {
                    over[seat].push((self.score(seat, slot), slot * self.copies + copy));
                }
            }
        }
        for (seat, mut entries) in over.into_iter().enumerate() {
            entries.sort_unstable();
            let more = count.holds[seat].saturating_sub(count.quota[seat]);
            for (_, at) in entries.into_iter().rev().take(more as usize) {
                self.rows[at] = NONE;
                count.holds[seat] -= 1;
            }
        }
    }

    /// Keeps the replicas that the row may have, without gaps between them.
    fn remove_conflicts(&mut self, slot: usize) {
        let start = slot * self.copies;
        let replicas: Vec<_> = self.row(slot)[1..].to_vec();
        self.rows[start + 1..start + self.copies].fill(NONE);
        let mut copy = 1;
        for seat in replicas {
            if seat != NONE && self.fits(slot, copy, seat.into()) {
                self.rows[start + copy] = seat;
                copy += 1;
            }
        }
    }

    /// Whether a row may have this seat at a place: no other place has it, and either its zone is
    /// new, or there remain enough places for all zones that are still missing.
    fn fits(&self, slot: usize, copy: usize, seat: usize) -> bool {
        let row = self.row(slot);
        let others = || (0..self.copies).filter(|at| *at != copy).map(|at| row[at]);
        if others().any(|other| usize::from(other) == seat) {
            return false;
        }
        let zone_of = |seat: u16| self.seats.get(usize::from(seat)).copied().flatten();
        let Some(own) = self.seats[seat] else {
            return false;
        };
        let mut seen: [Option<Zone>; COPIES_MAX as usize] = [None; COPIES_MAX as usize];
        let mut zones = 0;
        let mut taken = 0;
        for node in others().filter_map(zone_of) {
            taken += 1;
            if !seen[..zones].contains(&Some(node.zone)) {
                seen[zones] = Some(node.zone);
                zones += 1;
            }
        }
        let is_new = !seen[..zones].contains(&Some(own.zone));
        let places = self.copies.min(self.nodes) - taken;
        is_new || places > self.zones - zones
    }

    /// Finds a replica of another slot that may hold this one, and whose place may be taken by a
    /// node with room: first among those that are new anyway. Without one, a node goes above its
    /// quota.
    fn exchange(&mut self, slot: usize, copy: usize, count: &mut Count, fresh: &[bool]) {
        let with_room: Vec<_> = (0..self.seats.len())
            .filter(|seat| count.has_room(*seat))
            .collect();
        for only_fresh in [true, false] {
            for other in (slot + 1..self.slots()).chain(0..slot) {
                for at in 1..self.copies {
                    let index = other * self.copies + at;
                    let seat = self.rows[index];
                    if seat == NONE
                        || (only_fresh && !fresh[index])
                        || !self.fits(slot, copy, seat.into())
                    {
                        continue;
                    }
                    let taker = with_room.iter().find(|taker| self.fits(other, at, **taker));
                    if let Some(taker) = taker {
                        count.holds[*taker] += 1;
                        self.rows[index] = entry(*taker);
                        self.rows[slot * self.copies + copy] = seat;
                        return;
                    }
                }
            }
        }
        let fits = (0..self.seats.len()).filter(|seat| self.fits(slot, copy, *seat));
        let least = fits.min_by_key(|seat| {
            let over = i64::from(count.holds[*seat]) - i64::from(count.quota[*seat]);
            (over, self.score(*seat, slot))
        });
        let least = least.expect("there are as many nodes as copies, and a node in each zone");
        count.holds[least] += 1;
        self.rows[slot * self.copies + copy] = entry(least);
    }
}

impl Count {
    /// Also for an entry that names no seat: it has none.
    fn has_room(&self, seat: usize) -> bool {
        let quota = self.quota.get(seat).copied().unwrap_or(0);
        self.holds.get(seat).is_some_and(|holds| *holds < quota)
    }
}

fn entry(seat: usize) -> u16 {
    u16::try_from(seat).expect("a table has at most 1,024 seats")
}
