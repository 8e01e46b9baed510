//! The reference model of every store: what the traits promise, over lists that are searched from
//! the beginning, sharing only the types of arguments with the crate.
//!
//! Deliberately absent: the traits themselves, pieces of a read, restarts. The comparison asks the
//! store for pieces and joins them.

use std::collections::BTreeMap;

use crate::{
    Batch, Bounds, Committed, Conflict, Expect, LogId, Operation, Revision, Sequence, Space, Value,
};

#[derive(Clone, Default)]
pub(crate) struct ReferenceModel {
    logs: BTreeMap<u16, Messages>,
    /// In no order; a key is there once.
    values: Vec<(Space, Vec<u8>, Value)>,
    /// Changes that were written.
    changes: u64,
}

#[derive(Clone)]
struct Messages {
    first: u64,
    next: u64,
    /// With their numbers and topics.
    kept: Vec<(u64, String, Vec<u8>)>,
}

impl ReferenceModel {
    pub(crate) fn commit(&mut self, batches: &[Batch]) -> Vec<Result<Committed, Conflict>> {
        let mut results = Vec::new();
        for batch in batches {
            let mut after = self.clone();
            let changed = batch
                .operations()
                .iter()
                .try_for_each(|it| after.change(it));
            results.push(changed.map(|()| Committed {
                revision: Revision(self.changes + 1),
            }));
            if results.last().is_some_and(Result::is_ok) {
                *self = after;
            }
        }
        results
    }

    fn change(&mut self, operation: &Operation) -> Result<(), Conflict> {
        self.changes += 1;
        match operation.clone() {
            Operation::Append {
                log,
                sequence,
                message,
            } => {
                let one = self.log(log, 1);
                if sequence.0 != one.next {
                    return Err(Conflict::Sequence {
                        log,
                        given: sequence,
                        next: Sequence(one.next),
                    });
                }
                let topic = message.topic().to_owned();
                one.kept.push((one.next, topic, message.into_bytes()));
                one.next += 1;
            }
            Operation::Put {
                space,
                key,
                value: bytes,
                expect,
            } => {
                self.expect(space, &key, expect)?;
                self.remove(space, |there| *there == key);
                let revision = Revision(self.changes);
                self.values.push((space, key, Value { revision, bytes }));
            }
            Operation::Delete { space, key, expect } => {
                self.expect(space, &key, expect)?;
                self.remove(space, |there| *there == key);
            }
            Operation::DeleteAll { space, prefix } => {
                self.remove(space, |there| there.starts_with(&prefix));
            }
        }
        Ok(())
    }

    fn expect(&self, space: Space, key: &[u8], expected: Expect) -> Result<(), Conflict> {
        let found = self.get(space, key).map(|value| value.revision);
        let is_there = match expected {
            Expect::Anything => return Ok(()),
            Expect::Absent => None,
            Expect::Revision(revision) => Some(revision),
        };
        if is_there == found {
            return Ok(());
        }
        Err(Conflict::Revision {
            space,
            key: key.to_vec(),
            expected,
            found,
        })
    }

    fn remove(&mut self, space: Space, is_meant: impl Fn(&Vec<u8>) -> bool) {
        self.values
            .retain(|(at, key, _)| *at != space || !is_meant(key));
    }

    pub(crate) fn trim(&mut self, log: LogId, below: Sequence) {
        if let Some(one) = self.logs.get_mut(&log.0) {
            one.first = one.first.max(below.0.min(one.next));
            let first = one.first;
            one.kept.retain(|(number, _, _)| *number >= first);
        }
    }

    pub(crate) fn go_on_at(&mut self, log: LogId, next: Sequence) {
        let one = self.log(log, next.0);
        one.next = one.next.max(next.0);
    }

    /// A log, which begins with this number if it is new.
    fn log(&mut self, log: LogId, first: u64) -> &mut Messages {
        self.logs.entry(log.0).or_insert(Messages {
            first,
            next: first,
            kept: Vec::new(),
        })
    }

    pub(crate) fn logs(&self) -> Vec<LogId> {
        self.logs.keys().map(|log| LogId(*log)).collect()
    }

    pub(crate) fn bounds(&self, log: LogId) -> Bounds {
        let (first, next) = self
            .logs
            .get(&log.0)
            .map_or((1, 1), |one| (one.first, one.next));
        Bounds {
            first: Sequence(first),
            next: Sequence(next),
        }
    }

    /// Numbers of a log that no message has, one by one.
    pub(crate) fn left_out(&self, log: LogId) -> Vec<u64> {
        let Some(one) = self.logs.get(&log.0) else {
            return Vec::new();
        };
        let is_there = |number: &u64| one.kept.iter().any(|(there, _, _)| there == number);
        (one.first..one.next)
            .filter(|number| !is_there(number))
            .collect()
    }

    /// Messages on topics that one of these filters matches, or all.
    pub(crate) fn read(&self, log: LogId, filters: Option<&[&str]>) -> Vec<(u64, Vec<u8>)> {
        let kept = self.logs.get(&log.0).map_or(&[][..], |one| &one.kept);
        let is_wanted = |topic: &str| {
            filters.is_none_or(|filters| filters.iter().any(|filter| matches(filter, topic)))
        };
        kept.iter()
            .filter(|(_, topic, _)| is_wanted(topic))
            .map(|(number, _, bytes)| (*number, bytes.clone()))
            .collect()
    }

    pub(crate) fn get(&self, space: Space, key: &[u8]) -> Option<Value> {
        let mut values = self.values.iter();
        let found = values.find(|(at, there, _)| *at == space && there == key);
        found.map(|(_, _, value)| value.clone())
    }

    /// Keys that begin so, in order.
    pub(crate) fn scan(&self, space: Space, prefix: &[u8]) -> Vec<(Vec<u8>, Value)> {
        let mut found: Vec<_> = self
            .values
            .iter()
            .filter(|(at, key, _)| *at == space && key.starts_with(prefix))
            .map(|(_, key, value)| (key.clone(), value.clone()))
            .collect();
        found.sort_by(|(one, _), (other, _)| one.cmp(other));
        found
    }
}

fn matches(filter: &str, topic: &str) -> bool {
    if topic.starts_with('$') && filter.starts_with(['+', '#']) {
        return false;
    }
    let (mut filter, mut topic) = (filter.split('/'), topic.split('/'));
    loop {
        match (filter.next(), topic.next()) {
            (Some("#"), _) | (None, None) => return true,
            (Some("+"), Some(_)) => {}
            (Some(level), Some(other)) if level == other => {}
            _ => return false,
        }
    }
}
