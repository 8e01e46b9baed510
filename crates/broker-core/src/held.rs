//! Stored before it leaves: packets that wait until what they promise is true.
//!
//! What waits stands in the queue of its connection: see [`crate::connection`]. SUBACK waits in
//! [`crate::mesh`], for other shards as well.
//!
//! Invariants:
//! - What waits becomes true without its client: by the store, or by mail. A client that is not
//!   read because too much waits for it is therefore read again.
//! - Requests are numbered, and an answer is good for all before it, so whether a promise is true
//!   is one comparison. A queue is looked at from its front when something it waits for comes true,
//!   and only as far as that goes.
//!
//! Deliberately absent: what the store does. It is the driver's.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use foldhash::fast::FixedState;
use unbroken_mqtt_proto::session::Start;
use unbroken_mqtt_proto::{Ack, Packet, PacketId, Properties, QoS, UnsubAck};

use crate::clients::Clients;
use crate::connection::{Answer, Connection, Held, HeldCopy, Leaving};
use crate::durability::{Record, WaitFor};
use crate::ids::{ConnectionId, HandOver, LogId, SessionId, ShardId, StoreId};
use crate::item::Item;
use crate::mail::Letter;
use crate::option_box::OptionBox;
use crate::output::{Output, StoreRequest};
use crate::position::{Frontier, Position};
use crate::session::{Delivery, Session};

/// What this shard has asked of the store and of others, and who waits for the answers.
#[derive(Debug)]
pub(crate) struct CommitGate {
    asked: StoreId,
    stored: StoreId,
    /// Sessions and wills that are over, and on disk may not be yet: who is told that it has no
    /// session waits for the last. In the order of the requests.
    pub(crate) ended: VecDeque<(StoreId, Arc<str>)>,
    /// What an earlier run has left is void: nobody is let in before.
    pub(crate) awake: StoreId,
    /// Who waits for the store, in the order of the requests.
    unstored: VecDeque<(StoreId, Waiter)>,
    /// What was asked of other shards, by token.
    unsettled: HashMap<u64, Unsettled, FixedState>,
    /// What this shard takes in.
    log: LogId,
    /// The last message of each log that this shard has routed, or has in hand.
    pub(crate) tails: Frontier,
    /// What was in each log when publishers moved to other ones, the oldest first. Few, or none.
    pub(crate) moves: Arc<[Frontier]>,
    /// Up to where each log is known to be on disk: its own by the store, others by mail.
    pub(crate) on_disk: Frontier,
    /// Of its own log, the request that is waited for and the last one, each with the number of
    /// its message.
    appended: [(StoreId, u64); 2],
    /// Bytes of messages that were appended since the disk was told how far sessions are.
    pub(crate) appended_bytes: u64,
    /// Why the store takes nothing any more: then requests are numbered and go nowhere.
    pub(crate) failed: Option<Arc<str>>,
}

/// Letters about one message, to shards that retain it or give it to members of groups.
#[derive(Debug, Default)]
struct Unsettled {
    /// So many are not answered.
    letters: u32,
    who: Option<Asker>,
    /// Where the message is, if it is in a log.
    position: Option<Position>,
    /// The message is noted as owed by groups until then.
    owed: Option<Position>,
}

/// Who waits until all of it is carried out.
#[derive(Debug)]
enum Asker {
    /// A packet in its queue.
    Connection(ConnectionId),
    /// It is the will of this client, and on disk until then.
    Will(Arc<str>),
    /// A shard that asked this one under a token of its own. This request is to be stored too.
    Shard(ShardId, u64, StoreId),
}

#[derive(Clone, Copy, Debug)]
enum Waiter {
    /// Something in its queue.
    Connection(ConnectionId),
    /// Its CONNACK, and whatever was written behind it.
    Gate(ConnectionId),
    /// A shard that sent a letter with this token, or this one, whose letter came back.
    Shard(ShardId, u64),
}

impl CommitGate {
    pub(crate) fn new(shard: ShardId) -> Self {
        Self {
            asked: StoreId::NOTHING,
            stored: StoreId::NOTHING,
            ended: VecDeque::new(),
            awake: StoreId::NOTHING,
            unstored: VecDeque::new(),
            unsettled: HashMap::with_hasher(FixedState::with_seed(0)),
            log: LogId(shard.0.into()),
            tails: Frontier::new(),
            moves: Arc::default(),
            on_disk: Frontier::new(),
            appended: [(StoreId::NOTHING, 0); 2],
            appended_bytes: 0,
            failed: None,
        }
    }

