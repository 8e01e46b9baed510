//! What travels with each message: which one it is, and the digest that says it is still the same.
//!
//! 24 bytes and the digest, big-endian: 40 bytes under algorithms 1 and 2, 56 under 3, 44 under 8.
//! Carriers without binary properties, such as MQTT 5's user property `audit`, take the same bytes
//! as base64url text without padding.
//!
//! Reading is strict: each message has one spelling, so whoever compares bytes compares meaning.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL};

use crate::{
    Algorithm, Digest, Epoch, Hash, LaneId, limits::MAX_SIZE, message_digest, reader::Reader,
};

/// The property of one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Property {
    /// The hash of its lane.
    pub algorithm: Algorithm,
    /// What is special about this copy.
    pub flags: Flags,
    /// Which of several messages made from one; `None` for a whole one.
    pub part: Option<Part>,
    /// In which epoch of the lane.
    pub epoch: Epoch,
    /// In which lane.
    pub lane: LaneId,
    /// Its number: 0, 1, 2 … without a hole; below 2^63.
    pub sequence: u64,
    /// Its digest, see [`message_digest`]; as wide as the algorithm's leaves.
    pub digest: Hash,
}

/// What is special about this copy of a message. None of it is covered by the digest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Flags {
    /// 1: sent again, on request or after a reconnect.
    pub resent: bool,
    /// 2: made by a processor; its parents follow.
    pub derived: bool,
    /// 4: the last of its epoch.
    pub last: bool,
}

/// Part `index` of `of`, for processors that make several messages of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Part {
    index: u8,
    of: u8,
}

/// Why bytes or text are no property.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PropertyError {
    /// Too short to say what it is.
    #[error("an audit property has 40 bytes or more, this one has {found}")]
    Short {
        /// How many there are.
        found: usize,
    },
    /// As long as none of its algorithm.
    #[error("an audit property of algorithm {} has {expected} bytes, this one has {found}", *.algorithm as u8)]
    Length {
        /// What byte 0 names.
        algorithm: Algorithm,
        /// What that calls for.
        expected: usize,
        /// How many there are.
        found: usize,
    },
    /// Of a later version.
    #[error("byte 0: audit property of version {0}, this reader knows version 1")]
    Version(u8),
    /// Of no known algorithm.
    #[error("byte 0: unknown digest algorithm {0}; 1, 2, 3 and 8 are known")]
    Algorithm(u8),
    /// A flag without a meaning.
    #[error("byte 1: flags {0:#04x}, of which only 0x01, 0x02 and 0x04 have a meaning")]
    Flags(u8),
    /// Part 0 of some, or more than there are.
    #[error("bytes 2 and 3: part {index} of {of}; parts count from 1, and 0 of 0 is a whole")]
    Part {
        /// Byte 2.
        index: u8,
        /// Byte 3.
        of: u8,
    },
    /// Lane 0.
    #[error("bytes 8 to 15: lane 0 holds directories, never messages")]
    Lane,
    /// Too large a number.
    #[error("bytes 16 to 23: sequence {0} is not below 2^63")]
    Sequence(u64),
    /// Not base64url.
    #[error("character {at} of the text is not base64url without padding, or it ends there")]
    Text {
        /// Counted from 0.
        at: usize,
    },
    /// Text longer than any property's.
    #[error(
        "the text of an audit property has {} characters at most, this one has {found}",
        Property::MAX_TEXT
    )]
    LongText {
        /// How many there are.
        found: usize,
    },
}

impl Property {
    /// The name of the header or user property that carries it.
    pub const NAME: &str = "audit";
    /// Bytes of the longest.
    pub const MAX_BYTES: usize = Self::FIXED + Hash::MAX_WIDTH;
    /// Characters of the longest as text.
    pub const MAX_TEXT: usize = (Self::MAX_BYTES * 4).div_ceil(3);

    const VERSION: u8 = 1;
    /// Bytes in front of the digest.
    const FIXED: usize = 24;

    /// The property of a whole message, sent for the first time.
    pub fn stamp(
        digest: &impl Digest,
        lane: LaneId,
        epoch: Epoch,
        sequence: u64,
        topic: &[u8],
        payload: &[u8],
    ) -> Self {
        Self {
            algorithm: digest.algorithm(),
            flags: Flags::default(),
            part: None,
            epoch,
            lane,
            sequence,
            digest: message_digest(digest, lane, epoch, sequence, topic, payload),
        }
    }

    /// Whether topic and payload are those that the digest was made of. `digest` is that of the
    /// lane; one of another algorithm fits nothing.
    pub fn fits(&self, digest: &impl Digest, topic: &[u8], payload: &[u8]) -> bool {
        let (lane, epoch, sequence) = (self.lane, self.epoch, self.sequence);
        self.algorithm == digest.algorithm()
            && self.digest == message_digest(digest, lane, epoch, sequence, topic, payload)
    }

