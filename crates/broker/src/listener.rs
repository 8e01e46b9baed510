//! Where clients knock: listening sockets, and the acceptor that the first shard's thread has.
//!
//! It gives each connection to the next shard in turn; that one reads the CONNECT and sends the
//! connection on to where its session lives. A thread of its own cost a wake for each connection,
//! and on two cores a third thread for each: with 64 clients at a time, all of them waited for one
//! another's turn on a core (`docs/scaling.md`).
//!
//! Invariants:
//! - Every open connection holds a [`Seat`] from here to its end, whichever shard it moves to.
//! - Running out of descriptors or memory is logged once for each time it happens, and waited out:
//!   the acceptor neither spins nor dies, and clients that are in are served meanwhile.
//! - A turn of the loop accepts [`ACCEPTS`] connections at most, so that those who are in do not
//!   wait for many who come.
//!
//! Deliberately absent: the refusal at `connections_max`, `max_connections` and the limit of open
//! files, which needs the client's version, and its client id: a client that connects again takes
//! the place of its own connection. So the shard gives it, and ends those that send no CONNECT.
//! Here stands only the bound behind it, for connections that have no place yet or are still being
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
use crate::mailbox::Arrival;
use crate::transport::{Transform, Transport};

/// Opens a listening socket.
pub(crate) fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    if cfg!(unix) {
        // A restarted broker is not kept out by its old connections in TIME_WAIT.
        socket.set_reuse_address(true)?;
    }
    if address.is_ipv6() {
        // `[::]` beside `0.0.0.0` is two listeners, each with its own rules.
        socket.set_only_v6(true)?;
    }
    // One write for each turn leaves nothing for Nagle's algorithm to gather. Connections have it
    // from their listener.
    socket.set_tcp_nodelay(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(TcpListener::from_std(socket.into()))
}

/// Counts the connections of the whole broker and of each listener.
#[derive(Debug)]
pub(crate) struct Seats {
    room: Room,
    all: Arc<Count>,
    listeners: Vec<Arc<Count>>,
}

#[derive(Debug)]
struct Count {
    taken: AtomicU32,
    /// Connections that have a place, and the reserve beside them.
    limit: AtomicU32,
    /// Beyond so many, those that only wait for their peer to close are in the way.
    crowded_from: AtomicU32,
}

/// One connection's place; given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Seat {
    all: Arc<Count>,
    listener: Arc<Count>,
}

/// Why there is no seat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Full {
    /// `limits.connections_max`, or the limit of open files, and the reserve.
    Broker,
    /// `listeners.max_connections` and the reserve.
    Listener,
}

impl Seats {
    pub(crate) fn new(room: Room, limits: &Limits, listener_limits: &[Option<u32>]) -> Self {
        let seats = Self {
            room,
            all: Arc::new(Count::new()),
            listeners: listener_limits
                .iter()
                .map(|_| Arc::new(Count::new()))
                .collect(),
        };
        seats.set_limits(limits, listener_limits);
        seats
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

    /// What keeps connections out where not their listener does.
    fn limit_of_all(&self) -> &'static str {
        let limit = self.all.limit.load(Ordering::Relaxed);
        if limit < self.room.places.saturating_add(self.room.reserve) {
            "limits.connections_max"
        } else {
            "open files of the system (raise it: ulimit -Hn, LimitNOFILE=)"
        }
    }

    /// Connections now.
    pub(crate) fn taken(&self) -> u32 {
        self.all.taken.load(Ordering::Relaxed)
    }

    fn is_full(&self, listener: usize) -> bool {
        let of_listener = self.listeners.get(listener);
        self.all.is_full() || of_listener.is_none_or(|count| count.is_full())
    }

