//! When a publisher may send, and what: credits, acknowledgements under way, and the encoded
//! packets.

use crate::{
    plan,
    stamp::{Payloads, Stamp},
    wire::{Shape, Stencil},
};
use std::{collections::VecDeque, iter};

/// The sending side of one client.
#[derive(Debug)]
pub(super) struct Publisher {
    flows: Vec<u32>,
    cursor: usize,
    /// What a phase begins with.
    stake: u64,
    credit: u64,
    cost: u64,
    pub(super) replies: bool,
    /// Answered with this time, so that the asker measures the round trip.
    pub(super) question_ns: u64,
    /// Messages it may still start in this phase.
    pub(super) remaining: u64,
    pub(super) unacknowledged: u32,
    /// When each of those was to be sent. They are acknowledged in this order [MQTT-4.6.0-2].
    pub(super) sent_ns: VecDeque<u64>,
    pub(super) max_unacknowledged: u32,
    last_id: u16,
    stencil: Stencil,
    /// Which flow and topic the stencil shows.
    engraved: Option<(u32, usize)>,
    /// It stands in the queue of those that may write.
    pub(super) queued: bool,
}

impl Publisher {
    pub(super) fn new(plan: plan::Publisher) -> Self {
        Self {
            flows: plan.flows,
            cursor: 0,
            stake: plan.credit,
            credit: plan.credit,
            cost: plan.cost.max(1),
            replies: plan.replies,
            question_ns: 0,
            remaining: 0,
            unacknowledged: 0,
            sent_ns: VecDeque::new(),
            max_unacknowledged: 0,
            last_id: 0,
            stencil: Stencil::default(),
            engraved: None,
            queued: false,
        }
    }

    pub(super) fn earn(&mut self, credit: u64) {
        self.credit = self.credit.saturating_add(credit);
    }

    /// Begins a phase. What was lost in an earlier one does not hold this one back.
    pub(super) fn renew(&mut self, messages: u64) {
        self.credit = self.stake;
        self.remaining = if self.replies { 0 } else { messages };
    }

    /// So many are sent, and will be acknowledged.
    pub(super) fn owe(&mut self, messages: u32, time_ns: u64) {
        self.unacknowledged += messages;
        self.sent_ns
            .extend(iter::repeat_n(time_ns, messages as usize));
    }

    pub(super) fn spend(&mut self, messages: u64) {
        self.credit = self.credit.saturating_sub(messages * self.cost);
        self.remaining = self.remaining.saturating_sub(messages);
    }

    /// How many messages the next write may hold: a whole batch, the last few, or none.
    pub(super) fn allowance(&self, batch: u32, acknowledged: bool, publishing: bool) -> u32 {
        let remaining = match (self.replies, publishing) {
            (true, _) => u64::MAX,
            (false, true) => self.remaining,
            (false, false) => 0,
        };
        let mut batch = batch;
        let mut open = self.credit / self.cost;
        if acknowledged {
            batch = batch.min(self.max_unacknowledged);
            open = open.min(u64::from(
                self.max_unacknowledged.saturating_sub(self.unacknowledged),
            ));
        }
        let wanted = remaining.min(u64::from(batch));
        // A full batch or the whole rest: else the batches would melt to single messages.
        let whole = if self.replies {
            open.min(wanted)
        } else {
            wanted
        };
        u32::try_from(whole)
            .ok()
            .filter(|_| open >= whole)
            .unwrap_or_default()
    }

    /// The flow of the next message.
    pub(super) fn next_flow(&mut self) -> Option<u32> {
        let flow = self.flows.get(self.cursor).copied();
        self.cursor = (self.cursor + 1) % self.flows.len().max(1);
        flow
    }

    pub(super) fn next_id(&mut self) -> u16 {
        // Identifiers start at 1. [MQTT-2.2.1-3]
        self.last_id = self.last_id.checked_add(1).unwrap_or(1);
        self.last_id
    }

    /// Makes the stencil show `count` packets of the shape, unless it does already.
    pub(super) fn engrave(
        &mut self,
        shape: Shape<'_>,
        topic: usize,
        payloads: &Payloads,
        count: u32,
    ) {
        if self.engraved != Some((shape.flow, topic)) {
            self.stencil.engrave(shape, payloads, count as usize);
            self.engraved = Some((shape.flow, topic));
        }
    }

    pub(super) fn patch(&mut self, payloads: &Payloads, index: u32, stamp: Stamp, packet_id: u16) {
        let index = index as usize;
        self.stencil.patch(payloads, index, stamp, packet_id);
    }

    pub(super) fn packets(&self, count: u32) -> &[u8] {
        self.stencil.packets(count as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn publisher(credit: u64, cost: u64, remaining: u64) -> Publisher {
        let plan = plan::Publisher {
            flows: vec![0],
            credit,
            cost,
            replies: false,
        };
        Publisher {
            remaining,
            max_unacknowledged: 10,
            ..Publisher::new(plan)
        }
    }

    #[test]
    fn a_write_holds_a_whole_batch_or_the_rest_or_nothing() {
        assert_eq!(publisher(100, 1, 1000).allowance(32, false, true), 32);
        assert_eq!(publisher(31, 1, 1000).allowance(32, false, true), 0);
        assert_eq!(publisher(100, 1, 5).allowance(32, false, true), 5);
        assert_eq!(publisher(100, 1, 0).allowance(32, false, true), 0);
        assert_eq!(publisher(100, 1, 1000).allowance(1, false, false), 0);
    }

    #[test]
    fn a_message_costs_as_many_credits_as_it_has_receivers() {
        let mut publisher = publisher(2_000, 1_000, 10);
        publisher.spend(2);
        assert_eq!(publisher.allowance(1, false, true), 0);
        publisher.earn(999);
        assert_eq!(publisher.allowance(1, false, true), 0);
        publisher.earn(1);
        assert_eq!(publisher.allowance(1, false, true), 1);
    }

    #[test]
    fn acknowledgements_under_way_are_limited_too() {
        let mut publisher = publisher(100, 1, 1000);
        publisher.unacknowledged = 10;
        assert_eq!(publisher.allowance(1, true, true), 0);
        assert_eq!(publisher.allowance(1, false, true), 1);
    }

    #[test]
    fn a_reply_goes_out_even_when_no_new_question_may() {
        let mut publisher = Publisher {
            replies: true,
            ..publisher(0, 1, 0)
        };
        assert_eq!(publisher.allowance(1, false, false), 0);
        publisher.earn(1);
        assert_eq!(publisher.allowance(1, false, false), 1);
    }

    #[test]
    fn packet_identifiers_wrap_past_zero() {
        let mut publisher = Publisher {
            last_id: u16::MAX - 1,
            ..publisher(0, 1, 0)
        };
        assert_eq!(
            [
                publisher.next_id(),
                publisher.next_id(),
                publisher.next_id()
            ],
            [u16::MAX, 1, 2]
        );
    }
}
