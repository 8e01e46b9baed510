//! What ours must reach beside its peers, and whether a run shows that it does.
//!
//! A bar compares medians of one run. A bar that a run has no figures for is not run, never passed.

use crate::{
    peers::{FLOOR, GO, OURS},
    results::RowResult,
};
use serde::Serialize;

/// One demand on one row.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bar {
    row: &'static str,
    need: Need,
}

#[derive(Debug, Clone, Copy)]
enum Need {
    /// At least so many times its rate.
    Rate(f64, Against),
    /// At most so many times its time.
    Time(f64, Against),
    /// At most so many bytes.
    Bytes(f64),
}

#[derive(Debug, Clone, Copy)]
enum Against {
    Peer(&'static str),
    /// Whichever was fastest of these.
    BestOf(&'static [&'static str]),
    /// Whichever was fastest of all that are neither ours nor the floor.
    Best,
}

const ONE_MESSAGE: Against = Against::BestOf(&["oneshot", "tokio", "crossfire"]);

/// Bytes of a pipe besides its largest message, and that message.
const PIPE_BYTES: f64 = 64.0 + 8.0;

pub(crate) const BARS: [Bar; 22] = [
    bar("ping-pong-1", Need::Rate(1.25, Against::Peer("kanal"))),
    bar("ping-pong-2", Need::Rate(1.25, Against::Peer("kanal"))),
    bar("ping-pong-1", Need::Time(1.6, Against::Peer(FLOOR))),
    bar("ping-pong-2", Need::Time(1.4, Against::Peer(FLOOR))),
    bar("ring-1", Need::Rate(1.3, Against::Best)),
    bar("ring-2", Need::Rate(1.0, Against::Best)),
    bar("ring-1", Need::Rate(3.0, Against::Peer("tokio"))),
    bar("ring-2", Need::Rate(3.0, Against::Peer("tokio"))),
    bar("ring-1", Need::Rate(2.4, Against::Peer(GO))),
    bar("ring-2", Need::Rate(2.4, Against::Peer(GO))),
    bar("token-ring", Need::Rate(1.1, Against::Peer("kanal"))),
    bar("msgsend-tasks", Need::Rate(1.35, Against::Peer("kanal"))),
    bar(
        "msgsend-threads",
        Need::Rate(1.0, Against::Peer("crossfire")),
    ),
    bar("msgsend-10000", Need::Rate(1.0, Against::Peer("kanal"))),
    bar("stream-tasks", Need::Rate(1.0, Against::Peer("crossfire"))),
    bar("stream-threads", Need::Rate(1.0, Against::Peer("rtrb"))),
    bar("ping-pong-threads", Need::Time(1.3, Against::Peer(FLOOR))),
    bar("ring-threads", Need::Time(1.2, Against::Peer("kanal"))),
    bar("whispers-1", Need::Time(1.1, ONE_MESSAGE)),
    bar("whispers-2", Need::Time(1.1, ONE_MESSAGE)),
    bar("whispers-1", Need::Rate(3.0, Against::Peer(GO))),
    bar("idle-pipe", Need::Bytes(PIPE_BYTES)),
];

const fn bar(row: &'static str, need: Need) -> Bar {
    Bar { row, need }
}

/// How a bar stands.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Standing {
    pub(crate) row: &'static str,
    /// In words.
    pub(crate) need: String,
    /// As the need is put: a rate, a time or bytes.
    pub(crate) reached: Option<f64>,
    pub(crate) verdict: Verdict,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Verdict {
    Passed,
    Missed,
    NotRun,
}

/// All bars of the rows that were run.
pub(crate) fn standings(results: &[RowResult]) -> Vec<Standing> {
    let of_bar = |bar: Bar| {
        let result = results.iter().find(|result| result.row == bar.row)?;
        Some(bar.standing(result))
    };
    BARS.into_iter().filter_map(of_bar).collect()
}

impl Bar {
    fn standing(self, result: &RowResult) -> Standing {
        let ours = result.median(OURS);
        let times = |against: Against| {
            let (peer, other) = against.find(result)?;
            Some((peer, ours?, other))
        };
        let (need, reached) = match self.need {
            Need::Rate(least, against) => {
                let found = times(against);
                let words = against.words(found.map(|(peer, ..)| peer));
                let reached = found.map(|(_, ours, other)| (other / ours, other / ours >= least));
                (format!("at least {least:.2}x the rate of {words}"), reached)
            }
            Need::Time(most, against) => {
                let found = times(against);
                let words = against.words(found.map(|(peer, ..)| peer));
                let reached = found.map(|(_, ours, other)| (ours / other, ours / other <= most));
                (format!("at most {most:.2}x the time of {words}"), reached)
            }
            Need::Bytes(most) => {
                let reached = ours.map(|ours| (ours, ours <= most));
                (format!("at most {most:.0} bytes"), reached)
            }
        };
        let verdict = match reached {
            None => Verdict::NotRun,
            Some((_, true)) => Verdict::Passed,
            Some((_, false)) => Verdict::Missed,
        };
        Standing {
            row: self.row,
            need,
            reached: reached.map(|(value, _)| value),
            verdict,
        }
    }
}

