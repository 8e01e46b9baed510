//! Lanes that their publisher announces: a directory that lists an epoch with no messages opens it,
//! so that its first message is missed if it does not come.
//!
//! Invariants:
//! - A directory opens no lane of another client, and only within the shares of lanes.
//! - A client that lists a lane of another one is named, and so is one that sends a directory of
//!   another one's producer.

use std::sync::Arc;
use std::time::Instant;

use unbroken_merkle_log::{Directory, LaneId, OpenLane, Xxh3};

use crate::audit::Audit;
use crate::audit::known::Origin;
use crate::audit::owners::{Sender, Spot};
use crate::limits::{PRODUCERS_A_CLIENT_MAX, VERIFIED_LANES_MAX};
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
            self.claim_producer(telemetry, publication.stamp, id, sender);
        }
        for open in directory.lanes.iter().filter(|open| open.size == 0) {
            let owner = self.publishers.other_owner(open.lane, sender, &self.owners);
            if owner.is_none() {
                let key = (open.lane, open.epoch);
                self.open_lane(telemetry, publication.stamp, key, sender, Origin::Begins);
            }
        }
    }

    /// A client here sends directories of this producer, which is not known as another's. Beyond
    /// the limits it is not bound.
    fn claim_producer(
        &mut self,
        telemetry: &mut Telemetry,
        at: Instant,
        producer: LaneId,
        sender: &Sender,
    ) {
        let client_id = &sender.client_id;
        let producers = &mut self.owners.producers;
        if producers.contains_key(&producer) || producers.len() >= VERIFIED_LANES_MAX {
            return;
        }
        let own = producers.values().filter(|owner| *owner == client_id);
        if own.count() < PRODUCERS_A_CLIENT_MAX {
            producers.insert(producer, Arc::clone(client_id));
            self.claim_lane(telemetry, at, producer, sender.clone());
        }
    }

    /// The session of this client has ended.
    pub(in crate::audit) fn release_producers(&mut self, client_id: &str) {
        let producers = &mut self.owners.producers;
        let own = producers.extract_if(.., |_, owner| **owner == *client_id);
        let own: Vec<_> = own.map(|(producer, _)| producer).collect();
        for producer in own {
            if !self.publishers.is_open(producer) {
                self.release_lane(producer);
            }
        }
    }
}