    /// The last message in the log of this shard.
    pub(crate) fn tail(&self) -> u64 {
        self.tails.of(self.log)
    }

    /// The last message in the log of this shard that is on disk, if nobody was in a hurry to know.
    pub(crate) fn tail_on_disk(&self) -> u64 {
        self.on_disk.of(self.log)
    }

    /// The next place in the log of this shard.
    pub(crate) fn append(&mut self) -> Position {
        let position = Position {
            log: self.log,
            number: self.tails.of(self.log) + 1,
        };
        self.tails.raise(position);
        position
    }

    /// Everything up to this request is on disk.
    pub(crate) fn stored(&self) -> StoreId {
        self.stored
    }

    pub(crate) fn ask(&mut self, outputs: &mut VecDeque<Output>, record: Record) -> StoreId {
        self.asked.0 += 1;
        let id = self.asked;
        if self.failed.is_none() {
            outputs.push_back(Output::Store(StoreRequest { id, record }));
        }
        id
    }

    /// The message at this place is asked to be stored.
    pub(crate) fn appended(&mut self, request: StoreId, position: Position) {
        self.appended[1] = (request, position.number);
    }

    /// The store has answered. One message is waited for at a time, so it is known in steps how far
    /// the log is on disk.
    fn note_on_disk(&mut self) {
        let [waited_for, last] = self.appended;
        if waited_for.0 > self.stored {
            return;
        }
        let known = if last.0 <= self.stored {
            last
        } else {
            waited_for
        };
        self.on_disk.raise(Position {
            log: self.log,
            number: known.1,
        });
        self.appended[0] = last;
    }

    pub(crate) fn is_met(&self, until: WaitFor) -> bool {
        until.stored <= self.stored
            && until
                .settled
                .is_none_or(|token| !self.unsettled.contains_key(&token))
    }

    /// A letter with this token is about to be sent, and will be answered: about this message.
    pub(crate) fn expect_settled(&mut self, token: u64, position: Option<Position>) {
        let unsettled = self.unsettled.entry(token).or_default();
        unsettled.letters += 1;
        unsettled.position = position.or(unsettled.position);
    }

    /// Messages that other shards have not answered for: the entry of a session that gets one late
    /// refers to the log.
    pub(crate) fn unsettled_positions(&self) -> impl Iterator<Item = Position> {
        self.unsettled.values().filter_map(|it| it.position)
    }

    fn wait(&mut self, request: StoreId, who: Waiter) {
        if self
            .unstored
            .back()
            .is_none_or(|(last, _)| *last <= request)
        {
            self.unstored.push_back((request, who));
            return;
        }
        // One that is asked again has an older number than the last.
        let at = self
            .unstored
            .partition_point(|(other, _)| *other <= request);
        self.unstored.insert(at, (request, who));
    }
}

impl Clients {
    /// Asks for a record of this session, if it is one that stays.
    pub(crate) fn ask_of(
        &mut self,
        session: SessionId,
        record: impl FnOnce(Arc<str>) -> Record,
    ) -> StoreId {
        match self.sessions.get_mut(session.index()) {
            Some(Session {
                client_id,
                asked,
                kept: Some(_),
                ..
            }) => {
                let record = record(Arc::clone(client_id));
                *asked = self.gate.ask(&mut self.outputs, record);
                *asked
            }
            _ => StoreId::NOTHING,
        }
    }

    /// What this session sent at QoS 2 under this id is over: on disk the id is free.
    pub(crate) fn ask_to_release(&mut self, session_id: SessionId, packet_id: PacketId) -> StoreId {
        if let Some(session) = self.sessions.get_mut(session_id.index()) {
            session.unanswered.clear_if(|unanswered| {
                unanswered.retain(|(id, _)| *id != packet_id);
                unanswered.is_empty()
            });
        }
        self.unreleased.release(session_id, packet_id);
        self.ask_of(session_id, |client_id| Record::Released {
            client_id,
            packet_id,
        })
    }

