//! The way a message takes to one session, and what waits in it.
//!
//! HOT: `deliver` runs once for each receiver of each message.
//!
//! ```text
//! deliver(session, terms, item):
//!   qos = min(published, granted)                                   [MQTT-3.8.4-8]
//!   qos 0:  connected and room in its output? append : drop, named
//!   qos 1+: connected, nothing queued before it, window open, room? take an id, append : queue
//!   either: held instead, behind the answers that are held for its own publisher
//! ```
//!
//! - A [`Message`](crate::message::Message) is made only when somebody must remember it (QoS 1 and
//!   2, retain, another shard unless it goes in a [bundle](crate::mesh)): QoS 0 to receivers here
//!   goes from the publisher's bytes to the receivers' buffers.
//! - The window ([MQTT-3.3.4-9]) and the output limit hold back QoS 1 and 2 into the queue, never
//!   QoS 0 or acknowledgements [MQTT-3.3.4-10].

use std::sync::Arc;
use std::time::Instant;

use unbroken_mqtt_proto::session::Resend;
use unbroken_mqtt_proto::{Ack, Packet, PacketId, QoS, ReasonCode};

use crate::access::may_leave;
use crate::audit::account::Fate;
use crate::audit::receipt::News;
use crate::clients::Clients;
use crate::connection::{Answer, Connection, HeldCopy, Leaving, Writer};
use crate::copy::{ReceiverCopy, write_publish};
use crate::durability::WaitFor;
use crate::frames::Frames;
use crate::ids::{ConnectionId, SessionId};
use crate::item::{Item, note_given, terms_of_copy};
use crate::limits::{LIVE_BYTES_MAX, LIVE_MESSAGES_MAX};
use crate::message::Publication;
use crate::reason::DropReason;
use crate::routing::Terms;
use crate::session::{Delivery, Rules};

impl Clients {
    /// Begins the delivery of another message: what was encoded for the last one is forgotten.
    /// `shared`: several may receive it.
    #[inline]
    pub(crate) fn begin_item(&mut self, shared: bool) {
        self.frames.begin(shared);
    }

    /// Brings a message to one session.
    pub(crate) fn deliver(
        &mut self,
        now: Instant,
        session_id: SessionId,
        terms: Terms<'_>,
        item: &mut Item<'_>,
    ) {
        self.catch_up(now, session_id);
        if terms.is_denied {
            return self.deliver_denied(now, session_id, terms, item);
        }
        self.give(now, session_id, terms, item);
    }

    /// The same, after what was on its way to the session.
    pub(crate) fn give(
        &mut self,
        now: Instant,
        session_id: SessionId,
        terms: Terms<'_>,
        item: &mut Item<'_>,
    ) {
        let qos = terms.qos.min(item.publication.qos); // [MQTT-3.8.4-8, MQTT311-3.8.4-6]
        if qos == QoS::AtMostOnce {
            return self.give_qos0(now, session_id, terms, item);
        }
        let Some(session) = self.sessions.get_mut(session_id.index()) else {
            return;
        };
        let writer = self.connections.writer_of(session.connection);
        // Nothing overtakes what waits already. [MQTT-4.6.0-5, MQTT311-4.6.0-6]
        // [MQTT-4.6.0-6, MQTT311-4.6.0-5]
        if let Some(mut writer) = writer
            && !session.is_behind()
            && session.queue.is_empty()
            && session.window_open(&self.limits)
            && writer.unwritten() < self.limits.output_bytes_max as usize
        {
            if session.holds(qos) || session.is_behind_answers(&writer, item.publisher) {
                let id = writer.id();
                note_given(&mut self.retained, session_id, item, qos);
                if session.is_durable() {
                    item.store(&mut self.pool, &mut self.gate);
                }
                return self.deliver_held(id, session_id, qos, terms, item);
            }
            let copy = ReceiverCopy {
                publication: &item.publication,
                qos,
                retain: terms.retain,
                identifiers: terms.identifiers,
            };
            let start = match write_publish(&mut self.frames, &mut writer, copy, now) {
                Ok(start) => start,
                Err(reason) => {
                    return self.refuse_entry(now, session_id, terms, item, reason);
                }
            };
            note_given(&mut self.retained, session_id, item, qos);
            let durable = session.is_durable();
            if durable {
                item.store(&mut self.pool, &mut self.gate);
            }
            let mut delivery = item.delivery(terms, &mut self.pool);
            session.accept(self.audit.topics(), self.telemetry.audit(), &mut delivery);
            let number = delivery.number;
            self.telemetry.accepted();
            match session.outbound.begin(qos, delivery) {
                Ok(packet_id) => {
                    writer.finish_publish(start, packet_id, false);
                    session.inflight_bytes += item.publication.cost();
                    if durable && terms.group.is_some() {
                        // No subscription of the session finds it in the log.
                        let kept = session.persist_sent(&mut self.gate, packet_id, qos);
                        item.wait_for(kept);
                    } else if durable {
                        session.touch_sent(session_id, packet_id, &mut self.unsaved);
                    }
                    self.settle_delivery(session_id, number, Fate::Sent);
                    self.sent(&item.publication);
                }
                Err(delivery) => {
                    // Not reached while `window_open` tells the truth; the message is kept either
                    // way.
                    writer.take_back(start);
                    session.queue_bytes += item.publication.cost();
                    session.queue.push_back((qos, delivery));
                    self.telemetry.queued(item.publication.cost());
                }
            }
            return;
        }
        self.enqueue(now, session_id, qos, terms, item);
    }

