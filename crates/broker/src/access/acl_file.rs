//! An access control list of Mosquitto as a rule set.
//!
//! ```text
//! lines of the client's user, or of clients without a name  ── first, if one matches
//! `pattern` lines                                           ── else
//! ```
//!
//! That order is Mosquitto's, as is that every SUBSCRIBE is granted and deliveries are filtered.
//! Two things are stricter: a name with `/` in it fills no `%u` or `%c`, where Mosquitto would let
//! it reach further levels; and a `subscribe` line, which Mosquitto does not have, makes its
//! clients' other filters be refused: those of its user, of clients without a name, or of all.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use unbroken_broker_core::{
    Action, Actions, Ceiling, Combining, Effect, Member, Role, Rule, RuleSet,
};
use unbroken_mosquitto_files::acl::{self, Access, Acl, Part, Who};
use unbroken_mosquitto_files::{Mistakes, Remark};

use crate::bounds::USERS_FILE_BYTES;
use crate::files;

/// Why an access control list cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AclFileError {
    /// The file cannot be read.
    #[error("cannot read the access control list {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Lines of it are wrong; all of them are named.
    #[error("{0}")]
    Lines(Mistakes),
}

/// An access control list that was read.
pub(crate) struct AclFile(Acl);

pub(super) fn read(path: &Path) -> Result<AclFile, AclFileError> {
    let text = files::read(path, USERS_FILE_BYTES).map_err(|source| AclFileError::Unreadable {
        path: path.to_owned(),
        source,
    })?;
    AclFile::parse(&path.display().to_string(), &text)
}

impl AclFile {
    pub(crate) fn parse(name: &str, text: &[u8]) -> Result<Self, AclFileError> {
        Acl::parse(name, text)
            .map(Self)
            .map_err(AclFileError::Lines)
    }

    pub(super) fn into_remarks(self) -> Vec<Remark> {
        self.0.remarks
    }

    /// Whether some of its lines are about users by name.
    pub(super) fn names_users(&self) -> bool {
        let is_about = |rule: &acl::Rule| match &rule.who {
            Who::User(_) => true,
            Who::Anonymous => false,
            Who::Everyone => rule.parts().contains(&Part::User),
        };
        self.0.rules.iter().any(is_about)
    }

    /// Its rules, for the clients of this listener.
    pub(crate) fn rule_set(&self, listener: u16) -> RuleSet {
        let mut named: BTreeMap<Option<&str>, Vec<Rule>> = BTreeMap::new();
        let mut patterns = Vec::new();
        for line in &self.0.rules {
            let rules = match &line.who {
                Who::Anonymous => named.entry(None).or_default(),
                Who::User(name) => named.entry(Some(name)).or_default(),
                Who::Everyone => &mut patterns,
            };
            rules.push(rule(line));
        }
        let role = |name: Arc<str>, member, rules| Role {
            name,
            members: vec![member],
            connect: Effect::Allow,
            ceiling: Ceiling::NONE,
            client_id: None,
            rules,
            mount_point: None,
        };
        let named = named.into_iter().map(|(user, rules)| match user {
            Some(user) => role(format!("user {user}").into(), Member::user(user), rules),
            None => role("clients without a name".into(), Member::ANONYMOUS, rules),
        });
        if !patterns.is_empty() {
            patterns.push(names_client());
        }
        let patterns = role("patterns".into(), Member::ANYBODY, patterns);
        RuleSet {
            listeners: Some(vec![listener]),
            combining: Combining::FirstApplicable,
            unless_decided: Action::Subscribe.into(),
            roles: named.chain([patterns]).collect(),
        }
    }
}

/// A rule about nothing that names the client: with patterns in the file, Mosquitto looks at both
/// names for wildcards, whatever the patterns contain.
fn names_client() -> Rule {
    Rule {
        effect: Effect::Deny,
        actions: Actions::NONE,
        filter: "{user}/{client}".into(),
        ceiling: Ceiling::NONE,
        origin: "patterns".into(),
    }
}

fn rule(line: &acl::Rule) -> Rule {
    let both = Actions::from(Action::Publish).and(Action::Receive);
    let (effect, actions) = match line.access {
        Access::Read => (Effect::Allow, Action::Receive.into()),
        Access::Write => (Effect::Allow, Action::Publish.into()),
        Access::ReadWrite => (Effect::Allow, both),
        Access::Deny => (Effect::Deny, both),
        Access::Subscribe => (Effect::Allow, Action::Subscribe.into()),
    };
    let parts = line.parts().into_iter().map(|part| match part {
        Part::Text(text) => text.replace('{', "{{"),
        Part::User => "{user}".to_owned(),
        Part::Client => "{client}".to_owned(),
    });
    Rule {
        effect,
        actions,
        filter: parts.collect::<String>().into(),
        ceiling: Ceiling::NONE,
        origin: line.place.to_string().into(),
    }
}

#[cfg(test)]
mod tests {
    use unbroken_broker_core::{Denial, Identity, Peer, Policy, Verdict};

    use super::*;

