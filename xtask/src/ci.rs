//! `cargo xtask ci`: everything a change must pass, in order, the same on every machine.
//!
//! Each step is named and timed; behind one that fails none is begun, and it says how to repeat it.
//! Only the benchmarks, which take hours and know nothing of each other, are all run, and what
//! failed of them is told at the end. The last line of output is always `N passed, N failed, N
//! skipped`, added up over all steps: a test counts as one, and so does a check such as formatting,
//! a fuzz target or a tidy rule.
//!
//! Tests are compiled without optimisation once, and once more, optimised, for what is slow without
//! it: the broker, the simulator and the benchmarks. More profiles would cost more than they save.
//! Each is selected as a whole, for cargo compiles dependencies anew for each selection of packages
//! that wants other features of them; the programs are then run by their paths. Only the broker is
//! selected alone, so that it is what a user builds.
//!
//! Steps that mostly wait have a core to spare, and those that compute take it
//! ([`step::beside`]).

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use serde_json::Value;

use crate::step::{self, Step};
use crate::tally::Tally;
use crate::tools::{self, Tools};
use crate::{Outcome, bench, process, spec, tidy, tree};

/// Its tests are steps of their own.
const ACCEPTANCE: &str = "unbroken-acceptance";

pub(crate) fn run(full: bool) -> Outcome {
    let mut ci = Ci {
        full,
        tools: Tools::locate(),
        tally: Tally::default(),
    };
    let begin = Instant::now();
    match ci.steps() {
        Ok(()) => {
            println!(
                "\nall steps passed in {:.0} s",
                begin.elapsed().as_secs_f64()
            );
            println!("{}", ci.tally);
            Ok(())
        }
        Err(problem) => {
            if ci.tally.failed == 0 {
                ci.tally += Tally::FAILED;
            }
            Err(format!("{problem}\n{}", ci.tally))
        }
    }
}

struct Ci {
    full: bool,
    tools: Tools,
    tally: Tally,
}

impl Ci {
    fn steps(&mut self) -> Outcome {
        let install = "cargo xtask install-tools";
        self.tally += step::timed("tools", "", install, || self.tools.install())?;
        self.in_order([Step::check("format", cargo(&["fmt", "--all", "--check"]))])?;
        let clippy = [
            "clippy",
            "--locked",
            "--workspace",
            "--all-targets",
            "--features=unbroken-store/conformance",
            "--",
            "-Dwarnings",
        ];
        self.in_order([Step::check("clippy", cargo(&clippy))])?;
        step::timed("tidy", "", "cargo xtask tidy", tidy::run)?;
        self.tally.passed += tidy::RULES;
        let repeat = "cargo xtask spec";
        step::timed(
            "spec",
            "",
            repeat,
            || spec::run(&spec::Arguments::default()),
        )?;
        self.tally += Tally::PASSED;

        let programs = ["test", "--locked", "--workspace", "--no-run"];
        self.in_order([Step::check("test programs", cargo(&programs))])?;
        let names = IntegrationTests::listed()?;
        let mut waiting = vec![
            Step::tests("tests", Self::tests(&names.others)),
            Step::tests("documented examples", documented_examples()),
        ];
        waiting.extend(self.conformance_set());
        let computing = vec![
            Step::tests("interleavings of the lock-free files", self.interleavings()),
            Step::tests("random schedules of the channels", self.schedules()),
            Step::check("documentation", documentation()),
            Step::check(
                "release binary",
                cargo(&["build", "--locked", "--release", "-p", "unbroken"]),
            ),
            Step::check("release programs", release_programs()),
        ];
        self.beside(waiting, computing)?;
        if self.full {
            self.in_order(longer())?;
            let mutants = cargo(&["xtask", "mutants"]);
            self.in_order([Step::tests("mutants of the ledger and the lanes", mutants)])?;
        }
        self.miri()?;

        let mut waiting = Vec::new();
        for shards in ["1", "3"] {
            let command = self.acceptance(&names.acceptance, shards);
            waiting.push(Step::tests(
                format!("acceptance, shards: {shards}"),
                command,
            ));
        }
        for (name, arguments) in crashes(self.full) {
            waiting.push(built(
                format!("crashes, {name}"),
                "unbroken-crash",
                arguments,
            ));
        }
        let seeds = if self.full {
            "--seeds 500000"
        } else {
            "--seeds 20000"
        };
        let mut computing = vec![
            Step::tests("instructions", cargo(&["xtask", "instructions"])),
            built("simulator", "unbroken-simulator", seeds),
        ];
        computing.extend(self.fuzz()?);
        self.beside(waiting, computing)?;
        let mut steps = Vec::new();
        for (name, arguments) in benchmarks(self.full) {
            steps.push(self.bench(name, arguments)?);
        }
        self.all(steps)
    }

