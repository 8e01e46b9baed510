//! The one list of keys: name, kind, meaning, what a change needs, and the field behind it.

use std::time::Duration;

use super::Config;
use super::admin;
use super::changes::Applies;
use super::setting::{ExpirySeconds, Setting};
use super::value::{Kind, Value};

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
pub(super) use key;

const U16: Kind = count(0, u16::MAX as u64);
const U32: Kind = count(0, u32::MAX as u64);
const U16_OF_1: Kind = count(1, u16::MAX as u64);
const U32_OF_1: Kind = count(1, u32::MAX as u64);
const SIZE32: Kind = size(u32::MAX as u64);
const SIZE64: Kind = size(u64::MAX);

const fn size(max: u64) -> Kind {
    Kind::Size {
        min: 1,
        max,
        absent: None,
    }
}

const fn count(min: u64, max: u64) -> Kind {
    Kind::Count {
        min,
        max,
        absent: None,
    }
}

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
                    "Threads that serve clients, each with a part of them. auto: one for each two cores,",
                    "rounded up, 64 at most; the kernel needs the other core for the same clients."
                ],
                broker.shards
            ),
            key!(
                "sys_interval",
                time(1, 86_400, Some("off")),
                Restart,
                ["Interval between updates of the $SYS topics. \"off\": they are not published."],
                broker.sys_interval
            ),
            key!(
                "drain_timeout",
                time(0, 3_600, None),
                Live,
                ["How long a stopping broker waits for clients to read what was sent to them."],
                broker.drain_timeout
            ),
            key!(
                "batching",
                Kind::Choice(&["adaptive", "off"]),
                Restart,
                [
                    "adaptive: under load the broker waits up to 4 ms before it reads, writes and commits to",
                    "disk, if it measures that this increases the throughput. off: it never waits."
                ],
                broker.batching
            ),
        ],
    },
    Section {
        name: "mqtt",
        doc: "Choices that the protocol leaves to the broker.",
        keys: &[
            key!(
                "server_keep_alive",
                time(1, 65_535, Some("off")),
                Restart,
                [
                    "Longest keep alive of 5.0 clients: a client that requests a longer one, or none, gets",
                    "this one. \"off\": each client gets the one that it requests."
                ],
                mqtt.server_keep_alive
            ),
            key!(
                "on_denied_publish",
                Kind::Choice(&["acknowledge", "disconnect"]),
                Live,
                [
                    "What a client gets that publishes what it may not. acknowledge: an answer with 0x87;",
                    "before 5.0 one without an error. disconnect: the same, and its connection ends (0x87).",
                    "Either way the message reaches no client and is counted as `denied`."
                ],
                limits.denied_publish
            ),
        ],
    },
    Section {
        name: "limits",
        doc: "Limits of resources for clients. At a limit the broker refuses or drops, and counts it.",
        keys: &[
            key!(
                "connections_max",
                count(1, u32::MAX as u64 / 2),
                Live,
                ["Open connections of all listeners together. About 1 KiB each while idle."],
                limits.connections_max
            ),
            key!(
                "sessions_max",
                U32_OF_1,
                Live,
                [
                    "Sessions, connected or offline. Each takes about 720 bytes if it is only in memory,",
                    "about 1,000 if it is persistent and on disk; queue and subscriptions are extra.",
                    "Existing sessions stay when this is lowered. One address has nine tenths at most."
                ],
                limits.sessions_max
            ),
            key!(
                "packet_bytes_max",
                size(268_435_455 + 5),
                Live,
                ["Size of one control packet, in both directions."],
                limits.packet_bytes_max
            ),
            key!(
                "connect_bytes_max",
                SIZE32,
                Live,
                ["Size of one CONNECT. A longer one is refused with 0x95 Packet too large."],
                limits.connect_bytes_max
            ),
            key!(
                "unadmitted_bytes_max",
                SIZE64,
                Live,
                ["Total memory of clients not yet admitted; beyond it the largest are refused."],
                limits.unadmitted_bytes_max
            ),
            key!(
                "memory_bytes_max",
                SIZE64,
                Live,
                ["Total memory of all other clients; beyond it the largest are disconnected."],
                limits.memory_bytes_max
            ),
            key!(
                "receive_maximum",
                U16_OF_1,
                Live,
                ["Unacknowledged QoS 1 and 2 messages that a 5.0 client may have sent."],
                limits.receive_maximum
            ),
            key!(
                "inflight_max",
                count(1, 32_767),
                Live,
                [
                    "QoS 1 and 2 messages in flight to one client: sent but not acknowledged. At most",
                    "32,767. A connection begins with 64, and each acknowledgement allows one more while the",
                    "client keeps up."
                ],
                limits.inflight_max
            ),
            key!(
                "queue_messages_max",
                U32_OF_1,
                Live,
                [
                    "Queued messages of one session, beside those in flight. 24 bytes each plus the",
                    "message, which all receivers share."
                ],
                limits.queue_messages_max
            ),
            key!(
                "queue_bytes_max",
                SIZE64,
                Live,
                [
                    "Bytes of topics, properties and payloads queued in one session. The same limit applies",
                    "to retained QoS 2 messages of its client that are not released with PUBREL: beyond it",
                    "such a message is refused, whatever the value of queue_full."
                ],
                limits.queue_bytes_max
            ),
            key!(
                "queue_full",
                Kind::Choice(&["drop_oldest", "refuse"]),
                Live,
                [
                    "Behaviour at the two limits above; the drop reason is queue-full. drop_oldest: of the",
                    "messages on disk the oldest is dropped, of those in memory the newest. refuse: a message",
                    "that a full persistent session would have to store is refused: a 5.0 publisher gets 0x97",
                    "Quota exceeded, an older one is disconnected without an acknowledgement."
                ],
                limits.queue_full
            ),
            Key {
                name: "queue_age_max",
                kind: time(1, u32::MAX as u64 - 1, Some("never")),
                applies: Applies::Live,
                doc: &[
                    "Longest time that a message waits in a session; then it is dropped (too-old). So an",
                    "offline session cannot prevent the log from being trimmed for longer.",
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
                    "Bytes of stored data: messages that sessions wait for, sessions, retained messages. The",
                    "directory may take 192 MiB more, and 64 MiB for each shard, for journals and because",
                    "logs are deleted in parts of 64 MiB. On a disk without space for both, the available",
                    "space is the limit. If dropping would free no space, publishers are refused instead."
                ],
                limits.store_bytes_max
            ),
            key!(
                "store_full",
                Kind::Choice(&["drop_oldest", "refuse"]),
                Live,
                [
                    "Behaviour at store_bytes_max. drop_oldest: the oldest messages are dropped (store-full),",
                    "unless sessions, retained messages and wills alone reach the limit: then as refuse.",
                    "refuse: a message that must be stored is refused: a 5.0 publisher gets 0x97 Quota",
                    "exceeded, an older one is disconnected without an acknowledgement."
                ],
                limits.store_full
            ),
            key!(
                "output_bytes_max",
                SIZE32,
                Live,
                [
                    "Unsent bytes of one connection. Beyond it QoS 0 messages are dropped (slow-receiver),",
                    "and QoS 1 and 2 messages wait in the session's queue. The client is read meanwhile, until",
                    "as many bytes more of answers to it wait."
                ],
                limits.output_bytes_max
            ),
            key!(
                "topic_bytes_max",
                U16_OF_1,
                Live,
                ["Bytes in a topic name or filter."],
                limits.topic_bytes_max
            ),
            key!(
                "topic_levels_max",
                count(1, 200),
                Live,
                ["Levels in a topic name or filter."],
                limits.topic_levels_max
            ),
            key!(
                "subscriptions_per_session_max",
                U32_OF_1,
                Live,
                [
                    "Subscriptions of one session. About 250 bytes each in a session that is only in",
                    "memory, 400 in a persistent one; more with deep filters, see the next limits."
                ],
                limits.subscriptions_per_session_max
            ),
            key!(
                "subscriptions_max",
                U32_OF_1,
                Live,
                ["Subscriptions of all sessions together."],
                limits.subscriptions_max
            ),
            key!(
                "filter_levels_per_session_max",
                U32_OF_1,
                Live,
                ["Levels of all filters of one session; up to 170 bytes each, and their text."],
                limits.filter_levels_per_session_max
            ),
            key!(
                "filter_levels_max",
                U32_OF_1,
                Live,
                ["Levels of the filters of all sessions together."],
                limits.filter_levels_max
            ),
            key!(
                "deep_levels_max",
                U32_OF_1,
                Live,
                [
                    "Levels behind the tenth of all filters with +; each costs a publish up to 100 ns."
                ],
                limits.deep_levels_max
            ),
            key!(
                "retained_messages_max",
                U32,
                Live,
                [
                    "Retained messages. About 200 bytes each plus topic and payload if they are only in",
                    "memory, 300 if they are on disk too. One client has half of them at most, one",
                    "address nine tenths."
                ],
                limits.retained_messages_max
            ),
            key!(
                "retained_bytes_max",
                SIZE64,
                Live,
                ["Bytes of topics, properties and payloads of all retained messages."],
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
                    "Longest time from the opening of a connection to its CONNECT, and from the CONNECT to",
                    "the end of password verification."
                ],
                limits.connect_timeout
            ),
            Key {
                name: "session_expiry_max",
                kind: time(0, u32::MAX as u64 - 1, Some("never")),
                applies: Applies::Live,
                doc: &[
                    "Longest time that a session outlives its connection. Also applies to sessions that are",
                    "offline already.",
                ],
                get: |config| ExpirySeconds(config.limits.session_expiry_max_s).to_value(),
                set: |config, value| {
                    ExpirySeconds::from_value(value)
                        .map(|ExpirySeconds(s)| config.limits.session_expiry_max_s = s)
                        .is_some()
                },
            },
            key!(
                "rate_patience",
                time(1, 86_400, Some("never")),
                Live,
                [
                    "How long a client that is over its rate is only slowed. Then it is disconnected with",
                    "0x96 Message rate too high, or 0x97 Quota exceeded for bytes. Time for which it is not",
                    "slowed makes up for as much. \"never\": it is slowed only. See `[[rates]]`."
                ],
                limits.rate_patience
            ),
        ],
    },
    Section {
        name: "bans",
        doc: "Bans of addresses whose logins fail. `unbroken ban` makes others.",
        keys: &[
            key!(
                "failed_logins",
                Kind::Count {
                    min: 1,
                    max: u32::MAX as u64,
                    absent: Some("off")
                },
                Live,
                [
                    "An address (IPv4, or an IPv6 /64) with so many wrong passwords within `window` is banned",
                    "for `duration`: its connections are closed, those that are connected stay. \"off\": none",
                    "is. Many clients behind one address share its ban."
                ],
                bans.failed_logins
            ),
            key!(
                "window",
                time(1, 86_400, None),
                Live,
                ["The time in which failed logins of one address are counted."],
                bans.window
            ),
            key!(
                "duration",
                time(1, 365 * 86_400, None),
                Live,
                ["How long such a ban lasts. A restart of the broker ends it, too."],
                bans.duration
            ),
        ],
    },
    Section {
        name: "storage",
        doc: "Persistent data: sessions, their queued messages, retained messages.",
        keys: &[
            key!(
                "in_memory",
                Kind::Flag,
                Restart,
                ["true: nothing is written to disk, and all data is lost when the broker ends."],
                storage.in_memory
            ),
            key!(
                "directory",
                Kind::Path,
                Restart,
                [
                    "The data directory, for this broker alone. Empty: /var/lib/unbroken for root, else",
                    "unbroken in XDG_STATE_HOME or ~/.local/state; for a user without a home",
                    "/var/tmp/unbroken- and the number of the user. Relative to the directory of this file."
                ],
                storage.directory
            ),
            key!(
                "control",
                Kind::Path,
                Restart,
                [
                    "With in_memory: a directory for the control socket, by which `unbroken user`, `role`,",
                    "`rule` and `ban` change what ends with the broker. Empty: there is none."
                ],
                storage.control
            ),
            key!(
                "durability",
                Kind::Choice(&["strict", "relaxed", "off"]),
                Restart,
                [
                    "Safety of acknowledged data. strict: it survives a crash of the broker and of the",
                    "machine. relaxed: the same, but a crash of the machine may lose the last second.",
                    "off: it survives a crash of the broker only."
                ],
                storage.durability
            ),
            key!(
                "on_corruption",
                Kind::Choice(&["quarantine", "refuse"]),
                Restart,
                [
                    "Behaviour at a start with a damaged store. quarantine: it is set aside as it is, and its",
                    "readable content is copied to a new one. refuse: the broker does not start."
                ],
                storage.on_corruption
            ),
            key!(
                "on_error",
                Kind::Choice(&["exit", "read_only"]),
                Live,
                [
                    "Behaviour when the store fails. exit: the broker exits with code 74. read_only: it",
                    "serves clients that need no storage; others are disconnected, and refused until it is",
                    "restarted."
                ],
                storage.on_error
            ),
        ],
    },
    Section {
        name: "audit",
        doc: "Proof of delivery. See docs/audit-broker.md.",
        keys: &[
            key!(
                "stamping",
                Kind::Flag,
                Restart,
                [
                    "Whether the broker numbers and hashes each message that it receives. Clients see no",
                    "difference. Deliveries are counted in both cases."
                ],
                audit.stamping
            ),
            key!(
                "prefix",
                Kind::Text,
                Restart,
                [
                    "First levels of the topics of checkpoints, of publishers with stamps of their own and of",
                    "the broker for stamps that it forwards. All participants must use the same."
                ],
                audit.prefix
            ),
        ],
    },
    admin::SECTION,
    Section {
        name: "log",
        doc: "The log. Payloads are never logged.",
        keys: &[
            key!(
                "format",
                Kind::Choice(&["human", "json"]),
                Restart,
                ["human: one readable line for each event. json: one JSON object on each line."],
                log.format
            ),
            key!(
                "level",
                Kind::Choice(&["error", "warn", "info", "debug", "trace"]),
                Live,
                [
                    "The least severe level that is logged: error, warn, info, debug or trace. The last",
                    "three apply to the broker's own records, not to those of its libraries."
                ],
                log.level
            ),
            key!(
                "filter",
                Kind::Text,
                Live,
                ["Directives that add to the level or override it: \"unbroken_broker=debug\"."],
                log.filter
            ),
        ],
    },
];
