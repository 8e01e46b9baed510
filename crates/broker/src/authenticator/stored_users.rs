//! Users of the store, as a source of a listener's authentication.
//!
//! [`StoredUsers::find`] answers at once whether a name is one of them; whether the password is
//! right says the entry, on a verifier's thread. A name that is not here is another source's.
//!
//! Invariants:
//! - A changed user counts for each CONNECT that is decided afterwards, on all shards.
//! - The lock is held for a look only.
//!
//! Deliberately absent: the store itself ([`crate::stored_access`]).

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::passwords::{Entry, Generation, number_of};
use crate::scram::ScramHash;

/// The users of the store; one for all listeners and shards.
#[derive(Debug, Default)]
pub(crate) struct StoredUsers {
    table: RwLock<Table>,
    /// Chooses the stand-in for an unknown name.
    stand_in: RandomState,
}

#[derive(Debug, Default)]
struct Table {
    entries: Vec<(Box<str>, Entry)>,
    positions: HashMap<Box<str>, usize>,
    /// Of all of them together, in whatever order they came.
    generation: Generation,
}

impl StoredUsers {
    /// What the password of this user is compared with; `None`: it is not one of them.
    pub(crate) fn find(&self, user: &str) -> Option<Entry> {
        let table = self.read();
        let position = *table.positions.get(user)?;
        table.entries.get(position).map(|(_, entry)| entry.clone())
    }

    /// What the password of a name is compared with that is nobody's, so that it costs as much:
    /// the entry at this position, of as many as there are.
    pub(super) fn stand_in(&self, position: usize) -> Option<Entry> {
        let table = self.read();
        let (_, entry) = table.entries.get(position)?;
        Some(entry.as_stand_in())
    }

    /// The position of a stand-in among so many entries, always the same for the same name.
    pub(super) fn stand_in_for(&self, user: &str, entries: usize) -> usize {
        let entries = entries.max(1) as u64;
        usize::try_from(self.stand_in.hash_one(user) % entries).unwrap_or(0)
    }

    /// The entry whose cost a stand-in for SCRAM shows; `None`: none near it has keys for this
    /// hash.
    pub(super) fn scram_stand_in(&self, hash: ScramHash, secret: &[u8]) -> Option<Entry> {
        let table = self.read();
        let count = table.entries.len();
        let first = number_of(secret) % count.max(1);
        let positions = (first..count).chain(0..first).take(STAND_INS_LOOKED_AT);
        let mut near = positions.filter_map(|position| table.entries.get(position));
        let (_, entry) = near.find(|(_, entry)| entry.has_scram_keys(hash))?;
        Some(entry.as_stand_in())
    }

    /// Names all users and their hashes: others have another generation.
    pub(super) fn generation(&self) -> Generation {
        self.read().generation.clone()
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.read().entries.len()
    }

    /// Adds a user, or gives it another hash. One that cannot be read fits no password.
    pub(crate) fn set(&self, user: &str, hash: &str) {
        let entry = Entry::of_user(hash);
        let mut table = self.write();
        let table = &mut *table;
        table.generation.mix(user, entry.generation());
        if let Some((_, old)) = table
            .positions
            .get(user)
            .and_then(|position| table.entries.get_mut(*position))
        {
            table.generation.mix(user, old.generation());
            *old = entry;
        } else {
            table.positions.insert(user.into(), table.entries.len());
            table.entries.push((user.into(), entry));
        }
    }

    /// Removes a user, if it is there.
    pub(crate) fn remove(&self, user: &str) {
        let mut table = self.write();
        let Some(position) = table.positions.remove(user) else {
            return;
        };
        let (_, removed) = table.entries.swap_remove(position);
        table.generation.mix(user, removed.generation());
        if let Some((moved, _)) = table.entries.get(position) {
            let moved = moved.clone();
            table.positions.insert(moved, position);
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, Table> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Table> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Entries that are looked at for one that can serve SCRAM.
const STAND_INS_LOOKED_AT: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passwords::{Scheme, make_hash};

    #[test]
    fn a_user_is_found_until_it_is_removed_whoever_else_is() {
        let users = StoredUsers::default();
        let names = ["ann", "bob", "carol", "dave"];
        for name in names {
            users.set(name, "$7$1$AAAA$");
        }
        for (gone, name) in names.into_iter().enumerate() {
            let known = names.map(|name| users.find(name).is_some());
            assert!(known.iter().enumerate().all(|(at, is)| *is == (at >= gone)));
            users.remove(name);
            users.remove(name);
            assert_eq!(users.len(), names.len() - gone - 1);
        }
    }

    #[test]
    fn the_last_password_of_a_user_is_the_one_that_fits() {
        let users = StoredUsers::default();
        let hash = |password: &[u8]| make_hash(password, Scheme::Pbkdf2).unwrap();
        users.set("ann", &hash(b"old"));
        let before = users.find("ann").unwrap();
        users.set("ann", &hash(b"new"));
        let entry = users.find("ann").unwrap();
        assert!(entry.verify(b"new") && !entry.verify(b"old"));
        assert!(before.generation() != entry.generation());
        assert!(!users.stand_in(0).unwrap().verify(b"new"));
        users.set("eve", "no hash");
        assert!(!users.find("eve").unwrap().verify(b"no hash"));
    }
}
