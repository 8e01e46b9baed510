//! A policy: roles compiled to trees, and what they say of one client.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::fast::FixedState;
use unbroken_mqtt_proto::TopicFilter;

use super::tree::{Names, RuleTree};
use super::{Action, Denial, Effect, Identity, Role, Rule, Verdict};
use crate::limits::{LEVELS_MAX, ROLES_MAX, RULES_MAX};

/// What clients may do, compiled. The shards of a broker share it.
pub struct Policy {
    generation: u64,
    roles: Box<[Compiled]>,
    /// Roles whose members are all named by their user names.
    by_user: HashMap<Arc<str>, Vec<u16>, FixedState>,
    /// All others.
    others: Vec<u16>,
}

struct Compiled {
    role: Role,
    tree: RuleTree,
}

/// Why roles cannot be compiled.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// Too many roles.
    #[error("there are {0} roles; there can be at most {ROLES_MAX}")]
    Roles(usize),
    /// Too many rules.
    #[error("there are {0} rules; there can be at most {RULES_MAX}")]
    Rules(usize),
    /// A rule's filter is not a topic filter.
    #[error("{origin}: {problem}")]
    Filter {
        /// Where the rule is written.
        origin: Arc<str>,
        /// What is wrong.
        problem: Box<str>,
    },
    /// A placeholder that means nothing.
    #[error("in {0}: only {{user}} and {{client}} have a meaning; a brace is written {{{{")]
    Placeholder(Box<str>),
}

/// What the rules need to know of one client: which roles it has, and its names where a rule has a
/// placeholder for them. Clients of one role without placeholders have equal subjects.
#[derive(Debug)]
pub(crate) struct Subject {
    generation: u64,
    roles: Box<[u16]>,
    user: Option<Arc<str>>,
    client_id: Option<Arc<str>>,
    hash: u64,
    connect: Verdict,
}

/// An answer, and the rule that gave it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Decision<'a> {
    /// The answer.
    pub verdict: Verdict,
    /// The role that decided, if one did.
    pub role: Option<&'a Role>,
    /// The rule of it, if one did: of several that say the same, the first that was found.
    pub rule: Option<&'a Rule>,
}

impl Policy {
    /// Compiles roles. `generation`: greater than that of each earlier policy of this broker.
    pub fn compile(generation: u64, roles: Vec<Role>) -> Result<Self, PolicyError> {
        let rules = roles.iter().map(|role| role.rules.len()).sum();
        if roles.len() > ROLES_MAX {
            return Err(PolicyError::Roles(roles.len()));
        }
        if rules > RULES_MAX {
            return Err(PolicyError::Rules(rules));
        }
        let mut by_user: HashMap<_, Vec<u16>, _> = HashMap::default();
        let mut others = Vec::new();
        for (number, role) in (0..).zip(&roles) {
            let users = role
                .members
                .iter()
                .map(|member| member.user.clone().flatten());
            match users.collect::<Option<Vec<_>>>() {
                None => others.push(number),
                Some(users) => {
                    for user in users {
                        by_user.entry(user).or_default().push(number);
                    }
                }
            }
        }
        let roles = roles.into_iter().map(Compiled::new);
        Ok(Self {
            generation,
            roles: roles.collect::<Result<_, _>>()?,
            by_user,
            others,
        })
    }

