//! What a lane asks its producer, and what answers and roots show about the messages that came.

use std::ops::Range;
use std::time::Duration;

use super::LaneLedger;
use crate::Digest;
use crate::ledger::descent::{Answer, Refused, Request};
use crate::ledger::verdict::Event;

impl LaneLedger {
    /// What to ask the producer now, in full: asking again after a lost answer is asking the same.
    /// So is asking after an answer that it no longer holds something, which anyone may have sent.
    pub fn requests(&self) -> Vec<Request> {
        let lost = self.gaps.iter().filter(|(_, hole)| hole.lost);
        let mut missing: Vec<Range<u64>> = Vec::new();
        for (start, hole) in lost {
            match missing.last_mut() {
                Some(last) if last.end == start => last.end = hole.end,
                _ => missing.push(start..hole.end),
            }
        }
        let numbers = (!missing.is_empty()).then_some(Request::Numbers(missing));
        numbers.into_iter().chain(self.windows.requests()).collect()
    }

    /// Whether this number was asked for, or came: what is sent again on request bears one like
    /// that.
    pub fn was_asked_for(&self, number: u64) -> bool {
        match self.gaps.find(number) {
            Some(hole) => hole.lost,
            None => (self.scope_start()..self.next).contains(&number),
        }
    }

    /// Takes the producer's answer to a request about hashes.
    pub fn answer(&mut self, answer: &Answer, digest: &impl Digest) -> Result<(), Refused> {
        if let Answer::NotHeld(numbers) = answer {
            for numbers in numbers {
                self.gaps.write_off(numbers);
            }
            return Ok(());
        }
        self.windows.answer(answer, digest, &mut self.events)?;
        self.review(digest);
        Ok(())
    }

    pub(in crate::ledger) fn review(&mut self, digest: &impl Digest) {
        let is_over = self.is_over();
        let open = self.windows_declared();
        let Self {
            windows,
            gaps,
            declared,
            altered,
            events,
            ..
        } = self;
        windows.review(is_over, gaps, altered, digest, events);
        if let Some(declared) = declared {
            declared.forget_passed(open, windows);
        }
        let mut found = std::mem::take(&mut windows.found);
        found.sort_unstable_by_key(|numbers| numbers.start);
        if found.is_empty() {
            return;
        }
        events.extend(forged(&found));
        for numbers in joined(found) {
            // The slots are empty again, and what belongs there is worth asking for.
            if let Some(declared) = declared {
                declared.numbers.forget(&numbers);
            }
            gaps.open(numbers, Duration::ZERO, true);
        }
        windows.review(is_over, gaps, altered, digest, events);
    }
}

/// What is named of these: single numbers that follow one another together, and each subtree, of
/// which one leaf or more is forged, on its own.
fn forged(found: &[Range<u64>]) -> Vec<Event> {
    let mut all = Vec::new();
    for numbers in found {
        match all.last_mut() {
            _ if numbers.end - numbers.start > 1 => all.push(Event::ForgedAmong(numbers.clone())),
            Some(Event::Forged(last)) if last.end == numbers.start => last.end = numbers.end,
            _ => all.push(Event::Forged(numbers.clone())),
        }
    }
    all
}

/// Ranges that follow one another as one.
pub(super) fn joined(ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    let mut all: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match all.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => all.push(range),
        }
    }
    all
}
