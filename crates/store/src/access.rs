//! Users, roles and bans that commands have put into the store, in [`Space::Control`].
//!
//! ```text
//! key   "user:" | name             value   hash of the password
//!       "role:" | name                     flags 1 | users… | rules…
//!       "ban:" | kind 1 | name             since | until or 0 | reason
//! ```
//!
//! Invariants:
//! - What a `decode` accepts, `encode` writes again byte for byte.
//! - A name has 1 to [`NAME_BYTES_MAX`] bytes.
//! - A hash has no `Debug`: it is a secret to be guessed at.
//!
//! Deliberately absent: what a hash, a rule or a network is; the broker reads them.
//!
//! [`Space::Control`]: crate::Space::Control

use std::fmt;

use crate::batch::{Batch, Space};
use crate::codec::{Reader, RecordError, VERSION, put_number, put_string};
use crate::error::StoreError;
use crate::store::Kv;

/// What the keys of users begin with.
pub const USERS: &[u8] = b"user:";
/// What the keys of roles begin with.
pub const ROLES: &[u8] = b"role:";
/// What the keys of bans begin with.
pub const BANS: &[u8] = b"ban:";

/// Bytes of the name of a user, a role or a banned one. A key has room for many times that.
pub const NAME_BYTES_MAX: usize = 1_024;

/// A user who may connect with a password.
#[derive(Clone, PartialEq, Eq)]
pub struct User {
    /// The hash of the password, as in a password file.
    pub hash: String,
}

/// What some clients may do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Role {
    /// Whether every client has it.
    pub everyone: bool,
    /// Whether clients without a user name have it.
    pub anonymous: bool,
    /// Users that have it, each once, in ascending order.
    pub users: Vec<String>,
    /// Its rules, each once, in the order in which they were added.
    pub rules: Vec<RoleRule>,
}

/// A rule of a role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoleRule {
    /// Whether it denies.
    pub denies: bool,
    /// Actions, a blank, and a topic filter.
    pub text: String,
}

/// Whom a ban is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Banned {
    /// An address, or a network as `ADDRESS/BITS`.
    Address(String),
    /// A client id.
    Client(String),
    /// A user.
    User(String),
}

/// A ban. Times are milliseconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ban {
    /// When it was made.
    pub since_ms: u64,
    /// When it ends; none: when it is removed.
    pub until_ms: Option<u64>,
    /// Why, for people; may be empty.
    pub reason: String,
}

/// One record of the three kinds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// Of this name.
    User(String, User),
    /// Of this name.
    Role(String, Role),
    /// Of this client, user or address.
    Ban(Banned, Ban),
}

impl fmt::Debug for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("User").finish_non_exhaustive()
    }
}

impl User {
    /// The value in bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        put_string(&mut out, self.hash.as_bytes());
        out
    }

    /// Reads a value.
    pub fn decode(bytes: &[u8]) -> Result<Self, RecordError> {
        let mut reader = Reader::versioned(bytes)?;
        let hash = reader.text("hash")?.to_owned();
        reader.end()?;
        Ok(Self { hash })
    }
}

impl Role {
    /// The value in bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        let everyone = u8::from(self.everyone) * EVERYONE;
        out.push(everyone | (u8::from(self.anonymous) * ANONYMOUS));
        put_number(&mut out, self.users.len() as u64);
        for user in &self.users {
            put_string(&mut out, user.as_bytes());
        }
        for rule in &self.rules {
            out.push(u8::from(rule.denies));
            put_string(&mut out, rule.text.as_bytes());
        }
        out
    }

    /// Reads a value.
    pub fn decode(bytes: &[u8]) -> Result<Self, RecordError> {
        let mut reader = Reader::versioned(bytes)?;
        let flags = reader.byte("flags")?;
        if flags & !(EVERYONE | ANONYMOUS) != 0 {
            return Err(meaningless("flags", flags));
        }
        let count: usize = reader.small("count of users")?;
        let mut users: Vec<String> = Vec::with_capacity(count.min(reader.len()));
        for _ in 0..count {
            let user = name(reader.text("user")?)?;
            if users.last().is_some_and(|last| *last >= user) {
                return Err(RecordError::Number("users"));
            }
            users.push(user);
        }
        let mut rules = Vec::new();
        while reader.len() > 0 {
            let denies = match reader.byte("effect")? {
                0 => false,
                1 => true,
                value => return Err(meaningless("effect", value)),
            };
            let text = reader.text("rule")?.to_owned();
            rules.push(RoleRule { denies, text });
        }
        Ok(Self {
            everyone: flags & EVERYONE != 0,
            anonymous: flags & ANONYMOUS != 0,
            users,
            rules,
        })
    }
}

