//! Drop records: what a session missed because of a limit or a rule of the broker, reported to its
//! client.
//!
//! ```text
//! dropped for this session -> stamped, and does the session subscribe to drops? -> noted here
//! the next delivery behind it is about to leave, or none waits -> a record, over the connection
//! ```
//!
//! Only the session that missed a message gets the record: another one may have the message. So a
//! record is no publication: it is not routed, stored or retained. It leaves at QoS 0 and in its
//! place among the deliveries, before the first number that would show a gap.
//!
//! The client reads what stands behind the record after it. So the acknowledgement of any later
//! delivery shows that the record came. Until then it is kept, and sent again to a session that
//! comes back without having acknowledged one. A record that comes twice changes nothing.
//!
//! Records are about lanes of algorithm 1, of publishers and of the broker (`forward_stamp`) alike:
//! both are the user property `audit` of the message.
//!
//! **Absent:** records over a restart of the broker; messages that were lost by accident (a broken
//! connection, a client that was offline at QoS 0), which the receiver calls lost and may ask for;
//! messages that were refused to their publisher, which knows; messages whose stamp does not fit.

use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::time::Instant;

use unbroken_merkle_log::{
    Algorithm, DropReason as Declared, DropRecord, DropRun, Epoch, Hash, LaneId, Property, Xxh3,
};
use unbroken_mqtt_proto::{self as mqtt, PropertyBuf, QoS};

use super::Audit;
use super::ledger::Ledger;
use super::watch::Topics;
use crate::by_filter::ByFilter;
use crate::ids::SessionId;
use crate::limits::MISSED_BYTES_MAX;
use crate::message::Publication;
use crate::policy::signed_topic;
use crate::reason::DropReason;
use crate::routing::{Grant, Terms};

/// What a session missed and has no record of. About 16 bytes a message.
#[derive(Debug, Default)]
pub(crate) struct Missed {
    runs: Vec<Run>,
    /// Sent, and perhaps not read; the oldest first.
    sent: VecDeque<SentRecord>,
    bytes: usize,
    /// It is looked at when the present input has been handled.
    listed: bool,
}

/// A record that was sent, and perhaps not read.
#[derive(Debug)]
struct SentRecord {
    record: DropRecord,
    /// Who acknowledges the delivery of this number, or a later one, has heard it.
    heard_with: u64,
}

/// Neighbours that were dropped for one reason.
#[derive(Debug)]
struct Run {
    about: About,
    /// Sent before the delivery of this number leaves.
    before: u64,
    first: u64,
    leaves: Vec<Leaf>,
}

type Leaf = [u8; 16];

/// What one record is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct About {
    lane: LaneId,
    epoch: Epoch,
    reason: Declared,
}

impl Missed {
    fn note(&mut self, about: About, number: u64, leaf: Leaf, before: u64) {
        while self.bytes >= MISSED_BYTES_MAX {
            // What was sent was probably read.
            if !self.forget_sent() {
                return;
            }
        }
        self.bytes += size_of::<Leaf>();
        let mut latest = self.runs.iter_mut().rev().take(RUNS_LOOKED_AT);
        let goes_on = latest.find(|run| {
            run.about == about && run.end() == number && run.leaves.len() < RUN_MESSAGES_MAX
        });
        if let Some(run) = goes_on {
            return run.leaves.push(leaf);
        }
        self.bytes += size_of::<Run>();
        self.runs.push(Run {
            about,
            before,
            first: number,
            leaves: vec![leaf],
        });
    }

    /// A record was sent. It is kept until it is known to be read.
    fn keep(&mut self, record: DropRecord, heard_with: u64) {
        self.bytes += cost(&record);
        self.sent.push_back(SentRecord { record, heard_with });
    }

    fn forget_sent(&mut self) -> bool {
        let oldest = self.sent.pop_front();
        self.bytes -= oldest.as_ref().map_or(0, |sent| cost(&sent.record));
        oldest.is_some()
    }

    /// The delivery of this number was acknowledged.
    fn acknowledged(&mut self, number: u64) {
        while let Some(oldest) = self.sent.front()
            && oldest.heard_with <= number
        {
            self.forget_sent();
        }
    }

