//! The command `k-nucleotide`: counts words in the third DNA sequence of its input; with `--peer`
//! it runs itself and another program in turn, and compares output and time.

#![forbid(unsafe_code)]

use std::fs::File;
use std::io::{self, BufReader, Write};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use thiserror::Error;
use unbroken_workloads::graph500::statistics::Summary;
use unbroken_workloads::nucleotide::pipeline::{self, CountError};

/// Bytes that are read at once.
const READ: usize = 256 * 1_024;

/// k-nucleotide: how often words come in a DNA sequence, as the Benchmarks Game defines it
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    /// Read this file instead of standard input
    #[arg(long, value_name = "FILE")]
    read: Option<PathBuf>,
    /// Threads that count; as many as the machine runs at once if left out
    #[arg(long)]
    threads: Option<NonZero<usize>>,
    /// Another program of the game, to be run on the same file in turn
    #[arg(long, value_name = "PATH", requires = "read")]
    peer: Option<PathBuf>,
    /// How often this program and the peer are run
    #[arg(long, default_value_t = NonZero::new(5).unwrap_or(NonZero::<usize>::MIN))]
    rounds: NonZero<usize>,
}

/// Why the command failed.
#[derive(Debug, Error)]
enum CommandError {
    #[error("{path}: {source}", path = .path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("{name}: {source}")]
    Count { name: String, source: CountError },
    #[error("{path}: ended with {status}", path = .path.display())]
    Program {
        path: PathBuf,
        status: std::process::ExitStatus,
    },
    #[error("{path}: its output differs from ours", path = .path.display())]
    Differs { path: PathBuf },
    #[error("standard output: {0}")]
    Output(#[from] io::Error),
}

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Where standard error is closed as well, the exit code is left.
            let _ = writeln!(io::stderr(), "k-nucleotide: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: &Cli) -> Result<(), CommandError> {
    if let (Some(file), Some(peer)) = (&cli.read, &cli.peer) {
        return compare(cli, file, peer);
    }
    let threads = cli
        .threads
        .map_or_else(threads_of_the_machine, NonZero::get);
    let (name, counted) = if let Some(path) = &cli.read {
        let from = BufReader::with_capacity(READ, open(path)?);
        (path.display().to_string(), pipeline::run(from, threads))
    } else {
        let from = BufReader::with_capacity(READ, io::stdin().lock());
        ("standard input".to_owned(), pipeline::run(from, threads))
    };
    let text = counted.map_err(|source| CommandError::Count { name, source })?;
    io::stdout().lock().write_all(text.as_bytes())?;
    Ok(())
}

fn threads_of_the_machine() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}

fn open(path: &Path) -> Result<File, CommandError> {
    File::open(path).map_err(|source| CommandError::File {
        path: path.to_owned(),
        source,
    })
}

/// Runs both as processes, the same file as their standard input.
fn compare(cli: &Cli, file: &Path, peer: &Path) -> Result<(), CommandError> {
    let mut out = io::stdout().lock();
    let own = std::env::current_exe()?;
    let mut own_arguments = Vec::new();
    if let Some(threads) = cli.threads {
        own_arguments = vec!["--threads".to_owned(), threads.to_string()];
    }
    let mut ratios = [Vec::new(), Vec::new()];
    for round in 1..=cli.rounds.get() {
        let ours = timed(&own, &own_arguments, file)?;
        let theirs = timed(peer, &[], file)?;
        if ours.output != theirs.output {
            let path = peer.to_owned();
            return Err(CommandError::Differs { path });
        }
        let over = |one: f64, other: f64| one / other.max(1e-9);
        let time = over(ours.time, theirs.time);
        let cpu = over(ours.cpu, theirs.cpu);
        writeln!(
            out,
            "round {round}: {:.3} s (CPU {:.3} s), peer {:.3} s (CPU {:.3} s), \
             time over peer {time:.3}, CPU over peer {cpu:.3}",
            ours.time, ours.cpu, theirs.time, theirs.cpu
        )?;
        ratios[0].push(time);
        ratios[1].push(cpu);
    }
    let [time, cpu] = ratios.map(|ratios| Summary::new(&ratios).median());
    writeln!(
        out,
        "output identical; medians: time over peer {time:.3}, CPU over peer {cpu:.3}"
    )?;
    Ok(())
}

/// One run of a program.
struct Timed {
    output: Vec<u8>,
    /// Seconds from start to end.
    time: f64,
    /// Seconds that its threads were running, which other programs disturb less.
    cpu: f64,
}

fn timed(path: &Path, arguments: &[String], file: &Path) -> Result<Timed, CommandError> {
    let mut command = Command::new(path);
    command.args(arguments).stdin(open(file)?);
    let cpu_before = cpu_of_children();
    let begin = Instant::now();
    let output = command.output().map_err(|source| CommandError::File {
        path: path.to_owned(),
        source,
    })?;
    let time = begin.elapsed().as_secs_f64();
    if output.status.success() {
        Ok(Timed {
            output: output.stdout,
            time,
            cpu: cpu_of_children() - cpu_before,
        })
    } else {
        Err(CommandError::Program {
            path: path.to_owned(),
            status: output.status,
        })
    }
}

/// Seconds of CPU of all processes that this one has started and that have ended; 0 if the system
/// does not say.
fn cpu_of_children() -> f64 {
    getrusage(UsageWho::RUSAGE_CHILDREN).map_or(0.0, |usage| {
        let time = usage.user_time() + usage.system_time();
        Duration::from_micros(time.num_microseconds().unsigned_abs()).as_secs_f64()
    })
}
