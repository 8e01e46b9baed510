//! Producer A, processor B, consumer C: the proof goes through B, and each hop has its own.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../support/mod.rs"]
mod support;

mod listeners;

use std::time::Duration;

use support::broker::{Broker, Kind};
use support::line::{
    Fault, Seen, connect, inject, lane, publish_all, publisher, subscriber, until, until_proven,
    until_windows,
};
use support::options;
use support::relay::Relay;
use unbroken_client::audit::{
    AuditedSubscriber, Input, Processor, PublisherOptions, Scope, Step, Unspooled,
};
use unbroken_client::{
    Client, ConnectTo, Filter, Limits, Message, Session, Subscription, TotalDuration,
};
use unbroken_merkle_log::ledger::{Event, Join, Ledger, LedgerLimits, State, Verdict};
use unbroken_merkle_log::{Checkpoint, DropReason, Hasher};

/// A processor from `in` to `out` in lane 2.
async fn processor(to: impl Into<ConnectTo>) -> Processor<Unspooled> {
    let client = connect(options(to, "b")).await;
    let line = subscriber("in").scope(Scope::FromBeginning);
    let input = line.acknowledged_by_hand().open(&client).await.unwrap();
    let output = publisher(2).open_unspooled(&client).await.unwrap();
    Processor::new(input, output)
}

/// The next message to work on.
async fn next(processor: &mut Processor<Unspooled>) -> Input {
    loop {
        let step = support::within("an input", processor.next()).await.unwrap();
        if let Step::Input(input) = step {
            return input;
        }
    }
}

/// Passes checkpoints on, for ever.
async fn keep_on(processor: &mut Processor<Unspooled>) {
    loop {
        processor.next().await.unwrap();
    }
}

async fn consumer(to: impl Into<ConnectTo>) -> AuditedSubscriber {
    let client = connect(options(to, "c")).await;
    let line = subscriber("out").scope(Scope::FromBeginning);
    line.open(&client).await.unwrap()
}

fn output(payload: &[u8]) -> Message {
    Message::new("out", payload).unwrap()
}

#[tokio::test]
async fn one_for_one_is_proven_on_both_hops_and_through_the_processor_with_faults_on_each() {
    for kind in Kind::installed() {
        let broker = Broker::start(kind);
        let (to_b, to_c) = (
            Relay::to(broker.address()).await,
            Relay::to(broker.address()).await,
        );
        inject(
            &to_b,
            "in",
            vec![(3, Fault::Lose), (9, Fault::Alter), (12, Fault::Duplicate)],
        );
        inject(
            &to_c,
            "out",
            vec![(5, Fault::Lose), (8, Fault::Swap), (20, Fault::Alter)],
        );
        let mut processor = processor(to_b.address()).await;
        let mut consumer = consumer(to_c.address()).await;
        let sender = connect(options(broker.address(), "a")).await;
        let lane = publisher(1).open_unspooled(&sender).await.unwrap();
        publish_all(&lane, "in", 0..1_024).await;
        let working = tokio::spawn(async move {
            for _ in 0..1_024 {
                let input = next(&mut processor).await;
                let transformed = output(&[b"<", input.payload(), b">"].concat());
                processor.emit(input, transformed).await.unwrap();
            }
            keep_on(&mut processor).await;
        });
        let mut seen = Seen::default();
        let proven = [(1, 0, State::Proven, 0), (2, 0, State::Proven, 0)];
        until_windows(&mut consumer, &mut seen, &proven).await;
        let mut taken: Vec<_> = seen
            .taken()
            .iter()
            .map(|(_, text)| (*text).to_owned())
            .collect();
        taken.sort_unstable();
        let mut expect: Vec<_> = (0..1_024).map(|number| format!("<{number}>")).collect();
        expect.sort_unstable();
        assert_eq!(taken, expect, "{kind:?}");
        working.abort();
    }
}

