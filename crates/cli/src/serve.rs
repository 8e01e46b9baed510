//! `unbroken serve`: from flags to a running broker.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use unbroken_admin::{Admin, StartError as AdminError};
use unbroken_broker::config::{AdminListen, Config, FlagValue, Sources};
use unbroken_broker::{BrokerHandle, ServeError, ServerError, StartError};

use crate::exit::{self, Failure};
use crate::gateways::Gateways;

/// Run the broker
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  unbroken serve                               localhost:1883, for this machine only
  unbroken serve -p 0                          any free port, printed after `listening on`
  unbroken serve -c broker.toml --shards 4     a config file, with one value overridden
  unbroken serve --data /srv/mqtt              sessions and messages survive a restart
  unbroken serve --in-memory --control /run/user/1000   nothing is stored; commands change users
  unbroken serve --bind 0.0.0.0 --insecure --password-file users
  UNBROKEN__LIMITS__CONNECTIONS_MAX=500 unbroken serve

Flags override UNBROKEN__SECTION__KEY variables, and variables override the file.
-p, --bind, --insecure and the two flags for access apply to the first listener.
SIGHUP reloads the configuration and applies it if all of it is valid; SIGTERM and SIGINT
let clients receive pending messages, then the broker ends with 0.

Exit codes: 0 stopped by a signal; 2 wrong usage; 66 a password file cannot be read; 69 the
address or the data directory is in use or not usable; 70 an internal error; 74 output or
the store failed; 78 wrong configuration.")]
pub(crate) struct Args {
    /// Config file (TOML); `unbroken check --example` prints one
    #[arg(short, long, value_name = "FILE", env = "UNBROKEN_CONFIG")]
    config: Option<PathBuf>,
    /// Port to listen on; 0 takes one that is free
    #[arg(short, long)]
    port: Option<u16>,
    /// Address to listen on, * for all; beyond loopback --insecure and one of the next two are
    /// required
    #[arg(long, value_name = "ADDR")]
    bind: Option<String>,
    /// Let passwords and messages cross the network in the clear
    #[arg(long)]
    insecure: bool,
    /// Let clients without user name in
    #[arg(long)]
    allow_anonymous: bool,
    /// Let the users of this file in; `unbroken passwd` makes one
    #[arg(long, value_name = "FILE")]
    password_file: Option<String>,
    /// Address of the admin server, or off [default: 127.0.0.1:7883 if it is free]
    #[arg(long, value_name = "ADDR:PORT")]
    admin: Option<String>,
    /// Threads that serve clients; one for each two cores if left out
    #[arg(long, value_name = "N")]
    shards: Option<u8>,
    /// Keep sessions and messages in this directory
    #[arg(long, value_name = "DIR")]
    data: Option<String>,
    /// Keep nothing: sessions and messages end with the broker
    #[arg(long, conflicts_with = "data")]
    in_memory: bool,
    /// With --in-memory: a directory for the control socket, by which `unbroken user`, `role`,
    /// `rule` and `ban` change what ends with the broker
    #[arg(long, value_name = "DIR", conflicts_with = "data")]
    control: Option<String>,
    /// Log more of the broker itself: -v debug, -vv trace
    #[arg(short, long, action = clap::ArgAction::Count)]
    verbose: u8,
    /// How log lines look: human or json
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<String>,
}

