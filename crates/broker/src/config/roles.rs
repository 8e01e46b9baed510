//! `[[roles]]` of the configuration as roles of the core.

use std::sync::Arc;

use unbroken_broker_core::{
    self as core, Action, Actions, Ceiling, Effect, Member, MountPoint, Policy, Rule, RuleSet,
};
use unbroken_mqtt_proto::QoS;

use super::{Listener, Network};

/// One of `[[roles]]`: what some clients may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Role {
    /// Its name, for logs and explanations.
    pub name: Option<String>,
    /// Users that have it; with [`Self::anonymous`]: these, or clients without a name.
    pub users: Vec<String>,
    /// Whether clients without a name have it.
    pub anonymous: bool,
    /// Patterns of client ids; empty: all. This and what follows holds as well as the users.
    pub clients: Vec<String>,
    /// Names of listeners; empty: all.
    pub listeners: Vec<String>,
    /// Addresses and networks; empty: all.
    pub addresses: Vec<Network>,
    /// Roles that an authenticator vouches for, with which a client has this one; empty: all.
    pub granted: Vec<String>,
    /// Whether its clients may connect.
    pub connect: Effect,
    /// The highest QoS of what its clients publish and subscribe to, `0..=2`, whatever other roles
    /// allow.
    pub max_qos: u8,
    /// Whether its clients may publish retained messages, whatever other roles allow.
    pub retain: bool,
    /// What the ids of its clients must be like, with `{user}` for the client's user name; `None`:
    /// any.
    pub client_id: Option<String>,
    /// What they may do, as `ACTION,ACTION FILTER`, with `max_qos=N` and `retain=false` among the
    /// actions where that is limited.
    pub allow: Vec<String>,
    /// What they may not do.
    pub deny: Vec<String>,
    /// The part of the topic tree in which its clients live; `None`: it names none.
    pub mount_point: Option<MountPoint>,
    /// A list that says whose it is is there and empty: it is no client's.
    pub is_for_none: bool,
    /// Where `allow` is written.
    pub allow_origin: String,
    /// Where `deny` is written.
    pub deny_origin: String,
}

impl Default for Role {
    fn default() -> Self {
        Self {
            name: None,
            users: Vec::new(),
            anonymous: false,
            clients: Vec::new(),
            listeners: Vec::new(),
            addresses: Vec::new(),
            granted: Vec::new(),
            connect: Effect::Allow,
            max_qos: 2,
            retain: true,
            client_id: None,
            allow: Vec::new(),
            deny: Vec::new(),
            mount_point: None,
            is_for_none: false,
            allow_origin: String::new(),
            deny_origin: String::new(),
        }
    }
}

/// What is wrong with a role, and with which of its keys.
#[derive(Debug, thiserror::Error)]
#[error("`{key}`: {problem}")]
pub struct RoleError {
    pub(super) key: &'static str,
    pub(super) problem: String,
}

impl RoleError {
    /// What is wrong, without the key.
    pub(crate) fn problem(&self) -> &str {
        &self.problem
    }
}

impl Role {
    /// The role as the core knows it. `listeners`: in the order in which they are numbered.
    pub(crate) fn compile(&self, listeners: &[Listener]) -> Result<core::Role, RoleError> {
        let allow = rules("allow", Effect::Allow, &self.allow, &self.allow_origin)?;
        let deny = rules("deny", Effect::Deny, &self.deny, &self.deny_origin)?;
        Ok(core::Role {
            name: self.name.as_deref().unwrap_or("a role").into(),
            members: if self.is_for_none {
                Vec::new()
            } else {
                members(self, listeners)?
            },
            connect: self.connect,
            ceiling: Ceiling {
                max_qos: QoS::try_from(self.max_qos).unwrap_or_default(),
                retain: self.retain,
            },
            client_id: self.client_id.as_deref().map(Into::into),
            rules: [allow, deny].concat(),
            mount_point: self.mount_point.clone(),
        })
    }
}

