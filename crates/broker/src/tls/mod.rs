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

mod names;
mod rules;
mod session;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use crate::config::Tls;
use crate::transport::Transform;
pub use rules::TlsError;
use rules::TlsRules;
use session::TlsSession;

/// The TLS of one listener.
#[derive(Debug)]
pub(crate) struct TlsListener {
    rules: RwLock<Arc<TlsRules>>,
    /// Handshakes that have begun and not ended.
    handshakes: AtomicU32,
    handshakes_max: AtomicU32,
    /// The protocol above it, as clients ask for it.
    alpn: &'static [u8],
}

/// Counts an unfinished handshake until it is dropped.
#[derive(Debug)]
struct HandshakePermit(Arc<TlsListener>);

/// What a reload puts in force, once everything else of it was found to be right.
#[derive(Debug)]
pub(crate) struct NewRules {
    rules: Arc<TlsRules>,
    handshakes_max: u32,
}

impl TlsListener {
    /// Reads the files.
    pub(crate) fn new(tls: &Tls, alpn: &'static [u8]) -> Result<Self, TlsError> {
        let rules = TlsRules::read(tls, alpn, None)?;
        Ok(Self {
            rules: RwLock::new(Arc::new(rules)),
            handshakes: AtomicU32::new(0),
            handshakes_max: AtomicU32::new(tls.max_handshakes),
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

    pub(crate) fn put_in_force(&self, new: NewRules) {
        *self.rules.write().unwrap_or_else(PoisonError::into_inner) = new.rules;
        self.handshakes_max
            .store(new.handshakes_max, Ordering::Relaxed);
    }

    /// Whether as many handshakes are unfinished as may be.
    pub(crate) fn is_full(&self) -> bool {
        let max = self.handshakes_max.load(Ordering::Relaxed);
        self.handshakes.load(Ordering::Relaxed) >= max
    }

    /// The transform of a new connection.
    pub(crate) fn accept(self: &Arc<Self>) -> Result<Box<dyn Transform>, rustls::Error> {
        self.handshakes.fetch_add(1, Ordering::Relaxed);
        let permit = HandshakePermit(Arc::clone(self));
        Ok(Box::new(TlsSession::new(self.rules(), permit)?))
    }

    fn rules(&self) -> Arc<TlsRules> {
        let rules = self.rules.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&rules)
    }
}

impl Drop for HandshakePermit {
    fn drop(&mut self) {
        self.0.handshakes.fetch_sub(1, Ordering::Relaxed);
    }
}
