//! Publishers that stamp themselves, and what the broker says of their lanes.

#![allow(dead_code, reason = "each test file uses its part")]

use std::time::Duration;

use unbroken_broker_core::{Event, PublishersTotals, Sent};
use unbroken_merkle_log::{
    Checkpoint, Digest, Epoch, Lane, LaneId, LaneLimits, Property as Stamp, Xxh3,
};
use unbroken_mqtt_proto::{Packet, PacketId, Properties, Property, PropertyBuf, Publish, QoS};

use crate::shard_bus::{Broker, Client, stay};

pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// A publisher with a lane of its own.
pub(crate) struct Producer {
    pub(crate) client: Client,
    pub(crate) lane: Lane,
    pub(crate) topic: &'static str,
    pub(crate) packet_id: u16,
    /// Checkpoints so far.
    pub(crate) later: u32,
}

impl Producer {
    pub(crate) fn join(broker: &mut Broker) -> Self {
        Self::join_as(broker, "producer", 1)
    }

    pub(crate) fn join_as(broker: &mut Broker, client_id: &str, epoch: u32) -> Self {
        let client = stay(broker, client_id, true);
        let id = LaneId::new(7).unwrap();
        let lane = Lane::new(id, Epoch(epoch), LaneLimits::default(), Duration::ZERO);
        Self {
            client,
            lane,
            topic: "t",
            packet_id: 0,
            later: 0,
        }
    }

    pub(crate) fn stamp(&mut self, payload: &str) -> Stamp {
        self.lane
            .issue(self.topic.as_bytes(), payload.as_bytes(), &Xxh3)
    }

    /// Stamps so many messages, and sends them.
    pub(crate) fn send_many(&mut self, broker: &mut Broker, count: usize) {
        for _ in 0..count {
            let stamp = self.stamp("x");
            self.send(broker, "x", &[&stamp], false);
        }
    }

    pub(crate) fn send(
        &mut self,
        broker: &mut Broker,
        payload: &str,
        stamps: &[&Stamp],
        dup: bool,
    ) {
        let mut properties = PropertyBuf::new();
        for stamp in stamps {
            let text = stamp.to_text();
            properties
                .push(Property::UserProperty("audit", &text))
                .unwrap();
        }
        self.packet_id += 1;
        let packet = Publish {
            dup,
            qos: QoS::AtLeastOnce,
            retain: false,
            topic: self.topic,
            packet_id: PacketId::new(self.packet_id),
            properties: properties.as_properties(),
            payload: payload.as_bytes(),
        };
        broker.send(self.client, Packet::Publish(packet));
    }

    /// A checkpoint of what is stamped so far.
    pub(crate) fn poll(&mut self) -> Checkpoint {
        self.later += 1;
        let now = SECOND * 1_000 * self.later;
        self.lane.poll_checkpoint(now, 0, &Xxh3).unwrap()
    }

    /// One that is made and does not leave.
    pub(crate) fn checkpoint_later(&mut self) {
        self.poll();
    }

    pub(crate) fn checkpoint(&mut self, broker: &mut Broker) {
        let checkpoint = self.poll();
        self.send_checkpoint(broker, &checkpoint, &Xxh3);
    }

    pub(crate) fn send_checkpoint(
        &mut self,
        broker: &mut Broker,
        checkpoint: &Checkpoint,
        digest: &impl Digest,
    ) {
        send_checkpoint(broker, self.client, checkpoint, digest, Properties::EMPTY);
    }
}

pub(crate) fn send_checkpoint(
    broker: &mut Broker,
    client: Client,
    checkpoint: &Checkpoint,
    digest: &impl Digest,
    properties: Properties<'_>,
) {
    let mut payload = Vec::new();
    checkpoint.encode(digest, &mut payload);
    let packet = Publish {
        dup: false,
        qos: QoS::AtMostOnce,
        retain: false,
        topic: "audit/checkpoint/0000000000000007",
        packet_id: None,
        properties,
        payload: &payload,
    };
    broker.send(client, Packet::Publish(packet));
}

/// Passes a checkpoint on as a processor does.
pub(crate) fn pass_on(broker: &mut Broker, processor: Client, checkpoint: &Checkpoint) {
    let mut properties = PropertyBuf::new();
    let through = Property::UserProperty("audit-through", "0000000000000009");
    properties.push(through).unwrap();
    let properties = properties.as_properties();
    send_checkpoint(broker, processor, checkpoint, &Xxh3, properties);
}

pub(crate) fn found(broker: &Broker) -> PublishersTotals {
    let mut sum = unbroken_broker_core::AuditTotals::default();
    for shard in &broker.shards {
        sum += shard.stats().audit;
    }
    assert_eq!(sum.faults(), 0, "none of the broker");
    sum.publishers
}

pub(crate) fn faults(broker: &mut Broker) -> Vec<String> {
    let name = |event: Event| match event {
        Event::LaneIntruded {
            client_id,
            lane,
            owner,
            sent,
            number,
            count,
            ..
        } => Some(match sent {
            Sent::Message => format!("{client_id} {lane} of {owner} intruded {number} {count}"),
            sent => {
                let sent = sent.name();
                format!("{client_id} {lane} of {owner} {sent} {number} {count}")
            }
        }),
        Event::LaneOwner {
            client_id,
            lane,
            before,
        } => Some(format!("{client_id} {lane} was of {before}")),
        Event::LaneRefused {
            client_id,
            why,
            count,
            ..
        } => Some(format!("{client_id} {} {count}", why.name())),
        Event::PublisherFault {
            client_id,
            lane,
            kind,
            first,
            count,
            ..
        } => Some(format!(
            "{client_id} {lane} {} {first} {count}",
            kind.name()
        )),
        _ => None,
    };
    broker.events.drain(..).filter_map(name).collect()
}
