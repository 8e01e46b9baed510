//! Forged, injected and repeated messages.

use super::*;

#[test]
fn a_forged_message_without_a_way_back_leaves_its_window_unproven() {
    let mut pair = Pair::new(Join::Beginning);
    for _ in 0..3 * 1_024 {
        let mut property = pair.issue();
        if property.sequence == 1_500 {
            property.digest = Property::stamp(
                &pair.hasher,
                property.lane,
                property.epoch,
                1_500,
                b"t",
                b"forged",
            )
            .digest;
        }
        pair.send(&property, ZERO);
    }
    let [first, _, third] = [0, 1, 2].map(|_| pair.checkpoint(SECOND));
    pair.hear(&first, ZERO);
    pair.hear(&third, ZERO);
    pair.poll(SECOND);
    let windows = pair.windows();
    assert!(windows.contains(&(0, State::Proven)));
    assert!(windows.contains(&(1_024, State::Unproven)));
    assert!(windows.contains(&(2_048, State::Proven)));
}

#[test]
fn an_answer_that_does_not_give_the_root_is_refused() {
    let mut pair = Pair::new(Join::Beginning);
    for _ in 0..1_024 {
        let mut property = pair.issue();
        if property.sequence == 7 {
            property.digest = [9; 16].into();
        }
        pair.send(&property, ZERO);
    }
    let checkpoint = pair.checkpoint(SECOND);
    pair.hear(&checkpoint, ZERO);
    let request = pair.ledger.requests().remove(0);
    let Some(Answer::Groups {
        window,
        size,
        hashes,
    }) = pair.lane.answer(&request, &pair.hasher)
    else {
        panic!("{request:?} is about groups");
    };
    let mut lie = hashes.clone();
    lie.swap(0, 1);
    let lie = Answer::Groups {
        window,
        size,
        hashes: lie,
    };
    assert_eq!(
        pair.ledger.answer(&lie, &pair.hasher),
        Err(Refused::Unproven(0))
    );
    let truth = Answer::Groups {
        window,
        size,
        hashes,
    };
    assert_eq!(pair.ledger.answer(&truth, &pair.hasher), Ok(()));
    let requests = pair.ledger.requests();
    let [Request::Leaves { group: 0, .. }] = requests[..] else {
        panic!("{requests:?}: one group differs");
    };
    let Some(Answer::Leaves {
        window,
        size,
        group,
        leaves,
    }) = pair.lane.answer(&requests[0], &pair.hasher)
    else {
        panic!("{requests:?} is about leaves");
    };
    let mut lie = leaves.clone();
    lie.swap(3, 4);
    let lie = Answer::Leaves {
        window,
        size,
        group,
        leaves: lie,
    };
    assert_eq!(
        pair.ledger.answer(&lie, &pair.hasher),
        Err(Refused::Unproven(0))
    );
    let truth = Answer::Leaves {
        window,
        size,
        group,
        leaves,
    };
    assert_eq!(pair.ledger.answer(&truth, &pair.hasher), Ok(()));
    assert!(pair.ledger.take_events().contains(&Event::Forged(7..8)));
}

#[test]
fn a_checkpoint_with_detail_names_what_is_forged_without_a_way_back() {
    for (detail, hold) in [
        (DetailLevel::Fingerprints, true),
        (DetailLevel::Leaves, true),
        (DetailLevel::Leaves, false),
    ] {
        let mut pair = Pair::with_detail(Join::Beginning, detail);
        pair.limits.hold_leaves = hold;
        // In the first window all has come; of the second one is lost as well.
        for _ in 0..2_048 {
            let mut property = pair.issue();
            if matches!(property.sequence, 7 | 900 | 1_500) {
                property.digest = [9; 16].into();
            }
            if property.sequence != 2_000 {
                pair.send(&property, ZERO);
            }
        }
        let [first, second] = [0, 1].map(|_| pair.checkpoint(SECOND));
        let mut bytes = Vec::new();
        second.encode(&pair.hasher, &mut bytes);
        let per_message = if detail == DetailLevel::Leaves { 16 } else { 4 };
        assert_eq!(bytes.len(), 128 + 1_024 * per_message);
        pair.hear(&first, ZERO);
        pair.hear(&second, ZERO);
        let mut saved = Vec::new();
        pair.ledger.take_events().iter().for_each(|event| {
            let forged = [Event::Forged(7..8), Event::Forged(900..901)];
            let expected = matches!(event, Event::Suspected(_) | Event::Window { .. });
            assert!(expected || forged.contains(event), "{event:?}");
        });
        pair.ledger.save(&pair.hasher, &mut saved);
        pair.ledger = LaneLedger::restore(&saved, &pair.hasher).unwrap();
        pair.poll(SECOND);
        let events = pair.ledger.take_events();
        assert!(events.contains(&Event::Forged(1_500..1_501)), "{events:?}");
        let missing = vec![7..8, 900..901, 1_500..1_501, 2_000..2_001];
        assert_eq!(pair.ledger.requests(), [Request::Numbers(missing)]);
        for number in [7, 900, 1_500, 2_000] {
            let message = pair.lane.resend(number, &pair.hasher).unwrap();
            assert_eq!(pair.send(&message.property, SECOND), Verdict::Repaired);
        }
        let proven = [(0, State::Proven), (1_024, State::Proven)];
        assert_eq!(pair.windows(), proven);
    }
}

