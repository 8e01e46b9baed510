//! Reads the engine's journals before the engine does.
//!
//! The engine takes anything unreadable in a journal for its end, cuts the file there, and
//! continues with the next. That is right only for the torn end of a crash. So the journals are
//! read here first, and not changed before they are known to be whole.
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
//! A crash leaves, without damage: after the last whole batch of the newest journal, any bytes that
//! no whole batch follows for which they were safe. An unreadable sector there is treated like a
//! torn one.
//!
//! Deliberately absent: changes, except [`Journals::cut`] and [`Journals::seal`].

mod batch;

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use memchr::memmem;

use self::batch::{Batch, FIRST_TREE, ITEM, PLAIN, PUT, START_BYTES, Whole, batch_at};
use super::engine;
use super::link::{Link, Secret};
use super::opened::LINK_KEY;
use crate::data_directory::sync;
use crate::error::StoreError;

/// By what batches are known to be of a store, as far as it is known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    /// The number of the tree of the store's own.
    pub(super) own: u64,
    /// What all links have.
    pub(super) secret: Option<Secret>,
    /// What they have if nothing is certain.
    pub(super) likely: Option<Secret>,
}

/// What whole journals say.
#[derive(Debug, Default)]
pub(super) struct Journals {
    /// What they put into the tree of the store's own.
    pub(super) own: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Why nothing else of the store was looked at, if so.
    pub(super) alone: Option<String>,
    /// The numbers of the first batch that has one, and of the last.
    pub(super) links: Option<(u64, u64)>,
    /// By what its batches were told.
    known: Known,
    /// That of each, oldest first; none if they were not read.
    ends: Vec<End>,
}

/// The end of a journal.
#[derive(Debug)]
pub(super) struct End {
    path: PathBuf,
    /// Up to where there are whole batches.
    whole: u64,
    /// Something else than zeros follows.
    pub(super) torn: bool,
}

impl Default for Known {
    fn default() -> Self {
        Self {
            own: FIRST_TREE,
            secret: None,
            likely: None,
        }
    }
}

impl Known {
    /// The link of a batch that is certain to be of this store; none if it was written before there
    /// were links. What it has others have, too.
    fn learn(&mut self, batch: &Batch) -> Option<Link> {
        let (tree, link) = batch.link?;
        if tree != self.own {
            return None;
        }
        self.secret.get_or_insert(link.secret);
        Some(link)
    }

    /// The whole batches in a part of a journal of which nothing is certain, and where they begin.
    fn batches<'a>(&self, part: &'a [u8]) -> impl Iterator<Item = (usize, Batch, Link)> + 'a {
        let own = self.own;
        let secret = self.secret.or(self.likely);
        let starts = secret.map_or_else(Vec::new, |secret| {
            let mark = mark(own, &secret);
            let found = memmem::find_iter(part, &mark);
            found.filter_map(|at| at.checked_sub(START_BYTES)).collect()
        });
        // None goes on beyond the beginning of another, so each byte is read once.
        let ends: Vec<_> = starts.iter().copied().skip(1).chain([part.len()]).collect();
        let parts = starts.into_iter().zip(ends);
        parts.filter_map(move |(start, end)| {
            let batch = batch_at(part.get(start..end)?, own)?;
            let (_, link) = batch.link?;
            Some((start, batch, link))
        })
    }
}

/// What is [`START_BYTES`] behind the beginning of a batch: its first item, up to the secret.
fn mark(own: u64, secret: &Secret) -> Vec<u8> {
    let key = u16::try_from(LINK_KEY.len()).unwrap_or_default();
    let value = u32::try_from(Link::BYTES).unwrap_or_default();
    let mut mark = vec![ITEM, PUT, PLAIN];
    mark.extend_from_slice(&own.to_le_bytes());
    mark.extend_from_slice(&key.to_le_bytes());
    mark.extend_from_slice(&[value.to_le_bytes(), value.to_le_bytes()].concat());
    mark.extend_from_slice(LINK_KEY);
    mark.extend_from_slice(secret.bytes());
    mark
}

