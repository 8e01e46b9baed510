//! How requests and answers travel.
//!
//! | bytes | field |
//! |---|---|
//! | 1 | version (4 bits) = 1, kind (4 bits): 1 numbers, 2 groups, 3 leaves |
//! | 1 to 5 | epoch |
//! | | request 1: the gap list of the missing numbers; answer 1: of those that will not come |
//! | | request 2: window, size; answer 2: window, size, then the hash of each group |
//! | | request 3: window, size, group; answer 3: the same, then each leaf of the group |
//!
//! Epoch, window, size and group are variable-length integers, as in gap lists. The lane is known
//! from where it is sent, and with the lane its algorithm, which gives the width of hashes.

use super::descent::{Answer, GapListError, Request, read_gaps, write_gaps};
use super::limits::FANOUT;
use super::window::{GROUP, SLOTS};
use crate::limits::MAX_SIZE;
use crate::reader::{Reader, write_number};
use crate::{Algorithm, Epoch, Hash};

/// Why bytes are no request or answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RepairError {
    /// Of another version, or of no known kind.
    #[error("byte 0: {0:#04x} is no request or answer of version 1; kinds 1, 2 and 3 are known")]
    Kind(u8),
    /// A field is missing or has no meaning.
    #[error("request or answer: no {0} where it belongs, or an impossible one")]
    Field(&'static str),
    /// The gap list is damaged.
    #[error(transparent)]
    Gaps(#[from] GapListError),
    /// As many bytes of hashes as no window of this size has.
    #[error("answer: {expected} bytes of hashes belong here, there are {found}")]
    Hashes {
        /// What size and algorithm call for.
        expected: usize,
        /// What there is.
        found: usize,
    },
}

const NUMBERS: u8 = 0x11;
const GROUPS: u8 = 0x12;
const LEAVES: u8 = 0x13;

impl Request {
    /// Writes the bytes of a request about this epoch.
    pub fn encode(&self, epoch: Epoch, out: &mut Vec<u8>) {
        match self {
            Self::Numbers(gaps) => {
                begin(NUMBERS, epoch, out);
                out.extend(write_gaps(gaps));
            }
            Self::Groups { window, size } => {
                begin(GROUPS, epoch, out);
                write_number(*window, out);
                write_number(u64::from(*size), out);
            }
            Self::Leaves {
                window,
                group,
                size,
            } => {
                begin(LEAVES, epoch, out);
                write_number(*window, out);
                write_number(u64::from(*size), out);
                write_number(u64::from(*group), out);
            }
        }
    }

    /// Reads what [`Request::encode`] writes, and nothing else.
    pub fn parse(bytes: &[u8]) -> Result<(Epoch, Self), RepairError> {
        let mut reader = Reader::new(bytes);
        let (kind, epoch) = head(&mut reader)?;
        if kind == NUMBERS {
            return Ok((epoch, Self::Numbers(read_gaps(reader.rest())?)));
        }
        let (window, size) = window(&mut reader)?;
        let request = if kind == GROUPS {
            Self::Groups { window, size }
        } else {
            Self::Leaves {
                window,
                group: group(&mut reader, size)?,
                size,
            }
        };
        if !reader.rest().is_empty() {
            return Err(RepairError::Field("end"));
        }
        Ok((epoch, request))
    }
}

impl Answer {
    /// Writes the bytes of an answer about this epoch.
    pub fn encode(&self, epoch: Epoch, out: &mut Vec<u8>) {
        let hashes: &[Hash] = match self {
            Self::NotHeld(gaps) => {
                begin(NUMBERS, epoch, out);
                out.extend(write_gaps(gaps));
                &[]
            }
            Self::Groups {
                window,
                size,
                hashes,
            } => {
                begin(GROUPS, epoch, out);
                write_number(*window, out);
                write_number(u64::from(*size), out);
                hashes
            }
            Self::Leaves {
                window,
                size,
                group,
                leaves,
            } => {
                begin(LEAVES, epoch, out);
                write_number(*window, out);
                write_number(u64::from(*size), out);
                write_number(u64::from(*group), out);
                leaves
            }
        };
        for hash in hashes {
            out.extend_from_slice(hash.as_bytes());
        }
    }

    /// Reads what [`Answer::encode`] writes, and nothing else. `algorithm` is the lane's.
    pub fn parse(algorithm: Algorithm, bytes: &[u8]) -> Result<(Epoch, Self), RepairError> {
        let mut reader = Reader::new(bytes);
        let (kind, epoch) = head(&mut reader)?;
        if kind == NUMBERS {
            return Ok((epoch, Self::NotHeld(read_gaps(reader.rest())?)));
        }
        let (window, size) = window(&mut reader)?;
        let answer = if kind == GROUPS {
            let leaves = |group| leaves_of(size, group);
            let widths = (0..size.div_ceil(GROUP)).map(leaves);
            let widths = widths.map(|leaves| algorithm.width_over(u64::from(leaves)));
            Self::Groups {
                window,
                size,
                hashes: hashes(reader.rest(), widths)?,
            }
        } else {
            let group = group(&mut reader, size)?;
            let widths = (0..leaves_of(size, u16::from(group))).map(|_| algorithm.leaf_width());
            Self::Leaves {
                window,
                size,
                group,
                leaves: hashes(reader.rest(), widths)?,
            }
        };
        Ok((epoch, answer))
    }
}

fn begin(kind: u8, epoch: Epoch, out: &mut Vec<u8>) {
    out.push(kind);
    write_number(u64::from(epoch.0), out);
}

fn head(reader: &mut Reader<'_>) -> Result<(u8, Epoch), RepairError> {
    let kind = reader.u8().ok_or(RepairError::Field("kind"))?;
    if !matches!(kind, NUMBERS | GROUPS | LEAVES) {
        return Err(RepairError::Kind(kind));
    }
    let epoch = reader.number().and_then(|epoch| u32::try_from(epoch).ok());
    Ok((kind, Epoch(epoch.ok_or(RepairError::Field("epoch"))?)))
}

fn window(reader: &mut Reader<'_>) -> Result<(u64, u16), RepairError> {
    let windows = MAX_SIZE / u64::from(SLOTS);
    let window = reader.number().filter(|window| *window < windows);
    let size = reader.number().and_then(|size| u16::try_from(size).ok());
    let size = size.filter(|size| (1..=SLOTS).contains(size));
    Ok((
        window.ok_or(RepairError::Field("window"))?,
        size.ok_or(RepairError::Field("size"))?,
    ))
}

fn group(reader: &mut Reader<'_>, size: u16) -> Result<u8, RepairError> {
    let group = reader.number().and_then(|group| u8::try_from(group).ok());
    group
        .filter(|group| u64::from(*group) * FANOUT < u64::from(size))
        .ok_or(RepairError::Field("group"))
}

/// Leaves of a group in a window of this size.
fn leaves_of(size: u16, group: u16) -> u16 {
    (size - group * GROUP).min(GROUP)
}

fn hashes(
    bytes: &[u8],
    widths: impl Iterator<Item = usize> + Clone,
) -> Result<Vec<Hash>, RepairError> {
    let (expected, found) = (widths.clone().sum(), bytes.len());
    if expected != found {
        return Err(RepairError::Hashes { expected, found });
    }
    let mut reader = Reader::new(bytes);
    let hashes = widths.map_while(|width| reader.bytes(width).and_then(Hash::new));
    Ok(hashes.collect())
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "a list of one gap")]
mod tests {
    use super::*;
    use crate::{Digest, Hasher, Key};

