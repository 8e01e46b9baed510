//! `cargo xtask install-tools`: the programs of others that `ci` uses, and with `--peers` those
//! that `bench brokers` compares.
//!
//! They go under `target/tools` (`UNBROKEN_TOOLS` names another place), except what Debian's
//! package manager installs, and a component of the compiler that rustup adds to it. What is there
//! already is not fetched again. On Debian, as root, everything can be installed, so a tool that is
//! missing afterwards is a failure; elsewhere the tests that need it are skipped and counted.
//!
//! The acceptance crate looks for exactly these places (`dev/acceptance/src/tools.rs`).

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use crate::tally::Tally;
use crate::tools::java::JavaProgram;
use crate::{Outcome, process, tree};

mod go;
mod java;
mod llvm;
mod page;
mod peers;

pub(crate) use llvm::{Compiler, profile_merger};

/// A tool, how to see that it is there, and how to get it.
struct Tool {
    name: &'static str,
    is_ready: fn(&Tools) -> bool,
    install: fn(&Tools) -> Outcome,
}

/// What `ci` uses.
const ALL: [Tool; 15] = [
    MOSQUITTO,
    Tool {
        name: "paho, pynng, schemathesis, xxhash and scipy for Python",
        is_ready: |tools| {
            let mut python = Command::new(tools.python());
            process::quiet(python.args([
                "-c",
                "import paho.mqtt.client, pynng, schemathesis, scipy, xxhash",
            ]))
            .is_ok()
        },
        install: install_python,
    },
    Tool {
        name: "nngcat and nanocat",
        is_ready: |_| on_path("nngcat") && on_path("nanocat"),
        install: |_| apt(&["nng-utils", "nanomsg-utils"]),
    },
    Tool {
        name: "MQTT.js",
        is_ready: |tools| {
            on_path("node") && tools.directory.join("node/node_modules/mqtt").is_dir()
        },
        install: install_mqtt_js,
    },
    Tool {
        name: "paho for Go",
        // Built each time, because our side of it may have changed; Go itself knows what is new.
        is_ready: |_| false,
        install: build_paho_go,
    },
    Tool {
        name: "the client of HiveMQ",
        is_ready: |tools| tools.hivemq_client().is_file() && HIVEMQ_CLIENT.is_current(tools),
        install: |tools| HIVEMQ_CLIENT.build(tools, &tools.hivemq_client()),
    },
    CHROMIUM,
    page::DRIVER,
    Tool {
        name: "curl and openssl",
        is_ready: |_| on_path("curl") && on_path("openssl"),
        install: |_| apt(&["curl", "openssl"]),
    },
    Tool {
        name: "HAProxy and nginx",
        is_ready: |_| {
            is_daemon("haproxy") && is_daemon("nginx") && Path::new(NGINX_STREAMS).is_file()
        },
        install: install_proxies,
    },
    Tool {
        name: "Prometheus and promtool",
        is_ready: |_| on_path("prometheus") && on_path("promtool"),
        install: install_prometheus,
    },
    Tool {
        name: "Cucumber and its wire plug-in",
        is_ready: |_| {
            let version = process::quiet(Command::new("cucumber").arg("--version"));
            version.is_ok_and(|version| version.starts_with(CUCUMBER))
        },
        // Debian's Cucumber is of the last version that the plug-in beside it is made for.
        install: |_| apt(&["cucumber", "ruby-cucumber-wire"]),
    },
    peers::NATS,
    Tool {
        name: "valgrind",
        is_ready: |_| on_path("valgrind"),
        install: |_| apt(&["valgrind"]),
    },
    Tool {
        name: "cargo-fuzz",
        is_ready: |tools| tools.cargo_fuzz().is_file(),
        install: |tools| install_cargo_command(tools, "cargo-fuzz", CARGO_FUZZ),
    },
];

const CHROMIUM: Tool = Tool {
    name: "Chromium",
    is_ready: |_| on_path("chromium") && on_path("certutil"),
    install: |_| apt(&["chromium", "libnss3-tools"]),
};

