//! The audited line over real brokers, ours and Mosquitto: every injected fault is named, repaired,
//! and the root closes; what is no fault gets no name.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../support/mod.rs"]
mod support;

mod spool;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use support::broker::{Broker, Kind};
use support::line::{
    Fault, Seen, connect, inject, lane, numbered, publish_all, publisher, subscriber, until,
    until_proven,
};
use support::options;
use support::relay::{Fate, Relay};
use unbroken_client::audit::{AuditError, Delivery, OpenError, Scope, SpoolError};
use unbroken_client::{Filter, Message, QoS, TotalDuration, Version};
use unbroken_merkle_log::ledger::{Event, LedgerLimits, Request, Verdict};
use unbroken_merkle_log::{Directory, Hasher, LaneLimits, Property};
use unbroken_mqtt_proto::{Packet, next_frame};

#[tokio::test]
async fn a_line_without_faults_is_proven_whole_and_names_nothing() {
    for kind in Kind::installed() {
        let broker = Broker::start(kind);
        let to = broker.address();
        let receiver = connect(options(to, "c")).await;
        let line = subscriber("data/#").scope(Scope::FromBeginning);
        let mut line = line.open(&receiver).await.unwrap();
        let sender = connect(options(to, "a")).await;
        let spool = tempfile::tempdir().unwrap();
        let lane = publisher(1).open(&sender, spool.path()).await.unwrap();
        publish_all(&lane, "data/1", 0..3_000).await;
        lane.close(TotalDuration(Duration::ZERO)).await.unwrap();
        let mut seen = Seen::default();
        until_proven(&mut line, &mut seen, 3_000).await;
        assert_eq!(seen.faults(), [], "{kind:?}");
        assert_eq!(
            (seen.messages.len(), seen.lost(), seen.asked),
            (3_000, vec![], 0)
        );
    }
}

#[tokio::test]
async fn each_injected_fault_is_named_and_repaired() {
    for kind in Kind::installed() {
        let broker = Broker::start(kind);
        let relay = Relay::to(broker.address()).await;
        let receiver = connect(options(relay.address(), "c")).await;
        let line = subscriber("data").scope(Scope::FromBeginning);
        let mut line = line.open(&receiver).await.unwrap();
        let sender = connect(options(broker.address(), "a")).await;
        let lane = publisher(1).open_unspooled(&sender).await.unwrap();
        let injections = vec![
            (5, Fault::Lose),
            (20, Fault::Duplicate),
            (30, Fault::Swap),
            (40, Fault::Alter),
            (50, Fault::Inject),
            (99, Fault::Lose),
        ];
        inject(&relay, "data", injections);
        publish_all(&lane, "data", 0..100).await;
        let mut seen = Seen::default();
        until_proven(&mut line, &mut seen, 100).await;
        let mut faults = seen.faults();
        faults.retain(|(_, verdict)| *verdict != Verdict::Ahead);
        faults.sort_unstable_by_key(|(number, verdict)| (*number, *verdict != Verdict::Altered));
        let expect = [
            (5, Verdict::Repaired),
            (20, Verdict::Duplicate),
            (30, Verdict::Late),
            (40, Verdict::Altered),
            (40, Verdict::Repaired),
            (50, Verdict::Injected),
            (99, Verdict::Repaired),
        ];
        assert_eq!(faults, expect, "{kind:?}");
        let mut lost = seen.lost();
        lost.sort_unstable();
        assert_eq!(lost, [5, 99], "{kind:?}: {:?}", seen.events);
        let moved = seen
            .events
            .iter()
            .filter(|event| matches!(event, Event::Moved(_)));
        assert_eq!(moved.count(), 1);
        let texts: Vec<_> = (0..100).map(|number: u64| number.to_string()).collect();
        let expect: Vec<_> = (0..).zip(texts.iter().map(|text| &**text)).collect();
        assert_eq!(seen.taken(), expect);
    }
}

