//! What the short and the full run do of what can take any time: crashes, benchmarks, long tests.

use super::cargo;
use crate::step::Step;

/// What only the longer run has time for.
pub(super) fn longer() -> [Step; 2] {
    let mut lanes = cargo(&["test", "--locked", "--release"]);
    lanes.args(["-p", "unbroken-merkle-log", "--", "--ignored"]);
    let mut histories = cargo(&["test", "--locked", "--release"]);
    histories.args([
        "-p",
        "unbroken-store",
        "--lib",
        "conformance",
        "--",
        "--ignored",
    ]);
    [
        Step::tests("lanes of a million messages", lanes),
        Step::tests("many histories of a store", histories),
    ]
}

/// The broker ended at random moments by SIGKILL, power cuts and faults of the disk.
///
/// With one shard and with any number 200 kills together, and 2,000 in the longer run; one in eight
/// more, which is about as many as come before the broker listens. Where a crash of the machine may
/// lose something (`relaxed`, `off`), one of the broker may not. The last writes so much that
/// journals and generations of logs are ended, trimmed and begun all the time.
pub(super) const fn crashes(full: bool) -> [(&'static str, &'static str); 5] {
    if full {
        [
            (
                "shards: 1",
                "--kills 1150 --stops 100 --cuts 200 --faults 100 --starts 80 --shards 1",
            ),
            (
                "shards drawn",
                "--kills 1150 --stops 100 --cuts 200 --faults 100 --starts 80",
            ),
            (
                "durability: relaxed",
                "--kills 200 --stops 20 --durability relaxed",
            ),
            ("durability: off", "--kills 200 --stops 20 --durability off"),
            (
                "much to write",
                "--kills 100 --stops 10 --cuts 40 --heavy 200000 --shards 1",
            ),
        ]
    } else {
        [
            (
                "shards: 1",
                "--kills 115 --stops 8 --cuts 20 --faults 12 --starts 8 --shards 1",
            ),
            (
                "shards drawn",
                "--kills 115 --stops 8 --cuts 20 --faults 12 --starts 8",
            ),
            (
                "durability: relaxed",
                "--kills 10 --stops 2 --durability relaxed",
            ),
            ("durability: off", "--kills 10 --stops 2 --durability off"),
            (
                "much to write",
                "--kills 12 --stops 1 --cuts 3 --heavy 200000 --shards 1",
            ),
        ]
    }
}

/// The benchmarks with their arguments: in short that each runs and loses nothing, in full that
/// `durability`, `fairness`, `shards` and `brokers` reach their bars, on a machine of their own.
/// The longest is the last.
pub(super) const fn benchmarks(full: bool) -> [(&'static str, &'static [&'static str]); 6] {
    let [brokers, audit, durability, fairness, shards]: [&[&str]; 5] = if full {
        [
            &["brokers", "--require-bars"],
            // Sizes and counts of the proof have bars; a million messages go through processes.
            &["audit", "--smoke", "--trial"],
            &["durability"],
            &["fairness"],
            &["shards"],
        ]
    } else {
        [
            &["brokers", "--smoke"],
            &["audit", "--smoke"],
            &["durability", "--smoke"],
            &["fairness", "--smoke"],
            // One row of each kind; `brokers` runs them all.
            &["shards", "--smoke", "--rows", "pairs100,lat5k,idle"],
        ]
    };
    let scaling: &[&str] = &["scaling", "--smoke"];
    [
        ("what the proof costs", audit),
        ("what keeping costs", durability),
        ("what one client does to others", fairness),
        ("what a second shard costs", shards),
        ("what more cores and clients would take", scaling),
        ("benchmarks", brokers),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_full_the_bars_against_peers_are_held() {
        let arguments = |full, command| {
            let all = benchmarks(full).into_iter();
            let mut named = all.filter(|(_, arguments)| arguments[0] == command);
            named.next().expect("it is one of them").1
        };
        assert!(arguments(true, "brokers").contains(&"--require-bars"));
        // Those that are not asked fail on a missed bar by themselves, except in short.
        for command in ["brokers", "durability", "fairness", "shards"] {
            assert!(!arguments(true, command).contains(&"--smoke"), "{command}");
            assert!(arguments(false, command).contains(&"--smoke"), "{command}");
        }
        // All rows have a bar, so all are run, and as often and as long as the bar is about.
        assert_eq!(arguments(true, "shards"), ["shards"]);
    }
}
