//! Which commit passed `cargo xtask ci --full` last: a file that is committed behind each such run.
//!
//! `ci` prints it before its closing line, and `dist` refuses a release without a recent one. A
//! source archive has no history to count in: it is of a release, for which this was decided.

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
pub(crate) enum LastFull {
    /// There are sources without a history.
    NoHistory,
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
    pub(crate) fn read() -> Self {
        Self::read_in(&tree::root())
    }

    fn read_in(root: &Path) -> Self {
        if commits_in(root).is_none() {
            return Self::NoHistory;
        }
        let Ok(text) = fs::read_to_string(root.join(FILE)) else {
            return Self::Unknown;
        };
        let Some((commit, date)) = text.trim().split_once(' ') else {
            return Self::Unknown;
        };
        match count(root, &format!("{commit}..HEAD")) {
            Some(ago) => Self::Passed {
                commit: commit.to_owned(),
                date: date.to_owned(),
                ago,
            },
            None => Self::Unknown,
        }
    }

    /// The commit of that run, if one is on record.
    pub(crate) fn commit(&self) -> Option<&str> {
        match self {
            Self::Passed { commit, .. } => Some(commit),
            Self::NoHistory | Self::Unknown => None,
        }
    }

    /// Fails where a release has to wait for another full run.
    pub(crate) fn allow_release(&self) -> Outcome {
        match self {
            Self::NoHistory => Ok(()),
            Self::Passed { ago, .. } if *ago <= COMMITS_MAX => Ok(()),
            Self::Unknown | Self::Passed { .. } => Err(format!(
                "{self}\nrun `cargo xtask ci --full` and commit {FILE}, or build a program that is \
                 not for a release: `cargo xtask dist --any-commit`"
            )),
        }
    }
}

impl std::fmt::Display for LastFull {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoHistory => f.write_str("last full run: there is no history to look in"),
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

/// The commit that a run is of, taken when it begins.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Tested(String);

impl Tested {
    /// None: files have changed since the last commit, or there is none.
    pub(crate) fn commit() -> Option<Self> {
        Self::commit_in(&tree::root())
    }

    fn commit_in(root: &Path) -> Option<Self> {
        let changes = git(root, &["status", "--porcelain"]).ok()?;
        let commit = git(root, &["log", "-1", "--format=%H %cs"]).ok()?;
        changes.trim().is_empty().then_some(Self(commit))
    }

    /// Records that it passed the full run; returns the file, to be committed. None: another commit
    /// or other files are there now, so that nothing is known of either.
    pub(crate) fn record(self) -> Outcome<Option<PathBuf>> {
        self.record_in(&tree::root())
    }

    fn record_in(self, root: &Path) -> Outcome<Option<PathBuf>> {
        if Self::commit_in(root).as_ref() != Some(&self) {
            return Ok(None);
        }
        let path = root.join(FILE);
        let written = fs::create_dir_all(root.join(".ci")).and_then(|()| fs::write(&path, self.0));
        written.map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        Ok(Some(path))
    }
}

/// How many commits lead to this one; none without a history.
pub(crate) fn commits() -> Option<usize> {
    commits_in(&tree::root())
}

fn commits_in(root: &Path) -> Option<usize> {
    count(root, "HEAD")
}

fn count(root: &Path, range: &str) -> Option<usize> {
    let count = git(root, &["rev-list", "--count", range]).ok()?;
    count.trim().parse().ok()
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
        let author = ["-c", "user.name=n", "-c", "user.email=e@example"];
        let arguments: Vec<_> = author.into_iter().chain(["commit", "-qm", text]).collect();
        git(root, &arguments).expect("git commits");
    }

    #[test]
    fn a_full_run_is_known_by_its_commit_and_counted_from() {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        let root = directory.path();
        git(root, &["init", "-q"]).expect("git works");
        assert_eq!(LastFull::read_in(root), LastFull::NoHistory);
        commit(root, "one");
        assert_eq!(LastFull::read_in(root), LastFull::Unknown);
        fs::write(root.join("file"), "changed").expect("it is writable");
        assert_eq!(Tested::commit_in(root), None, "that is no commit");
        commit(root, "two");
        let tested = Tested::commit_in(root).expect("nothing has changed");
        assert_eq!(tested.record_in(root), Ok(Some(root.join(FILE))));
        commit(root, "three");
        commit(root, "four");
        let LastFull::Passed { ago, .. } = LastFull::read_in(root) else {
            panic!("it is on record");
        };
        assert_eq!((ago, commits_in(root)), (2, Some(4)));
        fs::write(root.join(FILE), "0123456789abcdef 2026-01-01").expect("it is writable");
        assert_eq!(LastFull::read_in(root), LastFull::Unknown);
    }

    #[test]
    fn what_changed_during_a_run_is_not_recorded_as_tested() {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        let root = directory.path();
        git(root, &["init", "-q"]).expect("git works");
        commit(root, "one");
        let [first, second] = [(); 2].map(|()| Tested::commit_in(root).expect("it is clean"));
        fs::write(root.join("file"), "changed").expect("it is writable");
        assert_eq!(first.record_in(root), Ok(None));
        commit(root, "two");
        assert_eq!(second.record_in(root), Ok(None));
        assert!(!root.join(FILE).exists());
    }

    #[test]
    fn a_release_needs_a_full_run_within_200_commits() {
        let passed = |ago| LastFull::Passed {
            commit: "0123456789abcdef".to_owned(),
            date: "2026-11-28".to_owned(),
            ago,
        };
        let shown = "last full run: passed at 0123456789 on 2026-11-28, ";
        assert_eq!(passed(200).to_string(), format!("{shown}200 commits ago"));
        assert_eq!(passed(200).allow_release(), Ok(()));
        let old = format!("{shown}201 commits ago; a release needs one within 200");
        assert_eq!(passed(201).to_string(), old);
        for refused in [passed(201), LastFull::Unknown] {
            let problem = refused.allow_release().expect_err("it is refused");
            assert!(problem.starts_with(&refused.to_string()), "{problem}");
            assert!(problem.contains("ci --full") && problem.contains("--any-commit"));
        }
        assert_eq!(LastFull::NoHistory.allow_release(), Ok(()));
    }
}