impl Journals {
    /// Reads the journals in the engine's directory. It takes as long as reading their bytes once,
    /// and the memory of the greatest item in them, or of one whose end is torn.
    pub(super) fn read(engine: &Path, known: Known) -> Result<Self, StoreError> {
        let mut this = Self {
            known,
            own: BTreeMap::new(),
            alone: None,
            links: None,
            ends: Vec::new(),
        };
        let all = list(engine)?;
        let mut before = None;
        for (at, (number, path)) in all.iter().enumerate() {
            if before.is_some_and(|before| before + 1 != *number) {
                let what = "the journal before it is missing";
                return Err(StoreError::damaged(path.display(), what));
            }
            before = Some(*number);
            let (batches, whole, torn) = this.read_one(path)?;
            let sealed = at + 1 < all.len();
            if sealed && batches == 0 {
                let what = "it is sealed and empty";
                return Err(StoreError::damaged(path.display(), what));
            }
            if torn {
                this.nothing_follows(path, whole, sealed)?;
            }
            let path = path.clone();
            this.ends.push(End { path, whole, torn });
        }
        if this.ends.is_empty() {
            return Err(StoreError::damaged(engine.display(), "there is no *.jnl"));
        }
        Ok(this)
    }

    /// How many batches a journal has, up to where, and whether something is behind them.
    fn read_one(&mut self, path: &Path) -> Result<(u64, u64, bool), StoreError> {
        let mut journal = Whole::open(path).map_err(|error| unreadable(path, error))?;
        let mut batches = 0;
        let unreadable_at = |at: u64, error| match unreadable(path, error) {
            StoreError::Damaged { place, what } => {
                StoreError::damaged(place, format_args!("behind byte {at}: {what}"))
            }
            other => other,
        };
        loop {
            let at = journal.at;
            let batch = match journal.next(self.known.own) {
                Ok(Some(batch)) => batch,
                Ok(None) => break,
                Err(error) => return Err(unreadable_at(at, error)),
            };
            batches += 1;
            if let Some(Link { secret, number, .. }) = self.known.learn(&batch) {
                if self.known.secret != Some(secret) {
                    let what = format!("the batch at byte {at} belongs to another store");
                    return Err(StoreError::damaged(path.display(), what));
                }
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

    /// Behind a hole that a crash has left nothing says that what lay in it was safe, and in a
    /// journal that was sealed behind it there is nothing at all.
    fn nothing_follows(&self, path: &Path, whole: u64, sealed: bool) -> Result<(), StoreError> {
        let damaged = |what: String| Err(StoreError::damaged(path.display(), what));
        let last = match self.links {
            Some((_, last)) => last,
            // Nothing says what comes next.
            None if sealed => {
                let what =
                    format!("the batch at byte {whole} is incomplete, and the journal is sealed");
                return damaged(what);
            }
            None => 0,
        };
        let all = read_around(path)?;
        let from = usize::try_from(whole).unwrap_or(usize::MAX);
        let rest = all.get(from..).unwrap_or_default();
        for (at, _, link) in self.known.batches(rest) {
            if link.number > last && (sealed || link.behind_safe) {
                let next = whole + at as u64;
                let what =
                    format!("the batch at byte {whole} is incomplete, and the one at byte {next}");
                return damaged(what + " follows it");
            }
        }
        Ok(())
    }

    /// Where what is missing lay: at the beginning of a journal it is the end of the one before.
    fn named(&self, path: &Path, at: u64) -> String {
        match self.ends.last() {
            Some(End {
                path: it, whole, ..
            }) if at == 0 => {
                format!(
                    "{}, behind byte {whole}, or {}",
                    it.display(),
                    path.display()
                )
            }
            _ => path.display().to_string(),
        }
    }

    /// The end of the newest one that has something; none if they were not read.
    pub(super) fn tail(&self) -> Option<&End> {
        let filled = self.ends.iter().rfind(|end| end.whole > 0);
        filled.or(self.ends.last())
    }

    /// Cuts off what a crash has torn, safely on the disk: the engine would refuse some of it.
    pub(super) fn cut(&self) -> Result<(), StoreError> {
        for End { path, whole, .. } in self.ends.iter().filter(|end| end.torn) {
            let cut = || {
                let file = OpenOptions::new().write(true).open(path)?;
                file.set_len(*whole)?;
                file.sync_all()
            };
            cut().map_err(|error| StoreError::io("cutting", path.display(), error))?;
        }
        Ok(())
    }

    /// Begins another journal if the newest has so many bytes, so that the engine writes what is in
    /// it to tables and deletes it. It is safe before there is another.
    pub(super) fn seal(&self, bytes_min: u64) -> Result<(), StoreError> {
        let Some(End { path, whole, .. }) = self.ends.last() else {
            return Ok(());
        };
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let Some(number) = number(&name).filter(|_| *whole >= bytes_min) else {
            return Ok(());
        };
        let next = path.with_file_name(format!("{}.jnl", number + 1));
        let seal = || {
            File::open(path)?.sync_all()?;
            File::create_new(&next)?.sync_all()?;
            next.parent().map_or(Ok(()), sync)
        };
        seal().map_err(|error| StoreError::io("making", next.display(), error))
    }

    /// Whether the engine, now that it has them, has found in each as much as was found here.
    /// Those that it does not need any more are gone.
    pub(super) fn are_uncut(&self) -> Result<(), StoreError> {
        for End { path, whole, .. } in &self.ends {
            match fs::metadata(path) {
                Ok(found) if found.len() < *whole => {
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

impl std::fmt::Display for End {
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

/// What is whole in the journals of a damaged store, one journal behind the other.
#[derive(Debug)]
pub(super) struct Sieve {
    known: Known,
    /// The number of the last batch that was taken.
    last: u64,
}

impl Sieve {
    /// For the journals in this directory of the engine.
    pub(super) fn new(engine: &Path, mut known: Known) -> Result<Self, StoreError> {
        for (_, path) in list(engine)? {
            if known.secret.is_some() {
                break;
            }
            // The engine has written what a journal begins with: it is no client's.
            let first = Whole::open(&path).and_then(|mut journal| journal.next(known.own));
            if let Ok(Some(first)) = first {
                known.learn(&first);
            }
        }
        Ok(Self { known, last: 0 })
    }

    /// The pieces of the next journal that are whole batches, in the order in which they were
    /// written, and the pieces between them that are something else than zeros.
    pub(super) fn pieces(&mut self, journal: &[u8]) -> (Vec<Range<usize>>, Vec<Range<usize>>) {
        let (mut whole, mut lost) = (Vec::<Range<usize>>::new(), Vec::new());
        let mut until = 0;
        while let Some(batch) = journal
            .get(until..)
            .and_then(|it| batch_at(it, self.known.own))
            && self.follows(&batch)
        {
            until += batch.bytes;
        }
        if until > 0 {
            whole.push(0..until);
        }
        let rest = journal.get(until..).unwrap_or_default();
        let begins = until;
        for (at, batch, link) in self.known.batches(rest) {
            if link.number <= self.last {
                continue;
            }
            self.last = link.number;
            let at = begins + at;
            match whole.last_mut() {
                Some(piece) if piece.end == at => piece.end += batch.bytes,
                _ => {
                    lost.push(until..at);
                    whole.push(at..at + batch.bytes);
                }
            }
            until = at + batch.bytes;
        }
        let rest = journal.get(until..).unwrap_or_default();
        if rest.iter().any(|byte| *byte != 0) {
            lost.push(until..journal.len());
        }
        (whole, lost)
    }

    /// Whether a batch with nothing but whole ones before it in its journal is a next one.
    fn follows(&mut self, batch: &Batch) -> bool {
        match self.known.learn(batch) {
            Some(link) if Some(link.secret) == self.known.secret && link.number > self.last => {
                self.last = link.number;
                true
            }
            Some(_) => false,
            None => self.last == 0,
        }
    }
}

/// The pieces of an engine's journal that are whole, and those that are lost: what is done with one
/// of a damaged store. For the fuzzer.
#[doc(hidden)]
pub fn whole_in_journal(journal: &[u8]) -> (Vec<Range<usize>>, Vec<Range<usize>>) {
    let known = Known {
        likely: Some(Secret::ZERO),
        ..Known::default()
    };
    Sieve { known, last: 0 }.pieces(journal)
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

fn unreadable(path: &Path, error: io::Error) -> StoreError {
    engine::error(engine::READING, path.display(), fjall::Error::Io(error))
}

/// A disk gives back so much or nothing of it.
const SECTOR_BYTES: usize = 512;
const PIECE_BYTES: usize = 64 * 1024;
