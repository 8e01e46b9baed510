//! What a stage does to a message: nothing, or what a command makes of it.

use std::io;

use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader, Lines};
use unbroken_merkle_log::DropReason;

/// Both ends of a stage's transform, as far as it has them: where inputs are written, and where
/// outputs are read, a line each.
#[allow(missing_debug_implementations, reason = "what is inside has none")]
pub struct Ends {
    /// Takes each input as a line.
    pub inputs: Option<Box<dyn AsyncWrite + Unpin>>,
    /// Gives each output as a line.
    pub outputs: Option<Box<dyn AsyncRead + Unpin>>,
}

/// What became of an input.
pub(super) enum Made {
    /// This.
    Output(Vec<u8>),
    /// Nothing, and why.
    Nothing(DropReason),
    /// Nothing any more: the transform has ended.
    End,
}

pub(super) struct Transform {
    inputs: Option<Box<dyn AsyncWrite + Unpin>>,
    outputs: Option<Lines<BufReader<Box<dyn AsyncRead + Unpin>>>>,
}

impl Transform {
    pub(super) fn new(ends: Ends) -> Self {
        Self {
            inputs: ends.inputs,
            outputs: ends.outputs.map(|outputs| BufReader::new(outputs).lines()),
        }
    }

    /// One line in, one line out; an empty one drops the message. A payload of several lines cannot
    /// go through.
    pub(super) async fn apply(&mut self, payload: &[u8]) -> io::Result<Made> {
        if self.inputs.is_none() {
            return Ok(Made::Output(payload.to_vec()));
        }
        if payload.contains(&b'\n') {
            return Ok(Made::Nothing(DropReason::FAILED));
        }
        self.write(payload).await?;
        Ok(match self.read().await? {
            None => Made::End,
            Some(line) if line.is_empty() => Made::Nothing(DropReason::FILTERED),
            Some(line) => Made::Output(line),
        })
    }

    /// Writes an input, and nothing comes of it.
    pub(super) async fn write(&mut self, payload: &[u8]) -> io::Result<()> {
        let Some(inputs) = &mut self.inputs else {
            return Ok(());
        };
        inputs.write_all(payload).await?;
        inputs.write_all(b"\n").await?;
        inputs.flush().await
    }

    /// The next output; `None` when none follows.
    pub(super) async fn read(&mut self) -> io::Result<Option<Vec<u8>>> {
        let Some(outputs) = &mut self.outputs else {
            return Ok(None);
        };
        Ok(outputs.next_line().await?.map(String::into_bytes))
    }
}
