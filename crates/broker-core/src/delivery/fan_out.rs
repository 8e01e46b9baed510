//! A message with very many receivers goes to them over several turns, so that whoever else lives
//! on the shard is served meanwhile.
//!
//! ```text
//! publish:    who gets it is decided at once; who has to have it at once does
//! each turn:  the next receivers get all that is on its way to them, oldest first
//! else:       before anything else happens to a session, it gets what is on its way to it
//! ```
//!
//! The last line makes it simple: a session has had everything before it is sent something else,
//! subscribes or unsubscribes, gets or loses a connection, or ends. So each session sees what it
//! would have seen had all been given at once, only later, and nothing else in the shard has to
//! know. Several messages of one burst reach a receiver together, and leave in one write.
//!
//! Invariants:
//! - A session that stays has a message of QoS 1 or 2 at once: what is stored, and how far the
//!   session is in the log, is as if nothing were on its way. So a kill loses nothing that is.
//! - A session is in the route of what is on its way for as long as its number is its own.
//! - The acknowledgement leaves when all on the publisher's shard have it. A publisher on this
//!   shard with whose message [`SPREADS_WAITED_FOR`] are under way, or half the bytes that an
//!   output has room for, is not read before all have that one, or few are left: it does not wait
//!   for what came later.
//! - What is under way has room in the output of a receiver that has taken what came before, so
//!   that none loses it for being served late.
//! - Publishers on other shards do not wait. Where more comes than may be under way, the oldest
//!   goes to everybody who has not got it, and with it all that is behind it: in a flood from
//!   another shard one turn brings up to [`SPREADS_MAX`] messages to all.
//!
//! Deliberately absent: groups, each of which gives to one member, at once; and other shards, each
//! of which does this for its own receivers.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use unbroken_mqtt_proto::QoS;
use unbroken_mqtt_proto::topic::TopicName;

use super::frames::{Frames, encoded_bytes};
use super::item::Item;
use crate::ids::{ConnectionId, SessionId};
use crate::limits::{SPREADS_MAX, SPREADS_WAITED_FOR};
use crate::message::Message;
use crate::reason::DropReason;
use crate::routing::{Receiver, Route, Routed, Terms, WideRoute};
use crate::session::Session;
use crate::shard::Clients;
use crate::shard::Shard;
use crate::timers::Timer;

/// What is on its way, oldest first.
#[derive(Debug)]
pub(crate) struct Spreads {
    under_way: VecDeque<Spread>,
    /// Of these, as a receiver gets them, each once.
    bytes: u64,
    /// Receivers up to which a message goes to all of them in one turn.
    at_once: usize,
    /// [`Timer::Spread`] is set.
    is_due: bool,
}

/// One message on its way.
#[derive(Debug)]
struct Spread {
    message: Arc<Message>,
    route: Arc<WideRoute>,
    /// Those who have it, or are not to have it, by their place in the route: a bit each.
    done: Box<[u64]>,
    /// Everybody before this place is done: `0..=route.len()`.
    next: usize,
    frames: Frames,
    /// What these say of the Message Expiry Interval.
    seconds_left: Option<u32>,
    /// Settled when everybody has it.
    token: Option<u64>,
    /// Its publisher, if that is not read before everybody has it.
    waiting: Option<ConnectionId>,
}

impl Spreads {
    pub(crate) fn new(at_once: u32) -> Self {
        Self {
            under_way: VecDeque::new(),
            bytes: 0,
            at_once: at_once as usize,
            is_due: false,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.under_way.is_empty()
    }

    /// Whether a message on this route goes to its receivers over several turns.
    #[inline]
    pub(crate) fn is_wide(&self, route: &Route) -> bool {
        route.receivers.len() > self.at_once
    }

    /// Whether so many messages, or so many bytes of them, are on their way.
    fn has(&self, messages: usize, bytes: u64) -> bool {
        self.under_way.len() >= messages || self.bytes >= bytes
    }

    /// Receivers a turn.
    fn slice(&self) -> usize {
        (self.at_once / SLICES).max(1)
    }
}

impl Spread {
    fn new(message: Arc<Message>, route: Arc<WideRoute>) -> Self {
        let mut frames = Frames::default();
        frames.begin(true);
        Self {
            message,
            done: vec![0; route.len().div_ceil(BITS)].into(),
            route,
            next: 0,
            frames,
            seconds_left: None,
            token: None,
            waiting: None,
        }
    }

