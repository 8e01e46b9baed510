//! The spool: restarts, limits and faults of a producer.

use super::*;

#[tokio::test]
async fn a_restart_continues_the_lane_from_its_spool() {
    for kind in Kind::installed() {
        let broker = Broker::start(kind);
        let relay = Relay::to(broker.address()).await;
        let receiver = connect(options(broker.address(), "c")).await;
        let line = subscriber("data").scope(Scope::FromBeginning);
        let mut line = line.open(&receiver).await.unwrap();
        let spool = tempfile::tempdir().unwrap();
        let mut seen = Seen::default();
        let mut epochs = Vec::new();
        for start in 0..3_u64 {
            // A CONNECT of the life before may still wait at the relay.
            let sender = connect(options(relay.address(), &format!("a{start}"))).await;
            let lane = publisher(1).open(&sender, spool.path()).await.unwrap();
            epochs.push(lane.epoch());
            let end = (start + 1) * 1_024;
            publish_all(&lane, "data", end - 1_024..end - 10).await;
            // The last ten never get an answer: the process ends before.
            relay.close();
            for number in end - 10..end {
                lane.send(numbered("data", number)).await.unwrap();
            }
            support::within("the spool", in_spool(spool.path(), end - 1)).await;
            sender.disconnect().await;
            // The publisher ends with its client, and says so.
            assert!(support::within("the end", lane.leave()).await.is_err());
            relay.open();
        }
        let sender = connect(options(relay.address(), "a")).await;
        let lane = publisher(1).open(&sender, spool.path()).await.unwrap();
        until_proven(&mut line, &mut seen, 3_000).await;
        assert!(
            epochs.iter().all(|epoch| *epoch == lane.epoch()),
            "{epochs:?}"
        );
        let others: Vec<_> = seen
            .faults()
            .into_iter()
            .filter(|(_, verdict)| !matches!(verdict, Verdict::Repaired | Verdict::Replayed))
            .collect();
        assert_eq!((others, seen.lost()), (vec![], vec![]), "{kind:?}");
        assert_eq!(seen.taken().len(), 3 * 1_024);
    }
}

#[tokio::test]
async fn a_restart_sends_all_that_the_spool_has_though_the_lane_holds_less() {
    let broker = Broker::start(Kind::Unbroken);
    let relay = Relay::to(broker.address()).await;
    let receiver = connect(options(broker.address(), "c")).await;
    let line = subscriber("data").scope(Scope::FromBeginning);
    let mut line = line.open(&receiver).await.unwrap();
    let spool = tempfile::tempdir().unwrap();
    let mut limits = LaneLimits::default();
    limits.message_bytes_max = 100;
    let continued = publisher(1).lane_limits(limits);
    let sender = connect(options(relay.address(), "a1")).await;
    let lane = continued.clone().open(&sender, spool.path());
    let lane = lane.await.unwrap();
    relay.close();
    for number in 1_000..1_200 {
        lane.send(numbered("data", number)).await.unwrap();
    }
    support::within("the spool", in_spool(spool.path(), 1_199)).await;
    sender.disconnect().await;
    assert!(support::within("the end", lane.leave()).await.is_err());
    relay.open();
    let sender = connect(options(relay.address(), "a2")).await;
    let lane = continued.open(&sender, spool.path()).await.unwrap();
    let closing = lane.close(TotalDuration(Duration::ZERO));
    support::within("the end", closing).await.unwrap();
    let mut seen = Seen::default();
    until_proven(&mut line, &mut seen, 200).await;
    assert_eq!((seen.taken().len(), seen.lost()), (200, vec![]));
}

