//! Reading what can be read of a damaged engine directory.
//!
//! The engine opens all of it or nothing, so the parts that keep it from opening are looked for by
//! trying: first the end of the journal is left out, as little as needed, then whole trees. Within
//! a tree that opens, reading goes from both ends towards the damage.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use fjall::{Database, Keyspace, Readable as _};

use super::block::Block;
use super::generation::{Generation, blocks, parse_block_key};
use super::{Durability, Embedded, Options, engine, parse_value};
use crate::batch::{Batch, Space};
use crate::codec::RecordError;
use crate::errand;
use crate::error::StoreError;
use crate::hand_over::{self, HandOver, Left};
use crate::lane::{self, FLOOR_KEY, Floor, Lane};
use crate::owed;
use crate::places::{Place, SALVAGING, STORE};
use crate::position::{LogId, Sequence};
use crate::quarantine::Salvaged;
use crate::record::MessageBytes;
use crate::session::{
    Carried, Cursor, Head, Holding, Inbound, MaybeSent, Outbound, PartView, Subscription, Will,
    parse_key,
};
use crate::store::Store;

/// Makes a new store with what can be read in a damaged one.
pub(crate) fn salvage(place: &Place, mut options: Options) -> Result<Salvaged, StoreError> {
    place.clear(SALVAGING)?;
    // It is synced once, when it is whole.
    options.durability = Durability::Off;
    let store = Embedded::open_part(place, SALVAGING, options)?;
    let damaged = &place.part(STORE).join("engine");
    let mut work = Work {
        store,
        batch: Batch::new(),
        ends: BTreeMap::new(),
        salvaged: Salvaged::default(),
    };
    let copy = place.part(SALVAGING).join("copy");
    let attempt = Attempt::find(damaged, &copy, &mut work.salvaged.lost)?;
    if let Some(attempt) = attempt {
        attempt.copy(damaged, &copy)?;
        let database = engine::open(&copy)?;
        work.copy_spaces(&database)?;
        work.copy_logs(&database)?;
    } else {
        let what = "everything: the engine opens no part of it".to_owned();
        work.salvaged.lost.push(what);
    }
    work.finish(&copy)
}

/// What of a directory is given to the engine.
#[derive(Clone)]
struct Attempt {
    /// Names of trees that are left out.
    without: BTreeSet<String>,
    /// Bytes of the journals, oldest first.
    journal_bytes: u64,
}

impl Attempt {
    /// The largest part that opens; what it leaves out is added to `lost`.
    fn find(
        damaged: &Path,
        copy: &Path,
        lost: &mut Vec<String>,
    ) -> Result<Option<Self>, StoreError> {
        let journals = journals(damaged)?;
        let whole: u64 = journals.iter().map(|(_, bytes)| bytes).sum();
        let mut attempt = Self {
            without: BTreeSet::new(),
            journal_bytes: whole,
        };
        if attempt.opens(damaged, copy)? {
            return Ok(Some(attempt));
        }
        attempt.journal_bytes = 0;
        if !attempt.opens(damaged, copy)? {
            let trees = trees(damaged)?;
            for tree in &trees {
                let alone = trees.iter().filter(|other| *other != tree).cloned();
                let alone = Self {
                    without: alone.collect(),
                    journal_bytes: 0,
                };
                if !alone.opens(damaged, copy)? {
                    lost.push(format!("the engine's tree {tree}, all of it"));
                    attempt.without.insert(tree.clone());
                }
            }
            if !attempt.opens(damaged, copy)? {
                return Ok(None);
            }
        }
        let with_all = Self {
            journal_bytes: whole,
            ..attempt.clone()
        };
        if with_all.opens(damaged, copy)? {
            return Ok(Some(with_all));
        }
        // So many bytes open, so many do not.
        let (mut good, mut bad) = (0, whole);
        while bad - good > JOURNAL_STEP {
            attempt.journal_bytes = good.midpoint(bad);
            if attempt.opens(damaged, copy)? {
                good = attempt.journal_bytes;
            } else {
                bad = attempt.journal_bytes;
            }
        }
        attempt.journal_bytes = good;
        lost.push(format!(
            "what was written last: the journal from about byte {good} of {whole} on"
        ));
        Ok(Some(attempt))
    }