#[test]
fn fingerprints_name_the_group_of_a_forged_message_and_a_descent_names_it() {
    let mut pair = Pair::with_detail(Join::Beginning, DetailLevel::Fingerprints);
    for _ in 0..2_048 {
        let mut property = pair.issue();
        if matches!(property.sequence, 900 | 2_000) {
            property.digest = [9; 16].into();
        }
        pair.send(&property, ZERO);
        if property.sequence == 1_023 {
            let checkpoint = pair.checkpoint(SECOND);
            pair.hear(&checkpoint, ZERO);
            let events = pair.ledger.take_events();
            let root_differs = Event::RootDiffers(896..928);
            assert_eq!(
                events,
                [root_differs],
                "one of them, and which is not known"
            );
            assert!(pair.descend().into_iter().flatten().eq([900]));
        }
    }
    // From then on leaves are held.
    let checkpoint = pair.checkpoint(SECOND);
    pair.hear(&checkpoint, ZERO);
    let events = pair.ledger.take_events();
    assert!(events.contains(&Event::Forged(2_000..2_001)), "{events:?}");
}

#[test]
fn of_a_folded_group_with_two_forged_messages_one_at_least_is_named() {
    for hold in [false, true] {
        let mut pair = Pair::new(Join::Beginning);
        pair.limits.hold_leaves = hold;
        for _ in 0..1_024 {
            let mut property = pair.issue();
            if matches!(property.sequence, 5 | 63 | 64 | 70) {
                property.digest = [9; 16].into();
            }
            pair.send(&property, ZERO);
        }
        let checkpoint = pair.checkpoint(SECOND);
        pair.hear(&checkpoint, ZERO);
        let asked = pair.descend();
        let mut events = pair.ledger.take_events();
        events.retain(|event| !matches!(event, Event::RootDiffers(_) | Event::Window { .. }));
        let exact = [5..6, 63..64].map(Event::Forged);
        let of_the_group = if hold {
            assert_eq!(asked, [5..6, 63..65, 70..71]);
            vec![Event::Forged(64..65), Event::Forged(70..71)]
        } else {
            assert_eq!(asked, [5..6, 63..96]);
            vec![Event::ForgedAmong(64..96)]
        };
        assert_eq!(events, [&exact[..], &of_the_group].concat());
        for number in asked.into_iter().flatten() {
            let message = pair.lane.resend(number, &pair.hasher).unwrap();
            assert_eq!(pair.send(&message.property, SECOND), Verdict::Repaired);
        }
        assert_eq!(pair.windows().last(), Some(&(0, State::Proven)));
    }
}

#[test]
fn messages_beyond_the_end_contradict_the_checkpoint_and_are_judged_like_any_other() {
    for came_first in [false, true] {
        let mut pair = Pair::new(Join::Beginning);
        pair.run(100, |_| true);
        // Forged: the lane goes on.
        let end = pair.lane.clone().close(0, &pair.hasher).unwrap();
        if !came_first {
            pair.hear(&end, ZERO);
        }
        for _ in 0..200 {
            let property = pair.issue();
            assert_eq!(pair.send(&property, ZERO), Verdict::InOrder);
        }
        if came_first {
            pair.hear(&end, ZERO);
        }
        let size = 100;
        let number = 100;
        let contradicted = Event::EndContradicted { size, number };
        let is_window = |event: &Event| matches!(event, Event::Window { .. });
        let mut events = pair.ledger.take_events();
        events.retain(|event| !is_window(event));
        assert_eq!(events, [contradicted]);
        let real = pair.lane.clone().close(0, &pair.hasher).unwrap();
        pair.hear(&real, SECOND);
        pair.poll(SECOND * 3);
        assert_eq!(pair.windows(), [(0, State::Proven)]);
        let again = pair.lane.resend(299, &pair.hasher).unwrap();
        assert_eq!(pair.send(&again.property, SECOND * 3), Verdict::Replayed);
    }
}

#[test]
fn what_does_not_fit_and_is_beyond_the_end_is_injected() {
    let mut pair = Pair::new(Join::Beginning);
    pair.run(10, |_| true);
    let end = pair.lane.clone().close(0, &pair.hasher).unwrap();
    pair.hear(&end, ZERO);
    let property = pair.issue();
    let arrival = Arrival {
        number: property.sequence,
        leaf: property.digest,
        fits: false,
        resent: false,
        part: None,
    };
    let verdict = pair
        .ledger
        .observe(&arrival, ZERO, &pair.limits, &pair.hasher);
    assert_eq!(verdict, Verdict::Injected);
}

