//! What the system says of this process, under the names that all Prometheus clients use.

use std::fs;
use std::time::Duration;

use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage};
use nix::unistd::{SysconfVar, sysconf};

/// What is not known is left out.
#[derive(Debug, Default)]
pub(crate) struct Process {
    /// User and system, since the start.
    pub(crate) cpu: Option<Duration>,
    pub(crate) resident_bytes: Option<u64>,
    pub(crate) open_files: Option<u64>,
    /// Until more are refused.
    pub(crate) open_files_max: Option<u64>,
}

impl Process {
    pub(crate) fn now() -> Self {
        Self {
            cpu: cpu(),
            resident_bytes: resident_bytes(),
            open_files: fs::read_dir("/proc/self/fd")
                .ok()
                .map(|files| files.count() as u64),
            open_files_max: getrlimit(Resource::RLIMIT_NOFILE)
                .ok()
                .map(|(soft, _)| soft),
        }
    }
}

impl Process {
    /// What costs the same however many files are open.
    pub(crate) fn load() -> Self {
        Self {
            cpu: cpu(),
            resident_bytes: resident_bytes(),
            ..Self::default()
        }
    }
}

fn cpu() -> Option<Duration> {
    let usage = getrusage(UsageWho::RUSAGE_SELF).ok()?;
    let times = [usage.user_time(), usage.system_time()];
    let micros = times
        .iter()
        .map(|time| time.tv_sec() * 1_000_000 + time.tv_usec());
    u64::try_from(micros.sum::<i64>())
        .ok()
        .map(Duration::from_micros)
}

fn resident_bytes() -> Option<u64> {
    let pages = fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = pages.split(' ').nth(1)?.parse().ok()?;
    let page = sysconf(SysconfVar::PAGE_SIZE).ok()??;
    Some(pages * u64::try_from(page).ok()?)
}
