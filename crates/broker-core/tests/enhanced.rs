//! AUTH in one shard and three: a method of two steps that the driver of the test knows.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod shard_bus;

use shard_bus::{Broker, Client, connect};
use unbroken_broker_core::Limits;
use unbroken_mqtt_proto::{Auth, Connect, Packet, Property, PropertyBuf, ReasonCode, Version};

fn properties(method: &str, data: &str) -> PropertyBuf {
    let mut properties = PropertyBuf::new();
    let method = Property::AuthenticationMethod(method);
    properties.push(method).unwrap();
    let data = Property::AuthenticationData(data.as_bytes());
    properties.push(data).unwrap();
    properties
}

fn begin(broker: &mut Broker, method: &str, data: &str) -> Client {
    let client = broker.open(Version::V5);
    let properties = properties(method, data);
    let connect = Connect {
        properties: properties.as_properties(),
        ..connect("c")
    };
    broker.send(client, Packet::Connect(connect));
    client
}

fn auth(broker: &mut Broker, client: Client, reason: ReasonCode, (method, data): (&str, &str)) {
    let properties = properties(method, data);
    let auth = Auth {
        reason,
        properties: properties.as_properties(),
    };
    broker.send(client, Packet::Auth(auth));
}

/// Reason, method and data of the AUTH packets and CONNACKs that have come.
fn taken(broker: &mut Broker, client: Client) -> Vec<(u8, String, String)> {
    let bytes = broker.take_bytes(client);
    let (mut rest, mut taken) = (&*bytes, Vec::new());
    while let Some(frame) = unbroken_mqtt_proto::next_frame(rest, u32::MAX).unwrap() {
        rest = &rest[frame.bytes.len()..];
        let (reason, properties) = match Packet::decode(frame, Version::V5).unwrap() {
            Packet::Auth(auth) => (auth.reason, auth.properties),
            Packet::ConnAck(connack) => (connack.reason, connack.properties),
            Packet::Disconnect(disconnect) => (disconnect.reason, disconnect.properties),
            other => panic!("{other:?}"),
        };
        let data = properties.authentication_data().unwrap_or_default();
        taken.push((
            reason as u8,
            properties
                .authentication_method()
                .unwrap_or_default()
                .to_owned(),
            String::from_utf8(data.to_vec()).unwrap(),
        ));
    }
    taken
}

fn said(reason: u8, method: &str, data: &str) -> (u8, String, String) {
    (reason, method.to_owned(), data.to_owned())
}

const CONTINUE: ReasonCode = ReasonCode::ContinueAuthentication;
const AGAIN: ReasonCode = ReasonCode::ReAuthenticate;

/// A client that has come in by two steps, as the user that it named.
fn come_in(broker: &mut Broker, user: &str) -> Client {
    let client = begin(broker, "TEST", user);
    let challenge = format!("{user}?");
    assert_eq!(taken(broker, client), [said(0x18, "TEST", &challenge)]);
    auth(broker, client, CONTINUE, ("TEST", &format!("{user}?!")));
    // [MQTT-4.12.0-5]
    assert_eq!(taken(broker, client), [said(0, "TEST", "proof")]);
    client
}

// [MQTT-4.12.0-2, MQTT-4.12.0-3, MQTT-4.12.0-5]
#[test]
fn a_client_comes_in_behind_its_last_step() {
    for shards in [1, 3] {
        let mut broker = Broker::new(shards);
        let client = come_in(&mut broker, "ann");
        broker.send(client, Packet::PingReq);
        assert_eq!(broker.take(client), ["PINGRESP"]);
    }
}

// [MQTT-4.12.0-1, MQTT-4.12.0-4]
#[test]
fn a_wrong_step_and_an_unknown_method_are_refused() {
    let mut broker = Broker::new(1);
    let client = begin(&mut broker, "TEST", "ann");
    taken(&mut broker, client);
    auth(&mut broker, client, CONTINUE, ("TEST", "wrong"));
    assert_eq!(taken(&mut broker, client)[0].0, 0x86);
    assert!(!broker.is_open(client));
    let client = begin(&mut broker, "OTHER", "ann");
    assert_eq!(taken(&mut broker, client)[0].0, 0x8c);
    assert!(!broker.is_open(client));
}

