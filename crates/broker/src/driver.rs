//! Carries out a shard's requests: sockets, channels to other shards, the disk, the authenticator.
//!
//! Invariants:
//! - A connection is closed only after all that its shard wrote to other shards was sent.
//! - A request that can be answered at once is answered before the shard gets another input.
//!
//! Deliberately absent: the turns of the loop ([`crate::shard_thread`]), and any decision about
//! MQTT.

mod answers;
mod rates;
mod refusals;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use unbroken_broker_core::{ConnectionId, Input, LastWords, Output, Shard, ShardId, StoreId, Work};

use crate::authenticator::{AuthRules, Authenticator};
use crate::bounds::{FIN_GRACE, LINGER};
use crate::channel::{DriverEvent, IncomingConnection, ShardSender};
use crate::disk::StoreHandle;
use crate::heap::HeapWatch;
use crate::listener::Doors;
use crate::log::Tallies;
use crate::request::Watch;
use crate::sockets::{Sockets, TransportNews};
use crate::trace::TraceWatch;
pub(crate) use answers::decided;
use answers::{Answer, answer_all};
pub(crate) use rates::renew_rates;

/// Everything except the shard, so that a shard's outputs can be carried out while they borrow it.
#[derive(Debug)]
pub(crate) struct Driver {
    pub(crate) sockets: Sockets,
    pub(crate) to_shards: Vec<Option<ShardSender>>,
    authenticator: Authenticator,
    pub(crate) auth_rules: Arc<AuthRules>,
    doors: Arc<Doors>,
    pub(crate) store_handle: Option<StoreHandle>,
    /// Which events are logged.
    pub(crate) log: Tallies,
    /// Threads that receive events.
    pub(crate) watches: Vec<Watch>,
    pub(crate) heap: HeapWatch,
    /// Readers of traces.
    pub(crate) traces: Vec<TraceWatch>,
    /// Answers to the shard's requests that need no other thread.
    answers: VecDeque<Answer>,
    /// Connections to close once all messages to other shards are sent.
    closing: Vec<(ConnectionId, LastWords)>,
    /// Some of these wait for room in a channel.
    closing_waits: bool,
    /// Packets received and sent that were not [taken](Self::take_frames) yet.
    frames: u64,
    /// Set when the broker is stopping: the time by which this thread ends.
    pub(crate) drain_until: Option<Instant>,
    /// While draining: since when every remaining peer only has to close.
    pub(crate) settled_since: Option<Instant>,
}

impl Driver {
    pub(crate) fn new(
        sockets: Sockets,
        to_shards: Vec<Option<ShardSender>>,
        authenticator: Authenticator,
        (auth_rules, doors): (Arc<AuthRules>, Arc<Doors>),
        store_handle: Option<StoreHandle>,
    ) -> Self {
        Self {
            sockets,
            to_shards,
            authenticator,
            auth_rules,
            doors,
            store_handle,
            log: Tallies::default(),
            watches: Vec::new(),
            heap: HeapWatch::default(),
            traces: Vec::new(),
            answers: VecDeque::new(),
            closing: Vec::new(),
            closing_waits: false,
            frames: 0,
            drain_until: None,
            settled_since: None,
        }
    }

    /// Packets received and sent since the last call.
    pub(crate) fn take_frames(&mut self) -> u64 {
        std::mem::take(&mut self.frames)
    }

    pub(crate) fn note_work(&mut self, work: Work) {
        self.frames += work.received + work.sent;
    }

