//! What a shard asks for, carried out: sockets, feeds to other shards, the disk, the authenticator.
//!
//! Invariants:
//! - A connection is closed behind all that its shard wrote to other shards before.
//! - What can be answered at once is answered before the shard has another input.
//!
//! Deliberately absent: the turns of the loop ([`crate::shard_thread`]), and any decision about
//! MQTT.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use unbroken_broker_core::{
    Admission, ConnectionId, Input, LastWords, Output, Shard, ShardId, StoreId, Work,
};

use crate::authenticator::{Authenticator, Doors};
use crate::bounds::{FIN_GRACE, LINGER};
use crate::disk::Desk;
use crate::log;
use crate::mailbox::{Arrival, Outgoing, Parcel};
use crate::request::Watch;
use crate::sockets::Sockets;

/// Everything but the shard, so that a shard's outputs can be carried out while they borrow it.
#[derive(Debug)]
pub(crate) struct Driver {
    pub(crate) sockets: Sockets,
    pub(crate) to_shards: Vec<Option<Outgoing>>,
    authenticator: Authenticator,
    pub(crate) doors: Arc<Doors>,
    pub(crate) desk: Option<Desk>,
    /// Threads that receive events.
    pub(crate) watches: Vec<Watch>,
    /// What the shard asked and could be answered at once.
    answers: VecDeque<Answer>,
    /// Connections to close behind what is to be handed over to other shards.
    closing: Vec<(ConnectionId, LastWords)>,
    /// Some of these wait for a feed since the last turn.
    closing_waits: bool,
    /// Packets received and sent that were not [taken](Self::take_frames) yet.
    frames: u64,
    /// When the broker is stopping: the time by which this thread ends.
    pub(crate) drain_until: Option<Instant>,
    /// Draining, and since when every peer that is left only has to close.
    pub(crate) settled_since: Option<Instant>,
}

#[derive(Debug)]
enum Answer {
    Admission {
        connection: ConnectionId,
        admission: Admission,
    },
    Stored(StoreId),
}

impl Driver {
    pub(crate) const fn new(
        sockets: Sockets,
        to_shards: Vec<Option<Outgoing>>,
        authenticator: Authenticator,
        doors: Arc<Doors>,
        desk: Option<Desk>,
    ) -> Self {
        Self {
            sockets,
            to_shards,
            authenticator,
            doors,
            desk,
            watches: Vec::new(),
            answers: VecDeque::new(),
            closing: Vec::new(),
            closing_waits: false,
            frames: 0,
            drain_until: None,
            settled_since: None,
        }
    }

    /// Packets that came and that were given to connections since this was last called.
    pub(crate) fn take_frames(&mut self) -> u64 {
        std::mem::take(&mut self.frames)
    }

    pub(crate) fn note_work(&mut self, work: Work) {
        self.frames += work.received + work.sent;
    }

    fn carry_out(&mut self, now: Instant, output: Output) {
        match output {
            Output::Mail { to, mail } => self.send(to, Parcel::Mail(mail)),
            Output::Event(event) => {
                log::event(&event);
                self.watches.retain(|watch| watch.offer(&event));
            }
            Output::Close {
                connection,
                last_words,
            } => self.closing.push((connection, last_words)),
            Output::Move {
                connection,
                to,
                unread,
            } => match self.sockets.release(connection, unread) {
                Ok(arrival) => self.send(to, Parcel::Connection(Box::new(arrival))),
                Err(error) => {
                    tracing::error!(%error, "cannot move a connection; it was closed");
                }
            },
            Output::Authenticate {
                connection,
                credentials,
                until,
            } => {
                self.sockets.pause(connection);
                let question = (connection, credentials);
                let patience = until.saturating_duration_since(now);
                let asked = self.authenticator.ask(&self.doors, question, now, patience);
                if let Some(admission) = asked {
                    self.answers.push_back(Answer::Admission {
                        connection,
                        admission,
                    });
                }
            }
            Output::Store(request) => match &mut self.desk {
                Some(desk) => desk.store(now, &request),
                // Everything is in memory: it is as safe as it gets.
                None => self.answers.push_back(Answer::Stored(request.id)),
            },
            Output::Read(request) => match &mut self.desk {
                Some(desk) => desk.read(request),
                None => debug_assert!(false, "nothing is on disk: {request:?}"),
            },
            Output::Needed(needed) => {
                if let Some(desk) = &mut self.desk {
                    desk.let_go(needed);
                }
            }
        }
    }

