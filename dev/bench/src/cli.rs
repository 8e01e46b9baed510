//! The arguments of the benchmarks and what they set off.

use crate::{
    arguments::{self, Common, Missing},
    audit::Audit,
    cross_check::Programs,
    doors::Doors,
    durability::Durability,
    error::BenchError,
    fairness::Fairness,
    logins::Logins,
    peer,
    record::{Described, Record},
    relay::{Fate, Relay},
    results, rounds, rows,
    scaling::Scaling,
    shards::Shards,
    verdict::Verdict,
};
use clap::{Args, Parser, Subcommand};
use std::{
    io::{self, Write},
    path::{self, PathBuf},
    process::ExitCode,
    sync::atomic::AtomicBool,
    time::Duration,
};

/// Benchmarks beside peers
#[derive(Debug, Parser)]
#[command(version)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Put the same load on Unbroken and its peers in turn, and record the result
    Brokers(Brokers),
    /// Measure what the proof costs, beside only hashing the same bytes, and record the result
    Audit(Audit),
    /// Measure what it costs to keep messages on disk, beside a peer that does too, and record it
    Durability(Durability),
    /// Measure what one client's flood or silence does to the others, beside peers, and record it
    Fairness(Fairness),
    /// Measure what a login costs, and what floods of logins do to others, and record it
    Logins(Logins),
    /// Measure what TLS, WebSocket, access rules and passwords cost, beside peers, and record it
    Doors(Doors),
    /// Put the same load on Unbroken with one shard and with two in turn, and record the ratios
    Shards(Shards),
    /// Measure what connections, filters and shards take, and compute what more of them would
    Scaling(Scaling),
    /// Serve as the floor: forward frames by their length
    #[command(hide = true)]
    Relay {
        /// Port on the loopback
        #[arg(long)]
        port: u16,
        /// Microseconds to sleep after each turn
        #[arg(long, default_value_t = 0)]
        rest: u64,
    },
}

/// How much is run, on whom, and where it is recorded.
#[derive(Debug, Args)]
struct Brokers {
    /// Rows by name, separated by commas; all if left out. Also stamping, stamping200: what the
    /// audit's numbers and hashes cost, with --peers unbroken,unstamped
    #[arg(long, value_delimiter = ',')]
    rows: Vec<String>,
    /// Peers by name, separated by commas: unbroken, mosquitto, relay, nats, mochi if left out;
    /// also aedes, hivemq, rabbitmq, rmqtt, rumqttd, or all (every broker there is); unbroken1,
    /// unbroken2 (so many shards), unstamped (no numbers and hashes of the audit). What is missing
    /// is installed
    #[arg(long, value_delimiter = ',')]
    peers: Vec<String>,
    /// Holds programs of which no package is at hand: `flashmq` and `mosquitto-2.1` are run if they
    /// are there, and named if any peer is named. Without them the record says what they reached
    /// elsewhere
    #[arg(long, value_name = "DIR")]
    peers_dir: Option<PathBuf>,
    /// Measured seconds of every run, instead of each row's own
    #[arg(long)]
    secs: Option<f64>,
    /// Threads of the load generator, instead of one for each two cores
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    threads: Option<u32>,
    /// Also where rows are named: put three loads on every peer with load generators that we did
    /// not write, `loadtest` and `pingtest` of 2013. A record of all rows has that without being
    /// asked
    #[arg(long, conflicts_with = "smoke")]
    cross_check: bool,
    /// A bar that is missed, or could not be judged, is a failure of the whole, when everything is
    /// written; and so is a run in which there was none, or of another version of a peer
    #[arg(long, conflicts_with = "smoke")]
    require_bars: bool,
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    missing: Missing,
}

