//! The sockets of one shard thread: what the kernel has told about each, and how it ends.
//!
//! An [`Interest`](mio::Interest) in both directions is registered once; from then on edges are
//! remembered here until a read or a write has used them up. Nothing here knows MQTT.
//!
//! Invariants:
//! - An index is not given to another connection before the one that had it is closed; a
//!   [`ConnectionId`] that is out of date finds nothing.
//! - A connection that leaves is read, and what comes thrown away, until the peer closes too or the
//!   time it was given is over: closing a socket with unread bytes makes the kernel send RST, which
//!   overtakes our last words.
//! - Last words that were not wholly written when their connection was closed come out of
//!   [`Sockets::take_unsaid`].
//! - An edge for a connection that has just gone may reach its successor. It costs one read in
//!   vain.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::time::Instant;

use mio::event::Event;
use mio::{Registry, Token};
use slab::Slab;
use unbroken_broker_core::{CloseCause, ConnectionId, LastWords, Peer};

use crate::bounds::{AHEAD, COMPANY_TURNS, FLOOD_READ_BYTES, READ_MUCH, SMALL_PACKET};
use crate::listener::Seat;
use crate::mailbox::Arrival;
use crate::transport::{Given, Taken, Transport};

#[derive(Debug)]
pub(crate) struct Sockets {
    registry: Registry,
    table: Slab<Socket>,
    serial: u32,
    /// To be read in the next turn, each once, as far as `queued` knows: readable, open and not
    /// paused when they came here.
    ready: Vec<u32>,
    /// How many were ever taken off `ready`, and not put back.
    taken: u64,
    /// Turns since [`note_company`](Self::note_company).
    much_alone: u32,
    /// Those that leave, in the order in which they began, which is that of their deadlines.
    leaving: VecDeque<(Instant, ConnectionId)>,
    /// What was not written when its connection was closed, until the shard is told.
    unsaid: Vec<LastWords>,
    /// How many have had their last words and a FIN, and are still here.
    finished: usize,
    /// One that is leaving has sent something since this was last asked.
    leaving_spoke: bool,
    /// Empty between uses; kept for its capacity.
    last: Vec<u32>,
}

#[derive(Debug)]
struct Socket {
    serial: u32,
    transport: Transport,
    peer: Peer,
    seat: Seat,
    /// An edge came and no read has found the end yet.
    readable: bool,
    /// In `ready`.
    queued: bool,
    writable: bool,
    /// The peer will send no more: only a read that finds the end tells, so a short read is not
    /// the last.
    hung_up: bool,
    /// Bytes were written since bytes were read, so the next ones may be an answer; or nothing was
    /// read yet, and who comes waits to be let in.
    spoken_to: bool,
    /// Its last read brought [`READ_MUCH`] or more.
    brought_much: bool,
    /// When it last did, whether that was in small packets.
    in_small: bool,
    /// It was put back, and so is read among the first.
    waited: bool,
    state: State,
}

impl Socket {
    /// Its last read brought much, in small packets.
    const fn floods(&self) -> bool {
        self.brought_much && self.in_small
    }
}

#[derive(Debug)]
enum State {
    Open,
    /// Somebody decides whether it may come in, or it does not take its answers, or is about to
    /// move; until then nothing is read.
    Paused,
    /// A write failed. What the peer sent before it went is still read, so that a DISCONNECT is not
    /// missed; then it ends with this.
    Broken(ErrorKind),
    /// The shard has forgotten it; these are still to be written. `finished`: that was done, and
    /// the peer knows.
    Leaving {
        words: Box<LastWords>,
        finished: bool,
    },
}

/// What a read has found for the shard.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// This many bytes. `spoken_to`: something was written to the peer since it last sent
    /// something, or it has sent nothing before. `floods`: this is much, and so was what the
    /// read before brought, in small packets. `little`: this is not much, and neither was that; a
    /// flood may have a short read between others.
    Bytes {
        connection: ConnectionId,
        count: usize,
        spoken_to: bool,
        floods: bool,
        little: bool,
    },
    /// Nothing, or nothing that is for the shard.
    Nothing,
    /// The connection has ended and is closed.
    Ended {
        connection: ConnectionId,
        cause: CloseCause,
    },
}

