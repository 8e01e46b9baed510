//! Rules about documents, licences and features.

use std::collections::BTreeMap;

use super::File;
use crate::spec::scenario_name;

pub(super) fn untitled(files: &[File]) -> Vec<String> {
    files
        .iter()
        .filter(|file| file.has_extension("md") && !file.text.starts_with("# "))
        .map(|file| format!("{} does not begin with a title", file.path))
        .collect()
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
