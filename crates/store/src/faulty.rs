//! Any store, with faults at the operations that a test or a simulation names.

use std::io;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use crate::batch::{Batch, Space};
use crate::error::{Conflict, StoreError};
use crate::position::{LogId, Sequence};
use crate::selection::Selection;
use crate::store::{Bounds, Chunk, Committed, KeptBytes, Kv, Log, Page, Store, Value, View};

/// A store in front of which faults happen. After a fault of a commit or of
/// [`sync`](Store::sync) it is dead, as the traits say.
#[derive(Debug)]
pub struct Faulty<S> {
    inner: S,
    plan: Mutex<Plan>,
}

/// One fault to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Which operations are counted.
    pub on: On,
    /// How many of them still succeed.
    pub after: u64,
    /// What the operating system says.
    pub kind: io::ErrorKind,
}

/// The operations that a [`Fault`] counts, and what has happened when it strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    /// Commits. The first so many batches are on disk nevertheless.
    Commit(usize),
    /// Commits and syncs. All is on disk nevertheless, as after an fsync that failed.
    Sync,
    /// Reads, of the log and of keys. They may succeed when tried again.
    Read,
}

#[derive(Debug, Default)]
struct Plan {
    faults: Vec<Fault>,
    dead: Option<String>,
}

impl<S> Faulty<S> {
    /// No fault yet.
    pub fn new(inner: S) -> Self {
        let plan = Mutex::default();
        Self { inner, plan }
    }

    /// A fault is to come. Several may be; each strikes once.
    pub fn inject(&self, fault: Fault) {
        self.plan().faults.push(fault);
    }

    /// The store without faults, as it would be found after a restart.
    pub fn into_inner(self) -> S {
        self.inner
    }

    fn plan(&self) -> std::sync::MutexGuard<'_, Plan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts one operation, and says which fault strikes it.
    fn strikes(&self, concerns: impl Fn(On) -> bool) -> Option<Fault> {
        let mut plan = self.plan();
        let mut strikes = None;
        plan.faults.retain_mut(|fault| {
            if !concerns(fault.on) {
                return true;
            }
            if fault.after > 0 || strikes.is_some() {
                fault.after = fault.after.saturating_sub(1);
                return true;
            }
            strikes = Some(*fault);
            false
        });
        strikes
    }

    fn readable(&self, place: impl ToString) -> Result<(), StoreError> {
        match self.strikes(|on| on == On::Read) {
            Some(fault) => Err(StoreError::io("reading", place, fault.kind.into())),
            None => Ok(()),
        }
    }

    fn alive(&self) -> Result<(), StoreError> {
        match &self.plan().dead {
            Some(cause) => Err(StoreError::Dead {
                cause: cause.clone(),
            }),
            None => Ok(()),
        }
    }

    fn die(&self, fault: Fault) -> StoreError {
        let doing = if fault.on == On::Sync {
            "syncing"
        } else {
            "writing"
        };
        let error = StoreError::io(doing, "the store", fault.kind.into());
        self.plan().dead = Some(error.to_string());
        error
    }
}

impl<S: Log> Log for Faulty<S> {
    fn logs(&self) -> Result<Vec<LogId>, StoreError> {
        self.inner.logs()
    }

    fn bounds(&self, log: LogId) -> Result<Bounds, StoreError> {
        self.inner.bounds(log)
    }

    fn left_out(&self, log: LogId) -> Result<Vec<Range<Sequence>>, StoreError> {
        self.inner.left_out(log)
    }

    fn read(
        &self,
        log: LogId,
        range: Range<Sequence>,
        bytes_max: usize,
    ) -> Result<Chunk, StoreError> {
        self.readable(format_args!("log {log}"))?;
        self.inner.read(log, range, bytes_max)
    }

    fn read_matching(
        &self,
        log: LogId,
        range: Range<Sequence>,
        wanted: &Selection,
        bytes_max: usize,
    ) -> Result<Chunk, StoreError> {
        self.readable(format_args!("log {log}"))?;
        self.inner.read_matching(log, range, wanted, bytes_max)
    }
}

impl<S: Kv> Kv for Faulty<S> {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Value>, StoreError> {
        self.readable(space)?;
        self.inner.get(space, key)
    }

    fn scan(
        &self,
        space: Space,
        prefix: &[u8],
        after: Option<&[u8]>,
        bytes_max: usize,
    ) -> Result<Page, StoreError> {
        self.readable(space)?;
        self.inner.scan(space, prefix, after, bytes_max)
    }
}

impl<S: Store> Store for Faulty<S> {
    fn commit(&self, batches: &[Batch]) -> Result<Vec<Result<Committed, Conflict>>, StoreError> {
        self.alive()?;
        match self.strikes(|on| matches!(on, On::Commit(_) | On::Sync)) {
            None => self.inner.commit(batches),
            Some(fault) => {
                let written = match fault.on {
                    On::Commit(count) => batches.get(..count).unwrap_or(batches),
                    _ => batches,
                };
                self.inner.commit(written)?;
                Err(self.die(fault))
            }
        }
    }

    fn sync(&self) -> Result<(), StoreError> {
        self.alive()?;
        match self.strikes(|on| on == On::Sync) {
            None => self.inner.sync(),
            Some(fault) => Err(self.die(fault)),
        }
    }

    fn go_on_at(&self, log: LogId, next: Sequence) -> Result<(), StoreError> {
        self.alive()?;
        self.inner.go_on_at(log, next)
    }

    fn trim(&self, log: LogId, below: Sequence) -> Result<bool, StoreError> {
        self.inner.trim(log, below)
    }

    /// Counts as one read. What is read from it succeeds.
    fn snapshot(&self) -> Result<Box<dyn View + '_>, StoreError> {
        self.readable("the store")?;
        self.inner.snapshot()
    }

    fn size_bytes(&self) -> Result<u64, StoreError> {
        self.inner.size_bytes()
    }

    fn kept_bytes(&self) -> Result<KeptBytes, StoreError> {
        self.inner.kept_bytes()
    }
}
