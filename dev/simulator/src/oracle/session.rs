//! What is known of one client's session: subscriptions, and what must come by them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use unbroken_mqtt_proto::{PacketId, QoS};

use super::{Received, Terms, Will, matches};
use crate::message::{Message, MessageId};

/// What is known of a client's session.
#[derive(Debug, Default)]
pub(crate) struct Session {
    pub(crate) serial: u64,
    pub(crate) exists: bool,
    /// Its connection, by the number of the link.
    pub(crate) link: Option<usize>,
    /// As announced in the last CONNACK.
    pub(crate) present: bool,
    pub(crate) shard: usize,
    pub(crate) expiry_s: u32,
    /// When its client was first told of it; 0 if it was not.
    pub(super) told_at: u64,
    /// Its number among those that the disk was told of; 0 if it was not.
    pub(super) begun: u64,
    /// It lost its connection because the store had failed: on disk it has not.
    pub(super) cut_off: bool,
    /// It must not end before the first, and must have ended at the second.
    pub(super) ends_at: Option<Instant>,
    pub(super) ends_by: Option<Instant>,
    pub(super) will: Option<Will>,
    pub(super) will_due: Option<Instant>,
    pub(super) filters: Vec<Filter>,
    /// Counts changes of what the filters may be.
    pub(super) version: u64,
    pub(super) outstanding: BTreeMap<MessageId, Expected>,
    pub(super) copies: BTreeMap<MessageId, u32>,
    /// The newest message seen, by publisher, topic and QoS.
    pub(super) order: BTreeMap<(usize, &'static str, QoS), u64>,
    pub(super) seen_with_id: BTreeSet<(PacketId, MessageId)>,
    pub(super) retained: Vec<RetainedExpected>,
    /// When a message that is retained was last received, by topic.
    pub(super) retained_at: BTreeMap<&'static str, u64>,
    /// The retained message that was received last, by topic.
    pub(super) newest_retained: BTreeMap<&'static str, MessageId>,
    /// QoS 2 messages under way from this client.
    pub(crate) unreleased: BTreeMap<PacketId, MessageId>,
    /// Ids that were marked so when the power was cut, and may be those of others by now.
    pub(super) old_marks: BTreeSet<PacketId>,
    /// Those of them that a new message has taken since the last restart.
    pub(super) replaced_marks: BTreeSet<PacketId>,
    pub(super) repeats: Repeats,
}

/// What a restart may repeat of the messages that a session got: at QoS 1, those whose
/// acknowledgement is not known to be on disk; at QoS 0, those that came so because a subscription
/// was lowered or given up, of which the disk was not told.
#[derive(Debug, Default)]
pub(super) struct Repeats {
    /// The message that came last under an id.
    pub(super) under: BTreeMap<PacketId, MessageId>,
    /// Copies that came, and whose end is not on disk.
    pub(super) open: BTreeMap<MessageId, u32>,
    /// What the broker has taken an acknowledgement of, and not yet told the disk.
    pub(super) ended: Vec<MessageId>,
    /// Further copies that may come, because the broker was killed.
    pub(super) allowed: BTreeMap<MessageId, u32>,
    /// Messages that came at QoS 2.
    pub(super) exactly: BTreeSet<MessageId>,
    /// When messages that were sent at more came at QoS 0, since the broker was started.
    pub(super) lowered: Vec<(MessageId, u64)>,
    /// Filters that are on disk at more than QoS 0, where less was asked for.
    pub(super) taken_back: Vec<&'static str>,
}

#[derive(Debug)]
pub(super) struct Filter {
    pub(super) text: &'static str,
    pub(super) certain: bool,
    /// What may be in force, newest last.
    pub(super) terms: Vec<Terms>,
    /// At some time the client's own messages came by it.
    pub(super) own_too: bool,
    /// When UNSUBACK was seen.
    pub(super) until: Option<u64>,
    /// SUBSCRIBEs sent, each of which may bring retained messages, and restarts that go on with it.
    pub(super) asked: u32,
    /// When the last of them was sent, and when it was answered.
    pub(super) asked_at: u64,
    pub(super) answered_at: u64,
}

#[derive(Debug)]
pub(super) struct Expected {
    pub(super) low: QoS,
    pub(super) high: QoS,
    /// Certain filters that it comes by.
    pub(super) by: Vec<&'static str>,
    pub(super) version: u64,
    pub(super) link: Option<usize>,
    /// Nobody waited for it when it was first taken, and it was sent again.
    pub(super) again: bool,
    /// Known only if everything is certain.
    pub(super) identifiers: Option<Vec<u32>>,
}

/// A subscription to a topic with a retained message: that one or a newer one must come.
#[derive(Debug)]
pub(super) struct RetainedExpected {
    pub(super) text: &'static str,
    pub(super) topic: &'static str,
    pub(super) since: u64,
}

impl Session {
    /// A PUBLISH of QoS 2 comes from its client; whether its message is new. After a power cut the
    /// broker takes it for a repetition if it says so, whatever it is.
    pub(crate) fn takes_in(&mut self, packet_id: PacketId, id: MessageId, dup: bool) -> bool {
        if dup && self.old_marks.contains(&packet_id) {
            return false;
        }
        if self.old_marks.remove(&packet_id) {
            self.replaced_marks.insert(packet_id);
        }
        self.unreleased.insert(packet_id, id) != Some(id)
    }

