//! What a valid configuration leaves open, perhaps by accident.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use super::acl_file;
use crate::config::{Config, Listener, Takeover};

/// Of a file's permissions: all others may read it.
const OTHERS_READ: u32 = 0o004;
/// All others may write it.
const OTHERS_WRITE: u32 = 0o002;

/// What a configuration leaves open, as sentences for `unbroken check`: of each listener and
/// gateway, then of the whole.
pub fn weaknesses(config: &Config) -> Vec<String> {
    let mut found = Vec::new();
    for listener in &config.listeners {
        let address = listener.address();
        let of_listener = of_clients(config, listener).into_iter();
        let all = of_listener.chain(of_files(listener));
        found.extend(all.map(|text| format!("{address}: {text}")));
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

/// What may be as it should: hints about listeners, which `unbroken check` lists as notes.
pub fn notes(config: &Config) -> Vec<String> {
    let has_no_list = |it: &&Listener| it.verifies_certificates() && it.tls.crl_file.is_none();
    let listeners = config.listeners.iter().filter(has_no_list);
    let note = |listener: &Listener| {
        format!(
            "{}: without `crl_file` no certificate of a client can be revoked before it expires",
            listener.address()
        )
    };
    listeners.map(note).collect()
}

/// What a listener lets its clients do.
fn of_clients(config: &Config, listener: &Listener) -> Vec<String> {
    let mut found = Vec::new();
    let mut weak = |text: &str| found.push(text.to_owned());
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
    if listener.takeover == Takeover::Anyone {
        weak(
            "every client may take over the session of another user, with the messages that wait \
             for it (takeover = \"anyone\")",
        );
    }
    if listener.allowed_origins.iter().any(|origin| origin == "*") {
        weak("a page of any site may connect from a user's browser (allowed_origins = [\"*\"])");
    }
    found
}

/// Files of a listener that other users of this machine may read or write.
fn of_files(listener: &Listener) -> Vec<String> {
    let keys = listener.tls.key_files.iter();
    let keys = keys.map(|file| ("private key", file, OTHERS_READ | OTHERS_WRITE));
    let passwords = listener.password_file.iter();
    let passwords = passwords.map(|file| ("password file", file, OTHERS_READ | OTHERS_WRITE));
    let rules = listener.acl_file.iter();
    let rules = rules.map(|file| ("access control list", file, OTHERS_WRITE));
    let open = |(what, file, bits): (&str, &PathBuf, u32)| open_to_others(what, file, bits);
    keys.chain(passwords)
        .chain(rules)
        .filter_map(open)
        .collect()
}

/// `None` also of a file that is not there: that is a mistake, and found elsewhere.
fn open_to_others(what: &str, file: &Path, bits: u32) -> Option<String> {
    let mode = fs::metadata(file).ok()?.permissions().mode() & bits;
    let may = match (mode & OTHERS_READ != 0, mode & OTHERS_WRITE != 0) {
        (false, false) => return None,
        (true, false) => "read",
        (false, true) => "write",
        (true, true) => "read and write",
    };
    let file = file.display();
    Some(format!(
        "every user of this machine may {may} its {what} {file}; `chmod o= {file}` ends that"
    ))
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
    use crate::config::{Protocol, RateRule, Role, SpGateway};

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
    fn files_that_others_may_read_or_write_are_named() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str, mode: u32| {
            let path = directory.path().join(name);
            fs::write(&path, "").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            path
        };
        for (passwords, key, list, expect) in [
            (0o640, 0o600, 0o644, &[][..]),
            (0o644, 0o600, 0o644, &["may read its password file"]),
            (
                0o606,
                0o600,
                0o644,
                &["may read and write its password file"],
            ),
            (0o600, 0o644, 0o644, &["may read its private key"]),
            (0o600, 0o640, 0o646, &["may write its access control list"]),
        ] {
            let mut listener = Listener {
                password_file: Some(file("users", passwords)),
                acl_file: Some(file("acl", list)),
                ..Listener::default()
            };
            listener.tls.key_files = vec![file("key", key)];
            let found = of_files(&listener);
            assert_eq!(found.len(), expect.len(), "{found:?}");
            for (found, words) in found.iter().zip(expect) {
                assert!(found.contains(words), "{found}");
            }
        }
        let gone = Listener {
            password_file: Some(directory.path().join("gone")),
            ..Listener::default()
        };
        assert_eq!(of_files(&gone), [""; 0]);
    }

    #[test]
    fn takeover_by_anyone_and_pages_of_all_sites_are_weak_and_a_missing_list_is_a_note() {
        let mut listener = Listener {
            protocol: Protocol::Wss,
            takeover: Takeover::Anyone,
            allowed_origins: vec!["*".to_owned()],
            ..Listener::default()
        };
        let config = |listener: &Listener| Config {
            listeners: vec![listener.clone()],
            ..Config::default()
        };
        let found = weaknesses(&config(&listener));
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("takeover = \"anyone\""), "{found:?}");
        assert!(found[1].contains("allowed_origins"), "{found:?}");
        assert_eq!(notes(&config(&listener)), [""; 0]);
        listener.tls.client_ca_file = Some("ca.pem".into());
        let found = notes(&config(&listener));
        assert!(
            found.len() == 1 && found[0].contains("without `crl_file`"),
            "{found:?}"
        );
        listener.tls.crl_file = Some("list.pem".into());
        assert_eq!(notes(&config(&listener)), [""; 0]);
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
