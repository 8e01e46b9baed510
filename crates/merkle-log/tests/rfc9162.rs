//! Roots and proofs against the reference vectors of RFC 6962 and 9162 and against another
//! implementation; and that a proof which was changed in any way is refused.

mod hex;

use ct_merkle::mem_backed_tree::MemoryBackedTree;
use proptest::prelude::*;
use serde::Deserialize;
use sha1::Digest as _;
use unbroken_merkle_log::{
    ConsistencyProof, Digest, Hash, InclusionProof, Key, ProofError, Sha256, Tree,
};

#[derive(Deserialize)]
struct Vectors {
    empty_root: String,
    single_hashes: Vec<Single>,
    reference_leaves_hex: Vec<String>,
    reference_leaf_hashes: Vec<String>,
    roots: Vec<Root>,
    inclusion: Vec<Inclusion>,
    consistency: Vec<Consistency>,
    event_roots: Vec<Root>,
    event_inclusion: Vec<Inclusion>,
    event_consistency: Vec<Consistency>,
}

#[derive(Deserialize)]
struct Single {
    hex: String,
}

#[derive(Deserialize)]
struct Root {
    size: u64,
    root: String,
}

#[derive(Deserialize)]
struct Inclusion {
    index: u64,
    size: u64,
    proof: Vec<String>,
}

#[derive(Deserialize)]
struct Consistency {
    from: u64,
    to: u64,
    proof: Vec<String>,
}

fn vectors() -> Vectors {
    serde_json::from_str(include_str!("../testdata/rfc6962.json")).expect("the data is whole")
}

fn hash(text: &str) -> Hash {
    Hash::new(&hex::bytes(text)).expect("a hash of the data has 32 bytes")
}

fn hashes(texts: &[String]) -> Vec<Hash> {
    texts.iter().map(|text| hash(text)).collect()
}

fn sha256() -> Sha256 {
    Sha256::new(&Key([0; 32])) // the key is for tags, which these trees do not have
}

fn tree(leaves: impl IntoIterator<Item = Vec<u8>>) -> Tree {
    let mut tree = Tree::new();
    for leaf in leaves {
        tree.append(&sha256(), sha256().leaf(&[&leaf]));
    }
    tree
}

fn reference_tree(vectors: &Vectors) -> Tree {
    tree(
        vectors
            .reference_leaves_hex
            .iter()
            .map(|leaf| hex::bytes(leaf)),
    )
}

fn event_tree() -> Tree {
    tree((0..1000).map(|i| sha1::Sha1::digest(format!("event-{i}")).to_vec()))
}

#[test]
fn single_hashes_and_leaves_are_those_of_the_reference() {
    let vectors = vectors();
    let expect: Vec<_> = vectors
        .single_hashes
        .iter()
        .map(|it| hash(&it.hex))
        .collect();
    let part = |text: &[u8]| Hash::new(text).expect("4 bytes");
    let node = sha256().node(&part(b"N123"), &part(b"N456"));
    let found = [sha256().leaf(&[]), sha256().leaf(&[b"L123456"]), node];
    assert_eq!(found.as_slice(), expect);
    assert_eq!(sha256().empty(), hash(&vectors.empty_root));
    let leaves = vectors.reference_leaves_hex.iter();
    let leaves: Vec<_> = leaves
        .map(|leaf| sha256().leaf(&[&hex::bytes(leaf)]))
        .collect();
    assert_eq!(leaves, hashes(&vectors.reference_leaf_hashes));
}

#[test]
fn roots_are_those_of_the_reference() {
    let vectors = vectors();
    for (tree, roots) in [
        (reference_tree(&vectors), &vectors.roots),
        (event_tree(), &vectors.event_roots),
    ] {
        for Root { size, root } in roots {
            assert_eq!(tree.root_at(&sha256(), *size), Some(hash(root)), "{size}");
        }
    }
    assert_eq!((vectors.roots.len(), vectors.event_roots.len()), (9, 14));
}

#[test]
fn inclusion_proofs_are_those_of_the_reference_and_no_others_hold() {
    let vectors = vectors();
    let mut refused = 0;
    for (tree, proofs) in [
        (reference_tree(&vectors), &vectors.inclusion),
        (event_tree(), &vectors.event_inclusion),
    ] {
        for Inclusion { index, size, proof } in proofs {
            let (index, size) = (*index, *size);
            let made = tree.prove_inclusion(&sha256(), index, size);
            let made = made.expect("the leaf is there");
            assert_eq!(made.hashes, hashes(proof), "{index} of {size}");
            let leaf = tree.leaf(index).expect("the leaf is there");
            let root = tree.root_at(&sha256(), size).expect("the prefix is there");
            assert_eq!(made.verify(&sha256(), leaf, root), Ok(()));
            for (what, bad, leaf, root) in spoilt_inclusion(&made, leaf, root) {
                let answer = bad.verify(&sha256(), leaf, root);
                assert!(answer.is_err(), "{index} of {size}: {what} passes");
                refused += 1;
            }
        }
    }
    assert_eq!(
        (vectors.inclusion.len(), vectors.event_inclusion.len()),
        (36, 8)
    );
    assert!(refused > 44 * 15, "{refused}");
}

