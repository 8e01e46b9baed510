//! `cargo xtask bench …`: hands everything to the program in `crates/bench`, or in
//! `crates/channel-bench` where channels are compared.

use std::{env, iter};

use crate::{Outcome, process, tools::Tools};

pub(crate) fn run(arguments: &[String]) -> Outcome {
    let package = match arguments.first().map(String::as_str) {
        Some("channels") => "unbroken-channel-bench",
        _ => "unbroken-bench",
    };
    let mut cargo = process::cargo(&["run", "--release", "--quiet", "-p", package, "--"]);
    let path = env::var_os("PATH").unwrap_or_default();
    let peers = iter::once(Tools::locate().go_programs()).chain(env::split_paths(&path));
    let path = env::join_paths(peers).map_err(|error| error.to_string())?;
    process::stream(cargo.args(arguments).env("PATH", path), |_| {})
}
