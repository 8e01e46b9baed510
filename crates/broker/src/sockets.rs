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
//! - An edge, or a place in the order of reads, of a connection that has just gone may reach its
//!   successor. It costs one read in vain.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::time::Instant;

use mio::event::Event;
use mio::{Registry, Token};
use slab::Slab;
use unbroken_broker_core::{CloseCause, ConnectionId, LastWords, Peer};

use crate::listener::Seat;
use crate::mailbox::Arrival;
use crate::transport::{Given, Taken, Transport};
use crate::tuning::READ_QUANTUM;

#[derive(Debug)]
pub(crate) struct Sockets {
    registry: Registry,
    table: Slab<Socket>,
    serial: u32,
    /// To be read, each once as far as `queued` knows: readable, open and not paused when they came
    /// here. A round robin: a connection that has more to read comes to the end.
    ready: VecDeque<u32>,
    /// How many were ever taken off `ready`.
    taken: u64,
    /// Those that leave, in the order in which they began, which is that of their deadlines.
    leaving: VecDeque<(Instant, ConnectionId)>,
    /// What was not written when its connection was closed, until the shard is told.
    unsaid: Vec<LastWords>,
    /// How many have had their last words and a FIN, and are still here.
    finished: usize,
    /// One that is leaving has sent something since this was last asked.
    leaving_spoke: bool,
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
    /// Bytes of the packet that has begun which are still to come.
    missing: usize,
    /// The length of the last packet in which a read ended.
    packet: usize,
    state: State,
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
    /// something, or it has sent nothing before. `more`: there may be more to read.
    Bytes {
        connection: ConnectionId,
        count: usize,
        spoken_to: bool,
        more: bool,
    },
    /// Nothing, or nothing that is for the shard.
    Nothing,
    /// The connection has ended, and is to be closed with [`Sockets::close_ended`].
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
            ready: VecDeque::new(),
            taken: 0,
            leaving: VecDeque::new(),
            unsaid: Vec::new(),
            finished: 0,
            leaving_spoke: false,
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
            missing: 0,
            packet: 0,
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

    /// Takes the next connection to read, in the order in which they became readable.
    pub(crate) fn take_ready(&mut self) -> Option<u32> {
        let index = self.ready.pop_front()?;
        self.taken += 1;
        Some(index)
    }

    /// How many connections are to be read.
    pub(crate) fn ready_len(&self) -> usize {
        self.ready.len()
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

    /// Reads once: a quantum; or a packet that is longer, as the one before was, or the rest of it.
    pub(crate) fn read(&mut self, index: u32, into: &mut [u8]) -> Found {
        let Some(socket) = self.table.get_mut(index as usize) else {
            return Found::Nothing;
        };
        socket.queued = false;
        let whole = match std::mem::take(&mut socket.missing) {
            0 => socket.packet,
            missing => missing,
        };
        let most = READ_QUANTUM.max(whole).min(into.len());
        self.read_socket(index, &mut into[..most])
    }

    /// The last read ended in a packet of this length, of which so many bytes are still to come.
    pub(crate) fn note_packet(&mut self, id: ConnectionId, (length, missing): (usize, usize)) {
        if let Some(socket) = self.socket(id) {
            (socket.packet, socket.missing) = (length, missing);
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
                        more: !drained,
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
    /// lets it read them; at once if the peer waits for none. Call it with deadlines in ascending
    /// order: one that is sooner than an earlier one waits for that.
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
        let socket = &self.table[connection.index as usize];
        if matches!(socket.state, State::Leaving { .. }) {
            self.close(connection.index);
            return Found::Nothing;
        }
        Found::Ended { connection, cause }
    }

    /// Closes a connection that has ended.
    pub(crate) fn close_ended(&mut self, connection: ConnectionId) {
        if self.socket(connection).is_some() {
            self.close(connection.index);
        }
    }

    /// Closes a connection at once.
    fn close(&mut self, index: u32) {
        let socket = self.table.remove(index as usize);
        if let State::Leaving { words, finished } = socket.state {
            self.finished -= usize::from(finished);
            self.keep_unsaid(*words);
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
            self.ready.push_back(index);
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
    use crate::listener::tests::arrival_and_peer;
    use crate::tuning::READ_BUFFER_BYTES;

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
    fn a_connection_is_read_by_the_quantum_and_comes_behind_the_others() {
        let mut poll = Poll::new().unwrap();
        let mut sockets = Sockets::new(poll.registry().try_clone().unwrap());
        let (mut peers, mut ids) = (Vec::new(), Vec::new());
        for _ in 0..2 {
            let (arrival, peer) = arrival_and_peer(Vec::new());
            ids.push(sockets.open(arrival).unwrap().0);
            peers.push(peer);
        }
        let mut buffer = vec![0; READ_BUFFER_BYTES];
        for (peer, count) in peers.iter_mut().zip([3 * READ_QUANTUM, 1]) {
            peer.write_all(&vec![0; count]).unwrap();
            let before = sockets.ready.len();
            note_readable(&mut poll, &mut sockets, before + 1);
        }
        // Of a packet that has begun, so much is missing.
        let mut found = Vec::new();
        for missing in [0, 0, READ_QUANTUM + 1, 0] {
            let index = sockets.take_ready().unwrap();
            sockets.note_packet(ids[index as usize], (0, missing));
            if let Found::Bytes { count, more, .. } = sockets.read(index, &mut buffer) {
                found.push((index, count, more));
            }
        }
        let [busy, quiet] = [ids[0].index, ids[1].index];
        let quantum = READ_QUANTUM;
        let expected = [
            (busy, quantum, true),
            (quiet, 1, false),
            (busy, quantum + 1, true),
            (busy, quantum - 1, false),
        ];
        assert_eq!(found, expected);
        assert!(!sockets.has_ready());
    }

    #[test]
    fn packets_that_are_longer_than_a_quantum_are_read_whole() {
        let mut poll = Poll::new().unwrap();
        let mut sockets = Sockets::new(poll.registry().try_clone().unwrap());
        let (arrival, mut peer) = arrival_and_peer(Vec::new());
        let id = sockets.open(arrival).unwrap().0;
        let mut buffer = vec![0; READ_BUFFER_BYTES];
        let length = 2 * READ_QUANTUM;
        peer.write_all(&vec![0; 3 * length]).unwrap();
        note_readable(&mut poll, &mut sockets, 1);
        let mut counts = Vec::new();
        for begun in [Some((length, READ_QUANTUM)), None, Some((100, 50)), None] {
            sockets.take_ready();
            if let Found::Bytes { count, .. } = sockets.read(id.index, &mut buffer) {
                counts.push(count);
            }
            if let Some(begun) = begun {
                sockets.note_packet(id, begun);
            }
        }
        let quantum = READ_QUANTUM;
        assert_eq!(counts, [quantum, quantum, length, quantum]);
    }

    #[test]
    fn a_connection_is_counted_as_taken_when_it_is_read() {
        let poll = Poll::new().unwrap();
        let mut sockets = Sockets::new(poll.registry().try_clone().unwrap());
        sockets.ready = (0..3).collect();
        assert_eq!((sockets.taken(), sockets.to_take()), (0, 3));
        assert_eq!(sockets.take_ready(), Some(0));
        assert_eq!((sockets.taken(), sockets.to_take()), (1, 3));
        assert_eq!(sockets.ready_len(), 2);
    }
}
