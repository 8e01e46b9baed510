//! The shared groups that a session is in. Most sessions are in none, and that takes one word.

use std::collections::BTreeMap;
use std::sync::Arc;

/// By `$share/…`, the serial number that the group knows the session by.
#[derive(Debug, Default)]
pub(crate) struct Memberships(Option<Box<Groups>>);

#[derive(Debug, Default)]
struct Groups {
    by_text: BTreeMap<Arc<str>, u64>,
    /// The same by serial number, in order: a message for a member asks whether it still is one.
    /// None where it has left: more are moved only when half of them have.
    by_serial: Vec<(u64, Option<Arc<str>>)>,
}

impl Memberships {
    /// The serial number in this group: who is in it already keeps its own, else it is `fresh`,
    /// which is greater than any before.
    pub(crate) fn join(&mut self, text: Box<str>, fresh: u64) -> u64 {
        let groups = self.0.get_or_insert_default();
        if let Some(serial) = groups.by_text.get(&*text) {
            return *serial;
        }
        let text = Arc::from(text);
        groups.by_serial.push((fresh, Some(Arc::clone(&text))));
        groups.by_text.insert(text, fresh);
        fresh
    }

    pub(crate) fn leave(&mut self, text: &str) -> Option<u64> {
        let groups = self.0.as_mut()?;
        let serial = groups.by_text.remove(text)?;
        if let Some(at) = groups.place(serial) {
            groups.by_serial[at].1 = None;
        }
        if groups.by_text.len() <= groups.by_serial.len() / 2 {
            groups.by_serial.retain(|(_, text)| text.is_some());
        }
        if groups.by_text.is_empty() {
            self.0 = None;
        }
        Some(serial)
    }

    /// The serial number in this group, if the session is in it.
    pub(crate) fn serial(&self, text: &str) -> Option<u64> {
        self.0.as_ref()?.by_text.get(text).copied()
    }

    /// The group that knows the session by this serial number, if it still does.
    pub(crate) fn named(&self, serial: u64) -> Option<&Arc<str>> {
        let groups = self.0.as_ref()?;
        let (_, text) = &groups.by_serial[groups.place(serial)?];
        text.as_ref()
    }

    pub(crate) fn all(&self) -> Vec<(Arc<str>, u64)> {
        let groups = self.0.iter().flat_map(|groups| &groups.by_text);
        groups
            .map(|(text, serial)| (Arc::clone(text), *serial))
            .collect()
    }
}

impl Groups {
    fn place(&self, serial: u64) -> Option<usize> {
        let found = self.by_serial.binary_search_by_key(&serial, |(of, _)| *of);
        found.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_joins_again_stays_who_it_was_and_who_left_is_somebody_else() {
        let mut memberships = Memberships::default();
        assert_eq!(memberships.join("a".into(), 1), 1);
        assert_eq!(memberships.join("b".into(), 2), 2);
        assert_eq!(memberships.join("a".into(), 3), 1);
        let named = |memberships: &Memberships, serial| memberships.named(serial).cloned();
        assert_eq!(named(&memberships, 1).as_deref(), Some("a"));
        assert_eq!(named(&memberships, 2).as_deref(), Some("b"));
        assert_eq!(named(&memberships, 3), None);
        assert_eq!(memberships.leave("a"), Some(1));
        assert_eq!(memberships.leave("a"), None);
        assert_eq!(named(&memberships, 1), None);
        assert_eq!(memberships.join("a".into(), 4), 4);
        assert_eq!(memberships.all(), [("a".into(), 4), ("b".into(), 2)]);
    }

    #[test]
    fn who_has_left_most_of_many_groups_is_in_the_others_and_keeps_no_room_for_them() {
        let mut memberships = Memberships::default();
        for serial in 1..=1_000 {
            memberships.join(format!("g{serial}").into(), serial);
        }
        for serial in (1..=1_000).filter(|serial| serial % 10 != 0) {
            assert_eq!(memberships.leave(&format!("g{serial}")), Some(serial));
        }
        for serial in 1..=1_000 {
            let text = format!("g{serial}");
            let expected = (serial % 10 == 0).then_some(&*text);
            assert_eq!(memberships.named(serial).map(|text| &**text), expected);
        }
        let kept = memberships.0.as_ref().map(|groups| groups.by_serial.len());
        assert!(kept.is_some_and(|kept| kept < 2 * 100), "{kept:?}");
    }
}
