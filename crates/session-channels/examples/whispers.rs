//! A chain of tasks that whisper a number on: each hears it from its right, adds one and passes it
//! to its left. A channel carries one message in its life.
//!
//! `cargo run --release -p session-channels --example whispers -- [CHANNELS [LOOPS]]`: 100,001 and
//! 10 unless given. It is Go's daisy chain, which took 0.11 s a loop in 2012.

#![allow(
    clippy::print_stdout,
    reason = "a program that prints what it measured"
)]

use std::time::{Duration, Instant};
use std::{env, error};

use session_channels::{Closed, proto};
use tokio::runtime::Builder;

/// A loop of 100,001 channels in Go in 2012, on a machine of that time.
const SECONDS_2012: f64 = 0.11;
const CHANNELS_2012: u32 = 100_001;

proto! {
    /// One number, once.
    whisper {
        quiet: send { Number(u64) -> ! }
    }
}

fn main() -> Result<(), Box<dyn error::Error>> {
    let arguments: Result<Vec<u32>, _> = env::args().skip(1).map(|word| word.parse()).collect();
    let arguments = arguments.map_err(|error| format!("CHANNELS, LOOPS are numbers: {error}"))?;
    let channels = arguments
        .first()
        .map_or(CHANNELS_2012, |channels| *channels);
    let channels = channels.max(1);
    let loops = arguments.get(1).map_or(10, |loops| *loops).max(1);
    for threads in [1, 2] {
        let (heard, took) = chain(channels, loops, threads)?;
        assert_eq!(
            heard,
            u64::from(channels) * u64::from(loops),
            "each adds one"
        );
        let seconds = took.as_secs_f64() / f64::from(loops);
        println!("{channels} channels on {threads} threads: {seconds:.3} s a loop");
        if channels == CHANNELS_2012 {
            let ratio = SECONDS_2012 / seconds;
            println!("  {ratio:.1} times as fast as Go in 2012 ({SECONDS_2012} s)");
        }
    }
    Ok(())
}

/// The sum of what was heard at the left end, and how long it took.
fn chain(
    channels: u32,
    loops: u32,
    threads: usize,
) -> Result<(u64, Duration), Box<dyn error::Error>> {
    let runtime = Builder::new_multi_thread()
        .worker_threads(threads)
        .build()?;
    let begin = Instant::now();
    let mut sum = 0;
    for _ in 0..loops {
        let running = runtime.spawn(async move {
            let (mut left, end) = whisper::init();
            for _ in 1..channels {
                let (right, heard) = whisper::init();
                tokio::spawn(pass_on(heard, left));
                left = right;
            }
            left.number(1);
            let whisper::Quiet::Number(number) = end.recv().await?;
            Ok::<_, Closed>(number)
        });
        sum += runtime.block_on(running)??;
    }
    Ok((sum, begin.elapsed()))
}

async fn pass_on(
    heard: whisper::server::Quiet,
    left: whisper::client::Quiet,
) -> Result<(), Closed> {
    let whisper::Quiet::Number(number) = heard.recv().await?;
    left.number(number + 1);
    Ok(())
}

#[test]
fn each_adds_one() {
    for (channels, loops) in [(1_u32, 2), (1_000, 3)] {
        let (heard, _) = chain(channels, loops, 2).expect("no task leaves early");
        assert_eq!(heard, u64::from(channels * loops));
    }
}
