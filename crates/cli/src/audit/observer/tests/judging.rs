//! Tests of what is judged, what is not, and why.

use super::*;
use crate::audit::unjudged;

/// A window of messages, of which none is missing, and its checkpoint.
fn proven_window(scene: &mut Scene) {
    for number in 0..1_024_u32 {
        scene.hear(&number.to_be_bytes(), Verdict::InOrder);
    }
    scene.close_window(State::Proven);
}

#[test]
fn what_is_suspected_behind_a_proven_window_leaves_the_lane_unjudged() {
    let mut scene = Scene::new();
    proven_window(&mut scene);
    assert_eq!(unjudged::reasons(&scene.observer), [""; 0]);
    assert_eq!(scene.watched().proven(), 0..1_024);
    scene.lane.issue(*b"t", *b"lost", &Hasher::xxh3());
    scene.hear(b"more", Verdict::Ahead);
    let key = scene.key();
    scene.observer.event(key, &Event::Suspected(1_024..1_025));
    assert_eq!(
        (scene.watched().proven(), scene.watched().known_to()),
        (0..1_024, 1_026)
    );
    let reasons = unjudged::reasons(&scene.observer);
    assert_eq!(
        reasons,
        ["in doubt in lane 0000000000000007 epoch 0: number 1024 may be missing"]
    );
    scene.observer.event(key, &Event::Settled);
    assert_eq!(unjudged::reasons(&scene.observer), [""; 0]);
    let silent = Event::Silent(SECOND * 2);
    scene.observer.event(key, &silent);
    assert_eq!(
        unjudged::reasons(&scene.observer).len(),
        1,
        "the last messages are not proven"
    );
}

#[test]
fn behind_a_proven_window_of_a_silent_lane_more_may_be_lost() {
    let mut scene = Scene::new();
    proven_window(&mut scene);
    let key = scene.key();
    scene.observer.event(key, &Event::Silent(SECOND * 20));
    let reasons = unjudged::reasons(&scene.observer);
    assert!(
        reasons[0].contains("its producer may have stopped"),
        "{reasons:?}"
    );
    scene.observer.event(key, &Event::Heard(SECOND * 21));
    assert_eq!(unjudged::reasons(&scene.observer), [""; 0]);
}

#[test]
fn announced_messages_that_have_not_come_when_the_listener_ends_are_in_doubt() {
    let mut scene = Scene::new();
    proven_window(&mut scene);
    let key = scene.key();
    scene.observer.outstanding(key, 1_024..1_026);
    let reasons = unjudged::reasons(&scene.observer);
    assert!(
        reasons[0].contains("numbers 1024 to 1025 may be missing"),
        "{reasons:?}"
    );
}

#[test]
fn an_epoch_whose_first_checkpoint_comes_later_began_while_the_listener_was_there() {
    for (at, expected) in [(1, 0), (4, 1)] {
        let mut scene = Scene::new();
        let key = scene.key();
        scene.observer.there_since = SECOND;
        scene.observer.pass(SECOND * at);
        scene.observer.event(key, &Event::OutOfScope(1_024));
        scene.hear(b"skipped", Verdict::OutOfScope);
        let first = scene.lane.clone().close(0, &Hasher::xxh3()).unwrap();
        assert_eq!(first.number, 0);
        scene.observer.checkpoint(&first);
        assert_eq!(scene.observer.partly_judged().count(), expected, "{at}");
    }
}

#[test]
fn what_came_beyond_a_cut_is_proven_by_nothing() {
    let mut scene = Scene::new();
    for number in 0..29_u32 {
        scene.hear(&number.to_be_bytes(), Verdict::InOrder);
    }
    let mut cut = scene.lane.clone().close(0, &Hasher::xxh3()).unwrap();
    (cut.size, cut.end) = (10, EpochEnd::Cut);
    scene.observer.checkpoint(&cut);
    let key = scene.key();
    scene.observer.window(key, 0..10, State::Proven);
    let reasons = unjudged::reasons(&scene.observer);
    assert!(
        reasons[0].contains("numbers 10 to 28 are beyond the end"),
        "{reasons:?}"
    );
}

