mod judging;

use super::*;
use unbroken_merkle_log::{Algorithm, Epoch, EpochEnd, Key, Lane, LaneLimits};

const SECOND: Duration = Duration::from_secs(1);

/// A producer, and somebody who listens. Verdicts and events are the subscriber's.
struct Scene {
    lane: Lane,
    observer: Observer,
}

impl Scene {
    fn new() -> Self {
        let id = LaneId::new(7).unwrap();
        Self {
            lane: Lane::new(id, Epoch(0), LaneLimits::default(), Duration::ZERO),
            observer: Observer::new(Hasher::xxh3()),
        }
    }

    fn key(&self) -> LaneKey {
        (self.lane.id(), self.lane.epoch())
    }

    fn hear(&mut self, payload: &[u8], verdict: Verdict) {
        let property = self.lane.issue(*b"t", payload, &Hasher::xxh3());
        self.observer
            .message("t", payload, property, verdict, SECOND);
    }

    /// A window and its checkpoint, which is due.
    fn close_window(&mut self, state: State) {
        let due = self.lane.checkpoint_due();
        let checkpoint = self.lane.poll_checkpoint(due, 0, &Hasher::xxh3()).unwrap();
        self.observer.checkpoint(&checkpoint);
        let key = self.key();
        let window = checkpoint.first..checkpoint.size;
        self.observer.window(key, window, state);
    }

    fn watched(&self) -> &Watched {
        self.observer.lanes().next().unwrap().1
    }
}

#[test]
fn what_is_duplicated_altered_and_lost_is_named_with_its_reason() {
    let mut scene = Scene::new();
    scene.hear(b"a", Verdict::InOrder);
    scene.hear(b"b", Verdict::Duplicate);
    scene.hear(b"c", Verdict::Altered);
    let lost = Event::Lost {
        numbers: 3..5,
        tail: true,
    };
    let key = scene.key();
    scene.observer.event(key, &lost);
    scene.close_window(State::Faulty);
    let faults = scene.watched().faults.iter();
    let faults: Vec<_> = faults
        .map(|fault| (fault.numbers.clone(), fault.kind))
        .collect();
    let expect = [(1..2, "duplicated"), (2..3, "altered"), (3..5, "lost")];
    assert_eq!(faults, expect);
    assert!(
        scene.watched().faults[2]
            .reason
            .contains("the end was cut off")
    );
    assert!(scene.observer.found_faults());
    assert_eq!(scene.watched().first_bad(), Some(&(0..3, State::Faulty)));
}

#[test]
fn what_came_before_the_first_whole_window_is_not_judged() {
    let mut scene = Scene::new();
    assert!(!scene.observer.has_judged());
    scene.hear(b"a", Verdict::OutOfScope);
    assert!(!scene.observer.has_judged());
    scene.hear(b"b", Verdict::InOrder);
    assert!(scene.observer.has_judged());
}

#[test]
fn the_brokers_word_alone_is_no_judgement_from_end_to_end() {
    let mut scene = Scene::new();
    let observer = &mut scene.observer;
    let state = br#"{"epoch":1,"state":"proven","messages":3,"expected":3,"acknowledged":3}"#;
    observer.broker.take("$audit/0000000000000007/state", state);
    observer.broker.take("$SYS/audit/verdict", b"all is well");
    assert!(!observer.has_judged());
    assert!(observer.broker.has_judged());
}

#[test]
fn a_loss_in_a_lane_without_a_key_may_be_forged() {
    for (hasher, may_be_forged) in [(Hasher::xxh3(), true), (keyed(), false)] {
        let mut scene = Scene::new();
        scene.observer = Observer::new(hasher);
        let key = scene.key();
        for tail in [true, false] {
            let numbers = 3..5;
            scene.observer.event(key, &Event::Lost { numbers, tail });
        }
        let mut faults = scene.watched().faults.iter();
        let is_said = |fault: &Fault| fault.reason.ends_with(MAY_BE_FORGED);
        assert!(faults.all(|fault| is_said(fault) == may_be_forged));
    }
}

fn keyed() -> Hasher {
    Hasher::blake3(&Key([7; 32]))
}

#[test]
fn a_late_message_is_reported_at_once_and_is_no_fault_yet() {
    let mut scene = Scene::new();
    let key = scene.key();
    let overtaken = Event::Overtaken { number: 5, by: 3 };
    scene.observer.event(key, &overtaken);
    let told = News::Overtaken {
        lane: key,
        number: 5,
        by: 3,
    };
    assert_eq!(scene.observer.take_news(), [told]);
    assert!(!scene.observer.found_faults());
}

