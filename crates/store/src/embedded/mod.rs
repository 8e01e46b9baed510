//! The store on disk.
//!
//! ```text
//! DIR/store/format acknowledged list    see `directory`; what else is in DIR, see `places`
//! DIR/store/engine/                one journal for all; trees:
//!   own                            revision, where each log's newest generation begins, what was
//!                                  let go of in memory, and the link of the batch
//!   sessions retained wills lanes control    key -> revision (8 BE), value
//!   log.<log>.<first message>      a generation of a log: messages, and their index by topic
//! ```
//!
//! A commit is one batch of the engine, with its journal written and synced once. What readers see
//! is published after it: a snapshot of the engine together with how far each log goes, so they see
//! a batch whole or not at all, and never before it is safe.
//!
//! Invariants:
//! - A generation says where the next one begins, so none is missed; there is always a newest one,
//!   so numbers go on when all was trimmed.
//! - All but the newest generation of a log are sealed: they never change, and have their index.
//! - A store that is found at a start contains everything acknowledged, or is damaged: it is
//!   [examined](examine) before the engine opens it, because opening a store changes it.
//! - A commit is answered only if the store was still [in its place](in_place) after it.
//! - A commit leaves [room](free_space) for the next start.
//! - Every batch of the engine begins with its [`Link`](link::Link).
//!
//! Deliberately absent: the handling of damage ([`crate::quarantine`]).

mod block;
mod directory;
mod engine;
mod examine;
mod free_space;
mod generation;
mod generations;
mod in_place;
mod intact;
mod journals;
mod link;
mod opened;
mod rewrite;
pub(crate) mod salvage;
mod snapshot;
mod staging;
mod tables;
mod traits;
mod tree_list;
mod unflushed;

#[cfg(test)]
mod fault_injection;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use fjall::PersistMode;

use self::directory::Directory;
pub use self::free_space::FreeSpace;
use self::free_space::{Forgotten, RESERVE_BYTES};
use self::generation::{Generation, LiveIndex};
use self::generations::Generations;
use self::in_place::InPlace;
use self::journals::Journals;
pub use self::journals::whole_in_journal;
use self::opened::{
    Engine, OneLog, Published, REVISION_KEY, begins_key, newest_key, with_revision,
};
use self::staging::Staging;
pub use self::tables::Looked;
use self::tree_list::ListCopier;
use self::unflushed::Releasable;
use crate::batch::Batch;
use crate::data_directory::{self, DataDirectory, MAKING, STORE};
use crate::error::{Conflict, StoreError};
use crate::file_system::disk_bytes;
use crate::position::{LogId, Sequence};
use crate::selection::{Matcher, Selection};
use crate::store::{Chunk, Committed};

/// The bytes of messages after which a log goes on in another generation: trimming frees so much at
/// a time.
pub const GENERATION_BYTES: u64 = 64 * 1024 * 1024;

/// On a small disk it is one part in so many of it, but not less than this.
const DISK_GENERATIONS: u64 = 16;
const SMALL_GENERATION_BYTES: u64 = 4 * 1024 * 1024;

/// A journal of so many bytes is not gone on with, if a start finds that space is short: the engine
/// begins another only when it has 64 MB of it.
const SEALED_BYTES_MIN: u64 = 1024 * 1024;

/// So old is at most what a crash of the machine takes away under [`Durability::Relaxed`].
pub const SYNC_EVERY: Duration = Duration::from_secs(1);

/// What an acknowledged commit survives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// The crash of the broker, and of the machine: each commit is synced to the disk.
    #[default]
    Strict,
    /// The crash of the broker; that of the machine but for what was committed after the last
    /// [`sync`](crate::Store::sync), which somebody calls every [`SYNC_EVERY`].
    Relaxed,
    /// The crash of the broker; after one of the machine any amount may be missing. Nobody calls
    /// [`sync`](crate::Store::sync), but at the end.
    Off,
}

