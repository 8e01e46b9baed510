//! Everything in a store read and checked: what there is, who holds it, and what is wrong.
//!
//! Messages are read twice, by number and by topic, so that the index is read as well and found to
//! know all of them. Damage is told with its place and passed over.

use std::collections::BTreeMap;

use unbroken_mqtt_proto::TopicFilter;
use unbroken_store::session::Carried;
use unbroken_store::{
    Bounds, Entry, LogId, Selection, Sequence, Space, StoreError, View, check_value,
};

use super::session::{self, Session};
use super::{PIECE_BYTES, each, sessions};

/// What there is.
#[derive(Debug, Default)]
pub(crate) struct Examined {
    pub(crate) logs: Vec<LogFacts>,
    pub(crate) spaces: Vec<SpaceFacts>,
    pub(crate) sessions: u64,
    /// Those whose client is not connected.
    pub(crate) away: u64,
    /// Of all sessions.
    pub(crate) subscriptions: u64,
    /// Messages that sessions were given and have not done with, for each session.
    pub(crate) in_flight: u64,
    /// Sessions that hold something in the logs, those that hold the oldest first.
    pub(crate) holders: Vec<Holder>,
    /// What is wrong, a sentence each.
    pub(crate) wrong: Vec<String>,
}

#[derive(Debug)]
pub(crate) struct LogFacts {
    pub(crate) log: LogId,
    pub(crate) bounds: Bounds,
    pub(crate) messages: u64,
    /// Of the records.
    pub(crate) bytes: u64,
    /// When its oldest message came in.
    pub(crate) oldest_ms: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct SpaceFacts {
    pub(crate) space: Space,
    pub(crate) values: u64,
    /// Of keys and values.
    pub(crate) bytes: u64,
}

/// A session that has not been given all that is in the logs.
#[derive(Debug)]
pub(crate) struct Holder {
    pub(crate) client_id: String,
    pub(crate) away_since_ms: Option<u64>,
    /// When the oldest message came in that it may still want.
    pub(crate) oldest_ms: u64,
    /// From there on, whether it wants them or not.
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
    /// When the first of them came in that its filters match, or that it was given.
    pub(crate) wanted_since_ms: Option<u64>,
    places: BTreeMap<LogId, Sequence>,
    filters: Vec<String>,
    is_given: bool,
}

/// Reads all of it. An error is one of reading that says nothing about what is there.
pub(crate) fn examine(view: &dyn View) -> Result<Examined, StoreError> {
    let mut examined = Examined::default();
    let bounds = sessions::bounds(view)?;
    let mut holders = Vec::new();
    let read = session::each(view, |session| {
        match session {
            Ok(session) => {
                examined.sessions += 1;
                examined.away += u64::from(session.head.away_since_ms.is_some());
                examined.subscriptions += session.subscriptions.len() as u64;
                examined.in_flight += session.outbound.len() as u64;
                examined.wrong.extend(misplaced(&session, &bounds));
                holders.push(Holder::new(session, &bounds));
            }
            Err(wrong) => examined.wrong.push(wrong),
        }
        Ok(())
    });
    examined.pass_over(read)?;
    for (log, bounds) in &bounds {
        examined.read_log(view, *log, *bounds, &mut holders)?;
    }
    holders.retain(|holder| holder.messages > 0);
    for holder in &mut holders {
        holder.wanted_since_ms = holder.find_wanted(view, &bounds)?;
    }
    holders.sort_by_key(|holder| holder.oldest_ms);
    examined.holders = holders;
    for space in Space::ALL {
        let (mut values, mut bytes) = (0, 0);
        let read = each(view, space, |pair| {
            values += 1;
            bytes += (pair.key.len() + pair.value.bytes.len()) as u64;
            // Those of sessions have been read.
            if space != Space::Sessions
                && let Err(error) = check_value(space, &pair.key, &pair.value.bytes)
            {
                let key = pair.key.escape_ascii();
                examined.wrong.push(match space {
                    Space::Retained => {
                        format!("the retained message of {key} cannot be read: {error}")
                    }
                    _ => format!("the value at {key} of {space} cannot be read: {error}"),
                });
            }
            Ok(())
        });
        examined.pass_over(read)?;
        examined.spaces.push(SpaceFacts {
            space,
            values,
            bytes,
        });
    }
    Ok(examined)
}

/// Where a session is that it cannot be.
fn misplaced(session: &Session, bounds: &BTreeMap<LogId, Bounds>) -> Vec<String> {
    let client = &session.head.client_id;
    let of = |log: &LogId| bounds.get(log).copied().unwrap_or(Bounds::EMPTY);
    let beyond = session.cursors.iter().filter_map(|(log, through)| {
        let next = of(log).next;
        (*through >= next).then(|| {
            format!(
                "client {client:?} was given message {through} of log {log}, \
                 whose next message is {next}"
            )
        })
    });
    let gone = session.outbound.iter().filter_map(|entry| {
        let Carried::Log(at) = &entry.what else {
            return None;
        };
        let bounds = of(&at.log);
        // After PUBREC the message itself is not needed any more.
        let there = entry.received || bounds.first <= at.sequence && at.sequence < bounds.next;
        (!there).then(|| format!("client {client:?} was given message {at}, which is in no log"))
    });
    beyond.chain(gone).collect()
}

impl Holder {
    fn new(session: Session, bounds: &BTreeMap<LogId, Bounds>) -> Self {
        let places = bounds.keys().filter_map(|log| {
            let place = session.place(*log)?;
            Some((*log, place))
        });
        Self {
            places: places.collect(),
            filters: session
                .subscriptions
                .into_iter()
                .map(|held| held.filter)
                .collect(),
            is_given: !session.outbound.is_empty(),
            client_id: session.head.client_id,
            away_since_ms: session.head.away_since_ms,
            oldest_ms: u64::MAX,
            messages: 0,
            bytes: 0,
            wanted_since_ms: None,
        }
    }

