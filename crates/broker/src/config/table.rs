//! The one list of keys: name, kind, meaning, what a change needs, and the field behind it.

use std::time::Duration;

use unbroken_broker_core::AuditRule;

use super::changes::Applies;
use super::setting::{ExpirySeconds, Setting};
use super::value::{Kind, Value};
use super::{Config, Listener};

/// One key of a section whose values live in a `T`.
pub(super) struct Key<T> {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) applies: Applies,
    /// Full sentences, one line each.
    pub(super) doc: &'static [&'static str],
    pub(super) get: fn(&T) -> Value,
    /// False if the value does not fit the field, which the kind's range rules out.
    pub(super) set: fn(&mut T, Value) -> bool,
}

/// A section with one of each key.
pub(super) struct Section {
    pub(super) name: &'static str,
    pub(super) doc: &'static str,
    pub(super) keys: &'static [Key<Config>],
}

/// The name of the array of tables whose keys are [`LISTENER_KEYS`].
pub(super) const LISTENERS: &str = "listeners";
/// What [`LISTENERS`] is about.
pub(super) const LISTENERS_DOC: &str =
    "Where clients connect, and who may come in. One table for each address.";
/// The name of the array of tables whose keys are [`RULE_KEYS`].
pub(super) const RULES: &str = "audit.rule";
/// What [`RULES`] is about.
pub(super) const RULES_DOC: &str = "What is done with the messages of some clients. The first rule that fits decides; what fits\n\
     # none is stamped, and verified where its publisher stamps itself. As many tables as needed.";
/// Stands for `bind` and `port` together.
pub(super) const ADDRESS: &str = "address";

macro_rules! key {
    ($name:literal, $kind:expr, $applies:ident, [$($doc:literal),+], $($field:ident).+) => {
        Key {
            name: $name,
            kind: $kind,
            applies: Applies::$applies,
            doc: &[$($doc),+],
            get: |whole| Setting::to_value(&whole.$($field).+),
            set: |whole, value| Setting::from_value(value).map(|v| whole.$($field).+ = v).is_some(),
        }
    };
}

const U16: Kind = Kind::Count {
    min: 0,
    max: u16::MAX as u64,
    absent: None,
};
const U32: Kind = Kind::Count {
    min: 0,
    max: u32::MAX as u64,
    absent: None,
};
const SIZE32: Kind = Kind::Size {
    min: 1,
    max: u32::MAX as u64,
};
const SIZE64: Kind = Kind::Size {
    min: 1,
    max: u64::MAX,
};

const fn time(min_s: u64, max_s: u64, absent: Option<&'static str>) -> Kind {
    Kind::Time {
        min: Duration::from_secs(min_s),
        max: Duration::from_secs(max_s),
        absent,
    }
}

