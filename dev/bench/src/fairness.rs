//! `unbroken-bench fairness`: what one client does to the others, held against its bars.
//!
//! A quiet pair beside a publisher at full speed and beside messages to a crowd, and everybody
//! beside a subscriber that has stopped reading, at QoS 0, and at QoS 1 with a session that stays.
//! Each figure stands beside the same load without the unfair client in the same round, that beside
//! a crowd on the same broker and the others on brokers of their own.
//!
//! Ours with two shards is beside ours as it comes by default: what a client does to those on the
//! other shard is shown there, and has no bar.

mod crowd;
mod flood;
mod precedence;
mod probe;
mod silence;

use std::{
    io::{self, Write},
    path::{self, PathBuf},
    process::ExitCode,
    time::Duration,
};

use clap::Args;
use unbroken_load::{Report, Settings, Unobserved};

use crate::{
    arguments::{self, Common, Missing},
    bars::{LATENCY_SECONDS, ROUNDS},
    error::BenchError,
    figure::{Figure, Record},
    peer::{self, Peer},
    record::Described,
};

/// How much is run, on whom, and where it is recorded.
#[derive(Debug, Args)]
pub(crate) struct Fairness {
    /// Measured seconds of every run
    #[arg(long, default_value_t = LATENCY_SECONDS)]
    secs: f64,
    /// Subscribers of the crowd; each is a descriptor here and one in the broker
    #[arg(long, default_value_t = 15_000)]
    crowd: u32,
    /// Peers beside Unbroken, by the names of `brokers`, separated by commas
    #[arg(long, value_delimiter = ',', default_value = "mosquitto,nats")]
    peers: Vec<String>,
    /// Holds programs of which no package is at hand, `flashmq` and `mosquitto-2.1`, if `--peers`
    /// names one
    #[arg(long, value_name = "DIR")]
    peers_dir: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    missing: Missing,
}

const NOTES: &str = "each round every broker in turn, started anew for each load. The quiet pair \
    sends 100 messages/s of 16 bytes, open loop; the flood is one publisher and one subscriber, 100 \
    bytes, 32 messages a write, with at most 10,000 under way. The crowd has one topic and reads \
    nothing until the end, when a hundred of it, evenly chosen, must each have got every message and \
    still be served; 200 ms after the acknowledgement of one message to the crowd somebody publishes \
    the next, at QoS 1. The quiet pair beside it sends 1,000 messages/s, and judged are those that a \
    message to the crowd can have held up. The silent subscriber asks for `#` and reads nothing more, \
    beside 100 connections in pairs with messages of 1 KiB. All else is QoS 0, but for the figures of \
    a silent session that stays: there all is QoS 1, each publisher with at most 10 unacknowledged, and \
    the same is run beside such a session whose client is away, for which as much is kept. When the \
    load is over the silent one has to be connected still. Load and broker share the machine: the \
    flood's own thread comes behind all others (`SCHED_IDLE`)";

/// What follows it where threads of the load may come first and last.
const IN_ORDER: &str = ", and those of the quiet pair and of who publishes to the crowd before all \
    of ordinary priority (`SCHED_FIFO`): so latencies of the pair hold no wait of its own threads \
    for a core. Latencies in the figures of a silent subscriber do.";
/// And where they may not.
const NOT_IN_ORDER: &str = ", or should: threads of the load were not allowed to come before others \
    and behind them (on Linux that takes `CAP_SYS_NICE` or `RLIMIT_RTPRIO`), so every latency holds \
    their wait for a core too.";

