//! What can be handed out in pieces: slices, and slices side by side.

/// Items that no task has taken yet.
pub(super) struct Rest<I> {
    /// The index of the first.
    first: usize,
    items: I,
}

impl<I: Items> Rest<I> {
    pub(super) fn new(items: I) -> Self {
        Self { first: 0, items }
    }

    pub(super) fn count(&self) -> usize {
        self.items.count()
    }

    /// The next items, at most so many, and the index of the first.
    pub(super) fn take(&mut self, count: usize) -> Option<(usize, I)> {
        let count = count.min(self.items.count());
        if count == 0 {
            return None;
        }
        let first = self.first;
        self.first += count;
        Some((first, self.items.take(count)))
    }
}

/// A slice, or slices side by side, that can be cut.
#[expect(unnameable_types, reason = "of a sealed trait")]
pub trait Items: Send {
    fn count(&self) -> usize;

    /// Cuts off the first so many, of which there must be enough.
    fn take(&mut self, count: usize) -> Self;
}

impl<T: Sync> Items for &[T] {
    fn count(&self) -> usize {
        self.len()
    }

    fn take(&mut self, count: usize) -> Self {
        let (taken, rest) = self.split_at(count);
        *self = rest;
        taken
    }
}

impl<T: Send> Items for &mut [T] {
    fn count(&self) -> usize {
        self.len()
    }

    fn take(&mut self, count: usize) -> Self {
        let (taken, rest) = std::mem::take(self).split_at_mut(count);
        *self = rest;
        taken
    }
}

impl<A: Items, B: Items> Items for (A, B) {
    fn count(&self) -> usize {
        self.0.count()
    }

    fn take(&mut self, count: usize) -> Self {
        (self.0.take(count), self.1.take(count))
    }
}
