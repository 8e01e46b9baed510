//! The subscriptions of a session that stays, past ones while they may be needed.
//!
//! ```text
//! one that is raised from QoS 0:
//!               SUBSCRIBE     every shard stores for it: SUBACK may leave
//!   own log     QoS 0 |QoS 1 ....................................
//!   one log     QoS 0 .....|QoS 1 ...............................
//!   another     QoS 0 ............|QoS 1 ........................
//!                          its shard answers
//! ```
//!
//! Invariants:
//! - A subscription that has ended is there as long as something above *through* may be for it.
//! - With one filter at most one is present, and at most one *yields* to it: one of QoS 0, which
//!   holds in the logs of other shards until the present one is in force there, and is the one on
//!   disk until then.
//! - One of QoS 1 or 2 is in force where what it matches is stored for it. At QoS 0 nothing is.

use std::num::NonZeroU32;

use unbroken_mqtt_proto::{QoS, SubscriptionOptions};

pub(super) mod list;

use super::Kept;
use crate::durability::{HOLDS_ON, NOT_IN_FORCE, StoredSubscription};
use crate::ids::LogId;
use crate::position::Frontier;

impl Kept {
    /// The present subscription with this filter.
    pub(crate) fn subscription(&self, filter: &str) -> Option<&StoredSubscription> {
        self.subscriptions
            .of(filter)
            .rfind(|held| held.is_present())
    }

    fn change<R>(
        &mut self,
        filter: &str,
        change: impl FnOnce(&mut StoredSubscription) -> R,
    ) -> Option<R> {
        self.subscriptions
            .change(filter, StoredSubscription::is_present, change)
    }

    /// What is retained is to be sent for the present subscription with this filter.
    pub(crate) fn begin_scan(&mut self, filter: &str) {
        self.change(filter, |subscription| subscription.retained_due = true);
    }

    /// All of that was sent. False if none was to be.
    pub(crate) fn end_scan(&mut self, filter: &str) -> bool {
        let was_due = self.change(filter, |held| std::mem::take(&mut held.retained_due));
        let was_due = was_due.unwrap_or(false);
        if was_due {
            self.under_way().scanned.push(filter.into());
        }
        was_due
    }

    /// Subscriptions for which that has come to its end since it was last asked, if they are still
    /// there.
    pub(crate) fn take_scanned(&mut self) -> Vec<StoredSubscription> {
        let Some(under_way) = &mut self.under_way else {
            return Vec::new();
        };
        let filters = std::mem::take(&mut under_way.scanned);
        let present = filters
            .iter()
            .filter_map(|filter| self.subscription(filter));
        // One that is not in force is not on disk.
        let on_disk = present.filter(|held| held.is_in_force());
        on_disk.cloned().collect()
    }

    /// Whether a subscription with this filter would be in force in this log at once: what is sent
    /// to this shard for the one that it replaces, and stored if it is to be, is enough.
    pub(crate) fn holds_in(&self, log: LogId, filter: &str, qos: QoS) -> bool {
        self.subscriptions.of(filter).any(|held| {
            held.is_current()
                && held.since.of(log) != NOT_IN_FORCE
                && (qos == QoS::AtMostOnce || held.options.qos > QoS::AtMostOnce)
        })
    }

    /// Whether as many past ones are there as may be, and this would be another one.
    pub(crate) fn is_full_of_past(
        &self,
        filter: &str,
        options: SubscriptionOptions,
        identifier: Option<NonZeroU32>,
        past_max: usize,
    ) -> bool {
        let goes_on = |held: &StoredSubscription| held.goes_on(options, identifier);
        self.subscriptions.ended() >= past_max && !self.subscription(filter).is_some_and(goes_on)
    }

