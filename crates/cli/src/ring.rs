//! `unbroken ring`: how keys are spread over the nodes of a cluster, by simulation.

mod assign;
mod blog;
mod chart;
mod figure;
mod hops;
mod report;
mod spans;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Subcommand, value_parser};
use unbroken_hash_ring::{COPIES_MAX, SLOTS_MAX, Shape, WEIGHT_MAX, Weight};
use unbroken_terminal::Progress;

use self::report::Report;
use crate::exit::{self, Failure};

/// Simulate how keys are spread over the nodes of a cluster
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Simulate(Simulate),
}

/// Measure fairness, hops and movement of hashing schemes, as numbers and figures
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  unbroken ring simulate blog                           all about rings and Chord, within 20 s
  unbroken ring simulate spans --nodes 100 --vnodes 64,256
  unbroken ring simulate hops --nodes 1000,100000 --all-fingers
  unbroken ring simulate assign --nodes 10 --join 2     schemes side by side; which nodes hold what
  unbroken ring simulate assign --scheme slots --nodes 30 --weights 1,1,2,4 --zones 5

Each writes report.json, report.md and figures (.svg and .png) to the directory of --out.

Exit codes: 0 every bar is met; 1 one was missed, other than a time; 2 wrong usage; 73 a file cannot
be written.")]
struct Simulate {
    #[command(subcommand)]
    experiment: Experiment,
}

#[derive(Debug, Subcommand)]
enum Experiment {
    /// Every number and figure about the fairness of Chord, with their bars
    Blog {
        #[command(flatten)]
        output: Output,
    },
    /// Loads of the nodes of a ring, and the laws they have
    Spans {
        /// Nodes
        #[arg(long, value_name = "NODES", default_value_t = 10_000)]
        #[arg(value_parser = value_parser!(u32).range(2..=100_000))]
        nodes: u32,
        /// Virtual nodes of each; several with commas
        #[arg(
            long,
            value_name = "COUNTS",
            value_delimiter = ',',
            default_value = "1,4,16,64,256"
        )]
        #[arg(value_parser = value_parser!(u32).range(1..=10_000))]
        vnodes: Vec<u32>,
        /// Rings to test together
        #[arg(long, value_name = "COUNT", default_value_t = 10)]
        #[arg(value_parser = value_parser!(u32).range(1..=1_000))]
        rings: u32,
        #[command(flatten)]
        output: Output,
    },
    /// Hops of a search in Chord
    Hops {
        /// Nodes; several with commas
        #[arg(
            long,
            value_name = "COUNTS",
            value_delimiter = ',',
            default_value = "10,100,1000,10000"
        )]
        #[arg(value_parser = value_parser!(u32).range(2..=1_000_000))]
        nodes: Vec<u32>,
        /// Virtual nodes of each; several with commas
        #[arg(
            long,
            value_name = "COUNTS",
            value_delimiter = ',',
            default_value = "1,4,16,64"
        )]
        #[arg(value_parser = value_parser!(u32).range(1..=1_000))]
        vnodes: Vec<u32>,
        /// Also search through the fingers of all virtual nodes of a node
        #[arg(long)]
        all_fingers: bool,
        /// Searches in each ring
        #[arg(long, value_name = "COUNT", default_value_t = 100_000)]
        #[arg(value_parser = value_parser!(u32).range(100..=10_000_000))]
        searches: u32,
        #[command(flatten)]
        output: Output,
    },
    /// Schemes side by side: fairness, movement, cost of a look-up
    Assign(AssignArgs),
}

#[derive(Debug, clap::Args)]
struct AssignArgs {
    /// slots, ring:K, hrw or jump; several with commas
    #[arg(
        long,
        value_name = "SCHEMES",
        value_delimiter = ',',
        default_value = "slots,ring:1,ring:16,ring:256,hrw,jump"
    )]
    scheme: Vec<assign::Name>,
    /// Nodes to begin with
    #[arg(long, value_name = "NODES", default_value_t = 10)]
    #[arg(value_parser = value_parser!(u32).range(1..=1_000))]
    nodes: u32,
    /// Nodes that join
    #[arg(long, value_name = "NODES", default_value_t = 1)]
    #[arg(value_parser = value_parser!(u32).range(0..=1_000))]
    join: u32,
    /// Nodes that leave then
    #[arg(long, value_name = "NODES", default_value_t = 1)]
    #[arg(value_parser = value_parser!(u32).range(0..=1_000))]
    leave: u32,
    /// Weights, which repeat, with commas
    #[arg(
        long,
        value_name = "WEIGHTS",
        value_delimiter = ',',
        default_value = "1"
    )]
    #[arg(value_parser = weight)]
    weights: Vec<Weight>,
    /// Slots of the table [default: 4096 up to 30 nodes, else 16384]
    #[arg(long, value_name = "SLOTS")]
    #[arg(value_parser = value_parser!(u32).range(1..=i64::from(SLOTS_MAX)))]
    slots: Option<u32>,
    /// Nodes that hold each slot
    #[arg(long, value_name = "COPIES", default_value_t = 3)]
    #[arg(value_parser = value_parser!(u8).range(1..=i64::from(COPIES_MAX)))]
    copies: u8,
    /// Zones, which the nodes take in turn
    #[arg(long, value_name = "ZONES", default_value_t = 3)]
    #[arg(value_parser = value_parser!(u32).range(1..=1_000))]
    zones: u32,
    #[command(flatten)]
    output: Output,
}

