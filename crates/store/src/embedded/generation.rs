//! One part of a log: a tree of the engine, named after the log and its first message. A log is
//! trimmed by dropping whole trees.
//!
//! ```text
//! key                    value
//! 0                      format of the generation: 1, or 2 if something of it was let go of
//! 1 first number (8 BE)  block of messages
//! 2 topic                postings: the messages on this topic     written when it is sealed
//! 3                      the next generation's first message,     written when it is sealed
//!                        and what follows the last of this one
//! ```
//!
//! A block that is released before the engine has written it to a table is removed again, and the
//! engine drops both when it writes the table. That is a *weak* removal, right for a key that is
//! written once. Each removal comes with a later block in the same memtable, so that the engine
//! knows which journals the table replaces. Nothing else is written to the tree meanwhile, so that
//! tables do not overlap and the engine does not merge them; the beginning of a log is in the
//! store's own tree.
//!
//! Numbers may be skipped between two generations. Key 3 of the first versions did not say how
//! many.
//!
//! The index of the newest generation is in memory, and rebuilt from its messages at a start. A
//! topic longer than a key is cut there; readers check it against the message.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;

use fjall::{Keyspace, OwnedWriteBatch, Readable, Snapshot};

use super::block::{Block, pack, postings, put_postings};
use super::engine;
use super::unflushed::{self, Releasable};
use crate::codec::{Reader, RecordError, put_number};
use crate::error::StoreError;
use crate::position::{LogId, Sequence};
use crate::record::MessageBytes;
use crate::selection::Matcher;
use crate::store::Chunk;

/// A generation ends when it has so many messages that were not released, or messages on so many
/// topics. The index of the newest one of each log is in memory: 4 bytes a message, and about 100
/// bytes and the topic for each topic, so at most 4 MiB and about 10.
pub(crate) const MESSAGES_MAX: usize = 1_000_000;
pub(crate) const TOPICS_MAX: usize = 65_536;
/// So many numbers it has at most: they are counted from its first.
const NUMBERS_MAX: u32 = u32::MAX / 2;
pub(crate) const INDEX_BYTES_MAX: u64 = 14 * 1024 * 1024;

/// A part of a log on disk. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Generation {
    pub(crate) log: LogId,
    pub(crate) first: Sequence,
    /// The first message that was not released.
    pub(crate) begins: Sequence,
    pub(crate) keyspace: Keyspace,
}

/// What is known in memory of the newest generation of a log.
#[derive(Debug, Default)]
pub(crate) struct LiveIndex {
    /// The numbers of each topic's messages, counted from the first of the generation.
    topics: HashMap<Box<[u8]>, Vec<u32>>,
    /// How many numbers were released and are not here any more.
    forgotten: u32,
    /// All that were ever in it.
    messages: u32,
    /// Of the blocks that are in it.
    bytes: u64,
}

impl Generation {
    /// Its name in the engine.
    pub(crate) fn name(log: LogId, first: Sequence) -> String {
        format!("log.{log}.{first}")
    }

    /// The log and first message of a tree with this name; none if it is something else.
    pub(crate) fn parse_name(name: &str) -> Option<(LogId, Sequence)> {
        let (log, first) = name.strip_prefix("log.")?.split_once('.')?;
        Some((LogId(log.parse().ok()?), Sequence(first.parse().ok()?)))
    }

    /// Its first entry.
    pub(crate) fn begin(&self, batch: &mut OwnedWriteBatch) {
        batch.insert(&self.keyspace, [FORMAT_KEY], [FORMAT]);
    }

    /// Messages at its end, in these blocks.
    pub(super) fn append(
        &self,
        batch: &mut OwnedWriteBatch,
        first: Sequence,
        messages: &[&MessageBytes],
    ) -> Vec<unflushed::Block> {
        let mut blocks = Vec::new();
        pack(first, messages.iter().copied(), |first, block| {
            let bytes = block.len() as u64;
            blocks.push(unflushed::Block { first, bytes });
            batch.insert(&self.keyspace, block_key(first), block);
        });
        blocks
    }

    /// Removes blocks at its beginning.
    pub(super) fn release(&self, batch: &mut OwnedWriteBatch, what: &Releasable) {
        for first in &what.blocks {
            batch.remove_weak(&self.keyspace, block_key(*first));
        }
        if self.begins == self.first {
            batch.insert(&self.keyspace, [FORMAT_KEY], [FORMAT_RELEASED]);
        }
    }

