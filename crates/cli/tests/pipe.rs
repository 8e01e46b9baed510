//! Stages that are killed and started again: `unbroken pipe` with a spool or a state goes on where
//! it was, and nobody names a fault.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;

use support::{DEADLINE, Running, broker, client, numbered, producer, until_there};
use unbroken_client::audit::{
    AuditedSubscriber, Delivery, Scope, SubscriberOptions, spooled_lanes,
};
use unbroken_client::{Filter, Message, QoS};
use unbroken_merkle_log::ledger::{Event, State, Verdict};
use unbroken_merkle_log::{Hasher, LaneId, Property};

async fn consumer(port: &str, topic: &str) -> Consumer {
    let options = SubscriberOptions::new(vec![Filter::new(topic).unwrap()]);
    let options = options.scope(Scope::FromBeginning);
    Consumer {
        input: options.open(&client(port).await).await.unwrap(),
        taken: Vec::new(),
        faults: Vec::new(),
        proven: 0,
    }
}

/// What a consumer of lane 1 heard, directly or through a processor.
struct Consumer {
    input: AuditedSubscriber,
    taken: Vec<String>,
    /// Everything that names a fault.
    faults: Vec<String>,
    /// Messages of lane 1 that are proven, if they are those of its first window.
    proven: u64,
}

impl Consumer {
    async fn until(&mut self, holds: impl Fn(&Self) -> bool) {
        let listening = async {
            while !holds(self) {
                let delivery = self.input.next().await.unwrap();
                self.take(&delivery);
            }
        };
        let in_time = tokio::time::timeout(DEADLINE, listening).await;
        in_time.unwrap_or_else(|_| panic!("{} taken, {:?}", self.taken.len(), self.faults));
    }

    fn take(&mut self, delivery: &Delivery) {
        match delivery {
            Delivery::Message(message) => {
                use Verdict::{Altered, Conflict, Duplicate, Injected};
                let origins = message.origins().iter().map(|(_, verdict)| *verdict);
                for verdict in origins.chain(message.verdict()) {
                    if let Altered | Conflict | Duplicate | Injected = verdict {
                        self.faults.push(format!("{:?}", message.property()));
                    }
                }
                if message.is_new() {
                    let text = String::from_utf8(message.payload().to_vec()).unwrap();
                    self.taken.push(text);
                }
            }
            Delivery::Event { event, .. } if is_fault(event) => {
                self.faults.push(format!("{event:?}"));
            }
            Delivery::Event {
                lane,
                event: Event::Window { numbers, state, .. },
                ..
            } if lane.value() == 1 && numbers.start == 0 && *state == State::Proven => {
                self.proven = numbers.end;
            }
            _ => {}
        }
    }
}

fn is_fault(event: &Event) -> bool {
    use Event::{Forged, ForgedAmong, Injected, Lost, Moved, RootDiffers};
    matches!(
        event,
        Forged(_) | ForgedAmong(_) | Injected { .. } | Lost { .. } | Moved(_) | RootDiffers(_)
    )
}

fn path(directory: &Path, name: &str) -> String {
    directory.join(name).display().to_string()
}

