//! `unbroken check`: validates a configuration and shows where each value comes from.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::json;
use unbroken_broker::access;
use unbroken_broker::config::{self, Config, Effective, Listener, Origin, Problem, Sources};
use unbroken_broker::passwords::Passwords;
use unbroken_broker::{Expiry, check_certificates, check_hook, check_tokens};

use crate::cert::date;
use crate::check_mosquitto;
use crate::data::{self, human_format};
use crate::exit::Failure;

/// Check a configuration and show every value with its origin
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  unbroken check -c broker.toml           validate it; show each value and where it comes from
  unbroken check                          the defaults, with the environment's values
  unbroken check -c broker.toml --json    as JSON
  unbroken check --example > broker.toml  a config file to start from, with every key explained
  unbroken check --mosquitto /etc/mosquitto/mosquitto.conf
                                          what a configuration of Mosquitto says, and its mistakes

Exit codes: 0 it is valid; 1 it is not, and standard error lists the mistakes; 2 wrong usage;
66 the file of Mosquitto cannot be read.")]
pub(crate) struct Args {
    /// Config file (TOML)
    #[arg(short, long, value_name = "FILE", env = "UNBROKEN_CONFIG")]
    config: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Print an example config file instead
    #[arg(long, conflicts_with_all = ["config", "json"])]
    example: bool,
    /// Read a mosquitto.conf, what it includes, and the files with rights and passwords it names
    #[arg(long, value_name = "FILE", conflicts_with_all = ["config", "example"])]
    mosquitto: Option<PathBuf>,
    /// Read an access control list of Mosquitto
    #[arg(long, value_name = "FILE", conflicts_with_all = ["config", "example", "mosquitto"])]
    acl: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    if let Some(path) = &args.mosquitto {
        return check_mosquitto::conf(path, args.json);
    }
    if let Some(path) = &args.acl {
        return check_mosquitto::acl(path, args.json);
    }
    let mut out = io::stdout().lock();
    let written = if args.example {
        out.write_all(config::example().as_bytes())
            .map(|()| ExitCode::SUCCESS)
    } else {
        let sources = Sources {
            file: args.config.clone(),
            ..Sources::from_environment()
        };
        let (effective, problems, expiries) = examine(&sources);
        let code = if problems.is_empty() {
            ExitCode::SUCCESS
        } else {
            ExitCode::from(1)
        };
        match (args.json, &effective) {
            (true, _) => write_json(&mut out, effective.as_ref(), &problems, &expiries),
            (false, Some(effective)) if problems.is_empty() => {
                write_table(&mut out, effective, &expiries)
            }
            (false, _) => write_problems(&problems),
        }
        .map(|()| code)
    };
    written
        .and_then(|code| out.flush().map(|()| code))
        .map_err(|error| Failure::output(&error))
}

/// The configuration as far as it can be used, and everything that is wrong with it or with the
/// files that it names; and when these expire.
fn examine(sources: &Sources) -> (Option<Effective>, Vec<Problem>, Vec<Expiry>) {
    let effective = match sources.load() {
        Ok(effective) => effective,
        Err(error) => return (None, error.problems().to_vec(), Vec::new()),
    };
    let mut problems = Vec::new();
    let mut expiries: Vec<Expiry> = Vec::new();
    for (index, listener) in effective.config.listeners.iter().enumerate() {
        let mut wrong = |key, message, help: Option<&str>| {
            problems.push(Problem {
                origin: Some(effective.listener_origin(index, key)),
                message,
                help: help.map(str::to_owned),
            });
        };
        let passwords = listener.password_file.as_deref().map(Passwords::read);
        if let Some(Err(error)) = passwords {
            let help = "`unbroken passwd FILE USER` writes such a file";
            wrong("password_file", error.to_string(), Some(help));
        }
        if let Err(error) = access::remarks(listener) {
            wrong("acl_file", error.to_string(), None);
        }
        let has_tls = listener.protocol.has_tls();
        match has_tls.then(|| check_certificates(&listener.tls)) {
            Some(Err(error)) => wrong("certificate_file", error.to_string(), None),
            Some(Ok(found)) => expiries.extend(found),
            None => {}
        }
    }
    match effective
        .config
        .admin
        .tls()
        .map(|tls| check_certificates(&tls))
    {
        Some(Err(error)) => problems.push(Problem {
            origin: None,
            message: format!("the admin server: {error}"),
            help: None,
        }),
        Some(Ok(found)) => expiries.extend(found),
        None => {}
    }
    let tokens = effective.config.jwt.iter().map(check_tokens);
    let hooks = effective.config.http_auth.iter().map(check_hook);
    let wrong = tokens.filter_map(|it| it.err().map(|error| error.to_string()));
    let wrong = wrong.chain(hooks.filter_map(|it| it.err().map(|error| error.to_string())));
    problems.extend(wrong.map(|message| Problem {
        origin: None,
        message,
        help: None,
    }));
    expiries.sort_by(|a, b| (a.not_after, &a.file).cmp(&(b.not_after, &b.file)));
    expiries.dedup();
    (Some(effective), problems, expiries)
}