/// All sections but the listeners, in the order in which they are shown.
pub(super) const SECTIONS: &[Section] = &[
    Section {
        name: "broker",
        doc: "The broker as a whole.",
        keys: &[
            key!(
                "shards",
                Kind::Count {
                    min: 1,
                    max: 64,
                    absent: Some("auto")
                },
                Restart,
                [
                    "Threads that serve clients, each with its share of them. auto: one for each two cores,",
                    "rounded up, 64 at most; the kernel's work for the same clients needs the other."
                ],
                broker.shards
            ),
            key!(
                "sys_interval",
                time(1, 86_400, Some("off")),
                Restart,
                ["Time between two updates of the $SYS topics."],
                broker.sys_interval
            ),
            key!(
                "drain_timeout",
                time(0, 3_600, None),
                Live,
                ["How long a stopping broker waits for clients to take what was sent to them."],
                broker.drain_timeout
            ),
        ],
    },
    Section {
        name: "mqtt",
        doc: "What the protocol leaves to the broker.",
        keys: &[key!(
            "server_keep_alive",
            time(1, 65_535, Some("off")),
            Restart,
            ["The longest keep alive: a 5.0 client that asks for more, or none, is told this."],
            mqtt.server_keep_alive
        )],
    },
    Section {
        name: "limits",
        doc: "What clients may take. At a limit something is refused or dropped, and counted.",
        keys: &[
            key!(
                "connections_max",
                U32,
                Live,
                ["Connections at once, all listeners together. About 1 KiB each while idle."],
                limits.connections_max
            ),
            key!(
                "sessions_max",
                U32,
                Live,
                [
                    "Sessions at once, connected or not. About 720 bytes each, without queue. Those that are",
                    "there when it is lowered stay."
                ],
                limits.sessions_max
            ),
            key!(
                "packet_bytes_max",
                SIZE32,
                Live,
                ["One control packet, both directions."],
                limits.packet_bytes_max
            ),
            key!(
                "receive_maximum",
                U16,
                Live,
                ["QoS 1 and 2 messages a 5.0 client may have unanswered towards the broker."],
                limits.receive_maximum
            ),
            key!(
                "inflight_max",
                U16,
                Live,
                [
                    "QoS 1 and 2 messages the broker has unanswered towards one client; at most",
                    "32,767."
                ],
                limits.inflight_max
            ),
            key!(
                "queue_messages_max",
                U32,
                Live,
                [
                    "Messages waiting in one session beyond those in flight. 24 bytes each plus",
                    "the message, which all receivers share."
                ],
                limits.queue_messages_max
            ),
            key!(
                "queue_bytes_max",
                SIZE64,
                Live,
                [
                    "Topics, properties and payloads waiting in one session. As many may be on disk of",
                    "what it has published to be retained at QoS 2 and not released; beyond it that is",
                    "refused, whatever queue_full says."
                ],
                limits.queue_bytes_max
            ),
            key!(
                "queue_full",
                Kind::Choice(&["drop_oldest", "refuse"]),
                Live,
                [
                    "At one of the two, named queue-full. drop_oldest: the oldest of what waits on disk",
                    "is dropped, the newest of what waits in memory. refuse: what a session that stays",
                    "would have to keep is not taken in: a 5.0 publisher is told 0x97 Quota exceeded, an",
                    "older one is disconnected without an acknowledgement."
                ],
                limits.queue_full
            ),
            Key {
                name: "queue_age_max",
                kind: time(1, u32::MAX as u64 - 1, Some("never")),
                applies: Applies::Live,
                doc: &[
                    "Longest time a message waits in a session. After it the message is dropped",
                    "(too-old), so a device that is away keeps the log for no longer.",
                ],
                get: |config| ExpirySeconds(config.limits.queue_age_max_s).to_value(),
                set: |config, value| {
                    ExpirySeconds::from_value(value)
                        .map(|ExpirySeconds(s)| config.limits.queue_age_max_s = s)
                        .is_some()
                },
            },
            key!(
                "store_bytes_max",
                SIZE64,
                Live,
                [
                    "Bytes of what the store keeps: messages that somebody waits for, sessions, retained",
                    "messages. The directory takes up to 192 MiB and 64 MiB for each shard beside it, for",
                    "journals and for what is let go 64 MiB at a time. Where the disk has no room for both,",
                    "what it has room for is the limit, as long as that is so; and what would give no room",
                    "is not dropped, but publishers are refused."
                ],
                limits.store_bytes_max
            ),
            key!(
                "store_full",
                Kind::Choice(&["drop_oldest", "refuse"]),
                Live,
                [
                    "At store_bytes_max. drop_oldest: what has waited longest is dropped (store-full),",
                    "unless what is no message in a log is as large: nothing is gained then, so refuse.",
                    "refuse: what would have to be stored is not taken in: a 5.0 publisher is told",
                    "0x97 Quota exceeded, an older one is disconnected without an acknowledgement."
                ],
                limits.store_full
            ),
            key!(
                "output_bytes_max",
                SIZE32,
                Live,
                [
                    "Bytes waiting for one connection that does not read. At it QoS 0 messages are",
                    "dropped (slow-receiver), and QoS 1 and 2 wait in the session's queue."
                ],
                limits.output_bytes_max
            ),
            key!(
                "topic_bytes_max",
                U16,
                Live,
                ["Bytes of a topic name or filter."],
                limits.topic_bytes_max
            ),
            key!(
                "topic_levels_max",
                U16,
                Live,
                ["Levels of a topic name or filter."],
                limits.topic_levels_max
            ),
            key!(
                "subscriptions_per_session_max",
                U32,
                Live,
                ["Subscriptions of one session. About 250 bytes each."],
                limits.subscriptions_per_session_max
            ),
            key!(
                "subscriptions_max",
                U32,
                Live,
                ["Subscriptions of all sessions together."],
                limits.subscriptions_max
            ),
            key!(
                "retained_messages_max",
                U32,
                Live,
                ["Retained messages. About 200 bytes each plus topic and payload."],
                limits.retained_messages_max
            ),
            key!(
                "retained_bytes_max",
                SIZE64,
                Live,
                ["Topics, properties and payloads of retained messages."],
                limits.retained_bytes_max
            ),
            key!(
                "topic_aliases_in_max",
                U16,
                Live,
                ["Topic aliases a 5.0 client may set. Each holds one topic."],
                limits.topic_aliases_in_max
            ),
            key!(
                "topic_aliases_out_max",
                U16,
                Live,
                ["Topic aliases the broker sets towards a 5.0 client. Each holds one topic."],
                limits.topic_aliases_out_max
            ),
            key!(
                "connect_timeout",
                time(1, 3_600, None),
                Live,
                [
                    "Time from the opening of a connection to its CONNECT, and from that to the",
                    "answer about its password."
                ],
                limits.connect_timeout
            ),
            Key {
                name: "session_expiry_max",
                kind: time(0, u32::MAX as u64 - 1, Some("never")),
                applies: Applies::Live,
                doc: &[
                    "Longest time a session outlives its connection, also one that sleeps already.",
                ],
                get: |config| ExpirySeconds(config.limits.session_expiry_max_s).to_value(),
                set: |config, value| {
                    ExpirySeconds::from_value(value)
                        .map(|ExpirySeconds(s)| config.limits.session_expiry_max_s = s)
                        .is_some()
                },
            },
        ],
    },
    Section {
        name: "storage",
        doc: "What outlives the broker: sessions that stay, what waits for them, retained messages.",
        keys: &[
            key!(
                "in_memory",
                Kind::Flag,
                Restart,
                ["Whether nothing does: everything ends with the broker."],
                storage.in_memory
            ),
            key!(
                "directory",
                Kind::Path,
                Restart,
                [
                    "A directory of its own. Empty: /var/lib/unbroken for root, else unbroken in",
                    "XDG_STATE_HOME or ~/.local/state; of a user without a home /var/tmp/unbroken- and",
                    "the number of the user. Relative to the directory of this file."
                ],
                storage.directory
            ),
            key!(
                "durability",
                Kind::Choice(&["strict", "relaxed", "off"]),
                Restart,
                [
                    "What an acknowledgement survives. strict: a crash of the machine. relaxed: a crash",
                    "of the broker, and one of the machine but for the last second. off: a crash of the",
                    "broker."
                ],
                storage.durability
            ),
            key!(
                "on_corruption",
                Kind::Choice(&["quarantine", "refuse"]),
                Restart,
                [
                    "What is done at a start with a damaged store. quarantine: it is set aside whole, and",
                    "what can still be read is copied into a new one. refuse: the broker does not start."
                ],
                storage.on_corruption
            ),
            key!(
                "on_error",
                Kind::Choice(&["exit", "read_only"]),
                Live,
                [
                    "What is done when nothing can be stored any more. exit: the broker ends. read_only:",
                    "it goes on for clients that need nothing stored; others are disconnected, and refused",
                    "until it is started again."
                ],
                storage.on_error
            ),
        ],
    },
    Section {
        name: "audit",
        doc: "What is proven of what passes through. See docs/audit-broker.md.",
        keys: &[
            key!(
                "stamping",
                Kind::Flag,
                Restart,
                [
                    "Whether each message is numbered and hashed where it comes in, inside the broker.",
                    "What clients see stays as it is. What sessions are owed is counted either way."
                ],
                audit.stamping
            ),
            key!(
                "prefix",
                Kind::Text,
                Restart,
                [
                    "What the topics begin with on which publishers that stamp themselves, and the broker",
                    "for stamps that it forwards, send checkpoints: that of all who take part."
                ],
                audit.prefix
            ),
        ],
    },
    Section {
        name: "log",
        doc: "What is logged. Payloads never are.",
        keys: &[
            key!(
                "format",
                Kind::Choice(&["human", "json"]),
                Restart,
                ["One readable line, or one JSON object, for each event."],
                log.format
            ),
            key!(
                "level",
                Kind::Choice(&["error", "warn", "info", "debug", "trace"]),
                Live,
                [
                    "The least serious level that is written; info, debug and trace are of the broker's",
                    "own records, not of the libraries in it."
                ],
                log.level
            ),
            key!(
                "filter",
                Kind::Text,
                Live,
                ["Directives that say more than a level, such as \"unbroken_broker=debug\"."],
                log.filter
            ),
        ],
    },
];