#[test]
fn windows_are_proven_from_the_beginning_of_the_scope_without_a_hole() {
    let mut watched = Watched::default();
    watched.doubts.take(&Doubt::OutOfScope(1_024), SECOND);
    let mut window = |first: u64, end: u64, state| {
        watched.take_window(first..end, state);
        watched.proven()
    };
    assert!(window(2_048, 3_072, State::Proven).is_empty());
    assert!(window(1_024, 2_048, State::Unproven).is_empty());
    assert_eq!(window(1_024, 2_048, State::Proven), 1_024..3_072);
    assert_eq!(window(3_072, 3_080, State::Proven), 1_024..3_080);
    assert_eq!(window(3_072, 4_096, State::Proven), 1_024..4_096);
    assert_eq!(window(5_120, 6_144, State::Proven), 1_024..4_096);
}

#[test]
fn an_older_checkpoint_takes_no_newer_ones_place() {
    let mut scene = Scene::new();
    let mut old = None;
    for number in 0..1_024_u32 {
        scene.hear(&number.to_be_bytes(), Verdict::InOrder);
        if number == 500 {
            old = scene.lane.clone().close(0, &Hasher::xxh3());
        }
    }
    let full = scene
        .lane
        .poll_checkpoint(SECOND, 0, &Hasher::xxh3())
        .unwrap();
    scene.observer.checkpoint(&full);
    scene.observer.checkpoint(&old.unwrap());
    let key = scene.key();
    scene.observer.window(key, 0..1_024, State::Proven);
    let news = scene.observer.take_news();
    let Some(News::Window {
        roots: Some(roots), ..
    }) = news.last()
    else {
        panic!("{news:?}");
    };
    assert_eq!(roots.window, full.window_root);
    assert!(scene.observer.proof(None, Some(900)).is_some());
}

#[test]
fn a_lane_of_which_all_checkpoints_are_old_is_called_old_until_a_new_one_comes() {
    let mut scene = Scene::new();
    scene.observer.wall = Wall::at_second(1_000_000);
    scene.observer.pass(SECOND);
    scene.hear(b"a", Verdict::InOrder);
    let mut checkpoint = scene.lane.clone().close(0, &Hasher::xxh3()).unwrap();
    for (made_s, is_old) in [
        (999_900, true),
        (999_980, true),
        (999_990, false),
        (999_900, false),
    ] {
        checkpoint.time_us = made_s * 1_000_000;
        scene.observer.checkpoint(&checkpoint);
        assert_eq!(scene.watched().old().is_some(), is_old, "{made_s}");
        let reasons = unjudged::reasons(&scene.observer);
        assert_eq!(!reasons.is_empty(), is_old, "{reasons:?}");
    }
    let told: Vec<_> = scene
        .observer
        .take_news()
        .iter()
        .map(News::to_string)
        .collect();
    let lane = "lane 0000000000000007 epoch 0";
    assert_eq!(told.len(), 2, "{told:?}");
    let old = format!(
        "{lane}: old: checkpoints of 1970-01-12T13:45:00Z, 1 min before they were received"
    );
    assert!(told[0].starts_with(&old), "{told:?}");
    assert!(
        told[1].ends_with("its checkpoints are of this time again"),
        "{told:?}"
    );
}

#[test]
fn the_neighbours_of_a_loss_are_the_nearest_that_came_late_too() {
    let mut scene = Scene::new();
    let key = scene.key();
    let mut late = None;
    for number in 0..3_500_u32 {
        let payload = number.to_be_bytes();
        match number {
            100 => late = Some(scene.lane.issue(*b"t", payload, &Hasher::xxh3())),
            101 => drop(scene.lane.issue(*b"t", payload, &Hasher::xxh3())),
            102 => {
                scene.hear(&payload, Verdict::Ahead);
                scene.observer.event(key, &Event::Suspected(100..102));
            }
            _ => scene.hear(&payload, Verdict::InOrder),
        }
        if number == 103 {
            let property = late.unwrap();
            let payload = 100_u32.to_be_bytes();
            scene
                .observer
                .message("t", &payload, property, Verdict::Late, SECOND);
        }
    }
    for (number, expect) in [(100, (99, 102)), (101, (100, 102))] {
        let (before, after) = scene.watched().neighbours(&(number..number + 1));
        let numbers = (before.unwrap().number, after.unwrap().number);
        assert_eq!(numbers, expect, "{number}");
    }
}

