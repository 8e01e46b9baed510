//! `unbroken access`: what the access rules of a configuration say, and which rule says it.

use std::fs;
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Subcommand, ValueEnum};
use serde_json::json;
use unbroken_broker::access::{AccessRules, Action, Expectation, Question};
use unbroken_broker::config::{Config, Sources};
use unbroken_broker::stored_access::StoredAccess;

use crate::data;
use crate::exit::{CONFIG, Failure, NO_INPUT, USAGE};

/// Ask the access rules of a configuration who may do what
#[derive(Debug, clap::Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Explain(Explain),
    Test(Test),
}

/// Say whether a client may do something, and which rule decides
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  unbroken access explain -c broker.toml --user ann --client c1 publish plant/boiler
  unbroken access explain -c broker.toml --client c1 subscribe 'plant/#'
  unbroken access explain -c broker.toml --user ann --client c1 --address 10.0.0.7 connect
  unbroken access explain -c broker.toml --client c1 publish plant/boiler --qos 2 --retain
  unbroken access explain -c broker.toml --role operators --claim site=north subscribe 'north/#'

A SUBSCRIBE that is granted brings only messages that the client may receive.
Exit codes: 0 allowed; 1 denied; 2 wrong usage; 78 the configuration is not valid.")]
struct Explain {
    #[command(flatten)]
    of: Of,
    /// The client's user name; without it the client has none
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// The client's id
    #[arg(long, value_name = "ID", default_value = "")]
    client: String,
    /// A role that the client's token vouches for; as often as needed
    #[arg(long = "role", value_name = "ROLE")]
    roles: Vec<String>,
    /// A value that the client's token vouches for; as often as needed
    #[arg(long = "claim", value_name = "NAME=VALUE", value_parser = claim)]
    claims: Vec<(String, String)>,
    /// The client's address, for rules about addresses
    #[arg(long, value_name = "ADDRESS")]
    address: Option<IpAddr>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// The QoS of what the client publishes or subscribes to
    #[arg(long, value_name = "QOS", default_value_t = 0, value_parser = clap::value_parser!(u8).range(..=2))]
    qos: u8,
    /// Whether it publishes a retained message
    #[arg(long)]
    retain: bool,
    /// What the client wants to do
    action: Asked,
    /// The topic; for subscribe a topic filter. Whole, with the mount point of the client, if it
    /// has one
    topic: Option<String>,
}

/// Compare the access rules with a table of expectations
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Each line of the table is `allow|deny USER CLIENT publish|subscribe|receive TOPIC`, or
`allow|deny USER CLIENT connect`; `-` is a client without a user name. `publish,qos=1,retain` asks
about a message of QoS 1 that is retained, `subscribe,qos=2` whether QoS 2 is granted; without them
it is QoS 0, not retained. Empty lines and lines that begin with # are skipped.

Example:
  printf 'allow ann c1 publish plant/boiler\\ndeny - c2 receive plant/boiler\\n' > expected
  unbroken access test -c broker.toml expected

Exit codes: 0 all are as expected; 1 some are not, and each is named; 2 wrong usage; 66 the table
cannot be read; 78 the configuration is not valid.")]
struct Test {
    #[command(flatten)]
    of: Of,
    /// The table
    #[arg(value_name = "FILE")]
    table: PathBuf,
}

