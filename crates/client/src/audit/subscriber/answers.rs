//! What comes on the answer topic: messages that are sent again, and hashes. Anyone may publish
//! there, so only what was asked for counts.

use std::time::Duration;

use unbroken_merkle_log::ledger::{Answer, Request, Verdict};
use unbroken_merkle_log::{Digest as _, Epoch, LaneId, Property};

use super::{AuditedSubscriber, lane_named, unjudged};
use crate::Received;
use crate::audit::judged::{AuditedMessage, NoStamp};
use crate::audit::{ANSWER, AUDIT};

impl AuditedSubscriber {
    /// A message that is sent again. Anyone may publish where it came, under the topic that its
    /// user property names: only what was asked for, and matches the filters, is judged further.
    pub(super) fn judge_answer(&mut self, received: &Received) -> AuditedMessage {
        let stamp = received.user_property(AUDIT);
        let property = stamp
            .ok_or(NoStamp::Absent)
            .and_then(|stamp| Property::parse_text(stamp).map_err(NoStamp::Unreadable));
        let is_asked_for = property.is_ok_and(|property| {
            let lane = self.ledger.lane(property.lane, property.epoch);
            self.asking.is_some()
                && self.direct.contains(&property.lane)
                && lane.is_some_and(|lane| lane.was_asked_for(property.sequence))
        });
        if is_asked_for && self.filters.iter().any(|it| it.matches(received.topic())) {
            return self.judge(received);
        }
        AuditedMessage {
            verdict: Some(Verdict::Injected),
            property,
            ..unjudged(received)
        }
    }

    pub(super) fn handle_answer(&mut self, received: &Received) -> Result<(), String> {
        let lane = received.user_property(ANSWER).and_then(lane_named);
        let lane = lane.ok_or("an answer that names no lane")?;
        let answer = Answer::parse(self.hasher.algorithm(), received.payload());
        let (epoch, answer) = answer.map_err(|error| error.to_string())?;
        if !self.is_asked(lane, epoch, &answer) {
            // The window has grown since.
            return Ok(());
        }
        let taken = self.ledger.answer(lane, epoch, &answer);
        // The next round of a descent need not wait.
        self.next_look = Duration::ZERO;
        taken.map_err(|error| error.to_string())
    }

    /// Whether an answer is to what would be asked now.
    fn is_asked(&self, lane: LaneId, epoch: Epoch, answer: &Answer) -> bool {
        let about = match answer {
            Answer::NotHeld(_) => return true,
            Answer::Groups { window, size, .. } => Request::Groups {
                window: *window,
                size: *size,
            },
            Answer::Leaves {
                window,
                size,
                group,
                ..
            } => Request::Leaves {
                window: *window,
                size: *size,
                group: *group,
            },
        };
        let ledger = self.ledger.lane(lane, epoch);
        ledger.is_some_and(|ledger| ledger.requests().contains(&about))
    }
}
