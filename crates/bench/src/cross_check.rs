//! Two rows again, with load generators that we did not write: `loadtest` and `pingtest` of 2013,
//! by which brokers were compared then.
//!
//! They take most of a machine of two cores for themselves, and their clocks include connecting, so
//! their rates say little of a fast broker; what counts is whether the ratio of the brokers' CPU
//! time agrees with that of our own generator, which for ours has a bar. They hang when a message
//! is lost, and with a peer that does not speak MQTT 3.1: a run has a limit of time, and who fails
//! once is not tried again.

use std::{
    fmt,
    io::{self, Read, Seek, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use nix::sys::{
    resource::{UsageWho, getrusage},
    time::TimeValLike,
};
use serde::Serialize;
use unbroken_load::{grouped, process::Process};

use crate::{
    error::BenchError,
    peer::{Peer, Role, YARDSTICK},
    record::Skipped,
    results::{CPU, RowResult, Spread, median},
};

/// A program with what it is told, and the row of ours that is the same load.
#[derive(Debug)]
struct Program {
    name: &'static str,
    row: &'static str,
    arguments: &'static [&'static str],
    /// What the bar is about.
    what: &'static str,
    /// Deliveries of a run, counting those to wildcard listeners.
    deliveries: f64,
}

const PROGRAMS: [Program; 2] = [
    Program {
        name: "loadtest",
        row: "pairs1000",
        arguments: &["-conns", "1000", "-messages", "600"],
        what: "CPU to Mosquitto's with `loadtest`, apart from that with our generator by a factor of",
        deliveries: 500.0 * 600.0,
    },
    Program {
        name: "pingtest",
        row: "ping400",
        arguments: &["-pairs", "400", "-wsubs", "20", "-messages", "200"],
        what: "CPU to Mosquitto's with `pingtest`, apart from that with our generator by a factor of",
        deliveries: (400.0 + 20.0) * 2.0 * 200.0,
    },
];

/// By far more than any broker needs that delivers everything.
const LIMIT: Duration = Duration::from_secs(30);
const HINT: &str = "`cargo xtask bench brokers` installs it with Go, or --peers-dir holds it";
const POLL_EVERY: Duration = Duration::from_millis(5);

/// What one program found of all peers.
#[derive(Debug, Serialize)]
pub(crate) struct Check {
    program: &'static str,
    command: String,
    pub(crate) row: &'static str,
    #[serde(skip)]
    pub(crate) what: &'static str,
    cells: Vec<Cell>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Cell {
    peer: &'static str,
    /// Of each round from the first, until one failed.
    runs: Vec<Run>,
    failures: Vec<String>,
}

#[derive(Debug, Clone, Copy, Serialize)]
struct Run {
    /// As the program prints it; in `pingtest` without what goes to the wildcard listeners.
    messages_per_second: f64,
    /// Per delivery, connecting included.
    broker_cpu_us: f64,
    /// The program's own.
    client_cpu_us: f64,
}

/// The programs that are there: in the directory of what no package gives, or where programs are.
#[derive(Debug)]
pub(crate) struct Programs {
    found: Vec<(&'static Program, PathBuf)>,
    pub(crate) skipped: Vec<Skipped>,
}

impl Programs {
    pub(crate) fn find(directory: Option<&Path>) -> Self {
        let mut programs = Self {
            found: Vec::new(),
            skipped: Vec::new(),
        };
        for program in &PROGRAMS {
            let name = program.name;
            let given = directory.map(|directory| directory.join(name));
            let path = given.filter(|path| path.is_file());
            let path = path.unwrap_or_else(|| name.into());
            let tried = Command::new(&path).arg("-help").output();
            if tried.is_ok() {
                programs.found.push((program, path));
            } else {
                programs.skipped.push(Skipped { name, hint: HINT });
            }
        }
        programs
    }

    /// Runs them on all peers that are brokers, in turns.
    pub(crate) fn run(
        &self,
        peers: &[Peer],
        rounds: usize,
        progress: &mut dyn Write,
    ) -> io::Result<Vec<Check>> {
        let brokers: Vec<_> = peers
            .iter()
            .filter(|peer| peer.role != Role::Floor)
            .collect();
        let mut checks: Vec<_> = self
            .found
            .iter()
            .map(|(program, _)| Check::new(program, &brokers))
            .collect();
        for round in 0..rounds {
            for ((program, path), check) in self.found.iter().zip(&mut checks) {
                for turn in 0..brokers.len() {
                    let place = (round + turn) % brokers.len();
                    let (peer, cell) = (brokers[place], &mut check.cells[place]);
                    // Who failed once would take the time of the limit in every round.
                    if cell.failures.is_empty() {
                        let line = program.measure(peer, path, cell);
                        let (round, program, peer) = (round + 1, program.name, peer.name);
                        writeln!(
                            progress,
                            "round {round}/{rounds}  {program:<10} {peer:<10} {line}"
                        )?;
                    }
                }
            }
        }
        Ok(checks)
    }
}

impl Program {
    /// Returns a line that tells how it went.
    fn measure(&self, peer: &Peer, path: &Path, cell: &mut Cell) -> String {
        match self.run_on(peer, path) {
            Ok(run) => {
                cell.runs.push(run);
                let rate = grouped(run.messages_per_second);
                format!("{:>8.2} µs/msg {rate:>10} msgs/s", run.broker_cpu_us)
            }
            Err(error) => {
                cell.failures.push(error.to_string());
                error.to_string()
            }
        }
    }

    fn run_on(&self, peer: &Peer, path: &Path) -> Result<Run, BenchError> {
        let broker = peer.start()?;
        let process = Process::new(broker.pid());
        let before = (process.usage()?.cpu, children_cpu()?);
        let said = self.finish(path, &broker.target.to_string())?;
        let after = (process.usage()?.cpu, children_cpu()?);
        let per_delivery = |from: Duration, to: Duration| {
            to.saturating_sub(from).as_secs_f64() * 1e6 / self.deliveries
        };
        Ok(Run {
            messages_per_second: rate(&said).ok_or_else(|| self.failed("tells no rate", &said))?,
            broker_cpu_us: per_delivery(before.0, after.0),
            client_cpu_us: per_delivery(before.1, after.1),
        })
    }

    /// What it said, if it ended well and in time.
    fn finish(&self, program: &Path, host: &str) -> io::Result<String> {
        let mut output = tempfile::tempfile()?;
        let mut child = Command::new(program)
            .args(self.arguments)
            .args(["-host", host])
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output.try_clone()?)
            .spawn()?;
        let began = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break Some(status);
            }
            if began.elapsed() > LIMIT {
                child.kill()?;
                child.wait()?;
                break None;
            }
            thread::sleep(POLL_EVERY);
        };
        output.rewind()?;
        let mut said = String::new();
        output.read_to_string(&mut said)?;
        match status {
            Some(status) if status.success() => Ok(said),
            Some(status) => Err(self.failed(&format!("ended with {status}"), &said)),
            None => Err(self.failed(&format!("did not end within {LIMIT:?}"), &said)),
        }
    }

    fn failed(&self, how: &str, said: &str) -> io::Error {
        let last = said.lines().last().unwrap_or("it said nothing");
        io::Error::other(format!("{} {how}: {last}", self.name))
    }
}