    /// Whether such a client may connect.
    pub fn connect(&self, identity: &Identity) -> Decision<'_> {
        let subject = self.subject(identity);
        let denying = |compiled: &&Compiled| compiled.role.connect == Effect::Deny;
        let roles = || subject.roles.iter().filter_map(|at| self.role(*at));
        let role = roles().find(denying).or_else(|| roles().next());
        Decision {
            verdict: subject.connect,
            role: role.map(|compiled| &compiled.role),
            rule: None,
        }
    }

    /// Whether such a client may do something with a topic, or with a filter: of a shared
    /// subscription the one behind the group's name.
    pub fn decide(&self, identity: &Identity, action: Action, filter: &str) -> Decision<'_> {
        self.decide_for(&self.subject(identity), action, filter)
    }

    /// Tells a policy from others of this broker.
    pub(crate) const fn generation(&self) -> u64 {
        self.generation
    }

    pub(super) fn subject(&self, identity: &Identity) -> Subject {
        let of_user = identity
            .user
            .as_ref()
            .and_then(|user| self.by_user.get(user));
        let candidates = of_user.into_iter().flatten().chain(&self.others);
        let mut roles: Vec<_> = candidates
            .copied()
            .filter(|at| self.role(*at).is_some_and(|found| found.is_of(identity)))
            .collect();
        roles.sort_unstable();
        roles.dedup();
        let trees = || roles.iter().filter_map(|at| Some(&self.role(*at)?.tree));
        let names_user = trees().any(|tree| tree.names_user);
        let names_client = trees().any(|tree| tree.names_client);
        let user = identity.user.clone().filter(|_| names_user);
        let client_id = names_client.then(|| Arc::clone(&identity.client_id));
        let denies = |at: &u16| {
            self.role(*at)
                .is_some_and(|it| it.role.connect == Effect::Deny)
        };
        let connect = if roles.is_empty() {
            Verdict::Denied(Denial::NoRole)
        } else if roles.iter().any(denies) {
            Verdict::Denied(Denial::Rule)
        } else if [&user, &client_id]
            .into_iter()
            .flatten()
            .any(|name| is_unusable(name))
        {
            Verdict::Denied(Denial::UnusableName)
        } else {
            Verdict::Allowed
        };
        Subject {
            generation: self.generation,
            hash: FixedState::default().hash_one((&roles, &user, &client_id)),
            roles: roles.into(),
            user,
            client_id,
            connect,
        }
    }

    /// What the rules say: one that denies decides, else one that allows.
    pub(super) fn decide_for(
        &self,
        subject: &Subject,
        action: Action,
        filter: &str,
    ) -> Decision<'_> {
        let denied = |denial| Decision {
            verdict: Verdict::Denied(denial),
            role: None,
            rule: None,
        };
        if subject.connect == Verdict::Denied(Denial::UnusableName) {
            return denied(Denial::UnusableName);
        }
        let mut allowing = None;
        for number in &subject.roles {
            let Some(Compiled { role, tree }) = self.role(*number) else {
                continue;
            };
            let mut denying = None;
            tree.covering(filter, subject.names(), |at| {
                let rule = role.rules.get(at as usize);
                let rule = rule.filter(|rule| rule.is_about(action));
                match rule {
                    Some(rule) if rule.effect == Effect::Deny => denying = Some(rule),
                    Some(rule) if allowing.is_none() => allowing = Some((role, rule)),
                    _ => {}
                }
                denying.is_none()
            });
            if denying.is_some() {
                return Decision {
                    verdict: Verdict::Denied(Denial::Rule),
                    role: Some(role),
                    rule: denying,
                };
            }
        }
        match allowing {
            None if subject.roles.is_empty() => denied(Denial::NoRole),
            None => denied(Denial::NoRule),
            Some((role, rule)) => Decision {
                verdict: Verdict::Allowed,
                role: Some(role),
                rule: Some(rule),
            },
        }
    }

    fn role(&self, number: u16) -> Option<&Compiled> {
        self.roles.get(usize::from(number))
    }
}

impl Compiled {
    fn new(role: Role) -> Result<Self, PolicyError> {
        let mut tree = RuleTree::new();
        for (number, rule) in (0..).zip(&role.rules) {
            let problem = |problem: String| PolicyError::Filter {
                origin: Arc::clone(&rule.origin),
                problem: problem.into(),
            };
            let filter = TopicFilter::parse(&rule.filter);
            let filter = filter.map_err(|error| problem(error.to_string()))?;
            if filter.levels().count() > usize::from(LEVELS_MAX) {
                return Err(problem(format!("it has more than {LEVELS_MAX} levels")));
            }
            tree.insert(filter.as_str(), number)?;
        }
        Ok(Self { role, tree })
    }

    fn is_of(&self, identity: &Identity) -> bool {
        self.role.members.iter().any(|member| member.is(identity))
    }
}

impl Subject {
    /// Whether the client may connect.
    pub(crate) const fn connect(&self) -> Verdict {
        self.connect
    }

    pub(super) const fn generation(&self) -> u64 {
        self.generation
    }

    pub(super) const fn hash(&self) -> u64 {
        self.hash
    }

    /// Whether all verdicts are the same for both.
    pub(crate) fn equals(&self, other: &Self) -> bool {
        self.generation == other.generation
            && self.hash == other.hash
            && self.roles == other.roles
            && self.user == other.user
            && self.client_id == other.client_id
    }

    fn names(&self) -> Names<'_> {
        Names {
            user: self.user.as_deref(),
            client: self.client_id.as_deref().unwrap_or_default(),
        }
    }
}

/// Whether a name that stands in a rule's filter could mean more than itself there.
fn is_unusable(name: &str) -> bool {
    name.starts_with('$') || name.contains(['+', '#', '/'])
}

impl std::fmt::Debug for Policy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Policy")
            .field("generation", &self.generation)
            .field("roles", &self.roles.len())
            .finish_non_exhaustive()
    }
}
