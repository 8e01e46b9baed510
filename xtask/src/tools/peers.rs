//! The brokers of others that `cargo xtask bench brokers` compares, with their versions.
//!
//! One that is a program is installed as it is; one that is a library is built into a program of
//! ours, `peer-NAME`, from `dev/bench/peers/NAME`, or `dev/bench/peers-rust`. Deliberately
//! absent: what no package gives.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::java::JavaProgram;
use super::{MOSQUITTO, Tool, Tools, apt, go, npm_install, on_path, write_script};
use crate::{Outcome, process, tree};

/// By their names in the benchmark.
pub(super) const ALL: [(&str, Tool); 8] = [
    ("mosquitto", MOSQUITTO),
    ("nats", NATS),
    ("mochi", MOCHI),
    ("aedes", AEDES_TOOL),
    ("hivemq", HIVEMQ),
    ("rabbitmq", RABBITMQ),
    ("rmqtt", RMQTT),
    ("rumqttd", RUMQTTD),
];

/// Those that run without being named, because they are quick to install.
const UNNAMED: [&str; 3] = ["mosquitto", "nats", "mochi"];

/// Whether a peer takes part when these are named.
pub(super) fn is_chosen(peer: &str, names: &[&str]) -> bool {
    if names.is_empty() {
        UNNAMED.contains(&peer)
    } else {
        names.contains(&peer) || names == ["all"]
    }
}

/// Also a tool of `ci`, whose short run of `bench durability` has it.
pub(super) const NATS: Tool = Tool {
    name: "nats-server",
    // The benchmark takes the one that was built here before any on the path.
    is_ready: |tools| {
        let built = tools.go_programs().join("nats-server");
        let program = if built.is_file() {
            &built
        } else {
            Path::new("nats-server")
        };
        let said = process::quiet(Command::new(program).arg("--version"));
        said.is_ok_and(|said| is_pinned(&said, NATS_SERVER))
    },
    install: install_nats_server,
};

/// Load generators that are not ours, for `bench brokers`.
pub(super) const LOAD_GENERATORS: Tool = Tool {
    name: "loadtest and pingtest of 2013",
    is_ready: |_| false, // as below
    install: build_load_generators,
};

const MOCHI: Tool = Tool {
    name: "mochi",
    // Built each time, because our side of it may have changed; Go itself knows what is new.
    is_ready: |_| false,
    install: build_mochi,
};

const AEDES_TOOL: Tool = Tool {
    name: "aedes",
    // Our side of it may have changed; the library is not fetched again.
    is_ready: |_| false,
    install: install_aedes,
};

const HIVEMQ: Tool = Tool {
    name: "HiveMQ CE",
    is_ready: |tools| {
        let is_there = tools.peers().join("peer-hivemq").is_file();
        is_there && HIVEMQ_PROGRAM.is_current(tools)
    },
    install: |tools| HIVEMQ_PROGRAM.build(tools, &tools.peers().join("peer-hivemq")),
};

const HIVEMQ_PROGRAM: JavaProgram = JavaProgram {
    sources: "dev/bench/peers/hivemq",
    class: "PeerHivemq",
    directory: "hivemq",
    flags: "-XX:+UseParallelGC -Xmx4g",
};

const RABBITMQ: Tool = Tool {
    name: "RabbitMQ",
    // The script is ours, and may have changed.
    is_ready: |_| false,
    install: install_rabbitmq,
};

const RMQTT: Tool = Tool {
    name: "rmqtt",
    is_ready: |_| false, // as mochi
    install: |tools| build_rust(tools, "peer-rmqtt"),
};

const RUMQTTD: Tool = Tool {
    name: "rumqttd",
    is_ready: |_| false, // as mochi
    install: |tools| build_rust(tools, "peer-rumqttd"),
};

// Fixed, so that a run next year compares what this one does. Those of libraries of Go, Java and
// Rust are in their `go.mod`, `pom.xml` and `Cargo.toml`.
const NATS_SERVER: &str = "github.com/nats-io/nats-server/v2@v2.15.2";

const AEDES: &str = "aedes@1.2.0";
// Of Debian's packages the version, with whatever Debian has mended in it.
const RABBITMQ_PACKAGE: &str = "rabbitmq-server=3.10.*";

/// Whether a program or package says the version that a pin like `module@v1.2.3` names.
fn is_pinned(said: &str, pin: &str) -> bool {
    let Some((_, pinned)) = pin.rsplit_once('@') else {
        return false;
    };
    let number = |version: &str| version.trim_start_matches('v').to_owned();
    let mut words = said.split_whitespace();
    words.any(|word| number(word) == number(pinned))
}

/// Where no Go can be had that builds it, Debian's own package serves, and the record says which
/// version that is.
fn install_nats_server(tools: &Tools) -> Outcome {
    let built = go::go(tools, &["install", NATS_SERVER]).and_then(|mut go| {
        go.env("GOBIN", tools.go_programs());
        process::quiet(&mut go)
    });
    match built {
        Ok(_) => Ok(()),
        // Another version than the pinned one is better than none.
        Err(_) if on_path("nats-server") => Ok(()),
        Err(_) => apt(&["nats-server"]),
    }
}

