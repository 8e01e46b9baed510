//! The values of a session: many small ones under the client's prefix, so that one PUBREC changes
//! one key.
//!
//! ```text
//! key     client | part                      value
//!                  0                         Head
//!                  1 filter, era             Subscription
//!                  2 log                     Cursor
//!                  3 number                  Outbound
//!                  4 packet id               Inbound
//!                  5                         Will
//!                  6                         MaybeSent
//! ```
//!
//! A client id or filter of up to 255 bytes is in the key as it is, its length before it; a longer
//! one as 0 and its BLAKE3 hash. So keys are short, and the values say which id and filter it is.
//!
//! Invariant: what a `decode` accepts, `encode` writes again byte for byte.

mod key;
mod will;

use std::num::NonZeroU32;

use unbroken_mqtt_proto::{PacketId, QoS, RetainHandling, SubscriptionFilter, SubscriptionOptions};

use crate::codec::{Reader, RecordError, VERSION, put_number, put_string};
use crate::errand::Errand;
use crate::position::{LogId, Position, Sequence};
use crate::record::MessageBytes;

pub use self::key::{KeyView, Part, PartView, key, parse_key, prefix};
pub(crate) use self::key::{name, put_name};
pub use self::will::{Will, WillAuthor};

/// The session itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// Whose.
    pub client_id: String,
    /// Seconds it outlives its connection, never 0; `u32::MAX` is without end.
    pub expiry_s: NonZeroU32,
    /// When its last connection ended, in milliseconds since 1970; none while it is connected, or
    /// if the broker ended first: then it was connected until then.
    pub offline_since_ms: Option<u64>,
    /// The user whose it is; none if its clients had no user name, or if a version of the broker
    /// wrote it that did not know.
    pub user: Option<String>,
    /// What its filters begin with, since its client has a mount point; none if it has none, or if
    /// a version of the broker wrote it that did not know. Earlier versions cannot read one.
    pub mount: Option<String>,
}

/// A subscription, and in which part of each log it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscription {
    /// As the client wrote it, with its mount, `$share/…` included.
    pub filter: String,
    /// As granted.
    pub options: SubscriptionOptions,
    /// The Subscription Identifier, if it has one.
    pub identifier: Option<NonZeroU32>,
    /// It has ended: in logs that are not listed it holds for nothing. Otherwise it does for all.
    pub ended: bool,
    /// What is retained is still to be sent for it, or some of it.
    pub retained_due: bool,
    /// At most one for each log, in ascending order of logs.
    pub ranges: Vec<LogRange>,
}

/// The messages of one log for which a subscription holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogRange {
    /// The log.
    pub log: LogId,
    /// The first message.
    pub from: Sequence,
    /// The message after the last; none while it goes on.
    pub until: Option<Sequence>,
}

/// How far a session is in a log: everything up to here is done with, is among what it was given,
/// or is not for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    /// The last such message.
    pub through: Sequence,
}

/// A message that a client was given and has not done with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outbound {
    /// Which message.
    pub what: Carried,
    /// The id it was sent with; none while it waits, given to the client by a group, and none if
    /// it is received and over: then only its place counts.
    pub packet_id: Option<PacketId>,
    /// As it is sent: 1 or 2.
    pub qos: QoS,
    /// PUBREC came: only PUBREL may be sent.
    pub received: bool,
    /// The flag it is sent with.
    pub retain: bool,
    /// No subscription finds it in its log, as when a group has chosen the client for it.
    pub by_group: bool,
    /// That group, `$share/…`: another member gets the message if the session ends first.
    pub group: Option<String>,
    /// The subscription identifiers it is sent with.
    pub identifiers: Vec<NonZeroU32>,
}

/// Where a message under way is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Carried {
    /// In a log.
    Log(Position),
    /// Here: it is in no log, as a retained message that a new subscription was sent.
    Own(MessageBytes),
}

