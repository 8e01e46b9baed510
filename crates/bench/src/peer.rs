//! The brokers that are compared: how each is configured, started on a port, and ended.
//!
//! A new peer is a value in [`peers`]: a name, how to ask its version, and the command that serves
//! a port from a directory.

use crate::{error::BenchError, rows::Row};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use std::{
    fs::{self, File},
    io,
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// What is compared.
pub(crate) const OURS: &str = "unbroken";
/// The yardstick of all ratios.
pub(crate) const YARDSTICK: &str = "mosquitto";
/// How long a peer may take to accept connections.
const START_LIMIT: Duration = Duration::from_secs(20);
/// How long it may take to end when asked to.
const END_LIMIT: Duration = Duration::from_secs(3);
const POLL_EVERY: Duration = Duration::from_millis(5);

/// A broker that can be started.
#[derive(Debug, Clone)]
pub(crate) struct Peer {
    pub(crate) name: &'static str,
    /// How it is set up, for the record.
    pub(crate) setup: &'static str,
    program: PathBuf,
    version: &'static [&'static str],
    serve: fn(&mut Command, u16, &Path) -> io::Result<()>,
    /// How to get the program.
    pub(crate) hint: &'static str,
    only_floor_rows: bool,
    /// It runs only when it is named.
    on_request: bool,
}

/// Every peer there is. `unbroken` is our own program.
pub(crate) fn peers(unbroken: &Path) -> io::Result<Vec<Peer>> {
    let ours = Peer {
        name: OURS,
        setup: "`unbroken serve -p PORT --data DIR`, no configuration",
        program: unbroken.to_owned(),
        version: &["--version"],
        serve: |command, port, dir| {
            serve_unbroken(command, port, dir, &[]);
            Ok(())
        },
        hint: "build it with `cargo build --release -p unbroken`, or name it with --unbroken",
        only_floor_rows: false,
        on_request: false,
    };
    Ok(vec![
        ours.clone(),
        Peer {
            name: YARDSTICK,
            setup: "limits opened: `max_inflight_messages 0`, `max_queued_messages 0`, `set_tcp_nodelay true`, no persistence",
            program: "mosquitto".into(),
            version: &["-h"],
            serve: serve_mosquitto,
            hint: "on Debian, `apt-get install mosquitto`",
            only_floor_rows: false,
            on_request: false,
        },
        Peer {
            name: "relay",
            setup: "cuts frames by their length and forwards them, nothing else: the floor of a broker that wakes for every message",
            program: std::env::current_exe()?,
            version: &["--version"],
            serve: |command, port, _| {
                command.args(["relay", "--port", &port.to_string()]);
                Ok(())
            },
            hint: "it is part of this program",
            only_floor_rows: true,
            on_request: false,
        },
        Peer {
            name: "unbroken1",
            setup: "the same with `--shards 1`",
            serve: |command, port, dir| {
                serve_unbroken(command, port, dir, &["--shards", "1"]);
                Ok(())
            },
            on_request: true,
            ..ours.clone()
        },
        Peer {
            name: "unbroken2",
            setup: "the same with `--shards 2`",
            serve: |command, port, dir| {
                serve_unbroken(command, port, dir, &["--shards", "2"]);
                Ok(())
            },
            on_request: true,
            ..ours.clone()
        },
        Peer {
            name: "unstamped",
            setup: "the same with `UNBROKEN__AUDIT__STAMPING=false`",
            serve: |command, port, dir| {
                command.env("UNBROKEN__AUDIT__STAMPING", "false");
                serve_unbroken(command, port, dir, &[]);
                Ok(())
            },
            on_request: true,
            ..ours
        },
    ])
}

fn serve_unbroken(command: &mut Command, port: u16, dir: &Path, more: &[&str]) {
    command.args(["serve", "-p", &port.to_string(), "--data"]);
    command.arg(dir.join("data")).args(more);
}

fn serve_mosquitto(command: &mut Command, port: u16, dir: &Path) -> io::Result<()> {
    let config = dir.join("mosquitto.conf");
    let text = format!(
        "listener {port} 127.0.0.1\n\
         allow_anonymous true\n\
         max_inflight_messages 0\n\
         max_queued_messages 0\n\
         set_tcp_nodelay true\n\
         persistence false\n\
         log_type error\n"
    );
    fs::write(&config, text)?;
    command.arg("-c").arg(config);
    Ok(())
}

