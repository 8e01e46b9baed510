//! Tells the binary of which commit it is and whether a profile has guided the compiler, so that
//! who measures one knows what was measured.
//!
//! Invariant: what is told is of the files that are in the binary; a change to anything else builds
//! nothing anew. Where there is no checkout of ours, as in a package, no commit is told, and it is
//! asked for each time: there may be one by then, or git may have failed once.

use std::{env, path::Path, process::Command};

/// The crates that are in the binary.
const CRATES: [&str; 14] = [
    "broker",
    "broker-core",
    "cli",
    "client",
    "demo",
    "hash-ring",
    "load",
    "merkle-log",
    "mqtt-proto",
    "persist",
    "session-channels",
    "session-channels-macros",
    "store",
    "terminal",
];

/// A path at which nothing is: who watches it runs each time.
const NOWHERE: &str = "no-such-file";

fn main() {
    let version = env::var("CARGO_PKG_VERSION").unwrap_or_default();
    let commit = commit();
    if commit.is_none() {
        println!("cargo::rerun-if-changed={NOWHERE}");
    }
    let facts: Vec<_> = commit.into_iter().chain(guided()).collect();
    let told = match facts.as_slice() {
        [] => version,
        facts => format!("{version} ({})", facts.join(", ")),
    };
    println!("cargo::rustc-env=UNBROKEN_VERSION={told}");
    println!("cargo::rerun-if-changed=build.rs");
}

/// The commit of this checkout, and whether something that is in the binary differs from it.
fn commit() -> Option<String> {
    // Sources that lie in somebody else's repository have no commit there.
    git(&["ls-files", "--error-unmatch", "build.rs"])?;
    // The log grows with every commit, and whenever another is checked out; where none is kept, the
    // head alone tells of the latter.
    let log = git(&["rev-parse", "--git-path", "logs/HEAD"])?;
    let head = git(&["rev-parse", "--git-path", "HEAD"])?;
    let mut files: Vec<_> = CRATES.map(|name| format!("../{name}/src")).into();
    files.extend(["Cargo.toml", "Cargo.lock"].map(|name| format!("../../{name}")));
    for path in files.iter().chain([&log, &head]) {
        // Without one of them it would be built anew each time.
        if Path::new(path).exists() {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
    let mut status = vec!["status", "--porcelain", "--untracked-files=no", "--"];
    status.extend(files.iter().map(String::as_str));
    let with = if git(&status)?.is_empty() {
        ""
    } else {
        " with changes"
    };
    Some(format!("commit {commit}{with}"))
}

/// Where a profile has guided the compiler. With other flags cargo runs this once more.
fn guided() -> Option<String> {
    let flags = env::var("CARGO_ENCODED_RUSTFLAGS").ok()?;
    let is_guided = flags.contains("profile-use=");
    is_guided.then(|| "profile-guided".to_owned())
}

/// What git says in this directory, if it is there and content. It takes no lock, so that it is in
/// the way of nobody who works here meanwhile.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git")
        .arg("--no-optional-locks")
        .args(arguments)
        .output()
        .ok()?;
    let said = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| said.trim().to_owned())
}
