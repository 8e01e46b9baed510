//! What a producer says about its lane now and then: how many messages, and their root.
//!
//! 128 bytes, big-endian, then the detail if any; the layout is at [`Checkpoint`]. A checkpoint
//! travels in band, takes no sequence number, and processors pass it on unchanged. One that is lost
//! costs nothing once the next one arrives, whose lane root covers everything before it.
//!
//! Invariant: a [`Checkpoint`] that was read has passed its tag. Before that, a
//! [`SealedCheckpoint`] shows only what is needed to find the lane's key.

use crate::{
    Algorithm, Digest, Epoch, Hash, LaneId, Tag,
    limits::{MAX_OPEN_LANES, MAX_SIZE, MAX_WINDOW_LOG2},
    reader::Reader,
};

/// What a producer says about one epoch of a lane.
///
/// | at | bytes | field |
/// |---|---|---|
/// | 0 | 4 | magic `cdaace9a` |
/// | 4 | 1 | version = 1 |
/// | 5 | 1 | algorithm |
/// | 6 | 1 | log2 of the window, 0 to 16 |
/// | 7 | 1 | bits 0 to 4: detail; 5: the epoch is cut; 6: the window is not full; 7: it is closed |
/// | 8 | 8 | lane |
/// | 16 | 4 | epoch |
/// | 20 | 4 | number of the checkpoint in the epoch, dense |
/// | 24 | 8 | first sequence of the window, a multiple of the window |
/// | 32 | 8 | size: messages issued so far, at most 2^63 |
/// | 40 | 8 | time, µs since 1970 |
/// | 48 | 32 | window root: leaves first … size − 1; left-aligned, zero behind |
/// | 80 | 32 | lane root: leaves 0 … size − 1; left-aligned, zero behind |
/// | 112 | 16 | tag over bytes 0 to 111 and the detail |
/// | 128 | | detail |
///
/// Detail 0 is none; 1 is the fingerprint of each leaf of the window, 4 bytes; 2 is each leaf; 3 is
/// a [directory](crate::Directory).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// In which lane.
    pub lane: LaneId,
    /// In which epoch of it.
    pub epoch: Epoch,
    /// Its number in the epoch: 0, 1, 2 … so that a lost checkpoint is itself seen.
    pub number: u32,
    /// Windows are of 2^`window_log2` messages; 0 to [`MAX_WINDOW_LOG2`].
    pub window_log2: u8,
    /// The first sequence of the window it closes or tells of; a multiple of the window.
    pub first: u64,
    /// Messages issued so far; `first` to `first` + window.
    pub size: u64,
    /// When, in µs since 1970, by the producer's clock.
    pub time_us: u64,
    /// The hash of the window's leaves, `first` to `size` − 1.
    pub window_root: Hash,
    /// The hash of all leaves, 0 to `size` − 1.
    pub lane_root: Hash,
    /// Whether its epoch goes on.
    pub end: EpochEnd,
    /// What it tells of single leaves.
    pub detail: Detail,
}

/// Whether an epoch goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EpochEnd {
    /// More may follow.
    #[default]
    Open,
    /// Nothing follows, and more may have been issued than the producer knows: it has crashed. What
    /// is beyond is neither proven nor injected.
    Cut,
    /// No message follows, and none was issued beyond this checkpoint.
    Closed,
}

/// What a checkpoint tells of the window's leaves, beyond their root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Detail {
    /// Nothing.
    #[default]
    None,
    /// 4 bytes of each, by which a receiver without a way back names every altered message.
    Fingerprints(Vec<[u8; 4]>),
    /// Each of them.
    Leaves(Vec<Hash>),
}

/// Which [`Detail`] a producer sends with each full window and with the end of an epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum DetailLevel {
    /// None: whoever finds a difference asks back.
    #[default]
    None,
    /// 4 bytes a message, for pipelines without a way back.
    Fingerprints,
    /// The leaves: 16 bytes a message, or 32.
    Leaves,
}