    fn opens(&self, damaged: &Path, copy: &Path) -> Result<bool, StoreError> {
        self.copy(damaged, copy)?;
        match engine::open(copy) {
            Ok(_) => Ok(true),
            Err(StoreError::Damaged { .. }) => Ok(false),
            Err(other) => Err(other),
        }
    }

    /// Makes the copy anew: tables are linked, since they never change, the rest is copied.
    fn copy(&self, damaged: &Path, copy: &Path) -> Result<(), StoreError> {
        let made = || {
            match fs::remove_dir_all(copy) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            copy_directory(damaged, copy, &|path| !self.leaves_out(path))?;
            let mut left = self.journal_bytes;
            for (path, bytes) in journals_io(damaged)? {
                let Some(name) = path.file_name() else {
                    continue;
                };
                let kept = left.min(bytes);
                left -= kept;
                if kept > 0 {
                    let readable = fs::File::open(&path).map(Readable)?;
                    let mut to = fs::File::create(copy.join(name))?;
                    io::copy(&mut readable.take(kept), &mut to)?;
                }
            }
            Ok(())
        };
        made().map_err(|error| StoreError::io("copying", damaged.display(), error))
    }

    /// Journals are copied apart from the rest, as far as they are wanted.
    fn leaves_out(&self, path: &Path) -> bool {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let is_tree = path.parent().is_some_and(|parent| parent.ends_with(TREES));
        journal_number(&name).is_some() || is_tree && self.without.contains(&*name)
    }
}

struct Work {
    store: Embedded,
    batch: Batch,
    /// The greatest number of a message that is known of, for each log.
    ends: BTreeMap<LogId, Sequence>,
    salvaged: Salvaged,
}

impl Work {
    fn copy_spaces(&mut self, database: &Database) -> Result<(), StoreError> {
        for space in Space::ALL {
            if !database.keyspace_exists(space.name()) {
                self.lost(format!("{space}: all of it"));
                continue;
            }
            let tree = tree(database, space.name())?;
            for (key, value) in self.read_both_ways(database, &tree, &[], space.name()) {
                let Ok(value) = parse_value(space, &value) else {
                    self.lost(format!("{space}: a value without its revision"));
                    continue;
                };
                if let Err(error) = check(space, &key, &value.bytes) {
                    self.lost(format!(
                        "{space}: the value of key {}: {error}",
                        key.escape_ascii()
                    ));
                    continue;
                }
                if space == Space::Lanes && lane::is_at_rest(&key) {
                    continue; // what made it void may be what was lost
                }
                match space {
                    Space::Sessions => self.note_positions(&key, &value.bytes),
                    Space::Control if key.starts_with(hand_over::PREFIX) => {
                        if let Ok(left) = Left::decode(&value.bytes) {
                            self.note_message(&left.what);
                        }
                    }
                    _ => {}
                }
                self.salvaged.values += 1;
                self.batch.put(space, key, value.bytes);
                self.write_if(BATCH_BYTES)?;
            }
        }
        self.write_if(0)
    }

    fn copy_logs(&mut self, database: &Database) -> Result<(), StoreError> {
        let names = database.list_keyspace_names();
        let generations: BTreeSet<_> = names
            .iter()
            .filter_map(|name| Generation::parse_name(name))
            .collect();
        for (log, first) in generations {
            let tree = tree(database, &Generation::name(log, first))?;
            let place = format!("log {log} from message {first} on");
            self.note(log, Sequence(first.0.saturating_sub(1)));
            for (key, block) in self.read_both_ways(database, &tree, blocks(), &place) {
                let Ok(first) = parse_block_key(&key) else {
                    self.lost(format!("{place}: a block without its number"));
                    continue;
                };
                for entry in Block::new(first, &block) {
                    let Ok(entry) = entry else {
                        self.lost(format!("{place}: part of the block of message {first}"));
                        break;
                    };
                    self.note(log, entry.sequence);
                    self.salvaged.messages += 1;
                    self.append(log, entry.sequence, entry.message)?;
                }
            }
        }
        self.write_if(0)
    }