/// Whose rules are asked.
#[derive(Debug, clap::Args)]
struct Of {
    /// Config file (TOML)
    #[arg(short, long, value_name = "FILE", env = "UNBROKEN_CONFIG")]
    config: Option<PathBuf>,
    /// The listener that the client connects to: its name, or its number from 0
    #[arg(long, value_name = "NAME", default_value = "0")]
    listener: String,
    /// The broker's data directory, for roles in its store; without it that of the configuration
    #[arg(long = "data", value_name = "DIR")]
    directory: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Asked {
    Connect,
    Publish,
    Subscribe,
    Receive,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    match &args.command {
        Command::Explain(args) => explain(args),
        Command::Test(args) => test(args),
    }
}

fn claim(text: &str) -> Result<(String, String), &'static str> {
    let (name, value) = text.split_once('=').ok_or("write it as NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

fn explain(args: &Explain) -> Result<ExitCode, Failure> {
    let action = args.action.action();
    let topic = match (action, &args.topic) {
        (None, _) => String::new(),
        (Some(_), Some(topic)) => topic.clone(),
        (Some(action), None) => {
            let message = format!("{} needs a topic", action.name());
            return Err(Failure::new(USAGE, message));
        }
    };
    let (rules, listener) = args.of.load()?;
    let question = Question {
        user: args.user.clone(),
        client_id: args.client.clone(),
        roles: args.roles.clone(),
        values: args.claims.clone(),
        listener,
        address: args.address.map(|address| SocketAddr::new(address, 0)),
        action,
        qos: args.qos,
        retain: args.retain,
        topic,
    };
    if let Some(mistake) = question.mistake() {
        return Err(Failure::new(USAGE, mistake));
    }
    let explanation = rules.explain(&question);
    let mut out = io::stdout().lock();
    let written = if args.json {
        let object = json!({
            "allowed": explanation.is_allowed,
            "reason": explanation.reason,
            "rule": explanation.rule,
            "role": explanation.role,
            "mount": explanation.mount,
            "max_qos": explanation.max_qos,
            "retain": explanation.retain,
        });
        writeln!(out, "{object}")
    } else {
        writeln!(out, "{explanation}")
    };
    written.map_err(|error| Failure::output(&error))?;
    Ok(ExitCode::from(u8::from(!explanation.is_allowed)))
}

fn test(args: &Test) -> Result<ExitCode, Failure> {
    let path = args.table.display();
    let table = fs::read_to_string(&args.table)
        .map_err(|error| Failure::new(NO_INPUT, format!("cannot read {path}: {error}")))?;
    let (rules, listener) = args.of.load()?;
    let (mut held, mut failed) = (0u64, Vec::new());
    for (number, line) in (1..).zip(table.lines()) {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let expected: Expectation = line
            .parse()
            .map_err(|error| Failure::new(USAGE, format!("{path}:{number}: {error}")))?;
        let question = Question {
            listener,
            ..expected.question
        };
        if let Some(mistake) = question.mistake() {
            return Err(Failure::new(USAGE, format!("{path}:{number}: {mistake}")));
        }
        let explanation = rules.explain(&question);
        if explanation.is_allowed == expected.is_allowed {
            held += 1;
        } else {
            failed.push(format!(
                "{path}:{number}: expected `{line}`, but it is {explanation}"
            ));
        }
    }
    let mut out = io::stdout().lock();
    let lines = failed.iter().try_for_each(|line| writeln!(out, "{line}"));
    lines
        .and_then(|()| writeln!(out, "{held} as expected, {} not", failed.len()))
        .map_err(|error| Failure::output(&error))?;
    Ok(ExitCode::from(u8::from(!failed.is_empty())))
}

/// What the store of this directory has about users, if there is one that can be read.
fn stored(directory: &Path) -> StoredAccess {
    match data::access_in(directory) {
        Ok(stored) => stored.unwrap_or_default(),
        Err(failure) => {
            let why = failure.message.unwrap_or_default();
            // With standard error closed there is no reader.
            let _ = writeln!(io::stderr(), "Note: roles of the store are left out: {why}");
            StoredAccess::default()
        }
    }
}

impl Of {
    fn load(&self) -> Result<(AccessRules, u16), Failure> {
        let sources = Sources {
            file: self.config.clone(),
            ..Sources::from_environment()
        };
        let wrong = |error: &dyn std::fmt::Display| Failure::new(CONFIG, error);
        let config = sources.load().map_err(|error| wrong(&error))?.config;
        let directory = self.directory.clone().or_else(|| config.storage.place());
        let stored = directory.map(|directory| stored(&directory));
        let stored = stored.unwrap_or_default();
        let rules = AccessRules::load(&config, &stored).map_err(|error| wrong(&error))?;
        Ok((rules, self.listener_of(&config)?))
    }

    fn listener_of(&self, config: &Config) -> Result<u16, Failure> {
        let mut listeners = (0..).zip(&config.listeners);
        let named = listeners.find(|(number, listener): &(u16, _)| {
            listener.name.as_ref() == Some(&self.listener) || number.to_string() == self.listener
        });
        named.map(|(number, _)| number).ok_or_else(|| {
            let message = format!(
                "no listener has the name or number `{}`; there are {}",
                self.listener,
                config.listeners.len()
            );
            Failure::new(USAGE, message)
        })
    }
}

impl Asked {
    const fn action(self) -> Option<Action> {
        match self {
            Self::Connect => None,
            Self::Publish => Some(Action::Publish),
            Self::Subscribe => Some(Action::Subscribe),
            Self::Receive => Some(Action::Receive),
        }
    }
}
