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
//!   timeouts   if one is due; with it up to when clients were read (`hearing`)
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

mod exchange;
mod requests;
#[cfg(test)]
pub(crate) mod tests;

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::task::Waker;
use std::thread;
use std::time::{Duration, Instant};

use mio::{Events, Poll, Token};
use unbroken_broker_core::{CloseCause, ConnectionId, Input, Shard, ShardId};

use crate::authenticator::{Authenticator, Doors};
use crate::batching::{Batching, Turn};
use crate::bounds::{EVENTS, OUTPUT_PARTS, READ_BUFFER_BYTES};
use crate::cpu_time;
use crate::disk::Desk;
use crate::driver::{Driver, give, input, open};
use crate::hearing::Hearing;
use crate::listener::{self, Acceptor};
use crate::mailbox::{Doorbell, Incoming, Outgoing, Parcel};
use crate::sockets::{Found, Sockets};
use crate::tuning::{TURN_READ_BYTES, TURN_READS, TURN_WRITES, WRITE_QUANTUM};

pub(crate) use exchange::{introduce, settle};

/// The token of the doorbell; no table is that long.
pub(crate) const BELL: Token = Token(usize::MAX);

/// What a shard thread is made from.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) shard: Shard,
    pub(crate) poll: Poll,
    pub(crate) bell: Arc<Doorbell>,
    /// From each shard in turn, `None` for this one.
    pub(crate) from_shards: Vec<Option<Incoming>>,
    /// To each shard in turn, `None` for this one.
    pub(crate) to_shards: Vec<Option<Outgoing>>,
    /// From the authenticator, the disk and the server.
    pub(crate) from_others: Vec<Incoming>,
    /// The listeners, of the first shard.
    pub(crate) acceptor: Option<Acceptor>,
    pub(crate) authenticator: Authenticator,
    pub(crate) doors: Arc<Doors>,
    /// `None`: everything is in memory.
    pub(crate) desk: Option<Desk>,
    pub(crate) is_batching_adaptive: bool,
}

/// One shard and the thread's half of its work.
#[derive(Debug)]
pub(crate) struct ShardThread {
    shard: Shard,
    driver: Driver,
    poll: Poll,
    events: Events,
    bell: Arc<Doorbell>,
    from_shards: Vec<Option<Incoming>>,
    from_others: Vec<Incoming>,
    /// Gone when the broker stops.
    acceptor: Option<Acceptor>,
    /// All feeds to this thread were empty, and ring the bell when they are not: until it is rung
    /// nobody looks into them.
    listening: bool,
    hearing: Hearing,
    batching: Batching,
    buffer: Box<[u8]>,
    /// Connections that are written to next, before those that the shard has something for.
    dirty: Vec<ConnectionId>,
    /// Bytes that clients and other shards have sent since all were last written to.
    unwritten: usize,
    /// Rings the bell.
    waker: Waker,
}

impl ShardThread {
    pub(crate) fn new(parts: Parts) -> io::Result<Self> {
        let sockets = Sockets::new(parts.poll.registry().try_clone()?);
        Ok(Self {
            shard: parts.shard,
            driver: Driver::new(
                sockets,
                parts.to_shards,
                parts.authenticator,
                parts.doors,
                parts.desk,
            ),
            poll: parts.poll,
            events: Events::with_capacity(EVENTS),
            waker: Waker::from(Arc::clone(&parts.bell)),
            bell: parts.bell,
            from_shards: parts.from_shards,
            from_others: parts.from_others,
            acceptor: parts.acceptor,
            listening: false,
            hearing: Hearing::new(Instant::now()),
            batching: Batching::new(parts.is_batching_adaptive),
            buffer: vec![0; READ_BUFFER_BYTES].into_boxed_slice(),
            dirty: Vec::new(),
            unwritten: 0,
        })
    }

