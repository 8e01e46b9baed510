//! Programs of others as clients, and the listeners of a broker under test.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdout, Command, Stdio};

use unbroken_acceptance::Broker;
use unbroken_acceptance::tools::{self, Tool};

/// Whether the tool is there; where it may be missing the test counts as skipped.
pub(crate) fn has(tool: Tool) -> bool {
    let is_installed = tool.is_installed();
    if !is_installed {
        let name = tool.name();
        assert!(!tools::required(), "{name} is required and not installed");
        let _ = writeln!(io::stdout(), "\n1 test (1 skipped: no {name})");
    }
    is_installed
}

/// The port of the broker's listener of this protocol.
#[track_caller]
pub(crate) fn port_of(broker: &Broker, protocol: &str) -> u16 {
    port_in(&broker.wait_for_log(&format!("({protocol}, ")))
}

/// The port of the broker's listener of this name.
#[track_caller]
pub(crate) fn port_named(broker: &Broker, name: &str) -> u16 {
    port_in(&broker.wait_for_log(&format!(") as {name}")))
}

#[track_caller]
fn port_in(line: &str) -> u16 {
    let port = line
        .split_once("listening on 127.0.0.1:")
        .and_then(|(_, rest)| rest.split(' ').next()?.parse().ok());
    port.unwrap_or_else(|| panic!("no port in {line:?}"))
}

/// A program that subscribes, and prints what it receives. It is ended when it is dropped.
pub(crate) struct Listening {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Listening {
    /// Starts `mosquitto_sub` with `-d`, and waits until its subscription is acknowledged.
    #[track_caller]
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let mut command = Command::new("stdbuf");
        command.args(["-oL", "mosquitto_sub", "-d"]).args(arguments);
        let child = command.stdout(Stdio::piped()).spawn();
        let mut child = child.expect("mosquitto_sub starts");
        let output = child.stdout.take().expect("it is piped");
        let mut listening = Self {
            child,
            output: BufReader::new(output),
        };
        listening.wait_for("Subscribed");
        listening
    }

    /// Waits for a line that contains this.
    #[track_caller]
    pub(crate) fn wait_for(&mut self, part: &str) -> String {
        let mut before = String::new();
        loop {
            let mut line = String::new();
            let count = self.output.read_line(&mut line).expect("it can be read");
            assert!(count > 0, "{part:?} did not come, but:\n{before}");
            if line.contains(part) {
                return line;
            }
            before.push_str(&line);
        }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs `mosquitto_pub`; returns whether it succeeded, and what it printed.
pub(crate) fn mosquitto_pub(arguments: &[&str]) -> (bool, String) {
    let output = Command::new("mosquitto_pub").args(arguments).output();
    let output = output.expect("mosquitto_pub starts");
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    (output.status.success(), text)
}
