//! `[[gateway.sp]]`: gateways to the scalability protocols of nanomsg and nng. The broker only
//! reads and checks the tables; `unbroken serve` starts the gateways beside it.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use unbroken_mqtt_proto::{SubscriptionFilter, TopicName};

use super::changes::Applies;
use super::setting::Setting;
use super::table::{Key, key};
use super::value::Kind;

/// The name of the array of tables whose keys are [`GATEWAY_KEYS`].
pub(super) const GATEWAYS: &str = "gateway.sp";
/// What [`GATEWAYS`] is about.
pub(super) const GATEWAYS_DOC: &str =
    "Sockets of nanomsg and nng beside the broker. See docs/sp.md. As many tables as needed.";

/// One of `[[gateway.sp]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpGateway {
    /// The kind of its socket.
    pub socket: SpSocket,
    /// `tcp://` and the address to listen on; empty with `connect`.
    pub listen: String,
    /// `tcp://` and the address to connect to; empty: it listens.
    pub connect: String,
    /// Where messages of SP peers are published.
    pub topic: String,
    /// What SP peers are sent.
    pub filter: String,
    /// What stands between topic and payload.
    pub separator: SpSeparator,
    /// Its name; `None`: socket and address.
    pub name: Option<String>,
    /// Bytes of the largest message.
    pub message_bytes_max: u32,
    /// The longest pause between two tries to connect.
    pub retry: Duration,
    /// How long connecting is tried; `None`: without end.
    pub give_up: Option<Duration>,
    /// How long a request waits for its reply.
    pub reply_timeout: Duration,
    /// The directory of messages that the broker has not acknowledged; `None`: in memory.
    pub spool: Option<PathBuf>,
    /// Host and port of the broker; `None`: the first listener of this one.
    pub broker: Option<String>,
    /// The user name; `None`: anonymous.
    pub user: Option<String>,
    /// The file with the password.
    pub secret_file: Option<PathBuf>,
}

/// The kind of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of nanomsg")]
pub enum SpSocket {
    Pub,
    Sub,
    Push,
    Pull,
    Req,
    Rep,
}

/// What stands between topic and payload of an SP message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpSeparator {
    /// A NUL for `pub` and `sub`, none for the others.
    Auto,
    /// The body is the payload.
    None,
    /// A byte of 0.
    Nul,
    /// A space.
    Space,
    /// A line feed.
    Newline,
}

impl Default for SpGateway {
    fn default() -> Self {
        Self {
            socket: SpSocket::Pull,
            listen: "tcp://127.0.0.1:5555".to_owned(),
            connect: String::new(),
            topic: "sp".to_owned(),
            filter: "sp/#".to_owned(),
            separator: SpSeparator::Auto,
            name: None,
            message_bytes_max: 1 << 20,
            retry: Duration::from_secs(30),
            give_up: None,
            reply_timeout: Duration::from_mins(1),
            spool: None,
            broker: None,
            user: None,
            secret_file: None,
        }
    }
}

impl SpGateway {
    /// Its name, or socket and address.
    pub fn name(&self) -> String {
        let address = if self.connect.is_empty() {
            &self.listen
        } else {
            &self.connect
        };
        let address = address.strip_prefix(SCHEME).unwrap_or(address);
        let usual = || format!("{}-{address}", self.socket.name());
        self.name.clone().unwrap_or_else(usual)
    }

    /// Where it listens, if it does.
    pub fn listen_address(&self) -> Option<SocketAddr> {
        if !self.connect.is_empty() {
            return None;
        }
        let address = self.listen.strip_prefix(SCHEME)?;
        match address.strip_prefix("localhost:") {
            Some(port) => Some((Ipv4Addr::LOCALHOST, port.parse().ok()?).into()),
            None => address.parse().ok(),
        }
    }

    /// The host and port that it connects to, if it does.
    pub fn peer(&self) -> Option<(&str, u16)> {
        host_and_port(self.connect.strip_prefix(SCHEME)?)
    }

    /// The host and port of another broker.
    pub fn other_broker(&self) -> Option<(&str, u16)> {
        host_and_port(self.broker.as_deref()?)
    }

    /// Whether a body begins with a topic.
    pub fn has_topic_in_body(&self) -> bool {
        match self.separator {
            SpSeparator::Auto => matches!(self.socket, SpSocket::Pub | SpSocket::Sub),
            SpSeparator::None => false,
            SpSeparator::Nul | SpSeparator::Space | SpSeparator::Newline => true,
        }
    }