/// Each combination of what the role's keys name.
fn members(role: &Role, listeners: &[Listener]) -> Result<Vec<Member>, RoleError> {
    let users = role.users.iter().map(|user| Some(Arc::from(&**user)));
    let users: Vec<_> = users.chain(role.anonymous.then_some(None)).collect();
    let clients = role.clients.iter().map(|pattern| Arc::from(&**pattern));
    let networks = role.addresses.iter().map(Network::prefix);
    let positions = role.listeners.iter().map(|name| {
        let called = |listener: &Listener| listener.name.as_ref() == Some(name);
        let position = (0..).zip(listeners).find(|(_, listener)| called(listener));
        position.map(|(number, _)| number).ok_or_else(|| RoleError {
            key: "listeners",
            problem: format!(
                "no listener has the name `{name}`; give it one with `name = \"{name}\"`"
            ),
        })
    });
    let clients = or_any(clients.collect());
    let networks = or_any(networks.collect());
    let positions = or_any(positions.collect::<Result<Vec<_>, _>>()?);
    let users = or_any(users);
    let granted = or_any(role.granted.iter().map(|role| Arc::from(&**role)).collect());
    let counts = [
        users.len(),
        clients.len(),
        networks.len(),
        positions.len(),
        granted.len(),
    ];
    let count = counts.into_iter().fold(1, usize::saturating_mul);
    if count > MEMBERS_MAX {
        return Err(RoleError {
            key: "users",
            problem: format!(
                "users, clients, addresses, listeners and granted of the role make {count} combinations; there \
                 can be at most {MEMBERS_MAX}; divide the role"
            ),
        });
    }
    let mut members = Vec::with_capacity(count);
    for user in &users {
        for client_id in &clients {
            for network in &networks {
                for listener in &positions {
                    members.extend(granted.iter().map(|granted| Member {
                        user: user.clone(),
                        client_id: client_id.clone(),
                        listener: *listener,
                        network: *network,
                        certificate: None,
                        granted: granted.clone(),
                    }));
                }
            }
        }
    }
    Ok(members)
}

/// Combinations of what the keys of one role name, of which each is compared with each client.
const MEMBERS_MAX: usize = 10_000;

/// Each of them, or one that fits all.
fn or_any<T>(named: Vec<T>) -> Vec<Option<T>> {
    if named.is_empty() {
        vec![None]
    } else {
        named.into_iter().map(Some).collect()
    }
}

fn rules(
    key: &'static str,
    effect: Effect,
    lines: &[String],
    origin: &str,
) -> Result<Vec<Rule>, RoleError> {
    let rule = |line: &String| rule_of(key, effect, line, origin);
    lines.iter().map(rule).collect()
}

/// A rule that is written as `ACTION,ACTION FILTER` at this place; `key` is for messages.
pub(crate) fn rule_of(
    key: &'static str,
    effect: Effect,
    line: &str,
    origin: &str,
) -> Result<Rule, RoleError> {
    let error = |problem: String| RoleError { key, problem };
    let shape = || {
        error(format!(
            "`{line}` is not a list of actions and a topic filter, such as \
             \"publish a/#\" or \"subscribe,receive a/#\""
        ))
    };
    let (actions, filter) = line.split_once(' ').ok_or_else(shape)?;
    let (limits, actions): (Vec<_>, Vec<_>) =
        actions.split(',').partition(|word| word.contains('='));
    let actions = actions.iter().try_fold(Actions::NONE, |all, word| {
        let unknown = || {
            error(format!(
                "`{line}`: `{word}` is not publish, subscribe, receive or all"
            ))
        };
        Ok(match *word {
            "all" => Actions::ALL,
            _ => all.and(Action::named(word).ok_or_else(unknown)?),
        })
    })?;
    if actions == Actions::NONE {
        return Err(shape());
    }
    if let ([limit, ..], Effect::Deny) = (&*limits, effect) {
        return Err(error(format!(
            "`{line}`: `{limit}` limits what is allowed; write it into a line of `allow`"
        )));
    }
    let ceiling = limits.iter().try_fold(Ceiling::NONE, |all, word| {
        let limit = limit_of(word).ok_or_else(|| {
            error(format!(
                "`{line}`: `{word}` is not max_qos=0, max_qos=1 or retain=false"
            ))
        })?;
        Ok(all.and(limit))
    })?;
    let rule = Rule {
        effect,
        actions,
        filter: filter.trim_start().into(),
        ceiling,
        origin: format!("{origin} ({key} \"{line}\")").into(),
    };
    compile(&rule).map_err(|problem| error(format!("`{line}`: {problem}")))?;
    Ok(rule)
}

/// A limit among the actions of a rule.
fn limit_of(word: &str) -> Option<Ceiling> {
    let (key, value) = word.split_once('=')?;
    match key {
        "max_qos" => {
            let max_qos = QoS::try_from(value.parse::<u8>().ok()?).ok()?;
            let retain = true;
            Some(Ceiling { max_qos, retain })
        }
        "retain" => Some(Ceiling {
            retain: value.parse().ok()?,
            ..Ceiling::NONE
        }),
        _ => None,
    }
}

