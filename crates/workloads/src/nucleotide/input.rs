//! Reads the bases of one sequence of a FASTA file, in blocks.

use std::io::{self, BufRead};

use thiserror::Error;

use super::code::{NO_BASE, NUMBERS};

/// Bases of a block: so many that a table which does not fit the second cache is used several times
/// while it is there.
pub const BLOCK: usize = 1 << 20;
/// Bases of a sequence: counts take 32 bits.
pub const BASES_MAX: u64 = u32::MAX as u64;
/// How the title of the sequence begins.
pub const TITLE: &[u8] = b">THREE";

/// Why a file cannot be counted.
#[derive(Debug, Error)]
pub enum InputError {
    /// The system could not read on.
    #[error("line {line}: cannot be read: {source}")]
    Read {
        /// From 1.
        line: u64,
        /// What the system says.
        source: io::Error,
    },
    /// There is no such sequence.
    #[error("no line begins with `>THREE`: give a file that `fasta` wrote")]
    NoSequence,
    /// A byte is no base.
    #[error("line {line}: expected one of ACGT, found {found:?}")]
    NoBase {
        /// From 1.
        line: u64,
        /// The byte.
        found: char,
    },
    /// There are too many bases.
    #[error("line {line}: more than {BASES_MAX} bases")]
    TooMany {
        /// From 1.
        line: u64,
    },
}

/// The sequence of a file whose title begins with [`TITLE`].
#[derive(Debug)]
pub struct Sequence<R> {
    from: R,
    line: u64,
    text: Vec<u8>,
    bases: u64,
    block: usize,
    is_over: bool,
}

impl<R: BufRead> Sequence<R> {
    /// Reads up to the title. Blocks will have `block` bases and a line at most, and one at least.
    pub fn new(from: R, block: usize) -> Result<Self, InputError> {
        let mut sequence = Self {
            from,
            line: 0,
            text: Vec::new(),
            bases: 0,
            block: block.max(1),
            is_over: false,
        };
        while sequence.next_line()? {
            if sequence.text.starts_with(TITLE) {
                return Ok(sequence);
            }
        }
        Err(InputError::NoSequence)
    }

    /// The numbers of the next bases; none at the end.
    pub fn next_block(&mut self) -> Result<Vec<u8>, InputError> {
        let mut block = Vec::with_capacity(self.block.saturating_add(256).min(BLOCK + 256));
        while !self.is_over && block.len() < self.block {
            self.is_over = !self.next_line()? || self.text.starts_with(b">");
            if self.is_over {
                break;
            }
            let before = block.len();
            let letters = self.text.trim_ascii_end();
            block.extend(letters.iter().map(|letter| NUMBERS[usize::from(*letter)]));
            // Without an early exit, so that several are compared at once.
            let highest = block[before..]
                .iter()
                .fold(0, |high, number| *number.max(&high));
            if highest == NO_BASE {
                return Err(self.no_base());
            }
        }
        self.bases += block.len() as u64;
        if self.bases > BASES_MAX {
            return Err(InputError::TooMany { line: self.line });
        }
        Ok(block)
    }

    /// Reads a line; whether there was one.
    fn next_line(&mut self) -> Result<bool, InputError> {
        self.text.clear();
        self.line += 1;
        let line = self.line;
        let read = self.from.read_until(b'\n', &mut self.text);
        Ok(read.map_err(|source| InputError::Read { line, source })? > 0)
    }

    fn no_base(&self) -> InputError {
        let is_base = |letter: &&u8| NUMBERS[usize::from(**letter)] != NO_BASE;
        let found = self.text.iter().find(|letter| !is_base(letter));
        InputError::NoBase {
            line: self.line,
            found: char::from(found.copied().unwrap_or(b'\n')),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bases(text: &str) -> Result<Vec<u8>, InputError> {
        let mut sequence = Sequence::new(text.as_bytes(), 100)?;
        let mut all = Vec::new();
        loop {
            let block = sequence.next_block()?;
            if block.is_empty() {
                return Ok(all);
            }
            all.extend(block);
        }
    }

    #[test]
    fn one_sequence_is_read_in_either_case_up_to_the_next() {
        let text = ">ONE\nAAAA\n>THREE here\nacTG\r\nG\n>FOUR\nCC\n";
        assert_eq!(bases(text).unwrap(), [0, 1, 2, 3, 3]);
        assert_eq!(bases(">THREE\n\nac\n").unwrap(), [0, 1]);
        assert!(bases(">THREE").unwrap().is_empty());
    }

    #[test]
    fn blocks_have_their_size() {
        let text = format!(">THREE\n{}", "acgt\n".repeat(10));
        let mut sequence = Sequence::new(text.as_bytes(), 10).unwrap();
        for length in [12, 12, 12, 4] {
            assert_eq!(sequence.next_block().unwrap().len(), length);
        }
        assert!(sequence.next_block().unwrap().is_empty());
    }

    #[test]
    fn a_file_that_cannot_be_counted_is_refused_with_its_line() {
        for (text, expect) in [
            (
                "",
                "no line begins with `>THREE`: give a file that `fasta` wrote",
            ),
            (
                ">THREE\nacgt\nacNt\n",
                "line 3: expected one of ACGT, found 'N'",
            ),
            (">THREE\nac gt\n", "line 2: expected one of ACGT, found ' '"),
        ] {
            assert_eq!(bases(text).unwrap_err().to_string(), expect);
        }
    }
}