    /// All but the acceptance tests, and what is documented.
    fn tests(names: &[String]) -> Command {
        let mut command = tests_called(names);
        command.args(["--lib", "--bins"]);
        // Not the release binary, which is built meanwhile.
        command.env(
            "UNBROKEN_BIN",
            tree::target_directory().join("debug/unbroken"),
        );
        Self::with_tools(command)
    }

    /// The proof's conformance set, held against the implementation that only knows the page.
    fn conformance_set(&mut self) -> Option<Step> {
        if !self.tools.python().is_file() {
            println!("\n── conformance set: skipped, Python is missing");
            self.tally += Tally::SKIPPED;
            return None;
        }
        let mut command = Command::new(self.tools.python());
        command
            .args(["verifier.py", "verdicts.json"])
            .current_dir(tree::root().join("crates/merkle-log/testdata/conformance"));
        Some(Step::tests("conformance set of the proof", command))
    }

    fn acceptance(&self, names: &[String], shards: &str) -> Command {
        let mut command = tests_called(names);
        command
            .env("UNBROKEN_SHARDS", shards)
            .env("UNBROKEN_BIN", binary())
            .env("UNBROKEN_TOOLS", &self.tools.directory);
        Self::with_tools(command)
    }

    /// The channels under a model checker, in small: with two forced switches of thread at the
    /// most; in the longer run with no bound but time.
    fn interleavings(&self) -> Command {
        let mut command = cargo(&["test", "--locked", "--release", "--lib"]);
        command
            .args(["-p", "session-channels", "models"])
            .env("RUSTFLAGS", "--cfg loom")
            .env("CARGO_TARGET_DIR", tree::target_directory().join("loom"));
        if self.full {
            command.env("LOOM_MAX_DURATION", "600"); // seconds, for each model
        } else {
            command.env("LOOM_MAX_PREEMPTIONS", "2");
        }
        command
    }

    /// The channels' public API under a scheduler that decides by chance.
    fn schedules(&self) -> Command {
        let mut command = cargo(&["test", "--locked", "--release"]);
        command
            .args(["-p", "session-channels", "--test", "schedules"])
            .env("RUSTFLAGS", "--cfg shuttle")
            .env("CARGO_TARGET_DIR", tree::target_directory().join("shuttle"))
            .env("SCHEDULES", if self.full { "10000000" } else { "100000" });
        command
    }

    /// The channels under an interpreter that sees undefined behaviour, with both models of
    /// borrowing. Slow, so only in the longer run.
    fn miri(&mut self) -> Outcome {
        if !self.full {
            return Ok(());
        }
        let mut version = Command::new("cargo");
        if process::quiet(version.args(["+nightly", "miri", "--version"])).is_err() {
            println!("\n── miri: skipped, no nightly toolchain has it");
            self.tally += Tally::SKIPPED;
            return self.sanitizers();
        }
        for borrows in ["", "-Zmiri-tree-borrows"] {
            let mut command = Command::new("cargo");
            command
                .args([
                    "+nightly",
                    "miri",
                    "test",
                    "--locked",
                    "-p",
                    "session-channels",
                ])
                .args([
                    "--lib",
                    "--test",
                    "links",
                    "--test",
                    "rendezvous",
                    "--test",
                    "sets",
                ])
                .current_dir(tree::root())
                .env("MIRIFLAGS", borrows)
                .env("CARGO_TARGET_DIR", tree::target_directory().join("miri"));
            self.in_order([Step::tests("miri", command)])?;
        }
        Ok(())
    }

    /// Where Miri is missing: threads that do everything at once, under the sanitizers for
    /// addresses and for threads.
    fn sanitizers(&mut self) -> Outcome {
        let mut version = Command::new("cargo");
        if process::quiet(version.args(["+nightly", "--version"])).is_err() {
            println!("\n── sanitizers: skipped, no nightly toolchain");
            self.tally += Tally::SKIPPED;
            return Ok(());
        }
        let known = tree::root().join("crates/session-channels/tests/thread-sanitizer.supp");
        for sanitizer in ["address", "thread"] {
            // The standard library is not built for them, which is why the test has no harness.
            let flags = format!("-Zsanitizer={sanitizer} -Cunsafe-allow-abi-mismatch=sanitizer");
            let mut command = Command::new("cargo");
            command
                .args(["+nightly", "test", "--locked", "-p", "session-channels"])
                .args(["--test", "stress", "--target", "x86_64-unknown-linux-gnu"])
                .current_dir(tree::root())
                .env("RUSTFLAGS", flags)
                .env("STRESS", "1000")
                .env("TSAN_OPTIONS", format!("suppressions={}", known.display()))
                .env(
                    "CARGO_TARGET_DIR",
                    tree::target_directory().join("sanitizers"),
                );
            let name = format!("sanitizer of {sanitizer}");
            self.in_order([Step::tests(name, command)])?;
        }
        Ok(())
    }

