//! Any bytes from a trusted proxy.
//!
//! Input: one byte for the setting, one for the pieces that the bytes come in, then the bytes.

#![no_main]

use std::iter;

use libfuzzer_sys::fuzz_target;
use unbroken_broker::fuzzing::proxied;

/// The broker's limit of a header.
const HEADER_BYTES: usize = 4 * 1024;

fuzz_target!(|input: &[u8]| {
    let [setting, piece, bytes @ ..] = input else {
        return;
    };
    let names_users = setting % 2 == 1;
    let whole = proxied(iter::once(bytes), names_users);
    // What the bytes mean does not depend on the pieces that they come in.
    let pieces = bytes.chunks(usize::from(*piece).max(1));
    assert_eq!(proxied(pieces, names_users), whole);
    if whole.is_refused {
        assert!(whole.payload.is_empty() && whole.name.is_none() && whole.client.is_none());
        return;
    }
    if whole.waiting > 0 {
        assert_eq!(whole.waiting, bytes.len());
        assert!(whole.waiting < HEADER_BYTES && whole.payload.is_empty());
        return;
    }
    // Nothing of what follows the header is lost or changed.
    assert!(bytes.ends_with(&whole.payload));
    let header = &bytes[..bytes.len() - whole.payload.len()];
    let signatures = [&b"PROXY"[..], b"\r\n\r\n\0\r\nQUIT\n"];
    assert!(bytes.is_empty() || signatures.iter().any(|begin| header.starts_with(begin)));
    assert!(header.len() <= HEADER_BYTES);
    assert!(names_users || whole.name.is_none());
});
