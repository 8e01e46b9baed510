//! What the kernel knows: CPU time, memory and context switches of one process, and how busy the
//! whole machine was.
//!
//! CPU time comes from the process's own clock, in nanoseconds; `/proc/<pid>/stat` splits it into
//! user and system in steps of 10 ms. Invariants: reading changes nothing, and needs no rights
//! beyond seeing the process. Deliberately absent: other systems than Linux, where every reading is
//! [`io::ErrorKind::Unsupported`].

use std::{io, time::Duration};

/// A process that is watched.
#[derive(Debug, Clone, Copy)]
pub struct Process {
    pid: u32,
}

/// Running totals of a process at one moment.
#[derive(Debug, Clone, Copy, Default)]
pub struct Usage {
    /// User and system time of all its threads, also those that ended.
    pub cpu: Duration,
    /// The user part, in steps of 10 ms.
    pub user: Duration,
    /// The system part, in steps of 10 ms.
    pub system: Duration,
    /// Voluntary and involuntary context switches of the threads now alive.
    pub switches: u64,
    /// Bytes of memory in use.
    pub resident: u64,
    /// The most that it ever was.
    pub peak_resident: u64,
    /// Bytes it has handed to disks, if this process may know.
    pub written: Option<u64>,
}

impl Process {
    /// Watches `pid`.
    pub const fn new(pid: u32) -> Self {
        Self { pid }
    }

    /// This very process.
    pub fn own() -> Self {
        Self::new(std::process::id())
    }

    /// Its totals now.
    pub fn usage(self) -> io::Result<Usage> {
        system::usage(self.pid)
    }
}

/// Time that the machine's processors were not idle, all together, since it started.
pub fn machine_busy() -> io::Result<Duration> {
    system::machine_busy()
}

/// Lets this process open as many descriptors as its hard limit allows, and returns that number.
pub fn raise_descriptor_limit() -> u64 {
    system::raise_descriptor_limit()
}

/// Makes the kernel's table of descriptors as large as so many connections need, so that it need
/// not be doubled on the way: in a process with threads that takes 10 ms each time.
pub(crate) fn make_descriptor_table(connections: u32) {
    system::make_descriptor_table(connections);
}

#[cfg(target_os = "linux")]
mod system {
    use super::{Duration, Usage, io};
    use nix::{
        fcntl::{FcntlArg, fcntl},
        sys::resource::{Resource, getrlimit, setrlimit},
        time::{clock_getcpuclockid, clock_gettime},
        unistd::{Pid, SysconfVar, close, sysconf},
    };
    use std::fs::{read_dir, read_to_string};

    pub(super) fn usage(pid: u32) -> io::Result<Usage> {
        let root = format!("/proc/{pid}");
        let clock = i32::try_from(pid).map_err(|_| malformed("pid"))?;
        let cpu = clock_gettime(clock_getcpuclockid(Pid::from_raw(clock))?)?.into();
        let stat = read_to_string(format!("{root}/stat"))?;
        // The command's name may hold spaces and parentheses; the numbers follow the last
        // parenthesis.
        let numbers = stat
            .rsplit_once(')')
            .map(|(_, rest)| rest)
            .ok_or_else(|| malformed("stat"))?;
        let ticks = |index| ticks(numbers.split_ascii_whitespace().nth(index));
        let status = read_to_string(format!("{root}/status"))?;
        Ok(Usage {
            cpu,
            user: ticks(11)?,
            system: ticks(12)?,
            switches: switches(&root)?,
            resident: kibibytes(&status, "VmRSS:")?,
            peak_resident: kibibytes(&status, "VmHWM:")?,
            written: read_to_string(format!("{root}/io"))
                .ok()
                .and_then(|io| field(&io, "write_bytes:").ok()),
        })
    }

    fn switches(root: &str) -> io::Result<u64> {
        let mut total = 0;
        for task in read_dir(format!("{root}/task"))? {
            // A thread may end between being listed and being read.
            let Ok(status) = read_to_string(task?.path().join("status")) else {
                continue;
            };
            for name in ["voluntary_ctxt_switches:", "nonvoluntary_ctxt_switches:"] {
                total += field(&status, name)?;
            }
        }
        Ok(total)
    }

    fn kibibytes(status: &str, name: &'static str) -> io::Result<u64> {
        Ok(field(status, name)? * 1024)
    }

    fn field(status: &str, name: &'static str) -> io::Result<u64> {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let value = line.and_then(|line| line.split_ascii_whitespace().next());
        value
            .and_then(|value| value.parse().ok())
            .ok_or_else(|| malformed(name))
    }

    pub(super) fn machine_busy() -> io::Result<Duration> {
        let stat = read_to_string("/proc/stat")?;
        let line = stat.lines().next().unwrap_or_default();
        // user nice system idle iowait irq softirq steal: all but idle and iowait.
        let mut busy = Duration::ZERO;
        for index in [1, 2, 3, 6, 7, 8] {
            busy += ticks(line.split_ascii_whitespace().nth(index))?;
        }
        Ok(busy)
    }

    fn ticks(value: Option<&str>) -> io::Result<Duration> {
        let ticks: u64 = value
            .and_then(|value| value.parse().ok())
            .ok_or_else(|| malformed("ticks"))?;
        let per_second = sysconf(SysconfVar::CLK_TCK)?.and_then(|rate| u64::try_from(rate).ok());
        let per_second = per_second.filter(|rate| *rate > 0).unwrap_or(100);
        Ok(Duration::from_nanos(
            ticks.saturating_mul(1_000_000_000 / per_second),
        ))
    }

    pub(super) fn raise_descriptor_limit() -> u64 {
        let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else {
            return 1024;
        };
        let raised = setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_ok();
        if raised { hard } else { soft }
    }

    pub(super) fn make_descriptor_table(connections: u32) {
        let last = i32::try_from(connections).unwrap_or(i32::MAX);
        if let Ok(file) = fcntl(io::stderr(), FcntlArg::F_DUPFD_CLOEXEC(last)) {
            // Nothing to do about it: the run ends soon.
            let _ = close(file);
        }
    }

    fn malformed(what: &str) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidData, format!("/proc: no {what}"))
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use super::{Duration, Usage, io};

    pub(super) fn usage(_pid: u32) -> io::Result<Usage> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn machine_busy() -> io::Result<Duration> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn raise_descriptor_limit() -> u64 {
        u64::MAX
    }

    pub(super) fn make_descriptor_table(_connections: u32) {}
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn work_shows_as_cpu_time_of_the_process() {
        let before = Process::own().usage().unwrap();
        let mut sum = 0_u64;
        while Process::own().usage().unwrap().cpu < before.cpu + Duration::from_millis(1) {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        assert!(before.resident > 0 && before.peak_resident >= before.resident);
        assert!(machine_busy().unwrap() > Duration::ZERO);
    }

    #[test]
    fn a_process_that_does_not_exist_is_an_error() {
        assert!(Process::new(u32::MAX).usage().is_err());
    }
}
