//! A broker that was killed and has begun again: what it must still know, and what it may not.
//!
//! What the disk had is known by the records whose commit was begun, and what clients were told by
//! what they have seen. The broker must go on with the first, and the second must be part of it.
//!
//! What may be lost: sessions that end with their connection; QoS 0; messages that nobody has
//! acknowledged; and what a group has given to a session that ends with its connection. What may
//! come again: copies at QoS 1 whose acknowledgement was not on disk; copies at QoS 0 by a
//! subscription that was on disk with more; and what is retained, while some of it was still to be
//! sent for a subscription.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use unbroken_broker_core::{Message, RestoredEntry, RestoredSession, StoredSubscription};
use unbroken_mqtt_proto::{PacketId, QoS};
use unbroken_persist::Restored;

use super::retained::{current, superseded};
use super::session::{Filter, Session};
use super::{GRACE, Oracle, ROUNDED, Terms, matches};
use crate::message::{self, MessageId, TOPICS, identify};

/// What a client knows of its session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heard {
    /// The serial number of the session that it last heard of.
    pub(crate) serial: u64,
    /// It has seen the CONNACK of its present connection.
    pub(crate) connected: bool,
}

impl Oracle {
    /// The broker begins again with this. `heard`: by client.
    pub(crate) fn restarted(&mut self, now: Instant, restored: &Restored, heard: &[Heard]) {
        self.tick(); // for what is found
        self.killed_at = self.tick();
        self.between.restarted();
        assert!(restored.lost.is_empty(), "{:?}", restored.lost);
        self.wills_restarted(now, restored);
        for (client, heard) in heard.iter().enumerate() {
            let id = format!("c{client}");
            let mut sessions = restored.sessions.iter();
            let found = sessions.find(|session| *session.client_id == *id);
            self.session_restarted(now, client, found, *heard);
            // After a gap ids go on elsewhere.
            if let Some(found) = found.filter(|_| restored.gaps == 0) {
                check_order(client, &found.entries);
            }
            let mut alone = restored.wills.iter();
            self.orphans[client] = alone.any(|(client_id, _)| **client_id == *id);
        }
        self.markers_restarted();
        self.retained_restarted(&restored.retained);
        let mut given: Vec<_> = (0..heard.len())
            .flat_map(|client| self.given_by_groups(client, restored))
            .collect();
        let left = restored.hand_overs.iter();
        given.extend(left.filter_map(|left| identify(left.message.payload())));
        self.check_given(restored);
        let may_be_over =
            |id: MessageId| self.messages[id].expiry_s.is_some() || self.groups.has_received(id);
        self.left_to_groups.restarted(restored, may_be_over);
        self.groups.restarted(&given);
        self.disk.restarted();
        let disk = &self.disk;
        self.must_be_stored.retain(|id| disk.has_asked_for(*id));
    }

    /// What was acknowledged, or is recognized when it comes again, and a group owes was given to
    /// somebody, on disk.
    fn check_given(&self, restored: &Restored) {
        if !self.members_keep || !self.queues_fit {
            return;
        }
        let entries = restored.sessions.iter().flat_map(|found| &found.entries);
        let given: Vec<_> = entries.filter_map(given_by_group).collect();
        let missing = self.groups.missing();
        let found = self.sessions.iter().filter(|session| session.exists);
        let unreleased = found.flat_map(|session| session.unreleased.values());
        let marked: BTreeSet<_> = unreleased.copied().collect();
        for id in &missing {
            let message = &self.messages[*id];
            let mut lossy = self.lossy_groups.iter();
            let is_lossy = lossy.any(|text| matches(text, message.topic));
            let is_known = message.acknowledged.is_some() || marked.contains(id);
            let sure = is_known && message.expiry_s.is_none();
            let owed = missing.iter().filter(|other| *other == id).count();
            let found = given.iter().filter(|other| *other == id).count();
            assert!(
                !sure || is_lossy || found >= owed,
                "message {id} was acknowledged, or is not taken in again; {owed} groups owe it to \
                 somebody, and {found} have given it on disk"
            );
        }
    }

