//! HOT: the event loop of one shard thread. It owns a [`Shard`] and its sockets, and shares nothing
//! with other threads but channels. ADR 53 describes its scheduler, [`crate::tuning`] has the
//! constants.
//!
//! ```text
//! each turn:
//!   messages   take what other threads have sent; write if the disk has answered
//!   accept     new connections, if this thread has the listeners
//!   read       readable connections in turn, a quantum of bytes each
//!   write      connections that have output, those that have waited longest first
//!   timeouts   if one is due; with it up to when clients were read (`read_watermark`)
//!   send       to other shards: one wake-up for a batch
//!   close      the connections that the shard has ended
//!   wait       for the batching delay, then for the kernel
//! ```
//!
//! Invariants:
//! - One turn's requests reach the disk together; the disk's answers leave before clients are read.
//! - No receiver counts as slow because its turn has not come.
//! - Messages from other shards are always taken; only the reading of clients stops while a channel
//!   or the disk is behind. So two shards that flood each other cannot wait for each other.
//! - A connection is closed behind what it has sent to other shards.
//!
//! Deliberately absent: any decision about MQTT.

mod events;
mod exchange;
mod requests;
#[cfg(test)]
pub(crate) mod tests;
mod traces;

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::task::Waker;
use std::thread;
use std::time::{Duration, Instant};

use mio::{Events, Poll, Token};
use unbroken_broker_core::{CloseCause, ConnectionId, Input, Shard, ShardId};

use crate::authenticator::{AuthRules, Authenticator};
use crate::batching::{Batching, Turn};
use crate::bounds::{EVENTS, OUTPUT_PARTS, READ_BUFFER_BYTES};
use crate::channel::{DriverEvent, EventReceiver, ThreadWaker};
use crate::cpu_time;
use crate::disk::StoreHandle;
use crate::driver::{Driver, input, input_counted, open, take_news};
use crate::listener::{self, Acceptor, Doors};
use crate::read_watermark::ReadWatermark;
use crate::server::wiring::Endpoints;
use crate::sockets::{SocketRead, Sockets};
use crate::tuning::{TURN_READ_BYTES, TURN_READS, TURN_WRITES, WRITE_QUANTUM};

use events::handle_event;
pub(crate) use exchange::{exchange_final, exchange_initial};

/// The token of the thread's waker; no table is that long.
pub(crate) const WAKER: Token = Token(usize::MAX);

/// What a shard thread is made from.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) shard: Shard,
    pub(crate) endpoints: Endpoints,
    /// The listeners, of the first shard.
    pub(crate) acceptor: Option<Acceptor>,
    pub(crate) authenticator: Authenticator,
    pub(crate) auth_rules: Arc<AuthRules>,
    pub(crate) doors: Arc<Doors>,
    /// `None`: everything is in memory.
    pub(crate) store_handle: Option<StoreHandle>,
    pub(crate) is_batching_adaptive: bool,
}

/// One shard and the thread's half of its work.
#[derive(Debug)]
pub(crate) struct ShardThread {
    shard: Shard,
    driver: Driver,
    poll: Poll,
    events: Events,
    thread_waker: Arc<ThreadWaker>,
    from_shards: Vec<Option<EventReceiver>>,
    from_others: Vec<EventReceiver>,
    /// `None` once the broker stops.
    acceptor: Option<Acceptor>,
    /// All channels to this thread were empty and are armed: until it is notified none is checked.
    are_channels_armed: bool,
    read_watermark: ReadWatermark,
    batching: Batching,
    buffer: Box<[u8]>,
    /// Connections that are written to next, before those that the shard has something for.
    dirty: Vec<ConnectionId>,
    /// Connections whose end was read, in order, and that the shard does not know of yet.
    ended: VecDeque<(ConnectionId, CloseCause)>,
    /// Bytes that clients and other shards have sent since all were last written to.
    unwritten: usize,
    /// Notifies this thread.
    waker: Waker,
}

