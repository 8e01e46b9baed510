//! The algorithms a lane may name.
//!
//! Each is a [`Digest`]; [`Hasher`] is one of them chosen at run time. Whoever has the key of a
//! lane can make its tags, so a tag convinces those who share the key, not a third party.

use core::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Digest as _;
use xxhash_rust::xxh3;

use crate::{Algorithm, Digest, Hash, Tag, heritage::adler32};

/// 32 secret bytes that producer and receiver of a lane share.
#[derive(Clone)]
pub struct Key(pub [u8; 32]);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(secret)")
    }
}

/// One of the algorithms.
#[derive(Clone, Debug)]
pub enum Hasher {
    /// Algorithm 1.
    Xxh3(Xxh3),
    /// Algorithm 2.
    Blake3(Blake3),
    /// Algorithm 3.
    Sha256(Sha256),
    /// Algorithm 8.
    Heritage(Heritage),
}

/// The lane's algorithm has tags that need a key, and there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "algorithm {number} ({0:?}) needs the lane's key: configure it, or use algorithm 1, which is \
     against accidents only",
    number = *.0 as u8
)]
pub struct MissingKey(pub Algorithm);

impl Hasher {
    /// The algorithm with the lane's key; those without keys ignore it.
    pub fn new(algorithm: Algorithm, key: Option<&Key>) -> Result<Self, MissingKey> {
        let missing = MissingKey(algorithm);
        Ok(match algorithm {
            Algorithm::Xxh3 => Self::xxh3(),
            Algorithm::Blake3 => Self::blake3(key.ok_or(missing)?),
            Algorithm::Sha256 => Self::sha256(key.ok_or(missing)?),
            Algorithm::Heritage => Self::heritage(),
        })
    }

    /// Algorithm 1.
    pub const fn xxh3() -> Self {
        Self::Xxh3(Xxh3)
    }

    /// Algorithm 2.
    pub fn blake3(key: &Key) -> Self {
        Self::Blake3(Blake3::new(key))
    }

    /// Algorithm 3.
    pub fn sha256(key: &Key) -> Self {
        Self::Sha256(Sha256::new(key))
    }

    /// Algorithm 8.
    pub const fn heritage() -> Self {
        Self::Heritage(Heritage)
    }
}

macro_rules! each {
    ($hasher:expr, $digest:ident => $do:expr) => {
        match $hasher {
            Hasher::Xxh3($digest) => $do,
            Hasher::Blake3($digest) => $do,
            Hasher::Sha256($digest) => $do,
            Hasher::Heritage($digest) => $do,
        }
    };
}

impl Digest for Hasher {
    fn algorithm(&self) -> Algorithm {
        each!(self, digest => digest.algorithm())
    }

    fn leaf(&self, data: &[&[u8]]) -> Hash {
        each!(self, digest => digest.leaf(data))
    }

    fn node(&self, left: &Hash, right: &Hash) -> Hash {
        each!(self, digest => digest.node(left, right))
    }

    fn empty(&self) -> Hash {
        each!(self, digest => digest.empty())
    }

    fn tag(&self, data: &[&[u8]]) -> Tag {
        each!(self, digest => digest.tag(data))
    }
}

/// Algorithm 1: XXH3-128 in its canonical (big-endian) form. Leaves have seed 0 and the byte 00 in
/// front, nodes seed 1, tags seed 2.
#[derive(Clone, Copy, Debug, Default)]
pub struct Xxh3;

impl Xxh3 {
    const NODE_SEED: u64 = 1;
    const TAG_SEED: u64 = 2;

    #[inline]
    fn hash(seed: u64, prefix: &[u8], data: &[&[u8]]) -> [u8; 16] {
        let hash = |bytes: &[u8]| match seed {
            0 => xxh3::xxh3_128(bytes).to_be_bytes(),
            _ => xxh3::xxh3_128_with_seed(bytes, seed).to_be_bytes(),
        };
        gathered(prefix, data, hash).unwrap_or_else(|| Self::stream(seed, prefix, data))
    }

    #[cold]
    fn stream(seed: u64, prefix: &[u8], data: &[&[u8]]) -> [u8; 16] {
        let mut state = xxh3::Xxh3::with_seed(seed);
        state.update(prefix);
        for part in data {
            state.update(part);
        }
        state.digest128().to_be_bytes()
    }
}

impl Digest for Xxh3 {
    fn algorithm(&self) -> Algorithm {
        Algorithm::Xxh3
    }

    #[inline]
    fn leaf(&self, data: &[&[u8]]) -> Hash {
        Self::hash(0, &[0], data).into()
    }

