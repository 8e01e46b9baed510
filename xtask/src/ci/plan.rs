//! What the short and the full run do of what can take any time: simulator, acceptance, crashes,
//! fuzzing, benchmarks, long tests.

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

/// Whole shards and clients from seeds: others for each commit, and the same for the same one, so
/// that a failure can be repeated with the words in the name of the step. The full run tries those
/// of the next commits too.
pub(super) fn seeds(full: bool, commits: usize) -> String {
    const EACH_COMMIT: usize = 2_000;
    let from = 1 + commits * EACH_COMMIT;
    let seeds = if full { 500_000 } else { EACH_COMMIT };
    format!("--from {from} --seeds {seeds}")
}

/// Which of these acceptance tests run with which number of shards. Raw bytes are about one
/// connection, so the short run sends them to one shard only.
pub(super) fn acceptance(full: bool, tests: &[String]) -> [(&'static str, Vec<String>); 2] {
    let several = tests.iter().filter(|test| full || *test == FEATURES);
    [("1", tests.to_vec()), ("3", several.cloned().collect())]
}

/// The test that runs `features/*.feature`.
pub(super) const FEATURES: &str = "features";

/// What carries MQTT in further runs of the features about clients, beside TCP. With several
/// shards, because connections move between them with what their transport remembers.
pub(super) const TRANSPORTS: [&str; 4] = ["tls", "ws", "wss", "unix"];

/// How long each fuzz target runs: in short as long as its corpus takes.
pub(super) const fn fuzzing(full: bool) -> &'static str {
    if full {
        "-max_total_time=300"
    } else {
        "-runs=0"
    }
}

/// The broker ended at random moments by SIGKILL, power cuts and faults of the disk.
///
/// With one shard and with any number 200 kills together, and 2,000 in the full run; one in eight
/// more, which is about as many as come before the broker listens. The full run also has what a
/// change seldom touches: where a crash of the machine may lose something (`relaxed`, `off`), one
/// of the broker may not; and the last writes so much that journals and generations of logs are
/// ended, trimmed and begun all the time.
pub(super) const fn crashes(full: bool) -> &'static [(&'static str, &'static str)] {
    if full {
        &[
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
        &[
            (
                "shards: 1",
                "--kills 115 --stops 8 --cuts 20 --faults 12 --starts 8 --shards 1",
            ),
            (
                "shards drawn",
                "--kills 115 --stops 8 --cuts 20 --faults 12 --starts 8",
            ),
        ]
    }
}

/// A benchmark's name and arguments.
pub(super) type Benchmark = (&'static str, &'static [&'static str]);

/// The benchmarks: in short one, in full all, to see that each runs and loses nothing. With `bars`
/// they run as long as their bars need, for hours, on a machine of their own; the longest is last.
pub(super) fn benchmarks(full: bool, bars: bool) -> Vec<Benchmark> {
    let brokers = |arguments: &'static [&'static str]| ("benchmarks", arguments);
    if !full {
        return vec![brokers(&["brokers", "--smoke"])];
    }
    let [durability, fairness, logins, shards]: [&[&str]; 4] = if bars {
        [&["durability"], &["fairness"], &["logins"], &["shards"]]
    } else {
        [
            &["durability", "--smoke"],
            &["fairness", "--smoke"],
            &["logins", "--smoke"],
            // One row of each kind; `brokers` runs them all.
            &["shards", "--smoke", "--rows", "pairs100,lat5k,idle"],
        ]
    };
    vec![
        // Sizes and counts of the proof have bars; a million messages go through processes.
        ("what the proof costs", &["audit", "--smoke", "--trial"]),
        ("what keeping costs", durability),
        ("what one client does to others", fairness),
        ("what logins cost", logins),
        (
            "what TLS, WebSocket and access rules cost",
            &["doors", "--smoke"],
        ),
        ("what a second shard costs", shards),
        (
            "what more cores and clients would take",
            &["scaling", "--smoke"],
        ),
        brokers(if bars {
            &["brokers", "--require-bars"]
        } else {
            &["brokers", "--smoke"]
        }),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree;

    #[test]
    fn each_commit_has_seeds_of_its_own_and_the_full_run_begins_with_them() {
        assert_eq!(seeds(false, 0), "--from 1 --seeds 2000");
        assert_eq!(seeds(false, 3_000), "--from 6000001 --seeds 2000");
        assert_eq!(seeds(false, 3_001), "--from 6002001 --seeds 2000");
        assert_eq!(seeds(true, 3_000), "--from 6000001 --seeds 500000");
    }

    #[test]
    fn in_short_only_features_run_with_three_shards() {
        let tests = ["features", "golden_packets"].map(str::to_owned);
        let [one, three] = acceptance(false, &tests);
        assert_eq!(one, ("1", tests.to_vec()));
        assert_eq!(three, ("3", vec!["features".to_owned()]));
        let all = ["1", "3"].map(|shards| (shards, tests.to_vec()));
        assert_eq!(acceptance(true, &tests), all);
        let features = tree::root().join("dev/acceptance/tests").join(FEATURES);
        assert!(features.is_dir(), "its name is another now");
    }

    #[test]
    fn in_short_there_are_two_kinds_of_crashes_no_fuzzing_and_one_benchmark() {
        assert_eq!(crashes(false).len(), 2);
        assert!(crashes(true).len() > crashes(false).len());
        let in_full = |(name, _): &(_, _)| crashes(true).iter().any(|(other, _)| other == name);
        assert!(crashes(false).iter().all(in_full));
        assert_eq!(fuzzing(false), "-runs=0");
        assert!(fuzzing(true).contains("time"));
        let one: Benchmark = ("benchmarks", &["brokers", "--smoke"]);
        assert_eq!(benchmarks(false, false), [one]);
    }

    #[test]
    fn with_bars_the_bars_against_peers_are_held_and_else_all_only_run() {
        let arguments = |bars, command| {
            let all = benchmarks(true, bars).into_iter();
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
