//! The broker under attack, as another process in a directory of its own, and what it takes of the
//! machine.

use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, Read};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use std::{env, fs};

use tempfile::TempDir;
use unbroken_acceptance::Transport;

/// The broker's message when clients may come.
const LISTENING: &str = "listening on 127.0.0.1:";
/// The data directory, in the broker's own.
const DATA: &str = "data";
/// The one user of a broker with passwords.
pub(crate) const USER: &str = "honest";
pub(crate) const PASSWORD: &str = "correct horse";
/// The longest wait for a start or an end.
const PATIENCE: Duration = Duration::from_mins(1);
/// How often memory is sampled; the kernel keeps the highest value besides.
const SAMPLE_EVERY: Duration = Duration::from_millis(50);

/// How to start a broker.
#[derive(Debug, Default)]
pub(crate) struct Setup {
    /// Lines of its configuration.
    pub(crate) config: String,
    /// Clients need [`USER`] and [`PASSWORD`].
    pub(crate) has_passwords: bool,
    /// It stores messages.
    pub(crate) is_durable: bool,
    /// Further listeners, which the attacker has to itself.
    pub(crate) doors: &'static [Transport],
    /// And one of which the attacker is a proxy.
    pub(crate) has_proxy: bool,
}

/// It trusts this machine.
const PROXIED: &str = "\n[[listeners]]\nname = \"proxied\"\nport = 0\n\
    trusted_proxies = [\"127.0.0.1\"]\nallow_anonymous = true\n";

/// A broker that listens. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Broker {
    child: Child,
    pub(crate) address: SocketAddr,
    log: Log,
    usage: Usage,
    setup: Setup,
    home: PathBuf,
    /// The home, if it is removed at the end.
    own: Option<TempDir>,
}

/// The broker cannot be attacked at all.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BrokerError {
    #[error(
        "{0} does not start: {1}; build it with `cargo build --release -p unbroken`, or name another with UNBROKEN_BIN"
    )]
    Start(PathBuf, io::Error),
    #[error("the broker does not listen:\n{0}")]
    Deaf(String),
    #[error("cannot handle the broker: {0}")]
    Io(#[from] io::Error),
}

impl Broker {
    pub(crate) fn start(setup: Setup) -> Result<Self, BrokerError> {
        let own = tempfile::tempdir()?;
        let home = own.path().to_owned();
        Self::start_in(setup, home, Some(own))
    }

    /// In a directory that exists and stays.
    pub(crate) fn start_at(setup: Setup, home: &Path) -> Result<Self, BrokerError> {
        Self::start_in(setup, home.to_owned(), None)
    }

    fn start_in(setup: Setup, home: PathBuf, own: Option<TempDir>) -> Result<Self, BrokerError> {
        let mut config = setup.config.clone();
        if setup.has_passwords {
            add_user(&home)?;
            config.push_str(
                "\n[[listeners]]\nbind = \"127.0.0.1\"\nport = 0\npassword_file = \"users\"\n",
            );
        } else {
            config.push_str("\n[[listeners]]\nbind = \"127.0.0.1\"\nport = 0\n");
        }
        for door in setup.doors {
            config.push_str(&door.listener());
            door.write_files(&home);
        }
        if setup.has_proxy {
            config.push_str(PROXIED);
        }
        fs::write(home.join("unbroken.toml"), config)?;
        let mut child = spawn(&setup, &home)?;
        let log = Log::default();
        for stream in [
            child.stdout.take().map(|stream| Box::new(stream) as Stream),
            child.stderr.take().map(|stream| Box::new(stream) as Stream),
        ] {
            log.follow(stream.expect("both streams are piped"));
        }
        let Some(port) = log.wait_for_port() else {
            let _ = child.kill();
            return Err(BrokerError::Deaf(log.text()));
        };
        Ok(Self {
            usage: Usage::sample(child.id()),
            child,
            address: (Ipv4Addr::LOCALHOST, port).into(),
            log,
            setup,
            home,
            own,
        })
    }

    /// Starts it again where it was, on another port.
    pub(crate) fn start_again(self) -> Result<Self, BrokerError> {
        let (setup, home, own) = self.end();
        Self::start_in(setup, home, own)
    }

    fn end(mut self) -> (Setup, PathBuf, Option<TempDir>) {
        self.kill();
        let home = self.home.clone();
        (std::mem::take(&mut self.setup), home, self.own.take())
    }

    fn kill(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.home.join(DATA)
    }

    /// How it ended, if it has or does within this time.
    pub(crate) fn ends_within(&mut self, within: Duration) -> io::Result<Option<ExitStatus>> {
        let until = Instant::now() + within;
        loop {
            let ended = self.has_ended()?;
            if ended.is_some() || Instant::now() >= until {
                return Ok(ended);
            }
            // There is no portable wait with a deadline.
            thread::park_timeout(SAMPLE_EVERY);
        }
    }

    /// How it ended, if it has.
    pub(crate) fn has_ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Where it listens for this transport.
    pub(crate) fn door(&self, transport: Transport) -> Option<SocketAddr> {
        let port = self.log.wait_for_port_in(&transport.announced())?;
        Some((Ipv4Addr::LOCALHOST, port).into())
    }

