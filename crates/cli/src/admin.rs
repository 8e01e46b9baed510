//! `unbroken admin`: accounts, tokens and history of a running broker's admin server.

use std::io::{self, Write};

use clap::{Subcommand, ValueEnum};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use unbroken_broker::config::parse_duration;

use crate::admin_client::AdminClient;
use crate::data::access_args::AccessArgs;
use crate::exit::{self, Failure};
use crate::passwd;

/// Manage who may use the admin server
#[derive(Debug, clap::Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Account(AccountArgs),
    Token(TokenArgs),
    Link(Link),
    History(History),
}

/// Add, change, remove and list accounts: people who use the page
#[derive(Debug, clap::Args)]
#[command(arg_required_else_help = true)]
#[command(after_help = "\
Examples:
  unbroken admin account add ann --role operator   asks for the password
  unbroken admin account passwd ann                gives her a new one, and ends her sessions
  unbroken admin account role ann admin
  unbroken admin account list

The broker must run. Accounts are no users of MQTT: those are `unbroken user`.
Exit codes: 0 done; 1 there is no such account, or one already; 2 wrong usage; 69 no broker answers;
77 the broker is another user's.")]
struct AccountArgs {
    #[command(subcommand)]
    command: AccountCommand,
}

#[derive(Debug, Subcommand)]
enum AccountCommand {
    /// Add an account; its password is asked for, or the first line of standard input
    Add {
        #[command(flatten)]
        data: AccessArgs,
        /// 1 to 64 of the characters A-Z a-z 0-9 . _ @ -
        name: String,
        /// What it may do: read; change what clients do; change who may do what
        #[arg(long, value_enum, default_value = "viewer")]
        role: Role,
    },
    /// Give an account a new password, which ends its sessions
    Passwd {
        #[command(flatten)]
        data: AccessArgs,
        /// The account
        name: String,
    },
    /// Give an account another role
    Role {
        #[command(flatten)]
        data: AccessArgs,
        /// The account
        name: String,
        /// The role
        #[arg(value_enum)]
        role: Role,
    },
    /// Remove an account, with its sessions
    Remove {
        #[command(flatten)]
        data: AccessArgs,
        /// The account
        name: String,
    },
    /// List accounts
    List {
        #[command(flatten)]
        data: AccessArgs,
        /// Print each as one JSON object
        #[arg(long)]
        json: bool,
    },
}

/// Make, revoke and list tokens: programs that use the API
#[derive(Debug, clap::Args)]
#[command(arg_required_else_help = true)]
#[command(after_help = "\
Examples:
  unbroken admin token add prometheus --scope 'GET /metrics'
  unbroken admin token add deploy --role operator --for 90d
  curl -H \"Authorization: Bearer $TOKEN\" localhost:7883/api/v1/node
  unbroken admin token remove deploy

`add` prints the token, which cannot be shown again. The broker must run.
Exit codes: 0 done; 1 there is no such token, or one already; 2 wrong usage; 69 no broker answers;
77 the broker is another user's.")]
struct TokenArgs {
    #[command(subcommand)]
    command: TokenCommand,
}

#[derive(Debug, Subcommand)]
enum TokenCommand {
    /// Make a token, and print it
    Add {
        #[command(flatten)]
        data: AccessArgs,
        /// 1 to 64 of the characters A-Z a-z 0-9 . _ @ -
        name: String,
        /// What it may do
        #[arg(long, value_enum, default_value = "viewer")]
        role: Role,
        /// How long it is good, such as 90d; without it, until it is removed
        #[arg(long = "for", value_name = "TIME")]
        span: Option<String>,
        /// Only requests whose path begins so, such as /metrics or 'GET /api/v1/clients'; as often
        /// as needed
        #[arg(long = "scope", value_name = "[METHOD ]PATH")]
        scope: Vec<String>,
    },
    /// Revoke a token
    Remove {
        #[command(flatten)]
        data: AccessArgs,
        /// Its name or id
        name: String,
    },
    /// List tokens
    List {
        #[command(flatten)]
        data: AccessArgs,
        /// Print each as one JSON object
        #[arg(long)]
        json: bool,
    },
}

/// Print a link that makes the first account
///
/// It is good once and for 15 minutes, while there is no account.
#[derive(Debug, clap::Args)]
struct Link {
    #[command(flatten)]
    data: AccessArgs,
}

/// Show what was changed by whom, the newest last
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  unbroken admin history
  unbroken admin history -n 1000 --json | jq 'select(.outcome == \"refused\")'

Exit codes: 0 done; 69 no broker answers; 77 the broker is another user's.")]
struct History {
    #[command(flatten)]
    data: AccessArgs,
    /// So many entries at most
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 50,
          value_parser = clap::value_parser!(u16).range(1..=1000))]
    limit: u16,
    /// Print each as one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Role {
    Viewer,
    Operator,
    Admin,
}

