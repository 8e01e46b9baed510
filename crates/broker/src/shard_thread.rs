//! HOT: the loop of one shard thread. It owns a [`Shard`] and its sockets, and shares nothing with
//! other threads but feeds.
//!
//! ```text
//! each turn:
//!   mail       take every incoming feed's batch, give it to the shard; and write, if the disk has
//!              answered, and as often as `READ_BEFORE_WRITE` bytes have come
//!   accept     those who knock, if this thread has the listeners
//!   read       each readable connection once, into one buffer of the thread, straight to the
//!              shard; those that brought much when they were last read behind the others, and by
//!              the piece if it was in small packets, with a look at who else has come between
//!   news       what has come meanwhile from threads that are no shards: what is on disk now
//!   write      connections that have output once each, those first that have waited longest: in
//!              proportion to what was read, the others in the next turns, with what comes for them
//!              meanwhile; in the middle of reading too, as often as `READ_BEFORE_WRITE` bytes
//!              have been read, or `READS_BEFORE_WRITE` connections where nothing is gathered; and
//!              to all before those are read that bring much
//!   timeouts   if one is due, or writing has made room for more; with up to when clients were
//!              heard (`hearing`), so that nobody is cut off for what was not read; and write what
//!              they led to, as a share of a message to a crowd
//!   feeds      hand over what the shard wrote to other shards: one wake for a batch
//!   close      the connections that the shard has done with, and tell it what they did not take
//!   wait       for a moment if that gathers more (`coalesce`); while something waits for the
//!              disk, its thread does that instead; then for the kernel
//! ```
//!
//! Why it is like this:
//! - A small message costs little but the kernel's TCP path, so the turn gathers: however many
//!   messages a turn brings for a connection, they leave in one write.
//! - Edges of both directions are registered once, when a connection comes. There is no `epoll_ctl`
//!   afterwards; what the kernel has told is kept in [`Sockets`]. A read shorter than the buffer
//!   has emptied the socket, so there is no second read to hear it said.
//! - What is written is what has just been read, and large messages are cheap while both are in the
//!   core's own cache. So a turn that reads much does not read all of it first. With 20 connections
//!   and 64 KiB a message took a seventh less, and a quarter more went through; with 100 and 1 KiB
//!   it took a fifth less. Small messages do not come to so many bytes, and gather as before.
//! - Where few publish to many, a turn is nearly all writes. So it does not write to all: it looks
//!   who has sent more, and what that is goes with what receivers wait for already. All have their
//!   turn in the order in which they first had something, so nobody waits longer than for a write
//!   to everybody else, and what is read between; and when `READ_BEFORE_WRITE` bytes have come
//!   meanwhile, all are written to. Before, such publishers had nothing more to send while all were
//!   written to, and the loop nothing to do while their clients read: of one publisher's messages
//!   to 1,000 4.6 million/s came through and not 2.3, and of ten publishers' to 500 153,000/s and
//!   not 138,000, the slowest hundredth 11 ms late and not 21 (ADR 52).
//! - One read for each connection and turn, of bounded size, is also what makes the loop fair: a
//!   publisher that never stops gets one buffer's worth before everybody else has had theirs.
//!   Writes are of bounded size too: one for each `READ_BEFORE_WRITE` bytes that the turn has read,
//!   and one at its end; more of both only for who is read between the pieces of a flood.
//! - Everybody else comes before such a publisher, and what they and other shards have sent leaves
//!   before it is read.
//!   What comes while it is taken in is read and leaves between two pieces of it, where nothing is
//!   gathered: so a quiet message within a shard waits for no more of a flood than one piece, the
//!   reading of all or the writing of all (ADR 49).
//! - Where several are let in at once more are coming. Without a moment's wait the loop is woken
//!   for two or three of them at a time, and whoever connects pays for each waking: of 15,000, 64
//!   at a time, 47,000 to 49,000 came in a second, and 58,000 to 66,000 with it (to Mosquitto
//!   58,000 to 73,000; medians of five runs, twice each). 0.15 and 0.25 ms let in fewer. Who is
//!   connected waits for a moment longer meanwhile, but not for another shard or the disk.
//! - Publishers that wait for the disk send nothing meanwhile. So its answers leave at the
//!   beginning of a turn, before anybody is read, and those that come meanwhile before the turn's
//!   own write; while something waits for it a turn reads [`READS_WHILE_STORING`] connections,
//!   and the next one goes on with the others ([`Sockets`] keeps their order). What a turn has
//!   read is asked of the disk together, so that a commit does not begin with the first message
//!   of many. And where waiting gathers more, the loop waits until the disk has answered,
//!   [`DISK_WAIT_MAX`] at most: then the turn before that answer would read messages one by one, of
//!   which its commit could take none. With 200 publishers, 10 messages under way each, 310,000/s
//!   went through instead of 250,000, and a message took 2.8 µs of the broker instead of 4.1; in
//!   memory it was 373,000/s (medians of five alternating runs of 3 s). Each of these alone gained
//!   a twelfth at best. A wait that the disk does not end cost a tenth to a fifth.
//! - Mail comes first and is always taken, even while this shard is behind with its own. Only the
//!   reading of clients stops then. So two shards that flood each other cannot wait for each other:
//!   see [`crate::mailbox`].
//! - Connections are closed behind the feeds: a client that sees its end and goes elsewhere does
//!   not get there before what it has published. While a feed does not take all, no client is read,
//!   so that closing cannot be put off for good.
//! - The clock is read twice a turn, and the shard is told.
//! - At a few thousand messages a second every message is a turn of its own, and the processor's
//!   caches have forgotten the code since the last one. So a turn with nothing to do but read and
//!   write passes by the rest with one look: at the bell for all feeds, and at what leaves. That is
//!   a sixth of 5,100 instructions, and 16 of 105 pages of code and data; outside of system calls a
//!   message took 0.49 of what its recv and send take, and 0.58 before (4.0 and 4.6 µs).
//!
//! Tried and lost there, with 5,000 messages/s between 100 pairs, where a relay that only cuts
//! frames takes 1.2 µs outside of system calls, and all else is the kernel's:
//! - Waiting without a timeout, so that the kernel sets no timer: no less.
//! - Huge pages under the code or the heap: a fiftieth of the whole at best, and nothing to see
//!   beside what runs differ by.
//! - `TCP_QUICKACK` 0, so that a read sends no acknowledgement of its own: a fiftieth, within what
//!   runs differ by; and a client with Nagle's algorithm would wait 40 ms for each next write.
//! - Another congestion control (cubic where the system has BBR): nothing, nor with many receivers
//!   or publishers.
//!
//! Deliberately absent: any decision about MQTT.

