//! The command line of `unbroken bench`: arguments to settings, and a report to wherever it was
//! asked for.
//!
//! On a terminal a live view shows the run; in a pipe there is one line a second. `-h` is the host,
//! as with the other clients, so help is `--help`.

use crate::{
    error::LoadError,
    greeting::Identity,
    plan::Scenario,
    report::Report,
    run::{Observer, Unobserved, run as run_scenario},
    settings::{Extent, Settings},
    transport::{Target, Transport},
    view::{lines::Lines, screen::Screen, svg},
};
use clap::{ArgAction, Subcommand};
use std::{
    fs,
    io::{self, Write},
    net::{SocketAddr, TcpStream, ToSocketAddrs},
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};
use unbroken_client::ConnectTo;
use unbroken_mqtt_proto::Version;

/// How long one of several addresses may take to answer.
const TRY: Duration = Duration::from_secs(5);

const EXAMPLES: &str = "\
Examples:
  unbroken bench                                    100 connections in pairs, as fast as they can
  unbroken bench --pid $(pidof mosquitto) pairs     the same, and what a message costs the broker
  unbroken bench pairs --conns 1000 --payload 1024  larger
  unbroken bench pairs --rate 5000 --secs 10        latency at a fixed rate, no coordinated omission
  unbroken bench ping --pairs 200 --listeners 200   request and reply, with wildcard listeners
  unbroken bench --qos 2 fan-in                     200 publishers, one subscriber
  unbroken bench --json - fan-out > fan-out.json    for machines

Exit codes: 0 everything arrived; 1 something was lost, duplicated, reordered or altered; 2 wrong
usage; 69 no report: the broker cannot be reached or refused something, the settings contradict each
other, or the report cannot be written.";

/// Put a load on a broker and count exactly what became of it
#[derive(Debug, Clone, clap::Args)]
#[command(disable_help_flag = true, after_help = EXAMPLES)]
pub struct Args {
    /// What the connections do; `pairs` if left out
    #[command(subcommand)]
    scenario: Option<ScenarioArgs>,

    /// The broker's host, or HOST:PORT
    #[arg(short = 'h', long, global = true, default_value = "127.0.0.1")]
    host: String,
    /// The broker's port [default: 1883; with TLS 8883, with WebSocket 8083, with both 8084]
    #[arg(short = 'p', long, global = true)]
    port: Option<u16>,
    /// User name
    #[arg(short = 'u', long, global = true, value_name = "NAME")]
    username: Option<String>,
    /// Password
    #[arg(short = 'P', long, global = true, value_name = "PASSWORD")]
    pw: Option<String>,
    /// MQTT version: 31, 311 or 5
    #[arg(short = 'V', long, global = true, default_value = "311", value_parser = version)]
    protocol_version: Version,

    /// Quality of service, for publishing and subscribing
    #[arg(short = 'q', long, global = true, default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=2))]
    qos: u8,
    /// Let the sessions of subscribers outlive their connections, so that a broker that keeps what
    /// waits for them on disk has to
    #[arg(long, global = true)]
    stay: bool,
    /// Bytes of payload, 16 or more
    #[arg(long, global = true, default_value_t = 16, value_name = "BYTES")]
    payload: usize,
    /// Messages that a publisher may have undelivered
    #[arg(long, global = true, default_value_t = 100, value_name = "MESSAGES")]
    window: u32,
    /// Messages in one write
    #[arg(long, global = true, default_value_t = 1, value_name = "MESSAGES")]
    batch: u32,
    /// Open loop: messages per second of all publishers together, whatever comes back
    #[arg(long, global = true, value_name = "PER_SECOND")]
    rate: Option<f64>,

    /// Measured seconds
    #[arg(long, global = true, default_value_t = 5.0, value_name = "SECONDS")]
    secs: f64,
    /// Measure by count instead: messages of each publisher
    #[arg(long, global = true, value_name = "MESSAGES")]
    messages: Option<u64>,
    /// Seconds of traffic before measuring
    #[arg(long, global = true, default_value_t = 0.5, value_name = "SECONDS")]
    warm: f64,
    /// Threads that drive connections
    #[arg(long, global = true, default_value_t = 1)]
    threads: u32,
    /// Connections being opened at a time
    #[arg(long, global = true, default_value_t = 64, value_name = "CONNECTIONS")]
    connecting: u32,

    /// The broker's process, to read its CPU time and memory (on this machine)
    #[arg(long, global = true)]
    pid: Option<u32>,
    /// Write the report as JSON; `-` is standard output
    #[arg(long, global = true, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Draw the latency distribution
    #[arg(long, global = true, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Only the report, no live view
    #[arg(long, global = true)]
    quiet: bool,
    /// Print help
    #[arg(long, global = true, action = ArgAction::Help)]
    help: Option<bool>,
}

