//! Room for retained messages: what the broker's limits leave, and each taker's share of it.
//!
//! Invariants:
//! - A message of QoS 1 or 2 has its room before it is taken in, so that its acknowledgement
//!   promises nothing that a limit could undo. The room is counted as taken until the message is
//!   there, or is given back.
//! - Who replaces a message by one no larger needs no room.
//!
//! What was promised to a message that was to replace another is not enough if somebody removes
//! that one meanwhile. The message is kept beyond the limit then, and so is what the audit adds to
//! it: one message at most for each connection.

use std::sync::Arc;

use super::Kept;
use crate::limits::Limits;
use crate::settings::Totals;
use crate::shares::{Full, Reserved, Shares, Table, Taker};

#[derive(Debug)]
pub(super) struct RetainedRoom {
    /// What all shards retain.
    totals: Arc<Totals>,
    messages: Shares,
    bytes: Shares,
}

impl RetainedRoom {
    pub(super) fn new(totals: Arc<Totals>, seed: u64, shards: u8) -> Self {
        Self {
            totals,
            messages: Shares::new(seed, shards),
            bytes: Shares::new(seed, shards),
        }
    }

    /// Promises room for a message of so many bytes, in place of the one that its topic has.
    pub(super) fn reserve(
        &self,
        bytes: u64,
        old: Option<&Kept>,
        taker: Taker<'_>,
        limits: &Limits,
    ) -> Result<Reserved, Full> {
        let old = size_of(old);
        let reserved = Reserved {
            messages: 1u64.saturating_sub(old.messages),
            bytes: bytes.saturating_sub(old.bytes),
        };
        let (messages, bytes) = (self.messages.held(taker), self.bytes.held(taker));
        let judge_messages = |table: Table| table.judge(reserved.messages, messages);
        let judge_bytes = |table: Table| table.judge(reserved.bytes, bytes);
        self.take(reserved, limits, judge_messages, judge_bytes)
    }

    /// The same for a message of any topic and of any client, while so much is free that no
    /// client can have more than its share.
    pub(super) fn reserve_for_any(&self, bytes: u64, limits: &Limits) -> Option<Reserved> {
        let reserved = Reserved { messages: 1, bytes };
        let judge_messages = |table: Table| table.judge_for_any(reserved.messages);
        let judge_bytes = |table: Table| table.judge_for_any(reserved.bytes);
        self.take(reserved, limits, judge_messages, judge_bytes)
            .ok()
    }

    fn take(
        &self,
        reserved: Reserved,
        limits: &Limits,
        judge_messages: impl Fn(Table) -> Result<(), Full>,
        judge_bytes: impl Fn(Table) -> Result<(), Full>,
    ) -> Result<Reserved, Full> {
        let Reserved { messages, bytes } = reserved;
        let totals = &self.totals;
        let messages_max = limits.retained_messages_max.into();
        let total = &totals.retained_messages;
        total.take(messages, messages_max, judge_messages)?;
        let bytes_max = limits.retained_bytes_max;
        let taken = totals.retained_bytes.take(bytes, bytes_max, judge_bytes);
        if taken.is_err() {
            total.subtract(messages);
        }
        taken.map(|()| reserved)
    }

    /// Gives back what was promised to a message that does not come.
    pub(super) fn release(&self, reserved: Reserved) {
        self.totals.retained_messages.subtract(reserved.messages);
        self.totals.retained_bytes.subtract(reserved.bytes);
    }

    /// Counts one message in place of another, and of what was promised to it.
    pub(super) fn replace(&mut self, old: Option<&Kept>, new: Option<&Kept>, reserved: Reserved) {
        let (before, after) = (size_of(old), size_of(new));
        let totals = &self.totals;
        let promised = before.messages + reserved.messages;
        totals.retained_messages.replace(promised, after.messages);
        let promised = before.bytes + reserved.bytes;
        totals.retained_bytes.replace(promised, after.bytes);
        if let Some(old) = old {
            self.messages.subtract(old.taker(), before.messages);
            self.bytes.subtract(old.taker(), before.bytes);
        }
        if let Some(new) = new {
            self.messages.add(new.taker(), after.messages);
            self.bytes.add(new.taker(), after.bytes);
        }
    }
}

/// What counts of a message: nothing of the broker's own.
fn size_of(kept: Option<&Kept>) -> Reserved {
    let message = kept.map(|kept| &kept.message);
    let message = message.filter(|message| message.publisher().is_some());
    message.map_or_else(Reserved::default, |message| Reserved {
        messages: 1,
        bytes: message.publication().cost(),
    })
}
