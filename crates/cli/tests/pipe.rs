//! Stages that are killed and started again: `unbroken pipe` with a spool or a state goes on where
//! it was, and nobody names a fault.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use unbroken_client::audit::{
    AuditedPublisher, AuditedSubscriber, Delivery, PublisherOptions, Scope, SubscriberOptions,
    Unspooled, spooled_lanes,
};
use unbroken_client::{Acknowledged, Client, Filter, Message, Options};
use unbroken_merkle_log::LaneId;
use unbroken_merkle_log::ledger::{Event, State, Verdict};

/// How long anything may take before a test gives up. A passing test never waits this long.
const DEADLINE: Duration = Duration::from_mins(1);

/// A process that ends with the test.
struct Running(Child);

impl Running {
    fn start(words: &[&str]) -> Self {
        let child = Command::new(env!("CARGO_BIN_EXE_unbroken"))
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Self(child)
    }

    /// As `kill -9` does. What it had said on standard error.
    fn kill(&mut self) -> String {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
        let mut said = String::new();
        let mut stderr = self.0.stderr.take().unwrap();
        stderr.read_to_string(&mut said).unwrap();
        said
    }

    fn say(&mut self, line: &str) {
        writeln!(self.0.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    fn lines(&mut self) -> Lines {
        Lines::of(self.0.stdout.take().unwrap())
    }

    /// Ends its input, and gives its end and what it said on standard error.
    fn end(mut self) -> (ExitStatus, String) {
        drop(self.0.stdin.take());
        let mut said = String::new();
        let mut stderr = self.0.stderr.take().unwrap();
        stderr.read_to_string(&mut said).unwrap();
        (self.0.wait().unwrap(), said)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Lines of a process as they come.
struct Lines(mpsc::Receiver<String>);

impl Lines {
    fn of(stdout: ChildStdout) -> Self {
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self(lines)
    }

    fn next(&self) -> String {
        self.0.recv_timeout(DEADLINE).unwrap()
    }
}

fn broker() -> (Running, String) {
    let mut broker = Running::start(&["serve", "-p", "0"]);
    let lines = broker.lines();
    loop {
        let line = lines.next();
        if let Some(rest) = line.strip_prefix("listening on 127.0.0.1:") {
            let digits = rest.split(|it: char| !it.is_ascii_digit());
            return (broker, digits.into_iter().next().unwrap().to_owned());
        }
    }
}

async fn client(port: &str) -> Client {
    let to = format!("127.0.0.1:{port}").parse().unwrap();
    Options::new(to).connect().await.unwrap()
}

async fn producer(port: &str) -> AuditedPublisher<Unspooled> {
    let options = PublisherOptions::new(LaneId::new(1).unwrap());
    options.open_unspooled(&client(port).await).await.unwrap()
}

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
    use Event::{Forged, Injected, Lost, Moved, RootDiffers};
    matches!(
        event,
        Forged(_) | Injected { .. } | Lost { .. } | Moved(_) | RootDiffers(_)
    )
}

fn path(directory: &Path, name: &str) -> String {
    directory.join(name).display().to_string()
}

#[tokio::test]
async fn a_processor_that_is_killed_goes_on_in_its_lane_and_nobody_names_a_fault() {
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
    let (status, said) = Running::start(&words).end();
    assert!(status.success(), "{said}");
    consumer.until(|seen| seen.proven == 150).await;
    assert_eq!(consumer.faults, Vec::<String>::new());
    let expect: Vec<_> = (0..150).map(|number| number.to_string()).collect();
    assert_eq!(consumer.taken, expect);
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

/// Waits until the broker has somebody for a topic. The question bears no stamp, so a stage leaves
/// it alone.
async fn until_there(port: &str, topic: &str) {
    let client = client(port).await;
    let asking = async {
        loop {
            let question = Message::new(topic, *b"").unwrap();
            if client.publish(question).await.unwrap() == Acknowledged::Taken {
                return;
            }
        }
    };
    tokio::time::timeout(DEADLINE, asking).await.unwrap();
}

fn numbered(topic: &str, number: u64) -> Message {
    Message::new(topic, number.to_string().as_bytes()).unwrap()
}
