//! Tiger trees against roots that others publish, and levels that were computed elsewhere.

mod hex;

use serde::Deserialize;
use unbroken_merkle_log::{ThexError, ThexTree, TigerRoot, TigerTree};

#[derive(Deserialize)]
struct Vectors {
    tth: Vec<Vector>,
}

#[derive(Deserialize)]
struct Vector {
    input: String,
    length: usize,
    root_base32: String,
    root_hex: String,
    levels_top_down_hex: Option<Vec<String>>,
}

#[test]
fn roots_are_those_that_are_published() {
    let vectors: Vectors =
        serde_json::from_str(include_str!("../testdata/thex-tth.json")).expect("the data is whole");
    assert_eq!(vectors.tth.len(), 19);
    for vector in &vectors.tth {
        let input = input(&vector.input);
        assert_eq!(input.len(), vector.length, "{}", vector.input);
        let mut tree = TigerTree::new();
        tree.update(&input);
        let root = tree.finish();
        assert_eq!(root.to_string(), vector.root_base32, "{}", vector.input);
        assert_eq!(root.0.as_slice(), hex::bytes(&vector.root_hex));
        assert_eq!(TigerRoot::parse(&vector.root_base32), Ok(root));
    }
}

#[test]
fn a_serialised_tree_is_its_levels_from_the_root_on() {
    let vectors: Vectors =
        serde_json::from_str(include_str!("../testdata/thex-tth.json")).expect("the data is whole");
    let mut checked = 0;
    for vector in &vectors.tth {
        let leaves = leaves(&input(&vector.input));
        let bytes = ThexTree::encode(&leaves).expect("there is a leaf");
        if let Some(levels) = &vector.levels_top_down_hex {
            assert_eq!(bytes, hex::bytes(&levels.concat()), "{}", vector.input);
            checked += 1;
        }
        let tree = ThexTree::parse(&bytes).expect("it was just written");
        assert_eq!(tree.root().to_string(), vector.root_base32);
        assert_eq!(tree.size() as usize, leaves.len());
        assert!(tree.leaves().eq(leaves));
    }
    assert_eq!(checked, 10);
}

#[test]
fn every_changed_byte_and_every_cut_within_a_level_is_refused_with_its_place() {
    for size in [1, 2, 3, 6, 7] {
        let bytes: Vec<u8> = (0..=255).cycle().take(size * 1024).collect();
        let good = ThexTree::encode(&leaves(&bytes)).expect("there is a leaf");
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            match ThexTree::parse(&bad) {
                // The one leaf is the root, which nothing vouches for.
                Ok(_) => assert_eq!(size, 1),
                Err(ThexError::Node { at: named }) => assert!(named <= at, "{named} for {at}"),
                Err(other) => panic!("{other}"),
            }
        }
        let levels = ThexTree::parse(&good).map(|tree| tree.height());
        let mut upper_levels = 0;
        for length in 0..good.len() {
            match ThexTree::parse(&good[..length]) {
                // It ends behind a level, and has the same root over larger segments.
                Ok(_) => upper_levels += 1,
                Err(ThexError::Length(named)) => assert_eq!(named, length),
                Err(ThexError::Nodes(nodes)) => assert_eq!(nodes * 24, length),
                // As many digests as a smaller tree has.
                Err(other) => assert!(matches!(other, ThexError::Node { .. }), "{other}"),
            }
        }
        assert_eq!(Ok(upper_levels), levels);
    }
    let none = ThexTree::encode(&[]).expect_err("there is no leaf");
    assert_eq!(none, ThexError::Leaves(0));
    assert_eq!(ThexTree::parse(&[]), Err(ThexError::Nodes(0)));
}

#[test]
fn nodes_are_found_by_level_and_place() {
    let vectors: Vectors =
        serde_json::from_str(include_str!("../testdata/thex-tth.json")).expect("the data is whole");
    for vector in &vectors.tth {
        let Some(levels) = &vector.levels_top_down_hex else {
            continue;
        };
        let bytes = hex::bytes(&levels.concat());
        let tree = ThexTree::parse(&bytes).expect("the data is whole");
        let mut nodes = levels.iter();
        for level in (0..=tree.height()).rev() {
            for index in 0..tree.size().div_ceil(1 << level) {
                let node = tree.node(level, index).expect("it is there");
                let expect = nodes.next().expect("there are as many");
                assert_eq!(node.as_slice(), hex::bytes(expect));
            }
            assert_eq!(tree.node(level, tree.size().div_ceil(1 << level)), None);
        }
        assert_eq!(tree.node(tree.height() + 1, 0), None);
        assert_eq!(tree.node(u32::MAX, 0), None);
        assert_eq!(nodes.next(), None);
    }
}

fn leaves(input: &[u8]) -> Vec<TigerRoot> {
    if input.is_empty() {
        return vec![TigerRoot::of_block(input)];
    }
    input
        .chunks(TigerTree::BLOCK)
        .map(TigerRoot::of_block)
        .collect()
}

/// What the description stands for: some bytes, `N x BYTE`, or a pattern.
fn input(description: &str) -> Vec<u8> {
    let number = |text: &str| text.parse::<usize>().expect("the description has a number");
    if let Some((count, byte)) = description.split_once(" x ") {
        let byte = match byte {
            "'A'" => b'A',
            "'a'" => b'a',
            "00" => 0,
            other => panic!("no input for {other}"),
        };
        return vec![byte; number(count)];
    }
    if let Some((count, _)) = description.split_once(" bytes, byte i = i mod 251") {
        return (0_u8..251).cycle().take(number(count)).collect();
    }
    match description {
        "empty" => Vec::new(),
        "one zero byte" => vec![0],
        text => text.trim_matches('\'').as_bytes().to_vec(),
    }
}