impl Durability {
    /// What to start the [`Committer`](crate::Committer) with.
    pub const fn sync_every(self) -> Option<Duration> {
        match self {
            Self::Relaxed => Some(SYNC_EVERY),
            Self::Strict | Self::Off => None,
        }
    }
}

/// How a store is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    /// What commits survive.
    pub durability: Durability,
    /// See [`GENERATION_BYTES`]. At least 1.
    pub generation_bytes: u64,
}

/// A [`Store`](crate::Store) in a directory of its own.
#[derive(Debug)]
pub struct Embedded {
    options: Options,
    /// One commit, sync or new generation at a time.
    writing: Mutex<()>,
    list: ListCopier,
    /// The error that ended writing.
    dead: OnceLock<String>,
    published: RwLock<Published>,
    /// Why its trees were not looked at before the engine had them.
    not_looked_at: Option<String>,
    engine: Engine,
    in_place: InPlace,
    forgotten: Forgotten,
    /// Given up last.
    directory: Directory,
}

impl Embedded {
    /// Opens the store in a directory, or makes it. It takes as long as reading what was written
    /// last: the journal, and the newest generation of each log.
    pub fn open(path: &Path, options: Options) -> Result<Self, StoreError> {
        Self::open_at(&DataDirectory::take(path)?, options)
    }

    /// As [`open`](Self::open), where this process has the directory.
    pub(crate) fn open_at(place: &DataDirectory, options: Options) -> Result<Self, StoreError> {
        // The engine does not open what it was interrupted in making.
        if !data_directory::exists(&place.part(STORE))? {
            drop(Self::open_part(place, MAKING, options)?);
            place.rename(MAKING, STORE)?;
        }
        Self::open_part(place, STORE, options)
    }

    /// The store of this name in a directory.
    pub(crate) fn open_part(
        place: &DataDirectory,
        name: &str,
        options: Options,
    ) -> Result<Self, StoreError> {
        // One of another name is new.
        let path = place.part(name);
        let journals = if name == STORE && directory::is_there(&path)? {
            examine::examine(place, &path)?
        } else {
            Journals::default()
        };
        journals.cut()?;
        if free_space::is_short(&path) {
            journals.seal(SEALED_BYTES_MIN)?;
        }
        let directory = Directory::open(place, name)?;
        let (engine, published) = Engine::recovered(&directory, &journals)?;
        let in_place = InPlace::of(directory.witness(), &directory.engine())?;
        Ok(Self {
            options: options.for_disk_of(directory.path()),
            writing: Mutex::new(()),
            list: ListCopier::start(&directory)?,
            dead: OnceLock::new(),
            published: RwLock::new(published),
            not_looked_at: journals.alone,
            engine,
            in_place,
            forgotten: Forgotten::default(),
            directory,
        })
    }

    /// The most memory that a store with so many logs takes, in bytes.
    pub const fn memory_bytes_max(logs: u64) -> u64 {
        engine::memory_bytes_max(logs)
    }

    /// The most bytes that a store with so many logs takes on disk beside its
    /// [`kept_bytes`](crate::Store::kept_bytes).
    pub const fn overhead_bytes_max(&self, logs: u64) -> u64 {
        engine::overhead_bytes_max(logs, self.options.generation_bytes)
    }

    /// Whether there is a store in a directory, of whatever version and in whatever state.
    pub fn is_in(path: &Path) -> Result<bool, StoreError> {
        data_directory::has_store(path)
    }

    /// Looks at the store in a directory as a start does before it opens it, and reads every byte
    /// of its tables: what is damaged is known before somebody waits for it. Nothing of the store
    /// is changed, and it is not opened. It takes as long as reading all of it once.
    pub fn look(path: &Path) -> Result<Looked, StoreError> {
        tables::look(path)
    }

