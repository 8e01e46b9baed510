//! The control socket: a unix socket in the data directory through which commands query a running
//! broker.
//!
//! A connection sends one line at a time and gets a line for each (`protocol`). It reads a
//! snapshot, taken at its first request, so that a backup is consistent while the broker goes on.
//! [`Remote`] is the client's end, and reads like a store.
//!
//! Invariants:
//! - Only the broker's user and root can connect: the socket has mode 0600 from its first moment.
//! - It is created while the directory is locked, so an existing one is stale, and is replaced.
//! - Connections, the length of a request, and idle time are bounded (`bounds`); no shard waits for
//!   any of this.
//! - No data is changed without those who have it in memory: removals go to the shards, and changes
//!   of users to who has the access rules ([`Operator`]).

mod protocol;
mod remote;
mod trace;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::fs;
use std::io::{self, BufRead, BufReader, Read};
use std::net::{IpAddr, Shutdown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use socket2::SockRef;
pub use unbroken_broker_core::Forget;
use unbroken_store::{LogId, StoreError, View};

use self::protocol::{Answer, Request};
pub use self::remote::{ReloadError, Remote, RemoteError, Who};
use crate::bounds::{
    ACCEPT_PAUSE, CONTROL_CONNECTIONS, CONTROL_PIECE_BYTES, CONTROL_REQUEST_BYTES, CONTROL_SILENCE,
};
use crate::broker_store::BrokerStore;
use crate::local_socket;
use crate::stored_access::Change;
use crate::trace::{Trace, TraceFilter};

/// The socket of a running broker. Dropping it closes all connections and removes it.
#[derive(Debug)]
pub struct Control {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    directory: PathBuf,
    listener: UnixListener,
    operator: Box<dyn Operator>,
    ending: AtomicBool,
    /// The open ones, by number.
    connections: Mutex<BTreeMap<u64, Open>>,
}

#[derive(Debug)]
struct Open {
    stream: UnixStream,
    /// Traces have a limit of their own.
    is_trace: bool,
}

/// Carries out what commands ask for.
pub trait Operator: Send + Sync + Debug {
    /// Returns when it is removed, on disk too. An error gives the reason why that is not known.
    fn forget(&self, what: Forget) -> Result<(), String>;

    /// Reads the configuration again, as SIGHUP does. Answers what has changed; an error gives the
    /// reason why nothing has.
    fn reload(&self) -> Result<Vec<String>, String>;

    /// Changes users, roles or bans. Returns when that is on disk and in force.
    fn change(&self, change: &Change) -> Result<(), String>;

    /// Addresses that are banned because their logins have failed, each with the milliseconds that
    /// are left.
    fn automatic_bans(&self) -> Vec<(IpAddr, u64)>;

    /// Why the store has failed, if it has.
    fn failure(&self) -> Option<&str>;

    /// Begins a trace.
    fn trace(&self, _filter: &TraceFilter, _time: Duration) -> Result<Trace, String> {
        Err("this broker has no traces".to_owned())
    }

    /// Whether nothing is on disk: what is changed ends with the process.
    fn is_in_memory(&self) -> bool {
        false
    }
}

/// Answers requests about a store, whose directory this process has locked, until it is dropped.
pub fn start(
    store: Arc<dyn BrokerStore>,
    directory: &Path,
    operator: Box<dyn Operator>,
) -> io::Result<Control> {
    let path = directory.join(NAME);
    local_socket::remove_stale(&path)?;
    let shared = Arc::new(Shared {
        listener: local_socket::listen(directory, NAME)?,
        directory: directory.to_owned(),
        operator,
        ending: AtomicBool::new(false),
        connections: Mutex::default(),
    });
    let owned = Arc::clone(&shared);
    let thread = thread::Builder::new()
        .name("control".to_owned())
        .spawn(move || owned.accept(&*store))?;
    Ok(Control {
        shared,
        thread: Some(thread),
    })
}

impl Drop for Control {
    fn drop(&mut self) {
        self.shared.ending.store(true, Ordering::SeqCst);
        for open in self.shared.connections().values() {
            let _ = open.stream.shutdown(Shutdown::Both); // the other end may have gone
        }
        // Ends the thread's `accept`: `shutdown` does on some systems, a connection on the others.
        // If neither works the thread is left alone.
        let socket = SockRef::from(&self.shared.listener);
        let woken = socket.shutdown(Shutdown::Both).is_ok();
        if (woken || connect(&self.shared.directory).is_ok())
            && let Some(thread) = self.thread.take()
        {
            let _ = thread.join(); // a panic there ends nothing here
        }
        // A remaining socket is replaced at the next start.
        let _ = fs::remove_file(self.shared.directory.join(NAME));
    }
}

impl Shared {
    fn accept(&self, store: &dyn BrokerStore) {
        thread::scope(|scope| {
            for number in 0.. {
                let accepted = self.listener.accept();
                if self.ending.load(Ordering::SeqCst) {
                    return;
                }
                match accepted.and_then(|(stream, _)| self.admit(number, stream)) {
                    Ok(Some(stream)) => {
                        scope.spawn(move || {
                            // A failed connection concerns its command only.
                            let _ = self.answer(number, &stream, store);
                            self.connections().remove(&number);
                        });
                    }
                    Ok(None) => {}
                    Err(error) => {
                        tracing::warn!(%error, "a connection to the control socket failed");
                        thread::park_timeout(ACCEPT_PAUSE);
                    }
                }
            }
        });
    }

    /// `None` if there are too many; the client gets an error.
    fn admit(&self, number: u64, mut stream: UnixStream) -> io::Result<Option<UnixStream>> {
        stream.set_read_timeout(Some(CONTROL_SILENCE))?;
        stream.set_write_timeout(Some(CONTROL_SILENCE))?;
        let mut connections = self.connections();
        let others = connections.values().filter(|open| !open.is_trace);
        if others.count() >= CONTROL_CONNECTIONS {
            drop(connections);
            let busy = Answer::Failed(format!(
                "{CONTROL_CONNECTIONS} other commands are reading it; try again when one ends"
            ));
            busy.write(&mut stream)?;
            return Ok(None);
        }
        let open = Open {
            stream: stream.try_clone()?,
            is_trace: false,
        };
        connections.insert(number, open);
        Ok(Some(stream))
    }

    fn connections(&self) -> MutexGuard<'_, BTreeMap<u64, Open>> {
        let connections = self.connections.lock();
        connections.unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    /// Answers until the other end closes, is idle for too long, or sends a line that is too long.
    fn answer(&self, number: u64, stream: &UnixStream, store: &dyn BrokerStore) -> io::Result<()> {
        let mut reader = BufReader::new(stream);
        let mut writer = stream;
        let mut view: Option<Box<dyn View + '_>> = None;
        loop {
            let mut line = Vec::new();
            let mut bounded = (&mut reader).take(CONTROL_REQUEST_BYTES);
            if bounded.read_until(b'\n', &mut line)? == 0 {
                return Ok(());
            }
            if line.last() != Some(&b'\n') {
                let what = format!("the request has more than {CONTROL_REQUEST_BYTES} bytes");
                return Answer::Failed(what).write(&mut writer);
            }
            let request: Request = match serde_json::from_slice(&line) {
                Ok(request) => request,
                Err(error) => {
                    let what =
                        format!("this version of the broker does not know the request: {error}");
                    Answer::Failed(what).write(&mut writer)?;
                    continue;
                }
            };
            if let Request::Trace { .. } = request {
                // A snapshot would keep what it shows on disk.
                view = None;
                self.trace(number, request, stream)?;
                continue;
            }
            let answer = reply(request, store, &*self.operator, &mut view);
            answer.unwrap_or_else(Answer::from).write(&mut writer)?;
        }
    }
}

fn reply<'s>(
    request: Request,
    store: &'s dyn BrokerStore,
    operator: &dyn Operator,
    seen: &mut Option<Box<dyn View + 's>>,
) -> Result<Answer, StoreError> {
    let view = match seen {
        Some(view) => view,
        None => seen.insert(store.snapshot()?),
    };
    Ok(match request {
        Request::Who => Answer::Who {
            process: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            failure: operator.failure().map(str::to_owned),
            in_memory: operator.is_in_memory(),
        },
        Request::Forget { what } => {
            // The next request gets a new snapshot.
            *seen = None;
            let done = operator.forget(what.into());
            done.map_or_else(Answer::Failed, |()| Answer::Done)
        }
        Request::Reload => {
            let reloaded = operator.reload();
            reloaded.map_or_else(Answer::Failed, Answer::Reloaded)
        }
        Request::Change { change } => {
            *seen = None;
            let done = operator.change(&change);
            done.map_or_else(Answer::Failed, |()| Answer::Done)
        }
        Request::Trace { .. } => Answer::Failed("it is answered by many lines".to_owned()),
        Request::AutomaticBans => Answer::AutomaticBans(operator.automatic_bans()),
        Request::Size => Answer::Size(store.size_bytes()?),
        Request::Logs => Answer::logs(view.logs()?),
        Request::Generations { log } => {
            let firsts = store.generations(LogId(log)).into_iter();
            Answer::Generations(firsts.map(|first| first.0).collect())
        }
        Request::Bounds { log } => {
            let log = LogId(log);
            Answer::bounds(view.bounds(log)?, view.left_out(log)?)
        }
        Request::Read(read) => match read.wanted() {
            Err(what) => Answer::Failed(what),
            Ok(wanted) => {
                let bytes_max = read.bytes_max.min(CONTROL_PIECE_BYTES);
                let (log, range) = (LogId(read.log), read.range());
                let chunk = match wanted {
                    Some(wanted) => view.read_matching(log, range, &wanted, bytes_max),
                    None => view.read(log, range, bytes_max),
                };
                chunk?.into()
            }
        },
        Request::Get { space, key } => Answer::value(view.get(space.into(), &key)?),
        Request::Scan {
            space,
            prefix,
            after,
            bytes_max,
        } => {
            let bytes_max = bytes_max.min(CONTROL_PIECE_BYTES);
            let after = after.as_deref();
            view.scan(space.into(), &prefix, after, bytes_max)?.into()
        }
    })
}

/// Whether a program answers at the socket in a directory.
pub(crate) fn is_answered(directory: &Path) -> bool {
    connect(directory).is_ok()
}

fn connect(directory: &Path) -> io::Result<UnixStream> {
    local_socket::connect(directory, NAME)
}

const NAME: &str = "control";
