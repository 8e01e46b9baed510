//! The command `fasta`: writes DNA sequences to standard output.

#![forbid(unsafe_code)]

use std::io::{self, BufWriter, ErrorKind, Write};
use std::process::ExitCode;

use clap::Parser;
use unbroken_workloads::nucleotide::fasta;

/// fasta: three DNA sequences of 2, 3 and 5 times N bases, as the Benchmarks Game defines them
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    /// A tenth of all bases
    #[arg(default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(..=1 << 40))]
    n: u64,
}

fn main() -> ExitCode {
    let out = BufWriter::with_capacity(1 << 16, io::stdout().lock());
    match fasta::write(Cli::parse().n, out) {
        Ok(()) => ExitCode::SUCCESS,
        // The reader has enough.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            // Where standard error is closed as well, the exit code is left.
            let _ = writeln!(io::stderr(), "fasta: standard output: {error}");
            ExitCode::FAILURE
        }
    }
}