    fn answers(hasher: &Hasher) -> Vec<Answer> {
        let leaf = hasher.leaf(&[b"leaf"]);
        let node = hasher.node(&leaf, &leaf);
        let groups = |size: u16, last| Answer::Groups {
            window: 900,
            size,
            hashes: (1..size.div_ceil(32)).map(|_| node).chain([last]).collect(),
        };
        let leaves = |size, group, count| Answer::Leaves {
            window: 3,
            size,
            group,
            leaves: vec![leaf; count],
        };
        vec![
            Answer::NotHeld(vec![0..1, 5..9]),
            groups(1_024, node),
            groups(33, leaf),
            groups(1, leaf),
            leaves(1_024, 31, 32),
            leaves(33, 1, 1),
        ]
    }

    #[test]
    fn answers_are_read_as_written_and_nothing_else_is() {
        for algorithm in Algorithm::ALL {
            let hasher = Hasher::new(algorithm, Some(&Key([1; 32]))).expect("there is a key");
            for answer in answers(&hasher) {
                let mut bytes = Vec::new();
                answer.encode(Epoch(300), &mut bytes);
                let read = Answer::parse(algorithm, &bytes);
                assert_eq!(read, Ok((Epoch(300), answer.clone())));
                bytes.push(0x80);
                assert!(Answer::parse(algorithm, &bytes).is_err(), "{answer:?}");
                if !matches!(answer, Answer::NotHeld(_)) {
                    for cut in 0..bytes.len() - 1 {
                        assert!(Answer::parse(algorithm, &bytes[..cut]).is_err());
                    }
                }
            }
        }
    }

