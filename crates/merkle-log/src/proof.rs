//! Inclusion and consistency proofs of RFC 9162, sections 2.1.3 and 2.1.4.
//!
//! Which subtrees a proof consists of follows from its two numbers alone. One list of them serves
//! to make, read and check a proof, so a proof with a hash too many, too few or of another width
//! is refused before anything is hashed.
//!
//! What a proof does not say: an inclusion proof binds the index and the root, but the size only as
//! far as the shape of the path depends on it. Take the size from where the root comes from.

use crate::{Algorithm, Digest, Hash, Tree, limits::MAX_SIZE, reader::Reader};

/// That a leaf is in a tree, at its index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InclusionProof {
    /// The leaf's index, below `size`.
    pub index: u64,
    /// Leaves of the tree, at most 2^63.
    pub size: u64,
    /// Siblings on the way from the leaf to the root.
    pub hashes: Vec<Hash>,
}

/// That a tree is a prefix of a later one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsistencyProof {
    /// Leaves of the earlier tree, at least 1.
    pub from: u64,
    /// Leaves of the later tree, at least `from`, at most 2^63.
    pub to: u64,
    /// The nodes that both roots can be made from, from the lowest up.
    pub hashes: Vec<Hash>,
}

/// Why a proof proves nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProofError {
    /// The numbers make no sense together.
    #[error(
        "no proof for {0} of {1}: the first is in the second's tree, which has up to 2^63 leaves"
    )]
    Bounds(u64, u64),
    /// Too few or too many hashes.
    #[error("a proof of these numbers has {expected} hashes, this one has {found}")]
    Count {
        /// What the numbers call for.
        expected: usize,
        /// What there is.
        found: usize,
    },
    /// The bytes are not as long as the numbers say.
    #[error("a proof of these numbers takes {expected} bytes, there are {found}")]
    Length {
        /// What the numbers call for.
        expected: usize,
        /// What there is.
        found: usize,
    },
    /// A leaf, root or hash of another algorithm.
    #[error("a hash is not as wide as the algorithm makes it at its place")]
    Width,
    /// The hashes do not lead to the root.
    #[error("the proof leads to another root: leaf, root or proof is not what it is said to be")]
    Root,
}

impl Tree {
    /// Proves leaf `index` to whoever has the root of the first `size` leaves. `None` if there are
    /// fewer, or the leaf is not among them.
    pub fn prove_inclusion(
        &self,
        digest: &impl Digest,
        index: u64,
        size: u64,
    ) -> Option<InclusionProof> {
        let (_, path) = inclusion_path(index, size).ok()?;
        let hashes = self.hashes_of(digest, &path)?;
        Some(InclusionProof {
            index,
            size,
            hashes,
        })
    }

    /// Proves that the first `from` leaves have not changed since, to whoever has their root and
    /// that of the first `to`. `None` if there are fewer, or 0 = `from` or `from` > `to`.
    pub fn prove_consistency(
        &self,
        digest: &impl Digest,
        from: u64,
        to: u64,
    ) -> Option<ConsistencyProof> {
        let (start, path) = consistency_path(from, to).ok()?;
        let nodes: Vec<_> = start.in_proof().into_iter().chain(path).collect();
        let hashes = self.hashes_of(digest, &nodes)?;
        Some(ConsistencyProof { from, to, hashes })
    }

    fn hashes_of(&self, digest: &impl Digest, spans: &[Span]) -> Option<Vec<Hash>> {
        let root = |span: &Span| self.window_root(digest, span.begin, span.end);
        spans.iter().map(root).collect()
    }
}

impl InclusionProof {
    /// Whether `leaf` is in the tree with this `root`, at the proof's index.
    pub fn verify(&self, digest: &impl Digest, leaf: Hash, root: Hash) -> Result<(), ProofError> {
        let algorithm = digest.algorithm();
        let (start, path) = inclusion_path(self.index, self.size)?;
        check_widths(algorithm, &path, &self.hashes)?;
        check_width(leaf, algorithm.leaf_width())?;
        check_width(root, algorithm.width_over(self.size))?;
        let steps = path.iter().zip(&self.hashes);
        let found = steps.fold(leaf, |node, (sibling, hash)| {
            if sibling.begin < start.begin {
                digest.node(hash, &node)
            } else {
                digest.node(&node, hash)
            }
        });
        same(found, root)
    }

    /// Writes index and size (8 bytes each, big-endian), then the hashes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        encode(self.index, self.size, &self.hashes, out);
    }

    /// Reads what [`InclusionProof::encode`] writes, and nothing else.
    pub fn parse(algorithm: Algorithm, bytes: &[u8]) -> Result<Self, ProofError> {
        let (index, size, mut rest) = parse_numbers(bytes)?;
        let (_, path) = inclusion_path(index, size)?;
        let hashes = parse_hashes(algorithm, &path, &mut rest, bytes.len())?;
        Ok(Self {
            index,
            size,
            hashes,
        })
    }
}