#[test]
fn a_repetition_whose_first_copy_is_folded_is_not_called_the_same() {
    let mut pair = Pair::new(Join::Beginning);
    let first = pair.issue();
    assert_eq!(pair.send(&first, ZERO), Verdict::InOrder);
    let mut other = first;
    other.digest = [9; 16].into();
    assert_eq!(pair.send(&other, ZERO), Verdict::Repeated);
    // From here on leaves are held, and compared.
    for _ in 0..2 {
        let second = pair.issue();
        assert_eq!(pair.send(&second, ZERO), Verdict::InOrder);
        assert_eq!(pair.send(&second, ZERO), Verdict::Duplicate);
        let mut other = second;
        other.digest = [9; 16].into();
        assert_eq!(pair.send(&other, ZERO), Verdict::Conflict);
    }
    assert_eq!(pair.ledger.take_events(), [Event::TwoProducers]);
    pair.run(1, |_| true);
    let third = pair.lane.resend(3, &pair.hasher).unwrap().property;
    let mut other = third;
    other.digest = [8; 16].into();
    assert_eq!(pair.send(&other, ZERO), Verdict::Conflict);
    assert_eq!(pair.ledger.take_events(), [], "named once");
}

#[test]
fn two_copies_of_one_producer_are_named_by_their_checkpoints() {
    let mut pair = Pair::new(Join::Beginning);
    pair.run(10, |_| true);
    let mut copy = pair.lane.clone();
    copy.issue(*b"t", *b"of the copy", &pair.hasher);
    let theirs = copy.poll_checkpoint(SECOND, 0, &pair.hasher).unwrap();
    pair.run(5, |_| true);
    let ours = pair.checkpoint(SECOND);
    pair.hear(&ours, SECOND);
    pair.hear(&theirs, SECOND);
    let contradicts = |number| Event::CheckpointContradicts(number);
    assert_eq!(pair.ledger.take_events(), [contradicts(theirs.number)]);
    // Its next one counts fewer messages than the producer's last.
    copy.issue(*b"t", *b"of the copy", &pair.hasher);
    let theirs = copy.poll_checkpoint(SECOND * 2, 0, &pair.hasher).unwrap();
    assert!(theirs.number > ours.number && theirs.size < ours.size);
    pair.hear(&theirs, SECOND * 2);
    let events = pair.ledger.take_events();
    assert_eq!(
        events[..2],
        [contradicts(theirs.number), Event::TwoProducers]
    );
}

#[test]
fn a_detail_decides_which_of_two_copies_is_real() {
    let mut pair = Pair::with_detail(Join::Beginning, DetailLevel::Fingerprints);
    pair.limits.hold_leaves = true;
    for _ in 0..1_024 {
        let property = pair.issue();
        if property.sequence == 5 {
            let mut other = property;
            other.digest = [9; 16].into();
            pair.send(&other, ZERO);
            assert_eq!(pair.send(&property, ZERO), Verdict::Conflict);
        } else {
            pair.send(&property, ZERO);
        }
    }
    let checkpoint = pair.checkpoint(SECOND);
    pair.hear(&checkpoint, ZERO);
    let decided = Event::Decided {
        number: 5,
        second_is_real: true,
    };
    assert!(pair.ledger.take_events().contains(&decided));
    // The second was not handed on, so it is to come again.
    pair.poll(SECOND);
    let asked = Request::Numbers(std::iter::once(5..6).collect());
    assert_eq!(pair.ledger.requests(), [asked]);
    let message = pair.lane.resend(5, &pair.hasher).unwrap();
    assert_eq!(pair.send(&message.property, SECOND), Verdict::Repaired);
    assert_eq!(pair.windows().last(), Some(&(0, State::Proven)));
}

#[test]
fn the_root_of_a_part_ends_no_holding_of_leaves_where_it_may_be_forged() {
    let second = SECOND;
    for end in [EpochEnd::Open, EpochEnd::Closed] {
        let mut pair = Pair::new(Join::Beginning);
        pair.limits.hold_leaves = true;
        pair.run(50, |_| true);
        let ours = pair.checkpoint(second);
        pair.hear(&ours, second);
        let mut forger = pair.lane.clone();
        for _ in 50..52 {
            let property = forger.issue(*b"t", *b"forged", &pair.hasher);
            assert_eq!(pair.send(&property, second), Verdict::InOrder);
        }
        let mut forged = forger.poll_checkpoint(second * 2, 0, &pair.hasher).unwrap();
        forged.end = end;
        pair.hear(&forged, second * 2);
        pair.run(50, |_| true);
        let ours = pair.checkpoint(second * 3);
        assert_eq!((forged.size, ours.size), (52, 100));
        pair.hear(&ours, second * 3);
        assert!(pair.descend().into_iter().eq(std::iter::once(50..52)));
        let events = pair.ledger.take_events();
        let is_vague = |event: &Event| matches!(event, Event::ForgedAmong(_));
        assert!(!events.iter().any(is_vague), "{events:?}");
        assert!(events.contains(&Event::Forged(50..52)), "{events:?}");
    }
}