#[tokio::test]
async fn a_processor_that_is_killed_continues_its_lane_and_no_stage_names_a_fault() {
    let (_broker, port) = broker();
    let directory = tempfile::tempdir().unwrap();
    let spool = path(directory.path(), "spool");
    let mut consumer = consumer(&port, "clean").await;
    let words = [
        "pipe",
        "-p",
        &port,
        "--from",
        "raw",
        "--to",
        "clean",
        "--spool",
        &spool,
        "--from-start",
    ];
    let mut processor = Running::start(&words);
    until_there(&port, "raw").await;
    let producer = producer(&port).await;
    let sending = async {
        for number in 0..1_024 {
            producer.send(numbered("raw", number)).await.unwrap();
        }
    };
    let killing = async {
        for part in 1..5 {
            consumer.until(|seen| seen.taken.len() >= part * 200).await;
            processor.kill();
            processor = Running::start(&words);
        }
        consumer.until(|seen| seen.proven == 1_024).await;
    };
    tokio::join!(sending, killing);
    assert_eq!(spooled_lanes(spool.as_ref()).unwrap().len(), 1);
    assert_eq!(consumer.faults, Vec::<String>::new());
    let mut taken: Vec<u64> = consumer
        .taken
        .iter()
        .map(|text| text.parse().unwrap())
        .collect();
    taken.sort_unstable();
    assert_eq!(taken, (0..1_024).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_producer_that_is_killed_goes_on_in_its_lane() {
    let (_broker, port) = broker();
    let directory = tempfile::tempdir().unwrap();
    let spool = path(directory.path(), "spool");
    let mut consumer = consumer(&port, "raw").await;
    let words = [
        "pipe",
        "-p",
        &port,
        "--to",
        "raw",
        "--spool",
        &spool,
        "--lane",
        "0000000000000001",
    ];
    for life in 0..3 {
        let mut producer = Running::start(&words);
        for number in 0..50 {
            producer.say(&format!("{}", life * 50 + number));
        }
        let end = usize::try_from((life + 1) * 50).unwrap();
        consumer.until(|seen| seen.taken.len() == end).await;
        producer.kill();
    }
    let ended = Running::start(&words).output();
    assert!(ended.status.success(), "{ended:?}");
    consumer.until(|seen| seen.proven == 150).await;
    assert_eq!(consumer.faults, Vec::<String>::new());
    let expect: Vec<_> = (0..150).map(|number| number.to_string()).collect();
    assert_eq!(consumer.taken, expect);
}

#[tokio::test]
async fn a_spool_that_cannot_be_written_ends_a_stage_with_the_reason() {
    let (_broker, port) = broker();
    let directory = tempfile::tempdir().unwrap();
    let spool = directory.path().join("0000000000000001.spool");
    let mut producer = Running::start(&[
        "pipe",
        "-p",
        &port,
        "--to",
        "raw",
        "--spool",
        &directory.path().display().to_string(),
        "--lane",
        "0000000000000001",
    ]);
    // Where the spool is to be written anew.
    std::fs::create_dir(spool.with_extension("new")).unwrap();
    let line = "x".repeat(2_000) + "\n";
    let mut input = producer.0.stdin.take().unwrap();
    while input.write_all(line.as_bytes()).is_ok() {}
    let ended = producer.output();
    let said = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(74), "{said}");
    assert!(said.contains("cannot write anew the spool"), "{said}");
}

#[tokio::test]
async fn a_consumer_that_is_killed_goes_on_from_its_state_and_misses_nothing() {
    let (_broker, port) = broker();
    let directory = tempfile::tempdir().unwrap();
    let state = path(directory.path(), "state");
    let words = [
        "pipe",
        "-p",
        &port,
        "--from",
        "raw",
        "--from-start",
        "--state",
        &state,
    ];
    let producer = producer(&port).await;
    let mut printed: Vec<u64> = Vec::new();
    for life in 0..3 {
        let mut consumer = Running::start(&words);
        let lines = consumer.lines();
        until_there(&port, "raw").await;
        let numbers = life * 100..(life + 1) * 100;
        for number in numbers.clone() {
            producer.publish(numbered("raw", number)).await.unwrap();
        }
        while printed.last().is_none_or(|last| last + 1 < numbers.end) {
            printed.push(lines.next().parse().unwrap());
        }
        let said = consumer.kill();
        assert!(!said.contains("Warning: number"), "{said}");
    }
    // What was printed and not yet saved comes again, and nothing else does.
    printed.sort_unstable();
    printed.dedup();
    assert_eq!(printed, (0..300).collect::<Vec<_>>());
}

#[tokio::test]
async fn of_messages_that_were_handed_on_only_those_come_again_that_were_forged() {
    let (_broker, port) = broker();
    let mut consumer = Running::start(&["pipe", "-p", &port, "--from", "raw", "--from-start"]);
    let lines = consumer.lines();
    until_there(&port, "raw").await;
    let producer = producer(&port).await;
    for number in 0..46 {
        producer.publish(numbered("raw", number)).await.unwrap();
    }
    let hostile = client(&port).await;
    let (hasher, lane) = (Hasher::xxh3(), LaneId::new(1).unwrap());
    for number in [46, 47] {
        let payload = format!("forged {number}").into_bytes();
        let epoch = producer.epoch();
        let stamp = Property::stamp(&hasher, lane, epoch, number, b"raw", &payload);
        let message = Message::new("raw", payload).unwrap().qos(QoS::AtLeastOnce);
        let message = message.user_property(Property::NAME, &stamp.to_text());
        hostile.publish(message.unwrap()).await.unwrap();
    }
    for number in 46..100 {
        producer.publish(numbered("raw", number)).await.unwrap();
    }
    // The producer answers meanwhile.
    let printing = tokio::task::spawn_blocking(move || {
        let mut printed = Vec::new();
        while !printed.contains(&"47".to_owned()) {
            printed.push(lines.next());
        }
        printed
    });
    let printed = printing.await.unwrap();
    let of_the_lane = |forged: bool| {
        let lines = printed
            .iter()
            .filter(|line| line.starts_with("forged") == forged);
        lines.cloned().collect::<Vec<_>>()
    };
    let in_order = (0..46).chain(48..100).chain([46, 47]);
    let expect: Vec<String> = in_order.map(|number| number.to_string()).collect();
    assert_eq!(of_the_lane(false), expect);
    assert_eq!(of_the_lane(true), ["forged 46", "forged 47"]);
    let said = consumer.kill();
    let named = said.lines().filter(|line| line.contains(" forged ("));
    let named: Vec<&str> = named.collect();
    let expect = [46, 47].map(|number| format!("Warning: number {number} forged (lane {lane})"));
    assert_eq!(named, expect, "{said}");
}

/// Only a stage that goes on where it was has a session at the broker when it has ended.
#[tokio::test]
async fn a_stage_that_has_ended_leaves_a_session_only_if_it_is_to_go_on_with_it() {
    let (_broker, port) = broker();
    let directory = tempfile::tempdir().unwrap();
    let (spool, other) = (path(directory.path(), "a"), path(directory.path(), "b"));
    let lane = "0000000000000001";
    let words = [
        "pipe", "-p", &port, "--to", "raw", "--lane", lane, "--spool", &spool,
    ];
    let mut producer = Running::start(&words);
    producer.say("one");
    let ended = producer.output();
    assert!(ended.status.success(), "{ended:?}");
    assert!(!session_present(&port, &format!("unbroken-pipe-{lane}")));

    let lane = "0000000000000003";
    let words = [
        "pipe", "-p", &port, "--from", "in", "--to", "out", "--lane", lane, "--spool", &other,
    ];
    let processor = Running::start(&words);
    until_there(&port, "in").await;
    processor.terminate();
    let ended = processor.output();
    assert!(ended.status.success(), "{ended:?}");
    assert!(session_present(&port, &format!("unbroken-pipe-{lane}")));
}

#[tokio::test]
async fn a_stage_whose_terminal_is_closed_ends_as_if_it_were_asked_to() {
    let (_broker, port) = broker();
    let lane = "0000000000000004";
    let words = [
        "pipe", "-p", &port, "--from", "in", "--to", "out", "--lane", lane,
    ];
    let stage = Running::start_in_terminal(&words);
    until_there(&port, "in").await;
    stage.hang_up();
    let ended = stage.output();
    assert!(ended.status.success(), "{ended:?}");
    assert!(!session_present(&port, &format!("unbroken-pipe-{lane}")));
}

/// What CONNACK says to a 5.0 client that asks for this session.
fn session_present(port: &str, client_id: &str) -> bool {
    let mut stream = TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let mut body = b"\0\x04MQTT\x05\0\0\0\x05\x11\0\0\0\x3c".to_vec();
    body.extend(u16::try_from(client_id.len()).unwrap().to_be_bytes());
    body.extend(client_id.as_bytes());
    let mut connect = vec![0x10, u8::try_from(body.len()).unwrap()];
    connect.append(&mut body);
    stream.write_all(&connect).unwrap();
    let mut connack = [0; 4];
    stream.read_exact(&mut connack).unwrap();
    assert_eq!((connack[0], connack[3]), (0x20, 0), "{connack:?}");
    connack[2] == 1
}