impl ShardThread {
    pub(crate) fn new(parts: Parts) -> io::Result<Self> {
        let endpoints = parts.endpoints;
        let sockets = Sockets::new(endpoints.poll.registry().try_clone()?);
        Ok(Self {
            shard: parts.shard,
            driver: Driver::new(
                sockets,
                endpoints.to_shards,
                parts.authenticator,
                (parts.auth_rules, parts.doors),
                parts.store_handle,
            ),
            poll: endpoints.poll,
            events: Events::with_capacity(EVENTS),
            waker: Waker::from(Arc::clone(&endpoints.thread_waker)),
            thread_waker: endpoints.thread_waker,
            from_shards: endpoints.from_shards,
            from_others: endpoints.from_others,
            acceptor: parts.acceptor,
            are_channels_armed: false,
            read_watermark: ReadWatermark::new(Instant::now()),
            batching: Batching::new(parts.is_batching_adaptive),
            buffer: vec![0; READ_BUFFER_BYTES].into_boxed_slice(),
            dirty: Vec::new(),
            ended: VecDeque::new(),
            unwritten: 0,
        })
    }

    /// Serves until it has drained. What is left of it goes to [`exchange_final`], because other
    /// shards may still write to this one.
    pub(crate) fn run(mut self) -> io::Result<Self> {
        let (mut ended, mut waited) = (Instant::now(), Duration::ZERO);
        loop {
            let now = Instant::now();
            let mut turn = Turn {
                idle: now - ended,
                waited,
                ..Turn::default()
            };
            self.receive(now, &mut turn);
            self.accept(now);
            self.end_closed_logins();
            self.read_clients(now, &mut turn);
            self.driver.submit_all();
            self.receive_late(now, &mut turn);
            // After the writes, because a write that made room may have made a timeout due.
            if self.shard.next_timeout().is_some_and(|at| at <= now) {
                self.time_out(now, &mut turn);
            }
            if let Some(store_handle) = &mut self.driver.store_handle {
                store_handle.turn(now, &self.shard);
            }
            self.driver.flush_channels();
            self.driver.close(now);
            self.report_unsent(now);
            self.driver.log.report_due(now);
            traces::pass_on(&mut self.shard, &mut self.driver, now);
            if self.driver.has_drained(now) {
                self.driver.sockets.close_all();
                self.report_unsent(now);
                // Other threads have nothing more for it, and need not wait.
                self.from_others.clear();
                self.acceptor = None;
                self.are_channels_armed = false;
                return Ok(self);
            }
            // What was requested since the last submission.
            self.driver.submit_all();
            ended = Instant::now();
            turn.busy = ended - now;
            self.shard.turn_ended(turn.busy);
            turn.frames = self.driver.take_frames();
            let delay = self.batching.turn_ended(&turn, cpu_time::of_this_thread);
            self.driver.delay_commits(delay);
            waited = Duration::ZERO;
            // While this shard is behind, others wait for it.
            if !delay.is_zero() && !self.is_due(ended) && !self.driver.is_behind() {
                self.delay(delay);
                let now = Instant::now();
                (waited, ended) = (now - ended, now);
            }
            self.wait(ended)?;
        }
    }

    /// Waits for more messages, for so long, or until the disk has answered.
    fn delay(&mut self, delay: Duration) {
        if !self.driver.waits_for_disk() {
            thread::sleep(delay);
        } else if !self.arm_channels() {
            self.thread_waker.park(delay);
        }
    }

    /// Takes events of other threads, and writes what the disk's answers release.
    fn receive(&mut self, now: Instant, turn: &mut Turn) {
        let stored = self.driver.stored();
        self.take_events(now, turn);
        if self.driver.stored() > stored {
            self.write_clients(now, turn);
        }
    }

    /// Takes what threads that are not shards have sent meanwhile, and writes: to all connections
    /// if the disk's answers release something.
    fn receive_late(&mut self, now: Instant, turn: &mut Turn) {
        let stored = self.driver.stored();
        self.receive_from_others(now);
        if self.driver.stored() > stored {
            self.write_clients(now, turn);
        } else {
            self.write_some(now, turn);
        }
    }

