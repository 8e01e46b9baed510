//! A policy: rule sets, their roles compiled to trees, and what they say of one client.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::fast::FixedState;
use smallvec::SmallVec;
use unbroken_mqtt_proto::{QoS, TopicFilter};

use super::access::is_reserved;
use super::role::{Combining, RuleSet};
use super::tree::{Names, RuleTree};
use super::{Action, Actions, Ceiling, Claims, Denial, Effect, Identity, Role, Rule, Verdict};
use crate::limits::{LEVELS_MAX, ROLES_MAX, RULE_SETS_MAX, RULES_MAX};

/// What clients may do, compiled. The shards of a broker share it.
pub struct Policy {
    generation: u64,
    sets: Box<[CompiledSet]>,
    /// The roles of all sets, set by set.
    roles: Box<[Compiled]>,
    /// Roles whose members are all named by their user names.
    by_user: HashMap<Arc<str>, Vec<u16>, FixedState>,
    /// All others.
    others: Vec<u16>,
    /// Whether a role has a mount point.
    has_mount_points: bool,
}

/// A rule set without its roles.
struct CompiledSet {
    listeners: Option<Box<[u16]>>,
    combining: Combining,
    unless_decided: Actions,
}

struct Compiled {
    role: Role,
    /// The number of its set.
    set: u8,
    tree: RuleTree,
}

/// Why roles cannot be compiled.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// Too many rule sets.
    #[error("there are {0} sets of rules; there can be at most {RULE_SETS_MAX}")]
    Sets(usize),
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
    #[error(
        "in {0}: only {{user}}, {{client}}, {{role}} and {{claim.NAME}} have a meaning; a brace is written {{{{"
    )]
    Placeholder(Box<str>),
}

/// What the rules need to know of one client: which rule sets are about it, which roles it has, and
/// its names where a rule has a placeholder for them. Clients of one role without placeholders have
/// equal subjects.
#[derive(Debug)]
pub(crate) struct Subject {
    generation: u64,
    sets: SmallVec<[u8; 8]>,
    /// In the order of the sets.
    roles: Box<[u16]>,
    user: Option<Arc<str>>,
    client_id: Option<Arc<str>>,
    claims: Option<Arc<Claims>>,
    hash: u64,
    connect: Verdict,
    /// That of all its roles.
    ceiling: Ceiling,
}

/// An answer, and the rule that gave it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Decision<'a> {
    /// The answer.
    pub verdict: Verdict,
    /// How it may, if it may.
    pub ceiling: Ceiling,
    /// The role that decided, if one did.
    pub role: Option<&'a Role>,
    /// The rule of it, if one did: of several that say the same, the first that was found.
    pub rule: Option<&'a Rule>,
}

impl Policy {
    /// Compiles rule sets. `generation`: greater than that of each earlier policy of this broker.
    pub fn compile(generation: u64, sets: Vec<RuleSet>) -> Result<Self, PolicyError> {
        check_sizes(&sets)?;
        let mut compiled_sets = Vec::new();
        let mut roles = Vec::new();
        for (number, set) in (0..).zip(sets) {
            for role in set.roles {
                roles.push(Compiled::new(number, role)?);
            }
            compiled_sets.push(CompiledSet {
                listeners: set.listeners.map(Into::into),
                combining: set.combining,
                unless_decided: set.unless_decided,
            });
        }
        let mut by_user: HashMap<_, Vec<u16>, _> = HashMap::default();
        let mut others = Vec::new();
        for (number, Compiled { role, .. }) in (0..).zip(&roles) {
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
        let mut mount_points = roles.iter().map(|compiled| &compiled.role.mount_point);
        Ok(Self {
            generation,
            has_mount_points: mount_points.any(Option::is_some),
            sets: compiled_sets.into(),
            roles: roles.into(),
            by_user,
            others,
        })
    }

    /// Whether such a client may connect.
    pub fn connect(&self, identity: &Identity) -> Decision<'_> {
        let subject = self.subject(identity);
        let denying = |Compiled { role, .. }: &&Compiled| {
            role.connect == Effect::Deny || !role.allows_id(identity)
        };
        let roles = || subject.roles.iter().filter_map(|at| self.role(*at));
        let role = roles().find(denying).or_else(|| roles().next());
        Decision {
            verdict: subject.connect,
            ceiling: subject.ceiling,
            role: role.map(|compiled| &compiled.role),
            rule: None,
        }
    }

