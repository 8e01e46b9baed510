//! CONNECT: who comes in, with which session, on which terms; and how a client goes.
//!
//! ```text
//! CONNECT -> checks -> belongs here? -> driver decides -> takeover -> session -> stored -> CONNACK
//!               |               |                        |
//!            CONNACK 0x8n     Move                   CONNACK 0x8n
//! ```
//!
//! Invariants:
//! - A client id has at most one connection and one session in the whole broker [MQTT-3.1.4-3]: it
//!   lives on the shard it hashes to.
//! - What the client sends behind CONNECT is not looked at before CONNACK may leave [MQTT-3.1.4-6].

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use unbroken_mqtt_proto::connection::keepalive;
use unbroken_mqtt_proto::{
    ConnAck, Connect, Frame, Packet, Property, PropertyBuf, ReasonCode, Version,
};

use crate::audit::account::Fate;
use crate::audit::ledger::Ledger;
use crate::audit::rule::rules_of;
use crate::clients::Clients;
use crate::connection::{
    Caller, ConnectRequest, Connection, Terms, check_connect, response_prefix,
};
use crate::durability::{Record, Will};
use crate::ids::{ConnectionId, SessionId, ShardId};
use crate::input::Admission;
use crate::limits::PATIENCE_WITHOUT_PLACE;
use crate::message::add;
use crate::output::{Credentials, Output};
use crate::places::no_place;
use crate::reason::{Disconnection, DropReason, Fault};
use crate::session::{Kept, Session};
use crate::shard::{Shard, keep_unanswered};
use crate::telemetry::Event;
use crate::timers::Timer;
use crate::will::will_of;
use crate::{placement, read_only};

impl Shard {
    /// A CONNECT came: moves the connection to the shard that it is for, or asks the driver to
    /// decide about it. `rest`: what was received, from the beginning of the packet on.
    pub(crate) fn handle_connect(
        &mut self,
        now: Instant,
        id: ConnectionId,
        frame: Frame<'_>,
        rest: &[u8],
    ) -> Result<(), Fault> {
        if let Some(claimed) = Connect::claimed_version(frame)
            && let Some(connection) = self.clients.connections.get_mut(id)
        {
            connection.greet(claimed);
        }
        let connect = Connect::decode_first(frame)?;
        let home = self.home_of(connect.client_id);
        if home != self.options.id {
            self.move_connection(id, home, rest);
            return Ok(());
        }
        let Some(connection) = self.clients.connections.get_mut(id) else {
            return Ok(());
        };
        connection.note_connect(connect.properties.maximum_packet_size(), connect.bridge);
        // Refused is closed. [MQTT-3.1.4-2] [MQTT-3.1.3-8, MQTT311-3.1.3-9]
        if let Err(fault) = check_connect(&connect, &self.clients.limits) {
            self.refuse(now, id, Caller::of(&connect), fault);
            return Ok(());
        }
        // It has done its part: the decision has a time of its own. One that finds no place is
        // refused behind it, so that only a client that may come in learns whether its id has one.
        let mut until = now + self.clients.limits.connect_timeout;
        if self.take_place(id).is_err() {
            until = until.min(now + PATIENCE_WITHOUT_PLACE);
        }
        let Some(connection) = self.clients.connections.get_mut(id) else {
            return Ok(());
        };
        let request = Box::new(ConnectRequest::of(&connect));
        let credentials = Credentials {
            client_id: Arc::clone(&request.client_id),
            user_name: request.user_name.clone(),
            password: connect.password.map(Into::into),
            peer: connection.peer().clone(),
        };
        connection.await_decision(until, request);
        self.clients.outputs.push_back(Output::Authenticate {
            connection: id,
            until,
            credentials,
        });
        Ok(())
    }

    /// The shard that the session of this client is on. An id that this one assigns is chosen to
    /// belong here.
    fn home_of(&self, client_id: &str) -> ShardId {
        match self.options.shards {
            1 => self.options.id,
            _ if client_id.is_empty() => self.options.id,
            shards => placement::of_client(client_id, shards),
        }
    }