    #[inline]
    fn give_qos0(
        &mut self,
        now: Instant,
        session_id: SessionId,
        terms: Terms<'_>,
        item: &mut Item<'_>,
    ) {
        let qos = QoS::AtMostOnce;
        let Some(session) = self.sessions.get_mut(session_id.index()) else {
            return;
        };
        let writer = self.connections.writer_of(session.connection);
        let outcome = match writer {
            // What the broker says at QoS 0 is for who is there.
            None if item.is_own_word() => return,
            None => Err(DropReason::NotConnected),
            Some(writer) if writer.unwritten() >= self.limits.output_bytes_max as usize => {
                Err(DropReason::SlowReceiver)
            }
            Some(writer)
                if !item.was_held && session.is_behind_answers(&writer, item.publisher) =>
            {
                return self.deliver_copy_held(now, session_id, terms, item);
            }
            Some(mut writer) => {
                let copy = ReceiverCopy {
                    publication: &item.publication,
                    qos,
                    retain: terms.retain,
                    identifiers: terms.identifiers,
                };
                write_publish(&mut self.frames, &mut writer, copy, now)
                    .inspect(|_| writer.mark_dirty())
            }
        };
        match outcome {
            Ok(_) => {
                note_given(&mut self.retained, session_id, item, qos);
                let totals = self.telemetry.audit();
                let (topics, findings) = self.audit.topics_and_findings();
                let topic = item.publication.topic;
                let counting = session.sent_qos0(topics, topic, totals, findings);
                item.news_of_copy(terms, counting, News::Sent, findings);
                self.sent(&item.publication);
            }
            Err(reason) => self.refuse_entry(now, session_id, terms, item, reason),
        }
    }

    /// Holds a message of QoS 0 for its own publisher, behind what is held for that already.
    #[cold]
    fn deliver_copy_held(
        &mut self,
        now: Instant,
        session_id: SessionId,
        terms: Terms<'_>,
        item: &mut Item<'_>,
    ) {
        let limit = self.limits.output_bytes_max as usize;
        let id = self.connection_of(session_id);
        let connection = id.and_then(|id| self.connections.get(id));
        let has_room = connection.is_some_and(|connection| connection.held_bytes() < limit);
        let Some(id) = id.filter(|_| has_room) else {
            return self.refuse_entry(now, session_id, terms, item, DropReason::SlowReceiver);
        };
        note_given(&mut self.retained, session_id, item, QoS::AtMostOnce);
        let what = Leaving::Copy(Box::new(item.held_copy(terms, &mut self.pool)));
        self.connections
            .hold(&mut self.gate, id, WaitFor::NOW, what);
    }

    /// A message of QoS 0 leaves that was held.
    pub(crate) fn send_held_copy(&mut self, now: Instant, id: ConnectionId, copy: HeldCopy) {
        let connection = self.connections.get(id);
        if let Some(session_id) = connection.and_then(Connection::session) {
            let (terms, mut item) = (terms_of_copy(&copy), Item::kept(&copy.message));
            let access = &mut self.access;
            if let Err(why) = may_leave(access, session_id, &item.publication, true, now) {
                self.refuse_entry(now, session_id, terms, &item, why);
            } else {
                item.was_held = true;
                self.frames.begin(false);
                self.give(now, session_id, terms, &mut item);
            }
        }
        self.pool.release(copy.message);
    }

