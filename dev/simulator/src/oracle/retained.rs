//! What is retained: an atomic register for each topic, as far as its publishers can tell.
//!
//! A message has certainly been replaced when another one of its publisher came behind it, or when
//! its acknowledgement was seen before another one was taken. Everything else may be the last.

use unbroken_mqtt_proto::{QoS, RetainHandling};

use super::session::{Filter, RetainedExpected};
use super::{Oracle, matches};
use crate::message::{Message, MessageId, TOPICS};

impl Oracle {
    /// A subscription that is answered with retained messages: where one was acknowledged before,
    /// it or a newer one must come.
    pub(super) fn expect_retained(
        &mut self,
        client: usize,
        text: &'static str,
        qos: QoS,
        since: u64,
    ) {
        for topic in TOPICS {
            if !matches(text, topic) || self.rights.have_denied(client, topic) {
                continue;
            }
            let candidates = current(&self.messages, topic, Some(since));
            let sure = |id: &MessageId| {
                let m = &self.messages[*id];
                let is_kept = !m.clear && m.expiry_s.is_none() && self.is_surely_kept(*id);
                is_kept && m.qos.min(qos) > QoS::AtMostOnce
            };
            let known = candidates
                .iter()
                .any(|id| self.messages[*id].in_force().is_some_and(|at| at < since));
            // What was published meanwhile may have come before SUBACK.
            let session = &self.sessions[client];
            let newer = session.retained_at.get(topic).is_some_and(|at| *at > since);
            if known && !newer && candidates.iter().all(sure) {
                self.sessions[client]
                    .retained
                    .push(RetainedExpected { text, topic, since });
            }
        }
    }

    /// Subscriptions that were promised a retained message and did not get it.
    pub(crate) fn missing_retained(&self) -> Vec<String> {
        let mut missing = Vec::new();
        for (client, session) in self.sessions.iter().enumerate() {
            for expected in &session.retained {
                let cleared = self.messages.iter().any(|m| {
                    m.clear
                        && m.accepts > 0
                        && m.topic == expected.topic
                        && m.last_accept > expected.since
                });
                if !cleared {
                    missing.push(format!(
                        "client {client} by {} on {}",
                        expected.text, expected.topic
                    ));
                }
            }
        }
        missing
    }

    /// Subscribers that were left with another value of a topic than the one that is retained.
    /// Looked at only where the last value is beyond doubt: one publisher, nothing at QoS 0,
    /// nothing taken twice.
    pub(crate) fn left_behind(&self) -> Vec<String> {
        let mut behind = Vec::new();
        for topic in TOPICS {
            let on_topic = |m: &&Message| m.retain && m.accepts > 0 && m.topic == topic;
            let all: Vec<_> = self.messages.iter().filter(on_topic).collect();
            let plain = |m: &&Message| {
                let sure = m.accepts == 1 && m.expiry_s.is_none() && !m.clear;
                sure && m.publisher == all[0].publisher && m.qos > QoS::AtMostOnce
            };
            let [last] = current(&self.messages, topic, None)[..] else {
                continue;
            };
            if !all.iter().all(plain) {
                continue;
            }
            for (client, session) in self.sessions.iter().enumerate() {
                let keeps = |f: &&Filter| {
                    let terms = f.terms.first().map(|terms| terms.options);
                    let wanted = terms.is_some_and(|options| {
                        options.qos > QoS::AtMostOnce
                            && options.retain_handling == RetainHandling::SendAlways
                            && !options.no_local
                    });
                    // One that is on its way while a subscription is being answered may pass it by.
                    let last = &self.messages[last];
                    let found = last.acknowledged.is_some_and(|at| at < f.asked_at);
                    let since_kill = f.asked_at.max(last.last_accept) > self.killed_at;
                    let beyond_doubt = since_kill && (found || last.first_accept > f.answered_at);
                    let settled = f.certain && f.terms.len() == 1;
                    settled && wanted && beyond_doubt && matches(f.text, topic)
                };
                let reliable =
                    |f: &&Filter| f.terms.iter().all(|t| t.options.qos > QoS::AtMostOnce);
                let matching = |f: &&Filter| matches(f.text, topic);
                let subscribed = session.exists && session.filters.iter().any(|f| keeps(&f));
                let all_reliable = session
                    .filters
                    .iter()
                    .filter(matching)
                    .all(|f| reliable(&f));
                let newest = session.newest_retained.get(topic);
                let is_denied = self.rights.have_denied(client, topic);
                if subscribed && all_reliable && newest != Some(&last) && !is_denied {
                    behind.push(format!(
                        "client {client}: {newest:?} instead of {last} on {topic}"
                    ));
                }
            }
        }
        behind
    }

    /// What a topic's retained message may be when everything has come to rest.
    pub(crate) fn retained_now(&self, topic: &str) -> Vec<MessageId> {
        current(&self.messages, topic, None)
    }
}

/// Whether another retained message of its topic had certainly replaced this one before the tick
/// `by` (none: when everything has come to rest).
pub(super) fn superseded(messages: &[Message], id: MessageId, by: Option<u64>) -> bool {
    let this = &messages[id];
    messages.iter().enumerate().any(|(other, m)| {
        if other == id || !m.retain || m.accepts == 0 || m.erased || m.topic != this.topic {
            return false;
        }
        let in_force = by.is_none_or(|by| m.in_force().is_some_and(|at| at < by));
        // Of one that was taken once and came again it is not known which time it was.
        let since = if m.accepts == 1 {
            m.first_accept
        } else {
            m.last_accept
        };
        let behind = if m.publisher == this.publisher {
            since > this.last_accept
        } else {
            this.in_force().is_some_and(|at| at < m.first_accept)
                && m.first_accept > this.last_accept
        };
        in_force && behind
    })
}

/// The messages that may be the retained one of a topic.
pub(super) fn current(messages: &[Message], topic: &str, by: Option<u64>) -> Vec<MessageId> {
    let taken =
        |(_, m): &(usize, &Message)| m.retain && m.accepts > 0 && !m.erased && m.topic == topic;
    let taken = messages.iter().enumerate().filter(taken).map(|(id, _)| id);
    taken.filter(|id| !superseded(messages, *id, by)).collect()
}
