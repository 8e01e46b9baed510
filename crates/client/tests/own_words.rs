//! A client whose SUBSCRIBE, CONNECT and DISCONNECT are worded by the application, against a broker
//! that sends exactly what a test makes it send.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use support::within;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use unbroken_client::{
    Acknowledging, ConnectError, Direction, Event, Filter, Limits, Message, Options, Packet,
    PublishError, QoS, ReasonCode, Retries, RetryDuration, Session, SubscribeError, Version,
};
use unbroken_mqtt_proto::{Property, PropertyBuf, next_frame};

const CONNECT: u8 = 0x10;
const SUBSCRIBE: u8 = 0x82;
const DISCONNECT: u8 = 0xe0;

/// The broker's end: a listener, and connections that the test reads and writes.
struct Broker(TcpListener);

struct Peer {
    stream: TcpStream,
    unread: Vec<u8>,
}

impl Broker {
    async fn listen() -> Self {
        Self(TcpListener::bind("127.0.0.1:0").await.unwrap())
    }

    /// A client of 5.0 without a session or limits of its own, which does not try for long.
    fn options(&self) -> Options {
        let mut limits = Limits::default();
        limits.receive_maximum = u16::MAX;
        limits.packet_bytes_max = u32::MAX;
        let pause = RetryDuration(Duration::from_millis(1));
        Options::new(self.0.local_addr().unwrap().into())
            .client_id("me")
            .session(Session::Temporary)
            .limits(limits)
            .pauses(pause, pause)
    }

    async fn accept(&self) -> Peer {
        let (stream, _) = within("a connection", self.0.accept()).await.unwrap();
        Peer {
            stream,
            unread: Vec::new(),
        }
    }

    /// The next client, let in without a session.
    async fn welcome(&self) -> Peer {
        let mut peer = self.accept().await;
        peer.expect(CONNECT).await;
        peer.send(&[0x20, 3, 0, 0, 0]).await;
        peer
    }
}

impl Peer {
    async fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    /// The next packet without its first byte, which must be this one.
    async fn expect(&mut self, first: u8) -> Vec<u8> {
        let packet = self.receive().await.expect("a packet");
        assert_eq!(packet[0], first, "{packet:02x?}");
        packet[1..].to_vec()
    }

    async fn receive(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(frame) = next_frame(&self.unread, u32::MAX).unwrap() {
                let packet = frame.bytes.to_vec();
                self.unread.drain(..packet.len());
                return Some(packet);
            }
            let read = self.stream.read_buf(&mut self.unread);
            if within("a packet", read).await.unwrap() == 0 {
                return None;
            }
        }
    }
}