    fn take(&self, listener: usize) -> Result<Seat, Full> {
        let of_listener = self.listeners.get(listener).ok_or(Full::Listener)?;
        if !self.all.take() {
            return Err(Full::Broker);
        }
        if !of_listener.take() {
            self.all.give_back();
            return Err(Full::Listener);
        }
        Ok(Seat {
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
            crowded_from: AtomicU32::new(0),
        }
    }

    fn set_limit(&self, places: u32, reserve: u32) {
        let limit = places.saturating_add(reserve);
        self.limit.store(limit, Ordering::Relaxed);
        let crowded_from = places.saturating_add(reserve / 4);
        self.crowded_from.store(crowded_from, Ordering::Relaxed);
    }

    fn is_crowded(&self) -> bool {
        self.taken.load(Ordering::Relaxed) > self.crowded_from.load(Ordering::Relaxed)
    }

    fn is_full(&self) -> bool {
        self.taken.load(Ordering::Relaxed) >= self.limit.load(Ordering::Relaxed)
    }

    fn take(&self) -> bool {
        // The acceptor alone takes, so nobody can come between the look and the step.
        if self.is_full() {
            return false;
        }
        self.taken.fetch_add(1, Ordering::Relaxed);
        true
    }

    fn give_back(&self) {
        self.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Seat {
    /// Whether the reserve is needed for others than a connection that only waits for its peer to
    /// close.
    pub(crate) fn is_in_the_way(&self) -> bool {
        self.all.is_crowded() || self.listener.is_crowded()
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.all.give_back();
        self.listener.give_back();
    }
}

/// The shard whose thread has the listeners.
pub(crate) const HOME: ShardId = ShardId(0);

/// The open listeners, and whom they let in.
#[derive(Debug)]
pub(crate) struct Acceptor {
    listeners: Vec<Listening>,
    seats: Arc<Seats>,
    shards: u8,
    next_shard: u8,
    /// The listener with which a turn begins.
    begin_with: usize,
    /// The system refuses more: it is asked again then.
    retry_at: Option<Instant>,
    /// Somebody who was turned away is to be told of then.
    tell_at: Option<Instant>,
}

#[derive(Debug)]
struct Listening {
    socket: TcpListener,
    address: SocketAddr,
    /// An edge came and the queue of connections was not yet seen empty.
    ready: bool,
    /// The system refuses to give us more, and that has been logged.
    exhausted: bool,
    turned_away: TurnedAway,
}

impl Acceptor {
    /// For so many shards. Those who knock are told to this poll.
    pub(crate) fn new(
        sockets: Vec<(TcpListener, SocketAddr)>,
        seats: Arc<Seats>,
        shards: u8,
        registry: &Registry,
    ) -> io::Result<Self> {
        let mut listeners = Vec::with_capacity(sockets.len());
        for (index, (mut socket, address)) in sockets.into_iter().enumerate() {
            registry.register(&mut socket, token_of(index), Interest::READABLE)?;
            listeners.push(Listening {
                socket,
                address,
                ready: false,
                exhausted: false,
                turned_away: TurnedAway::default(),
            });
        }
        Ok(Self {
            listeners,
            seats,
            shards,
            next_shard: HOME.0,
            begin_with: 0,
            retry_at: None,
            tell_at: None,
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.listeners.len()
    }

    /// Whether the event was of a listener: then somebody knocks.
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
        let knocks = || self.listeners.iter().any(|listening| listening.ready);
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        self.retry_at.map_or_else(knocks, |at| at <= now) || is_due(self.tell_at)
    }

    /// When it has, if nobody knocks.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        [self.retry_at, self.tell_at].into_iter().flatten().min()
    }

    /// Accepts from every listener until it has nobody left, or it were [`ACCEPTS`], and gives each
    /// to a shard.
    pub(crate) fn accept(&mut self, now: Instant, mut give: impl FnMut(ShardId, Arrival)) {
        if !self.has_work(now) {
            return;
        }
        if self.retry_at.is_none_or(|at| at <= now) {
            let is_refused = self.accept_all(&mut give);
            self.retry_at = is_refused.then(|| now + ACCEPT_PAUSE);
        }
        self.tell_at = self.tell(now).map(|wait| now + wait);
    }

    /// Begins with another listener each time, so that none keeps the others out. Where those that
    /// come take the last seats, the next ones wait for the next turn: by then the silent ones are
    /// closed that end for these. Answers whether the system refuses more.
    fn accept_all(&mut self, give: &mut impl FnMut(ShardId, Arrival)) -> bool {
        let (mut left, mut let_in, mut is_refused) = (ACCEPTS, false, false);
        let count = self.listeners.len();
        self.begin_with = (self.begin_with + 1) % count.max(1);
        for index in (self.begin_with..count).chain(0..self.begin_with) {
            let listening = &mut self.listeners[index];
            while listening.ready && left > 0 && !(let_in && self.seats.is_full(index)) {
                match listening.socket.accept() {
                    Ok((socket, address)) => {
                        left -= 1;
                        listening.recovered();
                        let seat = match self.seats.take(index) {
                            Ok(seat) => seat,
                            Err(full) => {
                                listening.turned_away.count(full);
                                continue; // dropping the socket closes it
                            }
                        };
                        let_in = true;
                        let to = ShardId(self.next_shard);
                        give(to, arrival(socket, address, index, seat));
                        self.next_shard = (self.next_shard + 1) % self.shards;
                    }
                    Err(error) => match Refusal::of(&error) {
                        Refusal::Nobody => listening.ready = false,
                        Refusal::ThisOne => {}
                        Refusal::Exhausted => {
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

    /// Tells who was turned away. Answers with how long to wait before the rest is to be told.
    fn tell(&mut self, now: Instant) -> Option<Duration> {
        let mut next = None;
        for listening in &mut self.listeners {
            match listening.turned_away.take(now) {
                Told::Nothing => {}
                Told::Later(wait) => next = Some(next.map_or(wait, |next| wait.min(next))),
                Told::Now { broker, listener } => {
                    listening.turned_away(broker, self.seats.limit_of_all());
                    listening.turned_away(listener, "listeners.max_connections");
                }
            }
        }
        next
    }
}

/// Connections of one listener that were closed because there was no seat.
#[derive(Debug, Default)]
struct TurnedAway {
    /// Not told yet.
    broker: u64,
    /// Not told yet.
    listener: u64,
    last_told: Option<Instant>,
}

#[derive(Debug, PartialEq, Eq)]
enum Told {
    Nothing,
    Later(Duration),
    Now { broker: u64, listener: u64 },
}

impl TurnedAway {
    fn count(&mut self, full: Full) {
        match full {
            Full::Broker => self.broker += 1,
            Full::Listener => self.listener += 1,
        }
    }

    /// What is to be told now: everything, at most once in [`TELL_EVERY`].
    fn take(&mut self, now: Instant) -> Told {
        if self.broker == 0 && self.listener == 0 {
            return Told::Nothing;
        }
        let wait = self.last_told.map_or(Duration::ZERO, |told| {
            (told + TELL_EVERY).saturating_duration_since(now)
        });
        if !wait.is_zero() {
            return Told::Later(wait);
        }
        self.last_told = Some(now);
        Told::Now {
            broker: mem::take(&mut self.broker),
            listener: mem::take(&mut self.listener),
        }
    }
}

impl Listening {
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
    fn turned_away(&self, count: u64, limit: &str) {
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

fn arrival(socket: TcpStream, address: SocketAddr, listener: usize, seat: Seat) -> Arrival {
    let listener = u16::try_from(listener).expect("Server::start refuses more listeners");
    Arrival {
        transport: Transport::tcp(socket, transforms()),
        peer: Peer {
            address: Some(address),
            listener,
        },
        seat,
        unread: Vec::new(),
    }
}

/// What the listeners speak above TCP, from the socket upwards: MQTT itself, so far.
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

/// Time between two log lines about the same overload.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// What a failed `accept` means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Refusal {
    /// Nobody waits.
    Nobody,
    /// The one who waited has gone, or its network failed; the next may be fine (accept(2), "Error
    /// handling").
    ThisOne,
    /// The system has no descriptors or memory left, or something unknown is wrong: trying at once
    /// again would spin.
    Exhausted,
}

impl Refusal {
    fn of(error: &io::Error) -> Self {
        match error.kind() {
            ErrorKind::WouldBlock => Self::Nobody,
            ErrorKind::Interrupted
            | ErrorKind::ConnectionAborted
            | ErrorKind::ConnectionReset
            | ErrorKind::NetworkDown
            | ErrorKind::NetworkUnreachable
            | ErrorKind::HostUnreachable => Self::ThisOne,
            _ => Self::Exhausted,
        }
    }
}
