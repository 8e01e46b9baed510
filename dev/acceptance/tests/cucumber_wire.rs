//! Cucumber, the one in Ruby, runs our features through the wire server, as they are.

use std::fs;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use tempfile::TempDir;
use unbroken_acceptance::raw::{Connect, Publish};
use unbroken_acceptance::tools::{self, Tool};
use unbroken_acceptance::{Broker, Server};

#[test]
fn every_step_of_every_feature_has_exactly_one_definition() {
    let Some(run) = Run::start(None) else { return };
    let output = run.cucumber("progress", &["--dry-run".into(), features()]);
    let (text, _) = outcome(&output);
    assert!(output.status.success(), "{text}");
    assert!(text.contains(" skipped)"), "{text}");
    for word in ["undefined", "Ambiguous"] {
        assert!(!text.contains(word), "{text}");
    }
}

#[test]
fn features_pass_with_a_broker_for_each_scenario() {
    let Some(run) = Run::start(None) else { return };
    run.passes(&CHOSEN.map(feature));
}

#[test]
fn features_pass_with_a_broker_that_runs_already_and_has_been_used() {
    let broker = Broker::start();
    let Some(run) = Run::start(Some(broker.clone())) else {
        return;
    };
    let mut other = broker.accept(&Connect::v5("phone").persistent());
    other.subscribe_to("temperature", 1);
    other.publish(Publish::new("temperature", "19").qos(1).retained());
    other.disconnect();
    run.passes(&CHOSEN.map(feature));
    // Whatever the scenarios left behind does not disturb them the next time.
    run.passes(&CHOSEN.map(feature));
}

#[test]
fn a_broken_step_fails_and_says_why() {
    let Some(run) = Run::start(None) else { return };
    let text = fs::read_to_string(feature("retained")).expect("it is there");
    let broken = text.replacen(
        "phone receives \"21\" on \"temperature\"",
        "phone receives \"22\" on \"temperature\"",
        1,
    );
    assert_ne!(broken, text, "the step is there");
    let path = run.directory.path().join("broken.feature");
    fs::write(&path, broken).expect("it is writable");
    let output = run.cucumber("progress", &[path]);
    let (text, failed) = outcome(&output);
    assert!(!output.status.success(), "{text}");
    assert_eq!(failed, 1, "{text}");
    assert!(text.contains("(panic from 127.0.0.1:"), "{text}");
    assert!(text.contains("\"21\"") && text.contains("\"22\""), "{text}");
}

#[test]
fn what_a_given_broker_does_not_allow_is_pending() {
    let broker = Broker::start();
    let Some(run) = Run::start(Some(broker.clone())) else {
        return;
    };
    let path = run.directory.path().join("pending.feature");
    let text =
        "Feature: f\n  Scenario: s\n    Given a durable broker\n    When the broker is killed\n";
    fs::write(&path, text).expect("it is writable");
    let output = run.cucumber("pretty", &[path]);
    let (text, _) = outcome(&output);
    assert!(text.contains("1 scenario (1 pending)"), "{text}");
    assert!(text.contains("the broker is given"), "{text}");
}

/// Those that need nothing of a broker but that it is one.
const CHOSEN: [&str; 3] = ["connect", "publish_and_subscribe", "retained"];

fn features() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../features")
}

fn feature(name: &str) -> PathBuf {
    features().join(name).with_extension("feature")
}

/// A wire server, and a directory in which Cucumber finds it.
struct Run {
    server: Child,
    directory: TempDir,
}

impl Run {
    /// None where Cucumber is missing and may be; that counts as skipped.
    fn start(broker: Option<Server>) -> Option<Self> {
        if !Tool::Cucumber.is_installed() {
            assert!(!tools::required(), "cucumber is required and not installed");
            let _ = writeln!(io::stdout(), "\n1 test (1 skipped)");
            return None;
        }
        let mut command = Command::new(env!("CARGO_BIN_EXE_unbroken-acceptance"));
        command.args(["wire", "--port", "0"]);
        if let Some(broker) = broker {
            let address = broker.address().to_string();
            command.args(["--broker", &address]);
        }
        let server = command.stdout(Stdio::piped()).spawn();
        let mut server = server.expect("it was built with this test");
        let mut line = String::new();
        let output = server.stdout.take().expect("it is piped");
        let read = BufReader::new(output).read_line(&mut line);
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        // From here on it is ended when something fails.
        let run = Self { server, directory };
        read.expect("it prints where it listens");
        let address = line.trim_end().rsplit(' ').next().expect("a last word");
        let (host, port) = address.split_once(':').expect("an address");
        let support = run.directory.path().join("support");
        fs::create_dir(&support).expect("the directory is writable");
        // Beside other tests a step takes longer than alone.
        let wire = format!("host: {host}\nport: {port}\ntimeout:\n  step_matches: 60\n");
        fs::write(support.join("unbroken.wire"), wire).expect("the directory is writable");
        Some(run)
    }

    fn cucumber(&self, format: &str, arguments: &[PathBuf]) -> Output {
        let mut command = Tool::Cucumber.program();
        command
            .args(["--require", "support", "--strict", "--format", format])
            .args(arguments)
            .current_dir(self.directory.path());
        command.output().expect("it is installed")
    }

    fn passes(&self, paths: &[PathBuf]) {
        let output = self.cucumber("progress", paths);
        let (text, _) = outcome(&output);
        assert!(output.status.success(), "{text}");
        let scenarios: usize = paths.iter().map(|path| scenarios_in(path)).sum();
        let all = format!("{scenarios} scenarios ({scenarios} passed)");
        assert!(text.contains(&all), "not {all}: {text}");
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// What Cucumber said, and how many scenarios failed.
fn outcome(output: &Output) -> (String, usize) {
    let text = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    let text = text.concat();
    let failed = text.lines().find(|line| line.contains(" scenario"));
    let failed = failed.and_then(|line| {
        let (before, _) = line.split_once(" failed")?;
        before.rsplit([' ', '(']).next()?.parse().ok()
    });
    (text, failed.unwrap_or(0))
}

/// Counted by another hand: plain scenarios, and rows of examples.
fn scenarios_in(path: &Path) -> usize {
    let text = fs::read_to_string(path).expect("it is there");
    let lines = || text.lines().map(str::trim);
    let plain = lines().filter(|line| line.starts_with("Scenario:")).count();
    let tables = lines().filter(|line| line.starts_with("Examples:")).count();
    let rows = lines().filter(|line| line.starts_with('|')).count();
    plain + rows - tables
}
