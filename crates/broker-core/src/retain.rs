//! Retained messages: kept on the shard their topic hashes to, asked for slice by slice.
//!
//! A subscription walks through the retained messages that match it, shard by shard and slice by
//! slice, as fast as its connection takes them. While it walks, live messages go their own way; a
//! retained copy older than a live message that the session was already given on that topic is left
//! out.
//!
//! Invariant: the acknowledgement of a retained QoS 1 or 2 message leaves after the topic's shard
//! has it, so that whoever learns of the acknowledgement and then subscribes anywhere in the broker
//! gets it.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Instant;

use foldhash::fast::FixedState;
use unbroken_mqtt_proto::QoS;
use unbroken_mqtt_proto::topic::{TopicFilter, TopicName};

use crate::clients::{Item, Terms};
use crate::ids::{SessionId, ShardId};
use crate::limits::RETAINED_SLICE;
use crate::mail::Letter;
use crate::message::Message;
use crate::output::DropReason;
use crate::placement;
use crate::session::RetainedScan;
use crate::shard::Shard;
use crate::subscriptions::Grant;
use crate::timers::Timer;

impl Shard {
    /// Keeps (empty payload: forgets) the message of its topic. Answers the question whose answer
    /// its acknowledgement has to wait for, if another shard keeps it.
    pub(crate) fn retain(&mut self, now: Instant, item: &mut Item<'_>, qos: QoS) -> Option<u64> {
        let owner = placement::of_topic(item.publication.topic, self.options.shards);
        let message = item.message(&mut self.clients.pool);
        if owner == self.options.id {
            self.set_retained(now, message);
            return None;
        }
        let token = (qos > QoS::AtMostOnce).then(|| self.token());
        self.mail(owner, Letter::Retain { message, token });
        token
    }

    pub(crate) fn handle_retain(
        &mut self,
        now: Instant,
        from: ShardId,
        message: Arc<Message>,
        token: Option<u64>,
    ) {
        self.set_retained(now, message);
        if let Some(token) = token {
            self.mail(from, Letter::Retained { token });
        }
    }

    fn set_retained(&mut self, now: Instant, message: Arc<Message>) {
        let Ok(topic) = TopicName::parse(message.topic()) else {
            return;
        };
        if message.payload().is_empty() {
            if let Some(old) = self.retained.remove(topic) {
                self.uncount_retained(&old); // [MQTT-3.3.1-6]
            }
            return; // [MQTT-3.3.1-7]
        }
        let cost = message.publication().cost();
        let limits = &self.clients.limits;
        let totals = &self.options.totals;
        let room = totals
            .retained_messages
            .try_add(1, limits.retained_messages_max.into());
        if !room
            || !totals
                .retained_bytes
                .try_add(cost, limits.retained_bytes_max)
        {
            if room {
                totals.retained_messages.subtract(1);
            }
            // A full store must not go on showing an old value as the current one.
            if let Some(old) = self.retained.remove(topic) {
                self.uncount_retained(&old);
            }
            let item = Item::kept(&message);
            self.drop_of_publisher(now, &item, DropReason::RetainedFull);
            return;
        }
        self.clients.stats.retained_messages += 1;
        self.clients.stats.retained_bytes += cost;
        if let Some(at) = message.publication().expires {
            self.timers
                .set(at.max(now), Timer::Retained(Arc::downgrade(&message)));
        }
        let kept = Arc::clone(&message);
        if let Some(old) = self.retained.set(topic, kept) {
            self.uncount_retained(&old);
        }
    }

    pub(crate) fn expire_retained(&mut self, now: Instant, message: &Weak<Message>) {
        let Some(message) = message.upgrade() else {
            return;
        };
        let Ok(topic) = TopicName::parse(message.topic()) else {
            return;
        };
        if self
            .retained
            .get(topic)
            .is_some_and(|kept| Arc::ptr_eq(kept, &message))
        {
            self.retained.remove(topic);
            self.uncount_retained(&message);
            let item = Item::kept(&message);
            self.drop_of_publisher(now, &item, DropReason::Expired);
        }
    }

    fn uncount_retained(&mut self, message: &Message) {
        let cost = message.publication().cost();
        self.clients.stats.retained_messages -= 1;
        self.clients.stats.retained_bytes -= cost;
        self.options.totals.retained_messages.subtract(1);
        self.options.totals.retained_bytes.subtract(cost);
    }

    /// Notes that a new subscription is to be sent what is retained for it. Answers the token that
    /// begins it.
    pub(crate) fn add_retained_scan(
        &mut self,
        session: SessionId,
        filter: TopicFilter<'_>,
        grant: Grant,
    ) -> Option<u64> {
        let (shard, last) = if filter.has_wildcard() {
            (ShardId(0), ShardId(self.options.shards - 1))
        } else {
            let owner = placement::of_topic(filter.as_str(), self.options.shards);
            (owner, owner)
        };
        let token = self.token();
        self.clients
            .session_mut(session)?
            .retained
            .push_back(RetainedScan {
                token,
                filter: filter.as_str().into(),
                grant,
                shard,
                last,
                after: None,
                waits: true,
                overtaken: HashMap::with_hasher(FixedState::with_seed(0)),
            });
        Some(token)
    }

