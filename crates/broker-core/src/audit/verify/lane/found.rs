//! What the ledger of a lane finds: counted, reported to those who watch the lane, and logged.

use std::ops::Range;
use std::sync::Arc;

use unbroken_merkle_log::ledger::limits::WINDOW;
use unbroken_merkle_log::ledger::{Account, Event as Found, State};
use unbroken_merkle_log::{Epoch, LaneId};

use super::Lane;
use crate::audit::json::Object;
use crate::audit::watch::Watch;
use crate::reason::{DropReason, FaultKind};
use crate::telemetry::{Event, PublishersTotals, Telemetry};

/// A fault of a publisher's lane.
pub(in super::super) struct Fault {
    kind: FaultKind,
    first: u64,
    count: u64,
}

impl Lane {
    /// Reports that a part of it is judged, and how much that is.
    pub(in super::super) fn report_part(&self, (lane, epoch): (LaneId, Epoch), watch: &mut Watch) {
        let out_of_scope = self.ledger.scope_start();
        let by_rules = "rules leave out some of its messages, so nothing of it is called lost";
        let late = format!(
            "numbers below {out_of_scope} are out of scope: the lane was under way before this \
             broker"
        );
        let words = match (self.is_in_part(), out_of_scope) {
            (true, 0) => by_rules.to_owned(),
            (true, _) => format!("{by_rules}; {late}"),
            (false, _) => late,
        };
        let object = Object::new()
            .text("lane", &lane.to_string())
            .number("epoch", epoch.0)
            .text("client", &self.owner.client_id)
            .text("state", "part")
            .number("messages", self.seen)
            .number("left_out", self.left_out)
            .number("out_of_scope", out_of_scope)
            .text("words", &words);
        watch.report_on_lane(lane, "state", object);
    }

    pub(in super::super) fn report_refused(
        &self,
        (lane, epoch): (LaneId, Epoch),
        number: u64,
        reason: DropReason,
        watch: &mut Watch,
        telemetry: &mut Telemetry,
    ) {
        telemetry.audit().publishers.refused += 1;
        let object = Object::new()
            .text("lane", &lane.to_string())
            .number("epoch", epoch.0)
            .text("client", &self.owner.client_id)
            .number("first", number)
            .number("count", 1_u64)
            .text("reason", reason.name())
            .text(
                "words",
                &format!("number {number}: refused, {}", reason.name()),
            );
        watch.report_on_lane(lane, "refused", object);
    }

    /// Counts and reports what the ledger has found.
    pub(in super::super) fn take_events(
        &mut self,
        key: (LaneId, Epoch),
        watch: &mut Watch,
        telemetry: &mut Telemetry,
    ) {
        for event in self.ledger.take_events() {
            let totals = &mut telemetry.audit().publishers;
            let fault = match event {
                Found::Lost { .. } if self.is_in_part() => continue,
                Found::Lost { numbers, .. } if numbers.end <= self.may_have_come => continue,
                Found::Lost { numbers, .. } => {
                    let first = numbers.start.max(self.may_have_come);
                    Fault::of(FaultKind::Lost, &(first..numbers.end))
                }
                Found::Moved(moved) if moved.numbers.start < self.may_have_come => continue,
                Found::Moved(moved) => Fault::of(FaultKind::Reordered, &moved.numbers),
                Found::Injected { number, copies } => {
                    Fault::new(FaultKind::Injected, number, copies.into())
                }
                Found::Forged(numbers) | Found::ForgedAmong(numbers) => {
                    Fault::of(FaultKind::Forged, &numbers)
                }
                // Each window once, not with each of its checkpoints.
                Found::RootDiffers(numbers) if self.differs == Some(numbers.start) => continue,
                Found::RootDiffers(numbers) => {
                    self.differs = Some(numbers.start);
                    Fault::of(FaultKind::RootDiffers, &numbers)
                }
                Found::CheckpointContradicts(number) => {
                    Fault::new(FaultKind::Contradicted, number.into(), 1)
                }
                Found::EndContradicted { number, .. } => {
                    Fault::new(FaultKind::EndContradicted, number, 1)
                }
                Found::TwoProducers => Fault::new(FaultKind::TwoProducers, 0, 1),
                Found::Window {
                    numbers,
                    state,
                    account,
                } => {
                    self.report_window(key, &numbers, state, account, watch, telemetry);
                    continue;
                }
                Found::OutOfScope(_) => {
                    totals.lanes_joined_late += 1;
                    self.report_part(key, watch);
                    continue;
                }
                Found::OtherWindows(_) => {
                    totals.unaudited += 1;
                    continue;
                }
                Found::Unnamed(count) => {
                    totals.unaudited = totals.unaudited.saturating_add(count);
                    continue;
                }
                // No fault, not yet one, or named already: of two copies the second as injected.
                Found::Suspected(_)
                | Found::Settled
                | Found::Overtaken { .. }
                | Found::Decided { .. }
                | Found::DropContradicted(_)
                | Found::CheckpointsMissed(_)
                | Found::Silent(_)
                | Found::Heard(_)
                | Found::Forgotten(_)
                | Found::Unlisted => continue,
            };
            self.report_fault(key, &fault, None, watch, telemetry);
        }
    }

