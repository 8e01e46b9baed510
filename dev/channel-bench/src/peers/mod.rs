//! Whom ours is compared with, and which programs each of them can run.

mod async_channel;
mod crossbeam;
mod crossfire;
mod floor;
mod flume;
mod kanal;
mod oneshot;
mod ours;
mod spinning;
mod std_mpsc;
mod tachyonix;
mod thingbuf;
mod tokio;

use crate::{
    error::ChannelBenchError,
    rows::{Row, Size, Work},
    work::{Measured, Program},
};

/// The name of ours.
pub(crate) const OURS: &str = "session-channels";
/// What the hardware and the runtime take, with no channel at all.
pub(crate) const FLOOR: &str = "floor";
/// Its programs are written in Go, see `go.rs`.
pub(crate) const GO: &str = "go";

/// One of those compared.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) name: &'static str,
    /// The package whose version is recorded.
    pub(crate) package: Option<&'static str>,
    pub(crate) note: &'static str,
    programs: Vec<Program>,
}

/// All that are written in Rust, in the order of the table.
pub(crate) fn all() -> Vec<Peer> {
    vec![
        ours::peer(),
        floor::peer(),
        kanal::peer(),
        crossfire::peer(),
        tachyonix::peer(),
        tokio::peer(),
        oneshot::peer(),
        flume::peer(),
        async_channel::peer(),
        thingbuf::peer(),
        crossbeam::peer(),
        std_mpsc::peer(),
        spinning::rtrb(),
        spinning::ringbuf(),
    ]
}

/// Runs it here and now: first a tenth to warm up, then all.
pub(crate) fn run(row: &Row, peer: &str, size: Size) -> Result<Measured, ChannelBenchError> {
    let peers = all();
    let found = peers.iter().find(|known| known.name == peer);
    let program = found.and_then(|known| known.program(row.work));
    let program = program.ok_or_else(|| ChannelBenchError::Unable {
        peer: peer.to_owned(),
        row: row.name,
    })?;
    program(size.tenth());
    Ok(program(size))
}

impl Peer {
    fn new(name: &'static str, package: Option<&'static str>, note: &'static str) -> Self {
        Self {
            name,
            package,
            note,
            programs: Vec::new(),
        }
    }

    fn with(mut self, programs: impl IntoIterator<Item = Program>) -> Self {
        self.programs.extend(programs);
        self
    }

    pub(crate) fn program(&self, work: Work) -> Option<fn(Size) -> Measured> {
        let found = self.programs.iter().find(|(known, _)| *known == work);
        found.map(|(_, program)| *program)
    }
}
