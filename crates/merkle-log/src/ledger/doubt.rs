//! What there is to know of a window only when something was wrong with it, or told of it.
//!
//! **Invariant.** A window of which nothing is known but its leaves has none of this, and pays for
//! none of it.

use std::ops::{Deref, DerefMut, Range};

use super::prefix::Sum;
use super::verdict::{Account, State};
use crate::{Detail, Hash};

/// What is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Doubts {
    pub(super) dropped: Vec<u16>,
    pub(super) forged: Vec<u16>,
    /// Second copies that fit and differ.
    pub(super) seconds: Vec<(u16, Hash)>,
    /// What a checkpoint told of its leaves one by one.
    pub(super) detail: Detail,
    pub(super) told: Option<(State, Account)>,
    /// Whole, and its root is not the producer's.
    pub(super) differs: bool,
    /// Of the leaves that were folded.
    pub(super) sums: Vec<Sum>,
    pub(super) groups: Vec<Hash>,
    /// One bit for each group whose leaves are to be compared.
    pub(super) open_groups: u32,
}

/// What is known, if anything is: reading what is not there gives the empty one, writing makes
/// room.
#[derive(Clone, Debug, Default)]
pub(super) struct Doubt(Option<Box<Doubts>>);

impl Deref for Doubt {
    type Target = Doubts;

    #[inline]
    fn deref(&self) -> &Doubts {
        self.0.as_deref().unwrap_or(&NO_DOUBTS)
    }
}

impl DerefMut for Doubt {
    fn deref_mut(&mut self) -> &mut Doubts {
        self.0.get_or_insert_default()
    }
}

impl Doubt {
    /// What is known, if anything is.
    pub(super) fn get_mut(&mut self) -> Option<&mut Doubts> {
        self.0.as_deref_mut()
    }

    /// Bytes on the heap.
    pub(super) fn memory_bytes(&self) -> usize {
        let Some(doubts) = &self.0 else {
            return 0;
        };
        let detail = match &doubts.detail {
            Detail::None => 0,
            Detail::Fingerprints(prints) => prints.capacity() * 4,
            Detail::Leaves(leaves) => leaves.capacity() * size_of::<Hash>(),
        };
        size_of::<Doubts>()
            + (doubts.dropped.capacity() + doubts.forged.capacity()) * 2
            + doubts.seconds.capacity() * size_of::<(u16, Hash)>()
            + doubts.sums.capacity() * size_of::<Sum>()
            + doubts.groups.capacity() * size_of::<Hash>()
            + detail
    }
}

impl From<Doubts> for Doubt {
    fn from(doubts: Doubts) -> Self {
        Self((doubts != NO_DOUBTS).then(|| Box::new(doubts)))
    }
}

impl PartialEq for Doubt {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Doubt {}

static NO_DOUBTS: Doubts = Doubts {
    dropped: Vec::new(),
    forged: Vec::new(),
    seconds: Vec::new(),
    detail: Detail::None,
    told: None,
    differs: false,
    sums: Vec::new(),
    groups: Vec::new(),
    open_groups: 0,
};

impl Doubts {
    /// What came or was declared in these slots is forged.
    pub(super) fn forge(&mut self, slots: Range<u16>) {
        self.dropped.retain(|slot| !slots.contains(slot));
        self.forged.extend(slots);
    }

    /// The sums stay: leaves that differ may be asked for again.
    pub(super) fn forget_descent(&mut self) {
        self.differs = false;
        self.groups = Vec::new();
        self.open_groups = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(byte: u8) -> Hash {
        Hash::new(&[byte; 16]).expect("16 bytes are a hash")
    }

    fn doubts() -> Doubts {
        Doubts {
            dropped: Vec::with_capacity(3),
            forged: Vec::with_capacity(5),
            seconds: Vec::with_capacity(7),
            detail: Detail::None,
            told: None,
            differs: true,
            sums: Vec::with_capacity(11),
            groups: vec![hash(1); 13],
            open_groups: 6,
        }
    }

    #[test]
    fn memory_is_counted_and_what_knows_nothing_takes_none() {
        assert_eq!(Doubt::from(Doubts::default()).memory_bytes(), 0);
        let without = size_of::<Doubts>()
            + (3 + 5) * 2
            + 7 * size_of::<(u16, Hash)>()
            + 11 * size_of::<Sum>()
            + 13 * size_of::<Hash>();
        assert_eq!(Doubt::from(doubts()).memory_bytes(), without);
        for (detail, bytes) in [
            (Detail::Fingerprints(Vec::with_capacity(17)), 17 * 4),
            (
                Detail::Leaves(Vec::with_capacity(19)),
                19 * size_of::<Hash>(),
            ),
        ] {
            let doubt = Doubt::from(Doubts { detail, ..doubts() });
            assert_eq!(doubt.memory_bytes(), without + bytes);
        }
    }

    #[test]
    fn a_descent_is_forgotten_and_what_is_known_of_leaves_is_not() {
        let mut doubt = Doubt::default();
        assert_eq!(doubt.get_mut(), None);
        *doubt = doubts();
        doubt.dropped.push(4);
        assert_ne!(doubt, Doubt::default());
        doubt
            .get_mut()
            .expect("it knows something")
            .forget_descent();
        let expect = Doubts {
            dropped: vec![4],
            ..Doubts::default()
        };
        assert_eq!(doubt, Doubt::from(expect));
    }
}
