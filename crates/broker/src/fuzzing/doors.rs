//! PROXY headers and access control lists.

use std::net::SocketAddr;

use unbroken_broker_core::{Action, Identity, Peer, Policy};

use crate::access::AclFile;
use crate::config::Listener;
use crate::proxy::Proxies;

/// What a connection of a trusted proxy says, in pieces as they come.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Proxied {
    /// What follows the header.
    pub payload: Vec<u8>,
    /// For whom the proxy connects.
    pub client: Option<SocketAddr>,
    /// The name in a certificate that it has verified.
    pub name: Option<String>,
    /// Whether there is no header.
    pub is_refused: bool,
    /// Bytes that wait for more.
    pub waiting: usize,
}

/// Reads bytes behind a proxy.
pub fn proxied<'a>(pieces: impl Iterator<Item = &'a [u8]>, names_users: bool) -> Proxied {
    let address = SocketAddr::from(([10, 0, 0, 7], 5000));
    let listener = Listener {
        trusted_proxies: "10.0.0.7".parse().into_iter().collect(),
        proxy_common_name: names_users,
        ..Listener::default()
    };
    let proxies = Proxies::of(&listener);
    let transform = proxies.and_then(|proxies| proxies.transform(Some(address), None));
    let mut found = Proxied::default();
    let Some(mut transform) = transform else {
        return found;
    };
    let (mut rest, mut reply) = (Vec::new(), Vec::new());
    for piece in pieces {
        rest.extend_from_slice(piece);
        let opened = transform.open(&mut rest, &mut found.payload, &mut reply);
        rest.drain(..opened.used);
        found.is_refused = opened.end.is_some();
        if found.is_refused {
            break;
        }
    }
    let mut peer = Peer::default();
    transform.identify(&mut peer);
    found.client = peer.address;
    found.name = peer.certificate.as_deref().map(str::to_owned);
    found.waiting = rest.len();
    found
}

/// An access control list, compiled.
#[derive(Debug)]
pub struct AclPolicy(Policy);

impl AclPolicy {
    /// `None`: it is none, or too large.
    pub fn compile(text: &[u8]) -> Option<Self> {
        let list = AclFile::parse("acl", text).ok()?;
        Policy::compile(1, vec![list.rule_set(0)]).ok().map(Self)
    }

    /// Whether this client may do this on a topic.
    pub fn allows(&self, user: Option<&str>, client_id: &str, action: Action, topic: &str) -> bool {
        let identity = Identity {
            user: user.map(Into::into),
            client_id: client_id.into(),
            claims: None,
            peer: Peer::default(),
        };
        !self.0.decide(&identity, action, topic).verdict.is_denied()
    }
}
