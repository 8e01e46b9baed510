//! Some seeds, and every seed that ever found something.

use unbroken_simulator::{Options, Report, run, run_with};

/// How many seeds are tried here; `UNBROKEN_SEEDS` asks for another number.
const SEEDS: u64 = 400;

/// Each line is a seed, maybe with a number of kills, and what it found.
const FOUND_SOMETHING: &str = include_str!("../seeds.txt");

#[test]
fn what_is_promised_holds_under_random_schedules() {
    let wanted = std::env::var("UNBROKEN_SEEDS").ok();
    let seeds = wanted.map_or(SEEDS, |number| {
        number.parse().expect("UNBROKEN_SEEDS is a number")
    });
    let mut refused = 0;
    for seed in 1..=seeds {
        refused += try_options(Options::from_seed(seed)).refused_between_kills;
    }
    assert!(refused > 0 || seeds < SEEDS, "nobody was refused");
}

#[test]
fn what_was_found_once_is_not_found_again() {
    for line in FOUND_SOMETHING.lines() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (run, _) = line.split_once(' ').expect("a seed and what it found");
        let (seed, kills) = run.split_once('/').unzip();
        let seed = seed.unwrap_or(run).parse().expect("a seed is a number");
        let options = Options::from_seed(seed);
        try_options(match kills {
            Some(kills) => options.with_kills(kills.parse().expect("kills are a number")),
            None => options,
        });
    }
}

#[test]
fn a_seed_decides_everything() {
    for seed in 1..=20 {
        let (one, other) = (run(seed, false), run(seed, true));
        match (one, other) {
            (Ok(one), Ok(other)) => assert_eq!(one, other, "seed {seed}"),
            (one, other) => panic!("seed {seed}: {one:?}, {other:?}"),
        }
    }
}

fn try_options(options: Options) -> Report {
    run_with(options.clone(), false).unwrap_or_else(|_| {
        // Once more, with what happened before it.
        let failure = run_with(options, true).expect_err("a seed decides everything");
        panic!("{failure}");
    })
}