mod exchange;
#[cfg(test)]
pub(crate) mod tests;

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::task::Waker;
use std::thread;
use std::time::{Duration, Instant};

use mio::{Events, Poll, Token};
use unbroken_broker_core::{ConnectionId, Input, Shard, ShardId};

use crate::authenticator::{Authenticator, Doors};
use crate::bounds::{
    AHEAD, DISK_WAIT_MAX, EVENTS, KNOCKS_GATHER, PIECE_BYTES, READ_BEFORE_WRITE, READ_BYTES,
    READ_MUCH, READS_BEFORE_WRITE, READS_WHILE_STORING, UNWRITTEN_PARTS, WRITE_BYTES,
    WRITES_A_READ, WRITES_AHEAD,
};
use crate::coalesce::{Coalescer, Turn};
use crate::core_time::Core;
use crate::disk::Desk;
use crate::driver::{Driver, input, open};
use crate::hearing::Hearing;
use crate::listener::{self, Acceptor};
use crate::mailbox::{Doorbell, Incoming, Outgoing, Parcel};
use crate::sockets::{Found, Sockets};

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
    coalescer: Coalescer,
    core: Core,
    buffer: Box<[u8]>,
    /// Connections that are written to next, before those that the shard has something for.
    dirty: Vec<ConnectionId>,
    /// Those of them that wait for the end of a flood. Empty between uses; kept for its capacity.
    held: Vec<ConnectionId>,
    /// Bytes that clients and other shards have sent since all were last written to.
    unwritten: usize,
    /// Rings the bell.
    waker: Waker,
    /// Empty between uses; kept for its capacity.
    round: Vec<u32>,
}

