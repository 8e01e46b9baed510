//! The rates of the configuration: which of them a client has, and with which other clients.
//!
//! ```text
//! [[rates]] ── fits the client? ──▶ per client: the scope of its id, also when it connects again
//!                                   per user:   the scope of its user, for all shards
//!                                   all:        the scope of the table
//! ```
//!
//! Invariants:
//! - The scope of a user or client is forgotten only when none of its clients is connected, and it
//!   is as a new one would be; or when the broker remembers too many of them.
//! - The lock is held for a look only, and only where a client connects or the rules change.
//!
//! Deliberately absent: what happens at a rate (`unbroken-broker-core`).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use unbroken_broker_core::{Identity, RateLimits, RateScope};

use crate::bounds::{RATE_RULES, RATED_USERS};
use crate::config::{Listener, RateRule, RatedBy};

/// The rates in force, of all shards.
#[derive(Debug, Default)]
pub(crate) struct RateTable {
    rules: Box<[Rule]>,
    users: Mutex<UserScopes>,
    /// What it was made from.
    source: Source,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Source {
    rules: Vec<RateRule>,
    /// Names of the listeners, in the order in which they are numbered.
    listeners: Vec<Option<String>>,
}

/// A table of the configuration.
#[derive(Debug)]
struct Rule {
    /// Its position.
    number: u16,
    label: String,
    users: Vec<String>,
    roles: Vec<String>,
    /// `None`: all.
    listeners: Option<Vec<u16>>,
    limits: RateLimits,
    shared: Shared,
}

#[derive(Debug)]
enum Shared {
    Never,
    OfUser,
    OfAll(Arc<RateScope>),
}

impl RateTable {
    /// The rates of a configuration with these listeners; `before` if they are the same.
    pub(crate) fn new(
        rules: &[RateRule],
        listeners: &[Listener],
        before: &Arc<Self>,
        now: Instant,
    ) -> Arc<Self> {
        let source = Source {
            rules: rules.to_vec(),
            listeners: listeners.iter().map(|it| it.name.clone()).collect(),
        };
        let is_same = before.source == source || before.is_empty() && rules.is_empty();
        if is_same {
            return Arc::clone(before);
        }
        let numbered = (0..).zip(rules.iter().take(RATE_RULES));
        let in_use = numbered.filter(|(_, rule)| !rule.is_for_none);
        Arc::new(Self {
            rules: in_use
                .map(|(number, rule)| Rule::new(number, rule, listeners, now))
                .collect(),
            users: Mutex::default(),
            source,
        })
    }

    /// Whether no client has any rates.
    pub(crate) fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Whether they depend on what roles clients have.
    pub(crate) fn names_roles(&self) -> bool {
        self.rules.iter().any(|rule| !rule.roles.is_empty())
    }

    /// The scopes of a client, in the order of the rules. `roles`: the names of those it has.
    pub(crate) fn scopes(
        &self,
        identity: &Identity,
        roles: &[Arc<str>],
        now: Instant,
    ) -> Vec<Arc<RateScope>> {
        let rules = self.rules.iter();
        let rules = rules.filter(|rule| rule.is_about(identity, roles));
        let scope = |rule: &Rule| match &rule.shared {
            // One without an id gets a new one each time.
            Shared::Never if identity.client_id.is_empty() => Arc::new(rule.scope("", now)),
            Shared::Never => self.scope_of(rule, Whose::Client(identity), now),
            Shared::OfUser => self.scope_of(rule, Whose::User(identity.user.as_ref()), now),
            Shared::OfAll(scope) => Arc::clone(scope),
        };
        rules.map(scope).collect()
    }

