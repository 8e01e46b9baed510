//! The shared groups that a session is in. Most sessions are in none, and that takes one word.

use std::collections::BTreeMap;

/// By `$share/…`, the serial number that the group knows the session by.
#[derive(Debug, Default)]
pub(crate) struct Memberships(Option<Box<Groups>>);

#[derive(Debug, Default)]
struct Groups {
    by_text: BTreeMap<Box<str>, u64>,
    /// The same serial numbers, in order: a message for a member asks whether it still is one.
    serials: Vec<u64>,
}

impl Memberships {
    /// The serial number in this group: who is in it already keeps its own, else it is `fresh`,
    /// which is greater than any before.
    pub(crate) fn join(&mut self, text: Box<str>, fresh: u64) -> u64 {
        let groups = self.0.get_or_insert_default();
        let serial = *groups.by_text.entry(text).or_insert(fresh);
        if serial == fresh {
            groups.serials.push(serial);
        }
        serial
    }

    pub(crate) fn leave(&mut self, text: &str) -> Option<u64> {
        let groups = self.0.as_mut()?;
        let serial = groups.by_text.remove(text)?;
        if let Ok(at) = groups.serials.binary_search(&serial) {
            groups.serials.remove(at);
        }
        if groups.by_text.is_empty() {
            self.0 = None;
        }
        Some(serial)
    }

    pub(crate) fn has(&self, serial: u64) -> bool {
        let groups = self.0.as_ref();
        groups.is_some_and(|groups| groups.serials.binary_search(&serial).is_ok())
    }

    pub(crate) fn all(&self) -> Vec<(Box<str>, u64)> {
        let groups = self.0.iter().flat_map(|groups| &groups.by_text);
        groups
            .map(|(text, serial)| (text.clone(), *serial))
            .collect()
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
        assert!(memberships.has(1) && memberships.has(2) && !memberships.has(3));
        assert_eq!(memberships.leave("a"), Some(1));
        assert_eq!(memberships.leave("a"), None);
        assert!(!memberships.has(1));
        assert_eq!(memberships.join("a".into(), 4), 4);
        assert_eq!(memberships.all(), [("a".into(), 4), ("b".into(), 2)]);
    }
}