    /// The session ends, or will end with its connection: on disk it does so now.
    pub(crate) fn ask_to_forget(&mut self, session_id: SessionId) {
        let asked = self.ask_of(session_id, |client_id| Record::SessionEnded { client_id });
        if let Some(session) = self.sessions.get_mut(session_id.index())
            && session.kept.take().is_some()
        {
            session.will_on_disk = false;
            let client_id = Arc::clone(&session.client_id);
            self.gate.ended.push_back((asked, client_id));
        }
    }

    /// Lets nothing out to this connection, whose CONNACK is to be written next, before everything
    /// is stored that was asked for its session; where it is told that it had none, before that one
    /// has ended on disk.
    pub(crate) fn gate(&mut self, id: ConnectionId, session: SessionId, present: bool) {
        let Some(session) = self.sessions.get(session.index()) else {
            return;
        };
        let ended = self.gate.ended.back();
        // Where the store has failed nobody is let in of whom this is true.
        let ended = ended.filter(|_| !present && !self.store_failed());
        let ended = ended.map_or(StoreId::NOTHING, |(asked, _)| *asked);
        let gate = session.asked.max(ended).max(self.gate.awake);
        if gate > self.gate.stored
            && let Some(connection) = self.connections.get_mut(id)
        {
            connection.close_gate(gate);
            self.gate.wait(gate, Waiter::Gate(id));
        }
    }

    /// Sends an answer, or holds it until what it promises is true; later ones stand behind it.
    pub(crate) fn answer(&mut self, id: ConnectionId, until: WaitFor, what: Answer) {
        let Some(connection) = self.connections.get_mut(id) else {
            return;
        };
        if until == WaitFor::NOW && connection.holds_nothing() {
            return self.send_answer(id.index, &what);
        }
        self.hold(id, until, Leaving::Answer(what));
    }

    /// Answers in the place that was reserved.
    pub(crate) fn answer_reserved(
        &mut self,
        now: Instant,
        id: ConnectionId,
        until: WaitFor,
        what: Answer,
    ) {
        let Some(connection) = self.connections.get_mut(id) else {
            return;
        };
        match connection.answer_reserved(until, what) {
            Ok(is_first) => {
                self.await_until(id, until);
                if is_first {
                    self.release(now, id);
                }
            }
            Err(what) => {
                debug_assert!(false, "a place was reserved");
                self.answer(id, until, what);
            }
        }
    }

    /// Whether a message that the session is to have now stands behind what is held for its
    /// connection because it is its publisher.
    #[inline]
    pub(crate) fn is_behind_answers(
        connection: &Connection,
        session: &Session,
        publisher: Option<&Arc<str>>,
    ) -> bool {
        !connection.holds_nothing() && publisher.is_some_and(|from| *from == session.client_id)
    }

    /// Holds a message of QoS 0 behind what is held already.
    pub(crate) fn hold_copy(&mut self, id: ConnectionId, copy: HeldCopy) {
        self.hold(id, WaitFor::NOW, Leaving::Copy(Box::new(copy)));
    }

    fn hold(&mut self, id: ConnectionId, until: WaitFor, what: Leaving) {
        if let Some(connection) = self.connections.get_mut(id) {
            connection.hold(until, what);
            self.await_until(id, until);
        }
    }

    fn await_until(&mut self, id: ConnectionId, until: WaitFor) {
        if until.stored > StoreId::NOTHING {
            self.gate.wait(until.stored, Waiter::Connection(id));
        }
        if let Some(token) = until.settled {
            self.await_settled(token, Asker::Connection(id));
        }
    }

    fn await_settled(&mut self, token: u64, who: Asker) {
        if let Some(unsettled) = self.gate.unsettled.get_mut(&token) {
            unsettled.who = Some(who);
        }
    }

    pub(crate) fn ask(&mut self, record: Record) -> StoreId {
        self.gate.ask(&mut self.outputs, record)
    }

    /// A message that is marked has been routed: until the letters about it are answered, a restart
    /// is to give it in place of the groups that have not. That there are any is known only now; it
    /// is stored together with the message, like all that one input leads to.
    pub(crate) fn note_owed(&mut self, item: &mut Item<'_>) {
        let Some(position) = item.position() else {
            return;
        };
        let token = item.until.settled;
        let unsettled = token.and_then(|token| self.gate.unsettled.get_mut(&token));
        let Some(unsettled) = unsettled else {
            self.ask(Record::OwedNoMore { position });
            return;
        };
        unsettled.owed = Some(position);
        item.wait_for(self.ask(Record::Owed { position }));
    }