/// As both programs print it near the end.
fn rate(said: &str) -> Option<f64> {
    let rate = said
        .lines()
        .find_map(|line| line.split_once("messages/sec:"));
    rate?.1.trim().parse().ok()
}

/// Of all processes that this one started and that have ended.
fn children_cpu() -> io::Result<Duration> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let total = usage.user_time() + usage.system_time();
    let micros = total.num_microseconds();
    Ok(Duration::from_micros(micros.try_into().unwrap_or_default()))
}

impl Check {
    fn new(program: &Program, peers: &[&Peer]) -> Self {
        let cells = peers.iter().map(|peer| Cell {
            peer: peer.name,
            runs: Vec::new(),
            failures: Vec::new(),
        });
        Self {
            program: program.name,
            command: format!("{} {}", program.name, program.arguments.join(" ")),
            row: program.row,
            what: program.what,
            cells: cells.collect(),
        }
    }

    /// What the program found of a peer.
    pub(crate) fn cell(&self, peer: &str) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.peer == peer)
    }

    /// CPU time to the yardstick's, in each round.
    fn ratio(&self, cell: &Cell) -> Option<Spread> {
        let rounds = cell.runs.iter().zip(&self.cell(YARDSTICK)?.runs);
        let ratios = rounds.map(|(run, to)| run.broker_cpu_us / to.broker_cpu_us);
        Spread::of(ratios.collect())
    }

    /// The same as our own generator found it, in the row of that name.
    fn our_ratio(&self, cell: &Cell, rows: &[RowResult]) -> Option<Spread> {
        let row = rows.iter().find(|row| row.row == self.row)?;
        row.ratio(row.cell(cell.peer)?, CPU)
    }

    /// By what factor the larger of both ratios is above the other.
    pub(crate) fn apart(&self, cell: &Cell, rows: &[RowResult]) -> Option<f64> {
        let (theirs, ours) = (self.ratio(cell)?.median, self.our_ratio(cell, rows)?.median);
        Some((theirs / ours).max(ours / theirs))
    }
}

