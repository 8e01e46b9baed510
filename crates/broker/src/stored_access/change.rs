//! Changes of what the store has about users, and whether they can be made.
//!
//! Invariant: what is planned can be read by the broker: hashes, rules and networks are checked
//! before.

use std::fmt;

use serde::{Deserialize, Serialize};
use unbroken_store::access::{Ban, Banned, NAME_BYTES_MAX, Record, Role, RoleRule, User};

use super::{Edit, StoredAccess, core_rule};
use crate::bounds::{STORED_BANS, STORED_MEMBERS, STORED_ROLES, STORED_RULES, STORED_USERS};
use crate::config::{Network, RoleError};
use crate::passwords::{self, HashError};

/// A change that a command asks for.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[expect(missing_docs, reason = "the fields are what the commands take")]
pub enum Change {
    /// A new user.
    AddUser { name: String, hash: Hash },
    /// Another password.
    SetPassword { name: String, hash: Hash },
    /// No such user any more, and none of its roles.
    RemoveUser { name: String },
    /// A new role, which nobody has.
    AddRole { name: String },
    /// No such role any more.
    RemoveRole { name: String },
    /// One more rule of a role.
    AddRule {
        role: String,
        denies: bool,
        text: String,
    },
    /// One rule of a role less.
    RemoveRule {
        role: String,
        denies: bool,
        text: String,
    },
    /// These clients have the role, too.
    Grant { role: String, to: Holder },
    /// These clients have it no longer.
    Revoke { role: String, from: Holder },
    /// These clients may not connect until then; in place of a ban of the same.
    Ban {
        target: BanTarget,
        since_ms: u64,
        until_ms: Option<u64>,
        reason: String,
    },
    /// They may again.
    Unban { target: BanTarget },
}

/// The hash of a password. No `Debug`: it is a secret to be guessed at.
#[derive(Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Hash(pub String);

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hash").finish_non_exhaustive()
    }
}

/// Who has a role.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Holder {
    /// Every client.
    Everyone,
    /// Clients without a user name.
    Anonymous,
    /// A user, of whichever source.
    User(String),
}

/// Whom a ban is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BanTarget {
    /// An address or a network.
    Address(String),
    /// A client id.
    Client(String),
    /// A user, of whichever source.
    User(String),
}

/// Why a change cannot be made. Nothing is changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChangeError {
    /// There is one.
    #[error("there is a {what} `{name}` already{help}")]
    Exists {
        /// User, or role.
        what: &'static str,
        /// Its name.
        name: String,
        /// What to do.
        help: &'static str,
    },
    /// There is none.
    #[error("there is no {what} `{name}`")]
    Missing {
        /// User, role, rule or ban.
        what: &'static str,
        /// Its name.
        name: String,
    },
    /// The name cannot be used.
    #[error("a name has 1 to {NAME_BYTES_MAX} bytes, and no control characters")]
    Name,
    /// The hash cannot be read.
    #[error("{0}")]
    Hash(#[from] HashError),
    /// The rule cannot be read.
    #[error("{0}")]
    Rule(String),
    /// The address cannot be read.
    #[error("`{0}` is no IP address, and no network such as 10.0.0.0/8")]
    Address(String),
    /// As many as there can be.
    #[error("there are {most} {what}; there can be no more")]
    Full {
        /// Users, roles, rules or bans.
        what: &'static str,
        /// How many.
        most: usize,
    },
}

/// As the command line has it, without passwords.
impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let effect = |denies| if denies { "deny" } else { "allow" };
        match self {
            Self::AddUser { name, .. } => write!(f, "user add {name}"),
            Self::SetPassword { name, .. } => write!(f, "user passwd {name}"),
            Self::RemoveUser { name } => write!(f, "user remove {name}"),
            Self::AddRole { name } => write!(f, "role add {name}"),
            Self::RemoveRole { name } => write!(f, "role remove {name}"),
            Self::AddRule { role, denies, text } => {
                write!(f, "rule add {role} {} {text}", effect(*denies))
            }
            Self::RemoveRule { role, denies, text } => {
                write!(f, "rule remove {role} {} {text}", effect(*denies))
            }
            Self::Grant { role, to } => write!(f, "role grant {to} {role}"),
            Self::Revoke { role, from } => write!(f, "role revoke {from} {role}"),
            Self::Ban { target, .. } => write!(f, "ban add {target}"),
            Self::Unban { target } => write!(f, "ban remove {target}"),
        }
    }
}

