//! Memory of this process, as the system counts it.

/// Resident bytes now and at most, where the system tells: for `$SYS/broker/heap`.
#[cfg(target_os = "linux")]
pub(crate) fn of_this_process() -> Option<[u64; 2]> {
    use nix::sys::resource::{UsageWho, getrusage};
    use nix::unistd::{SysconfVar, sysconf};

    let pages = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = pages.split(' ').nth(1)?.parse().ok()?;
    let page = sysconf(SysconfVar::PAGE_SIZE).ok()??;
    let current = pages * u64::try_from(page).ok()?;
    let usage = getrusage(UsageWho::RUSAGE_SELF).ok()?;
    let maximum = u64::try_from(usage.max_rss()).ok()? * 1_024;
    Some([current, maximum.max(current)])
}

/// Resident bytes now and at most, where the system tells.
#[cfg(not(target_os = "linux"))]
pub(crate) fn of_this_process() -> Option<[u64; 2]> {
    None
}
