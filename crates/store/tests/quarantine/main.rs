//! Stores whose files were damaged: what is noticed, what is kept, and that nothing is given out
//! that was not written.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod list;

use std::fs;
use std::num::NonZeroU32;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use unbroken_mqtt_proto::{QoS, RetainHandling, SubscriptionOptions};
use unbroken_store::quarantine::{OnCorruption, Quarantined, mark, marked, open};
use unbroken_store::session::{self, Head, LogRange, Part, Subscription};
use unbroken_store::{
    Batch, Embedded, Kv, Log, LogId, MessageBytes, MessageRecord, Options, Sequence, Space, Store,
    StoreError, store_health,
};

const LOG: LogId = LogId(1);
const COUNT: u64 = 60;

struct Damaged {
    temp: tempfile::TempDir,
}

impl Damaged {
    /// A store with messages in several generations, and values.
    fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        let this = Self { temp };
        let store = Embedded::open(&this.path(), options()).unwrap();
        write(&store, 1..=COUNT);
        drop(store);
        this.trim_journal();
        this
    }

    /// Without what the engine has set aside, copies take no time.
    fn trim_journal(&self) {
        let journal = self.journal();
        let bytes = fs::read(&journal).unwrap();
        fs::write(&journal, &bytes[..used(&bytes)]).unwrap();
    }

    fn path(&self) -> PathBuf {
        self.temp.path().join("store")
    }

    fn journal(&self) -> PathBuf {
        let journals = files(&self.path().join("store/engine"));
        let is_journal = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "jnl");
        let mut journals = journals.into_iter().filter(is_journal);
        let journal = journals.next().unwrap();
        assert_eq!(journals.next(), None);
        journal
    }

    /// Tables of the engine's list of trees.
    fn list(&self) -> Vec<PathBuf> {
        files(&self.path().join("store/engine/keyspaces/0/tables"))
    }

    /// A bit in the block that holds the names of trees.
    fn damage_names(&self) {
        let name = Space::Sessions.name().as_bytes();
        let mut found = 0;
        for table in self.list() {
            let mut bytes = fs::read(&table).unwrap();
            let at = bytes.windows(name.len()).rposition(|at| at == name);
            if let Some(at) = at {
                bytes[at] ^= 1;
                fs::write(table, bytes).unwrap();
                found += 1;
            }
        }
        assert!(found > 0);
    }

    fn list_copy(&self) -> PathBuf {
        self.path().join("store/list")
    }

    fn open(&self) -> (Embedded, Option<Quarantined>) {
        open(&self.path(), options(), OnCorruption::Quarantine).unwrap()
    }
}

fn write(store: &Embedded, numbers: RangeInclusive<u64>) {
    for number in numbers {
        let mut batch = Batch::new();
        batch
            .append(LOG, Sequence(number), message(number))
            .put(Space::Control, key(number), value(number))
            .put(Space::Wills, vec![b't'], value(number));
        assert!(store.commit(&[batch]).unwrap()[0].is_ok());
    }
}

fn options() -> Options {
    let mut options = Options::default();
    options.generation_bytes = 8_000;
    options
}

fn message(number: u64) -> MessageBytes {
    let payload = number.to_be_bytes().repeat(20);
    MessageRecord::plain("plant/7", number, &payload).encode()
}

fn key(number: u64) -> Vec<u8> {
    number.to_be_bytes().to_vec()
}

fn value(number: u64) -> Vec<u8> {
    vec![u8::try_from(number).unwrap(); 30]
}

fn subscription(holds: &[LogRange], ended: bool) -> Subscription {
    Subscription {
        filter: "plant/#".to_owned(),
        options: SubscriptionOptions {
            qos: QoS::AtLeastOnce,
            no_local: false,
            retain_as_published: false,
            retain_handling: RetainHandling::SendAlways,
        },
        identifier: None,
        ended,
        retained_due: false,
        ranges: holds.to_vec(),
    }
}

