//! What a client may receive: content, copies, order and terms of each message.

use super::retained::superseded;
use super::{Oracle, Received, matches};
use crate::message::{Message, MessageId, identify};
use std::time::Instant;
use unbroken_mqtt_proto::QoS;

impl Oracle {
    /// A client has received a PUBLISH that is not a repetition to it.
    pub(crate) fn received(&mut self, client: usize, now: Instant, received: &Received<'_>) {
        self.tick += 1;
        if received.payload.is_empty() {
            self.received_clear(client, received);
            return;
        }
        let id = self.check_content(client, received);
        let session = &mut self.sessions[client];
        let message = &self.messages[id];
        if self.can_be_killed {
            session.note_repeatable(id, message, received, self.tick);
        }
        if let Some(packet_id) = received.packet_id {
            let first = session.seen_with_id.insert((packet_id, id));
            if received.dup && !first {
                return;
            }
        }
        let own = message.publisher == client;
        assert!(
            session.may_get(message, own),
            "client {client} received message {id} on {} without a subscription to it",
            message.topic
        );
        check_expiry(message, id, now, received);
        let (copies, texts) = self.check_copies(client, id, received);
        self.check_order(client, id, received, (copies, texts));
        self.check_terms(client, id, received);
        self.note_retained(client, id, received);
    }

    /// An empty message removes a retained one.
    pub(super) fn received_clear(&mut self, client: usize, received: &Received<'_>) {
        let session = &mut self.sessions[client];
        let cleared = |m: &Message| m.clear && m.accepts > 0 && m.topic == received.topic;
        assert!(
            self.messages.iter().any(cleared),
            "client {client} received an empty message on {} that nobody sent",
            received.topic
        );
        session
            .retained
            .retain(|expected| expected.topic != received.topic);
    }

    /// Topic, payload and `QoS` are those of a message that was published. Returns which.
    pub(super) fn check_content(&self, client: usize, received: &Received<'_>) -> MessageId {
        let id = identify(received.payload)
            .unwrap_or_else(|| panic!("client {client} received what nobody sent: {received:?}"));
        let Some(message) = self.messages.get(id) else {
            panic!("client {client} received message {id}, which does not exist");
        };
        assert!(
            message.accepts > 0,
            "client {client} received message {id}, which the broker was not given (a cancelled will?)"
        );
        assert_eq!(received.topic, message.topic, "the topic of message {id}");
        assert_eq!(
            received.payload,
            message.payload(id),
            "the payload of message {id}"
        );
        assert!(
            received.qos <= message.qos,
            "message {id} came at a higher QoS than it was sent"
        );
        id
    }

    /// Each copy has a reason. Returns how many there were, and of how many shared subscriptions.
    pub(super) fn check_copies(
        &mut self,
        client: usize,
        id: MessageId,
        received: &Received<'_>,
    ) -> (u32, u32) {
        let session = &mut self.sessions[client];
        let message = &self.messages[id];
        let copies = session.copies.entry(id).or_insert(0);
        *copies += 1;
        let copies = *copies;
        let shared = message.topic.starts_with("s/");
        let texts = session.possible_texts(message);
        if shared {
            let (all, repeatable) = self.groups.received(id, received.qos);
            let groups = self
                .shared_texts
                .iter()
                .filter(|text| matches(text, message.topic))
                .count();
            let groups = u32::try_from(groups).unwrap_or(u32::MAX);
            let handed_over = (self.members_hand_over || self.killed_at > 0) && repeatable;
            let is_noted = received.qos > QoS::AtMostOnce && session.expiry_s > 0;
            let was_on_its_way = session.link.is_none();
            let mut paid_again = self.groups.unnoted(id) + u32::from(!is_noted && was_on_its_way);
            if self.killed_at == 0 || message.qos < QoS::ExactlyOnce {
                paid_again = 0;
            }
            if !is_noted {
                self.groups.note_unnoted(id);
            }
            assert!(
                handed_over || copies <= message.accepts * texts + paid_again,
                "client {client} received message {id} {copies} times by {texts} groups"
            );
            assert!(
                handed_over || all <= message.accepts * groups + paid_again,
                "message {id} was received {all} times by the members of {groups} groups"
            );
        } else {
            let retained = if message.retain {
                session.asked_for(message)
            } else {
                0
            };
            let repeated = session.repeats.allowed.get(&id).copied().unwrap_or(0);
            assert!(
                copies <= message.accepts + retained + repeated,
                "client {client} received message {id} {copies} times, but it was published {} times",
                message.accepts
            );
            let again = received.qos == QoS::ExactlyOnce && !session.repeats.exactly.insert(id);
            // A will may be published twice.
            let published_again = message.promised && message.accepts > 1;
            assert!(
                message.retain || published_again || !again,
                "client {client} received message {id} of QoS 2 twice"
            );
        }
        (copies, texts)
    }

