//! Reads of the messages that match filters.

use super::Subject;
use super::{LOG, append, crate_keeps, numbers, read_all, select};
use crate::Sequence;

const TOPICS: [&str; 8] = ["a", "a/b", "a/c", "a/b/c", "/", "b", "$SYS/a", "a/b"];

/// `read_matching` gives what MQTT's filters match, once, in order, also after a restart.
pub fn topics_are_selected_by_name_and_by_wildcard(subject: &impl Subject) {
    let mut store = subject.open();
    append(&*store, &TOPICS);
    append(&*store, &TOPICS);
    for _ in 0..2 {
        for (filters, expected) in [
            (&["a/b"][..], &[2u64, 8, 10, 16][..]),
            (&["a/+"], &[2, 3, 8, 10, 11, 16]),
            (&["a/#"], &[1, 2, 3, 4, 8, 9, 10, 11, 12, 16]),
            (&["+/b", "b"], &[2, 6, 8, 10, 14, 16]),
            (&["a/b", "a/+", "+/b"], &[2, 3, 8, 10, 11, 16]),
            (&["#"], &[1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 13, 14, 16]),
            (&["+/+"], &[2, 3, 5, 8, 10, 11, 13, 16]),
            (&["$SYS/#"], &[7, 15]),
            (&["x", "a/b/c/d", "b/#/"][..2], &[]),
            (&[], &[]),
        ] {
            for bytes_max in [1, 99, usize::MAX] {
                let all = read_all(&*store, LOG, Some(&select(filters)), bytes_max);
                assert_eq!(numbers(&all), expected, "{filters:?}");
            }
        }
        let range = Sequence(3)..Sequence(11);
        let part = store
            .read_matching(LOG, range, &select(&["a/+"]), usize::MAX)
            .unwrap();
        let part: Vec<_> = part.entries.iter().map(|entry| entry.sequence.0).collect();
        assert_eq!(part, [3, 8, 10]);
        if !crate_keeps(subject) {
            break;
        }
        drop(store);
        store = subject.open();
    }
}

/// Topics of 65,535 bytes that differ in the last one.
pub fn long_topics_are_selected_too(subject: &impl Subject) {
    let store = subject.open();
    let long = "x/".repeat(32_767);
    let (longest, other) = (format!("{long}y"), format!("{long}z"));
    append(&*store, &[&longest, &other, "short"]);
    assert_eq!(longest.len(), 65_535);
    for (filter, expected) in [
        (longest.as_str(), &[1][..]),
        (&other, &[2]),
        ("x/#", &[1, 2]),
        (&long, &[]),
    ] {
        let all = read_all(&*store, LOG, Some(&select(&[filter])), usize::MAX);
        assert_eq!(numbers(&all), expected);
    }
}

/// What is selected in pieces is what is selected at once.
pub fn a_selection_is_read_in_pieces(subject: &impl Subject) {
    let store = subject.open();
    for _ in 0..20 {
        append(&*store, &["often", "rare/1", "often", "often", "often"]);
    }
    for filters in [
        &["rare/1"][..],
        &["rare/+"],
        &["often"],
        &["often", "rare/1"],
    ] {
        let wanted = select(filters);
        let whole = read_all(&*store, LOG, Some(&wanted), usize::MAX);
        let pieces = read_all(&*store, LOG, Some(&wanted), 60);
        assert_eq!(whole, pieces);
        let each = if filters[0] == "often" { 80 } else { 0 };
        let rare = if filters.len() == 2 || each == 0 {
            20
        } else {
            0
        };
        assert_eq!(whole.len(), each + rare);
    }
}
