//! A policy without trees and tables, compared with the real one on random rules and questions.

use std::sync::Arc;

use unbroken_mqtt_proto::{QoS, TopicFilter, TopicName};

use crate::ids::SessionId;

use super::{
    AccessControl, Action, Actions, Ceiling, Claims, Combining, Denial, Effect, Identity, Member,
    Peer, Policy, Role, Rule, RuleSet, Verdict,
};

/// What the sets say, one by one.
fn verdict(sets: &[RuleSet], identity: &Identity, action: Action, filter: &str) -> Verdict {
    let is_about = |set: &&RuleSet| {
        let listeners = set.listeners.as_ref();
        listeners.is_none_or(|listeners| listeners.contains(&identity.peer.listener))
    };
    let verdicts = sets.iter().filter(is_about).map(|set| match set.combining {
        Combining::DenyOverrides => deny_overrides(set, identity, action, filter),
        Combining::FirstApplicable => first_applicable(set, identity, action, filter),
    });
    let mut denied = verdicts.filter(|verdict| verdict.is_denied());
    denied.next().unwrap_or(Verdict::Allowed)
}

fn roles_of<'a>(set: &'a RuleSet, identity: &Identity) -> Vec<&'a Role> {
    let is_of = |role: &&Role| role.members.iter().any(|member| member.is(identity));
    set.roles.iter().filter(is_of).collect()
}

fn undecided(set: &RuleSet, identity: &Identity, action: Action, denial: Denial) -> Verdict {
    let roles = roles_of(set, identity);
    let mut rules = roles.iter().flat_map(|role| &role.rules);
    if set.unless_decided.has(action) && !rules.any(|rule| rule.actions.has(action)) {
        Verdict::Allowed
    } else {
        Verdict::Denied(denial)
    }
}

/// The lowest limit of the roles, and of the rules that allow it.
fn ceiling(sets: &[RuleSet], identity: &Identity, action: Action, filter: &str) -> Ceiling {
    let is_about = |set: &&RuleSet| {
        let listeners = set.listeners.as_ref();
        listeners.is_none_or(|listeners| listeners.contains(&identity.peer.listener))
    };
    let mut lowest = Ceiling::NONE;
    for set in sets.iter().filter(is_about) {
        let is_first = set.combining == Combining::FirstApplicable;
        let mut is_decided = false;
        for role in roles_of(set, identity) {
            lowest = lowest.and(role.ceiling);
            let rules: Vec<_> = role.rules.iter().collect();
            let is_cut =
                is_first && names_one_that(&rules, identity, |name| name.contains(['+', '#']));
            is_decided |= is_cut;
            for rule in rules.into_iter().filter(|_| !is_decided) {
                if says(&[rule], identity, action, filter, Effect::Allow) {
                    lowest = lowest.and(rule.ceiling);
                }
            }
            let all: Vec<_> = role.rules.iter().collect();
            is_decided |= is_first && says(&all, identity, action, filter, Effect::Allow);
        }
    }
    lowest
}

/// What the rules say, read one by one.
fn deny_overrides(set: &RuleSet, identity: &Identity, action: Action, filter: &str) -> Verdict {
    let roles = roles_of(set, identity);
    let rules: Vec<_> = roles.iter().flat_map(|role| &role.rules).collect();
    let means_more = |name: &str| name.starts_with('$') || name.contains(['+', '#', '/']);
    if names_one_that(&rules, identity, means_more) {
        return Verdict::Denied(Denial::UnusableName);
    }
    if says(&rules, identity, action, filter, Effect::Deny) {
        Verdict::Denied(Denial::Rule)
    } else if says(&rules, identity, action, filter, Effect::Allow) {
        Verdict::Allowed
    } else if roles.is_empty() {
        undecided(set, identity, action, Denial::NoRole)
    } else {
        undecided(set, identity, action, Denial::NoRule)
    }
}

