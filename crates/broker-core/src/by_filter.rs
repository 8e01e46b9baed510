//! A map by filter for many owners of few: a list in order, with room for exactly one at first.
//!
//! Most sessions have one subscription, and those that sleep are many: a tree's first node has room
//! for eleven. Many lie in a tree, where another one moves no more than a few.

use std::collections::BTreeMap;
use std::vec;

/// What there is for each filter.
#[derive(Debug)]
pub(crate) enum ByFilter<T> {
    /// In order.
    Few(Vec<(Box<str>, T)>),
    #[expect(clippy::box_collection, reason = "so it is no larger than a list")]
    Many(Box<BTreeMap<Box<str>, T>>),
}

impl<T> ByFilter<T> {
    pub(crate) const fn new() -> Self {
        Self::Few(Vec::new())
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Few(few) => few.len(),
            Self::Many(many) => many.len(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &T)> {
        let (few, many) = match self {
            Self::Few(few) => (&few[..], None),
            Self::Many(many) => (&[][..], Some(many.iter())),
        };
        let few = few.iter().map(|(filter, value)| (&**filter, value));
        let many = many.into_iter().flatten();
        few.chain(many.map(|(filter, value)| (&**filter, value)))
    }

    pub(crate) fn get(&self, filter: &str) -> Option<&T> {
        match self {
            Self::Few(few) => Some(&few[find(few, filter).ok()?].1),
            Self::Many(many) => many.get(filter),
        }
    }

    /// Puts it in the place of what was there.
    pub(crate) fn insert(&mut self, filter: Box<str>, value: T) -> Option<T> {
        let few = match self {
            Self::Few(few) => few,
            Self::Many(many) => return many.insert(filter, value),
        };
        match find(few, &filter) {
            Ok(at) => Some(std::mem::replace(&mut few[at].1, value)),
            Err(at) if few.len() < FEW_MAX => {
                if few.is_empty() {
                    few.reserve_exact(1);
                }
                few.insert(at, (filter, value));
                None
            }
            Err(_) => {
                let few = std::mem::take(few).into_iter();
                let all = few.chain([(filter, value)]).collect();
                *self = Self::Many(Box::new(all));
                None
            }
        }
    }

    pub(crate) fn remove(&mut self, filter: &str) -> Option<T> {
        match self {
            Self::Few(few) => {
                let at = find(few, filter).ok()?;
                Some(few.remove(at).1)
            }
            Self::Many(many) => {
                let removed = many.remove(filter);
                if many.len() <= FEW_MAX / 2 {
                    let left = std::mem::take(&mut **many);
                    *self = Self::Few(left.into_iter().collect());
                }
                removed
            }
        }
    }
}

fn find<T>(few: &[(Box<str>, T)], filter: &str) -> Result<usize, usize> {
    few.binary_search_by(|(other, _)| (**other).cmp(filter))
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
        match self {
            Self::Few(few) => few.into_iter(),
            Self::Many(many) => many.into_iter().collect::<Vec<_>>().into_iter(),
        }
    }
}

/// So many are moved for another one.
const FEW_MAX: usize = 16;

const _: () = assert!(
    size_of::<ByFilter<u64>>() == size_of::<Vec<u64>>(),
    "sleepers are many"
);

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn it_does_what_a_tree_does() {
        let (mut map, mut twin) = (ByFilter::new(), BTreeMap::new());
        let mut random = 1_u64;
        let (mut most, mut least) = (0, usize::MAX);
        for step in 0..4_000 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let filter = format!("a/{}", (random >> 40) % 40);
            // Long times with many, long ones with few.
            let grows = if step / 500 % 2 == 0 { 3 } else { 1 };
            if random >> 62 < grows {
                let before = map.insert(filter.as_str().into(), step);
                assert_eq!(before, twin.insert(filter, step));
            } else {
                assert_eq!(map.remove(&filter), twin.remove(&filter));
            }
            assert_eq!(map.len(), twin.len());
            most = most.max(map.len());
            least = least.min(if step > 1_000 { map.len() } else { most });
            let same = map
                .iter()
                .eq(twin.iter().map(|(filter, step)| (&**filter, step)));
            assert!(same, "{map:?} {twin:?}");
        }
        assert!(most > FEW_MAX && least <= FEW_MAX / 2, "{most} {least}");
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
