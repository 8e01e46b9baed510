//! The engine of an open store: its trees, their contents, and the last published state.
//!
//! Invariants:
//! - A store that was written to has all of its trees, and of each log the newest generation and
//!   those before it, each naming the next; anything else is damage.
//! - Every batch comes from [`Engine::batch`], and has its [`Link`].
//!
//! Deliberately absent: how the engine is set up ([`super::engine`]), and whether a store is whole
//! before it is opened ([`super::examine`]).

use std::collections::BTreeMap;
use std::ops::{Bound, Range};
use std::sync::atomic::{AtomicU64, Ordering};

use fjall::{Database, Keyspace, OwnedWriteBatch, PersistMode, Readable, Snapshot};

use super::directory::Directory;
use super::generation::{Generation, LiveIndex};
use super::generations::{Generations, Sealed};
use super::journals::Journals;
use super::link::{Link, Secret};
use super::unflushed::{self, Block, Releasable, Unflushed};
use super::{engine, rewrite, tables};
use crate::batch::{Revision, Space};
use crate::codec::Reader;
use crate::error::StoreError;
use crate::position::{LogId, Sequence};
use crate::selection::Matcher;
use crate::store::{Page, Pair, Value};

/// Handles of the engine.
pub(super) struct Engine {
    pub(super) database: Database,
    pub(super) own: Keyspace,
    pub(super) spaces: [Keyspace; Space::ALL.len()],
    /// The number of the last batch, and what all links have.
    pub(super) link: AtomicU64,
    pub(super) secret: Secret,
}

/// What readers see.
pub(super) struct Published {
    pub(super) snapshot: Snapshot,
    pub(super) revision: Revision,
    pub(super) logs: BTreeMap<LogId, OneLog>,
}

pub(super) struct OneLog {
    pub(super) generations: Generations,
    /// Of the newest one.
    pub(super) index: LiveIndex,
    pub(super) unflushed: Unflushed,
}

impl Engine {
    /// Opens it, and finds what was published last. What cannot be read any more is damage; what it
    /// could not make safe is doubted by the next start.
    pub(super) fn recovered(
        directory: &Directory,
        journals: &Journals,
    ) -> Result<(Self, Published), StoreError> {
        let path = directory.engine();
        let opened = engine::open(&path).and_then(|database| {
            let opened = Self::open(directory, journals, database.clone());
            let opened = opened.and_then(|engine| {
                let published = engine.recover(directory)?;
                Ok((engine, published))
            });
            // It merges tables from the first moment on.
            opened.map_err(|error| tables::or_met(error, &trees(&database)))
        });
        opened.map_err(|error| {
            directory.distrust_witness();
            rewrite::or_unreadable(&path, error)
        })
    }

    fn open(
        directory: &Directory,
        journals: &Journals,
        database: Database,
    ) -> Result<Self, StoreError> {
        let path = &directory.engine();
        journals.are_uncut()?;
        let failed = |error| engine::error("opening", path.display(), error);
        let own = database
            .keyspace(OWN, engine::space_options)
            .map_err(failed)?;
        let mut spaces = Vec::with_capacity(Space::ALL.len());
        for space in Space::ALL {
            // A store that has been written to has all of them: the engine forgets a tree whose
            // beginning is missing, and would make it anew.
            let missing = !database.keyspace_exists(space.name());
            let written = own.contains_key(MADE_KEY).map_err(failed)?;
            if missing && written {
                return Err(StoreError::damaged(
                    path.display(),
                    format!("{space}: missing"),
                ));
            }
            let tree = database.keyspace(space.name(), engine::space_options);
            spaces.push(tree.map_err(failed)?);
        }
        engine::make_trees_safe(path)?;
        let link = own.get(LINK_KEY).map_err(failed)?;
        let link = link.and_then(|link| Link::decode(&link));
        let secret = match link.map(|link| link.secret).or_else(|| directory.secret()) {
            Some(secret) => secret,
            None => Secret::new().map_err(|error| StoreError::io("making", "a secret", error))?,
        };
        let spaces = spaces.try_into().unwrap_or_else(|_| unreachable!());
        let this = Self {
            database,
            own,
            spaces,
            link: AtomicU64::new(link.map_or(0, |link| link.number)),
            secret,
        };
        // The engine has made safe what it has found.
        let mut batch = this.batch(true).durability(Some(PersistMode::SyncData));
        batch.insert(&this.own, MADE_KEY, [FORMAT]);
        batch.commit().map_err(failed)?;
        Ok(this)
    }

