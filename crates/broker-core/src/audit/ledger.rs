//! What the audit knows of one session: its account, what its client missed, the rules that may
//! concern it, and the lane of what it publishes.
//!
//! The account settles at once, so a window ends with exactly its last delivery; what it finds then
//! waits among the [`Findings`] until the shard names it.

use std::sync::Arc;

use super::account::{Account, Counting, Fate, Open, OutOfTurn};
use super::finding::Findings;
use super::lane::IngressLane;
use super::missed::Missed;
use super::watch::Topics;
use crate::reason::{DropReason, FaultKind, FaultPlace};
use crate::telemetry::AuditTotals;

#[derive(Debug, Default)]
pub(crate) struct Ledger {
    pub(super) account: Account,
    /// What its client missed and is to get a record of.
    pub(super) missed: Option<Box<Missed>>,
    /// The numbers of the audit's rules that may concern what it publishes.
    pub(super) rules: Box<[u16]>,
    /// What it publishes, once it has.
    pub(super) lane: Option<Box<IngressLane>>,
}

impl Ledger {
    pub(crate) fn new(rules: Box<[u16]>) -> Self {
        Self {
            rules,
            ..Self::default()
        }
    }

    pub(super) fn account(&self) -> &Account {
        &self.account
    }

    pub(crate) fn lane(&self) -> Option<&IngressLane> {
        self.lane.as_deref()
    }

    pub(crate) fn lane_mut(&mut self) -> Option<&mut IngressLane> {
        self.lane.as_deref_mut()
    }

    pub(crate) fn take_lane(&mut self) -> Option<Box<IngressLane>> {
        self.lane.take()
    }

    /// The client connects, and announces that it only verifies what it receives, or does not.
    pub(crate) fn set_watcher(&mut self, is_watcher: bool) {
        self.account.set_watcher(is_watcher);
    }

    pub(crate) fn is_watcher(&self) -> bool {
        self.account.is_watcher()
    }

    /// A delivery is accepted: its number, and whether it is in the sums that are shown.
    #[inline]
    pub(crate) fn accept(
        &mut self,
        topics: &Topics,
        topic: &str,
        totals: &mut AuditTotals,
    ) -> (u64, Counting) {
        let counting = self.account.counting_of(topics, topic);
        (self.account.accept(totals, counting), counting)
    }

    /// The delivery that was accepted last may have been sent, by an earlier run.
    pub(crate) fn sent_before(&mut self, totals: &mut AuditTotals, counting: Counting) {
        self.account.sent_before(totals, counting);
    }

    /// How a delivery is counted that is to be accepted.
    #[inline]
    pub(crate) fn counting_of(&self, topics: &Topics, topic: &str) -> Counting {
        self.account.counting_of(topics, topic)
    }

    /// A delivery of QoS 0 was sent. Answers whether its window is full.
    #[inline]
    pub(crate) fn sent_qos0(&mut self, totals: &mut AuditTotals, counting: Counting) -> bool {
        self.account.sent_qos0(totals, counting);
        self.account.window_is_full()
    }

    /// A delivery is dropped where it was to be accepted.
    pub(crate) fn refused_entry(
        &mut self,
        topics: &Topics,
        topic: &str,
        reason: DropReason,
        totals: &mut AuditTotals,
    ) -> Counting {
        let counting = self.account.counting_of(topics, topic);
        self.account.refused_entry(totals, counting);
        if counting.is_shown() {
            self.account.note_reason(reason);
        }
        counting
    }

    /// So many deliveries are dropped that were to be accepted when they were read from the disk.
    /// Answers how many of them are in no sum that is shown.
    pub(crate) fn refused_entries(&mut self, totals: &mut AuditTotals, count: u64) -> u64 {
        self.account.refused_entries(totals, count)
    }

    /// The number of the next delivery that is accepted.
    pub(crate) fn next(&self) -> u64 {
        self.account.next()
    }

    /// One of those acknowledged has been processed.
    pub(crate) fn note_processed(&mut self) {
        self.account.note_processed();
    }

    /// One is not delivered, for this reason.
    pub(crate) fn note_reason(&mut self, reason: DropReason) {
        self.account.note_reason(reason);
    }

    /// Accounts for what became of an accepted delivery. Answers whether its window is full.
    #[inline]
    pub(crate) fn settle(
        &mut self,
        client_id: &Arc<str>,
        number: u64,
        fate: Fate,
        totals: &mut AuditTotals,
        findings: &mut Findings,
    ) -> bool {
        if let Some(out_of_turn) = self.account.settle(totals, number, fate) {
            self.find(client_id, out_of_turn, findings);
        }
        self.account.window_is_full()
    }

    /// Whether a window is full, and the law is to be looked at.
    #[inline]
    pub(crate) fn window_is_full(&self) -> bool {
        self.account.window_is_full()
    }

