//! The first error of the store: kept in memory for this run, and in a file of the directory for
//! later.
//!
//! ```text
//! unbroken-failed 1
//! writing DIR/engine/0.jnl: No space left on device (os error 28)
//! ```
//!
//! Writing the file may fail for the same reason as the store. Then only the log has the error.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// The first error of a store.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    directory: PathBuf,
    first: Arc<OnceLock<String>>,
}

impl Failure {
    pub(crate) fn new(directory: &Path) -> Self {
        Self {
            directory: directory.to_owned(),
            first: Arc::default(),
        }
    }

    /// Records the store's error; only the first counts.
    pub(crate) fn note(&self, cause: &str) {
        if self.first.set(cause.to_owned()).is_ok() {
            // If the file cannot be written, the log has the error.
            let _ = fs::write(self.directory.join(NAME), format!("{FORMAT}\n{cause}\n"));
        }
    }

    pub(crate) fn cause(&self) -> Option<&str> {
        self.first.get().map(String::as_str)
    }
}

/// The error that ended the last run, as far as known.
pub fn of_last_run(directory: &Path) -> Option<String> {
    let text = fs::read_to_string(directory.join(NAME)).ok()?;
    let cause = text.strip_prefix(FORMAT)?.trim();
    (!cause.is_empty()).then(|| cause.to_owned())
}

/// Removes the file: the next run has begun, or there is another store. If removing fails, the
/// error is reported once more.
pub fn forget(directory: &Path) {
    let _ = fs::remove_file(directory.join(NAME));
}

const NAME: &str = "failed";
const FORMAT: &str = "unbroken-failed 1";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_error_is_remembered_for_the_next_run_and_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        assert_eq!(of_last_run(path), None);
        let failure = Failure::new(path);
        failure.note("no space");
        failure.note("dead");
        assert_eq!(failure.cause(), Some("no space"));
        assert_eq!(of_last_run(path), Some("no space".to_owned()));
        forget(path);
        assert_eq!(of_last_run(path), None);
    }

    #[test]
    fn an_unreadable_failure_file_reports_no_failure() {
        let directory = tempfile::tempdir().unwrap();
        let failure = Failure::new(&directory.path().join("gone"));
        failure.note("no space");
        assert_eq!(failure.cause(), Some("no space"));
        fs::write(directory.path().join(NAME), "unbroken-failed 1").unwrap();
        assert_eq!(of_last_run(directory.path()), None);
    }
}
