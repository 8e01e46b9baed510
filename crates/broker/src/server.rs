//! The whole broker: starts the threads, passes changes to them, and waits for their end.
//!
//! ```text
//! server ────────────┐            ┌── verifiers (passwords)
//!                    ▼            ▼
//! clients ──▶ shard thread ◀───▶ shard thread …     each arrow a channel
//! ```
//!
//! Invariants:
//! - There is never half a broker: a thread that panics or fails ends the process
//!   ([`ServerError::Thread`]).
//!
//! Deliberately absent: requests of other threads ([`crate::handle`]), signals and the output of
//! the command ([`crate::serve()`]).

mod shards;
pub(crate) mod wiring;

use std::any::Any;
use std::io;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, UNIX_EPOCH};

use unbroken_broker_core::{LimitsError, PolicyError, Shard, Totals};

use crate::access::AccessError;
use crate::authenticator::{AuthRules, Authenticator, HookError, TokenError, Verifier};
use crate::bounds::{HANDLE_REQUESTS, LISTENERS};
use crate::channel::{DriverEvent, EventSender, event_channel_of};
use crate::config::{Address, Batching, Config, Listener};
use crate::control::Control;
use crate::disk::{ControlError, Disk, DiskError, OpenedStore, memory_control};
use crate::handle::{
    Around, Began, BrokerHandle, InForce, Requests, first_auth_rules, layers_of, listener_limits,
};
use crate::listener::{
    self, Acceptor, ConnectionPermits, Doors, Layers, OpenListener, OpenSocket, OpenedListener,
};
use crate::notice::{Notice, Signal};
use crate::open_files;
use crate::passwords::PasswordFileError;
use crate::shard_thread::{Parts, ShardThread, exchange_final, exchange_initial};
use crate::tls::TlsError;
pub use shards::ServerOptions;
use shards::{access_in_force, new_shards, put_in_force, settings};
use wiring::{Endpoints, Wiring};

/// A running broker. Dropping it stops it at once; [`drain`](Self::drain) closes connections in
/// good order.
#[derive(Debug)]
pub struct Server {
    handle: BrokerHandle,
    listeners: Vec<OpenListener>,
    shards: Vec<EventSender>,
    notices: Receiver<Notice>,
    notify: Sender<Notice>,
    threads: Vec<JoinHandle<()>>,
    shards_running: usize,
    /// Shards that have ended.
    ended: Receiver<ShardThread>,
    /// `None`: all data is in memory. Ends after the shards.
    disk: Option<Disk>,
    /// Of a broker without a disk, if it has one.
    control: Option<Control>,
    /// Why the store has failed, if it has.
    store_failure: Option<String>,
}

