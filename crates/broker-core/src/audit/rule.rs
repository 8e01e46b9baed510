//! Who is stamped, verified, or left alone: the first rule that fits decides.

use unbroken_mqtt_proto::{TopicFilter, TopicName};

use crate::name_pattern::is_like;
use crate::settings::{AuditAction, AuditRule};

/// What the rules say of one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Treatment {
    pub(crate) action: AuditAction,
    pub(crate) forward_stamp: bool,
}

impl Treatment {
    pub(crate) const DEFAULT: Self = Self {
        action: AuditAction::Verify,
        forward_stamp: false,
    };
}

/// The numbers of the rules that may concern this client.
pub(crate) fn rules_of(client_id: &str, rules: &[AuditRule]) -> Box<[u16]> {
    let numbered = (0..).zip(rules);
    let of_client = numbered.filter(|(_, rule)| is_like(&rule.client, client_id));
    of_client.map(|(number, _)| number).collect()
}

/// What is done with a message on this topic, of a client whom these rules may concern.
#[cold]
pub(crate) fn treatment(numbers: &[u16], rules: &[AuditRule], topic: &str) -> Treatment {
    let Ok(topic) = TopicName::parse(topic) else {
        return Treatment::DEFAULT;
    };
    let of_client = numbers.iter().filter_map(|at| rules.get(usize::from(*at)));
    let mut fitting = of_client
        .filter(|rule| TopicFilter::parse(&rule.topic).is_ok_and(|filter| filter.matches(topic)));
    fitting.next().map_or(Treatment::DEFAULT, |rule| Treatment {
        action: rule.action,
        forward_stamp: rule.forward_stamp,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_rule_that_fits_decides() {
        let rule = |client: &str, topic: &str, action| AuditRule {
            client: client.to_owned(),
            topic: topic.to_owned(),
            action,
            forward_stamp: false,
        };
        let rules = [
            rule("pump-*", "raw/#", AuditAction::Off),
            rule("*", "raw/#", AuditAction::Stamp),
        ];
        let check = |client: &str, topic: &str, action| {
            let numbers = rules_of(client, &rules);
            assert_eq!(treatment(&numbers, &rules, topic).action, action);
        };
        check("pump-1", "raw/1", AuditAction::Off);
        check("valve", "raw/1", AuditAction::Stamp);
        check("pump-1", "state", AuditAction::Verify);
    }
}
