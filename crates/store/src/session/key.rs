//! The keys of a session's values; see [`super`].

use unbroken_mqtt_proto::{Escaped, PacketId};

use super::meaningless;
use crate::codec::{Reader, RecordError};
use crate::position::LogId;

/// Which value of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part<'a> {
    /// [`Head`](super::Head): the session exists as long as it has one.
    Head,
    /// [`Subscription`](super::Subscription). One whose options change is ended where it was, and
    /// goes on as the next era: what waits from before is for the options of its time.
    Subscription {
        /// As the client wrote it.
        filter: &'a str,
        /// Counts the changes, from 0.
        era: u32,
    },
    /// [`Cursor`](super::Cursor) in this log.
    Cursor(LogId),
    /// [`Outbound`](super::Outbound): a message that the client was given, by its number. Packet
    /// ids are used again before the end of a delivery is on disk; numbers are not.
    Outbound(u64),
    /// [`Inbound`](super::Inbound): a message of QoS 2 from the client that is not released.
    Inbound(PacketId),
    /// [`Will`](super::Will).
    Will,
    /// [`MaybeSent`](super::MaybeSent).
    MaybeSent,
}

/// What a key says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyView<'a> {
    /// What all keys of the client begin with.
    pub client: &'a [u8],
    /// Which value it is.
    pub part: PartView,
}

/// As [`Part`]; the filter is in the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "see Part")]
pub enum PartView {
    Head,
    Subscription { era: u32 },
    Cursor(LogId),
    Outbound(u64),
    Inbound(PacketId),
    Will,
    MaybeSent,
}

/// What all keys of a client begin with, and no key of another.
pub fn prefix(client_id: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(client_id.len() + 8);
    put_name(&mut out, client_id);
    out
}

/// The client whose keys begin so, to be shown: its id, or the hash of a long one.
pub(crate) fn name(prefix: &[u8]) -> String {
    match prefix.split_first() {
        Some((&HASHED, hash)) => {
            let digits = hash.iter().map(|byte| format!("{byte:02x}"));
            format!("with BLAKE3 hash {}", digits.collect::<String>())
        }
        Some((_, name)) => format!("\"{}\"", Escaped::new(&String::from_utf8_lossy(name))),
        None => String::new(),
    }
}

/// The key of one value of a session.
pub fn key(client_id: &str, part: Part<'_>) -> Vec<u8> {
    let mut out = prefix(client_id);
    match part {
        Part::Head => out.push(HEAD),
        Part::Subscription { filter, era } => {
            out.push(SUBSCRIPTION);
            put_name(&mut out, filter);
            out.extend_from_slice(&era.to_be_bytes());
        }
        Part::Cursor(log) => {
            out.push(CURSOR);
            out.extend_from_slice(&log.0.to_be_bytes());
        }
        Part::Outbound(number) => {
            out.push(OUTBOUND);
            out.extend_from_slice(&number.to_be_bytes());
        }
        Part::Inbound(id) => {
            out.push(INBOUND);
            out.extend_from_slice(&id.get().to_be_bytes());
        }
        Part::Will => out.push(WILL),
        Part::MaybeSent => out.push(MAYBE_SENT),
    }
    out
}

/// Reads a key.
pub fn parse_key(bytes: &[u8]) -> Result<KeyView<'_>, RecordError> {
    let mut reader = Reader::plain(bytes);
    skip_name(&mut reader, "client id")?;
    let client_bytes = bytes.len() - reader.len();
    let client = bytes.get(..client_bytes).unwrap_or_default();
    let part = match reader.byte("part")? {
        HEAD => PartView::Head,
        SUBSCRIPTION => {
            skip_name(&mut reader, "filter")?;
            let era = u32::from_be_bytes(reader.array("era")?);
            PartView::Subscription { era }
        }
        CURSOR => PartView::Cursor(LogId(u16::from_be_bytes(reader.array("log")?))),
        OUTBOUND => PartView::Outbound(u64::from_be_bytes(reader.array("number")?)),
        INBOUND => PartView::Inbound(packet_id(&mut reader)?),
        WILL => PartView::Will,
        MAYBE_SENT => PartView::MaybeSent,
        value => return Err(meaningless("part", value)),
    };
    reader.end()?;
    Ok(KeyView { client, part })
}

pub(crate) fn put_name(out: &mut Vec<u8>, name: &str) {
    if let Ok(length @ 1..) = u8::try_from(name.len()) {
        out.push(length);
        out.extend_from_slice(name.as_bytes());
    } else {
        out.push(HASHED);
        out.extend_from_slice(blake3::hash(name.as_bytes()).as_bytes());
    }
}

fn skip_name(reader: &mut Reader<'_>, field: &'static str) -> Result<(), RecordError> {
    let count = match reader.byte(field)? {
        HASHED => blake3::OUT_LEN,
        length => length.into(),
    };
    reader.bytes(count, field).map(|_| ())
}

fn packet_id(reader: &mut Reader<'_>) -> Result<PacketId, RecordError> {
    let id = u16::from_be_bytes(reader.array("packet id")?);
    PacketId::new(id).ok_or(meaningless("packet id", 0))
}

/// The length that says that a hash follows.
const HASHED: u8 = 0;
const HEAD: u8 = 0;
const SUBSCRIPTION: u8 = 1;
const CURSOR: u8 = 2;
const OUTBOUND: u8 = 3;
const INBOUND: u8 = 4;
const WILL: u8 = 5;
const MAYBE_SENT: u8 = 6;
