//! `unbroken role` and `unbroken rule`: roles that the broker's store has, and their rules.

use std::io::{self, Write};

use serde_json::json;
use unbroken_broker::stored_access::{Change, Holder, Role, StoredAccess};

use super::access_args::AccessArgs;
use super::human_format;
use super::users::say;
use crate::exit::Failure;

/// Add, remove or list roles in the broker's store, and say who has them
#[derive(Debug, clap::Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Add(Named),
    Remove(Named),
    List(List),
    Grant(Given),
    Revoke(Given),
}

/// Add a role without rules, which nobody has, or (remove) remove one
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  unbroken role add sensors
  unbroken rule add sensors allow publish 'plant/{user}/#'
  unbroken role grant ann sensors

Roles of the store count together with `[[roles]]` of the configuration: a client may do what one
role of both allows and none denies. A role is in force once somebody has it. If there were no roles
before, a client without one may not connect from then on.

Exit codes: 0 done; 1 there is such a role already (add), or none (remove); 2 wrong usage; 65 the
store is damaged; 66 there is none; 69 another process has it; 74 reading or writing failed; 77 it
is another user's; 78 wrong configuration.")]
struct Named {
    #[command(flatten)]
    data: AccessArgs,
    /// The role
    #[arg(value_name = "ROLE")]
    name: String,
}

/// List roles, who has them, and their rules
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  unbroken role list
  unbroken role list --json | jq 'select(.everyone)'

Exit codes: as `add`.")]
struct List {
    #[command(flatten)]
    data: AccessArgs,
    /// Print each role as one JSON object
    #[arg(long)]
    json: bool,
}

/// Give a role to a user, or (revoke) take it away
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  unbroken role grant ann sensors
  unbroken role grant --anonymous guests
  unbroken role revoke ann sensors

The user may be of the store, of a password file, or of a certificate. Clients that are connected
are judged anew at once: one that may not connect any more is disconnected.

Exit codes: 0 done; 1 there is no such role, or (revoke) the user does not have it; otherwise as
`add`.")]
struct Given {
    #[command(flatten)]
    data: AccessArgs,
    /// Clients without a user name, instead of a user
    #[arg(long, conflicts_with = "everyone")]
    anonymous: bool,
    /// Every client, instead of a user
    #[arg(long)]
    everyone: bool,
    /// The user and the role; the role alone with --anonymous or --everyone
    #[arg(required = true, num_args = 1..=2, value_names = ["USER", "ROLE"])]
    names: Vec<String>,
}

/// Add, remove or list rules of a role in the broker's store
#[derive(Debug, clap::Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct RuleArgs {
    #[command(subcommand)]
    command: RuleCommand,
}

#[derive(Debug, clap::Subcommand)]
enum RuleCommand {
    Add(Rule),
    Remove(Rule),
    List(Named),
}

/// Add a rule to a role, or (remove) remove one
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  unbroken rule add sensors allow publish 'plant/{user}/#'
  unbroken rule add sensors allow subscribe,receive 'plant/commands/{user}'
  unbroken rule add sensors deny all '$SYS/#'
  unbroken rule remove sensors deny all '$SYS/#'

ACTIONS are publish, subscribe, receive, with commas between, or all. In FILTER {user} and {client}
are the client's own names. The order of rules does not matter: what one denies is denied.

