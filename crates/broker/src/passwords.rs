//! Password files in Mosquitto's format; a check does not reveal which users exist.
//!
//! A line is `user:hash`; empty lines and lines beginning with `#` are skipped. The hash is one of
//! `$7$iterations$salt$hash` (PBKDF2 with HMAC-SHA-512, Mosquitto 2.0), `$6$salt$hash` (one salted
//! SHA-512, Mosquitto 1.6) and `$argon2id$v=19$m=…,t=…,p=…$salt$hash` (Mosquitto 2.1), and, for
//! SCRAM, `$scram-sha-256$iterations$salt$stored-key$server-key`, or the same with 512.
//!
//! Invariants:
//! - Hashes are compared in constant time, and an unknown user costs as much as a known one: a
//!   stand-in from the file is verified, always the same for the same name.
//! - A file is used whole or not at all.
//! - Nothing here can be printed with its secrets: no `Debug` shows a hash.
//!
//! Deliberately absent: memory of successful logins, and threads. [`Passwords::verify`] is slow by
//! design; the caller decides where it may block.

mod edit;
mod hash;

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::scram::{ScramHash, ScramKeys};
pub use edit::{EditError, PasswordFile};
use hash::StoredHash;
pub use hash::{HashError, Scheme};
use sha2::{Digest, Sha256};
use unbroken_mosquitto_files::{Mistakes, Place, users};

use crate::bounds::USERS_FILE_BYTES;
use crate::files;

/// The users of one password file.
pub struct Passwords {
    hashes: Vec<Arc<StoredHash>>,
    users: HashMap<Box<str>, usize>,
    /// Positions of what can serve SCRAM-SHA-256, and SCRAM-SHA-512.
    scram: [Vec<usize>; 2],
    /// Chooses the stand-in for an unknown user.
    stand_in: RandomState,
    generation: Generation,
}

/// Names the content of a password file: another content has another generation.
#[derive(Clone, PartialEq, Eq, Default)]
pub(crate) struct Generation([u8; 32]);

impl fmt::Debug for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Generation").finish_non_exhaustive()
    }
}

impl Generation {
    pub(crate) fn of(text: &str) -> Self {
        Self(Sha256::digest(text).into())
    }

    pub(crate) const fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Adds an entry to what this names, or takes it away again.
    pub(crate) fn mix(&mut self, user: &str, entry: &Self) {
        let mixed = Sha256::new().chain_update(user).chain_update([0]);
        let mixed = mixed.chain_update(entry.0).finalize();
        self.0.iter_mut().zip(mixed).for_each(|(to, by)| *to ^= by);
    }
}

impl fmt::Debug for Passwords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Passwords")
            .field("users", &self.users.len())
            .finish_non_exhaustive()
    }
}

impl Passwords {
    /// Reads a password file.
    pub fn read(path: &Path) -> Result<Self, PasswordFileError> {
        let text = files::read_text(path, USERS_FILE_BYTES).map_err(|source| {
            PasswordFileError::Unreadable {
                path: path.to_owned(),
                source,
            }
        })?;
        Self::parse(&text, path)
    }

    fn parse(text: &str, path: &Path) -> Result<Self, PasswordFileError> {
        let mut hashes = Vec::new();
        let mut positions = HashMap::new();
        let entries = users::users(&path.display().to_string(), text);
        for user in entries.map_err(PasswordFileError::Lines)? {
            let wrong = |place, problem| PasswordFileError::Line { place, problem };
            let hash = StoredHash::parse(user.hash)
                .map_err(|why| wrong(user.hash_place, LineProblem::Hash(why)))?;
            if positions.insert(user.name.into(), hashes.len()).is_some() {
                return Err(wrong(user.place, LineProblem::Twice));
            }
            hashes.push(Arc::new(hash));
        }
        let serving = |wanted| {
            let entries = hashes.iter().enumerate();
            let serving = entries.filter(|(_, hash)| hash.has_scram_keys(wanted));
            serving.map(|(position, _)| position).collect()
        };
        Ok(Self {
            scram: [serving(ScramHash::Sha256), serving(ScramHash::Sha512)],
            hashes,
            users: positions,
            stand_in: RandomState::new(),
            generation: Generation::of(text),
        })
    }

