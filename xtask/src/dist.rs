//! `cargo xtask dist`: the program as packages have it, compiled as a whole and guided by a profile
//! (docs/adr/0050-profile-guided-packages.md).
//!
//! ```text
//! instrumented build ─▶ short runs of the benchmarks ─▶ profile ─▶ build that is guided by it
//! ```
//!
//! Invariants:
//! - A profile is of the sources that it guides: its name is a hash of them, of the compiler, and
//!   of what it was trained with.
//! - Whatever is in the way of a profile, the program is built all the same, and says so itself:
//!   `--version` ends in `profile-guided` only where it is.
//! - It is in one place, `dist/unbroken` in the build directory, however it was built; its symbols
//!   and lines are beside it, in `dist/unbroken.debug`, where `gdb` and `perf` look for them.
//! - A release is of sources that passed `ci --full`, or of the 200 commits after them.

use std::collections::hash_map::DefaultHasher;
use std::env;
use std::fs::{self, File as OpenFile, TryLockError};
use std::hash::{Hash, Hasher};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::last_full::LastFull;
use crate::tools::{self, Compiler};
use crate::tree::File;
use crate::{Outcome, process, tree};

/// What the profile is made of: all loads of the table with one shard and with two, messages that
/// are kept, and floods and crowds.
const TRAINING: [&[&str]; 4] = [
    &["brokers", "--smoke", "--peers", "unbroken"],
    &["shards", "--smoke"],
    &["durability", "--smoke"],
    &["fairness", "--smoke", "--peers", "unbroken1"],
];

/// Of a profile. The training counts four billion, and whoever only asks for the version 15,000.
const COUNTS_MIN: u64 = 100_000_000;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Also when the last commit that passed `ci --full` is too old for a release
    #[arg(long)]
    any_commit: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let last_full = LastFull::read();
    if !arguments.any_commit {
        last_full.allow_release()?;
    }
    println!("{last_full}");
    let program = build(false)?;
    let said = process::quiet(Command::new(&program).arg("--version"))?;
    println!("{}: {}", program.display(), said.trim());
    Ok(())
}

/// Builds it, and says where it is. With `must_be_guided`, what is in the way of that is an error.
pub(crate) fn build(must_be_guided: bool) -> Outcome<PathBuf> {
    let target = tree::target_directory();
    let (directory, program) = (target.join("guided"), target.join("dist/unbroken"));
    let _lock = lock(&directory).map_err(|error| in_the_way(&directory, error))?;
    let built = guided(&directory).and_then(|guided| put_stripped(&guided, &program));
    match built {
        Err(why) if must_be_guided => Err(format!("it cannot be built with a profile: {why}")),
        Err(why) => {
            println!("  built without a profile: {why}");
            let mut build = process::cargo(&["build", "--locked", "--profile", "dist"]);
            build.args(["--quiet", "-p", "unbroken", "--target-dir"]);
            process::stream(build.arg(&target), |_| {})?;
            put_stripped(&target.join("dist/unbroken"), &program)?;
            Ok(program)
        }
        Ok(()) => Ok(program),
    }
}

fn in_the_way(path: &Path, error: io::Error) -> String {
    format!("{}: {error}", path.display())
}

/// Two at once would take what the other has begun. The lock ends with what is returned.
fn lock(directory: &Path) -> io::Result<OpenFile> {
    fs::create_dir_all(directory)?;
    let lock = OpenFile::create(directory.join("lock"))?;
    match lock.try_lock() {
        Ok(()) => return Ok(lock),
        Err(TryLockError::WouldBlock) => {}
        Err(TryLockError::Error(error)) => return Err(error),
    }
    println!("  waits for another that builds in {}", directory.display());
    lock.lock().map(|()| lock)
}

/// Puts the program there without symbols, and those beside it.
fn put_stripped(from: &Path, to: &Path) -> Outcome {
    if let Some(directory) = to.parent() {
        fs::create_dir_all(directory).map_err(|error| in_the_way(directory, error))?;
    }
    let (symbols, stripped) = (to.with_extension("debug"), to.with_extension("stripped"));
    let objcopy = || Command::new("objcopy");
    process::quiet(objcopy().arg("--only-keep-debug").args([from, &symbols]))?;
    let mut link = std::ffi::OsString::from("--add-gnu-debuglink=");
    link.push(&symbols);
    process::quiet(
        objcopy()
            .arg("--strip-all")
            .arg(link)
            .args([from, &stripped]),
    )?;
    let bytes = fs::metadata(&stripped)
        .map_err(|error| in_the_way(&stripped, error))?
        .len();
    if bytes > BYTES_MAX {
        return Err(format!(
            "{}: {bytes} bytes, and {BYTES_MAX} are the limit",
            stripped.display()
        ));
    }
    let put = put(&stripped, to).and_then(|()| fs::remove_file(&stripped));
    put.map_err(|error| in_the_way(to, error))
}

