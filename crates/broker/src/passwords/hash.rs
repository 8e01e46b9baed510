//! One stored hash: read, compared, made.

use std::hint;
use std::num::NonZeroU32;

use argon2::{Algorithm, Argon2, Params, Version};
use aws_lc_rs::pbkdf2::{self, PBKDF2_HMAC_SHA512};
use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use sha2::{Digest, Sha512};

use crate::scram::{ScramHash, ScramKeys};

/// How a new hash is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scheme {
    /// Argon2id, which makes guessing cost memory. Mosquitto reads it from 2.1 on.
    Argon2id,
    /// PBKDF2 with HMAC-SHA-512, for files that Mosquitto 2.0 reads, too.
    Pbkdf2,
    /// Keys of SCRAM-SHA-256: clients need not send their passwords.
    ScramSha256,
    /// Those of SCRAM-SHA-512.
    ScramSha512,
    /// Argon2id for passwords that are sent, and beside it the keys of both SCRAMs.
    Argon2idAndScram,
}

/// A hash as stored. No `Debug`: it is a secret to be guessed at.
pub(crate) struct StoredHash {
    work: Work,
    salt: Vec<u8>,
    hash: Vec<u8>,
    /// Of the same password, for SCRAM only.
    beside: Vec<Self>,
}

/// What must be done to a password to compare it.
enum Work {
    Sha512,
    Pbkdf2 {
        iterations: u32,
    },
    /// The hash is the stored key.
    Scram {
        hash: ScramHash,
        iterations: u32,
        server_key: Vec<u8>,
    },
    Argon2id(Box<Argon2<'static>>),
}

/// Why a hash cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum HashError {
    /// Plain text.
    #[error("the password is not hashed; `unbroken passwd -U FILE` hashes a whole file")]
    Plain,
    /// Another scheme.
    #[error(
        "the hash is of no kind that is understood ($6$, $7$, $argon2id$ and $scram-sha-…$ are)"
    )]
    UnknownScheme,
    /// Too few parts.
    #[error("a part of the hash is missing")]
    Incomplete,
    /// Not between 1 and the most that is taken.
    #[error("the number of iterations is not one from 1 to {ITERATIONS_MAX}")]
    Iterations,
    /// Parameters that Argon2 does not allow, or that cost more than is taken.
    #[error(
        "the argon2 parameters are not m=8…{ARGON2_KIB_MAX}, t=1…{ARGON2_PASSES_MAX}, \
         p=1…{ARGON2_LANES_MAX}"
    )]
    Argon2Parameters,
    /// Not 19 (1.3).
    #[error("the argon2 version is not v=19")]
    Argon2Version,
    /// The salt cannot be decoded.
    #[error("the salt is not base64")]
    Salt,
    /// The hash cannot be decoded.
    #[error("the hash is not base64")]
    Base64,
    /// The hash is cut off.
    #[error("the hash has {found} bytes instead of {expected}")]
    Length {
        /// Bytes there are.
        found: usize,
        /// Bytes there should be.
        expected: usize,
    },
}

impl StoredHash {
    /// Parses the part after the colon of an entry. Behind the hash that passwords are compared
    /// with there may be others of the same password, with a blank between.
    pub(super) fn parse(text: &str) -> Result<Self, HashError> {
        let (first, others) = text.split_once(' ').unwrap_or((text, ""));
        let beside = others.split_terminator(' ').map(Self::parse_one);
        Ok(Self {
            beside: beside.collect::<Result<_, _>>()?,
            ..Self::parse_one(first)?
        })
    }

