//! What a gateway is to do.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use unbroken_client::{BindTo, ConnectTo, RetryDuration, TotalDuration};
use xxhash_rust::xxh3::xxh3_64;

use crate::topics::{Mapping, Separator};
use crate::wire::Protocol;

/// Where the SP peers are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// One peer, to which the gateway connects, again after each loss.
    Connect(ConnectTo),
    /// Peers connect to the gateway.
    Listen(BindTo),
}

/// What a gateway is to do. Everything but the first four has a default.
#[derive(Clone, Debug)]
pub struct Options {
    pub(crate) name: Arc<str>,
    pub(crate) protocol: Protocol,
    pub(crate) endpoint: Endpoint,
    pub(crate) mqtt: unbroken_client::Options,
    pub(crate) mapping: Mapping,
    pub(crate) filter: Arc<str>,
    pub(crate) message_bytes_max: usize,
    pub(crate) retry: RetryDuration,
    pub(crate) total: Option<TotalDuration>,
    pub(crate) reply: TotalDuration,
    pub(crate) audit_prefix: String,
    pub(crate) spool: Option<PathBuf>,
}

impl Options {
    /// A gateway with this kind of SP socket. `name` is one level of a topic: the gateway's client
    /// id is `sp-` and the name (of PUSH and REQ sockets also `-` and 8 digits that the filter
    /// decides), and a REP socket gets replies on `sp/reply/` and the name. `mqtt` says where the
    /// broker is and as whom the gateway connects to it; client id, session and limits in it are
    /// replaced.
    ///
    /// Topic `sp`, filter `sp/#`, the [usual](Separator::usual) separator, messages of 1 MiB at
    /// most, 30 s at most between two tries to connect and no end of them, a minute for a reply,
    /// checkpoints under `audit`, no spool.
    pub fn new(
        name: impl Into<Arc<str>>,
        protocol: Protocol,
        endpoint: Endpoint,
        mqtt: unbroken_client::Options,
    ) -> Self {
        Self {
            name: name.into(),
            protocol,
            endpoint,
            mqtt,
            mapping: Mapping {
                topic: "sp".into(),
                separator: Separator::usual(protocol),
            },
            filter: "sp/#".into(),
            message_bytes_max: 1 << 20,
            retry: RetryDuration(Duration::from_secs(30)),
            total: None,
            reply: TotalDuration(Duration::from_mins(1)),
            audit_prefix: "audit".to_owned(),
            spool: None,
        }
    }

    /// Where SUB, PULL and REP sockets publish: the topic, or with a separator the levels before
    /// the topic that stands in the body. Empty: no levels.
    #[must_use]
    pub fn topic(mut self, topic: impl Into<Arc<str>>) -> Self {
        self.mapping.topic = topic.into();
        self
    }

    /// What PUB, PUSH and REQ sockets send. With `$share/<group>/` several gateways share it.
    #[must_use]
    pub fn filter(mut self, filter: impl Into<Arc<str>>) -> Self {
        self.filter = filter.into();
        self
    }

    /// What stands between topic and payload in a body.
    #[must_use]
    pub fn separator(mut self, separator: Separator) -> Self {
        self.mapping.separator = separator;
        self
    }

    /// The largest body in both directions, in bytes. nng's sockets receive 1 MiB at most unless
    /// their option `recv-size-max` says otherwise, and end the connection at a larger one.
    #[must_use]
    pub fn message_bytes_max(mut self, bytes: usize) -> Self {
        self.message_bytes_max = bytes;
        self
    }

    /// The longest pause between two tries to connect. The first is 100 ms, and each is twice as
    /// long as the one before.
    #[must_use]
    pub fn retry(mut self, longest: RetryDuration) -> Self {
        self.retry = longest;
        self
    }

    /// How long the gateway tries to connect, at its start and after each loss, before it ends.
    #[must_use]
    pub fn total(mut self, time: TotalDuration) -> Self {
        self.total = Some(time);
        self
    }

    /// How long a REQ socket waits for the reply to one request.
    #[must_use]
    pub fn reply(mut self, time: TotalDuration) -> Self {
        self.reply = time;
        self
    }

    /// The first levels of the topics of the audit, the same for all participants.
    #[must_use]
    pub fn audit_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.audit_prefix = prefix.into();
        self
    }

    /// A directory for messages that the broker has not acknowledged. With one a restart continues
    /// the lane; without one it begins a new epoch ([why](unbroken_client::audit::Unspooled)).
    #[must_use]
    pub fn spool(mut self, directory: impl Into<PathBuf>) -> Self {
        self.spool = Some(directory.into());
        self
    }

    /// Whether the broker keeps the session while the gateway does not run.
    pub(crate) fn is_session_kept(&self) -> bool {
        matches!(self.protocol, Protocol::Push | Protocol::Req)
    }

    /// A kept session has its filter in its name, so that another filter begins another session:
    /// in the old one messages of the old filter would come that no request is for.
    pub(crate) fn client_id(&self) -> String {
        let name = &self.name;
        if !self.is_session_kept() {
            return format!("sp-{name}");
        }
        // Half of the hash is enough to tell some filters of one gateway apart.
        let [a, b, c, d, ..] = xxh3_64(self.filter.as_bytes()).to_be_bytes();
        format!("sp-{name}-{a:02x}{b:02x}{c:02x}{d:02x}")
    }

    pub(crate) fn reply_topic(&self) -> String {
        format!("sp/reply/{}", self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kept_session_is_another_one_with_another_filter() {
        let options = |protocol, filter: &str| {
            let endpoint = Endpoint::Listen(BindTo::any_loopback_port());
            let mqtt = unbroken_client::Options::new(ConnectTo::new("broker", 1883));
            Options::new("a", protocol, endpoint, mqtt).filter(filter)
        };
        let [one, other] = ["a/#", "b/#"].map(|filter| options(Protocol::Push, filter).client_id());
        assert_ne!(one, other);
        for id in [&one, &other] {
            assert!(id.starts_with("sp-a-") && id.len() == 13, "{id}");
        }
        assert_eq!(options(Protocol::Pub, "a/#").client_id(), "sp-a");
    }
}
