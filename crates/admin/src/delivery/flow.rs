//! Counts of which a chart and the strip show the increase.

use unbroken_broker::handle::{DropReason, Stats};

/// Counts whose increase is shown.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Flow {
    pub(crate) received: u64,
    pub(crate) sent: u64,
    pub(crate) expected: u64,
    pub(crate) delivered: u64,
    pub(crate) dropped: u64,
    /// Sent, and never to be acknowledged.
    pub(crate) given_up: u64,
    pub(crate) faults: u64,
    pub(crate) open: u64,
}

impl Flow {
    pub(crate) fn of(stats: &Stats) -> Self {
        let (audit, aside) = (&stats.audit, &stats.audit.aside);
        let acknowledged = audit.acknowledged.saturating_sub(aside.acknowledged);
        let given_up = audit.given_up.saturating_sub(aside.given_up);
        let in_flight = audit.shown_sent().saturating_sub(acknowledged + given_up);
        let dropped = DropReason::ALL.map(|reason| stats.dropped_shown(reason));
        let of = &audit.publishers;
        let before = [
            of.lost,
            of.duplicated,
            of.repeated,
            of.reordered,
            of.altered,
            of.injected,
            of.intruded,
            of.forged,
            of.roots_differing,
            of.contradicted,
        ];
        Self {
            received: audit.received.saturating_sub(aside.received),
            sent: audit.shown_sent() + audit.shown_handed_to_network(),
            expected: audit.expected.saturating_sub(aside.expected),
            delivered: acknowledged + audit.shown_handed_to_network(),
            dropped: dropped.iter().sum(),
            given_up,
            faults: before
                .iter()
                .fold(audit.faults(), |sum, count| sum.saturating_add(*count)),
            open: audit.shown_waiting() + in_flight,
        }
    }
}

impl Flow {
    /// Deliveries that have come to an end.
    pub(crate) fn ended(&self) -> u64 {
        self.delivered + self.dropped + self.sent
    }
}