/// What the roles say, one after the other.
fn first_applicable(set: &RuleSet, identity: &Identity, action: Action, filter: &str) -> Verdict {
    for role in roles_of(set, identity) {
        let rules: Vec<_> = role.rules.iter().collect();
        if names_one_that(&rules, identity, |name| name.contains(['+', '#'])) {
            return undecided(set, identity, action, Denial::UnusableName);
        }
        if says(&rules, identity, action, filter, Effect::Deny) {
            return Verdict::Denied(Denial::Rule);
        }
        if says(&rules, identity, action, filter, Effect::Allow) {
            return Verdict::Allowed;
        }
    }
    undecided(set, identity, action, Denial::NoRule)
}

/// The placeholders, and what they stand for. `role`: the one of the client's that `{role}` is.
fn names<'a>(
    identity: &'a Identity,
    role: Option<&'a str>,
) -> [(&'static str, Option<&'a str>); 4] {
    let claims = identity.claims.as_deref();
    [
        ("{user}", identity.user.as_deref()),
        ("{client}", Some(&*identity.client_id)),
        ("{role}", role),
        ("{claim.c}", claims.and_then(|claims| claims.value("c"))),
    ]
}

/// Each role that an authenticator vouches for, or none.
fn granted(identity: &Identity) -> Vec<Option<&str>> {
    let claims = identity.claims.as_deref();
    let roles: Vec<_> = claims
        .map(|it| it.roles().map(Some).collect())
        .unwrap_or_default();
    if roles.is_empty() { vec![None] } else { roles }
}

/// Whether the rules name the client by a name that is like this.
fn names_one_that(rules: &[&Rule], identity: &Identity, is: impl Fn(&str) -> bool) -> bool {
    granted(identity).into_iter().any(|role| {
        names(identity, role).iter().any(|(placeholder, name)| {
            name.is_some_and(&is) && rules.iter().any(|rule| rule.filter.contains(placeholder))
        })
    })
}

fn says(
    rules: &[&Rule],
    identity: &Identity,
    action: Action,
    filter: &str,
    effect: Effect,
) -> bool {
    let mut roles = granted(identity).into_iter();
    roles.any(|role| says_of(rules, (identity, role), action, filter, effect))
}

fn says_of(
    rules: &[&Rule],
    (identity, role): (&Identity, Option<&str>),
    action: Action,
    filter: &str,
    effect: Effect,
) -> bool {
    rules.iter().any(|rule| {
        // A name is one level of a topic that is no `$` topic, or nothing.
        let Some(levels) = rule
            .filter
            .split('/')
            .enumerate()
            .map(|(depth, level)| {
                let mut text = level.to_owned();
                for (placeholder, name) in names(identity, role) {
                    if text.contains(placeholder) {
                        let name = name.filter(|name| !name.contains(['/', '+', '#']))?;
                        text = text.replace(placeholder, name);
                        if depth == 0 && text.starts_with('$') {
                            return None;
                        }
                    }
                }
                Some(text)
            })
            .collect::<Option<Vec<_>>>()
        else {
            return false;
        };
        rule.effect == effect && rule.actions.has(action) && covers(&levels.join("/"), filter)
    })
}

/// Whether a rule's filter covers a topic or filter, level by level.
fn covers(rule: &str, filter: &str) -> bool {
    if let Ok(topic) = TopicName::parse(filter) {
        return TopicFilter::parse(rule).is_ok_and(|rule| rule.matches(topic));
    }
    if filter.starts_with('$') && rule.starts_with(['+', '#']) {
        return false;
    }
    let mut levels = filter.split('/');
    for wanted in rule.split('/') {
        if wanted == "#" {
            return true;
        }
        match levels.next() {
            Some("#") | None => return false,
            Some(level) if wanted == "+" || wanted == level => {}
            Some(_) => return false,
        }
    }
    levels.next().is_none()
}

