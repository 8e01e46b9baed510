//! The end of the machine where commits are not synced: what was acknowledged before the last sync
//! is there, what was committed since may be, up to some moment, and what is there is whole.
//!
//! Then the broker goes on with clients that know more than it does. What was promised before the
//! sync, and what is promised from then on, must hold. Of the rest, what is on disk may come, once
//! more if it has come before, and nothing else.
//!
//! Deliberately absent: whether what groups owe from before comes.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use unbroken_broker_core::{Message, RestoredSession, StoredSubscription};
use unbroken_mqtt_proto::QoS;
use unbroken_persist::Restored;

use super::disk::Disk;
use super::retained::current;
use super::session::{Filter, Repeats, Session};
use super::{GRACE, Oracle, ROUNDED, Request, Terms};
use crate::groups::Groups;
use crate::message::{MessageId, TEXTS, TOPICS, identify};

/// The last sync.
#[derive(Debug, Default)]
pub(super) struct Synced {
    /// When it was; 0 if there was none.
    at: u64,
    /// What a restart would have found.
    disk: Disk,
    /// Now that the power is cut, what counts is before this.
    until: u64,
}

impl Oracle {
    /// What is committed is synced.
    pub(crate) fn synced(&mut self) {
        self.synced.at = self.tick();
        self.synced.disk = self.disk.clone();
    }

    /// The power is cut.
    pub(crate) fn lose_unsynced(&mut self) {
        self.disk.go_back_to(std::mem::take(&mut self.synced.disk));
    }

    /// This was on the disk all the same.
    pub(crate) fn committed_before_cut(&mut self, request: &Request) {
        self.disk.commit(request);
    }

    /// The restart that follows is a sync as well.
    pub(crate) fn power_was_cut(&mut self) {
        self.synced.until = self.synced.at;
        self.excuse_between();
    }

    /// This is what a broker would begin with.
    pub(crate) fn check_power_cut(&self, restored: &Restored) {
        assert!(restored.lost.is_empty(), "{:?}", restored.lost);
        for client in 0..self.sessions.len() {
            let id = format!("c{client}");
            let found = restored.sessions.iter().find(|s| *s.client_id == *id);
            assert_eq!(
                self.disk.session(client).is_some(),
                found.is_some(),
                "whether the session of client {client} is on disk, and is found"
            );
            self.check_session_cut(client, found);
        }
        for topic in TOPICS {
            self.check_retained_cut(topic, &restored.retained);
        }
    }

    /// A broker goes on with this.
    pub(crate) fn goes_on_behind(&mut self, now: Instant, restored: &Restored) {
        self.killed_at = self.tick();
        self.wills_are_as_on_disk();
        self.wills_restarted(now, restored);
        for client in 0..self.sessions.len() {
            let id = format!("c{client}");
            let found = restored.sessions.iter().find(|s| *s.client_id == *id);
            self.session_goes_on(now, client, found);
            let mut alone = restored.wills.iter();
            self.orphans[client] = alone.any(|(client_id, _)| **client_id == *id);
        }
        for topic in TOPICS {
            let kept = restored.retained.iter().find(|kept| kept.topic() == topic);
            let kept = kept.and_then(|kept| identify(kept.payload()));
            let messages = self.messages.iter_mut().enumerate();
            for (id, message) in messages.filter(|(_, m)| m.retain && m.topic == topic) {
                message.erased = Some(id) != kept;
                message.found = (Some(id) == kept).then_some(self.killed_at);
            }
        }
        self.groups = Groups::default();
        self.left_to_groups.goes_on(restored);
        self.disk.restarted();
        let disk = &self.disk;
        self.must_be_stored.retain(|id| disk.has_asked_for(*id));
    }

    fn session_goes_on(&mut self, now: Instant, client: usize, found: Option<&RestoredSession>) {
        let owed = self.owed_before_sync(client);
        let past = std::mem::take(&mut self.past_sessions[client]);
        let Some((found, number)) = found.zip(self.disk.session(client)) else {
            let serial = self.sessions[client].serial;
            self.sessions[client] = Session {
                serial,
                ..Session::default()
            };
            return;
        };
        let last = std::mem::take(&mut self.sessions[client]);
        let mut all = past.into_iter().chain([last]);
        let of_this = all.find(|session| session.begun == number);
        let mut session = of_this.unwrap_or_else(|| panic!("nobody began session {number}"));
        session.go_on(now, found, self.killed_at);
        session.outstanding.retain(|id, _| owed.contains(id));
        self.sessions[client] = session;
    }

