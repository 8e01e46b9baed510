//! The system's limit of open files, which is the real limit of connections, and its table of them.

use unbroken_broker_core::{RESERVE_MAX, Room};

use crate::bounds::{FILES_AT_START, FILES_OF_A_SHARD, FILES_OF_ITS_OWN};

/// Raises this process's limit as far as it may: the customary default of 1,024 is for programs
/// that use `select`. Answers with how many connections there can be then.
#[cfg(unix)]
pub(crate) fn raise_limit(shards: u8) -> Room {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};

    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(_, hard)| setrlimit(Resource::RLIMIT_NOFILE, hard, hard));
    if let Err(error) = raised {
        tracing::warn!(%error, "cannot raise the limit of open files; it limits connections");
    }
    getrlimit(Resource::RLIMIT_NOFILE)
        .map_or_else(|_| Room::default(), |(soft, _)| room(soft, shards))
}

/// Elsewhere there is none to raise.
#[cfg(not(unix))]
pub(crate) fn raise_limit(_shards: u8) -> Room {
    Room::default()
}

/// Makes the system's table of open files as large as so many connections need, once and now. Linux
/// doubles it when it is full, and where a process has several threads it waits for a grace period
/// of RCU each time, some 10 ms in which nobody is served: with 15,000 connections seven times on
/// the way, a quarter of the time that they took to come. Any file will do.
#[cfg(unix)]
pub(crate) fn make_table(any: &impl std::os::fd::AsFd, connections: u32, shards: u8) {
    use nix::fcntl::{FcntlArg, fcntl};
    use nix::sys::resource::{Resource, getrlimit};
    use nix::unistd::close;

    let limit = getrlimit(Resource::RLIMIT_NOFILE).map_or(0, |(soft, _)| soft);
    let files = (u64::from(connections) + own(shards))
        .min(limit)
        .min(FILES_AT_START);
    // Where there is no room for it the table grows later, as it is needed.
    let last = i32::try_from(files.saturating_sub(1)).unwrap_or(0);
    if let Ok(file) = fcntl(any, FcntlArg::F_DUPFD_CLOEXEC(last)) {
        let _ = close(file);
    }
}

/// Elsewhere there is none to make.
#[cfg(not(unix))]
pub(crate) fn make_table<T>(_any: &T, _connections: u32, _shards: u8) {}

/// What so many open files leave for connections: the store must be able to open its own however
/// many clients come. Where there are few, half are the clients', and a quarter of these are for
/// connections without a place.
fn room(files: u64, shards: u8) -> Room {
    let files = files.saturating_sub(own(shards)).max(files / 2);
    let connections = u32::try_from(files).unwrap_or(u32::MAX);
    let reserve = RESERVE_MAX.min(connections / 4);
    Room {
        places: connections - reserve,
        reserve,
    }
}

fn own(shards: u8) -> u64 {
    FILES_OF_ITS_OWN + u64::from(shards) * FILES_OF_A_SHARD
}

/// Says it to whoever has allowed more than that.
pub(crate) fn tell(room: Room, connections_max: u32) {
    if room.places < connections_max {
        tracing::info!(
            connections = room.places,
            connections_max,
            "the system's limit of open files allows fewer connections than limits.connections_max; \
             raise it (ulimit -Hn, LimitNOFILE=) or lower connections_max"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_store_keeps_files_for_itself() {
        let of = |files, shards| {
            let Room { places, reserve } = room(files, shards);
            (places, reserve)
        };
        assert_eq!(of(4_096, 1), (4_096 - 260 - 256, 256));
        assert_eq!(of(4_096, 64), (4_096 - 512 - 256, 256));
        assert_eq!(of(256, 1), (96, 32));
        assert_eq!(room(u64::MAX, 1), Room::default());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_table_has_a_place_for_every_connection() {
        let places = || {
            let status = std::fs::read_to_string("/proc/self/status").unwrap();
            let line = status.lines().find_map(|line| line.strip_prefix("FDSize:"));
            line.unwrap().trim().parse::<u32>().unwrap()
        };
        raise_limit(1);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let connections = 2 * places();
        make_table(&listener, connections, 1);
        assert!(places() >= connections, "{} of {connections}", places());
    }
}
