//! Reads what is readable of a damaged engine directory.
//!
//! The engine opens a directory completely or not at all, so it gets a copy without the parts that
//! prevent that: trees that do not open alone, and the parts of journals that are no whole batch.
//! Within a tree that opens, each table is read [alone](super::intact), around damaged blocks.
//!
//! Batches after a hole in a journal are kept, so a value may reappear that was removed in the
//! hole; that loses less than dropping all later batches. A hole in a table is known better: values
//! there that may be old are left out.
//!
//! Invariant: memory holds one block of each table of a tree, one session, and the next batch to
//! write.

mod opening;
mod sessions;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;

use fjall::{Database, Keyspace};

use self::opening::{Opened, opened, remove};
use super::block::Block;
use super::generation::{Generation, blocks, parse_block_key};
use super::intact::{Entry, Hole, Intact, Piece};
use super::opened::{BEGINS_KEY, NEWEST_KEY, OWN, number, parse_log_key, parse_value};
use super::{Durability, Embedded, Options, engine};
use crate::batch::{Batch, Space};
use crate::data_directory::{DataDirectory, SALVAGING, STORE};
use crate::error::StoreError;
use crate::hand_over::{self, HandOver, Left};
use crate::lane;
use crate::moves;
use crate::position::{LogId, Sequence};
use crate::quarantine::Salvaged;
use crate::record::MessageBytes;
use crate::session::{Carried, Cursor, LogRange, Outbound, PartView, Subscription, parse_key};
use crate::store::Store;
use crate::store_health;
use crate::values::check_value;

/// Makes a new store with what can be read in a damaged one.
pub(crate) fn salvage(place: &DataDirectory, mut options: Options) -> Result<Salvaged, StoreError> {
    place.clear(SALVAGING)?;
    // It is synced once, when it is whole.
    options.durability = Durability::Off;
    let store = Embedded::open_part(place, SALVAGING, options)?;
    let damaged = &place.part(STORE).join("engine");
    let copy = place.part(SALVAGING).join("copy");
    let mut work = Work {
        store,
        batch: Batch::new(),
        ends: BTreeMap::new(),
        handed: 0,
        salvaged: Salvaged::default(),
    };
    if let Some(Opened { database, closed }) = opened(damaged, &copy, &mut work.salvaged.lost)? {
        work.copy_spaces(&database)?;
        work.copy_logs(&database)?;
        work.note_newest(&database, &closed)?;
    } else {
        let what = "everything: the engine opens no part of it".to_owned();
        work.salvaged.lost.push(what);
    }
    work.finish(&copy)
}

struct Work {
    store: Embedded,
    batch: Batch,
    /// The greatest number of a message that is known of, for each log.
    ends: BTreeMap<LogId, Sequence>,
    /// The last note of what a session has left that is of no shard.
    handed: u64,
    salvaged: Salvaged,
}

impl Work {
    fn copy_spaces(&mut self, database: &Database) -> Result<(), StoreError> {
        // Sessions that end leave notes behind those that are in another space.
        for space in Space::ALL.into_iter().rev() {
            if !database.keyspace_exists(space.name()) {
                self.lost(format!("{space}: all of it"));
                continue;
            }
            let tree = tree(database, space.name())?;
            if space == Space::Sessions {
                self.copy_sessions(&tree)?;
            } else {
                self.copy_space(space, &tree)?;
            }
        }
        self.write_if(0)
    }

    fn copy_space(&mut self, space: Space, tree: &Keyspace) -> Result<(), StoreError> {
        let mut intact = Intact::read(tree, space.name(), b"")?;
        while let Some(piece) = intact.next()? {
            let Entry {
                key,
                value,
                is_newest,
            } = match piece {
                Piece::Entry(entry) => entry,
                Piece::Hole(hole) => {
                    self.lost(format!("{space}: {hole}"));
                    continue;
                }
            };
            if !is_newest {
                let place = place(space, &key);
                self.lost(format!("{place}: it may be an old one"));
                continue;
            }
            let value = parse_value(space, &value).map(|value| value.bytes);
            let value = match value.and_then(|value| checked(space, &key, value)) {
                Err(error @ StoreError::Damaged { .. }) => {
                    self.lost(error.to_string());
                    continue;
                }
                value => value?,
            };
            if space == Space::Lanes && lane::is_clean_shutdown(&key) {
                continue; // what made it void may be what was lost
            }
            if space == Space::Control && key.starts_with(hand_over::PREFIX) {
                self.note_left(&key, &value);
            }
            self.put(space, key, value)?;
        }
        Ok(())
    }

    fn put(&mut self, space: Space, key: Vec<u8>, value: Vec<u8>) -> Result<(), StoreError> {
        self.salvaged.values += 1;
        self.batch.put(space, key, value);
        self.write_if(BATCH_BYTES)
    }

