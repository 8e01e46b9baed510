//! What is held for a connection until it may leave: answers, messages whose packet ids are to be
//! stored, and what stands behind them.
//!
//! ```text
//! answer, hold ---> queue of the connection ------------------> release ---> output
//!                   what is first waits for: CommitGate ---> wake
//! ```
//!
//! The queue of packets is the connection's, whether a packet may leave is asked of the
//! [`CommitGate`](crate::durability). A queue is looked at from its front when something it waits
//! for comes true, and only as far as that goes.

use std::sync::Arc;

use unbroken_mqtt_proto::{Packet, PacketId, QoS};

use super::Deliverer;
use super::item::{Item, note_given, terms_of_copy};
use super::pump::{may_leave, write_delivery};
use crate::audit::account::Fate;
use crate::connection::{Answer, Connection, HeldCopy, Outgoing};
use crate::durability::WaitFor;
use crate::ids::{ConnectionId, SessionId, StoreId};
use crate::reason::DropReason;
use crate::routing::Terms;
use crate::session::{Delivery, Session};
use crate::telemetry::{Parties, TraceStep};

impl Deliverer<'_> {
    /// Sends an answer, or holds it until what it promises is true; later ones stand behind it.
    #[inline]
    pub(crate) fn answer(&mut self, id: ConnectionId, until: WaitFor, what: Answer) {
        let Some(connection) = self.connections.get_mut(id) else {
            return;
        };
        if connection.holds_nothing() && self.gate.is_met(until) {
            if what.acknowledged().is_some() {
                self.telemetry.acknowledged();
            }
            return self.send_answer(id.index, &what);
        }
        if let Some(packet_id) = what.acknowledged() {
            self.telemetry.held_acknowledgement(self.now, id, packet_id);
        }
        let what = Outgoing::Answer(what);
        self.connections.hold(self.gate, id, until, what);
    }

    /// Answers in the place that was reserved.
    pub(crate) fn answer_reserved(&mut self, id: ConnectionId, until: WaitFor, what: Answer) {
        if let Some(packet_id) = what.acknowledged() {
            self.telemetry.held_acknowledgement(self.now, id, packet_id);
        }
        let Self {
            connections, gate, ..
        } = self;
        match connections.answer_reserved(gate, id, until, what) {
            Ok(true) => self.release(id),
            Ok(false) => {}
            Err(what) => {
                debug_assert!(false, "a place was reserved");
                self.answer(id, until, what);
            }
        }
    }

    /// Gives a message the packet id that it will be sent with. It leaves when that is stored, and
    /// when the window has a place for it; one of QoS 1 stands behind those of QoS 2. The message
    /// comes back if there is no id; otherwise says what its being given is stored with, if that is
    /// asked for by itself.
    pub(super) fn hold_publish(
        &mut self,
        id: ConnectionId,
        session_id: SessionId,
        qos: QoS,
        delivery: Delivery,
    ) -> Result<StoreId, (QoS, Delivery)> {
        let Self {
            connections,
            sessions,
            gate,
            ..
        } = self;
        let Some(session) = sessions.get_mut(session_id) else {
            return Err((qos, delivery));
        };
        // No subscription of the session finds it in the log.
        let is_shared = delivery.group.is_some() && delivery.entry == 0;
        let (packet_id, is_ahead) = session.begin_held(qos, delivery)?;
        let is_asked = qos == QoS::ExactlyOnce || is_shared;
        let stored = if is_asked {
            session.persist_sent(gate, packet_id, qos)
        } else {
            StoreId::NOTHING
        };
        if is_ahead {
            session.note_ahead(packet_id, stored);
        } else {
            let what = Outgoing::Publish(qos, packet_id);
            connections.hold(gate, id, WaitFor::stored(stored), what);
        }
        if !is_asked {
            sessions.touch_sent(session_id, packet_id);
        }
        Ok(stored)
    }

    /// Gives the places that are free in the window to those that have their packet ids already.
    pub(super) fn start_ahead(&mut self, id: ConnectionId, session_id: SessionId) {
        let Self {
            connections,
            sessions,
            gate,
            ..
        } = self;
        let Some(session) = sessions.get_mut(session_id) else {
            return;
        };
        while let Some((packet_id, stored)) = session.start_ahead() {
            let until = gate.still_open(WaitFor::stored(stored));
            let what = Outgoing::Publish(QoS::ExactlyOnce, packet_id);
            connections.hold(gate, id, until, what);
        }
    }

    /// Sends what waits for nothing any more, from the front, while the client takes it.
    pub(crate) fn release(&mut self, id: ConnectionId) {
        let output_bytes_max = self.limits.output_bytes_max as usize;
        let Some(connection) = self.connections.get(id) else {
            return;
        };
        if connection.holds_nothing() {
            return;
        }
        let was_read = connection.may_consume(self.gate, self.limits);
        let mut any = false;
        while let Some(connection) = self.connections.get_mut(id)
            && let Some(what) = connection.pop_ready(self.gate, output_bytes_max)
        {
            any = true;
            match what {
                Outgoing::Publish(qos, packet_id) => {
                    self.send_held_publish(id, qos, packet_id);
                }
                Outgoing::Copy(copy) => self.send_held_copy(id, *copy),
                Outgoing::Answer(answer) => {
                    if let Some(packet_id) = answer.acknowledged() {
                        self.telemetry
                            .released_acknowledgement(self.now, id, packet_id);
                    }
                    self.send_answer(id.index, &answer);
                }
                Outgoing::Reserved => {}
            }
        }
        if any && !was_read {
            self.connections.relieve(self.now, id);
        }
    }

    #[inline]
    fn send_answer(&mut self, index: u32, answer: &Answer) {
        let session = self.connections.at(index).and_then(Connection::session);
        if let Some(session) = session.and_then(|id| self.sessions.get_mut(id)) {
            match answer {
                Answer::PubAck(id, _) => session.inbound.acknowledged(*id),
                Answer::PubRec(id, reason) if reason.is_error() => {
                    session.inbound.acknowledged(*id);
                }
                Answer::PubRec(id, _) => session.inbound.received(*id),
                _ => {}
            }
        }
        let packet = answer.packet();
        self.connections.send(self.telemetry, index, &packet);
        if self.telemetry.tracer.is_on() {
            self.trace_answer(index, &packet);
        }
    }

    #[cold]
    fn trace_answer(&mut self, index: u32, packet: &Packet<'_>) {
        let (packet_id, reason) = match packet {
            Packet::PubAck(ack)
            | Packet::PubRec(ack)
            | Packet::PubRel(ack)
            | Packet::PubComp(ack) => (ack.packet_id, Some(ack.reason)),
            Packet::UnsubAck(unsuback) => (unsuback.packet_id, None),
            _ => return,
        };
        let session = self.connections.at(index).and_then(Connection::session);
        let session = session.and_then(|id| self.sessions.get(id));
        let parties = Parties {
            client_id: session.map(|session| &session.client_id),
            user: session.and_then(Session::user),
            publisher: None,
        };
        self.telemetry
            .tracer
            .step(parties, None, |_| TraceStep::Answered {
                packet: packet.packet_type(),
                packet_id: packet_id.get(),
                reason,
            });
    }

    /// Holds a message of QoS 0 for its own publisher, behind what is held for that already.
    #[cold]
    pub(super) fn deliver_copy_held(
        &mut self,
        session_id: SessionId,
        terms: Terms<'_>,
        item: &mut Item<'_>,
    ) {
        let limit = self.limits.output_bytes_max as usize;
        let id = self.sessions.connection_of(session_id, self.connections);
        let connection = id.and_then(|id| self.connections.get(id));
        let has_room = connection
            .is_some_and(|connection| connection.unwritten() + connection.held_bytes() < limit);
        let Some(id) = id.filter(|_| has_room) else {
            return self.refuse_entry(session_id, terms, item, DropReason::SlowReceiver);
        };
        note_given(self.retained, session_id, item, QoS::AtMostOnce);
        let what = Outgoing::Copy(Box::new(item.held_copy(terms, self.deliveries)));
        self.connections.hold(self.gate, id, WaitFor::NOW, what);
    }

    /// A message of QoS 0 leaves that was held.
    fn send_held_copy(&mut self, id: ConnectionId, copy: HeldCopy) {
        let connection = self.connections.get(id);
        if let Some(session_id) = connection.and_then(Connection::session) {
            let (terms, mut item) = (terms_of_copy(&copy), Item::kept(&copy.message));
            let mounted = connection.is_some_and(|connection| connection.mount().is_some());
            let to = (session_id, mounted);
            if let Err(why) = may_leave(self.access, to, &item.publication, true, self.now) {
                self.refuse_entry(session_id, terms, &item, why);
            } else {
                item.was_held = true;
                self.deliveries.frames.begin(false);
                self.give(session_id, terms, &mut item);
            }
        }
        self.deliveries.pool.release(copy.message);
    }

    /// A message leaves that was held until its packet id was stored.
    fn send_held_publish(&mut self, id: ConnectionId, qos: QoS, packet_id: PacketId) {
        let Some(mut writer) = self.connections.writer(id.index) else {
            return;
        };
        let Some(session_id) = writer.session() else {
            return;
        };
        let Some(session) = self.sessions.get_mut(session_id) else {
            return;
        };
        let to = (session_id, session.mount().is_some());
        let Some(delivery) = session.outbox.mark_sent(packet_id) else {
            return;
        };
        let (number, again) = (delivery.number, delivery.again);
        let was_retained = delivery.retain;
        let message = Arc::clone(&delivery.message);
        let publication = message.publication();
        let start = may_leave(self.access, to, &publication, true, self.now).and_then(|()| {
            write_delivery(
                &mut self.deliveries.frames,
                &mut writer,
                delivery,
                qos,
                self.now,
            )
        });
        match start {
            Ok(start) => {
                writer.finish_publish(start, packet_id, again);
                self.settle(session_id, number, Fate::Sent);
                if !was_retained {
                    self.telemetry.sent_after(self.now, publication.stamp);
                }
                self.telemetry.sent_payload(publication.payload.len());
                self.telemetry.sent_publish();
                if self.telemetry.tracer.is_on() {
                    let step = TraceStep::Sent { qos };
                    self.trace_copy(session_id, message.publisher(), &publication, &step);
                }
            }
            Err(reason) => {
                self.give_up(session_id, packet_id, false, reason);
                // Its place in the window is free: as after a write, more may be sent.
                self.connections.mark_dirty(id);
            }
        }
    }
}
