//! The data directory: the store's threads, and the handle that each shard has to them.
//!
//! ```text
//! shards ──▶ committer ──▶ stored                      ──▶ shards
//!                     └──▶ log reader: reads and trims logs ──▶ shards
//! ```
//!
//! The requests of all shards stand in one queue and are committed in that order, as many at a time
//! as arrived during the previous commit. A read takes its place in the same queue, so it finds
//! everything that was requested before it.
//!
//! Invariants:
//! - The requests that a shard makes in response to one input are stored together or not at all.
//! - A request is answered once everything before it is as safe as the configuration requires, or
//!   never: after an error of the store no request is answered, and the server is notified
//!   ([`Notice::StoreFailed`]).
//! - A record has the time of day of its turn. The monotonic clock stands still while the machine
//!   sleeps, and the time of day may be set.
//! - A shard is behind when the committer has no room for its requests: then it reads no client,
//!   and its messages to other shards wait until its requests are in the queue.
//!
//! Deliberately absent: the encoding of records (`unbroken-persist`).

mod answerer;
mod log_reader;
pub(crate) mod memory_control;
mod space;
mod store_handle;
#[cfg(test)]
pub(crate) mod tests;

use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use unbroken_broker_core::{Forget, Limits, RestoreError, Shard, ShardId};
use unbroken_persist::{Restored, Times, restore};
use unbroken_store::quarantine::{self, OnCorruption, Quarantined};
use unbroken_store::{Batch, Committer, Durability, LogId, Options, StoreError, store_health};

use self::answerer::Answerer;
use self::log_reader::{Job, LogReader};
pub use self::memory_control::ControlError;
use self::space::DiskSpace;
pub(crate) use self::store_handle::StoreHandle;
use self::store_handle::Token;
use crate::broker_store::BrokerStore;
use crate::channel::EventSender;
use crate::config::Storage;
use crate::control::{self, Control};
use crate::failure::{self, Failure};
use crate::handle::{AccessInForce, HandleError, Requests, WriteBatch};
use crate::notice::Notice;
use crate::stored_access::{Change, StoredAccess};
use crate::trace::{Trace, TraceFilter};

/// An open store, and the state restored from it.
#[derive(Debug)]
pub(crate) struct OpenedStore {
    store: Arc<dyn BrokerStore>,
    times: Times,
    restored: Restored,
    /// The previous run did not end cleanly.
    was_killed: bool,
    directory: PathBuf,
}

/// The store's threads. Dropping it ends them when all requests are written.
#[derive(Debug)]
pub(crate) struct Disk {
    store: Arc<dyn BrokerStore>,
    /// `None` if it could not be created.
    control: Option<Control>,
    committer: Option<Arc<Committer<Token>>>,
    log_reader: Option<JoinHandle<()>>,
    jobs: Sender<Job>,
    space: Arc<DiskSpace>,
    times: Times,
    access: Arc<AccessInForce>,
    failure: Failure,
}

/// Changes what commands ask the control socket to change, and has the configuration read again.
#[derive(Debug)]
struct Operator {
    requests: Requests,
    access: Arc<AccessInForce>,
    failure: Failure,
    notify: Sender<Notice>,
    /// Whether what it changes ends with the process.
    is_in_memory: bool,
}

impl Operator {
    fn new(
        (requests, access): (Requests, &Arc<AccessInForce>),
        failure: Failure,
        notify: Sender<Notice>,
    ) -> Self {
        Self {
            requests,
            access: Arc::clone(access),
            failure,
            notify,
            is_in_memory: false,
        }
    }
}

impl control::Operator for Operator {
    fn forget(&self, what: Forget) -> Result<(), String> {
        if let Some(cause) = self.failure.cause() {
            return Err(format!("cannot remove it: the store has failed: {cause}"));
        }
        let forgotten = self.requests.forget(&what, REMOVE_TIMEOUT);
        forgotten.map_err(|error| match error {
            HandleError::Timeout(_) => {
                "the removal is requested but not on disk yet; check again later".into()
            }
            HandleError::Stopped => "the broker is ending, or its store has failed".into(),
            other => other.to_string(),
        })
    }

