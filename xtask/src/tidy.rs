//! `cargo xtask tidy`: the rules of the repository that no compiler checks.
//!
//! A rule is a function from the file tree (or from what cargo knows of the packages) to the places
//! that break it. Each has a test that sees it fail. A rule never changes a file.

mod documents;
mod layers;
mod manifests;
mod sources;
mod structure;

use crate::{Outcome, process, tree};
use tree::File;

/// How many rules there are; each counts as one test in `ci`.
pub(crate) const RULES: usize = 17;

pub(crate) fn run() -> Outcome {
    let files = tree::read()?;
    let mut cargo = process::cargo(&["metadata", "--format-version=1", "--no-deps"]);
    let packages = layers::packages(&process::quiet(&mut cargo)?)?;
    let known = structure::Known::read(&files)?;
    let rules: [(&str, Vec<String>); RULES] = [
        (
            "crates depend only on rows above their own",
            layers::order(&packages),
        ),
        (
            "the broker cannot read sealed payloads",
            layers::sealed(&packages),
        ),
        (
            "comments fit in 100 columns",
            sources::long_comments(&files),
        ),
        (
            "functions have at most 80 lines",
            structure::long_functions(&files, &known),
        ),
        (
            "files have at most 600 lines",
            structure::long_files(&files, &known),
        ),
        (
            "modules of a crate do not import each other",
            structure::circles(&files, &known),
        ),
        (
            "lines of documents fit in 120 columns",
            documents::long_lines(&files),
        ),
        (
            "links lead to files, and the book lists its pages",
            documents::broken_links(&files),
        ),
        ("nothing is left over", sources::leftovers(&files)),
        (
            "ignored tests say why",
            sources::ignored_without_reason(&files),
        ),
        (
            "nothing is called utils or common",
            sources::catch_alls(&files),
        ),
        ("files say what they are", sources::headless(&files)),
        (
            "no package registry is named",
            manifests::registries(&files),
        ),
        (
            "dependencies say why they are there",
            manifests::uncommented(&files),
        ),
        ("documents have a title", documents::untitled(&files)),
        (
            "the licences are there",
            documents::missing_licences(&files),
        ),
        (
            "scenario names are unique",
            documents::repeated_scenarios(&files),
        ),
    ];
    report(&rules)
}

fn report(rules: &[(&str, Vec<String>)]) -> Outcome {
    let mut broken = 0;
    for (rule, problems) in rules {
        if problems.is_empty() {
            continue;
        }
        broken += 1;
        println!("{rule}:");
        for problem in problems {
            println!("  {problem}");
        }
    }
    match broken {
        0 => Ok(()),
        _ => Err(format!("{broken} of {RULES} rules are broken")),
    }
}

/// Each line of these files that the check has words for, as `path:line: words`.
fn lines<'a>(
    files: impl Iterator<Item = &'a File>,
    check: impl Fn(&str) -> Option<String>,
) -> Vec<String> {
    let mut problems = Vec::new();
    for file in files {
        for (number, line) in (1..).zip(file.text.lines()) {
            if let Some(words) = check(line) {
                problems.push(format!("{}:{number}: {words}", file.path));
            }
        }
    }
    problems
}

fn rust(files: &[File]) -> impl Iterator<Item = &File> {
    files.iter().filter(|file| file.has_extension("rs"))
}

/// Asserts that a rule finds nothing in the first file and exactly one place in the second.
#[cfg(test)]
fn check(rule: impl Fn(&[File]) -> Vec<String>, good: File, bad: File) {
    assert_eq!(rule(&[good]), Vec::<String>::new(), "must pass");
    let problems = rule(std::slice::from_ref(&bad));
    assert_eq!(problems.len(), 1, "must fail once: {problems:?}");
}
