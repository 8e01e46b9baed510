//! Heritage trees against output of the heritage itself, both ways.

mod counting;
mod hex;

use serde::Deserialize;
use sha2::Digest as _;
use unbroken_merkle_log::{CompactRange, Hash, Heritage, HeritageError, HeritageTree};

#[derive(Deserialize)]
struct Vectors {
    #[serde(rename = "vectors")]
    good: Vec<Vector>,
    bad_input_base_hex: String,
    bad_input: Vec<Bad>,
}

#[derive(Deserialize)]
struct Vector {
    name: String,
    n_leaves: usize,
    leaves: Option<Vec<String>>,
    nnodes: u32,
    height: u32,
    root_sig_hex: String,
    serialized_len: usize,
    serialized_sha256: String,
    serialized_hex: Option<String>,
}

#[derive(Deserialize)]
struct Bad {
    case: String,
    hex_sha256: String,
}

fn vectors() -> Vectors {
    serde_json::from_str(include_str!("../testdata/quux00-merkle.json")).expect("the data is whole")
}

fn event(i: usize) -> Hash {
    Hash::new(&sha1::Sha1::digest(format!("event-{i}"))).expect("a SHA-1 has 20 bytes")
}

fn leaves(vector: &Vector) -> Vec<String> {
    let events = || (0..vector.n_leaves).map(|i| event(i).to_string()).collect();
    vector.leaves.clone().unwrap_or_else(events)
}

#[test]
fn memory_that_held_something_else_holds_the_same_tree() {
    let mut out = vec![0xff; 100_000];
    for vector in &vectors().good {
        let leaves = leaves(vector);
        HeritageTree::encode_into(&leaves, &mut out).expect("there are two leaves or more");
        assert_eq!(
            HeritageTree::encode(&leaves),
            Ok(out.clone()),
            "{}",
            vector.name
        );
    }
}

#[test]
fn what_is_written_is_what_the_heritage_writes() {
    let vectors = vectors().good;
    assert_eq!(vectors.len(), 25);
    for vector in &vectors {
        let bytes = HeritageTree::encode(&leaves(vector)).expect("there are two leaves or more");
        assert_eq!(bytes.len(), vector.serialized_len, "{}", vector.name);
        assert_eq!(bytes[4..8], vector.nnodes.to_be_bytes());
        let sha256 = sha2::Sha256::digest(&bytes);
        assert_eq!(sha256.as_slice(), hex::bytes(&vector.serialized_sha256));
        if let Some(expect) = &vector.serialized_hex {
            assert_eq!(bytes, hex::bytes(expect), "{}", vector.name);
        }
    }
}

#[test]
fn what_the_heritage_writes_is_read_with_its_true_height() {
    for vector in &vectors().good {
        let leaves = leaves(vector);
        let bytes = match &vector.serialized_hex {
            Some(text) => hex::bytes(text),
            None => HeritageTree::encode(&leaves).expect("there are two leaves or more"),
        };
        let tree = HeritageTree::parse(&bytes).expect("the heritage wrote it");
        assert_eq!(tree.root(), hex::bytes(&vector.root_sig_hex));
        assert_eq!(tree.height(), vector.height, "{}", vector.name);
        assert_eq!(tree.size() as usize, vector.n_leaves);
        assert!(tree.leaves().eq(leaves.iter().map(String::as_bytes)));
    }
}

#[test]
fn nodes_are_found_by_level_and_place() {
    for vector in &vectors().good {
        let Some(text) = &vector.serialized_hex else {
            continue;
        };
        let bytes = hex::bytes(text);
        let tree = HeritageTree::parse(&bytes).expect("the heritage wrote it");
        // Breadth-first, each signature behind a type and a length.
        let mut rest = &bytes[8..];
        for level in (0..=tree.height()).rev() {
            let width = tree.size().div_ceil(1 << level);
            for index in 0..width {
                let (head, behind) = rest.split_at(5);
                let length = u32::from_be_bytes(head[1..].try_into().expect("it has four bytes"));
                let (signature, behind) = behind.split_at(length as usize);
                assert_eq!(tree.node(level, index), Some(signature), "{}", vector.name);
                rest = behind;
            }
            assert_eq!(tree.node(level, width), None, "{}", vector.name);
        }
        assert_eq!(tree.node(tree.height() + 1, 0), None);
        assert_eq!(tree.node(u32::MAX, 0), None);
        assert!(rest.is_empty());
    }
}

#[test]
fn each_damaged_input_is_refused_with_what_is_wrong() {
    let vectors = vectors();
    let base = hex::bytes(&vectors.bad_input_base_hex);
    assert!(HeritageTree::parse(&base).is_ok());
    assert_eq!(vectors.bad_input.len(), 20);
    for Bad { case, hex_sha256 } in &vectors.bad_input {
        let (bytes, expect) = damaged(case, &base);
        let sha256 = sha2::Sha256::digest(&bytes);
        assert_eq!(sha256.as_slice(), hex::bytes(hex_sha256), "{case}");
        assert_eq!(HeritageTree::parse(&bytes), Err(expect), "{case}");
    }
}

