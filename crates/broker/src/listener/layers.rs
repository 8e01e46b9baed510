//! What a listener speaks between socket and MQTT, from the socket upwards.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, PoisonError, RwLock};

use unbroken_websocket::upgrade;

use crate::config::{Listener, Protocol};
use crate::proxy::Proxies;
use crate::tls::{TlsError, TlsListener};
use crate::transport::Transform;
use crate::websocket::WebSocket;

/// The layers of one listener. Clones are the same: a reload replaces the rules of all.
#[derive(Clone, Debug, Default)]
pub(crate) struct Layers {
    tls: Option<Arc<TlsListener>>,
    rules: Arc<RwLock<Rules>>,
}

/// Those of the layers beside TLS, which has its own.
#[derive(Clone, Debug, Default)]
struct Rules {
    proxies: Option<Arc<Proxies>>,
    websocket: Option<Arc<upgrade::Rules>>,
}

impl Rules {
    fn of(listener: &Listener) -> Self {
        let websocket = listener.protocol.has_websocket().then(|| upgrade::Rules {
            path: listener.websocket_path.clone(),
            origins: listener.allowed_origins.clone(),
        });
        Self {
            proxies: Proxies::of(listener),
            websocket: websocket.map(Arc::new),
        }
    }
}

impl Layers {
    /// Reads the files of a listener with TLS.
    pub(crate) fn new(listener: &Listener) -> Result<Self, TlsError> {
        let tls = listener.protocol.has_tls().then_some(&listener.tls);
        let new = |tls| TlsListener::new(tls, alpn(listener.protocol));
        let tls = tls.map(new).transpose()?;
        Ok(Self {
            tls: tls.map(Arc::new),
            rules: Arc::new(RwLock::new(Rules::of(listener))),
        })
    }

    /// `None`: its clients speak no TLS.
    pub(crate) fn tls(&self) -> Option<&Arc<TlsListener>> {
        self.tls.as_ref()
    }

    /// New connections are served by these rules of the listener. Its certificates are replaced by
    /// [`TlsListener::put_in_force`].
    pub(crate) fn put_in_force(&self, listener: &Listener) {
        *self.rules.write().unwrap_or_else(PoisonError::into_inner) = Rules::of(listener);
    }

    fn rules(&self) -> Rules {
        let rules = self.rules.read().unwrap_or_else(PoisonError::into_inner);
        rules.clone()
    }

    /// Whether another handshake may begin.
    pub(super) fn has_room(&self) -> bool {
        !self.tls.as_ref().is_some_and(|tls| tls.is_full())
    }

    /// Whether a client from there may begin a handshake.
    pub(super) fn has_share(&self, from: Option<SocketAddr>) -> bool {
        self.tls.as_ref().is_none_or(|tls| {
            let address = self.address_of(from);
            address.is_none_or(|address| tls.has_share(address))
        })
    }

    /// The address of the client, unless it comes through a proxy or has none.
    pub(super) fn address_of(&self, from: Option<SocketAddr>) -> Option<IpAddr> {
        address_of(&self.rules(), from)
    }

    /// For a new connection from this address.
    pub(super) fn transforms(
        &self,
        from: Option<SocketAddr>,
    ) -> Result<Vec<Box<dyn Transform>>, rustls::Error> {
        let rules = self.rules();
        let address = address_of(&rules, from);
        let tls = self.tls.as_ref().map(|tls| tls.accept(address));
        let (tls, handshake) = tls.transpose()?.unzip();
        let proxies = rules.proxies.as_ref();
        let proxy = proxies.and_then(|it| it.transform(from, handshake));
        let forwarding = rules.proxies.as_ref().and_then(|it| it.forwarding(from));
        let websocket = rules.websocket.map(|it| WebSocket::boxed(it, forwarding));
        Ok(proxy.into_iter().chain(tls).chain(websocket).collect())
    }
}

fn address_of(rules: &Rules, from: Option<SocketAddr>) -> Option<IpAddr> {
    let address = from?.ip();
    let trusts = |proxies: &Arc<Proxies>| proxies.trust(address);
    let is_proxy = rules.proxies.as_ref().is_some_and(trusts);
    (!is_proxy).then_some(address)
}

/// What TLS clients may ask for as the protocol above it (ALPN).
const fn alpn(protocol: Protocol) -> &'static [u8] {
    if protocol.has_websocket() {
        b"http/1.1"
    } else {
        b"mqtt"
    }
}
