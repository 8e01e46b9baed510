//! A message as it lies in a log, among the retained messages and in wills.
//!
//! ```text
//! version 1 | flags | topic | stamp | lifetime? | publisher? | mark? | properties | payload
//!             bits 0-1 QoS  ms since  ms after    length and   lane 8,   length and   the rest
//!             2 retain      1970      the stamp   text         epoch,    bytes
//!             3 lifetime, 4 publisher,                         number,
//!             5 mark, 6-7 zero                                 leaf 16
//! ```
//!
//! Invariant: what [`MessageRecord::decode`] accepts, [`MessageRecord::encode`] writes again byte
//! for byte.
//!
//! Deliberately absent: a checksum. The engines under the log have theirs, over more than one
//! record. Nor are Topic Alias, Message Expiry Interval and Subscription Identifier kept among the
//! properties: the first ends at the broker, the second is the lifetime, the third is the
//! receiver's.

use unbroken_mqtt_proto::{
    DecodeError, PacketType, Properties, PropertyId, PropertySection, QoS, TopicName,
};

use crate::codec::{Reader, RecordError, VERSION, put_number, put_string};

/// What is kept of a message. Times are milliseconds since 1970 of the broker's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageRecord<'a> {
    /// Where it was published to.
    pub topic: &'a str,
    /// As published; 0 only if it is retained.
    pub qos: QoS,
    /// As the publisher set it.
    pub retain: bool,
    /// When the broker took it.
    pub stamp_ms: u64,
    /// When its Message Expiry Interval will have passed; not before the stamp.
    pub expires_ms: Option<u64>,
    /// The client it came from; none for the broker's own.
    pub publisher: Option<&'a str>,
    /// What it bears inside the broker for the proof.
    pub mark: Option<LaneMark>,
    /// Without those that are not kept.
    pub properties: Properties<'a>,
    /// The application's bytes.
    pub payload: &'a [u8],
}

/// A message's place in the lane of the client it came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneMark {
    /// The lane; not 0.
    pub lane: u64,
    /// The epoch of the lane.
    pub epoch: u32,
    /// The number in the epoch.
    pub number: u64,
    /// The beginning of the hash of the message.
    pub leaf: [u8; 16],
}

/// A [`MessageRecord`] in bytes. One that exists has been checked. It may have room to spare: it
/// lives until it is committed, and giving the room back costs as much as getting it.
#[derive(Clone, PartialEq, Eq)]
pub struct MessageBytes(Vec<u8>);

impl<'a> MessageRecord<'a> {
    /// One of QoS 1 of which nothing more is to be said.
    pub const fn plain(topic: &'a str, stamp_ms: u64, payload: &'a [u8]) -> Self {
        Self {
            topic,
            qos: QoS::AtLeastOnce,
            retain: false,
            stamp_ms,
            expires_ms: None,
            publisher: None,
            mark: None,
            properties: Properties::EMPTY,
            payload,
        }
    }

    /// The record in bytes. An `expires_ms` before the stamp is taken as the stamp.
    pub fn encode(&self) -> MessageBytes {
        let fixed = 64 + self.publisher.map_or(0, str::len);
        let variable = self.topic.len() + self.properties.len() + self.payload.len();
        let mut out = Vec::with_capacity(fixed + variable);
        out.push(VERSION);
        out.push(
            u8::from(self.qos)
                | (u8::from(self.retain) * RETAIN)
                | (u8::from(self.expires_ms.is_some()) * LIFETIME)
                | (u8::from(self.publisher.is_some()) * PUBLISHER)
                | (u8::from(self.mark.is_some()) * MARK),
        );
        put_string(&mut out, self.topic.as_bytes());
        put_number(&mut out, self.stamp_ms);
        if let Some(expires) = self.expires_ms {
            put_number(&mut out, expires.saturating_sub(self.stamp_ms));
        }
        if let Some(publisher) = self.publisher {
            put_string(&mut out, publisher.as_bytes());
        }
        if let Some(mark) = &self.mark {
            out.extend_from_slice(&mark.lane.to_be_bytes());
            put_number(&mut out, mark.epoch.into());
            put_number(&mut out, mark.number);
            out.extend_from_slice(&mark.leaf);
        }
        put_string(&mut out, self.properties.as_bytes());
        out.extend_from_slice(self.payload);
        MessageBytes(out)
    }

