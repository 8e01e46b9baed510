//! The store on this machine's disk.
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
//! - What is found at a start is as far as was acknowledged, or the store is damaged: that is
//!   [looked at](examine) before the engine has it, since opening a store changes it.
//! - Every batch of the engine begins with its [`Link`](link::Link).
//!
//! Deliberately absent: an answer to damage, which is [`crate::quarantine`]'s.

mod block;
mod directory;
mod engine;
mod examine;
mod fresh;
mod frozen;
mod generation;
mod generations;
mod intact;
mod journals;
mod link;
mod list;
mod opened;
mod rewrite;
pub(crate) mod salvage;
mod staging;
mod tables;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod wounded;

use std::ops::Range;
use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use fjall::{Keyspace, PersistMode};

use self::directory::Directory;
use self::fresh::LetGo;
use self::frozen::Frozen;
use self::generation::{Generation, LiveIndex};
use self::generations::Generations;
use self::journals::Journals;
pub use self::journals::whole_in_journal;
use self::list::Keeper;
use self::opened::{
    Engine, OneLog, Published, REVISION_KEY, begins_key, newest_key, with_revision,
};
use self::staging::Staging;
pub use self::tables::Looked;
use crate::batch::{Batch, Space};
use crate::error::{Conflict, StoreError};
use crate::places::{self, MAKING, Place, STORE};
use crate::position::{LogId, Sequence};
use crate::selection::{Matcher, Selection};
use crate::store::{Bounds, Chunk, Committed, KeptBytes, Kv, Log, Page, Store, Value, View};

/// The bytes of messages after which a log goes on in another generation: trimming frees so much at
/// a time.
pub const GENERATION_BYTES: u64 = 64 * 1024 * 1024;

/// So old is at most what a crash of the machine takes away under [`Durability::Relaxed`].
pub const SYNC_EVERY: Duration = Duration::from_secs(1);

/// What an acknowledged commit survives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// The crash of the broker, and of the machine: each commit is synced to the disk.
    #[default]
    Strict,
    /// The crash of the broker; that of the machine but for what was committed after the last
    /// [`sync`](Store::sync), which somebody calls every [`SYNC_EVERY`].
    Relaxed,
    /// The crash of the broker; after one of the machine any amount may be missing. Nobody calls
    /// [`sync`](Store::sync), but at the end.
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

/// A [`Store`] in a directory of its own.
#[derive(Debug)]
pub struct Embedded {
    options: Options,
    /// One commit, sync or new generation at a time.
    writing: Mutex<()>,
    list: Keeper,
    /// The error that ended writing.
    dead: OnceLock<String>,
    published: RwLock<Published>,
    /// Why its trees were not looked at before the engine had them.
    not_looked_at: Option<String>,
    engine: Engine,
    /// Given up last.
    directory: Directory,
}

impl Embedded {
    /// Opens the store in a directory, or makes it. It takes as long as reading what was written
    /// last: the journal, and the newest generation of each log.
    pub fn open(path: &Path, options: Options) -> Result<Self, StoreError> {
        Self::open_at(&Place::take(path)?, options)
    }

    /// As [`open`](Self::open), where this process has the directory.
    pub(crate) fn open_at(place: &Place, options: Options) -> Result<Self, StoreError> {
        // The engine does not open what it was interrupted in making.
        if !places::exists(&place.part(STORE))? {
            drop(Self::open_part(place, MAKING, options)?);
            place.rename(MAKING, STORE)?;
        }
        Self::open_part(place, STORE, options)
    }

    /// The store of this name in a directory.
    pub(crate) fn open_part(
        place: &Place,
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
        let directory = Directory::open(place, name)?;
        let (engine, published) = Engine::recovered(&directory, &journals)?;
        Ok(Self {
            options,
            writing: Mutex::new(()),
            list: Keeper::start(&directory)?,
            dead: OnceLock::new(),
            published: RwLock::new(published),
            not_looked_at: journals.alone,
            engine,
            directory,
        })
    }

