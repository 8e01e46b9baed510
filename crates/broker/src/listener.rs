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

mod doors;
mod layers;
mod open;
mod permits;
#[cfg(test)]
pub(crate) mod tests;

use std::io::{self, ErrorKind};
use std::mem;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mio::{Registry, Token};
use unbroken_broker_core::{Peer, ShardId};

use crate::bans::Bans;
use crate::bounds::{ACCEPT_PAUSE, ACCEPTS, HANDSHAKES_PAUSE, LISTENERS};
use crate::channel::IncomingConnection;
use crate::config::Address;
use crate::transport::{Socket, Transport};
pub(crate) use doors::Doors;
pub(crate) use layers::Layers;
pub use open::OpenListener;
pub(crate) use open::OpenSocket;
use permits::LimitReached;
pub(crate) use permits::{ConnectionPermit, ConnectionPermits};

/// The shard whose thread has the listeners.
pub(crate) const ACCEPTOR_SHARD: ShardId = ShardId(0);

/// The open listeners.
#[derive(Debug)]
pub(crate) struct Acceptor {
    listeners: Vec<ListeningSocket>,
    permits: Arc<ConnectionPermits>,
    bans: Arc<Bans>,
    shards: u8,
    next_shard: u8,
    /// The listener that is served first in the next turn.
    first_listener: usize,
    /// When to retry after the system refused.
    retry_at: Option<Instant>,
    /// When to log the connections that were closed meanwhile.
    report_at: Option<Instant>,
    /// When to see whether handshakes have ended, which connections wait for.
    handshakes_at: Option<Instant>,
}

/// A socket of a listener that is open, to be served by the acceptor.
#[derive(Debug)]
pub(crate) struct OpenedListener {
    /// The position of the listener in the configuration.
    pub(crate) listener: u16,
    pub(crate) socket: OpenSocket,
    pub(crate) address: Address,
    pub(crate) layers: Layers,
}

#[derive(Debug)]
struct ListeningSocket {
    /// The position of its listener, which may have several.
    listener: u16,
    socket: OpenSocket,
    address: Address,
    layers: Layers,
    /// An edge came, and the queue of connections was not seen empty since.
    ready: bool,
    /// The system refuses more connections, and this was logged.
    exhausted: bool,
    rejected: Rejected,
}

impl Acceptor {
    /// For so many shards. Registers the listeners with this poll.
    pub(crate) fn new(
        opened: Vec<OpenedListener>,
        (permits, bans): (Arc<ConnectionPermits>, Arc<Bans>),
        shards: u8,
        registry: &Registry,
    ) -> io::Result<Self> {
        let mut listeners = Vec::with_capacity(opened.len());
        for (index, opened) in opened.into_iter().enumerate() {
            let OpenedListener {
                listener,
                mut socket,
                address,
                layers,
            } = opened;
            socket.register(registry, token_of(index))?;
            listeners.push(ListeningSocket {
                listener,
                socket,
                address,
                layers,
                ready: false,
                exhausted: false,
                rejected: Rejected::default(),
            });
        }
        Ok(Self {
            listeners,
            permits,
            bans,
            shards,
            next_shard: ACCEPTOR_SHARD.0,
            first_listener: 0,
            retry_at: None,
            report_at: None,
            handshakes_at: None,
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
        let is_pending = || self.listeners.iter().any(ListeningSocket::may_accept);
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        self.retry_at.map_or_else(is_pending, |at| at <= now)
            || is_due(self.report_at)
            || is_due(self.handshakes_at)
    }

    /// When it has, without an event of a listener.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let deadlines = [self.retry_at, self.report_at, self.handshakes_at];
        deadlines.into_iter().flatten().min()
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
            let is_refused = self.accept_pending(now, &mut hand_over);
            self.retry_at = is_refused.then(|| now + ACCEPT_PAUSE);
        }
        self.report_at = self.report_rejected(now).map(|wait| now + wait);
        let waits = |listening: &ListeningSocket| listening.ready && !listening.may_accept();
        let has_waiting = self.listeners.iter().any(waits);
        self.handshakes_at = has_waiting.then(|| now + HANDSHAKES_PAUSE);
    }

