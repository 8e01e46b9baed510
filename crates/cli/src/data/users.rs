//! `unbroken user`: users that the broker's store has.

use std::io::{self, Write};
use std::path::PathBuf;

use serde_json::json;
use unbroken_broker::passwords::{Scheme, make_hash};
use unbroken_broker::stored_access::{Change, Hash, StoredAccess};

use super::access_args::AccessArgs;
use super::{Data, human_format};
use crate::exit::{self, Failure};
use crate::passwd;

/// Add, change or remove users in the broker's store
#[derive(Debug, clap::Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Add(Add),
    Passwd(Add),
    Remove(Remove),
    List(List),
}

/// Add a user, or (passwd) give one another password
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  unbroken user add ann                         asks for the password
  pass mqtt/ann | unbroken user add ann
  unbroken user passwd ann --password-file secret
  unbroken user add ann --data /var/lib/unbroken

Users may connect on listeners with `stored_users = true`. The password is hashed with argon2id, for
clients that send it, and beside it are the keys of SCRAM-SHA-256 and SCRAM-SHA-512, for clients of
MQTT 5.0 that show that they know it. With `--hash argon2id` there are no such keys. A running
broker applies the change at once; clients that are connected stay. Users are in backups.

Exit codes: 0 done; 1 there is such a user already (add), or none (passwd); 2 wrong usage; 65 the
store is damaged; 66 a file cannot be read; 69 another process has the store; 74 reading or writing
failed; 77 the store is another user's; 78 wrong configuration.")]
struct Add {
    #[command(flatten)]
    data: AccessArgs,
    /// A file whose first line is the password; without it, it is asked for, or read from standard
    /// input
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// What is stored of the password
    #[arg(
        short = 'H',
        long,
        value_enum,
        value_name = "HASH",
        default_value = "all"
    )]
    hash: Stored,
    /// The user
    #[arg(value_name = "USER")]
    name: String,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Stored {
    /// argon2id, and keys of SCRAM
    All,
    /// argon2id alone: harder to guess at, and of no use for SCRAM
    Argon2id,
}

impl From<Stored> for Scheme {
    fn from(stored: Stored) -> Self {
        match stored {
            Stored::All => Self::Argon2idAndScram,
            Stored::Argon2id => Self::Argon2id,
        }
    }
}

/// Remove a user, and take its roles from it
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  unbroken user remove ann

The user's clients cannot connect again. Those that are connected lose the roles that the store gave
to the user.

Exit codes: 0 done; 1 there is no such user; otherwise as `add`.")]
struct Remove {
    #[command(flatten)]
    data: AccessArgs,
    /// The user
    #[arg(value_name = "USER")]
    name: String,
}

/// List users and their roles
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  unbroken user list
  unbroken user list --json | jq -r .user

Exit codes: as `add`.")]
struct List {
    #[command(flatten)]
    data: AccessArgs,
    /// Print each user as one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    match &args.command {
        Command::Add(args) => add(args),
        Command::Passwd(args) => change_password(args),
        Command::Remove(args) => remove(args),
        Command::List(args) => list(args),
    }
}

fn add(args: &Add) -> Result<(), Failure> {
    let data = args.data.open_or_create()?;
    let name = args.name.clone();
    let hash = args.hashed()?;
    data.change(&Change::AddUser { name, hash })?;
    say(&format!("added user {}", human_format::shown(&args.name)))
}

fn change_password(args: &Add) -> Result<(), Failure> {
    let data = args.data.open()?;
    let name = args.name.clone();
    if !data.access()?.users().contains_key(&name) {
        let shown = human_format::shown(&name);
        return Err(Failure::new(1, format_args!("there is no user {shown}")));
    }
    let hash = args.hashed()?;
    data.change(&Change::SetPassword { name, hash })?;
    say(&format!(
        "changed the password of {}",
        human_format::shown(&args.name)
    ))
}

impl Add {
    fn hashed(&self) -> Result<Hash, Failure> {
        let password = match &self.password_file {
            Some(path) => passwd::read_from(path)?,
            None => passwd::ask(&self.name)?,
        };
        let hash = make_hash(password.as_bytes(), self.hash.into());
        let hash = hash.map_err(|error| Failure::new(exit::UNAVAILABLE, error))?;
        Ok(Hash(hash))
    }
}

fn remove(args: &Remove) -> Result<(), Failure> {
    let data = args.data.open()?;
    let access = data.access()?;
    let name = args.name.clone();
    data.change(&Change::RemoveUser { name })?;
    let shown = human_format::shown(&args.name);
    match roles(&access, &args.name).as_str() {
        "" => say(&format!("removed user {shown}")),
        roles => say(&format!("removed user {shown}, who had {roles}")),
    }
}

fn list(args: &List) -> Result<(), Failure> {
    let data: Data = args.data.open()?;
    let access = data.access()?;
    let mut out = io::BufWriter::new(io::stdout().lock());
    let names = access.users().keys();
    let written = if args.json {
        names.map(String::as_str).try_for_each(|name| {
            let roles: Vec<_> = access.roles_of(name).collect();
            writeln!(out, "{}", json!({ "user": name, "roles": roles }))
        })
    } else {
        let row = |name: &String| [human_format::shown(name), roles(&access, name)];
        let rows: Vec<_> = names.map(row).collect();
        human_format::table(&mut out, ["USER", "ROLES"], &rows)
    };
    written
        .and_then(|()| out.flush())
        .map_err(|error| Failure::output(&error))
}

fn roles(access: &StoredAccess, user: &str) -> String {
    let roles: Vec<_> = access.roles_of(user).map(human_format::shown).collect();
    roles.join(", ")
}

/// One line of standard output.
pub(super) fn say(text: &str) -> Result<(), Failure> {
    writeln!(io::stdout(), "{text}").map_err(|error| Failure::output(&error))
}
