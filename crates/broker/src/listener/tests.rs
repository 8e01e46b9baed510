//! Listeners, permits, and connections for the tests of other modules.

use std::net;

use mio::net::TcpStream;
use mio::{Events, Poll};
use unbroken_broker_core::{Limits, RESERVE_MAX, Room};

use super::*;
use crate::config::Listener;

/// A permit of a broker that has no other connection.
pub(crate) fn any_permit() -> ConnectionPermit {
    let permits = ConnectionPermits::new(Room::default(), &Limits::default(), &[None]);
    permits.take(0).unwrap()
}

/// A connection, and its peer.
pub(crate) fn incoming_and_peer(unread: Vec<u8>) -> (IncomingConnection, net::TcpStream) {
    let (socket, peer) = socket_and_peer();
    let incoming = incoming_over(Transport::tcp(socket, Vec::new()));
    (IncomingConnection { unread, ..incoming }, peer)
}

pub(crate) fn socket_and_peer() -> (TcpStream, net::TcpStream) {
    let listener = net::TcpListener::bind("127.0.0.1:0").unwrap();
    let peer = net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (socket, _) = listener.accept().unwrap();
    socket.set_nonblocking(true).unwrap();
    (TcpStream::from_std(socket), peer)
}

pub(crate) fn incoming_over(transport: Transport) -> IncomingConnection {
    IncomingConnection {
        transport,
        peer: Peer::default(),
        permit: any_permit(),
        unread: Vec::new(),
    }
}

/// A listening socket on a port that is free.
pub(crate) fn free_port() -> OpenSocket {
    let listener = Listener {
        port: 0,
        ..Listener::default()
    };
    OpenSocket::open_all(&listener).unwrap().remove(0)
}

/// A connection whose peer is silent.
pub(crate) fn any_incoming(unread: Vec<u8>) -> IncomingConnection {
    let listener = free_port();
    let address = listener.address().unwrap().tcp().unwrap();
    let socket = TcpStream::connect(address).unwrap();
    let incoming = incoming_over(Transport::tcp(socket, Vec::new()));
    IncomingConnection { unread, ..incoming }
}

fn acceptor(shards: u8, limit: Option<u32>) -> (Acceptor, Poll) {
    acceptor_of(shards, &[limit])
}

fn acceptor_of(shards: u8, limits: &[Option<u32>]) -> (Acceptor, Poll) {
    let sockets = (0..).zip(limits).map(|(listener, _)| {
        let socket = free_port();
        let address = socket.address().unwrap();
        OpenedListener {
            listener,
            socket,
            address,
            layers: Layers::default(),
        }
    });
    let sockets = sockets.collect();
    let permits = Arc::new(ConnectionPermits::new(
        Room::default(),
        &Limits::default(),
        limits,
    ));
    let poll = Poll::new().unwrap();
    let acceptor =
        Acceptor::new(sockets, (permits, Arc::default()), shards, poll.registry()).unwrap();
    (acceptor, poll)
}

/// Opens so many connections, and waits until the acceptor knows of them.
fn connect_one(acceptor: &mut Acceptor, poll: &mut Poll, count: usize) -> Vec<net::TcpStream> {
    connect_to(acceptor, poll, 0, count)
}

fn connect_to(
    acceptor: &mut Acceptor,
    poll: &mut Poll,
    listener: usize,
    count: usize,
) -> Vec<net::TcpStream> {
    let address = acceptor.listeners[listener].address.tcp().unwrap();
    let peers = (0..count).map(|_| net::TcpStream::connect(address).unwrap());
    let peers = peers.collect();
    let mut events = Events::with_capacity(4);
    poll.poll(&mut events, None).unwrap();
    for event in &events {
        assert!(acceptor.note(event.token()));
    }
    peers
}

#[test]
fn connections_go_to_the_shards_in_turn_and_wait_for_nothing_to_be_gathered() {
    let (mut acceptor, mut poll) = acceptor(3, None);
    let _peers = connect_one(&mut acceptor, &mut poll, 4);
    let mut shards = Vec::new();
    acceptor.accept(Instant::now(), |to, incoming| {
        assert!(incoming.transport.tcp_stream().nodelay().unwrap());
        shards.push(to.0);
    });
    assert_eq!(shards, [0, 1, 2, 0]);
    assert!(!acceptor.note(Token(7)), "the token of a connection");
}

