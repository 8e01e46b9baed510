//! What a stage does to a message: nothing, or what a command makes of it.
//!
//! Lines are bytes: only a line feed ends one, and all others pass as they are. A line that is too
//! long for a message is read to its end and not kept.

use std::io;

use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use unbroken_merkle_log::DropReason;

use crate::limits::LINE_BYTES_MAX;

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
    /// A line that is too long.
    TooLong(TooLong),
    /// Nothing any more: the transform has ended.
    End,
}

/// A line, without its end.
pub(super) enum Line {
    /// At most [`LINE_BYTES_MAX`] bytes.
    Whole(Vec<u8>),
    /// More than that.
    TooLong(TooLong),
}

/// A line of so many bytes does not become a message.
#[derive(Debug, thiserror::Error)]
#[error(
    "a line of {0} bytes is dropped, because a message may have {LINE_BYTES_MAX} at most: split it"
)]
pub(super) struct TooLong(u64);

pub(super) struct Transform {
    inputs: Option<Box<dyn AsyncWrite + Unpin>>,
    outputs: Option<BufReader<Box<dyn AsyncRead + Unpin>>>,
}

impl Transform {
    pub(super) fn new(ends: Ends) -> Self {
        Self {
            inputs: ends.inputs,
            outputs: ends.outputs.map(BufReader::new),
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
            Some(Line::Whole(line)) if line.is_empty() => Made::Nothing(DropReason::FILTERED),
            Some(Line::Whole(line)) => Made::Output(line),
            Some(Line::TooLong(why)) => Made::TooLong(why),
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
    pub(super) async fn read(&mut self) -> io::Result<Option<Line>> {
        let Some(outputs) = &mut self.outputs else {
            return Ok(None);
        };
        let (mut line, mut length) = (Vec::new(), 0);
        loop {
            let bytes = outputs.fill_buf().await?;
            let end = bytes.iter().position(|byte| *byte == b'\n');
            if bytes.is_empty() && length == 0 {
                return Ok(None);
            }
            let is_last = end.is_some() || bytes.is_empty();
            let part = &bytes[..end.unwrap_or(bytes.len())];
            length += part.len() as u64;
            if length <= LINE_BYTES_MAX {
                line.extend_from_slice(part);
            } else {
                line = Vec::new();
            }
            let taken = part.len() + usize::from(end.is_some());
            outputs.consume(taken);
            if is_last {
                break;
            }
        }
        Ok(Some(if length <= LINE_BYTES_MAX {
            Line::Whole(line)
        } else {
            Line::TooLong(TooLong(length))
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answering(outputs: &[u8]) -> Transform {
        Transform::new(Ends {
            inputs: Some(Box::new(tokio::io::sink())),
            outputs: Some(Box::new(io::Cursor::new(outputs.to_vec()))),
        })
    }

    async fn output(transform: &mut Transform) -> Vec<u8> {
        match transform.apply(b"input").await.unwrap() {
            Made::Output(output) => output,
            _ => panic!("no output"),
        }
    }

    #[tokio::test]
    async fn lines_are_bytes_and_only_a_line_feed_ends_them() {
        let mut transform = answering(b"\xFF\x00\xFE\none\r\ntwo\rthree\nlast");
        for expected in [&b"\xFF\x00\xFE"[..], b"one\r", b"two\rthree", b"last"] {
            assert_eq!(output(&mut transform).await, expected);
        }
        assert!(matches!(transform.apply(b"").await.unwrap(), Made::End));
    }

    #[tokio::test]
    async fn a_line_beyond_the_limit_is_dropped_and_the_next_one_is_read() {
        let longest = vec![b'x'; usize::try_from(LINE_BYTES_MAX).unwrap()];
        let mut transform = answering(&[&longest[..], b"\n", &longest, b"x\nnext\n"].concat());
        assert_eq!(output(&mut transform).await, longest);
        let made = transform.apply(b"input").await.unwrap();
        let Made::TooLong(why) = made else {
            panic!("it is too long");
        };
        let found = format!("a line of {} bytes is dropped", LINE_BYTES_MAX + 1);
        assert!(why.to_string().starts_with(&found), "{why}");
        assert_eq!(output(&mut transform).await, b"next");
    }
}