    /// What a client waits for, of what was promised to it before the sync.
    fn owed_before_sync(&self, client: usize) -> BTreeSet<MessageId> {
        let session = &self.sessions[client];
        let before = |tick: u64| tick > 0 && tick < self.synced.until;
        let goes_on = session.exists && session.expiry_s > 0 && before(session.told_at);
        let outstanding = session.outstanding.iter().filter(|(id, expected)| {
            let acknowledged = self.messages[**id].acknowledged.is_some_and(before);
            goes_on && acknowledged && expected.low > QoS::AtMostOnce && self.disk.has(**id)
        });
        outstanding.map(|(id, _)| *id).collect()
    }

    fn check_session_cut(&self, client: usize, found: Option<&RestoredSession>) {
        let session = &self.sessions[client];
        let before = |tick: u64| tick > 0 && tick < self.synced.until;
        let goes_on = session.exists && session.expiry_s > 0 && session.ends_at.is_none();
        if !goes_on || !before(session.told_at) {
            return;
        }
        let Some(found) = found.filter(|_| self.disk.session(client) == Some(session.begun)) else {
            panic!("the session of client {client} is lost, and it was told of it before the sync");
        };
        for filter in session.filters.iter().filter(|filter| filter.certain) {
            let is_settled = filter.terms.len() == 1 && before(filter.answered_at);
            let mut subscriptions = found
                .subscriptions
                .iter()
                .filter(|held| held.until.is_none());
            assert!(
                !is_settled || subscriptions.any(|held| *held.filter == *filter.text),
                "client {client} was told of {filter:?} before the sync; found are {:?}",
                found.subscriptions
            );
        }
        for (id, expected) in &session.outstanding {
            let acknowledged = self.messages[*id].acknowledged.is_some_and(before);
            let owed = expected.low > QoS::AtMostOnce && self.queues_fit;
            assert!(
                !(owed && acknowledged) || self.disk.has(*id),
                "message {id} was acknowledged before the sync, client {client} waits for it, and \
                 it is lost"
            );
        }
    }

    /// Where it is beyond doubt which message is retained, and was before the sync.
    fn check_retained_cut(&self, topic: &str, retained: &[Message]) {
        let [id] = current(&self.messages, topic, None)[..] else {
            return;
        };
        let message = &self.messages[id];
        let in_force = message.in_force();
        let sure = in_force.is_some_and(|at| at < self.synced.until) && message.accepts == 1;
        if !sure || message.clear || message.expiry_s.is_some() || !self.is_surely_kept(id) {
            return;
        }
        let mut kept = retained.iter().filter(|kept| kept.topic() == topic);
        assert!(
            kept.any(|kept| identify(kept.payload()) == Some(id)),
            "message {id} was retained on {topic} before the sync, and is not any more"
        );
    }
}

impl Session {
    /// It is as it was found. Its client is not here, and may remember more of it.
    fn go_on(&mut self, now: Instant, found: &RestoredSession, tick: u64) {
        (self.exists, self.link, self.cut_off) = (true, None, false);
        (self.will, self.will_due) = (None, None);
        self.expiry_s = found.expiry_s;
        let stays =
            (found.expiry_s != u32::MAX).then(|| Duration::from_secs(found.expiry_s.into()));
        self.ends_at = stays.map(|_| now);
        self.ends_by = stays.map(|stays| now + stays.max(GRACE) + ROUNDED);
        self.version += 1;
        for filter in &mut self.filters {
            filter.certain = false;
            filter.until.get_or_insert(tick);
        }
        let live = found
            .subscriptions
            .iter()
            .filter(|held| held.until.is_none());
        self.filters.extend(live.map(|held| filter_of(held, tick)));
        self.copies.clear();
        self.order.clear();
        self.seen_with_id.clear();
        self.retained.clear();
        self.retained_at.clear();
        self.newest_retained.clear();
        self.repeats = Repeats::default();
        self.unreleased.retain(|id, _| found.markers.contains(id));
        self.old_marks = found.markers.iter().copied().collect();
    }
}

/// A subscription that is found.
fn filter_of(held: &StoredSubscription, tick: u64) -> Filter {
    let mut texts = TEXTS.into_iter().flatten().copied();
    let text = texts.find(|text| **text == *held.filter);
    let terms = Terms {
        options: held.options,
        identifier: held.identifier.map(NonZeroU32::get),
    };
    Filter {
        text: text.unwrap_or_else(|| panic!("nobody asked for {}", held.filter)),
        certain: true,
        terms: vec![terms],
        own_too: !held.options.no_local,
        until: None,
        // What is retained may be still to be sent.
        asked: 1,
        asked_at: tick,
        answered_at: tick,
    }
}
