//! Who takes part in `unbroken-bench brokers`: each with its program, its version and its setup.
//!
//! A peer that is a library is served by a small program of ours called `peer-NAME`, which takes a
//! port; its sources are under `dev/bench/peers` or `peers-rust`, and `cargo xtask bench` builds
//! it. One that could be another on the path has the version here that is installed. Limits are
//! opened for everyone: a message that a limit drops is not a message routed.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use super::{Peer, Role, Runs, keepers};
use crate::{bars::YARDSTICK_VERSION, error::BenchError, machine::BUILD_OURS};

/// What is compared.
pub(crate) const OURS: &str = "unbroken";
/// The yardstick of all ratios.
pub(crate) const YARDSTICK: &str = "mosquitto";
/// Our own with so many shards.
pub(crate) const ONE_SHARD: &str = "unbroken1";
pub(crate) const TWO_SHARDS: &str = "unbroken2";
/// Programs that no package gives, by the names they have in the directory of `--peers-dir`.
pub(crate) const FLASHMQ: &str = "flashmq";
pub(crate) const MOSQUITTO_2_1: &str = "mosquitto-2.1";
/// 2.0 with WebSocket, which Debian's has not.
pub(crate) const MOSQUITTO_WS: &str = "mosquitto-ws";
/// Our own of an earlier commit, as `unbroken-before` in the same directory.
pub(crate) const BEFORE: &str = "before";

const BY_THE_BENCHMARK: &str = "`cargo xtask bench brokers` installs it when it is to take part";
const FROM_THE_DIRECTORY: &str =
    "no package of Debian 12 has it: build it, and name its directory with --peers-dir";

/// One line of the table: a [`Peer`] whose program is not looked up yet.
#[derive(Clone, Copy)]
struct Entry {
    name: &'static str,
    setup: &'static str,
    program: Program,
    version: &'static [&'static str],
    serve: fn(&mut Command, u16, &Path) -> io::Result<()>,
    hint: &'static str,
    pin: Option<&'static str>,
    role: Role,
    keep_alive_s: u16,
    warm_up: Duration,
    /// One of the directory of `--peers-dir` is in records only if there is such a directory.
    runs: Runs,
}

