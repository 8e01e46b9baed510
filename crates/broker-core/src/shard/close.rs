//! The end of a connection and of a session, and the will that is due with it.
//!
//! ```text
//! fault, DISCONNECT, connection lost, stop -> final bytes -> session without connection
//!                                                             |                     |
//!                                          will: at once, after         end: at once, or when
//!                                          its delay, at the end        its expiry is over
//! ```
//!
//! A will is due at the earliest of its delay and the end of its session [MQTT-3.1.3-9]; a client
//! that comes back before that cancels it.
//!
//! A will that a client can receive after a restart of the broker is on disk from CONNACK until it
//! was published or DISCONNECT has removed it, also that of a session which ends with its
//! connection. It is removed with the message that it became, as far as that is this shard's; where
//! another shard has to retain it, or a group delivers it, when that is stored. A crash in between
//! publishes it again; so may a stop in good order, which does not wait for what other shards store
//! last.
//!
//! A broker that is killed ends all connections. At the restart their wills are due as if they had
//! ended then; what was waiting for its delay goes on waiting.

use std::sync::Arc;
use std::time::{Duration, Instant};

use unbroken_mqtt_proto::{Disconnect, QoS, ReasonCode, Version};

use super::Shard;
use crate::audit::account::Fate;
use crate::connection::{Caller, Connection, LastPacket, LastWords};
use crate::delivery::{Item, Storing};
use crate::durability::{Record, WaitFor, Waiter};
use crate::ids::{ConnectionId, SessionId};
use crate::message::Publication;
use crate::output::Output;
use crate::reason::{CloseCause, Disconnection, DropReason, Fault, stopping};
use crate::session::Session;
use crate::telemetry::Event;
use crate::timers::Timer;

impl Shard {
    pub(super) fn handle_disconnect(
        &mut self,
        now: Instant,
        id: ConnectionId,
        session_id: SessionId,
        disconnect: Disconnect<'_>,
    ) -> Result<(), Fault> {
        let expiry_max = self.options.limits.session_expiry_max_s;
        let Some(session) = self.sessions.get_mut(session_id) else {
            return Ok(());
        };
        if let Some(expiry_s) = disconnect.properties.session_expiry_interval() {
            if session.expiry_s() == 0 && expiry_s != 0 {
                // Announced to end with its connection, it cannot be kept now.
                return Err(Fault::new(
                    ReasonCode::ProtocolError,
                    "DISCONNECT revives a session that was to end",
                ));
            }
            let expiry_s = expiry_s.min(expiry_max);
            let before = session.set_expiry(expiry_s);
            if expiry_s > 0 && expiry_s != before {
                let user = session.user().cloned();
                let mount = session.mount().map(|mount| mount.as_str().into());
                let opened = |client_id| Record::SessionOpened {
                    client_id,
                    expiry_s,
                    user,
                    mount,
                    new: false,
                };
                session.persist(&mut self.gate, opened);
            }
        }
        if disconnect.reason == ReasonCode::Success {
            // [MQTT-3.14.4-3, MQTT311-3.14.4-3] [MQTT-3.1.2-10, MQTT311-3.1.2-10]
            self.discard_will(session_id);
        }
        if let Some((last_words, _)) = self.final_bytes(now, id, LastPacket::None) {
            let connection = self.connections.get(id);
            let is_v5 = connection.is_some_and(|it| it.version() == Version::V5);
            let reason = is_v5.then_some(disconnect.reason);
            self.detach(now, id, Disconnection::ByClient(reason));
            self.close(now, id, last_words);
        }
        Ok(())
    }

    pub(super) fn handle_closed(&mut self, now: Instant, id: ConnectionId, cause: CloseCause) {
        if let Some((last_words, _)) = self.final_bytes(now, id, LastPacket::None) {
            self.deliverer(now).drop_unsaid(&last_words);
            self.detach(now, id, Disconnection::Lost(cause));
        }
    }