#[test]
fn the_neighbours_of_a_loss_are_known_behind_a_burst() {
    let mut scene = Scene::new();
    let key = scene.key();
    for number in 0..6_000_u32 {
        let payload = number.to_be_bytes();
        if number == 100 {
            scene.lane.issue(*b"t", payload, &Hasher::xxh3());
            continue;
        }
        let verdict = if number == 101 {
            Verdict::Ahead
        } else {
            Verdict::InOrder
        };
        scene.hear(&payload, verdict);
        if number == 101 {
            scene.observer.event(key, &Event::Suspected(100..101));
        }
    }
    let lost = |numbers| Event::Lost {
        numbers,
        tail: false,
    };
    scene.observer.event(key, &lost(100..101));
    let neighbours = |numbers: Range<u64>| {
        let (before, after) = scene.watched().neighbours(&numbers);
        (before.map(|it| it.number), after.map(|it| it.number))
    };
    assert_eq!(neighbours(100..101), (Some(99), Some(101)));
    // Nothing was noted of these, and what was near them is no longer remembered.
    assert_eq!(neighbours(2_000..2_001), (None, None));
    assert_eq!(neighbours(5_000..5_001), (Some(4_999), Some(5_001)));
}

#[test]
fn a_repetition_is_compared_with_what_is_remembered() {
    let mut scene = Scene::new();
    scene.hear(b"a", Verdict::InOrder);
    scene.hear(b"b", Verdict::InOrder);
    let stamp = |number, payload: &[u8]| {
        let (lane, epoch) = (LaneId::new(7).unwrap(), Epoch(0));
        Property::stamp(&Hasher::xxh3(), lane, epoch, number, b"t", payload)
    };
    for (number, payload) in [(0, &b"a"[..]), (1, b"other"), (9, b"long gone")] {
        let property = stamp(number, payload);
        let verdict = Verdict::Repeated;
        scene
            .observer
            .message("t", payload, property, verdict, SECOND);
    }
    let faults = scene.watched().faults.iter();
    let faults: Vec<_> = faults.map(|fault| (fault.kind, &*fault.reason)).collect();
    assert_eq!(faults[0].1, "it had come before, identical in every byte");
    assert_eq!(faults[1].0, "conflict");
    assert!(
        faults[2]
            .1
            .contains("the content of the first is no longer known")
    );
}

#[test]
fn a_lane_that_turns_up_late_and_out_of_scope_was_not_wholly_judged() {
    for (begun, is_whole) in [(SECOND * 3, true), (SECOND * 20, false)] {
        let mut scene = Scene::new();
        let key = scene.key();
        scene.observer.pass(begun);
        scene.hear(b"a", Verdict::OutOfScope);
        scene.observer.event(key, &Event::OutOfScope(1_024));
        assert_eq!(scene.observer.partly_judged().next().is_none(), is_whole);
    }
}

#[test]
fn an_old_first_checkpoint_is_no_sign_that_its_epoch_began_while_listening() {
    for (made_us, began_here) in [(0, false), (20_000_000, true)] {
        let mut scene = Scene::new();
        let key = scene.key();
        scene.observer.pass(SECOND * 3);
        scene.hear(b"a", Verdict::OutOfScope);
        scene.observer.event(key, &Event::OutOfScope(1_024));
        scene.observer.pass(SECOND * 21);
        let due = scene.lane.checkpoint_due();
        let checkpoint = scene.lane.poll_checkpoint(due, made_us, &Hasher::xxh3());
        scene.observer.checkpoint(&checkpoint.unwrap());
        assert_eq!(scene.observer.partly_judged().count() == 1, began_here);
    }
}

#[test]
fn contradictions_are_faults_of_the_lane() {
    let mut scene = Scene::new();
    let key = scene.key();
    let end = Event::EndContradicted { size: 3, number: 5 };
    for event in [Event::CheckpointContradicts(4), end, Event::TwoProducers] {
        scene.observer.event(key, &event);
    }
    let faults = scene.watched().faults.iter();
    let faults: Vec<_> = faults
        .map(|fault| (fault.kind, fault.numbers.clone()))
        .collect();
    let expect = [
        ("contradicted", 0..0),
        ("contradicted", 5..6),
        ("two producers", 0..0),
    ];
    assert_eq!(faults, expect);
    assert!(scene.observer.found_faults());
}

#[test]
fn what_is_forgotten_is_counted_and_told() {
    let mut scene = Scene::new();
    let key = scene.key();
    for numbers in [3..5, 9..10] {
        scene.observer.event(key, &Event::Forgotten(numbers));
    }
    assert_eq!(scene.watched().forgotten, 3);
    let told = [3..5, 9..10].map(|numbers| News::Forgotten(key, numbers));
    assert_eq!(scene.observer.take_news(), told);
}