/// Does what the arguments say.
pub fn run(cli: Cli) -> Result<ExitCode, BenchError> {
    match cli.command {
        Command::Brokers(args) => args.run(),
        Command::Audit(args) => args.run(),
        Command::Durability(args) => args.run(),
        Command::Fairness(args) => args.run(),
        Command::Logins(args) => args.run(),
        Command::Doors(args) => args.run(),
        Command::Shards(args) => args.run(),
        Command::Scaling(args) => args.run(),
        Command::Relay { port, rest } => {
            let forever = AtomicBool::new(false);
            Relay::bind(port)?.run(Duration::from_micros(rest), &forever, || Fate::Pass)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

impl Brokers {
    fn run(self) -> Result<ExitCode, BenchError> {
        let smoke = self.common.smoke;
        let machine = self.common.begin()?;
        let threads = self.threads.unwrap_or(machine.generator_threads());
        let rows = rows::prepared(&self.rows, self.secs, smoke)?.into_iter();
        let rows: Vec<_> = rows.map(|row| row.driven_by(threads)).collect();
        let unbroken = self.common.unbroken()?;
        let directory = self.peers_dir.as_deref().map(path::absolute).transpose()?;
        let mut peers = peer::choose(&unbroken, directory.as_deref(), &self.peers, smoke)?;
        let mut skipped = self.missing.take_out(&mut peers);
        let is_checked = self.cross_check || self.rows.is_empty() && !smoke;
        let programs = is_checked.then(|| Programs::find(directory.as_deref()));
        if let Some(programs) = &programs {
            skipped.extend_from_slice(&programs.skipped);
        }
        arguments::tell(&skipped)?;
        let described = Described::all(&peers)?;
        if self.require_bars {
            Described::refuse_others(&described)?;
        }
        let rounds = self.common.rounds();
        let progress = &mut io::stderr().lock();
        let mut record = Record {
            machine,
            rounds: 0,
            rounds_asked: rounds,
            generator_threads: threads,
            peers: described,
            skipped,
            verdicts: Vec::new(),
            checks: Vec::new(),
            rows: Vec::new(),
        };
        // Who ends it after an hour has what was measured until then.
        let rows = rounds::run_and_keep(&rows, &peers, rounds, progress, |rounds, rows| {
            if smoke {
                return Ok(());
            }
            record.take(rounds, rows.to_vec(), Vec::new());
            record.write(&self.common.out)
        })?;
        let checks = programs.map(|programs| programs.run(&peers, rounds, progress));
        let checks = checks.transpose()?.unwrap_or_default();
        if smoke {
            results::refuse_faults(&rows)?;
            return Ok(ExitCode::SUCCESS);
        }
        record.take(rounds, rows, checks);
        record.write(&self.common.out)?;
        write!(
            io::stdout().lock(),
            "{record}\n\nWritten to {}\n",
            self.common.out.display()
        )?;
        let Some(missed) = not_passed(&record.verdicts) else {
            return Ok(ExitCode::SUCCESS);
        };
        writeln!(progress, "{missed}")?;
        Ok(if self.require_bars {
            ExitCode::FAILURE
        } else {
            ExitCode::SUCCESS
        })
    }
}

/// What there is to say of bars that were not passed, or of none at all.
fn not_passed(verdicts: &[Verdict]) -> Option<String> {
    if verdicts.is_empty() {
        let text = "no bar was judged: `unbroken` is not among the peers, or no row has a bar";
        return Some(text.to_owned());
    }
    let missed = verdicts.iter().filter(|verdict| !verdict.passed());
    let missed: Vec<_> = missed.map(Verdict::name).collect();
    (!missed.is_empty()).then(|| format!("bars not passed:\n  {}", missed.join("\n  ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        bars::ROUNDS,
        peer::{OURS, Role},
        results::RowResult,
        verdict,
    };

    #[test]
    fn a_run_in_which_no_bar_was_judged_has_passed_none() {
        let judged = |peer, role| {
            let times = [20.0; ROUNDS];
            let peers = [(peer, role, &times[..]), ("mosquitto", Role::Peer, &times)];
            not_passed(&verdict::judge(&[RowResult::made_of(&peers)], &[]))
        };
        assert_eq!(judged(OURS, Role::Ours), None);
        let why = judged("nats", Role::Peer).unwrap();
        assert!(why.contains("no bar was judged"), "{why}");
    }
}
