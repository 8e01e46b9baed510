//! What a run says of each bar: ours, the best peer's, passed or missed.
//!
//! A peer to which something went missing is not the best in anything. What cannot be measured,
//! because the yardstick or every peer is missing, is not passed. Nor is a latency where the load
//! generator had no time left: it is then of the generator, not of the broker; and a rate that is
//! missed there is not the broker's either. Nor is a rate passed against a peer that the generator
//! held back. Of a run that is too short nothing is passed.

use std::{borrow::Cow, fmt};

use serde::Serialize;
use unbroken_load::grouped;

use crate::{
    bars::{
        Against, BARS, CROSS_CHECK, Demand, LATENCY_SECONDS, LEAST_CPU, MOST_MESSAGES, NOTED_ON,
        Noted, ROUNDS, RowBars,
    },
    cross_check::{self, BROKER_CPU, Check, Found, RATE},
    figure::Bar,
    outcome::{BUSY, Because, Outcome, Quantity},
    peer::{FLASHMQ, MOSQUITTO_2_1, OURS, Role, YARDSTICK},
    results::{Cell, Kind, RowResult, Spread},
};

/// One bar of one row.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Verdict {
    pub(crate) row: &'static str,
    what: Cow<'static, str>,
    ours: Option<Spread>,
    bar: Bar,
    best: Option<Best>,
    outcome: Outcome,
    /// Of peers that were not in the run.
    noted: Vec<(&'static str, f64)>,
}

/// The peer that is best in a figure.
#[derive(Debug, Clone, Copy, Serialize)]
struct Best {
    peer: &'static str,
    /// As the bar is: a ratio, or the figure itself.
    value: f64,
}

/// All bars of the rows of a run, in their order, and then those of programs that are not ours.
pub(crate) fn judge(rows: &[RowResult], checks: &[Check]) -> Vec<Verdict> {
    let foreign = checks.iter().flat_map(|check| judge_check(check, rows));
    rows.iter().flat_map(judge_row).chain(foreign).collect()
}

fn judge_check(check: &Check, rows: &[RowResult]) -> Vec<Verdict> {
    let Some(ours) = check.cell(OURS) else {
        return Vec::new();
    };
    let mut verdicts = Vec::new();
    if let Some(row) = rows.iter().find(|row| Some(row.row) == check.row) {
        let dearer = check.dearer(ours, rows);
        let what = format!(
            "CPU to Mosquitto's, divided by the same with our own generator in {}",
            row.row
        );
        verdicts.push(Verdict::new(check.label, what, dearer, CROSS_CHECK));
    }
    verdicts.push(lead(check, ours, CPU_TO_BEST, BROKER_CPU, LEAST_CPU));
    let mut rate = lead(check, ours, RATE_TO_BEST, RATE, MOST_MESSAGES);
    if ours.is_client_busy() {
        rate.outcome = rate.outcome.held_back(Quantity::Rate, Because::Client);
    }
    if check.others().any(cross_check::Cell::is_client_busy) {
        rate.outcome = rate
            .outcome
            .other_held_back(Quantity::Rate, Because::Client);
    }
    verdicts.push(rate);
    let judged = verdicts.into_iter().map(Verdict::of_enough_rounds);
    if ours.is_clean() {
        return judged.collect();
    }
    // Who does not come to its end leads in nothing, in however many rounds it did before.
    let outcome = Outcome::Missed;
    let missed = judged.map(|verdict| Verdict { outcome, ..verdict });
    missed.collect()
}

const CPU_TO_BEST: &str = "CPU of a delivery, to the best peer's";
const RATE_TO_BEST: &str = "messages/s, to the best peer's";

/// Ours to the best of the others, with a program that is not ours.
fn lead(
    check: &Check,
    ours: &cross_check::Cell,
    what: &'static str,
    figure: Found,
    bar: Bar,
) -> Verdict {
    let others = check.others();
    let best = better(
        bar,
        others.filter_map(|cell| Some((cell, cell.median(figure)?))),
    );
    let ratio = best.and_then(|(best, _)| Check::ratio(ours, best, figure));
    let best = best.map(|(cell, value)| Best {
        peer: cell.peer,
        value,
    });
    Verdict {
        best,
        ..Verdict::new(check.label, what, ratio, bar)
    }
}

/// The one whose value is best by such a bar.
fn better<T>(bar: Bar, values: impl Iterator<Item = (T, f64)>) -> Option<(T, f64)> {
    let by_value = |a: &(T, f64), b: &(T, f64)| a.1.total_cmp(&b.1);
    match bar {
        Bar::AtLeast(_) => values.max_by(by_value),
        Bar::AtMost(_) => values.min_by(by_value),
    }
}