    /// Writes the bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(Self::VERSION << 4 | self.algorithm as u8);
        out.push(self.flags.to_byte());
        out.extend(self.part.map_or([0, 0], |part| [part.index, part.of]));
        out.extend_from_slice(&self.epoch.0.to_be_bytes());
        out.extend_from_slice(&self.lane.value().to_be_bytes());
        out.extend_from_slice(&self.sequence.to_be_bytes());
        out.extend_from_slice(self.digest.as_bytes());
    }

    /// Its bytes as base64url text.
    pub fn to_text(&self) -> String {
        let mut bytes = Vec::with_capacity(Self::MAX_BYTES);
        self.encode(&mut bytes);
        BASE64URL.encode(bytes)
    }

    /// Reads what [`Property::encode`] writes, and nothing else.
    pub fn parse(bytes: &[u8]) -> Result<Self, PropertyError> {
        let found = bytes.len();
        let short = PropertyError::Short { found };
        let mut reader = Reader::new(bytes);
        let first = reader.u8().ok_or(short)?;
        if first >> 4 != Self::VERSION {
            return Err(PropertyError::Version(first >> 4));
        }
        let number = first & 15;
        let algorithm = Algorithm::new(number).ok_or(PropertyError::Algorithm(number))?;
        let expected = Self::FIXED + algorithm.leaf_width();
        if found != expected {
            return Err(PropertyError::Length {
                algorithm,
                expected,
                found,
            });
        }
        let flags = reader.u8().ok_or(short)?;
        let flags = Flags::from_byte(flags).ok_or(PropertyError::Flags(flags))?;
        let [index, of] = reader.array().ok_or(short)?;
        let part = match (index, of) {
            (0, 0) => None,
            _ => Some(Part::new(index, of).ok_or(PropertyError::Part { index, of })?),
        };
        let epoch = Epoch(reader.u32().ok_or(short)?);
        let lane = reader.u64().ok_or(short)?;
        let lane = LaneId::new(lane).ok_or(PropertyError::Lane)?;
        let sequence = reader.u64().ok_or(short)?;
        if sequence >= MAX_SIZE {
            return Err(PropertyError::Sequence(sequence));
        }
        let digest = Hash::new(reader.rest()).ok_or(short)?;
        Ok(Self {
            algorithm,
            flags,
            part,
            epoch,
            lane,
            sequence,
            digest,
        })
    }

    /// Reads what [`Property::to_text`] writes, and nothing else.
    pub fn parse_text(text: &str) -> Result<Self, PropertyError> {
        let found = text.len();
        if found > Self::MAX_TEXT {
            return Err(PropertyError::LongText { found });
        }
        // Room for whole groups of three bytes, which is what the decoder asks for.
        let mut bytes = [0; Self::MAX_BYTES.next_multiple_of(3)];
        let length = BASE64URL.decode_slice(text, &mut bytes).map_err(|error| {
            use base64::{DecodeError, DecodeSliceError};
            let at = match error {
                DecodeSliceError::DecodeError(
                    DecodeError::InvalidByte(at, _)
                    | DecodeError::InvalidLastSymbol { offset: at, .. },
                ) => at,
                _ => found,
            };
            PropertyError::Text { at }
        })?;
        Self::parse(&bytes[..length])
    }
}

impl Flags {
    const RESENT: u8 = 1;
    const DERIVED: u8 = 2;
    const LAST: u8 = 4;

    fn to_byte(self) -> u8 {
        let bit = |set, bit| if set { bit } else { 0 };
        bit(self.resent, Self::RESENT)
            | bit(self.derived, Self::DERIVED)
            | bit(self.last, Self::LAST)
    }

    fn from_byte(byte: u8) -> Option<Self> {
        let flags = Self {
            resent: byte & Self::RESENT != 0,
            derived: byte & Self::DERIVED != 0,
            last: byte & Self::LAST != 0,
        };
        (flags.to_byte() == byte).then_some(flags)
    }
}

impl Part {
    /// `None` unless 1 ≤ `index` ≤ `of`.
    pub const fn new(index: u8, of: u8) -> Option<Self> {
        if index == 0 || index > of {
            return None;
        }
        Some(Self { index, of })
    }

    /// Which, from 1.
    pub const fn index(self) -> u8 {
        self.index
    }

    /// Of how many.
    pub const fn of(self) -> u8 {
        self.of
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Hasher, Key};

