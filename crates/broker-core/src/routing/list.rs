//! The subscribers of one filter: nearly always one, sometimes a hundred thousand.
//!
//! Invariants: a subscriber is in the list at most once; finding, adding and removing one cost the
//! same in a long list as in a short one. Order is that of insertion, but removing one moves the
//! last into its place.

use std::collections::HashMap;
use std::slice;

use foldhash::fast::RandomState;

use super::{Grant, Subscriber};

/// A subscription, seen from its filter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) subscriber: Subscriber,
    pub(super) grant: Grant,
}

/// Three sizes of the same thing. A list of one needs no memory of its own, and there are as many
/// of those as subscriptions; a long one has an index, because a whole fleet on one filter would
/// otherwise cost the square of its size to connect.
#[derive(Debug)]
pub(super) enum SubscriberList {
    One(Entry),
    /// None, or 2 to [`FEW_MAX`]: searched from the front.
    Few(Vec<Entry>),
    Many(Box<Many>),
}

#[derive(Debug, Default)]
pub(super) struct Many {
    entries: Vec<Entry>,
    /// Where in `entries` each subscriber is.
    positions: HashMap<Subscriber, u32, RandomState>,
}

impl Default for SubscriberList {
    fn default() -> Self {
        Self::Few(Vec::new())
    }
}

impl SubscriberList {
    pub(super) fn entries(&self) -> &[Entry] {
        match self {
            Self::One(entry) => slice::from_ref(entry),
            Self::Few(entries) => entries,
            Self::Many(many) => &many.entries,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries().is_empty()
    }

    pub(super) fn get(&self, subscriber: Subscriber) -> Option<Grant> {
        let position = self.position(subscriber)?;
        self.entries().get(position).map(|entry| entry.grant)
    }

    /// Adds or replaces; gives back what was replaced.
    pub(super) fn insert(&mut self, subscriber: Subscriber, grant: Grant) -> Option<Grant> {
        let entry = Entry { subscriber, grant };
        if let Some(position) = self.position(subscriber) {
            let old = self.entries_mut().get_mut(position)?;
            return Some(std::mem::replace(old, entry).grant);
        }
        match self {
            Self::Few(entries) if entries.is_empty() => *self = Self::One(entry),
            Self::One(first) => *self = Self::Few(vec![*first, entry]),
            Self::Few(entries) if entries.len() < FEW_MAX => entries.push(entry),
            Self::Few(entries) => {
                let mut many = Many::from(std::mem::take(entries));
                many.push(entry);
                *self = Self::Many(Box::new(many));
            }
            Self::Many(many) => many.push(entry),
        }
        None
    }

    /// Removes; gives back what it was granted.
    pub(super) fn remove(&mut self, subscriber: Subscriber) -> Option<Grant> {
        let position = self.position(subscriber)?;
        match self {
            Self::One(entry) => {
                let grant = entry.grant;
                *self = Self::default();
                Some(grant)
            }
            Self::Few(entries) => {
                let removed = entries.swap_remove(position);
                match entries.as_slice() {
                    [last] => *self = Self::One(*last),
                    rest if rest.len() * 4 < entries.capacity() => {
                        entries.shrink_to(rest.len() * 2);
                    }
                    _ => {}
                }
                Some(removed.grant)
            }
            Self::Many(many) => {
                let removed = many.swap_remove(position);
                // Well below the limit of the shorter form, so that one client coming and going
                // does not rebuild the index each time.
                if many.entries.len() <= FEW_MAX / 2 {
                    let mut entries = std::mem::take(&mut many.entries);
                    entries.shrink_to_fit();
                    *self = Self::Few(entries);
                }
                Some(removed.grant)
            }
        }
    }

    fn position(&self, subscriber: Subscriber) -> Option<usize> {
        match self {
            Self::Many(many) => many
                .positions
                .get(&subscriber)
                .map(|position| *position as usize),
            short => short
                .entries()
                .iter()
                .position(|entry| entry.subscriber == subscriber),
        }
    }

    fn entries_mut(&mut self) -> &mut [Entry] {
        match self {
            Self::One(entry) => slice::from_mut(entry),
            Self::Few(entries) => entries,
            Self::Many(many) => &mut many.entries,
        }
    }
}

impl From<Vec<Entry>> for Many {
    fn from(entries: Vec<Entry>) -> Self {
        let mut many = Self::default();
        for entry in entries {
            many.push(entry);
        }
        many
    }
}

impl Many {
    fn push(&mut self, entry: Entry) {
        let position = u32::try_from(self.entries.len())
            .expect("subscribers are numbered with 32 bits, and each is here once");
        self.positions.insert(entry.subscriber, position);
        self.entries.push(entry);
    }

    fn swap_remove(&mut self, position: usize) -> Entry {
        let removed = self.entries.swap_remove(position);
        let freed = self.positions.remove(&removed.subscriber);
        if let (Some(moved), Some(freed)) = (self.entries.get(position), freed) {
            self.positions.insert(moved.subscriber, freed);
        }
        if self.entries.len() * 4 < self.entries.capacity() {
            self.entries.shrink_to(self.entries.len() * 2);
            self.positions.shrink_to(self.entries.len() * 2);
        }
        removed
    }
}

/// Up to here looking at each entry is as fast as hashing: 16 bytes each.
const FEW_MAX: usize = 32;

/// A subscription costs this much twice over (`exact` and `subtree` of its node), used or not.
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<SubscriberList>() == 24 && size_of::<Entry>() == 16);

#[cfg(test)]
mod tests {
    use unbroken_mqtt_proto::QoS;

    use super::*;
    use crate::ids::SessionId;

    fn session(number: u32) -> Subscriber {
        Subscriber::Session(SessionId(number))
    }

    fn grant(number: u32) -> Grant {
        Grant {
            qos: QoS::AtMostOnce,
            no_local: false,
            retain_as_published: false,
            identifier: std::num::NonZeroU32::new(number),
        }
    }

    #[test]
    fn every_size_finds_replaces_and_removes() {
        for size in [1, 2, 3, FEW_MAX, FEW_MAX + 1, 500] {
            let numbers = 1..=u32::try_from(size).unwrap();
            let mut list = SubscriberList::default();
            for n in numbers.clone() {
                assert_eq!(list.insert(session(n), grant(n)), None);
            }
            assert_eq!(list.entries().len(), size);
            for n in numbers.clone() {
                assert_eq!(list.insert(session(n), grant(n + 1000)), Some(grant(n)));
                assert_eq!(list.get(session(n)), Some(grant(n + 1000)));
            }
            // From the middle outwards, so that the swapped-in entries are looked for, too.
            for n in numbers
                .clone()
                .skip(size / 2)
                .chain(numbers.clone().take(size / 2))
            {
                assert_eq!(
                    list.remove(session(n)),
                    Some(grant(n + 1000)),
                    "size {size}"
                );
                assert_eq!(list.remove(session(n)), None);
                assert_eq!(list.get(session(n)), None);
            }
            assert!(list.is_empty());
        }
    }

    #[test]
    fn memory_returns_when_a_fleet_leaves() {
        let mut list = SubscriberList::default();
        for n in 0..10_000 {
            list.insert(session(n), grant(1));
        }
        for n in 1..10_000 {
            list.remove(session(n));
        }
        assert!(matches!(list, SubscriberList::One(_)));
    }
}
