//! Who asks, and as whom a client is let in.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use super::Claims;

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
    /// What the authenticator vouches for beside its name.
    pub claims: Option<Arc<Claims>>,
    /// Its client id; one that the broker has assigned too.
    pub client_id: Arc<str>,
    /// Listener, address and certificate of its connection.
    pub peer: Peer,
}

/// As whom a client is let in.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Grant {
    /// The name that rights are decided by; `None`: it is anonymous.
    pub user: Option<Arc<str>>,
    /// What rights are decided by beside the name.
    pub claims: Option<Arc<Claims>>,
    /// When its connection ends; `None`: it does not for this.
    pub until: Option<Instant>,
    /// The last data of an enhanced authentication, by which the server shows that it is the one.
    pub proof: Option<Box<[u8]>>,
}

impl Grant {
    /// As this user, for as long as it is connected.
    pub fn user(name: impl Into<Arc<str>>) -> Self {
        Self {
            user: Some(name.into()),
            ..Self::default()
        }
    }

    /// Without a name.
    pub fn anonymous() -> Self {
        Self::default()
    }
}
