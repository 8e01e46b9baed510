//! `unbroken passwd`: users of a password file that the broker and Mosquitto read.

use std::fs;
use std::io::{self, BufRead, IsTerminal};
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use unbroken_broker::passwords::{EditError, PasswordFile, Scheme};

use crate::exit::{self, Failure};

/// Add, change or remove users of a password file
#[derive(Debug, clap::Args)]
#[command(override_usage = "\
unbroken passwd [-c] [-H HASH] FILE USER [-b PASSWORD]
       unbroken passwd -D FILE USER
       unbroken passwd -U FILE")]
#[command(after_help = "\
Examples:
  unbroken passwd users alice             asks for the password; makes the file if there is none
  unbroken passwd users alice -b secret   the password is on the command line: others may see it
  pass mqtt/alice | unbroken passwd users alice
  unbroken passwd -D users alice          removes her
  unbroken passwd -U users                hashes passwords that are still plain text
  unbroken serve --password-file users

The file is Mosquitto's. A running broker reads it again on SIGHUP.
Exit codes: 0 done; 1 no such user; 2 wrong usage; 66 or 73 the file cannot be read or written.")]
pub(crate) struct Args {
    /// The password file
    file: PathBuf,
    /// The user
    #[arg(required_unless_present = "upgrade")]
    user: Option<String>,
    /// The password, with -b
    #[arg(requires = "batch", allow_hyphen_values = true)]
    password: Option<String>,
    /// The password is given on the command line
    #[arg(short, long, requires = "password")]
    batch: bool,
    /// Begin a new file; an old one is replaced
    #[arg(short, long, conflicts_with_all = ["delete", "upgrade"])]
    create: bool,
    /// Remove the user
    #[arg(short = 'D', long, conflicts_with_all = ["batch", "upgrade"])]
    delete: bool,
    /// Hash every password that is still plain text
    #[arg(short = 'U', long, conflicts_with_all = ["user", "batch"])]
    upgrade: bool,
    /// How to hash: argon2id (Mosquitto reads it from 2.1 on), sha512-pbkdf2 (from 2.0 on, and for
    /// SCRAM-SHA-512), scram-sha-256 or scram-sha-512 (for SCRAM; Mosquitto does not read them)
    #[arg(
        short = 'H',
        long,
        value_enum,
        value_name = "HASH",
        default_value = "argon2id"
    )]
    hash: Hash,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Hash {
    Argon2id,
    Sha512Pbkdf2,
    #[value(name = "scram-sha-256")]
    ScramSha256,
    #[value(name = "scram-sha-512")]
    ScramSha512,
}

impl From<Hash> for Scheme {
    fn from(hash: Hash) -> Self {
        match hash {
            Hash::Argon2id => Self::Argon2id,
            Hash::Sha512Pbkdf2 => Self::Pbkdf2,
            Hash::ScramSha256 => Self::ScramSha256,
            Hash::ScramSha512 => Self::ScramSha512,
        }
    }
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let mut file = if args.create {
        PasswordFile::empty(&args.file)
    } else {
        PasswordFile::open(&args.file).map_err(failure)?
    };
    let scheme = args.hash.into();
    match &args.user {
        Some(user) if args.delete => file.remove(user),
        Some(user) => match &args.password {
            Some(password) => file.set(user, password.as_bytes(), scheme),
            None => file.set(user, ask(user)?.as_bytes(), scheme),
        },
        None => file.hash_plain(scheme).map(|_| ()),
    }
    .and_then(|()| file.save())
    .map_err(failure)
}

fn failure(error: EditError) -> Failure {
    let code = match &error {
        EditError::NoSuchUser { .. } => 1,
        EditError::UserName => exit::USAGE,
        EditError::Io { what: "read", .. } => exit::NO_INPUT,
        EditError::Io { .. } => exit::CANNOT_CREATE,
        EditError::Random(_) => exit::UNAVAILABLE,
    };
    Failure::new(code, error)
}

/// The password that a file has in its first line.
pub(crate) fn read_from(path: &Path) -> Result<String, Failure> {
    let shown = path.display();
    let text = fs::read_to_string(path).map_err(|error| {
        Failure::new(
            exit::NO_INPUT,
            format!("cannot read the password from {shown}: {error}"),
        )
    })?;
    match text.lines().next().unwrap_or_default() {
        "" => Err(Failure::new(
            exit::USAGE,
            format!("{shown} holds no password"),
        )),
        password => Ok(password.to_owned()),
    }
}

/// From the terminal, unseen and twice; otherwise one line of standard input.
pub(crate) fn ask(user: &str) -> Result<String, Failure> {
    let unreadable = |error: io::Error| {
        Failure::new(exit::NO_INPUT, format!("cannot read the password: {error}"))
    };
    if !io::stdin().is_terminal() {
        let mut line = String::new();
        io::stdin()
            .lock()
            .read_line(&mut line)
            .map_err(unreadable)?;
        let password = line.trim_end_matches(['\r', '\n']);
        if password.is_empty() {
            return Err(Failure::new(
                exit::USAGE,
                "standard input holds no password",
            ));
        }
        return Ok(password.to_owned());
    }
    let first = rpassword::prompt_password(format!("Password for {user}: ")).map_err(unreadable)?;
    let second = rpassword::prompt_password("Again: ").map_err(unreadable)?;
    if first.is_empty() || first != second {
        return Err(Failure::new(
            exit::USAGE,
            "the two passwords differ, or are empty; nothing is changed",
        ));
    }
    Ok(first)
}