/// Who is compared when messages are to be kept: we in three ways, Mosquitto in two, and NATS.
pub(crate) fn keepers(unbroken: &Path) -> Result<Vec<Peer>, BenchError> {
    let all = peers(unbroken)?;
    let named = |name| choose_one(&all, name);
    let (ours, mosquitto) = (named(OURS)?, named(YARDSTICK)?);
    Ok(vec![
        Peer {
            name: STRICT,
            setup: "`unbroken serve -p PORT --data DIR`: nothing is acknowledged before it is synced",
            ..ours.clone()
        },
        Peer {
            name: RELAXED,
            setup: "the same with `durability = \"relaxed\"`: synced every second",
            serve: |command, port, dir| {
                command.env("UNBROKEN__STORAGE__DURABILITY", "relaxed");
                serve_unbroken(command, port, dir, &[]);
                Ok(())
            },
            ..ours.clone()
        },
        Peer {
            name: MEMORY,
            setup: "`unbroken serve -p PORT --in-memory`",
            serve: |command, port, _| {
                command.args(["serve", "-p", &port.to_string(), "--in-memory"]);
                Ok(())
            },
            ..ours
        },
        Peer {
            name: EACH_CHANGE,
            setup: "`persistence true`, `autosave_on_changes true`, `autosave_interval 1`, limits opened",
            serve: |command, port, dir| {
                serve_keeping_mosquitto(
                    command,
                    port,
                    dir,
                    "autosave_on_changes true\nautosave_interval 1\n",
                )
            },
            ..mosquitto.clone()
        },
        Peer {
            name: HALF_HOUR,
            setup: "`persistence true`, `autosave_interval 1800` (its default: nothing is written meanwhile), limits opened",
            serve: |command, port, dir| {
                serve_keeping_mosquitto(command, port, dir, "autosave_interval 1800\n")
            },
            ..mosquitto
        },
        Peer {
            name: NATS,
            setup: "JetStream's file store, synced every two minutes (its default), `max_ack_pending: 32000`",
            program: "nats-server".into(),
            version: &["--version"],
            serve: serve_nats,
            hint: "`cargo xtask install-tools` builds it",
            ..mosquitto
        },
    ])
}

/// MQTT in NATS is JetStream; above about 32,000 messages on their way, one session's two
/// subscriptions have more than packet ids. With `sync_interval: always` nothing of this load
/// arrived within the four seconds of a run, so it is not among the peers.
fn serve_nats(command: &mut Command, port: u16, dir: &Path) -> io::Result<()> {
    let config = dir.join("nats.conf");
    let store = dir.join("jetstream");
    let store = store.display();
    let text = format!(
        "server_name: bench\n\
         listen: \"127.0.0.1:-1\"\n\
         jetstream {{ store_dir: \"{store}\" }}\n\
         mqtt {{ listen: \"127.0.0.1:{port}\"\nmax_ack_pending: 32000 }}\n"
    );
    fs::write(&config, text)?;
    command.arg("-c").arg(config);
    Ok(())
}

/// Our own, with room for as many messages as one session may wait for in the benchmark.
pub(crate) fn roomy(unbroken: &Path) -> io::Result<Peer> {
    let mut peers = peers(unbroken)?;
    let ours = peers.swap_remove(0);
    Ok(Peer {
        setup: "`unbroken serve -p PORT --data DIR`, with queues of any length",
        serve: |command, port, dir| {
            command.env("UNBROKEN__LIMITS__QUEUE_MESSAGES_MAX", "100000000");
            command.env("UNBROKEN__LIMITS__QUEUE_BYTES_MAX", "64GiB");
            serve_unbroken(command, port, dir, &[]);
            Ok(())
        },
        ..ours
    })
}

/// Names of [`keepers`].
pub(crate) const STRICT: &str = "strict";
pub(crate) const RELAXED: &str = "relaxed";
pub(crate) const MEMORY: &str = "in-memory";
pub(crate) const EACH_CHANGE: &str = "mosquitto-1";
pub(crate) const HALF_HOUR: &str = "mosquitto-1800";
pub(crate) const NATS: &str = "nats";

fn serve_keeping_mosquitto(
    command: &mut Command,
    port: u16,
    dir: &Path,
    saves: &str,
) -> io::Result<()> {
    serve_mosquitto(command, port, dir)?;
    let config = dir.join("mosquitto.conf");
    let text = fs::read_to_string(&config)?;
    // Debian's package gives up its rights when root starts it, and has to write here.
    let keeps = format!(
        "persistence true\npersistence_location {}/\nuser root\n{saves}",
        dir.display()
    );
    fs::write(&config, text.replace("persistence false\n", &keeps))
}

fn choose_one(all: &[Peer], name: &str) -> Result<Peer, BenchError> {
    let found = all.iter().find(|peer| peer.name == name).cloned();
    found.ok_or_else(|| BenchError::Unknown {
        what: "peer",
        name: name.to_owned(),
        known: all.iter().map(|p| p.name).collect::<Vec<_>>().join(", "),
    })
}