    fn carry_out(&mut self, now: Instant, output: Output) {
        match output {
            Output::ShardMessage { to, message } => {
                self.send(to, DriverEvent::ShardMessage(message));
            }
            Output::Event(event) => {
                self.log.event(now, &event);
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
                Ok(incoming) => self.send(to, DriverEvent::Connection(Box::new(incoming))),
                Err(error) => {
                    tracing::error!(%error, "cannot move a connection to another shard; it was closed");
                }
            },
            Output::Authenticate {
                connection,
                mut credentials,
                until,
            } => {
                if let Some(step) = credentials.step.take() {
                    let asked = (credentials, step);
                    let rules = &self.auth_rules;
                    let decision = self.authenticator.authenticate_by_steps(rules, asked, now);
                    self.answers.push_back(Answer::of(connection, decision));
                    return;
                }
                self.sockets.pause(connection);
                let verification = (connection, credentials);
                let timeout = until.saturating_duration_since(now);
                let asked =
                    self.authenticator
                        .authenticate(&self.auth_rules, verification, now, timeout);
                if let Some(admission) = asked {
                    let admission = self.review(now, connection, admission);
                    self.answers.push_back(Answer::Admission {
                        connection,
                        admission,
                    });
                }
            }
            Output::Store(request) => match &mut self.store_handle {
                Some(store_handle) => store_handle.store(now, &request),
                // All data is in memory, so nothing is to be waited for.
                None => self.answers.push_back(Answer::Stored(request.id)),
            },
            Output::Read(request) => match &mut self.store_handle {
                Some(store_handle) => store_handle.read(request),
                None => debug_assert!(false, "nothing is on disk: {request:?}"),
            },
            Output::Needed(needed) => {
                if let Some(store_handle) = &mut self.store_handle {
                    store_handle.release_when_stored(needed);
                }
            }
        }
    }

    /// Lets the next read end a connection that waits for its login, if its peer has closed it.
    pub(crate) fn end_login_if_closed(&mut self, connection: ConnectionId) {
        if self.sockets.is_at_end(connection) {
            if let Some(peer) = self.sockets.peer(connection) {
                self.authenticator
                    .cancel(&self.auth_rules, connection, peer);
            }
            self.sockets.resume(connection);
        }
    }

    /// How long a connection that is closed now may take to read its final bytes. The thread ends
    /// at `drain_until`; it does no harm if this is sooner than for connections closed before.
    fn close_deadline(&self, now: Instant) -> Instant {
        self.drain_until.unwrap_or(now + LINGER)
    }

    /// Closes a connection that has ended.
    pub(crate) fn close_ended(&mut self, now: Instant, connection: ConnectionId) {
        self.log_refusal(now, connection);
        self.sockets
            .close_ended(self.close_deadline(now), connection);
        if self.drain_until.is_none() {
            self.sockets.close_if_permit_needed(connection);
        }
    }

    pub(crate) fn send(&mut self, to: ShardId, event: DriverEvent) {
        if let Some(Some(channel)) = self.to_shards.get_mut(usize::from(to.0)) {
            channel.push(event);
        }
    }

    /// Reports on `done` when all that the shard has requested so far is stored.
    pub(crate) fn notify_when_stored(&mut self, done: Sender<()>) {
        match &mut self.store_handle {
            Some(store_handle) => store_handle.notify_when_stored(done),
            // All data is in memory, so nothing is to be waited for. The receiver may have gone.
            None => drop(done.send(())),
        }
    }

    /// Lets a commit wait so long for more requests.
    pub(crate) fn delay_commits(&mut self, delay: Duration) {
        if let Some(store_handle) = &mut self.store_handle {
            store_handle.commit_delay = delay;
        }
    }

    /// The last request that is known to be on disk.
    pub(crate) fn stored(&self) -> Option<StoreId> {
        self.store_handle.as_ref().map(StoreHandle::last_stored)
    }

    /// Submits the requests to the disk.
    pub(crate) fn submit_all(&mut self) {
        if let Some(store_handle) = &mut self.store_handle {
            store_handle.submit_all();
        }
    }

    /// Whether the disk will answer a request that holds something back.
    pub(crate) fn waits_for_disk(&self) -> bool {
        self.store_handle
            .as_ref()
            .is_some_and(StoreHandle::has_pending)
    }

    pub(crate) fn is_behind(&self) -> bool {
        self.closing_waits
            || self
                .store_handle
                .as_ref()
                .is_some_and(StoreHandle::is_behind)
            || self.to_shards.iter().flatten().any(ShardSender::is_behind)
    }