    /// Each fuzz target for a while, from golden packets and documented examples on; what it finds
    /// stays uncommitted.
    fn fuzz(&mut self) -> Outcome<Vec<Step>> {
        if !self.tools.cargo_fuzz().is_file() {
            println!("\n── fuzz: skipped, cargo-fuzz is missing");
            self.tally += Tally::SKIPPED;
            return Ok(Vec::new());
        }
        let seeds = [
            ("unbroken-mqtt-proto", "fuzz-seeds"),
            ("unbroken-merkle-log", "fuzz-seeds-audit"),
            ("unbroken-store", "fuzz-seeds-store"),
        ];
        let seeds = seeds.map(|(package, example)| {
            // Built with the tests.
            let program = tree::target_directory()
                .join("debug/examples")
                .join(example);
            Step::check("fuzz seeds", process::program(&program))
                .repeated_with(format!("cargo run -p {package} --example {example}"))
        });
        let mut steps = Vec::from(seeds);
        let nightly = has_nightly();
        steps.push(Step::check(
            "fuzz targets",
            self.cargo_fuzz(nightly, "build")?,
        ));
        let listed = fs::read_dir(tree::root().join("dev/fuzz/fuzz_targets"));
        let mut targets: Vec<_> = listed
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| Some(entry.path().file_stem()?.display().to_string()))
            .collect();
        targets.sort();
        let seconds = if self.full { 300 } else { 15 };
        for target in targets {
            let mut command = self.cargo_fuzz(nightly, "run")?;
            command.args([&target, "--", &format!("-max_total_time={seconds}")]);
            steps.push(Step::check(format!("fuzz {target}"), command));
        }
        Ok(steps)
    }

    fn cargo_fuzz(&self, nightly: bool, verb: &str) -> Outcome<Command> {
        let own_path = std::env::var_os("PATH").unwrap_or_default();
        let path = std::iter::once(self.tools.cargo_commands());
        let path = std::env::join_paths(path.chain(std::env::split_paths(&own_path)))
            .map_err(|error| error.to_string())?;
        // The name, not our own path: rustup's cargo understands `+nightly`.
        let mut command = Command::new("cargo");
        command.current_dir(tree::root()).env("PATH", path);
        if nightly {
            command.args(["+nightly", "fuzz", verb]);
        } else {
            // Sanitizers need nightly; without one, panics and limits are still found.
            command.args(["fuzz", verb, "-s", "none"]);
        }
        command.args(["--fuzz-dir", "dev/fuzz"]);
        command.args(["--target-dir".into(), tree::target_directory().join("fuzz")]);
        Ok(command)
    }

    /// A benchmark of our broker, in which no peer may be missing where all can be installed: in
    /// short of the binary that is there, for bars of one that is built as a package is.
    fn bench(&self, name: &str, arguments: &[&str]) -> Outcome<Step> {
        let mut by_hand = cargo(&["xtask", "bench"]);
        by_hand.args(arguments);
        if !arguments.contains(&"--smoke") {
            return Ok(Step::check(name, Self::with_tools(by_hand)));
        }
        let mut command = process::program(&release("unbroken-bench"));
        command.args(arguments).env("UNBROKEN_BIN", binary());
        bench::find_peers(&mut command, &self.tools)?;
        let step = Step::check(name, Self::with_tools(command));
        Ok(step.repeated_with(process::shown(&by_hand)))
    }

    /// No tool may be missing where all can be installed.
    fn with_tools(mut command: Command) -> Command {
        if tools::must_have_all() {
            command.env("UNBROKEN_REQUIRE_TOOLS", "1");
        }
        command
    }

    fn in_order(&mut self, steps: impl IntoIterator<Item = Step>) -> Outcome {
        self.add(step::in_order(steps.into_iter().collect()))
    }

    fn beside(&mut self, waiting: Vec<Step>, computing: Vec<Step>) -> Outcome {
        self.add(step::beside(waiting, computing))
    }

    /// Runs them all; names each that failed at once, and fails with them at the end.
    fn all(&mut self, steps: impl IntoIterator<Item = Step>) -> Outcome {
        let mut problems = Vec::new();
        for step in steps {
            if let Err(problem) = self.in_order([step]) {
                println!("── {problem}");
                problems.push(problem);
            }
        }
        step::all_of(&problems)
    }

    fn add(&mut self, (tally, outcome): (Tally, Outcome)) -> Outcome {
        self.tally += tally;
        outcome
    }
}