    /// A group has given a message that is owed to a session of this shard, or to nobody and by
    /// name.
    pub(crate) fn note_given(&mut self, group: &Arc<str>, item: &mut Item<'_>) {
        if let Some(position) = item.position() {
            let group = Arc::clone(group);
            item.wait_for(self.ask(Record::GivenBy { group, position }));
        }
    }

    /// What a session that has ended had from a group is a session's of this shard, or nobody's and
    /// named.
    pub(crate) fn note_handed_on(&mut self, hand_over: HandOver) {
        self.ask(Record::HandedOn { hand_over });
    }

    /// The will of this client is over when the letters with this token are answered.
    pub(crate) fn end_will_when_settled(&mut self, token: u64, client_id: Arc<str>) {
        self.await_settled(token, Asker::Will(client_id));
    }

    /// The will of this client was published, or will not be. On disk it may be another by now.
    /// Who is told that it is let in again waits for this: a restart must not publish a will that
    /// is not of its last connection.
    pub(crate) fn ask_will_over(&mut self, client_id: &Arc<str>) {
        let session = self.by_client_id.get(client_id);
        let session = session.and_then(|id| self.sessions.get_mut(id.index()));
        if session.as_ref().is_some_and(|session| session.will_on_disk) {
            return;
        }
        let client_id = Arc::clone(client_id);
        let record = Record::WillOver {
            client_id: Arc::clone(&client_id),
        };
        self.gate.ask(&mut self.outputs, record);
        self.will_is_over(&client_id);
    }

    /// What says so was asked for: nobody takes the client's place before it is stored.
    pub(crate) fn will_is_over(&mut self, client_id: &Arc<str>) {
        let asked = self.gate.asked;
        self.gate.ended.push_back((asked, Arc::clone(client_id)));
        let session = self.by_client_id.get(client_id);
        if let Some(session) = session.and_then(|id| self.sessions.get_mut(id.index())) {
            session.asked = asked;
        }
    }

    /// The will of this session stays on disk, since the store has failed, and is published at the
    /// restart: until then its client is not let in, also when the session has ended.
    pub(crate) fn leave_will(&mut self, id: SessionId) {
        if let Some(session) = self.sessions.get(id.index()) {
            let client_id = Arc::clone(&session.client_id);
            self.gate.ended.push_back((StoreId::NEVER, client_id));
        }
    }

    /// Gives a message the packet id that it will be sent with. It leaves when that is stored, and
    /// when the window has a place for it; one of QoS 1 stands behind those of QoS 2. The message
    /// comes back if there is no id; otherwise says what its being given is stored with, if that is
    /// asked for by itself.
    pub(crate) fn hold_publish(
        &mut self,
        id: ConnectionId,
        session_id: SessionId,
        qos: QoS,
        delivery: Delivery,
    ) -> Result<StoreId, (QoS, Delivery)> {
        let Some(session) = self.sessions.get_mut(session_id.index()) else {
            return Err((qos, delivery));
        };
        let message = Arc::clone(&delivery.message);
        // No subscription of the session finds it in the log.
        let is_shared = delivery.group.is_some() && delivery.entry == 0;
        let is_ahead = session.is_durable() && !session.outbound.window_open();
        let begun = if is_ahead {
            session.outbound.begin_ahead(qos, delivery)
        } else {
            session.outbound.begin_unsent(qos, delivery)
        };
        let packet_id = begun.map_err(|delivery| (qos, delivery))?;
        session.unsent += u32::from(!is_ahead);
        session.inflight_bytes += message.publication().cost();
        let mut until = WaitFor::NOW;
        if qos == QoS::ExactlyOnce || is_shared {
            until.stored = self.ask_to_send(session_id, packet_id, qos);
        } else {
            self.touch_sent(session_id, packet_id);
        }
        if !is_ahead {
            self.hold(id, until, Leaving::Publish(qos, packet_id));
        } else if let Some(session) = self.sessions.get_mut(session_id.index())
            && let Some(kept) = session.kept.as_deref_mut()
        {
            let ahead = kept.ahead.get_or_insert_default();
            ahead.push_back((packet_id, until.stored));
        }
        Ok(until.stored)
    }

