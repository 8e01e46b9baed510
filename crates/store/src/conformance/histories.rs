//! Random histories on a store and on the reference model, compared after every step.

use crate::{
    Batch, Durability, Expect, LogId, Operation, Revision, Sequence, Space, Store, Value, View,
};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::Subject;
use super::reference::ReferenceModel;
use super::suite::{message, read_all, select};

/// Steps between two openings of the store, and how it is opened before them.
#[derive(Clone, Debug)]
struct Part {
    durability: Durability,
    /// Each with the bytes of a piece in which is read what is there behind it.
    steps: Vec<(Step, usize)>,
}

#[derive(Clone, Debug)]
enum Step {
    Commit(Vec<Vec<Change>>),
    /// Below this many messages after the first.
    Trim(u16, u64),
    /// So many numbers are left out.
    GoOn(u16, u64),
    Sync,
    /// A snapshot is made, and looked at behind each step until the next is.
    Hold,
}

#[derive(Clone, Debug)]
enum Change {
    /// To this log, on this topic, with so much payload; rarely with a wrong number.
    Append(u16, usize, usize, bool),
    Put(Space, u8, Expected),
    Delete(Space, u8, Expected),
    DeleteAll(Space, u8),
}

#[derive(Clone, Copy, Debug)]
enum Expected {
    Anything,
    Absent,
    /// What was there before the commit.
    Found,
}

const TOPICS: [&str; 6] = ["a", "a/b", "a/b/c", "b/c", "$a/b", "rare"];
const LOGS: u16 = 2;

/// A hundred random histories, or twelve with restarts of a store that keeps.
pub fn histories_match_the_reference_model<S: Subject>(subject: &S) {
    // Those on disk open an engine each, several times.
    follow_so_many(subject, if S::KEEPS { 12 } else { 100 });
}

/// The same for 5,000, or 500 with restarts: takes minutes.
pub fn many_histories_match_the_reference_model<S: Subject>(subject: &S) {
    follow_so_many(subject, if S::KEEPS { 500 } else { 5_000 });
}