/// The names of integration tests, those of the acceptance crate apart, which no other crate has.
struct IntegrationTests {
    acceptance: Vec<String>,
    others: Vec<String>,
}

impl IntegrationTests {
    /// As cargo has them.
    fn listed() -> Outcome<Self> {
        let mut command = cargo(&["metadata", "--locked", "--no-deps", "--format-version", "1"]);
        let text = process::quiet(&mut command)?;
        let metadata: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        let mut names = Self {
            acceptance: Vec::new(),
            others: Vec::new(),
        };
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        for package in list(&metadata["packages"]) {
            let tests = list(&package["targets"]).into_iter();
            let tests = tests.filter(|target| target["kind"][0] == "test");
            let tests = tests.filter_map(|target| Some(target["name"].as_str()?.to_owned()));
            if package["name"] == ACCEPTANCE {
                names.acceptance.extend(tests);
            } else {
                names.others.extend(tests);
            }
        }
        names.others.sort();
        names.others.dedup();
        if names.acceptance.is_empty() {
            return Err(format!(
                "cargo knows of no integration test of {ACCEPTANCE}"
            ));
        }
        if let Some(name) = names
            .acceptance
            .iter()
            .find(|name| names.others.contains(name))
        {
            return Err(format!(
                "two integration tests are called {name}, one of them of {ACCEPTANCE}; rename one"
            ));
        }
        Ok(names)
    }
}

/// Selected out of the whole workspace: what they share with others is built once.
fn tests_called(names: &[String]) -> Command {
    let mut command = cargo(&["test", "--locked", "--no-fail-fast", "--workspace"]);
    for name in names {
        command.args(["--test", name]);
    }
    command
}

fn documented_examples() -> Command {
    cargo(&["test", "--locked", "--no-fail-fast", "--workspace", "--doc"])
}

fn documentation() -> Command {
    let mut command = cargo(&["doc", "--locked", "--workspace", "--no-deps"]);
    command.arg("--features=unbroken-store/conformance");
    command.env("RUSTDOCFLAGS", "-Dwarnings");
    command
}

/// What ends, simulates and measures the broker, in the steps behind.
fn release_programs() -> Command {
    let mut command = cargo(&["build", "--locked", "--release"]);
    for package in ["unbroken-crash", "unbroken-simulator", "unbroken-bench"] {
        command.args(["-p", package]);
    }
    command
}

/// What only the longer run has time for.
fn longer() -> [Step; 2] {
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
const fn crashes(full: bool) -> [(&'static str, &'static str); 5] {
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

/// The benchmarks with what they are told: in short that each runs and loses nothing, in full that
/// `durability`, `fairness`, `shards` and `brokers` reach their bars, where nobody else works. The
/// longest is the last.
const fn benchmarks(full: bool) -> [(&'static str, &'static [&'static str]); 6] {
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

/// Cargo without the data for building the next change faster: it doubles what a run puts on disk.
fn cargo(arguments: &[&str]) -> Command {
    let mut command = process::cargo(arguments);
    command.env("CARGO_INCREMENTAL", "0");
    command
}

/// One of the release programs, with these words.
fn built(name: impl Into<String>, program: &str, arguments: &str) -> Step {
    let mut command = process::program(&release(program));
    command
        .args(arguments.split(' '))
        .env("UNBROKEN_BIN", binary());
    let repeat = format!("cargo run --release -p {program} -- {arguments}");
    Step::check(name, command).repeated_with(repeat)
}

fn release(program: &str) -> PathBuf {
    tree::target_directory().join("release").join(program)
}

/// Our broker, as the acceptance tests and the suites of others run it.
pub(crate) fn binary() -> PathBuf {
    release("unbroken")
}

fn has_nightly() -> bool {
    process::quiet(Command::new("rustup").args(["toolchain", "list"]))
        .is_ok_and(|list| list.lines().any(|line| line.starts_with("nightly")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fails_of_several_does_not_keep_the_others_from_running() {
        let mut ci = Ci {
            full: false,
            tools: Tools::locate(),
            tally: Tally::default(),
        };
        let steps = [("one", "false"), ("two", "true"), ("three", "false")];
        let steps = steps.map(|(name, program)| Step::check(name, Command::new(program)));
        let problem = ci.all(steps).expect_err("two of them fail");
        let tally = Tally {
            passed: 1,
            failed: 2,
            skipped: 0,
        };
        assert_eq!(ci.tally, tally);
        assert!(problem.contains("one failed") && problem.contains("three failed"));
        let all_well = [Step::check("two", Command::new("true"))];
        assert_eq!(ci.all(all_well), Ok(()));
    }

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
