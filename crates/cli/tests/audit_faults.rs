//! `unbroken audit` beside what is wrong, or cannot be judged: its exit code, and the reason that
//! it gives for it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::process::Output;
use std::sync::mpsc;
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use support::{Running, broker, client, until_there};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;
use tokio::sync::watch;
use unbroken_client::{Client, Message, QoS};
use unbroken_merkle_log::{Checkpoint, Epoch, Hasher, Key, Lane, LaneId, LaneLimits, Property};

const TOPIC: &str = "plant";
/// A producer that does what it should not.
struct Wrong {
    client: Client,
    lane: Lane,
    hasher: Hasher,
}

impl Wrong {
    async fn connect(port: &str, lane: u64, hasher: Hasher) -> Self {
        let id = LaneId::new(lane).unwrap();
        Self {
            client: client(port).await,
            lane: Lane::new(
                id,
                Epoch(7),
                LaneLimits::default(),
                std::time::Duration::ZERO,
            ),
            hasher,
        }
    }

    /// Numbers a message, and does not send it.
    fn lose(&mut self) -> Property {
        let payload = b"21.5";
        self.lane.issue(TOPIC.as_bytes(), *payload, &self.hasher)
    }

    async fn send(&mut self, messages: u64) {
        for _ in 0..messages {
            let property = self.lose();
            let message = Message::new(TOPIC, *b"21.5").unwrap();
            let message = message.user_property("audit", &property.to_text()).unwrap();
            self.publish(message).await;
        }
    }

    /// Of the window so far, made now.
    fn checkpoint(&self) -> Checkpoint {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let time_us = u64::try_from(now.as_micros()).unwrap();
        self.lane.clone().close(time_us, &self.hasher).unwrap()
    }

    async fn tell(&self, checkpoint: &Checkpoint, damage: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = Vec::new();
        checkpoint.encode(&self.hasher, &mut bytes);
        damage(&mut bytes);
        let topic = format!("audit/checkpoint/{}", checkpoint.lane);
        self.publish(Message::new(topic, bytes).unwrap()).await;
    }

    async fn publish(&self, message: Message) {
        let message = message.qos(QoS::AtLeastOnce);
        self.client.publish(message).await.unwrap();
    }
}

/// Begins, and waits until it listens: also to a topic of its own, on which the question without a
/// stamp is no fault.
async fn audit(port: &str, here: &str, words: &[&str]) -> Running {
    let all = ["-p", port, "-t", TOPIC, "-t", here];
    let command = Running::start(&[&["audit"], words, &all].concat());
    until_there(port, here).await;
    command
}

#[track_caller]
fn check(output: &Output, code: i32, parts: &[&str]) {
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(code), "{text}");
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in:\n{text}");
    }
}

#[tokio::test]
async fn a_lane_is_proven_as_far_as_it_is_and_not_judged_while_something_may_be_missing() {
    let (_broker, port) = broker();
    let status = audit(&port, "here/1", &["status", "-W", "5"]).await;
    let watch = audit(&port, "here/2", &["watch", "-W", "5"]).await;
    let mut wrong = Wrong::connect(&port, 1, Hasher::xxh3()).await;
    wrong.send(1_024).await;
    wrong.tell(&wrong.checkpoint(), |_| ()).await;
    // It is closed by that, so another epoch goes on without a word.
    let doubt = "number 6 may be missing";
    let mut other = Wrong::connect(&port, 2, Hasher::xxh3()).await;
    other.send(6).await;
    other.lose();
    other.send(20).await;
    check(
        &status.output(),
        3,
        &["  proven ", "  not proven yet ", doubt],
    );
    check(&watch.output(), 3, &[doubt, "not all was judged: in doubt"]);
}

#[tokio::test]
async fn old_checkpoints_of_a_lane_that_is_new_here_are_called_old() {
    let (_broker, port) = broker();
    let status = audit(&port, "here/3", &["status", "-W", "5"]).await;
    let watch = audit(&port, "here/4", &["watch", "-W", "5"]).await;
    let mut wrong = Wrong::connect(&port, 1, Hasher::xxh3()).await;
    wrong.send(5).await;
    let old = Checkpoint {
        time_us: 1_000_000,
        ..wrong.checkpoint()
    };
    wrong.tell(&old, |_| ()).await;
    let words = "old: checkpoints of 1970-01-01T00:00:01Z";
    check(&status.output(), 3, &["old, proven", words]);
    check(&watch.output(), 3, &["numbers 0 to 4 proven", words]);
}

