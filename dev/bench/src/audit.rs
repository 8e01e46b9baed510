//! `unbroken-bench audit`: what the proof costs, held against its bars.
//!
//! Rates are relative: the ledger takes the same messages that are also only hashed, in turns, so
//! that a machine that gets slower gets slower for both. Bytes and counts are exact and the same in
//! every run.

mod bars;
mod cost;
mod faults;
mod rates;
mod stamping;
mod trial;

use std::{
    io::{self, Write},
    process::ExitCode,
};

use clap::Args;

use crate::{arguments::Common, error::BenchError, figure::Record, record::Described};

/// How much is run, and where it is recorded.
#[derive(Debug, Args)]
pub(crate) struct Audit {
    /// Also a million messages through real processes, with 1, 10, 100 and 1,000 faults: about a
    /// quarter of an hour
    #[arg(long)]
    trial: bool,
    #[command(flatten)]
    common: Common,
}

const NOTES: &str = "on one thread. Ratios are taken within a round, in which hashing and judging \
    the same messages take turns. A message has 200 bytes of payload; its digest, its property's \
    check, its window's hash and the checkpoints are all in the ledger's time. Sizes and counts are \
    the same in every run.";

/// Messages of a trial.
const TRIAL_MESSAGES: u32 = 1_000_000;

impl Audit {
    pub(crate) fn run(self) -> Result<ExitCode, BenchError> {
        let machine = self.common.begin()?;
        let (rounds, smoke) = (self.common.rounds(), self.common.smoke);
        let mut figures = rates::figures();
        for round in 1..=rounds {
            writeln!(io::stderr(), "round {round} of {rounds}")?;
            rates::round(&mut figures, smoke);
        }
        figures.extend(cost::figures());
        writeln!(
            io::stderr(),
            "a million swaps, a million messages with faults"
        )?;
        figures.extend(faults::figures(smoke));
        let unbroken = self.common.unbroken()?;
        let peers = stamping::peers(&unbroken)?;
        figures.extend(stamping::figures(
            &peers,
            rounds,
            smoke,
            &mut io::stderr().lock(),
        )?);
        if self.trial {
            writeln!(io::stderr(), "four lines of a million messages")?;
            figures.extend(trial::figures(&unbroken, TRIAL_MESSAGES)?);
        }
        let record = Record {
            title: "What the proof costs",
            notes: NOTES.to_owned(),
            below: bars::BARS,
            machine,
            rounds,
            peers: Described::all(&peers)?,
            figures,
        };
        if smoke {
            record.refuse_missed()?;
            Ok(ExitCode::SUCCESS)
        } else {
            record.write(&self.common.out, "audit")
        }
    }
}
