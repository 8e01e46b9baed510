//! The hashes of every scheme, and the score of a node for a key.
//!
//! Invariants: everything here is integer arithmetic over XXH3-64 of bytes, big-endian, so that
//! every platform and every other implementation has the same numbers. `testdata/vectors.json`
//! fixes them; a change of any of them is a new format.

use xxhash_rust::xxh3::xxh3_64;

use crate::node::{Node, NodeId};

/// The hash of a key: XXH3-64 of the kind, a zero byte and the key. The kind keeps names of
/// different things apart: a client and a topic of one name are two keys.
pub fn key_hash(kind: &str, key: &[u8]) -> u64 {
    const INLINE: usize = 256;
    let length = kind.len() + 1 + key.len();
    let join = |buffer: &mut [u8]| {
        buffer[..kind.len()].copy_from_slice(kind.as_bytes());
        buffer[kind.len()] = 0;
        buffer[kind.len() + 1..length].copy_from_slice(key);
    };
    if length <= INLINE {
        let mut buffer = [0; INLINE];
        join(&mut buffer);
        xxh3_64(&buffer[..length])
    } else {
        let mut buffer = vec![0; length];
        join(&mut buffer);
        xxh3_64(&buffer)
    }
}

/// The hash of a node together with a number: XXH3-64 of both, big-endian. With the number of a
/// virtual node it is its place on the ring, with a key or a slot the draw of the node for it.
pub(crate) fn pair_hash(id: NodeId, number: u64) -> u64 {
    let both = (u128::from(id.0) << 64) | u128::from(number);
    xxh3_64(&both.to_be_bytes())
}

/// How far a node is from being the first choice for a number, in weighted rendezvous hashing: the
/// smallest score wins, and each node wins in proportion to its weight.
///
/// The textbook's score is -ln(u) / weight, with u the draw as a fraction. This one is the same
/// times a constant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scorer {
    id: NodeId,
    reciprocal: u64,
}

impl Scorer {
    pub(crate) fn new(node: &Node) -> Self {
        Self {
            id: node.id,
            reciprocal: (1 << 32) / u64::from(node.weight.get()),
        }
    }

    /// Also by id, so that no two nodes have the same.
    pub(crate) fn score(self, number: u64) -> (u64, NodeId) {
        let distance = negative_log2(pair_hash(self.id, number));
        let score = (u128::from(distance) * u128::from(self.reciprocal)) >> 8;
        let score = u64::try_from(score).expect("39 bits times 33 bits, less 8, fit in 64");
        (score, self.id)
    }
}

/// -log2((hash | 1) / 2^64) with 32 binary places, from a table of 256 steps and straight lines in
/// between. The error is below 2^-18 and the same for every node, so it moves no share by more than
/// a thousandth of itself.
fn negative_log2(hash: u64) -> u64 {
    let x = hash | 1;
    let zeros = x.leading_zeros();
    let mantissa = x << zeros;
    let step = ((mantissa >> 55) & 0xff) as usize;
    let within = (mantissa >> 31) & 0xff_ffff;
    let fraction = LOG2[step] + (((LOG2[step + 1] - LOG2[step]) * within) >> 24);
    (u64::from(zeros + 1) << 32) - fraction
}

/// log2(1 + i/256) with 32 binary places, digit by digit: squaring doubles a logarithm.
const LOG2: [u64; 257] = {
    let mut table = [1 << 32; 257];
    let mut i = 0;
    while i < 256 {
        let mut y = (256 + i as u128) << 55;
        let mut digits = 0;
        let mut digit = 0;
        while digit < 32 {
            y = (y * y) >> 63;
            let bit = y >> 64;
            digits = digits << 1 | bit as u64;
            y >>= bit;
            digit += 1;
        }
        table[i] = digits;
        i += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(
        clippy::cast_precision_loss,
        reason = "the error is above the last bits"
    )]
    fn the_logarithm_is_close_and_falls_with_the_hash() {
        let mut before = u64::MAX;
        for hash in (0..1 << 20).map(|i: u64| i << 44 | 0x5555) {
            let ours = negative_log2(hash);
            assert!(ours <= before, "{hash:x}");
            before = ours;
            let exact = 64.0 - ((hash | 1) as f64).log2();
            assert!(
                (ours as f64 / 2f64.powi(32) - exact).abs() < 4e-6,
                "{hash:x}"
            );
        }
        assert_eq!(negative_log2(0), 64 << 32);
        assert!(negative_log2(u64::MAX) > 0);
    }

    #[test]
    fn a_long_key_is_hashed_like_a_short_one() {
        for length in [0, 1, 253, 254, 255, 256, 1_000] {
            let key = vec![7; length];
            let whole = [b"c\0".as_slice(), &key].concat();
            assert_eq!(key_hash("c", &key), xxh3_64(&whole));
        }
    }
}
