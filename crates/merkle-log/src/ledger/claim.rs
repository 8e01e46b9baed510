//! What a checkpoint says of its lane, as far as the windows need it.
//!
//! **Invariant.** Of two claims the one of the larger size counts, and of one size the later; which
//! came first makes no difference.

use super::window::SLOTS;
use crate::saved::{Fields, StateError, Writer};
use crate::{Checkpoint, EpochEnd, Hash};

/// What a checkpoint says of its lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) number: u32,
    pub(super) first: u64,
    pub(super) size: u64,
    pub(super) window_root: Hash,
    pub(super) lane_root: Hash,
    pub(super) end: EpochEnd,
}

impl From<&Checkpoint> for Claim {
    fn from(checkpoint: &Checkpoint) -> Self {
        Self {
            number: checkpoint.number,
            first: checkpoint.first,
            size: checkpoint.size,
            window_root: checkpoint.window_root,
            lane_root: checkpoint.lane_root,
            end: checkpoint.end,
        }
    }
}

impl Claim {
    /// How many messages of its window it covers.
    pub(super) fn in_window(&self) -> u16 {
        let messages = self.size.saturating_sub(self.first);
        u16::try_from(messages).map_or(SLOTS, |messages| messages.min(SLOTS))
    }

    /// The newer of two, if there is any.
    pub(super) fn newer(one: Option<&Self>, other: Option<&Self>) -> Option<Self> {
        match (one, other) {
            (Some(one), Some(other)) => Some(one.or_newer(other)),
            (one, other) => one.or(other).copied(),
        }
    }

    /// The one that tells more, and the later of two that tell as much.
    fn or_newer(self, other: &Self) -> Self {
        let rank = |claim: &Self| {
            let roots = (claim.lane_root, claim.window_root);
            (claim.size, claim.number, claim.first, roots)
        };
        let newer = if rank(other) > rank(&self) {
            *other
        } else {
            self
        };
        let end = if self.size == other.size {
            self.end.max(other.end)
        } else {
            newer.end
        };
        Self { end, ..newer }
    }

    pub(super) fn save(&self, write: &mut Writer<'_>) {
        write.u32(self.number);
        write.u64(self.first);
        write.u64(self.size);
        write.hash(&self.window_root);
        write.hash(&self.lane_root);
        write.u8(match self.end {
            EpochEnd::Open => 0,
            EpochEnd::Closed => 1,
            EpochEnd::Cut => 2,
        });
    }

    pub(super) fn restore(read: &mut Fields<'_>) -> Result<Self, StateError> {
        Ok(Self {
            number: read.u32("number of a checkpoint")?,
            first: read.u64("first of a checkpoint")?,
            size: read.u64("size of a checkpoint")?,
            window_root: read.hash("window root")?,
            lane_root: read.hash("lane root")?,
            end: match read.u8("kind of a checkpoint")? {
                0 => EpochEnd::Open,
                1 => EpochEnd::Closed,
                2 => EpochEnd::Cut,
                _ => return Err(read.refuse("kind of a checkpoint")),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(number: u32, size: u64) -> Claim {
        let root = Hash::new(&[1; 16]).expect("16 bytes are a hash");
        Claim {
            number,
            first: 0,
            size,
            window_root: root,
            lane_root: root,
            end: EpochEnd::Open,
        }
    }

    #[test]
    fn of_two_claims_the_larger_counts_and_of_the_same_size_the_later() {
        let closed = |number, size| Claim {
            end: EpochEnd::Closed,
            ..claim(number, size)
        };
        for (one, other, expected) in [
            (claim(1, 5), claim(0, 6), claim(0, 6)),
            (claim(1, 5), claim(2, 5), claim(2, 5)),
            (closed(1, 5), claim(2, 5), closed(2, 5)),
            (closed(1, 5), claim(2, 6), claim(2, 6)),
        ] {
            assert_eq!(one.or_newer(&other), expected);
            assert_eq!(other.or_newer(&one), expected);
        }
    }
}
