//! Memory of this process, as the system counts it.

use std::time::{Duration, Instant};

use unbroken_broker_core::{Shard, ShardId};

/// When the memory is looked at next.
#[derive(Debug, Default)]
pub(crate) struct HeapWatch(Option<Instant>);

impl HeapWatch {
    /// With a timeout, the first shard learns how much there is.
    pub(crate) fn note(&mut self, now: Instant, shard: &mut Shard) {
        if shard.id() == ShardId(0) && self.0.is_none_or(|at| at <= now) {
            self.0 = Some(now + EVERY);
            if let Some([current, maximum]) = of_this_process() {
                shard.note_heap(current, maximum);
            }
        }
    }
}

/// How often, at most.
const EVERY: Duration = Duration::from_secs(1);

/// Resident bytes now and at most, where the system tells: for `$SYS/broker/heap`.
#[cfg(target_os = "linux")]
fn of_this_process() -> Option<[u64; 2]> {
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
fn of_this_process() -> Option<[u64; 2]> {
    None
}
