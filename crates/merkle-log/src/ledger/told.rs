//! What the producer of an epoch tells of it: checkpoints and directories.
//!
//! **Invariant.** The largest size told counts, so that no loss goes unseen; what contradicts it is
//! named, and closes nothing. Only a checkpoint that tells something new is a sign of life: anyone
//! can send a copy of one.

use std::ops::Range;
use std::time::Duration;

use super::claim::Claim;
use super::limits::{LedgerLimits, WINDOW, WINDOW_LOG2};
use super::receiver::{Join, LaneLedger};
use super::verdict::Event;
use crate::{Checkpoint, Digest, EpochEnd};

impl LaneLedger {
    /// Takes what a checkpoint of this lane says. Its tag must have been checked.
    pub fn checkpoint(
        &mut self,
        checkpoint: &Checkpoint,
        now: Duration,
        limits: &LedgerLimits,
        digest: &impl Digest,
    ) {
        let mut claim = Claim::from(checkpoint);
        if checkpoint.window_log2 != WINDOW_LOG2 {
            self.events.push(Event::OtherWindows(claim.number));
            return;
        }
        self.scope(claim.size);
        // Who tells of a cut does not know which checkpoints were told before.
        let is_numbered = claim.end != EpochEnd::Cut;
        let is_new = if is_numbered {
            claim.number >= self.checkpoints
        } else {
            !self.over
        };
        if is_new {
            self.hear(now);
            self.idle = claim.size <= self.covered;
        }
        let is_beyond_end = self.reopen_if(|size| claim.size > size).is_some();
        let is_old = claim.number < self.checkpoints;
        let told = self.windows.told();
        let ends_below = claim.end == EpochEnd::Closed && claim.size < told;
        let is_of_another_root = self.windows.is_of_another_root(&claim);
        let contradicts = is_beyond_end
            || is_of_another_root
            || ends_below
            || is_numbered && is_old && claim.size > told.max(self.start.unwrap_or(0))
            || is_numbered && self.windows.is_contradicted_by(&claim);
        if contradicts {
            // Which of the two is the producer's is not known: the larger size counts, so that no
            // loss goes unseen.
            self.contradict(Event::CheckpointContradicts(claim.number));
        }
        if is_numbered && claim.number > self.checkpoints {
            let missed = self.checkpoints..claim.number;
            // What was told before a late joiner came is not missed.
            if self.checkpoints > 0 || self.join == Join::Beginning {
                self.events.push(Event::CheckpointsMissed(missed));
            }
        }
        if is_numbered {
            self.checkpoints = self.checkpoints.max(claim.number.saturating_add(1));
        }
        self.tell_tail(claim.size, now);
        self.covered = self.covered.max(claim.size);
        match claim.end {
            EpochEnd::Open => {}
            // That it says nothing any more means nothing.
            EpochEnd::Cut => self.over = true,
            EpochEnd::Closed => {
                if ends_below || !self.close(claim.size) {
                    claim.end = EpochEnd::Open;
                }
            }
        }
        let start = self.start.unwrap_or(0);
        if claim.size > start {
            self.reach(claim.size - 1, limits);
            if !is_of_another_root && self.windows.claim(&claim, start) {
                let window = claim.first / WINDOW;
                self.windows.take_detail(window, &checkpoint.detail);
            }
            self.review(digest);
        }
    }

    /// Takes what a directory says: so many messages were issued. For a lane of which nothing came,
    /// this is what shows that it was lost whole.
    pub fn listed(&mut self, size: u64, now: Duration) {
        self.scope(size);
        self.over = false;
        if self.closed.is_some() || size <= self.covered {
            return;
        }
        self.tell_tail(size, now);
        self.covered = size;
    }

    /// Takes it that no directory lists this epoch any more. Not over by that: anyone can have
    /// made the directory, and its last messages may be lost.
    pub fn unlisted(&mut self) {
        if self.closed.is_none() && !self.over {
            self.events.push(Event::Unlisted);
        }
    }

    /// Numbers from the next one on that a checkpoint or a directory told, and that have neither
    /// come nor been given up.
    pub fn outstanding(&self) -> Option<Range<u64>> {
        let told = self.tails.iter().map(|(size, _)| *size).max()?;
        (self.next < told).then_some(self.next..told)
    }

    /// Notes that a new checkpoint came, by which the producer is there. One that is known may be a
    /// copy that someone else sends.
    pub(super) fn hear(&mut self, now: Duration) {
        if std::mem::take(&mut self.silent) {
            let since = now.saturating_sub(self.heard);
            self.events.push(Event::Heard(since));
        }
        self.heard = now;
    }

    /// Notes that messages up to this size were issued, if that is news.
    pub(super) fn tell_tail(&mut self, size: u64, now: Duration) {
        let is_news = size > self.covered.max(self.next);
        if !is_news || self.join == Join::Member {
            return;
        }
        // No checkpoint names this size again: one more takes the place of the last, whose messages
        // wait with it.
        self.tails.truncate(TAILS_MAX - 1);
        self.tails.push((size, now));
    }
}

/// Sizes told ahead of their messages; with a heartbeat and a lateness bound of about one second
/// two are waited for, and one more for each window that was lost whole. Beyond it the last ones
/// are waited for together, as long as for the latest of them.
const TAILS_MAX: usize = 8;
