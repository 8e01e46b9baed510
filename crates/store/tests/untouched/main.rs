//! Damage that the engine would take for an end, or clear away: it is noticed before the engine has
//! the store, every byte is left as it was found, and what is intact is kept.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod tables;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use unbroken_store::quarantine::{OnCorruption, Quarantined, open};
use unbroken_store::{
    Batch, Durability, Embedded, Kv, Log, LogId, MessageBytes, MessageRecord, Options, Sequence,
    Space, Store, StoreError, store_health,
};

const LOG: LogId = LogId(1);
const COUNT: u64 = 60;

fn options() -> Options {
    let mut options = Options::default();
    options.generation_bytes = 8_000;
    options
}

fn message(number: u64, payload: &[u8]) -> MessageBytes {
    MessageRecord::plain("plant/7", number, payload).encode()
}

fn write(store: &Embedded, numbers: std::ops::RangeInclusive<u64>) {
    for number in numbers {
        let mut batch = Batch::new();
        batch
            .append(LOG, Sequence(number), message(number, &[7; 160]))
            .put(Space::Control, number.to_be_bytes().to_vec(), vec![1; 30]);
        assert!(store.commit(&[batch]).unwrap()[0].is_ok());
    }
}

/// A store whose journal has `COUNT` commits, and as many messages in several generations.
struct Damaged {
    temp: tempfile::TempDir,
}

impl Damaged {
    fn new() -> Self {
        let this = Self {
            temp: tempfile::tempdir().unwrap(),
        };
        write(&Embedded::open(&this.path(), options()).unwrap(), 1..=COUNT);
        trim(&this.journal(0));
        this
    }

    /// With the first part of it in a journal that is sealed.
    fn in_two_journals() -> Self {
        let this = Self::new();
        let bytes = fs::read(this.journal(0)).unwrap();
        let cut = end_of_batch(&bytes, bytes.len() * 2 / 3);
        fs::write(this.journal(0), &bytes[..cut]).unwrap();
        fs::write(this.journal(1), &bytes[cut..]).unwrap();
        this
    }

    /// With messages that are in a table.
    fn in_tables() -> Self {
        let this = Self {
            temp: tempfile::tempdir().unwrap(),
        };
        let opened = Embedded::open(&this.path(), Options::default()).unwrap();
        // More than the engine holds back, until it names a table.
        let payload = vec![9; 500_000];
        let mut number = 0;
        let trees = this.path().join("store/engine/keyspaces");
        let log = || {
            let trees = fs::read_dir(&trees).unwrap().map(|it| it.unwrap().path());
            let number = |tree: &PathBuf| tree.file_name()?.to_str()?.parse::<u64>().ok();
            trees.max_by_key(number).unwrap()
        };
        let mut empty = None;
        while empty.is_none() || empty == fs::read(log().join("current")).ok() {
            number += 1;
            let mut batch = Batch::new();
            batch.append(LOG, Sequence(number), message(number, &payload));
            assert!(opened.commit(&[batch]).unwrap()[0].is_ok());
            empty = empty.or_else(|| fs::read(log().join("current")).ok());
        }
        drop(opened);
        trim(&this.journal(0));
        this
    }

    fn path(&self) -> PathBuf {
        self.temp.path().join("data")
    }

    fn tables(&self) -> Vec<PathBuf> {
        let store = self.path().join("store");
        let all = files(&store).into_keys().map(|name| store.join(name));
        all.filter(|path| path.parent().unwrap().ends_with("tables"))
            .collect()
    }

    /// What whoever looks at it is told, who changes nothing.
    fn damage(&self) -> Vec<String> {
        let before = files(&self.path().join("store"));
        let looked = Embedded::look(&self.path()).unwrap();
        assert_eq!(looked.not_read, None);
        let damage = looked.damage.iter().map(ToString::to_string).collect();
        assert_same(&files(&self.path().join("store")), &before, "a look");
        damage
    }

    fn journal(&self, number: u64) -> PathBuf {
        self.path().join(format!("store/engine/{number}.jnl"))
    }

    fn copy(&self) -> Self {
        fn copy(from: &Path, to: &Path) {
            fs::create_dir_all(to).unwrap();
            for entry in fs::read_dir(from).unwrap() {
                let entry = entry.unwrap();
                let to = to.join(entry.file_name());
                if entry.path().is_dir() {
                    copy(&entry.path(), &to);
                } else {
                    fs::copy(entry.path(), to).unwrap();
                }
            }
        }
        let this = Self {
            temp: tempfile::tempdir().unwrap(),
        };
        copy(&self.path(), &this.path());
        this
    }

