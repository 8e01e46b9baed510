//! What every payload carries: who published it, its number and when, and a known filling behind.
//!
//! Invariants: a stamp takes exactly [`Stamp::LEN`] bytes, so the smallest payload of the
//! benchmarks is all stamp; a payload that was cut, lengthened or altered is told apart from one
//! that never existed, because length, check and filling must all agree. Deliberately absent:
//! cryptography. The check finds accidents, not forgers.

/// The first bytes of every payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// Which stream of messages it belongs to.
    pub(crate) flow: u32,
    /// The number of the message in its flow, from 0.
    pub(crate) sequence: u32,
    /// When it was to be sent, in nanoseconds since the run began. 48 bits, three days.
    pub(crate) time_ns: u64,
}

const TIME_BITS: u32 = 48;

impl Stamp {
    pub(crate) const LEN: usize = 16;

    fn to_bytes(self) -> [u8; Self::LEN] {
        let time = self.time_ns & ((1 << TIME_BITS) - 1);
        let head = u64::from(self.flow) | u64::from(self.sequence) << 32;
        let tail = time | u64::from(check(head, time)) << TIME_BITS;
        let mut bytes = [0; Self::LEN];
        let (first, second) = bytes.split_at_mut(8);
        first.copy_from_slice(&head.to_le_bytes());
        second.copy_from_slice(&tail.to_le_bytes());
        bytes
    }

    fn from_bytes(bytes: [u8; Self::LEN]) -> Option<Self> {
        let whole = u128::from_le_bytes(bytes);
        let (head, tail) = (low_64(whole), low_64(whole >> 64));
        let time_ns = tail & ((1 << TIME_BITS) - 1);
        let stamp = Self {
            flow: low_32(head),
            sequence: low_32(head >> 32),
            time_ns,
        };
        (u64::from(check(head, time_ns)) == tail >> TIME_BITS).then_some(stamp)
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the low half is what is asked for"
)]
const fn low_64(wide: u128) -> u64 {
    wide as u64
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the low half is what is asked for"
)]
const fn low_32(wide: u64) -> u32 {
    wide as u32
}

/// Sixteen bits that change whenever any bit of the stamp does, but for one accident in 65,536.
const fn check(head: u64, time: u64) -> u16 {
    let [.., low, high] = mix(head ^ time.rotate_left(17)).to_le_bytes();
    u16::from_le_bytes([low, high])
}

/// Its high bits depend on all bits of `number`.
const fn mix(number: u64) -> u64 {
    let mixed = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed ^ mixed >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9)
}

/// Writes and checks payloads of one length.
#[derive(Debug)]
pub(crate) struct Payloads {
    len: usize,
    /// Longer than any filling by `shifts`: each filling begins somewhere in this one table.
    filling: Vec<u8>,
    shifts: u32,
}

/// A prime, so that neighbouring flows never share a filling.
const SHIFTS: u32 = 251;
/// So many that in what a broker compresses together few fillings have anything in common.
const FRESH_SHIFTS: u32 = 1 << 20;

impl Payloads {
    /// All messages of a flow are filled alike. `len` is at least [`Stamp::LEN`]; shorter is made
    /// that long.
    pub(crate) fn new(len: usize) -> Self {
        Self::with_shifts(len, SHIFTS)
    }

    /// Each message is filled anew, so that a broker that compresses what it writes gains nothing
    /// that it would not with other people's messages.
    pub(crate) fn fresh(len: usize) -> Self {
        Self::with_shifts(len, FRESH_SHIFTS)
    }

