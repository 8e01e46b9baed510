//! Damaged stores, and the messages of a start that finds one.

use std::sync::Mutex;

use unbroken_broker_core::{
    Frontier, Message, MessageParts, Presence, Progress, Record, Settings, ShardOptions, StoreId,
    StoreRequest,
};
use unbroken_mqtt_proto::{Properties, QoS};
use unbroken_store::{
    Answer, Batch, Committed, Conflict, Embedded, Fault, Faulty, FreeSpace, Kv, LogId, Memory,
    MessageRecord, On, Refusal, Revision, Sequence, Space, Store,
};

use unbroken_persist::batch_of;

use super::*;
use crate::channel::{DriverEvent, EventReceiver, event_channel};
use crate::handle::Requests;
use crate::log::tests::log_of;

fn opened(directory: &Path, on_corruption: OnCorruption) -> Result<OpenedStore, DiskError> {
    let storage = Storage {
        on_corruption,
        ..Storage::default()
    };
    OpenedStore::open(&storage, directory, 1)
}

/// A store with a record that the store can read and the broker cannot.
fn damaged(directory: &Path) {
    let store = Embedded::open(directory, Options::default()).unwrap();
    let mut batch = Batch::new();
    batch.put(Space::Retained, b"kitchen".to_vec(), vec![0]);
    batch.put(Space::Control, b"whole".to_vec(), vec![1]);
    assert!(store.commit(&[batch]).unwrap()[0].is_ok());
}

#[test]
fn damage_found_at_the_start_is_set_aside_and_the_broker_starts() {
    let temp = tempfile::tempdir().unwrap();
    let directory = temp.path().join("data");
    damaged(&directory);
    let begun = opened(&directory, OnCorruption::Quarantine).unwrap();
    assert_eq!(begun.restored.retained.len(), 0);
    let aside = &quarantine::damaged_stores(&directory).unwrap()[0];
    let report = std::fs::read_to_string(aside.join("damage.txt")).unwrap();
    assert!(
        report.contains("Not copied: retained: the value of key kitchen"),
        "{report}"
    );
    assert!(report.contains("1 values"), "{report}");
    drop(begun);
    opened(&directory, OnCorruption::Refuse).unwrap();
}

/// A disk for one shard, and the channel for its answers.
pub(crate) fn started(directory: &Path) -> (Disk, EventReceiver) {
    let storage = Storage::default();
    let opened = OpenedStore::open(&storage, directory, 1).unwrap();
    let (shard, answers) = event_channel();
    let disk = opened.start(
        &storage,
        vec![shard],
        Vec::new(),
        (Requests::new(Vec::new()), Arc::default()),
        mpsc::channel().0,
    );
    (disk.unwrap(), answers)
}

/// How a run of a broker ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Clean,
    Killed,
    /// The start failed, for instance because an address was in use.
    BeforeStart,
}

/// Runs a broker; returns the number of gaps that it began with.
fn run(directory: &Path, durability: Durability, end: End) -> u64 {
    let storage = Storage {
        durability,
        ..Storage::default()
    };
    let opened = OpenedStore::open(&storage, directory, 1).unwrap();
    let gaps = opened.restored.gaps;
    if end == End::BeforeStart {
        return gaps;
    }
    let store = Arc::clone(&opened.store);
    let (notify, _notices) = mpsc::channel();
    let mut disk = opened
        .start(
            &storage,
            Vec::new(),
            Vec::new(),
            (Requests::new(Vec::new()), Arc::default()),
            notify,
        )
        .unwrap();
    let health = store_health::of(&*store).unwrap();
    assert_eq!(health.gaps, gaps);
    disk.end().unwrap();
    if end == End::Killed && durability != Durability::Strict {
        // As it was before the end.
        assert!(health.at_risk);
        let mut batch = Batch::new();
        batch.put(Space::Control, store_health::KEY.to_vec(), health.encode());
        store.commit(&[batch]).unwrap();
    }
    gaps
}

#[test]
fn a_start_detects_acknowledgements_that_the_previous_run_did_not_sync() {
    use Durability::{Off, Relaxed, Strict};
    use End::{BeforeStart, Clean, Killed};

    let temp = tempfile::tempdir().unwrap();
    for (durability, end, gaps) in [
        (Strict, Killed, 0),
        (Off, BeforeStart, 0),
        (Relaxed, Clean, 0),
        (Off, Killed, 0),
        (Off, BeforeStart, 1),
        (Relaxed, BeforeStart, 1),
        (Strict, Killed, 1),
        (Relaxed, Killed, 1),
        (Relaxed, Clean, 2),
        (Strict, Clean, 2),
    ] {
        let opened = run(temp.path(), durability, end);
        assert_eq!(opened, gaps, "{durability:?} {end:?}");
    }
}

