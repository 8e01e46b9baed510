//! The end of a run: everybody comes back and takes what waits, then everything ends.

use std::time::Duration;

use unbroken_broker_core::{DropReason, Totals};
use unbroken_mqtt_proto::{QoS, SubscriptionOptions};

use crate::message::TOPICS;
use crate::oracle::{Terms, check_reasons};
use crate::world::{ConnectTerms, PROBES, World};

impl World {
    /// Everybody with a session connects and takes what waits; then nobody may miss anything that
    /// was not named as dropped.
    pub(crate) fn come_to_rest(&mut self) {
        self.note(|| "coming to rest".to_owned());
        self.die_if_dying();
        self.settle();
        for client in 0..self.clients.len() {
            if self.clients[client].link.is_none() && self.oracle.sessions[client].exists {
                let terms = ConnectTerms {
                    clean: false,
                    expiry_s: u32::MAX,
                    will: None,
                };
                self.connect(client, terms);
                self.settle();
            }
        }
        self.check_rest();
        self.check_asked();
        self.oracle.check_revived();
        self.past.epochs_cut = self.oracle.stamps.check();
        let stats = self.stats();
        let received: u64 = stats.iter().map(|stats| stats.audit.received).sum();
        let received = received + self.past.received;
        let accepts = self.oracle.messages.iter().map(|message| message.accepts);
        let accepted: u64 = accepts.map(u64::from).sum();
        // What was refused has no number.
        let mut refused = self.dropped(DropReason::StoreFailed);
        if self.options.retains_few() {
            refused += self.dropped(DropReason::RetainedFull);
        }
        if self.options.refuses {
            refused += self.dropped(DropReason::QueueFull) + self.dropped(DropReason::StoreFull);
        }
        assert!(
            received <= accepted && accepted <= received + refused,
            "{received} messages numbered, {accepted} taken, {refused} refused"
        );
        check_reasons(&self.options, |reason| self.dropped(reason));
        // What broke with a connection was not promised to anybody.
        let named = |reason: &DropReason| *reason != DropReason::ConnectionLost;
        let reasons = DropReason::ALL.into_iter().filter(named);
        let mut dropped: u64 = reasons.map(|reason| self.dropped(reason)).sum();
        // What is denied belongs to no session.
        dropped -= self.dropped(DropReason::NotAuthorized);
        if self.options.store_keeps() {
            // What was refused belongs to no session.
            let refused = self.dropped(DropReason::StoreFull);
            dropped -= refused;
            assert!(
                !self.options.answers_arrive() || refused <= self.oracle.refused,
                "{refused} messages were dropped because the store was full, and {} refused",
                self.oracle.refused
            );
        }
        let (missing, of_groups) = self.oracle.missing();
        let retained = self.oracle.missing_retained();
        let plain: usize = missing.iter().map(Vec::len).sum();
        let total = plain + of_groups.len();
        assert!(
            total as u64 <= dropped,
            "{total} copies are missing and {dropped} were named as dropped: \
             messages by client {missing:?}, by groups {of_groups:?}"
        );
        // One that was dropped may be missing twice: itself, and as what a subscription finds.
        assert!(
            retained.len() as u64 <= dropped,
            "retained messages are missing and {dropped} were named as dropped: {retained:?}"
        );
        let behind = self.oracle.left_behind();
        assert!(
            behind.is_empty() || dropped > 0,
            "subscribers were left with an older retained message: {behind:?}"
        );
        self.missing = missing;
    }

    /// Probes on several shards subscribe to everything and see what is retained.
    pub(crate) fn read_retained(&mut self) {
        self.lift_limits();
        for probe in self.options.clients..self.options.clients + PROBES {
            self.note(|| format!("probe {probe} reads what is retained"));
            self.connect(probe, ConnectTerms::default());
            self.settle();
            let options = SubscriptionOptions::at(QoS::ExactlyOnce);
            self.subscribe(
                probe,
                vec![(
                    "#",
                    Terms {
                        options,
                        identifier: None,
                    },
                )],
            );
            self.settle();
            self.check_probe(probe);
            self.say_goodbye(probe);
            self.settle();
        }
    }

