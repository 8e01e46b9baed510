//! The record of a run: Markdown for people, JSON for machines, a drawing, all beside each other.

use crate::{
    bars::{self, Standing},
    error::ChannelBenchError,
    peers::{GO, OURS},
    results::{Cell, RowResult},
    rounds::Contestants,
};
use serde::Serialize;
use std::{
    fmt::{self, Write as _},
    fs,
    io::{self, Write},
    path::Path,
};
use unbroken_bench::{
    machine::{self, Machine},
    plot::{self, Group},
};

/// Names the versions that this program was built with.
const LOCK: &str = include_str!("../../../Cargo.lock");

/// Everything that is written down.
#[derive(Debug, Serialize)]
pub(crate) struct Record {
    machine: Machine,
    load_after: String,
    rounds: usize,
    peers: Vec<Described>,
    bars: Vec<Standing>,
    rows: Vec<RowResult>,
}

/// A peer as it was compared.
#[derive(Debug, Serialize)]
struct Described {
    name: &'static str,
    version: String,
    note: &'static str,
}

impl Record {
    pub(crate) fn new(
        machine: Machine,
        rounds: usize,
        contestants: &Contestants,
        rows: Vec<RowResult>,
    ) -> Self {
        let rust = contestants.peers.iter().map(|peer| Described {
            name: peer.name,
            version: peer.package.map_or_else(String::new, version_of),
            note: peer.note,
        });
        let go = contestants.go.iter().map(|go| Described {
            name: GO,
            version: go.version.clone(),
            note: "goroutines; `GOMAXPROCS` is the number of workers",
        });
        Self {
            machine,
            load_after: machine::load(),
            rounds,
            peers: rust.chain(go).collect(),
            bars: bars::standings(&rows),
            rows,
        }
    }

    /// Writes `channels.md`, `channels.json` and the drawing into `dir`.
    pub(crate) fn write(&self, dir: &Path) -> Result<(), ChannelBenchError> {
        let write = |name: &str, text: &str| {
            let path = dir.join(name);
            fs::write(&path, text).map_err(|source| ChannelBenchError::Write { path, source })
        };
        fs::create_dir_all(dir).map_err(|source| ChannelBenchError::Write {
            path: dir.to_owned(),
            source,
        })?;
        let mut json = serde_json::to_string_pretty(&self).map_err(io::Error::from)?;
        json.push('\n');
        write("channels.json", &json)?;
        let title = format!("Time of a message (idle-pipe: bytes), ratio to {OURS}");
        let groups: Vec<_> = self.rows.iter().map(group).collect();
        write("channels.svg", &plot::ratios(&title, &groups))?;
        write("channels.md", &self.to_string())
    }

    /// The last lines of a run.
    pub(crate) fn tell_bars(&self, out: &mut dyn Write) -> io::Result<()> {
        for bar in &self.bars {
            let verdict = bar.verdict.words().replace('*', "");
            let reached = bar.reached.map_or_else(String::new, reached);
            writeln!(out, "{verdict:<8} {:<18} {}{reached}", bar.row, bar.need)?;
        }
        Ok(())
    }
}

fn reached(value: f64) -> String {
    format!(": {value:.2}")
}

fn group(result: &RowResult) -> Group {
    let bars = result.cells.iter();
    let bars = bars.filter_map(|cell| Some((cell.peer, result.ratio(cell)?)));
    Group {
        row: result.row,
        bars: bars.collect(),
    }
}

/// The version of a package as the lock file has it.
pub(crate) fn version_of(package: &str) -> String {
    let name = format!("name = \"{package}\"");
    let mut lines = LOCK.lines().skip_while(|line| *line != name).skip(1);
    let version = lines
        .next()
        .and_then(|line| line.strip_prefix("version = "));
    version.unwrap_or("unknown").trim_matches('"').to_owned()
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let machine = &self.machine;
        writeln!(f, "# Channels beside each other\n")?;
        writeln!(f, "{machine}, after: {}.\n", self.load_after)?;
        writeln!(f, "Repeat it with `{}`.\n", machine.command)?;
        writeln!(
            f,
            "Medians of {} rounds, least in brackets; less is better. Each run is a process of its own; in each round all peers \
             take turns, and every other round goes backwards. A message is a `u64`. Read medians for ratios and the least for \
             what the hardware can do. Where threads sleep, runs differ most.\n",
            self.rounds
        )?;
        self.overview(f)?;
        self.verdicts(f)?;
        writeln!(f, "\n![Ratios to {OURS}](channels.svg)")?;
        for row in &self.rows {
            detail(f, row)?;
        }
        writeln!(
            f,
            "\n## Peers\n\n| peer | version | what is used |\n|---|---|---|"
        )?;
        for peer in &self.peers {
            writeln!(f, "| {} | {} | {} |", peer.name, peer.version, peer.note)?;
        }
        Ok(())
    }
}

impl Record {
    fn overview(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "| peer |")?;
        for row in &self.rows {
            write!(f, " {} |", row.row)?;
        }
        writeln!(f, "\n|---|{}", "--:|".repeat(self.rows.len()))?;
        for peer in &self.peers {
            write!(f, "| {} |", peer.name)?;
            for row in &self.rows {
                write!(f, " {} |", shown(row.median(peer.name)))?;
            }
            writeln!(f)?;
        }
        Ok(())
    }

    fn verdicts(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.bars.is_empty() {
            return Ok(());
        }
        writeln!(
            f,
            "\n## Bars\n\n| row | {OURS} has to take | reached | |\n|---|---|--:|---|"
        )?;
        for bar in &self.bars {
            let reached = bar
                .reached
                .map_or_else(String::new, |value| format!("{value:.2}"));
            let verdict = bar.verdict.words();
            writeln!(f, "| {} | {} | {reached} | {verdict} |", bar.row, bar.need)?;
        }
        Ok(())
    }
}

fn detail(f: &mut fmt::Formatter<'_>, row: &RowResult) -> fmt::Result {
    writeln!(f, "\n## {}: {}\n", row.row, row.title)?;
    writeln!(
        f,
        "| peer | {} | x | runs |\n|---|--:|--:|--:|",
        row.unit.words()
    )?;
    let mut cells: Vec<_> = row.cells.iter().collect();
    let time = |cell: &Cell| cell.median().unwrap_or(f64::INFINITY);
    cells.sort_by(|one, other| time(one).total_cmp(&time(other)));
    for cell in cells {
        let ratio = row
            .ratio(cell)
            .map_or_else(String::new, |ratio| format!("{ratio:.2}"));
        let mut figure = shown(cell.median());
        if let Some(least) = cell.minimum() {
            write!(figure, " ({})", shown(Some(least)))?;
        }
        let runs = cell.figures.len();
        writeln!(f, "| {} | {figure} | {ratio} | {runs} |", cell.peer)?;
    }
    for cell in &row.cells {
        for failure in &cell.failures {
            let line = failure.lines().next().unwrap_or_default();
            writeln!(f, "\n{} failed: {line}", cell.peer)?;
        }
    }
    Ok(())
}

fn shown(value: Option<f64>) -> String {
    match value {
        None => String::new(),
        Some(value) if value < 100.0 => format!("{value:.1}"),
        Some(value) => unbroken_bench::grouped(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers;

    #[test]
    fn every_package_has_a_version() {
        for package in peers::all().iter().filter_map(|peer| peer.package) {
            let version = version_of(package);
            let is_version = version.split('.').all(|part| part.parse::<u32>().is_ok());
            assert!(is_version, "{package}: {version}");
        }
    }
}