    /// What groups have given to a client, and it has not got.
    fn given_by_groups(&self, client: usize, restored: &Restored) -> Vec<MessageId> {
        let id = format!("c{client}");
        let mut sessions = restored.sessions.iter();
        let found = sessions.find(|session| *session.client_id == *id);
        let entries = found.into_iter().flat_map(|session| &session.entries);
        let given = entries.filter_map(given_by_group);
        let copies = &self.sessions[client].copies;
        given.filter(|id| !copies.contains_key(id)).collect()
    }

    /// The sessions live on these shards now.
    pub(crate) fn moved(&mut self, homes: impl Iterator<Item = usize>) {
        for (session, home) in self.sessions.iter_mut().zip(homes) {
            session.shard = home;
        }
    }

    fn session_restarted(
        &mut self,
        now: Instant,
        client: usize,
        found: Option<&RestoredSession>,
        heard: Heard,
    ) {
        let on_disk = self.disk.session(client);
        assert_eq!(
            on_disk.is_some(),
            found.is_some(),
            "whether the session of client {client} is on disk, and is found"
        );
        let session = &self.sessions[client];
        let told = session.exists && heard.serial == session.serial;
        let Some((found, number)) = found.zip(on_disk) else {
            assert!(
                !told || session.expiry_s == 0,
                "the session of client {client} is lost, and it was told of it"
            );
            let session = &mut self.sessions[client];
            session.link = None;
            // A will that is on disk is told apart.
            (session.will, session.will_due) = (None, None);
            if session.exists {
                self.end(client);
            }
            self.past_sessions[client].clear();
            return;
        };
        assert!(
            !(told && heard.connected && session.expiry_s == 0),
            "the session of client {client} is back, which was to end with its connection"
        );
        if session.begun != number {
            assert!(
                !told,
                "an older session of client {client} is back, which was told of a newer one"
            );
            let past = &mut self.past_sessions[client];
            let at = past.iter().position(|past| past.begun == number);
            let at = at.unwrap_or_else(|| panic!("nobody began session {number}"));
            self.sessions[client] = past.swap_remove(at);
        }
        self.past_sessions[client].clear();
        let was_here = self.sessions[client].link.is_some();
        if told && heard.connected && was_here {
            assert_eq!(
                found.expiry_s, self.sessions[client].expiry_s,
                "how long the session of client {client} is to stay"
            );
        }
        self.check_owed(client);
        let session = &mut self.sessions[client];
        session.check_subscriptions(client, found);
        let disk = &self.disk;
        session.restart(now, found, heard.connected, |id| disk.has(id));
        for (id, count) in std::mem::take(&mut session.repeats.open) {
            *session.repeats.allowed.entry(id).or_insert(0) += count;
        }
        session.repeats.ended.clear();
        session.take_back(found, &self.messages);
        let (disk, messages) = (&self.disk, &self.messages);
        session.outstanding.retain(|id, expected| {
            let message = &messages[*id];
            // What is on disk may be the copy that was sent before: at QoS 1 that is another.
            let is_other = expected.again && message.qos == QoS::AtLeastOnce;
            let may_be_lost = is_other && message.acknowledged.is_none();
            expected.low > QoS::AtMostOnce && disk.has(*id) && !may_be_lost
        });
    }

    /// What was acknowledged and is owed to this session is on disk.
    fn check_owed(&self, client: usize) {
        let session = &self.sessions[client];
        for (id, expected) in &session.outstanding {
            let acknowledged = self.messages[*id].acknowledged.is_some();
            let acknowledged = acknowledged || self.is_settled_will(*id);
            let owed = expected.low > QoS::AtMostOnce && session.expiry_s > 0 && self.queues_fit;
            assert!(
                !(owed && acknowledged) || self.disk.has(*id),
                "message {id} was acknowledged, client {client} waits for it, and it is lost"
            );
        }
    }

