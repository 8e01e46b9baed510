//! One listener: where it listens, what it speaks, and which clients it admits.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use unbroken_broker_core::{ClientIdRules, ClientIdSource, MountPoint};

use super::Network;

/// One of `[[listeners]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// Its name in logs and `$SYS`; `None`: its address.
    pub name: Option<String>,
    /// What clients speak.
    pub protocol: Protocol,
    /// The addresses to listen on.
    pub bind: Bind,
    /// Their port; 0: one that is free.
    pub port: u16,
    /// A unix socket instead of address and port.
    pub socket: Option<PathBuf>,
    /// Permissions of the unix socket.
    pub socket_mode: FileMode,
    /// `user`, `user:group` or `:group` of the unix socket; `None`: those of the broker.
    pub socket_owner: Option<String>,
    /// Whether passwords and messages may cross the network in the clear.
    pub insecure: bool,
    /// Whether clients without a user name may connect.
    pub allow_anonymous: bool,
    /// Users and passwords of clients that may connect; `None`: none.
    pub password_file: Option<PathBuf>,
    /// Names of [`super::Jwt`] tables whose tokens its clients may show.
    pub jwt: Vec<String>,
    /// Names of [`super::HttpAuth`] tables whose services are asked about its clients.
    pub http_auth: Vec<String>,
    /// Whether users of the store may connect with their passwords.
    pub stored_users: bool,
    /// Where a client's id comes from.
    pub client_id_from: ClientIdSource,
    /// What client ids are like, with `{user}` for the client's user name; `None`: all are allowed.
    pub client_id: Option<String>,
    /// Who may take over a session.
    pub takeover: Takeover,
    /// An access control list of Mosquitto for its clients; `None`: there is none.
    pub acl_file: Option<PathBuf>,
    /// The part of the topic tree in which its clients live, unless a role names another one.
    pub mount_point: Option<MountPoint>,
    /// Open connections of this listener; `None`: only `limits.connections_max` applies.
    pub max_connections: Option<u32>,
    /// Proxies whose connections begin with a header of the PROXY protocol.
    pub trusted_proxies: Vec<Network>,
    /// The field of the WebSocket request in which such a proxy names its client instead.
    pub forwarded_header: ForwardedHeader,
    /// Whether the common name of a certificate that such a proxy has verified names its user.
    pub proxy_common_name: bool,
    /// The path of WebSocket requests.
    pub websocket_path: String,
    /// Origins of pages that may connect over WebSocket; empty: all.
    pub allowed_origins: Vec<String>,
    /// Without effect where the protocol has no TLS.
    pub tls: Tls,
}

/// The TLS of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// Certificates of the broker, each with its chain.
    pub certificate_files: Vec<PathBuf>,
    /// Their private keys, in the same order.
    pub key_files: Vec<PathBuf>,
    /// Authorities of clients' certificates; `None`: clients need none.
    pub client_ca_file: Option<PathBuf>,
    /// Certificates of clients that were revoked.
    pub crl_file: Option<PathBuf>,
    /// Whether a client without a certificate is refused.
    pub require_client_certificate: bool,
    /// Whether an expired revocation list is refused with all certificates that it is about.
    pub enforce_crl_expiry: bool,
    /// Where a client's certificate has the name of its user.
    pub certificate_user: CertificateUser,
    /// The oldest version that clients may use.
    pub min_version: TlsVersion,
    /// Handshakes that have begun and not ended, at most.
    pub max_handshakes: u32,
}

impl Default for Tls {
    fn default() -> Self {
        Self {
            certificate_files: Vec::new(),
            key_files: Vec::new(),
            client_ca_file: None,
            crl_file: None,
            require_client_certificate: true,
            enforce_crl_expiry: false,
            certificate_user: CertificateUser::default(),
            min_version: TlsVersion::default(),
            max_handshakes: 1_000,
        }
    }
}

/// Who may take over the session of a client id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Takeover {
    /// The user whose it is; a session that no user has begun, everybody.
    #[default]
    SameUser,
    /// Everybody who may connect with the client id.
    Anyone,
}

/// Where a client's certificate has the name of its user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CertificateUser {
    /// Nowhere: a certificate lets a client connect, and names no user.
    Off,
    /// The common name of its subject.
    #[default]
    CommonName,
    /// The first host name among its alternative names.
    Dns,
    /// The first mail address among them.
    Email,
    /// The first URI among them.
    Uri,
}