fn judge_row(row: &RowResult) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    if let (Some(ours), Some(bars)) = (row.cell(OURS), bars(row)) {
        let is_brief = is_brief(row.kind, ours);
        verdicts.extend(bars.demands.iter().map(|demand| {
            let verdict = demand.judge(row, ours).of_enough_rounds();
            if is_brief {
                verdict.in_short()
            } else {
                verdict
            }
        }));
        verdicts.push(Verdict::new(
            row.row,
            "runs that failed, or in which a message was lost, repeated, out of order or altered, or a \
             silent connection did not stay so",
            Some(Spread::one(number(ours.faulty_runs()))),
            Bar::AtMost(0.0),
        ));
    }
    verdicts
}

fn bars(row: &RowResult) -> Option<&'static RowBars> {
    BARS.iter().find(|bars| bars.row == row.row)
}

impl Verdict {
    fn new(
        row: &'static str,
        what: impl Into<Cow<'static, str>>,
        ours: Option<Spread>,
        bar: Bar,
    ) -> Self {
        Self {
            row,
            what: what.into(),
            ours,
            bar,
            best: None,
            outcome: Outcome::of(bar, ours.map(|ours| ours.median)),
            noted: Vec::new(),
        }
    }

    fn in_short(self) -> Self {
        let outcome = self.outcome.in_short();
        Self { outcome, ..self }
    }

    /// Not passed if fewer values are behind it than a bar is about: a ratio has one of a round
    /// only if both have.
    fn of_enough_rounds(self) -> Self {
        if self.ours.is_some_and(|ours| ours.rounds < ROUNDS) {
            self.in_short()
        } else {
            self
        }
    }
}

impl Demand {
    fn judge(&self, row: &RowResult, ours: &Cell) -> Verdict {
        let best = self.best(row);
        let value = match self.against {
            Against::Yardstick => row.ratio(ours, self.metric),
            Against::BestPeer => {
                best.and_then(|best| Spread::of(row.ratios(ours, best.peer, self.metric)))
            }
            Against::Nothing => ours.spread(self.metric),
        };
        let best = best.filter(|_| value.is_some());
        let mut verdict = Verdict::new(row.row, self.what, value, self.bar);
        let by = Because::LoadGenerator;
        if ours.is_generator_busy() {
            verdict.outcome = verdict.outcome.held_back(self.of, by);
        }
        if self.is_other_busy(row, best) {
            verdict.outcome = verdict.outcome.other_held_back(self.of, by);
        }
        let noted = self.noted.map(|noted| not_in_the_run(row, noted));
        Verdict {
            best,
            noted: noted.unwrap_or_default(),
            ..verdict
        }
    }

    /// Whether the generator held back whom ours is held against.
    fn is_other_busy(&self, row: &RowResult, best: Option<Best>) -> bool {
        let other = match (self.against, self.of) {
            (Against::Yardstick, _) => row.cell(YARDSTICK),
            // Each of them may be the best in truth.
            (Against::BestPeer, Quantity::Rate | Quantity::Latency) => {
                return peers(row).any(Cell::is_generator_busy);
            }
            (Against::BestPeer, Quantity::Cost) => best.and_then(|best| row.cell(best.peer)),
            (Against::Nothing, _) => None,
        };
        other.is_some_and(Cell::is_generator_busy)
    }

    fn best(&self, row: &RowResult) -> Option<Best> {
        let values = peers(row).filter_map(|cell| {
            let value = match self.against {
                Against::Yardstick => row.ratio(cell, self.metric).map(|ratio| ratio.median),
                Against::BestPeer | Against::Nothing => cell.median(self.metric),
            };
            Some((cell.peer, value?))
        });
        better(self.bar, values).map(|(peer, value)| Best { peer, value })
    }
}

/// Brokers of others to which nothing went missing.
fn peers(row: &RowResult) -> impl Iterator<Item = &Cell> {
    let cells = row.cells.iter();
    cells.filter(|cell| cell.role == Role::Peer && cell.is_clean())
}

fn not_in_the_run(row: &RowResult, noted: Noted) -> Vec<(&'static str, f64)> {
    let noted = [
        (FLASHMQ, noted.flashmq),
        (MOSQUITTO_2_1, noted.mosquitto_2_1),
    ];
    let absent = noted.into_iter();
    let absent = absent.filter(|(peer, _)| {
        let cell = row.cell(peer);
        cell.is_none_or(|cell| cell.runs.is_empty())
    });
    absent.collect()
}

