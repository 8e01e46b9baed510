//! The features of Cucumber's wire plug-in, which say what the protocol is, run against our server.
//!
//! Each describes a conversation, and what Cucumber makes of it. Its side of the conversation comes
//! from the plug-in that is installed; ours is answered by our server out of the described table.
//! So these features hold if we read requests and write answers as the plug-in does.
//!
//! They are not part of this repository: `UNBROKEN_WIRE_PLUGIN` names a copy of the plug-in
//! (`docs/cucumber.md`). Without it they are skipped and counted.
//!
//! The fixed ports of the features are replaced by free ones, in what Cucumber reads, and back in
//! what it prints.

mod script;
mod steps;

use std::env;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use cucumber::World as _;
use cucumber::writer::Stats as _;
use unbroken_acceptance::tools::Tool;

use steps::Scene;

fn main() -> ExitCode {
    let copy = env::var_os("UNBROKEN_WIRE_PLUGIN").map(PathBuf::from);
    let Some(copy) = copy.filter(|_| Tool::Cucumber.is_installed()) else {
        let _ = writeln!(io::stdout(), "1 test (1 skipped)");
        return ExitCode::SUCCESS;
    };
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let runtime = runtime.expect("a thread needs nothing");
    let features = Scene::cucumber()
        .with_default_cli()
        .max_concurrent_scenarios(1)
        .fail_on_skipped();
    let outcome = runtime.block_on(features.run(copy.join("features")));
    if outcome.execution_has_failed() || outcome.passed_steps() == 0 {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}
