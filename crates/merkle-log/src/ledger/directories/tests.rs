use super::*;
use crate::ledger::{Event, LedgerLimits, Request, Verdict};
use crate::{Hasher, OpenLane, Property};

const SECOND: Duration = Duration::from_secs(1);

fn lane(id: u64) -> LaneId {
    LaneId::new(id).expect("not 0")
}

fn directory(number: u32, lanes: &[(u64, u64)]) -> Directory {
    let open = |&(id, size): &(u64, u64)| OpenLane {
        lane: lane(id),
        epoch: Epoch(0),
        size,
    };
    Directory {
        producer: 9,
        epoch: Epoch(0),
        number,
        time_us: 0,
        lanes: lanes.iter().map(open).collect(),
    }
}

fn ledger(required: bool) -> Ledger<Hasher> {
    let mut ledger = Ledger::new(Hasher::xxh3(), LedgerLimits::default(), Join::Beginning);
    ledger.resume(Duration::ZERO);
    if required {
        ledger.require_directories();
    }
    ledger
}

fn send(ledger: &mut Ledger<Hasher>, id: u64, number: u64) -> Verdict {
    let property = Property::stamp(&Hasher::xxh3(), lane(id), Epoch(0), number, b"t", b"p");
    ledger.message(&property, b"t", b"p", SECOND)
}

fn events(ledger: &mut Ledger<Hasher>) -> Vec<Event> {
    ledger.take_events().map(|(_, _, event)| event).collect()
}

#[test]
fn a_lane_lost_whole_is_named_where_all_lanes_are_to_come() {
    let lost = Event::Lost {
        numbers: 0..5,
        tail: true,
    };
    let mut whole = ledger(true);
    assert!(
        whole
            .directory(&directory(0, &[(1, 5), (2, 0)]), SECOND, |_| true)
            .is_whole()
    );
    whole.poll(SECOND + SECOND / 2);
    assert_eq!(events(&mut whole), []);
    whole.poll(SECOND * 2);
    assert_eq!(events(&mut whole), [lost]);
    let requests: Vec<_> = whole
        .requests()
        .map(|(lane, _, request)| (lane, request))
        .collect();
    assert_eq!(
        requests,
        [(lane(1), Request::Numbers(std::iter::once(0..5).collect()))]
    );

    let mut part = ledger(false);
    assert!(
        part.directory(&directory(0, &[(1, 5)]), SECOND, |_| true)
            .is_whole()
    );
    part.poll(SECOND * 9);
    assert_eq!(events(&mut part), []);
}

#[test]
fn a_message_of_a_lane_that_no_directory_lists_is_injected() {
    let mut ledger = ledger(true);
    assert_eq!(send(&mut ledger, 1, 0), Verdict::Injected);
    ledger.directory(&directory(0, &[(1, 0)]), SECOND, |_| true);
    assert_eq!(send(&mut ledger, 1, 0), Verdict::InOrder);
    assert_eq!(send(&mut ledger, 2, 0), Verdict::Injected);
}

#[test]
fn a_directory_tells_of_the_tail_of_a_known_lane() {
    let mut ledger = ledger(false);
    send(&mut ledger, 1, 0);
    ledger.directory(&directory(0, &[(1, 3)]), SECOND, |_| true);
    ledger.poll(SECOND * 2);
    let lost = Event::Lost {
        numbers: 1..3,
        tail: true,
    };
    assert!(events(&mut ledger).contains(&lost));
}

#[test]
fn a_lane_that_is_listed_no_more_is_not_over_by_that_alone() {
    let mut ledger = ledger(false);
    send(&mut ledger, 1, 0);
    ledger.directory(&directory(0, &[(1, 1)]), SECOND, |_| true);
    ledger.directory(&directory(1, &[]), SECOND, |_| true);
    ledger.poll(SECOND * 60);
    let told = events(&mut ledger);
    assert!(
        matches!(told[..], [Event::Unlisted, Event::Silent(_), ..]),
        "{told:?}"
    );
}