/// A message of QoS 2 that came from a client and is not released.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inbound {
    /// It is to be retained by another shard, which may have done so.
    pub retained: Option<ToRetain>,
}

/// A message that is retained at a restart if its errand is not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToRetain {
    /// Whose it is to do: of one topic, the last one stays.
    pub errand: Errand,
    /// The message; with an empty payload, nothing is to be retained on its topic any more.
    pub message: MessageBytes,
}

/// What a client may have been sent before the broker last began, without the disk knowing: it is
/// sent with DUP, however often the broker begins before the client comes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MaybeSent {
    /// Of what it was given by groups and waits, all up to this number.
    pub entries: u64,
    /// Of what it finds in logs, all up to here; each log at most once, in ascending order.
    pub through: Vec<Position>,
}

impl Head {
    /// The value in bytes.
    pub fn encode(&self) -> Vec<u8> {
        let version = match (&self.mount, &self.user) {
            (Some(_), _) => VERSION_WITH_MOUNT,
            (None, Some(_)) => VERSION_WITH_USER,
            (None, None) => VERSION,
        };
        let mut out = vec![version];
        put_string(&mut out, self.client_id.as_bytes());
        put_number(&mut out, self.expiry_s.get().into());
        if let Some(mount) = &self.mount {
            put_string(&mut out, mount.as_bytes());
            out.push(u8::from(self.user.is_some()));
        }
        if let Some(user) = &self.user {
            put_string(&mut out, user.as_bytes());
        }
        if let Some(since) = self.offline_since_ms {
            put_number(&mut out, since);
        }
        out
    }

    /// Reads a value.
    pub fn decode(bytes: &[u8]) -> Result<Self, RecordError> {
        let version = match bytes.first() {
            Some(&version @ (VERSION_WITH_USER | VERSION_WITH_MOUNT)) => version,
            _ => VERSION,
        };
        let mut reader = Reader::of_version(version, bytes)?;
        let client_id = reader.text("client id")?.to_owned();
        let expiry_s = reader.small("expiry")?;
        let expiry_s = NonZeroU32::new(expiry_s).ok_or(meaningless("expiry", 0))?;
        let (mut mount, mut has_user) = (None, version == VERSION_WITH_USER);
        if version == VERSION_WITH_MOUNT {
            mount = Some(reader.text("mount")?.to_owned());
            has_user = match reader.byte("whether it has a user")? {
                0 => false,
                1 => true,
                other => return Err(meaningless("whether it has a user", other)),
            };
        }
        let user = if has_user {
            Some(reader.text("user")?.to_owned())
        } else {
            None
        };
        let offline_since_ms = if reader.len() == 0 {
            None
        } else {
            Some(reader.number("end of connection")?)
        };
        reader.end()?;
        Ok(Self {
            client_id,
            expiry_s,
            offline_since_ms,
            user,
            mount,
        })
    }
}

impl Subscription {
    /// The value in bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        put_string(&mut out, self.filter.as_bytes());
        let options = &self.options;
        out.push(
            u8::from(options.qos)
                | (u8::from(options.no_local) << 2)
                | (u8::from(options.retain_as_published) << 3)
                | ((options.retain_handling as u8) << 4)
                | (u8::from(self.ended) * ENDED)
                | (u8::from(self.retained_due) * RETAINED_DUE),
        );
        put_number(&mut out, self.identifier.map_or(0, NonZeroU32::get).into());
        for holding in &self.ranges {
            put_number(&mut out, holding.log.0.into());
            put_number(&mut out, holding.from.0);
            put_number(&mut out, holding.until.map_or(0, |until| until.0));
        }
        out
    }

    /// Reads a value.
    pub fn decode(bytes: &[u8]) -> Result<Self, RecordError> {
        let mut reader = Reader::versioned(bytes)?;
        let filter = reader.text("filter")?.to_owned();
        SubscriptionFilter::parse(&filter)?;
        let byte = reader.byte("options")?;
        let ended = byte & ENDED != 0;
        let retained_due = byte & RETAINED_DUE != 0;
        let options = options(byte & !(ENDED | RETAINED_DUE))?;
        let identifier = NonZeroU32::new(reader.small("identifier")?);
        let mut ranges = Vec::new();
        let mut next_log = 0u64;
        while reader.len() > 0 {
            let log: u16 = reader.small("log")?;
            if u64::from(log) < next_log {
                return Err(RecordError::Number("log"));
            }
            next_log = u64::from(log) + 1;
            let from = Sequence(reader.number("beginning")?);
            let until = match reader.number("end")? {
                0 => None,
                until if until >= from.0 => Some(Sequence(until)),
                _ => return Err(RecordError::Number("end")),
            };
            ranges.push(LogRange {
                log: LogId(log),
                from,
                until,
            });
        }
        Ok(Self {
            filter,
            options,
            identifier,
            ended,
            retained_due,
            ranges,
        })
    }
}

