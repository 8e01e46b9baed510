//! What is acknowledged between SUBSCRIBE and SUBACK.
//!
//! A publisher that is told of a receiver (0x00, which 5.0 tells from 0x10) was told of this
//! session if no other can have been meant: no other ever asked for anything that matches. Once
//! SUBACK came too, the message is owed to the session like one that was taken behind SUBACK. Only
//! QoS 1 is looked at: PUBREC of a repetition says 0x00 whether there was a receiver or not.

use std::collections::{BTreeMap, BTreeSet};

use unbroken_mqtt_proto::QoS;

use super::session::Expected;
use super::{Oracle, Terms, matches};
use crate::message::MessageId;

#[derive(Debug, Default)]
pub(super) struct Between {
    /// By filter: who ever asked for it, by client and number of the session.
    asked: BTreeMap<&'static str, BTreeSet<(usize, u64)>>,
    /// Filters that were asked for at QoS 0, or given up.
    unsure: BTreeSet<&'static str>,
    /// Messages that only this session can have been meant with, by client and number.
    taken: BTreeMap<MessageId, (usize, u64)>,
    /// Those of them whose publisher was told of a receiver.
    told: BTreeSet<MessageId>,
    /// What became owed to whom by that.
    promised: Vec<(MessageId, usize)>,
}

impl Between {
    pub(super) fn subscribing(&mut self, session: (usize, u64), entries: &[(&'static str, Terms)]) {
        for (text, terms) in entries {
            self.asked.entry(text).or_default().insert(session);
            if terms.options.qos == QoS::AtMostOnce {
                self.unsure.insert(text);
            }
        }
    }

    pub(super) fn unsubscribing(&mut self, client: usize, text: &'static str) {
        self.unsure.insert(text);
        self.taken.retain(|_, (of, _)| *of != client);
    }

    /// The broker was killed: what waits for a SUBACK was not promised.
    pub(super) fn restarted(&mut self) {
        self.taken.clear();
        self.told.clear();
    }

    /// The only session that ever asked for what matches, if it still has all of that.
    fn only_one(&self, topic: &str) -> Option<(usize, u64)> {
        let mut matching = self.asked.iter().filter(|(text, _)| matches(text, topic));
        let (_, first) = matching.clone().next()?;
        let only = *first.first()?;
        let is_only = matching.all(|(text, sessions)| {
            sessions.len() == 1 && sessions.contains(&only) && !self.unsure.contains(text)
        });
        is_only.then_some(only)
    }
}

impl Oracle {
    /// A message was taken that is not owed to anybody yet.
    pub(super) fn taken_between(&mut self, id: MessageId) {
        let message = &self.messages[id];
        let is_plain = message.accepts == 1 && !message.retain && message.qos == QoS::AtLeastOnce;
        if !is_plain || message.promised || self.rights.concern(message.topic) {
            return;
        }
        if let Some((client, serial)) = self.between.only_one(message.topic) {
            let session = &self.sessions[client];
            let stays = session.exists && session.serial == serial && session.expiry_s > 0;
            // No Local may have been said, and be taken back.
            let is_others = message.publisher != client;
            if stays && is_others && !session.outstanding.contains_key(&id) {
                self.between.taken.insert(id, (client, serial));
            }
        }
    }

    /// Its publisher was told that it has a receiver.
    pub(crate) fn told_of_receiver(&mut self, id: MessageId) {
        if let Some((client, _)) = self.between.taken.get(&id).copied() {
            self.between.told.insert(id);
            self.promise_between(client);
        }
    }

    /// What was acknowledged so is owed, if SUBACK came.
    pub(super) fn promise_between(&mut self, client: usize) {
        let Self {
            between,
            sessions,
            messages,
            rights,
            ..
        } = self;
        let session = &mut sessions[client];
        let Between {
            taken,
            told,
            promised,
            ..
        } = between;
        taken.retain(|id, (of, serial)| {
            if *of != client || !told.contains(id) {
                return true;
            }
            let message = &messages[*id];
            let stays = session.exists && session.serial == *serial && session.expiry_s > 0;
            let is_new = message.accepts == 1 && !session.copies.contains_key(id);
            if !stays || !is_new || rights.have_denied(client, message.topic) {
                return false;
            }
            let Some(expected) = session.expect(message, false) else {
                return true;
            };
            // On which terms it comes is not certain.
            let expected = Expected {
                version: u64::MAX,
                ..expected
            };
            session.outstanding.entry(*id).or_insert(expected);
            promised.push((*id, client));
            false
        });
    }

    /// Of what was promised so it is not known whether a cut of the power came after the sync.
    pub(super) fn excuse_between(&mut self) {
        for (id, client) in std::mem::take(&mut self.between.promised) {
            self.sessions[client].outstanding.remove(&id);
        }
        self.between.restarted();
    }
}
