//! `cargo xtask ci`: everything a change must pass, in order, the same on every machine.
//!
//! Each step is named and timed; the first that fails ends the run and says how to repeat it. Only
//! the benchmarks, which take hours and know nothing of each other, are all run, and what failed of
//! them is told at the end. The last line of output is always `N passed, N failed, N skipped`,
//! added up over all steps: a test counts as one, and so does a check such as formatting, a fuzz
//! target or a tidy rule.
//!
//! Tests are compiled without optimisation once, and once more, optimised, for what is slow without
//! it: the broker, the simulator and the benchmarks. More profiles would cost more than they save.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use crate::tally::Tally;
use crate::tools::{self, Tools};
use crate::{Outcome, instructions, process, spec, tidy, tree};

/// Its tests are steps of their own.
const RUN_APART: &str = "unbroken-acceptance";

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
        self.step("tools", "cargo xtask install-tools", |ci| {
            ci.tools.install()
        })?;
        self.check("format", cargo(&["fmt", "--all", "--check"]))?;
        let clippy = [
            "clippy",
            "--locked",
            "--workspace",
            "--all-targets",
            "--features=unbroken-store/conformance",
            "--",
            "-Dwarnings",
        ];
        self.check("clippy", cargo(&clippy))?;
        self.step("tidy", "cargo xtask tidy", |_| {
            let passed = tidy::RULES;
            tidy::run().map(|()| Tally {
                passed,
                ..Tally::default()
            })
        })?;
        self.step("spec", "cargo xtask spec", |_| {
            spec::run(&spec::Arguments::default()).map(|()| Tally::PASSED)
        })?;

        let mut tests = cargo(&["test", "--locked", "--no-fail-fast", "--workspace"]);
        tests.args(["--exclude", RUN_APART]);
        if tools::must_have_all() {
            tests.env("UNBROKEN_REQUIRE_TOOLS", "1");
        }
        self.tests("tests", tests)?;
        self.tests("interleavings of the lock-free files", self.interleavings())?;
        self.tests("random schedules of the channels", self.schedules())?;
        if self.full {
            let mut long = cargo(&["test", "--locked", "--release"]);
            long.args(["-p", "unbroken-merkle-log", "--", "--ignored"]);
            self.tests("lanes of a million messages", long)?;
            let mut histories = cargo(&["test", "--locked", "--release"]);
            histories.args(["-p", "unbroken-store", "--lib", "conformance"]);
            histories.args(["--", "--ignored"]);
            self.tests("many histories of a store", histories)?;
        }
        self.miri()?;
        let mut documentation = cargo(&["doc", "--locked", "--workspace", "--no-deps"]);
        documentation.arg("--features=unbroken-store/conformance");
        documentation.env("RUSTDOCFLAGS", "-Dwarnings");
        self.check("documentation", documentation)?;

        let build = ["build", "--locked", "--release", "-p", "unbroken"];
        self.check("release binary", cargo(&build))?;
        self.step("instructions", "cargo xtask instructions", |_| {
            instructions::run(&instructions::Arguments::default())
        })?;
        for shards in ["1", "3"] {
            let name = format!("acceptance, shards: {shards}");
            self.tests(&name, self.acceptance(shards))?;
        }
        self.check("crashes, shards: 1", self.crashes(&["--shards", "1"]))?;
        self.check("crashes, shards drawn", self.crashes(&[]))?;
        for durability in ["relaxed", "off"] {
            let name = format!("crashes, durability: {durability}");
            self.check(&name, self.crashes_of_the_broker_alone(durability))?;
        }
        self.check("crashes, much to write", self.crashes_under_load())?;
        let seeds = if self.full { "500000" } else { "20000" };
        let mut simulator = cargo(&["run", "--locked", "--release"]);
        simulator.args(["-p", "unbroken-simulator", "--", "--seeds", seeds]);
        self.check("simulator", simulator)?;
        self.fuzz()?;
        let benchmarks = benchmarks(self.full).into_iter();
        self.checks(benchmarks.map(|(name, arguments)| (name, bench(arguments))))
    }

    fn acceptance(&self, shards: &str) -> Command {
        let mut command = cargo(&["test", "--locked", "--no-fail-fast"]);
        command
            .args(["-p", "unbroken-acceptance"])
            .env("UNBROKEN_SHARDS", shards)
            .env("UNBROKEN_BIN", binary())
            .env("UNBROKEN_TOOLS", &self.tools.directory);
        if tools::must_have_all() {
            command.env("UNBROKEN_REQUIRE_TOOLS", "1");
        }
        command
    }

    /// The broker ended at random moments by SIGKILL, power cuts and faults of the disk: 200 kills
    /// in both runs together, and 2,000 in the longer one; one in eight more, which is about as
    /// many as come before the broker listens.
    fn crashes(&self, shards: &[&str]) -> Command {
        let [kills, stops, cuts, faults, starts] = if self.full {
            ["1150", "100", "200", "100", "80"]
        } else {
            ["115", "8", "20", "12", "8"]
        };
        let mut command = crash();
        command
            .args(["--kills", kills, "--stops", stops])
            .args(["--cuts", cuts, "--faults", faults, "--starts", starts])
            .args(shards);
        command
    }

    /// Where a crash of the machine may lose something, one of the broker may not.
    fn crashes_of_the_broker_alone(&self, durability: &str) -> Command {
        let [kills, stops] = if self.full {
            ["200", "20"]
        } else {
            ["10", "2"]
        };
        let mut command = crash();
        command
            .args(["--kills", kills, "--stops", stops])
            .args(["--durability", durability]);
        command
    }

    /// So much that journals and generations of logs are ended, trimmed and begun all the time.
    fn crashes_under_load(&self) -> Command {
        let [kills, stops, cuts] = if self.full {
            ["100", "10", "40"]
        } else {
            ["12", "1", "3"]
        };
        let mut command = crash();
        command
            .args(["--kills", kills, "--stops", stops, "--cuts", cuts])
            .args(["--heavy", "200000", "--shards", "1"]);
        command
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
            self.tests("miri", command)?;
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
            self.tests(&format!("sanitizer of {sanitizer}"), command)?;
        }
        Ok(())
    }

    /// Each fuzz target for a while, from golden packets and documented examples on; what it finds
    /// stays uncommitted.
    fn fuzz(&mut self) -> Outcome {
        if !self.tools.cargo_fuzz().is_file() {
            println!("\n── fuzz: skipped, cargo-fuzz is missing");
            self.tally += Tally::SKIPPED;
            return Ok(());
        }
        for (package, example) in [
            ("unbroken-mqtt-proto", "fuzz-seeds"),
            ("unbroken-merkle-log", "fuzz-seeds-audit"),
            ("unbroken-store", "fuzz-seeds-store"),
        ] {
            let seeds = ["run", "--locked", "-p", package, "--example", example];
            self.check("fuzz seeds", cargo(&seeds))?;
        }
        let listed = fs::read_dir(tree::root().join("fuzz/fuzz_targets"));
        let mut targets: Vec<_> = listed
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| Some(entry.path().file_stem()?.display().to_string()))
            .collect();
        targets.sort();
        let nightly = has_nightly();
        for target in targets {
            let name = format!("fuzz {target}");
            self.check(&name, self.fuzz_target(&target, nightly)?)?;
        }
        Ok(())
    }

    fn fuzz_target(&self, target: &str, nightly: bool) -> Outcome<Command> {
        let own_path = std::env::var_os("PATH").unwrap_or_default();
        let path = std::iter::once(self.tools.cargo_commands());
        let path = std::env::join_paths(path.chain(std::env::split_paths(&own_path)))
            .map_err(|error| error.to_string())?;

        // The name, not our own path: rustup's cargo understands `+nightly`.
        let mut command = Command::new("cargo");
        command.current_dir(tree::root()).env("PATH", path);
        if nightly {
            command.args(["+nightly", "fuzz", "run"]);
        } else {
            // Sanitizers need nightly; without one, panics and limits are still found.
            command.args(["fuzz", "run", "-s", "none"]);
        }
        command.args(["--target-dir".into(), tree::target_directory().join("fuzz")]);
        command.arg(target);
        let seconds = if self.full { 300 } else { 15 };
        command.args(["--".to_owned(), format!("-max_total_time={seconds}")]);
        Ok(command)
    }

    /// A command that passes or fails as a whole.
    fn check(&mut self, name: &str, mut command: Command) -> Outcome {
        self.step(name, &process::shown(&command), |_| {
            process::stream(&mut command, |_| {}).map(|()| Tally::PASSED)
        })
    }

    /// The same of several, all of which are run; fails at the end with each that failed.
    fn checks<'a>(&mut self, commands: impl Iterator<Item = (&'a str, Command)>) -> Outcome {
        let mut problems = Vec::new();
        for (name, command) in commands {
            if let Err(problem) = self.check(name, command) {
                println!("── {problem}");
                self.tally += Tally::FAILED;
                problems.push(problem);
            }
        }
        if problems.is_empty() {
            Ok(())
        } else {
            Err(problems.join("\n"))
        }
    }

    /// A command that prints how many tests it ran.
    fn tests(&mut self, name: &str, mut command: Command) -> Outcome {
        let mut sum = Tally::default();
        let outcome = self.step(name, &process::shown(&command), |_| {
            process::stream(&mut command, |line| {
                if let Some(more) = Tally::from_line(line) {
                    sum += more;
                }
            })
            .map(|()| Tally::default())
        });
        self.tally += sum;
        outcome
    }

    fn step(
        &mut self,
        name: &str,
        repeat: &str,
        work: impl FnOnce(&Self) -> Outcome<Tally>,
    ) -> Outcome {
        println!("\n── {name}");
        let begin = Instant::now();
        let outcome = work(self);
        let seconds = begin.elapsed().as_secs_f64();
        match outcome {
            Ok(tally) => {
                println!("── {name}: {seconds:.1} s");
                self.tally += tally;
                Ok(())
            }
            Err(problem) => Err(format!(
                "{name} failed after {seconds:.1} s\n{problem}\nrepeat it with: {repeat}"
            )),
        }
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

/// A benchmark of our broker, in which no peer may be missing where all can be installed: in short
/// of the binary that is there, for bars of one that is built as a package is.
fn bench(arguments: &[&str]) -> Command {
    let mut command = cargo(&["xtask", "bench"]);
    command.args(arguments);
    if arguments.contains(&"--smoke") {
        command.env("UNBROKEN_BIN", binary());
    }
    if tools::must_have_all() {
        command.env("UNBROKEN_REQUIRE_TOOLS", "1");
    }
    command
}

/// Cargo without the data for building the next change faster: it doubles what a run puts on disk.
fn cargo(arguments: &[&str]) -> Command {
    let mut command = process::cargo(arguments);
    command.env("CARGO_INCREMENTAL", "0");
    command
}

/// Ends our broker again and again.
fn crash() -> Command {
    let mut command = cargo(&["run", "--locked", "--release", "-p", "unbroken-crash", "--"]);
    command.env("UNBROKEN_BIN", binary());
    command
}

/// Our broker, as the acceptance tests and the suites of others run it.
pub(crate) fn binary() -> PathBuf {
    tree::target_directory().join("release/unbroken")
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
        let commands = [("one", "false"), ("two", "true"), ("three", "false")];
        let commands = commands.map(|(name, program)| (name, Command::new(program)));
        let problem = ci
            .checks(commands.into_iter())
            .expect_err("two of them fail");
        let tally = Tally {
            passed: 1,
            failed: 2,
            skipped: 0,
        };
        assert_eq!(ci.tally, tally);
        assert!(problem.contains("one failed") && problem.contains("three failed"));
        let all_well = [("two", Command::new("true"))].into_iter();
        assert_eq!(ci.checks(all_well), Ok(()));
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