/// Also the yardstick of `bench brokers`.
const MOSQUITTO: Tool = Tool {
    name: "mosquitto (broker, mosquitto_pub, mosquitto_sub)",
    is_ready: |_| on_path("mosquitto_pub") && on_path("mosquitto_sub") && mosquitto(),
    install: install_mosquitto,
};

// Fixed, so that a run next year tests what this one does.
const PYTHON: [&str; 6] = [
    "numpy==2.4.6",
    "paho-mqtt==2.1.0",
    "pynng==0.9.0",
    "schemathesis==4.32.5",
    "scipy==1.17.1",
    "xxhash==4.1.0",
];
const HIVEMQ_CLIENT: JavaProgram = JavaProgram {
    sources: "dev/acceptance/clients/java",
    class: "HiveMqClient",
    directory: "hivemq-client",
    flags: "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
};
/// A module of nginx, where Debian puts it.
const NGINX_STREAMS: &str = "/usr/lib/nginx/modules/ngx_stream_module.so";
/// What its version begins with.
const CUCUMBER: &str = "2.4.";
const MQTT_JS: &str = "mqtt@5.14.1";
const CARGO_FUZZ: &str = "0.13.1";
const CARGO_MUTANTS: &str = "27.1.0";
const CARGO_DENY: &str = "0.20.2";
const MDBOOK: &str = "0.5.4";

/// What `ci --full` looks at dependencies with.
const DENY: Tool = Tool {
    name: "cargo-deny",
    is_ready: |tools| tools.cargo_deny().is_file(),
    install: |tools| install_cargo_command(tools, "cargo-deny", CARGO_DENY),
};

/// Builds the book in `ci --full`.
const BOOK: Tool = Tool {
    name: "mdbook",
    is_ready: |tools| {
        let version = process::quiet(Command::new(tools.mdbook()).arg("--version"));
        version.is_ok_and(|version| version.trim().ends_with(MDBOOK))
    },
    install: |tools| install_cargo_command(tools, "mdbook", MDBOOK),
};

/// What `mutants` uses, and so `ci --full`.
const MUTANTS: Tool = Tool {
    name: "cargo-mutants",
    is_ready: |tools| {
        let said =
            process::quiet(Command::new(tools.cargo_mutants()).args(["mutants", "--version"]));
        said.is_ok_and(|said| said.split_whitespace().any(|word| word == CARGO_MUTANTS))
    },
    install: |tools| install_cargo_command(tools, "cargo-mutants", CARGO_MUTANTS),
};

/// Where the tools lie.
#[derive(Debug)]
pub(crate) struct Tools {
    pub(crate) directory: PathBuf,
}

impl Tools {
    pub(crate) fn locate() -> Self {
        let directory = match env::var_os("UNBROKEN_TOOLS") {
            Some(named) => tree::root().join(named),
            None => tree::target_directory().join("tools"),
        };
        Self { directory }
    }

    /// The directory of what Go builds.
    pub(crate) fn go_programs(&self) -> PathBuf {
        self.directory.join("go")
    }

    /// The directory that holds cargo's added commands.
    pub(crate) fn cargo_commands(&self) -> PathBuf {
        self.directory.join("cargo/bin")
    }

    /// The interpreter of an environment that has the packages of `ci`.
    pub(crate) fn python(&self) -> PathBuf {
        self.directory.join("python/bin/python")
    }

    pub(crate) fn cargo_fuzz(&self) -> PathBuf {
        self.cargo_commands().join("cargo-fuzz")
    }

    pub(crate) fn cargo_mutants(&self) -> PathBuf {
        self.cargo_commands().join("cargo-mutants")
    }

    pub(crate) fn cargo_deny(&self) -> PathBuf {
        self.cargo_commands().join("cargo-deny")
    }

    pub(crate) fn mdbook(&self) -> PathBuf {
        self.cargo_commands().join("mdbook")
    }

    /// The directory of the peers that are libraries, each in a program of ours.
    pub(crate) fn peers(&self) -> PathBuf {
        self.directory.join("peers")
    }

    /// The script that starts our program on top of the client of HiveMQ.
    fn hivemq_client(&self) -> PathBuf {
        self.directory.join(HIVEMQ_CLIENT.directory).join("run")
    }

