//! The lines of `-d`: each packet, in Mosquitto's words and on standard output as there.

use std::fmt;
use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};

use unbroken_client::{Direction, Packet, Version};
use unbroken_mqtt_proto::{Ack, Escaped, PacketId, Publish};

/// Prints for one client.
pub(crate) struct PacketLines {
    version: Version,
    given_id: String,
    /// The one that the broker has assigned, or the given one.
    client_id: Mutex<String>,
}

impl PacketLines {
    pub(crate) fn new(version: Version, client_id: &str) -> Self {
        Self {
            version,
            given_id: client_id.to_owned(),
            client_id: Mutex::new(client_id.to_owned()),
        }
    }

    pub(crate) fn show(&self, direction: Direction, packet: &Packet<'_>) {
        match direction {
            Direction::Sent => self.sent(packet),
            Direction::Received => self.received(packet),
        }
    }

    fn sent(&self, packet: &Packet<'_>) {
        let name = packet.packet_type();
        match packet {
            Packet::Publish(publish) => self.publish("sending", publish),
            Packet::PubAck(ack)
            | Packet::PubRec(ack)
            | Packet::PubRel(ack)
            | Packet::PubComp(ack) => {
                self.line(format_args!("sending {name} (m{})", ack.packet_id));
            }
            Packet::Subscribe(subscribe) => {
                let id = subscribe.packet_id;
                for (filter, options) in &subscribe.filters {
                    // As Mosquitto: the QoS stands apart from the other options.
                    let others = options.to_byte() & !0b11;
                    self.line(format_args!(
                        "sending SUBSCRIBE (Mid: {id}, Topic: {filter}, QoS: {}, Options: 0x{others:02x})",
                        options.qos,
                    ));
                }
            }
            Packet::Unsubscribe(unsubscribe) => {
                let id = unsubscribe.packet_id;
                for filter in &unsubscribe.filters {
                    self.line(format_args!(
                        "sending UNSUBSCRIBE (Mid: {id}, Topic: {filter})"
                    ));
                }
            }
            _ => self.line(format_args!("sending {name}")),
        }
    }

    fn received(&self, packet: &Packet<'_>) {
        let name = packet.packet_type();
        match packet {
            Packet::ConnAck(connack) => {
                let code = match self.version {
                    Version::V5 => connack.reason.code(),
                    _ => connack.reason.to_connack_v3(),
                };
                let assigned = connack.properties.assigned_client_identifier();
                let mut id = self
                    .client_id
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner);
                assigned.unwrap_or(&self.given_id).clone_into(&mut id);
                drop(id);
                self.line(format_args!("received CONNACK ({code})"));
            }
            Packet::Publish(publish) => self.publish("received", publish),
            Packet::PubRec(Ack { packet_id, .. }) | Packet::PubRel(Ack { packet_id, .. }) => {
                self.line(format_args!("received {name} (Mid: {packet_id})"));
            }
            Packet::PubAck(ack) | Packet::PubComp(ack) => self.line(format_args!(
                "received {name} (Mid: {}, RC:{})",
                ack.packet_id,
                ack.reason.code()
            )),
            Packet::SubAck(suback) => {
                self.line(format_args!("received SUBACK"));
                let codes: Vec<_> = suback.reasons.iter().map(u8::to_string).collect();
                // As in `line`.
                let _ = writeln!(
                    io::stdout(),
                    "Subscribed (mid: {}): {}",
                    suback.packet_id,
                    codes.join(", ")
                );
            }
            Packet::Disconnect(disconnect) => {
                self.line(format_args!(
                    "received DISCONNECT ({})",
                    disconnect.reason.code()
                ));
            }
            _ => self.line(format_args!("received {name}")),
        }
    }

    fn publish(&self, verb: &str, publish: &Publish<'_>) {
        self.line(format_args!(
            "{verb} PUBLISH (d{}, q{}, r{}, m{}, '{}', ... ({} bytes))",
            u8::from(publish.dup),
            publish.qos,
            u8::from(publish.retain),
            publish.packet_id.map_or(0, PacketId::get),
            Escaped::new(publish.topic),
            publish.payload.len(),
        ));
    }

    fn line(&self, text: fmt::Arguments<'_>) {
        let id = self
            .client_id
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let id = if id.is_empty() { "(null)" } else { &id };
        // A reader that is gone is noticed where messages are printed.
        let _ = writeln!(io::stdout(), "Client {id} {text}");
    }
}
