//! `unbroken reload`: a running broker reads its configuration again.

use std::io::{self, Write};

use unbroken_broker::control::ReloadError;

use crate::data::DataArgs;
use crate::exit::{self, Failure};

/// Have a running broker read its configuration and the files that it names again
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  unbroken reload -c /etc/unbroken/broker.toml
  unbroken reload --data /var/lib/unbroken

The broker does what it does on SIGHUP, and this command prints what has changed, or why nothing
has. The broker is found by its data directory; one with --in-memory takes SIGHUP alone.

Exit codes: 0 reloaded; 2 wrong usage; 66 there is no such directory; 69 no broker has it; 77 it is
another user's; 78 the configuration is not valid, and nothing was changed.")]
pub(crate) struct Args {
    #[command(flatten)]
    data: DataArgs,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let none = || {
        let why = "no broker that runs has this data directory";
        Failure::new(exit::UNAVAILABLE, why)
    };
    let broker = args.data.running()?.ok_or_else(none)?;
    let changes = broker.reload().map_err(|error| match error {
        ReloadError::Refused(_) => Failure::new(exit::CONFIG, error),
        _ => Failure::new(exit::UNAVAILABLE, error),
    })?;
    let mut out = io::stdout().lock();
    let written = if changes.is_empty() {
        writeln!(out, "no changes; the files that it names were read again")
    } else {
        changes.iter().try_for_each(|it| writeln!(out, "{it}"))
    };
    let written = written.and_then(|()| out.flush());
    written.map_err(|error| Failure::output(&error))
}