#[tokio::test]
async fn a_damaged_checkpoint_is_named_with_its_topic() {
    let (_broker, port) = broker();
    let status = audit(&port, "here/5", &["status", "-W", "5"]).await;
    let explain = audit(&port, "here/6", &["explain", "-W", "5"]).await;
    let mut wrong = Wrong::connect(&port, 1, Hasher::xxh3()).await;
    wrong.send(5).await;
    let damage = |bytes: &mut Vec<u8>| *bytes.last_mut().unwrap() ^= 1;
    wrong.tell(&wrong.checkpoint(), damage).await;
    wrong.tell(&wrong.checkpoint(), |_| ()).await;
    for output in [status.output(), explain.output()] {
        let words = "on audit/checkpoint/0000000000000001: refused: the tag does not fit";
        check(&output, 1, &[words]);
    }
}

#[tokio::test]
async fn garbage_of_other_lanes_is_no_fault_of_the_topics_that_are_listened_to() {
    let (_broker, port) = broker();
    let some = audit(&port, "here/20", &["status", "-W", "5"]).await;
    let all = audit(&port, "here/22", &["watch", "-W", "5", "-t", "#"]).await;
    let mut wrong = Wrong::connect(&port, 1, Hasher::xxh3()).await;
    wrong.send(5).await;
    let topic = "audit/checkpoint/0000000000000009";
    let garbage = || Message::new(topic, *b"garbage").unwrap();
    let through = garbage().user_property("audit-through", "zz").unwrap();
    for message in [garbage(), through] {
        wrong.publish(message).await;
    }
    for topic in [
        "audit/directory/0000000000000009",
        "audit/drop/0000000000000009",
    ] {
        wrong
            .publish(Message::new(topic, *b"garbage").unwrap())
            .await;
    }
    wrong.tell(&wrong.checkpoint(), |_| ()).await;
    let words = "4 messages on the audit's topics of other lanes were refused";
    check(&some.output(), 0, &[words]);
    let refused = "on audit/directory/0000000000000009: refused";
    check(&all.output(), 1, &[refused]);
}

#[tokio::test]
async fn retained_copies_of_before_the_lane_are_out_of_scope_whatever_they_bear() {
    for stamps in [&[][..], &["junk"], &["junk", "junk"]] {
        let (_broker, port) = broker();
        let mut wrong = Wrong::connect(&port, 1, Hasher::xxh3()).await;
        let mut old = Message::new(TOPIC, *b"21.0").unwrap().retained();
        for stamp in stamps {
            old = old.user_property("audit", stamp).unwrap();
        }
        wrong.publish(old).await;
        let status = audit(&port, "here/21", &["status", "-W", "3"]).await;
        wrong.send(5).await;
        wrong.tell(&wrong.checkpoint(), |_| ()).await;
        let words = "1 retained copies, published before this listener subscribed: out of scope";
        check(&status.output(), 0, &[words]);
    }
}

#[tokio::test]
async fn a_checkpoint_of_other_windows_is_named_and_proves_nothing() {
    let (_broker, port) = broker();
    let watch = audit(&port, "here/7", &["watch", "-W", "5"]).await;
    let mut wrong = Wrong::connect(&port, 1, Hasher::xxh3()).await;
    wrong.send(5).await;
    let other = Checkpoint {
        window_log2: 8,
        ..wrong.checkpoint()
    };
    wrong.tell(&other, |_| ()).await;
    let words = "checkpoint 0 counts in windows of another size";
    check(&watch.output(), 3, &[words, "not all was judged"]);
}

