//! What is said of messages once, by a drop record or a last checkpoint, and a receiver that is
//! killed before it has saved what it heard.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::net::SocketAddr;
use std::time::Duration;

use support::broker::{Broker, Kind};
use support::line::{Seen, connect, lane, publish_all, publisher, subscriber, until};
use support::{options, within};
use unbroken_client::audit::{AuditedSubscriber, Delivery, Processor, Scope, Step};
use unbroken_client::{Client, Message, Options, Session, TotalDuration};
use unbroken_merkle_log::DropReason;

/// The first number that no output is made of.
const LEFT_OUT: u64 = 4;

fn kept(to: SocketAddr, client_id: &str) -> Options {
    options(to, client_id).session(Session::Kept { expiry_s: 600 })
}

/// A stage that passes the first few on and leaves out the rest.
async fn filtering(to: SocketAddr, from: &str, into: &'static str) {
    let client = connect(options(to, "filtering")).await;
    let line = subscriber(from).scope(Scope::FromBeginning);
    let input = line.acknowledged_by_hand().open(&client).await.unwrap();
    let output = publisher(2).open_unspooled(&client).await.unwrap();
    let mut processor = Processor::new(input, output);
    tokio::spawn(async move {
        // Ends with its client.
        while let Ok(step) = processor.next().await {
            let Step::Input(input) = step else {
                continue;
            };
            if input.property().sequence < LEFT_OUT {
                let copy = Message::new(into, input.payload()).unwrap();
                processor.emit(input, copy).await.unwrap();
            } else {
                let left_out = processor.filter_out(vec![input], DropReason::FILTERED);
                left_out.await.unwrap();
            }
        }
    });
}

/// A consumer, from what it has saved or from the beginning.
async fn consumer(
    to: SocketAddr,
    from: &str,
    saved: Option<Vec<u8>>,
) -> (Client, AuditedSubscriber) {
    let client = connect(kept(to, "c")).await;
    let mut line = subscriber(from).scope(Scope::FromBeginning);
    if let Some(saved) = saved {
        line = line.restore(saved);
    }
    let line = line.acknowledged_by_hand().open(&client).await.unwrap();
    (client, line)
}

fn save(line: &mut AuditedSubscriber) -> Vec<u8> {
    let saved = line.save(&[]);
    let bytes = saved.bytes().to_vec();
    saved.stored();
    bytes
}

/// Everything that it has acknowledged is at the broker; what it knows is gone.
async fn kill(client: Client, line: AuditedSubscriber) {
    within("an answer", client.ping()).await.unwrap();
    client.disconnect().await;
    drop(line);
}

#[tokio::test]
async fn what_was_left_out_is_heard_again_by_a_consumer_that_had_not_saved_it() {
    for kind in Kind::installed() {
        let broker = Broker::start(kind);
        let to = broker.address();
        let (client, mut line) = consumer(to, "out", None).await;
        save(&mut line);
        filtering(to, "in", "out").await;
        let sender = connect(options(to, "a")).await;
        let lane = publisher(1).open_unspooled(&sender).await.unwrap();
        publish_all(&lane, "in", 0..LEFT_OUT).await;
        let mut seen = Seen::default();
        until(&mut line, &mut seen, "what is passed on", |seen| {
            seen.messages.len() == 4
        })
        .await;
        let saved = save(&mut line);
        publish_all(&lane, "in", LEFT_OUT..8).await;
        let mut unsaved = Seen::default();
        until(&mut line, &mut unsaved, "a drop record", |seen| {
            seen.dropped.len() == 4
        })
        .await;
        assert!(line.has_unsaved());
        kill(client, line).await;

        let (_client, mut line) = consumer(to, "out", Some(saved)).await;
        lane.close(TotalDuration(Duration::ZERO)).await.unwrap();
        until(&mut line, &mut seen, "the end", |seen| seen.closed).await;
        assert_eq!((seen.dropped.len(), seen.lost_of), (4, vec![]), "{kind:?}");
    }
}

#[tokio::test]
async fn the_last_checkpoint_is_heard_again_by_a_consumer_that_had_not_saved_it() {
    for kind in Kind::installed() {
        let broker = Broker::start(kind);
        let to = broker.address();
        let (client, mut line) = consumer(to, "data", None).await;
        let sender = connect(options(to, "a")).await;
        let lane = publisher(1).open_unspooled(&sender).await.unwrap();
        publish_all(&lane, "data", 0..4).await;
        let mut seen = Seen::default();
        until(&mut line, &mut seen, "messages", |seen| {
            seen.messages.len() == 4
        })
        .await;
        let saved = save(&mut line);
        lane.close(TotalDuration(Duration::ZERO)).await.unwrap();
        until(&mut line, &mut seen, "the end", |seen| seen.closed).await;
        kill(client, line).await;

        let (_client, mut line) = consumer(to, "data", Some(saved)).await;
        let mut again = Seen::default();
        until(&mut line, &mut again, "the end again", |seen| seen.closed).await;
    }
}

#[tokio::test]
async fn what_another_processor_left_out_is_in_the_spool_of_one_that_heard_it() {
    for kind in Kind::installed() {
        let broker = Broker::start(kind);
        let to = broker.address();
        let spool = tempfile::tempdir().unwrap();
        let open = async || {
            let client = connect(kept(to, "b")).await;
            let line = subscriber("mid").scope(Scope::FromBeginning);
            let input = line.acknowledged_by_hand().open(&client).await.unwrap();
            let output = publisher(3).open(&client, spool.path()).await.unwrap();
            (client, Processor::new(input, output))
        };
        let (client, mut processor) = open().await;
        filtering(to, "in", "mid").await;
        let sender = connect(options(to, "a")).await;
        let of_a = publisher(1).open_unspooled(&sender).await.unwrap();
        publish_all(&of_a, "in", 0..8).await;
        let mut dropped = 0;
        while dropped < 4 {
            match within("a step", processor.next()).await.unwrap() {
                Step::Input(input) => {
                    let copy = Message::new("out", input.payload()).unwrap();
                    processor.emit(input, copy).await.unwrap();
                }
                Step::Other(Delivery::Dropped { record, .. }) => dropped += record.len(),
                Step::Other(_) => {}
            }
        }
        processor.leave().await.unwrap();
        client.disconnect().await;

        let (_client, processor) = open().await;
        let ledger = processor.input().ledger();
        let known = ledger.lane(lane(1), of_a.epoch()).unwrap();
        assert!(known.is_settled_below(8), "{kind:?}");
        assert_eq!(known.next(), 8);
    }
}