impl Cursor {
    /// The value in bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        put_number(&mut out, self.through.0);
        out
    }

    /// Reads a value.
    pub fn decode(bytes: &[u8]) -> Result<Self, RecordError> {
        let mut reader = Reader::versioned(bytes)?;
        let through = Sequence(reader.number("number")?);
        reader.end()?;
        Ok(Self { through })
    }
}

impl Outbound {
    /// The value in bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        let own = matches!(self.what, Carried::Own(_));
        out.push(
            u8::from(self.qos)
                | (u8::from(self.received) * RECEIVED)
                | (u8::from(own) * OWN)
                | (u8::from(self.retain) * FLAG)
                | (u8::from(self.by_group) * BY_GROUP)
                | (u8::from(self.group.is_some()) * GROUP),
        );
        put_number(&mut out, self.packet_id.map_or(0, PacketId::get).into());
        put_number(&mut out, self.identifiers.len() as u64);
        for identifier in &self.identifiers {
            put_number(&mut out, identifier.get().into());
        }
        if let Some(group) = &self.group {
            put_string(&mut out, group.as_bytes());
        }
        self.what.encode_into(&mut out);
        out
    }

    /// Reads a value.
    pub fn decode(bytes: &[u8]) -> Result<Self, RecordError> {
        let mut reader = Reader::versioned(bytes)?;
        let state = reader.byte("state")?;
        let received = state & RECEIVED != 0;
        // QoS 0 is never under way, and only QoS 2 has a PUBREC.
        let qos = QoS::try_from(state & 3)?;
        let wrong = qos == QoS::AtMostOnce || received && qos != QoS::ExactlyOnce;
        if wrong || state & !(3 | RECEIVED | OWN | FLAG | BY_GROUP | GROUP) != 0 {
            return Err(meaningless("state", state));
        }
        let packet_id = PacketId::new(reader.small("packet id")?);
        if packet_id.is_none() && !received && state & BY_GROUP == 0 {
            return Err(meaningless("packet id", 0));
        }
        let count: usize = reader.small("count of identifiers")?;
        let mut identifiers = Vec::with_capacity(count.min(reader.len()));
        for _ in 0..count {
            let identifier = NonZeroU32::new(reader.small("identifier")?);
            identifiers.push(identifier.ok_or(meaningless("identifier", 0))?);
        }
        let group = if state & GROUP == 0 {
            None
        } else {
            Some(reader.group()?.to_owned())
        };
        let what = if state & OWN == 0 {
            Carried::read_place(reader)?
        } else {
            Carried::read_message(reader)?
        };
        Ok(Self {
            what,
            packet_id,
            qos,
            received,
            retain: state & FLAG != 0,
            by_group: state & BY_GROUP != 0,
            group,
            identifiers,
        })
    }
}