    #[inline]
    fn node(&self, left: &Hash, right: &Hash) -> Hash {
        let mut pair = [0; 32];
        pair[..16].copy_from_slice(&left.padded()[..16]);
        pair[16..].copy_from_slice(&right.padded()[..16]);
        xxh3::xxh3_128_with_seed(&pair, Self::NODE_SEED)
            .to_be_bytes()
            .into()
    }

    fn empty(&self) -> Hash {
        Self::hash(0, &[], &[]).into()
    }

    fn tag(&self, data: &[&[u8]]) -> Tag {
        Tag(Self::hash(Self::TAG_SEED, &[], data))
    }
}

/// Algorithm 2: keyed BLAKE3, the first 16 bytes. Leaves use the lane's key and the byte 00 in
/// front; nodes and tags use keys derived from it, with the contexts `unbroken merkle-log v1 node`
/// and `unbroken merkle-log v1 tag`.
#[derive(Clone)]
pub struct Blake3 {
    /// Keys, each for what it is named after.
    leaf: [u8; 32],
    node: [u8; 32],
    tag: [u8; 32],
}

impl Blake3 {
    /// With the lane's key.
    pub fn new(key: &Key) -> Self {
        Self {
            leaf: key.0,
            node: blake3::derive_key("unbroken merkle-log v1 node", &key.0),
            tag: blake3::derive_key("unbroken merkle-log v1 tag", &key.0),
        }
    }

    fn hash(key: &[u8; 32], prefix: &[u8], data: &[&[u8]]) -> [u8; 16] {
        let hash = |bytes: &[u8]| first_16(blake3::keyed_hash(key, bytes).as_bytes());
        gathered(prefix, data, hash).unwrap_or_else(|| Self::stream(key, prefix, data))
    }

    #[cold]
    fn stream(key: &[u8; 32], prefix: &[u8], data: &[&[u8]]) -> [u8; 16] {
        let mut state = blake3::Hasher::new_keyed(key);
        state.update(prefix);
        for part in data {
            state.update(part);
        }
        first_16(state.finalize().as_bytes())
    }
}

impl fmt::Debug for Blake3 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Blake3(secret)")
    }
}

impl Digest for Blake3 {
    fn algorithm(&self) -> Algorithm {
        Algorithm::Blake3
    }

    fn leaf(&self, data: &[&[u8]]) -> Hash {
        Self::hash(&self.leaf, &[0], data).into()
    }

    fn node(&self, left: &Hash, right: &Hash) -> Hash {
        let mut pair = [0; 32];
        pair[..16].copy_from_slice(&left.padded()[..16]);
        pair[16..].copy_from_slice(&right.padded()[..16]);
        first_16(blake3::keyed_hash(&self.node, &pair).as_bytes()).into()
    }

    fn empty(&self) -> Hash {
        Self::hash(&self.leaf, &[], &[]).into()
    }

    fn tag(&self, data: &[&[u8]]) -> Tag {
        Tag(Self::hash(&self.tag, &[], data))
    }
}

/// Algorithm 3: SHA-256, whole, as in RFC 9162. Leaves and nodes have no key, so that anyone can
/// check a proof; tags are HMAC-SHA-256 under the lane's key, the first 16 bytes.
#[derive(Clone)]
pub struct Sha256 {
    mac: Hmac<sha2::Sha256>,
}

impl Sha256 {
    /// The state before the first block: FIPS 180-4, section 5.3.3.
    const INITIAL: [u32; 8] = [
        0x6a09_e667,
        0xbb67_ae85,
        0x3c6e_f372,
        0xa54f_f53a,
        0x510e_527f,
        0x9b05_688c,
        0x1f83_d9ab,
        0x5be0_cd19,
    ];

    /// With the lane's key.
    pub fn new(key: &Key) -> Self {
        // HMAC pads a key that is shorter than a block with zeros.
        let mut block = [0; 64];
        block[..32].copy_from_slice(&key.0);
        Self {
            mac: Hmac::new(&block.into()),
        }
    }
}

impl fmt::Debug for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sha256(secret)")
    }
}

impl Digest for Sha256 {
    fn algorithm(&self) -> Algorithm {
        Algorithm::Sha256
    }

    fn leaf(&self, data: &[&[u8]]) -> Hash {
        let mut state = sha2::Sha256::new();
        state.update([0]);
        for part in data {
            state.update(part);
        }
        <[u8; 32]>::from(state.finalize()).into()
    }

