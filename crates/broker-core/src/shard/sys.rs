//! The `$SYS` tree: Mosquitto's names, ours under `$SYS/broker/unbroken/`, and what the audit has
//! come to under `$SYS/audit/`.
//!
//! Every shard sends its counters to shard 0, which adds them up and publishes what has changed,
//! retained. The messages take the way of any other, so they are matched, limited and cleared like
//! those of clients.

use std::sync::Arc;
use std::time::Instant;

use unbroken_mqtt_proto::{Properties, QoS};

use crate::audit::verdict::Asking;
use crate::delivery::Item;
use crate::ids::{SessionId, ShardId};
use crate::mesh::MeshMessage;
use crate::message::{Message, Publication};
use crate::shard::Shard;
use crate::telemetry::{About, STORE, Stats, VERDICT, sentence};
use crate::timers::Timer;

impl Shard {
    pub(crate) fn start_sys(&mut self) {
        if self.options.settings.sys_interval.is_some() {
            // At once, so that the tree is there for the first client that looks.
            self.timers.set(self.options.start, Timer::Sys);
        }
    }

    pub(crate) fn publish_sys(&mut self, now: Instant) {
        let Some(interval) = self.options.settings.sys_interval else {
            return;
        };
        self.timers.set(now + interval, Timer::Sys);
        let mine = self.stats_now(now);
        if self.options.id != ShardId(0) {
            return self
                .clients
                .mesh
                .send(ShardId(0), MeshMessage::Stats(Box::new(mine)));
        }
        self.clients.telemetry.note_shard(ShardId(0), mine);
        let about = About {
            version: &self.options.settings.version,
            uptime_s: now.saturating_duration_since(self.options.start).as_secs(),
            interval,
            shards: self.options.shards,
            store: &self.store_state(),
            audit: &self.options.settings.audit,
        };
        for (topic, value) in self.clients.telemetry.sample(&about) {
            self.publish_sys_value(now, &topic, &value);
        }
    }

    /// What has been counted up to now, brought up to date.
    pub(crate) fn stats_now(&mut self, now: Instant) -> Stats {
        let sleeping = self.sleeping_totals(now);
        let unstored = self.clients.unstored();
        self.clients.telemetry.bring_up_to_date(sleeping, unstored)
    }

    /// Publishes it if it is news. The verdict is not retained: it is made for whoever subscribes.
    fn publish_sys_value(&mut self, now: Instant, topic: &str, value: &str) {
        if !self.clients.telemetry.is_news(topic, value) {
            return;
        }
        let publication = sys_publication(now, topic, value);
        let mut item = Item::borrowed(publication, None);
        if topic != VERDICT {
            self.retain(now, &mut item, QoS::AtMostOnce);
        }
        self.route(now, &mut item, None);
        item.finish(&mut self.clients.deliveries);
    }

    /// Says at once what has become of the store.
    pub(crate) fn publish_store_state(&mut self, now: Instant) {
        if self.options.settings.sys_interval.is_some() && self.options.id == ShardId(0) {
            let topic = format!("$SYS/broker/{STORE}");
            self.publish_sys_value(now, &topic, &self.store_state());
        }
    }

    /// A query of a new subscription waits for the verdict.
    pub(crate) fn ask_for_verdict(&mut self, now: Instant, session: SessionId, query: u64) {
        match self.clients.audit.verdicts().ask(session, query) {
            None => self.end_asking(Asking { session, query }, None),
            Some(true) => self.begin_verdict(now),
            Some(false) => {}
        }
    }

    fn begin_verdict(&mut self, now: Instant) {
        let others = self.options.shards - 1;
        let mine = self.stats_now(now);
        self.clients.audit.verdicts().begin(others, mine);
        self.clients.mesh.broadcast(|| MeshMessage::StatsAsked);
        if others == 0 {
            self.publish_verdict(now);
        }
    }

    /// Another shard's counters, which were asked for.
    pub(crate) fn take_stats(&mut self, now: Instant, stats: &Stats) {
        self.clients.audit.verdicts().add(stats);
        if self.clients.audit.verdicts().is_complete() {
            self.publish_verdict(now);
            if self.clients.audit.verdicts().is_asked_again() {
                self.begin_verdict(now);
            }
        }
    }

    fn publish_verdict(&mut self, now: Instant) {
        let verdicts = self.clients.audit.verdicts();
        let sentence = sentence(verdicts.sum(), &self.options.settings.audit);
        let asking = verdicts.take_asking();
        let publication = sys_publication(now, VERDICT, &sentence);
        let message = Arc::new(Message::new(&publication, None));
        for asking in asking {
            self.end_asking(asking, Some(&message));
            self.pump(now, asking.session);
        }
    }

    fn end_asking(&mut self, asking: Asking, found: Option<&Arc<Message>>) {
        let Asking { session, query } = asking;
        self.clients.retained.end_wait(session, query, found);
    }

    fn store_state(&self) -> String {
        match self.clients.gate.failure() {
            Some(cause) => format!("failed: {cause}"),
            None if self.options.settings.durable => "working".to_owned(),
            None => "in memory".to_owned(),
        }
    }
}

/// A value as it is told.
pub(crate) fn sys_publication<'a>(now: Instant, topic: &'a str, value: &'a str) -> Publication<'a> {
    Publication {
        topic,
        properties: Properties::EMPTY,
        payload: value.as_bytes(),
        qos: QoS::AtMostOnce,
        retain: true,
        expires: None,
        stamp: now,
        mark: None,
    }
}
