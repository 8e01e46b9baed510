//! Standard input as lines.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt};

/// At most one piece and one unfinished line are held.
#[derive(Default)]
pub(super) struct Lines {
    /// Read, and not given out as lines yet.
    bytes: Vec<u8>,
    ended: bool,
}

impl Lines {
    /// Reads a piece, and returns how many bytes it has. Cancelling it loses nothing of standard
    /// input.
    pub(super) async fn read(&mut self, input: &mut (impl AsyncRead + Unpin)) -> io::Result<usize> {
        self.bytes.reserve(PIECE_BYTES);
        let bytes = input.read_buf(&mut self.bytes).await?;
        self.ended = bytes == 0;
        Ok(bytes)
    }

    /// Whether there is no more to read.
    pub(super) fn ended(&self) -> bool {
        self.ended
    }

    /// Gives the lines that are whole, without their ends; the last one needs none.
    pub(super) fn take<T>(&mut self, mut each: impl FnMut(&[u8]) -> T) -> Vec<T> {
        let mut lines = Vec::new();
        let mut rest = &*self.bytes;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            lines.push(each(&rest[..end]));
            rest = &rest[end + 1..];
        }
        let mut used = self.bytes.len() - rest.len();
        if self.ended && !rest.is_empty() {
            lines.push(each(rest));
            used = self.bytes.len();
        }
        self.bytes.drain(..used);
        lines
    }
}

const PIECE_BYTES: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_become_lines_wherever_they_are_cut() {
        let mut lines = Lines::default();
        let mut seen = Vec::new();
        let text = |line: &[u8]| String::from_utf8(line.to_vec()).unwrap();
        for piece in ["a", "b\n\nc", "", "d\ne"] {
            lines.bytes.extend_from_slice(piece.as_bytes());
            seen.extend(lines.take(text));
        }
        lines.ended = true;
        seen.extend(lines.take(text));
        assert_eq!(seen, ["ab", "", "cd", "e"]);
        assert!(lines.take(text).is_empty());
    }
}