/// Bytes in the form of a checkpoint whose tag has not been looked at.
#[derive(Clone, Debug)]
pub struct SealedCheckpoint {
    algorithm: Algorithm,
    checkpoint: Checkpoint,
    head: [u8; Head::TAGGED],
    detail: Vec<u8>,
    tag: Tag,
}

/// Why bytes are no checkpoint or directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CheckpointError {
    /// Not as many bytes as the head calls for.
    #[error("this checkpoint takes {expected} bytes, there are {found}")]
    Length {
        /// What the head calls for; 128 if there is no whole head.
        expected: usize,
        /// What there is.
        found: usize,
    },
    /// Something else.
    #[error("bytes 0 to 3: {0:08x} is not the magic cdaace9a of a checkpoint")]
    Magic(u32),
    /// A later version.
    #[error("byte 4: checkpoint of version {0}, this reader knows version 1")]
    Version(u8),
    /// No known algorithm.
    #[error("byte 5: unknown digest algorithm {0}; 1, 2, 3 and 8 are known")]
    Algorithm(u8),
    /// Too large a window.
    #[error("byte 6: a window of 2^{0} messages; 2^{MAX_WINDOW_LOG2} is the most")]
    Window(u8),
    /// A detail without a meaning here, a bit 6 that contradicts the size, or two ways to end.
    #[error("byte 7: {0:#04x} does not agree with the kind of checkpoint or its size")]
    Kind(u8),
    /// A directory where a lane's checkpoint was expected, or the other way round.
    #[error("bytes 8 to 15: lane {0}; lane 0 has directories, all others have checkpoints")]
    Lane(u64),
    /// A window that does not begin at a multiple of its size.
    #[error("bytes 24 to 31: {0} is not the first sequence of a window")]
    First(u64),
    /// More messages than the window takes, fewer than it begins with, or 2^63 passed.
    #[error("bytes 32 to 39: size {0} does not lie within the window")]
    Size(u64),
    /// A root as wide as none of its algorithm.
    #[error("bytes {at} to {}: the root is wider than its algorithm makes it", at + 31)]
    Root {
        /// 48 or 80.
        at: usize,
    },
    /// A list of lanes that is not in order, names lane 0, or tells of too many messages.
    #[error(
        "entry {at} of the directory: lanes ascend, none is 0, and none has over 2^63 messages"
    )]
    Entry {
        /// Counted from 0.
        at: usize,
    },
    /// More lanes than a directory may list.
    #[error("a directory of {0} lanes; {MAX_OPEN_LANES} are the most")]
    Lanes(u64),
    /// Made with another key or algorithm, or changed on the way.
    #[error("the tag does not fit: changed on the way, or made with another key than the lane's")]
    Tag,
}

impl Checkpoint {
    /// Bytes without detail.
    pub const BYTES: usize = Head::TAGGED + 16;

    /// Whether the window has room for more messages: a heartbeat, or the end of an epoch.
    pub fn is_partial(&self) -> bool {
        self.size - self.first < 1 << self.window_log2
    }

    /// Writes the bytes, tagged by `digest`.
    pub fn encode(&self, digest: &impl Digest, out: &mut Vec<u8>) {
        let (kind, detail) = match &self.detail {
            Detail::None => (Head::NO_DETAIL, Vec::new()),
            Detail::Fingerprints(prints) => (Head::FINGERPRINTS, prints.concat()),
            Detail::Leaves(leaves) => {
                let bytes: Vec<_> = leaves.iter().map(Hash::as_bytes).collect();
                (Head::LEAVES, bytes.concat())
            }
        };
        let bit = |set, bit| if set { bit } else { 0 };
        let end = match self.end {
            EpochEnd::Open => 0,
            EpochEnd::Cut => Head::CUT,
            EpochEnd::Closed => Head::CLOSED,
        };
        let head = Head {
            algorithm: digest.algorithm(),
            window_log2: self.window_log2,
            kind: kind | bit(self.is_partial(), Head::PARTIAL) | end,
            lane: self.lane.value(),
            epoch: self.epoch,
            number: self.number,
            first: self.first,
            size: self.size,
            time_us: self.time_us,
            window_root: *self.window_root.padded(),
            lane_root: *self.lane_root.padded(),
        };
        seal(digest, &head.to_bytes(), &detail, out);
    }

