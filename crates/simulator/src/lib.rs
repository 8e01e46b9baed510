//! Whole shards and clients under seeded random schedules.
//!
//! One number decides everything: which features a run uses ([`Options`]), what the clients do, and
//! in which order bytes, mail, answers and time reach the shards. The code under test is
//! `unbroken-broker-core` as it is; only the driver around it is replaced.
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
        write!(
            f,
            "repeat it with: cargo run -p unbroken-simulator -- --trace {}",
            self.options.seed
        )
    }
}

/// Runs one seed. With `traced`, a failure tells what happened before it.
pub fn run(seed: u64, traced: bool) -> Result<Report, Box<Failure>> {
    let options = Options::from_seed(seed);
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
    for _ in 0..world.options.steps {
        world.step();
    }
    world.come_to_rest();
    let mut report = Report {
        messages: world.oracle.messages.len() as u64,
        ..Report::default()
    };
    for stats in world.stats() {
        report.sent += stats.publishes_sent;
        report.dropped += stats.dropped_total();
        let _ = writeln!(report.digest, "{stats:?}");
    }
    world.read_retained();
    world.end_everything();
    report
}
