//! The PROXY protocol (versions 1 and 2) as a transform: a proxy says for whom it connects.
//!
//! Only connections from a trusted address begin with a header, and those must: anyone else could
//! claim any address. What the header says of a certificate counts only if the proxy has verified
//! it on this very connection.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use proxy_header::{ParseConfig, ProxyHeader};
use unbroken_broker_core::Peer;
use unbroken_websocket::forwarded::Field;

use crate::bounds::PROXY_HEADER_BYTES;
use crate::config::{ForwardedHeader, Listener, Network};
use crate::tls::HandshakePermit;
use crate::transport::{End, Opened, Transform};

/// The proxies that a listener trusts.
#[derive(Debug)]
pub(crate) struct Proxies {
    networks: Vec<Network>,
    /// A verified certificate names its user.
    names_users: bool,
    /// They name clients in this field of WebSocket requests, and send no header of their own.
    forwards: Option<Field>,
}

/// Proxies that name clients in a field of WebSocket requests.
pub(crate) type Forwarding = (Arc<Proxies>, Field);

impl Proxies {
    /// `None`: it trusts none.
    pub(crate) fn of(listener: &Listener) -> Option<Arc<Self>> {
        let proxies = Self {
            networks: listener.trusted_proxies.clone(),
            names_users: listener.proxy_common_name,
            forwards: match listener.forwarded_header {
                ForwardedHeader::Off => None,
                ForwardedHeader::Forwarded => Some(Field::Forwarded),
                ForwardedHeader::XForwardedFor => Some(Field::XForwardedFor),
            },
        };
        (!proxies.networks.is_empty()).then(|| Arc::new(proxies))
    }

    /// Whether a header from there counts.
    pub(crate) fn trust(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.networks
            .iter()
            .any(|network| network.contains(address))
    }

    /// Of a chain of addresses, the last of which has connected: the one for which trusted proxies
    /// have passed a request on; a proxy's own, if it is for itself. `None`: one of them does not
    /// say it.
    pub(crate) fn client(&self, chain: &[Option<IpAddr>]) -> Option<IpAddr> {
        let is_proxy = |address: &Option<IpAddr>| address.is_some_and(|it| self.trust(it));
        let client = chain.iter().rev().find(|it| !is_proxy(it));
        *client.or(chain.first())?
    }

    /// Itself and the field, if a request from this address must say for whom it comes.
    pub(crate) fn forwarding(self: &Arc<Self>, from: Option<SocketAddr>) -> Option<Forwarding> {
        let field = self.forwards.filter(|_| self.trust_peer(from))?;
        Some((Arc::clone(self), field))
    }

    /// Whether the other side of a connection is one; of a unix socket it is this machine.
    fn trust_peer(&self, from: Option<SocketAddr>) -> bool {
        self.trust(from.map_or(Ipv4Addr::LOCALHOST.into(), |from| from.ip()))
    }

    /// The transform of a connection from this address, if it is trusted and begins with a header.
    /// `handshake`: that of TLS behind the header, which is to be in the client's share.
    pub(crate) fn transform(
        self: &Arc<Self>,
        from: Option<SocketAddr>,
        handshake: Option<Arc<HandshakePermit>>,
    ) -> Option<Box<dyn Transform>> {
        let begins_with_header = self.forwards.is_none() && self.trust_peer(from);
        begins_with_header.then(|| -> Box<dyn Transform> {
            Box::new(Proxy {
                proxies: Arc::clone(self),
                state: State::Header,
                handshake,
                peer: None,
                common_name: None,
            })
        })
    }
}

