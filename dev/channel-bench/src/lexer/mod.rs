//! `unbroken-channel-bench lexer`: lexers beside each other, and tokenizers beside each other.
//!
//! All run in one process, one after the other: in every round each peer has its turn in each row,
//! and odd rounds go backwards. A turn repeats the work until it has taken long enough to be
//! measured.
//!
//! Invariant: every peer of a row finds the same tokens, or there is no figure.

mod input;
mod lexers;
mod record;
mod tokenizers;

use std::hint::black_box;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;
use unbroken_bench::machine::Machine;

use self::input::{large, small, three_lines};
use self::record::Record;
use crate::error::ChannelBenchError;

/// How much is run, and where it is recorded.
#[derive(Debug, Args)]
pub(crate) struct Lexer {
    /// Rounds; medians of fewer than seven say little
    #[arg(long, default_value_t = 11)]
    rounds: usize,
    /// Where the record is written
    #[arg(long, default_value = "docs/benchmarks")]
    out: PathBuf,
    /// One tiny round of everything, no record; fails if two peers disagree
    #[arg(long)]
    smoke: bool,
}

/// What a peer found in a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    tokens: u64,
    /// Their lengths and places, mixed.
    checksum: u64,
}

impl Found {
    fn add(&mut self, what: u64, length: usize) {
        self.tokens += 1;
        self.checksum = (self.checksum ^ what)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(7)
            .wrapping_add(length as u64);
    }
}

/// One that does the work of a row.
#[derive(Clone, Copy)]
pub(super) struct Peer {
    name: &'static str,
    note: &'static str,
    run: fn(&str) -> Found,
}

struct Row {
    name: &'static str,
    title: &'static str,
    text: String,
    peers: &'static [Peer],
}

/// The figures of one peer in one row.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Cell {
    peer: &'static str,
    note: &'static str,
    /// Nanoseconds a token, one for each round.
    figures: Vec<f64>,
}

/// A row that was run.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Measured {
    row: &'static str,
    title: &'static str,
    bytes: usize,
    tokens: u64,
    cells: Vec<Cell>,
}

impl Lexer {
    pub(crate) fn run(self) -> Result<ExitCode, ChannelBenchError> {
        let (rounds, turn, large_bytes) = if self.smoke {
            (1, Duration::ZERO, 64 << 10)
        } else {
            (self.rounds.max(1), Duration::from_millis(60), 8 << 20)
        };
        let machine = Machine::here();
        let rows = rows(large_bytes);
        let mut measured = rows.iter().map(first_look).collect::<Result<Vec<_>, _>>()?;
        for round in 0..rounds {
            for (row, measured) in rows.iter().zip(&mut measured) {
                let mut turns: Vec<_> = row.peers.iter().zip(&mut measured.cells).collect();
                if round % 2 == 1 {
                    turns.reverse();
                }
                for (peer, cell) in turns {
                    cell.figures.push(time(row, peer, measured.tokens, turn));
                }
            }
            writeln!(io::stderr(), "round {}/{rounds}", round + 1)?;
        }
        if !self.smoke {
            let record = Record::new(machine, rounds, measured);
            record.write(&self.out)?;
            writeln!(io::stdout(), "{record}\nWritten to {}", self.out.display())?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn rows(large_bytes: usize) -> Vec<Row> {
    let (lexers, tokenizers) = (lexers::PEERS, tokenizers::PEERS);
    let row = |name, title, text, peers| Row {
        name,
        title,
        text,
        peers,
    };
    vec![
        row(
            "lexer-small",
            "lexers on a configuration of seven lines",
            small(),
            lexers,
        ),
        row(
            "lexer-large",
            "lexers on a long configuration",
            large(large_bytes),
            lexers,
        ),
        row(
            "words-three",
            "words of three lines",
            three_lines(),
            tokenizers,
        ),
        row(
            "words-large",
            "words of a long text",
            large(large_bytes),
            tokenizers,
        ),
    ]
}

/// Whether all peers agree on the row's tokens; also warms caches and compiles regexes.
fn first_look(row: &Row) -> Result<Measured, ChannelBenchError> {
    let expected = (row.peers[0].run)(&row.text);
    for peer in row.peers {
        let found = (peer.run)(&row.text);
        if found != expected {
            return Err(ChannelBenchError::Failed {
                count: 1,
                first: format!(
                    "{} on {}: {found:?} and not {expected:?}",
                    row.name, peer.name
                ),
            });
        }
    }
    let cell = |peer: &Peer| Cell {
        peer: peer.name,
        note: peer.note,
        figures: Vec::new(),
    };
    Ok(Measured {
        row: row.name,
        title: row.title,
        bytes: row.text.len(),
        tokens: expected.tokens,
        cells: row.peers.iter().map(cell).collect(),
    })
}

/// Nanoseconds a token, of as many repetitions as fit into a turn; at least one.
#[expect(clippy::cast_precision_loss, reason = "both are far below 2^52")]
fn time(row: &Row, peer: &Peer, tokens: u64, turn: Duration) -> f64 {
    let start = Instant::now();
    let mut repetitions = 0_u64;
    loop {
        black_box((peer.run)(black_box(&row.text)));
        repetitions += 1;
        let taken = start.elapsed();
        if taken >= turn {
            return taken.as_nanos() as f64 / (repetitions * tokens) as f64;
        }
    }
}

impl Measured {
    /// Median and least of a cell.
    fn of(cell: &Cell) -> (f64, f64) {
        let mut figures = cell.figures.clone();
        figures.sort_by(f64::total_cmp);
        let median = figures.get(figures.len() / 2).copied();
        let least = figures.first().copied();
        (median.unwrap_or(f64::NAN), least.unwrap_or(f64::NAN))
    }
}
