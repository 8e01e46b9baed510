//! `unbroken restore`: a data directory from a backup, whole or not at all.

use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use unbroken_broker::failure as failure_file;
use unbroken_store::Options;
use unbroken_store::backup::{self, Contents};

use super::backup::told;
use super::{DataArgs, own};
use crate::exit::{self, Failure};

/// Make a data directory from a backup
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  unbroken restore monday.backup --data /var/lib/unbroken
  ssh vault 'cat monday.zst' | zstd -d | unbroken restore - --data /var/lib/unbroken

The directory must be empty or not exist; `lost+found`, damaged stores that were set aside, and
leftovers of a killed broker may be in it. The store appears in it when everything is read and safe
on disk; if the backup is damaged, there is no store. Clients receive again the messages that they
have acknowledged since the backup.

Exit codes: 0 restored; 2 wrong usage; 65 the backup is damaged or of a newer version; 66 it cannot
be read; 69 another process is restoring there; 73 the directory is not empty; 74 writing failed;
77 it is another user's; 78 wrong configuration.")]
pub(crate) struct Args {
    #[command(flatten)]
    data: DataArgs,
    /// The backup; `-` is standard input
    from: PathBuf,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let mut from: Box<dyn Read> = if args.from == Path::new("-") {
        Box::new(io::stdin().lock())
    } else {
        let file = File::open(&args.from).map_err(|error| {
            let what = format_args!("cannot read {}: {error}", args.from.display());
            Failure::new(exit::NO_INPUT, what)
        })?;
        Box::new(BufReader::new(file))
    };
    let path = args.data.path()?;
    if path.is_dir() {
        own(&path)?;
    }
    let restored = backup::restore(&mut from, &path, Options::default()).map_err(told)?;
    // That was another store.
    failure_file::forget(&path);
    let Contents {
        messages, values, ..
    } = restored;
    // If nobody reads it, it is restored all the same.
    let _ = writeln!(
        io::stderr(),
        "{messages} messages, {values} values: in {}",
        path.display()
    );
    Ok(())
}
