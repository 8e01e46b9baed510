//! Arguments that several benchmarks take, said and obeyed in one place.

use std::{
    fs,
    io::{self, Write},
    path::PathBuf,
};

use clap::{Args, builder::FalseyValueParser};

use crate::{
    error::BenchError,
    machine::{BUILD_OURS, Machine, OUR_PROGRAM},
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
    #[arg(long, env = OUR_PROGRAM)]
    unbroken: Option<PathBuf>,
}

impl Common {
    /// Where and when the run begins. The directory of its record is there then, and can be written
    /// to: what hours have found is not to be lost for that.
    pub(crate) fn begin(&self) -> Result<Machine, BenchError> {
        if !self.smoke {
            let made = fs::create_dir_all(&self.out);
            let tried = made.and_then(|()| tempfile::tempfile_in(&self.out));
            tried.map_err(|source| BenchError::Write {
                path: self.out.clone(),
                source,
            })?;
        }
        Ok(Machine::here())
    }

    /// At least one.
    pub(crate) fn rounds(&self) -> usize {
        if self.smoke { 1 } else { self.rounds.max(1) }
    }

    /// Where our own program is. Fails if it is not there, or if this one does not know where it is
    /// itself.
    pub(crate) fn unbroken(&self) -> io::Result<PathBuf> {
        let program = match &self.unbroken {
            // It is started in a directory of its own.
            Some(named) => std::path::absolute(named)?,
            None => std::env::current_exe()?.with_file_name("unbroken"),
        };
        if program.is_file() {
            return Ok(program);
        }
        let text = format!("{} is not there: {BUILD_OURS}", program.display());
        Err(io::Error::new(io::ErrorKind::NotFound, text))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_of_the_record_is_there_before_anything_is_run() {
        let directory = tempfile::tempdir().unwrap();
        let common = |out: &str, smoke| Common {
            rounds: 5,
            out: directory.path().join(out),
            smoke,
            unbroken: None,
        };
        common("made/for/it", false).begin().unwrap();
        assert!(directory.path().join("made/for/it").is_dir());
        common("not/made", true).begin().unwrap();
        assert!(!directory.path().join("not").exists());
        // Where there is a file no directory can be made.
        fs::write(directory.path().join("file"), "").unwrap();
        let error = common("file/records", false).begin().unwrap_err();
        assert!(error.to_string().contains("file/records"), "{error}");
    }

    #[test]
    fn our_program_is_found_from_wherever_it_is_started_and_missed_at_once() {
        let named = |program: &str| Common {
            rounds: 5,
            out: PathBuf::new(),
            smoke: false,
            unbroken: Some(program.into()),
        };
        // As good as a program: tests run in the directory of their crate.
        let found = named("Cargo.toml").unbroken().unwrap();
        assert!(found.is_absolute() && found.ends_with("Cargo.toml"));
        let error = named("nowhere/unbroken").unbroken().unwrap_err();
        assert!(error.to_string().contains("nowhere/unbroken is not there"));
    }
}
