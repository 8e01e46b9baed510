mod listeners;

use std::path::PathBuf;
use std::time::Duration;

use super::*;
use crate::config::{Applies, LogFormat, changes};

/// Loads `text` as `broker.toml` with these variables.
fn load(text: &str, environment: &[(&str, &str)]) -> Result<Effective, String> {
    let mut written = Written::default();
    written.read_text(text, "broker.toml".as_ref());
    let environment: Vec<_> = environment
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    written.read_environment(&environment);
    resolve(written).map_err(|error| error.to_string())
}

fn check(text: &str, expect: &[&str]) {
    let message = load(text, &[]).map(|_| ()).unwrap_err();
    for part in expect {
        assert!(
            message.contains(part),
            "{text}\ngave\n{message}\nwithout\n{part}"
        );
    }
}

#[test]
fn a_prefix_of_the_audit_that_begins_no_topic_of_clients_is_refused() {
    for prefix in ["", "$audit", "audit/", "a/+", "#"] {
        let text = format!("[audit]\nprefix = \"{prefix}\"\n");
        check(
            &text,
            &["broker.toml:2", "`audit.prefix`", "such as `audit`"],
        );
    }
    let effective = load("[audit]\nprefix = \"proof/of\"\n", &[]).unwrap();
    assert_eq!(effective.config.audit.prefix, "proof/of");
}

#[test]
fn the_default_is_one_loopback_listener_that_allows_anonymous_clients() {
    let config = load("", &[]).unwrap().config;
    assert_eq!(config.listeners, [Listener::default()]);
    assert_eq!(config.listeners[0].address().to_string(), "127.0.0.1:1883");
    assert!(config.listeners[0].allow_anonymous);
}

#[test]
fn values_of_a_file_arrive_with_their_lines() {
    let effective = load(
        "[broker]\nshards = 3\nsys_interval = \"off\"\n\n\
         [[listeners]]\naddress = \"[::1]:1884\"\nname = \"six\"\n\
         [limits]\npacket_bytes_max = \"256 KiB\"\nsession_expiry_max = \"2d\"\n\
         [log]\nformat = \"json\"\n",
        &[],
    )
    .unwrap();
    let config = &effective.config;
    assert_eq!(config.broker.shards, Some(3));
    assert_eq!(config.broker.sys_interval, None);
    assert_eq!(config.listeners[0].address().to_string(), "[::1]:1884");
    assert_eq!(config.limits.packet_bytes_max, 256 * 1024);
    assert_eq!(config.limits.session_expiry_max_s, 172_800);
    assert_eq!(config.log.format, LogFormat::Json);
    let origin = |name: &str| {
        effective
            .values()
            .into_iter()
            .find(|value| value.name == name)
            .unwrap()
            .origin
            .to_string()
    };
    assert_eq!(origin("broker.shards"), "broker.toml:2");
    assert_eq!(origin("listeners.0.port"), "broker.toml:6");
    assert_eq!(origin("limits.packet_bytes_max"), "broker.toml:9");
    assert_eq!(origin("limits.inflight_max"), "default");
}

#[test]
fn an_unknown_key_names_its_place_and_the_nearest_known_one() {
    check(
        "[limits]\npacket_byte_max = \"1 MiB\"\n",
        &[
            "broker.toml:2: unknown key `packet_byte_max` in `limits`",
            "did you mean `packet_bytes_max`?",
        ],
    );
    check(
        "[[listeners]]\nadress = \"x\"\n",
        &["broker.toml:2", "did you mean `address`?"],
    );
    check(
        "[limit]\nx = 1\n",
        &[
            "broker.toml:1: unknown section `limit`",
            "did you mean `limits`?",
        ],
    );
    check(
        "[broker]\nlevel = \"info\"\n",
        &["`level` belongs to `[log]`"],
    );
    check(
        "shards = 3\n",
        &[
            "`shards` stands outside a section",
            "write it below `[broker]`",
        ],
    );
    check("[limits]\nzzz = 1\n", &["unknown key `zzz`"]);
}

#[test]
fn all_mistakes_are_reported_at_once() {
    check(
        "[broker]\nshards = 65\nsys_interval = 10\n[limits]\nconnections = 1\n",
        &[
            "broker.toml:2: `broker.shards`",
            "broker.toml:3: `broker.sys_interval`: `10` has no unit",
            "broker.toml:5",
        ],
    );
}

