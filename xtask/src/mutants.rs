//! `cargo xtask mutants`: whether tests notice each small change to the proof's ledger and lanes.
//!
//! cargo-mutants makes the changes, one at a time, and runs the tests of `merkle-log` on each. A
//! change that no test notices survives. Each survivor is in a list in the repository with the
//! reason why it may; one that is not there, and an entry that nothing survives for, are failures.
//! A change that makes a test run without end is noticed. Files that the list leaves out count as
//! skipped, unless they are named.
//!
//! `--since COMMIT` tries only changes to lines that differ from that commit, which takes minutes
//! where all of them take hours; an entry that nothing survives for is then not looked for.
//!
//! An entry names the change and the text of the line, and no number of a line, so it stays right
//! when the file changes elsewhere.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;

use crate::tools::Tools;
use crate::{Outcome, process, tree};

const PACKAGE: &str = "unbroken-merkle-log";
const SOURCES: &str = "crates/merkle-log/src";
const SURVIVORS: &str = "crates/merkle-log/mutants.txt";

/// What is changed, in `SOURCES`.
const CHANGED: [&str; 4] = ["ledger.rs", "ledger/**", "lane.rs", "lane/**"];

/// Integration tests beside those of the library: the quick ones that have a ledger.
const TESTS: [&str; 7] = [
    "conformance",
    "group",
    "in_time",
    "ledger",
    "memory",
    "pipeline",
    "versions",
];

/// The tests take three seconds when they have a core.
const TEST_SECONDS: &str = "30";

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Only these files of the ledger and the lanes, such as `ledger/gaps.rs`
    files: Vec<String>,
    /// Only lines that differ from this commit
    #[arg(long, value_name = "COMMIT")]
    since: Option<String>,
    /// How many changes at once [default: one for two cores]
    #[arg(long)]
    jobs: Option<usize>,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let tools = Tools::locate();
    if !tools.install_cargo_mutants()? {
        println!("1 test (1 skipped)");
        return Ok(());
    }
    let list = fs::read_to_string(tree::root().join(SURVIVORS))
        .map_err(|error| format!("cannot read {SURVIVORS}: {error}"))?;
    let mut explained = Explained::read(&list)?;
    if !arguments.files.is_empty() {
        explained.choose(&arguments.files);
    }
    let found = Found::by(&tools, arguments, &explained)?;
    let mut problems = found.unexplained(&explained);
    if arguments.since.is_none() {
        problems.extend(found.stale(&explained));
    }
    let tests = found.noticed + found.survivors.len();
    let (failed, skipped) = (problems.len(), explained.left_out.len());
    println!(
        "{} changes survive, {} are explained in {SURVIVORS}, {skipped} files are left out",
        found.survivors.len(),
        explained.mutants.len()
    );
    let passed = tests.saturating_sub(failed);
    println!("{tests} tests ({passed} passed, {failed} failed, {skipped} skipped)");
    if problems.is_empty() {
        return Ok(());
    }
    Err(problems.join("\n"))
}

/// A change that no test notices.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Mutant {
    /// In `SOURCES`.
    file: String,
    /// As cargo-mutants describes it, without its place.
    change: String,
    /// The line that it is in, without its indentation.
    line: String,
}

/// The list in the repository.
#[derive(Debug, Default, PartialEq, Eq)]
struct Explained {
    mutants: BTreeSet<Mutant>,
    /// Files of which no change is tried.
    left_out: BTreeSet<String>,
}

/// What cargo-mutants found.
#[derive(Debug, Default)]
struct Found {
    survivors: BTreeSet<Mutant>,
    /// Changes that a test notices.
    noticed: usize,
}

impl Explained {
    /// Entries with an empty line between them: `file: change`, the text of the line, and the
    /// reason in one line or more; or a file that is left out, and the reason. Lines with `#` are
    /// comments.
    fn read(text: &str) -> Outcome<Self> {
        let mut explained = Self::default();
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let lines: Vec<_> = lines.map(str::trim).collect();
        let blocks = lines.split(|line| line.is_empty());
        for block in blocks.filter(|block| !block.is_empty()) {
            let head = block[0];
            let wrong = |why: &str| Err(format!("{SURVIVORS}: {head:?} {why}"));
            let is_new = match (head.split_once(": "), block) {
                (Some((file, change)), [_, line, _, ..]) => {
                    let [file, change, line] = [file, change, line].map(str::to_owned);
                    explained.mutants.insert(Mutant { file, change, line })
                }
                (None, [_, _, ..]) => explained.left_out.insert(head.to_owned()),
                _ => return wrong("has no reason"),
            };
            if !is_new {
                return wrong("is there twice");
            }
        }
        Ok(explained)
    }

    /// Goes by these files alone.
    fn choose(&mut self, files: &[String]) {
        self.mutants.retain(|its| files.contains(&its.file));
        self.left_out.clear();
    }
}