#[tokio::test]
async fn a_repair_sends_again_what_is_missing_and_nothing_else() {
    for kind in Kind::installed() {
        let broker = Broker::start(kind);
        let (from_a, to_c) = (
            Relay::to(broker.address()).await,
            Relay::to(broker.address()).await,
        );
        let again = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&again);
        from_a.inject_to_broker(move |packet| {
            noted.lock().unwrap().extend(sent_again(packet));
            Fate::pass(packet)
        });
        let missing: Vec<u64> = [3, 4, 5, 700].into_iter().chain(1_020..1_030).collect();
        let injections = missing.iter().map(|number| (*number, Fault::Lose));
        inject(&to_c, "data", injections.collect());
        let receiver = connect(options(to_c.address(), "c")).await;
        let line = subscriber("data").scope(Scope::FromBeginning);
        let mut line = line.open(&receiver).await.unwrap();
        let sender = connect(options(from_a.address(), "a")).await;
        let lane = publisher(1).open_unspooled(&sender).await.unwrap();
        publish_all(&lane, "data", 0..2_048).await;
        let (mut seen, mut asked_for) = (Seen::default(), Vec::new());
        support::within("the proof", async {
            while seen.proven() < 2_048 {
                let delivery = line.next().await.unwrap();
                if let Delivery::Asked { request, .. } = &delivery {
                    let Request::Numbers(numbers) = request else {
                        panic!("{request:?}");
                    };
                    asked_for.extend(numbers.iter().cloned().flatten());
                }
                seen.take(delivery);
            }
        })
        .await;
        asked_for.sort_unstable();
        let mut again = again.lock().unwrap().clone();
        again.sort_unstable();
        // Who is slow is asked for a second time what is on its way.
        assert!(again.len() <= asked_for.len(), "{kind:?}: {again:?}");
        again.dedup();
        asked_for.dedup();
        assert_eq!((&again, &asked_for), (&missing, &missing), "{kind:?}");
    }
}

/// The number of a message that is sent again on request.
fn sent_again(packet: &[u8]) -> Option<u64> {
    let frame = next_frame(packet, u32::MAX).ok()??;
    let Ok(Packet::Publish(publish)) = Packet::decode(frame, Version::V5) else {
        return None;
    };
    let properties = || publish.properties.user_properties();
    properties().find(|(name, _)| *name == "audit-topic")?;
    let (_, stamp) = properties().find(|(name, _)| *name == Property::NAME)?;
    Some(Property::parse_text(stamp).ok()?.sequence)
}

#[tokio::test]
async fn a_loss_at_qos_0_is_named_and_repaired_though_delivery_was_not_promised() {
    for kind in Kind::installed() {
        let broker = Broker::start(kind);
        let relay = Relay::to(broker.address()).await;
        let receiver = connect(options(relay.address(), "c")).await;
        let line = subscriber("data").scope(Scope::FromBeginning);
        let mut line = line.open(&receiver).await.unwrap();
        let sender = connect(options(broker.address(), "a")).await;
        let publishers = [QoS::AtMostOnce, QoS::AtLeastOnce]
            .map(|qos| publisher(1 + u64::from(u8::from(qos))).qos(qos));
        for publisher in publishers {
            let lane = publisher.open_unspooled(&sender).await.unwrap();
            inject(&relay, "data", vec![(5, Fault::Lose), (9, Fault::Swap)]);
            publish_all(&lane, "data", 0..100).await;
            let mut seen = Seen::default();
            until_proven(&mut line, &mut seen, 100).await;
            assert_eq!(seen.lost(), [5], "{kind:?}");
            assert!(seen.faults().contains(&(5, Verdict::Repaired)));
            assert_eq!(seen.taken().len(), 100);
            let is_at_most_once = line.is_at_most_once(lane.lane());
            assert_eq!(is_at_most_once, lane.lane().value() == 1, "{kind:?}");
        }
    }
}

#[tokio::test]
async fn a_killed_broker_loses_nothing_that_the_spool_has() {
    for kind in Kind::installed() {
        let mut broker = Broker::start(kind);
        let receiver = connect(options(broker.address(), "c")).await;
        let line = subscriber("data").scope(Scope::FromBeginning);
        let mut line = line.open(&receiver).await.unwrap();
        let sender = connect(options(broker.address(), "a")).await;
        let spool = tempfile::tempdir().unwrap();
        let lane = publisher(1).open(&sender, spool.path()).await.unwrap();
        let mut seen = Seen::default();
        let mut stamped = Vec::new();
        for number in 0..1_024 {
            if number % 300 == 150 {
                broker.kill_and_start_anew();
            }
            stamped.push(lane.send(numbered("data", number)).await.unwrap());
            if number == 0 {
                // A lane of which nothing has come but checkpoints is not this line's.
                let first = |seen: &Seen| !seen.messages.is_empty();
                until(&mut line, &mut seen, "the first", first).await;
            }
        }
        until_proven(&mut line, &mut seen, 1_024).await;
        for stamped in stamped {
            support::within("an acknowledgement", stamped.published())
                .await
                .unwrap();
        }
        assert_eq!(seen.taken().len(), 1_024, "{kind:?}");
    }
}

