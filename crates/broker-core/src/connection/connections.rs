//! The connections of one shard, and which of them the driver is to look at.

use std::collections::VecDeque;
use std::ops::Deref;
use std::time::Instant;

use unbroken_mqtt_proto::{Packet, PacketId};

use super::buffers::BufferPool;
use super::write_buffer::NextPacket;
use super::{Answer, Connection, Outgoing};
use crate::durability::{CommitGate, WaitFor, Waiter};
use crate::ids::{ConnectionId, SessionId, StoreId};
use crate::limits::{Limits, SHORT_OUTPUT_BYTES, SMALL_BUFFER_BYTES_MAX, UNCOUNTED_BYTES};
use crate::memory::Tally;
use crate::settings::Totals;
use crate::shares::{Held, Network, Shares, Taker};
use crate::telemetry::Telemetry;

#[derive(Debug)]
pub(crate) struct Connections {
    /// By the index of the [`ConnectionId`].
    table: Vec<Option<Box<Connection>>>,
    /// To be written to or read again, in the order in which they became so.
    dirty: VecDeque<ConnectionId>,
    buffers: BufferPool,
    /// Connections without a place that had sent no CONNECT when they were last looked at, the
    /// oldest first: at most as many as [`Totals::silent_max`](crate::Totals) says.
    silent: VecDeque<ConnectionId>,
    /// How many of the broker's places each address has here.
    places: Shares,
    /// What those hold that are not admitted.
    unadmitted: Tally,
    /// What the others hold.
    memory: Tally,
}

/// One connection, with what it takes to write to it.
pub(crate) struct Writer<'a> {
    connection: &'a mut Connection,
    dirty: &'a mut VecDeque<ConnectionId>,
    buffers: &'a mut BufferPool,
    memory: &'a mut Tally,
}

impl Connections {
    /// Whose memory is counted in these totals. `places` is empty.
    pub(crate) fn new(totals: &Totals, limits: &Limits, places: Shares) -> Self {
        Self {
            table: Vec::new(),
            dirty: VecDeque::new(),
            buffers: BufferPool::default(),
            silent: VecDeque::new(),
            places,
            unadmitted: Tally::new(&totals.unadmitted, limits.unadmitted_bytes_max),
            memory: Tally::new(&totals.memory, limits.memory_bytes_max),
        }
    }

    /// One that the driver has accepted.
    pub(crate) fn open(&mut self, connection: Box<Connection>) {
        let index = connection.id.index as usize;
        if self.table.len() <= index {
            self.table.resize_with(index + 1, || None);
        }
        debug_assert!(
            self.table[index].is_none(),
            "the driver reused an index too early"
        );
        if connection.has_place() {
            self.places.add(Taker::at(connection.network()), 1);
        }
        self.table[index] = Some(connection);
    }

    /// How many of the broker's places an address has.
    pub(crate) fn places_of(&self, address: Option<Network>) -> Held {
        self.places.held(Taker::at(address))
    }

    /// The connection has got a place, or another connection has its.
    pub(crate) fn set_place(&mut self, id: ConnectionId, has_place: bool) {
        let Some(connection) = self.get_mut(id) else {
            return;
        };
        if connection.has_place() == has_place {
            return;
        }
        connection.counted = has_place;
        let address = Taker::at(connection.network());
        if has_place {
            self.places.add(address, 1);
        } else {
            self.places.subtract(address, 1);
        }
    }

    /// Notes one more connection without a place. If more than `most` of them have sent no CONNECT,
    /// answers the one that has been silent for longest.
    #[cold]
    pub(crate) fn wait_without_place(
        &mut self,
        id: ConnectionId,
        most: usize,
    ) -> Option<ConnectionId> {
        let mut silent = std::mem::take(&mut self.silent);
        silent.push_back(id);
        if silent.len() > most {
            silent.retain(|id| {
                let connection = self.get(*id);
                connection.is_some_and(Connection::is_silent_without_place)
            });
        }
        let oldest = (silent.len() > most).then(|| silent.pop_front());
        self.silent = silent;
        oldest.flatten()
    }

    /// Takes it out; what it still had to say is in it.
    pub(crate) fn close(&mut self, id: ConnectionId) -> Option<Box<Connection>> {
        let connection = self.table.get_mut(id.index as usize)?.take()?;
        self.unadmitted.replace(connection.unadmitted_bytes, 0);
        self.memory.replace(connection.memory_bytes, 0);
        if connection.has_place() {
            self.places.subtract(Taker::at(connection.network()), 1);
        }
        Some(connection)
    }

