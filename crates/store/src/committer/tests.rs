use std::sync::mpsc;

use super::*;
use crate::batch::Space;
use crate::faulty::{Fault, Faulty, On};
use crate::memory::Memory;
use crate::store::Kv;

type Answers = mpsc::Receiver<Vec<(u32, Result<Committed, Refusal>)>>;

/// A committer whose answers come out of a channel that takes one list at a time: what is
/// submitted meanwhile waits.
fn start<S: Store + 'static>(store: &Arc<S>) -> (Committer<u32>, Answers) {
    let (sender, answers) = mpsc::sync_channel(0);
    let started = Committer::start(Arc::clone(store), None, move |list| {
        let list = list.drain(..).map(|answer| (answer.token, answer.result));
        sender.send(list.collect()).ok();
    });
    (started.unwrap(), answers)
}

fn put(key: &[u8]) -> Batch {
    let mut batch = Batch::new();
    batch.put(Space::Control, key.to_vec(), vec![1]);
    batch
}

#[test]
fn batches_that_arrive_during_a_commit_share_the_next() {
    let store = Arc::new(Memory::new());
    let (committer, answers) = start(&store);
    committer.submit(put(b"first"), 0).unwrap();
    // The first commit runs, or waits to be heard; these gather, or go with it.
    for token in 1..10 {
        committer
            .submit(put(&[u8::try_from(token).unwrap()]), token)
            .unwrap();
    }
    let mut tokens = Vec::new();
    let mut commits = 0;
    while tokens.len() < 10 {
        commits += 1;
        for (token, result) in answers.recv().unwrap() {
            assert!(result.is_ok());
            tokens.push(token);
        }
    }
    assert_eq!(tokens, (0..10).collect::<Vec<_>>());
    assert!(commits <= 2, "{commits} commits");
    assert_eq!(committer.stats().batches(), 10);
    assert_eq!(committer.stats().commits(), commits);
}

/// Far longer than any test.
const HOUR: Duration = Duration::from_hours(1);

fn tokens(answers: &Answers) -> Vec<u32> {
    let answers = answers.recv().unwrap();
    answers.into_iter().map(|(token, _)| token).collect()
}

#[test]
fn a_delayed_batch_waits_unless_another_is_urgent() {
    let store = Arc::new(Memory::new());
    let (committer, answers) = start(&store);
    let submit = |key: &[u8], token, delay| {
        committer.submit_all(&mut [(put(key), token)].into(), delay);
    };
    submit(b"first", 0, HOUR);
    assert_eq!(tokens(&answers), [0], "no commit was before it");
    for delayed in (1..200).step_by(2) {
        submit(b"patient", delayed, HOUR);
        std::thread::yield_now();
        submit(b"not", delayed + 1, Duration::ZERO);
        assert_eq!(tokens(&answers), [delayed, delayed + 1]);
    }
    submit(b"last", 201, HOUR);
    drop(answers);
    assert_eq!(committer.end(), Ok(()));
    assert!(store.get(Space::Control, b"last").unwrap().is_some());
}

#[test]
fn a_full_commit_is_not_delayed() {
    let store = Arc::new(Memory::new());
    let (committer, answers) = start(&store);
    committer.submit(put(b"first"), 0).unwrap();
    assert_eq!(tokens(&answers), [0]);
    let mut large = put(b"large");
    large.put(
        Space::Control,
        b"value".to_vec(),
        vec![0; COMMIT_BYTES_MAX / 2],
    );
    for token in [1, 2] {
        committer.submit_all(&mut [(large.clone(), token)].into(), HOUR);
    }
    assert_eq!(tokens(&answers), [1], "both are more than one commit has");
}

#[test]
fn after_an_error_no_commit_is_written() {
    let store = Arc::new(Faulty::new(Memory::new()));
    store.inject(Fault {
        on: On::Commit(0),
        after: 1,
        kind: io::ErrorKind::StorageFull,
    });
    let (committer, answers) = start(&store);
    let mut results = Vec::new();
    for token in 0..3 {
        committer
            .submit(put(&[b'a' + u8::try_from(token).unwrap()]), token)
            .unwrap();
        results.extend(answers.recv().unwrap());
    }
    assert!(results[0].1.is_ok());
    for (_, result) in &results[1..] {
        let Err(Refusal::Dead(cause)) = result else {
            panic!("{result:?}");
        };
        assert!(cause.contains("no storage space"), "{cause}");
    }
    assert!(committer.has_failed());
    assert_eq!(store.get(Space::Control, b"b").unwrap(), None);
    assert_eq!(store.get(Space::Control, b"c").unwrap(), None);
}

