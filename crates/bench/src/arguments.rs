//! Arguments that several benchmarks take, said and obeyed in one place.

use std::{
    io::{self, Write},
    path::PathBuf,
};

use clap::{Args, builder::FalseyValueParser};

use crate::{
    peer::{Peer, Role},
    record::Skipped,
};

/// How much is run, of which program, and where it is recorded.
#[derive(Debug, Args)]
pub(crate) struct Common {
    /// Rounds; medians of fewer than five say little
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Where the record is written
    #[arg(long, default_value = "docs/benchmarks")]
    pub(crate) out: PathBuf,
    /// One short round of everything, no record; fails only if something does not run, something
    /// does not arrive, or a count or a size misses its bar
    #[arg(long)]
    pub(crate) smoke: bool,
    /// The program to measure; if left out, the one that is built beside this one
    #[arg(long, env = "UNBROKEN_BIN")]
    unbroken: Option<PathBuf>,
}

impl Common {
    /// At least one.
    pub(crate) fn rounds(&self) -> usize {
        if self.smoke { 1 } else { self.rounds.max(1) }
    }

    /// Fails if this program does not know where it is itself.
    pub(crate) fn unbroken(&self) -> io::Result<PathBuf> {
        match &self.unbroken {
            Some(named) => Ok(named.clone()),
            None => Ok(std::env::current_exe()?.with_file_name("unbroken")),
        }
    }
}

/// What happens when a peer's program is not there.
#[derive(Debug, Args)]
pub(crate) struct Missing {
    /// A program that is missing is a failure instead of being skipped
    #[arg(long, env = "UNBROKEN_REQUIRE_TOOLS", value_parser = FalseyValueParser::new())]
    require_tools: bool,
}

impl Missing {
    /// Takes those out whose programs are missing, and returns them; one that stays will fail to
    /// start.
    pub(crate) fn take_out(&self, peers: &mut Vec<Peer>) -> Vec<Skipped> {
        if self.require_tools {
            return Vec::new();
        }
        // Without a peer the others can still be tried; without ours there is nothing to try.
        let missing = peers.extract_if(.., |peer| peer.role != Role::Ours && peer.is_missing());
        missing.map(|peer| Skipped::of(&peer)).collect()
    }
}

/// Says on standard error who is not in a run.
pub(crate) fn tell(skipped: &[Skipped]) -> io::Result<()> {
    for what in skipped {
        writeln!(io::stderr(), "skipped: {what}")?;
    }
    Ok(())
}
