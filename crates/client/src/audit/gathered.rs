//! Messages that a processor leaves out, until it says so: a record for many of them costs what a
//! record for one does.
//!
//! What is gathered is not acknowledged to the broker. If the processor ends before it was said,
//! the messages come again.

use std::collections::BTreeMap;
use std::time::Duration;

use unbroken_merkle_log::{DropReason, DropRecord, Epoch, LaneId, Property};

use crate::inbox::Acknowledgement;

/// Inputs to be left out, all for one reason.
#[derive(Debug)]
pub(super) struct LeftOut {
    pub(super) reason: DropReason,
    /// They and what they were made of.
    pub(super) lineage: Vec<Property>,
    /// The lanes of the inputs themselves.
    pub(super) lanes: Vec<LaneId>,
    /// May be acknowledged once it is said.
    pub(super) releases: Vec<Acknowledgement>,
}

#[derive(Debug, Default)]
pub(super) struct Gathered {
    messages: BTreeMap<(LaneId, Epoch, DropReason), Vec<Property>>,
    releases: Vec<Acknowledgement>,
    len: usize,
    since: Option<Duration>,
}

impl Gathered {
    pub(super) fn put(&mut self, left_out: LeftOut, now: Duration) {
        let reason = left_out.reason;
        self.len += left_out.lineage.len();
        for property in left_out.lineage {
            let record = (property.lane, property.epoch, reason);
            self.messages.entry(record).or_default().push(property);
        }
        self.releases.extend(left_out.releases);
        self.since.get_or_insert(now);
    }

    /// How many messages.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// By when it should be said.
    pub(super) fn due(&self) -> Option<Duration> {
        Some(self.since? + LONGEST)
    }

    /// All of them, and what may be acknowledged once the last record is said.
    pub(super) fn take(&mut self) -> (Vec<DropRecord>, Vec<Acknowledgement>) {
        let Self {
            messages, releases, ..
        } = std::mem::take(self);
        let records = messages.iter();
        let records =
            records.filter_map(|((.., reason), dropped)| DropRecord::of(*reason, dropped));
        (records.collect(), releases)
    }
}

/// How long a message that is left out may wait to be said, unless a checkpoint comes first.
const LONGEST: Duration = Duration::from_secs(1);