    #[cold]
    fn move_connection(&mut self, connection: ConnectionId, to: ShardId, unread: &[u8]) {
        self.forget_connection(connection);
        self.clients.outputs.push_back(Output::Move {
            connection,
            to,
            unread: unread.to_vec(),
        });
    }

    /// The driver has decided: lets the client in or refuses it.
    pub(crate) fn handle_admission(
        &mut self,
        now: Instant,
        id: ConnectionId,
        admission: Admission,
    ) {
        let Some(connection) = self.clients.connections.get_mut(id) else {
            return;
        };
        let Some(request) = connection.take_request() else {
            return;
        };
        match admission {
            Admission::Granted { user } => {
                connection.identify(user);
                self.admit(now, id, &request);
                self.consume_unread(now, id);
            }
            // [MQTT-3.1.4-2]
            Admission::Refused { reason } => {
                let fault = Fault {
                    reason,
                    detail: Cow::Borrowed(reason.name()),
                };
                self.refuse(now, id, request.caller(), fault);
            }
        }
    }

    fn admit(&mut self, now: Instant, id: ConnectionId, request: &ConnectRequest) {
        let client_id = if request.has_no_id() {
            self.assign_client_id().into() // [MQTT-3.1.3-6, MQTT311-3.1.3-6]
        } else {
            Arc::clone(&request.client_id)
        };
        let subject = match self.judge_connect(id, &client_id, request) {
            Ok(subject) => subject,
            Err(fault) => return self.refuse(now, id, request.caller_as(client_id), fault),
        };
        let terms = self.agree(request);
        let Some(announced) = self.announced(id, request, &client_id, terms) else {
            let fault = Fault::new(
                ReasonCode::PacketTooLarge,
                "the client takes no packet as long as a CONNACK with what it has to know",
            );
            return self.refuse(now, id, request.caller_as(client_id), fault);
        };
        if self.store_is_needed(now, &client_id, request, terms.expiry_s) {
            let fault = Fault::new(ReasonCode::ServerUnavailable, read_only::DETAIL);
            return self.refuse(now, id, request.caller_as(client_id), fault);
        }
        // The id is all that a session is found by. [MQTT-3.1.3-2, MQTT311-3.1.3-2]
        // From here on one that was assigned is like any other. [MQTT-3.1.3-7]
        let existing = self.clients.by_client_id.get(&client_id).copied();
        if let Err(full) = self.inherit_place(id, existing) {
            return self.refuse(now, id, request.caller_as(client_id), no_place(full));
        }
        if let Some(session) = existing {
            self.take_over(now, session);
        }
        self.end_orphan(now, &client_id);
        // A takeover may have ended the session.
        let mut existing = self.clients.by_client_id.get(&client_id).copied();
        if let Some(session) = existing {
            self.clients.catch_up(now, session);
        }
        // [MQTT-3.1.4-4, MQTT311-3.1.4-3, MQTT311-3.1.2-6]
        if request.clean_start
            && let Some(session) = existing.take()
        {
            self.end_session(now, session, DropReason::SessionEnded); // [MQTT-3.1.2-4]
        }
        // [MQTT-3.2.2-2, MQTT-3.2.2-3] [MQTT311-3.2.2-1, MQTT311-3.2.2-2, MQTT311-3.2.2-3]
        let present = existing.is_some();
        // [MQTT-3.1.2-5, MQTT311-3.1.2-4] [MQTT-3.1.2-6, MQTT311-3.1.2-4]
        let Some(session_id) = existing.or_else(|| self.new_session(&client_id)) else {
            // Room may come again; this connection ends. [MQTT311-4.8.0-2]
            let fault = Fault::new(ReasonCode::QuotaExceeded, "limits.sessions_max is reached");
            return self.refuse(now, id, request.caller_as(client_id), fault);
        };
        let will = will_of(now, request, &client_id);
        self.attach(id, (session_id, present), request, terms, will);
        self.store_will(session_id);
        self.take_subject(session_id, subject);
        self.accept_connection(now, id, session_id, request, terms);
        self.gate_output(id, session_id, present);
        // [MQTT-3.1.4-5, MQTT311-3.1.4-4]
        let connack = Packet::ConnAck(ConnAck {
            session_present: present && request.version.has_session_present(),
            reason: ReasonCode::Success,
            properties: announced.as_properties(),
        });
        let telemetry = &mut self.clients.telemetry;
        self.clients.connections.send(telemetry, id.index, &connack);
        let sessions = self.clients.by_client_id.len();
        self.clients.telemetry.connected(sessions);
        let connection = self.clients.connections.get(id);
        let address = connection.and_then(|connection| connection.peer().address);
        self.event(Event::Connected {
            client_id,
            address,
            version: request.version,
            session_present: present,
            keep_alive_s: request.keep_alive,
        });
        self.rejoin_groups(now, session_id);
        self.pump(now, session_id);
    }

