//! Messages a second through the gateway, beside MQTT alone with the same clients, interleaved:
//!
//! `cargo test --release -p unbroken-acceptance --test sp_gateway -- --ignored rates`

use std::io::{self, Write};
use std::thread;
use std::time::Instant;

use unbroken_acceptance::Launch;
use unbroken_acceptance::raw::Publish;

use crate::peer::{PULL, PUSH, Peer};
use crate::wait_until_ready;

const MESSAGES: usize = 50_000;
const ROUNDS: usize = 7;
const BYTES: usize = 64;

#[test]
#[ignore = "it measures"]
fn rates() {
    let table = |socket| {
        format!(
            "[[gateway.sp]]\nname = \"{socket}\"\nsocket = \"{socket}\"\n\
             listen = \"tcp://127.0.0.1:0\"\ntopic = \"in\"\nfilter = \"out\"\n"
        )
    };
    let config = table("pull") + &table("push");
    let broker = Launch::config(&config).argument("-v").start();
    wait_until_ready(&broker, "push");
    let mut publisher = broker.connect("publisher");
    let mut push = Peer::join(&broker, "pull", PUSH);
    let mut pull = Peer::join(&broker, "push", PULL);
    publisher.publish(Publish::new("out", "").qos(1));
    pull.expect("");
    let mut rates = [const { Vec::new() }; 3];
    let payload = "x".repeat(BYTES);
    for _ in 0..ROUNDS {
        let mut subscriber = broker.connect("subscriber");
        subscriber.subscribe_to("in", 0);
        let messages =
            |topic| (0..MESSAGES).map(move |_| Publish::new(topic, "x".repeat(BYTES)).qos(1));

        let begun = Instant::now();
        let receiving = thread::spawn(move || {
            for _ in 0..MESSAGES {
                subscriber.expect_publish();
            }
            subscriber
        });
        publisher.publish_all(messages("in"));
        let mut subscriber = receiving.join().expect("all messages come");
        rates[0].push(begun.elapsed());

        let begun = Instant::now();
        let sending = thread::spawn({
            let payload = payload.clone();
            move || {
                for _ in 0..MESSAGES {
                    push.send(payload.as_bytes());
                }
                push
            }
        });
        for _ in 0..MESSAGES {
            subscriber.expect_publish();
        }
        push = sending.join().expect("all messages leave");
        rates[1].push(begun.elapsed());

        let begun = Instant::now();
        let receiving = thread::spawn(move || {
            for _ in 0..MESSAGES {
                pull.receive();
            }
            pull
        });
        publisher.publish_all(messages("out"));
        pull = receiving.join().expect("all messages come");
        rates[2].push(begun.elapsed());
    }
    for (name, mut times) in ["MQTT to MQTT", "SP to MQTT", "MQTT to SP"]
        .into_iter()
        .zip(rates)
    {
        times.sort_unstable();
        let rate = |index: usize| MESSAGES as u128 * 1_000_000 / times[index].as_micros().max(1);
        let (median, best) = (rate(ROUNDS / 2), rate(0));
        let line = format!("{name}: {median} messages/s (best of {ROUNDS}: {best})");
        writeln!(io::stdout(), "{line}").expect("standard output is open");
    }
}
