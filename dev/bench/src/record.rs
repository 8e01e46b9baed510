//! The record of a run: a Markdown table for people, JSON for machines, drawings, all beside each
//! other.

use crate::{
    bars::YARDSTICK_VERSION,
    cross_check::{self, Check},
    error::BenchError,
    machine::Machine,
    peer::{Peer, YARDSTICK},
    plot::{self, Group},
    results::{
        CONNECT_BYTES, CONNECT_SHARE, CONNECTIONS, CPU, Cell, DELIVERED, GENERATOR_CPU,
        GENERATOR_SHARE, IDLE_SHARE, Kind, MAX, Metric, OTHERS, P50, P99, P999, PEAK_MB, PUBLISHED,
        RowResult, SUBSCRIBE_BYTES, SWITCHES,
    },
    verdict::{self, Verdict},
};
use serde::Serialize;
use std::{
    fmt::{self, Write},
    fs,
    path::Path,
};
use unbroken_load::grouped;

/// Everything that is written down.
#[derive(Debug, Serialize)]
pub(crate) struct Record {
    pub(crate) machine: Machine,
    pub(crate) rounds: usize,
    /// Fewer, if it was ended before.
    pub(crate) rounds_asked: usize,
    /// In the rows that can be cut into as many; in fan-in, fan-out and tree there is one.
    pub(crate) generator_threads: u32,
    pub(crate) peers: Vec<Described>,
    pub(crate) skipped: Vec<Skipped>,
    pub(crate) verdicts: Vec<Verdict>,
    pub(crate) checks: Vec<Check>,
    pub(crate) rows: Vec<RowResult>,
}

/// A peer as it was compared.
#[derive(Debug, Serialize)]
pub(crate) struct Described {
    pub(crate) name: &'static str,
    pub(crate) version: String,
    /// The one it should be, where it is another.
    pub(crate) instead_of: Option<&'static str>,
    pub(crate) setup: &'static str,
}

/// What was to take part and is not installed.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Skipped {
    pub(crate) name: &'static str,
    /// How to get it.
    pub(crate) hint: &'static str,
}

impl Skipped {
    pub(crate) fn of(peer: &Peer) -> Self {
        let &Peer { name, hint, .. } = peer;
        Self { name, hint }
    }
}

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is not installed; {}", self.name, self.hint)
    }
}

impl Described {
    pub(crate) fn of(peer: &Peer) -> Result<Self, BenchError> {
        let version = peer.version()?;
        Ok(Self {
            name: peer.name,
            instead_of: peer.pin.filter(|pin| !is_of(&version, pin)),
            version,
            setup: peer.setup,
        })
    }

    pub(crate) fn all(peers: &[Peer]) -> Result<Vec<Self>, BenchError> {
        peers.iter().map(Self::of).collect()
    }

    /// Fails at the first that is of another version than the bars, and everybody's record, are
    /// about.
    pub(crate) fn refuse_others(described: &[Self]) -> Result<(), BenchError> {
        let mut others = described.iter();
        let other = others.find_map(|peer| Some((peer, peer.instead_of?)));
        other.map_or(Ok(()), |(peer, pin)| {
            Err(BenchError::OtherVersion {
                peer: peer.name,
                said: peer.version.clone(),
                pin,
            })
        })
    }
}

/// Whether a program that says this of itself is of such a version, or of one that it begins.
fn is_of(said: &str, pin: &str) -> bool {
    let mut words = said.split(|c: char| c.is_whitespace() || c == ',');
    words.any(|word| {
        let rest = word.trim_start_matches('v').strip_prefix(pin);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    })
}

/// Peers for people.
pub(crate) struct Table<'a>(pub(crate) &'a [Described]);

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| peer | version | setup |\n|---|---|---|")?;
        for peer in self.0 {
            let (name, version, setup) = (peer.name, &peer.version, peer.setup);
            write!(f, "| {name} | {version}")?;
            if let Some(pin) = peer.instead_of {
                write!(f, " (**not {pin}**)")?;
            }
            writeln!(f, " | {setup} |")?;
        }
        Ok(())
    }
}

