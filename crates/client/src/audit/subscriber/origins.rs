//! What messages were made of, as processors say it in `audit-origin` and `audit-parents`.
//!
//! Invariant: of a lane whose messages come here themselves this tells nothing, and nothing of what
//! it told before is left once they do.

use std::time::Duration;

use unbroken_merkle_log::ledger::Verdict;
use unbroken_merkle_log::{Parents, Property};

use super::{AuditedSubscriber, Delivery};
use crate::Received;
use crate::audit::judged::AuditedMessage;
use crate::audit::{ORIGIN, PARENTS};

impl AuditedSubscriber {
    /// A message of a lane comes that was heard only by what others were made of, or may have been.
    pub(super) fn hear_itself(&mut self, property: &Property) {
        let (lane, epoch, number) = (property.lane, property.epoch, property.sequence);
        self.origins.remove(&lane);
        if !self.direct.contains(&lane) && self.ledger.hear_itself(lane, epoch, number) {
            let contradicted = Delivery::InputContradicted {
                lane,
                epoch,
                number,
            };
            self.ready.push_back(contradicted);
        }
    }

    /// What a message was made of arrives with it, once. Of a lane that is heard itself its own
    /// messages tell, and what others were made of says nothing of how those came.
    pub(super) fn judge_origins(
        &mut self,
        received: &Received,
        resent: bool,
        now: Duration,
        message: &mut AuditedMessage,
    ) {
        for text in received.user_properties(ORIGIN) {
            let Ok(mut origin) = Property::parse_text(text) else {
                continue;
            };
            // It is late because its carrier was.
            origin.flags.resent |= resent;
            let verdict = if self.direct.contains(&origin.lane) {
                Verdict::NotAudited
            } else {
                self.origins.insert(origin.lane);
                self.ledger.origin(&origin, now)
            };
            if self.ledger.is_full_for(origin.lane, origin.epoch) {
                self.name_no_room(&origin);
            }
            message.origins.push((origin, verdict));
        }
        let parents = received.user_property(PARENTS).map(Parents::parse_text);
        if let Some(Ok(parents)) = parents {
            for of_lane in parents.lanes() {
                if !self.direct.contains(&of_lane.lane) {
                    self.origins.insert(of_lane.lane);
                    self.ledger.parents_of(of_lane, now);
                }
            }
            message.parents = Some(parents);
        }
    }
}