#[test]
fn zeros_and_mistakes_in_several_values_are_reported_with_the_others() {
    let text = "[limits]\nconnections_max = 0\ninflight_max = 0\nconnections = 1\n\
                topic_levels_max = 201\n[log]\nfilter = \"unbroken=loud\"\n\
                [audit]\nprefix = \"#\"\n[broker]\nshards = 65\n\
                [[listeners]]\nport = 7\n[[listeners]]\nport = 7\n\
                [[listeners]]\nport = 99999\n";
    check(
        text,
        &[
            "broker.toml:2: `limits.connections_max`: `0` is not a whole number from 1 to",
            "broker.toml:3: `limits.inflight_max`: `0` is not a whole number from 1 to 32767",
            "broker.toml:4: `connections` in `limits`",
            "broker.toml:5: `limits.topic_levels_max`: `201` is not a whole number from 1 to 200",
            "broker.toml:7: log.filter",
            "broker.toml:9: `audit.prefix`",
            "broker.toml:11: `broker.shards`",
            "broker.toml:15: listeners 0 and 1 are both on 127.0.0.1:7",
            "broker.toml:17: `listeners.2.port`",
        ],
    );
}

#[test]
fn every_limit_that_may_be_written_is_one_that_the_broker_takes() {
    let limits = SECTIONS.iter().find(|section| section.name == "limits");
    for key in limits.unwrap().keys {
        let ends = match key.kind {
            Kind::Count { min, max, .. } | Kind::Size { min, max, .. } => {
                [min, max].map(Value::Number)
            }
            Kind::Time { min, max, .. } => [min, max].map(Value::Time),
            _ => continue,
        };
        for end in ends {
            let mut config = Config::default();
            assert!((key.set)(&mut config, end.clone()), "{}", key.name);
            assert_eq!(config.limits.check(), Ok(()), "{} = {end:?}", key.name);
        }
    }
}

#[test]
fn text_that_is_not_toml_names_its_line() {
    check("[broker]\nshards = \n", &["broker.toml:2:"]);
    check("[broker]\nshards = 1\nshards = 2\n", &["broker.toml:3:"]);
    check(
        "listeners = 3\n",
        &["`listeners` is not a table", "[[listeners]]"],
    );
    check("[listeners]\nport = 1\n", &["[[listeners]]"]);
    check(
        "[broker]\nshards = [1]\n",
        &["`broker.shards`: `[…]` is not a whole number"],
    );
}

#[test]
fn the_environment_is_stronger_than_the_file_and_flags_are_stronger_still() {
    let mut written = Written::default();
    written.read_text(
        "[broker]\nshards = 1\n[[listeners]]\nport = 1\n",
        "broker.toml".as_ref(),
    );
    written.read_environment(&[
        ("UNBROKEN__BROKER__SHARDS".to_owned(), "2".to_owned()),
        ("UNBROKEN__LISTENERS__0__PORT".to_owned(), "2".to_owned()),
        ("UNBROKEN_OTHER".to_owned(), "left alone".to_owned()),
    ]);
    written.read_flags(&[FlagValue {
        name: "listeners.0.port",
        value: "3".to_owned(),
        flag: "--port",
    }]);
    let effective = resolve(written).unwrap();
    assert_eq!(effective.config.broker.shards, Some(2));
    assert_eq!(effective.config.listeners[0].port, 3);
    let values = effective.values();
    let origin = |name| {
        &values
            .iter()
            .find(|value| value.name == name)
            .unwrap()
            .origin
    };
    assert_eq!(
        origin("broker.shards").to_string(),
        "environment UNBROKEN__BROKER__SHARDS"
    );
    assert_eq!(origin("listeners.0.port").to_string(), "flag --port");
}

#[test]
fn every_value_can_be_overridden_by_its_variable() {
    for value in load("", &[]).unwrap().values() {
        let variable = format!("UNBROKEN__{}", value.name.to_uppercase().replace('.', "__"));
        let text = value.value.trim_matches('"').to_owned();
        let effective =
            load("", &[(&variable, &text)]).unwrap_or_else(|error| panic!("{variable}: {error}"));
        let same = effective
            .values()
            .into_iter()
            .find(|other| other.name == value.name)
            .unwrap();
        assert_eq!(same.value, value.value);
        assert_eq!(same.origin, Origin::Environment { variable });
    }
}