    /// Counts what this connection holds, with those that are admitted or those that are not.
    #[cold]
    pub(crate) fn count(&mut self, id: ConnectionId) {
        if let Some(mut writer) = self.writer(id.index).filter(|it| it.id == id) {
            writer.count();
            if writer.is_unadmitted() || writer.unadmitted_bytes > 0 {
                self.count_unadmitted(id);
            }
        }
    }

    /// The transport of this connection holds so many bytes.
    pub(crate) fn set_transport_bytes(&mut self, id: ConnectionId, bytes: usize) {
        if let Some(connection) = self.get_mut(id) {
            connection.transport_bytes = bytes;
            self.count(id);
        }
    }

    #[cold]
    fn count_unadmitted(&mut self, id: ConnectionId) {
        let Some(connection) = self.get_mut(id) else {
            return;
        };
        let before = connection.unadmitted_bytes;
        connection.unadmitted_bytes = connection.unadmitted_memory();
        let after = connection.unadmitted_bytes;
        self.unadmitted.replace(before, after);
    }

    /// What admitted clients hold.
    pub(crate) const fn memory(&self) -> &Tally {
        &self.memory
    }

    /// Looks at what all shards hold.
    pub(crate) fn look_at_memory(&mut self) {
        self.memory.look();
    }

    /// The limits are others.
    pub(crate) fn set_limits(&mut self, limits: &Limits) {
        self.unadmitted.set_limit(limits.unadmitted_bytes_max);
        self.memory.set_limit(limits.memory_bytes_max);
    }

    /// What those hold that are not admitted.
    pub(crate) const fn unadmitted(&self) -> &Tally {
        &self.unadmitted
    }

    /// Those that are not admitted and hold something, those first that hold most.
    #[cold]
    pub(crate) fn largest_unadmitted(&self) -> Vec<(ConnectionId, usize)> {
        let holders = self
            .iter()
            .filter(|connection| connection.unadmitted_bytes > 0);
        let mut holders: Vec<_> = holders.map(|it| (it.id, it.unadmitted_bytes)).collect();
        holders.sort_unstable_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        holders
    }

    /// The connection with this index, as its session knows it.
    pub(crate) fn at(&self, index: u32) -> Option<&Connection> {
        self.table.get(index as usize)?.as_deref()
    }

    /// The connection of this name, if it is still that one.
    pub(crate) fn get(&self, id: ConnectionId) -> Option<&Connection> {
        self.at(id.index).filter(|connection| connection.id == id)
    }

    /// The same, to change it.
    pub(crate) fn get_mut(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        let connection = self.table.get_mut(id.index as usize)?.as_deref_mut()?;
        (connection.id == id).then_some(connection)
    }

    /// Behind the greatest index in use.
    pub(crate) fn end(&self) -> usize {
        self.table.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Connection> {
        self.table.iter().flatten().map(|connection| &**connection)
    }

    /// Lends what it takes to write to the connection with this index.
    #[inline]
    pub(crate) fn writer(&mut self, index: u32) -> Option<Writer<'_>> {
        Some(Writer {
            connection: self.table.get_mut(index as usize)?.as_deref_mut()?,
            dirty: &mut self.dirty,
            buffers: &mut self.buffers,
            memory: &mut self.memory,
        })
    }

