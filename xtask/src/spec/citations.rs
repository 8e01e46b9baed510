//! Who cites which statement: code enforces it, tests show it.
//!
//! The sources are read line by line, without a parser, and rely on `rustfmt`: an item that begins
//! at some indentation ends at the first line that is that indentation and a closing brace. What
//! only the tests compile (`tests/`, `#[cfg(test)]` modules in place or in a file of their own, the
//! development crates) never counts as enforcing anything.

use std::collections::{BTreeMap, BTreeSet};

use super::statements::{Id, Statement};
use crate::Outcome;
use crate::tree::File;

/// Crates that exist to test the others.
const DEVELOPMENT: [&str; 4] = ["acceptance", "bench", "simulator", "workloads"];

/// All citations of the repository.
#[derive(Debug, Default)]
pub(super) struct Citations {
    enforced: BTreeMap<Id, BTreeSet<String>>,
    tested: BTreeMap<Id, BTreeSet<String>>,
    /// Everywhere, for naming the place of a wrong one.
    places: BTreeMap<Id, BTreeSet<String>>,
}

impl Citations {
    /// Adds what the lists say themselves of where statements are enforced. Lists come in the order
    /// in which they refer to each other.
    pub(super) fn add_listed(&mut self, statements: &[Statement]) {
        for Statement {
            id,
            enforced,
            same_as,
            ..
        } in statements
        {
            let mut paths: Vec<_> = enforced.clone();
            for other in same_as {
                paths.extend(self.enforced.get(other).into_iter().flatten().cloned());
            }
            for path in paths {
                self.by_code([id.clone()].into_iter(), &path);
            }
        }
    }

    /// The files that enforce it, in order.
    pub(super) fn enforced(&self, id: &Id) -> Option<&BTreeSet<String>> {
        self.enforced.get(id)
    }

    /// The tests that show it, in order.
    pub(super) fn tested(&self, id: &Id) -> Option<&BTreeSet<String>> {
        self.tested.get(id)
    }

    /// Numbers cited that are not among the known ones, with the first place that does.
    pub(super) fn unknown(&self, known: &[Id]) -> Vec<(&Id, &str)> {
        self.places
            .iter()
            .filter(|(id, _)| !known.contains(id))
            .filter_map(|(id, places)| Some((id, places.first()?.as_str())))
            .collect()
    }

    fn by_test(&mut self, ids: impl Iterator<Item = Id>, path: &str, test: &str) {
        for id in ids {
            self.tested
                .entry(id.clone())
                .or_default()
                .insert(test.to_owned());
            self.places.entry(id).or_default().insert(path.to_owned());
        }
    }

    fn by_code(&mut self, ids: impl Iterator<Item = Id>, path: &str) {
        for id in ids {
            self.enforced
                .entry(id.clone())
                .or_default()
                .insert(path.to_owned());
            self.places.entry(id).or_default().insert(path.to_owned());
        }
    }
}

/// Reads all files.
pub(super) fn collect(files: &[File]) -> Outcome<Citations> {
    let mut citations = Citations::default();
    let test_files: BTreeSet<String> = files.iter().flat_map(test_modules).collect();
    for file in files {
        let is_code = ["crates/", "dev/"]
            .iter()
            .any(|at| file.path.starts_with(at));
        if is_code && file.has_extension("rs") {
            rust(file, &test_files, &mut citations);
        } else if file.path.starts_with("features/") && file.has_extension("feature") {
            feature(file, &mut citations);
        } else if file.path.contains("/testdata/") && file.has_extension("toml") {
            rows(file, &mut citations)?;
        }
    }
    Ok(citations)
}

/// The crate a path lies in.
fn crate_of(path: &str) -> &str {
    path.split('/').nth(1).unwrap_or(path)
}

