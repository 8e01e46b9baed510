//! `cargo xtask ci`: everything a change must pass, in order, the same on every machine: in 15
//! minutes on two cores, in 25 where nothing is built yet.
//!
//! `--full` is everything a release must pass, and takes hours: what differs is in `plan.rs`, and
//! all of it says `full`. A full run that passes is recorded (`last_full.rs`).
//!
//! Each step is named and timed; behind one that fails none is begun, and it says how to repeat it.
//! Only the benchmarks, which know nothing of each other, are all run, and what failed of them is
//! said at the end. The last line of output is always `N passed, N failed, N skipped`, added up
//! over all steps: a test counts as one, and so does a check such as formatting, a fuzz target or a
//! tidy rule.
//!
//! Tests are compiled without optimisation once, and once more, optimised, for what is slow without
//! it: the broker, the simulator and the benchmarks. More profiles would cost more than they save.
//! Each is selected as a whole, for cargo compiles dependencies anew for each selection of packages
//! that wants other features of them; the programs are then run by their paths. Only the broker is
//! selected alone, so that it is what a user builds.
//!
//! Steps that mostly wait have a core to spare, and those that compute take it
//! ([`step::beside`]).

mod book;
mod channels;
mod dependencies;
mod fuzz;
mod integration_tests;
mod plan;

use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use self::channels::ChannelSources;
use self::integration_tests::IntegrationTests;
use crate::last_full::{self, LastFull, Tested};
use crate::step::{self, Step};
use crate::tally::Tally;
use crate::tools::{self, Tools};
use crate::{Outcome, bench, page_tests, process, spec, tidy, tree};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Everything a release must pass: also long simulator runs, fuzzing, all kinds of crashes and
    /// benchmarks, loom and shuttle, mutants, dependencies, the book
    #[arg(long)]
    full: bool,
    /// The benchmarks hold their bars, which takes hours more and a machine of its own
    #[arg(long, requires = "full")]
    bars: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let mut ci = Ci {
        full: arguments.full,
        bars: arguments.bars,
        tools: Tools::locate(),
        tally: Tally::default(),
    };
    let tested = Tested::commit();
    let begin = Instant::now();
    match ci.steps() {
        Ok(()) => {
            let seconds = begin.elapsed().as_secs_f64();
            println!("\nall steps passed in {seconds:.0} s");
            if ci.full {
                record(tested)?;
            }
            println!("{}\n{}", LastFull::read(), ci.tally);
            Ok(())
        }
        Err(problem) => {
            if ci.tally.failed == 0 {
                ci.tally += Tally::FAILED;
            }
            Err(format!("{problem}\n{}\n{}", LastFull::read(), ci.tally))
        }
    }
}

/// Writes down that a full run passed.
fn record(tested: Option<Tested>) -> Outcome {
    match tested.map(Tested::record).transpose()?.flatten() {
        Some(path) => println!("commit {}, which records this full run", path.display()),
        None => println!("this full run is not recorded: it was not of one commit alone"),
    }
    Ok(())
}

struct Ci {
    full: bool,
    bars: bool,
    tools: Tools,
    tally: Tally,
}

impl Ci {
    fn steps(&mut self) -> Outcome {
        self.rules()?;
        let programs = ["test", "--locked", "--workspace", "--no-run"];
        self.in_order([Step::check("test programs", cargo(&programs))])?;
        let names = IntegrationTests::listed()?;
        self.unit_tests(&names)?;
        if self.full {
            self.in_order(plan::longer())?;
            self.mutants()?;
        }
        self.miri()?;
        self.system_tests(&names.acceptance)?;
        let mut steps = Vec::new();
        for (name, arguments) in plan::benchmarks(self.full, self.bars) {
            steps.push(self.bench(name, arguments)?);
        }
        self.all(steps)
    }

    /// Of lines that have changed since the last full run: all of them take a night.
    fn mutants(&mut self) -> Outcome {
        let name = "mutants of the ledger and the lanes";
        let last = LastFull::read();
        let Some(commit) = last.commit() else {
            println!("\n── {name}: skipped, {last}; `cargo xtask mutants` tries all");
            self.tally += Tally::SKIPPED;
            return Ok(());
        };
        let mutants = cargo(&["xtask", "mutants", "--since", commit]);
        self.in_order([Step::tests(name, mutants)])
    }

    /// What needs no program of ours: tools, lints, the rules of the repository, dependencies.
    fn rules(&mut self) -> Outcome {
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
        self.dependencies()?;
        self.book()
    }

    /// Unit and integration tests, beside what is built for the steps behind.
    fn unit_tests(&mut self, names: &IntegrationTests) -> Outcome {
        let mut waiting = vec![
            Step::tests("tests", self.tests(names)),
            Step::tests("documented examples", documented_examples()),
        ];
        waiting.extend(self.conformance_set());
        waiting.extend(self.reading_of_the_ring());
        let channels = ChannelSources::read()?;
        let has_changed = channels.have_changed();
        let mut computing = Vec::new();
        if self.full || has_changed {
            computing.extend([
                Step::tests("interleavings of the lock-free files", self.interleavings()),
                Step::tests("random schedules of the channels", self.schedules()),
            ]);
        } else {
            println!("\n── interleavings and random schedules: session-channels has not changed");
        }
        computing.extend([
            Step::check("documentation", documentation()),
            Step::check(
                "release binary",
                cargo(&["build", "--locked", "--release", "-p", "unbroken"]),
            ),
            Step::check("release programs", release_programs()),
        ]);
        self.beside(waiting, computing)?;
        channels.record()
    }

