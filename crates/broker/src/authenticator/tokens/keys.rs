//! Keys that verify tokens, from a secret, a public key in PEM, or a set (JWKS, RFC 7517).
//!
//! Invariants:
//! - A key verifies signatures of its own kind only, and of its own algorithm if the set names one.
//! - No `Debug` shows a key.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey};
use serde_json::Value;

use crate::bounds::TOKEN_KEYS;

/// Keys of one issuer.
#[derive(Clone, Default)]
pub(super) struct KeySet {
    keys: Vec<TokenKey>,
}

#[derive(Clone)]
struct TokenKey {
    id: Option<String>,
    /// By its name, if the set gives one.
    algorithm: Option<String>,
    family: AlgorithmFamily,
    key: DecodingKey,
}

/// Why there is no key.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// Too short to be secret.
    #[error("the secret has {found} bytes; {algorithm} needs at least {needed}")]
    ShortSecret {
        /// Bytes there are.
        found: usize,
        /// Bytes that RFC 7518 asks for.
        needed: usize,
        /// For this.
        algorithm: &'static str,
    },
    /// Not such a key.
    #[error("it is no public key in PEM for these algorithms")]
    Pem,
    /// Not a set.
    #[error("it is no set of keys (JWKS)")]
    Set,
    /// None of a kind that is known.
    #[error("none of its keys can verify signatures")]
    Empty,
    /// More than are kept.
    #[error("it has more than {TOKEN_KEYS} keys")]
    TooMany,
}

impl KeySet {
    /// One key, for algorithms of one kind.
    pub(super) fn of_key(text: &[u8], algorithms: &[Algorithm]) -> Result<Self, KeyError> {
        let family = algorithms.first().map(|algorithm| algorithm.family());
        let family = family.ok_or(KeyError::Empty)?;
        let pem = |key: jsonwebtoken::errors::Result<DecodingKey>| key.map_err(|_| KeyError::Pem);
        let key = match family {
            AlgorithmFamily::Hmac => {
                let secret = text.strip_suffix(b"\n").unwrap_or(text);
                let secret = secret.strip_suffix(b"\r").unwrap_or(secret);
                check_secret(secret, algorithms)?;
                DecodingKey::from_secret(secret).map_err(|_| KeyError::Empty)?
            }
            AlgorithmFamily::Rsa => pem(DecodingKey::from_rsa_pem(text))?,
            AlgorithmFamily::Ec => pem(DecodingKey::from_ec_pem(text))?,
            AlgorithmFamily::Ed => pem(DecodingKey::from_ed_pem(text))?,
        };
        let keys = vec![TokenKey {
            id: None,
            algorithm: None,
            family,
            key,
        }];
        Ok(Self { keys })
    }

    /// A set. Keys of an unknown kind, for encryption, or too short to be secret are left out.
    pub(super) fn of_jwks(text: &[u8]) -> Result<Self, KeyError> {
        let set: Value = serde_json::from_slice(text).map_err(|_| KeyError::Set)?;
        let keys = set.get("keys").and_then(Value::as_array);
        let keys = keys.ok_or(KeyError::Set)?;
        if keys.len() > TOKEN_KEYS {
            return Err(KeyError::TooMany);
        }
        let keys: Vec<_> = keys.iter().filter_map(TokenKey::of_jwk).collect();
        if keys.is_empty() {
            return Err(KeyError::Empty);
        }
        Ok(Self { keys })
    }

    /// Keys that may have signed a token with this header.
    pub(super) fn candidates(
        &self,
        id: Option<&str>,
        algorithm: Algorithm,
    ) -> impl Iterator<Item = &DecodingKey> {
        let name = format!("{algorithm:?}");
        let keys = self.keys.iter().filter(move |key| {
            key.family == algorithm.family()
                && key.algorithm.as_ref().is_none_or(|it| *it == name)
                && (id.is_none() || key.id.is_none() || key.id.as_deref() == id)
        });
        keys.map(|key| &key.key)
    }

    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }
}