    fn with_shifts(len: usize, shifts: u32) -> Self {
        let len = len.max(Stamp::LEN);
        let mut state = 0x2545_F491_4F6C_DD1D_u64;
        let filling = (0..len - Stamp::LEN + shifts as usize)
            .map(|_| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                let [.., byte] = state.to_le_bytes();
                byte
            })
            .collect();
        Self {
            len,
            filling,
            shifts,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    fn is_fresh(&self) -> bool {
        self.shifts == FRESH_SHIFTS
    }

    fn filling(&self, stamp: Stamp) -> &[u8] {
        let number = if self.is_fresh() {
            mix(u64::from(stamp.flow) | u64::from(stamp.sequence) << 32) >> 32
        } else {
            stamp.flow.into()
        };
        let shift = low_32(number) % self.shifts;
        &self.filling[shift as usize..][..self.len - Stamp::LEN]
    }

    /// Appends a whole payload.
    pub(crate) fn append(&self, stamp: Stamp, out: &mut Vec<u8>) {
        out.extend_from_slice(&stamp.to_bytes());
        out.extend_from_slice(self.filling(stamp));
    }

    /// Makes a payload of the same flow that of another message.
    pub(crate) fn restamp(&self, stamp: Stamp, payload: &mut [u8]) {
        if let Some((front, rest)) = payload.split_first_chunk_mut() {
            *front = stamp.to_bytes();
            let filling = self.filling(stamp);
            if self.is_fresh() && rest.len() >= filling.len() {
                rest[..filling.len()].copy_from_slice(filling);
            }
        }
    }

    /// The stamp, if every byte is as it was written.
    pub(crate) fn verify(&self, payload: &[u8]) -> Option<Stamp> {
        let (front, rest) = payload.split_first_chunk()?;
        let stamp = Stamp::from_bytes(*front)?;
        (payload.len() == self.len && rest == self.filling(stamp)).then_some(stamp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const STAMP: Stamp = Stamp {
        flow: 7,
        sequence: 4_000_000_000,
        time_ns: 123_456_789_012,
    };

    fn payload(len: usize) -> (Payloads, Vec<u8>) {
        let payloads = Payloads::new(len);
        let mut bytes = Vec::new();
        payloads.append(STAMP, &mut bytes);
        (payloads, bytes)
    }

    #[test]
    fn what_was_written_is_read_back() {
        for len in [0, 16, 17, 1024] {
            let (payloads, bytes) = payload(len);
            assert_eq!(bytes.len(), payloads.len());
            assert_eq!(payloads.verify(&bytes), Some(STAMP));
        }
    }

    #[test]
    fn restamping_keeps_the_filling() {
        let (payloads, mut bytes) = payload(64);
        let next = Stamp {
            sequence: 1,
            time_ns: 2,
            ..STAMP
        };
        payloads.restamp(next, &mut bytes);
        assert_eq!(payloads.verify(&bytes), Some(next));
    }

    #[test]
    fn a_fresh_filling_is_another_in_each_message_and_checked_as_well() {
        let payloads = Payloads::fresh(100);
        let mut bytes = Vec::new();
        payloads.append(STAMP, &mut bytes);
        let mut eights = std::collections::HashSet::new();
        let mut known = 0;
        for sequence in 0..1_000 {
            let stamp = Stamp { sequence, ..STAMP };
            payloads.restamp(stamp, &mut bytes);
            assert_eq!(payloads.verify(&bytes), Some(stamp));
            let filling = bytes[Stamp::LEN..].windows(8);
            known += filling
                .filter(|eight| !eights.insert(eight.to_vec()))
                .count();
        }
        assert!(known < 10_000, "{known} of 77000 have been there before");
        bytes[99] ^= 1;
        assert_eq!(payloads.verify(&bytes), None);
    }

    #[test]
    fn a_changed_length_is_corruption() {
        let (payloads, mut bytes) = payload(64);
        assert_eq!(payloads.verify(&bytes[..63]), None);
        bytes.push(0);
        assert_eq!(payloads.verify(&bytes), None);
        assert_eq!(payloads.verify(&[]), None);
    }

    #[test]
    fn every_single_flipped_bit_is_corruption() {
        let (payloads, bytes) = payload(40);
        for bit in 0..bytes.len() * 8 {
            let mut altered = bytes.clone();
            altered[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(payloads.verify(&altered), None, "bit {bit}");
        }
    }

    proptest! {
        #[test]
        fn stamps_survive_their_bytes(flow: u32, sequence: u32, time_ns in 0_u64..1 << TIME_BITS) {
            let stamp = Stamp { flow, sequence, time_ns };
            prop_assert_eq!(Stamp::from_bytes(stamp.to_bytes()), Some(stamp));
        }
    }
}