    /// Whether something was sent neither to another shard nor to the disk.
    pub(crate) fn has_unsent(&self) -> bool {
        self.store_handle
            .as_ref()
            .is_some_and(StoreHandle::has_unsubmitted)
            || !self.to_shards.iter().flatten().all(ShardSender::is_flushed)
    }

    pub(crate) fn flush_channels(&mut self) {
        // A message may refer to a request that waits for the disk: the request goes first.
        if self
            .store_handle
            .as_ref()
            .is_some_and(StoreHandle::has_unsubmitted)
        {
            return;
        }
        self.to_shards
            .iter_mut()
            .flatten()
            .for_each(ShardSender::flush);
    }

    /// Whether the drain is over: every peer has gone, the time is up, or the remaining peers have
    /// received everything and neither closed nor sent anything for [`FIN_GRACE`]. A peer that has
    /// not received everything is waited for until the time is up.
    pub(crate) fn has_drained(&mut self, now: Instant) -> bool {
        let Some(until) = self.drain_until else {
            return false;
        };
        let is_settled = self.closing.is_empty() && self.sockets.all_finished();
        let spoke = self.sockets.take_received_while_closing();
        let since = self.settled_since.filter(|_| !spoke);
        self.settled_since = is_settled.then(|| since.unwrap_or(now));
        let is_settled_for_long = self.settled_since.is_some_and(|at| at + FIN_GRACE <= now);
        self.sockets.is_empty() || until <= now || is_settled_for_long
    }

    /// When [`has_drained`](Self::has_drained) may change without an event.
    pub(crate) fn drained_at(&self) -> Option<Instant> {
        let settled = self.settled_since.map(|at| at + FIN_GRACE);
        [self.drain_until, settled].into_iter().flatten().min()
    }

    /// Closes connections, once all messages to other shards are sent. A shard that is stopping may
    /// no longer read: then closing does not wait for it.
    pub(crate) fn close(&mut self, now: Instant) {
        if !self.closing.is_empty() {
            let handed_over = self.to_shards.iter().flatten().all(ShardSender::is_flushed);
            if handed_over || self.drain_until.is_some() {
                let until = self.close_deadline(now);
                for (connection, last_words) in self.closing.drain(..) {
                    self.sockets.close_gracefully(until, connection, last_words);
                    if self.drain_until.is_none() {
                        self.sockets.close_if_permit_needed(connection);
                    }
                }
            }
            self.closing_waits = !self.closing.is_empty();
        }
        self.sockets.close_overdue(now);
    }
}

/// Gives the shard one input and carries out its outputs, until there are none.
pub(crate) fn input(shard: &mut Shard, driver: &mut Driver, now: Instant, input: Input<'_>) {
    input_counted(shard, driver, now, input);
}

/// The same; returns how many packets the shard has processed.
pub(crate) fn input_counted(
    shard: &mut Shard,
    driver: &mut Driver,
    now: Instant,
    input: Input<'_>,
) -> u64 {
    let mut packets = carry_out(shard, driver, now, input);
    packets += answer_all(shard, driver, now);
    packets
}

fn carry_out(shard: &mut Shard, driver: &mut Driver, now: Instant, input: Input<'_>) -> u64 {
    let outputs = shard.handle(now, input);
    let work = outputs.work();
    driver.note_work(work);
    for output in outputs {
        driver.carry_out(now, output);
    }
    driver.log.end_packet(now);
    let mut news = None;
    if let Some(store_handle) = &mut driver.store_handle {
        store_handle.submit_gathered();
        news = store_handle.take_lack();
    }
    if let Some(lacks) = news {
        tell_of_lack(shard, driver, now, lacks);
    }
    work.received
}

#[cold]
fn tell_of_lack(shard: &mut Shard, driver: &mut Driver, now: Instant, lacks: bool) {
    for output in shard.handle(now, Input::DiskLacksSpace(lacks)) {
        driver.carry_out(now, output);
    }
}

