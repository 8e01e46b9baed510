//! The integration tests of the workspace by name, and the examples with tests in them.

use serde_json::Value;

use super::cargo;
use crate::{Outcome, process};

/// Its tests are steps of their own.
const ACCEPTANCE: &str = "unbroken-acceptance";

/// The names of integration tests, those of the acceptance crate apart, which no other crate has.
pub(super) struct IntegrationTests {
    pub(super) acceptance: Vec<String>,
    pub(super) others: Vec<String>,
    /// Those that say `test = true`.
    pub(super) examples: Vec<String>,
}

impl IntegrationTests {
    /// As cargo has them.
    pub(super) fn listed() -> Outcome<Self> {
        let mut command = cargo(&["metadata", "--locked", "--no-deps", "--format-version", "1"]);
        let text = process::quiet(&mut command)?;
        let metadata: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        let mut names = Self {
            acceptance: Vec::new(),
            others: Vec::new(),
            examples: Vec::new(),
        };
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        for package in list(&metadata["packages"]) {
            let targets = list(&package["targets"]);
            let called = |kind: &str| -> Vec<String> {
                let those = targets.iter();
                let those = those.filter(|its| its["kind"][0] == kind && its["test"] == true);
                those
                    .filter_map(|its| Some(its["name"].as_str()?.to_owned()))
                    .collect()
            };
            names.examples.extend(called("example"));
            let tests = called("test");
            if package["name"] == ACCEPTANCE {
                names.acceptance.extend(tests);
            } else {
                names.others.extend(tests);
            }
        }
        names.others.sort();
        names.others.dedup();
        if names.acceptance.is_empty() {
            return Err(format!(
                "cargo knows of no integration test of {ACCEPTANCE}"
            ));
        }
        if let Some(name) = names
            .acceptance
            .iter()
            .find(|name| names.others.contains(name))
        {
            return Err(format!(
                "two integration tests are called {name}, one of them of {ACCEPTANCE}; rename one"
            ));
        }
        Ok(names)
    }
}