    /// Whether `user` exists and `password` is right. The hash decides how long it takes.
    pub fn verify(&self, user: &str, password: &[u8]) -> bool {
        let entry = self.find(user);
        let entry = entry.unwrap_or_else(|| self.stand_in(self.stand_in_for(user, self.len())));
        entry.verify(password)
    }

    /// Names the content of the file.
    pub(crate) const fn generation(&self) -> &Generation {
        &self.generation
    }

    /// What the password of this user is compared with; `None`: the file does not have it.
    pub(crate) fn find(&self, user: &str) -> Option<Entry> {
        let position = self.users.get(user)?;
        Some(Entry {
            is_known: true,
            ..self.stand_in(*position)
        })
    }

    /// What the password of a name is compared with that is nobody's, so that it costs as much.
    pub(crate) fn stand_in(&self, position: usize) -> Entry {
        Entry {
            hash: self.hashes.get(position).cloned(),
            is_known: false,
            generation: self.generation.clone(),
        }
    }

    /// Names of the users, in no order.
    pub fn users(&self) -> impl Iterator<Item = &str> {
        self.users.keys().map(|name| &**name)
    }

    /// The entry whose cost a stand-in shows; `None`: no entry has keys for this hash.
    pub(crate) fn scram_stand_in(&self, hash: ScramHash, secret: &[u8]) -> Option<Entry> {
        let [sha256, sha512] = &self.scram;
        let serving = match hash {
            ScramHash::Sha256 => sha256,
            ScramHash::Sha512 => sha512,
        };
        let position = serving.get(number_of(secret) % serving.len().max(1))?;
        Some(self.stand_in(*position))
    }

    /// How many users there are.
    pub fn len(&self) -> usize {
        self.users.len()
    }

    /// Whether there are no users.
    pub fn is_empty(&self) -> bool {
        self.users.is_empty()
    }

    /// Distributed over so many entries, so that with hashes of different cost unknown names show
    /// the same mixture of times as known ones.
    pub(crate) fn stand_in_for(&self, user: &str, entries: usize) -> usize {
        let entries = entries.max(1) as u64;
        usize::try_from(self.stand_in.hash_one(user) % entries).unwrap_or(0)
    }
}

/// A number that a secret decides.
pub(crate) fn number_of(secret: &[u8]) -> usize {
    let digits = secret.iter().map(|byte| usize::from(*byte));
    digits.fold(0, |sum, digit| (sum * 256 + digit) % 65_521)
}

/// The keys by which a client shows that it is a user, and whether it can: one that does not exist,
/// or whose entry has no such keys, gets those of a stand-in, which `secret` decides. Both take as
/// long. `like`: the entry whose cost a stand-in shows.
pub(crate) fn scram_keys(
    hash: ScramHash,
    known: Option<&Entry>,
    like: Option<&Entry>,
    secret: Vec<u8>,
) -> (ScramKeys, bool) {
    let known = known.filter(|entry| entry.has_scram_keys(hash));
    let keys = known.or(like).and_then(|entry| entry.scram_keys(hash));
    let (iterations, salt_length) = match keys {
        Some(keys) if known.is_some() => return (keys, true),
        Some(keys) => (keys.iterations, keys.salt.len()),
        None => STAND_IN_COST,
    };
    let salt = secret.iter().rev().copied().cycle();
    let stand_in = ScramKeys {
        iterations,
        salt: salt.take(salt_length).collect(),
        stored_key: secret.clone(),
        server_key: secret,
    };
    (stand_in, false)
}

/// Rounds and bytes of salt of a stand-in where no entry shows any.
const STAND_IN_COST: (u32, usize) = (4096, 12);

/// What the password of one name is compared with; by default nothing, and no password is right.
/// `Debug` shows nothing of it.
#[derive(Clone, Default)]
pub(crate) struct Entry {
    /// `None`: no password fits, and none is hashed.
    hash: Option<Arc<StoredHash>>,
    /// Whether the name is a user's; the hash of another name is there for its cost.
    is_known: bool,
    generation: Generation,
}