    /// Takes what each channel holds now; later events wait for the next turn, and so do those
    /// behind one that has used up what matching may cost in this one. All connections are written
    /// to each time that [`TURN_READ_BYTES`] came.
    fn take_events(&mut self, now: Instant, turn: &mut Turn) {
        if self.has_no_news() {
            return;
        }
        for index in 0..self.from_shards.len() {
            let from = ShardId(u8::try_from(index).expect("a shard's number is a u8"));
            let held = self.from_shards[index]
                .as_ref()
                .map_or(0, EventReceiver::len);
            for _ in 0..held {
                let channel = self.from_shards[index].as_mut();
                let Some(Ok(event)) = channel.map(EventReceiver::try_recv) else {
                    break;
                };
                let bytes = usize::try_from(event.bytes()).unwrap_or(usize::MAX);
                self.unwritten = self.unwritten.saturating_add(bytes);
                handle_event(&mut self.shard, &mut self.driver, now, Some(from), event);
                turn.messages += 1;
                if self.is_much_unwritten() {
                    self.write_clients(now, turn);
                }
                // The others follow in the next turn.
                if self.shard.has_used_turn(now) {
                    break;
                }
            }
        }
        self.receive_from_others(now);
    }

    /// Takes events of threads that are not shards.
    fn receive_from_others(&mut self, now: Instant) {
        if self.has_no_news() {
            return;
        }
        let (shard, driver) = (&mut self.shard, &mut self.driver);
        for channel in &mut self.from_others {
            for _ in 0..channel.len() {
                if let Ok(event) = channel.try_recv() {
                    handle_event(shard, driver, now, None, event);
                }
            }
        }
    }

    /// Whether no channel has brought anything since all of them were found empty.
    fn has_no_news(&mut self) -> bool {
        if self.thread_waker.was_notified() {
            self.thread_waker.clear_notified();
            self.are_channels_armed = false;
        }
        self.are_channels_armed
    }

    /// Accepts connections, while this shard is not behind.
    fn accept(&mut self, now: Instant) {
        if self.driver.drain_until.is_some() {
            self.acceptor = None; // no connection is accepted any more
        }
        let (shard, driver) = (&mut self.shard, &mut self.driver);
        let Some(acceptor) = &mut self.acceptor else {
            return;
        };
        if driver.is_behind() {
            return;
        }
        acceptor.accept(now, |to, incoming| {
            if to == listener::ACCEPTOR_SHARD {
                open(shard, driver, now, incoming);
            } else {
                driver.send(to, DriverEvent::Connection(Box::new(incoming)));
            }
        });
    }

    /// Reads those that are readable, each once, as far as the budget of the turn goes. While one
    /// connection sends alone, the turn goes on with it, and looks for others after each quantum.
    fn read_clients(&mut self, now: Instant, turn: &mut Turn) {
        let (mut budget, mut bytes) = (TURN_READS, 0);
        self.driver.sockets.begin_turn();
        self.end_connections(now);
        loop {
            let round = self.driver.sockets.ready_len().min(budget);
            budget -= round;
            for _ in 0..round {
                if self.driver.is_behind() {
                    return;
                }
                if self.is_much_unwritten() {
                    self.write_clients(now, turn);
                }
                if let Some(index) = self.driver.sockets.take_ready() {
                    let count = self.read_client(now, index, turn);
                    self.end_closed_logins();
                    self.unwritten += count;
                    bytes += count;
                }
            }
            let is_alone = round == 1 && self.driver.sockets.has_ready();
            let has_budget = budget > 0 && bytes < TURN_READ_BYTES;
            // The poll at the end of the turn meets the same error and reports it.
            if !(is_alone && has_budget) || self.poll_kernel(Some(Duration::ZERO)).is_err() {
                return;
            }
        }
    }

    /// Ends connections that their clients have closed while they waited for the decision about
    /// their CONNECT, so that no password is verified for them. One that has sent more is decided
    /// about: its client may publish and leave without waiting for CONNACK.
    fn end_closed_logins(&mut self) {
        while let Some(connection) = self.driver.sockets.take_hung_up() {
            if self.shard.has_only_connected(connection) {
                self.driver.end_login_if_closed(connection);
            }
        }
    }

