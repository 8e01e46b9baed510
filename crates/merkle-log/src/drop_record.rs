//! What a processor or a broker says of messages that it took and does not pass on.
//!
//! With its drop records a pipeline that filters still closes: the leaves in them take the places
//! of the messages, and the lane's root shows that they are the producer's.
//!
//! | at | bytes | field |
//! |---|---|---|
//! | 0 | 1 | version (4 bits) = 1, digest algorithm (4 bits) |
//! | 1 | 1 | reason |
//! | 2 | 4 | epoch |
//! | 6 | 8 | lane |
//! | 14 | 16 | tag over bytes 0 to 13 and the runs |
//! | 30 | | runs, ascending and apart, at least one |
//!
//! A run: its distance from the end of the one before (from 0 for the first), times two, plus one
//! if it has several messages; then, if so, their number less two; then their leaves. Numbers are
//! variable-length integers. A dropped message among others that pass costs 17 bytes, a neighbour
//! 16.

use core::fmt;
use core::ops::Range;

use crate::limits::MAX_SIZE;
use crate::reader::{Reader, write_number};
use crate::{Algorithm, Digest, Epoch, Hash, LaneId, Property, Tag};

/// Messages of one epoch of a lane that go no further, all for one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DropRecord {
    /// The lane that issued them.
    pub lane: LaneId,
    /// Its epoch.
    pub epoch: Epoch,
    /// Why.
    pub reason: DropReason,
    /// Which: ascending, apart from each other, none empty.
    pub runs: Vec<DropRun>,
}

/// Neighbouring messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DropRun {
    /// The number of the first.
    pub first: u64,
    /// The leaf of each.
    pub leaves: Vec<Hash>,
}

/// Why messages go no further. Numbers without a name are kept as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DropReason(pub u8);

/// Bytes in the form of a drop record whose tag has not been looked at.
#[derive(Clone, Debug)]
pub struct SealedDropRecord {
    algorithm: Algorithm,
    record: DropRecord,
    head: [u8; DropRecord::HEAD],
    runs: Vec<u8>,
    tag: Tag,
}

/// Why bytes are no drop record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DropRecordError {
    /// Too short to say what it is.
    #[error("a drop record has 30 bytes and its runs, this one has {0}")]
    Short(usize),
    /// Of a later version.
    #[error("byte 0: drop record of version {0}, this reader knows version 1")]
    Version(u8),
    /// Of no known algorithm.
    #[error("byte 0: unknown digest algorithm {0}; 1, 2, 3 and 8 are known")]
    Algorithm(u8),
    /// Lane 0.
    #[error("bytes 6 to 13: lane 0 holds directories, never messages")]
    Lane,
    /// A run that ends too early, touches the one before, or has numbers beyond 2^63.
    #[error("run {0}: it is cut off, touches the one before, or is not below 2^63")]
    Run(usize),
    /// Nothing was dropped.
    #[error("a drop record without a run says nothing")]
    Empty,
    /// Made with another key or algorithm, or changed on the way.
    #[error("the tag does not fit: changed on the way, or made with another key than the lane's")]
    Tag,
}

impl DropReason {
    /// A processor's decision: it filters.
    pub const FILTERED: Self = Self(1);
    /// Its time was over before it could be delivered.
    pub const EXPIRED: Self = Self(2);
    /// The receiver's queue was full.
    pub const QUEUE_FULL: Self = Self(3);
    /// The receiver did not read fast enough.
    pub const SLOW_RECEIVER: Self = Self(4);
    /// The receiver, or the sender, may not.
    pub const DENIED: Self = Self(5);
    /// Larger than the receiver takes.
    pub const TOO_LARGE: Self = Self(6);
    /// Nobody wants it.
    pub const NO_SUBSCRIBER: Self = Self(7);
    /// The receiver's session was over.
    pub const SESSION_ENDED: Self = Self(8);
    /// The connection broke before a message without acknowledgement was written.
    pub const CONNECTION_LOST: Self = Self(9);
    /// A newer one took its place.
    pub const COMPACTED: Self = Self(10);
    /// A processor could not make sense of it.
    pub const FAILED: Self = Self(11);
    /// It waited for longer than messages may.
    pub const TOO_OLD: Self = Self(12);
    /// There was no room on the broker's disk.
    pub const STORE_FULL: Self = Self(13);
    /// It needed no acknowledgement, and its receiver was away.
    pub const NOT_CONNECTED: Self = Self(14);
    /// There was no room for another retained message.
    pub const RETAINED_FULL: Self = Self(15);
    /// Its receiver answered that it does not take it.
    pub const REFUSED_BY_RECEIVER: Self = Self(16);
    /// The broker's disk had failed.
    pub const STORE_FAILED: Self = Self(17);