    /// `topic`: of the message that shows the fault, if there is one.
    pub(in super::super) fn report_fault(
        &mut self,
        (lane, epoch): (LaneId, Epoch),
        fault: &Fault,
        topic: Option<&str>,
        watch: &mut Watch,
        telemetry: &mut Telemetry,
    ) {
        let Fault { kind, first, count } = *fault;
        if kind == FaultKind::Lost {
            self.proof.lost = self.proof.lost.saturating_add(count);
            self.losses.add(first, count);
        }
        telemetry.audit().publishers.count(kind, count);
        let object = Object::new()
            .text("lane", &lane.to_string())
            .number("epoch", epoch.0)
            .text("kind", kind.name())
            .text("place", "before the broker")
            .text("client", &self.owner.client_id)
            .number("first", first)
            .number("count", count)
            .text_if("topic", topic)
            .text("words", &fault.words());
        watch.report_on_lane(lane, "fault", object);
        telemetry.report(Event::PublisherFault {
            client_id: Arc::clone(&self.owner.client_id),
            lane: lane.value(),
            epoch: epoch.0,
            kind,
            first,
            count,
            topic: topic.map(Into::into),
        });
    }

    fn report_window(
        &mut self,
        (lane, epoch): (LaneId, Epoch),
        numbers: &Range<u64>,
        mut state: State,
        mut account: Account,
        watch: &mut Watch,
        telemetry: &mut Telemetry,
    ) {
        let may_have_come = self.is_in_part() || numbers.start < self.may_have_come;
        if may_have_come && account.lost > 0 {
            state = State::Unproven;
            account.open = account
                .open
                .saturating_add(std::mem::take(&mut account.lost));
        }
        let totals = &mut telemetry.audit().publishers;
        let (count, at, word) = match state {
            State::Proven => (&mut totals.windows_proven, 0, "proven"),
            State::Faulty => (&mut totals.windows_faulty, 1, "faulty"),
            State::Unproven => (&mut totals.windows_unproven, 2, "unproven"),
        };
        *count += 1;
        self.proof.note_window(numbers.start, at);
        let object = Object::new()
            .text("lane", &lane.to_string())
            .number("epoch", epoch.0)
            .number("first", numbers.start)
            .number("size", numbers.end)
            .text("state", word)
            .number("issued", account.issued)
            .number("arrived", account.arrived)
            .number("refused", account.dropped)
            .number("lost", account.lost)
            .number("altered", account.altered + account.forged)
            .number("out_of_scope", self.ledger.scope_start());
        watch.report_on_lane(lane, "window", object);
    }
}

impl Fault {
    pub(in super::super) fn new(kind: FaultKind, first: u64, count: u64) -> Self {
        Self { kind, first, count }
    }

    fn of(kind: FaultKind, numbers: &Range<u64>) -> Self {
        Self::new(kind, numbers.start, numbers.end - numbers.start)
    }

    fn words(&self) -> String {
        let Self { kind, first, count } = self;
        match kind {
            FaultKind::RootDiffers => format!("window {}: root differs", first / WINDOW),
            FaultKind::Contradicted => format!("checkpoint {first}: contradicts another"),
            FaultKind::EndContradicted => {
                format!("number {first}: beyond the end that a checkpoint told")
            }
            FaultKind::TwoProducers => {
                "two producers use the lane, or messages of it are forged".to_owned()
            }
            FaultKind::Repeated => {
                format!("number {first}: repeated, its content was not compared with the first")
            }
            FaultKind::Forged if *count > 1 => {
                format!("one of {count} numbers from {first} on, at least: forged")
            }
            _ if *count == 1 => format!("number {first}: {}", kind.name()),
            _ => format!("{count} numbers from {first} on: {}", kind.name()),
        }
    }
}

impl PublishersTotals {
    fn count(&mut self, kind: FaultKind, count: u64) {
        match kind {
            FaultKind::Lost => self.lost = self.lost.saturating_add(count),
            FaultKind::Duplicated => self.duplicated = self.duplicated.saturating_add(count),
            FaultKind::Repeated => self.repeated = self.repeated.saturating_add(count),
            FaultKind::Reordered => self.reordered = self.reordered.saturating_add(count),
            FaultKind::Altered => self.altered = self.altered.saturating_add(count),
            FaultKind::Injected | FaultKind::Unbalanced => {
                self.injected = self.injected.saturating_add(count);
            }
            FaultKind::Intruded => self.intruded = self.intruded.saturating_add(count),
            FaultKind::Forged => self.forged += 1,
            FaultKind::RootDiffers => self.roots_differing += 1,
            FaultKind::Contradicted | FaultKind::EndContradicted | FaultKind::TwoProducers => {
                self.contradicted += 1;
            }
        }
    }
}
