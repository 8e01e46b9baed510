//! Tiger tree roots against those that others publish.

mod hex;

use serde::Deserialize;
use unbroken_merkle_log::{TigerRoot, TigerTree};

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