    /// Whether such a client may do something with a topic, or with a filter: of a shared
    /// subscription the one behind the group's name.
    pub fn decide(&self, identity: &Identity, action: Action, filter: &str) -> Decision<'_> {
        if action == Action::Publish && is_reserved(filter) {
            return Decision::by_default(Verdict::Denied(Denial::ReservedTopic));
        }
        self.decide_for(&self.subject(identity), action, filter)
    }

    /// Whether a rule set is about such a client: those that there are may be for other listeners.
    pub fn is_about(&self, identity: &Identity) -> bool {
        self.sets.iter().any(|set| set.is_about(identity))
    }

    /// Names of the roles that such a client has.
    pub(super) fn role_names(&self, identity: &Identity) -> Vec<Arc<str>> {
        let subject = self.subject(identity);
        let roles = self.all_roles_of(&subject);
        roles.map(|role| Arc::clone(&role.name)).collect()
    }

    /// The roles that such a client has, of all sets.
    pub(super) fn all_roles_of(&self, subject: &Subject) -> impl Iterator<Item = &Role> {
        let roles = subject.roles.iter().filter_map(|at| self.role(*at));
        roles.map(|found| &found.role)
    }

    /// Whether a role has a mount point.
    pub(crate) const fn has_mount_points(&self) -> bool {
        self.has_mount_points
    }

    /// Whether such a client may publish a message of this QoS to a topic. If only its QoS or
    /// retain is in the way, the role and the rule are those that limit it.
    pub fn decide_publish(
        &self,
        identity: &Identity,
        topic: &str,
        (qos, retain): (QoS, bool),
    ) -> Decision<'_> {
        let decision = self.decide(identity, Action::Publish, topic);
        let is_above = |ceiling: Ceiling| ceiling.denial(qos, retain);
        let Some(denial) = is_above(decision.ceiling).filter(|_| !decision.verdict.is_denied())
        else {
            return decision;
        };
        let subject = self.subject(identity);
        let roles = || subject.roles.iter().filter_map(|at| self.role(*at));
        let of_role = roles().find(|compiled| is_above(compiled.role.ceiling).is_some());
        let (role, rule) = match of_role {
            Some(compiled) => (Some(&compiled.role), None),
            None => roles()
                .find_map(|compiled| {
                    let limits = |rule: &Rule| is_above(rule.ceiling).is_some();
                    let rule = compiled.limiting(&subject, topic, limits)?;
                    Some((Some(&compiled.role), Some(rule)))
                })
                .unwrap_or_default(),
        };
        Decision {
            verdict: Verdict::Denied(denial),
            role,
            rule,
            ..decision
        }
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
        let sets = (0..).zip(&self.sets);
        let sets = sets.filter_map(|(number, set)| set.is_about(identity).then_some(number));
        let sets: SmallVec<[u8; 8]> = sets.collect();
        let mut roles: Vec<_> = candidates
            .copied()
            .filter(|at| {
                self.role(*at)
                    .is_some_and(|found| sets.contains(&found.set) && found.is_of(identity))
            })
            .collect();
        roles.sort_unstable();
        roles.dedup();
        let trees = || roles.iter().filter_map(|at| Some(&self.role(*at)?.tree));
        let names_user = trees().any(|tree| tree.names_user);
        let names_client = trees().any(|tree| tree.names_client);
        let user = identity.user.clone().filter(|_| names_user);
        let client_id = names_client.then(|| Arc::clone(&identity.client_id));
        let claims = identity.claims.as_ref().and_then(|claims| {
            let names = trees().flat_map(|tree| &tree.named_claims);
            claims.named(
                trees().any(|tree| tree.names_roles),
                names.map(|name| &**name),
            )
        });
        let mut subject = Subject {
            generation: self.generation,
            hash: FixedState::default().hash_one((&sets, &roles, &user, &client_id, &claims)),
            sets,
            roles: roles.into(),
            user,
            client_id,
            claims: claims.map(Arc::new),
            connect: Verdict::Allowed,
            ceiling: Ceiling::NONE,
        };
        let of_roles = subject.roles.iter().filter_map(|at| self.role(*at));
        subject.ceiling = of_roles
            .map(|compiled| compiled.role.ceiling)
            .fold(Ceiling::NONE, Ceiling::and);
        let mut verdicts = subject
            .sets
            .iter()
            .map(|set| self.connect_by(*set, &subject, identity));
        subject.connect = verdicts
            .find(|verdict| verdict.is_denied())
            .unwrap_or(Verdict::Allowed);
        subject
    }

    /// What one set says of the connection of a client.
    fn connect_by(&self, set: u8, subject: &Subject, identity: &Identity) -> Verdict {
        let mut roles = self.roles_of(set, subject).peekable();
        let combining = self.sets[usize::from(set)].combining;
        if roles.peek().is_none() {
            return match combining {
                Combining::DenyOverrides => Verdict::Denied(Denial::NoRole),
                Combining::FirstApplicable => Verdict::Allowed,
            };
        }
        for Compiled { role, tree, .. } in roles {
            if role.connect == Effect::Deny {
                return Verdict::Denied(Denial::Rule);
            }
            if !role.allows_id(identity) {
                return Verdict::Denied(Denial::ClientId);
            }
            if combining == Combining::DenyOverrides && subject.is_unusable_in(tree) {
                return Verdict::Denied(Denial::UnusableName);
            }
        }
        Verdict::Allowed
    }

    /// What the rules say: each set that is about the client must allow it.
    pub(super) fn decide_for(
        &self,
        subject: &Subject,
        action: Action,
        filter: &str,
    ) -> Decision<'_> {
        let mut last = Decision::by_default(Verdict::Allowed);
        let mut ceiling = subject.ceiling;
        for set in &subject.sets {
            last = match self.sets[usize::from(*set)].combining {
                Combining::DenyOverrides => self.deny_overrides(*set, subject, action, filter),
                Combining::FirstApplicable => self.first_applicable(*set, subject, action, filter),
            };
            if last.verdict.is_denied() {
                break;
            }
            ceiling = ceiling.and(last.ceiling);
        }
        Decision { ceiling, ..last }
    }

    /// A rule that denies decides, else one that allows.
    fn deny_overrides(
        &self,
        set: u8,
        subject: &Subject,
        action: Action,
        filter: &str,
    ) -> Decision<'_> {
        let mut roles = self.roles_of(set, subject);
        if roles.any(|role| subject.is_unusable_in(&role.tree)) {
            return Decision::by_default(Verdict::Denied(Denial::UnusableName));
        }
        let mut allowing: Option<Decision<'_>> = None;
        let mut why = Denial::NoRole;
        for compiled in self.roles_of(set, subject) {
            why = Denial::NoRule;
            let Some(decision) = compiled.decide(subject, action, filter) else {
                continue;
            };
            if decision.verdict.is_denied() {
                return decision;
            }
            let first = allowing.unwrap_or(decision);
            let ceiling = first.ceiling.and(decision.ceiling);
            allowing = Some(Decision { ceiling, ..first });
        }
        allowing.unwrap_or_else(|| self.undecided(set, subject, action, why))
    }

    /// The first role with a rule about it decides.
    fn first_applicable(
        &self,
        set: u8,
        subject: &Subject,
        action: Action,
        filter: &str,
    ) -> Decision<'_> {
        for compiled in self.roles_of(set, subject) {
            if subject.has_wildcard_in(&compiled.tree) {
                return self.undecided(set, subject, action, Denial::UnusableName);
            }
            if let Some(decision) = compiled.decide(subject, action, filter) {
                return decision;
            }
        }
        self.undecided(set, subject, action, Denial::NoRule)
    }

    /// No rule of a set is about it.
    fn undecided(
        &self,
        set: u8,
        subject: &Subject,
        action: Action,
        denial: Denial,
    ) -> Decision<'_> {
        let is_about = |role: &Compiled| role.role.rules.iter().any(|rule| rule.is_about(action));
        let is_allowed = self.sets[usize::from(set)].unless_decided.has(action)
            && !self.roles_of(set, subject).any(is_about);
        Decision::by_default(if is_allowed {
            Verdict::Allowed
        } else {
            Verdict::Denied(denial)
        })
    }

    /// The client's roles of one set.
    fn roles_of(&self, set: u8, subject: &Subject) -> impl Iterator<Item = &Compiled> {
        let roles = subject.roles.iter().filter_map(|at| self.role(*at));
        roles.filter(move |role| role.set == set)
    }

    fn role(&self, number: u16) -> Option<&Compiled> {
        self.roles.get(usize::from(number))
    }
}