#[test]
fn a_variable_ending_in_file_reads_the_value_from_that_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("filter");
    std::fs::write(&path, "unbroken_broker=debug\n").unwrap();
    let path = path.to_str().unwrap();
    let effective = load("", &[("UNBROKEN__LOG__FILTER_FILE", path)]).unwrap();
    assert_eq!(
        effective.config.log.filter.as_deref(),
        Some("unbroken_broker=debug")
    );
    let effective = load("", &[("UNBROKEN__LISTENERS__0__PASSWORD_FILE", path)]).unwrap();
    assert_eq!(
        effective.config.listeners[0].password_file,
        Some(PathBuf::from(path))
    );
    let message = load("", &[("UNBROKEN__LOG__FILTER_FILE", "/nowhere")])
        .map(|_| ())
        .unwrap_err();
    assert!(message.contains("cannot read `/nowhere`"), "{message}");
}

#[test]
fn an_unknown_variable_is_an_error_with_a_suggestion() {
    let message = load("", &[("UNBROKEN__LIMITS__INFLIGHT_MX", "3")])
        .map(|_| ())
        .unwrap_err();
    assert!(
        message.contains("environment UNBROKEN__LIMITS__INFLIGHT_MX"),
        "{message}"
    );
    assert!(
        message.contains("did you mean `inflight_max`?"),
        "{message}"
    );
    let message = load("", &[("UNBROKEN__LISTENERS__2__PORT", "3")])
        .map(|_| ())
        .unwrap_err();
    assert!(
        message.contains("there is no listener 2; the next one is 0"),
        "{message}"
    );
}

#[test]
fn a_listener_beyond_loopback_without_tls_must_be_called_insecure() {
    let plain = "[[listeners]]\nbind = \"0.0.0.0\"\nallow_anonymous = true\n";
    let expected = [
        "broker.toml:2",
        "0.0.0.0:1883",
        "in the clear",
        "`insecure = true`",
        "UNBROKEN__LISTENERS__0__INSECURE=true",
    ];
    check(plain, &expected);
    let ws = format!("{plain}protocol = \"ws\"\n");
    check(&ws, &["in the clear", "`protocol = \"wss\"`"]);
    let proxied = format!("{plain}trusted_proxies = [\"10.0.0.1\"]\n");
    check(&proxied, &["in the clear"]);
    let insecure = load(&format!("{plain}insecure = true\n"), &[]).unwrap();
    assert!(insecure.config.listeners[0].insecure);
    let variable = [("UNBROKEN__LISTENERS__0__INSECURE", "true")];
    assert!(load(plain, &variable).is_ok());
    let files = "certificate_file = \"a\"\nkey_file = \"b\"\n";
    for harmless in [
        &format!("{plain}protocol = \"mqtts\"\n{files}"),
        "[[listeners]]\ntrusted_proxies = [\"10.0.0.1\"]\nallow_anonymous = true\n",
        "[[listeners]]\nsocket = \"mqtt.sock\"\n",
        "[[listeners]]\nbind = \"::1\"\n",
    ] {
        assert!(load(harmless, &[]).is_ok(), "{harmless}");
    }
}

#[test]
fn a_listener_beyond_loopback_must_specify_who_may_connect() {
    check(
        "[[listeners]]\naddress = \"0.0.0.0:1883\"\n",
        &[
            "broker.toml:2",
            "0.0.0.0:1883",
            "password_file = \"FILE\"",
            "`allow_anonymous = true`",
        ],
    );
    let open = load(
        "[[listeners]]\naddress = \"0.0.0.0:1883\"\nallow_anonymous = true\ninsecure = true\n",
        &[],
    )
    .unwrap();
    assert!(open.config.listeners[0].allow_anonymous);
    let users = load(
        "[[listeners]]\nbind = \"::\"\npassword_file = \"users\"\ninsecure = true\n",
        &[],
    )
    .unwrap();
    assert!(!users.config.listeners[0].allow_anonymous);
    check(
        "[[listeners]]\nallow_anonymous = false\n",
        &["broker.toml:2: no client could connect"],
    );
}

