//! `unbroken ban`: who may not connect.

use std::io::{self, Write};

use jiff::Timestamp;
use serde_json::json;
use unbroken_broker::config::parse_duration;
use unbroken_broker::stored_access::{BanTarget, Change};

use super::access_args::AccessArgs;
use super::users::say;
use super::{Data, human_format, now_ms};
use crate::exit::{self, Failure};

/// Ban addresses, client ids and users
#[derive(Debug, clap::Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Add(Add),
    Remove(Remove),
    List(List),
}

/// Ban an address, a client id or a user
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  unbroken ban add --address 203.0.113.7 --for 2h
  unbroken ban add --address 203.0.113.0/24 --reason 'guesses passwords'
  unbroken ban add --client pump-7 --until 2026-12-24T18:00:00Z
  unbroken ban add --user eve

A running broker disconnects the clients that the ban is about, and refuses them with 0x8A (Banned;
before 5.0: 5). Connections from banned addresses are closed before they send anything. A ban
replaces one of the same address, client id or user, and is kept over a restart.

Exit codes: 0 done; 2 wrong usage; 65 the store is damaged; 69 another process has it; 74 reading or
writing failed; 77 it is another user's; 78 wrong configuration.")]
struct Add {
    #[command(flatten)]
    data: AccessArgs,
    #[command(flatten)]
    target: Target,
    /// How long it lasts, such as 30m or 1d 12h; without it and --until, until it is removed
    #[arg(long = "for", value_name = "TIME", conflicts_with = "until")]
    span: Option<String>,
    /// When it ends, such as 2026-12-24T18:00:00Z
    #[arg(long, value_name = "TIME")]
    until: Option<Timestamp>,
    /// Why, for the list
    #[arg(long, value_name = "TEXT", default_value = "")]
    reason: String,
}

/// Remove a ban
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  unbroken ban remove --address 203.0.113.7
  unbroken ban remove --client pump-7

Exit codes: 0 done; 1 there is no such ban; otherwise as `add`.")]
struct Remove {
    #[command(flatten)]
    data: AccessArgs,
    #[command(flatten)]
    target: Target,
}

/// List bans, with those that failed logins have caused
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  unbroken ban list
  unbroken ban list --json | jq 'select(.automatic)'

Bans of `[bans] failed_logins` are shown while the broker runs; a restart ends them.

Exit codes: as `add`.")]
struct List {
    #[command(flatten)]
    data: AccessArgs,
    /// Print each ban as one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct Target {
    /// An address, or a network such as 10.0.0.0/8
    #[arg(long, value_name = "ADDRESS")]
    address: Option<String>,
    /// A client id
    #[arg(long, value_name = "ID")]
    client: Option<String>,
    /// A user, of whichever source
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    match &args.command {
        Command::Add(args) => add(args),
        Command::Remove(args) => {
            let target = args.target.meant();
            args.data.open()?.change(&Change::Unban { target })?;
            say("removed")
        }
        Command::List(args) => list(args),
    }
}

impl Target {
    fn meant(&self) -> BanTarget {
        match (&self.address, &self.client, &self.user) {
            (Some(address), _, _) => BanTarget::Address(address.clone()),
            (_, Some(client), _) => BanTarget::Client(client.clone()),
            (_, _, user) => BanTarget::User(user.clone().unwrap_or_default()),
        }
    }
}

fn add(args: &Add) -> Result<(), Failure> {
    let since_ms = now_ms();
    let wrong = |what: String| Failure::new(exit::USAGE, what);
    let until_ms = match (&args.span, args.until) {
        (Some(span), _) => {
            let time = parse_duration(span).map_err(|why| wrong(format!("--for {span}: {why}")))?;
            let ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
            Some(since_ms.saturating_add(ms))
        }
        (None, Some(until)) => Some(u64::try_from(until.as_millisecond()).unwrap_or(0)),
        (None, None) => None,
    };
    if until_ms.is_some_and(|until| until <= since_ms) {
        return Err(wrong("the ban would be over already".to_owned()));
    }
    args.data.open_or_create()?.change(&Change::Ban {
        target: args.target.meant(),
        since_ms,
        until_ms,
        reason: args.reason.clone(),
    })?;
    say("banned")
}

/// A line of the list.
struct Row {
    kind: &'static str,
    name: String,
    until_ms: Option<u64>,
    reason: String,
    is_automatic: bool,
}

fn list(args: &List) -> Result<(), Failure> {
    let data = args.data.open()?;
    let rows = rows(&data)?;
    let mut out = io::BufWriter::new(io::stdout().lock());
    let written = if args.json {
        rows.iter().try_for_each(|row| {
            let object = json!({
                row.kind: row.name,
                "until": row.until_ms.map(human_format::time),
                "reason": row.reason,
                "automatic": row.is_automatic,
            });
            writeln!(out, "{object}")
        })
    } else {
        let row = |row: &Row| {
            let until = row.until_ms.map(human_format::time);
            [
                row.kind.to_owned(),
                human_format::shown(&row.name),
                until.unwrap_or_else(|| "removed".to_owned()),
                row.reason.clone(),
            ]
        };
        let rows: Vec<_> = rows.iter().map(row).collect();
        human_format::table(&mut out, ["BANNED", "NAME", "UNTIL", "REASON"], &rows)
    };
    written
        .and_then(|()| out.flush())
        .map_err(|error| Failure::output(&error))
}

/// All that have not ended.
fn rows(data: &Data) -> Result<Vec<Row>, Failure> {
    let now_ms = now_ms();
    let access = data.access()?;
    let bans = access.bans().iter();
    let bans = bans.filter(|(_, ban)| ban.until_ms.is_none_or(|until| now_ms < until));
    let mut rows: Vec<_> = bans
        .map(|(banned, ban)| Row {
            kind: banned.kind(),
            name: banned.name().to_owned(),
            until_ms: ban.until_ms,
            reason: ban.reason.clone(),
            is_automatic: false,
        })
        .collect();
    rows.extend(
        data.automatic_bans()?
            .into_iter()
            .map(|(address, left_ms)| Row {
                kind: "address",
                name: address.to_string(),
                until_ms: Some(now_ms.saturating_add(left_ms)),
                reason: "too many logins have failed".to_owned(),
                is_automatic: true,
            }),
    );
    Ok(rows)
}