#[test]
fn a_possible_loss_and_a_silent_producer_are_reported_with_their_end_and_are_no_fault() {
    let mut scene = Scene::new();
    let key = scene.key();
    let tell = |scene: &mut Scene, events: &[Event]| {
        for event in events {
            scene.observer.event(key, event);
        }
        scene.observer.take_news()
    };
    scene.observer.pass(SECOND * 3);
    let begun = [Event::Suspected(17..18), Event::Silent(SECOND * 2)];
    let expect = [Doubt::Suspected(17..18), Doubt::Silent(SECOND * 2)];
    assert_eq!(
        tell(&mut scene, &begun),
        expect.map(|doubt| News::Doubt(key, doubt))
    );
    scene.observer.pass(SECOND * 5);
    let in_doubt = |scene: &Scene| scene.observer.in_doubt(scene.watched());
    assert_eq!(
        in_doubt(&scene).as_deref(),
        Some("number 17 may be missing; no checkpoint for 4 s; its producer may have stopped")
    );
    let ended = [Event::Settled, Event::Heard(SECOND * 4)];
    let expect = [Doubt::Settled, Doubt::Heard(SECOND * 4)];
    assert_eq!(
        tell(&mut scene, &ended),
        expect.map(|doubt| News::Doubt(key, doubt))
    );
    assert_eq!(in_doubt(&scene), None);
    assert!(!scene.observer.found_faults());
}

#[test]
fn a_message_is_proven_to_the_root_of_its_lane_which_is_in_the_news() {
    let mut scene = Scene::new();
    for number in 0..1_024 + 10_u32 {
        scene.hear(&number.to_be_bytes(), Verdict::InOrder);
        if number == 5 {
            assert_eq!(scene.observer.proof(None, None), None);
        }
        if number == 1_023 {
            scene.close_window(State::Proven);
        }
    }
    scene.close_window(State::Proven);
    let roots: Vec<_> = scene
        .observer
        .take_news()
        .into_iter()
        .filter_map(|news| match news {
            News::Window { roots, .. } => roots,
            _ => None,
        })
        .collect();
    for (number, window) in [(4, 0), (1_023, 0), (1_024, 1), (1_033, 1)] {
        let proof = scene.observer.proof(LaneId::new(7), Some(number)).unwrap();
        for root in [roots[window].window, roots[window].lane] {
            let proven = proof.verify(Some(root), None).unwrap();
            assert_eq!(proven.property.sequence, number);
            assert!(proven.leads_to_lane);
        }
    }
    assert_eq!(scene.observer.proof(LaneId::new(8), Some(4)), None);
    assert_eq!(scene.observer.proof(None, Some(1_034)), None);
}

#[test]
fn a_message_of_a_lane_that_was_there_before_is_proven_to_the_root_of_its_window() {
    let mut scene = Scene::new();
    for number in 0..1_024_u32 {
        let payload = number.to_be_bytes();
        scene.lane.issue(*b"t", payload, &Hasher::xxh3());
    }
    let earlier = scene.lane.poll_checkpoint(SECOND, 0, &Hasher::xxh3());
    assert!(earlier.is_some());
    scene.hear(b"a", Verdict::InOrder);
    scene.hear(b"b", Verdict::InOrder);
    let last = scene.lane.clone().close(0, &Hasher::xxh3()).unwrap();
    scene.observer.checkpoint(&last);
    let proof = scene.observer.proof(None, None).unwrap();
    assert!(
        !proof
            .verify(Some(last.window_root), None)
            .unwrap()
            .leads_to_lane
    );
    assert!(proof.verify(Some(last.lane_root), None).is_err());
}

#[test]
fn a_forged_larger_checkpoint_does_not_hide_the_proof_of_what_came() {
    let mut scene = Scene::new();
    for payload in [b"a", b"b", b"c"] {
        scene.hear(payload, Verdict::InOrder);
    }
    scene.close_window(State::Unproven);
    let real = scene.lane.clone().close(0, &Hasher::xxh3()).unwrap();
    let forged = |size| Checkpoint {
        number: 100,
        size,
        window_root: real.lane_root,
        ..real.clone()
    };
    for size in [600, 700].into_iter().chain(4..100) {
        scene.observer.checkpoint(&forged(size));
    }
    let proof = scene.observer.proof(None, Some(1)).unwrap();
    assert!(proof.verify(Some(real.window_root), None).is_ok());
    let key = scene.key();
    let contradicted = Event::CheckpointContradicts(100);
    scene.observer.event(key, &contradicted);
    scene.hear(b"d", Verdict::InOrder);
    assert_eq!(scene.observer.proof(None, Some(3)), None);
    let why = scene.observer.why_no_proof(None, Some(3));
    assert!(why.contains("checkpoints contradict each other"), "{why}");
}