impl Role {
    const fn name(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    match &args.command {
        Command::Account(args) => account(&args.command),
        Command::Token(args) => token(&args.command),
        Command::Link(args) => link(args),
        Command::History(args) => history(args),
    }
}

fn client(data: &AccessArgs) -> Result<AdminClient, Failure> {
    Ok(AdminClient::new(data.socket_directory()?))
}

fn account(command: &AccountCommand) -> Result<(), Failure> {
    match command {
        AccountCommand::Add { data, name, role } => {
            let password = passwd::ask(name)?;
            let new = json!({ "name": name, "role": role.name(), "password": password });
            client(data)?.call("POST", "/accounts", Some(&new))?;
            say(&[format!(
                "account {name} is added, with the role {}",
                role.name()
            )])
        }
        AccountCommand::Passwd { data, name } => {
            let change = json!({ "password": passwd::ask(name)? });
            change_account(data, name, &change)?;
            say(&[format!("{name} has a new password, and was signed out")])
        }
        AccountCommand::Role { data, name, role } => {
            change_account(data, name, &json!({ "role": role.name() }))?;
            say(&[format!("{name} has the role {}", role.name())])
        }
        AccountCommand::Remove { data, name } => {
            client(data)?.call("DELETE", &format!("/accounts/{}", segment(name)), None)?;
            say(&["removed".to_owned()])
        }
        AccountCommand::List { data, json } => {
            let all = client(data)?.list("/accounts?limit=1000")?;
            show(&all, *json, &["name", "role", "created"])
        }
    }
}

fn change_account(data: &AccessArgs, name: &str, change: &Value) -> Result<(), Failure> {
    let path = format!("/accounts/{}", segment(name));
    client(data)?.call("PATCH", &path, Some(change)).map(drop)
}

fn token(command: &TokenCommand) -> Result<(), Failure> {
    match command {
        TokenCommand::Add {
            data,
            name,
            role,
            span,
            scope,
        } => {
            let expires = span.as_deref().map(end_of).transpose()?;
            let new = json!({
                "name": name, "role": role.name(), "scope": scope, "expires": expires,
            });
            let made = client(data)?.call("POST", "/tokens", Some(&new))?;
            say(&[made["secret"].as_str().unwrap_or_default().to_owned()])
        }
        TokenCommand::Remove { data, name } => {
            let client = client(data)?;
            let all = client.list("/tokens?limit=1000")?;
            let is_it = |token: &&Value| token["id"] == **name || token["name"] == **name;
            let found = all
                .iter()
                .find(is_it)
                .and_then(|token| token["id"].as_str());
            let id = found.ok_or_else(|| Failure::new(1, format!("there is no token {name}")))?;
            client.call("DELETE", &format!("/tokens/{id}"), None)?;
            say(&["removed".to_owned()])
        }
        TokenCommand::List { data, json } => {
            let all = client(data)?.list("/tokens?limit=1000")?;
            show(
                &all,
                *json,
                &["id", "name", "role", "scope", "expires", "last_used"],
            )
        }
    }
}

/// When a time from now ends.
fn end_of(span: &str) -> Result<String, Failure> {
    let wrong = |why: String| Failure::new(exit::USAGE, format!("--for {span}: {why}"));
    let time = parse_duration(span).map_err(|why| wrong(why.to_string()))?;
    let time = SignedDuration::try_from(time).map_err(|why| wrong(why.to_string()))?;
    let end = Timestamp::now().checked_add(time);
    end.map(|end| format!("{end:.3}"))
        .map_err(|why| wrong(why.to_string()))
}

fn link(args: &Link) -> Result<(), Failure> {
    let made = client(&args.data)?.call("POST", "/sign-in/links", None)?;
    match made["url"].as_str() {
        Some(url) => say(&[url.to_owned()]),
        None => Err(Failure::new(
            exit::UNAVAILABLE,
            "the admin server listens at no address: `unbroken admin account add` makes an account",
        )),
    }
}

fn history(args: &History) -> Result<(), Failure> {
    let path = format!("/history?limit={}", args.limit);
    let mut page = client(&args.data)?.get(&path)?;
    let mut entries = match page["items"].take() {
        Value::Array(items) => items,
        _ => Vec::new(),
    };
    entries.reverse();
    let columns = ["at", "caller", "address", "outcome", "action", "target"];
    show(&entries, args.json, &columns)
}

/// One line for each: JSON, or some of its values in columns.
fn show(all: &[Value], json: bool, columns: &[&str]) -> Result<(), Failure> {
    if json {
        return say(&all.iter().map(Value::to_string).collect::<Vec<_>>());
    }
    let text = |value: &Value| match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.chars().filter(|it| !it.is_control()).collect(),
        Value::Array(items) if items.is_empty() => "-".to_owned(),
        Value::Array(items) => {
            let texts = items.iter().filter_map(Value::as_str);
            texts.collect::<Vec<_>>().join(", ")
        }
        other => other.to_string(),
    };
    let rows: Vec<Vec<String>> = all
        .iter()
        .map(|one| columns.iter().map(|name| text(&one[*name])).collect())
        .collect();
    let width = |column: usize| {
        let widths = rows.iter().map(|row| row[column].chars().count());
        widths.max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..columns.len()).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    say(&rows.iter().map(line).collect::<Vec<_>>())
}

fn say(lines: &[String]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    let written = lines.iter().try_for_each(|line| writeln!(out, "{line}"));
    written.map_err(|error| Failure::output(&error))
}

/// A name as one segment of a path.
fn segment(name: &str) -> String {
    let escaped = |byte: u8| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'@' => {
            char::from(byte).to_string()
        }
        _ => format!("%{byte:02X}"),
    };
    name.bytes().map(escaped).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_segment() {
        for (name, expected) in [("ann", "ann"), ("a/b?", "a%2Fb%3F"), ("ä", "%C3%A4")] {
            assert_eq!(segment(name), expected);
        }
    }

    #[test]
    fn a_time_ends_in_the_future() {
        let end: Timestamp = end_of("90d").unwrap().parse().unwrap();
        assert!(end > Timestamp::now());
        assert!(end_of("soon").is_err());
    }
}