    fn reload(&self) -> Result<Vec<String>, String> {
        let (answer, reloaded) = mpsc::channel();
        // If the broker is ending, nobody takes it and the answer is dropped with it.
        let _ = self.notify.send(Notice::Reload(answer));
        let unanswered = |error| match error {
            RecvTimeoutError::Timeout => "the broker has not reloaded yet: its log has the outcome",
            RecvTimeoutError::Disconnected => "the broker is ending",
        };
        let outcome = reloaded.recv_timeout(RELOAD_TIMEOUT);
        outcome.map_err(|error| unanswered(error).to_owned())?
    }

    fn change(&self, change: &Change) -> Result<(), String> {
        if let Some(cause) = self.failure.cause() {
            return Err(format!("nothing is changed: the store has failed: {cause}"));
        }
        let changed = self.access.change(change, &self.requests);
        changed.map_err(|error| error.to_string())
    }

    fn trace(&self, filter: &TraceFilter, time: Duration) -> Result<Trace, String> {
        let begun = self.requests.trace(filter, time);
        begun.map_err(|error| error.to_string())
    }

    fn automatic_bans(&self) -> Vec<(IpAddr, u64)> {
        let bans = self.access.bans().automatic(Instant::now());
        let ms = |left: Duration| u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
        bans.iter().map(|ban| (ban.address, ms(ban.left))).collect()
    }

    fn failure(&self) -> Option<&str> {
        self.failure.cause()
    }

    fn is_in_memory(&self) -> bool {
        self.is_in_memory
    }
}

/// Writes what is no shard's.
#[derive(Debug)]
struct Writer {
    committer: Arc<Committer<Token>>,
    space: Arc<DiskSpace>,
}

impl Writer {
    fn new(committer: &Arc<Committer<Token>>, space: &Arc<DiskSpace>) -> Self {
        Self {
            committer: Arc::clone(committer),
            space: Arc::clone(space),
        }
    }
}

impl WriteBatch for Writer {
    fn write(&self, batch: Batch, done: Sender<()>) {
        let bytes = batch.bytes() as u64;
        self.space.request(bytes);
        // A full queue gives it back, and dropping it is the answer.
        if self.committer.submit(batch, Token::Notify(done)).is_err() {
            self.space.commit(bytes);
        }
    }
}

/// Why the broker cannot use its data directory.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DiskError {
    /// The store cannot be opened or read.
    #[error("{error}{help}", error = .0, help = store_help(.0))]
    Store(#[from] StoreError),
    /// The state in it cannot be restored.
    #[error("{}: {source}", directory.display())]
    Restore {
        /// The store's directory.
        directory: PathBuf,
        /// Why not.
        source: RestoreError,
    },
}

fn store_help(error: &StoreError) -> &'static str {
    match error {
        StoreError::Io { .. } | StoreError::Held { .. } => {
            " (--data DIR chooses another directory; --in-memory stores nothing)"
        }
        _ => "",
    }
}

impl OpenedStore {
    /// Opens the store, or sets a damaged one aside, and reads the state for so many shards.
    pub(crate) fn open(storage: &Storage, directory: &Path, shards: u8) -> Result<Self, DiskError> {
        let mut options = Options::default();
        options.durability = storage.durability;
        let (mut store, mut quarantined) =
            quarantine::open(directory, options, storage.on_corruption)?;
        let now = Instant::now();
        let times = Times::new(now, SystemTime::now());
        let mut restored = match restore(&store, shards, now, &times) {
            // Damage that opening did not find. Everything in the copy can be read.
            Err(cause @ StoreError::Damaged { .. })
                if storage.on_corruption == OnCorruption::Quarantine && quarantined.is_none() =>
            {
                let (copied, what) = quarantine::set_aside(store, &cause.to_string())?;
                (store, quarantined) = (copied, Some(what));
                restore(&store, shards, now, &times)?
            }
            restored => restored?,
        };
        // The gap is recorded when the broker begins, if it does.
        restored.gaps = store_health::gaps(&store)?;
        let was_killed = store_health::was_killed(&store)?;
        if let Some(quarantined) = quarantined {
            log_quarantined(&quarantined);
        } else if let Some(set_aside) = quarantine::unreported(directory)? {
            tracing::warn!(
                set_aside = %set_aside.display(),
                "an earlier start found a damaged store and was interrupted: the store is set \
                 aside, and its damage.txt lists what could not be copied"
            );
        }
        quarantine::mark_reported(directory)?;
        if let Some(cause) = store.not_looked_at() {
            tracing::warn!(
                cause,
                "only the store's journals and its list of tables were checked before it was \
                 opened: there is not enough disk space for the full check"
            );
        }
        for what in &restored.lost {
            tracing::error!("{what}");
        }
        for what in &restored.undelivered {
            tracing::warn!("{what}");
        }
        if let Some(cause) = failure::of_last_run(directory) {
            tracing::warn!(
                cause,
                "the store failed in the last run; all acknowledged data was found"
            );
            failure::forget(directory);
        }
        tracing::info!(
            directory = %directory.display(),
            sessions = restored.sessions.len(),
            retained = restored.retained.len(),
            "storage is open"
        );
        Ok(Self {
            store: Arc::new(store),
            times,
            restored,
            was_killed,
            directory: directory.to_owned(),
        })
    }

