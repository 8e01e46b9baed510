//! Every option of Mosquitto 2.0 and 2.1: its value, where it may stand, and what became of it.
//!
//! From mosquitto.conf(5) and from what the two versions accept. The order is the alphabet's.

use Type::{
    Addresses, Bool, Choice, Connection, Exact, Expiry, Include, Integer, Keepalive, ListenerLine,
    LogDest, Loose, Nothing, Path, PluginLoad, PluginOption, PluginUse, Restart, Text, Topic,
    Versions,
};
use Where::{Anywhere, Bridge, Listener, OwnListener, Plugin, Security, SomeListener};

/// One option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Its name; for `auth_opt_*` and `plugin_opt_*` the beginning.
    pub name: &'static str,
    /// Advice, if it is out of date.
    pub deprecated: Option<&'static str>,
    /// Whether 2.0 does not know it.
    pub is_new: bool,
    /// Whether its value is a secret.
    pub is_secret: bool,
    pub(super) value: Type,
    pub(super) place: Where,
    /// Whether a second value in the same place replaces the first instead of being refused.
    pub(super) is_replaced: bool,
    /// Options that must not stand before it in the same place.
    pub(super) excludes: &'static [&'static str],
}

/// What kind of value an option has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    /// `true`, `false`, `1` or `0`.
    Bool,
    /// A whole number in this range; hexadecimal and octal as in C.
    Integer(i32, i32),
    /// A number as far as there are digits, otherwise 0.
    Loose,
    /// The rest of the line.
    Text,
    /// As `Text`, with at most so many bytes.
    Prefix(usize),
    /// As `Text`; any number of them.
    Path,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// As `Choice`, and nothing else on the line.
    Exact(&'static [&'static str]),
    /// A number with a unit.
    Expiry,
    /// No value, or one that does not matter.
    Nothing,
    Addresses,
    Connection,
    Include,
    Keepalive,
    ListenerLine,
    LogDest,
    PluginLoad,
    PluginOption,
    PluginUse,
    Restart,
    Topic,
    Versions,
}

/// Where an option may stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Where {
    Anywhere,
    /// Anywhere, or behind a listener with `per_listener_settings true`.
    Security,
    /// Behind a listener, or about the default one.
    SomeListener,
    /// Behind `listener`, `port`, or an option that is about the default one.
    Listener,
    /// Behind `listener`.
    OwnListener,
    /// Behind `connection`.
    Bridge,
    /// Behind a plugin.
    Plugin,
}

/// The option with this name.
pub fn option(name: &str) -> Option<&'static Spec> {
    let prefix = ["auth_opt_", "plugin_opt_"]
        .into_iter()
        .find(|prefix| name.starts_with(prefix));
    let name = prefix.unwrap_or(name);
    let found = OPTIONS.binary_search_by(|spec| spec.name.cmp(name));
    found.ok().map(|index| &OPTIONS[index])
}

/// Every option, by its name.
pub fn options() -> &'static [Spec] {
    OPTIONS
}

const fn row(name: &'static str, value: Type, place: Where) -> Spec {
    Spec {
        name,
        deprecated: None,
        is_new: false,
        is_secret: false,
        value,
        place,
        is_replaced: false,
        excludes: &[],
    }
}

impl Spec {
    const fn deprecated(self, advice: &'static str) -> Self {
        Self {
            deprecated: Some(advice),
            ..self
        }
    }

    const fn since_2_1(self) -> Self {
        Self {
            is_new: true,
            ..self
        }
    }

    const fn secret(self) -> Self {
        Self {
            is_secret: true,
            ..self
        }
    }

    const fn replaced(self) -> Self {
        Self {
            is_replaced: true,
            ..self
        }
    }

    const fn excludes(self, names: &'static [&'static str]) -> Self {
        Self {
            excludes: names,
            ..self
        }
    }
}

const INTEGER: Type = Integer(i32::MIN, i32::MAX);
const NATURAL: Type = Integer(0, i32::MAX);
const SIXTEEN_BITS: Type = Integer(0, 65_535);
const BRIDGE_PSK: &[&str] = &["bridge_identity", "bridge_psk"];
const BRIDGE_X509: &[&str] = &[
    "bridge_cafile",
    "bridge_capath",
    "bridge_certfile",
    "bridge_keyfile",
];
const LOG_TYPES: &[&str] = &[
    "none",
    "information",
    "notice",
    "warning",
    "error",
    "debug",
    "subscribe",
    "unsubscribe",
    "internal",
    "websockets",
    "all",
];

