//! A message with very many receivers goes to them over several turns, so that the other clients of
//! the shard are served meanwhile.
//!
//! ```text
//! publish:    the receivers are decided at once; sessions that store the message get it at once
//! each turn:  the next receivers get all that is on its way to them, oldest first
//! else:       before anything else happens to a session, it gets what is on its way to it
//! ```
//!
//! So each session sees what it would have seen had all been given at once, only later; no other
//! part of the shard has to know. Messages of one burst leave to a receiver in one write.
//!
//! Invariants:
//! - A session that stays has a message of QoS 1 or 2 at once, so that a kill loses none.
//! - A session is in the route of what is on its way for as long as its number is its own.
//! - The acknowledgement leaves when all on the publisher's shard have the message. A publisher is
//!   not read while [`FAN_OUTS_WAITED_FOR`] of its messages, or half the bytes that an output has
//!   room for, are under way, until all have the first of them, or few are left.
//! - A receiver that has taken what came before has room in its output for what is under way.
//! - Publishers on other shards do not wait. Beyond [`FAN_OUTS_MAX`] messages under way the oldest
//!   goes to all that lack it, with all that is behind it.
//!
//! Deliberately absent: groups, which give to one member at once; and other shards, each of which
//! does this for its own receivers.

use std::collections::VecDeque;
use std::sync::Arc;

use unbroken_mqtt_proto::QoS;
use unbroken_mqtt_proto::topic::TopicName;

use super::Deliverer;
use super::frames::{Frames, encoded_bytes};
use super::item::Item;
use crate::ids::{ConnectionId, SessionId};
use crate::limits::{FAN_OUTS_MAX, FAN_OUTS_WAITED_FOR};
use crate::message::Message;
use crate::reason::DropReason;
use crate::routing::{Receiver, Route, Routed, Terms, WideRoute};
use crate::session::Session;

/// What is on its way, oldest first.
#[derive(Debug)]
pub(crate) struct FanOuts {
    under_way: VecDeque<FanOut>,
    /// Of these, as a receiver gets them, each once.
    bytes: u64,
    /// Receivers up to which a message goes to all of them in one turn.
    at_once: usize,
    /// [`Timer::FanOut`] is set.
    is_due: bool,
    /// What was waited for until everybody had a message.
    settled: Vec<u64>,
}

/// One message on its way.
#[derive(Debug)]
struct FanOut {
    message: Arc<Message>,
    route: Arc<WideRoute>,
    /// Receivers that wait for it, by their place in the route: a bit each.
    waiting: Box<[u64]>,
    /// In the words before this one no shard waits: `0..waiting.len()`, or 0.
    first_word: usize,
    frames: Frames,
    /// What these say of the Message Expiry Interval.
    seconds_left: Option<u32>,
    /// Settled when everybody has it.
    token: Option<u64>,
    /// Its publisher, if that is not read before everybody has it.
    paused: Option<ConnectionId>,
}