/// What of the messages and values is there; every one of them is as it was written.
fn contents(store: &Embedded) -> Result<(Vec<u64>, Vec<u64>), StoreError> {
    let mut numbers = Vec::new();
    let next = store.bounds(LOG)?.next;
    let mut from = Sequence::FIRST;
    while from < next {
        let chunk = store.read(LOG, from..Sequence::END, usize::MAX)?;
        for entry in chunk.entries {
            assert_eq!(entry.message, message(entry.sequence.0));
            numbers.push(entry.sequence.0);
        }
        from = chunk.next;
    }
    let mut keys = Vec::new();
    for pair in store.scan(Space::Control, &[], None, usize::MAX)?.pairs {
        if pair.key == store_health::KEY {
            continue; // of the new store
        }
        let number = u64::from_be_bytes(pair.key.try_into().unwrap());
        assert_eq!(pair.value.bytes, value(number));
        keys.push(number);
    }
    Ok((numbers, keys))
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(self::files(&path));
        } else {
            files.push(path);
        }
    }
    files.sort();
    files
}

/// Where the zeros begin that are set aside.
fn used(bytes: &[u8]) -> usize {
    bytes
        .iter()
        .rposition(|byte| *byte != 0)
        .map_or(0, |at| at + 1)
}

#[test]
fn a_whole_store_is_opened_as_it_is() {
    let store = Damaged::new();
    let (opened, quarantined) = store.open();
    assert_eq!(quarantined, None);
    let all: Vec<_> = (1..=COUNT).collect();
    assert_eq!(contents(&opened).unwrap(), (all.clone(), all));
}

#[test]
fn a_journal_that_lost_its_end_is_noticed_and_its_beginning_kept() {
    for nulls in [false, true] {
        let store = Damaged::new();
        let journal = store.journal();
        let mut bytes = fs::read(&journal).unwrap();
        let half = used(&bytes) / 2;
        if nulls {
            bytes[half..].fill(0);
        } else {
            bytes.truncate(half);
        }
        fs::write(&journal, &bytes).unwrap();
        let refused = open(&store.path(), options(), OnCorruption::Refuse).unwrap_err();
        let refused = refused.to_string();
        assert!(refused.contains("were acknowledged after"), "{refused}");

        let (opened, quarantined) = store.open();
        let quarantined = quarantined.unwrap();
        let (messages, keys) = contents(&opened).unwrap();
        let last = *messages.last().unwrap();
        assert!((10..COUNT).contains(&last), "{last}");
        assert_eq!(messages, (1..=last).collect::<Vec<_>>());
        assert_eq!(keys, messages);
        assert_eq!(quarantined.salvaged.messages, last);
        // Numbers that may have been given are not given again.
        assert!(opened.bounds(LOG).unwrap().next.0 > COUNT);
        let report = fs::read_to_string(quarantined.set_aside.join("damage.txt")).unwrap();
        assert!(report.contains("were acknowledged after"), "{report}");
    }
}

#[test]
fn a_bit_in_the_journal_costs_what_it_is_in_and_the_damaged_one_is_kept_as_it_was() {
    let store = Damaged::new();
    let journal = store.journal();
    let mut bytes = fs::read(&journal).unwrap();
    let half = used(&bytes) / 2;
    bytes[half] ^= 4;
    fs::write(&journal, &bytes).unwrap();
    let (opened, quarantined) = store.open();
    let quarantined = quarantined.unwrap();
    let (messages, _) = contents(&opened).unwrap();
    assert!(messages.len() as u64 >= COUNT - 1, "{messages:?}");
    let report = quarantined.to_string();
    assert!(report.contains("0.jnl from byte"), "{report}");
    let name = journal.file_name().unwrap();
    let kept = quarantined.set_aside.join("engine").join(name);
    assert_eq!(fs::read(kept).unwrap(), bytes);
    // It goes on, and is whole from now on.
    let next = opened.bounds(LOG).unwrap().next;
    let mut batch = Batch::new();
    batch.append(LOG, next, message(next.0));
    assert!(opened.commit(&[batch]).unwrap()[0].is_ok());
    drop(opened);
    let (opened, quarantined) = store.open();
    assert_eq!(quarantined, None);
    let numbers = contents(&opened).unwrap().0;
    assert_eq!(numbers.last(), Some(&next.0));
}

