//! A program on top of somebody else's client library, driven over its standard streams.
//!
//! The language is described in `clients/README.md`.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use crate::DEADLINE;
use crate::raw::{Connect, Publish, Version};
use crate::tools::Tool;
use serde_json::{Value, json};

/// A running program with one connection.
#[derive(Debug)]
pub(crate) struct Program {
    child: Child,
    input: ChildStdin,
    events: Receiver<Value>,
    messages: VecDeque<Publish>,
    session_present: bool,
}

impl Program {
    /// Starts it and connects. `Err` is the code of a refusal.
    pub(crate) fn connect(tool: Tool, port: u16, connect: &Connect) -> Result<Self, u8> {
        assert!(
            tool.is_installed(),
            "{} is not installed: cargo xtask install-tools",
            tool.name()
        );
        let mut child = tool
            .program()
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
        let messages = VecDeque::new();
        let mut program = Self {
            child,
            input,
            events,
            messages,
            session_present: false,
        };
        program.send(&connect_command(port, connect));
        let answer = program.await_event(&["connected", "refused"]);
        if answer["event"] == "refused" {
            let code = answer["code"]
                .as_u64()
                .and_then(|code| u8::try_from(code).ok());
            return Err(code.expect("a refusal has a code"));
        }
        program.session_present = answer["session"] == true;
        Ok(program)
    }

    pub(crate) fn session_present(&self) -> bool {
        self.session_present
    }

    pub(crate) fn subscribe(&mut self, filter: &str, qos: u8) -> u8 {
        self.send(&json!({"do": "subscribe", "filter": filter, "qos": qos}));
        let code = self.await_event(&["subscribed"])["code"].as_u64();
        code.and_then(|code| u8::try_from(code).ok())
            .expect("an answer has a code")
    }

    pub(crate) fn unsubscribe(&mut self, filter: &str) {
        self.send(&json!({"do": "unsubscribe", "filter": filter}));
        self.await_event(&["unsubscribed"]);
    }

    pub(crate) fn publish(&mut self, message: &Publish) {
        self.send(&json!({
            "do": "publish",
            "topic": message.topic,
            "payload": message.text(),
            "qos": message.qos,
            "retain": message.retain,
        }));
        self.await_event(&["published"]);
    }

    pub(crate) fn message(&mut self) -> Publish {
        if let Some(message) = self.messages.pop_front() {
            return message;
        }
        let event = self.await_event(&["message"]);
        as_message(&event)
    }

    pub(crate) fn disconnect(mut self) {
        self.send(&json!({"do": "disconnect"}));
        self.await_event(&["disconnected"]);
    }

    /// Ends the program, and with it the connection, without a DISCONNECT.
    pub(crate) fn kill(mut self) {
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

fn connect_command(port: u16, connect: &Connect) -> Value {
    let version = match connect.version {
        Version::V3_1 => "3.1",
        Version::V3_1_1 => "3.1.1",
        Version::V5 => "5.0",
    };
    let mut command = json!({
        "do": "connect",
        "port": port,
        "version": version,
        "id": connect.client_id,
        "clean": connect.clean,
    });
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
