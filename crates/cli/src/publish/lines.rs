//! Standard input as lines, read on a thread of its own so that the connection is not left alone
//! meanwhile.
//!
//! The thread reads a piece only when it is asked to ([`Lines::ask`]); so at most one piece and one
//! unfinished line are held, however slow the broker is.

use std::io::{self, Read};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use crate::client::{Outside, OutsideSender};

pub(super) struct Lines {
    /// Read, and not given out as lines yet.
    bytes: Vec<u8>,
    /// The position in `bytes` from which no line was given out.
    start: usize,
    ask: Sender<()>,
    asked: bool,
    ended: bool,
}

impl Lines {
    pub(super) fn start(client: OutsideSender) -> io::Result<Self> {
        let (ask, asked) = channel();
        thread::Builder::new()
            .name("stdin".to_owned())
            .spawn(move || read(&asked, &client))?;
        Ok(Self {
            bytes: Vec::new(),
            start: 0,
            ask,
            asked: false,
            ended: false,
        })
    }

    /// Asks for another piece, unless one is on its way.
    pub(super) fn ask(&mut self) {
        if !self.asked && !self.ended {
            // The thread ends only after saying that input has ended.
            let _ = self.ask.send(());
            self.asked = true;
        }
    }

    pub(super) fn push(&mut self, piece: &[u8]) {
        self.asked = false;
        self.bytes.drain(..self.start);
        self.start = 0;
        self.bytes.extend_from_slice(piece);
    }

    pub(super) fn end(&mut self) {
        self.ended = true;
    }

    /// Whether all input was given out.
    pub(super) fn ended(&self) -> bool {
        self.ended && self.start == self.bytes.len()
    }

    /// A line without its end; the last one needs none.
    pub(super) fn next_line(&mut self) -> Option<Vec<u8>> {
        let rest = self.bytes.get(self.start..)?;
        let line = match rest.iter().position(|byte| *byte == b'\n') {
            Some(end) => {
                self.start += end + 1;
                rest.get(..end)
            }
            None if self.ended && !rest.is_empty() => {
                self.start = self.bytes.len();
                Some(rest)
            }
            None => None,
        };
        line.map(<[u8]>::to_vec)
    }
}

fn read(asked: &Receiver<()>, client: &OutsideSender) {
    let mut buffer = vec![0; PIECE_BYTES];
    while asked.recv().is_ok() {
        let outside = match io::stdin().lock().read(&mut buffer) {
            Ok(0) => Outside::EndOfInput(Ok(())),
            Ok(length) => Outside::Input(buffer.get(..length).unwrap_or_default().to_vec()),
            Err(error) => Outside::EndOfInput(Err(error)),
        };
        let ended = matches!(outside, Outside::EndOfInput(_));
        if !client.send(outside) || ended {
            return;
        }
    }
}

const PIECE_BYTES: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_become_lines_wherever_they_are_cut() {
        let (ask, _asked) = channel();
        let mut lines = Lines {
            bytes: Vec::new(),
            start: 0,
            ask,
            asked: false,
            ended: false,
        };
        let mut seen = Vec::new();
        for piece in ["a", "b\n\nc", "", "d\ne"] {
            lines.push(piece.as_bytes());
            while let Some(line) = lines.next_line() {
                seen.push(String::from_utf8(line).unwrap());
            }
            assert!(!lines.ended());
        }
        lines.end();
        seen.extend(
            lines
                .next_line()
                .map(|line| String::from_utf8(line).unwrap()),
        );
        assert_eq!(seen, ["ab", "", "cd", "e"]);
        assert!(lines.ended() && lines.next_line().is_none());
    }
}
