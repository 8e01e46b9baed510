//! A program on top of somebody else's client library, driven over its standard streams.
//!
//! The language is described in `clients/README.md`.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use crate::DEADLINE;
use crate::raw::{Connect, Publish, Version};
use crate::tools::Tool;
use serde_json::{Value, json};
use tempfile::TempDir;

/// A running program with at most one connection.
#[derive(Debug)]
pub struct Program {
    child: Child,
    input: ChildStdin,
    events: Receiver<Value>,
    messages: VecDeque<Publish>,
    session_present: bool,
    /// Its working directory.
    _directory: TempDir,
}

/// How a program reaches the broker.
#[derive(Clone, Debug, Default)]
pub struct Route {
    /// `mqtt`, `mqtts`, `ws`, `wss` or `unix`.
    pub scheme: &'static str,
    /// Where the broker listens.
    pub port: u16,
    /// Where it listens without a port.
    pub socket: Option<PathBuf>,
    /// The authority of its certificate.
    pub authority: Option<PathBuf>,
    /// The program's own certificate and key.
    pub certificate: Option<(PathBuf, PathBuf)>,
}

impl Route {
    /// TCP alone.
    pub fn tcp(port: u16) -> Self {
        Self {
            scheme: "mqtt",
            port,
            ..Self::default()
        }
    }
}

impl Program {
    /// Starts it.
    #[track_caller]
    pub fn start(tool: Tool) -> Self {
        assert!(
            tool.is_installed(),
            "{} is not installed: cargo xtask install-tools",
            tool.name()
        );
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        let mut child = tool
            .program()
            .current_dir(directory.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{} does not start: {error}", tool.name()));
        let input = child.stdin.take().expect("stdin is piped");
        let output = child.stdout.take().expect("stdout is piped");
        let (sender, events) = channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let event = serde_json::from_str(&line).unwrap_or(Value::String(line));
                if sender.send(event).is_err() {
                    return;
                }
            }
        });
        Self {
            child,
            input,
            events,
            messages: VecDeque::new(),
            session_present: false,
            _directory: directory,
        }
    }

    /// Connects. `Err` says why not, in the words of the library.
    pub fn connect(&mut self, route: &Route, connect: &Connect) -> Result<(), String> {
        self.send(&connect_command(route, connect));
        let answer = self.await_event(&["connected", "refused", "error", "disconnected"]);
        if answer["event"] != "connected" {
            return Err(answer.to_string());
        }
        self.session_present = answer["session"] == true;
        Ok(())
    }

    /// Whether the broker had the session.
    pub fn session_present(&self) -> bool {
        self.session_present
    }

    /// Subscribes and gives the code.
    pub fn subscribe(&mut self, filter: &str, qos: u8) -> u8 {
        self.send(&json!({"do": "subscribe", "filter": filter, "qos": qos}));
        let code = self.await_event(&["subscribed"])["code"].as_u64();
        code.and_then(|code| u8::try_from(code).ok())
            .expect("an answer has a code")
    }

    /// Unsubscribes.
    pub fn unsubscribe(&mut self, filter: &str) {
        self.send(&json!({"do": "unsubscribe", "filter": filter}));
        self.await_event(&["unsubscribed"]);
    }

    /// Publishes, and waits for the acknowledgement.
    pub fn publish(&mut self, message: &Publish) {
        self.send(&json!({
            "do": "publish",
            "topic": message.topic,
            "payload": message.text(),
            "qos": message.qos,
            "retain": message.retain,
        }));
        self.await_event(&["published"]);
    }

    /// The next message.
    pub fn message(&mut self) -> Publish {
        if let Some(message) = self.messages.pop_front() {
            return message;
        }
        let event = self.await_event(&["message"]);
        as_message(&event)
    }

    /// Ends the connection, and can connect again.
    pub fn disconnect(&mut self) {
        self.send(&json!({"do": "disconnect"}));
        self.await_event(&["disconnected"]);
    }

    /// Ends the program, and with it the connection, without a DISCONNECT.
    pub fn kill(mut self) {
        let _ = self.child.kill();
    }

    fn send(&mut self, command: &Value) {
        writeln!(self.input, "{command}").expect("the program reads its commands");
    }

    /// Waits for one of these events; messages that come before it are kept.
    fn await_event(&mut self, names: &[&str]) -> Value {
        loop {
            let event = self
                .events
                .recv_timeout(DEADLINE)
                .unwrap_or_else(|_| panic!("none of {names:?} came from the program"));
            let name = event["event"].as_str().unwrap_or("?");
            if names.contains(&name) {
                return event;
            }
            match name {
                "message" => self.messages.push_back(as_message(&event)),
                // Told beside the answer to a request, depending on the library.
                "published" | "disconnected" => {}
                _ => panic!("expected one of {names:?}, got {event}"),
            }
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn connect_command(route: &Route, connect: &Connect) -> Value {
    let version = match connect.version {
        Version::V3_1 => "3.1",
        Version::V3_1_1 => "3.1.1",
        Version::V5 => "5.0",
    };
    let mut command = json!({
        "do": "connect",
        "scheme": route.scheme,
        "port": route.port,
        "version": version,
        "id": connect.client_id,
        "clean": connect.clean,
    });
    let own = route.certificate.as_ref();
    let files = [
        ("socket", route.socket.as_ref()),
        ("ca", route.authority.as_ref()),
        ("cert", own.map(|(certificate, _)| certificate)),
        ("key", own.map(|(_, key)| key)),
    ];
    for (name, file) in files {
        if let Some(file) = file {
            command[name] = json!(file);
        }
    }
    if let Some(user) = &connect.user_name {
        command["user"] = json!(user);
    }
    if let Some(password) = &connect.password {
        command["password"] = json!(String::from_utf8_lossy(password));
    }
    if let Some(will) = &connect.will {
        let payload = String::from_utf8_lossy(&will.payload);
        command["will"] = json!({"topic": will.topic, "payload": payload});
    }
    command
}

fn as_message(event: &Value) -> Publish {
    let text = |key: &str| {
        event[key]
            .as_str()
            .unwrap_or_else(|| panic!("no {key} in {event}"))
    };
    let mut message = Publish::new(text("topic"), text("payload"));
    message.qos = event["qos"]
        .as_u64()
        .and_then(|qos| u8::try_from(qos).ok())
        .expect("a quality");
    message.retain = event["retain"] == true || event["retain"] == 1;
    message
}
