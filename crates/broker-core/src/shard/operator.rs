//! What is decided outside the clients: an operator's questions and orders, other limits, and the
//! [policy](crate::policy), with what becomes of a denial.
//!
//! A denied PUBLISH and a denied will are dropped by name, a denied filter is refused, and a client
//! that may not connect is refused or disconnected. A message that a session of its route may not
//! receive is an expected delivery that was dropped by name, so that accounts and receivers' proofs
//! hold. What waits for a session is judged when it leaves: then the client is known, and the
//! policy that is in force. A session that catches up counts a denied message like any other, since
//! it will find it in the log, and drops it then.

use std::sync::Arc;
use std::time::Instant;

use unbroken_mqtt_proto::{Properties, QoS, ReasonCode, TopicName};

use crate::client_ids::{ClientIdRules, ClientIdSource};
use crate::connection::{ConnectRequest, Connection, check_will_topic};
use crate::delivery::{Item, Storing};
use crate::ids::{ConnectionId, SessionId};
use crate::input::{Clients, Forget, Operation, OwnMessage};
use crate::limits::Limits;
use crate::message::Publication;
use crate::policy::{Identity, Mount, Policy, Subject, Verdict, is_reserved, lies_in};
use crate::reason::{DropReason, Fault};
use crate::session::SleepingSession;
use crate::shard::Shard;
use crate::shard::mount::response_too_long;
use crate::telemetry::{AuditTotals, SleepingTotals, Stats};

/// Operators.
impl Shard {
    /// What this shard has counted.
    pub fn stats(&self) -> &Stats {
        self.telemetry.stats()
    }

    /// By how much the accounts of what sessions are owed do not balance, and what they do not come
    /// to together: 0 at any time, between two inputs. Costs a look at everything that waits.
    pub fn audit_imbalance(&self) -> u64 {
        self.sessions.imbalance(&self.stats().audit)
    }

    /// Deliveries that are in the queue of their session, or were: on disk where it is one that
    /// stays. Costs a look at everything that waits for such sessions.
    pub fn audit_stored(&self) -> u64 {
        let audit = AuditTotals {
            unstored: self.sessions.unstored(self.gate.log_ends().on_disk()),
            ..self.stats().audit
        };
        audit.shown_stored()
    }

