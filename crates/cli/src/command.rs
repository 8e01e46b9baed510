//! The command line: its commands, and messages about mistakes in it.

use std::io::Write;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgAction, CommandFactory, Parser, Subcommand};

use crate::data::{backup, bans, db, doctor, restore, retained, roles, sessions, users};
use crate::exit::{self, Failure};
use crate::{
    access, admin, audit, bench, cert, check, completions, demo, man, options_file, passwd, pipe,
    publish, reload, ring, serve, subscribe, trace,
};

/// Message passing you can prove: an MQTT broker and its tools.
#[derive(Debug, Parser)]
#[command(
    name = "unbroken",
    version,
    long_version = VERSION,
    disable_help_flag = true,
    arg_required_else_help = true
)]
#[command(after_help = "\
Start here:
  unbroken serve                              a broker on localhost:1883, no file needed
  unbroken sub -t 'plant/#' -v                subscribe
  unbroken pub -t plant/boiler/temp -m 71.5   publish
  unbroken check --example > broker.toml      a config file to start from
  unbroken demo                               see what proof of delivery is, and try to break it

`unbroken COMMAND --help` shows a command's flags with examples (-h is the host).")]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
    /// Show this help
    #[arg(long, global = true, action = ArgAction::Help, display_order = 1000)]
    help: Option<bool>,
}

/// With the commit, if it was built from a checkout: `build.rs` says it.
const VERSION: &str = env!("UNBROKEN_VERSION");

#[derive(Debug, Subcommand)]
enum Command {
    Serve(serve::Args),
    Reload(reload::Args),
    Check(check::Args),
    Access(access::Args),
    Cert(cert::Args),
    Pub(Box<publish::Args>),
    Sub(Box<subscribe::Args>),
    Audit(audit::Args),
    Pipe(pipe::Args),
    Demo(demo::Args),
    Bench(Box<bench::Args>),
    Ring(ring::Args),
    Passwd(passwd::Args),
    User(users::Args),
    Role(roles::Args),
    Rule(roles::RuleArgs),
    Ban(bans::Args),
    Admin(admin::Args),
    Backup(backup::Args),
    Restore(restore::Args),
    Doctor(doctor::Args),
    Sessions(sessions::Args),
    Trace(trace::Args),
    Retained(retained::Args),
    Db(db::Args),
    Completions(completions::Args),
    Man(man::Args),
}

/// Parses, runs, and says what went wrong.
pub(crate) fn main() -> ExitCode {
    let words = match options_file::expand(Cli::command(), std::env::args_os().collect()) {
        Ok(words) => words,
        Err(failure) => return ended(failure),
    };
    let command = match Cli::try_parse_from(words) {
        Ok(cli) => cli.command,
        Err(error) => return explain(&error),
    };
    command.run().unwrap_or_else(ended)
}

fn ended(failure: Failure) -> ExitCode {
    if let Some(message) = failure.message {
        // With standard error closed nobody is left to be told.
        let _ = writeln!(std::io::stderr(), "{message}");
    }
    ExitCode::from(failure.code)
}

impl Command {
    fn run(self) -> Result<ExitCode, Failure> {
        match self {
            Self::Serve(args) => serve::run(&args).map(|()| ExitCode::SUCCESS),
            Self::Reload(args) => reload::run(&args).map(|()| ExitCode::SUCCESS),
            Self::Check(args) => check::run(&args),
            Self::Access(args) => access::run(&args),
            Self::Cert(args) => cert::run(&args),
            Self::Pub(args) => publish::run(&args).map(|()| ExitCode::SUCCESS),
            Self::Sub(args) => subscribe::run(&args),
            Self::Audit(args) => audit::run(&args),
            Self::Pipe(args) => pipe::run(&args),
            Self::Demo(args) => demo::run(&args),
            Self::Bench(args) => bench::run(*args),
            Self::Ring(args) => ring::run(&args),
            Self::Passwd(args) => passwd::run(&args).map(|()| ExitCode::SUCCESS),
            Self::User(args) => users::run(&args).map(|()| ExitCode::SUCCESS),
            Self::Role(args) => roles::run(&args).map(|()| ExitCode::SUCCESS),
            Self::Rule(args) => roles::run_rule(&args).map(|()| ExitCode::SUCCESS),
            Self::Ban(args) => bans::run(&args).map(|()| ExitCode::SUCCESS),
            Self::Admin(args) => admin::run(&args).map(|()| ExitCode::SUCCESS),
            Self::Backup(args) => backup::run(&args).map(|()| ExitCode::SUCCESS),
            Self::Restore(args) => restore::run(&args).map(|()| ExitCode::SUCCESS),
            Self::Doctor(args) => doctor::run(&args),
            Self::Sessions(args) => sessions::run(&args).map(|()| ExitCode::SUCCESS),
            Self::Trace(args) => trace::run(&args).map(|()| ExitCode::SUCCESS),
            Self::Retained(args) => retained::run(&args).map(|()| ExitCode::SUCCESS),
            Self::Db(args) => db::run(&args).map(|()| ExitCode::SUCCESS),
            Self::Completions(args) => completions::run(&args).map(|()| ExitCode::SUCCESS),
            Self::Man(args) => man::run(&args).map(|()| ExitCode::SUCCESS),
        }
    }
}