    /// Puts a message behind those that wait already: a session also gathers them while its client
    /// is away [MQTT-4.5.0-1, MQTT311-4.5.0-1, MQTT311-3.1.2-5].
    fn enqueue(
        &mut self,
        now: Instant,
        session_id: SessionId,
        qos: QoS,
        terms: Terms<'_>,
        item: &mut Item<'_>,
    ) {
        let Some(session) = self.sessions.get_mut(session_id.index()) else {
            return;
        };
        if self.stopping && !session.is_durable() {
            return self.refuse_entry(now, session_id, terms, item, DropReason::SessionEnded);
        }
        let cost = item.publication.cost();
        let crowded = session.queue.len() >= LIVE_MESSAGES_MAX
            || session.queue_bytes + cost > LIVE_BYTES_MAX && !session.queue.is_empty();
        if session.is_durable()
            && (crowded || session.is_behind())
            && self.leave_on_disk(now, session_id, terms, item)
        {
            return;
        }
        let Some(session) = self.sessions.get_mut(session_id.index()) else {
            return;
        };
        let full = session.queue.len() >= self.limits.queue_messages_max as usize
            || session.queue_bytes + cost > self.limits.queue_bytes_max
                && !session.queue.is_empty();
        let durable = session.is_durable();
        let waiting = session.queue.len() as u64;
        // What a group gives there has been taken from a member that ended, or nobody has room.
        let (has, has_bytes) = match terms.group {
            Some(_) => (0, 0),
            None => (waiting, session.queue_bytes),
        };
        let keeps_beyond =
            durable && item.publisher.is_some() && self.limits.keeps_beyond(has, has_bytes);
        if full && !keeps_beyond {
            return self.refuse_entry(now, session_id, terms, item, DropReason::QueueFull);
        }
        if durable {
            item.store(&mut self.pool, &mut self.gate);
        }
        session.queue_bytes += cost;
        let mut delivery = item.delivery(terms, &mut self.pool);
        session.accept(self.audit.topics(), self.telemetry.audit(), &mut delivery);
        let behind = session.is_behind();
        if durable && (behind || terms.group.is_some()) {
            // No subscription of the session finds it in the log.
            let kept = session.persist_waiting(&mut self.gate, qos, &mut delivery);
            item.wait_for(kept);
        }
        note_given(&mut self.retained, session_id, item, qos);
        session.queue.push_back((qos, delivery));
        self.telemetry.accepted();
        self.telemetry.queued(cost);
        self.note_fill(session_id);
    }

    /// Gives a message to a session, to leave when its packet id is stored, if the session stays,
    /// and behind what is held already.
    fn deliver_held(
        &mut self,
        id: ConnectionId,
        session_id: SessionId,
        qos: QoS,
        terms: Terms<'_>,
        item: &mut Item<'_>,
    ) {
        let mut delivery = item.delivery(terms, &mut self.pool);
        if let Some(session) = self.sessions.get_mut(session_id.index()) {
            session.accept(self.audit.topics(), self.telemetry.audit(), &mut delivery);
        }
        let begun = self.hold_publish(id, session_id, qos, delivery);
        self.telemetry.accepted();
        match begun {
            Ok(given) if terms.group.is_some() => item.wait_for(given),
            Ok(_) => {}
            Err(waiting) => {
                let Some(session) = self.sessions.get_mut(session_id.index()) else {
                    return;
                };
                // Not reached while `window_open` tells the truth; the message is kept either way.
                let cost = item.publication.cost();
                session.queue_bytes += cost;
                session.queue.push_back(waiting);
                self.telemetry.queued(cost);
            }
        }
    }

    /// A message leaves that was held until its packet id was stored.
    pub(crate) fn send_held_publish(
        &mut self,
        now: Instant,
        id: ConnectionId,
        qos: QoS,
        packet_id: PacketId,
    ) {
        let Some(mut writer) = self.connections.writer(id.index) else {
            return;
        };
        let Some(session_id) = writer.session() else {
            return;
        };
        let Some(session) = self.sessions.get_mut(session_id.index()) else {
            return;
        };
        session.unsent -= 1;
        let Some(delivery) = session.outbound.mark_sent(packet_id) else {
            return;
        };
        let (number, again) = (delivery.number, delivery.again);
        let message = Arc::clone(&delivery.message);
        let publication = message.publication();
        let start = may_leave(&mut self.access, session_id, &publication, true, now)
            .and_then(|()| write_delivery(&mut self.frames, &mut writer, delivery, qos, now));
        match start {
            Ok(start) => {
                writer.finish_publish(start, packet_id, again);
                self.settle_delivery(session_id, number, Fate::Sent);
                self.sent(&publication);
            }
            Err(reason) => {
                self.give_up(now, session_id, packet_id, false, reason);
                // Its place in the window is free: as after a write, more may be sent.
                self.connections.mark_dirty(id);
            }
        }
    }

