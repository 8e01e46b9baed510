//! Lanes are bound to their users: what another user sends of one is refused, and is not judged.
//!
//! It is refused as what access rules deny: counted as `denied`, answered with 0x87, and delivered
//! to no client. So no receiver finds a number twice, and no checkpoint of a stranger, from when
//! the shard of the lane has answered: of a lane whose owner is on another shard, what comes
//! before its answer is delivered.
//!
//! Invariants:
//! - A lane is another user's only if both users are known.
//! - Nothing that a refused message says reaches the ledger of its lane.
//!
//! Deliberately absent: messages of another client of the same user, which are delivered and named
//! ([`crate::audit::owners`]).

use std::sync::Arc;

use unbroken_merkle_log::{Checkpoint, Directory, DropRecord, Property, Xxh3};

use super::values;
use super::words::through;
use crate::audit::Audit;
use crate::audit::owners::{Sender, Spot};
use crate::message::Publication;
use crate::reason::Sent;
use crate::telemetry::Telemetry;

impl Audit {
    /// Whether the owner of any lane is known: where none is, no lane is another user's.
    #[inline]
    pub(crate) fn knows_owners(&self) -> bool {
        !self.publishers.lanes.is_empty() || self.owners.knows_others()
    }

    /// Whether a message is of a lane of another user, or speaks of one.
    #[cold]
    pub(crate) fn is_another_users(&self, sender: &Sender, publication: &Publication<'_>) -> bool {
        self.another_users(sender, publication).is_some()
    }

    /// The same; its sender is named.
    #[cold]
    pub(crate) fn name_other_user(
        &mut self,
        telemetry: &mut Telemetry,
        sender: &Sender,
        publication: &Publication<'_>,
    ) {
        if let Some((spot, sent, owner)) = self.another_users(sender, publication) {
            let topic = Some(publication.topic).filter(|_| sent == Sent::Message);
            self.intrude(telemetry, sender, spot, (sent, topic), owner);
        }
    }

    /// What it says of which lane, and the client whose lane that is.
    fn another_users(
        &self,
        sender: &Sender,
        publication: &Publication<'_>,
    ) -> Option<(Spot, Sent, Arc<str>)> {
        let (sent, spots) = self.spots(publication)?;
        spots.into_iter().find_map(|spot| {
            let owner = self.publishers.owner(spot.lane);
            let owner = owner.or_else(|| self.owners.elsewhere(spot.lane))?;
            let differs = owner.user.differs(&sender.user) && !owner.is_same(sender);
            differs.then(|| (spot, sent, Arc::clone(&owner.client_id)))
        })
    }

    /// The places in lanes that a message is about.
    fn spots(&self, publication: &Publication<'_>) -> Option<(Sent, Vec<Spot>)> {
        let (topics, topic) = (&self.watch.topics, publication.topic);
        let payload = publication.payload;
        if topic.starts_with(&topics.answers) {
            return None;
        }
        if topic.starts_with(&topics.checkpoints) {
            let sealed = Checkpoint::parse(payload).ok()?;
            let spot = Spot {
                lane: through(publication).unwrap_or(sealed.lane()),
                epoch: sealed.epoch(),
                number: sealed.size(),
            };
            return Some((Sent::Checkpoint, vec![spot]));
        }
        if topic.starts_with(&topics.directories) {
            let directory = Directory::parse(payload).ok()?.open(&Xxh3).ok()?;
            let spots = directory.lanes.iter().map(|open| Spot {
                lane: open.lane,
                epoch: open.epoch,
                number: open.size,
            });
            return Some((Sent::Directory, spots.collect()));
        }
        if topic.starts_with(&topics.drops) {
            let record = DropRecord::parse(payload).ok()?.open(&Xxh3).ok()?;
            let spot = Spot {
                lane: through(publication).unwrap_or(record.lane),
                epoch: record.epoch,
                number: record.runs.first().map_or(0, |run| run.first),
            };
            return Some((Sent::DropRecord, vec![spot]));
        }
        let stamps = values(publication, Property::NAME);
        let stamps = stamps.filter_map(|text| Property::parse_text(text).ok());
        let spots: Vec<_> = stamps
            .map(|property| Spot {
                lane: property.lane,
                epoch: property.epoch,
                number: property.sequence,
            })
            .collect();
        (!spots.is_empty()).then_some((Sent::Message, spots))
    }
}
