//! Any bytes as what audited messages carry and what is said about them: whatever is accepted is
//! exactly what we would have written.
//!
//! Input: one byte that chooses the form (modulo 8), one for the algorithm (modulo 4), then the
//! bytes.

#![no_main]

use libfuzzer_sys::fuzz_target;
use unbroken_merkle_log::{
    Algorithm, Checkpoint, CompactRange, ConsistencyProof, Digest, Directory, Hasher,
    InclusionProof, Key, Property,
};

fuzz_target!(|input: &[u8]| {
    let [form, algorithm, bytes @ ..] = input else {
        return;
    };
    let algorithm = Algorithm::ALL[usize::from(algorithm % 4)];
    let hasher = Hasher::new(algorithm, Some(&Key([7; 32]))).expect("there is a key");
    let mut out = Vec::new();
    match form % 8 {
        0 => property(bytes),
        1 => {
            if let Ok(text) = core::str::from_utf8(bytes)
                && let Ok(property) = Property::parse_text(text)
            {
                assert_eq!(property.to_text(), text);
            }
        }
        2 => drop(Checkpoint::parse(bytes).map(|sealed| sealed.open(&hasher))),
        3 => checkpoint(bytes, &hasher),
        4 => directory(bytes, &hasher),
        5 => {
            if let Ok(range) = CompactRange::parse(algorithm, bytes) {
                range.encode(&mut out);
                assert_eq!(out, bytes);
                let _ = range.root(&hasher);
                let mut first = CompactRange::new(range.begin());
                first.merge(&hasher, &range).expect("it is adjacent");
                assert_eq!(first, range);
            }
        }
        6 => {
            if let Ok(proof) = InclusionProof::parse(algorithm, bytes) {
                proof.encode(&mut out);
                assert_eq!(out, bytes);
                let leaf = hasher.leaf(&[]);
                let _ = proof.verify(&hasher, leaf, leaf);
            }
        }
        _ => {
            if let Ok(proof) = ConsistencyProof::parse(algorithm, bytes) {
                proof.encode(&mut out);
                assert_eq!(out, bytes);
                let root = hasher.node(&hasher.leaf(&[]), &hasher.leaf(&[]));
                let _ = proof.verify(&hasher, root, root);
            }
        }
    }
});

fn property(bytes: &[u8]) {
    let Ok(property) = Property::parse(bytes) else {
        return;
    };
    let mut out = Vec::new();
    property.encode(&mut out);
    assert_eq!(out, bytes);
    assert_eq!(Property::parse_text(&property.to_text()), Ok(property));
}

/// With the tag that belongs to the bytes, so that what lies behind it is reached.
fn tagged(bytes: &[u8], hasher: &Hasher) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    if bytes.len() >= Checkpoint::BYTES {
        bytes[5] = hasher.algorithm() as u8;
        let tag = hasher.tag(&[&bytes[..112], &bytes[128..]]);
        bytes[112..128].copy_from_slice(&tag.0);
    }
    bytes
}

fn checkpoint(bytes: &[u8], hasher: &Hasher) {
    let bytes = tagged(bytes, hasher);
    if let Ok(sealed) = Checkpoint::parse(&bytes) {
        let checkpoint = sealed.open(hasher).expect("the tag was made just now");
        let mut out = Vec::new();
        checkpoint.encode(hasher, &mut out);
        assert_eq!(out, bytes);
    }
}

fn directory(bytes: &[u8], hasher: &Hasher) {
    let bytes = tagged(bytes, hasher);
    let Ok(sealed) = Directory::parse(&bytes) else {
        return;
    };
    if let Ok(directory) = sealed.open(hasher) {
        let mut out = Vec::new();
        let written = directory.encode(hasher, &mut out);
        written.expect("what was read can be written");
        assert_eq!(out, bytes);
    }
}