    /// Without its damage being acted upon: as `refuse` and `doctor` open it.
    fn is_refused_and_left(&self, words: &str) {
        let before = files(&self.path().join("store"));
        let refused = open(&self.path(), options(), OnCorruption::Refuse).unwrap_err();
        assert!(matches!(refused, StoreError::Damaged { .. }), "{refused}");
        assert!(refused.to_string().contains(words), "{refused}");
        assert_same(&files(&self.path().join("store")), &before, words);
        let refused = Embedded::open(&self.path(), Options::default()).unwrap_err();
        assert!(refused.to_string().contains(words), "{refused}");
        assert_same(&files(&self.path().join("store")), &before, words);
    }

    fn is_set_aside_as_it_was(&self) -> (Embedded, Quarantined) {
        let before = files(&self.path().join("store"));
        let (store, quarantined) = open(&self.path(), options(), OnCorruption::Quarantine).unwrap();
        let quarantined = quarantined.unwrap();
        let mut aside = files(&quarantined.set_aside);
        aside.remove(Path::new("damage.txt")).unwrap();
        assert_same(&aside, &before, &quarantined.cause);
        (store, quarantined)
    }
}

/// Without what the engine has set aside, copies take no time.
fn trim(journal: &Path) {
    let bytes = fs::read(journal).unwrap();
    let used = bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    fs::write(journal, &bytes[..used]).unwrap();
}

/// Where the first batch of the engine ends that ends behind this byte.
fn end_of_batch(journal: &[u8], behind: usize) -> usize {
    let ends = |bytes: &[u8]| bytes == b"FJL\x03";
    behind + journal[behind..].windows(4).position(ends).unwrap() + 4
}

fn files(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    fn add(root: &Path, directory: &Path, all: &mut BTreeMap<PathBuf, Vec<u8>>) {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                add(root, &path, all);
            } else {
                let name = path.strip_prefix(root).unwrap().to_owned();
                all.insert(name, fs::read(&path).unwrap());
            }
        }
    }
    let mut all = BTreeMap::new();
    add(directory, directory, &mut all);
    all
}

fn assert_same(
    found: &BTreeMap<PathBuf, Vec<u8>>,
    before: &BTreeMap<PathBuf, Vec<u8>>,
    case: &str,
) {
    let names = |of: &BTreeMap<PathBuf, Vec<u8>>| of.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(found), names(before), "{case}");
    for (name, bytes) in before {
        assert!(found[name] == *bytes, "{case}: {}", name.display());
    }
}

fn numbers(store: &Embedded) -> Vec<u64> {
    let mut numbers = Vec::new();
    let next = store.bounds(LOG).unwrap().next;
    let mut from = Sequence::FIRST;
    while from < next {
        let chunk = store.read(LOG, from..Sequence::END, usize::MAX).unwrap();
        numbers.extend(chunk.entries.iter().map(|entry| entry.sequence.0));
        from = chunk.next;
    }
    numbers
}

fn keys(store: &Embedded) -> Vec<u64> {
    let page = store.scan(Space::Control, &[], None, usize::MAX).unwrap();
    let keys = page.pairs.into_iter().map(|pair| pair.key);
    let ours = keys.filter(|key| key != store_health::KEY); // that is of the new store
    ours.map(|key| u64::from_be_bytes(key.try_into().unwrap()))
        .collect()
}

fn used(journal: &Path) -> usize {
    let bytes = fs::read(journal).unwrap();
    bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1
}