#[expect(clippy::cast_precision_loss, reason = "a run has few rounds")]
fn number(count: usize) -> f64 {
    count as f64
}

/// All verdicts as a section of the record.
pub(crate) struct Section<'a> {
    pub(crate) verdicts: &'a [Verdict],
    pub(crate) rows: &'a [RowResult],
}

/// Of latency fewer seconds than the bars are about.
fn is_brief(kind: Kind, ours: &Cell) -> bool {
    let seconds = ours.runs.iter().filter_map(|run| run.report.told.seconds);
    let is_brief = seconds.reduce(f64::min) < Some(LATENCY_SECONDS);
    kind == Kind::Latency && is_brief
}

impl fmt::Display for Section<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "## Bars\n\nOurs and the best of the other brokers of this run. A ratio is taken in each round; the median of them is held \
             against the bar, and the least and the most stand in brackets. A broker to which \
             something went missing in a row \
             is not the best in it, and a round in which that happened to Mosquitto has no ratio \
             to it. The last column is no part of this run: the figure to Mosquitto's of peers \
             that were not in it, as read in {NOTED_ON}. It decides nothing.\n"
        )?;
        writeln!(
            f,
            "| row | what | {OURS} | bar | | best peer | read elsewhere, to Mosquitto's |\n|---|---|--:|--:|---|---|---|"
        )?;
        for verdict in self.verdicts {
            writeln!(f, "{verdict}")?;
        }
        let too_short = Outcome::NotJudged(Because::TooShort);
        if self
            .verdicts
            .iter()
            .any(|verdict| verdict.outcome == too_short)
        {
            writeln!(
                f,
                "\nToo short: a bar is about {ROUNDS} rounds at least, of a ratio such in which both came to their end, and in a row of latency about runs of {LATENCY_SECONDS} seconds; \
                 of less nothing is passed."
            )?;
        }
        let at_least = "rates are at least what is shown: a bar of a rate is not judged where that of ours is one of these and \
                        less than it asks, or where that of a peer is and ours is as much as it \
                        asks";
        for (kind, so) in [
            (Kind::Throughput, at_least),
            (Kind::Idle, at_least),
            (
                Kind::Latency,
                "latencies are at most what is shown: a bar of latency is not judged where that of \
                 ours is one of these and more than it asks, or where that of a peer is and ours \
                 is \
                 as little as it asks",
            ),
        ] {
            if let Some(rows) = self.limited_by_the_generator(kind) {
                writeln!(
                    f,
                    "\nThe load generator took more than {BUSY} of the time of its threads, so that {so}, in {rows}."
                )?;
            }
        }
        Ok(())
    }
}

impl Section<'_> {
    /// The rows of a kind, with the brokers, where our own load generator is the bottleneck.
    fn limited_by_the_generator(&self, kind: Kind) -> Option<String> {
        let limited = |row: &RowResult| {
            let cells = row.cells.iter();
            let busy = cells.filter(|cell| cell.is_generator_busy());
            let peers: Vec<_> = busy.map(|cell| cell.peer).collect();
            (!peers.is_empty()).then(|| format!("{} ({})", row.row, peers.join(", ")))
        };
        let rows = self.rows.iter().filter(|row| row.kind == kind);
        let rows: Vec<_> = rows.filter_map(limited).collect();
        (!rows.is_empty()).then(|| rows.join(", "))
    }
}

/// A line of the table.
impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ours = self.ours.map(|ours| ours.shown(shown));
        let ours = ours.unwrap_or_else(|| "–".to_owned());
        let verdict = self.outcome.shown();
        let best = self.best.map_or_else(String::new, |best| {
            format!("{} {}", best.peer, shown(best.value))
        });
        let noted = self.noted.iter();
        let noted: Vec<_> = noted
            .map(|(peer, ratio)| format!("{peer} {ratio}"))
            .collect();
        write!(
            f,
            "| {} | {} | {ours} | {} | {verdict} | {best} | {} |",
            self.row,
            self.what,
            self.bar,
            noted.join(", ")
        )
    }
}

impl Verdict {
    pub(crate) fn passed(&self) -> bool {
        self.outcome.passed()
    }

    /// For a list of what was not passed.
    pub(crate) fn name(&self) -> String {
        format!("{}: {}{}", self.row, self.what, self.outcome.why())
    }
}

fn shown(value: f64) -> String {
    if value >= 1e3 || value.fract() == 0.0 {
        grouped(value)
    } else if value < 1.0 {
        format!("{value:.3}")
    } else {
        format!("{value:.2}")
    }
}

#[cfg(test)]
mod tests;