    /// Its index, which is whole now, and where the log goes on.
    pub(crate) fn seal(&self, batch: &mut OwnedWriteBatch, index: &LiveIndex, next: Sequence) {
        for (topic, offsets) in &index.topics {
            let mut key = vec![TOPIC_KEY];
            key.extend_from_slice(topic);
            batch.insert(&self.keyspace, key, put_postings(offsets));
        }
        let mut end = Vec::new();
        put_number(&mut end, next.0);
        put_number(&mut end, index.next(self.first).0);
        batch.insert(&self.keyspace, [SEALED_KEY], end);
    }

    /// Where the log goes on, if it is sealed, and what follows its last message: the same, as far
    /// as is known, in one of the first versions. Refuses a generation of an unknown format.
    pub(crate) fn sealed(
        &self,
        snapshot: &Snapshot,
    ) -> Result<Option<(Sequence, Sequence)>, StoreError> {
        let get = |key: u8| snapshot.get(&self.keyspace, [key]);
        match get(FORMAT_KEY).map_err(|error| self.failed(error))? {
            // A crash came between its creation and its first entry.
            None => return Ok(None),
            Some(format) if *format == [FORMAT] || *format == [FORMAT_RELEASED] => {}
            Some(format) => {
                let found = format.first().copied().unwrap_or_default().into();
                return Err(StoreError::Format {
                    place: self.to_string(),
                    found,
                    known: FORMAT_RELEASED.into(),
                });
            }
        }
        let Some(ends) = get(SEALED_KEY).map_err(|error| self.failed(error))? else {
            return Ok(None);
        };
        let mut reader = Reader::plain(&ends);
        let next = reader.number("end");
        let next = next.map_err(|error| self.damaged(error))?;
        let mut behind = next;
        if reader.len() > 0 {
            let last = reader.number("last");
            behind = last.map_err(|error| self.damaged(error))?;
        }
        Ok(Some((Sequence(next), Sequence(behind))))
    }

    /// Whether there was a message of this number, where no later one is.
    fn had(&self, snapshot: &Snapshot, at: Sequence) -> Result<bool, StoreError> {
        let sealed = snapshot.get(&self.keyspace, [SEALED_KEY]);
        let Some(sealed) = sealed.map_err(|error| self.failed(error))? else {
            return Ok(true);
        };
        let mut reader = Reader::plain(&sealed);
        let end = reader.number("end");
        end.map_err(|error| self.damaged(error))?;
        if reader.len() == 0 {
            return Ok(false);
        }
        let behind = reader.number("last");
        let behind = behind.map_err(|error| self.damaged(error))?;
        Ok(at.0 < behind)
    }

    /// Reads all of it, and makes its index.
    pub(crate) fn index(&self, snapshot: &Snapshot) -> Result<LiveIndex, StoreError> {
        let mut index = LiveIndex::beginning(self.begins.0 - self.first.0)
            .ok_or_else(|| self.damaged("it begins after its end"))?;
        let range = block_key(self.begins).to_vec()..blocks_end();
        for guard in snapshot.range(&self.keyspace, range) {
            let (key, block) = guard.into_inner().map_err(|error| self.failed(error))?;
            let first = parse_block_key(&key).map_err(|error| self.damaged(error))?;
            if first != index.next(self.first) {
                let what = format!("message {first} follows {}", index.messages);
                return Err(self.damaged(what));
            }
            for entry in Block::new(first, &block) {
                index.add(&entry.map_err(|error| self.unread(&error))?.message);
            }
            index.add_bytes(block.len() as u64);
        }
        Ok(index)
    }

