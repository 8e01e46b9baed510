//! Retained messages in the shard: kept on the shard their topic hashes to, asked for slice by
//! slice.
//!
//! A subscription walks through the retained messages that match it, shard by shard and slice by
//! slice, as fast as its connection takes them. While it walks, live messages go their own way; a
//! retained copy older than a live message that the session was already given on that topic is left
//! out.
//!
//! Invariant: a retained message has no position in a log, so a session that is given it needs
//! none.
//!
//! Invariant: a retained QoS 1 or 2 message is taken in when there is room for it, and refused
//! otherwise. Its acknowledgement leaves after the topic's shard has it, so that a client that
//! learns of the acknowledgement and then subscribes anywhere gets it.

use std::ops::Range;
use std::sync::{Arc, Weak};
use std::time::Instant;

use unbroken_mqtt_proto::QoS;
use unbroken_mqtt_proto::topic::{TopicFilter, TopicName};

use crate::audit::verdict::finds_verdict;
use crate::audit::watch::lane_answer;
use crate::connection::RetainAnswer;
use crate::delivery::{Item, Storing};
use crate::durability::{Record, WaitFor, Waiter};
use crate::ids::{ConnectionId, Errand, SessionId, ShardId, StoreId};
use crate::mesh::{MeshMessage, RetainMessage};
use crate::message::{Message, Publication};
use crate::placement;
use crate::reason::DropReason;
use crate::retained::{
    Claim, Kept, NextStep, QueryStart, Question, RetainedChange, RetainedCopy, Slice,
};
use crate::routing::{Grant, Terms};
use crate::session::{Identifiers, Session};
use crate::settings::ShardOptions;
use crate::shard::Shard;
use crate::shares::{Full, Reserved, Taker};
use crate::timers::Timer;

impl Shard {
    /// Keeps (empty payload: forgets) the message of its topic. At QoS 1 and 2 its acknowledgement
    /// waits for that.
    pub(crate) fn retain(&mut self, now: Instant, item: &mut Item<'_>, qos: QoS) {
        let owner = placement::of_topic(item.publication.topic, self.options.shards);
        // It outlives its place in the log, so that with a place has a copy of its own.
        let may_be_stored = self.options.settings.durable && item.publication.qos > QoS::AtMostOnce;
        let deliveries = &mut self.deliveries;
        let message = if may_be_stored {
            item.copy(deliveries)
        } else {
            item.message(deliveries)
        };
        let (address, reserved) = (item.address, item.reserved.take());
        if owner == self.options.id {
            let kept = Kept { message, address };
            return item.wait_for(self.set_retained(now, kept, reserved, None));
        }
        let token = (qos > QoS::AtMostOnce).then(|| self.expect_settled(item));
        let errand = match item.storing {
            Storing::IfWanted(Some(marker)) => marker.retained,
            _ => None,
        };
        let message = RetainMessage::Keep {
            message,
            token,
            errand,
            address,
            reserved,
        };
        self.mesh.send(owner, MeshMessage::Retain(message));
    }

    /// Room for a retained message of QoS 1 or 2 that a client publishes: what its acknowledgement
    /// promises is kept. While there is room for everybody any shard knows; otherwise the shard of
    /// the topic does, which also knows what the message replaces.
    pub(crate) fn room_to_retain(
        &mut self,
        id: ConnectionId,
        publication: &Publication<'_>,
        publisher: &Arc<str>,
    ) -> RetainRoom {
        let (text, bytes) = (publication.topic, publication.cost());
        let (Some(connection), Ok(topic)) = (self.connections.get_mut(id), TopicName::parse(text))
        else {
            return RetainRoom::Known(Ok(None));
        };
        let (answered, address) = (connection.take_retain_answer(), connection.network());
        let client = Some(publisher);
        if let Some(answered) = answered {
            if *answered.topic == *text {
                return RetainRoom::Known(answered.answer.map(Some));
            }
            self.release_reserved(&answered);
        }
        let limits = &self.options.limits;
        if self.keeps_retained(text) {
            let taker = Taker { client, address };
            let reserved = self.retained.reserve(topic, bytes, taker, limits);
            return RetainRoom::Known(reserved.map(Some));
        }
        if let Some(reserved) = self.retained.reserve_for_any(bytes, limits) {
            return RetainRoom::Known(Ok(Some(reserved)));
        }
        self.ask_for_room(id, publication, publisher);
        RetainRoom::Asked
    }

