//! What outlives the broker: the store's threads, and each shard's way to them.
//!
//! ```text
//! shards ──▶ committer ──▶ stored                      ──▶ shards
//!                     └──▶ keeper: reads logs, trims them ──▶ shards
//! ```
//!
//! A shard's requests stand in one queue with those of all others and are committed in that order,
//! as many at a time as have come during the commit before. A read takes its place in the same
//! queue, so that it finds everything that was asked for before it.
//!
//! Invariants:
//! - What a shard asks for in answer to one input is stored together or not at all.
//! - A request is answered once everything before it is as safe as the configuration says, or
//!   never: after an error of the store nothing is answered, and the broker is told
//!   ([`Notice::StoreFailed`]).
//! - What is written has the time of day of its turn. The broker's own clock stands still while the
//!   machine sleeps, and the time of day may be set.
//! - A shard that the committer has no room for is behind: it reads no client, and what it writes
//!   to other shards waits until its requests are in the queue.
//!
//! Deliberately absent: what a record says in bytes, which is `unbroken-persist`'s.

mod keeper;
mod room;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use unbroken_broker_core::{
    DropReason, Forget, Frontier, Limits, ReadRequest, RestoreError, Shard, ShardId, StoreId,
    StoreRequest,
};
use unbroken_persist::{Restored, Times, batch_of, restore};
use unbroken_store::quarantine::{self, OnCorruption, Quarantined};
use unbroken_store::{
    Batch, COMMIT_BYTES_MAX, Committer, Durability, LogId, Options, Refusal, StoreError, standing,
};

use self::keeper::{Job, Keeper};
use self::room::Room;
use crate::broker_store::BrokerStore;
use crate::config::Storage;
use crate::control::{self, Control};
use crate::failure::{self, Failure};
use crate::handle::{HandleError, Requests};
use crate::mailbox::{Outside, Parcel};
use crate::server::Notice;

/// An open store, and the broker as it was.
#[derive(Debug)]
pub(crate) struct Found {
    store: Arc<dyn BrokerStore>,
    times: Times,
    restored: Restored,
    /// The broker that ran before has not ended in good order.
    was_killed: bool,
    directory: PathBuf,
}

/// The store's threads. Dropping it ends them when everything that was asked for is written.
#[derive(Debug)]
pub(crate) struct Disk {
    store: Arc<dyn BrokerStore>,
    /// None if it could not be made.
    control: Option<Control>,
    committer: Option<Arc<Committer<Token>>>,
    keeper: Option<JoinHandle<()>>,
    jobs: Sender<Job>,
    times: Times,
    failure: Failure,
}

/// Removes what somebody asks for through the control socket.
#[derive(Debug)]
struct Operator {
    requests: Requests,
    failure: Failure,
}

impl control::Operator for Operator {
    fn forget(&self, what: Forget) -> Result<(), String> {
        if let Some(cause) = self.failure.cause() {
            return Err(format!(
                "nothing can be removed: the store has failed: {cause}"
            ));
        }
        let forgotten = self.requests.forget(&what, FORGET_WAIT);
        forgotten.map_err(|error| match error {
            HandleError::Timeout(_) => "it is asked for, and not on disk yet; look again".into(),
            HandleError::Stopped => "the broker is ending, or its store has failed".into(),
            other => other.to_string(),
        })
    }

    fn failure(&self) -> Option<&str> {
        self.failure.cause()
    }
}

/// One shard's way to the disk.
#[derive(Debug)]
pub(crate) struct Desk {
    shard: ShardId,
    committer: Arc<Committer<Token>>,
    /// Of the turn that has last asked for something.
    times: Times,
    /// What the shard has asked for in answer to one input, and its last request.
    gathered: Option<(Batch, StoreId)>,
    /// What the broker needs when that is stored, if it has said so.
    let_go: Option<Frontier>,
    /// The last request that was submitted, and the last one that is stored.
    submitted: StoreId,
    stored: StoreId,
    /// What is to be submitted when the turn has read its clients: so a commit begins with all that
    /// a turn brings, and not with the first message of it. Or what the committer had no room for.
    unsubmitted: VecDeque<(Batch, Token)>,
    unsubmitted_bytes: usize,
    /// The committer had no room.
    is_behind: bool,
    /// What the shard needed when it was last asked, and when to ask again.
    needed: Option<Frontier>,
    ask_at: Instant,
    /// Times that it is still to be asked in quick succession.
    early_asks: u32,
    /// See [`Committer::submit_all`].
    pub(crate) patience: Duration,
}

