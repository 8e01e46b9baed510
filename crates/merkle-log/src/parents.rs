//! Which messages a batch was made of: what a processor that makes one of many sends with it.
//!
//! The parents are ranges of numbers with their compact ranges, so a thousand neighbours cost about
//! twenty hashes. A receiver puts those hashes in the places of the messages, and the lane's root
//! shows that they are the producer's.
//!
//! | bytes | field |
//! |---|---|
//! | 1 | version (4 bits) = 1, then 0 |
//! | | for each epoch of a lane, ascending by lane, then epoch: |
//! | 1 | digest algorithm |
//! | 8 | lane |
//! | 4 | epoch |
//! | 1 to 10 | number of ranges, at least one |
//! | | for each range: distance, length, and the hashes of its subtrees, left to right |
//!
//! Number, distance and length are variable-length integers; the distance is that from the end of
//! the range before, and from 0 for the first. No range crosses a multiple of 1,024,
//! so each lies in one window. As text, in the user property `audit-parents`, base64url without
//! padding.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL};

use crate::compact::subtrees;
use crate::ledger::limits::WINDOW;
use crate::limits::MAX_SIZE;
use crate::reader::{Reader, write_number};
use crate::{Algorithm, CompactRange, Digest, Epoch, Hash, LaneId, Property};

/// The messages that went into one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parents {
    lanes: Vec<LaneParents>,
}

/// Those of one epoch of a lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneParents {
    /// Which lane.
    pub lane: LaneId,
    /// Which epoch of it.
    pub epoch: Epoch,
    /// The lane's algorithm.
    pub algorithm: Algorithm,
    /// Ascending, without overlap, each within one window.
    pub ranges: Vec<CompactRange>,
}

/// Why there are no parents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParentsError {
    /// Of a later version.
    #[error("byte 0: parents of version {0}, this reader knows version 1")]
    Version(u8),
    /// They end too early, or a field has no meaning.
    #[error("parents: no {what} at byte {at}, or an impossible one")]
    Field {
        /// Which.
        what: &'static str,
        /// Where.
        at: usize,
    },
    /// Not base64url without padding.
    #[error("the text of parents is not base64url without padding")]
    Text,
    /// Longer than a user property may be.
    #[error(
        "parents of {0} characters; {max} are the most a user property takes: make smaller batches",
        max = Parents::MAX_TEXT
    )]
    LongText(usize),
    /// Stamped with another algorithm than that of the digest at hand.
    #[error("message {number} of lane {lane} has another algorithm than the others")]
    Algorithm {
        /// Its lane.
        lane: LaneId,
        /// Its number.
        number: u64,
    },
    /// Only a part of a message, so its parent is not here.
    #[error("message {number} of lane {lane} is a part: a batch is made of whole messages")]
    Part {
        /// Its lane.
        lane: LaneId,
        /// Its number.
        number: u64,
    },
    /// Two different messages with one number, or two ranges that overlap.
    #[error("message {number} of lane {lane} is in the batch twice")]
    Twice {
        /// Its lane.
        lane: LaneId,
        /// Its number.
        number: u64,
    },
}

impl Parents {
    /// The name of the user property that carries them.
    pub const NAME: &str = "audit-parents";
    /// Characters of the longest text: what fits an MQTT string.
    pub const MAX_TEXT: usize = 65_535;

    const VERSION: u8 = 1;