    /// The session has this connection from now on. `present`: it is not new.
    fn attach(
        &mut self,
        id: ConnectionId,
        (session_id, present): (SessionId, bool),
        request: &ConnectRequest,
        terms: Agreement,
        will: Option<Box<Will>>,
    ) {
        let absence = self.numbers.issue();
        let Clients {
            sessions,
            gate,
            limits,
            ..
        } = &mut self.clients;
        let Some(session) = sessions.get_mut(session_id.index()) else {
            return;
        };
        session.attach(id.index, absence);
        let expiry_before = std::mem::replace(&mut session.expiry_s, terms.expiry_s);
        session.will = will; // [MQTT-3.1.2-7, MQTT311-3.1.2-8]
        session.ledger.set_watcher(request.only_verifies);
        session.inbound.set_receive_maximum(match request.version {
            Version::V5 => limits.receive_maximum,
            _ => u16::MAX,
        });
        let wanted = request.receive_maximum.unwrap_or(u16::MAX);
        session
            .outbound
            .set_receive_maximum(wanted.min(limits.inflight_max));
        if terms.expiry_s == 0 && !session.is_behind() {
            session.persist_end(gate);
        } else if self.options.settings.durable
            && (!session.is_durable() || terms.expiry_s != expiry_before)
        {
            session.stays = true;
            session.kept.get_or_insert_with(|| {
                let ends = gate.log_ends().all();
                Box::new(Kept::new(ends.clone()))
            });
            let opened = |client_id| Record::SessionOpened {
                client_id,
                expiry_s: terms.expiry_s,
                new: !present,
            };
            session.persist(gate, opened);
        }
    }

    fn accept_connection(
        &mut self,
        now: Instant,
        id: ConnectionId,
        session: SessionId,
        request: &ConnectRequest,
        terms: Agreement,
    ) {
        let limits = &self.clients.limits;
        let v5 = request.version == Version::V5;
        // As many aliases as the client allows, if any. [MQTT-3.1.2-26, MQTT-3.1.2-27]
        let allowed = request.topic_alias_maximum.unwrap_or(0);
        let aliases_out_max = allowed.min(limits.topic_aliases_out_max);
        let keep_alive = keepalive::limit(request.keep_alive, terms.server_keep_alive);
        let terms = Terms {
            session,
            keep_alive,
            aliases_in_max: v5.then_some(limits.topic_aliases_in_max),
            aliases_out_max: if v5 { aliases_out_max } else { 0 },
        };
        if let Some(connection) = self.clients.connections.get_mut(id) {
            connection.accept(now, &terms);
            if let Some(keep_alive) = keep_alive {
                self.timers.set(now + keep_alive, Timer::KeepAlive(id));
            }
        }
    }

    /// Lets nothing out before what CONNACK says is stored: `present`, that there was a session.
    fn gate_output(&mut self, id: ConnectionId, session_id: SessionId, present: bool) {
        let Clients {
            connections,
            sessions,
            gate,
            unsaved,
            ..
        } = &mut self.clients;
        if let Some(session) = sessions.get_mut(session_id.index()) {
            if present {
                session.touch_presence(session_id, unsaved);
            }
            let request = gate.before_connack(session.asked, present);
            connections.close_gate(gate, id, request);
        }
        if present {
            self.clients.repeat_missed(session_id);
        }
    }