/// What a batch was committed for.
#[derive(Debug)]
enum Token {
    Stored(ShardId, StoreId),
    Read(ShardId, ReadRequest),
    /// What a shard needed before; what it has told since is stored.
    Needed(ShardId, Frontier),
    /// What is within may be let go of.
    LetGo(Frontier),
    /// Somebody waits until everything before it is stored.
    Told(Sender<()>),
}

/// Why the broker cannot go on with what is in its directory.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DiskError {
    /// The store cannot be opened or read.
    #[error("{error}{help}", error = .0, help = store_help(.0))]
    Store(#[from] StoreError),
    /// What is in it cannot be restored.
    #[error("{}: {source}", directory.display())]
    Restore {
        /// The store's directory.
        directory: PathBuf,
        /// What cannot.
        source: RestoreError,
    },
}

fn store_help(error: &StoreError) -> &'static str {
    match error {
        StoreError::Io { .. } | StoreError::Held { .. } => {
            " (--data DIR gives another directory; --in-memory keeps nothing)"
        }
        _ => "",
    }
}

impl Found {
    /// Opens the store, or sets a damaged one aside, and reads what a broker with so many shards
    /// begins with.
    pub(crate) fn open(storage: &Storage, directory: &Path, shards: u8) -> Result<Self, DiskError> {
        let mut options = Options::default();
        options.durability = storage.durability;
        let (mut store, mut quarantined) =
            quarantine::open(directory, options, storage.on_corruption)?;
        let now = Instant::now();
        let times = Times::new(now, SystemTime::now());
        let mut restored = match restore(&store, shards, now, &times) {
            // Deeper than opening it looks. Of what was copied everything reads.
            Err(cause @ StoreError::Damaged { .. })
                if storage.on_corruption == OnCorruption::Quarantine && quarantined.is_none() =>
            {
                let (copied, what) = quarantine::set_aside(store, &cause.to_string())?;
                (store, quarantined) = (copied, Some(what));
                restore(&store, shards, now, &times)?
            }
            restored => restored?,
        };
        // It is noted when the broker begins, if it does.
        restored.gaps = standing::gaps(&store)?;
        let was_killed = standing::was_killed(&store)?;
        if let Some(quarantined) = quarantined {
            tell_quarantined(&quarantined);
        } else if let Some(set_aside) = quarantine::untold(directory)? {
            tracing::warn!(
                set_aside = %set_aside.display(),
                "an earlier start met a damaged store and was interrupted: it is set aside now, and \
                 damage.txt in it says what could not be copied"
            );
        }
        quarantine::told(directory)?;
        if let Some(cause) = store.not_looked_at() {
            tracing::warn!(
                cause,
                "only the journals of the store were looked at before it was opened, and its list \
                 of tables: there is no room beside it"
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
                "the store failed in the last run; what was acknowledged is there"
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

    /// Whether the broker that ran before has not ended in good order.
    pub(crate) const fn was_killed(&self) -> bool {
        self.was_killed
    }

    /// Gives each shard what is its own. They have to read each other's mail before any client
    /// comes.
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
                    "limits.{what} is lower than what is stored: all of it is kept, and nothing is \
                     added until there is less"
                );
            }
        }
        let beside = self.store.overhead_bytes_max(self.count_logs(shards.len()));
        if limits.store_bytes_max < beside {
            tracing::warn!(
                max = limits.store_bytes_max,
                beside,
                "limits.store_bytes_max counts what is kept, and the directory may take more beside \
                 it than that: see that the disk has room for both, or take at least so much"
            );
        }
        if let (Ok(kept), Ok(taken)) = (self.store.kept_bytes(), self.store.size_bytes()) {
            let room = Room::new(&self.directory, beside).of(kept.sum(), taken);
            if room < limits.store_bytes_max {
                tracing::warn!(
                    max = limits.store_bytes_max,
                    room,
                    taken,
                    beside,
                    "the disk is too small for what limits.store_bytes_max lets the directory take: \
                     as long as it is, so much is kept as it has room for, and limits.store_full \
                     says what happens then"
                );
            }
        }
        restored
            .hand_out(Instant::now(), shards)
            .map_err(|source| DiskError::Restore {
                directory: self.directory.clone(),
                source,
            })?;
        let full = DropReason::RetainedFull as usize;
        let hidden: u64 = shards.iter().map(|shard| shard.stats().dropped[full]).sum();
        if hidden > 0 {
            tracing::warn!(
                hidden,
                "limits.retained_messages_max or retained_bytes_max is lower than what is stored: \
                 so many retained messages stay on disk and are not shown to clients"
            );
        }
        Ok(())
    }

    /// Logs of so many shards, and those in which something is left of a run with more.
    fn count_logs(&self, shards: usize) -> u64 {
        let logs = self.store.logs().unwrap_or_default();
        let has_something = |log: &LogId| {
            let bounds = self.store.bounds(*log);
            bounds.is_ok_and(|bounds| bounds.first < bounds.next)
        };
        let left = logs.iter().filter(|log| usize::from(log.0) >= shards);
        (shards + left.filter(|log| has_something(log)).count()) as u64
    }

    /// Starts the threads. Each answers through a feed to each shard of its own.
    pub(crate) fn start(
        self,
        storage: &Storage,
        stored: Vec<Outside>,
        found: Vec<Outside>,
        requests: Requests,
        notify: Sender<Notice>,
    ) -> io::Result<Disk> {
        // From now on somebody may be told something.
        let begun = standing::begin(&*self.store, storage.durability == Durability::Strict);
        begun.map_err(|error| {
            if matches!(error, StoreError::Damaged { .. }) {
                // If it cannot be, the next start meets the same.
                let _ = quarantine::mark(&self.directory, &error);
            }
            io::Error::other(error)
        })?;
        let (jobs, waiting) = mpsc::channel();
        let beside = self.store.overhead_bytes_max(self.count_logs(stored.len()));
        let told = notify.clone();
        let mut answerer = Answerer {
            directory: self.directory.clone(),
            latest: stored.iter().map(|_| None).collect(),
            shards: stored,
            jobs: jobs.clone(),
            notify: Some(notify),
        };
        let failure = Failure::new(&self.directory);
        let operator = Operator {
            requests,
            failure: failure.clone(),
        };
        let store = Arc::clone(&self.store);
        let control = control::start(store, &self.directory, Box::new(operator));
        let control = control.inspect_err(|error| {
            tracing::warn!(
                %error,
                directory = %self.directory.display(),
                "no control socket: commands cannot look into the directory until the broker ends"
            );
        });
        let committer = Committer::start(
            Arc::clone(&self.store),
            storage.durability.sync_every(),
            move |answers: &mut Vec<_>| answerer.answer(answers.drain(..)),
        )?;
        let keeper = Keeper::new(
            Arc::clone(&self.store),
            committer.stats(),
            Room::new(&self.directory, beside),
            self.directory.clone(),
            found,
            waiting,
            told,
        );
        let keeper = thread::Builder::new()
            .name("keeper".to_owned())
            .spawn(move || keeper.run())?;
        Ok(Disk {
            store: self.store,
            control: control.ok(),
            committer: Some(Arc::new(committer)),
            keeper: Some(keeper),
            jobs,
            times: self.times,
            failure,
        })
    }
}