    /// Each turn begins with another listener, so that none starves the others. When the last
    /// permits are taken, the remaining connections wait for the next turn: by then the shards have
    /// closed idle connections without a CONNECT. Returns whether the system refuses more.
    fn accept_pending(
        &mut self,
        now: Instant,
        hand_over: &mut impl FnMut(ShardId, IncomingConnection),
    ) -> bool {
        let (mut budget, mut has_accepted, mut is_refused) = (ACCEPTS, false, false);
        let count = self.listeners.len();
        self.first_listener = (self.first_listener + 1) % count.max(1);
        for index in (self.first_listener..count).chain(0..self.first_listener) {
            let listening = &mut self.listeners[index];
            let listener = usize::from(listening.listener);
            while listening.may_accept()
                && budget > 0
                && !(has_accepted && self.permits.is_full(listener))
            {
                match listening.socket.accept() {
                    Ok((socket, address)) => {
                        budget -= 1;
                        listening.recovered();
                        let banned = listening.layers.address_of(address);
                        if banned.is_some_and(|it| self.bans.of_address(it, now).is_some()) {
                            listening.rejected.banned += 1;
                            continue;
                        }
                        if !listening.layers.has_share(address) {
                            listening.rejected.handshakes += 1;
                            continue;
                        }
                        let permit = match self.permits.take(listener) {
                            Ok(permit) => permit,
                            Err(full) => {
                                listening.rejected.count(full);
                                continue; // dropping the socket closes it
                            }
                        };
                        has_accepted = true;
                        let to = ShardId(self.next_shard);
                        let Some(incoming) = listening.incoming(socket, address, permit) else {
                            continue;
                        };
                        hand_over(to, incoming);
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
                Report::Now {
                    broker,
                    listener,
                    handshakes,
                    banned,
                } => {
                    listening.banned(banned);
                    listening.rejected(broker, self.permits.broker_limit());
                    listening.rejected(listener, "listeners.max_connections");
                    listening.rejected(handshakes, "the share of an address in max_handshakes");
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
    /// Not logged yet.
    handshakes: u64,
    /// Not logged yet.
    banned: u64,
    last_reported: Option<Instant>,
}

#[derive(Debug, PartialEq, Eq)]
enum Report {
    Nothing,
    Later(Duration),
    Now {
        broker: u64,
        listener: u64,
        handshakes: u64,
        banned: u64,
    },
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
        if [self.broker, self.listener, self.handshakes, self.banned] == [0; 4] {
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
            handshakes: mem::take(&mut self.handshakes),
            banned: mem::take(&mut self.banned),
        }
    }
}

impl ListeningSocket {
    /// Whether a connection waits, and may begin its handshake.
    fn may_accept(&self) -> bool {
        self.ready && self.layers.has_room()
    }

    /// A connection with the protocol layers of this listener, from the socket upwards.
    fn incoming(
        &self,
        socket: Socket,
        address: Option<SocketAddr>,
        permit: ConnectionPermit,
    ) -> Option<IncomingConnection> {
        let transforms = match self.layers.transforms(address) {
            Ok(transforms) => transforms,
            Err(error) => {
                tracing::error!(
                    listener = %self.address,
                    %error,
                    "cannot begin a TLS handshake; the connection was closed"
                );
                return None;
            }
        };
        Some(IncomingConnection {
            transport: Transport::new(socket, transforms),
            peer: Peer {
                address,
                listener: self.listener,
                certificate: None,
            },
            permit,
            unread: Vec::new(),
        })
    }

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
    fn banned(&self, count: u64) {
        if count > 0 {
            tracing::info!(
                listener = %self.address,
                count,
                "closed connections of banned addresses"
            );
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
