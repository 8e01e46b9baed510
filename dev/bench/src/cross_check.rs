//! Load generators that we did not write: `loadtest` and `pingtest` of 2013, by which brokers were
//! compared then.
//!
//! Ours has to lead in both: least CPU time of a delivery, and most messages each second. They take
//! most of a machine of two cores for themselves, and their clocks include connecting, so that a
//! rate may be theirs and not the broker's; then ours is not missed by it, and nothing is passed
//! against it. Beside that, the ratio of our CPU time to the yardstick's may be no worse, by more
//! than a factor, than with our own generator: one that favours ours is seen so. One that shows
//! ours better is no sign of favour.
//!
//! They hang when a message is lost, and with a peer that does not speak MQTT 3.1: a run has a
//! limit of time, and who fails once is not tried again. But for a fault of their own, by which
//! two of their clients have one id now and then: such a run is made once more.

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
    outcome::BUSY,
    peer::{Peer, Role, YARDSTICK},
    record::Skipped,
    results::{CPU, RowResult, Spread, median},
};

/// A program with what it is told.
#[derive(Debug)]
struct Program {
    name: &'static str,
    /// What its bars are called by.
    label: &'static str,
    /// The row of ours that is the same load, if there is one.
    row: Option<&'static str>,
    arguments: &'static [&'static str],
    /// Deliveries of a run, counting those to wildcard listeners.
    deliveries: f64,
}

const PROGRAMS: [Program; 3] = [
    Program {
        name: "loadtest",
        label: "loadtest1000",
        row: Some("pairs1000"),
        arguments: &["-conns", "1000", "-messages", "600"],
        deliveries: 500.0 * 600.0,
    },
    // With which the heritage found most.
    Program {
        name: "loadtest",
        label: "loadtest750",
        row: None,
        arguments: &["-conns", "750", "-messages", "800"],
        deliveries: 375.0 * 800.0,
    },
    Program {
        name: "pingtest",
        label: "pingtest400",
        row: Some("ping400"),
        arguments: &["-pairs", "400", "-wsubs", "20", "-messages", "200"],
        deliveries: (400.0 + 20.0) * 2.0 * 200.0,
    },
];

/// By far more than any broker needs that delivers everything.
const LIMIT: Duration = Duration::from_secs(30);
const HINT: &str = "`cargo xtask bench brokers` installs it with Go, or --peers-dir holds it";
const POLL_EVERY: Duration = Duration::from_millis(5);
/// Their goroutines draw client ids from one source of random numbers without a lock, so that two
/// may have the same: then the broker ends the first connection, as it has to [MQTT-3.1.4-2], and
/// that client does not expect it. Seen in one run of 84, with the takeover in the broker's log.
const OWN_FAULT: &str = "panic: send on closed channel";

/// What one program found of all peers.
#[derive(Debug, Serialize)]
pub(crate) struct Check {
    pub(crate) label: &'static str,
    command: String,
    /// Ours that is the same load, if there is one.
    pub(crate) row: Option<&'static str>,
    cells: Vec<Cell>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Cell {
    pub(crate) peer: &'static str,
    #[serde(skip)]
    role: Role,
    /// Of each round from the first, until one failed.
    runs: Vec<Run>,
    failures: Vec<String>,
}

#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Run {
    /// As the program prints it; in `pingtest` without what goes to the wildcard listeners.
    messages_per_second: f64,
    /// Per delivery, connecting included.
    broker_cpu_us: f64,
    /// The program's own.
    client_cpu_us: f64,
    /// Of the time that the broker left it on all cores, as long as it ran.
    client_share: f64,
}