#[test]
fn a_damaged_input_is_refused_without_room_for_what_it_claims() {
    let vectors = vectors();
    let base = hex::bytes(&vectors.bad_input_base_hex);
    let cases = vectors.bad_input.iter();
    let mut inputs: Vec<(&str, Vec<u8>)> = cases
        .map(|bad| (&*bad.case, damaged(&bad.case, &base).0))
        .collect();
    let claim = |at: usize, value: u32| {
        let mut input = base.clone();
        input[at..at + 4].copy_from_slice(&value.to_be_bytes());
        input
    };
    // As many nodes and as long a leaf as there can be, and one more of each.
    for value in [0x7fff_ffff, 0x8000_0000, u32::MAX] {
        inputs.push(("nodes", claim(4, value)));
        inputs.push(("length of the root", claim(9, value)));
        inputs.push(("length of a leaf", claim(48, value)));
    }
    // The nodes of 2^30 leaves and of 2^29, all of which would have to follow.
    for leaves in [1_u32 << 29, 1 << 28] {
        inputs.push(("a tree of many leaves", claim(4, leaves * 2 - 1)));
    }
    for (case, bytes) in inputs {
        let before = counting::asked_for();
        let read = HeritageTree::parse(&bytes);
        let taken = counting::asked_for() - before;
        assert!(read.is_err(), "{case}");
        assert!(taken <= bytes.len(), "{case}: {taken} bytes");
    }
}

/// The input of a case, and what is wrong with it. The base is a tree of four leaves: nodes begin
/// at bytes 8, 21, 34 and from 47 on every 45.
fn damaged(case: &str, base: &[u8]) -> (Vec<u8>, HeritageError) {
    use HeritageError::{Kind, Length, Magic, Nodes, Signature, Trailing, Truncated};
    let with = |at: usize, bytes: &[u8]| {
        let mut input = base.to_vec();
        input[at..at + bytes.len()].copy_from_slice(bytes);
        input
    };
    let nodes = |count: i32| (with(4, &count.to_be_bytes()), Nodes(count));
    let kind = |at, found| {
        let expected = 1;
        let error = Kind {
            at,
            expected,
            found,
        };
        (with(at, &[found]), error)
    };
    match case {
        "empty input" => (Vec::new(), Truncated { at: 0 }),
        "only three bytes" => (base[..3].to_vec(), Truncated { at: 0 }),
        "wrong magic (first byte 00)" => (with(0, &[0]), Magic(0x00aa_ce99)),
        "little-endian magic" => (with(0, &[0x99, 0xce, 0xaa, 0xcd]), Magic(0x99ce_aacd)),
        "header only, numnodes 7" => (base[..8].to_vec(), Truncated { at: 8 }),
        "truncated by 1" => (base[..base.len() - 1].to_vec(), Truncated { at: 182 }),
        "truncated in the middle" => (base[..base.len() / 2].to_vec(), Truncated { at: 92 }),
        "3 trailing bytes" => ([base, &[0; 3]].concat(), Trailing(3)),
        "numnodes 0" => nodes(0),
        "numnodes 1" => nodes(1),
        "numnodes -5" => nodes(-5),
        // Six nodes are a tree of three leaves, whose inner nodes are three.
        "numnodes one too few (6 of 7)" => (nodes(6).0, Signature { at: 34 }),
        "numnodes one too many (8 of 7)" => nodes(8),
        "root siglength -1" => {
            let (at, length) = (8, -1);
            (with(9, &[0xff; 4]), Length { at, length })
        }
        "root siglength 0x7fffffff" => (with(9, &[0x7f, 0xff, 0xff, 0xff]), Truncated { at: 8 }),
        "root type 00 (leaf)" => kind(8, 0),
        "root type 07 (unknown)" => kind(8, 7),
        "second node type 07 (unknown)" => kind(21, 7),
        case if case.starts_with("root signature bit flipped") => {
            (with(20, &[base[20] ^ 1]), Signature { at: 8 })
        }
        case if case.starts_with("last leaf bit flipped") => {
            let last = base.len() - 1;
            (with(last, &[base[last] ^ 1]), Signature { at: 34 })
        }
        case => panic!("no input for {case}"),
    }
}

#[test]
fn every_changed_bit_and_every_cut_is_refused() {
    for size in [2, 3, 6, 7] {
        let leaves: Vec<_> = (0..size).map(|i| format!("leaf {i}")).collect();
        let good = HeritageTree::encode(&leaves).expect("there are two leaves or more");
        for at in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[at / 8] ^= 1 << (at % 8);
            assert!(
                HeritageTree::parse(&bad).is_err(),
                "bit {at} of {size} leaves"
            );
        }
        for length in 0..good.len() {
            assert!(HeritageTree::parse(&good[..length]).is_err());
        }
    }
}

#[test]
fn a_tree_of_fewer_than_two_leaves_is_refused() {
    let refused = |leaves: &[&str]| HeritageTree::encode(leaves).expect_err("too few");
    assert_eq!(refused(&[]), HeritageError::Leaves(0));
    assert_eq!(refused(&["a"]), HeritageError::Leaves(1));
}

#[test]
fn a_leaf_longer_than_the_first_is_written_all_the_same() {
    let leaves = ["a".to_owned(), "b".repeat(58), String::new()];
    let bytes = HeritageTree::encode(&leaves).expect("there are two leaves or more");
    let tree = HeritageTree::parse(&bytes).expect("it was just written");
    assert!(tree.leaves().eq(leaves.iter().map(String::as_bytes)));
}

#[test]
fn the_root_of_a_lane_with_algorithm_8_is_that_of_its_serialised_window() {
    for size in 2..100 {
        let mut lane = CompactRange::new(0);
        (0..size).for_each(|i| lane.append(&Heritage, event(i)));
        let texts: Vec<_> = (0..size).map(|i| event(i).to_string()).collect();
        let bytes = HeritageTree::encode(&texts).expect("there are two leaves or more");
        let tree = HeritageTree::parse(&bytes).expect("it was just written");
        let root = lane.root(&Heritage).expect("a range from 0 has a root");
        assert_eq!(root.as_bytes(), tree.root(), "{size}");
    }
}