    /// Its name as reports write it; `None` for a number that has none.
    pub const fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::FILTERED => "filtered",
            Self::EXPIRED => "expired",
            Self::QUEUE_FULL => "queue-full",
            Self::SLOW_RECEIVER => "slow-receiver",
            Self::DENIED => "denied",
            Self::TOO_LARGE => "too-large",
            Self::NO_SUBSCRIBER => "no-subscriber",
            Self::SESSION_ENDED => "session-ended",
            Self::CONNECTION_LOST => "connection-lost",
            Self::COMPACTED => "compacted",
            Self::FAILED => "failed",
            Self::TOO_OLD => "too-old",
            Self::STORE_FULL => "store-full",
            Self::NOT_CONNECTED => "not-connected",
            Self::RETAINED_FULL => "retained-full",
            Self::REFUSED_BY_RECEIVER => "refused-by-receiver",
            Self::STORE_FAILED => "store-failed",
            _ => return None,
        })
    }
}

/// Its name, or `reason-200`.
impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "reason-{}", self.0),
        }
    }
}

impl DropRun {
    /// Its numbers.
    pub fn numbers(&self) -> Range<u64> {
        self.first..self.first + self.leaves.len() as u64
    }
}

impl DropRecord {
    const VERSION: u8 = 1;
    /// Bytes in front of the tag.
    const HEAD: usize = 14;

    /// The record of these messages of one epoch of a lane, in whichever order; a message given
    /// twice counts once. `None` when there are none, or not all are of one epoch of one lane.
    pub fn of<'a>(
        reason: DropReason,
        dropped: impl IntoIterator<Item = &'a Property>,
    ) -> Option<Self> {
        let mut dropped: Vec<&Property> = dropped.into_iter().collect();
        dropped.sort_unstable_by_key(|message| (message.lane, message.epoch, message.sequence));
        dropped.dedup_by_key(|message| (message.lane, message.epoch, message.sequence));
        let (lane, epoch) = dropped.first().map(|first| (first.lane, first.epoch))?;
        let mut runs: Vec<DropRun> = Vec::new();
        for property in dropped {
            if (property.lane, property.epoch) != (lane, epoch) {
                return None;
            }
            match runs.last_mut() {
                Some(run) if run.numbers().end == property.sequence => {
                    run.leaves.push(property.digest);
                }
                _ => runs.push(DropRun {
                    first: property.sequence,
                    leaves: vec![property.digest],
                }),
            }
        }
        Some(Self {
            lane,
            epoch,
            reason,
            runs,
        })
    }

    /// How many messages.
    pub fn len(&self) -> u64 {
        self.runs.iter().map(|run| run.leaves.len() as u64).sum()
    }

    /// Whether there are none, which no record that was read has.
    pub fn is_empty(&self) -> bool {
        self.runs.iter().all(|run| run.leaves.is_empty())
    }

    /// Writes the bytes, tagged by `digest`, the lane's own. Runs that could not be read back are
    /// refused, and nothing is written.
    pub fn encode(&self, digest: &impl Digest, out: &mut Vec<u8>) -> Result<(), DropRecordError> {
        let mut runs = Vec::new();
        let mut end = 0;
        for (at, run) in self.runs.iter().enumerate() {
            let wrong = DropRecordError::Run(at);
            let distance = run.first.checked_sub(end).ok_or(wrong)?;
            let length = run.leaves.len() as u64;
            let width = digest.algorithm().leaf_width();
            if length == 0
                || distance == 0 && at > 0
                || run.first.saturating_add(length) > MAX_SIZE
                || run.leaves.iter().any(|leaf| leaf.width() != width)
            {
                return Err(wrong);
            }
            write_number(distance << 1 | u64::from(length > 1), &mut runs);
            if length > 1 {
                write_number(length - 2, &mut runs);
            }
            for leaf in &run.leaves {
                runs.extend_from_slice(leaf.as_bytes());
            }
            end = run.first + length;
        }
        if runs.is_empty() {
            return Err(DropRecordError::Empty);
        }
        let mut head = [0; Self::HEAD];
        head[0] = Self::VERSION << 4 | digest.algorithm() as u8;
        head[1] = self.reason.0;
        head[2..6].copy_from_slice(&self.epoch.0.to_be_bytes());
        head[6..].copy_from_slice(&self.lane.value().to_be_bytes());
        let tag = digest.tag(&[&head, &runs]);
        for part in [head.as_slice(), &tag.0, &runs] {
            out.extend_from_slice(part);
        }
        Ok(())
    }

    /// Reads the form of what [`DropRecord::encode`] writes, and nothing else.
    pub fn parse(bytes: &[u8]) -> Result<SealedDropRecord, DropRecordError> {
        let short = DropRecordError::Short(bytes.len());
        let (head, rest) = bytes.split_first_chunk().ok_or(short)?;
        let (tag, runs) = rest.split_first_chunk().ok_or(short)?;
        let mut reader = Reader::new(head);
        let [first, reason] = reader.array().ok_or(short)?;
        if first >> 4 != Self::VERSION {
            return Err(DropRecordError::Version(first >> 4));
        }
        let number = first & 15;
        let algorithm = Algorithm::new(number).ok_or(DropRecordError::Algorithm(number))?;
        let epoch = Epoch(reader.u32().ok_or(short)?);
        let lane = reader.u64().and_then(LaneId::new);
        let record = Self {
            lane: lane.ok_or(DropRecordError::Lane)?,
            epoch,
            reason: DropReason(reason),
            runs: read_runs(algorithm, runs)?,
        };
        Ok(SealedDropRecord {
            algorithm,
            record,
            head: *head,
            runs: runs.to_vec(),
            tag: Tag(*tag),
        })
    }
}