    /// A batch that has its number, to be committed before the next is asked for.
    pub(super) fn batch(&self, behind_safe: bool) -> OwnedWriteBatch {
        let number = self.link.fetch_add(1, Ordering::Relaxed) + 1;
        let link = Link {
            secret: self.secret,
            number,
            behind_safe,
        };
        let mut batch = self.database.batch();
        batch.insert(&self.own, LINK_KEY, link.encode());
        batch
    }

    pub(super) fn space(&self, space: Space) -> &Keyspace {
        match &self.spaces {
            [sessions, retained, wills, lanes, control] => match space {
                Space::Sessions => sessions,
                Space::Retained => retained,
                Space::Wills => wills,
                Space::Lanes => lanes,
                Space::Control => control,
            },
        }
    }

    pub(super) fn get(
        &self,
        snapshot: &Snapshot,
        space: Space,
        key: &[u8],
    ) -> Result<Option<Value>, StoreError> {
        if key.is_empty() || key.len() > crate::KEY_BYTES_MAX {
            return Ok(None);
        }
        let found = snapshot.get(self.space(space), key);
        match found.map_err(|error| engine::error(engine::READING, space, error))? {
            Some(bytes) => parse_value(space, &bytes).map(Some),
            None => Ok(None),
        }
    }

    pub(super) fn scan(
        &self,
        snapshot: &Snapshot,
        space: Space,
        prefix: &[u8],
        after: Option<&[u8]>,
        bytes_max: usize,
    ) -> Result<Page, StoreError> {
        let from = match after {
            Some(after) if after >= prefix => Bound::Excluded(after),
            _ => Bound::Included(prefix),
        };
        let mut page = Page::default();
        let mut bytes = 0;
        let range = (from, Bound::Unbounded);
        for guard in snapshot.range::<&[u8], _>(self.space(space), range) {
            let pair = guard.into_inner();
            let (key, value) =
                pair.map_err(|error| engine::error(engine::READING, space, error))?;
            if !key.starts_with(prefix) {
                break;
            }
            if bytes >= bytes_max && !page.pairs.is_empty() {
                page.more = true;
                break;
            }
            let value = parse_value(space, &value)?;
            bytes += key.len() + value.bytes.len();
            let key = key.to_vec();
            page.pairs.push(Pair { key, value });
        }
        Ok(page)
    }

