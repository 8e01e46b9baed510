//! A snapshot of the store.

use std::collections::BTreeMap;
use std::ops::Range;

use fjall::Snapshot;

use super::generations::{self, Generations};
use super::opened::Engine;
use super::{Embedded, generations_per_read};
use crate::batch::Space;
use crate::error::StoreError;
use crate::position::{LogId, Sequence};
use crate::selection::Selection;
use crate::store::{Bounds, Chunk, Kv, Log, Page, Value};

/// See [`Store::snapshot`](crate::Store::snapshot). The engine keeps the data that it reads as long
/// as it lives, trimmed generations too.
pub(super) struct StoreSnapshot<'s> {
    engine: &'s Engine,
    snapshot: Snapshot,
    logs: BTreeMap<LogId, OneLog>,
}

struct OneLog {
    generations: Generations,
    next: Sequence,
}

impl<'s> StoreSnapshot<'s> {
    pub(super) fn new(store: &'s Embedded) -> Self {
        let published = store.read_published();
        let logs = published.logs.iter().map(|(id, log)| {
            let generations = log.generations.clone();
            let next = log.next();
            (*id, OneLog { generations, next })
        });
        Self {
            engine: &store.engine,
            snapshot: published.snapshot.clone(),
            logs: logs.collect(),
        }
    }

    fn read_range(
        &self,
        log: LogId,
        range: Range<Sequence>,
        wanted: Option<&Selection>,
        bytes_max: usize,
    ) -> Result<Chunk, StoreError> {
        let matcher = wanted.map(Selection::matcher);
        let bounds = self.bounds(log)?;
        let end = range.end.min(bounds.next);
        let mut chunk = Chunk::empty(range.start.max(end));
        let range = range.start.max(bounds.first)..end;
        if let Some(one) = self.logs.get(&log)
            && !range.is_empty()
            && !wanted.is_some_and(Selection::is_empty)
        {
            let matcher = matcher.as_ref();
            let parts = one.generations.parts(&range, generations_per_read(matcher));
            generations::read(&self.snapshot, &parts, matcher, None, bytes_max, &mut chunk)?;
        }
        Ok(chunk)
    }
}

impl Log for StoreSnapshot<'_> {
    fn logs(&self) -> Result<Vec<LogId>, StoreError> {
        Ok(self.logs.keys().copied().collect())
    }

    fn bounds(&self, log: LogId) -> Result<Bounds, StoreError> {
        let bounds = self.logs.get(&log).map(|log| Bounds {
            first: log.generations.floor,
            next: log.next,
        });
        Ok(bounds.unwrap_or(Bounds::EMPTY))
    }

    fn left_out(&self, log: LogId) -> Result<Vec<Range<Sequence>>, StoreError> {
        let log = self.logs.get(&log);
        Ok(log.map_or_else(Vec::new, |log| log.generations.left_out()))
    }

    fn read(
        &self,
        log: LogId,
        range: Range<Sequence>,
        bytes_max: usize,
    ) -> Result<Chunk, StoreError> {
        self.read_range(log, range, None, bytes_max)
    }

    fn read_matching(
        &self,
        log: LogId,
        range: Range<Sequence>,
        wanted: &Selection,
        bytes_max: usize,
    ) -> Result<Chunk, StoreError> {
        self.read_range(log, range, Some(wanted), bytes_max)
    }
}

impl Kv for StoreSnapshot<'_> {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Value>, StoreError> {
        self.engine.get(&self.snapshot, space, key)
    }

    fn scan(
        &self,
        space: Space,
        prefix: &[u8],
        after: Option<&[u8]>,
        bytes_max: usize,
    ) -> Result<Page, StoreError> {
        self.engine
            .scan(&self.snapshot, space, prefix, after, bytes_max)
    }
}
