//! What a stage names on standard error: nothing that is wrong with its input passes in silence,
//! and nothing real is called false.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::fmt::Write as _;
use std::fs;

use support::{Lines, Running, broker, broker_on, client, numbered, producer, until_there};
use unbroken_client::{Client, Message};
use unbroken_merkle_log::{
    Checkpoint, Detail, Epoch, EpochEnd, Hash, Hasher, LaneId, Property, Tree,
};

const TOPIC: &str = "data";
const LANE: &str = "0000000000000007";

/// A producer without a way back, which says what a test wants it to.
struct Producer {
    client: Client,
    tree: Tree,
    checkpoints: u32,
}

impl Producer {
    async fn connect(port: &str) -> Self {
        Self {
            client: client(port).await,
            tree: Tree::new(),
            checkpoints: 0,
        }
    }

    /// The stamp of what is published under a number.
    fn stamp(number: u64, payload: &str) -> Property {
        let (lane, epoch) = (LaneId::new(7).unwrap(), Epoch(0));
        let (topic, payload) = (TOPIC.as_bytes(), payload.as_bytes());
        Property::stamp(&Hasher::xxh3(), lane, epoch, number, topic, payload)
    }

    async fn publish(&self, number: u64, payload: &str) {
        let message = Message::new(TOPIC, payload.as_bytes()).unwrap();
        let stamp = Self::stamp(number, payload).to_text();
        let message = message.user_property("audit", &stamp).unwrap();
        self.client.publish(message).await.unwrap();
    }

    /// Takes the next number for what it has really issued, whether or not it is published.
    fn issue(&mut self, payload: &str) -> u64 {
        let number = self.tree.size();
        let leaf = Self::stamp(number, payload).digest;
        self.tree.append(&Hasher::xxh3(), leaf);
        number
    }

    async fn send(&mut self, payload: &str) {
        let number = self.issue(payload);
        self.publish(number, payload).await;
    }

    async fn close(&mut self, with_leaves: bool) {
        let size = self.tree.size();
        let leaves: Vec<Hash> = (0..size).filter_map(|at| self.tree.leaf(at)).collect();
        let detail = if with_leaves {
            Detail::Leaves(leaves)
        } else {
            Detail::None
        };
        let root = self.tree.root(&Hasher::xxh3());
        self.checkpoint(size, root, EpochEnd::Closed, detail).await;
    }

    async fn checkpoint(&mut self, size: u64, root: Hash, end: EpochEnd, detail: Detail) {
        let checkpoint = Checkpoint {
            lane: LaneId::new(7).unwrap(),
            epoch: Epoch(0),
            number: self.checkpoints,
            window_log2: 10,
            first: 0,
            size,
            time_us: 0,
            window_root: root,
            lane_root: root,
            end,
            detail,
        };
        self.checkpoints += 1;
        let mut bytes = Vec::new();
        checkpoint.encode(&Hasher::xxh3(), &mut bytes);
        let topic = format!("audit/checkpoint/{LANE}");
        let message = Message::new(topic, bytes).unwrap();
        self.client.publish(message).await.unwrap();
    }
}

/// A stage that prints what comes, and the lines of both its outputs.
async fn stage(port: &str, more: &[&str]) -> (Running, Lines, Lines) {
    let words = [&["pipe", "-p", port, "--from", TOPIC][..], more].concat();
    let mut stage = Running::start(&words);
    let (lines, errors) = (stage.lines(), stage.errors());
    until_there(port, TOPIC).await;
    (stage, lines, errors)
}

/// The first line that has this text, after others.
fn until(lines: &Lines, text: &str) -> String {
    let mut seen = String::new();
    loop {
        let line = lines.next_after(&seen);
        if line.contains(text) {
            return line;
        }
        writeln!(seen, "{line}").unwrap();
    }
}

