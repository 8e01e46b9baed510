//! Where and when a run took place, so that its figures can be read and repeated.

use serde::Serialize;
use std::{fmt, fs, process::Command};

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
    /// Of the working directory.
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
            commit: commit(),
            command: command(),
            load_before: load(),
        }
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

/// The commit of the working directory, and whether tracked files differ from it.
fn commit() -> String {
    let git = |args: &[&str]| {
        let output = Command::new("git")
            .args(args)
            .output()
            .ok()
            .filter(|output| output.status.success())?;
        Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) else {
        return "unknown".to_owned();
    };
    match git(&["status", "--porcelain", "--untracked-files=no"]) {
        Some(changes) if changes.is_empty() => commit,
        _ => format!("{commit} with changes"),
    }
}

/// What a reader types to repeat the run.
fn command() -> String {
    let words = std::env::args().skip(1).collect::<Vec<_>>().join(" ");
    format!("cargo xtask bench {words}")
}
