//! Settings of other brokers: Mosquitto's configuration file, unsupported features, and settings
//! with another name here. Recognising them gives a better answer than "unknown key".

use unbroken_mosquitto_files::conf;

use super::error::Problem;
use super::written::Origin;

/// The page that lists Mosquitto's settings with their names here, and unsupported features.
const PAGE: &str = "docs/from-mosquitto.md";

/// The line, from 1, that shows that a text is a `mosquitto.conf`: a setting of Mosquitto's and its
/// value with a blank between. That is a mistake in TOML, whose first mistake is in line `first`:
/// lines before it are right, and a line behind it counts only if that one has the same form.
pub(super) fn mosquitto_line(text: &str, first: usize) -> Option<usize> {
    let mut lines = text.lines().enumerate().skip(first.saturating_sub(1));
    let setting = |line: &str| {
        let line = line.trim();
        let (name, value) = line.split_once([' ', '\t']).unwrap_or((line, ""));
        let is_word = name.starts_with(|c: char| c.is_ascii_lowercase());
        (is_word && !value.trim_start().starts_with('=') && !name.contains('='))
            .then(|| conf::option(name).is_some())
    };
    let (index, line) = lines.next()?;
    if setting(line)? {
        return Some(index + 1);
    }
    lines
        .find(|(_, line)| setting(line) == Some(true))
        .map(|(index, _)| index + 1)
}

/// The answer to a `mosquitto.conf`.
pub(super) fn is_mosquitto(origin: Origin) -> Problem {
    let what = "this is a mosquitto.conf; the broker's own config file is TOML";
    Problem::new(Some(origin), what).help(format!(
        "{PAGE} lists the names of its settings here; `unbroken check --example` prints a file \
         to start from"
    ))
}

/// An unsupported feature.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unsupported {
    /// With the verb "is".
    pub(super) feature: &'static str,
    /// An alternative.
    instead: Option<&'static str>,
}

/// The unsupported feature that a section or key belongs to, if it does.
pub(super) fn unsupported(name: &str) -> Option<Unsupported> {
    let name = name.to_lowercase().replace('-', "_");
    let found = UNSUPPORTED.iter().find(|(_, _, names)| is_of(&name, names));
    found.map(|&(feature, instead, _)| Unsupported { feature, instead })
}

/// The unsupported feature that the `protocol` of a listener needs.
pub(super) fn protocol(name: &str) -> Option<Unsupported> {
    unsupported(match name {
        "quic" => "quic",
        _ => return None,
    })
}

/// Reports an unsupported feature.
pub(super) fn not_yet(problem: Problem, what: &Unsupported) -> Problem {
    let page = format!("{PAGE} lists unsupported features and alternatives");
    problem.help(match what.instead {
        Some(instead) => format!("{instead}; {page}"),
        None => page,
    })
}

/// The equivalent of a section or key of other brokers.
pub(super) fn instead_of(name: &str) -> Option<&'static str> {
    let name = name.to_lowercase().replace('-', "_");
    let found = ELSEWHERE.iter().find(|(_, names)| is_of(&name, names));
    found.map(|(hint, _)| *hint)
}

/// Whether a name is among these. A `*` at the end stands for any characters.
fn is_of(name: &str, names: &[&str]) -> bool {
    names.iter().any(|known| match known.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning),
        None => name == *known,
    })
}

/// A feature, an alternative, and names of sections and keys.
type Feature = (&'static str, Option<&'static str>, &'static [&'static str]);

/// Features that users of other brokers would configure, with names of their sections and keys
/// there.
const UNSUPPORTED: &[Feature] = &[
    (
        "TLS with pre-shared keys",
        Some("a client certificate with an ECDSA key is small too, see `client_ca_file`"),
        &["psk_*"],
    ),
    (
        "a bridge to another broker",
        Some("a bridge of another broker can connect to this one"),
        &[
            "bridge",
            "bridge_*",
            "bridges",
            "connection",
            "connections",
            "remote_*",
            "notifications",
        ],
    ),
    (
        "a plugin",
        Some("`password_file` of a listener says which users may connect"),
        &[
            "plugin",
            "plugin_*",
            "plugins",
            "auth_plugin",
            "auth_opt_*",
            "global_plugin",
            "exhook",
        ],
    ),
    (
        "another way to authenticate than by passwords, certificates and tokens",
        Some("`password_file` and `jwt` of a listener say which users may connect"),
        &[
            "authentication",
            "authenticators",
            "ldap",
            "ldap_*",
            "oauth",
            "oauth2",
            "scram",
        ],
    ),
    (
        "a cluster",
        Some("one broker uses several cores, see `broker.shards`"),
        &[
            "cluster",
            "cluster_*",
            "clustering",
            "node",
            "nodes",
            "raft",
            "discovery",
            "replication",
        ],
    ),
    (
        "an HTTP or Prometheus endpoint",
        Some("figures are published under `$SYS/`, see `broker.sys_interval`"),
        &[
            "api",
            "console",
            "dashboard",
            "http",
            "http_api",
            "http_listener",
            "http_port",
            "management",
            "metrics",
            "prometheus",
            "prometheus_*",
            "rest",
        ],
    ),
    ("a rule engine", None, &["rule_engine"]),
    (
        "QUIC",
        Some("clients connect with MQTT over TCP"),
        &["quic", "quic_*"],
    ),
];

