//! Which commit passed `cargo xtask ci --full` last: a file that is committed behind each such run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Outcome, process, tree};

/// `<commit> <date>`.
const FILE: &str = ".ci/last-full";
/// Commits that a release may be behind its last full run.
const COMMITS_MAX: usize = 200;

/// What is known of the last full run that passed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LastFull {
    /// No run is on record, or one of a history that is not here.
    Unknown,
    /// This commit, of this day, so many commits ago.
    Passed {
        commit: String,
        date: String,
        ago: usize,
    },
}

impl LastFull {
    pub(super) fn read() -> Self {
        Self::read_in(&tree::root())
    }

    fn read_in(root: &Path) -> Self {
        let Ok(text) = fs::read_to_string(root.join(FILE)) else {
            return Self::Unknown;
        };
        let Some((commit, date)) = text.trim().split_once(' ') else {
            return Self::Unknown;
        };
        let range = format!("{commit}..HEAD");
        let count = git(root, &["rev-list", "--count", &range]);
        match count.ok().and_then(|count| count.trim().parse().ok()) {
            Some(ago) => Self::Passed {
                commit: commit.to_owned(),
                date: date.to_owned(),
                ago,
            },
            None => Self::Unknown,
        }
    }

    /// Whether these paths are as they were then.
    pub(super) fn has_same(&self, paths: &[&str]) -> bool {
        let Self::Passed { commit, .. } = self else {
            return false;
        };
        let mut arguments = vec!["diff", "--quiet", commit, "--"];
        arguments.extend(paths);
        git(&tree::root(), &arguments).is_ok()
    }
}

impl std::fmt::Display for LastFull {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unknown => f.write_str("last full run: none on record; no release before one"),
            Self::Passed { commit, date, ago } => {
                write!(f, "last full run: passed at {commit:.10} on {date}, ")?;
                write!(f, "{ago} commits ago")?;
                if *ago > COMMITS_MAX {
                    write!(f, "; a release needs one within {COMMITS_MAX}")?;
                }
                Ok(())
            }
        }
    }
}

/// Writes down that the commit at hand has passed, to be committed. `None`: what passed is no
/// commit, because files have changed.
pub(super) fn record() -> Outcome<Option<PathBuf>> {
    record_in(&tree::root())
}

fn record_in(root: &Path) -> Outcome<Option<PathBuf>> {
    if !git(root, &["status", "--porcelain"])?.trim().is_empty() {
        return Ok(None);
    }
    let commit = git(root, &["log", "-1", "--format=%H %cs"])?;
    let path = root.join(FILE);
    let written = fs::create_dir_all(root.join(".ci")).and_then(|()| fs::write(&path, commit));
    written.map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    Ok(Some(path))
}

fn git(root: &Path, arguments: &[&str]) -> Outcome<String> {
    process::quiet(Command::new("git").args(arguments).current_dir(root))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commit(root: &Path, text: &str) {
        fs::write(root.join("file"), text).expect("it is writable");
        git(root, &["add", "-A"]).expect("git adds");
        let who = ["-c", "user.name=n", "-c", "user.email=e@example"];
        let arguments: Vec<_> = who.into_iter().chain(["commit", "-qm", text]).collect();
        git(root, &arguments).expect("git commits");
    }

    #[test]
    fn a_full_run_is_known_by_its_commit_and_counted_from() {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        let root = directory.path();
        git(root, &["init", "-q"]).expect("git works");
        commit(root, "one");
        assert_eq!(LastFull::read_in(root), LastFull::Unknown);
        fs::write(root.join("file"), "changed").expect("it is writable");
        assert_eq!(record_in(root), Ok(None), "that is no commit");
        commit(root, "two");
        let recorded = record_in(root);
        assert_eq!(recorded, Ok(Some(root.join(FILE))));
        commit(root, "three");
        commit(root, "four");
        let LastFull::Passed { ago, .. } = LastFull::read_in(root) else {
            panic!("it is on record");
        };
        assert_eq!(ago, 2);
        fs::write(root.join(FILE), "0123456789abcdef 2026-01-01").expect("it is writable");
        assert_eq!(LastFull::read_in(root), LastFull::Unknown);
    }

    #[test]
    fn one_that_is_too_old_for_a_release_says_so() {
        let passed = |ago| LastFull::Passed {
            commit: "0123456789abcdef".to_owned(),
            date: "2026-11-28".to_owned(),
            ago,
        };
        let said = "last full run: passed at 0123456789 on 2026-11-28, ";
        assert_eq!(passed(200).to_string(), format!("{said}200 commits ago"));
        assert_eq!(
            passed(201).to_string(),
            format!("{said}201 commits ago; a release needs one within 200")
        );
    }
}