impl ConsistencyProof {
    /// Whether the tree with root `new` begins with the leaves of the tree with root `old`.
    pub fn verify(&self, digest: &impl Digest, old: Hash, new: Hash) -> Result<(), ProofError> {
        let algorithm = digest.algorithm();
        let (start, path) = consistency_path(self.from, self.to)?;
        let nodes: Vec<_> = start.in_proof().into_iter().chain(path.clone()).collect();
        check_widths(algorithm, &nodes, &self.hashes)?;
        check_width(old, algorithm.width_over(self.from))?;
        check_width(new, algorithm.width_over(self.to))?;
        let (first, siblings) = match self.hashes.split_first() {
            Some((first, rest)) if start.in_proof().is_some() => (*first, rest),
            _ => (old, self.hashes.as_slice()),
        };
        let (mut found_old, mut found_new) = (first, first);
        for (sibling, hash) in path.iter().zip(siblings) {
            if sibling.begin < start.begin {
                found_old = digest.node(hash, &found_old);
                found_new = digest.node(hash, &found_new);
            } else {
                found_new = digest.node(&found_new, hash);
            }
        }
        same(found_old, old)?;
        same(found_new, new)
    }

    /// Writes both sizes (8 bytes each, big-endian), then the hashes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        encode(self.from, self.to, &self.hashes, out);
    }

    /// Reads what [`ConsistencyProof::encode`] writes, and nothing else.
    pub fn parse(algorithm: Algorithm, bytes: &[u8]) -> Result<Self, ProofError> {
        let (from, to, mut rest) = parse_numbers(bytes)?;
        let (start, path) = consistency_path(from, to)?;
        let nodes: Vec<_> = start.in_proof().into_iter().chain(path).collect();
        let hashes = parse_hashes(algorithm, &nodes, &mut rest, bytes.len())?;
        Ok(Self { from, to, hashes })
    }
}

/// The leaves [begin, end) of a subtree; never empty.
#[derive(Clone, Copy, Debug)]
struct Span {
    begin: u64,
    end: u64,
}

impl Span {
    const fn len(self) -> u64 {
        self.end - self.begin
    }

    /// The two halves as RFC 9162 splits a tree: the left one is the largest power of two that is
    /// less than the whole. `None` for a leaf.
    fn halves(self) -> Option<(Self, Self)> {
        let middle = self.begin + (1 << (self.len() - 1).checked_ilog2()?);
        let (begin, end) = (self.begin, self.end);
        Some((Self { begin, end: middle }, Self { begin: middle, end }))
    }

    /// The lowest node of a consistency proof, unless it is the earlier tree itself, whose root the
    /// verifier has.
    const fn in_proof(self) -> Option<Self> {
        if self.begin == 0 { None } else { Some(self) }
    }
}

/// The leaf, and the siblings on its way to the root, from the lowest up.
fn inclusion_path(index: u64, size: u64) -> Result<(Span, Vec<Span>), ProofError> {
    if index >= size || size > MAX_SIZE {
        return Err(ProofError::Bounds(index, size));
    }
    Ok(path_to(
        size,
        |left, _| index < left.end,
        |node| node.len() == 1,
    ))
}

/// The node that ends where the earlier tree ended, and the siblings on its way to the later root,
/// from the lowest up.
fn consistency_path(from: u64, to: u64) -> Result<(Span, Vec<Span>), ProofError> {
    if from == 0 || from > to || to > MAX_SIZE {
        return Err(ProofError::Bounds(from, to));
    }
    Ok(path_to(
        to,
        |left, _| from <= left.end,
        |node| node.end == from,
    ))
}

/// Goes down from the root of `size` leaves until it `is_there`.
fn path_to(
    size: u64,
    goes_left: impl Fn(Span, Span) -> bool,
    is_there: impl Fn(Span) -> bool,
) -> (Span, Vec<Span>) {
    let mut node = Span {
        begin: 0,
        end: size,
    };
    let mut siblings = Vec::new();
    while !is_there(node) {
        let Some((left, right)) = node.halves() else {
            break;
        };
        let (next, sibling) = if goes_left(left, right) {
            (left, right)
        } else {
            (right, left)
        };
        siblings.push(sibling);
        node = next;
    }
    siblings.reverse();
    (node, siblings)
}

fn check_widths(algorithm: Algorithm, spans: &[Span], hashes: &[Hash]) -> Result<(), ProofError> {
    let (expected, found) = (spans.len(), hashes.len());
    if expected != found {
        return Err(ProofError::Count { expected, found });
    }
    spans
        .iter()
        .zip(hashes)
        .try_for_each(|(span, hash)| check_width(*hash, algorithm.width_over(span.len())))
}