    /// Sends what may be sent now: first what an earlier connection left unanswered, then the
    /// queue. Answers whether there is room for more.
    #[inline]
    pub(crate) fn pump(&mut self, now: Instant, session_id: SessionId) -> bool {
        self.has_room_and_nothing(session_id) || self.pump_waiting(now, session_id)
    }

    /// Whether nothing waits for this session, and something might leave. So it is behind nearly
    /// every acknowledgement.
    #[inline]
    fn has_room_and_nothing(&self, session_id: SessionId) -> bool {
        let Some(session) = self.sessions.get(session_id.index()) else {
            return false;
        };
        let connection = session
            .connection
            .and_then(|index| self.connections.at(index));
        session.queue.is_empty()
            && session.ledger.misses_nothing()
            && session.window_open(&self.limits)
            && connection.is_some_and(|connection| {
                connection.holds_nothing()
                    && connection.unwritten() < self.limits.output_bytes_max as usize
            })
    }

    /// Whether more room in its output changes nothing for this connection or its session, and
    /// nothing is left to tell: so it is behind nearly every write. Without this look a message
    /// took 10 % more instructions at QoS 1, and a receiver of a fan-out 40 %.
    #[inline]
    pub(crate) fn is_at_rest(&self, id: ConnectionId, session_id: SessionId) -> bool {
        let session = self.sessions.get(session_id.index());
        let connection = self.connections.get(id);
        self.has_room_and_nothing(session_id)
            && session.is_some_and(|found| !found.is_durable())
            && !self.retained.has_queries(session_id)
            && connection.is_some_and(Connection::has_used_all)
            && self.spreads.is_empty()
            && self.queue_limits.is_quiet()
            && self.audit.is_at_rest()
    }

    fn pump_waiting(&mut self, now: Instant, session_id: SessionId) -> bool {
        self.pump_as_far_as(now, session_id, false)
    }

    /// Gives packet ids to what waits and has no place in the window yet: they are stored together
    /// with what makes the places, so each window costs one wait for the disk and not two.
    pub(crate) fn look_ahead(&mut self, now: Instant, session_id: SessionId) {
        let session = self.sessions.get(session_id.index());
        if session.is_some_and(|session| session.looks_ahead(&self.limits)) {
            self.pump_as_far_as(now, session_id, true);
        }
    }

    fn pump_as_far_as(&mut self, now: Instant, session_id: SessionId, looks_ahead: bool) -> bool {
        if let Some(id) = self.connection_of(session_id) {
            self.start_ahead(id, session_id);
            self.release(now, id);
        }
        loop {
            if let Some(has_room) = self.send_next(now, session_id, looks_ahead) {
                return has_room;
            }
        }
    }

    /// Sends the next of what waits, or drops it. `Some`: nothing more can be sent, and whether
    /// that is because nothing waits.
    fn send_next(
        &mut self,
        now: Instant,
        session_id: SessionId,
        looks_ahead: bool,
    ) -> Option<bool> {
        if self.resend_next(now, session_id) {
            return None;
        }
        let Some(session) = self.sessions.get_mut(session_id.index()) else {
            return Some(false);
        };
        let writer = self.connections.writer_of(session.connection);
        let output_bytes_max = self.limits.output_bytes_max as usize;
        let Some(mut writer) = writer.filter(|it| it.unwritten() < output_bytes_max) else {
            return Some(false);
        };
        let rules = Rules::new(now, &self.limits, &self.gate);
        let has_place = !session.outbound.resending() && session.window_open(&self.limits);
        if !(has_place || looks_ahead && session.looks_ahead(&self.limits)) {
            return Some(false);
        }
        if !session.ledger.misses_nothing()
            && let Some(next) = session.next_to_leave(rules)
            && session.misses_before(next)
        {
            self.tell_missed(now, session_id, next);
            return None;
        }
        let Some((qos, delivery)) = session.queue.pop_front() else {
            return Some(true);
        };
        let (number, again) = (delivery.number, delivery.again);
        let publication = delivery.message.publication();
        let cost = publication.cost();
        session.queue_bytes = session.queue_bytes.saturating_sub(cost);
        self.telemetry.unqueued(cost);
        let may_leave = may_leave(&mut self.access, session_id, &publication, true, now);
        let outstayed = || rules.outstayed(&delivery, session.is_durable());
        if let Some(why) = may_leave.err().or_else(outstayed) {
            self.drop_queued(now, session_id, delivery, why);
            return None;
        }
        let publisher = delivery.message.publisher();
        let altered = publication.mark.filter(|mark| !mark.fits(&publication));
        let altered = altered.and_then(|mark| Some((mark, Arc::clone(publisher?))));
        if session.holds(qos) || session.is_behind_answers(&writer, publisher) {
            let id = writer.id();
            if let Err(waiting) = self.hold_publish(id, session_id, qos, delivery)
                && let Some(session) = self.sessions.get_mut(session_id.index())
            {
                session.queue.push_front(waiting);
                return Some(false);
            }
        } else {
            match write_delivery(&mut self.frames, &mut writer, &delivery, qos, now) {
                Ok(start) => match session.outbound.begin(qos, delivery) {
                    Ok(packet_id) => {
                        session.inflight_bytes += cost;
                        writer.finish_publish(start, packet_id, again);
                        if session.is_durable() {
                            session.touch_sent(session_id, packet_id, &mut self.unsaved);
                        }
                        self.settle_delivery(session_id, number, Fate::Sent);
                        self.telemetry.sent_publish();
                    }
                    Err(delivery) => {
                        writer.take_back(start);
                        session.queue.push_front((qos, delivery));
                        return Some(false);
                    }
                },
                Err(reason) => self.drop_queued(now, session_id, delivery, reason),
            }
        }
        if let Some((mark, publisher)) = altered {
            self.audit.findings().altered(&mark, &publisher);
        }
        None
    }

