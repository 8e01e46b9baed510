//! Messages between shards are numbered, so that one which is lost, comes twice or late on its way
//! is named and not only promised away.

use crate::ids::ShardId;
use crate::limits::SHARDS_MAX;
use crate::reason::FaultKind;

/// The next number to and from each shard.
#[derive(Debug)]
pub(crate) struct MessageNumbers {
    to: [u64; SHARDS_MAX],
    from: [u64; SHARDS_MAX],
}

/// Messages that are missing, or came twice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OutOfOrder {
    pub(crate) kind: FaultKind,
    pub(crate) first: u64,
    pub(crate) count: u64,
}

impl Default for MessageNumbers {
    fn default() -> Self {
        Self {
            to: [0; SHARDS_MAX],
            from: [0; SHARDS_MAX],
        }
    }
}

impl MessageNumbers {
    /// The number of the next message to this shard.
    pub(crate) fn next(&mut self, to: ShardId) -> u64 {
        let next = &mut self.to[usize::from(to.0)];
        let number = *next;
        *next += 1;
        number
    }

    /// A message came with this number.
    pub(crate) fn receive(&mut self, from: ShardId, number: u64) -> Option<OutOfOrder> {
        let due = &mut self.from[usize::from(from.0)];
        if number == *due {
            *due += 1;
            return None;
        }
        let expected = *due;
        *due = expected.max(number + 1);
        let (kind, first) = if number > expected {
            (FaultKind::Lost, expected)
        } else {
            (FaultKind::Duplicated, number)
        };
        let count = number.saturating_sub(expected).max(1);
        Some(OutOfOrder { kind, first, count })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_is_passed_over_or_comes_again_is_named() {
        let mut numbers = MessageNumbers::default();
        let from = ShardId(3);
        let mut receive = |number| {
            let found = numbers.receive(from, number);
            found.map(|found| (found.kind, found.first, found.count))
        };
        assert_eq!(receive(0), None);
        assert_eq!(receive(3), Some((FaultKind::Lost, 1, 2)));
        assert_eq!(receive(2), Some((FaultKind::Duplicated, 2, 1)));
        assert_eq!(receive(4), None);
    }
}