    /// What is there, as it was published last.
    fn recover(&self, directory: &Directory) -> Result<Published, StoreError> {
        let snapshot = self.database.snapshot();
        let failed = |error| engine::error(engine::READING, "own", error);
        let own = |key: &[u8]| snapshot.get(&self.own, key).map_err(failed);
        let revision = match own(REVISION_KEY)? {
            Some(bytes) => Revision(number("revision", &bytes)?),
            None => Revision(0),
        };
        let acknowledged = directory.acknowledged()?;
        if revision < acknowledged {
            let lost = acknowledged.0 - revision.0;
            let what = format!("{lost} changes were acknowledged after the last one found");
            return Err(StoreError::damaged(directory.engine().display(), what));
        }
        let numbers_of = |prefix: &[u8]| {
            let found = snapshot.prefix(&self.own, prefix).map(|guard| {
                let (key, value) = guard.into_inner().map_err(failed)?;
                let number = number("where a log begins", &value)?;
                Ok((parse_log_key(prefix, &key)?, Sequence(number)))
            });
            found.collect::<Result<BTreeMap<_, _>, StoreError>>()
        };
        let begins = numbers_of(BEGINS_KEY)?;
        let mut generations: BTreeMap<LogId, BTreeMap<Sequence, Generation>> = BTreeMap::new();
        for name in self.database.list_keyspace_names() {
            let Some((log, first)) = Generation::parse_name(&name) else {
                continue;
            };
            let keyspace = self.database.keyspace(&name, engine::log_options);
            let keyspace = keyspace.map_err(failed)?;
            let begins = begins.get(&log).copied().unwrap_or(first);
            let generation = Generation {
                log,
                first,
                begins: begins.max(first),
                keyspace,
            };
            generations
                .entry(log)
                .or_default()
                .insert(first, generation);
        }
        let newest = numbers_of(NEWEST_KEY)?;
        for (log, first) in &newest {
            let found = generations.get(log);
            if !found.is_some_and(|found| found.contains_key(first)) {
                let what = format!("what began with message {first} is missing");
                return Err(StoreError::damaged(format_args!("log {log}"), what));
            }
        }
        let mut logs = BTreeMap::new();
        for (log, generations) in generations {
            let begun = newest.get(&log).copied();
            if let Some(one) = self.recover_log(&snapshot, generations, begun)? {
                logs.insert(log, one);
            }
        }
        Ok(Published {
            snapshot,
            revision,
            logs,
        })
    }

    /// A log, from its generations. A crash may have come while the last one was begun: then it is
    /// not the `newest` that is known, and has nothing in it. It is made again when it is needed.
    fn recover_log(
        &self,
        snapshot: &Snapshot,
        mut sealed: BTreeMap<Sequence, Generation>,
        newest: Option<Sequence>,
    ) -> Result<Option<OneLog>, StoreError> {
        while let Some(last) = sealed.last_entry()
            && newest.is_none_or(|newest| *last.key() > newest)
        {
            let last = last.remove();
            let empty = snapshot.is_empty(&last.keyspace);
            if !empty.map_err(|error| engine::error(engine::READING, &last, error))? {
                return Err(last.damaged("it was never begun, and something is in it"));
            }
            let keyspace = last.keyspace;
            let deleted = self.database.delete_keyspace(keyspace);
            deleted.map_err(|error| engine::error("trimming", "a generation", error))?;
        }
        let Some((_, live)) = sealed.pop_last() else {
            return Ok(None);
        };
        let firsts: Vec<_> = sealed.keys().copied().chain([live.first]).collect();
        let follow = firsts.into_iter().skip(1);
        let sealed = sealed.into_iter().zip(follow);
        let sealed =
            sealed.map(
                |((first, generation), next)| match generation.sealed(snapshot)? {
                    Some((goes_on, end)) if goes_on == next => {
                        Ok((first, Sealed { generation, end }))
                    }
                    _ => Err(generation.damaged(format_args!("message {next} does not follow it"))),
                },
            );
        let sealed: BTreeMap<_, _> = sealed.collect::<Result<_, StoreError>>()?;
        // If a crash came after it was sealed, it is simply sealed again.
        live.sealed(snapshot)?;
        let index = live.index(snapshot)?;
        let generations = Generations::of(sealed, live);
        Ok(Some(OneLog::new(generations, index)))
    }
}

impl OneLog {
    pub(super) fn new(generations: Generations, index: LiveIndex) -> Self {
        Self {
            generations,
            index,
            unflushed: Unflushed::default(),
        }
    }

    /// Its newest generation is another, and empty.
    pub(super) fn go_on_in(&mut self, live: Generation) {
        let end = self.next();
        self.generations.go_on_in(live, end);
        self.index = LiveIndex::default();
        self.unflushed = Unflushed::default();
    }

    /// Blocks of messages that are in the index were written when this was the engine's memory, and
    /// others let go of.
    pub(super) fn wrote(&mut self, memory: u64, blocks: &[Block], release: Option<&Releasable>) {
        let bytes = blocks.iter().map(|block| block.bytes).sum();
        self.index.add_bytes(bytes);
        if let Some(release) = release {
            let live = &mut self.generations.live;
            live.begins = release.begins;
            self.unflushed.forget(release);
            let gone = release.begins.0 - live.first.0;
            self.index.release(gone, release.bytes);
        }
        self.unflushed.add(memory, blocks);
    }