/// Of the program without symbols.
const BYTES_MAX: u64 = 20_000_000;

/// Whole or not at all. What was there may be running, or have another name.
fn put(from: &Path, to: &Path) -> io::Result<()> {
    if let Some(directory) = to.parent() {
        fs::create_dir_all(directory)?;
    }
    let part = to.with_extension("part");
    fs::copy(from, &part)?;
    fs::rename(part, to)
}

/// Builds it with a profile, which is made first if there is none of these sources.
fn guided(directory: &Path) -> Outcome<PathBuf> {
    let compiler = Compiler::here()?;
    let name = inputs(&compiler)?;
    let refuse_others = || -> Outcome {
        if inputs(&compiler)? == name {
            return Ok(());
        }
        Err("sources have changed meanwhile".to_owned())
    };
    let profile = directory.join(&name).with_extension("profdata");
    if !profile.is_file() {
        println!(
            "  there is no {}: a program that counts where it goes is built and put under load",
            profile.display()
        );
        let merged = train(directory, &compiler)?;
        refuse_others()?;
        fs::rename(merged, &profile).map_err(|error| in_the_way(&profile, error))?;
    }
    let program = compile(&directory.join(&name), &compiler, "profile-use", &profile)?;
    refuse_others()?;
    if let Err(error) = forget_others(directory, &name) {
        println!("  {}", in_the_way(directory, error));
    }
    Ok(program)
}

/// What others have guided is half a gigabyte each; their profiles stay.
fn forget_others(directory: &Path, this: &str) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if is_another(&entry.file_name().to_string_lossy(), this) {
            remove_directory(&entry.path())?;
        }
    }
    Ok(())
}

/// Fails unless it is gone then.
fn remove_directory(path: &Path) -> io::Result<()> {
    fs::remove_dir_all(path).or_else(|error| match error.kind() {
        ErrorKind::NotFound => Ok(()),
        _ => Err(error),
    })
}

/// Whether it is such a name as [`inputs`] gives, and not this one.
fn is_another(file: &str, this: &str) -> bool {
    file != this && file.len() == this.len() && file.chars().all(|c| c.is_ascii_hexdigit())
}

/// Runs the benchmarks with a program that counts where it goes, and merges what it has counted.
fn train(directory: &Path, compiler: &Compiler) -> Outcome<PathBuf> {
    let merger = tools::profile_merger(compiler)?;
    let (counts, merged) = (directory.join("counts"), directory.join("merged.part"));
    // Those of another program cannot be merged with the new ones.
    remove_directory(&counts).map_err(|error| in_the_way(&counts, error))?;
    let counting = directory.join("counting");
    let trained = compile(&counting, compiler, "profile-generate", &counts)?;
    for arguments in TRAINING {
        let mut bench = process::cargo(&["run", "--locked", "--release", "--quiet"]);
        bench.args(["-p", "unbroken-bench", "--"]).args(arguments);
        bench.env("UNBROKEN_BIN", &trained);
        // Peers teach it nothing, and would be looked for; the other says where counts go.
        for name in ["UNBROKEN_REQUIRE_TOOLS", "LLVM_PROFILE_FILE"] {
            bench.env_remove(name);
        }
        process::quiet(&mut bench)?;
    }
    // A broker that was killed while it wrote has left a file that nobody can read.
    let mut merge = Command::new(&merger);
    merge.args(["merge", "--failure-mode=all", "-o"]);
    process::quiet(merge.arg(&merged).arg(&counts))?;
    let shown = process::quiet(Command::new(&merger).arg("show").arg(&merged))?;
    match total(&shown) {
        Some(total) if total >= COUNTS_MIN => Ok(merged),
        _ => Err(format!(
            "the training has counted less than {COUNTS_MIN}:\n{shown}"
        )),
    }
}

/// All that was counted, out of what `llvm-profdata show` says.
fn total(shown: &str) -> Option<u64> {
    let mut lines = shown.lines();
    let total = lines.find_map(|line| line.strip_prefix("Total count:"))?;
    total.trim().parse().ok()
}