#[tokio::test]
async fn a_forged_message_is_found_by_descent_and_the_real_one_comes_again() {
    for kind in Kind::installed() {
        let broker = Broker::start(kind);
        let relay = Relay::to(broker.address()).await;
        let receiver = connect(options(relay.address(), "c")).await;
        let line = subscriber("data").scope(Scope::FromBeginning);
        let mut line = line.open(&receiver).await.unwrap();
        let sender = connect(options(broker.address(), "a")).await;
        let lane = publisher(1).open_unspooled(&sender).await.unwrap();
        inject(&relay, "data", vec![(700, Fault::Forge)]);
        publish_all(&lane, "data", 0..1_024).await;
        let mut seen = Seen::default();
        until_proven(&mut line, &mut seen, 1_024).await;
        let forged = seen.events.iter().filter_map(|event| match event {
            Event::Forged(numbers) => Some(numbers.clone()),
            _ => None,
        });
        assert_eq!(forged.flatten().collect::<Vec<_>>(), [700], "{kind:?}");
        assert_eq!(seen.faults(), [(700, Verdict::Repaired)], "{kind:?}");
        assert_eq!(seen.messages.last().unwrap().2, "700");
    }
}

#[tokio::test]
async fn an_altered_message_comes_again_though_nothing_is_lost() {
    for kind in Kind::installed() {
        let broker = Broker::start(kind);
        let relay = Relay::to(broker.address()).await;
        let receiver = connect(options(relay.address(), "c")).await;
        let line = subscriber("data").scope(Scope::FromBeginning);
        let mut line = line.open(&receiver).await.unwrap();
        let sender = connect(options(broker.address(), "a")).await;
        let lane = publisher(1).open_unspooled(&sender).await.unwrap();
        inject(&relay, "data", vec![(5, Fault::Alter)]);
        publish_all(&lane, "data", 0..10).await;
        let mut seen = Seen::default();
        until_proven(&mut line, &mut seen, 10).await;
        let expect = [Verdict::Altered, Verdict::Ahead, Verdict::Repaired];
        let verdicts: Vec<_> = seen.faults().iter().map(|(_, verdict)| *verdict).collect();
        assert_eq!(verdicts, expect, "{kind:?}");
        assert_eq!(seen.lost(), []);
    }
}

#[tokio::test]
async fn cut_connections_on_either_side_name_nothing() {
    for kind in Kind::installed() {
        let broker = Broker::start(kind);
        let (from_a, to_c) = (
            Relay::to(broker.address()).await,
            Relay::to(broker.address()).await,
        );
        for qos in [QoS::AtLeastOnce, QoS::ExactlyOnce] {
            let id = 1 + u64::from(u8::from(qos));
            let receiver = connect(options(to_c.address(), &format!("c{qos}"))).await;
            let line = subscriber("data")
                .scope(Scope::FromBeginning)
                .expect(lane(id));
            let mut line = line.open(&receiver).await.unwrap();
            let sender = connect(options(from_a.address(), &format!("a{qos}"))).await;
            let spool = tempfile::tempdir().unwrap();
            let lane = publisher(id)
                .qos(qos)
                .open(&sender, spool.path())
                .await
                .unwrap();
            let mut seen = Seen::default();
            for part in 0..8_u64 {
                publish_all(&lane, "data", part * 128..part * 128 + 64).await;
                let rest = part * 128 + 64..(part + 1) * 128;
                let cutting = async {
                    if part % 2 == 0 {
                        from_a.cut();
                    } else {
                        to_c.cut();
                    }
                };
                tokio::join!(publish_all(&lane, "data", rest), cutting);
            }
            until_proven(&mut line, &mut seen, 1_024).await;
            let mut faults = seen.faults();
            // Sent again by A or the broker, and said so: here for the first time, or not.
            faults.retain(|(_, verdict)| !matches!(verdict, Verdict::Repaired | Verdict::Replayed));
            assert_eq!((faults, seen.lost()), (vec![], vec![]), "{kind:?} {qos}");
            assert_eq!(seen.taken().len(), 1_024);
        }
    }
}