/// Where a program is.
#[derive(Clone, Copy)]
enum Program {
    /// Our broker.
    Unbroken,
    /// This very program.
    Bench,
    OnPath(&'static str),
    /// In the directory of `--peers-dir`.
    InDirectory(&'static str),
}

const UNBROKEN: Entry = Entry {
    name: OURS,
    setup: "`unbroken serve -p PORT --data DIR`, no configuration",
    program: Program::Unbroken,
    version: &["--version"],
    serve: |command, port, dir| {
        serve_unbroken(command, port, dir, &[]);
        Ok(())
    },
    hint: BUILD_OURS,
    pin: None,
    role: Role::Ours,
    keep_alive_s: 0,
    warm_up: Duration::ZERO,
    runs: Runs::Always,
};

const MOSQUITTO: Entry = Entry {
    name: YARDSTICK,
    setup: "limits opened: `max_inflight_messages 0`, `max_queued_messages 0`, `set_tcp_nodelay true`, no persistence",
    program: Program::OnPath("mosquitto"),
    version: &["-h"],
    serve: serve_mosquitto,
    hint: "on Debian, `apt-get install mosquitto`",
    pin: Some(YARDSTICK_VERSION),
    role: Role::Peer,
    ..UNBROKEN
};

/// A program of ours around a library; it takes a port.
const LIBRARY: Entry = Entry {
    name: "",
    setup: "",
    program: Program::OnPath(""),
    serve: |command, port, _| {
        command.arg(port.to_string());
        Ok(())
    },
    hint: BY_THE_BENCHMARK,
    role: Role::Peer,
    runs: Runs::WhenNamed,
    ..UNBROKEN
};

const FLASH: Entry = Entry {
    name: FLASHMQ,
    setup: "`thread_count` one a core (its default), `tcp_nodelay true`, limits opened",
    program: Program::InDirectory(FLASHMQ),
    serve: |command, port, dir| serve_flashmq(command, port, dir, None),
    hint: FROM_THE_DIRECTORY,
    runs: Runs::InRecords,
    ..LIBRARY
};

/// The relay of this program.
pub(crate) const FLOOR: &str = "relay";

const TABLE: [Entry; 18] = [
    UNBROKEN,
    MOSQUITTO,
    Entry {
        name: FLOOR,
        setup: "cuts frames by their length and forwards them, nothing else: the floor of a broker that wakes for every message",
        program: Program::Bench,
        serve: |command, port, _| {
            command.args(["relay", "--port", &port.to_string()]);
            Ok(())
        },
        hint: "it is part of this program",
        role: Role::Floor,
        ..UNBROKEN
    },
    Entry {
        name: keepers::NATS,
        setup: "MQTT listener on JetStream (file store), `max_ack_pending: 32000`",
        program: Program::OnPath("nats-server"),
        serve: keepers::serve_nats,
        pin: Some(keepers::NATS_VERSION),
        runs: Runs::InRecords,
        ..LIBRARY
    },
    Entry {
        name: "mochi",
        setup: "our `main` around the library: 32,768 writes pending for a client, 65,535 messages in flight",
        program: Program::OnPath("peer-mochi"),
        pin: Some("2.7.9"),
        runs: Runs::InRecords,
        ..LIBRARY
    },
    Entry {
        name: "aedes",
        setup: "our script around the library: no limits of its queues",
        program: Program::OnPath("peer-aedes"),
        pin: Some("1.2.0"),
        ..LIBRARY
    },
    Entry {
        name: "hivemq",
        setup: "our `main` around HiveMQ CE embedded: parallel collector, `-Xmx4g`, in memory, queues of a million; warmed up for 3 s",
        program: Program::OnPath("peer-hivemq"),
        // By then most of what is hot is compiled.
        warm_up: Duration::from_secs(3),
        ..LIBRARY
    },
    Entry {
        name: "rabbitmq",
        setup: "the plugin for MQTT and nothing else, `mqtt.prefetch = 65535`",
        program: Program::OnPath("peer-rabbitmq"),
        serve: serve_rabbitmq,
        pin: Some("3.10"),
        ..LIBRARY
    },
    Entry {
        name: "rmqtt",
        setup: "our `main` around the library: queues of a million, 65,535 messages in flight, `nodelay`, never too busy for a client",
        program: Program::OnPath("peer-rmqtt"),
        pin: Some("0.24.0"),
        ..LIBRARY
    },
    Entry {
        name: "rumqttd",
        setup: "our `main` around the library: ten segments of 100 MiB, 65,535 messages in flight; clients with a keep alive of 65,535 s",
        program: Program::OnPath("peer-rumqttd"),
        pin: Some("0.20.0"),
        // It refuses who wants none.
        keep_alive_s: u16::MAX,
        ..LIBRARY
    },
    FLASH,
    Entry {
        name: "flashmq1",
        setup: "the same with `thread_count 1`",
        serve: |command, port, dir| serve_flashmq(command, port, dir, Some(1)),
        ..FLASH
    },
    Entry {
        name: MOSQUITTO_2_1,
        setup: "as Mosquitto 2.0",
        program: Program::InDirectory(MOSQUITTO_2_1),
        hint: FROM_THE_DIRECTORY,
        pin: None,
        runs: Runs::InRecords,
        ..MOSQUITTO
    },
    Entry {
        name: MOSQUITTO_WS,
        setup: "as Mosquitto 2.0, built `WITH_WEBSOCKETS=yes`",
        program: Program::InDirectory(MOSQUITTO_WS),
        hint: FROM_THE_DIRECTORY,
        pin: None,
        runs: Runs::WhenNamed,
        ..MOSQUITTO
    },
    Entry {
        name: BEFORE,
        setup: "our own of an earlier commit, started in the same way",
        program: Program::InDirectory("unbroken-before"),
        hint: "build the earlier commit, and name the directory of its `unbroken-before` with --peers-dir",
        runs: Runs::WhenNamed,
        ..UNBROKEN
    },
    Entry {
        name: ONE_SHARD,
        setup: "the same with `--shards 1`",
        serve: |command, port, dir| {
            serve_unbroken(command, port, dir, &["--shards", "1"]);
            Ok(())
        },
        runs: Runs::WhenNamed,
        ..UNBROKEN
    },
    Entry {
        name: TWO_SHARDS,
        setup: "the same with `--shards 2`",
        serve: |command, port, dir| {
            serve_unbroken(command, port, dir, &["--shards", "2"]);
            Ok(())
        },
        runs: Runs::WhenNamed,
        ..UNBROKEN
    },
    Entry {
        name: "unstamped",
        setup: "the same with `UNBROKEN__AUDIT__STAMPING=false`",
        serve: |command, port, dir| {
            command.env("UNBROKEN__AUDIT__STAMPING", "false");
            serve_unbroken(command, port, dir, &[]);
            Ok(())
        },
        runs: Runs::WhenNamed,
        ..UNBROKEN
    },
];

/// Every peer there is. `unbroken` is our own program, `directory` holds those that no package
/// gives.
pub(super) fn peers(unbroken: &Path, directory: Option<&Path>) -> io::Result<Vec<Peer>> {
    let peer = |entry: &Entry| entry.peer(unbroken, directory);
    TABLE.iter().map(peer).collect()
}

impl Entry {
    fn peer(&self, unbroken: &Path, directory: Option<&Path>) -> io::Result<Peer> {
        // Without a directory they are missing, and a path that leads nowhere says so as well as
        // any.
        let nowhere = Path::new("/nonexistent");
        let program = match self.program {
            Program::Unbroken => unbroken.to_owned(),
            Program::Bench => env::current_exe()?,
            Program::OnPath(name) => name.into(),
            Program::InDirectory(name) => directory.unwrap_or(nowhere).join(name),
        };
        let is_missing = matches!(self.program, Program::InDirectory(_)) && directory.is_none();
        Ok(Peer {
            name: self.name,
            setup: self.setup,
            program,
            version: self.version,
            serve: self.serve,
            hint: self.hint,
            pin: self.pin,
            role: self.role,
            keep_alive_s: self.keep_alive_s,
            warm_up: self.warm_up,
            runs: if is_missing {
                Runs::WhenNamed
            } else {
                self.runs
            },
        })
    }
}

/// In place of names: every broker there is, and the floor, and of ours the default.
const EVERYONE: &str = "all";

/// The peers of these names, or all that need not be named; in a short run fewer.
pub(crate) fn choose(
    unbroken: &Path,
    directory: Option<&Path>,
    names: &[String],
    short: bool,
) -> Result<Vec<Peer>, BenchError> {
    let all = peers(unbroken, directory)?;
    if names.is_empty() {
        let taken = |peer: &Peer| match peer.runs {
            Runs::Always => true,
            Runs::InRecords => !short,
            Runs::WhenNamed => false,
        };
        return Ok(all.into_iter().filter(taken).collect());
    }
    if names == [EVERYONE] {
        let taken = |peer: &Peer| peer.role != Role::Ours || peer.runs == Runs::Always;
        return Ok(all.into_iter().filter(taken).collect());
    }
    names.iter().map(|name| choose_one(&all, name)).collect()
}

pub(super) fn choose_one(all: &[Peer], name: &str) -> Result<Peer, BenchError> {
    let found = all.iter().find(|peer| peer.name == name).cloned();
    found.ok_or_else(|| BenchError::Unknown {
        what: "peer",
        name: name.to_owned(),
        known: all.iter().map(|p| p.name).collect::<Vec<_>>().join(", "),
    })
}

pub(super) fn serve_unbroken(command: &mut Command, port: u16, dir: &Path, more: &[&str]) {
    command.args(["serve", "--admin", "off", "-p", &port.to_string(), "--data"]);
    command.arg(dir.join("data")).args(more);
}

pub(super) fn serve_mosquitto(command: &mut Command, port: u16, dir: &Path) -> io::Result<()> {
    let text = format!(
        "listener {port} 127.0.0.1\n\
         allow_anonymous true\n\
         max_inflight_messages 0\n\
         max_queued_messages 0\n\
         set_tcp_nodelay true\n\
         persistence false\n\
         log_type error\n"
    );
    configure(command, "-c", dir.join("mosquitto.conf"), &text)
}

/// Nagle's algorithm is on by default there, which shows as 50 ms in requests and replies.
fn serve_flashmq(
    command: &mut Command,
    port: u16,
    dir: &Path,
    threads: Option<u32>,
) -> io::Result<()> {
    let threads = threads.map_or_else(String::new, |count| format!("thread_count {count}\n"));
    let text = format!(
        "allow_anonymous true\n\
         log_level warning\n\
         max_qos_msg_pending_per_client 65535\n\
         max_qos_bytes_pending_per_client 1000000000\n\
         {threads}\
         listen {{\n\
         protocol mqtt\n\
         inet_protocol ip4\n\
         inet4_bind_address 127.0.0.1\n\
         port {port}\n\
         tcp_nodelay true\n\
         }}\n"
    );
    configure(command, "--config-file", dir.join("flashmq.conf"), &text)
}

/// A node of its own in the run's directory, which nobody can join. Told its name by the first
/// argument it has one before RabbitMQ looks, so that this does not start Erlang's port mapper,
/// which would listen on all interfaces and stay behind.
fn serve_rabbitmq(command: &mut Command, port: u16, dir: &Path) -> io::Result<()> {
    let config = dir.join("rabbitmq.conf");
    let text = format!(
        "listeners.tcp = none\n\
         mqtt.listeners.tcp.1 = 127.0.0.1:{port}\n\
         mqtt.allow_anonymous = true\n\
         mqtt.prefetch = 65535\n\
         mqtt.tcp_listen_options.nodelay = true\n\
         mqtt.tcp_listen_options.backlog = 4096\n\
         log.console.level = error\n"
    );
    fs::write(&config, text)?;
    let plugins = dir.join("enabled_plugins");
    fs::write(&plugins, "[rabbitmq_mqtt].\n")?;
    // The node is this process, and no shell of Erlang's waits for words from it.
    command.env("RABBITMQ_ALLOW_INPUT", "1");
    command.env("RABBITMQ_SERVER_START_ARGS", "-noinput");
    let node = format!("bench{port}@127.0.0.1");
    // Port 0 is any that is free.
    let alone = format!(
        "-name {node} -start_epmd false -erl_epmd_port 0 \
         -kernel inet_dist_use_interface {{127,0,0,1}}"
    );
    command.env("RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS", alone);
    command.env("RABBITMQ_NODENAME", node);
    command.env("RABBITMQ_USE_LONGNAME", "true");
    command.env("RABBITMQ_CONFIG_FILE", config);
    command.env("RABBITMQ_ENABLED_PLUGINS_FILE", plugins);
    for (name, place) in [("HOME", "home"), ("RABBITMQ_MNESIA_BASE", "data")] {
        let place = dir.join(place);
        // There already when it is started again.
        fs::create_dir_all(&place)?;
        command.env(name, place);
    }
    command.env("RABBITMQ_LOG_BASE", dir.join("log"));
    command.env("RABBITMQ_LOGS", "-");
    Ok(())
}

fn configure(command: &mut Command, flag: &str, path: PathBuf, text: &str) -> io::Result<()> {
    fs::write(&path, text)?;
    command.arg(flag).arg(path);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(named: &[&str], short: bool) -> Vec<&'static str> {
        let named: Vec<_> = named.iter().map(ToString::to_string).collect();
        let chosen = choose(Path::new("unbroken"), None, &named, short).unwrap();
        chosen.iter().map(|peer| peer.name).collect()
    }

    #[test]
    fn a_short_run_takes_fewer_and_all_means_every_broker_once() {
        assert_eq!(names(&[], true), [OURS, YARDSTICK, "relay"]);
        assert!(names(&[], false).contains(&"nats"));
        let all = names(&["all"], false);
        assert!(all.contains(&"aedes") && all.contains(&"rabbitmq") && all.contains(&FLASHMQ));
        assert!(!all.contains(&ONE_SHARD));
    }

    #[test]
    fn one_peer_is_warmed_up_longer_and_none_in_a_run_without_a_warm_up() {
        let names = ["hivemq", "mosquitto"].map(String::from);
        let peers = choose(Path::new("unbroken"), None, &names, false).unwrap();
        let [hivemq, mosquitto] = &peers[..] else {
            panic!("{peers:?}");
        };
        let short = Duration::from_millis(300);
        assert_eq!(hivemq.warm_up(short), Duration::from_secs(3));
        assert_eq!(mosquitto.warm_up(short), short);
        assert_eq!(hivemq.warm_up(Duration::ZERO), Duration::ZERO);
    }

    #[test]
    fn the_version_that_is_expected_is_the_one_that_is_installed() {
        let tools = include_str!("../../../../xtask/src/tools/peers.rs");
        let go = include_str!("../../peers/mochi/go.mod");
        let rmqtt = include_str!("../../peers-rust/rmqtt/Cargo.toml");
        let rumqttd = include_str!("../../peers-rust/rumqttd/Cargo.toml");
        let peers = peers(Path::new("unbroken"), None).unwrap();
        for (name, source, before) in [
            (keepers::NATS, tools, "nats-server/v2@v"),
            ("mochi", go, "mochi-mqtt/server/v2 v"),
            ("aedes", tools, "\"aedes@"),
            ("rabbitmq", tools, "rabbitmq-server="),
            ("rmqtt", rmqtt, "rmqtt = { version = \"="),
            ("rumqttd", rumqttd, "rumqttd = { version = \"="),
        ] {
            let pin = choose_one(&peers, name).unwrap().pin.unwrap();
            assert!(source.contains(&format!("{before}{pin}")), "{name} {pin}");
        }
    }

    #[test]
    fn an_unknown_name_is_reported_with_the_known_ones() {
        let names = [String::from("mosquito")];
        let error = choose(Path::new("unbroken"), None, &names, false).unwrap_err();
        assert!(error.to_string().contains("mosquitto"));
    }
}
