//! The account of one session: its expected deliveries and the outcome of each, counted where it
//! happens, checked by a law.
//!
//! ```text
//!   expected = sent + waiting + dropped + handed on        sent = QoS 0 + acknowledged + in flight
//!                     (accepted - left)                                 + given up
//!   waiting + in flight = what lies in the queue and in the table of packet ids
//! ```
//!
//! The last line is the one that a mistake breaks: its left side was counted, its right side is
//! there.
//!
//! HOT: one of these runs for each delivery. A delivery that is accepted gets the next number of
//! its session, and numbers leave (are sent, or dropped by name) in their order. So one comparison
//! names each that is missing, comes twice or comes late. Only a drop or a hand-over may overtake,
//! since the delivery before it may be held until it is stored. A delivery that is not accepted has
//! no number: it can be neither lost nor out of order.

use std::collections::BTreeSet;

use super::json::Object;
use super::watch::Topics;
use crate::reason::{DropReason, FaultKind};
use crate::telemetry::{Aside, AuditTotals};

/// The account of one session. 80 bytes, and sessions are many.
#[derive(Debug, Default)]
pub(crate) struct Account {
    /// Expected deliveries.
    expected: u64,
    /// Accepted: stored, sent at once or held. The number of the next one.
    accepted: u64,
    /// Accepted and gone on: sent, dropped or handed on. The number that is due to.
    left: u64,
    sent_qos0: u64,
    /// First copies of QoS 1 and 2.
    sent: u64,
    acknowledged: u64,
    /// Not sent, with a reason.
    dropped: u64,
    /// Deliveries of the present window that have come to their end.
    in_window: u32,
    /// A fault was named in the present window.
    is_faulty: bool,
    /// Its client has announced that it only verifies what it receives.
    is_watcher: bool,
    windows_proven: u32,
    windows_faulty: u32,
    /// What most sessions have nothing of.
    rare: Option<Box<Rare>>,
}

#[derive(Debug, Default)]
struct Rare {
    /// Of those acknowledged.
    processed: u64,
    /// Not sent, and another session's now.
    handed_on: u64,
    /// Sent, never to be acknowledged.
    given_up: u64,
    /// Not delivered, by reason.
    dropped: Vec<(DropReason, u64)>,
    /// Numbers that were passed over: named as lost, late if they come after all.
    missing: Vec<u64>,
    /// Numbers above `left` that were dropped or handed on: those may overtake what is held until
    /// it is stored. As many as the queue has room for.
    ahead: BTreeSet<u64>,
    /// Of all the above, what is left out of what is shown, and its deliveries that wait or are in
    /// flight. As many as the queue and the window have room for.
    aside: Aside,
    aside_open: BTreeSet<u64>,
}

/// Whether a delivery is in the sums that are shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Counting {
    Shown,
    /// It is left out: the audit's own traffic, or `$SYS`.
    OwnTraffic,
    /// It is left out: its receiver only verifies what it receives.
    Watcher,
}

impl Counting {
    pub(crate) fn is_shown(self) -> bool {
        self == Self::Shown
    }
}

/// What leaving revealed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct OutOfTurn {
    pub(super) kind: FaultKind,
    pub(super) first: u64,
    pub(super) count: u64,
}

impl Account {
    /// The client connects, and announces that it only verifies what it receives, or does not.
    pub(super) fn set_watcher(&mut self, is_watcher: bool) {
        self.is_watcher = is_watcher;
    }

    pub(super) fn is_watcher(&self) -> bool {
        self.is_watcher
    }

    /// How a delivery is counted that is to be accepted.
    #[inline]
    pub(super) fn counting_of(&self, topics: &Topics, topic: &str) -> Counting {
        if topics.is_aside(topic) {
            Counting::OwnTraffic
        } else if self.is_watcher {
            Counting::Watcher
        } else {
            Counting::Shown
        }
    }

    /// A delivery of QoS 0 was sent.
    #[inline]
    pub(super) fn sent_qos0(&mut self, totals: &mut AuditTotals, counting: Counting) {
        self.expect(totals, 1);
        self.sent_qos0 += 1;
        self.in_window += 1;
        totals.sent += 1;
        totals.sent_qos0 += 1;
        if !counting.is_shown() {
            self.sent_qos0_aside(totals, counting);
        }
    }

