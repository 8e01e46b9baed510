//! Builds `docs/` as a book in the longer run.

use super::Ci;
use crate::step::Step;
use crate::tally::Tally;
use crate::{Outcome, process, tree};

impl Ci {
    pub(super) fn book(&mut self) -> Outcome {
        if !self.full {
            return Ok(());
        }
        if !self.tools.install_mdbook()? {
            println!("\n── book: skipped, mdbook is missing");
            self.tally += Tally::SKIPPED;
            return Ok(());
        }
        let mut command = process::program(&self.tools.mdbook());
        command.args(["build", "docs"]).current_dir(tree::root());
        self.in_order([Step::check("book", command)])
    }
}
