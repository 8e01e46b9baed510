//! The engine's journals, as this store reads them before the engine has them.
//!
//! The engine takes whatever it cannot read in a journal for its end, cuts the file there, and goes
//! on with the next. That is right for what a crash has torn, and for nothing else. So its journals
//! are read here first, and changed by nobody before it is known that they are whole.
//!
//! ```text
//! <number>.jnl   batch* zeros*         the greatest number is written to, the others are sealed
//! batch          1, items (4), seqno (8), item*, 3, XXH3 of all items (8), "FJL" 3
//! item           2, kind (1), compression (1), tree (8), length of key (2), of value (4),
//!                of value as it lies here (4), key, value
//!                4, tree (8)                                 the tree is emptied
//! ```
//!
//! Lengths and numbers have the low bits first. Each batch of this store has, among its items, its
//! [`Link`]: so what is missing between two batches is noticed wherever it lay.
//!
//! What a crash leaves, and is no damage: behind the last whole batch of the newest journal,
//! anything that no whole batch follows for which it was safe. A sector there that cannot be read
//! is as good as a torn one.
//!
//! Deliberately absent: changes, but for [`Tail::cut`].

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::hash::Hasher as _;
use std::io::{self, BufReader, ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::Xxh3;

use super::{LINK_KEY, engine};
use crate::error::StoreError;

/// The number of a batch: the one before it has the number before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) number: u64,
    /// When it was written, all before it was safe on the disk.
    pub(super) behind_safe: bool,
}

/// What whole journals say.
#[derive(Debug, Default)]
pub(super) struct Journals {
    /// What they put into the tree of the store's own.
    pub(super) own: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The numbers of the first batch that has one, and of the last.
    pub(super) links: Option<(u64, u64)>,
    /// The newest one; none if they were not read.
    pub(super) tail: Option<Tail>,
    /// Each that is sealed, and up to where it has batches.
    sealed: Vec<(PathBuf, u64)>,
}

/// The end of the newest journal.
#[derive(Debug)]
pub(super) struct Tail {
    path: PathBuf,
    /// Up to where there are whole batches.
    whole: u64,
    /// Something else than zeros follows.
    torn: bool,
}

impl Link {
    pub(super) fn encode(self) -> [u8; 9] {
        let mut bytes = [u8::from(self.behind_safe); 9];
        let (number, _) = bytes.split_at_mut(8);
        number.copy_from_slice(&self.number.to_be_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (number, safe) = bytes.split_first_chunk()?;
        Some(Self {
            number: u64::from_be_bytes(*number),
            behind_safe: *safe.first()? == 1,
        })
    }
}

impl Journals {
    /// Reads the journals in the engine's directory, where the store's own tree has this number.
    /// It takes as long as reading their bytes once, and the memory of the greatest item in them.
    pub(super) fn read(engine: &Path, own: u64) -> Result<Self, StoreError> {
        let mut this = Self::default();
        let all = list(engine)?;
        let mut before = None;
        for (at, (number, path)) in all.iter().enumerate() {
            if before.is_some_and(|before| before + 1 != *number) {
                let what = "the journal before it is missing";
                return Err(StoreError::damaged(path.display(), what));
            }
            before = Some(*number);
            let (batches, whole, torn) = this.read_one(path, own)?;
            if at + 1 == all.len() {
                if torn {
                    nothing_safe_follows(path, whole, own)?;
                }
                let path = path.clone();
                this.tail = Some(Tail { path, whole, torn });
            } else if torn {
                let what = format!("what begins at byte {whole} is not whole, and it is sealed");
                return Err(StoreError::damaged(path.display(), what));
            } else if batches == 0 {
                let what = "it is sealed, and there is nothing in it";
                return Err(StoreError::damaged(path.display(), what));
            } else {
                this.sealed.push((path.clone(), whole));
            }
        }
        if this.tail.is_none() {
            return Err(StoreError::damaged(engine.display(), "there is no *.jnl"));
        }
        Ok(this)
    }

