//! Listening sockets, and the acceptor, which runs on the first shard's thread.
//!
//! The acceptor gives each connection to the next shard in turn. That shard reads the CONNECT and
//! moves the connection to the shard of its session. An own thread for the acceptor would cost a
//! wake-up per connection (`docs/scaling.md`).
//!
//! Invariants:
//! - Every open connection holds a [`ConnectionPermit`] from accept to close, whichever shard it
//!   moves to.
//! - When the system has no descriptors or memory left, the acceptor logs it once and retries after
//!   a pause; connected clients are served meanwhile.
//! - A turn accepts at most [`ACCEPTS`] connections, so that connected clients do not wait for many
//!   new ones.
//!
//! Deliberately absent: the refusal at `connections_max`, `max_connections` and the limit of open
//! files. It needs the client's version and its client id, because a client that reconnects
//! replaces its own connection; so the shard refuses, and closes connections without a CONNECT.
//! This module only limits the connections beyond that, which are not admitted yet or are being
//! refused. `SO_REUSEPORT`, a listening socket for each shard: see `docs/scaling.md`.

#[cfg(test)]
pub(crate) mod tests;

use std::io::{self, ErrorKind};
use std::mem;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use mio::net::{TcpListener, TcpStream};
use mio::{Interest, Registry, Token};
use socket2::{Domain, Protocol, Socket, Type};
use unbroken_broker_core::{Limits, Peer, Room, ShardId};

use crate::bounds::{ACCEPT_PAUSE, ACCEPTS, BACKLOG, LISTENERS};
use crate::channel::IncomingConnection;
use crate::transport::{Transform, Transport};
#[cfg(any(target_os = "android", target_os = "linux"))]
use crate::tuning::UNSENT_BYTES;

/// Opens a listening socket.
pub(crate) fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    if cfg!(unix) {
        // A restarted broker can bind while old connections are in TIME_WAIT.
        socket.set_reuse_address(true)?;
    }
    if address.is_ipv6() {
        // `[::]` beside `0.0.0.0` is two listeners, each with its own rules.
        socket.set_only_v6(true)?;
    }
    // A turn writes once to each connection, so Nagle's algorithm could gather nothing. Accepted
    // connections inherit the option.
    socket.set_tcp_nodelay(true)?;
    // What waits for a slow client stays with the shard, where answers can pass it.
    #[cfg(any(target_os = "android", target_os = "linux"))]
    socket.set_tcp_notsent_lowat(UNSENT_BYTES)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(TcpListener::from_std(socket.into()))
}

/// Counts the connections of the whole broker and of each listener.
#[derive(Debug)]
pub(crate) struct ConnectionPermits {
    room: Room,
    all: Arc<Count>,
    listeners: Vec<Arc<Count>>,
}

#[derive(Debug)]
struct Count {
    taken: AtomicU32,
    /// Admitted connections, and the reserve beside them.
    limit: AtomicU32,
    /// Above this count, connections that only wait for their peer to close are closed.
    reserve_from: AtomicU32,
}

/// Counts one open connection, until it is dropped.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    all: Arc<Count>,
    listener: Arc<Count>,
}

/// Which limit was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LimitReached {
    /// `limits.connections_max`, or the limit of open files, and the reserve.
    Broker,
    /// `listeners.max_connections` and the reserve.
    Listener,
}

impl ConnectionPermits {
    pub(crate) fn new(room: Room, limits: &Limits, listener_limits: &[Option<u32>]) -> Self {
        let permits = Self {
            room,
            all: Arc::new(Count::new()),
            listeners: listener_limits
                .iter()
                .map(|_| Arc::new(Count::new()))
                .collect(),
        };
        permits.set_limits(limits, listener_limits);
        permits
    }

    /// Connections above a lowered limit stay.
    pub(crate) fn set_limits(&self, limits: &Limits, listener_limits: &[Option<u32>]) {
        let Room { places, reserve } = self.room;
        self.all
            .set_limit(limits.connections_max.min(places), reserve);
        for (count, limit) in self.listeners.iter().zip(listener_limits) {
            count.set_limit(limit.unwrap_or(u32::MAX), reserve);
        }
    }

