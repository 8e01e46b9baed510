//! Peers that take more than their part, say what they may not, or fail at a bad moment: what they
//! do to others has a limit, and no message is lost without a name.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::thread;

use unbroken_acceptance::Broker;
use unbroken_acceptance::process::signal;
use unbroken_acceptance::raw::Publish;
use unbroken_acceptance::raw::id::RESPONSE_TOPIC;

use crate::peer::{PUSH, Peer, REP, SUB, gateway};
use crate::{broker, count, last_counts};

/// 231 are nine times the 25 that are left to other addresses, or fewer.
#[test]
fn one_address_leaves_places_for_peers_of_others() {
    const PEERS_MAX: usize = 256;
    const OF_ONE_ADDRESS: usize = 231;
    let broker = broker("socket = \"pull\"\ntopic = \"t\"");
    let address = gateway(&broker, "it");
    let connect = |last: u8| Peer::connect_from(Ipv4Addr::new(127, 0, 0, last), address, PUSH);
    let mut peers: Vec<_> = (0..OF_ONE_ADDRESS).map(|_| connect(1)).collect();
    Peer::open(address).expect_closed();
    broker.wait_for_log("refused: 231 peers of its address are connected");
    peers.extend((2..).take(PEERS_MAX - OF_ONE_ADDRESS).map(connect));
    Peer::open_from(Ipv4Addr::new(127, 0, 0, 99), address).expect_closed();
    broker.wait_for_log("refused: 256 peers are connected");
    let mut client = broker.connect("client");
    client.subscribe_to("t", 1);
    for peer in &mut peers {
        peer.send(b"here");
        client.take_message("t", "here");
    }
    assert_eq!(count(&last_counts(broker), "turned-away"), 2);
}

/// 256 messages of 256 KiB are all 64 MiB, and no peer gets that much.
#[test]
fn a_subscriber_that_does_not_read_leaves_room_for_large_messages_to_others() {
    const MESSAGES: u64 = 300;
    let broker = broker("socket = \"pub\"\nfilter = \"news\"");
    let mut client = broker.connect("client");
    let mut fast = Peer::join(&broker, "it", SUB);
    let silent = Peer::join(&broker, "it", SUB);
    let payload = "x".repeat(256 << 10);
    for _ in 0..MESSAGES {
        client.publish(Publish::new("news", &payload).qos(1));
        fast.expect(format!("news\0{payload}"));
    }
    let counts = last_counts(broker);
    let missed = count(&counts, "slow-peer") + count(&counts, "peer-gone");
    assert_eq!(count(&counts, "sent") + missed, 2 * MESSAGES, "{counts:?}");
    drop(silent);
}

#[test]
fn a_reply_of_a_peer_that_was_not_asked_is_dropped() {
    let broker = broker("socket = \"req\"\nfilter = \"do\"");
    let mut client = broker.connect("client");
    client.subscribe_to("answers", 1);
    let mut asked = Peer::join(&broker, "it", REP);
    let request = Publish::new("do", "2+2").qos(1);
    client.publish(request.property(RESPONSE_TOPIC, "answers"));
    let body = asked.receive();
    let mut other = Peer::join(&broker, "it", REP);
    other.send(&[&body[..4], b"5"].concat());
    broker.wait_for_log("a reply to no request of its peer");
    asked.send(&[&body[..4], b"4"].concat());
    client.take_message("answers", "4");
    let counts = last_counts(broker);
    assert_eq!(
        (count(&counts, "published"), count(&counts, "late-reply")),
        (1, 1),
        "{counts:?}"
    );
}

/// The first peer takes no more requests, so the gateway waits in a write to it; its replies are
/// more than the gateway may hold while the broker stands still. Then it fails.
#[test]
fn requests_of_a_peer_that_fails_while_the_broker_stands_still_go_to_the_next() {
    const REQUESTS: usize = 60;
    const ANSWERED: usize = 17;
    const REPLY_BYTES: usize = (1 << 20) - 4;
    let served = Broker::start();
    let keys = format!("broker = \"{}\"\n", served.address());
    let it = broker(&format!("socket = \"req\"\nfilter = \"do\"\n{keys}"));
    let mut client = served.connect("client");
    client.subscribe_to("answers", 1);
    for number in 0..REQUESTS {
        let request = Publish::new("do", padded(&number.to_string(), 512 << 10)).qos(1);
        client.publish(request.property(RESPONSE_TOPIC, "answers"));
    }
    let mut first = Peer::connect(gateway(&it, "it"), REP);
    let asked: Vec<_> = (0..ANSWERED).map(|_| first.receive()).collect();
    signal(served.pid(), "STOP");
    let reply = |body: &[u8]| {
        let number = String::from_utf8_lossy(&body[4..]).trim().to_owned();
        [&body[..4], padded(&number, REPLY_BYTES).as_bytes()].concat()
    };
    first.send_while_taken(asked.iter().map(|body| reply(body)));
    drop(first);
    let mut second = Peer::connect(gateway(&it, "it"), REP);
    signal(served.pid(), "CONT");
    let answering = thread::spawn(move || {
        while let Some(body) = second.receive_or_end() {
            second.send(&reply(&body));
        }
    });
    let mut missing: BTreeSet<_> = (0..REQUESTS).collect();
    while !missing.is_empty() {
        let answer = client.expect_publish();
        client.complete(&answer);
        let number = answer.text().trim().parse().expect("it is a number");
        assert!(missing.remove(&number), "{number} came twice");
    }
    let counts = last_counts(it);
    answering.join().expect("it has only answered");
    let ended = count(&counts, "published") + count(&counts, "unpublished");
    assert_eq!(count(&counts, "received"), ended, "{counts:?}");
}

fn padded(text: &str, bytes: usize) -> String {
    " ".repeat(bytes - text.len()) + text
}

/// The peer is no longer read when the gateway has no room for more, and one message is on its way.
#[test]
fn a_message_that_waits_for_room_when_the_gateway_stops_is_counted() {
    let served = Broker::start();
    let keys = format!("broker = \"{}\"\n", served.address());
    let it = broker(&format!("socket = \"pull\"\ntopic = \"t\"\n{keys}"));
    signal(served.pid(), "STOP");
    let mut peer = Peer::join(&it, "it", PUSH);
    peer.send_while_taken((0..1_000).map(|_| vec![b'x'; 256 << 10]));
    let counts = last_counts(it);
    assert_eq!(count(&counts, "unpublished"), 1, "{counts:?}");
    let waiting = count(&counts, "received") - count(&counts, "published") - 1;
    assert!((1..=256).contains(&waiting), "{counts:?}");
}
