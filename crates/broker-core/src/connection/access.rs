//! The decision point for rights: may this client publish to or subscribe to that?
//!
//! Rules come with the access issue; until then everybody admitted may do everything but write to
//! `$SYS` and `$audit`.

use std::net::SocketAddr;
use std::sync::Arc;

/// Who asks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Identity {
    /// The name the driver admitted the client under; `None` is anonymous.
    pub(crate) user: Option<Arc<str>>,
}

/// The answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Access {
    Allowed,
    Denied,
}

#[inline]
pub(crate) fn may_publish(_who: &Identity, topic: &str) -> Access {
    // The broker alone speaks there: a client's word in `$SYS` or `$audit` would be taken for
    // ours.
    if topic.starts_with("$SYS/") || topic.starts_with("$audit/") {
        Access::Denied
    } else {
        Access::Allowed
    }
}

pub(crate) fn may_subscribe(_who: &Identity, _filter: &str) -> Access {
    Access::Allowed
}

/// The other side of a connection, as the listener saw it.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Address and port; `None` where the transport has none (tests, simulator).
    pub address: Option<SocketAddr>,
    /// Position of the listener in the configuration. The driver decides by it who may come in.
    pub listener: u16,
}