#[test]
fn a_conflict_concerns_its_own_batch_only() {
    let store = Arc::new(Memory::new());
    let (committer, answers) = start(&store);
    let mut second = Batch::new();
    let absent = crate::Expect::Absent;
    second.put_if(Space::Control, b"a".to_vec(), vec![2], absent);
    for (token, batch) in [put(b"a"), second, put(b"b")].into_iter().enumerate() {
        committer
            .submit(batch, u32::try_from(token).unwrap())
            .unwrap();
    }
    let mut results = Vec::new();
    while results.len() < 3 {
        results.extend(answers.recv().unwrap());
    }
    let ok: Vec<_> = results.iter().map(|(_, result)| result.is_ok()).collect();
    assert_eq!(ok, [true, false, true]);
    assert_eq!(committer.stats().conflicts(), 1);
}

#[test]
fn a_full_queue_gives_the_batch_back() {
    let store = Arc::new(Memory::new());
    let (committer, answers) = start(&store);
    let large = || {
        let mut batch = Batch::new();
        batch.put(
            Space::Control,
            b"large".to_vec(),
            vec![0; QUEUE_BYTES_MAX / 4],
        );
        batch
    };
    // Of those that fit, some may have been taken already; nobody listens, so few are.
    let mut submitted = 0;
    let returned = loop {
        match committer.submit(large(), submitted) {
            Ok(()) => submitted += 1,
            Err(full) => break full,
        }
    };
    assert_eq!(returned.token, submitted);
    assert_eq!(returned.batch, large());
    assert!((3..8).contains(&submitted), "{submitted}");
    let mut answered = 0;
    while answered < submitted {
        answered += u32::try_from(answers.recv().unwrap().len()).unwrap();
    }
    committer.submit(large(), 99).unwrap();
    assert_eq!(answers.recv().unwrap()[0].0, 99);
}

#[test]
fn a_queue_of_a_panicked_thread_takes_everything_and_ends() {
    let store = Arc::new(Memory::new());
    let panics = |_: &mut Vec<Answer<()>>| panic!("the store is haunted");
    let committer = Committer::start(store, None, panics).unwrap();
    committer.submit(put(b"a"), ()).unwrap();
    while !committer.thread.as_ref().unwrap().is_finished() {
        std::thread::yield_now();
    }
    for _ in 0..=QUEUE_BATCHES_MAX {
        committer.submit(put(b"b"), ()).unwrap();
    }
    assert!(committer.end().unwrap_err().contains("panicked"));
}

#[test]
fn everything_is_synced_at_an_orderly_end() {
    let store = Arc::new(Faulty::new(Memory::new()));
    store.inject(Fault {
        on: On::Sync,
        after: 0,
        kind: io::ErrorKind::Other,
    });
    let committer = Committer::start(Arc::clone(&store), None, Vec::clear).unwrap();
    committer.submit(put(b"a"), ()).unwrap();
    assert!(committer.end().is_err(), "it was not synced");
}

#[test]
fn submitted_batches_are_written_before_the_thread_ends() {
    let store = Arc::new(Memory::new());
    let committer = Committer::start(Arc::clone(&store), None, Vec::clear).unwrap();
    for key in 0..100 {
        committer.submit(put(&[key]), ()).unwrap();
    }
    drop(committer);
    let page = store.scan(Space::Control, &[], None, usize::MAX).unwrap();
    assert_eq!(page.pairs.len(), 100);
}

#[test]
fn a_sync_that_is_due_happens_without_another_commit_and_its_error_is_final() {
    let store = Arc::new(Faulty::new(Memory::new()));
    // The commit succeeds; the sync after it does not.
    store.inject(Fault {
        on: On::Sync,
        after: 1,
        kind: io::ErrorKind::Other,
    });
    let (sender, answers) = mpsc::channel();
    let at_once = Some(Duration::ZERO);
    let committer = Committer::start(Arc::clone(&store), at_once, move |list| {
        for answer in list.drain(..) {
            sender.send(answer.result).unwrap();
        }
    });
    let committer = committer.unwrap();
    committer.submit(put(b"a"), ()).unwrap();
    assert!(answers.recv().unwrap().is_ok());
    committer.submit(put(b"b"), ()).unwrap();
    assert!(matches!(answers.recv().unwrap(), Err(Refusal::Dead(_))));
}
