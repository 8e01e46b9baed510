//! What listeners ask of client ids: which a user may have, where they come from, and who may take
//! over a session.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod access_rules;
mod shard_bus;

use std::sync::Arc;

use access_rules::try_join;
use shard_bus::{Broker, Client, connect, join};
use unbroken_broker_core::{ClientIdRules, ClientIdSource, Input, Limits, Peer, Settings};
use unbroken_mqtt_proto::{Connect, Packet, Version};

fn broker(shards: u8, rules: ClientIdRules) -> Broker {
    let mut settings = Settings::default();
    settings.client_ids = Arc::new([rules]);
    Broker::with(shards, Limits::default(), settings)
}

fn like(pattern: &str) -> ClientIdRules {
    ClientIdRules {
        pattern: Some(pattern.into()),
        ..ClientIdRules::default()
    }
}

fn from_user() -> ClientIdRules {
    ClientIdRules {
        source: ClientIdSource::User,
        ..ClientIdRules::default()
    }
}

/// What a client of this user with this id gets, by 5.0.
fn answer(broker: &mut Broker, user: &str, id: &str) -> Vec<String> {
    let client = try_join(broker, Version::V5, user, id, true);
    let taken = broker.take(client);
    broker.cut(client);
    taken
}

fn anonymous(broker: &mut Broker, id: &str) -> (Client, Vec<String>) {
    let client = broker.open(Version::V5);
    broker.send(client, Packet::Connect(connect(id)));
    let taken = broker.take(client);
    (client, taken)
}

#[test]
fn a_client_whose_id_is_not_its_users_is_refused() {
    for shards in [1, 3] {
        let mut broker = broker(shards, like("{user}-*"));
        for (user, id, expected) in [
            ("ann", "ann-1", "CONNACK 0 00"),
            ("ann", "bob-1", "CONNACK 0 85"),
            ("ann", "anna-1", "CONNACK 0 85"),
            ("*", "ann-1", "CONNACK 0 85"),
            ("ann", "", "CONNACK 0 85"),
        ] {
            assert_eq!(answer(&mut broker, user, id), [expected], "{user} {id}");
        }
        assert_eq!(anonymous(&mut broker, "ann-1").1, ["CONNACK 0 85"]);
        let old = try_join(&mut broker, Version::V3_1_1, "ann", "bob-1", false);
        assert_eq!(broker.take(old), ["CONNACK 0 85"]);
    }
}

#[test]
fn an_id_may_be_the_name_of_the_user_whatever_the_client_says() {
    for shards in [1, 3] {
        let mut broker = broker(shards, from_user());
        let ann = try_join(&mut broker, Version::V5, "ann", "other", false);
        assert_eq!(broker.take(ann), ["CONNACK 0 00"]);
        let here = |broker: &Broker, id| broker.shards.iter().any(|it| it.is_connected(id));
        assert!(here(&broker, "ann") && !here(&broker, "other"));
        // The same user is the same client. [MQTT-3.1.4-3]
        let again = try_join(&mut broker, Version::V5, "ann", "third", false);
        assert_eq!(broker.take(again), ["CONNACK 0 00"]);
        assert_eq!(broker.take(ann), ["DISCONNECT 8e"]);
        assert_eq!(anonymous(&mut broker, "ann").1, ["CONNACK 0 85"]);
        assert!(broker.is_open(again));
    }
}

/// [MQTT-3.2.2-16]
#[test]
fn a_client_that_gave_no_id_learns_the_one_that_it_has() {
    let mut broker = broker(1, from_user());
    let client = broker.open(Version::V5);
    let packet = Connect {
        user_name: Some("ann"),
        ..connect("")
    };
    broker.send(client, Packet::Connect(packet));
    let bytes = broker.take_bytes(client);
    let assigned = b"\x12\x00\x03ann";
    assert!(bytes.windows(assigned.len()).any(|it| it == assigned));
}

#[test]
fn a_certificates_name_is_the_id_before_that_of_connect() {
    let mut broker = broker(1, from_user());
    let peer = Peer {
        certificate: Some("pump".into()),
        ..Peer::default()
    };
    let client = broker.open_from(Version::V5, peer);
    let packet = Connect {
        user_name: Some("ann"),
        ..connect("c")
    };
    broker.send(client, Packet::Connect(packet));
    // The driver of these tests admits under the name in CONNECT: another than the certificate's.
    assert_eq!(broker.take(client), ["CONNACK 0 85"]);
}

#[test]
fn a_session_is_taken_over_by_its_user_only() {
    for shards in [1, 3] {
        let mut broker = broker(shards, ClientIdRules::default());
        let ann = try_join(&mut broker, Version::V5, "ann", "desk", true);
        assert_eq!(broker.take(ann), ["CONNACK 0 00"]);
        assert_eq!(answer(&mut broker, "bob", "desk"), ["CONNACK 0 87"]);
        assert_eq!(anonymous(&mut broker, "desk").1, ["CONNACK 0 87"]);
        assert!(broker.is_open(ann), "it stays connected");
        broker.cut(ann);
        assert_eq!(answer(&mut broker, "bob", "desk"), ["CONNACK 0 87"]);
        assert_eq!(answer(&mut broker, "ann", "desk"), ["CONNACK 1 00"]);
        let old = try_join(&mut broker, Version::V3_1_1, "bob", "desk", false);
        assert_eq!(
            broker.take(old),
            ["CONNACK 0 87"],
            "not by Clean Start either"
        );
    }
}

#[test]
fn a_session_that_no_user_has_begun_becomes_the_first_users() {
    let mut broker = broker(1, ClientIdRules::default());
    let first = join(&mut broker, "desk");
    let (second, taken) = anonymous(&mut broker, "desk");
    assert_eq!(taken, ["CONNACK 0 00"]);
    assert_eq!(broker.take(first), ["DISCONNECT 8e"]);
    assert_eq!(answer(&mut broker, "ann", "desk"), ["CONNACK 0 00"]);
    assert_eq!(broker.take(second), ["DISCONNECT 8e"]);
    assert_eq!(answer(&mut broker, "bob", "desk"), ["CONNACK 0 87"]);
}

#[test]
fn a_listener_may_let_anyone_take_over() {
    let rules = ClientIdRules {
        takeover_by_anyone: true,
        ..ClientIdRules::default()
    };
    let mut broker = broker(1, ClientIdRules::default());
    assert_eq!(answer(&mut broker, "ann", "desk"), ["CONNACK 0 00"]);
    assert_eq!(answer(&mut broker, "bob", "desk"), ["CONNACK 0 87"]);
    broker.input(0, Input::ClientIdRulesReplaced(Arc::new([rules])));
    assert_eq!(answer(&mut broker, "bob", "desk"), ["CONNACK 1 00"]);
}