#[derive(Debug)]
struct Proxy {
    proxies: Arc<Proxies>,
    state: State,
    /// The one behind the header, until it is known for whom it is.
    handshake: Option<Arc<HandshakePermit>>,
    /// For whom the proxy connects; `None`: for itself.
    peer: Option<SocketAddr>,
    common_name: Option<Arc<str>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// It has not come whole.
    Header,
    Open,
    Refused(&'static str),
}

const NO_HEADER: &str = "it comes from a trusted proxy, and does not begin with a PROXY header";
const NO_SHARE: &str = "its address has its share of unfinished TLS handshakes through this proxy";

impl Proxy {
    /// How long the header is. `None`: incomplete.
    fn read_header(&mut self, wire: &[u8]) -> Result<Option<usize>, &'static str> {
        match ProxyHeader::parse(wire, ParseConfig::default()) {
            // One that came at once is no better than one that came in pieces.
            Ok((_, length)) if length > PROXY_HEADER_BYTES => Err(NO_HEADER),
            Ok((header, length)) => {
                self.peer = header.proxied_address().map(|address| address.source);
                if let (Some(handshake), Some(peer)) = (self.handshake.take(), self.peer)
                    && !handshake.has_share(peer.ip())
                {
                    return Err(NO_SHARE);
                }
                // Verified, and on this connection rather than on one that it resumes (2.2.6).
                let ssl = header.ssl();
                let ssl = ssl.as_ref();
                let ssl = ssl.filter(|ssl| ssl.client_cert_conn() && ssl.verify() == 0);
                if self.proxies.names_users {
                    let name = ssl.and_then(|ssl| ssl.cn());
                    let name = name.filter(|name| !name.is_empty() && !name.contains('\0'));
                    self.common_name = name.map(Arc::from);
                }
                Ok(Some(length))
            }
            Err(proxy_header::Error::BufferTooShort) if wire.len() < PROXY_HEADER_BYTES => Ok(None),
            Err(_) => Err(NO_HEADER),
        }
    }
}

impl Transform for Proxy {
    fn open(&mut self, wire: &mut [u8], plain: &mut Vec<u8>, _reply: &mut Vec<u8>) -> Opened {
        let mut used = 0;
        if self.state == State::Header {
            match self.read_header(wire) {
                Ok(Some(length)) => (self.state, used) = (State::Open, length),
                Ok(None) => return Opened { used, end: None },
                Err(why) => self.state = State::Refused(why),
            }
        }
        if let State::Refused(_) = self.state {
            let (used, end) = (wire.len(), Some(End::Invalid));
            return Opened { used, end };
        }
        plain.extend_from_slice(&wire[used..]);
        let used = wire.len();
        Opened { used, end: None }
    }

    fn is_open(&self) -> bool {
        self.state == State::Open
    }

    fn seal(&mut self, plain: &[u8], wire: &mut Vec<u8>) {
        wire.extend_from_slice(plain);
    }

    fn close(&mut self, _wire: &mut Vec<u8>) {}

    fn identify(&mut self, peer: &mut Peer) {
        if self.peer.is_some() {
            peer.address = self.peer;
        }
        if let Some(name) = self.common_name.take() {
            peer.certificate = Some(name);
        }
    }