    /// After what is missing the log goes on with another generation.
    fn append(
        &mut self,
        log: LogId,
        sequence: Sequence,
        message: MessageBytes,
    ) -> Result<(), StoreError> {
        let waiting = self.batch.operations().len() as u64;
        let next = crate::Log::bounds(&self.store, log)?.next;
        let same_log = matches!(
            self.batch.operations().last(),
            Some(crate::Operation::Append { log: other, .. }) if *other == log
        );
        let expected = if same_log {
            Sequence(next.0 + waiting)
        } else {
            next
        };
        if !same_log || sequence != expected {
            self.write_if(0)?;
        }
        if sequence != expected {
            if expected != Sequence::FIRST {
                let last = sequence.0.saturating_sub(1);
                self.lost(format!("log {log}: messages {expected} to {last}"));
            }
            self.store.go_on_at(log, sequence)?;
        }
        self.batch.append(log, sequence, message);
        self.write_if(BATCH_BYTES)
    }

    /// Every log goes on far above all numbers that may have been given.
    fn finish(mut self, copy: &Path) -> Result<Salvaged, StoreError> {
        for (log, end) in std::mem::take(&mut self.ends) {
            let end = end.max(crate::Log::bounds(&self.store, log)?.next);
            let next = Sequence(end.0.saturating_add(NUMBERS_LEFT_OUT));
            self.store.go_on_at(log, next)?;
        }
        self.store.sync()?;
        let removed = fs::remove_dir_all(copy);
        removed.map_err(|error| StoreError::io("removing", copy.display(), error))?;
        Ok(self.salvaged)
    }

    fn write_if(&mut self, at_least: usize) -> Result<(), StoreError> {
        if self.batch.is_empty() || self.batch.bytes() < at_least {
            return Ok(());
        }
        let batch = std::mem::take(&mut self.batch);
        for result in self.store.commit(&[batch])? {
            if let Err(conflict) = result {
                self.lost(conflict.to_string());
            }
        }
        Ok(())
    }

    /// What a session says about logs that may be lost.
    fn note_positions(&mut self, key: &[u8], value: &[u8]) {
        match parse_key(key).map(|view| view.part) {
            Ok(PartView::Cursor(log)) => {
                if let Ok(cursor) = Cursor::decode(value) {
                    self.note(log, cursor.through);
                }
            }
            // All before where it begins or ends had been given.
            Ok(PartView::Subscription { .. }) => {
                if let Ok(subscription) = Subscription::decode(value) {
                    for Holding { log, from, until } in subscription.holds {
                        let next = until.map_or(from, |until| until.max(from));
                        self.note(log, Sequence(next.0.saturating_sub(1)));
                    }
                }
            }
            Ok(PartView::Outbound(_)) => {
                if let Ok(outbound) = Outbound::decode(value) {
                    self.note_message(&outbound.what);
                }
            }
            _ => {}
        }
    }

    fn note_message(&mut self, what: &Carried) {
        if let Carried::Log(position) = what {
            self.note(position.log, position.sequence);
        }
    }

    fn note(&mut self, log: LogId, sequence: Sequence) {
        let end = self.ends.entry(log).or_default();
        *end = sequence.max(*end);
    }

    fn lost(&mut self, what: String) {
        self.salvaged.lost.push(what);
    }

    /// All entries that begin with a prefix and can be read: those before the first damage, and
    /// those after the last.
    fn read_both_ways(
        &mut self,
        database: &Database,
        tree: &Keyspace,
        prefix: &[u8],
        place: &str,
    ) -> Vec<(Vec<u8>, Vec<u8>)> {
        let snapshot = database.snapshot();
        let mut all = Vec::new();
        let mut damage = None;
        for guard in snapshot.prefix(tree, prefix) {
            match guard.into_inner() {
                Ok((key, value)) => all.push((key.to_vec(), value.to_vec())),
                Err(error) => {
                    damage = Some(error);
                    break;
                }
            }
        }
        let Some(damage) = damage else { return all };
        self.lost(format!("{place}: some of it ({damage:?})"));
        let before = all.last().map(|(key, _)| key.clone());
        let mut behind = Vec::new();
        for guard in snapshot.prefix(tree, prefix).rev() {
            match guard.into_inner() {
                Ok((key, value)) if before.as_deref().is_none_or(|before| *key > *before) => {
                    behind.push((key.to_vec(), value.to_vec()));
                }
                _ => break,
            }
        }
        all.extend(behind.into_iter().rev());
        all
    }
}

