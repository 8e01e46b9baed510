//! The subscriptions of one session: few of most, and thousands of some.
//!
//! Few lie in a list, where sleepers, which are many and have one, take no more than that. Many are
//! sorted by filter, so that neither another SUBSCRIBE nor a message looks at all of them.
//!
//! Invariants:
//! - Both answer the same. What is in force, and what has ended, is counted where there are many.
//! - Those with one filter lie in the order in which they came.

use std::collections::BTreeMap;
use std::ops::Bound;

use unbroken_mqtt_proto::TopicName;
use unbroken_mqtt_proto::topic::filters_on;

use super::StoredSubscription;

/// A session's subscriptions, past ones among them.
#[derive(Debug)]
pub(crate) enum StoredSubscriptions {
    /// In no order of filters.
    Few(Vec<StoredSubscription>),
    Many(Box<Many>),
}

#[derive(Debug, Default)]
pub(crate) struct Many {
    /// Those with each filter; no list is empty. The filter stands twice, which is little beside
    /// what the tree of the shard has of it.
    by_filter: BTreeMap<Box<str>, Vec<StoredSubscription>>,
    count: usize,
    /// Of those, the ones that are not in force.
    not_in_force: usize,
    /// Of those, the ones that are not the present one of their filter.
    ended: usize,
}

impl StoredSubscriptions {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &StoredSubscription> {
        let (few, many) = match self {
            Self::Few(few) => (&few[..], None),
            Self::Many(many) => (&[][..], Some(&many.by_filter)),
        };
        few.iter()
            .chain(many.into_iter().flat_map(BTreeMap::values).flatten())
    }

    /// Those with this filter.
    pub(super) fn of(&self, filter: &str) -> impl DoubleEndedIterator<Item = &StoredSubscription> {
        let around = match self {
            Self::Few(few) => &few[..],
            Self::Many(many) => many.by_filter.get(filter).map_or(&[][..], Vec::as_slice),
        };
        around.iter().filter(move |held| *held.filter == *filter)
    }

    /// Looks at those whose filter matches, one after the other.
    pub(crate) fn on<'a>(
        &'a self,
        topic: TopicName<'_>,
        mut look: impl FnMut(&'a StoredSubscription),
    ) {
        // A shared subscription's filter is also the name of a topic, so that it may be found.
        let mut look_at = |around: &'a [StoredSubscription]| {
            let found = around.iter().filter(|held| held.matches(topic));
            found.for_each(&mut look);
        };
        match self {
            Self::Few(few) => look_at(few),
            Self::Many(many) => filters_on(topic, |text| many.at_or_after(text), look_at),
        }
    }

    /// Changes the last one with this filter of which this is true. None if it is of none.
    pub(super) fn change<R>(
        &mut self,
        filter: &str,
        which: impl Fn(&StoredSubscription) -> bool,
        change: impl FnOnce(&mut StoredSubscription) -> R,
    ) -> Option<R> {
        let (around, many) = match self {
            Self::Few(few) => (&mut few[..], None),
            Self::Many(many) => {
                let Many {
                    by_filter,
                    count: _,
                    not_in_force,
                    ended,
                } = &mut **many;
                let around = by_filter.get_mut(filter)?;
                (&mut around[..], Some((not_in_force, ended)))
            }
        };
        let mut around = around.iter_mut().rev();
        let held = around.find(|held| *held.filter == *filter && which(held))?;
        let before = counts(held);
        let result = change(held);
        if let Some((not_in_force, ended)) = many {
            let after = counts(held);
            *not_in_force = *not_in_force + after.0 - before.0;
            *ended = *ended + after.1 - before.1;
        }
        Some(result)
    }

    /// Adds the newest one with its filter.
    pub(super) fn push(&mut self, subscription: StoredSubscription) {
        match self {
            Self::Few(few) if few.len() < FEW_MAX => {
                if few.is_empty() {
                    few.reserve_exact(1); // most sleep with one, and sleepers are many
                }
                few.push(subscription);
            }
            Self::Few(few) => {
                let few = std::mem::take(few);
                *self = Self::Many(Box::default());
                few.into_iter()
                    .chain([subscription])
                    .for_each(|held| self.push(held));
            }
            Self::Many(many) => {
                let (not_in_force, ended) = counts(&subscription);
                many.count += 1;
                many.not_in_force += not_in_force;
                many.ended += ended;
                match many.by_filter.get_mut(&subscription.filter) {
                    Some(eras) => eras.push(subscription),
                    None => {
                        many.by_filter
                            .insert(subscription.filter.clone(), vec![subscription]);
                    }
                }
            }
        }
    }

    /// Takes out the ended ones of which this is true.
    pub(super) fn take_ended(
        &mut self,
        mut which: impl FnMut(&StoredSubscription) -> bool,
    ) -> Vec<StoredSubscription> {
        let mut which = |held: &mut StoredSubscription| held.until.is_some() && which(held);
        match self {
            Self::Few(few) => few.extract_if(.., which).collect(),
            Self::Many(many) if many.ended == 0 => Vec::new(),
            Self::Many(many) => {
                let mut taken = Vec::new();
                many.by_filter.retain(|_, eras| {
                    taken.extend(eras.extract_if(.., &mut which));
                    !eras.is_empty()
                });
                many.count -= taken.len();
                for (not_in_force, ended) in taken.iter().map(counts) {
                    many.not_in_force -= not_in_force;
                    many.ended -= ended;
                }
                if many.count <= FEW_MAX / 2 {
                    let left = std::mem::take(&mut many.by_filter);
                    *self = Self::Few(left.into_values().flatten().collect());
                }
                taken
            }
        }
    }

    /// How many there are that are not the present one of their filter.
    pub(super) fn ended(&self) -> usize {
        match self {
            Self::Few(few) => few.iter().map(counts).map(|(_, ended)| ended).sum(),
            Self::Many(many) => many.ended,
        }
    }

    /// Each is in force.
    pub(crate) fn all_in_force(&self) -> bool {
        match self {
            Self::Few(few) => few.iter().all(StoredSubscription::is_in_force),
            Self::Many(many) => many.not_in_force == 0,
        }
    }
}