impl Ban {
    /// The value in bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        put_number(&mut out, self.since_ms);
        put_number(&mut out, self.until_ms.unwrap_or(0));
        put_string(&mut out, self.reason.as_bytes());
        out
    }

    /// Reads a value.
    pub fn decode(bytes: &[u8]) -> Result<Self, RecordError> {
        let mut reader = Reader::versioned(bytes)?;
        let since_ms = reader.number("beginning")?;
        let until_ms = Some(reader.number("end")?).filter(|until| *until != 0);
        let reason = reader.text("reason")?.to_owned();
        reader.end()?;
        Ok(Self {
            since_ms,
            until_ms,
            reason,
        })
    }
}

impl Banned {
    /// The kind, as a word.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Address(_) => "address",
            Self::Client(_) => "client",
            Self::User(_) => "user",
        }
    }

    /// The address, client id or user.
    pub fn name(&self) -> &str {
        match self {
            Self::Address(name) | Self::Client(name) | Self::User(name) => name,
        }
    }
}

/// The key of a user.
pub fn user_key(name: &str) -> Vec<u8> {
    [USERS, name.as_bytes()].concat()
}

/// The key of a role.
pub fn role_key(name: &str) -> Vec<u8> {
    [ROLES, name.as_bytes()].concat()
}

/// The key of a ban.
pub fn ban_key(banned: &Banned) -> Vec<u8> {
    let kind = match banned {
        Banned::Address(_) => ADDRESS,
        Banned::Client(_) => CLIENT,
        Banned::User(_) => USER,
    };
    [BANS, &[kind], banned.name().as_bytes()].concat()
}

impl Record {
    /// Reads a key and its value; none if the key is of another kind.
    pub fn decode(key: &[u8], value: &[u8]) -> Result<Option<Self>, RecordError> {
        let text = |bytes| str::from_utf8(bytes).map_err(|_| RecordError::Text("name"));
        if let Some(user) = key.strip_prefix(USERS) {
            let user = name(text(user)?)?;
            return Ok(Some(Self::User(user, User::decode(value)?)));
        }
        if let Some(role) = key.strip_prefix(ROLES) {
            let role = name(text(role)?)?;
            return Ok(Some(Self::Role(role, Role::decode(value)?)));
        }
        let Some(banned) = key.strip_prefix(BANS) else {
            return Ok(None);
        };
        let (kind, banned) = banned.split_first().ok_or(RecordError::Short("kind"))?;
        let banned = name(text(banned)?)?;
        let banned = match *kind {
            ADDRESS => Banned::Address(banned),
            CLIENT => Banned::Client(banned),
            USER => Banned::User(banned),
            kind => return Err(meaningless("kind", kind)),
        };
        Ok(Some(Self::Ban(banned, Ban::decode(value)?)))
    }

    /// Its key.
    pub fn key(&self) -> Vec<u8> {
        match self {
            Self::User(name, _) => user_key(name),
            Self::Role(name, _) => role_key(name),
            Self::Ban(banned, _) => ban_key(banned),
        }
    }

    /// Adds it to a batch, in place of what is at its key.
    pub fn put(&self, batch: &mut Batch) {
        let value = match self {
            Self::User(_, user) => user.encode(),
            Self::Role(_, role) => role.encode(),
            Self::Ban(_, ban) => ban.encode(),
        };
        batch.put(Space::Control, self.key(), value);
    }
}

/// Calls `take` with each user, role and ban of a store.
pub fn each<S: Kv + ?Sized>(store: &S, mut take: impl FnMut(Record)) -> Result<(), StoreError> {
    for prefix in [USERS, ROLES, BANS] {
        let mut after: Option<Vec<u8>> = None;
        loop {
            let page = store.scan(Space::Control, prefix, after.as_deref(), PIECE_BYTES)?;
            for pair in &page.pairs {
                let place = || format!("key {}", pair.key.escape_ascii());
                let record = Record::decode(&pair.key, &pair.value.bytes);
                let record = record.map_err(|error| StoreError::record(place(), &error))?;
                record.into_iter().for_each(&mut take);
            }
            after = page.pairs.into_iter().next_back().map(|pair| pair.key);
            if !page.more || after.is_none() {
                break;
            }
        }
    }
    Ok(())
}