/// Of each listener the names that its password file and the store both have: the file decides.
fn names_in_two_sources(config: &Config) -> Vec<String> {
    let has_both = |it: &&Listener| it.stored_users && it.password_file.is_some();
    let listeners: Vec<_> = config.listeners.iter().filter(has_both).collect();
    let directory = config.storage.place().filter(|_| !listeners.is_empty());
    // A store that cannot be read is no mistake of the configuration.
    let stored = directory.and_then(|directory| data::access_in(&directory).ok().flatten());
    let Some(stored) = stored else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for listener in listeners {
        let file = listener.password_file.as_deref();
        let Some(Ok(passwords)) = file.map(Passwords::read) else {
            continue;
        };
        let names = passwords.users().collect::<BTreeSet<_>>().into_iter();
        for name in names.filter(|name| stored.users().contains_key(*name)) {
            found.push(format!(
                "{}: user {} is in its password_file and in the store; the file decides",
                listener.address(),
                human_format::shown(name)
            ));
        }
    }
    found
}

/// Hints about lines of access control lists, and about listeners.
fn notes(config: &Config) -> Vec<String> {
    let remarks = |listener| access::remarks(listener).unwrap_or_default();
    let remarks = config.listeners.iter().flat_map(remarks);
    let remarks = remarks.map(|remark| remark.to_string());
    remarks.chain(access::notes(config)).collect()
}

fn write_problems(problems: &[Problem]) -> io::Result<()> {
    let mut out = io::stderr().lock();
    problems
        .iter()
        .try_for_each(|problem| writeln!(out, "{problem}"))
}

fn write_table(out: &mut dyn Write, effective: &Effective, expiries: &[Expiry]) -> io::Result<()> {
    for listener in &effective.config.listeners {
        for address in listener.addresses() {
            let (protocol, admits) = (listener.protocol.as_str(), listener.admits());
            writeln!(out, "# {address} ({protocol}, {admits})")?;
        }
    }
    let config = &effective.config;
    for note in notes(config) {
        writeln!(out, "# note: {note}")?;
    }
    for weakness in [access::weaknesses(config), names_in_two_sources(config)].concat() {
        writeln!(out, "# weak: {weakness}")?;
    }
    for expiry in expiries {
        let (file, what) = (expiry.file.display(), expiry.what.name());
        let (date, days) = (date(expiry.not_after), expiry.days_left());
        match days {
            ..0 => writeln!(out, "# expired: {file} ({what}) on {date}")?,
            _ => writeln!(out, "# expires: {file} ({what}) on {date}, in {days} days")?,
        }
    }
    let values = effective.values();
    let name_width = values
        .iter()
        .map(|value| value.name.len())
        .max()
        .unwrap_or(0);
    let value_width = values
        .iter()
        .map(|value| value.value.chars().count())
        .max()
        .unwrap_or(0);
    for value in &values {
        let (name, shown, origin) = (&value.name, &value.value, &value.origin);
        writeln!(out, "{name:name_width$} = {shown:value_width$}  # {origin}")?;
    }
    Ok(())
}

fn write_json(
    out: &mut dyn Write,
    effective: Option<&Effective>,
    problems: &[Problem],
    expiries: &[Expiry],
) -> io::Result<()> {
    let values: Vec<_> = effective.map_or(Vec::new(), Effective::values);
    let values: Vec<_> = values
        .iter()
        .map(|value| {
            let typed = serde_json::from_str(&value.value);
            let typed = typed.unwrap_or_else(|_| json!(value.value.trim_matches('\'')));
            json!({ "name": value.name, "value": typed, "origin": origin_json(&value.origin) })
        })
        .collect();
    let problems: Vec<_> = problems
        .iter()
        .map(|problem| {
            json!({
                "origin": problem.origin.as_ref().map(origin_json),
                "message": problem.message,
                "help": problem.help,
            })
        })
        .collect();
    let weaknesses = effective.map_or(Vec::new(), |it| {
        [
            access::weaknesses(&it.config),
            names_in_two_sources(&it.config),
        ]
        .concat()
    });
    let expiries = expiries.iter().map(|expiry| {
        json!({
            "file": expiry.file,
            "what": expiry.what.name(),
            "not_after": expiry.not_after,
            "days_left": expiry.days_left(),
        })
    });
    let whole = json!({
        "valid": problems.is_empty(),
        "problems": problems,
        "notes": effective.map_or(Vec::new(), |it| notes(&it.config)),
        "weaknesses": weaknesses,
        "expiries": expiries.collect::<Vec<_>>(),
        "values": values,
    });
    writeln!(out, "{whole}")
}

fn origin_json(origin: &Origin) -> serde_json::Value {
    match origin {
        Origin::Default => json!({ "from": "default" }),
        Origin::File { path, line } => json!({ "from": "file", "file": path, "line": line }),
        Origin::Environment { variable } => json!({ "from": "environment", "variable": variable }),
        Origin::EnvironmentFile { variable, path } => {
            json!({ "from": "environment", "variable": variable, "file": path })
        }
        Origin::Flag { flag } => json!({ "from": "flag", "flag": flag }),
    }
}