/// The equivalents of sections and keys of other brokers, and their names.
const ELSEWHERE: &[(&str, &[&str])] = &[
    (
        "users are in a file that `password_file` of a listener names, and `unbroken passwd` \
         changes; `allow_anonymous` of a listener admits clients without a user name",
        &[
            "accounts",
            "auth",
            "credentials",
            "password",
            "passwords",
            "security",
            "user",
            "username",
            "users",
        ],
    ),
    (
        "what clients may do is in `[[roles]]`, or in a list of Mosquitto's that `acl_file` of a \
         listener names",
        &[
            "access",
            "acl",
            "acls",
            "acl_rules",
            "authorization",
            "authorisation",
            "authz",
            "permissions",
            "rights",
            "role",
        ],
    ),
    (
        "clients live in a part of the topic tree by `mount_point` of a listener or a role",
        &["mountpoint"],
    ),
    (
        "persistent data is on disk unless `in_memory` in `[storage]` is set; \
         `directory` chooses where",
        &[
            "data",
            "data_dir",
            "database",
            "db",
            "persistence*",
            "persistent",
            "store",
        ],
    ),
    (
        "a listener has `bind`, `port` or `address` in a table `[[listeners]]`",
        &[
            "bind_address",
            "host",
            "hostname",
            "listen",
            "network",
            "server",
            "tcp",
            "transport",
        ],
    ),
    (
        "a listener on a unix socket has `socket`, and may have `socket_mode` and `socket_owner`",
        &["unix", "unix_*", "socket_path", "mode", "owner"],
    ),
    (
        "a listener with `trusted_proxies` takes PROXY headers from these",
        &[
            "proxy_protocol",
            "proxy_protocol_*",
            "enable_proxy_protocol",
            "haproxy",
        ],
    ),
    (
        "MQTT over WebSocket is a listener with `protocol = \"ws\"`, or \"wss\" over TLS, which may \
         have `websocket_path` and `allowed_origins`",
        &[
            "websocket",
            "websockets",
            "websockets_*",
            "ws",
            "ws_*",
            "wss",
            "wss_*",
            "http_dir",
        ],
    ),
    (
        "TLS belongs to a listener with `protocol = \"mqtts\"`, which has `certificate_file` and \
         `key_file`, and for clients with certificates `client_ca_file` and `crl_file`",
        &[
            "tls",
            "tls_*",
            "ssl",
            "ssl_*",
            "cafile",
            "ca_file",
            "capath",
            "cacertfile",
            "cert",
            "cert_file",
            "certfile",
            "certificate",
            "ciphers",
            "ciphers_tls1.3",
            "crlfile",
            "dhparamfile",
            "key",
            "keyfile",
            "private_key",
            "require_certificate",
            "use_identity_as_username",
            "use_subject_as_username",
            "verify_peer",
        ],
    ),
    (
        "`[[rates]]` limits what clients send and how many connect: name users, roles or listeners \
         in it",
        &[
            "bytes_per_second",
            "bytes_rate",
            "connections_per_second",
            "limiter",
            "max_conn_rate",
            "max_publish_rate",
            "messages_per_second",
            "messages_rate",
            "rate",
            "rate_limit",
            "ratelimit",
        ],
    ),
    (
        "how much a session may keep, and for how long, is in `[limits]`",
        &["queue", "queues", "session", "sessions"],
    ),
    (
        "`[log]` has `level`, `filter` and `format`",
        &["log_*", "logger", "logging"],
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::table::SECTIONS;
    use crate::config::table_arrays::{LISTENER_KEYS, ROLE_KEYS, RULE_KEYS};

    #[test]
    fn a_mosquitto_conf_is_known_by_its_first_setting() {
        let text = "# Mosquitto\n\nper_listener_settings true\nlistener 1883\n";
        assert_eq!(mosquitto_line(text, 3), Some(3));
        assert_eq!(mosquitto_line("  listener\t1883 127.0.0.1", 1), Some(1));
        assert_eq!(mosquitto_line("some_option 1\nlistener 1883", 1), Some(2));
        for line in [
            "bridge_protocol_version mqttv50",
            "auth_opt_host a",
            "plugin_opt_x 1",
            "cleansession true",
            "tls_version tlsv1.2",
            "remote_username u",
        ] {
            assert_eq!(mosquitto_line(line, 1), Some(1), "{line:?}");
        }
        for text in [
            "[[listeners]]\nport = 1883\n",
            "port= 3",
            "port\t= 3",
            "port=3",
            "# listener 1883",
            "",
            "listeners 5",
            "shards = \n[audit]\nname = \"\"\"\nlistener 1883\n\"\"\"\n",
        ] {
            assert_eq!(mosquitto_line(text, 1), None, "{text:?}");
        }
        let behind = "[audit]\nname = \"\"\"\nlistener 1883\n\"\"\"\nport 5 =\n";
        assert_eq!(mosquitto_line(behind, 6), None, "{behind:?}");
    }

    #[test]
    fn no_supported_setting_is_called_unsupported() {
        let sections = SECTIONS.iter().map(|section| section.name);
        // `listen` is a key of the admin server, and has an answer where it is none.
        let keys = SECTIONS
            .iter()
            .filter(|section| section.name != "admin")
            .flat_map(|section| section.keys)
            .map(|key| key.name);
        let listener_keys = LISTENER_KEYS.iter().map(|key| key.name);
        let rule_keys = RULE_KEYS.iter().map(|key| key.name);
        for name in sections.chain(keys).chain(listener_keys).chain(rule_keys) {
            assert_eq!(unsupported(name), None, "{name}");
            assert_eq!(instead_of(name), None, "{name}");
        }
        // `users` is a key of a role, and has an answer where it is none.
        for key in ROLE_KEYS {
            assert_eq!(unsupported(key.name), None, "{}", key.name);
        }
        let feature = |name| unsupported(name).map(|it| it.feature);
        assert_eq!(feature("plugin_opt_file"), Some("a plugin"));
    }
}