#[test]
fn a_file_named_in_the_config_file_lies_beside_it() {
    let mut written = Written::default();
    written.read_text(
        "[[listeners]]\npassword_file = \"users\"\n",
        "/etc/unbroken/broker.toml".as_ref(),
    );
    let config = resolve(written).unwrap().config;
    assert_eq!(
        config.listeners[0].password_file,
        Some(PathBuf::from("/etc/unbroken/users"))
    );
}

#[test]
fn two_listeners_on_one_address_are_an_error() {
    check(
        "[[listeners]]\n[[listeners]]\nname = \"b\"\n",
        &["listeners 0 and 1 are both on 127.0.0.1:1883"],
    );
    assert!(load("[[listeners]]\nport = 0\n[[listeners]]\nport = 0\n", &[]).is_ok());
}

#[test]
fn limits_are_checked_against_the_broker_s_own_rules() {
    check(
        "[limits]\n\ntopic_levels_max = 201\n",
        &["broker.toml:3: `limits.topic_levels_max`: `201` is not a whole number from 1 to 200"],
    );
}

#[test]
fn changes_say_what_differs_and_what_needs_a_restart() {
    let old = load("", &[]).unwrap().config;
    let new = load(
        "[broker]\nshards = 2\n[[listeners]]\nmax_connections = 5\n[[listeners]]\nport = 7\n\
         [mqtt]\nserver_keep_alive = \"1m\"\n[limits]\nconnect_timeout = \"1m 30s\"\n",
        &[],
    )
    .unwrap()
    .config;
    assert_eq!(new.mqtt.server_keep_alive, Some(Duration::from_mins(1)));
    let lines: Vec<String> = changes(&old, &new)
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        lines,
        [
            "listeners.0.max_connections: \"unlimited\" -> 5 (applied)",
            "listeners.1: 127.0.0.1:7 added (needs a restart)",
            "broker.shards: \"auto\" -> 2 (needs a restart)",
            "mqtt.server_keep_alive: \"off\" -> \"1m\" (needs a restart)",
            "limits.connect_timeout: \"10s\" -> \"1m 30s\" (applied)",
        ]
    );
    assert!(changes(&old, &old).is_empty());
    assert!(
        changes(&new, &old)
            .iter()
            .any(|change| change.applies == Applies::Restart)
    );
}

#[test]
fn a_log_filter_that_is_none_is_refused() {
    check(
        "[log]\nfilter = \"unbroken=loud\"\n",
        &["broker.toml:2: log.filter"],
    );
    assert!(load("[log]\nfilter = \"unbroken_broker=debug\"\n", &[]).is_ok());
}

#[test]
fn a_mosquitto_conf_is_recognised() {
    check(
        "# a file of Mosquitto\nper_listener_settings true\nlistener 1883\n",
        &[
            "broker.toml:2: this is a mosquitto.conf",
            "docs/from-mosquitto.md",
        ],
    );
    check("port 1883\n", &["broker.toml:1: this is a mosquitto.conf"]);
    check(
        "\u{feff}port 1883\n",
        &["broker.toml:1: this is a mosquitto.conf"],
    );
    let first_is_rare = "some_option 5\nlistener 1883\n";
    check(first_is_rare, &["broker.toml:2: this is a mosquitto.conf"]);
    // A mistake of TOML, and a line that looks like Mosquitto's in a text before and behind it.
    for text in [
        "[log]\nfilter = \"\"\"\nlistener 1883\n\"\"\"\nlevel info = 3\n",
        "[log]\nlevel =\nfilter = \"\"\"\nlistener 1883\n\"\"\"\n",
    ] {
        let message = load(text, &[]).map(|_| ()).unwrap_err();
        assert!(!message.contains("mosquitto"), "{message}");
    }
    check("[broker\n", &["broker.toml:1: "]);
}

#[test]
fn unsupported_features_are_reported_as_such() {
    for (text, what) in [
        (
            "[[listeners]]\npsk_file = \"a\"\n",
            "`psk_file` in `listeners`: TLS with pre-shared keys is not",
        ),
        ("[[listeners]]\nprotocol = \"quic\"\n", "QUIC is not"),
        (
            "[[bridge]]\naddress = \"a\"\n",
            "a bridge to another broker is not",
        ),
        ("[cluster]\n", "a cluster is not"),
    ] {
        check(
            text,
            &[
                "broker.toml:",
                what,
                "supported yet",
                "docs/from-mosquitto.md",
            ],
        );
        let message = load(text, &[]).map(|_| ()).unwrap_err();
        assert!(!message.contains("did you mean"), "{message}");
        assert_eq!(message.matches("supported yet").count(), 1, "{message}");
    }
}

