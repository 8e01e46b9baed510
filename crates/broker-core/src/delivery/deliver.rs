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

use unbroken_mqtt_proto::QoS;

use super::Deliverer;
use super::frames::{ReceiverCopy, write_publish};
use super::item::{Item, note_given};
use crate::audit::account::Fate;
use crate::audit::receipt::News;
use crate::ids::{ConnectionId, SessionId};
use crate::limits::{LIVE_BYTES_MAX, LIVE_MESSAGES_MAX};
use crate::message::Publication;
use crate::reason::DropReason;
use crate::routing::Terms;
use crate::session::Session;
use crate::telemetry::{Parties, TraceStep};

impl Deliverer<'_> {
    /// Begins the delivery of another message: what was encoded for the last one is forgotten.
    /// `shared`: several may receive it.
    #[inline]
    pub(crate) fn begin_item(&mut self, shared: bool) {
        self.deliveries.frames.begin(shared);
    }

    /// Brings a message to one session.
    pub(crate) fn deliver(&mut self, session_id: SessionId, terms: Terms<'_>, item: &mut Item<'_>) {
        self.catch_up(session_id);
        if terms.is_denied {
            return self.deliver_denied(session_id, terms, item);
        }
        self.give(session_id, terms, item);
    }

    /// The same, after what was on its way to the session.
    pub(crate) fn give(&mut self, session_id: SessionId, terms: Terms<'_>, item: &mut Item<'_>) {
        let qos = terms.qos.min(item.publication.qos); // [MQTT-3.8.4-8, MQTT311-3.8.4-6]
        if qos == QoS::AtMostOnce {
            return self.give_qos0(session_id, terms, item);
        }
        let Some(session) = self.sessions.get_mut(session_id) else {
            return;
        };
        let writer = self.connections.writer_of(session.connection());
        // Nothing overtakes what waits already. [MQTT-4.6.0-5, MQTT311-4.6.0-6]
        // [MQTT-4.6.0-6, MQTT311-4.6.0-5]
        if let Some(mut writer) = writer
            && !session.is_behind()
            && session.outbox.is_empty()
            && session.outbox.window_open(self.limits)
            && writer.has_room(self.limits, item.publication.cost())
        {
            if session.holds(qos) || session.is_behind_answers(&writer, item.publisher) {
                let id = writer.id();
                note_given(self.retained, session_id, item, qos);
                if session.is_durable() {
                    item.store(self.deliveries, self.gate);
                }
                return self.deliver_held(id, session_id, qos, terms, item);
            }
            let copy = ReceiverCopy {
                publication: &item.publication,
                qos,
                retain: terms.retain,
                identifiers: terms.identifiers,
            };
            let frames = &mut self.deliveries.frames;
            let start = match write_publish(frames, &mut writer, copy, self.now) {
                Ok(start) => start,
                Err(reason) => return self.refuse_entry(session_id, terms, item, reason),
            };
            note_given(self.retained, session_id, item, qos);
            let durable = session.is_durable();
            if durable {
                item.store(self.deliveries, self.gate);
            }
            let mut delivery = item.delivery(terms, self.deliveries);
            session.accept(self.audit.topics(), self.telemetry.audit(), &mut delivery);
            let number = delivery.number;
            self.telemetry.accepted();
            match session.outbox.begin(qos, delivery) {
                Ok(packet_id) => {
                    writer.finish_publish(start, packet_id, false);
                    if durable && terms.group.is_some() {
                        // No subscription of the session finds it in the log.
                        let kept = session.persist_sent(self.gate, packet_id, qos);
                        item.wait_for(kept);
                    }
                    let findings = self.audit.findings();
                    session.settle(number, Fate::Sent, self.telemetry.audit(), findings);
                    if durable && terms.group.is_none() {
                        self.sessions.touch_sent(session_id, packet_id);
                    }
                    self.sent(session_id, item, qos);
                }
                Err(delivery) => {
                    // Not reached while `window_open` tells the truth; the message is kept either
                    // way.
                    writer.take_back(start);
                    session.outbox.push(qos, delivery);
                    self.telemetry.queued(item.publication.cost());
                }
            }
            return;
        }
        self.enqueue(session_id, qos, terms, item);
    }

    #[inline]
    fn give_qos0(&mut self, session_id: SessionId, terms: Terms<'_>, item: &mut Item<'_>) {
        let qos = QoS::AtMostOnce;
        let Some(session) = self.sessions.get_mut(session_id) else {
            return;
        };
        let writer = self.connections.writer_of(session.connection());
        let outcome = match writer {
            // What the broker says at QoS 0 is for who is there.
            None if item.is_own_word() => return,
            None => Err(DropReason::NotConnected),
            Some(writer) if !writer.has_room(self.limits, item.publication.cost()) => {
                Err(DropReason::SlowReceiver)
            }
            Some(writer)
                if !item.was_held && session.is_behind_answers(&writer, item.publisher) =>
            {
                return self.deliver_copy_held(session_id, terms, item);
            }
            Some(mut writer) => {
                let copy = ReceiverCopy {
                    publication: &item.publication,
                    qos,
                    retain: terms.retain,
                    identifiers: terms.identifiers,
                };
                let frames = &mut self.deliveries.frames;
                let written = write_publish(frames, &mut writer, copy, self.now);
                if written.is_ok() {
                    writer.mark_dirty();
                }
                written
            }
        };
        match outcome {
            Ok(_) => {
                note_given(self.retained, session_id, item, qos);
                let totals = self.telemetry.audit();
                let (topics, findings) = self.audit.topics_and_findings();
                let topic = item.publication.topic;
                let counting = session.sent_qos0(topics, topic, totals, findings);
                item.news_of_copy(terms, counting, News::Sent, findings);
                self.sent(session_id, item, qos);
            }
            Err(reason) => self.refuse_entry(session_id, terms, item, reason),
        }
    }

    /// A message was routed to a session that may not receive it.
    #[cold]
    pub(crate) fn deliver_denied(&mut self, id: SessionId, terms: Terms<'_>, item: &mut Item<'_>) {
        let session = self.sessions.get(id);
        let is_behind = session.is_some_and(Session::is_behind);
        if is_behind && terms.qos.min(item.publication.qos) > QoS::AtMostOnce {
            self.give(id, terms, item);
        } else if !item.is_own_word() {
            self.refuse_entry(id, terms, item, DropReason::NotAuthorized);
        }
    }

    /// Puts a message behind those that wait already: a session also gathers them while its client
    /// is away [MQTT-4.5.0-1, MQTT311-4.5.0-1, MQTT311-3.1.2-5].
    fn enqueue(&mut self, session_id: SessionId, qos: QoS, terms: Terms<'_>, item: &mut Item<'_>) {
        let Some(session) = self.sessions.get_mut(session_id) else {
            return;
        };
        if self.stopping && !session.is_durable() {
            return self.refuse_entry(session_id, terms, item, DropReason::SessionEnded);
        }
        let cost = item.publication.cost();
        let crowded = session.outbox.queue_len() >= LIVE_MESSAGES_MAX
            || session.outbox.queue_bytes() + cost > LIVE_BYTES_MAX && !session.outbox.is_empty();
        if session.is_durable()
            && (crowded || session.is_behind())
            && self.leave_on_disk(session_id, terms, item)
        {
            if self.telemetry.tracer.is_on() {
                let step = TraceStep::Stored { qos };
                self.trace_copy(session_id, item.publisher, &item.publication, &step);
            }
            return;
        }
        let Some(session) = self.sessions.get_mut(session_id) else {
            return;
        };
        let full = session.outbox.queue_len() >= self.limits.queue_messages_max as usize
            || session.outbox.queue_bytes() + cost > self.limits.queue_bytes_max
                && !session.outbox.is_empty();
        let durable = session.is_durable();
        let waiting = session.outbox.queue_len() as u64;
        // What a group gives there comes from a member that ended, or no member has room.
        let (has, has_bytes) = match terms.group {
            Some(_) => (0, 0),
            None => (waiting, session.outbox.queue_bytes()),
        };
        let keeps_beyond =
            durable && item.publisher.is_some() && self.limits.keeps_beyond(has, has_bytes);
        if full && !keeps_beyond {
            return self.refuse_entry(session_id, terms, item, DropReason::QueueFull);
        }
        if durable {
            item.store(self.deliveries, self.gate);
        }
        let mut delivery = item.delivery(terms, self.deliveries);
        session.accept(self.audit.topics(), self.telemetry.audit(), &mut delivery);
        let behind = session.is_behind();
        if durable && (behind || terms.group.is_some()) {
            // No subscription of the session finds it in the log.
            let kept = session.persist_waiting(self.gate, qos, &mut delivery);
            item.wait_for(kept);
        }
        note_given(self.retained, session_id, item, qos);
        let behind = session.outbox.queue_len();
        self.telemetry.queued_behind(behind);
        session.outbox.push(qos, delivery);
        self.telemetry.accepted();
        self.telemetry.queued(cost);
        self.sessions.note_fill(self.limits, session_id);
        if self.telemetry.tracer.is_on() {
            let step = TraceStep::Queued { qos, behind };
            self.trace_copy(session_id, item.publisher, &item.publication, &step);
        }
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
        let mut delivery = item.delivery(terms, self.deliveries);
        if let Some(session) = self.sessions.get_mut(session_id) {
            session.accept(self.audit.topics(), self.telemetry.audit(), &mut delivery);
        }
        let begun = self.hold_publish(id, session_id, qos, delivery);
        self.telemetry.accepted();
        match begun {
            Ok(given) if terms.group.is_some() => item.wait_for(given),
            Ok(_) => {}
            Err((qos, delivery)) => {
                let Some(session) = self.sessions.get_mut(session_id) else {
                    return;
                };
                // Not reached while `window_open` tells the truth; the message is kept either way.
                session.outbox.push(qos, delivery);
                self.telemetry.queued(item.publication.cost());
            }
        }
    }

    #[inline]
    fn sent(&mut self, session_id: SessionId, item: &Item<'_>, qos: QoS) {
        let publication = &item.publication;
        // A retained message was published long before its receiver asked for it.
        if !item.is_retained_copy {
            self.telemetry.sent_after(self.now, publication.stamp);
        }
        self.telemetry.sent_payload(publication.payload.len());
        self.telemetry.sent_publish();
        if self.telemetry.tracer.is_on() {
            let step = TraceStep::Sent { qos };
            self.trace_copy(session_id, item.publisher, publication, &step);
        }
    }

    /// Something became of one receiver's copy of a message.
    #[cold]
    pub(super) fn trace_copy(
        &mut self,
        session_id: SessionId,
        publisher: Option<&Arc<str>>,
        publication: &Publication<'_>,
        step: &TraceStep,
    ) {
        let session = self.sessions.get(session_id);
        let parties = Parties {
            client_id: session.map(|session| &session.client_id),
            user: session.and_then(Session::user),
            publisher,
        };
        self.telemetry.tracer.copy(parties, publication, step);
    }
}
