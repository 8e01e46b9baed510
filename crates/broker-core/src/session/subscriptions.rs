//! The subscriptions that a session has now, and what their filters take of the tree.

use std::ops::Deref;
use std::vec;

use crate::by_filter::ByFilter;
use crate::filter_size::FilterSize;
use crate::limits::Limits;
use crate::routing::Grant;

/// By filter as the client wrote it, `$share/…` included.
#[derive(Debug, Default)]
pub(crate) struct Subscriptions {
    by_filter: ByFilter<Grant>,
    /// Of all filters together.
    size: FilterSize,
}

impl Subscriptions {
    /// Whether there may be another one, with a filter of this size.
    pub(crate) fn has_room(&self, size: FilterSize, limits: &Limits) -> bool {
        let mut all = self.size;
        all.add(size);
        self.by_filter.len() < limits.subscriptions_per_session_max as usize
            && all.levels <= limits.filter_levels_per_session_max
            && (size.deep == 0 || all.deep <= limits.deep_levels_per_session_max())
    }

    /// Adds a subscription, or replaces the one with this filter.
    pub(crate) fn insert(&mut self, filter: Box<str>, grant: Grant) {
        let size = FilterSize::of_text(&filter);
        if self.by_filter.insert(filter, grant).is_none() {
            self.size.add(size);
        }
    }

    pub(crate) fn remove(&mut self, filter: &str) -> Option<Grant> {
        let removed = self.by_filter.remove(filter)?;
        self.size.subtract(FilterSize::of_text(filter));
        Some(removed)
    }
}

/// To look at them; what changes them is above.
impl Deref for Subscriptions {
    type Target = ByFilter<Grant>;

    fn deref(&self) -> &Self::Target {
        &self.by_filter
    }
}

impl IntoIterator for Subscriptions {
    type Item = (Box<str>, Grant);
    type IntoIter = vec::IntoIter<Self::Item>;

    fn into_iter(self) -> Self::IntoIter {
        self.by_filter.into_iter()
    }
}
