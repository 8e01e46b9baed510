//! A file into a store: blocks are checked, rows become batches.

use std::io::{self, Read};

use super::{
    BackupError, Contents, END, LINE_BYTES_MAX, LOG, MESSAGE, NAME, PIECE_BYTES, Seal, VALUE,
    VERSION, seal,
};
use crate::batch::{Batch, Space};
use crate::codec::{Reader, RecordError};
use crate::error::{Conflict, StoreError};
use crate::position::{LogId, Sequence};
use crate::record::MessageBytes;
use crate::store::Store;

/// Reads a backup into an empty store. If it fails, the store has part of it.
pub fn read(from: &mut dyn Read, into: &dyn Store) -> Result<Contents, BackupError> {
    let mut reader = Blocks::begin(from)?;
    let mut filling = Filling::new(into);
    while let Some((at, body)) = reader.next()? {
        let rows = filling.rows(&body);
        rows.map_err(|error| error.told(at))?;
    }
    let mut contents = filling.finish(reader.at)?;
    contents.bytes = reader.at;
    Ok(contents)
}

/// Blocks, each checked before it is looked at.
struct Blocks<'r> {
    from: &'r mut dyn Read,
    seal: Seal,
    /// Bytes that were read.
    at: u64,
}

impl<'r> Blocks<'r> {
    fn begin(from: &'r mut dyn Read) -> Result<Self, BackupError> {
        let mut line = Vec::new();
        let mut first = from.take(LINE_BYTES_MAX);
        // Byte by byte, since what follows the line is not to be taken.
        while !line.ends_with(b"\n") {
            let before = line.len();
            (&mut first)
                .take(1)
                .read_to_end(&mut line)
                .map_err(reading)?;
            if line.len() == before {
                return Err(BackupError::NoBackup);
            }
        }
        let number = str::from_utf8(&line).ok().and_then(|line| {
            let number = line.trim_end().strip_prefix(NAME)?;
            number.strip_prefix(' ')?.parse().ok()
        });
        match number {
            Some(VERSION) => Ok(Self {
                from,
                seal: blake3::hash(&line).into(),
                at: line.len() as u64,
            }),
            Some(found) if found > VERSION => Err(BackupError::Format { found }),
            _ => Err(BackupError::NoBackup),
        }
    }

    /// The next block, and where it begins.
    fn next(&mut self) -> Result<Option<(u64, Vec<u8>)>, BackupError> {
        let at = self.at;
        let damaged = |what: &str| BackupError::Damaged {
            at,
            what: what.to_owned(),
        };
        let head = self.take(4 + blake3::OUT_LEN)?;
        if head.is_empty() {
            return Ok(None);
        }
        let (length, found) = head.split_first_chunk().ok_or(damaged("it ends there"))?;
        let length = u32::from_be_bytes(*length) as usize;
        // Taken piece by piece, so a length that is wrong takes no more memory than there is file.
        let body = self.take(length)?;
        if body.len() < length || found.len() < blake3::OUT_LEN {
            return Err(damaged("it ends there"));
        }
        self.seal = seal(&self.seal, &body);
        if found != self.seal {
            return Err(damaged("the checksum of what follows does not match"));
        }
        Ok(Some((at, body)))
    }

    /// So many bytes, or what is left.
    fn take(&mut self, count: usize) -> Result<Vec<u8>, BackupError> {
        let mut bytes = Vec::new();
        let mut piece = (&mut *self.from).take(count as u64);
        piece.read_to_end(&mut bytes).map_err(reading)?;
        self.at += bytes.len() as u64;
        Ok(bytes)
    }
}

/// A store being filled.
struct Filling<'s> {
    store: &'s dyn Store,
    batch: Batch,
    contents: Contents,
    log: Option<OpenLog>,
    /// The log that was named last, and the value that came last: what follows is behind both.
    last_log: Option<LogId>,
    last_value: Option<(Space, Vec<u8>)>,
    /// The last row said so many messages and values.
    ended: Option<(u64, u64)>,
}

/// The log that messages are for.
struct OpenLog {
    id: LogId,
    /// The number that the next message would have without a hole.
    next: Sequence,
    end: Sequence,
}

/// What is wrong with a row.
enum RowError {
    Row(RecordError),
    Wrong(String),
    Store(StoreError),
}

impl<'s> Filling<'s> {
    fn new(store: &'s dyn Store) -> Self {
        Self {
            store,
            batch: Batch::new(),
            contents: Contents::default(),
            log: None,
            last_log: None,
            last_value: None,
            ended: None,
        }
    }

