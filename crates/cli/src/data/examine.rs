//! Reads and checks everything in a store: contents, sessions that pin the logs, and faults.
//!
//! Messages are read twice, by number and by topic, so that the index is read as well and found to
//! know all of them. Damage is told with its place and passed over.

use std::collections::BTreeMap;

use unbroken_mqtt_proto::TopicFilter;
use unbroken_store::session::Carried;
use unbroken_store::{
    Bounds, Entry, LogId, Selection, Sequence, Space, StoreError, View, check_value,
};

use super::human_format::shown;
use super::queued::{self, Queued};
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
    /// Sessions that have messages stored, those with the oldest first.
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

/// A session that has messages stored: they wait for it, or it has not acknowledged them.
#[derive(Debug)]
pub(crate) struct Holder {
    pub(crate) client_id: String,
    pub(crate) offline_since_ms: Option<u64>,
    /// Messages that it was sent and has not acknowledged.
    pub(crate) in_flight: u64,
    /// What waits for it and was not sent yet; counted for the first [`BACKLOGS_COUNTED`] only.
    pub(crate) backlog: Option<Queued>,
    /// When the oldest of all these messages came in.
    pub(crate) oldest_ms: u64,
    /// What the logs cannot trim: they reach back to the first of these messages.
    pub(crate) log_bytes: u64,
    /// The first of these messages in each log.
    first: BTreeMap<LogId, Sequence>,
}

/// Counting takes time where much waits for many sessions.
pub(crate) const BACKLOGS_COUNTED: usize = 10;

/// Reads all of it. An error is one of reading that says nothing about what is there.
pub(crate) fn examine(view: &dyn View) -> Result<Examined, StoreError> {
    let mut examined = Examined::default();
    let bounds = sessions::bounds(view)?;
    let mut holders = Vec::new();
    let read = session::each(view, |session| {
        match session {
            Ok(session) => {
                examined.sessions += 1;
                examined.away += u64::from(session.head.offline_since_ms.is_some());
                examined.subscriptions += session.subscriptions.len() as u64;
                examined.in_flight += session.outbound.len() as u64;
                examined.wrong.extend(misplaced(&session, &bounds));
                holders.push(Holder::new(view, &session, &bounds)?);
            }
            Err(wrong) => examined.wrong.push(wrong),
        }
        Ok(())
    });
    examined.pass_over(read)?;
    for (log, bounds) in &bounds {
        examined.read_log(view, *log, *bounds, &mut holders)?;
    }
    holders.retain(|holder| holder.oldest_ms < u64::MAX);
    holders.sort_by_key(|holder| holder.oldest_ms);
    count_backlogs(view, &bounds, &mut holders)?;
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
    let client = shown(&session.head.client_id);
    let of = |log: &LogId| bounds.get(log).copied().unwrap_or(Bounds::EMPTY);
    let beyond = session.cursors.iter().filter_map(|(log, through)| {
        let next = of(log).next;
        (*through >= next).then(|| {
            format!(
                "client {client} was given message {through} of log {log}, \
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
        (!there).then(|| format!("client {client} was given message {at}, which is in no log"))
    });
    beyond.chain(gone).collect()
}

/// Counts what waits for the first of these sessions. Damage is reported elsewhere.
fn count_backlogs(
    view: &dyn View,
    bounds: &BTreeMap<LogId, Bounds>,
    holders: &mut [Holder],
) -> Result<(), StoreError> {
    let counted = holders.iter_mut().take(BACKLOGS_COUNTED);
    let mut counted: BTreeMap<String, &mut Holder> = counted
        .map(|holder| (holder.client_id.clone(), holder))
        .collect();
    let read = session::each(view, |session| {
        let session = session.ok();
        let found = session.and_then(|session| {
            let holder = counted.remove(&session.head.client_id)?;
            Some((holder, session))
        });
        if let Some((holder, session)) = found {
            holder.backlog = readable(queued::count(view, &session, bounds))?;
        }
        Ok(())
    });
    readable(read).map(|_| ())
}

/// None where the store is damaged.
fn readable<T>(read: Result<T, StoreError>) -> Result<Option<T>, StoreError> {
    match read {
        Ok(value) => Ok(Some(value)),
        Err(StoreError::Damaged { .. }) => Ok(None),
        Err(other) => Err(other),
    }
}

impl Holder {
    fn new(
        view: &dyn View,
        session: &Session,
        bounds: &BTreeMap<LogId, Bounds>,
    ) -> Result<Self, StoreError> {
        let (mut first, mut oldest_ms) = (BTreeMap::new(), u64::MAX);
        let mut note = |log: LogId, sequence: Sequence| {
            let noted = first.entry(log).or_insert(sequence);
            *noted = sequence.min(*noted);
        };
        for entry in &session.outbound {
            match &entry.what {
                // After PUBREC the message itself is not needed any more.
                Carried::Log(_) if entry.received => {}
                Carried::Log(at) => note(at.log, at.sequence),
                Carried::Own(message) => oldest_ms = oldest_ms.min(message.record().stamp_ms),
            }
        }
        for (log, bounds) in bounds {
            let waiting = queued::first(view, session, *log, *bounds);
            // Where the log is damaged, all behind the session's place may wait for it.
            let waiting =
                readable(waiting)?.unwrap_or_else(|| session.place(*log).map(Sequence::next));
            if let Some(sequence) = waiting {
                note(*log, sequence);
            }
        }
        Ok(Self {
            client_id: session.head.client_id.clone(),
            offline_since_ms: session.head.offline_since_ms,
            in_flight: session.outbound.len() as u64,
            backlog: None,
            oldest_ms,
            log_bytes: 0,
            first,
        })
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
        let mut firsts: Vec<(Sequence, usize)> = holders
            .iter()
            .enumerate()
            .filter_map(|(index, holder)| Some((*holder.first.get(&log)?, index)))
            .collect();
        firsts.sort_unstable();
        let mut waiting = firsts.iter().peekable();
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
            // The log keeps this message and all that follow for these sessions.
            while let Some((_, holder)) = waiting.next_if(|(first, _)| *first <= entry.sequence) {
                holding.push((*holder, facts.bytes, record.stamp_ms));
            }
            by_topic += u64::from(!record.topic.starts_with('$'));
            facts.messages += 1;
            facts.bytes += entry.message.as_bytes().len() as u64;
            facts.oldest_ms = facts.oldest_ms.or(Some(record.stamp_ms));
        })?;
        for (index, bytes, oldest_ms) in holding {
            if let Some(holder) = holders.get_mut(index) {
                holder.log_bytes += facts.bytes - bytes;
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
