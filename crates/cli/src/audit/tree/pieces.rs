//! Lines and blocks of an input, one in memory at a time, and the leaves that are made of them.

use std::io::{self, BufRead, Read as _};

use unbroken_merkle_log::limits::{MAX_HERITAGE_LEAVES, MAX_THEX_LEAVES};

use super::file::TREE_BYTES_MAX;

/// The longest line: the longest payload of MQTT.
const LINE_BYTES_MAX: usize = 256 << 20;
/// The longest block: 16 MiB.
pub(super) const BLOCK_BYTES_MAX: i64 = 16 << 20;
/// Leaves of a tree of either format.
const LEAVES_MAX: usize = MAX_HERITAGE_LEAVES as usize;

const _: () = assert!(MAX_HERITAGE_LEAVES == MAX_THEX_LEAVES);

/// How an input becomes pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    /// Behind each line feed, which belongs to no line. Nothing else is taken off.
    Lines,
    /// Behind so many bytes; the last block may be shorter. No bytes are one empty block.
    Blocks(usize),
}

/// A line or a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece<'a> {
    /// Counted from 0.
    pub(super) index: usize,
    /// Where it begins in the input.
    pub(super) at: u64,
    pub(super) bytes: &'a [u8],
}

/// Why an input was not taken to its end.
#[derive(Debug, thiserror::Error)]
pub(super) enum PieceError {
    #[error(transparent)]
    Read(#[from] io::Error),
    #[error("{0}")]
    Refused(String),
}

/// Gives each piece to `take`, up to the first that it refuses.
pub(super) fn each(
    input: &mut impl BufRead,
    cut: Cut,
    mut take: impl FnMut(Piece<'_>) -> Result<(), String>,
) -> Result<(), PieceError> {
    let mut buffer = Vec::new();
    let mut at = 0;
    for index in 0.. {
        buffer.clear();
        let read = match cut {
            Cut::Lines => {
                let most = LINE_BYTES_MAX as u64 + 1;
                input.take(most).read_until(b'\n', &mut buffer)?
            }
            Cut::Blocks(bytes) => input.take(bytes as u64).read_to_end(&mut buffer)?,
        };
        let is_empty_input = cut != Cut::Lines && index == 0;
        if read == 0 && !is_empty_input {
            break;
        }
        let mut bytes = buffer.as_slice();
        if cut == Cut::Lines {
            bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
            if bytes.len() > LINE_BYTES_MAX {
                let why = format!("the line at byte {at} is longer than {LINE_BYTES_MAX} bytes");
                return Err(PieceError::Refused(why));
            }
        }
        take(Piece { index, at, bytes }).map_err(PieceError::Refused)?;
        at += read as u64;
    }
    Ok(())
}

/// Refuses one leaf more than a tree may have.
pub(super) fn check_count(leaves: usize) -> Result<(), String> {
    if leaves < LEAVES_MAX {
        return Ok(());
    }
    Err(format!("more than {LEAVES_MAX} leaves, which no tree has"))
}

/// Leaves one behind the other, so that many short ones take little more than their bytes.
#[derive(Debug, Default)]
pub(super) struct Leaves {
    bytes: Vec<u8>,
    /// Where each of them ends.
    ends: Vec<u32>,
}

const _: () = assert!(TREE_BYTES_MAX < 1 << 32);

impl Leaves {
    pub(super) fn push(&mut self, leaf: &[u8]) -> Result<(), String> {
        check_count(self.ends.len())?;
        let end = self.bytes.len() + leaf.len();
        let end = u32::try_from(end)
            .ok()
            .filter(|end| u64::from(*end) <= TREE_BYTES_MAX);
        let end = end
            .ok_or_else(|| format!("the leaves are longer than {TREE_BYTES_MAX} bytes together"))?;
        self.bytes.extend_from_slice(leaf);
        self.ends.push(end);
        Ok(())
    }

    pub(super) fn slices(&self) -> Vec<&[u8]> {
        let mut begin = 0;
        let leaf = |end: &u32| {
            let leaf = &self.bytes[begin..*end as usize];
            begin = *end as usize;
            leaf
        };
        self.ends.iter().map(leaf).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(input: &[u8], cut: Cut, expect: &[(u64, &[u8])]) {
        let mut found = Vec::new();
        let mut leaves = Leaves::default();
        each(&mut io::BufReader::with_capacity(3, input), cut, |piece| {
            assert_eq!(piece.index, found.len());
            found.push((piece.at, piece.bytes.to_vec()));
            leaves.push(piece.bytes)
        })
        .unwrap();
        let found: Vec<(u64, &[u8])> = found.iter().map(|(at, it)| (*at, &**it)).collect();
        assert_eq!(found, expect);
        assert!(
            leaves
                .slices()
                .into_iter()
                .eq(expect.iter().map(|(_, it)| *it))
        );
    }

    #[test]
    fn an_input_is_cut_behind_line_feeds() {
        check(b"", Cut::Lines, &[]);
        check(b"\n", Cut::Lines, &[(0, b"")]);
        check(b"one", Cut::Lines, &[(0, b"one")]);
        let lines: [(u64, &[u8]); 3] = [(0, b"one\r"), (5, b""), (6, b"three")];
        check(b"one\r\n\nthree\n", Cut::Lines, &lines);
    }

    #[test]
    fn an_input_is_cut_behind_so_many_bytes() {
        check(b"", Cut::Blocks(4), &[(0, b"")]);
        check(b"1234", Cut::Blocks(4), &[(0, b"1234")]);
        check(b"12345", Cut::Blocks(4), &[(0, b"1234"), (4, b"5")]);
    }

    #[test]
    fn what_is_refused_ends_the_input() {
        let refused = each(&mut &b"a\nb\n"[..], Cut::Lines, |piece| match piece.index {
            0 => Ok(()),
            _ => Err("no".to_owned()),
        });
        assert_eq!(refused.unwrap_err().to_string(), "no");
        assert!(check_count(LEAVES_MAX - 1).is_ok());
        assert!(check_count(LEAVES_MAX).is_err());
    }
}