pub(crate) fn open(
    shard: &mut Shard,
    driver: &mut Driver,
    now: Instant,
    incoming: IncomingConnection,
) {
    if driver.drain_until.is_some() {
        return; // dropping it closes it
    }
    match driver.sockets.open(incoming) {
        Ok((connection, peer, unread)) => {
            input(shard, driver, now, Input::Opened { connection, peer });
            take_news(shard, driver, now);
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
            tracing::error!(%error, "cannot poll a new connection; it was closed");
        }
    }
}

/// Has the shard learn what transforms know of their connections.
#[inline]
pub(crate) fn take_news(shard: &mut Shard, driver: &mut Driver, now: Instant) {
    while let Some((connection, news)) = driver.sockets.take_news() {
        let news = match news {
            TransportNews::Identified(peer) => Input::Identified { connection, peer },
            TransportNews::Holds(bytes) => Input::TransportHolds { connection, bytes },
        };
        input(shard, driver, now, news);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpStream;

    use mio::{Events, Poll};
    use unbroken_broker_core::{Admission, Grant, Peer};

    use super::*;
    use crate::authenticator::authenticator;
    use crate::channel::{event_channel, shard_channel};
    use crate::listener::tests::incoming_and_peer;
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
        receive(&mut driver, connection, &mut poll, &mut peer);
        assert!(!driver.has_drained(now + nearly), "it has sent something");
        assert!(!driver.has_drained(now + FIN_GRACE));
        assert!(
            driver.has_drained(now + nearly + FIN_GRACE),
            "it was silent"
        );
        receive(&mut driver, connection, &mut poll, &mut peer);
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

    /// The deadline of a connection that is closed `now`, and whose peer does not react.
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
        let (sender, mut receiver) = shard_channel(1);
        driver.to_shards = vec![Some(sender)];
        for _ in 0..2 {
            driver.send(ShardId(0), DriverEvent::Drain { until: now });
        }
        driver.carry_out(now, close(connection));
        assert!(driver.is_behind(), "two messages, and room for one");
        for closed in [false, true] {
            driver.flush_channels();
            driver.close(now);
            assert_eq!(driver.sockets.next_deadline().is_some(), closed);
            assert_eq!(driver.is_behind(), !closed);
            assert!(receiver.try_recv().is_ok());
            assert!(receiver.is_empty());
        }
    }

    /// A driver with a connection, and its peer.
    fn driver() -> (Driver, ConnectionId, Poll, TcpStream) {
        let poll = Poll::new().unwrap();
        let (outside, _incoming) = event_channel();
        let (mut authenticators, _verifiers) =
            authenticator(vec![outside], [0; 32], 1, &Arc::default());
        let sockets = Sockets::new(poll.registry().try_clone().unwrap());
        let auth_rules = Arc::new(AuthRules::default());
        let mut driver = Driver::new(
            sockets,
            Vec::new(),
            authenticators.remove(0),
            (auth_rules, Arc::default()),
            None,
        );
        let (incoming, peer) = incoming_and_peer(Vec::new());
        let (connection, ..) = driver.sockets.open(incoming).unwrap();
        (driver, connection, poll, peer)
    }

    /// The peer sends something, and it is read.
    fn receive(
        driver: &mut Driver,
        connection: ConnectionId,
        poll: &mut Poll,
        peer: &mut TcpStream,
    ) {
        peer.write_all(&[0xc0, 0]).unwrap();
        let mut events = Events::with_capacity(8);
        while !driver.sockets.received_while_closing() {
            poll.poll(&mut events, None).unwrap();
            for event in &events {
                driver.sockets.note(event);
            }
            driver.sockets.read(connection.index, &mut [0; 8]);
        }
    }

    /// The output with which a stopping shard closes a client.
    fn close(connection: ConnectionId) -> Output {
        close_behind(connection, &[])
    }

    /// The same, after a message that the client has published to itself.
    fn close_behind(connection: ConnectionId, message: &[u8]) -> Output {
        let now = Instant::now();
        let mut shard = Shard::new(options(0, 1));
        let peer = no_peer();
        shard
            .handle(now, Input::Opened { connection, peer })
            .for_each(drop);
        let admission = Admission::Granted(Grant::anonymous());
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

    fn no_peer() -> Peer {
        Peer::default()
    }
}
