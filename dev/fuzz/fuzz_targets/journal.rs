//! Any bytes as a journal of a damaged store: what is taken out of it is a journal again, all of it
//! whole.
//!
//! Input: one byte that chooses the form (modulo 2), then the bytes: a journal; or batches without
//! what is around them, made whole here, so that what lies behind the checksums is reached: how
//! many items, then the items, up to a byte 0xFF.

#![no_main]

use libfuzzer_sys::fuzz_target;
use unbroken_store::whole_in_journal;
use xxhash_rust::xxh3::xxh3_64;

fuzz_target!(|input: &[u8]| {
    let [form, bytes @ ..] = input else {
        return;
    };
    let journal = if form % 2 == 0 {
        bytes.to_vec()
    } else {
        batches(bytes)
    };
    let (whole, lost) = whole_in_journal(&journal);
    let mut all: Vec<_> = whole.iter().chain(&lost).cloned().collect();
    all.sort_by_key(|piece| piece.start);
    let mut end = 0;
    for piece in all {
        // Between them is nothing, and none lies over another.
        assert!(piece.start >= end && piece.end > piece.start);
        assert!(journal[end..piece.start].iter().all(|byte| *byte == 0));
        end = piece.end;
    }
    assert!(journal[end..].iter().all(|byte| *byte == 0));
    let kept: Vec<u8> = whole
        .into_iter()
        .flat_map(|piece| &journal[piece])
        .copied()
        .collect();
    let (again, lost) = whole_in_journal(&kept);
    assert!(lost.is_empty());
    assert_eq!(
        again.iter().map(|piece| piece.len()).sum::<usize>(),
        kept.len()
    );
});

fn batches(items: &[u8]) -> Vec<u8> {
    let mut journal = Vec::new();
    for batch in items.split(|byte| *byte == 0xFF) {
        let [count, items @ ..] = batch else {
            continue;
        };
        journal.extend_from_slice(&[1, *count, 0, 0, 0]);
        journal.extend_from_slice(&[0; 8]);
        journal.extend_from_slice(items);
        journal.push(3);
        journal.extend_from_slice(&xxh3_64(items).to_le_bytes());
        journal.extend_from_slice(b"FJL\x03");
    }
    journal
}
