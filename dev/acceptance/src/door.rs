//! How a raw client reaches the broker: over TCP, TLS, WebSocket, both, or a unix socket.
//!
//! `UNBROKEN_TRANSPORT` names one (`tcp`, `tls`, `ws`, `wss`, `unix`) for all brokers that a suite
//! starts: each then has a second listener, which raw clients use. Programs still connect to the
//! first, over TCP. TLS is rustls' and WebSocket is tungstenite's, which know nothing of ours; what
//! of the broker's bytes they refuse fails the test.
//!
//! Deliberately absent: certificates of clients, and anything that a test of one transport needs.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::{env, fs};

use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::pki_types::ServerName;

mod stream;

pub use stream::Stream;

/// Files of the second listener, in the broker's directory.
const CERTIFICATE: &str = "door.pem";
const KEY: &str = "door.key";
const SOCKET: &str = "door.sock";
/// Keys that say who may come in, and where to: the second listener has those of the first.
const ADMISSION: [&str; 11] = [
    "acl_file",
    "allow_anonymous",
    "client_id",
    "client_id_from",
    "http_auth",
    "jwt",
    "max_connections",
    "mount_point",
    "password_file",
    "stored_users",
    "takeover",
];

/// What carries MQTT.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// TCP alone.
    #[default]
    Tcp,
    /// TLS over TCP.
    Tls,
    /// WebSocket over TCP.
    Ws,
    /// WebSocket over TLS.
    Wss,
    /// A unix socket.
    Unix,
}

impl Transport {
    const ALL: [(&'static str, Self); 5] = [
        ("tcp", Self::Tcp),
        ("tls", Self::Tls),
        ("ws", Self::Ws),
        ("wss", Self::Wss),
        ("unix", Self::Unix),
    ];

    /// The one that raw clients of this suite use.
    pub fn of_the_suite() -> Self {
        let Some(named) = env::var_os("UNBROKEN_TRANSPORT") else {
            return Self::Tcp;
        };
        let found = Self::ALL.iter().find(|(name, _)| named == *name);
        let (_, transport) = found.unwrap_or_else(|| {
            panic!(
                "UNBROKEN_TRANSPORT is {}, and not tcp, tls, ws, wss or unix",
                named.display()
            )
        });
        *transport
    }

    /// Whether it has TLS.
    pub fn is_secured(self) -> bool {
        matches!(self, Self::Tls | Self::Wss)
    }

    /// Whether it has WebSocket.
    pub fn is_framed(self) -> bool {
        matches!(self, Self::Ws | Self::Wss)
    }

    /// Its name in a configuration.
    fn protocol(self) -> &'static str {
        match self {
            Self::Tcp | Self::Unix => "mqtt",
            Self::Tls => "mqtts",
            Self::Ws => "ws",
            Self::Wss => "wss",
        }
    }

    /// A configuration with one more listener, for this transport. One that has more than the first
    /// is about listeners, and stays as it is.
    pub(crate) fn in_config(self, config: &str) -> String {
        let listeners = config.matches("[[listeners]]").count();
        if self == Self::Tcp || listeners > 1 {
            return config.to_owned();
        }
        let mut text = config.to_owned();
        if listeners == 0 {
            text.push_str("\n[[listeners]]\n");
        }
        let first = text.split("[[listeners]]").nth(1).unwrap_or_default();
        let first = first.lines().take_while(|line| !line.starts_with('['));
        let admission: Vec<_> = first
            .filter(|line| {
                let (key, _) = line.split_once('=').unwrap_or_default();
                ADMISSION.contains(&key.trim())
            })
            .map(str::to_owned)
            .collect();
        text.push_str(&self.listener());
        for line in admission {
            text.push_str(&line);
            text.push('\n');
        }
        text
    }

