//! Where clients knock: listening sockets, and the one thread that accepts on all of them.
//!
//! The acceptor hands each connection to the next shard in turn; the shard reads the CONNECT and
//! sends the connection on to where its session lives. A thread of its own costs one wake a
//! connection (3 µs of 23, with two shards 5 of 29: `docs/scaling.md`), and keeps the shards' loops
//! free of listeners and of the pauses that a lack of descriptors demands.
//!
//! Invariants:
//! - Every open connection holds a [`Seat`] from here to its end, whichever shard it moves to.
//! - Running out of descriptors or memory is logged once for each time it happens, and waited out:
//!   the acceptor neither spins nor dies.
//!
//! Deliberately absent: the polite refusal at `connections_max`, which needs the client's version:
//! the shard gives it. Here stands only the bound behind it, for connections that are still being
//! refused.

use std::io::{self, ErrorKind};
use std::mem;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use socket2::{Domain, Protocol, Socket, Type};
use unbroken_broker_core::{Limits, Peer};

use crate::bounds::{ACCEPT_PAUSE, BACKLOG, REFUSED_AT_ONCE};
use crate::mailbox::{Arrival, Doorbell, Outside, Parcel};
use crate::transport::Transport;

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
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(TcpListener::from_std(socket.into()))
}

/// Counts the connections of the whole broker and of each listener.
#[derive(Debug)]
pub(crate) struct Seats {
    /// As many as the system lets there be, whatever the configuration says.
    room: u32,
    all: Arc<Count>,
    listeners: Vec<Arc<Count>>,
}

#[derive(Debug)]
struct Count {
    taken: AtomicU32,
    limit: AtomicU32,
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
    /// `limits.connections_max` and those who are being told so, or all open files but those that
    /// the broker itself needs.
    Broker,
    /// `listeners.max_connections`.
    Listener,
}

impl Seats {
    pub(crate) fn new(room: u32, limits: &Limits, listener_limits: &[Option<u32>]) -> Self {
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
        let all = limits.connections_max.saturating_add(REFUSED_AT_ONCE);
        self.all.limit.store(all.min(self.room), Ordering::Relaxed);
        for (count, limit) in self.listeners.iter().zip(listener_limits) {
            count
                .limit
                .store(limit.unwrap_or(u32::MAX), Ordering::Relaxed);
        }
    }

    /// Connections now.
    pub(crate) fn taken(&self) -> u32 {
        self.all.taken.load(Ordering::Relaxed)
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
        }
    }

    fn take(&self) -> bool {
        // The acceptor alone takes, so nobody can come between the look and the step.
        if self.taken.load(Ordering::Relaxed) >= self.limit.load(Ordering::Relaxed) {
            return false;
        }
        self.taken.fetch_add(1, Ordering::Relaxed);
        true
    }

    fn give_back(&self) {
        self.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.all.give_back();
        self.listener.give_back();
    }
}

/// The accepting thread.
#[derive(Debug)]
pub(crate) struct Acceptor {
    poll: Poll,
    listeners: Vec<Listening>,
    seats: Arc<Seats>,
    shards: Vec<Outside>,
    next_shard: usize,
    stop: Arc<AtomicBool>,
    bell: Arc<Doorbell>,
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

/// Stops the acceptor from another thread.
#[derive(Debug)]
pub(crate) struct AcceptorHandle {
    stop: Arc<AtomicBool>,
    bell: Arc<Doorbell>,
}

impl AcceptorHandle {
    /// Closes the listening sockets soon.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
        self.bell.ring();
    }
}

impl Acceptor {
    pub(crate) fn new(
        sockets: Vec<(TcpListener, SocketAddr)>,
        seats: Arc<Seats>,
        shards: Vec<Outside>,
    ) -> io::Result<Self> {
        let poll = Poll::new()?;
        let bell = Doorbell::new(poll.registry(), Token(sockets.len()))?;
        let mut listeners = Vec::with_capacity(sockets.len());
        for (index, (mut socket, address)) in sockets.into_iter().enumerate() {
            poll.registry()
                .register(&mut socket, Token(index), Interest::READABLE)?;
            listeners.push(Listening {
                socket,
                address,
                ready: false,
                exhausted: false,
                turned_away: TurnedAway::default(),
            });
        }
        let stop = Arc::new(AtomicBool::new(false));
        Ok(Self {
            poll,
            listeners,
            seats,
            shards,
            next_shard: 0,
            stop,
            bell,
        })
    }