    fn node(&self, left: &Hash, right: &Hash) -> Hash {
        if left.width() + right.width() != 64 {
            let pair = [&[1], left.as_bytes(), right.as_bytes()].concat();
            return <[u8; 32]>::from(sha2::Sha256::digest(pair)).into();
        }
        // Padded by hand: the 65 bytes of every pair fill two blocks in the same way, and the
        // general form would find that out for each.
        let mut blocks = [[0; 64]; 2];
        let bytes = blocks.as_flattened_mut();
        bytes[0] = 1;
        bytes[1..33].copy_from_slice(left.padded());
        bytes[33..65].copy_from_slice(right.padded());
        bytes[65] = 0x80;
        bytes[120..].copy_from_slice(&(65_u64 * 8).to_be_bytes());
        let mut state = Self::INITIAL;
        sha2::block_api::compress256(&mut state, &blocks);
        let mut node = [0; 32];
        for (bytes, word) in node.chunks_exact_mut(4).zip(state) {
            bytes.copy_from_slice(&word.to_be_bytes());
        }
        node.into()
    }

    fn empty(&self) -> Hash {
        <[u8; 32]>::from(sha2::Sha256::digest([])).into()
    }

    fn tag(&self, data: &[&[u8]]) -> Tag {
        let mut mac = self.mac.clone();
        for part in data {
            mac.update(part);
        }
        Tag(first_16(&mac.finalize().into_bytes().into()))
    }
}

/// Algorithm 8, for interchange: a leaf is a SHA-1 (20 bytes), whose signature is its 40 characters
/// of lower-case hexadecimal text; a node is the Adler-32 of its children's signatures, 8 bytes
/// big-endian; tags are those of algorithm 1.
///
/// Adler-32 misses about one in five hundred swaps of two neighbours, so a lane that must notice
/// reordering by its root uses another algorithm.
#[derive(Clone, Copy, Debug, Default)]
pub struct Heritage;

impl Digest for Heritage {
    fn algorithm(&self) -> Algorithm {
        Algorithm::Heritage
    }

    fn leaf(&self, data: &[&[u8]]) -> Hash {
        let mut state = sha1::Sha1::new();
        state.update([0]);
        for part in data {
            state.update(part);
        }
        Hash::new(&state.finalize()).expect("a SHA-1 has 20 bytes")
    }

    fn node(&self, left: &Hash, right: &Hash) -> Hash {
        let (mut left_text, mut right_text) = ([0; 40], [0; 40]);
        let left = signature(left, &mut left_text);
        let right = signature(right, &mut right_text);
        adler_hash(adler32(left, right))
    }

    fn empty(&self) -> Hash {
        adler_hash(adler32(&[], &[]))
    }

    fn tag(&self, data: &[&[u8]]) -> Tag {
        Xxh3.tag(data)
    }
}

fn adler_hash(adler: u32) -> Hash {
    Hash::new(&u64::from(adler).to_be_bytes()).expect("a u64 has 8 bytes")
}

/// A leaf's hexadecimal text, written to `text`, or a node's own bytes.
fn signature<'a>(hash: &'a Hash, text: &'a mut [u8; 40]) -> &'a [u8] {
    if hash.width() != Algorithm::Heritage.leaf_width() {
        return hash.as_bytes();
    }
    for (byte, digits) in hash.as_bytes().iter().zip(text.chunks_exact_mut(2)) {
        digits[0] = b"0123456789abcdef"[usize::from(byte >> 4)];
        digits[1] = b"0123456789abcdef"[usize::from(byte & 15)];
    }
    text
}

/// What `hash` makes of all parts in one piece, because the streaming forms of short inputs cost
/// more than the copy; `None` for more than 1,024 bytes. Clearing the buffer counts, so the usual
/// lengths have one of their own.
#[inline]
fn gathered<T>(prefix: &[u8], data: &[&[u8]], hash: impl Fn(&[u8]) -> T) -> Option<T> {
    let length = prefix.len() + data.iter().map(|part| part.len()).sum::<usize>();
    Some(match length {
        0..=128 => hash(gather(&mut [0; 128], prefix, data)),
        129..=320 => hash(gather(&mut [0; 320], prefix, data)),
        321..=1_024 => hash(gather(&mut [0; 1_024], prefix, data)),
        _ => return None,
    })
}

/// The parts at the front of a buffer with room for all.
#[inline]
fn gather<'a>(buffer: &'a mut [u8], prefix: &[u8], data: &[&[u8]]) -> &'a [u8] {
    let mut end = 0;
    for byte in prefix {
        buffer[end] = *byte;
        end += 1;
    }
    for part in data {
        buffer[end..end + part.len()].copy_from_slice(part);
        end += part.len();
    }
    &buffer[..end]
}