/// What the connections do.
#[derive(Debug, Clone, Subcommand)]
#[command(disable_help_subcommand = true)]
enum ScenarioArgs {
    /// Half publish, half subscribe, one topic a pair
    #[command(disable_help_flag = true)]
    Pairs {
        /// Connections
        #[arg(long, default_value_t = 100)]
        conns: u32,
    },
    /// Request and reply in pairs, one message under way in each
    #[command(disable_help_flag = true)]
    Ping {
        /// Pairs
        #[arg(long, default_value_t = 100)]
        pairs: u32,
        /// Subscribers with a wildcard on the first pair
        #[arg(long, default_value_t = 20)]
        listeners: u32,
    },
    /// Many publishers, one subscriber
    #[command(disable_help_flag = true)]
    FanIn {
        /// Publishers
        #[arg(long, default_value_t = 200)]
        publishers: u32,
    },
    /// One publisher, many subscribers
    #[command(disable_help_flag = true)]
    FanOut {
        /// Subscribers
        #[arg(long, default_value_t = 1000)]
        subscribers: u32,
    },
    /// Many filters with + and #, each message matching two of them
    #[command(disable_help_flag = true)]
    Tree {
        /// Subscribers
        #[arg(long, default_value_t = 500)]
        subscribers: u32,
        /// Filters in all
        #[arg(long, default_value_t = 100_000)]
        filters: u32,
        /// Publishers
        #[arg(long, default_value_t = 10)]
        publishers: u32,
    },
    /// Connections that stay silent: what one costs to open and to keep
    #[command(disable_help_flag = true)]
    Idle {
        /// Connections
        #[arg(long, default_value_t = 1000)]
        conns: u32,
    },
}

