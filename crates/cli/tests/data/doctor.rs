//! What the doctor finds, and that it leaves a damaged store as it is.

use std::fs;
use std::path::Path;

use serde_json::Value;
use unbroken_store::session::{Cursor, Part, key};
use unbroken_store::{Batch, Sequence, Space, Store, StoreError, quarantine};

use crate::{Ended, Filled, LOG, files, message, open, options, run};

#[test]
fn the_doctor_says_what_there_is_and_who_holds_it() {
    let store = Filled::new();
    store.add_idle("cellar");
    let ended = store.run(&["doctor", "--json"]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let report = &ended.objects()[0];
    let log = &report["logs"][0];
    assert_eq!(
        (&log["messages"], &log["oldest"]),
        (&20.into(), &"2026-09-21T14:13:20Z".into())
    );
    assert_eq!(log["generations"][0], log["first"], "{log}");
    assert_eq!(
        (&report["sessions"], &report["away"]),
        (&3.into(), &2.into())
    );
    let count = |field: &str| report[field].as_u64().unwrap();
    let spaces = report["spaces"].as_array().unwrap();
    let retained = spaces.iter().find(|space| space["space"] == "retained");
    let retained = retained.unwrap_or_else(|| panic!("{report}"));
    assert_eq!(retained["values"], 3, "{report}");
    assert!(
        count("subscriptions") > 0 && count("in_flight") > 0,
        "{report}"
    );
    assert_eq!(
        count("memory_bytes_of_sessions"),
        3 * 1_000
            + count("subscriptions") * 400
            + count("in_flight") * 700
            + 3 * 300
            + retained["bytes"].as_u64().unwrap()
    );
    let each = log["bytes"].as_u64().unwrap() / 20;
    // Message 7 is in flight, and the log keeps it and all that follow.
    let expected = serde_json::json!([{
        "client": "desk",
        "away_since": "2026-09-21T14:13:20Z",
        "in_flight": 1,
        "backlog": 12,
        "backlog_bytes": 12 * each,
        "oldest": "2026-09-21T14:13:20Z",
        "log_bytes": 14 * each,
    }]);
    assert_eq!(report["holders"], expected);
    let wrong: Vec<_> = report["wrong"].as_array().unwrap().iter().collect();
    assert_eq!(wrong.len(), 1, "{report}");
    assert!(
        wrong[0]
            .as_str()
            .unwrap()
            .starts_with("a message for client desk has been stored for "),
        "{report}"
    );

    let text = store.run(&["doctor"]).text;
    let rows: Vec<Vec<_>> = text
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    let titles = "CLIENT STATE IN FLIGHT BACKLOG OLDEST LOG PINNED".split(' ');
    let titles: Vec<_> = titles.collect();
    let table = rows.iter().position(|row| *row == titles);
    let table = &rows[table.unwrap_or_else(|| panic!("{text}"))..];
    // All 20 messages came after the place of cellar in the log, and none of them is for it.
    let [_, desk, after, ..] = table else {
        panic!("{text}");
    };
    assert!(after.is_empty(), "{text}");
    assert_eq!((desk[0], &desk[4..6]), ("desk", &["1", "12"][..]), "{text}");
    assert_eq!(desk[8], "ago", "{text}");

    // When it is gone, nothing is wrong.
    store.run(&["sessions", "rm", "desk"]).well();
    let well = store.run(&["doctor"]).well();
    assert!(well.text.ends_with("nothing is wrong.\n"), "{}", well.text);
    let aside = store.path().join("damaged-20261122T000000Z");
    fs::create_dir(&aside).unwrap();
    let ended = store.run(&["doctor"]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(
        ended.text.contains("damaged-20261122T000000Z;"),
        "{}",
        ended.text
    );
}

#[test]
fn the_doctor_says_where_a_session_contradicts_the_logs() {
    let store = Filled::new();
    let mut batch = Batch::new();
    let through = Sequence(21);
    let part = Part::Cursor(LOG);
    batch.put(
        Space::Sessions,
        key("desk", part),
        Cursor { through }.encode(),
    );
    batch.put(Space::Sessions, key("phone", Part::Will), b"\x09".to_vec());
    batch.put(Space::Retained, b"plant/mode".to_vec(), b"\0".to_vec());
    batch.put(Space::Lanes, b"\0phone".to_vec(), b"\x09".to_vec());
    batch.put(Space::Control, b"handed".to_vec(), b"\x01".to_vec());
    let opened = open(&store.path(), options());
    assert!(opened.commit(&[batch]).unwrap()[0].is_ok());
    while opened.trim(LOG, Sequence(8)).unwrap() {}
    drop(opened);
    let ended = store.run(&["doctor"]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    for wrong in [
        "client desk was given message 21 of log 0, whose next message is 21",
        "the value at \\x05phone\\x05 of sessions cannot be read",
        "the retained message of plant/mode cannot be read",
        "the value at \\x00phone of lanes cannot be read",
        "the value at handed of control cannot be read",
    ] {
        assert!(ended.text.contains(wrong), "{wrong}: {}", ended.text);
    }
}

/// Nothing needs it before the list itself is damaged, when it is too late.
#[test]
fn the_doctor_says_that_the_copy_of_the_list_of_trees_is_of_no_use() {
    let store = Filled::new();
    store.run(&["sessions", "rm", "desk"]).well();
    store.run(&["doctor"]).well();
    let copy = store.path().join("store/list");
    let whole = fs::read(&copy).unwrap();
    let mut options = options();
    options.generation_bytes = 1;
    let opened = open(&store.path(), options);
    for number in 21..24 {
        let mut batch = Batch::new();
        batch.append(LOG, Sequence(number), message("news/today", b"words"));
        assert!(opened.commit(&[batch]).unwrap()[0].is_ok());
    }
    drop(opened);
    let mut damaged = whole.clone();
    damaged[40] ^= 1;
    let cases = [
        (None, "is missing"),
        (Some(damaged), "is damaged"),
        (Some(whole), "is out of date: it lacks 3 of the trees"),
    ];
    for (bytes, what) in cases {
        match bytes {
            Some(bytes) => fs::write(&copy, bytes).unwrap(),
            None => fs::remove_file(&copy).unwrap(),
        }
        let words = format!("store/list, the copy of the engine's list of trees, {what}; ");
        let ended = store.run(&["doctor"]);
        assert_eq!(ended.code, Some(1), "{what}: {ended:?}");
        assert!(ended.text.contains(&words), "{what}: {}", ended.text);
        // It has opened the store, as a start does.
        store.run(&["doctor", "--deep"]).well();
    }
}

#[test]
fn the_doctor_finds_damage_wherever_it_lies() {
    let store = Filled::new();
    let mut options = options();
    options.generation_bytes = 20_000;
    let opened = open(&store.path(), options);
    for number in 21..=200 {
        let mut batch = Batch::new();
        let payload = [u8::try_from(number).unwrap(); 1_000];
        batch.append(LOG, Sequence(number), message("news/today", &payload));
        assert!(opened.commit(&[batch]).unwrap()[0].is_ok());
    }
    drop(opened);
    store.run(&["sessions", "rm", "desk"]).well();
    let engine = store.path().join("store/engine");
    for journal in files(&engine).iter().filter(|file| is_journal(file)) {
        // Without what the engine has set aside, copies take no time.
        let bytes = fs::read(journal).unwrap();
        fs::write(journal, &bytes[..used(&bytes)]).unwrap();
    }
    let mut missed = Vec::new();
    let names: Vec<_> = files(&store.path())
        .into_iter()
        .filter(|file| file.starts_with(&engine) && used(&fs::read(file).unwrap()) > 0)
        .collect();
    assert!(names.len() > 5, "{names:?}");
    for name in &names {
        let copy = store.temp.path().join("copy");
        copy_all(&store.path(), &copy);
        let file = copy.join(name.strip_prefix(store.path()).unwrap());
        let mut bytes = fs::read(&file).unwrap();
        let half = used(&bytes) / 2;
        bytes[half] ^= 1;
        fs::write(&file, &bytes).unwrap();
        let ended = run(&copy, &["doctor", "--deep"]);
        let is_found = ended.code == Some(1) && ended.text.contains(" is damaged: ");
        if !is_found {
            missed.push((name.strip_prefix(&engine).unwrap(), ended.code));
        }
        // What it reads without being asked for more is less, and it goes on behind damage.
        let ended = run(&copy, &["doctor"]);
        assert!(matches!(ended.code, Some(0 | 1)), "{name:?}: {ended:?}");
        fs::remove_dir_all(&copy).unwrap();
    }
    assert_eq!(missed, [], "of {names:?}");
}

#[test]
fn a_store_that_is_marked_as_damaged_stays_as_it_is_whatever_is_asked() {
    let store = Filled::new();
    let met = StoreError::damaged("log 0, message 7", "its checksum does not match");
    quarantine::mark(&store.path(), &met).unwrap();
    for words in [&["doctor"][..], &["doctor", "--json"]] {
        let ended = store.is_left_by(words, 1);
        let met = "found while in use: log 0, message 7 is damaged";
        assert!(ended.text.contains(met), "{ended:?}");
        says_nothing_of_what_is_in_it(&ended);
    }
    for words in [
        &["sessions", "ls"][..],
        &["sessions", "rm", "desk"],
        &["retained", "ls"],
        &["db", "export"],
    ] {
        let ended = store.is_left_by(words, 65);
        assert!(ended.errors.contains("message 7 is damaged"), "{ended:?}");
    }
}

#[test]
fn the_doctor_that_reads_every_byte_names_the_file_and_leaves_the_store() {
    let store = Filled::new();
    store.run(&["sessions", "rm", "desk"]).well();
    let well = store.run(&["doctor", "--deep"]).well();
    assert!(well.text.contains(" read, every byte\n"), "{}", well.text);
    let report = &store.run(&["doctor", "--json"]).well().objects()[0];
    assert_eq!(report["table_bytes_read"], Value::Null);
    let report = &store.run(&["doctor", "--deep", "--json"]).well().objects()[0];
    assert!(report["table_bytes_read"].as_u64() > Some(0), "{report}");

    let all = files(&store.path()).into_iter();
    let mut tables = all.filter(|file| file.parent().unwrap().ends_with("tables"));
    let table = tables.next().unwrap();
    let mut bytes = fs::read(&table).unwrap();
    bytes[30] ^= 1;
    fs::write(&table, bytes).unwrap();
    let ended = store.is_left_by(&["doctor", "--deep"], 1);
    let words = format!("wrong: {} is damaged: ", table.display());
    assert!(ended.text.contains(&words), "{ended:?}");
    says_nothing_of_what_is_in_it(&ended);
    assert!(ended.text.contains(" read, every byte\n"), "{ended:?}");
    says_nothing_of_what_is_in_it(&store.is_left_by(&["doctor", "--deep", "--json"], 1));
}

#[test]
fn the_doctor_does_not_say_that_tables_were_read_that_were_not() {
    let store = Filled::new();
    let format = store.path().join("store/format");
    fs::write(format, "unbroken-store 77\n").unwrap();
    let ended = store.is_left_by(&["doctor", "--deep"], 1);
    let words = "wrong: its tables were not read: ";
    assert!(ended.text.contains(words), "{ended:?}");
    assert!(!ended.text.contains("every byte"), "{ended:?}");
    says_nothing_of_what_is_in_it(&ended);
    let ended = store.is_left_by(&["doctor", "--deep", "--json"], 1);
    assert_eq!(ended.objects()[0]["table_bytes_read"], Value::Null);
    says_nothing_of_what_is_in_it(&ended);
}

/// A store that is not opened is not one without sessions and logs.
fn says_nothing_of_what_is_in_it(ended: &Ended) {
    if !ended.text.starts_with('{') {
        for line in ["memory     unknown\n", "sessions   unknown\n"] {
            assert!(ended.text.contains(line), "{ended:?}");
        }
        for title in ["LOG ", "VALUES OF ", "CLIENT "] {
            assert!(!ended.text.contains(title), "{ended:?}");
        }
        return;
    }
    let report = &ended.objects()[0];
    for field in [
        "disk_bytes",
        "memory_bytes_max",
        "memory_bytes_of_sessions",
        "subscriptions",
        "in_flight",
        "sessions",
        "away",
        "logs",
        "spaces",
        "holders",
    ] {
        assert_eq!(report.get(field), Some(&Value::Null), "{field}: {report}");
    }
}

fn is_journal(file: &Path) -> bool {
    file.extension().is_some_and(|ending| ending == "jnl")
}

/// Where the zeros begin that are set aside.
fn used(bytes: &[u8]) -> usize {
    let last = bytes.iter().rposition(|byte| *byte != 0);
    last.map_or(0, |at| at + 1)
}

fn copy_all(from: &Path, to: &Path) {
    for file in files(from) {
        let target = to.join(file.strip_prefix(from).unwrap());
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        fs::copy(file, target).unwrap();
    }
}

#[test]
fn a_directory_that_is_not_there_is_said_to_be_so_by_every_command() {
    let directory = tempfile::tempdir().unwrap();
    let (nowhere, file) = (
        directory.path().join("nowhere"),
        directory.path().join("file"),
    );
    fs::write(&file, "").unwrap();
    for words in [
        &["doctor"][..],
        &["doctor", "--deep"],
        &["sessions", "ls"],
        &["sessions", "rm", "a"],
        &["retained", "ls"],
        &["db", "export"],
        &["backup", "/nowhere/at-all"],
    ] {
        let paths = [
            (nowhere.clone(), "does not exist"),
            (nowhere.join("deeper"), "does not exist"),
            (file.clone(), "is not a directory"),
            (file.join("deeper"), "does not exist"),
            (directory.path().to_owned(), "there is no store in it"),
        ];
        for (path, why) in paths {
            let ended = run(&path, words);
            assert_eq!(ended.code, Some(66), "{words:?} {ended:?}");
            let said = format!("Error: {}", path.display());
            let is_said = ended.errors.starts_with(&said) && ended.errors.contains(why);
            assert!(is_said, "{words:?} {ended:?}");
        }
    }
}