impl ShardThread {
    pub(crate) fn new(parts: Parts) -> io::Result<Self> {
        let sockets = Sockets::new(parts.poll.registry().try_clone()?);
        let shards = u32::try_from(parts.to_shards.len()).expect("a shard's number is a u8");
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
            coalescer: Coalescer::new(shards),
            core: Core::default(),
            buffer: vec![0; READ_BYTES].into_boxed_slice(),
            dirty: Vec::new(),
            unwritten: 0,
            held: Vec::new(),
            round: Vec::new(),
        })
    }

    /// Serves until it is told to drain and everybody has gone. What is left of it goes to
    /// [`settle`], because other shards may still write to this one.
    pub(crate) fn run(mut self) -> io::Result<Self> {
        let (mut ended, mut waited, mut for_disk) = (Instant::now(), Duration::ZERO, false);
        self.core = Core::of_this_thread();
        loop {
            let now = Instant::now();
            let mut turn = Turn {
                idle: now - ended,
                waited,
                for_disk,
                ..Turn::default()
            };
            let before = self.frames();
            self.take_mail(now, &mut turn);
            let let_in = self.accept(now);
            let brought_much = self.read_clients(now, &mut turn);
            self.driver.submit_all();
            self.take_late_news(now, brought_much, &mut turn);
            // Behind the writes, because a write that made room may have made one due.
            if self.shard.next_timeout().is_some_and(|at| at <= now) {
                self.time_out(now, &mut turn);
            }
            self.driver.tell_removals(&self.shard);
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
            turn.frames = self.frames().saturating_sub(before);
            let pause = self.coalescer.turn_ended(&turn, || self.core.times());
            (waited, for_disk) = (Duration::ZERO, false);
            self.driver.gather_commits(self.coalescer.is_waiting());
            if !self.has_work(ended) {
                // While it is behind nothing gathers, and others wait for it.
                if !pause.is_zero() && !self.driver.is_behind() {
                    for_disk = self.pause(pause);
                    let now = Instant::now();
                    (waited, ended) = (now - ended, now);
                } else if let_in > 1 {
                    self.let_gather();
                }
            }
            self.wait(ended)?;
        }
    }

    /// Lets more gather, for so long; or until the disk has answered, where somebody waits for it,
    /// and says so.
    fn pause(&mut self, pause: Duration) -> bool {
        let for_disk = self.driver.waits_for_disk();
        if !for_disk {
            thread::sleep(pause);
        } else if !self.arm_feeds() {
            self.bell.nap(DISK_WAIT_MAX);
        }
        for_disk
    }

    /// Lets more of those gather who connect, for a moment; not while somebody waits for the disk.
    /// The coalescer takes it for idleness.
    fn let_gather(&mut self) {
        if !self.driver.waits_for_disk() && !self.arm_feeds() {
            self.bell.nap(KNOCKS_GATHER);
        }
    }

    /// Frames that have come and that were given to connections, in all.
    fn frames(&self) -> u64 {
        let stats = self.shard.stats();
        stats.packets_received + stats.packets_sent
    }

    /// Takes what has come from other threads, and writes what the disk's answers let leave.
    fn take_mail(&mut self, now: Instant, turn: &mut Turn) {
        let stored = self.driver.stored();
        self.take_parcels(now, turn);
        if self.driver.stored() > stored {
            self.write_clients(now, turn);
        }
    }

    /// Takes what threads that are no shards have brought meanwhile, and writes: to all, if the
    /// disk's answers let something leave, or somebody brought much, so that it has left before
    /// somebody quiet is read.
    fn take_late_news(&mut self, now: Instant, brought_much: bool, turn: &mut Turn) {
        let stored = self.driver.stored();
        self.take_news(now);
        if brought_much || self.driver.stored() > stored {
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

    /// Lets in who knocks, while this shard is not behind; answers how many.
    fn accept(&mut self, now: Instant) -> usize {
        if self.driver.drain_until.is_some() {
            self.acceptor = None; // nobody is let in any more
        }
        let (shard, driver) = (&mut self.shard, &mut self.driver);
        let mut let_in = 0;
        let Some(acceptor) = &mut self.acceptor else {
            return let_in;
        };
        if driver.is_behind() {
            return let_in;
        }
        acceptor.accept(now, |to, arrival| {
            let_in += 1;
            if to == listener::HOME {
                open(shard, driver, now, arrival);
            } else {
                driver.send(to, Parcel::Connection(Box::new(arrival)));
            }
        });
        let_in
    }

    /// Answers whether somebody was among them whose last read brought much.
    fn read_clients(&mut self, now: Instant, turn: &mut Turn) -> bool {
        let most = if self.driver.waits_for_disk() {
            READS_WHILE_STORING
        } else {
            usize::MAX
        };
        let mut round = std::mem::take(&mut self.round);
        let rest = self.driver.sockets.take_ready(&mut round, most);
        let at_once = if self.coalescer.is_waiting() {
            usize::MAX
        } else {
            READS_BEFORE_WRITE
        };
        // Behind so many others nobody is served sooner for it, and a turn is long for a flood.
        let spares_others = !self.coalescer.is_waiting() && rest <= READS_BEFORE_WRITE;
        let (mut written, mut read) = (0, 0);
        while let Some(&index) = round.get(read) {
            if self.driver.is_behind() {
                self.driver.sockets.put_back(round.drain(read..));
                break;
            }
            let is_due = self.is_much_unwritten() || read - written == at_once;
            let is_given = self.unwritten > 0 || turn.letters > 0;
            if is_given && read == rest {
                self.write_clients(now, turn);
                written = read;
            } else if is_due {
                self.write_some(now, turn);
                written = read;
            }
            read += 1;
            self.unwritten += self.read_client(now, index, spares_others, turn);
        }
        let brought_much = round.len() > rest;
        round.clear();
        self.round = round;
        brought_much
    }

    /// Reads one connection once, of a flood less if it is to spare the others; answers how many
    /// bytes came.
    fn read_client(
        &mut self,
        now: Instant,
        index: u32,
        spares_others: bool,
        turn: &mut Turn,
    ) -> usize {
        let mut buffer = std::mem::take(&mut self.buffer);
        let sockets = &mut self.driver.sockets;
        let found = if spares_others {
            sockets.read_beside(index, &mut buffer)
        } else {
            sockets.read(index, &mut buffer)
        };
        let count = self.take_in(now, found, &mut buffer, turn);
        self.buffer = buffer;
        count
    }

    /// Gives the shard what a read has found, which is in the buffer; answers how many bytes.
    fn take_in(&mut self, now: Instant, found: Found, buffer: &mut [u8], turn: &mut Turn) -> usize {
        match found {
            Found::Bytes {
                connection,
                count,
                spoken_to,
                floods,
                little,
            } => {
                let publishes = self.shard.stats().publishes_received;
                let (mut given, mut frames, mut ahead) = (0, 0, AHEAD);
                // While more is to gather, nobody is read sooner.
                if floods && !self.coalescer.is_waiting() {
                    while count - given > PIECE_BYTES {
                        frames += self.give(now, connection, &buffer[given..given + PIECE_BYTES]);
                        given += PIECE_BYTES;
                        // The first piece has been used.
                        let used = &mut buffer[..PIECE_BYTES];
                        ahead -= self.serve_others(now, connection, used, ahead, turn);
                    }
                }
                frames += self.give(now, connection, &buffer[given..count]);
                if !self.shard.wants_input(connection) {
                    self.driver.sockets.pause(connection);
                }
                if count >= READ_MUCH {
                    let sockets = &mut self.driver.sockets;
                    sockets.note_packets(connection, count, frames);
                }
                // Who only acknowledges a flood waits for nobody.
                if little && self.shard.stats().publishes_received > publishes {
                    self.driver.sockets.note_company();
                }
                turn.reads += 1;
                turn.answers += u64::from(spoken_to && frames <= 1);
                count
            }
            Found::Nothing => 0,
            Found::Ended { connection, cause } => {
                let (shard, driver) = (&mut self.shard, &mut self.driver);
                input(shard, driver, now, Input::Closed { connection, cause });
                0
            }
        }
    }

    /// Answers how many packets ended in these bytes.
    fn give(&mut self, now: Instant, connection: ConnectionId, bytes: &[u8]) -> u64 {
        let (shard, driver) = (&mut self.shard, &mut self.driver);
        let packets = shard.stats().packets_received;
        input(shard, driver, now, Input::Received { connection, bytes });
        shard.stats().packets_received - packets
    }

    /// Reads those who have said something meanwhile, but for `flood` and whoever brings much, and
    /// writes what that leads to, and with it what the flood has led to for the same receivers. The
    /// buffer is for what is read. Answers how many were read, `most` at most.
    fn serve_others(
        &mut self,
        now: Instant,
        flood: ConnectionId,
        buffer: &mut [u8],
        most: usize,
        turn: &mut Turn,
    ) -> usize {
        // What is wrong with the kernel the turn's own look finds again.
        if most == 0 || self.look(Some(Duration::ZERO)).is_err() {
            return 0;
        }
        let mut read = 0;
        while read < most.min(READS_BEFORE_WRITE)
            && !self.driver.is_behind()
            && !self.driver.waits_for_disk()
            && let Some(found) = self.driver.sockets.read_ahead(flood, buffer)
        {
            if read == 0 {
                // For whom the flood alone has something is written to at its end.
                self.shard.take_dirty(&mut self.dirty, usize::MAX);
                std::mem::swap(&mut self.dirty, &mut self.held);
            }
            self.take_in(now, found, buffer, turn);
            read += 1;
        }
        if read > 0 {
            self.write_clients(now, turn);
            self.held.append(&mut self.dirty);
            std::mem::swap(&mut self.dirty, &mut self.held);
        }
        read
    }

    /// Writes to those who have waited longest, in proportion to what the turn has read so far; to
    /// all once much was.
    fn write_some(&mut self, now: Instant, turn: &mut Turn) {
        let most = if self.is_much_unwritten() {
            usize::MAX
        } else {
            let read = usize::try_from(turn.reads + turn.letters).unwrap_or(usize::MAX);
            read.saturating_mul(WRITES_A_READ)
                .saturating_add(WRITES_AHEAD)
        };
        self.write(now, most, turn);
    }

    /// Before an output can be so full that its receiver would be taken for a slow one, only
    /// because its turn has not come.
    fn is_much_unwritten(&self) -> bool {
        let outputs = self.shard.output_bytes_max() / UNWRITTEN_PARTS;
        self.unwritten >= READ_BEFORE_WRITE.min(outputs)
    }

    fn write_clients(&mut self, now: Instant, turn: &mut Turn) {
        self.write(now, usize::MAX, turn);
    }

    /// To so many of those that the shard has something for, at most.
    fn write(&mut self, now: Instant, most: usize, turn: &mut Turn) {
        self.shard.take_dirty(&mut self.dirty, most);
        if !self.shard.has_dirty() && self.held.is_empty() {
            self.unwritten = 0;
        }
        let sockets = &mut self.driver.sockets;
        let shard = &mut self.shard;
        for connection in self.dirty.drain(..) {
            let pending = shard.pending_output(connection);
            let bytes = &pending[..pending.len().min(WRITE_BYTES)];
            let more = bytes.len() < pending.len();
            let (count, takes_more) = sockets.write(connection, bytes);
            turn.writes += u64::from(count > 0);
            if count > 0 || pending.is_empty() {
                shard.wrote(now, connection, count);
            }
            if shard.wants_input(connection) {
                sockets.resume(connection);
            }
            // The rest goes when all others have been written to; what the socket did not take, at
            // its edge.
            if more && takes_more {
                shard.write_later(connection);
            }
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

    /// Whether the next turn has something to do whatever the kernel says.
    fn has_work(&self, now: Instant) -> bool {
        let knocks = |acceptor: &Acceptor| acceptor.has_work(now);
        !self.dirty.is_empty()
            || self.shard.has_dirty()
            || ((self.driver.sockets.has_ready() || self.acceptor.as_ref().is_some_and(knocks))
                && !self.driver.is_behind())
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
        Parcel::Forget { what, done } => {
            input(shard, driver, now, Input::Forget(what));
            driver.removals.push(done);
        }
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