    /// Reads a record, and refuses whatever would not have been written.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, RecordError> {
        let mut reader = Reader::versioned(bytes)?;
        let flags = reader.byte("flags")?;
        if flags & !FLAGS != 0 {
            return Err(RecordError::Meaningless {
                field: "flags",
                value: flags.into(),
            });
        }
        let qos = QoS::try_from(flags & 3)?;
        let topic = TopicName::parse(reader.text("topic")?)?.as_str();
        let stamp_ms = reader.number("stamp")?;
        let expires_ms = if flags & LIFETIME == 0 {
            None
        } else {
            let lifetime = reader.number("lifetime")?;
            let expires = stamp_ms.checked_add(lifetime);
            Some(expires.ok_or(RecordError::Number("lifetime"))?)
        };
        let publisher = if flags & PUBLISHER == 0 {
            None
        } else {
            Some(reader.text("publisher")?)
        };
        let mark = if flags & MARK == 0 {
            None
        } else {
            Some(LaneMark::decode(&mut reader)?)
        };
        let properties = kept_properties(reader.string("properties")?)?;
        Ok(Self {
            topic,
            qos,
            retain: flags & RETAIN != 0,
            stamp_ms,
            expires_ms,
            publisher,
            mark,
            properties,
            payload: reader.rest(),
        })
    }
}

impl LaneMark {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, RecordError> {
        let lane = u64::from_be_bytes(reader.array("lane")?);
        if lane == 0 {
            return Err(RecordError::Meaningless {
                field: "lane",
                value: 0,
            });
        }
        Ok(Self {
            lane,
            epoch: reader.small("epoch")?,
            number: reader.number("number")?,
            leaf: reader.array("leaf")?,
        })
    }
}

impl MessageBytes {
    /// Checks bytes that were kept.
    pub fn parse(bytes: Vec<u8>) -> Result<Self, RecordError> {
        MessageRecord::decode(&bytes)?;
        Ok(Self(bytes))
    }

    /// The record.
    pub fn record(&self) -> MessageRecord<'_> {
        MessageRecord::decode(&self.0).expect("checked when it was made")
    }

    /// The topic alone, which costs less than the whole record.
    pub fn topic(&self) -> &str {
        let mut reader = Reader::plain(self.0.get(2..).unwrap_or_default());
        reader.text("topic").expect("checked when it was made")
    }

    /// The bytes of the topic, which cost less still.
    pub(crate) fn topic_bytes(&self) -> &[u8] {
        let mut reader = Reader::plain(self.0.get(2..).unwrap_or_default());
        reader.string("topic").expect("checked when it was made")
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The bytes, given up.
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

impl std::fmt::Debug for MessageBytes {
    /// Without the payload, which is the client's.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let record = self.record();
        f.debug_struct("MessageBytes")
            .field("topic", &record.topic)
            .field("qos", &record.qos)
            .field("bytes", &self.0.len())
            .finish_non_exhaustive()
    }
}

fn kept_properties(bytes: &[u8]) -> Result<Properties<'_>, RecordError> {
    const NOT_KEPT: [PropertyId; 3] = [
        PropertyId::TopicAlias,
        PropertyId::MessageExpiryInterval,
        PropertyId::SubscriptionIdentifier,
    ];
    let section = PropertySection::Packet(PacketType::Publish);
    let properties = Properties::parse(bytes, section)?;
    match properties
        .iter()
        .map(|property| property.id())
        .find(|id| NOT_KEPT.contains(id))
    {
        Some(property) => Err(DecodeError::MisplacedProperty { section, property }.into()),
        None => Ok(properties),
    }
}