    /// Asks the shard of its topic whether a message may be retained. What the client has sent is
    /// not looked at before that has answered.
    #[cold]
    fn ask_for_room(
        &mut self,
        id: ConnectionId,
        publication: &Publication<'_>,
        publisher: &Arc<str>,
    ) {
        let Some(connection) = self.connections.get_mut(id) else {
            return;
        };
        connection.pause(true);
        let message = RetainMessage::Asked {
            connection: id,
            topic: publication.topic.into(),
            bytes: publication.cost(),
            publisher: Arc::clone(publisher),
            address: connection.network(),
        };
        let owner = placement::of_topic(publication.topic, self.options.shards);
        self.mesh.send(owner, MeshMessage::Retain(message));
    }

    /// Another shard says something about a retained message.
    pub(crate) fn handle_retain_message(
        &mut self,
        now: Instant,
        from: ShardId,
        message: RetainMessage,
    ) {
        match message {
            RetainMessage::Keep {
                message,
                token,
                errand,
                address,
                reserved,
            } => {
                let kept = Kept { message, address };
                self.handle_retain(now, (from, token), kept, reserved, errand);
            }
            RetainMessage::Asked {
                connection,
                topic,
                bytes,
                publisher,
                address,
            } => {
                let client = Some(&publisher);
                let taker = Taker { client, address };
                self.handle_retain_asked((from, connection), topic, bytes, taker);
            }
            RetainMessage::Answered {
                connection,
                topic,
                answer,
            } => self.handle_retain_answered(now, connection, RetainAnswer { topic, answer }),
        }
    }

    fn handle_retain_asked(
        &mut self,
        (from, connection): (ShardId, ConnectionId),
        topic: Box<str>,
        bytes: u64,
        taker: Taker<'_>,
    ) {
        let limits = &self.options.limits;
        let answer = match TopicName::parse(&topic) {
            Ok(name) => self.retained.reserve(name, bytes, taker, limits),
            Err(_) => Ok(Reserved::default()),
        };
        let message = RetainMessage::Answered {
            connection,
            topic,
            answer,
        };
        self.mesh.send(from, MeshMessage::Retain(message));
    }

    fn handle_retain_answered(&mut self, now: Instant, id: ConnectionId, answered: RetainAnswer) {
        let Some(connection) = self.connections.get_mut(id) else {
            return self.release_reserved(&answered);
        };
        connection.take_in_answer(answered);
        // What it has sent is looked at when the driver writes to it.
        self.connections.relieve(now, id);
    }

    /// The message does not come for which there is room.
    pub(crate) fn release_reserved(&mut self, answered: &RetainAnswer) {
        if let Ok(reserved) = answered.answer {
            self.retained.release(reserved);
        }
    }

    fn handle_retain(
        &mut self,
        now: Instant,
        (from, token): (ShardId, Option<u64>),
        kept: Kept,
        reserved: Option<Reserved>,
        errand: Option<Errand>,
    ) {
        let stored = self.set_retained(now, kept, reserved, errand);
        if let Some(token) = token {
            let until = WaitFor::stored(stored);
            let waiter = Waiter::Shard(from, token);
            self.wake_when(now, until, waiter);
        }
    }

    /// Answers the request that this shard's part in it is stored with.
    fn set_retained(
        &mut self,
        now: Instant,
        kept: Kept,
        reserved: Option<Reserved>,
        errand: Option<Errand>,
    ) -> StoreId {
        let message = Arc::clone(&kept.message);
        let Ok(topic) = TopicName::parse(message.topic()) else {
            return StoreId::NOTHING;
        };
        let refused = message.publisher().and_then(|_| self.store_refuses());
        if refused == Some(DropReason::StoreFailed) {
            if let Some(reserved) = reserved {
                self.retained.release(reserved);
            }
            // What is on disk stays, so that is what is shown. The publisher is never answered.
            self.drop_of_publisher(now, &Item::kept(&message), DropReason::StoreFailed);
            return self.store_retained(&message, |message| Record::Retained { message, errand });
        }
        let claim = match (reserved, refused) {
            (Some(reserved), _) => Claim::Reserved(reserved),
            (None, Some(why)) => Claim::Refused(why),
            (None, None) => Claim::IfRoom,
        };
        if self.keep_retained_message(now, topic, kept, claim) {
            message.end_count();
            self.store_retained(&message, |message| Record::Retained { message, errand })
        } else {
            self.store_unretained(&message, errand)
        }
    }

    /// Keeps a message that is on disk already, whatever the limits are now: it was acknowledged,
    /// and nothing new is kept before there is room again.
    pub(crate) fn keep_retained(&mut self, now: Instant, message: Arc<Message>) {
        let text = Arc::clone(&message);
        if let Ok(topic) = TopicName::parse(text.topic()) {
            let address = None;
            let kept = Kept { message, address };
            let claim = Claim::Reserved(Reserved::default());
            self.keep_retained_message(now, topic, kept, claim);
        }
    }