    /// The limit that applies when a listener's own does not.
    fn broker_limit(&self) -> &'static str {
        let limit = self.all.limit.load(Ordering::Relaxed);
        if limit < self.room.places.saturating_add(self.room.reserve) {
            "limits.connections_max"
        } else {
            "open files of the system (raise it: ulimit -Hn, LimitNOFILE=)"
        }
    }

    /// Open connections.
    pub(crate) fn taken(&self) -> u32 {
        self.all.taken.load(Ordering::Relaxed)
    }

    fn is_full(&self, listener: usize) -> bool {
        let of_listener = self.listeners.get(listener);
        self.all.is_full() || of_listener.is_none_or(|count| count.is_full())
    }

    fn take(&self, listener: usize) -> Result<ConnectionPermit, LimitReached> {
        let of_listener = self.listeners.get(listener).ok_or(LimitReached::Listener)?;
        if !self.all.take() {
            return Err(LimitReached::Broker);
        }
        if !of_listener.take() {
            self.all.release();
            return Err(LimitReached::Listener);
        }
        Ok(ConnectionPermit {
            all: Arc::clone(&self.all),
            listener: Arc::clone(of_listener),
        })
    }
}

impl Count {
    fn new() -> Self {
        Self {
            taken: AtomicU32::new(0),
            limit: AtomicU32::new(0),
            reserve_from: AtomicU32::new(0),
        }
    }

    fn set_limit(&self, places: u32, reserve: u32) {
        let limit = places.saturating_add(reserve);
        self.limit.store(limit, Ordering::Relaxed);
        let reserve_from = places.saturating_add(reserve / 4);
        self.reserve_from.store(reserve_from, Ordering::Relaxed);
    }

    fn is_reserve_used(&self) -> bool {
        self.taken.load(Ordering::Relaxed) > self.reserve_from.load(Ordering::Relaxed)
    }

    fn is_full(&self) -> bool {
        self.taken.load(Ordering::Relaxed) >= self.limit.load(Ordering::Relaxed)
    }

    fn take(&self) -> bool {
        // Only the acceptor takes, so nothing changes between the check and the addition.
        if self.is_full() {
            return false;
        }
        self.taken.fetch_add(1, Ordering::Relaxed);
        true
    }