/// Why a broker could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// A listener could not be opened.
    #[error("cannot listen on {address}: {source}{}", bind_help(.source))]
    Bind {
        /// The address.
        address: Address,
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
    /// Tokens cannot be verified.
    #[error("{0}")]
    Tokens(#[from] TokenError),
    /// A service cannot be asked.
    #[error("{0}")]
    Hook(#[from] HookError),
    /// Certificates, keys or revocation lists cannot be used.
    #[error("{0}")]
    Tls(#[from] TlsError),
    /// Access rules cannot be compiled.
    #[error("{0}")]
    Policy(#[from] PolicyError),
    /// The configuration's access rules cannot be used.
    #[error("{0}")]
    Access(#[from] AccessError),
    /// The data directory cannot be opened or used.
    #[error("{0}")]
    Disk(#[from] DiskError),
    /// A broker that stores nothing cannot have its control socket.
    #[error("{0}")]
    Control(#[from] ControlError),
    /// The system refused a thread, a poll or a random number.
    #[error("cannot start the broker's threads: {0}")]
    System(#[from] io::Error),
}

/// Why a running broker had to end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// A thread panicked or failed: a bug, or the system took something away.
    #[error("thread {thread} has failed: {reason}; the broker cannot continue without it")]
    Thread {
        /// Its name.
        thread: String,
        /// The panic's or error's message.
        reason: String,
    },
    /// The store has failed. Nothing was acknowledged since.
    #[error("{reason}")]
    Store {
        /// What happened, and what to do.
        reason: String,
    },
}

impl Server {
    /// Opens the listeners and starts the threads.
    pub fn start(config: Config) -> Result<Self, StartError> {
        Self::start_with(config, ServerOptions::default())
    }

    /// The same, with more than a configuration file has.
    pub fn start_with(config: Config, options: ServerOptions) -> Result<Self, StartError> {
        check(&config)?;
        let layers = layers_of(&config.listeners)?;
        let shards = config.broker.shards;
        let count = shards.unwrap_or_else(default_shards).clamp(1, SHARDS_MAX);
        let room = open_files::raise_limit(count);
        open_files::log_limit(room, config.limits.connections_max);
        let directory = config.storage.place();
        let opened = directory.map(|it| OpenedStore::open(&config.storage, &it, count));
        let opened = opened.transpose()?;
        let access = access_in_force(&config, options.access, opened.as_ref())?;
        let policy = access.policy()?;
        let auth_rules = first_auth_rules::<StartError>(&config, access.users())?;
        let opened_listeners = open_all(&config.listeners, &layers)?;
        if let Some(first) = opened_listeners.first() {
            open_files::preallocate_table(&first.socket, config.limits.connections_max, count);
        }
        let listeners = open_listeners(&opened_listeners, &config.listeners);
        let doors = Arc::new(Doors::new(&opened_listeners, &config.listeners));

        let mut wiring = Wiring::new(count)?;
        let to_shards = wiring.event_channels();
        let (authenticators, verifiers) = wiring.authenticators(access.bans())?;
        let listener_limits = listener_limits(&config.listeners);
        let permits = ConnectionPermits::new(room, &config.limits, &listener_limits);
        let permits = Arc::new(permits);
        let first = wiring.endpoints[usize::from(listener::ACCEPTOR_SHARD.0)]
            .poll
            .registry();
        let limits = (Arc::clone(&permits), Arc::clone(access.bans()));
        let acceptor = Acceptor::new(opened_listeners, limits, count, first)?;

        let (notify, notices) = channel();
        let (ended, left) = channel();
        let totals = Arc::new(Totals::new(room, &listener_limits));
        let requests =
            Requests::new(wiring.event_channels_with(|| event_channel_of(HANDLE_REQUESTS)));
        let rules = (access, Arc::clone(&auth_rules));
        let in_force = InForce::new(config.clone(), rules, permits, Arc::clone(&totals), layers);
        let was_killed = opened.as_ref().is_some_and(OpenedStore::was_killed);
        let settings = settings(&config, &auth_rules);
        let began = Began {
            at: UNIX_EPOCH + Duration::from_micros(settings.audit.started_us),
            after_crash: was_killed,
        };
        let around = Around::new(listeners.clone(), notify.clone(), began);
        let handle = BrokerHandle::new(requests, in_force, around);
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
            control: None,
            store_failure: None,
        };
        let ended = ended; // dropped before the server when the start fails
        let mut shards = new_shards(settings, &config, count, &totals, was_killed)?;
        put_in_force(policy.as_ref(), &mut shards);
        server.start_disk(opened, &config, &mut shards, &mut wiring)?;
        let served = (shards, authenticators, acceptor);
        let by = (&auth_rules, &doors, config.broker.batching);
        let mut threads = server.shard_threads(wiring.endpoints, served, by)?;
        exchange_initial(&mut threads);
        server.spawn_verifiers(verifiers)?;
        server.spawn_shards(threads, &ended)?;
        Ok(server)
    }

    /// The threads of these shards, which do not run yet.
    fn shard_threads(
        &self,
        endpoints: Vec<Endpoints>,
        (shards, authenticators, acceptor): (Vec<Shard>, Vec<Authenticator>, Acceptor),
        (auth_rules, doors, batching): (&Arc<AuthRules>, &Arc<Doors>, Batching),
    ) -> Result<Vec<ShardThread>, StartError> {
        let mut acceptor = Some(acceptor);
        let mut threads = Vec::new();
        for ((endpoints, authenticator), shard) in
            endpoints.into_iter().zip(authenticators).zip(shards)
        {
            let disk = self.disk.as_ref();
            threads.push(ShardThread::new(Parts {
                shard,
                store_handle: disk.and_then(|disk| disk.store_handle(endpoints.id)),
                endpoints,
                acceptor: acceptor.take(),
                authenticator,
                auth_rules: Arc::clone(auth_rules),
                doors: Arc::clone(doors),
                is_batching_adaptive: batching == Batching::Adaptive,
            })?);
        }
        Ok(threads)
    }

    /// Restores the shards and starts the store's threads; without a store the control socket, if
    /// there is to be one.
    fn start_disk(
        &mut self,
        opened: Option<OpenedStore>,
        config: &Config,
        shards: &mut [Shard],
        wiring: &mut Wiring,
    ) -> Result<(), StartError> {
        let Some(mut opened) = opened else {
            let directory = config.storage.memory_control();
            let start = |directory| {
                let access = Arc::clone(self.handle.access());
                let (requests, notify) = (self.handle.requests(), self.notifier());
                memory_control::start(directory, requests, access, notify)
            };
            self.control = directory.map(start).transpose()?;
            return Ok(());
        };
        opened.restore(shards, &config.limits)?;
        let (stored, read) = (wiring.event_channels(), wiring.event_channels());
        let commands = (self.handle.requests(), Arc::clone(self.handle.access()));
        let disk = opened.start(&config.storage, stored, read, commands, self.notifier())?;
        self.disk = Some(disk);
        Ok(())
    }

    fn spawn_verifiers(&mut self, verifiers: Vec<Verifier>) -> io::Result<()> {
        for (number, verifier) in verifiers.into_iter().enumerate() {
            self.spawn(format!("passwords-{number}"), None, || {
                verifier.run();
                Ok(())
            })?;
        }
        Ok(())
    }

    /// The first one last, because it accepts connections.
    fn spawn_shards(
        &mut self,
        threads: Vec<ShardThread>,
        ended: &Sender<ShardThread>,
    ) -> io::Result<()> {
        for (id, thread) in threads.into_iter().enumerate().rev() {
            let ended = ended.clone();
            self.spawn(format!("shard-{id}"), Some(Notice::ShardEnded), move || {
                let _ = ended.send(thread.run()?); // the server takes it when it is dropped
                Ok(())
            })?;
            self.shards_running += 1;
        }
        Ok(())
    }

    /// The open listeners, in the order of the configuration, each once for each of its addresses.
    pub fn listeners(&self) -> &[OpenListener] {
        &self.listeners
    }

    /// Requests from other threads.
    pub fn handle(&self) -> &BrokerHandle {
        &self.handle
    }

    /// The store has failed: reports it to every shard, to commands that read the directory, and to
    /// the next start.
    pub(crate) fn store_failed(&mut self, reason: String) {
        if self.store_failure.is_some() {
            return; // the first error is the one that counts
        }
        let cause: Arc<str> = reason.as_str().into();
        for shard in &mut self.shards {
            let cause = Arc::clone(&cause);
            shard.send(DriverEvent::StoreFailed { cause });
        }
        if let Some(disk) = &self.disk {
            disk.failure().note(&reason);
        }
        self.store_failure = Some(reason);
    }

    /// Stops accepting, closes every connection, and waits until all peers have received what was
    /// sent to them, or the deadline.
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
                // Asked a second time: end now.
                Some(Notice::Signal(Signal::Terminate)) | None => break,
                Some(
                    Notice::ShardEnded
                    | Notice::FilesChanged { .. }
                    | Notice::Reload(_)
                    | Notice::Signal(Signal::Reload),
                ) => {}
            }
        }
        self.end().map_err(|reason| ServerError::Store { reason })
    }

    /// Ends every thread, and reports whether everything is stored.
    fn end(&mut self) -> Result<(), String> {
        self.begin_drain(Duration::ZERO);
        // Until each shard has ended, by return or by panic.
        let mut ended: Vec<_> = self.ended.iter().collect();
        exchange_final(&mut ended);
        drop(ended);
        for thread in self.threads.drain(..) {
            let _ = thread.join(); // a panic was reported by a notice
        }
        drop(self.control.take());
        let ended = self.disk.take().map_or(Ok(()), |mut disk| disk.end());
        self.store_failure.take().map_or(ended, Err)
    }

    /// Waits for the next notice; `None` if none can come.
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
            shard.send(DriverEvent::Drain { until });
        }
    }

    /// Starts a thread that sends a notice when it ends, panics or fails.
    fn spawn(
        &mut self,
        name: String,
        at_end: Option<Notice>,
        run: impl FnOnce() -> io::Result<()> + Send + 'static,
    ) -> io::Result<()> {
        let notify = self.notify.clone();
        let thread = name.clone();
        // After a panic the closure's values are gone and the process ends, so nothing inconsistent
        // is seen.
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
                let _ = notify.send(notice); // fails only when the server was dropped
            }
        };
        self.threads
            .push(thread::Builder::new().name(name).spawn(guarded)?);
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.end(); // a caller that needs the result has called `drain`
    }
}