impl Carried {
    pub(crate) fn encode_into(&self, out: &mut Vec<u8>) {
        match self {
            Self::Log(position) => {
                put_number(out, position.log.0.into());
                put_number(out, position.sequence.0);
            }
            Self::Own(message) => out.extend_from_slice(message.as_bytes()),
        }
    }

    /// Reads the rest, which is where the message is.
    pub(crate) fn read_place(mut reader: Reader<'_>) -> Result<Self, RecordError> {
        let log = LogId(reader.small("log")?);
        let sequence = Sequence(reader.number("sequence")?);
        reader.end()?;
        Ok(Self::Log(Position { log, sequence }))
    }

    /// Reads the rest, which is the message.
    pub(crate) fn read_message(reader: Reader<'_>) -> Result<Self, RecordError> {
        Ok(Self::Own(MessageBytes::parse(reader.rest().to_vec())?))
    }
}

impl Inbound {
    /// The value in bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        if let Some(ToRetain { errand, message }) = &self.retained {
            errand.encode_into(&mut out);
            out.extend_from_slice(message.as_bytes());
        }
        out
    }

    /// Reads a value.
    pub fn decode(bytes: &[u8]) -> Result<Self, RecordError> {
        let mut reader = Reader::versioned(bytes)?;
        if reader.len() == 0 {
            return Ok(Self::default());
        }
        let errand = Errand::read(&mut reader)?;
        let message = MessageBytes::parse(reader.rest().to_vec())?;
        let retained = Some(ToRetain { errand, message });
        Ok(Self { retained })
    }
}

impl MaybeSent {
    /// The value in bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        put_number(&mut out, self.entries);
        for position in &self.through {
            put_number(&mut out, position.log.0.into());
            put_number(&mut out, position.sequence.0);
        }
        out
    }

    /// Reads a value.
    pub fn decode(bytes: &[u8]) -> Result<Self, RecordError> {
        let mut reader = Reader::versioned(bytes)?;
        let entries = reader.number("entries")?;
        let mut through: Vec<Position> = Vec::new();
        while reader.len() > 0 {
            let log = LogId(reader.small("log")?);
            if through.last().is_some_and(|last| log <= last.log) {
                return Err(RecordError::Number("log"));
            }
            let sequence = Sequence(reader.number("sequence")?);
            through.push(Position { log, sequence });
        }
        Ok(Self { entries, through })
    }
}

fn options(byte: u8) -> Result<SubscriptionOptions, RecordError> {
    if byte & 0xc0 != 0 {
        return Err(meaningless("options", byte));
    }
    Ok(SubscriptionOptions {
        qos: QoS::try_from(byte & 3)?,
        no_local: byte & (1 << 2) != 0,
        retain_as_published: byte & (1 << 3) != 0,
        retain_handling: match byte >> 4 {
            0 => RetainHandling::SendAlways,
            1 => RetainHandling::SendIfNew,
            2 => RetainHandling::DoNotSend,
            _ => return Err(meaningless("options", byte)),
        },
    })
}

fn meaningless(field: &'static str, value: u8) -> RecordError {
    RecordError::Meaningless {
        field,
        value: value.into(),
    }
}

/// The version of a head that names a user, and no mount.
const VERSION_WITH_USER: u8 = VERSION + 1;
/// ... that names a mount.
const VERSION_WITH_MOUNT: u8 = VERSION + 2;
/// The bit of the options that says that the subscription has ended.
const ENDED: u8 = 1 << 6;
/// ... that what is retained is still to be sent for it.
const RETAINED_DUE: u8 = 1 << 7;
/// The bit of a state that says that PUBREC came.
const RECEIVED: u8 = 1 << 2;
/// ... that the message follows.
const OWN: u8 = 1 << 3;
/// ... that it is sent with the retain flag.
const FLAG: u8 = 1 << 4;
/// ... that no subscription finds it.
const BY_GROUP: u8 = 1 << 5;
/// ... that the name of a group follows.
const GROUP: u8 = 1 << 6;

#[cfg(test)]
mod tests;