#[test]
fn damage_that_was_met_late_is_set_aside_or_refused_at_the_next_start() {
    let store = Damaged::new();
    let damage = StoreError::damaged("log 1, message 7", "its checksum does not match");
    mark(&store.path(), &damage).unwrap();
    assert!(
        marked(&store.path())
            .unwrap()
            .unwrap()
            .contains("message 7")
    );
    let refused = open(&store.path(), options(), OnCorruption::Refuse).unwrap_err();
    assert!(matches!(refused, StoreError::Damaged { .. }), "{refused}");
    assert!(
        refused.to_string().contains("log 1, message 7"),
        "{refused}"
    );
    let (opened, quarantined) = store.open();
    let quarantined = quarantined.unwrap();
    assert!(quarantined.cause.contains("log 1, message 7"));
    let all: Vec<_> = (1..=COUNT).collect();
    let (messages, _) = contents(&opened).unwrap();
    assert_eq!(messages, all, "what reads is kept");
    drop(opened);
    assert_eq!(store.open().1, None, "once");
    // A mark of which nothing was written says as much.
    fs::write(store.path().join("store/damaged"), "").unwrap();
    assert!(store.open().1.is_some());
}

/// A session that has come for the first time says in which part of a log its subscription holds,
/// and nothing else: no cursor, nothing under way.
#[test]
fn a_log_that_is_lost_goes_on_where_a_subscription_holds() {
    for until in [None, Some(Sequence(8_000_000))] {
        let store = Damaged::new();
        let opened = Embedded::open(&store.path(), options()).unwrap();
        let logs = [LogId(2), LogId(3)];
        let holds = logs.map(|log| LogRange {
            log,
            from: Sequence(5_000_000),
            until,
        });
        let subscription = subscription(&holds, until.is_some());
        let filter = "plant/#";
        let part = Part::Subscription { filter, era: 0 };
        let mut batch = Batch::new();
        batch.put(
            Space::Sessions,
            session::key("new", part),
            subscription.encode(),
        );
        assert!(opened.commit(&[batch]).unwrap()[0].is_ok());
        drop(opened);
        mark(&store.path(), &StoreError::damaged("it", "met late")).unwrap();
        let (opened, quarantined) = store.open();
        assert!(quarantined.is_some());
        for log in logs {
            let next = opened.bounds(log).unwrap().next;
            let given = until.unwrap_or(Sequence(5_000_000));
            assert!(next >= given, "log {log} goes on at {next}");
        }
    }
}

#[test]
fn whatever_file_is_damaged_nothing_panics_and_nothing_false_is_read() {
    let pristine = Damaged::new();
    let all = files(&pristine.path());
    assert!(all.len() > 10);
    let mut noticed = 0;
    // One damage to each file, in turn: each case opens the engine many times.
    let damages: [fn(&mut Vec<u8>); 3] = [truncate, |bytes| null(bytes), |bytes| flip(bytes)];
    let damages = damages.into_iter().cycle();
    for (file, damage) in all.into_iter().zip(damages) {
        let name = file.strip_prefix(pristine.path()).unwrap();
        let temp = tempfile::tempdir().unwrap();
        let store = Damaged { temp };
        copy(&pristine.path(), &store.path());
        let mut bytes = fs::read(&file).unwrap();
        damage(&mut bytes);
        fs::write(store.path().join(name), &bytes).unwrap();
        let opened = open(&store.path(), options(), OnCorruption::Quarantine);
        let (opened, quarantined) = match opened {
            Ok(opened) => opened,
            // A version number is one flip away from a newer one.
            Err(StoreError::Format { .. }) => continue,
            Err(other) => panic!("{}: {other}", name.display()),
        };
        noticed += u32::from(quarantined.is_some());
        let read = contents(&opened);
        // One tree does not take the others with it.
        if quarantined.is_some() && name.starts_with("store/engine/keyspaces") {
            let (messages, keys) = read.as_ref().unwrap();
            let whole = messages.len().max(keys.len()) as u64;
            assert_eq!(whole, COUNT, "{}", name.display());
        }
        match read {
            Ok((messages, keys)) if quarantined.is_none() => {
                let all: Vec<_> = (1..=COUNT).collect();
                assert_eq!((messages, keys), (all.clone(), all), "{}", name.display());
            }
            Ok(_) => {}
            Err(StoreError::Damaged { .. }) if quarantined.is_none() => {}
            Err(other) => panic!("{}: {other}", name.display()),
        }
    }
    assert!(noticed > 5, "{noticed}");
}

fn truncate(bytes: &mut Vec<u8>) {
    bytes.truncate(used(bytes) / 2);
}

fn null(bytes: &mut [u8]) {
    let used = used(bytes);
    bytes[used / 3..].fill(0);
}

fn flip(bytes: &mut [u8]) {
    let used = used(bytes);
    if let Some(byte) = bytes.get_mut(used / 2) {
        *byte ^= 1;
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}