impl Args {
    /// Where the configuration comes from, these flags included.
    fn sources(&self) -> Sources {
        let mut flags = Vec::new();
        let mut put = |name, flag, value: Option<String>| {
            flags.extend(value.map(|value| FlagValue { name, value, flag }));
        };
        put(
            "listeners.0.port",
            "--port",
            self.port.map(|port| port.to_string()),
        );
        put("listeners.0.bind", "--bind", self.bind.clone());
        put(
            "listeners.0.insecure",
            "--insecure",
            self.insecure.then(|| "true".to_owned()),
        );
        put(
            "listeners.0.allow_anonymous",
            "--allow-anonymous",
            self.allow_anonymous.then(|| "true".to_owned()),
        );
        put(
            "listeners.0.password_file",
            "--password-file",
            self.password_file.clone(),
        );
        put("admin.listen", "--admin", self.admin.clone());
        put(
            "broker.shards",
            "--shards",
            self.shards.map(|shards| shards.to_string()),
        );
        let kept = self.data.is_some().then_some((false, "--data"));
        let in_memory = self.in_memory.then_some((true, "--in-memory"));
        if let Some((in_memory, flag)) = kept.or(in_memory) {
            put("storage.in_memory", flag, Some(in_memory.to_string()));
        }
        put("storage.directory", "--data", self.data.clone());
        put("storage.control", "--control", self.control.clone());
        put("log.format", "--log-format", self.log_format.clone());
        let level = match self.verbose {
            0 => None,
            1 => Some("debug".to_owned()),
            _ => Some("trace".to_owned()),
        };
        put("log.level", "--verbose", level);
        Sources {
            file: self.config.clone(),
            flags,
            ..Sources::from_environment()
        }
    }
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    // Not locked for the whole life of the broker: it writes its first lines here and no more.
    let mut out = io::LineWriter::new(io::stdout());
    let served = unbroken_broker::serve(&args.sources(), &mut out, |broker, listeners, out| {
        let config = broker.config();
        let gateways = Gateways::start(&config, listeners, out)?;
        Ok((gateways, admin(&config, broker, out)?))
    });
    served
        .and_then(|()| Ok(out.flush()?))
        .map_err(|error| Failure::new(code(&error), error))
}

/// Starts the admin server, and prints where it is.
fn admin(
    config: &Config,
    broker: &BrokerHandle,
    out: &mut dyn Write,
) -> Result<Option<Admin>, String> {
    let listen = match config.admin.listen {
        AdminListen::Off => return Ok(None),
        AdminListen::Auto => AdminListen::USUAL,
        AdminListen::At(address) => address,
    };
    let directory = config.storage.place();
    let control = config.storage.memory_control();
    let options = unbroken_admin::Options {
        listen: Some(listen),
        socket: directory.clone().or(control.map(Path::to_owned)),
        directory,
        hosts: config.admin.hosts.clone(),
        metrics: config.admin.metrics,
        anonymous: config.admin.anonymous,
        version: env!("UNBROKEN_VERSION").to_owned(),
    };
    let started = match Admin::start(options.clone(), broker.clone()) {
        Err(error @ AdminError::Bind { .. }) if config.admin.listen == AdminListen::Auto => {
            tracing::warn!(
                %error,
                "the broker runs without a page and metrics; choose another address with `listen` \
                 in [admin], or \"off\""
            );
            if options.socket.is_none() {
                return Ok(None);
            }
            let listen = None;
            Admin::start(
                unbroken_admin::Options { listen, ..options },
                broker.clone(),
            )
        }
        started => started,
    };
    let admin = started.map_err(|error| error.to_string())?;
    print_admin(&admin, out)
        .map_err(|error| format!("cannot write to standard output: {error}"))?;
    Ok(Some(admin))
}

fn print_admin(admin: &Admin, out: &mut dyn Write) -> io::Result<()> {
    if let Some(address) = admin.address() {
        let scheme = if admin.has_tls() { "https" } else { "http" };
        writeln!(out, "admin server on {scheme}://{address}")?;
    }
    if let Some(link) = admin.first_link() {
        writeln!(out, "first sign-in, once and within 15 minutes: {link}")?;
        tracing::info!(
            "the admin server has no account: make one with the link on standard output, or with \
             `unbroken admin account add`"
        );
    }
    Ok(())
}

fn code(error: &ServeError) -> u8 {
    match error {
        ServeError::Start(
            StartError::Passwords(_) | StartError::Tokens(_) | StartError::Hook(_),
        ) => exit::NO_INPUT,
        ServeError::Start(
            StartError::Bind { .. }
            | StartError::System(_)
            | StartError::Disk(_)
            | StartError::Control(_),
        )
        | ServeError::Beside(_) => exit::UNAVAILABLE,
        ServeError::Config(_) | ServeError::Log(_) | ServeError::Start(_) => exit::CONFIG,
        ServeError::Io(_) | ServeError::Server(ServerError::Store { .. }) => exit::IO,
        _ => exit::INTERNAL,
    }
}