/// Numbers that differ from seed to seed.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % end as u64).unwrap()
    }

    fn one_of<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }

    /// Levels of these, and at their end perhaps one of those.
    fn text(&mut self, levels: &[&str], last: &[&str]) -> String {
        let count = 1 + self.below(4);
        let mut text: Vec<_> = (0..count).map(|_| self.one_of(levels)).collect();
        if self.below(3) == 0 {
            text.extend(last.get(self.below(last.len().max(1))));
        }
        match text.join("/") {
            text if text.is_empty() => "a".to_owned(),
            text => text,
        }
    }

    fn role(&mut self, number: usize) -> Role {
        let members = (0..=self.below(2)).map(|_| match self.below(5) {
            0 => Member::ANYBODY,
            1 => Member::client(self.one_of(&["a*", "*b", "x", "*"])),
            2 => Member {
                user: Some(None),
                ..Member::ANYBODY
            },
            3 => Member {
                granted: Some(self.one_of(NAMES).into()),
                ..Member::ANYBODY
            },
            _ => Member::user(self.one_of(NAMES)),
        });
        let members = members.collect();
        let rules = (0..=self.below(6)).map(|line| {
            let actions = [Action::Publish, Action::Subscribe, Action::Receive];
            let mut chosen = Actions::from(actions[self.below(3)]);
            chosen = chosen.and(actions[self.below(3)]);
            Rule {
                effect: [Effect::Allow, Effect::Allow, Effect::Deny][self.below(3)],
                actions: chosen,
                filter: self.text(RULE_LEVELS, &["#"]).into(),
                ceiling: self.ceiling(),
                origin: format!("rules:{line}").into(),
            }
        });
        let rules = rules.collect();
        Role {
            name: format!("role{number}").into(),
            members,
            connect: Effect::Allow,
            ceiling: self.ceiling(),
            client_id: None,
            rules,
            mount_point: None,
        }
    }

    /// None as often as some.
    fn ceiling(&mut self) -> Ceiling {
        let qos = [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce];
        match self.below(6) {
            0..=2 => Ceiling::NONE,
            _ => Ceiling {
                max_qos: qos[self.below(3)],
                retain: self.below(2) > 0,
            },
        }
    }
}

impl Random {
    /// No claims as often as some.
    fn claims(&mut self) -> Option<Arc<Claims>> {
        let roles = (0..self.below(3))
            .map(|_| self.one_of(NAMES).into())
            .collect();
        let value = self.one_of(NAMES).into();
        let values = (self.below(2) > 0).then(|| ("c".into(), value));
        let claims = Claims::new(roles, values.into_iter().collect()).unwrap();
        (self.below(2) > 0).then(|| Arc::new(claims))
    }

    /// At most three sets, most often of roles whose denials override.
    fn sets(&mut self) -> Vec<RuleSet> {
        let count = [1, 1, 2, 3][self.below(4)];
        let mut set = |_| {
            let roles = (0..=self.below(3)).map(|n| self.role(n)).collect();
            let is_first = self.below(3) == 0;
            RuleSet {
                listeners: (self.below(3) == 0).then(|| vec![1, 2]),
                combining: if is_first {
                    Combining::FirstApplicable
                } else {
                    Combining::DenyOverrides
                },
                unless_decided: match self.below(4) {
                    0 => Action::Subscribe.into(),
                    _ => Actions::NONE,
                },
                roles,
            }
        };
        (0..count).map(&mut set).collect()
    }
}

const NAMES: &[&str] = &["a", "b", "ab", "x-a", "", "+", "#", "a/b", "$SYS"];
const RULE_LEVELS: &[&str] = &[
    "a",
    "b",
    "",
    "+",
    "{user}",
    "{client}",
    "x-{client}",
    "{role}",
    "x-{role}",
    "{claim.c}",
    "$SYS",
];
const TOPIC_LEVELS: &[&str] = &["a", "b", "ab", "", "x-a", "x-b", "$SYS"];
const FILTER_LEVELS: &[&str] = &["a", "b", "ab", "", "x-a", "x-b", "$SYS", "+"];

/// A message that no limit is about.
const LEAST: (QoS, bool) = (QoS::AtMostOnce, false);

