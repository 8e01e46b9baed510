//! A store that keeps nothing: for brokers without a disk, and for tests.
//!
//! It does what the traits say in the plainest way, under one lock, so that what it answers is
//! right by reading it.

use std::collections::BTreeMap;
use std::ops::{Bound, Range};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::batch::{Batch, Expect, Operation, Revision, Space};
use crate::error::{Conflict, StoreError};
use crate::position::{LogId, Sequence};
use crate::record::MessageBytes;
use crate::selection::Selection;
use crate::store::{
    Bounds, Chunk, Committed, Entry, KEY_BYTES_MAX, KeptBytes, Kv, Log, Page, Pair, Store, Value,
    View,
};

/// A [`Store`] in memory. All of it is gone with it.
#[derive(Debug, Default)]
pub struct Memory {
    state: RwLock<State>,
}

#[derive(Clone, Debug, Default)]
struct State {
    logs: BTreeMap<LogId, OneLog>,
    values: BTreeMap<(Space, Vec<u8>), Value>,
    /// Of the last operation.
    revision: u64,
    bytes: KeptBytes,
}

#[derive(Clone, Debug)]
struct OneLog {
    /// The first that was not trimmed.
    first: Sequence,
    next: Sequence,
    messages: BTreeMap<Sequence, MessageBytes>,
}

