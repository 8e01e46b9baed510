//! Any bytes as the password of a client whose listener takes tokens.
//!
//! Input: one byte for the form, then the password as it is, or header and payload that are signed
//! with the right secret.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use unbroken_broker::fuzzing::{Seen, Tokens};

static TOKENS: LazyLock<Tokens> = LazyLock::new(Tokens::default);

fuzz_target!(|input: &[u8]| {
    let Some((form, text)) = input.split_first() else {
        return;
    };
    if form & 1 == 0 {
        // The secret is in none of the inputs.
        assert_ne!(TOKENS.verify(text), Seen::Valid);
        return;
    }
    let (header, payload) = text.split_at(usize::from(form >> 1).min(text.len()));
    let token = Tokens::signed(header, payload);
    let seen = TOKENS.verify(&token);
    // One byte of the signature is another.
    let mut changed = token;
    if let Some(last) = changed.iter_mut().rev().nth(5) {
        *last = if *last == b'A' { b'B' } else { b'A' };
        assert_ne!(TOKENS.verify(&changed), Seen::Valid);
    }
    if seen == Seen::Valid {
        assert!(std::str::from_utf8(payload).is_ok(), "what is valid is JSON");
    }
});
