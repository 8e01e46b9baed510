//! Puts messages in the order of their numbers.

use std::collections::BTreeMap;

use crate::limits::WAITING_MAX;

/// Messages of one lane, from number 0 on.
#[derive(Debug)]
pub(crate) struct Sequence<T> {
    next: u64,
    waiting: BTreeMap<u64, T>,
}

impl<T> Sequence<T> {
    pub(crate) fn new() -> Self {
        Self {
            next: 0,
            waiting: BTreeMap::new(),
        }
    }

    /// Takes a message; gives those whose turn it is now. While one is missing those behind it
    /// wait, up to a limit: beyond it the missing ones are passed over.
    pub(crate) fn take(&mut self, number: u64, message: T) -> impl Iterator<Item = T> {
        if number >= self.next {
            self.waiting.insert(number, message);
        }
        if self.waiting.len() > WAITING_MAX
            && let Some(first) = self.waiting.keys().next()
        {
            self.next = *first;
        }
        std::iter::from_fn(|| {
            let message = self.waiting.remove(&self.next)?;
            self.next += 1;
            Some(message)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_given_in_the_order_of_their_numbers() {
        let mut sequence = Sequence::new();
        let mut given = Vec::new();
        for number in [0, 2, 3, 1, 1, 5, 4] {
            given.extend(sequence.take(number, number));
        }
        assert_eq!(given, [0, 1, 2, 3, 4, 5]);
    }

    #[test]
    fn what_never_comes_is_passed_over_at_the_limit() {
        let mut sequence = Sequence::new();
        let mut given = 0;
        for number in 1..=WAITING_MAX as u64 + 1 {
            given += sequence.take(number, ()).count();
        }
        assert_eq!(given, WAITING_MAX + 1);
    }
}
