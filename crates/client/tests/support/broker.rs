//! Brokers as other processes: ours, and Mosquitto where it is installed.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::{env, fs, thread};

use tempfile::TempDir;

/// Which broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Unbroken,
    Mosquitto,
}

impl Kind {
    /// Those that are installed. Ours must be, and Mosquitto with `UNBROKEN_REQUIRE_TOOLS=1`.
    /// Without it `cargo xtask ci` counts what is left out as skipped, by the line that says so.
    pub(crate) fn installed() -> Vec<Self> {
        if on_path("mosquitto").is_some() {
            return vec![Self::Unbroken, Self::Mosquitto];
        }
        let is_required = env::var_os("UNBROKEN_REQUIRE_TOOLS").is_some_and(|value| value == "1");
        assert!(!is_required, "mosquitto is required and not installed");
        // A closed standard output is nobody's who counts.
        let _ = writeln!(io::stdout(), "\n1 test (1 skipped)");
        let _ = writeln!(io::stderr(), "skipped: mosquitto is not installed");
        vec![Self::Unbroken]
    }
}

/// A broker on a port of its own. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Broker {
    kind: Kind,
    child: Child,
    directory: TempDir,
    address: SocketAddr,
}

impl Broker {
    #[track_caller]
    pub(crate) fn start(kind: Kind) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        Self::start_on(kind, free_port(), directory)
    }

    /// Ours, with a configuration.
    #[track_caller]
    pub(crate) fn configured(text: &str) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        fs::write(directory.path().join(CONFIG), text).expect("its directory is writable");
        Self::start_on(Kind::Unbroken, free_port(), directory)
    }

    /// Ours, with a configuration, and with its data in its directory.
    #[track_caller]
    pub(crate) fn durable(text: &str) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        fs::write(directory.path().join(CONFIG), text).expect("its directory is writable");
        fs::create_dir(directory.path().join(DATA)).expect("its directory is writable");
        Self::start_on(Kind::Unbroken, free_port(), directory)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Kills it and starts it again on the same port, with what it has kept.
    #[track_caller]
    pub(crate) fn kill_and_start_again(&mut self) {
        self.kill();
        let anew = tempfile::tempdir().expect("a temporary directory can be made");
        let directory = std::mem::replace(&mut self.directory, anew);
        let new = Self::start_on(self.kind, self.address.port(), directory);
        drop(std::mem::replace(self, new));
    }

    /// Kills it and starts another on the same port, which knows nothing of the first.
    #[track_caller]
    pub(crate) fn kill_and_start_anew(&mut self) {
        self.kill();
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        let port = self.address.port();
        let new = Self::start_on(self.kind, port, directory);
        drop(std::mem::replace(self, new));
    }

    pub(crate) fn kill(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    #[track_caller]
    fn start_on(kind: Kind, port: u16, directory: TempDir) -> Self {
        let mut command = match kind {
            Kind::Unbroken => unbroken(port, directory.path()),
            Kind::Mosquitto => mosquitto(port, directory.path()),
        };
        command
            .current_dir(directory.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let child = command
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?} does not start: {error}"));
        let mut broker = Self {
            kind,
            address: (Ipv4Addr::LOCALHOST, port).into(),
            directory,
            child,
        };
        broker.wait_until_it_listens();
        broker
    }

    #[track_caller]
    fn wait_until_it_listens(&mut self) {
        let (log, lines) = mpsc::channel();
        follow(
            self.child.stdout.take().expect("stdout is piped"),
            log.clone(),
        );
        follow(self.child.stderr.take().expect("stderr is piped"), log);
        let mut log = String::new();
        // Ends with the broker.
        for line in lines {
            log.push_str(&line);
            log.push('\n');
            let listens = match self.kind {
                Kind::Unbroken => line.contains("listening on 127.0.0.1:"),
                Kind::Mosquitto => line.contains(" running"),
            };
            if listens {
                return;
            }
        }
        panic!("the broker does not listen:\n{log}");
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Reads to the end, so that the broker never waits for a reader.
fn follow(stream: impl Read + Send + 'static, log: mpsc::Sender<String>) {
    thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            // Nobody listens any more once it has started.
            let _ = log.send(line);
        }
    });
}

fn unbroken(port: u16, directory: &Path) -> Command {
    let binary = unbroken_binary();
    assert!(
        binary.exists(),
        "{} does not exist: build it with `cargo build -p unbroken`, or name another with \
         UNBROKEN_BIN",
        binary.display()
    );
    let mut command = Command::new(binary);
    command.args(["serve", "--admin", "off", "--bind", "127.0.0.1"]);
    if directory.join(DATA).exists() {
        command.args(["--data", DATA]);
    } else {
        command.arg("--in-memory");
    }
    command.args(["--shards", "2", "-p", &port.to_string()]);
    if directory.join(CONFIG).exists() {
        command.args(["-c", CONFIG]);
    }
    command
}

/// In the broker's directory, where it has one.
const CONFIG: &str = "broker.toml";
const DATA: &str = "data";

fn mosquitto(port: u16, directory: &Path) -> Command {
    let config = directory.join("mosquitto.conf");
    let text = format!(
        "listener {port} 127.0.0.1\nallow_anonymous true\nlog_type all\nlog_dest stderr\n\
         max_queued_messages 100000\nmax_topic_alias 10\nuser root\n"
    );
    fs::write(&config, text).expect("its directory is writable");
    let mut command = Command::new(on_path("mosquitto").expect("it is installed"));
    command.arg("-c").arg(config);
    command
}

/// The binary that was built last, unless another is named.
fn unbroken_binary() -> PathBuf {
    if let Some(named) = env::var_os("UNBROKEN_BIN") {
        return named.into();
    }
    let program = env::current_exe().expect("the running program has a path");
    let target = program.ancestors().nth(3).expect("tests lie three deep");
    let built = ["release", "debug"].map(|profile| target.join(profile).join("unbroken"));
    let made = |path: &PathBuf| fs::metadata(path).and_then(|meta| meta.modified()).ok();
    let [release, debug] = &built;
    if made(release) >= made(debug) {
        release
    } else {
        debug
    }
    .clone()
}

fn on_path(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    let mut directories = env::split_paths(&path).chain(["/usr/sbin".into()]);
    directories.find_map(|directory| Some(directory.join(program)).filter(|file| file.is_file()))
}

/// One that was free a moment ago. A broker that is killed must come back on its port, so it
/// cannot be left to the broker.
fn free_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| listener.local_addr())
        .expect("a loopback port is free")
        .port()
}