impl Entry {
    /// Of a user that has this hash. Of one that cannot be read no password is right.
    pub(crate) fn of_user(hash: &str) -> Self {
        Self {
            hash: StoredHash::parse(hash).ok().map(Arc::new),
            is_known: true,
            generation: Generation::of(hash),
        }
    }

    /// The same for a name that is nobody's.
    pub(crate) fn as_stand_in(&self) -> Self {
        Self {
            is_known: false,
            ..self.clone()
        }
    }

    /// Whether the name is a user's and the password its own. The hash decides how long it takes.
    pub(crate) fn verify(&self, password: &[u8]) -> bool {
        let hash = self.hash.as_ref();
        let is_right = hash.is_some_and(|hash| hash.matches(password));
        self.is_known && is_right
    }

    pub(crate) const fn generation(&self) -> &Generation {
        &self.generation
    }

    /// Whether a client can show by SCRAM that it knows the password.
    pub(crate) fn has_scram_keys(&self, hash: ScramHash) -> bool {
        let stored = self.hash.as_ref();
        stored.is_some_and(|stored| stored.has_scram_keys(hash))
    }

    fn scram_keys(&self, hash: ScramHash) -> Option<ScramKeys> {
        self.hash.as_ref()?.scram_keys(hash)
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry").finish_non_exhaustive()
    }
}

/// A new hash of a password, as password files and the store have it.
pub fn make_hash(password: &[u8], scheme: Scheme) -> Result<String, EditError> {
    StoredHash::make(scheme, password).map_err(EditError::Random)
}

/// Whether a password is the one of this hash. The hash decides how long it takes; no password fits
/// a text that is no hash.
pub fn matches(hash: &str, password: &[u8]) -> bool {
    StoredHash::parse(hash).is_ok_and(|hash| hash.matches(password))
}

/// Whether a text is a hash as [`make_hash`] makes it, or as a password file may have it.
pub fn check_hash(text: &str) -> Result<(), HashError> {
    StoredHash::parse(text).map(drop)
}

/// Why a password file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PasswordFileError {
    /// It cannot be read.
    #[error("cannot read the password file {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// Lines are not entries.
    #[error("{0}")]
    Lines(Mistakes),
    /// An entry cannot be used.
    #[error("{place}: {problem}")]
    Line {
        /// Its place.
        place: Place,
        /// What is wrong with it.
        problem: LineProblem,
    },
}

