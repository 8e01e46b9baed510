//! The verdict for a new subscriber: counted when it subscribes, over all shards.
//!
//! ```text
//! SUBACK leaves -> StatsAsked to each other shard -> StatsAnswer from each -> the sentence
//! ```
//!
//! A subscription that matches the verdict's topic finds it as it would find a retained message. A
//! retained one would be as old as the interval of `$SYS`, and say of messages that the subscriber
//! has seen that there were none.
//!
//! Invariants:
//! - The counters of a round are read after the subscriptions that it answers were made. What is
//!   asked for while a round is under way is answered by the next one.
//! - At most [`VERDICTS_ASKED_MAX`] subscriptions wait. One more gets the next one that is
//!   published.

use unbroken_mqtt_proto::{TopicFilter, TopicName};

use crate::ids::SessionId;
use crate::limits::VERDICTS_ASKED_MAX;
use crate::telemetry::{Stats, VERDICT};

/// Subscriptions that wait for the verdict.
#[derive(Debug, Default)]
pub(crate) struct Verdicts {
    /// Answered by the round that is under way.
    asking: Vec<Asking>,
    /// Answered by the next one.
    next: Vec<Asking>,
    /// Shards that have not answered.
    missing: u8,
    sum: Box<Stats>,
}

/// A query of a session, by its token.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asking {
    pub(crate) session: SessionId,
    pub(crate) query: u64,
}

/// Whether a query for this filter finds the verdict.
pub(crate) fn finds_verdict(filter: &str) -> bool {
    let name = TopicName::parse(VERDICT);
    let filter = filter
        .starts_with("$SYS/")
        .then(|| TopicFilter::parse(filter));
    matches!((filter, name), (Some(Ok(filter)), Ok(name)) if filter.matches(name))
}

impl Verdicts {
    /// A query waits for the verdict. `None`: too many wait. True: a round is to begin.
    pub(crate) fn ask(&mut self, session: SessionId, query: u64) -> Option<bool> {
        if self.asking.len() + self.next.len() >= VERDICTS_ASKED_MAX {
            return None;
        }
        self.next.push(Asking { session, query });
        Some(self.asking.is_empty())
    }

    /// A round begins with the counters of this shard, and waits for those of so many others.
    pub(crate) fn begin(&mut self, others: u8, mine: Stats) {
        self.asking = std::mem::take(&mut self.next);
        self.missing = others;
        *self.sum = mine;
    }

    /// Another shard's counters, which were asked for.
    pub(crate) fn add(&mut self, theirs: &Stats) {
        self.sum.add(theirs);
        self.missing = self.missing.saturating_sub(1);
    }

    /// Whether all shards have answered.
    pub(crate) fn is_complete(&self) -> bool {
        self.missing == 0
    }

    /// Whether another round is to begin.
    pub(crate) fn is_asked_again(&self) -> bool {
        !self.next.is_empty()
    }

    /// What all shards have counted.
    pub(crate) fn sum(&self) -> &Stats {
        &self.sum
    }

    /// Takes the queries that this round answers.
    pub(crate) fn take_asking(&mut self) -> Vec<Asking> {
        std::mem::take(&mut self.asking)
    }
}