    /// How long a connection that is closed now may take to read its last words. The thread ends at
    /// `drain_until`, so it does not matter that this may be sooner than for those before.
    fn leave_by(&self, now: Instant) -> Instant {
        self.drain_until.unwrap_or(now + LINGER)
    }

    /// Closes a connection that has ended.
    pub(crate) fn close_ended(&mut self, now: Instant, connection: ConnectionId) {
        self.sockets.close_ended(self.leave_by(now), connection);
        if self.drain_until.is_none() {
            self.sockets.hurry(connection);
        }
    }

    pub(crate) fn send(&mut self, to: ShardId, parcel: Parcel) {
        if let Some(Some(feed)) = self.to_shards.get_mut(usize::from(to.0)) {
            feed.push(parcel);
        }
    }

    /// Tells when everything is stored that the shard has asked for so far.
    pub(crate) fn tell_when_stored(&mut self, done: Sender<()>) {
        match &mut self.desk {
            Some(desk) => desk.tell_when_stored(done),
            // Everything is in memory: it is as safe as it gets. Who waited may have gone.
            None => drop(done.send(())),
        }
    }

    /// Has a commit wait for more for so long.
    pub(crate) fn delay_commits(&mut self, delay: Duration) {
        if let Some(desk) = &mut self.desk {
            desk.patience = delay;
        }
    }

    /// What is known to be on disk.
    pub(crate) fn stored(&self) -> Option<StoreId> {
        self.desk.as_ref().map(Desk::last_stored)
    }

    /// Has the disk begin with what was asked of it.
    pub(crate) fn submit_all(&mut self) {
        if let Some(desk) = &mut self.desk {
            desk.submit_all();
        }
    }

    /// Whether an answer of the disk is on its way that lets something leave.
    pub(crate) fn waits_for_disk(&self) -> bool {
        self.desk.as_ref().is_some_and(Desk::is_awaited)
    }

    pub(crate) fn is_behind(&self) -> bool {
        self.closing_waits
            || self.desk.as_ref().is_some_and(Desk::is_behind)
            || self.to_shards.iter().flatten().any(Outgoing::is_behind)
    }

    /// Whether something is neither with another shard nor with the disk.
    pub(crate) fn has_unsent(&self) -> bool {
        self.desk.as_ref().is_some_and(Desk::has_unsubmitted)
            || !self.to_shards.iter().flatten().all(Outgoing::is_flushed)
    }

    pub(crate) fn flush_feeds(&mut self) {
        // Another shard may ask for what it is written about: that comes first.
        if self.desk.as_ref().is_some_and(Desk::has_unsubmitted) {
            return;
        }
        self.to_shards
            .iter_mut()
            .flatten()
            .for_each(Outgoing::flush);
    }

    /// Whether a drain is over: every peer has gone, the time is up, or all that are left have had
    /// everything and neither close nor send anything for [`FIN_GRACE`]. Of a peer that has not
    /// taken everything the end of the time is waited for.
    pub(crate) fn has_drained(&mut self, now: Instant) -> bool {
        let Some(until) = self.drain_until else {
            return false;
        };
        let is_settled = self.closing.is_empty() && self.sockets.all_finished();
        let spoke = self.sockets.take_leaving_spoke();
        let since = self.settled_since.filter(|_| !spoke);
        self.settled_since = is_settled.then(|| since.unwrap_or(now));
        let is_settled_for_long = self.settled_since.is_some_and(|at| at + FIN_GRACE <= now);
        self.sockets.is_empty() || until <= now || is_settled_for_long
    }

    /// When [`has_drained`](Self::has_drained) may have another answer without an event.
    pub(crate) fn drained_at(&self) -> Option<Instant> {
        let settled = self.settled_since.map(|at| at + FIN_GRACE);
        [self.drain_until, settled].into_iter().flatten().min()
    }

    /// Closes what is to be closed, once all that was written to other shards is handed over. A
    /// shard that stops may have stopped reading: then nothing waits for it.
    pub(crate) fn close(&mut self, now: Instant) {
        if !self.closing.is_empty() {
            let handed_over = self.to_shards.iter().flatten().all(Outgoing::is_flushed);
            if handed_over || self.drain_until.is_some() {
                let until = self.leave_by(now);
                for (connection, last_words) in self.closing.drain(..) {
                    self.sockets.leave(until, connection, last_words);
                    if self.drain_until.is_none() {
                        self.sockets.hurry(connection);
                    }
                }
            }
            self.closing_waits = !self.closing.is_empty();
        }
        self.sockets.close_overdue(now);
    }
}