    /// What the store has about users.
    pub(crate) fn access(&self) -> Result<StoredAccess, DiskError> {
        Ok(StoredAccess::load(&*self.store)?)
    }

    /// Whether the previous run did not end cleanly.
    pub(crate) const fn was_killed(&self) -> bool {
        self.was_killed
    }

    /// Gives each shard its state. The shards must exchange messages before clients connect.
    pub(crate) fn restore(
        &mut self,
        shards: &mut [Shard],
        limits: &Limits,
    ) -> Result<(), DiskError> {
        let restored = std::mem::take(&mut self.restored);
        let subscriptions = restored
            .sessions
            .iter()
            .flat_map(|session| &session.subscriptions);
        let subscriptions = subscriptions.filter(|held| held.until.is_none()).count();
        for (what, count, max) in [
            ("sessions_max", restored.sessions.len(), limits.sessions_max),
            ("subscriptions_max", subscriptions, limits.subscriptions_max),
        ] {
            if count > max as usize {
                tracing::warn!(
                    count,
                    max,
                    "more are stored than limits.{what} allows: all stay, and none is added until \
                     there are fewer"
                );
            }
        }
        let overhead = self.store.overhead_bytes_max(self.count_logs(shards.len()));
        if limits.store_bytes_max < overhead {
            tracing::warn!(
                max = limits.store_bytes_max,
                overhead,
                "limits.store_bytes_max is lower than the store's own overhead: make sure that the \
                 disk has room for both, or raise the limit to at least the overhead"
            );
        }
        if let (Ok(kept), Ok(taken)) = (self.store.kept_bytes(), self.store.size_bytes()) {
            let free = self.store.free_space();
            let space = DiskSpace::new(&self.directory, overhead);
            let space = space.available(free, kept.sum(), taken);
            if space < limits.store_bytes_max {
                tracing::warn!(
                    max = limits.store_bytes_max,
                    space,
                    taken,
                    overhead,
                    "the disk has less space than limits.store_bytes_max: the space is the limit, \
                     and limits.store_full applies when it is used up; free disk space or lower \
                     the limit"
                );
            }
        }
        restored
            .distribute(Instant::now(), shards)
            .map_err(|source| DiskError::Restore {
                directory: self.directory.clone(),
                source,
            })?;
        let messages: u64 = shards.iter().map(|it| it.stats().retained_messages).sum();
        let bytes: u64 = shards.iter().map(|it| it.stats().retained_bytes).sum();
        if messages > limits.retained_messages_max.into() || bytes > limits.retained_bytes_max {
            tracing::warn!(
                messages,
                bytes,
                "more retained messages are stored than limits.retained_messages_max or \
                 retained_bytes_max allow: they stay, and no topic gets its first one before some \
                 were removed"
            );
        }
        Ok(())
    }

    /// Logs of so many shards, and others that are not empty: of a run with more shards.
    fn count_logs(&self, shards: usize) -> u64 {
        let logs = self.store.logs().unwrap_or_default();
        let has_something = |log: &LogId| {
            let bounds = self.store.bounds(*log);
            bounds.is_ok_and(|bounds| bounds.first < bounds.next)
        };
        let left = logs.iter().filter(|log| usize::from(log.0) >= shards);
        (shards + left.filter(|log| has_something(log)).count()) as u64
    }

