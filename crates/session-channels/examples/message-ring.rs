//! A ring of tasks: each sends a number to its neighbour, then receives one, so that as many
//! numbers are on their way as there are tasks.
//!
//! `cargo run --release -p session-channels --example message-ring -- [TASKS [ROUNDS]]`: 100 and
//! 10,000 unless given.

#![allow(
    clippy::print_stdout,
    reason = "a program that prints what it measured"
)]

use std::time::{Duration, Instant};
use std::{env, error};

use session_channels::{Closed, proto};
use tokio::runtime::Builder;

/// What a message took in 2012, with the first protocols compiled to channels in Rust, on a machine
/// of that time.
const NANOSECONDS_2012: f64 = 227.6;

proto! {
    /// From a task to its neighbour.
    hop {
        going: send(16) { Number(u64) -> going, Done -> ! }
    }
}

fn main() -> Result<(), Box<dyn error::Error>> {
    let arguments: Result<Vec<u32>, _> = env::args().skip(1).map(|word| word.parse()).collect();
    let arguments = arguments.map_err(|error| format!("TASKS and ROUNDS are numbers: {error}"))?;
    let tasks = arguments.first().map_or(100, |tasks| *tasks).max(1);
    let rounds = arguments.get(1).map_or(10_000, |rounds| *rounds).max(1);
    for threads in [1, 2] {
        let (sum, took) = ring(tasks, rounds, threads)?;
        assert_eq!(sum, expected(tasks, rounds), "all have arrived");
        let each = took.as_secs_f64() * 1e9 / f64::from(tasks) / f64::from(rounds);
        let ratio = NANOSECONDS_2012 / each;
        println!("{tasks} tasks on {threads} threads, {rounds} rounds: {each:.1} ns a message");
        println!("  {ratio:.1} times as fast as in 2012 ({NANOSECONDS_2012} ns)");
    }
    Ok(())
}

/// The sum of what all receive.
fn expected(tasks: u32, rounds: u32) -> u64 {
    let rounds = u64::from(rounds);
    u64::from(tasks) * (rounds * (rounds - 1) / 2)
}

/// The sum of what all received, and how long it took.
fn ring(tasks: u32, rounds: u32, threads: usize) -> Result<(u64, Duration), Box<dyn error::Error>> {
    let runtime = Builder::new_multi_thread()
        .worker_threads(threads)
        .build()?;
    let begin = Instant::now();
    let (to_right, mut from_left): (Vec<_>, Vec<_>) = (0..tasks).map(|_| hop::init()).unzip();
    from_left.rotate_right(1);
    let members = to_right.into_iter().zip(from_left);
    let running: Vec<_> = members
        .map(|(to_right, from_left)| runtime.spawn(member(to_right, from_left, rounds)))
        .collect();
    let mut sum = 0;
    for member in running {
        sum += runtime.block_on(member)??;
    }
    Ok((sum, begin.elapsed()))
}

/// The sum of what came from the left.
async fn member(
    mut to_right: hop::client::Going,
    mut from_left: hop::server::Going,
    rounds: u32,
) -> Result<u64, Closed> {
    let mut sum = 0;
    for number in 0..u64::from(rounds) {
        to_right = to_right.number(number).await?;
        let hop::Going::Number(number, next) = from_left.recv().await? else {
            return Ok(sum);
        };
        sum += number;
        from_left = next;
    }
    to_right.done().await?;
    while let hop::Going::Number(number, next) = from_left.recv().await? {
        sum += number;
        from_left = next;
    }
    Ok(sum)
}

#[test]
fn everything_sent_goes_one_place_on() {
    for (tasks, rounds) in [(1, 100), (7, 1), (20, 50)] {
        let (sum, _) = ring(tasks, rounds, 2).expect("no task leaves early");
        assert_eq!(sum, expected(tasks, rounds));
    }
}
