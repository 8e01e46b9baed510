//! A client of TLS that decides itself which bytes are in which record, and when they are sent.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;

use rustls::client::WantsClientCert;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, ConfigBuilder, RootCertStore};
use unbroken_acceptance::DEADLINE;

use crate::certificates::Authority;

/// A connection, and its socket.
pub(crate) struct Secured {
    pub(crate) tls: ClientConnection,
    pub(crate) stream: TcpStream,
}

impl Secured {
    /// Connects, and does the whole handshake.
    #[track_caller]
    pub(crate) fn connect(authority: &Authority, port: u16) -> Self {
        let mut secured = Self::open(authority, port);
        secured.shake_hands();
        secured
    }

    /// Connects with a certificate and does the handshake as far as the client can tell: whether
    /// the broker accepts the certificate comes behind it.
    #[track_caller]
    pub(crate) fn connect_as(authority: &Authority, port: u16, of: &Authority, name: &str) -> Self {
        let mut secured = Self::with(identified(authority, of, name), port);
        secured.shake_hands();
        secured
    }

    /// The same with a configuration that keeps tickets; `None`: the broker ends the handshake.
    #[track_caller]
    pub(crate) fn attempt(config: &Arc<ClientConfig>, port: u16) -> Option<Self> {
        let mut secured = Self::with(Arc::clone(config), port);
        while secured.tls.is_handshaking() {
            secured.tls.complete_io(&mut secured.stream).ok()?;
        }
        Some(secured)
    }

    /// Does the whole handshake.
    #[track_caller]
    pub(crate) fn shake_hands(&mut self) {
        while self.tls.is_handshaking() {
            let done = self.tls.complete_io(&mut self.stream);
            done.expect("the broker does its part");
        }
    }

    /// Connects, and says nothing yet.
    #[track_caller]
    pub(crate) fn open(authority: &Authority, port: u16) -> Self {
        let config = trusting(authority).with_no_client_auth();
        Self::with(Arc::new(config), port)
    }

    #[track_caller]
    fn with(config: Arc<ClientConfig>, port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
        stream.set_read_timeout(Some(DEADLINE)).expect("a timeout");
        stream.set_nodelay(true).expect("an open socket");
        let name = ServerName::try_from("localhost").expect("the name of a host");
        let tls = ClientConnection::new(config, name).expect("a client");
        Self { tls, stream }
    }

    /// These bytes in a record of their own, which is not sent.
    #[track_caller]
    pub(crate) fn sealed(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut record = Vec::new();
        self.tls.writer().write_all(bytes).expect("it is buffered");
        while self.tls.wants_write() {
            self.tls.write_tls(&mut record).expect("it is written");
        }
        record
    }

    /// Sends these bytes in a record of their own.
    #[track_caller]
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        let record = self.sealed(bytes);
        self.stream.write_all(&record).expect("it is sent");
    }

    /// Sends these bytes, if the broker has not ended the connection.
    pub(crate) fn try_send(&mut self, bytes: &[u8]) {
        let record = self.sealed(bytes);
        let _ = self.stream.write_all(&record);
    }

    /// Receives so many bytes; `None`: the broker ends the connection instead.
    pub(crate) fn try_receive(&mut self, count: usize) -> Option<Vec<u8>> {
        while self
            .tls
            .process_new_packets()
            .ok()?
            .plaintext_bytes_to_read()
            < count
        {
            if self.tls.read_tls(&mut self.stream).ok()? == 0 {
                return None;
            }
        }
        Some(self.receive(count))
    }

    /// Receives so many bytes.
    #[track_caller]
    pub(crate) fn receive(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        let mut filled = 0;
        while filled < count {
            match self.tls.reader().read(&mut bytes[filled..]) {
                Ok(0) => panic!("closed behind {:?}", bytes[..filled].escape_ascii()),
                Ok(more) => filled += more,
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.read_records(),
                Err(error) => panic!("{error} behind {:?}", bytes[..filled].escape_ascii()),
            }
        }
        bytes
    }

    /// Waits for bytes of the socket. Returns how many came.
    #[track_caller]
    pub(crate) fn read_records(&mut self) {
        self.tls.read_tls(&mut self.stream).expect("bytes come");
        self.tls
            .process_new_packets()
            .expect("the broker speaks TLS");
    }

    /// Waits until the broker ends TLS with a close_notify, and then the connection. What it sends
    /// before is ignored.
    #[track_caller]
    pub(crate) fn expect_closed(&mut self) {
        loop {
            let state = self.tls.process_new_packets();
            let state = state.expect("the broker speaks TLS");
            let mut ignored = vec![0; state.plaintext_bytes_to_read()];
            self.tls
                .reader()
                .read_exact(&mut ignored)
                .expect("it is there");
            if state.peer_has_closed() {
                break;
            }
            let count = self.tls.read_tls(&mut self.stream).expect("bytes come");
            assert!(count > 0, "closed without a close_notify");
        }
        let mut rest = Vec::new();
        // The broker may reset a connection of which it has not read all.
        let _ = self.stream.read_to_end(&mut rest);
        assert_eq!(rest, b"");
    }
}

/// A client that trusts an authority, with a certificate of another one.
pub(crate) fn identified(authority: &Authority, of: &Authority, name: &str) -> Arc<ClientConfig> {
    let chain = CertificateDer::from_pem_file(of.path(&format!("{name}.pem")));
    let key = PrivateKeyDer::from_pem_file(of.path(&format!("{name}.key")));
    let config = trusting(authority)
        .with_client_auth_cert(vec![chain.expect("a certificate")], key.expect("a key"));
    Arc::new(config.expect("they belong together"))
}

fn trusting(authority: &Authority) -> ConfigBuilder<ClientConfig, WantsClientCert> {
    let mut roots = RootCertStore::empty();
    let certificate = CertificateDer::from_pem_file(authority.path("ca.pem"));
    roots
        .add(certificate.expect("a certificate"))
        .expect("an authority");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions();
    let builder = builder.expect("versions of TLS");
    builder.with_root_certificates(roots)
}