#[test]
fn trees_and_tables_say_what_the_rules_say_one_by_one() {
    let (mut allowed, mut limited) = (0, 0);
    for seed in 0..400 {
        let mut random = Random(seed);
        let sets = random.sets();
        let policy = Arc::new(Policy::compile(1 + seed, sets.clone()).unwrap());
        let mut access = AccessControl::default();
        access.replace(Some(Arc::clone(&policy)));
        for _ in 0..100 {
            let user = random.one_of(NAMES);
            let identity = Identity {
                user: (random.below(3) > 0).then(|| user.into()),
                claims: random.claims(),
                client_id: random.one_of(NAMES).into(),
                peer: Peer {
                    listener: [0, 1, 2][random.below(3)],
                    ..Peer::default()
                },
            };
            let subject = access.subject(|| identity.clone());
            let id = SessionId(3);
            access.admit(id, subject);
            let topic = random.text(TOPIC_LEVELS, &[]);
            let filter = random.text(FILTER_LEVELS, &["#"]);
            let check = |action, text: &str, found: Verdict| {
                let expected = verdict(&sets, &identity, action, text);
                let decided = policy.decide(&identity, action, text).verdict;
                assert_eq!(
                    (found, decided),
                    (expected, expected),
                    "seed {seed}: {identity:?} {action:?} {text} {sets:#?}"
                );
                u32::from(found == Verdict::Allowed)
            };
            if let (Ok(_), Ok(filter)) = (TopicName::parse(&topic), TopicFilter::parse(&filter)) {
                for _ in 0..2 {
                    if !super::is_reserved(&topic) {
                        let found = access.publish(id, &topic, LEAST);
                        allowed += check(Action::Publish, &topic, found);
                        let ceiling = ceiling(&sets, &identity, Action::Publish, &topic);
                        for terms in [(QoS::AtLeastOnce, false), (QoS::ExactlyOnce, true)] {
                            let expected = match ceiling.denial(terms.0, terms.1) {
                                Some(why) if !found.is_denied() => Verdict::Denied(why),
                                _ => found,
                            };
                            limited += u32::from(expected != found);
                            let decided = policy.decide_publish(&identity, &topic, terms);
                            let found = access.publish(id, &topic, terms);
                            assert_eq!((found, decided.verdict), (expected, expected), "{seed}");
                        }
                    }
                    let found = access.receive(id, &topic, false);
                    allowed += check(Action::Receive, &topic, found);
                }
                let found = access.subscribe(id, filter);
                let verdict = found.map_or_else(Verdict::Denied, |_| Verdict::Allowed);
                allowed += check(Action::Subscribe, filter.as_str(), verdict);
                if let Ok(max_qos) = found {
                    let text = filter.as_str();
                    let ceiling = ceiling(&sets, &identity, Action::Subscribe, text);
                    assert_eq!(max_qos, ceiling.max_qos, "{seed}");
                }
            }
        }
    }
    assert!(allowed > 3_000, "{allowed} were allowed: too few to tell");
    assert!(limited > 500, "{limited} were limited: too few to tell");
}

/// A rule that allows a filter allows each topic of it.
#[test]
fn what_a_filter_asks_for_is_what_its_rule_is_about() {
    let mut covered = 0;
    for seed in 0..20_000 {
        let mut random = Random(seed);
        let levels = ["a", "b", "", "+", "$SYS"];
        let (rule, filter) = (random.text(&levels, &["#"]), random.text(&levels, &["#"]));
        let (Ok(rule), Ok(filter)) = (TopicFilter::parse(&rule), TopicFilter::parse(&filter))
        else {
            continue;
        };
        if !covers(rule.as_str(), filter.as_str()) {
            continue;
        }
        covered += 1;
        for _ in 0..50 {
            let topic = random.text(&["a", "b", "", "$SYS", "c"], &[]);
            if let Ok(topic) = TopicName::parse(&topic)
                && filter.matches(topic)
            {
                assert!(rule.matches(topic), "{rule:?} {filter:?} {topic:?}");
            }
        }
    }
    assert!(covered > 500, "{covered} were covered: too few to tell");
}

