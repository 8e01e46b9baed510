//! The generations of one log, as a reader goes through them.

use std::collections::BTreeMap;
use std::ops::{Bound, Range};

use fjall::Snapshot;

use super::engine;
use super::generation::{Generation, Room};
use crate::error::StoreError;
use crate::position::Sequence;
use crate::selection::Matcher;
use crate::store::Chunk;

/// All of a log. A clone goes on having what is trimmed meanwhile.
#[derive(Clone, Debug)]
pub(super) struct Generations {
    /// The first that was not trimmed.
    pub(super) floor: Sequence,
    /// By the number they begin with.
    pub(super) sealed: BTreeMap<Sequence, Sealed>,
    pub(super) live: Generation,
}

/// A generation that is not the newest.
#[derive(Clone, Debug)]
pub(super) struct Sealed {
    pub(super) generation: Generation,
    /// What follows its last message. The next generation may begin later.
    pub(super) end: Sequence,
}

/// What a read takes from one generation.
#[derive(Debug)]
pub(super) struct Part {
    generation: Generation,
    is_live: bool,
    range: Range<Sequence>,
}

impl Generations {
    pub(super) fn new(live: Generation) -> Self {
        Self {
            floor: live.first,
            sealed: BTreeMap::new(),
            live,
        }
    }

    /// As a start finds them.
    pub(super) fn of(sealed: BTreeMap<Sequence, Sealed>, live: Generation) -> Self {
        let all = sealed.values().map(|sealed| &sealed.generation);
        let all = all.chain([&live]);
        let release = all.filter(|it| it.begins > it.first).map(|it| it.begins);
        let oldest = sealed.keys().next().copied().unwrap_or(live.first);
        Self {
            floor: release.max().unwrap_or(oldest),
            sealed,
            live,
        }
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Generation> {
        let sealed = self.sealed.values().map(|sealed| &sealed.generation);
        sealed.chain([&self.live])
    }

    /// The log goes on in another generation. This one ends before `end`.
    pub(super) fn go_on_in(&mut self, live: Generation, end: Sequence) {
        let generation = std::mem::replace(&mut self.live, live);
        let first = generation.first;
        self.sealed.insert(first, Sealed { generation, end });
    }

    /// Numbers between generations.
    pub(super) fn left_out(&self) -> Vec<Range<Sequence>> {
        let mut left_out: Vec<Range<Sequence>> = Vec::new();
        for sealed in self.sealed.values() {
            let begins = self.next_of(sealed.generation.first);
            let range = sealed.end.max(self.floor)..begins;
            match left_out.last_mut() {
                _ if range.is_empty() => {}
                Some(last) if last.end == range.start => last.end = range.end,
                _ => left_out.push(range),
            }
        }
        left_out
    }

    /// Nobody needs what is below this number.
    pub(super) fn release(&mut self, below: Sequence) {
        self.floor = self.floor.max(below);
    }

    /// Lets go of what is below this number. Takes out the oldest generation if that is all that
    /// is in it.
    pub(super) fn trim(&mut self, below: Sequence) -> Option<Generation> {
        self.release(below);
        let (first, _) = self.sealed.first_key_value()?;
        let first = *first;
        let is_needed = self.next_of(first) > self.floor;
        if is_needed {
            None
        } else {
            self.sealed.remove(&first).map(|sealed| sealed.generation)
        }
    }

    /// What of a range is in which generation, oldest first, from at most so many generations.
    pub(super) fn parts(&self, range: &Range<Sequence>, count_max: usize) -> Vec<Part> {
        let before = self.sealed.range(..=range.start).next_back();
        let from = before.map_or(range.start, |(first, _)| *first);
        let mut parts = Vec::new();
        for (first, sealed) in self.sealed.range(from..).take(count_max) {
            let part = range.start.max(*first)..range.end.min(self.next_of(*first));
            if *first < range.end && !part.is_empty() {
                parts.push(Part {
                    generation: sealed.generation.clone(),
                    is_live: false,
                    range: part,
                });
            }
        }
        let live = range.start.max(self.live.first)..range.end;
        let reached = parts.last().map_or(range.start, |part| part.range.end);
        if parts.len() < count_max && !live.is_empty() && reached >= live.start {
            parts.push(Part {
                generation: self.live.clone(),
                is_live: true,
                range: live,
            });
        }
        parts
    }

    /// Bytes of the messages that are not trimmed, about: of a generation as large a part as is
    /// left of its numbers. In those that are sealed, and in the newest, of which so many are gone
    /// that its tree still counts.
    pub(super) fn kept_bytes(&self, next: Sequence, released_bytes: u64) -> (u64, u64) {
        let sealed = self.sealed.values();
        let sealed = sealed.map(|sealed| self.kept_of(&sealed.generation, sealed.end, 0));
        (sealed.sum(), self.kept_of(&self.live, next, released_bytes))
    }

    fn kept_of(&self, generation: &Generation, end: Sequence, released_bytes: u64) -> u64 {
        let numbers = end.0.saturating_sub(generation.begins.0);
        let left = end.0.saturating_sub(self.floor.max(generation.begins).0);
        let bytes = engine::tree_bytes(&generation.keyspace).saturating_sub(released_bytes);
        let kept = u128::from(bytes) * u128::from(left) / u128::from(numbers.max(1));
        u64::try_from(kept).unwrap_or(u64::MAX)
    }

    /// Where the generation begins that follows the sealed one that begins here.
    fn next_of(&self, first: Sequence) -> Sequence {
        let after = (Bound::Excluded(first), Bound::Unbounded);
        let next = self.sealed.range(after).next();
        next.map_or(self.live.first, |(next, _)| *next)
    }
}

impl Part {
    pub(super) const fn is_live(&self) -> bool {
        self.is_live
    }

    /// What is behind this is left to another read.
    pub(super) fn end_at(&mut self, end: Sequence) {
        self.range.end = self.range.end.min(end);
    }
}

/// Reads parts of a log into a chunk: all messages, or those that are wanted. In the newest
/// generation they are found by the numbers in `live`, or without them by looking at all.
pub(super) fn read(
    snapshot: &Snapshot,
    parts: &[Part],
    matcher: Option<&Matcher<'_>>,
    live: Option<&[u32]>,
    bytes_max: usize,
    chunk: &mut Chunk,
) -> Result<(), StoreError> {
    let by_index = matcher.filter(|matcher| !matcher.wants_all());
    let mut room = Room {
        chunk,
        bytes_max,
        bytes: 0,
    };
    for part in parts {
        let generation = &part.generation;
        let done = match (by_index, live) {
            (Some(matcher), Some(live)) if part.is_live => {
                generation.read_at(snapshot, live, matcher, &mut room)
            }
            (Some(matcher), _) if !part.is_live => {
                let offsets = generation.select(snapshot, matcher, &part.range)?;
                generation.read_at(snapshot, &offsets, matcher, &mut room)
            }
            _ => generation.read(snapshot, &part.range, matcher, &mut room),
        };
        if !done? {
            return Ok(());
        }
    }
    if let Some(part) = parts.last() {
        chunk.next = part.range.end;
    }
    Ok(())
}
