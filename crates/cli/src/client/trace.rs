//! The lines of `-d`: each packet, in Mosquitto's words and on standard output as there.

use std::fmt;
use std::io::{self, Write};

use unbroken_mqtt_proto::{
    Ack, PacketId, PacketType, Publish, ReasonCode, SubscriptionOptions, Version,
};

/// Prints for one client, or nothing.
pub(super) struct Trace<'a> {
    on: bool,
    client_id: &'a str,
}

impl<'a> Trace<'a> {
    pub(super) fn new(on: bool, client_id: &'a str) -> Self {
        Self {
            on,
            client_id: if client_id.is_empty() {
                "(null)"
            } else {
                client_id
            },
        }
    }

    fn line(&self, text: fmt::Arguments<'_>) {
        if self.on {
            // A reader that is gone is noticed where messages are printed.
            let _ = writeln!(io::stdout(), "Client {} {text}", self.client_id);
        }
    }

    pub(super) fn sending(&self, packet: &str) {
        self.line(format_args!("sending {packet}"));
    }

    pub(super) fn received(&self, packet: &str) {
        self.line(format_args!("received {packet}"));
    }

    pub(super) fn answering(&self, packet: &str, id: PacketId) {
        self.line(format_args!("sending {packet} (m{id})"));
    }

    pub(super) fn connack(&self, version: Version, reason: ReasonCode) {
        let code = match version {
            Version::V5 => reason.code(),
            _ => reason.to_connack_v3(),
        };
        self.line(format_args!("received CONNACK ({code})"));
    }

    pub(super) fn disconnected(&self, reason: ReasonCode) {
        self.line(format_args!("received DISCONNECT ({})", reason.code()));
    }

    pub(super) fn acknowledged(&self, packet: PacketType, ack: &Ack<'_>) {
        let id = ack.packet_id;
        match packet {
            PacketType::PubRec | PacketType::PubRel => {
                self.line(format_args!("received {packet} (Mid: {id})"));
            }
            _ => self.line(format_args!(
                "received {packet} (Mid: {id}, RC:{})",
                ack.reason.code()
            )),
        }
    }

    pub(super) fn publish(&self, verb: &str, publish: &Publish<'_>, topic: &str) {
        self.line(format_args!(
            "{verb} PUBLISH (d{}, q{}, r{}, m{}, '{topic}', ... ({} bytes))",
            u8::from(publish.dup),
            publish.qos,
            u8::from(publish.retain),
            publish.packet_id.map_or(0, PacketId::get),
            publish.payload.len(),
        ));
    }

    pub(super) fn subscribe(&self, id: PacketId, filter: &str, options: SubscriptionOptions) {
        // As Mosquitto: the QoS is told apart from the other options.
        let others = options.to_byte() & !0b11;
        self.line(format_args!(
            "sending SUBSCRIBE (Mid: {id}, Topic: {filter}, QoS: {}, Options: 0x{others:02x})",
            options.qos,
        ));
    }

    pub(super) fn subscribed(&self, id: PacketId, codes: &[u8]) {
        self.received("SUBACK");
        if self.on {
            let codes: Vec<_> = codes.iter().map(u8::to_string).collect();
            // As in `line`.
            let _ = writeln!(io::stdout(), "Subscribed (mid: {id}): {}", codes.join(", "));
        }
    }

    pub(super) fn unsubscribe(&self, id: PacketId, filter: &str) {
        self.line(format_args!(
            "sending UNSUBSCRIBE (Mid: {id}, Topic: {filter})"
        ));
    }
}