    /// Reads the form of what [`Checkpoint::encode`] writes, and nothing else.
    pub fn parse(bytes: &[u8]) -> Result<SealedCheckpoint, CheckpointError> {
        let (head, tagged, tag, rest) = Head::parse(bytes)?;
        let lane = LaneId::new(head.lane).ok_or(CheckpointError::Lane(head.lane))?;
        if head.window_log2 > MAX_WINDOW_LOG2 {
            return Err(CheckpointError::Window(head.window_log2));
        }
        let window = 1_u64 << head.window_log2;
        if head.first % window != 0 {
            return Err(CheckpointError::First(head.first));
        }
        let in_window = head.size.checked_sub(head.first);
        let Some(in_window) = in_window.filter(|n| *n <= window && head.size <= MAX_SIZE) else {
            return Err(CheckpointError::Size(head.size));
        };
        if (head.kind & Head::PARTIAL != 0) != (in_window < window) {
            return Err(CheckpointError::Kind(head.kind));
        }
        let end = match head.kind & (Head::CUT | Head::CLOSED) {
            0 => EpochEnd::Open,
            Head::CUT => EpochEnd::Cut,
            Head::CLOSED => EpochEnd::Closed,
            _ => return Err(CheckpointError::Kind(head.kind)),
        };
        let count = usize::try_from(in_window).expect("a window has at most 2^16 messages");
        let width = match head.kind & Head::DETAIL {
            Head::NO_DETAIL => 0,
            Head::FINGERPRINTS => 4,
            Head::LEAVES => head.algorithm.leaf_width(),
            _ => return Err(CheckpointError::Kind(head.kind)),
        };
        if rest.len() != count * width {
            return Err(CheckpointError::Length {
                expected: Self::BYTES + count * width,
                found: bytes.len(),
            });
        }
        let detail = match head.kind & Head::DETAIL {
            Head::NO_DETAIL => Detail::None,
            Head::FINGERPRINTS => Detail::Fingerprints(rest.as_chunks().0.to_vec()),
            _ => Detail::Leaves(rest.chunks_exact(width).filter_map(Hash::new).collect()),
        };
        let checkpoint = Self {
            lane,
            epoch: head.epoch,
            number: head.number,
            window_log2: head.window_log2,
            first: head.first,
            size: head.size,
            time_us: head.time_us,
            window_root: head.window_root(in_window)?,
            lane_root: head.lane_root(head.size)?,
            end,
            detail,
        };
        Ok(SealedCheckpoint {
            algorithm: head.algorithm,
            checkpoint,
            head: *tagged,
            detail: rest.to_vec(),
            tag,
        })
    }
}

impl SealedCheckpoint {
    /// Whose key to look for. Not to be believed before [`SealedCheckpoint::open`].
    pub const fn lane(&self) -> LaneId {
        self.checkpoint.lane
    }

    /// Of which epoch it says it is. As [`SealedCheckpoint::lane`].
    pub const fn epoch(&self) -> Epoch {
        self.checkpoint.epoch
    }

    /// How many messages it says were issued. As [`SealedCheckpoint::lane`].
    pub const fn size(&self) -> u64 {
        self.checkpoint.size
    }

    /// Which algorithm to look for.
    pub const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// The checkpoint, if `digest`, the lane's own, made the tag.
    pub fn open(self, digest: &impl Digest) -> Result<Checkpoint, CheckpointError> {
        let is_own = digest.algorithm() == self.algorithm;
        if !is_own || digest.tag(&[&self.head, &self.detail]) != self.tag {
            return Err(CheckpointError::Tag);
        }
        Ok(self.checkpoint)
    }
}

