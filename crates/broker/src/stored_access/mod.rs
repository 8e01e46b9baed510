//! Users, roles and bans in the store: what is there, and how commands change it.
//!
//! ```text
//! Change ── plan ──▶ edits ── batch ──▶ store
//!                      └──── apply ───▶ this value, and what is in force by it
//! ```
//!
//! A running broker changes its store by this, and a command the store of a broker that does not
//! run. A role that nobody has is not in force, so that its rules can be written first.
//!
//! Deliberately absent: who waits for the disk, and what changes for clients that are connected
//! (`handle`).

mod change;

use std::collections::BTreeMap;

use unbroken_broker_core::{self as core, Ceiling, Effect, Member, Rule};
use unbroken_store::access::{self, Record};
pub use unbroken_store::access::{Ban, Banned, Role, RoleRule, User};
use unbroken_store::{Batch, Kv, Space, StoreError};

pub use self::change::{BanTarget, Change, ChangeError, Hash, Holder};
use crate::config::{RoleError, rule_of};

/// What commands have put into a store about users.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredAccess {
    users: BTreeMap<String, User>,
    roles: BTreeMap<String, Role>,
    bans: BTreeMap<Banned, Ban>,
}

/// One record that changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Edit {
    /// It is written, in place of the one before.
    Put(Record),
    /// No such user any more.
    RemoveUser(String),
    /// No such role any more.
    RemoveRole(String),
    /// No such ban any more.
    RemoveBan(Banned),
}

impl StoredAccess {
    /// Reads what is in a store.
    pub fn load<V: Kv + ?Sized>(view: &V) -> Result<Self, StoreError> {
        let mut loaded = Self::default();
        access::each(view, |record| loaded.put(record))?;
        Ok(loaded)
    }

    /// The users, by their names.
    pub const fn users(&self) -> &BTreeMap<String, User> {
        &self.users
    }

    /// The roles, by their names.
    pub const fn roles(&self) -> &BTreeMap<String, Role> {
        &self.roles
    }

    /// The bans; some of them may have ended.
    pub const fn bans(&self) -> &BTreeMap<Banned, Ban> {
        &self.bans
    }

    /// Names of the roles that this user has itself.
    pub fn roles_of<'a>(&'a self, user: &'a str) -> impl Iterator<Item = &'a str> {
        let has = move |(_, role): &(&String, &Role)| role.users.iter().any(|it| it == user);
        let roles = self.roles.iter().filter(has);
        roles.map(|(name, _)| name.as_str())
    }

    /// Makes these edits.
    pub fn apply(&mut self, edits: &[Edit]) {
        for edit in edits {
            match edit {
                Edit::Put(record) => self.put(record.clone()),
                Edit::RemoveUser(name) => drop(self.users.remove(name)),
                Edit::RemoveRole(name) => drop(self.roles.remove(name)),
                Edit::RemoveBan(banned) => drop(self.bans.remove(banned)),
            }
        }
    }

    fn put(&mut self, record: Record) {
        match record {
            Record::User(name, user) => drop(self.users.insert(name, user)),
            Record::Role(name, role) => drop(self.roles.insert(name, role)),
            Record::Ban(banned, ban) => drop(self.bans.insert(banned, ban)),
        }
    }

    /// The same once these edits are made.
    pub(crate) fn core_roles_with(&self, edits: &[Edit]) -> Result<Vec<core::Role>, RoleError> {
        let mut roles = Self {
            roles: self.roles.clone(),
            ..Self::default()
        };
        let of_roles = edits.iter().filter(|edit| edit.is_of_role()).cloned();
        roles.apply(&of_roles.collect::<Vec<_>>());
        roles.core_roles()
    }

    /// The roles that somebody has, as the core knows them.
    pub(crate) fn core_roles(&self) -> Result<Vec<core::Role>, RoleError> {
        let held = self.roles.iter().filter(|(_, role)| is_held(role));
        held.map(|(name, role)| core_role(name, role)).collect()
    }
}

impl Edit {
    /// The changes of a store that these make, together or not at all.
    pub fn batch(edits: &[Self]) -> Batch {
        let mut batch = Batch::new();
        for edit in edits {
            let key = match edit {
                Self::Put(record) => {
                    record.put(&mut batch);
                    continue;
                }
                Self::RemoveUser(name) => access::user_key(name),
                Self::RemoveRole(name) => access::role_key(name),
                Self::RemoveBan(banned) => access::ban_key(banned),
            };
            batch.delete(Space::Control, key);
        }
        batch
    }

    /// Whether other access rules hold by it.
    pub(crate) const fn is_of_role(&self) -> bool {
        matches!(self, Self::Put(Record::Role(..)) | Self::RemoveRole(_))
    }
}

/// Whether some client may have it.
const fn is_held(role: &Role) -> bool {
    role.everyone || role.anonymous || !role.users.is_empty()
}

fn core_role(name: &str, role: &Role) -> Result<core::Role, RoleError> {
    let mut members: Vec<_> = role.users.iter().map(|user| Member::user(user)).collect();
    members.extend(role.anonymous.then_some(Member::ANONYMOUS));
    if role.everyone {
        members = vec![Member::ANYBODY];
    }
    let rules = role.rules.iter().map(core_rule);
    Ok(core::Role {
        name: name.into(),
        members,
        connect: Effect::Allow,
        ceiling: Ceiling::NONE,
        client_id: None,
        rules: rules.collect::<Result<_, _>>()?,
        mount_point: None,
    })
}

fn core_rule(rule: &RoleRule) -> Result<Rule, RoleError> {
    let (key, effect) = if rule.denies {
        ("deny", Effect::Deny)
    } else {
        ("allow", Effect::Allow)
    };
    rule_of(key, effect, &rule.text, ORIGIN)
}

/// Where a rule of the store is written, for explanations.
const ORIGIN: &str = "the store";