/// A column of a detail table: heading, figure, digits behind the point.
type Column = (&'static str, Metric, usize);

const THROUGHPUT: [Column; 9] = [
    ("delivered/s", DELIVERED, 0),
    ("published/s", PUBLISHED, 0),
    ("peak RSS MB", PEAK_MB, 1),
    ("switches/msg", SWITCHES, 3),
    ("loadgen µs/msg", GENERATOR_CPU, 2),
    ("loadgen cores", GENERATOR_SHARE, 2),
    ("p50 µs", P50, 0),
    ("p99 µs", P99, 0),
    ("other load", OTHERS, 2),
];
const LATENCY: [Column; 10] = [
    ("delivered/s", DELIVERED, 0),
    ("p50 µs", P50, 0),
    ("p99 µs", P99, 0),
    ("p99.9 µs", P999, 0),
    ("max µs", MAX, 0),
    ("peak RSS MB", PEAK_MB, 1),
    ("switches/msg", SWITCHES, 3),
    ("loadgen µs/msg", GENERATOR_CPU, 2),
    ("loadgen cores", GENERATOR_SHARE, 2),
    ("other load", OTHERS, 2),
];
const IDLE: [Column; 5] = [
    ("connections/s", CONNECTIONS, 0),
    ("RSS B/connection", CONNECT_BYTES, 0),
    ("+B/subscription", SUBSCRIBE_BYTES, 0),
    ("idle cores", IDLE_SHARE, 4),
    ("loadgen cores", CONNECT_SHARE, 2),
];

impl Record {
    /// What was found in so many rounds, instead of what was there.
    pub(crate) fn take(&mut self, rounds: usize, rows: Vec<RowResult>, checks: Vec<Check>) {
        self.rounds = rounds;
        self.verdicts = verdict::judge(&rows, &checks);
        self.checks = checks;
        self.rows = rows.into_iter().map(without_curves).collect();
    }

    /// Writes `brokers.md`, `brokers.json` and the drawings into `dir`.
    pub(crate) fn write(&self, dir: &Path) -> Result<(), BenchError> {
        let write = |name: &str, text: &str| {
            let path = dir.join(name);
            fs::write(&path, text).map_err(|source| BenchError::Write { path, source })
        };
        let mut json = serde_json::to_string_pretty(&self).map_err(std::io::Error::from)?;
        json.push('\n');
        write("brokers.json", &json)?;
        write("brokers-cpu.svg", &self.plot("CPU time per delivery", CPU))?;
        write(
            "brokers-rate.svg",
            &self.plot("Deliveries per second", DELIVERED),
        )?;
        write("brokers.md", &self.to_string())
    }

    fn plot(&self, what: &str, metric: Metric) -> String {
        let group = |row: &RowResult| {
            let cells = row.cells.iter();
            let bars = cells.filter_map(|cell| Some((cell.peer, row.ratio(cell, metric)?.median)));
            Group {
                row: row.row,
                bars: bars.collect(),
            }
        };
        let groups: Vec<_> = self.rows.iter().map(group).collect();
        plot::ratios(&format!("{what}, ratio to {YARDSTICK}"), &groups)
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let machine = &self.machine;
        writeln!(f, "# Brokers beside each other\n")?;
        writeln!(
            f,
            "{machine}. Client and broker share the machine over the loopback.\n"
        )?;
        writeln!(f, "Repeat it with `{}`.\n", machine.command)?;
        write!(f, "{}", Table(&self.peers))?;
        let yardstick = self.peers.iter().find(|peer| peer.name == YARDSTICK);
        if let Some(other) = yardstick.filter(|peer| !peer.version.contains(YARDSTICK_VERSION)) {
            writeln!(
                f,
                "\nThe bars are ratios to {YARDSTICK} {YARDSTICK_VERSION}; in this run they are held against {}.",
                other.version
            )?;
        }
        for peer in &self.skipped {
            writeln!(f, "\nNot in this run: {peer}.")?;
        }
        writeln!(
            f,
            "\nMedians of {} rounds; in each round all peers take turns. **µs/msg** is the CPU time of the broker's process \
             (user and system) over the measured phase, per message delivered; *x* is the ratio to {YARDSTICK} in the same round, of which the median is shown, and in \
             brackets the least and the most. Rates are what \
             the client saw from the first publish to the last delivery. Compare within a row only: a broker that is late finds \
             more to do at once, and so pays less for each. What the load generator spends is shown, and what others took on the \
             machine meanwhile (cores). Threads of the load generator: {}, and in fan-in, fan-out and tree one.\n",
            self.rounds, self.generator_threads
        )?;
        if self.rounds < self.rounds_asked {
            let asked = self.rounds_asked;
            writeln!(f, "It was ended before the other rounds of {asked}.\n")?;
        }
        self.overview(f)?;
        let (verdicts, rows) = (&self.verdicts, &self.rows);
        write!(f, "\n{}", verdict::Section { verdicts, rows })?;
        if !self.checks.is_empty() {
            let checks = &self.checks;
            write!(f, "\n{}", cross_check::Section { checks, rows })?;
        }
        writeln!(
            f,
            "\n![CPU time per delivery](brokers-cpu.svg)\n\n![Deliveries per second](brokers-rate.svg)"
        )?;
        for row in &self.rows {
            detail(f, row)?;
        }
        self.times(f)
    }
}

impl Record {
    fn overview(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "## µs of broker CPU per delivery, ratio to {YARDSTICK}, thousand deliveries per second\n"
        )?;
        write!(f, "| row |")?;
        for peer in &self.peers {
            write!(f, " {} |", peer.name)?;
        }
        writeln!(f, "\n|---|{}", "--:|".repeat(self.peers.len()))?;
        for row in &self.rows {
            write!(f, "| {} |", row.row)?;
            for peer in &self.peers {
                let cell = row.cells.iter().find(|cell| cell.peer == peer.name);
                let text = cell
                    .and_then(|cell| overview_cell(row, cell))
                    .unwrap_or_default();
                write!(f, " {text} |")?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

impl Record {
    /// For who wants to repeat a part of it.
    fn times(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total: f64 = self.rows.iter().map(|row| row.took_s).sum();
        let rows = self.rows.iter();
        let rows: Vec<_> = rows
            .map(|row| format!("{} {:.0} s", row.row, row.took_s))
            .collect();
        writeln!(
            f,
            "\n## How long it took\n\n{:.0} min for all rows, each with starting and ending the brokers: {}.",
            (total / 60.0).ceil(),
            rows.join(", ")
        )
    }
}

fn overview_cell(row: &RowResult, cell: &Cell) -> Option<String> {
    let metric = row.headline();
    let Some(value) = cell.median(metric) else {
        // It did not end, or it did and nothing came.
        return (!cell.is_clean()).then(|| "fails".to_owned());
    };
    let mut text = format!("{value:.2}");
    if let Some(ratio) = row.ratio(cell, metric) {
        write!(text, " · **{:.2}**", ratio.median).ok()?;
    }
    if let Some(rate) = cell.median(DELIVERED) {
        write!(text, " · {}", grouped(rate / 1e3)).ok()?;
    }
    if !cell.is_clean() {
        text.push_str(" (not all arrived)");
    }
    Some(text)
}

fn detail(f: &mut fmt::Formatter<'_>, row: &RowResult) -> fmt::Result {
    let columns: &[Column] = match row.kind {
        Kind::Throughput => &THROUGHPUT,
        Kind::Latency => &LATENCY,
        Kind::Idle => &IDLE,
    };
    let headline = if row.kind == Kind::Idle {
        "µs/connection"
    } else {
        "µs/msg"
    };
    writeln!(f, "\n## {}: {}\n\n{}\n", row.row, row.title, row.load)?;
    write!(f, "| peer | {headline} | least..most | x |")?;
    for (heading, ..) in columns {
        write!(f, " {heading} |")?;
    }
    writeln!(
        f,
        " all arrived | rounds |\n|---|--:|--:|--:|{}---|--:|",
        "--:|".repeat(columns.len())
    )?;
    for cell in &row.cells {
        let metric = row.headline();
        let number = |value: Option<f64>, digits| {
            value.map_or_else(String::new, |value| decimal(value, digits))
        };
        let spread = cell.spread(metric);
        let spread = spread.map(|spread| format!("{:.2}..{:.2}", spread.least, spread.most));
        let ratio = row.ratio(cell, metric);
        let ratio = ratio.map(|ratio| ratio.shown(|value| decimal(value, 2)));
        write!(
            f,
            "| {} | {} | {} | {} |",
            cell.peer,
            number(cell.median(metric), 2),
            spread.unwrap_or_default(),
            ratio.unwrap_or_default(),
        )?;
        for (_, metric, digits) in columns {
            write!(f, " {} |", number(cell.median(*metric), *digits))?;
        }
        let verdict = if cell.is_clean() { "yes" } else { "**no**" };
        writeln!(f, " {verdict} | {} |", cell.runs.len())?;
    }
    for cell in &row.cells {
        if cell.median(DELIVERED) == Some(0.0) {
            writeln!(f, "\n{} delivered nothing.", cell.peer)?;
        }
        for failure in &cell.failures {
            writeln!(
                f,
                "\n{} failed: {}",
                cell.peer,
                failure.lines().next().unwrap_or_default()
            )?;
        }
    }
    Ok(())
}

fn decimal(value: f64, digits: usize) -> String {
    if digits == 0 {
        grouped(value)
    } else {
        format!("{value:.digits$}")
    }
}

/// The curves of single runs would be most of the record, and nothing in it is drawn from them.
fn without_curves(mut row: RowResult) -> RowResult {
    for run in row.cells.iter_mut().flat_map(|cell| &mut cell.runs) {
        if let Some(figures) = &mut run.report.figures {
            figures.latency.curve.clear();
        }
    }
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_known_in_what_a_program_says() {
        for (said, pin, expected) in [
            ("mosquitto version 2.0.11", "2.0.11", true),
            ("mosquitto version 2.0.18", "2.0.11", false),
            ("nats-server: v2.15.2", "2.15.2", true),
            ("nats-server: v2.15.20", "2.15.2", false),
            ("nats-server: v2.9.10", "2.15.2", false),
            ("mochi v2.7.9, go1.24.1", "2.7.9", true),
            ("rabbitmq-server 3.10.8-1.1+deb12u1", "3.10", true),
            ("rabbitmq-server 3.13.0-1", "3.10", false),
            ("unknown", "2.0.11", false),
        ] {
            assert_eq!(is_of(said, pin), expected, "{said}");
        }
    }

    #[test]
    fn another_version_is_marked_and_refused_where_bars_are_required() {
        let described = |instead_of| Described {
            name: YARDSTICK,
            version: "mosquitto version 2.0.18".to_owned(),
            instead_of,
            setup: "",
        };
        let known = [described(None)];
        assert!(Described::refuse_others(&known).is_ok());
        assert!(!Table(&known).to_string().contains("not"));
        let other = [described(None), described(Some("2.0.11"))];
        let error = Described::refuse_others(&other).unwrap_err().to_string();
        assert!(
            error.contains("2.0.18") && error.contains("2.0.11"),
            "{error}"
        );
        assert!(Table(&other).to_string().contains("**not 2.0.11**"));
    }

    #[test]
    fn a_record_of_fewer_rounds_than_were_asked_for_says_so() {
        let mut record = Record {
            machine: Machine::here(),
            rounds: 0,
            rounds_asked: 2,
            generator_threads: 1,
            peers: Vec::new(),
            skipped: Vec::new(),
            verdicts: Vec::new(),
            checks: Vec::new(),
            rows: Vec::new(),
        };
        for (rounds, is_said) in [(1, true), (2, false)] {
            record.take(rounds, Vec::new(), Vec::new());
            let text = record.to_string();
            assert_eq!(text.contains("ended before"), is_said, "{text}");
        }
    }
}