#[tokio::test]
async fn a_message_that_is_not_the_producers_is_named_without_an_answer() {
    for (json, root, window) in [
        (&[][..], "the root of the window differs", ""),
        (&["--json"], r#""root_differs":true"#, ""),
        // A forged one beside a lost one: the window is faulty at once.
        (&[], "faulty: not all of them came", "lost"),
    ] {
        let (_broker, port) = broker();
        let (_stage, _lines, errors) = stage(&port, json).await;
        let mut producer = Producer::connect(&port).await;
        producer.send("0").await;
        let number = producer.issue("1");
        producer.publish(number, "evil").await;
        if window == "lost" {
            producer.issue("2");
        }
        producer.send("3").await;
        producer.close(false).await;
        until(&errors, root);
    }
}

#[tokio::test]
async fn of_two_messages_under_one_number_it_is_said_which_is_real_or_that_it_is_not_known() {
    for (first, second, decided) in [
        ("evil", "real", "the message that was passed on is injected"),
        ("real", "evil", "the message that was passed on is real"),
    ] {
        let (_broker, port) = broker();
        let (_stage, lines, errors) = stage(&port, &[]).await;
        let mut producer = Producer::connect(&port).await;
        producer.send("0").await;
        // From a repetition on leaves are held, and copies are compared.
        producer.publish(0, "0").await;
        let number = producer.issue("real");
        producer.publish(number, first).await;
        producer.publish(number, second).await;
        producer.send("2").await;
        let conflict = until(&errors, "number 1 ");
        assert!(conflict.contains("is unknown"), "{conflict}");
        producer.close(true).await;
        let told = until(&errors, "number 1");
        assert!(told.contains(decided), "{told}");
        assert_eq!([lines.next(), lines.next()], ["0", first]);
    }
}

#[tokio::test]
async fn a_loss_that_a_forged_size_may_have_made_is_one_line_and_says_so() {
    let (_broker, port) = broker();
    let (_stage, _lines, errors) = stage(&port, &[]).await;
    let mut producer = Producer::connect(&port).await;
    for number in 0..5 {
        producer.send(&number.to_string()).await;
    }
    let forged = Hash::from([7; 16]);
    producer
        .checkpoint(600, forged, EpochEnd::Open, Detail::None)
        .await;
    let lost = until(&errors, "lost");
    assert_eq!(
        lost,
        format!(
            "Warning: numbers 5 to 599, 595 messages, lost (lane {LANE}); the lane has no key, so \
             the size that states it may be forged"
        )
    );
    // The end of the lane contradicts it.
    producer.close(false).await;
    until(&errors, "checkpoint 1 contradicts one before it");
}

#[tokio::test]
async fn what_was_published_while_the_stage_was_away_is_lost_for_that_reason() {
    let (mut first, port) = broker();
    let (_stage, _lines, errors) = stage(&port, &[]).await;
    let mut producer = Producer::connect(&port).await;
    producer.send("0").await;
    producer.send("1").await;
    until_there(&port, TOPIC).await;
    first.kill();
    let (_broker, _) = broker_on(&port, &["--in-memory"]);
    let away = until(&errors, "not connected");
    assert!(away.contains("stored nothing for it"), "{away}");
    until_there(&port, TOPIC).await;
    for number in 2..5 {
        producer.issue(&number.to_string());
    }
    producer.send("5").await;
    producer.close(false).await;
    let lost = until(&errors, "lost");
    let why = "(lane 0000000000000007); this listener was not connected from ";
    assert!(
        lost.starts_with("Warning: numbers 2 to 4, 3 messages, lost "),
        "{lost}"
    );
    assert!(lost.contains(why), "{lost}");
}

#[tokio::test]
async fn what_the_broker_dropped_is_named_with_its_number_and_its_reason() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    let (config, state, data) = (path("broker.toml"), path("state"), path("data"));
    fs::write(&config, "[limits]\nqueue_messages_max = 100\n").unwrap();
    let (_broker, port) = broker_on("0", &["-c", &config, "--data", &data]);
    let more = ["--state", &state];
    let (mut first, lines, _errors) = stage(&port, &more).await;
    let producer = producer(&port).await;
    producer.publish(numbered(TOPIC, 0)).await.unwrap();
    assert_eq!(lines.next(), "0");
    first.terminate();
    assert!(first.0.wait().unwrap().success());
    for number in 1..300 {
        producer.publish(numbered(TOPIC, number)).await.unwrap();
    }
    let words = [&["pipe", "-p", &port, "--from", TOPIC][..], &more].concat();
    let mut second = Running::start(&words);
    let errors = second.errors();
    let dropped = until(&errors, "not delivered");
    let why = "not delivered: queue-full, as a drop record of the broker for this stage says";
    assert!(dropped.contains(why), "{dropped}");
    assert!(dropped.contains(" messages, "), "{dropped}");
}
