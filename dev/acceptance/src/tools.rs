//! Programs of other people that the features drive, and where to find them.
//!
//! `cargo xtask install-tools` puts them under `target/tools`; `UNBROKEN_TOOLS` names another
//! place:
//!
//! | tool | what is looked for |
//! |---|---|
//! | mosquitto | `mosquitto_pub` and `mosquitto_sub` on the `PATH` |
//! | paho-python | `python/bin/python`, a virtual environment with `paho-mqtt` |
//! | pynng | the same environment, with `pynng` |
//! | sp-cats | `nngcat` and `nanocat` on the `PATH` |
//! | mqtt-js | `node/node_modules/mqtt`, and `node` on the `PATH` |
//! | schemathesis | `python/bin/schemathesis` of the same environment |
//! | cucumber | `cucumber` on the `PATH`, of the version whose wire plug-in Debian has |
//! | paho-go | `go/paho-client`, built from `dev/acceptance/clients/go` |
//! | hivemq | `hivemq-client/run`, built from `dev/acceptance/clients/java` |
//! | chromium | `chromium` and `certutil` on the `PATH`, and what is looked for mqtt-js |
//! | curl, openssl | these on the `PATH` |
//! | prometheus | `prometheus` and `promtool` on the `PATH` |
//! | haproxy, nginx | these on the `PATH` or in `/usr/sbin`; of nginx its module for streams too |
//!
//! A scenario tagged `@tool:<name>` is skipped and counted when its tool is missing, unless
//! `UNBROKEN_REQUIRE_TOOLS=1`, which makes it fail.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::target_directory;

/// Later versions have no wire protocol, or not as a part of Cucumber.
const CUCUMBER: &[u8] = b"2.4.";
/// A module of nginx, where Debian puts it.
pub const NGINX_STREAMS: &str = "/usr/lib/nginx/modules/ngx_stream_module.so";

/// A third-party client, or a runner of features.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    /// `mosquitto_pub` and `mosquitto_sub`.
    Mosquitto,
    /// paho for Python.
    PahoPython,
    /// nng's sockets, in Python.
    Pynng,
    /// `nngcat` of nng and `nanocat` of nanomsg.
    SpCats,
    /// MQTT.js.
    MqttJs,
    /// paho for Go.
    PahoGo,
    /// The client of HiveMQ for Java.
    HiveMq,
    /// MQTT.js in a page of a browser.
    Chromium,
    /// A client of HTTP.
    Curl,
    /// A client of TLS.
    OpenSsl,
    /// A proxy of TCP and TLS.
    HaProxy,
    /// A proxy of TCP and WebSocket.
    Nginx,
    /// Prometheus, and the program that tests its rules. No client, and in no tag.
    Prometheus,
    /// Requests made from the document of an API. No client, and in no tag.
    Schemathesis,
    /// Cucumber with its plug-in for the wire protocol. No client, and in no tag.
    Cucumber,
}

impl Tool {
    /// All of them.
    pub const ALL: [Self; 15] = [
        Self::Mosquitto,
        Self::PahoPython,
        Self::Pynng,
        Self::SpCats,
        Self::MqttJs,
        Self::PahoGo,
        Self::HiveMq,
        Self::Chromium,
        Self::Curl,
        Self::OpenSsl,
        Self::HaProxy,
        Self::Nginx,
        Self::Prometheus,
        Self::Schemathesis,
        Self::Cucumber,
    ];

