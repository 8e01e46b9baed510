//! `unbroken-bench scaling`: what connections, subscriptions and messages take with one shard and
//! with two, measured, and from that what larger machines would take, computed.
//!
//! Nothing here has seen a machine of 16 or 64 cores: `model.rs` has the formulas, and
//! docs/scaling.md says what they leave out.

mod memory;
mod model;

use std::{
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
};

use clap::Args;

use crate::{
    cli,
    error::BenchError,
    figure::{Bar, Figure, Record},
    machine::Machine,
    peer::{self, ONE_SHARD as ONE, TWO_SHARDS as TWO},
    results::CPU,
    rounds, rows,
};
use model::{Measured, Model};

/// How much is run, and where it is recorded.
#[derive(Debug, Args)]
pub(crate) struct Scaling {
    /// Rounds; medians of fewer than five say little
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Connections of which the memory is measured
    #[arg(long, default_value_t = 15_000)]
    connections: u32,
    /// Where the record is written
    #[arg(long, default_value = "docs/benchmarks")]
    out: PathBuf,
    /// One short round of everything, no record
    #[arg(long)]
    smoke: bool,
    /// The program to measure
    #[arg(long, env = "UNBROKEN_BIN")]
    unbroken: Option<PathBuf>,
}

const NOTES: &str = "each on a broker of its own. Memory is what the broker's process holds more \
    than before, divided by how many there are; the kernel's for their sockets is not in it. CPU time \
    is that of the row pairs500. What is called computed was not measured: see docs/scaling.md.";

/// CPU per message with two shards to that with one.
const DEARER_AT_MOST: f64 = 1.25;

impl Scaling {
    pub(crate) fn run(self) -> Result<ExitCode, BenchError> {
        let machine = Machine::here();
        let rounds = if self.smoke { 1 } else { self.rounds.max(1) };
        let connections = if self.smoke { 200 } else { self.connections };
        let unbroken = self.unbroken.map_or_else(cli::sibling, Ok)?;
        let peers = peer::choose(&unbroken, None, &[ONE, TWO].map(String::from), false)?;
        let progress = &mut io::stderr().lock();

        let mut figures = Vec::new();
        for peer in &peers {
            figures.extend(memory::figures(peer));
        }
        let each = figures.len() / peers.len();
        for round in 0..rounds {
            for (peer, figures) in peers.iter().zip(figures.chunks_mut(each)) {
                memory::round(peer, connections, figures)?;
                writeln!(
                    progress,
                    "round {}/{rounds}  memory  {}",
                    round + 1,
                    peer.name
                )?;
            }
        }
        let row = rows::choose(&["pairs500".to_owned()])?.remove(0);
        let row = if self.smoke { row.smoke() } else { row };
        let cpu = rounds::run_one(&row, &peers, rounds, progress)?;
        let figure = |name, title, unit, bar| Figure::new(name, title, unit, bar);
        let mut one = figure("cpu-1", "CPU time per message, one shard", "µs", None);
        let mut two = figure("cpu-2", "the same, two shards", "µs", None);
        let bar = Some(Bar::AtMost(DEARER_AT_MOST));
        let mut dearer = figure("cpu", "with two shards to one", "ratio", bar);
        let values = cpu.values(ONE, CPU).into_iter().zip(cpu.values(TWO, CPU));
        for (with_one, with_two) in values {
            one.add(with_one);
            two.add(with_two);
            dearer.add(with_two / with_one);
        }
        let (one_shard, two_shards) = figures.split_at(each);
        let measured = Measured {
            one: memory::medians(one_shard),
            two: memory::medians(two_shards),
            cpu_us: [one.median(), two.median()],
        };
        figures.extend([one, two, dearer]);
        figures.extend(Model::of(&measured).figures());
        if self.smoke {
            return Ok(ExitCode::SUCCESS);
        }
        let record = Record {
            title: "What more cores and more clients would take",
            notes: NOTES,
            below: "",
            machine,
            rounds,
            figures,
        };
        record.write(&self.out, "scaling")
    }
}
