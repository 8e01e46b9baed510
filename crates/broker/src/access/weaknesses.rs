//! What a valid configuration leaves open, perhaps by accident.

use std::net::SocketAddr;

use super::acl_file;
use crate::config::{Config, Listener};

/// What a configuration leaves open, as sentences for `unbroken check`: of each listener and
/// gateway, then of the whole.
pub fn weaknesses(config: &Config) -> Vec<String> {
    let mut found = Vec::new();
    for listener in &config.listeners {
        let address = listener.address();
        let mut weak = |text: &str| found.push(format!("{address}: {text}"));
        if listener.is_in_the_clear() {
            weak(
                "passwords and messages cross the network in the clear (insecure = true); `protocol` \
                 mqtts or wss encrypts them",
            );
        }
        let has_rules = listener.acl_file.is_some() || !config.roles.is_empty();
        if !listener.is_local() && listener.allow_anonymous && !has_rules {
            weak("every client that reaches it may read and write every topic");
        }
        if !verifies_users(listener) && names_users(config, listener) {
            weak("it verifies no user names, so no access rule about a user fits its clients");
        }
    }
    for gateway in &config.gateways {
        let is_open = |address: SocketAddr| !address.ip().is_loopback();
        if gateway.listen_address().is_some_and(is_open) && gateway.user.is_none() {
            found.push(format!(
                "gateway {}: every program that reaches it acts as an anonymous client; give it a \
                 `user` with rules for it, or let it listen on loopback",
                gateway.name()
            ));
        }
    }
    for (index, rate) in config.rates.iter().enumerate() {
        let is_here = |name: &String| config.roles.iter().any(|it| it.name.as_ref() == Some(name));
        let others = rate.roles.iter().filter(|name| !is_here(name));
        found.extend(others.map(|name| {
            format!(
                "{}: no `[[roles]]` table has the name `{name}`; without such a role in the store \
                 it limits no client",
                rate.label(index)
            )
        }));
    }
    let allows = |role: &crate::config::Role| !role.allow.is_empty();
    if !config.roles.is_empty() && !config.roles.iter().any(allows) {
        found.push("roles: none of them allows anything, so everything is denied".to_owned());
    }
    found
}

fn verifies_users(listener: &Listener) -> bool {
    listener.has_logins() || listener.names_users()
}

/// Whether access rules for the clients of this listener are about users.
fn names_users(config: &Config, listener: &Listener) -> bool {
    let is_about = |listeners: &[String]| {
        let name = listener.name.as_ref();
        listeners.is_empty() || name.is_some_and(|name| listeners.contains(name))
    };
    let in_roles = || {
        let roles = config.roles.iter().filter(|role| is_about(&role.listeners));
        roles.into_iter().any(|role| {
            let rules = role.allow.iter().chain(&role.deny);
            !role.users.is_empty() || rules.into_iter().any(|rule| rule.contains("{user}"))
        })
    };
    let in_list = || {
        let list = listener.acl_file.as_deref().map(acl_file::read);
        list.is_some_and(|list| list.is_ok_and(|list| list.names_users()))
    };
    in_roles() || in_list()
}

#[cfg(test)]
mod tests {
    use std::slice;

    use super::*;
    use crate::config::{RateRule, Role, SpGateway};

    #[test]
    fn what_is_left_open_is_named() {
        let local = Listener::default();
        let check = |listener: Listener, roles: &[Role], words: &[&str]| {
            let config = Config {
                listeners: vec![listener],
                roles: roles.to_vec(),
                ..Config::default()
            };
            let found = weaknesses(&config);
            assert_eq!(found.len(), words.len(), "{found:?}");
            for (found, words) in found.iter().zip(words) {
                assert!(found.contains(words), "{found}");
            }
        };
        let open = Listener {
            bind: [0, 0, 0, 0].into(),
            ..local.clone()
        };
        check(local.clone(), &[], &[]);
        check(open.clone(), &[], &["in the clear", "every topic"]);
        let role = |lines: &[&str]| Role {
            allow: lines.iter().map(|line| (*line).to_owned()).collect(),
            ..Role::default()
        };
        check(open, &[role(&["all #"])], &["in the clear"]);
        let own = role(&["publish of/{user}"]);
        check(
            local.clone(),
            slice::from_ref(&own),
            &["verifies no user names"],
        );
        let verified = Listener {
            password_file: Some("users".into()),
            ..local.clone()
        };
        check(verified, &[own], &[]);
        check(local, &[role(&[])], &["none of them allows anything"]);
    }

    #[test]
    fn a_rate_for_a_role_that_is_not_in_the_file_is_named() {
        let role = |name: &str| Role {
            name: Some(name.to_owned()),
            allow: vec!["all #".to_owned()],
            ..Role::default()
        };
        let rate = RateRule {
            roles: vec!["sensor".to_owned()],
            ..RateRule::default()
        };
        let found = |name| {
            weaknesses(&Config {
                roles: vec![role(name)],
                rates: vec![rate.clone()],
                ..Config::default()
            })
        };
        assert_eq!(found("sensor"), [""; 0]);
        let misspelt = found("sensors");
        assert!(
            misspelt.len() == 1 && misspelt[0].contains("the name `sensor`"),
            "{misspelt:?}"
        );
    }

    /// SP has no passwords, so a gateway's rights are those of each program that reaches it.
    #[test]
    fn an_anonymous_gateway_beyond_loopback_is_named() {
        let named = |change: fn(&mut SpGateway)| {
            let mut gateway = SpGateway {
                name: Some("it".to_owned()),
                ..SpGateway::default()
            };
            change(&mut gateway);
            weaknesses(&Config {
                listeners: vec![Listener::default()],
                gateways: vec![gateway],
                ..Config::default()
            })
        };
        let open = named(|it| it.listen = "tcp://0.0.0.0:5555".to_owned());
        assert!(
            open.len() == 1 && open[0].contains("gateway it: "),
            "{open:?}"
        );
        let none: [&str; 0] = [];
        for change in [
            (|it: &mut SpGateway| it.listen = "tcp://127.0.0.1:5555".to_owned()) as fn(&mut _),
            |it| it.connect = "tcp://10.0.0.1:5555".to_owned(),
            |it| {
                it.listen = "tcp://0.0.0.0:5555".to_owned();
                it.user = Some("sp".to_owned());
            },
        ] {
            assert_eq!(named(change), none);
        }
    }
}