#[test]
fn a_turn_accepts_some_and_leaves_the_others_to_the_next() {
    let (mut acceptor, mut poll) = acceptor(1, None);
    let _peers = connect_one(&mut acceptor, &mut poll, ACCEPTS + 1);
    let now = Instant::now();
    for (count, is_left) in [(ACCEPTS, true), (1, false)] {
        let mut came = 0;
        acceptor.accept(now, |_, _| came += 1);
        assert_eq!((came, acceptor.has_work(now)), (count, is_left));
    }
}

#[test]
fn many_connections_at_one_listener_do_not_starve_another() {
    let (mut acceptor, mut poll) = acceptor_of(1, &[None, None]);
    let _many = connect_to(&mut acceptor, &mut poll, 0, 3 * ACCEPTS);
    let _one = connect_to(&mut acceptor, &mut poll, 1, 1);
    let mut came = Vec::new();
    for _ in 0..2 {
        acceptor.accept(Instant::now(), |_, incoming| {
            came.push(incoming.peer.listener);
        });
    }
    assert!(came.contains(&1), "{came:?}");
}

#[test]
fn closed_connections_delay_no_other_and_are_logged_later() {
    let (mut acceptor, mut poll) = acceptor(1, Some(1));
    let now = Instant::now();
    let (mut inside, mut peers) = (Vec::new(), Vec::new());
    let _reserve: Vec<_> = (0..RESERVE_MAX)
        .map(|_| acceptor.permits.take(0).unwrap())
        .collect();
    // The first of them is logged at once, the next one a second later.
    for accepted in [1, 1, 1] {
        peers.push(connect_one(&mut acceptor, &mut poll, 1));
        acceptor.accept(now, |_, incoming| inside.push(incoming));
        assert_eq!(inside.len(), accepted);
    }
    assert_eq!(acceptor.next_deadline(), Some(now + REPORT_EVERY));
    inside.clear();
    peers.push(connect_one(&mut acceptor, &mut poll, 1));
    assert!(acceptor.has_work(now));
    acceptor.accept(now, |_, incoming| inside.push(incoming));
    assert_eq!(inside.len(), 1);
    let later = now + REPORT_EVERY;
    assert!(acceptor.has_work(later));
    acceptor.accept(later, |_, incoming| inside.push(incoming));
    assert_eq!(acceptor.next_deadline(), None);
}

#[test]
fn a_connection_beyond_the_last_permit_waits_for_the_next_turn() {
    let (mut acceptor, mut poll) = acceptor(1, Some(1));
    let now = Instant::now();
    let mut taken: Vec<_> = (1..RESERVE_MAX)
        .map(|_| acceptor.permits.take(0).unwrap())
        .collect();
    let _peers = connect_one(&mut acceptor, &mut poll, 4);
    let mut inside = Vec::new();
    acceptor.accept(now, |_, incoming| inside.push(incoming));
    assert_eq!((inside.len(), acceptor.has_work(now)), (2, true));
    taken.pop(); // who was silent is closed for those who came
    acceptor.accept(now, |_, incoming| inside.push(incoming));
    assert_eq!((inside.len(), acceptor.has_work(now)), (3, true));
    acceptor.accept(now, |_, incoming| inside.push(incoming));
    assert_eq!((inside.len(), acceptor.has_work(now)), (3, false));
}

#[test]
fn a_refused_accept_is_retried_after_a_pause() {
    let (mut acceptor, mut poll) = acceptor(1, None);
    let _peers = connect_one(&mut acceptor, &mut poll, 1);
    let now = Instant::now();
    acceptor.retry_at = Some(now + ACCEPT_PAUSE);
    let mut came = 0;
    for (at, count) in [(now, 0), (now + ACCEPT_PAUSE, 1)] {
        assert_eq!(acceptor.has_work(at), count == 1);
        acceptor.accept(at, |_, _| came += 1);
        assert_eq!(came, count);
    }
    assert_eq!(acceptor.next_deadline(), None);
}