    /// Serves until it is told to drain and everybody has gone. What is left of it goes to
    /// [`settle`], because other shards may still write to this one.
    pub(crate) fn run(mut self) -> io::Result<Self> {
        let (mut ended, mut waited) = (Instant::now(), Duration::ZERO);
        loop {
            let now = Instant::now();
            let mut turn = Turn {
                idle: now - ended,
                waited,
                ..Turn::default()
            };
            self.take_mail(now, &mut turn);
            self.accept(now);
            self.read_clients(now, &mut turn);
            self.driver.submit_all();
            self.take_late_news(now, &mut turn);
            // Behind the writes, because a write that made room may have made one due.
            if self.shard.next_timeout().is_some_and(|at| at <= now) {
                self.time_out(now, &mut turn);
            }
            if let Some(desk) = &mut self.driver.desk {
                desk.turn(now, &self.shard);
            }
            self.driver.flush_feeds();
            self.driver.close(now);
            self.tell_unsaid(now);
            if self.driver.has_drained(now) {
                self.driver.sockets.close_all();
                self.tell_unsaid(now);
                // Nobody else has anything for it any more, and need not wait.
                self.from_others.clear();
                self.acceptor = None;
                self.listening = false;
                return Ok(self);
            }
            // What was last asked for, by what came in behind.
            self.driver.submit_all();
            ended = Instant::now();
            turn.busy = ended - now;
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

    /// Lets more gather, for so long, or until the disk has answered.
    fn delay(&mut self, delay: Duration) {
        if !self.driver.waits_for_disk() {
            thread::sleep(delay);
        } else if !self.arm_feeds() {
            self.bell.nap(delay);
        }
    }

    /// Takes what has come from other threads, and writes what the disk's answers let leave.
    fn take_mail(&mut self, now: Instant, turn: &mut Turn) {
        let stored = self.driver.stored();
        self.take_parcels(now, turn);
        if self.driver.stored() > stored {
            self.write_clients(now, turn);
        }
    }

    /// Takes what threads that are no shards have sent meanwhile, and writes: to all if the disk's
    /// answers let something leave.
    fn take_late_news(&mut self, now: Instant, turn: &mut Turn) {
        let stored = self.driver.stored();
        self.take_news(now);
        if self.driver.stored() > stored {
            self.write_clients(now, turn);
        } else {
            self.write_some(now, turn);
        }
    }

    /// Takes what every feed holds now; what comes meanwhile has its turn. All are written to as
    /// often as much has come.
    fn take_parcels(&mut self, now: Instant, turn: &mut Turn) {
        if self.hears_nothing() {
            return;
        }
        for index in 0..self.from_shards.len() {
            let from = ShardId(u8::try_from(index).expect("a shard's number is a u8"));
            let held = self.from_shards[index].as_ref().map_or(0, Incoming::len);
            for _ in 0..held {
                let feed = self.from_shards[index].as_mut();
                let Some(Ok(parcel)) = feed.map(Incoming::try_recv) else {
                    break;
                };
                let bytes = usize::try_from(parcel.bytes()).unwrap_or(usize::MAX);
                self.unwritten = self.unwritten.saturating_add(bytes);
                use_parcel(&mut self.shard, &mut self.driver, now, Some(from), parcel);
                turn.letters += 1;
                if self.is_much_unwritten() {
                    self.write_clients(now, turn);
                }
            }
        }
        self.take_news(now);
    }

    /// Takes what has come from threads that are no shards.
    fn take_news(&mut self, now: Instant) {
        if self.hears_nothing() {
            return;
        }
        let (shard, driver) = (&mut self.shard, &mut self.driver);
        for feed in &mut self.from_others {
            for _ in 0..feed.len() {
                if let Ok(parcel) = feed.try_recv() {
                    use_parcel(shard, driver, now, None, parcel);
                }
            }
        }
    }

    /// Whether no feed has brought anything since all of them were found empty.
    fn hears_nothing(&mut self) -> bool {
        if self.bell.was_rung() {
            self.bell.answer();
            self.listening = false;
        }
        self.listening
    }

    /// Accepts connections, while this shard is not behind.
    fn accept(&mut self, now: Instant) {
        if self.driver.drain_until.is_some() {
            self.acceptor = None; // nobody is let in any more
        }
        let (shard, driver) = (&mut self.shard, &mut self.driver);
        let Some(acceptor) = &mut self.acceptor else {
            return;
        };
        if driver.is_behind() {
            return;
        }
        acceptor.accept(now, |to, arrival| {
            if to == listener::HOME {
                open(shard, driver, now, arrival);
            } else {
                driver.send(to, Parcel::Connection(Box::new(arrival)));
            }
        });
    }

    /// Reads those that are readable, each once, as far as the budget of the turn goes. While one
    /// connection sends alone, the turn goes on with it, and looks for others after each quantum.
    fn read_clients(&mut self, now: Instant, turn: &mut Turn) {
        let (mut budget, mut bytes) = (TURN_READS, 0);
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
                    self.unwritten += count;
                    bytes += count;
                }
            }
            let is_alone = round == 1 && self.driver.sockets.has_ready();
            let has_budget = budget > 0 && bytes < TURN_READ_BYTES;
            // What is wrong with the kernel the turn's own look finds again.
            if !(is_alone && has_budget) || self.look(Some(Duration::ZERO)).is_err() {
                return;
            }
        }
    }

    /// Reads one connection once; answers how many bytes came.
    fn read_client(&mut self, now: Instant, index: u32, turn: &mut Turn) -> usize {
        match self.driver.sockets.read(index, &mut self.buffer) {
            Found::Bytes {
                connection,
                count,
                spoken_to,
                more,
            } => {
                let (shard, driver) = (&mut self.shard, &mut self.driver);
                let bytes = &self.buffer[..count];
                let packets = give(shard, driver, now, Input::Received { connection, bytes });
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
                turn.answers += u64::from(spoken_to && packets <= 1);
                count
            }
            Found::Nothing => 0,
            Found::Ended { connection, cause } => {
                // A peer that has sent everything may still read: it gets what is ready for it.
                if cause == CloseCause::Peer {
                    self.write_to(now, connection, turn);
                }
                let (shard, driver) = (&mut self.shard, &mut self.driver);
                driver.close_ended(now, connection);
                input(shard, driver, now, Input::Closed { connection, cause });
                0
            }
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

    /// Before an output can be so full that its receiver would be taken for a slow one, only
    /// because its turn has not come.
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
        let more = count < pending.len();
        turn.writes += u64::from(count > 0);
        if count > 0 || pending.is_empty() {
            let work = shard.wrote(now, connection, count);
            driver.note_work(work);
        }
        if shard.wants_input(connection) {
            driver.sockets.resume(connection);
        }
        // The rest goes when all others have been written to; what the socket did not take, at its
        // edge.
        if more && takes_more {
            shard.write_later(connection);
        }
    }

    /// And writes what that leads to, so that what the next turn reads need not wait for it: it may
    /// be a share of a message to a crowd.
    fn time_out(&mut self, now: Instant, turn: &mut Turn) {
        // A share finds outputs as empty as their receivers leave them.
        self.write_clients(now, turn);
        let heard = self.hearing.heard(self.driver.sockets.taken());
        let timeout = Input::Timeout { heard };
        input(&mut self.shard, &mut self.driver, now, timeout);
        self.write_clients(now, turn);
    }

    fn tell_unsaid(&mut self, now: Instant) {
        if !self.driver.sockets.has_unsaid() {
            return;
        }
        for words in self.driver.sockets.take_unsaid() {
            input(&mut self.shard, &mut self.driver, now, Input::Unsaid(words));
        }
    }

    /// Waits for the kernel, a feed or a deadline, and remembers what has become possible.
    fn wait(&mut self, now: Instant) -> io::Result<()> {
        let timeout = if self.has_work(now) {
            Some(Duration::ZERO)
        } else {
            self.bell.fall_asleep();
            if self.arm_feeds() || self.bell.was_rung() {
                Some(Duration::ZERO)
            } else {
                self.time_left(now)
            }
        };
        let looked = self.look(timeout);
        self.bell.wake_up();
        let Some(events) = looked? else {
            return Ok(());
        };
        let sockets = &self.driver.sockets;
        let listeners = self.acceptor.as_ref().map_or(0, Acceptor::len);
        self.hearing
            .polled(now, events, sockets.len() + listeners, sockets.to_take());
        Ok(())
    }

    /// Waits for the kernel for so long, and remembers what it says; answers of how many events, or
    /// nothing if a signal came.
    fn look(&mut self, timeout: Option<Duration>) -> io::Result<Option<usize>> {
        match self.poll.poll(&mut self.events, timeout) {
            Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error),
            Err(_) => return Ok(None),
            Ok(()) => {}
        }
        let mut events = 0;
        for event in &self.events {
            events += 1;
            let token = event.token();
            let knocks = |acceptor: &mut Acceptor| acceptor.note(token);
            if token != BELL
                && !self.acceptor.as_mut().is_some_and(knocks)
                && let Some(connection) = self.driver.sockets.note(event)
            {
                self.dirty.push(connection);
            }
        }
        Ok(Some(events))
    }

    /// Whether the next turn has something to do, whatever the kernel says.
    fn has_work(&self, now: Instant) -> bool {
        self.is_due(now)
            || !self.dirty.is_empty()
            || self.shard.has_dirty()
            || (self.driver.sockets.has_ready() && !self.driver.is_behind())
    }

    /// Whether the next turn has something to do that waiting does not make cheaper: a deadline, or
    /// a client to let in. Reads and writes it does, so that they wait for the batching delay.
    fn is_due(&self, now: Instant) -> bool {
        let knocks = |acceptor: &Acceptor| acceptor.has_work(now);
        (self.acceptor.as_ref().is_some_and(knocks) && !self.driver.is_behind())
            || self.shard.next_timeout().is_some_and(|at| at <= now)
    }

    /// Whether a feed has something for this thread or room for what it keeps. If not, whoever
    /// changes that rings.
    fn arm_feeds(&mut self) -> bool {
        let waker = &self.waker;
        let mut coming = false;
        if !self.listening {
            let from_shards = self.from_shards.iter_mut().flatten();
            for feed in from_shards.chain(&mut self.from_others) {
                coming |= feed.arm(waker) && !feed.is_empty();
            }
            self.listening = !coming;
        }
        // While the disk is behind, nothing is handed over, whatever room there is.
        if !self.driver.desk.as_ref().is_some_and(Desk::is_behind) {
            for feed in self.driver.to_shards.iter_mut().flatten() {
                coming |= feed.arm(waker);
            }
        }
        coming
    }

    fn time_left(&mut self, now: Instant) -> Option<Duration> {
        let deadlines = [
            self.shard.next_timeout(),
            self.driver.sockets.next_deadline(),
            self.driver.drained_at(),
            // While this is behind nobody is let in; it is woken when it is not.
            self.acceptor
                .as_ref()
                .filter(|_| !self.driver.is_behind())
                .and_then(Acceptor::next_deadline),
            self.driver.desk.as_ref().map(|desk| desk.next_turn(now)),
        ];
        let next = deadlines.into_iter().flatten().min()?;
        Some(next.saturating_duration_since(now))
    }
}

