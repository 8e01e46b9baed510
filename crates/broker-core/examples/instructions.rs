//! Fixed pieces of the hot path, whose instructions `cargo xtask instructions` counts.
//!
//! With the name of a piece it is prepared, run a little and then run often inside [`counted`], and
//! the number of things done there (packets, messages, deliveries) is printed; with `none` behind
//! the name it is not run in there at all. Without a name all are listed, one a line.
//!
//! A shard is driven by its public face alone, as the broker does it, so a piece holds what a
//! message really passes: `match` is a topic that was not seen before, `route` one that was.
//! Absent: what a driver and the kernel do.

#![allow(clippy::print_stdout, reason = "a program's output")]
#![allow(clippy::unwrap_used, reason = "a measurement that cannot go on ends")]

mod in_memory;

use std::hint::black_box;

use unbroken_mqtt_proto::{Packet, Version, next_frame};

use in_memory::{Broker, packet, string};

/// Work that is done again and again.
type Work = Box<dyn FnMut()>;

struct Piece {
    name: &'static str,
    rounds: u32,
    /// What a round comes to.
    things: u32,
    prepare: fn() -> Work,
}

const PIECES: [Piece; 12] = [
    Piece {
        name: "decode",
        rounds: 2_000,
        things: 8,
        prepare: decode,
    },
    Piece {
        name: "encode",
        rounds: 2_000,
        things: 8,
        prepare: encode,
    },
    Piece {
        name: "match",
        rounds: 5_000,
        things: 1,
        prepare: match_new_topics,
    },
    Piece {
        name: "route",
        rounds: 10_000,
        things: 1,
        prepare: || deliver(0, 1),
    },
    Piece {
        name: "route-qos1",
        rounds: 10_000,
        things: 1,
        prepare: || deliver(1, 1),
    },
    Piece {
        name: "fan-out",
        rounds: 30,
        things: SUBSCRIBERS,
        prepare: || deliver(0, SUBSCRIBERS),
    },
    Piece {
        name: "fan-out-qos1",
        rounds: 30,
        things: SUBSCRIBERS,
        prepare: || deliver(1, SUBSCRIBERS),
    },
    Piece {
        name: "fan-out-own",
        rounds: 30,
        things: SUBSCRIBERS,
        prepare: deliver_with_identifiers,
    },
    Piece {
        name: "filter-of-20",
        rounds: 50,
        things: 20,
        prepare: || come_and_go(20),
    },
    Piece {
        name: "filter-of-2000",
        rounds: 2,
        things: 2_000,
        prepare: || come_and_go(2_000),
    },
    Piece {
        name: "retain-beside-20",
        rounds: 1_000,
        things: 1,
        prepare: || retain_beside(20),
    },
    Piece {
        name: "retain-beside-2000",
        rounds: 1_000,
        things: 1,
        prepare: || retain_beside(2_000),
    },
];
const SUBSCRIBERS: u32 = 500;
const PAYLOAD: [u8; 16] = [b'x'; 16];
/// Rounds before the counted ones, in which buffers and tables grow.
const WARM_UP: u32 = 10;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let asked = arguments.next();
    let Some(piece) = PIECES
        .iter()
        .find(|piece| asked.as_deref() == Some(piece.name))
    else {
        for piece in &PIECES {
            println!("{}", piece.name);
        }
        return;
    };
    let mut work = (piece.prepare)();
    for _ in 0..WARM_UP {
        work();
    }
    let rounds = match arguments.next().as_deref() {
        Some("none") => 0,
        _ => piece.rounds,
    };
    counted(rounds, &mut work);
    println!("{}", rounds * piece.things);
}

/// Instructions are counted in here and in what it calls.
#[inline(never)]
fn counted(rounds: u32, work: &mut Work) {
    // Callgrind counts calls from the start of the program, but lists those only that it has seen
    // in here: so one of each kind of allocation, with any number of rounds.
    let mut bytes = black_box(Vec::<u8>::with_capacity(1));
    bytes.reserve_exact(black_box(64));
    black_box((&bytes, vec![0_u8; black_box(64)]));
    for _ in 0..rounds {
        work();
    }
}

/// One of most kinds of packet, and of PUBLISH in three forms.
const PACKETS: [(Version, &[u8]); 8] = [
    (Version::V3_1_1, b"\x30\x14\0\x10plant/7/press/t1abcd"),
    (Version::V3_1_1, b"\x32\x16\0\x10plant/7/press/t1\0\x07abcd"),
    // Content Type, a user property, Message Expiry Interval.
    (
        Version::V5,
        b"\x34\x2b\0\x10plant/7/press/t1\0\x07\x12\x02\0\0\0\x3c\x03\0\x03txt\x26\0\x01k\0\x01vabcd",
    ),
    (Version::V3_1_1, b"\x40\x02\0\x07"),
    (Version::V5, b"\x50\x03\0\x07\x10"),
    (Version::V3_1_1, b"\x82\x0c\0\x09\0\x07plant/+\x01"),
    (Version::V3_1_1, b"\x10\x10\0\x04MQTT\x04\x02\0\x3c\0\x04press"),
    (Version::V3_1_1, b"\xc0\0"),
];

fn decode() -> Work {
    Box::new(|| {
        for (version, bytes) in black_box(&PACKETS) {
            black_box(decoded(*version, bytes));
        }
    })
}

fn encode() -> Work {
    let packets = PACKETS.map(|(version, bytes)| (version, decoded(version, bytes)));
    let mut out = Vec::new();
    Box::new(move || {
        out.clear();
        for (version, packet) in black_box(&packets) {
            packet.encode(*version, &mut out).unwrap();
        }
        black_box(&out);
    })
}

