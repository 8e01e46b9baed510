//! `cargo xtask conformance --suites DIR`: test suites that nobody here wrote, against our broker.
//!
//! The suites stay outside the repository, in clones the caller made; they are built and run there,
//! and nothing is written here. `docs/conformance.md` says how to get them and explains what fails.
//!
//! Each part of the Paho suite runs in a process of its own: one that hangs must not hide the
//! others.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::process::{self, Running};
use crate::tally::Tally;
use crate::{Outcome, ci, relay};

/// How many must pass: what is missing is explained in `docs/conformance.md`.
const MQTT5_CONFORMANCE_AT_LEAST: usize = 179;
const PAHO_3_1_1_AT_LEAST: usize = 9;
const PAHO_5_AT_LEAST: usize = 22;

/// The longest Paho test takes half a minute with a broker that answers.
const PAHO_TEST_LIMIT: Duration = Duration::from_mins(2);

/// Runs a Paho script with the broker's address, which it reads from its arguments, but hands
/// `unittest` only the test's name, which would not understand them.
const PAHO_START: &str = r#"
import runpy, sys, unittest
script, host, port, test = sys.argv[1:]
start = unittest.main
unittest.main = lambda: start(argv=[script, "Test." + test])
sys.argv = [script, "--hostname", host, "--port", port]
sys.path.insert(0, "")
runpy.run_path(script, run_name="__main__")
"#;

pub(crate) fn run(suites: &Path, only: &str, against: Option<SocketAddr>) -> Outcome {
    let suites = fs::canonicalize(suites)
        .map_err(|error| format!("cannot open {}: {error}", suites.display()))?;
    let scratch = Scratch::new()?;
    // Held until the end: dropping it ends the broker.
    let (_broker, address) = if let Some(address) = against {
        (None, address)
    } else {
        let build = ["build", "--release", "-p", "unbroken"];
        process::stream(&mut process::cargo(&build), |_| {})?;
        let (broker, address) = process::serve(&ci::binary(), &scratch.0)?;
        (Some(broker), address)
    };
    println!("testing the broker at {address}");

    let results = [
        (
            "mqtt5-conformance",
            MQTT5_CONFORMANCE_AT_LEAST,
            mqtt5_conformance(&suites, &scratch.0, address, only)?,
        ),
        (
            "Paho, MQTT 3.1.1",
            PAHO_3_1_1_AT_LEAST,
            paho(&suites, &scratch.0, "client_test.py", address, only)?,
        ),
        (
            "Paho, MQTT 5.0",
            PAHO_5_AT_LEAST,
            paho(&suites, &scratch.0, "client_test5.py", address, only)?,
        ),
    ];
    println!();
    let mut below = false;
    for (suite, at_least, tally) in results {
        let Tally {
            passed,
            failed,
            skipped,
        } = tally;
        let total = passed + failed;
        println!("{suite}: {passed} of {total} (at least {at_least}), {skipped} skipped");
        below |= passed < at_least;
    }
    if below && only.is_empty() {
        return Err("a suite is below its bar".to_owned());
    }
    Ok(())
}

/// A directory that is gone afterwards.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Outcome<Self> {
        let name = format!("unbroken-conformance-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path)
            .map(|()| Self(path.clone()))
            .map_err(|error| format!("cannot create {}: {error}", path.display()))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn mqtt5_conformance(
    suites: &Path,
    scratch: &Path,
    address: SocketAddr,
    only: &str,
) -> Outcome<Tally> {
    let source = existing(suites, "mqtt-lib")?;
    let target = suites.join("target");
    println!("\nmqtt5-conformance: building it in {}", target.display());
    let mut build = process::cargo(&["build", "--release", "-p", "mqtt5-conformance-cli"]);
    build
        .current_dir(&source)
        .env("CARGO_TARGET_DIR", &target)
        // Its own release profile ends the whole run at the first test that panics, and optimises
        // for a size that does not matter here.
        .env("CARGO_PROFILE_RELEASE_PANIC", "unwind")
        .env("CARGO_PROFILE_RELEASE_LTO", "off")
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "8");
    process::quiet(&mut build)?;

    let relay = relay::start(address).map_err(|error| format!("no relay: {error}"))?;
    let description = scratch.join("unbroken.toml");
    fs::write(&description, described(relay)).map_err(|error| error.to_string())?;
    let mut suite = Command::new(target.join("release/mqtt5-conformance"));
    suite.arg("--sut").arg(description).current_dir(&source);
    if !only.is_empty() {
        suite.arg(only);
    }
    let mut tally = Tally::default();
    // It fails when one test does; the bar decides here.
    let _ = process::stream(&mut suite, |line| {
        if let Some(result) = Tally::from_line(line) {
            tally = result;
        }
    });
    Ok(tally)
}

/// What the suite must know of our broker: it skips what a broker says it does not have.
fn described(address: SocketAddr) -> String {
    format!(
        "name = \"unbroken\"\naddress = \"mqtt://{address}\"\n\
         [capabilities]\nmax_qos = 2\n\
         [capabilities.transports]\ntcp = true\n"
    )
}

fn paho(
    suites: &Path,
    scratch: &Path,
    script: &str,
    address: SocketAddr,
    only: &str,
) -> Outcome<Tally> {
    let directory = existing(suites, "paho.mqtt.testing")?.join("interoperability");
    let text = fs::read_to_string(directory.join(script))
        .map_err(|error| format!("cannot read {script}: {error}"))?;
    println!("\nPaho interoperability, {script}");
    let mut tally = Tally::default();
    for test in test_names(&text).filter(|name| name.contains(only)) {
        let log = scratch.join(format!("{script}-{test}.log"));
        let output = fs::File::create(&log).map_err(|error| error.to_string())?;
        let errors = output.try_clone().map_err(|error| error.to_string())?;
        let mut python = Command::new("python3");
        python
            // No byte code: the clone stays as it was.
            .args(["-B", "-c", PAHO_START, script])
            .args([address.ip().to_string(), address.port().to_string()])
            .arg(test)
            .current_dir(&directory)
            .stdout(output)
            .stderr(errors);
        let ended = Running::start(&mut python)?
            .ended_within(PAHO_TEST_LIMIT)
            .map_err(|error| error.to_string())?;
        let verdict = match ended {
            Some(true) => "ok",
            Some(false) => "FAILED",
            None => "FAILED: does not end",
        };
        println!("test {test} ... {verdict}");
        if ended == Some(true) {
            tally += Tally::PASSED;
        } else {
            tally += Tally::FAILED;
            println!(
                "{}",
                fs::read_to_string(&log).unwrap_or_default().trim_end()
            );
        }
    }
    Ok(tally)
}

fn existing(suites: &Path, name: &str) -> Outcome<PathBuf> {
    let path = suites.join(name);
    if path.is_dir() {
        return Ok(path);
    }
    let owner = match name {
        "mqtt-lib" => "LabOverWire",
        _ => "eclipse-paho",
    };
    Err(format!(
        "{} is missing: clone the public repository {owner}/{name} there (see docs/conformance.md)",
        path.display(),
    ))
}

/// The tests that a script of Python's `unittest` defines.
fn test_names(script: &str) -> impl Iterator<Item = &str> {
    script.lines().filter_map(|line| {
        let name = line.trim_start().strip_prefix("def ")?.split('(').next()?;
        name.starts_with("test").then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tests_of_a_script_are_found_by_name() {
        let script = "class Test:\n    def setUp(self):\n    def testBasic(self):\n\
                      \x20   def test_wills(self):\n";
        let names: Vec<_> = test_names(script).collect();
        assert_eq!(names, ["testBasic", "test_wills"]);
    }
}