    fn check_probe(&self, probe: usize) {
        let seen = &self.clients[probe].retained_seen;
        for topic in TOPICS {
            let possible = self.oracle.retained_now(topic);
            let of_topic: Vec<_> = seen.iter().filter(|(on, _)| on == topic).collect();
            assert!(
                of_topic.len() <= 1,
                "probe {probe} was sent several retained messages on {topic}: {of_topic:?}"
            );
            let messages = &self.oracle.messages;
            if let Some((_, id)) = of_topic.first() {
                assert!(
                    id.is_some_and(|id| possible.contains(&id)),
                    "probe {probe} found {id:?} retained on {topic}; it can only be one of \
                     {possible:?}: {:?}",
                    id.map(|id| &messages[id])
                );
            } else {
                let few = self.options.retains_few();
                let absent = |id: &usize| {
                    let message = &messages[*id];
                    let refused = few && message.acknowledged.is_none();
                    message.clear || message.expiry_s.is_some() || refused
                };
                assert!(
                    possible.is_empty() || possible.iter().any(absent),
                    "probe {probe} found nothing retained on {topic}; it must be one of {possible:?}"
                );
            }
            let first = &self.clients[self.options.clients].retained_seen;
            let theirs: Vec<_> = first.iter().filter(|(on, _)| on == topic).collect();
            assert_eq!(
                of_topic, theirs,
                "two probes found different messages retained on {topic}"
            );
        }
    }

    /// Every session ends and what is retained is cleared: nothing may be left.
    pub(crate) fn end_everything(&mut self) {
        self.note(|| "ending everything".to_owned());
        for client in 0..self.clients.len() {
            self.say_goodbye(client);
            self.settle();
        }
        for client in 0..self.clients.len() {
            if self.oracle.sessions[client].exists {
                self.end_session(client);
            }
        }
        let probe = self.options.clients;
        self.connect(
            probe,
            ConnectTerms {
                clean: true,
                ..ConnectTerms::default()
            },
        );
        self.settle();
        for topic in TOPICS {
            self.clear_retained(probe, topic);
        }
        self.say_goodbye(probe);
        self.settle();
        self.pass_time(Duration::from_hours(24));
        self.settle();
        for (shard, stats) in self.stats().into_iter().enumerate() {
            let left = [
                stats.clients_connected,
                stats.clients_disconnected,
                stats.subscriptions,
                stats.shared_subscriptions,
                stats.retained_messages,
                stats.retained_bytes,
                stats.messages_waiting,
                stats.messages_waiting_bytes,
            ];
            assert!(
                left.iter().all(|count| *count == 0),
                "something is left on shard {shard}: {stats:?}"
            );
        }
        // The totals show nothing but this text to the outside. Memory stands last in it: a shard
        // keeps the messages it made, for the next ones.
        let shown = |totals: &Totals| {
            let text = format!("{totals:?}");
            text.split_once(", memory: ")
                .map(|(counts, _)| counts.to_owned())
        };
        let (totals, none) = (shown(&self.totals), shown(&Totals::default()));
        assert_eq!(totals, none, "the totals of an empty broker");
        self.check_told();
        self.check_disk();
    }

    /// What was counted as dropped was also told, and to whom it was not delivered.
    fn check_told(&self) {
        for reason in DropReason::ALL {
            let counted = self.dropped(reason);
            let told = self.oracle.told_for(reason) + self.past.untold[reason as usize];
            assert!(
                told <= counted,
                "{}: {told} told, {counted} counted",
                reason.name()
            );
            let of_sessions = matches!(
                reason,
                DropReason::QueueFull
                    | DropReason::SlowReceiver
                    | DropReason::TooLargeForReceiver
                    | DropReason::NotConnected
                    | DropReason::RefusedByReceiver
            );
            assert!(
                !of_sessions || told == counted,
                "{}: {counted} counted, but {told} told",
                reason.name()
            );
        }
        for (client, missing) in self.missing.iter().enumerate() {
            let told = self.oracle.told_by(client) + self.past.untold.iter().sum::<u64>();
            assert!(
                missing.len() as u64 <= told,
                "client {client} misses {missing:?}, and {told} were named as dropped for it"
            );
        }
    }
}
