//! Runs the features in `features/` against the real binary.
//!
//! Scenarios run side by side, each with a broker of its own. A step that nobody defines fails. A
//! scenario that needs a tool this machine lacks is skipped and counted, unless
//! `UNBROKEN_REQUIRE_TOOLS=1`. An argument that is no flag chooses scenarios by a part of their
//! name.
//!
//! The last lines count scenarios for `cargo xtask ci`: `12 scenarios (11 passed, 1 failed)`, and
//! one more of that kind for those skipped.

mod command;
mod listing;
mod peer;
mod program;
mod room;
mod scene;
mod steps;
mod words;

use std::env;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cucumber::writer::Stats as _;
use cucumber::{World as _, gherkin};
use unbroken_acceptance::tools::{self, Tool};

use scene::Scene;

/// How many scenarios run side by side: they mostly wait.
const AT_ONCE: usize = 24;

#[tokio::main]
async fn main() -> ExitCode {
    let chosen = env::args()
        .skip(1)
        .find(|argument| !argument.starts_with('-'));
    let skipped = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&skipped);
    let features = concat!(env!("CARGO_MANIFEST_DIR"), "/../../features");
    let outcome = Scene::cucumber()
        .with_default_cli()
        .max_concurrent_scenarios(AT_ONCE)
        .fail_on_skipped()
        .filter_run(features, move |feature, _, scenario| {
            if chosen
                .as_ref()
                .is_some_and(|part| !scenario.name.contains(part))
            {
                return false;
            }
            let possible = tools::required() || tools_of(feature, scenario).all(Tool::is_installed);
            if !possible {
                counter.fetch_add(1, Ordering::Relaxed);
            }
            possible
        })
        .await;
    let count = skipped.load(Ordering::Relaxed);
    if count > 0 {
        let _ = writeln!(io::stdout(), "{count} scenarios ({count} skipped)");
    }
    if outcome.execution_has_failed() {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

/// The tools named in the tags of a scenario and its feature: `@tool:paho-python`.
fn tools_of<'a>(
    feature: &'a gherkin::Feature,
    scenario: &'a gherkin::Scenario,
) -> impl Iterator<Item = Tool> + 'a {
    let tags = feature.tags.iter().chain(&scenario.tags);
    tags.filter_map(|tag| tag.strip_prefix("tool:"))
        .map(Tool::named)
}