    /// The parents of a batch of these messages, in whichever order. A copy of a message that is
    /// given already counts once.
    pub fn of<'a>(
        digest: &impl Digest,
        messages: impl IntoIterator<Item = &'a Property>,
    ) -> Result<Self, ParentsError> {
        let mut messages: Vec<&Property> = messages.into_iter().collect();
        messages.sort_unstable_by_key(|message| (message.lane, message.epoch, message.sequence));
        let mut lanes: Vec<LaneParents> = Vec::new();
        let mut last: Option<&Property> = None;
        for message in messages {
            let (lane, number) = (message.lane, message.sequence);
            if message.algorithm != digest.algorithm() {
                return Err(ParentsError::Algorithm { lane, number });
            }
            if message.part.is_some() {
                return Err(ParentsError::Part { lane, number });
            }
            let key = |message: &Property| (message.lane, message.epoch, message.sequence);
            if let Some(last) = last.filter(|last| key(last) == key(message)) {
                if last.digest != message.digest {
                    return Err(ParentsError::Twice { lane, number });
                }
                continue;
            }
            last = Some(message);
            let same = |open: &LaneParents| (open.lane, open.epoch) == (lane, message.epoch);
            if !lanes.last().is_some_and(same) {
                lanes.push(LaneParents {
                    lane,
                    epoch: message.epoch,
                    algorithm: message.algorithm,
                    ranges: Vec::new(),
                });
            }
            let ranges = &mut lanes.last_mut().expect("one was just pushed").ranges;
            let continues = |range: &CompactRange| range.end() == number && number % WINDOW != 0;
            if !ranges.last().is_some_and(continues) {
                ranges.push(CompactRange::new(number));
            }
            let range = ranges.last_mut().expect("one was just pushed");
            range.append(digest, message.digest);
        }
        Ok(Self { lanes })
    }

    /// Adds those of another batch, for a batch of batches or of lanes with several algorithms.
    /// Nothing changes when it is refused.
    pub fn merge(&mut self, other: &Self) -> Result<(), ParentsError> {
        let mut lanes = self.lanes.clone();
        for more in &other.lanes {
            let at = lanes.binary_search_by_key(&more.key(), LaneParents::key);
            match at {
                Ok(at) => lanes[at].merge(more)?,
                Err(at) => lanes.insert(at, more.clone()),
            }
        }
        self.lanes = lanes;
        Ok(())
    }

    /// Each epoch of a lane once, ascending.
    pub fn lanes(&self) -> &[LaneParents] {
        &self.lanes
    }

    /// How many messages.
    pub fn len(&self) -> u64 {
        let ranges = self.lanes.iter().flat_map(|lane| &lane.ranges);
        ranges.map(CompactRange::len).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Writes the bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(Self::VERSION << 4);
        for lane in &self.lanes {
            out.push(lane.algorithm as u8);
            out.extend_from_slice(&lane.lane.value().to_be_bytes());
            out.extend_from_slice(&lane.epoch.0.to_be_bytes());
            write_number(lane.ranges.len() as u64, out);
            let mut end = 0;
            for range in &lane.ranges {
                write_number(range.begin() - end, out);
                write_number(range.len(), out);
                for hash in range.hashes() {
                    out.extend_from_slice(hash.as_bytes());
                }
                end = range.end();
            }
        }
    }

    /// Its bytes as base64url text; an error when a user property cannot carry it.
    pub fn to_text(&self) -> Result<String, ParentsError> {
        let mut bytes = Vec::new();
        self.encode(&mut bytes);
        let text = BASE64URL.encode(bytes);
        if text.len() > Self::MAX_TEXT {
            return Err(ParentsError::LongText(text.len()));
        }
        Ok(text)
    }

    /// Reads what [`Parents::encode`] writes, and nothing else.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParentsError> {
        let mut fields = Fields {
            reader: Reader::new(bytes),
            total: bytes.len(),
        };
        let version = fields.reader.u8();
        let version = version.ok_or_else(|| fields.refuse("version"))?;
        if version != Self::VERSION << 4 {
            return Err(ParentsError::Version(version >> 4));
        }
        let mut lanes: Vec<LaneParents> = Vec::new();
        while !fields.reader.rest().is_empty() {
            let lane = fields.lane()?;
            if lanes.last().is_some_and(|last| last.key() >= lane.key()) {
                return Err(fields.refuse("ascending lane"));
            }
            lanes.push(lane);
        }
        Ok(Self { lanes })
    }

    /// Reads what [`Parents::to_text`] writes, and nothing else.
    pub fn parse_text(text: &str) -> Result<Self, ParentsError> {
        if text.len() > Self::MAX_TEXT {
            return Err(ParentsError::LongText(text.len()));
        }
        let bytes = BASE64URL.decode(text).map_err(|_| ParentsError::Text)?;
        Self::parse(&bytes)
    }
}

impl LaneParents {
    const fn key(&self) -> (LaneId, Epoch) {
        (self.lane, self.epoch)
    }

