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
use unbroken_mqtt_proto::{Ack, Packet, PacketId, QoS, ReasonCode};

use super::copy::{ReceiverCopy, write_publish};
use super::frames::Frames;
use super::item::{Item, terms_of_copy};
use crate::audit::account::Fate;
use crate::connection::{Answer, Connection, HeldCopy, Writer};
use crate::durability::WaitFor;
use crate::ids::{ConnectionId, SessionId};
use crate::message::Publication;
use crate::policy::AccessControl;
use crate::reason::DropReason;
use crate::session::{Delivery, Rules};
use crate::shard::Clients;

impl Clients {
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
}

/// Whether a message that has waited may be sent to its client now. `may_expire`: it was not sent
/// before.
pub(crate) fn may_leave(
    access: &mut AccessControl,
    id: SessionId,
    publication: &Publication<'_>,
    may_expire: bool,
    now: Instant,
) -> Result<(), DropReason> {
    if may_expire && publication.expired(now) {
        Err(DropReason::Expired) // [MQTT-3.3.2-5]
    } else if access.receive(id, publication.topic).is_denied() {
        Err(DropReason::NotAuthorized)
    } else {
        Ok(())
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
