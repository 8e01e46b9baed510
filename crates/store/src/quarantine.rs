//! What happens to a damaged store: it is set aside whole, what can still be read of it is copied
//! into a new one, and the rest is listed.
//!
//! ```text
//! DIR            damaged
//! DIR.salvaging  the new one, being filled; and a copy of the engine's files to read from
//! DIR.salvaged   the new one, whole
//! DIR.damaged-T  the damaged one as it was found, and damage.txt     DIR  the new one
//! ```
//!
//! Invariants:
//! - The damaged store is read from a copy, and not changed.
//! - At whatever moment this is interrupted, the next start finds the damaged store where it was,
//!   or the new one whole.
//! - Numbers of messages that were given before are not given again: every log goes on far above.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::embedded::{Embedded, Options, salvage};
use crate::error::StoreError;
use crate::places::{beside, clear, exists, rename};

/// What to do with a damaged store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnCorruption {
    /// Set it aside, and go on with what can be read.
    #[default]
    Quarantine,
    /// Do not start.
    Refuse,
}

/// A store was damaged, and set aside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quarantined {
    /// Where it is now. The same is in `damage.txt` there.
    pub set_aside: PathBuf,
    /// How it was noticed.
    pub cause: String,
    /// What was copied, and what was not.
    pub salvaged: Salvaged,
}

/// What was copied out of a damaged store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Salvaged {
    /// Messages of the logs.
    pub messages: u64,
    /// Values of sessions, retained messages and the rest.
    pub values: u64,
    /// What could not be read, a sentence each.
    pub lost: Vec<String>,
}

/// Opens a store; a damaged one as [`OnCorruption`] says. Of damage that lies where this does not
/// read, readers hear later, as [`StoreError::Damaged`]: they [`set_aside`] the store, or
/// [`mark`] it for the next start.
pub fn open(
    path: &Path,
    options: Options,
    on_corruption: OnCorruption,
) -> Result<(Embedded, Option<Quarantined>), StoreError> {
    let salvaging = beside(path, ".salvaging");
    let salvaged = beside(path, ".salvaged");
    clear(&salvaging)?;
    if exists(&salvaged)? {
        if exists(path)? {
            clear(&salvaged)?;
        } else {
            rename(&salvaged, path)?;
        }
    }
    let opened = match marked(path)? {
        Some(what) => Err(StoreError::damaged(path.display(), what)),
        None => Embedded::open(path, options),
    };
    match opened {
        Err(cause @ StoreError::Damaged { .. }) if on_corruption == OnCorruption::Quarantine => {
            let (store, quarantined) = set_aside(path, options, &cause.to_string())?;
            Ok((store, Some(quarantined)))
        }
        opened => opened.map(|store| (store, None)),
    }
}

/// Sets a damaged store aside that nobody has open, and opens the new one.
pub fn set_aside(
    path: &Path,
    options: Options,
    cause: &str,
) -> Result<(Embedded, Quarantined), StoreError> {
    let salvaging = beside(path, ".salvaging");
    let salvaged = beside(path, ".salvaged");
    clear(&salvaging)?;
    let lock = Embedded::lock(path)?;
    let what = salvage::salvage(&path.join("engine"), &salvaging, options)?;
    rename(&salvaging, &salvaged)?;
    let set_aside = free_name(path)?;
    let quarantined = Quarantined {
        set_aside,
        cause: cause.to_owned(),
        salvaged: what,
    };
    // Before it is set aside: from then on nobody looks for what is missing.
    let report = path.join("damage.txt");
    fs::write(&report, quarantined.to_string())
        .map_err(|error| StoreError::io("writing", report.display(), error))?;
    rename(path, &quarantined.set_aside)?;
    rename(&salvaged, path)?;
    drop(lock);
    let store = Embedded::open(path, options)?;
    Ok((store, quarantined))
}

/// Leaves word that damage was found where a start does not look: the next one takes the store for
/// damaged.
///
/// ```text
/// unbroken-damaged 1
/// log 3, block of message 17 is damaged: its checksum is another
/// ```
pub fn mark(path: &Path, damage: &StoreError) -> Result<(), StoreError> {
    let place = path.join(MARK);
    let write = || {
        let mut file = File::create(&place)?;
        writeln!(file, "{MARK_FORMAT}\n{damage}")?;
        file.sync_all()?;
        File::open(path)?.sync_all()
    };
    write().map_err(|error| StoreError::io("writing", place.display(), error))
}

/// What damage was found where a start does not look.
pub fn marked(path: &Path) -> Result<Option<String>, StoreError> {
    let place = path.join(MARK);
    match fs::read(&place) {
        Ok(bytes) => {
            let text = String::from_utf8_lossy(&bytes);
            // However little of it was written, there was something to write.
            let what = text.strip_prefix(MARK_FORMAT).unwrap_or_default().trim();
            Ok(Some(format!("it was found while it was in use: {what}")))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(StoreError::io("reading", place.display(), error)),
    }
}

impl std::fmt::Display for Quarantined {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Salvaged {
            messages,
            values,
            lost,
        } = &self.salvaged;
        writeln!(f, "The store was damaged: {}", self.cause)?;
        writeln!(f, "It is set aside in {}", self.set_aside.display())?;
        writeln!(f, "Copied: {messages} messages, {values} values")?;
        for what in lost {
            writeln!(f, "Not copied: {what}")?;
        }
        Ok(())
    }
}

const MARK: &str = "damaged";
const MARK_FORMAT: &str = "unbroken-damaged 1";

fn free_name(path: &Path) -> Result<PathBuf, StoreError> {
    let now = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ");
    let mut name = beside(path, &format!(".damaged-{now}"));
    let mut count = 1;
    while exists(&name)? {
        count += 1;
        name = beside(path, &format!(".damaged-{now}-{count}"));
    }
    Ok(name)
}
