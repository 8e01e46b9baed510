//! Listeners that come late, restart, or see only a part.

use super::*;

#[tokio::test]
async fn who_comes_late_or_sees_a_retained_or_second_copy_names_no_fault() {
    for kind in Kind::installed() {
        let broker = Broker::start(kind);
        let sender = connect(options(broker.address(), "a")).await;
        let lane = publisher(1).open_unspooled(&sender).await.unwrap();
        publish_all(&lane, "data/1", 0..100).await;
        let kept = Message::new("data/1", *b"kept").unwrap().retained();
        lane.publish(kept).await.unwrap();
        let client = connect(options(broker.address(), "c")).await;
        let filters = ["data/#", "data/+", "#"].map(|text| Filter::new(text).unwrap());
        let line = unbroken_client::audit::SubscriberOptions::new(filters.into());
        let mut line = line.open(&client).await.unwrap();
        publish_all(&lane, "data/1", 101..3_072).await;
        let mut seen = Seen::default();
        until(&mut line, &mut seen, "two proven windows", |seen| {
            seen.proven() >= 2_048
        })
        .await;
        let mut faults = seen.faults();
        faults.retain(|(_, verdict)| !matches!(verdict, Verdict::OutOfScope | Verdict::NotAudited));
        assert_eq!(faults, [], "{kind:?}");
        assert_eq!(seen.lost(), [], "{kind:?}");
    }
}

#[tokio::test]
async fn who_sees_some_topics_of_a_lane_names_no_fault() {
    for kind in Kind::installed() {
        let broker = Broker::start(kind);
        let client = connect(options(broker.address(), "c")).await;
        let line = subscriber("data/1").scope(Scope::Part);
        let mut line = line.open(&client).await.unwrap();
        let sender = connect(options(broker.address(), "a")).await;
        let lane = publisher(1).open_unspooled(&sender).await.unwrap();
        for part in 0..16 {
            let topic = ["data/1", "data/2"][part % 2];
            let first = u64::try_from(part).unwrap() * 128;
            publish_all(&lane, topic, first..first + 128).await;
        }
        lane.close(TotalDuration(Duration::ZERO)).await.unwrap();
        let mut seen = Seen::default();
        // The last one comes when the epoch is over, behind all messages.
        until(&mut line, &mut seen, "the end of the lane", |seen| {
            seen.messages.len() == 1_024 && seen.closed
        })
        .await;
        let mut faults = seen.faults();
        faults.retain(|(_, verdict)| *verdict != Verdict::Ahead);
        assert_eq!(faults, [], "{kind:?}");
        assert_eq!((seen.lost(), seen.asked), (vec![], 0), "{kind:?}");
    }
}

#[tokio::test]
async fn who_drains_a_queue_of_what_came_while_it_was_away_names_no_fault() {
    for kind in Kind::installed() {
        let broker = Broker::start(kind);
        let sender = connect(options(broker.address(), "a")).await;
        let lane = publisher(1).open_unspooled(&sender).await.unwrap();
        let mut saved = None;
        let mut seen = Seen::default();
        for end in [100, 3_072] {
            let session = Session::Kept { expiry_s: 600 };
            let client = connect(options(broker.address(), "c").session(session)).await;
            let mut line = subscriber("data").scope(Scope::FromBeginning);
            if let Some(saved) = saved.take() {
                line = line.restore(saved);
            }
            let mut line = line.open(&client).await.unwrap();
            if end == 100 {
                publish_all(&lane, "data", 0..100).await;
                until(&mut line, &mut seen, "messages", |seen| {
                    seen.messages.len() == 100
                })
                .await;
                saved = Some(line.save(&[]).bytes().to_vec());
                client.ping().await.unwrap();
                client.disconnect().await;
                publish_all(&lane, "data", 100..3_072).await;
                continue;
            }
            until_proven(&mut line, &mut seen, end).await;
            assert_eq!((seen.faults(), seen.lost()), (vec![], vec![]), "{kind:?}");
            assert_eq!((seen.asked, seen.messages.len()), (0, 3_072), "{kind:?}");
        }
    }
}

