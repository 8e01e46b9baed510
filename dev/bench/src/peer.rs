//! The brokers that are compared: how each is configured, started on a port, and ended.
//!
//! A new peer is a value in `brokers.rs`: a name, how to ask its version, and the command that
//! serves a port from a directory.

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

mod brokers;
mod keepers;
mod logins;

pub(crate) use self::{
    brokers::{
        FLASHMQ, FLOOR, MOSQUITTO_2_1, MOSQUITTO_WS, ONE_SHARD, OURS, TWO_SHARDS, YARDSTICK, choose,
    },
    keepers::{EACH_CHANGE, HALF_HOUR, MEMORY, NATS, RELAXED, STRICT, keepers, roomy},
    logins::{
        ARGON2ID, HASHES, Hash, PASSWORD, PBKDF2_101, PBKDF2_10000, PBKDF2_210000, with_passwords,
    },
};

/// How long a peer may take to accept connections.
const START_LIMIT: Duration = Duration::from_mins(1);
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
    /// The version that is compared, where another could be on the path.
    pub(crate) pin: Option<&'static str>,
    pub(crate) role: Role,
    /// What clients say on connecting: none, except where that is refused.
    pub(crate) keep_alive_s: u16,
    /// How long it is warmed up at least, where a run has a warm-up at all.
    warm_up: Duration,
    runs: Runs,
}

/// What a peer is compared as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// One of our own programs, in whatever setup.
    Ours,
    /// A broker of others.
    Peer,
    /// Less than a broker: it can do some rows, and nobody has to beat it.
    Floor,
}

/// When it takes part without being named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Runs {
    Always,
    /// Not in the short run, which has to be short.
    InRecords,
    WhenNamed,
}

impl Peer {
    pub(crate) fn can(&self, row: &Row) -> bool {
        row.has_floor || self.role != Role::Floor
    }

    /// Its warm-up in a run that has one of this length for others.
    pub(crate) fn warm_up(&self, of_the_row: Duration) -> Duration {
        if of_the_row.is_zero() {
            of_the_row
        } else {
            of_the_row.max(self.warm_up)
        }
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
        self.start_as(self.serve)
    }

    /// The same with a configuration for this time.
    pub(crate) fn start_as(
        &self,
        serve: impl FnOnce(&mut Command, u16, &Path) -> io::Result<()>,
    ) -> Result<Running, BenchError> {
        let dir = TempDir::with_prefix("unbroken-bench-")?;
        let target = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
        let child = self.spawn(serve, target, dir.path())?;
        let mut running = Running { child, dir, target };
        self.wait_until_ready(&mut running)?;
        Ok(running)
    }

    /// Kills it at once, and starts it again where it was.
    pub(crate) fn restart(&self, running: &mut Running) -> Result<(), BenchError> {
        running.child.kill()?;
        running.child.wait()?;
        running.child = self.spawn(self.serve, running.target, running.dir.path())?;
        self.wait_until_ready(running)
    }

    fn spawn(
        &self,
        serve: impl FnOnce(&mut Command, u16, &Path) -> io::Result<()>,
        target: SocketAddr,
        dir: &Path,
    ) -> Result<Child, BenchError> {
        let log = File::create(dir.join("output"))?;
        let mut command = Command::new(&self.program);
        serve(&mut command, target.port(), dir)?;
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