    /// How many batches a journal has, up to where, and whether something is behind them.
    fn read_one(&mut self, path: &Path, own: u64) -> Result<(u64, u64, bool), StoreError> {
        let mut journal = Whole::open(path, own).map_err(|error| unreadable(path, error))?;
        let mut batches = 0;
        let unreadable_at = |at: u64, error| match unreadable(path, error) {
            StoreError::Damaged { place, what } => {
                StoreError::damaged(place, format_args!("behind byte {at}: {what}"))
            }
            other => other,
        };
        loop {
            let at = journal.at;
            let batch = match journal.next() {
                Ok(Some(batch)) => batch,
                Ok(None) => break,
                Err(error) => return Err(unreadable_at(at, error)),
            };
            batches += 1;
            if let Some(Link { number, .. }) = batch.link() {
                let (first, last) = self.links.unwrap_or((number, number.wrapping_sub(1)));
                if last.wrapping_add(1) != number {
                    let what = format!("at byte {at} is change {number}, and {last} before it");
                    return Err(StoreError::damaged(self.named(path, at), what));
                }
                self.links = Some((first, number));
            }
            self.own.extend(batch.own);
        }
        let at = journal.at;
        let torn = journal.anything_follows();
        Ok((batches, at, torn.map_err(|error| unreadable_at(at, error))?))
    }

    /// Where what is missing lay: at the beginning of a journal it is the end of the one before.
    fn named(&self, path: &Path, at: u64) -> String {
        match self.sealed.last() {
            Some((before, whole)) if at == 0 => {
                format!(
                    "{}, behind byte {whole}, or {}",
                    before.display(),
                    path.display()
                )
            }
            _ => path.display().to_string(),
        }
    }

