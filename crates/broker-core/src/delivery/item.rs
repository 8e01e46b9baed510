//! A message in delivery: what is done once for it however many receive it.
//!
//! Invariants:
//! - It is copied at most once, when the first place needs it after the publisher's bytes are gone;
//!   once more to be retained, if it may be stored as well.
//! - It is asked to be stored at most once, where it came in, and before another shard has it.
//!
//! Deliberately absent: who receives it, and how its bytes are written; see [`crate::delivery`].

use std::sync::Arc;

use unbroken_mqtt_proto::QoS;

use super::Deliveries;
use crate::audit::account::Counting;
use crate::audit::finding::Findings;
use crate::audit::receipt::News;
use crate::connection::HeldCopy;
use crate::durability::{CommitGate, Marker, Record, WaitFor};
use crate::ids::{SessionId, StoreId};
use crate::message::{Message, Publication};
use crate::position::Position;
use crate::retained::Retained;
use crate::routing::Terms;
use crate::session::{Delivery, Identifiers};
use crate::shares::{Network, Reserved};

/// A message in delivery: where its bytes lie now, and the copy that is kept once somebody needs
/// one.
pub(crate) struct Item<'a> {
    pub(crate) publication: Publication<'a>,
    pub(crate) publisher: Option<&'a Arc<str>>,
    /// The copy, if there was one before this delivery. It goes back to the pool by other hands.
    kept: Option<&'a Arc<Message>>,
    /// The copy made in this delivery.
    made: Option<Arc<Message>>,
    /// Another shard has the copy too, and lets go of it when it has delivered it.
    lent: bool,
    pub(crate) storing: Storing,
    /// Somebody waits for what it leads to, or may.
    pub(crate) is_awaited: bool,
    /// It is marked, and groups on other shards may want it: which has given it to somebody is put
    /// on disk, since the message is not taken in again.
    pub(crate) is_expected: bool,
    /// It is on its way to many receivers of this shard.
    pub(crate) is_fanned_out: bool,
    /// It is sent to a new subscription, as retained.
    pub(crate) is_retained_copy: bool,
    /// Room among the retained messages that was promised to it before it was taken in.
    pub(crate) reserved: Option<Reserved>,
    /// From where its client sent it.
    pub(crate) address: Option<Network>,
    /// It has waited behind the answers to its receiver, which is its publisher.
    pub(crate) was_held: bool,
    /// What its acknowledgement waits for.
    pub(crate) until: WaitFor,
}

/// Whether a message in delivery is put on disk. Where it came in, and once.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Storing {
    /// Not here: it came in on another shard, or nothing of it is stored.
    No,
    /// As soon as a session that stays wants it at QoS 1 or 2, with this marker.
    IfWanted(Option<Marker>),
    /// The same for a will that is on disk.
    WillIfWanted,
    /// It was asked for.
    Asked,
}

impl<'a> Item<'a> {
    /// A message that lies in received bytes.
    pub(crate) fn borrowed(publication: Publication<'a>, publisher: Option<&'a Arc<str>>) -> Self {
        Self {
            publication,
            publisher,
            kept: None,
            made: None,
            lent: false,
            storing: Storing::No,
            is_awaited: false,
            is_expected: false,
            is_fanned_out: false,
            is_retained_copy: false,
            reserved: None,
            address: None,
            was_held: false,
            until: WaitFor::NOW,
        }
    }

    /// A message that is kept already.
    pub(crate) fn kept(message: &'a Arc<Message>) -> Self {
        Self {
            kept: Some(message),
            ..Self::borrowed(message.publication(), message.publisher())
        }
    }

    /// The copy that is kept, made at the first call.
    pub(crate) fn message(&mut self, part: &mut Deliveries) -> Arc<Message> {
        let made = || part.pool.message(&self.publication, self.publisher);
        Arc::clone(match self.kept {
            Some(kept) => kept,
            None => self.made.get_or_insert_with(made),
        })
    }

    /// The same, for another shard. A retained message is not lent: it stays where it is retained.
    pub(crate) fn message_to_mail(&mut self, part: &mut Deliveries) -> Arc<Message> {
        self.lent = !self.publication.retain;
        self.message(part)
    }

    /// Another copy of its own.
    pub(crate) fn copy(&self, part: &mut Deliveries) -> Arc<Message> {
        part.pool.message(&self.publication, self.publisher)
    }

    /// A session that stays wants it, or may: asks for it to be stored, at the first call.
    pub(crate) fn store(&mut self, part: &mut Deliveries, gate: &mut CommitGate) {
        let (marker, will_over) = match self.storing {
            Storing::IfWanted(marker) => (marker, false),
            Storing::WillIfWanted => (None, true),
            Storing::No | Storing::Asked => return,
        };
        let message = self.message(part);
        let request = gate.append(message, marker, will_over);
        self.storing = Storing::Asked;
        self.wait_for(request);
    }