    /// Starts the threads. Each has its own channel to each shard.
    pub(crate) fn start(
        self,
        storage: &Storage,
        stored: Vec<EventSender>,
        opened: Vec<EventSender>,
        (requests, access): (Requests, Arc<AccessInForce>),
        notify: Sender<Notice>,
    ) -> io::Result<Disk> {
        // From here on clients may get acknowledgements.
        let begun = store_health::begin(&*self.store, storage.durability == Durability::Strict);
        begun.map_err(|error| {
            if matches!(error, StoreError::Damaged { .. }) {
                // If the mark fails, the next start finds the same damage.
                let _ = quarantine::mark(&self.directory, &error);
            }
            io::Error::other(error)
        })?;
        let (jobs, waiting) = mpsc::channel();
        let overhead = self.store.overhead_bytes_max(self.count_logs(stored.len()));
        let space = Arc::new(DiskSpace::new(&self.directory, overhead));
        if let (Ok(kept), Ok(taken)) = (self.store.kept_bytes(), self.store.size_bytes()) {
            space.available(space.free_space(&*self.store), kept.sum(), taken);
        }
        // Before the first client is read.
        space.look(&*self.store);
        self.store.check_place().map_err(io::Error::other)?;
        let (notify_reader, notify_operator) = (notify.clone(), notify.clone());
        let answerer = Answerer {
            store: Arc::clone(&self.store),
            space: Arc::clone(&space),
            directory: self.directory.clone(),
            latest: stored.iter().map(|_| None).collect(),
            shards: stored,
            jobs: jobs.clone(),
            notify: Some(notify),
        };
        let failure = Failure::new(&self.directory);
        let committer = Arc::new(self.start_committer(storage, answerer)?);
        let writer = Writer::new(&committer, &space);
        access.set_disk(Box::new(writer));
        let operator = Operator::new((requests, &access), failure.clone(), notify_operator);
        let store = Arc::clone(&self.store);
        let control = control::start(store, &self.directory, Box::new(operator));
        let control = control.inspect_err(|error| {
            tracing::warn!(
                %error,
                directory = %self.directory.display(),
                "cannot create the control socket: commands cannot read the data directory while \
                 the broker runs"
            );
        });
        let log_reader = LogReader::new(
            Arc::clone(&self.store),
            committer.stats(),
            Arc::clone(&space),
            self.directory.clone(),
            opened,
            waiting,
            notify_reader,
        );
        let log_reader = thread::Builder::new()
            .name("log-reader".to_owned())
            .spawn(move || log_reader.run())?;
        Ok(Disk {
            store: self.store,
            control: control.ok(),
            committer: Some(committer),
            log_reader: Some(log_reader),
            jobs,
            space,
            times: self.times,
            access,
            failure,
        })
    }

    fn start_committer(
        &self,
        storage: &Storage,
        mut answerer: Answerer,
    ) -> io::Result<Committer<Token>> {
        Committer::start(
            Arc::clone(&self.store),
            storage.durability.sync_every(),
            move |answers: &mut Vec<_>| answerer.answer(answers.drain(..)),
        )
    }
}

fn log_quarantined(quarantined: &Quarantined) {
    let Quarantined {
        set_aside,
        cause,
        salvaged,
    } = quarantined;
    tracing::error!(
        cause,
        set_aside = %set_aside.display(),
        messages = salvaged.messages,
        values = salvaged.values,
        "the store was damaged: it is set aside, and its readable content was copied to a new one"
    );
    for lost in &salvaged.lost {
        tracing::error!(lost, "not copied");
    }
}

impl Disk {
    /// A shard's handle to the store.
    pub(crate) fn store_handle(&self, shard: ShardId) -> Option<StoreHandle> {
        let committer = Arc::clone(self.committer.as_ref()?);
        let space = Arc::clone(&self.space);
        Some(StoreHandle::new(shard, committer, space, self.times))
    }
}

impl Disk {
    pub(crate) fn failure(&self) -> &Failure {
        &self.failure
    }

    /// Writes all queued requests and reports the result. The shards have ended.
    pub(crate) fn end(&mut self) -> Result<(), String> {
        drop(self.control.take());
        self.access.end_disk();
        // The shards' clones are gone.
        let Some(committer) = self.committer.take().and_then(Arc::into_inner) else {
            return Ok(());
        };
        committer.end()?;
        // All acknowledged data is synced.
        store_health::end(&*self.store).map_err(|error| error.to_string())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = self.end(); // a caller that needs the result has called `end`
        let _ = self.jobs.send(Job::End); // the log reader may have failed
        if let Some(log_reader) = self.log_reader.take() {
            let _ = log_reader.join(); // its panic hook has reported a panic
        }
    }
}

/// Time limit until a removal is on disk.
const REMOVE_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a command waits for a reload.
const RELOAD_TIMEOUT: Duration = Duration::from_secs(30);