/// The keys of one `[[audit.rule]]` table.
pub(super) const RULE_KEYS: &[Key<AuditRule>] = &[
    key!(
        "client",
        Kind::Text,
        Restart,
        ["Client ids; * stands for any characters."],
        client
    ),
    key!("topic", Kind::Text, Restart, ["A topic filter."], topic),
    key!(
        "action",
        Kind::Choice(&["verify", "stamp", "off"]),
        Restart,
        [
            "stamp: numbered and hashed; verify: the same, and what the publisher says in a user",
            "property `audit` is verified; off: neither."
        ],
        action
    ),
    key!(
        "forward_stamp",
        Kind::Flag,
        Restart,
        ["Whether 5.0 receivers get the number and the hash, as user property `audit`."],
        forward_stamp
    ),
];

/// The keys of one `[[listeners]]` table.
pub(super) const LISTENER_KEYS: &[Key<Listener>] = &[
    key!(
        "name",
        Kind::Text,
        Restart,
        ["Name in logs; without one, the address."],
        name
    ),
    key!(
        "bind",
        Kind::Address,
        Restart,
        ["Address to listen on. `address = \"127.0.0.1:1883\"` stands for bind and port together."],
        bind
    ),
    key!(
        "port",
        Kind::Count {
            min: 0,
            max: u16::MAX as u64,
            absent: None
        },
        Restart,
        ["Port; 0 takes one that is free and prints it."],
        port
    ),
    key!(
        "allow_anonymous",
        Kind::Flag,
        Live,
        [
            "Whether clients without user name may come in. Without this line: only on loopback,",
            "and only where there is no password_file."
        ],
        allow_anonymous
    ),
    key!(
        "password_file",
        Kind::Path,
        Live,
        [
            "Users and password hashes, in the format of mosquitto_passwd and `unbroken passwd`.",
            "Relative to the directory of this file. Read again on SIGHUP."
        ],
        password_file
    ),
    key!(
        "max_connections",
        Kind::Count {
            min: 1,
            max: u32::MAX as u64,
            absent: Some("unlimited")
        },
        Live,
        ["Connections of this listener at once."],
        max_connections
    ),
];