    fn parse_one(text: &str) -> Result<Self, HashError> {
        let Some(text) = text.strip_prefix('$') else {
            return Err(HashError::Plain);
        };
        let mut parts = text.split('$');
        let mut part = || parts.next().ok_or(HashError::Incomplete);
        match part()? {
            "6" => Self::new(Work::Sha512, part()?, part()?, Some(SHA512_BYTES)),
            "7" => {
                let iterations = part()?.parse().map_err(|_| HashError::Iterations)?;
                if !(1..=ITERATIONS_MAX).contains(&iterations) {
                    return Err(HashError::Iterations);
                }
                Self::new(
                    Work::Pbkdf2 { iterations },
                    part()?,
                    part()?,
                    Some(SHA512_BYTES),
                )
            }
            "scram-sha-256" => Self::scram(ScramHash::Sha256, part),
            "scram-sha-512" => Self::scram(ScramHash::Sha512, part),
            "argon2id" => {
                if part()? != "v=19" {
                    return Err(HashError::Argon2Version);
                }
                let (kib, passes, lanes) =
                    argon2_costs(part()?).ok_or(HashError::Argon2Parameters)?;
                let params = Params::new(kib, passes, lanes, None)
                    .map_err(|_| HashError::Argon2Parameters)?;
                let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
                Self::new(Work::Argon2id(Box::new(argon2)), part()?, part()?, None)
            }
            _ => Err(HashError::UnknownScheme),
        }
    }