#[test]
fn a_loss_while_the_listener_was_not_connected_is_no_fault_of_others() {
    let mut scene = Scene::new();
    let key = scene.key();
    scene.hear(b"0", Verdict::InOrder);
    scene.observer.connection(false, SECOND * 5);
    scene.observer.connection(true, SECOND * 9);
    for payload in [b"1", b"2"] {
        scene.lane.issue(*b"t", *payload, &Hasher::xxh3());
    }
    let property = scene.lane.issue(*b"t", *b"3", &Hasher::xxh3());
    scene.observer.pass(SECOND * 10);
    scene
        .observer
        .message("t", b"3", property, Verdict::Ahead, SECOND * 10);
    let absence = Absence {
        from: SECOND * 5,
        until: SECOND * 9,
    };
    scene.observer.lost(key, &(1..3), false, Some(absence));
    assert!(!scene.observer.found_faults());
    let fault = &scene.watched().faults[0];
    let why = "this listener was not connected from 00:00:05 to 00:00:09 UTC";
    assert!(fault.reason.contains(why), "{fault:?}");
    let words = "this listener was not connected from 1970-01-01T00:00:05Z to 1970-01-01T00:00:09Z";
    let reasons = unjudged::reasons(&scene.observer);
    assert_eq!(reasons, [words]);
    // One that no absence explains is another's.
    scene.lane.issue(*b"t", *b"4", &Hasher::xxh3());
    let property = scene.lane.issue(*b"t", *b"5", &Hasher::xxh3());
    scene
        .observer
        .message("t", b"5", property, Verdict::Ahead, SECOND * 11);
    scene
        .observer
        .lanes
        .get_mut(&key)
        .unwrap()
        .remember_neighbours(&(4..5));
    scene.observer.lost(key, &(4..5), false, None);
    assert!(scene.observer.found_faults());
}

#[test]
fn a_stamp_of_another_algorithm_leaves_a_heard_lane_unjudged() {
    let mut scene = Scene::new();
    proven_window(&mut scene);
    let algorithms = (Algorithm::Blake3, Algorithm::Xxh3);
    let lane = LaneId::new(7).unwrap();
    let told = scene.observer.strays.foreign("t", lane, algorithms);
    assert!(
        told.unwrap()
            .contains("on t: not judged: a stamp of algorithm Blake3")
    );
    assert_eq!(unjudged::reasons(&scene.observer).len(), 1);
    assert!(!scene.observer.found_faults());
}

#[test]
fn what_is_refused_on_a_topic_of_the_audit_is_named_with_it_and_is_a_fault() {
    let mut scene = Scene::new();
    proven_window(&mut scene);
    scene.observer.take_news();
    let refused = Delivery::Refused {
        topic: "audit/checkpoint/7".to_owned(),
        why: "its tag does not fit".to_owned(),
        lanes: Vec::new(),
    };
    scene.observer.take(&refused, None, SECOND);
    assert!(scene.observer.found_faults());
    assert_eq!(scene.observer.unstamped, 0);
    let sentence = "on audit/checkpoint/7: refused: its tag does not fit";
    let sentences: Vec<_> = scene.observer.strays.sentences().collect();
    assert_eq!(sentences, [sentence]);
    let news = scene.observer.take_news();
    assert_eq!(news[0].to_string(), sentence);
    assert_eq!(news[0].to_json()["fault"], "refused");
}

#[test]
fn what_is_refused_of_other_lanes_is_no_fault_where_some_topics_are_listened_to() {
    for some_topics in [false, true] {
        let mut scene = Scene::new();
        proven_window(&mut scene);
        if some_topics {
            scene.observer.only_of(&["t".to_owned()]);
        }
        for topic in [
            "audit/checkpoint/0000000000000008",
            "audit/checkpoint/zzz",
            "audit/drop/0000000000000008",
            "audit/directory/0000000000000007",
        ] {
            let refused = Delivery::Refused {
                topic: topic.to_owned(),
                why: "garbage".to_owned(),
                lanes: Vec::new(),
            };
            scene.observer.take(&refused, None, SECOND);
            assert_eq!(scene.observer.found_faults(), !some_topics, "{topic}");
        }
        let elsewhere = if some_topics { 4 } else { 0 };
        assert_eq!(scene.observer.strays.elsewhere, elsewhere);
        let own = Delivery::Refused {
            topic: "audit/checkpoint/0000000000000007".to_owned(),
            why: "garbage".to_owned(),
            lanes: Vec::new(),
        };
        scene.observer.take(&own, None, SECOND);
        assert!(scene.observer.found_faults());
    }
}