    /// Sessions of this shard whose clients are away, in no order. Costs a look at all sessions.
    pub fn sleeping(&self, now: Instant) -> impl Iterator<Item = SleepingSession> + '_ {
        let log_ends = self.gate.log_ends().all();
        self.sessions.sleeping(now, &self.options.limits, log_ends)
    }

    pub(crate) fn sleeping_totals(&self, now: Instant) -> SleepingTotals {
        let log_ends = self.gate.log_ends().all();
        let limits = &self.options.limits;
        self.sessions.sleeping_totals(now, limits, log_ends)
    }

    /// Whether this client is connected to this shard.
    pub fn is_connected(&self, client_id: &str) -> bool {
        let id = self.sessions.find(client_id);
        id.is_some_and(|id| self.sessions.connection_of(id, &self.connections).is_some())
    }

    /// Why an operator's message is not taken in, if so. While the store takes nothing, that is
    /// every message that might have to be stored.
    pub fn refuses(&self, message: &OwnMessage) -> Option<DropReason> {
        let limits = &self.options.limits;
        let levels_max = usize::from(limits.topic_levels_max);
        let is_allowed = match TopicName::parse(&message.topic) {
            Ok(topic) => {
                message.topic.len() <= usize::from(limits.topic_bytes_max)
                    && topic.levels().count() <= levels_max
                    && !is_reserved(&message.topic)
            }
            Err(_) => false,
        };
        if !is_allowed {
            return Some(DropReason::NotAuthorized);
        }
        let may_be_stored = message.retain || message.qos > QoS::AtMostOnce;
        (self.options.settings.durable && may_be_stored)
            .then(|| self.store_refuses())
            .flatten()
    }

    pub(crate) fn operate(&mut self, now: Instant, operation: &Operation) {
        match operation {
            Operation::Forget(Forget::Session { client_id }) => self.forget_session(now, client_id),
            Operation::Forget(Forget::Retained { topic }) => self.forget_retained(topic),
            Operation::Disconnect { client_id } => {
                self.disconnect_client(now, client_id, "an operator ended the connection");
            }
            Operation::Ban(clients) => self.end_banned(now, clients),
            Operation::Publish(message) => self.publish_own(now, message),
        }
    }

    /// Puts other limits in force.
    pub(crate) fn reconfigure(&mut self, now: Instant, limits: Limits) {
        let before = self.options.limits.session_expiry_max_s;
        let patience_before = self.options.limits.rate_patience;
        self.options.limits.clone_from(&limits);
        self.options.limits = limits;
        self.sessions.note_limits(&self.options.limits);
        self.connections.set_limits(&self.options.limits);
        if self.options.limits.session_expiry_max_s < before {
            self.shorten_absences(now);
        }
        if self.options.limits.rate_patience != patience_before {
            self.recheck_rates(now);
        }
    }

    fn disconnect_client(&mut self, now: Instant, client_id: &str, detail: &'static str) {
        let id = self.sessions.find(client_id);
        if let Some(id) = id.and_then(|id| self.sessions.connection_of(id, &self.connections)) {
            let fault = Fault::new(ReasonCode::AdministrativeAction, detail);
            self.disconnect(now, id, fault);
        }
    }

    fn end_banned(&mut self, now: Instant, clients: &Clients) {
        let are_meant = |connection: &&Connection| self.is_one_of(connection, clients);
        let meant = self.connections.iter().filter(are_meant);
        for id in meant.map(Connection::id).collect::<Vec<_>>() {
            let connection = self.connections.get_mut(id);
            if let Some(request) = connection.and_then(Connection::take_request) {
                let fault = Fault::new(ReasonCode::Banned, BANNED);
                self.refuse(now, id, request.caller(), fault);
            } else {
                let fault = Fault::new(ReasonCode::AdministrativeAction, BANNED);
                self.disconnect(now, id, fault);
            }
        }
    }

    /// Whether a client is one of these. Who has said no CONNECT yet is judged by it.
    fn is_one_of(&self, connection: &Connection, clients: &Clients) -> bool {
        let session = connection.session().and_then(|id| self.sessions.get(id));
        let requested = connection.request().map(|request| &request.client_id);
        let Some(client_id) = session.map(|session| &session.client_id).or(requested) else {
            return false;
        };
        match clients {
            Clients::WithId(id) => id == client_id,
            Clients::OfUser(user) => connection.user() == Some(user),
            Clients::From(network, bits) => {
                let address = connection.peer().address;
                let address = address.map(|address| address.ip().to_canonical());
                address.is_some_and(|address| lies_in(address, (*network, *bits)))
            }
        }
    }

    fn publish_own(&mut self, now: Instant, message: &OwnMessage) {
        if self.refuses(message).is_some() {
            return;
        }
        let publication = Publication {
            topic: &message.topic,
            properties: Properties::EMPTY,
            payload: &message.payload,
            qos: message.qos,
            retain: message.retain,
            expires: None,
            stamp: now,
            mark: None,
        };
        let publisher = PUBLISHER.into();
        let mut item = Item::borrowed(publication, Some(&publisher));
        if message.retain {
            self.retain(now, &mut item, QoS::AtMostOnce);
        }
        if self.options.settings.durable && message.qos > QoS::AtMostOnce {
            item.storing = Storing::IfWanted(None);
        }
        self.route(now, &mut item, None);
        item.finish(&mut self.deliveries);
    }

    /// The session ends as by a Clean Start, with its will and with a name for all that waited.
    fn forget_session(&mut self, now: Instant, client_id: &Arc<str>) {
        self.disconnect_client(now, client_id, "its session was removed");
        // Without its connection it may have ended.
        if let Some(id) = self.sessions.find(client_id) {
            self.end_session(now, id, DropReason::SessionEnded);
        }
    }
}

