//! The subscriptions of a session that stays, past ones while they may be needed.
//!
//! Invariant: a subscription that has ended is there as long as something above *through* may be
//! for it.

use std::num::NonZeroU32;

use unbroken_mqtt_proto::{SubscriptionFilter, SubscriptionOptions, TopicFilter, TopicName};

use super::Kept;
use crate::position::{Frontier, LogId, Position};

/// A subscription, and for which part of each log it holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Holding {
    /// As the client wrote it, `$share/…` included.
    pub filter: Box<str>,
    /// Counts the subscriptions with this filter that replaced each other, from 0.
    pub era: u32,
    /// As granted.
    pub options: SubscriptionOptions,
    /// The Subscription Identifier, if it has one.
    pub identifier: Option<NonZeroU32>,
    /// What is within came before it.
    pub since: Frontier,
    /// What is not within came after it.
    pub until: Option<Frontier>,
    /// What is retained is still to be sent for it, or some of it.
    pub retained_due: bool,
}

impl Holding {
    /// Whether it holds for something of every log.
    pub(crate) fn is_in_force(&self) -> bool {
        self.since.iter().all(|(_, number)| number != NOT_IN_FORCE)
    }

    /// Whether a message at this position is one that came while it held.
    pub(crate) fn holds_at(&self, position: Position) -> bool {
        !self.since.covers(position)
            && self
                .until
                .as_ref()
                .is_none_or(|until| until.covers(position))
    }

    /// The filter, if it is not that of a group: a group's messages are entries.
    pub(crate) fn plain(&self) -> Option<TopicFilter<'_>> {
        match SubscriptionFilter::parse(&self.filter) {
            Ok(SubscriptionFilter::Plain(filter)) => Some(filter),
            _ => None,
        }
    }

    pub(crate) fn matches(&self, topic: TopicName<'_>) -> bool {
        self.plain().is_some_and(|filter| filter.matches(topic))
    }
}

impl Kept {
    /// The present subscription with this filter.
    pub(crate) fn holding(&self, filter: &str) -> Option<&Holding> {
        let mut held = self.holdings.iter();
        held.find(|held| *held.filter == *filter && held.until.is_none())
    }

    fn holding_mut(&mut self, filter: &str) -> Option<&mut Holding> {
        let mut held = self.holdings.iter_mut();
        held.find(|held| *held.filter == *filter && held.until.is_none())
    }

    /// What is retained is to be sent for the present subscription with this filter.
    pub(crate) fn begin_scan(&mut self, filter: &str) {
        if let Some(holding) = self.holding_mut(filter) {
            holding.retained_due = true;
        }
    }

    /// All of that was sent. False if none was to be.
    pub(super) fn end_scan(&mut self, filter: &str) -> bool {
        let holding = self.holding_mut(filter);
        let was_due = holding.is_some_and(|held| std::mem::take(&mut held.retained_due));
        if was_due {
            self.under_way().scanned.push(filter.into());
        }
        was_due
    }

    /// Subscriptions for which that has come to its end since it was last asked, if they are still
    /// there.
    pub(super) fn take_scanned(&mut self) -> Vec<Holding> {
        let Some(under_way) = &mut self.under_way else {
            return Vec::new();
        };
        let filters = std::mem::take(&mut under_way.scanned);
        let present = filters.iter().filter_map(|filter| self.holding(filter));
        present.cloned().collect()
    }

    /// A subscription begins, maybe in place of one with the same filter: what has come to its end
    /// by that.
    pub(crate) fn subscribe(
        &mut self,
        filter: &str,
        options: SubscriptionOptions,
        identifier: Option<NonZeroU32>,
        tails: &Frontier,
    ) -> Option<Holding> {
        self.forget_filters();
        if let Some(holding) = self.holding_mut(filter)
            && holding.since.reaches(tails)
        {
            // Nothing has come for it as it was.
            holding.options = options;
            holding.identifier = identifier;
            return None;
        }
        let ended = self.unsubscribe(filter, tails);
        if self.holdings.is_empty() {
            self.holdings.reserve_exact(1); // most sleep with one, and sleepers are many
        }
        let eras = self.holdings.iter().filter(|held| *held.filter == *filter);
        self.holdings.push(Holding {
            filter: filter.into(),
            era: eras.map(|held| held.era + 1).max().unwrap_or(0),
            options,
            identifier,
            since: tails.clone(),
            until: None,
            // A scan goes on when its subscription is replaced.
            retained_due: ended.as_ref().is_some_and(|held| held.retained_due),
        });
        ended
    }

    /// A subscription holds for nothing of these logs until it [comes into
    /// force](Self::come_into_force) there.
    pub(crate) fn join(&mut self, filter: &str, logs: impl Iterator<Item = LogId>) {
        if let Some(holding) = self.holding_mut(filter) {
            for log in logs {
                holding.since.set(log, NOT_IN_FORCE);
            }
        }
    }

    /// From now on it holds for what comes into these logs. False if there is no such subscription.
    pub(crate) fn come_into_force(
        &mut self,
        filter: &str,
        logs: impl Iterator<Item = LogId>,
        tails: &Frontier,
    ) -> bool {
        let Some(holding) = self.holding_mut(filter) else {
            return false;
        };
        for log in logs {
            if holding.since.of(log) == NOT_IN_FORCE {
                holding.since.set(log, tails.of(log));
            }
        }
        true
    }

    /// A subscription ends. It stays until all before its end was given to the session.
    pub(crate) fn unsubscribe(&mut self, filter: &str, tails: &Frontier) -> Option<Holding> {
        let holding = self.holding_mut(filter)?;
        holding.until = Some(tails.clone());
        Some(holding.clone())
    }

    fn forget_filters(&mut self) {
        if let Some(backlog) = &mut self.backlog {
            backlog.forget_filters();
        }
    }

    /// Takes out the subscriptions that nothing above `through` can be for.
    pub(super) fn take_past(&mut self, through: &Frontier) -> Vec<(Box<str>, u32)> {
        let past = |held: &mut Holding| {
            held.until
                .as_ref()
                .is_some_and(|until| through.reaches(until))
        };
        let past = self.holdings.extract_if(.., past);
        past.map(|held| (held.filter, held.era)).collect()
    }
}

/// Where a subscription begins in the log of a shard that does not know of it yet.
const NOT_IN_FORCE: u64 = u64::MAX;
