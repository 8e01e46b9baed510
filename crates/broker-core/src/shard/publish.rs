//! HOT: a PUBLISH from a client, up to its answer.
//!
//! ```text
//! handle_publish: topic (alias?) -> QoS 2 seen before? -> may it? -> retain? -> route -> answer
//!                                     room to retain it? maybe another shard is asked first
//! ```
//!
//! The message is copied only if somebody must remember it (see [`crate::delivery`]).
//!
//! Invariant: an acknowledgement leaves after everything it promises is true: stored for those that
//! wait, retained by its shard.

mod check;
mod refuse;

use std::sync::Arc;
use std::time::{Duration, Instant};

use unbroken_mqtt_proto::session::{Arrival, ReceiveMaximumExceeded};
use unbroken_mqtt_proto::topic::TopicName;
use unbroken_mqtt_proto::{PacketId, Properties, PropertyBuf, Publish, QoS, ReasonCode};

use crate::audit::missed::poses_as_record;
use crate::connection::{Answer, Connection};
use crate::delivery::{Item, Storing};
use crate::durability::{CommitGate, Marker, Record, WaitFor};
use crate::ids::{ConnectionId, Errand, SessionId};
use crate::limits::QueueFull;
use crate::message::{self, Publication};
use crate::placement;
use crate::reason::{DropReason, Fault, Flow};
use crate::session::Session;
use crate::shard::Shard;
use crate::shard::retained::RetainRoom;
use crate::telemetry::Again;

pub(super) use check::invalid_topic;
use check::{check_properties, check_topic};
use refuse::{Refusal, denied};

impl Shard {
    pub(crate) fn handle_publish(
        &mut self,
        now: Instant,
        id: ConnectionId,
        session_id: SessionId,
        publish: Publish<'_>,
    ) -> Result<Flow, Fault> {
        let flow = self.resolve_topic(now, id, session_id, &publish);
        if !matches!(flow, Ok(Flow::Requeue)) {
            let telemetry = &mut self.telemetry;
            telemetry.received_publish(publish.payload.len());
        }
        flow
    }

    fn resolve_topic(
        &mut self,
        now: Instant,
        id: ConnectionId,
        session_id: SessionId,
        publish: &Publish<'_>,
    ) -> Result<Flow, Fault> {
        if publish.properties.is_empty() && !publish.topic.is_empty() {
            let topic = TopicName::parse(publish.topic).map_err(invalid_topic)?;
            return self.take_named(now, id, session_id, publish, topic);
        }
        check_properties(publish)?;
        // The table of aliases lends the topic, so it is taken off its connection meanwhile.
        let Some(connection) = self.connections.get_mut(id) else {
            return Ok(Flow::Done);
        };
        let mut aliases = connection.take_aliases();
        let taken = match aliases.as_deref_mut() {
            Some(table) => match table.resolve(publish.topic, publish.properties.topic_alias()) {
                Ok(topic) => self.take_named(now, id, session_id, publish, topic),
                Err(error) => Err(Fault {
                    reason: error.reason(),
                    detail: error.to_string().into(),
                }),
            },
            None => TopicName::parse(publish.topic)
                .map_err(invalid_topic)
                .and_then(|topic| self.take_named(now, id, session_id, publish, topic)),
        };
        if let Some(connection) = self.connections.get_mut(id) {
            connection.restore_aliases(aliases);
        }
        taken
    }

    /// On its whole topic, with the mount of its client.
    pub(super) fn take_checked(
        &mut self,
        now: Instant,
        id: ConnectionId,
        session_id: SessionId,
        publish: &Publish<'_>,
        topic: TopicName<'_>,
    ) -> Result<Flow, Fault> {
        if self.telemetry.tracer.is_on() {
            return self.take_in_trace(now, id, session_id, publish, topic);
        }
        self.take_in(now, id, session_id, publish, topic)
    }

    /// Shows the packet in traces, once although it may be put back.
    #[cold]
    fn take_in_trace(
        &mut self,
        now: Instant,
        id: ConnectionId,
        session_id: SessionId,
        publish: &Publish<'_>,
        topic: TopicName<'_>,
    ) -> Result<Flow, Fault> {
        let before = self.telemetry.tracer.waiting();
        self.trace_publish(session_id, publish, topic);
        let flow = self.take_in(now, id, session_id, publish, topic);
        if matches!(flow, Ok(Flow::Requeue)) {
            self.telemetry.tracer.put_back(before);
        }
        flow
    }

