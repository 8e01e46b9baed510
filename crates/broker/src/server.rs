//! The broker as a whole: threads are started here, told of changes, and waited for.
//!
//! ```text
//! server ────────────┐            ┌── verifier (passwords)
//!                    ▼            ▼
//! clients ──▶ shard thread ◀───▶ shard thread …     each arrow a feed
//! ```
//!
//! Invariants:
//! - There is never half a broker: a thread that panics or fails ends the whole, loudly
//!   ([`ServerError::Thread`]).
//!
//! Deliberately absent: what other threads ask of it ([`crate::handle`]), signals and the command
//! line's words ([`crate::serve()`]).

use std::any::Any;
use std::io;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use mio::Poll;
use mio::net::TcpListener;
use unbroken_broker_core::{LimitsError, Settings, Shard, ShardId, ShardOptions, Totals};

use crate::authenticator::authenticator;
use crate::bounds::{FEED_LETTERS, HANDLE_REQUESTS, LISTENERS};
use crate::config::{Batching, Config, Listener};
use crate::disk::{Disk, DiskError, Found};
use crate::handle::{BrokerHandle, InForce, Requests, doors, listener_limits};
use crate::listener::{self, Acceptor, Seats};
use crate::mailbox::{
    Doorbell, Incoming, Outgoing, Outside, Parcel, feed, outside_feed, outside_feed_for,
};
use crate::open_files;
use crate::passwords::PasswordFileError;
use crate::shard_thread::{BELL, Parts, ShardThread, introduce, settle};
use crate::signals::Signal;

/// A running broker. Dropping it stops it at once; [`drain`](Self::drain) lets clients go in peace.
#[derive(Debug)]
pub struct Server {
    handle: BrokerHandle,
    listeners: Vec<OpenListener>,
    shards: Vec<Outside>,
    notices: Receiver<Notice>,
    notify: Sender<Notice>,
    threads: Vec<JoinHandle<()>>,
    shards_running: usize,
    /// What is left of the shards that have ended.
    ended: Receiver<ShardThread>,
    /// `None`: everything is in memory. Ends behind the shards.
    disk: Option<Disk>,
    /// Why nothing can be stored any more, if so.
    store_failure: Option<String>,
}

/// A listener that is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenListener {
    /// Where it listens; never port 0.
    pub address: SocketAddr,
    /// As configured.
    pub name: Option<String>,
    /// Who may come in, in words.
    pub admits: &'static str,
}