    /// Adds messages of a range to a chunk, those that are wanted, until it has `bytes_max`. False
    /// if it is full. The range is of messages that were written: one that is missing is damage.
    pub(crate) fn read(
        &self,
        snapshot: &Snapshot,
        range: &Range<Sequence>,
        matcher: Option<&Matcher<'_>>,
        room: &mut Room<'_>,
    ) -> Result<bool, StoreError> {
        let mut next = range.start;
        let missing = |next: Sequence| self.damaged(format_args!("message {next} is missing"));
        let from = self.block_of(snapshot, range.start)?;
        for guard in snapshot.range(&self.keyspace, block_key(from).to_vec()..blocks_end()) {
            let (key, bytes) = guard.into_inner().map_err(|error| self.failed(error))?;
            let first = parse_block_key(&key).map_err(|error| self.damaged(error))?;
            if first >= range.end {
                break;
            }
            let mut block = Block::new(first, &bytes);
            let skipped = block.skip_to(range.start);
            skipped.map_err(|error| self.damaged(error))?;
            for entry in block {
                let entry = entry.map_err(|error| self.unread(&error))?;
                if entry.sequence >= range.end {
                    break;
                }
                if entry.sequence != next {
                    return Err(missing(next));
                }
                next = Sequence(next.0 + 1);
                if matcher.is_none_or(|matcher| matcher.matches(entry.message.topic()))
                    && !room.put(entry)
                {
                    return Ok(false);
                }
            }
        }
        if next < range.end && self.had(snapshot, next)? {
            return Err(missing(next));
        }
        Ok(true)
    }

    /// As [`read`](Self::read), but only messages with these numbers, ascending, counted from the
    /// first of the generation.
    pub(crate) fn read_at(
        &self,
        snapshot: &Snapshot,
        offsets: &[u32],
        matcher: &Matcher<'_>,
        room: &mut Room<'_>,
    ) -> Result<bool, StoreError> {
        let mut wanted = offsets
            .iter()
            .map(|offset| Sequence(self.first.0 + u64::from(*offset)))
            .peekable();
        while let Some(sequence) = wanted.peek().copied() {
            let Some((first, bytes)) = self.find_block(snapshot, sequence)? else {
                return Err(self.damaged(format_args!("message {sequence} is missing")));
            };
            let mut block = Block::new(first, &bytes);
            let before = wanted.len();
            while let Some(sequence) = wanted.peek().copied() {
                let skipped = block.skip_to(sequence);
                skipped.map_err(|error| self.damaged(error))?;
                let Some(entry) = block.next() else { break };
                let entry = entry.map_err(|error| self.unread(&error))?;
                wanted.next();
                if matcher.matches(entry.message.topic()) && !room.put(entry) {
                    return Ok(false);
                }
            }
            if wanted.len() == before {
                return Err(self.damaged(format_args!("message {sequence} is missing")));
            }
        }
        Ok(true)
    }

    /// The numbers of messages that may match, ascending, from a sealed generation.
    pub(crate) fn select(
        &self,
        snapshot: &Snapshot,
        matcher: &Matcher<'_>,
        range: &Range<Sequence>,
    ) -> Result<Vec<u32>, StoreError> {
        let mut offsets = Vec::new();
        let mut add = |bytes: &[u8]| {
            for offset in postings(bytes) {
                let offset = offset.map_err(|error| self.damaged(error))?;
                let sequence = Sequence(self.first.0 + u64::from(offset));
                if sequence >= range.end {
                    break;
                }
                if sequence >= range.start {
                    offsets.push(offset);
                }
            }
            Ok(())
        };
        let mut key = Vec::new();
        for topic in matcher.topics() {
            key.clear();
            key.push(TOPIC_KEY);
            key.extend_from_slice(topic_key(topic.as_bytes()));
            let found = snapshot.get(&self.keyspace, &key);
            if let Some(bytes) = found.map_err(|error| self.failed(error))? {
                add(&bytes)?;
            }
        }
        for prefix in matcher.prefixes() {
            key.clear();
            key.push(TOPIC_KEY);
            key.extend_from_slice(prefix.as_bytes());
            for guard in snapshot.prefix(&self.keyspace, &key) {
                let (key, bytes) = guard.into_inner().map_err(|error| self.failed(error))?;
                if may_match(matcher, key.get(1..).unwrap_or_default()) {
                    add(&bytes)?;
                }
            }
        }
        Ok(in_order(offsets))
    }

    /// The number with which the block of a message begins.
    fn block_of(&self, snapshot: &Snapshot, at: Sequence) -> Result<Sequence, StoreError> {
        let found = self.find_block(snapshot, at)?;
        Ok(found.map_or(self.first, |(first, _)| first))
    }

    fn find_block(
        &self,
        snapshot: &Snapshot,
        at: Sequence,
    ) -> Result<Option<(Sequence, fjall::Slice)>, StoreError> {
        let range = block_key(self.first)..=block_key(at);
        let Some(guard) = snapshot.range(&self.keyspace, range).next_back() else {
            return Ok(None);
        };
        let (key, bytes) = guard.into_inner().map_err(|error| self.failed(error))?;
        let first = parse_block_key(&key).map_err(|error| self.damaged(error))?;
        Ok(Some((first, bytes)))
    }

