//! What a running broker tells of its data directory: a unix socket in it, for the command line.
//!
//! A connection asks one line at a time and gets a line for each (`protocol`). What it reads is
//! of one moment, that of its first question, so that a backup is consistent while the broker goes
//! on; [`Remote`] is the other end, and reads like a store.
//!
//! Invariants:
//! - Only the broker's user and root can connect: the socket has mode 0600 from its first moment.
//! - It is made when the directory is locked, so one that is found there is stale, and replaced.
//! - Connections, the length of a question, and how long one may be silent are bounded
//!   (`bounds`); no shard waits for any of this.
//! - Nothing is changed behind the shards' back, who have in memory what is on disk: what is to be
//!   removed goes to them ([`Operator`]).

mod protocol;
mod remote;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::fs::{self, File, Permissions};
use std::io::{self, BufRead, BufReader, Read};
use std::net::Shutdown;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use socket2::{Domain, SockAddr, SockRef, Socket, Type};
pub use unbroken_broker_core::Forget;
use unbroken_store::{LogId, StoreError, View};

use self::protocol::{Answer, Request};
pub use self::remote::{Remote, RemoteError, Who};
use crate::bounds::{
    ACCEPT_PAUSE, CONTROL_CONNECTIONS, CONTROL_PIECE_BYTES, CONTROL_REQUEST_BYTES, CONTROL_SILENCE,
};
use crate::broker_store::BrokerStore;

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
    /// Those that are open, by number.
    connections: Mutex<BTreeMap<u64, UnixStream>>,
}

/// Who removes what a command asks for.
pub trait Operator: Send + Sync + Debug {
    /// Returns when it is gone, on disk as well. An error says why that is not known.
    fn forget(&self, what: Forget) -> Result<(), String>;

    /// Why the store takes nothing any more, if so.
    fn failure(&self) -> Option<&str>;
}

/// Answers questions about a store, whose directory this process has, until it is dropped.
pub fn start(
    store: Arc<dyn BrokerStore>,
    directory: &Path,
    operator: Box<dyn Operator>,
) -> io::Result<Control> {
    let path = directory.join(NAME);
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let shared = Arc::new(Shared {
        listener: listen(directory)?,
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
        for stream in self.shared.connections().values() {
            let _ = stream.shutdown(Shutdown::Both); // the other end may have gone
        }
        // Wakes the thread from accepting: the first where that is an end of it, the second
        // elsewhere. If it cannot be woken it is left alone.
        let socket = SockRef::from(&self.shared.listener);
        let woken = socket.shutdown(Shutdown::Both).is_ok();
        if (woken || connect(&self.shared.directory).is_ok())
            && let Some(thread) = self.thread.take()
        {
            let _ = thread.join(); // a panic there ends nothing here
        }
        // What cannot be removed is replaced at the next start.
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
                            // A connection that fails concerns whoever asked.
                            let _ = answer(&stream, store, &*self.operator);
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

    /// None if there are too many, which it is told.
    fn admit(&self, number: u64, mut stream: UnixStream) -> io::Result<Option<UnixStream>> {
        stream.set_read_timeout(Some(CONTROL_SILENCE))?;
        stream.set_write_timeout(Some(CONTROL_SILENCE))?;
        let mut connections = self.connections();
        if connections.len() >= CONTROL_CONNECTIONS {
            drop(connections);
            let busy = Answer::Failed(format!(
                "{CONTROL_CONNECTIONS} other commands are looking at it; try again when one ends"
            ));
            busy.write(&mut stream)?;
            return Ok(None);
        }
        connections.insert(number, stream.try_clone()?);
        Ok(Some(stream))
    }

    fn connections(&self) -> MutexGuard<'_, BTreeMap<u64, UnixStream>> {
        let connections = self.connections.lock();
        connections.unwrap_or_else(PoisonError::into_inner)
    }
}

/// Answers until the other end is gone, silent for too long, or asks what cannot be read.
fn answer(stream: &UnixStream, store: &dyn BrokerStore, operator: &dyn Operator) -> io::Result<()> {
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
            let what = format!("a question has at most {CONTROL_REQUEST_BYTES} bytes");
            return Answer::Failed(what).write(&mut writer);
        }
        let request: Request = match serde_json::from_slice(&line) {
            Ok(request) => request,
            Err(error) => {
                let what =
                    format!("this version of the broker does not know what is asked: {error}");
                Answer::Failed(what).write(&mut writer)?;
                continue;
            }
        };
        let answer = reply(request, store, operator, &mut view);
        answer.unwrap_or_else(Answer::from).write(&mut writer)?;
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
        },
        Request::Forget { what } => {
            // What is asked next is of a moment after it.
            *seen = None;
            let done = operator.forget(what.into());
            done.map_or_else(Answer::Failed, |()| Answer::Done)
        }
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

/// The socket, which nobody else can ever connect to.
fn listen(directory: &Path) -> io::Result<UnixListener> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    // The file takes the mode of the socket where it is bound; elsewhere it is set right after.
    let socket = File::from(OwnedFd::from(socket));
    let mode = || Permissions::from_mode(0o600);
    socket.set_permissions(mode())?;
    let socket = Socket::from(OwnedFd::from(socket));
    with_address(directory, |address| socket.bind(address))?;
    fs::set_permissions(directory.join(NAME), mode())?;
    socket.listen(BACKLOG)?;
    Ok(UnixListener::from(OwnedFd::from(socket)))
}

fn connect(directory: &Path) -> io::Result<UnixStream> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    with_address(directory, |address| socket.connect(address))?;
    Ok(UnixStream::from(OwnedFd::from(socket)))
}

/// The address of the socket. One whose path is too long for an address is reached through an open
/// file of its directory.
fn with_address<T>(
    directory: &Path,
    with: impl FnOnce(&SockAddr) -> io::Result<T>,
) -> io::Result<T> {
    if let Ok(address) = SockAddr::unix(directory.join(NAME)) {
        return with(&address);
    }
    let opened = File::open(directory)?;
    let path = format!("/proc/self/fd/{}/{NAME}", opened.as_raw_fd());
    with(&SockAddr::unix(path)?)
}

const NAME: &str = "control";
/// Connections that the kernel keeps until they are accepted.
const BACKLOG: i32 = 16;
