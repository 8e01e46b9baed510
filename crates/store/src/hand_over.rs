//! Messages that ended sessions had from shared groups, on their way to other members.
//!
//! ```text
//! key   "handed" | from 1 | number 8      value   group | message
//! ```
//!
//! Invariants:
//! - A group message in a session and its note are never both on disk, nor both gone before another
//!   member has the message: the note is written in the batch that ends the session, and removed in
//!   the batch that gives the message to that member.
//! - A note outlives the run of the broker, unlike those of [`crate::expected_deliveries`].
//!
//! Deliberately absent: the choice of the member, which is made by the group's shard.

use unbroken_mqtt_proto::QoS;

use crate::batch::{Batch, Space};
use crate::codec::{Reader, RecordError, VERSION, put_string};
use crate::error::StoreError;
use crate::lane;
use crate::session::{Carried, Outbound, PartView, parse_key, prefix};
use crate::store::{Kv, Page};

/// What the keys begin with, in [`Space::Control`].
pub const PREFIX: &[u8] = b"handed";

/// The name of a message that goes from a session that has ended to another member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandOver {
    /// The shard of the session, or [`NO_SHARD`](Self::NO_SHARD).
    pub from: u8,
    /// Grows with each that `from` notes.
    pub number: u64,
}

/// Which message, and whose it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// `$share/…`.
    pub group: String,
    /// The message.
    pub what: Carried,
}

impl HandOver {
    /// The session ended without a broker; no shard has this number.
    pub const NO_SHARD: u8 = u8::MAX;

    /// Where it is noted.
    pub fn key(&self) -> Vec<u8> {
        [PREFIX, &[self.from], &self.number.to_be_bytes()].concat()
    }

    /// Reads a key.
    pub fn parse_key(bytes: &[u8]) -> Result<Self, RecordError> {
        let mut reader = Reader::plain(bytes.strip_prefix(PREFIX).unwrap_or_default());
        let from = reader.byte("from")?;
        let number = u64::from_be_bytes(reader.array("number")?);
        reader.end()?;
        Ok(Self { from, number })
    }
}

impl Left {
    /// The value in bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        put_string(&mut out, self.group.as_bytes());
        out.push(match self.what {
            Carried::Log(_) => IN_LOG,
            Carried::Own(_) => HERE,
        });
        self.what.encode_into(&mut out);
        out
    }

    /// Reads a value.
    pub fn decode(bytes: &[u8]) -> Result<Self, RecordError> {
        let mut reader = Reader::versioned(bytes)?;
        let group = reader.group()?.to_owned();
        let what = match reader.byte("kind of message")? {
            IN_LOG => Carried::read_place(reader)?,
            HERE => Carried::read_message(reader)?,
            value => {
                return Err(RecordError::Meaningless {
                    field: "kind of message",
                    value: value.into(),
                });
            }
        };
        Ok(Self { group, what })
    }
}

/// Ends a session of a store that no broker has. What groups have given to it is noted, as far as
/// another member may have it, and goes to one when a broker begins.
pub fn end_session<S: Kv + ?Sized>(store: &S, client_id: &str) -> Result<Batch, StoreError> {
    let mut number = last_number(store)?;
    let mut batch = Batch::new();
    each(store, Space::Sessions, &prefix(client_id), |key, value| {
        if !matches!(parse_key(key)?.part, PartView::Outbound(_)) {
            return Ok(());
        }
        if let Some(left) = left_by(Outbound::decode(value)?) {
            number += 1;
            let from = HandOver::NO_SHARD;
            batch.put(
                Space::Control,
                HandOver { from, number }.key(),
                left.encode(),
            );
        }
        Ok(())
    })?;
    batch.delete_all(Space::Sessions, prefix(client_id));
    batch.delete_all(Space::Lanes, lane::own_crash_recovery(client_id));
    Ok(batch)
}

/// What of a message that a session was given another member may have when it ends.
pub(crate) fn left_by(outbound: Outbound) -> Option<Left> {
    // One of QoS 2 that has left may have arrived: no other member may get it [MQTT-4.8.2-5].
    let may_go_on = outbound.qos != QoS::ExactlyOnce || outbound.packet_id.is_none();
    let group = outbound.group.filter(|_| may_go_on)?;
    let what = outbound.what;
    Some(Left { group, what })
}

/// The last that was noted without a broker, and is still there.
fn last_number<S: Kv + ?Sized>(store: &S) -> Result<u64, StoreError> {
    let mut last = 0;
    let noted = [PREFIX, &[HandOver::NO_SHARD]].concat();
    each(store, Space::Control, &noted, |key, _| {
        last = HandOver::parse_key(key)?.number.max(last);
        Ok(())
    })?;
    Ok(last)
}

