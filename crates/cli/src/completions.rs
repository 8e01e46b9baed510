//! `unbroken completions`: shell completions of this command line.

use std::io::{self, Write};

use clap::CommandFactory;
use clap_complete::Shell;

use crate::command::Cli;
use crate::exit::Failure;

/// Print completions for a shell
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  unbroken completions bash > /etc/bash_completion.d/unbroken
  unbroken completions zsh > ~/.zfunc/_unbroken
  unbroken completions fish > ~/.config/fish/completions/unbroken.fish")]
pub(crate) struct Args {
    /// Which shell
    shell: Shell,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    // Generated whole first: the generator panics where a pipe is closed.
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "unbroken", &mut text);
    let mut out = io::stdout().lock();
    out.write_all(&text)
        .and_then(|()| out.flush())
        .map_err(|error| Failure::output(&error))
}
