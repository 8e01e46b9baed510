//! The steps of the plug-in's features.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Output;
use std::time::Duration;

use cucumber::gherkin::Step;
use cucumber::{World, given, then, when};
use socket2::{Domain, Socket, Type};
use tempfile::TempDir;
use unbroken_acceptance::tools::Tool;

use crate::script::{Delay, Script};

/// What a scenario has.
#[derive(Debug, World)]
#[world(init = Self::new)]
pub(crate) struct Scene {
    directory: TempDir,
    /// Ports as the feature names them, and as they are.
    ports: Vec<(String, u16)>,
    environment: Vec<(String, String)>,
    script: Option<(Script, Delay)>,
    /// An address at which no broker listens.
    silent: Option<Socket>,
    output: Option<Output>,
}

impl Scene {
    fn new() -> Self {
        Self {
            directory: tempfile::tempdir().expect("a temporary directory can be made"),
            ports: Vec::new(),
            environment: Vec::new(),
            script: None,
            silent: None,
            output: None,
        }
    }

    fn output(&self) -> &Output {
        self.output.as_ref().expect("a command was run")
    }

    /// What was printed, with the ports of the feature.
    fn printed(&self, bytes: &[u8]) -> String {
        let mut text = String::from_utf8_lossy(bytes).into_owned();
        for (named, port) in &self.ports {
            text = text.replace(&port.to_string(), named);
        }
        even(&text)
    }
}

#[given(regex = r#"^a file named "([^"]*)" with:$"#)]
fn a_file(scene: &mut Scene, name: String, step: &Step) {
    let path = scene.directory.path().join(name);
    let parent = path.parent().expect("it is in the directory");
    fs::create_dir_all(parent).expect("the directory is writable");
    fs::write(path, text_of(step)).expect("the directory is writable");
}

#[given(
    regex = r"^there is a wire server (?:running )?on port (\d+) which understands the following protocol:$"
)]
fn a_wire_server(scene: &mut Scene, named: String, step: &Step) {
    let table = step.table.as_ref().expect("the step has a table");
    // A line break in a cell is one that JSON writes as `\n`.
    let rows = table.rows.iter().skip(1);
    let rows: Vec<Vec<String>> = rows
        .map(|row| row.iter().map(|cell| cell.replace('\n', "\\n")).collect())
        .collect();
    let (script, delay) = Script::start(&rows);
    scene.ports.push((named, script.port));
    scene.script = Some((script, delay));
}

#[given(regex = r"^the wire server takes (\S+) seconds to respond to the (\w+) message$")]
fn takes_time(scene: &mut Scene, seconds: f64, name: String) {
    let (_, delay) = scene.script.as_ref().expect("there is a server");
    delay.set(&name, Duration::from_secs_f64(seconds));
}

#[given(regex = r#"^I have environment variable (\w+) set to "([^"]*)"$"#)]
fn environment(scene: &mut Scene, name: String, value: String) {
    scene.environment.push((name, value));
}

#[when(regex = r"^I run `cucumber (.+)`$")]
fn run(scene: &mut Scene, arguments: String) {
    if scene.script.is_none() {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("there are sockets");
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        socket.bind(&any.into()).expect("a port is free");
        let address = socket.local_addr().ok().and_then(|own| own.as_socket());
        let port = address.expect("it is bound").port();
        scene.ports.push(("54321".to_owned(), port));
        scene.silent = Some(socket);
    }
    replace_ports(&scene.directory.path().join("features"), &scene.ports);
    let mut command = Tool::Cucumber.program();
    command
        .args(arguments.split(' '))
        .current_dir(scene.directory.path())
        .env_remove("PORT");
    for (name, value) in &scene.environment {
        let port = scene.ports.iter().find(|(named, _)| named == value);
        let value = port.map_or_else(|| value.clone(), |(_, port)| port.to_string());
        command.env(name, value);
    }
    scene.output = Some(command.output().expect("Cucumber is installed"));
}

fn replace_ports(directory: &Path, ports: &[(String, u16)]) {
    let entries = fs::read_dir(directory).expect("it can be listed");
    for entry in entries {
        let path = entry.expect("it can be listed").path();
        if path.is_dir() {
            replace_ports(&path, ports);
        } else if path
            .extension()
            .is_some_and(|extension| extension == "wire")
        {
            let mut text = fs::read_to_string(&path).expect("it was written here");
            for (named, port) in ports {
                text = text.replace(named, &port.to_string());
            }
            fs::write(&path, text).expect("it was written here");
        }
    }
}

#[when(regex = r"^it should (pass|fail) with( exactly)?:$")]
#[then(regex = r"^it should (pass|fail) with( exactly)?:$")]
fn it_should(scene: &mut Scene, outcome: String, exactly: String, step: &Step) {
    let output = scene.output();
    let printed = scene.printed(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    let all = format!("printed:\n{printed}\nerrors:\n{errors}");
    assert_eq!(output.status.success(), outcome == "pass", "{all}");
    let expected = even(&text_of(step));
    if exactly.is_empty() {
        assert!(printed.contains(&expected), "expected:\n{expected}\n{all}");
    } else {
        assert_eq!(printed, expected, "{all}");
    }
}

#[then(regex = r"^the (output|stderr) should contain:$")]
fn should_contain(scene: &mut Scene, stream: String, step: &Step) {
    let output = scene.output();
    let mut printed = scene.printed(&output.stderr);
    if stream == "output" {
        printed.push_str(&scene.printed(&output.stdout));
    }
    let expected = even(&text_of(step));
    assert!(
        printed.contains(&expected),
        "{expected}\nis not in\n{printed}"
    );
}

#[then("the stderr should not contain anything")]
fn no_errors(scene: &mut Scene) {
    let errors = String::from_utf8_lossy(&scene.output().stderr);
    assert_eq!(errors, "");
}

#[then("the wire server should have received the following messages:")]
fn should_have_received(scene: &mut Scene, step: &Step) {
    let table = step.table.as_ref().expect("the step has a table");
    let (script, _) = scene.script.as_ref().expect("there is a server");
    assert_eq!(script.received(), table.rows.concat());
}

fn text_of(step: &Step) -> String {
    let text = step.docstring.as_deref();
    let text = text.expect("the step has a text under it");
    text.strip_prefix('\n').unwrap_or(text).to_owned()
}

/// Without colours, and without blanks at the ends of lines and of the whole.
fn even(text: &str) -> String {
    let mut pieces = text.split("\u{1b}[");
    let mut plain = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        plain.push_str(piece.split_once('m').map_or(piece, |(_, rest)| rest));
    }
    let lines: Vec<&str> = plain.lines().map(str::trim_end).collect();
    lines.join("\n").trim_matches('\n').to_owned()
}
