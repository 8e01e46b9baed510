//! The fuzz targets.

use std::fs;
use std::process::Command;

use super::{Ci, plan};
use crate::step::Step;
use crate::tally::Tally;
use crate::{Outcome, process, tree};

impl Ci {
    /// Each fuzz target over its corpus: golden packets, documented examples and what earlier runs
    /// on this machine have kept. The full run then fuzzes; what it finds stays uncommitted.
    pub(super) fn fuzz(&mut self) -> Outcome<Vec<Step>> {
        if !self.tools.cargo_fuzz().is_file() {
            println!("\n── fuzz: skipped, cargo-fuzz is missing");
            self.tally += Tally::SKIPPED;
            return Ok(Vec::new());
        }
        let seeds = [
            ("unbroken-mqtt-proto", "fuzz-seeds"),
            ("unbroken-merkle-log", "fuzz-seeds-audit"),
            ("unbroken-store", "fuzz-seeds-store"),
            ("unbroken-mosquitto-files", "fuzz-seeds-mosquitto"),
            ("unbroken-broker", "fuzz-seeds-authentication"),
            ("unbroken-broker", "fuzz-seeds-doors"),
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
        for target in targets {
            let mut command = self.cargo_fuzz(nightly, "run")?;
            command.args([&target, "--", plan::fuzzing(self.full)]);
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
}

fn has_nightly() -> bool {
    process::quiet(Command::new("rustup").args(["toolchain", "list"]))
        .is_ok_and(|list| list.lines().any(|line| line.starts_with("nightly")))
}