/// The policy.
impl Shard {
    /// Whether a client may connect, publish its will, and have its client id; what the rules need
    /// to know of it, and its mount, which the topic of its will has from now on.
    pub(crate) fn judge_connect(
        &mut self,
        id: ConnectionId,
        client_id: &Arc<str>,
        request: &mut ConnectRequest,
    ) -> Result<(Option<Arc<Subject>>, Option<Mount>), Fault> {
        let subject = self.access.subject(|| self.identity(id, client_id));
        if let Some(Verdict::Denied(why)) = subject.as_ref().map(|subject| subject.connect()) {
            return Err(Fault::new(why.code(), why.detail()));
        }
        let mount = self.mount_of(&self.identity(id, client_id))?;
        if let Some(mount) = &mount {
            let mounted = request.mount_will(mount);
            mounted.map_err(|_| response_too_long())?;
        }
        if let Some(will) = request.will.as_deref() {
            check_will_topic(&will.topic, &self.options.limits)?;
            let terms = (will.qos, will.retain);
            let ceiling = subject.as_ref().map(|subject| subject.ceiling());
            if request.version.has_properties()
                && let Some(denial) = ceiling.and_then(|it| it.denial(will.qos, will.retain))
            {
                // [MQTT-3.2.2-12] [MQTT-3.2.2-13]
                let detail = "the client may not publish such a will: its QoS is too high, or it is \
                              retained";
                return Err(Fault::new(denial.code(), detail));
            }
            let leaves_mount = mount.is_some() && will.topic.starts_with('$');
            let verdict = self.access.will(subject.as_ref(), &will.topic, terms);
            let properties = will.properties.as_properties();
            if verdict.is_denied() || leaves_mount || self.poses_as_record(&will.topic, properties)
            {
                let detail = "the client may not publish its will to its topic";
                return Err(Fault::new(ReasonCode::NotAuthorized, detail));
            }
        }
        // Last, so that only a client that may come in learns whose the id is.
        self.check_client_id(id, client_id, request)?;
        Ok((subject, mount))
    }

    /// What the listener asks of client ids.
    pub(super) fn client_id_rules(&self, listener: u16) -> &ClientIdRules {
        let rules = self.options.settings.client_ids.get(usize::from(listener));
        rules.unwrap_or(&NO_CLIENT_ID_RULES)
    }

    /// Whether a client may have its id, and the session of this id if there is one.
    fn check_client_id(
        &self,
        id: ConnectionId,
        client_id: &Arc<str>,
        request: &ConnectRequest,
    ) -> Result<(), Fault> {
        let Some(connection) = self.connections.get(id) else {
            return Ok(());
        };
        let (rules, user) = (
            self.client_id_rules(connection.peer().listener),
            connection.user(),
        );
        let given = (!request.has_no_id()).then_some(&**client_id);
        rules.check(given, user.map(|user| &**user))?;
        let session = self.sessions.find(client_id);
        let of = session.and_then(|session| self.sessions.get(session)?.user());
        if rules.may_take_over(user, of) {
            return Ok(());
        }
        let detail = "its client id has a session of another user";
        Err(Fault::new(ReasonCode::NotAuthorized, detail))
    }

    /// What is known of the client of a connection.
    pub(crate) fn identity(&self, id: ConnectionId, client_id: &Arc<str>) -> Identity {
        let connection = self.connections.get(id);
        connection.map_or_else(Identity::default, |it| identity(it, client_id))
    }

    /// A session has a client, maybe another one than before.
    pub(crate) fn take_subject(
        &mut self,
        now: Instant,
        id: ConnectionId,
        session_id: SessionId,
        subject: Option<Arc<Subject>>,
    ) {
        let is_new = self.access.admit(session_id, subject);
        let session = self.sessions.get(session_id);
        let Some(session) = session.filter(|session| !session.subscriptions.is_empty()) else {
            return;
        };
        // Rules that are not about it any more may have opened what lies outside its mount.
        let is_open = session.mount().is_some() && !self.access.has_rules_for(session_id);
        if is_new {
            self.router.judge_again();
        }
        if is_new || is_open {
            self.judge_subscriptions(now, id, session_id);
        }
    }