fn build_mochi(tools: &Tools) -> Outcome {
    let program = tools.peers().join("peer-mochi");
    go::build(tools, "dev/bench/peers/mochi", &program, &["."])
}

fn build_load_generators(tools: &Tools) -> Outcome {
    let packages = ["loadtest", "pingtest"].map(|name| format!("github.com/jeffallen/mqtt/{name}"));
    let packages: Vec<_> = packages.iter().map(String::as_str).collect();
    // With a separator at the end it is a directory.
    let programs = tools.go_programs().join("");
    go::build(tools, "dev/bench/load-generators", &programs, &packages)
}

/// Builds a program of the workspace of peers in Rust.
fn build_rust(tools: &Tools, program: &str) -> Outcome {
    let target = tools.directory.join("peers-rust");
    let mut cargo = process::cargo(&["build", "--quiet", "--release", "--locked"]);
    cargo
        .args(["--manifest-path", "dev/bench/peers-rust/Cargo.toml"])
        .args(["--package", program, "--target-dir"])
        .arg(&target);
    process::quiet(&mut cargo)?;
    let built = target.join("release").join(program);
    let copy = || {
        fs::create_dir_all(tools.peers())?;
        fs::copy(&built, tools.peers().join(program))
    };
    let copied = copy().map(|_| ());
    copied.map_err(|error| format!("cannot copy {}: {error}", built.display()))
}

/// Debian's script on the path gives up its rights first, and with them the directory of a run.
const RABBITMQ_SCRIPT: &str = "\
if [ \"$1\" = --version ]; then
    exec dpkg-query --show --showformat '${Package} ${Version}\\n' rabbitmq-server
fi
exec /usr/lib/rabbitmq/bin/rabbitmq-server";

fn install_rabbitmq(tools: &Tools) -> Outcome {
    if !Path::new("/usr/lib/rabbitmq/bin/rabbitmq-server").is_file() {
        apt(&[RABBITMQ_PACKAGE])?;
        if on_path("service") {
            // As with Mosquitto, nobody asked for the one that the package starts.
            let _ = process::quiet(Command::new("service").args(["rabbitmq-server", "stop"]));
        }
        // And it leaves Erlang's port mapper, listening on all interfaces. If some node has need of
        // it, it refuses.
        let _ = process::quiet(Command::new("epmd").arg("-kill"));
    }
    write_program(tools, "peer-rabbitmq", RABBITMQ_SCRIPT)
}

/// The script resolves the library beside itself, so it is copied to where that is installed.
fn install_aedes(tools: &Tools) -> Outcome {
    if !on_path("node") || !on_path("npm") {
        apt(&["nodejs", "npm"])?;
    }
    let directory = tools.directory.join("aedes");
    let package = fs::read_to_string(directory.join("node_modules/aedes/package.json"));
    if !package.is_ok_and(|package| is_pinned(&version_of(&package), AEDES)) {
        npm_install(&directory, AEDES)?;
    }
    let script = directory.join("main.mjs");
    let ours = tree::root().join("dev/bench/peers/aedes/main.mjs");
    fs::copy(&ours, &script).map_err(|error| format!("cannot copy {}: {error}", ours.display()))?;
    write_program(
        tools,
        "peer-aedes",
        &format!("exec node '{}' \"$@\"", script.display()),
    )
}

/// As npm has written it into a package.
fn version_of(package: &str) -> String {
    let fields = package
        .lines()
        .filter_map(|line| line.trim().split_once(':'));
    let mut versions = fields.filter(|(name, _)| *name == "\"version\"");
    let version = versions.next().map(|(_, version)| version);
    version.unwrap_or_default().replace(['"', ',', ' '], "")
}

/// A program of some lines of shell, which the last replaces, so that its process is the peer's.
fn write_program(tools: &Tools, name: &str, lines: &str) -> Outcome {
    write_script(&tools.peers().join(name), lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(names: &[&str], expected: &[&str]) {
        let all = ALL.iter().map(|(peer, _)| *peer);
        let chosen: Vec<_> = all.filter(|peer| is_chosen(peer, names)).collect();
        assert_eq!(chosen, expected);
    }

    #[test]
    fn an_older_version_than_the_pinned_one_is_not_ready() {
        assert!(is_pinned("nats-server: v2.15.2\n", NATS_SERVER));
        for other in ["nats-server: v2.9.10", "nats-server: v2.15.20", ""] {
            assert!(!is_pinned(other, NATS_SERVER), "{other}");
        }
        let package = "{\n  \"name\": \"aedes\",\n  \"version\": \"1.2.0\",\n";
        assert!(is_pinned(&version_of(package), AEDES));
        assert!(!is_pinned(
            &version_of(&package.replace("1.2.0", "0.51.3")),
            AEDES
        ));
    }

    #[test]
    fn the_yardstick_is_installed_unless_others_are_named() {
        check(&[], &["mosquitto", "nats", "mochi"]);
        check(&["unbroken", "rmqtt"], &["rmqtt"]);
        check(&["all"], &ALL.map(|(peer, _)| peer));
    }
}
