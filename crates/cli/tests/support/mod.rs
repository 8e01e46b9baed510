//! What tests of the commands share: processes that end with the test, brokers, and a producer.

#![allow(dead_code, reason = "each test binary uses a part")]

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;
use std::{env, fs, thread};

use nix::sys::signal::Signal;
use nix::unistd::Pid;
use unbroken_client::audit::{AuditedPublisher, PublisherOptions, Unspooled};
use unbroken_client::{Acknowledged, Client, Message, Options};
use unbroken_merkle_log::LaneId;

/// How long anything may take before a test gives up. A passing test never waits this long.
pub(crate) const DEADLINE: Duration = Duration::from_mins(1);

/// A process that ends with the test.
pub(crate) struct Running(pub(crate) Child);

impl Running {
    pub(crate) fn start(words: &[&str]) -> Self {
        Self::spawn(Command::new(env!("CARGO_BIN_EXE_unbroken")), words)
    }

    /// As in a terminal, also where these tests run under `nohup`.
    pub(crate) fn start_in_terminal(words: &[&str]) -> Self {
        let mut command = Command::new("env");
        command.args(["--default-signal=HUP", env!("CARGO_BIN_EXE_unbroken")]);
        Self::spawn(command, words)
    }

    fn spawn(mut command: Command, words: &[&str]) -> Self {
        let child = command
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Self(child)
    }

    /// As `kill -9` does. What it had said on standard error.
    pub(crate) fn kill(&mut self) -> String {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
        let mut said = String::new();
        let mut stderr = self.0.stderr.take().unwrap();
        stderr.read_to_string(&mut said).unwrap();
        said
    }

    pub(crate) fn say(&mut self, line: &str) {
        writeln!(self.0.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    pub(crate) fn lines(&mut self) -> Lines {
        Lines::of(self.0.stdout.take().unwrap())
    }

    /// What it says on standard error, as it comes.
    pub(crate) fn errors(&mut self) -> Lines {
        Lines::of(self.0.stderr.take().unwrap())
    }

    /// As a terminal that is closed does.
    pub(crate) fn hang_up(&self) {
        self.signal(Signal::SIGHUP);
    }

    /// Asks it to end.
    pub(crate) fn terminate(&self) {
        self.signal(Signal::SIGTERM);
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.0.id().try_into().unwrap());
        nix::sys::signal::kill(pid, signal).unwrap();
    }

    /// Its end, with what it said.
    pub(crate) fn output(mut self) -> Output {
        drop(self.0.stdin.take());
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let mut out = self.0.stdout.take().unwrap();
        out.read_to_end(&mut stdout).unwrap();
        let mut err = self.0.stderr.take().unwrap();
        err.read_to_end(&mut stderr).unwrap();
        Output {
            status: self.0.wait().unwrap(),
            stdout,
            stderr,
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Lines of a process as they come.
pub(crate) struct Lines(mpsc::Receiver<String>);

impl Lines {
    fn of(stdout: impl Read + Send + 'static) -> Self {
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self(lines)
    }

    pub(crate) fn next(&self) -> String {
        self.next_after("")
    }

    /// The next one; the panic names `seen` if there is none.
    pub(crate) fn next_after(&self, seen: &str) -> String {
        let next = self.0.recv_timeout(DEADLINE);
        next.unwrap_or_else(|error| panic!("{error} behind {seen:?}"))
    }
}

pub(crate) fn broker() -> (Running, String) {
    broker_on("0", &["--in-memory"])
}

/// On this port; 0 is any.
pub(crate) fn broker_on(port: &str, more: &[&str]) -> (Running, String) {
    let words = [&["serve", "--admin", "off", "-p", port][..], more].concat();
    let mut broker = Running::start(&words);
    let lines = broker.lines();
    loop {
        let line = lines.next();
        if let Some(rest) = line.strip_prefix("listening on 127.0.0.1:") {
            let digits = rest.split(|it: char| !it.is_ascii_digit());
            return (broker, digits.into_iter().next().unwrap().to_owned());
        }
    }
}

pub(crate) async fn client(port: &str) -> Client {
    let to = format!("127.0.0.1:{port}").parse().unwrap();
    Options::new(to).connect().await.unwrap()
}

pub(crate) async fn producer(port: &str) -> AuditedPublisher<Unspooled> {
    let options = PublisherOptions::new(LaneId::new(1).unwrap());
    options.open_unspooled(&client(port).await).await.unwrap()
}

/// Waits until the broker has somebody for a topic. The question bears no stamp, so a stage leaves
/// it alone.
pub(crate) async fn until_there(port: &str, topic: &str) {
    let client = client(port).await;
    let asking = async {
        loop {
            let question = Message::new(topic, *b"").unwrap();
            if client.publish(question).await.unwrap() == Acknowledged::Taken {
                return;
            }
        }
    };
    tokio::time::timeout(DEADLINE, asking).await.unwrap();
}

pub(crate) fn numbered(topic: &str, number: u64) -> Message {
    Message::new(topic, number.to_string().as_bytes()).unwrap()
}

/// Somebody else's broker, which ends with the test.
pub(crate) struct Mosquitto {
    child: Child,
    pub(crate) port: u16,
    _directory: tempfile::TempDir,
}

impl Mosquitto {
    /// `None`, said and unless `UNBROKEN_REQUIRE_TOOLS` is 1, where it is not installed. `cargo
    /// xtask ci` counts the test as skipped.
    pub(crate) fn start() -> Option<Self> {
        let started = Self::start_installed();
        if started.is_none() {
            let required = env::var("UNBROKEN_REQUIRE_TOOLS").is_ok_and(|value| value == "1");
            assert!(!required, "mosquitto is required and not installed");
            let _ = writeln!(io::stdout(), "\n1 test (1 skipped)");
            let _ = writeln!(io::stderr(), "skipped: mosquitto is not installed");
        }
        started
    }

    fn start_installed() -> Option<Self> {
        let path = env::var_os("PATH")?;
        let mut directories = env::split_paths(&path).chain(["/usr/sbin".into()]);
        let program: PathBuf = directories.find_map(|directory| {
            let program = directory.join("mosquitto");
            program.is_file().then_some(program)
        })?;
        let directory = tempfile::tempdir().unwrap();
        // It cannot choose a port itself: one that was free a moment ago.
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let config = directory.path().join("mosquitto.conf");
        let text = format!(
            "listener {port} 127.0.0.1\nallow_anonymous true\nlog_dest stderr\nlog_type all\n\
             max_queued_messages 100000\nuser root\n"
        );
        fs::write(&config, text).unwrap();
        let mut child = Command::new(program)
            .arg("-c")
            .arg(config)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap()).lines();
        let is_running = log.any(|line| line.unwrap().ends_with(" running"));
        assert!(is_running, "mosquitto ended before it listened");
        // Read to its end, so that it never waits for a reader.
        thread::spawn(move || log.for_each(drop));
        Some(Self {
            child,
            port,
            _directory: directory,
        })
    }
}

impl Drop for Mosquitto {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
