//! The broker as another process, which is ended again and again and comes back where it was.

use std::collections::VecDeque;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::{env, fs, io};

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::watch;

use unbroken_acceptance::disk::Disk;

use crate::patience::patiently;
use crate::random::Random;

/// What the broker says when clients may come.
const LISTENING: &str = "listening on 127.0.0.1:";
/// Where its data directory is.
const DISK: &str = "disk";
/// Lines of the log that are remembered.
const LINES_MAX: usize = 200;

/// How many shards it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shards {
    Always(u32),
    /// One of [`SHARDS_DRAWN`], anew at each start: what was on one shard is then on another.
    Drawn,
}

/// A broker and where it lives.
#[derive(Debug)]
pub(crate) struct Broker {
    binary: PathBuf,
    /// Its configuration, and its [`DISK`] with the data directory, which it makes itself.
    home: PathBuf,
    shards: Shards,
    /// Draws their number. Nobody else draws from it, so that the seed alone says how many the
    /// broker has at which start.
    random: Random,
    port: u16,
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    child: Child,
    shards: u32,
    log: watch::Receiver<Log>,
}

/// The last lines that it has said.
type Log = VecDeque<String>;

/// The broker does not do what a broker must.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BrokerError {
    #[error(
        "{0} does not start: {1}; build it with `cargo build --release -p unbroken`, or name another with UNBROKEN_BIN"
    )]
    Start(PathBuf, io::Error),
    #[error("the broker does not listen:\n{0}")]
    Deaf(String),
    #[error("the broker was told to stop, and ended with {0}:\n{1}")]
    Stopped(ExitStatus, String),
    #[error("the broker goes on although its disk has failed, or it was told to stop:\n{0}")]
    GoesOn(String),
    #[error("the disk failed, and the broker ended with {0} instead of an error:\n{1}")]
    Ended(ExitStatus, String),
    #[error("the disk failed, and the broker does not say so:\n{0}")]
    Silent(String),
    #[error("cannot handle the broker: {0}")]
    Io(#[from] io::Error),
}

impl Broker {
    /// One that is not started yet, in a directory that exists.
    pub(crate) fn new(
        home: &Path,
        shards: Shards,
        durability: &str,
        seed: u64,
    ) -> io::Result<Self> {
        fs::create_dir(home.join(DISK))?;
        // A damaged store is to be seen here, not set aside. However much a slow subscriber leaves
        // waiting, nothing of it is to be dropped.
        let config = format!(
            "[storage]\non_corruption = \"refuse\"\ndurability = \"{durability}\"\n\
             [broker]\nsys_interval = \"1s\"\n\
             [limits]\nqueue_messages_max = 4000000000\nqueue_bytes_max = \"1000 GiB\"\n"
        );
        fs::write(home.join("unbroken.toml"), config)?;
        // It must come back where its clients look for it, so the port cannot be left to it.
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?
            .local_addr()?
            .port();
        Ok(Self {
            binary: binary()?,
            home: home.to_owned(),
            shards,
            random: Random::new(!seed),
            port,
            running: None,
        })
    }

