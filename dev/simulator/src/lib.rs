//! Whole shards and clients under seeded random schedules.
//!
//! One number decides everything: which features a run uses ([`Options`]), what the clients do, and
//! in which order bytes, messages, answers and time reach the shards. The code under test is
//! `unbroken-broker-core` as it is; only the driver around it is replaced.
//!
//! Where the broker has a disk, that is a store in memory. In a share of the runs all of the broker
//! vanishes now and then, or its disk fails, and another one begins with what is on disk. With a
//! disk that fails it may go on for a while, for those who need none.
//!
//! Where the store does not sync each commit, the machine ends, too: what was acknowledged before
//! the last sync must be there, and what is there must be whole. Another broker goes on with it,
//! and with clients that know more.
//!
//! In a share of the runs clients have access rules, which change while they run: what is denied
//! is never delivered.
//!
//! What must hold is in `oracle`; it is looked at after every step. At the end of a run everything
//! comes to rest, all totals are compared, the retained messages are read on several shards, every
//! session ends, and nothing may be left.
//!
//! Deliberately absent: bytes that no client should send (the fuzz target `session`), sockets and
//! threads (the acceptance tests).

#![forbid(unsafe_code)]

mod action;
mod client;
mod finish;
mod groups;
mod message;
mod options;
mod oracle;
mod rng;
mod world;

use std::fmt::{self, Write as _};
use std::panic::{AssertUnwindSafe, catch_unwind};

use unbroken_store::Durability;

pub use options::Options;

use crate::world::World;

/// What a run that found nothing has done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Messages that clients made.
    pub messages: u64,
    /// PUBLISH packets that the broker sent.
    pub sent: u64,
    /// Messages that were dropped and named.
    pub dropped: u64,
    /// How often the broker was killed.
    pub kills: u64,
    /// Messages that publishers heard to be refused, as something was full, where the broker was
    /// killed as well.
    pub refused_between_kills: u64,
    /// Epochs of lanes that a crash has cut, of which receivers together have seen all that was
    /// told: it was true.
    pub epochs_cut: u64,
    /// Everything the broker counted; equal for equal seeds.
    pub digest: String,
}

/// What a run has found.
#[derive(Debug)]
pub struct Failure {
    /// The run, with its seed.
    pub options: Options,
    /// What does not hold.
    pub problem: String,
    /// The last things that happened.
    pub trace: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}: {}", self.options.seed, self.problem)?;
        writeln!(f, "options: {:?}", self.options)?;
        for line in &self.trace {
            writeln!(f, "  {line}")?;
        }
        let Options { seed, kills, .. } = self.options;
        let repeat = "repeat it with: cargo run --release -p unbroken-simulator --";
        write!(f, "{repeat} --trace {seed}")?;
        if kills == Options::from_seed(seed).kills {
            return Ok(());
        }
        write!(f, " --kills {kills}")
    }
}

/// Runs one seed. With `traced`, a failure tells what happened before it.
pub fn run(seed: u64, traced: bool) -> Result<Report, Box<Failure>> {
    run_with(Options::from_seed(seed), traced)
}

/// Runs a seed with options that may be others than its own.
pub fn run_with(options: Options, traced: bool) -> Result<Report, Box<Failure>> {
    let mut world = World::new(options.clone(), traced);
    match catch_unwind(AssertUnwindSafe(|| play(&mut world))) {
        Ok(report) => Ok(report),
        Err(payload) => {
            let text = payload.downcast_ref::<String>().cloned();
            let text = text.or_else(|| {
                payload
                    .downcast_ref::<&str>()
                    .map(|text| (*text).to_owned())
            });
            Err(Box::new(Failure {
                options,
                problem: text.unwrap_or_else(|| "a panic without words".to_owned()),
                trace: world.trace.into_iter().flatten().collect(),
            }))
        }
    }
}

fn play(world: &mut World) -> Report {
    world.begin_rights();
    for _ in 0..world.options.steps {
        world.step();
    }
    if world.options.durability != Durability::Strict {
        world.lose_power();
        for _ in 0..world.options.steps / 2 {
            world.step();
        }
    }
    world.come_to_rest();
    let mut report = Report {
        messages: world.oracle.messages.len() as u64,
        ..Report::default()
    };
    report.sent = world.past.sent;
    report.dropped = world.past.dropped.iter().sum();
    report.kills = world.past.kills;
    report.epochs_cut = world.past.epochs_cut;
    if report.kills > 0 {
        report.refused_between_kills = world.oracle.refused;
    }
    for stats in world.stats() {
        report.sent += stats.publishes_written();
        report.dropped += stats.dropped_total();
        let _ = writeln!(report.digest, "{stats:?}");
    }
    world.read_retained();
    world.end_everything();
    report
}