    /// The same for the connection of a session, if it has one.
    #[inline]
    pub(crate) fn writer_of(&mut self, connection: Option<u32>) -> Option<Writer<'_>> {
        self.writer(connection?)
    }

    /// The same if its output has room for so many bytes.
    pub(crate) fn writer_with_room(
        &mut self,
        connection: Option<u32>,
        limits: &Limits,
        bytes: u64,
    ) -> Option<Writer<'_>> {
        let writer = self.writer_of(connection)?;
        writer.has_room(limits, bytes).then_some(writer)
    }

    /// Puts a connection on the list of those that the driver is to look at.
    pub(crate) fn mark_dirty(&mut self, id: ConnectionId) {
        if let Some(mut writer) = self.writer(id.index)
            && writer.connection.id == id
        {
            writer.mark_dirty();
        }
    }

    /// Something that kept it waiting does so no more: it is for the driver to look at. It was not
    /// read meanwhile, and not for a fault of its own.
    pub(crate) fn relieve(&mut self, now: Instant, id: ConnectionId) {
        if let Some(connection) = self.get_mut(id) {
            connection.input.heard(now);
            self.mark_dirty(id);
        }
    }

    /// Takes those that were marked, in their order, and so many at most.
    pub(crate) fn take_dirty(&mut self, into: &mut Vec<ConnectionId>, most: usize) {
        for id in self.dirty.drain(..most.min(self.dirty.len())) {
            if let Some(connection) = self.table[id.index as usize].as_deref_mut()
                && connection.id == id
            {
                connection.dirty = false;
                into.push(id);
            }
        }
    }

    pub(crate) fn has_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// Keeps what this connection has received and what cannot be used yet.
    pub(crate) fn keep_unread(&mut self, id: ConnectionId, bytes: &[u8], packet_bytes_max: u32) {
        if let Some(Writer {
            connection,
            buffers,
            ..
        }) = self.writer(id.index)
            && connection.id == id
        {
            connection.input.keep(buffers, bytes, packet_bytes_max);
            self.count(id);
        }
    }

    /// Keeps a place for the answer to a message that is about to be routed.
    pub(crate) fn reserve_answer(&mut self, id: ConnectionId) {
        if let Some(connection) = self.get_mut(id) {
            connection.pending.reserve();
        }
    }

    /// Puts a packet behind those that wait, until this is true.
    pub(crate) fn hold(
        &mut self,
        gate: &mut CommitGate,
        id: ConnectionId,
        until: WaitFor,
        what: Outgoing,
    ) {
        if let Some(connection) = self.get_mut(id) {
            connection.pending.hold(until, what);
            // If that is true already, it leaves behind the others.
            let _ = gate.wake_when(until, Waiter::Packets(id));
        }
    }

    /// Puts the answer in the place that was reserved. Says whether it is the first of all; gives
    /// the answer back if no place was.
    pub(crate) fn answer_reserved(
        &mut self,
        gate: &mut CommitGate,
        id: ConnectionId,
        until: WaitFor,
        answer: Answer,
    ) -> Result<bool, Answer> {
        let Some(connection) = self.get_mut(id) else {
            return Ok(false);
        };
        let is_first = connection.pending.answer_reserved(until, answer)?;
        let is_met = gate.wake_when(until, Waiter::Packets(id)).is_some();
        Ok(is_first && is_met)
    }

    /// Lets nothing out to a connection before this request is stored.
    pub(crate) fn close_gate(&mut self, gate: &mut CommitGate, id: ConnectionId, request: StoreId) {
        if let Some(connection) = self.get_mut(id) {
            connection.pending.close_gate(request);
            // If it is stored already, nothing waits for it.
            let _ = gate.wake_when(WaitFor::stored(request), Waiter::Output(id));
        }
    }

    /// A SUBACK of so many bytes waits no more: the client is read again if that has kept it.
    pub(crate) fn unburden(
        &mut self,
        now: Instant,
        id: ConnectionId,
        bytes: usize,
        limits: &Limits,
    ) {
        if let Some(connection) = self.get_mut(id) {
            let waiting = connection.unwritten() + connection.pending.bytes();
            connection.pending.unburden(bytes);
            if waiting >= limits.output_bytes_max as usize {
                self.relieve(now, id);
            }
        }
    }

    /// Appends a packet that is not a PUBLISH to the output of the connection with this index.
    /// Answers whether it fitted the client's Maximum Packet Size.
    pub(crate) fn send(
        &mut self,
        telemetry: &mut Telemetry,
        index: u32,
        packet: &Packet<'_>,
    ) -> bool {
        let Some(mut writer) = self.writer(index) else {
            return false;
        };
        let fits = writer.append(packet);
        writer.mark_dirty();
        if fits {
            telemetry.sent_packet();
        }
        fits
    }

    /// Answers a ping: in front of what waits for the client, if that is slow to take it.
    pub(crate) fn pong(&mut self, telemetry: &mut Telemetry, index: u32) {
        let Some(Writer { connection, .. }) = self.writer(index) else {
            return;
        };
        if connection.output.is_long() {
            connection.output.owe_pong();
            telemetry.sent_packet();
        } else {
            self.send(telemetry, index, &Packet::PingResp);
        }
    }

    /// A SUBACK of so many bytes is about to wait.
    pub(crate) fn burden(&mut self, id: ConnectionId, bytes: usize) {
        if let Some(connection) = self.get_mut(id) {
            connection.pending.burden(bytes);
        }
    }

    /// Lends what was received and kept while it is used.
    pub(crate) fn take_unread(&mut self, id: ConnectionId) -> Option<Vec<u8>> {
        Some(self.get_mut(id)?.input.take())
    }

    /// Takes it back, without the bytes from its front that were used.
    pub(crate) fn restore_unread(&mut self, id: ConnectionId, mut unread: Vec<u8>, used: usize) {
        if used < unread.len()
            && let Some(connection) = self.get_mut(id)
        {
            unread.drain(..used);
            if unread.len() < SMALL_BUFFER_BYTES_MAX && unread.capacity() > SMALL_BUFFER_BYTES_MAX {
                unread.shrink_to_fit();
            }
            connection.input.restore(unread);
        } else {
            self.buffers.release(unread);
        }
    }

    /// So many bytes of an output, from its front, leave as they are.
    pub(crate) fn seal(&mut self, id: ConnectionId, bytes: usize) {
        if let Some(connection) = self.get_mut(id) {
            connection.output.seal(bytes);
        }
    }

    /// Notes that the driver has written so much; answers whose connection it was if that changes
    /// what may happen to it: all of it has gone or at least half the limit is free again, which is
    /// when its session may send more, or what it has sent may be looked at again.
    pub(crate) fn wrote(
        &mut self,
        telemetry: &mut Telemetry,
        now: Instant,
        id: ConnectionId,
        bytes: usize,
        gate: &CommitGate,
        limits: &Limits,
    ) -> Option<SessionId> {
        let most = limits.output_bytes_max as usize;
        let half = most / 2;
        let mut writer = self.writer(id.index).filter(|writer| writer.id == id)?;
        let Writer {
            connection,
            buffers,
            ..
        } = &mut writer;
        telemetry.wrote(bytes);
        let before = connection.unwritten();
        debug_assert!(bytes <= before, "more was written than was pending");
        let is_full = before + connection.held_bytes() >= most;
        let was_read = !is_full || connection.may_consume(gate, limits);
        if !was_read && bytes > 0 {
            // That it takes what we send is its sign of life.
            connection.input.heard(now);
        }
        connection.output.wrote(buffers, bytes, half);
        if connection.memory_bytes > connection.transport_bytes {
            writer.count();
        }
        let connection = &mut *writer.connection;
        let after = connection.unwritten();
        let has_room = after == 0 || before > half && after <= half;
        let is_read_again = !was_read && connection.may_consume(gate, limits);
        let session = connection.session();
        if after + bytes > before {
            writer.mark_dirty(); // answers to pings
        }
        (has_room || is_read_again).then_some(session).flatten()
    }
}

