//! The end of the machine where commits are not synced: what was acknowledged before the last sync
//! is there, what was committed since may be, up to some moment, and what is there is whole.
//!
//! Looked at once, at the end of a run: clients that know more than their broker cannot go on with
//! it as if nothing had been.

use unbroken_broker_core::{Message, RestoredSession};
use unbroken_durable::Restored;
use unbroken_mqtt_proto::QoS;

use super::disk::Disk;
use super::retained::current;
use super::{Oracle, Request};
use crate::message::{TOPICS, identify};

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
        self.disk = std::mem::take(&mut self.synced.disk);
    }

    /// This was on the disk all the same.
    pub(crate) fn committed_before_cut(&mut self, request: &Request) {
        self.disk.commit(request);
    }

    /// The restart that follows is a sync as well.
    pub(crate) fn power_was_cut(&mut self) {
        self.synced.until = self.synced.at;
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
            let mut holdings = found.holdings.iter().filter(|held| held.until.is_none());
            assert!(
                !is_settled || holdings.any(|held| *held.filter == *filter.text),
                "client {client} was told of {filter:?} before the sync; found are {:?}",
                found.holdings
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
        if !sure || message.clear || message.expiry_s.is_some() || !self.retained_fits {
            return;
        }
        let mut kept = retained.iter().filter(|kept| kept.topic() == topic);
        assert!(
            kept.any(|kept| identify(kept.payload()) == Some(id)),
            "message {id} was retained on {topic} before the sync, and is not any more"
        );
    }
}
