//! A message with its verdict.

use unbroken_merkle_log::ledger::Verdict;
use unbroken_merkle_log::{Parents, Property, PropertyError};

use crate::Received;
use crate::inbox::Acknowledgement;

/// Why a message has no stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoStamp {
    /// No user property `audit`. A publisher without the audit sends such messages.
    #[error("it has no stamp")]
    Absent,
    /// It cannot be read. No producer writes such a one.
    #[error("its stamp cannot be read: {0}")]
    Unreadable(PropertyError),
    /// More than one. No producer writes that.
    #[error("it has more than one stamp")]
    Several,
}

/// A message, and what it is.
#[derive(Debug)]
pub struct AuditedMessage {
    pub(super) received: Received,
    /// `None`: it is not stamped, or a retained copy; nothing is claimed.
    pub(super) verdict: Option<Verdict>,
    pub(super) property: Result<Property, NoStamp>,
    pub(super) origins: Vec<(Property, Verdict)>,
    pub(super) parents: Option<Parents>,
    pub(super) is_unjudged: bool,
}

impl AuditedMessage {
    /// The message.
    pub fn received(&self) -> &Received {
        &self.received
    }

    /// The topic; of a message that came again on request, the one it was published to.
    pub fn topic(&self) -> &str {
        self.received.topic()
    }

    /// The payload.
    pub fn payload(&self) -> &[u8] {
        self.received.payload()
    }

    /// What it is; `None` when nothing is claimed, of a message without a property or a retained
    /// copy.
    pub fn verdict(&self) -> Option<Verdict> {
        self.verdict
    }

    /// Its own property, as far as it can be read.
    pub fn property(&self) -> Option<&Property> {
        self.property.as_ref().ok()
    }

    /// Why it has no property that can be read, if it has none.
    pub fn no_stamp(&self) -> Option<NoStamp> {
        self.property.err()
    }

    /// The properties of what it was made of, oldest first, and what they are.
    pub fn origins(&self) -> &[(Property, Verdict)] {
        &self.origins
    }

    /// The messages of which it is a batch.
    pub fn parents(&self) -> Option<&Parents> {
        self.parents.as_ref()
    }

    /// Whether it fits its stamp and there is no room for its lane
    /// ([`Delivery::NoRoom`](super::Delivery::NoRoom)): whether it was here before is unknown.
    pub fn is_unjudged(&self) -> bool {
        self.is_unjudged
    }

    /// Whether it is as its producer made it and was not here before, as far as is known: what an
    /// application should work on. Of what a late joiner hears before its scope begins it is not
    /// known, nor of what [is not judged](Self::is_unjudged), so those may come twice.
    pub fn is_new(&self) -> bool {
        self.is_unjudged
            || matches!(
                self.verdict,
                Some(
                    Verdict::InOrder
                        | Verdict::Ahead
                        | Verdict::Late
                        | Verdict::Found
                        | Verdict::Repaired
                        | Verdict::OutOfScope
                )
            )
    }

    /// Tells the broker that it is safe here, where the owner does that.
    pub fn acknowledge(self) {
        self.received.acknowledge();
    }

    /// The same, and that the work is done: [`Received::acknowledge_processed`].
    pub fn acknowledge_processed(self) {
        self.received.acknowledge_processed();
    }

    pub(super) fn take_acknowledgement(&mut self) -> Option<Acknowledgement> {
        self.received.take_acknowledgement()
    }
}
