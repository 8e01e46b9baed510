//! What of an epoch cannot be true together, although all of it fits: its end and what came beyond
//! it, checkpoints among each other, two messages under one number.
//!
//! **Invariants.** A contradiction denies nothing: a message that fits is judged like any other,
//! and the larger of two sizes counts. Whichever came first, both sides are named.

use super::receiver::LaneLedger;
use super::verdict::Event;

impl LaneLedger {
    /// Whether a message or a checkpoint contradicted another one, which fits like it.
    pub fn is_contradicted(&self) -> bool {
        self.contradictions > 0
    }

    /// The epoch is over, unless a message beyond this size has come. False, and the epoch stays
    /// open, where one has.
    pub(super) fn close(&mut self, size: u64) -> bool {
        let in_scope = size.max(self.start.unwrap_or(0));
        if let Some(number) = self.first_seen_from(in_scope) {
            self.contradict(Event::EndContradicted { size, number });
            return false;
        }
        self.closed = Some(size);
        self.altered.split_off(&in_scope);
        self.gaps.truncate(in_scope);
        self.next = self.next.min(in_scope);
        // What a directory told beyond it counts no more.
        self.covered = self.covered.min(in_scope);
        for (told, _) in &mut self.tails {
            *told = in_scope.min(*told);
        }
        let next = self.next;
        self.tails.dedup_by_key(|(told, _)| *told);
        self.tails.retain(|(told, _)| *told > next);
        true
    }

    /// Takes it that a message with this number fits: an epoch that was closed below it is not.
    pub(super) fn reopen_for(&mut self, number: u64) {
        if let Some(size) = self.reopen_if(|size| number >= size) {
            self.contradict(Event::EndContradicted { size, number });
        }
    }

    /// Takes the epoch as open again if it is closed at a size like this; returns the size.
    pub(super) fn reopen_if(&mut self, is_contradicted: impl Fn(u64) -> bool) -> Option<u64> {
        let size = self.closed.take_if(|size| is_contradicted(*size))?;
        self.windows.reopen();
        Some(size)
    }

    /// The lowest number from this one on that was seen.
    fn first_seen_from(&self, number: u64) -> Option<u64> {
        let missing = self.gaps.within(number..self.next);
        let seen = missing.fold(
            number,
            |at, hole| if hole.start == at { hole.end } else { at },
        );
        (seen < self.next).then_some(seen)
    }

    pub(super) fn contradict(&mut self, event: Event) {
        self.events.push(event);
        self.note_contradiction();
    }

    /// One contradiction may be one forged message; a second one shows that two producers go on.
    pub(super) fn note_contradiction(&mut self) {
        self.contradictions = self.contradictions.saturating_add(1);
        if self.contradictions == 2 {
            self.events.push(Event::TwoProducers);
        }
    }
}