    /// What is wrong with the copy of the engine's list of trees in a directory with a store, if
    /// anything: it is missing, damaged, or older than trees that there are. Every start makes it
    /// anew, so this is asked before the store is opened.
    pub fn list_fault(path: &Path) -> Result<Option<String>, StoreError> {
        match directory::is_there(&path.join(STORE)) {
            Ok(false) | Err(StoreError::Format { .. } | StoreError::Damaged { .. }) => Ok(None),
            there => there.and_then(|_| tree_list::fault(path)),
        }
    }

    /// Why only its journals were looked at before it was opened, if so: the disk is full, or knows
    /// no links.
    pub fn not_looked_at(&self) -> Option<&str> {
        self.not_looked_at.as_deref()
    }

    /// Lets a log that nobody appends to go on in an empty generation, if nothing of its newest one
    /// is needed: [`trim`](crate::Store::trim) frees that then. False if there is nothing to gain.
    pub fn retire(&self, log: LogId) -> Result<bool, StoreError> {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let published = self.read_published();
        let one = published.logs.get(&log).filter(|one| one.is_released());
        let next = one.map(OneLog::next);
        drop(published);
        let Some(next) = next.filter(|_| self.alive().is_ok()) else {
            return Ok(false);
        };
        self.or_dead(self.begin_generation(log, next))?;
        Ok(true)
    }

    /// Looks whether the store is still where it was opened. A store that was deleted, moved or
    /// replaced has failed: the next start would find nothing of it. Has a reserve for that start.
    pub fn check_place(&self) -> Result<(), StoreError> {
        self.alive()?;
        self.directory.place().keep_reserve(RESERVE_BYTES);
        self.or_dead(self.in_place.check_all())
    }

    /// Nobody needs what is below this message of a log: what the engine has of that in memory only
    /// goes with the next append, by the batch that appends. No generation is deleted, which
    /// [`trim`](crate::Store::trim) does, and cannot be taken back by a power cut as commits can
    /// that were not synced.
    pub fn release_below(&self, log: LogId, below: Sequence) {
        if let Some(log) = self.write_published().logs.get_mut(&log) {
            let below = below.min(log.next());
            log.generations.release(below);
        }
    }

    /// Ends using it, but goes on having its directory.
    pub(crate) fn close(self) -> (DataDirectory, Options) {
        (self.directory.place().clone(), self.options)
    }

    /// A number that is another one in each store that is made, and says nothing of its secret.
    pub(crate) fn chance(&self) -> u32 {
        let hash = blake3::hash(self.engine.secret.bytes());
        let [a, b, c, d, ..] = *hash.as_bytes();
        u32::from_be_bytes([a, b, c, d])
    }

    /// The number with which each generation of a log begins, oldest first; none if there is no
    /// such log.
    pub fn generations(&self, log: LogId) -> Vec<Sequence> {
        let published = self.read_published();
        let found = published.logs.get(&log).map(|log| &log.generations);
        let firsts =
            |all: &Generations| all.sealed.keys().copied().chain([all.live.first]).collect();
        found.map_or_else(Vec::new, firsts)
    }

    fn read_published(&self) -> RwLockReadGuard<'_, Published> {
        self.published
            .read()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn write_published(&self) -> RwLockWriteGuard<'_, Published> {
        self.published
            .write()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing is written before what comes before it is safe.
    fn is_strict(&self) -> bool {
        self.options.durability == Durability::Strict
    }

    fn alive(&self) -> Result<(), StoreError> {
        match self.dead.get() {
            Some(cause) => Err(StoreError::Dead {
                cause: cause.clone(),
            }),
            None => Ok(()),
        }
    }

    fn or_dead<T>(&self, result: Result<T, StoreError>) -> Result<T, StoreError> {
        result.map_err(|error| {
            let error = self.or_met(error);
            self.dead.get_or_init(|| {
                self.directory.distrust_witness();
                error.to_string()
            });
            error
        })
    }