impl Found {
    fn by(tools: &Tools, arguments: &Arguments, explained: &Explained) -> Outcome<Self> {
        let output = tree::target_directory().join("mutants");
        fs::create_dir_all(&output)
            .map_err(|error| format!("cannot create {}: {error}", output.display()))?;
        let lists = output.join("mutants.out");
        // An earlier run's, which this one leaves alone when it has nothing to change.
        let _ = fs::remove_dir_all(&lists);
        let mut command = cargo_mutants(tools, arguments);
        if let Some(commit) = &arguments.since {
            let diff = changes_since(commit)?;
            if diff.is_empty() {
                println!("{SOURCES} is as it was at {commit}");
                return Ok(Self::default());
            }
            let file = output.join("since.diff");
            fs::write(&file, diff)
                .map_err(|error| format!("cannot write {}: {error}", file.display()))?;
            command.arg("--in-diff").arg(file);
        }
        for file in &explained.left_out {
            command.arg("--exclude").arg(format!("{SOURCES}/{file}"));
        }
        command.arg("--output").arg(&output);
        command.args(["--", "--lib"]);
        command.args(TESTS.iter().flat_map(|test| ["--test", test]));
        let status = command
            .status()
            .map_err(|error| format!("cargo-mutants does not start: {error}"))?;
        // 2: some survive; 3: tests did not end.
        if !matches!(status.code(), Some(0 | 2 | 3)) {
            return Err(format!("{} failed: {status}", process::shown(&command)));
        }
        if status.success() && !lists.exists() {
            return Ok(Self::default());
        }
        Self::told(&lists)
    }

    /// Reads the lists that cargo-mutants writes, a change a line.
    fn told(directory: &Path) -> Outcome<Self> {
        let list = |name: &str| {
            let path = directory.join(name);
            fs::read_to_string(&path)
                .map_err(|error| format!("cannot read {}: {error}", path.display()))
        };
        let mut found = Self::default();
        for name in list("missed.txt")?.lines() {
            found.survivors.insert(Mutant::named(name, |file| {
                fs::read_to_string(tree::root().join(file))
                    .map_err(|error| format!("cannot read {file}: {error}"))
            })?);
        }
        found.noticed = list("caught.txt")?.lines().count() + list("timeout.txt")?.lines().count();
        Ok(found)
    }

    /// Survivors that the list gives no reason for.
    fn unexplained(&self, explained: &Explained) -> Vec<String> {
        let new = self.survivors.difference(&explained.mutants);
        new.map(|mutant| format!("no test notices this, and no reason is given: {mutant}"))
            .collect()
    }

    /// Entries of the list that nothing survives for, when all changes were tried.
    fn stale(&self, explained: &Explained) -> Vec<String> {
        let stale = explained.mutants.difference(&self.survivors);
        stale
            .map(|mutant| format!("{SURVIVORS} explains what does not survive: {mutant}"))
            .collect()
    }
}

impl Mutant {
    /// `crates/…/lane.rs:154:9: replace …`, as cargo-mutants writes it.
    fn named(name: &str, source: impl FnOnce(&str) -> Outcome<String>) -> Outcome<Self> {
        let unknown = || format!("cargo-mutants names a change {name:?}, which has another form");
        let (place, change) = name.split_once(": ").ok_or_else(unknown)?;
        let mut place = place.split(':');
        let (Some(path), Some(line), Some(_), None) =
            (place.next(), place.next(), place.next(), place.next())
        else {
            return Err(unknown());
        };
        let file = path
            .strip_prefix(SOURCES)
            .and_then(|file| file.strip_prefix('/'));
        let file = file.ok_or_else(unknown)?;
        let number: usize = line.parse().map_err(|_| unknown())?;
        let text = source(path)?;
        let line = number
            .checked_sub(1)
            .and_then(|index| text.lines().nth(index));
        let line = line.ok_or_else(|| format!("{path} has no line {number}"))?;
        Ok(Self {
            file: file.to_owned(),
            change: change.to_owned(),
            line: line.trim().to_owned(),
        })
    }
}

/// As an entry of the list.
impl std::fmt::Display for Mutant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { file, change, line } = self;
        write!(f, "\n{file}: {change}\n    {line}")
    }
}

/// What differs in `SOURCES` from this commit, as a patch.
fn changes_since(commit: &str) -> Outcome<String> {
    let mut git = Command::new("git");
    git.args(["diff", "--no-ext-diff", "--no-color", commit, "--"]);
    process::quiet(git.arg(SOURCES).current_dir(tree::root()))
}

