//! What a power cut takes back: changes of files and of names that no sync has made safe.
//!
//! `disk.c` writes down how each change is undone, in the order in which they were made. Names are
//! taken back first, so that what is in a file that was removed, and is back, is taken back too.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::iter;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// What chance decides: a number below another one.
type Below<'a> = dyn FnMut(u64) -> u64 + 'a;

/// Takes back some of what is not safe, or all of it without chance. Gives how many changes.
/// Removed files lie in `graves`, which are empty then.
pub(super) fn take_back(
    undo: &Path,
    directory: &Path,
    graves: &Path,
    mut below: Option<&mut Below<'_>>,
) -> io::Result<u64> {
    let log = fs::read(undo)?;
    let mut files: BTreeMap<u64, Changes<'_>> = BTreeMap::new();
    let mut names: BTreeMap<&Path, Names<'_>> = BTreeMap::new();
    let mut records = Records { log: &log, at: 0 };
    while let Some((at, record)) = records.next() {
        match record.kind {
            MADE | REMOVED | RENAMED => {
                let change = NameChange::of(at, &record);
                if let Some(parent) = change.place.parent() {
                    names.entry(parent).or_default().list.push(change);
                }
            }
            NAMES_SYNCED | NAMES_FAILED => {
                let names = names.entry(path_of(record.before)).or_default();
                names.is_spoilt = record.kind == NAMES_FAILED;
                if !names.is_spoilt {
                    names.list.retain(|change| change.at >= record.offset);
                }
            }
            kind => {
                let changes = files.entry(record.file).or_default();
                match kind {
                    CHANGE => changes.list.push((at, record)),
                    SYNCED => changes.synced(record.offset),
                    _ => changes.failed(),
                }
            }
        }
    }
    let mut lost = Vec::new();
    for names in names.into_values() {
        lost.extend(names.lost(below.as_deref_mut())?);
    }
    let mut count = lost.len() as u64;
    // A directory is back before what was in it.
    lost.sort_by_key(|change| std::cmp::Reverse(change.at));
    for change in lost {
        change.undo(graves)?;
    }
    let mut paths = BTreeMap::new();
    find(directory, &mut paths)?;
    for (file, changes) in files {
        if let Some(path) = paths.get(&file) {
            count += changes.take_back(path, below.as_deref_mut())?;
        }
    }
    fs::write(undo, "")?;
    for grave in fs::read_dir(graves)? {
        fs::remove_file(grave?.path())?;
    }
    Ok(count)
}

/// Whether a file was given this name, safely or not.
pub(super) fn has_renamed(undo: &Path, name: &str) -> io::Result<bool> {
    let log = fs::read(undo)?;
    let mut records = Records { log: &log, at: 0 };
    Ok(iter::from_fn(|| records.next()).any(|(at, record)| {
        record.kind == RENAMED
            && NameChange::of(at, &record).place.file_name() == Some(name.as_ref())
    }))
}

/// Whether a sync of the file has succeeded that began when the log was this long already.
pub(super) fn has_synced(undo: &Path, file: u64, since: u64) -> io::Result<bool> {
    let log = fs::read(undo)?;
    let mut records = Records { log: &log, at: 0 };
    Ok(iter::from_fn(|| records.next())
        .any(|(_, record)| (record.kind, record.file) == (SYNCED, file) && record.offset >= since))
}

/// The changes of names in one directory that are not safe.
#[derive(Default)]
struct Names<'a> {
    list: Vec<NameChange<'a>>,
    /// The last sync has failed. A file system that cannot write a name takes no more changes until
    /// the machine is started again, so a later sync that succeeds has made all safe.
    is_spoilt: bool,
}

impl<'a> Names<'a> {
    /// What is taken back: a disk keeps the order in which names of one directory change.
    fn lost(mut self, below: Option<&mut Below<'_>>) -> io::Result<Vec<NameChange<'a>>> {
        let count = self.list.len();
        let kept = match below {
            Some(below) if !self.is_spoilt => {
                usize::try_from(below(count as u64 + 1)).map_err(io::Error::other)?
            }
            _ => 0,
        };
        Ok(self.list.split_off(kept))
    }
}

/// A name that was made, removed or given.
struct NameChange<'a> {
    /// Its place in the log.
    at: u64,
    kind: u32,
    place: &'a Path,
    /// The name before, if another was given.
    before: &'a Path,
    /// Where the file is that had the name; 0 if none had, or a directory.
    grave: u64,
}

impl<'a> NameChange<'a> {
    fn of(at: u64, record: &Record<'a>) -> Self {
        let mut names = record.before.splitn(2, |byte| *byte == 0);
        Self {
            at,
            kind: record.kind,
            place: path_of(names.next().unwrap_or_default()),
            before: path_of(names.next().unwrap_or_default()),
            grave: record.file,
        }
    }

    fn undo(&self, graves: &Path) -> io::Result<()> {
        let undone = match self.kind {
            // With what is in it, which nobody finds without it.
            MADE if self.place.is_dir() => fs::remove_dir_all(self.place),
            MADE => fs::remove_file(self.place),
            RENAMED => fs::rename(self.place, self.before),
            _ if self.grave == 0 => fs::create_dir(self.place),
            _ => Ok(()),
        };
        let undone = undone.and_then(|()| match self.grave {
            0 => Ok(()),
            grave => fs::hard_link(graves.join(grave.to_string()), self.place),
        });
        match undone.map_err(|error| error.kind()) {
            // The directory that it was in has gone, or it has changed past `disk.c`.
            Err(io::ErrorKind::NotFound | io::ErrorKind::AlreadyExists) => Ok(()),
            undone => undone.map_err(io::Error::from),
        }
    }
}