    fn failed(&self, error: fjall::Error) -> StoreError {
        engine::error(engine::READING, self, error)
    }

    pub(crate) fn damaged(&self, what: impl ToString) -> StoreError {
        StoreError::damaged(self, what)
    }

    /// A message in it does not read.
    fn unread(&self, error: &RecordError) -> StoreError {
        StoreError::record(self, error)
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "log {} from message {} on", self.log, self.first)
    }
}

impl fmt::Debug for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl LiveIndex {
    /// A message at the end.
    pub(crate) fn add(&mut self, message: &MessageBytes) {
        let key = topic_key(message.topic_bytes());
        match self.topics.get_mut(key) {
            Some(offsets) => offsets.push(self.messages),
            None => {
                self.topics.insert(key.into(), vec![self.messages]);
            }
        }
        self.messages += 1;
    }

    /// The blocks of messages at the end have so many bytes.
    pub(crate) fn add_bytes(&mut self, bytes: u64) {
        self.bytes += bytes;
    }

    /// Of a generation of which so many messages are gone; none if it cannot have so many.
    fn beginning(forgotten: u64) -> Option<Self> {
        let forgotten = u32::try_from(forgotten).ok()?;
        Some(Self {
            forgotten,
            messages: forgotten,
            ..Self::default()
        })
    }

    /// So many messages, from its beginning on, and so many bytes are let go of. Their numbers are
    /// forgotten once they are half of all: each is looked at a few times only.
    pub(crate) fn release(&mut self, messages: u64, bytes: u64) {
        self.bytes = self.bytes.saturating_sub(bytes);
        let gone = u32::try_from(messages).unwrap_or(u32::MAX);
        let gone = gone.min(self.messages);
        if gone.saturating_sub(self.forgotten) < (self.messages - self.forgotten).div_ceil(2) {
            return;
        }
        self.topics.retain(|_, offsets| {
            let kept = offsets.partition_point(|offset| *offset < gone);
            offsets.drain(..kept);
            !offsets.is_empty()
        });
        self.forgotten = gone;
    }

    /// The number of the message after the last.
    pub(crate) fn next(&self, first: Sequence) -> Sequence {
        Sequence(first.0 + u64::from(self.messages))
    }

    /// It is time for the next generation.
    pub(crate) fn is_full(&self, bytes_max: u64) -> bool {
        self.bytes >= bytes_max
            || (self.messages - self.forgotten) as usize >= MESSAGES_MAX
            || self.messages >= NUMBERS_MAX
            || self.topics.len() >= TOPICS_MAX
    }

    /// The numbers of the first messages of a range that may match, ascending, and the number up
    /// to which that is all of them. Who is far behind reads a little at a time, and is not to wait
    /// for all that is ahead each time; nor is the writer, who cannot go on meanwhile.
    pub(crate) fn select(&self, matcher: &Matcher<'_>, range: Range<u32>) -> (Vec<u32>, u32) {
        let matching = self.matching(matcher);
        let mut length = LOOKED_AT;
        loop {
            let end = range.end.min(range.start.saturating_add(length));
            let mut offsets = Vec::new();
            for found in &matching {
                let from = found.partition_point(|offset| *offset < range.start);
                let until = found.partition_point(|offset| *offset < end);
                offsets.extend_from_slice(found.get(from..until).unwrap_or_default());
            }
            if end == range.end || offsets.len() >= SELECTED {
                return (in_order(offsets), end);
            }
            length = length.saturating_mul(GROWTH);
        }
    }

    /// The numbers of the messages of each topic that may match.
    fn matching(&self, matcher: &Matcher<'_>) -> Vec<&Vec<u32>> {
        let exact = matcher.topics();
        let exact = exact.filter_map(|topic| self.topics.get(topic_key(topic.as_bytes())));
        let mut matching: Vec<_> = exact.collect();
        if matcher.prefixes().next().is_some() {
            let topics = self.topics.iter();
            let topics = topics.filter(|(topic, _)| may_match(matcher, topic));
            matching.extend(topics.map(|(_, found)| found));
        }
        matching
    }
}

/// A chunk being filled.
pub(crate) struct Room<'a> {
    pub(crate) chunk: &'a mut Chunk,
    pub(crate) bytes_max: usize,
    pub(crate) bytes: usize,
}

