//! Requests and answers as lines of JSON.
//!
//! Bytes are in base64. A request that this version does not know is answered with an error, and
//! the connection goes on.

use std::io::{self, Write};
use std::net::IpAddr;
use std::ops::{Deref, Range};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use unbroken_broker_core::Forget;
use unbroken_mqtt_proto::TopicFilter;
use unbroken_store::{Bounds, Chunk, LogId, Page, Selection, Sequence, Space, StoreError, Value};

use crate::bounds::CONTROL_REQUEST_BYTES;
use crate::stored_access::Change;
use crate::trace::TraceLine;

/// A request.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Request {
    /// Which broker this is.
    Who,
    /// To read the configuration again.
    Reload,
    /// Bytes on disk.
    Size,
    Logs,
    Generations {
        log: u16,
    },
    Bounds {
        log: u16,
    },
    Read(Read),
    Get {
        space: SpaceName,
        key: Bytes,
    },
    Scan {
        space: SpaceName,
        prefix: Bytes,
        after: Option<Bytes>,
        bytes_max: usize,
    },
    Forget {
        what: Forgotten,
    },
    Change {
        change: Change,
    },
    AutomaticBans,
    /// Steps follow, a line each, until the trace ends or the connection does.
    Trace {
        client: Option<String>,
        user: Option<String>,
        topic: Option<String>,
        payload_bytes: u16,
        ms: u64,
    },
}

/// What to remove.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Forgotten {
    Session(String),
    Retained(String),
}

/// Part of a log: all messages, or those whose topic matches one of the filters.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Read {
    pub(super) log: u16,
    pub(super) from: u64,
    pub(super) until: u64,
    pub(super) filters: Option<Vec<String>>,
    pub(super) bytes_max: usize,
}

/// An answer, each to one kind of request, or an error.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Answer {
    Who {
        process: u32,
        version: String,
        /// Why its store has failed, if it has.
        #[serde(default)]
        failure: Option<String>,
        /// Whether it stores nothing.
        #[serde(default)]
        in_memory: bool,
    },
    Size(u64),
    Logs(Vec<u16>),
    /// The first number of each.
    Generations(Vec<u64>),
    Bounds {
        first: u64,
        next: u64,
        /// Ranges of numbers within it that are missing.
        #[serde(default)]
        left_out: Vec<(u64, u64)>,
    },
    Chunk {
        messages: Vec<Message>,
        next: u64,
    },
    Value(Option<Valued>),
    Page {
        pairs: Vec<Keyed>,
        more: bool,
    },
    /// Addresses, and the milliseconds that are left of their bans.
    AutomaticBans(Vec<(IpAddr, u64)>),
    /// It is removed or changed, on disk too.
    Done,
    /// The configuration was read again, with these changes.
    Reloaded(Vec<String>),
    /// The data on disk is damaged.
    Damaged {
        place: String,
        what: String,
    },
    /// A step of a trace.
    Traced(Box<TraceLine>),
    /// The request failed.
    Failed(String),
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Message {
    pub(super) number: u64,
    pub(super) message: Bytes,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Valued {
    pub(super) revision: u64,
    pub(super) value: Bytes,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Keyed {
    pub(super) key: Bytes,
    pub(super) revision: u64,
    pub(super) value: Bytes,
}

/// Bytes, in base64.
#[derive(Debug)]
pub(super) struct Bytes(pub(super) Vec<u8>);

/// A key space, by its name.
#[derive(Clone, Copy, Debug)]
pub(super) struct SpaceName(Space);

impl Request {
    pub(super) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        write_line(self, out)
    }

    /// Refuses keys that are longer than those of answers.
    pub(super) fn fits(&self) -> bool {
        let line = serde_json::to_vec(self);
        line.is_ok_and(|line| (line.len() as u64) < CONTROL_REQUEST_BYTES)
    }
}

impl Read {
    pub(super) fn new(
        log: LogId,
        range: Range<Sequence>,
        wanted: Option<&Selection>,
        bytes_max: usize,
    ) -> Self {
        let filters = wanted.map(|wanted| {
            let filters = wanted.filters().map(|filter| filter.as_str().to_owned());
            filters.chain(wanted.topics().map(str::to_owned)).collect()
        });
        Self {
            log: log.0,
            from: range.start.0,
            until: range.end.0,
            filters,
            bytes_max,
        }
    }

    pub(super) fn range(&self) -> Range<Sequence> {
        Sequence(self.from)..Sequence(self.until)
    }

    /// `None`: all messages. An error names the invalid filter.
    pub(super) fn wanted(&self) -> Result<Option<Selection>, String> {
        let Some(filters) = &self.filters else {
            return Ok(None);
        };
        let filters = filters.iter().map(|text| {
            TopicFilter::parse(text).map_err(|error| format!("filter {text:?}: {error}"))
        });
        let filters: Vec<_> = filters.collect::<Result<_, _>>()?;
        Ok(Some(Selection::new(filters)))
    }
}

impl Answer {
    pub(super) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        write_line(self, out)
    }

    pub(super) fn logs(logs: Vec<LogId>) -> Self {
        Self::Logs(logs.into_iter().map(|log| log.0).collect())
    }

    pub(super) fn bounds(bounds: Bounds, left_out: Vec<Range<Sequence>>) -> Self {
        let left_out = left_out.into_iter();
        Self::Bounds {
            first: bounds.first.0,
            next: bounds.next.0,
            left_out: left_out.map(|range| (range.start.0, range.end.0)).collect(),
        }
    }

    pub(super) fn value(value: Option<Value>) -> Self {
        Self::Value(value.map(|value| Valued {
            revision: value.revision.0,
            value: Bytes(value.bytes),
        }))
    }
}

