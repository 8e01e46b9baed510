//! What waits for a session on disk and not in memory, and how it is read back.
//!
//! ```text
//!   live:    routed -> queue in memory -> client          a client that keeps up
//!   behind:  routed -> counted                            away, or too much waits
//!            log -> read -> matched again -> queue -> client
//!   live again once it has read all that this shard has routed
//! ```
//!
//! Nothing is kept in memory for a session that is behind but a place in each log. A log is read
//! through all subscriptions that the session had at the time, so a message is found exactly if it
//! was routed to the session then; what was counted and what is found are compared.
//!
//! Invariants:
//! - What all logs had at the last start is read before anything beyond it. A broker that began
//!   with another number of shards has other homes for publishers, and each keeps its order.
//! - A session becomes live between two inputs, when it has read up to the last message that this
//!   shard has had of each log. So there is neither a gap nor a repetition.
//! - All that waits is counted, what is older than the broker's start by the recovery scan. While
//!   it exceeds the queue limits, what is read is dropped by name, and that is the oldest; where
//!   publishers are refused instead nothing is dropped.
//! - At most one read of a session is under way, and none of a client's while anything waits in its
//!   queue.
//!
//! Deliberately absent: reading. The driver does it, and answers with what is on disk.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Instant;

use unbroken_mqtt_proto::{QoS, TopicName};

use crate::ids::LogId;
use crate::limits::EARLY_MAX;
use crate::message::Message;
use crate::option_box::OptionBox;
use crate::position::{Frontier, Position};
use crate::routing::Terms;
use crate::session::{Identifiers, Kept};

/// What waits for a session on disk.
#[derive(Debug)]
pub(crate) struct Backlog {
    /// All up to here was read, or came before the session fell behind.
    pub(crate) read: Frontier,
    /// Messages and bytes that were routed to the session since, and not read.
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
    /// Where the first of those is, if all are counted.
    pub(crate) first: Option<Frontier>,
    /// What waits from before the broker started, while not all of it is counted.
    pub(crate) uncounted: Option<Box<Uncounted>>,
    /// Counted, and found.
    pub(crate) counted: u64,
    pub(crate) found: u64,
    /// What was under way when the broker stopped, if anything was: it lies beyond what is read,
    /// and is an entry.
    pub(crate) under_way: OptionBox<BTreeSet<Position>>,
    /// What came before its time, if anything did.
    pub(crate) early: Option<Box<Early>>,
    /// Names the read that is under way.
    pub(crate) reading: Option<NonZeroU64>,
    /// What to read, until a subscription changes.
    pub(crate) filters: Option<Arc<[Box<str>]>>,
    /// When the oldest message that waits came; not later.
    pub(crate) oldest: Option<Instant>,
    /// What may not wait any longer is being dropped.
    pub(crate) advance: Option<Box<Advance>>,
}

/// What waits from before the broker started, as far as somebody has looked.
#[derive(Debug)]
pub(crate) struct Uncounted {
    /// All up to here is counted, or was read.
    pub(crate) through: Frontier,
    /// When the oldest message came of all that are counted.
    pub(crate) oldest: Option<Instant>,
    /// It is to be counted by the recovery scan.
    pub(crate) is_listed: bool,
}

/// What was routed to the session by subscriptions before they were in force where it came in. The
/// log has more from then that they match, and that was not routed here.
#[derive(Debug, Default)]
pub(crate) struct Early {
    pub(crate) messages: BTreeMap<Position, TermsThen>,
}

/// How far it is known, of each log, what may stay.
#[derive(Debug, Default)]
pub(crate) struct Advance {
    /// Logs whose first message for the session may stay.
    pub(crate) settled: Vec<LogId>,
    /// When the oldest of those came.
    pub(crate) oldest: Option<Instant>,
}

impl Backlog {
    /// From here on nothing is kept in memory.
    pub(crate) fn from(read: Frontier) -> Self {
        Self {
            read,
            messages: 0,
            bytes: 0,
            first: None,
            uncounted: None,
            counted: 0,
            found: 0,
            under_way: OptionBox::default(),
            early: None,
            reading: None,
            filters: None,
            oldest: None,
            advance: None,
        }
    }