    /// Sends the next of what an earlier connection left unanswered, if there is any. In the
    /// original order, before anything new [MQTT-4.4.0-1] [MQTT-4.6.0-1], and to the group member
    /// that had it before [MQTT-4.8.2-4]. What was sent once does not expire any more
    /// [MQTT-4.3.3-7].
    fn resend_next(&mut self, now: Instant, session_id: SessionId) -> bool {
        let Some(session) = self.sessions.get_mut(session_id.index()) else {
            return false;
        };
        if !session.outbound.resending() || session.is_ahead() {
            return false;
        }
        let writer = self.connections.writer_of(session.connection);
        let output_bytes_max = self.limits.output_bytes_max as usize;
        let Some(mut writer) = writer.filter(|it| it.unwritten() < output_bytes_max) else {
            return false;
        };
        let id = writer.id();
        match session.outbound.poll_resend() {
            None => return false,
            Some(Resend::PubRel { id: packet_id }) => {
                let pubrel = Packet::PubRel(Ack::success(packet_id));
                let telemetry = &mut self.telemetry;
                self.connections.send(telemetry, id.index, &pubrel);
            }
            Some(Resend::Publish {
                id: packet_id,
                qos,
                message,
                dup,
            }) => {
                let (number, again) = (message.number, message.again);
                let publication = message.message.publication();
                let (access, frames) = (&mut self.access, &mut self.frames);
                let start = may_leave(access, session_id, &publication, !dup, now)
                    .and_then(|()| write_delivery(frames, &mut writer, message, qos, now));
                match start {
                    Ok(start) => {
                        // Whatever the publisher's DUP was. [MQTT-3.3.1-3, MQTT311-3.3.1-3]
                        writer.finish_publish(start, packet_id, dup || again);
                        if dup {
                            self.telemetry.redelivered(message.counting.is_shown());
                        } else {
                            self.settle_delivery(session_id, number, Fate::Sent);
                        }
                        self.telemetry.sent_publish();
                    }
                    // The client now takes smaller packets than before: as if it had been
                    // delivered [MQTT-3.1.2-25].
                    Err(reason) => {
                        let stored = self.give_up(now, session_id, packet_id, dup, reason);
                        if let Some(stored) = stored {
                            let pubrel = Answer::PubRel(packet_id, ReasonCode::Success);
                            self.answer(id, WaitFor::stored(stored), pubrel);
                        }
                    }
                }
            }
        }
        true
    }

    /// Gives back a message that its receiver has acknowledged.
    pub(crate) fn delivered(&mut self, delivery: Delivery) {
        self.telemetry.ended(1);
        self.pool.release(delivery.message);
    }

    fn sent(&mut self, publication: &Publication<'_>) {
        self.telemetry.sent_payload(publication.payload.len());
        self.telemetry.sent_publish();
    }
}

/// Appends the PUBLISH that this delivery is. Answers where it begins.
fn write_delivery(
    frames: &mut Frames,
    writer: &mut Writer<'_>,
    delivery: &Delivery,
    qos: QoS,
    now: Instant,
) -> Result<usize, DropReason> {
    frames.begin(false);
    let copy = ReceiverCopy {
        publication: &delivery.message.publication(),
        qos,
        retain: delivery.retain,
        identifiers: &delivery.identifiers,
    };
    write_publish(frames, writer, copy, now)
}
