//! One shard, one publisher and some subscribers in memory: what a message costs the core itself,
//! counted in instructions rather than timed.
//!
//! ```text
//! cargo build --release -p unbroken-broker-core --example one_shard
//! valgrind --tool=callgrind --callgrind-out-file=/dev/null \
//!     target/release/examples/one_shard MESSAGES PAYLOAD QOS SUBSCRIBERS on|off
//! ```
//!
//! Run it with two numbers of messages: the difference is what the messages cost.

#![allow(clippy::print_stdout, reason = "a program's output")]
#![allow(clippy::unwrap_used, reason = "a measurement that cannot go on ends")]

use std::sync::Arc;
use std::time::Instant;

use unbroken_broker_core::{
    Admission, ConnectionId, Input, Limits, Output, Peer, Settings, Shard, ShardId, ShardOptions,
    Totals,
};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [messages, payload, qos, subscribers, audit] = arguments.as_slice() else {
        println!("usage: one_shard MESSAGES PAYLOAD QOS SUBSCRIBERS on|off");
        return;
    };
    let qos: u8 = qos.parse().unwrap();
    let subscribers: u32 = subscribers.parse().unwrap();
    let mut broker = Broker::new(audit == "on");
    broker.connect(0, "publisher");
    for n in 1..=subscribers {
        broker.connect(n, &format!("subscriber-{n}"));
        broker.send(
            n,
            &packet(0x82, &[b"\0\x01\0\x04a/bc", &[qos][..]].concat()),
        );
    }
    let payload = vec![b'x'; payload.parse().unwrap()];
    let mut written = 0;
    for n in 0..messages.parse::<u32>().unwrap() {
        let id = u16::try_from(n % 1_000 + 1).unwrap();
        let bytes = match qos {
            0 => packet(0x30, &[b"\0\x04a/bc", &payload[..]].concat()),
            _ => packet(
                0x32,
                &[b"\0\x04a/bc", &id.to_be_bytes()[..], &payload].concat(),
            ),
        };
        broker.send(0, &bytes);
        written += broker.write(qos);
    }
    println!("{written} bytes");
}

struct Broker {
    shard: Shard,
    now: Instant,
    dirty: Vec<ConnectionId>,
}

impl Broker {
    #[expect(clippy::disallowed_methods, reason = "the epoch of a measurement")]
    fn new(audit: bool) -> Self {
        let mut settings = Settings::default();
        settings.sys_interval = None;
        settings.audit.enabled = audit;
        let now = Instant::now();
        let shard = Shard::new(ShardOptions {
            id: ShardId(0),
            shards: 1,
            limits: Limits::default(),
            settings,
            totals: Arc::new(Totals::default()),
            seed: 1,
            start: now,
        });
        let dirty = Vec::new();
        Self { shard, now, dirty }
    }

    fn connect(&mut self, index: u32, client_id: &str) {
        let connection = named(index);
        let (address, listener) = (None, 0);
        let peer = Peer { address, listener };
        self.input(Input::Opened { connection, peer });
        let length = u16::try_from(client_id.len()).unwrap().to_be_bytes();
        let body = [b"\0\x04MQTT\x04\x02\0\0", &length[..], client_id.as_bytes()].concat();
        self.send(index, &packet(0x10, &body));
        let admission = Admission::Granted { user: None };
        self.input(Input::Authenticated {
            connection,
            admission,
        });
    }

    fn send(&mut self, index: u32, bytes: &[u8]) {
        let connection = named(index);
        self.input(Input::Received { connection, bytes });
    }

    fn input(&mut self, input: Input<'_>) {
        for output in self.shard.handle(self.now, input) {
            assert!(!matches!(output, Output::Close { .. }), "{output:?}");
        }
    }

    /// Takes what is to be written; at QoS 1 receivers acknowledge it.
    fn write(&mut self, qos: u8) -> usize {
        let mut dirty = std::mem::take(&mut self.dirty);
        self.shard.take_dirty(&mut dirty);
        let mut written = 0;
        for id in dirty.drain(..) {
            let output = self.shard.pending_output(id);
            let length = output.len();
            let publish = qos > 0 && output.first() == Some(&0x32);
            let packet_id = publish.then(|| packet_id_of(output));
            self.shard.wrote(self.now, id, length);
            written += length;
            if let Some(packet_id) = packet_id {
                self.send(id.index, &[&b"\x40\x02"[..], &packet_id].concat());
            }
        }
        self.dirty = dirty;
        written
    }
}

/// The two bytes behind the topic of a PUBLISH.
fn packet_id_of(publish: &[u8]) -> [u8; 2] {
    let length_bytes = publish[1..]
        .iter()
        .take_while(|byte| **byte >= 0x80)
        .count()
        + 1;
    let at = 1 + length_bytes + 2 + 4;
    [publish[at], publish[at + 1]]
}

fn named(index: u32) -> ConnectionId {
    let serial = index;
    ConnectionId { index, serial }
}

fn packet(first: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![first];
    let mut rest = body.len();
    while rest >= 0x80 {
        bytes.push(u8::try_from(rest % 0x80).unwrap() | 0x80);
        rest /= 0x80;
    }
    bytes.push(u8::try_from(rest).unwrap());
    bytes.extend_from_slice(body);
    bytes
}
