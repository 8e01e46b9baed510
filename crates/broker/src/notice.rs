//! What threads, signals and commands report to the main thread.

use std::sync::mpsc::Sender;

#[derive(Debug)]
pub(crate) enum Notice {
    ShardEnded,
    Failed {
        thread: String,
        reason: String,
    },
    StoreFailed {
        reason: String,
    },
    StoreDamaged {
        reason: String,
    },
    /// Files of listeners are others than when they were read. `is_retry`: they were already when
    /// the last reload failed.
    FilesChanged {
        is_retry: bool,
    },
    /// A command asks for what SIGHUP does, and for what came of it: the changes, or why there are
    /// none.
    Reload(Sender<Result<Vec<String>, String>>),
    Signal(Signal),
}

/// What a signal requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(not(unix), expect(dead_code, reason = "it cannot be asked there yet"))]
pub(crate) enum Signal {
    /// End in good order: SIGTERM, SIGINT.
    Terminate,
    /// Read the configuration again: SIGHUP.
    Reload,
}