    fn or_met(&self, error: StoreError) -> StoreError {
        let published = self.read_published();
        let logs = published.logs.values();
        let generations = logs.flat_map(|log| log.generations.all());
        let generations: Vec<_> = generations.map(|it| it.keyspace.clone()).collect();
        drop(published);
        let Engine { spaces, own, .. } = &self.engine;
        let values = spaces.iter().chain([own]);
        tables::or_met(error, values.chain(&generations))
    }

    fn write(&self, batches: &[Batch]) -> Result<Vec<Result<Committed, Conflict>>, StoreError> {
        let published = self.read_published();
        let mut staging = Staging::new(&self.engine, &published);
        let mut results = Vec::with_capacity(batches.len());
        for batch in batches {
            results.push(staging.stage(batch)?);
        }
        let staged = staging.finish();
        let nothing = staged.revision == published.revision;
        drop(published);
        if nothing {
            return Ok(results);
        }
        self.has_room_for(batches.iter().map(|batch| batch.bytes() as u64).sum())?;
        let mut appended = Vec::with_capacity(staged.appends.len());
        for (log, messages) in &staged.appends {
            appended.push((*log, self.generation_for(*log)?, messages));
        }
        let mut batch = self.engine.batch(self.is_strict());
        batch = batch.durability(Some(match self.options.durability {
            Durability::Strict => PersistMode::SyncData,
            Durability::Relaxed | Durability::Off => PersistMode::Buffer,
        }));
        for ((space, key), change) in &staged.values {
            let tree = self.engine.space(*space);
            match change.value {
                Some(value) => batch.insert(tree, &**key, with_revision(change.revision, value)),
                None => batch.remove(tree, &**key),
            }
        }
        let mut written = Vec::with_capacity(appended.len());
        for (log, (generation, next), messages) in &appended {
            let memory = unflushed::memtable_of(&generation.keyspace);
            let blocks = generation.append(&mut batch, *next, messages);
            let release = self.releasable(*log, memory);
            if let Some(release) = &release {
                generation.release(&mut batch, release);
                let begins = release.begins.0.to_be_bytes();
                batch.insert(&self.engine.own, begins_key(*log), begins);
            }
            written.push((*log, messages, memory, blocks, release));
        }
        let revision = staged.revision;
        batch.insert(&self.engine.own, REVISION_KEY, revision.0.to_be_bytes());
        let committed = batch.commit();
        committed.map_err(|error| engine::error("writing", "the store", error))?;
        if self.is_strict() {
            self.directory.acknowledge(revision)?;
        }
        let mut published = self.write_published();
        published.revision = revision;
        published.snapshot = self.engine.database.snapshot();
        for (log, messages, memory, blocks, release) in written {
            if let Some(log) = published.logs.get_mut(&log) {
                for message in *messages {
                    log.index.add(message);
                }
                log.wrote(memory, &blocks, release.as_ref());
            }
        }
        Ok(results)
    }

    /// What nobody needs of what the engine has of a log in this memory.
    fn releasable(&self, log: LogId, memory: u64) -> Option<Releasable> {
        let published = self.read_published();
        let one = published.logs.get(&log)?;
        one.unflushed
            .below(one.generations.floor, one.next(), memory)
    }

    /// Where messages of this log go now, and the number of the next one.
    fn generation_for(&self, log: LogId) -> Result<(Generation, Sequence), StoreError> {
        let (next, full) = match self.read_published().logs.get(&log) {
            Some(log) => (log.next(), log.index.is_full(self.options.generation_bytes)),
            None => (Sequence::FIRST, true),
        };
        if full {
            self.begin_generation(log, next)?;
        }
        let published = self.read_published();
        let live = published.logs.get(&log);
        let live = live.map(|log| log.generations.live.clone());
        let live = live.ok_or_else(|| StoreError::damaged(format_args!("log {log}"), "gone"))?;
        Ok((live, next))
    }

