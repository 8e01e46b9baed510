//! Random histories, on the subject and on the naive twin, compared after every step.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use unbroken_store::{Batch, Expect, LogId, Operation, Revision, Sequence, Space, View};

use crate::Subject;
use crate::suite::{message, read_all, select};
use crate::twin::Twin;

#[derive(Clone, Debug)]
enum Step {
    Commit(Vec<Vec<Change>>),
    /// Below this many messages after the first.
    Trim(u16, u64),
    /// So many numbers are left out.
    GoOn(u16, u64),
    Sync,
    Reopen,
}

#[derive(Clone, Debug)]
enum Change {
    /// To this log, on this topic, with so much payload; rarely with a wrong number.
    Append(u16, usize, usize, bool),
    Put(u8, Expected),
    Delete(u8, Expected),
    DeleteAll(u8),
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

pub(crate) fn histories_are_the_same_as_those_of_the_naive_twin<S: Subject>(subject: &S) {
    let config = Config {
        // Those on disk open an engine each, several times.
        cases: if S::KEEPS { 12 } else { 100 },
        failure_persistence: None,
        ..Config::default()
    };
    let histories = proptest::collection::vec(step(), 1..30);
    let result = TestRunner::new(config).run(&histories, |history| {
        follow(subject, &history);
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
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
    let change = prop_oneof![
        6 => append.prop_map(|(log, topic, size, wrong)| Change::Append(log, topic, size, wrong)),
        2 => (0..12u8, expected.clone()).prop_map(|(key, expect)| Change::Put(key, expect)),
        1 => (0..12u8, expected).prop_map(|(key, expect)| Change::Delete(key, expect)),
        1 => (0..12u8).prop_map(Change::DeleteAll),
    ];
    let batches = proptest::collection::vec(proptest::collection::vec(change, 0..5), 0..8);
    prop_oneof![
        12 => batches.prop_map(Step::Commit),
        2 => (0..LOGS, 0..40u64).prop_map(|(log, count)| Step::Trim(log, count)),
        1 => (0..LOGS, 0..9u64).prop_map(|(log, count)| Step::GoOn(log, count)),
        1 => Just(Step::Sync),
        2 => Just(Step::Reopen),
    ]
}

fn follow<S: Subject>(subject: &S, history: &[Step]) {
    // A history that failed has left something.
    subject.reset();
    let mut twin = Twin::default();
    let mut store = subject.open();
    for step in history {
        match step {
            Step::Commit(batches) => {
                let batches = batches_of(&twin, batches);
                let results = store.commit(&batches).unwrap();
                assert_eq!(results, twin.commit(&batches));
            }
            Step::Trim(log, count) => {
                let id = LogId(*log);
                let below = Sequence(twin.bounds(id).first.0 + count);
                store.trim(id, below).unwrap();
                twin.trim(id, below);
            }
            Step::GoOn(log, count) => {
                let id = LogId(*log);
                let next = Sequence(twin.bounds(id).next.0 + count);
                store.go_on_at(id, next).unwrap();
                twin.go_on_at(id, next);
            }
            Step::Sync => store.sync().unwrap(),
            Step::Reopen if S::KEEPS => {
                drop(store);
                store = subject.open();
                // What was trimmed may be there again; cursors are the broker's to remember.
                for log in twin.logs() {
                    store.trim(log, twin.bounds(log).first).unwrap();
                }
            }
            Step::Reopen => {}
        }
        compare(&*store, &twin);
        compare(&*store.snapshot().unwrap(), &twin);
    }
}

fn batches_of(twin: &Twin, batches: &[Vec<Change>]) -> Vec<Batch> {
    let mut next = [0, 1].map(|log| twin.bounds(LogId(log)).next);
    batches
        .iter()
        .map(|changes| {
            let mut batch = Batch::new();
            for change in changes {
                let expect = |key: &[u8], expected: &Expected| match expected {
                    Expected::Anything => Expect::Anything,
                    Expected::Absent => Expect::Absent,
                    Expected::Found => twin
                        .get(Space::Sessions, key)
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
                    Change::Put(key, expected) => {
                        let key = key_of(*key);
                        let expect = expect(&key, expected);
                        batch.put_if(Space::Sessions, key.clone(), key.repeat(3), expect);
                    }
                    Change::DeleteAll(key) => {
                        batch.delete_all(Space::Sessions, key_of(*key));
                    }
                    Change::Delete(key, expected) => {
                        let key = key_of(*key);
                        let expect = expect(&key, expected);
                        batch.push(Operation::Delete {
                            space: Space::Sessions,
                            key,
                            expect,
                        });
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

fn compare(store: &(impl View + ?Sized), twin: &Twin) {
    assert_eq!(store.logs().unwrap(), twin.logs());
    for log in (0..LOGS).map(LogId) {
        assert_eq!(store.bounds(log).unwrap(), twin.bounds(log));
        let selections = [
            &["a/b"][..],
            &["a/#", "rare"],
            &["+/c"],
            &["rare", "b/c"],
            &["#"],
        ];
        for bytes_max in [150, usize::MAX] {
            let all = read_all(store, log, None, bytes_max);
            assert_eq!(all, twin.read(log, None));
            for filters in selections {
                let some = read_all(store, log, Some(&select(filters)), bytes_max);
                assert_eq!(some, twin.read(log, Some(filters)), "{filters:?}");
            }
        }
    }
    for prefix in [&[][..], &[0], &[1, 1]] {
        let page = store
            .scan(Space::Sessions, prefix, None, usize::MAX)
            .unwrap();
        assert!(!page.more);
        let pairs = page.pairs.into_iter().map(|pair| (pair.key, pair.value));
        let twins = twin.scan(Space::Sessions, prefix);
        assert_eq!(pairs.collect::<Vec<_>>(), twins);
    }
    for key in (0..12).map(key_of) {
        let value = store.get(Space::Sessions, &key).unwrap();
        assert_eq!(value, twin.get(Space::Sessions, &key));
    }
}
