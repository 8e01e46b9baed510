//! Rates: what a client that is over its rate gets, and when.

use unbroken_acceptance::raw::{
    AckKind, Connect, PINGREQ, Packet, Publish, Version, Will, id, reason,
};
use unbroken_acceptance::{Broker, Client, Launch, case};

const SERVER_UNAVAILABLE: u8 = 3;

/// Sends so many messages of quality 1 at once, with the packet identifiers from 1 on.
fn burst(client: &mut Client, count: u16) {
    let version = client.version();
    let messages = (1..=count).map(|id| Publish::new("a", "x").qos(1).packet_id(id));
    let bytes: Vec<_> = messages.map(|message| message.encode(version)).collect();
    client.send(bytes.concat());
}

/// What is not read is not silence. Behind the last message its time runs again.
/// [MQTT-3.1.2-22, MQTT311-3.1.2-24]
#[test]
fn a_slowed_client_is_alive_for_longer_than_its_keep_alive() {
    let broker = Broker::with_config("[[rates]]\nbytes_per_second = \"100 B\"\n");
    for version in [Version::V3_1_1, Version::V5] {
        case(&format!("{version:?}"));
        let mut client = broker.accept(&Connect::new(version, "slowed").keep_alive(1));
        // It is not read for three seconds: twice as long as it may be silent.
        let message = Publish::new("a", "x".repeat(400)).qos(1).packet_id(1);
        client.send_publish(&message);
        client.send(PINGREQ);
        client.expect_ack(AckKind::PubAck, 1);
        assert_eq!(
            client.receive(),
            Packet::PingResp,
            "it stood behind the message"
        );
        client.expect_dropped(reason::KEEP_ALIVE_TIMEOUT);
    }
}

/// It is read at the rate, and its DISCONNECT is one of its packets: no will is published.
#[test]
fn a_slowed_client_that_ends_well_has_sent_everything() {
    let broker = Broker::with_config("[[rates]]\nmessages_per_second = 2\n");
    let mut receiver = broker.connect("receiver");
    receiver.subscribe_to("#", 0);
    let connect = Connect::v5("slowed").will(Will::new("will", "it was lost"));
    let mut client = broker.accept(&connect);
    burst(&mut client, 5);
    client.disconnect();
    for _ in 0..5 {
        receiver.expect_message("a", "x");
    }
    receiver.expect_pong();
}

/// Its acknowledgement stands behind what it publishes, so the next message waits, too.
/// [MQTT-3.3.4-9, MQTT-4.9.0-1]
#[test]
fn acknowledgements_of_a_slowed_client_wait_with_it() {
    let broker = Broker::with_config("[[rates]]\nmessages_per_second = 1\n");
    let connect = Connect::v5("slowed").property(id::RECEIVE_MAXIMUM, 1);
    let mut client = broker.accept(&connect);
    client.subscribe_to("b", 1);
    let mut sender = broker.connect("sender");
    sender.publish(Publish::new("b", "1").qos(1));
    let first = client.expect_message("b", "1");
    burst(&mut client, 3);
    client.complete(&first);
    sender.publish(Publish::new("b", "2").qos(1));
    for number in 1..=3 {
        client.expect_ack(AckKind::PubAck, number);
    }
    client.take_message("b", "2");
}

/// All clients without a user name count as one user.
/// [MQTT-3.2.2-7, MQTT311-3.2.2-5]
#[test]
fn connections_beyond_a_rate_are_refused_by_name() {
    for (version, expected) in [
        (Version::V5, reason::CONNECTION_RATE_EXCEEDED),
        (Version::V3_1_1, SERVER_UNAVAILABLE),
    ] {
        case(&format!("{version:?}"));
        let config = "[[rates]]\nper = \"user\"\nconnections_per_second = 2\n";
        let broker = Launch::config(config).start();
        let mut accepted = Vec::new();
        // On whatever machine: sooner or later there are three in a second.
        let refusal = (0..1_000).find_map(|number| {
            let connect = Connect::new(version, &format!("client {number}"));
            let mut client = broker.attempt(&connect);
            let connack = client.expect_connack();
            if connack.reason == 0 {
                accepted.push(client);
                return None;
            }
            client.expect_closed();
            Some(connack.reason)
        });
        assert_eq!(refusal, Some(expected));
        assert!(accepted.len() >= 2, "{}", accepted.len());
        broker.wait_for_log("connections_per_second of rates.0 (clients without a user)");
        for client in &mut accepted {
            client.expect_pong();
        }
    }
}

/// Two clients have one rate together: with what each sends alone none would be slowed.
#[test]
fn clients_of_one_rate_share_it_on_all_shards() {
    let config = "[broker]\nsys_interval = \"1s\"\n[limits]\nrate_patience = \"1s\"\n\
                  [[rates]]\nper = \"all\"\nmessages_per_second = 4\n";
    let broker = Launch::config(config).shards(3).start();
    let mut clients: Vec<_> = (0..8)
        .map(|number| broker.connect(&format!("client {number}")))
        .collect();
    for client in &mut clients {
        burst(client, 4);
    }
    // 32 messages at 4 in a second: some wait for longer than they may.
    let mut refused = 0;
    for client in &mut clients {
        while let Some(packet) = client.receive_or_close() {
            match packet {
                Packet::Ack(ack) if ack.packet_id == 4 => break,
                Packet::Ack(_) => {}
                Packet::Disconnect(told) => {
                    assert_eq!(told.code, reason::MESSAGE_RATE_TOO_HIGH);
                    refused += 1;
                }
                other => panic!("{other:?}"),
            }
        }
    }
    assert!(refused > 0, "each had its own rate");
    broker.wait_for_log("messages_per_second of rates.0");
}