impl CertificateUser {
    /// To follow "has no".
    pub(crate) const fn describe(self) -> &'static str {
        match self {
            Self::Off => "name",
            Self::CommonName => "common name",
            Self::Dns => "host name among its alternative names",
            Self::Email => "mail address among its alternative names",
            Self::Uri => "URI among its alternative names",
        }
    }
}

/// A field of HTTP in which proxies say for whom they pass a request on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ForwardedHeader {
    /// None: they send PROXY headers.
    #[default]
    Off,
    /// `Forwarded` (RFC 7239).
    Forwarded,
    /// `X-Forwarded-For`.
    XForwardedFor,
}

/// A version of TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are the ones everybody knows")]
pub enum TlsVersion {
    #[default]
    V1_2,
    V1_3,
}

impl Default for Listener {
    fn default() -> Self {
        Self {
            name: None,
            protocol: Protocol::default(),
            bind: Ipv4Addr::LOCALHOST.into(),
            port: Protocol::default().default_port(),
            socket: None,
            socket_mode: FileMode(0o660),
            socket_owner: None,
            insecure: false,
            allow_anonymous: true,
            password_file: None,
            jwt: Vec::new(),
            http_auth: Vec::new(),
            stored_users: false,
            client_id_from: ClientIdSource::default(),
            client_id: None,
            takeover: Takeover::default(),
            acl_file: None,
            mount_point: None,
            max_connections: None,
            trusted_proxies: Vec::new(),
            forwarded_header: ForwardedHeader::Off,
            proxy_common_name: false,
            websocket_path: "/mqtt".to_owned(),
            allowed_origins: Vec::new(),
            tls: Tls::default(),
        }
    }
}

impl Listener {
    /// Where it listens; of several addresses the first, which names it.
    pub fn address(&self) -> Address {
        match &self.socket {
            Some(path) => Address::Unix(path.clone()),
            None => Address::Tcp(SocketAddr::new(self.bind.first(), self.port)),
        }
    }

    /// All places where it listens.
    pub fn addresses(&self) -> Vec<Address> {
        if let Some(path) = &self.socket {
            return vec![Address::Unix(path.clone())];
        }
        let tcp = |ip: &IpAddr| Address::Tcp(SocketAddr::new(*ip, self.port));
        self.bind.addresses().iter().map(tcp).collect()
    }

    /// Whether `other` can be put in force on this one while it is open: it listens in the same
    /// places, for the same programs, and speaks the same.
    pub(crate) fn can_become(&self, other: &Self) -> bool {
        let kind = |it: &Self| (it.protocol, it.socket_mode, it.socket_owner.clone());
        self.addresses() == other.addresses() && kind(self) == kind(other)
    }

    /// Whether only programs of this machine can reach it; what comes through a proxy may come from
    /// anywhere.
    pub fn is_local(&self) -> bool {
        self.trusted_proxies.is_empty() && (self.socket.is_some() || self.bind.is_loopback())
    }

    /// What it asks of client ids, as the core knows it.
    pub(crate) fn client_id_rules(&self) -> ClientIdRules {
        ClientIdRules {
            source: self.client_id_from,
            pattern: self.client_id.as_deref().map(Into::into),
            takeover_by_anyone: self.takeover == Takeover::Anyone,
        }
    }

    /// Whether what clients send to it, or proxies for them, crosses a network in the clear.
    pub fn is_in_the_clear(&self) -> bool {
        self.socket.is_none() && !self.bind.is_loopback() && !self.protocol.has_tls()
    }

    /// Describes which clients may connect, for the start message.
    pub fn admits(&self) -> String {
        let logins = self.logins();
        let has_logins = self.has_logins();
        if self.requires_certificate() {
            return match (self.names_users(), self.allow_anonymous, has_logins) {
                (true, ..) => "client certificate".to_owned(),
                (false, true, false) => "client certificate, anonymous allowed".to_owned(),
                (false, true, true) => format!("client certificate, and anonymous or {logins}"),
                (false, false, _) => format!("client certificate, and {logins}"),
            };
        }
        match (
            self.verifies_certificates(),
            self.allow_anonymous,
            has_logins,
        ) {
            (false, true, false) => "anonymous allowed".to_owned(),
            (false, true, true) => format!("anonymous allowed, or {logins}"),
            (false, false, _) => logins,
            (true, true, false) => "client certificate, or anonymous".to_owned(),
            (true, true, true) => format!("client certificate, anonymous, or {logins}"),
            (true, false, true) => format!("client certificate, or {logins}"),
            (true, false, false) => "client certificate".to_owned(),
        }
    }

