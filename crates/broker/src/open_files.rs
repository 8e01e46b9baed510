//! The system's limit of open files, which is the real limit of connections.

/// Raises this process's limit as far as it may: the customary default of 1,024 is for programs
/// that use `select`.
#[cfg(unix)]
pub(crate) fn raise_limit() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};

    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(_, hard)| setrlimit(Resource::RLIMIT_NOFILE, hard, hard));
    if let Err(error) = raised {
        tracing::warn!(%error, "cannot raise the limit of open files; it limits connections");
    }
}

/// Elsewhere there is none to raise.
#[cfg(not(unix))]
pub(crate) fn raise_limit() {}
