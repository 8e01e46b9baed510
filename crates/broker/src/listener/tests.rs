//! Listeners, seats, and connections for the tests of other modules.

use std::net;

use mio::{Events, Poll};
use unbroken_broker_core::RESERVE_MAX;

use super::*;

/// A seat of a broker that has no other connection.
pub(crate) fn any_seat() -> Seat {
    let seats = Seats::new(Room::default(), &Limits::default(), &[None]);
    seats.take(0).unwrap()
}

/// A connection, and its peer.
pub(crate) fn arrival_and_peer(unread: Vec<u8>) -> (Arrival, net::TcpStream) {
    let (socket, peer) = socket_and_peer();
    let arrival = arrival_over(Transport::tcp(socket, Vec::new()));
    (Arrival { unread, ..arrival }, peer)
}

pub(crate) fn socket_and_peer() -> (TcpStream, net::TcpStream) {
    let listener = net::TcpListener::bind("127.0.0.1:0").unwrap();
    let peer = net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (socket, _) = listener.accept().unwrap();
    socket.set_nonblocking(true).unwrap();
    (TcpStream::from_std(socket), peer)
}

pub(crate) fn arrival_over(transport: Transport) -> Arrival {
    Arrival {
        transport,
        peer: Peer {
            address: None,
            listener: 0,
        },
        seat: any_seat(),
        unread: Vec::new(),
    }
}

/// A connection whose peer is silent.
pub(crate) fn any_arrival(unread: Vec<u8>) -> Arrival {
    let listener = bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let arrival = arrival_over(Transport::tcp(socket, Vec::new()));
    Arrival { unread, ..arrival }
}

fn acceptor(shards: u8, limit: Option<u32>) -> (Acceptor, Poll) {
    acceptor_of(shards, &[limit])
}

fn acceptor_of(shards: u8, limits: &[Option<u32>]) -> (Acceptor, Poll) {
    let sockets = limits.iter().map(|_| {
        let socket = bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = socket.local_addr().unwrap();
        (socket, address)
    });
    let sockets = sockets.collect();
    let seats = Arc::new(Seats::new(Room::default(), &Limits::default(), limits));
    let poll = Poll::new().unwrap();
    let acceptor = Acceptor::new(sockets, seats, shards, poll.registry()).unwrap();
    (acceptor, poll)
}

/// So many knock, and the acceptor has heard it.
fn knock(acceptor: &mut Acceptor, poll: &mut Poll, count: usize) -> Vec<net::TcpStream> {
    knock_at(acceptor, poll, 0, count)
}

fn knock_at(
    acceptor: &mut Acceptor,
    poll: &mut Poll,
    listener: usize,
    count: usize,
) -> Vec<net::TcpStream> {
    let address = acceptor.listeners[listener].address;
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
    let _peers = knock(&mut acceptor, &mut poll, 4);
    let mut shards = Vec::new();
    acceptor.accept(Instant::now(), |to, arrival| {
        assert!(arrival.transport.tcp_stream().nodelay().unwrap());
        shards.push(to.0);
    });
    assert_eq!(shards, [0, 1, 2, 0]);
    assert!(!acceptor.note(Token(7)), "the token of a connection");
}

#[test]
fn a_turn_accepts_some_and_leaves_the_others_to_the_next() {
    let (mut acceptor, mut poll) = acceptor(1, None);
    let _peers = knock(&mut acceptor, &mut poll, ACCEPTS + 1);
    let now = Instant::now();
    for (count, is_left) in [(ACCEPTS, true), (1, false)] {
        let mut came = 0;
        acceptor.accept(now, |_, _| came += 1);
        assert_eq!((came, acceptor.has_work(now)), (count, is_left));
    }
}

#[test]
fn many_at_one_listener_do_not_keep_out_who_comes_to_another() {
    let (mut acceptor, mut poll) = acceptor_of(1, &[None, None]);
    let _many = knock_at(&mut acceptor, &mut poll, 0, 3 * ACCEPTS);
    let _one = knock_at(&mut acceptor, &mut poll, 1, 1);
    let mut came = Vec::new();
    for _ in 0..2 {
        acceptor.accept(Instant::now(), |_, arrival| {
            came.push(arrival.peer.listener);
        });
    }
    assert!(came.contains(&1), "{came:?}");
}