    /// Gives the places that are free in the window to those that have their packet ids already.
    pub(crate) fn start_ahead(&mut self, id: ConnectionId, session_id: SessionId) {
        while let Some(session) = self.sessions.get_mut(session_id.index())
            && let Some(kept) = session.kept.as_deref_mut()
            && let Some(ahead) = kept.ahead.get_mut()
        {
            let Some(&(packet_id, stored)) = ahead.front() else {
                kept.ahead = OptionBox::default();
                return;
            };
            let start = session.outbound.start(packet_id);
            if start == Start::Wait {
                return;
            }
            ahead.pop_front();
            if start == Start::Send {
                session.unsent += 1;
                let until = if stored > self.gate.stored {
                    WaitFor::stored(stored)
                } else {
                    WaitFor::NOW
                };
                self.hold(id, until, Leaving::Publish(QoS::ExactlyOnce, packet_id));
            }
        }
    }

    /// What the answer to a QoS 2 message that came over an earlier connection still waits for.
    #[cold]
    pub(crate) fn still_unanswered(&mut self, session: SessionId, id: PacketId) -> WaitFor {
        let Some(session) = self.sessions.get_mut(session.index()) else {
            return WaitFor::NOW;
        };
        let Some(unanswered) = session.unanswered.get_mut() else {
            return WaitFor::NOW;
        };
        let Some(at) = unanswered.iter().position(|(of, _)| *of == id) else {
            return WaitFor::NOW;
        };
        let (_, mut until) = unanswered.swap_remove(at);
        session
            .unanswered
            .clear_if(|unanswered| unanswered.is_empty());
        if until.stored <= self.gate.stored {
            until.stored = StoreId::NOTHING;
        }
        until
            .settled
            .take_if(|token| !self.gate.unsettled.contains_key(token));
        until
    }

    /// Answers a letter of this shard when what it led to is true.
    pub(crate) fn settle_when(&mut self, now: Instant, until: WaitFor, shard: ShardId, token: u64) {
        match until.settled {
            Some(own) => self.await_settled(own, Asker::Shard(shard, token, until.stored)),
            None => self.settle_when_stored(now, until.stored, shard, token),
        }
    }

    fn settle_when_stored(&mut self, now: Instant, request: StoreId, shard: ShardId, token: u64) {
        if request > self.gate.stored {
            self.gate.wait(request, Waiter::Shard(shard, token));
        } else {
            self.settle(now, shard, token);
        }
    }

    /// Everything up to this request is on disk.
    pub(crate) fn handle_stored(&mut self, now: Instant, stored: StoreId) {
        debug_assert!(stored <= self.gate.asked, "nobody asked for {stored:?}");
        self.gate.stored = stored.max(self.gate.stored);
        self.gate.note_on_disk();
        let stored = self.gate.stored;
        while self
            .gate
            .ended
            .front()
            .is_some_and(|(asked, _)| *asked <= stored)
        {
            self.gate.ended.pop_front();
        }
        while let Some((request, who)) = self.gate.unstored.front().copied()
            && request <= self.gate.stored
        {
            self.gate.unstored.pop_front();
            match who {
                Waiter::Connection(id) => self.release(now, id),
                Waiter::Gate(id) => self.connections.relieve(now, id),
                Waiter::Shard(shard, token) => self.settle(now, shard, token),
            }
        }
    }

    /// A letter with this token is answered.
    pub(crate) fn handle_settled(&mut self, now: Instant, token: u64) {
        let Some(unsettled) = self.gate.unsettled.get_mut(&token) else {
            return;
        };
        unsettled.letters -= 1;
        if unsettled.letters > 0 {
            return;
        }
        let unsettled = self.gate.unsettled.remove(&token);
        if let Some(position) = unsettled.as_ref().and_then(|unsettled| unsettled.owed) {
            self.ask(Record::OwedNoMore { position });
        }
        match unsettled.and_then(|unsettled| unsettled.who) {
            Some(Asker::Connection(id)) => self.release(now, id),
            Some(Asker::Will(client_id)) => self.ask_will_over(&client_id),
            Some(Asker::Shard(shard, token, stored)) => {
                self.settle_when_stored(now, stored, shard, token);
            }
            None => {}
        }
    }