    /// A window is full: the law decides what it came to. `there`: deliveries in the queue and in
    /// the table of packet ids.
    #[cold]
    pub(crate) fn end_window(
        &mut self,
        client_id: &Arc<str>,
        there: u64,
        totals: &mut AuditTotals,
        findings: &mut Findings,
    ) {
        let imbalance = self.account.imbalance(there);
        self.account.end_window(totals, imbalance);
        if imbalance > 0 {
            let place = FaultPlace::Session(Arc::clone(client_id));
            findings.fault(place, FaultKind::Unbalanced, 0, imbalance);
        }
    }

    /// The session has ended: accounts for what it still had, and closes its last window.
    pub(crate) fn close(
        &mut self,
        client_id: &Arc<str>,
        fates: &[(u64, Fate)],
        totals: &mut AuditTotals,
        findings: &mut Findings,
    ) {
        let imbalance = self.account.imbalance(fates.len() as u64);
        if imbalance > 0 {
            self.fault(client_id, FaultKind::Unbalanced, 0, imbalance, findings);
        }
        let mut unacknowledged = false;
        for (number, fate) in fates {
            unacknowledged |= *fate == Fate::GivenUp;
            if let Some(out_of_turn) = self.account.settle(totals, *number, *fate) {
                self.find(client_id, out_of_turn, findings);
            }
        }
        self.account.end_last_window(totals, unacknowledged);
    }

    /// A fault of what is expected by a session.
    #[cold]
    pub(crate) fn fault(
        &mut self,
        client_id: &Arc<str>,
        kind: FaultKind,
        first: u64,
        count: u64,
        findings: &mut Findings,
    ) {
        self.account.note_fault();
        let place = FaultPlace::Session(Arc::clone(client_id));
        findings.fault(place, kind, first, count);
    }

    #[cold]
    fn find(&mut self, client_id: &Arc<str>, found: OutOfTurn, findings: &mut Findings) {
        let OutOfTurn { kind, first, count } = found;
        self.fault(client_id, kind, first, count, findings);
    }

    /// By how much the law is broken. Adds what is open to the sums of all sessions.
    pub(crate) fn imbalance(&self, there: u64, open: &mut Open) -> u64 {
        self.account.add_open(open);
        self.account.imbalance(there)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::finding::Finding;

    struct Session {
        client_id: Arc<str>,
        ledger: Ledger,
        totals: AuditTotals,
        findings: Findings,
    }

    impl Session {
        fn with(deliveries: u64) -> Self {
            let mut session = Self {
                client_id: "pump".into(),
                ledger: Ledger::default(),
                totals: AuditTotals::default(),
                findings: Findings::default(),
            };
            let topics = Topics::new("audit");
            for _ in 0..deliveries {
                session.ledger.accept(&topics, "t", &mut session.totals);
            }
            session
        }

        fn settle(&mut self, number: u64, fate: Fate) -> bool {
            let (totals, findings) = (&mut self.totals, &mut self.findings);
            self.ledger
                .settle(&self.client_id, number, fate, totals, findings)
        }

        fn end_window(&mut self, there: u64) {
            let (totals, findings) = (&mut self.totals, &mut self.findings);
            self.ledger
                .end_window(&self.client_id, there, totals, findings);
        }

        /// What was found, of a session.
        fn found(&mut self) -> Vec<(FaultKind, u64, u64)> {
            let found = self.findings.drain().map(|finding| match finding {
                Finding::Fault {
                    place: FaultPlace::Session(client_id),
                    kind,
                    first,
                    count,
                } if client_id == self.client_id => (kind, first, count),
                other => panic!("{other:?}"),
            });
            found.collect()
        }

        fn windows(&self) -> [u64; 3] {
            let totals = &self.totals;
            [
                totals.windows_proven,
                totals.windows_faulty,
                totals.windows_unproven,
            ]
        }
    }

    #[test]
    fn a_window_is_full_with_its_last_delivery_and_proven_if_the_law_holds() {
        let mut session = Session::with(1_025);
        for number in 0..1_024 {
            assert!(!session.settle(number, Fate::Sent));
            let is_full = session.settle(number, Fate::Acknowledged);
            assert_eq!(is_full, number == 1_023, "{number}");
        }
        session.end_window(1);
        assert_eq!((session.found(), session.windows()), (vec![], [1, 0, 0]));
    }

    #[test]
    fn a_delivery_that_was_passed_over_makes_its_window_faulty() {
        let mut session = Session::with(3);
        session.settle(0, Fate::Sent);
        session.settle(2, Fate::Sent);
        session.end_window(2);
        let found = session.found();
        assert_eq!(found[0], (FaultKind::Lost, 1, 1));
        // It is nowhere, too.
        assert_eq!(found[1], (FaultKind::Unbalanced, 0, 1));
        assert_eq!(session.windows(), [0, 1, 0]);
    }

    #[test]
    fn the_last_window_is_unproven_if_something_sent_is_not_acknowledged() {
        let mut session = Session::with(2);
        session.settle(0, Fate::Sent);
        let fates = [(0, Fate::GivenUp), (1, Fate::Dropped)];
        let (totals, findings) = (&mut session.totals, &mut session.findings);
        session
            .ledger
            .close(&session.client_id, &fates, totals, findings);
        assert_eq!((session.found(), session.windows()), (vec![], [0, 0, 1]));
    }
}
