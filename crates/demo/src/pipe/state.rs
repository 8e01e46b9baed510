//! What a consumer remembers over a restart: its name at the broker, and its ledger, in one file.
//!
//! 8 bytes of magic, the length of the name in one byte, the name, and what the subscriber saved.
//! The file is written anew beside the old one and takes its name, so it is always whole.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A file of a consumer's state.
#[derive(Clone, Debug)]
pub(super) struct StateFile {
    path: PathBuf,
    /// The client id. The broker keeps under it what comes while the consumer is away.
    pub(super) client_id: String,
}

/// Why a state cannot be kept or gone on from.
#[derive(Debug, thiserror::Error)]
pub enum StateFileError {
    /// The system says no.
    #[error("cannot {doing} the state {path}: {source}", path = .path.display())]
    Io {
        /// What was tried.
        doing: &'static str,
        /// Where.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// It is another file.
    #[error(
        "{path} holds no consumer's state: name another file, or one that does not exist yet",
        path = .0.display()
    )]
    Foreign(PathBuf),
}

impl StateFile {
    /// Opens the file of a consumer, and gives what was saved; begins one under `client_id` if
    /// there is none.
    pub(super) fn open(
        path: &Path,
        client_id: String,
    ) -> Result<(Self, Option<Vec<u8>>), StateFileError> {
        let begin = |client_id| Self {
            path: path.to_owned(),
            client_id,
        };
        let content = match fs::read(path) {
            Ok(content) => content,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok((begin(client_id), None));
            }
            Err(source) => return Err(begin(client_id).failed("read")(source)),
        };
        let read = || {
            let rest = content.strip_prefix(MAGIC)?;
            let (length, rest) = rest.split_first()?;
            let (name, saved) = rest.split_at_checked(usize::from(*length))?;
            Some((String::from_utf8(name.to_vec()).ok()?, saved.to_vec()))
        };
        let (name, saved) = read().ok_or_else(|| StateFileError::Foreign(path.to_owned()))?;
        Ok((begin(name), Some(saved)))
    }

    /// Replaces what was saved. It is on the disk when this returns.
    pub(super) fn replace(&self, saved: &[u8]) -> Result<(), StateFileError> {
        let new = self.path.with_added_extension("new");
        let length = u8::try_from(self.client_id.len()).expect("its names have 30 bytes");
        let content = [MAGIC, &[length], self.client_id.as_bytes(), saved].concat();
        let mut file = File::create(&new).map_err(self.failed("write"))?;
        file.write_all(&content).map_err(self.failed("write"))?;
        file.sync_all().map_err(self.failed("sync"))?;
        fs::rename(&new, &self.path).map_err(self.failed("rename"))?;
        sync_directory_of(&self.path).map_err(self.failed("sync the directory of"))
    }

    fn failed(&self, doing: &'static str) -> impl FnOnce(io::Error) -> StateFileError + '_ {
        move |source| StateFileError::Io {
            doing,
            path: self.path.clone(),
            source,
        }
    }
}

/// So that the new file has the name on the disk too.
fn sync_directory_of(path: &Path) -> io::Result<()> {
    // Elsewhere a directory cannot be opened, and renaming is kept by the file system.
    if !cfg!(unix) {
        return Ok(());
    }
    let parent = path.parent().filter(|parent| *parent != Path::new(""));
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

const MAGIC: &[u8] = b"ubstate1";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_saved_last_is_read_with_its_first_name() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state");
        let (state, saved) = StateFile::open(&path, "one".to_owned()).unwrap();
        assert_eq!(saved, None);
        state.replace(b"early").unwrap();
        state.replace(b"late").unwrap();
        let (state, saved) = StateFile::open(&path, "two".to_owned()).unwrap();
        assert_eq!((&*state.client_id, saved), ("one", Some(b"late".to_vec())));
    }

    #[test]
    fn the_directory_of_a_file_is_synced_and_one_that_is_not_there_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        sync_directory_of(&directory.path().join("state")).unwrap();
        sync_directory_of(Path::new("state")).unwrap();
        let absent = directory.path().join("absent").join("state");
        assert_eq!(sync_directory_of(&absent).is_err(), cfg!(unix));
    }

    #[test]
    fn another_file_is_refused_and_left_as_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notes");
        for content in [&b"buy milk"[..], b"ubstate1", b"ubstate1\x09short"] {
            fs::write(&path, content).unwrap();
            let error = StateFile::open(&path, "one".to_owned()).unwrap_err();
            assert!(error.to_string().contains("no consumer's state"), "{error}");
            assert_eq!(fs::read(&path).unwrap(), content);
        }
    }
}
