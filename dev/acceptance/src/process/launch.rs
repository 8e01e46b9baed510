//! How a broker is started: configuration, environment, user.

use super::{
    Broker, CONFIG, DATA, DATA_ON_DISK, DISK, HOME, Log, OWN_BINARY, Running, USER, User, binary,
    is_mosquitto, mosquitto,
};
use crate::disk::Disk;
use crate::door::Transport;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::{env, io};
use tempfile::TempDir;

/// How to start a broker.
#[derive(Clone, Debug, Default)]
pub struct Launch {
    pub(super) config: Option<String>,
    pub(super) own_listeners: bool,
    pub(super) arguments: Vec<String>,
    pub(super) environment: Vec<(String, String)>,
    pub(super) files: Vec<(String, String)>,
    pub(super) shards: Option<u32>,
    pub(super) is_durable: bool,
    /// Its data directory lies on a disk that can fail.
    pub(super) may_fail: bool,
    /// The system's limit of open files for it.
    pub(super) open_files: Option<u32>,
    /// The mask for files that it makes, in octal digits.
    pub(super) umask: Option<&'static str>,
    /// It is run by a user who is not root and names no data directory.
    pub(super) user: Option<User>,
    /// How raw clients reach it.
    pub(super) transport: Transport,
}

impl Launch {
    /// With a configuration file; it still listens where the command line says.
    pub fn config(text: &str) -> Self {
        Self {
            config: Some(text.to_owned()),
            ..Self::default()
        }
    }

    /// With a configuration file that says itself where to listen (on port 0).
    pub fn listeners(text: &str) -> Self {
        Self {
            own_listeners: true,
            ..Self::config(text)
        }
    }

    /// With one more file in the broker's directory, which is where it runs.
    #[must_use]
    pub fn file(mut self, name: &str, content: &str) -> Self {
        self.files.push((name.to_owned(), content.to_owned()));
        self
    }

    /// With one more argument.
    #[must_use]
    pub fn argument(mut self, argument: &str) -> Self {
        self.arguments.push(argument.to_owned());
        self
    }

    /// With an environment variable.
    #[must_use]
    pub fn environment(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// With this many shards, whatever the suite runs with.
    #[must_use]
    pub fn shards(mut self, count: u32) -> Self {
        self.shards = Some(count);
        self
    }

    /// With a data directory in its own: it can be started again where it was.
    #[must_use]
    pub fn durable(mut self) -> Self {
        self.is_durable = true;
        self
    }

    /// The same, on a [disk](Broker::disk) that can fail.
    #[must_use]
    pub fn on_a_disk_that_may_fail(mut self) -> Self {
        self.may_fail = true;
        self.durable()
    }

    /// With so many open files at most. Not by another user.
    #[must_use]
    pub fn open_files(mut self, count: u32) -> Self {
        self.open_files = Some(count);
        self
    }

    /// With this mask for files that it makes, in octal digits. Not by another user.
    #[must_use]
    pub fn umask(mut self, mask: &'static str) -> Self {
        self.umask = Some(mask);
        self
    }

    /// By a user who is not root and whose [home](Broker::home) is empty. What is durable lies
    /// where the broker chooses; it is not on a disk that may fail.
    #[must_use]
    pub fn by(mut self, user: User) -> Self {
        self.user = Some(user);
        self
    }

    /// Starts it and waits until it listens.
    #[track_caller]
    pub fn start(mut self) -> Broker {
        self.transport = Transport::of_the_suite();
        if self.transport != Transport::Tcp {
            let config = self.config.take().unwrap_or_default();
            self.config = Some(self.transport.in_config(&config));
        }
        let directory = self.prepare();
        self.transport.write_files(directory.path());
        let disk = self.may_fail.then(|| {
            let under = directory.path().join(DISK);
            fs::create_dir(&under)
                .and_then(|()| Disk::under(&under, directory.path()))
                .expect("a disk can be made")
        });
        let mut running = self.spawn(directory.path(), disk.as_ref());
        let server = running.wait_for_server(&self, directory.path());
        Broker {
            running,
            server,
            launch: self,
            disk,
            directory,
        }
    }

    /// Starts it and waits until it has ended by itself, as it must when it refuses to serve.
    #[track_caller]
    pub fn run_to_end(self) -> (ExitStatus, String) {
        let directory = self.prepare();
        self.run_to_end_in(directory.path())
    }

    /// The same in a directory that is there.
    #[track_caller]
    pub(super) fn run_to_end_in(&self, directory: &Path) -> (ExitStatus, String) {
        let mut running = self.spawn(directory, None);
        let status = running.wait();
        (status, running.log.whole())
    }

    pub(super) fn prepare(&self) -> TempDir {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        for (name, content) in &self.files {
            fs::write(directory.path().join(name), content).expect("its directory is writable");
        }
        if let Some(config) = &self.config {
            fs::write(directory.path().join(CONFIG), config).expect("its directory is writable");
        }
        if self.user.is_some() {
            give_to_a_user(directory.path()).expect("its directory is writable");
        }
        directory
    }

    pub(super) fn spawn(&self, directory: &Path, disk: Option<&Disk>) -> Running {
        let binary = binary();
        let mut command = match self.user {
            _ if is_mosquitto(&binary) => mosquitto(&binary, directory),
            Some(user) => user.command(self, &binary, directory),
            None => self.unbroken(&binary),
        };
        command
            .args(&self.arguments)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .envs(disk.into_iter().flat_map(Disk::environment))
            .current_dir(directory)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| {
            panic!(
                "{} does not start: {error}. Build it with `cargo build --release -p unbroken`, or \
                 name another with UNBROKEN_BIN",
                binary.display()
            )
        });
        let log = Log::default();
        log.follow(child.stdout.take().expect("stdout is piped"));
        log.follow(child.stderr.take().expect("stderr is piped"));
        Running { child, log }
    }

