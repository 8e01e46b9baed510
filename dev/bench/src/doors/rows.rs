//! The rows: a door, what is done through it, and the bar.

use crate::figure::Bar::{self, AtMost};

/// How clients reach the broker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Door {
    pub(super) is_websocket: bool,
    tls: Option<DoorTls>,
}

/// The TLS of a door.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DoorTls {
    pub(super) key: Key,
    pub(super) is_1_2: bool,
    pub(super) has_client_certificate: bool,
    /// Clients resume earlier sessions.
    pub(super) resumes: bool,
}

/// The key of the broker's certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Ecdsa,
    Rsa,
}

impl Door {
    pub(super) const fn tls(self) -> Option<DoorTls> {
        self.tls
    }
}

/// What is done through a door, and what is counted of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Load {
    /// Connections, so many at a time: CPU time of the broker for each.
    Connect { at_a_time: u32 },
    /// Connections that stay: memory of the broker for each.
    Idle,
    /// 50 publishers and 50 subscribers at full speed, with payloads of so many bytes.
    Pairs { payload: usize },
    /// Logins of 1,000 users, one after another.
    Logins { rounds: u32 },
    /// 2,000 messages a second beside 500 handshakes a second.
    Storm,
}

/// What a broker's access rules are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rules {
    None,
    /// 1,000 `pattern` lines, of which the last matches.
    Patterns,
    /// 1,000 `topic` lines, of which the last matches.
    Topics,
}