fn tell_quarantined(quarantined: &Quarantined) {
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
        "the store was damaged: it is set aside, and what could be read is copied"
    );
    for lost in &salvaged.lost {
        tracing::error!(lost, "not copied");
    }
}

impl Disk {
    /// A shard's way to it.
    pub(crate) fn desk(&self, shard: ShardId) -> Option<Desk> {
        Some(Desk {
            shard,
            committer: Arc::clone(self.committer.as_ref()?),
            times: self.times,
            gathered: None,
            let_go: None,
            submitted: StoreId::default(),
            stored: StoreId::default(),
            unsubmitted: VecDeque::new(),
            unsubmitted_bytes: 0,
            is_behind: false,
            needed: None,
            ask_at: Instant::now() + ASK_EARLY_EVERY,
            early_asks: EARLY_ASKS,
            patience: Duration::ZERO,
        })
    }
}

impl Disk {
    pub(crate) fn failure(&self) -> &Failure {
        &self.failure
    }

    /// Writes what is in the queue, and says what became of the last of it. The shards have ended.
    pub(crate) fn end(&mut self) -> Result<(), String> {
        drop(self.control.take());
        // Nobody else has it any more.
        let Some(committer) = self.committer.take().and_then(Arc::into_inner) else {
            return Ok(());
        };
        committer.end()?;
        // All that was told is synced.
        standing::end(&*self.store).map_err(|error| error.to_string())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = self.end(); // whoever wants to know has asked
        let _ = self.jobs.send(Job::End); // the keeper may have failed
        if let Some(keeper) = self.keeper.take() {
            let _ = keeper.join(); // a panic has been told by its hook
        }
    }
}