    fn take_in(
        &mut self,
        now: Instant,
        id: ConnectionId,
        session_id: SessionId,
        publish: &Publish<'_>,
        topic: TopicName<'_>,
    ) -> Result<Flow, Fault> {
        check_topic(&self.options.limits, topic)?;
        if self.must_wait(now, id, topic) {
            return Ok(Flow::Requeue);
        }
        let again = self.came_again(id, publish, topic.as_str());
        let flow = self.take_publish(now, id, session_id, publish, topic.as_str());
        if let Some(again) = again
            && !matches!(flow, Ok(Flow::Requeue))
        {
            self.telemetry.received_again(again);
        }
        flow
    }

    /// How a message came that its client had sent before; `None` of the audit's own traffic.
    fn came_again(
        &mut self,
        id: ConnectionId,
        publish: &Publish<'_>,
        topic: &str,
    ) -> Option<Again> {
        publish.packet_id?;
        let connection = self.connections.get_mut(id)?;
        if !publish.dup {
            connection.note_new();
            return None;
        }
        let again = if connection.repeats() {
            Again::AfterReconnect
        } else {
            Again::OnOneConnection
        };
        (!self.audit.topics().is_aside(topic)).then_some(again)
    }

    fn take_publish(
        &mut self,
        now: Instant,
        id: ConnectionId,
        session_id: SessionId,
        publish: &Publish<'_>,
        name: &str,
    ) -> Result<Flow, Fault> {
        let Some(session) = self.sessions.get_mut(session_id) else {
            return Ok(Flow::Done);
        };
        let mut instead_of = None;
        if let Some(packet_id) = publish.packet_id {
            let arrival = session.inbound.handle_publish(publish.qos, packet_id);
            if !matches!(arrival, Ok(Arrival::New)) {
                match repeated(session, &self.gate, publish, arrival)? {
                    Repeated::Instead => instead_of = Some(packet_id),
                    Repeated::InProgress => return Ok(Flow::Done),
                    Repeated::Again(until) => {
                        let again = Answer::PubRec(packet_id, ReasonCode::Success);
                        self.deliverer(now).answer(id, until, again);
                        return Ok(Flow::Done);
                    }
                }
            }
        }
        // What it gets of this itself leaves behind the answer.
        let receives = publish.packet_id.is_some() && !session.subscriptions.is_empty();
        let publisher = match self.scratch.publisher.take() {
            Some(last) if Arc::ptr_eq(&last, &session.client_id) => last,
            _ => Arc::clone(&session.client_id),
        };
        let is_marked = publish.qos == QoS::ExactlyOnce && session.is_durable();
        let mut scratch = std::mem::take(&mut self.scratch.properties);
        let publication = publication_of(publish, name, now, &mut scratch);
        let marker = if is_marked {
            self.marker(publish, name)
        } else {
            None
        };
        let is_expected = marker.is_some() && self.options.shards > 1 && self.is_shared(name);
        let mut is_reserved = false;
        let mut stamped = std::mem::take(&mut self.scratch.stamped);
        let mut item = Item::borrowed(publication, Some(&publisher));
        if self.options.settings.durable && publish.qos > QoS::AtMostOnce {
            item.storing = Storing::IfWanted(marker);
            item.is_awaited = true;
            item.is_expected = is_expected;
        }
        if let Some(packet_id) = instead_of {
            self.release_lost(session_id, packet_id, &mut item);
        }
        let outcome = match self.judge(id, session_id, &mut item, publish) {
            Judged::PutBack => Ok(None),
            Judged::Refused(why) => self
                .refuse_publish(now, id, session_id, &item, publish, &why)
                .map(Some),
            Judged::TakenIn => {
                if receives {
                    self.connections.reserve_answer(id);
                    is_reserved = true;
                }
                let again = publish.dup;
                let outcome = self.accept(now, id, session_id, again, &mut item, &mut stamped);
                Ok(Some(outcome))
            }
        };
        item.finish(&mut self.deliveries);
        self.scratch.stamped = stamped;
        self.scratch.properties = scratch;
        self.scratch.publisher = Some(publisher);
        let Some(outcome) = outcome? else {
            return Ok(Flow::Requeue);
        };
        self.answer_publish(now, id, publish, &outcome, is_reserved)
    }

