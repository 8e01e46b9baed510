//! Quarantine of a damaged store: it is set aside whole, its readable content is copied to a new
//! store, and losses are listed.
//!
//! ```text
//! DIR/store       damaged
//! DIR/salvaging   the new one, being filled; and a copy of the engine's files to read from
//! DIR/salvaged    the new one, whole
//! DIR/damaged-T   the damaged one as it was found, and damage.txt     DIR/store  the new one
//! ```
//!
//! `set-aside` in the new store names DIR/damaged-T until that is [reported](mark_reported). After
//! an interrupted start the next one finds it [`unreported`].
//!
//! Invariants:
//! - The damaged store is read from a copy, and not changed except for damage.txt. A start looks
//!   for damage before the engine opens the store; see `embedded/examine.rs`.
//! - After an interruption at any moment the next start finds the damaged store in its place, or
//!   the complete new one.
//! - The directory is locked from before the examination until the new store is closed.
//! - Message numbers are not reused: every log continues far above.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::data_directory::{
    self, DAMAGED, DataDirectory, SALVAGED, SALVAGING, STORE, exists, sync,
};
use crate::embedded::{Embedded, Options, salvage};
use crate::error::StoreError;

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

/// Opens a store; handles a damaged one according to [`OnCorruption`]. Damage that this does not
/// find is met by reads, as [`StoreError::Damaged`]; then [`set_aside`] the store, or [`mark`] it
/// for the next start.
pub fn open(
    path: &Path,
    options: Options,
    on_corruption: OnCorruption,
) -> Result<(Embedded, Option<Quarantined>), StoreError> {
    let place = DataDirectory::take(path)?;
    let opened = match marked(path)? {
        Some(what) => Err(StoreError::damaged(path.display(), what)),
        None => Embedded::open_at(&place, options),
    };
    match opened {
        Err(cause @ StoreError::Damaged { .. }) if on_corruption == OnCorruption::Quarantine => {
            let cause = cause.to_string();
            let (store, quarantined) = replace(&place, options, &cause, &mut |_| Ok(()))?;
            Ok((store, Some(quarantined)))
        }
        opened => opened.map(|store| (store, None)),
    }
}

/// Sets a store aside that was found to be damaged after it was opened, and opens the new one.
pub fn set_aside(store: Embedded, cause: &str) -> Result<(Embedded, Quarantined), StoreError> {
    let (place, options) = store.close();
    replace(&place, options, cause, &mut |_| Ok(()))
}

/// The damaged stores that were set aside in this directory, oldest first.
pub fn damaged_stores(path: &Path) -> Result<Vec<PathBuf>, StoreError> {
    data_directory::damaged_stores(path)
}

/// Where the replaced damaged store is, if that was not reported yet.
pub fn unreported(path: &Path) -> Result<Option<PathBuf>, StoreError> {
    let note = path.join(STORE).join(UNREPORTED);
    match fs::read_to_string(&note) {
        Ok(text) => {
            let name = text
                .strip_prefix(UNREPORTED_FORMAT)
                .unwrap_or_default()
                .trim();
            Ok(Some(path.join(name)))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(StoreError::io("reading", note.display(), error)),
    }
}

/// The place of the damaged store was reported.
pub fn mark_reported(path: &Path) -> Result<(), StoreError> {
    let note = path.join(STORE).join(UNREPORTED);
    match fs::remove_file(&note) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(StoreError::io("removing", note.display(), error))
        }
        _ => Ok(()),
    }
}

/// What has been done, and is safe on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The new store is filled, under the name that says so.
    Salvaged,
    /// The damaged one has the report, and still its name.
    Reported,
    SetAside,
    /// The new store has its name, and was not opened yet.
    Replaced,
}

/// Puts a new store in the place of a damaged one. A test stops it after a step with an error.
fn replace(
    place: &DataDirectory,
    options: Options,
    cause: &str,
    done: &mut dyn FnMut(Step) -> Result<(), StoreError>,
) -> Result<(Embedded, Quarantined), StoreError> {
    let what = salvage::salvage(place, options)?;
    place.rename(SALVAGING, SALVAGED)?;
    done(Step::Salvaged)?;
    let name = free_name(place)?;
    let quarantined = Quarantined {
        set_aside: place.part(&name),
        cause: cause.to_owned(),
        salvaged: what,
    };
    // Before it is set aside: later nothing looks for missing data.
    let damaged = place.part(STORE);
    write(&damaged, "damage.txt", &quarantined.to_string())?;
    let note = format!("{UNREPORTED_FORMAT}\n{name}\n");
    write(&place.part(SALVAGED), UNREPORTED, &note)?;
    done(Step::Reported)?;
    place.rename(STORE, &name)?;
    done(Step::SetAside)?;
    place.rename(SALVAGED, STORE)?;
    done(Step::Replaced)?;
    let store = Embedded::open_at(place, options)?;
    Ok((store, quarantined))
}

