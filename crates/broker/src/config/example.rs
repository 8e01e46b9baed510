//! A config file to start from: every key with its meaning and its default, commented out.

use std::fmt::Write;

use super::gateways::{GATEWAY_KEYS, GATEWAYS, GATEWAYS_DOC, SpGateway};
use super::http_auth::{HTTP_AUTH, HTTP_AUTH_DOC, HTTP_AUTH_KEYS};
use super::rates::{RATE_KEYS, RATES, RATES_DOC};
use super::table::{Key, SECTIONS};
use super::table_arrays::{
    LISTENER_KEYS, LISTENERS, LISTENERS_DOC, ROLE_KEYS, ROLES, ROLES_DOC, RULE_KEYS, RULES,
    RULES_DOC,
};
use unbroken_broker_core::AuditRule;

use super::tokens::{JWT, JWT_DOC, JWT_KEYS};
use super::{Config, HttpAuth, Jwt, Listener, RateRule, Role};

/// The text of the example file. It is valid and, as it stands, changes nothing.
pub fn example() -> String {
    let mut text = String::from(
        "# Configuration of `unbroken serve`. Every key shows its default; remove the # to change\n\
         # it. `unbroken check -c FILE` validates a file and shows where each value comes from.\n\
         # Flags override variables, and variables override this file: the variable\n\
         # UNBROKEN__SECTION__KEY holds a value, UNBROKEN__SECTION__KEY_FILE names a file with \
         it.\n",
    );
    let (config, listener) = (Config::default(), Listener::default());
    // Writing to a String cannot fail, here and below.
    let _ = write!(text, "\n# {LISTENERS_DOC}\n[[{LISTENERS}]]\n");
    push_keys(&mut text, LISTENER_KEYS, &listener);
    let _ = write!(text, "\n# {ROLES_DOC}\n#[[{ROLES}]]\n");
    push_keys(&mut text, ROLE_KEYS, &Role::default());
    let _ = write!(text, "\n# {RATES_DOC}\n#[[{RATES}]]\n");
    push_keys(&mut text, RATE_KEYS, &RateRule::default());
    let _ = write!(text, "\n# {JWT_DOC}\n#[[{JWT}]]\n");
    push_keys(&mut text, JWT_KEYS, &Jwt::default());
    let _ = write!(text, "\n# {HTTP_AUTH_DOC}\n#[[{HTTP_AUTH}]]\n");
    push_keys(&mut text, HTTP_AUTH_KEYS, &HttpAuth::default());
    for section in SECTIONS {
        let _ = write!(text, "\n# {}\n[{}]\n", section.doc, section.name);
        push_keys(&mut text, section.keys, &config);
        if section.name == "audit" {
            let _ = write!(text, "\n# {RULES_DOC}\n#[[{RULES}]]\n");
            push_keys(&mut text, RULE_KEYS, &AuditRule::any());
        }
    }
    let _ = write!(text, "\n# {GATEWAYS_DOC}\n#[[{GATEWAYS}]]\n");
    push_keys(&mut text, GATEWAY_KEYS, &SpGateway::default());
    text
}

fn push_keys<T>(text: &mut String, keys: &[Key<T>], defaults: &T) {
    for key in keys {
        for line in key.doc {
            let _ = writeln!(text, "# {line}");
        }
        let _ = writeln!(
            text,
            "#{} = {}",
            key.name,
            key.kind.show(&(key.get)(defaults))
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Applies;
    use crate::config::written::Written;

    #[test]
    fn the_documentation_shows_every_key_as_it_is() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");
        let text = std::fs::read_to_string(path).unwrap();
        let shown = text
            .split_once("```toml\n")
            .and_then(|(_, rest)| rest.split_once("```\n"));
        assert_eq!(
            shown.map(|(shown, _)| shown),
            Some(&*example()),
            "{path} is to show `unbroken check --example`"
        );
        let waits = |applies| applies == Applies::Restart;
        let listener = LISTENER_KEYS.iter().filter(|key| waits(key.applies));
        let names = listener.map(|key| format!("{LISTENERS}.{}", key.name));
        let rule = RULE_KEYS.iter().filter(|key| waits(key.applies));
        let names = names.chain(rule.map(|key| format!("{RULES}.{}", key.name)));
        let others = SECTIONS.iter().flat_map(|section| {
            let keys = section.keys.iter().filter(|key| waits(key.applies));
            keys.map(|key| format!("{}.{}", section.name, key.name))
        });
        let gateway = GATEWAY_KEYS.iter().filter(|key| waits(key.applies));
        let gateway = gateway.map(|key| format!("{GATEWAYS}.{}", key.name));
        let expected: Vec<_> = names.chain(others).chain(gateway).collect();
        let listed: Vec<_> = text
            .lines()
            .filter_map(|line| line.strip_prefix("  - `")?.strip_suffix('`'))
            .collect();
        assert_eq!(listed, expected, "{path} is to list what needs a restart");
    }

    #[test]
    fn the_example_is_valid_and_so_is_each_of_its_defaults() {
        let uncommented: String = example()
            .lines()
            .map(|line| {
                line.strip_prefix('#')
                    .filter(|l| !l.starts_with(' '))
                    .unwrap_or(line)
            })
            .fold(String::new(), |text, line| text + line + "\n");
        for text in [example(), uncommented] {
            let mut written = Written::default();
            written.read_text(&text, "example.toml".as_ref());
            let effective = crate::config::load::resolve(written).unwrap();
            assert_eq!(effective.config.broker, Config::default().broker);
            assert_eq!(effective.config.limits, Config::default().limits);
            assert_eq!(effective.config.listeners, [Listener::default()]);
            let rules = effective.config.audit.rules;
            assert!(rules.is_empty() || rules == [AuditRule::any()]);
            assert!(effective.config.roles.len() <= 1);
            assert!(effective.config.rates.len() <= 1);
            assert!(effective.config.jwt.len() <= 1);
            let gateways = effective.config.gateways;
            assert!(gateways.is_empty() || gateways == [SpGateway::default()]);
        }
    }
}
