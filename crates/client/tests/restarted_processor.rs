//! A processor on a spooled lane that is killed in the middle of its work: its lane goes on, no
//! input is lost, and none has two outputs.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::collections::VecDeque;
use std::env;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use support::broker::{Broker, Kind};
use support::line::{Seen, connect, publish_all, publisher, subscriber, until_windows};
use support::options;
use support::relay::Relay;
use unbroken_client::audit::{Input, Processor, Scope, Step};
use unbroken_client::{ConnectTo, Limits, Message, Session};
use unbroken_merkle_log::ledger::{State, Verdict};
use unbroken_merkle_log::{DropReason, LaneLimits};

const BROKER: &str = "UNBROKEN_TEST_BROKER";
const SPOOL: &str = "UNBROKEN_TEST_SPOOL";

/// Inputs, of which every fourth is left out.
const INPUTS: u64 = 4_096;
const OUTPUTS: u64 = INPUTS / 4 * 3;

/// The stage in the middle, until it is killed. It finishes some inputs much later than others.
#[tokio::test]
#[ignore = "the other test starts it, as a process of its own"]
async fn stage() {
    let (Ok(broker), Some(spool)) = (env::var(BROKER), env::var_os(SPOOL)) else {
        return;
    };
    let session = Session::Kept { expiry_s: 600 };
    let to: ConnectTo = broker.parse().unwrap();
    let client = connect(options(to, "b").session(session)).await;
    let line = subscriber("in").scope(Scope::FromBeginning);
    let input = line.acknowledged_by_hand().open(&client).await.unwrap();
    // So small that it is written anew on the way.
    let mut limits = LaneLimits::default();
    limits.heartbeat = Duration::from_millis(100);
    limits.message_bytes_max = 32 << 10;
    let output = publisher(2).lane_limits(limits).spool_bytes_max(600_000);
    let output = output.open(&client, spool).await.unwrap();
    let mut processor = Processor::new(input, output);
    println!("ready");
    let mut held = VecDeque::new();
    loop {
        let Step::Input(input) = processor.next().await.unwrap() else {
            continue;
        };
        match input.property().sequence {
            number if number % 4 == 3 => {
                let dropped = processor.filter_out(vec![input], DropReason::FILTERED);
                dropped.await.unwrap();
            }
            number if number % 64 == 1 => held.push_back((number, input)),
            number => {
                let copy = Message::new("out", input.payload()).unwrap();
                processor.emit(input, copy).await.unwrap();
                // The last few are waited for by nobody.
                let until = if number > INPUTS - 64 {
                    u64::MAX
                } else {
                    number
                };
                while held.front().is_some_and(|(held, _)| held + 40 < until) {
                    let (_, input) = held.pop_front().unwrap();
                    let copy = Message::new("out", input.payload()).unwrap();
                    processor.emit(input, copy).await.unwrap();
                }
            }
        }
    }
}

/// Another process; ended by SIGKILL when it is dropped.
struct Stage(Child);

