//! The system's limit of open files, which limits connections, and its table of them.

use unbroken_broker_core::{RESERVE_MAX, Room};

use crate::bounds::{FILES_AT_START, FILES_OF_A_SHARD, FILES_OF_BROKER};

/// Raises this process's soft limit to the hard limit. Returns how many connections that allows.
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

/// Other systems have none to raise.
#[cfg(not(unix))]
pub(crate) fn raise_limit(_shards: u8) -> Room {
    Room::default()
}

/// Makes the kernel's table of open files large enough for so many connections at once. Linux
/// doubles a full table, and with several threads it waits for an RCU grace period each time, in
/// which no client is served. `any` is any open file.
#[cfg(unix)]
pub(crate) fn preallocate_table(any: &impl std::os::fd::AsFd, connections: u32, shards: u8) {
    use nix::fcntl::{FcntlArg, fcntl};
    use nix::sys::resource::{Resource, getrlimit};
    use nix::unistd::close;

    let limit = getrlimit(Resource::RLIMIT_NOFILE).map_or(0, |(soft, _)| soft);
    let files = (u64::from(connections) + reserved(shards))
        .min(limit)
        .min(FILES_AT_START);
    // Without room for it the table grows later.
    let last = i32::try_from(files.saturating_sub(1)).unwrap_or(0);
    if let Ok(file) = fcntl(any, FcntlArg::F_DUPFD_CLOEXEC(last)) {
        let _ = close(file);
    }
}

/// Other systems have none.
#[cfg(not(unix))]
pub(crate) fn preallocate_table<T>(_any: &T, _connections: u32, _shards: u8) {}

/// The connections that so many open files allow: the store must be able to open its files however
/// many clients come. With few files, half are for clients, and a quarter of these is the reserve
/// for connections that are not admitted.
fn room(files: u64, shards: u8) -> Room {
    let files = files.saturating_sub(reserved(shards)).max(files / 2);
    let connections = u32::try_from(files).unwrap_or(u32::MAX);
    let reserve = RESERVE_MAX.min(connections / 4);
    Room {
        places: connections - reserve,
        reserve,
    }
}

fn reserved(shards: u8) -> u64 {
    FILES_OF_BROKER + u64::from(shards) * FILES_OF_A_SHARD
}

/// Warns if the configuration allows more.
pub(crate) fn log_limit(room: Room, connections_max: u32) {
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
        preallocate_table(&listener, connections, 1);
        assert!(places() >= connections, "{} of {connections}", places());
    }
}