    /// What the two sides agree on where CONNECT leaves it to the server.
    fn agree(&self, request: &ConnectRequest) -> Agreement {
        let wanted = match request.version {
            Version::V5 => request.session_expiry_s.unwrap_or(0),
            // 3.x knows only "ends with the connection" [MQTT311-3.1.2-6] and "stays"
            // [MQTT311-3.1.2-4].
            Version::V3_1 | Version::V3_1_1 if request.clean_start => 0,
            Version::V3_1 | Version::V3_1_1 => u32::MAX,
        };
        let server_keep_alive = self.options.settings.keep_alive_max_s.filter(|max| {
            request.version == Version::V5 && (request.keep_alive == 0 || request.keep_alive > *max)
        });
        Agreement {
            wanted_expiry_s: wanted,
            expiry_s: wanted.min(self.clients.limits.session_expiry_max_s),
            server_keep_alive,
        }
    }

    /// The properties of CONNACK. None if the client takes no packet long enough for those that it
    /// must know: it would be held to limits that it was not told, or not know its own id.
    fn announced(
        &self,
        id: ConnectionId,
        request: &ConnectRequest,
        client_id: &str,
        terms: Agreement,
    ) -> Option<PropertyBuf> {
        let mut announced = PropertyBuf::new();
        if request.version != Version::V5 {
            return Some(announced);
        }
        let limits = &self.clients.limits;
        if terms.expiry_s != terms.wanted_expiry_s {
            let expiry = Property::SessionExpiryInterval(terms.expiry_s);
            add(&mut announced, expiry);
        }
        let receive_maximum = Property::ReceiveMaximum(limits.receive_maximum);
        add(&mut announced, receive_maximum);
        let packet_bytes_max = Property::MaximumPacketSize(limits.packet_bytes_max);
        add(&mut announced, packet_bytes_max);
        let aliases_max = Property::TopicAliasMaximum(limits.topic_aliases_in_max);
        add(&mut announced, aliases_max);
        if request.has_no_id() {
            // [MQTT-3.2.2-16] [MQTT-3.1.3-7]
            let assigned = Property::AssignedClientIdentifier(client_id);
            add(&mut announced, assigned);
        }
        if let Some(seconds) = terms.server_keep_alive {
            add(&mut announced, Property::ServerKeepAlive(seconds)); // [MQTT-3.2.2-21]
        }
        let connection = self.clients.connections.get(id)?;
        let takes = |properties: &PropertyBuf| {
            connection.takes(&Packet::ConnAck(ConnAck {
                session_present: false,
                reason: ReasonCode::Success,
                properties: properties.as_properties(),
            }))
        };
        if !takes(&announced) {
            return None;
        }
        // It can do without the rest. There is never a Reason String [MQTT-3.2.2-19], and there
        // are never user properties [MQTT-3.2.2-20].
        if request.wants_response_information {
            let prefix = response_prefix(client_id);
            let mut more = announced.clone();
            // One that leaves no room for a topic behind it is of no use.
            if prefix.len() < usize::from(limits.topic_bytes_max) {
                add(&mut more, Property::ResponseInformation(&prefix)); // [MQTT-3.1.2-28]
            }
            if takes(&more) {
                announced = more;
            }
        }
        Some(announced)
    }

    /// An id that nobody has and that belongs to this shard, so that the connection stays where it
    /// is.
    fn assign_client_id(&mut self) -> String {
        loop {
            let number = mix(self.options.seed ^ self.numbers.issue());
            let id = format!("auto-{number:016x}");
            let here = placement::of_client(&id, self.options.shards) == self.options.id;
            if here && !self.clients.by_client_id.contains_key(id.as_str()) {
                return id;
            }
        }
    }

    pub(crate) fn new_session(&mut self, client_id: &Arc<str>) -> Option<SessionId> {
        let max = self.clients.limits.sessions_max.into();
        let has_room = self.options.totals.sessions.try_add(1, max);
        has_room.then(|| self.insert_session(client_id))
    }

    /// One that was there before the broker started: it is kept, whatever the limit is now.
    pub(crate) fn old_session(&mut self, client_id: &Arc<str>) -> SessionId {
        self.options.totals.sessions.add(1);
        self.insert_session(client_id)
    }