    /// The client has come back: what it may not have heard is due again, before all else.
    fn repeat(&mut self) {
        let mut again = Vec::new();
        for SentRecord { record, .. } in self.sent.drain(..) {
            let about = About {
                lane: record.lane,
                epoch: record.epoch,
                reason: record.reason,
            };
            again.extend(record.runs.into_iter().map(|run| Run {
                about,
                before: 0,
                first: run.first,
                leaves: run.leaves.iter().filter_map(leaf).collect(),
            }));
        }
        self.runs.splice(..0, again);
    }

    fn is_empty(&self) -> bool {
        self.runs.is_empty() && self.sent.is_empty()
    }

    fn is_due(&self, number: u64) -> bool {
        self.runs.iter().any(|run| run.before <= number)
    }

    /// A record of what is due.
    fn take_due(&mut self, number: u64) -> Option<DropRecord> {
        let about = self.runs.iter().find(|run| run.before <= number)?.about;
        let mut room = RUN_MESSAGES_MAX;
        let fits = |run: &mut Run| {
            let fits = run.about == about && run.before <= number && room > 0;
            if fits {
                room = room.saturating_sub(run.leaves.len());
            }
            fits
        };
        let mut taken: Vec<Run> = self.runs.extract_if(.., fits).collect();
        taken.sort_unstable_by_key(|run| run.first);
        let mut runs: Vec<DropRun> = Vec::new();
        for run in taken {
            self.bytes -= size_of::<Run>() + size_of_val(&run.leaves[..]);
            let end = runs.last().map_or(0, |last| last.numbers().end);
            // A message that its publisher sent again may have been dropped again.
            let again = usize::try_from(end.saturating_sub(run.first)).unwrap_or(usize::MAX);
            let leaves = run.leaves.into_iter().skip(again).map(Hash::from);
            match runs.last_mut() {
                Some(last) if run.first <= end => last.leaves.extend(leaves),
                _ => runs.push(DropRun {
                    first: run.first,
                    leaves: leaves.collect(),
                }),
            }
        }
        Some(DropRecord {
            lane: about.lane,
            epoch: about.epoch,
            reason: about.reason,
            runs,
        })
    }
}

/// What a run costs is the same before and after it is sent.
fn cost(record: &DropRecord) -> usize {
    let leaves: usize = record.runs.iter().map(|run| run.leaves.len()).sum();
    record.runs.len() * size_of::<Run>() + leaves * size_of::<Leaf>()
}

fn leaf(hash: &Hash) -> Option<Leaf> {
    hash.as_bytes().try_into().ok()
}

impl Run {
    fn end(&self) -> u64 {
        self.first + self.leaves.len() as u64
    }
}

impl Ledger {
    /// The session does not get this message, which stood before the delivery of that number.
    /// `drops`: what topics of drop records begin with. Answers whether the session is to be looked
    /// at when the present input has been handled.
    #[inline]
    pub(crate) fn note_missed(
        &mut self,
        subscriptions: &ByFilter<Grant>,
        drops: &str,
        publication: &Publication<'_>,
        reason: DropReason,
        before: u64,
    ) -> bool {
        !publication.properties.is_empty()
            && reason.is_decision()
            && self.note_stamped(subscriptions, drops, publication, reason, before)
    }

    #[cold]
    fn note_stamped(
        &mut self,
        subscriptions: &ByFilter<Grant>,
        drops: &str,
        publication: &Publication<'_>,
        reason: DropReason,
        before: u64,
    ) -> bool {
        let Some(stamp) = stamp_of(publication) else {
            return false;
        };
        let hears = grants(subscriptions, drops, stamp.lane);
        let signed = signed_topic(publication.properties, publication.topic);
        let (topic, payload) = (signed.as_bytes(), publication.payload);
        let Some(leaf) = leaf(&stamp.digest) else {
            return false;
        };
        if hears.count() == 0 || !stamp.fits(&Xxh3, topic, payload) {
            return false;
        }
        let about = About {
            lane: stamp.lane,
            epoch: stamp.epoch,
            reason: reason.declared(),
        };
        let missed = self.missed.get_or_insert_default();
        missed.note(about, stamp.sequence, leaf, before);
        !std::mem::replace(&mut missed.listed, true)
    }

    /// Takes a record of what the client missed before the delivery of this number. `is_kept`: it
    /// may come back without having heard it.
    pub(crate) fn take_missed(&mut self, number: u64, is_kept: bool) -> Option<DropRecord> {
        let missed = self.missed.as_deref_mut()?;
        let record = missed.take_due(number)?;
        if is_kept {
            missed.keep(record.clone(), self.account.due());
        }
        self.forget_empty();
        Some(record)
    }

