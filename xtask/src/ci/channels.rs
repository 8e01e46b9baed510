//! The lock-free code of `session-channels` under tools that see more than its tests: a model
//! checker, a random scheduler, an interpreter, sanitizers.
//!
//! The short run leaves out loom and shuttle where they passed these sources before: a file in the
//! build directory holds the hash of the sources of the last such run. Without the file they run.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Ci, cargo};
use crate::step::Step;
use crate::tally::Tally;
use crate::tree::File;
use crate::{Outcome, process, tree};

/// What loom and shuttle look at: the lock-free code, what generates calls of it, and the versions
/// of the tools.
const SOURCES: [&str; 3] = [
    "crates/session-channels/",
    "crates/session-channels-macros/",
    "Cargo.lock",
];

/// The sources of the channels as they are now, beside those that passed last.
pub(super) struct ChannelSources {
    hash: String,
    /// Holds the hash of those that passed.
    passed: PathBuf,
}

impl ChannelSources {
    pub(super) fn read() -> Outcome<Self> {
        Ok(Self::of(&tree::read()?, &tree::target_directory()))
    }

    fn of(files: &[File], target: &Path) -> Self {
        let mut hasher = DefaultHasher::new();
        let is_source = |file: &&File| SOURCES.iter().any(|path| file.path.starts_with(path));
        for file in files.iter().filter(is_source) {
            (&file.path, &file.text).hash(&mut hasher);
        }
        Self {
            hash: format!("{:016x}", hasher.finish()),
            passed: target.join("ci/channels-passed"),
        }
    }

    pub(super) fn have_changed(&self) -> bool {
        fs::read_to_string(&self.passed).ok().as_ref() != Some(&self.hash)
    }

    /// Loom and shuttle passed these.
    pub(super) fn record(&self) -> Outcome {
        let directory = self.passed.parent().map_or(Ok(()), fs::create_dir_all);
        let written = directory.and_then(|()| fs::write(&self.passed, &self.hash));
        written.map_err(|error| format!("cannot write {}: {error}", self.passed.display()))
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_are_examined_again_when_their_sources_have_changed() {
        let target = tempfile::tempdir().expect("a directory");
        let file = |path, text| File::new(path, text);
        let first = [
            file("Cargo.lock", "loom 1"),
            file("crates/session-channels/src/ring.rs", "one"),
            file("crates/store/src/lib.rs", "one"),
        ];
        let changed = |files: &[File]| ChannelSources::of(files, target.path()).have_changed();
        assert!(changed(&first), "nothing is on record");
        let recorded = ChannelSources::of(&first, target.path()).record();
        assert_eq!(recorded, Ok(()));
        assert!(!changed(&first));
        for (index, other, expect) in [
            (0, file("Cargo.lock", "loom 2"), true),
            (1, file("crates/session-channels/src/ring.rs", "two"), true),
            (1, file("crates/session-channels/src/new.rs", "one"), true),
            (
                2,
                file("crates/session-channels-macros/src/lib.rs", ""),
                true,
            ),
            (2, file("crates/store/src/lib.rs", "two"), false),
            (2, file("crates/session-channels2/src/lib.rs", ""), false),
        ] {
            let mut files = first.clone();
            files[index] = other;
            assert_eq!(changed(&files), expect, "{}", files[index].path);
        }
    }
}