fn properties(all: &[Property<'_>]) -> PropertyBuf {
    let mut properties = PropertyBuf::new();
    for property in all {
        properties.push(*property).unwrap();
    }
    properties
}

fn filter(text: &str) -> Filter {
    Filter::new(text).unwrap().qos(QoS::AtLeastOnce)
}

fn message(text: &str) -> Message {
    Message::new("a", text.as_bytes()).unwrap()
}

#[tokio::test]
async fn one_subscribe_has_all_filters_and_its_messages_are_unclaimed() {
    let broker = Broker::listen().await;
    let (client, mut unclaimed) = broker.options().start_with_unclaimed(Acknowledging::ByHand);
    let mut peer = broker.welcome().await;
    client.connected().await.unwrap();
    let given = properties(&[Property::SubscriptionIdentifier(5)]);
    let filters = vec![filter("a"), filter("#").retain_as_published()];
    let asking = client.send_subscribe(filters, given.as_properties());
    let answering = async {
        let subscribe = peer.expect(SUBSCRIBE).await;
        assert_eq!(subscribe[3..], *b"\x02\x0b\x05\0\x01a\x01\0\x01#\x09");
        // Before the answer, a message of a session that was resumed.
        peer.send(b"\x32\x07\0\x01b\0\x07\0x").await;
        peer.send(&[&[0x90, 5], &subscribe[1..3], &[0, 1, 0x87]].concat())
            .await;
        // Two copies, as the filters overlap.
        peer.send(b"\x30\x05\0\x01a\0y\x30\x05\0\x01a\0y").await;
    };
    let (answer, ()) = tokio::join!(asking, answering);
    let answer = answer.unwrap();
    let reasons = [ReasonCode::GrantedQoS1, ReasonCode::NotAuthorized];
    assert_eq!((&*answer.reasons, answer.unclaimed), (&reasons[..], 1));
    for (topic, id) in [("b", Some(7)), ("a", None), ("a", None)] {
        let received = within("a message", unclaimed.recv()).await.unwrap();
        let received_id = received.packet_id().map(unbroken_client::PacketId::get);
        assert_eq!((received.topic(), received_id), (topic, id));
        received.acknowledge();
    }
    assert_eq!(peer.expect(0x40).await[1..3], [0, 7]);
}

#[tokio::test]
async fn a_request_does_not_outlive_its_connection() {
    let broker = Broker::listen().await;
    let client = broker.options().retries(Retries::AfterLoss).start();
    let mut events = client.events();
    let mut peer = broker.welcome().await;
    client.connected().await.unwrap();
    let empty = PropertyBuf::new();
    let asking = client.send_subscribe(vec![filter("a")], empty.as_properties());
    let losing = async {
        peer.expect(SUBSCRIBE).await;
        drop(peer);
    };
    let (answer, ()) = tokio::join!(asking, losing);
    assert!(
        matches!(answer, Err(SubscribeError::NotAnswered)),
        "{answer:?}"
    );
    let mut peer = broker.welcome().await;
    client.connected().await.unwrap();
    client.disconnect().await;
    // It is not asked for again.
    peer.expect(DISCONNECT).await;
    let mut connected = 0;
    while let Some(event) = within("the end", events.next()).await {
        match event {
            Event::Connected { .. } => connected += 1,
            Event::Ended { .. } => break,
            _ => {}
        }
    }
    assert_eq!(connected, 2);
}

#[tokio::test]
async fn a_batch_reports_each_message_that_was_not_published() {
    let broker = Broker::listen().await;
    let client = broker.options().start();
    let mut peer = broker.welcome().await;
    client.connected().await.unwrap();
    let texts = ["1", "2", "3"];
    let batch = texts.map(message).to_vec();
    let mut receipts = client.send_all(batch).await.unwrap();
    for (text, reason) in texts.iter().zip([0, 0x97, 0]) {
        let publish = peer.expect(0x32).await;
        assert_eq!(publish[publish.len() - 1..], *text.as_bytes());
        peer.send(&[0x40, 3, publish[4], publish[5], reason]).await;
    }
    let failures = within("the answer", receipts.finished()).await;
    let [
        PublishError::Refused {
            packet_id, reason, ..
        },
    ] = &failures[..]
    else {
        panic!("{failures:?}");
    };
    assert_eq!((packet_id.get(), *reason), (2, ReasonCode::QuotaExceeded));
    // Of QoS 0, more than the limit that a client has for single ones.
    let batch: Vec<_> = (0..5_000)
        .map(|_| message("x").qos(QoS::AtMostOnce))
        .collect();
    let mut receipts = within("their turn", client.send_all(batch)).await.unwrap();
    let reading = async {
        for _ in 0..5_000 {
            peer.expect(0x30).await;
        }
    };
    let (failures, ()) = tokio::join!(receipts.finished(), reading);
    assert!(failures.is_empty(), "{failures:?}");
    // The client ends with a batch unfinished.
    let mut receipts = client.send_all(texts.map(message).to_vec()).await.unwrap();
    client.disconnect().await;
    let failures = within("the answer", receipts.finished()).await;
    assert_eq!(failures.len(), 3, "{failures:?}");
}

#[tokio::test]
async fn given_properties_take_the_place_of_others() {
    let broker = Broker::listen().await;
    let given = properties(&[
        Property::SessionExpiryInterval(7),
        Property::ReceiveMaximum(9),
        Property::MaximumPacketSize(99),
    ]);
    let client = broker
        .options()
        .session(Session::Kept { expiry_s: 60 })
        .limits(Limits::default())
        .properties(given.as_properties())
        .password("secret")
        .connect_from("127.0.0.1")
        .start();
    let mut peer = broker.accept().await;
    let connect = peer.expect(CONNECT).await;
    let expected =
        b"\0\x04MQTT\x05\x40\0\x3c\x0d\x11\0\0\0\x07\x21\0\x09\x27\0\0\0\x63\0\x02me\0\x06secret";
    assert_eq!(connect[1..], *expected);
    peer.send(&[0x20, 3, 0, 0, 0]).await;
    client.connected().await.unwrap();
    let last = properties(&[Property::SessionExpiryInterval(3)]);
    client.disconnect_with(last.as_properties()).await.unwrap();
    assert_eq!(peer.expect(DISCONNECT).await, b"\x07\0\x05\x11\0\0\0\x03");
}

#[tokio::test]
async fn an_observer_sees_the_packets_and_the_topics_behind_aliases() {
    let broker = Broker::listen().await;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&seen);
    let observer = move |direction: Direction, packet: &Packet<'_>| {
        let topic = match packet {
            Packet::Publish(publish) => publish.topic,
            _ => "",
        };
        let line = format!("{direction:?} {} {topic}", packet.packet_type());
        noted.lock().unwrap().push(line.trim_end().to_owned());
    };
    let given = properties(&[Property::TopicAliasMaximum(3)]);
    let (client, mut unclaimed) = broker
        .options()
        .properties(given.as_properties())
        .observer(observer)
        .start_with_unclaimed(Acknowledging::Automatic);
    let mut peer = broker.welcome().await;
    client.connected().await.unwrap();
    peer.send(b"\x30\x08\0\x01a\x03\x23\0\x03x\x32\x09\0\0\0\x01\x03\x23\0\x03y")
        .await;
    for _ in 0..2 {
        let received = within("a message", unclaimed.recv()).await.unwrap();
        assert_eq!(received.topic(), "a");
    }
    peer.expect(0x40).await;
    client.disconnect().await;
    assert_eq!(
        *seen.lock().unwrap(),
        [
            "Sent CONNECT",
            "Received CONNACK",
            "Received PUBLISH a",
            "Received PUBLISH a",
            "Sent PUBACK",
            "Sent DISCONNECT"
        ]
    );
}

