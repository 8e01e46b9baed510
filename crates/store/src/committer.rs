//! The one thread that writes.
//!
//! ```text
//! shards --submit--> queue (bounded) --take up to 1 MiB--> commit, one fsync --answers--> shards
//!                    |<------- what arrives meanwhile is the next commit ------>|
//! ```
//!
//! A commit starts as soon as there is anything and none is running, so a lone message waits for
//! its own fsync only, and under load as many share one as arrive in its time. Where a disk is fast
//! that is few, and a commit, its answer and all that this wakes cost more than what is in it: who
//! streams gives a *patience* with its batches, and the commit begins no sooner than so long after
//! the one before. With 200 publishers at QoS 1, 10 messages under way each, whose shard gives what
//! a turn has read together and then waits for the answer, 1 ms is best: 310,000/s, 278,000 with
//! 0.5 ms and 264,000 with 2 (medians of five runs of 3 s, alternating); in four others 322,000,
//! and 287,000 with none. Where each message was given by itself, 2 ms were, and with less fewer
//! went through: 241,000 with 1 ms instead of 258,000.
//!
//! At half of that rate a shard finds lone messages in its sockets, takes their senders for peers
//! that answer, and is not patient. Tried: to call nobody spoken to who heard only
//! acknowledgements. The shard was patient then, 302 bytes were written for a message instead of
//! 364, and it took 8.0 µs instead of 9.0; but PUBACK came no sooner: 23 ms (p99), 18 to 61 with it
//! and 15 to 31 without (medians of seven alternating runs of 3 s).
//!
//! What was committed goes back with its answer. Freed here it would be fought for with the thread
//! that made it and makes more of it: the allocator's lock took 2 % of both.
//!
//! Invariants:
//! - Batches are written and answered in the order in which they were submitted, each once.
//! - After an error of the store nothing is written, and every batch is answered [`Refusal::Dead`],
//!   or [`Refusal::Damaged`]. An error is never tried again as success.
//! - Nothing waits to submit: a full queue gives the batch back, and one whose thread has panicked
//!   takes it and forgets it.
//! - At an orderly end everything is synced, whatever the store's durability.
//!
//! Deliberately absent: who waits for an answer, and what becomes of the broker when the store is
//! dead. Both are the caller's.

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
    thread: Option<JoinHandle<Option<Death>>>,
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
struct Death {
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
    patience: Duration,
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
                patience: Duration::ZERO,
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
    /// take is left. Their commit begins no sooner than `patience` after the one before has ended,
    /// if nobody who is less patient is in it, and there is room in it.
    pub fn submit_all(&self, batches: &mut VecDeque<(Batch, T)>, patience: Duration) {
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
        let sooner = waited == 0 || patience < queue.patience;
        if sooner && queue.waiting.len() > waited {
            queue.patience = patience;
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

    fn close(&mut self) -> Option<std::thread::Result<Option<Death>>> {
        self.shared.lock().closed = true;
        self.shared.changed.notify_one();
        self.thread.take().map(JoinHandle::join)
    }

    /// An error of the store has ended writing.
    pub fn is_dead(&self) -> bool {
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
    dead: Option<Death>,
    answer: A,
    answers: Vec<Answer<T>>,
}

impl<T, S: Store + ?Sized, A: FnMut(&mut Vec<Answer<T>>)> Writer<T, S, A> {
    fn run(mut self) -> Option<Death> {
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
        while let Some(left) = self.patience_left(&queue) {
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
    fn patience_left(&self, queue: &Queue<T>) -> Option<Duration> {
        if queue.closed || queue.bytes >= COMMIT_BYTES_MAX {
            return None;
        }
        let left = queue.patience.checked_sub(self.committed_at?.elapsed())?;
        (!left.is_zero()).then_some(left)
    }

    fn commit(&mut self, batches: &mut Vec<Batch>, tokens: &mut Vec<T>) {
        let started = Instant::now();
        let results = match &self.dead {
            Some(death) => Err(death.clone()),
            None => self
                .store
                .commit(batches)
                .map_err(|error| self.shared.died(&error)),
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
            self.dead = Some(self.shared.died(&error));
        }
    }
}

impl<T> Shared<T> {
    fn died(&self, error: &StoreError) -> Death {
        self.dead.store(true, Ordering::Release);
        Death {
            cause: error.to_string().into(),
            is_damage: matches!(error, StoreError::Damaged { .. }),
        }
    }
}

impl Death {
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
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::batch::Space;
    use crate::faulty::{Fault, Faulty, On};
    use crate::memory::Memory;
    use crate::store::Kv;

    type Answers = mpsc::Receiver<Vec<(u32, Result<Committed, Refusal>)>>;

    /// A committer whose answers come out of a channel that takes one list at a time: what is
    /// submitted meanwhile waits.
    fn start<S: Store + 'static>(store: &Arc<S>) -> (Committer<u32>, Answers) {
        let (sender, answers) = mpsc::sync_channel(0);
        let started = Committer::start(Arc::clone(store), None, move |list| {
            let list = list.drain(..).map(|answer| (answer.token, answer.result));
            sender.send(list.collect()).ok();
        });
        (started.unwrap(), answers)
    }

    fn put(key: &[u8]) -> Batch {
        let mut batch = Batch::new();
        batch.put(Space::Control, key.to_vec(), vec![1]);
        batch
    }

    #[test]
    fn what_arrives_during_a_commit_is_committed_together_and_answered_in_order() {
        let store = Arc::new(Memory::new());
        let (committer, answers) = start(&store);
        committer.submit(put(b"first"), 0).unwrap();
        // The first commit runs, or waits to be heard; these gather, or go with it.
        for token in 1..10 {
            committer
                .submit(put(&[u8::try_from(token).unwrap()]), token)
                .unwrap();
        }
        let mut tokens = Vec::new();
        let mut commits = 0;
        while tokens.len() < 10 {
            commits += 1;
            for (token, result) in answers.recv().unwrap() {
                assert!(result.is_ok());
                tokens.push(token);
            }
        }
        assert_eq!(tokens, (0..10).collect::<Vec<_>>());
        assert!(commits <= 2, "{commits} commits");
        assert_eq!(committer.stats().batches(), 10);
        assert_eq!(committer.stats().commits(), commits);
    }

    /// Far longer than any test.
    const HOUR: Duration = Duration::from_hours(1);

    fn tokens(answers: &Answers) -> Vec<u32> {
        let answers = answers.recv().unwrap();
        answers.into_iter().map(|(token, _)| token).collect()
    }

    #[test]
    fn the_patient_wait_for_each_other_and_for_nobody_who_is_not() {
        let store = Arc::new(Memory::new());
        let (committer, answers) = start(&store);
        let submit = |key: &[u8], token, patience| {
            committer.submit_all(&mut [(put(key), token)].into(), patience);
        };
        submit(b"first", 0, HOUR);
        assert_eq!(tokens(&answers), [0], "no commit was before it");
        for patient in (1..200).step_by(2) {
            submit(b"patient", patient, HOUR);
            std::thread::yield_now();
            submit(b"not", patient + 1, Duration::ZERO);
            assert_eq!(tokens(&answers), [patient, patient + 1]);
        }
        submit(b"last", 201, HOUR);
        drop(answers);
        assert_eq!(committer.end(), Ok(()));
        assert!(store.get(Space::Control, b"last").unwrap().is_some());
    }

    #[test]
    fn a_commit_that_is_full_waits_for_nothing() {
        let store = Arc::new(Memory::new());
        let (committer, answers) = start(&store);
        committer.submit(put(b"first"), 0).unwrap();
        assert_eq!(tokens(&answers), [0]);
        let mut large = put(b"large");
        large.put(
            Space::Control,
            b"value".to_vec(),
            vec![0; COMMIT_BYTES_MAX / 2],
        );
        for token in [1, 2] {
            committer.submit_all(&mut [(large.clone(), token)].into(), HOUR);
        }
        assert_eq!(tokens(&answers), [1], "both are more than one commit has");
    }

    #[test]
    fn after_an_error_every_commit_is_dead_and_nothing_is_written() {
        let store = Arc::new(Faulty::new(Memory::new()));
        store.inject(Fault {
            on: On::Commit(0),
            after: 1,
            kind: io::ErrorKind::StorageFull,
        });
        let (committer, answers) = start(&store);
        let mut results = Vec::new();
        for token in 0..3 {
            committer
                .submit(put(&[b'a' + u8::try_from(token).unwrap()]), token)
                .unwrap();
            results.extend(answers.recv().unwrap());
        }
        assert!(results[0].1.is_ok());
        for (_, result) in &results[1..] {
            let Err(Refusal::Dead(cause)) = result else {
                panic!("{result:?}");
            };
            assert!(cause.contains("no storage space"), "{cause}");
        }
        assert!(committer.is_dead());
        assert_eq!(store.get(Space::Control, b"b").unwrap(), None);
        assert_eq!(store.get(Space::Control, b"c").unwrap(), None);
    }

    #[test]
    fn a_conflict_concerns_its_own_batch_only() {
        let store = Arc::new(Memory::new());
        let (committer, answers) = start(&store);
        let mut second = Batch::new();
        let absent = crate::Expect::Absent;
        second.put_if(Space::Control, b"a".to_vec(), vec![2], absent);
        for (token, batch) in [put(b"a"), second, put(b"b")].into_iter().enumerate() {
            committer
                .submit(batch, u32::try_from(token).unwrap())
                .unwrap();
        }
        let mut results = Vec::new();
        while results.len() < 3 {
            results.extend(answers.recv().unwrap());
        }
        let ok: Vec<_> = results.iter().map(|(_, result)| result.is_ok()).collect();
        assert_eq!(ok, [true, false, true]);
        assert_eq!(committer.stats().conflicts(), 1);
    }

    #[test]
    fn a_full_queue_gives_the_batch_back() {
        let store = Arc::new(Memory::new());
        let (committer, answers) = start(&store);
        let large = || {
            let mut batch = Batch::new();
            batch.put(
                Space::Control,
                b"large".to_vec(),
                vec![0; QUEUE_BYTES_MAX / 4],
            );
            batch
        };
        // Of those that fit, some may have been taken already; nobody listens, so few are.
        let mut submitted = 0;
        let returned = loop {
            match committer.submit(large(), submitted) {
                Ok(()) => submitted += 1,
                Err(full) => break full,
            }
        };
        assert_eq!(returned.token, submitted);
        assert_eq!(returned.batch, large());
        assert!((3..8).contains(&submitted), "{submitted}");
        let mut answered = 0;
        while answered < submitted {
            answered += u32::try_from(answers.recv().unwrap().len()).unwrap();
        }
        committer.submit(large(), 99).unwrap();
        assert_eq!(answers.recv().unwrap()[0].0, 99);
    }

    #[test]
    fn a_queue_whose_thread_panicked_takes_everything_and_ends() {
        let store = Arc::new(Memory::new());
        let panics = |_: &mut Vec<Answer<()>>| panic!("the store is haunted");
        let committer = Committer::start(store, None, panics).unwrap();
        committer.submit(put(b"a"), ()).unwrap();
        while !committer.thread.as_ref().unwrap().is_finished() {
            std::thread::yield_now();
        }
        for _ in 0..=QUEUE_BATCHES_MAX {
            committer.submit(put(b"b"), ()).unwrap();
        }
        assert!(committer.end().unwrap_err().contains("panicked"));
    }

    #[test]
    fn everything_is_synced_at_an_orderly_end_though_nobody_asked_for_it_before() {
        let store = Arc::new(Faulty::new(Memory::new()));
        store.inject(Fault {
            on: On::Sync,
            after: 0,
            kind: io::ErrorKind::Other,
        });
        let committer = Committer::start(Arc::clone(&store), None, Vec::clear).unwrap();
        committer.submit(put(b"a"), ()).unwrap();
        assert!(committer.end().is_err(), "it was not synced");
    }

    #[test]
    fn what_was_submitted_is_written_before_the_thread_ends() {
        let store = Arc::new(Memory::new());
        let committer = Committer::start(Arc::clone(&store), None, Vec::clear).unwrap();
        for key in 0..100 {
            committer.submit(put(&[key]), ()).unwrap();
        }
        drop(committer);
        let page = store.scan(Space::Control, &[], None, usize::MAX).unwrap();
        assert_eq!(page.pairs.len(), 100);
    }

    #[test]
    fn a_sync_that_is_due_happens_without_another_commit_and_its_error_is_final() {
        let store = Arc::new(Faulty::new(Memory::new()));
        // The commit succeeds; the sync after it does not.
        store.inject(Fault {
            on: On::Sync,
            after: 1,
            kind: io::ErrorKind::Other,
        });
        let (sender, answers) = mpsc::channel();
        let at_once = Some(Duration::ZERO);
        let committer = Committer::start(Arc::clone(&store), at_once, move |list| {
            for answer in list.drain(..) {
                sender.send(answer.result).unwrap();
            }
        });
        let committer = committer.unwrap();
        committer.submit(put(b"a"), ()).unwrap();
        assert!(answers.recv().unwrap().is_ok());
        committer.submit(put(b"b"), ()).unwrap();
        assert!(matches!(answers.recv().unwrap(), Err(Refusal::Dead(_))));
    }
}