    /// What is wrong with it, by key, with what to write.
    fn mistakes(&self) -> Vec<(&'static str, String, &'static str)> {
        let mut mistakes = Vec::new();
        let mut add = |key, message: String, help| mistakes.push((key, message, help));
        if self.connect.is_empty() && self.listen_address().is_none() {
            let message = format!("`{}` is not an address to listen on", self.listen);
            add("listen", message, "write it as \"tcp://127.0.0.1:5555\"");
        }
        if !self.connect.is_empty() && self.peer().is_none() {
            let message = format!("`{}` is not an address to connect to", self.connect);
            add("connect", message, "write it as \"tcp://host:5555\"");
        }
        if self.broker.is_some() && self.other_broker().is_none() {
            let message = "it is not a host and a port".to_owned();
            add("broker", message, "write it as \"host:1883\"");
        }
        let is_empty_prefix = self.topic.is_empty() && self.has_topic_in_body();
        if let (false, Err(error)) = (is_empty_prefix, TopicName::parse(&self.topic)) {
            let message = format!("`{}` is not a topic: {error}", self.topic);
            add("topic", message, "a topic has no + and no #");
        }
        if let Err(error) = SubscriptionFilter::parse(&self.filter) {
            let message = format!("`{}` is not a filter: {error}", self.filter);
            add("filter", message, "such as \"plant/#\"");
        }
        let is_level =
            |name: &String| name.len() <= NAME_BYTES_MAX && !name.contains(['/', '+', '#', '\0']);
        if let Some(name) = self.name.as_ref().filter(|name| !is_level(name)) {
            let message = format!("`{name}` is not a level of a topic");
            add("name", message, "at most 200 bytes, without / + #");
        }
        mistakes
    }
}

impl SpSocket {
    /// As in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pub => "pub",
            Self::Sub => "sub",
            Self::Push => "push",
            Self::Pull => "pull",
            Self::Req => "req",
            Self::Rep => "rep",
        }
    }
}

/// What is wrong with gateways: index, key, message, help.
pub(super) fn mistakes(
    gateways: &[SpGateway],
) -> impl Iterator<Item = (usize, &'static str, String, &'static str)> {
    let mut names = BTreeSet::new();
    gateways
        .iter()
        .enumerate()
        .flat_map(move |(index, gateway)| {
            let mut mistakes = gateway.mistakes();
            if !names.insert(gateway.name()) {
                let message = format!("another gateway is called `{}` too", gateway.name());
                mistakes.push(("name", message, "give each its own name"));
            }
            mistakes
                .into_iter()
                .map(move |(key, message, help)| (index, key, message, help))
        })
}

fn host_and_port(text: &str) -> Option<(&str, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    let port = port.parse().ok().filter(|port| *port > 0)?;
    let bare = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    let host = bare.unwrap_or(host);
    (!host.is_empty() && (bare.is_some() || !host.contains(':'))).then_some((host, port))
}

/// What addresses begin with.
const SCHEME: &str = "tcp://";
/// Bytes of a name: it is in a client id and in a topic.
const NAME_BYTES_MAX: usize = 200;

const fn time(min_ms: u64, max: Duration, absent: Option<&'static str>) -> Kind {
    Kind::Time {
        min: Duration::from_millis(min_ms),
        max,
        absent,
    }
}

