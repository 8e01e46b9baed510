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
             medians of the same number of rounds, in turns. CPU time is per delivery and includes connecting, and so do the rates \
             that the programs print (those of `pingtest` are of what is published). *x* is the ratio of the broker's CPU time to {YARDSTICK}'s, *our x* the same with our own generator in the \
             row of the same load, and *dearer* the first divided by the second, which has a bar for ours: a generator that favours \
             ours would show it dearer elsewhere. *client* is what the program took of the time that the broker left on all cores; \
             above {BUSY} of it a rate of ours that is too low is not judged, and against a peer's none is passed.\n"
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
mod tests {
    use super::*;
    use crate::{bars::ROUNDS, peer::OURS, results::tests::figures, verdict};

    /// `loadtest` with so much CPU time of the brokers, and such rates, in each of so many rounds.
    fn check(ours: (usize, f64, f64), mosquitto: (usize, f64, f64)) -> Check {
        let cell = |peer, role, (rounds, broker_cpu_us, messages_per_second)| Cell {
            peer,
            role,
            runs: vec![
                Run {
                    messages_per_second,
                    broker_cpu_us,
                    client_cpu_us: 1.0,
                    client_share: 0.5,
                };
                rounds
            ],
            failures: Vec::new(),
        };
        let cells = vec![
            cell(OURS, Role::Ours, ours),
            cell(YARDSTICK, Role::Peer, mosquitto),
        ];
        Check {
            cells,
            ..Check::new(&PROGRAMS[0], &[])
        }
    }

    /// What is said of the dearer, the CPU time and the rate of ours.
    fn judged(check: &Check, rows: &[RowResult]) -> [String; 3] {
        let verdicts = verdict::judge(rows, std::slice::from_ref(check));
        let last = verdicts.len() - 3;
        [last, last + 1, last + 2].map(|at| verdicts[at].to_string())
    }

    /// The row in which our generator finds the same for ours and for Mosquitto.
    fn alike() -> RowResult {
        let mut row = RowResult::made_of(&[
            (OURS, Role::Ours, &[1.0; ROUNDS]),
            (YARDSTICK, Role::Peer, &[1.0; ROUNDS]),
        ]);
        row.row = "pairs1000";
        for run in row.cells.iter_mut().flat_map(|cell| &mut cell.runs) {
            run.report.figures = Some(figures(1));
        }
        row
    }

    #[test]
    fn ours_may_not_be_much_dearer_with_another_generator_and_may_be_cheaper() {
        for (ours, passed) in [(15.0, true), (16.0, false), (7.0, true), (1.0, true)] {
            let check = check((ROUNDS, ours, 1.0), (ROUNDS, 10.0, 1.0));
            let [dearer, ..] = judged(&check, &[alike()]);
            assert!(dearer.contains("loadtest"), "{dearer}");
            assert_eq!(dearer.contains("| passed |"), passed, "{dearer}");
        }
        // It failed on Mosquitto, or on ours.
        for rounds in [(ROUNDS, 0), (0, ROUNDS)] {
            let check = check((rounds.0, 10.0, 1.0), (rounds.1, 10.0, 1.0));
            for said in judged(&check, &[alike()]) {
                assert!(said.contains("not measured"), "{said}");
            }
        }
    }

    #[test]
    fn ours_has_to_lead_with_programs_that_are_not_ours() {
        let better = (ROUNDS, 9.0, 11.0);
        let worse = (ROUNDS, 11.0, 9.0);
        for (ours, passed) in [(better, true), (worse, false)] {
            let check = check(ours, (ROUNDS, 10.0, 10.0));
            let [_, cpu, rate] = judged(&check, &[alike()]);
            assert_eq!(cpu.contains("| passed |"), passed, "{cpu}");
            assert_eq!(rate.contains("| passed |"), passed, "{rate}");
        }
        // A peer that failed once leads in nothing.
        let mut failing = check(better, (ROUNDS, 1.0, 100.0));
        failing.cells[1].failures.push("it hung".to_owned());
        let [_, cpu, rate] = judged(&failing, &[alike()]);
        assert!(cpu.contains("not measured") && rate.contains("not measured"));
        let short = check((ROUNDS - 1, 9.0, 11.0), (ROUNDS, 10.0, 10.0));
        for said in judged(&short, &[alike()]) {
            assert!(said.contains("too short"), "{said}");
        }
    }