    fn bytes(&self) -> u64 {
        encoded_bytes(&self.message.publication())
    }

    /// Answers whether it was not done before.
    fn set_done(&mut self, place: usize) -> bool {
        let (word, bit) = (&mut self.done[place / BITS], 1 << (place % BITS));
        let was_open = *word & bit == 0;
        *word |= bit;
        was_open
    }

    /// The first who has not got it.
    fn first_open(&mut self) -> Option<&Receiver> {
        while self.next < self.route.len() {
            let open = !self.done[self.next / BITS] >> (self.next % BITS);
            if open & 1 == 1 {
                break;
            }
            // Within its word; a word of which nothing is open is left behind whole.
            self.next += (open.trailing_zeros() as usize).min(BITS - self.next % BITS);
        }
        self.next = self.next.min(self.route.len());
        self.route.receiver(self.next)
    }
}

impl Clients {
    /// Gives a session what is on its way to it, before something else happens to it.
    #[inline]
    pub(crate) fn catch_up(&mut self, now: Instant, session: SessionId) {
        if !self.spreads.is_empty() {
            self.give_what_is_on_its_way(now, session);
        }
    }

    #[cold]
    fn give_what_is_on_its_way(&mut self, now: Instant, session: SessionId) {
        // What the giving leads to finds nothing on its way.
        let mut under_way = std::mem::take(&mut self.spreads.under_way);
        for spread in &mut under_way {
            if let Some(place) = spread.route.place_of(session)
                && spread.set_done(place)
            {
                self.give_one(now, spread, place);
            }
        }
        debug_assert!(self.spreads.is_empty(), "giving routes nothing");
        self.spreads.under_way = under_way;
    }

    fn give_one(&mut self, now: Instant, spread: &mut Spread, place: usize) {
        let Some(receiver) = spread.route.receiver(place) else {
            return;
        };
        let mut item = Item::kept(&spread.message);
        let terms = Terms::of(receiver, item.publication.retain);
        if item.publication.expired(now) {
            // [MQTT-3.3.2-5]
            let reason = DropReason::Expired;
            return self.refuse_entry(now, receiver.session, terms, &item, reason);
        }
        let seconds_left = item.publication.seconds_left(now);
        if spread.seconds_left != seconds_left {
            // [MQTT-3.3.2-6]
            spread.frames.begin(true);
            spread.seconds_left = seconds_left;
        }
        std::mem::swap(&mut self.frames, &mut spread.frames);
        if terms.is_denied {
            self.deliver_denied(now, receiver.session, terms, &mut item);
        } else {
            self.give(now, receiver.session, terms, &mut item);
        }
        std::mem::swap(&mut self.frames, &mut spread.frames);
    }

    /// Begins to give a message to many. Answers the publisher's own session if some of its
    /// subscriptions say No Local: that is for the caller.
    #[cold]
    pub(crate) fn begin_spread(
        &mut self,
        now: Instant,
        route: &Route,
        topic: TopicName<'_>,
        from: Option<SessionId>,
        item: &mut Item<'_>,
        routed: &mut Routed,
    ) -> Option<SessionId> {
        while !self.spreads.is_empty() && self.spreads.has(SPREADS_MAX, self.room()) {
            self.finish_oldest(now);
        }
        self.begin_item(true);
        let mut spread = Spread::new(item.message(&mut self.pool), route.wide());
        let is_in_no_log = item.is_in_no_log();
        let mut own = None;
        for (place, receiver) in route.receivers.iter().enumerate() {
            let mut terms = Terms::of(receiver, item.publication.retain);
            if is_in_no_log {
                let Some(qos) = self.qos_in_no_log(receiver, topic) else {
                    spread.set_done(place);
                    continue;
                };
                terms.qos = qos;
            }
            routed.wanted = true;
            if receiver.no_local_some && from == Some(receiver.session) {
                own = from;
                spread.set_done(place);
                continue;
            }
            routed.owed += 1;
            if self.has_it_at_once(receiver, item) {
                spread.set_done(place);
                self.deliver(now, receiver.session, terms, item);
            }
        }
        self.spreads.bytes += spread.bytes();
        self.spreads.under_way.push_back(spread);
        item.is_spreading = true;
        own
    }

