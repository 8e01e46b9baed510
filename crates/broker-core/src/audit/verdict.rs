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

use std::sync::Arc;
use std::time::Instant;

use unbroken_mqtt_proto::{TopicFilter, TopicName};

use crate::ids::{SessionId, ShardId};
use crate::limits::VERDICTS_ASKED_MAX;
use crate::mail::Letter;
use crate::message::Message;
use crate::shard::Shard;
use crate::sys::sys_publication;
use crate::telemetry::{Stats, VERDICT, sentence};

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
struct Asking {
    session: SessionId,
    query: u64,
}

/// Whether a query for this filter finds the verdict.
pub(crate) fn finds_verdict(filter: &str) -> bool {
    let name = TopicName::parse(VERDICT);
    let filter = filter
        .starts_with("$SYS/")
        .then(|| TopicFilter::parse(filter));
    matches!((filter, name), (Some(Ok(filter)), Ok(name)) if filter.matches(name))
}

impl Shard {
    /// A query waits for the verdict.
    pub(crate) fn ask_for_verdict(&mut self, now: Instant, session: SessionId, query: u64) {
        let verdicts = &mut self.verdicts;
        if verdicts.asking.len() + verdicts.next.len() >= VERDICTS_ASKED_MAX {
            return self.end_asking(Asking { session, query }, None);
        }
        verdicts.next.push(Asking { session, query });
        if verdicts.asking.is_empty() {
            self.begin_verdict(now);
        }
    }

    fn begin_verdict(&mut self, now: Instant) {
        let others = self.options.shards - 1;
        self.verdicts.asking = std::mem::take(&mut self.verdicts.next);
        self.verdicts.missing = others;
        *self.verdicts.sum = self.stats_now(now);
        for shard in (0..self.options.shards).map(ShardId) {
            if shard != self.options.id {
                self.mail(shard, Letter::StatsAsked);
            }
        }
        if others == 0 {
            self.tell_verdict(now);
        }
    }

    /// Another shard's counters, which were asked for.
    pub(crate) fn take_stats(&mut self, now: Instant, stats: &Stats) {
        self.verdicts.sum.add(stats);
        self.verdicts.missing = self.verdicts.missing.saturating_sub(1);
        if self.verdicts.missing == 0 {
            self.tell_verdict(now);
            if !self.verdicts.next.is_empty() {
                self.begin_verdict(now);
            }
        }
    }

    fn tell_verdict(&mut self, now: Instant) {
        let sentence = sentence(&self.verdicts.sum, &self.options.settings.audit);
        let publication = sys_publication(now, VERDICT, &sentence);
        let message = Arc::new(Message::new(&publication, None));
        for asking in std::mem::take(&mut self.verdicts.asking) {
            self.end_asking(asking, Some(&message));
            self.pump(now, asking.session);
        }
    }

    fn end_asking(&mut self, asking: Asking, found: Option<&Arc<Message>>) {
        let Asking { session, query } = asking;
        self.clients.retained.end_wait(session, query, found);
    }
}