/// As the command line has it.
impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Everyone => f.write_str("--everyone"),
            Self::Anonymous => f.write_str("--anonymous"),
            Self::User(name) => f.write_str(name),
        }
    }
}

/// As the command line has it.
impl fmt::Display for BanTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(name) => write!(f, "--address {name}"),
            Self::Client(name) => write!(f, "--client {name}"),
            Self::User(name) => write!(f, "--user {name}"),
        }
    }
}

impl From<RoleError> for ChangeError {
    fn from(error: RoleError) -> Self {
        Self::Rule(error.problem().to_owned())
    }
}

impl BanTarget {
    /// The addresses that it is about, if it is about addresses.
    pub(crate) fn network(&self) -> Option<Network> {
        match self {
            Self::Address(text) => text.parse().ok(),
            Self::Client(_) | Self::User(_) => None,
        }
    }

    /// As the store has it: a network in its shortest form.
    fn banned(&self) -> Result<Banned, ChangeError> {
        Ok(match self {
            Self::Address(text) => {
                let network: Result<Network, ()> = text.parse();
                let network = network.map_err(|()| ChangeError::Address(text.clone()))?;
                Banned::Address(network.to_string())
            }
            Self::Client(name) => Banned::Client(checked(name)?),
            Self::User(name) => Banned::User(checked(name)?),
        })
    }
}

impl StoredAccess {
    /// The edits that make this change.
    pub fn plan(&self, change: &Change) -> Result<Vec<Edit>, ChangeError> {
        match change {
            Change::AddUser { name, hash } => self.add_user(name, hash),
            Change::SetPassword { name, hash } => {
                self.user(name)?;
                Ok(vec![put_user(name, hash)?])
            }
            Change::RemoveUser { name } => self.remove_user(name),
            Change::AddRole { name } => self.add_role(name),
            Change::RemoveRole { name } => {
                self.role(name)?;
                Ok(vec![Edit::RemoveRole(name.clone())])
            }
            Change::AddRule { role, denies, text } => self.add_rule(role, *denies, text),
            Change::RemoveRule { role, denies, text } => self.remove_rule(role, *denies, text),
            Change::Grant { role, to } => self.grant(role, to),
            Change::Revoke { role, from } => self.revoke(role, from),
            Change::Ban {
                target,
                since_ms,
                until_ms,
                reason,
            } => {
                let ban = Ban {
                    since_ms: *since_ms,
                    until_ms: *until_ms,
                    reason: reason.clone(),
                };
                self.ban(target.banned()?, ban)
            }
            Change::Unban { target } => {
                let banned = target.banned()?;
                if !self.bans.contains_key(&banned) {
                    let name = format!("{} {}", banned.kind(), banned.name());
                    return Err(ChangeError::Missing {
                        what: "ban of",
                        name,
                    });
                }
                Ok(vec![Edit::RemoveBan(banned)])
            }
        }
    }

    fn add_user(&self, name: &str, hash: &Hash) -> Result<Vec<Edit>, ChangeError> {
        if self.users.contains_key(name) {
            return Err(ChangeError::Exists {
                what: "user",
                name: name.to_owned(),
                help: "; `unbroken user passwd` gives it another password",
            });
        }
        room("users", self.users.len(), STORED_USERS)?;
        Ok(vec![put_user(&checked(name)?, hash)?])
    }

    fn remove_user(&self, name: &str) -> Result<Vec<Edit>, ChangeError> {
        self.user(name)?;
        let roles = self.roles_of(name).map(|role| {
            let mut changed = self.role(role)?.clone();
            changed.users.retain(|user| user != name);
            Ok(put_role(role, changed))
        });
        let mut edits = roles.collect::<Result<Vec<_>, ChangeError>>()?;
        edits.push(Edit::RemoveUser(name.to_owned()));
        Ok(edits)
    }

    fn add_role(&self, name: &str) -> Result<Vec<Edit>, ChangeError> {
        if self.roles.contains_key(name) {
            return Err(ChangeError::Exists {
                what: "role",
                name: name.to_owned(),
                help: "",
            });
        }
        room("roles", self.roles.len(), STORED_ROLES)?;
        Ok(vec![put_role(&checked(name)?, Role::default())])
    }