    #[test]
    fn requests_are_read_as_written_and_nothing_else_is() {
        let requests = [
            Request::Numbers(vec![7..8, 100..300]),
            Request::Groups { window: 0, size: 1 },
            Request::Leaves {
                window: MAX_SIZE / 1_024 - 1,
                group: 31,
                size: 1_000,
            },
        ];
        for request in requests {
            let mut bytes = Vec::new();
            request.encode(Epoch(u32::MAX), &mut bytes);
            assert_eq!(Request::parse(&bytes), Ok((Epoch(u32::MAX), request)));
            bytes.push(0x80);
            assert!(Request::parse(&bytes).is_err());
        }
        let refused = |bytes: &[u8]| Request::parse(bytes).expect_err("it is damaged");
        assert_eq!(refused(&[]), RepairError::Field("kind"));
        assert_eq!(refused(&[0x21, 0]), RepairError::Kind(0x21));
        assert_eq!(refused(&[0x14, 0]), RepairError::Kind(0x14));
        assert_eq!(refused(&[0x12]), RepairError::Field("epoch"));
        assert_eq!(refused(&[0x12, 0, 0, 0]), RepairError::Field("size"));
        assert_eq!(refused(&[0x13, 0, 0, 33, 2]), RepairError::Field("group"));
        assert_eq!(refused(&[0x13, 0, 0, 32, 1]), RepairError::Field("group"));
        let mut beyond = Vec::new();
        let window = MAX_SIZE / 1_024;
        Request::Groups { window, size: 1 }.encode(Epoch(0), &mut beyond);
        assert_eq!(refused(&beyond), RepairError::Field("window"));
    }

    #[test]
    fn a_loss_in_a_lane_of_a_million_is_asked_for_in_8_bytes_at_most() {
        let mut bytes = Vec::new();
        Request::Numbers(vec![999_999..1_000_000]).encode(Epoch(0), &mut bytes);
        assert!(bytes.len() <= 8, "{bytes:?}");
    }

    #[test]
    fn a_forged_message_is_found_in_1_1_kb_at_most() {
        let found: usize = answers(&Hasher::xxh3())
            .iter()
            .filter(|answer| match answer {
                Answer::Groups { size, .. } | Answer::Leaves { size, .. } => *size == 1_024,
                Answer::NotHeld(_) => false,
            })
            .map(|answer| {
                let mut bytes = Vec::new();
                answer.encode(Epoch(0), &mut bytes);
                bytes.len()
            })
            .sum();
        assert!((1_024..1_100).contains(&found), "{found}");
    }
}
