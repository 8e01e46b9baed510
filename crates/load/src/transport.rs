//! Where the broker is, and what lies between MQTT and the socket of each connection.

use std::{fmt, net::SocketAddr, path::PathBuf, sync::Arc};

use rustls::{
    ClientConfig,
    pki_types::{InvalidDnsNameError, ServerName},
};

/// Where a broker listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// A port.
    Tcp(SocketAddr),
    /// A unix socket.
    Unix(PathBuf),
}

impl From<SocketAddr> for Target {
    fn from(address: SocketAddr) -> Self {
        Self::Tcp(address)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => path.display().fmt(f),
        }
    }
}

/// What clients speak below MQTT; by default nothing.
#[derive(Clone, Default)]
pub struct Transport {
    pub(crate) tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
    /// The broker as a request names it, and the path.
    pub(crate) websocket: Option<(String, String)>,
}

impl Transport {
    /// Over TLS, as this configuration says, with a broker whose certificate is for `host`.
    /// Fails if `host` is no name of a host and no address.
    pub fn tls(
        mut self,
        config: Arc<ClientConfig>,
        host: &str,
    ) -> Result<Self, InvalidDnsNameError> {
        self.tls = Some((config, ServerName::try_from(host.to_owned())?));
        Ok(self)
    }

    /// Over WebSocket. `authority`: host and port of the broker.
    #[must_use]
    pub fn websocket(mut self, authority: impl Into<String>, path: impl Into<String>) -> Self {
        self.websocket = Some((authority.into(), path.into()));
        self
    }

    /// For reports.
    pub const fn name(&self) -> &'static str {
        match (&self.tls, &self.websocket) {
            (None, None) => "plain",
            (Some(_), None) => "tls",
            (None, Some(_)) => "ws",
            (Some(_), Some(_)) => "wss",
        }
    }
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name()) // its configuration may hold a key
    }
}
