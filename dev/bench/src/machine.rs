//! Where and when a run took place, so that its figures can be read and repeated.

use serde::Serialize;
use std::{ffi::OsStr, fmt, fs, path::Path, process::Command};

/// The machine, the system and the source.
#[derive(Debug, Clone, Serialize)]
pub struct Machine {
    /// Its model.
    pub processor: String,
    /// Those this process may use.
    pub cores: usize,
    /// All of it.
    pub memory_gib: f64,
    /// The distribution.
    pub system: String,
    /// Its release.
    pub kernel: String,
    /// In UTC.
    pub date: String,
    /// Of the working directory. A program that was built elsewhere says itself of which it is.
    pub commit: String,
    /// What a reader types to repeat the run.
    pub command: String,
    /// Load average when the run began.
    pub load_before: String,
}

impl Machine {
    /// This machine, now.
    pub fn here() -> Self {
        Self {
            processor: field("/proc/cpuinfo", "model name", ':'),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_gib: memory_gib(),
            system: field("/etc/os-release", "PRETTY_NAME", '=')
                .trim_matches('"')
                .to_owned(),
            kernel: line("/proc/sys/kernel/osrelease"),
            date: jiff::Timestamp::now()
                .strftime("%Y-%m-%d %H:%M UTC")
                .to_string(),
            commit: commit(Path::new(".")),
            command: command(),
            load_before: load(),
        }
    }

    /// Threads that the load generator may have: one for each two cores, as our broker has shards.
    /// At least one.
    pub(crate) fn generator_threads(&self) -> u32 {
        u32::try_from(self.cores / 2).unwrap_or(u32::MAX).max(1)
    }
}

/// For the head of a record, without the stop at its end.
impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}, {} cores, {:.0} GiB, {}, kernel {}. {}, commit {}, load average before: {}",
            self.processor,
            self.cores,
            self.memory_gib,
            self.system,
            self.kernel,
            self.date,
            self.commit,
            self.load_before,
        )
    }
}

/// The load average of the last minute.
pub fn load() -> String {
    let loads = line("/proc/loadavg");
    loads.split(' ').next().unwrap_or("unknown").to_owned()
}

fn line(path: &str) -> String {
    fs::read_to_string(path).map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned())
}

fn field(path: &str, name: &str, separator: char) -> String {
    let text = line(path);
    let value = text.lines().find_map(|line| {
        let (key, value) = line.split_once(separator)?;
        (key.trim() == name).then(|| value.trim().to_owned())
    });
    value.unwrap_or_else(|| "unknown".to_owned())
}

fn memory_gib() -> f64 {
    let kibibytes: Option<f64> = field("/proc/meminfo", "MemTotal", ':')
        .split(' ')
        .next()
        .and_then(|value| value.parse().ok());
    kibibytes.unwrap_or_default() / f64::from(1 << 20)
}

/// The commit of a directory, and whether tracked files differ from it: those that decide what is
/// measured, and not the records that a benchmark before this one has written.
fn commit(directory: &Path) -> String {
    let git = |args: &[&str]| {
        let output = Command::new("git")
            .args(args)
            .current_dir(directory)
            .output()
            .ok()
            .filter(|output| output.status.success())?;
        Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) else {
        return "unknown".to_owned();
    };
    let but_records = ["--", ":/", ":(top,exclude)docs/benchmarks"];
    let status = [
        &["status", "--porcelain", "--untracked-files=no"],
        &but_records[..],
    ]
    .concat();
    match git(&status) {
        Some(changes) if changes.is_empty() => commit,
        _ => format!("{commit} with changes"),
    }
}

/// What a reader types to repeat the run.
fn command() -> String {
    let words: Vec<_> = std::env::args().skip(1).collect();
    repeated(&words, std::env::var_os(OUR_PROGRAM).as_deref())
}

/// Names the program that is measured, if it is not the one that is built here.
pub(crate) const OUR_PROGRAM: &str = "UNBROKEN_BIN";

/// What to do where it is not there.
pub(crate) const BUILD_OURS: &str = "build it with `cargo build -p unbroken` and the profile of \
    this program, or name it with --unbroken";

/// The command that has these words, where `named` is what the environment says of our program.
fn repeated(words: &[String], named: Option<&OsStr>) -> String {
    let command = format!("cargo xtask bench {}", words.join(" "));
    let is_flag = |word: &String| word == "--unbroken" || word.starts_with("--unbroken=");
    match named {
        Some(path) if !words.iter().any(is_flag) => {
            format!("{OUR_PROGRAM}={} {command}", path.display())
        }
        _ => command,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_names_the_program_that_was_measured() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let named = Some(OsStr::new("/opt/unbroken"));
        for (given, named, expected) in [
            (
                "brokers --rounds 5",
                None,
                "cargo xtask bench brokers --rounds 5",
            ),
            (
                "shards",
                named,
                "UNBROKEN_BIN=/opt/unbroken cargo xtask bench shards",
            ),
            // What is said on the line counts.
            (
                "shards --unbroken /tmp/other",
                named,
                "cargo xtask bench shards --unbroken /tmp/other",
            ),
            (
                "shards --unbroken=/tmp/other",
                named,
                "cargo xtask bench shards --unbroken=/tmp/other",
            ),
        ] {
            assert_eq!(repeated(&words(given), named), expected);
        }
    }

    #[test]
    fn records_that_were_written_before_are_no_changes_and_all_else_is() {
        let directory = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = directory.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let git = |args: &[&str]| {
            let who = ["-c", "user.name=a", "-c", "user.email=a@localhost"];
            let mut git = Command::new("git");
            let output = git
                .args(who)
                .args(args)
                .current_dir(directory.path())
                .output();
            assert!(output.unwrap().status.success(), "{args:?}");
        };
        let record = "docs/benchmarks/brokers.md";
        write(record, "before");
        write("crates/source.rs", "before");
        git(&["init", "--quiet"]);
        git(&["add", "."]);
        git(&["commit", "--quiet", "--message", "all"]);
        let has_changes =
            |from: &str| commit(&directory.path().join(from)).ends_with("with changes");
        write(record, "after");
        assert!(!has_changes(".") && !has_changes("crates"));
        write("crates/source.rs", "after");
        assert!(has_changes(".") && has_changes("docs"));
    }
}