    /// How many shards it was started with the last time; 0 if it is not running.
    pub(crate) fn shards(&self) -> u32 {
        self.running.as_ref().map_or(0, |running| running.shards)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// The directory that may lie on a disk that fails.
    pub(crate) fn disk(&self) -> PathBuf {
        self.home.join(DISK)
    }

    /// Starts it, on a disk that may fail if there is one.
    pub(crate) fn spawn(&mut self, disk: Option<&Disk>) -> Result<(), BrokerError> {
        let shards = match self.shards {
            Shards::Always(shards) => shards,
            Shards::Drawn => self.random.pick(&SHARDS_DRAWN),
        };
        let mut command = Command::new(&self.binary);
        command
            .args([
                "serve",
                "--admin",
                "off",
                "--bind",
                "127.0.0.1",
                "-c",
                "unbroken.toml",
            ])
            .args([
                "--data",
                &format!("{DISK}/data"),
                "-p",
                &self.port.to_string(),
            ])
            .args(["--shards", &shards.to_string()])
            .current_dir(&self.home)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        if let Some(disk) = disk {
            command.envs(disk.environment());
        }
        let mut child = command
            .spawn()
            .map_err(|error| BrokerError::Start(self.binary.clone(), error))?;
        let (log, _) = watch::channel(Log::new());
        follow(child.stdout.take(), log.clone());
        follow(child.stderr.take(), log.clone());
        let log = log.subscribe();
        self.running = Some(Running { child, shards, log });
        Ok(())
    }

    /// Waits until clients may come.
    pub(crate) async fn listens(&mut self) -> Result<(), BrokerError> {
        let Some(running) = &mut self.running else {
            return Err(BrokerError::Deaf("it is not started".to_owned()));
        };
        match patiently(running.has_said(&[LISTENING])).await {
            Ok(true) => Ok(()),
            _ => Err(BrokerError::Deaf(running.text())),
        }
    }

    /// Waits until clients may come, or until it has ended by itself because its disk has failed.
    pub(crate) async fn listens_or_fails(&mut self) -> Result<(), BrokerError> {
        let Some(running) = &mut self.running else {
            return Err(BrokerError::Deaf("it is not started".to_owned()));
        };
        match patiently(running.has_said(&[LISTENING])).await {
            Ok(true) => Ok(()),
            Ok(false) => self.end_for_its_disk(&[UNAVAILABLE, IO]).await,
            Err(_) => Err(BrokerError::Deaf(running.text())),
        }
    }

    /// Ends it by SIGKILL.
    pub(crate) async fn kill(&mut self) -> Result<(), BrokerError> {
        if let Some(mut running) = self.running.take() {
            running.child.kill().await?;
            self.keep_log(&running)?;
        }
        Ok(())
    }

    /// Tells it to end, and waits until it has, in good order.
    pub(crate) async fn stop(&mut self) -> Result<(), BrokerError> {
        let Some(mut running) = self.running.take() else {
            return Ok(());
        };
        if let Some(pid) = running.child.id() {
            let told = Command::new("kill").arg(pid.to_string()).status().await?;
            debug_assert!(told.success(), "the process is ours and not waited for");
        }
        let Ok(status) = patiently(running.child.wait()).await else {
            return Err(BrokerError::GoesOn(running.text()));
        };
        let status = status?;
        self.keep_log(&running)?;
        if status.success() {
            Ok(())
        } else {
            Err(BrokerError::Stopped(status, running.text()))
        }
    }

    /// Waits until it has ended by itself, as it must when its disk has failed.
    pub(crate) async fn fail(&mut self) -> Result<(), BrokerError> {
        self.end_for_its_disk(&[IO]).await
    }

    async fn end_for_its_disk(&mut self, codes: &[i32]) -> Result<(), BrokerError> {
        let Some(mut running) = self.running.take() else {
            return Ok(());
        };
        let Ok(status) = patiently(running.child.wait()).await else {
            return Err(BrokerError::GoesOn(running.text()));
        };
        let status = status?;
        // Its streams end with it.
        let told = running.has_said(&DISK_WORDS).await;
        self.keep_log(&running)?;
        if !is_one_of(status, codes) {
            return Err(BrokerError::Ended(status, running.text()));
        }
        if told {
            Ok(())
        } else {
            Err(BrokerError::Silent(running.text()))
        }
    }

    /// For who looks into a fault: what each round has said.
    fn keep_log(&self, running: &Running) -> io::Result<()> {
        let mut file = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.home.join("broker.log"))?;
        let Running { shards, .. } = running;
        writeln!(
            file,
            "{}\n--- ended, with --shards {shards}",
            running.text()
        )
    }

    /// The end of its log.
    pub(crate) fn log(&self) -> String {
        self.running
            .as_ref()
            .map_or_else(String::new, Running::text)
    }
}

/// Another, such as that of a panic, says that it did not end for what was done to it.
fn is_one_of(status: ExitStatus, codes: &[i32]) -> bool {
    status.code().is_some_and(|code| codes.contains(&code))
}

impl Running {
    /// Waits until its log has one of these words; false when it has ended and has not.
    async fn has_said(&mut self, words: &[&str]) -> bool {
        let fits = |log: &Log| {
            let mut lines = log.iter();
            lines.any(|line| words.iter().any(|word| line.contains(word)))
        };
        self.log.wait_for(fits).await.is_ok() || fits(&self.log.borrow())
    }

    fn text(&self) -> String {
        let log = self.log.borrow();
        let lines: Vec<&str> = log.iter().map(String::as_str).collect();
        lines.join("\n")
    }
}

fn follow(
    stream: Option<impl tokio::io::AsyncRead + Unpin + Send + 'static>,
    log: watch::Sender<Log>,
) {
    let Some(stream) = stream else { return };
    tokio::spawn(async move {
        let mut reader = BufReader::new(stream).lines();
        while let Ok(Some(line)) = reader.next_line().await {
            log.send_modify(|log| {
                if log.len() == LINES_MAX {
                    log.pop_front();
                }
                log.push_back(line);
            });
        }
    });
}

/// The one that was named, or the one beside this program.
fn binary() -> io::Result<PathBuf> {
    if let Some(named) = env::var_os("UNBROKEN_BIN") {
        return Ok(named.into());
    }
    Ok(env::current_exe()?.with_file_name("unbroken"))
}

/// Fewer than there are cores, as many, and more.
const SHARDS_DRAWN: [u32; 4] = [1, 2, 3, 8];
/// What the system calls the two errors.
const DISK_WORDS: [&str; 2] = ["No space left on device", "Input/output error"];
/// What it ends with when its store cannot be opened.
const UNAVAILABLE: i32 = 69;
/// ... when that has failed since.
const IO: i32 = 74;

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    #[test]
    fn a_broker_that_panics_or_is_killed_has_not_ended_for_its_disk() {
        let panicked = ExitStatus::from_raw(101 << 8);
        let killed = ExitStatus::from_raw(9);
        let well = ExitStatus::from_raw(0);
        for status in [panicked, killed, well] {
            assert!(!is_one_of(status, &[UNAVAILABLE, IO]), "{status}");
        }
        assert!(is_one_of(ExitStatus::from_raw(IO << 8), &[IO]));
        assert!(!is_one_of(ExitStatus::from_raw(UNAVAILABLE << 8), &[IO]));
    }
}