    /// Takes what a connection has still to say, and behind it the packet by which the broker ends
    /// it: nothing is to be written to it any more.
    pub(super) fn final_bytes(
        &mut self,
        now: Instant,
        id: ConnectionId,
        last: LastPacket<'_>,
    ) -> Option<(LastWords, Option<u8>)> {
        let session = self.connections.get(id)?.session();
        if let Some(session) = session {
            self.deliverer(now).catch_up(session);
        }
        let session = session.and_then(|id| self.sessions.get(id));
        let client = session.map(Session::client);
        let connection = self.connections.get_mut(id)?;
        Some(connection.take_final_bytes(client, last))
    }

    /// Has a forgotten connection closed by the driver, behind what it still had to say: nothing
    /// follows its last words [MQTT-3.14.4-1], and it is closed whether or not there are any
    /// [MQTT-3.14.4-2] [MQTT-4.13.2-1]. While memory is short, what it has still to say is dropped.
    pub(super) fn close(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        mut last_words: LastWords,
    ) {
        last_words.count(&self.options.totals.memory);
        if self.connections.memory().is_tight() && last_words.is_long() {
            self.deliverer(now).drop_unsaid(&last_words);
            last_words.clear();
        }
        self.outputs.push_back(Output::Close {
            connection,
            last_words,
        });
    }

    /// Ends a connection for the peer's fault, saying so where the protocol has words for it.
    pub(crate) fn fail(&mut self, now: Instant, id: ConnectionId, fault: Fault) {
        let Some(connection) = self.connections.get(id) else {
            return;
        };
        // [MQTT-3.1.4-1, MQTT311-3.1.4-1]
        if connection.session().is_none() {
            return self.refuse(now, id, Caller::default(), fault);
        }
        self.disconnect(now, id, fault);
    }

    /// Ends an admitted connection: DISCONNECT with the reason for 5.0, a plain close for older
    /// clients.
    pub(crate) fn disconnect(&mut self, now: Instant, id: ConnectionId, fault: Fault) {
        let connection = self.connections.get(id);
        let stored = self.gate.stored();
        let is_in = connection.is_some_and(|connection| connection.gate_open(stored));
        if !is_in && let Some((unsaid, _)) = self.final_bytes(now, id, LastPacket::None) {
            // Its CONNACK may not leave, nor what stands behind it.
            self.deliverer(now).drop_unsaid(&unsaid);
        }
        let last = if is_in {
            LastPacket::Disconnect(&fault)
        } else {
            LastPacket::ConnAck(&fault)
        };
        let last_words = self.final_bytes(now, id, last);
        self.end_for(now, id, last_words, fault);
    }

    /// Ends an admitted connection for this fault, which its [`final_bytes`](Self::final_bytes)
    /// name where the protocol can.
    pub(super) fn end_for(
        &mut self,
        now: Instant,
        id: ConnectionId,
        final_bytes: Option<(LastWords, Option<u8>)>,
        Fault { reason, detail }: Fault,
    ) {
        let Some((last_words, sent)) = final_bytes else {
            return;
        };
        let why = Disconnection::ByBroker {
            reason,
            sent,
            detail,
        };
        self.detach(now, id, why);
        self.telemetry.refused(reason);
        self.close(now, id, last_words);
    }

    /// Answers a client that is not let in: CONNACK where its protocol has one, and closes
    /// [MQTT-3.2.2-7, MQTT311-3.2.2-5].
    pub(crate) fn refuse(&mut self, now: Instant, id: ConnectionId, caller: Caller, fault: Fault) {
        // What it sent behind CONNECT is not looked at. [MQTT-3.1.4-6, MQTT311-3.1.4-5]
        let last_words = self.final_bytes(now, id, LastPacket::ConnAck(&fault));
        let Some(((last_words, sent), connection)) = last_words.zip(self.forget_connection(id))
        else {
            return;
        };
        self.telemetry.refused_connect(fault.reason);
        self.close(now, id, last_words);
        self.event(Event::Refused {
            client_id: caller.client_id,
            user_name: caller.user_name,
            address: connection.peer().address,
            reason: fault.reason,
            sent,
            detail: fault.detail,
        });
    }
    /// The broker stops.
    pub(super) fn drain(&mut self, now: Instant) {
        self.finish_fan_outs(now);
        let open = self.connections.iter();
        let ids: Vec<_> = open.map(Connection::id).collect();
        for id in ids {
            self.fail(now, id, stopping());
        }
        self.drop_sessions(now);
        self.save_progress();
        self.auditor(now).lay_lanes_to_rest();
    }

