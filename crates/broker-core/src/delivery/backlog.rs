//! How a session falls behind what is routed. What waits is in [`crate::session::Backlog`]; how it
//! is read until the session is live again, in [`crate::shard`].

use std::sync::Arc;

use unbroken_mqtt_proto::{QoS, TopicName};

use super::Deliverer;
use super::item::{Item, note_given};
use crate::ids::SessionId;
use crate::message::{Message, Publication};
use crate::position::Position;
use crate::reason::DropReason;
use crate::routing::{Receiver, Terms};
use crate::session::{Backlog, TermsThen};

impl Deliverer<'_> {
    /// The session has no client: what is routed to it from now on is read from the disk when it
    /// can take it.
    pub(crate) fn fall_behind(&mut self, id: SessionId) {
        let ends = self.gate.log_ends().all();
        let Some(session) = self.sessions.get_mut(id) else {
            return;
        };
        if let Some(kept) = session.kept.as_deref_mut()
            && kept.backlog.is_none()
        {
            kept.backlog = Some(Box::new(Backlog::from(ends.clone())));
        }
        session.list_for_scan(id, self.gate.scan_mut());
        self.sessions.touch_presence(id);
    }

    /// Puts a message into the queue of a session, if it was routed to it.
    pub(crate) fn take_read(&mut self, id: SessionId, message: &Arc<Message>) {
        let Some(session) = self.sessions.get_mut(id) else {
            return;
        };
        let Some(kept) = session.kept.as_deref_mut() else {
            return;
        };
        let Some(terms) = kept.terms_of_read(&session.client_id, message) else {
            return;
        };
        if self.drop_read(id, terms.terms(), message) {
            return;
        }
        let mut item = Item::kept(message);
        let bytes = item.publication.cost();
        if let Some(position) = item.position() {
            self.count_found(id, position, bytes);
        }
        let backlog = self.sessions.backlog_mut(id);
        if !backlog.is_some_and(|backlog| backlog.take(bytes)) {
            self.telemetry.accepted();
            self.telemetry.queued(bytes);
        }
        let Some(session) = self.sessions.get_mut(id) else {
            return;
        };
        let (kept, position) = (session.kept.as_ref(), item.position());
        let maybe_sent = kept
            .zip(position)
            .is_some_and(|(kept, at)| kept.redelivery.covers(at));
        let mut delivery = item.delivery(terms.terms(), self.deliveries);
        // One of QoS 2 has not left before the disk had its packet id.
        delivery.again = maybe_sent && terms.qos == QoS::AtLeastOnce;
        delivery.tracked = self.audit.is_watched();
        let totals = self.telemetry.audit();
        session.accept(self.audit.topics(), totals, &mut delivery);
        session.outbox.push(terms.qos, delivery);
    }

    /// Counts a message that the session will read from the disk. False if it is not there.
    pub(crate) fn leave_on_disk(
        &mut self,
        id: SessionId,
        terms: Terms<'_>,
        item: &mut Item<'_>,
    ) -> bool {
        if terms.group.is_some() {
            return false;
        }
        item.store(self.deliveries, self.gate);
        let Some(position) = item.position() else {
            return false;
        };
        let message = item.message(self.deliveries);
        let session = self.sessions.get(id);
        let is_early = session.is_some_and(|session| {
            let kept = session.kept.as_deref();
            kept.is_some_and(|kept| !kept.finds(&session.client_id, position, &message))
        });
        if is_early
            && self
                .sessions
                .backlog_mut(id)
                .is_some_and(|b| b.has_many_early())
        {
            self.refuse_entry(id, terms, item, DropReason::QueueFull);
            return true;
        }
        note_given(self.retained, id, item, QoS::AtLeastOnce);
        self.count_behind(id, position, &item.publication);
        if is_early && let Some(backlog) = self.sessions.backlog_mut(id) {
            let early = backlog.early.get_or_insert_default();
            let terms = TermsThen::of(terms, item.publication.qos);
            early.messages.insert(position, terms);
        }
        true
    }

    /// The QoS at which a message that is in no log is for this receiver, if it is. Where it came
    /// in, nobody knew of the subscription of QoS 1 or 2 that it matches here, which is not
    /// acknowledged. What is for the session by earlier ones may wait on disk, and this would
    /// overtake it: so it is only for what is in force, maybe at QoS 0.
    pub(crate) fn qos_in_no_log(&self, to: &Receiver, topic: TopicName<'_>) -> Option<QoS> {
        if to.qos == QoS::AtMostOnce {
            return Some(to.qos); // waits for nothing, and is most of what gets here
        }
        let session = self.sessions.get(to.session);
        let kept = session.and_then(|session| session.kept.as_deref());
        let Some(kept) = kept.filter(|kept| kept.backlog.is_some()) else {
            return Some(to.qos);
        };
        let mut in_force = None;
        kept.subscriptions.on(topic, |held| {
            if held.is_current() && held.is_in_force() {
                in_force = in_force.max(Some(held.options.qos));
            }
        });
        match in_force {
            Some(QoS::AtMostOnce) => Some(QoS::AtMostOnce),
            Some(_) => Some(to.qos),
            None => None,
        }
    }

    /// Counts a message that a session will read from the disk. It is asked to be stored.
    pub(crate) fn count_behind(
        &mut self,
        id: SessionId,
        position: Position,
        publication: &Publication<'_>,
    ) {
        let bytes = publication.cost();
        let ends = self.gate.log_ends().all();
        if let Some(session) = self.sessions.get_mut(id)
            && let Some(kept) = session.kept.as_deref_mut()
        {
            // The session falls behind with this message.
            let backlog = kept.backlog.get_or_insert_with(|| {
                let mut before = ends.clone();
                before.lower(position);
                Box::new(Backlog::from(before))
            });
            backlog.count(position, ends, publication.stamp, bytes);
            self.telemetry.accepted();
            self.telemetry.queued(bytes);
            self.sessions.note_fill(self.limits, id);
        }
    }

    /// What a session would have read is over with it. Answers how many messages that were, as far
    /// as they were counted, and among how many it was not known.
    pub(crate) fn drop_backlog(&mut self, id: SessionId) -> (u64, u64) {
        let session = self.sessions.get_mut(id);
        let kept = session.and_then(|session| session.kept.as_deref_mut());
        let backlog = kept.and_then(|kept| kept.backlog.take());
        let Some(backlog) = backlog else {
            return (0, 0);
        };
        self.telemetry.uncount(backlog.messages, backlog.bytes);
        let ends = self.gate.scan().ends();
        (backlog.messages, backlog.uncounted_of(ends))
    }

    /// A message was found that a session will not find again. If nobody has counted it, that is
    /// done now.
    pub(crate) fn count_found(&mut self, id: SessionId, position: Position, bytes: u64) {
        let Self {
            sessions,
            gate,
            telemetry,
            ..
        } = self;
        if let Some(session) = sessions.get_mut(id)
            && let Some(kept) = session.kept.as_deref_mut()
            && let Some(backlog) = kept.backlog.as_deref_mut()
            && backlog.count_found(position, gate.scan().ends(), bytes)
        {
            telemetry.accepted();
            telemetry.queued(bytes);
            self.sessions.note_fill(self.limits, id);
        }
    }
}