fn first_16(hash: &[u8; 32]) -> [u8; 16] {
    *hash.first_chunk().expect("32 bytes begin with 16")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> [Hasher; 4] {
        Algorithm::ALL
            .map(|algorithm| Hasher::new(algorithm, Some(&Key([3; 32]))).expect("there is a key"))
    }

    #[test]
    fn leaves_nodes_empty_and_tags_differ_under_every_algorithm() {
        for hasher in all() {
            let (a, b) = (hasher.leaf(&[b"a"]), hasher.leaf(&[b"b"]));
            let pair = [a.as_bytes(), b.as_bytes()];
            let node = hasher.node(&a, &b);
            assert_eq!(a.width(), hasher.algorithm().leaf_width());
            assert_eq!(node.width(), hasher.algorithm().width_over(2));
            assert_eq!(hasher.empty().width(), hasher.algorithm().width_over(0));
            assert_ne!(a, b);
            assert_ne!(node, hasher.node(&b, &a));
            assert_ne!(node, hasher.leaf(&pair));
            assert_ne!(hasher.empty(), hasher.leaf(&[]));
            let tag = hasher.tag(&pair);
            assert_ne!(&tag.0[..8], &node.as_bytes()[..8]);
            assert_ne!(&tag.0[..8], &hasher.leaf(&pair).as_bytes()[..8]);
        }
    }

    #[test]
    fn parts_are_hashed_as_if_they_were_one_at_every_length() {
        let data: Vec<u8> = (0..3000_u32).map(|i| i.to_le_bytes()[0]).collect();
        for hasher in all() {
            for length in [0, 1, 200, 1022, 1023, 1024, 1025, 3000] {
                let whole = &data[..length];
                let (a, b) = whole.split_at(length / 3);
                assert_eq!(hasher.leaf(&[a, b]), hasher.leaf(&[whole]), "{length}");
                assert_eq!(hasher.tag(&[a, &[], b]), hasher.tag(&[whole]), "{length}");
            }
        }
        // Against the library's own form of one call, on both sides of the border.
        for length in [10, 1023, 1024] {
            let mut input = vec![0];
            input.extend_from_slice(&data[..length]);
            let expect = xxh3::xxh3_128(&input).to_be_bytes();
            assert_eq!(Xxh3.leaf(&[&data[..length]]), expect.into());
        }
    }

    #[test]
    fn a_key_changes_what_it_must() {
        let (one, other) = (Key([1; 32]), Key([2; 32]));
        let (a, b) = (Hasher::blake3(&one), Hasher::blake3(&other));
        let leaf = a.leaf(&[b"x"]);
        assert_ne!(leaf, b.leaf(&[b"x"]));
        assert_ne!(a.node(&leaf, &leaf), b.node(&leaf, &leaf));
        assert_ne!(a.tag(&[b"x"]), b.tag(&[b"x"]));
        let (a, b) = (Hasher::sha256(&one), Hasher::sha256(&other));
        assert_eq!(a.leaf(&[b"x"]), b.leaf(&[b"x"]));
        assert_ne!(a.tag(&[b"x"]), b.tag(&[b"x"]));
        let missing = Hasher::new(Algorithm::Sha256, None).expect_err("there is no key");
        assert!(missing.to_string().starts_with("algorithm 3 (Sha256)"));
        assert!(!format!("{a:?}{:?}{one:?}", Hasher::blake3(&one)).contains('1'));
    }

    #[test]
    fn hmac_is_that_of_rfc_4231() {
        // Test case 2 pads its key with zeros, which is what a short key means to HMAC.
        let mut key = [0; 32];
        key[..4].copy_from_slice(b"Jefe");
        let tag = Sha256::new(&Key(key)).tag(&[b"what do ya want ", b"for nothing?"]);
        assert_eq!(tag.0[..4], [0x5b, 0xdc, 0xc1, 0x46]);
        assert_eq!(tag.0[12..], [0x08, 0x95, 0x75, 0xc7]);
    }

    #[test]
    fn sha_256_is_the_tree_of_rfc_9162() {
        let hasher = Hasher::sha256(&Key([0; 32]));
        let expect = "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d";
        assert_eq!(hasher.leaf(&[]).to_string(), expect);
        for seed in 0..50_u8 {
            let (left, right) = (hasher.leaf(&[&[seed]]), hasher.leaf(&[&[seed, 1]]));
            let mut pair = vec![1];
            pair.extend_from_slice(left.as_bytes());
            pair.extend_from_slice(right.as_bytes());
            let expect: [u8; 32] = sha2::Sha256::digest(&pair).into();
            assert_eq!(hasher.node(&left, &right), expect.into());
        }
    }

    #[test]
    fn heritage_nodes_hash_the_text_of_leaves() {
        let leaf = |hex: &str| {
            let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).expect("it is hex");
            Hash::new(&(0..20).map(|i| byte(2 * i)).collect::<Vec<_>>()).expect("20 bytes")
        };
        let left = leaf("a3220d13095c020b1c2299f66fe9c9e36037a75b");
        let right = leaf("99f3f31046d1bdeba4c2db0f34668d5d714626c6");
        assert_eq!(Heritage.node(&left, &right).to_string(), "00000000520f154b");
    }
}
