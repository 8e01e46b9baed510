//! Lanes that their publisher announces: a directory that lists an epoch with no messages opens it,
//! so that its first message is missed if it does not come.
//!
//! Invariants:
//! - A directory opens no lane of another client, and only within the shares of lanes.
//! - A client that lists a lane of another one is named, and so is one that sends a directory of
//!   another one's producer.

use unbroken_merkle_log::{Directory, LaneId, OpenLane, Xxh3};

use crate::audit::Audit;
use crate::audit::known::Origin;
use crate::audit::owners::{Sender, Spot};
use crate::message::Publication;
use crate::reason::Sent;
use crate::telemetry::Telemetry;

impl Audit {
    /// Takes a directory of a publisher. One that cannot be read, or needs a key, says nothing.
    pub(super) fn verify_directory(
        &mut self,
        telemetry: &mut Telemetry,
        sender: &Sender,
        publication: &Publication<'_>,
    ) {
        let Some(directory) = Directory::parse(publication.payload)
            .ok()
            .and_then(|sealed| sealed.open(&Xxh3).ok())
        else {
            return;
        };
        let spot = |open: &OpenLane| Spot {
            lane: open.lane,
            epoch: open.epoch,
            number: open.size,
        };
        let mut spots: Vec<_> = directory.lanes.iter().map(spot).collect();
        let producer = LaneId::new(directory.producer);
        let is_listed = |id: LaneId| directory.lanes.iter().any(|open| open.lane == id);
        if let Some(lane) = producer.filter(|id| !is_listed(*id)) {
            let sizes = directory.lanes.iter().map(|open| open.size);
            spots.push(Spot {
                lane,
                epoch: directory.epoch,
                number: sizes.fold(0, u64::saturating_add),
            });
        }
        self.note_speaker(telemetry, sender, Sent::Directory, &spots);
        if let Some(id) = producer
            && self
                .publishers
                .other_owner(id, sender, &self.owners)
                .is_none()
        {
            let (at, client_id) = (publication.stamp, &sender.client_id);
            self.claim_producer(telemetry, at, id, client_id);
        }
        for open in directory.lanes.iter().filter(|open| open.size == 0) {
            let owner = self.publishers.other_owner(open.lane, sender, &self.owners);
            if owner.is_none() {
                let key = (open.lane, open.epoch);
                self.open_lane(telemetry, publication.stamp, key, sender, Origin::Begins);
            }
        }
    }
}