/// The first 112 bytes, which checkpoints and directories share.
pub(crate) struct Head {
    pub(crate) algorithm: Algorithm,
    pub(crate) window_log2: u8,
    pub(crate) kind: u8,
    pub(crate) lane: u64,
    pub(crate) epoch: Epoch,
    pub(crate) number: u32,
    pub(crate) first: u64,
    pub(crate) size: u64,
    pub(crate) time_us: u64,
    pub(crate) window_root: [u8; 32],
    pub(crate) lane_root: [u8; 32],
}

impl Head {
    /// Differs from the heritage's `cdaace99`, whose readers refuse it cleanly.
    const MAGIC: u32 = 0xcdaa_ce9a;
    const VERSION: u8 = 1;

    const NO_DETAIL: u8 = 0;
    const FINGERPRINTS: u8 = 1;
    const LEAVES: u8 = 2;
    pub(crate) const DIRECTORY: u8 = 3;
    const DETAIL: u8 = 0b0001_1111;
    const CUT: u8 = 1 << 5;
    const PARTIAL: u8 = 1 << 6;
    const CLOSED: u8 = 1 << 7;

    /// Bytes that the tag covers, besides the detail.
    pub(crate) const TAGGED: usize = 112;

    pub(crate) fn to_bytes(&self) -> [u8; Self::TAGGED] {
        let mut bytes = [0; Self::TAGGED];
        let mut at = 0;
        let mut put = |field: &[u8]| {
            bytes[at..at + field.len()].copy_from_slice(field);
            at += field.len();
        };
        put(&Self::MAGIC.to_be_bytes());
        put(&[
            Self::VERSION,
            self.algorithm as u8,
            self.window_log2,
            self.kind,
        ]);
        put(&self.lane.to_be_bytes());
        put(&self.epoch.0.to_be_bytes());
        put(&self.number.to_be_bytes());
        put(&self.first.to_be_bytes());
        put(&self.size.to_be_bytes());
        put(&self.time_us.to_be_bytes());
        put(&self.window_root);
        put(&self.lane_root);
        bytes
    }

    /// The head, its bytes, the tag, and what follows.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Parsed<'_>, CheckpointError> {
        let short = CheckpointError::Length {
            expected: Checkpoint::BYTES,
            found: bytes.len(),
        };
        let (tagged, rest) = bytes.split_first_chunk().ok_or(short)?;
        let (tag, rest) = rest.split_first_chunk().ok_or(short)?;
        let mut reader = Reader::new(tagged);
        let magic = reader.u32().ok_or(short)?;
        if magic != Self::MAGIC {
            return Err(CheckpointError::Magic(magic));
        }
        let [version, number, window_log2, kind] = reader.array().ok_or(short)?;
        if version != Self::VERSION {
            return Err(CheckpointError::Version(version));
        }
        let algorithm = Algorithm::new(number).ok_or(CheckpointError::Algorithm(number))?;
        let head = Self {
            algorithm,
            window_log2,
            kind,
            lane: reader.u64().ok_or(short)?,
            epoch: Epoch(reader.u32().ok_or(short)?),
            number: reader.u32().ok_or(short)?,
            first: reader.u64().ok_or(short)?,
            size: reader.u64().ok_or(short)?,
            time_us: reader.u64().ok_or(short)?,
            window_root: reader.array().ok_or(short)?,
            lane_root: reader.array().ok_or(short)?,
        };
        Ok((head, tagged, Tag(*tag), rest))
    }

    pub(crate) fn window_root(&self, leaves: u64) -> Result<Hash, CheckpointError> {
        Hash::from_padded(self.window_root, self.algorithm.width_over(leaves))
            .ok_or(CheckpointError::Root { at: 48 })
    }

    pub(crate) fn lane_root(&self, leaves: u64) -> Result<Hash, CheckpointError> {
        Hash::from_padded(self.lane_root, self.algorithm.width_over(leaves))
            .ok_or(CheckpointError::Root { at: 80 })
    }
}

