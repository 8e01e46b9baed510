//! Any bytes as a heritage tree or a THEX tree, and any leaves as a heritage tree that we write.
//!
//! Input: one byte; if it is even, what follows is read as a serialised tree. If it is odd, two
//! bytes say where and how the tree is damaged, and the rest are leaves, each behind a byte with
//! its length.

#![no_main]

use libfuzzer_sys::fuzz_target;
use unbroken_merkle_log::{HeritageTree, ThexTree};

fuzz_target!(|input: &[u8]| {
    match input {
        [choice, rest @ ..] if choice % 2 == 0 => read(rest),
        [_, place, change, rest @ ..] => write(rest, *place, *change),
        _ => {}
    }
});

/// Whatever is accepted is what we would have written.
fn read(bytes: &[u8]) {
    if let Ok(tree) = ThexTree::parse(bytes) {
        let leaves: Vec<_> = tree.leaves().collect();
        assert_eq!(ThexTree::encode(&leaves).as_deref(), Ok(bytes));
    }
    let Ok(tree) = HeritageTree::parse(bytes) else {
        return;
    };
    let leaves: Vec<_> = tree.leaves().collect();
    assert_eq!(leaves.len(), tree.size() as usize);
    assert_eq!(HeritageTree::encode(&leaves).as_deref(), Ok(bytes));
}

/// What we write is read back the same, and is refused with one byte changed.
fn write(mut bytes: &[u8], place: u8, change: u8) {
    let mut leaves = Vec::new();
    while let Some((length, rest)) = bytes.split_first() {
        let (leaf, rest) = rest.split_at(rest.len().min(usize::from(*length)));
        leaves.push(leaf);
        bytes = rest;
    }
    let Ok(mut tree) = HeritageTree::encode(&leaves) else {
        assert!(leaves.len() < 2);
        return;
    };
    let read = HeritageTree::parse(&tree).expect("what we write can be read");
    assert!(read.leaves().eq(leaves.iter().copied()));
    if change != 0 {
        let at = usize::from(place) * tree.len() / 256;
        tree[at] ^= change;
        assert!(HeritageTree::parse(&tree).is_err());
    }
}