impl Desk {
    /// Gathers it. What one input has led to is stored together or not at all.
    pub(crate) fn store(&mut self, now: Instant, request: &StoreRequest) {
        if !self.times.is_of(now) {
            self.times = Times::new(now, SystemTime::now());
        }
        let batch = batch_of(&request.record, now, &self.times);
        match &mut self.gathered {
            Some((gathered, last)) => {
                gathered.extend(batch);
                *last = request.id;
            }
            None => self.gathered = Some((batch, request.id)),
        }
    }

    /// The input is over.
    pub(crate) fn submit_gathered(&mut self) {
        if let Some((batch, last)) = self.gathered.take() {
            self.submitted = last;
            self.submit(batch, Token::Stored(self.shard, last));
        }
        if let Some(needed) = self.let_go.take() {
            self.submit(Batch::new(), Token::LetGo(needed));
        }
    }

    /// When all is stored that the shard has asked for, what is within is not needed by anybody.
    pub(crate) fn let_go(&mut self, needed: Frontier) {
        self.let_go = Some(needed);
    }

    pub(crate) fn read(&mut self, request: ReadRequest) {
        self.submit_gathered();
        self.submit(Batch::new(), Token::Read(self.shard, request));
    }

    /// Tells when everything is stored that the shard has asked for so far.
    pub(crate) fn tell_when_stored(&mut self, done: Sender<()>) {
        self.submit_gathered();
        self.submit(Batch::new(), Token::Told(done));
    }

    /// The committer has answered: everything up to here is stored.
    pub(crate) fn stored(&mut self, id: StoreId) {
        // The news that the store has failed may have come before.
        self.stored = self.stored.max(id);
    }

    /// The last request that is known to be stored.
    pub(crate) const fn last_stored(&self) -> StoreId {
        self.stored
    }

    /// The committer answers nothing more.
    pub(crate) fn failed(&mut self) {
        self.stored = self.submitted;
    }

    /// Whether somebody may wait for the disk.
    pub(crate) fn is_awaited(&self) -> bool {
        self.submitted > self.stored
    }

    /// Whether the committer had no room for what waits here.
    pub(crate) const fn is_behind(&self) -> bool {
        self.is_behind
    }

    /// Whether something is not in the queue.
    pub(crate) fn has_unsubmitted(&self) -> bool {
        !self.unsubmitted.is_empty()
    }

    /// Submits what was gathered, as far as there is room.
    pub(crate) fn submit_all(&mut self) {
        self.committer
            .submit_all(&mut self.unsubmitted, self.patience);
        self.is_behind = !self.unsubmitted.is_empty();
        self.unsubmitted_bytes = 0;
    }

    /// Says now and then what the shard needs, and submits what was gathered.
    pub(crate) fn turn(&mut self, now: Instant, shard: &Shard) {
        if self.ask_at <= now {
            self.early_asks = self.early_asks.saturating_sub(1);
            self.ask_at = now
                + match self.early_asks {
                    0 => ASK_NEEDED_EVERY,
                    _ => ASK_EARLY_EVERY,
                };
            let needed = shard.needed();
            if let Some(before) = self.needed.replace(needed) {
                self.submit(Batch::new(), Token::Needed(self.shard, before));
            }
        }
        self.submit_all();
    }