    /// Seals the newest generation of a log, and begins another.
    fn begin_generation(&self, log: LogId, first: Sequence) -> Result<(), StoreError> {
        let failed = |error| engine::error("writing", format_args!("log {log}"), error);
        let database = &self.engine.database;
        let published = self.read_published();
        if let Some(log) = published.logs.get(&log) {
            let mut batch = self.engine.batch(self.is_strict());
            log.generations.live.seal(&mut batch, &log.index, first);
            batch.commit().map_err(failed)?;
        }
        drop(published);
        self.in_place.check_all()?;
        // The engine makes trees safe at once: what came before must not be less so.
        database.persist(PersistMode::SyncData).map_err(failed)?;
        let name = Generation::name(log, first);
        let listed = self.list.lock();
        let keyspace = database.keyspace(&name, engine::log_options);
        drop(listed);
        let keyspace = keyspace.map_err(failed)?;
        engine::make_trees_safe(&self.directory.engine())?;
        let live = Generation {
            log,
            first,
            begins: first,
            keyspace,
        };
        let mut batch = self.engine.batch(true);
        batch = batch.durability(Some(PersistMode::SyncData));
        live.begin(&mut batch);
        let begins = first.0.to_be_bytes();
        batch.insert(&self.engine.own, newest_key(log), begins);
        batch.commit().map_err(failed)?;

        let mut published = self.write_published();
        published.snapshot = database.snapshot();
        if let Some(log) = published.logs.get_mut(&log) {
            log.go_on_in(live);
        } else {
            let one = OneLog::new(Generations::new(live), LiveIndex::default());
            published.logs.insert(log, one);
        }
        drop(published);
        self.list.copy();
        Ok(())
    }

    fn read_range(
        &self,
        log: LogId,
        range: Range<Sequence>,
        wanted: Option<&Selection>,
        bytes_max: usize,
    ) -> Result<Chunk, StoreError> {
        let matcher = wanted.map(Selection::matcher);
        let matcher = matcher.as_ref();
        let published = self.read_published();
        let Some(one) = published.logs.get(&log) else {
            return Ok(Chunk::empty(
                range.start.max(range.end.min(Sequence::FIRST)),
            ));
        };
        let end = range.end.min(one.next());
        let mut chunk = Chunk::empty(range.start.max(end));
        let range = range.start.max(one.generations.floor)..end;
        if range.is_empty() || wanted.is_some_and(Selection::is_empty) {
            return Ok(chunk);
        }
        let mut parts = one.generations.parts(&range, generations_per_read(matcher));
        // The newest generation's index is behind the lock, so that part is selected here.
        let live = match (matcher, parts.last_mut()) {
            (Some(matcher), Some(part)) if !matcher.wants_all() && part.is_live() => {
                let (live, end) = one.select_live(matcher, &range);
                part.end_at(end);
                live
            }
            _ => Vec::new(),
        };
        let snapshot = published.snapshot.clone();
        drop(published);
        let live = Some(&*live);
        generations::read(&snapshot, &parts, matcher, live, bytes_max, &mut chunk)?;
        Ok(chunk)
    }
}

impl Options {
    /// On a small disk generations are smaller, so that trimming frees some of it.
    fn for_disk_of(mut self, path: &Path) -> Self {
        let disk = disk_bytes(path).unwrap_or(u64::MAX);
        let most = (disk / DISK_GENERATIONS).max(SMALL_GENERATION_BYTES);
        self.generation_bytes = self.generation_bytes.min(most);
        self
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            durability: Durability::default(),
            generation_bytes: GENERATION_BYTES,
        }
    }
}

/// Generations that one read looks at: a selection that finds nothing in them answers so, and
/// where to go on.
fn generations_per_read(matcher: Option<&Matcher<'_>>) -> usize {
    let filters = matcher.map_or(1, Matcher::len);
    (LOOKUPS_PER_READ / filters.max(1)).clamp(1, GENERATIONS_PER_READ)
}

const GENERATIONS_PER_READ: usize = 64;
/// About so many times a read looks into the index of a generation, each some microseconds; once
/// for each filter at least.
const LOOKUPS_PER_READ: usize = 4_096;