#[tokio::test]
async fn stamps_of_another_algorithm_beside_a_lane_that_is_judged_count() {
    let (_broker, port) = broker();
    let plain = audit(&port, "here/8", &["status", "-W", "5"]).await;
    let all_lanes = audit(&port, "here/9", &["status", "-W", "5", "--all-lanes"]).await;
    let mut right = Wrong::connect(&port, 1, Hasher::xxh3()).await;
    right.send(5).await;
    right.tell(&right.checkpoint(), |_| ()).await;
    let mut wrong = Wrong::connect(&port, 2, Hasher::blake3(&Key([7; 32]))).await;
    wrong.send(3).await;
    for output in [plain.output(), all_lanes.output()] {
        let words = "on plant: not judged: a stamp of algorithm Blake3 for lane 0000000000000002";
        check(&output, 3, &[words, "3 such messages in all"]);
    }
}

#[tokio::test]
async fn the_broker_s_sentence_in_explain_is_of_the_end() {
    let (_broker, port) = broker();
    let explain = audit(&port, "here/10", &["explain", "-W", "5"]).await;
    let mut right = Wrong::connect(&port, 1, Hasher::xxh3()).await;
    right.send(300).await;
    right.tell(&right.checkpoint(), |_| ()).await;
    let output = explain.output();
    check(&output, 0, &[]);
    let text = String::from_utf8(output.stdout).unwrap();
    let (_, sentence) = text.split_once("the broker says: ").unwrap();
    let (received, _) = sentence.split_once(" received").unwrap();
    let received: u64 = received.replace(',', "").parse().unwrap();
    assert!(received >= 300, "{text}");
}

#[tokio::test]
async fn what_is_lost_while_the_listener_is_not_connected_is_no_fault_of_others() {
    let (_broker, port) = broker();
    let relay = Relay::start(&port);
    let mut watch = audit(&relay.port, "here", &["watch"]).await;
    let lines = watch.lines();
    let until = |part: &str| {
        loop {
            let line = lines.next();
            if line.contains(part) {
                return line;
            }
        }
    };
    let mut right = Wrong::connect(&port, 1, Hasher::xxh3()).await;
    right.send(1_024).await;
    let full = Checkpoint {
        end: unbroken_merkle_log::EpochEnd::Open,
        ..right.checkpoint()
    };
    right.tell(&full, |_| ()).await;
    until("numbers 0 to 1023 proven");
    relay.set_up(false);
    until("this listener was not connected from");
    right.send(50).await;
    relay.set_up(true);
    until(" to ");
    until_there(&port, "here").await;
    right.send(50).await;
    let last = Checkpoint {
        number: 1,
        ..right.checkpoint()
    };
    right.tell(&last, |_| ()).await;
    let lost = until("numbers 1024 to 1073 lost");
    assert!(
        lost.contains("this listener was not connected from"),
        "{lost}"
    );
    let pid = Pid::from_raw(watch.0.id().try_into().unwrap());
    kill(pid, Signal::SIGINT).unwrap();
    let status = watch.0.wait().unwrap();
    assert_eq!(status.code(), Some(3));
}

/// Between a client and the broker: while it is down there is no connection.
struct Relay {
    port: String,
    is_up: watch::Sender<bool>,
}

impl Relay {
    /// On a thread of its own: the test waits for lines without the runtime.
    fn start(to: &str) -> Self {
        let to = format!("127.0.0.1:{to}");
        let (is_up, state) = watch::channel(true);
        let (port, bound) = mpsc::channel();
        let relay = async move {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            port.send(listener.local_addr().unwrap().port()).unwrap();
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(pass(client, to.clone(), state.clone()));
            }
        };
        thread::spawn(|| {
            let runtime = Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(relay);
        });
        let port = bound.recv().unwrap().to_string();
        Self { port, is_up }
    }

    fn set_up(&self, is_up: bool) {
        self.is_up.send(is_up).unwrap();
    }
}

async fn pass(mut client: TcpStream, to: String, mut is_up: watch::Receiver<bool>) {
    if !*is_up.borrow() {
        return;
    }
    let mut broker = TcpStream::connect(to).await.unwrap();
    tokio::select! {
        _ = copy_bidirectional(&mut client, &mut broker) => {}
        _ = is_up.wait_for(|is_up| !is_up) => {}
    }
}