#[tokio::test]
async fn who_hears_both_sides_of_a_processor_judges_each_message_where_it_comes_itself() {
    for kind in Kind::installed() {
        let broker = Broker::start(kind);
        let to_c = Relay::to(broker.address()).await;
        inject(&to_c, "in", vec![(5, Fault::Alter)]);
        let mut processor = processor(broker.address()).await;
        let client = connect(options(to_c.address(), "c")).await;
        let line = subscriber("+").scope(Scope::FromBeginning);
        let mut watcher = line.open(&client).await.unwrap();
        let sender = connect(options(broker.address(), "a")).await;
        let lane = publisher(1).open_unspooled(&sender).await.unwrap();
        publish_all(&lane, "in", 0..10).await;
        for _ in 0..10 {
            let input = next(&mut processor).await;
            let copy = output(input.payload());
            processor.emit(input, copy).await.unwrap();
        }
        let mut seen = Seen::default();
        let proven = [(1, 0, State::Proven, 0)];
        tokio::select! {
            () = until_windows(&mut watcher, &mut seen, &proven) => {}
            () = keep_on(&mut processor) => {}
        }
        let is_injected = |event: &Event| matches!(event, Event::Injected { .. });
        assert!(!seen.events.iter().any(is_injected), "{kind:?}");
        let verdicts: Vec<_> = seen.faults().iter().map(|(_, verdict)| *verdict).collect();
        let expect = [Verdict::Altered, Verdict::Ahead, Verdict::Repaired];
        assert_eq!(verdicts, expect, "{kind:?}");
    }
}

#[tokio::test]
async fn who_watches_several_hops_does_not_mistake_a_slow_processor_for_a_loss() {
    for kind in Kind::installed() {
        let broker = Broker::start(kind);
        let mut processor = processor(broker.address()).await;
        let sender = connect(options(broker.address(), "a")).await;
        let lane = publisher(1).open_unspooled(&sender).await.unwrap();
        publish_all(&lane, "in", 0..900).await;
        let client = connect(options(broker.address(), "c")).await;
        let line = subscriber("+").without_origins();
        let mut watcher = line.open(&client).await.unwrap();
        for _ in 0..100 {
            let input = next(&mut processor).await;
            let copy = output(input.payload());
            processor.emit(input, copy).await.unwrap();
        }
        client.ping().await.unwrap();
        publish_all(&lane, "in", 900..2_048).await;
        let mut seen = Seen::default();
        let proven = [(1, 1_024, State::Proven, 0)];
        until_windows(&mut watcher, &mut seen, &proven).await;
        assert_eq!(seen.lost(), [], "{kind:?}");
    }
}

#[tokio::test]
async fn what_a_filter_leaves_out_is_declared_and_the_root_closes() {
    for kind in Kind::installed() {
        let broker = Broker::start(kind);
        let mut processor = processor(broker.address()).await;
        let mut consumer = consumer(broker.address()).await;
        let sender = connect(options(broker.address(), "a")).await;
        let lane = publisher(1).open_unspooled(&sender).await.unwrap();
        publish_all(&lane, "in", 0..1_024).await;
        for number in 0..1_024_u64 {
            let input = next(&mut processor).await;
            if number % 4 == 0 {
                let copy = output(input.payload());
                processor.emit(input, copy).await.unwrap();
            } else {
                let dropped = processor.filter_out(vec![input], DropReason::FILTERED);
                dropped.await.unwrap();
            }
        }
        let mut seen = Seen::default();
        tokio::select! {
            () = until_windows(&mut consumer, &mut seen, &[(1, 0, State::Proven, 768)]) => {}
            () = keep_on(&mut processor) => {}
        }
        assert_eq!((seen.taken().len(), seen.lost()), (256, vec![]), "{kind:?}");
    }
}

#[tokio::test]
async fn a_filter_says_what_it_leaves_out_for_many_messages_at_once() {
    for kind in Kind::installed() {
        let broker = Broker::start(kind);
        let observer = connect(options(broker.address(), "observer")).await;
        let filter = Filter::new("audit/drop/+").unwrap();
        let mut records = observer.subscribe(filter).await.unwrap();
        let mut processor = processor(broker.address()).await;
        let mut consumer = consumer(broker.address()).await;
        let sender = connect(options(broker.address(), "a")).await;
        let lane = PublisherOptions::new(lane(1)).open_unspooled(&sender).await;
        let lane = lane.unwrap();
        publish_all(&lane, "in", 0..2_048).await;
        for number in 0..2_048_u64 {
            let input = next(&mut processor).await;
            if number % 16 == 0 {
                let copy = output(input.payload());
                processor.emit(input, copy).await.unwrap();
            } else {
                let dropped = processor.filter_out(vec![input], DropReason::FILTERED);
                dropped.await.unwrap();
            }
        }
        let mut seen = Seen::default();
        let proven = [(1, 0, State::Proven, 960), (1, 1_024, State::Proven, 960)];
        tokio::select! {
            () = until_windows(&mut consumer, &mut seen, &proven) => {}
            () = keep_on(&mut processor) => {}
        }
        assert_eq!(seen.lost(), [], "{kind:?}");
        observer.ping().await.unwrap();
        let mut count = 0;
        while let Some(record) = records.try_recv() {
            record.unwrap();
            count += 1;
        }
        assert!((1..=1_920 / 32).contains(&count), "{kind:?}: {count}");
    }
}

