//! `cargo xtask bench …`: hands everything to the program in `crates/bench`, or in
//! `crates/channel-bench` where channels are compared.

use crate::{Outcome, process};

pub(crate) fn run(arguments: &[String]) -> Outcome {
    let package = match arguments.first().map(String::as_str) {
        Some("channels") => "unbroken-channel-bench",
        _ => "unbroken-bench",
    };
    let mut cargo = process::cargo(&["run", "--release", "--quiet", "-p", package, "--"]);
    process::stream(cargo.args(arguments), |_| {})
}