/// Whether a rule alone can be compiled.
fn compile(rule: &Rule) -> Result<(), String> {
    let role = core::Role {
        name: "".into(),
        members: Vec::new(),
        connect: Effect::Allow,
        ceiling: Ceiling::NONE,
        client_id: None,
        rules: vec![Rule {
            origin: "its filter".into(),
            ..rule.clone()
        }],
        mount_point: None,
    };
    let compiled = Policy::compile(0, vec![RuleSet::of(vec![role])]);
    compiled.map(drop).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use unbroken_broker_core::{Identity, Peer, Verdict};

    use super::*;

    fn texts(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    fn listeners() -> [Listener; 2] {
        ["a", "b"].map(|name| Listener {
            name: Some(name.to_owned()),
            ..Listener::default()
        })
    }

    #[test]
    fn a_role_is_that_of_clients_that_all_its_keys_fit() {
        let plant = Role {
            users: texts(&["ann", "bob"]),
            anonymous: true,
            clients: texts(&["c-*"]),
            listeners: texts(&["b"]),
            addresses: ["10.0.0.0/8", "::1"]
                .map(|text| text.parse().unwrap())
                .into(),
            allow: texts(&["publish,receive plant/{user}/#"]),
            ..Role::default()
        };
        let role = plant.compile(&listeners()).unwrap();
        assert_eq!(role.members.len(), 6);
        let policy = Policy::compile(1, vec![RuleSet::of(vec![role])]).unwrap();
        let check = |user: Option<&str>, client_id: &str, listener, address: &str, expected| {
            let identity = Identity {
                user: user.map(Into::into),
                claims: None,
                client_id: client_id.into(),
                peer: Peer {
                    address: Some(address.parse().unwrap()),
                    listener,
                    ..Peer::default()
                },
            };
            let allowed = policy.connect(&identity).verdict == Verdict::Allowed;
            assert_eq!(allowed, expected, "{identity:?}");
        };
        check(Some("ann"), "c-1", 1, "10.1.1.1:1", true);
        check(Some("bob"), "c-1", 1, "[::1]:1", true);
        check(None, "c-1", 1, "10.1.1.1:1", true);
        check(Some("eve"), "c-1", 1, "10.1.1.1:1", false);
        check(Some("ann"), "d", 1, "10.1.1.1:1", false);
        check(Some("ann"), "c-1", 0, "10.1.1.1:1", false);
        check(Some("ann"), "c-1", 1, "11.1.1.1:1", false);
    }

    #[test]
    fn a_mistake_names_the_key_and_what_is_meant() {
        let check = |change: fn(&mut Role), key, words: &str| {
            let mut wrong = Role::default();
            change(&mut wrong);
            let error = wrong.compile(&listeners()).unwrap_err();
            assert_eq!(error.key, key);
            assert!(error.problem.contains(words), "{}", error.problem);
        };
        check(
            |it| it.allow = texts(&["a/#"]),
            "allow",
            "is not a list of actions and a topic filter",
        );
        check(
            |it| it.allow = texts(&["write a/#"]),
            "allow",
            "`write` is not publish, subscribe, receive or all",
        );
        check(
            |it| it.allow = texts(&["publish,max_qos=3 a/#"]),
            "allow",
            "`max_qos=3` is not max_qos=0, max_qos=1 or retain=false",
        );
        check(
            |it| it.allow = texts(&["max_qos=1 a/#"]),
            "allow",
            "is not a list of actions and a topic filter",
        );
        check(
            |it| it.deny = texts(&["publish,retain=false a/#"]),
            "deny",
            "`retain=false` limits what is allowed; write it into a line of `allow`",
        );
        check(
            |it| it.deny = texts(&["all a/#/b"]),
            "deny",
            "'#' must be the last level",
        );
        check(
            |it| it.deny = texts(&["all a/{roles}"]),
            "deny",
            "only {user}, {client}, {role} and {claim.NAME}",
        );
        check(
            |it| it.listeners = texts(&["c"]),
            "listeners",
            "no listener has the name `c`",
        );
        check(
            |it| {
                it.users = (0..200).map(|n| n.to_string()).collect();
                it.clients = it.users.clone();
            },
            "users",
            "40000 combinations; there can be at most 10000",
        );
    }
}