/// In copies of the repository, which have target directories of their own.
fn cargo_mutants(tools: &Tools, arguments: &Arguments) -> Command {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let jobs = arguments.jobs.unwrap_or(cores / 2).max(1);
    let mut command = process::program(&tools.cargo_mutants());
    command
        .args(["mutants", "--package", PACKAGE, "--test-tool", "cargo"])
        .args(["--no-config", "--no-shuffle", "--colors", "never"])
        .args(["--timeout", TEST_SECONDS, "--cargo-arg=--locked"])
        .args(["--jobs", &jobs.to_string()]);
    let chosen: Vec<&str> = if arguments.files.is_empty() {
        CHANGED.to_vec()
    } else {
        arguments.files.iter().map(String::as_str).collect()
    };
    for file in chosen {
        command.arg("--file").arg(format!("{SOURCES}/{file}"));
    }
    command
        .env_remove("CARGO_TARGET_DIR")
        // No test that draws lots notices a change in one run and not in the next; and a quarter of
        // the usual cases, because those are half of the time.
        .env("PROPTEST_RNG_SEED", "1")
        .env("PROPTEST_CASES", "64")
        .env("CARGO_PROFILE_DEV_DEBUG", "0");
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "\
# A comment.

lane.rs: replace > with >= in Lane::end_window
    if size > 0 {
    The size is never 0 here,
    since a message was issued.

ledger/gaps.rs: delete ! in Gaps::close
    if !hole.is_empty() {
    Nothing comes of it.

ledger/window.rs
    Not examined yet.
";

    fn mutant(file: &str, change: &str, line: &str) -> Mutant {
        let [file, change, line] = [file, change, line].map(str::to_owned);
        Mutant { file, change, line }
    }

    fn listed() -> [Mutant; 2] {
        [
            mutant(
                "lane.rs",
                "replace > with >= in Lane::end_window",
                "if size > 0 {",
            ),
            mutant(
                "ledger/gaps.rs",
                "delete ! in Gaps::close",
                "if !hole.is_empty() {",
            ),
        ]
    }

    #[test]
    fn the_list_is_read_and_each_entry_needs_a_line_and_a_reason() {
        let mut explained = Explained::read(LIST).expect("the list is whole");
        assert_eq!(explained.mutants, BTreeSet::from(listed()));
        let left_out = BTreeSet::from(["ledger/window.rs".to_owned()]);
        assert_eq!(explained.left_out, left_out);
        explained.choose(&["lane.rs".to_owned(), "ledger/window.rs".to_owned()]);
        let [first, _] = listed();
        assert_eq!(explained.mutants, BTreeSet::from([first]));
        assert_eq!(explained.left_out, BTreeSet::new());
        for (bad, why) in [
            ("lane.rs: a", "has no reason"),
            ("lane.rs: a\nline", "has no reason"),
            ("lane.rs", "has no reason"),
            ("a: b\nl\nr\n\na: b\nl\nother", "is there twice"),
            ("a\nr\n\na\nr", "is there twice"),
        ] {
            let problem = Explained::read(bad).expect_err("it is not whole");
            assert!(problem.contains(why), "{problem}");
        }
    }

    #[test]
    fn a_survivor_without_a_reason_and_a_reason_without_a_survivor_are_problems() {
        let explained = Explained::read(LIST).expect("the list is whole");
        let mut found = Found {
            survivors: BTreeSet::from(listed()),
            noticed: 3,
        };
        assert!(found.unexplained(&explained).is_empty());
        assert!(found.stale(&explained).is_empty());
        let [first, second] = listed();
        found.survivors.remove(&second);
        found
            .survivors
            .insert(mutant("lane.rs", "other", "if size > 0 {"));
        let unexplained = found.unexplained(&explained);
        assert_eq!(unexplained.len(), 1, "{unexplained:?}");
        assert!(
            unexplained[0].contains("no test notices this") && unexplained[0].contains("other")
        );
        let stale = found.stale(&explained);
        assert_eq!(stale.len(), 1, "{stale:?}");
        assert!(stale[0].contains("does not survive") && stale[0].contains("Gaps::close"));
        assert!(!stale[0].contains(&first.change) && !unexplained[0].contains(&first.change));
    }

    #[test]
    fn a_change_is_known_by_the_text_of_its_line() {
        let source = |path: &str| {
            assert_eq!(path, "crates/merkle-log/src/lane.rs");
            Ok("fn a() {\n    if size > 0 {\n".to_owned())
        };
        let change = "replace > with >= in Lane::end_window";
        let name = format!("crates/merkle-log/src/lane.rs:2:13: {change}");
        let expect = mutant("lane.rs", change, "if size > 0 {");
        assert_eq!(Mutant::named(&name, source), Ok(expect));
        for bad in [
            "crates/merkle-log/src/lane.rs:9:13: replace",
            "crates/merkle-log/src/lane.rs:2: replace",
            "crates/store/src/lane.rs:2:13: replace",
        ] {
            let read = Mutant::named(bad, |_| Ok(String::new()));
            assert!(read.is_err(), "{bad}");
        }
    }
}
