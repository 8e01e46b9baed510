//! The last words of a connection: what it still had to say when it ended, and behind that the
//! packet by which the broker ends it, CONNACK with an error before it was admitted, DISCONNECT
//! afterwards. Before 5.0, and when the broker stops, there is mostly nothing to say but closing.

use std::sync::Arc;

use unbroken_mqtt_proto::connection::alias;
use unbroken_mqtt_proto::{
    ConnAck, Disconnect, Frame, Packet, PacketType, Properties, Property, PropertyBuf, Publish,
    ReasonCode, Version,
};

use super::Connection;
use super::write_buffer::not_wholly_written;
use crate::memory::{Budget, Charge};
use crate::policy::Mount;
use crate::reason::Fault;

/// What a connection that ends has still to say. The driver writes it as far as the peer takes it;
/// with what it remembers of the client, the shard can name what is lost if that is not all of it.
#[derive(Debug)]
pub struct LastWords {
    /// Encoded packets, from the beginning of one. `written` of their bytes, from the front, are
    /// gone.
    bytes: Vec<u8>,
    /// `0 <= written <= bytes.len()`.
    written: usize,
    version: Version,
    is_awaited: bool,
    /// `None` where the client was not let in.
    pub(crate) client: Option<Client>,
    aliases: Option<Box<alias::Outbound>>,
    charge: Charge,
}

/// The client of a connection that has ended.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) id: Arc<str>,
    pub(crate) mount: Option<Mount>,
    /// It only verifies what it receives.
    pub(crate) is_watcher: bool,
}

impl LastWords {
    pub(super) fn new(
        bytes: Vec<u8>,
        written: usize,
        version: Version,
        is_awaited: bool,
        client: Option<Client>,
        aliases: Option<Box<alias::Outbound>>,
    ) -> Self {
        Self {
            bytes,
            written,
            version,
            is_awaited,
            client,
            aliases,
            charge: Charge::default(),
        }
    }

    /// Counts what it keeps until it is written.
    pub(crate) fn count(&mut self, budget: &Arc<Budget>) {
        self.charge.count(budget, self.bytes.capacity());
    }

    /// Whether it is more than the packet that ends a connection.
    pub(crate) const fn is_long(&self) -> bool {
        self.bytes.len() > LONG_BYTES
    }

    /// Leaves out all that is to be written.
    pub(crate) fn clear(&mut self) {
        (self.bytes, self.written) = (Vec::new(), 0);
        self.charge.set(0);
    }

    /// The bytes that are to be written.
    pub fn unwritten(&self) -> &[u8] {
        &self.bytes[self.written..]
    }

    /// Whether the peer may wait for this. A connection that has sent no CONNECT gets no answer and
    /// can be closed at once.
    pub const fn is_awaited(&self) -> bool {
        self.is_awaited
    }

    /// Says that so many bytes of [`unwritten`](Self::unwritten), from its front, were written.
    pub fn wrote(&mut self, bytes: usize) {
        debug_assert!(bytes <= self.unwritten().len(), "more than there was");
        self.written = self.bytes.len().min(self.written + bytes);
    }

    /// The messages that are not wholly written.
    pub(crate) fn unwritten_publishes(&self) -> impl Iterator<Item = Publish<'_>> {
        not_wholly_written(&self.bytes, self.written)
            .filter(Frame::is_publish)
            .filter_map(|frame| match Packet::decode(frame, self.version) {
                Ok(Packet::Publish(publish)) => Some(publish),
                _ => None,
            })
    }

    /// What a message among these is about, also where only an alias says so.
    pub(crate) fn topic_of<'a>(&'a self, publish: &Publish<'a>) -> &'a str {
        if !publish.topic.is_empty() {
            return publish.topic;
        }
        let alias = publish.properties.topic_alias();
        let topic = alias.zip(self.aliases.as_deref());
        topic
            .and_then(|(alias, aliases)| aliases.topic(alias))
            .unwrap_or_default()
    }
}

/// DISCONNECT with its reason, and a Reason String if it fits [MQTT-3.14.2-3]. Answers with the
/// code in it, if there is one to send.
pub(super) fn disconnect(connection: &Connection, out: &mut Vec<u8>, fault: &Fault) -> Option<u8> {
    // Before 5.0 a server has no DISCONNECT to send. A broker that stops only ends the connection,
    // as Mosquitto does: libmosquitto takes any DISCONNECT for final and does not connect again.
    let speaks =
        connection.version == Version::V5 && fault.reason != ReasonCode::ServerShuttingDown;
    if !speaks || !fault.reason.is_allowed_in(PacketType::Disconnect) {
        return None;
    }
    let is_sent = with_reason_string(connection, &fault.detail, out, |properties| {
        Packet::Disconnect(Disconnect {
            reason: fault.reason,
            properties,
        })
    });
    is_sent.then_some(fault.reason as u8)
}

/// CONNACK with an error. One that the client's version cannot express is left out: a plain close
/// says it [MQTT311-3.2.2-6]. Answers with the code in it, in 3.x a return code.
pub(super) fn connack(connection: &Connection, out: &mut Vec<u8>, fault: &Fault) -> Option<u8> {
    let expressible = connection.greeted
        && match connection.version {
            Version::V5 => fault.reason.is_allowed_in(PacketType::ConnAck),
            // Before 5.0 a packet that breaks the protocol is answered by closing the connection,
            // no more [MQTT311-3.1.4-1].
            Version::V3_1 | Version::V3_1_1 => !matches!(
                fault.reason,
                ReasonCode::MalformedPacket
                    | ReasonCode::ProtocolError
                    | ReasonCode::PacketTooLarge
                    | ReasonCode::TopicNameInvalid
                    | ReasonCode::KeepAliveTimeout
                    | ReasonCode::ServerShuttingDown
            ),
        };
    if !expressible {
        return None;
    }
    let is_sent = with_reason_string(connection, &fault.detail, out, |properties| {
        Packet::ConnAck(ConnAck {
            session_present: false,
            reason: fault.reason,
            properties,
        }) // [MQTT-3.2.2-6]
    });
    is_sent.then(|| match connection.version {
        Version::V5 => fault.reason as u8,
        Version::V3_1 | Version::V3_1_1 => fault.reason.to_connack_v3(),
    })
}

/// Answers whether the packet fits.
fn with_reason_string<'a>(
    connection: &Connection,
    detail: &str,
    out: &mut Vec<u8>,
    packet: impl Fn(Properties<'_>) -> Packet<'_> + 'a,
) -> bool {
    let limit = connection.packet_bytes_max as usize;
    let start = out.len();
    if connection.version.has_properties() {
        let mut properties = PropertyBuf::new();
        // All there is to say: no session expiry [MQTT-3.14.2-2], no user properties
        // [MQTT-3.14.2-4].
        crate::message::add(&mut properties, Property::ReasonString(detail));
        let encoded = packet(properties.as_properties()).encode(connection.version, out);
        if encoded.is_ok() && out.len() - start <= limit {
            return true;
        }
        out.truncate(start);
    }
    let encoded = packet(Properties::EMPTY).encode(connection.version, out);
    let fits = encoded.is_ok() && out.len() - start <= limit;
    if !fits {
        out.truncate(start);
    }
    fits
}

/// Final bytes that are more are not kept while memory is short.
const LONG_BYTES: usize = 1_024;