#[test]
fn running_out_of_descriptors_pauses_and_a_lost_connection_does_not() {
    #[cfg(unix)]
    for code in [
        libc_codes::EMFILE,
        libc_codes::ENFILE,
        libc_codes::ENOBUFS,
        libc_codes::ENOMEM,
    ] {
        assert_eq!(
            AcceptFailure::of(&io::Error::from_raw_os_error(code)),
            AcceptFailure::Exhausted
        );
    }
    assert_eq!(
        AcceptFailure::of(&ErrorKind::ConnectionAborted.into()),
        AcceptFailure::ConnectionLost
    );
    assert_eq!(
        AcceptFailure::of(&ErrorKind::WouldBlock.into()),
        AcceptFailure::NonePending
    );
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
fn a_permit_is_free_again_when_its_connection_ends() {
    let limits = Limits::default();
    let permits = ConnectionPermits::new(Room::default(), &limits, &[Some(2), None]);
    let reserve: Vec<_> = (0..RESERVE_MAX).map(|_| permits.take(0)).collect();
    let first = permits.take(0);
    let second = permits.take(0);
    assert!(first.is_ok() && second.is_ok());
    assert_eq!(permits.take(0).err(), Some(LimitReached::Listener));
    assert!(permits.take(1).is_ok(), "the other one is not full");
    drop(first);
    assert!(permits.take(0).is_ok());
    drop((second, reserve));
    assert_eq!(permits.taken(), 0);
}

#[test]
fn a_lowered_limit_closes_no_open_connection() {
    let mut limits = Limits::default();
    limits.connections_max = 2;
    let permits = ConnectionPermits::new(Room::default(), &limits, &[None]);
    let inside: Vec<_> = (0..2 + RESERVE_MAX)
        .map(|_| permits.take(0).unwrap())
        .collect();
    assert_eq!(permits.take(0).err(), Some(LimitReached::Broker));
    limits.connections_max = 1;
    permits.set_limits(&limits, &[None]);
    assert_eq!(permits.taken(), 2 + RESERVE_MAX);
    drop(inside);
    assert!(permits.take(0).is_ok());
}

#[test]
fn there_are_no_more_permits_than_open_files() {
    let limits = Limits::default();
    let (places, reserve) = (1, 1);
    let permits = ConnectionPermits::new(Room { places, reserve }, &limits, &[None]);
    let _taken = [permits.take(0).unwrap(), permits.take(0).unwrap()];
    assert_eq!(permits.take(0).err(), Some(LimitReached::Broker));
    permits.set_limits(&limits, &[None]);
    assert_eq!(permits.take(0).err(), Some(LimitReached::Broker));
    assert!(permits.broker_limit().contains("open files"));
}

#[test]
fn a_finished_connection_is_closed_while_the_reserve_is_used() {
    let limits = Limits::default();
    for (places, listener) in [(2, None), (u32::MAX - 8, Some(2))] {
        let room = Room { places, reserve: 8 };
        let permits = ConnectionPermits::new(room, &limits, &[listener]);
        let mut taken: Vec<_> = (0..4).map(|_| permits.take(0).unwrap()).collect();
        assert!(!taken[0].is_needed_elsewhere());
        taken.push(permits.take(0).unwrap());
        assert!(taken[0].is_needed_elsewhere());
    }
}

#[test]
fn closed_connections_are_logged_at_most_once_a_second() {
    let (mut rejected, start) = (Rejected::default(), Instant::now());
    assert_eq!(rejected.take(start), Report::Nothing);
    rejected.count(LimitReached::Listener);
    let report = |broker, listener| Report::Now {
        broker,
        listener,
        handshakes: 0,
        banned: 0,
    };
    assert_eq!(rejected.take(start), report(0, 1));
    rejected.count(LimitReached::Listener);
    rejected.count(LimitReached::Listener);
    rejected.count(LimitReached::Broker);
    let soon = start + REPORT_EVERY / 4;
    assert_eq!(rejected.take(soon), Report::Later(REPORT_EVERY * 3 / 4));
    assert_eq!(rejected.take(start + REPORT_EVERY), report(1, 2));
    assert_eq!(rejected.take(start + 3 * REPORT_EVERY), Report::Nothing);
}

#[test]
fn a_port_that_is_taken_is_an_error() {
    let first = free_port();
    let taken = Listener {
        port: first.address().unwrap().tcp().unwrap().port(),
        ..Listener::default()
    };
    let (address, error) = OpenSocket::open_all(&taken).unwrap_err();
    assert_eq!(address, taken.address());
    assert_eq!(error.kind(), ErrorKind::AddrInUse);
}