#[test]
fn a_forged_start_hides_none_of_what_the_producer_lists_later() {
    let forged = Directory {
        epoch: Epoch(u32::MAX - 1),
        ..directory(0, &[])
    };
    for is_first in [true, false] {
        let mut ledger = ledger(false);
        send(&mut ledger, 1, 0);
        let mut take = |directory: &Directory| ledger.directory(directory, SECOND, |_| true);
        if !is_first {
            take(&directory(0, &[(1, 1)]));
        }
        assert_eq!(take(&forged), Taken::Counts);
        assert_eq!(take(&directory(1, &[(1, 1)])), Taken::Counts);
        assert_eq!(take(&directory(1, &[(1, 1)])), Taken::Old, "a copy");
        assert_eq!(take(&directory(2, &[(1, 3)])), Taken::Contradicts);
        assert_eq!(take(&directory(3, &[(1, 3)])), Taken::Counts, "said once");
        ledger.poll(SECOND * 2);
        let lost = Event::Lost {
            numbers: 1..3,
            tail: true,
        };
        assert!(events(&mut ledger).contains(&lost), "{is_first}");
    }
}

#[test]
fn with_a_key_a_start_below_the_highest_that_was_not_heard_is_a_replay() {
    let hasher = Hasher::blake3(&crate::Key([7; 32]));
    let mut ledger = Ledger::new(hasher, LedgerLimits::default(), Join::Beginning);
    let mut take = |epoch, number| {
        let directory = Directory {
            epoch: Epoch(epoch),
            ..directory(number, &[])
        };
        ledger.directory(&directory, SECOND, |_| true)
    };
    assert_eq!(take(5, 3), Taken::Counts);
    assert_eq!(take(4, 9), Taken::Old);
    assert_eq!(take(6, 0), Taken::Counts);
    assert_eq!(take(5, 3), Taken::Old);
    assert_eq!(take(5, 4), Taken::Counts, "it goes on");
}

#[test]
fn a_forged_number_hides_none_of_what_the_producer_lists_later() {
    let lost = Event::Lost {
        numbers: 0..5,
        tail: true,
    };
    for forged in [directory(u32::MAX, &[(1, 0)]), directory(1, &[])] {
        for is_higher_known in [true, false] {
            let mut ledger = ledger(true);
            let mut take = |directory: &Directory| ledger.directory(directory, SECOND, |_| true);
            take(&directory(0, &[(1, 0)]));
            take(&forged);
            let higher = Directory {
                epoch: Epoch(7),
                ..directory(0, &[])
            };
            let taken = [1, 2].map(|number| {
                if is_higher_known {
                    take(&higher);
                }
                take(&directory(number, &[(1, 0), (2, 5)]))
            });
            assert!(taken.contains(&Taken::Contradicts), "{forged:?}: {taken:?}");
            ledger.poll(SECOND * 2);
            assert!(events(&mut ledger).contains(&lost), "{forged:?}");
        }
    }
}

#[test]
fn with_a_key_two_of_one_number_are_of_two_producers_and_a_lower_one_is_a_replay() {
    let hasher = Hasher::blake3(&crate::Key([7; 32]));
    let mut ledger = Ledger::new(hasher, LedgerLimits::default(), Join::Beginning);
    let mut take = |number, lanes: &[(u64, u64)]| {
        ledger.directory(&directory(number, lanes), SECOND, |_| true)
    };
    assert_eq!(take(4, &[(1, 0)]), Taken::Counts);
    assert_eq!(take(5, &[(1, 0)]), Taken::Counts);
    assert_eq!(take(3, &[(2, 3)]), Taken::Old);
    assert_eq!(take(4, &[(2, 3)]), Taken::Contradicts);
}

#[test]
fn with_a_key_a_number_between_those_of_two_producers_is_a_replay() {
    let hasher = Hasher::blake3(&crate::Key([7; 32]));
    let mut ledger = Ledger::new(hasher, LedgerLimits::default(), Join::Beginning);
    let mut take = |number, lanes: &[(u64, u64)]| {
        ledger.directory(&directory(number, lanes), SECOND, |_| true)
    };
    assert_eq!([4, 9].map(|number| take(number, &[])), [Taken::Counts; 2]);
    assert_eq!(take(4, &[(2, 3)]), Taken::Contradicts);
    assert_eq!(take(6, &[(2, 3)]), Taken::Old);
}

#[test]
fn with_a_key_a_start_goes_on_behind_its_last_number_and_is_not_replayed() {
    let hasher = Hasher::blake3(&crate::Key([7; 32]));
    let mut ledger = Ledger::new(hasher, LedgerLimits::default(), Join::Beginning);
    let mut take = |epoch, number| {
        let directory = Directory {
            epoch: Epoch(epoch),
            ..directory(number, &[])
        };
        ledger.directory(&directory, SECOND, |_| true)
    };
    assert_eq!([take(0, 5), take(2, 0)], [Taken::Counts; 2]);
    assert_eq!(take(0, 3), Taken::Old, "a lower number");
    assert_eq!(take(1, 9), Taken::Old, "another start");
    assert_eq!(take(0, 6), Taken::Counts, "it goes on");
    let newer = 1..=u32::try_from(DIRECTORIES_MAX).expect("it is small");
    for number in newer {
        assert_eq!(take(2, number), Taken::Counts);
    }
    assert_eq!(take(0, 6), Taken::Old, "it is no longer remembered");
}