    /// The client has come back. Answers whether the session is to be looked at when the present
    /// input has been handled.
    pub(crate) fn repeat_missed(&mut self) -> bool {
        self.missed.as_deref_mut().is_some_and(|missed| {
            missed.repeat();
            !std::mem::replace(&mut missed.listed, true)
        })
    }

    /// The client has acknowledged the delivery of this number.
    #[inline]
    pub(crate) fn note_heard(&mut self, number: u64) {
        if let Some(missed) = self.missed.as_deref_mut() {
            missed.acknowledged(number);
            self.forget_empty();
        }
    }

    /// The session is looked at. Answers whether it misses anything.
    pub(crate) fn begin_sending_missed(&mut self) -> bool {
        self.missed.as_deref_mut().is_some_and(|missed| {
            missed.listed = false;
            true
        })
    }

    /// Whether no record is to be sent to the client.
    #[inline]
    pub(crate) fn misses_nothing(&self) -> bool {
        self.missed.is_none()
    }

    /// Whether a record is to be sent before the delivery of this number leaves.
    pub(crate) fn misses_before(&self, number: u64) -> bool {
        let missed = self.missed.as_deref();
        missed.is_some_and(|missed| missed.is_due(number))
    }

    fn forget_empty(&mut self) {
        if self.missed.as_deref().is_some_and(Missed::is_empty) {
            self.missed = None;
        }
    }
}

impl Audit {
    /// This session is to be looked at when the present input has been handled.
    pub(crate) fn list_missing(&mut self, session: SessionId) {
        self.missing.push(session);
    }

    pub(crate) fn take_missing(&mut self) -> Option<SessionId> {
        self.missing.pop()
    }
}

/// A drop record as it is sent to one client.
#[derive(Debug)]
pub(crate) struct OwnRecord {
    topic: String,
    properties: PropertyBuf,
    payload: Vec<u8>,
    identifiers: Vec<NonZeroU32>,
}

impl OwnRecord {
    /// `None` where the client has unsubscribed since.
    pub(crate) fn of(
        record: &DropRecord,
        subscriptions: &ByFilter<Grant>,
        drops: &str,
        receiver: &str,
    ) -> Option<Self> {
        let grants: Vec<_> = grants(subscriptions, drops, record.lane).collect();
        if grants.is_empty() {
            return None;
        }
        let mut payload = Vec::new();
        let written = record.encode(&Xxh3, &mut payload);
        debug_assert!(written.is_ok(), "{written:?}");
        let mut properties = PropertyBuf::new();
        let to = mqtt::Property::UserProperty(RECEIVER, receiver);
        crate::message::add(&mut properties, to);
        Some(Self {
            topic: format!("{drops}{}", record.lane),
            properties,
            payload,
            identifiers: grants.iter().filter_map(|held| held.identifier).collect(),
        })
    }

    pub(crate) fn publication(&self, now: Instant) -> Publication<'_> {
        Publication {
            topic: &self.topic,
            properties: self.properties.as_properties(),
            payload: &self.payload,
            qos: QoS::AtMostOnce,
            retain: false,
            expires: None,
            stamp: now,
            mark: None,
        }
    }

    pub(crate) fn terms(&self) -> Terms<'_> {
        Terms {
            qos: QoS::AtMostOnce,
            retain: false,
            identifiers: &self.identifiers,
            group: None,
            is_denied: false,
        }
    }
}

/// The stamp of a message, if it has exactly one, for a whole message, that needs no key.
fn stamp_of(publication: &Publication<'_>) -> Option<Property> {
    let properties = publication.properties.user_properties();
    let mut stamps = properties.filter(|(name, _)| *name == Property::NAME);
    let (_, text) = stamps.next()?;
    let stamp = Property::parse_text(text).ok()?;
    let is_usable = stamp.algorithm == Algorithm::Xxh3 && stamp.part.is_none();
    (is_usable && stamps.next().is_none()).then_some(stamp)
}