    /// The name in tags.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mosquitto => "mosquitto",
            Self::PahoPython => "paho-python",
            Self::Pynng => "pynng",
            Self::SpCats => "sp-cats",
            Self::MqttJs => "mqtt-js",
            Self::PahoGo => "paho-go",
            Self::HiveMq => "hivemq",
            Self::Chromium => "chromium",
            Self::Curl => "curl",
            Self::OpenSsl => "openssl",
            Self::HaProxy => "haproxy",
            Self::Nginx => "nginx",
            Self::Prometheus => "prometheus",
            Self::Schemathesis => "schemathesis",
            Self::Cucumber => "cucumber",
        }
    }

    /// The tool with this name in tags.
    pub fn named(name: &str) -> Self {
        Self::ALL
            .into_iter()
            .find(|tool| tool.name() == name)
            .unwrap_or_else(|| panic!("no tool is called {name:?}"))
    }

    /// Whether it can be used on this machine.
    pub fn is_installed(self) -> bool {
        let tools = directory();
        match self {
            Self::Mosquitto => on_path("mosquitto_pub") && on_path("mosquitto_sub"),
            Self::PahoPython => tools.join("python/bin/python").exists(),
            Self::Pynng => {
                let mut python = Command::new(tools.join("python/bin/python"));
                let imported = python.args(["-c", "import pynng"]).output();
                imported.is_ok_and(|imported| imported.status.success())
            }
            Self::SpCats => on_path("nngcat") && on_path("nanocat"),
            Self::MqttJs => tools.join("node/node_modules/mqtt").exists() && on_path("node"),
            Self::PahoGo => tools.join("go/paho-client").exists(),
            Self::HiveMq => tools.join("hivemq-client/run").exists(),
            Self::Chromium => {
                on_path("chromium") && on_path("certutil") && Self::MqttJs.is_installed()
            }
            Self::Curl => on_path("curl"),
            Self::OpenSsl => on_path("openssl"),
            Self::HaProxy => daemon("haproxy").is_some(),
            Self::Nginx => daemon("nginx").is_some() && Path::new(NGINX_STREAMS).exists(),
            Self::Prometheus => on_path("prometheus") && on_path("promtool"),
            Self::Schemathesis => tools.join("python/bin/schemathesis").exists(),
            Self::Cucumber => {
                let version = self.program().arg("--version").output();
                version.is_ok_and(|version| version.stdout.starts_with(CUCUMBER))
            }
        }
    }

    /// The command that starts our small program on top of the client library, or Cucumber.
    pub fn program(self) -> Command {
        let clients = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients");
        let tools = directory();
        match self {
            Self::Mosquitto => panic!("mosquitto's clients are two programs; name one"),
            Self::PahoPython => {
                let mut command = Command::new(tools.join("python/bin/python"));
                command.arg("-u").arg(clients.join("python/client.py"));
                command
            }
            Self::Pynng => {
                let mut command = Command::new(tools.join("python/bin/python"));
                command.arg("-u").arg(clients.join("python/sp.py"));
                command
            }
            Self::SpCats => panic!("nngcat and nanocat are two programs; name one"),
            Self::MqttJs => {
                let mut command = Command::new("node");
                command.arg(clients.join("js/client.js"));
                command.env("NODE_PATH", tools.join("node/node_modules"));
                command
            }
            Self::Chromium => {
                let mut command = Command::new("node");
                command.arg(clients.join("js/browser.js"));
                command.env("NODE_PATH", tools.join("node/node_modules"));
                command
            }
            Self::PahoGo => Command::new(tools.join("go/paho-client")),
            Self::HiveMq => Command::new(tools.join("hivemq-client/run")),
            Self::Curl | Self::OpenSsl | Self::Prometheus => Command::new(self.name()),
            Self::HaProxy | Self::Nginx => {
                Command::new(daemon(self.name()).expect("it is installed"))
            }
            Self::Schemathesis => Command::new(tools.join("python/bin/schemathesis")),
            Self::Cucumber => Command::new("cucumber"),
        }
    }
}

/// Whether a missing tool is a failure.
pub fn required() -> bool {
    env::var_os("UNBROKEN_REQUIRE_TOOLS").is_some_and(|value| value == "1")
}

fn directory() -> PathBuf {
    match env::var_os("UNBROKEN_TOOLS") {
        // A relative path is meant from the workspace, where cargo is called; tests run elsewhere.
        Some(named) => Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../..")
            .join(named),
        None => target_directory().join("tools"),
    }
}

/// A program that Debian puts where only root's path leads.
fn daemon(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let places = env::split_paths(&path).chain(["/usr/sbin".into()]);
    places
        .map(|directory| directory.join(program))
        .find(|program| program.is_file())
}

fn on_path(program: &str) -> bool {
    let Some(path) = env::var_os("PATH") else {
        return false;
    };
    env::split_paths(&path).any(|directory| directory.join(program).is_file())
}