    /// The most memory that a store with so many logs takes, in bytes.
    pub const fn memory_bytes_max(logs: u64) -> u64 {
        engine::memory_bytes_max(logs)
    }

    /// The most bytes that a store with so many logs takes on disk beside its
    /// [`kept_bytes`](Store::kept_bytes).
    pub const fn overhead_bytes_max(logs: u64) -> u64 {
        engine::overhead_bytes_max(logs, GENERATION_BYTES)
    }

    /// Whether there is a store in a directory, of whatever version and in whatever state.
    pub fn is_in(path: &Path) -> Result<bool, StoreError> {
        places::has_store(path)
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
            there => there.and_then(|_| list::fault(path)),
        }
    }

    /// Why only its journals were looked at before it was opened, if so: the disk is full, or knows
    /// no links.
    pub fn not_looked_at(&self) -> Option<&str> {
        self.not_looked_at.as_deref()
    }

    /// Lets a log that nobody appends to go on in an empty generation, if nothing of its newest one
    /// is needed: [`trim`](Store::trim) frees that then. False if there is nothing to gain.
    pub fn retire(&self, log: LogId) -> Result<bool, StoreError> {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let published = self.read_published();
        let one = published.logs.get(&log).filter(|one| one.is_let_go());
        let next = one.map(OneLog::next);
        drop(published);
        let Some(next) = next.filter(|_| self.alive().is_ok()) else {
            return Ok(false);
        };
        self.or_dead(self.begin_generation(log, next))?;
        Ok(true)
    }

    /// Nobody needs what is below this message of a log: what the engine has of that in memory only
    /// goes with the next append, by the batch that appends. No generation is deleted, which
    /// [`trim`](Store::trim) does, and cannot be taken back by a power cut as commits can that were
    /// not synced.
    pub fn let_go(&self, log: LogId, below: Sequence) {
        if let Some(log) = self.write_published().logs.get_mut(&log) {
            let below = below.min(log.next());
            log.generations.let_go(below);
        }
    }

    /// Ends using it, but goes on having its directory.
    pub(crate) fn close(self) -> (Place, Options) {
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
                self.directory.doubt();
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
            let memory = fresh::memory_of(&generation.keyspace);
            let blocks = generation.append(&mut batch, *next, messages);
            let let_go = self.to_let_go(*log, memory);
            if let Some(let_go) = &let_go {
                generation.let_go(&mut batch, let_go);
                let begins = let_go.begins.0.to_be_bytes();
                batch.insert(&self.engine.own, begins_key(*log), begins);
            }
            written.push((*log, messages, memory, blocks, let_go));
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
        for (log, messages, memory, blocks, let_go) in written {
            if let Some(log) = published.logs.get_mut(&log) {
                for message in *messages {
                    log.index.add(message);
                }
                log.wrote(memory, &blocks, let_go.as_ref());
            }
        }
        Ok(results)
    }

    /// What nobody needs of what the engine has of a log in this memory.
    fn to_let_go(&self, log: LogId, memory: u64) -> Option<LetGo> {
        let published = self.read_published();
        let one = published.logs.get(&log)?;
        one.fresh.below(one.generations.floor, one.next(), memory)
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
        self.list.keep();
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
        self.or_dead(self.write(batches))
    }

    fn sync(&self) -> Result<(), StoreError> {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        self.alive()?;
        let synced = self.engine.database.persist(PersistMode::SyncData);
        let synced = synced.map_err(|error| engine::error("syncing", "the store", error));
        let revision = self.read_published().revision;
        self.or_dead(synced.and_then(|()| self.directory.acknowledge(revision)))
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
        let _last = generation.keyspace.clone();
        let listed = self.list.lock();
        let deleted = self.engine.database.delete_keyspace(generation.keyspace);
        drop(listed);
        deleted.map_err(|error| {
            self.directory.doubt();
            engine::error("trimming", place, error)
        })?;
        Ok(true)
    }

    fn snapshot(&self) -> Result<Box<dyn View + '_>, StoreError> {
        Ok(Box::new(Frozen::new(self)))
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