/// Waits until a number's text is in the spool's file.
async fn in_spool(directory: &std::path::Path, number: u64) {
    let path = directory.join(format!("{}.spool", lane(1)));
    let needle = number.to_string();
    loop {
        let content = std::fs::read(&path).unwrap_or_default();
        if content
            .windows(needle.len())
            .any(|part| part == needle.as_bytes())
        {
            return;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_full_spool_refuses_by_name_and_an_acknowledged_one_is_trimmed() {
    let broker = Broker::start(Kind::Unbroken);
    let relay = Relay::to(broker.address()).await;
    let sender = connect(options(relay.address(), "a")).await;
    let spool = tempfile::tempdir().unwrap();
    let mut limits = LaneLimits::default();
    limits.message_bytes_max = 4_096;
    let lane = publisher(1).lane_limits(limits).spool_bytes_max(40_000);
    let lane = lane.open(&sender, spool.path()).await.unwrap();
    let large = || Message::new("data", vec![7; 1_000]).unwrap();
    // Far more than fits, but acknowledged.
    for _ in 0..200 {
        lane.publish(large()).await.unwrap();
    }
    let size = std::fs::metadata(spool.path().join("0000000000000001.spool"))
        .unwrap()
        .len();
    assert!(size <= 40_000, "{size}");
    relay.close();
    let mut stamped = Vec::new();
    for _ in 0..60 {
        stamped.push(lane.send(large()).await.unwrap());
    }
    relay.open();
    let mut refused = 0;
    for stamped in stamped {
        match support::within("an answer", stamped.published()).await {
            Ok(_) => {}
            Err(AuditError::Spool(SpoolError::Full { max: 40_000, .. })) => refused += 1,
            Err(other) => panic!("{other}"),
        }
    }
    assert!((1..60).contains(&refused), "{refused}");
}

#[tokio::test]
async fn a_spool_is_trimmed_at_the_very_end_of_a_window() {
    let broker = Broker::start(Kind::Unbroken);
    let sender = connect(options(broker.address(), "a")).await;
    let spool = tempfile::tempdir().unwrap();
    let mut limits = LaneLimits::default();
    limits.windows_held_max = 1;
    let lane = publisher(1).lane_limits(limits).spool_bytes_max(400_000);
    let lane = lane.open(&sender, spool.path()).await.unwrap();
    publish_all(&lane, "data", 0..2_048).await;
    // There is room for it when others have gone.
    let large = Message::new("data", vec![7; 390_000]).unwrap();
    let published = lane.publish(large).await.unwrap();
    assert_eq!(published.property.sequence, 2_048);
}

#[tokio::test]
async fn what_is_acknowledged_gives_way_in_a_spool_smaller_than_what_the_lane_holds() {
    let broker = Broker::start(Kind::Unbroken);
    let sender = connect(options(broker.address(), "a")).await;
    let spool = tempfile::tempdir().unwrap();
    let lane = publisher(1).spool_bytes_max(40_000);
    let lane = lane.open(&sender, spool.path()).await.unwrap();
    // Larger than half the spool too.
    for size in [1_000; 200].into_iter().chain([15_000; 5]) {
        let message = Message::new("data", vec![7; size]).unwrap();
        lane.publish(message).await.unwrap();
    }
    let size = std::fs::metadata(spool.path().join("0000000000000001.spool"))
        .unwrap()
        .len();
    assert!(size <= 40_000, "{size}");
}

#[tokio::test]
async fn why_a_spool_failed_reaches_everybody_who_waits_and_who_comes_later() {
    let broker = Broker::start(Kind::Unbroken);
    let sender = connect(options(broker.address(), "a")).await;
    let spool = tempfile::tempdir().unwrap();
    let lane = publisher(1).spool_bytes_max(40_000);
    let lane = lane.open(&sender, spool.path()).await.unwrap();
    // Where the spool is to be written anew when it is full.
    std::fs::create_dir(spool.path().join("0000000000000001.new")).unwrap();
    let mut stamped = Vec::new();
    for _ in 0..60 {
        let message = Message::new("data", vec![7; 1_000]).unwrap();
        match lane.send(message).await {
            Ok(sent) => stamped.push(sent),
            Err(error) => {
                assert_failed(&error);
                break;
            }
        }
    }
    let mut failed = 0;
    for stamped in stamped {
        if let Err(error) = support::within("an answer", stamped.published()).await {
            assert_failed(&error);
            failed += 1;
        }
    }
    assert!(failed > 0);
    assert_failed(&lane.publish(numbered("data", 1)).await.unwrap_err());
    assert_failed(&lane.try_send(numbered("data", 1)).unwrap_err().1);
    assert_failed(&lane.leave().await.unwrap_err());
}

fn assert_failed(error: &AuditError) {
    assert!(
        matches!(error, AuditError::Spool(SpoolError::Io { .. })),
        "{error}"
    );
}