    /// Installs what is missing. Missing tools count as skipped where they may be missing.
    pub(crate) fn install(&self) -> Outcome<Tally> {
        let missing = self.install_missing(&ALL)?;
        if !missing.is_empty() && must_have_all() {
            return Err(format!("cannot install {}", missing.join(", ")));
        }
        let mut tally = Tally::default();
        for _ in missing {
            tally += Tally::SKIPPED;
        }
        Ok(tally)
    }

    /// Installs cargo-mutants if it is missing; false: it cannot be had here, and may be missing.
    pub(crate) fn install_cargo_mutants(&self) -> Outcome<bool> {
        self.install_one(&MUTANTS)
    }

    /// Installs cargo-deny if it is missing; false: it cannot be had here, and may be missing.
    pub(crate) fn install_cargo_deny(&self) -> Outcome<bool> {
        self.install_one(&DENY)
    }

    pub(crate) fn has_page_driver(&self) -> bool {
        [CHROMIUM, page::DRIVER]
            .iter()
            .all(|tool| (tool.is_ready)(self))
    }

    /// Installs what the tests of the page need; returns false if it cannot be installed.
    pub(crate) fn install_page_driver(&self) -> Outcome<bool> {
        Ok(self.install_missing([&CHROMIUM, &page::DRIVER])?.is_empty())
    }

    /// Installs mdbook if it is missing; returns false if it cannot be installed.
    pub(crate) fn install_mdbook(&self) -> Outcome<bool> {
        Ok(self.install_missing([&BOOK])?.is_empty())
    }

    fn install_one(&self, tool: &Tool) -> Outcome<bool> {
        let missing = self.install_missing([tool])?;
        if !missing.is_empty() && must_have_all() {
            return Err(format!("cannot install {}", missing.join(", ")));
        }
        Ok(missing.is_empty())
    }

    /// Installs those of the benchmark's peers that are missing: the ones of these names, or all
    /// that run without being named. What cannot be installed is left out of the benchmark, which
    /// says so.
    pub(crate) fn install_peers(&self, names: &[&str]) -> Outcome {
        let chosen = peers::ALL.iter();
        let chosen = chosen.filter(|(peer, _)| peers::is_chosen(peer, names));
        let chosen = chosen.map(|(_, tool)| tool);
        self.install_missing(chosen).map(|_| ())
    }

    /// Installs the load generators of others for `bench brokers`, or says why it cannot.
    pub(crate) fn install_load_generators(&self) -> Outcome {
        self.install_missing([&peers::LOAD_GENERATORS]).map(|_| ())
    }

    /// Returns the names of those that are still missing afterwards.
    fn install_missing<'a>(
        &self,
        tools: impl IntoIterator<Item = &'a Tool>,
    ) -> Outcome<Vec<&'static str>> {
        fs::create_dir_all(&self.directory)
            .map_err(|error| format!("cannot create {}: {error}", self.directory.display()))?;
        let mut missing = Vec::new();
        for tool in tools {
            let name = tool.name;
            if (tool.is_ready)(self) {
                println!("  {name}: is there");
                continue;
            }
            match (tool.install)(self) {
                Ok(()) => println!("  {name}: installed"),
                Err(problem) => {
                    println!("  {name}: missing. {problem}");
                    missing.push(name);
                }
            }
        }
        Ok(missing)
    }
}

pub(crate) fn run(with_peers: bool) -> Outcome {
    let tools = Tools::locate();
    println!("tools in {}:", tools.directory.display());
    tools.install()?;
    if with_peers {
        tools.install_peers(&[])?;
    }
    Ok(())
}

/// Whether a missing tool is a failure here: on Debian, as root, all of them can be installed.
pub(crate) fn must_have_all() -> bool {
    let is_root = process::quiet(Command::new("id").arg("-u")).is_ok_and(|id| id.trim() == "0");
    is_root && Path::new("/etc/debian_version").exists()
}

