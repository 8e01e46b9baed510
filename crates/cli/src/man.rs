//! `unbroken man`: manual pages from the same definition as the help.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;

use clap::CommandFactory;

use crate::command::Cli;
use crate::exit::{self, Failure};

/// Print the manual page, or write one for each command into a directory
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  unbroken man | man -l -                  read it
  unbroken man /usr/local/share/man/man1   install all of them: unbroken.1, unbroken-serve.1, …")]
pub(crate) struct Args {
    /// Where to write the pages; without it the main page goes to standard output
    dir: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let Some(dir) = &args.dir else {
        let mut page = Vec::new();
        clap_mangen::Man::new(Cli::command())
            .render(&mut page)
            .map_err(|error| Failure::output(&error))?;
        let mut out = io::stdout().lock();
        return out
            .write_all(&page)
            .and_then(|()| out.flush())
            .map_err(|error| Failure::output(&error));
    };
    fs::create_dir_all(dir)
        .and_then(|()| clap_mangen::generate_to(Cli::command(), dir))
        .map_err(|error| {
            Failure::new(
                exit::CANNOT_CREATE,
                format!("cannot write to {}: {error}", dir.display()),
            )
        })
}
