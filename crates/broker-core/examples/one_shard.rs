//! One shard, one publisher and some subscribers in memory: what a message costs the core itself,
//! counted in instructions rather than timed.
//!
//! ```text
//! cargo build --release -p unbroken-broker-core --example one_shard
//! valgrind --tool=callgrind --callgrind-out-file=/dev/null \
//!     target/release/examples/one_shard MESSAGES PAYLOAD QOS SUBSCRIBERS on|off
//! ```
//!
//! Run it with two numbers of messages: the difference is what the messages cost. What may not rise
//! unnoticed is counted by `instructions.rs`.

#![allow(clippy::print_stdout, reason = "a program's output")]
#![allow(clippy::unwrap_used, reason = "a measurement that cannot go on ends")]

mod in_memory;

use in_memory::{Broker, packet, string};

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
            &packet(0x82, &[&[0, 1][..], &string("a/bc"), &[qos]].concat()),
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