/// A figure of a run.
pub(crate) type Found = fn(&Run) -> f64;
pub(crate) const BROKER_CPU: Found = |run| run.broker_cpu_us;
pub(crate) const RATE: Found = |run| run.messages_per_second;

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
            } else if programs.skipped.iter().all(|skipped| skipped.name != name) {
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
                        let (round, label, peer) = (round + 1, program.label, peer.name);
                        writeln!(
                            progress,
                            "round {round}/{rounds}  {label:<12} {peer:<10} {line}"
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
        match once_more(|| self.run_on(peer, path)) {
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
        let (began, before) = (Instant::now(), (process.usage()?.cpu, children_cpu()?));
        let said = self.finish(path, &broker.target.to_string())?;
        let (took, after) = (began.elapsed(), (process.usage()?.cpu, children_cpu()?));
        let spent = |from: Duration, to: Duration| to.saturating_sub(from).as_secs_f64();
        let (of_broker, of_client) = (spent(before.0, after.0), spent(before.1, after.1));
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let cores = f64::from(u32::try_from(cores).unwrap_or(u32::MAX));
        Ok(Run {
            messages_per_second: rate(&said).ok_or_else(|| self.failed("tells no rate", &said))?,
            broker_cpu_us: of_broker * 1e6 / self.deliveries,
            client_cpu_us: of_client * 1e6 / self.deliveries,
            client_share: of_client / (took.as_secs_f64() * cores - of_broker),
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
        // A program in Go says why in the first line of its trace; the last is a place in it.
        let is_why = |line: &&str| line.starts_with("panic:") || line.starts_with("fatal error:");
        let why = said.lines().find(is_why).or(said.lines().last());
        let why = why.unwrap_or("it said nothing");
        io::Error::other(format!("{} {how}: {why}", self.name))
    }
}

/// Again, if it was the program that failed and not the broker.
fn once_more<T>(mut run: impl FnMut() -> Result<T, BenchError>) -> Result<T, BenchError> {
    run().or_else(|error| {
        if error.to_string().contains(OWN_FAULT) {
            run()
        } else {
            Err(error)
        }
    })
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
            role: peer.role,
            runs: Vec::new(),
            failures: Vec::new(),
        });
        Self {
            label: program.label,
            command: format!("{} {}", program.name, program.arguments.join(" ")),
            row: program.row,
            cells: cells.collect(),
        }
    }

    /// What the program found of a peer.
    pub(crate) fn cell(&self, peer: &str) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.peer == peer)
    }

    /// A peer's figure to another's, in each round.
    pub(crate) fn ratio(cell: &Cell, to: &Cell, figure: Found) -> Option<Spread> {
        let rounds = cell.runs.iter().zip(&to.runs);
        let ratios = rounds.map(|(run, to)| figure(run) / figure(to));
        Spread::of(ratios.collect())
    }

    /// CPU time to the yardstick's.
    fn to_yardstick(&self, cell: &Cell) -> Option<Spread> {
        Self::ratio(cell, self.cell(YARDSTICK)?, BROKER_CPU)
    }

    /// The same as our own generator found it, in the row that is the same load.
    fn with_our_generator(&self, cell: &Cell, rows: &[RowResult]) -> Option<Spread> {
        let row = rows.iter().find(|row| Some(row.row) == self.row)?;
        row.ratio(row.cell(cell.peer)?, CPU)
    }

    /// By what factor the ratio to the yardstick is above the one that our own generator found.
    /// Below one, our generator shows the peer as worse than the program does. It is of as many
    /// rounds as the ratio that has fewer.
    pub(crate) fn dearer(&self, cell: &Cell, rows: &[RowResult]) -> Option<Spread> {
        let ours = self.with_our_generator(cell, rows)?;
        let theirs = self.to_yardstick(cell)?;
        Some(Spread {
            rounds: ours.rounds.min(theirs.rounds),
            ..Spread::one(theirs.median / ours.median)
        })
    }

    /// Brokers of others that came to their end in every round.
    pub(crate) fn others(&self) -> impl Iterator<Item = &Cell> {
        let others = self.cells.iter();
        others.filter(|cell| cell.role == Role::Peer && cell.is_clean())
    }
}

impl Cell {
    pub(crate) fn median(&self, figure: Found) -> Option<f64> {
        median(self.runs.iter().map(figure).collect())
    }

    /// It came to its end in every round.
    pub(crate) fn is_clean(&self) -> bool {
        self.failures.is_empty()
    }

    /// The program had nothing left to do it with, and not the broker.
    pub(crate) fn is_client_busy(&self) -> bool {
        self.median(|run| run.client_share) > Some(BUSY)
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
            "## With programs that we did not write\n\n`loadtest` and `pingtest` of 2013 (github.com/jeffallen/mqtt), \
             medians of the same number of rounds, in turns. CPU time is per delivery and \
             includes connecting, and so do the rates \
             that the programs print (those of `pingtest` are of what is published). *x* is the \
             ratio of the broker's CPU time to {YARDSTICK}'s, *our x* the same with our own \
             generator in the \
             row of the same load, and *dearer* the first divided by the second, which has a bar \
             for ours: a generator that favours \
             ours would show it dearer elsewhere. *client* is what the program took of the time \
             that the broker left on all cores; \
             above {BUSY} of it a rate of ours that is too low is not judged, and against a \
             peer's none is passed.\n"
        )?;
        writeln!(
            f,
            "| row | command | peer | messages/s | broker µs/msg | x | our x | dearer | client µs/msg | client | rounds |\n|---|---|---|--:|--:|--:|--:|--:|--:|--:|--:|"
        )?;
        for check in self.checks {
            for cell in &check.cells {
                let two = |value: f64| format!("{value:.2}");
                let spread = |ratio: Option<Spread>| ratio.map(|ratio| ratio.shown(two));
                write!(
                    f,
                    "| {} | `{}` | {} |",
                    check.label, check.command, cell.peer
                )?;
                let rate = cell.median(RATE);
                write!(f, " {} |", rate.map_or_else(String::new, grouped))?;
                for text in [
                    cell.median(BROKER_CPU).map(two),
                    spread(check.to_yardstick(cell)),
                    spread(check.with_our_generator(cell, self.rows)),
                    spread(check.dearer(cell, self.rows)),
                    cell.median(|run| run.client_cpu_us).map(two),
                    cell.median(|run| run.client_share).map(two),
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
mod tests;