/// What a client may send: a payload that is the engine's batches, of which nothing is secret.
/// Each puts 999 into the control values.
fn forged() -> Vec<u8> {
    fn item(tree: u64, key: &[u8], value: &[u8]) -> Vec<u8> {
        let length = u32::try_from(value.len()).unwrap().to_le_bytes();
        let mut item = vec![2, 0, 0];
        item.extend_from_slice(&tree.to_le_bytes());
        item.extend_from_slice(&u16::try_from(key.len()).unwrap().to_le_bytes());
        item.extend_from_slice(&[length, length].concat());
        item.extend_from_slice(key);
        item.extend_from_slice(value);
        item
    }
    let mut link = [0; 25];
    link[16..24].copy_from_slice(&1_000_000_u64.to_be_bytes());
    link[24] = 1;
    let mut payload = vec![7; 3];
    for (seqno, link) in [(u64::MAX - 1, &link[16..]), (u64::MAX, &link[..])] {
        let mut value = 1_u64.to_be_bytes().to_vec();
        value.push(66);
        let mut items = item(1, b"link", link);
        items.extend(item(6, &999_u64.to_be_bytes(), &value));
        let checksum = xxhash_rust::xxh3::xxh3_64(&items);
        payload.extend_from_slice(&[1, 2, 0, 0, 0]);
        payload.extend_from_slice(&seqno.to_le_bytes());
        payload.extend_from_slice(&items);
        payload.push(3);
        payload.extend_from_slice(&checksum.to_le_bytes());
        payload.extend_from_slice(b"FJL\x03");
    }
    payload
}

#[test]
fn two_journals_are_read_as_one() {
    let store = Damaged::in_two_journals();
    let (store, quarantined) = open(&store.path(), options(), OnCorruption::Refuse).unwrap();
    assert_eq!(quarantined, None);
    assert_eq!(numbers(&store), (1..=COUNT).collect::<Vec<_>>());
}