/// Why a broker could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// A listener could not be opened.
    #[error("cannot listen on {address}: {source}{}", bind_help(.source))]
    Bind {
        /// Where it was to listen.
        address: SocketAddr,
        /// Why not.
        source: io::Error,
    },
    /// More listeners than can be numbered.
    #[error("{count} listeners are configured; there can be at most {LISTENERS}")]
    TooManyListeners {
        /// How many.
        count: usize,
    },
    /// A limit is impossible.
    #[error("{0}")]
    Limits(#[from] LimitsError),
    /// A password file cannot be used.
    #[error("{0}")]
    Passwords(#[from] PasswordFileError),
    /// What outlives the broker cannot be opened or gone on with.
    #[error("{0}")]
    Disk(#[from] DiskError),
    /// The system gave no thread, poll or random number.
    #[error("cannot start the broker's threads: {0}")]
    System(#[from] io::Error),
}

/// Why a running broker had to end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// One of its threads did. This is a bug, or the system took something away.
    #[error("thread {thread} has failed: {reason}; the broker cannot go on without it")]
    Thread {
        /// Its name.
        thread: String,
        /// The panic's or error's message.
        reason: String,
    },
    /// Nothing can be stored or read any more. Nothing was acknowledged since.
    #[error("{reason}")]
    Store {
        /// What happened, and what to do.
        reason: String,
    },
}

/// What the threads, and the signals, tell the one who waits.
#[derive(Debug)]
pub(crate) enum Notice {
    ShardEnded,
    Failed { thread: String, reason: String },
    StoreFailed { reason: String },
    StoreDamaged { reason: String },
    Signal(Signal),
}

impl Server {
    /// Opens the listeners and starts the threads.
    pub fn start(config: Config) -> Result<Self, StartError> {
        config.limits.check()?;
        if config.listeners.len() > usize::from(LISTENERS) {
            return Err(StartError::TooManyListeners {
                count: config.listeners.len(),
            });
        }
        let doors = Arc::new(doors(&config.listeners)?);
        let count = config
            .broker
            .shards
            .unwrap_or_else(default_shards)
            .clamp(1, SHARDS_MAX);
        let room = open_files::raise_limit(count);
        open_files::tell(room, config.limits.connections_max);
        let mut found = match config.storage.place() {
            Some(directory) => Some(Found::open(&config.storage, &directory, count)?),
            None => None,
        };
        let sockets = bind_all(&config.listeners)?;
        if let Some((socket, _)) = sockets.first() {
            open_files::make_table(socket, config.limits.connections_max, count);
        }
        let listeners = sockets
            .iter()
            .zip(&config.listeners)
            .map(|((_, address), listener)| OpenListener {
                address: *address,
                name: listener.name.clone(),
                admits: listener.admits(),
            })
            .collect();

        let mut wiring = Wiring::new(count)?;
        let to_shards = wiring.outside_feeds();
        let (askers, verifier) = authenticator(wiring.outside_feeds());
        let seats = Seats::new(room, &config.limits, &listener_limits(&config.listeners));
        let seats = Arc::new(seats);
        let first = wiring.ends[usize::from(listener::HOME.0)].poll.registry();
        let acceptor = Acceptor::new(sockets, Arc::clone(&seats), count, first)?;

        let (notify, notices) = channel();
        let (ended, left) = channel();
        let listener_limits = listener_limits(&config.listeners);
        let totals = Arc::new(Totals::new(room, &listener_limits));
        let requests = Requests::new(wiring.feeds(|| outside_feed_for(HANDLE_REQUESTS)));
        let in_force = InForce::new(config.clone(), seats, Arc::clone(&totals));
        let handle = BrokerHandle::new(requests.clone(), in_force);
        let mut server = Self {
            handle,
            listeners,
            shards: to_shards,
            notices,
            notify,
            threads: Vec::new(),
            shards_running: 0,
            ended: left,
            disk: None,
            store_failure: None,
        };
        // Behind the server, so that it is gone when a server that did not start is dropped.
        let ended = ended;
        let start = Instant::now();
        let mut shards = Vec::new();
        let mut settings = settings(&config);
        settings.audit.after_crash = found.as_ref().is_some_and(Found::was_killed);
        for id in (0..count).map(ShardId) {
            shards.push(Shard::new(ShardOptions {
                id,
                shards: count,
                limits: config.limits.clone(),
                settings: settings.clone(),
                totals: Arc::clone(&totals),
                seed: getrandom::u64().map_err(io::Error::other)?,
                start,
            }));
        }
        if let Some(mut found) = found.take() {
            found.restore(&mut shards, &config.limits)?;
            let (stored, read) = (wiring.outside_feeds(), wiring.outside_feeds());
            let notify = server.notify.clone();
            let disk = found.start(&config.storage, stored, read, requests, notify)?;
            server.disk = Some(disk);
        }
        let mut threads = Vec::new();
        let mut acceptor = Some(acceptor);
        for ((ends, authenticator), shard) in wiring.ends.into_iter().zip(askers).zip(shards) {
            threads.push(ShardThread::new(Parts {
                shard,
                poll: ends.poll,
                bell: ends.bell,
                from_shards: ends.from_shards,
                to_shards: ends.to_shards,
                from_others: ends.from_others,
                acceptor: acceptor.take(),
                authenticator,
                doors: Arc::clone(&doors),
                desk: server.disk.as_ref().and_then(|disk| disk.desk(ends.id)),
                is_batching_adaptive: config.broker.batching == Batching::Adaptive,
            })?);
        }
        introduce(&mut threads);
        server.spawn("passwords".to_owned(), None, || {
            verifier.run();
            Ok(())
        })?;
        // The first one last, since it lets clients in.
        for (id, thread) in (0..count).zip(threads).rev() {
            let ended = ended.clone();
            server.spawn(format!("shard-{id}"), Some(Notice::ShardEnded), move || {
                let _ = ended.send(thread.run()?); // the server takes it when it is dropped
                Ok(())
            })?;
            server.shards_running += 1;
        }
        Ok(server)
    }

    /// What is open, in the order of the configuration.
    pub fn listeners(&self) -> &[OpenListener] {
        &self.listeners
    }

    /// What other threads ask and steer the broker with.
    pub fn handle(&self) -> &BrokerHandle {
        &self.handle
    }

    /// Nothing can be stored any more: tells every shard, whoever looks into the directory, and the
    /// next start.
    pub(crate) fn store_failed(&mut self, reason: String) {
        if self.store_failure.is_some() {
            return; // the first error is the one that counts
        }
        let cause: Arc<str> = reason.as_str().into();
        for shard in &mut self.shards {
            let cause = Arc::clone(&cause);
            shard.send(Parcel::StoreFailed { cause });
        }
        if let Some(disk) = &self.disk {
            disk.failure().note(&reason);
        }
        self.store_failure = Some(reason);
    }

    /// Stops accepting, says goodbye to every client, and waits until all have taken what was sent
    /// to them, or the time is over.
    pub fn drain(mut self, deadline: Duration) -> Result<(), ServerError> {
        self.begin_drain(deadline);
        while self.shards_running > 0 {
            match self.next_notice() {
                Some(Notice::Failed { thread, reason }) => {
                    return Err(ServerError::Thread { thread, reason });
                }
                Some(Notice::StoreFailed { reason } | Notice::StoreDamaged { reason }) => {
                    self.store_failed(reason);
                }
                // Asked a second time: not a moment longer.
                Some(Notice::Signal(Signal::Terminate)) | None => break,
                Some(Notice::ShardEnded | Notice::Signal(Signal::Reload)) => {}
            }
        }
        self.end().map_err(|reason| ServerError::Store { reason })
    }

    /// Lets every thread come to its end, and says whether all that was to be stored is.
    fn end(&mut self) -> Result<(), String> {
        self.begin_drain(Duration::ZERO);
        // Until each shard has ended, in whatever way.
        let mut ended: Vec<_> = self.ended.iter().collect();
        settle(&mut ended);
        drop(ended);
        for thread in self.threads.drain(..) {
            let _ = thread.join(); // a panic has been told as a notice
        }
        let ended = self.disk.take().map_or(Ok(()), |mut disk| disk.end());
        self.store_failure.take().map_or(ended, Err)
    }

    /// Waits for what happens next; `None` if nothing can.
    pub(crate) fn next_notice(&mut self) -> Option<Notice> {
        let notice = self.notices.recv().ok();
        if matches!(notice, Some(Notice::ShardEnded)) {
            self.shards_running -= 1;
        }
        notice
    }

    pub(crate) fn notifier(&self) -> Sender<Notice> {
        self.notify.clone()
    }

    fn begin_drain(&mut self, deadline: Duration) {
        let until = Instant::now() + deadline;
        for shard in &mut self.shards {
            shard.send(Parcel::Drain { until });
        }
    }

    /// Starts a thread whose end is a notice, and whose panic or error is one too.
    fn spawn(
        &mut self,
        name: String,
        at_end: Option<Notice>,
        run: impl FnOnce() -> io::Result<()> + Send + 'static,
    ) -> io::Result<()> {
        let notify = self.notify.clone();
        let thread = name.clone();
        // What the closure owned is gone after a panic, and the process ends: nothing broken is
        // seen.
        let guarded = move || {
            let notice = match catch_unwind(AssertUnwindSafe(run)) {
                Ok(Ok(())) => at_end,
                Ok(Err(error)) => Some(Notice::Failed {
                    thread,
                    reason: error.to_string(),
                }),
                Err(panic) => Some(Notice::Failed {
                    thread,
                    reason: message(&*panic),
                }),
            };
            if let Some(notice) = notice {
                let _ = notify.send(notice); // nobody waits any more: the server was dropped
            }
        };
        self.threads
            .push(thread::Builder::new().name(name).spawn(guarded)?);
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.end(); // whoever wants to know has drained it
    }
}

/// The feeds and polls of all shard threads while they are being connected.
struct Wiring {
    ends: Vec<Ends>,
}

/// What one shard thread gets of them.
struct Ends {
    id: ShardId,
    poll: Poll,
    bell: Arc<Doorbell>,
    from_shards: Vec<Option<Incoming>>,
    to_shards: Vec<Option<Outgoing>>,
    from_others: Vec<Incoming>,
}

impl Wiring {
    /// Connects each shard with each other.
    fn new(shards: u8) -> io::Result<Self> {
        let mut ends = Vec::with_capacity(usize::from(shards));
        for id in (0..shards).map(ShardId) {
            let poll = Poll::new()?;
            let bell = Doorbell::new(poll.registry(), BELL)?;
            ends.push(Ends {
                id,
                poll,
                bell,
                from_shards: (0..shards).map(|_| None).collect(),
                to_shards: (0..shards).map(|_| None).collect(),
                from_others: Vec::new(),
            });
        }
        for from in 0..ends.len() {
            for to in (0..ends.len()).filter(|to| *to != from) {
                let (outgoing, incoming) = feed(FEED_LETTERS);
                ends[from].to_shards[to] = Some(outgoing);
                ends[to].from_shards[from] = Some(incoming);
            }
        }
        Ok(Self { ends })
    }

    /// A feed to each shard for a thread that is not one.
    fn outside_feeds(&mut self) -> Vec<Outside> {
        self.feeds(outside_feed)
    }

    fn feeds(&mut self, feed: impl Fn() -> (Outside, Incoming)) -> Vec<Outside> {
        let feeds = self.ends.iter_mut().map(|ends| {
            let (outgoing, incoming) = feed();
            ends.from_others.push(incoming);
            outgoing
        });
        feeds.collect()
    }
}

fn bind_all(listeners: &[Listener]) -> Result<Vec<(TcpListener, SocketAddr)>, StartError> {
    let bind = |listener: &Listener| {
        let address = listener.address();
        listener::bind(address)
            .and_then(|socket| {
                let actual = socket.local_addr()?;
                Ok((socket, actual))
            })
            .map_err(|source| StartError::Bind { address, source })
    };
    listeners.iter().map(bind).collect()
}

fn settings(config: &Config) -> Settings {
    let mut settings = Settings::default();
    // Whole seconds up to 65,535: the configuration allows no more.
    settings.keep_alive_max_s = config
        .mqtt
        .server_keep_alive
        .map(|keep_alive| u16::try_from(keep_alive.as_secs()).unwrap_or(u16::MAX));
    settings.sys_interval = config.broker.sys_interval;
    settings.durable = config.storage.place().is_some();
    settings.audit.enabled = config.audit.stamping;
    settings.audit.rules.clone_from(&config.audit.rules);
    settings.audit.prefix.clone_from(&config.audit.prefix);
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
    // A clock before 1970 tells nothing; epochs then count from 0.
    let started = since_1970.unwrap_or_default().as_micros();
    settings.audit.started_us = u64::try_from(started).unwrap_or(0);
    settings
}

/// One shard for each two cores: the kernel's side of the same connections, and the clients of a
/// small machine, need the other. Measured on two cores with the load on the same machine
/// (docs/scaling.md): a second shard makes nearly every load dearer, up to twice, because half of
/// the messages change shards, and hardly more of them go through.
fn default_shards() -> u8 {
    shards_for(thread::available_parallelism().map_or(1, NonZeroUsize::get))
}

fn shards_for(cores: usize) -> u8 {
    u8::try_from(cores.div_ceil(2)).map_or(SHARDS_MAX, |shards| shards.min(SHARDS_MAX))
}

const SHARDS_MAX: u8 = 64;

/// What a panic said.
fn message(panic: &(dyn Any + Send)) -> String {
    if let Some(text) = panic.downcast_ref::<&str>() {
        (*text).to_owned()
    } else if let Some(text) = panic.downcast_ref::<String>() {
        text.clone()
    } else {
        "it panicked without a message".to_owned()
    }
}

fn bind_help(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            "; another program listens there, perhaps another broker: stop it or take another port \
             (-p PORT, or 0 for any that is free)"
        }
        io::ErrorKind::PermissionDenied => {
            "; ports below 1024 need a privilege: choose another port (-p PORT)"
        }
        io::ErrorKind::AddrNotAvailable => {
            "; no interface of this machine has this address (--bind ADDR)"
        }
        _ => "",
    }
}

