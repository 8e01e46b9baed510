//! Rules about documents, licences and features.

use std::collections::{BTreeMap, BTreeSet};

use super::File;
use crate::spec::scenario_name;

const COLUMNS: usize = 120;
/// Names that are no text, and so not among the files.
const PICTURES: [&str; 2] = [".png", ".gif"];

pub(super) fn untitled(files: &[File]) -> Vec<String> {
    files
        .iter()
        .filter(|file| file.has_extension("md") && !file.text.starts_with("# "))
        .map(|file| format!("{} does not begin with a title", file.path))
        .collect()
}

/// Tables, code and single commands are as wide as they are, and test data is as it came.
pub(super) fn long_lines(files: &[File]) -> Vec<String> {
    let mut problems = Vec::new();
    let documents = files.iter().filter(|file| file.has_extension("md"));
    for file in documents.filter(|file| !file.path.contains("/testdata/")) {
        let mut is_code = false;
        for (number, line) in (1..).zip(file.text.lines()) {
            is_code ^= line.trim_start().starts_with("```");
            let columns = line.chars().count();
            let is_wide = line.trim_start().starts_with(['|', '`']);
            if columns > COLUMNS && !is_code && !is_wide {
                problems.push(format!("{}:{number}: {columns} columns", file.path));
            }
        }
    }
    problems
}

/// Links between documents lead to files that exist, and every page of the book is in its summary.
pub(super) fn broken_links(files: &[File]) -> Vec<String> {
    const SUMMARY: &str = "docs/SUMMARY.md";
    let paths: BTreeSet<&str> = files.iter().map(|file| &*file.path).collect();
    let exists = |path: &str| {
        let folder = format!("{path}/");
        paths.contains(path) || paths.iter().any(|known| known.starts_with(&folder))
    };
    let mut problems = Vec::new();
    let mut listed = BTreeSet::new();
    for file in files.iter().filter(|file| file.has_extension("md")) {
        for (number, target) in links(&file.text) {
            let path = resolve(&file.path, target);
            if !exists(&path) && !PICTURES.iter().any(|ending| path.ends_with(ending)) {
                problems.push(format!("{}:{number}: {target} does not exist", file.path));
            }
            if file.path == SUMMARY {
                listed.insert(path);
            }
        }
    }
    for page in files.iter().filter(|file| file.has_extension("md")) {
        let is_page = page.path.starts_with("docs/") && page.path != SUMMARY;
        if is_page && !listed.contains(&page.path) {
            problems.push(format!("{} is not in {SUMMARY}", page.path));
        }
    }
    problems
}

/// Targets of links to other files, without what stands behind `#`, and their lines.
fn links(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut is_code = false;
    for (number, line) in (1..).zip(text.lines()) {
        is_code ^= line.trim_start().starts_with("```");
        // Every second part stands between backticks.
        let words = line.split('`').step_by(2).filter(|_| !is_code);
        for (at, part) in
            words.flat_map(|part| part.match_indices("](").map(move |(at, _)| (at, part)))
        {
            let target = &part[at + 2..];
            let target = target.split([')', '#', ' ']).next().unwrap_or("");
            if !target.is_empty() && !target.contains(':') {
                found.push((number, target));
            }
        }
    }
    found
}

fn resolve(from: &str, target: &str) -> String {
    let mut parts: Vec<_> = from.split('/').collect();
    parts.pop();
    for part in target.trim_end_matches('/').split('/') {
        match part {
            "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

pub(super) fn missing_licences(files: &[File]) -> Vec<String> {
    ["LICENSE-APACHE", "LICENSE-MIT"]
        .iter()
        .filter(|name| !files.iter().any(|file| file.path == **name))
        .map(|name| format!("{name} is missing"))
        .collect()
}

/// A scenario is found by its name, in reports and in the coverage tables.
pub(super) fn repeated_scenarios(files: &[File]) -> Vec<String> {
    let mut first: BTreeMap<&str, &str> = BTreeMap::new();
    let mut problems = Vec::new();
    for file in files.iter().filter(|file| file.has_extension("feature")) {
        for name in file.text.lines().filter_map(scenario_name) {
            if let Some(earlier) = first.insert(name, &file.path) {
                problems.push(format!("{}: {name:?} is also in {earlier}", file.path));
            }
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::check;

    #[test]
    fn a_document_without_title_is_found() {
        let document = |text| File::new("docs/a.md", text);
        check(untitled, document("# Title\n"), document("Text\n"));
    }

    #[test]
    fn a_line_of_121_columns_is_found_outside_of_tables_and_code() {
        let document = |text: &str| File::new("docs/a.md", text);
        let (fits, long) = ("é".repeat(120), "é".repeat(121));
        let text = format!("{fits}\n| {long}\n```text\n{long}\n```\n");
        check(
            long_lines,
            document(&text),
            document(&format!("{text}{long}\n")),
        );
    }

    #[test]
    fn a_link_to_nothing_and_a_page_that_is_not_listed_are_found() {
        let file = |path: &str, text: &str| File::new(path, text);
        let page = |text: &str| {
            let page = file("docs/a.md", text);
            let summary = file("docs/SUMMARY.md", "[A](a.md)");
            let source = file("crates/b/c.rs", "");
            broken_links(&[page, summary, source])
        };
        for good in [
            "[b](../crates/b/c.rs#L1) and [folder](../crates/b)",
            "[elsewhere](mail:a) [here](#there) `[code](b.md)`",
            "```text\n[code](b.md)\n```",
        ] {
            assert_eq!(page(good), Vec::<String>::new());
        }
        assert_eq!(page("[gone](b.md)").len(), 1);
        let unlisted = [file("docs/a.md", ""), file("docs/SUMMARY.md", "")];
        assert_eq!(broken_links(&unlisted).len(), 1);
    }

    #[test]
    fn a_missing_licence_is_found() {
        let apache = File::new("LICENSE-APACHE", "");
        let both = [apache.clone(), File::new("LICENSE-MIT", "")];
        assert_eq!(missing_licences(&both), Vec::<String>::new());
        assert_eq!(missing_licences(&[apache]).len(), 1);
    }

    #[test]
    fn two_scenarios_of_one_name_are_found() {
        let feature = |text| File::new("features/a.feature", text);
        check(
            repeated_scenarios,
            feature("  Scenario: One\n  Scenario Outline: Two\n"),
            feature("  Scenario: One\n  Scenario Outline: One\n"),
        );
    }
}