    /// As the disk has it, of a session that may have waited since then.
    pub(crate) fn restored(
        read: Frontier,
        under_way: impl IntoIterator<Item = Position>,
        oldest: Instant,
    ) -> Self {
        let mut backlog = Self::from(read);
        backlog.uncounted = Some(Box::new(Uncounted {
            through: backlog.read.clone(),
            oldest: None,
            is_listed: false,
        }));
        backlog.oldest = Some(oldest);
        let under_way: BTreeSet<_> = under_way.into_iter().collect();
        if !under_way.is_empty() {
            backlog.under_way = under_way.into();
        }
        backlog
    }

    pub(crate) fn forget_filters(&mut self) {
        self.filters = None;
    }

    /// Up to where it does not need any log.
    pub(crate) fn needs<'a>(&'a self, tails: &'a Frontier) -> &'a Frontier {
        match &self.first {
            _ if self.uncounted.is_some() || self.reading.is_some() => &self.read,
            Some(first) => first,
            None => tails,
        }
    }

    /// A message was routed to the session.
    pub(crate) fn count(
        &mut self,
        position: Position,
        tails: &Frontier,
        stamp: Instant,
        bytes: u64,
    ) {
        let first = self.first.get_or_insert_with(|| tails.clone());
        first.lower(position);
        let oldest = match &mut self.uncounted {
            Some(uncounted) => &mut uncounted.oldest,
            None => &mut self.oldest,
        };
        *oldest = Some(oldest.map_or(stamp, |other| other.min(stamp)));
        self.counted += 1;
        self.messages += 1;
        self.bytes += bytes;
    }

    /// No read is under way for it.
    pub(crate) fn is_idle(&self) -> bool {
        self.reading.is_none() && self.advance.is_none()
    }

    pub(crate) fn has_many_early(&self) -> bool {
        let early = self.early.as_deref();
        early.is_some_and(|early| early.messages.len() >= EARLY_MAX)
    }

    /// All that waits was counted.
    pub(crate) fn is_counted(&self) -> bool {
        self.uncounted.is_none()
    }

    /// Among how many messages it is not known which wait, where the broker started with those up
    /// to `tails`.
    pub(crate) fn uncounted_of(&self, tails: &Frontier) -> u64 {
        let Some(uncounted) = &self.uncounted else {
            return 0;
        };
        let logs = tails.iter();
        let of = logs.map(|(log, last)| {
            let known = uncounted.through.of(log).max(self.read.of(log));
            last.saturating_sub(known)
        });
        of.sum()
    }

    /// All up to here was read.
    pub(crate) fn read_through(&mut self, log: LogId, number: u64) {
        let through = Position { log, number };
        self.read.raise(through);
        if let Some(first) = &mut self.first {
            first.raise(through);
        }
        if let Some(early) = &mut self.early {
            let messages = &mut early.messages;
            messages.retain(|position, _| !self.read.covers(*position));
            self.early.take_if(|early| early.messages.is_empty());
        }
    }

    /// A message was found that came before the broker started, if it is within `tails`: true if
    /// it is counted only now.
    pub(crate) fn count_found(&mut self, position: Position, tails: &Frontier, bytes: u64) -> bool {
        let uncounted = self.uncounted.as_ref();
        let is_new = uncounted.is_some_and(|uncounted| !uncounted.through.covers(position))
            && tails.covers(position);
        if is_new {
            self.counted += 1;
            self.messages += 1;
            self.bytes += bytes;
        }
        is_new
    }

    /// A message was found that does not wait here any more; true if it was counted.
    pub(crate) fn take(&mut self, bytes: u64) -> bool {
        self.found += 1;
        let was_counted = self.messages > 0;
        if was_counted {
            self.messages -= 1;
            self.bytes = self.bytes.saturating_sub(bytes);
        }
        was_counted
    }

    /// What is left in all logs may stay.
    pub(crate) fn end_advance(&mut self) {
        let Some(advance) = self.advance.take() else {
            return;
        };
        let Advance { settled, oldest } = *advance;
        self.oldest = oldest;
        self.first = (!settled.is_empty()).then(|| self.read.clone());
        if settled.is_empty() {
            self.uncounted = None;
        }
        if let Some(uncounted) = &mut self.uncounted {
            uncounted.oldest = oldest;
        }
    }