    /// Sends what waits for nothing any more, from the front, while the client takes it.
    pub(crate) fn release(&mut self, now: Instant, id: ConnectionId) {
        let output_bytes_max = self.limits.output_bytes_max as usize;
        let Some(connection) = self.connections.get(id) else {
            return;
        };
        if connection.holds_nothing() {
            return;
        }
        let was_read = self.may_consume(connection);
        let mut any = false;
        while let Some(connection) = self.connections.get_mut(id)
            && let Some(what) = connection.pop_ready(&self.gate, output_bytes_max)
        {
            any = true;
            match what {
                Leaving::Publish(qos, packet_id) => {
                    self.send_held_publish(now, id, qos, packet_id);
                }
                Leaving::Copy(copy) => self.send_held_copy(now, id, *copy),
                Leaving::Answer(answer) => self.send_answer(id.index, &answer),
                Leaving::Reserved => {}
            }
        }
        if any && !was_read {
            self.connections.relieve(now, id);
        }
    }

    /// A SUBACK is held no more.
    pub(crate) fn unburden(&mut self, now: Instant, id: ConnectionId, bytes: usize) {
        let output_bytes_max = self.limits.output_bytes_max as usize;
        if let Some(connection) = self.connections.get_mut(id)
            && connection.unburden(bytes, output_bytes_max)
        {
            self.connections.relieve(now, id);
        }
    }

    /// What a letter of this shard asked for is done and stored.
    pub(crate) fn settle(&mut self, now: Instant, shard: ShardId, token: u64) {
        if shard == self.shard {
            self.handle_settled(now, token);
        } else {
            self.mail(shard, Letter::Settled { token });
        }
    }

    fn send_answer(&mut self, index: u32, answer: &Answer) {
        let session = self.connections.at(index).and_then(Connection::session);
        if let Some(session) = session.and_then(|id| self.sessions.get_mut(id.index())) {
            match answer {
                Answer::PubAck(id, _) => session.inbound.acknowledged(*id),
                Answer::PubRec(id, reason) if reason.is_error() => {
                    session.inbound.acknowledged(*id);
                }
                Answer::PubRec(id, _) => session.inbound.received(*id),
                _ => {}
            }
        }
        // Under the id of what they answer [MQTT-2.2.1-5, MQTT311-2.3.1-6]
        // [MQTT-2.2.1-6, MQTT311-2.3.1-7], and without properties, so that none makes them too long
        // or is there although the client wants none [MQTT-3.1.2-29]:
        // [MQTT-3.4.2-2, MQTT-3.4.2-3, MQTT-3.5.2-2, MQTT-3.5.2-3]
        // [MQTT-3.6.2-2, MQTT-3.6.2-3, MQTT-3.7.2-2, MQTT-3.7.2-3]
        // [MQTT-3.11.2-1, MQTT-3.11.2-2]
        let packet = match answer {
            Answer::PubAck(id, reason) => Packet::PubAck(Ack::new(*id, *reason)),
            Answer::PubRec(id, reason) => Packet::PubRec(Ack::new(*id, *reason)),
            Answer::PubRel(id, reason) => Packet::PubRel(Ack::new(*id, *reason)),
            Answer::PubComp(id, reason) => Packet::PubComp(Ack::new(*id, *reason)),
            Answer::UnsubAck(id, codes) => Packet::UnsubAck(UnsubAck {
                packet_id: *id,
                properties: Properties::EMPTY,
                reasons: codes,
            }),
        };
        self.send(index, &packet);
    }
}

/// The connection of this session has gone with packets that had to wait. Answers the messages of
/// QoS 0 among them.
pub(crate) fn keep_unanswered(
    session: &mut Session,
    held: impl IntoIterator<Item = Held>,
) -> Vec<HeldCopy> {
    let mut copies = Vec::new();
    for Held { until, what } in held {
        match what {
            Leaving::Answer(Answer::PubRec(id, reason)) if reason.is_error() => {
                session.inbound.acknowledged(id);
            }
            Leaving::Answer(Answer::PubRec(id, _)) => {
                session.unanswered.get_or_insert_default().push((id, until));
            }
            Leaving::Copy(copy) => copies.push(*copy),
            // What other answers are for comes again, as new, or is sent again by what is in
            // flight; of messages the session knows.
            Leaving::Answer(_) | Leaving::Publish(..) | Leaving::Reserved => {}
        }
    }
    session.unsent = 0;
    // They are sent with what is sent again.
    if let Some(kept) = session.kept.as_deref_mut() {
        kept.ahead = OptionBox::default();
    }
    copies
}