/// The subscriptions by which a session hears of drops in this lane: those under the topic itself,
/// so that each costs a look-up and not a walk.
fn grants<'a>(
    subscriptions: &'a ByFilter<Grant>,
    drops: &str,
    lane: LaneId,
) -> impl Iterator<Item = &'a Grant> + use<'a> {
    let filters = [
        format!("{drops}+"),
        format!("{drops}#"),
        format!("{drops}{lane}"),
        format!("{drops}{lane}/#"),
        format!("{drops}+/#"),
    ];
    let held = filters.map(|filter| subscriptions.get(&filter));
    held.into_iter().flatten()
}

/// Whether a client's message poses as a record of the broker's, which alone names its receiver.
/// `mounted`: it may do so to a client that knows only the end of the topic.
#[inline]
pub(crate) fn poses_as_record(
    topics: &Topics,
    topic: &str,
    properties: mqtt::Properties<'_>,
    mounted: bool,
) -> bool {
    let mut named = properties.user_properties().map(|(name, _)| name);
    if mounted {
        return named.any(|name| name == RECEIVER) && topics.may_be_drops(topic);
    }
    topic.starts_with(&topics.drops) && named.any(|name| name == RECEIVER)
}

/// The user property of a record that names the client whose messages it is about.
const RECEIVER: &str = "audit-receiver";
/// Messages of one run, and about as many of one record: a packet of 16 KiB to 32 KiB.
const RUN_MESSAGES_MAX: usize = 1_024;
/// So many lanes may take turns without each message beginning a run.
const RUNS_LOOKED_AT: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    const ABOUT: About = About {
        lane: LaneId::new(7).expect("it is not 0"),
        epoch: Epoch(1),
        reason: Declared::EXPIRED,
    };
    const OTHER: About = About {
        reason: Declared::TOO_OLD,
        ..ABOUT
    };

    fn missed(messages: &[(About, u64, u64)]) -> Missed {
        let mut missed = Missed::default();
        for (about, number, before) in messages {
            missed.note(*about, *number, [0; 16], *before);
        }
        missed
    }

    fn sent(missed: &mut Missed, number: u64) -> Vec<String> {
        let mut sent = Vec::new();
        while let Some(record) = missed.take_due(number) {
            let runs: Vec<_> = record.runs.iter().map(DropRun::numbers).collect();
            sent.push(format!("{} {runs:?}", record.reason));
        }
        sent
    }

    #[test]
    fn what_is_sent_stands_before_the_next_that_leaves() {
        let mut missed = missed(&[(ABOUT, 0, 3), (ABOUT, 9, 5), (OTHER, 4, 3), (ABOUT, 1, 3)]);
        assert!(!missed.is_due(2));
        assert_eq!(sent(&mut missed, 4), ["expired [0..2]", "too-old [4..5]"]);
        assert_eq!(sent(&mut missed, u64::MAX), ["expired [9..10]"]);
        assert_eq!((missed.runs.len(), missed.bytes), (0, 0));
    }

    #[test]
    fn what_was_sent_is_sent_again_until_a_later_delivery_is_acknowledged() {
        let mut missed = missed(&[(ABOUT, 0, 3), (ABOUT, 1, 3), (OTHER, 2, 3)]);
        let first = missed.take_due(3).unwrap();
        missed.keep(first, 3);
        let second = missed.take_due(3).unwrap();
        missed.keep(second, 4);
        missed.acknowledged(2);
        assert_eq!(missed.sent.len(), 2);
        missed.acknowledged(3);
        missed.repeat();
        assert_eq!(sent(&mut missed, 0), ["too-old [2..3]"]);
        assert_eq!((missed.is_empty(), missed.bytes), (true, 0));
    }

    #[test]
    fn a_message_that_was_dropped_twice_is_named_once() {
        let numbers = [5, 6, 7, 5, 6, 4, 8];
        let mut missed = missed(&numbers.map(|number| (ABOUT, number, 0)));
        assert_eq!(sent(&mut missed, 0), ["expired [4..9]"]);
    }

    #[test]
    fn records_and_what_waits_for_them_have_limits() {
        let mut missed = Missed::default();
        for number in 0..100_000 {
            missed.note(ABOUT, number, [0; 16], 0);
        }
        assert!(missed.bytes < MISSED_BYTES_MAX + 200);
        let records = sent(&mut missed, 0);
        assert_eq!(records[0], "expired [0..1024]");
        assert_eq!(records[1], "expired [1024..2048]");
        assert!(records.len() > 60);
    }
}
