//! The broker as another process.
//!
//! Each one runs in its own directory on a port it chose itself, is ended by its process id, and
//! its log is printed when the test that owns it fails. One that is [durable](Launch::durable) can
//! be killed and started again where it was.
//!
//! `UNBROKEN_BIN` names another binary. When that is a `mosquitto`, it is started as one: a test
//! can then be tried against a second opinion. No result depends on that.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::{MetadataExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{env, io, thread};

use tempfile::TempDir;

use crate::DEADLINE;
use crate::client::Client;
use crate::disk::Disk;
use crate::raw::{Connect, Version};

/// The data directory of a durable broker, in its own.
const DATA: &str = "data";
/// A directory that lies on a disk that may fail, and the data directory in it, which the broker
/// makes itself.
const DISK: &str = "disk";
const DATA_ON_DISK: &str = "disk/data";
const CONFIG: &str = "unbroken.toml";
/// The home of a user who is not root.
const HOME: &str = "home";
/// Who that is, where root runs the tests, and the binary of that user.
const USER: u32 = 65_534;
const OWN_BINARY: &str = "unbroken";

/// The longest wait between two looks whether something has happened.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// How to start a broker.
#[derive(Clone, Debug, Default)]
pub struct Launch {
    config: Option<String>,
    own_listeners: bool,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    files: Vec<(String, String)>,
    shards: Option<u32>,
    is_durable: bool,
    /// Its data directory lies on a disk that can fail.
    may_fail: bool,
    /// The system's limit of open files for it.
    open_files: Option<u32>,
    /// It is run by a user who is not root and names no data directory.
    user: Option<User>,
}

/// What a user's environment says.
#[derive(Clone, Copy, Debug)]
pub enum User {
    /// Only where its home is.
    Home,
    /// Also where programs keep what must outlive them, which is the home itself.
    StateHome,
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

    /// By a user who is not root and whose [home](Broker::home) is empty. What is durable lies
    /// where the broker chooses; it is not on a disk that may fail.
    #[must_use]
    pub fn by(mut self, user: User) -> Self {
        self.user = Some(user);
        self
    }

