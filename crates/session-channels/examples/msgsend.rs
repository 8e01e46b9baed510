//! Many workers count for one server: each sends sizes in bytes, and at its end gets the sum of
//! what all have sent so far. The server waits for all of them at once, with a set of ports.
//!
//! `cargo run --release -p session-channels --example msgsend -- [WORKERS [MESSAGES]]`: 8 and
//! 1,000,000 in all unless given.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program that prints what it measured"
)]

use std::time::{Duration, Instant};
use std::{env, error, thread};

use session_channels::{Closed, PortSet, proto};

/// Messages per second in 2012, with a set of ports and eight workers, on a machine of that time.
const PER_SECOND_2012: f64 = 881_578.0;
/// What each message says was used.
const BYTES: u64 = 100;

proto! {
    /// What a worker tells the server.
    count {
        counting: send(1024) { Bytes(u64) -> counting, GetCount -> counted }
        counted: recv { Count(u64) -> ! }
    }
}

fn main() -> Result<(), Box<dyn error::Error>> {
    let arguments: Result<Vec<u32>, _> = env::args().skip(1).map(|word| word.parse()).collect();
    let arguments = arguments.map_err(|error| format!("WORKERS, MESSAGES are numbers: {error}"))?;
    let workers = arguments.first().map_or(8, |workers| *workers).max(1);
    let messages = arguments.get(1).map_or(1_000_000, |messages| *messages);
    let each = (messages / workers).max(1);
    let (sum, took) = count_up(workers, each);
    assert_eq!(sum, expected(workers, each), "all have arrived");
    let rate = f64::from(workers) * f64::from(each) / took.as_secs_f64();
    println!("{workers} workers, {each} messages each: {rate:.0} messages/s");
    let ratio = rate / PER_SECOND_2012;
    println!("  {ratio:.1} times as many as in 2012 ({PER_SECOND_2012}/s)");
    Ok(())
}

/// The sum of all messages.
fn expected(workers: u32, each: u32) -> u64 {
    u64::from(workers) * u64::from(each) * BYTES
}

/// The most that a worker was told, and how long it took.
fn count_up(workers: u32, each: u32) -> (u64, Duration) {
    let begin = Instant::now();
    let mut ports = PortSet::new();
    let workers: Vec<_> = (0..workers)
        .map(|_| {
            let (worker, server) = count::init();
            ports.insert(server);
            thread::spawn(move || work(worker, each))
        })
        .collect();
    serve(ports);
    let counts = workers.into_iter().map(|worker| {
        let count = worker.join().expect("a worker does not panic");
        count.expect("the server answers each")
    });
    (counts.max().unwrap_or(0), begin.elapsed())
}

fn work(mut server: count::client::Counting, each: u32) -> Result<u64, Closed> {
    for _ in 0..each {
        server = server.bytes_blocking(BYTES)?;
    }
    let count::Counted::Count(sum) = server.get_count_blocking()?.recv_blocking()?;
    Ok(sum)
}

/// Until the last worker has its answer.
fn serve(mut ports: PortSet<count::server::Counting>) {
    let mut sum = 0;
    while let Some((handle, came)) = ports.next_blocking() {
        match came {
            Ok(count::Counting::Bytes(bytes, next)) => {
                sum += bytes;
                ports
                    .put_back(handle, next)
                    .expect("its place is kept for it");
            }
            Ok(count::Counting::GetCount(answer)) => answer.count(sum),
            Err(closed) => eprintln!("msgsend: a worker has left: {closed}"),
        }
    }
}

#[test]
fn the_last_answer_is_the_sum_of_all() {
    for (workers, each) in [(1, 1), (8, 1_000)] {
        assert_eq!(count_up(workers, each).0, expected(workers, each));
    }
}