impl Room<'_> {
    /// False if there is no room: the chunk then ends before this entry.
    fn put(&mut self, entry: crate::store::Entry) -> bool {
        if self.bytes >= self.bytes_max && !self.chunk.entries.is_empty() {
            self.chunk.next = entry.sequence;
            return false;
        }
        self.bytes += entry.message.as_bytes().len();
        self.chunk.entries.push(entry);
        true
    }
}

/// By wildcard; a topic that was cut may.
fn may_match(matcher: &Matcher<'_>, key: &[u8]) -> bool {
    match str::from_utf8(key) {
        Ok(topic) if key.len() < TOPIC_KEY_MAX => matcher.matches_by_wildcard(topic),
        _ => true,
    }
}

fn in_order(mut offsets: Vec<u32>) -> Vec<u32> {
    offsets.sort_unstable();
    offsets.dedup();
    offsets
}

fn topic_key(topic: &[u8]) -> &[u8] {
    topic.get(..TOPIC_KEY_MAX).unwrap_or(topic)
}

fn block_key(first: Sequence) -> [u8; 9] {
    let mut key = [BLOCK_KEY; 9];
    let (_, number) = key.split_at_mut(1);
    number.copy_from_slice(&first.0.to_be_bytes());
    key
}

/// What is behind all blocks.
fn blocks_end() -> Vec<u8> {
    vec![BLOCK_KEY + 1]
}

/// What the keys of blocks begin with.
pub(crate) const fn blocks() -> &'static [u8] {
    &[BLOCK_KEY]
}

pub(crate) fn parse_block_key(key: &[u8]) -> Result<Sequence, RecordError> {
    let mut reader = Reader::plain(key);
    reader.byte("key")?;
    let first = Sequence(u64::from_be_bytes(reader.array("key")?));
    reader.end()?;
    Ok(first)
}

/// So many messages are enough of a selection in the newest generation. They are looked for among
/// so many at first, and among so many times more as long as there are fewer.
const SELECTED: usize = 1_024;
const LOOKED_AT: u32 = 4_096;
const GROWTH: u32 = 4;

/// The format of a new generation. A version that knows no other would take released messages for
/// damage, and so refuses the next format.
const FORMAT: u8 = 1;
const FORMAT_RELEASED: u8 = 2;
const FORMAT_KEY: u8 = 0;
const BLOCK_KEY: u8 = 1;
const TOPIC_KEY: u8 = 2;
const SEALED_KEY: u8 = 3;
/// The engine's keys have at most 65,535 bytes, one of which says what it is.
const TOPIC_KEY_MAX: usize = 65_000;

#[cfg(test)]
mod tests {
    use unbroken_mqtt_proto::TopicFilter;

    use super::*;
    use crate::record::MessageRecord;
    use crate::selection::Selection;

    #[test]
    fn a_selection_takes_some_of_many_and_finds_one_that_is_rare() {
        let mut index = LiveIndex::default();
        for number in 0..50_000 {
            let topic = match number {
                49_000 => "rare",
                _ if number % 40 == 0 => "seldom",
                _ if number % 2 == 0 => "often/even",
                _ => "often/odd",
            };
            index.add(&MessageRecord::plain(topic, 1, b"").encode());
        }
        let select = |filter: &str, from| {
            let selection = Selection::new([TopicFilter::parse(filter).unwrap()]);
            index.select(&selection.matcher(), from..50_000)
        };
        for (filter, looked_at) in [
            ("often/#", 4_096),
            ("often/odd", 4_096),
            ("seldom", 50_000),
            ("rare", 50_000),
        ] {
            assert_eq!(select(filter, 0).1, looked_at, "{filter}");
        }
        // What is selected piece by piece is all of it, in order.
        for (filter, count) in [
            ("often/#", 48_750),
            ("often/odd", 25_000),
            ("seldom", 1_249),
        ] {
            let (mut all, mut from) = (Vec::new(), 0);
            while from < 50_000 {
                let (found, end) = select(filter, from);
                assert!(end > from && found.iter().all(|offset| (from..end).contains(offset)));
                all.extend(found);
                from = end;
            }
            assert_eq!(all.len(), count, "{filter}");
            assert!(all.is_sorted());
        }
        assert_eq!(select("rare", 0), (vec![49_000], 50_000));
        assert_eq!(select("rare", 49_001), (vec![], 50_000));
    }
}