/// A head, its bytes, the tag behind it, and the rest.
type Parsed<'a> = (Head, &'a [u8; Head::TAGGED], Tag, &'a [u8]);

/// Writes head, tag and detail.
pub(crate) fn seal(
    digest: &impl Digest,
    head: &[u8; Head::TAGGED],
    detail: &[u8],
    out: &mut Vec<u8>,
) {
    let tag = digest.tag(&[head, detail]);
    for part in [head.as_slice(), &tag.0, detail] {
        out.extend_from_slice(part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CompactRange, Hasher, Key};

    fn hasher(algorithm: Algorithm) -> Hasher {
        Hasher::new(algorithm, Some(&Key([5; 32]))).expect("there is a key")
    }

    /// A checkpoint over `size` leaves with windows of four.
    fn checkpoint(hasher: &Hasher, size: u64, kind: u8) -> Checkpoint {
        let first = size.saturating_sub(1) / 4 * 4;
        let leaf = |index: u64| hasher.leaf(&[&index.to_be_bytes()]);
        let root = |first| {
            let mut range = CompactRange::new(first);
            (first..size).for_each(|index| range.append(hasher, leaf(index)));
            range.root(hasher).expect("windows are aligned")
        };
        let leaves: Vec<_> = (first..size).map(leaf).collect();
        Checkpoint {
            lane: LaneId::new(0x0102_0304_0506_0708).expect("it is not 0"),
            epoch: Epoch(3),
            number: 5,
            window_log2: 2,
            first,
            size,
            time_us: 1_000_000,
            window_root: root(first),
            lane_root: root(0),
            end: match size {
                7 => EpochEnd::Closed,
                5 => EpochEnd::Cut,
                _ => EpochEnd::Open,
            },
            detail: match kind {
                0 => Detail::None,
                1 => Detail::Fingerprints(leaves.iter().map(Hash::fingerprint).collect()),
                _ => Detail::Leaves(leaves),
            },
        }
    }

    fn encoded(checkpoint: &Checkpoint, hasher: &Hasher) -> Vec<u8> {
        let mut bytes = Vec::new();
        checkpoint.encode(hasher, &mut bytes);
        bytes
    }

    #[test]
    fn the_layout_is_that_of_the_table() {
        let hasher = hasher(Algorithm::Blake3);
        let checkpoint = checkpoint(&hasher, 7, 0);
        let bytes = encoded(&checkpoint, &hasher);
        assert_eq!(bytes.len(), 128);
        let expect = [
            0xcd,
            0xaa,
            0xce,
            0x9a,
            1,
            2,
            2,
            0b1100_0000,
            1,
            2,
            3,
            4,
            5,
            6,
            7,
            8,
        ];
        assert_eq!(bytes[..16], expect);
        assert_eq!(bytes[16..24], [0, 0, 0, 3, 0, 0, 0, 5]);
        assert_eq!(
            bytes[24..40],
            [4_u64.to_be_bytes(), 7_u64.to_be_bytes()].concat()
        );
        assert_eq!(bytes[40..48], 1_000_000_u64.to_be_bytes());
        assert_eq!(&bytes[48..80], checkpoint.window_root.padded());
        assert_eq!(&bytes[80..112], checkpoint.lane_root.padded());
        assert_eq!(bytes[112..], hasher.tag(&[&bytes[..112]]).0);
    }

    #[test]
    fn what_is_written_is_read_back_the_same() {
        for algorithm in Algorithm::ALL {
            let hasher = hasher(algorithm);
            for size in 0..10 {
                for kind in 0..3 {
                    let checkpoint = checkpoint(&hasher, size, kind);
                    assert_eq!(checkpoint.is_partial(), size % 4 != 0 || size == 0);
                    let bytes = encoded(&checkpoint, &hasher);
                    let sealed = Checkpoint::parse(&bytes).expect("it was just written");
                    assert_eq!(
                        (sealed.lane(), sealed.algorithm()),
                        (checkpoint.lane, algorithm)
                    );
                    assert_eq!(sealed.open(&hasher), Ok(checkpoint));
                }
            }
        }
    }

    #[test]
    fn an_epoch_ends_in_one_way() {
        let hasher = hasher(Algorithm::Xxh3);
        let mut bytes = encoded(&checkpoint(&hasher, 5, 0), &hasher);
        assert_eq!(bytes[7], 0b0110_0000);
        bytes[7] |= Head::CLOSED;
        let read = Checkpoint::parse(&bytes).map(drop);
        assert_eq!(read, Err(CheckpointError::Kind(0b1110_0000)));
    }

    #[test]
    fn every_changed_bit_is_refused() {
        let hasher = hasher(Algorithm::Xxh3);
        let bytes = encoded(&checkpoint(&hasher, 7, 1), &hasher);
        assert_eq!(bytes.len(), 128 + 3 * 4);
        for at in 0..bytes.len() * 8 {
            let mut bad = bytes.clone();
            bad[at / 8] ^= 1 << (at % 8);
            let read = Checkpoint::parse(&bad).and_then(|sealed| sealed.open(&hasher));
            assert!(read.is_err(), "bit {at}");
        }
        for length in 0..bytes.len() {
            assert!(Checkpoint::parse(&bytes[..length]).is_err());
        }
        assert!(Checkpoint::parse(&[bytes.as_slice(), &[0]].concat()).is_err());
    }

    #[test]
    fn another_key_or_algorithm_does_not_open_it() {
        for algorithm in [Algorithm::Blake3, Algorithm::Sha256] {
            let hasher = hasher(algorithm);
            let bytes = encoded(&checkpoint(&hasher, 4, 0), &hasher);
            let sealed = Checkpoint::parse(&bytes).expect("it was just written");
            let other = Hasher::new(algorithm, Some(&Key([6; 32]))).expect("there is a key");
            assert_eq!(sealed.clone().open(&other), Err(CheckpointError::Tag));
            assert_eq!(sealed.open(&Hasher::xxh3()), Err(CheckpointError::Tag));
        }
        // Heritage tags are those of algorithm 1, yet its checkpoints are not.
        let heritage = hasher(Algorithm::Heritage);
        let bytes = encoded(&checkpoint(&heritage, 4, 0), &heritage);
        let sealed = Checkpoint::parse(&bytes).expect("it was just written");
        assert_eq!(sealed.open(&Hasher::xxh3()), Err(CheckpointError::Tag));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let hasher = hasher(Algorithm::Xxh3);
        let good = encoded(&checkpoint(&hasher, 7, 0), &hasher);
        let check = |at: usize, value: &[u8], expect: CheckpointError| {
            let mut bad = good.clone();
            bad[at..at + value.len()].copy_from_slice(value);
            assert_eq!(Checkpoint::parse(&bad).expect_err("it was broken"), expect);
        };
        check(3, &[0x99], CheckpointError::Magic(0xcdaa_ce99));
        check(4, &[2], CheckpointError::Version(2));
        check(5, &[0], CheckpointError::Algorithm(0));
        check(6, &[17], CheckpointError::Window(17));
        check(7, &[0b1000_0000], CheckpointError::Kind(0b1000_0000));
        check(7, &[0b0100_0011], CheckpointError::Kind(0b0100_0011));
        check(8, &[0; 8], CheckpointError::Lane(0));
        check(31, &[5], CheckpointError::First(5));
        check(39, &[3], CheckpointError::Size(3));
        check(39, &[9], CheckpointError::Size(9));
        let (expected, found) = (140, 128);
        check(
            7,
            &[0b0100_0001],
            CheckpointError::Length { expected, found },
        );
        check(79, &[1], CheckpointError::Root { at: 48 });
        check(111, &[1], CheckpointError::Root { at: 80 });
    }
}
