//! The broker as another process.
//!
//! Each one runs in its own directory on a port it chose itself, is ended by its process id, and
//! its log is printed when the test that owns it fails. One that is [durable](Launch::durable) can
//! be killed and started again where it was.
//!
//! `UNBROKEN_BIN` names another binary. When that is a `mosquitto`, it is started as one: a test
//! can then be tried against a second opinion. No result depends on that.

mod launch;

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{env, io, thread};

pub use launch::Launch;
use tempfile::TempDir;

use crate::DEADLINE;
use crate::disk::Disk;
use crate::door::{Door, Transport};
use crate::server::Server;

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

/// What precedes the port of a listener.
const UNBROKEN: &str = "listening on 127.0.0.1:";

/// The longest wait between two looks whether something has happened.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// What a user's environment says.
#[derive(Clone, Copy, Debug)]
pub enum User {
    /// Only where its home is.
    Home,
    /// Also where programs keep what must outlive them, which is the home itself.
    StateHome,
}

/// A broker that listens. Dropping it ends it.
#[derive(Debug)]
pub struct Broker {
    running: Running,
    server: Server,
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

    /// Waits until it has logged this so many times.
    #[track_caller]
    pub fn wait_for_log_times(&self, part: &str, times: usize) {
        let log = &self.running.log;
        let found = log.wait_until(|printed| {
            let found = printed.text.matches(part).count();
            (found >= times).then_some(())
        });
        let text = || log.text();
        assert!(
            found.is_some(),
            "{part:?} did not appear {times} times in the log:\n{}",
            text()
        );
    }

    /// Tells it to read its configuration again.
    pub fn reload(&self) {
        signal(self.pid(), "HUP");
    }

    /// Replaces the configuration file it was started with.
    pub fn rewrite_config(&self, text: &str) {
        let text = self.launch.transport.in_config(text);
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
        self.server = self
            .running
            .wait_for_server(&self.launch, self.directory.path());
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

impl Deref for Broker {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
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
    /// Waits until it listens for programs and for raw clients.
    #[track_caller]
    fn wait_for_server(&mut self, launch: &Launch, directory: &Path) -> Server {
        let address = self.wait_for_address();
        let transport = launch.transport;
        if transport == Transport::Tcp {
            return Server::at(address);
        }
        let line = self.log.wait_for(&transport.announced());
        let port = port_after(&line, UNBROKEN).unwrap_or_default();
        let door = (Ipv4Addr::LOCALHOST, port).into();
        Server::behind(address, Door::new(transport, door, directory))
    }

    #[track_caller]
    fn wait_for_address(&mut self) -> SocketAddr {
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

/// Where cargo builds: this very program lies in `<target>/<profile>`, or in `deps` there.
pub fn target_directory() -> PathBuf {
    let program = env::current_exe().expect("the running program has a path");
    let directories = program.ancestors().skip(1);
    let profile = directories.skip_while(|directory| directory.ends_with("deps"));
    let target = profile.into_iter().nth(1);
    target.expect("programs lie two levels deep").to_owned()
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
            assert!(bytes < 42_000_000, "{}: {bytes} bytes", binary.display());
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