const OPTIONS: &[Spec] = &[
    row("accept_protocol_versions", Versions, OwnListener).since_2_1(),
    row("acl_file", Text, Security).replaced(),
    row("address", Addresses, Bridge),
    row("addresses", Addresses, Bridge),
    row("allow_anonymous", Bool, Security),
    row("allow_duplicate_messages", Bool, Anywhere).deprecated("it will always be true"),
    row("allow_zero_length_clientid", Bool, Security),
    row("auth_opt_", PluginOption, Plugin),
    row("auth_plugin", Path, Security),
    row("auth_plugin_deny_special_chars", Bool, Plugin),
    row(
        "auto_id_prefix",
        Type::Prefix(crate::bounds::ID_PREFIX_BYTES_MAX),
        Security,
    )
    .deprecated("`listener_auto_id_prefix` replaces it"),
    row("autosave_interval", INTEGER, Anywhere),
    row("autosave_on_changes", Bool, Anywhere),
    row("bind_address", Text, Anywhere).deprecated("`listener PORT ADDRESS` replaces it"),
    row("bind_interface", Text, SomeListener),
    row("bridge_alpn", Text, Bridge),
    row("bridge_attempt_unsubscribe", Bool, Bridge),
    row("bridge_bind_address", Text, Bridge),
    row("bridge_cafile", Text, Bridge).excludes(BRIDGE_PSK),
    row("bridge_capath", Text, Bridge).excludes(BRIDGE_PSK),
    row("bridge_certfile", Text, Bridge).excludes(BRIDGE_PSK),
    row("bridge_ciphers", Text, Bridge).since_2_1(),
    row("bridge_ciphers_tls1.3", Text, Bridge).since_2_1(),
    row("bridge_identity", Text, Bridge).excludes(BRIDGE_X509),
    row("bridge_insecure", Bool, Bridge),
    row("bridge_keyfile", Text, Bridge).excludes(BRIDGE_PSK),
    row("bridge_max_packet_size", INTEGER, Bridge),
    row("bridge_max_topic_alias", SIXTEEN_BITS, Bridge).since_2_1(),
    row("bridge_outgoing_retain", Bool, Bridge),
    row(
        "bridge_protocol_version",
        Exact(&["mqttv31", "mqttv311", "mqttv50"]),
        Bridge,
    ),
    row("bridge_psk", Text, Bridge)
        .secret()
        .excludes(BRIDGE_X509),
    row("bridge_receive_maximum", Integer(1, 65_535), Bridge).since_2_1(),
    row("bridge_reload_type", Choice(&["lazy", "immediate"]), Bridge).since_2_1(),
    row("bridge_require_ocsp", Bool, Bridge),
    row("bridge_session_expiry_interval", NATURAL, Bridge).since_2_1(),
    row("bridge_tcp_keepalive", Keepalive, Bridge).since_2_1(),
    row("bridge_tcp_user_timeout", NATURAL, Bridge).since_2_1(),
    row("bridge_tls_use_os_certs", Bool, Bridge).since_2_1(),
    row("bridge_tls_version", Text, Bridge),
    row("cafile", Text, SomeListener)
        .replaced()
        .excludes(&["psk_hint"]),
    row("capath", Text, SomeListener).replaced(),
    row("certfile", Text, SomeListener)
        .replaced()
        .excludes(&["psk_hint"]),
    row("check_retain_source", Bool, Anywhere),
    row("ciphers", Text, SomeListener).replaced(),
    row("ciphers_tls1.3", Text, SomeListener).replaced(),
    row("cleansession", Bool, Bridge),
    row("clientid", Text, Bridge),
    row("clientid_prefixes", Text, Anywhere)
        .replaced()
        .deprecated("nothing replaces it"),
    row("connection", Connection, Anywhere),
    row("connection_messages", Bool, Anywhere),
    row("crlfile", Text, SomeListener).replaced(),
    row("dhparamfile", Nothing, Anywhere).deprecated("it is not needed any more"),
    row("disable_client_cert_date_checks", Bool, Listener).since_2_1(),
    row("enable_control_api", Bool, Anywhere).since_2_1(),
    row("enable_proxy_protocol", Integer(1, 2), Listener).since_2_1(),
    row("global_max_clients", INTEGER, Anywhere).since_2_1(),
    row("global_max_connections", INTEGER, Anywhere).since_2_1(),
    row("global_plugin", Path, Anywhere).since_2_1(),
    row("http_dir", Text, Listener),
    row("idle_timeout", INTEGER, Bridge),
    row("include_dir", Include, Anywhere),
    row("keepalive_interval", Integer(i32::MIN, 65_535), Bridge),
    row("keyfile", Text, SomeListener).replaced(),
    row("listener", ListenerLine, Anywhere),
    row("listener_allow_anonymous", Bool, Listener).since_2_1(),
    row(
        "listener_auto_id_prefix",
        Type::Prefix(crate::bounds::ID_PREFIX_BYTES_MAX),
        Listener,
    )
    .since_2_1(),
    row("local_cleansession", Bool, Bridge),
    row("local_clientid", Text, Bridge),
    row("local_password", Text, Bridge).secret(),
    row("local_username", Text, Bridge),
    row("log_dest", LogDest, Anywhere),
    row("log_facility", Integer(0, 7), Anywhere),
    row("log_timestamp", Bool, Anywhere),
    row("log_timestamp_format", Text, Anywhere),
    row("log_type", Choice(LOG_TYPES), Anywhere),
    row("max_connections", INTEGER, SomeListener),
    row("max_inflight_bytes", INTEGER, Anywhere),
    row("max_inflight_messages", Integer(i32::MIN, 65_535), Anywhere),
    row("max_keepalive", SIXTEEN_BITS, Anywhere),
    row("max_packet_size", Integer(20, i32::MAX), Anywhere),
    row("max_qos", Integer(0, 2), SomeListener),
    row("max_queued_bytes", INTEGER, Anywhere),
    row("max_queued_messages", INTEGER, Anywhere),
    row("max_topic_alias", SIXTEEN_BITS, Listener),
    row("max_topic_alias_broker", SIXTEEN_BITS, Listener).since_2_1(),
    row("maximum_qos", Integer(0, 2), SomeListener),
    row("memory_limit", Loose, Anywhere),
    row("message_size_limit", Integer(0, 268_435_455), Anywhere)
        .deprecated("`max_packet_size` is recommended instead"),
    row("mount_point", Text, Listener).replaced(),
    row("notification_topic", Text, Bridge),
    row("notifications", Bool, Bridge),
    row("notifications_local_only", Bool, Bridge),
    row("packet_buffer_size", SIXTEEN_BITS, Anywhere).since_2_1(),
    row("password", Text, Bridge).secret(),
    row("password_file", Text, Security).replaced(),
    row("per_listener_settings", Bool, Anywhere)
        .deprecated("`listener_allow_anonymous`, `plugin_use` and their like replace it"),
    row("persistence", Bool, Anywhere),
    row("persistence_file", Text, Anywhere),
    row("persistence_location", Text, Anywhere),
    row("persistent_client_expiration", Expiry, Anywhere),
    row("pid_file", Text, Anywhere),
    row("plugin", Path, Security),
    row("plugin_load", PluginLoad, Anywhere).since_2_1(),
    row("plugin_opt_", PluginOption, Plugin),
    row("plugin_use", PluginUse, OwnListener).since_2_1(),
    row("port", Integer(1, 65_535), Anywhere).deprecated("`listener` replaces it"),
    row(
        "protocol",
        Choice(&["mqtt", "websockets", "http_api"]),
        SomeListener,
    ),
    row("proxy_protocol_v2_require_tls", Bool, Listener).since_2_1(),
    row("psk_file", Text, Security).replaced(),
    row("psk_hint", Text, SomeListener),
    row("queue_qos0_messages", Bool, Anywhere),
    row("remote_clientid", Text, Bridge),
    row("remote_password", Text, Bridge).secret(),
    row("remote_username", Text, Bridge),
    row("require_certificate", Bool, SomeListener),
    row("restart_timeout", Restart, Bridge),
    row("retain_available", Bool, Anywhere),
    row("retain_expiry_interval", Integer(1, i32::MAX), Anywhere).since_2_1(),
    row("retained_persistence", Bool, Anywhere),
    row("retry_interval", Nothing, Anywhere).deprecated("it has no effect any more"),
    row("round_robin", Bool, Bridge),
    row("set_tcp_nodelay", Bool, Anywhere),
    row("socket_domain", Choice(&["ipv4", "ipv6"]), SomeListener),
    row("start_type", Choice(&["automatic", "lazy", "once"]), Bridge),
    row("sys_interval", SIXTEEN_BITS, Anywhere),
    row("threshold", INTEGER, Bridge),
    row("tls_engine", Text, SomeListener),
    row("tls_engine_kpass_sha1", Text, SomeListener).secret(),
    row("tls_keyform", Text, SomeListener),
    row("tls_version", Text, Listener),
    row("topic", Topic, Bridge),
    row("try_private", Bool, Bridge),
    row("upgrade_outgoing_qos", Bool, Anywhere),
    row("use_identity_as_username", Bool, SomeListener),
    row("use_subject_as_username", Bool, SomeListener),
    row("use_username_as_clientid", Bool, SomeListener),
    row("user", Text, Anywhere).replaced(),
    row("username", Text, Bridge),
    row("websockets_headers_size", SIXTEEN_BITS, Anywhere),
    row("websockets_log_level", INTEGER, Anywhere),
    row("websockets_origin", Path, Listener).since_2_1(),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_found_by_their_names() {
        assert!(OPTIONS.is_sorted_by_key(|spec| spec.name));
        for spec in OPTIONS {
            assert_eq!(option(spec.name), Some(spec));
        }
        assert_eq!(option("plugin_opt_file").unwrap().name, "plugin_opt_");
        assert_eq!(option("Listener"), None);
    }
}