    fn rows(&mut self, body: &[u8]) -> Result<(), RowError> {
        let mut reader = Reader::plain(body);
        while reader.len() > 0 {
            if self.ended.is_some() {
                return Err(RowError::Wrong("data follows its end".into()));
            }
            match reader.byte("kind")? {
                LOG => {
                    let id = LogId(reader.small("log")?);
                    let first = Sequence(reader.number("first number")?);
                    let end = Sequence(reader.number("next number")?);
                    if first == Sequence::BEFORE_ALL || end < first {
                        return Err(RowError::Wrong(format!("log {id} has invalid bounds")));
                    }
                    if self.last_log >= Some(id) || self.last_value.is_some() {
                        return Err(RowError::Wrong(format!("log {id} is out of order")));
                    }
                    self.last_log = Some(id);
                    self.end_log()?;
                    self.store.go_on_at(id, first)?;
                    let next = first;
                    self.log = Some(OpenLog { id, next, end });
                }
                MESSAGE => {
                    let number = Sequence(reader.number("number")?);
                    let message = MessageBytes::parse(reader.string("message")?.to_vec())?;
                    self.append(number, message)?;
                }
                VALUE => {
                    let name = reader.text("space")?;
                    let space = Space::ALL.into_iter().find(|space| space.name() == name);
                    let unknown = || RowError::Wrong(format!("there is no space {name:?}"));
                    let space = space.ok_or_else(unknown)?;
                    let key = reader.string("key")?.to_vec();
                    let value = reader.string("value")?.to_vec();
                    let place = Some((space, key.clone()));
                    if self.last_value >= place {
                        let what = format!("a value of {space} is out of order");
                        return Err(RowError::Wrong(what));
                    }
                    self.last_value = place;
                    self.end_log()?;
                    self.contents.values += 1;
                    self.batch.put(space, key, value);
                    self.write_if(PIECE_BYTES)?;
                }
                END => {
                    let messages = reader.number("count of messages")?;
                    self.ended = Some((messages, reader.number("count of values")?));
                }
                kind => return Err(RowError::Wrong(format!("unknown row kind {kind}"))),
            }
        }
        Ok(())
    }

    fn append(&mut self, number: Sequence, message: MessageBytes) -> Result<(), RowError> {
        let log = self.log.as_mut();
        let log = log.filter(|log| log.next <= number && number < log.end);
        let Some(OpenLog { id, next, .. }) = log else {
            return Err(RowError::Wrong(format!("message {number} is in no log")));
        };
        let (id, hole) = (*id, *next != number);
        *next = number.next();
        if hole {
            self.write_if(0)?;
            self.store.go_on_at(id, number)?;
        }
        self.contents.messages += 1;
        self.batch.append(id, number, message);
        self.write_if(PIECE_BYTES)
    }

    /// Nothing more comes for the log that was named last.
    fn end_log(&mut self) -> Result<(), RowError> {
        if let Some(log) = self.log.take() {
            self.write_if(0)?;
            self.store.go_on_at(log.id, log.end)?;
        }
        Ok(())
    }

    fn write_if(&mut self, at_least: usize) -> Result<(), RowError> {
        if self.batch.is_empty() || self.batch.bytes() < at_least {
            return Ok(());
        }
        let batch = std::mem::take(&mut self.batch);
        for result in self.store.commit(&[batch])? {
            result?;
        }
        Ok(())
    }

    fn finish(mut self, at: u64) -> Result<Contents, BackupError> {
        let written = self.end_log().and_then(|()| self.write_if(0));
        written.map_err(|error| error.told(at))?;
        let Contents {
            messages, values, ..
        } = self.contents;
        let what = match self.ended {
            Some(said) if said == (messages, values) => return Ok(self.contents),
            Some((said, also)) => format!(
                "it has {messages} messages and {values} values instead of {said} and {also}"
            ),
            None => "it ends there and is incomplete".to_owned(),
        };
        Err(BackupError::Damaged { at, what })
    }
}

impl RowError {
    fn told(self, at: u64) -> BackupError {
        let what = match self {
            Self::Store(error) => return error.into(),
            Self::Row(error) => format!("a row {error}"),
            Self::Wrong(what) => what,
        };
        BackupError::Damaged { at, what }
    }
}

impl From<RecordError> for RowError {
    fn from(error: RecordError) -> Self {
        Self::Row(error)
    }
}

impl From<StoreError> for RowError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<Conflict> for RowError {
    fn from(conflict: Conflict) -> Self {
        Self::Wrong(conflict.to_string())
    }
}

fn reading(source: io::Error) -> BackupError {
    let doing = "reading";
    BackupError::Io { doing, source }
}