#[test]
fn consistency_proofs_are_those_of_the_reference_and_no_others_hold() {
    let vectors = vectors();
    let mut refused = 0;
    for (tree, proofs) in [
        (reference_tree(&vectors), &vectors.consistency),
        (event_tree(), &vectors.event_consistency),
    ] {
        for Consistency { from, to, proof } in proofs {
            let (from, to) = (*from, *to);
            let made = tree.prove_consistency(&sha256(), from, to);
            let made = made.expect("the prefix is there");
            assert_eq!(made.hashes, hashes(proof), "{from} to {to}");
            let old = tree.root_at(&sha256(), from).expect("the prefix is there");
            let new = tree.root_at(&sha256(), to).expect("the prefix is there");
            assert_eq!(made.verify(&sha256(), old, new), Ok(()));
            for (what, bad, old, new) in spoilt_consistency(&made, old, new) {
                let answer = bad.verify(&sha256(), old, new);
                assert!(answer.is_err(), "{from} to {to}: {what} passes");
                refused += 1;
            }
        }
    }
    assert_eq!(
        (vectors.consistency.len(), vectors.event_consistency.len()),
        (36, 6)
    );
    assert!(refused > 42 * 15, "{refused}");
}

/// A proof that must not hold: what is wrong with it, the proof, and the two hashes it is checked
/// against.
type Spoilt<P> = Vec<(&'static str, P, Hash, Hash)>;

fn spoilt_inclusion(good: &InclusionProof, leaf: Hash, root: Hash) -> Spoilt<InclusionProof> {
    let InclusionProof { index, size, .. } = *good;
    let with = |index, size| InclusionProof {
        index,
        size,
        hashes: good.hashes.clone(),
    };
    let mut spoilt = vec![
        ("an index beyond the tree", with(size, size), leaf, root),
        ("index + size", with(index + size, size), leaf, root),
        ("no size", with(index, 0), leaf, root),
        ("half the size", with(index, size / 2), leaf, root),
        ("twice the size", with(index, size * 2), leaf, root),
        ("a size that overflows", with(index, u64::MAX), leaf, root),
        ("leaf and root exchanged", good.clone(), root, leaf),
        ("another leaf", good.clone(), flipped(leaf), root),
        (
            "a node for a leaf",
            good.clone(),
            sha256().node(&leaf, &leaf),
            root,
        ),
        ("another root", good.clone(), leaf, flipped(root)),
        ("the root of nothing", good.clone(), leaf, sha256().empty()),
        ("a narrow leaf", good.clone(), narrow(leaf), root),
        ("a narrow root", good.clone(), leaf, narrow(root)),
    ];
    if size == 1 {
        spoilt.retain(|(what, ..)| *what != "leaf and root exchanged"); // they are the same
    }
    for other in [index ^ 1, index.wrapping_sub(1), index + 1] {
        if other != index && other < size {
            spoilt.push(("another index", with(other, size), leaf, root));
        }
    }
    for (what, hashes) in spoilt_hashes(&good.hashes, leaf, root) {
        let bad = InclusionProof { hashes, ..*good };
        spoilt.push((what, bad, leaf, root));
    }
    spoilt
}

fn spoilt_consistency(good: &ConsistencyProof, old: Hash, new: Hash) -> Spoilt<ConsistencyProof> {
    let ConsistencyProof { from, to, .. } = *good;
    let with = |from, to| ConsistencyProof {
        from,
        to,
        hashes: good.hashes.clone(),
    };
    let mut spoilt = vec![
        ("from nothing", with(0, to), old, new),
        ("to nothing", with(from, 0), old, new),
        ("backwards", with(to + 1, to), old, new),
        ("twice the size", with(from, to * 2), old, new),
        ("a size that overflows", with(from, u64::MAX), old, new),
        ("another old root", good.clone(), flipped(old), new),
        ("another new root", good.clone(), old, flipped(new)),
        (
            "the old root of nothing",
            good.clone(),
            sha256().empty(),
            new,
        ),
        (
            "the new root of nothing",
            good.clone(),
            old,
            sha256().empty(),
        ),
        ("a narrow old root", good.clone(), narrow(old), new),
        ("a narrow new root", good.clone(), old, narrow(new)),
        ("both roots the new one", good.clone(), new, new),
        ("both roots the old one", good.clone(), old, old),
        ("roots exchanged", good.clone(), new, old),
        ("one leaf less before", with(from - 1, to), old, new),
        ("one leaf more before", with(from + 1, to), old, new),
    ];
    if from == to {
        let same = [
            "both roots the new one",
            "both roots the old one",
            "roots exchanged",
        ];
        spoilt.retain(|(what, ..)| !same.contains(what));
    }
    for (what, hashes) in spoilt_hashes(&good.hashes, old, new) {
        let bad = ConsistencyProof { hashes, ..*good };
        spoilt.push((what, bad, old, new));
    }
    spoilt
}

/// What can be done to a list of hashes without leaving it as it is.
fn spoilt_hashes(good: &[Hash], first: Hash, last: Hash) -> Vec<(&'static str, Vec<Hash>)> {
    let garbage = Hash::from([0xa5; 32]);
    let mut all = vec![
        ("garbage behind", [good, &[garbage]].concat()),
        ("garbage in front", [&[garbage], good].concat()),
        ("the first hash in front", [&[first], good].concat()),
        ("the first hash behind", [good, &[first]].concat()),
        ("the root in front", [&[last], good].concat()),
        ("the root behind", [good, &[last]].concat()),
        (
            "the empty root behind",
            [good, &[sha256().empty()]].concat(),
        ),
        ("itself twice", [good, good, &[first]].concat()),
    ];
    if let [_, rest @ ..] = good {
        all.push(("no hashes", Vec::new()));
        all.push(("without its first", rest.to_vec()));
        all.push(("without its last", good[..good.len() - 1].to_vec()));
        all.push(("first replaced", [&[garbage], rest].concat()));
        all.push((
            "last replaced",
            [&good[..good.len() - 1], &[garbage]].concat(),
        ));
    }
    if good.len() > 1 {
        all.push(("reversed", good.iter().rev().copied().collect()));
        let mut swapped = good.to_vec();
        swapped.swap(0, good.len() - 1);
        all.push(("first and last exchanged", swapped));
    }
    for at in 0..good.len() {
        let mut bad = good.to_vec();
        bad[at] = flipped(bad[at]);
        all.push(("a bit flipped", bad));
        let mut bad = good.to_vec();
        bad[at] = narrow(bad[at]);
        all.push(("a narrow hash", bad));
        let mut bad = good.to_vec();
        bad.insert(at, bad[at]);
        all.push(("a hash repeated", bad));
    }
    all.retain(|(_, hashes)| hashes != good);
    all
}

fn flipped(hash: Hash) -> Hash {
    let mut bytes = *hash.padded();
    bytes[31] ^= 1;
    bytes.into()
}

fn narrow(hash: Hash) -> Hash {
    Hash::new(&hash.as_bytes()[..16]).expect("16 bytes are a hash")
}

#[test]
fn a_proof_says_what_is_wrong_with_it() {
    let tree = event_tree();
    let root = tree.root(&sha256());
    let leaf = tree.leaf(5).expect("the leaf is there");
    let good = tree
        .prove_inclusion(&sha256(), 5, 1000)
        .expect("the leaf is there");
    let mut bad = good.clone();
    bad.hashes.pop();
    let (expected, found) = (10, 9);
    let count = ProofError::Count { expected, found };
    assert_eq!(bad.verify(&sha256(), leaf, root), Err(count));
    let root_error = good.verify(&sha256(), leaf, flipped(root));
    assert_eq!(root_error, Err(ProofError::Root));
    let width = good.verify(&sha256(), narrow(leaf), root);
    assert_eq!(width, Err(ProofError::Width));
    bad = InclusionProof {
        index: 1000,
        ..good
    };
    let bounds = bad.verify(&sha256(), leaf, root);
    assert_eq!(bounds, Err(ProofError::Bounds(1000, 1000)));
}

proptest! {
    #[test]
    fn roots_and_proofs_are_those_of_another_implementation(
        leaves in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..200),
        at in any::<prop::sample::Index>(),
        before in any::<prop::sample::Index>(),
    ) {
        let (index, from) = (at.index(leaves.len()), before.index(leaves.len()) + 1);
        let (size, index_u64, from_u64) = (leaves.len() as u64, index as u64, from as u64);
        let mut other = MemoryBackedTree::<sha2::Sha256, Vec<u8>>::new();
        for leaf in &leaves {
            other.push(leaf.clone());
        }
        let ours = tree(leaves.clone());
        let root = ours.root(&sha256());
        let theirs = other.root();
        prop_assert_eq!(root.as_bytes(), theirs.as_bytes().as_slice());

        let inclusion = ours.prove_inclusion(&sha256(), index_u64, size).expect("it is there");
        let theirs = other.prove_inclusion(index);
        prop_assert_eq!(joined(&inclusion.hashes), theirs.as_bytes());
        let leaf = sha256().leaf(&[&leaves[index]]);
        prop_assert_eq!(inclusion.verify(&sha256(), leaf, root), Ok(()));

        let consistency = ours.prove_consistency(&sha256(), from_u64, size).expect("it is there");
        let theirs = other.prove_consistency(leaves.len() - from);
        prop_assert_eq!(joined(&consistency.hashes), theirs.as_bytes());
        let old = ours.root_at(&sha256(), from_u64).expect("it is there");
        prop_assert_eq!(consistency.verify(&sha256(), old, root), Ok(()));
    }
}

fn joined(hashes: &[Hash]) -> Vec<u8> {
    hashes
        .iter()
        .flat_map(|hash| hash.as_bytes().to_vec())
        .collect()
}
