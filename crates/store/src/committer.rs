//! The thread that commits.
//!
//! ```text
//! shards --submit--> queue (bounded) --take up to 1 MiB--> commit, one fsync --answers--> shards
//!                    |<------- what arrives meanwhile is the next commit ------>|
//! ```
//!
//! A commit starts as soon as a batch is queued and no commit runs, so a lone message waits only
//! for its own fsync, and under load all batches that arrive during a commit share the next. On a
//! fast disk these are few, and a commit costs more than its contents. So a submitter may give a
//! *delay* with its batches: the commit begins no sooner than that long after the last one began.
//! Measurements: `docs/notes/scheduler.md`.
//!
//! Committed batches go back with their answer, because freeing them here would contend for the
//! allocator with the thread that made them.
//!
//! Invariants:
//! - Batches are written and answered in the order in which they were submitted, each once.
//! - After an error of the store nothing is written, and every batch is answered [`Refusal::Dead`],
//!   or [`Refusal::Damaged`]. An error is never tried again as success.
//! - Nothing waits to submit: a full queue gives the batch back, and one whose thread has panicked
//!   takes it and forgets it.
//! - At an orderly end everything is synced, whatever the store's durability.
//!
//! Deliberately absent: reactions to an answer or to a failed store; both are the caller's.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::batch::Batch;
use crate::error::{Conflict, StoreError};
use crate::stats::CommitStats;
use crate::store::{Committed, Store};

/// Batches waiting to be committed, and their bytes: what the queue holds at most. One batch may
/// exceed the bytes if nothing else waits. About 100 bytes each, and what is in them.
pub const QUEUE_BATCHES_MAX: usize = 65_536;
/// See [`QUEUE_BATCHES_MAX`].
pub const QUEUE_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Bytes of one commit: what arrives meanwhile is gathered up to here. One batch may exceed it.
pub const COMMIT_BYTES_MAX: usize = 1024 * 1024;

/// The way to the thread that writes. Dropping it ends the thread when the queue is empty.
#[derive(Debug)]
pub struct Committer<T: Send + 'static> {
    shared: Arc<Shared<T>>,
    /// Ends with the error that ended writing.
    thread: Option<JoinHandle<Option<Failure>>>,
}

/// What became of one batch.
#[derive(Debug)]
pub struct Answer<T> {
    /// What was given with it.
    pub token: T,
    /// The batch: best freed by the thread that made it.
    pub batch: Batch,
    /// Whether it is written, as safely as the store was opened to make it.
    pub result: Result<Committed, Refusal>,
}

/// Why a batch is not written, or not known to be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It is not: what is there is not what it expected. Others are not concerned.
    #[error(transparent)]
    Conflict(#[from] Conflict),
    /// The store is dead. Whether this batch is on disk is not known; nothing is, from now on.
    #[error("not stored: {0}")]
    Dead(Arc<str>),
    /// The same, since what is on disk is not what was written.
    #[error("not stored: {0}")]
    Damaged(Arc<str>),
}

/// What ended writing.
#[derive(Clone, Debug)]
struct Failure {
    cause: Arc<str>,
    is_damage: bool,
}

/// The queue is full: what was submitted comes back, to be tried again when answers have come.
#[derive(Debug)]
pub struct Full<T> {
    /// The batch.
    pub batch: Batch,
    /// What was given with it.
    pub token: T,
}

#[derive(Debug)]
struct Shared<T> {
    queue: Mutex<Queue<T>>,
    /// Something came into the queue that is not to wait, or it was closed.
    changed: Condvar,
    stats: Arc<CommitStats>,
    dead: AtomicBool,
}

#[derive(Debug)]
struct Queue<T> {
    waiting: VecDeque<(Batch, T)>,
    bytes: usize,
    /// The shortest of those that wait.
    delay: Duration,
    closed: bool,
    /// The thread has gone: what is submitted is forgotten, and never answered.
    abandoned: bool,
}