    /// Who sends a message of QoS 2 again is recognized, so it is retained if it was to be: it, or
    /// one that took its place.
    fn markers_restarted(&mut self) {
        let before = self.killed_at - 1;
        let found = self.sessions.iter().filter(|session| session.exists);
        let unreleased = found.flat_map(|session| session.unreleased.values());
        for id in unreleased {
            let message = &mut self.messages[*id];
            let is_kept = self.retained_fits || message.acknowledged.is_some();
            if message.retain && message.accepts > 0 && is_kept {
                message.found.get_or_insert(before);
            }
        }
    }

    fn retained_restarted(&mut self, retained: &[Message]) {
        let now = self.killed_at;
        for topic in TOPICS {
            let kept = retained.iter().find(|message| message.topic() == topic);
            let kept = kept.and_then(|message| identify(message.payload()));
            let possible = current(&self.messages, topic, Some(now));
            let known = |id: &MessageId| self.messages[*id].in_force().is_some();
            let absent = |id: &MessageId| {
                let message = &self.messages[*id];
                message.clear || message.expiry_s.is_some() || !self.is_surely_kept(*id)
            };
            match kept {
                Some(id) => assert!(
                    self.messages[id].accepts > 0 && !superseded(&self.messages, id, Some(now)),
                    "message {id} is retained on {topic} again; it can only be one of {possible:?}"
                ),
                None => assert!(
                    possible.iter().any(absent) || !possible.iter().any(known),
                    "nothing is retained on {topic} any more; it must be one of {possible:?}"
                ),
            }
            let messages = self.messages.iter_mut().enumerate();
            for (id, message) in messages.filter(|(_, m)| m.retain && m.topic == topic) {
                message.erased = Some(id) != kept;
                if Some(id) == kept {
                    message.found.get_or_insert(now);
                }
            }
        }
    }
}

impl Session {
    /// The subscriptions that are found are those that the client was told of, or may have.
    fn check_subscriptions(&mut self, client: usize, found: &RestoredSession) {
        let live: Vec<_> = found
            .subscriptions
            .iter()
            .filter(|held| held.until.is_none())
            .collect();
        if self.expiry_s == 0 {
            // It was to end with its connection, and what changed since is not on disk.
            for filter in &mut self.filters {
                filter.certain = false;
                if live.iter().any(|held| *held.filter == *filter.text) {
                    filter.until = None;
                }
            }
            return;
        }
        let ours: Vec<_> = self.filters.iter().filter(|f| f.until.is_none()).collect();
        let agree = |filter: &Filter, held: &StoredSubscription| {
            let terms = filter.terms.iter();
            *held.filter == *filter.text && terms.into_iter().any(|terms| is_by(held, terms))
        };
        for filter in ours.iter().filter(|filter| filter.certain) {
            assert!(
                live.iter().any(|held| agree(filter, held)),
                "client {client} was told of {filter:?}; found are {live:?}"
            );
        }
        for held in live {
            assert!(
                ours.iter().any(|filter| agree(filter, held)),
                "client {client} has the subscription {held:?} again; it may have {ours:?}"
            );
        }
    }

    /// A subscription that was lowered to QoS 0 or given up may be found as it was before, if its
    /// client was not told. What came at QoS 0 meanwhile may come by it again.
    fn take_back(&mut self, found: &RestoredSession, messages: &[message::Message]) {
        let lowered = std::mem::take(&mut self.repeats.lowered);
        let is_less = |filter: &&Filter| {
            let mut terms = filter.terms.iter();
            !filter.certain || terms.any(|terms| terms.options.qos == QoS::AtMostOnce)
        };
        let is_kept = |filter: &&Filter| {
            let mut live = found
                .subscriptions
                .iter()
                .filter(|held| held.until.is_none());
            live.any(|held| *held.filter == *filter.text && held.options.qos > QoS::AtMostOnce)
        };
        let live = self.filters.iter().filter(|filter| filter.until.is_none());
        let back: Vec<_> = live.filter(is_less).filter(is_kept).collect();
        for (id, at) in lowered {
            let topic = messages[id].topic;
            let mut back = back.iter().filter(|filter| filter.answered_at < at);
            if back.any(|filter| matches(filter.text, topic)) {
                *self.repeats.allowed.entry(id).or_insert(0) += 1;
            }
        }
        self.repeats.taken_back = back.iter().map(|filter| filter.text).collect();
    }