    /// Bytes of the messages that are not trimmed, about: in generations that are sealed, and in
    /// the newest.
    pub(super) fn kept_bytes(&self) -> (u64, u64) {
        let memory = unflushed::memtable_of(&self.generations.live.keyspace);
        let released_bytes = self.unflushed.released_bytes(memory);
        self.generations.kept_bytes(self.next(), released_bytes)
    }

    pub(super) fn next(&self) -> Sequence {
        self.index.next(self.generations.live.first)
    }

    /// There is something in its newest generation, and nobody needs it.
    pub(super) fn is_released(&self) -> bool {
        let next = self.next();
        self.generations.live.first < next && self.generations.floor >= next
    }

    pub(super) fn select_live(
        &self,
        matcher: &Matcher<'_>,
        range: &Range<Sequence>,
    ) -> (Vec<u32>, Sequence) {
        let first = self.generations.live.first;
        let offset = |at: Sequence| {
            let offset = at.0.saturating_sub(first.0);
            u32::try_from(offset).unwrap_or(u32::MAX)
        };
        let range = offset(range.start)..offset(range.end);
        let (offsets, end) = self.index.select(matcher, range);
        (offsets, Sequence(first.0 + u64::from(end)))
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Published {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Published")
            .field("revision", &self.revision)
            .field("logs", &self.logs.keys())
            .finish_non_exhaustive()
    }
}

/// Those that there are.
fn trees(database: &Database) -> Vec<Keyspace> {
    let names = database.list_keyspace_names().into_iter();
    let trees = names.filter_map(|name| database.keyspace(&name, engine::log_options).ok());
    trees.collect()
}

pub(super) fn with_revision(revision: Revision, value: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(8 + value.len());
    bytes.extend_from_slice(&revision.0.to_be_bytes());
    bytes.extend_from_slice(value);
    bytes
}

pub(super) fn parse_value(space: Space, bytes: &[u8]) -> Result<Value, StoreError> {
    let mut reader = Reader::plain(bytes);
    let revision = reader.array("revision").map(u64::from_be_bytes);
    let revision = revision.map_err(|error| StoreError::damaged(space, error))?;
    Ok(Value {
        revision: Revision(revision),
        bytes: reader.rest().to_vec(),
    })
}

pub(super) fn number(field: &'static str, bytes: &[u8]) -> Result<u64, StoreError> {
    let number = bytes.try_into().map(u64::from_be_bytes);
    number.map_err(|_| StoreError::damaged("own", format_args!("{field} is no number")))
}

pub(super) fn newest_key(log: LogId) -> Vec<u8> {
    [NEWEST_KEY, &log.0.to_be_bytes()].concat()
}

pub(super) fn begins_key(log: LogId) -> Vec<u8> {
    [BEGINS_KEY, &log.0.to_be_bytes()].concat()
}

/// The log of a key that begins so.
pub(super) fn parse_log_key(prefix: &[u8], key: &[u8]) -> Result<LogId, StoreError> {
    let mut log = Reader::plain(key.get(prefix.len()..).unwrap_or_default());
    let log = log.array("log").map(u16::from_be_bytes);
    log.map(LogId)
        .map_err(|error| StoreError::damaged("own", error))
}

/// The tree of the store's own.
pub(super) const OWN: &str = "own";
const FORMAT: u8 = 1;
const MADE_KEY: &[u8] = b"format";
pub(super) const LINK_KEY: &[u8] = b"link";
pub(super) const REVISION_KEY: &[u8] = b"revision";
/// With the log behind it: where its newest generation begins.
pub(super) const NEWEST_KEY: &[u8] = b"newest ";
/// The same: what lies below was let go of before it was in a table.
pub(super) const BEGINS_KEY: &[u8] = b"begins ";