    /// All is counted that waits from before the broker started, and came up to `tails`. Answers
    /// whether that says more than was known of how far the session is.
    pub(crate) fn end_count(&mut self, tails: &Frontier) -> bool {
        let Some(uncounted) = self.uncounted.take() else {
            return false;
        };
        self.oldest = uncounted.oldest;
        let before = self.read.clone();
        // What is not counted is not for it.
        let nothing_before = self.first.as_ref().unwrap_or(tails);
        for (log, number) in nothing_before.iter() {
            self.read.raise(Position { log, number });
        }
        let read = &self.read;
        self.under_way.clear_if(|under_way| {
            under_way.retain(|position| !read.covers(*position));
            under_way.is_empty()
        });
        self.forget_filters();
        self.read != before
    }
}

/// What a session is to get of a message that was stored.
#[derive(Clone, Debug)]
pub(crate) struct TermsThen {
    pub(crate) qos: QoS,
    pub(crate) retain: bool,
    pub(crate) identifiers: Identifiers,
}

impl TermsThen {
    pub(crate) fn of(terms: Terms<'_>, published: QoS) -> Self {
        Self {
            qos: terms.qos.min(published),
            retain: terms.retain,
            identifiers: Identifiers::from_slice(terms.identifiers),
        }
    }

    pub(crate) fn terms(&self) -> Terms<'_> {
        Terms {
            qos: self.qos,
            retain: self.retain,
            identifiers: &self.identifiers,
            group: None,
            is_denied: false, // judged when it leaves
        }
    }
}

impl Kept {
    /// Whether the session will find this message, which was routed to it.
    pub(crate) fn finds(&self, client_id: &str, position: Position, message: &Message) -> bool {
        self.subscriptions.all_in_force() || self.terms(client_id, position, message).is_some()
    }

    /// How a message that was read goes to the session: not if it was given to it before.
    pub(crate) fn terms_of_read(
        &mut self,
        client_id: &str,
        message: &Message,
    ) -> Option<TermsThen> {
        let position = message.position()?;
        let early = self.backlog.as_deref()?.early.as_deref();
        let early = early.and_then(|early| early.messages.get(&position));
        let early = early.cloned();
        let terms = early.or_else(|| self.terms(client_id, position, message))?;
        let backlog = self.backlog.as_deref_mut()?;
        let is_read = backlog.read.covers(position);
        let under_way = backlog.under_way.get_mut().filter(|_| !is_read);
        let was_under_way = under_way.is_some_and(|all| all.remove(&position));
        (!is_read && !was_under_way).then_some(terms)
    }

    /// Whether a message waits for the session that is neither read nor counted.
    pub(crate) fn waits_uncounted(&self, client_id: &str, message: &Message) -> bool {
        let (Some(position), Some(backlog)) = (message.position(), self.backlog.as_deref()) else {
            return false;
        };
        let uncounted = backlog.uncounted.as_ref();
        let under_way = backlog.under_way.get();
        !backlog.read.covers(position)
            && !under_way.is_some_and(|all| all.contains(&position))
            && uncounted.is_some_and(|uncounted| !uncounted.through.covers(position))
            && self.terms(client_id, position, message).is_some()
    }

    /// By the subscriptions that held when it came: as it was routed then [MQTT-3.3.4-2].
    pub(crate) fn terms(
        &self,
        client_id: &str,
        position: Position,
        message: &Message,
    ) -> Option<TermsThen> {
        let publication = message.publication();
        let topic = TopicName::parse(publication.topic).ok()?;
        let own = message
            .publisher()
            .is_some_and(|publisher| **publisher == *client_id);
        let mut found: Option<TermsThen> = None;
        self.subscriptions.on(topic, |held| {
            if !held.holds_at(position) || own && held.options.no_local {
                return;
            }
            let terms = found.get_or_insert(TermsThen {
                qos: QoS::AtMostOnce,
                retain: false,
                identifiers: Identifiers::new(),
            });
            terms.qos = terms.qos.max(held.options.qos);
            terms.retain |= held.options.retain_as_published;
            terms.identifiers.extend(held.identifier);
        });
        let mut terms = found?;
        terms.qos = terms.qos.min(publication.qos);
        terms.retain &= publication.retain;
        (terms.qos > QoS::AtMostOnce).then_some(terms)
    }
}
