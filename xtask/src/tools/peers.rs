//! The brokers of others that `cargo xtask bench brokers` compares, with their versions.
//!
//! One that is a program is installed as it is; one that is a library is built into a program of
//! ours, `peer-NAME`, from `crates/bench/peers/NAME`. Deliberately absent: Mosquitto, which `ci`
//! needs as well, and what no package gives.

use std::ffi::OsStr;
use std::process::Command;

use super::{Tool, Tools, apt, on_path};
use crate::{Outcome, process, tree};

/// By their names in the benchmark.
pub(super) const ALL: [(&str, Tool); 2] = [("nats", NATS), ("mochi", MOCHI)];

/// Those that run without being named, because they are quick to install.
pub(super) const UNNAMED: [&str; 2] = ["nats", "mochi"];

/// Also a tool of `ci`, whose short run of `bench durability` has it.
pub(super) const NATS: Tool = Tool {
    name: "nats-server",
    is_ready: |tools| tools.go_programs().join("nats-server").is_file() || on_path("nats-server"),
    install: install_nats_server,
};

/// Load generators that are not ours, for `bench brokers --cross-check`.
pub(super) const LOAD_GENERATORS: Tool = Tool {
    name: "loadtest and pingtest of 2013",
    is_ready: |tools| {
        let is_there = |name: &&str| tools.go_programs().join(name).is_file();
        LOADTEST_AND_PINGTEST.iter().all(is_there)
    },
    install: install_load_generators,
};

const MOCHI: Tool = Tool {
    name: "mochi",
    // Built each time, because our side of it may have changed; Go itself knows what is new.
    is_ready: |_| false,
    install: build_mochi,
};

// Fixed, so that a run next year compares what this one does. That of mochi is in its `go.mod`.
const NATS_SERVER: &str = "github.com/nats-io/nats-server/v2@v2.15.2";

const LOADTEST_AND_PINGTEST: [&str; 2] = ["loadtest", "pingtest"];
const THEIR_MODULE: &str = "github.com/jeffallen/mqtt";
const THEIR_VERSION: &str = "v0.0.0-20231208081828-a9a6bdf130a6";

/// Debian's Go may be too old for it; then its own package serves, and the record says which
/// version it was.
fn install_nats_server(tools: &Tools) -> Outcome {
    let mut go = Command::new("go");
    go.args(["install", NATS_SERVER])
        .env("GOBIN", tools.go_programs());
    process::quiet(&mut go).map_or_else(|_| apt(&["nats-server"]), |_| Ok(()))
}

fn install_load_generators(tools: &Tools) -> Outcome {
    if !on_path("go") {
        apt(&["golang-go"])?;
    }
    let packages = LOADTEST_AND_PINGTEST
        .iter()
        .map(|name| format!("{THEIR_MODULE}/{name}@{THEIR_VERSION}"));
    let mut go = Command::new("go");
    go.arg("install").args(packages);
    process::quiet(go.env("GOBIN", tools.go_programs())).map(|_| ())
}

fn build_mochi(tools: &Tools) -> Outcome {
    if !on_path("go") {
        apt(&["golang-go"])?;
    }
    let mut go = Command::new("go");
    go.args([OsStr::new("build"), OsStr::new("-o")])
        .args([
            tools.peers().join("peer-mochi").as_os_str(),
            OsStr::new("."),
        ])
        .current_dir(tree::root().join("crates/bench/peers/mochi"));
    process::quiet(&mut go).map(|_| ())
}