    /// The release programs from outside: acceptance, crashes, and what computes beside them.
    fn system_tests(&mut self, acceptance: &[String]) -> Outcome {
        let mut waiting = Vec::new();
        for (shards, tests) in plan::acceptance(self.full, acceptance) {
            let command = self.acceptance(&tests, shards);
            waiting.push(Step::tests(
                format!("acceptance, shards: {shards}"),
                command,
            ));
        }
        for transport in plan::TRANSPORTS {
            let mut command = self.acceptance(&[plan::FEATURES.to_owned()], "3");
            command.env("UNBROKEN_TRANSPORT", transport);
            waiting.push(Step::tests(format!("features over {transport}"), command));
        }
        for (name, arguments) in plan::crashes(self.full) {
            let name = format!("crashes, {name}");
            waiting.push(built(name, "unbroken-crash", arguments));
        }
        waiting.push(attacks(self.full));
        waiting.extend(self.page());
        let seeds = plan::seeds(self.full, last_full::commits().unwrap_or(0));
        let name = format!("simulator {seeds}");
        let mut computing = vec![
            Step::tests("instructions", cargo(&["xtask", "instructions"])),
            built(name, "unbroken-simulator", &seeds),
        ];
        computing.extend(self.ring_by_another_hand());
        computing.extend(self.fuzz()?);
        self.beside(waiting, computing)
    }

    /// The page in a browser.
    fn page(&mut self) -> Vec<Step> {
        if !self.tools.has_page_driver() {
            println!("\n── page: skipped, Chromium or its driver is missing");
            self.tally += Tally::SKIPPED;
            return Vec::new();
        }
        page_tests::steps(&self.tools, &binary()).into()
    }

    /// All but the acceptance tests, and what is documented.
    fn tests(&self, names: &IntegrationTests) -> Command {
        let mut command = tests_called(&names.others);
        for name in &names.examples {
            command.args(["--example", name]);
        }
        if self.full {
            command.env("CONFORMANCE_SEEDS", "50000");
        }
        command.args(["--lib", "--bins"]);
        // Not the release binary, which is built meanwhile.
        command.env(
            "UNBROKEN_BIN",
            tree::target_directory().join("debug/unbroken"),
        );
        Self::with_tools(command)
    }

    /// The proof's conformance set, and random scripts that the tests before it wrote, held against
    /// the implementation that only knows the page.
    fn conformance_set(&mut self) -> Option<Step> {
        if !self.tools.python().is_file() {
            println!("\n── conformance set: skipped, Python is missing");
            self.tally += Tally::SKIPPED;
            return None;
        }
        let mut command = Command::new(self.tools.python());
        command
            .args(["verifier.py", "verdicts.json"])
            .arg(tree::target_directory().join("tmp/random-verdicts.json"))
            .current_dir(tree::root().join("crates/merkle-log/testdata/conformance"));
        Some(Step::tests("conformance set of the proof", command))
    }

    /// The golden vectors of the hash ring, held against a reading of its format in Python.
    fn reading_of_the_ring(&mut self) -> Option<Step> {
        let mut command = self.python_of_the_ring("golden vectors of the hash ring")?;
        command.arg("reading.py");
        Some(Step::tests("golden vectors of the hash ring", command))
    }

    /// The experiments of the command, which hold their bars, and their numbers made again.
    fn ring_by_another_hand(&mut self) -> Vec<Step> {
        const OUTPUT: &str = "tmp/ring";
        const NAME: &str = "fairness of rings, against scipy";
        let output = tree::target_directory().join(OUTPUT);
        let simulate = |experiment: &str| {
            let mut command = process::program(&binary());
            command.args(["ring", "simulate", experiment, "--out"]);
            command.arg(output.join(experiment));
            Step::check(format!("ring simulate {experiment}"), command)
        };
        let mut steps = vec![simulate("blog"), simulate("assign")];
        if let Some(mut command) = self.python_of_the_ring(NAME) {
            command
                .arg("scipy_check.py")
                .arg(output.join("blog/report.json"));
            steps.push(Step::tests(NAME, command));
        }
        steps
    }

    fn python_of_the_ring(&mut self, name: &str) -> Option<Command> {
        if !self.tools.python().is_file() {
            println!("\n── {name}: skipped, Python is missing");
            self.tally += Tally::SKIPPED;
            return None;
        }
        let mut command = Command::new(self.tools.python());
        command.current_dir(tree::root().join("crates/hash-ring/testdata"));
        Some(command)
    }

    fn acceptance(&self, names: &[String], shards: &str) -> Command {
        let mut command = tests_called(names);
        command
            .env("UNBROKEN_SHARDS", shards)
            .env("UNBROKEN_BIN", binary())
            .env("UNBROKEN_TOOLS", &self.tools.directory);
        Self::with_tools(command)
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
    const PROGRAMS: [&str; 4] = [
        "unbroken-attack",
        "unbroken-bench",
        "unbroken-crash",
        "unbroken-simulator",
    ];
    let mut command = cargo(&["build", "--locked", "--release"]);
    for package in PROGRAMS {
        command.args(["-p", package]);
    }
    command
}

/// Cargo without the data for building the next change faster: it doubles what a run puts on disk.
fn cargo(arguments: &[&str]) -> Command {
    let mut command = process::cargo(arguments);
    command.env("CARGO_INCREMENTAL", "0");
    command
}

/// One client against all others; a gap that is known counts as skipped.
fn attacks(full: bool) -> Step {
    let arguments = if full { "all" } else { "all --seconds 1" };
    built("attacks", "unbroken-attack", arguments).telling()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fails_of_several_does_not_keep_the_others_from_running() {
        let mut ci = Ci {
            full: false,
            bars: false,
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
}
