//! `cargo xtask bench …`: hands everything to the program in `crates/bench`.

use crate::{Outcome, process};

pub(crate) fn run(arguments: &[String]) -> Outcome {
    let mut cargo = process::cargo(&["run", "--release", "--quiet", "-p", "unbroken-bench", "--"]);
    process::stream(cargo.args(arguments), |_| {})
}