    /// A subscription begins, maybe in place of one with the same filter: what has come to its end
    /// by that. One on the same terms goes on. If there are logs where it
    /// [is to come into force](Self::come_into_force), it holds for nothing of them until then, and
    /// one of QoS 0 that is in force yields to it.
    pub(crate) fn subscribe(
        &mut self,
        filter: &str,
        options: SubscriptionOptions,
        identifier: Option<NonZeroU32>,
        tails: &Frontier,
        joins: &[LogId],
    ) -> Option<StoredSubscription> {
        self.forget_filters();
        let mut since = tails.clone();
        for log in joins {
            since.set(*log, NOT_IN_FORCE);
        }
        let replaced = self.change(filter, |subscription| {
            let is_raised =
                subscription.options.qos == QoS::AtMostOnce && options.qos > QoS::AtMostOnce;
            let yields = !joins.is_empty() && subscription.is_in_force();
            if subscription.goes_on(options, identifier) {
                subscription.options = options;
                subscription.identifier = identifier;
                let begins = |log| !joins.contains(&log);
                replace(&mut subscription.since, NOT_IN_FORCE, tails, begins);
                return Replaced::InPlace;
            }
            if subscription.since.reaches(tails) && (joins.is_empty() || !is_raised) {
                // Nothing has come for it as it was.
                subscription.options = options;
                subscription.identifier = identifier;
                subscription.since.clone_from(&since);
                return Replaced::InPlace;
            }
            let until = subscription.until.insert(tails.clone());
            if yields {
                for log in joins {
                    until.set(*log, HOLDS_ON);
                }
            }
            Replaced::By {
                // A scan goes on when its subscription is replaced.
                retained_due: subscription.retained_due,
                ended: (!yields).then(|| subscription.clone()),
            }
        });
        let (retained_due, ended) = match replaced {
            None => (false, None),
            Some(Replaced::InPlace) => return None,
            Some(Replaced::By {
                retained_due,
                ended,
            }) => (retained_due, ended),
        };
        let eras = self.subscriptions.of(filter).map(|held| held.era + 1);
        let era = eras.max().unwrap_or(0);
        self.subscriptions.push(StoredSubscription {
            filter: filter.into(),
            era,
            options,
            identifier,
            since,
            until: None,
            retained_due,
        });
        ended
    }

    /// From now on the present subscription with this filter holds for what comes into this log, or
    /// into all logs. What yielded to it, and has come to its end in all logs by that.
    pub(crate) fn come_into_force(
        &mut self,
        filter: &str,
        log: Option<LogId>,
        tails: &Frontier,
    ) -> Option<StoredSubscription> {
        let begins = |other| log.is_none_or(|log| log == other);
        self.change(filter, |held| {
            replace(&mut held.since, NOT_IN_FORCE, tails, begins);
        })?;
        self.yield_in(filter, tails, begins)
    }

    /// What yields to another subscription with this filter comes to its end.
    pub(crate) fn stop_yielding(
        &mut self,
        filter: &str,
        tails: &Frontier,
    ) -> Option<StoredSubscription> {
        self.yield_in(filter, tails, |_| true)
    }

    /// The same in these logs: what has come to its end in all by that.
    fn yield_in(
        &mut self,
        filter: &str,
        tails: &Frontier,
        ends: impl Fn(LogId) -> bool,
    ) -> Option<StoredSubscription> {
        let ended = self
            .subscriptions
            .change(filter, StoredSubscription::yields, |subscription| {
                if let Some(until) = &mut subscription.until {
                    replace(until, HOLDS_ON, tails, ends);
                }
                (!subscription.yields()).then(|| subscription.clone())
            });
        ended.flatten()
    }

    /// A subscription ends. It stays until all before its end was given to the session.
    pub(crate) fn unsubscribe(
        &mut self,
        filter: &str,
        tails: &Frontier,
    ) -> Option<StoredSubscription> {
        self.change(filter, |subscription| {
            subscription.until = Some(tails.clone());
            subscription.clone()
        })
    }

    fn forget_filters(&mut self) {
        if let Some(backlog) = &mut self.backlog {
            backlog.forget_filters();
        }
    }

    /// Takes out the subscriptions that nothing above `through` can be for, and those that ended
    /// before anything came.
    pub(crate) fn take_past(&mut self, through: &Frontier) -> Vec<(Box<str>, u32)> {
        let past = self.subscriptions.take_ended(|held| {
            held.until.as_ref().is_some_and(|until| {
                through.reaches(until) || held.is_in_force() && held.since.reaches(until)
            })
        });
        let past = past.into_iter();
        past.map(|held| (held.filter, held.era)).collect()
    }
}

/// What has become of the subscription that another one replaces.
enum Replaced {
    /// It is the other one now.
    InPlace,
    By {
        retained_due: bool,
        /// It, if it has come to its end.
        ended: Option<StoredSubscription>,
    },
}