fn decoded(version: Version, bytes: &[u8]) -> Packet<'_> {
    let frame = next_frame(bytes, u32::MAX).unwrap().unwrap();
    Packet::decode(frame, version).unwrap()
}

/// Topics that come for the first time, among 10,000 filters of 100 sessions. Two filters match
/// each, both of one session.
fn match_new_topics() -> Work {
    let mut broker = with_publisher();
    for n in 1..=100_u32 {
        broker.connect(n, &format!("subscriber-{n}"));
        for m in 0..50 {
            for filter in [
                format!("site/{n}/device/{m}/+"),
                format!("site/{n}/+/{m}/#"),
            ] {
                broker.send(n, &subscribe(&filter, 0));
            }
        }
        broker.write(0);
    }
    let topic = |k: u32| format!("site/{}/device/{}/value-{k}", k % 100 + 1, k % 50);
    let messages: Vec<_> = (0..5_000 + WARM_UP).map(|k| plain(&topic(k))).collect();
    let mut messages = messages.into_iter();
    Box::new(move || {
        broker.begin_turn();
        broker.send(PUBLISHER, &messages.next().unwrap());
        assert!(broker.write(0) > 0, "nobody got it");
    })
}

/// One topic, again and again, to so many subscribers of MQTT 3.1.1.
fn deliver(qos: u8, subscribers: u32) -> Work {
    let mut broker = with_publisher();
    for n in 1..=subscribers {
        broker.connect(n, &format!("subscriber-{n}"));
        broker.send(n, &subscribe(TOPIC, qos));
    }
    let message = match qos {
        0 => plain(TOPIC),
        _ => packet(0x32, &[&string(TOPIC)[..], &[0, 1], &PAYLOAD].concat()),
    };
    publish(broker, message, qos)
}

/// The same to subscribers of MQTT 5.0, each with a subscription identifier of its own, so that
/// each has a packet of its own.
fn deliver_with_identifiers() -> Work {
    let mut broker = with_publisher();
    for n in 1..=SUBSCRIBERS {
        broker.connect_v5(n, &format!("subscriber-{n}"));
        let identifier = u8::try_from(n % 100 + 1).unwrap();
        let body = [&[0, 1, 2, 0x0b, identifier], &string(TOPIC)[..], &[0]].concat();
        broker.send(n, &packet(0x82, &body));
    }
    publish(broker, plain(TOPIC), 0)
}

/// A client subscribes to so many filters in one packet, and in another goes from all before it was
/// sent what is retained for them: what a filter takes does not grow with their number.
fn come_and_go(filters: u16) -> Work {
    let mut broker = with_publisher();
    let (mut subscribe, mut unsubscribe) = (vec![0, 1], vec![0, 2]);
    for n in 0..filters {
        let filter = string(&format!("site/7/device/{n}/+"));
        subscribe.extend([&filter[..], &[1]].concat());
        unsubscribe.extend(filter);
    }
    let (subscribe, unsubscribe) = (packet(0x82, &subscribe), packet(0xa2, &unsubscribe));
    broker.write(0);
    Box::new(move || {
        broker.send(PUBLISHER, &subscribe);
        broker.begin_turn();
        broker.send(PUBLISHER, &unsubscribe);
        broker.begin_turn();
        assert!(broker.write(0) > 0, "no answer");
    })
}

/// A client gets a message that is to be retained, while so many of its subscriptions are still to
/// be sent what is retained for them: what it takes does not grow with their number.
fn retain_beside(filters: u16) -> Work {
    let mut broker = with_publisher();
    broker.connect(SUBSCRIBER, "subscriber");
    broker.send(SUBSCRIBER, &subscribe(TOPIC, 0));
    broker.write(0);
    // With it more than half of what may wait for a client does so, and the second is not sent.
    let large = [&string("large")[..], &vec![b'x'; 2_500_000]].concat();
    broker.send(PUBLISHER, &packet(0x31, &large));
    let mut body = vec![0, 1];
    for filter in ["large".to_owned(), "large".to_owned()]
        .into_iter()
        .chain((0..filters).map(|n| format!("site/7/device/{n}/+")))
    {
        body.extend([&string(&filter)[..], &[0]].concat());
    }
    broker.send(SUBSCRIBER, &packet(0x82, &body));
    let message = packet(0x31, &[&string(TOPIC)[..], &PAYLOAD].concat());
    Box::new(move || {
        let before = broker.waiting(SUBSCRIBER);
        broker.send(PUBLISHER, &message);
        let after = broker.waiting(SUBSCRIBER);
        assert!(before > 2_500_000 && after > before, "{before}, {after}");
    })
}

const TOPIC: &str = "plant/7/press/temperature";
const PUBLISHER: u32 = 0;
const SUBSCRIBER: u32 = 1;

fn with_publisher() -> Broker {
    let mut broker = Broker::new(true);
    broker.connect(PUBLISHER, "publisher");
    broker
}

fn publish(mut broker: Broker, message: Vec<u8>, qos: u8) -> Work {
    broker.write(0);
    Box::new(move || {
        broker.send(PUBLISHER, &message);
        assert!(broker.write(qos) > 0, "nobody got it");
    })
}

fn subscribe(filter: &str, qos: u8) -> Vec<u8> {
    packet(0x82, &[&[0, 1], &string(filter)[..], &[qos]].concat())
}

fn plain(topic: &str) -> Vec<u8> {
    packet(0x30, &[&string(topic)[..], &PAYLOAD].concat())
}