    /// Keeps, forgets or refuses the message of a topic. Answers whether it is retained now.
    fn keep_retained_message(
        &mut self,
        now: Instant,
        topic: TopicName<'_>,
        kept: Kept,
        claim: Claim,
    ) -> bool {
        let (message, address) = (Arc::clone(&kept.message), kept.address);
        let Self {
            retained,
            options: ShardOptions { limits, .. },
            telemetry,
            ..
        } = self;
        match retained.set(topic, kept, claim, limits) {
            RetainedChange::Set { old } => {
                let publication = message.publication();
                telemetry.retained(publication.cost(), old);
                if let Some(at) = publication.expires {
                    let timer = Timer::Retained(Arc::downgrade(&message));
                    self.timers.set(at.max(now), timer);
                }
                true
            }
            RetainedChange::Removed { old, refused, full } => {
                if let Some(size) = old {
                    telemetry.unretained(size);
                }
                if let Some(why) = refused {
                    let share = full.and_then(|full| full.share(address));
                    self.drop_at_share(now, &Item::kept(&message), why, share.as_ref());
                }
                false
            }
        }
    }

    pub(crate) fn store_unretained(
        &mut self,
        message: &Arc<Message>,
        errand: Option<Errand>,
    ) -> StoreId {
        self.store_retained(message, |message| Record::Unretained {
            topic: message.topic().into(),
            errand,
        })
    }

    /// Asks for what became of a client's retained message. The broker's own are made anew.
    fn store_retained(
        &mut self,
        message: &Arc<Message>,
        record: impl FnOnce(Arc<Message>) -> Record,
    ) -> StoreId {
        if !self.options.settings.durable || message.publisher().is_none() {
            return StoreId::NOTHING;
        }
        self.gate.ask(record(Arc::clone(message)))
    }

    pub(crate) fn expire_retained(&mut self, now: Instant, message: &Weak<Message>) {
        let Some(message) = message.upgrade() else {
            return;
        };
        if self.retained.expire(&message) {
            let size = message.publication().cost();
            self.telemetry.unretained(size);
            self.store_unretained(&message, None);
            self.drop_of_publisher(now, &Item::kept(&message), DropReason::Expired);
        }
    }

    /// An operator removes a retained message: it is as by one that is empty, but no subscriber is
    /// sent that.
    pub(crate) fn forget_retained(&mut self, topic: &str) {
        let Ok(name) = TopicName::parse(topic) else {
            return;
        };
        let kept = self.retained.get(name);
        // The broker's own are made anew; they are not the operator's to remove.
        if !self.keeps_retained(topic) || kept.is_some_and(|kept| kept.publisher().is_none()) {
            return;
        }
        if let Some(size) = self.retained.remove(name) {
            self.telemetry.unretained(size);
        }
        // One that the limits did not let in at the start is on disk all the same.
        if self.options.settings.durable {
            let (topic, errand) = (topic.into(), None);
            self.gate.ask(Record::Unretained { topic, errand });
        }
    }

    /// Notes that a new subscription is to be sent what is retained for it, once its SUBACK has
    /// left.
    pub(crate) fn add_query(
        &mut self,
        now: Instant,
        session: SessionId,
        filter: TopicFilter<'_>,
        grant: Grant,
        waits: bool,
    ) {
        let shards = if filter.has_wildcard() {
            (ShardId(0), ShardId(self.options.shards - 1))
        } else {
            let owner = placement::of_topic(filter.as_str(), self.options.shards);
            (owner, owner)
        };
        let has_verdict = self.options.settings.sys_interval.is_some();
        let start = QueryStart {
            token: self.numbers.issue(),
            filter: filter.as_str().into(),
            grant,
            shards,
            found: lane_answer(now, filter.as_str()),
            waits,
            waits_for_verdict: has_verdict && finds_verdict(filter.as_str()),
        };
        if self.sessions.get(session).is_some() {
            let most = self.options.limits.subscriptions_per_session_max as usize;
            self.retained.add_query(session, start, most);
        }
    }

    /// Begins the queries with these tokens: their SUBACK has left.
    pub(crate) fn begin_queries(&mut self, now: Instant, session: SessionId, tokens: Range<u64>) {
        if tokens.is_empty() || self.sessions.get(session).is_none() {
            return;
        }
        for token in self.retained.begin_queries(session, tokens) {
            self.ask_for_verdict(now, session, token);
        }
        self.pump(now, session);
    }

