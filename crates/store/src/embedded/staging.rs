//! What a commit will write, while its batches are looked at one after the other.
//!
//! Each batch sees what is published and what the batches before it will write, and adds its own
//! changes only when all of them are possible.

use std::borrow::Cow;
use std::collections::BTreeMap;

use fjall::Readable;

use super::engine;
use super::opened::{Engine, OneLog, Published};
use crate::batch::{Batch, Expect, Operation, Revision, Space};
use crate::error::{Conflict, StoreError};
use crate::position::{LogId, Sequence};
use crate::record::MessageBytes;
use crate::store::{Committed, KEY_BYTES_MAX};

pub(super) struct Staging<'s, 'a> {
    engine: &'s Engine,
    published: &'s Published,
    staged: Staged<'a>,
    /// Empty between batches; kept for the room of its lists.
    own: Own<'a>,
}

/// What is to be written: the last change of each key, and messages.
pub(super) struct Staged<'a> {
    pub(super) values: Values<'a>,
    pub(super) appends: BTreeMap<LogId, Vec<&'a MessageBytes>>,
    /// Of the last operation.
    pub(super) revision: Revision,
}

type Values<'a> = BTreeMap<(Space, Cow<'a, [u8]>), Change<'a>>;

#[derive(Clone, Copy)]
pub(super) struct Change<'a> {
    pub(super) revision: Revision,
    /// None if it is to be removed.
    pub(super) value: Option<&'a [u8]>,
}

/// The changes of one batch.
#[derive(Default)]
struct Own<'a> {
    values: Values<'a>,
    appends: Vec<(LogId, &'a MessageBytes)>,
    /// Of each log in it, the number of the next message. Nearly always one.
    next: Vec<(LogId, Sequence)>,
}

impl<'s, 'a> Staging<'s, 'a> {
    pub(super) fn new(engine: &'s Engine, published: &'s Published) -> Self {
        Self {
            engine,
            published,
            staged: Staged {
                values: Values::new(),
                appends: BTreeMap::new(),
                revision: published.revision,
            },
            own: Own::default(),
        }
    }

    /// Adds a batch, if it can be written.
    pub(super) fn stage(
        &mut self,
        batch: &'a Batch,
    ) -> Result<Result<Committed, Conflict>, StoreError> {
        let first = self.staged.revision.0 + 1;
        let mut own = std::mem::take(&mut self.own);
        own.next.clear();
        for (operation, revision) in batch.operations().iter().zip(first..) {
            let revision = Revision(revision);
            let refused = match operation {
                Operation::Append {
                    log,
                    sequence,
                    message,
                } => self.append(&mut own, *log, *sequence, message),
                Operation::Put {
                    space,
                    key,
                    value,
                    expect,
                } => {
                    let value = Some(value.as_slice());
                    let change = Change { revision, value };
                    self.change(&mut own, (*space, key), *expect, change)?
                }
                Operation::Delete { space, key, expect } => {
                    let value = None;
                    let change = Change { revision, value };
                    self.change(&mut own, (*space, key), *expect, change)?
                }
                Operation::DeleteAll { space, prefix } => {
                    self.delete_all(&mut own, *space, prefix, revision)?
                }
            };
            if let Some(conflict) = refused {
                return Ok(Err(conflict));
            }
        }
        self.staged.revision.0 += batch.operations().len() as u64;
        self.staged.values.extend(std::mem::take(&mut own.values));
        for (log, message) in own.appends.drain(..) {
            self.staged.appends.entry(log).or_default().push(message);
        }
        self.own = own;
        let revision = Revision(first);
        Ok(Ok(Committed { revision }))
    }

    pub(super) fn finish(self) -> Staged<'a> {
        self.staged
    }

    fn append(
        &self,
        own: &mut Own<'a>,
        log: LogId,
        given: Sequence,
        message: &'a MessageBytes,
    ) -> Option<Conflict> {
        let known = own.next.iter().position(|(other, _)| *other == log);
        let at = known.unwrap_or_else(|| {
            let published = self.published.logs.get(&log);
            let next = published.map_or(Sequence::FIRST, OneLog::next);
            let staged = self.staged.appends.get(&log).map_or(0, Vec::len);
            own.next.push((log, Sequence(next.0 + staged as u64)));
            own.next.len() - 1
        });
        let next = &mut own.next[at].1;
        if given != *next {
            let next = *next;
            return Some(Conflict::Sequence { log, given, next });
        }
        *next = next.next();
        own.appends.push((log, message));
        None
    }

    fn change(
        &self,
        own: &mut Own<'a>,
        at: (Space, &'a Vec<u8>),
        expected: Expect,
        change: Change<'a>,
    ) -> Result<Option<Conflict>, StoreError> {
        let (space, key) = at;
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            let bytes = key.len();
            return Ok(Some(Conflict::Key { space, bytes }));
        }
        let at = (space, Cow::Borrowed(key.as_slice()));
        if expected != Expect::Anything {
            let found = match own.values.get(&at).or_else(|| self.staged.values.get(&at)) {
                Some(change) => change.value.map(|_| change.revision),
                None => self
                    .engine
                    .get(&self.published.snapshot, space, key)?
                    .map(|value| value.revision),
            };
            if !expected.allows(found) {
                let key = key.clone();
                return Ok(Some(Conflict::Revision {
                    space,
                    key,
                    expected,
                    found,
                }));
            }
        }
        own.values.insert(at, change);
        Ok(None)
    }

    /// Finds what is there, which costs a scan of what begins so.
    fn delete_all(
        &self,
        own: &mut Own<'a>,
        space: Space,
        prefix: &'a [u8],
        revision: Revision,
    ) -> Result<Option<Conflict>, StoreError> {
        if prefix.is_empty() {
            return Ok(Some(Conflict::Key { space, bytes: 0 }));
        }
        let value = None;
        let removed = Change { revision, value };
        let from = (space, Cow::Borrowed(prefix));
        let begins = |at: &&(Space, Cow<'a, [u8]>)| at.0 == space && at.1.starts_with(prefix);
        let mut keys = Vec::new();
        for values in [&self.staged.values, &own.values] {
            let found = values.range(from.clone()..).map(|(at, _)| at);
            keys.extend(found.take_while(begins).cloned());
        }
        let there = self
            .published
            .snapshot
            .prefix(self.engine.space(space), prefix);
        for guard in there {
            let key = guard.key();
            let key = key.map_err(|error| engine::error(engine::READING, space, error))?;
            keys.push((space, Cow::Owned(key.to_vec())));
        }
        own.values.extend(keys.into_iter().map(|at| (at, removed)));
        Ok(None)
    }
}
