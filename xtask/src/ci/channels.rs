//! The lock-free code of `session-channels` under tools that see more than its tests: a model
//! checker, a random scheduler, an interpreter, sanitizers.

use std::process::Command;

use super::{Ci, cargo};
use crate::step::Step;
use crate::tally::Tally;
use crate::{Outcome, process, tree};

impl Ci {
    /// The channels under a model checker, in small: with two forced switches of thread at the
    /// most; in the longer run with no bound but time.
    pub(super) fn interleavings(&self) -> Command {
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
    pub(super) fn schedules(&self) -> Command {
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
    pub(super) fn miri(&mut self) -> Outcome {
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
}
