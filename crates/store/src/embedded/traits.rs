//! The traits of this crate for the embedded store.

use std::ops::Range;
use std::sync::PoisonError;

use fjall::{Keyspace, PersistMode};

use super::opened::OneLog;
use super::snapshot::StoreSnapshot;
use super::{Embedded, engine};
use crate::batch::{Batch, Space};
use crate::error::{Conflict, StoreError};
use crate::position::{LogId, Sequence};
use crate::selection::Selection;
use crate::store::{Bounds, Chunk, Committed, KeptBytes, Kv, Log, Page, Store, Value, View};

impl Log for Embedded {
    fn logs(&self) -> Result<Vec<LogId>, StoreError> {
        Ok(self.read_published().logs.keys().copied().collect())
    }

    fn bounds(&self, log: LogId) -> Result<Bounds, StoreError> {
        let published = self.read_published();
        Ok(published
            .logs
            .get(&log)
            .map_or(Bounds::EMPTY, |log| Bounds {
                first: log.generations.floor,
                next: log.next(),
            }))
    }

    fn left_out(&self, log: LogId) -> Result<Vec<Range<Sequence>>, StoreError> {
        let published = self.read_published();
        let log = published.logs.get(&log);
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

impl Kv for Embedded {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Value>, StoreError> {
        let snapshot = self.read_published().snapshot.clone();
        self.engine.get(&snapshot, space, key)
    }

    fn scan(
        &self,
        space: Space,
        prefix: &[u8],
        after: Option<&[u8]>,
        bytes_max: usize,
    ) -> Result<Page, StoreError> {
        let snapshot = self.read_published().snapshot.clone();
        self.engine.scan(&snapshot, space, prefix, after, bytes_max)
    }
}

impl Store for Embedded {
    fn commit(&self, batches: &[Batch]) -> Result<Vec<Result<Committed, Conflict>>, StoreError> {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        self.alive()?;
        let written = self.write(batches);
        self.or_dead(written.and_then(|results| self.in_place.check().map(|()| results)))
    }

    fn sync(&self) -> Result<(), StoreError> {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        self.alive()?;
        let synced = self.engine.database.persist(PersistMode::SyncData);
        let synced = synced.map_err(|error| engine::error("syncing", "the store", error));
        let revision = self.read_published().revision;
        let acknowledged = synced.and_then(|()| self.directory.acknowledge(revision));
        self.or_dead(acknowledged.and_then(|()| self.in_place.check()))
    }

    fn go_on_at(&self, log: LogId, next: Sequence) -> Result<(), StoreError> {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        self.alive()?;
        let next = next.max(Sequence::FIRST);
        let published = self.read_published();
        let there = published.logs.get(&log).map(OneLog::next);
        drop(published);
        if there.is_some_and(|there| next <= there) {
            return Ok(());
        }
        self.or_dead(self.begin_generation(log, next))
    }

    /// Frees a whole generation, and with the next append what of the newest one the engine has in
    /// memory only. What else is left of one is there again after a restart.
    fn trim(&self, log: LogId, below: Sequence) -> Result<bool, StoreError> {
        if !self.is_strict() && self.alive().is_err() {
            return Ok(false); // what let it go may not be safe, and never will be
        }
        let mut gone = None;
        if let Some(log) = self.write_published().logs.get_mut(&log) {
            let below = below.min(log.next());
            gone = log.generations.trim(below);
        }
        let Some(generation) = gone else {
            return Ok(false);
        };
        let place = generation.to_string();
        // It is gone at once, also after a power cut, and what let it go must not come after it.
        if !self.is_strict() {
            self.sync()?;
        }
        // Its files go with the last handle, which takes longer than to take it off the list.
        let last = generation.keyspace.clone();
        let listed = self.list.lock();
        let deleted = self.engine.database.delete_keyspace(generation.keyspace);
        drop(listed);
        deleted.map_err(|error| {
            self.directory.distrust_witness();
            engine::error("trimming", place, error)
        })?;
        engine::close_files(&last);
        Ok(true)
    }

    fn snapshot(&self) -> Result<Box<dyn View + '_>, StoreError> {
        Ok(Box::new(StoreSnapshot::new(self)))
    }

    /// With up to 64 MiB that the engine has set aside for its journal.
    fn size_bytes(&self) -> Result<u64, StoreError> {
        let size = self.engine.database.disk_space();
        size.map_err(|error| engine::error("measuring", "the store", error))
    }

    /// Of values those that are not in the journal alone, which has 4 MiB of each kind at most.
    fn kept_bytes(&self) -> Result<KeptBytes, StoreError> {
        let published = self.read_published();
        let logs = published.logs.values();
        let kept = logs.map(OneLog::kept_bytes);
        let (sealed, newest) = kept.fold((0, 0), |(sealed, newest), (more, new)| {
            (sealed + more, newest + new)
        });
        let values = self.engine.spaces.iter().map(Keyspace::disk_space).sum();
        Ok(KeptBytes {
            messages: sealed + newest,
            values,
            staying: newest + values,
        })
    }
}