#[derive(Debug, clap::Args)]
struct Output {
    /// Which random nodes and keys
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
    /// Where the report and the figures go [default: ring-EXPERIMENT]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

fn weight(text: &str) -> Result<Weight, String> {
    let number = text
        .parse::<u16>()
        .map_err(|_| format!("a weight is from 1 to {WEIGHT_MAX}"))?;
    Weight::try_from(number).map_err(|error| error.to_string())
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let Command::Simulate(Simulate { experiment }) = &args.command;
    match experiment {
        Experiment::Blog { output } => finish(blog::run(output.seed), output),
        Experiment::Spans {
            nodes,
            vnodes,
            rings,
            output,
        } => finish(run_spans(output.seed, *nodes, vnodes, *rings), output),
        Experiment::Hops {
            nodes,
            vnodes,
            all_fingers,
            searches,
            output,
        } => {
            let report = run_hops(output.seed, [nodes, vnodes], *all_fingers, *searches);
            finish(report, output)
        }
        Experiment::Assign(args) => {
            let slots = if args.nodes + args.join <= 30 {
                4_096
            } else {
                16_384
            };
            let plan = assign::Plan {
                seed: args.output.seed,
                schemes: args.scheme.clone(),
                nodes: args.nodes,
                joins: args.join,
                leaves: args.leave,
                weights: args.weights.clone(),
                shape: Shape {
                    slots: args.slots.unwrap_or(slots),
                    copies: args.copies,
                },
                zones: args.zones,
            };
            let report = assign::run(&plan).map_err(|error| Failure::new(exit::USAGE, error))?;
            finish(report, &args.output)
        }
    }
}

fn run_spans(seed: u64, nodes: u32, vnodes: &[u32], rings: u32) -> Report {
    let work = vnodes.iter().map(|k| spans::work(nodes, *k, rings)).sum();
    let mut progress = Progress::new(work);
    let spreads = vnodes
        .iter()
        .map(|k| spans::Spread::measure(seed, (nodes, *k), rings, &mut progress));
    let spreads: Vec<_> = spreads.collect();
    drop(progress);
    let mut report = Report::new("spans", &format!("Loads of {nodes} nodes"), seed);
    report.section("Loads");
    spans::describe(&mut report, &spreads);
    spans::histograms(&mut report, "figure-3", &spreads);
    report
}

fn run_hops(seed: u64, [nodes, vnodes]: [&[u32]; 2], all_fingers: bool, searches: u32) -> Report {
    let sizes: Vec<_> = nodes
        .iter()
        .flat_map(|n| vnodes.iter().map(|k| (*n, *k)))
        .collect();
    let work = sizes
        .iter()
        .map(|(_, k)| hops::work(*k, searches, all_fingers))
        .sum();
    let mut progress = Progress::new(work);
    let measure = |size| hops::Searches::measure(seed, size, searches, all_fingers, &mut progress);
    let all: Vec<_> = sizes.into_iter().map(measure).collect();
    drop(progress);
    let mut report = Report::new("hops", "Hops of a search in Chord", seed);
    report.section("Hops");
    hops::describe(&mut report, &all);
    report.figure(
        "figure-5",
        "Hops against the number of nodes",
        hops::draw(&all),
    );
    hops::judge(&mut report, &all);
    report
}

/// Writes the report, and prints where it is and what was missed.
fn finish(report: Report, output: &Output) -> Result<ExitCode, Failure> {
    let name = report.name();
    let directory = output
        .out
        .clone()
        .unwrap_or_else(|| format!("ring-{name}").into());
    let (missed, has_failed) = report.write_to(&directory)?;
    let mut out = io::stdout().lock();
    let mut print = || {
        for line in &missed {
            writeln!(out, "{line}")?;
        }
        writeln!(out, "{}", directory.join("report.md").display())
    };
    print().map_err(|error| Failure::output(&error))?;
    Ok(if has_failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}
