//! Packets to bytes, within what the broker said in CONNACK.

use std::time::{Duration, Instant};

use unbroken_mqtt_proto::connection::alias::{self, Naming};
use unbroken_mqtt_proto::{
    Ack, ConnAck, EncodeError, Packet, PacketId, Properties, Property, PropertyBuf, Publish, QoS,
    ReasonCode, Version,
};

use crate::inbox::Done;
use crate::observer::Observer;
use crate::{Direction, Message, Options, PublishError, SubscribeError};

/// The way out of one connection.
pub(super) struct Wire {
    version: Version,
    output: Vec<u8>,
    /// How much of it is written.
    written: usize,
    last_written: Instant,
    server: Server,
    aliases: alias::Outbound,
    /// Kept for its memory.
    scratch: PropertyBuf,
    observer: Option<Observer>,
}

/// What CONNACK said.
struct Server {
    keep_alive: Option<Duration>,
    packet_bytes_max: u32,
    qos_max: QoS,
    retain_available: bool,
    identifiers_available: bool,
    /// The highest alias that a message may have of its own.
    own_alias_max: u16,
}

impl Wire {
    pub(super) fn new(options: &Options) -> Self {
        Self {
            version: options.version,
            output: Vec::new(),
            written: 0,
            last_written: Instant::now(),
            server: Server::generous(),
            aliases: alias::Outbound::default(),
            scratch: PropertyBuf::new(),
            observer: options.observer.clone(),
        }
    }

    /// For a new connection.
    pub(super) fn begin(&mut self, now: Instant) {
        self.output.clear();
        self.written = 0;
        self.last_written = now;
        self.server = Server::generous();
        self.aliases = alias::Outbound::default();
    }

    pub(super) fn handle_connack(
        &mut self,
        connack: &ConnAck<'_>,
        keep_alive_s: u16,
        topic_aliases_max: u16,
    ) {
        let properties = connack.properties;
        let aliases_max = properties.topic_alias_maximum().unwrap_or(0);
        // [MQTT-3.1.2-21]
        let keep_alive_s = properties.server_keep_alive().unwrap_or(keep_alive_s);
        self.server = Server {
            keep_alive: (keep_alive_s > 0).then(|| Duration::from_secs(keep_alive_s.into())),
            packet_bytes_max: properties.maximum_packet_size().unwrap_or(u32::MAX),
            qos_max: properties.maximum_qos(),
            retain_available: properties.retain_available(),
            identifiers_available: self.version == Version::V5
                && properties.subscription_identifier_available(),
            // Aliases of two origins could mean two topics.
            own_alias_max: if topic_aliases_max == 0 {
                aliases_max
            } else {
                0
            },
        };
        self.aliases = alias::Outbound::new(aliases_max.min(topic_aliases_max));
    }

    pub(super) fn version(&self) -> Version {
        self.version
    }

    pub(super) fn keep_alive(&self) -> Option<Duration> {
        self.server.keep_alive
    }

    pub(super) fn takes_identifiers(&self) -> bool {
        self.server.identifiers_available
    }

    pub(super) fn output(&self) -> &[u8] {
        self.output.get(self.written..).unwrap_or_default()
    }

    pub(super) fn last_written(&self) -> Instant {
        self.last_written
    }

    pub(super) fn written(&mut self, bytes: usize, now: Instant) {
        self.written += bytes;
        self.last_written = now;
        if self.written >= self.output.len() {
            self.output.clear();
            self.written = 0;
        }
    }

    pub(super) fn take_output(&mut self) -> Vec<u8> {
        self.output.drain(..self.written);
        self.written = 0;
        std::mem::take(&mut self.output)
    }

    pub(super) fn put(&mut self, packet: &Packet<'_>) -> Result<(), EncodeError> {
        packet.encode(self.version, &mut self.output)?;
        self.observe(packet);
        Ok(())
    }

    /// As [`put`](Self::put), unless the broker takes no such packet [MQTT-3.2.2-15].
    pub(super) fn put_if_taken(&mut self, packet: &Packet<'_>) -> Result<(), SubscribeError> {
        let before = self.output.len();
        let encoded = packet.encode(self.version, &mut self.output);
        let bytes = self.output.len() - before;
        let max = self.server.packet_bytes_max;
        let is_taken = u32::try_from(bytes).is_ok_and(|bytes| bytes <= max);
        if encoded.is_err() || !is_taken {
            self.output.truncate(before);
            encoded?;
            return Err(SubscribeError::TooLarge { bytes, max });
        }
        self.observe(packet);
        Ok(())
    }

