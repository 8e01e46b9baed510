//! Tokens (JWT, RFC 7519) that clients show as their password.
//!
//! ```text
//! password ─▶ a token of this issuer? ─▶ key by algorithm and id ─▶ signature, audience ─┐
//!              │ no: not mine               │ none: denied                               │
//!              ▼                            ▼        grant ◀─ user, roles, values ◀─ time ◀┘
//! ```
//!
//! Invariants:
//! - The algorithm is one that the configuration lists, and of the key's own kind: a public key is
//!   never the secret of an HMAC, and `none` is no algorithm.
//! - Nothing of a token counts before its signature was verified, except which issuer it claims.
//! - All that a token claims is taken, or it is refused.
//! - A grant ends with its token.
//!
//! Deliberately absent: signatures and their encoding (`jsonwebtoken`), encrypted tokens, lists of
//! revoked ones.

mod keys;
mod remote;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, Validation, dangerous, decode, decode_header};
use serde_json::{Map, Value};
use unbroken_broker_core::{Claims, Grant};

use super::http_client::HttpClientError;
use crate::bounds::KEYS_BYTES;
use crate::config::Jwt;
use crate::files;
pub use keys::KeyError;
use keys::KeySet;
use remote::RemoteKeys;

/// Verifies the tokens of one `[[jwt]]` table.
#[derive(Debug)]
pub(crate) struct TokenVerifier {
    rules: Jwt,
    algorithms: Vec<Algorithm>,
    keys: Keys,
}

/// Where the keys are.
#[derive(Debug)]
enum Keys {
    /// Read from a file.
    File(Arc<KeySet>),
    /// Fetched again and again.
    Remote(RemoteKeys),
}

/// What a verifier says of a password.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum TokenVerdict {
    Valid(Grant),
    /// Why, for people.
    Invalid(&'static str),
    /// It was valid once.
    Expired,
    /// Its issuer's keys are not there yet.
    NoKeys,
    /// No token, or one of another issuer.
    NotMine,
}

/// Why a `[[jwt]]` table cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// A file cannot be read.
    #[error("jwt `{name}`: cannot read {}: {source}", path.display())]
    Unreadable {
        /// The table.
        name: String,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A file has no key that can be used.
    #[error("jwt `{name}`: {}: {problem}", path.display())]
    Key {
        /// The table.
        name: String,
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: KeyError,
    },
    /// The server of the keys cannot be asked.
    #[error("jwt `{name}`: {source}")]
    Client {
        /// The table.
        name: String,
        /// What is wrong.
        source: HttpClientError,
    },
    /// The system refused a thread.
    #[error("jwt `{name}`: cannot start a thread: {source}")]
    Thread {
        /// The table.
        name: String,
        /// The system's error.
        source: std::io::Error,
    },
}

/// Whether the keys of a table can be used, or, where they are fetched, the authorities of their
/// server. Nothing is fetched.
pub fn check_tokens(rules: &Jwt) -> Result<(), TokenError> {
    match &rules.jwks_url {
        Some(url) => remote::client(rules, url).map(drop),
        None => TokenVerifier::new(rules, None).map(drop),
    }
}

impl TokenVerifier {
    /// Reads the keys, or begins to fetch them. `before`: the one that it replaces, whose fetched
    /// keys stay in force until there are others.
    pub(crate) fn new(rules: &Jwt, before: Option<&Self>) -> Result<Self, TokenError> {
        let named = rules.algorithms.iter().map(|name| name.parse());
        let algorithms: Vec<Algorithm> = named.filter_map(Result::ok).collect();
        let keys = match (&rules.key_file, &rules.jwks_file, &rules.jwks_url) {
            (Some(path), _, _) => {
                let read = |text: &[u8]| KeySet::of_key(text, &algorithms);
                Keys::File(Arc::new(read_keys(rules, path, read)?))
            }
            (None, Some(path), _) => Keys::File(Arc::new(read_keys(rules, path, KeySet::of_jwks)?)),
            (None, None, Some(url)) => {
                Keys::Remote(RemoteKeys::start(rules, url, fetched_before(url, before))?)
            }
            (None, None, None) => Keys::File(Arc::default()), // the configuration refuses it
        };
        Ok(Self {
            rules: rules.clone(),
            algorithms,
            keys,
        })
    }

