//! Any bytes as the messages of a SCRAM client.
//!
//! Input: one byte (the hash; whether the user is known; whether the proof is made right), the
//! length of the first message, the first message, the last message.

#![no_main]

use libfuzzer_sys::fuzz_target;
use unbroken_broker::scram::{MESSAGE_BYTES_MAX, ScramExchange, ScramHash, ScramKeys};

fuzz_target!(|input: &[u8]| {
    let [mode, length, messages @ ..] = input else {
        return;
    };
    let hash = if mode & 1 == 0 { ScramHash::Sha256 } else { ScramHash::Sha512 };
    let is_known = mode & 2 == 0;
    let (first, last) = messages.split_at(usize::from(*length).min(messages.len()));
    let mut asked = None;
    let keys = |user: &str| {
        asked = Some(user.to_owned());
        (ScramKeys::of_password(hash, b"secret", b"salt", 1), is_known)
    };
    let begun = ScramExchange::begin(hash, first, "ours", keys);
    let Ok((exchange, answer)) = begun else {
        return;
    };
    let user = asked.expect("keys were asked for");
    assert!(!user.is_empty() && first.len() <= MESSAGE_BYTES_MAX);
    let answer = String::from_utf8(answer).expect("an answer is text");
    let nonce = answer
        .strip_prefix("r=")
        .and_then(|rest| rest.split_once(',')?.0.strip_suffix("ours"));
    let nonce = nonce.expect("the client's nonce, then ours");
    assert!(!nonce.is_empty() && !nonce.contains(','));
    assert!(answer.ends_with(",s=c2FsdA==,i=1"), "{answer}");
    // Nobody guesses a proof, and what was made for another exchange is none.
    if let Ok((name, end)) = exchange.finish(last) {
        assert!(is_known && *name == *user);
        assert!(end.starts_with(b"v="));
        assert!(std::str::from_utf8(last).is_ok_and(|last| last.contains("ours,p=")));
    }
});