#[tokio::test]
async fn batches_carry_their_parents_and_parts_complete_them() {
    for kind in Kind::installed() {
        let broker = Broker::start(kind);
        let mut processor = processor(broker.address()).await;
        let mut consumer = consumer(broker.address()).await;
        let sender = connect(options(broker.address(), "a")).await;
        let lane = publisher(1).open_unspooled(&sender).await.unwrap();
        publish_all(&lane, "in", 0..2_048).await;
        for _ in 0..16 {
            let mut batch = Vec::new();
            for _ in 0..64 {
                batch.push(next(&mut processor).await);
            }
            processor.emit_batch(batch, output(b"sum")).await.unwrap();
        }
        for _ in 0..1_024 {
            let input = next(&mut processor).await;
            let halves = vec![output(b"left"), output(b"right")];
            processor.emit_parts(input, halves).await.unwrap();
        }
        let mut seen = Seen::default();
        let proven = [(1, 0, State::Proven, 0), (1, 1_024, State::Proven, 0)];
        tokio::select! {
            () = until_windows(&mut consumer, &mut seen, &proven) => {}
            () = keep_on(&mut processor) => {}
        }
        assert_eq!(seen.taken().len(), 16 + 2_048, "{kind:?}");
        assert_eq!(seen.lost(), [], "{kind:?}");
    }
}

#[tokio::test]
async fn what_a_slow_processor_still_works_on_is_not_lost() {
    for kind in Kind::installed() {
        let broker = Broker::start(kind);
        let mut processor = processor(broker.address()).await;
        let mut consumer = consumer(broker.address()).await;
        let sender = connect(options(broker.address(), "a")).await;
        let lane = publisher(1).open_unspooled(&sender).await.unwrap();
        publish_all(&lane, "in", 0..1_024).await;
        let mut held = Vec::new();
        for number in 0..1_024 {
            let input = next(&mut processor).await;
            if number < 1_000 {
                let copy = output(input.payload());
                processor.emit(input, copy).await.unwrap();
            } else {
                held.push(input);
            }
        }
        let mut seen = Seen::default();
        // Each is a heartbeat after the one before; together they are far beyond the lateness.
        let of_b = |seen: &Seen| seen.checkpoints.iter().filter(|lane| **lane == 2).count();
        tokio::select! {
            () = until(&mut consumer, &mut seen, "heartbeats", |seen| of_b(seen) >= 4) => {}
            () = keep_on(&mut processor) => {}
        }
        assert_eq!(seen.lost(), [], "{kind:?}");
        for input in held {
            let copy = output(input.payload());
            processor.emit(input, copy).await.unwrap();
        }
        tokio::select! {
            () = until_windows(&mut consumer, &mut seen, &[(1, 0, State::Proven, 0)]) => {}
            () = keep_on(&mut processor) => {}
        }
        assert_eq!(seen.lost(), [], "{kind:?}");
    }
}

#[tokio::test]
async fn an_input_without_output_comes_again() {
    let broker = Broker::start(Kind::Unbroken);
    let session = Session::Kept { expiry_s: 60 };
    let sender = connect(options(broker.address(), "a")).await;
    let mut outputs = Vec::new();
    let mut lane = None;
    for life in 0..2 {
        let client = connect(options(broker.address(), "b").session(session)).await;
        let line = subscriber("in").scope(Scope::FromBeginning);
        let input = line.acknowledged_by_hand().open(&client).await.unwrap();
        let output = publisher(2).open_unspooled(&client).await.unwrap();
        let mut processor = Processor::new(input, output);
        if lane.is_none() {
            let opened = publisher(1).open_unspooled(&sender).await.unwrap();
            publish_all(&opened, "in", 0..4).await;
            lane = Some(opened);
        }
        let mut unfinished = Vec::new();
        for _ in 0..if life == 0 { 4 } else { 2 } {
            let input = next(&mut processor).await;
            let text = String::from_utf8(input.payload().to_vec()).unwrap();
            if life == 0 && outputs.len() == 2 {
                unfinished.push(input);
                continue;
            }
            let copy = Message::new("out", input.payload()).unwrap();
            let emitted = processor.emit(input, copy).await.unwrap();
            emitted.published().await.unwrap();
            outputs.push(text);
        }
        client.ping().await.unwrap();
        client.disconnect().await;
    }
    assert_eq!(outputs, ["0", "1", "2", "3"]);
}

