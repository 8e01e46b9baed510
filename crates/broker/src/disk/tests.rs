//! Stores that are damaged, and what a start says of what it finds.

use std::sync::Mutex;

use unbroken_broker_core::{
    Message, MessageParts, Presence, Progress, Record, Settings, ShardOptions,
};
use unbroken_mqtt_proto::{Properties, QoS};
use unbroken_store::{
    Answer, Committed, Conflict, Embedded, Fault, Faulty, Kv, LogId, Memory, MessageRecord, On,
    Revision, Sequence, Space, Store,
};

use super::*;
use crate::handle::Requests;
use crate::log::tests::log_of;
use crate::mailbox::{Incoming, outside_feed};

fn found(directory: &Path, on_corruption: OnCorruption) -> Result<Found, DiskError> {
    let storage = Storage {
        on_corruption,
        ..Storage::default()
    };
    Found::open(&storage, directory, 1)
}

/// A store with a value that the store reads and no broker begins with.
fn damaged(directory: &Path) {
    let store = Embedded::open(directory, Options::default()).unwrap();
    let mut batch = Batch::new();
    batch.put(Space::Retained, b"kitchen".to_vec(), vec![0]);
    batch.put(Space::Control, b"whole".to_vec(), vec![1]);
    assert!(store.commit(&[batch]).unwrap()[0].is_ok());
}

#[test]
fn damage_that_is_met_at_the_start_is_set_aside_and_the_broker_begins() {
    let temp = tempfile::tempdir().unwrap();
    let directory = temp.path().join("data");
    damaged(&directory);
    let begun = found(&directory, OnCorruption::Quarantine).unwrap();
    assert_eq!(begun.restored.retained.len(), 0);
    let aside = &quarantine::kept(&directory).unwrap()[0];
    let report = std::fs::read_to_string(aside.join("damage.txt")).unwrap();
    assert!(
        report.contains("Not copied: retained: the value of key kitchen"),
        "{report}"
    );
    assert!(report.contains("1 values"), "{report}");
    drop(begun);
    found(&directory, OnCorruption::Refuse).unwrap();
}

/// A disk for one shard, and where its answers come.
pub(crate) fn started(directory: &Path) -> (Disk, Incoming) {
    let storage = Storage::default();
    let found = Found::open(&storage, directory, 1).unwrap();
    let (shard, answers) = outside_feed();
    let disk = found.start(
        &storage,
        vec![shard],
        Vec::new(),
        Requests::new(Vec::new()),
        mpsc::channel().0,
    );
    (disk.unwrap(), answers)
}

/// How a run of a broker ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    InGoodOrder,
    WithoutAWord,
    /// Something kept it from beginning, such as an address in use.
    BeforeItBegins,
}

/// A broker begins, if it does, and ends; with how many gaps it began.
fn run(directory: &Path, durability: Durability, end: End) -> u64 {
    let storage = Storage {
        durability,
        ..Storage::default()
    };
    let found = Found::open(&storage, directory, 1).unwrap();
    let gaps = found.restored.gaps;
    if end == End::BeforeItBegins {
        return gaps;
    }
    let store = Arc::clone(&found.store);
    let (notify, _notices) = mpsc::channel();
    let mut disk = found
        .start(
            &storage,
            Vec::new(),
            Vec::new(),
            Requests::new(Vec::new()),
            notify,
        )
        .unwrap();
    let told = standing::of(&*store).unwrap();
    assert_eq!(told.gaps, gaps);
    disk.end().unwrap();
    if end == End::WithoutAWord && durability != Durability::Strict {
        // As it was before the end.
        assert!(told.at_risk);
        let mut batch = Batch::new();
        batch.put(Space::Control, standing::KEY.to_vec(), told.encode());
        store.commit(&[batch]).unwrap();
    }
    gaps
}