impl Sockets {
    pub(crate) fn new(registry: Registry) -> Self {
        Self {
            registry,
            table: Slab::new(),
            serial: 0,
            ready: Vec::new(),
            taken: 0,
            much_alone: COMPANY_TURNS,
            leaving: VecDeque::new(),
            unsaid: Vec::new(),
            finished: 0,
            leaving_spoke: false,
            last: Vec::new(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Whether all that are here have had their last words and a FIN, and only have to close.
    pub(crate) fn all_finished(&self) -> bool {
        self.finished == self.table.len()
    }

    /// Whether one that is leaving has sent something since the last call: it still works on what
    /// it was sent, and closing would take the rest from it.
    pub(crate) fn take_leaving_spoke(&mut self) -> bool {
        std::mem::take(&mut self.leaving_spoke)
    }

    #[cfg(test)]
    pub(crate) const fn leaving_spoke(&self) -> bool {
        self.leaving_spoke
    }

    /// Takes a connection in. If bytes wait in it already, an edge will come.
    pub(crate) fn open(&mut self, arrival: Arrival) -> io::Result<(ConnectionId, Peer, Vec<u8>)> {
        let Arrival {
            mut transport,
            peer,
            seat,
            unread,
            traveller: _,
        } = arrival;
        let entry = self.table.vacant_entry();
        let index = u32::try_from(entry.key()).expect("fewer descriptors than 2^32");
        transport.register(&self.registry, Token(entry.key()))?;
        self.serial = self.serial.wrapping_add(1);
        entry.insert(Socket {
            serial: self.serial,
            transport,
            peer: peer.clone(),
            seat,
            readable: false,
            queued: false,
            writable: true,
            hung_up: false,
            spoken_to: true,
            brought_much: false,
            in_small: false,
            waited: false,
            state: State::Open,
        });
        Ok((
            ConnectionId {
                index,
                serial: self.serial,
            },
            peer,
            unread,
        ))
    }

    /// Takes a connection off this thread, to be opened on another.
    pub(crate) fn release(&mut self, id: ConnectionId, unread: Vec<u8>) -> io::Result<Arrival> {
        self.socket(id).ok_or(ErrorKind::NotConnected)?;
        let Socket {
            mut transport,
            peer,
            seat,
            ..
        } = self.table.remove(id.index as usize);
        transport.deregister(&self.registry)?;
        Ok(Arrival {
            transport,
            peer,
            seat,
            unread,
            traveller: None,
        })
    }

    /// Remembers an edge. Answers with the connection if it has become writable again.
    pub(crate) fn note(&mut self, event: &Event) -> Option<ConnectionId> {
        let index = event.token().0;
        let socket = self.table.get_mut(index)?;
        let index = u32::try_from(index).expect("an index of the table");
        if event.is_readable() || event.is_read_closed() || event.is_error() {
            socket.readable = true;
            socket.hung_up |= event.is_read_closed() || event.is_error();
            self.queue(index);
        }
        let socket = self.table.get_mut(index as usize)?;
        if !event.is_writable() || socket.writable {
            return None;
        }
        socket.writable = true;
        let id = ConnectionId {
            index,
            serial: socket.serial,
        };
        match socket.state {
            State::Open | State::Paused => return Some(id),
            State::Broken(_) => socket.writable = false,
            State::Leaving { .. } => self.go_on_leaving(id),
        }
        None
    }

    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Takes the connections to read in this turn, in the order in which they became readable, and
    /// at most so many. The others are the first of the next turn. Those that brought much when
    /// they were last read come behind the rest; answers how many that is.
    pub(crate) fn take_ready(&mut self, into: &mut Vec<u32>, most: usize) -> usize {
        debug_assert!(into.is_empty(), "the turn before was finished");
        if self.ready.len() <= most {
            std::mem::swap(&mut self.ready, into);
        } else {
            into.extend(self.ready.drain(..most));
        }
        self.taken += into.len() as u64;
        self.much_alone = self.much_alone.saturating_add(1);
        into.retain(|&index| {
            let socket = self.table.get_mut(index as usize);
            let is_last = socket.is_some_and(|socket| {
                let waited = std::mem::take(&mut socket.waited);
                socket.brought_much && !waited
            });
            if is_last {
                self.last.push(index);
            }
            !is_last
        });
        let rest = into.len();
        into.append(&mut self.last);
        rest
    }

    /// Puts the last ones that were taken back, unread: they are the first of the next turn, also
    /// those that brought much, which could else be put back for ever.
    pub(crate) fn put_back(&mut self, unread: impl ExactSizeIterator<Item = u32>) {
        self.taken -= unread.len() as u64;
        let unread = unread.inspect(|&index| {
            if let Some(socket) = self.table.get_mut(index as usize) {
                socket.waited = true;
            }
        });
        self.ready.splice(..0, unread);
    }

    /// How many were taken to be read, ever.
    pub(crate) const fn taken(&self) -> u64 {
        self.taken
    }

    /// [`taken`](Self::taken) when all that are readable now have been.
    pub(crate) fn to_take(&self) -> u64 {
        self.taken + self.ready.len() as u64
    }

    /// How many connections there are.
    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// Reads once.
    pub(crate) fn read(&mut self, index: u32, into: &mut [u8]) -> Found {
        if let Some(socket) = self.table.get_mut(index as usize) {
            socket.queued = false;
        }
        self.read_socket(index, into)
    }

    /// Reads once: of who floods less while somebody else is about.
    pub(crate) fn read_beside(&mut self, index: u32, into: &mut [u8]) -> Found {
        let floods = |socket: &Socket| socket.floods() && matches!(socket.state, State::Open);
        let most = if self.much_alone < COMPANY_TURNS
            && self.table.get(index as usize).is_some_and(floods)
        {
            into.len().min(FLOOD_READ_BYTES)
        } else {
            into.len()
        };
        self.read(index, &mut into[..most])
    }

    /// Reads once, ahead of its turn, the first that does not bring much and has anything, among
    /// the first [`AHEAD`] that are to be read in the next turn; not `but`, of which not all has
    /// been used that was read before. Who fills the buffer brings much. It keeps its place, so
    /// that [`taken`](Self::taken) counts those before it first.
    pub(crate) fn read_ahead(&mut self, but: ConnectionId, into: &mut [u8]) -> Option<Found> {
        let index = self.ready.iter().take(AHEAD).copied().find(|&index| {
            let socket = self.table.get(index as usize);
            socket.is_some_and(|socket| {
                let is_open = matches!(socket.state, State::Open);
                index != but.index && is_open && socket.readable && !socket.brought_much
            })
        })?;
        let mut found = self.read_socket(index, into);
        if let Found::Bytes { count, little, .. } = &mut found
            && *count == into.len()
            && let Some(socket) = self.table.get_mut(index as usize)
        {
            // There is more of it, for its turn.
            *little = false;
            socket.brought_much = true;
            socket.in_small = false;
        }
        Some(found)
    }

    /// Somebody is about for whom floods are to be read by less at once.
    pub(crate) fn note_company(&mut self) {
        self.much_alone = 0;
    }

    /// Of how many packets the last read of this one was, of so many bytes.
    pub(crate) fn note_packets(&mut self, id: ConnectionId, bytes: usize, packets: u64) {
        if let Some(socket) = self.socket(id) {
            let small = u64::try_from(bytes / SMALL_PACKET).unwrap_or(u64::MAX);
            socket.in_small = packets >= small;
        }
    }

    fn read_socket(&mut self, index: u32, into: &mut [u8]) -> Found {
        let Some(socket) = self.table.get_mut(index as usize) else {
            return Found::Nothing;
        };
        if !socket.readable || matches!(socket.state, State::Paused) {
            return Found::Nothing;
        }
        let connection = ConnectionId {
            index,
            serial: socket.serial,
        };
        match socket.transport.take(into) {
            Taken::Bytes { count, drained } => {
                let spoken_to = std::mem::take(&mut socket.spoken_to);
                let leaving = matches!(socket.state, State::Leaving { .. });
                let brings_much = count >= READ_MUCH;
                let floods = brings_much && socket.floods();
                let little = !brings_much && !socket.brought_much;
                socket.brought_much = brings_much;
                socket.readable = !drained || socket.hung_up;
                self.queue(index);
                if leaving {
                    self.leaving_spoke = true;
                    Found::Nothing
                } else {
                    Found::Bytes {
                        connection,
                        count,
                        spoken_to,
                        floods,
                        little,
                    }
                }
            }
            Taken::Nothing => {
                if let State::Broken(kind) = socket.state {
                    return self.ended(connection, CloseCause::Transport(kind));
                }
                socket.readable = false;
                Found::Nothing
            }
            Taken::Ended(cause) => self.ended(connection, cause),
        }
    }

    /// Writes once, from the front of `bytes`. Answers how many went, and whether more would go at
    /// once.
    pub(crate) fn write(&mut self, id: ConnectionId, bytes: &[u8]) -> (usize, bool) {
        let Some(socket) = self.socket(id) else {
            return (0, false);
        };
        if !socket.writable || bytes.is_empty() {
            return (0, false);
        }
        match socket.transport.give(bytes) {
            Given::Bytes { count, full } => {
                socket.writable = !full;
                socket.spoken_to |= count > 0;
                (count, !full)
            }
            Given::Broken(kind) => {
                socket.writable = false;
                socket.readable = true;
                socket.hung_up = true;
                socket.state = State::Broken(kind);
                self.queue(id.index);
                (0, false)
            }
        }
    }

    /// Stops reading, until [`resume`](Self::resume).
    pub(crate) fn pause(&mut self, id: ConnectionId) {
        if let Some(socket) = self.socket(id)
            && matches!(socket.state, State::Open)
        {
            socket.state = State::Paused;
        }
    }

    pub(crate) fn resume(&mut self, id: ConnectionId) {
        if let Some(socket) = self.socket(id)
            && matches!(socket.state, State::Paused)
        {
            socket.state = State::Open;
            self.queue(id.index);
        }
    }

    /// Writes the last bytes, as far as the peer takes them by `until`, and closes in a way that
    /// lets it read them; at once if nobody awaits them. Deadlines are to be given in their order:
    /// one that is sooner than an earlier one waits for that.
    pub(crate) fn leave(&mut self, until: Instant, id: ConnectionId, words: LastWords) {
        let Some(socket) = self.socket(id) else {
            return self.keep_unsaid(words);
        };
        let closes = matches!(socket.state, State::Broken(_)) || !words.is_awaited();
        socket.state = State::Leaving {
            words: Box::new(words),
            finished: false,
        };
        if closes {
            self.close(id.index);
            return;
        }
        self.leaving.push_back((until, id));
        self.go_on_leaving(id);
        // The end of the peer's bytes may have been seen already, or may come with this very read.
        if let Some(socket) = self.socket(id) {
            socket.readable = true;
            self.queue(id.index);
        }
    }

    /// Closes a connection that has had its last bytes, if its seat is needed. The kernel sends
    /// them; a peer that sends more meanwhile may not get them.
    pub(crate) fn hurry(&mut self, id: ConnectionId) {
        if self.socket(id).is_some_and(|socket| {
            let is_finished = matches!(socket.state, State::Leaving { finished: true, .. });
            is_finished && socket.seat.is_in_the_way()
        }) {
            self.close(id.index);
        }
    }

    /// Closes those whose time to leave is over.
    pub(crate) fn close_overdue(&mut self, now: Instant) {
        while let Some(&(until, id)) = self.leaving.front()
            && until <= now
        {
            self.leaving.pop_front();
            if self.socket(id).is_some() {
                self.close(id.index);
            }
        }
    }

    /// Closes everything.
    pub(crate) fn close_all(&mut self) {
        let indices: Vec<_> = self.table.iter().map(|(index, _)| index).collect();
        for index in indices {
            self.close(u32::try_from(index).expect("an index of the table"));
        }
    }

    pub(crate) fn has_unsaid(&self) -> bool {
        !self.unsaid.is_empty()
    }

    /// What was not wholly written of the last words of connections closed since the last call.
    pub(crate) fn take_unsaid(&mut self) -> Vec<LastWords> {
        std::mem::take(&mut self.unsaid)
    }

    /// When [`close_overdue`](Self::close_overdue) has something to do.
    pub(crate) fn next_deadline(&mut self) -> Option<Instant> {
        while let Some(&(until, id)) = self.leaving.front() {
            if self.socket(id).is_some() {
                return Some(until);
            }
            self.leaving.pop_front();
        }
        None
    }

    fn go_on_leaving(&mut self, id: ConnectionId) {
        let Some(socket) = self.socket(id) else {
            return;
        };
        let State::Leaving { words, finished } = &mut socket.state else {
            return;
        };
        while socket.writable && !words.unwritten().is_empty() {
            match socket.transport.give(words.unwritten()) {
                Given::Bytes { count, full } => {
                    words.wrote(count);
                    socket.writable = !full;
                }
                Given::Broken(_) => {
                    self.close(id.index);
                    return;
                }
            }
        }
        if words.unwritten().is_empty() && !*finished {
            *finished = true;
            socket.transport.finish();
            self.finished += 1;
        }
    }

    fn ended(&mut self, connection: ConnectionId, cause: CloseCause) -> Found {
        if self.close(connection.index) {
            Found::Ended { connection, cause }
        } else {
            Found::Nothing
        }
    }

    /// Closes a connection at once. Answers whether the shard still knows it.
    fn close(&mut self, index: u32) -> bool {
        match self.table.remove(index as usize).state {
            State::Leaving { words, finished } => {
                self.finished -= usize::from(finished);
                self.keep_unsaid(*words);
                false
            }
            State::Open | State::Paused | State::Broken(_) => true,
        }
    }

    fn keep_unsaid(&mut self, words: LastWords) {
        if !words.unwritten().is_empty() {
            self.unsaid.push(words);
        }
    }

    /// Puts a connection on the list for the next turn if it is to be read and not on it.
    fn queue(&mut self, index: u32) {
        if let Some(socket) = self.table.get_mut(index as usize)
            && socket.readable
            && !socket.queued
            && !matches!(socket.state, State::Paused)
        {
            socket.queued = true;
            self.ready.push(index);
        }
    }

    fn socket(&mut self, id: ConnectionId) -> Option<&mut Socket> {
        self.table
            .get_mut(id.index as usize)
            .filter(|socket| socket.serial == id.serial)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use mio::{Events, Poll};

    use super::*;
    use crate::bounds::READ_BYTES;
    use crate::listener::tests::arrival_and_peer;

    /// Until so many are to be read.
    fn note_readable(poll: &mut Poll, sockets: &mut Sockets, count: usize) {
        while sockets.ready.len() < count {
            let mut events = Events::with_capacity(8);
            poll.poll(&mut events, None).unwrap();
            for event in events.iter().filter(|event| event.is_readable()) {
                sockets.note(event);
            }
        }
    }

    #[test]
    fn those_that_brought_much_come_behind_the_rest() {
        let mut poll = Poll::new().unwrap();
        let mut sockets = Sockets::new(poll.registry().try_clone().unwrap());
        let (mut peers, mut indices) = (Vec::new(), Vec::new());
        for _ in 0..3 {
            let (arrival, peer) = arrival_and_peer(Vec::new());
            indices.push(sockets.open(arrival).unwrap().0.index);
            peers.push(peer);
        }
        let [much, little, other] = indices[..] else {
            unreachable!("three were opened")
        };
        let mut buffer = vec![0; 2 * READ_MUCH];
        // The first two send so many bytes, one after the other, and are read.
        let mut round = |bytes: [usize; 2]| {
            for (count, peer) in bytes.into_iter().zip(&mut peers) {
                peer.write_all(&vec![0; count]).unwrap();
                let before = sockets.ready.len();
                note_readable(&mut poll, &mut sockets, before + 1);
            }
            sockets.ready.push(other); // its edge came for nothing
            let mut into = Vec::new();
            let rest = sockets.take_ready(&mut into, usize::MAX);
            for index in [much, little] {
                sockets.read(index, &mut buffer);
            }
            (into, rest)
        };
        assert_eq!(round([READ_MUCH, 1]), (vec![much, little, other], 3));
        assert_eq!(round([1, READ_MUCH - 1]), (vec![little, other, much], 2));
        assert_eq!(round([READ_MUCH, 1]), (vec![much, little, other], 3));
        // Unless they have waited for a turn.
        sockets.ready = vec![little, much, other];
        let mut into = Vec::new();
        assert_eq!(sockets.take_ready(&mut into, 2), 1);
        sockets.put_back(into.drain(1..));
        into.clear();
        assert_eq!(sockets.take_ready(&mut into, 2), 2);
        assert_eq!(into, [much, other]);
    }

    #[test]
    fn of_a_flood_less_is_read_at_once_while_somebody_else_is_about() {
        let poll = Poll::new().unwrap();
        let mut sockets = Sockets::new(poll.registry().try_clone().unwrap());
        let (arrival, mut peer) = arrival_and_peer(Vec::new());
        let flood = sockets.open(arrival).unwrap().0;
        // Until nobody reads.
        std::thread::spawn(move || while peer.write_all(&vec![0; READ_BYTES]).is_ok() {});
        let mut buffer = vec![0; READ_BYTES];
        // Whether a read ever brings so much or more, so many turns after a quiet one.
        let mut brings = |bytes, much_alone| {
            (0..100_000).any(|_| {
                sockets.much_alone = much_alone;
                let socket = &mut sockets.table[flood.index as usize];
                (socket.readable, socket.brought_much) = (true, true);
                socket.in_small = true;
                std::thread::yield_now();
                let found = sockets.read_beside(flood.index, &mut buffer);
                matches!(found, Found::Bytes { count, .. } if count >= bytes)
            })
        };
        assert!(brings(FLOOD_READ_BYTES, COMPANY_TURNS - 1));
        assert!(!brings(FLOOD_READ_BYTES + 1, 0));
        assert!(brings(FLOOD_READ_BYTES + 1, COMPANY_TURNS));
    }

    #[test]
    fn who_brings_little_twice_brings_little_and_company_lasts_for_a_while() {
        let mut poll = Poll::new().unwrap();
        let mut sockets = Sockets::new(poll.registry().try_clone().unwrap());
        let (arrival, mut peer) = arrival_and_peer(Vec::new());
        let id = sockets.open(arrival).unwrap().0;
        let mut buffer = vec![0; 2 * READ_MUCH];
        // A flood has a short read between others.
        for (bytes, expected) in [
            (READ_MUCH, false),
            (1, false),
            (READ_MUCH, false),
            (1, false),
            (1, true),
        ] {
            peer.write_all(&vec![0; bytes]).unwrap();
            note_readable(&mut poll, &mut sockets, 1);
            sockets.take_ready(&mut Vec::new(), usize::MAX);
            let found = sockets.read(id.index, &mut buffer);
            let is_little = matches!(found, Found::Bytes { little: true, .. });
            assert_eq!(is_little, expected, "{bytes}");
        }
        assert!(sockets.much_alone > COMPANY_TURNS);
        sockets.note_company();
        for _ in 0..COMPANY_TURNS {
            assert!(sockets.much_alone < COMPANY_TURNS);
            sockets.take_ready(&mut Vec::new(), usize::MAX);
        }
        assert_eq!(sockets.much_alone, COMPANY_TURNS);
    }

    #[test]
    fn connections_beyond_one_turn_are_the_first_of_the_next() {
        let poll = Poll::new().unwrap();
        let mut sockets = Sockets::new(poll.registry().try_clone().unwrap());
        sockets.ready = (0..5).collect();
        let mut take = |again: Option<u32>| {
            let mut round = Vec::new();
            sockets.take_ready(&mut round, 2);
            if let Some(index) = again {
                sockets.ready.push(index); // it has more
            }
            round
        };
        assert_eq!(take(Some(0)), [0, 1]);
        assert_eq!(take(None), [2, 3]);
        assert_eq!(take(None), [4, 0]);
        assert!(take(None).is_empty());
    }

    #[test]
    fn who_is_read_ahead_keeps_the_place_in_the_order() {
        let mut poll = Poll::new().unwrap();
        let mut sockets = Sockets::new(poll.registry().try_clone().unwrap());
        let (mut ids, mut peers) = (Vec::new(), Vec::new());
        for _ in 0..5 {
            let (arrival, mut peer) = arrival_and_peer(Vec::new());
            ids.push(sockets.open(arrival).unwrap().0);
            peer.write_all(b"some").unwrap();
            peers.push(peer);
        }
        note_readable(&mut poll, &mut sockets, peers.len());
        let [much, but, paused, first, second] = ids[..] else {
            unreachable!("five were opened")
        };
        sockets.ready = ids.iter().map(|id| id.index).collect();
        sockets.table[much.index as usize].brought_much = true;
        sockets.pause(paused);
        let mut buffer = [0; 8];
        let mut ahead = || match sockets.read_ahead(but, &mut buffer)? {
            Found::Bytes { connection, .. } => Some(connection),
            other => unreachable!("{other:?}"),
        };
        assert_eq!(
            [ahead(), ahead(), ahead()],
            [Some(first), Some(second), None]
        );
        assert_eq!((sockets.taken(), sockets.ready.len()), (0, 5));
        let mut round = Vec::new();
        sockets.take_ready(&mut round, usize::MAX);
        assert_eq!(sockets.taken(), 5);
        let unread = ids.iter().filter(|id| {
            let found = sockets.read(id.index, &mut buffer);
            found != Found::Nothing
        });
        assert_eq!(unread.collect::<Vec<_>>(), [&much, &but]);
        assert!(!sockets.has_ready());
    }

    #[test]
    fn what_is_put_back_is_the_first_of_the_next_turn_and_counts_as_not_taken() {
        let poll = Poll::new().unwrap();
        let mut sockets = Sockets::new(poll.registry().try_clone().unwrap());
        sockets.ready = (0..5).collect();
        let mut round = Vec::new();
        sockets.take_ready(&mut round, 4);
        assert_eq!((sockets.taken(), sockets.to_take()), (4, 5));
        sockets.put_back(round.drain(1..));
        assert_eq!((sockets.taken(), sockets.to_take()), (1, 5));
        assert_eq!(sockets.ready, [1, 2, 3, 4]);
    }
}
