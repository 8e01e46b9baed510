//! `cargo xtask instructions`: what the hot path costs, counted in instructions, may not rise
//! unnoticed.
//!
//! `crates/broker-core/examples/instructions.rs` does fixed pieces of work, Valgrind's callgrind
//! counts what they take, and `crates/broker-core/instructions.toml` has what they took. A rise by
//! more than [`table::RISE_PERCENT`] fails; `--write --why '…'` records it with its reason.
//!
//! A count is nearly the same in every run, and so says what a time does not; it says nothing of
//! caches, of the kernel, or of waiting. Invariants: what is counted does not depend on the C
//! library or the machine. So only instructions of our own program count: how many `memcpy` or
//! `malloc` take is the C library's choice by processor and version, and calls of the allocator are
//! a count of their own. It does depend on the compiler and on AVX2, which `memchr` asks for, so
//! the table says with what it was made, and counts made otherwise are not compared.

mod profile;
mod table;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;

use crate::tally::Tally;
use crate::{Outcome, process, tools, tree};
use profile::Counts;
use table::Table;

/// Whether the table is compared or written.
#[derive(Args, Default)]
pub(crate) struct Arguments {
    /// Record the counts; without a reason only those that fell
    #[arg(long)]
    write: bool,
    /// Why counts had to rise that rose by more than is allowed; the others keep their lower counts
    #[arg(long, requires = "write", value_name = "TEXT")]
    why: Option<String>,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let tally = compare_or_write(arguments)?;
    let Tally {
        passed, skipped, ..
    } = tally;
    let noun = if passed + skipped == 1 {
        "test"
    } else {
        "tests"
    };
    println!(
        "{} {noun} ({passed} passed, {skipped} skipped)",
        passed + skipped
    );
    Ok(())
}

fn compare_or_write(arguments: &Arguments) -> Outcome<Tally> {
    if !tools::on_path("valgrind") {
        let why = "valgrind is missing, `cargo xtask install-tools` installs it";
        return Ok(skip(why));
    }
    let path = tree::root().join("crates/broker-core/instructions.toml");
    let counted_with = environment()?;
    let table = match fs::read_to_string(&path) {
        Ok(text) => text.parse()?,
        Err(_) if arguments.write => Table::default(),
        Err(error) => return Err(format!("cannot read {}: {error}", path.display())),
    };
    if table.counted_with != counted_with && !arguments.write {
        return Ok(skip(&format!(
            "the table was made with {}, here is {counted_with}; \
             `cargo xtask instructions --write --why '…'` makes it anew",
            table.counted_with
        )));
    }
    let counts = count_all()?;
    print!("{}", table.beside(&counts));
    if arguments.write {
        let table = table.updated(counted_with, &counts, arguments.why.as_deref())?;
        fs::write(&path, table.to_string())
            .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        println!("written to {}", path.display());
    } else {
        table.check(&counts).map_err(|problems| {
            format!(
                "{problems}\n`callgrind_annotate {}/NAME.out` shows where it goes. If it has to be, \
                 `cargo xtask instructions --write --why '…'` records it",
                profiles().display()
            )
        })?;
    }
    Ok(Tally {
        passed: counts.len(),
        ..Tally::default()
    })
}

fn skip(why: &str) -> Tally {
    println!("skipped: {why}");
    Tally::SKIPPED
}

/// What counts depend on beside the source.
fn environment() -> Outcome<String> {
    let mut rustc = Command::new("rustc");
    let version = process::quiet(rustc.arg("--version").current_dir(tree::root()))?;
    let processor = std::env::consts::ARCH;
    #[cfg(target_arch = "x86_64")]
    let vectors = ["", " with AVX2"][usize::from(std::is_x86_feature_detected!("avx2"))];
    #[cfg(not(target_arch = "x86_64"))]
    let vectors = "";
    Ok(format!("{} for {processor}{vectors}", version.trim()))
}

/// Where callgrind's profiles lie afterwards, to be looked at.
fn profiles() -> PathBuf {
    tree::target_directory().join("instructions")
}

fn count_all() -> Outcome<Vec<(String, Counts)>> {
    let mut cargo = process::cargo(&["build", "--locked", "--release"]);
    cargo.args(["-p", "unbroken-broker-core", "--example", "instructions"]);
    // Built as a release is: both would change what the compiler makes of it.
    cargo.env("CARGO_INCREMENTAL", "0").env_remove("RUSTFLAGS");
    process::quiet(&mut cargo)?;
    // As callgrind names it.
    let program = tree::target_directory().join("release/examples/instructions");
    let program = program.canonicalize().map_err(|error| error.to_string())?;
    fs::create_dir_all(profiles()).map_err(|error| error.to_string())?;
    let pieces = process::quiet(&mut Command::new(&program))?;
    let count = |name: &str| Ok((name.to_owned(), count(&program, name)?));
    pieces.lines().map(count).collect()
}

/// What one thing of this piece takes.
fn count(program: &Path, name: &str) -> Outcome<Counts> {
    // Callgrind counts instructions in one function only, but calls everywhere.
    let (before, _) = profile(program, name, "none")?;
    let (all, things) = profile(program, name, "")?;
    let counts = Counts {
        instructions: (all.instructions - before.instructions) / things,
        allocations: (all.allocations - before.allocations).max(0.0) / things,
    };
    if counts.instructions > 0.0 {
        Ok(counts)
    } else {
        Err(format!("{name} has no instructions of ours"))
    }
}

/// What callgrind counts, and how many things were done.
fn profile(program: &Path, name: &str, rounds: &str) -> Outcome<(Counts, f64)> {
    let out = profiles().join(format!("{name}{rounds}.out"));
    let mut valgrind = Command::new("valgrind");
    valgrind
        .args([
            "--tool=callgrind",
            "--toggle-collect=instructions::counted*",
        ])
        .args(["--compress-strings=no", "--compress-pos=no"])
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(program)
        .args([name, rounds]);
    let things = process::quiet(&mut valgrind)?;
    let profile = fs::read_to_string(&out)
        .map_err(|error| format!("cannot read {}: {error}", out.display()))?;
    let things: f64 = things
        .trim()
        .parse()
        .map_err(|_| format!("{} {name} says {things:?}", program.display()))?;
    let counts = Counts::read(&profile, &program.display().to_string());
    Ok((counts, things))
}
