//! Tokens.

use std::time::{Duration, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::authenticator::{TokenVerdict, TokenVerifier};
use crate::config::Jwt;

/// Verifies tokens that are signed by a secret of this module.
#[derive(Debug)]
pub struct Tokens(TokenVerifier);

/// What a password is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seen {
    /// A token that lets its user in.
    Valid,
    /// One that does not.
    Invalid,
    /// None.
    NoToken,
}

impl Default for Tokens {
    fn default() -> Self {
        let rules = Jwt {
            name: "fuzz".to_owned(),
            algorithms: vec!["HS256".to_owned()],
            ..Jwt::default()
        };
        let verifier = TokenVerifier::with_key(&rules, SECRET);
        Self(verifier.expect("the secret is long enough"))
    }
}

impl Tokens {
    /// What a password is, at a time that does not change.
    pub fn verify(&self, password: &[u8]) -> Seen {
        let now = UNIX_EPOCH + Duration::from_secs(2_000_000_000);
        match self.0.verify(None, password, now) {
            TokenVerdict::Valid(_) => Seen::Valid,
            TokenVerdict::NotMine => Seen::NoToken,
            _ => Seen::Invalid,
        }
    }

    /// Header and payload, encoded and signed.
    pub fn signed(header: &[u8], payload: &[u8]) -> Vec<u8> {
        let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let signed = format!("{}.{}", encode(header), encode(payload));
        let mac = Hmac::<Sha256>::new_from_slice(SECRET);
        let mac = mac.expect("HMAC takes a key of any length");
        let signature = mac.chain_update(&signed).finalize().into_bytes();
        format!("{signed}.{}", encode(&signature)).into_bytes()
    }
}

/// Of fuzz targets alone.
const SECRET: &[u8] = b"a secret that stands in no input of a fuzz target";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signed_token_is_valid_and_a_changed_one_is_not() {
        let tokens = Tokens::default();
        let header = br#"{"alg":"HS256"}"#;
        let token = Tokens::signed(header, br#"{"sub":"ann","exp":2000000100}"#);
        assert_eq!(tokens.verify(&token), Seen::Valid);
        let over = Tokens::signed(header, br#"{"sub":"ann","exp":1000000000}"#);
        assert_eq!(tokens.verify(&over), Seen::Invalid);
        let none = Tokens::signed(br#"{"alg":"none"}"#, br#"{"sub":"ann","exp":2000000100}"#);
        assert_eq!(tokens.verify(&none), Seen::NoToken);
        assert_eq!(tokens.verify(b"secret"), Seen::NoToken);
    }
}