    /// Messages of one publisher and topic keep their order where it is promised.
    pub(super) fn check_order(
        &mut self,
        client: usize,
        id: MessageId,
        received: &Received<'_>,
        (copies, texts): (u32, u32),
    ) {
        let session = &mut self.sessions[client];
        let message = &self.messages[id];
        let shared = message.topic.starts_with("s/");
        // That something was dropped shortly before a kill is not on disk: it may come after it.
        let drops = !self.queues_fit
            || message.expiry_s.is_some()
            || self.rights.have_denied(client, message.topic);
        // What a group owes at a restart goes to who is there, who may have been given later ones:
        // of shared subscriptions MQTT promises no order.
        let paid_late =
            shared && message.qos == QoS::ExactlyOnce && message.first_accept <= self.killed_at;
        let in_order = copies == 1
            && message.accepts == 1
            && (!drops || message.first_accept > self.killed_at)
            && !(message.retain && received.retain)
            && !(shared && (self.members_hand_over || texts > 1))
            && !paid_late;
        if in_order {
            // What was under way when the broker was killed comes by QoS. [MQTT-4.6.0-6]
            let class = if self.killed_at > 0 {
                received.qos
            } else {
                received.qos.min(QoS::AtLeastOnce)
            };
            let lane = (message.publisher, message.topic, class);
            let newest = session.order.entry(lane).or_insert(0);
            assert!(
                *newest < message.last_accept,
                "client {client} received message {id} on {} out of order",
                message.topic
            );
            // When it was taken at the earliest.
            *newest = message.first_accept.max(*newest);
        }
    }

    /// The message has the `QoS` and identifiers of the subscriptions that it was expected for.
    pub(super) fn check_terms(&mut self, client: usize, id: MessageId, received: &Received<'_>) {
        let session = &mut self.sessions[client];
        let message = &self.messages[id];
        if let Some(expected) = session.outstanding.remove(&id)
            && expected.version == session.version
            && message.accepts == 1
            && !message.retain
        {
            assert!(
                (expected.low..=expected.high).contains(&received.qos),
                "message {id} came to client {client} at {:?}, not {:?} to {:?}",
                received.qos,
                expected.low,
                expected.high
            );
            if received.v5
                && let Some(identifiers) = expected.identifiers
            {
                let mut got = received.identifiers.clone();
                got.sort_unstable();
                assert_eq!(
                    got, identifiers,
                    "the subscription identifiers of message {id}"
                );
            }
        }
    }

    pub(super) fn note_retained(&mut self, client: usize, id: MessageId, received: &Received<'_>) {
        let session = &mut self.sessions[client];
        let message = &self.messages[id];
        if message.retain {
            session.retained_at.insert(message.topic, self.tick);
        }
        if message.retain {
            session.newest_retained.insert(message.topic, id);
        }
        let messages = &self.messages;
        session.retained.retain(|expected| {
            let stale = || superseded(messages, id, Some(expected.since));
            expected.topic != received.topic || !messages[id].retain || stale()
        });
    }
}

fn check_expiry(message: &Message, id: MessageId, now: Instant, received: &Received<'_>) {
    let (Some(interval), Some(accepted_at)) = (message.expiry_s, message.accepted_at) else {
        assert_eq!(
            received.expiry_s, None,
            "message {id} has no expiry interval"
        );
        return;
    };
    if !received.v5 || message.accepts > 1 {
        return;
    }
    let Some(left) = received.expiry_s else {
        panic!("message {id} came without its expiry interval");
    };
    let waited = now.saturating_duration_since(accepted_at).as_secs();
    let at_least = u64::from(interval).saturating_sub(waited + 1);
    assert!(
        left <= interval && u64::from(left) >= at_least,
        "message {id} says that it expires in {left} s; it was sent with {interval} s, {waited} s ago"
    );
}
