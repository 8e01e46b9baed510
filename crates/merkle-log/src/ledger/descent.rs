//! What a receiver asks a producer, and what it is told: missing numbers, and the hashes of a
//! window whose root differs, in two rounds of at most 32.
//!
//! An answer is believed only when it folds to a root that a checkpoint vouches for, so it may come
//! from anyone. A gap costs 2 to 8 bytes to ask for: distances and lengths as variable-length
//! integers. Absent: the messages themselves, which come again in their lane, flagged re-sent.

use std::ops::Range;

use crate::reader::{Reader, write_number};
use crate::{Hash, LaneId};

/// What to ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// The messages with these numbers, again.
    Numbers(Vec<Range<u64>>),
    /// The hash of each 32 leaves among the first `size` of a window.
    Groups {
        /// The window's index: its first number divided by 1,024.
        window: u64,
        /// Leaves, 1 to 1,024.
        size: u16,
    },
    /// The leaves of one of these groups.
    Leaves {
        /// The window's index.
        window: u64,
        /// The group's index in the window, 0 to 31.
        group: u8,
        /// Leaves of the window, 1 to 1,024; they bound the last group.
        size: u16,
    },
}

/// What a producer says about hashes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// To [`Request::Groups`].
    Groups {
        /// The window's index.
        window: u64,
        /// Leaves, 1 to 1,024.
        size: u16,
        /// One hash for each 32 leaves, the last one for what is left.
        hashes: Vec<Hash>,
    },
    /// To [`Request::Leaves`].
    Leaves {
        /// The window's index.
        window: u64,
        /// Leaves of the window, as asked.
        size: u16,
        /// The group's index in the window.
        group: u8,
        /// Up to 32 leaves.
        leaves: Vec<Hash>,
    },
    /// These numbers are no longer held, or were never issued: they will not come.
    NotHeld(Vec<Range<u64>>),
}

/// Why an answer was not used. Nothing has changed by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Nothing is known of that epoch of the lane.
    #[error("the answer is about an epoch of lane {0} that nothing is known of")]
    UnknownLane(LaneId),
    /// The ledger has nothing open that this answers.
    #[error(
        "the answer is about window {0}, of which nothing is asked: ask again for what is open"
    )]
    NotAsked(u64),
    /// It folds to another root than the checkpoint's.
    #[error("the hashes for window {0} do not give the root of its checkpoint: ask another holder")]
    Unproven(u64),
}

/// Why bytes are no gap request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GapListError {
    /// They end within a number, or it needs more than 64 bits, or has more bytes than it needs.
    #[error("gap list: no whole number at byte {0}")]
    Truncated(usize),
    /// A gap is empty, touches the one before, or ends beyond the numbers there are.
    #[error("gap list: the gap that ends at byte {0} is empty, not apart, or beyond 2^64 - 1")]
    Impossible(usize),
}

/// Writes ordered gaps that do not touch: for each the distance from the end of the one before,
/// then its length.
pub fn write_gaps(gaps: &[Range<u64>]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(gaps.len() * 4);
    let mut at = 0;
    for gap in gaps {
        write_number(gap.start - at, &mut bytes);
        write_number(gap.end - gap.start, &mut bytes);
        at = gap.end;
    }
    bytes
}

/// Reads what [`write_gaps`] writes, and nothing else. Allocates in proportion to the input.
pub fn read_gaps(bytes: &[u8]) -> Result<Vec<Range<u64>>, GapListError> {
    let mut reader = Reader::new(bytes);
    let mut gaps: Vec<Range<u64>> = Vec::new();
    while !reader.rest().is_empty() {
        let mut number = || {
            let at = bytes.len() - reader.rest().len();
            reader.number().ok_or(GapListError::Truncated(at))
        };
        let (distance, length) = (number()?, number()?);
        let before = gaps.last().map_or(0, |gap| gap.end);
        let start = before.checked_add(distance);
        let gap = start
            .and_then(|start| Some(start..start.checked_add(length)?))
            .filter(|gap| !gap.is_empty() && (distance > 0 || gaps.is_empty()))
            .ok_or(GapListError::Impossible(bytes.len() - reader.rest().len()))?;
        gaps.push(gap);
    }
    Ok(gaps)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_loss_in_a_lane_of_a_million_is_named_in_8_bytes_at_most() {
        assert!(write_gaps(&[999_999..1_000_000]).len() <= 4);
        assert!(write_gaps(&[u64::from(u32::MAX)..u64::from(u32::MAX) + 100]).len() <= 8);
    }

    #[test]
    fn damaged_gap_lists_are_refused() {
        assert_eq!(read_gaps(&[1]), Err(GapListError::Truncated(1)));
        assert_eq!(read_gaps(&[1, 0]), Err(GapListError::Impossible(2)));
        assert_eq!(read_gaps(&[1, 0, 1]), Err(GapListError::Impossible(2)));
        assert_eq!(read_gaps(&[0x80]), Err(GapListError::Truncated(0)));
        assert_eq!(read_gaps(&[0x81, 0, 1]), Err(GapListError::Truncated(0)));
        assert_eq!(read_gaps(&[1, 1, 0, 1]), Err(GapListError::Impossible(4)));
        let mut far = vec![0xff; 9];
        far.extend([1, 1]);
        assert_eq!(read_gaps(&far), Err(GapListError::Impossible(11)));
        far[9] = 2;
        assert_eq!(read_gaps(&far), Err(GapListError::Truncated(0)));
    }

    proptest! {
        #[test]
        fn gaps_are_read_as_written(steps in prop::collection::vec((1_u64..1 << 40, 1_u64..9), 0..50)) {
            let mut at = 0;
            let gaps: Vec<Range<u64>> = steps
                .into_iter()
                .map(|(distance, length)| {
                    let start = at + distance;
                    at = start + length;
                    start..at
                })
                .collect();
            prop_assert_eq!(read_gaps(&write_gaps(&gaps)), Ok(gaps));
        }

        #[test]
        fn any_bytes_are_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            if let Ok(gaps) = read_gaps(&bytes) {
                prop_assert_eq!(write_gaps(&gaps), bytes);
            }
        }
    }
}