#[test]
fn damage_in_an_older_journal_is_noticed_and_costs_what_it_covers() {
    type Damage = (&'static str, fn(&mut Vec<u8>));
    let damages: [Damage; 5] = [
        ("zeros in the middle", |bytes| {
            let third = bytes.len() / 3;
            bytes[third..third + 512].fill(0);
        }),
        ("a bit", |bytes| {
            let third = bytes.len() / 3;
            bytes[third] ^= 16;
        }),
        ("its tail is zeros", |bytes| {
            let half = bytes.len() / 2;
            bytes[half..].fill(0);
        }),
        ("its tail is zeros from the end of a batch on", |bytes| {
            let cut = end_of_batch(bytes, bytes.len() / 2);
            bytes[cut..].fill(0);
        }),
        ("emptied", Vec::clear),
    ];
    for (case, damage) in damages {
        let store = Damaged::in_two_journals();
        let mut bytes = fs::read(store.journal(0)).unwrap();
        damage(&mut bytes);
        fs::write(store.journal(0), &bytes).unwrap();
        store.is_refused_and_left("0.jnl");
        let (opened, quarantined) = store.is_set_aside_as_it_was();
        assert!(quarantined.cause.contains("0.jnl"), "{case}: {quarantined}");
        let (numbers, keys) = (numbers(&opened), keys(&opened));
        // What the newer one has is kept, and what the older one still has.
        assert_eq!(keys.last(), Some(&COUNT), "{case}: {quarantined}");
        let kept = if case == "emptied" { 15 } else { 25 };
        assert!(keys.len() > kept, "{case}: {keys:?} {quarantined}");
        assert_eq!(quarantined.salvaged.messages, numbers.len() as u64);
        assert!(!quarantined.salvaged.lost.is_empty(), "{case}");
    }
}

#[test]
fn a_journal_that_is_missing_between_others_or_before_them_is_noticed() {
    for gone in [0, 1] {
        let store = Damaged::in_two_journals();
        let bytes = fs::read(store.journal(1)).unwrap();
        let cut = end_of_batch(&bytes, bytes.len() / 2);
        fs::write(store.journal(1), &bytes[..cut]).unwrap();
        fs::write(store.journal(2), &bytes[cut..]).unwrap();
        fs::remove_file(store.journal(gone)).unwrap();
        store.is_refused_and_left(".jnl");
        let (opened, _) = store.is_set_aside_as_it_was();
        assert_eq!(keys(&opened).last(), Some(&COUNT));
    }
}

/// As a copy of files may leave it that was made in the wrong place.
#[test]
fn a_journal_of_another_store_is_damage_and_nothing_of_it_is_taken() {
    let (store, other) = (Damaged::in_two_journals(), Damaged::in_two_journals());
    fs::copy(other.journal(1), store.journal(1)).unwrap();
    store.is_refused_and_left("belongs to another store");
    let (opened, _) = store.is_set_aside_as_it_was();
    assert!(*keys(&opened).last().unwrap() < COUNT);
}

/// A write failed in the middle, the engine sealed the journal, and nobody was answered.
#[test]
fn the_torn_end_of_a_sealed_journal_is_no_damage_where_nothing_is_missing() {
    for goes_on in [false, true] {
        let store = if goes_on {
            Damaged::in_two_journals()
        } else {
            let store = Damaged::new();
            fs::write(store.journal(1), vec![0; 4096]).unwrap();
            store
        };
        // Some of a batch, which a later start has given its number to another.
        let mut bytes = fs::read(store.journal(0)).unwrap();
        let torn = if goes_on {
            fs::read(store.journal(1)).unwrap()
        } else {
            bytes.clone()
        };
        bytes.extend_from_slice(&torn[..60]);
        fs::write(store.journal(0), &bytes).unwrap();
        let (opened, quarantined) =
            open(&store.path(), Options::default(), OnCorruption::Refuse).unwrap();
        assert_eq!(quarantined, None);
        assert_eq!(numbers(&opened), (1..=COUNT).collect::<Vec<_>>());
        write(&opened, COUNT + 1..=COUNT + 3);
        drop(opened);
        let (opened, _) = open(&store.path(), Options::default(), OnCorruption::Refuse).unwrap();
        assert_eq!(numbers(&opened), (1..=COUNT + 3).collect::<Vec<_>>());
    }
}

#[test]
fn the_torn_end_of_a_sealed_journal_is_damage_where_it_was_acknowledged() {
    let store = Damaged::new();
    fs::write(store.journal(1), vec![0; 4096]).unwrap();
    let mut bytes = fs::read(store.journal(0)).unwrap();
    bytes.truncate(bytes.len() - 10);
    fs::write(store.journal(0), &bytes).unwrap();
    let behind = store.journal(0).display().to_string();
    store.is_refused_and_left(&format!("they were in {behind}"));
    let (opened, _) = store.is_set_aside_as_it_was();
    assert_eq!(numbers(&opened), (1..COUNT).collect::<Vec<_>>());
}

/// As the engine itself makes them: the small values stay in the older one, with most of the bytes.
#[test]
fn sessions_that_are_in_a_sealed_journal_do_not_vanish_with_a_hole_in_it() {
    let temp = tempfile::tempdir().unwrap();
    let store = Damaged { temp };
    let opened = Embedded::open(&store.path(), Options::default()).unwrap();
    for number in 1..=50_u64 {
        let mut batch = Batch::new();
        batch.put(Space::Control, number.to_be_bytes().to_vec(), vec![1; 300]);
        assert!(opened.commit(&[batch]).unwrap()[0].is_ok());
    }
    // Nothing that would take less room if it were compressed.
    let mut state = 1_u64;
    let payload = std::iter::repeat_with(|| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        state.to_be_bytes()[0]
    });
    let payload: Vec<u8> = payload.take(1_000_000).collect();
    let mut messages = 0;
    while messages < 10 || !store.journal(1).exists() {
        messages += 1;
        let mut batch = Batch::new();
        batch.append(LOG, Sequence(messages), message(messages, &payload));
        assert!(opened.commit(&[batch]).unwrap()[0].is_ok());
    }
    let mut batch = Batch::new();
    batch.put(Space::Control, 51_u64.to_be_bytes().to_vec(), vec![1; 300]);
    assert!(opened.commit(&[batch]).unwrap()[0].is_ok());
    drop(opened);
    trim(&store.journal(1));
    let whole = store.copy();
    let whole = open(&whole.path(), Options::default(), OnCorruption::Refuse).unwrap();
    assert_eq!(keys(&whole.0).len(), 51);
    let mut bytes = fs::read(store.journal(0)).unwrap();
    bytes[4096..4608].fill(0);
    fs::write(store.journal(0), &bytes).unwrap();
    store.is_refused_and_left("0.jnl");
    let (opened, quarantined) = store.is_set_aside_as_it_was();
    assert!(keys(&opened).len() >= 48, "{quarantined}");
    assert_eq!(numbers(&opened), (1..=messages).collect::<Vec<_>>());
}