    /// It is marked, and has been routed: a restart is to give it in place of the groups on other
    /// shards that have not.
    pub(crate) fn note_groups(&mut self, gate: &mut CommitGate) {
        if let Some(position) = self.position() {
            self.wait_for(gate.note_groups(position, self.until.settled));
        }
    }

    /// A group has given it to a session of this shard, which is marked, or has dropped it by name.
    pub(crate) fn note_given(&mut self, gate: &mut CommitGate, group: &Arc<str>) {
        if let Some(position) = self.position() {
            let group = Arc::clone(group);
            self.wait_for(gate.ask(Record::DeliveredBy { group, position }));
        }
    }

    /// Where it is stored, if it is.
    pub(crate) fn position(&self) -> Option<Position> {
        let message = self.kept.or(self.made.as_ref());
        message.and_then(|message| message.position())
    }

    /// No client has published it: it is the broker's own word.
    pub(crate) fn is_own_word(&self) -> bool {
        self.publisher.is_none()
    }

    /// It came in on another shard, and nobody there knew of a session that stays and wants it at
    /// QoS 1 or 2; or it is the broker's own word.
    pub(crate) fn is_in_no_log(&self) -> bool {
        let kept = self.kept.filter(|_| self.publication.qos > QoS::AtMostOnce);
        kept.is_some_and(|message| message.position().is_none())
    }

    /// Its acknowledgement waits for this request too.
    pub(crate) fn wait_for(&mut self, request: StoreId) {
        self.until.stored = request.max(self.until.stored);
    }

    /// What became known of it, if it is followed.
    #[inline]
    pub(crate) fn news(&self, news: News, findings: &mut Findings) {
        if let Some(mark) = &self.publication.mark
            && mark.tracked
            && let Some(publisher) = self.publisher
        {
            findings.news(mark, publisher, news);
        }
    }

    /// The same of one receiver's copy that was not accepted into a queue.
    #[inline]
    pub(crate) fn news_of_copy(
        &self,
        terms: Terms<'_>,
        counting: Counting,
        news: News,
        findings: &mut Findings,
    ) {
        if self
            .publication
            .mark
            .as_ref()
            .is_some_and(|mark| mark.tracked)
        {
            self.news(news.of(counting, terms.group.is_some()), findings);
        }
    }

    /// One receiver's part of it.
    pub(crate) fn delivery(&mut self, terms: Terms<'_>, part: &mut Deliveries) -> Delivery {
        Delivery {
            message: self.message(part),
            retain: terms.retain,
            identifiers: Identifiers::from_slice(terms.identifiers),
            group: terms.group.cloned(),
            number: 0,
            counting: Counting::Shown,
            tracked: self.publication.mark.is_some_and(|mark| mark.tracked),
            again: false,
            entry: 0,
        }
    }

    /// The same of a message of QoS 0 that is to be held.
    pub(crate) fn held_copy(&mut self, terms: Terms<'_>, part: &mut Deliveries) -> HeldCopy {
        HeldCopy {
            message: self.message(part),
            retain: terms.retain,
            identifiers: Identifiers::from_slice(terms.identifiers),
            group: terms.group.cloned(),
        }
    }

    /// Gives the copy back if it was made here.
    pub(crate) fn finish(self, part: &mut Deliveries) {
        match self.made {
            Some(message) if self.lent => part.pool.lend(message),
            Some(message) => part.pool.release(message),
            None => {}
        }
    }
}

/// What the receiver of a message of QoS 0 gets that was held.
pub(crate) fn terms_of_copy(copy: &HeldCopy) -> Terms<'_> {
    Terms {
        qos: QoS::AtMostOnce,
        retain: copy.retain,
        identifiers: &copy.identifiers,
        group: copy.group.as_ref(),
        is_denied: false, // judged when it leaves
    }
}

/// A live message was written to a session, or waits for it: a retained copy that is older, and
/// that a query still has to send, is left out. Not so for one that was dropped.
#[inline]
pub(crate) fn note_given(retained: &mut Retained, session: SessionId, item: &Item<'_>, qos: QoS) {
    // One query does not overtake another: each subscription gets its copy.
    if item.publication.retain && !item.is_retained_copy {
        note_live(retained, session, &item.publication, qos);
    }
}

#[cold]
fn note_live(retained: &mut Retained, session: SessionId, live: &Publication<'_>, qos: QoS) {
    retained.note_live(session, live.topic, live.stamp, qos > QoS::AtMostOnce);
}
