//! The board, told what happens in one order and another.

use super::*;
use crate::injection::{Injection, Stamps};
use std::time::Instant;
use unbroken_merkle_log::{Epoch, Hasher, LaneId, Property};

const SECOND: Duration = Duration::from_secs(1);

fn lane() -> LaneId {
    LaneId::new(7).unwrap()
}

fn place(number: u64) -> Place {
    Place {
        lane: lane(),
        epoch: Epoch(0),
        number,
    }
}

fn fault(kind: Kind, number: u64) -> Fault {
    Fault {
        kind,
        place: place(number),
    }
}

fn injected(injection: Injection, number: u64) -> What {
    let audit = Property::stamp(&Hasher::xxh3(), lane(), Epoch(0), number, b"t", b"p");
    What::Message(Box::new(Injected {
        injection,
        topic: "t".to_owned(),
        message: Stamps {
            audit,
            origins: vec![],
        },
        overtaken_by: None,
        at: Instant::now(),
    }))
}

#[test]
fn a_lost_message_makes_the_sentence_red_until_it_is_repaired() {
    let mut board = Board {
        sent: 1_204_331,
        delivered: 1_204_330,
        ..Board::default()
    };
    assert!(board.is_green());
    board.begin_incident(injected(Injection::Lose, 5), SECOND);
    assert!(!board.is_green());
    board.fault(fault(Kind::Lost, 5), SECOND * 2);
    assert_eq!(
        board.sentence().to_string(),
        "1,204,331 sent, 1,204,330 delivered, 1 lost, 0 duplicated, 0 reordered"
    );
    board.repaired(place(5), SECOND * 3);
    assert!(board.is_green());
    let incident = &board.incidents[0];
    assert_eq!(incident.named.as_ref().map(|(at, _)| *at), Some(SECOND * 2));
    assert_eq!(incident.repaired, Some(SECOND * 3));
    assert_eq!(board.named(Kind::Lost), 1);
    assert_eq!(board.standing(Kind::Lost), 0);
}

#[test]
fn a_copy_set_aside_needs_no_repair() {
    let mut board = Board::default();
    board.begin_incident(injected(Injection::Duplicate, 5), SECOND);
    board.fault(fault(Kind::Duplicated, 5), SECOND);
    assert!(board.is_green());
}

#[test]
fn the_sentence_says_what_c_handed_on_again_or_out_of_its_place() {
    let mut board = Board {
        sent: 9,
        delivered: 9,
        ..Board::default()
    };
    assert!(board.is_exact());
    board.duplicated = 2;
    assert!(!board.is_green());
    board.reordered = 3;
    assert_eq!(
        board.sentence().to_string(),
        "9 sent, 9 delivered, 0 lost, 2 duplicated, 3 reordered"
    );
}

#[test]
fn a_fault_may_be_named_before_the_relay_is_asked() {
    let mut board = Board::default();
    board.fault(fault(Kind::Injected, 5), SECOND);
    assert!(!board.is_green());
    board.begin_incident(injected(Injection::Inject, 5), SECOND * 2);
    assert!(board.is_green());
}

#[test]
fn a_message_that_was_overtaken_is_named_at_once_and_well_when_the_disorder_ends() {
    let mut board = Board::default();
    board.begin_incident(injected(Injection::Swap, 5), SECOND);
    board.overtaken(place(5), 3, SECOND * 2);
    let named = |board: &Board| board.incidents[0].named.as_ref().map(|(at, _)| *at);
    assert_eq!(named(&board), Some(SECOND * 2));
    assert!(!board.is_green());
    board.fault(fault(Kind::Reordered, 5), SECOND * 3);
    assert!(board.is_green() && board.secondary.is_empty());
    assert_eq!(named(&board), Some(SECOND * 2));
    assert_eq!(board.incidents[0].repaired, Some(SECOND * 3));
}