impl TokenKey {
    fn of_jwk(value: &Value) -> Option<Self> {
        let text = |name| value.get(name).and_then(Value::as_str);
        if text("use").is_some_and(|usage| usage != "sig") {
            return None;
        }
        let family = match text("kty")? {
            "oct" => AlgorithmFamily::Hmac,
            "RSA" => AlgorithmFamily::Rsa,
            "EC" => AlgorithmFamily::Ec,
            "OKP" => AlgorithmFamily::Ed,
            _ => return None,
        };
        if let Some(problem) = problem(value, family) {
            let id = text("kid").unwrap_or_default();
            tracing::warn!(key = id, problem, "a key of a set (JWKS) is left out");
            return None;
        }
        let jwk: Jwk = serde_json::from_value(value.clone()).ok()?;
        Some(Self {
            id: text("kid").map(str::to_owned),
            algorithm: text("alg").map(str::to_owned),
            family,
            key: DecodingKey::from_jwk(&jwk).ok()?,
        })
    }
}

/// Why a key of a known kind verifies nothing, for people.
fn problem(key: &Value, family: AlgorithmFamily) -> Option<String> {
    let text = |name| key.get(name).and_then(Value::as_str);
    // RFC 7517, section 4.3.
    if let Some(uses) = key.get("key_ops") {
        let mut uses = uses.as_array().into_iter().flatten();
        if !uses.any(|usage| usage.as_str() == Some("verify")) {
            return Some("its key_ops have no `verify`".to_owned());
        }
    }
    if family != AlgorithmFamily::Hmac {
        return None;
    }
    let Ok(secret) = URL_SAFE_NO_PAD.decode(text("k").unwrap_or_default()) else {
        return Some("its secret is not base64url".to_owned());
    };
    let algorithm = text("alg").and_then(|name| name.parse().ok());
    let algorithm = algorithm.unwrap_or(Algorithm::HS256);
    let checked = check_secret(&secret, &[algorithm]);
    checked.err().map(|error| error.to_string())
}

/// RFC 7518, section 3.2: a secret is as long as the hash at least.
fn check_secret(secret: &[u8], algorithms: &[Algorithm]) -> Result<(), KeyError> {
    let needs = algorithms.iter().map(|algorithm| match algorithm {
        Algorithm::HS384 => (48, "HS384"),
        Algorithm::HS512 => (64, "HS512"),
        _ => (32, "HS256"),
    });
    match needs.max() {
        Some((needed, algorithm)) if secret.len() < needed => Err(KeyError::ShortSecret {
            found: secret.len(),
            needed,
            algorithm,
        }),
        _ => Ok(()),
    }
}

impl fmt::Debug for KeySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeySet")
            .field("keys", &self.keys.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_key_of_a_set_that_is_short_or_not_for_verification_is_left_out() {
        let check = |bytes: usize, more: Value, expected: bool| {
            let secret = URL_SAFE_NO_PAD.encode(vec![7; bytes]);
            let mut key = json!({ "kty": "oct", "k": secret });
            for (name, value) in more.as_object().unwrap() {
                key[name] = value.clone();
            }
            let set = KeySet::of_jwks(json!({ "keys": [key] }).to_string().as_bytes());
            assert_eq!(set.is_ok(), expected, "{bytes} {more}");
        };
        check(32, json!({}), true);
        check(31, json!({}), false);
        check(47, json!({ "alg": "HS384" }), false);
        check(48, json!({ "alg": "HS384" }), true);
        check(63, json!({ "alg": "HS512" }), false);
        check(64, json!({ "alg": "HS512" }), true);
        check(32, json!({ "key_ops": ["sign", "verify"] }), true);
        check(32, json!({ "key_ops": ["sign"] }), false);
        check(32, json!({ "key_ops": [] }), false);
    }
}