    /// Where connections begin with a PROXY header.
    pub(crate) fn proxied(&self) -> Option<SocketAddr> {
        let port = self.log.wait_for_port_in(") as proxied")?;
        Some((Ipv4Addr::LOCALHOST, port).into())
    }

    /// The file of the unix socket, of a broker with that door.
    pub(crate) fn socket(&self) -> PathBuf {
        self.home.join(Transport::Unix.announced())
    }

    pub(crate) fn has_passwords(&self) -> bool {
        self.setup.has_passwords
    }

    pub(crate) fn log(&self) -> &Log {
        &self.log
    }

    pub(crate) fn usage(&self) -> &Usage {
        &self.usage
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.kill();
    }
}

type Stream = Box<dyn Read + Send>;

fn spawn(setup: &Setup, home: &Path) -> Result<Child, BrokerError> {
    let binary = binary()?;
    let mut command = Command::new(&binary);
    command.args(["serve", "--admin", "off", "-c", "unbroken.toml"]);
    if setup.is_durable {
        command.args(["--data", DATA]);
    } else {
        command.arg("--in-memory");
    }
    command
        .current_dir(home)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
        .spawn()
        .map_err(|error| BrokerError::Start(binary, error))
}

fn add_user(home: &Path) -> Result<(), BrokerError> {
    if home.join("users").exists() {
        return Ok(());
    }
    let binary = binary()?;
    let done = Command::new(&binary)
        .args(["passwd", "-c", "users", USER, "-b", PASSWORD])
        .current_dir(home)
        .stdout(Stdio::null())
        .status()
        .map_err(|error| BrokerError::Start(binary, error))?;
    if done.success() {
        return Ok(());
    }
    Err(io::Error::other("`unbroken passwd` failed").into())
}

/// The binary under attack: the one beside this program, unless another is named.
fn binary() -> io::Result<PathBuf> {
    if let Some(named) = env::var_os("UNBROKEN_BIN") {
        return Ok(named.into());
    }
    Ok(env::current_exe()?.with_file_name("unbroken"))
}

/// Everything that the broker has printed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log(Arc<(Mutex<Printed>, Condvar)>);

#[derive(Debug, Default)]
struct Printed {
    text: String,
    open: usize,
}

impl Log {
    pub(crate) fn text(&self) -> String {
        self.lock().text.clone()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.lock().text.len()
    }

    fn wait_for_port(&self) -> Option<u16> {
        self.wait_for_port_in("")
    }

    /// The port in the first line that announces one and has this part.
    fn wait_for_port_in(&self, part: &str) -> Option<u16> {
        let until = Instant::now() + PATIENCE;
        let mut printed = self.lock();
        loop {
            let mut lines = printed.text.lines().filter(|line| line.contains(part));
            let port = lines.find_map(|line| {
                let (_, rest) = line.split_once(LISTENING)?;
                let (digits, _) = rest.split_once(|c: char| !c.is_ascii_digit())?;
                digits.parse().ok()
            });
            let left = until.saturating_duration_since(Instant::now());
            if port.is_some() || left.is_zero() || printed.open == 0 {
                return port;
            }
            let waited = self.0.1.wait_timeout(printed, left);
            printed = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn follow(&self, stream: Stream) {
        let log = self.clone();
        log.lock().open += 1;
        thread::spawn(move || {
            let lines = BufReader::with_capacity(1 << 20, stream).split(b'\n');
            for line in lines.map_while(Result::ok) {
                let mut printed = log.lock();
                let _ = writeln!(printed.text, "{}", String::from_utf8_lossy(&line));
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

/// Memory and time of a process while it runs.
#[derive(Debug)]
pub(crate) struct Usage {
    pid: u32,
    highest_kib: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Usage {
    fn sample(pid: u32) -> Self {
        let highest_kib = Arc::new(AtomicU64::new(0));
        let stop = Arc::new(AtomicBool::new(false));
        let (highest, stopped) = (Arc::clone(&highest_kib), Arc::clone(&stop));
        let thread = thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                let peak = status_kib(pid, "VmHWM:").unwrap_or(0);
                highest.fetch_max(peak, Ordering::Relaxed);
                thread::park_timeout(SAMPLE_EVERY);
            }
        });
        Self {
            pid,
            highest_kib,
            stop,
            thread: Some(thread),
        }
    }

    /// The most memory so far, in MiB.
    pub(crate) fn peak_mib(&self) -> u64 {
        self.highest_kib.load(Ordering::Relaxed) / 1024
    }

    /// Memory now, in MiB.
    pub(crate) fn now_mib(&self) -> u64 {
        status_kib(self.pid, "VmRSS:").unwrap_or(0) / 1024
    }

    /// Processor time of all threads so far, in seconds.
    pub(crate) fn cpu_seconds(&self) -> f64 {
        let Ok(stat) = fs::read_to_string(format!("/proc/{}/stat", self.pid)) else {
            return 0.0;
        };
        // Behind the name, which may contain anything: state, then numbers; ticks of 10 ms.
        let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        let mut ticks = fields.split_whitespace().skip(11);
        let mut next = || ticks.next().and_then(|text| text.parse::<f64>().ok());
        (next().unwrap_or(0.0) + next().unwrap_or(0.0)) / 100.0
    }
}

impl Drop for Usage {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

fn status_kib(pid: u32, key: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(key))?;
    line.split_whitespace().next()?.parse().ok()
}