    fn policy(text: &str) -> Policy {
        let acl = AclFile::parse("acl", text.as_bytes()).unwrap();
        Policy::compile(1, vec![acl.rule_set(1)]).unwrap()
    }

    fn identity(user: Option<&str>, client_id: &str) -> Identity {
        Identity {
            user: user.map(Into::into),
            client_id: client_id.into(),
            claims: None,
            peer: Peer {
                listener: 1,
                ..Peer::default()
            },
        }
    }

    #[track_caller]
    fn check(policy: &Policy, who: &Identity, action: Action, topic: &str, expect: Verdict) {
        assert_eq!(policy.decide(who, action, topic).verdict, expect, "{topic}");
    }

    #[test]
    fn a_users_own_lines_come_before_patterns() {
        let policy = policy(
            "topic read open/#\nuser ann\ntopic deny x/secret\ntopic x/own\n\
             pattern deny x/own\npattern write x/%c\npattern read {%u}/+\n",
        );
        let (ann, bob) = (identity(Some("ann"), "c"), identity(Some("bob"), "c"));
        let allowed = Verdict::Allowed;
        let (denied, no_rule) = (
            Verdict::Denied(Denial::Rule),
            Verdict::Denied(Denial::NoRule),
        );
        check(&policy, &ann, Action::Publish, "x/own", allowed);
        check(&policy, &bob, Action::Publish, "x/own", denied);
        check(&policy, &ann, Action::Receive, "x/secret", denied);
        check(&policy, &ann, Action::Publish, "x/c", allowed);
        check(&policy, &ann, Action::Receive, "x/c", no_rule);
        check(&policy, &bob, Action::Receive, "{bob}/1", allowed);
        check(&policy, &bob, Action::Receive, "{ann}/1", no_rule);
        check(&policy, &bob, Action::Receive, "open/1", no_rule);
        let anonymous = identity(None, "c");
        check(&policy, &anonymous, Action::Receive, "open/1", allowed);
        check(&policy, &anonymous, Action::Publish, "open/1", no_rule);
        check(&policy, &bob, Action::Subscribe, "#", allowed);
        let elsewhere = Identity::default();
        check(&policy, &elsewhere, Action::Publish, "any", allowed);
    }

    #[test]
    fn names_open_no_other_topics() {
        let open = policy("pattern read public/#\n");
        check(
            &open,
            &identity(None, "c"),
            Action::Receive,
            "public/1",
            Verdict::Allowed,
        );
        for who in [identity(None, "a+b"), identity(Some("#"), "c")] {
            let decision = open.decide(&who, Action::Receive, "public/1");
            assert!(decision.verdict.is_denied());
        }
        let policy = policy("user a+b\ntopic own\npattern x/%u/%c\npattern %u/y\n");
        let wildcard = identity(Some("a+b"), "c");
        check(&policy, &wildcard, Action::Publish, "own", Verdict::Allowed);
        for (user, client_id, topic) in [
            ("+", "c", "x/a/c"),
            ("#", "c", "x/a/c"),
            ("a", "#", "x/a/c"),
            ("a/b", "c", "x/a/b/c"),
            ("a", "b/c", "x/a/b/c"),
            ("$SYS", "c", "$SYS/y"),
        ] {
            let who = identity(Some(user), client_id);
            let decision = policy.decide(&who, Action::Receive, topic);
            assert!(decision.verdict.is_denied(), "{user} {client_id} {topic}");
        }
    }

    #[test]
    fn subscribe_lines_say_what_is_granted() {
        let policy = policy("pattern readwrite #\npattern subscribe of/%c/#\n");
        let who = identity(None, "c");
        let no_rule = Verdict::Denied(Denial::NoRule);
        check(&policy, &who, Action::Subscribe, "of/c/+", Verdict::Allowed);
        check(&policy, &who, Action::Subscribe, "of/#", no_rule);
        check(&policy, &who, Action::Receive, "of/d", Verdict::Allowed);
    }

    #[test]
    fn subscribe_lines_concern_their_clients_alone() {
        let policy = policy(
            "topic subscribe open/#\nuser ann\ntopic subscribe a/#\nuser bob\ntopic read b\n",
        );
        let no_rule = Verdict::Denied(Denial::NoRule);
        for (user, filter, expect) in [
            (Some("ann"), "a/+", Verdict::Allowed),
            (Some("ann"), "b", no_rule),
            (Some("bob"), "b", Verdict::Allowed),
            (Some("bob"), "#", Verdict::Allowed),
            (Some("carol"), "$SYS/#", Verdict::Allowed),
            (None, "open/1", Verdict::Allowed),
            (None, "a/1", no_rule),
        ] {
            check(
                &policy,
                &identity(user, "c"),
                Action::Subscribe,
                filter,
                expect,
            );
        }
    }

    #[test]
    fn a_decision_names_the_line() {
        let policy = policy("# rights\nuser ann\ntopic read a/#\n");
        let decision = policy.decide(&identity(Some("ann"), "c"), Action::Receive, "a/b");
        assert_eq!(decision.rule.map(|rule| &*rule.origin), Some("acl:3:1"));
    }
}
