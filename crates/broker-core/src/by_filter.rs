//! A map by filter for many owners of few: a list in order, with room for exactly one at first.
//!
//! Most sessions have one subscription, and those that sleep are many: a tree's first node has room
//! for eleven. A session with ten thousand moves 160 KiB for another, which is less than what
//! another costs elsewhere.

use std::vec;

/// What there is for each filter.
#[derive(Debug)]
pub(crate) struct ByFilter<T>(Vec<(Box<str>, T)>);

impl<T> ByFilter<T> {
    pub(crate) const fn new() -> Self {
        Self(Vec::new())
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &T)> {
        self.0.iter().map(|(filter, value)| (&**filter, value))
    }

    pub(crate) fn get(&self, filter: &str) -> Option<&T> {
        let at = self.find(filter).ok()?;
        Some(&self.0[at].1)
    }

    /// Puts it in the place of what was there.
    pub(crate) fn insert(&mut self, filter: Box<str>, value: T) -> Option<T> {
        match self.find(&filter) {
            Ok(at) => Some(std::mem::replace(&mut self.0[at].1, value)),
            Err(at) => {
                if self.0.is_empty() {
                    self.0.reserve_exact(1);
                }
                self.0.insert(at, (filter, value));
                None
            }
        }
    }

    pub(crate) fn remove(&mut self, filter: &str) -> Option<T> {
        let at = self.find(filter).ok()?;
        Some(self.0.remove(at).1)
    }

    fn find(&self, filter: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|(other, _)| (**other).cmp(filter))
    }
}

impl<T> Default for ByFilter<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> IntoIterator for ByFilter<T> {
    type Item = (Box<str>, T);
    type IntoIter = vec::IntoIter<Self::Item>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn it_does_what_a_tree_does() {
        let (mut map, mut twin) = (ByFilter::new(), BTreeMap::new());
        let mut random = 1_u64;
        for step in 0..2_000 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let filter = format!("a/{}", (random >> 40) % 40);
            if random >> 63 == 0 {
                let before = map.insert(filter.as_str().into(), step);
                assert_eq!(before, twin.insert(filter, step));
            } else {
                assert_eq!(map.remove(&filter), twin.remove(&filter));
            }
            assert_eq!(map.len(), twin.len());
        }
        assert!(twin.keys().all(|filter| map.get(filter).is_some()));
        assert!(
            twin.iter()
                .all(|(filter, step)| map.get(filter) == Some(step))
        );
        assert!(map.get("b").is_none());
        let rest = map.into_iter().map(|(filter, step)| (filter.into(), step));
        assert!(rest.eq(twin));
    }
}