#[tokio::test]
async fn a_consumer_that_restarts_goes_on_from_what_it_saved() {
    for kind in Kind::installed() {
        let broker = Broker::start(kind);
        let session = Session::Kept { expiry_s: 60 };
        let sender = connect(options(broker.address(), "a")).await;
        let mut saved: Option<Vec<u8>> = None;
        let mut lane = None;
        let mut seen = Seen::default();
        for life in 0..4_u64 {
            let client = connect(options(broker.address(), "c").session(session)).await;
            let mut line = subscriber("data").scope(Scope::FromBeginning);
            line = line.acknowledged_by_hand();
            if let Some(saved) = saved.take() {
                line = line.restore(saved);
            }
            let mut line = line.open(&client).await.unwrap();
            if life > 0 {
                assert_eq!(line.position(), life.to_string().as_bytes());
            }
            if lane.is_none() {
                lane = Some(publisher(1).open_unspooled(&sender).await.unwrap());
            }
            let lane = lane.as_ref().unwrap();
            let publishing = publish_all(lane, "data", life * 256..(life + 1) * 256);
            let end = usize::try_from((life + 1) * 256).unwrap() - 7;
            // The last few of each life are not taken, and come again.
            let reading = until(&mut line, &mut seen, "messages", |seen| {
                seen.taken().len() >= end
            });
            tokio::join!(publishing, reading);
            let bytes = line.save((life + 1).to_string().as_bytes());
            saved = Some(bytes.bytes().to_vec());
            bytes.stored();
            client.ping().await.unwrap();
            client.disconnect().await;
        }
        let client = connect(options(broker.address(), "c").session(session)).await;
        let line = subscriber("data").scope(Scope::FromBeginning);
        let line = line.acknowledged_by_hand().restore(saved.unwrap());
        let mut line = line.open(&client).await.unwrap();
        until(&mut line, &mut seen, "the proof", |seen| {
            seen.proven() >= 1_024
        })
        .await;
        assert_eq!(
            (seen.taken().len(), seen.lost()),
            (1_024, vec![]),
            "{kind:?}"
        );
        let mut faults = seen.faults();
        faults.retain(|(_, verdict)| *verdict != Verdict::Replayed);
        assert_eq!(faults, [], "{kind:?}");
    }
}

#[tokio::test]
async fn what_a_consumer_had_asked_for_comes_to_it_after_its_restart() {
    for kind in Kind::installed() {
        let broker = Broker::start(kind);
        let (from_a, to_c) = (
            Relay::to(broker.address()).await,
            Relay::to(broker.address()).await,
        );
        let mut limits = Limits::default();
        limits.receive_maximum = 8;
        let session = Session::Kept { expiry_s: 60 };
        let consumer = options(to_c.address(), "c").session(session).limits(limits);
        let line = subscriber("data").scope(Scope::FromBeginning);
        let line = line.acknowledged_by_hand();
        let watching = connect(options(broker.address(), "w")).await;
        let mut checkpoints = listen(&watching, "audit/checkpoint/+").await;
        let mut answers = listen(&watching, "audit/answer/+").await;

        let client = connect(consumer.clone()).await;
        let mut before = line.clone().open(&client).await.unwrap();
        let sender = connect(options(from_a.address(), "a")).await;
        let lane = publisher(1).open_unspooled(&sender).await.unwrap();
        inject(&to_c, "data", vec![(3, Fault::Lose)]);
        publish_all(&lane, "data", 0..6).await;
        while checkpointed(&mut checkpoints).await < 6 {}
        // It asks, and is gone before A has heard of it.
        from_a.close();
        let mut seen = Seen::default();
        until(&mut before, &mut seen, "a request", |seen| seen.asked == 1).await;
        let saved = before.save(&[]).bytes().to_vec();
        client.disconnect().await;
        from_a.open();
        let answer = support::within("the answer", answers.recv()).await;
        assert_eq!(answer.unwrap().payload(), b"3", "{kind:?}");

        let client = connect(consumer).await;
        let mut after = line.restore(saved).open(&client).await.unwrap();
        let publishing = publish_all(&lane, "data", 6..1_024);
        let reading = until_proven(&mut after, &mut seen, 1_024);
        tokio::join!(publishing, reading);
        assert_eq!(seen.lost(), [3], "{kind:?}");
        assert_eq!(seen.taken().len(), 1_024, "{kind:?}");
    }
}
