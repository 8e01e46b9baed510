//! A copy of a damaged engine directory that the engine can open.

use super::super::engine::TREES;
use super::super::examine::{LIST, Trees, copy_tree};
use super::super::generation::Generation;
use super::super::journals::{Known, Sieve};
use super::super::opened::OWN;
use super::super::{directory, engine, journals, tree_list};
use super::ENGINE_VERSION;
use crate::data_directory::exists;
use crate::error::StoreError;
use fjall::Database;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::ops::Range;
use std::path::Path;

/// A copy of a directory that the engine has opened.
pub(super) struct Opened {
    pub(super) database: Database,
    /// The names of trees that are there, do not open, and were said to be lost.
    pub(super) closed: BTreeSet<String>,
}

/// A copy of what opens of a directory; what is left out is added to `lost`.
pub(super) fn opened(
    damaged: &Path,
    copy: &Path,
    lost: &mut Vec<String>,
) -> Result<Option<Opened>, StoreError> {
    let scratch = &copy.join("trees");
    let trees = || Trees::new(damaged, scratch, true);
    let opening = Opening {
        damaged,
        copy: &copy.join("engine"),
        trees: trees(),
        list_is_copy: false,
    };
    let mut unread = Vec::new();
    if let Some(opened) = opening.open(&mut unread)? {
        lost.append(&mut unread);
        return Ok(Some(opened));
    }
    let list = &copy.join("list");
    if let Some(store) = damaged.parent()
        && tree_list::unpack(store, list)?
    {
        // There are links to the same files.
        remove(scratch)?;
        let opening = Opening {
            trees: trees().listed_in(list),
            list_is_copy: true,
            ..opening
        };
        let mut without = Vec::new();
        if let Some(opened) = opening.open(&mut without)? {
            let cause = unread.pop().unwrap_or_default();
            let what = "the engine's list of trees, which was read from its copy";
            lost.push(format!("{what}: {cause}"));
            lost.append(&mut without);
            return Ok(Some(opened));
        }
    }
    lost.append(&mut unread);
    Ok(None)
}

/// An attempt to open a copy of a directory.
pub(super) struct Opening<'a> {
    pub(super) damaged: &'a Path,
    pub(super) copy: &'a Path,
    pub(super) trees: Trees,
    /// Whether the list of trees is the store's copy of it, which may be old.
    pub(super) list_is_copy: bool,
}

impl Opening<'_> {
    /// The copy, with what is left out; or nothing, with the reason at the end.
    pub(super) fn open(&self, lost: &mut Vec<String>) -> Result<Option<Opened>, StoreError> {
        let names = match self.trees.names() {
            Err(error @ StoreError::Damaged { .. }) => {
                lost.push(error.to_string());
                return Ok(None);
            }
            names => names?,
        };
        let mut wanted = BTreeSet::from([LIST]);
        let mut closed = BTreeSet::new();
        let mut known = Known {
            likely: self.damaged.parent().and_then(directory::secret),
            ..Known::default()
        };
        if self.list_is_copy {
            self.note_unnamed(&names, lost)?;
        }
        for (number, name) in names {
            if self.list_is_copy && self.may_be_gone(number, &name)? {
                continue;
            }
            if name == OWN {
                known.own = number;
            }
            match self.trees.open(number, &name) {
                Err(error @ StoreError::Damaged { .. }) => {
                    lost.push(format!("the engine's tree {name}, all of it: {error}"));
                    closed.insert(name);
                }
                opened => {
                    let tree = opened?;
                    wanted.insert(number);
                    if name == OWN {
                        // If it cannot be read there, it is learned from the journals.
                        known.secret = self.trees.secret(number, &tree).unwrap_or_default();
                    }
                }
            }
        }
        self.copy_trees(&wanted)?;
        let opened = |database| Some(Opened { database, closed });
        let mut broken = Vec::new();
        let sieve = Sieve::new(self.damaged, known)?;
        copy_journals(self.damaged, self.copy, sieve, &mut broken)?;
        match engine::open_still(self.copy) {
            Err(error @ StoreError::Damaged { .. }) => {
                self.copy_trees(&wanted)?;
                match engine::open_still(self.copy) {
                    Err(again @ StoreError::Damaged { .. }) => {
                        lost.push(again.to_string());
                        Ok(None)
                    }
                    again => {
                        lost.push(format!("all journals: {error}"));
                        again.map(opened)
                    }
                }
            }
            database => {
                lost.append(&mut broken);
                database.map(opened)
            }
        }
    }

    /// A generation of which nothing is there: the copy of the list may be from before it was
    /// trimmed. The newest one is never trimmed; [`Work::note_newest`] misses it.
    pub(super) fn may_be_gone(&self, number: u64, name: &str) -> Result<bool, StoreError> {
        let is_of_log = Generation::parse_name(name).is_some();
        Ok(is_of_log && !exists(&self.trees.path(number))?)
    }

    /// Trees that were made after the copy of the list.
    pub(super) fn note_unnamed(
        &self,
        names: &BTreeMap<u64, String>,
        lost: &mut Vec<String>,
    ) -> Result<(), StoreError> {
        for number in self.trees.numbers()? {
            let is_named = number == LIST || names.contains_key(&number);
            if !is_named && self.trees.has_beginning(number)? {
                let what = "all of it: the copy of the list does not name it";
                lost.push(format!("the engine's tree {number}, {what}"));
            }
        }
        Ok(())
    }

    /// Makes the copy anew, with an empty journal.
    pub(super) fn copy_trees(&self, wanted: &BTreeSet<u64>) -> Result<(), StoreError> {
        let copy = self.copy;
        remove(copy)?;
        for number in wanted {
            let tree = Path::new(TREES).join(number.to_string());
            copy_tree(&self.trees.path(*number), &copy.join(tree))?;
        }
        // What is damaged may be these, and they say nothing of what is in it.
        let version = copy.join("version");
        fs::write(&version, ENGINE_VERSION)
            .map_err(|error| StoreError::io("writing", version.display(), error))?;
        // Without a journal the engine does not look how new what it finds in the trees is.
        for name in ["lock", "0.jnl"] {
            let file = copy.join(name);
            let written = fs::write(&file, "");
            written.map_err(|error| StoreError::io("writing", file.display(), error))?;
        }
        Ok(())
    }
}

pub(super) fn remove(copy: &Path) -> Result<(), StoreError> {
    match fs::remove_dir_all(copy) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(StoreError::io("removing", copy.display(), error))
        }
        _ => Ok(()),
    }
}

/// Copies what is whole in the journals.
pub(super) fn copy_journals(
    damaged: &Path,
    copy: &Path,
    mut sieve: Sieve,
    lost: &mut Vec<String>,
) -> Result<(), StoreError> {
    for (_, path) in journals::list(damaged)? {
        let Some(name) = path.file_name() else {
            continue;
        };
        let bytes = journals::read_around(&path)?;
        let (whole, broken) = sieve.pieces(&bytes);
        for Range { start, end } in broken {
            let name = name.display();
            lost.push(format!(
                "what was written in {name} from byte {start} to {end}"
            ));
        }
        if whole.is_empty() {
            lost.push(format!("all of {}, if anything was in it", name.display()));
        }
        let to = copy.join(name);
        let write = || {
            let mut to = File::create(&to)?;
            for piece in whole {
                to.write_all(bytes.get(piece).unwrap_or_default())?;
            }
            Ok(())
        };
        write().map_err(|error| StoreError::io("writing", to.display(), error))?;
    }
    Ok(())
}
