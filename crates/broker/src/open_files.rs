//! The system's limit of open files, which is the real limit of connections.

use crate::bounds::{FILES_OF_A_SHARD, FILES_OF_ITS_OWN};

/// Raises this process's limit as far as it may: the customary default of 1,024 is for programs
/// that use `select`. Answers with how many connections there can be then.
#[cfg(unix)]
pub(crate) fn raise_limit(shards: u8) -> u32 {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};

    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(_, hard)| setrlimit(Resource::RLIMIT_NOFILE, hard, hard));
    if let Err(error) = raised {
        tracing::warn!(%error, "cannot raise the limit of open files; it limits connections");
    }
    getrlimit(Resource::RLIMIT_NOFILE).map_or(u32::MAX, |(soft, _)| room(soft, shards))
}

/// Elsewhere there is none to raise.
#[cfg(not(unix))]
pub(crate) fn raise_limit(_shards: u8) -> u32 {
    u32::MAX
}

/// What so many open files leave for connections: the store must be able to open its own however
/// many clients come. Where there are few, half are the clients'.
fn room(files: u64, shards: u8) -> u32 {
    let own = FILES_OF_ITS_OWN + u64::from(shards) * FILES_OF_A_SHARD;
    let room = files.saturating_sub(own).max(files / 2);
    room.try_into().unwrap_or(u32::MAX)
}

/// Says it to whoever has allowed more than that.
pub(crate) fn tell(room: u32, connections_max: u32) {
    if room < connections_max {
        tracing::info!(
            connections = room,
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
        assert_eq!(room(4_096, 1), 4_096 - 260);
        assert_eq!(room(4_096, 64), 4_096 - 512);
        assert_eq!(room(256, 1), 128);
        assert_eq!(room(u64::MAX, 1), u32::MAX);
    }
}
