//! Who asks.

use std::net::SocketAddr;
use std::sync::Arc;

/// The other side of a connection, as the listener saw it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Peer {
    /// Address and port; `None` where the transport has none (tests, simulator).
    pub address: Option<SocketAddr>,
    /// Position of the listener in the configuration. The driver decides by it who may come in.
    pub listener: u16,
    /// The name in the client's certificate, if the transport has verified one.
    pub certificate: Option<Arc<str>>,
}

/// What is known of a client when the broker decides about it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Identity {
    /// The name the driver admitted the client under; `None` is anonymous.
    pub user: Option<Arc<str>>,
    /// Its client id; one that the broker has assigned too.
    pub client_id: Arc<str>,
    /// Listener, address and certificate of its connection.
    pub peer: Peer,
}