fn name(text: &str) -> Result<String, RecordError> {
    if text.is_empty() || text.len() > NAME_BYTES_MAX {
        return Err(RecordError::Text("name"));
    }
    Ok(text.to_owned())
}

const fn meaningless(field: &'static str, value: u8) -> RecordError {
    RecordError::Meaningless {
        field,
        value: value as u64,
    }
}

const EVERYONE: u8 = 1;
const ANONYMOUS: u8 = 2;
const ADDRESS: u8 = b'a';
const CLIENT: u8 = b'c';
const USER: u8 = b'u';
/// Bytes of records that are read at a time.
const PIECE_BYTES: usize = 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Memory;
    use crate::store::Store;

    fn samples() -> Vec<Record> {
        let role = Role {
            everyone: false,
            anonymous: true,
            users: vec!["ann".into(), "bob".into()],
            rules: vec![RoleRule {
                denies: true,
                text: "publish a/#".into(),
            }],
        };
        let ban = Ban {
            since_ms: 1_790_000_000_000,
            until_ms: Some(1_790_000_060_000),
            reason: "it is broken".into(),
        };
        let forever = Ban {
            until_ms: None,
            reason: String::new(),
            ..ban
        };
        let hash = "$7$101$c2FsdHNhbHRzYWx0$AA==".into();
        vec![
            Record::User("ann".into(), User { hash }),
            Record::Role("crew".into(), role),
            Record::Role("none".into(), Role::default()),
            Record::Ban(Banned::Address("10.0.0.0/8".into()), ban.clone()),
            Record::Ban(Banned::Client("pump".into()), ban),
            Record::Ban(Banned::User("eve".into()), forever),
        ]
    }

    #[test]
    fn records_are_found_as_they_were_written() {
        let store = Memory::new();
        let mut batch = Batch::new();
        batch.put(Space::Control, b"runs".to_vec(), vec![VERSION]);
        for record in samples() {
            record.put(&mut batch);
        }
        assert!(store.commit(&[batch]).unwrap()[0].is_ok());
        let mut found = Vec::new();
        each(&store, |record| found.push(record)).unwrap();
        assert_eq!(found, samples());
    }

    #[test]
    fn a_value_that_is_cut_or_has_a_byte_too_many_is_refused() {
        for record in samples() {
            let mut batch = Batch::new();
            record.put(&mut batch);
            let [crate::Operation::Put { key, value, .. }] = batch.operations() else {
                panic!("{record:?}");
            };
            Record::decode(key, &[value.as_slice(), &[7]].concat()).unwrap_err();
            // A role may end behind each of its rules.
            let cut = &value[..value.len() - 1];
            Record::decode(key, cut).unwrap_err();
        }
    }

    #[test]
    fn what_would_not_have_been_written_is_refused() {
        let decode = |key: &[u8], value: &[u8]| Record::decode(key, value).map(drop);
        let user = User { hash: "$".into() }.encode();
        decode(b"user:a", &user).unwrap();
        decode(b"user:", &user).unwrap_err();
        decode(&user_key(&"a".repeat(NAME_BYTES_MAX + 1)), &user).unwrap_err();
        decode(b"user:\xff", &user).unwrap_err();
        decode(b"role:a", &[VERSION, 4, 0]).unwrap_err();
        decode(b"role:a", &[VERSION, 0, 2, 1, b'b', 1, b'a']).unwrap_err();
        decode(b"role:a", &[VERSION, 0, 0, 2, 1, b'a']).unwrap_err();
        decode(b"ban:", &[VERSION, 0, 0, 0]).unwrap_err();
        decode(b"ban:xpump", &[VERSION, 0, 0, 0]).unwrap_err();
        assert_eq!(Record::decode(b"runs", &[VERSION]), Ok(None));
    }

    #[test]
    fn a_hash_is_not_printed() {
        let hash = "secret".to_owned();
        assert_eq!(format!("{:?}", User { hash }), "User { .. }");
    }
}
