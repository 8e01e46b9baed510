//! k-nucleotide as a pipeline: one thread reads the sequence, others count, each the words of some
//! lengths, and send back their tables.
//!
//! ```text
//!              block, block, .. end            tables
//!   reader ----------------------> worker 1 ----------> output
//!          \---------------------> worker 2 ---------/
//! ```
//!
//! A block of bases is shared by all workers; each has at most [`BLOCKS_IN_FLIGHT`] waiting, so the
//! memory for bases is bounded (a block is [`BLOCK`] bytes), and reading goes on while words are
//! counted.
//!
//! Lengths are given to workers by the rule *longest processing time first* (Graham 1969).

use std::fmt::Write as _;
use std::io::BufRead;
use std::sync::Arc;
use std::thread;

use session_channels::{Closed, proto};
use thiserror::Error;

use super::count::Counter;
use super::input::{BLOCK, InputError, Sequence};

/// Lengths of words, and about how long a word of this length takes, in units of the shortest:
/// long words have tables that do not fit the first cache.
const LENGTHS: [(usize, u32); 7] = [(18, 4), (12, 3), (6, 1), (4, 1), (3, 1), (2, 1), (1, 1)];
/// Lengths whose words are all listed.
const LISTED: [usize; 2] = [1, 2];
/// Words whose counts are put out.
const WORDS: [&str; 5] = [
    "GGT",
    "GGTA",
    "GGTATT",
    "GGTATTTTAATT",
    "GGTATTTTAATTTATAGT",
];

/// Blocks that wait for a worker, at most; the same number as in the protocol.
pub const BLOCKS_IN_FLIGHT: usize = 4;

proto! {
    /// What the reader tells a worker, and what it gets back.
    counting {
        counting: send(4) { Block(Arc<Vec<u8>>) -> counting, End -> counted }
        counted: recv { Tables(Vec<Counter>) -> ! }
    }
}

/// Why there is no result.
#[derive(Debug, Error)]
pub enum CountError {
    /// The sequence cannot be read.
    #[error(transparent)]
    Input(#[from] InputError),
    /// A worker has ended early.
    #[error("a counting thread has ended early: {0}")]
    Worker(#[from] Closed),
    /// The system grants no thread.
    #[error("a counting thread cannot be started: {0}")]
    Thread(std::io::Error),
}

/// Counts the words of the sequence, with so many threads beside the one that reads, and returns
/// what the game's program puts out.
pub fn run(from: impl BufRead, threads: usize) -> Result<String, CountError> {
    run_in_blocks(from, threads, BLOCK)
}

/// [`run`] in blocks of so many bases, 1 to [`BLOCK`].
pub fn run_in_blocks(
    from: impl BufRead,
    threads: usize,
    block: usize,
) -> Result<String, CountError> {
    let mut sequence = Sequence::new(from, block.min(BLOCK))?;
    thread::scope(|scope| {
        let mut workers = Vec::new();
        for counters in share(threads) {
            let (reader, worker) = counting::init();
            let work = move || work(worker, counters);
            let spawned = thread::Builder::new().spawn_scoped(scope, work);
            spawned.map_err(CountError::Thread)?;
            workers.push(reader);
        }
        loop {
            let block = sequence.next_block()?;
            if block.is_empty() {
                break;
            }
            let block = Arc::new(block);
            let sent = workers.into_iter().map(|worker| {
                let sent = worker.block_blocking(Arc::clone(&block));
                sent.map_err(Closed::from)
            });
            workers = sent.collect::<Result<_, Closed>>()?;
        }
        let mut counters = Vec::new();
        for worker in workers {
            let counted = worker.end_blocking().map_err(Closed::from)?;
            let counting::Counted::Tables(tables) = counted.recv_blocking()?;
            counters.extend(tables);
        }
        Ok(output(&counters))
    })
}

/// A worker: counts until the end. If the reader leaves early, so does it.
fn work(mut reader: counting::server::Counting, mut counters: Vec<Counter>) {
    loop {
        match reader.recv_blocking() {
            Ok(counting::Counting::Block(block, next)) => {
                for counter in &mut counters {
                    counter.update(&block);
                }
                reader = next;
            }
            Ok(counting::Counting::End(reader)) => {
                reader.tables(counters);
                return;
            }
            // The reader has met an error, which it reports.
            Err(_) => return,
        }
    }
}

/// Counters for each of so many threads, at least one and at most one for each length.
fn share(threads: usize) -> Vec<Vec<Counter>> {
    let mut shares = vec![(0, Vec::new()); threads.clamp(1, LENGTHS.len())];
    for (length, cost) in LENGTHS {
        let least = shares.iter_mut().min_by_key(|(sum, _)| *sum);
        if let Some((sum, counters)) = least {
            *sum += cost;
            counters.push(Counter::new(length));
        }
    }
    shares.into_iter().map(|(_, counters)| counters).collect()
}

fn output(counters: &[Counter]) -> String {
    let of = |length: usize| counters.iter().find(|counter| counter.length() == length);
    let mut text = String::new();
    for counter in LISTED.into_iter().filter_map(of) {
        let words = counter.by_frequency();
        let all: f64 = words.iter().map(|(_, count)| f64::from(*count)).sum();
        for (word, count) in words {
            let percent = 100.0 * f64::from(count) / all;
            let _ = writeln!(text, "{word} {percent:.3}"); // a string takes everything
        }
        text.push('\n');
    }
    for word in WORDS {
        let count = of(word.len()).map_or(0, |counter| counter.count(word));
        let _ = writeln!(text, "{count}\t{word}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_is_given_out_once_and_no_thread_is_idle() {
        for threads in 0..10 {
            let shares = share(threads);
            assert_eq!(shares.len(), threads.clamp(1, 7));
            assert!(shares.iter().all(|share| !share.is_empty()));
            let mut lengths: Vec<_> = shares.iter().flatten().map(Counter::length).collect();
            lengths.sort_unstable();
            assert_eq!(lengths, [1, 2, 3, 4, 6, 12, 18]);
        }
        let costs = |share: &[Counter]| share.iter().map(Counter::length).collect::<Vec<_>>();
        let two = share(2);
        assert_eq!(costs(&two[0]), [18, 4, 2]);
        assert_eq!(costs(&two[1]), [12, 6, 3, 1]);
    }
}
