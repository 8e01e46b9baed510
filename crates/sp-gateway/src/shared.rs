//! What all parts of one gateway know: its name, its limits, its counts, its voice in the log.

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::counts::{Counts, Drop};
use crate::wire::Protocol;

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) name: Arc<str>,
    pub(crate) protocol: Protocol,
    pub(crate) message_bytes_max: usize,
    pub(crate) counts: Arc<Counts>,
    voice: Mutex<Voice>,
}

/// Lines of this second.
#[derive(Debug)]
struct Voice {
    since: Instant,
    lines: u32,
}

/// Lines of the log in one second that peers and messages may cause; the rest is in the counts.
const LINES_PER_SECOND: u32 = 10;

impl Shared {
    pub(crate) fn new(name: Arc<str>, protocol: Protocol, message_bytes_max: usize) -> Self {
        Self {
            name,
            protocol,
            message_bytes_max,
            counts: Arc::default(),
            voice: Mutex::new(Voice {
                since: Instant::now(),
                lines: 0,
            }),
        }
    }

    /// Counts a message that is not passed on, and logs why.
    pub(crate) fn drop_message(&self, why: Drop, detail: &dyn fmt::Display) {
        self.counts.add_drop(why);
        if self.may_log() {
            let reason = why.name();
            tracing::warn!(gateway = %self.name, reason, %detail, "sp message dropped");
        }
    }

    /// Logs what a peer did wrong.
    pub(crate) fn log_peer(&self, peer: SocketAddr, error: &dyn fmt::Display) {
        if self.may_log() {
            tracing::warn!(gateway = %self.name, %peer, %error, "sp peer disconnected");
        }
    }

    fn may_log(&self) -> bool {
        // Two numbers, whole at any time.
        let mut voice = self.voice.lock().unwrap_or_else(PoisonError::into_inner);
        if voice.since.elapsed() >= Duration::from_secs(1) {
            (voice.since, voice.lines) = (Instant::now(), 0);
        }
        voice.lines += 1;
        voice.lines <= LINES_PER_SECOND
    }
}