/// In those of these logs where it stands at this number it stands where the tails are.
fn replace(
    frontier: &mut Frontier,
    number: u64,
    tails: &Frontier,
    is_meant: impl Fn(LogId) -> bool,
) {
    let stands = frontier.iter().filter(|at| at.1 == number);
    let logs: Vec<_> = stands.filter(|at| is_meant(at.0)).collect();
    for (log, _) in logs {
        frontier.set(log, tails.of(log));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_ended_before_anything_came_is_past_however_far_behind_the_session_is() {
        let log = LogId(1);
        let mut tails = Frontier::new();
        tails.set(log, 5);
        let mut kept = Kept::new(Frontier::new());
        let take = |kept: &mut Kept, qos, joins: &[LogId]| {
            let options = SubscriptionOptions {
                qos,
                ..SubscriptionOptions::default()
            };
            kept.subscribe("t", options, None, &tails, joins);
            kept.come_into_force("t", None, &tails);
        };
        take(&mut kept, QoS::AtMostOnce, &[]);
        for _ in 0..100 {
            take(&mut kept, QoS::AtLeastOnce, &[log]);
            take(&mut kept, QoS::AtMostOnce, &[]);
            kept.take_past(&Frontier::new());
        }
        let held: Vec<_> = kept.subscriptions.iter().collect();
        assert_eq!(held.len(), 1);
        assert!(held[0].is_current());
    }

    #[test]
    fn one_on_the_same_terms_goes_on_whatever_has_come() {
        let (here, elsewhere) = (LogId(0), LogId(1));
        let at = |qos| SubscriptionOptions {
            qos,
            ..SubscriptionOptions::default()
        };
        let (qos0, qos1, qos2) = (QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce);
        // What each SUBSCRIBE wants, and how many subscriptions there are then.
        for (filter, asked) in [
            ("t", [(qos1, 1), (qos1, 1), (qos2, 2), (qos2, 2), (qos1, 3)]),
            // Of a group's messages none is found by it in the log.
            (
                "$share/g/t",
                [(qos1, 1), (qos2, 1), (qos0, 2), (qos2, 3), (qos1, 3)],
            ),
        ] {
            let mut kept = Kept::new(Frontier::new());
            let mut tails = Frontier::new();
            for (step, (qos, count)) in (1..).zip(asked) {
                tails.set(here, step);
                kept.subscribe(filter, at(qos), None, &tails, &[]);
                let held: Vec<_> = kept.subscriptions.iter().collect();
                assert_eq!(held.len(), count, "{filter} {step}");
                assert_eq!(kept.subscription(filter).unwrap().options.qos, qos);
            }
        }
        // Of two shards one has answered, and then the other.
        let mut kept = Kept::new(Frontier::new());
        let mut tails = Frontier::new();
        let other = LogId(2);
        kept.subscribe("t", at(qos0), None, &tails, &[]);
        for log in [here, elsewhere, other] {
            tails.set(log, 1);
        }
        kept.subscribe("t", at(qos1), None, &tails, &[elsewhere, other]);
        tails.set(elsewhere, 2);
        assert!(kept.come_into_force("t", Some(elsewhere), &tails).is_none());
        assert!(kept.holds_in(elsewhere, "t", qos1) && !kept.holds_in(other, "t", qos1));
        tails.set(elsewhere, 3);
        tails.set(other, 3);
        let yielded = kept.come_into_force("t", Some(other), &tails).unwrap();
        let held = kept.subscription("t").unwrap();
        for (log, number) in [(here, 1), (elsewhere, 2), (other, 3)] {
            assert_eq!(held.since.of(log), number);
            assert_eq!(yielded.until.as_ref().unwrap().of(log), number);
        }
        // Asked for again before it is in force, it is in force with the first answer, and at once
        // if there is none to wait for.
        let mut kept = Kept::new(Frontier::new());
        let mut tails = Frontier::new();
        for step in 1..=3 {
            tails.set(here, step);
            kept.subscribe("t", at(qos1), None, &tails, &[elsewhere]);
            assert!(!kept.subscription("t").unwrap().is_in_force());
        }
        kept.subscribe("t", at(qos1), None, &tails, &[]);
        let held = kept.subscription("t").unwrap();
        assert_eq!((held.is_in_force(), held.era), (true, 0));
        assert_eq!((held.since.of(here), held.since.of(elsewhere)), (1, 0));
    }
}