    /// Bytes that a receiver takes in one turn, if it has taken what came before.
    fn room(&self) -> u64 {
        self.limits.output_bytes_max.into()
    }

    /// How far a session that stays is in the log counts what it has, and nothing else.
    fn has_it_at_once(&self, receiver: &Receiver, item: &Item<'_>) -> bool {
        let session = |id: SessionId| self.sessions.get(id.index());
        receiver.qos.min(item.publication.qos) > QoS::AtMostOnce
            && session(receiver.session).is_some_and(Session::is_durable)
    }

    /// Gives the next receivers what is on its way to them.
    fn spread_on(&mut self, now: Instant) {
        let mut left = self.spreads.slice();
        while let Some(oldest) = self.spreads.under_way.front_mut() {
            match oldest.first_open().map(|receiver| receiver.session) {
                None => self.end_oldest(now),
                Some(_) if left == 0 => break,
                Some(session) => {
                    self.give_what_is_on_its_way(now, session);
                    left -= 1;
                }
            }
        }
    }

    fn finish_oldest(&mut self, now: Instant) {
        while let Some(oldest) = self.spreads.under_way.front_mut()
            && let Some(session) = oldest.first_open().map(|receiver| receiver.session)
        {
            self.give_what_is_on_its_way(now, session);
        }
        self.end_oldest(now);
    }

    /// Everybody has it.
    fn end_oldest(&mut self, now: Instant) {
        let Some(spread) = self.spreads.under_way.pop_front() else {
            return;
        };
        self.spreads.bytes -= spread.bytes();
        self.pool.release(spread.message);
        if let Some(token) = spread.token {
            self.handle_settled(now, token);
        }
        self.read_again(now, spread.waiting);
        if !self.spreads.has(SPREADS_WAITED_FOR / 2, self.room() / 4) {
            for later in 0..self.spreads.under_way.len() {
                let waiting = self.spreads.under_way[later].waiting.take();
                self.read_again(now, waiting);
            }
        }
    }

    /// Lets a publisher that waited, if there is one, go on.
    fn read_again(&mut self, now: Instant, waiting: Option<ConnectionId>) {
        if let Some(id) = waiting
            && let Some(connection) = self.connections.get_mut(id)
        {
            connection.pause(false);
            self.connections.relieve(now, id);
        }
    }

    /// Gives everybody everything.
    pub(crate) fn finish_spreads(&mut self, now: Instant) {
        while !self.spreads.is_empty() {
            self.finish_oldest(now);
        }
    }
}

impl Shard {
    /// Has what was begun go on in the next turns.
    pub(crate) fn schedule_spread(&mut self, now: Instant) {
        if !self.clients.spreads.is_empty() && !self.clients.spreads.is_due {
            self.clients.spreads.is_due = true;
            self.timers.set(now, Timer::Spread);
        }
    }

    pub(crate) fn go_on_spreading(&mut self, now: Instant) {
        self.clients.spreads.is_due = false;
        self.clients.spread_on(now);
        self.schedule_spread(now + NEXT_TURN);
    }

    /// The message that was begun last is this publisher's: its acknowledgement waits for all to
    /// have it, and so does what else it publishes, if much is under way.
    #[cold]
    pub(crate) fn wait_for_spread(&mut self, id: ConnectionId, item: &mut Item<'_>) {
        let is_answered = item.publication.qos > QoS::AtMostOnce;
        let token = is_answered.then(|| self.expect_settled(item));
        let room = self.clients.room();
        let Clients {
            spreads,
            connections,
            ..
        } = &mut self.clients;
        let is_much = spreads.has(SPREADS_WAITED_FOR, room / 2);
        let Some(spread) = spreads.under_way.back_mut() else {
            return;
        };
        spread.token = token;
        if is_much && let Some(connection) = connections.get_mut(id) {
            connection.pause(true);
            spread.waiting = Some(id);
        }
    }
}

/// Turns that a message takes which has hardly too many receivers to go to all at once.
/// Doubled: a receiver costs a fiftieth more. Halved: a quiet client beside a large fan-out waits
/// twice as long. Measurements: `docs/notes/scheduler.md`.
const SLICES: usize = 64;
const BITS: usize = u64::BITS as usize;
/// Later than now, so that a turn of the loop comes between.
const NEXT_TURN: Duration = Duration::from_nanos(1);
