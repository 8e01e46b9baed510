//! The will of a session's client, and whether the disk has one.

use std::sync::Arc;

use super::Session;
use crate::durability::{CommitGate, Record, Will};

impl Session {
    /// The will that is not published yet.
    pub(crate) fn will(&self) -> Option<&Will> {
        self.will.as_deref()
    }

    pub(crate) fn set_will(&mut self, will: Option<Box<Will>>) {
        self.will = will;
    }

    /// As the disk has it.
    pub(crate) fn restore_will(&mut self, will: Option<Will>) {
        self.will_on_disk = will.is_some();
        self.will = will.map(Box::new);
    }

    /// Asks for the will to be stored, if it outlives the broker. Answers whether it does.
    pub(crate) fn store_will(&mut self, gate: &mut CommitGate) -> bool {
        let expiry_s = self.expiry_s;
        let will = self.will.as_deref();
        let Some(will) = will.filter(|will| will.outlives_broker(expiry_s)).cloned() else {
            return false;
        };
        self.will_on_disk = true;
        let client_id = Arc::clone(&self.client_id);
        self.asked = gate.ask(Record::Will { client_id, will });
        true
    }

    /// Takes the will, and whether it is on disk, to be published.
    pub(crate) fn take_will(&mut self) -> Option<(Box<Will>, bool)> {
        let will = self.will.take()?;
        Some((will, self.forget_stored_will()))
    }

    /// Whether the disk has a will of this client.
    pub(crate) fn has_stored_will(&self) -> bool {
        self.will_on_disk
    }

    /// The will on disk is void from now on. Answers whether there is one.
    pub(crate) fn forget_stored_will(&mut self) -> bool {
        std::mem::take(&mut self.will_on_disk)
    }
}
