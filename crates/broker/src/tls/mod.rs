//! TLS of a listener: its rules, which a reload replaces, and its connections.
//!
//! ```text
//! files ──▶ rules ──▶ TlsListener ──▶ TlsSession, one for each connection
//!             ▲            │ which rules are in force
//!          reload          └── counts unfinished handshakes
//! ```
//!
//! Invariants:
//! - Rules are used whole or not at all: a file that cannot be used leaves the old ones in force.
//! - A connection keeps the rules that its handshake began with; a client's certificate is
//!   verified by those in force when the handshake ends, also one that a ticket brings back.
//! - A ticket is good for one listener, and until its trust changes.
//!
//! Deliberately absent: sockets, and the loop that gives handshakes their turn
//! ([`crate::sockets`]).

mod expiry;
mod handshakes;
mod names;
mod rules;
mod session;
#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use crate::config::Tls;
use crate::transport::Transform;
pub(crate) use expiry::Stage;
pub use expiry::{Expiring, Expiry};
use handshakes::Handshakes;
pub use names::CertificateInfo;
use rules::TlsRules;
pub use rules::{TlsError, certificates_of};
use session::TlsSession;

/// The TLS of one listener.
#[derive(Debug)]
pub(crate) struct TlsListener {
    rules: RwLock<Arc<TlsRules>>,
    /// Those that have begun and not ended.
    handshakes: Handshakes,
    /// The protocol above it, as clients ask for it.
    alpn: &'static [u8],
}

/// Counts an unfinished handshake until it is dropped.
#[derive(Debug)]
pub(crate) struct HandshakePermit {
    listener: Arc<TlsListener>,
    /// In whose share it is, once that is known.
    address: OnceLock<IpAddr>,
}

/// What a reload puts in force, once everything else of it was found to be right.
#[derive(Debug)]
pub(crate) struct NewRules {
    rules: Arc<TlsRules>,
    handshakes_max: u32,
}

/// Whether the certificates, keys and lists of a listener can be used, and when they expire.
pub fn check_certificates(tls: &Tls) -> Result<Vec<Expiry>, TlsError> {
    let rules = TlsRules::read(tls, b"mqtt", None)?;
    Ok(rules.expiries().to_vec())
}

impl TlsListener {
    /// Reads the files. The log has how long they are valid.
    pub(crate) fn new(tls: &Tls, alpn: &'static [u8]) -> Result<Self, TlsError> {
        let rules = TlsRules::read(tls, alpn, None)?;
        rules.expiries().iter().for_each(Expiry::log);
        Ok(Self {
            rules: RwLock::new(Arc::new(rules)),
            handshakes: Handshakes::new(tls.max_handshakes),
            alpn,
        })
    }

    /// Reads the files again. Nothing changes before [`put_in_force`](Self::put_in_force).
    pub(crate) fn read_again(&self, tls: &Tls) -> Result<NewRules, TlsError> {
        let rules = TlsRules::read(tls, self.alpn, Some(&self.rules()))?;
        Ok(NewRules {
            rules: Arc::new(rules),
            handshakes_max: tls.max_handshakes,
        })
    }

    /// When the files in force expire.
    pub(crate) fn expiries(&self) -> Vec<Expiry> {
        self.rules().expiries().to_vec()
    }

    pub(crate) fn put_in_force(&self, new: NewRules) {
        new.rules.expiries().iter().for_each(Expiry::log);
        *self.rules.write().unwrap_or_else(PoisonError::into_inner) = new.rules;
        self.handshakes.set_max(new.handshakes_max);
    }

    /// Whether as many handshakes are unfinished as may be.
    pub(crate) fn is_full(&self) -> bool {
        self.handshakes.free() == 0
    }

    /// Whether a client of this address may begin one more.
    pub(crate) fn has_share(&self, address: IpAddr) -> bool {
        self.handshakes.has_share(address)
    }

    /// The transform of a new connection, in the share of this address; of one through a proxy it
    /// is known when its header has come ([`HandshakePermit::has_share`]).
    pub(crate) fn accept(
        self: &Arc<Self>,
        address: Option<IpAddr>,
    ) -> Result<(Box<dyn Transform>, Arc<HandshakePermit>), rustls::Error> {
        self.handshakes.begin(address);
        let permit = Arc::new(HandshakePermit {
            listener: Arc::clone(self),
            address: address.map(OnceLock::from).unwrap_or_default(),
        });
        let session = TlsSession::new(self.rules(), Arc::clone(&permit))?;
        Ok((Box::new(session), permit))
    }

    fn rules(&self) -> Arc<TlsRules> {
        let rules = self.rules.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&rules)
    }
}

/// TLS of a server beside the listeners, with the files that are in force.
#[derive(Clone, Debug)]
pub struct ServerTls(Arc<TlsListener>);

impl ServerTls {
    /// Reads the files; `alpn` is the protocol above TLS, as clients name it.
    pub(crate) fn read(tls: &Tls, alpn: &'static [u8]) -> Result<Self, TlsError> {
        Ok(Self(Arc::new(TlsListener::new(tls, alpn)?)))
    }

    pub(crate) fn listener(&self) -> &TlsListener {
        &self.0
    }

    /// For the handshake of a new connection.
    pub fn config(&self) -> Arc<rustls::ServerConfig> {
        Arc::clone(&self.0.rules().config)
    }
}

impl HandshakePermit {
    /// It is for a client of this address, as is known by now. Whether that one may have it.
    pub(crate) fn has_share(&self, address: IpAddr) -> bool {
        let handshakes = &self.listener.handshakes;
        if !handshakes.has_share(address) {
            return false;
        }
        if self.address.set(address).is_ok() {
            handshakes.attribute(address);
        }
        true
    }
}

impl Drop for HandshakePermit {
    fn drop(&mut self) {
        self.listener.handshakes.end(self.address.get().copied());
    }
}
