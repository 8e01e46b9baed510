//! Clients behind a slow link that acknowledge and ping: the broker hears them all the time.

use unbroken_acceptance::raw::{AckKind, Connect, PINGREQ, Packet, Publish, Version};
use unbroken_acceptance::slow_link::SlowLink;
use unbroken_acceptance::{Broker, Client};

/// Far more than a connection and the kernel take at once.
const MESSAGES: u16 = 3_000;
const MESSAGE_BYTES: usize = 4 * 1024;
const BYTES_PER_SECOND: usize = 1_000_000;
/// Messages that may be on their way in front of an answer.
const UNDER_WAY: u16 = 100;
const ROUNDS: u16 = 5;

fn publish_many(broker: &Broker, topic: impl Fn(u16) -> String, retained: bool) {
    let mut publisher = broker.connect("publisher");
    publisher.publish_all((0..MESSAGES).map(|number| {
        let mut payload = vec![b'x'; MESSAGE_BYTES];
        payload[..2].copy_from_slice(&number.to_be_bytes());
        let message = Publish::new(&topic(number), payload).qos(1);
        if retained {
            message.retained()
        } else {
            message
        }
    }));
}

/// Acknowledges what comes, and pings whenever the last ping is answered: no more than so many
/// messages stand in front of an answer, and no message comes twice.
fn take_with_pings(client: &mut Client) {
    let mut taken = Vec::new();
    for round in 0..ROUNDS {
        client.send(PINGREQ);
        let mut in_front = 0;
        loop {
            match client.receive() {
                Packet::PingResp => break,
                Packet::Publish(message) => {
                    in_front += 1;
                    assert!(in_front <= UNDER_WAY, "round {round}: no answer to a ping");
                    taken.push([message.payload[0], message.payload[1]]);
                    match message.qos {
                        1 => client.send_ack(AckKind::PubAck, message.packet_id),
                        2 => client.send_ack(AckKind::PubRec, message.packet_id),
                        _ => {}
                    }
                }
                Packet::Ack(ack) => client.send_ack(AckKind::PubComp, ack.packet_id),
                other => panic!("{other:?}"),
            }
        }
    }
    let count = taken.len();
    taken.sort_unstable();
    taken.dedup();
    assert_eq!(taken.len(), count, "a message came twice");
}

#[test]
fn pings_are_answered_in_front_of_a_backlog_and_its_messages_come_once() {
    for version in Version::ALL {
        for qos in [1, 2] {
            let broker = Broker::start();
            let connect = Connect::new(version, "slow").persistent().keep_alive(10);
            let mut away = broker.accept(&connect);
            away.subscribe_to("t", qos);
            away.disconnect();
            publish_many(&broker, |_| "t".to_owned(), false);
            let link = SlowLink::start(broker.address(), BYTES_PER_SECOND).expect("a relay");
            take_with_pings(&mut Client::connect(link.address(), &connect));
        }
    }
}

#[test]
fn pings_are_answered_in_front_of_retained_messages() {
    let broker = Broker::start();
    publish_many(&broker, |number| format!("r/{number}"), true);
    for (version, qos) in [(Version::V3_1_1, 0), (Version::V5, 1)] {
        let link = SlowLink::start(broker.address(), BYTES_PER_SECOND).expect("a relay");
        let connect = Connect::new(version, "slow").keep_alive(10);
        let mut client = Client::connect(link.address(), &connect);
        client.subscribe_to("r/#", qos);
        take_with_pings(&mut client);
    }
}