fn use_parcel(
    shard: &mut Shard,
    driver: &mut Driver,
    now: Instant,
    from: Option<ShardId>,
    parcel: Parcel,
) {
    match parcel {
        Parcel::Mail(mail) => {
            if let Some(from) = from {
                input(shard, driver, now, Input::Mail { from, mail });
            }
        }
        Parcel::Connection(arrival) => open(shard, driver, now, *arrival),
        Parcel::Admission {
            connection,
            admission,
        } => {
            driver.sockets.resume(connection);
            input(
                shard,
                driver,
                now,
                Input::Authenticated {
                    connection,
                    admission,
                },
            );
        }
        Parcel::Stored(id, batches) => {
            drop(batches);
            if let Some(desk) = &mut driver.desk {
                desk.stored(id);
            }
            input(shard, driver, now, Input::Stored(id));
        }
        Parcel::Read(answer) => input(shard, driver, now, Input::Read(*answer)),
        Parcel::StoreSize(size) => input(shard, driver, now, Input::StoreSize(size)),
        Parcel::StoreFailed { cause } => {
            if let Some(desk) = &mut driver.desk {
                desk.failed();
            }
            input(shard, driver, now, Input::StoreFailed { cause });
        }
        Parcel::Request(request) => requests::carry_out(shard, driver, now, *request),
        Parcel::Reconfigured {
            limits,
            doors,
            applied,
        } => {
            driver.doors = doors;
            input(shard, driver, now, Input::Reconfigured(limits));
            drop(applied);
        }
        Parcel::Drain { until } => {
            driver.drain_until = Some(until);
            input(shard, driver, now, Input::Drain);
        }
    }
}