impl FanOuts {
    pub(crate) fn new(at_once: u32) -> Self {
        Self {
            under_way: VecDeque::new(),
            bytes: 0,
            at_once: at_once as usize,
            is_due: false,
            settled: Vec::new(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.under_way.is_empty()
    }

    /// Whether a turn is to be asked for, in which what is on its way goes on.
    pub(super) fn schedule(&mut self) -> bool {
        !self.is_empty() && !std::mem::replace(&mut self.is_due, true)
    }

    #[cold]
    fn push(&mut self, fan_out: FanOut) {
        self.bytes += fan_out.bytes();
        self.under_way.push_back(fan_out);
    }

    pub(super) fn pop_settled(&mut self) -> Option<u64> {
        self.settled.pop()
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

impl FanOut {
    fn new(message: Arc<Message>, route: Arc<WideRoute>) -> Self {
        let mut frames = Frames::default();
        frames.begin(true);
        Self {
            message,
            waiting: vec![0; route.len().div_ceil(BITS)].into(),
            route,
            first_word: 0,
            frames,
            seconds_left: None,
            token: None,
            paused: None,
        }
    }

    fn bytes(&self) -> u64 {
        encoded_bytes(&self.message.publication())
    }

    /// The receiver at this place waits for it.
    fn add(&mut self, place: usize) {
        self.waiting[place / BITS] |= 1 << (place % BITS);
    }

    /// The receiver at this place gets it now. Returns whether it waited.
    fn take(&mut self, place: usize) -> bool {
        let (word, bit) = (&mut self.waiting[place / BITS], 1 << (place % BITS));
        let was_waiting = *word & bit != 0;
        *word &= !bit;
        was_waiting
    }

    /// The first receiver that waits.
    fn first_waiting(&mut self) -> Option<SessionId> {
        let mut words = self.waiting.iter().enumerate().skip(self.first_word);
        let (index, word) = words.find(|(_, word)| **word != 0)?;
        self.first_word = index;
        let place = index * BITS + word.trailing_zeros() as usize;
        self.route.receiver(place).map(|receiver| receiver.session)
    }
}

impl Deliverer<'_> {
    /// Gives a session what is on its way to it, before something else happens to it.
    #[inline]
    pub(crate) fn catch_up(&mut self, session: SessionId) {
        if !self.deliveries.fan_outs.is_empty() {
            self.deliver_pending(session);
        }
    }

    #[cold]
    fn deliver_pending(&mut self, session: SessionId) {
        // What the giving leads to finds nothing on its way.
        let mut under_way = std::mem::take(&mut self.deliveries.fan_outs.under_way);
        for fan_out in &mut under_way {
            if let Some(place) = fan_out.route.place_of(session)
                && fan_out.take(place)
            {
                self.give_one(fan_out, place);
            }
        }
        debug_assert!(self.deliveries.fan_outs.is_empty(), "giving routes nothing");
        self.deliveries.fan_outs.under_way = under_way;
    }

    fn give_one(&mut self, fan_out: &mut FanOut, place: usize) {
        let Some(receiver) = fan_out.route.receiver(place) else {
            return;
        };
        let mut item = Item::kept(&fan_out.message);
        let terms = Terms::of(receiver, item.publication.retain);
        if item.publication.expired(self.now) {
            // [MQTT-3.3.2-5]
            let reason = DropReason::Expired;
            return self.refuse_entry(receiver.session, terms, &item, reason);
        }
        let seconds_left = item.publication.seconds_left(self.now);
        if fan_out.seconds_left != seconds_left {
            // [MQTT-3.3.2-6]
            fan_out.frames.begin(true);
            fan_out.seconds_left = seconds_left;
        }
        std::mem::swap(&mut self.deliveries.frames, &mut fan_out.frames);
        if terms.is_denied {
            self.deliver_denied(receiver.session, terms, &mut item);
        } else {
            self.give(receiver.session, terms, &mut item);
        }
        std::mem::swap(&mut self.deliveries.frames, &mut fan_out.frames);
    }

    /// Makes room for a message to very many.
    #[cold]
    fn begin_fan_out(&mut self, route: &Route, item: &mut Item<'_>) -> FanOut {
        while !self.deliveries.fan_outs.is_empty()
            && self.deliveries.fan_outs.has(FAN_OUTS_MAX, self.room())
        {
            self.finish_oldest();
        }
        item.is_fanned_out = true;
        let message = item.message(self.deliveries);
        FanOut::new(message, route.wide())
    }

    /// Delivers a message to all sessions of its route, to very many over several turns. Returns
    /// the publisher's own session if some of its subscriptions say No Local: that is for the
    /// caller.
    pub(crate) fn deliver_to_all(
        &mut self,
        route: &Route,
        topic: TopicName<'_>,
        from: Option<SessionId>,
        item: &mut Item<'_>,
        routed: &mut Routed,
    ) -> Option<SessionId> {
        let is_wide = route.receivers.len() > self.deliveries.fan_outs.at_once;
        let mut fan_out = is_wide.then(|| self.begin_fan_out(route, item));
        self.begin_item(route.receivers.len() + route.groups.len() > 1);
        let is_in_no_log = item.is_in_no_log();
        let mut own = None;
        for (place, receiver) in route.receivers.iter().enumerate() {
            let mut terms = Terms::of(receiver, item.publication.retain);
            if is_in_no_log {
                let Some(qos) = self.qos_in_no_log(receiver, topic) else {
                    continue;
                };
                terms.qos = qos;
            }
            routed.wanted = true;
            if receiver.no_local_some && from == Some(receiver.session) {
                own = from;
                continue;
            }
            routed.expected += 1;
            if let Some(fan_out) = &mut fan_out
                && !self.has_it_at_once(receiver, item)
            {
                fan_out.add(place);
                continue;
            }
            // [MQTT-4.5.0-1, MQTT311-4.5.0-1]
            self.deliver(receiver.session, terms, item);
        }
        if let Some(fan_out) = fan_out {
            self.deliveries.fan_outs.push(fan_out);
        }
        own
    }

    /// Bytes that a receiver takes in one turn, if it has taken what came before.
    fn room(&self) -> u64 {
        self.limits.output_bytes_max.into()
    }

    /// How far a session that stays is in the log counts what it has, and nothing else.
    fn has_it_at_once(&self, receiver: &Receiver, item: &Item<'_>) -> bool {
        let session = |id: SessionId| self.sessions.get(id);
        receiver.qos.min(item.publication.qos) > QoS::AtMostOnce
            && session(receiver.session).is_some_and(Session::is_durable)
    }

    /// Gives the next receivers what is on its way to them.
    pub(crate) fn continue_fan_outs(&mut self) {
        self.deliveries.fan_outs.is_due = false;
        let mut left = self.deliveries.fan_outs.slice();
        while let Some(oldest) = self.deliveries.fan_outs.under_way.front_mut() {
            match oldest.first_waiting() {
                None => self.end_oldest(),
                Some(_) if left == 0 => break,
                Some(session) => {
                    self.deliver_pending(session);
                    left -= 1;
                }
            }
        }
    }

    fn finish_oldest(&mut self) {
        while let Some(oldest) = self.deliveries.fan_outs.under_way.front_mut()
            && let Some(session) = oldest.first_waiting()
        {
            self.deliver_pending(session);
        }
        self.end_oldest();
    }

    /// Everybody has it.
    fn end_oldest(&mut self) {
        let Some(fan_out) = self.deliveries.fan_outs.under_way.pop_front() else {
            return;
        };
        self.deliveries.fan_outs.bytes -= fan_out.bytes();
        self.deliveries.pool.release(fan_out.message);
        if let Some(token) = fan_out.token {
            self.deliveries.fan_outs.settled.push(token);
        }
        self.read_again(fan_out.paused);
        if !self
            .deliveries
            .fan_outs
            .has(FAN_OUTS_WAITED_FOR / 2, self.room() / 4)
        {
            for later in 0..self.deliveries.fan_outs.under_way.len() {
                let paused = self.deliveries.fan_outs.under_way[later].paused.take();
                self.read_again(paused);
            }
        }
    }

    /// Lets a publisher that waited, if there is one, go on.
    fn read_again(&mut self, paused: Option<ConnectionId>) {
        if let Some(id) = paused
            && let Some(connection) = self.connections.get_mut(id)
        {
            connection.pause(false);
            self.connections.relieve(self.now, id);
        }
    }

    /// Gives everybody everything.
    pub(crate) fn finish_fan_outs(&mut self) {
        while !self.deliveries.fan_outs.is_empty() {
            self.finish_oldest();
        }
    }

    /// The publisher of the message that was begun last: `token` is settled when everybody has it,
    /// and the publisher is not read before, if much is under way.
    pub(crate) fn note_publisher(&mut self, id: ConnectionId, token: Option<u64>) {
        let room = self.room();
        let fan_outs = &mut self.deliveries.fan_outs;
        let is_much = fan_outs.has(FAN_OUTS_WAITED_FOR, room / 2);
        let Some(fan_out) = fan_outs.under_way.back_mut() else {
            return;
        };
        fan_out.token = token;
        if is_much && let Some(connection) = self.connections.get_mut(id) {
            connection.pause(true);
            fan_out.paused = Some(id);
        }
    }
}

/// Turns that a message takes which has hardly too many receivers to go to all at once.
/// Doubled: a receiver costs a fiftieth more. Halved: a quiet client beside a large fan-out waits
/// twice as long. Measurements: `docs/notes/scheduler.md`.
const SLICES: usize = 64;
const BITS: usize = u64::BITS as usize;
