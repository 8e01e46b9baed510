//! What of a session may not wait any longer.

use std::time::Instant;

use unbroken_mqtt_proto::PacketId;

use super::{Delivery, Session};
use crate::durability::{CommitGate, Retention, Waiting, is_too_old};
use crate::limits::Limits;
use crate::reason::DropReason;

/// By what it is decided whether something may wait any longer.
#[derive(Clone, Copy)]
pub(crate) struct Rules<'a> {
    now: Instant,
    limits: &'a Limits,
    retention: &'a Retention,
}

impl<'a> Rules<'a> {
    pub(crate) fn new(now: Instant, limits: &'a Limits, gate: &'a CommitGate) -> Self {
        let retention = gate.retention();
        Self {
            now,
            limits,
            retention,
        }
    }

    /// Why this delivery may not wait any longer, if so. `durable`: its session is persistent.
    pub(crate) fn outstayed(&self, delivery: &Delivery, durable: bool) -> Option<DropReason> {
        let waiting = Waiting {
            message: &delivery.message,
            retain: delivery.retain,
            durable,
        };
        self.retention.outstayed(self.limits, self.now, waiting)
    }
}

impl Session {
    /// The number of the delivery that is about to leave, beyond all if none waits. `None`: the
    /// next one will not leave.
    #[cold]
    pub(crate) fn next_to_leave(&self, rules: Rules<'_>) -> Option<u64> {
        let Some((_, next)) = self.outbox.front() else {
            return Some(u64::MAX);
        };
        let stays = rules.outstayed(next, self.is_durable()).is_none();
        (stays && !next.message.publication().expired(rules.now)).then_some(next.number)
    }

    /// Whether any of these is to be dropped. What may stay does not hide what is behind it; but
    /// what was not sent as retained has come in order, so that the first tells how old it is.
    fn any_outstayed<'a>(
        &self,
        rules: Rules<'_>,
        mut deliveries: impl Iterator<Item = &'a Delivery>,
    ) -> bool {
        let releases = self.is_durable() && rules.retention.releases();
        deliveries
            .find_map(|delivery| {
                let outstayed = rules.outstayed(delivery, self.is_durable()).is_some();
                let is_oldest = !delivery.retain && !releases;
                (outstayed || is_oldest).then_some(outstayed)
            })
            .unwrap_or(false)
    }

    /// Whether some of what was released is in flight.
    pub(crate) fn holds_released(&self, retention: &Retention) -> bool {
        let mut positions = self
            .outbox
            .in_flight()
            .filter_map(|(_, _, sent)| sent.message.position());
        self.is_durable() && positions.any(|at| retention.has_released(at))
    }

    /// Whether something is to be dropped of what waits. Costs a look at the oldest of each kind,
    /// and at all that is in memory when the store is full.
    pub(crate) fn is_overdue(&self, now: Instant, limits: &Limits, gate: &CommitGate) -> bool {
        if gate.has_failed() && self.is_durable() {
            return false; // what it has is on disk, and stays there
        }
        let rules = Rules::new(now, limits, gate);
        let in_flight = self.outbox.in_flight().map(|(_, _, delivery)| delivery);
        if self.any_outstayed(rules, self.outbox.queued())
            || self.connection.is_none() && self.any_outstayed(rules, in_flight)
        {
            return true;
        }
        let kept = self.kept.as_deref();
        let backlog = kept.and_then(|kept| kept.backlog.as_deref());
        backlog.is_some_and(|backlog| {
            let needs = backlog.needs(gate.log_ends().all());
            let too_old = |oldest| is_too_old(limits, now, oldest);
            backlog.is_idle()
                && (self.holds_far_too_much(limits)
                    || backlog.oldest.is_some_and(too_old)
                    || rules.retention.has_released_beyond(needs))
        })
    }

    /// Takes what may not wait any longer out of the queue.
    pub(crate) fn take_outstayed(&mut self, rules: Rules<'_>) -> Vec<(Delivery, DropReason)> {
        let durable = self.is_durable();
        let outstayed = |_, delivery: &Delivery| rules.outstayed(delivery, durable);
        self.outbox.take_queued(outstayed)
    }

    /// What was sent over a connection that has ended and may not wait any longer.
    pub(crate) fn outstayed_in_flight(&self, rules: Rules<'_>) -> Vec<(PacketId, DropReason)> {
        if self.connection.is_some() {
            return Vec::new();
        }
        let durable = self.is_durable();
        let outstayed = self.outbox.in_flight().filter_map(|(id, _, delivery)| {
            let why = rules.outstayed(delivery, durable)?;
            Some((id, why))
        });
        outstayed.collect()
    }
}