fn check_sizes(sets: &[RuleSet]) -> Result<(), PolicyError> {
    let roles = || sets.iter().flat_map(|set| &set.roles);
    let rules = roles().map(|role| role.rules.len()).sum();
    if sets.len() > RULE_SETS_MAX {
        Err(PolicyError::Sets(sets.len()))
    } else if roles().count() > ROLES_MAX {
        Err(PolicyError::Roles(roles().count()))
    } else if rules > RULES_MAX {
        Err(PolicyError::Rules(rules))
    } else {
        Ok(())
    }
}

impl Decision<'_> {
    /// No rule has decided.
    const fn by_default(verdict: Verdict) -> Self {
        let (role, rule) = (None, None);
        Self {
            verdict,
            ceiling: Ceiling::NONE,
            role,
            rule,
        }
    }
}

impl CompiledSet {
    fn is_about(&self, identity: &Identity) -> bool {
        let listeners = self.listeners.as_ref();
        listeners.is_none_or(|listeners| listeners.contains(&identity.peer.listener))
    }
}

impl Compiled {
    fn new(set: u8, role: Role) -> Result<Self, PolicyError> {
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
        Ok(Self { role, set, tree })
    }

    /// What this role's rules say: one that denies decides, else one that allows.
    fn decide(&self, subject: &Subject, action: Action, filter: &str) -> Option<Decision<'_>> {
        let Self { role, tree, .. } = self;
        let (mut allowing, mut denying) = (None, None);
        let mut ceiling = Ceiling::NONE;
        tree.covering(filter, subject.names(), |at| {
            let rule = role.rules.get(at as usize);
            match rule.filter(|rule| rule.is_about(action)) {
                Some(rule) if rule.effect == Effect::Deny => denying = Some(rule),
                Some(rule) => {
                    ceiling = ceiling.and(rule.ceiling);
                    allowing = allowing.or(Some(rule));
                }
                None => {}
            }
            denying.is_none()
        });
        let verdict = match denying {
            Some(_) => Verdict::Denied(Denial::Rule),
            None => Verdict::Allowed,
        };
        Some(Decision {
            verdict,
            ceiling,
            role: Some(role),
            rule: Some(denying.or(allowing)?),
        })
    }

    /// The first rule that allows to publish to a topic and is like this.
    fn limiting(
        &self,
        subject: &Subject,
        topic: &str,
        is_like: impl Fn(&Rule) -> bool,
    ) -> Option<&Rule> {
        let mut found = None;
        self.tree.covering(topic, subject.names(), |at| {
            let rule = self.role.rules.get(at as usize);
            let is_about = |rule: &&Rule| {
                rule.effect == Effect::Allow && rule.is_about(Action::Publish) && is_like(rule)
            };
            found = rule.filter(is_about);
            found.is_none()
        });
        found
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

    /// Whether a rule set is about the client.
    pub(crate) fn has_rules(&self) -> bool {
        !self.sets.is_empty()
    }

    /// What limits all that the client does.
    pub(crate) const fn ceiling(&self) -> Ceiling {
        self.ceiling
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
            && self.sets == other.sets
            && self.roles == other.roles
            && self.user == other.user
            && self.client_id == other.client_id
            && self.claims == other.claims
    }

    /// Whether a name of the client's that these rules name could mean more than itself there.
    fn is_unusable_in(&self, tree: &RuleTree) -> bool {
        self.named_in(tree).any(is_unusable)
    }

    /// Whether a name of the client's that these rules name has a wildcard in it.
    fn has_wildcard_in(&self, tree: &RuleTree) -> bool {
        self.named_in(tree).any(|name| name.contains(['+', '#']))
    }

    fn named_in<'a>(&'a self, tree: &'a RuleTree) -> impl Iterator<Item = &'a str> {
        let user = self.user.as_deref().filter(|_| tree.names_user);
        let client_id = self.client_id.as_deref().filter(|_| tree.names_client);
        let claims = self.claims.as_deref();
        let values = claims.map(|claims| {
            let names = tree.named_claims.iter();
            names.filter_map(|name| claims.value(name))
        });
        let roles = claims.filter(|_| tree.names_roles).map(Claims::roles);
        let names = [user, client_id].into_iter().flatten();
        names
            .chain(values.into_iter().flatten())
            .chain(roles.into_iter().flatten())
    }

    fn names(&self) -> Names<'_> {
        Names {
            user: self.user.as_deref(),
            client: self.client_id.as_deref().unwrap_or_default(),
            claims: self.claims.as_deref(),
        }
    }
}

/// Whether a name that stands in a rule's filter could mean more than itself there.
pub(super) fn is_unusable(name: &str) -> bool {
    name.starts_with('$') || name.contains(['+', '#', '/'])
}

impl std::fmt::Debug for Policy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Policy")
            .field("generation", &self.generation)
            .field("sets", &self.sets.len())
            .field("roles", &self.roles.len())
            .finish_non_exhaustive()
    }
}