    #[cold]
    fn sent_qos0_aside(&mut self, totals: &mut AuditTotals, counting: Counting) {
        self.expect_aside(totals, counting, 1);
        self.aside(totals, |aside| {
            aside.sent += 1;
            aside.sent_qos0 += 1;
        });
    }

    /// A delivery is dropped where it was to be accepted.
    pub(super) fn refused_entry(&mut self, totals: &mut AuditTotals, counting: Counting) {
        self.in_window += 1;
        self.refuse(totals, counting, 1);
    }

    /// So many deliveries are dropped that were to be accepted when they were read from the disk.
    /// Answers how many of them are in no sum that is shown.
    pub(super) fn refused_entries(&mut self, totals: &mut AuditTotals, count: u64) -> u64 {
        let counting = if self.is_watcher {
            Counting::Watcher
        } else {
            Counting::Shown
        };
        self.refuse(totals, counting, count);
        if counting.is_shown() { 0 } else { count }
    }

    fn refuse(&mut self, totals: &mut AuditTotals, counting: Counting, count: u64) {
        self.expect(totals, count);
        self.dropped += count;
        totals.dropped += count;
        totals.refused += count;
        if !counting.is_shown() {
            self.expect_aside(totals, counting, count);
            self.aside(totals, |aside| {
                aside.dropped += count;
                aside.refused += count;
            });
        }
    }

    /// The delivery that was accepted last may have been sent, by an earlier run.
    pub(super) fn sent_before(&mut self, totals: &mut AuditTotals, counting: Counting) {
        self.sent += 1;
        self.left += 1;
        totals.sent += 1;
        if !counting.is_shown() {
            self.aside(totals, |aside| aside.sent += 1);
        }
    }

    /// A delivery is accepted; its number.
    #[inline]
    pub(super) fn accept(&mut self, totals: &mut AuditTotals, counting: Counting) -> u64 {
        self.expect(totals, 1);
        let number = self.accepted;
        self.accepted += 1;
        if !counting.is_shown() {
            self.accept_aside(totals, counting, number);
        }
        number
    }

    #[cold]
    fn accept_aside(&mut self, totals: &mut AuditTotals, counting: Counting, number: u64) {
        self.expect_aside(totals, counting, 1);
        let rare = self.rare.get_or_insert_default();
        rare.aside_open.insert(number);
    }

    #[inline]
    fn expect(&mut self, totals: &mut AuditTotals, count: u64) {
        self.expected += count;
        totals.expected += count;
    }

    fn expect_aside(&mut self, totals: &mut AuditTotals, counting: Counting, count: u64) {
        if counting == Counting::Watcher {
            totals.to_watchers += count;
        }
        self.aside(totals, |aside| aside.expected += count);
    }

    /// Counts apart what is left out of what is shown.
    #[cold]
    fn aside(&mut self, totals: &mut AuditTotals, count: impl Fn(&mut Aside)) {
        count(&mut totals.aside);
        count(&mut self.rare.get_or_insert_default().aside);
    }

    /// A fault was named among its deliveries.
    pub(super) fn note_fault(&mut self) {
        self.is_faulty = true;
    }

    /// The number of the next delivery that is accepted.
    pub(super) fn next(&self) -> u64 {
        self.accepted
    }

    /// The number of the next delivery that is to leave.
    pub(super) fn due(&self) -> u64 {
        self.left
    }

    /// One of those acknowledged has been processed.
    pub(super) fn note_processed(&mut self) {
        self.rare.get_or_insert_default().processed += 1;
    }

    /// One is not delivered, for this reason.
    pub(super) fn note_reason(&mut self, reason: DropReason) {
        let dropped = &mut self.rare.get_or_insert_default().dropped;
        match dropped.iter_mut().find(|(other, _)| *other == reason) {
            Some((_, count)) => *count += 1,
            None => dropped.push((reason, 1)),
        }
    }