#[test]
fn a_rule_that_cannot_be_meant_is_refused() {
    let compile = |filter: &str| {
        let rule = Rule {
            effect: Effect::Allow,
            actions: Actions::ALL,
            filter: filter.into(),
            ceiling: Ceiling::NONE,
            origin: "acl:7".into(),
        };
        let role = Role {
            name: "r".into(),
            members: vec![Member::ANYBODY],
            connect: Effect::Allow,
            ceiling: Ceiling::NONE,
            client_id: None,
            rules: vec![rule],
            mount_point: None,
        };
        let compiled = Policy::compile(1, vec![RuleSet::of(vec![role])]);
        compiled.map(drop).map_err(|error| error.to_string())
    };
    assert_eq!(compile("a/{user}/#"), Ok(()));
    assert_eq!(compile("a/{{user}/#"), Ok(()));
    assert_eq!(compile("a/{role}-{claim.site}/#"), Ok(()));
    let placeholder =
        "only {user}, {client}, {role} and {claim.NAME} have a meaning; a brace is written {{";
    for filter in ["a/{roles}", "{", "a/{user", "{claim.}", "{claim}"] {
        let level = filter.rsplit('/').next().unwrap_or_default();
        assert_eq!(compile(filter), Err(format!("in {level}: {placeholder}")));
    }
    let hash = "acl:7: invalid topic filter: '#' must be the last level";
    assert_eq!(compile("#/a"), Err(hash.to_owned()));
    let deep = "acl:7: it has more than 200 levels";
    assert_eq!(compile(&"a/".repeat(200)), Err(deep.to_owned()));
}

fn rule(effect: Effect, filter: &str, line: u32) -> Rule {
    Rule {
        effect,
        actions: Actions::ALL,
        filter: filter.into(),
        ceiling: Ceiling::NONE,
        origin: format!("acl:{line}").into(),
    }
}

#[test]
fn a_decision_names_the_rule_that_made_it() {
    let role = |name: &str, connect, member, rules| Role {
        name: name.into(),
        members: vec![member],
        connect,
        ceiling: Ceiling::NONE,
        client_id: None,
        rules,
        mount_point: None,
    };
    let policy = Policy::compile(
        1,
        vec![RuleSet::of(vec![
            role(
                "all",
                Effect::Allow,
                Member::ANYBODY,
                vec![
                    rule(Effect::Allow, "#", 1),
                    rule(Effect::Allow, "own/{user}", 2),
                ],
            ),
            role(
                "guests",
                Effect::Allow,
                Member::user("guest"),
                vec![rule(Effect::Deny, "own/#", 3)],
            ),
            role("banned", Effect::Deny, Member::client("bad-*"), vec![]),
        ])],
    );
    let policy = policy.unwrap();
    let client = |user: &str, client_id: &str| Identity {
        user: Some(user.into()),
        client_id: client_id.into(),
        ..Identity::default()
    };
    let check = |identity: &Identity, topic, verdict, line: Option<&str>| {
        let decision = policy.decide(identity, Action::Publish, topic);
        let origin = decision.rule.map(|rule| &*rule.origin);
        assert_eq!((decision.verdict, origin), (verdict, line), "{topic}");
    };
    let denied = Verdict::Denied;
    check(
        &client("ann", "1"),
        "own/ann",
        Verdict::Allowed,
        Some("acl:1"),
    );
    check(
        &client("guest", "1"),
        "own/guest",
        denied(Denial::Rule),
        Some("acl:3"),
    );
    check(&client("ann", "1"), "$x", denied(Denial::NoRule), None);
    let reserved = denied(Denial::ReservedTopic);
    check(&client("ann", "1"), "$SYS/x", reserved, None);
    check(&client("a/b", "1"), "a", denied(Denial::UnusableName), None);
    let connect = |identity: &Identity| {
        let decision = policy.connect(identity);
        (
            decision.verdict,
            decision.role.map(|role| role.name.to_string()),
        )
    };
    let all = || Some("all".to_owned());
    assert_eq!(connect(&client("ann", "1")), (Verdict::Allowed, all()));
    let banned = (denied(Denial::Rule), Some("banned".to_owned()));
    assert_eq!(connect(&client("ann", "bad-1")), banned);
    assert_eq!(
        connect(&client("+", "1")),
        (denied(Denial::UnusableName), all())
    );
}