/// Gives the shard one input and does what it asks for, until it asks for nothing more.
pub(crate) fn input(shard: &mut Shard, driver: &mut Driver, now: Instant, input: Input<'_>) {
    give(shard, driver, now, input);
}

/// The same; answers how many packets the shard has dealt with.
pub(crate) fn give(shard: &mut Shard, driver: &mut Driver, now: Instant, input: Input<'_>) -> u64 {
    let mut packets = carry_out(shard, driver, now, input);
    while let Some(answer) = driver.answers.pop_front() {
        let input = match answer {
            Answer::Admission {
                connection,
                admission,
            } => {
                driver.sockets.resume(connection);
                Input::Authenticated {
                    connection,
                    admission,
                }
            }
            Answer::Stored(id) => Input::Stored(id),
        };
        packets += carry_out(shard, driver, now, input);
    }
    packets
}

fn carry_out(shard: &mut Shard, driver: &mut Driver, now: Instant, input: Input<'_>) -> u64 {
    let outputs = shard.handle(now, input);
    let work = outputs.work();
    driver.note_work(work);
    for output in outputs {
        driver.carry_out(now, output);
    }
    if let Some(desk) = &mut driver.desk {
        desk.submit_gathered();
    }
    work.received
}

pub(crate) fn open(shard: &mut Shard, driver: &mut Driver, now: Instant, arrival: Arrival) {
    if driver.drain_until.is_some() {
        return; // dropping it closes it
    }
    match driver.sockets.open(arrival) {
        Ok((connection, peer, unread)) => {
            input(shard, driver, now, Input::Opened { connection, peer });
            if !unread.is_empty() {
                input(
                    shard,
                    driver,
                    now,
                    Input::Received {
                        connection,
                        bytes: &unread,
                    },
                );
            }
        }
        Err(error) => {
            tracing::error!(%error, "cannot watch a new connection; it was closed");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpStream;

    use mio::{Events, Poll};
    use unbroken_broker_core::Peer;

    use super::*;
    use crate::authenticator::authenticator;
    use crate::listener::tests::arrival_and_peer;
    use crate::mailbox::{feed, outside_feed};
    use crate::shard_thread::tests::options;

    #[test]
    fn a_reader_has_until_the_end_of_the_drain_and_otherwise_a_moment() {
        let now = Instant::now();
        assert_eq!(closed_by(None, now), Some(now + LINGER));
        let end = now + 10 * LINGER;
        assert_eq!(closed_by(Some(end), now), Some(end));
    }

    #[test]
    fn a_drain_waits_for_a_moment_for_peers_that_have_everything() {
        let now = Instant::now();
        let (mut driver, connection, _poll, _peer) = driver();
        driver.drain_until = Some(now + 10 * FIN_GRACE);
        driver.carry_out(now, close(connection));
        assert!(!driver.has_drained(now), "it is not closed yet");
        driver.close(now);
        let nearly = FIN_GRACE.checked_sub(Duration::from_millis(1)).unwrap();
        assert!(!driver.has_drained(now));
        assert_eq!(driver.drained_at(), Some(now + FIN_GRACE));
        assert!(!driver.has_drained(now + nearly));
        assert!(driver.has_drained(now + FIN_GRACE));
    }

    #[test]
    fn a_drain_waits_anew_for_a_peer_that_sends_in_time_and_not_beyond_its_end() {
        let now = Instant::now();
        let (mut driver, connection, mut poll, mut peer) = driver();
        let end = now + 2 * FIN_GRACE;
        driver.drain_until = Some(end);
        driver.carry_out(now, close(connection));
        driver.close(now);
        assert!(!driver.has_drained(now));
        let nearly = FIN_GRACE.checked_sub(Duration::from_millis(1)).unwrap();
        hear(&mut driver, connection, &mut poll, &mut peer);
        assert!(!driver.has_drained(now + nearly), "it has sent something");
        assert!(!driver.has_drained(now + FIN_GRACE));
        assert!(
            driver.has_drained(now + nearly + FIN_GRACE),
            "it was silent"
        );
        hear(&mut driver, connection, &mut poll, &mut peer);
        assert!(driver.has_drained(end), "the time is up, whatever it sends");
    }

    #[test]
    fn a_drain_waits_until_its_end_for_a_peer_that_has_not_taken_everything() {
        let now = Instant::now();
        let (mut driver, connection, _poll, _peer) = driver();
        let end = now + 100 * FIN_GRACE;
        driver.drain_until = Some(end);
        let large = [
            b"\x30\x83\x80\x80\x06\x00\x01c",
            &vec![0; 12 * 1024 * 1024][..],
        ]
        .concat();
        driver.carry_out(now, close_behind(connection, &large));
        driver.close(now);
        assert!(!driver.has_drained(now));
        assert!(
            !driver.has_drained(now + 99 * FIN_GRACE),
            "it may still read"
        );
        assert!(driver.has_drained(end));
    }

    /// When a connection is given up that is told to close `now`, and whose peer does not react.
    fn closed_by(drain_until: Option<Instant>, now: Instant) -> Option<Instant> {
        let (mut driver, connection, _poll, _peer) = driver();
        driver.drain_until = drain_until;
        driver.carry_out(now, close(connection));
        driver.close(now);
        driver.sockets.next_deadline()
    }

    #[test]
    fn a_connection_is_closed_behind_all_that_is_for_other_shards() {
        let now = Instant::now();
        let (mut driver, connection, _poll, _peer) = driver();
        let (outgoing, mut incoming) = feed(1);
        driver.to_shards = vec![Some(outgoing)];
        for _ in 0..2 {
            driver.send(ShardId(0), Parcel::Drain { until: now });
        }
        driver.carry_out(now, close(connection));
        assert!(driver.is_behind(), "two letters, and room for one");
        for closed in [false, true] {
            driver.flush_feeds();
            driver.close(now);
            assert_eq!(driver.sockets.next_deadline().is_some(), closed);
            assert_eq!(driver.is_behind(), !closed);
            assert!(incoming.try_recv().is_ok());
            assert!(incoming.is_empty());
        }
    }

    /// A driver with a connection, and its peer.
    fn driver() -> (Driver, ConnectionId, Poll, TcpStream) {
        let poll = Poll::new().unwrap();
        let (outside, _incoming) = outside_feed();
        let (mut askers, _verifier) = authenticator(vec![outside]);
        let sockets = Sockets::new(poll.registry().try_clone().unwrap());
        let doors = Arc::new(Doors::default());
        let mut driver = Driver::new(sockets, Vec::new(), askers.remove(0), doors, None);
        let (arrival, peer) = arrival_and_peer(Vec::new());
        let (connection, ..) = driver.sockets.open(arrival).unwrap();
        (driver, connection, poll, peer)
    }

    /// The peer sends something, and it is read.
    fn hear(driver: &mut Driver, connection: ConnectionId, poll: &mut Poll, peer: &mut TcpStream) {
        peer.write_all(&[0xc0, 0]).unwrap();
        let mut events = Events::with_capacity(8);
        while !driver.sockets.leaving_spoke() {
            poll.poll(&mut events, None).unwrap();
            for event in &events {
                driver.sockets.note(event);
            }
            driver.sockets.read(connection.index, &mut [0; 8]);
        }
    }

    /// What a stopping shard says of a client.
    fn close(connection: ConnectionId) -> Output {
        close_behind(connection, &[])
    }

    /// The same, behind a message that it has published to itself.
    fn close_behind(connection: ConnectionId, message: &[u8]) -> Output {
        let now = Instant::now();
        let mut shard = Shard::new(options(0, 1));
        let peer = nobody();
        shard
            .handle(now, Input::Opened { connection, peer })
            .for_each(drop);
        let admission = Admission::Granted { user: None };
        let authenticated = Input::Authenticated {
            connection,
            admission,
        };
        let subscribe = b"\x82\x06\x00\x01\x00\x01c\x00";
        let connect = b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x00\x00\x01c";
        let received = |bytes| Input::Received { connection, bytes };
        for input in [
            received(connect),
            authenticated,
            received(subscribe),
            received(message),
        ] {
            shard.handle(now, input).for_each(drop);
        }
        shard
            .handle(now, Input::Drain)
            .find(|output| matches!(output, Output::Close { .. }))
            .unwrap()
    }

    fn nobody() -> Peer {
        Peer {
            address: None,
            listener: 0,
        }
    }
}