impl Fairness {
    pub(crate) fn run(self) -> Result<ExitCode, BenchError> {
        let machine = self.common.begin()?;
        let (rounds, smoke) = (self.common.rounds(), self.common.smoke);
        let secs = if smoke { 0.3 } else { self.secs };
        let crowd = if smoke { 200 } else { self.crowd };
        let secs = Duration::try_from_secs_f64(secs).map_err(io::Error::other)?;
        let unbroken = self.common.unbroken()?;
        let directory = self.peers_dir.as_deref().map(path::absolute).transpose()?;
        let names: Vec<_> = [OURS.map(String::from).to_vec(), self.peers].concat();
        let mut peers = peer::choose(&unbroken, directory.as_deref(), &names, smoke)?;
        if smoke {
            arguments::tell(&self.missing.take_out(&mut peers))?;
        }
        let described = Described::all(&peers)?;
        let progress = &mut io::stderr().lock();
        let mut floods = Vec::new();
        let mut crowds = Vec::new();
        let mut silences = Vec::new();
        for round in 0..rounds {
            for turn in 0..peers.len() {
                let peer = &peers[(round + turn) % peers.len()];
                write!(progress, "round {}/{rounds}  {:<10}", round + 1, peer.name)?;
                let flood = flood::measure(peer, secs)?;
                write!(progress, "  beside a flood: {flood}")?;
                let to_all = crowd::measure(peer, secs, crowd)?;
                write!(progress, "  beside a crowd: {to_all}")?;
                let silence = silence::measure(peer, secs)?;
                writeln!(progress, "  beside silence: {silence}")?;
                floods.push((round, peer.name, flood));
                crowds.push((round, peer.name, to_all));
                silences.push((round, peer.name, silence));
            }
        }
        let mut figures = flood::figures(&floods);
        figures.extend(crowd::figures(&crowds, crowd));
        figures.extend(silence::figures(&silences));
        if smoke {
            return Ok(ExitCode::SUCCESS);
        }
        let is_short = is_short(self.secs, rounds);
        if is_short {
            figures = figures.into_iter().map(Figure::in_short).collect();
        }
        let record = Record {
            title: "What one client does to the others",
            notes: notes(),
            below: if is_short { TOO_SHORT } else { "" },
            machine,
            rounds,
            peers: described,
            figures,
        };
        record.write(&self.common.out, "fairness")
    }
}

fn notes() -> String {
    let order = if precedence::is_allowed() {
        IN_ORDER
    } else {
        NOT_IN_ORDER
    };
    format!("{NOTES}{order}")
}

/// Whether this is less than the bars are about.
fn is_short(secs: f64, rounds: usize) -> bool {
    secs < LATENCY_SECONDS || rounds < ROUNDS
}

/// What stands below the record if its figures are of less than the bars are about.
const TOO_SHORT: &str = "Too short: the bars are about 5 rounds of 10 seconds at least, and this \
    record has less. So none is passed.\n";

/// Ours as it comes, which has bars, and with two shards, which has none.
const OURS: [&str; 2] = [peer::OURS, peer::TWO_SHARDS];

/// What was found: in which round, on whom, what.
type Rounds<T> = [(usize, &'static str, T)];

/// A broker of others.
fn is_peer(name: &str) -> bool {
    !OURS.contains(&name)
}

/// The names of those measured, ours first.
fn names<T>(rounds: &Rounds<T>) -> Vec<&'static str> {
    let mut names = vec![peer::OURS];
    for (_, name, _) in rounds {
        if !names.contains(name) {
            names.push(name);
        }
    }
    names
}

/// A load of which everything has to arrive.
fn load(row: &'static str, peer: &Peer, settings: Settings) -> Result<Report, BenchError> {
    let report = unbroken_load::run(settings, &mut Unobserved);
    let report = report.map_err(|source| BenchError::Load {
        row,
        peer: peer.name,
        source: Box::new(source),
    })?;
    if report.is_clean() {
        Ok(report)
    } else {
        let peer = peer.name;
        Err(BenchError::Faulty { row, peer })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_of_less_than_the_bars_are_about_is_short() {
        assert!(!is_short(10.0, 5));
        for (secs, rounds) in [(3.0, 5), (10.0, 4)] {
            assert!(is_short(secs, rounds));
        }
        assert!(TOO_SHORT.contains(&format!("{ROUNDS} rounds of {LATENCY_SECONDS} s")));
    }
}