    /// How far it is on disk is told only when something comes for it, so a session that nothing
    /// waits for may be far behind. What a group gives it is in flight, whatever the filter.
    fn find_wanted(
        &self,
        view: &dyn View,
        bounds: &BTreeMap<LogId, Bounds>,
    ) -> Result<Option<u64>, StoreError> {
        if self.is_given {
            return Ok(Some(self.oldest_ms));
        }
        let filters = self.filters.iter();
        let wanted = Selection::new(filters.filter_map(|filter| TopicFilter::parse(filter).ok()));
        let mut oldest: Option<u64> = None;
        for (log, place) in &self.places {
            let Some(bounds) = bounds.get(log) else {
                continue;
            };
            let mut from = place.next().max(bounds.first);
            while from < bounds.next {
                let chunk = match view.read_matching(*log, from..bounds.next, &wanted, 1) {
                    Ok(chunk) => chunk,
                    // It may be what is damaged, which is told elsewhere.
                    Err(StoreError::Damaged { .. }) => return Ok(Some(self.oldest_ms)),
                    Err(other) => return Err(other),
                };
                if let Some(found) = chunk.entries.first() {
                    let stamp_ms = found.message.record().stamp_ms;
                    oldest = Some(oldest.map_or(stamp_ms, |other| other.min(stamp_ms)));
                    break;
                }
                from = chunk.next;
            }
        }
        Ok(oldest)
    }
}

impl Examined {
    fn read_log(
        &mut self,
        view: &dyn View,
        log: LogId,
        bounds: Bounds,
        holders: &mut [Holder],
    ) -> Result<(), StoreError> {
        let mut places: Vec<(Sequence, usize)> = holders
            .iter()
            .enumerate()
            .filter_map(|(index, holder)| Some((*holder.places.get(&log)?, index)))
            .collect();
        places.sort_unstable();
        let mut waiting = places.iter().peekable();
        let mut holding = Vec::new();
        let mut facts = LogFacts {
            log,
            bounds,
            messages: 0,
            bytes: 0,
            oldest_ms: None,
        };
        let mut by_topic = 0u64;
        self.read(view, log, bounds, None, |entry| {
            let record = entry.message.record();
            // Whoever is before this message holds it and all that follow.
            while let Some((_, holder)) = waiting.next_if(|(place, _)| *place < entry.sequence) {
                holding.push((*holder, facts.messages, facts.bytes, record.stamp_ms));
            }
            by_topic += u64::from(!record.topic.starts_with('$'));
            facts.messages += 1;
            facts.bytes += entry.message.as_bytes().len() as u64;
            facts.oldest_ms = facts.oldest_ms.or(Some(record.stamp_ms));
        })?;
        for (index, messages, bytes, oldest_ms) in holding {
            if let Some(holder) = holders.get_mut(index) {
                holder.messages += facts.messages - messages;
                holder.bytes += facts.bytes - bytes;
                holder.oldest_ms = holder.oldest_ms.min(oldest_ms);
            }
        }
        self.logs.push(facts);

        let all = TopicFilter::parse("+/#").ok();
        let all = Selection::new(all);
        let before = self.wrong.len();
        let mut by_index = 0;
        self.read(view, log, bounds, Some(&all), |_| by_index += 1)?;
        if by_index != by_topic && before == self.wrong.len() {
            self.wrong.push(format!(
                "the index of log {log} knows {by_index} messages of {by_topic}"
            ));
        }
        Ok(())
    }

    /// Calls `take` with all messages that can be read, and notes which cannot.
    fn read(
        &mut self,
        view: &dyn View,
        log: LogId,
        bounds: Bounds,
        wanted: Option<&Selection>,
        mut take: impl FnMut(&Entry),
    ) -> Result<(), StoreError> {
        let read = |from: Sequence, until: Sequence, bytes_max: usize| match wanted {
            None => view.read(log, from..until, bytes_max),
            Some(wanted) => view.read_matching(log, from..until, wanted, bytes_max),
        };
        let mut from = bounds.first;
        while from < bounds.next {
            match read(from, bounds.next, PIECE_BYTES) {
                Ok(chunk) => {
                    chunk.entries.iter().for_each(&mut take);
                    from = chunk.next;
                }
                Err(StoreError::Damaged { place, what }) => {
                    // In ever longer steps, since what is damaged together lies together.
                    let (mut at, mut step) = (from.next(), 1);
                    while at < bounds.next && read(at, at.next(), 1).is_err() {
                        step *= 2;
                        at = Sequence(at.0.saturating_add(step)).min(bounds.next);
                    }
                    let last = at.0 - 1;
                    self.wrong.push(format!(
                        "messages between {from} and {last} of log {log} cannot be read: \
                         {place} is damaged: {what}"
                    ));
                    from = at;
                }
                Err(other) => return Err(other),
            }
        }
        Ok(())
    }

    /// Damage is something that is wrong; another error ends the examination.
    fn pass_over(&mut self, read: Result<(), StoreError>) -> Result<(), StoreError> {
        match read {
            Err(error @ StoreError::Damaged { .. }) => {
                self.wrong
                    .push(format!("{error}; what follows there was not looked at"));
                Ok(())
            }
            other => other,
        }
    }
}