impl Memory {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    // A panic under the lock is impossible by the code below; a state that was half written by one
    // would be better than none.
    fn read_state(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_state(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn select(
        &self,
        log: LogId,
        range: Range<Sequence>,
        bytes_max: usize,
        wanted: impl Fn(&MessageBytes) -> bool,
    ) -> Chunk {
        let state = self.read_state();
        let bounds = state.bounds(log);
        let end = range.end.min(bounds.next);
        let mut chunk = Chunk::empty(range.start.max(end));
        let mut bytes = 0;
        let Some(one) = state.logs.get(&log).filter(|_| range.start < end) else {
            return chunk;
        };
        for (sequence, message) in one.messages.range(range.start..end) {
            let sequence = *sequence;
            if bytes >= bytes_max && !chunk.entries.is_empty() {
                chunk.next = sequence;
                break;
            }
            if wanted(message) {
                bytes += message.as_bytes().len();
                let message = message.clone();
                chunk.entries.push(Entry { sequence, message });
            }
        }
        chunk
    }
}

impl Log for Memory {
    fn logs(&self) -> Result<Vec<LogId>, StoreError> {
        Ok(self.read_state().logs.keys().copied().collect())
    }

    fn bounds(&self, log: LogId) -> Result<Bounds, StoreError> {
        Ok(self.read_state().bounds(log))
    }

    fn left_out(&self, log: LogId) -> Result<Vec<Range<Sequence>>, StoreError> {
        let state = self.read_state();
        let Some(one) = state.logs.get(&log) else {
            return Ok(Vec::new());
        };
        let (mut left_out, mut next) = (Vec::new(), one.first);
        for there in one.messages.keys().copied().chain([one.next]) {
            if next < there {
                left_out.push(next..there);
            }
            next = there.next();
        }
        Ok(left_out)
    }

    fn read(
        &self,
        log: LogId,
        range: Range<Sequence>,
        bytes_max: usize,
    ) -> Result<Chunk, StoreError> {
        Ok(self.select(log, range, bytes_max, |_| true))
    }

    fn read_matching(
        &self,
        log: LogId,
        range: Range<Sequence>,
        wanted: &Selection,
        bytes_max: usize,
    ) -> Result<Chunk, StoreError> {
        Ok(self.select(log, range, bytes_max, |message| {
            wanted.matches(message.topic())
        }))
    }
}

impl Kv for Memory {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Value>, StoreError> {
        Ok(self
            .read_state()
            .values
            .get(&(space, key.to_vec()))
            .cloned())
    }

    fn scan(
        &self,
        space: Space,
        prefix: &[u8],
        after: Option<&[u8]>,
        bytes_max: usize,
    ) -> Result<Page, StoreError> {
        let state = self.read_state();
        let from = match after {
            Some(after) if after >= prefix => Bound::Excluded((space, after.to_vec())),
            _ => Bound::Included((space, prefix.to_vec())),
        };
        let mut page = Page::default();
        let mut bytes = 0;
        for ((at, key), value) in state.values.range((from, Bound::Unbounded)) {
            if *at != space || !key.starts_with(prefix) {
                break;
            }
            if bytes >= bytes_max && !page.pairs.is_empty() {
                page.more = true;
                break;
            }
            bytes += key.len() + value.bytes.len();
            page.pairs.push(Pair {
                key: key.clone(),
                value: value.clone(),
            });
        }
        Ok(page)
    }
}

impl Store for Memory {
    fn commit(&self, batches: &[Batch]) -> Result<Vec<Result<Committed, Conflict>>, StoreError> {
        let mut state = self.write_state();
        Ok(batches.iter().map(|batch| state.write(batch)).collect())
    }

    fn sync(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn go_on_at(&self, log: LogId, next: Sequence) -> Result<(), StoreError> {
        let mut state = self.write_state();
        let next = next.max(Sequence::FIRST);
        let log = state.logs.entry(log).or_insert_with(|| OneLog::new(next));
        log.next = log.next.max(next);
        Ok(())
    }

    fn trim(&self, log: LogId, below: Sequence) -> Result<bool, StoreError> {
        let mut state = self.write_state();
        let state = &mut *state;
        if let Some(log) = state.logs.get_mut(&log) {
            log.first = log.first.max(below.min(log.next));
            let kept = log.messages.split_off(&log.first);
            for message in std::mem::replace(&mut log.messages, kept).into_values() {
                state.bytes.messages -= message.as_bytes().len() as u64;
            }
        }
        Ok(false)
    }

    fn snapshot(&self) -> Result<Box<dyn View + '_>, StoreError> {
        let state = RwLock::new(self.read_state().clone());
        Ok(Box::new(Self { state }))
    }

    fn size_bytes(&self) -> Result<u64, StoreError> {
        Ok(self.read_state().bytes.sum())
    }

    fn kept_bytes(&self) -> Result<KeptBytes, StoreError> {
        let KeptBytes {
            messages, values, ..
        } = self.read_state().bytes;
        Ok(KeptBytes {
            messages,
            values,
            staying: values,
        })
    }
}

impl State {
    fn bounds(&self, log: LogId) -> Bounds {
        self.logs.get(&log).map_or(Bounds::EMPTY, |log| Bounds {
            first: log.first,
            next: log.next,
        })
    }

    /// Each operation sees what those before it did; one that cannot be takes them all back.
    fn write(&mut self, batch: &Batch) -> Result<Committed, Conflict> {
        let revision = Revision(self.revision + 1);
        let mut undo = Vec::new();
        for (operation, at) in batch.operations().iter().zip(revision.0..) {
            match self.apply(operation, Revision(at)) {
                Ok(back) => undo.push(back),
                Err(conflict) => {
                    for back in undo.into_iter().rev() {
                        self.take_back(back);
                    }
                    return Err(conflict);
                }
            }
        }
        self.revision += batch.operations().len() as u64;
        Ok(Committed { revision })
    }

    fn apply(&mut self, operation: &Operation, revision: Revision) -> Result<Undo, Conflict> {
        match operation {
            Operation::Append {
                log,
                sequence,
                message,
            } => {
                let next = self.bounds(*log).next;
                if *sequence != next {
                    return Err(Conflict::Sequence {
                        log: *log,
                        given: *sequence,
                        next,
                    });
                }
                self.bytes.messages += message.as_bytes().len() as u64;
                let is_new = !self.logs.contains_key(log);
                let one = self.logs.entry(*log).or_insert_with(|| OneLog::new(next));
                one.messages.insert(next, message.clone());
                one.next = next.next();
                Ok(Undo::Append(*log, is_new))
            }
            Operation::Put {
                space,
                key,
                value,
                expect,
            } => {
                let bytes = value.clone();
                self.replace(*space, key, *expect, Some(Value { revision, bytes }))
            }
            Operation::Delete { space, key, expect } => self.replace(*space, key, *expect, None),
            Operation::DeleteAll { space, prefix } => {
                if prefix.is_empty() {
                    return Err(Conflict::Key {
                        space: *space,
                        bytes: 0,
                    });
                }
                let from = (*space, prefix.clone());
                let there = self.values.range(from..).map(|(at, _)| at);
                let keys: Vec<_> = there
                    .take_while(|(at, key)| at == space && key.starts_with(prefix))
                    .cloned()
                    .collect();
                let values = keys.into_iter().map(|at| {
                    let before = self.set(at.clone(), None);
                    (at, before)
                });
                Ok(Undo::Values(values.collect()))
            }
        }
    }

    fn replace(
        &mut self,
        space: Space,
        key: &[u8],
        expected: Expect,
        value: Option<Value>,
    ) -> Result<Undo, Conflict> {
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            let bytes = key.len();
            return Err(Conflict::Key { space, bytes });
        }
        let at = (space, key.to_vec());
        let found = self.values.get(&at).map(|value| value.revision);
        if !expected.allows(found) {
            let key = at.1;
            return Err(Conflict::Revision {
                space,
                key,
                expected,
                found,
            });
        }
        let before = self.set(at.clone(), value);
        Ok(Undo::Values(vec![(at, before)]))
    }

    fn set(&mut self, at: (Space, Vec<u8>), value: Option<Value>) -> Option<Value> {
        let cost = |value: &Value| (at.1.len() + value.bytes.len()) as u64;
        self.bytes.values += value.as_ref().map_or(0, cost);
        let before = match value {
            Some(value) => self.values.insert(at.clone(), value),
            None => self.values.remove(&at),
        };
        self.bytes.values -= before.as_ref().map_or(0, cost);
        before
    }

    fn take_back(&mut self, undo: Undo) {
        match undo {
            Undo::Values(values) => {
                for (at, before) in values {
                    self.set(at, before);
                }
            }
            Undo::Append(log, was_new) => {
                let one = self.logs.get_mut(&log);
                if let Some(one) = one
                    && let Some((at, message)) = one.messages.pop_last()
                {
                    one.next = at;
                    self.bytes.messages -= message.as_bytes().len() as u64;
                }
                if was_new {
                    self.logs.remove(&log);
                }
            }
        }
    }
}

enum Undo {
    /// And whether the log was not there.
    Append(LogId, bool),
    Values(Vec<Before>),
}

/// What was at a key.
type Before = ((Space, Vec<u8>), Option<Value>);

impl OneLog {
    fn new(first: Sequence) -> Self {
        Self {
            first,
            next: first,
            messages: BTreeMap::new(),
        }
    }
}