/// Builds it in this directory with a flag that names a path, and says where it is then. The flag
/// is for the program alone: with a target named, what runs during the build has none of it.
fn compile(directory: &Path, compiler: &Compiler, flag: &str, path: &Path) -> Outcome<PathBuf> {
    let mut build = process::cargo(&["build", "--locked", "--profile", "dist", "--quiet"]);
    build.args(["-p", "unbroken", "--target", &compiler.host]);
    build.arg("--target-dir").arg(directory);
    let flag = format!("-C{flag}={}", path.display());
    let variable = |name| env::var(name).ok();
    match joined(variable(ENCODED), variable("RUSTFLAGS"), &flag) {
        Some(flags) => build.env(ENCODED, flags),
        // What a configuration file says of this target stays so.
        None => build.args(["--config", &configured(&compiler.host, &flag)]),
    };
    process::stream(&mut build, |_| {})?;
    Ok(directory.join(&compiler.host).join("dist/unbroken"))
}

/// Flags with this character between them, so that there may be spaces in one.
const ENCODED: &str = "CARGO_ENCODED_RUSTFLAGS";
const BETWEEN: &str = "\x1f";

/// The flags in these two variables, of which cargo takes the first that is there, and one more;
/// none if there is neither.
fn joined(encoded: Option<String>, plain: Option<String>, flag: &str) -> Option<String> {
    let split = |plain: String| plain.split_whitespace().collect::<Vec<_>>().join(BETWEEN);
    let flags = encoded.or_else(|| plain.map(split))?;
    Some(match flags.as_str() {
        "" => flag.to_owned(),
        flags => [flags, flag].join(BETWEEN),
    })
}

fn configured(host: &str, flag: &str) -> String {
    let flag = toml::Value::from(flag);
    format!("target.{host}.rustflags=[{flag}]")
}

/// What is looked at to see whether a profile is of these sources, as a name for it.
fn inputs(compiler: &Compiler) -> Outcome<String> {
    let mut cargo = process::cargo(&["tree", "--locked", "--color", "never"]);
    cargo.args(["--edges", "normal,build"]);
    cargo.args(["--prefix", "none", "--format", "{p} {f}"]);
    let packages = process::quiet(cargo.args(["-p", "unbroken", "-p", "unbroken-bench"]))?;
    hash(compiler, &packages, &tree::root(), &tree::read()?)
}

/// `packages` has a line for each, and for one of ours where it lies, in brackets.
fn hash(compiler: &Compiler, packages: &str, root: &Path, files: &[File]) -> Outcome<String> {
    let notes = packages.split('(').filter_map(|rest| rest.split_once(')'));
    let ours = notes.filter_map(|(note, _)| Path::new(note).strip_prefix(root).ok());
    let ours: Vec<_> = ours
        .flat_map(|package| COMPILED.map(|part| package.join(part)))
        .collect();
    if ours.is_empty() {
        let root = root.display();
        return Err(format!(
            "no package lies under {root}, says cargo:\n{packages}"
        ));
    }
    let is_compiled = |file: &&File| {
        let path = Path::new(&file.path);
        file.path == "Cargo.toml" || ours.iter().any(|part| path.starts_with(part))
    };
    let mut hasher = DefaultHasher::new();
    let packages = packages.replace(&*root.to_string_lossy(), "");
    (&compiler.told, packages, TRAINING).hash(&mut hasher);
    for file in files.iter().filter(is_compiled) {
        (&file.path, &file.text).hash(&mut hasher);
    }
    Ok(format!("{:016x}", hasher.finish()))
}