impl SealedDropRecord {
    /// Whose key to look for. Not to be believed before [`SealedDropRecord::open`].
    pub const fn lane(&self) -> LaneId {
        self.record.lane
    }

    /// Which algorithm to look for.
    pub const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// The record, if `digest`, the lane's own, made the tag.
    pub fn open(self, digest: &impl Digest) -> Result<DropRecord, DropRecordError> {
        let is_own = digest.algorithm() == self.algorithm;
        if !is_own || digest.tag(&[&self.head, &self.runs]) != self.tag {
            return Err(DropRecordError::Tag);
        }
        Ok(self.record)
    }
}

fn read_runs(algorithm: Algorithm, bytes: &[u8]) -> Result<Vec<DropRun>, DropRecordError> {
    let mut reader = Reader::new(bytes);
    let mut runs: Vec<DropRun> = Vec::new();
    while !reader.rest().is_empty() {
        let wrong = DropRecordError::Run(runs.len());
        let coded = reader.number().ok_or(wrong)?;
        let length = if coded & 1 == 0 {
            1
        } else {
            let more = reader.number().ok_or(wrong)?;
            more.checked_add(2).ok_or(wrong)?
        };
        let end = runs.last().map_or(0, |run| run.numbers().end);
        let first = end + (coded >> 1);
        let in_range = first.checked_add(length).is_some_and(|end| end <= MAX_SIZE);
        if !in_range || first == end && !runs.is_empty() {
            return Err(wrong);
        }
        let width = algorithm.leaf_width();
        let wide = usize::try_from(length).ok();
        let leaves = wide
            .and_then(|length| reader.bytes(length.checked_mul(width)?))
            .ok_or(wrong)?;
        runs.push(DropRun {
            first,
            leaves: leaves.chunks_exact(width).filter_map(Hash::new).collect(),
        });
    }
    if runs.is_empty() {
        return Err(DropRecordError::Empty);
    }
    Ok(runs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Hasher, Key};

    fn hasher(algorithm: Algorithm) -> Hasher {
        Hasher::new(algorithm, Some(&Key([5; 32]))).expect("there is a key")
    }

    fn record(hasher: &Hasher, numbers: &[u64]) -> DropRecord {
        let lane = LaneId::new(9).expect("9 is a lane");
        let properties: Vec<Property> = numbers
            .iter()
            .map(|number| Property::stamp(hasher, lane, Epoch(1), *number, b"t", b"p"))
            .collect();
        DropRecord::of(DropReason::FILTERED, &properties).expect("there are some")
    }

    fn encoded(record: &DropRecord, hasher: &Hasher) -> Vec<u8> {
        let mut bytes = Vec::new();
        record
            .encode(hasher, &mut bytes)
            .expect("it is well formed");
        bytes
    }

    #[test]
    fn what_is_written_is_read_back_the_same() {
        for algorithm in Algorithm::ALL {
            let hasher = hasher(algorithm);
            for numbers in [&[0][..], &[7, 6, 5, 9, 7], &[1, 3, MAX_SIZE - 1]] {
                let record = record(&hasher, numbers);
                let sealed = DropRecord::parse(&encoded(&record, &hasher)).expect("just written");
                assert_eq!(sealed.lane(), record.lane);
                assert_eq!(sealed.open(&hasher), Ok(record));
            }
        }
    }

    #[test]
    fn each_dropped_message_costs_17_bytes_at_most() {
        let hasher = Hasher::xxh3();
        let every_second: Vec<u64> = (0..1_000).map(|number| number * 2).collect();
        let bytes = encoded(&record(&hasher, &every_second), &hasher);
        assert_eq!(bytes.len(), 30 + 17 * 1_000);
        let neighbours: Vec<u64> = (0..1_000).collect();
        let bytes = encoded(&record(&hasher, &neighbours), &hasher);
        assert_eq!(bytes.len(), 30 + 3 + 16 * 1_000);
    }

    #[test]
    fn every_changed_bit_and_every_cut_is_refused() {
        let hasher = Hasher::xxh3();
        let bytes = encoded(&record(&hasher, &[1, 2, 3, 200]), &hasher);
        for at in 0..bytes.len() * 8 {
            let mut bad = bytes.clone();
            bad[at / 8] ^= 1 << (at % 8);
            let read = DropRecord::parse(&bad).and_then(|sealed| sealed.open(&hasher));
            assert!(read.is_err(), "bit {at}");
        }
        for length in 0..bytes.len() {
            let read = DropRecord::parse(&bytes[..length]).and_then(|sealed| sealed.open(&hasher));
            assert!(read.is_err(), "{length}");
        }
    }

    #[test]
    fn a_record_that_could_not_be_read_back_is_not_written() {
        let hasher = Hasher::xxh3();
        let good = record(&hasher, &[1, 5]);
        let refused = |runs: Vec<DropRun>| {
            let mut out = Vec::new();
            let bad = DropRecord {
                runs,
                ..good.clone()
            };
            let error = bad.encode(&hasher, &mut out).expect_err("it is wrong");
            assert!(out.is_empty());
            error
        };
        let run = |first, leaves| DropRun {
            first,
            leaves: vec![good.runs[0].leaves[0]; leaves],
        };
        assert_eq!(refused(vec![]), DropRecordError::Empty);
        assert_eq!(refused(vec![run(5, 1), run(1, 1)]), DropRecordError::Run(1));
        assert_eq!(refused(vec![run(1, 2), run(3, 1)]), DropRecordError::Run(1));
        assert_eq!(refused(vec![run(1, 0)]), DropRecordError::Run(0));
        assert_eq!(refused(vec![run(MAX_SIZE, 1)]), DropRecordError::Run(0));
    }

    #[test]
    fn messages_of_two_lanes_make_no_record() {
        let hasher = Hasher::xxh3();
        let stamp = |lane| {
            let lane = LaneId::new(lane).expect("not 0");
            Property::stamp(&hasher, lane, Epoch(0), 0, b"t", b"p")
        };
        let two = [stamp(1), stamp(2)];
        assert_eq!(DropRecord::of(DropReason::FILTERED, &two), None);
        assert_eq!(DropRecord::of(DropReason::FILTERED, []), None);
        assert_eq!(DropReason(200).to_string(), "reason-200");
    }
}