    /// The rest of an entry for SCRAM.
    fn scram<'a>(
        hash: ScramHash,
        mut part: impl FnMut() -> Result<&'a str, HashError>,
    ) -> Result<Self, HashError> {
        let iterations = part()?.parse().map_err(|_| HashError::Iterations)?;
        if !(1..=ITERATIONS_MAX).contains(&iterations) {
            return Err(HashError::Iterations);
        }
        let (salt, stored_key) = (part()?, part()?);
        let server_key = BASE64.decode(part()?).map_err(|_| HashError::Base64)?;
        if server_key.len() != hash.bytes() {
            return Err(HashError::Length {
                found: server_key.len(),
                expected: hash.bytes(),
            });
        }
        let work = Work::Scram {
            hash,
            iterations,
            server_key,
        };
        Self::new(work, salt, stored_key, Some(hash.bytes()))
    }

    /// Whether a client can show by SCRAM that it knows the password.
    pub(super) fn has_scram_keys(&self, wanted: ScramHash) -> bool {
        self.serving(wanted).is_some()
    }

    /// The hash that serves SCRAM: this one, or one beside it.
    fn serving(&self, wanted: ScramHash) -> Option<&Self> {
        let mut all = std::iter::once(self).chain(&self.beside);
        all.find(|hash| hash.serves(wanted))
    }

    const fn serves(&self, wanted: ScramHash) -> bool {
        match &self.work {
            Work::Pbkdf2 { .. } => matches!(wanted, ScramHash::Sha512),
            Work::Scram { hash, .. } => matches!(
                (hash, wanted),
                (ScramHash::Sha256, ScramHash::Sha256) | (ScramHash::Sha512, ScramHash::Sha512)
            ),
            Work::Sha512 | Work::Argon2id(_) => false,
        }
    }

    /// Rounds of PBKDF2 and bytes of salt.
    fn scram_cost(&self) -> (u32, usize) {
        let iterations = match &self.work {
            Work::Pbkdf2 { iterations } | Work::Scram { iterations, .. } => *iterations,
            Work::Sha512 | Work::Argon2id(_) => 1,
        };
        (iterations, self.salt.len())
    }

    /// The keys for SCRAM; `None`: the entry has none for this hash.
    pub(super) fn scram_keys(&self, wanted: ScramHash) -> Option<ScramKeys> {
        let serving = self.serving(wanted)?;
        let (iterations, _) = serving.scram_cost();
        Some(match &serving.work {
            Work::Scram { server_key, .. } => ScramKeys {
                iterations,
                salt: serving.salt.clone(),
                stored_key: serving.hash.clone(),
                server_key: server_key.clone(),
            },
            // PBKDF2 with 64 bytes of output is what SCRAM-SHA-512 calls the salted password.
            _ => ScramKeys::of_salted(wanted, &serving.hash, &serving.salt, iterations),
        })
    }

    fn new(work: Work, salt: &str, hash: &str, length: Option<usize>) -> Result<Self, HashError> {
        let salt = BASE64.decode(salt).map_err(|_| HashError::Salt)?;
        let hash = BASE64.decode(hash).map_err(|_| HashError::Base64)?;
        let expected = length.unwrap_or(hash.len().clamp(ARGON2_HASH_MIN, SHA512_BYTES));
        if hash.len() != expected {
            return Err(HashError::Length {
                found: hash.len(),
                expected,
            });
        }
        Ok(Self {
            work,
            salt,
            hash,
            beside: Vec::new(),
        })
    }

    /// Whether this is the hash of `password`. The comparison's time does not depend on the answer.
    pub(super) fn matches(&self, password: &[u8]) -> bool {
        let mut made = vec![0; self.hash.len()];
        let worked = self.work.hash(password, &self.salt, &mut made);
        let difference = made
            .iter()
            .zip(&self.hash)
            .fold(0, |sum, (a, b)| sum | (a ^ b));
        worked & (hint::black_box(difference) == 0)
    }

    /// The text of a new entry's hash.
    pub(super) fn make(scheme: Scheme, password: &[u8]) -> Result<String, getrandom::Error> {
        if scheme == Scheme::Argon2idAndScram {
            let all = [Scheme::Argon2id, Scheme::ScramSha256, Scheme::ScramSha512];
            let made = all.into_iter().map(|scheme| Self::make(scheme, password));
            return Ok(made.collect::<Result<Vec<_>, _>>()?.join(" "));
        }
        // Mosquitto 2.0 takes a salt of 12 bytes in its own format, and no other.
        let salt_length = match scheme {
            Scheme::Pbkdf2 => 12,
            _ => 16,
        };
        let mut salt = vec![0; salt_length];
        getrandom::fill(&mut salt)?;
        match scheme {
            Scheme::ScramSha256 => return Ok(scram_entry(ScramHash::Sha256, password, &salt)),
            Scheme::ScramSha512 => return Ok(scram_entry(ScramHash::Sha512, password, &salt)),
            Scheme::Argon2id | Scheme::Pbkdf2 | Scheme::Argon2idAndScram => {}
        }
        let (work, prefix, length) = if scheme == Scheme::Argon2id {
            let params = Params::new(NEW_ARGON2_KIB, NEW_ARGON2_PASSES, 1, None)
                .expect("these constants are within Argon2's ranges");
            let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
            let prefix = format!("$argon2id$v=19$m={NEW_ARGON2_KIB},t={NEW_ARGON2_PASSES},p=1");
            (Work::Argon2id(Box::new(argon2)), prefix, 32)
        } else {
            let work = Work::Pbkdf2 {
                iterations: NEW_ITERATIONS,
            };
            (work, format!("$7${NEW_ITERATIONS}"), SHA512_BYTES)
        };
        let mut hash = vec![0; length];
        assert!(
            work.hash(password, &salt, &mut hash),
            "lengths and costs are the constants above"
        );
        // The PHC format of argon2 goes without padding, Mosquitto's own one with it.
        let encode = |bytes: &[u8]| match scheme {
            Scheme::Argon2id => base64::engine::general_purpose::STANDARD_NO_PAD.encode(bytes),
            _ => base64::engine::general_purpose::STANDARD.encode(bytes),
        };
        Ok(format!("{prefix}${}${}", encode(&salt), encode(&hash)))
    }
}

impl Work {
    /// Fills `out`; false if the parameters do not allow it.
    fn hash(&self, password: &[u8], salt: &[u8], out: &mut [u8]) -> bool {
        match self {
            Self::Sha512 => {
                let hash = Sha512::new()
                    .chain_update(password)
                    .chain_update(salt)
                    .finalize();
                let fits = out.len() == hash.len();
                out.iter_mut().zip(hash).for_each(|(to, from)| *to = from);
                fits
            }
            Self::Pbkdf2 { iterations } => {
                let Some(iterations) = NonZeroU32::new(*iterations) else {
                    return false;
                };
                pbkdf2::derive(PBKDF2_HMAC_SHA512, iterations, salt, password, out);
                true
            }
            Self::Scram {
                hash, iterations, ..
            } => {
                let keys = ScramKeys::of_password(*hash, password, salt, *iterations);
                let fits = out.len() == keys.stored_key.len();
                let pairs = out.iter_mut().zip(keys.stored_key);
                pairs.for_each(|(to, from)| *to = from);
                fits
            }
            Self::Argon2id(argon2) => argon2.hash_password_into(password, salt, out).is_ok(),
        }
    }
}