Exit codes: 0 done; 1 there is no such role, or (remove) no such rule; otherwise as `role add`.")]
struct Rule {
    #[command(flatten)]
    data: AccessArgs,
    /// The role
    role: String,
    /// Whether it allows or denies
    effect: Effect,
    /// What it is about
    actions: String,
    /// A topic filter
    filter: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Effect {
    Allow,
    Deny,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    match &args.command {
        Command::Add(args) => {
            let name = args.name.clone();
            args.data
                .open_or_create()?
                .change(&Change::AddRole { name })?;
            say(&format!("added role {}", human_format::shown(&args.name)))
        }
        Command::Remove(args) => {
            let name = args.name.clone();
            args.data.open()?.change(&Change::RemoveRole { name })?;
            say(&format!("removed role {}", human_format::shown(&args.name)))
        }
        Command::List(args) => list(args),
        Command::Grant(args) => {
            let (to, role) = args.meant()?;
            args.data.open()?.change(&Change::Grant { role, to })?;
            say("granted")
        }
        Command::Revoke(args) => {
            let (from, role) = args.meant()?;
            args.data.open()?.change(&Change::Revoke { role, from })?;
            say("revoked")
        }
    }
}

pub(crate) fn run_rule(args: &RuleArgs) -> Result<(), Failure> {
    match &args.command {
        RuleCommand::Add(args) => {
            let (role, denies, text) = args.meant();
            let change = Change::AddRule { role, denies, text };
            args.data.open()?.change(&change)?;
            say("added")
        }
        RuleCommand::Remove(args) => {
            let (role, denies, text) = args.meant();
            let change = Change::RemoveRule { role, denies, text };
            args.data.open()?.change(&change)?;
            say("removed")
        }
        RuleCommand::List(args) => list_rules(args),
    }
}

impl Given {
    fn meant(&self) -> Result<(Holder, String), Failure> {
        let wrong = |what: &str| Err(Failure::new(crate::exit::USAGE, what));
        let holder = match (self.anonymous, self.everyone) {
            (true, _) => Some(Holder::Anonymous),
            (_, true) => Some(Holder::Everyone),
            _ => None,
        };
        match (holder, &*self.names) {
            (None, [user, role]) => Ok((Holder::User(user.clone()), role.clone())),
            (Some(holder), [role]) => Ok((holder, role.clone())),
            (None, _) => wrong("expected a user and a role: `unbroken role grant USER ROLE`"),
            (Some(_), _) => wrong("expected a role alone: no user stands beside this flag"),
        }
    }
}

impl Rule {
    fn meant(&self) -> (String, bool, String) {
        let text = format!("{} {}", self.actions, self.filter);
        (self.role.clone(), self.effect == Effect::Deny, text)
    }
}

fn list(args: &List) -> Result<(), Failure> {
    let access = args.data.open()?.access()?;
    let mut out = io::BufWriter::new(io::stdout().lock());
    let written = if args.json {
        access.roles().iter().try_for_each(|(name, role)| {
            let rules: Vec<_> = role.rules.iter().map(rule_text).collect();
            let object = json!({
                "role": name,
                "everyone": role.everyone,
                "anonymous": role.anonymous,
                "users": role.users,
                "rules": rules,
            });
            writeln!(out, "{object}")
        })
    } else {
        human_format::table(&mut out, ["ROLE", "WHO", "RULES"], &rows(&access))
    };
    written
        .and_then(|()| out.flush())
        .map_err(|error| Failure::output(&error))
}

fn rows(access: &StoredAccess) -> Vec<[String; 3]> {
    let row = |(name, role): (&String, &Role)| {
        let rules: Vec<_> = role.rules.iter().map(rule_text).collect();
        [human_format::shown(name), holders(role), rules.join("; ")]
    };
    access.roles().iter().map(row).collect()
}

fn holders(role: &Role) -> String {
    let mut holders = Vec::new();
    holders.extend(role.everyone.then(|| "everyone".to_owned()));
    holders.extend(role.anonymous.then(|| "anonymous".to_owned()));
    holders.extend(role.users.iter().map(|user| human_format::shown(user)));
    if holders.is_empty() {
        return "nobody: not in force".to_owned();
    }
    holders.join(", ")
}

fn list_rules(args: &Named) -> Result<(), Failure> {
    let access = args.data.open()?.access()?;
    let Some(role) = access.roles().get(&args.name) else {
        let shown = human_format::shown(&args.name);
        return Err(Failure::new(1, format_args!("there is no role {shown}")));
    };
    let mut out = io::stdout().lock();
    let mut rules = role.rules.iter();
    rules
        .try_for_each(|rule| writeln!(out, "{}", rule_text(rule)))
        .map_err(|error| Failure::output(&error))
}

fn rule_text(rule: &unbroken_broker::stored_access::RoleRule) -> String {
    let effect = if rule.denies { "deny" } else { "allow" };
    format!("{effect} {}", rule.text)
}