    pub(crate) fn released(&mut self, packet_id: PacketId) {
        self.unreleased.remove(&packet_id);
        self.old_marks.remove(&packet_id);
    }

    /// A copy of a message came.
    pub(super) fn note_repeatable(
        &mut self,
        id: MessageId,
        message: &Message,
        received: &Received<'_>,
        tick: u64,
    ) {
        let Some(packet_id) = received.packet_id else {
            if message.qos > QoS::AtMostOnce {
                self.note_lowered(id, message.topic, tick);
            }
            return;
        };
        self.repeats.under.insert(packet_id, id);
        if received.qos == QoS::AtLeastOnce {
            *self.repeats.open.entry(id).or_insert(0) += 1;
            // It was on its way when the broker was killed, and comes again.
            if self.link.is_none() {
                *self.repeats.allowed.entry(id).or_insert(0) += 1;
            }
        }
    }

    fn note_lowered(&mut self, id: MessageId, topic: &str, tick: u64) {
        let mut taken_back = self.repeats.taken_back.iter();
        if self.link.is_none() && taken_back.any(|text| matches(text, topic)) {
            // It was on its way when the broker was killed.
            *self.repeats.allowed.entry(id).or_insert(0) += 1;
        } else {
            // The broker may be killed yet, also after it has closed the connection.
            self.repeats.lowered.push((id, tick));
        }
    }

    /// The broker has taken the answer to what was sent under this id.
    pub(super) fn note_ended(&mut self, packet_id: PacketId) {
        let ended = self.repeats.under.get(&packet_id);
        self.repeats.ended.extend(ended);
    }

    /// That these have come to their end is on disk.
    pub(super) fn note_landed(&mut self, landed: &[MessageId]) {
        for id in landed {
            if let Some(count) = self.repeats.open.get_mut(id) {
                *count -= 1;
                if *count == 0 {
                    self.repeats.open.remove(id);
                }
            }
        }
    }

    pub(super) fn live_mut(&mut self, text: &str) -> Option<&mut Filter> {
        self.filters
            .iter_mut()
            .find(|f| f.text == text && f.until.is_none())
    }

    /// What is on its way between the shards comes by what is left, when this filter goes.
    pub(super) fn expect_without(&mut self, text: &str) {
        let (link, filters) = (self.link, &self.filters);
        let lowest = |by: &&str| {
            let live = filters
                .iter()
                .find(|f| f.text == *by && f.until.is_none())?;
            live.terms.iter().map(|terms| terms.options.qos).min()
        };
        self.outstanding.retain(|_, expected| {
            expected.by.retain(|by| *by != text);
            let left = expected.by.iter().filter_map(lowest).max();
            if let Some(left) = left.filter(|left| *left < expected.low) {
                (expected.low, expected.link) = (left, link);
            }
            !expected.by.is_empty()
        });
    }

    /// What this session must get of a message that is taken now.
    pub(super) fn expect(&self, message: &Message, own: bool) -> Option<Expected> {
        let matching = |f: &&Filter| f.until.is_none() && matches(f.text, message.topic);
        let live: Vec<_> = self.filters.iter().filter(matching).collect();
        let kept_away = |f: &&&Filter| own && f.terms.iter().any(|t| t.options.no_local);
        let certain: Vec<_> = live.iter().filter(|f| f.certain && !kept_away(f)).collect();
        let qos = |terms: &Terms| terms.options.qos;
        let low = certain
            .iter()
            .filter_map(|f| f.terms.iter().map(qos).min())
            .max()?;
        let high = live.iter().flat_map(|f| f.terms.iter().map(qos)).max()?;
        let low = low.min(message.qos);
        if low == QoS::AtMostOnce && self.link.is_none() {
            return None;
        }
        let all_known = live
            .iter()
            .all(|f| f.certain && f.terms.len() == 1 && !kept_away(&f));
        let identifiers = all_known.then(|| {
            let mut all: Vec<_> = live.iter().filter_map(|f| f.terms[0].identifier).collect();
            all.sort_unstable();
            all
        });
        Some(Expected {
            low,
            high: high.min(message.qos),
            by: certain.iter().map(|f| f.text).collect(),
            version: self.version,
            link: self.link,
            again: message.accepts > 1,
            identifiers,
        })
    }

    pub(super) fn may_get(&self, message: &Message, own: bool) -> bool {
        self.filters.iter().any(|f| {
            f.until.is_none_or(|until| until >= message.first_accept)
                && matches(f.text, message.topic)
                && (f.own_too || !own)
        })
    }

    pub(super) fn possible_texts(&self, message: &Message) -> u32 {
        let possible = |f: &&Filter| {
            f.until.is_none_or(|until| until >= message.first_accept)
                && matches(f.text, message.topic)
        };
        let texts: BTreeSet<_> = self
            .filters
            .iter()
            .filter(possible)
            .map(|f| f.text)
            .collect();
        u32::try_from(texts.len()).unwrap_or(u32::MAX)
    }

    pub(super) fn asked_for(&self, message: &Message) -> u32 {
        let matching = self
            .filters
            .iter()
            .filter(|f| matches(f.text, message.topic));
        matching.map(|f| f.asked).sum()
    }
}