    /// A client has authenticated again, perhaps with other rights.
    pub(crate) fn judge_again(
        &mut self,
        now: Instant,
        id: ConnectionId,
        session: SessionId,
    ) -> Result<(), Fault> {
        let client_id = self
            .sessions
            .get(session)
            .map(|it| Arc::clone(&it.client_id));
        let connection = self.connections.get(id);
        let (Some(client_id), Some(connection)) = (client_id, connection) else {
            return Ok(());
        };
        let subject = self.access.subject(|| identity(connection, &client_id));
        if let Some(Verdict::Denied(why)) = subject.as_ref().map(|subject| subject.connect()) {
            return Err(Fault::new(ReasonCode::NotAuthorized, why.detail()));
        }
        self.check_mount(id)?;
        self.take_subject(now, id, session, subject);
        Ok(())
    }

    /// Other rules are in force from now on, for what waits too.
    #[cold]
    pub(crate) fn replace_policy(&mut self, now: Instant, policy: Option<Arc<Policy>>) {
        // What is on its way was routed by the rules before.
        self.finish_fan_outs(now);
        self.access.replace(policy);
        self.note_mount_points();
        self.router.judge_again();
        let ids: Vec<_> = self.connections.iter().map(Connection::id).collect();
        for &id in &ids {
            self.renew_subject(id);
        }
        for id in ids {
            self.enforce_policy(now, id);
        }
    }

    fn renew_subject(&mut self, id: ConnectionId) {
        let Self {
            access,
            connections,
            sessions,
            ..
        } = self;
        if let Some(connection) = connections.get(id)
            && let Some(session_id) = connection.session()
            && let Some(session) = sessions.get(session_id)
        {
            let subject = access.subject(|| identity(connection, &session.client_id));
            access.admit(session_id, subject);
        }
    }

    /// The rules have changed for a client that is here.
    fn enforce_policy(&mut self, now: Instant, id: ConnectionId) {
        let connection = self.connections.get(id);
        let Some(session_id) = connection.and_then(Connection::session) else {
            return; // it is judged when it is admitted
        };
        let subject = self.access.client_of(session_id);
        if let Some(Verdict::Denied(why)) = subject.map(|subject| subject.connect()) {
            let fault = Fault::new(ReasonCode::NotAuthorized, why.detail());
            return self.disconnect(now, id, fault);
        }
        self.judge_subscriptions(now, id, session_id);
        self.announcer().announce_to_groups(session_id, true);
    }

    /// A client may not publish this: no session receives it. Of a publisher that stamps its
    /// messages it counts as dropped, not as lost.
    #[cold]
    pub(crate) fn drop_denied(
        &mut self,
        now: Instant,
        id: SessionId,
        publication: &Publication<'_>,
    ) {
        self.auditor(now)
            .note_refused(id, publication, DropReason::NotAuthorized);
        self.deliverer(now)
            .drop_message(id, publication, DropReason::NotAuthorized);
    }
}

/// Who publishes for an operator, where a client id is kept: unlike what the broker makes anew at
/// each start, it may be retained on disk.
const PUBLISHER: &str = "$operator";
/// Why the connection of a banned client ends.
const BANNED: &str = "the client, its user or its address is banned";

/// What is known of a client.
fn identity(connection: &Connection, client_id: &Arc<str>) -> Identity {
    Identity {
        user: connection.user().cloned(),
        claims: connection.claims().cloned(),
        client_id: Arc::clone(client_id),
        peer: connection.peer().clone(),
    }
}

/// Those of a listener that has none.
static NO_CLIENT_ID_RULES: ClientIdRules = ClientIdRules {
    source: ClientIdSource::Connect,
    pattern: None,
    takeover_by_anyone: false,
};