    /// Goes on with the session's first query while there is room for what it finds. After some
    /// slices the others have their turn, and this goes on in the next one.
    pub(crate) fn pump_retained(&mut self, now: Instant, session_id: SessionId) {
        // Of that, copies that were found may be older.
        self.deliverer(now).catch_up(session_id);
        let session = self.sessions.get(session_id);
        if session.is_none_or(|session| !session.is_connected()) {
            return; // what is found now may be replaced before it comes back
        }
        for _ in 0..RETAINED_SLICES_A_TURN {
            let goes_on = match self.retained.next_step(session_id) {
                NextStep::Wait => false,
                NextStep::Ask if self.must_query_later(now, session_id) => false,
                NextStep::Ask => self.ask_for_slice(session_id) && self.send_found(now, session_id),
                NextStep::Send => self.send_found(now, session_id),
            };
            if !goes_on {
                return;
            }
        }
        self.query_later(now, session_id);
    }

    /// Asks for the next slice of the first query. Answers whether it is here at once.
    fn ask_for_slice(&mut self, session: SessionId) -> bool {
        let token = self.numbers.issue();
        let Some(question) = self.retained.ask(session, token) else {
            return false;
        };
        let Question {
            shard,
            filter,
            after,
        } = question;
        if shard == self.options.id {
            let retained = &mut self.retained;
            let slice = retained.slice(&filter, after.as_deref());
            retained.take_answer(session, token, slice);
            return true;
        }
        let message = MeshMessage::RetainedQuery {
            token,
            session,
            filter: (*filter).into(),
            after,
        };
        self.mesh.send(shard, message);
        false
    }

    /// Whether this message would go straight out rather than fill the queue.
    fn room_for_retained(&self, session_id: SessionId, qos: QoS) -> bool {
        let Some(session) = self.sessions.get(session_id) else {
            return false;
        };
        let connection = session
            .connection()
            .and_then(|index| self.connections.at(index));
        let window = qos == QoS::AtMostOnce
            || (session.outbox.is_empty()
                && !session.is_behind()
                && session.outbox.window_open(&self.options.limits)
                && !session.outbox.resending());
        let output_max = self.options.limits.output_bytes_max as usize;
        window && connection.is_some_and(|connection| connection.unwritten() <= output_max / 2)
    }

    pub(crate) fn handle_retained_query(
        &mut self,
        from: ShardId,
        token: u64,
        session: SessionId,
        filter: &str,
        after: Option<&str>,
    ) {
        let Slice { messages, next } = self.retained.slice(filter, after);
        self.mesh.send(
            from,
            MeshMessage::RetainedAnswer {
                token,
                session,
                messages,
                next,
            },
        );
    }

    /// Sends what the first query has found, message by message while there is room, and moves it
    /// on when that was all. Answers whether there was room for all of it.
    fn send_found(&mut self, now: Instant, session_id: SessionId) -> bool {
        while let Some(qos) = self.retained.next_qos(session_id) {
            if !self.room_for_retained(session_id, qos) {
                return false;
            }
            let Some(copy) = self.retained.take_copy(session_id) else {
                return false;
            };
            let RetainedCopy { message, grant, .. } = copy;
            let session = self.sessions.get(session_id);
            // [MQTT-3.8.3-3]
            let is_own = |session: &Session| message.publisher() == Some(&session.client_id);
            let is_left_out = grant.no_local && session.is_some_and(is_own);
            let is_allowed = self.access.may_receive(session_id, message.topic());
            if is_allowed
                && !copy.is_overtaken
                && !is_left_out
                && !message.publication().expired(now)
            {
                self.send_retained(now, session_id, grant, &message);
            }
            self.deliveries.release(message);
        }
        let done = self.retained.finish_slice(session_id);
        if let Some(filter) = done {
            self.sessions.end_scan(session_id, &filter);
        }
        true
    }

    fn send_retained(
        &mut self,
        now: Instant,
        session_id: SessionId,
        grant: Grant,
        message: &Arc<Message>,
    ) {
        let mut item = Item::kept(message);
        item.is_retained_copy = true;
        // Its receipt is about those it was routed to.
        if let Some(mark) = &mut item.publication.mark {
            mark.tracked = false;
        }
        self.deliverer(now).begin_item(false);
        // [MQTT-3.3.4-5]
        let identifiers: Identifiers = grant.identifier.into_iter().collect();
        let terms = Terms {
            qos: grant.qos,
            retain: true, // [MQTT311-3.3.1-8]
            identifiers: &identifiers,
            group: None,
            is_denied: false,
        };
        self.deliverer(now).deliver(session_id, terms, &mut item);
        item.finish(&mut self.deliveries);
    }
}

/// Whether there is room for a retained message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RetainRoom {
    /// It has this, if it needs any, or there is none.
    Known(Result<Option<Reserved>, Full>),
    /// The shard of its topic is asked, and the packet is looked at again.
    Asked,
}

/// How many slices one session's query may take at a time.
const RETAINED_SLICES_A_TURN: usize = 4;