impl Many {
    fn at_or_after(&self, text: &str) -> Option<(&str, &[StoredSubscription])> {
        let behind = (Bound::Included(text), Bound::Unbounded);
        let (filter, eras) = self.by_filter.range::<str, _>(behind).next()?;
        Some((filter, eras))
    }
}

/// What one of them adds to what is counted.
fn counts(held: &StoredSubscription) -> (usize, usize) {
    (
        usize::from(!held.is_in_force()),
        usize::from(held.until.is_some()),
    )
}

impl Default for StoredSubscriptions {
    fn default() -> Self {
        Self::Few(Vec::new())
    }
}

impl FromIterator<StoredSubscription> for StoredSubscriptions {
    fn from_iter<I: IntoIterator<Item = StoredSubscription>>(all: I) -> Self {
        let all: Vec<_> = all.into_iter().collect();
        if all.len() <= FEW_MAX {
            return Self::Few(all);
        }
        let mut subscriptions = Self::default();
        for subscription in all {
            subscriptions.push(subscription);
        }
        subscriptions
    }
}

/// So many are looked at one by one.
const FEW_MAX: usize = 16;

const _: () = assert!(
    size_of::<StoredSubscriptions>() == size_of::<Vec<StoredSubscription>>(),
    "sleepers are many"
);

#[cfg(test)]
mod tests {
    use unbroken_mqtt_proto::{QoS, SubscriptionOptions};

    use super::*;
    use crate::Frontier;
    use crate::ids::LogId;
    use crate::session::Kept;

    const ELSEWHERE: LogId = LogId(1);

    fn options(qos: QoS) -> SubscriptionOptions {
        SubscriptionOptions {
            qos,
            ..SubscriptionOptions::default()
        }
    }

    /// The same with all in a list.
    fn check_twin(subscriptions: &StoredSubscriptions) {
        let list: Vec<_> = subscriptions.iter().collect();
        assert_eq!(
            subscriptions.all_in_force(),
            list.iter().all(|held| held.is_in_force())
        );
        for topic in ["a/1", "a/31/x", "b/7", "$share/g/a/3", "c"] {
            let topic = TopicName::parse(topic).unwrap();
            let mut found = Vec::new();
            subscriptions.on(topic, |held| found.push((&held.filter, held.era)));
            found.sort_unstable();
            let expected = list.iter().filter(|held| held.matches(topic));
            let mut expected: Vec<_> = expected.map(|held| (&held.filter, held.era)).collect();
            expected.sort_unstable();
            assert_eq!(found, expected);
        }
        let ended = list.iter().filter(|held| held.until.is_some());
        assert_eq!(subscriptions.ended(), ended.count());
        if let StoredSubscriptions::Many(many) = subscriptions {
            assert_eq!(many.count, list.len());
            assert!(many.by_filter.values().all(|eras| !eras.is_empty()));
        }
        for held in &list {
            let eras: Vec<_> = subscriptions
                .of(&held.filter)
                .map(|held| held.era)
                .collect();
            assert!(eras.is_sorted(), "{eras:?}");
        }
    }

    #[test]
    fn many_answer_as_a_list_of_all_does() {
        let mut kept = Kept::new(Frontier::new());
        let mut tails = Frontier::new();
        let mut random = 1_u64;
        let (mut most, mut least) = (0, usize::MAX);
        for step in 0..4_000_u64 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let draw = (random >> 33) % 40;
            let filter = match draw % 4 {
                0 => format!("a/{draw}"),
                1 => format!("a/{draw}/#"),
                2 => format!("+/{draw}"),
                _ => format!("$share/g/a/{draw}"),
            };
            tails.set(LogId(0), step / 3);
            // Long times with many, long ones with few.
            let grows = step / 500 % 2 == 0;
            match random >> 60 {
                0..4 => {
                    kept.unsubscribe(&filter, &tails);
                }
                4..8 if grows => {
                    kept.subscribe(
                        &filter,
                        options(QoS::AtLeastOnce),
                        None,
                        &tails,
                        &[ELSEWHERE],
                    );
                }
                8..10 if grows => {
                    kept.subscribe(&filter, options(QoS::AtMostOnce), None, &tails, &[]);
                }
                10..12 => {
                    kept.come_into_force(&filter, None, &tails);
                }
                12..14 => {
                    kept.stop_yielding(&filter, &tails);
                }
                14 => {
                    kept.take_past(&tails);
                }
                _ => {}
            }
            check_twin(&kept.subscriptions);
            let present = kept
                .subscriptions
                .iter()
                .filter(|held| held.until.is_none());
            assert_eq!(present.count(), {
                let all = kept.subscriptions.iter().map(|held| &held.filter);
                let filters: std::collections::BTreeSet<_> = all.collect();
                filters
                    .into_iter()
                    .filter(|filter| kept.subscription(filter).is_some())
                    .count()
            });
            let count = kept.subscriptions.iter().count();
            (most, least) = (
                most.max(count),
                if step > 1_000 {
                    least.min(count)
                } else {
                    least
                },
            );
        }
        assert!(most > FEW_MAX && least <= FEW_MAX / 2, "{most} {least}");
    }
}
