//! What users of other brokers write: Mosquitto's configuration file, and settings of features that
//! are not there yet. Recognising them gives a better answer than "unknown key".

use super::error::Problem;
use super::written::Origin;

/// The page that names what each of Mosquitto's settings is here, and what is not there yet.
const PAGE: &str = "docs/from-mosquitto.md";

/// The line, from 1, that shows that a text is a `mosquitto.conf`: a setting of Mosquitto's and its
/// value with a blank between. In TOML that is a mistake.
pub(super) fn mosquitto_line(text: &str) -> Option<usize> {
    let is_setting = |line: &str| {
        let line = line.trim();
        let (name, value) = line.split_once([' ', '\t']).unwrap_or((line, ""));
        MOSQUITTO.contains(&name) && !value.trim_start().starts_with('=')
    };
    text.lines().position(is_setting).map(|index| index + 1)
}

/// What to say of a `mosquitto.conf`.
pub(super) fn is_mosquitto(origin: Origin) -> Problem {
    let what = "this is a mosquitto.conf; the broker's own config file is TOML";
    Problem::new(Some(origin), what).help(format!(
        "{PAGE} says what each setting is called here; `unbroken check --example` prints a file \
         to start from"
    ))
}

/// The feature that a section or key belongs to, if it is one that is not there yet.
pub(super) fn unsupported(name: &str) -> Option<&'static str> {
    let name = name.to_lowercase().replace('-', "_");
    let is_of = |names: &[&str]| {
        names.iter().any(|known| match known.strip_suffix('*') {
            Some(beginning) => name.starts_with(beginning),
            None => name == *known,
        })
    };
    let found = UNSUPPORTED.iter().find(|(_, names)| is_of(names));
    found.map(|(feature, _)| *feature)
}

/// Says that a feature is not there yet.
pub(super) fn not_yet(problem: Problem) -> Problem {
    problem.help(format!(
        "{PAGE} says what is not there yet, and what to do meanwhile"
    ))
}

/// Settings of Mosquitto that a configuration of it nearly always has one of.
const MOSQUITTO: &[&str] = &[
    "acl_file",
    "address",
    "allow_anonymous",
    "allow_duplicate_messages",
    "allow_zero_length_clientid",
    "auto_id_prefix",
    "autosave_interval",
    "autosave_on_changes",
    "bind_address",
    "bind_interface",
    "cafile",
    "capath",
    "certfile",
    "clientid_prefixes",
    "connection",
    "connection_messages",
    "include_dir",
    "keyfile",
    "listener",
    "log_dest",
    "log_facility",
    "log_timestamp",
    "log_timestamp_format",
    "log_type",
    "max_connections",
    "max_inflight_bytes",
    "max_inflight_messages",
    "max_keepalive",
    "max_packet_size",
    "max_queued_bytes",
    "max_queued_messages",
    "memory_limit",
    "message_size_limit",
    "mount_point",
    "password_file",
    "per_listener_settings",
    "persistence",
    "persistence_file",
    "persistence_location",
    "persistent_client_expiration",
    "pid_file",
    "plugin",
    "port",
    "protocol",
    "psk_file",
    "queue_qos0_messages",
    "remote_clientid",
    "remote_password",
    "remote_username",
    "require_certificate",
    "retain_available",
    "set_tcp_nodelay",
    "socket_domain",
    "sys_interval",
    "topic",
    "try_private",
    "upgrade_outgoing_qos",
    "use_identity_as_username",
    "user",
    "websockets_log_level",
];

/// Features that users of other brokers would configure, with names of their sections and keys
/// there. A `*` at the end stands for any characters.
const UNSUPPORTED: &[(&str, &[&str])] = &[
    (
        "TLS",
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
            "certificate_file",
            "ciphers",
            "ciphers_tls1.3",
            "crlfile",
            "dhparamfile",
            "key",
            "key_file",
            "keyfile",
            "private_key",
            "psk_*",
            "require_certificate",
            "use_identity_as_username",
            "use_subject_as_username",
            "verify_peer",
        ],
    ),
    (
        "MQTT over WebSocket",
        &[
            "websocket",
            "websockets",
            "websocket_*",
            "websockets_*",
            "ws",
            "ws_*",
            "wss",
            "wss_*",
            "protocol",
            "http_dir",
        ],
    ),
    (
        "a bridge to another broker",
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
        "a list of access rights",
        &[
            "acl",
            "acl_*",
            "acls",
            "authorization",
            "authorisation",
            "authz",
            "permissions",
            "rights",
        ],
    ),
    (
        "a plugin",
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
        "another way to authenticate than a password file",
        &[
            "authentication",
            "authenticators",
            "jwt",
            "jwt_*",
            "ldap",
            "ldap_*",
            "oauth",
            "oauth2",
            "scram",
        ],
    ),
    (
        "a cluster",
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
        &[
            "api",
            "console",
            "dashboard",
            "http",
            "http_*",
            "management",
            "metrics",
            "prometheus",
            "prometheus_*",
            "rest",
        ],
    ),
    ("a rule engine", &["rule_engine"]),
    (
        "a Unix socket",
        &["unix", "unix_socket", "unix_*", "socket", "socket_path"],
    ),
    ("QUIC", &["quic", "quic_*"]),
    (
        "the PROXY protocol",
        &[
            "proxy_protocol",
            "proxy_protocol_*",
            "enable_proxy_protocol",
            "haproxy",
        ],
    ),
    ("a mount point", &["mount_point", "mountpoint"]),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::table::{LISTENER_KEYS, RULE_KEYS, SECTIONS};

    #[test]
    fn a_mosquitto_conf_is_known_by_its_first_setting() {
        let text = "# Mosquitto\n\nper_listener_settings true\nlistener 1883\n";
        assert_eq!(mosquitto_line(text), Some(3));
        assert_eq!(mosquitto_line("  listener\t1883 127.0.0.1"), Some(1));
        for text in [
            "[[listeners]]\nport = 1883\n",
            "port= 3",
            "port\t= 3",
            "# listener 1883",
            "",
            "listeners 5",
        ] {
            assert_eq!(mosquitto_line(text), None, "{text:?}");
        }
    }

    #[test]
    fn nothing_that_is_there_is_called_unsupported() {
        let sections = SECTIONS.iter().map(|section| section.name);
        let keys = SECTIONS
            .iter()
            .flat_map(|section| section.keys)
            .map(|key| key.name);
        let listener_keys = LISTENER_KEYS.iter().map(|key| key.name);
        let rule_keys = RULE_KEYS.iter().map(|key| key.name);
        for name in sections.chain(keys).chain(listener_keys).chain(rule_keys) {
            assert_eq!(unsupported(name), None, "{name}");
        }
        assert_eq!(unsupported("plugin_opt_file"), Some("a plugin"));
        assert_eq!(unsupported("ACL-File"), Some("a list of access rights"));
    }
}