impl Deref for Writer<'_> {
    type Target = Connection;

    #[inline]
    fn deref(&self) -> &Connection {
        self.connection
    }
}

impl Writer<'_> {
    /// Whether the output has room for a message of so many bytes. A packet may exceed the limit of
    /// an output, but not what there is while memory is short.
    #[inline]
    pub(crate) fn has_room(&self, limits: &Limits, bytes: u64) -> bool {
        let unwritten = self.unwritten();
        unwritten < limits.output_bytes_max as usize
            && (!self.memory.is_tight() || unwritten as u64 + bytes <= SHORT_OUTPUT_BYTES)
    }

    /// Counts what the connection holds now, if it is admitted.
    #[cold]
    fn count(&mut self) {
        let (before, after) = (self.connection.memory_bytes, self.connection.memory());
        if before != after && !self.connection.is_unadmitted() {
            self.connection.memory_bytes = after;
            self.memory.replace(before, after);
        }
    }

    /// Where the next packet goes, a PUBLISH of so many bytes at least.
    #[inline]
    pub(crate) fn next_packet(&mut self, bytes: usize) -> NextPacket<'_> {
        let Connection {
            output,
            version,
            packet_bytes_max,
            ..
        } = &mut *self.connection;
        output.next_packet(self.buffers, bytes, *version, *packet_bytes_max)
    }

    /// The PUBLISH that begins at `start`, and is the last, is to be written, with this packet id
    /// and this DUP flag [MQTT-3.3.1-1].
    #[inline]
    pub(crate) fn finish_publish(&mut self, start: usize, packet_id: PacketId, dup: bool) {
        self.connection.output.patch(start, packet_id);
        if dup {
            self.connection.output.set_dup(start);
        }
        self.mark_dirty();
    }

    /// Takes the packet back that begins at `start` and is the last.
    pub(crate) fn take_back(&mut self, start: usize) {
        self.connection.output.take_back(start);
    }

    /// Appends a packet that is not a PUBLISH. Answers whether it fitted the client's Maximum
    /// Packet Size; one that does not is not sent [MQTT-3.1.2-24].
    pub(crate) fn append(&mut self, packet: &Packet<'_>) -> bool {
        let Connection {
            output,
            version,
            packet_bytes_max,
            ..
        } = &mut *self.connection;
        output.append(self.buffers, packet, *version, *packet_bytes_max)
    }

    /// Has the driver look at it.
    #[inline]
    pub(crate) fn mark_dirty(&mut self) {
        if !self.connection.dirty {
            self.connection.dirty = true;
            self.dirty.push_back(self.connection.id);
        }
        if self.connection.output.memory() > UNCOUNTED_BYTES {
            self.count();
        }
    }
}