    /// Reads one connection once; returns how many bytes came.
    fn read_client(&mut self, now: Instant, index: u32, turn: &mut Turn) -> usize {
        let read = self.driver.sockets.read(index, &mut self.buffer);
        take_news(&mut self.shard, &mut self.driver, now);
        match read {
            SocketRead::Bytes {
                connection,
                count,
                written_since_read,
                more,
            } => {
                let (shard, driver) = (&mut self.shard, &mut self.driver);
                let bytes = &self.buffer[..count];
                let packets =
                    input_counted(shard, driver, now, Input::Received { connection, bytes });
                if !shard.wants_input(connection) {
                    driver.sockets.pause(connection);
                }
                turn.reads += 1;
                if more {
                    match shard.begun_packet(connection) {
                        Some(begun) => driver.sockets.note_packet(connection, begun),
                        // A single long packet was read whole, and the next one may be as long.
                        None if packets == 1 => {}
                        None => driver.sockets.note_packet(connection, (0, 0)),
                    }
                }
                // A ClientHello looks like a packet whose content is wrong.
                if packets <= 1 && written_since_read && driver.has_closing() {
                    driver.note_first_bytes(now, connection, bytes);
                }
                turn.answers += u64::from(written_since_read && packets <= 1);
                count
            }
            SocketRead::Nothing => 0,
            SocketRead::Ended { connection, cause } => {
                // A peer that has sent everything may still read: it gets what is ready for it.
                if cause == CloseCause::Peer {
                    self.write_to(now, connection, turn);
                }
                self.ended.push_back((connection, cause));
                self.end_connections(now);
                0
            }
        }
    }

    /// Has the shard end connections until it has used up what matching may cost in this turn: a
    /// will may go to many, and a session may leave many filters. The others follow in the next
    /// turn.
    fn end_connections(&mut self, now: Instant) {
        while !self.shard.has_used_turn(now)
            && let Some((connection, cause)) = self.ended.pop_front()
        {
            let (shard, driver) = (&mut self.shard, &mut self.driver);
            // Its number is used again only when the shard knows.
            driver.close_ended(now, connection);
            input(shard, driver, now, Input::Closed { connection, cause });
        }
    }

    /// Writes to those that have waited longest; to all once much was read.
    fn write_some(&mut self, now: Instant, turn: &mut Turn) {
        let most = if self.is_much_unwritten() {
            usize::MAX
        } else {
            TURN_WRITES
        };
        self.write(now, most, turn);
    }

    /// Whether so much was read that an output might reach its limit, and its receiver count as
    /// slow, only because its turn has not come.
    fn is_much_unwritten(&self) -> bool {
        let outputs = self.shard.output_bytes_max() / OUTPUT_PARTS;
        self.unwritten >= TURN_READ_BYTES.min(outputs)
    }

    fn write_clients(&mut self, now: Instant, turn: &mut Turn) {
        self.write(now, usize::MAX, turn);
    }

    /// To so many of those that the shard has something for, at most.
    fn write(&mut self, now: Instant, most: usize, turn: &mut Turn) {
        self.shard.take_dirty(&mut self.dirty, most);
        if !self.shard.has_dirty() {
            self.unwritten = 0;
        }
        let mut dirty = std::mem::take(&mut self.dirty);
        for connection in dirty.drain(..) {
            self.write_to(now, connection, turn);
        }
        self.dirty = dirty;
    }

    fn write_to(&mut self, now: Instant, connection: ConnectionId, turn: &mut Turn) {
        let (shard, driver) = (&mut self.shard, &mut self.driver);
        let pending = shard.pending_output(connection);
        let bytes = &pending[..pending.len().min(WRITE_QUANTUM)];
        let (count, takes_more) = driver.sockets.write(connection, bytes);
        let (more, is_idle) = (count < pending.len(), pending.is_empty());
        turn.writes += u64::from(count > 0);
        let sealed = driver.sockets.sealed(connection);
        if sealed > 0 {
            shard.note_sealed(connection, count + sealed);
        }
        if count > 0 || is_idle {
            let work = shard.wrote(now, connection, count);
            driver.note_work(work);
        }
        if shard.wants_input(connection) {
            driver.sockets.resume(connection);
        }
        // The rest follows when all others have been written to. What the socket did not take is
        // written at its next write edge.
        if more && takes_more {
            shard.write_later(connection);
        }
        take_news(shard, driver, now);
    }

    /// Writes the result as well, so that it does not wait for the reads of the next turn: it may
    /// be a part of a large fan-out.
    fn time_out(&mut self, now: Instant, turn: &mut Turn) {
        self.driver.heap.note(now, &mut self.shard);
        // Outputs are then as empty as their receivers leave them.
        self.write_clients(now, turn);
        let read_up_to = self
            .read_watermark
            .read_up_to(self.driver.sockets.read_so_far());
        let timeout = Input::Timeout { heard: read_up_to };
        input(&mut self.shard, &mut self.driver, now, timeout);
        self.write_clients(now, turn);
    }