/// Leaves word that damage was found where a start does not look, and which: the next one takes the
/// store for damaged.
///
/// ```text
/// unbroken-damaged 1
/// log 3, block of message 17 is damaged: its checksum is another
/// ```
pub fn mark(path: &Path, damage: &dyn std::fmt::Display) -> Result<(), StoreError> {
    write(
        &path.join(STORE),
        MARK,
        &format!("{MARK_FORMAT}\n{damage}\n"),
    )
}

/// What damage was found where a start does not look.
pub fn marked(path: &Path) -> Result<Option<String>, StoreError> {
    let place = path.join(STORE).join(MARK);
    match fs::read(&place) {
        Ok(bytes) => {
            let text = String::from_utf8_lossy(&bytes);
            // However little of it was written, there was something to write.
            let what = text.strip_prefix(MARK_FORMAT).unwrap_or_default().trim();
            Ok(Some(format!("found while in use: {what}")))
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
const UNREPORTED: &str = "set-aside";
const UNREPORTED_FORMAT: &str = "unbroken-set-aside 1";

/// Writes a file of a store, safe on the disk.
fn write(directory: &Path, name: &str, text: &str) -> Result<(), StoreError> {
    let path = directory.join(name);
    let write = || {
        let mut file = File::create(&path)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        sync(directory)
    };
    write().map_err(|error| StoreError::io("writing", path.display(), error))
}

fn free_name(place: &DataDirectory) -> Result<String, StoreError> {
    let now = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ");
    let first = format!("{DAMAGED}{now}");
    let (mut name, mut count) = (first.clone(), 1);
    while exists(&place.part(&name))? {
        count += 1;
        name = format!("{first}-{count}");
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{Batch, Space};
    use crate::store::{Kv, Store};

    fn damaged(path: &Path) {
        let store = Embedded::open(path, Options::default()).unwrap();
        let mut batch = Batch::new();
        batch.put(Space::Control, b"kept".to_vec(), vec![7]);
        assert!(store.commit(&[batch]).unwrap()[0].is_ok());
        drop(store);
        // Without what the engine has set aside, copies take no time.
        let journal = path.join("store/engine/0.jnl");
        let bytes = fs::read(&journal).unwrap();
        let used = bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1;
        fs::write(&journal, &bytes[..used]).unwrap();
        mark(path, &StoreError::damaged("it", "met in use")).unwrap();
    }

    fn names(path: &Path) -> Vec<String> {
        let entries = fs::read_dir(path).unwrap();
        let names = entries.map(|it| it.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    }

    fn open(path: &Path) -> Result<(Embedded, Option<Quarantined>), StoreError> {
        super::open(path, Options::default(), OnCorruption::Quarantine)
    }

    #[test]
    fn whatever_step_it_is_stopped_after_the_next_start_has_one_whole_store() {
        let steps = [
            (Step::Salvaged, true),
            (Step::Reported, true),
            (Step::SetAside, false),
            (Step::Replaced, false),
        ];
        for (stop, begins_again) in steps {
            let temp = tempfile::tempdir().unwrap();
            let path = temp.path();
            damaged(path);
            let place = DataDirectory::take(path).unwrap();
            let stopped = replace(&place, Options::default(), "a test", &mut |step| {
                // Somebody else who comes at that moment is refused, and changes nothing.
                let before = names(path);
                let refused = open(path).unwrap_err();
                assert!(matches!(refused, StoreError::Held { .. }), "{refused}");
                assert_eq!(names(path), before, "{step:?}");
                let stopped = io::Error::from(io::ErrorKind::Interrupted);
                if step == stop {
                    Err(StoreError::io("stopping", "it", stopped))
                } else {
                    Ok(())
                }
            });
            stopped.unwrap_err();
            drop(place);
            let (store, quarantined) = open(path).unwrap();
            assert_eq!(quarantined.is_some(), begins_again, "{stop:?}");
            let found = store.get(Space::Control, b"kept").unwrap();
            assert_eq!(found.unwrap().bytes, [7], "{stop:?}");
            drop(store);
            let [aside] = &damaged_stores(path).unwrap()[..] else {
                panic!("{stop:?}: {:?}", names(path));
            };
            assert!(aside.join("damage.txt").is_file());
            assert!(aside.join("engine").is_dir());
            assert_eq!(unreported(path).unwrap().as_ref(), Some(aside), "{stop:?}");
            mark_reported(path).unwrap();
            assert_eq!(unreported(path).unwrap(), None, "{stop:?}");
            let aside = aside.file_name().unwrap().to_str().unwrap();
            assert_eq!(names(path), [aside, "lock", "store"], "{stop:?}");
            assert_eq!(open(path).unwrap().1, None, "{stop:?}");
        }
    }

    #[test]
    fn the_directory_is_not_let_go_between_the_damaged_store_and_the_new_one() {
        let temp = tempfile::tempdir().unwrap();
        let store = Embedded::open(temp.path(), Options::default()).unwrap();
        let (place, _) = store.close();
        let refused = open(temp.path()).unwrap_err();
        assert!(matches!(refused, StoreError::Held { .. }), "{refused}");
        drop(place);
        open(temp.path()).unwrap();
    }
}