    /// PUBACK or PUBREC, with success.
    pub(super) fn acknowledge(&mut self, id: PacketId, qos: QoS, done: Done) {
        let mut properties = PropertyBuf::new();
        if done == Done::Processed && self.version == Version::V5 {
            let said = properties.push(Property::UserProperty("audit", "processed"));
            said.expect("two words fit");
        }
        let ack = Ack {
            properties: properties.as_properties(),
            ..Ack::success(id)
        };
        self.put_ack(&match qos {
            QoS::ExactlyOnce => Packet::PubRec(ack),
            _ => Packet::PubAck(ack),
        });
    }

    pub(super) fn release(&mut self, id: PacketId, reason: ReasonCode) {
        self.put_ack(&Packet::PubRel(Ack::new(id, reason)));
    }

    pub(super) fn complete(&mut self, id: PacketId, reason: ReasonCode) {
        self.put_ack(&Packet::PubComp(Ack::new(id, reason)));
    }

    /// Encodes a message, if the broker takes such a one. `again`: the broker may have had it
    /// before.
    pub(super) fn publish(
        &mut self,
        message: &Message,
        packet_id: Option<PacketId>,
        dup: bool,
        again: bool,
    ) -> Result<(), PublishError> {
        self.check(message)?;
        let naming = self.aliases.assign(&message.topic);
        let properties = match &message.properties_again {
            Some(other) if again => other,
            _ => &message.properties,
        };
        let (topic, properties) = match naming {
            Naming::Full => (&*message.topic, properties.as_properties()),
            Naming::First(alias) | Naming::Known(alias) => {
                self.scratch.clear();
                self.scratch.extend(properties.as_properties());
                self.scratch.push(Property::TopicAlias(alias))?;
                let is_known = matches!(naming, Naming::Known(_));
                let topic = if is_known { "" } else { &*message.topic };
                (topic, self.scratch.as_properties())
            }
        };
        let before = self.output.len();
        let publish = Publish {
            dup,
            qos: message.qos,
            retain: message.retain,
            topic,
            packet_id,
            properties: if self.version == Version::V5 {
                properties
            } else {
                Properties::EMPTY
            },
            payload: &message.payload,
        };
        let written = Packet::Publish(publish).encode(self.version, &mut self.output);
        let bytes = self.output.len() - before;
        let max = self.server.packet_bytes_max;
        // [MQTT-3.2.2-15]
        let is_too_large = u32::try_from(bytes).map_or(true, |bytes| bytes > max);
        if written.is_err() || is_too_large {
            self.output.truncate(before);
            if matches!(naming, Naming::First(_)) {
                // The broker has not learnt it, and no more will be set on this connection.
                self.aliases = alias::Outbound::default();
            }
        }
        written?;
        if is_too_large {
            let topic = std::sync::Arc::clone(&message.topic);
            return Err(PublishError::TooLarge { topic, bytes, max });
        }
        let topic = &*message.topic;
        self.observe(&Packet::Publish(Publish { topic, ..publish }));
        Ok(())
    }

    fn observe(&self, packet: &Packet<'_>) {
        if let Some(observer) = &self.observer {
            observer(Direction::Sent, packet);
        }
    }

    fn check(&self, message: &Message) -> Result<(), PublishError> {
        let max = self.server.qos_max;
        if message.qos > max {
            return Err(PublishError::QosNotSupported { max }); // [MQTT-3.2.2-11]
        }
        if message.retain && !self.server.retain_available {
            return Err(PublishError::RetainNotSupported); // [MQTT-3.2.2-14]
        }
        let max = self.server.own_alias_max;
        // [MQTT-3.2.2-17] [MQTT-3.2.2-18]
        if message
            .properties()
            .topic_alias()
            .is_some_and(|alias| alias > max)
        {
            return Err(PublishError::TopicAliasNotSupported { max });
        }
        Ok(())
    }

    fn put_ack(&mut self, packet: &Packet<'_>) {
        self.put(packet)
            .expect("an acknowledgement without properties fits every packet");
    }
}

impl Server {
    /// Before it has said anything.
    fn generous() -> Self {
        Self {
            keep_alive: None,
            packet_bytes_max: u32::MAX,
            qos_max: QoS::ExactlyOnce,
            retain_available: true,
            identifiers_available: false,
            own_alias_max: 0,
        }
    }
}