#[tokio::test]
async fn an_alias_of_a_message_is_sent_as_far_as_the_broker_takes_it() {
    let broker = Broker::listen().await;
    let client = broker.options().start();
    let mut peer = broker.accept().await;
    peer.expect(CONNECT).await;
    peer.send(&[0x20, 6, 0, 0, 3, 0x22, 0, 4]).await;
    let with_alias = |alias| {
        let given = properties(&[Property::TopicAlias(alias)]);
        message("x").with_properties(given.as_properties())
    };
    let refused = client.publish(with_alias(5)).await;
    let max = PublishError::TopicAliasNotSupported { max: 4 };
    assert_eq!(refused.unwrap_err().to_string(), max.to_string());
    let receipt = client.send(with_alias(4).qos(QoS::AtMostOnce)).await;
    receipt.unwrap().acknowledged().await.unwrap();
    assert_eq!(peer.expect(0x30).await, b"\x08\0\x01a\x03\x23\0\x04x");
}

#[tokio::test]
async fn a_client_that_does_not_return_ends_with_the_reason() {
    // What the broker says at last, and the one thing that the client may return for.
    for retries in [Retries::Never, Retries::AfterLoss] {
        let broker = Broker::listen().await;
        let client = broker.options().retries(retries).start();
        let mut peer = broker.welcome().await;
        client.connected().await.unwrap();
        peer.send(&[DISCONNECT, 1, 0x97]).await;
        let failed = within("the end", client.publish(message("x"))).await;
        let Err(PublishError::Ended(why)) = failed else {
            panic!("{retries:?}: {failed:?}");
        };
        assert!(!why.is_loss(), "{retries:?}: {why}");
    }
    // A first try that fails.
    for retries in [Retries::Never, Retries::AfterLoss] {
        let broker = Broker::listen().await;
        let options = broker.options().retries(retries);
        drop(broker);
        let why = within("the end", options.connect()).await.unwrap_err();
        assert!(
            matches!(
                why,
                ConnectError::Connect {
                    address: Some(_),
                    ..
                }
            ),
            "{why}"
        );
    }
    // A loss.
    let broker = Broker::listen().await;
    let client = broker.options().retries(Retries::Never).start();
    let peer = broker.welcome().await;
    client.connected().await.unwrap();
    drop(peer);
    let failed = within("the end", client.publish(message("x"))).await;
    let Err(PublishError::Ended(why)) = failed else {
        panic!("{failed:?}");
    };
    assert!(why.is_loss(), "{why}");
}

#[tokio::test]
async fn a_fault_behind_the_last_disconnect_is_reported() {
    for version in [Version::V5, Version::V3_1_1] {
        let broker = Broker::listen().await;
        let client = broker.options().version(version).start();
        let mut peer = broker.accept().await;
        peer.expect(CONNECT).await;
        peer.send(match version {
            Version::V5 => &[0x20, 3, 0, 0, 0],
            _ => &[0x20, 2, 0, 0],
        })
        .await;
        client.connected().await.unwrap();
        let empty = PropertyBuf::new();
        let ending = async {
            peer.expect(DISCONNECT).await;
            if version == Version::V5 {
                peer.send(&[DISCONNECT, 1, 0x87]).await;
            }
            drop(peer);
        };
        let (left, ()) = tokio::join!(client.disconnect_with(empty.as_properties()), ending);
        match version {
            Version::V5 => {
                let why = left.unwrap_err();
                let reason = ReasonCode::NotAuthorized;
                assert!(
                    matches!(why, ConnectError::Disconnected { reason: its, .. } if its == reason)
                );
            }
            _ => left.unwrap(),
        }
    }
}