#[test]
fn a_start_knows_whether_the_run_before_may_have_told_what_it_did_not_sync() {
    use Durability::{Off, Relaxed, Strict};
    use End::{BeforeItBegins, InGoodOrder, WithoutAWord};

    let temp = tempfile::tempdir().unwrap();
    for (durability, end, gaps) in [
        (Strict, WithoutAWord, 0),
        (Off, BeforeItBegins, 0),
        (Relaxed, InGoodOrder, 0),
        (Off, WithoutAWord, 0),
        (Off, BeforeItBegins, 1),
        (Relaxed, BeforeItBegins, 1),
        (Strict, WithoutAWord, 1),
        (Relaxed, WithoutAWord, 1),
        (Relaxed, InGoodOrder, 2),
        (Strict, InGoodOrder, 2),
    ] {
        let found = run(temp.path(), durability, end);
        assert_eq!(found, gaps, "{durability:?} {end:?}");
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
fn what_is_written_after_the_machine_has_slept_is_as_old_as_it_is() {
    const HOUR: Duration = Duration::from_hours(1);
    let temp = tempfile::tempdir().unwrap();
    let (mut disk, _told) = started(temp.path());
    // The broker was started ten hours ago, and the machine has slept since.
    disk.times = Times::new(Instant::now(), SystemTime::now() - 10 * HOUR);
    let mut desk = disk.desk(ShardId(0)).unwrap();
    let now = Instant::now();
    let client_id: Arc<str> = "s".into();
    let opened = Record::SessionOpened {
        client_id: Arc::clone(&client_id),
        expiry_s: 2 * 3_600,
        new: true,
    };
    let gone = Record::Progress {
        client_id,
        progress: Box::new(Progress {
            through: Frontier::new(),
            given: Vec::new(),
            landed: Vec::new(),
            done: Vec::new(),
            scanned: Vec::new(),
            past: Vec::new(),
            presence: Some(Presence {
                is_here: false,
                expiry_s: 2 * 3_600,
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
        desk.store(now, &StoreRequest { id, record });
    }
    desk.submit_gathered();
    desk.submit_all();
    drop(desk);
    disk.end().unwrap();
    drop(disk);
    let found = Found::open(&Storage::default(), temp.path(), 1).unwrap();
    let session = &found.restored.sessions[0];
    assert!(session.away.unwrap() < HOUR, "{session:?}");
    let expires = found.restored.retained[0].parts().expires;
    assert!(expires.unwrap() > Instant::now());
}

#[test]
fn what_a_turn_asks_for_is_in_one_commit() {
    let temp = tempfile::tempdir().unwrap();
    let (mut disk, _told) = started(temp.path());
    let mut desk = disk.desk(ShardId(0)).unwrap();
    let stats = desk.committer.stats();
    for number in 1..=10 {
        let message = Arc::new(message("t", None));
        let record = Record::Retained {
            message,
            errand: None,
        };
        let id = StoreId(number);
        desk.store(Instant::now(), &StoreRequest { id, record });
        desk.submit_gathered();
    }
    assert!(desk.is_awaited() && desk.has_unsubmitted() && !desk.is_behind());
    assert_eq!(stats.batches(), 0);
    desk.submit_all();
    assert!(!desk.has_unsubmitted());
    drop(desk);
    disk.end().unwrap();
    assert_eq!((stats.batches(), stats.commits()), (10, 1));
}

/// No disk at all: what is asked of files has nothing to do.
impl BrokerStore for Faulty<Memory> {
    fn let_go(&self, _: LogId, _: Sequence) {}

    fn retire(&self, _: LogId) -> Result<bool, StoreError> {
        Ok(false)
    }

    fn generations(&self, _: LogId) -> Vec<Sequence> {
        Vec::new()
    }

    fn overhead_bytes_max(&self, _: u64) -> u64 {
        0
    }
}

#[test]
fn any_store_will_do_and_its_failure_is_told() {
    let temp = tempfile::tempdir().unwrap();
    let store = Arc::new(Faulty::new(Memory::new()));
    let now = Instant::now();
    let found = Found {
        store: Arc::<Faulty<Memory>>::clone(&store),
        times: Times::new(now, SystemTime::now()),
        restored: Restored::default(),
        was_killed: false,
        directory: temp.path().to_owned(),
    };
    let (shard, mut answers) = outside_feed();
    let (notify, notices) = mpsc::channel();
    let requests = Requests::new(Vec::new());
    let started = found.start(
        &Storage::default(),
        vec![shard],
        Vec::new(),
        requests,
        notify,
    );
    let mut disk = started.unwrap();
    let mut desk = disk.desk(ShardId(0)).unwrap();
    let mut ask = |number, topic| {
        let message = Arc::new(message(topic, None));
        let errand = None;
        let record = Record::Retained { message, errand };
        let id = StoreId(number);
        desk.store(now, &StoreRequest { id, record });
        desk.submit_gathered();
        desk.submit_all();
    };
    ask(1, "kept");
    let stored = loop {
        if let Ok(Parcel::Stored(id, _)) = answers.try_recv() {
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
    drop(desk);
    disk.end().unwrap_err();
}

#[test]
fn retained_messages_beyond_a_limit_that_was_lowered_are_told() {
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
    for (max, told) in [(3, false), (1, true)] {
        let mut found = found(temp.path(), OnCorruption::Refuse).unwrap();
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
        let words = log_of(|| found.restore(&mut shards, &limits).unwrap());
        let line = words.lines().find(|line| line.contains("hidden=2"));
        assert_eq!(line.is_some(), told, "{words}");
    }
}

#[test]
fn a_log_of_a_shard_that_is_no_more_needs_room_as_long_as_something_is_in_it() {
    const LEFT: LogId = LogId(1);
    let temp = tempfile::tempdir().unwrap();
    let found = found(temp.path(), OnCorruption::Refuse).unwrap();
    let mut batch = Batch::new();
    for number in 1..=2 {
        let message = MessageRecord::plain("t", 0, b"x");
        batch.append(LEFT, Sequence(number), message.encode());
    }
    assert!(found.store.commit(&[batch]).unwrap()[0].is_ok());
    assert_eq!(found.count_logs(1), 2);
    found.store.trim(LEFT, Sequence(3)).unwrap();
    assert!(found.store.retire(LEFT).unwrap());
    while found.store.trim(LEFT, Sequence(3)).unwrap() {}
    // It stays listed, so that its numbers go on when there are as many shards again.
    assert_eq!(found.store.logs().unwrap(), [LEFT]);
    assert_eq!(found.count_logs(1), 1);
}

#[test]
fn what_an_interrupted_start_has_set_aside_is_said_by_the_next_one_and_no_other() {
    let temp = tempfile::tempdir().unwrap();
    let (directory, words) = (temp.path().join("data"), temp.path().join("log"));
    damaged(&directory);
    let store = Embedded::open(&directory, Options::default()).unwrap();
    // Of the start that does this nobody hears more: it is killed.
    drop(quarantine::set_aside(store, "a test").unwrap());
    let said = || {
        let file = std::fs::File::create(&words).unwrap();
        let log = tracing_subscriber::fmt().with_ansi(false);
        let log = log.with_writer(Mutex::new(file)).finish();
        tracing::subscriber::with_default(log, || {
            found(&directory, OnCorruption::Quarantine).unwrap();
        });
        std::fs::read_to_string(&words).unwrap()
    };
    let first = said();
    let aside = quarantine::kept(&directory).unwrap().remove(0);
    let aside = aside.display().to_string();
    let line = first.lines().find(|line| line.contains(&aside)).unwrap();
    assert!(line.contains(" WARN "), "{first}");
    assert!(!said().contains(&aside));
}

#[test]
fn after_a_request_that_was_refused_nothing_is_answered() {
    let (shard, mut told) = outside_feed();
    let (notify, notices) = mpsc::channel();
    let (jobs, waiting) = mpsc::channel();
    let temp = tempfile::tempdir().unwrap();
    let mut answerer = Answerer {
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
    assert!(matches!(told.try_recv(), Ok(Parcel::Stored(stored, _)) if stored == id(1)));
    assert!(matches!(notices.try_recv(), Ok(Notice::StoreFailed { .. })));
    let (done, is_done) = mpsc::channel();
    let later = [
        stored(Token::Stored(ShardId(0), id(3))),
        stored(Token::Needed(ShardId(0), Frontier::new())),
        stored(Token::Told(done)),
    ];
    answerer.answer(later.into_iter());
    assert!(told.try_recv().is_err());
    assert!(waiting.try_recv().is_err());
    assert!(is_done.recv().is_err());
}

/// Whatever is done with an error: it is there again at the next start.
#[test]
fn damage_that_is_met_by_what_is_to_be_stored_is_left_to_the_next_start() {
    let temp = tempfile::tempdir().unwrap();
    drop(found(temp.path(), OnCorruption::Refuse).unwrap());
    let (notify, notices) = mpsc::channel();
    let (jobs, _waiting) = mpsc::channel();
    let mut answerer = Answerer {
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
    let refused = found(temp.path(), OnCorruption::Refuse).unwrap_err();
    assert!(refused.to_string().contains("table 4"), "{refused}");
    found(temp.path(), OnCorruption::Quarantine).unwrap();
    assert_eq!(quarantine::kept(temp.path()).unwrap().len(), 1);
}

#[test]
fn damage_that_is_met_at_the_start_is_refused_where_its_owner_wants_that() {
    let temp = tempfile::tempdir().unwrap();
    damaged(temp.path());
    let refused = found(temp.path(), OnCorruption::Refuse).unwrap_err();
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
    let refused = found(temp.path(), OnCorruption::Quarantine).unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("use the version that wrote it"),
        "{refused}"
    );
    assert!(quarantine::kept(temp.path()).unwrap().is_empty());
}