    /// With what a message of QoS 2 is stored: its client, coming back under this id, is recognized
    /// after a restart too [MQTT-4.3.3-10].
    fn marker(&mut self, publish: &Publish<'_>, name: &str) -> Option<Marker> {
        let packet_id = publish.packet_id?;
        let retained_elsewhere = publish.retain && !self.keeps_retained(name);
        let retained = retained_elsewhere.then(|| Errand {
            from: self.options.id,
            to: placement::of_topic(name, self.options.shards),
            number: self.numbers.issue(),
        });
        Some(Marker {
            packet_id,
            retained,
        })
    }

    /// Whatever becomes of the message that came under this id, a restart must not take the next
    /// for a repetition. Of a store that has failed nothing is promised.
    #[cold]
    fn release_lost(&mut self, session_id: SessionId, packet_id: PacketId, item: &mut Item<'_>) {
        let Self { sessions, gate, .. } = self;
        if !gate.has_failed()
            && let Some(session) = sessions.get_mut(session_id)
        {
            item.wait_for(session.release(session_id, gate, packet_id));
        }
    }

    /// `is_reserved`: the answer has its place.
    #[inline]
    fn answer_publish(
        &mut self,
        now: Instant,
        id: ConnectionId,
        publish: &Publish<'_>,
        outcome: &Outcome,
        is_reserved: bool,
    ) -> Result<Flow, Fault> {
        // [MQTT-3.3.4-1, MQTT311-3.3.4-1]: QoS 0 has no packet id, and is not answered.
        if let Some(packet_id) = publish.packet_id {
            let reason = self.expressible(id, outcome.reason);
            let answer = match publish.qos {
                QoS::ExactlyOnce => Answer::PubRec(packet_id, reason), // [MQTT-4.3.3-8]
                _ => Answer::PubAck(packet_id, reason),                // [MQTT-4.3.2-4]
            };
            if is_reserved {
                self.deliverer(now)
                    .answer_reserved(id, outcome.until, answer);
            } else {
                self.deliverer(now).answer(id, outcome.until, answer);
            }
        }
        if outcome.is_last {
            // Behind the acknowledgement: its client does not send the message again.
            return Err(denied());
        }
        Ok(Flow::Done)
    }

    /// Whether a message is taken in. One that is to be retained has its room then.
    fn judge(
        &mut self,
        id: ConnectionId,
        session_id: SessionId,
        item: &mut Item<'_>,
        publish: &Publish<'_>,
    ) -> Judged {
        let refusal = match self.refusal(item, session_id) {
            Some(refusal) => refusal,
            None => match self.claim_room(id, item) {
                RetainRoom::Known(Ok(reserved)) => {
                    item.reserved = reserved;
                    return Judged::TakenIn;
                }
                RetainRoom::Known(Err(full)) => Refusal {
                    why: DropReason::RetainedFull,
                    full: full.share(item.address),
                },
                RetainRoom::Asked => {
                    self.forget_arrival(session_id, publish.packet_id);
                    return Judged::PutBack;
                }
            },
        };
        if self.must_answer_first(id, publish, refusal.why) {
            self.put_back(id, session_id, publish.packet_id);
            return Judged::PutBack;
        }
        Judged::Refused(refusal)
    }

    /// Room for the message, if it is to be retained and its acknowledgement promises that.
    #[inline]
    fn claim_room(&mut self, id: ConnectionId, item: &mut Item<'_>) -> RetainRoom {
        let publication = &item.publication;
        let Some(client) = item.publisher.filter(|_| publication.retain) else {
            return RetainRoom::Known(Ok(None));
        };
        let connection = self.connections.get(id);
        item.address = connection.and_then(Connection::network);
        if publication.qos == QoS::AtMostOnce || publication.payload.is_empty() {
            return RetainRoom::Known(Ok(None));
        }
        self.room_to_retain(id, publication, client)
    }

