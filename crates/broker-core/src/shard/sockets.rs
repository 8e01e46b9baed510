//! What the driver asks between inputs, with a socket for each connection: which have output, what
//! of it may be written, and which are to be read.

use std::time::{Duration, Instant};

use crate::ids::ConnectionId;
use crate::shard::Shard;
use crate::telemetry::Work;
use crate::timers::Timer;

impl Shard {
    /// Takes the connections that have got output since they were last taken, or may be read again,
    /// each once, in the order in which they first did, and so many at most. For one without
    /// [`pending_output`](Self::pending_output) call [`wrote`](Self::wrote) with 0.
    pub fn take_dirty(&mut self, into: &mut Vec<ConnectionId>, most: usize) {
        self.connections.take_dirty(into, most);
    }

    /// Whether [`take_dirty`](Self::take_dirty) has any left.
    pub fn has_dirty(&self) -> bool {
        self.connections.has_dirty()
    }

    /// Has [`take_dirty`](Self::take_dirty) name this connection once more, behind all others: it
    /// has more output than was written.
    pub fn write_later(&mut self, connection: ConnectionId) {
        self.connections.mark_dirty(connection);
    }

    /// Bytes that an output takes before its receiver counts as slow
    /// ([`crate::Limits::output_bytes_max`]).
    pub fn output_bytes_max(&self) -> usize {
        self.options.limits.output_bytes_max as usize
    }

    /// What may be written to this connection now; empty if it is not known any more.
    pub fn pending_output(&self, connection: ConnectionId) -> &[u8] {
        let stored = self.gate.stored();
        let found = self.connections.get(connection);
        found.map_or(&[], |found| found.writable(stored))
    }

    /// Says that so many bytes of [`pending_output`](Self::pending_output), from its front, will be
    /// written as they are, though not all of them were: they are in a record of TLS, for example.
    /// Nothing comes between them. To be said before [`wrote`](Self::wrote).
    pub fn note_sealed(&mut self, connection: ConnectionId, bytes: usize) {
        self.connections.seal(connection, bytes);
    }

    /// Says that so many bytes of [`pending_output`](Self::pending_output), from its front, were
    /// written, and goes on with what the connection had sent. If that makes the shard ask for
    /// something, it is due for a timeout at once, and asks then.
    pub fn wrote(&mut self, now: Instant, connection: ConnectionId, bytes: usize) -> Work {
        let before = self.telemetry.work();
        let (gate, limits) = (&self.gate, &self.options.limits);
        let connections = &mut self.connections;
        let telemetry = &mut self.telemetry;
        if let Some(session) = connections.wrote(telemetry, now, connection, bytes, gate, limits)
            && !self.is_at_rest(connection, session)
        {
            self.begin_turn(now);
            self.pump(now, session);
            self.consume_unread(now, connection);
            self.announce_queue_changes();
            self.tell_missed(now);
            self.settle_audit(now);
            self.schedule_report(now);
            self.schedule_progress(now);
            self.mesh.close_bundles();
            let asks =
                self.gate.has_requests() || self.mesh.has_outgoing() || !self.outputs.is_empty();
            if asks || self.telemetry.has_events() {
                self.timers.set(now, Timer::Ask);
            }
        }
        self.telemetry.work().since(before)
    }

    /// Says that a turn of the event loop has ended, all inputs of which had one `now`, and how
    /// long it has taken.
    pub fn turn_ended(&mut self, took: Duration) {
        self.telemetry.turn_ended(took);
    }

    /// Says how much memory the process has, and has had at most: shard 0 publishes it.
    pub fn note_heap(&mut self, current: u64, maximum: u64) {
        self.telemetry.note_heap(current, maximum);
    }

    /// Whether bytes of this connection would be used now. The driver does not read from one that
    /// wants none: what it sends waits in the kernel, and then in its sender. A client that does
    /// not take its answers can so hold no more than `output_bytes_max` of them, beside as much in
    /// messages; one that does not take its messages is read all the same.
    ///
    /// It turns from no to yes only with [`Input::Authenticated`](crate::Input::Authenticated) and
    /// [`wrote`](Self::wrote), or with an input after which [`take_dirty`](Self::take_dirty) names
    /// the connection.
    pub fn wants_input(&self, connection: ConnectionId) -> bool {
        self.connections
            .get(connection)
            .is_some_and(|found| found.may_consume(&self.gate, &self.options.limits))
    }

    /// The length of the packet that a connection has begun to send, and how many bytes of it are
    /// still to come; `None` if it has begun none, or its length is not known yet.
    pub fn begun_packet(&self, connection: ConnectionId) -> Option<(usize, usize)> {
        let found = self.connections.get(connection)?;
        found.begun_packet(self.options.limits.packet_bytes_max)
    }
}
