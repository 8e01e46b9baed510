//! Messages that will not come, as processors and the broker say by drop records.
//!
//! A processor's record is about everybody behind it. The broker's is about one receiver, which it
//! names in the user property `audit-receiver`: what it kept from that one others may have had.
//!
//! Invariants: a processor's record says nothing of a lane whose messages come here themselves, and
//! names the processor's own lane, whose messages do come here; a record is taken once its lane is
//! known here, so that one about another subscription of the same client opens no lane; nothing
//! that was declared is asked for.

use unbroken_merkle_log::{DropRecord, LaneId};

use super::{AuditedSubscriber, Delivery, lane_named};
use crate::Received;
use crate::audit::{RECEIVER, THROUGH};

impl AuditedSubscriber {
    /// Takes a drop record.
    pub(super) fn handle_drop(&mut self, received: &mut Received) -> Result<(), String> {
        let sealed = DropRecord::parse(received.payload()).map_err(|error| error.to_string())?;
        let receiver = received.user_property(RECEIVER);
        let by_broker = receiver.is_some();
        // What somebody else missed may have come here. And what a processor misses itself it still
        // has to make its outputs of, so it asks for it as for anything lost.
        if by_broker && (receiver != Some(self.client.client_id()) || self.releases.is_some()) {
            return Ok(());
        }
        let lane = sealed.lane();
        let comes_itself = self.direct.contains(&lane);
        let is_followed = if by_broker {
            comes_itself
        } else {
            // Of a processor, whose own messages come here.
            let through = received.user_property(THROUGH).and_then(lane_named);
            let is_heard = through.is_some_and(|processor| self.direct.contains(&processor));
            is_heard && self.origins.contains(&lane) && !comes_itself
        };
        // Of lanes that are not followed the key may be another.
        if !is_followed && !by_broker {
            return Ok(());
        }
        match sealed.open(&self.hasher) {
            Ok(record) if is_followed => {
                let again = self.releases.is_some().then(|| record.clone());
                let is_news = self.take_dropped(record, by_broker);
                if let Some(releases) = &mut self.releases {
                    releases.push_back(received.take_acknowledgement());
                    // The first copy may still be on its way to the spool.
                    let again = again.filter(|_| !is_news);
                    let again = again.map(|record| Delivery::Dropped { record, by_broker });
                    self.ready.extend(again);
                }
            }
            Ok(record) => {
                // Perhaps of another subscription: the first message that comes decides.
                if self.early.len() >= EARLY_MAX {
                    self.early.remove(0);
                }
                self.early.push(record);
            }
            Err(error) if is_followed => return Err(error.to_string()),
            Err(_) => {}
        }
        Ok(())
    }

    /// Whether it was news.
    fn take_dropped(&mut self, record: DropRecord, by_broker: bool) -> bool {
        let taken = self.ledger.dropped(&record, self.clock.now());
        let is_news = taken.is_some_and(|messages| messages > 0);
        if is_news {
            let dropped = Delivery::Dropped { record, by_broker };
            self.ready.push_back(dropped);
        }
        is_news
    }

    /// The first message of a lane comes: what the broker kept back before it.
    pub(super) fn take_early(&mut self, lane: LaneId) {
        let of_lane: Vec<DropRecord> = self
            .early
            .extract_if(.., |record| record.lane == lane)
            .collect();
        for record in of_lane {
            self.take_dropped(record, true);
        }
    }
}

/// Drop records kept for lanes of which nothing has come. Beyond it what the oldest names is lost.
const EARLY_MAX: usize = 64;
