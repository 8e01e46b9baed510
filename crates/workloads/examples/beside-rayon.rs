//! `par` beside rayon, in turn: a map and a reduction of ten million numbers, and the validation of
//! a Graph500 search.
//!
//! `cargo run --release -p unbroken-workloads --example beside-rayon -- [ROUNDS [SCALE]]`: 7 rounds
//! and scale 18 unless given. Each figure is a median; a ratio above 1 says that `par` is faster.

#![forbid(unsafe_code)]
#![allow(
    clippy::print_stdout,
    reason = "a program that prints what it measured"
)]

use std::env;
use std::error::Error;
use std::hint::black_box;
use std::time::Instant;

use rayon::prelude::*;
use session_channels::par::{Limits, Parallel, Team};
use unbroken_workloads::graph500::graph::Graph;
use unbroken_workloads::graph500::keys;
use unbroken_workloads::graph500::kronecker::Kronecker;
use unbroken_workloads::graph500::limits::EDGE_FACTOR;
use unbroken_workloads::graph500::search::Search;
use unbroken_workloads::graph500::statistics::Summary;
use unbroken_workloads::graph500::validation::{Threads, VERTICES_MIN, Validator};

const NUMBERS: u32 = 10_000_000;
/// Searches that are validated in one round.
const KEYS: usize = 8;

/// The same work for the validation, by rayon's pool.
struct Rayon;

impl Threads for Rayon {
    fn map_slice<T: Sync, R: Send>(&self, items: &[T], f: impl Fn(&T) -> R + Sync) -> Vec<R> {
        items.par_iter().map(&f).collect()
    }

    fn reduce_slice<T: Sync, A: Send>(
        &self,
        items: &[T],
        part: impl Fn(usize, &[T]) -> A + Sync,
        combine: impl Fn(A, A) -> A,
    ) -> Option<A> {
        let blocks = items.par_chunks(VERTICES_MIN).enumerate();
        let parts: Vec<_> = blocks
            .map(|(block, items)| part(block * VERTICES_MIN, items))
            .collect();
        parts.into_iter().reduce(combine)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Result<Vec<u32>, _> = env::args().skip(1).map(|word| word.parse()).collect();
    let arguments = arguments.map_err(|error| format!("ROUNDS, SCALE are numbers: {error}"))?;
    let rounds = arguments.first().map_or(7, |rounds| *rounds).max(1);
    let scale = arguments.get(1).map_or(18, |scale| *scale);
    compare("map of 10^7, threads for the call", rounds, |numbers| {
        let ours = || session_channels::par::map(numbers, |number| mixed(*number));
        let theirs = || {
            numbers
                .par_iter()
                .map(|number| mixed(*number))
                .collect::<Vec<_>>()
        };
        (seconds(ours), seconds(theirs))
    });
    let team = Team::new(Limits::default());
    compare("map of 10^7, team", rounds, |numbers| {
        let ours = || team.map(numbers, |number| mixed(*number));
        let theirs = || {
            numbers
                .par_iter()
                .map(|number| mixed(*number))
                .collect::<Vec<_>>()
        };
        (seconds(ours), seconds(theirs))
    });
    compare("reduction of 10^7, team", rounds, |numbers| {
        let sum = |sum: u64, number: &u32| sum.wrapping_add(u64::from(mixed(*number)));
        let ours = || team.reduce(numbers, || 0, sum, u64::wrapping_add);
        let theirs = || {
            numbers
                .par_iter()
                .fold(|| 0, sum)
                .reduce(|| 0, u64::wrapping_add)
        };
        assert_eq!(ours(), theirs());
        (seconds(ours), seconds(theirs))
    });
    validation(&team, rounds, scale)
}

fn validation(team: &Team, rounds: u32, scale: u32) -> Result<(), Box<dyn Error>> {
    let graph = Kronecker {
        scale,
        edge_factor: EDGE_FACTOR,
        seed: 2,
    };
    let edges = graph.generate(team);
    let graph = Graph::new(&edges, team);
    let validator = Validator::new(&edges, team);
    let mut search = Search::new(&graph, team);
    let mut times = (Vec::new(), Vec::new());
    for key in keys::draw(&graph, KEYS, 2) {
        let tree = search.run(key)?;
        assert_eq!(
            validator.check(tree, team),
            validator.check_by(tree, &Rayon)
        );
        for _ in 0..rounds {
            times.0.push(seconds(|| validator.check(tree, team)));
            times.1.push(seconds(|| validator.check_by(tree, &Rayon)));
        }
    }
    show(
        &format!("validation, scale {scale}, team"),
        &times.0,
        &times.1,
    );
    Ok(())
}

/// A little work for a number.
fn mixed(number: u32) -> u32 {
    let mixed = (number ^ number >> 16).wrapping_mul(0x85eb_ca6b);
    (mixed ^ mixed >> 13).wrapping_mul(0xc2b2_ae35)
}

fn compare(name: &str, rounds: u32, round: impl Fn(&[u32]) -> (f64, f64)) {
    let numbers: Vec<u32> = (0..NUMBERS).collect();
    let (ours, theirs): (Vec<_>, Vec<_>) = (0..rounds).map(|_| round(&numbers)).unzip();
    show(name, &ours, &theirs);
}

fn show(name: &str, ours: &[f64], theirs: &[f64]) {
    let [ours, theirs] = [ours, theirs].map(|times| Summary::new(times).median());
    let ratio = theirs / ours;
    println!(
        "{name}: par {:.2} ms, rayon {:.2} ms, ratio {ratio:.2}",
        ours * 1e3,
        theirs * 1e3
    );
}

fn seconds<R>(work: impl FnOnce() -> R) -> f64 {
    let begin = Instant::now();
    black_box(work());
    begin.elapsed().as_secs_f64()
}