fn each<S: Kv + ?Sized>(
    store: &S,
    space: Space,
    prefix: &[u8],
    mut take: impl FnMut(&[u8], &[u8]) -> Result<(), RecordError>,
) -> Result<(), StoreError> {
    let mut after: Option<Vec<u8>> = None;
    loop {
        let Page { pairs, more } = store.scan(space, prefix, after.as_deref(), SCAN_BYTES)?;
        for pair in &pairs {
            let taken = take(&pair.key, &pair.value.bytes);
            let place = || format!("key {}", pair.key.escape_ascii());
            taken.map_err(|error| StoreError::record(place(), &error))?;
        }
        after = pairs.into_iter().next_back().map(|pair| pair.key);
        if !more || after.is_none() {
            return Ok(());
        }
    }
}

/// The message is in a log, and its place follows.
const IN_LOG: u8 = 0;
/// It follows itself.
const HERE: u8 = 1;
/// Bytes of keys and values that are read at a time.
const SCAN_BYTES: usize = 1024 * 1024;

#[cfg(test)]
mod tests {
    use unbroken_mqtt_proto::PacketId;

    use super::*;
    use crate::position::{LogId, Position, Sequence};
    use crate::record::{MessageBytes, MessageRecord};
    use crate::session::{Part, key};
    use crate::{Memory, Store};

    fn message() -> MessageBytes {
        MessageRecord::plain("t", 5, b"x").encode()
    }

    fn in_log(sequence: u64) -> Carried {
        Carried::Log(Position {
            log: LogId(3),
            sequence: Sequence(sequence),
        })
    }

    #[test]
    fn keys_and_values_read_as_they_were_written() {
        for (from, number) in [(0, 1), (HandOver::NO_SHARD, u64::MAX)] {
            let name = HandOver { from, number };
            assert_eq!(HandOver::parse_key(&name.key()), Ok(name));
            HandOver::parse_key(&name.key()[1..]).unwrap_err();
        }
        for what in [in_log(300), Carried::Own(message())] {
            let group = "$share/g/t".to_owned();
            let left = Left { group, what };
            let bytes = left.encode();
            assert_eq!(Left::decode(&bytes), Ok(left));
            for length in 0..bytes.len() {
                if let Ok(shorter) = Left::decode(&bytes[..length]) {
                    assert_eq!(shorter.encode(), bytes[..length], "cut at {length}");
                }
            }
            for flip in 0..bytes.len() * 8 {
                let mut flipped = bytes.clone();
                flipped[flip / 8] ^= 1 << (flip % 8);
                if let Ok(other) = Left::decode(&flipped) {
                    assert_eq!(other.encode(), flipped, "bit {flip}");
                }
            }
        }
    }

    #[test]
    fn a_group_whose_filter_is_not_shared_is_damage() {
        for group in ["t", "$share", "$shared/g/t", "$share//t"] {
            let group = group.to_owned();
            let outbound = Outbound {
                what: in_log(1),
                packet_id: None,
                qos: QoS::AtLeastOnce,
                received: false,
                retain: false,
                by_group: true,
                group: Some(group.clone()),
                identifiers: Vec::new(),
            };
            Outbound::decode(&outbound.encode()).expect_err(&group);
            let left = left_by(outbound).unwrap();
            Left::decode(&left.encode()).expect_err(&group);
        }
    }

    #[test]
    fn what_groups_gave_to_a_session_is_noted_when_it_ends_unless_it_may_have_arrived() {
        let store = Memory::new();
        let mut batch = Batch::new();
        for (number, client, group, qos, id) in [
            (1, "a", Some("$share/g/t"), QoS::AtLeastOnce, 1),
            (2, "a", Some("$share/g/t"), QoS::ExactlyOnce, 2),
            (3, "a", None, QoS::AtLeastOnce, 3),
            (4, "a", Some("$share/h/t"), QoS::ExactlyOnce, 0),
            (5, "b", Some("$share/g/t"), QoS::AtLeastOnce, 0),
        ] {
            let outbound = Outbound {
                what: in_log(number),
                packet_id: PacketId::new(id),
                qos,
                received: false,
                retain: false,
                by_group: group.is_some(),
                group: group.map(str::to_owned),
                identifiers: Vec::new(),
            };
            let key = key(client, Part::Outbound(number));
            batch.put(Space::Sessions, key, outbound.encode());
        }
        store.commit(&[batch]).unwrap();
        for client in ["a", "b"] {
            let batch = end_session(&store, client).unwrap();
            store.commit(&[batch]).unwrap();
        }
        let left = store.scan(Space::Sessions, b"", None, usize::MAX).unwrap();
        assert!(left.pairs.is_empty());
        let noted = store
            .scan(Space::Control, PREFIX, None, usize::MAX)
            .unwrap();
        let noted = noted.pairs.iter().map(|pair| {
            let name = HandOver::parse_key(&pair.key).unwrap();
            let left = Left::decode(&pair.value.bytes).unwrap();
            (name.number, left.group, left.what)
        });
        let expected = [
            (1, "$share/g/t".to_owned(), in_log(1)),
            (2, "$share/h/t".to_owned(), in_log(4)),
            (3, "$share/g/t".to_owned(), in_log(5)),
        ];
        assert_eq!(noted.collect::<Vec<_>>(), expected);
    }
}