#[test]
fn a_message_held_for_too_long_is_lost_and_then_found_and_that_is_no_other_name() {
    let mut board = Board::default();
    board.begin_incident(injected(Injection::Hold(SECOND), 5), SECOND);
    board.fault(fault(Kind::Lost, 5), SECOND * 2);
    board.repaired(place(5), SECOND * 3);
    board.fault(fault(Kind::Reordered, 5), SECOND * 3);
    assert!(board.is_exact());
}

#[test]
fn a_fault_that_no_receiver_saw_is_no_incident() {
    let mut board = Board::default();
    for number in [5, 6] {
        board.begin_incident(injected(Injection::Alter, number), SECOND);
    }
    board.fault(fault(Kind::Altered, 5), SECOND);
    for incident in board.incidents.clone() {
        if let What::Message(injected) = &incident.what {
            board.unchanged(injected);
        }
    }
    let left: Vec<u64> = board.incidents.iter().map(|incident| incident.id).collect();
    assert_eq!(left, [0]);
}

#[test]
fn a_fault_that_was_not_injected_keeps_the_sentence_red() {
    let mut board = Board::default();
    board.begin_incident(injected(Injection::Lose, 5), SECOND);
    board.fault(fault(Kind::Lost, 5), SECOND);
    board.fault(fault(Kind::Duplicated, 6), SECOND);
    board.repaired(place(5), SECOND);
    assert!(!board.is_green());
    assert_eq!(board.unexplained, [fault(Kind::Duplicated, 6)]);
}

#[test]
fn a_broken_part_explains_its_losses_and_is_repaired_when_they_are() {
    let mut board = Board::default();
    board.begin_incident(What::Part("broker killed".to_owned()), SECOND);
    board.part_repaired(SECOND);
    assert!(board.has_open_part(), "no part has noticed yet");
    board.part_named("A lost its connection", SECOND);
    board.fault(fault(Kind::Lost, 6), SECOND);
    board.part_repaired(SECOND * 2);
    assert!(board.has_open_part());
    board.repaired(place(6), SECOND * 3);
    board.part_repaired(SECOND * 3);
    assert!(board.is_green());
}

#[test]
fn a_broken_part_explains_no_message_that_was_changed() {
    for kind in [Kind::Altered, Kind::Forged, Kind::Injected] {
        let mut board = Board::default();
        board.begin_incident(What::Part("broker killed".to_owned()), SECOND);
        board.fault(fault(kind, 6), SECOND * 2);
        board.echo(fault(kind, 7), SECOND * 2);
        assert_eq!(board.unexplained, [fault(kind, 6), fault(kind, 7)]);
    }
}

#[test]
fn another_name_for_an_injected_fault_is_not_exact_and_the_cost_of_a_broken_part_is() {
    let mut board = Board::default();
    board.begin_incident(injected(Injection::Duplicate, 5), SECOND);
    board.fault(fault(Kind::Duplicated, 5), SECOND);
    assert!(board.is_exact());
    let mut other = board.clone();
    other.fault(fault(Kind::Injected, 5), SECOND);
    assert!(other.is_green() && !other.is_exact());
    board.begin_incident(What::Part("broker killed".to_owned()), SECOND * 2);
    board.part_named("A lost its connection", SECOND * 2);
    board.fault(fault(Kind::Duplicated, 5), SECOND * 3);
    board.part_repaired(SECOND * 3);
    assert!(board.is_exact());
}

#[test]
fn only_the_last_windows_are_kept_and_the_latest_word_on_each() {
    let mut board = Board::default();
    for window in 0..=WINDOWS_SHOWN as u64 {
        let numbers = window * 1_024..(window + 1) * 1_024;
        board.window("A to C", &numbers, State::Faulty);
        board.window("A to C", &numbers, State::Proven);
    }
    let windows: Vec<State> = board.strips[0].windows().collect();
    assert_eq!(windows, vec![State::Proven; WINDOWS_SHOWN]);
}