    /// What it verifies of what clients show in CONNECT.
    fn logins(&self) -> String {
        let passwords = self.has_passwords() || !self.has_logins();
        let ways = [
            passwords.then_some("user name and password"),
            (!self.jwt.is_empty()).then_some("token"),
            (!self.http_auth.is_empty()).then_some("the answer of a service"),
        ];
        let ways: Vec<_> = ways.into_iter().flatten().collect();
        ways.join(" or ")
    }

    /// Whether it verifies passwords, of a file or of users in the store.
    pub const fn has_passwords(&self) -> bool {
        self.password_file.is_some() || self.stored_users
    }

    /// Whether it verifies certificates of clients, if they have one.
    pub const fn verifies_certificates(&self) -> bool {
        self.protocol.has_tls() && self.tls.client_ca_file.is_some()
    }

    /// Whether it refuses clients without a certificate.
    pub const fn requires_certificate(&self) -> bool {
        self.verifies_certificates() && self.tls.require_client_certificate
    }

    /// Whether it verifies what clients show in CONNECT.
    pub(crate) const fn has_logins(&self) -> bool {
        self.has_passwords() || !self.jwt.is_empty() || !self.http_auth.is_empty()
    }

    /// Whether a certificate that the broker or a trusted proxy has verified names the client's
    /// user.
    pub(crate) fn names_users(&self) -> bool {
        let by_broker = self.verifies_certificates();
        by_broker && self.tls.certificate_user != CertificateUser::Off
            || self.proxy_common_name && !self.trusted_proxies.is_empty()
    }
}

/// The IP addresses of one listener, each once; never none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bind(Vec<IpAddr>);

impl Bind {
    /// All of IPv4 and of IPv6, as `*`.
    pub fn all() -> Self {
        Self(vec![
            Ipv4Addr::UNSPECIFIED.into(),
            Ipv6Addr::UNSPECIFIED.into(),
        ])
    }

    /// These; `None`: there are none, or one of them twice.
    pub fn new(addresses: Vec<IpAddr>) -> Option<Self> {
        let is_new = |(index, address)| !addresses[..index].contains(address);
        let is_bind = !addresses.is_empty() && addresses.iter().enumerate().all(is_new);
        is_bind.then_some(Self(addresses))
    }

    /// As configured.
    pub fn addresses(&self) -> &[IpAddr] {
        &self.0
    }

    /// The first of them.
    pub fn first(&self) -> IpAddr {
        let first = self.0.first().copied();
        first.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
    }

    /// Whether only this machine can reach them.
    pub fn is_loopback(&self) -> bool {
        self.0.iter().all(IpAddr::is_loopback)
    }

    /// Whether it is `*`, which leaves IPv6 out where the system has none.
    pub(crate) fn is_all(&self) -> bool {
        *self == Self::all()
    }
}

impl From<IpAddr> for Bind {
    fn from(address: IpAddr) -> Self {
        Self(vec![address])
    }
}

impl From<Ipv4Addr> for Bind {
    fn from(address: Ipv4Addr) -> Self {
        Self(vec![address.into()])
    }
}

impl From<[u8; 4]> for Bind {
    fn from(address: [u8; 4]) -> Self {
        Self(vec![address.into()])
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
    /// MQTT over TLS.
    Mqtts,
    /// MQTT over WebSocket.
    Ws,
    /// MQTT over WebSocket over TLS.
    Wss,
}

impl Protocol {
    /// The customary port.
    pub const fn default_port(self) -> u16 {
        match self {
            Self::Mqtt => 1883,
            Self::Mqtts => 8883,
            Self::Ws => 8083,
            Self::Wss => 8084,
        }
    }

    /// Its name in the configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Mqtt => "mqtt",
            Self::Mqtts => "mqtts",
            Self::Ws => "ws",
            Self::Wss => "wss",
        }
    }

    /// Whether it is encrypted.
    pub const fn has_tls(self) -> bool {
        matches!(self, Self::Mqtts | Self::Wss)
    }

    /// Whether MQTT is in WebSocket frames.
    pub const fn has_websocket(self) -> bool {
        matches!(self, Self::Ws | Self::Wss)
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