    fn add_rule(&self, name: &str, denies: bool, text: &str) -> Result<Vec<Edit>, ChangeError> {
        let mut role = self.role(name)?.clone();
        let text = text.to_owned();
        let rule = RoleRule { denies, text };
        core_rule(&rule)?;
        let rules = self.roles.values().map(|role| role.rules.len()).sum();
        room("rules", rules, STORED_RULES)?;
        if !role.rules.contains(&rule) {
            role.rules.push(rule);
        }
        Ok(vec![put_role(name, role)])
    }

    fn remove_rule(&self, name: &str, denies: bool, text: &str) -> Result<Vec<Edit>, ChangeError> {
        let mut role = self.role(name)?.clone();
        let position = role
            .rules
            .iter()
            .position(|rule| rule.denies == denies && rule.text == text);
        let Some(position) = position else {
            let effect = if denies { "deny" } else { "allow" };
            return Err(ChangeError::Missing {
                what: "rule",
                name: format!("{effect} {text}"),
            });
        };
        role.rules.remove(position);
        Ok(vec![put_role(name, role)])
    }

    fn grant(&self, name: &str, to: &Holder) -> Result<Vec<Edit>, ChangeError> {
        let mut role = self.role(name)?.clone();
        match to {
            Holder::Everyone => role.everyone = true,
            Holder::Anonymous => role.anonymous = true,
            Holder::User(user) => {
                let user = checked(user)?;
                if let Err(place) = role.users.binary_search(&user) {
                    room("users of the role", role.users.len(), STORED_MEMBERS)?;
                    role.users.insert(place, user);
                }
            }
        }
        Ok(vec![put_role(name, role)])
    }

    fn revoke(&self, name: &str, from: &Holder) -> Result<Vec<Edit>, ChangeError> {
        let mut role = self.role(name)?.clone();
        let (had, who) = match from {
            Holder::Everyone => (std::mem::take(&mut role.everyone), "everyone".to_owned()),
            Holder::Anonymous => {
                let had = std::mem::take(&mut role.anonymous);
                (had, "clients without a user name".to_owned())
            }
            Holder::User(user) => {
                let place = role.users.binary_search(user);
                let removed = place.map(|place| role.users.remove(place));
                (removed.is_ok(), user.clone())
            }
        };
        if had {
            return Ok(vec![put_role(name, role)]);
        }
        Err(ChangeError::Missing {
            what: "holder of this role called",
            name: who,
        })
    }

    /// Bans that have ended are removed with the next one.
    fn ban(&self, banned: Banned, ban: Ban) -> Result<Vec<Edit>, ChangeError> {
        let has_ended =
            |(_, old): &(&Banned, &Ban)| old.until_ms.is_some_and(|it| it <= ban.since_ms);
        let ended = self.bans.iter().filter(has_ended);
        let mut edits: Vec<_> = ended.map(|(old, _)| Edit::RemoveBan(old.clone())).collect();
        let remaining = self.bans.len() - edits.len();
        if !self.bans.contains_key(&banned) {
            room("bans", remaining, STORED_BANS)?;
        }
        edits.push(Edit::Put(Record::Ban(banned, ban)));
        Ok(edits)
    }

    fn user(&self, name: &str) -> Result<&User, ChangeError> {
        self.users.get(name).ok_or_else(|| ChangeError::Missing {
            what: "user",
            name: name.to_owned(),
        })
    }

    fn role(&self, name: &str) -> Result<&Role, ChangeError> {
        self.roles.get(name).ok_or_else(|| ChangeError::Missing {
            what: "role",
            name: name.to_owned(),
        })
    }
}

fn put_user(name: &str, hash: &Hash) -> Result<Edit, ChangeError> {
    passwords::check_hash(&hash.0)?;
    let hash = hash.0.clone();
    Ok(Edit::Put(Record::User(name.to_owned(), User { hash })))
}

fn put_role(name: &str, role: Role) -> Edit {
    Edit::Put(Record::Role(name.to_owned(), role))
}

fn checked(name: &str) -> Result<String, ChangeError> {
    let is_usable =
        !name.is_empty() && name.len() <= NAME_BYTES_MAX && !name.chars().any(char::is_control);
    is_usable.then(|| name.to_owned()).ok_or(ChangeError::Name)
}

const fn room(what: &'static str, count: usize, most: usize) -> Result<(), ChangeError> {
    if count < most {
        return Ok(());
    }
    Err(ChangeError::Full { what, most })
}

#[cfg(test)]
mod tests {
    use unbroken_store::{Memory, Store};

