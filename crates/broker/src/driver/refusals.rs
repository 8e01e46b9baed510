//! The log of connections that are refused for what they speak: what it is, and which listener they
//! need.

use std::time::Instant;

use unbroken_broker_core::ConnectionId;

use super::Driver;
use crate::transport::{Guess, guess};

impl Driver {
    /// Whether connections are to be closed.
    pub(crate) const fn has_closing(&self) -> bool {
        !self.closing.is_empty()
    }

    /// A connection has sent these, which are no packet yet, or one at most. If it is refused for
    /// them, the log has what they are.
    #[cold]
    pub(crate) fn note_first_bytes(&mut self, now: Instant, id: ConnectionId, bytes: &[u8]) {
        if !self.closing.iter().any(|(closing, _)| *closing == id) {
            return;
        }
        let seen = guess(bytes).and_then(Guess::on_mqtt);
        if let (Some(seen), Some(peer)) = (seen, self.sockets.peer(id)) {
            let listener = self.auth_rules.listener(peer.listener);
            let label = listener.map_or("", |listener| &listener.label);
            let why = self.doors.advise(peer.listener, seen.speaks, seen.needs);
            self.log
                .refused_by_transport(now, label, peer.address, &why);
        }
    }

    /// A connection ends: if it broke the protocol of a transform, the log has how.
    pub(super) fn log_refusal(&mut self, now: Instant, id: ConnectionId) {
        if let Some((peer, why, needs)) = self.sockets.refusal(id) {
            let listener = self.auth_rules.listener(peer.listener);
            let label = listener.map_or("", |listener| &listener.label);
            let why = self.doors.advise(peer.listener, why, needs);
            self.log
                .refused_by_transport(now, label, peer.address, &why);
        }
    }
}