    fn property(algorithm: Algorithm) -> Property {
        let hasher = Hasher::new(algorithm, Some(&Key([5; 32]))).expect("there is a key");
        let lane = LaneId::new(0x0102_0304_0506_0708).expect("it is not 0");
        Property::stamp(&hasher, lane, Epoch(9), 77, b"a/b", b"hello")
    }

    fn bytes(property: &Property) -> Vec<u8> {
        let mut bytes = Vec::new();
        property.encode(&mut bytes);
        bytes
    }

    #[test]
    fn the_layout_is_that_of_the_table() {
        let mut property = property(Algorithm::Xxh3);
        property.flags.derived = true;
        property.part = Part::new(2, 3);
        let bytes = bytes(&property);
        let expect = [
            0x11, 2, 2, 3, 0, 0, 0, 9, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 0, 0, 0, 77,
        ];
        assert_eq!(bytes[..24], expect);
        assert_eq!(&bytes[24..], property.digest.as_bytes());
    }

    #[test]
    fn bytes_and_text_are_read_back_the_same() {
        let sizes = [(40, 54), (40, 54), (56, 75), (44, 59)];
        for (algorithm, (length, characters)) in Algorithm::ALL.into_iter().zip(sizes) {
            let mut property = property(algorithm);
            for flags in 0..8 {
                property.flags = Flags::from_byte(flags).expect("all three have a meaning");
                property.part = Part::new(flags, 7);
                let (bytes, text) = (bytes(&property), property.to_text());
                assert_eq!((bytes.len(), text.len()), (length, characters));
                assert_eq!(Property::parse(&bytes), Ok(property));
                assert_eq!(Property::parse_text(&text), Ok(property));
            }
        }
    }

    #[test]
    fn a_property_fits_its_message_only() {
        for algorithm in Algorithm::ALL {
            let hasher = Hasher::new(algorithm, Some(&Key([5; 32]))).expect("there is a key");
            let property = property(algorithm);
            assert!(property.fits(&hasher, b"a/b", b"hello"));
            assert!(!property.fits(&hasher, b"a/b", b"hullo"));
            assert!(!property.fits(&hasher, b"a/c", b"hello"));
            let mut other = property;
            other.sequence += 1;
            assert!(!other.fits(&hasher, b"a/b", b"hello"));
            other = property;
            other.algorithm = Algorithm::Heritage;
            assert!(algorithm == Algorithm::Heritage || !other.fits(&hasher, b"a/b", b"hello"));
        }
    }

    #[test]
    fn what_is_wrong_is_named_with_its_place() {
        let good = bytes(&property(Algorithm::Xxh3));
        let check = |at: usize, value: &[u8], expect: PropertyError| {
            let mut bad = good.clone();
            bad[at..at + value.len()].copy_from_slice(value);
            assert_eq!(Property::parse(&bad), Err(expect));
        };
        check(0, &[0x21], PropertyError::Version(2));
        check(0, &[0x14], PropertyError::Algorithm(4));
        check(1, &[8], PropertyError::Flags(8));
        check(2, &[0, 1], PropertyError::Part { index: 0, of: 1 });
        check(2, &[3, 2], PropertyError::Part { index: 3, of: 2 });
        check(8, &[0; 8], PropertyError::Lane);
        check(16, &[255; 8], PropertyError::Sequence(u64::MAX));
        for length in 0..good.len() {
            assert!(Property::parse(&good[..length]).is_err());
        }
        let long = [good.as_slice(), &[0]].concat();
        let length = PropertyError::Length {
            algorithm: Algorithm::Xxh3,
            expected: 40,
            found: 41,
        };
        assert_eq!(Property::parse(&long), Err(length));
    }

    #[test]
    fn text_that_is_not_base64url_is_refused_with_its_place() {
        let text = property(Algorithm::Xxh3).to_text();
        let mut bad = text.clone();
        bad.replace_range(7..8, "+");
        assert_eq!(
            Property::parse_text(&bad),
            Err(PropertyError::Text { at: 7 })
        );
        bad = format!("{text}==");
        assert!(matches!(
            Property::parse_text(&bad),
            Err(PropertyError::Text { .. })
        ));
        // 40 bytes leave four bits of the last character unused; set, they are a second spelling.
        bad = text.clone();
        bad.replace_range(53.., "_");
        assert!(matches!(
            Property::parse_text(&bad),
            Err(PropertyError::Text { .. })
        ));
        bad = "A".repeat(76);
        assert_eq!(
            Property::parse_text(&bad),
            Err(PropertyError::LongText { found: 76 })
        );
        assert_eq!(
            Property::parse_text(""),
            Err(PropertyError::Short { found: 0 })
        );
        assert!(Property::parse_text(&text[..53]).is_err());
    }
}
