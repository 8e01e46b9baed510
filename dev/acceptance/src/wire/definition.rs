//! The step definitions by their patterns, in the registry that the features' own runner uses.
//!
//! That runner also looks at the keyword of a step; here Cucumber does not send it. A definition
//! for two keywords is one, and a step that only another keyword's definition fits is accepted.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use cucumber::codegen::{Regex, StepConstructor, WorldInventory, inventory};
use cucumber::gherkin;
use cucumber::step::{Context, Location, Step};
use serde_json::Value;

use super::message::Match;
use crate::features::Scene;

/// A pattern and what is done where a step fits it.
#[derive(Debug)]
pub(super) struct Definition {
    id: String,
    regex: Regex,
    location: Location,
    step: Step<Scene>,
}

/// All of them, in the order of their patterns. The first call compiles these.
pub(super) fn all() -> &'static [Definition] {
    static ALL: LazyLock<Vec<Definition>> = LazyLock::new(collected);
    &ALL
}

fn collected() -> Vec<Definition> {
    let mut by_pattern = BTreeMap::new();
    let mut note = |(location, regex, step): (Location, fn() -> Regex, Step<Scene>)| {
        let regex = regex();
        let definition = (location, step, regex.clone());
        by_pattern
            .entry(regex.as_str().to_owned())
            .or_insert(definition);
    };
    for given in inventory::iter::<<Scene as WorldInventory>::Given> {
        note(given.inner());
    }
    for when in inventory::iter::<<Scene as WorldInventory>::When> {
        note(when.inner());
    }
    for then in inventory::iter::<<Scene as WorldInventory>::Then> {
        note(then.inner());
    }
    let numbered = by_pattern.into_values().enumerate();
    numbered
        .map(|(number, (location, step, regex))| Definition {
            id: number.to_string(),
            regex,
            location,
            step,
        })
        .collect()
}

impl Definition {
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    pub(super) fn step(&self) -> Step<Scene> {
        self.step
    }

    /// How it fits this step, if it does.
    pub(super) fn fits(&self, name: &str) -> Option<Match> {
        let captures = self.regex.captures(name)?;
        let groups = captures.iter().skip(1);
        let args = groups.map(|group| {
            let group = group?;
            let pos = name[..group.start()].chars().count();
            Some((pos, group.as_str().to_owned()))
        });
        Some(Match {
            id: self.id.clone(),
            args: args.collect(),
            source: format!("{}:{}", self.location.path, self.location.line),
            pattern: self.regex.as_str().to_owned(),
        })
    }

    /// What the step is carried out with: what its match captured, and what is under it.
    pub(super) fn context(&self, args: &[Value]) -> Result<Context, String> {
        let groups = self.regex.captures_len() - 1;
        let (captured, under) = args
            .split_at_checked(groups)
            .filter(|(_, under)| under.len() <= 1)
            .ok_or_else(|| {
                let count = args.len();
                format!("{count} arguments for {groups} groups of {}", self.regex)
            })?;
        let captured = captured.iter().map(|arg| match arg {
            Value::Null => Ok(String::new()),
            Value::String(text) => Ok(text.clone()),
            other => Err(format!("an argument is no text: {other}")),
        });
        // The whole step is not sent again, and no definition looks at it.
        let texts = [Ok(String::new())].into_iter().chain(captured);
        let names = self
            .regex
            .capture_names()
            .map(|name| name.map(str::to_owned));
        let matches = names.zip(texts).map(|(name, text)| Ok((name, text?)));
        Ok(Context {
            matches: matches.collect::<Result<_, String>>()?,
            step: step_over(under.first())?,
        })
    }
}

/// A step with this under it.
fn step_over(under: Option<&Value>) -> Result<gherkin::Step, String> {
    let mut step = gherkin::Step::builder()
        .keyword(String::new())
        .ty(gherkin::StepType::Given)
        .value(String::new())
        .build();
    match under {
        None => {}
        Some(Value::String(text)) => step.docstring = Some(text.clone()),
        Some(Value::Array(rows)) => {
            let rows = rows.iter().map(row).collect::<Option<Vec<_>>>();
            let rows = rows.ok_or("a table is no list of rows of texts")?;
            step.table = Some(gherkin::Table::builder().rows(rows).build());
        }
        Some(other) => return Err(format!("neither text nor table is under the step: {other}")),
    }
    Ok(step)
}

fn row(row: &Value) -> Option<Vec<String>> {
    let cells = row.as_array()?.iter();
    cells.map(|cell| cell.as_str().map(str::to_owned)).collect()
}
