//! Any bytes as what audited messages carry and what is said about them: whatever is accepted is
//! exactly what we would have written.
//!
//! Input: one byte that chooses the form (modulo 14), one for the algorithm (modulo 4), then the
//! bytes.

#![no_main]

use libfuzzer_sys::fuzz_target;
use std::time::Duration;

use unbroken_merkle_log::ledger::{
    Answer, Join, LaneLedger, Ledger, LedgerLimits, Request, read_gaps, write_gaps,
};
use unbroken_merkle_log::{
    Algorithm, Checkpoint, CompactRange, ConsistencyProof, Digest, Directory, DropRecord, Hasher,
    InclusionProof, Key, Lane, LaneLimits, Parents, Property,
};

fuzz_target!(|input: &[u8]| {
    let [form, algorithm, bytes @ ..] = input else {
        return;
    };
    let algorithm = Algorithm::ALL[usize::from(algorithm % 4)];
    let hasher = Hasher::new(algorithm, Some(&Key([7; 32]))).expect("there is a key");
    let mut out = Vec::new();
    match form % 14 {
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
        8 => drop_record(bytes, &hasher),
        9 => {
            if let Ok(parents) = Parents::parse(bytes) {
                parents.encode(&mut out);
                assert_eq!(out, bytes);
                let mut ledger = Ledger::new(hasher, LedgerLimits::default(), Join::Beginning);
                ledger.parents(&parents, Duration::ZERO);
            }
        }
        10 => {
            if let Ok(gaps) = read_gaps(bytes) {
                assert_eq!(write_gaps(&gaps), bytes);
            }
        }
        11 => {
            if let Ok((epoch, request)) = Request::parse(bytes) {
                request.encode(epoch, &mut out);
                assert_eq!(out, bytes);
            }
        }
        12 => {
            if let Ok((epoch, answer)) = Answer::parse(algorithm, bytes) {
                answer.encode(epoch, &mut out);
                assert_eq!(out, bytes);
            }
        }
        13 => saved(bytes, &hasher),
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

fn drop_record(bytes: &[u8], hasher: &Hasher) {
    let mut bytes = bytes.to_vec();
    if bytes.len() >= 30 {
        bytes[0] = bytes[0] & 0xf0 | hasher.algorithm() as u8;
        let tag = hasher.tag(&[&bytes[..14], &bytes[30..]]);
        bytes[14..30].copy_from_slice(&tag.0);
    }
    if let Ok(sealed) = DropRecord::parse(&bytes) {
        let record = sealed.open(hasher).expect("the tag was made just now");
        let mut out = Vec::new();
        record
            .encode(hasher, &mut out)
            .expect("what was read can be written");
        assert_eq!(out, bytes);
    }
}

/// With the tag that belongs to the bytes; what is read once is read the same again.
fn saved(bytes: &[u8], hasher: &Hasher) {
    let mut bytes = bytes.to_vec();
    let tag = hasher.tag(&[&bytes]);
    bytes.extend_from_slice(&tag.0);
    if let Ok(ledger) = LaneLedger::restore(&bytes, hasher) {
        let mut again = Vec::new();
        ledger.save(hasher, &mut again);
        assert_eq!(LaneLedger::restore(&again, hasher).as_ref(), Ok(&ledger));
    }
    let limits = LaneLimits::default();
    if let Ok(lane) = Lane::restore(&bytes, limits, Duration::ZERO, hasher) {
        let mut again = Vec::new();
        lane.save(lane.size(), hasher, &mut again);
        assert_eq!(again, bytes);
    }
    let limits = LedgerLimits::default();
    let _ = Ledger::restore(&bytes, hasher.clone(), limits, Join::Late);
}
