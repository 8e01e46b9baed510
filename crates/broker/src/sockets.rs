//! The sockets of one shard thread: their readiness, and how each is closed.
//!
//! Interest in both directions is registered once. Edges are remembered until a read or a write has
//! used them up. Nothing here knows MQTT.
//!
//! Invariants:
//! - An index is not reused before its connection is closed; a [`ConnectionId`] of a closed
//!   connection finds nothing.
//! - A closing connection is read and the bytes discarded, until the peer closes too or its
//!   deadline passes: closing a socket with unread bytes makes the kernel send RST, which overtakes
//!   the final bytes.
//! - Bytes that a transform sends (a handshake, a pong) are written when they are produced, even
//!   while the shard has nothing to write; behind bytes of the shard, with its next write.
//! - Final bytes that were not completely written when their connection was closed are returned by
//!   [`Sockets::take_unsent`].
//! - An edge of a closed connection, or its place in the order of reads, may reach the next
//!   connection with its index. This costs one read in vain.

mod news;
mod read_queue;
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

use crate::channel::IncomingConnection;
use crate::config::Protocol;
use crate::transport::{ReadOutcome, Scratch, WriteOutcome};
use crate::tuning::READ_QUANTUM;
pub(crate) use news::TransportNews;
use read_queue::ReadQueue;
pub(crate) use socket::SocketRead;
use socket::{Socket, State, find};

#[derive(Debug)]
pub(crate) struct Sockets {
    registry: Registry,
    table: Slab<Socket>,
    serial: u32,
    reads: ReadQueue,
    /// What transforms have for the shard, beside bytes.
    news: Vec<(ConnectionId, news::Kind)>,
    /// Closing connections, in the order of their deadlines.
    closing: VecDeque<(Instant, ConnectionId)>,
    /// Final bytes that were not written when their connection was closed, until the shard takes
    /// them.
    unsent: Vec<LastWords>,
    /// Paused connections whose peer will send no more.
    hung_up: Vec<ConnectionId>,
    /// Closing connections that have received their final bytes and a FIN.
    finished: usize,
    /// A closing connection has sent something since the last call.
    received_while_closing: bool,
    scratch: Scratch,
}

