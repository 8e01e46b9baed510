//! Messages in the logs that wait for one session, counted one by one as its broker would.
//!
//! Invariant: a message counts if a subscription that is no group's held when it came in, matches
//! its topic and grants it QoS 1 or 2, and the session was not given it. What a group has given is
//! in flight, and is not here.
//!
//! Deliberately absent: the broker's memory. Of a client that is connected the disk is half a
//! second late, and what is too much for a session counts until the broker has read and dropped it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use unbroken_mqtt_proto::{QoS, SubscriptionFilter, TopicFilter, TopicName};
use unbroken_store::session::{Carried, Subscription};
use unbroken_store::{Bounds, Entry, LogId, Position, Selection, Sequence, StoreError, View};

use super::PIECE_BYTES;
use super::session::Session;

/// Messages, and the bytes of their records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Queued {
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
}

/// Counts what waits for a session. Costs what its filters match above the place where it is.
pub(crate) fn count(
    view: &dyn View,
    session: &Session,
    bounds: &BTreeMap<LogId, Bounds>,
) -> Result<Queued, StoreError> {
    let waiting = Waiting::new(session);
    let mut queued = Queued::default();
    for (log, bounds) in bounds {
        waiting.each(view, *log, *bounds, PIECE_BYTES, |entry| {
            queued.messages += 1;
            queued.bytes += entry.message.as_bytes().len() as u64;
            ControlFlow::Continue(())
        })?;
    }
    Ok(queued)
}

/// The first message of a log that waits for a session. Costs what is read to find it.
pub(crate) fn first(
    view: &dyn View,
    session: &Session,
    log: LogId,
    bounds: Bounds,
) -> Result<Option<Sequence>, StoreError> {
    let mut first = None;
    Waiting::new(session).each(view, log, bounds, FIRST_BYTES, |entry| {
        first = Some(entry.sequence);
        ControlFlow::Break(())
    })?;
    Ok(first)
}

/// Which messages wait for a session.
struct Waiting<'a> {
    session: &'a Session,
    plain: Vec<(&'a Subscription, TopicFilter<'a>)>,
    wanted: Selection,
    given: BTreeSet<Position>,
}

impl<'a> Waiting<'a> {
    fn new(session: &'a Session) -> Self {
        let plain: Vec<_> = session.subscriptions.iter().filter_map(plain).collect();
        let given = session.outbound.iter();
        let given = given.filter_map(|entry| match entry.what {
            Carried::Log(at) => Some(at),
            Carried::Own(_) => None,
        });
        Self {
            session,
            wanted: Selection::new(plain.iter().map(|(_, filter)| *filter)),
            plain,
            given: given.collect(),
        }
    }

    /// Calls `take` with each message of a log, in order, until it breaks.
    fn each(
        &self,
        view: &dyn View,
        log: LogId,
        bounds: Bounds,
        bytes_max: usize,
        mut take: impl FnMut(&Entry) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        let Some(place) = self.session.place(log) else {
            return Ok(());
        };
        let mut from = place.next().max(bounds.first);
        while from < bounds.next {
            let chunk = view.read_matching(log, from..bounds.next, &self.wanted, bytes_max)?;
            for entry in &chunk.entries {
                let sequence = entry.sequence;
                let was_given = self.given.contains(&Position { log, sequence });
                let waits = !was_given && is_owed(self.session, &self.plain, log, entry);
                if waits && take(entry).is_break() {
                    return Ok(());
                }
            }
            from = chunk.next;
        }
        Ok(())
    }
}

/// The filter of a subscription that is not a group's.
fn plain(held: &Subscription) -> Option<(&Subscription, TopicFilter<'_>)> {
    match SubscriptionFilter::parse(&held.filter) {
        Ok(SubscriptionFilter::Plain(filter)) => Some((held, filter)),
        _ => None,
    }
}

fn is_owed(
    session: &Session,
    plain: &[(&Subscription, TopicFilter<'_>)],
    log: LogId,
    entry: &Entry,
) -> bool {
    let record = entry.message.record();
    let own = record.publisher == Some(session.head.client_id.as_str());
    record.qos > QoS::AtMostOnce
        && TopicName::parse(record.topic).is_ok_and(|topic| {
            plain.iter().any(|(held, filter)| {
                held.options.qos > QoS::AtMostOnce
                    && !(own && held.options.no_local)
                    && holds_at(held, log, entry.sequence)
                    && filter.matches(topic)
            })
        })
}

fn holds_at(held: &Subscription, log: LogId, sequence: Sequence) -> bool {
    match held.ranges.iter().find(|holding| holding.log == log) {
        Some(holding) => {
            holding.from <= sequence && holding.until.is_none_or(|until| sequence < until)
        }
        None => !held.ended,
    }
}

/// Read at once to find the first message: it is usually the first that matches.
const FIRST_BYTES: usize = 4 * 1024;