    /// A listener for this transport, in a configuration.
    pub fn listener(self) -> String {
        let mut text = format!("\n[[listeners]]\nprotocol = \"{}\"\n", self.protocol());
        match self {
            Self::Unix => writeln!(text, "socket = \"{SOCKET}\""),
            _ => writeln!(text, "port = 0"),
        }
        .expect("a text takes more");
        if self.is_secured() {
            let files = format!("certificate_file = \"{CERTIFICATE}\"\nkey_file = \"{KEY}\"\n");
            text.push_str(&files);
        }
        text
    }

    /// Writes the files that such a listener names.
    pub fn write_files(self, directory: &Path) {
        if self.is_secured() {
            let own = identity();
            fs::write(directory.join(CERTIFICATE), own.cert.pem())
                .and_then(|()| fs::write(directory.join(KEY), own.signing_key.serialize_pem()))
                .expect("its directory is writable");
        }
    }

    /// What the broker writes of that listener when it is open.
    pub fn announced(self) -> String {
        match self {
            Self::Unix => SOCKET.to_owned(),
            _ => format!("({}, ", self.protocol()),
        }
    }
}

/// A listener and how to speak to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Door {
    transport: Transport,
    address: SocketAddr,
    socket: PathBuf,
}

impl Door {
    /// TCP alone.
    pub fn tcp(address: SocketAddr) -> Self {
        Self::new(Transport::Tcp, address, Path::new(""))
    }

    /// This transport, at an address, or in the directory of the broker.
    pub(crate) fn new(transport: Transport, address: SocketAddr, directory: &Path) -> Self {
        Self {
            transport,
            address,
            socket: directory.join(SOCKET),
        }
    }

    /// Connects, and does the handshakes. From another address of this machine, if one is given.
    pub fn open(&self, source: Option<Ipv4Addr>) -> std::io::Result<Stream> {
        Stream::open(self, source)
    }
}

/// What a client of TLS says first: the broker answers with its certificate.
pub fn client_hello() -> Vec<u8> {
    let mut hello = Vec::new();
    let written = client().write_tls(&mut hello);
    written.expect("a client speaks first");
    hello
}

fn client() -> rustls::ClientConnection {
    let name = ServerName::try_from("localhost").expect("the name of a host");
    rustls::ClientConnection::new(trust(), name).expect("a client of TLS")
}

/// The certificate of every broker of this process, which is its own authority.
fn identity() -> &'static CertifiedKey<rcgen::KeyPair> {
    static IDENTITY: OnceLock<CertifiedKey<rcgen::KeyPair>> = OnceLock::new();
    IDENTITY.get_or_init(|| {
        generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate")
    })
}

/// Trusts that certificate alone.
fn trust() -> Arc<rustls::ClientConfig> {
    static TRUST: OnceLock<Arc<rustls::ClientConfig>> = OnceLock::new();
    let make = || {
        let mut roots = rustls::RootCertStore::empty();
        roots
            .add(identity().cert.der().clone())
            .expect("a certificate");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = rustls::ClientConfig::builder_with_provider(provider);
        let builder = builder
            .with_safe_default_protocol_versions()
            .expect("versions of TLS");
        Arc::new(builder.with_root_certificates(roots).with_no_client_auth())
    };
    Arc::clone(TRUST.get_or_init(make))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_listener_admits_whom_the_first_does() {
        let config =
            "[limits]\nsessions_max = 1\n\n[[listeners]]\nport = 0\npassword_file = \"u\"\n";
        assert_eq!(
            Transport::Wss.in_config(config),
            format!(
                "{config}\n[[listeners]]\nprotocol = \"wss\"\nport = 0\n\
                 certificate_file = \"door.pem\"\nkey_file = \"door.key\"\npassword_file = \"u\"\n"
            )
        );
        let roles = "[[roles]]\nallow = [\"all #\"]\n";
        assert_eq!(
            Transport::Unix.in_config(roles),
            format!(
                "{roles}\n[[listeners]]\n\n[[listeners]]\nprotocol = \"mqtt\"\n\
                 socket = \"door.sock\"\n"
            )
        );
        assert_eq!(Transport::Tcp.in_config(roles), roles);
    }
}