    /// All of it, as it is published. `unstored`: accepted and not on disk.
    pub(super) fn write(&self, unstored: u64, object: Object) -> Object {
        let rare = self.rare.as_deref();
        let aside = rare.map_or(Aside::default(), |rare| rare.aside);
        let accepted = self.accepted - aside.accepted();
        let mut dropped = Object::new();
        for (reason, count) in rare.map_or(&[][..], |rare| &rare.dropped) {
            dropped = dropped.number(reason.name(), *count);
        }
        let windows = Object::new()
            .number("proven", self.windows_proven)
            .number("faulty", self.windows_faulty);
        object
            .number("expected", self.expected - aside.expected)
            .number("stored", accepted.saturating_sub(unstored))
            .number("handed_to_network", self.sent_qos0 - aside.sent_qos0)
            .number("sent", self.sent - (aside.sent - aside.sent_qos0))
            .number("acknowledged", self.acknowledged - aside.acknowledged)
            .number("processed", rare.map_or(0, |rare| rare.processed))
            .number("waiting", self.waiting().saturating_sub(aside.waiting()))
            .number(
                "in_flight",
                self.in_flight()
                    .unwrap_or(0)
                    .saturating_sub(aside.in_flight()),
            )
            .number("handed_on", self.handed_on() - aside.handed_on)
            .number("given_up", self.given_up() - aside.given_up)
            .raw("dropped", dropped.end())
            .raw("windows", windows.end())
    }

    /// Whether a window is full, and the law is to be looked at.
    pub(super) fn window_is_full(&self) -> bool {
        self.in_window >= WINDOW
    }

    /// A window is full, and the law is broken by so much: counts what the window came to.
    pub(super) fn end_window(&mut self, totals: &mut AuditTotals, imbalance: u64) {
        self.in_window = 0;
        if std::mem::take(&mut self.is_faulty) || imbalance > 0 {
            self.windows_faulty += 1;
            totals.windows_faulty += 1;
        } else {
            self.windows_proven += 1;
            totals.windows_proven += 1;
        }
    }

    /// The session has ended, and its last window. `unacknowledged`: something was sent that will
    /// not be acknowledged.
    pub(super) fn end_last_window(&mut self, totals: &mut AuditTotals, unacknowledged: bool) {
        if std::mem::take(&mut self.in_window) == 0 {
            return;
        }
        *match (std::mem::take(&mut self.is_faulty), unacknowledged) {
            (true, _) => &mut totals.windows_faulty,
            (false, true) => &mut totals.windows_unproven,
            (false, false) => &mut totals.windows_proven,
        } += 1;
    }

    /// Adds to these sums what waits and what is in flight.
    pub(super) fn add_open(&self, open: &mut Open) {
        open.waiting += self.waiting();
        open.in_flight += self.in_flight().unwrap_or(0);
        if let Some(rare) = &self.rare {
            open.aside_waiting += rare.aside.waiting();
            open.aside_in_flight += rare.aside.in_flight();
        }
    }

    /// Accepted and not sent.
    fn waiting(&self) -> u64 {
        let ahead = self.rare.as_ref().map_or(0, |rare| rare.ahead.len());
        self.accepted - self.left - ahead as u64
    }

    /// Sent and not acknowledged. `None` if more ended than was sent.
    fn in_flight(&self) -> Option<u64> {
        self.sent.checked_sub(self.acknowledged + self.given_up())
    }

    fn handed_on(&self) -> u64 {
        self.rare.as_ref().map_or(0, |rare| rare.handed_on)
    }

    fn given_up(&self) -> u64 {
        self.rare.as_ref().map_or(0, |rare| rare.given_up)
    }

    fn leave(&mut self, number: u64, may_overtake: bool) -> Option<OutOfTurn> {
        if number == self.left {
            self.left += 1;
            self.catch_up();
            return None;
        }
        self.leave_out_of_turn(number, may_overtake)
    }

    /// Those that went ahead and are due now have left.
    fn catch_up(&mut self) {
        let Some(rare) = &mut self.rare else {
            return;
        };
        while !rare.ahead.is_empty() && rare.ahead.remove(&self.left) {
            self.left += 1;
        }
    }

    #[cold]
    fn leave_out_of_turn(&mut self, number: u64, may_overtake: bool) -> Option<OutOfTurn> {
        let rare = self.rare.get_or_insert_default();
        if number > self.left && !rare.ahead.contains(&number) {
            if may_overtake {
                rare.ahead.insert(number);
                return None;
            }
            let (first, accepted) = (self.left, self.accepted);
            let later = rare.ahead.split_off(&number);
            let ahead = std::mem::replace(&mut rare.ahead, later);
            let count = number - first - ahead.len() as u64;
            let room = MISSING_MAX.saturating_sub(rare.missing.len());
            let passed_over = (first..number).filter(|number| !ahead.contains(number));
            rare.missing.extend(passed_over.take(room));
            self.left = number + 1;
            self.accepted = accepted.max(self.left);
            self.catch_up();
            return Some(OutOfTurn {
                kind: FaultKind::Lost,
                first,
                count,
            });
        }
        let late = rare.missing.iter().position(|missing| *missing == number);
        let kind = if let Some(at) = late {
            rare.missing.swap_remove(at);
            FaultKind::Reordered
        } else {
            FaultKind::Duplicated
        };
        Some(OutOfTurn {
            kind,
            first: number,
            count: 1,
        })
    }