    fn copy_logs(&mut self, database: &Database) -> Result<(), StoreError> {
        let names = database.list_keyspace_names();
        let generations: BTreeSet<_> = names
            .iter()
            .filter_map(|name| Generation::parse_name(name))
            .collect();
        let begins = self.numbers_of_logs(database, BEGINS_KEY, "what logs have let go of")?;
        for (log, first) in generations {
            let tree = tree(database, &Generation::name(log, first))?;
            let begins = begins.get(&log).map_or(first, |begins| first.max(*begins));
            let generation = Generation {
                log,
                first,
                begins,
                keyspace: tree.clone(),
            };
            let snapshot = database.snapshot();
            let ends = match generation.sealed(&snapshot) {
                Err(error @ StoreError::Format { .. }) => return Err(error),
                ends => ends.ok().flatten(),
            };
            let place = format!("log {log} from message {first} on");
            self.note(log, Sequence(begins.0.saturating_sub(1)));
            if begins > first {
                // Nothing before it is missing, here and in generations before this.
                self.write_if(0)?;
                self.store.go_on_at(log, begins)?;
            }
            let mut intact = Intact::read(&tree, &place, blocks())?;
            // A block is never written again, so none is old.
            while let Some(piece) = intact.next()? {
                let Entry {
                    key, value: block, ..
                } = match piece {
                    Piece::Entry(entry) => entry,
                    Piece::Hole(Hole { cause, .. }) => {
                        self.lost(format!("{place}: some of it ({cause})"));
                        continue;
                    }
                };
                let Ok(first) = parse_block_key(&key) else {
                    self.lost(format!("{place}: a block without its number"));
                    continue;
                };
                for entry in Block::new(first, &block) {
                    let place = format!("{place}: part of the block of message {first}");
                    let entry = entry.map_err(|error| StoreError::record(&place, &error));
                    let entry = match entry {
                        Err(StoreError::Damaged { .. }) => {
                            self.lost(place);
                            break;
                        }
                        entry => entry?,
                    };
                    self.note(log, entry.sequence);
                    if entry.sequence < begins {
                        continue;
                    }
                    self.salvaged.messages += 1;
                    self.append(log, entry.sequence, entry.message)?;
                }
            }
            if let Some((next, end)) = ends {
                self.leave_out(log, end..next)?;
            }
        }
        self.write_if(0)
    }

    /// These numbers no message had. Where some before them is missing, both are told as one.
    fn leave_out(&mut self, log: LogId, numbers: Range<Sequence>) -> Result<(), StoreError> {
        self.write_if(0)?;
        let next = crate::Log::bounds(&self.store, log)?.next;
        if next == numbers.start && !numbers.is_empty() {
            self.store.go_on_at(log, numbers.end)?;
        }
        Ok(())
    }

    /// Says of which logs the newest generation is gone: there is none behind it whose numbers
    /// would tell that something is missing.
    fn note_newest(
        &mut self,
        database: &Database,
        closed: &BTreeSet<String>,
    ) -> Result<(), StoreError> {
        for (log, first) in self.numbers_of_logs(database, NEWEST_KEY, "where logs go on")? {
            self.note(log, Sequence(first.0.saturating_sub(1)));
            let name = Generation::name(log, first);
            if !database.keyspace_exists(&name) && !closed.contains(&name) {
                let what = "all of it: its newest part is missing";
                self.lost(format!("log {log} from message {first} on: {what}"));
            }
        }
        Ok(())
    }

    /// What the store's own tree says of each log, in keys that begin so.
    fn numbers_of_logs(
        &mut self,
        database: &Database,
        prefix: &[u8],
        what: &str,
    ) -> Result<BTreeMap<LogId, Sequence>, StoreError> {
        let mut found = BTreeMap::new();
        if !database.keyspace_exists(OWN) {
            return Ok(found);
        }
        let own = tree(database, OWN)?;
        let mut intact = Intact::read(&own, OWN, prefix)?;
        while let Some(piece) = intact.next()? {
            // It only grows, so an old one says less.
            let Entry { key, value, .. } = match piece {
                Piece::Entry(entry) => entry,
                Piece::Hole(Hole { cause, .. }) => {
                    self.lost(format!("{OWN}: {what} ({cause})"));
                    continue;
                }
            };
            if let (Ok(log), Ok(at)) = (parse_log_key(prefix, &key), number("it", &value)) {
                found.insert(log, Sequence(at));
            } else {
                self.lost(format!("{OWN}: {what}"));
            }
        }
        Ok(found)
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
        store_health::mark_gap(&self.store, self.store.chance())?;
        moves::mark_unknown(&self.store)?;
        self.store.sync()?;
        remove(copy)?;
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
                    for LogRange { log, from, until } in subscription.ranges {
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

    fn note_left(&mut self, key: &[u8], value: &[u8]) {
        if let Ok(left) = Left::decode(value) {
            self.note_message(&left.what);
        }
        if let Ok(HandOver { from, number }) = HandOver::parse_key(key)
            && from == HandOver::NO_SHARD
        {
            self.handed = self.handed.max(number);
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
}

/// A value that a broker can begin with. One of a newer version is refused.
fn checked(space: Space, key: &[u8], value: Vec<u8>) -> Result<Vec<u8>, StoreError> {
    let checked = check_value(space, key, &value);
    checked.map_err(|error| StoreError::record(place(space, key), &error))?;
    Ok(value)
}

fn place(space: Space, key: &[u8]) -> String {
    format!("{space}: the value of key {}", key.escape_ascii())
}

fn tree(database: &Database, name: &str) -> Result<Keyspace, StoreError> {
    let tree = database.keyspace(name, engine::space_options);
    tree.map_err(|error| engine::error("opening", name, error))
}

/// As the engine names its format.
const ENGINE_VERSION: [u8; 4] = *b"FJL\x03";
const BATCH_BYTES: usize = 1024 * 1024;
/// More than the messages that can have been lost with the end of a log.
const NUMBERS_LEFT_OUT: u64 = 1 << 32;
