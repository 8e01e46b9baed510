//! What a publisher says of its lanes beside its messages: checkpoints, directories, drop records.
//!
//! Invariant: of a lane of another client a word counts for nothing, and its sender is named. What
//! a processor passes on or drops of a lane it says in the name of its own (`audit-through`), so
//! that lane must not be another client's.

use std::sync::Arc;

use unbroken_merkle_log::{
    Algorithm, Checkpoint, DropRecord, EpochEnd, LaneId, Property, SealedCheckpoint, Xxh3,
};

use super::super::Audit;
use super::super::json::Object;
use super::super::owners::{Sender, Spot};
use super::values;
use crate::message::Publication;
use crate::reason::Sent;
use crate::telemetry::{Event, Telemetry};

impl Audit {
    /// Takes what comes on a topic of the audit. Answers whether that is all there is to it.
    pub(super) fn verify_word(
        &mut self,
        telemetry: &mut Telemetry,
        sender: &Sender,
        again: bool,
        publication: &Publication<'_>,
    ) -> bool {
        let topics = &self.watch.topics;
        let topic = publication.topic;
        if let Some(lane) = topic.strip_prefix(&*topics.checkpoints) {
            self.verify_checkpoint(telemetry, sender, lane, again, publication);
            return true;
        }
        if topic.starts_with(&topics.directories) {
            self.verify_directory(telemetry, sender, publication);
            return true;
        }
        if topic.starts_with(&topics.drops) {
            self.verify_drop_record(telemetry, sender, publication);
            return false;
        }
        // A message sent again on request, under a topic that its digest does not cover.
        let is_answer = topic.starts_with(&topics.answers);
        if is_answer {
            self.note_sent_again(telemetry, sender, publication);
        }
        is_answer
    }

    /// The publisher of a lane that has lost messages sends one again.
    fn note_sent_again(
        &mut self,
        telemetry: &mut Telemetry,
        sender: &Sender,
        publication: &Publication<'_>,
    ) {
        let stamp = values(publication, Property::NAME).next();
        let Some(Ok(property)) = stamp.map(Property::parse_text) else {
            return;
        };
        let key = (property.lane, property.epoch);
        let Some((lane, _)) = self.publishers.own(key, sender) else {
            return;
        };
        if lane.note_sent_again(property.sequence) {
            telemetry.report(Event::SentAgain {
                client_id: Arc::clone(&sender.client_id),
                lane: key.0.value(),
                epoch: key.1.0,
                number: property.sequence,
            });
        }
    }

    fn verify_checkpoint(
        &mut self,
        telemetry: &mut Telemetry,
        client: &Sender,
        lane: &str,
        again: bool,
        publication: &Publication<'_>,
    ) {
        let parsed = Checkpoint::parse(publication.payload).ok();
        let through = through(publication);
        if let Some(sealed) = &parsed {
            let spot = Spot {
                lane: through.unwrap_or(sealed.lane()),
                epoch: sealed.epoch(),
                number: sealed.size(),
            };
            self.note_speaker(telemetry, client, Sent::Checkpoint, &[spot]);
        }
        if through.is_some() {
            return; // passed on, behind what its processor has made of the lane
        }
        let named = parsed.filter(|sealed| sealed.lane().to_string() == lane);
        if let Some(sealed) = &named
            && sealed.algorithm() != Algorithm::Xxh3
        {
            telemetry.audit().publishers.unverifiable += 1;
            return self.report_unverifiable(&client.client_id, sealed);
        }
        let checkpoint = named.and_then(|sealed| sealed.open(&Xxh3).ok());
        let publishers = &mut self.publishers;
        let own = checkpoint.and_then(|checkpoint| {
            let key = (checkpoint.lane, checkpoint.epoch);
            Some((key, publishers.own(key, client)?, checkpoint))
        });
        let Some((key, (lane, limits), checkpoint)) = own else {
            // Damaged, of another lane than its topic says, or of one that is not open here:
            // nothing is claimed.
            telemetry.audit().publishers.unaudited += 1;
            return;
        };
        lane.hear(checkpoint.size, again, publication.stamp);
        lane.is_closed |= checkpoint.end == EpochEnd::Closed;
        let lane_now = lane.clock;
        lane.ledger.checkpoint(&checkpoint, lane_now, limits, &Xxh3);
        lane.take_events(key, &mut self.watch, telemetry);
        if lane.is_in_part() || lane.ledger.scope_start() > 0 {
            lane.report_part(key, &mut self.watch);
        }
        if lane.is_over() {
            self.publishers.forget_before(key);
        }
    }

    /// A drop record is for its receivers; only who may speak of the lane is looked at.
    fn verify_drop_record(
        &mut self,
        telemetry: &mut Telemetry,
        sender: &Sender,
        publication: &Publication<'_>,
    ) {
        let record = DropRecord::parse(publication.payload).ok();
        if let Some(record) = record.and_then(|sealed| sealed.open(&Xxh3).ok()) {
            let spot = Spot {
                lane: through(publication).unwrap_or(record.lane),
                epoch: record.epoch,
                number: record.runs.first().map_or(0, |run| run.first),
            };
            self.note_speaker(telemetry, sender, Sent::DropRecord, &[spot]);
        }
    }

    /// Reports why a lane is not judged as others are. What its checkpoint says it says without
    /// proof.
    fn report_unverifiable(&mut self, client: &Arc<str>, checkpoint: &SealedCheckpoint) {
        let lane = checkpoint.lane();
        let object = Object::new()
            .text("lane", &lane.to_string())
            .number("epoch", checkpoint.epoch().0)
            .text("client", client)
            .text("state", "unverifiable")
            .number("messages", checkpoint.size())
            .text(
                "words",
                "its algorithm needs a key, which the broker does not have",
            );
        self.watch.report_on_lane(lane, "state", object);
    }
}

/// The lane in whose name a processor says this. What names none is said by the lane itself.
pub(super) fn through(publication: &Publication<'_>) -> Option<LaneId> {
    let lane = values(publication, THROUGH).next()?;
    LaneId::new(u64::from_str_radix(lane, 16).ok()?)
}

/// The user property of what a processor says of the lane of its input.
const THROUGH: &str = "audit-through";