impl<T: Send + 'static> Committer<T> {
    /// Starts the thread. It calls `answer` after every commit with what became of its batches, in
    /// order, and goes on when that returns; `answer` drains the list.
    ///
    /// With `sync_every` the store is told to [`sync`](Store::sync) when something is that old and
    /// was not yet: for stores whose commits do not do it themselves.
    pub fn start<S: Store + ?Sized + 'static>(
        store: Arc<S>,
        sync_every: Option<Duration>,
        answer: impl FnMut(&mut Vec<Answer<T>>) + Send + 'static,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            queue: Mutex::new(Queue {
                waiting: VecDeque::new(),
                bytes: 0,
                delay: Duration::ZERO,
                closed: false,
                abandoned: false,
            }),
            changed: Condvar::new(),
            stats: Arc::default(),
            dead: AtomicBool::new(false),
        });
        let writer = Writer {
            shared: Arc::clone(&shared),
            store,
            sync_every,
            unsynced_since: None,
            committed_at: None,
            dead: None,
            answer,
            answers: Vec::new(),
        };
        let thread = std::thread::Builder::new()
            .name("committer".into())
            .spawn(move || writer.run())?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// Asks for a batch to be written. The answer comes with `token`, or never if the thread has
    /// panicked. A full queue gives both back.
    pub fn submit(&self, batch: Batch, token: T) -> Result<(), Full<T>> {
        let mut batches = VecDeque::from([(batch, token)]);
        self.submit_all(&mut batches, Duration::ZERO);
        match batches.pop_front() {
            Some((batch, token)) => Err(Full { batch, token }),
            None => Ok(()),
        }
    }

    /// As [`submit`](Self::submit), for all of these in their order: what a full queue does not
    /// take is left. Their commit begins no sooner than `delay` after the one before has ended,
    /// unless it is full or contains a batch with a shorter delay.
    pub fn submit_all(&self, batches: &mut VecDeque<(Batch, T)>, delay: Duration) {
        if batches.is_empty() {
            return;
        }
        let mut queue = self.shared.lock();
        if queue.abandoned {
            batches.clear();
            return;
        }
        let (waited, before) = (queue.waiting.len(), queue.bytes);
        while let Some((batch, token)) = batches.pop_front() {
            let full = queue.waiting.len() >= QUEUE_BATCHES_MAX
                || (queue.bytes + batch.bytes() > QUEUE_BYTES_MAX && !queue.waiting.is_empty());
            if full {
                batches.push_front((batch, token));
                break;
            }
            queue.bytes += batch.bytes();
            queue.waiting.push_back((batch, token));
        }
        let sooner = waited == 0 || delay < queue.delay;
        if sooner && queue.waiting.len() > waited {
            queue.delay = delay;
        }
        let fills_it = before < COMMIT_BYTES_MAX && queue.bytes >= COMMIT_BYTES_MAX;
        drop(queue);
        if sooner || fills_it {
            self.shared.changed.notify_one();
        }
    }

    /// Waits until everything in the queue is written, and synced as far as commits do not do that
    /// themselves. The error is the one that ended writing, perhaps long ago.
    pub fn end(mut self) -> Result<(), String> {
        match self.close() {
            Some(Ok(None)) | None => Ok(()),
            Some(Ok(Some(death))) => Err(death.cause.to_string()),
            Some(Err(_)) => Err("the thread that writes to the store panicked".to_owned()),
        }
    }

    fn close(&mut self) -> Option<std::thread::Result<Option<Failure>>> {
        self.shared.lock().closed = true;
        self.shared.changed.notify_one();
        self.thread.take().map(JoinHandle::join)
    }

    /// An error of the store has ended writing.
    pub fn has_failed(&self) -> bool {
        self.shared.dead.load(Ordering::Acquire)
    }

    /// What was committed so far.
    pub fn stats(&self) -> Arc<CommitStats> {
        Arc::clone(&self.shared.stats)
    }
}