    /// By how much the law is broken: 0 if it holds. `there`: deliveries in the queue and in the
    /// table of packet ids.
    pub(super) fn imbalance(&self, there: u64) -> u64 {
        let ended = self.sent_qos0 + self.sent + self.waiting() + self.dropped + self.handed_on();
        let Some(in_flight) = self.in_flight() else {
            return self.acknowledged + self.given_up() - self.sent;
        };
        self.expected.abs_diff(ended) + (self.waiting() + in_flight).abs_diff(there)
    }
}

/// What the accounts of all sessions come to.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Open {
    waiting: u64,
    in_flight: u64,
    aside_waiting: u64,
    aside_in_flight: u64,
}

impl Open {
    /// By how much the totals do not come to it.
    pub(crate) fn imbalance(&self, totals: &AuditTotals) -> u64 {
        let gone = totals.sent + totals.dropped + totals.handed_on;
        let ended = totals.sent_qos0 + totals.acknowledged + totals.given_up;
        totals.aside.waiting().abs_diff(self.aside_waiting)
            + totals.aside.in_flight().abs_diff(self.aside_in_flight)
            + totals.expected.abs_diff(gone + self.waiting)
            + totals.sent.abs_diff(ended + self.in_flight)
    }
}

/// What becomes of an accepted delivery.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    /// Sent, for the first time.
    Sent,
    /// Dropped before it was sent, or handed on to another member of its group.
    Dropped,
    HandedOn,
    /// Acknowledged by its receiver.
    Acknowledged,
    /// Sent, and never to be acknowledged.
    GivenUp,
}

impl Fate {
    /// Of a delivery whose session ends without an acknowledgement.
    pub(crate) fn at_the_end(sent: bool, handed_on: bool) -> Self {
        match (sent, handed_on) {
            (true, _) => Self::GivenUp,
            (false, true) => Self::HandedOn,
            (false, false) => Self::Dropped,
        }
    }
}

impl Account {
    /// Accounts for what became of an accepted delivery.
    pub(super) fn settle(
        &mut self,
        totals: &mut AuditTotals,
        number: u64,
        fate: Fate,
    ) -> Option<OutOfTurn> {
        if self.rare.is_some() {
            self.settle_aside(totals, number, fate);
        }
        match fate {
            Fate::Sent => {
                self.sent += 1;
                totals.sent += 1;
                return self.leave(number, false);
            }
            Fate::Acknowledged => {
                self.acknowledged += 1;
                totals.acknowledged += 1;
            }
            Fate::GivenUp => {
                self.rare.get_or_insert_default().given_up += 1;
                totals.given_up += 1;
            }
            Fate::Dropped => {
                self.dropped += 1;
                totals.dropped += 1;
            }
            Fate::HandedOn => {
                self.rare.get_or_insert_default().handed_on += 1;
                totals.handed_on += 1;
            }
        }
        self.in_window += 1;
        match fate {
            Fate::Dropped | Fate::HandedOn => self.leave(number, true),
            Fate::Sent | Fate::Acknowledged | Fate::GivenUp => None,
        }
    }
}

impl Account {
    /// The same of what is left out of what is shown, if it is that.
    fn settle_aside(&mut self, totals: &mut AuditTotals, number: u64, fate: Fate) {
        let open = self.rare.as_mut().map(|rare| &mut rare.aside_open);
        let Some(open) = open.filter(|open| open.contains(&number)) else {
            return;
        };
        if fate != Fate::Sent {
            open.remove(&number);
        }
        self.aside(totals, |aside| {
            *match fate {
                Fate::Sent => &mut aside.sent,
                Fate::Dropped => &mut aside.dropped,
                Fate::HandedOn => &mut aside.handed_on,
                Fate::Acknowledged => &mut aside.acknowledged,
                Fate::GivenUp => &mut aside.given_up,
            } += 1;
        });
    }
}

/// Deliveries of a window, as everywhere in the audit.
const WINDOW: u32 = 1_024;
/// Numbers remembered as missing; 8 bytes each. Beyond it one that comes late is called a
/// duplicate.
const MISSING_MAX: usize = 1_024;

#[cfg(test)]
mod tests;