pub(crate) fn on_path(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

/// Debian puts the broker where only root's path leads.
fn mosquitto() -> bool {
    is_daemon("mosquitto")
}

fn is_daemon(program: &str) -> bool {
    on_path(program) || Path::new("/usr/sbin").join(program).is_file()
}

fn apt(packages: &[&str]) -> Outcome {
    if !must_have_all() {
        return Err(format!("install {} yourself", packages.join(" ")));
    }
    let apt = |arguments: &[&str]| {
        let mut command = Command::new("apt-get");
        command
            .args(["-q", "-y", "--no-install-recommends"])
            .args(arguments)
            .env("DEBIAN_FRONTEND", "noninteractive");
        process::quiet(&mut command).map(|_| ())
    };
    let install: Vec<_> = ["install"].iter().chain(packages).copied().collect();
    // The package lists of a fresh machine are empty or old; asking again is cheap.
    apt(&install).or_else(|_| apt(&["update"]).and_then(|()| apt(&install)))
}

fn install_mosquitto(_: &Tools) -> Outcome {
    let was_there = mosquitto();
    apt(&["mosquitto", "mosquitto-clients"])?;
    if !was_there && on_path("service") {
        // The package starts a broker on the standard port, which nobody here asked for. Where no
        // service manager runs there is nothing to stop, and the command fails.
        let _ = process::quiet(Command::new("service").args(["mosquitto", "stop"]));
    }
    Ok(())
}

fn install_prometheus(_: &Tools) -> Outcome {
    apt(&["prometheus"])?;
    if on_path("service") {
        // As for Mosquitto.
        let _ = process::quiet(Command::new("service").args(["prometheus", "stop"]));
    }
    Ok(())
}

fn install_proxies(_: &Tools) -> Outcome {
    for (program, packages) in [
        ("haproxy", &["haproxy"][..]),
        ("nginx", &["nginx-light", "libnginx-mod-stream"]),
    ] {
        let was_there = is_daemon(program);
        apt(packages)?;
        if !was_there && on_path("service") {
            // As with Mosquitto.
            let _ = process::quiet(Command::new("service").args([program, "stop"]));
        }
    }
    Ok(())
}

/// A program of some lines of shell.
fn write_script(path: &Path, lines: &str) -> Outcome {
    let write = || {
        path.parent().map_or(Ok(()), fs::create_dir_all)?;
        fs::write(path, format!("#!/bin/sh\n{lines}\n"))
    };
    write().map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    process::quiet(Command::new("chmod").arg("+x").arg(path)).map(|_| ())
}

fn install_python(tools: &Tools) -> Outcome {
    install_python_packages(&tools.directory.join("python"), &PYTHON)
}

/// In an environment of its own, which this directory becomes.
fn install_python_packages(directory: &Path, packages: &[&str]) -> Outcome {
    let create = || {
        let mut python = Command::new("python3");
        process::quiet(python.args(["-m", "venv", "--clear"]).arg(directory))
    };
    // Debian keeps the module for virtual environments in a package of its own.
    create().or_else(|_| apt(&["python3", "python3-venv"]).and_then(|()| create()))?;
    let mut pip = Command::new(directory.join("bin/python"));
    pip.args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
    ]);
    process::quiet(pip.args(packages)).map(|_| ())
}

fn install_mqtt_js(tools: &Tools) -> Outcome {
    if !on_path("node") || !on_path("npm") {
        apt(&["nodejs", "npm"])?;
    }
    npm_install(&tools.directory.join("node"), MQTT_JS)
}

fn npm_install(directory: &Path, package: &str) -> Outcome {
    fs::create_dir_all(directory).map_err(|error| error.to_string())?;
    let mut npm = Command::new("npm");
    npm.args([
        "install",
        "--no-audit",
        "--no-fund",
        "--loglevel=error",
        "--prefix",
    ])
    .arg(directory)
    .arg(package);
    process::quiet(&mut npm).map(|_| ())
}

fn build_paho_go(tools: &Tools) -> Outcome {
    let program = tools.go_programs().join("paho-client");
    go::build(tools, "dev/acceptance/clients/go", &program, &["."])
}

fn install_cargo_command(tools: &Tools, name: &str, version: &str) -> Outcome {
    let mut cargo = process::cargo(&["install", "--quiet", "--locked", name]);
    cargo
        .args(["--version", version, "--root"])
        .arg(tools.directory.join("cargo"));
    process::quiet(&mut cargo).map(|_| ())
}
