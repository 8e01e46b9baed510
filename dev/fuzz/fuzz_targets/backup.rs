//! Any bytes as a backup: what is accepted is a backup again, of the same store.
//!
//! Input: one byte that chooses the form (modulo 2), then the bytes: a whole file; or the bodies of
//! blocks, sealed here, so that what lies behind the seals is reached. A body goes up to a byte
//! 0xFF, which no row begins with.

#![no_main]

use libfuzzer_sys::fuzz_target;
use unbroken_store::{Memory, backup};

fuzz_target!(|input: &[u8]| {
    let [form, bytes @ ..] = input else {
        return;
    };
    let file = if form % 2 == 0 {
        bytes.to_vec()
    } else {
        sealed(bytes)
    };
    let store = Memory::new();
    let Ok(accepted) = backup::read(&mut file.as_slice(), &store) else {
        return;
    };
    let write = |store: &Memory| {
        let mut written = Vec::new();
        backup::write(store, &mut written).map(|contents| (written, contents))
    };
    let (written, contents) = write(&store).expect("a buffer takes everything");
    assert_eq!(contents.messages, accepted.messages);
    assert_eq!(contents.values, accepted.values);
    let again = Memory::new();
    backup::read(&mut written.as_slice(), &again).expect("we have written it");
    assert_eq!(write(&again).expect("a buffer takes everything").0, written);
});

fn sealed(bodies: &[u8]) -> Vec<u8> {
    let mut file = b"unbroken-backup 1\n".to_vec();
    let mut seal = blake3::hash(&file);
    for body in bodies.split(|byte| *byte == 0xFF) {
        seal = blake3::hash(&[&seal.as_bytes()[..], body].concat());
        file.extend_from_slice(&u32::try_from(body.len()).unwrap_or(u32::MAX).to_be_bytes());
        file.extend_from_slice(seal.as_bytes());
        file.extend_from_slice(body);
    }
    file
}