/// The peers of these names, or all that need not be named.
pub(crate) fn choose(unbroken: &Path, names: &[String]) -> Result<Vec<Peer>, BenchError> {
    let all = peers(unbroken)?;
    if names.is_empty() {
        return Ok(all.into_iter().filter(|peer| !peer.on_request).collect());
    }
    names.iter().map(|name| choose_one(&all, name)).collect()
}

impl Peer {
    /// One of our own programs, in whatever setup.
    pub(crate) fn is_ours(&self) -> bool {
        [OURS, STRICT, RELAXED, MEMORY].contains(&self.name)
    }

    pub(crate) fn can(&self, row: &Row) -> bool {
        row.has_floor || !self.only_floor_rows
    }

    /// There is no such program here.
    pub(crate) fn is_missing(&self) -> bool {
        let tried = Command::new(&self.program).args(self.version).output();
        tried.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
    }

    /// The first line of what it says about itself.
    pub(crate) fn version(&self) -> Result<String, BenchError> {
        let output = Command::new(&self.program).args(self.version).output();
        let output = output.map_err(|source| self.cannot_start(source))?;
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        Ok(text.lines().next().unwrap_or("unknown").trim().to_owned())
    }

    /// Starts it on a free port in a new directory and waits until it accepts connections.
    pub(crate) fn start(&self) -> Result<Running, BenchError> {
        let dir = TempDir::with_prefix("unbroken-bench-")?;
        let target = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
        let child = self.spawn(target, dir.path())?;
        let mut running = Running { child, dir, target };
        self.wait_until_ready(&mut running)?;
        Ok(running)
    }

    /// Kills it at once, and starts it again where it was.
    pub(crate) fn restart(&self, running: &mut Running) -> Result<(), BenchError> {
        running.child.kill()?;
        running.child.wait()?;
        running.child = self.spawn(running.target, running.dir.path())?;
        self.wait_until_ready(running)
    }

    fn spawn(&self, target: SocketAddr, dir: &Path) -> Result<Child, BenchError> {
        let log = File::create(dir.join("output"))?;
        let mut command = Command::new(&self.program);
        (self.serve)(&mut command, target.port(), dir)?;
        command.current_dir(dir).stdin(Stdio::null());
        command.stdout(log.try_clone()?).stderr(log);
        command.spawn().map_err(|source| self.cannot_start(source))
    }

    fn wait_until_ready(&self, running: &mut Running) -> Result<(), BenchError> {
        match running.wait_until_ready() {
            None => Ok(()),
            Some(why) => Err(BenchError::NotReady {
                peer: self.name,
                port: running.target.port(),
                why,
                said: running.last_words(),
            }),
        }
    }

    fn cannot_start(&self, source: io::Error) -> BenchError {
        BenchError::Start {
            peer: self.name,
            source,
            hint: self.hint,
        }
    }
}

/// A port that was free a moment ago. If another program takes it first, the peer does not come up
/// and the run says so.
fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?
        .local_addr()?
        .port())
}

/// A started peer; ended when dropped.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    dir: TempDir,
    pub(crate) target: SocketAddr,
}

impl Running {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Why it is not ready, if it does not become so.
    fn wait_until_ready(&mut self) -> Option<String> {
        let began = Instant::now();
        while began.elapsed() < START_LIMIT {
            match self.child.try_wait() {
                Ok(None) => {}
                Ok(Some(status)) => return Some(format!("it ended with {status}")),
                Err(error) => return Some(error.to_string()),
            }
            if TcpStream::connect(self.target).is_ok() {
                return None;
            }
            thread::sleep(POLL_EVERY);
        }
        Some(format!("not within {START_LIMIT:?}"))
    }

    /// The end of its output.
    pub(crate) fn last_words(&self) -> String {
        let text = fs::read(self.dir.path().join("output")).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<_> = text.lines().collect();
        lines[lines.len().saturating_sub(10)..].join("\n")
    }

    fn end(&mut self) -> io::Result<()> {
        let pid = i32::try_from(self.child.id()).map_err(io::Error::other)?;
        kill(Pid::from_raw(pid), Signal::SIGTERM)?;
        let began = Instant::now();
        while self.child.try_wait()?.is_none() {
            if began.elapsed() > END_LIMIT {
                self.child.kill()?;
                self.child.wait()?;
                break;
            }
            thread::sleep(POLL_EVERY);
        }
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // If it ended by itself, the run has already shown that.
        drop(self.end());
    }
}