/// The keys of one `[[gateway.sp]]` table.
pub(super) const GATEWAY_KEYS: &[Key<SpGateway>] = &[
    key!(
        "socket",
        Kind::Choice(&["pub", "sub", "push", "pull", "req", "rep"]),
        Restart,
        ["The kind of the gateway's own socket. Its peers have the other kind of the pair."],
        socket
    ),
    key!(
        "listen",
        Kind::Text,
        Restart,
        ["Address to listen on. SP has no passwords: whoever reaches it is a peer."],
        listen
    ),
    key!(
        "connect",
        Kind::Text,
        Restart,
        ["Address of one peer to connect to, such as \"tcp://host:5555\", instead of listening."],
        connect
    ),
    key!(
        "topic",
        Kind::Text,
        Restart,
        [
            "sub, pull, rep: the topic of messages from SP; with a separator the levels before the",
            "topic in the message, or empty."
        ],
        topic
    ),
    key!(
        "filter",
        Kind::Text,
        Restart,
        ["pub, push, req: the filter of messages for SP. $share/GROUP/ may stand before it."],
        filter
    ),
    key!(
        "separator",
        Kind::Choice(&["auto", "none", "nul", "space", "newline"]),
        Restart,
        [
            "What ends a topic at the beginning of an SP message. none: messages have no topic. auto:",
            "nul for pub and sub, none for the others."
        ],
        separator
    ),
    key!(
        "name",
        Kind::Text,
        Restart,
        ["The client id is sp- and this (see docs/sp.md). Empty: socket and address."],
        name
    ),
    key!(
        "message_bytes_max",
        Kind::Size {
            min: 1,
            max: 256 << 20,
            absent: None
        },
        Restart,
        ["Size of one SP message, in both directions. Sockets of nng receive 1 MiB unless set."],
        message_bytes_max
    ),
    key!(
        "retry",
        time(100, Duration::from_hours(1), None),
        Restart,
        ["Longest pause between two tries to connect. The first is 100 ms; each doubles."],
        retry
    ),
    key!(
        "give_up",
        time(1, Duration::from_hours(24 * 365), Some("never")),
        Restart,
        ["How long connecting is tried before the gateway ends. The broker goes on."],
        give_up
    ),
    key!(
        "reply_timeout",
        time(1, Duration::from_hours(24), None),
        Restart,
        ["req: how long a request waits for its reply."],
        reply_timeout
    ),
    key!(
        "spool",
        Kind::Path,
        Restart,
        [
            "sub, pull, rep, req: directory for messages that the broker has not acknowledged, so",
            "that a restart continues their lane. Empty: in memory. Relative to this file's."
        ],
        spool
    ),
    key!(
        "broker",
        Kind::Text,
        Restart,
        [
            "Host and port of the broker. Empty: the first listener of this one with an address and",
            "`protocol = \"mqtt\"`."
        ],
        broker
    ),
    key!(
        "user",
        Kind::Text,
        Restart,
        ["User name at the broker. Empty: anonymous."],
        user
    ),
    key!(
        "secret_file",
        Kind::Path,
        Restart,
        ["File whose first line is the password. Relative to the directory of this file."],
        secret_file
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn gateway(change: impl FnOnce(&mut SpGateway)) -> SpGateway {
        let mut gateway = SpGateway::default();
        change(&mut gateway);
        gateway
    }

    #[test]
    fn each_mistake_is_found_at_its_key() {
        let none: [&str; 0] = [];
        let long = "x".repeat(NAME_BYTES_MAX + 1);
        for (gateway, keys) in [
            (gateway(|_| {}), &none[..]),
            (gateway(|g| g.connect = "tcp://[::1]:7".into()), &none),
            (gateway(|g| g.connect = "tcp://worker:7".into()), &none),
            (gateway(|g| g.listen = "tcp://localhost:0".into()), &none),
            (gateway(|g| g.listen = "tcp://host:1".into()), &["listen"]),
            (gateway(|g| g.listen = "ipc:///tmp/x".into()), &["listen"]),
            (gateway(|g| g.connect = "worker:7".into()), &["connect"]),
            (gateway(|g| g.connect = "tcp://::1:7".into()), &["connect"]),
            (
                gateway(|g| g.connect = "tcp://worker:0".into()),
                &["connect"],
            ),
            (gateway(|g| g.broker = Some("host".into())), &["broker"]),
            (gateway(|g| g.topic = "a/#".into()), &["topic"]),
            (gateway(|g| g.topic = String::new()), &["topic"]),
            (
                gateway(|g| (g.socket, g.topic) = (SpSocket::Sub, String::new())),
                &none,
            ),
            (gateway(|g| g.filter = "a/#/b".into()), &["filter"]),
            (gateway(|g| g.name = Some("a/b".into())), &["name"]),
            (gateway(|g| g.name = Some(long)), &["name"]),
        ] {
            let mistakes = mistakes(std::slice::from_ref(&gateway));
            let found: Vec<_> = mistakes.map(|(_, key, ..)| key).collect();
            assert_eq!(found, keys, "{gateway:?}");
        }
    }

    #[test]
    fn two_gateways_have_two_names() {
        let both = [SpGateway::default(), SpGateway::default()];
        let found: Vec<_> = mistakes(&both)
            .map(|(index, key, ..)| (index, key))
            .collect();
        assert_eq!(found, [(1, "name")]);
        assert_eq!(both[0].name(), "pull-127.0.0.1:5555");
        let other = gateway(|g| g.socket = SpSocket::Push);
        assert_eq!(mistakes(&[both[0].clone(), other]).count(), 0);
    }
}