/// Shows help, version or a mistake in the arguments. `pub` and `sub` answer a mistake with 1, as
/// Mosquitto's commands do; scripts tell it from a refused connection by that.
fn explain(error: &clap::Error) -> ExitCode {
    let text = about_h(error).unwrap_or_else(|| with_words_for_ranges(&error.render().to_string()));
    let mosquitto_like = std::env::args()
        .nth(1)
        .is_some_and(|name| name == "pub" || name == "sub");
    // If nobody can be told, the code still says it.
    let _ = if error.use_stderr() {
        write!(std::io::stderr(), "{text}")
    } else {
        write!(std::io::stdout(), "{text}")
    };
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => ExitCode::SUCCESS,
        _ if mosquitto_like => ExitCode::from(1),
        _ => ExitCode::from(exit::USAGE),
    }
}

/// What to answer a `-h` that was meant as help: here it is the host, and help is `--help`.
fn about_h(error: &clap::Error) -> Option<String> {
    let argument = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(argument)) => argument.as_str(),
        _ => return None,
    };
    let has_value = |value: &ContextValue| !value.to_string().is_empty();
    let what = match error.kind() {
        ErrorKind::UnknownArgument if argument == "-h" => "-h is the host where a command has one",
        ErrorKind::InvalidValue
            if argument.starts_with("--host ")
                && !error.get(ContextKind::InvalidValue).is_some_and(has_value) =>
        {
            "-h is the host and needs a name or an address"
        }
        _ => return None,
    };
    Some(format!(
        "error: {what}; for help with examples use `{} --help`\n",
        command_of_this()
    ))
}

/// `1 to 65535` and `1 or more` where clap says `1..=65535` and `1..18446744073709551615`.
fn with_words_for_ranges(text: &str) -> String {
    const BEFORE: &str = " is not in ";
    let Some((before, rest)) = text.split_once(BEFORE) else {
        return text.to_owned();
    };
    let (range, after) = rest.split_at(rest.find(['\n', ' ']).unwrap_or(rest.len()));
    let in_words = || {
        let (first, last) = range.split_once("..")?;
        let (last, is_exclusive) = match last.strip_prefix('=') {
            Some(last) => (last, false),
            None => (last, true),
        };
        let (first, last) = (first.parse::<i128>().ok()?, last.parse::<i128>().ok()?);
        Some(if last >= i128::from(i64::MAX) {
            format!("{first} or more")
        } else {
            format!("{first} to {}", last - i128::from(is_exclusive))
        })
    };
    match in_words() {
        Some(words) => format!("{before}: it is {words}{after}"),
        None => text.to_owned(),
    }
}

/// The command as it was typed, as far as its name goes: `unbroken audit watch`.
fn command_of_this() -> String {
    let mut command = Cli::command();
    let mut name = command.get_name().to_owned();
    for word in std::env::args().skip(1) {
        match command.find_subcommand(&word) {
            Some(found) => command = found.clone(),
            None => break,
        }
        name = format!("{name} {word}");
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_begins_with_the_number_and_may_name_a_commit() {
        let told = Cli::command().render_long_version();
        let told = told.trim_end();
        let rest = told.strip_prefix(concat!("unbroken ", env!("CARGO_PKG_VERSION")));
        let rest = rest.expect("the number comes first");
        let forms = [" (commit ", " (profile-guided)"];
        let is_known = rest.is_empty() || forms.iter().any(|form| rest.starts_with(form));
        assert!(is_known, "{told}");
    }

    #[test]
    fn ranges_are_said_in_words() {
        let told = |words: &str| {
            let error = Cli::try_parse_from(words.split(' ')).unwrap_err();
            with_words_for_ranges(&error.to_string())
        };
        for (words, expected) in [
            (
                "unbroken sub -t a -C 0",
                "'-C <COUNT>': 0: it is 1 or more\n",
            ),
            ("unbroken sub -t a -W 0", "0: it is 1 or more\n"),
            ("unbroken sub -t a -k 3", "3: it is 5 to 65535\n"),
            (
                "unbroken pub -t a -m b -p 70000",
                "70000: it is 0 to 65535\n",
            ),
            ("unbroken demo --rate 0", "0: it is 1 to 100000\n"),
            ("unbroken bench -q 7", "7: it is 0 to 2\n"),
        ] {
            let text = told(words);
            assert!(text.contains(expected), "{words}: {text}");
        }
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    /// A terminal may be narrower, and then it is wrapped; what we break ourselves is not to be
    /// broken again where there are so many columns.
    #[test]
    fn no_help_is_wider_than_100_columns() {
        let mut all = Cli::command();
        all.build();
        let mut commands = vec![&all];
        let mut wide = Vec::new();
        while let Some(command) = commands.pop() {
            commands.extend(command.get_subcommands());
            let ours = [
                command.get_before_help(),
                command.get_before_long_help(),
                command.get_after_help(),
                command.get_after_long_help(),
            ];
            let ours = ours.into_iter().flatten().map(ToString::to_string);
            let shown = command.clone().term_width(COLUMNS).render_long_help();
            for text in ours.chain([shown.to_string()]) {
                let lines = text.lines().filter(|line| line.chars().count() > COLUMNS);
                let name = command.get_bin_name().unwrap_or_default();
                wide.extend(lines.map(|line| format!("{name}: {line}")));
            }
        }
        assert!(wide.is_empty(), "{}", wide.join("\n"));
    }

    const COLUMNS: usize = 100;
}
