//! The other end of a connection.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::unistd::{Uid, User};

/// In the extensions of each request.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    from: From,
    /// Whether a request of the connection had credentials.
    has_caller: Arc<AtomicBool>,
}

#[derive(Clone, Debug)]
enum From {
    Network {
        address: IpAddr,
        has_tls: bool,
    },
    /// The socket in the data directory, to which only the broker's user and root can connect.
    Socket {
        user: Arc<str>,
    },
}

impl Peer {
    pub(crate) fn of_network(address: IpAddr, has_tls: bool) -> Self {
        Self::new(From::Network {
            address: address.to_canonical(),
            has_tls,
        })
    }

    pub(crate) fn of_socket(user: Option<u32>) -> Self {
        let name = user.map(|user| {
            let found = User::from_uid(Uid::from_raw(user)).ok().flatten();
            found.map_or_else(|| user.to_string(), |user| user.name)
        });
        let user = format!("unix:{}", name.as_deref().unwrap_or("?"));
        Self::new(From::Socket { user: user.into() })
    }

    fn new(from: From) -> Self {
        Self {
            from,
            has_caller: Arc::default(),
        }
    }

    /// `None` at the unix socket.
    pub(crate) const fn address(&self) -> Option<IpAddr> {
        match &self.from {
            From::Network { address, .. } => Some(*address),
            From::Socket { .. } => None,
        }
    }

    pub(crate) const fn has_tls(&self) -> bool {
        matches!(&self.from, From::Network { has_tls: true, .. })
    }

    /// The user of the machine, at the unix socket: no account can have such a name.
    pub(crate) fn user(&self) -> Option<Arc<str>> {
        match &self.from {
            From::Network { .. } => None,
            From::Socket { user } => Some(Arc::clone(user)),
        }
    }

    pub(crate) fn note_caller(&self) {
        self.has_caller.store(true, Ordering::Relaxed);
    }

    pub(crate) fn has_caller(&self) -> bool {
        self.has_caller.load(Ordering::Relaxed)
    }
}
