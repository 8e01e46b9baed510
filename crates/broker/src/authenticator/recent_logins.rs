//! Logins that succeeded a short time ago, so that a fleet that comes back is not hashed again.
//!
//! Remembered is HMAC-SHA-256, under a random key of this start, of user name, password, listener
//! and the content of the password file. So nothing here can be tried offline without the key, and
//! a changed file, another listener or a restart finds nothing.
//!
//! Invariants:
//! - Only what a full verification has accepted is remembered, and a use does not prolong it.
//! - Fields are prefixed with their lengths: no two logins have the same input.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::bounds::{RECENT_LOGIN_TIME, RECENT_LOGINS};
use crate::passwords::Generation;

/// Shared by the shards and the verifiers. The lock is held only for a look.
pub(super) struct RecentLogins {
    mac: Hmac<Sha256>,
    table: Mutex<Table>,
}

/// What a login is remembered by. No `Debug`: it is made of a password.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct LoginTag([u8; 32]);

/// What a client has shown, and where.
pub(super) struct Login<'a> {
    pub(super) user: &'a str,
    pub(super) password: &'a [u8],
    pub(super) listener: u16,
    pub(super) generation: &'a Generation,
}

#[derive(Default)]
struct Table {
    until: HashMap<LoginTag, Instant>,
    /// In the order in which they end.
    order: VecDeque<LoginTag>,
}

impl RecentLogins {
    pub(super) fn new(key: [u8; 32]) -> Self {
        Self {
            mac: Hmac::new(&block(key).into()),
            table: Mutex::default(),
        }
    }

    pub(super) fn tag(&self, login: &Login<'_>) -> LoginTag {
        self.tag_of(&[
            login.user.as_bytes(),
            login.password,
            &login.listener.to_le_bytes(),
            login.generation.as_bytes(),
        ])
    }

    /// Names these fields, in their order.
    pub(super) fn tag_of(&self, fields: &[&[u8]]) -> LoginTag {
        let mut mac = self.mac.clone();
        for field in fields {
            mac.update(&(field.len() as u64).to_le_bytes());
            mac.update(field);
        }
        LoginTag(mac.finalize().into_bytes().into())
    }

    pub(super) fn knows(&self, tag: LoginTag, now: Instant) -> bool {
        let until = self.lock().until.get(&tag).copied();
        until.is_some_and(|until| now < until)
    }

    /// Remembers a login that was verified now. With a full table the oldest is forgotten.
    pub(super) fn remember(&self, tag: LoginTag, now: Instant) {
        self.lock().insert(tag, now);
    }

    /// It must be verified in full the next time.
    pub(super) fn forget(&self, tag: LoginTag) {
        self.lock().until.remove(&tag);
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn insert(&mut self, tag: LoginTag, now: Instant) {
        while let Some(oldest) = self.order.front()
            && (self.order.len() >= RECENT_LOGINS
                || self.until.get(oldest).is_none_or(|until| *until <= now))
        {
            self.until.remove(oldest);
            self.order.pop_front();
        }
        // Two verifiers may have had the same login: the first one counts.
        if let std::collections::hash_map::Entry::Vacant(entry) = self.until.entry(tag) {
            entry.insert(now + RECENT_LOGIN_TIME);
            self.order.push_back(tag);
        }
    }
}

impl fmt::Debug for RecentLogins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecentLogins").finish_non_exhaustive()
    }
}

impl fmt::Debug for LoginTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoginTag").finish_non_exhaustive()
    }
}

/// A key shorter than a block of SHA-256 is filled up with zeros (RFC 2104).
fn block(key: [u8; 32]) -> [u8; 64] {
    let mut block = [0; 64];
    block[..32].copy_from_slice(&key);
    block
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn tag(memory: &RecentLogins, user: &str, password: &[u8], listener: u16) -> LoginTag {
        let generation = &Generation::of("alice:x");
        memory.tag(&Login {
            user,
            password,
            listener,
            generation,
        })
    }

    #[test]
    fn a_login_is_known_for_ten_minutes_and_a_use_does_not_prolong_it() {
        let (memory, now) = (RecentLogins::new([1; 32]), Instant::now());
        let alice = tag(&memory, "alice", b"secret", 0);
        assert!(!memory.knows(alice, now));
        memory.remember(alice, now);
        let minutes = |minutes| now + Duration::from_mins(minutes);
        assert!(memory.knows(alice, minutes(9)));
        memory.remember(alice, minutes(9));
        assert!(!memory.knows(alice, minutes(10)));
        memory.remember(alice, minutes(10));
        assert!(memory.knows(alice, minutes(19)));
    }

    #[test]
    fn another_user_password_listener_file_or_key_is_not_known() {
        let (memory, now) = (RecentLogins::new([1; 32]), Instant::now());
        memory.remember(tag(&memory, "ab", b"cd", 0), now);
        assert!(memory.knows(tag(&memory, "ab", b"cd", 0), now));
        for (user, password, listener) in [
            ("a", &b"bcd"[..], 0),
            ("abc", b"d", 0),
            ("ab", b"cD", 0),
            ("ab", b"", 0),
            ("ab", b"cd", 1),
        ] {
            let other = tag(&memory, user, password, listener);
            assert!(!memory.knows(other, now), "{user} {password:?} {listener}");
        }
        let generation = &Generation::of("alice:y");
        let changed = memory.tag(&Login {
            user: "ab",
            password: b"cd",
            listener: 0,
            generation,
        });
        assert!(!memory.knows(changed, now));
        let restarted = RecentLogins::new([2; 32]);
        assert!(!memory.knows(tag(&restarted, "ab", b"cd", 0), now));
    }

    #[test]
    fn a_full_table_forgets_the_oldest() {
        let (memory, now) = (RecentLogins::new([1; 32]), Instant::now());
        let tags: Vec<_> = (0..=RECENT_LOGINS)
            .map(|n| tag(&memory, &n.to_string(), b"", 0))
            .collect();
        for tag in &tags {
            memory.remember(*tag, now);
        }
        let known = tags.iter().filter(|tag| memory.knows(**tag, now)).count();
        assert_eq!(known, RECENT_LOGINS);
        assert!(!memory.knows(tags[0], now));
        let table = memory.lock();
        assert_eq!([table.until.len(), table.order.len()], [RECENT_LOGINS; 2]);
    }

    #[test]
    fn the_mac_is_hmac_sha_256() {
        // RFC 4231, test case 1, with the key filled up to 32 bytes.
        let mut key = [0; 32];
        key[..20].fill(0x0b);
        let mut mac: Hmac<Sha256> = Hmac::new(&block(key).into());
        mac.update(b"Hi There");
        let bytes = mac.finalize().into_bytes();
        assert_eq!(bytes[..4], [0xb0, 0x34, 0x4c, 0x61]);
    }

    #[test]
    fn no_secret_can_be_printed() {
        let memory = RecentLogins::new([1; 32]);
        let tag = tag(&memory, "alice", b"secret", 0);
        assert_eq!(
            format!("{memory:?} {tag:?}"),
            "RecentLogins { .. } LoginTag { .. }"
        );
    }
}