    pub(super) fn data(&self) -> &'static str {
        match self.user {
            Some(User::Home) => "home/.local/state/unbroken",
            Some(User::StateHome) => "home/unbroken",
            None if self.may_fail => DATA_ON_DISK,
            None => DATA,
        }
    }

    pub(super) fn unbroken(&self, binary: &Path) -> Command {
        let limited = self.open_files.map(|count| format!("ulimit -n {count}"));
        let masked = self.umask.map(|mask| format!("umask {mask}"));
        let before: Vec<_> = limited.into_iter().chain(masked).collect();
        let mut command = if before.is_empty() {
            Command::new(binary)
        } else {
            let mut shell = Command::new("sh");
            let text = format!("{} && exec \"$@\"", before.join(" && "));
            shell.args(["-c", &text, "sh"]).arg(binary);
            shell
        };
        command.arg("serve").env("UNBROKEN__ADMIN__LISTEN", "off");
        if !self.own_listeners {
            command.args(["-p", "0", "--bind", "127.0.0.1"]);
        }
        if self.config.is_some() {
            command.args(["-c", CONFIG]);
        }
        match (self.is_durable, self.user) {
            (true, Some(_)) => {}
            (true, None) => {
                command.args(["--data", self.data()]);
            }
            (false, _) => {
                command.arg("--in-memory");
            }
        }
        let suite = || env::var("UNBROKEN_SHARDS").unwrap_or_else(|_| "1".to_owned());
        match self.shards {
            Some(count) => {
                command.args(["--shards", &count.to_string()]);
            }
            // The flag would override the file.
            None if self.config_says("shards") => {}
            None => {
                command.args(["--shards", &suite()]);
            }
        }
        command
    }

    pub(super) fn config_says(&self, key: &str) -> bool {
        let lines = self.config.iter().flat_map(|text| text.lines());
        let mut keys = lines.filter_map(|line| line.split_once('='));
        keys.any(|(name, _)| name.trim() == key)
    }
}

impl User {
    pub(super) fn command(self, launch: &Launch, binary: &Path, directory: &Path) -> Command {
        let own = directory.join(OWN_BINARY);
        let is_other = own.exists();
        let mut command = launch.unbroken(if is_other { &own } else { binary });
        if is_other {
            command.uid(USER).gid(USER);
        }
        let (set, unset) = match self {
            Self::Home => ("HOME", "XDG_STATE_HOME"),
            Self::StateHome => ("XDG_STATE_HOME", "HOME"),
        };
        command.env(set, directory.join(HOME)).env_remove(unset);
        command
    }
}

/// Makes a home in a directory. Where root runs the tests it becomes somebody else's, who may not
/// reach the binary and so has a copy.
pub(super) fn give_to_a_user(directory: &Path) -> io::Result<()> {
    let home = directory.join(HOME);
    fs::create_dir(&home)?;
    if fs::metadata(&home)?.uid() == 0 {
        // By another process: one that is being started would have a file open that we write.
        let copied = Command::new("cp")
            .arg(binary())
            .arg(directory.join(OWN_BINARY))
            .status()?;
        assert!(copied.success(), "the binary cannot be copied");
        for path in [directory, &home] {
            chown(path, Some(USER), Some(USER))?;
        }
    }
    Ok(())
}
