//! Messages that are not delivered: each is counted at once, and told soon.
//!
//! Invariant: what [`Stats::dropped`](crate::Stats::dropped) counts has been told when the session
//! ends, when the broker stops, and otherwise a second later.

use std::sync::Arc;
use std::time::Instant;

use unbroken_mqtt_proto::QoS;

use crate::audit::account::Fate;
use crate::audit::receipt::News;
use crate::clients::Clients;
use crate::connection::{HeldCopy, LastWords, anonymous};
use crate::ids::SessionId;
use crate::item::{Item, terms_of_copy};
use crate::message::Publication;
use crate::output::Output;
use crate::reason::DropReason;
use crate::routing::Terms;
use crate::session::Delivery;
use crate::shard::Shard;
use crate::telemetry::{Event, TELL_DROPS_EVERY};
use crate::timers::Timer;

impl Clients {
    /// Counts and tells a message that this session does not get.
    pub(crate) fn drop_message(
        &mut self,
        now: Instant,
        session_id: SessionId,
        publication: &Publication<'_>,
        reason: DropReason,
    ) {
        self.drop_for(now, session_id, publication, reason, None);
    }

    /// The same; with a session that was full, it was refused to this one because of that.
    pub(crate) fn drop_for(
        &mut self,
        now: Instant,
        session_id: SessionId,
        publication: &Publication<'_>,
        reason: DropReason,
        full: Option<&Arc<str>>,
    ) {
        let is_aside = self.home.topics.is_aside(publication.topic);
        self.stats.drop(reason, 1, is_aside);
        let Some(session) = self.sessions.get_mut(session_id.index()) else {
            return;
        };
        let listed = session.drops.has_untold();
        let topic = publication.topic;
        let client_id = &session.client_id;
        if let Some(event) = session.drops.count(now, client_id, topic, reason, full) {
            self.outputs.push_back(Output::Event(event));
        } else if !listed {
            self.untold.push(session_id);
        }
    }

    /// The same for one that was to be accepted for it.
    pub(crate) fn refuse_entry(
        &mut self,
        now: Instant,
        session_id: SessionId,
        terms: Terms<'_>,
        item: &Item<'_>,
        reason: DropReason,
    ) {
        if let Some(session) = self.sessions.get_mut(session_id.index()) {
            let is_aside = self.home.topics.is_aside(item.publication.topic);
            session
                .account
                .refused_entry(&mut self.stats.audit, is_aside);
            if !is_aside {
                session.account.note_reason(reason);
            }
            let before = session.account.next();
            if session.account.window_is_full() {
                self.end_window(session_id);
            }
            if !terms.retain {
                self.note_missed(session_id, &item.publication, reason, before);
            }
        }
        self.news_of(item, News::Dropped(reason));
        self.drop_message(now, session_id, &item.publication, reason);
    }

    /// The same for one that was waiting.
    pub(crate) fn drop_waiting(
        &mut self,
        now: Instant,
        session_id: SessionId,
        delivery: Delivery,
        reason: DropReason,
    ) {
        let publication = delivery.message.publication();
        if let Some(session) = self.sessions.get_mut(session_id.index())
            && !self.home.topics.is_aside(publication.topic)
        {
            session.account.note_reason(reason);
        }
        self.drop_message(now, session_id, &publication, reason);
        if !delivery.retain {
            self.note_missed(session_id, &publication, reason, delivery.number);
        }
        self.news_of_delivery(&delivery, News::Dropped(reason));
        self.land_waiting(session_id, &delivery);
        self.touch(session_id);
        self.delivered(delivery);
    }

    /// Counts and tells what waited in a session that is over. Answers how many that were.
    pub(crate) fn drop_all(
        &mut self,
        client_id: &Arc<str>,
        waiting: impl IntoIterator<Item = Delivery>,
        reason: DropReason,
    ) -> u64 {
        let (mut count, mut aside) = (0, 0);
        let mut topic = String::new();
        for delivery in waiting {
            count += 1;
            aside += u64::from(self.home.topics.is_aside(delivery.message.topic()));
            topic.clear();
            topic.push_str(delivery.message.topic());
            self.news_of_delivery(&delivery, News::Dropped(reason));
            self.delivered(delivery);
        }
        self.stats.dropped_aside[reason as usize] += aside;
        self.tell_drops(client_id, topic, reason, count);
        count
    }

    /// Names the messages of QoS 0 that were held for a connection that has ended.
    pub(crate) fn drop_copies(
        &mut self,
        now: Instant,
        session_id: SessionId,
        copies: Vec<HeldCopy>,
    ) {
        for copy in copies {
            let (terms, item) = (terms_of_copy(&copy), Item::kept(&copy.message));
            self.refuse_entry(now, session_id, terms, &item, DropReason::ConnectionLost);
            self.pool.release(copy.message);
        }
    }

