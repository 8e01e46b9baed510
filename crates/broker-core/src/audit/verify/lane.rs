//! A lane that its publisher numbers: its ledger, and what is known beside that.

mod found;
mod info;
mod losses;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use unbroken_merkle_log::ledger::LaneLedger;
use unbroken_merkle_log::{Epoch, LaneId, Xxh3};

pub(super) use self::found::Fault;
pub use self::info::{LaneCheckpoint, LaneInfo};
use self::losses::Losses;
use crate::audit::owners::Sender;
use crate::durability::LaneState;

/// One epoch of a lane, as its publisher sends it.
#[derive(Debug)]
pub(in crate::audit) struct Lane {
    /// Who publishes it here.
    pub(super) owner: Sender,
    pub(super) ledger: LaneLedger,
    /// Time in which the client was connected.
    pub(super) clock: Duration,
    /// Messages of it that the rules have left out.
    pub(super) left_out: u64,
    /// Numbers that were refused, and have not come again.
    pub(super) refused: BTreeSet<u64>,
    /// Where the window begins whose root was last reported to differ.
    differs: Option<u64>,
    /// Numbers below this may have come before the broker was killed, and the ledger does not know
    /// of it. [`ALL`] until the publisher has said how far it is.
    may_have_come: u64,
    /// It was opened, or a message of it was stored, since its ledger was.
    pub(super) is_unstored: bool,
    /// Its publisher has said that it is over.
    pub(super) is_closed: bool,
    /// One more than the highest number that was seen.
    pub(super) seen: u64,
    /// What an operator is shown of its proof.
    pub(super) proof: Proof,
    /// What was lost, and not sent again since.
    losses: Losses,
}

/// How far the proof of a lane is.
#[derive(Clone, Copy, Default, Debug)]
pub(in crate::audit) struct Proof {
    /// What its last checkpoint covers, and when that came.
    pub(in crate::audit) checkpoint: Option<(u64, Instant)>,
    /// Since when messages wait that no checkpoint covers: since the first of them came, or since
    /// the last checkpoint, which left them out.
    pub(in crate::audit) open_since: Option<Instant>,
    /// How long the last message waited that a checkpoint covered.
    pub(in crate::audit) took: Option<Duration>,
    /// Windows that are proven, faulty and unproven.
    pub(in crate::audit) windows: [u64; 3],
    /// The first number of the last of them, and which it is: it may be reported again.
    pub(in crate::audit) window: Option<(u64, usize)>,
    /// Messages that were lost, and not sent again since.
    pub(in crate::audit) lost: u64,
}

impl Proof {
    /// A message has come, perhaps again.
    pub(in crate::audit) fn note_arrival(&mut self, number: u64, at: Instant) {
        if number >= self.covered() {
            self.open_since.get_or_insert(at);
        }
    }

    /// A checkpoint of so many messages has come; so many were `seen`. One that says less than an
    /// earlier one says nothing new.
    fn note_checkpoint(&mut self, size: u64, seen: u64, at: Instant) {
        let covered = self.covered();
        if size < covered {
            return;
        }
        self.checkpoint = Some((size, at));
        if size > covered {
            if let Some(since) = self.open_since {
                self.took = Some(at.saturating_duration_since(since));
            }
            self.open_since = (size < seen).then_some(at);
        }
    }

    /// The messages that a checkpoint covers.
    fn covered(&self) -> u64 {
        self.checkpoint.map_or(0, |(size, _)| size)
    }

    /// A window has come to this: proven, faulty or unproven.
    pub(in crate::audit) fn note_window(&mut self, first: u64, at: usize) {
        if let Some((_, before)) = self.window.filter(|(last, _)| *last == first) {
            self.windows[before] -= 1;
        }
        self.windows[at] += 1;
        self.window = Some((first, at));
    }
}

impl Lane {
    pub(in crate::audit) fn new(owner: Sender, ledger: LaneLedger, clock: Duration) -> Self {
        // What a lane that was joined late begins with was not seen.
        let seen = Some(ledger.next()).filter(|next| *next > ledger.scope_start());
        Self {
            owner,
            clock,
            left_out: 0,
            refused: BTreeSet::new(),
            differs: None,
            may_have_come: 0,
            is_unstored: false,
            is_closed: false,
            seen: seen.unwrap_or(0),
            proof: Proof::default(),
            losses: Losses::default(),
            ledger,
        }
    }

    /// Messages may have come since it was put on disk, and these were refused before.
    pub(in crate::audit) fn cut_off(mut self, refused: &[u64]) -> Self {
        self.may_have_come = ALL;
        self.refused.extend(refused);
        self
    }

    /// As it is put on disk, and the bytes of its ledger.
    pub(super) fn state(&self, (lane, epoch): (LaneId, Epoch)) -> (LaneState, usize) {
        let mut ledger = Vec::new();
        self.ledger.save(&Xxh3, &mut ledger);
        let length = ledger.len();
        let state = LaneState::Own {
            client_id: Arc::clone(&self.owner.client_id),
            user: self.owner.user.clone(),
            lane: lane.value(),
            epoch: epoch.0,
            connected: self.clock,
            refused: self.refused.iter().copied().collect(),
            ledger,
        };
        (state, length)
    }

    /// Its publisher says how far it is. What it says again it may have said before the broker was
    /// killed, and before what it sent last.
    pub(super) fn hear(&mut self, size: u64, again: bool, at: Instant) {
        self.proof.note_checkpoint(size, self.seen, at);
        if self.may_have_come == ALL && !again && size >= self.ledger.next() {
            self.may_have_come = size;
        }
    }

    /// A message was sent again for a receiver. Answers whether it was lost.
    pub(super) fn note_sent_again(&mut self, number: u64) -> bool {
        let was_lost = self.losses.remove(number);
        self.proof.lost = self.proof.lost.saturating_sub(u64::from(was_lost));
        was_lost
    }

    /// Whether nothing more of it is expected.
    pub(super) fn is_over(&self) -> bool {
        self.is_closed && self.ledger.is_settled_below(self.ledger.next())
    }

    pub(super) fn is_in_part(&self) -> bool {
        self.left_out > 0
    }

    /// Whether it can go on after a restart: what was refused may come yet.
    pub(super) fn is_exact(&self) -> bool {
        let may_have_come = self.may_have_come;
        let knows_all = may_have_come == 0
            || may_have_come < ALL && self.ledger.is_settled_below(may_have_come);
        !self.is_in_part() && self.refused.is_empty() && knows_all
    }
}

/// Every number, for all that is known.
const ALL: u64 = u64::MAX;
