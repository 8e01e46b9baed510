//! Addresses: where to connect to and where to listen, which are never each other.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

/// Where a broker is: a host, by name or number, and its port; or a unix socket.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ConnectTo {
    host: String,
    port: u16,
}

/// Where to listen: for those who accept connections, such as a relay between client and broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BindTo(SocketAddr);

/// Why a text is no address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// Nothing before the port.
    #[error("{0:?} names no host: write it as host, host:port or [IPv6 address]:port")]
    NoHost(String),
    /// The port is none.
    #[error("{0:?} does not end in a port of 1 to 65535: write it as host:port")]
    Port(String),
    /// Two ports are given.
    #[error(
        "{text:?} names port {port}, and the port is given as {other} too: leave one of them out"
    )]
    TwoPorts {
        /// The address.
        text: String,
        /// Its port.
        port: u16,
        /// The other one.
        other: u16,
    },
    /// Not an IP address with a port.
    #[error("{0:?} is no address to listen on: write it as 127.0.0.1:1883, port 0 for a free one")]
    Listen(String),
}

impl ConnectTo {
    /// The port of MQTT without TLS.
    pub const DEFAULT_PORT: u16 = 1883;

    /// A host and a port.
    pub fn new(host: impl Into<String>, port: u16) -> Self {
        Self {
            host: host.into(),
            port,
        }
    }

    /// A unix socket.
    pub fn unix(path: impl Into<String>) -> Self {
        Self::new(path, 0)
    }

    /// The path of a unix socket, if it is one: an absolute one or one that begins with a dot.
    pub fn unix_path(&self) -> Option<&str> {
        let is_path = self.port == 0 && self.host.starts_with(['/', '.']);
        is_path.then_some(&self.host)
    }

    /// From a host that may have a port, and a port that is given by itself. As that can follow, an
    /// IPv6 address needs no brackets.
    pub fn with_port(text: &str, port: Option<u16>) -> Result<Self, AddressError> {
        let (host, own) = if text.parse::<Ipv6Addr>().is_ok() {
            (text, None)
        } else {
            Self::parts(text)?
        };
        match (own, port) {
            (Some(port), Some(other)) if port != other => Err(AddressError::TwoPorts {
                text: text.to_owned(),
                port,
                other,
            }),
            _ => Ok(Self::new(host, own.or(port).unwrap_or(Self::DEFAULT_PORT))),
        }
    }

    /// The host, without brackets, and the port of `host`, `host:port`, `[IPv6 address]` or
    /// `[IPv6 address]:port`.
    pub fn parts(text: &str) -> Result<(&str, Option<u16>), AddressError> {
        let wrong_port = || AddressError::Port(text.to_owned());
        let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, "")) => (host, None),
            Some((host, rest)) => (host, Some(rest.strip_prefix(':').ok_or_else(wrong_port)?)),
            None => match text.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (text, None),
            },
        };
        if host.is_empty() {
            return Err(AddressError::NoHost(text.to_owned()));
        }
        let number = |port: &str| port.parse().ok().filter(|port| *port > 0);
        match port.map(number) {
            Some(None) => Err(wrong_port()),
            Some(port) => Ok((host, port)),
            None => Ok((host, None)),
        }
    }

    /// A name, or an address without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl From<SocketAddr> for ConnectTo {
    fn from(address: SocketAddr) -> Self {
        Self::new(address.ip().to_string(), address.port())
    }
}

/// `host`, `host:port`, `[::1]`, `[::1]:port`, `unix:/path`.
impl FromStr for ConnectTo {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        if let Some(path) = text.strip_prefix("unix:") {
            return if path.starts_with(['/', '.']) {
                Ok(Self::unix(path))
            } else {
                Err(AddressError::NoHost(text.to_owned()))
            };
        }
        let (host, port) = Self::parts(text)?;
        Ok(Self::new(host, port.unwrap_or(Self::DEFAULT_PORT)))
    }
}

impl fmt::Display for ConnectTo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(path) = self.unix_path() {
            write!(f, "unix:{path}")
        } else if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

impl BindTo {
    /// A port that the system chooses, reachable from this machine only.
    pub const fn any_loopback_port() -> Self {
        Self(SocketAddr::new(
            std::net::IpAddr::V4(Ipv4Addr::LOCALHOST),
            0,
        ))
    }

    /// As the socket takes it.
    pub const fn socket_address(self) -> SocketAddr {
        self.0
    }
}

impl From<SocketAddr> for BindTo {
    fn from(address: SocketAddr) -> Self {
        Self(address)
    }
}

impl FromStr for BindTo {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let address = text.parse().map(Self);
        address.map_err(|_| AddressError::Listen(text.to_owned()))
    }
}

impl fmt::Display for BindTo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broker_is_found_by_name_or_number_with_or_without_port() {
        for (text, host, port) in [
            ("broker", "broker", 1883),
            ("broker:1", "broker", 1),
            ("10.0.0.1:65535", "10.0.0.1", 65535),
            ("[::1]", "::1", 1883),
            ("[::1]:7", "::1", 7),
            ("unix:/run/mqtt.sock", "/run/mqtt.sock", 0),
        ] {
            assert_eq!(text.parse(), Ok(ConnectTo::new(host, port)), "{text}");
        }
        let shown: ConnectTo = "[::1]:7".parse().unwrap();
        assert_eq!(shown.to_string(), "[::1]:7");
    }

    #[test]
    fn a_port_is_given_with_the_host_or_by_itself() {
        for (text, port, expected) in [
            ("broker", None, Ok("broker:1883")),
            ("broker", Some(7), Ok("broker:7")),
            ("broker:7", None, Ok("broker:7")),
            ("broker:7", Some(7), Ok("broker:7")),
            ("::1", None, Ok("[::1]:1883")),
            ("::1", Some(7), Ok("[::1]:7")),
            ("[::1]", Some(7), Ok("[::1]:7")),
            ("[::1]:7", None, Ok("[::1]:7")),
            ("broker:7", Some(8), Err("names port 7")),
            ("x::y", Some(8), Err("does not end in a port")),
            ("", Some(8), Err("names no host")),
        ] {
            let to = ConnectTo::with_port(text, port);
            match (to, expected) {
                (Ok(to), Ok(expected)) => assert_eq!(to.to_string(), expected, "{text} {port:?}"),
                (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{error}"),
                (to, expected) => panic!("{text} {port:?}: {to:?}, not {expected:?}"),
            }
        }
    }

    #[test]
    fn what_is_no_address_is_refused_with_the_way_to_write_one() {
        for text in [
            "",
            ":1883",
            "broker:",
            "broker:0",
            "broker:65536",
            "::1",
            "[::1]x",
            "[::1]7",
            "[]:1",
        ] {
            assert!(text.parse::<ConnectTo>().is_err(), "{text}");
        }
        assert!("localhost:1".parse::<BindTo>().is_err());
        assert_eq!("127.0.0.1:0".parse(), Ok(BindTo::any_loopback_port()));
    }
}