fn check(config: &Config) -> Result<(), StartError> {
    config.limits.check()?;
    let count = config.listeners.len();
    if count > usize::from(LISTENERS) {
        return Err(StartError::TooManyListeners { count });
    }
    Ok(())
}

fn open_all(listeners: &[Listener], layers: &[Layers]) -> Result<Vec<OpenedListener>, StartError> {
    let mut opened = Vec::new();
    for (number, (listener, layers)) in (0..).zip(listeners.iter().zip(layers)) {
        let sockets = OpenSocket::open_all(listener);
        for socket in sockets.map_err(|(address, source)| StartError::Bind { address, source })? {
            opened.push(OpenedListener {
                listener: number,
                address: socket.address()?,
                socket,
                layers: layers.clone(),
            });
        }
    }
    Ok(opened)
}

fn open_listeners(opened: &[OpenedListener], listeners: &[Listener]) -> Vec<OpenListener> {
    let open = |opened: &OpenedListener| {
        let listener = &listeners[usize::from(opened.listener)];
        OpenListener {
            address: opened.address.clone(),
            number: opened.listener,
            protocol: listener.protocol,
            name: listener.name.clone(),
            admits: listener.admits(),
            trusted_proxies: listener.trusted_proxies.clone(),
        }
    };
    opened.iter().map(open).collect()
}

/// One shard for each two cores: the other core is needed for the kernel's side of the connections
/// and, on a small machine, for the clients. With more shards more messages cross between shards
/// (docs/scaling.md).
fn default_shards() -> u8 {
    shards_for(thread::available_parallelism().map_or(1, NonZeroUsize::get))
}

fn shards_for(cores: usize) -> u8 {
    u8::try_from(cores.div_ceil(2)).map_or(SHARDS_MAX, |shards| shards.min(SHARDS_MAX))
}

const SHARDS_MAX: u8 = 64;

/// The message of a panic.
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
            "; another program, perhaps another broker, uses this port: stop it or choose another \
             port (-p PORT; 0 for any free port)"
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
    fn a_thread_that_panics_or_fails_sends_a_notice_with_the_reason() {
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
    fn a_port_in_use_is_reported_with_a_remedy() {
        let mut config = config();
        let server = Server::start(config.clone()).unwrap();
        let address = server.listeners()[0].address.tcp();
        config.listeners[0].port = address.unwrap().port();
        let error = Server::start(config).unwrap_err().to_string();
        assert!(
            error.contains("cannot listen on 127.0.0.1:") && error.contains("-p PORT"),
            "{error}"
        );
    }
}