impl<T: Send + 'static> Drop for Committer<T> {
    fn drop(&mut self) {
        drop(self.close()); // a panic there has been reported by its hook
    }
}

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, Queue<T>> {
        // Nothing panics while it is held.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Who waits for room must not wait for a thread that has gone, whatever ended it.
impl<T> Drop for Abandon<T> {
    fn drop(&mut self) {
        let mut queue = self.0.lock();
        queue.abandoned = true;
        let forgotten = std::mem::take(&mut queue.waiting);
        queue.bytes = 0;
        drop(queue);
        drop(forgotten);
    }
}

/// Held by the thread as long as it is there.
struct Abandon<T>(Arc<Shared<T>>);

/// The thread's own.
struct Writer<T, S: ?Sized, A> {
    shared: Arc<Shared<T>>,
    store: Arc<S>,
    sync_every: Option<Duration>,
    unsynced_since: Option<Instant>,
    /// When the last commit ended.
    committed_at: Option<Instant>,
    dead: Option<Failure>,
    answer: A,
    answers: Vec<Answer<T>>,
}

impl<T, S: Store + ?Sized, A: FnMut(&mut Vec<Answer<T>>)> Writer<T, S, A> {
    fn run(mut self) -> Option<Failure> {
        let _abandon = Abandon(Arc::clone(&self.shared));
        let mut batches = Vec::new();
        let mut tokens = Vec::new();
        loop {
            let open = self.take(&mut batches, &mut tokens);
            if !batches.is_empty() {
                self.commit(&mut batches, &mut tokens);
                self.committed_at = Some(Instant::now());
            }
            self.sync_if_due(!open);
            if !open {
                return self.dead.take();
            }
        }
    }

    /// Waits until there is something to write or to sync, and takes it. False if that is the last.
    fn take(&mut self, batches: &mut Vec<Batch>, tokens: &mut Vec<T>) -> bool {
        let mut queue = self.shared.lock();
        while queue.waiting.is_empty() && !queue.closed {
            let Some(due) = self.sync_due() else {
                let waited = self.shared.changed.wait(queue);
                queue = waited.unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            let waited = self.shared.changed.wait_timeout(queue, left);
            queue = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        while let Some(left) = self.delay_left(&queue) {
            let waited = self.shared.changed.wait_timeout(queue, left);
            queue = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let mut bytes = 0;
        while let Some((batch, _)) = queue.waiting.front()
            && (batches.is_empty() || bytes + batch.bytes() <= COMMIT_BYTES_MAX)
            && let Some((batch, token)) = queue.waiting.pop_front()
        {
            bytes += batch.bytes();
            batches.push(batch);
            tokens.push(token);
        }
        queue.bytes -= bytes;
        !queue.closed || !queue.waiting.is_empty()
    }

    /// How long the next commit is still to gather.
    fn delay_left(&self, queue: &Queue<T>) -> Option<Duration> {
        if queue.closed || queue.bytes >= COMMIT_BYTES_MAX {
            return None;
        }
        let left = queue.delay.checked_sub(self.committed_at?.elapsed())?;
        (!left.is_zero()).then_some(left)
    }

    fn commit(&mut self, batches: &mut Vec<Batch>, tokens: &mut Vec<T>) {
        let started = Instant::now();
        let results = match &self.dead {
            Some(death) => Err(death.clone()),
            None => self
                .store
                .commit(batches)
                .map_err(|error| self.shared.failed(&error)),
        };
        match results {
            Ok(results) => {
                self.unsynced_since.get_or_insert(started);
                self.shared
                    .stats
                    .committed(batches, &results, started.elapsed());
                let results = results
                    .into_iter()
                    .map(|result| result.map_err(Refusal::from));
                let answers = tokens.drain(..).zip(batches.drain(..)).zip(results);
                let answers = answers.map(|((token, batch), result)| Answer {
                    token,
                    batch,
                    result,
                });
                self.answers.extend(answers);
            }
            Err(death) => {
                let answers = tokens.drain(..).zip(batches.drain(..));
                let answers = answers.map(|(token, batch)| Answer {
                    token,
                    batch,
                    result: Err(death.refusal()),
                });
                self.answers.extend(answers);
                self.dead = Some(death);
            }
        }
        (self.answer)(&mut self.answers);
        self.answers.clear();
    }

    fn sync_due(&self) -> Option<Instant> {
        Some(self.unsynced_since? + self.sync_every?)
    }

    fn sync_if_due(&mut self, at_the_end: bool) {
        let is_due = if at_the_end {
            // Also where nobody asks for it in between.
            self.unsynced_since.is_some()
        } else {
            self.sync_due().is_some_and(|due| due <= Instant::now())
        };
        if self.dead.is_some() || !is_due {
            return;
        }
        self.unsynced_since = None;
        if let Err(error) = self.store.sync() {
            self.dead = Some(self.shared.failed(&error));
        }
    }
}

impl<T> Shared<T> {
    fn failed(&self, error: &StoreError) -> Failure {
        self.dead.store(true, Ordering::Release);
        Failure {
            cause: error.to_string().into(),
            is_damage: matches!(error, StoreError::Damaged { .. }),
        }
    }
}

impl Failure {
    fn refusal(&self) -> Refusal {
        let cause = Arc::clone(&self.cause);
        if self.is_damage {
            Refusal::Damaged(cause)
        } else {
            Refusal::Dead(cause)
        }
    }
}

#[cfg(test)]
mod tests;
