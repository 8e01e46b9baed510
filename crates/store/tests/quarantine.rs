//! Stores whose files were damaged: what is noticed, what is kept, and that nothing is given out
//! that was not written.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

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

/// Names and settings of all trees are in it, some KiB.
#[test]
fn a_bad_block_in_the_list_of_trees_costs_nothing_that_is_in_them() {
    let pristine = Damaged::new();
    let opened = Embedded::open(&pristine.path(), options()).unwrap();
    let session = session::key(
        "kept",
        Part::Subscription {
            filter: "plant/#",
            era: 0,
        },
    );
    let head = Head {
        client_id: "kept".to_owned(),
        expiry_s: NonZeroU32::MAX,
        offline_since_ms: None,
    };
    let mut batch = Batch::new();
    batch
        .put(
            Space::Sessions,
            session::key("kept", Part::Head),
            head.encode(),
        )
        .put(
            Space::Sessions,
            session.clone(),
            subscription(&[], false).encode(),
        )
        .put(Space::Retained, key(7), message(7).into_bytes());
    assert!(opened.commit(&[batch]).unwrap()[0].is_ok());
    drop(opened);
    pristine.trim_journal();
    let mut noticed = 0;
    for part in 0..=8 {
        let temp = tempfile::tempdir().unwrap();
        let store = Damaged { temp };
        copy(&pristine.path(), &store.path());
        if part == 8 {
            store.damage_names();
        } else {
            for table in store.list() {
                let mut bytes = fs::read(&table).unwrap();
                let at = bytes.len() * part / 8 + 30;
                bytes[at] ^= 1;
                fs::write(table, bytes).unwrap();
            }
        }
        let (opened, quarantined) = store.open();
        let all: Vec<_> = (1..=COUNT).collect();
        assert_eq!(
            contents(&opened).unwrap(),
            (all.clone(), all),
            "part {part}"
        );
        assert!(opened.get(Space::Sessions, &session).unwrap().is_some());
        assert!(opened.get(Space::Retained, &key(7)).unwrap().is_some());
        if let Some(quarantined) = quarantined {
            noticed += 1;
            let [lost] = &quarantined.salvaged.lost[..] else {
                panic!("part {part}: {quarantined}");
            };
            assert!(lost.contains("was read from its copy"), "{lost}");
            assert!(lost.contains("keyspaces/0"), "{lost}");
        }
    }
    assert!(noticed > 5, "{noticed}");
}

/// As a run without room for another copy leaves it.
#[test]
fn an_old_copy_of_the_list_gives_what_it_names_and_the_rest_is_told() {
    let temp = tempfile::tempdir().unwrap();
    let store = Damaged { temp };
    let mut options = options();
    options.generation_bytes = 2_000;
    let opened = Embedded::open(&store.path(), options).unwrap();
    write(&opened, 1..=COUNT / 2);
    let named = opened.generations(LOG);
    drop(opened);
    let old = fs::read(store.list_copy()).unwrap();
    let opened = Embedded::open(&store.path(), options).unwrap();
    write(&opened, COUNT / 2 + 1..=COUNT);
    assert!(opened.trim(LOG, named[1]).unwrap());
    let unnamed = opened.generations(LOG)[named.len() - 1];
    drop(opened);
    store.trim_journal();
    assert!(fs::read(store.list_copy()).unwrap() != old);
    fs::write(store.list_copy(), old).unwrap();
    store.damage_names();
    let (opened, quarantined) = store.open();
    let quarantined = quarantined.unwrap();
    let (messages, keys) = contents(&opened).unwrap();
    let kept: Vec<_> = (named[1].0..unnamed.0).collect();
    assert_eq!(messages, kept, "{quarantined}");
    assert_eq!(keys, (1..=COUNT).collect::<Vec<_>>());
    assert!(opened.bounds(LOG).unwrap().next.0 > COUNT);
    let lost = &quarantined.salvaged.lost;
    // Trees 1 to 6 are not of a log.
    let tree = 6 + named.len() + 1;
    let words = format!("the engine's tree {tree}, all of it: the copy of the list does not name");
    assert!(
        lost.iter().any(|it| it.starts_with(&words)),
        "{words}: {lost:?}"
    );
    let words = format!("tree log.{LOG}.");
    assert!(!lost.iter().any(|it| it.contains(&words)), "{lost:?}");
}

