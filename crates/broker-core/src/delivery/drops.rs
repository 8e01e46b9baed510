//! Messages that are not delivered: what a drop means for its session, its ledger and those who
//! follow the message. How it is counted and reported is [`crate::telemetry`]'s.

use std::sync::Arc;

use unbroken_mqtt_proto::{PacketId, QoS};

use super::Deliverer;
use super::item::{Item, terms_of_copy};
use crate::audit::account::Fate;
use crate::audit::missed::OwnRecord;
use crate::audit::receipt::News;
use crate::connection::{HeldCopy, LastWords};
use crate::ids::{SessionId, StoreId};
use crate::message::Publication;
use crate::reason::{DropPlace, DropReason};
use crate::routing::Terms;
use crate::session::{Delivery, Session};
use crate::telemetry::{Dropped, Numbers, Parties};

impl Deliverer<'_> {
    /// Counts and tells a message that this session does not get.
    pub(crate) fn drop_message(
        &mut self,
        session_id: SessionId,
        publication: &Publication<'_>,
        reason: DropReason,
    ) {
        self.drop_for(session_id, publication, reason, None);
    }

    /// The same; with a session that was full, it was refused to this one because of that.
    pub(crate) fn drop_for(
        &mut self,
        session_id: SessionId,
        publication: &Publication<'_>,
        reason: DropReason,
        full: Option<&Arc<str>>,
    ) {
        let is_aside = self.audit.topics().is_aside(publication.topic);
        self.telemetry.count_drop(reason, is_aside);
        let Some(session) = self.sessions.get_mut(session_id) else {
            return;
        };
        let parties = Parties {
            client_id: Some(&session.client_id),
            user: session.user(),
            publisher: None,
        };
        self.telemetry
            .trace_dropped(parties, publication.topic, reason);
        let drop = Dropped {
            client_id: &session.client_id,
            message: publication,
            publisher: Some(&session.client_id),
            place: DropPlace::Publisher,
            reason,
            full,
        };
        self.telemetry
            .dropped(self.now, session_id, &mut session.drops, &drop);
    }

    /// The same for one of this publisher that was to be delivered to the session.
    fn drop_of_receiver(
        &mut self,
        session_id: SessionId,
        (publication, publisher): (&Publication<'_>, Option<&Arc<str>>),
        reason: DropReason,
        is_shown: bool,
    ) {
        self.telemetry.count_drop(reason, !is_shown);
        let Some(session) = self.sessions.get_mut(session_id) else {
            return;
        };
        let parties = Parties {
            client_id: Some(&session.client_id),
            user: session.user(),
            publisher,
        };
        self.telemetry
            .trace_dropped(parties, publication.topic, reason);
        let drop = Dropped {
            client_id: &session.client_id,
            message: publication,
            publisher,
            place: DropPlace::Receiver,
            reason,
            full: None,
        };
        self.telemetry
            .dropped(self.now, session_id, &mut session.drops, &drop);
    }

    /// The same for one that was to be accepted for it.
    pub(crate) fn refuse_entry(
        &mut self,
        session_id: SessionId,
        terms: Terms<'_>,
        item: &Item<'_>,
        reason: DropReason,
    ) {
        let Some(session) = self.sessions.get_mut(session_id) else {
            return;
        };
        let totals = self.telemetry.audit();
        let (topics, findings) = self.audit.topics_and_findings();
        let topic = item.publication.topic;
        let counting = session.refused_entry(topics, topic, reason, totals, findings);
        item.news_of_copy(terms, counting, News::Dropped(reason), findings);
        if !terms.retain {
            let before = session.ledger.next();
            self.note_missed(session_id, &item.publication, reason, before);
        }
        let is_shown = counting.is_shown();
        let message = (&item.publication, item.publisher);
        self.drop_of_receiver(session_id, message, reason, is_shown);
    }

    /// The same for one that was waiting.
    pub(crate) fn drop_waiting(
        &mut self,
        session_id: SessionId,
        delivery: Delivery,
        reason: DropReason,
    ) {
        let publication = delivery.message.publication();
        let is_shown = delivery.counting.is_shown();
        if let Some(session) = self.sessions.get_mut(session_id)
            && is_shown
        {
            session.ledger.note_reason(reason);
        }
        let message = (&publication, delivery.message.publisher());
        self.drop_of_receiver(session_id, message, reason, is_shown);
        if !delivery.retain {
            self.note_missed(session_id, &publication, reason, delivery.number);
        }
        delivery.news(News::Dropped(reason), self.audit.findings());
        self.sessions.end_waiting_entry(session_id, &delivery);
        self.sessions.touch(session_id);
        self.end(delivery);
    }

    /// The same, with what becomes of it in the account.
    pub(crate) fn drop_settled(
        &mut self,
        session_id: SessionId,
        delivery: Delivery,
        reason: DropReason,
        fate: Fate,
    ) {
        let number = delivery.number;
        self.drop_waiting(session_id, delivery, reason);
        self.settle(session_id, number, fate);
    }

    /// Gives up a message under way: it cannot be sent, or may not wait any longer. One of QoS 2
    /// that was sent may be its client's, which takes what comes with the same id for a repetition:
    /// so the id stays, after a restart too, until the client has freed it, and PUBREL may be
    /// sent when the answer is stored.
    #[cold]
    pub(crate) fn give_up(
        &mut self,
        session_id: SessionId,
        packet_id: PacketId,
        was_sent: bool,
        why: DropReason,
    ) -> Option<StoreId> {
        let session = self.sessions.get_mut(session_id)?;
        let let_go = if was_sent {
            session.outbox.let_go(packet_id)
        } else {
            None
        };
        let is_its_clients = let_go.is_some();
        let mut delivery = let_go.or_else(|| session.outbox.forget(packet_id))?;
        let gate = &mut *self.gate;
        let pubrel = is_its_clients.then(|| session.persist_received(gate, packet_id, &delivery));
        if is_its_clients {
            delivery.entry = 0; // After a restart that is the entry of the id, which stays.
        } else {
            self.sessions.end_entry(session_id, packet_id);
        }
        let fate = if was_sent {
            Fate::GivenUp
        } else {
            Fate::Dropped
        };
        self.drop_settled(session_id, delivery, why, fate);
        pubrel
    }

    /// Gives back a message that was accepted and has come to its end.
    fn end(&mut self, delivery: Delivery) {
        self.telemetry.ended(1);
        self.deliveries.pool.release(delivery.message);
    }

    /// Counts and tells what waited in a session that is over. Answers how many that were.
    pub(crate) fn drop_all(
        &mut self,
        client_id: &Arc<str>,
        waiting: impl IntoIterator<Item = Delivery>,
        reason: DropReason,
    ) -> u64 {
        let (mut count, mut aside) = (0, 0);
        let (mut topic, mut numbers) = (String::new(), None);
        for delivery in waiting {
            count += 1;
            aside += u64::from(!delivery.counting.is_shown());
            topic.clear();
            topic.push_str(delivery.message.topic());
            let publication = delivery.message.publication();
            let publisher = delivery.message.publisher();
            let parties = Parties {
                client_id: Some(client_id),
                user: None,
                publisher,
            };
            self.telemetry
                .trace_dropped(parties, publication.topic, reason);
            Numbers::add(&mut numbers, &publication, publisher, self.now);
            delivery.news(News::Dropped(reason), self.audit.findings());
            self.end(delivery);
        }
        self.telemetry
            .report_together(client_id, &topic, reason, (count, aside), numbers);
        count
    }

    /// Names the messages of QoS 0 that were held for a connection that has ended.
    pub(crate) fn drop_copies(&mut self, session_id: SessionId, copies: Vec<HeldCopy>) {
        for copy in copies {
            let (terms, item) = (terms_of_copy(&copy), Item::kept(&copy.message));
            self.refuse_entry(session_id, terms, &item, DropReason::ConnectionLost);
            self.deliveries.pool.release(copy.message);
        }
    }

    /// Names the QoS 0 messages that a connection takes with it, which were counted as sent: nobody
    /// sends them again. What the kernel has taken may be lost too; only the receiver knows.
    pub(crate) fn drop_unsaid(&mut self, words: &LastWords) {
        let Some(client) = &words.client else {
            return; // never let in, so nothing was published to it
        };
        let (mut count, mut payload_bytes, mut topic, mut aside) = (0, 0, "", 0);

        for publish in words.unwritten_publishes() {
            if publish.qos == QoS::AtMostOnce {
                count += 1;
                payload_bytes += publish.payload.len() as u64;
                topic = words.topic_of(&publish);
                aside += u64::from(client.is_watcher || self.audit.topics().is_aside(topic));
            }
        }
        self.telemetry.unsaid(count, aside, payload_bytes);
        let reason = DropReason::ConnectionLost;
        let mounted = client.mount.as_ref().map(|mount| mount.topic(topic));
        let topic = mounted.as_deref().unwrap_or(topic);
        self.telemetry
            .dropped_together(&client.id, topic, reason, (count, aside));
    }
}

