//! What waits for a session leaves: as its window and its output allow, in order.
//!
//! ```text
//! pump:  what was held, once it may leave
//!        what an earlier connection left unanswered, with DUP
//!        what it missed, then what waits in the queue
//! ```

use std::sync::Arc;
use std::time::Instant;

use unbroken_mqtt_proto::session::Resend;
use unbroken_mqtt_proto::{Ack, Packet, QoS, ReasonCode};

use super::Deliverer;
use super::frames::{Frames, ReceiverCopy, write_publish};
use crate::audit::account::Fate;
use crate::connection::{Answer, Connection, Connections, Writer};
use crate::durability::WaitFor;
use crate::ids::SessionId;
use crate::limits::Limits;
use crate::message::{Message, Publication};
use crate::policy::AccessControl;
use crate::reason::DropReason;
use crate::session::{Delivery, Rules, Session};
use crate::telemetry::{Telemetry, TraceStep};

impl Deliverer<'_> {
    /// Sends what may be sent now: first what an earlier connection left unanswered, then the
    /// queue.
    pub(crate) fn pump(&mut self, session_id: SessionId) {
        self.pump_as_far_as(session_id, false);
    }

    /// Gives packet ids to what waits and has no place in the window yet: they are stored together
    /// with what makes the places, so each window costs one wait for the disk and not two.
    pub(crate) fn look_ahead(&mut self, session_id: SessionId) {
        let session = self.sessions.get(session_id);
        if session.is_some_and(|session| session.looks_ahead(self.limits)) {
            self.pump_as_far_as(session_id, true);
        }
    }

    fn pump_as_far_as(&mut self, session_id: SessionId, looks_ahead: bool) {
        if let Some(id) = self.sessions.connection_of(session_id, self.connections) {
            self.start_ahead(id, session_id);
            self.release(id);
        }
        while self.send_next(session_id, looks_ahead) {}
    }

    /// Sends the next of what waits, or drops it. Returns whether there may be more.
    fn send_next(&mut self, session_id: SessionId, looks_ahead: bool) -> bool {
        if self.resend_next(session_id) {
            return true;
        }
        let Some(session) = self.sessions.get_mut(session_id) else {
            return false;
        };
        let Some(mut writer) = session.writer_for_next(self.connections, self.limits) else {
            return false;
        };
        let rules = Rules::new(self.now, self.limits, self.gate);
        let has_place = !session.outbox.resending() && session.outbox.window_open(self.limits);
        if !(has_place || looks_ahead && session.looks_ahead(self.limits)) {
            return false;
        }
        if !session.ledger.misses_nothing()
            && let Some(next) = session.next_to_leave(rules)
            && session.misses_before(next)
        {
            self.tell_missed(session_id, next);
            return true;
        }
        let Some((qos, delivery)) = session.outbox.pop() else {
            return false;
        };
        let (number, again) = (delivery.number, delivery.again);
        let publication = delivery.message.publication();
        let cost = publication.cost();
        self.telemetry.unqueued(cost);
        let to = (session_id, session.mount().is_some());
        let may_leave = may_leave(self.access, to, &publication, true, self.now);
        let outstayed = || rules.outstayed(&delivery, session.is_durable());
        if let Some(why) = may_leave.err().or_else(outstayed) {
            self.drop_settled(session_id, delivery, why, Fate::Dropped);
            return true;
        }
        let publisher = delivery.message.publisher();
        let altered = publication.mark.filter(|mark| !mark.fits(&publication));
        let altered = altered.and_then(|mark| Some((mark, Arc::clone(publisher?))));
        if session.holds(qos) || session.is_behind_answers(&writer, publisher) {
            let id = writer.id();
            if let Err((qos, delivery)) = self.hold_publish(id, session_id, qos, delivery)
                && let Some(session) = self.sessions.get_mut(session_id)
            {
                session.outbox.put_back(qos, delivery);
                self.telemetry.queued(cost);
                return false;
            }
        } else {
            let frames = &mut self.deliveries.frames;
            match write_delivery(frames, &mut writer, &delivery, qos, self.now) {
                Ok(start) => {
                    let traced = traced(self.telemetry, &delivery);
                    match session.outbox.begin(qos, delivery) {
                        Ok(packet_id) => {
                            writer.finish_publish(start, packet_id, again);
                            if session.is_durable() {
                                self.sessions.touch_sent(session_id, packet_id);
                            }
                            self.settle(session_id, number, Fate::Sent);
                            self.telemetry.sent_publish();
                            self.trace_sent(session_id, qos, traced.as_deref());
                        }
                        Err(delivery) => {
                            writer.take_back(start);
                            session.outbox.put_back(qos, delivery);
                            self.telemetry.queued(cost);
                            return false;
                        }
                    }
                }
                Err(reason) => self.drop_settled(session_id, delivery, reason, Fate::Dropped),
            }
        }
        if let Some((mark, publisher)) = altered {
            self.audit.findings().altered(&mark, &publisher);
        }
        true
    }

    /// Sends the next of what an earlier connection left unanswered, if there is any. In the
    /// original order, before anything new [MQTT-4.4.0-1] [MQTT-4.6.0-1], and to the group member
    /// that had it before [MQTT-4.8.2-4]. What was sent once does not expire any more
    /// [MQTT-4.3.3-7].
    fn resend_next(&mut self, session_id: SessionId) -> bool {
        let Some(session) = self.sessions.get_mut(session_id) else {
            return false;
        };
        if !session.outbox.resending() || session.is_ahead() {
            return false;
        }
        let (connections, connection) = (&mut *self.connections, session.connection());
        let Some(mut writer) = connections.writer_with_room(connection, self.limits, 0) else {
            return false;
        };
        let id = writer.id();
        let to = (session_id, session.mount().is_some());
        match session.outbox.poll_resend() {
            None => return false,
            Some(Resend::PubRel { id: packet_id }) => {
                let pubrel = Packet::PubRel(Ack::success(packet_id));
                self.connections.send(self.telemetry, id.index, &pubrel);
            }
            Some(Resend::Publish {
                id: packet_id,
                qos,
                message,
                dup,
            }) => {
                let (number, again) = (message.number, message.again);
                let publication = message.message.publication();
                let (access, frames) = (&mut *self.access, &mut self.deliveries.frames);
                let start = may_leave(access, to, &publication, !dup, self.now)
                    .and_then(|()| write_delivery(frames, &mut writer, message, qos, self.now));
                match start {
                    Ok(start) => {
                        let traced = traced(self.telemetry, message);
                        // Whatever the publisher's DUP was. [MQTT-3.3.1-3, MQTT311-3.3.1-3]
                        writer.finish_publish(start, packet_id, dup || again);
                        if dup {
                            self.telemetry.redelivered(message.counting.is_shown());
                        } else {
                            self.settle(session_id, number, Fate::Sent);
                        }
                        self.telemetry.sent_publish();
                        self.trace_sent(session_id, qos, traced.as_deref());
                    }
                    // The client now takes smaller packets than before: as if it had been
                    // delivered [MQTT-3.1.2-25].
                    Err(reason) => {
                        let stored = self.give_up(session_id, packet_id, dup, reason);
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

    #[cold]
    #[inline]
    fn trace_sent(&mut self, session: SessionId, qos: QoS, traced: Option<&Message>) {
        if let Some(message) = traced {
            let step = TraceStep::Sent { qos };
            self.trace_copy(session, message.publisher(), &message.publication(), &step);
        }
    }
}

impl Session {
    /// Lends what it takes to write to its client, if there is room for what is next in the queue.
    fn writer_for_next<'a>(
        &self,
        connections: &'a mut Connections,
        limits: &Limits,
    ) -> Option<Writer<'a>> {
        let next = self.outbox.front().map_or(0, |(_, next)| next.cost());
        connections.writer_with_room(self.connection(), limits, next)
    }

    /// Whether nothing waits for this session, and something might leave over its connection. So it
    /// is behind nearly every acknowledgement.
    #[inline]
    pub(crate) fn has_room_and_nothing(&self, connection: &Connection, limits: &Limits) -> bool {
        self.outbox.is_empty()
            && self.ledger.misses_nothing()
            && self.outbox.window_open(limits)
            && connection.holds_nothing()
            && connection.unwritten() < limits.output_bytes_max as usize
    }
}

/// The message, if steps of it may be traced.
#[inline]
fn traced(telemetry: &Telemetry, delivery: &Delivery) -> Option<Arc<Message>> {
    let is_traced = telemetry.tracer.is_on();
    is_traced.then(|| Arc::clone(&delivery.message))
}

/// Whether a message that has waited may be sent to its client now. `mounted`: the client has a
/// mount. `may_expire`: it was not sent before.
pub(super) fn may_leave(
    access: &mut AccessControl,
    (id, mounted): (SessionId, bool),
    publication: &Publication<'_>,
    may_expire: bool,
    now: Instant,
) -> Result<(), DropReason> {
    if may_expire && publication.expired(now) {
        Err(DropReason::Expired) // [MQTT-3.3.2-5]
    } else if access.receive(id, publication.topic, mounted).is_denied() {
        Err(DropReason::NotAuthorized)
    } else {
        Ok(())
    }
}

/// Appends the PUBLISH that this delivery is. Answers where it begins.
pub(super) fn write_delivery(
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
