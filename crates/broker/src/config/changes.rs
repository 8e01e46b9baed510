//! The differences between two configurations, and the configuration in force after a reload.

use std::fmt;

use super::gateways::GATEWAYS;
use super::http_auth::{HTTP_AUTH, HTTP_AUTH_KEYS};
use super::rates::{RATE_KEYS, RATES};
use super::table::{Key, SECTIONS};
use super::table_arrays::{LISTENER_KEYS, LISTENERS, ROLE_KEYS, ROLES, RULES};
use super::tokens::{JWT, JWT_KEYS};
use super::{Config, HttpAuth, Jwt, Listener, RateRule, Role};

/// When a changed value takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applies {
    /// At once.
    Live,
    /// After a restart.
    Restart,
}

/// One value that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// `section.key`, `listeners.0.key`, or `listeners.1` for a whole table.
    pub name: String,
    /// As it would stand in a config file; empty for a table that was not there.
    pub old: String,
    /// As it would stand in a config file; empty for a table that is gone.
    pub new: String,
    /// When it takes effect.
    pub applies: Applies,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            name,
            old,
            new,
            applies,
        } = self;
        match (old.is_empty(), new.is_empty()) {
            (true, _) => write!(f, "{name}: {new} added")?,
            (_, true) => write!(f, "{name}: {old} removed")?,
            _ => write!(f, "{name}: {old} -> {new}")?,
        }
        match applies {
            Applies::Live => write!(f, " (applied)"),
            Applies::Restart => write!(f, " (needs a restart)"),
        }
    }
}

/// The configuration in force once `read` is applied to a broker that runs with `running`: values
/// that need a restart stay. The listeners are those of `read`; the server knows which ones are
/// open.
pub(crate) fn in_force(running: &Config, mut read: Config) -> Config {
    read.audit.rules.clone_from(&running.audit.rules);
    read.gateways.clone_from(&running.gateways);
    for key in SECTIONS.iter().flat_map(|section| section.keys) {
        if key.applies == Applies::Restart {
            let fits = (key.set)(&mut read, (key.get)(running));
            debug_assert!(fits, "a value that came from the field fits it");
        }
    }
    read
}

/// Everything that differs, in the order of the table.
pub fn changes(old: &Config, new: &Config) -> Vec<Change> {
    let address = |listener: &Listener| listener.address().to_string();
    let (was, is) = (&old.listeners, &new.listeners);
    // One that no open listener can become stands still until the restart, with all its keys.
    let can_apply = |listener: &Listener| was.iter().any(|open| open.can_become(listener));
    let whole = (Applies::Restart, address);
    let mut changes = table_changes(LISTENERS, LISTENER_KEYS, was, is, whole, can_apply);
    let name = |role: &Role| role.name.clone().unwrap_or_else(|| "a role".to_owned());
    let (was, is) = (&old.roles, &new.roles);
    let whole = (Applies::Live, name);
    let roles = table_changes(ROLES, ROLE_KEYS, was, is, whole, |_| true);
    changes.extend(roles);
    let name = |rate: &RateRule| rate.name.clone().unwrap_or_else(|| "a rate".to_owned());
    let (was, is) = (&old.rates, &new.rates);
    let whole = (Applies::Live, name);
    let rates = table_changes(RATES, RATE_KEYS, was, is, whole, |_| true);
    changes.extend(rates);
    let name = |jwt: &Jwt| jwt.name.clone();
    let whole = (Applies::Live, name);
    let jwt = table_changes(JWT, JWT_KEYS, &old.jwt, &new.jwt, whole, |_| true);
    changes.extend(jwt);
    let name = |hook: &HttpAuth| hook.name.clone();
    let (was, is) = (&old.http_auth, &new.http_auth);
    let whole = (Applies::Live, name);
    let hooks = table_changes(HTTP_AUTH, HTTP_AUTH_KEYS, was, is, whole, |_| true);
    changes.extend(hooks);
    let rules = |config: &Config| format!("{} rules", config.audit.rules.len());
    if old.audit.rules != new.audit.rules {
        changes.push(Change {
            name: RULES.to_owned(),
            old: rules(old),
            new: rules(new),
            applies: Applies::Restart,
        });
    }
    let gateways = |config: &Config| format!("{} gateways", config.gateways.len());
    if old.gateways != new.gateways {
        changes.push(Change {
            name: GATEWAYS.to_owned(),
            old: gateways(old),
            new: gateways(new),
            applies: Applies::Restart,
        });
    }
    for section in SECTIONS {
        for key in section.keys {
            let (old, new) = ((key.get)(old), (key.get)(new));
            if old != new {
                changes.push(Change {
                    name: format!("{}.{}", section.name, key.name),
                    old: key.kind.show(&old),
                    new: key.kind.show(&new),
                    applies: key.applies,
                });
            }
        }
    }
    changes
}

/// What differs in an array of tables. `whole`: when a whole table that is new or gone takes
/// effect, and what it is called. `can_apply`: whether keys of a table can take effect before a
/// restart.
fn table_changes<T>(
    section: &str,
    keys: &[Key<T>],
    old: &[T],
    new: &[T],
    (whole, called): (Applies, impl Fn(&T) -> String),
    can_apply: impl Fn(&T) -> bool,
) -> Vec<Change> {
    let mut changes = Vec::new();
    for index in 0..old.len().max(new.len()) {
        let (old, new) = match (old.get(index), new.get(index)) {
            (Some(old), Some(new)) => (old, new),
            (old, new) => {
                changes.push(Change {
                    name: format!("{section}.{index}"),
                    old: old.map_or(String::new(), &called),
                    new: new.map_or(String::new(), &called),
                    applies: whole,
                });
                continue;
            }
        };
        let can_apply = can_apply(new);
        for key in keys {
            let (old, new) = ((key.get)(old), (key.get)(new));
            if old != new {
                changes.push(Change {
                    name: format!("{section}.{index}.{}", key.name),
                    old: key.kind.show(&old),
                    new: key.kind.show(&new),
                    applies: if can_apply {
                        key.applies
                    } else {
                        Applies::Restart
                    },
                });
            }
        }
    }
    changes
}