impl Sockets {
    pub(crate) fn new(registry: Registry) -> Self {
        Self {
            registry,
            table: Slab::new(),
            serial: 0,
            reads: ReadQueue::default(),
            news: Vec::new(),
            closing: VecDeque::new(),
            unsent: Vec::new(),
            hung_up: Vec::new(),
            finished: 0,
            received_while_closing: false,
            scratch: Scratch::default(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Whether all connections have received their final bytes and a FIN, and only have to close.
    pub(crate) fn all_finished(&self) -> bool {
        self.finished == self.table.len()
    }

    /// Whether a closing connection has sent something since the last call: then its peer still
    /// reads, and an early close would lose the rest.
    pub(crate) fn take_received_while_closing(&mut self) -> bool {
        std::mem::take(&mut self.received_while_closing)
    }

    #[cfg(test)]
    pub(crate) const fn received_while_closing(&self) -> bool {
        self.received_while_closing
    }

    /// Adds a connection. If bytes wait in it already, an edge will come.
    pub(crate) fn open(
        &mut self,
        incoming: IncomingConnection,
    ) -> io::Result<(ConnectionId, Peer, Vec<u8>)> {
        let IncomingConnection {
            mut transport,
            peer,
            permit,
            unread,
        } = incoming;
        let entry = self.table.vacant_entry();
        let index = u32::try_from(entry.key()).expect("fewer descriptors than 2^32");
        transport.register(&self.registry, Token(entry.key()))?;
        transport.begin(&mut self.scratch);
        self.serial = self.serial.wrapping_add(1);
        let socket = entry.insert(Socket {
            serial: self.serial,
            // Bytes that were opened on another thread cause no edge.
            readable: transport.has_unread(),
            transport,
            peer: peer.clone(),
            permit,
            held: 0,
            queued: false,
            writable: true,
            hung_up: false,
            written_since_read: true,
            missing: 0,
            packet: 0,
            state: State::Open,
        });
        if !socket.transport.is_plain() {
            socket.flush();
            self.note_held(index);
            self.queue(index);
        }
        let serial = self.serial;
        Ok((ConnectionId { index, serial }, peer, unread))
    }

    /// Removes a connection, to be opened on another thread.
    pub(crate) fn release(
        &mut self,
        id: ConnectionId,
        unread: Vec<u8>,
    ) -> io::Result<IncomingConnection> {
        self.socket(id).ok_or(ErrorKind::NotConnected)?;
        let Socket {
            mut transport,
            peer,
            permit,
            ..
        } = self.table.remove(id.index as usize);
        transport.deregister(&self.registry)?;
        Ok(IncomingConnection {
            transport,
            peer,
            permit,
            unread,
        })
    }

    /// Notes an edge. Returns the connection if it has become writable again.
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
            let index = u32::try_from(index).expect("an index of the table");
            if hung_up && !socket.hung_up && matches!(socket.state, State::Paused) {
                let serial = socket.serial;
                self.hung_up.push(ConnectionId { index, serial });
            }
            socket.hung_up |= hung_up;
            self.queue(index);
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
            State::Closing { .. } => self.continue_closing(id),
        }
        None
    }

    /// A turn begins: handshakes go on.
    pub(crate) fn begin_turn(&mut self) {
        self.reads.begin_turn();
    }

    pub(crate) fn has_ready(&self) -> bool {
        self.reads.len() > 0 || self.has_deferred()
    }

    /// Whether handshakes wait for the next turn.
    pub(crate) fn has_deferred(&self) -> bool {
        self.reads.has_deferred()
    }

    /// Why this connection's peer broke the protocol of a transform, and which protocols it may
    /// have meant.
    pub(crate) fn refusal(&self, id: ConnectionId) -> Option<(&Peer, &str, &'static [Protocol])> {
        let socket = self.table.get(id.index as usize)?;
        let (why, needs) = socket.transport.refusal()?;
        (socket.serial == id.serial).then_some((&socket.peer, why, needs))
    }

    /// Takes the next connection to read, in the order in which they became readable.
    pub(crate) fn take_ready(&mut self) -> Option<u32> {
        self.reads.take()
    }

    /// How many connections are to be read.
    pub(crate) fn ready_len(&self) -> usize {
        self.reads.len()
    }

    /// A number that grows with what is read; see [`to_read`](Self::to_read).
    pub(crate) fn read_so_far(&self) -> u64 {
        self.reads.read()
    }

    /// [`read_so_far`](Self::read_so_far) when all that are readable now are read.
    pub(crate) const fn to_read(&self) -> u64 {
        self.reads.issued()
    }

    /// How many connections there are.
    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// Reads once: a quantum, or a whole packet where packets are longer, or the rest of one.
    pub(crate) fn read(&mut self, index: u32, into: &mut [u8]) -> SocketRead {
        let Some(socket) = self.table.get_mut(index as usize) else {
            return SocketRead::Nothing;
        };
        if socket.transport.is_handshaking() && !self.reads.take_step(index) {
            return SocketRead::Nothing; // it stays queued
        }
        socket.queued = false;
        let missing = std::mem::take(&mut socket.missing);
        let whole = if missing == 0 { socket.packet } else { missing };
        let most = READ_QUANTUM.max(whole).min(into.len());
        self.read_socket(index, &mut into[..most])
    }

    /// The last read ended in a packet of this length, of which so many bytes are still to come.
    pub(crate) fn note_packet(&mut self, id: ConnectionId, (length, missing): (usize, usize)) {
        if let Some(socket) = self.socket(id) {
            (socket.packet, socket.missing) = (length, missing);
        }
    }

    fn read_socket(&mut self, index: u32, into: &mut [u8]) -> SocketRead {
        let Some(socket) = self.table.get_mut(index as usize) else {
            return SocketRead::Nothing;
        };
        if !socket.readable || matches!(socket.state, State::Paused) {
            return SocketRead::Nothing;
        }
        let connection = ConnectionId {
            index,
            serial: socket.serial,
        };
        let was_handshaking = socket.transport.is_handshaking();
        match socket.transport.read(into, &mut self.scratch) {
            ReadOutcome::Bytes { count, drained } => {
                socket.readable = !drained || socket.hung_up;
                if !socket.transport.is_plain() && socket.opened_more(was_handshaking) {
                    self.news.push((connection, news::Kind::Identified));
                }
                let closing = socket.is_closing();
                let written_since_read =
                    count > 0 && std::mem::take(&mut socket.written_since_read);
                self.note_held(index);
                self.queue(index);
                if closing {
                    self.received_while_closing = true;
                    SocketRead::Nothing
                } else if count == 0 {
                    SocketRead::Nothing // a step of a handshake, or a part of a record
                } else {
                    SocketRead::Bytes {
                        connection,
                        count,
                        written_since_read,
                        more: !drained,
                    }
                }
            }
            ReadOutcome::Nothing => {
                if let State::Broken(kind) = socket.state {
                    return self.ended(connection, CloseCause::Transport(kind));
                }
                socket.readable = false;
                SocketRead::Nothing
            }
            // The next write queues it again.
            ReadOutcome::Blocked => SocketRead::Nothing,
            ReadOutcome::Ended(cause) => self.ended(connection, cause),
        }
    }

    /// Writes once, from the front of `bytes`, after the pending bytes of the transforms. Returns
    /// how many count as sent, and whether the socket would take more.
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
                socket.written_since_read |= count > 0;
                if !socket.transport.is_plain() {
                    self.note_held(id.index);
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

    /// Bytes of the last writes that are sealed and count as sent when the socket has taken them.
    pub(crate) fn sealed(&self, id: ConnectionId) -> usize {
        let socket = self.table.get(id.index as usize);
        let socket = socket.filter(|socket| socket.serial == id.serial);
        socket.map_or(0, |socket| socket.transport.sealed())
    }

    /// Stops reading, until [`resume`](Self::resume).
    pub(crate) fn pause(&mut self, id: ConnectionId) {
        if let Some(socket) = self.socket(id)
            && matches!(socket.state, State::Open)
        {
            socket.state = State::Paused;
            if socket.hung_up {
                self.hung_up.push(id);
            }
        }
    }

    /// Takes a paused connection whose peer will send no more, once for each.
    pub(crate) fn take_hung_up(&mut self) -> Option<ConnectionId> {
        self.hung_up.pop()
    }

    /// Whether a read would find the end of this connection and nothing before it.
    pub(crate) fn is_at_end(&self, id: ConnectionId) -> bool {
        let socket = self.table.get(id.index as usize);
        socket.is_some_and(|it| it.serial == id.serial && it.hung_up && it.transport.is_at_end())
    }

    /// The other side of this connection.
    pub(crate) fn peer(&self, id: ConnectionId) -> Option<&Peer> {
        let socket = self.table.get(id.index as usize)?;
        (socket.serial == id.serial).then_some(&socket.peer)
    }

    pub(crate) fn resume(&mut self, id: ConnectionId) {
        if let Some(socket) = self.socket(id)
            && matches!(socket.state, State::Paused)
        {
            socket.state = State::Open;
            self.queue(id.index);
        }
    }

    /// Writes the final bytes, as far as the peer takes them by `until`, and closes so that the
    /// peer can read them; at once if the peer waits for none. Deadlines must ascend: one that is
    /// sooner than an earlier one waits for that.
    pub(crate) fn close_gracefully(
        &mut self,
        until: Instant,
        id: ConnectionId,
        final_bytes: LastWords,
    ) {
        // One that closes already has had its last bytes: its peer broke a protocol meanwhile.
        let Some(socket) = self.socket(id).filter(|it| !it.is_closing()) else {
            return self.keep_unsent(final_bytes);
        };
        // A peer with transforms ends them behind its last packet: unread, that would cause RST.
        let waits = final_bytes.is_awaited() || !socket.transport.is_plain();
        let closes = matches!(socket.state, State::Broken(_)) || !waits;
        socket.state = State::Closing {
            final_bytes: Some(Box::new(final_bytes)),
            finished: false,
        };
        if closes {
            self.close(id.index);
            return;
        }
        self.linger(until, id);
    }

    fn linger(&mut self, until: Instant, id: ConnectionId) {
        self.closing.push_back((until, id));
        self.continue_closing(id);
        // The end of the peer's bytes may have been seen already, or may come with this read.
        if let Some(socket) = self.socket(id) {
            socket.readable = true;
            self.queue(id.index);
        }
    }

    /// Closes a connection that has received its final bytes, if its permit is needed. The kernel
    /// sends the bytes; a peer that sends more meanwhile may not get them.
    pub(crate) fn close_if_permit_needed(&mut self, id: ConnectionId) {
        let socket = self.socket(id).filter(|it| it.is_finished());
        if socket.is_some_and(|socket| socket.permit.is_needed_elsewhere()) {
            self.close(id.index);
        }
    }

    /// Closes connections whose deadline has passed.
    pub(crate) fn close_overdue(&mut self, now: Instant) {
        while let Some(&(until, id)) = self.closing.front()
            && until <= now
        {
            self.closing.pop_front();
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

    pub(crate) fn has_unsent_final_bytes(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Unwritten final bytes of connections that were closed since the last call.
    pub(crate) fn take_unsent(&mut self) -> Vec<LastWords> {
        std::mem::take(&mut self.unsent)
    }

    /// When [`close_overdue`](Self::close_overdue) has something to do.
    pub(crate) fn next_deadline(&mut self) -> Option<Instant> {
        while let Some(&(until, id)) = self.closing.front() {
            if self.socket(id).is_some() {
                return Some(until);
            }
            self.closing.pop_front();
        }
        None
    }

    fn continue_closing(&mut self, id: ConnectionId) {
        let Some(socket) = find(&mut self.table, id) else {
            return;
        };
        let State::Closing {
            final_bytes,
            finished,
        } = &mut socket.state
        else {
            return;
        };
        let transport = &mut socket.transport;
        loop {
            let unwritten = final_bytes
                .as_ref()
                .map_or(&[][..], |final_bytes| final_bytes.unwritten());
            if unwritten.is_empty() {
                transport.close(&mut self.scratch);
            }
            if !socket.writable || unwritten.is_empty() && !transport.wants_write() {
                break;
            }
            match transport.write(unwritten, &mut self.scratch) {
                WriteOutcome::Bytes { count, full } => {
                    if let Some(final_bytes) = final_bytes {
                        final_bytes.wrote(count);
                    }
                    socket.writable = !full;
                }
                WriteOutcome::Broken(_) => {
                    self.close(id.index);
                    return;
                }
            }
        }
        let is_written = final_bytes
            .as_ref()
            .is_none_or(|it| it.unwritten().is_empty());
        if is_written && !transport.wants_write() && !*finished {
            *finished = true;
            transport.shut_down();
            self.finished += 1;
        }
        if !socket.transport.is_plain() {
            self.queue(id.index); // it may have been blocked
        }
    }

    fn ended(&mut self, connection: ConnectionId, cause: CloseCause) -> SocketRead {
        if self.table[connection.index as usize].is_closing() {
            self.close(connection.index);
            return SocketRead::Nothing;
        }
        SocketRead::Ended { connection, cause }
    }

    /// Closes a connection that has ended. A peer that broke the protocol of a transform can read
    /// the reason until `until`.
    pub(crate) fn close_ended(&mut self, until: Instant, connection: ConnectionId) {
        let Some(socket) = self.socket(connection) else {
            return;
        };
        if !socket.transport.has_refused() {
            return self.close(connection.index);
        }
        socket.state = State::Closing {
            final_bytes: None,
            finished: false,
        };
        self.linger(until, connection);
    }

    /// Closes a connection at once.
    fn close(&mut self, index: u32) {
        let mut socket = self.table.remove(index as usize);
        let sent = socket.write_end(&mut self.scratch);
        if let State::Closing {
            final_bytes,
            finished,
        } = socket.state
        {
            self.finished -= usize::from(finished);
            if let Some(mut final_bytes) = final_bytes {
                final_bytes.wrote(sent);
                self.keep_unsent(*final_bytes);
            }
        }
    }

    fn keep_unsent(&mut self, final_bytes: LastWords) {
        if !final_bytes.unwritten().is_empty() {
            self.unsent.push(final_bytes);
        }
    }

    /// Queues a connection for reading if it is readable and not queued.
    fn queue(&mut self, index: u32) {
        if let Some(socket) = self.table.get_mut(index as usize)
            && socket.readable
            && !socket.queued
            && !matches!(socket.state, State::Paused)
        {
            socket.queued = true;
            self.reads.push(index);
        }
    }

    fn socket(&mut self, id: ConnectionId) -> Option<&mut Socket> {
        find(&mut self.table, id)
    }
}
