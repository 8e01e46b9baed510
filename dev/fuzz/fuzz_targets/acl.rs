//! An access control list and questions about it, answered by the compiled policy and by a naive
//! reading of its lines.
//!
//! Input: a user name, a client id and a topic, each on a line of its own, then the list. An empty
//! user name is none.

#![no_main]

use libfuzzer_sys::fuzz_target;
use unbroken_broker::access::Action;
use unbroken_broker::fuzzing::AclPolicy;
use unbroken_mosquitto_files::acl::{Access, Acl, Part, Rule, Who};
use unbroken_mqtt_proto::TopicName;

fuzz_target!(|input: &[u8]| {
    let mut lines = input.splitn(4, |byte| *byte == b'\n');
    let mut line = || lines.next().and_then(|line| std::str::from_utf8(line).ok());
    let (Some(user), Some(client_id), Some(topic)) = (line(), line(), line()) else {
        return;
    };
    let list = lines.next().unwrap_or_default();
    if TopicName::parse(topic).is_err() {
        return;
    }
    let user = Some(user).filter(|user| !user.is_empty());
    let (Ok(acl), Some(policy)) = (Acl::parse("acl", list), AclPolicy::compile(list)) else {
        return;
    };
    let client = Client { user, client_id };
    for action in [Action::Publish, Action::Receive] {
        let allowed = policy.allows(user, client_id, action, topic);
        assert_eq!(allowed, client.may(&acl.rules, action, topic), "{action:?}");
    }
    let allowed = policy.allows(user, client_id, Action::Subscribe, topic);
    assert_eq!(allowed, client.may_subscribe(&acl.rules, topic));
});

struct Client<'a> {
    user: Option<&'a str>,
    client_id: &'a str,
}

impl Client<'_> {
    /// The client's own lines, else the patterns; in each a denial before all permissions. Some
    /// topics are the broker's alone.
    fn may(&self, rules: &[Rule], action: Action, topic: &str) -> bool {
        let is_reserved = topic.starts_with("$SYS/") || topic.starts_with("$audit/");
        if action == Action::Publish && is_reserved {
            return false;
        }
        let own = rules.iter().filter(|rule| self.owns(rule));
        if let Some(answer) = self.decided(own, action, topic) {
            return answer;
        }
        if self.has_wildcard() {
            return false;
        }
        let patterns = rules.iter().filter(|rule| rule.who == Who::Everyone);
        self.decided(patterns, action, topic).unwrap_or(false)
    }

    /// Everything, unless a `subscribe` line is about the client: then what such lines name.
    fn may_subscribe(&self, rules: &[Rule], topic: &str) -> bool {
        let is_pattern = |rule: &Rule| rule.who == Who::Everyone;
        let lines = || {
            let all = rules.iter().filter(|rule| rule.access == Access::Subscribe);
            all.filter(|rule| self.owns(rule) || is_pattern(rule))
        };
        let allows =
            |rule: &Rule| (!is_pattern(rule) || !self.has_wildcard()) && self.reaches(rule, topic);
        lines().next().is_none() || lines().any(allows)
    }

    fn owns(&self, rule: &Rule) -> bool {
        match &rule.who {
            Who::Anonymous => self.user.is_none(),
            Who::User(name) => self.user == Some(name),
            Who::Everyone => false,
        }
    }

    /// To a client with a wildcard in a name no pattern allows anything.
    fn has_wildcard(&self) -> bool {
        let names = [self.user.unwrap_or_default(), self.client_id];
        names.iter().any(|name| name.contains(['+', '#']))
    }

    fn decided<'r>(
        &self,
        rules: impl Iterator<Item = &'r Rule> + Clone,
        action: Action,
        topic: &str,
    ) -> Option<bool> {
        let mut matching = rules.filter(|rule| self.reaches(rule, topic));
        if matching.clone().any(|rule| rule.access == Access::Deny) {
            return Some(false);
        }
        let allows = |rule: &Rule| match rule.access {
            Access::Read => action == Action::Receive,
            Access::Write => action == Action::Publish,
            Access::ReadWrite => true,
            Access::Deny | Access::Subscribe => false,
        };
        matching.any(allows).then_some(true)
    }

    fn reaches(&self, rule: &Rule, topic: &str) -> bool {
        let mut filter = String::new();
        for part in rule.parts() {
            let name = match part {
                Part::Text(text) => {
                    filter.push_str(text);
                    continue;
                }
                Part::User => self.user,
                Part::Client => Some(self.client_id),
            };
            // A name with a separator would reach further levels.
            let Some(name) = name.filter(|name| !name.contains('/')) else {
                return false;
            };
            // Nor does it reach topics of the broker.
            if filter.is_empty() && name.starts_with('$') {
                return false;
            }
            filter.push_str(name);
        }
        let of_broker = topic.starts_with('$');
        if of_broker && filter.starts_with(['+', '#']) {
            return false;
        }
        matches(
            &filter.split('/').collect::<Vec<_>>(),
            &topic.split('/').collect::<Vec<_>>(),
        )
    }
}

fn matches(filter: &[&str], topic: &[&str]) -> bool {
    match (filter, topic) {
        (["#"], _) | ([], []) => true,
        (["+", filter @ ..], [_, topic @ ..]) => matches(filter, topic),
        ([level, filter @ ..], [same, topic @ ..]) => level == same && matches(filter, topic),
        _ => false,
    }
}