/// Whether the value is one that a broker can begin with.
fn check(space: Space, key: &[u8], value: &[u8]) -> Result<(), RecordError> {
    match space {
        Space::Sessions => match parse_key(key)?.part {
            PartView::Head => Head::decode(value).map(drop),
            PartView::Subscription { .. } => Subscription::decode(value).map(drop),
            PartView::Cursor(_) => Cursor::decode(value).map(drop),
            PartView::Outbound(_) => Outbound::decode(value).map(drop),
            PartView::Inbound(_) => Inbound::decode(value).map(drop),
            PartView::Will => Will::decode(value).map(drop),
            PartView::MaybeSent => MaybeSent::decode(value).map(drop),
        },
        Space::Retained => MessageBytes::parse(value.to_vec()).map(drop),
        Space::Lanes if key == FLOOR_KEY => Floor::decode(value).map(drop),
        Space::Lanes => Lane::decode(value).map(drop),
        Space::Control if key.starts_with(errand::PREFIX) => errand::last_done(value).map(drop),
        Space::Control if key.starts_with(owed::PREFIX) => {
            owed::parse_key(key).and_then(|_| owed::check(value))
        }
        Space::Control if key.starts_with(hand_over::PREFIX) => {
            HandOver::parse_key(key)?;
            Left::decode(value).map(drop)
        }
        Space::Wills | Space::Control => Ok(()),
    }
}

fn tree(database: &Database, name: &str) -> Result<Keyspace, StoreError> {
    let tree = database.keyspace(name, engine::space_options);
    tree.map_err(|error| engine::error("opening", name, error))
}

/// The names of the engine's trees, but for the one that lists them.
fn trees(engine: &Path) -> Result<BTreeSet<String>, StoreError> {
    let place = engine.join(TREES);
    let list = || -> io::Result<_> {
        let mut names = BTreeSet::new();
        for entry in fs::read_dir(&place)? {
            names.insert(entry?.file_name().to_string_lossy().into_owned());
        }
        names.remove("0");
        Ok(names)
    };
    match list() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(BTreeSet::new()),
        listed => listed.map_err(|error| StoreError::io("reading", place.display(), error)),
    }
}

fn journals(engine: &Path) -> Result<Vec<(PathBuf, u64)>, StoreError> {
    journals_io(engine).map_err(|error| StoreError::io("reading", engine.display(), error))
}

/// The journals, oldest first, and the length of each without the zeros that the engine sets aside
/// at its end.
fn journals_io(engine: &Path) -> io::Result<Vec<(PathBuf, u64)>> {
    let mut journals = BTreeMap::new();
    match fs::read_dir(engine) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
        Ok(entries) => {
            for entry in entries {
                let entry = entry?;
                let name = entry.file_name().to_string_lossy().into_owned();
                if let Some(number) = journal_number(&name) {
                    let mut bytes = Vec::new();
                    Readable(fs::File::open(entry.path())?).read_to_end(&mut bytes)?;
                    let zeros = bytes.iter().rev().take_while(|byte| **byte == 0).count();
                    journals.insert(number, (entry.path(), (bytes.len() - zeros) as u64));
                }
            }
        }
    }
    Ok(journals.into_values().collect())
}

/// A file that ends where the disk does not give back what follows.
struct Readable(fs::File);

impl Read for Readable {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self.0.read(bytes) {
            Err(error) if engine::is_unreadable(&error) => Ok(0),
            read => read,
        }
    }
}

fn journal_number(name: &str) -> Option<u64> {
    name.strip_suffix(".jnl")?.parse().ok()
}

fn copy_directory(from: &Path, to: &Path, wanted: &dyn Fn(&Path) -> bool) -> io::Result<()> {
    fs::create_dir_all(to)?;
    let entries = match fs::read_dir(from) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        if !wanted(&path) {
            continue;
        }
        if entry.file_type()?.is_dir() {
            copy_directory(&path, &target, wanted)?;
        } else if from.ends_with("tables") && fs::hard_link(&path, &target).is_ok() {
            // It is there twice now.
        } else {
            fs::copy(&path, &target)?;
        }
    }
    Ok(())
}

/// Where the engine's trees are, each in a directory with a number.
const TREES: &str = "keyspaces";
/// So exactly the end of what can be read of the journal is found.
const JOURNAL_STEP: u64 = 256;
const BATCH_BYTES: usize = 1024 * 1024;
/// More than the messages that can have been lost with the end of a log.
const NUMBERS_LEFT_OUT: u64 = 1 << 32;