#[test]
fn what_each_of_two_producers_lists_counts_while_the_other_goes_on() {
    let mut ledger = ledger(false);
    for (number, id, taken) in [
        (0, 1, Taken::Counts),
        (0, 2, Taken::Contradicts),
        (1, 1, Taken::Counts),
        (2, 1, Taken::Counts),
    ] {
        let listed = directory(number, &[(id, 0)]);
        assert_eq!(ledger.directory(&listed, SECOND, |_| true), taken);
    }
    let listed: BTreeSet<LaneId> = ledger.listed_by(9).collect();
    assert_eq!(listed, BTreeSet::from([lane(1), lane(2)]));
}

#[test]
fn a_copy_of_a_directory_changes_nothing() {
    let mut ledger = ledger(true);
    let mut take = |number, id| ledger.directory(&directory(number, &[(id, 1)]), SECOND, |_| true);
    assert_eq!([take(3, 2), take(4, 1)], [Taken::Counts; 2]);
    assert_eq!([take(4, 1), take(3, 2)], [Taken::Old; 2]);
}

#[test]
fn directories_are_remembered_across_a_restart() {
    let mut before = ledger(true);
    let mut take = |directory| before.directory(&directory, SECOND, |_| true);
    take(directory(3, &[]));
    take(directory(4, &[(1, 0)]));
    let mut saved = Vec::new();
    before.save(&[], SECOND, &mut saved);
    let limits = LedgerLimits::default();
    let (mut after, _) =
        Ledger::restore(&saved, Hasher::xxh3(), limits, Join::Late).expect("it was just written");
    let mut take = |directory| after.directory(&directory, SECOND, |_| true);
    assert_eq!(take(directory(3, &[])), Taken::Old);
    assert_eq!(take(directory(4, &[(1, 0)])), Taken::Old);
    assert_eq!(send(&mut after, 2, 0), Verdict::Injected);
    assert_eq!(send(&mut after, 1, 0), Verdict::InOrder);
}

#[test]
fn the_size_of_a_lane_whose_messages_come_another_way_does_not_count() {
    let mut ledger = ledger(false);
    send(&mut ledger, 1, 0);
    ledger.directory(&directory(0, &[(1, 3)]), SECOND, |_| false);
    ledger.directory(&directory(1, &[]), SECOND, |_| false);
    ledger.poll(SECOND * 2);
    assert_eq!(events(&mut ledger), []);
}

#[test]
fn a_lane_for_which_there_is_no_room_is_reported() {
    let limits = LedgerLimits {
        lanes_max: 2,
        ..LedgerLimits::default()
    };
    let ledger = |join| Ledger::new(Hasher::xxh3(), limits.clone(), join);
    let listed = directory(0, &[(1, 0), (2, 0), (3, 0)]);
    let has_room = |join, required, all_listed| {
        let mut ledger = ledger(join);
        if required {
            ledger.require_directories();
        }
        if all_listed {
            ledger.expect_listed();
        }
        let has_room = ledger.directory(&listed, SECOND, |_| true).is_whole();
        (has_room, ledger.lanes.len())
    };
    assert_eq!(has_room(Join::Beginning, true, false), (false, 2));
    assert_eq!(has_room(Join::Beginning, false, true), (false, 2));
    assert_eq!(has_room(Join::Beginning, false, false), (true, 0));
    // A member of a group sees its share of the lanes.
    assert_eq!(has_room(Join::Member, true, true), (true, 0));
}

#[test]
fn the_directories_of_as_many_producers_are_remembered_as_there_is_room_for() {
    let mut ledger = ledger(false);
    let most = u64::try_from(PRODUCERS_MAX).expect("it is small");
    for producer in 0..=most {
        let directory = Directory {
            producer,
            ..directory(0, &[])
        };
        let taken = ledger.directory(&directory, SECOND, |_| true);
        let expected = if producer < most {
            Taken::Counts
        } else {
            Taken::NoRoomForProducer
        };
        assert_eq!(taken, expected, "{producer}");
    }
    let newer = directory(1, &[]);
    assert!(
        ledger.directory(&newer, SECOND, |_| true).is_whole(),
        "it is known"
    );
}