    /// Whether the engine, now that it has them, has found in each as much as was found here.
    /// Those that it does not need any more are gone.
    pub(super) fn are_uncut(&self) -> Result<(), StoreError> {
        let newest = self.tail.iter().map(|tail| (&tail.path, tail.whole));
        let sealed = self.sealed.iter().map(|(path, whole)| (path, *whole));
        for (path, whole) in sealed.chain(newest) {
            match fs::metadata(path) {
                Ok(found) if found.len() < whole => {
                    let what = format!("the engine reads {} bytes of {whole}", found.len());
                    return Err(StoreError::damaged(path.display(), what));
                }
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(StoreError::io("looking for", path.display(), error));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

impl Tail {
    /// Cuts off what a crash has torn, safely on the disk: the engine would refuse some of it.
    pub(super) fn cut(&self) -> Result<(), StoreError> {
        if !self.torn {
            return Ok(());
        }
        let cut = || {
            let file = OpenOptions::new().write(true).open(&self.path)?;
            file.set_len(self.whole)?;
            file.sync_all()
        };
        cut().map_err(|error| StoreError::io("cutting", self.path.display(), error))
    }
}

impl std::fmt::Display for Tail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (path, whole) = (self.path.display(), self.whole);
        write!(f, "{path}, which has nothing whole behind byte {whole}")
    }
}

/// The journals, by their numbers.
pub(super) fn list(engine: &Path) -> Result<Vec<(u64, PathBuf)>, StoreError> {
    let list = || -> io::Result<_> {
        let mut all = Vec::new();
        for entry in fs::read_dir(engine)? {
            let entry = entry?;
            if let Some(number) = number(&entry.file_name().to_string_lossy()) {
                all.push((number, entry.path()));
            }
        }
        all.sort();
        Ok(all)
    };
    match list() {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        listed => listed.map_err(|error| StoreError::io("reading", engine.display(), error)),
    }
}

/// The number of a journal with this name.
pub(super) fn number(name: &str) -> Option<u64> {
    name.strip_suffix(".jnl")?.parse().ok()
}

/// The pieces of a journal that are whole batches, one behind the other and in the order in which
/// they were written, and the pieces between them that are something else than zeros.
pub(super) fn pieces(journal: &[u8]) -> (Vec<std::ops::Range<usize>>, Vec<std::ops::Range<usize>>) {
    let (mut whole, mut lost) = (Vec::new(), Vec::new());
    let (mut from, mut newest) = (0, None);
    loop {
        let mut until = from;
        while let Some(batch) = batch_at(journal, until, NO_TREE)
            && newest.is_none_or(|newest| batch.seqno > newest)
        {
            newest = Some(batch.seqno);
            until += batch.bytes;
        }
        if until > from {
            whole.push(from..until);
        }
        let begins = |at: &usize| {
            let batch = batch_at(journal, *at, NO_TREE);
            batch.is_some_and(|batch| newest.is_none_or(|newest| batch.seqno > newest))
        };
        let next = starts(journal, until).find(begins);
        let gap = until..next.unwrap_or(journal.len());
        let rest = journal.get(gap.clone()).unwrap_or_default();
        if rest.iter().any(|byte| *byte != 0) || next.is_some() {
            lost.push(gap);
        }
        match next {
            Some(next) => from = next,
            None => return (whole, lost),
        }
    }
}

/// Where a batch may begin, from some byte on.
fn starts(journal: &[u8], from: usize) -> impl Iterator<Item = usize> {
    let bytes = journal.iter().enumerate().skip(from);
    bytes.filter(|(_, byte)| **byte == START).map(|(at, _)| at)
}

/// All of a file, with zeros where the disk does not give back what is there.
pub(super) fn read_around(path: &Path) -> Result<Vec<u8>, StoreError> {
    sectors(path).map_err(|error| StoreError::io("reading", path.display(), error))
}

fn sectors(path: &Path) -> io::Result<Vec<u8>> {
    match fs::read(path) {
        Err(error) if engine::is_unreadable(&error) => {}
        read => return read,
    }
    let file = File::open(path)?;
    let length = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
    let mut bytes = vec![0; length];
    let mut at = 0;
    for piece in bytes.chunks_mut(PIECE_BYTES) {
        match file.read_exact_at(piece, at) {
            Err(error) if engine::is_unreadable(&error) => read_sectors(&file, piece, at)?,
            read => read?,
        }
        at += piece.len() as u64;
    }
    Ok(bytes)
}

fn read_sectors(file: &File, piece: &mut [u8], mut at: u64) -> io::Result<()> {
    for sector in piece.chunks_mut(SECTOR_BYTES) {
        match file.read_exact_at(sector, at) {
            Err(error) if engine::is_unreadable(&error) => sector.fill(0),
            read => read?,
        }
        at += sector.len() as u64;
    }
    Ok(())
}

/// Behind a hole that a crash has left nothing says that what lay in it was safe.
fn nothing_safe_follows(path: &Path, whole: u64, own: u64) -> Result<(), StoreError> {
    let all = read_around(path)?;
    let from = usize::try_from(whole).unwrap_or(usize::MAX);
    let rest = all.get(from..).unwrap_or_default();
    for at in starts(rest, 1) {
        let link = batch_at(rest, at, own).and_then(|batch| batch.link());
        if link.is_some_and(|link| link.behind_safe) {
            let next = whole + at as u64;
            let what = format!("what begins at byte {whole} is not whole, and byte {next} goes on");
            return Err(StoreError::damaged(path.display(), what));
        }
    }
    Ok(())
}

fn unreadable(path: &Path, error: io::Error) -> StoreError {
    engine::error(engine::READING, path.display(), fjall::Error::Io(error))
}

/// The whole batches at the beginning of a journal.
struct Whole {
    from: BufReader<File>,
    own: u64,
    /// Up to where it was read, and was whole.
    at: u64,
    length: u64,
}

impl Whole {
    fn open(path: &Path, own: u64) -> io::Result<Self> {
        let file = File::open(path)?;
        let length = file.metadata()?.len();
        let from = BufReader::with_capacity(PIECE_BYTES, file);
        Ok(Self {
            from,
            own,
            at: 0,
            length,
        })
    }

    fn next(&mut self) -> io::Result<Option<Batch>> {
        let room = usize::try_from(self.length - self.at).unwrap_or(usize::MAX);
        let batch = batch(&mut self.from, room, self.own)?;
        if let Some(batch) = &batch {
            self.at += batch.bytes as u64;
        }
        Ok(batch)
    }

    /// Or what may be something, and the disk does not give it back.
    fn anything_follows(mut self) -> io::Result<bool> {
        self.from.seek(SeekFrom::Start(self.at))?;
        let (mut piece, zeros) = (vec![0; PIECE_BYTES], vec![0; PIECE_BYTES]);
        loop {
            match self.from.read(&mut piece) {
                Ok(0) => return Ok(false),
                Ok(read) if piece.get(..read) != zeros.get(..read) => return Ok(true),
                Err(error) if engine::is_unreadable(&error) => return Ok(true),
                Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
        }
    }
}

/// A whole batch, with a right checksum.
struct Batch {
    bytes: usize,
    seqno: u64,
    /// What it puts into the tree that was asked for.
    own: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Batch {
    fn link(&self) -> Option<Link> {
        let found = self.own.iter().find(|(key, _)| key == LINK_KEY);
        found.and_then(|(_, link)| Link::decode(link))
    }
}

fn batch_at(journal: &[u8], at: usize, own: u64) -> Option<Batch> {
    let mut rest = journal.get(at..)?;
    let room = rest.len();
    batch(&mut rest, room, own).ok().flatten()
}

/// Reads a batch; none if there is no whole one.
fn batch(from: &mut impl Read, room: usize, own: u64) -> io::Result<Option<Batch>> {
    match read_batch(&mut Room { from, left: room }, own) {
        Ok(batch) => Ok(Some(Batch {
            bytes: room - batch.bytes,
            ..batch
        })),
        Err(NotWhole::Here) => Ok(None),
        Err(NotWhole::Unreadable(error)) if error.kind() == ErrorKind::UnexpectedEof => Ok(None),
        Err(NotWhole::Unreadable(error)) => Err(error),
    }
}

enum NotWhole {
    Here,
    Unreadable(io::Error),
}

/// As `batch`, but `bytes` is what is left of the room.
fn read_batch(from: &mut Room<'_, impl Read>, own: u64) -> Result<Batch, NotWhole> {
    from.expect(START)?;
    let count = u32::from_le_bytes(from.array()?);
    let seqno = u64::from_le_bytes(from.array()?);
    let mut hash = Xxh3::new();
    let mut puts = Vec::new();
    for _ in 0..count {
        let [tag] = from.array()?;
        hash.write(&[tag]);
        match tag {
            ITEM => {
                let head: [u8; 20] = from.array()?;
                hash.write(&head);
                let [
                    kind,
                    compression,
                    tree @ ..,
                    k0,
                    k1,
                    v0,
                    v1,
                    v2,
                    v3,
                    l0,
                    l1,
                    l2,
                    l3,
                ] = head;
                let tree = u64::from_le_bytes(tree);
                let key = usize::from(u16::from_le_bytes([k0, k1]));
                let value = u32::from_le_bytes([v0, v1, v2, v3]);
                let lies = u32::from_le_bytes([l0, l1, l2, l3]);
                let known = matches!(kind, PUT | REMOVE | REMOVE_ONE)
                    && match compression {
                        PLAIN => value == lies,
                        LZ4 => true,
                        _ => false,
                    };
                if !known {
                    return Err(NotWhole::Here);
                }
                let key = from.bytes(key)?;
                let value = from.bytes(lies as usize)?;
                hash.write(&key);
                hash.write(&value);
                if tree == own && kind == PUT && compression == PLAIN {
                    puts.push((key, value));
                }
            }
            CLEAR => hash.write(&from.array::<8>()?),
            _ => return Err(NotWhole::Here),
        }
    }
    from.expect(END)?;
    let checksum = u64::from_le_bytes(from.array()?);
    if from.array()? != TRAILER || checksum != hash.finish() {
        return Err(NotWhole::Here);
    }
    Ok(Batch {
        bytes: from.left,
        seqno,
        own: puts,
    })
}

/// A reader that is not asked for more than there can be.
struct Room<'a, R> {
    from: &'a mut R,
    left: usize,
}

impl<R: Read> Room<'_, R> {
    fn take(&mut self, bytes: usize) -> Result<(), NotWhole> {
        self.left = self.left.checked_sub(bytes).ok_or(NotWhole::Here)?;
        Ok(())
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], NotWhole> {
        self.take(N)?;
        let mut bytes = [0; N];
        let read = self.from.read_exact(&mut bytes);
        read.map_err(NotWhole::Unreadable)?;
        Ok(bytes)
    }

    fn bytes(&mut self, count: usize) -> Result<Vec<u8>, NotWhole> {
        self.take(count)?;
        let mut bytes = vec![0; count];
        let read = self.from.read_exact(&mut bytes);
        read.map_err(NotWhole::Unreadable)?;
        Ok(bytes)
    }

    fn expect(&mut self, tag: u8) -> Result<(), NotWhole> {
        match self.array()? {
            [found] if found == tag => Ok(()),
            _ => Err(NotWhole::Here),
        }
    }
}

/// No tree has this number.
const NO_TREE: u64 = u64::MAX;
const START: u8 = 1;
const ITEM: u8 = 2;
const END: u8 = 3;
const CLEAR: u8 = 4;
const PUT: u8 = 0;
const REMOVE: u8 = 1;
const REMOVE_ONE: u8 = 2;
const PLAIN: u8 = 0;
const LZ4: u8 = 1;
const TRAILER: [u8; 4] = *b"FJL\x03";
/// A disk gives back so much or nothing of it.
const SECTOR_BYTES: usize = 512;
const PIECE_BYTES: usize = 64 * 1024;