/// What a figure is held against.
#[derive(Clone, Copy, Debug)]
pub(super) enum Versus {
    /// The same of the yardstick.
    Yardstick(Option<Bar>),
    /// Nothing: it is a size.
    Itself(Bar),
    /// Our own row of this name, by a ratio.
    Ratio(&'static str, Bar),
    /// The yardstick, and what comes on top of our own row of this name.
    OnTop(Bar, &'static str, Option<Bar>),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) what: &'static str,
    pub(super) door: Door,
    pub(super) load: Load,
    pub(super) rules: Rules,
    pub(super) versus: Versus,
}

const PLAIN: Door = Door {
    is_websocket: false,
    tls: None,
};
const WS: Door = Door {
    is_websocket: true,
    tls: None,
};
const TLS: DoorTls = DoorTls {
    key: Key::Ecdsa,
    is_1_2: false,
    has_client_certificate: false,
    resumes: false,
};

const fn tls(tls: DoorTls) -> Door {
    Door {
        is_websocket: false,
        tls: Some(tls),
    }
}

const WSS: Door = Door {
    is_websocket: true,
    tls: Some(TLS),
};

/// With fewer at a time than a client keeps tickets, each finds one.
const RESUMING: Load = Load::Connect { at_a_time: 4 };
const CONNECT: Load = Load::Connect { at_a_time: 16 };

const fn row(name: &'static str, what: &'static str, door: Door, load: Load, bar: f64) -> Row {
    Row {
        name,
        what,
        door,
        load,
        rules: Rules::None,
        versus: Versus::Yardstick(Some(AtMost(bar))),
    }
}

pub(super) const ROWS: [Row; 26] = [
    row("connect", "a connection", PLAIN, CONNECT, 0.90),
    row(
        "connect-tls",
        "a connection, TLS 1.3, ECDSA",
        tls(TLS),
        CONNECT,
        0.54,
    ),
    row(
        "connect-rsa",
        "a connection, TLS 1.3, RSA-2048",
        tls(DoorTls {
            key: Key::Rsa,
            ..TLS
        }),
        CONNECT,
        0.80,
    ),
    row(
        "connect-mtls",
        "a connection, TLS 1.3, with a client certificate",
        tls(DoorTls {
            has_client_certificate: true,
            ..TLS
        }),
        CONNECT,
        0.30,
    ),
    row(
        "resume-tls",
        "a resumed connection, TLS 1.3, ECDSA",
        tls(DoorTls {
            resumes: true,
            ..TLS
        }),
        RESUMING,
        0.57,
    ),
    row(
        "resume-mtls",
        "a resumed connection with a client certificate",
        tls(DoorTls {
            resumes: true,
            has_client_certificate: true,
            ..TLS
        }),
        RESUMING,
        0.35,
    ),
    row(
        "connect-tls12",
        "a connection, TLS 1.2, ECDSA",
        tls(DoorTls {
            is_1_2: true,
            ..TLS
        }),
        CONNECT,
        0.46,
    ),
    row("connect-ws", "a connection, WebSocket", WS, CONNECT, 0.95),
    Row {
        versus: Versus::Yardstick(None),
        ..row(
            "pairs",
            "a message of 16 B",
            PLAIN,
            Load::Pairs { payload: 16 },
            0.0,
        )
    },
    Row {
        versus: Versus::OnTop(AtMost(0.20), "pairs", Some(AtMost(1.1))),
        ..row(
            "pairs-tls",
            "a message of 16 B, TLS",
            tls(TLS),
            Load::Pairs { payload: 16 },
            0.0,
        )
    },
    Row {
        versus: Versus::OnTop(AtMost(0.48), "pairs", Some(AtMost(0.8))),
        ..row(
            "pairs-ws",
            "a message of 16 B, WebSocket",
            WS,
            Load::Pairs { payload: 16 },
            0.0,
        )
    },
    Row {
        versus: Versus::OnTop(AtMost(0.30), "pairs", None),
        ..row(
            "pairs-wss",
            "a message of 16 B, WebSocket over TLS",
            WSS,
            Load::Pairs { payload: 16 },
            0.0,
        )
    },
    row(
        "pairs1k-tls",
        "a message of 1 KiB, TLS",
        tls(TLS),
        Load::Pairs { payload: 1024 },
        0.26,
    ),
    row(
        "pairs1k-ws",
        "a message of 1 KiB, WebSocket",
        WS,
        Load::Pairs { payload: 1024 },
        0.50,
    ),
    row(
        "pairs1k-wss",
        "a message of 1 KiB, WebSocket over TLS",
        WSS,
        Load::Pairs { payload: 1024 },
        0.38,
    ),
    idle(
        "idle-tls",
        "memory of an idle connection, TLS",
        tls(TLS),
        6.6,
    ),
    idle(
        "idle-ws",
        "memory of an idle connection, WebSocket",
        WS,
        1.4,
    ),
    idle(
        "idle-wss",
        "memory of an idle connection, WebSocket over TLS",
        WSS,
        6.9,
    ),
    rules(
        "acl-patterns",
        "a message, 1,000 `pattern` lines",
        Rules::Patterns,
    ),
    rules(
        "acl-topics",
        "a message, 1,000 `topic` lines",
        Rules::Topics,
    ),
    row(
        "login-101",
        "a login, PBKDF2 with 101 rounds",
        PLAIN,
        Load::Logins { rounds: 101 },
        0.80,
    ),
    row(
        "login-10000",
        "a login, PBKDF2 with 10,000 rounds",
        PLAIN,
        Load::Logins { rounds: 10_000 },
        1.0,
    ),
    row(
        "storm",
        "a message at 2,000 a second beside 500 TLS handshakes a second",
        tls(TLS),
        Load::Storm,
        0.62,
    ),
    row(
        "storm-rsa",
        "the same with RSA-2048",
        tls(DoorTls {
            key: Key::Rsa,
            ..TLS
        }),
        Load::Storm,
        0.80,
    ),
    Row {
        versus: Versus::Yardstick(None),
        ..row(
            "connect-wss",
            "a connection, WebSocket over TLS",
            WSS,
            CONNECT,
            0.0,
        )
    },
    Row {
        versus: Versus::Yardstick(None),
        ..row(
            "resume-tls12",
            "a resumed connection, TLS 1.2",
            tls(DoorTls {
                is_1_2: true,
                resumes: true,
                ..TLS
            }),
            RESUMING,
            0.0,
        )
    },
];

const fn idle(name: &'static str, what: &'static str, door: Door, kilobytes: f64) -> Row {
    Row {
        versus: Versus::Itself(AtMost(kilobytes)),
        ..row(name, what, door, Load::Idle, 0.0)
    }
}

const fn rules(name: &'static str, what: &'static str, rules: Rules) -> Row {
    Row {
        rules,
        versus: Versus::Ratio("pairs", AtMost(1.05)),
        ..row(name, what, PLAIN, Load::Pairs { payload: 16 }, 0.0)
    }
}