    /// Takes a connection out of the table; what it still had to say is in it.
    pub(crate) fn forget_connection(&mut self, id: ConnectionId) -> Option<Box<Connection>> {
        let mut connection = self.connections.close(id)?;
        self.telemetry.closed(id);
        if let Some(answered) = connection.take_retain_answer() {
            self.release_reserved(&answered);
        }
        if connection.has_place() {
            self.options.totals.leave(connection.peer().listener);
        }
        Some(connection)
    }

    /// Takes a connection off its session and forgets it; the session stays as long as its expiry
    /// says. What the connection still had to say is in the answer.
    pub(crate) fn detach(
        &mut self,
        now: Instant,
        id: ConnectionId,
        why: Disconnection,
    ) -> Option<Box<Connection>> {
        let mut connection = self.forget_connection(id)?;
        if let Some(session_id) = connection.session() {
            if let Some(session) = self.sessions.get_mut(session_id) {
                let copies = session.keep_unanswered(connection.take_held());
                self.deliverer(now).drop_copies(session_id, copies);
            }
            self.begin_absence(now, session_id, why);
        }
        Some(connection)
    }

    /// A session has lost its connection.
    fn begin_absence(&mut self, now: Instant, session_id: SessionId, why: Disconnection) {
        self.telemetry.disconnected();
        let absence = self.numbers.issue();
        let Some(session) = self.sessions.get_mut(session_id) else {
            return;
        };
        session.detach(now, absence);
        let stays = session.expiry_s() > 0;
        let client_id = Arc::clone(&session.client_id);
        self.retained.handle_disconnected(session_id);
        self.deliverer(now).fall_behind(session_id);
        self.event(Event::Disconnected { client_id, why });
        self.announcer().announce_to_groups(session_id, false);
        self.schedule_will(now, session_id);
        // [MQTT-4.1.0-2] [MQTT-3.1.2-23]
        if stays {
            self.deliverer(now).release_of_absent(session_id);
            self.schedule_end(session_id, now);
        } else if !self.is_left_on_disk(session_id) {
            self.end_session(now, session_id, DropReason::SessionEnded);
        }
        let sessions = self.sessions.len();
        self.telemetry.note_sessions(sessions);
    }

    pub(crate) fn expire_session(&mut self, now: Instant, id: SessionId, absence: u64) {
        // Never one that is connected. [MQTT-4.1.0-1, MQTT311-4.1.0-1, MQTT311-4.1.0-2]
        let absent = |session: &Session| session.absence() == absence && !session.is_connected();
        let is_absent = self.sessions.get(id).is_some_and(absent);
        if !is_absent || self.is_left_on_disk(id) {
            return;
        }
        if self.end_of(id).is_some_and(|end| end <= now) {
            self.telemetry.session_expired();
            self.end_session(now, id, DropReason::SessionEnded);
        } else {
            // The limit was lower when this timer was set.
            self.schedule_end(id, now);
        }
    }

    /// The limit is lower than before: sessions that sleep end sooner, but not at once.
    pub(crate) fn shorten_absences(&mut self, now: Instant) {
        let sessions = self.sessions.iter();
        let sleeping = sessions.filter(|(_, session)| session.is_away());
        for id in sleeping.map(|(id, _)| id).collect::<Vec<_>>() {
            self.schedule_end(id, now + GRACE);
        }
    }

    /// Sees to it that a session that has no connection ends in its time, and not before
    /// `earliest`.
    pub(crate) fn schedule_end(&mut self, id: SessionId, earliest: Instant) {
        if let Some(end) = self.end_of(id)
            && let Some(session) = self.sessions.get(id)
        {
            let (session, absence) = (id, session.absence());
            let timer = Timer::SessionExpiry { session, absence };
            self.timers.set(end.max(earliest), timer);
        }
    }

    /// When a session that has no connection ends, as the limit is now. `None`: it does not.
    fn end_of(&self, id: SessionId) -> Option<Instant> {
        let session = self.sessions.get(id)?;
        session.ends_at(&self.options.limits, self.options.start)
    }