/// The copy of the list names it, or does not; the store's own tree knows in both cases.
#[test]
fn the_newest_generation_is_missed_where_the_list_is_read_from_its_copy() {
    for is_named in [true, false] {
        let temp = tempfile::tempdir().unwrap();
        let store = Damaged { temp };
        let opened = Embedded::open(&store.path(), options()).unwrap();
        write(&opened, 1..=COUNT / 2);
        let before = opened.generations(LOG).len();
        drop(opened);
        let old = fs::read(store.list_copy()).unwrap();
        let opened = Embedded::open(&store.path(), options()).unwrap();
        write(&opened, COUNT / 2 + 1..=COUNT);
        let generations = opened.generations(LOG);
        assert!(generations.len() > before);
        let newest = generations[generations.len() - 1];
        drop(opened);
        store.trim_journal();
        if !is_named {
            fs::write(store.list_copy(), old).unwrap();
        }
        store.damage_names();
        // Trees 1 to 6 are not of a log.
        let tree = format!("store/engine/keyspaces/{}", 6 + generations.len());
        fs::remove_dir_all(store.path().join(tree)).unwrap();
        let (opened, quarantined) = store.open();
        let lost = quarantined.unwrap().salvaged.lost;
        let words = format!("log {LOG} from message {newest} on: all of it");
        assert!(
            lost.iter().any(|it| it.starts_with(&words)),
            "{words}: {lost:?}"
        );
        let (messages, _) = contents(&opened).unwrap();
        assert!(messages.iter().all(|number| *number < newest.0));
        assert!(opened.bounds(LOG).unwrap().next.0 > COUNT);
    }
}

#[test]
fn without_its_list_and_a_copy_of_it_nothing_is_copied_which_is_said() {
    for gone in [false, true] {
        let store = Damaged::new();
        store.damage_names();
        if gone {
            fs::remove_file(store.list_copy()).unwrap();
        } else {
            let mut bytes = fs::read(store.list_copy()).unwrap();
            flip(&mut bytes);
            fs::write(store.list_copy(), bytes).unwrap();
        }
        let (opened, quarantined) = store.open();
        assert_eq!(contents(&opened).unwrap(), (vec![], vec![]));
        let lost = quarantined.unwrap().salvaged.lost;
        assert!(lost[0].contains("keyspaces/0"), "{lost:?}");
        assert!(lost.last().unwrap().contains("everything"), "{lost:?}");
    }
}

/// A store of a version that made none, one whose copy is damaged, and one that was ended between
/// the writing of the copy and its name: the next start makes it again, and says nothing.
#[test]
fn a_copy_of_the_list_is_made_again_where_it_is_not_what_it_should_be() {
    let store = Damaged::new();
    drop(store.open());
    let whole = fs::read(store.list_copy()).unwrap();
    let new = store.path().join("store/list.new");
    let mut flipped = whole.clone();
    flip(&mut flipped);
    for (copy, beside) in [
        (None, None),
        (Some(&flipped), None),
        (Some(&flipped), Some(&whole[..40])),
        (Some(&whole), Some(&whole[..40])),
        (None, Some(&whole[..])),
    ] {
        fs::remove_file(store.list_copy()).unwrap();
        if let Some(copy) = copy {
            fs::write(store.list_copy(), copy).unwrap();
        }
        if let Some(beside) = beside {
            fs::write(&new, beside).unwrap();
        }
        let looked = Embedded::look(&store.path()).unwrap();
        assert!(looked.damage.is_empty(), "{looked:?}");
        assert_eq!(store.open().1, None);
        assert!(fs::read(store.list_copy()).unwrap() == whole);
        assert!(!new.exists());
    }
}

/// Here something stands where it would be written.
#[test]
fn a_store_that_cannot_copy_its_list_keeps_the_copy_before() {
    let temp = tempfile::tempdir().unwrap();
    let store = Damaged { temp };
    let opened = Embedded::open(&store.path(), options()).unwrap();
    write(&opened, 1..=COUNT / 2);
    drop(opened);
    let old = fs::read(store.list_copy()).unwrap();
    let opened = Embedded::open(&store.path(), options()).unwrap();
    fs::create_dir(store.path().join("store/list.new")).unwrap();
    write(&opened, COUNT / 2 + 1..=COUNT);
    drop(opened);
    assert_eq!(store.open().1, None);
    assert!(fs::read(store.list_copy()).unwrap() == old);
}

/// What was whole once is not replaced with what is not any more.
#[test]
fn a_list_that_is_damaged_while_the_store_is_open_does_not_replace_its_copy() {
    let temp = tempfile::tempdir().unwrap();
    let store = Damaged { temp };
    let opened = Embedded::open(&store.path(), options()).unwrap();
    write(&opened, 1..=COUNT / 2);
    drop(opened);
    let old = fs::read(store.list_copy()).unwrap();
    let opened = Embedded::open(&store.path(), options()).unwrap();
    store.damage_names();
    let generations = opened.generations(LOG).len();
    write(&opened, COUNT / 2 + 1..=COUNT / 2 + 30);
    assert_eq!(opened.generations(LOG).len(), generations + 1);
    drop(opened);
    store.trim_journal();
    assert!(fs::read(store.list_copy()).unwrap() == old);
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
