//! The parts of the line that run in processes of their own: the broker, and B.
//!
//! Each is ended by its id when its value is dropped, so nothing outlives the demonstration.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::{mpsc, watch};

use crate::limits::{LAST_WORDS_MAX, NEWS_WAITING_MAX};
use crate::news::News;
use crate::remote::User;

/// How long the broker remembers B when the demonstration has ended.
const SESSION_KEPT_S: &str = "10";
/// What the broker prints before the port it chose.
const LISTENING: &str = "listening on 127.0.0.1:";

/// A part does not start, or does not go on.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// The program cannot be run.
    #[error("cannot start {program}: {error}")]
    Start {
        /// Which.
        program: PathBuf,
        /// What the system says.
        error: std::io::Error,
    },
    /// It ended before it was there.
    #[error("{who} ended before it listened; its output:\n{said}")]
    Silent {
        /// Who.
        who: &'static str,
        /// Its last words.
        said: String,
    },
    /// It cannot be ended.
    #[error("cannot end process {pid}: {error}")]
    Kill {
        /// Which.
        pid: u32,
        /// What the system says.
        error: std::io::Error,
    },
}

/// What the broker keeps over its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keeping {
    /// All that it has acknowledged, on the disk.
    Everything,
    /// Nothing.
    Nothing,
}

/// `unbroken serve`.
#[derive(Debug)]
pub(crate) struct Broker {
    program: PathBuf,
    directory: PathBuf,
    keeping: Keeping,
    child: Child,
    pub(crate) address: SocketAddr,
    pub(crate) pid: u32,
}

impl Broker {
    /// Starts one on a free loopback port, and waits until it listens.
    pub(crate) async fn start(
        program: &Path,
        directory: &Path,
        keeping: Keeping,
    ) -> Result<Self, ProcessError> {
        let (child, address) = listen(program, directory, keeping, 0).await?;
        Ok(Self {
            program: program.to_owned(),
            directory: directory.to_owned(),
            keeping,
            pid: child.id().unwrap_or_default(),
            child,
            address,
        })
    }

    /// Ends it without a word, as a power cut would.
    pub(crate) async fn kill(&mut self) -> Result<(), ProcessError> {
        let pid = self.pid;
        let killed = self.child.kill().await;
        killed.map_err(|error| ProcessError::Kill { pid, error })
    }

    /// Starts it again where it was.
    pub(crate) async fn start_again(&mut self) -> Result<(), ProcessError> {
        let port = self.address.port();
        let (child, _) = listen(&self.program, &self.directory, self.keeping, port).await?;
        self.pid = child.id().unwrap_or_default();
        self.child = child;
        Ok(())
    }
}

async fn listen(
    program: &Path,
    directory: &Path,
    keeping: Keeping,
    port: u16,
) -> Result<(Child, SocketAddr), ProcessError> {
    let mut command = command(program, directory);
    command.args(["serve", "--admin", "off", "-p", &port.to_string()]);
    match keeping {
        Keeping::Everything => command.args(["--data", "broker"]),
        Keeping::Nothing => command.arg("--in-memory"),
    };
    // Embedded defaults, whatever the user's own broker is told.
    for (name, _) in std::env::vars_os() {
        if name
            .to_str()
            .is_some_and(|name| name.starts_with("UNBROKEN_"))
        {
            command.env_remove(name);
        }
    }
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| start_error(program, error))?;
    let mut said = String::new();
    let stdout = child.stdout.take().expect("it is piped");
    let stderr = child.stderr.take().expect("it is piped");
    let mut lines = BufReader::new(stdout).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let digits = line.strip_prefix(LISTENING).and_then(|rest| {
            let end = rest.find(|it: char| !it.is_ascii_digit());
            rest.get(..end.unwrap_or(rest.len()))
        });
        if let Some(port) = digits.and_then(|digits| digits.parse().ok()) {
            // What it logs from now on is read and not kept, so that it never waits for us.
            tokio::spawn(async move {
                let mut log = BufReader::new(stderr).lines();
                while let Ok(Some(_)) = log.next_line().await {}
            });
            tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
            return Ok((child, (Ipv4Addr::LOCALHOST, port).into()));
        }
        said.push_str(&line);
        said.push('\n');
    }
    let mut log = BufReader::new(stderr).lines();
    while let Ok(Some(line)) = log.next_line().await {
        said.push_str(&line);
        said.push('\n');
    }
    Err(ProcessError::Silent {
        who: "the broker",
        said,
    })
}

/// `unbroken pipe`, and what its checks find.
#[derive(Debug)]
pub(crate) struct Processor {
    child: Child,
    pub(crate) pid: u32,
    pub(crate) news: mpsc::Receiver<News>,
    /// The last lines it said that are no news, such as why it ends.
    last_words: watch::Receiver<VecDeque<String>>,
}

impl Processor {
    /// Starts one, and waits until the broker sends it what comes.
    pub(crate) async fn start(
        program: &Path,
        directory: &Path,
        broker: SocketAddr,
        user: &User,
        (from, to): (&str, &str),
    ) -> Result<Self, ProcessError> {
        let mut child = command(program, directory)
            .args(["pipe", "--from", from, "--to", to, "--from-start", "--json"])
            .args(["--spool", "b", "--keep", SESSION_KEPT_S])
            .args([
                "-h",
                &broker.ip().to_string(),
                "-p",
                &broker.port().to_string(),
            ])
            .envs(user.variables())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| start_error(program, error))?;
        let stderr = child.stderr.take().expect("it is piped");
        let mut lines = BufReader::new(stderr).lines();
        let mut said = String::new();
        loop {
            match lines.next_line().await {
                Ok(Some(line)) if News::parse_json(&line) == Some(News::Listening) => break,
                Ok(Some(line)) => {
                    said.push_str(&line);
                    said.push('\n');
                }
                Ok(None) | Err(_) => return Err(ProcessError::Silent { who: "B", said }),
            }
        }
        let (sender, news) = mpsc::channel(NEWS_WAITING_MAX);
        let (saying, last_words) = watch::channel(VecDeque::new());
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                let Some(news) = News::parse_json(&line) else {
                    saying.send_modify(|lines| {
                        lines.truncate(LAST_WORDS_MAX - 1);
                        lines.push_front(line);
                    });
                    continue;
                };
                if sender.send(news).await.is_err() {
                    return;
                }
            }
        });
        Ok(Self {
            pid: child.id().unwrap_or_default(),
            child,
            news,
            last_words,
        })
    }

    /// How it ended and what it said of it, if it has and everything that it said is read.
    pub(crate) fn ended(&mut self) -> Option<String> {
        let status = self.child.try_wait().ok().flatten()?;
        let is_read = self.last_words.has_changed().is_err();
        let lines = self.last_words.borrow();
        let said: Vec<&str> = lines.iter().rev().map(String::as_str).collect();
        is_read.then(|| format!("{status}: {}", said.join("\n")))
    }
}

fn command(program: &Path, directory: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .current_dir(directory)
        .stdin(Stdio::null())
        .kill_on_drop(true);
    command
}

fn start_error(program: &Path, error: std::io::Error) -> ProcessError {
    ProcessError::Start {
        program: program.to_owned(),
        error,
    }
}
