//! A store as one file, to be kept elsewhere and read into any store.
//!
//! ```text
//! unbroken-backup 1\n
//! block*      length of the body (4 BE) | seal (32) | body
//! ```
//!
//! The seal of a block is the BLAKE3 hash of the seal before it and its body; before the first is
//! the hash of the line. So what is changed, left out or put in at any place is noticed there. The
//! bodies one behind the other are rows, none of which is in two blocks:
//!
//! ```text
//! 1 | log | first | next            a log, and its bounds
//! 2 | number | length, message      a message of the log that was named last
//! 3 | length, space | length, key | length, value
//! 0 | messages | values             how many there were; the last row
//! ```
//!
//! Numbers are varints, as in the records. Logs come in ascending order, then values by space and
//! key; messages keep their numbers, since sessions speak of them.
//!
//! Invariants:
//! - It is written and read in pieces: memory does not grow with it.
//! - A store is restored whole or not at all.
//!
//! Deliberately absent: compression and encryption, which other tools do to a stream, and
//! revisions, which a store gives itself.

use std::fs;
use std::io::{self, Read, Write};
use std::path::Path;

use crate::batch::{Batch, Space};
use crate::codec::{Reader, RecordError, put_number, put_string};
use crate::embedded::{Durability, Embedded, Options};
use crate::error::{Conflict, StoreError};
use crate::places::{beside, clear, rename};
use crate::position::{LogId, Sequence};
use crate::record::MessageBytes;
use crate::store::{Bounds, Store, View};

/// What is in a backup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// Messages of all logs.
    pub messages: u64,
    /// Values of all spaces.
    pub values: u64,
    /// Bytes of the file.
    pub bytes: u64,
}

/// Why a backup could not be written or restored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackupError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The file could not be written or read.
    #[error("{doing} the backup: {source}")]
    Io {
        /// "writing" or "reading".
        doing: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The file is none.
    #[error("this is no backup: it does not begin with `{NAME} {VERSION}`")]
    NoBackup,
    /// The file was written by a version that this one does not know.
    #[error(
        "the backup has format {found}, and this version reads up to {VERSION}; \
         use the version that wrote it, or a newer one"
    )]
    Format {
        /// The format found.
        found: u64,
    },
    /// The file is not as it was written.
    #[error("the backup is damaged at byte {at}: {what}")]
    Damaged {
        /// Where the block begins that is wrong.
        at: u64,
        /// What is wrong with it.
        what: String,
    },
    /// There is something already.
    #[error(
        "{place} is not empty; a backup is restored into a directory that is empty or not there"
    )]
    NotEmpty {
        /// The directory.
        place: String,
    },
}

/// Writes all that is to be seen.
pub fn write(view: &dyn View, out: &mut dyn Write) -> Result<Contents, BackupError> {
    let mut writer = Writer::begin(out)?;
    for log in view.logs()? {
        let Bounds { first, next } = view.bounds(log)?;
        writer.row(LOG, |row| {
            put_number(row, log.0.into());
            put_number(row, first.0);
            put_number(row, next.0);
        })?;
        let mut from = first;
        while from < next {
            let chunk = view.read(log, from..next, PIECE_BYTES)?;
            for entry in &chunk.entries {
                writer.contents.messages += 1;
                writer.row(MESSAGE, |row| {
                    put_number(row, entry.sequence.0);
                    put_string(row, entry.message.as_bytes());
                })?;
            }
            from = chunk.next;
        }
    }
    for space in Space::ALL {
        let mut after: Option<Vec<u8>> = None;
        loop {
            let page = view.scan(space, &[], after.as_deref(), PIECE_BYTES)?;
            for pair in &page.pairs {
                writer.contents.values += 1;
                writer.row(VALUE, |row| {
                    put_string(row, space.name().as_bytes());
                    put_string(row, &pair.key);
                    put_string(row, &pair.value.bytes);
                })?;
            }
            after = page.pairs.into_iter().next_back().map(|pair| pair.key);
            if !page.more || after.is_none() {
                break;
            }
        }
    }
    writer.finish()
}

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

/// Makes a store in a directory that is empty or not there. It is filled beside it and takes its
/// place when it is whole and safe, so whatever interrupts this leaves the directory as it was.
pub fn restore(
    from: &mut dyn Read,
    path: &Path,
    mut options: Options,
) -> Result<Contents, BackupError> {
    empty(path)?;
    let filled = beside(path, ".restoring");
    // Somebody who is restoring there has its lock; what was left of another attempt has not.
    if filled.is_dir() {
        drop(Embedded::lock(&filled)?);
    }
    clear(&filled)?;
    // It is synced once, when it is whole.
    options.durability = Durability::Off;
    let store = Embedded::open(&filled, options)?;
    let restored = read(from, &store).and_then(|contents| {
        store.sync()?;
        Ok(contents)
    });
    drop(store);
    match restored {
        Ok(contents) => {
            rename(&filled, path)?;
            Ok(contents)
        }
        Err(error) => {
            clear(&filled)?;
            Err(error)
        }
    }
}

