//! The features in `features/` and their steps, run against the real binary.
//!
//! Scenarios run side by side, each with a broker of its own. A step without a definition fails. A
//! scenario that needs a tool this machine lacks is skipped and counted, unless
//! `UNBROKEN_REQUIRE_TOOLS=1`. An argument that is no flag chooses scenarios by a part of their
//! name. With another transport than TCP (`UNBROKEN_TRANSPORT`), what is tagged `@tcp` is left out:
//! it is about commands, files, or the disk, and not about what a client sees.
//!
//! The last lines count scenarios for `cargo xtask ci`: `12 scenarios (11 passed, 1 failed)`, and
//! one more of that kind for those skipped.

mod command;
mod listing;
mod peer;
mod room;
mod scene;
mod steps;
mod words;

use std::env;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::door::Transport;
use crate::tools::{self, Tool};
use cucumber::writer::Stats as _;
use cucumber::{World as _, gherkin};

pub(crate) use scene::Scene;

/// Thrown by a step that cannot be carried out here, which is no fault of the broker: with a
/// broker that somebody else started, it is not ours to configure, stop or look into.
#[derive(Debug)]
pub(crate) struct Pending(pub(crate) String);

/// Leaves a step without an outcome, and says why.
pub(crate) fn pending(why: impl Into<String>) -> ! {
    // Not by a panic, which would be reported on standard error as one.
    std::panic::resume_unwind(Box::new(Pending(why.into())))
}

/// How many scenarios run side by side: they mostly wait.
const AT_ONCE: usize = 24;

/// Runs all features, or those scenarios that an argument chooses.
pub fn run() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    match runtime {
        Ok(runtime) => runtime.block_on(run_all()),
        Err(error) => {
            let _ = writeln!(io::stderr(), "cannot start threads: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run_all() -> ExitCode {
    let chosen = env::args()
        .skip(1)
        .find(|argument| !argument.starts_with('-'));
    let transport = Transport::of_the_suite();
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
            let is_about_tcp = feature
                .tags
                .iter()
                .chain(&scenario.tags)
                .any(|tag| tag == "tcp");
            if is_about_tcp && transport != Transport::Tcp {
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

fn tools_of<'a>(
    feature: &'a gherkin::Feature,
    scenario: &'a gherkin::Scenario,
) -> impl Iterator<Item = Tool> + 'a {
    tools_named(feature.tags.iter().chain(&scenario.tags))
}

/// The tools named in tags: `@tool:paho-python`.
pub(crate) fn tools_named<'a>(
    tags: impl IntoIterator<Item = &'a String>,
) -> impl Iterator<Item = Tool> {
    let tools = tags.into_iter().filter_map(|tag| tag.strip_prefix("tool:"));
    tools.map(Tool::named)
}