    /// Names the QoS 0 messages that a connection takes with it, which were counted as sent: nobody
    /// sends them again. What the kernel has taken may be lost too; only the receiver knows.
    pub(crate) fn drop_unsaid(&mut self, words: &LastWords) {
        let Some(client_id) = &words.client_id else {
            return; // never let in, so nothing was published to it
        };
        let (mut count, mut payload_bytes, mut topic, mut aside) = (0, 0, "", 0);
        for publish in words.unwritten_publishes() {
            if publish.qos == QoS::AtMostOnce {
                count += 1;
                payload_bytes += publish.payload.len() as u64;
                topic = words.topic_of(&publish);
                aside += u64::from(self.home.topics.is_aside(topic));
            }
        }
        let stats = &mut self.stats;
        stats.packets_sent = stats.packets_sent.saturating_sub(count);
        stats.publishes_sent = stats.publishes_sent.saturating_sub(count);
        stats.publish_bytes_sent = stats.publish_bytes_sent.saturating_sub(payload_bytes);
        self.tell_drops(client_id, topic.into(), DropReason::ConnectionLost, count);
        self.stats.dropped_aside[DropReason::ConnectionLost as usize] += aside;
        self.stats.audit.unsaid += count - aside;
    }

    pub(crate) fn tell_drops(
        &mut self,
        client_id: &Arc<str>,
        last_topic: String,
        reason: DropReason,
        count: u64,
    ) {
        if count == 0 {
            return;
        }
        self.stats.dropped[reason as usize] += count;
        self.outputs.push_back(Output::Event(Event::Dropped {
            client_id: Arc::clone(client_id),
            topic: last_topic.into(),
            reason,
            count,
            full: None,
        }));
    }
}

impl Shard {
    /// Counts and tells a message that has no receiver to be told of: its publisher is named.
    pub(crate) fn drop_of_publisher(&mut self, now: Instant, item: &Item<'_>, reason: DropReason) {
        let is_aside = self.clients.home.topics.is_aside(item.publication.topic);
        self.clients.stats.drop(reason, 1, is_aside);
        let client_id = item.publisher.map_or_else(anonymous, Arc::clone);
        let topic = item.publication.topic;
        if let Some(event) = self
            .clients
            .drops
            .count(now, &client_id, topic, reason, None)
        {
            self.event(event);
        }
    }

    /// Sees to it that what was counted is told, even if nothing more is dropped.
    pub(crate) fn schedule_telling(&mut self, now: Instant) {
        let untold = !self.clients.untold.is_empty() || self.clients.drops.has_untold();
        if untold && !self.telling {
            self.telling = true;
            self.timers.set(now + TELL_DROPS_EVERY, Timer::TellDrops);
        }
    }

    pub(crate) fn tell_untold(&mut self, now: Instant) {
        self.telling = false;
        let Clients {
            untold,
            sessions,
            drops,
            outputs,
            ..
        } = &mut self.clients;
        // A session that has ended told its own; whoever has its number now may tell early.
        for session in untold.drain(..) {
            if let Some(session) = sessions.get_mut(session.index()) {
                outputs.extend(session.drops.take_untold(now).map(Output::Event));
            }
        }
        outputs.extend(drops.take_untold(now).map(Output::Event));
    }

    /// The broker stops, and what its sessions hold is in memory: names all that is lost with them.
    pub(crate) fn drop_sessions(&mut self, now: Instant) {
        self.tell_untold(now);
        self.clients.stopping = true;
        let ids: Vec<_> = self.clients.sessions.iter().map(|(key, _)| key).collect();
        for id in ids {
            let Some(session) = self.clients.sessions.get_mut(id) else {
                continue;
            };
            if session.is_durable() {
                continue; // it is on disk
            }
            let client_id = Arc::clone(&session.client_id);
            let bytes = std::mem::take(&mut session.queue_bytes);
            session.inflight_bytes = 0;
            let mut account = std::mem::take(&mut session.account);
            let (mut waiting, mut fates) = (Vec::new(), Vec::new());
            for (_, sent, delivery) in Clients::drain_session(session) {
                fates.push((delivery.number, Fate::at_the_end(sent, false)));
                waiting.push(delivery);
            }
            let stats = &mut self.clients.stats;
            stats.messages_waiting_bytes = stats.messages_waiting_bytes.saturating_sub(bytes);
            self.clients
                .drop_all(&client_id, waiting, DropReason::SessionEnded);
            self.clients.close_account(&client_id, &mut account, &fates);
            if let Some(session) = self.clients.sessions.get_mut(id) {
                session.account = account;
            }
        }
    }
}