fn check_width(hash: Hash, width: usize) -> Result<(), ProofError> {
    if hash.width() == width {
        return Ok(());
    }
    Err(ProofError::Width)
}

fn same(found: Hash, expected: Hash) -> Result<(), ProofError> {
    if found == expected {
        return Ok(());
    }
    Err(ProofError::Root)
}

fn encode(first: u64, second: u64, hashes: &[Hash], out: &mut Vec<u8>) {
    out.extend_from_slice(&first.to_be_bytes());
    out.extend_from_slice(&second.to_be_bytes());
    for hash in hashes {
        out.extend_from_slice(hash.as_bytes());
    }
}

fn parse_numbers(bytes: &[u8]) -> Result<(u64, u64, Reader<'_>), ProofError> {
    let short = ProofError::Length {
        expected: 16,
        found: bytes.len(),
    };
    let mut reader = Reader::new(bytes);
    let first = reader.u64().ok_or(short)?;
    let second = reader.u64().ok_or(short)?;
    Ok((first, second, reader))
}

fn parse_hashes(
    algorithm: Algorithm,
    spans: &[Span],
    reader: &mut Reader<'_>,
    found: usize,
) -> Result<Vec<Hash>, ProofError> {
    let width = |span: &Span| algorithm.width_over(span.len());
    let expected = 16 + spans.iter().map(width).sum::<usize>();
    if found != expected {
        return Err(ProofError::Length { expected, found });
    }
    let hash = |span| reader.bytes(width(span)).and_then(Hash::new);
    Ok(spans.iter().map_while(hash).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Hasher, Key};

    #[test]
    fn every_proof_of_small_trees_holds_and_is_read_back_under_every_algorithm() {
        for algorithm in Algorithm::ALL {
            let hasher = Hasher::new(algorithm, Some(&Key([1; 32]))).expect("there is a key");
            let mut tree = Tree::new();
            for size in 1..=20_u64 {
                tree.append(&hasher, hasher.leaf(&[&size.to_be_bytes()]));
                let root = tree.root(&hasher);
                let mut bytes = Vec::new();
                for index in 0..size {
                    let proof = tree.prove_inclusion(&hasher, index, size);
                    let proof = proof.expect("the leaf is there");
                    let leaf = tree.leaf(index).expect("the leaf is there");
                    assert_eq!(proof.verify(&hasher, leaf, root), Ok(()), "{index} {size}");
                    bytes.clear();
                    proof.encode(&mut bytes);
                    assert_eq!(InclusionProof::parse(algorithm, &bytes), Ok(proof));

                    let from = index + 1;
                    let proof = tree.prove_consistency(&hasher, from, size);
                    let proof = proof.expect("the prefix is there");
                    let old = tree.root_at(&hasher, from).expect("the prefix is there");
                    assert_eq!(proof.verify(&hasher, old, root), Ok(()), "{from} {size}");
                    bytes.clear();
                    proof.encode(&mut bytes);
                    assert_eq!(ConsistencyProof::parse(algorithm, &bytes), Ok(proof));
                    bytes.push(0);
                    assert!(ConsistencyProof::parse(algorithm, &bytes).is_err());
                    bytes.truncate(bytes.len() - 2);
                    assert!(ConsistencyProof::parse(algorithm, &bytes).is_err());
                }
            }
        }
    }

    #[test]
    fn numbers_that_make_no_sense_are_refused() {
        let hasher = Hasher::xxh3();
        let mut tree = Tree::new();
        tree.append(&hasher, hasher.leaf(&[b"x"]));
        assert_eq!(tree.prove_inclusion(&hasher, 1, 1), None);
        assert_eq!(tree.prove_inclusion(&hasher, 0, 2), None);
        assert_eq!(tree.prove_consistency(&hasher, 0, 1), None);
        assert_eq!(tree.prove_consistency(&hasher, 1, 2), None);
        let root = tree.root(&hasher);
        let hashes = Vec::new();
        for (from, to) in [(0, 0), (0, 1), (2, 1), (1, u64::MAX), (u64::MAX, u64::MAX)] {
            let hashes = hashes.clone();
            let proof = ConsistencyProof { from, to, hashes };
            let refused = proof.verify(&hasher, root, root);
            assert_eq!(refused, Err(ProofError::Bounds(from, to)));
        }
        for (index, size) in [(0, 0), (1, 1), (0, u64::MAX)] {
            let hashes = hashes.clone();
            let proof = InclusionProof {
                index,
                size,
                hashes,
            };
            let refused = proof.verify(&hasher, root, root);
            assert_eq!(refused, Err(ProofError::Bounds(index, size)));
        }
    }
}