#[tokio::test]
async fn a_closed_epoch_is_proven_to_its_end_and_the_next_start_begins_another() {
    let broker = Broker::start(Kind::Unbroken);
    let receiver = connect(options(broker.address(), "c")).await;
    let line = subscriber("data").scope(Scope::FromBeginning);
    let mut line = line.open(&receiver).await.unwrap();
    let sender = connect(options(broker.address(), "a")).await;
    let spool = tempfile::tempdir().unwrap();
    let mut epochs = Vec::new();
    for _ in 0..2 {
        let lane = publisher(1).open(&sender, spool.path()).await.unwrap();
        epochs.push(lane.epoch());
        publish_all(&lane, "data", 0..10).await;
        lane.close(TotalDuration(Duration::ZERO)).await.unwrap();
        let mut seen = Seen::default();
        until_proven(&mut line, &mut seen, 10).await;
        assert_eq!((seen.faults(), seen.lost()), (vec![], vec![]));
    }
    assert!(epochs[0] < epochs[1], "{epochs:?}");
}

#[tokio::test]
async fn directories_of_a_producer_that_begins_again_are_newer_than_those_before() {
    let broker = Broker::start(Kind::Unbroken);
    let receiver = connect(options(broker.address(), "c")).await;
    let filter = Filter::new("audit/directory/+").unwrap();
    let mut directories = receiver.subscribe(filter).await.unwrap();
    let spool = tempfile::tempdir().unwrap();
    let mut last = None;
    for start in 0..3 {
        let sender = connect(options(broker.address(), &format!("a{start}"))).await;
        let lane = publisher(1).open(&sender, spool.path()).await.unwrap();
        let told = support::within("a directory", directories.recv()).await;
        let told = Directory::parse(told.unwrap().payload()).unwrap();
        let told = told.open(&Hasher::xxh3()).unwrap();
        let place = Some((told.epoch, told.number));
        assert!(place > last, "{place:?} after {last:?}");
        last = place;
        lane.leave().await.unwrap();
    }
}

#[tokio::test]
async fn starts_without_a_spool_have_different_epochs_though_they_are_in_one_second() {
    let broker = Broker::start(Kind::Unbroken);
    let sender = connect(options(broker.address(), "a")).await;
    let mut epochs = Vec::new();
    for _ in 0..4 {
        let lane = publisher(1).open_unspooled(&sender).await.unwrap();
        epochs.push(lane.epoch());
        lane.leave().await.unwrap();
    }
    epochs.sort_unstable();
    epochs.dedup();
    assert_eq!(epochs.len(), 4, "{epochs:?}");
}

#[tokio::test]
async fn a_client_of_a_version_that_cannot_carry_numbers_is_refused() {
    let broker = Broker::start(Kind::Unbroken);
    let spool = tempfile::tempdir().unwrap();
    let directory = spool.path().join("spool");
    for version in [Version::V3_1_1, Version::V3_1] {
        let client = connect(options(broker.address(), "old").version(version)).await;
        let refusals = [
            publisher(1).open(&client, &directory).await.err(),
            publisher(1).open_unspooled(&client).await.err(),
            subscriber("data").open(&client).await.err(),
        ];
        for refusal in refusals {
            let refusal = refusal.unwrap();
            assert!(matches!(refusal, OpenError::Version(of) if of == version));
            assert!(refusal.to_string().contains("version 5.0"), "{refusal}");
        }
    }
    assert!(!directory.exists());
}

#[tokio::test]
async fn messages_of_a_lane_for_which_there_is_no_room_are_given_out_and_their_lane_is_named() {
    let broker = Broker::start(Kind::Unbroken);
    let receiver = connect(options(broker.address(), "c")).await;
    let mut limits = LedgerLimits::default();
    limits.lanes_max = 1;
    let line = subscriber("data")
        .scope(Scope::FromBeginning)
        .limits(limits);
    let mut line = line.open(&receiver).await.unwrap();
    let sender = connect(options(broker.address(), "a")).await;
    for id in [1, 2] {
        let lane = publisher(id).open_unspooled(&sender).await.unwrap();
        publish_all(&lane, "data", 0..3).await;
    }
    let (mut taken, mut named) = (Vec::new(), Vec::new());
    support::within("6 messages", async {
        while taken.len() < 6 {
            match line.next().await.unwrap() {
                Delivery::Message(message) => {
                    assert!(message.is_new(), "{message:?}");
                    let lane = message.property().unwrap().lane.value();
                    taken.push((lane, message.is_unjudged()));
                }
                Delivery::NoRoom {
                    lane, lanes_max, ..
                } => named.push((lane.value(), lanes_max)),
                _ => {}
            }
        }
    })
    .await;
    taken.sort_unstable();
    let expect = [[(1, false); 3], [(2, true); 3]].concat();
    assert_eq!((taken, named), (expect, vec![(2, 1)]));
}