    /// Forgets a session that has no connection: its will is due, its subscriptions end, what
    /// waited in it is handed over or named as dropped.
    pub(crate) fn end_session(&mut self, now: Instant, id: SessionId, reason: DropReason) {
        // The session's end makes a delayed will due [MQTT-3.1.2-8]. On disk it is there as long as
        // the session.
        self.publish_will(now, id);
        self.deliverer(now).catch_up(id);
        let (unread, uncounted_of) = self.deliverer(now).drop_backlog(id);
        self.announcer().end_fullness(id);
        let Self { sessions, gate, .. } = self;
        let session = sessions.get_mut(id);
        let was_kept = session.is_some_and(|session| {
            let was_kept = session.is_durable();
            session.persist_end(gate);
            was_kept
        });
        self.unsubscribe_all(id);
        let Some(mut session) = self.sessions.remove(id) else {
            return;
        };
        self.shares.end_session(&session);
        debug_assert!(
            !session.is_connected(),
            "a session ends after its connection"
        );
        self.gate.qos2_pending_mut().end(id);
        self.access.end(id);
        self.options.totals.sessions.subtract(1);
        self.telemetry.unqueued(session.outbox.queue_bytes());
        let client_id = Arc::clone(&session.client_id);
        let telemetry = &mut self.telemetry;
        telemetry.report_drops(now, &mut session.drops);
        let mut lost = Vec::new();
        let waiting: Vec<_> = session.outbox.drain().collect();
        let mut fates = Vec::with_capacity(waiting.len());
        for (qos, sent, delivery) in waiting {
            let number = delivery.number;
            // A QoS 2 message that has left may have arrived: no other member may get it
            // [MQTT-4.8.2-5].
            let may_go_on = qos != QoS::ExactlyOnce || !sent;
            let group = delivery.group.clone().filter(|_| may_go_on);
            fates.push((number, Fate::at_the_end(sent, group.is_some())));
            match group {
                Some(group) => self.hand_over(now, &group, delivery, was_kept),
                None => lost.push(delivery),
            }
        }
        let undelivered = self.deliverer(now).drop_all(&client_id, lost, reason) + unread;
        let telemetry = &mut self.telemetry;
        let ledger = &mut session.ledger;
        let aside = ledger.refused_entries(telemetry.audit(), unread);
        telemetry.dropped_together(&client_id, "", reason, (unread, aside));
        let findings = self.audit.findings();
        ledger.close(&client_id, &fates, telemetry.audit(), findings);
        self.auditor(now)
            .end_lane(&client_id, session.ledger.take_lane());
        let sessions = self.sessions.len();
        self.telemetry.note_sessions(sessions);
        self.event(Event::SessionEnded {
            client_id,
            undelivered,
            uncounted_of,
        });
    }

    /// [MQTT-3.1.2-8, MQTT311-3.1.2-8].
    pub(crate) fn schedule_will(&mut self, now: Instant, id: SessionId) {
        let Some(session) = self.sessions.get_mut(id) else {
            return;
        };
        let Some(will) = session.will() else { return };
        if will.delay_s == 0 || session.expiry_s() == 0 {
            self.publish_will(now, id);
        } else if will.delay_s < session.expiry_s() || session.expiry_s() == u32::MAX {
            let at = now + Duration::from_secs(will.delay_s.into());
            let absence = session.absence();
            self.timers.set(
                at,
                Timer::Will {
                    session: id,
                    absence,
                },
            );
        }
        // Otherwise the end of the session publishes it.
    }

    /// Has the will of a client that connects on disk before its CONNACK, in place of the one
    /// before.
    pub(crate) fn store_will(&mut self, id: SessionId) {
        if !self.options.settings.durable {
            return;
        }
        let Some(session) = self.sessions.get_mut(id) else {
            return;
        };
        if !session.store_will(&mut self.gate) {
            self.forget_stored_will(id);
        }
    }

    /// The client has said DISCONNECT: its will is not published.
    pub(crate) fn discard_will(&mut self, id: SessionId) {
        if let Some(session) = self.sessions.get_mut(id) {
            session.set_will(None);
        }
        self.forget_stored_will(id);
    }