#[tokio::test]
async fn a_processor_that_comes_late_works_on_all_that_it_hears() {
    for kind in Kind::installed() {
        let broker = Broker::start(kind);
        let sender = connect(options(broker.address(), "a")).await;
        let lane = publisher(1).open_unspooled(&sender).await.unwrap();
        publish_all(&lane, "in", 0..1_000).await;
        let client = connect(options(broker.address(), "b")).await;
        let input = subscriber("in").acknowledged_by_hand();
        let input = input.open(&client).await.unwrap();
        let lane_of_b = publisher(2).open_unspooled(&client).await.unwrap();
        let mut processor = Processor::new(input, lane_of_b);
        publish_all(&lane, "in", 1_000..1_100).await;
        for number in 1_000..1_100 {
            let input = next(&mut processor).await;
            assert_eq!(input.property().sequence, number, "{kind:?}");
            let copy = output(input.payload());
            processor.emit(input, copy).await.unwrap();
        }
    }
}

#[tokio::test]
async fn members_of_a_group_claim_nothing_alone_and_prove_all_together() {
    for kind in Kind::installed() {
        let broker = Broker::start(kind);
        let mut members = Vec::new();
        for id in ["m1", "m2", "m3"] {
            let client = connect(options(broker.address(), id)).await;
            // It is a part all the same.
            let line = subscriber("$share/g/data").scope(Scope::FromBeginning);
            members.push(line.open(&client).await.unwrap());
        }
        let sender = connect(options(broker.address(), "a")).await;
        let lane = publisher(1).open_unspooled(&sender).await.unwrap();
        publish_all(&lane, "data", 0..1_024).await;
        lane.close(TotalDuration(Duration::ZERO)).await.unwrap();
        let mut seen: Vec<Seen> = members.iter().map(|_| Seen::default()).collect();
        let has_all = |seen: &[Seen]| {
            let messages: usize = seen.iter().map(|seen| seen.messages.len()).sum();
            messages == 1_024 && seen.iter().all(|seen| !seen.checkpoints.is_empty())
        };
        let [first, second, third] = &mut members[..] else {
            panic!("three members")
        };
        while !has_all(&seen) {
            let next = async {
                tokio::select! {
                    delivery = first.next() => (0, delivery),
                    delivery = second.next() => (1, delivery),
                    delivery = third.next() => (2, delivery),
                }
            };
            let (member, delivery): (usize, _) = support::within("a share", next).await;
            seen[member].take(delivery.unwrap());
        }
        for seen in &seen {
            assert_eq!(
                (seen.lost(), seen.proven(), seen.asked),
                (vec![], 0, 0),
                "{kind:?}"
            );
        }
        let limits = LedgerLimits::default();
        let mut all = Ledger::new(Hasher::xxh3(), limits, Join::Beginning);
        for member in &members {
            assert_eq!(all.absorb(member.ledger(), Duration::ZERO), []);
        }
        let mut together = Seen::default();
        together
            .events
            .extend(all.take_events().map(|(_, _, event)| event));
        assert_eq!(
            (together.proven(), together.lost()),
            (1_024, vec![]),
            "{kind:?}"
        );
    }
}

async fn listen(client: &Client, filter: &str) -> Subscription {
    let subscribed = client.subscribe(Filter::new(filter).unwrap());
    support::within("a subscription", subscribed).await.unwrap()
}

/// How many messages the next checkpoint tells of.
async fn checkpointed(checkpoints: &mut Subscription) -> u64 {
    let checkpoint = support::within("a checkpoint", checkpoints.recv()).await;
    let sealed = Checkpoint::parse(checkpoint.unwrap().payload()).unwrap();
    sealed.open(&Hasher::xxh3()).unwrap().size
}