impl From<Chunk> for Answer {
    fn from(chunk: Chunk) -> Self {
        let messages = chunk.entries.into_iter().map(|entry| Message {
            number: entry.sequence.0,
            message: Bytes(entry.message.into_bytes()),
        });
        Self::Chunk {
            messages: messages.collect(),
            next: chunk.next.0,
        }
    }
}

impl From<Page> for Answer {
    fn from(page: Page) -> Self {
        let pairs = page.pairs.into_iter().map(|pair| Keyed {
            key: Bytes(pair.key),
            revision: pair.value.revision.0,
            value: Bytes(pair.value.bytes),
        });
        Self::Page {
            pairs: pairs.collect(),
            more: page.more,
        }
    }
}

impl From<StoreError> for Answer {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Damaged { place, what } => Self::Damaged { place, what },
            other => Self::Failed(other.to_string()),
        }
    }
}

impl From<Forgotten> for Forget {
    fn from(what: Forgotten) -> Self {
        match what {
            Forgotten::Session(client_id) => Self::Session {
                client_id: client_id.into(),
            },
            Forgotten::Retained(topic) => Self::Retained {
                topic: topic.into(),
            },
        }
    }
}

impl From<Space> for SpaceName {
    fn from(space: Space) -> Self {
        Self(space)
    }
}

impl From<SpaceName> for Space {
    fn from(name: SpaceName) -> Self {
        name.0
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bytes = STANDARD.decode(text).map_err(de::Error::custom)?;
        Ok(Self(bytes))
    }
}

impl Serialize for SpaceName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0.name())
    }
}

impl<'de> Deserialize<'de> for SpaceName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        let space = Space::ALL.into_iter().find(|space| space.name() == name);
        let space = space.ok_or_else(|| de::Error::custom(format!("no space {name:?}")))?;
        Ok(Self(space))
    }
}

/// In one write, so that a reader is woken once.
fn write_line(what: &impl Serialize, out: &mut dyn Write) -> io::Result<()> {
    let mut line = serde_json::to_vec(what)?;
    line.push(b'\n');
    out.write_all(&line)
}
