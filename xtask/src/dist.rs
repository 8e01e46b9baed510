//! `cargo xtask dist`: the program as packages have it, compiled as a whole and guided by a profile
//! (docs/adr/0050-packages-are-guided-by-a-profile.md).
//!
//! ```text
//! instrumented build ─▶ short runs of the benchmarks ─▶ profile ─▶ build that is guided by it
//! ```
//!
//! Invariants: a profile is of the sources that it guides, for its name is their hash and the
//! compiler's; without one the program is built all the same, and says so itself: `--version` ends
//! in `profile-guided` only where it is. Nothing but the build directory is written to.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use crate::tools::{self, Compiler};
use crate::tree::File;
use crate::{Outcome, process, tree};

/// What the profile is made of: all loads of the table with one shard and with two, messages that
/// are kept, and floods and crowds.
const TRAINING: [&[&str]; 4] = [
    &["brokers", "--smoke", "--peers", "unbroken"],
    &["shards", "--smoke"],
    &["durability", "--smoke"],
    &["fairness", "--smoke"],
];

pub(crate) fn run() -> Outcome {
    let program = build()?;
    let said = process::quiet(Command::new(&program).arg("--version"))?;
    println!("{}: {}", program.display(), said.trim());
    Ok(())
}

/// Builds it, and says where it is. Without a profile, if none can be made here, it says why.
pub(crate) fn build() -> Outcome<PathBuf> {
    let compiler = Compiler::here()?;
    let merger = match tools::profile_merger(&compiler) {
        Ok(merger) => merger,
        Err(why) => {
            println!("  built without a profile. {why}");
            let build = ["build", "--locked", "--profile", "dist", "--quiet"];
            process::stream(process::cargo(&build).args(["-p", "unbroken"]), |_| {})?;
            return Ok(tree::target_directory().join("dist/unbroken"));
        }
    };
    let guided = tree::target_directory().join("guided");
    let inputs = inputs(&compiler, &packages()?, &tree::root(), &tree::read()?);
    let profile = guided.join(format!("{inputs:016x}.profdata"));
    if !profile.is_file() {
        // What another profile has guided would never be used again, and is half a gigabyte.
        remove(&guided)?;
        let counts = train(&compiler)?;
        fs::create_dir_all(&guided).map_err(|error| error.to_string())?;
        let mut merge = Command::new(merger);
        merge.arg("merge").arg("-o").arg(&profile).arg(&counts);
        process::quiet(&mut merge)?;
    }
    compile(&guided, &compiler, "profile-use", &profile)
}

/// Runs the benchmarks with a program that counts where it goes, and says where the counts are.
fn train(compiler: &Compiler) -> Outcome<PathBuf> {
    let counting = tree::target_directory().join("counting");
    let counts = counting.join("counts");
    println!("  a program that counts where it goes is built and put under load");
    // Those of another program cannot be merged with the new ones.
    remove(&counts)?;
    let trained = compile(&counting, compiler, "profile-generate", &counts)?;
    for arguments in TRAINING {
        let mut bench = process::cargo(&["run", "--locked", "--release", "--quiet"]);
        bench.args(["-p", "unbroken-bench", "--"]).args(arguments);
        process::quiet(bench.env("UNBROKEN_BIN", &trained))?;
    }
    if fs::read_dir(&counts).is_ok_and(|mut files| files.next().is_some()) {
        return Ok(counts);
    }
    Err(format!(
        "{} has counted nothing: no file in {}",
        trained.display(),
        counts.display()
    ))
}

/// Builds it in this directory with a flag that names a path, and says where it is then. The flag
/// is for the program alone: with a target named, what runs during the build has none of it.
fn compile(directory: &Path, compiler: &Compiler, flag: &str, path: &Path) -> Outcome<PathBuf> {
    let flags = env::var("RUSTFLAGS").unwrap_or_default();
    let flag = format!("-C{flag}={}", path.display());
    let flags: Vec<_> = flags.split_whitespace().chain([flag.as_str()]).collect();
    let mut build = process::cargo(&["build", "--locked", "--profile", "dist", "--quiet"]);
    build.args(["-p", "unbroken", "--target", &compiler.host]);
    build.arg("--target-dir").arg(directory);
    // In this form a path may have spaces.
    build.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"));
    process::stream(&mut build, |_| {})?;
    Ok(directory.join(&compiler.host).join("dist/unbroken"))
}

/// Fails unless it is gone then.
fn remove(directory: &Path) -> Outcome {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(format!("cannot remove {}: {error}", directory.display()))
        }
        _ => Ok(()),
    }
}

/// What the program is made of: a line for each package, and for one of ours where it lies.
fn packages() -> Outcome<String> {
    let tree = ["tree", "--locked", "--edges", "normal,build"];
    let mut cargo = process::cargo(&tree);
    process::quiet(cargo.args(["--prefix", "none", "-p", "unbroken"]))
}

/// All that a profile depends on.
fn inputs(compiler: &Compiler, packages: &str, root: &Path, files: &[File]) -> u64 {
    let notes = packages.split('(').filter_map(|rest| rest.split_once(')'));
    let ours: Vec<_> = notes
        .filter_map(|(note, _)| Path::new(note).strip_prefix(root).ok())
        .collect();
    let is_compiled = |file: &&File| {
        let is_source = file.has_extension("rs") || file.has_extension("toml");
        is_source
            && ours
                .iter()
                .any(|package| Path::new(&file.path).starts_with(package))
    };
    let mut hasher = DefaultHasher::new();
    (&compiler.told, packages).hash(&mut hasher);
    for file in files.iter().filter(is_compiled) {
        (&file.path, &file.text).hash(&mut hasher);
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_source_or_compiler_asks_for_another_profile() {
        let compiler = |told: &str| Compiler {
            told: told.to_owned(),
            host: String::new(),
            llvm: String::new(),
        };
        let packages = "unbroken v0.1.0 (/here/crates/cli)\nserde_derive v1.0.1 (proc-macro)\n\
                        our-macros v0.1.0 (proc-macro) (/here/crates/macros)\n\
                        unbroken-broker v0.1.0 (/here/crates/broker) (*)\n";
        let of = |compiler: &Compiler, packages: &str, files: &[File]| {
            inputs(compiler, packages, Path::new("/here"), files)
        };
        let now = compiler("1.95.0");
        let ours = [File::new("crates/broker/src/lib.rs", "one")];
        let first = of(&now, packages, &ours);
        assert_ne!(first, of(&compiler("1.96.0"), packages, &ours));
        assert_ne!(
            first,
            of(&now, &packages.replace("v1.0.1", "v1.0.2"), &ours)
        );
        for (path, text, is_another) in [
            ("crates/broker/src/new.rs", "", true),
            ("crates/macros/src/lib.rs", "", true),
            ("crates/broker/README.md", "words", false),
            ("crates/broker-of-others/src/lib.rs", "", false),
            ("crates/bench/src/lib.rs", "", false),
        ] {
            let files = [ours[0].clone(), File::new(path, text)];
            assert_eq!(of(&now, packages, &files) != first, is_another, "{path}");
        }
    }
}