const RETAIN: u8 = 1 << 2;
const LIFETIME: u8 = 1 << 3;
const PUBLISHER: u8 = 1 << 4;
const MARK: u8 = 1 << 5;
const FLAGS: u8 = 3 | RETAIN | LIFETIME | PUBLISHER | MARK;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use unbroken_mqtt_proto::{Property, PropertyBuf};

    use super::*;

    fn properties() -> PropertyBuf {
        let mut properties = PropertyBuf::new();
        properties
            .push(Property::ContentType("text/plain"))
            .unwrap();
        properties.push(Property::UserProperty("k", "v")).unwrap();
        properties
    }

    fn full(properties: &PropertyBuf) -> MessageRecord<'_> {
        MessageRecord {
            topic: "plant/7/temperature",
            qos: QoS::ExactlyOnce,
            retain: true,
            stamp_ms: 1_790_000_000_000,
            expires_ms: Some(1_790_000_060_000),
            publisher: Some("sensor-7"),
            mark: Some(LaneMark {
                lane: 7,
                epoch: 3,
                number: 1_000,
                leaf: [9; 16],
            }),
            properties: properties.as_properties(),
            payload: b"21.5",
        }
    }

    fn least() -> MessageRecord<'static> {
        MessageRecord {
            topic: "t",
            qos: QoS::AtLeastOnce,
            retain: false,
            stamp_ms: 0,
            expires_ms: None,
            publisher: None,
            mark: None,
            properties: Properties::EMPTY,
            payload: b"",
        }
    }

    #[test]
    fn a_record_reads_as_it_was_written() {
        let properties = properties();
        for record in [full(&properties), least()] {
            let bytes = record.encode();
            assert_eq!(bytes.record(), record);
            assert_eq!(bytes.topic(), record.topic);
            assert_eq!(MessageBytes::parse(bytes.as_bytes().to_vec()), Ok(bytes));
        }
    }

    #[test]
    fn the_bytes_of_version_1_do_not_change() {
        let properties = properties();
        let bytes = full(&properties).encode();
        let mut expected = vec![1, 0b11_1110, 19];
        expected.extend_from_slice(b"plant/7/temperature");
        expected.extend_from_slice(&[0x80, 0xd8, 0xc1, 0xa2, 0x8c, 0x34]);
        expected.extend_from_slice(&[0xe0, 0xd4, 0x03]);
        expected.extend_from_slice(b"\x08sensor-7");
        expected.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 7, 3, 0xe8, 0x07]);
        expected.extend_from_slice(&[9; 16]);
        expected.extend_from_slice(b"\x14\x03\0\x0atext/plain&\0\x01k\0\x01v");
        expected.extend_from_slice(b"21.5");
        assert_eq!(bytes.as_bytes(), expected);
    }

    #[test]
    fn what_would_not_have_been_written_is_refused() {
        let good = least().encode().into_bytes();
        let with = |at: usize, byte: u8| {
            let mut bytes = good.clone();
            bytes[at] = byte;
            MessageBytes::parse(bytes).map(|_| ())
        };
        assert_eq!(with(0, 2), Err(RecordError::Version(2)));
        assert!(matches!(with(1, 3), Err(RecordError::QoS(_))));
        assert!(matches!(
            with(1, 0x41),
            Err(RecordError::Meaningless { field: "flags", .. })
        ));
        assert!(matches!(with(3, b'#'), Err(RecordError::Topic(_))));
        assert_eq!(with(3, 0xff), Err(RecordError::Text("topic")));
        assert_eq!(with(5, 1), Err(RecordError::Short("properties")));
        let mut alias = least().encode().into_bytes();
        alias.truncate(5);
        alias.extend_from_slice(&[3, 0x23, 0, 1]);
        assert!(matches!(
            MessageBytes::parse(alias),
            Err(RecordError::Properties(_))
        ));
    }

    #[test]
    fn a_record_that_is_cut_is_refused_or_has_less_payload() {
        let properties = properties();
        let whole = full(&properties).encode();
        let before_payload = whole.as_bytes().len() - 4;
        for length in 0..whole.as_bytes().len() {
            let read = MessageRecord::decode(&whole.as_bytes()[..length]);
            assert_eq!(read.is_ok(), length >= before_payload, "{length}");
        }
    }

    proptest! {
        #[test]
        fn whatever_is_accepted_is_written_again_the_same(
            flags in 0u8..64, rest in proptest::collection::vec(0u8..40, 0..80),
        ) {
            let mut bytes = vec![VERSION, flags, 1, b'a'];
            bytes.extend_from_slice(&rest);
            if let Ok(record) = MessageRecord::decode(&bytes) {
                let again = record.encode().into_bytes();
                prop_assert_eq!(again, bytes);
            }
        }
    }
}
