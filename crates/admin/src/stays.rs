//! Connections that stay open for longer than others.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether a connection has a stream, and stays for longer than others. Its streams are counted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stays(Arc<AtomicBool>);

impl Stays {
    pub(crate) fn stay(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(crate) fn stays(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