impl Deliverer<'_> {
    /// Accounts for what became of an accepted delivery.
    #[inline]
    pub(crate) fn settle(&mut self, id: SessionId, number: u64, fate: Fate) {
        if let Some(session) = self.sessions.get_mut(id) {
            let findings = self.audit.findings();
            session.settle(number, fate, self.telemetry.audit(), findings);
        }
    }

    /// This session does not get this message, which stood before the delivery of that number.
    #[inline]
    pub(crate) fn note_missed(
        &mut self,
        id: SessionId,
        publication: &Publication<'_>,
        reason: DropReason,
        before: u64,
    ) {
        if let Some(session) = self.sessions.get_mut(id) {
            let drops = &self.audit.topics().drops;
            let has_mount = session.mount().is_some();
            let mounted = has_mount.then(|| session.full_topic(drops));
            let drops = mounted.as_deref().unwrap_or(drops);
            let Session {
                ledger,
                subscriptions,
                ..
            } = session;
            if ledger.note_missed(subscriptions, drops, publication, reason, before) {
                self.audit.list_missing(id);
            }
        }
    }

    /// A session has missed something: tells its client at once, if nothing waits for it.
    pub(crate) fn tell_due(&mut self, id: SessionId) {
        if let Some(session) = self.sessions.get_mut(id)
            && session.ledger.begin_sending_missed()
            && session.outbox.is_empty()
            && !session.outbox.resending()
        {
            self.tell_missed(id, u64::MAX);
        }
    }

    /// Tells the client of a session what it missed before the delivery of this number, as far as
    /// its connection has room.
    pub(crate) fn tell_missed(&mut self, id: SessionId, number: u64) {
        while let Some(session) = self.sessions.get_mut(id)
            && !session.outbox.holds_unsent()
            && !session.ledger.misses_nothing()
            && let Some(connection) = session
                .connection()
                .and_then(|index| self.connections.at(index))
            && connection.unwritten() < self.limits.output_bytes_max as usize
            && let Some(record) = session.ledger.take_missed(number, session.expiry_s() > 0)
        {
            let drops = session.full_topic(&self.audit.topics().drops);
            let (subscriptions, receiver) = (&session.subscriptions, &session.client_id);
            // Otherwise it has unsubscribed since.
            if let Some(record) = OwnRecord::of(&record, subscriptions, &drops, receiver) {
                self.begin_item(false);
                let mut item = Item::borrowed(record.publication(self.now), None);
                let mut terms = record.terms();
                terms.is_denied = !self.access.may_receive(id, item.publication.topic);
                self.deliver(id, terms, &mut item);
                self.begin_item(false);
            }
        }
    }
}