fn empty(path: &Path) -> Result<(), BackupError> {
    let not_empty = || BackupError::NotEmpty {
        place: path.display().to_string(),
    };
    match fs::read_dir(path) {
        Ok(mut entries) => match entries.next() {
            None => Ok(()),
            Some(_) => Err(not_empty()),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => Err(not_empty()),
        Err(error) => Err(StoreError::io("reading", path.display(), error).into()),
    }
}

type Seal = [u8; blake3::OUT_LEN];

fn seal(before: &Seal, body: &[u8]) -> Seal {
    let mut hasher = blake3::Hasher::new();
    hasher.update(before).update(body);
    hasher.finalize().into()
}

/// Rows into blocks.
struct Writer<'w> {
    out: &'w mut dyn Write,
    body: Vec<u8>,
    seal: Seal,
    contents: Contents,
}

impl<'w> Writer<'w> {
    fn begin(out: &'w mut dyn Write) -> Result<Self, BackupError> {
        let line = format!("{NAME} {VERSION}\n");
        let mut writer = Self {
            out,
            body: Vec::new(),
            seal: blake3::hash(line.as_bytes()).into(),
            contents: Contents::default(),
        };
        writer.put(line.as_bytes())?;
        Ok(writer)
    }

    fn row(&mut self, kind: u8, fill: impl FnOnce(&mut Vec<u8>)) -> Result<(), BackupError> {
        self.body.push(kind);
        fill(&mut self.body);
        if self.body.len() >= PIECE_BYTES {
            self.end_block()?;
        }
        Ok(())
    }

    fn end_block(&mut self) -> Result<(), BackupError> {
        let body = std::mem::take(&mut self.body);
        self.seal = seal(&self.seal, &body);
        // A row is a record and a key, each of them far below 4 GiB.
        let length = u32::try_from(body.len()).map_err(io::Error::other);
        let length = length.map_err(writing)?;
        let seal = self.seal;
        self.put(&length.to_be_bytes())?;
        self.put(&seal)?;
        self.put(&body)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), BackupError> {
        self.contents.bytes += bytes.len() as u64;
        self.out.write_all(bytes).map_err(writing)
    }

    fn finish(mut self) -> Result<Contents, BackupError> {
        let Contents {
            messages, values, ..
        } = self.contents;
        self.row(END, |row| {
            put_number(row, messages);
            put_number(row, values);
        })?;
        if !self.body.is_empty() {
            self.end_block()?;
        }
        self.out.flush().map_err(writing)?;
        Ok(self.contents)
    }
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
            return Err(damaged("what follows is not what was written"));
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
            ended: None,
        }
    }

    fn rows(&mut self, body: &[u8]) -> Result<(), RowError> {
        let mut reader = Reader::plain(body);
        while reader.len() > 0 {
            if self.ended.is_some() {
                return Err(RowError::Wrong("something follows its end".into()));
            }
            match reader.byte("kind")? {
                LOG => {
                    let id = LogId(reader.small("log")?);
                    let first = Sequence(reader.number("first number")?);
                    let end = Sequence(reader.number("next number")?);
                    if first == Sequence::BEFORE_ALL || end < first {
                        return Err(RowError::Wrong(format!("log {id} has no such bounds")));
                    }
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
                    self.end_log()?;
                    self.contents.values += 1;
                    self.batch.put(space, key, value);
                    self.write_if(PIECE_BYTES)?;
                }
                END => {
                    let messages = reader.number("count of messages")?;
                    self.ended = Some((messages, reader.number("count of values")?));
                }
                kind => return Err(RowError::Wrong(format!("there are no rows of kind {kind}"))),
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
            None => "it ends there, and is not whole".to_owned(),
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

fn writing(source: io::Error) -> BackupError {
    let doing = "writing";
    BackupError::Io { doing, source }
}

fn reading(source: io::Error) -> BackupError {
    let doing = "reading";
    BackupError::Io { doing, source }
}

const NAME: &str = "unbroken-backup";
const VERSION: u64 = 1;
/// More than the first line of any version.
const LINE_BYTES_MAX: u64 = 64;
/// About so much is read from a store, written to one, or in a block, at a time: one row more.
const PIECE_BYTES: usize = 1024 * 1024;
const END: u8 = 0;
const LOG: u8 = 1;
const MESSAGE: u8 = 2;
const VALUE: u8 = 3;