#[test]
fn who_is_turned_away_keeps_nobody_waiting_and_is_told_of_later() {
    let (mut acceptor, mut poll) = acceptor(1, Some(1));
    let now = Instant::now();
    let (mut inside, mut peers) = (Vec::new(), Vec::new());
    let _reserve: Vec<_> = (0..RESERVE_MAX)
        .map(|_| acceptor.seats.take(0).unwrap())
        .collect();
    // The first of them is logged at once, the next one a second later.
    for let_in in [1, 1, 1] {
        peers.push(knock(&mut acceptor, &mut poll, 1));
        acceptor.accept(now, |_, arrival| inside.push(arrival));
        assert_eq!(inside.len(), let_in);
    }
    assert_eq!(acceptor.next_deadline(), Some(now + TELL_EVERY));
    inside.clear();
    peers.push(knock(&mut acceptor, &mut poll, 1));
    assert!(acceptor.has_work(now));
    acceptor.accept(now, |_, arrival| inside.push(arrival));
    assert_eq!(inside.len(), 1);
    let later = now + TELL_EVERY;
    assert!(acceptor.has_work(later));
    acceptor.accept(later, |_, arrival| inside.push(arrival));
    assert_eq!(acceptor.next_deadline(), None);
}

#[test]
fn who_finds_no_seat_behind_others_waits_for_the_next_turn() {
    let (mut acceptor, mut poll) = acceptor(1, Some(1));
    let now = Instant::now();
    let mut taken: Vec<_> = (1..RESERVE_MAX)
        .map(|_| acceptor.seats.take(0).unwrap())
        .collect();
    let _peers = knock(&mut acceptor, &mut poll, 4);
    let mut inside = Vec::new();
    acceptor.accept(now, |_, arrival| inside.push(arrival));
    assert_eq!((inside.len(), acceptor.has_work(now)), (2, true));
    taken.pop(); // who was silent is closed for those who came
    acceptor.accept(now, |_, arrival| inside.push(arrival));
    assert_eq!((inside.len(), acceptor.has_work(now)), (3, true));
    acceptor.accept(now, |_, arrival| inside.push(arrival));
    assert_eq!((inside.len(), acceptor.has_work(now)), (3, false));
}

#[test]
fn what_the_system_refuses_is_asked_for_again_after_a_pause() {
    let (mut acceptor, mut poll) = acceptor(1, None);
    let _peers = knock(&mut acceptor, &mut poll, 1);
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
    let seats = Seats::new(Room::default(), &limits, &[Some(2), None]);
    let reserve: Vec<_> = (0..RESERVE_MAX).map(|_| seats.take(0)).collect();
    let first = seats.take(0);
    let second = seats.take(0);
    assert!(first.is_ok() && second.is_ok());
    assert_eq!(seats.take(0).err(), Some(Full::Listener));
    assert!(seats.take(1).is_ok(), "the other one is not full");
    drop(first);
    assert!(seats.take(0).is_ok());
    drop((second, reserve));
    assert_eq!(seats.taken(), 0);
}

#[test]
fn a_lowered_limit_keeps_those_who_are_in() {
    let mut limits = Limits::default();
    limits.connections_max = 2;
    let seats = Seats::new(Room::default(), &limits, &[None]);
    let inside: Vec<_> = (0..2 + RESERVE_MAX)
        .map(|_| seats.take(0).unwrap())
        .collect();
    assert_eq!(seats.take(0).err(), Some(Full::Broker));
    limits.connections_max = 1;
    seats.set_limits(&limits, &[None]);
    assert_eq!(seats.taken(), 2 + RESERVE_MAX);
    drop(inside);
    assert!(seats.take(0).is_ok());
}

#[test]
fn there_are_no_more_seats_than_the_system_has_room_for() {
    let limits = Limits::default();
    let (places, reserve) = (1, 1);
    let seats = Seats::new(Room { places, reserve }, &limits, &[None]);
    let _taken = [seats.take(0).unwrap(), seats.take(0).unwrap()];
    assert_eq!(seats.take(0).err(), Some(Full::Broker));
    seats.set_limits(&limits, &[None]);
    assert_eq!(seats.take(0).err(), Some(Full::Broker));
    assert!(seats.limit_of_all().contains("open files"));
}

#[test]
fn a_connection_that_only_waits_for_its_peer_is_in_the_way_while_the_reserve_is_used() {
    let limits = Limits::default();
    for (places, listener) in [(2, None), (u32::MAX - 8, Some(2))] {
        let room = Room { places, reserve: 8 };
        let seats = Seats::new(room, &limits, &[listener]);
        let mut taken: Vec<_> = (0..4).map(|_| seats.take(0).unwrap()).collect();
        assert!(!taken[0].is_in_the_way());
        taken.push(seats.take(0).unwrap());
        assert!(taken[0].is_in_the_way());
    }
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