/// The text of an entry for SCRAM.
fn scram_entry(hash: ScramHash, password: &[u8], salt: &[u8]) -> String {
    let (name, iterations) = match hash {
        ScramHash::Sha256 => ("scram-sha-256", NEW_ITERATIONS_SHA256),
        ScramHash::Sha512 => ("scram-sha-512", NEW_ITERATIONS),
    };
    let keys = ScramKeys::of_password(hash, password, salt, iterations);
    let encode = |bytes: &[u8]| base64::engine::general_purpose::STANDARD.encode(bytes);
    let (stored, server) = (encode(&keys.stored_key), encode(&keys.server_key));
    format!("${name}${iterations}${}${stored}${server}", encode(salt))
}

/// `m=65536,t=2,p=1`, within what one login may cost.
fn argon2_costs(text: &str) -> Option<(u32, u32, u32)> {
    let mut parts = text.split(',');
    let mut cost = |name: &str, max: u32| {
        let number = parts.next()?.strip_prefix(name)?.parse().ok()?;
        (1..=max).contains(&number).then_some(number)
    };
    let costs = (
        cost("m=", ARGON2_KIB_MAX)?,
        cost("t=", ARGON2_PASSES_MAX)?,
        cost("p=", ARGON2_LANES_MAX)?,
    );
    parts.next().is_none().then_some(costs)
}

/// With and without padding, as both are found in the wild.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

const SHA512_BYTES: usize = 64;
const ARGON2_HASH_MIN: usize = 16;

// A login must not cost more than a second or a gigabyte, even if the file asks for it.
const ITERATIONS_MAX: u32 = 10_000_000;
const ARGON2_KIB_MAX: u32 = 1024 * 1024;
const ARGON2_PASSES_MAX: u32 = 64;
const ARGON2_LANES_MAX: u32 = 64;

// OWASP's password storage advice of 2025 for each scheme: about 30 ms and 150 ms of one core.
const NEW_ARGON2_KIB: u32 = 19 * 1024;
const NEW_ARGON2_PASSES: u32 = 2;
const NEW_ITERATIONS: u32 = 210_000;
const NEW_ITERATIONS_SHA256: u32 = 600_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_hash_verifies_its_password_and_no_other() {
        for scheme in [
            Scheme::Argon2id,
            Scheme::Pbkdf2,
            Scheme::ScramSha256,
            Scheme::ScramSha512,
            Scheme::Argon2idAndScram,
        ] {
            let text = StoredHash::make(scheme, b"open sesame").unwrap();
            let hash = StoredHash::parse(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert!(hash.matches(b"open sesame"));
            assert!(!hash.matches(b"open sesam"));
            assert_ne!(
                text,
                StoredHash::make(scheme, b"open sesame").unwrap(),
                "salts differ"
            );
        }
    }

    #[test]
    fn hashes_beside_the_first_serve_scram_only() {
        let text = StoredHash::make(Scheme::Argon2idAndScram, b"open sesame").unwrap();
        let hash = StoredHash::parse(&text).unwrap();
        assert!(text.starts_with("$argon2id$"), "{text}");
        for wanted in [ScramHash::Sha256, ScramHash::Sha512] {
            let keys = hash.scram_keys(wanted).unwrap();
            let made = ScramKeys::of_password(wanted, b"open sesame", &keys.salt, keys.iterations);
            assert!(keys == made);
        }
        let alone = text.split(' ').next().unwrap();
        assert!(
            !StoredHash::parse(alone)
                .unwrap()
                .has_scram_keys(ScramHash::Sha256)
        );
        let broken = StoredHash::parse(&format!("{alone} $scram-sha-256$1")).err();
        assert_eq!(broken, Some(HashError::Incomplete));
    }
}