// Limits that the types here rely on.
const _: () = assert!(LISTENERS < u16::MAX, "a listener's position is a u16");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Change;

    fn listener(port: u16, allow_anonymous: bool) -> Listener {
        Listener {
            port,
            allow_anonymous,
            ..Listener::default()
        }
    }

    fn config() -> Config {
        let mut config = Config {
            listeners: vec![listener(0, true)],
            ..Config::default()
        };
        config.storage.in_memory = true;
        config
    }

    #[test]
    fn there_is_a_shard_for_each_two_cores_and_at_least_one() {
        for (cores, shards) in [(1, 1), (2, 1), (3, 2), (4, 2), (64, 32), (1_000, 64)] {
            assert_eq!(shards_for(cores), shards, "{cores}");
        }
    }

    #[test]
    fn a_thread_that_panics_or_fails_is_a_notice_with_its_words() {
        let mut server = Server::start(config()).unwrap();
        server
            .spawn("doomed".to_owned(), None, || panic!("table index {}", 7))
            .unwrap();
        match server.next_notice() {
            Some(Notice::Failed { thread, reason }) => {
                assert_eq!((&*thread, &*reason), ("doomed", "table index 7"));
            }
            other => panic!("{other:?}"),
        }
        server
            .spawn("starved".to_owned(), None, || {
                Err(io::Error::other("no descriptors"))
            })
            .unwrap();
        match server.next_notice() {
            Some(Notice::Failed { thread, reason }) => {
                assert_eq!((&*thread, &*reason), ("starved", "no descriptors"));
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_reload_is_compared_with_what_is_in_force_not_with_what_was_read_last() {
        let server = Server::start(config()).unwrap();
        let reload = |sys_interval_s, drain_timeout_s| {
            let mut read = config();
            read.broker.sys_interval = Some(Duration::from_secs(sys_interval_s));
            read.broker.drain_timeout = Duration::from_secs(drain_timeout_s);
            let changed = server.handle().reload(read).unwrap();
            changed.iter().map(Change::to_string).collect::<Vec<_>>()
        };
        let waits = r#"broker.sys_interval: "10s" -> "5s" (needs a restart)"#;
        let applied = r#"broker.drain_timeout: "5s" -> "1s" (applied)"#;
        assert_eq!(reload(5, 1), [waits, applied]);
        assert_eq!(reload(5, 1), [waits], "it still waits");
        assert_eq!(reload(10, 1), [""; 0], "10 s is what runs");
    }

    #[test]
    fn a_taken_port_says_so_and_what_to_do() {
        let mut config = config();
        let server = Server::start(config.clone()).unwrap();
        config.listeners[0].port = server.listeners()[0].address.port();
        let told = Server::start(config).unwrap_err().to_string();
        assert!(
            told.contains("cannot listen on 127.0.0.1:") && told.contains("-p PORT"),
            "{told}"
        );
    }
}