    fn report_unsent(&mut self, now: Instant) {
        if !self.driver.sockets.has_unsent_final_bytes() {
            return;
        }
        for final_bytes in self.driver.sockets.take_unsent() {
            input(
                &mut self.shard,
                &mut self.driver,
                now,
                Input::Unsaid(final_bytes),
            );
        }
    }

    /// Waits for the kernel, a channel or a deadline.
    fn wait(&mut self, now: Instant) -> io::Result<()> {
        let timeout = if self.has_work(now) {
            Some(Duration::ZERO)
        } else {
            self.thread_waker.begin_wait();
            if self.arm_channels() || self.thread_waker.was_notified() {
                Some(Duration::ZERO)
            } else {
                self.time_left(now)
            }
        };
        let looked = self.poll_kernel(timeout);
        self.thread_waker.end_wait();
        let Some(events) = looked? else {
            return Ok(());
        };
        let sockets = &self.driver.sockets;
        let listeners = self.acceptor.as_ref().map_or(0, Acceptor::len);
        self.read_watermark
            .polled(now, events, sockets.len() + listeners, sockets.to_read());
        Ok(())
    }

    /// Polls the kernel for at most so long and notes its events; returns how many, or `None` after
    /// a signal.
    fn poll_kernel(&mut self, timeout: Option<Duration>) -> io::Result<Option<usize>> {
        match self.poll.poll(&mut self.events, timeout) {
            Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error),
            Err(_) => return Ok(None),
            Ok(()) => {}
        }
        let mut events = 0;
        for event in &self.events {
            events += 1;
            let token = event.token();
            let is_pending = |acceptor: &mut Acceptor| acceptor.note(token);
            if token != WAKER
                && !self.acceptor.as_mut().is_some_and(is_pending)
                && let Some(connection) = self.driver.sockets.note(event)
            {
                self.dirty.push(connection);
            }
        }
        Ok(Some(events))
    }

    /// Whether the next turn has work without an event of the kernel.
    fn has_work(&self, now: Instant) -> bool {
        self.is_due(now)
            || !self.dirty.is_empty()
            || self.shard.has_dirty()
            || !self.ended.is_empty()
            || (self.driver.sockets.has_ready() && !self.driver.is_behind())
    }

    /// Whether the next turn has work that waiting does not make cheaper: a deadline, or a new
    /// connection. Reads and writes are cheaper together, so they wait for the batching delay.
    fn is_due(&self, now: Instant) -> bool {
        let is_pending = |acceptor: &Acceptor| acceptor.has_work(now);
        (self.acceptor.as_ref().is_some_and(is_pending) && !self.driver.is_behind())
            || self.driver.sockets.has_deferred()
            || self.shard.next_timeout().is_some_and(|at| at <= now)
    }

    /// Whether a channel has an event for this thread, or room for what it has queued. If not, the
    /// thread is notified when that changes.
    fn arm_channels(&mut self) -> bool {
        let waker = &self.waker;
        let mut coming = false;
        if !self.are_channels_armed {
            let from_shards = self.from_shards.iter_mut().flatten();
            for channel in from_shards.chain(&mut self.from_others) {
                coming |= channel.arm(waker) && !channel.is_empty();
            }
            self.are_channels_armed = !coming;
        }
        // While the disk is behind, nothing is sent, whatever room there is.
        if !self
            .driver
            .store_handle
            .as_ref()
            .is_some_and(StoreHandle::is_behind)
        {
            for channel in self.driver.to_shards.iter_mut().flatten() {
                coming |= channel.arm(waker);
            }
        }
        coming
    }

    fn time_left(&mut self, now: Instant) -> Option<Duration> {
        let store_handle = self.driver.store_handle.as_ref();
        let deadlines = [
            self.shard.next_timeout(),
            self.driver.sockets.next_deadline(),
            self.driver.drained_at(),
            self.driver.log.next_report(),
            // While this shard is behind no connection is accepted; it is notified when that ends.
            self.acceptor
                .as_ref()
                .filter(|_| !self.driver.is_behind())
                .and_then(Acceptor::next_deadline),
            store_handle.map(|store_handle| store_handle.next_turn(now)),
        ];
        let next = deadlines.into_iter().flatten().min()?;
        Some(next.saturating_duration_since(now))
    }
}
