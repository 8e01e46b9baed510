//! Keys that verify tokens, from a secret, a public key in PEM, or a set (JWKS, RFC 7517).
//!
//! Invariants:
//! - A key verifies signatures of its own kind only, and of its own algorithm if the set names one.
//! - No `Debug` shows a key.

use std::fmt;

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

    /// A set. Keys of an unknown kind, or for encryption, are left out.
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
        let jwk: Jwk = serde_json::from_value(value.clone()).ok()?;
        Some(Self {
            id: text("kid").map(str::to_owned),
            algorithm: text("alg").map(str::to_owned),
            family,
            key: DecodingKey::from_jwk(&jwk).ok()?,
        })
    }
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