/// Runs what the arguments say, over this transport; `unix`: at this socket. The exit code is 0 if
/// everything arrived.
pub fn run(
    args: Args,
    over: &unbroken_client::Transport,
    unix: Option<String>,
) -> Result<ExitCode, LoadError> {
    let settings = args.settings(over, unix)?;
    let json_on_stdout = args.json.as_deref() == Some(Path::new("-"));
    let stdout = io::stdout();
    let report = if args.quiet || json_on_stdout {
        run_scenario(settings, &mut Unobserved)?
    } else if unbroken_terminal::is_live() {
        // Dropping the screen restores the terminal, before the report is written.
        run_scenario(settings.clone(), &mut Screen::open(&settings)?)?
    } else {
        let observer: &mut dyn Observer = &mut Lines::new(stdout.lock());
        run_scenario(settings, observer)?
    };
    if let Some(path) = &args.json {
        write_json(&report, path)?;
    }
    if let Some(path) = &args.svg {
        fs::write(path, svg::latency(&report)).map_err(|source| output(path, source))?;
    }
    if !json_on_stdout {
        let mut out = stdout.lock();
        write!(out, "{report}").map_err(|source| output(Path::new("standard output"), source))?;
    }
    Ok(if report.is_clean() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

impl Args {
    /// Another broker than `--host` and `--port` say.
    pub fn at(&mut self, host: String, port: Option<u16>) {
        self.host = host;
        self.port = port.or(self.port);
    }

    /// Other names than `--username` and `--pw` say.
    pub fn identify(&mut self, user_name: String, password: Option<String>) {
        self.username = Some(user_name);
        self.pw = password;
    }

    fn settings(
        &self,
        over: &unbroken_client::Transport,
        unix: Option<String>,
    ) -> Result<Settings, LoadError> {
        let scenario = self
            .scenario
            .as_ref()
            .map_or(Scenario::Pairs { connections: 100 }, Scenario::from);
        let seconds = |seconds: f64| {
            Duration::try_from_secs_f64(seconds).map_err(|_| {
                LoadError::Settings("--secs and --warm are seconds, 0 or more".to_owned())
            })
        };
        Ok(Settings {
            identity: Identity {
                version: self.protocol_version,
                user_name: self.username.clone(),
                password: self.pw.clone(),
                keep_alive_s: 0,
            },
            payload: self.payload,
            stay: self.stay,
            qos: self.qos,
            window: self.window,
            batch: self.batch,
            rate: self.rate,
            extent: match self.messages {
                Some(messages) => Extent::Messages(messages),
                None => Extent::Time(seconds(self.secs)?),
            },
            warm_up: seconds(self.warm)?,
            threads: self.threads,
            connecting: self.connecting,
            pid: self.pid,
            ..self.reach(over, unix, scenario)?
        })
    }

    /// Settings of where and how clients connect.
    fn reach(
        &self,
        over: &unbroken_client::Transport,
        unix: Option<String>,
        scenario: Scenario,
    ) -> Result<Settings, LoadError> {
        let default = over.default_port();
        let port = self.port;
        let port = port.or((default != ConnectTo::DEFAULT_PORT).then_some(default));
        let to = ConnectTo::with_port(&self.host, port)
            .map_err(|error| LoadError::Settings(error.to_string()))?;
        let mut transport = Transport::default();
        if let Some(tls) = over.as_tls() {
            let over = transport.tls(tls.config(), to.host());
            transport = over.map_err(|error| {
                LoadError::Settings(format!("{:?} is no name of a host: {error}", to.host()))
            })?;
        }
        if let Some(path) = over.websocket_path() {
            let host = if to.host().contains(':') {
                format!("[{}]", to.host())
            } else {
                to.host().to_owned()
            };
            transport = transport.websocket(format!("{host}:{}", to.port()), path);
        }
        let target = match unix {
            Some(path) => Target::Unix(path.into()),
            None => Target::Tcp(first_that_answers(&to)?),
        };
        Ok(Settings {
            transport,
            ..Settings::new(target, scenario)
        })
    }
}

/// The first of the host's addresses that answers, or the last one.
fn first_that_answers(to: &ConnectTo) -> Result<SocketAddr, LoadError> {
    let failed = |source| LoadError::Resolve {
        host: to.host().to_owned(),
        source,
    };
    let found = (to.host(), to.port()).to_socket_addrs().map_err(failed)?;
    let found: Vec<_> = found.collect();
    let (last, others) = found
        .split_last()
        .ok_or_else(|| failed(io::ErrorKind::NotFound.into()))?;
    let answers = |address: &&SocketAddr| TcpStream::connect_timeout(address, TRY).is_ok();
    Ok(*others.iter().find(answers).unwrap_or(last))
}

impl From<&ScenarioArgs> for Scenario {
    fn from(args: &ScenarioArgs) -> Self {
        match *args {
            ScenarioArgs::Pairs { conns } => Self::Pairs { connections: conns },
            ScenarioArgs::Ping { pairs, listeners } => Self::Ping { pairs, listeners },
            ScenarioArgs::FanIn { publishers } => Self::FanIn { publishers },
            ScenarioArgs::FanOut { subscribers } => Self::FanOut { subscribers },
            ScenarioArgs::Tree {
                subscribers,
                filters,
                publishers,
            } => Self::Tree {
                subscribers,
                filters,
                publishers,
            },
            ScenarioArgs::Idle { conns } => Self::Idle { connections: conns },
        }
    }
}

fn version(text: &str) -> Result<Version, String> {
    match text.trim_start_matches("mqttv") {
        "31" | "3.1" => Ok(Version::V3_1),
        "311" | "3.1.1" => Ok(Version::V3_1_1),
        "5" | "5.0" => Ok(Version::V5),
        _ => Err("one of 31, 311, 5".to_owned()),
    }
}

fn write_json(report: &Report, path: &Path) -> Result<(), LoadError> {
    let failed = |source| output(path, source);
    let mut text = serde_json::to_string_pretty(report).map_err(|error| failed(error.into()))?;
    text.push('\n');
    if path == Path::new("-") {
        io::stdout().write_all(text.as_bytes()).map_err(failed)
    } else {
        fs::write(path, text).map_err(failed)
    }
}

fn output(path: &Path, source: io::Error) -> LoadError {
    LoadError::Output {
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    #[command(disable_help_flag = true)]
    struct Command {
        #[command(flatten)]
        args: Args,
    }

    fn settings(line: &str) -> Settings {
        let words = std::iter::once("bench").chain(line.split_whitespace());
        Command::try_parse_from(words)
            .unwrap()
            .args
            .settings(&unbroken_client::Transport::default(), None)
            .unwrap()
    }

    #[test]
    fn options_may_stand_before_and_after_the_scenario() {
        for line in ["-p 7 --qos 1 ping --pairs 3", "ping --pairs 3 -p 7 --qos 1"] {
            let settings = settings(line);
            assert_eq!(settings.target.to_string(), "127.0.0.1:7");
            assert_eq!(settings.qos, 1);
            assert_eq!(
                settings.scenario,
                Scenario::Ping {
                    pairs: 3,
                    listeners: 20
                }
            );
        }
    }

    #[test]
    fn pairs_is_what_is_run_without_a_word() {
        assert_eq!(settings("").scenario, Scenario::Pairs { connections: 100 });
    }

    #[test]
    fn the_short_h_is_the_host() {
        let target = settings("-h 127.0.0.2 fan-out").target;
        assert_eq!(target.to_string(), "127.0.0.2:1883");
    }

    #[test]
    fn a_host_may_have_its_port_and_ipv6_brackets() {
        for (flags, target) in [
            ("", "127.0.0.1:1883"),
            ("-p 7", "127.0.0.1:7"),
            ("-h 127.0.0.2:7", "127.0.0.2:7"),
            ("-h ::1 -p 7", "[::1]:7"),
            ("-h [::1]:7", "[::1]:7"),
        ] {
            assert_eq!(settings(flags).target.to_string(), target, "{flags}");
        }
    }

    #[test]
    fn the_definition_is_sound() {
        use clap::CommandFactory;
        Command::command().debug_assert();
    }
}
