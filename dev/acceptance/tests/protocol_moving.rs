//! Connections that move to the shard of their session: what a client has sent counts, however it
//! ends.

use std::ops::Range;

use unbroken_acceptance::raw::{Connect, Publish, Version, Will};
use unbroken_acceptance::{Broker, Client, Launch};

/// Enough for some to move, wherever their ids fall.
const CLIENTS: usize = 40;
const MESSAGES: usize = 100;
/// DISCONNECT as every version has it.
const GOODBYE: [u8; 2] = [0xE0, 0];

fn brokers() -> impl Iterator<Item = Broker> {
    let shards = [2, 8].into_iter();
    shards.map(|shards| Launch::default().shards(shards).start())
}

fn receiver(broker: &Broker) -> Client {
    let mut receiver = broker.connect("receiver");
    receiver.subscribe_to("t/#", 1);
    receiver
}

fn terms(version: Version, client_id: &str) -> Connect {
    Connect::new(version, client_id).will(Will::new("t/will", "gone"))
}

/// So many messages, of which one is of QoS 1 if any, and a goodbye, as they are sent.
fn burst(version: Version, at_qos_1: Option<usize>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for number in 0..MESSAGES {
        let mut message = Publish::new("t/a", number.to_string());
        if at_qos_1 == Some(number) {
            message = message.qos(1).packet_id(7);
        }
        bytes.extend(message.encode(version));
    }
    bytes.extend(GOODBYE);
    bytes
}

/// These of a burst come next, and no will.
#[track_caller]
fn expect(receiver: &mut Client, numbers: Range<usize>) {
    for number in numbers {
        let message = receiver.expect_publish();
        let expected = ("t/a", number.to_string());
        assert_eq!((&*message.topic, message.text()), expected);
        receiver.complete(&message);
    }
}

/// Sends a burst and is gone; the broker has begun to look at it.
#[track_caller]
fn leave(mut client: Client, receiver: &mut Client) {
    client.send(burst(Version::V3_1_1, None));
    drop(client);
    expect(receiver, 0..1);
}

/// [MQTT-3.1.2-10, MQTT-3.14.4-3, MQTT311-3.1.2-10, MQTT311-3.14.4-3]
#[test]
fn who_publishes_much_and_says_goodbye_in_one_write_loses_nothing_and_leaves_no_will() {
    for at_qos_1 in [None, Some(50)] {
        for broker in brokers() {
            let mut receiver = receiver(&broker);
            for (number, version) in (0..CLIENTS).zip([Version::V3_1_1, Version::V5].iter().cycle())
            {
                let client_id = format!("p{number}");
                let mut client = broker.accept(&terms(*version, &client_id));
                client.send(burst(*version, at_qos_1));
                client.finish_sending();
                expect(&mut receiver, 0..MESSAGES);
            }
            receiver.expect_nothing_from(&mut broker.connect("other"));
        }
    }
}

/// The next connection of a client does not overtake what it sent over the last one.
#[test]
fn who_says_goodbye_and_is_back_at_once_has_lost_nothing() {
    for broker in brokers() {
        let mut receiver = receiver(&broker);
        for number in 0..CLIENTS {
            let client_id = format!("p{number}");
            let client = broker.accept(&terms(Version::V3_1_1, &client_id));
            leave(client, &mut receiver);
            let again = broker.accept(&Connect::new(Version::V3_1_1, &client_id));
            expect(&mut receiver, 1..MESSAGES);
            again.disconnect();
        }
        receiver.expect_nothing_from(&mut broker.connect("other"));
    }
}
