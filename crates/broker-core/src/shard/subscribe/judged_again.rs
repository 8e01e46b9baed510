//! Subscriptions of a session under other rules than those that they were granted under.
//!
//! One that is not allowed any more ends. One whose QoS is too high now is replaced, as by a
//! SUBSCRIBE of the client, by one with the QoS that is allowed: MQTT has no packet to say so. What
//! waits is judged when it leaves, and has the QoS with which it was queued.

use std::sync::Arc;
use std::time::Instant;

use unbroken_mqtt_proto::topic::SubscriptionFilter;
use unbroken_mqtt_proto::{RetainHandling, SubscriptionOptions};

use super::request::{Answers, Request};
use crate::connection::Connection;
use crate::ids::{ConnectionId, SessionId};
use crate::policy::Denial;
use crate::routing::Grant;
use crate::shard::Shard;
use crate::telemetry::Event;

impl Shard {
    /// Other rules may hold for the client of a session.
    pub(crate) fn judge_subscriptions(&mut self, now: Instant, id: ConnectionId, of: SessionId) {
        let Some(session) = self.sessions.get(of) else {
            return;
        };
        let mut ended = Vec::new();
        let mut lowered = Vec::new();
        for (text, grant) in session.subscriptions.iter() {
            let Ok(parsed) = SubscriptionFilter::parse(text) else {
                continue;
            };
            match self.judge_filter(of, parsed.filter()) {
                Ok(max_qos) if grant.qos <= max_qos => {}
                Ok(_) => lowered.push((Box::<str>::from(text), *grant)),
                Err(why) => ended.push((Box::<str>::from(text), why)),
            }
        }
        if !lowered.is_empty() {
            ended.extend(self.lower_subscriptions(now, id, of, &lowered));
        }
        self.revoke_subscriptions(of, ended);
    }

    /// Answers those that there was no room to replace.
    fn lower_subscriptions(
        &mut self,
        now: Instant,
        id: ConnectionId,
        session: SessionId,
        subscriptions: &[(Box<str>, Grant)],
    ) -> Vec<(Box<str>, Denial)> {
        self.deliverer(now).catch_up(session);
        let Some(version) = self.connections.get(id).map(Connection::version) else {
            return Vec::new();
        };
        let (mut answer, mut impossible) = (Answers::default(), Vec::new());
        for (text, grant) in subscriptions {
            let Ok(filter) = SubscriptionFilter::parse(text) else {
                continue;
            };
            let mut request = Request {
                session,
                text,
                filter,
                options: SubscriptionOptions {
                    qos: grant.qos,
                    no_local: grant.no_local,
                    retain_as_published: grant.retain_as_published,
                    retain_handling: RetainHandling::DoNotSend,
                },
                identifier: grant.identifier,
            };
            match self.take_request(&mut request, &mut answer) {
                Ok(code) if !code.is_error() => {
                    answer.codes.push(code as u8);
                    self.report_subscribed(version, &request, code);
                }
                Ok(_) | Err(_) => impossible.push((text.clone(), Denial::QoS)),
            }
        }
        self.hold_suback(now, id, session, None, answer);
        self.release_subacks(now);
        impossible
    }

    fn revoke_subscriptions(&mut self, id: SessionId, ended: Vec<(Box<str>, Denial)>) {
        let Some(session) = self.sessions.get(id) else {
            return;
        };
        let client_id = Arc::clone(&session.client_id);
        for (filter, why) in ended {
            if self.end_subscription_to(id, &filter).is_some() {
                self.event(Event::SubscriptionRevoked {
                    client_id: Arc::clone(&client_id),
                    filter,
                    why,
                });
            }
        }
    }
}
