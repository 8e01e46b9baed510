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
//! - What a transform has for the peer (a handshake, a pong) is written when it comes to be, also
//!   while the shard has nothing to write.
//! - Last words that were not wholly written when their connection was closed come out of
//!   [`Sockets::take_unsaid`].
//! - An edge, or a place in the order of reads, of a connection that has just gone may reach its
//!   successor. It costs one read in vain.

mod socket;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::time::Instant;

use mio::event::Event;
use mio::{Registry, Token};
use slab::Slab;
use unbroken_broker_core::{CloseCause, ConnectionId, LastWords, Peer};

use crate::mailbox::Arrival;
use crate::transport::{ReadOutcome, Scratch, WriteOutcome};
use crate::tuning::READ_QUANTUM;
use socket::{Socket, State};

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
    scratch: Scratch,
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
            scratch: Scratch::default(),
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
        } = arrival;
        let entry = self.table.vacant_entry();
        let index = u32::try_from(entry.key()).expect("fewer descriptors than 2^32");
        transport.register(&self.registry, Token(entry.key()))?;
        transport.begin(&mut self.scratch);
        self.serial = self.serial.wrapping_add(1);
        let socket = entry.insert(Socket {
            serial: self.serial,
            // What was opened on another thread has no edge.
            readable: transport.has_unread(),
            transport,
            peer: peer.clone(),
            seat,
            queued: false,
            writable: true,
            hung_up: false,
            spoken_to: true,
            missing: 0,
            packet: 0,
            state: State::Open,
        });
        if !socket.transport.is_plain() {
            socket.flush();
            self.queue(index);
        }
        let serial = self.serial;
        Ok((ConnectionId { index, serial }, peer, unread))
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
        })
    }

    /// Remembers an edge. Answers with the connection if it has become writable again.
    pub(crate) fn note(&mut self, event: &Event) -> Option<ConnectionId> {
        let index = event.token().0;
        let hung_up = event.is_read_closed() || event.is_error();
        if event.is_readable() || hung_up {
            self.note_readable(index, hung_up);
        }
        event
            .is_writable()
            .then(|| self.note_writable(index))
            .flatten()
    }

    pub(crate) fn note_readable(&mut self, index: usize, hung_up: bool) {
        if let Some(socket) = self.table.get_mut(index) {
            socket.readable = true;
            socket.hung_up |= hung_up;
            self.queue(u32::try_from(index).expect("an index of the table"));
        }
    }

    pub(crate) fn note_writable(&mut self, index: usize) -> Option<ConnectionId> {
        let socket = self.table.get_mut(index)?;
        if socket.writable {
            return None;
        }
        socket.writable = true;
        let id = ConnectionId {
            index: u32::try_from(index).expect("an index of the table"),
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
        match socket.transport.read(into, &mut self.scratch) {
            ReadOutcome::Bytes { count, drained } => {
                socket.readable = !drained || socket.hung_up;
                if socket.transport.wants_write() {
                    socket.flush();
                }
                let leaving = matches!(socket.state, State::Leaving { .. });
                let spoken_to = count > 0 && std::mem::take(&mut socket.spoken_to);
                self.queue(index);
                if leaving {
                    self.leaving_spoke = true;
                    Found::Nothing
                } else if count == 0 {
                    Found::Nothing // a step of a handshake, or a part of a record
                } else {
                    Found::Bytes {
                        connection,
                        count,
                        spoken_to,
                        more: !drained,
                    }
                }
            }
            ReadOutcome::Nothing => {
                if let State::Broken(kind) = socket.state {
                    return self.ended(connection, CloseCause::Transport(kind));
                }
                socket.readable = false;
                Found::Nothing
            }
            // A write asks for it again.
            ReadOutcome::Blocked => Found::Nothing,
            ReadOutcome::Ended(cause) => self.ended(connection, cause),
        }
    }

    /// Writes once, from the front of `bytes`, behind what the transforms have to say. Answers how
    /// many count as sent, and whether more would go at once.
    pub(crate) fn write(&mut self, id: ConnectionId, bytes: &[u8]) -> (usize, bool) {
        let Some(socket) = find(&mut self.table, id) else {
            return (0, false);
        };
        if !socket.writable || bytes.is_empty() && !socket.transport.wants_write() {
            return (0, false);
        }
        match socket.transport.write(bytes, &mut self.scratch) {
            WriteOutcome::Bytes { count, full } => {
                socket.writable = !full;
                socket.spoken_to |= count > 0;
                if !socket.transport.is_plain() {
                    self.queue(id.index); // it may have been blocked
                }
                (count, !full)
            }
            WriteOutcome::Broken(kind) => {
                socket.broken(kind);
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
            words: Some(Box::new(words)),
            finished: false,
        };
        if closes {
            self.close(id.index);
            return;
        }
        self.linger(until, id);
    }

    fn linger(&mut self, until: Instant, id: ConnectionId) {
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
        let Some(socket) = find(&mut self.table, id) else {
            return;
        };
        let State::Leaving { words, finished } = &mut socket.state else {
            return;
        };
        let transport = &mut socket.transport;
        loop {
            let unwritten = words.as_ref().map_or(&[][..], |words| words.unwritten());
            if unwritten.is_empty() {
                transport.close(&mut self.scratch);
            }
            if !socket.writable || unwritten.is_empty() && !transport.wants_write() {
                break;
            }
            match transport.write(unwritten, &mut self.scratch) {
                WriteOutcome::Bytes { count, full } => {
                    if let Some(words) = words {
                        words.wrote(count);
                    }
                    socket.writable = !full;
                }
                WriteOutcome::Broken(_) => {
                    self.close(id.index);
                    return;
                }
            }
        }
        let is_written = words.as_ref().is_none_or(|it| it.unwritten().is_empty());
        if is_written && !transport.wants_write() && !*finished {
            *finished = true;
            transport.shut_down();
            self.finished += 1;
        }
        if !socket.transport.is_plain() {
            self.queue(id.index); // it may have been blocked
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

    /// Closes a connection that has ended. A peer that broke the protocol of a transform has until
    /// then to read why.
    pub(crate) fn close_ended(&mut self, until: Instant, connection: ConnectionId) {
        let Some(socket) = self.socket(connection) else {
            return;
        };
        if socket.transport.has_refused() {
            socket.state = State::Leaving {
                words: None,
                finished: false,
            };
            self.linger(until, connection);
        } else {
            self.close(connection.index);
        }
    }

    /// Closes a connection at once.
    fn close(&mut self, index: u32) {
        let mut socket = self.table.remove(index as usize);
        let sent = socket.say_end(&mut self.scratch);
        if let State::Leaving { words, finished } = socket.state {
            self.finished -= usize::from(finished);
            if let Some(mut words) = words {
                words.wrote(sent);
                self.keep_unsaid(*words);
            }
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
        find(&mut self.table, id)
    }
}

fn find(table: &mut Slab<Socket>, id: ConnectionId) -> Option<&mut Socket> {
    table
        .get_mut(id.index as usize)
        .filter(|socket| socket.serial == id.serial)
}
