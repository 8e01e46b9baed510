//! Timers are set, dropped and put in order.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use unbroken_mqtt_proto::{Connect, Packet, Property, PropertyBuf, Publish, QoS, Version};

use super::*;
use crate::{
    Admission, CloseCause, Event, Grant, Input, Limits, Output, Peer, Settings, ShardId,
    ShardOptions, Totals,
};

fn shard(start: Instant) -> Shard {
    Shard::new(ShardOptions {
        id: ShardId(0),
        shards: 1,
        limits: Limits::default(),
        settings: Settings::default(),
        totals: Arc::new(Totals::default()),
        seed: 7,
        start,
    })
}

fn send(shard: &mut Shard, now: Instant, connection: ConnectionId, packet: &Packet<'_>) {
    let mut bytes = Vec::new();
    packet.encode(Version::V5, &mut bytes).unwrap();
    let bytes = &bytes;
    for _ in shard.handle(now, Input::Received { connection, bytes }) {}
}

/// A client with a keep alive and a session that stays.
fn join(shard: &mut Shard, now: Instant, serial: u32) -> ConnectionId {
    let connection = ConnectionId { index: 0, serial };
    let peer = Peer::default();
    for _ in shard.handle(now, Input::Opened { connection, peer }) {}
    let mut properties = PropertyBuf::new();
    properties
        .push(Property::SessionExpiryInterval(1_000_000))
        .unwrap();
    let connect = Connect {
        version: Version::V5,
        bridge: false,
        clean_start: false,
        keep_alive: u16::MAX,
        client_id: "a",
        will: None,
        user_name: None,
        password: None,
        properties: properties.as_properties(),
    };
    send(shard, now, connection, &Packet::Connect(connect));
    let admission = Admission::Granted(Grant::anonymous());
    let input = Input::Authenticated {
        connection,
        admission,
    };
    for _ in shard.handle(now, input) {}
    connection
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a test's epoch")]
fn retained_updates_with_an_expiry_leave_no_timers_behind() {
    let now = Instant::now();
    let mut shard = shard(now);
    let client = join(&mut shard, now, 1);
    let mut properties = PropertyBuf::new();
    properties
        .push(Property::MessageExpiryInterval(1_000_000))
        .unwrap();
    let update = Packet::Publish(Publish {
        dup: false,
        qos: QoS::AtMostOnce,
        retain: true,
        topic: "t",
        packet_id: None,
        properties: properties.as_properties(),
        payload: b"x",
    });
    for _ in 0..100_000 {
        send(&mut shard, now, client, &update);
    }
    assert!(shard.timers.len() < 2_000, "{}", shard.timers.len());
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a test's epoch")]
fn a_client_that_comes_and_goes_leaves_no_timers_behind() {
    let now = Instant::now();
    let mut shard = shard(now);
    for serial in 0..10_000 {
        let connection = join(&mut shard, now, serial);
        let cause = CloseCause::Peer;
        for _ in shard.handle(now, Input::Closed { connection, cause }) {}
    }
    assert!(shard.timers.len() < 2_000, "{}", shard.timers.len());
    // What is left still works: the session ends in its time.
    let end = now + Duration::from_secs(1_000_000);
    let ended = shard
        .handle(end, Input::Timeout { heard: end })
        .any(|output| matches!(output, Output::Event(Event::SessionEnded { .. })));
    assert!(ended);
}
