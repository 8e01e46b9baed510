//! What becomes of a denial: where the shard asks the [policy](crate::policy), and what it does
//! then.
//!
//! A denied PUBLISH and a denied will are dropped by name, a denied filter is refused, and a client
//! that may not connect is refused or disconnected. A message that a session of its route may not
//! receive is an expected delivery that was dropped by name, so that accounts and receivers' proofs
//! hold. What waits for a session is judged when it leaves: then the client is known, and the
//! policy that is in force.
//!
//! A session that catches up counts a denied message like any other, since it will find it in the
//! log, and drops it then.

use std::sync::Arc;
use std::time::Instant;

use unbroken_mqtt_proto::ReasonCode;
use unbroken_mqtt_proto::topic::SubscriptionFilter;

use crate::connection::{ConnectRequest, Connection};
use crate::ids::{ConnectionId, SessionId};
use crate::message::Publication;
use crate::policy::{Identity, Policy, Subject, Verdict};
use crate::reason::{DropReason, Fault};
use crate::shard::Clients;
use crate::shard::Shard;
use crate::telemetry::Event;

impl Shard {
    /// Whether a client may connect, and publish its will; what the rules need to know of it.
    pub(crate) fn judge_connect(
        &mut self,
        id: ConnectionId,
        client_id: &Arc<str>,
        request: &ConnectRequest,
    ) -> Result<Option<Arc<Subject>>, Fault> {
        let access = &mut self.clients.access;
        let connection = self.clients.connections.get(id);
        let identity = || connection.map_or_else(Identity::default, |it| identity(it, client_id));
        let subject = access.subject(identity);
        if let Some(Verdict::Denied(why)) = subject.as_ref().map(|subject| subject.connect()) {
            return Err(Fault::new(ReasonCode::NotAuthorized, why.detail()));
        }
        if let Some(will) = request.will.as_deref()
            && access.will(subject.as_ref(), &will.topic).is_denied()
        {
            let detail = "the client may not publish to its will's topic";
            return Err(Fault::new(ReasonCode::NotAuthorized, detail));
        }
        Ok(subject)
    }

    /// A session has a client, maybe another one than before.
    pub(crate) fn take_subject(&mut self, id: SessionId, subject: Option<Arc<Subject>>) {
        let is_new = self.clients.access.admit(id, subject);
        let session = self.clients.sessions.get(id);
        if is_new && session.is_some_and(|session| !session.subscriptions.is_empty()) {
            self.router.judge_again();
            self.revoke_subscriptions(id);
        }
    }

    /// Ends the subscriptions of a session that are not allowed any more. What waits by them is
    /// judged when it leaves.
    fn revoke_subscriptions(&mut self, id: SessionId) {
        let access = &self.clients.access;
        let Some(session) = self.clients.sessions.get(id) else {
            return;
        };
        let subscriptions = session.subscriptions.iter();
        let denied: Vec<_> = subscriptions
            .filter_map(|(text, _)| {
                let parsed = SubscriptionFilter::parse(text).ok()?;
                match access.subscribe(id, parsed.filter()) {
                    Verdict::Allowed => None,
                    Verdict::Denied(why) => Some((Box::from(text), why)),
                }
            })
            .collect();
        let client_id = Arc::clone(&session.client_id);
        for (filter, why) in denied {
            if self.end_subscription_to(id, &filter).is_some() {
                self.event(Event::SubscriptionRevoked {
                    client_id: Arc::clone(&client_id),
                    filter,
                    why,
                });
            }
        }
    }

    /// Other rules are in force from now on, for what waits too.
    #[cold]
    pub(crate) fn replace_policy(&mut self, now: Instant, policy: Option<Arc<Policy>>) {
        // What is on its way was routed by the rules before.
        self.finish_fan_outs(now);
        self.clients.access.replace(policy);
        self.router.judge_again();
        let ids: Vec<_> = self
            .clients
            .connections
            .iter()
            .map(Connection::id)
            .collect();
        for &id in &ids {
            self.renew_subject(id);
        }
        for id in ids {
            self.enforce_policy(now, id);
        }
    }

    fn renew_subject(&mut self, id: ConnectionId) {
        let Clients {
            access,
            connections,
            sessions,
            ..
        } = &mut self.clients;
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
        let connection = self.clients.connections.get(id);
        let Some(session_id) = connection.and_then(Connection::session) else {
            return; // it is judged when it is admitted
        };
        let subject = self.clients.access.client_of(session_id);
        if let Some(Verdict::Denied(why)) = subject.map(|subject| subject.connect()) {
            let fault = Fault::new(ReasonCode::NotAuthorized, why.detail());
            return self.disconnect(now, id, fault);
        }
        self.revoke_subscriptions(session_id);
        self.announce_to_groups(session_id, true);
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
        self.note_refused(id, publication, DropReason::NotAuthorized);
        self.deliverer(now)
            .drop_message(id, publication, DropReason::NotAuthorized);
    }
}

/// What is known of a client.
fn identity(connection: &Connection, client_id: &Arc<str>) -> Identity {
    Identity {
        user: connection.user().cloned(),
        client_id: Arc::clone(client_id),
        peer: connection.peer().clone(),
    }
}