/// What of a package is in the program.
const COMPILED: [&str; 3] = ["src", "build.rs", "Cargo.toml"];

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
        let packages = "unbroken v0.1.0 (/here/crates/cli) \nserde_derive v1.0.1 (proc-macro) default\n\
                        our-macros v0.1.0 (proc-macro) (/here/crates/macros) \n\
                        unbroken-broker v0.1.0 (/here/crates/broker) (*)\n";
        let of = |compiler: &Compiler, packages: &str, files: &[File]| {
            hash(compiler, packages, Path::new("/here"), files).expect("there are packages")
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
            ("crates/macros/build.rs", "", true),
            ("Cargo.toml", "[profile.dist]", true),
            ("crates/broker/tests/new.rs", "", false),
            ("crates/broker-of-others/src/lib.rs", "", false),
            ("xtask/src/dist.rs", "", false),
        ] {
            let files = [ours[0].clone(), File::new(path, text)];
            assert_eq!(of(&now, packages, &files) != first, is_another, "{path}");
        }
        let problem = hash(&now, packages, Path::new("/elsewhere"), &ours);
        assert!(problem.is_err_and(|problem| problem.contains("/elsewhere")));
    }

    #[test]
    fn the_sources_of_this_program_are_found() {
        let compiler = Compiler::here().expect("there is a compiler");
        let name = inputs(&compiler).expect("cargo knows its packages");
        assert!(is_another(&name, "0000000000000000"), "{name}");
        assert!(!is_another(&name, &name) && !is_another("counting", &name));
    }

    #[test]
    fn flags_of_the_environment_stay_before_ours() {
        let text = |text: &str| Some(text.to_owned());
        for (encoded, plain, expected) in [
            (None, None, None),
            (None, text(""), text("-Cours")),
            (None, text(" -Ca  -Cb"), text("-Ca\u{1f}-Cb\u{1f}-Cours")),
            (
                text("-Cof this"),
                text("-Ca"),
                text("-Cof this\u{1f}-Cours"),
            ),
        ] {
            assert_eq!(joined(encoded, plain, "-Cours"), expected);
        }
        let config = configured("x86_64-unknown-linux-gnu", "-Cprofile-use=/a b/c");
        let told: toml::Table = config.parse().expect("is a line of TOML");
        assert_eq!(
            told["target"]["x86_64-unknown-linux-gnu"]["rustflags"][0].as_str(),
            Some("-Cprofile-use=/a b/c")
        );
    }

    #[test]
    fn what_was_counted_is_read() {
        let shown = "Total functions: 2\nTotal count: 15353\n";
        assert_eq!(total(shown), Some(15_353));
        assert_eq!(total("Total functions: 2\n"), None);
    }

    #[test]
    fn the_program_takes_the_place_of_another_and_leaves_its_other_name_alone() {
        let directory = tempfile::tempdir().expect("a directory");
        let [new, old, other] =
            ["new", "dist/old", "other"].map(|name| directory.path().join(name));
        fs::write(&new, "new").expect("can be written");
        put(&new, &old).expect("into a directory that was not there");
        fs::write(&new, "newer").expect("can be written");
        fs::hard_link(&old, &other).expect("a second name");
        put(&new, &old).expect("over another");
        let read = |path| fs::read_to_string(path).expect("can be read");
        assert_eq!((read(&old), read(&other)), ("newer".into(), "new".into()));
    }

    #[test]
    fn the_program_is_stripped_and_its_symbols_are_beside_it() {
        let directory = tempfile::tempdir().expect("a directory");
        let to = directory.path().join("dist/program");
        // This test is a program with symbols, and larger than what is put there may be.
        let from = directory.path().join("from");
        let (source, name) = (
            directory.path().join("main.rs"),
            "a_function_of_the_program",
        );
        fs::write(
            &source,
            format!("#[inline(never)] fn {name}() {{}} fn main() {{ {name}(); }}"),
        )
        .expect("written");
        let mut compiler = Command::new(env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned()));
        compiler
            .args(["--edition", "2024", "-g", "-o"])
            .args([&from, &source]);
        process::quiet(&mut compiler).expect("it compiles");
        put_stripped(&from, &to).expect("there is objcopy");
        let has_name = |path: &Path| {
            let content = fs::read(path).expect("it is there");
            content
                .windows(name.len())
                .any(|part| part == name.as_bytes())
        };
        assert!(has_name(&from) && has_name(&to.with_extension("debug")) && !has_name(&to));
        let left = fs::read_dir(to.parent().expect("a directory"))
            .expect("can be read")
            .count();
        assert_eq!(left, 2, "the program and its symbols");
        process::quiet(&mut Command::new(&to)).expect("it runs");
    }

    #[test]
    fn programs_of_other_profiles_go_and_profiles_stay() {
        let directory = tempfile::tempdir().expect("a directory");
        let [this, that] = ["0123456789abcdef", "fedcba9876543210"];
        for name in [this, that, "counting"] {
            fs::create_dir(directory.path().join(name)).expect("can be made");
        }
        fs::write(directory.path().join(that).with_extension("profdata"), "").expect("written");
        forget_others(directory.path(), this).expect("can be removed");
        let there = |name: &str| directory.path().join(name).exists();
        assert!(there(this) && there("counting") && there("fedcba9876543210.profdata"));
        assert!(!there(that));
        remove_directory(&directory.path().join(that)).expect("what is gone is gone");
    }
}
