//! What the producer sends: the lines of a file, over and over.

use std::fs;
use std::path::Path;

use crate::limits::INPUT_BYTES_MAX;

/// Lines to be sent, from the first again after the last.
#[derive(Debug)]
pub struct Readings {
    lines: Vec<Box<[u8]>>,
    next: usize,
}

/// Why a file cannot be played.
#[derive(Debug, thiserror::Error)]
pub enum ReadingsError {
    /// It cannot be read.
    #[error("cannot read {path}: {error}")]
    Read {
        /// As the user gave it.
        path: String,
        /// What the system says.
        error: std::io::Error,
    },
    /// It is too large.
    #[error(
        "{path} has {found} bytes, and a demonstration plays {INPUT_BYTES_MAX} at most; give it the \
         first part (head -c)"
    )]
    Large {
        /// As the user gave it.
        path: String,
        /// How many bytes it has.
        found: u64,
    },
    /// It has nothing to send.
    #[error("{path} has no line that is not empty; a demonstration sends a file line by line")]
    Empty {
        /// As the user gave it.
        path: String,
    },
}

impl Readings {
    /// The recording that is shipped: sensors of a small plant.
    pub fn shipped() -> Self {
        let recording = include_bytes!("../data/plant.csv");
        let header = recording.iter().position(|byte| *byte == b'\n');
        Self::of_lines(&recording[header.map_or(0, |end| end + 1)..])
    }

    /// The lines of any file, as bytes: only a line feed ends one, so a carriage return before it
    /// is part of it. Empty ones are left out.
    pub fn of_file(path: &Path) -> Result<Self, ReadingsError> {
        let name = || path.display().to_string();
        let unreadable = |error| ReadingsError::Read {
            path: name(),
            error,
        };
        let found = fs::metadata(path).map_err(unreadable)?.len();
        if found > INPUT_BYTES_MAX {
            return Err(ReadingsError::Large {
                path: name(),
                found,
            });
        }
        let readings = Self::of_lines(&fs::read(path).map_err(unreadable)?);
        if readings.lines.is_empty() {
            return Err(ReadingsError::Empty { path: name() });
        }
        Ok(readings)
    }

    /// The next line, without its end.
    pub fn next_line(&mut self) -> &[u8] {
        let line = &self.lines[self.next];
        self.next = (self.next + 1) % self.lines.len();
        line
    }

    fn of_lines(bytes: &[u8]) -> Self {
        let lines = bytes
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty());
        Self {
            lines: lines.map(Box::from).collect(),
            next: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_file(content: &[u8]) -> Result<Readings, ReadingsError> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lines");
        fs::write(&path, content).unwrap();
        Readings::of_file(&path)
    }

    #[test]
    fn a_file_is_played_line_by_line_and_from_the_start_again() {
        let mut readings = of_file(b"one\r\n\ntw\xFFo\nthree").unwrap();
        let played: Vec<Vec<u8>> = (0..4).map(|_| readings.next_line().to_vec()).collect();
        assert_eq!(played, [&b"one\r"[..], b"tw\xFFo", b"three", b"one\r"]);
    }

    #[test]
    fn a_file_without_a_line_is_refused_by_name() {
        let error = of_file(b"\n\n").unwrap_err().to_string();
        assert!(error.contains("lines has no line"), "{error}");
    }

    #[test]
    fn the_shipped_recording_has_a_reading_in_every_line() {
        let readings = Readings::shipped();
        assert_eq!(readings.lines.len(), 2_001);
        assert!(readings.lines[0].starts_with(b"0,boiler,"));
    }
}
