//! Packets and records as short texts.

use unbroken_broker_core::{LaneState, Record};
use unbroken_mqtt_proto::Packet;

/// A short text of a packet: what a reader of a test wants to see.
pub(super) fn show(packet: &Packet<'_>) -> String {
    match packet {
        Packet::ConnAck(p) => format!(
            "CONNACK {} {:02x}",
            u8::from(p.session_present),
            p.reason as u8
        ),
        Packet::Publish(p) => {
            let mut text = format!(
                "PUBLISH {} {:?} q{}",
                p.topic,
                String::from_utf8_lossy(p.payload),
                p.qos as u8
            );
            if let Some(id) = p.packet_id {
                text += &format!(" #{}", id.get());
            }
            if p.dup {
                text += " dup";
            }
            if p.retain {
                text += " retain";
            }
            for property in p.properties {
                text += &format!(" {property:?}");
            }
            text
        }
        Packet::PubAck(p) => format!("PUBACK #{} {:02x}", p.packet_id.get(), p.reason as u8),
        Packet::PubRec(p) => format!("PUBREC #{} {:02x}", p.packet_id.get(), p.reason as u8),
        Packet::PubRel(p) => format!("PUBREL #{} {:02x}", p.packet_id.get(), p.reason as u8),
        Packet::PubComp(p) => format!("PUBCOMP #{} {:02x}", p.packet_id.get(), p.reason as u8),
        Packet::SubAck(p) => format!("SUBACK #{} {:02x?}", p.packet_id.get(), p.reasons),
        Packet::UnsubAck(p) => format!("UNSUBACK #{} {:02x?}", p.packet_id.get(), p.reasons),
        Packet::Disconnect(p) => format!("DISCONNECT {:02x}", p.reason as u8),
        other => other.packet_type().name().to_owned(),
    }
}

/// A short text of a record.
pub(super) fn show_record(record: &Record) -> String {
    match record {
        Record::Message {
            message,
            marker,
            will_over,
        } => match marker {
            Some(marker) => format!("message {} #{}", message.topic(), marker.packet_id.get()),
            None if *will_over => format!("will {}", message.topic()),
            None => format!("message {}", message.topic()),
        },
        Record::Marker {
            client_id,
            packet_id,
            ..
        } => format!("marker {client_id} #{}", packet_id.get()),
        Record::Retained { message, .. } => format!("retained {}", message.topic()),
        Record::Unretained { topic, .. } => format!("unretained {topic}"),
        Record::SessionOpened {
            client_id,
            expiry_s,
            new,
            ..
        } => format!(
            "session {client_id} {expiry_s} s{}",
            if *new { " new" } else { "" }
        ),
        Record::SessionEnded { client_id } => format!("end {client_id}"),
        Record::Subscribed {
            client_id,
            subscription,
            replaced,
        } => format!(
            "subscribed {client_id} {} q{}{}",
            subscription.filter,
            subscription.options.qos as u8,
            if replaced.is_some() { " again" } else { "" }
        ),
        Record::Unsubscribed {
            client_id,
            subscription,
        } => {
            format!("unsubscribed {client_id} {}", subscription.filter)
        }
        Record::Released {
            client_id,
            packet_id,
        } => format!("released {client_id} #{}", packet_id.get()),
        Record::Given {
            client_id, entry, ..
        } => match entry.packet_id {
            Some(id) => format!("given {client_id} #{}", id.get()),
            None => format!("given {client_id} by a group"),
        },
        Record::DeliveriesExpected { .. } => "owed".to_owned(),
        Record::DeliveredBy { group, .. } => format!("given by {group}"),
        Record::DeliveriesComplete { .. } => "owed no more".to_owned(),
        Record::HandedOver { group, .. } => format!("handed over to {group}"),
        Record::HandedOn { .. } => "handed on".to_owned(),
        Record::Received {
            client_id,
            received,
        } => format!("received {client_id} #{}", received.packet_id.get()),
        Record::Will { client_id, .. } => format!("will of {client_id}"),
        Record::LaneClosed(LaneState::Ingress { client_id, .. }) => format!("lane of {client_id}"),
        Record::LaneClosed(LaneState::Own { client_id, .. }) => format!("lane by {client_id}"),
        Record::LaneSnapshot(lane) => format!("lane of {} so far", lane.client_id()),
        Record::LaneForgotten { client_id, .. } => format!("lane of {client_id} forgotten"),
        Record::LanesResumed { .. } => "lanes awake".to_owned(),
        Record::WillOver { client_id } => format!("will over {client_id}"),
        Record::Progress { client_id, .. } => format!("progress {client_id}"),
    }
}