    use super::*;

    const HASH: &str = "$argon2id$v=19$m=8,t=1,p=1$c2FsdHNhbHQ$AAAAAAAAAAAAAAAAAAAAAA";

    /// What a store has, and the store: they are the same.
    #[derive(Default)]
    struct Both {
        access: StoredAccess,
        store: Memory,
    }

    impl Both {
        fn change(&mut self, change: &Change) -> Result<(), String> {
            let edits = self
                .access
                .plan(change)
                .map_err(|error| error.to_string())?;
            self.access.apply(&edits);
            let done = self.store.commit(&[Edit::batch(&edits)]).unwrap();
            assert!(done[0].is_ok());
            assert_eq!(StoredAccess::load(&self.store).unwrap(), self.access);
            Ok(())
        }

        #[track_caller]
        fn refuses(&mut self, change: &Change, words: &str) {
            let error = self.change(change).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
    }

    fn name(name: &str) -> String {
        name.to_owned()
    }

    fn add_user(user: &str) -> Change {
        Change::AddUser {
            name: name(user),
            hash: Hash(name(HASH)),
        }
    }

    fn grant(role: &str, user: &str) -> Change {
        Change::Grant {
            role: name(role),
            to: Holder::User(name(user)),
        }
    }

    fn add_rule(role: &str, text: &str) -> Change {
        Change::AddRule {
            role: name(role),
            denies: false,
            text: name(text),
        }
    }

    #[test]
    fn what_is_changed_is_in_the_store() {
        let mut both = Both::default();
        both.change(&add_user("ann")).unwrap();
        both.refuses(&add_user("ann"), "there is a user `ann` already");
        both.change(&Change::AddRole { name: name("crew") })
            .unwrap();
        both.refuses(&add_rule("none", "publish a"), "there is no role `none`");
        both.refuses(&add_rule("crew", "write a"), "`write` is not publish");
        both.change(&add_rule("crew", "publish a")).unwrap();
        assert!(both.access.core_roles().unwrap().is_empty(), "nobody's");
        both.change(&grant("crew", "eve")).unwrap();
        both.change(&grant("crew", "ann")).unwrap();
        both.change(&grant("crew", "ann")).unwrap();
        assert_eq!(both.access.roles()["crew"].users, ["ann", "eve"]);
        assert_eq!(both.access.core_roles().unwrap().len(), 1);
        let remove = Change::RemoveUser { name: name("ann") };
        both.change(&remove).unwrap();
        both.refuses(&remove, "there is no user `ann`");
        assert_eq!(both.access.roles()["crew"].users, ["eve"]);
        let remove = Change::RemoveRule {
            role: name("crew"),
            denies: false,
            text: name("publish a"),
        };
        both.change(&remove).unwrap();
        both.refuses(&remove, "there is no rule `allow publish a`");
    }

    #[test]
    fn names_and_hashes_that_could_not_be_read_are_refused() {
        let mut both = Both::default();
        for wrong in ["", "a\nb", &"a".repeat(NAME_BYTES_MAX + 1)] {
            both.refuses(&add_user(wrong), "a name has 1 to");
        }
        let plain = Change::AddUser {
            name: name("ann"),
            hash: Hash(name("secret")),
        };
        both.refuses(&plain, "the password is not hashed");
        assert!(!format!("{plain:?}").contains("secret"));
    }

    #[test]
    fn a_ban_that_has_ended_goes_with_the_next_one() {
        let mut both = Both::default();
        let ban = |address: &str, since_ms, until_ms| Change::Ban {
            target: BanTarget::Address(name(address)),
            since_ms,
            until_ms,
            reason: String::new(),
        };
        both.refuses(&ban("10.0.0", 1, None), "is no IP address");
        both.change(&ban("::ffff:10.0.0.1", 1, Some(5))).unwrap();
        both.change(&ban("10.0.0.1", 2, Some(6))).unwrap();
        assert_eq!(both.access.bans().len(), 1, "the same address");
        both.change(&ban("10.0.0.2", 6, None)).unwrap();
        let banned: Vec<_> = both.access.bans().keys().map(Banned::name).collect();
        assert_eq!(banned, ["10.0.0.2"]);
        let target = BanTarget::Address(name("10.0.0.1"));
        both.refuses(
            &Change::Unban { target },
            "there is no ban of `address 10.0.0.1`",
        );
    }
}