    #[test]
    fn a_factor_of_fewer_rounds_than_the_bar_is_about_is_not_passed() {
        let five = || check((ROUNDS, 9.0, 11.0), (ROUNDS, 10.0, 10.0));
        // The program failed on Mosquitto in a round, or our own generator did, on either.
        let mut hung = five();
        hung.cells[1].runs.pop();
        hung.cells[1].failures.push("it hung".to_owned());
        let [dearer, ..] = judged(&hung, &[alike()]);
        assert!(dearer.contains("too short"), "{dearer}");
        for cell in 0..2 {
            let mut row = alike();
            row.cells[cell].runs.remove(1);
            let [dearer, cpu, _] = judged(&five(), &[row]);
            assert!(dearer.contains("too short"), "{dearer}");
            assert!(cpu.contains("| passed |"), "{cpu}");
        }
    }

    #[test]
    fn who_fails_with_a_program_misses_its_bars_and_is_not_called_short() {
        for rounds in [0, 2] {
            let mut check = check((rounds, 9.0, 11.0), (ROUNDS, 10.0, 10.0));
            check.cells[0].failures.push("it hung".to_owned());
            for said in judged(&check, &[alike()]) {
                assert!(said.contains("**missed**"), "{said}");
            }
        }
    }

    #[test]
    fn a_rate_that_the_program_held_back_is_not_missed() {
        let mut check = check((ROUNDS, 11.0, 9.0), (ROUNDS, 10.0, 10.0));
        for run in &mut check.cells[0].runs {
            run.client_share = 0.96;
        }
        let [_, cpu, rate] = judged(&check, &[alike()]);
        assert!(cpu.contains("missed"), "{cpu}");
        assert!(rate.contains("not judged (the program)"), "{rate}");
    }

    #[test]
    fn against_a_rate_that_the_program_held_back_ours_is_not_passed() {
        for (busy, ours, expected) in [
            (&[1][..], 11.0, "not judged (the program)"),
            (&[1], 9.0, "**missed**"),
            (&[0], 11.0, "| passed |"),
            (&[0, 1], 11.0, "not judged (the program)"),
        ] {
            let mut check = check((ROUNDS, 9.0, ours), (ROUNDS, 10.0, 10.0));
            for cell in busy {
                for run in &mut check.cells[*cell].runs {
                    run.client_share = 0.96;
                }
            }
            let [_, cpu, rate] = judged(&check, &[alike()]);
            assert!(cpu.contains("| passed |"), "{cpu}");
            assert!(rate.contains(expected), "{busy:?} {rate}");
        }
    }

    #[test]
    fn what_has_no_row_of_ours_is_compared_with_peers_only() {
        let check = Check {
            row: None,
            ..check((ROUNDS, 9.0, 11.0), (ROUNDS, 10.0, 10.0))
        };
        assert_eq!(verdict::judge(&[], &[check]).len(), 2);
    }

    #[test]
    fn why_a_program_panicked_is_told_and_not_where() {
        let said = "all started\npanic: nil pointer\n\ngoroutine 7:\n\tmain.go:121 +0x1a9\n";
        let error = PROGRAMS[0].failed("ended with 2", said).to_string();
        assert_eq!(error, "loadtest ended with 2: panic: nil pointer");
        let error = PROGRAMS[0].failed("hung", "all started\n").to_string();
        assert_eq!(error, "loadtest hung: all started");
    }

    #[test]
    fn a_run_that_failed_by_the_programs_own_fault_is_made_once_more() {
        let own = "panic: send on closed channel\n\ngoroutine 7:\n";
        let outcome = |faults: &[&'static str]| {
            let mut faults = faults.iter();
            let mut runs = 0;
            let outcome = once_more(|| {
                runs += 1;
                let fault = faults.next();
                fault.map_or(Ok(()), |said| Err(PROGRAMS[0].failed("ended", said).into()))
            });
            (outcome.is_ok(), runs)
        };
        assert_eq!(outcome(&[]), (true, 1));
        assert_eq!(outcome(&[own]), (true, 2));
        assert_eq!(outcome(&[own, own]), (false, 2));
        assert_eq!(outcome(&["all started\n"]), (false, 1));
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
