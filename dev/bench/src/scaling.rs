//! `unbroken-bench scaling`: what connections, subscriptions and messages take with one shard and
//! with two, measured, and from that what larger machines would take, computed.
//!
//! Nothing here has seen a machine of 16 or 64 cores: `model.rs` has the formulas, and
//! docs/scaling.md says what they leave out.

mod memory;
mod model;

use std::{
    io::{self, Write},
    process::ExitCode,
};

use clap::Args;

use crate::{
    arguments::Common,
    error::BenchError,
    figure::Record,
    peer::{ONE_SHARD as ONE, TWO_SHARDS as TWO},
    record::Described,
    results::CPU,
    rounds, rows, shards,
};
use model::{Measured, Model};

/// How much is run, and where it is recorded.
#[derive(Debug, Args)]
pub(crate) struct Scaling {
    /// Connections of which the memory is measured
    #[arg(long, default_value_t = 15_000)]
    connections: u32,
    #[command(flatten)]
    common: Common,
}

const NOTES: &str = "each on a broker of its own. Memory is what the broker's process holds more \
    than before, divided by how many there are; the kernel's for their sockets is not in it. CPU time \
    is that of the row pairs500; `bench shards` has all rows. What is called computed was not measured: see docs/scaling.md.";

impl Scaling {
    pub(crate) fn run(self) -> Result<ExitCode, BenchError> {
        let machine = self.common.begin()?;
        let (rounds, smoke) = (self.common.rounds(), self.common.smoke);
        let connections = if smoke { 200 } else { self.connections };
        let unbroken = self.common.unbroken()?;
        let peers = shards::peers(&unbroken)?;
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
        let row = if smoke { row.smoke() } else { row };
        let cpu = rounds::run_one(&row, &peers, rounds, progress)?;
        let median = |peer| cpu.cell(peer).and_then(|cell| cell.median(CPU));
        let cpu_us = [ONE, TWO].map(|peer| median(peer).unwrap_or(f64::NAN));
        let (one_shard, two_shards) = figures.split_at(each);
        let measured = Measured {
            one: memory::medians(one_shard),
            two: memory::medians(two_shards),
            cpu_us,
        };
        figures.push(shards::dearer(&cpu));
        figures.extend(Model::of(&measured).figures());
        if smoke {
            return Ok(ExitCode::SUCCESS);
        }
        let record = Record {
            title: "What more cores and more clients would take",
            notes: NOTES.to_owned(),
            below: "",
            machine,
            rounds,
            peers: Described::all(&peers)?,
            figures,
        };
        record.write(&self.common.out, "scaling")
    }
}