    fn refusal(&self) -> Option<&str> {
        match self.state {
            State::Refused(why) => Some(why),
            State::Header | State::Open => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::memory::memory;
    use crate::transport::{ReadOutcome, Scratch, Transport};

    const PROXY: &str = "10.0.0.7:5000";

    fn proxies(names_users: bool) -> Arc<Proxies> {
        Arc::new(Proxies {
            networks: vec!["10.0.0.0/8".parse().unwrap()],
            names_users,
            forwards: None,
        })
    }

    /// What the shard gets and knows, when these bytes come one by one.
    fn read(names_users: bool, wire: &[u8]) -> Result<(Vec<u8>, Peer), String> {
        let proxy = PROXY.parse().unwrap();
        let transform = proxies(names_users).transform(Some(proxy), None).unwrap();
        let (socket, client) = memory(0);
        let mut transport = Transport::new(socket, vec![transform]);
        let (mut scratch, mut found) = (Scratch::default(), Vec::new());
        for byte in wire {
            client.send(&[*byte]);
            let mut into = [0; 10];
            match transport.read(&mut into, &mut scratch) {
                ReadOutcome::Bytes { count, .. } => found.extend_from_slice(&into[..count]),
                other => return Err(format!("{other:?}")),
            }
            if let Some((refusal, _)) = transport.refusal() {
                return Err(refusal.to_owned());
            }
        }
        let mut peer = Peer {
            address: Some(proxy),
            ..Peer::default()
        };
        transport.identify(&mut peer);
        Ok((found, peer))
    }

    /// A header of version 2 for 192.0.2.1:1000, with the name in a certificate.
    fn with_certificate(client: u8, verify: u32) -> Vec<u8> {
        let name = b"ann";
        let mut ssl = vec![client];
        ssl.extend(verify.to_be_bytes());
        ssl.extend([0x22, 0, 3]);
        ssl.extend(name);
        let mut body = vec![192, 0, 2, 1, 10, 0, 0, 1, 0x03, 0xe8, 0x07, 0x5b];
        body.extend([0x20, 0, u8::try_from(ssl.len()).unwrap()]);
        body.extend(ssl);
        let length = u8::try_from(body.len()).unwrap();
        [&b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0"[..], &[length], &body].concat()
    }

    #[test]
    fn both_versions_name_the_client_in_front_of_any_bytes() {
        for header in [
            b"PROXY TCP4 192.0.2.1 10.0.0.1 1000 1883\r\n".to_vec(),
            with_certificate(0, 0),
        ] {
            let (bytes, peer) = read(true, &[&header[..], b"mqtt"].concat()).unwrap();
            assert_eq!(bytes, b"mqtt");
            assert_eq!(peer.address, "192.0.2.1:1000".parse().ok());
            assert_eq!(peer.certificate, None);
        }
        for header in [&b"PROXY UNKNOWN\r\n"[..], b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0"] {
            let (_, peer) = read(true, header).unwrap();
            assert_eq!(peer.address, PROXY.parse().ok());
        }
    }

    #[test]
    fn a_certificate_counts_if_the_proxy_has_verified_it_on_this_connection() {
        const CONNECTION: u8 = 3;
        const SESSION: u8 = 5;
        for (names_users, client, verify, expected) in [
            (true, CONNECTION, 0, Some("ann")),
            (true, CONNECTION, 1, None),
            (true, SESSION, 0, None),
            (false, CONNECTION, 0, None),
        ] {
            let (_, peer) = read(names_users, &with_certificate(client, verify)).unwrap();
            assert_eq!(peer.certificate.as_deref(), expected, "{client} {verify}");
        }
    }

    #[test]
    fn a_header_above_the_limit_is_refused_however_it_comes() {
        let of = |body: usize| {
            let filling = u16::try_from(body - 15).unwrap().to_be_bytes();
            let length = u16::try_from(body).unwrap().to_be_bytes();
            let address = [192, 0, 2, 1, 10, 0, 0, 1, 0x03, 0xe8, 0x07, 0x5b];
            let start = [&b"\r\n\r\n\0\r\nQUIT\n\x21\x11"[..], &length, &address];
            [&start.concat()[..], &[4], &filling, &vec![0; body - 15]].concat()
        };
        for (header, is_refused) in [
            (of(PROXY_HEADER_BYTES - 16), false),
            (of(PROXY_HEADER_BYTES - 15), true),
        ] {
            for size in [1, 1_000, header.len()] {
                let proxy = PROXY.parse().unwrap();
                let mut transform = proxies(false).transform(Some(proxy), None).unwrap();
                let (mut rest, mut plain, mut reply) = (Vec::new(), Vec::new(), Vec::new());
                for piece in header.chunks(size) {
                    rest.extend_from_slice(piece);
                    let opened = transform.open(&mut rest, &mut plain, &mut reply);
                    rest.drain(..opened.used);
                }
                assert_eq!(transform.refusal().is_some(), is_refused, "{size}");
            }
        }
    }

    #[test]
    fn only_a_trusted_address_has_a_header_and_it_must_have_one() {
        for (address, is_trusted) in [
            (PROXY, true),
            ("[::ffff:10.1.2.3]:1", true),
            ("11.0.0.1:1", false),
            ("[::1]:1", false),
        ] {
            let transform = proxies(false).transform(address.parse().ok(), None);
            assert_eq!(transform.is_some(), is_trusted, "{address}");
        }
        assert!(proxies(false).transform(None, None).is_none());
        for wire in [&b"\x10\x10\0\x04MQTT"[..], b"PROXY TCP9 nonsense\r\n"] {
            assert!(read(false, wire).unwrap_err().contains("PROXY header"));
        }
        let long = [b"PROXY UNKNOWN".to_vec(), vec![b'x'; 10_000]].concat();
        assert!(read(false, &long).unwrap_err().contains("PROXY header"));
    }
}