#[test]
fn an_intruder_in_a_lane_without_a_key_leaves_the_whole_unjudged() {
    for (lane, reasons) in [("0000000000000007", 1), ("0000000000000008", 0)] {
        let mut scene = Scene::new();
        proven_window(&mut scene);
        let broker = &mut scene.observer.broker;
        broker.take(BrokerSide::VERDICT, b"3 received");
        let fault = r#"{"epoch":3,"kind":"intruded","count":2,"client":"evil","owner":"pump"}"#;
        broker.take(&format!("$audit/{lane}/fault"), fault.as_bytes());
        assert!(!scene.observer.found_faults());
        let unjudged = unjudged::reasons(&scene.observer);
        assert_eq!(unjudged.len(), reasons, "{unjudged:?}");
        assert!(unjudged.iter().all(|reason| reason.contains("(evil)")));
    }
}

#[test]
fn a_refused_directory_that_lists_a_received_lane_is_a_fault_where_some_topics_are_listened_to() {
    for (listed, is_fault) in [(8, false), (7, true)] {
        let mut scene = Scene::new();
        proven_window(&mut scene);
        scene.observer.only_of(&["t".to_owned()]);
        let refused = Delivery::Refused {
            topic: "audit/directory/0000000000000009".to_owned(),
            why: "its tag does not fit".to_owned(),
            lanes: vec![LaneId::new(listed).unwrap()],
        };
        scene.observer.take(&refused, None, SECOND);
        assert_eq!(scene.observer.found_faults(), is_fault);
    }
}

#[test]
fn messages_that_a_limit_or_another_window_keeps_unjudged_are_reported() {
    let mut scene = Scene::new();
    proven_window(&mut scene);
    scene.observer.take_news();
    let key = scene.key();
    scene.observer.event(key, &Event::OtherWindows(3));
    scene.observer.event(key, &Event::Unnamed(5));
    let no_room = Delivery::NoRoom {
        lane: key.0,
        epoch: key.1,
        lanes_max: 2,
    };
    scene.observer.take(&no_room, None, SECOND);
    let news = scene.observer.take_news();
    let told: Vec<_> = news.iter().map(News::to_string).collect();
    for (told, words) in told.iter().zip([
        "checkpoint 3 counts in windows of another size",
        "5 more events occurred at once",
        "not judged: this listener follows 2 epochs of lanes",
    ]) {
        assert!(told.contains(words), "{told}");
    }
    assert_eq!(unjudged::reasons(&scene.observer).len(), 2);
    let no_room = Delivery::NoRoomForProducers { producers_max: 9 };
    scene.observer.take(&no_room, None, SECOND);
    let told = scene.observer.take_news()[0].to_string();
    assert!(told.contains("directories of 9 producers"), "{told}");
    assert_eq!(unjudged::reasons(&scene.observer).len(), 3);
}

#[test]
fn a_conflict_names_the_real_one_of_two_messages() {
    let mut scene = Scene::new();
    scene.hear(b"a", Verdict::InOrder);
    scene.hear(b"b", Verdict::Conflict);
    let key = scene.key();
    let decided = Event::Decided {
        number: 1,
        second_is_real: true,
    };
    scene.observer.event(key, &decided);
    let word = "the second one that came is the producer's";
    assert!(scene.watched().faults[0].reason.contains(word));
    let news = scene.observer.take_news();
    assert!(news.last().unwrap().to_string().contains(word));
}

#[test]
fn what_was_declared_is_news_and_is_summed_for_its_lane() {
    let mut scene = Scene::new();
    proven_window(&mut scene);
    scene.observer.take_news();
    let key = scene.key();
    scene.observer.declared(key, By::Broker, "queue-full", 5..8);
    let told = scene.observer.take_news()[0].to_string();
    assert!(
        told.ends_with("numbers 5 to 7 not delivered: queue-full, by the broker"),
        "{told}"
    );
    assert_eq!(scene.watched().declared.sum(By::Broker), 3);
    assert!(!scene.observer.found_faults());
    assert_eq!(unjudged::reasons(&scene.observer), [""; 0]);
}