impl Stage {
    fn start(broker: &Broker, spool: &Path) -> Self {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", "stage", "--ignored", "--nocapture"]);
        command.env(BROKER, broker.address().to_string());
        command.env(SPOOL, spool).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let stage = Self(child);
        assert!(lines.any(|line| line.unwrap().ends_with("ready")));
        stage
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_processor_goes_on_in_its_lane_and_gives_no_input_two_outputs() {
    for kind in Kind::installed() {
        let broker = Broker::start(kind);
        let spool = tempfile::tempdir().unwrap();
        let client = connect(options(broker.address(), "c")).await;
        let line = subscriber("out").scope(Scope::FromBeginning);
        let mut line = line.open(&client).await.unwrap();
        let mut stage = Stage::start(&broker, spool.path());
        let sender = connect(options(broker.address(), "a")).await;
        let lane = publisher(1).open_unspooled(&sender).await.unwrap();
        let publishing = {
            let lane = lane.clone();
            tokio::spawn(async move { publish_all(&lane, "in", 0..INPUTS).await })
        };
        let mut seen = Seen::default();
        for killed_at in [100, 700, 1_300, 1_301, 2_500] {
            support::line::until(&mut line, &mut seen, "outputs", |seen| {
                seen.taken().len() >= killed_at
            })
            .await;
            drop(stage);
            stage = Stage::start(&broker, spool.path());
        }
        publishing.await.unwrap();
        let of_a = (0..4).map(|window| (1, window * 1_024, State::Proven, 256));
        let of_b = (0..3).map(|window| (2, window * 1_024, State::Proven, 0));
        let proven: Vec<_> = of_a.chain(of_b).collect();
        until_windows(&mut line, &mut seen, &proven).await;
        let mut texts: Vec<u64> = seen
            .taken()
            .iter()
            .map(|(_, text)| text.parse().unwrap())
            .collect();
        texts.sort_unstable();
        let expect: Vec<u64> = (0..INPUTS).filter(|number| number % 4 != 3).collect();
        assert_eq!(texts, expect, "{kind:?}");
        let numbers = seen.messages.iter().map(|(number, ..)| *number);
        assert_eq!(numbers.max(), Some(OUTPUTS - 1), "{kind:?}");
        // What the spool had and nobody had acknowledged was sent again, and said so.
        let mut faults = seen.faults();
        faults.retain(|(_, verdict)| !matches!(verdict, Verdict::Repaired | Verdict::Replayed));
        assert_eq!((faults, seen.lost()), (vec![], vec![]), "{kind:?}");
    }
}

/// The next input; events on the way are nobody's business.
async fn next_input<T>(processor: &mut Processor<T>) -> Input {
    let next = async {
        loop {
            if let Step::Input(input) = processor.next().await.unwrap() {
                return input;
            }
        }
    };
    support::within("an input", next).await
}

#[tokio::test]
async fn a_spool_that_is_trimmed_in_the_middle_of_a_batch_keeps_its_drop_records() {
    let broker = Broker::start(Kind::Unbroken);
    let relay = Relay::to(broker.address()).await;
    let client = connect(options(broker.address(), "c")).await;
    let line = subscriber("out").scope(Scope::FromBeginning);
    let mut line = line.open(&client).await.unwrap();
    let spool = tempfile::tempdir().unwrap();
    let stage = async || {
        let mut limits = Limits::default();
        limits.left_out_max = 1;
        let to = options(relay.address(), "b").limits(limits);
        let client = connect(to.session(Session::Kept { expiry_s: 600 })).await;
        let input = subscriber("in").scope(Scope::FromBeginning);
        let input = input.acknowledged_by_hand().open(&client).await.unwrap();
        let output = publisher(2).spool_bytes_max(40_000);
        let output = output.open(&client, spool.path()).await.unwrap();
        (client, Processor::new(input, output))
    };
    let output = |bytes: usize| Message::new("out", vec![b'x'; bytes]).unwrap();
    let (to_broker, mut processor) = stage().await;
    let sender = connect(options(broker.address(), "a")).await;
    let lane = publisher(1).open_unspooled(&sender).await.unwrap();
    publish_all(&lane, "in", 0..3).await;
    let inputs = [
        next_input(&mut processor).await,
        next_input(&mut processor).await,
        next_input(&mut processor).await,
    ];
    let [first, second, third] = inputs;
    let emitted = processor.emit(first, output(10_000)).await.unwrap();
    support::within("an answer", emitted.published())
        .await
        .unwrap();
    // Both are in one batch, and the spool has room for the second only without the first output.
    relay.close();
    let filtered = processor.filter_out(vec![second], DropReason::FILTERED);
    filtered.await.unwrap();
    processor.emit(third, output(30_000)).await.unwrap();
    to_broker.disconnect().await;
    assert!(support::within("the end", processor.leave()).await.is_err());
    relay.open();
    let (_client, mut processor) = stage().await;
    let going_on = async { while processor.next().await.is_ok() {} };
    let mut seen = Seen::default();
    let told = support::line::until(&mut line, &mut seen, "the drop record", |seen| {
        seen.dropped.contains(&(1, "filtered".to_owned(), false))
    });
    tokio::select! {
        () = told => {}
        () = going_on => panic!("the processor ended"),
    }
}