    fn forget_stored_will(&mut self, id: SessionId) {
        if let Some(session) = self.sessions.get_mut(id)
            && session.forget_stored_will()
        {
            let client_id = Arc::clone(&session.client_id);
            self.end_stored_will(&client_id);
        }
    }

    pub(crate) fn publish_due_will(&mut self, now: Instant, id: SessionId, absence: u64) {
        if self
            .sessions
            .get_mut(id)
            .is_some_and(|session| session.absence() == absence)
        {
            self.publish_will(now, id);
        }
    }

    pub(crate) fn publish_will(&mut self, now: Instant, id: SessionId) {
        if self.stays_on_disk(id) {
            // It is published at the restart, also when the session has ended.
            let Self { sessions, gate, .. } = self;
            if let Some(session) = sessions.get(id) {
                gate.block(Arc::clone(&session.client_id));
            }
            return;
        }
        // Taken out: it is published once. [MQTT-3.1.2-10, MQTT311-3.1.2-10]
        let Some(session) = self.sessions.get_mut(id) else {
            return;
        };
        let Some((will, on_disk)) = session.take_will() else {
            return;
        };
        let (client_id, address) = (Arc::clone(&session.client_id), session.address());
        let author = will.author.as_deref();
        let mut publication = will.message.publication();
        let terms = (publication.qos, publication.retain);
        let verdict = self.access.due_will(id, publication.topic, terms, author);
        publication.stamp = now;
        if verdict.is_denied() || self.poses_as_record(publication.topic, publication.properties) {
            return self.deny_will(now, id, &publication, on_disk.then_some(&client_id));
        }
        self.event(Event::WillPublished {
            client_id: Arc::clone(&client_id),
            topic: will.message.topic().into(),
        });
        publication.expires = will.expiry.map(|interval| now + interval);
        // The last message of its client: accepted like the others, so what it says of itself is
        // verified, and it has the next number.
        let said_on = self.own_topic(id, publication.topic);
        let own = self
            .auditor(now)
            .verify_publisher(id, false, &publication, said_on);
        let mut stamped = std::mem::take(&mut self.scratch.stamped);
        self.auditor(now)
            .put_mark(id, &mut publication, &mut stamped);
        let mut item = Item::borrowed(publication, will.message.publisher());
        item.address = address;
        // [MQTT-3.1.2-14, MQTT311-3.1.2-16]
        if publication.retain {
            // [MQTT-3.1.2-15, MQTT311-3.1.2-17]; only the disk waits for an acknowledgement.
            let qos = if on_disk {
                QoS::AtLeastOnce
            } else {
                QoS::AtMostOnce
            };
            self.retain(now, &mut item, qos);
        }
        let mut over_with_message = false;
        if self.options.settings.durable && publication.qos > QoS::AtMostOnce {
            item.is_awaited = on_disk;
            over_with_message =
                on_disk && item.until.settled.is_none() && !self.is_shared(publication.topic);
            item.storing = if over_with_message {
                Storing::WillIfWanted
            } else {
                Storing::IfWanted(None)
            };
        }
        self.route(now, &mut item, Some(id));
        over_with_message &= matches!(item.storing, Storing::Asked);
        if let Some(token) = item.until.settled.filter(|_| on_disk) {
            let until = WaitFor {
                settled: Some(token),
                ..WaitFor::NOW
            };
            self.wake_when(now, until, Waiter::Will(client_id));
        } else if over_with_message {
            self.note_will_over(&client_id);
        } else if on_disk {
            self.end_stored_will(&client_id);
        }
        self.auditor(now).note_lane_snapshot(id, &item, own);
        item.finish(&mut self.deliveries);
        self.scratch.stamped = stamped;
    }

    /// A will is not published, because its author may not. `stored_of`: its client, if it is on
    /// disk.
    #[cold]
    fn deny_will(
        &mut self,
        now: Instant,
        id: SessionId,
        publication: &Publication<'_>,
        stored_of: Option<&Arc<str>>,
    ) {
        self.drop_denied(now, id, publication);
        if let Some(client_id) = stored_of {
            self.end_stored_will(client_id);
        }
    }
}

/// A session whose client could not come, or could not know that it had to, is there for at least
/// so long.
pub(crate) const GRACE: Duration = Duration::from_secs(10);