    /// Verifies by a key that is in no file.
    pub(crate) fn with_key(rules: &Jwt, key: &[u8]) -> Result<Self, KeyError> {
        let named = rules.algorithms.iter().map(|name| name.parse());
        let algorithms: Vec<Algorithm> = named.filter_map(Result::ok).collect();
        Ok(Self {
            keys: Keys::File(Arc::new(KeySet::of_key(key, &algorithms)?)),
            rules: rules.clone(),
            algorithms,
        })
    }

    /// The name of its table.
    pub(crate) fn name(&self) -> &str {
        &self.rules.name
    }

    /// What a password, shown with this user name, says of its client.
    pub(crate) fn verify(
        &self,
        user_name: Option<&str>,
        password: &[u8],
        now: SystemTime,
    ) -> TokenVerdict {
        let Ok(header) = decode_header(password) else {
            return TokenVerdict::NotMine;
        };
        if let Some(issuer) = &self.rules.issuer {
            // Not verified yet: it only says who is to verify it.
            let claimed = dangerous::insecure_decode::<Map<String, Value>>(password);
            let names_it = |claimed: &Value| claimed.as_str() == Some(issuer.as_str());
            match claimed.map(|claimed| claimed.claims.get("iss").is_some_and(names_it)) {
                Ok(true) => {}
                Ok(false) | Err(_) => return TokenVerdict::NotMine,
            }
        }
        if !self.algorithms.contains(&header.alg) {
            return TokenVerdict::Invalid(
                "its token is signed by an algorithm that is not allowed",
            );
        }
        let keys = self.keys();
        if keys.len() == 0 {
            return TokenVerdict::NoKeys;
        }
        let mut candidates = keys
            .candidates(header.kid.as_deref(), header.alg)
            .peekable();
        if candidates.peek().is_none() {
            if let Keys::Remote(remote) = &self.keys {
                remote.ask_soon();
            }
            return TokenVerdict::Invalid("no key is known for its token");
        }
        let validation = self.validation(header.alg);
        let mut why = "the signature of its token is wrong";
        for key in candidates {
            match decode::<Map<String, Value>>(password, key, &validation) {
                Ok(token) => return self.judge(user_name, &token.claims, now),
                Err(error) => match error.kind() {
                    ErrorKind::InvalidSignature => {}
                    ErrorKind::InvalidAudience => why = "its token is for another audience",
                    ErrorKind::InvalidIssuer => why = "its token is of another issuer",
                    ErrorKind::MissingRequiredClaim(_) => why = "its token lacks a claim",
                    _ => why = "its token cannot be read",
                },
            }
        }
        TokenVerdict::Invalid(why)
    }

    fn keys(&self) -> Arc<KeySet> {
        match &self.keys {
            Keys::File(keys) => Arc::clone(keys),
            Keys::Remote(remote) => remote.keys(),
        }
    }

    /// Signature, issuer and audience; times are judged here.
    fn validation(&self, algorithm: Algorithm) -> Validation {
        let Jwt {
            issuer, audience, ..
        } = &self.rules;
        let mut validation = Validation::new(algorithm);
        validation.validate_exp = false;
        validation.validate_nbf = false;
        validation.required_spec_claims.clear();
        if let Some(issuer) = issuer {
            validation.set_issuer(&[issuer]);
            validation.required_spec_claims.insert("iss".to_owned());
        }
        if !audience.is_empty() {
            validation.set_audience(audience);
            validation.required_spec_claims.insert("aud".to_owned());
        }
        validation
    }

