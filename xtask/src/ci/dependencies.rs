//! Licences, sources and known holes of the dependencies, in the longer run (`deny.toml`).

use std::process::Command;

use super::Ci;
use crate::step::Step;
use crate::tally::Tally;
use crate::{Outcome, process, tree};

impl Ci {
    pub(super) fn dependencies(&mut self) -> Outcome {
        if !self.full {
            return Ok(());
        }
        if !self.tools.install_cargo_deny()? {
            println!("\n── dependencies: skipped, cargo-deny is missing");
            self.tally += Tally::SKIPPED;
            return Ok(());
        }
        let mut command = self.cargo_deny();
        command.args(["check", "licenses", "bans", "sources"]);
        self.in_order([Step::check("dependencies", command)])?;
        if process::quiet(self.cargo_deny().arg("fetch")).is_err() {
            println!("\n── advisories: skipped, their database cannot be reached");
            self.tally += Tally::SKIPPED;
            return Ok(());
        }
        let mut command = self.cargo_deny();
        command.args(["check", "--disable-fetch", "advisories"]);
        self.in_order([Step::check("advisories", command)])
    }

    fn cargo_deny(&self) -> Command {
        let mut command = process::program(&self.tools.cargo_deny());
        command
            .args(["--locked", "--workspace"])
            .current_dir(tree::root());
        command
    }
}