    fn scope_of(&self, rule: &Rule, whose: Whose<'_>, now: Instant) -> Arc<RateScope> {
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        let key = match whose {
            // Of its user as well: another user who tries its id uses nothing of it up. No name has
            // U+0000 in it [MQTT-1.5.4-2].
            Whose::Client(Identity {
                client_id, user, ..
            }) => {
                let user = user.as_deref().unwrap_or("\0");
                (rule.number, Some(format!("{client_id}\0{user}").into()))
            }
            Whose::User(user) => (rule.number, user.cloned()),
        };
        if let Some(scope) = users.scopes.get(&key) {
            return Arc::clone(scope);
        }
        users.make_room(now);
        let scope = Arc::new(match whose {
            Whose::Client(identity) => rule.scope(&identity.client_id, now),
            Whose::User(user) => rule.scope_of_user(user, now),
        });
        users.scopes.insert(key, Arc::clone(&scope));
        scope
    }
}

/// Which clients a remembered scope is of. A rule has scopes of one kind only.
#[derive(Clone, Copy)]
enum Whose<'a> {
    Client(&'a Identity),
    User(Option<&'a Arc<str>>),
}

impl Rule {
    fn new(number: u16, rule: &RateRule, listeners: &[Listener], now: Instant) -> Self {
        let label = rule.label(number.into());
        let is_named = |listener: &Listener| {
            rule.listeners
                .iter()
                .any(|it| listener.name.as_ref() == Some(it))
        };
        let named = (0..)
            .zip(listeners)
            .filter(|(_, listener)| is_named(listener));
        let named = named.map(|(position, _)| position).collect();
        let shared = match rule.per {
            RatedBy::Client => Shared::Never,
            RatedBy::User => Shared::OfUser,
            RatedBy::All => {
                let scope = RateScope::new(number, (*label).into(), rule.limits, now);
                Shared::OfAll(Arc::new(scope))
            }
        };
        Self {
            number,
            label,
            users: rule.users.clone(),
            roles: rule.roles.clone(),
            listeners: (!rule.listeners.is_empty()).then_some(named),
            limits: rule.limits,
            shared,
        }
    }

    fn is_about(&self, identity: &Identity, roles: &[Arc<str>]) -> bool {
        let user = identity.user.as_deref();
        let has_user = self.users.is_empty() || self.users.iter().any(|it| Some(&**it) == user);
        let listeners = self.listeners.as_ref();
        let has_role = |name: &String| roles.iter().any(|role| **role == **name);
        has_user
            && listeners.is_none_or(|listeners| listeners.contains(&identity.peer.listener))
            && (self.roles.is_empty() || self.roles.iter().any(has_role))
    }

    /// One for all clients of this user.
    fn scope_of_user(&self, user: Option<&Arc<str>>, now: Instant) -> RateScope {
        let name = user.map_or_else(
            || format!("{} (clients without a user)", self.label),
            |user| format!("{} (user {user})", self.label),
        );
        RateScope::new(self.number, name.into(), self.limits, now)
    }

    /// One for this client alone.
    fn scope(&self, client_id: &str, now: Instant) -> RateScope {
        let name = format!("{} (client {client_id})", self.label);
        RateScope::new(self.number, name.into(), self.limits, now)
    }
}

/// The scopes of users and of clients, by rule and user or client id.
#[derive(Debug, Default)]
struct UserScopes {
    scopes: HashMap<(u16, Option<Arc<str>>), Arc<RateScope>>,
    /// Up to so many no scope is forgotten.
    keeps: usize,
}

impl UserScopes {
    /// Forgets scopes that no client uses, once there are twice as many as were left the last time.
    fn make_room(&mut self, now: Instant) {
        if self.scopes.len() < self.keeps {
            return;
        }
        let is_used = |scope: &Arc<RateScope>| Arc::strong_count(scope) > 1;
        self.scopes
            .retain(|_, scope| is_used(scope) || !scope.is_idle(now));
        let unused = self.scopes.values().filter(|scope| !is_used(scope));
        if unused.count() >= RATED_USERS {
            self.scopes.retain(|_, scope| is_used(scope));
        }
        self.keeps = 2 * self.scopes.len() + RATED_USERS_KEPT;
    }
}

/// Fewer scopes than this are not worth a look.
const RATED_USERS_KEPT: usize = 1_024;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use unbroken_broker_core::Peer;

    use super::*;

    fn rule(per: RatedBy) -> RateRule {
        RateRule {
            per,
            limits: RateLimits {
                messages_per_second: Some(1),
                ..RateLimits::default()
            },
            ..RateRule::default()
        }
    }

    fn table(rules: &[RateRule]) -> Arc<RateTable> {
        let listener = |name: &str| Listener {
            name: Some(name.to_owned()),
            ..Listener::default()
        };
        let listeners = [listener("inner"), listener("outer")];
        RateTable::new(rules, &listeners, &Arc::default(), Instant::now())
    }

    fn client(id: &str, user: Option<&str>, listener: u16) -> Identity {
        Identity {
            user: user.map(Into::into),
            client_id: id.into(),
            peer: Peer {
                listener,
                ..Peer::default()
            },
            ..Identity::default()
        }
    }

    #[test]
    fn a_rate_is_shared_as_it_says() {
        let table = table(&[RatedBy::Client, RatedBy::User, RatedBy::All].map(rule));
        let now = Instant::now();
        let scopes = |id, user| table.scopes(&client(id, user, 0), &[], now);
        let first = scopes("a", Some("ann"));
        let same = |other: &[Arc<RateScope>]| {
            let pairs = first.iter().zip(other);
            pairs
                .map(|(it, other)| Arc::ptr_eq(it, other))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            same(&scopes("a", Some("ann"))),
            [true, true, true],
            "it connects again"
        );
        assert_eq!(same(&scopes("b", Some("ann"))), [false, true, true]);
        assert_eq!(same(&scopes("c", Some("bob"))), [false, false, true]);
        assert_eq!(same(&scopes("d", None)), [false, false, true]);
    }

    #[test]
    fn a_rate_is_about_the_clients_that_all_its_keys_fit() {
        let names = |names: &[&str]| names.iter().map(|it| (*it).to_owned()).collect();
        let of_users = RateRule {
            users: names(&["ann", "bob"]),
            ..rule(RatedBy::User)
        };
        let of_role = RateRule {
            roles: names(&["sensor"]),
            listeners: names(&["outer"]),
            ..rule(RatedBy::Client)
        };
        let of_none = RateRule {
            is_for_none: true,
            ..rule(RatedBy::All)
        };
        let table = table(&[of_users, of_none, of_role]);
        let roles = [Arc::from("sensor")];
        let fitting = |user, listener, roles: &[Arc<str>]| {
            let scopes = table.scopes(&client("c", user, listener), roles, Instant::now());
            scopes.iter().map(|scope| scope.rule()).collect::<Vec<_>>()
        };
        assert_eq!(fitting(Some("ann"), 1, &roles), [0, 2]);
        assert_eq!(fitting(Some("bob"), 0, &roles), [0]);
        assert_eq!(fitting(Some("carol"), 1, &[]), [0; 0]);
        assert_eq!(fitting(None, 1, &roles), [2]);
    }

    #[test]
    fn a_reload_that_changes_no_rate_changes_no_table() {
        let (rules, listeners) = ([rule(RatedBy::All)], [Listener::default()]);
        let now = Instant::now();
        let before = RateTable::new(&rules, &listeners, &Arc::default(), now);
        let is_kept = |rules: &[RateRule]| {
            let next = RateTable::new(rules, &listeners, &before, now);
            Arc::ptr_eq(&next, &before)
        };
        assert!(is_kept(&rules));
        assert!(!is_kept(&[rule(RatedBy::User)]));
    }

    #[test]
    fn users_are_forgotten_when_a_new_scope_would_be_the_same() {
        let table = table(&[rule(RatedBy::User)]);
        let start = Instant::now();
        let scope = |number: usize, now| {
            let user = format!("user-{number}");
            table
                .scopes(&client("c", Some(&user), 0), &[], now)
                .remove(0)
        };
        let place = scope(0, start).join();
        for number in 1..=10 * RATED_USERS_KEPT {
            drop(scope(number, start));
        }
        let count = || table.users.lock().unwrap().scopes.len();
        assert!(count() <= 2 * RATED_USERS_KEPT, "{}", count());
        let later = start + Duration::from_secs(9);
        assert!(scope(0, later).enter(false).is_ok());
        assert!(!scope(0, later).is_idle(later), "a client is connected");
        drop(place);
        assert!(scope(0, later).is_idle(later));
    }
}
