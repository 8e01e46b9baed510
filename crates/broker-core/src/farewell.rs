//! The last packet of a connection that the broker ends: CONNACK with an error before it was
//! admitted, DISCONNECT afterwards. Before 5.0 there is mostly nothing to say but closing.

use unbroken_mqtt_proto::{
    ConnAck, Disconnect, Packet, PacketType, Properties, Property, PropertyBuf, ReasonCode, Version,
};

use crate::connection::Connection;
use crate::shard::Fault;

/// DISCONNECT with its reason, and a Reason String if it fits [MQTT-3.14.2-3].
pub(crate) fn disconnect(connection: &Connection, out: &mut Vec<u8>, fault: &Fault) {
    // Before 5.0 a server has no DISCONNECT to send.
    let speaks = connection.version == Version::V5;
    if !speaks || !fault.reason.is_allowed_in(PacketType::Disconnect) {
        return;
    }
    with_reason_string(connection, &fault.detail, out, |properties| {
        Packet::Disconnect(Disconnect {
            reason: fault.reason,
            properties,
        })
    });
}

/// CONNACK with an error. One that the client's version cannot express is left out: a plain close
/// says it [MQTT311-3.2.2-6].
pub(crate) fn connack(connection: &Connection, out: &mut Vec<u8>, fault: &Fault) {
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
        return;
    }
    with_reason_string(connection, &fault.detail, out, |properties| {
        Packet::ConnAck(ConnAck {
            session_present: false,
            reason: fault.reason,
            properties,
        }) // [MQTT-3.2.2-6]
    });
}

fn with_reason_string<'a>(
    connection: &Connection,
    detail: &str,
    out: &mut Vec<u8>,
    packet: impl Fn(Properties<'_>) -> Packet<'_> + 'a,
) {
    let limit = connection.packet_bytes_max as usize;
    let start = out.len();
    if connection.version.has_properties() {
        let mut properties = PropertyBuf::new();
        // All there is to say: no session expiry [MQTT-3.14.2-2], no user properties
        // [MQTT-3.14.2-4].
        crate::publish::add(&mut properties, Property::ReasonString(detail));
        let encoded = packet(properties.as_properties()).encode(connection.version, out);
        if encoded.is_ok() && out.len() - start <= limit {
            return;
        }
        out.truncate(start);
    }
    let encoded = packet(Properties::EMPTY).encode(connection.version, out);
    if encoded.is_err() || out.len() - start > limit {
        out.truncate(start);
    }
}
