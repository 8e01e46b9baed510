//! One listener: where it listens, what it speaks, and which clients it admits.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

/// One of `[[listeners]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// Its name in logs and `$SYS`; `None`: its address.
    pub name: Option<String>,
    /// What clients speak.
    pub protocol: Protocol,
    /// The address to listen on.
    pub bind: IpAddr,
    /// The port; 0: one that is free.
    pub port: u16,
    /// A unix socket instead of address and port.
    pub socket: Option<PathBuf>,
    /// Permissions of the unix socket.
    pub socket_mode: FileMode,
    /// `user`, `user:group` or `:group` of the unix socket; `None`: those of the broker.
    pub socket_owner: Option<String>,
    /// Whether clients without a user name may connect.
    pub allow_anonymous: bool,
    /// Users and passwords of clients that may connect; `None`: none.
    pub password_file: Option<PathBuf>,
    /// An access control list of Mosquitto for its clients; `None`: there is none.
    pub acl_file: Option<PathBuf>,
    /// Open connections of this listener; `None`: only `limits.connections_max` applies.
    pub max_connections: Option<u32>,
}

impl Default for Listener {
    fn default() -> Self {
        Self {
            name: None,
            protocol: Protocol::default(),
            bind: IpAddr::V4(Ipv4Addr::LOCALHOST),
            port: Protocol::default().default_port(),
            socket: None,
            socket_mode: FileMode(0o660),
            socket_owner: None,
            allow_anonymous: true,
            password_file: None,
            acl_file: None,
            max_connections: None,
        }
    }
}

impl Listener {
    /// Where it listens.
    pub fn address(&self) -> Address {
        match &self.socket {
            Some(path) => Address::Unix(path.clone()),
            None => Address::Tcp(SocketAddr::new(self.bind, self.port)),
        }
    }

    /// Whether only programs of this machine can reach it.
    pub fn is_local(&self) -> bool {
        self.socket.is_some() || self.bind.is_loopback()
    }

    /// Describes which clients may connect, for the start message.
    pub fn admits(&self) -> &'static str {
        match (self.allow_anonymous, &self.password_file) {
            (true, None) => "anonymous allowed",
            (true, Some(_)) => "anonymous allowed, or user name and password",
            (false, _) => "user name and password",
        }
    }
}

/// Where a listener listens.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Address {
    /// An IP address and a port.
    Tcp(SocketAddr),
    /// The file of a unix socket.
    Unix(PathBuf),
}

impl Address {
    /// The IP address and port; `None` of a unix socket.
    pub const fn tcp(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(address) => Some(*address),
            Self::Unix(_) => None,
        }
    }
}

/// `127.0.0.1:1883`, `unix:/run/unbroken.sock`.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// What the clients of a listener speak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// MQTT alone.
    #[default]
    Mqtt,
}

impl Protocol {
    /// The customary port.
    pub const fn default_port(self) -> u16 {
        match self {
            Self::Mqtt => 1883,
        }
    }

    /// Its name in the configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Mqtt => "mqtt",
        }
    }
}

/// Permissions of a file, as `chmod` takes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileMode(pub u32);

impl FileMode {
    /// Reads three or four octal digits.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let is_mode = (3..=4).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
        let mode = u32::from_str_radix(text, 8).ok()?;
        (is_mode && mode <= 0o777).then_some(Self(mode))
    }
}

/// Four octal digits.
impl fmt::Display for FileMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04o}", self.0)
    }
}
