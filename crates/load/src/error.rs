//! Why a run gave no report. A report that counts faults is no error.

use crate::greeting::GreetingError;
use crate::transport::Target;
use std::{io, path::PathBuf, time::Duration};

/// Why a run gave no report.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// Settings that contradict each other.
    #[error("{0}")]
    Settings(String),
    /// The name of the broker leads nowhere.
    #[error("cannot resolve {host}: {source}")]
    Resolve {
        /// As given.
        host: String,
        /// What the resolver said.
        source: io::Error,
    },
    /// More connections than descriptors.
    #[error(
        "{wanted} connections need more descriptors than the {limit} this process may have; raise `ulimit -n`"
    )]
    Descriptors {
        /// Connections of the scenario.
        wanted: u32,
        /// The hard limit.
        limit: u64,
    },
    /// No connection.
    #[error("client {client} cannot connect to {target}: {source}; is a broker listening there?")]
    Connect {
        /// Its identifier.
        client: String,
        /// The broker.
        target: Target,
        /// What the system said.
        source: io::Error,
    },
    /// CONNECT or SUBSCRIBE failed.
    #[error("client {client}: {source}")]
    Greeting {
        /// Its identifier.
        client: String,
        /// What the broker said.
        source: GreetingError,
    },
    /// The broker closed a connection before the messages began.
    #[error("the broker closed the connection of client {client} while it was {doing}")]
    Closed {
        /// Its identifier.
        client: String,
        /// Connecting or subscribing.
        doing: &'static str,
    },
    /// A phase that did not end.
    #[error("{done} of {of} clients were done {doing} after {after:?}; the rest had no answer")]
    TimedOut {
        /// Connecting or subscribing.
        doing: &'static str,
        /// So many were done.
        done: usize,
        /// Of so many.
        of: usize,
        /// The limit.
        after: Duration,
    },
    /// The broker's process cannot be watched.
    #[error("cannot read the CPU time of process {pid}: {source}")]
    Process {
        /// As given.
        pid: u32,
        /// What the system said.
        source: io::Error,
    },
    /// The readiness loop itself failed.
    #[error("the readiness loop failed: {0}")]
    Loop(#[from] io::Error),
    /// A result could not be written.
    #[error("cannot write {path}: {source}")]
    Output {
        /// Where to.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The user ended it.
    #[error("stopped before the end; there is no report")]
    Stopped,
    /// A thread of the generator is gone.
    #[error("a thread of the load generator ended early, which is a fault of the generator")]
    WorkerLost,
}