fn follow_so_many<S: Subject>(subject: &S, cases: u32) {
    let config = Config {
        cases,
        failure_persistence: None,
        ..Config::default()
    };
    let histories = proptest::collection::vec(part(), 1..4);
    let result = TestRunner::new(config).run(&histories, |history| {
        follow(subject, &history);
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}

fn part() -> impl Strategy<Value = Part> {
    let durability = prop::sample::select(vec![
        Durability::Strict,
        Durability::Relaxed,
        Durability::Off,
    ]);
    let steps = proptest::collection::vec((step(), 1..400_usize), 1..12);
    (durability, steps).prop_map(|(durability, steps)| Part { durability, steps })
}

fn step() -> impl Strategy<Value = Step> {
    let expected = prop_oneof![
        4 => Just(Expected::Anything),
        1 => Just(Expected::Absent),
        2 => Just(Expected::Found),
    ];
    let append = (
        0..LOGS,
        0..TOPICS.len(),
        0..200usize,
        prop::bool::weighted(0.03),
    );
    let space = prop::sample::select(Space::ALL.to_vec());
    let change = prop_oneof![
        6 => append.prop_map(|(log, topic, size, wrong)| Change::Append(log, topic, size, wrong)),
        3 => (space.clone(), 0..12u8, expected.clone())
            .prop_map(|(space, key, expect)| Change::Put(space, key, expect)),
        1 => (space.clone(), 0..12u8, expected)
            .prop_map(|(space, key, expect)| Change::Delete(space, key, expect)),
        1 => (space, 0..12u8).prop_map(|(space, key)| Change::DeleteAll(space, key)),
    ];
    let batches = proptest::collection::vec(proptest::collection::vec(change, 0..5), 0..8);
    prop_oneof![
        12 => batches.prop_map(Step::Commit),
        2 => (0..LOGS, 0..40u64).prop_map(|(log, count)| Step::Trim(log, count)),
        1 => (0..LOGS, 0..9u64).prop_map(|(log, count)| Step::GoOn(log, count)),
        1 => Just(Step::Sync),
        1 => Just(Step::Hold),
    ]
}

fn follow<S: Subject>(subject: &S, history: &[Part]) {
    // A history that failed has left something.
    subject.reset();
    let mut reference = ReferenceModel::default();
    let mut store = subject.open();
    for part in history {
        if S::KEEPS {
            drop(store);
            store = subject.open_with(part.durability);
            // What was trimmed may be there again; cursors are the broker's to remember.
            for log in reference.logs() {
                store.trim(log, reference.bounds(log).first).unwrap();
            }
        }
        live(&*store, &part.steps, &mut reference);
    }
}

/// From an opening of the store to the next.
fn live(store: &dyn Store, steps: &[(Step, usize)], reference: &mut ReferenceModel) {
    let mut held = None;
    for (step, piece) in steps {
        match step {
            Step::Commit(batches) => {
                let batches = batches_of(reference, batches);
                let results = store.commit(&batches).unwrap();
                assert_eq!(results, reference.commit(&batches));
            }
            Step::Trim(log, count) => {
                let id = LogId(*log);
                let below = Sequence(reference.bounds(id).first.0 + count);
                store.trim(id, below).unwrap();
                reference.trim(id, below);
            }
            Step::GoOn(log, count) => {
                let id = LogId(*log);
                let next = Sequence(reference.bounds(id).next.0 + count);
                store.go_on_at(id, next).unwrap();
                reference.go_on_at(id, next);
            }
            Step::Sync => store.sync().unwrap(),
            Step::Hold => held = Some((store.snapshot().unwrap(), reference.clone())),
        }
        compare(store, reference, *piece);
        compare(&*store.snapshot().unwrap(), reference, *piece);
        if let Some((snapshot, reference)) = &held {
            compare(&**snapshot, reference, *piece);
        }
    }
}

fn batches_of(reference: &ReferenceModel, batches: &[Vec<Change>]) -> Vec<Batch> {
    let mut next = [0, 1].map(|log| reference.bounds(LogId(log)).next);
    batches
        .iter()
        .map(|changes| {
            let mut batch = Batch::new();
            for change in changes {
                let expect = |space, key: &[u8], expected: &Expected| match expected {
                    Expected::Anything => Expect::Anything,
                    Expected::Absent => Expect::Absent,
                    Expected::Found => reference
                        .get(space, key)
                        .map_or(Expect::Revision(Revision(0)), |value| {
                            Expect::Revision(value.revision)
                        }),
                };
                match change {
                    Change::Append(log, topic, size, wrong) => {
                        let at = &mut next[usize::from(*log)];
                        let sequence = Sequence(at.0 + u64::from(*wrong));
                        *at = if *wrong { *at } else { at.next() };
                        let message = message(TOPICS[*topic], &vec![b'.'; *size]);
                        batch.append(LogId(*log), sequence, message);
                    }
                    Change::Put(space, key, expected) => {
                        let key = key_of(*key);
                        let expect = expect(*space, &key, expected);
                        batch.put_if(*space, key.clone(), key.repeat(3), expect);
                    }
                    Change::DeleteAll(space, key) => {
                        batch.delete_all(*space, key_of(*key));
                    }
                    Change::Delete(space, key, expected) => {
                        let key = key_of(*key);
                        let expect = expect(*space, &key, expected);
                        let space = *space;
                        batch.push(Operation::Delete { space, key, expect });
                    }
                }
            }
            batch
        })
        .collect()
}

/// Keys of several lengths, some of them prefixes of others.
fn key_of(key: u8) -> Vec<u8> {
    vec![key / 3; usize::from(key % 3) + 1]
}

/// What is there, read as a whole and in pieces of so many bytes.
fn compare(store: &(impl View + ?Sized), reference: &ReferenceModel, piece: usize) {
    assert_eq!(store.logs().unwrap(), reference.logs());
    for log in (0..LOGS).map(LogId) {
        assert_eq!(store.bounds(log).unwrap(), reference.bounds(log));
        let left_out = store.left_out(log).unwrap();
        let one_by_one = left_out
            .into_iter()
            .flat_map(|range| range.start.0..range.end.0);
        assert_eq!(one_by_one.collect::<Vec<_>>(), reference.left_out(log));
        let selections = [
            &["a/b"][..],
            &["a/#", "rare"],
            &["+/c"],
            &["rare", "b/c"],
            &["#"],
        ];
        for bytes_max in [piece, usize::MAX] {
            let all = read_all(store, log, None, bytes_max);
            assert_eq!(all, reference.read(log, None));
            for filters in selections {
                let some = read_all(store, log, Some(&select(filters)), bytes_max);
                assert_eq!(some, reference.read(log, Some(filters)), "{filters:?}");
            }
        }
    }
    for space in Space::ALL {
        for prefix in [&[][..], &[0], &[1, 1]] {
            let expected = reference.scan(space, prefix);
            for bytes_max in [piece, usize::MAX] {
                assert_eq!(scan_all(store, space, prefix, bytes_max), expected);
            }
        }
        for key in (0..12).map(key_of) {
            let value = store.get(space, &key).unwrap();
            assert_eq!(value, reference.get(space, &key));
        }
    }
}

/// Scans to the end, piece by piece.
fn scan_all(
    store: &(impl View + ?Sized),
    space: Space,
    prefix: &[u8],
    bytes_max: usize,
) -> Vec<(Vec<u8>, Value)> {
    let mut all: Vec<(Vec<u8>, Value)> = Vec::new();
    loop {
        let after = all.last().map(|(key, _)| &key[..]);
        let page = store.scan(space, prefix, after, bytes_max).unwrap();
        assert!(!page.more || !page.pairs.is_empty(), "progress");
        all.extend(page.pairs.into_iter().map(|pair| (pair.key, pair.value)));
        if !page.more {
            return all;
        }
    }
}