    /// Its client is not here, and knows of it. `told`: it had been let in as far as it knew.
    fn restart(
        &mut self,
        now: Instant,
        found: &RestoredSession,
        told: bool,
        is_found: impl Fn(MessageId) -> bool,
    ) {
        let was_here = self.link.take().is_some() || std::mem::take(&mut self.cut_off);
        self.exists = true;
        // If not, its client has not heard of what it asked for last.
        let as_asked = self.expiry_s == found.expiry_s;
        self.expiry_s = found.expiry_s;
        self.will = None;
        self.will_due = None;
        let held = |text: &str| {
            let mut held = found
                .subscriptions
                .iter()
                .filter(|held| held.until.is_none());
            held.find(|held| *held.filter == *text)
        };
        self.retained
            .retain(|expected| held(expected.text).is_some());
        for filter in &mut self.filters {
            // As if it had subscribed again.
            filter.asked += u32::from(held(filter.text).is_some_and(|held| held.retained_due));
        }
        self.unreleased.retain(|id, _| found.markers.contains(id));
        self.old_marks.retain(|id| found.markers.contains(id));
        for id in std::mem::take(&mut self.replaced_marks) {
            // What replaced it was not on disk, so it is the old one again.
            let message = self.unreleased.get(&id);
            if message.is_some_and(|message| !is_found(*message)) {
                self.unreleased.remove(&id);
                self.old_marks.insert(id);
            }
        }
        let stays =
            (found.expiry_s != u32::MAX).then(|| Duration::from_secs(found.expiry_s.into()));
        let from_now = stays.map(|stays| now + stays);
        // It had left, come back and left again, and the disk knows of the first time only.
        let left_before = |at: Instant| {
            let ends = found
                .away
                .zip(stays)
                .map(|(away, stays)| now + stays.saturating_sub(away));
            ends.is_some_and(|ends| ends + ROUNDED < at)
        };
        let promised = match (self.ends_at, found.away) {
            (Some(at), _) if !was_here && as_asked && !left_before(at) => Some(at),
            // That it had come back was not on disk yet.
            (_, Some(away)) if told || !was_here => {
                stays.map(|stays| now + stays.saturating_sub(away).max(GRACE))
            }
            _ if told => from_now,
            _ => Some(now),
        };
        self.ends_at = from_now
            .and(promised)
            .and_then(|at| at.checked_sub(ROUNDED));
        self.ends_by = stays.map(|stays| now + stays.max(GRACE) + ROUNDED);
    }
}

fn is_by(held: &StoredSubscription, terms: &Terms) -> bool {
    let (has, said) = (held.options, terms.options);
    has.qos == said.qos
        && has.no_local == said.no_local
        && has.retain_as_published == said.retain_as_published
        && held.identifier.map(NonZeroU32::get) == terms.identifier
}

/// What was sent is in the order in which it was: nobody lives so long that ids begin anew.
fn check_order(client: usize, entries: &[RestoredEntry]) {
    let ids = entries.iter().filter_map(|entry| match entry {
        RestoredEntry::Given(entry) => entry.packet_id,
        RestoredEntry::Received(entry) => Some(entry.packet_id),
        RestoredEntry::Done { .. } => None,
    });
    let ids: Vec<_> = ids.map(PacketId::get).collect();
    assert!(
        ids.is_sorted(),
        "client {client} was sent messages under these ids, and they come again so: {ids:?}"
    );
}

/// The message that a group has given to a session, which has not done with it.
fn given_by_group(entry: &RestoredEntry) -> Option<MessageId> {
    match entry {
        RestoredEntry::Given(entry) if entry.by_group => identify(entry.message.payload()),
        _ => None,
    }
}