    /// Why a message is not taken in, if so: its client may not publish it, or there is no room to
    /// keep it.
    fn refusal(&mut self, item: &Item<'_>, publisher: SessionId) -> Option<Refusal> {
        let (topic, properties) = (item.publication.topic, item.publication.properties);
        let terms = (item.publication.qos, item.publication.retain);
        let mounted = self.mount_points.are_in_use();
        let own_topic = self.own_topic(publisher, topic);
        if self.access.publish(publisher, topic, terms).is_denied()
            || self.poses_as_record(topic, properties)
            || mounted && self.leaves_mount(publisher, topic)
            || self.auditor(item.publication.stamp).is_another_users(
                publisher,
                &item.publication,
                own_topic,
            )
        {
            let why = DropReason::NotAuthorized;
            return Some(Refusal { why, full: None });
        }
        if let Some(why) = self.store_refuses()
            && !matches!(item.storing, Storing::No)
            && self.needs_disk(item)
        {
            return Some(Refusal { why, full: None });
        }
        if !self.has_room_for_copy(item, publisher) {
            let session = self.sessions.get(publisher);
            let full = session.map(|session| Arc::clone(&session.client_id));
            let why = DropReason::QueueFull;
            return Some(Refusal { why, full });
        }
        if self.options.limits.queue_full == QueueFull::DropOldest {
            return None;
        }
        let full = self.full_receiver(item, publisher)?;
        let why = DropReason::QueueFull;
        Some(Refusal {
            why,
            full: Some(full),
        })
    }

    /// Whether a client's message poses as a record of the broker's.
    #[inline]
    pub(super) fn poses_as_record(&self, topic: &str, properties: Properties<'_>) -> bool {
        let mounted = self.mount_points.are_in_use();
        poses_as_record(self.audit.topics(), topic, properties, mounted)
    }

    /// Whether the publisher may have another copy of a retained message on disk, if it is to have
    /// one of this.
    fn has_room_for_copy(&self, item: &Item<'_>, publisher: SessionId) -> bool {
        let (qos2_pending, limits) = (self.gate.qos2_pending(), &self.options.limits);
        copied_with(&item.storing).is_none()
            || qos2_pending.has_room(limits, publisher, item.publication.cost())
    }

    /// Whether somebody keeps this message of QoS 1 or 2.
    #[cold]
    fn needs_disk(&mut self, item: &Item<'_>) -> bool {
        let publication = &item.publication;
        let Ok(topic) = TopicName::parse(publication.topic) else {
            return false;
        };
        let sessions = &self.sessions;
        let stays = |id: SessionId| sessions.get(id).is_some_and(Session::is_durable);
        let route = self.router.route(topic);
        let mut receivers = route.receivers.iter();
        // Forgetting a retained message makes room, where there is anything to write to.
        publication.retain && (!publication.payload.is_empty() || self.gate.has_failed())
            || route.staying != 0
            || route.groups.iter().any(|group| self.groups.keeps(*group))
            || receivers.any(|to| to.qos > QoS::AtMostOnce && stays(to.session))
    }