/// What is wrong with an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LineProblem {
    /// A user has two entries.
    #[error("this user has an entry above already")]
    Twice,
    /// The hash cannot be read.
    #[error("{0}")]
    Hash(HashError),
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;

    use super::*;

    const FILE: &str = include_str!("../testdata/users");

    fn passwords(text: &str) -> Result<Passwords, String> {
        Passwords::parse(text, "users".as_ref()).map_err(|error| error.to_string())
    }

    #[test]
    fn hashes_of_every_mosquitto_version_are_verified() {
        let users = passwords(&FILE.replace('\n', "\r\n")).unwrap();
        assert_eq!(users.len(), 4);
        for (user, password) in [
            ("alice", "secret"),
            ("bob", "hunter2"),
            ("carol", "correct horse"),
            ("dave", "two lanes"),
        ] {
            assert!(users.verify(user, password.as_bytes()), "{user}");
            for wrong in ["", "Secret", "hunter2 ", "correct hors"] {
                assert!(!users.verify(user, wrong.as_bytes()), "{user} with {wrong}");
            }
        }
    }

    #[test]
    fn an_unknown_user_is_refused_whatever_the_password() {
        let users = passwords(FILE).unwrap();
        for user in ["", "Alice", "alice ", "eve", "#"] {
            for password in ["secret", "hunter2", ""] {
                assert!(!users.verify(user, password.as_bytes()));
            }
        }
        assert!(!passwords("# nobody\n").unwrap().verify("alice", b"secret"));
    }

    #[test]
    fn an_unknown_user_always_costs_the_same_entry() {
        let users = passwords(FILE).unwrap();
        let picked: Vec<usize> = (0..100)
            .map(|n| users.stand_in_for(&format!("u{n}"), users.len()))
            .collect();
        let again: Vec<usize> = (0..100)
            .map(|n| users.stand_in_for(&format!("u{n}"), users.len()))
            .collect();
        assert_eq!(picked, again);
        assert!((0..4).all(|entry| picked.contains(&entry)), "{picked:?}");
    }

    fn keys_of(users: &Passwords, hash: ScramHash, user: &str) -> (ScramKeys, bool) {
        let secret = hash.hmac(users.generation().as_bytes(), user.as_bytes());
        let like = users.scram_stand_in(hash, &secret);
        scram_keys(hash, users.find(user).as_ref(), like.as_ref(), secret)
    }

    #[test]
    fn a_stand_in_for_scram_looks_like_an_entry_that_serves_its_hash() {
        let salted = |name: &str, scheme: &str, iterations: u32, bytes: usize| {
            let hash = STANDARD.encode(vec![7; if scheme == "scram-sha-256" { 32 } else { 64 }]);
            let salt = STANDARD.encode(vec![9; bytes]);
            let server_key = if scheme == "7" {
                String::new()
            } else {
                format!("${hash}")
            };
            format!("{name}:${scheme}${iterations}${salt}${hash}{server_key}\n")
        };
        let text = [
            salted("a", "scram-sha-256", 5000, 16),
            salted("b", "7", 101, 12),
            salted("c", "scram-sha-512", 6000, 20),
        ];
        let users = passwords(&text.concat()).unwrap();
        let cost = |hash, user: &str| {
            let (keys, is_known) = keys_of(&users, hash, user);
            assert_eq!(keys.stored_key.len(), hash.bytes());
            ((keys.iterations, keys.salt.len()), is_known)
        };
        assert_eq!(cost(ScramHash::Sha256, "a"), ((5000, 16), true));
        assert_eq!(cost(ScramHash::Sha512, "b"), ((101, 12), true));
        assert_eq!(cost(ScramHash::Sha256, "c"), ((5000, 16), false));
        let seen: HashSet<_> = (0..100)
            .map(|n| cost(ScramHash::Sha512, &format!("u{n}")))
            .collect();
        let expected = [((101, 12), false), ((6000, 20), false)];
        assert_eq!(seen, HashSet::from(expected));
        let nobody = passwords("# nobody\n").unwrap();
        let (keys, is_known) = keys_of(&nobody, ScramHash::Sha256, "a");
        assert_eq!((keys.iterations, keys.salt.len()), STAND_IN_COST);
        assert!(!is_known);
    }

    #[test]
    fn a_wrong_line_is_named() {
        for (text, expect) in [
            (
                "\n\nalice\n",
                "users:3:6: expected `:` and a hash, found the end of the line",
            ),
            (":$6$a$b\n", "users:1:1: expected a user name, found `:`"),
            ("alice:secret\n", "users:1:7: the password is not hashed"),
            (
                "alice:$5$x$y\n",
                "users:1:7: the hash is of no kind that is understood",
            ),
            ("alice:$7$101$!$AA==\n", "users:1:7: the salt is not base64"),
            (
                "alice:$7$0$AAAA$AA==\n",
                "users:1:7: the number of iterations",
            ),
            (
                "alice:$7$101$AAAA$AA==\n",
                "users:1:7: the hash has 1 bytes instead of 64",
            ),
            (
                "alice:$7$101$AAAA\n",
                "users:1:7: a part of the hash is missing",
            ),
            (
                "alice:$argon2id$v=19$m=1,t=1,p=1$c2FsdHNhbHQ$AAAAAAAAAAAAAAAAAAAAAA\n",
                "users:1:7: the argon2 parameters",
            ),
            (
                "alice:$argon2id$v=16$m=64,t=1,p=1$c2FsdHNhbHQ$AAAA\n",
                "users:1:7: the argon2 version",
            ),
        ] {
            let error = passwords(text).map(|_| ()).unwrap_err();
            assert!(error.starts_with(expect), "{text}: {error}");
        }
        let twice = format!("{FILE}{}\n", FILE.lines().next_back().unwrap());
        assert_eq!(
            passwords(&twice).unwrap_err(),
            "users:7:1: this user has an entry above already"
        );
    }

    #[test]
    fn no_secret_can_be_printed() {
        let users = passwords(FILE).unwrap();
        assert_eq!(format!("{users:?}"), "Passwords { users: 4, .. }");
    }
}
