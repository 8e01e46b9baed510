//! Secrets that the server makes, and what it keeps of them.
//!
//! A secret has 256 random bits. The server keeps only its SHA-256: a reader of that cannot present
//! the secret, and the time of a search among digests says nothing about the secrets.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};

/// A new one, in letters that need no escape in a URL, a header or a cookie.
pub(crate) fn new_secret() -> Result<String, getrandom::Error> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes)?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

/// A public name that no other thing has: 16 hex digits.
pub(crate) fn new_id() -> Result<String, getrandom::Error> {
    Ok(format!("{:016x}", getrandom::u64()?))
}

/// What is kept of a secret.
pub(crate) fn digest(secret: &str) -> String {
    URL_SAFE_NO_PAD.encode(Sha256::digest(secret))
}
