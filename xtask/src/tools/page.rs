//! What drives the page in Chromium: packages of Node, in the versions of
//! `dev/page-tests/package-lock.json`. None of them downloads a browser.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use super::{Tool, Tools, on_path};
use crate::{Outcome, process, tree};

pub(super) const DRIVER: Tool = Tool {
    name: "playwright-core and axe-core",
    is_ready: |tools| {
        let installed = fs::read(tools.page_driver().join(LOCK)).ok();
        let is_there = tools.page_driver().join("node_modules/axe-core").is_dir();
        on_path("node") && is_there && installed == fs::read(tests().join(LOCK)).ok()
    },
    install,
};

const LOCK: &str = "package-lock.json";

impl Tools {
    /// The directory with the packages that the tests of the page use.
    pub(crate) fn page_driver(&self) -> PathBuf {
        self.directory.join("page")
    }
}

/// Where the tests of the page are.
fn tests() -> PathBuf {
    tree::root().join("dev/page-tests")
}

fn install(tools: &Tools) -> Outcome {
    let directory = tools.page_driver();
    fs::create_dir_all(&directory).map_err(|error| error.to_string())?;
    for file in ["package.json", LOCK] {
        let copied = fs::copy(tests().join(file), directory.join(file));
        copied.map_err(|error| format!("cannot copy {file}: {error}"))?;
    }
    let mut npm = Command::new("npm");
    npm.args(["ci", "--no-audit", "--no-fund", "--ignore-scripts"])
        .arg("--loglevel=error")
        .current_dir(&directory);
    process::quiet(&mut npm).map(|_| ())
}