fn indentation(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// The files of modules that are declared, in this file, for tests only.
fn test_modules(file: &File) -> Vec<String> {
    let directory = match file.path.rsplit_once('/') {
        Some((directory, "lib.rs" | "main.rs" | "mod.rs")) => directory,
        _ => file.path.trim_end_matches(".rs"),
    };
    let mut found = Vec::new();
    let mut for_tests = false;
    for line in file.text.lines().map(str::trim) {
        if line.starts_with("#[cfg(") {
            // `all(test, …)` too, but not `any(test, …)`, which is compiled without tests as well.
            for_tests = line.starts_with("#[cfg(test") || line.starts_with("#[cfg(all(test");
        } else if let Some(name) = line.strip_suffix(';').and_then(module_name)
            && for_tests
        {
            found.push(format!("{directory}/{name}.rs"));
            found.push(format!("{directory}/{name}/mod.rs"));
        } else if !line.starts_with("#[") && !line.starts_with("//") {
            for_tests = false;
        }
    }
    found
}

fn module_name(line: &str) -> Option<&str> {
    let (before, name) = line.split_once("mod ")?;
    (before.is_empty() || before.starts_with("pub")).then_some(name)
}

/// Where a line of Rust lies.
enum Place {
    /// Compiled into the product.
    Code,
    /// Compiled for tests only, until a closing brace at this indentation if one is given.
    TestModule(Option<usize>),
}

fn rust(file: &File, test_files: &BTreeSet<String>, citations: &mut Citations) {
    let is_test_file = test_files.contains(&file.path)
        || DEVELOPMENT.contains(&crate_of(&file.path))
        || !file.path.contains("/src/");
    let mut place = if is_test_file {
        Place::TestModule(None)
    } else {
        Place::Code
    };
    let mut test: Option<(String, usize)> = None;
    // What stands directly above an item: its comments and attributes.
    let mut above = Above::default();
    for line in file.text.lines() {
        let trimmed = line.trim_start();
        if let Some((name, indent)) = &test {
            citations.by_test(Id::all_in(line), &file.path, name);
            if trimmed == "}" && indentation(line) == *indent {
                test = None;
            }
            continue;
        }
        if let Place::TestModule(Some(indent)) = place
            && trimmed == "}"
            && indentation(line) == indent
        {
            place = Place::Code;
        }
        if let Place::Code = place
            && let Some((_, comment)) = line.split_once("//")
        {
            citations.by_code(Id::all_in(comment), &file.path);
        }
        if trimmed.starts_with("//") || trimmed.starts_with('#') {
            above.add(trimmed);
            continue;
        }
        if trimmed.is_empty() {
            above = Above::default();
            continue;
        }
        let above = std::mem::take(&mut above);
        if let Some(name) = above.is_test.then(|| function_name(trimmed)).flatten() {
            let name = format!("{}: {name}", crate_of(&file.path));
            citations.by_test(above.ids.into_iter(), &file.path, &name);
            if !trimmed.ends_with("{}") {
                test = Some((name, indentation(line)));
            }
        } else if above.is_test_module && trimmed.ends_with('{') && matches!(place, Place::Code) {
            place = Place::TestModule(Some(indentation(line)));
        }
    }
}

#[derive(Default)]
struct Above {
    ids: Vec<Id>,
    is_test: bool,
    is_test_module: bool,
}

impl Above {
    fn add(&mut self, line: &str) {
        self.ids.extend(Id::all_in(line));
        self.is_test |= line == "#[test]" || line.starts_with("#[tokio::test");
        self.is_test_module |= line.starts_with("#[cfg(test") || line.starts_with("#[cfg(all(test");
    }
}

fn function_name(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once("fn ")?;
    rest.split(['(', '<']).next()
}

/// A scenario tests what the comments and tags above it and inside it cite.
fn feature(file: &File, citations: &mut Citations) {
    let mut above = Vec::new();
    let mut scenario: Option<String> = None;
    for line in file.text.lines().map(str::trim) {
        if line.starts_with('#') || line.starts_with('@') {
            above.extend(Id::all_in(line));
        } else if let Some(name) = scenario_name(line) {
            let name = format!("scenario: {name}");
            citations.by_test(above.drain(..), &file.path, &name);
            scenario = Some(name);
        } else if line.starts_with("Feature:") || line.starts_with("Rule:") {
            above.clear();
            scenario = None;
        } else if let Some(name) = &scenario
            && !line.is_empty()
        {
            // Citations before a step belong to the scenario the step is in.
            citations.by_test(above.drain(..), &file.path, name);
        }
    }
}

/// The name of the scenario that begins on this line.
pub(crate) fn scenario_name(line: &str) -> Option<&str> {
    let line = line.trim_start();
    [
        "Scenario:",
        "Scenario Outline:",
        "Example:",
        "Scenario Template:",
    ]
    .iter()
    .find_map(|keyword| line.strip_prefix(keyword))
    .map(str::trim)
}

/// A row of test data tests what its `statements` lists; rows are tables of any array.
fn rows(file: &File, citations: &mut Citations) -> Outcome {
    let data: toml::Table = file
        .text
        .parse()
        .map_err(|error| format!("{}: {error}", file.path))?;
    let rows = data.values().filter_map(toml::Value::as_array).flatten();
    for row in rows.filter_map(toml::Value::as_table) {
        let name = row.get("name").and_then(toml::Value::as_str);
        let statements = row.get("statements").and_then(toml::Value::as_array);
        let (Some(name), Some(statements)) = (name, statements) else {
            continue;
        };
        let name = format!("golden packet: {name}");
        for text in statements.iter().filter_map(toml::Value::as_str) {
            citations.by_test(Id::all_in(text), &file.path, &name);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scan(files: &[(&str, &str)]) -> Citations {
        let files: Vec<_> = files
            .iter()
            .map(|(path, text)| File::new(path, text))
            .collect();
        collect(&files).expect("the files can be scanned")
    }

    fn check(files: &[(&str, &str)], enforced: &[&str], tested: &[&str]) {
        let show = |map: &BTreeMap<Id, BTreeSet<String>>| -> Vec<String> {
            map.iter()
                .flat_map(|(id, names)| names.iter().map(move |name| format!("{id} {name}")))
                .collect()
        };
        let found = scan(files);
        assert_eq!(show(&found.enforced), enforced, "enforced");
        assert_eq!(show(&found.tested), tested, "tested");
    }

    #[test]
    fn comments_in_code_enforce_and_strings_do_not() {
        let text = "
            let qos = qos(bits)?; // [MQTT-3.3.1-4]
            let text = \"[MQTT-3.3.1-5]\";
        ";
        check(
            &[("crates/broker/src/publish.rs", text)],
            &["MQTT-3.3.1-4 crates/broker/src/publish.rs"],
            &[],
        );
    }

    #[test]
    fn a_test_shows_what_is_cited_above_it_and_inside_it_only() {
        let text = "\
// [MQTT-3.3.1-1]
fn enforces() {}

#[cfg(test)]
mod tests {
    /// [MQTT-3.3.1-2, MQTT-3.3.1-3]
    #[test]
    fn dup_is_clear() {
        // [MQTT-3.3.1-4]
        if true {
        }
    }

    /// [MQTT-3.3.1-5]
    fn helper() {}
}

// [MQTT-3.3.1-6]
fn enforces_too() {}
";
        check(
            &[("crates/broker/src/a.rs", text)],
            &[
                "MQTT-3.3.1-1 crates/broker/src/a.rs",
                "MQTT-3.3.1-6 crates/broker/src/a.rs",
            ],
            &[
                "MQTT-3.3.1-2 broker: dup_is_clear",
                "MQTT-3.3.1-3 broker: dup_is_clear",
                "MQTT-3.3.1-4 broker: dup_is_clear",
            ],
        );
    }

    #[test]
    fn files_that_only_tests_compile_enforce_nothing() {
        let comment = "// [MQTT-3.3.1-1]\n";
        check(
            &[
                ("crates/broker/src/index.rs", "#[cfg(test)]\nmod twin;\n"),
                ("crates/broker/src/index/twin.rs", comment),
                (
                    "crates/broker/src/lib.rs",
                    "mod index;\n#[cfg(test)]\nmod alike;\n",
                ),
                ("crates/broker/src/alike.rs", comment),
                ("crates/broker/tests/all.rs", comment),
                ("dev/simulator/src/lib.rs", comment),
            ],
            &[],
            &[],
        );
    }

    #[test]
    fn scenarios_show_what_stands_above_and_inside_them() {
        let text = "\
# [MQTT-3.3.1-9]
Feature: Publishing

  # [MQTT-3.3.1-1]
  @slow
  Scenario: A message is sent again
    Given a subscriber
    # [MQTT-3.3.1-2]
    Then it gets the message

  # [MQTT-3.3.1-3]
  Scenario Outline: Nothing else
";
        check(
            &[("features/publish.feature", text)],
            &[],
            &[
                "MQTT-3.3.1-1 scenario: A message is sent again",
                "MQTT-3.3.1-2 scenario: A message is sent again",
                "MQTT-3.3.1-3 scenario: Nothing else",
            ],
        );
    }

    #[test]
    fn rows_of_test_data_show_what_they_list() {
        let text = "
            [[packet]]
            name = \"qos 3\"
            statements = [\"MQTT-3.3.1-4\"]
            [[packet]]
            name = \"plain\"
        ";
        check(
            &[("crates/mqtt-proto/testdata/publish.toml", text)],
            &[],
            &["MQTT-3.3.1-4 golden packet: qos 3"],
        );
    }
}
