//! The command `graph500`: generates or reads a graph, runs kernels 1 and 2, validates each result,
//! and prints the figures in the form of the Graph500 text.

#![forbid(unsafe_code)]

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::thread;
use std::time::Instant;

use clap::Parser;
use session_channels::par::{Limits, Team};
use thiserror::Error;
use unbroken_workloads::graph500::edges::{self, Edge, EdgesError};
use unbroken_workloads::graph500::kronecker::Kronecker;
use unbroken_workloads::graph500::limits::{EDGE_FACTOR, EDGES_MAX, KEYS, SCALE_MAX};
use unbroken_workloads::graph500::run::{Benchmark, RunError};
use unbroken_workloads::graph500::statistics::{Report, Summary};

/// Graph500: breadth-first searches in a graph, each validated by the five rules
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    /// Generate a Kronecker graph of 2^SCALE vertices
    #[arg(long, default_value_t = 16, conflicts_with = "read")]
    scale: u32,
    /// Edge tuples for each vertex of a generated graph
    #[arg(long, default_value_t = EDGE_FACTOR, conflicts_with = "read")]
    edge_factor: u32,
    /// Seed of the graph and of the search keys
    #[arg(long, default_value_t = 2)]
    seed: u64,
    /// Read the edges from a file instead: a line for each, two vertex numbers
    #[arg(long, value_name = "FILE")]
    read: Option<PathBuf>,
    /// Write the edges to a file
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
    /// Search keys
    #[arg(long, default_value_t = KEYS)]
    keys: usize,
    /// Threads; as many as the machine runs at once if left out
    #[arg(long)]
    threads: Option<NonZero<usize>>,
    /// The `bfs` of the GAP benchmark suite, to be run on the same edges
    #[arg(long, value_name = "PATH")]
    peer: Option<PathBuf>,
    /// Times that all keys are searched, with the peer in turn; the figures are those of the last
    #[arg(long, default_value_t = NonZero::<usize>::MIN)]
    rounds: NonZero<usize>,
}

/// Why the command failed.
#[derive(Debug, Error)]
enum CommandError {
    #[error(
        "--scale {scale} --edge-factor {edge_factor}: the scale is 1 to {SCALE_MAX}, the factor \
         1 or more, and there are at most {EDGES_MAX} edges: give smaller ones"
    )]
    Bounds { scale: u32, edge_factor: u32 },
    #[error("{path}: {source}", path = .path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("{path}: {source}", path = .path.display())]
    Edges { path: PathBuf, source: EdgesError },
    #[error(transparent)]
    Run(#[from] RunError),
    #[error("{path}: {why}", path = .path.display())]
    Peer { path: PathBuf, why: String },
    #[error("standard output: {0}")]
    Output(#[from] io::Error),
}

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Where standard error is closed as well, the exit code is left.
            let _ = writeln!(io::stderr(), "graph500: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: &Cli) -> Result<(), CommandError> {
    let threads = cli
        .threads
        .map_or_else(threads_of_the_machine, NonZero::get);
    let team = Team::new(Limits {
        tasks_max: threads,
        ..Limits::default()
    });
    let begin = Instant::now();
    let edges = edges(cli, &team)?;
    let generation = begin.elapsed();
    if let Some(path) = &cli.write {
        write(&edges, path)?;
    }
    let mut peer = cli
        .peer
        .as_deref()
        .map(|path| Peer::new(path, &edges))
        .transpose()?;
    let benchmark = Benchmark::new(&edges, cli.keys, cli.seed, &team);
    drop(edges);
    let mut out = io::stdout().lock();
    let mut last = None;
    for round in 1..=cli.rounds.get() {
        let report = benchmark.run(generation)?;
        if let Some(peer) = &mut peer {
            let ratio = peer.round(cli.keys, threads, &report)?;
            writeln!(out, "round_{round}_TEPS_over_peer: {ratio:.3}")?;
        }
        last = Some(report);
    }
    if let Some(report) = last {
        write!(out, "{report}")?;
    }
    if let Some(peer) = peer {
        let median = Summary::new(&peer.ratios).median();
        writeln!(out, "median_TEPS_over_peer: {median:.3}")?;
    }
    Ok(())
}

fn threads_of_the_machine() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}

fn edges(cli: &Cli, team: &Team) -> Result<Vec<Edge>, CommandError> {
    if let Some(path) = &cli.read {
        let file = File::open(path).map_err(|source| file_error(path, source))?;
        let read = edges::read(BufReader::new(file));
        return read.map_err(|source| CommandError::Edges {
            path: path.clone(),
            source,
        });
    }
    let (scale, edge_factor) = (cli.scale, cli.edge_factor);
    let graph = Kronecker {
        scale,
        edge_factor,
        seed: cli.seed,
    };
    match graph.count() {
        Some(_) => Ok(graph.generate(team)),
        None => Err(CommandError::Bounds { scale, edge_factor }),
    }
}

fn write(edges: &[Edge], path: &Path) -> Result<(), CommandError> {
    let file = File::create(path).map_err(|source| file_error(path, source))?;
    let written = edges::write(edges, BufWriter::new(file));
    written.map_err(|source| file_error(path, source))
}

fn file_error(path: &Path, source: io::Error) -> CommandError {
    CommandError::File {
        path: path.to_owned(),
        source,
    }
}

/// Another program on the same edges.
struct Peer {
    path: PathBuf,
    /// Holds the edges as a file; ends with it.
    directory: tempfile::TempDir,
    /// Our median rate over the peer's, for each round.
    ratios: Vec<f64>,
}

impl Peer {
    const EDGES: &str = "edges.el";

    fn new(path: &Path, edges: &[Edge]) -> Result<Self, CommandError> {
        let directory = tempfile::tempdir()?;
        write(edges, &directory.path().join(Self::EDGES))?;
        Ok(Self {
            path: path.to_owned(),
            directory,
            ratios: Vec::new(),
        })
    }

    /// Runs the peer once. How many times its median rate ours is: components are the same, so it
    /// is the ratio of the median times.
    fn round(&mut self, keys: usize, threads: usize, ours: &Report) -> Result<f64, CommandError> {
        let file = self.directory.path().join(Self::EDGES);
        let mut command = Command::new(&self.path);
        command.arg("-f").arg(&file).arg("-s");
        command.args(["-n", &keys.to_string()]);
        command.env("OMP_NUM_THREADS", threads.to_string());
        let output = command
            .output()
            .map_err(|source| file_error(&self.path, source))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let time = |line: &str| line.strip_prefix("Trial Time:")?.trim().parse::<f64>().ok();
        let times: Vec<_> = text.lines().filter_map(time).collect();
        if times.is_empty() || !output.status.success() {
            return Err(CommandError::Peer {
                path: self.path.clone(),
                why: format!("no `Trial Time:` in its output ({})", output.status),
            });
        }
        let ratio = Summary::new(&times).median() / ours.times().median().max(1e-9);
        self.ratios.push(ratio);
        Ok(ratio)
    }
}
