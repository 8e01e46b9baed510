//! The client's end of the control socket: a snapshot of the running broker's store.

use std::fs;
use std::io::{self, BufRead, BufReader, Read as _};
use std::net::IpAddr;
use std::ops::Range;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use nix::unistd::Uid;
use unbroken_store::{
    Bounds, Chunk, Entry, Kv, Log, LogId, MessageBytes, Page, Pair, RecordError, Revision,
    Selection, Sequence, Space, StoreError, Value,
};

use super::protocol::{Answer, Bytes, Forgotten, Read, Request};
use crate::bounds::CONTROL_PIECE_BYTES;
use crate::stored_access::Change;
use crate::trace::{TraceFilter, TraceLine};

/// A connection to the broker that has a data directory. It reads a snapshot: of the first request,
/// or of the first request after a removal.
#[derive(Debug)]
pub struct Remote {
    directory: PathBuf,
    stream: Mutex<BufReader<UnixStream>>,
}

/// The broker that has a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Who {
    /// Its process id.
    pub process: u32,
    /// Its version.
    pub version: String,
    /// Why its store has failed, if it has.
    pub failure: Option<String>,
    /// Whether it stores nothing: what commands change ends with the process.
    pub in_memory: bool,
}

/// Why a broker cannot be queried.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RemoteError {
    /// This user is not allowed to.
    #[error(
        "the broker of {} answers only its own user ({owner}) and root, not user {user}; run the \
         command as that user: sudo -u '#{owner}' unbroken …",
        directory.display()
    )]
    NotPermitted {
        /// The broker's directory.
        directory: PathBuf,
        /// Users that are allowed to.
        owner: u32,
        /// This user.
        user: u32,
    },
    /// The connection failed.
    #[error("cannot query the broker of {}: {source}", directory.display())]
    Io {
        /// The broker's directory.
        directory: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

/// Why a broker has not reloaded its configuration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReloadError {
    /// The configuration cannot be used, or the broker is ending. Nothing was changed.
    #[error("{0}")]
    Refused(String),
    /// The broker cannot be asked.
    #[error("{0}")]
    Unanswered(#[from] StoreError),
}

impl RemoteError {
    fn new(directory: &Path, source: io::Error) -> Self {
        let directory = directory.to_owned();
        if source.kind() == io::ErrorKind::PermissionDenied
            && let Ok(socket) = fs::symlink_metadata(directory.join(super::NAME))
        {
            let (owner, user) = (socket.uid(), Uid::effective().as_raw());
            if owner != user {
                return Self::NotPermitted {
                    directory,
                    owner,
                    user,
                };
            }
        }
        Self::Io { directory, source }
    }
}

impl Remote {
    /// Connects to the broker that has this directory; `None` if no broker answers.
    pub fn connect(directory: &Path) -> Result<Option<Self>, RemoteError> {
        use io::ErrorKind::{ConnectionRefused, NotFound};

        match super::connect(directory) {
            Ok(stream) => Ok(Some(Self {
                directory: directory.to_owned(),
                stream: Mutex::new(BufReader::new(stream)),
            })),
            Err(error) if matches!(error.kind(), ConnectionRefused | NotFound) => Ok(None),
            Err(source) => Err(RemoteError::new(directory, source)),
        }
    }

    /// Which broker it is, and its state.
    pub fn who(&self) -> Result<Who, StoreError> {
        match self.ask(&Request::Who)? {
            Answer::Who {
                process,
                version,
                failure,
                in_memory,
            } => Ok(Who {
                process,
                version,
                failure,
                in_memory,
            }),
            other => Err(self.unasked(other)),
        }
    }

    /// Bytes of the store on disk.
    pub fn size_bytes(&self) -> Result<u64, StoreError> {
        match self.ask(&Request::Size)? {
            Answer::Size(bytes) => Ok(bytes),
            other => Err(self.unasked(other)),
        }
    }

    /// The first number of each generation of a log, oldest first.
    pub fn generations(&self, log: LogId) -> Result<Vec<Sequence>, StoreError> {
        match self.ask(&Request::Generations { log: log.0 })? {
            Answer::Generations(firsts) => Ok(firsts.into_iter().map(Sequence).collect()),
            other => Err(self.unasked(other)),
        }
    }

    /// Ends a session, with all messages that wait for it.
    pub fn remove_session(&self, client_id: &str) -> Result<(), StoreError> {
        self.forget(Forgotten::Session(client_id.to_owned()))
    }

    /// Removes the retained message of a topic.
    pub fn remove_retained(&self, topic: &str) -> Result<(), StoreError> {
        self.forget(Forgotten::Retained(topic.to_owned()))
    }

    /// Has the broker read its configuration again, as SIGHUP does. Answers what has changed.
    pub fn reload(&self) -> Result<Vec<String>, ReloadError> {
        match self.ask(&Request::Reload)? {
            Answer::Reloaded(changes) => Ok(changes),
            Answer::Failed(why) => Err(ReloadError::Refused(why)),
            other => Err(self.unasked(other).into()),
        }
    }

    /// Changes users, roles or bans; the error is the broker's.
    pub fn change(&self, change: &Change) -> Result<(), StoreError> {
        let change = change.clone();
        match self.ask(&Request::Change { change })? {
            Answer::Done => Ok(()),
            other => Err(self.unasked(other)),
        }
    }

    /// Addresses that are banned because their logins have failed, each with the milliseconds that
    /// are left.
    pub fn automatic_bans(&self) -> Result<Vec<(IpAddr, u64)>, StoreError> {
        match self.ask(&Request::AutomaticBans)? {
            Answer::AutomaticBans(bans) => Ok(bans),
            other => Err(self.unasked(other)),
        }
    }

    /// Traces for so long, and calls `show` with each step; it goes on while that returns true.
    pub fn trace(
        &self,
        filter: &TraceFilter,
        time: Duration,
        mut show: impl FnMut(&TraceLine) -> bool,
    ) -> Result<(), StoreError> {
        let text = |name: &Option<Arc<str>>| name.as_ref().map(ToString::to_string);
        let request = Request::Trace {
            client: text(&filter.client_id),
            user: text(&filter.user),
            topic: text(&filter.topic),
            payload_bytes: filter.payload_bytes,
            ms: u64::try_from(time.as_millis()).unwrap_or(u64::MAX),
        };
        match self.ask(&request)? {
            Answer::Done => {}
            other => return Err(self.unasked(other)),
        }
        loop {
            match self.next_answer(Ok(()))? {
                Answer::Traced(line) if show(&line) => {}
                Answer::Traced(_) | Answer::Done => return Ok(()),
                other => return Err(self.unasked(other)),
            }
        }
    }

    fn forget(&self, what: Forgotten) -> Result<(), StoreError> {
        match self.ask(&Request::Forget { what })? {
            Answer::Done => Ok(()),
            other => Err(self.unasked(other)),
        }
    }

    fn ask(&self, request: &Request) -> Result<Answer, StoreError> {
        let mut stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        let written = request.write(stream.get_mut());
        drop(stream);
        self.next_answer(written)
    }

    /// The next line, after a request that was `written`.
    fn next_answer(&self, written: io::Result<()>) -> Result<Answer, StoreError> {
        let mut stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        let mut line = Vec::new();
        // Read even after a failed write: a broker that refuses sends the reason first, and then
        // closes.
        let mut bounded = (&mut *stream).take(ANSWER_BYTES_MAX);
        let read = bounded.read_until(b'\n', &mut line);
        if line.last() != Some(&b'\n') {
            let ended = "the broker closed the connection: it is ending, or the connection \
                         was idle for too long";
            let error = written.and(read).err();
            return Err(self.failed(error.unwrap_or_else(|| io::Error::other(ended))));
        }
        match serde_json::from_slice(&line) {
            Ok(answer) => Ok(answer),
            Err(error) => Err(self.failed(error.into())),
        }
    }

    fn read_range(
        &self,
        log: LogId,
        range: Range<Sequence>,
        wanted: Option<&Selection>,
        bytes_max: usize,
    ) -> Result<Chunk, StoreError> {
        let read = Read::new(log, range.clone(), wanted, bytes_max);
        let request = Request::Read(read);
        if let Some(wanted) = wanted
            && !request.fits()
        {
            // Filters beyond the limit of a request are applied here.
            let mut all = self.read_range(log, range, None, CONTROL_PIECE_BYTES)?;
            let matcher = wanted.matcher();
            all.entries
                .retain(|entry| matcher.matches(entry.message.topic()));
            return Ok(all);
        }
        match self.ask(&request)? {
            Answer::Chunk { messages, next } => {
                let entries = messages.into_iter().map(|entry| {
                    let message = MessageBytes::parse(entry.message.0)?;
                    let sequence = Sequence(entry.number);
                    Ok(Entry { sequence, message })
                });
                let entries = entries.collect::<Result<_, RecordError>>();
                let entries = entries
                    .map_err(|error| StoreError::damaged(format_args!("log {log}"), error))?;
                let next = Sequence(next);
                Ok(Chunk { entries, next })
            }
            other => Err(self.unasked(other)),
        }
    }

    /// For an answer that is an error, or belongs to another request.
    fn unasked(&self, answer: Answer) -> StoreError {
        match answer {
            Answer::Damaged { place, what } => StoreError::Damaged { place, what },
            Answer::Failed(what) => self.failed(io::Error::other(what)),
            _ => self.failed(io::Error::other("the broker answered another request")),
        }
    }

    fn failed(&self, error: io::Error) -> StoreError {
        let place = format!("the broker that has {}", self.directory.display());
        StoreError::io("asking", place, error)
    }
}

impl Log for &Remote {
    fn logs(&self) -> Result<Vec<LogId>, StoreError> {
        match self.ask(&Request::Logs)? {
            Answer::Logs(logs) => Ok(logs.into_iter().map(LogId).collect()),
            other => Err(self.unasked(other)),
        }
    }

    fn bounds(&self, log: LogId) -> Result<Bounds, StoreError> {
        match self.ask(&Request::Bounds { log: log.0 })? {
            Answer::Bounds { first, next, .. } => Ok(Bounds {
                first: Sequence(first),
                next: Sequence(next),
            }),
            other => Err(self.unasked(other)),
        }
    }

    fn left_out(&self, log: LogId) -> Result<Vec<Range<Sequence>>, StoreError> {
        match self.ask(&Request::Bounds { log: log.0 })? {
            Answer::Bounds { left_out, .. } => {
                let left_out = left_out.into_iter();
                Ok(left_out
                    .map(|(from, end)| Sequence(from)..Sequence(end))
                    .collect())
            }
            other => Err(self.unasked(other)),
        }
    }

    fn read(
        &self,
        log: LogId,
        range: Range<Sequence>,
        bytes_max: usize,
    ) -> Result<Chunk, StoreError> {
        self.read_range(log, range, None, bytes_max)
    }

    fn read_matching(
        &self,
        log: LogId,
        range: Range<Sequence>,
        wanted: &Selection,
        bytes_max: usize,
    ) -> Result<Chunk, StoreError> {
        self.read_range(log, range, Some(wanted), bytes_max)
    }
}

impl Kv for &Remote {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Value>, StoreError> {
        let key = Bytes(key.to_vec());
        let space = space.into();
        match self.ask(&Request::Get { space, key })? {
            Answer::Value(value) => Ok(value.map(|value| Value {
                revision: Revision(value.revision),
                bytes: value.value.0,
            })),
            other => Err(self.unasked(other)),
        }
    }

    fn scan(
        &self,
        space: Space,
        prefix: &[u8],
        after: Option<&[u8]>,
        bytes_max: usize,
    ) -> Result<Page, StoreError> {
        let request = Request::Scan {
            space: space.into(),
            prefix: Bytes(prefix.to_vec()),
            after: after.map(|after| Bytes(after.to_vec())),
            bytes_max,
        };
        match self.ask(&request)? {
            Answer::Page { pairs, more } => {
                let pairs = pairs.into_iter().map(|pair| Pair {
                    key: pair.key.0,
                    value: Value {
                        revision: Revision(pair.revision),
                        bytes: pair.value.0,
                    },
                });
                let pairs = pairs.collect();
                Ok(Page { pairs, more })
            }
            other => Err(self.unasked(other)),
        }
    }
}

/// More than the largest message or value in base64, and than the bytes of one read.
const ANSWER_BYTES_MAX: u64 = 512 * 1024 * 1024;
