//! Addresses: where to connect to and where to listen, which are never each other.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::str::FromStr;

/// Where a broker is: a host, by name or number, and its port.
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
    /// What follows the last colon is no port.
    #[error("{0:?} does not end in a port of 1 to 65535: write it as host:port")]
    Port(String),
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

/// `host`, `host:port`, `[::1]`, `[::1]:port`.
impl FromStr for ConnectTo {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, "")) => (host, None),
            Some((host, rest)) => (host, Some(rest.strip_prefix(':').unwrap_or(rest))),
            None => match text.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (text, None),
            },
        };
        if host.is_empty() {
            return Err(AddressError::NoHost(text.to_owned()));
        }
        let port = match port {
            None => Self::DEFAULT_PORT,
            Some(port) => (port.parse().ok())
                .filter(|port| *port > 0)
                .ok_or_else(|| AddressError::Port(text.to_owned()))?,
        };
        Ok(Self::new(host, port))
    }
}

impl fmt::Display for ConnectTo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
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
        ] {
            assert_eq!(text.parse(), Ok(ConnectTo::new(host, port)), "{text}");
        }
        let shown: ConnectTo = "[::1]:7".parse().unwrap();
        assert_eq!(shown.to_string(), "[::1]:7");
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
            "[]:1",
        ] {
            assert!(text.parse::<ConnectTo>().is_err(), "{text}");
        }
        assert!("localhost:1".parse::<BindTo>().is_err());
        assert_eq!("127.0.0.1:0".parse(), Ok(BindTo::any_loopback_port()));
    }
}
