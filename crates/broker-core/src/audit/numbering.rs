//! What happens to a message where it comes in: its number, and what its publisher states about it.

use std::sync::Arc;
use std::time::Instant;

use unbroken_merkle_log::{Epoch, LaneId};
use unbroken_mqtt_proto::PropertyBuf;

use super::Audit;
use super::lane::{self, IngressLane};
use super::ledger::Ledger;
use super::owners::Sender;
use super::rule::{self, Treatment};
use crate::ids::SessionId;
use crate::message::Publication;
use crate::reason::DropReason;
use crate::settings::AuditAction;
use crate::telemetry::Telemetry;

impl Audit {
    /// Numbers an accepted message of this session. Answers its lane, if it has got a number.
    pub(crate) fn number<'l>(
        &mut self,
        now: Instant,
        telemetry: &mut Telemetry,
        client_id: &Arc<str>,
        ledger: &'l mut Ledger,
        publication: &mut Publication<'_>,
    ) -> Option<&'l mut IngressLane> {
        if !self.settings.enabled {
            return None;
        }
        let treatment = self.treatment(ledger, publication.topic);
        if treatment.action == AuditAction::Off {
            return None;
        }
        let lane = match &mut ledger.lane {
            Some(lane) => lane,
            none => {
                let second = lane::second(self.settings.started_us, self.start, now);
                none.insert(Box::new(self.lanes.open(client_id, second)))
            }
        };
        let totals = telemetry.audit();
        totals.received += 1;
        if self.watch.topics.is_aside(publication.topic) {
            totals.aside.received += 1;
        }
        publication.mark = Some(lane.stamp(publication));
        lane.send_full_window(now, &mut self.watch);
        Some(lane)
    }

    /// Follows the message that this lane has numbered last, if that is wanted.
    pub(crate) fn follow_message(
        &mut self,
        session: SessionId,
        lane: &mut IngressLane,
        publication: &mut Publication<'_>,
    ) {
        let Some(mark) = publication.mark.as_mut().filter(|_| lane.wants.any()) else {
            return;
        };
        mark.tracked = true;
        let is_new = lane.tracking.is_none();
        lane.follow(mark, publication.topic, &mut self.watch);
        if is_new {
            self.follow(session);
        }
    }

    /// Puts its stamp on a message that has a number, if that is forwarded: then `stamped` holds
    /// its properties.
    pub(crate) fn forward_stamp<'a>(
        &mut self,
        telemetry: &mut Telemetry,
        (session, client_id): (SessionId, &Arc<str>),
        ledger: &mut Ledger,
        publication: &mut Publication<'a>,
        stamped: &'a mut PropertyBuf,
    ) {
        let Some(mark) = &publication.mark else {
            return;
        };
        if !self.treatment(ledger, publication.topic).forward_stamp {
            return;
        }
        publication.properties = mark.add_to(publication.properties, stamped);
        let lane = ledger.lane.as_deref_mut();
        if lane.is_some_and(IngressLane::begin_sending) {
            self.follow(session);
            self.claim_ingress(telemetry, client_id);
        }
    }

    /// What the rules say of a message of this session.
    #[inline]
    fn treatment(&self, ledger: &Ledger, topic: &str) -> Treatment {
        if ledger.rules.is_empty() {
            return Treatment::DEFAULT;
        }
        rule::treatment(&ledger.rules, &self.settings.rules, topic)
    }

    /// Whether a publisher may say something of lanes with this message.
    #[inline]
    pub(crate) fn says_something(&self, publication: &Publication<'_>, said_on: &str) -> bool {
        self.settings.enabled
            && (!publication.properties.is_empty() || self.is_word_of_a_lane(said_on))
    }

    /// Judges what a publisher that stamps itself says about its message, and checkpoints. Answers
    /// in whose ledger the message is. `said_on`: what the publisher calls the topic, which its
    /// stamp covers.
    pub(crate) fn verify_publisher(
        &mut self,
        telemetry: &mut Telemetry,
        sender: &Sender,
        ledger: &Ledger,
        again: bool,
        publication: &Publication<'_>,
        said_on: &str,
    ) -> Option<(LaneId, Epoch)> {
        match self.treatment(ledger, publication.topic).action {
            AuditAction::Verify => self.verify(telemetry, sender, again, publication, said_on),
            AuditAction::Stamp | AuditAction::Off => {
                self.leave_out(sender, publication, said_on);
                None
            }
        }
    }

    /// A message is not taken in: of a publisher that stamps itself it is not lost, it is refused.
    #[cold]
    pub(crate) fn note_refused(
        &mut self,
        telemetry: &mut Telemetry,
        sender: &Sender,
        ledger: &Ledger,
        (publication, said_on): (&Publication<'_>, &str),
        reason: DropReason,
    ) {
        match self.treatment(ledger, publication.topic).action {
            AuditAction::Verify => {
                let said = publication.on(said_on);
                self.refused(telemetry, sender, &said, reason);
            }
            AuditAction::Stamp | AuditAction::Off => {
                self.leave_out(sender, publication, said_on);
            }
        }
    }

    /// Whether this may be a checkpoint, a directory or a drop record.
    fn is_word_of_a_lane(&self, topic: &str) -> bool {
        let topics = &self.watch.topics;
        let words = [&topics.checkpoints, &topics.directories, &topics.drops];
        words.into_iter().any(|word| topic.starts_with(word))
    }
}