// [MQTT-3.1.2-30] [MQTT-4.12.0-5]
#[test]
fn nothing_but_the_next_step_comes_before_connack() {
    let check = |packet: &dyn Fn(&mut Broker, Client), reason: Option<u8>| {
        let mut broker = Broker::new(1);
        let client = begin(&mut broker, "TEST", "ann");
        taken(&mut broker, client);
        packet(&mut broker, client);
        let reasons: Vec<_> = taken(&mut broker, client).iter().map(|it| it.0).collect();
        assert_eq!(reasons, reason.into_iter().collect::<Vec<_>>());
        assert!(!broker.is_open(client));
    };
    check(&|it, client| it.send(client, Packet::PingReq), Some(0x82));
    check(
        &|it, client| it.send(client, Packet::Connect(connect("c"))),
        Some(0x82),
    );
    let other = |it: &mut Broker, client| auth(it, client, CONTINUE, ("OTHER", "ann?!"));
    check(&other, Some(0x82));
    let again = |it: &mut Broker, client| auth(it, client, AGAIN, ("TEST", "ann?!"));
    check(&again, Some(0x82));
    // It gives up.
    check(&|it, client| it.send_bytes(client, &[0xe0, 0]), None);
}

#[test]
fn a_client_that_does_not_take_its_step_is_refused_in_time() {
    let mut broker = Broker::new(1);
    let client = begin(&mut broker, "TEST", "ann");
    taken(&mut broker, client);
    let timeout = Limits::default().connect_timeout;
    broker.advance(timeout / 2);
    assert!(broker.is_open(client));
    broker.advance(timeout / 2);
    assert_eq!(taken(&mut broker, client)[0].0, 0x87);
    assert!(!broker.is_open(client));
}

// [MQTT-4.12.1-1]
#[test]
fn a_client_authenticates_again_while_its_messages_go_on() {
    let mut broker = Broker::new(1);
    let client = come_in(&mut broker, "ann");
    for _ in 0..2 {
        auth(&mut broker, client, AGAIN, ("TEST", "ann"));
        assert_eq!(taken(&mut broker, client), [said(0x18, "TEST", "ann?")]);
        broker.send(client, Packet::PingReq);
        assert_eq!(broker.take(client), ["PINGRESP"]);
        auth(&mut broker, client, CONTINUE, ("TEST", "ann?!"));
        assert_eq!(taken(&mut broker, client), [said(0, "TEST", "proof")]);
    }
    broker.advance(Limits::default().connect_timeout * 2);
    assert!(broker.is_open(client), "nothing is under way");
}

// [MQTT-4.12.1-1, MQTT-4.12.1-2] [MQTT-4.12.0-7]
#[test]
fn what_is_wrong_in_authenticating_again_ends_the_connection() {
    type Act = fn(&mut Broker, Client);
    let acts: [(Act, u8); 6] = [
        (|it, client| auth(it, client, AGAIN, ("OTHER", "ann")), 0x82),
        (
            |it, client| auth(it, client, CONTINUE, ("TEST", "ann")),
            0x82,
        ),
        (
            |it, client| {
                auth(it, client, AGAIN, ("TEST", "bob"));
                taken(it, client);
                auth(it, client, CONTINUE, ("TEST", "bob?!"));
            },
            0x87, // another user
        ),
        (
            |it, client| {
                auth(it, client, AGAIN, ("TEST", "ann"));
                taken(it, client);
                auth(it, client, CONTINUE, ("TEST", "wrong"));
            },
            0x87,
        ),
        (
            |it, client| {
                auth(it, client, AGAIN, ("TEST", "ann"));
                taken(it, client);
                auth(it, client, AGAIN, ("TEST", "ann"));
            },
            0x82,
        ),
        (
            |it, client| {
                auth(it, client, AGAIN, ("TEST", "ann"));
                taken(it, client);
                it.advance(Limits::default().connect_timeout);
            },
            0x87,
        ),
    ];
    for (number, (act, reason)) in acts.into_iter().enumerate() {
        let mut broker = Broker::new(1);
        let client = come_in(&mut broker, "ann");
        act(&mut broker, client);
        let last = taken(&mut broker, client);
        assert_eq!(
            last.last().map(|it| it.0),
            Some(reason),
            "{number}: {last:?}"
        );
        assert!(!broker.is_open(client), "{number}");
    }
    let mut broker = Broker::new(1);
    let plain = shard_bus::join(&mut broker, "plain");
    auth(&mut broker, plain, AGAIN, ("TEST", "ann"));
    assert_eq!(
        taken(&mut broker, plain)[0].0,
        0x82,
        "CONNECT named no method"
    );
}