    pub(crate) fn handle(&self) -> AcceptorHandle {
        AcceptorHandle {
            stop: Arc::clone(&self.stop),
            bell: Arc::clone(&self.bell),
        }
    }

    /// Accepts until it is told to stop.
    pub(crate) fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(64);
        loop {
            let pause = [self.accept_all(), self.tell()].into_iter().flatten().min();
            self.bell.fall_asleep();
            if self.stop.load(Ordering::SeqCst) {
                return Ok(());
            }
            if let Err(error) = self.poll.poll(&mut events, pause)
                && error.kind() != ErrorKind::Interrupted
            {
                return Err(error);
            }
            self.bell.wake_up();
            for event in &events {
                if let Some(listening) = self.listeners.get_mut(event.token().0) {
                    listening.ready = true;
                }
            }
        }
    }

    /// Accepts from every listener until it has nobody left. Answers with how long to wait before
    /// trying again where the system refuses more.
    fn accept_all(&mut self) -> Option<Duration> {
        let mut pause = None;
        for index in 0..self.listeners.len() {
            let listening = &mut self.listeners[index];
            while listening.ready {
                match listening.socket.accept() {
                    Ok((socket, address)) => {
                        listening.recovered();
                        let seat = match self.seats.take(index) {
                            Ok(seat) => seat,
                            Err(full) => {
                                listening.turned_away.count(full);
                                continue; // dropping the socket closes it
                            }
                        };
                        let arrival = arrival(socket, address, index, seat);
                        self.shards[self.next_shard].send(Parcel::Connection(Box::new(arrival)));
                        self.next_shard = (self.next_shard + 1) % self.shards.len();
                    }
                    Err(error) => match Refusal::of(&error) {
                        Refusal::Nobody => listening.ready = false,
                        Refusal::ThisOne => {}
                        Refusal::Exhausted => {
                            listening.exhausted(&error);
                            pause = Some(ACCEPT_PAUSE);
                            break;
                        }
                    },
                }
            }
        }
        pause
    }

    /// Tells who was turned away. Answers with how long to wait before the rest is to be told.
    fn tell(&mut self) -> Option<Duration> {
        let now = Instant::now();
        let mut pause = None;
        for listening in &mut self.listeners {
            match listening.turned_away.take(now) {
                Told::Nothing => {}
                Told::Later(wait) => pause = Some(pause.map_or(wait, |pause| wait.min(pause))),
                Told::Now { broker, listener } => {
                    listening.turned_away(broker, "limits.connections_max");
                    listening.turned_away(listener, "listeners.max_connections");
                }
            }
        }
        pause
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
    // One write for each turn leaves nothing for Nagle's algorithm to gather. Fails only on a dead
    // socket.
    let _ = socket.set_nodelay(true);
    let listener = u16::try_from(listener).expect("Server::start refuses more listeners");
    Arrival {
        transport: Transport::Plain(socket),
        peer: Peer {
            address: Some(address),
            listener,
        },
        seat,
        unread: Vec::new(),
    }
}

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

#[cfg(test)]
pub(crate) mod tests {
    use std::net;

    use super::*;

    /// A seat of a broker that has no other connection.
    pub(crate) fn any_seat() -> Seat {
        let seats = Seats::new(u32::MAX, &Limits::default(), &[None]);
        seats.take(0).unwrap()
    }

    /// A connection, and its peer.
    pub(crate) fn arrival_and_peer(unread: Vec<u8>) -> (Arrival, net::TcpStream) {
        let listener = net::TcpListener::bind("127.0.0.1:0").unwrap();
        let peer = net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (socket, address) = listener.accept().unwrap();
        socket.set_nonblocking(true).unwrap();
        let arrival = arrival(TcpStream::from_std(socket), address, 0, any_seat());
        (Arrival { unread, ..arrival }, peer)
    }