fn message(topic: &str, expires: Option<Instant>) -> Message {
    let parts = MessageParts {
        topic,
        properties: Properties::EMPTY,
        payload: b"x",
        qos: QoS::AtLeastOnce,
        retain: true,
        stamp: Instant::now(),
        expires,
        publisher: Some("p".into()),
        mark: None,
    };
    Message::restore(parts, None)
}

#[test]
fn records_written_after_a_suspend_have_the_right_age() {
    const HOUR: Duration = Duration::from_hours(1);
    let temp = tempfile::tempdir().unwrap();
    let (mut disk, _told) = started(temp.path());
    // The broker was started ten hours ago, and the machine was suspended since.
    disk.times = Times::new(Instant::now(), SystemTime::now() - 10 * HOUR);
    let mut store_handle = disk.store_handle(ShardId(0)).unwrap();
    let now = Instant::now();
    let client_id: Arc<str> = "s".into();
    let opened = Record::SessionOpened {
        client_id: Arc::clone(&client_id),
        expiry_s: 2 * 3_600,
        user: None,
        mount: None,
        new: true,
    };
    let gone = Record::Progress {
        client_id,
        progress: Box::new(Progress {
            through: Frontier::new(),
            given: Vec::new(),
            ended: Vec::new(),
            done: Vec::new(),
            scanned: Vec::new(),
            past: Vec::new(),
            presence: Some(Presence {
                is_here: false,
                expiry_s: 2 * 3_600,
                user: None,
                mount: None,
            }),
            maybe_sent: None,
        }),
    };
    let retained = Record::Retained {
        message: Arc::new(message("t", Some(now + HOUR))),
        errand: None,
    };
    for (number, record) in (1..).zip([opened, gone, retained]) {
        let id = StoreId(number);
        store_handle.store(now, &StoreRequest { id, record });
    }
    store_handle.submit_gathered();
    store_handle.submit_all();
    drop(store_handle);
    disk.end().unwrap();
    drop(disk);
    let opened = OpenedStore::open(&Storage::default(), temp.path(), 1).unwrap();
    let session = &opened.restored.sessions[0];
    assert!(session.away.unwrap() < HOUR, "{session:?}");
    let expires = opened.restored.retained[0].parts().expires;
    assert!(expires.unwrap() > Instant::now());
}

#[test]
fn requests_of_one_turn_are_in_one_commit() {
    let temp = tempfile::tempdir().unwrap();
    let (mut disk, _told) = started(temp.path());
    let mut store_handle = disk.store_handle(ShardId(0)).unwrap();
    let stats = store_handle.committer.stats();
    for number in 1..=10 {
        let message = Arc::new(message("t", None));
        let record = Record::Retained {
            message,
            errand: None,
        };
        let id = StoreId(number);
        store_handle.store(Instant::now(), &StoreRequest { id, record });
        store_handle.submit_gathered();
    }
    assert!(
        store_handle.has_pending() && store_handle.has_unsubmitted() && !store_handle.is_behind()
    );
    assert_eq!(stats.batches(), 0);
    store_handle.submit_all();
    assert!(!store_handle.has_unsubmitted());
    drop(store_handle);
    disk.end().unwrap();
    assert_eq!((stats.batches(), stats.commits()), (10, 1));
}

/// A store without files.
impl BrokerStore for Faulty<Memory> {
    fn release_below(&self, _: LogId, _: Sequence) {}

    fn retire(&self, _: LogId) -> Result<bool, StoreError> {
        Ok(false)
    }

    fn generations(&self, _: LogId) -> Vec<Sequence> {
        Vec::new()
    }

