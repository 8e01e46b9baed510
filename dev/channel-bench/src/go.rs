//! The Go peer: a program of its own, in `go/`, built when the Go tool is there.
//!
//! It needs no module of anybody else, so building it fetches nothing.

use crate::{
    error::ChannelBenchError,
    rows::{Row, Work},
};
use std::{io, path::PathBuf, process::Command};
use tempfile::TempDir;

/// The program as it was built, in a directory that goes with this value.
#[derive(Debug)]
pub(crate) struct Go {
    directory: TempDir,
    pub(crate) version: String,
}

impl Go {
    /// `None` where there is no Go tool.
    pub(crate) fn build() -> Result<Option<Self>, ChannelBenchError> {
        let version = match Command::new("go").args(["env", "GOVERSION"]).output() {
            Ok(output) => String::from_utf8_lossy(&output.stdout).trim().to_owned(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let directory = TempDir::new()?;
        let output = Command::new("go")
            .args(["build", "-o"])
            .arg(directory.path().join("program"))
            .arg(".")
            .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/go"))
            .output()?;
        if !output.status.success() {
            let why = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(ChannelBenchError::Go { why });
        }
        Ok(Some(Self { directory, version }))
    }

    /// Goroutines are compared with tasks; Go offers no threads of one's own.
    pub(crate) fn can(row: &Row) -> bool {
        !matches!(
            row.work,
            Work::ThreadPingPong | Work::ThreadRing | Work::ThreadGather | Work::ThreadStream
        )
    }

    pub(crate) fn command(&self, row: &Row) -> Command {
        let program: PathBuf = self.directory.path().join("program");
        let mut command = Command::new(program);
        command
            .arg(format!("{:?}", row.work))
            .arg(row.size.parties.to_string())
            .arg(row.size.rounds.to_string())
            .env("GOMAXPROCS", row.size.workers.to_string());
        command
    }
}
