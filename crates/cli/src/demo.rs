//! `unbroken demo`: a pipeline from producer to consumer, with a fault injector.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use unbroken_client::ConnectTo;
use unbroken_demo::{LineError, Outcome, Remote, RunError, Settings, Trial, User};

use crate::exit::{self, Failure};
use crate::runtime;
use crate::transport_args::TransportArgs;
use crate::url::Url;
use crate::user_args::UserArgs;

/// Run a pipeline from producer to consumer, inject faults, and see each one named and repaired
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  unbroken demo                          a live view; keys inject faults, q ends
  unbroken demo --inject lk              lose a message and kill the broker, to begin with
  unbroken demo --plain                  every fault once, as lines, within 30 seconds
  unbroken demo --input /var/log/syslog  send your own file, line by line
  unbroken demo --broker 127.0.0.1:1883  over a broker that runs already, of any make
  unbroken demo --broker mqtts://ann@broker.example.org --cafile ca.pem -P 'a password'
                                         over TLS, as a user
  unbroken demo --messages 1000000 --faults 1000 --rate 10000
                                         random faults; checks that exactly these are reported

Producer A, the broker, processor B and consumer C run on this machine, the broker and B in
processes of their own, on free ports of localhost. Their files are removed at the end.
With --broker other users of this machine can reach it through these ports, with your certificate,
while it runs.
Keys: l lose, d duplicate, s swap, a alter, f forge, i inject, h hold a message behind B (capitals:
in front of B); k kill the broker; n cut the network between the broker and C.

Exit codes: 0 every fault was reported and repaired; 1 one was not, or another was reported, or the
time of --within was over; 2 wrong usage; 66 the input cannot be read; 69 the broker of --broker
cannot be reached or refuses; 70 a part of the pipeline ended unexpectedly or did not start; 74
output failed.")]
pub(crate) struct Args {
    /// Plain lines: every fault once, then an end
    #[arg(long)]
    plain: bool,
    /// A file to send, line by line [default: sensors of a small plant]
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// Messages a second
    #[arg(long, value_name = "MESSAGES", default_value_t = 1_000)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rate: u32,
    /// Faults to inject, each by its key
    #[arg(long, value_name = "KEYS", default_value = "")]
    inject: String,
    /// With --plain: end within so many seconds, whatever has happened
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    #[arg(value_parser = clap::value_parser!(u64).range(3..=600))]
    within: u64,
    /// A broker that runs already: `HOST[:PORT]`, with IPv6 addresses in brackets, or
    /// `mqtt://[user[:password]@]host[:port]`; mqtts, ws, wss likewise [default: one of its own]
    #[arg(long, value_name = "HOST|URL")]
    broker: Option<String>,
    #[command(flatten)]
    user: UserArgs,
    #[command(flatten)]
    transport: TransportArgs,
    /// Send so many and end
    #[arg(
        long,
        value_name = "COUNT",
        requires = "faults",
        conflicts_with = "inject"
    )]
    messages: Option<u64>,
    /// Faults to inject at random places of those messages
    #[arg(long, value_name = "COUNT", requires = "messages")]
    faults: Option<u64>,
    /// Which random places
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
}

impl Args {
    /// The broker that runs already, if there is one.
    fn remote(&self) -> Result<Option<Remote>, String> {
        let mut user = User {
            name: self.user.username.clone(),
            password: self.user.password.clone(),
        };
        if let Some(path) = self.transport.unix() {
            if self.broker.is_some() {
                return Err("--broker and --unix are both given: leave one of them out".to_owned());
            }
            return Ok(Some(Remote {
                to: ConnectTo::unix(path),
                transport: self.transport.resolve(None)?,
                user,
            }));
        }
        let Some(broker) = &self.broker else {
            let transport = self.transport.resolve(None)?;
            if transport.as_tls().is_some() || transport.websocket_path().is_some() {
                let text = "the demonstration's own broker has neither TLS nor WebSocket: name \
                            another with --broker";
                return Err(text.to_owned());
            }
            return Ok(None);
        };
        if !broker.contains("://") {
            let transport = self.transport.resolve(None)?;
            if let Some(path) = Url::parse(broker).ok().and_then(|url| url.socket) {
                return Ok(Some(Remote {
                    to: ConnectTo::unix(path),
                    transport,
                    user,
                }));
            }
            let (host, port) = ConnectTo::parts(broker).map_err(|error| error.to_string())?;
            let to = ConnectTo::new(host, port.unwrap_or(transport.default_port()));
            return Ok(Some(Remote {
                to,
                transport,
                user,
            }));
        }
        let url = Url::parse(broker)?;
        if let Some(topic) = url.topic {
            return Err(format!(
                "--broker names topic {topic:?}: the demonstration chooses its topics, leave it out"
            ));
        }
        let transport = self.transport.resolve(Some(url.scheme))?;
        let to = ConnectTo::new(url.host, url.port.unwrap_or(transport.default_port()));
        user.name = url.user_name.or(user.name);
        user.password = url.password.or(user.password);
        Ok(Some(Remote {
            to,
            transport,
            user,
        }))
    }
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let program = std::env::current_exe().map_err(|error| {
        Failure::new(
            exit::INTERNAL,
            format!("cannot find this program, which is also the broker and B: {error}"),
        )
    })?;
    let settings = Settings {
        program,
        input: args.input.clone(),
        rate: args.rate,
        is_plain: args.plain || !unbroken_terminal::is_live(),
        within: Duration::from_secs(args.within),
        keys: args.inject.clone(),
        broker: args
            .remote()
            .map_err(|error| Failure::new(exit::USAGE, error))?,
        trial: args
            .messages
            .zip(args.faults)
            .map(|(messages, injections)| Trial {
                messages,
                injections,
                seed: args.seed,
            }),
    };
    let ran = runtime::block_on(async {
        Box::pin(unbroken_demo::run(settings, runtime::interrupted())).await
    })
    .map_err(|error| Failure::new(exit::INTERNAL, error))?;
    match ran {
        Ok(Outcome::Green) => Ok(ExitCode::SUCCESS),
        Ok(Outcome::Red) => Ok(ExitCode::from(1)),
        Err(error) => Err(Failure::new(code(&error), error)),
    }
}

fn code(error: &RunError) -> u8 {
    match error {
        RunError::Readings(_) => exit::NO_INPUT,
        RunError::Key(_) | RunError::TooManyFaults { .. } => exit::USAGE,
        RunError::Show(_) => exit::IO,
        RunError::Line(LineError::Unavailable { .. }) => exit::UNAVAILABLE,
        RunError::Line(_) | RunError::Late(_) | RunError::Ended { .. } => exit::INTERNAL,
    }
}
