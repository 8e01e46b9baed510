//! The strip: what was proven in each second that had traffic, one cell a second at most.

use std::collections::VecDeque;

use serde::Serialize;
use utoipa::ToSchema;

use super::flow::Flow;
use super::incident::Severity;
use super::now::Windows;
use crate::limits::CELLS_MAX;
use crate::time::Moment;

/// What is known of the messages of a second.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verdict {
    /// Every delivery that was expected by the end of it is made.
    Proven,
    /// Deliveries were under way at its end.
    Open,
    /// Messages were dropped by name or never acknowledged, or a window ended unproven.
    Unproven,
    /// A fault or a red incident was named.
    Faulty,
    /// The broker did not run, or did not answer.
    Unknown,
}

/// One second with traffic.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Cell {
    /// Its end.
    #[schema(value_type = String)]
    pub(crate) at: Moment,
    pub(crate) state: Verdict,
    pub(crate) published: u64,
    pub(crate) expected: u64,
    pub(crate) delivered: u64,
    pub(crate) dropped: u64,
    /// Sent, and never to be acknowledged.
    pub(crate) given_up: u64,
    pub(crate) faults: u64,
    pub(crate) windows: Windows,
    /// Of the incident that was named last in it.
    pub(crate) incident: Option<u64>,
}

/// The newest cells.
#[derive(Debug, Default)]
pub(crate) struct Strip(VecDeque<Cell>);

impl Strip {
    /// Adds what has come since the last cell, if anything did.
    pub(crate) fn add(
        &mut self,
        at: Moment,
        (before, now): (&Flow, &Flow),
        (windows_before, windows_now): (Windows, Windows),
        named: Option<(u64, Severity)>,
    ) {
        let of = |now: u64, before: u64| now.saturating_sub(before);
        let windows = Windows {
            proven: of(windows_now.proven, windows_before.proven),
            faulty: of(windows_now.faulty, windows_before.faulty),
            unproven: of(windows_now.unproven, windows_before.unproven),
        };
        let mut cell = Cell {
            at,
            state: Verdict::Open,
            published: of(now.received, before.received),
            expected: of(now.expected, before.expected),
            delivered: of(now.delivered, before.delivered),
            dropped: of(now.dropped, before.dropped),
            given_up: of(now.given_up, before.given_up),
            faults: of(now.faults, before.faults),
            windows,
            incident: named.map(|(id, _)| id),
        };
        let counts = [
            cell.published,
            cell.expected,
            cell.delivered,
            cell.dropped,
            cell.given_up,
            cell.faults,
        ];
        let is_quiet = counts.iter().all(|count| *count == 0) && windows == Windows::default();
        if is_quiet && named.is_none() {
            return;
        }
        let is_red = named.is_some_and(|(_, severity)| severity == Severity::Red);
        cell.state = match () {
            // A faulty window is reported with each of its checkpoints; its faults only once.
            () if cell.faults > 0 || is_red => Verdict::Faulty,
            () if cell.dropped + cell.given_up + windows.unproven > 0 => Verdict::Unproven,
            () if now.open == 0 => Verdict::Proven,
            () => Verdict::Open,
        };
        self.push(cell);
    }

    /// Nothing is known of the time before this.
    pub(crate) fn unknown(&mut self, at: Moment) {
        self.push(Cell {
            at,
            state: Verdict::Unknown,
            published: 0,
            expected: 0,
            delivered: 0,
            dropped: 0,
            given_up: 0,
            faults: 0,
            windows: Windows::default(),
            incident: None,
        });
    }

    fn push(&mut self, cell: Cell) {
        if self.0.len() >= CELLS_MAX {
            self.0.pop_front();
        }
        self.0.push_back(cell);
    }

    /// So many of the newest, the newest last.
    pub(crate) fn newest(&self, count: usize) -> Vec<Cell> {
        let skipped = self.0.len().saturating_sub(count);
        self.0.iter().skip(skipped).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_is_proven_when_nothing_of_it_is_open() {
        let mut strip = Strip::default();
        let none = Flow::default();
        let flow = |expected, delivered, open| Flow {
            received: expected,
            expected,
            delivered,
            open,
            ..none
        };
        let windows = Windows::default();
        let states = |strip: &Strip| -> Vec<Verdict> {
            strip.newest(9).iter().map(|cell| cell.state).collect()
        };
        strip.add(Moment(1), (&none, &none), (windows, windows), None);
        assert_eq!(states(&strip), []);
        strip.add(Moment(2), (&none, &flow(3, 3, 0)), (windows, windows), None);
        strip.add(
            Moment(3),
            (&flow(3, 3, 0), &flow(5, 4, 1)),
            (windows, windows),
            None,
        );
        let dropped = Flow {
            dropped: 1,
            ..flow(5, 4, 0)
        };
        strip.add(
            Moment(4),
            (&flow(5, 4, 1), &dropped),
            (windows, windows),
            None,
        );
        let faulty = Flow {
            faults: 1,
            ..dropped
        };
        strip.add(Moment(5), (&dropped, &faulty), (windows, windows), None);
        let mut add = |at, flows, proven, named| {
            let after = Windows { proven, ..windows };
            strip.add(Moment(at), flows, (windows, after), named);
        };
        // A window of one lane says nothing of deliveries of others.
        let open = flow(6, 4, 1);
        add(6, (&faulty, &open), 1, None);
        let given_up = Flow {
            given_up: 1,
            ..flow(6, 4, 0)
        };
        add(7, (&open, &given_up), 0, None);
        add(8, (&given_up, &given_up), 0, Some((1, Severity::Red)));
        add(9, (&given_up, &given_up), 1, None);
        let expected = [
            Verdict::Proven,
            Verdict::Open,
            Verdict::Unproven,
            Verdict::Faulty,
            Verdict::Open,
            Verdict::Unproven,
            Verdict::Faulty,
            Verdict::Proven,
        ];
        assert_eq!(states(&strip), expected);
    }
}
