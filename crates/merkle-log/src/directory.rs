//! Which lanes a producer has open, so that a lane that was lost whole is missed too.
//!
//! A directory is a checkpoint on lane 0, with detail 3. Its fields mean the same as a lane's
//! where they can; these differ:
//!
//! | at | bytes | field |
//! |---|---|---|
//! | 6 | 1 | 0 |
//! | 7 | 1 | 3 |
//! | 8 | 8 | lane 0 |
//! | 16 | 4 | the producer's start, above all its starts before |
//! | 24 | 8 | the producer's id |
//! | 32 | 8 | number of lanes, at most 4,096 |
//! | 48 | 32 | root of the entries: each is a leaf of its 20 bytes |
//! | 80 | 32 | the same |
//! | 128 | 20 each | lane (8), epoch (4), messages issued in it so far (8); lanes ascend |

use crate::{
    Algorithm, CheckpointError, CompactRange, Digest, Epoch, Hash, LaneId, Tag,
    checkpoint::{Head, seal},
    limits::{MAX_OPEN_LANES, MAX_SIZE},
    reader::Reader,
};

/// The lanes that a producer has open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directory {
    /// Whose lanes.
    pub producer: u64,
    /// The producer's start, above all its starts before: the seconds since 1970, or more. It is no
    /// epoch of a lane.
    pub epoch: Epoch,
    /// Its number since the start: 0, 1, 2 …
    pub number: u32,
    /// When, in µs since 1970, by the producer's clock.
    pub time_us: u64,
    /// Ascending by lane, each once; at most [`MAX_OPEN_LANES`].
    pub lanes: Vec<OpenLane>,
}

/// One entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenLane {
    /// Which lane.
    pub lane: LaneId,
    /// Its current epoch.
    pub epoch: Epoch,
    /// Messages issued in it so far, at most 2^63.
    pub size: u64,
}

/// Bytes in the form of a directory whose tag has not been looked at.
#[derive(Clone, Debug)]
pub struct SealedDirectory {
    algorithm: Algorithm,
    directory: Directory,
    head: [u8; Head::TAGGED],
    entries: Vec<u8>,
    roots: [[u8; 32]; 2],
    tag: Tag,
}

impl Directory {
    /// Writes the bytes, tagged by `digest`. Refuses a list that could not be read back: not
    /// ascending, or too long.
    pub fn encode(&self, digest: &impl Digest, out: &mut Vec<u8>) -> Result<(), CheckpointError> {
        let count = self.lanes.len() as u64;
        if self.lanes.len() > MAX_OPEN_LANES {
            return Err(CheckpointError::Lanes(count));
        }
        check_entries(&self.lanes)?;
        let entries: Vec<_> = self.lanes.iter().map(|lane| lane.to_bytes()).collect();
        let root = *root(digest, entries.as_flattened()).padded();
        let head = Head {
            algorithm: digest.algorithm(),
            window_log2: 0,
            kind: Head::DIRECTORY,
            lane: 0,
            epoch: self.epoch,
            number: self.number,
            first: self.producer,
            size: count,
            time_us: self.time_us,
            window_root: root,
            lane_root: root,
        };
        seal(digest, &head.to_bytes(), entries.as_flattened(), out);
        Ok(())
    }

    /// Reads the form of what [`Directory::encode`] writes, and nothing else.
    pub fn parse(bytes: &[u8]) -> Result<SealedDirectory, CheckpointError> {
        let (head, tagged, tag, rest) = Head::parse(bytes)?;
        if head.lane != 0 {
            return Err(CheckpointError::Lane(head.lane));
        }
        if head.window_log2 != 0 {
            return Err(CheckpointError::Window(head.window_log2));
        }
        if head.kind != Head::DIRECTORY {
            return Err(CheckpointError::Kind(head.kind));
        }
        let too_many = CheckpointError::Lanes(head.size);
        let count = usize::try_from(head.size).map_err(|_| too_many)?;
        if count > MAX_OPEN_LANES {
            return Err(too_many);
        }
        let (entries, behind) = rest.as_chunks();
        if entries.len() != count || !behind.is_empty() {
            return Err(CheckpointError::Length {
                expected: Head::TAGGED + 16 + count * OpenLane::BYTES,
                found: bytes.len(),
            });
        }
        let lanes = entries
            .iter()
            .enumerate()
            .map(|(at, entry)| OpenLane::parse(entry).ok_or(CheckpointError::Entry { at }))
            .collect::<Result<Vec<_>, _>>()?;
        check_entries(&lanes)?;
        let directory = Self {
            producer: head.first,
            epoch: head.epoch,
            number: head.number,
            time_us: head.time_us,
            lanes,
        };
        Ok(SealedDirectory {
            algorithm: head.algorithm,
            directory,
            head: *tagged,
            entries: rest.to_vec(),
            roots: [head.window_root, head.lane_root],
            tag,
        })
    }
}

impl SealedDirectory {
    /// Whose key to look for. Not to be believed before [`SealedDirectory::open`].
    pub const fn producer(&self) -> u64 {
        self.directory.producer
    }

