//! What a client may have been sent before the broker was started, of which the disk does not know
//! that it was: at QoS 1 it is sent with DUP [MQTT-3.3.1-1].
//!
//! ```text
//! killed while its client is here ---> all that waits, also at every later start
//! all of that is sent again       ---> nothing
//! ```

use crate::durability::MaybeSent;
use crate::position::{Frontier, Position};

/// Of one session, and whether the disk knows. Most sessions have nothing, and that takes one word.
#[derive(Debug, Default)]
pub(crate) struct Redelivery(Option<Box<Known>>);

#[derive(Debug)]
struct Known {
    what: MaybeSent,
    /// By the disk, too.
    is_stored: bool,
}

impl Redelivery {
    /// As the disk says.
    pub(crate) fn stored(what: MaybeSent) -> Self {
        let is_stored = true;
        Self(Some(Box::new(Known { what, is_stored })))
    }

    /// The disk is to be told.
    pub(crate) fn unstored(what: MaybeSent) -> Self {
        let is_stored = false;
        Self(Some(Box::new(Known { what, is_stored })))
    }

    /// Whether it may be a message that is found here.
    pub(crate) fn covers(&self, position: Position) -> bool {
        let known = self.0.as_ref();
        known.is_some_and(|known| known.what.through.covers(position))
    }

    /// What the disk is to be told, if anything, now that the session has found all up to `through`
    /// in the logs, and these are the entries that wait: in the end nothing.
    pub(crate) fn take_news(
        &mut self,
        through: &Frontier,
        mut waiting: impl Iterator<Item = u64>,
    ) -> Option<MaybeSent> {
        let known = self.0.as_mut()?;
        let entries = 1..=known.what.entries;
        if through.reaches(&known.what.through) && !waiting.any(|entry| entries.contains(&entry)) {
            self.0 = None;
            return Some(MaybeSent::default());
        }
        let is_news = !std::mem::replace(&mut known.is_stored, true);
        is_news.then(|| known.what.clone())
    }
}