impl Cell {
    fn median(&self, figure: fn(&Run) -> f64) -> Option<f64> {
        median(self.runs.iter().map(figure).collect())
    }
}

/// All checks as a section of the record, beside our own rows.
pub(crate) struct Section<'a> {
    pub(crate) checks: &'a [Check],
    pub(crate) rows: &'a [RowResult],
}

impl fmt::Display for Section<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "## Two rows with programs that we did not write\n\n`loadtest` and `pingtest` of 2013 (github.com/jeffallen/mqtt), \
             medians of the same number of rounds, in turns. CPU time is per delivery and includes connecting, and so do the rates \
             that the programs print; they take more CPU time than most brokers, and limit the rate. *x* is the ratio of the \
             broker's CPU time to {YARDSTICK}'s, *our x* the same with our own generator in the row of that name, and \
             *apart* the factor between both, which has a bar for ours.\n"
        )?;
        writeln!(
            f,
            "| row | command | peer | messages/s | broker µs/msg | x | our x | apart | client µs/msg | rounds |\n|---|---|---|--:|--:|--:|--:|--:|--:|--:|"
        )?;
        for check in self.checks {
            for cell in &check.cells {
                let two = |value: f64| format!("{value:.2}");
                let spread = |ratio: Option<Spread>| ratio.map(|ratio| ratio.shown(two));
                write!(f, "| {} | `{}` | {} |", check.row, check.command, cell.peer)?;
                let rate = cell.median(|run| run.messages_per_second);
                write!(f, " {} |", rate.map_or_else(String::new, grouped))?;
                for text in [
                    cell.median(|run| run.broker_cpu_us).map(two),
                    spread(check.ratio(cell)),
                    spread(check.our_ratio(cell, self.rows)),
                    check.apart(cell, self.rows).map(two),
                    cell.median(|run| run.client_cpu_us).map(two),
                ] {
                    write!(f, " {} |", text.unwrap_or_default())?;
                }
                writeln!(f, " {} |", cell.runs.len())?;
            }
        }
        for check in self.checks {
            for cell in &check.cells {
                for failure in &cell.failures {
                    writeln!(f, "\n{} failed: {failure}", cell.peer)?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{peer::OURS, results::tests::figures, verdict};

    /// `loadtest` with so much CPU time of the brokers in each round.
    fn check(ours: &[f64], mosquitto: &[f64]) -> Check {
        let cell = |peer, times: &[f64]| Cell {
            peer,
            runs: times
                .iter()
                .map(|time| Run {
                    messages_per_second: 1.0,
                    broker_cpu_us: *time,
                    client_cpu_us: 1.0,
                })
                .collect(),
            failures: Vec::new(),
        };
        Check {
            cells: vec![cell(OURS, ours), cell(YARDSTICK, mosquitto)],
            ..Check::new(&PROGRAMS[0], &[])
        }
    }

    #[test]
    fn ours_may_not_be_much_cheaper_or_dearer_with_another_generator() {
        let mut row =
            RowResult::made_of(&[(OURS, Role::Ours, &[1.0]), (YARDSTICK, Role::Peer, &[1.0])]);
        row.row = "pairs1000";
        for run in row.cells.iter_mut().flat_map(|cell| &mut cell.runs) {
            // The same for both: with our generator the ratio is 1.
            run.report.figures = Some(figures(1));
        }
        let rows = [row];
        for (ours, passed) in [(15.0, true), (16.0, false), (7.0, true), (6.0, false)] {
            let check = check(&[ours, ours], &[10.0, 10.0]);
            let verdicts = verdict::judge(&rows, std::slice::from_ref(&check));
            let last = verdicts.last().unwrap();
            assert_eq!(last.passed(), passed, "{last}");
            assert!(last.to_string().contains("loadtest"), "{last}");
        }
        // It failed on Mosquitto, or on ours.
        for (ours, mosquitto) in [(&[10.0][..], &[][..]), (&[], &[10.0])] {
            let verdicts = verdict::judge(&rows, &[check(ours, mosquitto)]);
            assert!(
                verdicts
                    .last()
                    .unwrap()
                    .to_string()
                    .contains("not measured")
            );
        }
    }

    #[test]
    fn the_rate_is_read_from_what_either_program_prints() {
        let loadtest = "14:37:35.690227 messages    : 50000\n14:37:35.690234 messages/sec: 43850\n";
        assert_eq!(rate(loadtest), Some(43_850.0));
        let pingtest =
            "14:37:35.926366 messages/sec: 8754.959\n14:37:35.926376 round-trip latency\n";
        assert_eq!(rate(pingtest), Some(8_754.959));
        assert_eq!(rate("14:37:35.690227 all started\n"), None);
    }
}
