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
    by_serial: Vec<(u64, Arc<str>)>,
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
        groups.by_serial.push((fresh, Arc::clone(&text)));
        groups.by_text.insert(text, fresh);
        fresh
    }

    pub(crate) fn leave(&mut self, text: &str) -> Option<u64> {
        let groups = self.0.as_mut()?;
        let serial = groups.by_text.remove(text)?;
        if let Some(at) = groups.place(serial) {
            groups.by_serial.remove(at);
        }
        if groups.by_text.is_empty() {
            self.0 = None;
        }
        Some(serial)
    }

    /// The group that knows the session by this serial number, if it still does.
    pub(crate) fn named(&self, serial: u64) -> Option<&Arc<str>> {
        let groups = self.0.as_ref()?;
        let (_, text) = &groups.by_serial[groups.place(serial)?];
        Some(text)
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
}
