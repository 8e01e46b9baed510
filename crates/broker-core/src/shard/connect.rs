//! CONNECT: which client may connect, with which session, on which terms.
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

use std::sync::Arc;
use std::time::Instant;

use unbroken_mqtt_proto::connection::keepalive;
use unbroken_mqtt_proto::connection::server::Phase;
use unbroken_mqtt_proto::{
    ConnAck, Connect, Frame, Packet, Property, PropertyBuf, QoS, ReasonCode, Version,
};

use super::{places::no_place, store};
use crate::audit::ledger::Ledger;
use crate::audit::rule::rules_of;
use crate::connection::{
    Caller, ConnectRequest, Connection, Terms, check_connect, response_prefix,
};
use crate::durability::{Record, Will};
use crate::ids::{ConnectionId, SessionId, ShardId};
use crate::input::Admission;
use crate::limits::{PATIENCE_WITHOUT_PLACE, WINDOW_INITIAL};
use crate::message::add;
use crate::output::{Credentials, Output};
use crate::placement;
use crate::policy::{Ceiling, Subject};
use crate::reason::{DropReason, Fault};
use crate::session::Session;
use crate::settings::ShardOptions;
use crate::shard::Shard;
use crate::shares::Full;
use crate::telemetry::Event;
use crate::timers::Timer;

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
            && let Some(connection) = self.connections.get_mut(id)
        {
            connection.greet(claimed);
        }
        let connect = Connect::decode_first(frame)?;
        let Some(connection) = self.connections.get(id) else {
            return Ok(());
        };
        let peer = connection.peer();
        let user = peer.certificate.as_deref().or(connect.user_name);
        let rules = self.client_id_rules(peer.listener);
        let client_id = match rules.id(connect.client_id, user) {
            Ok(client_id) => Arc::<str>::from(client_id),
            Err(fault) => {
                self.refuse(now, id, Caller::of(&connect), fault);
                return Ok(());
            }
        };
        let home = self.home_of(&client_id);
        if home != self.options.id {
            self.move_connection(id, home, rest);
            return Ok(());
        }
        let Some(connection) = self.connections.get_mut(id) else {
            return Ok(());
        };
        connection.note_connect(connect.properties.maximum_packet_size(), connect.bridge);
        // Refused is closed. [MQTT-3.1.4-2] [MQTT-3.1.3-8, MQTT311-3.1.3-9]
        if let Err(fault) = check_connect(&connect, &self.options.limits) {
            self.refuse(now, id, Caller::of(&connect), fault);
            return Ok(());
        }
        // It has done its part: the decision has a time of its own. One that finds no place is
        // refused behind it, so that only a client that may come in learns whether its id has one.
        let mut until = now + self.options.limits.connect_timeout;
        if self.take_place(id).is_err() {
            until = until.min(now + PATIENCE_WITHOUT_PLACE);
        }
        let Some(connection) = self.connections.get_mut(id) else {
            return Ok(());
        };
        let request = Box::new(ConnectRequest::of(&connect, &client_id));
        if let Some(method) = connect.properties.authentication_method() {
            connection.begin_enhanced(method);
        }
        let data = connect.properties.authentication_data();
        let credentials = Credentials {
            client_id: Arc::clone(&request.client_id),
            user_name: request.user_name.clone(),
            password: connect.password.map(Into::into),
            step: connection
                .enhanced()
                .map(|enhanced| enhanced.step(data, false)),
            peer: connection.peer().clone(),
        };
        connection.await_decision(until, request);
        self.connections.count(id);
        self.outputs.push_back(Output::Authenticate {
            connection: id,
            until,
            credentials,
        });
        Ok(())
    }

    /// A packet cannot be read whole: its sender is answered if it is a CONNECT that names a
    /// version.
    #[cold]
    pub(crate) fn greet_early(&mut self, id: ConnectionId, bytes: &[u8]) {
        let length_end = bytes.iter().skip(1).position(|byte| byte & 0x80 == 0);
        let (Some(&first_byte), Some(length_end)) = (bytes.first(), length_end) else {
            return;
        };
        let frame = Frame {
            first_byte,
            bytes,
            body: &bytes[length_end + 2..],
        };
        if let Some(connection) = self.connections.get_mut(id)
            && connection.phase() == Phase::AwaitConnect
            && let Some(claimed) = Connect::claimed_version(frame)
        {
            connection.greet(claimed);
        }
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
        self.outputs.push_back(Output::Move {
            connection,
            to,
            unread: unread.to_vec(),
        });
    }

    /// Whether this client waits for the driver's decision, and has sent nothing behind CONNECT.
    pub fn has_only_connected(&self, id: ConnectionId) -> bool {
        let found = self.connections.get(id);
        found.is_some_and(|it| it.is_being_decided() && it.has_used_all())
    }

    /// The driver has decided: lets the client in or refuses it.
    pub(crate) fn handle_admission(
        &mut self,
        now: Instant,
        id: ConnectionId,
        admission: Admission,
    ) {
        let Some(connection) = self.connections.get_mut(id) else {
            return;
        };
        let Some(mut request) = connection.take_request() else {
            return self.handle_readmission(now, id, admission);
        };
        match admission {
            Admission::Granted(mut grant) => {
                let proof = grant.proof.take();
                connection.identify(grant);
                self.show_proof(id, proof);
                self.admit(now, id, &mut request);
                self.show_proof(id, None);
                self.watch_grant(id);
                self.consume_unread(now, id);
                self.connections.count(id);
            }
            // [MQTT-3.1.4-2] [MQTT-4.12.0-4]
            Admission::Refused { reason, detail } => {
                let fault = Fault { reason, detail };
                self.refuse(now, id, request.caller(), fault);
            }
        }
    }

    /// A connection that was let in for a time ends with it.
    pub(crate) fn watch_grant(&mut self, id: ConnectionId) {
        let until = self.connections.get(id).and_then(Connection::vouched_until);
        if let Some(until) = until {
            self.timers.set(until, Timer::Grant(id));
        }
    }

    fn admit(&mut self, now: Instant, id: ConnectionId, request: &mut ConnectRequest) {
        let client_id = if request.has_no_id() {
            self.assign_client_id().into() // [MQTT-3.1.3-6, MQTT311-3.1.3-6]
        } else {
            Arc::clone(&request.client_id)
        };
        let (subject, mount) = match self.judge_connect(id, &client_id, request) {
            Ok(rights) => rights,
            Err(fault) => return self.refuse(now, id, request.caller_as(client_id), fault),
        };
        let terms = self.agree(request, subject.as_deref());
        let Some(announced) = self.announced(id, request, &client_id, terms) else {
            let fault = Fault::new(
                ReasonCode::PacketTooLarge,
                "the client takes no packet as long as a CONNACK with what it has to know",
            );
            return self.refuse(now, id, request.caller_as(client_id), fault);
        };
        if self.store_is_needed(now, &client_id, request, terms.expiry_s) {
            let fault = Fault::new(ReasonCode::ServerUnavailable, store::DETAIL);
            return self.refuse(now, id, request.caller_as(client_id), fault);
        }
        // The id is all that a session is found by. [MQTT-3.1.3-2, MQTT311-3.1.3-2]
        // From here on one that was assigned is like any other. [MQTT-3.1.3-7]
        let existing = self.sessions.find(&client_id);
        if let Err(full) = self.inherit_place(id, existing) {
            return self.refuse(now, id, request.caller_as(client_id), no_place(full));
        }
        if let Some(session) = existing {
            self.take_over(now, session);
        }
        self.end_orphan(now, &client_id);
        // A takeover may have ended the session.
        let mut existing = self.sessions.find(&client_id);
        if let Some(session) = existing {
            self.deliverer(now).catch_up(session);
        }
        // [MQTT-3.1.4-4, MQTT311-3.1.4-3, MQTT311-3.1.2-6]
        if let Some(session) = existing
            && (request.clean_start || self.is_of_other_mount(session, mount.as_ref()))
        {
            existing = None;
            self.end_session(now, session, DropReason::SessionEnded); // [MQTT-3.1.2-4]
        }
        // [MQTT-3.2.2-2, MQTT-3.2.2-3] [MQTT311-3.2.2-1, MQTT311-3.2.2-2, MQTT311-3.2.2-3]
        let present = existing.is_some();
        // [MQTT-3.1.2-5, MQTT311-3.1.2-4] [MQTT-3.1.2-6, MQTT311-3.1.2-4]
        let session_id = match existing.map_or_else(|| self.new_session(id, &client_id), Ok) {
            Ok(session_id) => session_id,
            Err(full) => {
                return self.refuse(now, id, request.caller_as(client_id), no_session(full));
            }
        };
        let will = request.will(now, || self.identity(id, &client_id));
        self.set_mount(session_id, mount);
        self.attach(id, (session_id, present), request, terms, will);
        self.store_will(session_id);
        self.take_subject(now, id, session_id, subject);
        self.accept_connection(now, id, session_id, request, terms);
        self.gate_output(id, session_id, present);
        // [MQTT-3.1.4-5, MQTT311-3.1.4-4]
        let connack = Packet::ConnAck(ConnAck {
            session_present: present && request.version.has_session_present(),
            reason: ReasonCode::Success,
            properties: announced.as_properties(),
        });
        let telemetry = &mut self.telemetry;
        self.connections.send(telemetry, id.index, &connack);
        let sessions = self.sessions.len();
        self.telemetry.connected(sessions);
        self.report_connected(id, client_id, request, present);
        self.rejoin_groups(now, session_id);
        self.pump(now, session_id);
    }

    fn report_connected(
        &mut self,
        id: ConnectionId,
        client_id: Arc<str>,
        request: &ConnectRequest,
        session_present: bool,
    ) {
        let connection = self.connections.get(id);
        let address = connection.and_then(|connection| connection.peer().address);
        let user = connection.and_then(Connection::user).cloned();
        self.event(Event::Connected {
            client_id,
            user,
            address,
            version: request.version,
            session_present,
            keep_alive_s: request.keep_alive,
        });
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
        let Self {
            connections,
            sessions,
            shares,
            gate,
            options: ShardOptions { limits, .. },
            ..
        } = self;
        let Some(session) = sessions.get_mut(session_id) else {
            return;
        };
        let connection = connections.get(id);
        let address = connection.and_then(Connection::network);
        let user = connection.and_then(|connection| connection.user().cloned());
        shares.attach(session, address);
        session.attach(id.index, absence);
        let is_anothers = session.set_user(user.clone());
        let expiry_before = session.set_expiry(terms.expiry_s);
        session.set_will(will); // [MQTT-3.1.2-7, MQTT311-3.1.2-8]
        session.ledger.set_watcher(request.only_verifies);
        session.inbound.set_receive_maximum(match request.version {
            Version::V5 => limits.receive_maximum,
            _ => u16::MAX,
        });
        let wanted = request.receive_maximum.unwrap_or(u16::MAX);
        session
            .outbox
            .set_receive_maximum(wanted.min(limits.inflight_max));
        session.outbox.begin_narrow(WINDOW_INITIAL);
        if terms.expiry_s == 0 && !session.is_behind() {
            session.persist_end(gate);
        } else if self.options.settings.durable
            && (!session.is_durable() || terms.expiry_s != expiry_before || is_anothers)
        {
            session.become_durable(gate.log_ends().all());
            let mount = session.mount().map(|mount| mount.as_str().into());
            let opened = |client_id| Record::SessionOpened {
                client_id,
                expiry_s: terms.expiry_s,
                user,
                mount,
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
        let limits = &self.options.limits;
        let v5 = request.version == Version::V5;
        // As many aliases as the client allows, if any. [MQTT-3.1.2-26, MQTT-3.1.2-27]
        let allowed = request.topic_alias_maximum.unwrap_or(0);
        let aliases_out_max = allowed.min(limits.topic_aliases_out_max);
        let keep_alive = keepalive::limit(request.keep_alive, terms.server_keep_alive);
        let mount = self.sessions.get(session).and_then(Session::mount).cloned();
        let terms = Terms {
            session,
            mount,
            keep_alive,
            aliases_in_max: v5.then_some(limits.topic_aliases_in_max),
            aliases_out_max: if v5 { aliases_out_max } else { 0 },
            announced: terms.ceiling,
        };
        if let Some(connection) = self.connections.get_mut(id) {
            connection.accept(now, &terms);
            if let Some(keep_alive) = keep_alive {
                self.timers.set(now + keep_alive, Timer::KeepAlive(id));
            }
        }
    }

    /// Lets nothing out before what CONNACK says is stored: `present`, that there was a session.
    fn gate_output(&mut self, id: ConnectionId, session_id: SessionId, present: bool) {
        let Self {
            connections,
            sessions,
            gate,
            audit,
            ..
        } = self;
        if present {
            sessions.touch_presence(session_id);
        }
        if let Some(session) = sessions.get_mut(session_id) {
            let request = gate.before_connack(session.asked(), present);
            connections.close_gate(gate, id, request);
            // What it may not have heard is due again.
            if present && session.ledger.repeat_missed() {
                audit.list_missing(session_id);
            }
        }
    }

    /// What the two sides agree on where CONNECT leaves it to the server.
    fn agree(&self, request: &ConnectRequest, subject: Option<&Subject>) -> Agreement {
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
            expiry_s: wanted.min(self.options.limits.session_expiry_max_s),
            server_keep_alive,
            ceiling: subject
                .filter(|_| request.version == Version::V5)
                .map_or(Ceiling::NONE, Subject::ceiling),
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
        let limits = &self.options.limits;
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
        if request.announces_id {
            // [MQTT-3.2.2-16] [MQTT-3.1.3-7]
            let assigned = Property::AssignedClientIdentifier(client_id);
            add(&mut announced, assigned);
        }
        if terms.ceiling.max_qos < QoS::ExactlyOnce {
            add(&mut announced, Property::MaximumQoS(terms.ceiling.max_qos)); // [MQTT-3.2.2-9]
        }
        if !terms.ceiling.retain {
            add(&mut announced, Property::RetainAvailable(false));
        }
        if let Some(seconds) = terms.server_keep_alive {
            add(&mut announced, Property::ServerKeepAlive(seconds)); // [MQTT-3.2.2-21]
        }
        let connection = self.connections.get(id)?;
        if let Some(method) = connection.auth_method() {
            // [MQTT-4.12.0-5]
            add(&mut announced, Property::AuthenticationMethod(method));
            if let Some(proof) = connection.auth_proof() {
                add(&mut announced, Property::AuthenticationData(proof));
            }
        }
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
            if here && self.sessions.find(id.as_str()).is_none() {
                return id;
            }
        }
    }

    fn new_session(&mut self, id: ConnectionId, client_id: &Arc<str>) -> Result<SessionId, Full> {
        let ShardOptions { limits, totals, .. } = &self.options;
        let address = self.connections.get(id).and_then(Connection::network);
        self.shares.take_session(address, totals, limits)?;
        Ok(self.insert_session(client_id))
    }

    /// One that was there before the broker started: it is kept, whatever the limit is now.
    pub(crate) fn old_session(&mut self, client_id: &Arc<str>) -> SessionId {
        self.options.totals.sessions.add(1);
        self.insert_session(client_id)
    }

    fn insert_session(&mut self, client_id: &Arc<str>) -> SessionId {
        let rules = rules_of(client_id, &self.options.settings.audit.rules);
        let (client_id, serial) = (Arc::clone(client_id), self.numbers.issue());
        let session = Session::new(client_id, serial, Ledger::new(rules));
        self.sessions.insert(session)
    }

    /// Disconnects whoever uses this session now [MQTT-3.1.4-3, MQTT311-3.1.4-2].
    fn take_over(&mut self, now: Instant, session: SessionId) {
        if let Some(old) = self.sessions.connection_of(session, &self.connections) {
            let detail = "the client connected again";
            self.disconnect(now, old, Fault::new(ReasonCode::SessionTakenOver, detail));
        }
    }
}

#[derive(Clone, Copy)]
struct Agreement {
    wanted_expiry_s: u32,
    expiry_s: u32,
    server_keep_alive: Option<u16>,
    /// What CONNACK says of how the client may publish.
    ceiling: Ceiling,
}

/// SplitMix64's output function: one-to-one, so that distinct inputs give distinct ids.
fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Room may come again; this connection ends. [MQTT311-4.8.0-2]
fn no_session(full: Full) -> Fault {
    let detail = match full {
        Full::Table => "limits.sessions_max is reached",
        Full::Client | Full::Address => "its address has its share of limits.sessions_max",
    };
    Fault::new(ReasonCode::QuotaExceeded, detail)
}
