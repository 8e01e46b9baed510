//! Packets of clients.

use super::*;

pub(crate) fn connect(client_id: &str) -> Connect<'_> {
    Connect {
        version: Version::V5,
        bridge: false,
        clean_start: true,
        keep_alive: 0,
        client_id,
        will: None,
        user_name: None,
        password: None,
        properties: Properties::EMPTY,
    }
}

pub(crate) fn subscribe(broker: &mut Broker, client: Client, filter: &str, qos: QoS) {
    let options = SubscriptionOptions {
        qos,
        retain_handling: RetainHandling::SendAlways,
        ..Default::default()
    };
    send_subscribe(broker, client, &[(filter, options)]);
}

pub(crate) fn unsubscribe(broker: &mut Broker, client: Client, filter: &str) {
    let filters = [filter];
    let packet = Unsubscribe {
        packet_id: PacketId::FIRST,
        properties: Properties::EMPTY,
        filters: TopicFilters::new(&filters),
    };
    broker.send(client, Packet::Unsubscribe(packet));
}

pub(crate) fn publish<'a>(topic: &'a str, payload: &'a str, qos: QoS, id: u16) -> Packet<'a> {
    Packet::Publish(Publish {
        dup: false,
        qos,
        retain: false,
        topic,
        packet_id: PacketId::new(id),
        properties: Properties::EMPTY,
        payload: payload.as_bytes(),
    })
}

pub(crate) fn retained<'a>(topic: &'a str, payload: &'a str, qos: QoS, id: u16) -> Packet<'a> {
    let Packet::Publish(packet) = publish(topic, payload, qos, id) else {
        unreachable!()
    };
    Packet::Publish(Publish {
        retain: true,
        ..packet
    })
}

pub(crate) fn send_subscribe(
    broker: &mut Broker,
    client: Client,
    list: &[(&str, SubscriptionOptions)],
) {
    let filters = Subscriptions::new(list);
    let packet = Subscribe {
        packet_id: PacketId::FIRST,
        properties: Properties::EMPTY,
        filters,
    };
    broker.send(client, Packet::Subscribe(packet));
}
