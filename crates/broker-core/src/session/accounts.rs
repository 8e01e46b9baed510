//! What a session's ledger is asked where it depends on what lies in the session.

use super::{Delivery, Session, Sessions};
use crate::audit::account::{Counting, Fate, Open};
use crate::audit::finding::Findings;
use crate::audit::watch::Topics;
use crate::position::Frontier;
use crate::reason::{DropReason, FaultKind};
use crate::telemetry::AuditTotals;

impl Session {
    /// Accepts a delivery, which gets the next number.
    #[inline]
    pub(crate) fn accept(
        &mut self,
        topics: &Topics,
        totals: &mut AuditTotals,
        delivery: &mut Delivery,
    ) {
        let topic = delivery.message.topic();
        (delivery.number, delivery.counting) = self.ledger.accept(topics, topic, totals);
    }

    /// The same of a delivery that may have been sent, by an earlier run.
    pub(crate) fn accept_sent(
        &mut self,
        topics: &Topics,
        totals: &mut AuditTotals,
        delivery: &mut Delivery,
    ) {
        self.accept(topics, totals, delivery);
        self.ledger.sent_before(totals, delivery.counting);
    }

    /// A delivery of QoS 0 was sent.
    #[expect(clippy::inline_always, reason = "a call costs more than it counts")]
    #[inline(always)]
    pub(crate) fn sent_qos0(
        &mut self,
        topics: &Topics,
        topic: &str,
        totals: &mut AuditTotals,
        findings: &mut Findings,
    ) -> Counting {
        let counting = self.ledger.counting_of(topics, topic);
        if self.ledger.sent_qos0(totals, counting) {
            self.end_window(totals, findings);
        }
        counting
    }

    /// A delivery is dropped where it was to be accepted.
    pub(crate) fn refused_entry(
        &mut self,
        topics: &Topics,
        topic: &str,
        reason: DropReason,
        totals: &mut AuditTotals,
        findings: &mut Findings,
    ) -> Counting {
        let counting = self.ledger.refused_entry(topics, topic, reason, totals);
        if self.ledger.window_is_full() {
            self.end_window(totals, findings);
        }
        counting
    }

    /// Accounts for what became of an accepted delivery.
    #[inline]
    pub(crate) fn settle(
        &mut self,
        number: u64,
        fate: Fate,
        totals: &mut AuditTotals,
        findings: &mut Findings,
    ) {
        let ledger = &mut self.ledger;
        if ledger.settle(&self.client_id, number, fate, totals, findings) {
            self.end_window(totals, findings);
        }
    }

    /// Accounts for deliveries that were dropped from the queue together. The law holds again only
    /// behind the last of them, so a window does not end before.
    #[cold]
    pub(crate) fn settle_dropped(
        &mut self,
        numbers: &[u64],
        totals: &mut AuditTotals,
        findings: &mut Findings,
    ) {
        let ledger = &mut self.ledger;
        for number in numbers {
            ledger.settle(&self.client_id, *number, Fate::Dropped, totals, findings);
        }
        if ledger.window_is_full() {
            self.end_window(totals, findings);
        }
    }

    #[cold]
    fn end_window(&mut self, totals: &mut AuditTotals, findings: &mut Findings) {
        let there = self.open_deliveries();
        self.ledger
            .end_window(&self.client_id, there, totals, findings);
    }

    /// A fault of what is expected by it.
    #[cold]
    pub(crate) fn fault(
        &mut self,
        kind: FaultKind,
        first: u64,
        count: u64,
        findings: &mut Findings,
    ) {
        self.ledger
            .fault(&self.client_id, kind, first, count, findings);
    }

    /// Deliveries in the queue and in the table of packet ids.
    fn open_deliveries(&self) -> u64 {
        self.outbox.iter().count() as u64
    }

    /// By how much the law is broken. Adds what is open to the sums of all sessions.
    pub(crate) fn imbalance(&self, open: &mut Open) -> u64 {
        self.ledger.imbalance(self.open_deliveries(), open)
    }

    /// Whether a drop record is to be sent before the delivery of this number leaves. What is held
    /// until something is stored leaves first.
    pub(crate) fn misses_before(&self, number: u64) -> bool {
        !self.outbox.holds_unsent() && self.ledger.misses_before(number)
    }

    /// Deliveries accepted for it that are not known to be on disk, if it is one that stays.
    /// Without what is left out of what is shown.
    pub(crate) fn unstored(&self, on_disk: &Frontier) -> u64 {
        if !self.is_durable() {
            return 0;
        }
        let unstored = |delivery: &&Delivery| {
            let position = delivery.message.position();
            position.is_some_and(|position| !on_disk.covers(position))
                && delivery.counting.is_shown()
        };
        self.outbox.iter().filter(unstored).count() as u64
    }
}

impl Sessions {
    /// Deliveries accepted for sessions that stay that are not known to be on disk. Costs a look at
    /// everything that waits for them.
    pub(crate) fn unstored(&self, on_disk: &Frontier) -> u64 {
        let unstored = self.iter().map(|(_, session)| session.unstored(on_disk));
        unstored.sum()
    }

    /// By how much accounts do not balance, and totals do not come to them.
    pub(crate) fn imbalance(&self, totals: &AuditTotals) -> u64 {
        let mut open = Open::default();
        let sessions = self.iter();
        let off: u64 = sessions
            .map(|(_, session)| session.imbalance(&mut open))
            .sum();
        off + open.imbalance(totals)
    }
}
