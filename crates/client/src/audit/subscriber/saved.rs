//! What a subscriber knows, for a restart to go on with.

use crate::inbox::Acknowledgement;

/// Everything that a subscriber knows. Dropped without [`stored`](Self::stored) it covers nothing,
/// and what it would have covered comes again on the next connection.
#[derive(Debug)]
#[must_use = "store its bytes, and then say so"]
pub struct Saved {
    pub(super) bytes: Vec<u8>,
    pub(super) covers: Vec<Acknowledgement>,
}

impl Saved {
    /// What [`SubscriberOptions::restore`](super::SubscriberOptions::restore) takes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The bytes are where a restart finds them: acknowledges what led to them. The messages the
    /// owner acknowledges itself.
    pub fn stored(self) {
        self.covers.into_iter().for_each(Acknowledgement::give);
    }
}
