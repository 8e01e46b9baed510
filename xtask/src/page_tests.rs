//! `cargo xtask page-tests`: the page of the admin server in Debian's Chromium.
//!
//! The tests are in `dev/page-tests`. They run against a server of invented figures, which has what
//! a broker seldom has (100,000 clients, a fault), and against the real binary.

use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;

use crate::step::{self, Step};
use crate::tools::Tools;
use crate::{Outcome, tree};

#[derive(Args)]
pub(crate) struct Arguments {
    /// Tests this binary instead of the server of invented figures
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Only tests whose name contains this
    #[arg(long, default_value = "")]
    only: String,
    /// Also writes pictures of all pages there, light and dark, wide and narrow
    #[arg(long, value_name = "DIR")]
    shots: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let tools = Tools::locate();
    if !tools.install_page_driver()? {
        return Err("Chromium and its driver cannot be installed here".to_owned());
    }
    let binary = arguments.binary.as_deref().map(std::path::absolute);
    let binary = binary.transpose().map_err(|error| error.to_string())?;
    let mut command = command(&tools, binary.as_deref());
    command.arg(format!("--only={}", arguments.only));
    if let Some(directory) = &arguments.shots {
        command.arg("--shots").arg(directory);
    }
    step::in_order(vec![Step::tests("page", command)]).1
}

/// Both runs, for `ci`.
pub(crate) fn steps(tools: &Tools, binary: &Path) -> [Step; 2] {
    [
        Step::tests("page, invented figures", command(tools, None)),
        Step::tests("page, real broker", command(tools, Some(binary))),
    ]
}

fn command(tools: &Tools, binary: Option<&Path>) -> Command {
    let mut node = Command::new("node");
    node.arg(tree::root().join("dev/page-tests/run.mjs"))
        .env("UNBROKEN_PAGE_TOOLS", tools.page_driver());
    if let Some(binary) = binary {
        node.arg("--binary").arg(binary);
    }
    node
}
