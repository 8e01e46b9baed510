//! The statements, as the lists in `spec/` give them.

use std::fmt;
use std::fs;

use crate::{Outcome, tree};

/// A standard with numbered statements.
#[derive(Debug, Clone, Copy)]
pub(super) enum Standard {
    V5,
    V3_1_1,
}

impl Standard {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::V5 => "MQTT 5.0",
            Self::V3_1_1 => "MQTT 3.1.1",
        }
    }

    pub(super) fn list_path(self) -> &'static str {
        match self {
            Self::V5 => "spec/mqtt-5.0.toml",
            Self::V3_1_1 => "spec/mqtt-3.1.1.toml",
        }
    }

    pub(super) fn coverage_path(self) -> &'static str {
        match self {
            Self::V5 => "spec/coverage-5.0.md",
            Self::V3_1_1 => "spec/coverage-3.1.1.md",
        }
    }
}

/// A statement's number, such as `MQTT-3.1.2-22` or `MQTT311-3.1.2-24`; sorts as the standard does.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Id {
    numbers: Vec<u32>,
    text: String,
}

impl Id {
    /// The number at the start of this text, if one is there.
    pub(super) fn at_start(text: &str) -> Option<Self> {
        let numbers = text
            .strip_prefix("MQTT-")
            .or_else(|| text.strip_prefix("MQTT311-"))?;
        let is_part = |c: char| c.is_ascii_digit() || c == '.' || c == '-';
        let numbers = &numbers[..numbers.find(|c| !is_part(c)).unwrap_or(numbers.len())];
        let (section, statement) = numbers.split_once('-')?;
        let statement = &statement[..statement
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(statement.len())];
        let mut parts: Vec<u32> = Vec::new();
        for part in section.split('.').chain([statement]) {
            parts.push(part.parse().ok()?);
        }
        let prefix_and_section = text.find(numbers)? + section.len() + 1;
        Some(Self {
            numbers: parts,
            text: text[..prefix_and_section + statement.len()].to_owned(),
        })
    }

    /// Every number in this text.
    pub(super) fn all_in(text: &str) -> impl Iterator<Item = Self> {
        text.match_indices("MQTT")
            .filter_map(|(at, _)| Self::at_start(&text[at..]))
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

/// One obligation.
#[derive(Debug)]
pub(super) struct Statement {
    pub(super) id: Id,
    pub(super) says: String,
    /// Why it does not concern us.
    pub(super) not_applicable: Option<String>,
    /// Files that enforce it as a whole, where no single line does.
    pub(super) enforced: Vec<String>,
    /// Statements of the other standard that ask for the same: what enforces them, enforces it.
    pub(super) same_as: Vec<Id>,
}

pub(super) fn read(standard: Standard) -> Outcome<Vec<Statement>> {
    let path = standard.list_path();
    let text = fs::read_to_string(tree::root().join(path))
        .map_err(|error| format!("cannot read {path}: {error}"))?;
    parse(&text).map_err(|problem| format!("{path}: {problem}"))
}

pub(super) fn parse(text: &str) -> Outcome<Vec<Statement>> {
    let list: toml::Table = text.parse().map_err(|error| format!("{error}"))?;
    let mut statements = Vec::new();
    for (key, value) in &list {
        let id = Id::at_start(key)
            .filter(|id| id.text == *key)
            .ok_or_else(|| format!("{key:?} is not a statement's number"))?;
        let table = value
            .as_table()
            .ok_or_else(|| format!("{key} is not a table"))?;
        let field = |name| table.get(name).and_then(toml::Value::as_str);
        let texts = |name| {
            let list = table.get(name).and_then(toml::Value::as_array);
            list.into_iter().flatten().filter_map(toml::Value::as_str)
        };
        let known = ["says", "not_applicable", "enforced", "same_as"];
        if let Some(other) = table.keys().find(|name| !known.contains(&name.as_str())) {
            return Err(format!("{key} has an unknown key {other:?}"));
        }
        statements.push(Statement {
            id,
            says: field("says")
                .ok_or_else(|| format!("{key} does not say anything"))?
                .to_owned(),
            not_applicable: field("not_applicable").map(str::to_owned),
            enforced: texts("enforced").map(str::to_owned).collect(),
            same_as: texts("same_as").filter_map(Id::at_start).collect(),
        });
    }
    statements.sort_by(|a, b| a.id.cmp(&b.id));
    Ok(statements)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expect: &[&str]) {
        let found: Vec<_> = Id::all_in(text).map(|id| id.to_string()).collect();
        assert_eq!(found, expect, "{text}");
    }

    #[test]
    fn numbers_are_found_wherever_they_stand() {
        check("// [MQTT-3.3.1-2]", &["MQTT-3.3.1-2"]);
        check(
            "/// [MQTT-1.5.4-1, MQTT311-1.5.3-1]: text",
            &["MQTT-1.5.4-1", "MQTT311-1.5.3-1"],
        );
        check("MQTT-4.2-1.", &["MQTT-4.2-1"]);
        check("MQTT-3.1.2-22-like", &["MQTT-3.1.2-22"]);
        check("MQTT 5, MQTT-3, MQTT-x.y.z-n, [MQTT-3.1.2-]", &[]);
    }

    #[test]
    fn statements_sort_as_the_standard_numbers_them() {
        let id = |text| Id::at_start(text).expect("a number");
        assert!(id("MQTT-3.1.2-9") < id("MQTT-3.1.2-10"));
        assert!(id("MQTT-3.9.3-1") < id("MQTT-3.10.1-1"));
    }

    #[test]
    fn the_lists_hold_every_statement_of_their_standard() {
        assert_eq!(read(Standard::V5).expect("the list is read").len(), 251);
        assert_eq!(read(Standard::V3_1_1).expect("the list is read").len(), 141);
    }

    #[test]
    fn a_misspelt_key_or_number_is_refused() {
        let problem = parse("[\"MQTT-3.1.0-2\"]\nsays = \"x\"\nnot_aplicable = \"y\"");
        assert!(problem.expect_err("unknown key").contains("not_aplicable"));
        let problem = parse("[\"MQTT-3.1.0\"]\nsays = \"x\"");
        assert!(problem.expect_err("no number").contains("MQTT-3.1.0"));
    }
}