    /// A connection whose peer is silent.
    pub(crate) fn any_arrival(unread: Vec<u8>) -> Arrival {
        let listener = bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        Arrival {
            transport: Transport::Plain(socket),
            peer: Peer {
                address: None,
                listener: 0,
            },
            seat: any_seat(),
            unread,
        }
    }

    #[test]
    fn running_out_of_descriptors_is_waited_out_and_a_gone_client_is_not() {
        #[cfg(unix)]
        for code in [
            libc_codes::EMFILE,
            libc_codes::ENFILE,
            libc_codes::ENOBUFS,
            libc_codes::ENOMEM,
        ] {
            assert_eq!(
                Refusal::of(&io::Error::from_raw_os_error(code)),
                Refusal::Exhausted
            );
        }
        assert_eq!(
            Refusal::of(&ErrorKind::ConnectionAborted.into()),
            Refusal::ThisOne
        );
        assert_eq!(Refusal::of(&ErrorKind::WouldBlock.into()), Refusal::Nobody);
    }

    /// Numbers of errno(3) on Linux.
    #[cfg(unix)]
    mod libc_codes {
        pub(super) const ENOMEM: i32 = 12;
        pub(super) const ENFILE: i32 = 23;
        pub(super) const EMFILE: i32 = 24;
        pub(super) const ENOBUFS: i32 = 105;
    }

    #[test]
    fn a_seat_is_free_again_when_its_connection_ends() {
        let limits = Limits::default();
        let seats = Seats::new(u32::MAX, &limits, &[Some(2), None]);
        let first = seats.take(0);
        let second = seats.take(0);
        assert!(first.is_ok() && second.is_ok());
        assert_eq!(seats.take(0).err(), Some(Full::Listener));
        assert!(seats.take(1).is_ok(), "the other one is not full");
        drop(first);
        assert!(seats.take(0).is_ok());
        drop(second);
        assert_eq!(seats.taken(), 0);
    }

    #[test]
    fn a_lowered_limit_keeps_those_who_are_in() {
        let mut limits = Limits::default();
        limits.connections_max = 2;
        let seats = Seats::new(u32::MAX, &limits, &[None]);
        let inside: Vec<_> = (0..2 + REFUSED_AT_ONCE)
            .map(|_| seats.take(0).unwrap())
            .collect();
        assert_eq!(seats.take(0).err(), Some(Full::Broker));
        limits.connections_max = 1;
        seats.set_limits(&limits, &[None]);
        assert_eq!(seats.taken(), 2 + REFUSED_AT_ONCE);
        drop(inside);
        assert!(seats.take(0).is_ok());
    }

    #[test]
    fn there_are_no_more_seats_than_the_system_has_room_for() {
        let limits = Limits::default();
        let seats = Seats::new(1, &limits, &[None]);
        let _first = seats.take(0).unwrap();
        assert_eq!(seats.take(0).err(), Some(Full::Broker));
        seats.set_limits(&limits, &[None]);
        assert_eq!(seats.take(0).err(), Some(Full::Broker));
    }

    #[test]
    fn everybody_turned_away_is_told_at_most_once_a_second() {
        let (mut turned_away, start) = (TurnedAway::default(), Instant::now());
        assert_eq!(turned_away.take(start), Told::Nothing);
        turned_away.count(Full::Listener);
        let told = |broker, listener| Told::Now { broker, listener };
        assert_eq!(turned_away.take(start), told(0, 1));
        turned_away.count(Full::Listener);
        turned_away.count(Full::Listener);
        turned_away.count(Full::Broker);
        let soon = start + TELL_EVERY / 4;
        assert_eq!(turned_away.take(soon), Told::Later(TELL_EVERY * 3 / 4));
        assert_eq!(turned_away.take(start + TELL_EVERY), told(1, 2));
        assert_eq!(turned_away.take(start + 3 * TELL_EVERY), Told::Nothing);
    }

    #[test]
    fn a_port_that_is_taken_is_an_error() {
        let first = bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let error = bind(first.local_addr().unwrap()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AddrInUse);
    }
}