/// Under `strict` nothing is written before what comes before it is safe, so a hole with a whole
/// batch behind it is none that a power cut leaves, whatever the witness knows.
#[test]
fn a_hole_in_the_newest_journal_is_damage_where_what_follows_says_that_all_was_safe() {
    for durability in [Durability::Strict, Durability::Off] {
        let mut options = options();
        options.durability = durability;
        let temp = tempfile::tempdir().unwrap();
        let store = Damaged { temp };
        let opened = Embedded::open(&store.path(), options).unwrap();
        write(&opened, 1..=5);
        let witness = store.path().join("store/acknowledged");
        let early = fs::read(&witness).unwrap();
        write(&opened, 6..=20);
        drop(opened);
        trim(&store.journal(0));
        // It is behind, as a power cut may leave it.
        fs::write(&witness, early).unwrap();
        let mut bytes = fs::read(store.journal(0)).unwrap();
        let from = end_of_batch(&bytes, bytes.len() * 2 / 3);
        bytes[from + 20..from + 40].fill(0);
        fs::write(store.journal(0), &bytes).unwrap();
        if durability == Durability::Strict {
            store.is_refused_and_left("0.jnl");
        } else {
            let (opened, _) = open(&store.path(), options, OnCorruption::Refuse).unwrap();
            assert!(numbers(&opened).len() > 5);
        }
    }
}

/// The publisher had no answer, and the power was cut: nothing is missing, whatever was in it.
#[test]
fn a_payload_that_looks_like_a_batch_does_not_make_damage_of_a_torn_end() {
    let temp = tempfile::tempdir().unwrap();
    let store = Damaged { temp };
    let opened = Embedded::open(&store.path(), Options::default()).unwrap();
    write(&opened, 1..=5);
    let witness = store.path().join("store/acknowledged");
    let early = fs::read(&witness).unwrap();
    let torn = used(&store.journal(0));
    let mut batch = Batch::new();
    batch.append(LOG, Sequence(6), message(6, &forged()));
    assert!(opened.commit(&[batch]).unwrap()[0].is_ok());
    drop(opened);
    trim(&store.journal(0));
    fs::write(&witness, early).unwrap();
    let mut bytes = fs::read(store.journal(0)).unwrap();
    bytes[torn + 20..torn + 40].fill(0);
    fs::write(store.journal(0), &bytes).unwrap();
    let (opened, _) = open(&store.path(), options(), OnCorruption::Refuse).unwrap();
    assert_eq!(numbers(&opened), (1..=5).collect::<Vec<_>>());
}

#[test]
fn a_payload_that_looks_like_a_batch_puts_nothing_in_and_takes_nothing_away() {
    let temp = tempfile::tempdir().unwrap();
    let store = Damaged { temp };
    let opened = Embedded::open(&store.path(), Options::default()).unwrap();
    write(&opened, 1..=20);
    let hole = used(&store.journal(0));
    let mut batch = Batch::new();
    batch.append(LOG, Sequence(21), message(21, &forged()));
    assert!(opened.commit(&[batch]).unwrap()[0].is_ok());
    write(&opened, 22..=40);
    drop(opened);
    trim(&store.journal(0));
    let mut bytes = fs::read(store.journal(0)).unwrap();
    bytes[hole + 20..hole + 40].fill(0);
    fs::write(store.journal(0), &bytes).unwrap();
    store.is_refused_and_left("0.jnl");
    let (opened, quarantined) = store.is_set_aside_as_it_was();
    let kept: Vec<_> = (1..=20).chain(22..=40).collect();
    assert_eq!(keys(&opened), kept, "{quarantined}");
    assert_eq!(numbers(&opened), kept, "{quarantined}");
}

/// What tells the store's batches from others is not only at the beginning of its journals.
#[test]
fn a_hole_at_the_beginning_of_the_only_journal_costs_what_it_covers() {
    let store = Damaged::new();
    let mut bytes = fs::read(store.journal(0)).unwrap();
    bytes[..512].fill(0);
    fs::write(store.journal(0), &bytes).unwrap();
    store.is_refused_and_left("0.jnl");
    let (opened, quarantined) = store.is_set_aside_as_it_was();
    assert!(keys(&opened).len() as u64 > COUNT - 5, "{quarantined}");
}

#[test]
fn a_journal_of_null_bytes_costs_nothing_that_is_in_tables() {
    let store = Damaged::in_tables();
    let mut bytes = fs::read(store.journal(0)).unwrap();
    bytes.fill(0);
    fs::write(store.journal(0), &bytes).unwrap();
    store.is_refused_and_left("were acknowledged after");
    let (opened, quarantined) = store.is_set_aside_as_it_was();
    assert!(quarantined.salvaged.messages >= 10, "{quarantined}");
    let kept: Vec<_> = (1..=quarantined.salvaged.messages).collect();
    assert_eq!(numbers(&opened), kept);
}
