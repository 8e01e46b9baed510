//! Whose users, roles and bans a command is about: those of a data directory, or of a broker that
//! stores nothing.

use std::path::{Path, PathBuf};

use unbroken_broker::control::Remote;

use super::{Data, DataArgs, remote_failure};
use crate::exit::{self, Failure};

#[derive(Debug, clap::Args)]
pub(crate) struct AccessArgs {
    #[command(flatten)]
    data: DataArgs,
    /// The directory of the control socket of a broker that runs with --in-memory; what is changed
    /// ends with it
    #[arg(long, value_name = "DIR", conflicts_with = "directory")]
    control: Option<PathBuf>,
}

impl AccessArgs {
    /// As [`DataArgs::open`].
    pub(crate) fn open(&self) -> Result<Data, Failure> {
        match self.control()? {
            Some(directory) => of_memory(&directory),
            None => self.data.open(),
        }
    }

    /// As [`DataArgs::open_or_create`].
    pub(crate) fn open_or_create(&self) -> Result<Data, Failure> {
        match self.control()? {
            Some(directory) => of_memory(&directory),
            None => self.data.open_or_create(),
        }
    }

    /// Where the sockets of a running broker are.
    pub(crate) fn socket_directory(&self) -> Result<PathBuf, Failure> {
        match self.control()? {
            Some(directory) => Ok(directory),
            None => self.data.path(),
        }
    }

    fn control(&self) -> Result<Option<PathBuf>, Failure> {
        match &self.control {
            Some(directory) => Ok(Some(directory.clone())),
            None => self.data.memory_control(),
        }
    }
}

/// The broker with its control socket in this directory.
fn of_memory(directory: &Path) -> Result<Data, Failure> {
    let remote = Remote::connect(directory).map_err(remote_failure)?;
    let remote = remote.ok_or_else(|| {
        let what = format_args!(
            "no broker answers in {}; `unbroken serve --in-memory --control {0}` starts one",
            directory.display()
        );
        Failure::new(exit::UNAVAILABLE, what)
    })?;
    Ok(Data::Broker(remote))
}