    fn check_place(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn free_space(&self) -> Option<FreeSpace> {
        None
    }

    fn write_out(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn overhead_bytes_max(&self, _: u64) -> u64 {
        0
    }
}

#[test]
fn a_directory_that_is_deleted_while_nothing_is_written_is_a_failure() {
    let temp = tempfile::tempdir().unwrap();
    let directory = temp.path().join("data");
    let opened = OpenedStore::open(&Storage::default(), &directory, 1).unwrap();
    let (shard, _answers) = event_channel();
    let (notify, notices) = mpsc::channel();
    let commands = (Requests::new(Vec::new()), Arc::default());
    let started = opened.start(
        &Storage::default(),
        vec![shard],
        Vec::new(),
        commands,
        notify,
    );
    let _disk = started.unwrap();
    // The store may make a file meanwhile.
    while directory.exists() {
        let _ = std::fs::remove_dir_all(&directory);
    }
    let Ok(Notice::StoreFailed { reason }) = notices.recv() else {
        panic!("another notice");
    };
    assert!(reason.contains("deleted, moved or replaced"), "{reason}");
}

#[test]
fn any_store_works_and_its_failure_is_reported() {
    let temp = tempfile::tempdir().unwrap();
    let store = Arc::new(Faulty::new(Memory::new()));
    let now = Instant::now();
    let opened = OpenedStore {
        store: Arc::<Faulty<Memory>>::clone(&store),
        times: Times::new(now, SystemTime::now()),
        restored: Restored::default(),
        was_killed: false,
        directory: temp.path().to_owned(),
    };
    let (shard, mut answers) = event_channel();
    let (notify, notices) = mpsc::channel();
    let commands = (Requests::new(Vec::new()), Arc::default());
    let started = opened.start(
        &Storage::default(),
        vec![shard],
        Vec::new(),
        commands,
        notify,
    );
    let mut disk = started.unwrap();
    let mut store_handle = disk.store_handle(ShardId(0)).unwrap();
    let mut ask = |number, topic| {
        let message = Arc::new(message(topic, None));
        let errand = None;
        let record = Record::Retained { message, errand };
        let id = StoreId(number);
        store_handle.store(now, &StoreRequest { id, record });
        store_handle.submit_gathered();
        store_handle.submit_all();
    };
    ask(1, "kept");
    let stored = loop {
        if let Ok(DriverEvent::Stored(id, _)) = answers.try_recv() {
            break id;
        }
        thread::yield_now();
    };
    assert_eq!(stored, StoreId(1));
    assert!(store.get(Space::Retained, b"kept").unwrap().is_some());
    store.inject(Fault {
        on: On::Commit(0),
        after: 0,
        kind: io::ErrorKind::StorageFull,
    });
    ask(2, "lost");
    assert!(matches!(notices.recv(), Ok(Notice::StoreFailed { .. })));
    assert!(store.get(Space::Retained, b"lost").unwrap().is_none());
    drop(store_handle);
    disk.end().unwrap_err();
}

#[test]
fn retained_messages_beyond_a_lowered_limit_are_logged() {
    let temp = tempfile::tempdir().unwrap();
    let store = Embedded::open(temp.path(), Options::default()).unwrap();
    let now = Instant::now();
    let times = Times::new(now, SystemTime::now());
    let batches = ["a", "b", "c"].map(|topic| {
        let message = Arc::new(message(topic, None));
        let errand = None;
        batch_of(&Record::Retained { message, errand }, now, &times)
    });
    assert!(store.commit(&batches).unwrap().iter().all(Result::is_ok));
    drop(store);
    for (max, is_logged) in [(3, false), (1, true)] {
        let mut opened = opened(temp.path(), OnCorruption::Refuse).unwrap();
        let mut limits = Limits::default();
        limits.retained_messages_max = max;
        let options = ShardOptions {
            id: ShardId(0),
            shards: 1,
            limits: limits.clone(),
            settings: Settings::default(),
            totals: Arc::default(),
            seed: 7,
            start: now,
        };
        let mut shards = [Shard::new(options)];
        let log = log_of(|| opened.restore(&mut shards, &limits).unwrap());
        let line = log.lines().find(|line| line.contains("messages=3"));
        assert_eq!(line.is_some(), is_logged, "{log}");
    }
}

#[test]
fn a_log_of_a_former_shard_counts_while_it_is_not_empty() {
    const LEFT: LogId = LogId(1);
    let temp = tempfile::tempdir().unwrap();
    let opened = opened(temp.path(), OnCorruption::Refuse).unwrap();
    let mut batch = Batch::new();
    for number in 1..=2 {
        let message = MessageRecord::plain("t", 0, b"x");
        batch.append(LEFT, Sequence(number), message.encode());
    }
    assert!(opened.store.commit(&[batch]).unwrap()[0].is_ok());
    assert_eq!(opened.count_logs(1), 2);
    opened.store.trim(LEFT, Sequence(3)).unwrap();
    assert!(opened.store.retire(LEFT).unwrap());
    while opened.store.trim(LEFT, Sequence(3)).unwrap() {}
    // It stays listed, so that its numbers go on when there are as many shards again.
    assert_eq!(opened.store.logs().unwrap(), [LEFT]);
    assert_eq!(opened.count_logs(1), 1);
}

#[test]
fn a_quarantine_of_an_interrupted_start_is_logged_once_by_the_next() {
    let temp = tempfile::tempdir().unwrap();
    let (directory, path) = (temp.path().join("data"), temp.path().join("log"));
    damaged(&directory);
    let store = Embedded::open(&directory, Options::default()).unwrap();
    // This start was killed before it could log the quarantine.
    drop(quarantine::set_aside(store, "a test").unwrap());
    let log_of_start = || {
        let file = std::fs::File::create(&path).unwrap();
        let log = tracing_subscriber::fmt().with_ansi(false);
        let log = log.with_writer(Mutex::new(file)).finish();
        tracing::subscriber::with_default(log, || {
            opened(&directory, OnCorruption::Quarantine).unwrap();
        });
        std::fs::read_to_string(&path).unwrap()
    };
    let first = log_of_start();
    let aside = quarantine::damaged_stores(&directory).unwrap().remove(0);
    let aside = aside.display().to_string();
    let line = first.lines().find(|line| line.contains(&aside)).unwrap();
    assert!(line.contains(" WARN "), "{first}");
    assert!(!log_of_start().contains(&aside));
}

#[test]
fn no_request_is_answered_after_a_refused_one() {
    let (shard, mut events) = event_channel();
    let (notify, notices) = mpsc::channel();
    let (jobs, waiting) = mpsc::channel();
    let temp = tempfile::tempdir().unwrap();
    let mut answerer = Answerer {
        store: Arc::new(Faulty::new(Memory::new())),
        space: Arc::new(DiskSpace::new(temp.path(), 0)),
        directory: temp.path().to_owned(),
        latest: vec![None],
        shards: vec![shard],
        jobs,
        notify: Some(notify),
    };
    let id = |number| StoreId(number);
    let stored = |token| Answer {
        token,
        batch: Batch::new(),
        result: Ok(Committed {
            revision: Revision(1),
        }),
    };
    let refused = Answer {
        token: Token::Stored(ShardId(0), id(2)),
        batch: Batch::new(),
        result: Err(Refusal::Conflict(Conflict::Key {
            space: Space::Control,
            bytes: 0,
        })),
    };
    let before = stored(Token::Stored(ShardId(0), id(1)));
    answerer.answer([before, refused].into_iter());
    assert!(matches!(events.try_recv(), Ok(DriverEvent::Stored(stored, _)) if stored == id(1)));
    assert!(matches!(notices.try_recv(), Ok(Notice::StoreFailed { .. })));
    let (done, is_done) = mpsc::channel();
    let later = [
        stored(Token::Stored(ShardId(0), id(3))),
        stored(Token::Needed(ShardId(0), Frontier::new())),
        stored(Token::Notify(done)),
    ];
    answerer.answer(later.into_iter());
    assert!(events.try_recv().is_err());
    assert!(waiting.try_recv().is_err());
    assert!(is_done.recv().is_err());
}

/// With any setting of `on_error`, the next start finds the damage.
#[test]
fn damage_found_while_storing_is_left_to_the_next_start() {
    let temp = tempfile::tempdir().unwrap();
    drop(opened(temp.path(), OnCorruption::Refuse).unwrap());
    let (notify, notices) = mpsc::channel();
    let (jobs, _waiting) = mpsc::channel();
    let mut answerer = Answerer {
        store: Arc::new(Faulty::new(Memory::new())),
        space: Arc::new(DiskSpace::new(temp.path(), 0)),
        directory: temp.path().to_owned(),
        latest: Vec::new(),
        shards: Vec::new(),
        jobs,
        notify: Some(notify),
    };
    let refused = Answer {
        token: Token::Needed(ShardId(0), Frontier::new()),
        batch: Batch::new(),
        result: Err(Refusal::Damaged("table 4 is damaged".into())),
    };
    answerer.answer([refused].into_iter());
    let notice = notices.try_recv().unwrap();
    assert!(
        matches!(&notice, Notice::StoreDamaged { reason } if reason == "table 4 is damaged"),
        "{notice:?}"
    );
    let refused = opened(temp.path(), OnCorruption::Refuse).unwrap_err();
    assert!(refused.to_string().contains("table 4"), "{refused}");
    opened(temp.path(), OnCorruption::Quarantine).unwrap();
    assert_eq!(quarantine::damaged_stores(temp.path()).unwrap().len(), 1);
}

#[test]
fn damage_found_at_the_start_is_refused_if_configured() {
    let temp = tempfile::tempdir().unwrap();
    damaged(temp.path());
    let refused = opened(temp.path(), OnCorruption::Refuse).unwrap_err();
    assert!(refused.to_string().contains("kitchen"), "{refused}");
}

#[test]
fn a_store_with_a_record_of_a_newer_version_is_refused_and_not_set_aside() {
    let temp = tempfile::tempdir().unwrap();
    let store = Embedded::open(temp.path(), Options::default()).unwrap();
    let mut batch = Batch::new();
    batch.put(Space::Retained, b"kitchen".to_vec(), vec![200]);
    assert!(store.commit(&[batch]).unwrap()[0].is_ok());
    drop(store);
    let refused = opened(temp.path(), OnCorruption::Quarantine).unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("use the version that wrote it"),
        "{refused}"
    );
    assert!(quarantine::damaged_stores(temp.path()).unwrap().is_empty());
}
