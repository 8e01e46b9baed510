//! A client on rustls' buffered API, and the broker's end of its connection.

use std::io::{Read as _, Write as _};
use std::sync::Arc;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{
    CipherSuite, ClientConfig, ClientConnection, ConnectionTrafficSecrets, HandshakeKind,
    ProtocolVersion, RootCertStore, SupportedProtocolVersion,
};
use unbroken_broker_core::Peer;

use super::{Authority, TlsListener};
use crate::transport::memory::{MemoryPeer, memory};
use crate::transport::{ReadOutcome, Scratch, Transport, WriteOutcome};

const PLENTY: usize = 1 << 30;
/// The type of a record with messages of the handshake (RFC 8446, 5.1).
const HANDSHAKE: u8 = 22;

pub(super) struct Client {
    config: ClientConfig,
    connection: Option<ClientConnection>,
    broker: Transport,
    scratch: Scratch,
    pub(super) peer: MemoryPeer,
    pub(super) is_bytewise: bool,
    pub(super) has_heard_end: bool,
    heard: Vec<u8>,
}

impl Client {
    pub(super) fn new(
        authority: &Authority,
        versions: &[&'static SupportedProtocolVersion],
        certificate: Option<(Vec<u8>, Vec<u8>)>,
    ) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from(authority.der())).unwrap();
        let mut provider = rustls::crypto::aws_lc_rs::default_provider();
        // One suite for each version, so that a test can seal a record itself.
        provider.cipher_suites.retain(|suite| {
            matches!(
                suite.suite(),
                CipherSuite::TLS13_AES_256_GCM_SHA384
                    | CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384
                    | CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384
            )
        });
        let builder = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match certificate {
            Some((certificate, key)) => {
                let key = PrivateKeyDer::try_from(key).unwrap();
                let chain = vec![CertificateDer::from(certificate)];
                builder.with_client_auth_cert(chain, key).unwrap()
            }
            None => builder.with_no_client_auth(),
        };
        config.enable_secret_extraction = true;
        let (socket, peer) = memory(PLENTY);
        Self {
            config,
            connection: None,
            broker: Transport::new(socket, Vec::new()),
            scratch: Scratch::default(),
            peer,
            is_bytewise: false,
            has_heard_end: false,
            heard: Vec::new(),
        }
    }

    pub(super) fn protocols(&mut self, names: &[&str]) {
        let names = names.iter().map(|name| name.as_bytes().to_vec());
        self.config.alpn_protocols = names.collect();
    }

    /// A new connection, whose handshake has not begun.
    pub(super) fn accept(&mut self, listener: &Arc<TlsListener>) {
        let (socket, peer) = memory(PLENTY);
        self.broker = Transport::new(socket, vec![listener.accept(None).unwrap().0]);
        self.peer = peer;
        self.has_heard_end = false;
    }

    /// A new connection, with its handshake; fails with what the client finds wrong.
    pub(super) fn connect(
        &mut self,
        listener: &Arc<TlsListener>,
        host: &str,
    ) -> Result<(), String> {
        self.accept(listener);
        self.shake_hands(host)
    }

    pub(super) fn shake_hands(&mut self, host: &str) -> Result<(), String> {
        let name = ServerName::try_from(host.to_owned()).unwrap();
        let config = Arc::new(self.config.clone());
        self.connection = Some(ClientConnection::new(config, name).unwrap());
        for _ in 0..10 {
            self.send();
            if !self.broker_read().is_empty() {
                return Err("the broker has bytes that were not sent".to_owned());
            }
            self.receive()?;
        }
        if self.connection().is_handshaking() || self.broker.is_handshaking() {
            return Err("the handshake does not end".to_owned());
        }
        match self.refusal() {
            Some(refusal) => Err(refusal.to_owned()),
            None => Ok(()),
        }
    }

    fn connection(&mut self) -> &mut ClientConnection {
        self.connection.as_mut().unwrap()
    }

    pub(super) fn version(&mut self) -> ProtocolVersion {
        self.connection().protocol_version().unwrap()
    }

    pub(super) fn handshake_kind(&mut self) -> Option<HandshakeKind> {
        self.connection().handshake_kind()
    }

    pub(super) fn refusal(&self) -> Option<&str> {
        self.broker.refusal().map(|(why, _)| why)
    }

    /// What the broker knows of the client.
    pub(super) fn user(&mut self) -> Option<String> {
        let mut peer = Peer::default();
        self.broker.identify(&mut peer);
        peer.certificate.map(|name| name.to_string())
    }

    /// Passes on what the client's TLS wants to send.
    fn send(&mut self) {
        let mut wire = Vec::new();
        while self.connection().wants_write() {
            self.connection().write_tls(&mut wire).unwrap();
        }
        self.peer.send(&wire);
    }

    fn receive(&mut self) -> Result<(), String> {
        let wire = self.peer.received();
        let mut rest = wire.as_slice();
        while !rest.is_empty() {
            self.connection().read_tls(&mut rest).unwrap();
            let state = self.connection().process_new_packets();
            self.has_heard_end |= state.map_err(|error| error.to_string())?.peer_has_closed();
            let connection = self.connection.as_mut().unwrap();
            match connection.reader().read_to_end(&mut self.heard) {
                Ok(_) => {}
                Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock),
            }
        }
        Ok(())
    }

    pub(super) fn say(&mut self, bytes: &[u8]) {
        self.connection().writer().write_all(bytes).unwrap();
        self.send();
    }

    /// The last record does not come whole.
    pub(super) fn say_all_but_a_byte(&mut self, bytes: &[u8]) {
        self.connection().writer().write_all(bytes).unwrap();
        let mut wire = Vec::new();
        while self.connection().wants_write() {
            self.connection().write_tls(&mut wire).unwrap();
        }
        wire.pop();
        self.peer.send(&wire);
    }

    /// Memory of the broker's end.
    pub(super) fn broker_holds(&self) -> usize {
        self.broker.held_bytes()
    }

    pub(super) fn say_end(&mut self) {
        self.connection().send_close_notify();
        self.send();
    }

    pub(super) fn renew_keys(&mut self) {
        self.connection().refresh_traffic_keys().unwrap();
        self.send();
    }

    /// Seals these bytes as a part of a message of the handshake, which rustls would not send. The
    /// client cannot be used afterwards.
    pub(super) fn say_in_a_handshake_record(&mut self, bytes: &[u8]) {
        let connection = self.connection.take().unwrap();
        let secrets = connection.dangerous_extract_secrets().unwrap();
        let (sequence, ConnectionTrafficSecrets::Aes256Gcm { key, iv }) = secrets.tx else {
            panic!("another suite");
        };
        let mut nonce: [u8; 12] = iv.as_ref().try_into().unwrap();
        for (byte, number) in nonce[4..].iter_mut().zip(sequence.to_be_bytes()) {
            *byte ^= number; // RFC 8446, 5.3
        }
        let mut inner = [bytes, &[HANDSHAKE]].concat();
        let length = u16::try_from(inner.len() + 16).unwrap().to_be_bytes();
        let header = [23, 3, 3, length[0], length[1]];
        let key = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, key.as_ref()).unwrap());
        let nonce = Nonce::assume_unique_for_key(nonce);
        key.seal_in_place_append_tag(nonce, Aad::from(header), &mut inner)
            .unwrap();
        self.peer.send(&[&header[..], &inner].concat());
    }

    pub(super) fn heard(&mut self) -> Vec<u8> {
        self.receive().unwrap();
        std::mem::take(&mut self.heard)
    }

    pub(super) fn broker_says(&mut self, bytes: &[u8]) {
        let written = self.broker.write(bytes, &mut self.scratch);
        let count = bytes.len();
        assert_eq!(written, WriteOutcome::Bytes { count, full: false });
    }

    pub(super) fn broker_closes(&mut self) {
        self.broker.close(&mut self.scratch);
        self.broker.flush();
    }

    pub(super) fn broker_read_once(&mut self) -> ReadOutcome {
        let outcome = self.broker.read(&mut [0; 5_000], &mut self.scratch);
        self.broker.flush();
        outcome
    }

    /// Lets the next read of the broker get a byte at a time.
    pub(super) fn deliver_bytewise(&mut self) {
        self.is_bytewise = true;
    }

    /// All that has come; the broker's answers leave.
    pub(super) fn broker_read(&mut self) -> Vec<u8> {
        let mut all = Vec::new();
        let mut into = vec![0; if self.is_bytewise { 1 } else { 5_000 }];
        loop {
            match self.broker.read(&mut into, &mut self.scratch) {
                ReadOutcome::Bytes { count, .. } => all.extend_from_slice(&into[..count]),
                ReadOutcome::Nothing => return all,
                other => {
                    self.broker.flush();
                    assert!(matches!(other, ReadOutcome::Ended(_)), "{other:?}");
                    return all;
                }
            }
            self.broker.flush();
        }
    }
}