    /// When [`turn`](Self::turn) has something to do.
    pub(crate) fn next_turn(&self, now: Instant) -> Instant {
        if self.is_behind() {
            now + TRY_AGAIN
        } else {
            self.ask_at
        }
    }

    fn submit(&mut self, batch: Batch, token: Token) {
        self.unsubmitted_bytes += batch.bytes();
        self.unsubmitted.push_back((batch, token));
        if self.unsubmitted_bytes >= SUBMIT_BYTES && !self.is_behind {
            self.submit_all();
        }
    }
}

/// The committer's half of the answers.
struct Answerer {
    directory: PathBuf,
    shards: Vec<Outside>,
    /// Of those answered in one commit, the last one of each shard says it for all.
    latest: Vec<Option<(StoreId, Vec<Batch>)>>,
    jobs: Sender<Job>,
    /// Gone when the failure was told: from then on nothing is answered.
    notify: Option<Sender<Notice>>,
}

impl Answerer {
    fn answer(&mut self, answers: impl Iterator<Item = unbroken_store::Answer<Token>>) {
        if self.notify.is_none() {
            // A later request that is stored would answer for the one that is not.
            return answers.for_each(drop);
        }
        for answer in answers {
            if let Err(refusal) = answer.result {
                self.fail(&refusal);
                break;
            }
            match answer.token {
                Token::Stored(shard, id) => {
                    let latest = &mut self.latest[usize::from(shard.0)];
                    let (latest, batches) = latest.get_or_insert_default();
                    *latest = id;
                    batches.push(answer.batch);
                }
                // The keeper is there as long as this is, unless it has failed and told so.
                Token::Read(shard, request) => drop(self.jobs.send(Job::Read(shard, request))),
                Token::Needed(shard, needed) => drop(self.jobs.send(Job::Needed(shard, needed))),
                Token::LetGo(needed) => drop(self.jobs.send(Job::LetGo(needed))),
                // Who waited may have gone.
                Token::Told(done) => drop(done.send(())),
            }
        }
        for (shard, latest) in self.shards.iter_mut().zip(&mut self.latest) {
            if let Some((id, batches)) = latest.take() {
                shard.send(Parcel::Stored(id, batches));
            }
        }
    }

    fn fail(&mut self, refusal: &Refusal) {
        let Some(notify) = self.notify.take() else {
            return;
        };
        if let Refusal::Damaged(damage) = refusal {
            tell_damaged(&notify, &self.directory, damage.to_string());
        } else {
            tell_failed(&notify, refusal.to_string());
        }
    }
}

impl Drop for Answerer {
    fn drop(&mut self) {
        if let Some(notify) = self.notify.take().filter(|_| thread::panicking()) {
            tell_failed(
                &notify,
                "the thread that writes to the store panicked".to_owned(),
            );
        }
    }
}

fn tell_failed(notify: &Sender<Notice>, reason: String) {
    let _ = notify.send(Notice::StoreFailed { reason }); // if nobody waits, it is ending
}

/// Damage is left to the next start, which sets the store aside or refuses it.
fn tell_damaged(notify: &Sender<Notice>, directory: &Path, mut reason: String) {
    if let Err(unmarked) = quarantine::mark(directory, &reason) {
        write!(reason, "; and the next start is not told: {unmarked}")
            .expect("a string takes everything");
    }
    let _ = notify.send(Notice::StoreDamaged { reason }); // if nobody waits, it is ending
}

/// How long somebody waits until what was removed is on disk.
const FORGET_WAIT: Duration = Duration::from_secs(30);
/// How often shards say what they need. The disk has been told within half a second.
const ASK_NEEDED_EVERY: Duration = Duration::from_secs(5);
/// The same at the start, so many times: after as many rounds it is known what is needed, and with
/// that whether the store is full. What counts then is what was said the first time.
const ASK_EARLY_EVERY: Duration = Duration::from_secs(1);
const EARLY_ASKS: u32 = 4;
/// So much is submitted before the turn has read all: half of a commit.
const SUBMIT_BYTES: usize = COMMIT_BYTES_MAX / 2;
/// The committer has no room: its next commit ends about then.
const TRY_AGAIN: Duration = Duration::from_millis(1);