    fn insert_session(&mut self, client_id: &Arc<str>) -> SessionId {
        let key = self
            .clients
            .sessions
            .insert(Session::new(Arc::clone(client_id)));
        self.clients.sessions[key].serial = self.numbers.issue();
        let rules = rules_of(client_id, &self.options.settings.audit.rules);
        self.clients.sessions[key].ledger = Ledger::new(rules);
        let id =
            SessionId(u32::try_from(key).expect("sessions_max is a u32, and keys are below it"));
        self.clients.by_client_id.insert(Arc::clone(client_id), id);
        id
    }

    /// Disconnects whoever uses this session now [MQTT-3.1.4-3, MQTT311-3.1.4-2].
    fn take_over(&mut self, now: Instant, session: SessionId) {
        let connection = self
            .clients
            .session_mut(session)
            .and_then(|session| session.connection);
        if let Some(old) = connection
            .and_then(|index| self.clients.connections.at(index))
            .map(Connection::id)
        {
            self.disconnect(
                now,
                old,
                Fault::new(ReasonCode::SessionTakenOver, "the client connected again"),
            );
        }
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
            if let Some(session) = self.clients.session_mut(session_id) {
                let copies = keep_unanswered(session, connection.take_held());
                self.clients.drop_copies(now, session_id, copies);
            }
            self.begin_absence(now, session_id, why);
        }
        Some(connection)
    }

    /// A session has lost its connection.
    fn begin_absence(&mut self, now: Instant, session_id: SessionId, why: Disconnection) {
        self.clients.telemetry.disconnected();
        let absence = self.numbers.issue();
        let Some(session) = self.clients.session_mut(session_id) else {
            return;
        };
        session.connection = None;
        session.away_since = Some(now);
        session.absence = absence;
        session.inbound.handle_disconnected();
        session.outbound.handle_disconnected();
        let stays = session.expiry_s > 0;
        let client_id = Arc::clone(&session.client_id);
        self.clients.retained.handle_disconnected(session_id);
        self.clients.fall_behind(session_id);
        let clients = &mut self.clients;
        if let Some(session) = clients.sessions.get_mut(session_id.index()) {
            session.touch_presence(session_id, &mut clients.unsaved);
        }
        self.event(Event::Disconnected { client_id, why });
        self.announce_to_groups(session_id, false);
        self.schedule_will(now, session_id);
        // [MQTT-4.1.0-2] [MQTT-3.1.2-23]
        if stays {
            self.release_of_absent(now, session_id);
            self.schedule_end(session_id, now);
        } else if !self.is_left_on_disk(session_id) {
            self.end_session(now, session_id, DropReason::SessionEnded);
        }
        let sessions = self.clients.by_client_id.len();
        self.clients.telemetry.note_sessions(sessions);
    }

    pub(crate) fn expire_session(&mut self, now: Instant, id: SessionId, absence: u64) {
        // Never one that is connected. [MQTT-4.1.0-1, MQTT311-4.1.0-1, MQTT311-4.1.0-2]
        let absent = |session: &Session| session.absence == absence && session.connection.is_none();
        let is_absent = self.clients.sessions.get(id.index()).is_some_and(absent);
        if !is_absent || self.is_left_on_disk(id) {
            return;
        }
        if self.end_of(id).is_some_and(|end| end <= now) {
            self.clients.telemetry.session_expired();
            self.end_session(now, id, DropReason::SessionEnded);
        } else {
            // The limit was lower when this timer was set.
            self.schedule_end(id, now);
        }
    }

    /// The limit is lower than before: sessions that sleep end sooner, but not at once.
    pub(crate) fn shorten_absences(&mut self, now: Instant) {
        let sessions = self.clients.sessions.iter();
        let sleeping = sessions.filter(|(_, session)| session.away_since.is_some());
        let ids = sleeping.filter_map(|(key, _)| u32::try_from(key).ok());
        for id in ids.collect::<Vec<_>>() {
            self.schedule_end(SessionId(id), now + GRACE);
        }
    }

    /// Sees to it that a session that has no connection ends in its time, and not before
    /// `earliest`.
    pub(crate) fn schedule_end(&mut self, id: SessionId, earliest: Instant) {
        if let Some(end) = self.end_of(id)
            && let Some(session) = self.clients.sessions.get(id.index())
        {
            let (session, absence) = (id, session.absence);
            let timer = Timer::SessionExpiry { session, absence };
            self.timers.set(end.max(earliest), timer);
        }
    }

    /// When a session that has no connection ends, as the limit is now. `None`: it does not.
    fn end_of(&self, id: SessionId) -> Option<Instant> {
        let session = self.clients.sessions.get(id.index())?;
        let Some(since) = session.away_since else {
            return Some(self.options.start); // of its client there is only a will
        };
        match self.clients.limits.expiry_s(session.expiry_s) {
            u32::MAX => None,
            seconds => Some(since + Duration::from_secs(seconds.into())),
        }
    }

    /// Forgets a session that has no connection: its will is due, its subscriptions end, what
    /// waited in it is handed over or named as dropped.
    pub(crate) fn end_session(&mut self, now: Instant, id: SessionId, reason: DropReason) {
        // The session's end makes a delayed will due [MQTT-3.1.2-8]. On disk it is there as long as
        // the session.
        self.publish_will(now, id);
        self.clients.catch_up(now, id);
        let (unread, uncounted_of) = self.clients.drop_backlog(id);
        self.end_fullness(id);
        let Clients { sessions, gate, .. } = &mut self.clients;
        let session = sessions.get_mut(id.index());
        let was_kept = session.is_some_and(|session| {
            let was_kept = session.is_durable();
            session.persist_end(gate);
            was_kept
        });
        self.unsubscribe_all(id);
        let Some(mut session) = self.clients.sessions.try_remove(id.index()) else {
            return;
        };
        debug_assert!(
            session.connection.is_none(),
            "a session ends after its connection"
        );
        self.clients.by_client_id.remove(&session.client_id);
        self.clients.gate.qos2_pending_mut().end(id);
        self.clients.access.end(id);
        self.options.totals.sessions.subtract(1);
        self.clients.telemetry.unqueued(session.queue_bytes);
        let client_id = Arc::clone(&session.client_id);
        let telemetry = &mut self.clients.telemetry;
        telemetry.report_drops(now, &mut session.drops);
        let mut lost = Vec::new();
        let waiting: Vec<_> = session.drain().collect();
        let mut fates = Vec::with_capacity(waiting.len());
        for (qos, sent, delivery) in waiting {
            let number = delivery.number;
            // A QoS 2 message that has left may have arrived: no other member may get it
            // [MQTT-4.8.2-5].
            let may_go_on = qos != unbroken_mqtt_proto::QoS::ExactlyOnce || !sent;
            let group = delivery.group.clone().filter(|_| may_go_on);
            fates.push((number, Fate::at_the_end(sent, group.is_some())));
            match group {
                Some(group) => self.hand_over(now, &group, delivery, was_kept),
                None => lost.push(delivery),
            }
        }
        let undelivered = self.clients.drop_all(&client_id, lost, reason) + unread;
        let telemetry = &mut self.clients.telemetry;
        let ledger = &mut session.ledger;
        let aside = ledger.refused_entries(telemetry.audit(), unread);
        telemetry.dropped_together(&client_id, "", reason, (unread, aside));
        let findings = self.clients.audit.findings();
        ledger.close(&client_id, &fates, telemetry.audit(), findings);
        self.end_lane(now, &client_id, session.ledger.take_lane());
        let sessions = self.clients.by_client_id.len();
        self.clients.telemetry.note_sessions(sessions);
        self.event(Event::SessionEnded {
            client_id,
            undelivered,
            uncounted_of,
        });
    }
}

#[derive(Clone, Copy)]
struct Agreement {
    wanted_expiry_s: u32,
    expiry_s: u32,
    server_keep_alive: Option<u16>,
}

/// SplitMix64's output function: one-to-one, so that distinct inputs give distinct ids.
fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A session whose client could not come, or could not know that it had to, is there for at least
/// so long.
pub(crate) const GRACE: Duration = Duration::from_secs(10);