    fn release(&self) {
        self.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

impl ConnectionPermit {
    /// Whether the reserve is needed for connections other than one that only waits for its peer to
    /// close.
    pub(crate) fn is_needed_elsewhere(&self) -> bool {
        self.all.is_reserve_used() || self.listener.is_reserve_used()
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.all.release();
        self.listener.release();
    }
}

/// The shard whose thread has the listeners.
pub(crate) const ACCEPTOR_SHARD: ShardId = ShardId(0);

/// The open listeners.
#[derive(Debug)]
pub(crate) struct Acceptor {
    listeners: Vec<ListeningSocket>,
    permits: Arc<ConnectionPermits>,
    shards: u8,
    next_shard: u8,
    /// The listener that is served first in the next turn.
    first_listener: usize,
    /// When to retry after the system refused.
    retry_at: Option<Instant>,
    /// When to log the connections that were closed meanwhile.
    report_at: Option<Instant>,
}

#[derive(Debug)]
struct ListeningSocket {
    socket: TcpListener,
    address: SocketAddr,
    /// An edge came, and the queue of connections was not seen empty since.
    ready: bool,
    /// The system refuses more connections, and this was logged.
    exhausted: bool,
    rejected: Rejected,
}

impl Acceptor {
    /// For so many shards. Registers the listeners with this poll.
    pub(crate) fn new(
        sockets: Vec<(TcpListener, SocketAddr)>,
        permits: Arc<ConnectionPermits>,
        shards: u8,
        registry: &Registry,
    ) -> io::Result<Self> {
        let mut listeners = Vec::with_capacity(sockets.len());
        for (index, (mut socket, address)) in sockets.into_iter().enumerate() {
            registry.register(&mut socket, token_of(index), Interest::READABLE)?;
            listeners.push(ListeningSocket {
                socket,
                address,
                ready: false,
                exhausted: false,
                rejected: Rejected::default(),
            });
        }
        Ok(Self {
            listeners,
            permits,
            shards,
            next_shard: ACCEPTOR_SHARD.0,
            first_listener: 0,
            retry_at: None,
            report_at: None,
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.listeners.len()
    }

    /// Whether the event was of a listener; then it has connections to accept.
    pub(crate) fn note(&mut self, token: Token) -> bool {
        let index = FIRST.0.wrapping_sub(token.0);
        let Some(listening) = self.listeners.get_mut(index) else {
            return false;
        };
        listening.ready = true;
        true
    }

    /// Whether [`accept`](Self::accept) has something to do now.
    pub(crate) fn has_work(&self, now: Instant) -> bool {
        let is_pending = || self.listeners.iter().any(|listening| listening.ready);
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        self.retry_at.map_or_else(is_pending, |at| at <= now) || is_due(self.report_at)
    }

    /// When it has, without an event of a listener.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        [self.retry_at, self.report_at].into_iter().flatten().min()
    }

    /// Accepts from each listener until its queue is empty or [`ACCEPTS`] were accepted, and gives
    /// each connection to a shard.
    pub(crate) fn accept(
        &mut self,
        now: Instant,
        mut hand_over: impl FnMut(ShardId, IncomingConnection),
    ) {
        if !self.has_work(now) {
            return;
        }
        if self.retry_at.is_none_or(|at| at <= now) {
            let is_refused = self.accept_pending(&mut hand_over);
            self.retry_at = is_refused.then(|| now + ACCEPT_PAUSE);
        }
        self.report_at = self.report_rejected(now).map(|wait| now + wait);
    }

    /// Each turn begins with another listener, so that none starves the others. When the last
    /// permits are taken, the remaining connections wait for the next turn: by then the shards have
    /// closed idle connections without a CONNECT. Returns whether the system refuses more.
    fn accept_pending(&mut self, hand_over: &mut impl FnMut(ShardId, IncomingConnection)) -> bool {
        let (mut budget, mut has_accepted, mut is_refused) = (ACCEPTS, false, false);
        let count = self.listeners.len();
        self.first_listener = (self.first_listener + 1) % count.max(1);
        for index in (self.first_listener..count).chain(0..self.first_listener) {
            let listening = &mut self.listeners[index];
            while listening.ready && budget > 0 && !(has_accepted && self.permits.is_full(index)) {
                match listening.socket.accept() {
                    Ok((socket, address)) => {
                        budget -= 1;
                        listening.recovered();
                        let permit = match self.permits.take(index) {
                            Ok(permit) => permit,
                            Err(full) => {
                                listening.rejected.count(full);
                                continue; // dropping the socket closes it
                            }
                        };
                        has_accepted = true;
                        let to = ShardId(self.next_shard);
                        hand_over(to, incoming(socket, address, index, permit));
                        self.next_shard = (self.next_shard + 1) % self.shards;
                    }
                    Err(error) => match AcceptFailure::of(&error) {
                        AcceptFailure::NonePending => listening.ready = false,
                        AcceptFailure::ConnectionLost => {}
                        AcceptFailure::Exhausted => {
                            listening.exhausted(&error);
                            is_refused = true;
                            break;
                        }
                    },
                }
            }
        }
        is_refused
    }

    /// Logs the connections that were closed. Returns how long to wait before the rest is logged.
    fn report_rejected(&mut self, now: Instant) -> Option<Duration> {
        let mut next = None;
        for listening in &mut self.listeners {
            match listening.rejected.take(now) {
                Report::Nothing => {}
                Report::Later(wait) => next = Some(next.map_or(wait, |next| wait.min(next))),
                Report::Now { broker, listener } => {
                    listening.rejected(broker, self.permits.broker_limit());
                    listening.rejected(listener, "listeners.max_connections");
                }
            }
        }
        next
    }
}

/// Connections of one listener that were closed because a limit was reached.
#[derive(Debug, Default)]
struct Rejected {
    /// Not logged yet.
    broker: u64,
    /// Not logged yet.
    listener: u64,
    last_reported: Option<Instant>,
}

#[derive(Debug, PartialEq, Eq)]
enum Report {
    Nothing,
    Later(Duration),
    Now { broker: u64, listener: u64 },
}

impl Rejected {
    fn count(&mut self, full: LimitReached) {
        match full {
            LimitReached::Broker => self.broker += 1,
            LimitReached::Listener => self.listener += 1,
        }
    }

    /// What to log now: everything, at most once in [`REPORT_EVERY`].
    fn take(&mut self, now: Instant) -> Report {
        if self.broker == 0 && self.listener == 0 {
            return Report::Nothing;
        }
        let wait = self.last_reported.map_or(Duration::ZERO, |told| {
            (told + REPORT_EVERY).saturating_duration_since(now)
        });
        if !wait.is_zero() {
            return Report::Later(wait);
        }
        self.last_reported = Some(now);
        Report::Now {
            broker: mem::take(&mut self.broker),
            listener: mem::take(&mut self.listener),
        }
    }
}

impl ListeningSocket {
    #[cold]
    fn exhausted(&mut self, error: &io::Error) {
        if !self.exhausted {
            self.exhausted = true;
            tracing::error!(
                listener = %self.address,
                %error,
                "cannot accept connections; trying again until it works \
                 (raise the limit of open files: ulimit -n)"
            );
        }
    }

    fn recovered(&mut self) {
        if self.exhausted {
            self.exhausted = false;
            tracing::info!(listener = %self.address, "accepting connections again");
        }
    }

    #[cold]
    fn rejected(&self, count: u64, limit: &str) {
        if count > 0 {
            tracing::warn!(
                listener = %self.address,
                count,
                limit,
                "closed connections beyond the limit"
            );
        }
    }
}

fn incoming(
    socket: TcpStream,
    address: SocketAddr,
    listener: usize,
    permit: ConnectionPermit,
) -> IncomingConnection {
    let listener = u16::try_from(listener).expect("Server::start refuses more listeners");
    IncomingConnection {
        transport: Transport::tcp(socket, transforms()),
        peer: Peer {
            address: Some(address),
            listener,
            certificate: None,
        },
        permit,
        unread: Vec::new(),
    }
}

/// The protocol layers above TCP, from the socket upwards: MQTT only, so far.
const fn transforms() -> Vec<Box<dyn Transform>> {
    Vec::new()
}

fn token_of(listener: usize) -> Token {
    Token(FIRST.0 - listener)
}

/// The token of the first listener; the others are below. No table of connections is that long.
const FIRST: Token = Token(usize::MAX - 1);
const _: () = assert!(
    LISTENERS as usize <= FIRST.0 / 2,
    "connections have the tokens below"
);

/// Interval between two log lines about the same overload.
const REPORT_EVERY: Duration = Duration::from_secs(1);

/// The meaning of a failed `accept`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum AcceptFailure {
    /// The queue is empty.
    NonePending,
    /// The connection was lost before it was accepted; the next may be fine (accept(2), "Error
    /// handling").
    ConnectionLost,
    /// The system has no descriptors or memory left, or the error is unknown: an immediate retry
    /// would spin.
    Exhausted,
}

impl AcceptFailure {
    fn of(error: &io::Error) -> Self {
        match error.kind() {
            ErrorKind::WouldBlock => Self::NonePending,
            ErrorKind::Interrupted
            | ErrorKind::ConnectionAborted
            | ErrorKind::ConnectionReset
            | ErrorKind::NetworkDown
            | ErrorKind::NetworkUnreachable
            | ErrorKind::HostUnreachable => Self::ConnectionLost,
            _ => Self::Exhausted,
        }
    }
}