#[test]
fn a_byte_order_mark_is_no_part_of_the_text() {
    assert!(load("\u{feff}[broker]\nshards = 2\n", &[]).is_ok());
}

#[test]
fn sections_of_other_brokers_are_answered_with_alternatives() {
    for (text, hint) in [
        ("[auth]\nusers = 1\n", "password_file"),
        ("[security]\n", "password_file"),
        ("[users]\nalice = \"a\"\n", "unbroken passwd"),
        ("[persistence]\nenabled = true\n", "[storage]"),
        ("persistence = true\n", "[storage]"),
        ("[tls]\n", "certificate_file"),
        ("[websocket]\n", "websocket_path"),
        ("[bridge]\n", "bridge of another broker"),
        ("[acl]\n", "[[roles]]"),
        ("[server]\nport = 1883\n", "[[listeners]]"),
        ("[logging]\n", "[log]"),
    ] {
        check(text, &["broker.toml:1", "help: ", hint]);
    }
}

#[test]
fn mistakes_are_reported_in_the_order_of_their_lines() {
    let text = "[limits]\nconnections_max = \"x\"\n[nonsense]\na = 1\nb = 2\n\
                [[listeners]]\nport = 70000\n[broker]\nshards = 9999\nfoo = 1\n";
    let variables = [("UNBROKEN__BROKER__BAR", "1")];
    let message = load(text, &variables).map(|_| ()).unwrap_err();
    let lines: Vec<_> = message
        .lines()
        .filter_map(|line| line.strip_prefix("broker.toml:")?.split(':').next())
        .collect();
    assert_eq!(lines, ["2", "3", "7", "9", "10"], "{message}");
    let last = message.lines().rfind(|line| !line.starts_with(' '));
    assert!(
        last.is_some_and(|line| line.contains("UNBROKEN__BROKER__BAR")),
        "{message}"
    );
}

#[test]
fn gateways_are_read_with_their_lines_and_need_a_restart() {
    let text = "[[gateway.sp]]\nsocket = \"push\"\nconnect = \"tcp://worker:7\"\n\
                [[gateway.sp]]\nfilter = \"a/#\"\n";
    let variable = ("UNBROKEN__GATEWAY__SP__1__TOPIC", "jobs");
    let config = load(text, &[variable]).unwrap().config;
    let [push, pull] = &*config.gateways else {
        panic!("{:?}", config.gateways);
    };
    assert_eq!(
        (push.peer(), push.listen_address()),
        (Some(("worker", 7)), None)
    );
    assert_eq!(push.name(), "push-worker:7");
    assert_eq!((&*pull.topic, &*pull.filter), ("jobs", "a/#"));
    assert_eq!(
        pull.listen_address(),
        Some("127.0.0.1:5555".parse().unwrap())
    );
    let changed = changes(&load("", &[]).unwrap().config, &config);
    let changed: Vec<_> = changed.iter().map(ToString::to_string).collect();
    assert_eq!(
        changed,
        ["gateway.sp: 0 gateways -> 2 gateways (needs a restart)"]
    );
    check(
        "[[gateway.sp]]\nlisten = \"tcp://[::]:1\"\nconnect = \"tcp://a:1\"\n\
         [[gateway.sp]]\nconnect = \"udp://a:1\"\nsockt = \"sub\"\nretry = \"5\"\n\
         [gateway.zmq]\n[[gateway.sp]]\ntopic = \"#\"\n",
        &[
            "broker.toml:2: `gateway.sp.0` has both",
            "broker.toml:5: `gateway.sp.1.connect`: `udp://a:1`",
            "broker.toml:6: unknown key `sockt`",
            "did you mean `socket`?",
            "broker.toml:7: `gateway.sp.1.retry`: `5` has no unit",
            "broker.toml:8: unknown section `gateway.zmq`",
            "broker.toml:10: `gateway.sp.2.topic`: `#` is not a topic",
        ],
    );
    check(
        "gateway = 1\n",
        &["`gateway.sp` is not a table", "[[gateway.sp]]"],
    );
    check(
        "[gateway]\nsp = 1\n",
        &["broker.toml:2: `gateway.sp` is not a table"],
    );
}