    /// The item stays where it was made: it is large to move. `stamped`: holds its properties, if
    /// they get a stamp.
    fn accept<'a>(
        &mut self,
        now: Instant,
        id: ConnectionId,
        session_id: SessionId,
        again: bool,
        item: &mut Item<'a>,
        stamped: &'a mut PropertyBuf,
    ) -> Outcome {
        let publication = &mut item.publication;
        let said_on = self.own_topic(session_id, publication.topic);
        let own = self
            .auditor(now)
            .verify_publisher(session_id, again, publication, said_on);
        self.auditor(now).put_mark(session_id, publication, stamped);
        // [MQTT-3.3.1-8, MQTT311-3.3.1-12]
        if publication.retain {
            if let Some(packet_id) = copied_with(&item.storing) {
                let bytes = publication.cost();
                let qos2_pending = self.gate.qos2_pending_mut();
                qos2_pending.keep(session_id, packet_id, bytes);
            }
            let qos = publication.qos;
            self.retain(now, item, qos);
        }
        let wanted = self.route(now, item, Some(session_id));
        if let Storing::IfWanted(Some(marker)) = item.storing {
            let message = |errand| (errand, item.message(&mut self.deliveries));
            let retained = marker.retained.map(message);
            let marker = |client_id| Record::Marker {
                client_id,
                packet_id: marker.packet_id,
                retained,
            };
            let Self { sessions, gate, .. } = self;
            if let Some(session) = sessions.get_mut(session_id) {
                item.wait_for(session.persist(gate, marker));
            }
        }
        if item.is_expected {
            item.note_groups(&mut self.gate);
        }
        if item.is_fanned_out {
            self.wait_for_fan_out(now, id, item);
        }
        self.auditor(now).note_lane_snapshot(session_id, item, own);
        let until = item.until;
        let reason = if wanted {
            ReasonCode::Success
        } else {
            ReasonCode::NoMatchingSubscribers
        };
        Outcome {
            reason,
            until,
            is_last: false,
        }
    }

    /// A message goes to very many: its acknowledgement waits until all have it, and so does what
    /// else its publisher sends, if much is under way.
    #[cold]
    fn wait_for_fan_out(&mut self, now: Instant, id: ConnectionId, item: &mut Item<'_>) {
        let is_answered = item.publication.qos > QoS::AtMostOnce;
        let token = is_answered.then(|| self.expect_settled(item));
        self.deliverer(now).note_publisher(id, token);
    }

    /// A client before 5.0 cannot be told why: it gets its acknowledgement, and the log has the
    /// reason [MQTT311-3.3.5-2].
    fn expressible(&self, id: ConnectionId, reason: ReasonCode) -> ReasonCode {
        let connection = self.connections.get(id);
        let v5 = connection.is_some_and(|connection| connection.version().has_properties());
        if v5 { reason } else { ReasonCode::Success }
    }
}

/// What a PUBLISH is whose packet id was in use.
enum Repeated {
    /// New, in place of one whose release the store may have lost.
    Instead,
    /// Its answer is still to come.
    InProgress,
    /// It was answered before, and is answered again when this is true; it is not delivered again.
    Again(WaitFor),
}

#[cold]
fn repeated(
    session: &mut Session,
    gate: &CommitGate,
    publish: &Publish<'_>,
    arrival: Result<Arrival, ReceiveMaximumExceeded>,
) -> Result<Repeated, Fault> {
    let Some(packet_id) = publish.packet_id else {
        return Ok(Repeated::InProgress);
    };
    match arrival {
        Ok(Arrival::New | Arrival::Instead) => Ok(Repeated::Instead),
        // The store may have lost that this id was released. [MQTT-3.3.1-1]
        Ok(Arrival::Duplicate) if session.inbound.settle_doubt(packet_id, publish.dup) => {
            Ok(Repeated::Instead)
        }
        // [MQTT-4.3.3-10]
        Ok(Arrival::Duplicate) => Ok(Repeated::Again(session.deferred_pubrec(gate, packet_id))),
        Ok(Arrival::InProgress) => Ok(Repeated::InProgress),
        // [MQTT-3.3.4-7]
        Err(exceeded) => Err(Fault {
            reason: ReasonCode::ReceiveMaximumExceeded,
            detail: exceeded.to_string().into(),
        }),
    }
}

/// A message as its publisher sent it. `scratch` holds its properties, if some are left out.
#[inline]
fn publication_of<'a>(
    publish: &Publish<'a>,
    topic: &'a str,
    now: Instant,
    scratch: &'a mut PropertyBuf,
) -> Publication<'a> {
    let properties = publish.properties;
    let expires = properties.message_expiry_interval();
    Publication {
        topic,
        properties: message::forwarded_properties(properties, scratch),
        payload: publish.payload,
        qos: publish.qos,
        retain: publish.retain,
        expires: expires.map(|seconds| now + Duration::from_secs(seconds.into())),
        stamp: now,
        mark: None,
    }
}

/// The packet id with which a copy of this message is kept until it is released, if so.
fn copied_with(storing: &Storing) -> Option<PacketId> {
    match storing {
        Storing::IfWanted(Some(marker)) => marker.retained.map(|_| marker.packet_id),
        _ => None,
    }
}

/// What becomes of a message that a client sends.
enum Judged {
    TakenIn,
    Refused(Refusal),
    /// It is looked at again later.
    PutBack,
}

/// What the publisher is told, and when.
struct Outcome {
    reason: ReasonCode,
    until: WaitFor,
    /// Its connection ends behind the answer.
    is_last: bool,
}