fn path_of(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

/// The changes of one file that are not safe.
#[derive(Default)]
struct Changes<'a> {
    /// With their places in the log.
    list: Vec<(u64, Record<'a>)>,
    /// Those at the beginning of the list that a sync was to make safe which has failed: the system
    /// takes them for written, and no later sync writes them. Only who writes the same again does.
    spoilt: usize,
    /// What was written and synced since: beginnings and ends.
    again: BTreeMap<u64, u64>,
}

impl Changes<'_> {
    fn failed(&mut self) {
        self.spoilt = self.list.len();
        self.again.clear();
    }

    /// A sync has made safe what was written before this place in the log.
    fn synced(&mut self, before: u64) {
        let later = self.list.split_off(self.spoilt);
        for (at, change) in later {
            if at >= before {
                self.list.push((at, change));
            } else if self.spoilt > 0 {
                self.wrote_again(change.offset, change.offset + change.written);
            }
        }
        let fresh = self.list.split_off(self.spoilt);
        let again = &self.again;
        self.list.retain(|(_, change)| {
            let found = again.range(..=change.offset).next_back();
            found.is_none_or(|(_, end)| *end < change.offset + change.written)
        });
        self.spoilt = self.list.len();
        self.list.extend(fresh);
    }

    /// Joins what touches.
    fn wrote_again(&mut self, mut from: u64, mut until: u64) {
        while let Some((&first, &end)) = self.again.range(..=until).next_back()
            && end >= from
        {
            self.again.remove(&first);
            (from, until) = (from.min(first), until.max(end));
        }
        self.again.insert(from, until);
    }

    fn take_back(self, path: &Path, below: Option<&mut Below<'_>>) -> io::Result<u64> {
        let count = self.list.len();
        // What chance says: changes that stay, bytes of the next, whether the rest is zeros.
        let (kept, part, is_long) = match below {
            _ if count == 0 => return Ok(0),
            Some(below) if self.spoilt == 0 => {
                let kept = usize::try_from(below(count as u64 + 1)).unwrap_or(count);
                let next = self.list.get(kept);
                let part = next.map_or(0, |(_, change)| change.whole_sectors(below));
                (kept, part, below(4) == 0)
            }
            _ => (0, 0, false),
        };
        let Some(((_, boundary), later)) = self.list[kept..].split_first() else {
            return Ok(0);
        };
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let grown = file.metadata()?.len();
        for (_, change) in later.iter().rev() {
            change.undo_from(&file, 0)?;
        }
        boundary.undo_from(&file, part)?;
        if is_long && file.metadata()?.len() < grown {
            file.set_len(grown)?;
        }
        Ok((count - kept) as u64)
    }
}

struct Record<'a> {
    kind: u32,
    file: u64,
    offset: u64,
    written: u64,
    length: u64,
    /// What was there before, up to zeros; of names: the names.
    before: &'a [u8],
}

impl Record<'_> {
    /// How many of its bytes a disk may have written: sectors are written whole or not at all.
    fn whole_sectors(&self, below: &mut Below<'_>) -> u64 {
        let end = self.offset + below(self.written + 1);
        (end / SECTOR * SECTOR).saturating_sub(self.offset)
    }

    /// Undoes a change but for its first bytes.
    fn undo_from(&self, file: &File, kept: u64) -> io::Result<()> {
        let end = self.offset + self.written;
        if self.written == 0 {
            // The file was cut, or made longer.
            file.set_len(self.offset.min(self.length))?;
            file.write_all_at(self.before, self.offset)?;
            return file.set_len(self.length);
        }
        let old_end = end.min(self.length);
        let from = (self.offset + kept).min(old_end);
        if let (Ok(skipped), Ok(length)) = (
            usize::try_from(from.saturating_sub(self.offset)),
            usize::try_from(old_end.saturating_sub(from)),
        ) {
            let mut before = self.before.get(skipped..).unwrap_or(&[]).to_vec();
            before.resize(length, 0);
            file.write_all_at(&before, from)?;
        }
        if end > self.length {
            file.set_len(self.length.max(self.offset + kept))?;
        }
        Ok(())
    }
}

/// Bytes that a disk writes at once.
const SECTOR: u64 = 512;
const CHANGE: u32 = 1;
const SYNCED: u32 = 2;
const MADE: u32 = 4;
const REMOVED: u32 = 5;
const RENAMED: u32 = 6;
const NAMES_SYNCED: u32 = 7;
const NAMES_FAILED: u32 = 8;

/// The records of `disk.c`, as this machine writes its numbers. The last may be cut off.
struct Records<'a> {
    log: &'a [u8],
    at: usize,
}

impl<'a> Records<'a> {
    /// With its place.
    fn next(&mut self) -> Option<(u64, Record<'a>)> {
        const HEAD: usize = 40;
        let head = self.log.get(self.at..)?.get(..HEAD)?;
        let small = |at: usize| Some(u32::from_ne_bytes(*head.get(at..)?.first_chunk()?));
        let large = |at: usize| Some(u64::from_ne_bytes(*head.get(at..)?.first_chunk()?));
        let bytes = usize::try_from(small(4)?).ok()?;
        let before = self.log.get(self.at + HEAD..)?.get(..bytes)?;
        let record = Record {
            kind: small(0)?,
            file: large(8)?,
            offset: large(16)?,
            written: large(24)?,
            length: large(32)?,
            before,
        };
        let place = self.at as u64;
        self.at += HEAD + bytes;
        Some((place, record))
    }
}

/// All files below a directory, by what the system calls them by.
fn find(directory: &Path, paths: &mut BTreeMap<u64, PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            find(&entry.path(), paths)?;
        } else if kind.is_file() {
            paths.insert(entry.metadata()?.ino(), entry.path());
        }
    }
    Ok(())
}