    /// Starts it and waits until it listens.
    #[track_caller]
    pub fn start(self) -> Broker {
        let directory = self.prepare();
        let disk = self.may_fail.then(|| {
            let under = directory.path().join(DISK);
            fs::create_dir(&under)
                .and_then(|()| Disk::under(&under, directory.path()))
                .expect("a disk can be made")
        });
        let mut running = self.spawn(directory.path(), disk.as_ref());
        let address = running.wait_for_address();
        Broker {
            running,
            address,
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
    fn run_to_end_in(&self, directory: &Path) -> (ExitStatus, String) {
        let mut running = self.spawn(directory, None);
        let status = running.wait();
        (status, running.log.whole())
    }

    fn prepare(&self) -> TempDir {
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

    fn spawn(&self, directory: &Path, disk: Option<&Disk>) -> Running {
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

    fn data(&self) -> &'static str {
        match self.user {
            Some(User::Home) => "home/.local/state/unbroken",
            Some(User::StateHome) => "home/unbroken",
            None if self.may_fail => DATA_ON_DISK,
            None => DATA,
        }
    }

    fn unbroken(&self, binary: &Path) -> Command {
        let mut command = match self.open_files {
            None => Command::new(binary),
            Some(count) => {
                let mut shell = Command::new("sh");
                let limited = format!("ulimit -n {count} && exec \"$@\"");
                shell.args(["-c", &limited, "sh"]).arg(binary);
                shell
            }
        };
        command.arg("serve");
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

    fn config_says(&self, key: &str) -> bool {
        let lines = self.config.iter().flat_map(|text| text.lines());
        let mut keys = lines.filter_map(|line| line.split_once('='));
        keys.any(|(name, _)| name.trim() == key)
    }
}

impl User {
    fn command(self, launch: &Launch, binary: &Path, directory: &Path) -> Command {
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
fn give_to_a_user(directory: &Path) -> io::Result<()> {
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

/// A broker that listens. Dropping it ends it.
#[derive(Debug)]
pub struct Broker {
    running: Running,
    address: SocketAddr,
    launch: Launch,
    disk: Option<Disk>,
    directory: TempDir,
}

impl Broker {
    /// Starts one with no configuration file.
    #[track_caller]
    pub fn start() -> Self {
        Launch::default().start()
    }

    /// Starts one with a configuration file.
    #[track_caller]
    pub fn with_config(text: &str) -> Self {
        Launch::config(text).start()
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The directory it runs in.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.running.child.id()
    }

    /// Everything it has logged so far.
    pub fn log(&self) -> String {
        self.running.log.text()
    }

    /// Waits until it has logged this.
    #[track_caller]
    pub fn wait_for_log(&self, part: &str) -> String {
        self.running.log.wait_for(part)
    }

    /// A connection on which nothing has been said; replies are read as 5.0.
    pub fn open(&self) -> Client {
        Client::open(self.address, Version::V5)
    }

    /// A connection on which nothing has been said, read in the given version.
    pub fn open_as(&self, version: Version) -> Client {
        Client::open(self.address, version)
    }

    /// A 5.0 client with a clean session.
    #[track_caller]
    pub fn connect(&self, client_id: &str) -> Client {
        self.accept(&Connect::v5(client_id))
    }

    /// A client of the given version with a clean session.
    #[track_caller]
    pub fn connect_as(&self, version: Version, client_id: &str) -> Client {
        self.accept(&Connect::new(version, client_id))
    }

    /// A client that connects like this and is accepted.
    #[track_caller]
    pub fn accept(&self, connect: &Connect) -> Client {
        Client::connect(self.address, connect)
    }

    /// A connection on which this CONNECT was sent and nothing was read.
    pub fn attempt(&self, connect: &Connect) -> Client {
        let mut client = Client::open(self.address, connect.version);
        client.send(connect.encode());
        client
    }

    /// Lets more than a second pass on the broker's own clock: a client with a keep alive of one
    /// second says nothing until it is dropped.
    #[track_caller]
    pub fn let_a_second_pass(&self) {
        self.accept(&Connect::v5("clock").keep_alive(1))
            .drain_to_close();
    }

    /// Tells it to read its configuration again.
    pub fn reload(&self) {
        signal(self.pid(), "HUP");
    }

    /// Replaces the configuration file it was started with.
    pub fn rewrite_config(&self, text: &str) {
        fs::write(self.directory().join(CONFIG), text).expect("its directory is writable");
    }

    /// Asks it to end, without waiting.
    pub fn ask_to_end(&self) {
        signal(self.pid(), "TERM");
    }

    /// Waits until it has ended.
    #[track_caller]
    pub fn wait(&mut self) -> ExitStatus {
        self.running.wait()
    }

    /// Ends it without a word, by SIGKILL.
    pub fn kill(&mut self) {
        self.running.kill();
    }

    /// Waits until a sync has made safe what is in this file now.
    #[track_caller]
    pub fn wait_for_sync(&self, file: &Path) {
        let disk = self.disk();
        let now = disk.now().expect("the disk writes down what happens");
        let deadline = Instant::now() + DEADLINE;
        while !disk.has_synced(file, now).expect("its files can be read") {
            assert!(
                Instant::now() < deadline,
                "{} is not synced",
                file.display()
            );
            // What the disk writes down can only be polled.
            thread::park_timeout(Duration::from_millis(5));
        }
    }

    /// Starts it again where it was, now that it has ended; on another port, and on a disk that
    /// works.
    #[track_caller]
    pub fn start_again(&mut self) {
        self.running.kill();
        if let Some(disk) = &self.disk {
            disk.repair().expect("its directory is writable");
        }
        self.start_as_the_disk_is();
    }

    /// Starts it again on a disk that may fail still.
    #[track_caller]
    pub fn start_as_the_disk_is(&mut self) {
        self.running.kill();
        self.running = self.launch.spawn(self.directory.path(), self.disk.as_ref());
        self.address = self.running.wait_for_address();
    }

    /// Starts another one in the same place, which ends by itself, and gives what it said.
    #[track_caller]
    pub fn start_another(&self) -> (ExitStatus, String) {
        self.launch.run_to_end_in(self.directory.path())
    }

    /// Its data directory.
    pub fn data(&self) -> PathBuf {
        self.directory().join(self.launch.data())
    }

    /// The home of the user who runs it.
    pub fn home(&self) -> PathBuf {
        self.directory().join(HOME)
    }

    /// The disk under its data directory.
    #[track_caller]
    pub fn disk(&self) -> &Disk {
        let disk = self.disk.as_ref();
        disk.expect("it was started on a disk that may fail")
    }
}

/// What is left of the [`DEADLINE`] for something that the broker must do. Where both were stopped
/// for a while, or the machine was, the broker had no time to do it in: of the time between two
/// looks counts no more than what the first wanted to wait.
#[derive(Debug)]
struct Patience {
    left: Duration,
    /// Since when somebody waits, and how long at most.
    since: Instant,
    step: Duration,
}

impl Patience {
    fn new() -> Self {
        Self {
            left: DEADLINE,
            since: Instant::now(),
            step: Duration::ZERO,
        }
    }

    /// How long to wait before the next look; none, when it is enough.
    fn step(&mut self) -> Option<Duration> {
        let now = Instant::now();
        self.left -= self.step.min(now - self.since);
        (self.since, self.step) = (now, LOOK_EVERY.min(self.left));
        (!self.left.is_zero()).then_some(self.step)
    }
}

/// What a process has printed, line by line, while it runs and afterwards.
#[derive(Clone, Debug, Default)]
pub struct Log(Arc<(Mutex<Printed>, Condvar)>);

#[derive(Debug, Default)]
struct Printed {
    text: String,
    /// Streams that may still say something.
    open: usize,
}

impl Log {
    /// All of it so far.
    pub fn text(&self) -> String {
        self.lock().text.clone()
    }

    /// Waits until it contains this, and gives the line that does.
    #[track_caller]
    pub fn wait_for(&self, part: &str) -> String {
        let found = self.wait_until(|printed| {
            printed
                .text
                .lines()
                .find(|line| line.contains(part))
                .map(str::to_owned)
        });
        found.unwrap_or_else(|| panic!("{part:?} did not appear in the log:\n{}", self.text()))
    }

    /// All of it, once the process has ended and everything is read.
    fn whole(&self) -> String {
        self.wait_until(|printed| (printed.open == 0).then(|| printed.text.clone()))
            .unwrap_or_else(|| self.text())
    }

    /// What `find` finds, now or when more has been printed; `None` at the deadline.
    fn wait_until<T>(&self, find: impl Fn(&Printed) -> Option<T>) -> Option<T> {
        let mut patience = Patience::new();
        let mut printed = self.lock();
        loop {
            if let Some(found) = find(&printed) {
                return Some(found);
            }
            let step = patience.step()?;
            let waited = self.0.1.wait_timeout(printed, step);
            printed = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn follow(&self, stream: impl Read + Send + 'static) {
        let log = self.clone();
        log.lock().open += 1;
        thread::spawn(move || {
            for line in BufReader::new(stream).split(b'\n').map_while(Result::ok) {
                let mut printed = log.lock();
                printed.text.push_str(&String::from_utf8_lossy(&line));
                printed.text.push('\n');
                log.0.1.notify_all();
            }
            log.lock().open -= 1;
            log.0.1.notify_all();
        });
    }

    fn lock(&self) -> MutexGuard<'_, Printed> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
struct Running {
    child: Child,
    log: Log,
}

impl Running {
    #[track_caller]
    fn wait_for_address(&mut self) -> SocketAddr {
        const UNBROKEN: &str = "listening on 127.0.0.1:";
        const MOSQUITTO: &str = "listen socket on port ";
        // Nothing, once it has ended: both streams are closed then.
        let port = self.log.wait_until(|Printed { text, open }| {
            let mosquitto = || {
                text.contains(" running")
                    .then(|| port_after(text, MOSQUITTO))
                    .flatten()
            };
            match port_after(text, UNBROKEN).or_else(mosquitto) {
                Some(port) => Some(Some(port)),
                None => (*open == 0).then_some(None),
            }
        });
        match port.flatten() {
            Some(port) => (Ipv4Addr::LOCALHOST, port).into(),
            None => panic!("the broker does not listen:\n{}", self.log.text()),
        }
    }

    #[track_caller]
    fn wait(&mut self) -> ExitStatus {
        let mut patience = Patience::new();
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return status,
                Ok(None) => {}
                Err(error) => panic!("cannot wait for the broker: {error}"),
            }
            let Some(step) = patience.step() else {
                panic!("the broker does not end:\n{}", self.log.text());
            };
            // There is no portable wait with a deadline; this is a poll of it, not a guess.
            thread::park_timeout(step);
        }
    }
}

impl Running {
    fn kill(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
        if thread::panicking() {
            let _ = writeln!(
                io::stderr(),
                "--- log of the broker\n{}---",
                self.log.text()
            );
        }
    }
}

/// The binary under test.
pub fn binary() -> PathBuf {
    if let Some(named) = env::var_os("UNBROKEN_BIN") {
        return named.into();
    }
    target_directory().join("release").join("unbroken")
}

/// Whether the binary under test is the second opinion.
pub fn is_mosquitto(binary: &Path) -> bool {
    binary.file_name() == Some(OsStr::new("mosquitto"))
}

/// Where cargo builds: this very program lies in `<target>/<profile>/deps`.
pub fn target_directory() -> PathBuf {
    let program = env::current_exe().expect("the running program has a path");
    let target = program
        .ancestors()
        .nth(3)
        .expect("test programs lie three levels deep");
    target.to_owned()
}

fn port_after(text: &str, lead: &str) -> Option<u16> {
    let after = text.split(lead).nth(1)?;
    let digits: String = after.chars().take_while(char::is_ascii_digit).collect();
    // A port at the very end may still be incomplete; lines arrive whole, so it never is.
    digits.parse().ok()
}

/// Sends a signal by its name to one process.
#[track_caller]
pub fn signal(pid: u32, name: &str) {
    let status = Command::new("kill")
        .args([format!("-{name}"), pid.to_string()])
        .status();
    assert!(
        status.is_ok_and(|status| status.success()),
        "cannot send {name} to {pid}"
    );
}

/// Mosquitto cannot choose a port itself, so one is chosen for it.
fn mosquitto(binary: &Path, directory: &Path) -> Command {
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| listener.local_addr())
        .expect("a loopback port is free")
        .port();
    let config = directory.join("mosquitto.conf");
    let mut text = format!(
        "listener {port} 127.0.0.1\nallow_anonymous true\nuser root\nlog_type all\n\
         max_queued_messages 0\nmax_topic_alias 10\n"
    );
    text.push_str("sys_interval 1\n");
    fs::write(&config, text).expect("its directory is writable");
    let mut command = Command::new(binary);
    command.arg("-c").arg(config);
    command
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn the_release_binary_is_small() {
        let binary = binary();
        if binary
            .parent()
            .is_some_and(|directory| directory.ends_with("release"))
        {
            let bytes = fs::metadata(&binary).unwrap().len();
            assert!(bytes < 20_000_000, "{}: {bytes} bytes", binary.display());
        }
    }

    #[test]
    fn what_was_stopped_for_an_hour_has_as_much_time_as_before() {
        let mut patience = Patience::new();
        let mut looks = 0;
        while patience.step().is_some() {
            patience.since = patience.since.checked_sub(Duration::from_hours(1)).unwrap();
            looks += 1;
        }
        assert_eq!(Duration::from_millis(5) * looks, DEADLINE);
    }
}