    /// What a token with a good signature says.
    fn judge(
        &self,
        user_name: Option<&str>,
        claims: &Map<String, Value>,
        now: SystemTime,
    ) -> TokenVerdict {
        let rules = &self.rules;
        let leeway = rules.leeway.as_secs_f64();
        let now = now
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_secs_f64();
        let Ok(not_before) = time(claims, "nbf") else {
            return TokenVerdict::Invalid("its token has a time that is no number");
        };
        if not_before.is_some_and(|not_before| not_before > now + leeway) {
            return TokenVerdict::Invalid("its token is not valid yet");
        }
        let left = match time(claims, "exp") {
            Err(()) => return TokenVerdict::Invalid("its token has a time that is no number"),
            Ok(None) if rules.require_expiry => {
                return TokenVerdict::Invalid("its token has no end");
            }
            Ok(None) => None,
            Ok(Some(end)) if end + leeway <= now => return TokenVerdict::Expired,
            Ok(Some(end)) => Some(end + leeway - now),
        };
        let user = claims.get(&rules.user_claim).and_then(Value::as_str);
        let Some(user) = user.filter(|user| !user.is_empty()) else {
            return TokenVerdict::Invalid("its token names no user");
        };
        if rules.match_user_name && user_name != Some(user) {
            return TokenVerdict::Invalid("its user name is not the one in its token");
        }
        match vouched(claims, &rules.roles_claim) {
            Ok(vouched) => TokenVerdict::Valid(Grant {
                user: Some(user.into()),
                claims: (!vouched.is_empty()).then(|| Arc::new(vouched)),
                until: left.and_then(after),
                proof: None,
            }),
            Err(why) => TokenVerdict::Invalid(why),
        }
    }
}

/// The keys that were fetched from the same place before.
fn fetched_before(url: &str, before: Option<&TokenVerifier>) -> Arc<KeySet> {
    match before {
        Some(TokenVerifier {
            rules,
            keys: Keys::Remote(remote),
            ..
        }) if rules.jwks_url.as_deref() == Some(url) => remote.keys(),
        _ => Arc::default(),
    }
}

fn read_keys(
    rules: &Jwt,
    path: &Path,
    parse: impl Fn(&[u8]) -> Result<KeySet, KeyError>,
) -> Result<KeySet, TokenError> {
    let text = files::read(path, KEYS_BYTES).map_err(|source| TokenError::Unreadable {
        name: rules.name.clone(),
        path: path.to_owned(),
        source,
    })?;
    parse(&text).map_err(|problem| TokenError::Key {
        name: rules.name.clone(),
        path: path.to_owned(),
        problem,
    })
}

/// A time in seconds since 1970, if the token has it.
fn time(claims: &Map<String, Value>, name: &str) -> Result<Option<f64>, ()> {
    match claims.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match value.as_f64() {
            Some(seconds) if seconds.is_finite() => Ok(Some(seconds)),
            _ => Err(()),
        },
    }
}

/// So many seconds from now; `None`: later than any clock goes.
pub(super) fn after(seconds: f64) -> Option<Instant> {
    let time = Duration::try_from_secs_f64(seconds).ok()?;
    Instant::now().checked_add(time)
}

/// Roles and values of a token: its texts, numbers and flags.
fn vouched(claims: &Map<String, Value>, roles_claim: &str) -> Result<Claims, &'static str> {
    let roles = match found(claims, roles_claim) {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::String(words)) => words.split_whitespace().map(Arc::from).collect(),
        Some(Value::Array(roles)) => {
            let roles = roles.iter().map(|role| role.as_str().map(Arc::from));
            let roles: Option<Vec<_>> = roles.collect();
            roles.ok_or("a role in its token is no text")?
        }
        Some(_) => return Err("the roles in its token are no list"),
    };
    let values = claims.iter().filter_map(|(name, value)| {
        let value = text_of(value)?;
        let is_of_token = ["exp", "nbf", "iat", "jti"].contains(&name.as_str());
        (!is_of_token).then(|| (name.as_str().into(), value.into()))
    });
    let values: BTreeMap<Box<str>, Box<str>> = values.collect();
    Claims::new(roles, values).map_err(|_| "its token claims too much to be remembered")
}

/// A value that can be part of a topic.
pub(super) fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(flag.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// A claim by its name, else by a path of names with dots between.
fn found<'a>(claims: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    if let Some(value) = claims.get(name) {
        return Some(value);
    }
    let (first, rest) = name.split_once('.')?;
    found(claims.get(first)?.as_object()?, rest)
}