    /// Begins the scans with these tokens.
    pub(crate) fn begin_retained(&mut self, now: Instant, session_id: SessionId, tokens: &[u64]) {
        if tokens.is_empty() {
            return;
        }
        let Some(session) = self.clients.session_mut(session_id) else {
            return;
        };
        for scan in &mut session.retained {
            if tokens.contains(&scan.token) {
                scan.waits = false;
            }
        }
        self.pump(now, session_id);
    }

    /// Goes on with the session's first scan, as long as there is room for what it finds.
    pub(crate) fn pump_retained(&mut self, now: Instant, session_id: SessionId) {
        loop {
            let me = self.options.id;
            let room = self.room_for_retained(session_id);
            let Some(session) = self.clients.session_mut(session_id) else {
                return;
            };
            let Some(scan) = session.retained.front_mut() else {
                return;
            };
            if scan.waits || !room {
                return;
            }
            let (shard, token) = (scan.shard, scan.token);
            let (filter, after) = (scan.filter.clone(), scan.after.take());
            if shard != me {
                scan.waits = true;
                return self.mail(
                    shard,
                    Letter::RetainedQuery {
                        token,
                        session: session_id,
                        filter,
                        after,
                    },
                );
            }
            let (messages, next) = self.scan_retained(&filter, after.as_deref());
            self.take_retained(now, session_id, token, messages, next);
        }
    }

    /// Whether a slice would go straight out rather than fill the queue.
    fn room_for_retained(&self, session_id: SessionId) -> bool {
        let Some(session) = self.clients.sessions.get(session_id.0 as usize) else {
            return false;
        };
        let connection = session
            .connection
            .and_then(|index| self.clients.connection(index));
        session.queue.is_empty()
            && connection.is_some_and(|connection| {
                connection.pending() <= self.clients.limits.output_bytes_max as usize / 2
            })
    }

    fn scan_retained(
        &self,
        filter: &str,
        after: Option<&str>,
    ) -> (Vec<Arc<Message>>, Option<Box<str>>) {
        let mut found = Vec::new();
        let Ok(filter) = TopicFilter::parse(filter) else {
            return (found, None);
        };
        let next = self
            .retained
            .scan(filter, after, RETAINED_SLICE, |message| {
                found.push(Arc::clone(message));
            });
        (found, next)
    }

    pub(crate) fn handle_retained_query(
        &mut self,
        from: ShardId,
        token: u64,
        session: SessionId,
        filter: &str,
        after: Option<&str>,
    ) {
        let (messages, next) = self.scan_retained(filter, after);
        self.mail(
            from,
            Letter::RetainedAnswer {
                token,
                session,
                messages,
                next,
            },
        );
    }

    /// Delivers a slice and moves the scan on.
    pub(crate) fn take_retained(
        &mut self,
        now: Instant,
        session_id: SessionId,
        token: u64,
        messages: Vec<Arc<Message>>,
        next: Option<Box<str>>,
    ) {
        let Some(session) = self.clients.session_mut(session_id) else {
            return;
        };
        let Some(scan) = session
            .retained
            .front_mut()
            .filter(|scan| scan.token == token)
        else {
            return;
        };
        let grant = scan.grant;
        let client_id = Arc::clone(&session.client_id);
        scan.waits = false;
        let overtaken = std::mem::take(&mut scan.overtaken);
        let done = next.is_none();
        scan.after = next;
        if done {
            if scan.shard == scan.last {
                session.retained.pop_front();
            } else {
                scan.shard = ShardId(scan.shard.0 + 1);
            }
        }
        // One scan does not overtake another: each subscription gets its copy.
        let scans = std::mem::take(&mut session.retained);
        for message in &messages {
            let publication = message.publication();
            let newer_given = overtaken
                .get(publication.topic)
                .is_some_and(|stamp| *stamp >= publication.stamp);
            let own = grant.no_local && message.publisher() == Some(&client_id); // [MQTT-3.8.3-3]
            if newer_given || own || publication.expired(now) {
                continue;
            }
            let mut item = Item::kept(message);
            self.clients.begin_item();
            let identifiers: crate::session::Identifiers = grant.identifier.into_iter().collect();
            let terms = Terms {
                qos: grant.qos,
                retain: true,
                identifiers: &identifiers,
                group: None,
            }; // [MQTT-3.3.1-8]
            self.clients.deliver(now, session_id, terms, &mut item);
            item.finish(&mut self.clients.pool);
        }
        if let Some(session) = self.clients.session_mut(session_id) {
            session.retained = scans;
            if let Some(scan) = session.retained.front_mut()
                && scan.token == token
            {
                scan.overtaken = overtaken;
            }
        }
    }
}
