//! Whether a session has a connection, and for how long it lasts without one.

use std::time::{Duration, Instant};

use super::Session;
use crate::limits::Limits;

impl Session {
    /// The index of its connection while it has one.
    #[inline]
    pub(crate) fn connection(&self) -> Option<u32> {
        self.connection
    }

    #[inline]
    pub(crate) fn is_connected(&self) -> bool {
        self.connection.is_some()
    }

    /// A connection is attached. Timers of the absence that ends now are stale: its will is
    /// cancelled [MQTT-3.1.3-9].
    pub(crate) fn attach(&mut self, connection: u32, absence: u64) {
        self.connection = Some(connection);
        self.away_since = None;
        self.absence = absence;
    }

    /// Its connection has ended, and this absence begins.
    pub(crate) fn detach(&mut self, now: Instant, absence: u64) {
        self.connection = None;
        self.begin_absence(Some(now), absence);
        self.inbound.handle_disconnected();
        self.outbox.handle_disconnected();
    }

    /// It is there again after a restart, without a connection. `since`: none if of its client
    /// there is only a will.
    pub(crate) fn begin_absence(&mut self, since: Option<Instant>, absence: u64) {
        self.away_since = since;
        self.absence = absence;
    }

    /// Names its present or last absence, so that a timer set in one is not taken for one of the
    /// next, nor for one of the next session with this number.
    pub(crate) fn absence(&self) -> u64 {
        self.absence
    }

    /// Whether it had a connection and has none now.
    pub(crate) fn is_away(&self) -> bool {
        self.away_since.is_some()
    }

    /// Seconds it outlives its connection; `u32::MAX` is without end.
    pub(crate) fn expiry_s(&self) -> u32 {
        self.expiry_s
    }

    /// Answers how long it was before.
    pub(crate) fn set_expiry(&mut self, expiry_s: u32) -> u32 {
        std::mem::replace(&mut self.expiry_s, expiry_s)
    }

    /// When it ends if it has no connection, as the limit is now, in a broker that began at
    /// `start`. `None`: it does not.
    pub(crate) fn ends_at(&self, limits: &Limits, start: Instant) -> Option<Instant> {
        let Some(since) = self.away_since else {
            return Some(start); // of its client there is only a will
        };
        match limits.expiry_s(self.expiry_s) {
            u32::MAX => None,
            seconds => Some(since + Duration::from_secs(seconds.into())),
        }
    }
}