    /// Which algorithm to look for.
    pub const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// What it lists. Not to be believed before [`SealedDirectory::open`].
    pub fn lanes(&self) -> &[OpenLane] {
        &self.directory.lanes
    }

    /// The directory, if `digest`, the producer's own, made tag and roots.
    pub fn open(self, digest: &impl Digest) -> Result<Directory, CheckpointError> {
        let is_own = digest.algorithm() == self.algorithm;
        if !is_own || digest.tag(&[&self.head, &self.entries]) != self.tag {
            return Err(CheckpointError::Tag);
        }
        let root = root(digest, &self.entries);
        for (at, found) in [48, 80].into_iter().zip(self.roots) {
            if *root.padded() != found {
                return Err(CheckpointError::Root { at });
            }
        }
        Ok(self.directory)
    }
}

impl OpenLane {
    const BYTES: usize = 20;

    fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.lane.value().to_be_bytes());
        bytes[8..12].copy_from_slice(&self.epoch.0.to_be_bytes());
        bytes[12..].copy_from_slice(&self.size.to_be_bytes());
        bytes
    }

    fn parse(bytes: &[u8; Self::BYTES]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        Some(Self {
            lane: LaneId::new(reader.u64()?)?,
            epoch: Epoch(reader.u32()?),
            size: reader.u64()?,
        })
    }
}

fn root(digest: &impl Digest, entries: &[u8]) -> Hash {
    let mut range = CompactRange::new(0);
    for entry in entries.chunks_exact(OpenLane::BYTES) {
        range.append(digest, digest.leaf(&[entry]));
    }
    range.root(digest).expect("a range from 0 has a root")
}

fn check_entries(lanes: &[OpenLane]) -> Result<(), CheckpointError> {
    let ascends = |at: usize| at == 0 || lanes[at - 1].lane < lanes[at].lane;
    let wrong = (0..lanes.len()).find(|at| !ascends(*at) || lanes[*at].size > MAX_SIZE);
    wrong.map_or(Ok(()), |at| Err(CheckpointError::Entry { at }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Checkpoint, Hasher, Key};

    fn directory(lanes: u64) -> Directory {
        let lane = |id| OpenLane {
            lane: LaneId::new(id).expect("it is not 0"),
            epoch: Epoch(2),
            size: id * 10,
        };
        Directory {
            producer: 99,
            epoch: Epoch(1),
            number: 4,
            time_us: 5,
            lanes: (1..=lanes).map(lane).collect(),
        }
    }

    fn encoded(directory: &Directory, hasher: &Hasher) -> Vec<u8> {
        let mut bytes = Vec::new();
        let written = directory.encode(hasher, &mut bytes);
        written.expect("the lanes ascend");
        bytes
    }

    #[test]
    fn what_is_written_is_read_back_the_same() {
        for algorithm in Algorithm::ALL {
            let hasher = Hasher::new(algorithm, Some(&Key([5; 32]))).expect("there is a key");
            for lanes in [0, 1, 2, 7, 4096] {
                let directory = directory(lanes);
                let bytes = encoded(&directory, &hasher);
                let sealed = Directory::parse(&bytes).expect("it was just written");
                assert_eq!((sealed.producer(), sealed.algorithm()), (99, algorithm));
                assert_eq!(sealed.open(&hasher), Ok(directory));
                assert!(matches!(
                    Checkpoint::parse(&bytes),
                    Err(CheckpointError::Lane(0))
                ));
            }
        }
    }

    #[test]
    fn every_changed_bit_is_refused() {
        let hasher = Hasher::xxh3();
        let bytes = encoded(&directory(3), &hasher);
        for at in 0..bytes.len() * 8 {
            let mut bad = bytes.clone();
            bad[at / 8] ^= 1 << (at % 8);
            let read = Directory::parse(&bad).and_then(|sealed| sealed.open(&hasher));
            assert!(read.is_err(), "bit {at}");
        }
        for length in 0..bytes.len() {
            assert!(Directory::parse(&bytes[..length]).is_err());
        }
        assert!(Directory::parse(&[bytes.as_slice(), &[0]].concat()).is_err());
    }

    #[test]
    fn a_list_that_cannot_be_read_back_is_not_written() {
        let refused = |directory: &Directory| {
            let mut out = Vec::new();
            let error = directory
                .encode(&Hasher::xxh3(), &mut out)
                .expect_err("it is wrong");
            assert!(out.is_empty());
            error
        };
        assert_eq!(refused(&directory(4097)), CheckpointError::Lanes(4097));
        let mut wrong = directory(3);
        wrong.lanes.swap(1, 2);
        assert_eq!(refused(&wrong), CheckpointError::Entry { at: 2 });
        wrong.lanes[1] = wrong.lanes[0];
        assert_eq!(refused(&wrong), CheckpointError::Entry { at: 1 });
        wrong = directory(3);
        wrong.lanes[0].size = MAX_SIZE + 1;
        assert_eq!(refused(&wrong), CheckpointError::Entry { at: 0 });
    }
}
