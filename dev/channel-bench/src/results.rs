//! Figures of a row on its peers, and what a table says of them.

use crate::{
    peers::OURS,
    rows::{Row, Size, Unit},
};
use serde::Serialize;

/// One row with all its peers.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct RowResult {
    pub(crate) row: &'static str,
    pub(crate) title: &'static str,
    pub(crate) unit: Unit,
    pub(crate) size: Size,
    pub(crate) cells: Vec<Cell>,
}

/// One peer in one row: less is better.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Cell {
    pub(crate) peer: &'static str,
    pub(crate) figures: Vec<f64>,
    pub(crate) failures: Vec<String>,
}

impl RowResult {
    pub(crate) fn new(row: &Row, peers: Vec<&'static str>) -> Self {
        let cells = peers.into_iter().map(|peer| Cell {
            peer,
            figures: Vec::new(),
            failures: Vec::new(),
        });
        Self {
            row: row.name,
            title: row.title,
            unit: row.unit,
            size: row.size,
            cells: cells.collect(),
        }
    }

    pub(crate) fn median(&self, peer: &str) -> Option<f64> {
        self.cells.iter().find(|cell| cell.peer == peer)?.median()
    }

    /// What the others are divided by: ours, or the best where ours has no figure.
    pub(crate) fn yardstick(&self) -> Option<f64> {
        let best = || {
            let medians = self.cells.iter().filter_map(Cell::median);
            medians.reduce(f64::min)
        };
        self.median(OURS).or_else(best).filter(|value| *value > 0.0)
    }

    pub(crate) fn ratio(&self, cell: &Cell) -> Option<f64> {
        Some(cell.median()? / self.yardstick()?)
    }
}

impl Cell {
    pub(crate) fn keep(&mut self, outcome: Result<f64, String>) {
        match outcome {
            Ok(figure) => self.figures.push(figure),
            Err(why) => self.failures.push(why),
        }
    }

    pub(crate) fn median(&self) -> Option<f64> {
        let mut sorted = self.figures.clone();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        let upper = *sorted.get(middle)?;
        let lower = if sorted.len().is_multiple_of(2) {
            *sorted.get(middle - 1)?
        } else {
            upper
        };
        Some(f64::midpoint(lower, upper))
    }

    pub(crate) fn minimum(&self) -> Option<f64> {
        self.figures.iter().copied().reduce(f64::min)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::ROWS;

    #[test]
    fn ratios_are_to_ours_or_else_to_the_best() {
        let mut result = RowResult::new(&ROWS[0], vec![OURS, "slow", "fast"]);
        for (cell, figure) in result
            .cells
            .iter_mut()
            .zip([[4.0, 8.0], [9.0, 15.0], [3.0, 3.0]])
        {
            cell.figures.extend(figure);
        }
        let ratios = |result: &RowResult| {
            let ratio = |cell| result.ratio(cell);
            result.cells.iter().map(ratio).collect::<Vec<_>>()
        };
        assert_eq!(ratios(&result), [Some(1.0), Some(2.0), Some(0.5)]);
        result.cells[0].figures.clear();
        assert_eq!(ratios(&result), [None, Some(4.0), Some(1.0)]);
    }
}
