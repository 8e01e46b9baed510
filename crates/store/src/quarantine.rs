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

use std::fs;
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

/// Opens a store; a damaged one as [`OnCorruption`] says. Of damage that lies where a start does
/// not read, readers hear later, as [`StoreError::Damaged`].
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
    let cause = match Embedded::open(path, options) {
        Err(cause @ StoreError::Damaged { .. }) if on_corruption == OnCorruption::Quarantine => {
            cause.to_string()
        }
        opened => return opened.map(|store| (store, None)),
    };
    let lock = Embedded::lock(path)?;
    let what = salvage::salvage(&path.join("engine"), &salvaging, options)?;
    rename(&salvaging, &salvaged)?;
    let set_aside = free_name(path)?;
    let quarantined = Quarantined {
        set_aside,
        cause,
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
    Ok((store, Some(quarantined)))
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