impl Against {
    /// Who that was, and its median.
    fn find(self, result: &RowResult) -> Option<(&'static str, f64)> {
        let is_meant = |peer: &str| match self {
            Self::Peer(name) => peer == name,
            Self::BestOf(names) => names.contains(&peer),
            Self::Best => peer != OURS && peer != FLOOR,
        };
        let cells = result.cells.iter().filter(|cell| is_meant(cell.peer));
        let medians = cells.filter_map(|cell| Some((cell.peer, cell.median()?)));
        medians.min_by(|(_, one), (_, other)| one.total_cmp(other))
    }

    fn words(self, found: Option<&str>) -> String {
        match (self, found) {
            (Self::Peer(FLOOR), _) => "the floor".to_owned(),
            (Self::Peer(name), _) => name.to_owned(),
            (Self::BestOf(_) | Self::Best, Some(found)) => format!("the best peer, {found}"),
            (Self::BestOf(_) | Self::Best, None) => "the best peer".to_owned(),
        }
    }
}

impl Verdict {
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Missed => "**missed**",
            Self::NotRun => "not run",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::{self, ROWS};

    fn result(row: &str, figures: &[(&'static str, f64)]) -> RowResult {
        let row = rows::choose(&[row.to_owned()]).unwrap()[0];
        let mut result = RowResult::new(&row, figures.iter().map(|(peer, _)| *peer).collect());
        for (cell, (_, figure)) in result.cells.iter_mut().zip(figures) {
            cell.figures.push(*figure);
        }
        result
    }

    #[track_caller]
    fn check(row: &str, figures: &[(&'static str, f64)], expect: &[(Verdict, &str)]) {
        let standings = standings(&[result(row, figures)]);
        let found: Vec<_> = standings
            .iter()
            .map(|standing| (standing.verdict, standing.need.as_str()))
            .collect();
        assert_eq!(found, expect);
    }

    #[test]
    fn a_bar_is_passed_at_its_ratio_and_missed_below() {
        let need = "at least 1.10x the rate of kanal";
        let row = "token-ring";
        check(
            row,
            &[(OURS, 10.0), ("kanal", 11.0)],
            &[(Verdict::Passed, need)],
        );
        check(
            row,
            &[(OURS, 10.0), ("kanal", 10.9)],
            &[(Verdict::Missed, need)],
        );
        check(row, &[("kanal", 11.0)], &[(Verdict::NotRun, need)]);
    }

    #[test]
    fn time_and_bytes_are_limits_from_above() {
        let row = "ping-pong-threads";
        let need = "at most 1.30x the time of the floor";
        check(
            row,
            &[(OURS, 13.0), (FLOOR, 10.0)],
            &[(Verdict::Passed, need)],
        );
        check(
            row,
            &[(OURS, 13.1), (FLOOR, 10.0)],
            &[(Verdict::Missed, need)],
        );
        let need = "at most 72 bytes";
        check("idle-pipe", &[(OURS, 72.0)], &[(Verdict::Passed, need)]);
        check("idle-pipe", &[(OURS, 80.0)], &[(Verdict::Missed, need)]);
    }

    #[test]
    fn the_best_peer_is_neither_ours_nor_the_floor() {
        let need = "at most 1.10x the time of the best peer, tokio";
        let figures = [
            (OURS, 11.0),
            (FLOOR, 1.0),
            ("kanal", 2.0),
            ("tokio", 10.0),
            ("oneshot", 12.0),
        ];
        check("whispers-2", &figures, &[(Verdict::Passed, need)]);
    }

    #[test]
    fn every_row_has_a_bar_and_every_bar_a_row() {
        for row in ROWS {
            assert!(BARS.iter().any(|bar| bar.row == row.name), "{}", row.name);
        }
        for bar in BARS {
            assert!(ROWS.iter().any(|row| row.name == bar.row), "{}", bar.row);
        }
    }
}