    fn merge(&mut self, more: &Self) -> Result<(), ParentsError> {
        if let Some(first) = more.ranges.first()
            && self.algorithm != more.algorithm
        {
            return Err(ParentsError::Algorithm {
                lane: self.lane,
                number: first.begin(),
            });
        }
        self.ranges.extend_from_slice(&more.ranges);
        self.ranges.sort_unstable_by_key(CompactRange::begin);
        for pair in self.ranges.windows(2) {
            if pair[0].end() > pair[1].begin() {
                return Err(ParentsError::Twice {
                    lane: self.lane,
                    number: pair[1].begin(),
                });
            }
        }
        Ok(())
    }
}

struct Fields<'a> {
    reader: Reader<'a>,
    total: usize,
}

impl Fields<'_> {
    fn refuse(&self, what: &'static str) -> ParentsError {
        let at = self.total - self.reader.rest().len();
        ParentsError::Field { what, at }
    }

    fn lane(&mut self) -> Result<LaneParents, ParentsError> {
        let algorithm = self.reader.u8().and_then(Algorithm::new);
        let algorithm = algorithm.ok_or_else(|| self.refuse("digest algorithm"))?;
        let lane = self.reader.u64().and_then(LaneId::new);
        let lane = lane.ok_or_else(|| self.refuse("lane"))?;
        let epoch = self.reader.u32().ok_or_else(|| self.refuse("epoch"))?;
        let count = self.reader.number().filter(|count| *count > 0);
        let count = count.ok_or_else(|| self.refuse("number of ranges"))?;
        let mut ranges: Vec<CompactRange> = Vec::new();
        for _ in 0..count {
            let end = ranges.last().map_or(0, CompactRange::end);
            ranges.push(self.range(algorithm, end)?);
        }
        Ok(LaneParents {
            lane,
            epoch: Epoch(epoch),
            algorithm,
            ranges,
        })
    }

    fn range(&mut self, algorithm: Algorithm, after: u64) -> Result<CompactRange, ParentsError> {
        let distance = self.reader.number().filter(|distance| *distance < MAX_SIZE);
        let distance = distance.ok_or_else(|| self.refuse("distance of a range"))?;
        let begin = after + distance;
        let room = WINDOW - begin % WINDOW;
        let length = self.reader.number();
        let length = length.filter(|length| (1..=room).contains(length) && begin < MAX_SIZE);
        let length = length.ok_or_else(|| self.refuse("length of a range within a window"))?;
        let mut hashes = Vec::new();
        for (level, _) in subtrees(begin, begin + length) {
            let width = algorithm.width_over(1 << level);
            let hash = self.reader.bytes(width).and_then(Hash::new);
            hashes.push(hash.ok_or_else(|| self.refuse("hash of a subtree"))?);
        }
        Ok(CompactRange::from_subtrees(begin, begin + length, hashes))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Hasher, Key, Part};

    fn stamp(hasher: &Hasher, lane: u64, number: u64) -> Property {
        let lane = LaneId::new(lane).expect("not 0");
        Property::stamp(hasher, lane, Epoch(1), number, b"t", b"p")
    }

    fn parents(hasher: &Hasher, numbers: impl IntoIterator<Item = (u64, u64)>) -> Parents {
        let numbers = numbers.into_iter();
        let messages: Vec<Property> = numbers
            .map(|(lane, number)| stamp(hasher, lane, number))
            .collect();
        Parents::of(hasher, &messages).expect("all are whole and of one algorithm")
    }

    #[test]
    fn what_is_written_is_read_back_the_same() {
        for algorithm in Algorithm::ALL {
            let hasher = Hasher::new(algorithm, Some(&Key([5; 32]))).expect("there is a key");
            let numbers = [(2, 1_023), (1, 7), (2, 1_024), (1, 8), (1, 8), (1, 100)];
            let parents = parents(&hasher, numbers);
            assert_eq!(parents.len(), 5);
            assert_eq!(parents.lanes().len(), 2);
            let mut bytes = Vec::new();
            parents.encode(&mut bytes);
            assert_eq!(Parents::parse(&bytes).as_ref(), Ok(&parents));
            let text = parents.to_text().expect("it is short");
            assert_eq!(Parents::parse_text(&text), Ok(parents));
            bytes.push(0);
            assert!(Parents::parse(&bytes).is_err());
        }
    }

    #[test]
    fn a_thousand_neighbours_take_20_hashes_at_most() {
        let hasher = Hasher::xxh3();
        for begin in [1, 24, 500, 1_023] {
            let mut bytes = Vec::new();
            parents(&hasher, (begin..begin + 1_000).map(|number| (1, number))).encode(&mut bytes);
            assert!(
                bytes.len() <= 1 + 13 + 1 + 2 * 4 + 20 * 16,
                "{}",
                bytes.len()
            );
        }
    }

    #[test]
    fn damaged_bytes_are_refused_with_the_place() {
        let hasher = Hasher::xxh3();
        let mut bytes = Vec::new();
        parents(&hasher, [(1, 7), (1, 8)]).encode(&mut bytes);
        for cut in 2..bytes.len() {
            let refused = Parents::parse(&bytes[..cut]).expect_err("it is cut off");
            assert!(matches!(refused, ParentsError::Field { .. }), "{refused}");
        }
        let field = |what, at| Err(ParentsError::Field { what, at });
        let mut crossing = bytes.clone();
        crossing[16] = 0xff;
        crossing.insert(17, 0x0f);
        let what = "length of a range within a window";
        assert_eq!(Parents::parse(&crossing), field(what, 18));
        let mut twice = bytes.clone();
        twice.extend_from_slice(&bytes[1..]);
        assert_eq!(Parents::parse(&twice), field("ascending lane", twice.len()));
        bytes[0] = 0x20;
        assert_eq!(Parents::parse(&bytes), Err(ParentsError::Version(2)));
    }

    #[test]
    fn what_is_no_whole_message_or_is_there_twice_makes_no_batch() {
        let hasher = Hasher::xxh3();
        let whole = stamp(&hasher, 1, 3);
        let lane = whole.lane;
        let part = Property {
            part: Part::new(1, 2),
            ..whole
        };
        let number = 3;
        assert_eq!(
            Parents::of(&hasher, [&part]),
            Err(ParentsError::Part { lane, number })
        );
        let other = Property {
            digest: [1; 16].into(),
            ..whole
        };
        let twice = Err(ParentsError::Twice { lane, number });
        assert_eq!(Parents::of(&hasher, [&whole, &other]), twice);
        let foreign = Property {
            algorithm: Algorithm::Blake3,
            ..whole
        };
        assert_eq!(
            Parents::of(&hasher, [&foreign]),
            Err(ParentsError::Algorithm { lane, number })
        );
        let mut batch = parents(&hasher, [(1, 3), (1, 5)]);
        let before = batch.clone();
        assert_eq!(
            batch.merge(&parents(&hasher, [(1, 4), (1, 5)])),
            Err(ParentsError::Twice { lane, number: 5 })
        );
        assert_eq!(batch, before);
    }

    proptest! {
        #[test]
        fn merged_batches_hold_all_their_messages(
            first in prop::collection::btree_set((1_u64..4, 0_u64..3_000), 1..60),
            second in prop::collection::btree_set((1_u64..4, 0_u64..3_000), 1..60),
        ) {
            let hasher = Hasher::xxh3();
            let second: Vec<_> = second.difference(&first).copied().collect();
            let mut merged = parents(&hasher, first.iter().copied());
            let more = parents(&hasher, second.iter().copied());
            // A range may enclose another's only when it has a hole there, so none overlaps.
            prop_assert_eq!(merged.merge(&more), Ok(()));
            prop_assert_eq!(merged.len(), (first.len() + second.len()) as u64);
            let mut bytes = Vec::new();
            merged.encode(&mut bytes);
            prop_assert_eq!(Parents::parse(&bytes), Ok(merged));
        }

        #[test]
        fn any_bytes_are_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let bytes = [vec![0x10], bytes].concat();
            if let Ok(parents) = Parents::parse(&bytes) {
                let mut out = Vec::new();
                parents.encode(&mut out);
                prop_assert_eq!(out, bytes);
            }
        }
    }
}
