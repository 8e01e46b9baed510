//! Commands that look into a data directory, on one that no broker has.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod access;
mod backup;
mod doctor;
mod export;
mod running;

use std::fs;
use std::io::Write;
use std::num::NonZeroU32;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use unbroken_mqtt_proto::{PacketId, Properties, Property, PropertyBuf, QoS};
use unbroken_mqtt_proto::{RetainHandling, SubscriptionOptions};
use unbroken_store::session::{
    Carried, Cursor, Head, Inbound, LogRange, Outbound, Part, Subscription, key,
};
use unbroken_store::{
    Batch, Durability, Embedded, LogId, MessageBytes, MessageRecord, Options, Position, Sequence,
    Space, Store, StoreError,
};

const LOG: LogId = LogId(0);
/// 2026-09-21T14:13:20Z.
const THEN_MS: u64 = 1_790_000_000_000;

/// Twenty messages, two sessions, and three retained messages.
struct Filled {
    temp: tempfile::TempDir,
}

impl Filled {
    fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        let this = Self { temp };
        let mut batch = Batch::new();
        for number in 1..=20 {
            batch.append(LOG, Sequence(number), message("news/today", b"words"));
        }
        let mut put = |client, part, value| {
            batch.put(Space::Sessions, key(client, part), value);
        };
        for (client, offline_since_ms, seconds) in
            [("desk", Some(THEN_MS), u32::MAX), ("phone", None, 3_600)]
        {
            let head = Head {
                client_id: client.to_owned(),
                expiry_s: NonZeroU32::new(seconds).unwrap(),
                offline_since_ms,
                user: None,
                mount: None,
            };
            put(client, Part::Head, head.encode());
        }
        let filter = "news/#";
        let part = Part::Subscription { filter, era: 0 };
        put("desk", part, subscription(filter, Sequence(3)).encode());
        let through = Sequence(8);
        put("desk", Part::Cursor(LOG), Cursor { through }.encode());
        let outbound = Outbound {
            what: Carried::Log(Position {
                log: LOG,
                sequence: Sequence(7),
            }),
            packet_id: PacketId::new(1),
            qos: QoS::AtLeastOnce,
            received: false,
            retain: false,
            by_group: false,
            group: None,
            identifiers: Vec::new(),
        };
        put("desk", Part::Outbound(6), outbound.encode());
        let id = PacketId::new(9).unwrap();
        put("phone", Part::Inbound(id), Inbound::default().encode());
        for (topic, payload) in [
            ("plant/mode", &b"auto"[..]),
            ("plant/picture", b"\xff\x00"),
            ("$own/x", b"y"),
        ] {
            let bytes = message(topic, payload).into_bytes();
            batch.put(Space::Retained, topic.into(), bytes);
        }
        batch.put(Space::Control, b"shards".to_vec(), b"2".to_vec());
        let store = open(&this.path(), options());
        assert!(store.commit(&[batch]).unwrap()[0].is_ok());
        this
    }

    /// A session that is away, and has not been told how far it is: nothing came for it.
    fn add_idle(&self, client: &str) {
        let head = Head {
            client_id: client.to_owned(),
            expiry_s: NonZeroU32::MAX,
            offline_since_ms: Some(THEN_MS),
            user: None,
            mount: None,
        };
        let filter = "silent/#";
        let subscription = subscription(filter, Sequence(1));
        let mut batch = Batch::new();
        let part = Part::Subscription { filter, era: 0 };
        batch
            .put(Space::Sessions, key(client, Part::Head), head.encode())
            .put(Space::Sessions, key(client, part), subscription.encode());
        let store = open(&self.path(), options());
        assert!(store.commit(&[batch]).unwrap()[0].is_ok());
    }

    fn path(&self) -> std::path::PathBuf {
        self.temp.path().join("store")
    }

    /// Runs a command on it that finds something wrong, and changes no byte of it.
    fn is_left_by(&self, words: &[&str], code: i32) -> Ended {
        let contents = || {
            let files = files(&self.path().join("store")).into_iter();
            let contents = files.map(|file| (fs::read(&file).unwrap(), file));
            contents.collect::<Vec<_>>()
        };
        let before = contents();
        let ended = self.run(words);
        assert_eq!(ended.code, Some(code), "{ended:?}");
        let after = contents();
        assert_eq!(after.len(), before.len());
        for ((bytes, file), after) in before.iter().zip(after) {
            assert_eq!(*file, after.1);
            assert!(*bytes == after.0, "{} is another", file.display());
        }
        ended
    }

    /// Runs a command on it.
    fn run(&self, words: &[&str]) -> Ended {
        run(&self.path(), words)
    }
}

/// At QoS 1, by a session that has not been given anything from this number on.
fn subscription(filter: &str, from: Sequence) -> Subscription {
    Subscription {
        filter: filter.to_owned(),
        options: SubscriptionOptions {
            qos: QoS::AtLeastOnce,
            no_local: false,
            retain_as_published: false,
            retain_handling: RetainHandling::SendAlways,
        },
        identifier: None,
        ended: false,
        retained_due: false,
        ranges: vec![LogRange {
            log: LOG,
            from,
            until: None,
        }],
    }
}

fn options() -> Options {
    let mut options = Options::default();
    options.durability = Durability::Off;
    options
}

/// Opens a store while no process is being started. The last one may still have the lock for a
/// moment: the system lets whoever started it go on before it closes what it does not inherit.
fn open(path: &Path, options: Options) -> Embedded {
    let _starting = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        match Embedded::open(path, options) {
            Err(StoreError::Held { .. }) if Instant::now() < deadline => std::thread::yield_now(),
            opened => return opened.unwrap(),
        }
    }
}

fn message(topic: &str, payload: &[u8]) -> MessageBytes {
    let mut properties = PropertyBuf::new();
    if topic.starts_with("plant") {
        for property in [
            Property::ContentType("text/plain"),
            Property::UserProperty("k", "1"),
            Property::UserProperty("k", "2"),
        ] {
            properties.push(property).unwrap();
        }
    }
    let properties = if topic.starts_with("plant") {
        properties.as_properties()
    } else {
        Properties::EMPTY
    };
    MessageRecord {
        topic,
        qos: QoS::AtLeastOnce,
        retain: false,
        stamp_ms: THEN_MS,
        expires_ms: None,
        publisher: Some("sensor"),
        mark: None,
        properties,
        payload,
    }
    .encode()
}

/// A command that has ended.
#[derive(Debug)]
struct Ended {
    code: Option<i32>,
    bytes: Vec<u8>,
    text: String,
    errors: String,
}

impl From<Output> for Ended {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            text: String::from_utf8_lossy(&output.stdout).into_owned(),
            bytes: output.stdout,
            errors: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl Ended {
    #[track_caller]
    fn well(self) -> Self {
        assert_eq!(self.code, Some(0), "{self:?}");
        self
    }

    #[track_caller]
    fn badly(self, code: i32, words: &str) {
        assert_eq!(self.code, Some(code), "{self:?}");
        assert!(self.errors.contains(words), "{self:?}");
    }

    fn objects(&self) -> Vec<Value> {
        let objects = self.text.lines().map(serde_json::from_str);
        objects.collect::<Result<_, _>>().unwrap()
    }
}

fn run(path: &Path, words: &[&str]) -> Ended {
    let output = start(command(path, words).stdin(Stdio::null())).wait_with_output();
    output.unwrap().into()
}

/// A process that is being started still has what this one has open, the lock of a store as well.
static STARTING: Mutex<()> = Mutex::new(());

/// Starts a process while no other is being started.
fn start(command: &mut Command) -> Child {
    let _starting = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
    let outputs = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    outputs.spawn().unwrap()
}

fn command(path: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_unbroken"));
    command.args(words).arg("--data").arg(path);
    command
}

#[test]
fn sessions_are_listed_with_what_they_hold() {
    let store = Filled::new();
    let text = store.run(&["sessions", "ls"]).well().text;
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 3, "{text}");
    assert!(lines[0].starts_with("CLIENT "), "{text}");
    let desk: Vec<_> = lines[1].split_whitespace().collect();
    assert_eq!((desk[0], desk[1]), ("desk", "away"), "{text}");
    let record = message("news/today", b"words").as_bytes().len() as u64;
    let bytes = (12 * record).to_string();
    let held = ["never", "1", "1", "0", "B", "12", bytes.as_str(), "B"];
    assert_eq!(desk[desk.len() - held.len()..], held, "{text}");
    let phone: Vec<_> = lines[2].split_whitespace().collect();
    assert_eq!(phone[0], "phone", "{text}");
    // A broker that was killed has told nobody that its clients are gone.
    assert!(
        lines[2].contains(" connected when the broker ended "),
        "{text}"
    );
    let removed = store.run(&["sessions", "rm", "--dry-run", "phone"]).well();
    let words = "would remove phone (connected when the broker ended)\n";
    assert_eq!(removed.text, words);

    let objects = store.run(&["sessions", "ls", "--json"]).well().objects();
    let expected = json!({
        "client": "desk",
        "mount": null,
        "away_since": "2026-09-21T14:13:20Z",
        "expiry_s": null,
        "expires": null,
        "subscriptions": [{ "filter": "news/#", "qos": 1 }],
        "in_flight": 1,
        "unreleased": 0,
        "unreleased_bytes": 0,
        "backlog": 12,
        "backlog_bytes": 12 * record,
    });
    assert_eq!(objects[0], expected);
    assert_eq!(
        (&objects[1]["client"], &objects[1]["unreleased"]),
        (&"phone".into(), &1.into())
    );
    assert!(objects[1]["unreleased_bytes"].as_u64() > Some(0));
}

#[test]
fn the_backlog_of_a_session_is_its_own_messages_and_not_those_for_others() {
    let store = Filled::new();
    store.add_idle("idle");
    let text = store.run(&["sessions", "ls"]).well().text;
    let rows: Vec<Vec<_>> = text
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    let titles = [
        "EXPIRES",
        "SUBSCRIPTIONS",
        "IN",
        "FLIGHT",
        "UNRELEASED",
        "BACKLOG",
        "BYTES",
    ];
    assert!(rows[0].ends_with(&titles), "{text}");
    let of = |client| rows.iter().find(|row| row[0] == client).unwrap();
    let desk = of("desk");
    assert_eq!(desk[desk.len() - 6..][..4], ["1", "0", "B", "12"], "{text}");
    // All 20 messages came after its place in the log, and none of them is for it.
    let idle = of("idle");
    assert_eq!(
        idle[idle.len() - 6..],
        ["0", "0", "B", "0", "0", "B"],
        "{text}"
    );

    let objects = store.run(&["sessions", "ls", "--json"]).well();
    let record = message("news/today", b"words").as_bytes().len() as u64;
    let desk = &objects.objects()[0];
    assert_eq!(
        (&desk["backlog"], &desk["backlog_bytes"]),
        (&12.into(), &(12 * record).into())
    );
    let text = store.run(&["sessions", "ls", "--no-backlog"]).well().text;
    assert!(
        !text.contains("BACKLOG") && !text.contains("BYTES"),
        "{text}"
    );
}

#[test]
fn sessions_are_removed_by_pattern_each_once_and_all_or_none() {
    let store = Filled::new();
    for client in ["sensor-2", "sensor-1", "sensor*"] {
        store.add_idle(client);
    }
    let before = store.run(&["db", "export"]).well().text;
    let none = store.run(&["sessions", "rm", "sensor-*", "*-sensor"]);
    none.badly(
        1,
        "no session is of a client like \"*-sensor\"; nothing is changed",
    );
    let removed = |arguments: &[&str]| -> Vec<String> {
        let all = [&["sessions", "rm"], arguments].concat();
        let text = store.run(&all).well().text;
        let clients = text.lines().filter_map(|line| line.split_once(" ("));
        clients.map(|(client, _)| client.to_owned()).collect()
    };
    let expected = ["sensor-2", "sensor*", "sensor-1"].map(|id| format!("would remove {id}"));
    assert_eq!(removed(&["--dry-run", "sensor-2", "sensor*"]), expected);
    assert_eq!(store.run(&["db", "export"]).well().text, before);
    assert_eq!(removed(&[r"sensor\*"]), ["removed sensor*"]);
    assert_eq!(
        removed(&["sen*-*"]),
        ["removed sensor-1", "removed sensor-2"]
    );
    let left = store.run(&["sessions", "ls", "--json"]).well().objects();
    let left: Vec<_> = left.iter().map(|object| &object["client"]).collect();
    assert_eq!(left, ["desk", "phone"]);
}

#[test]
fn a_session_is_removed_with_all_that_is_kept_of_it() {
    let store = Filled::new();
    let before = store.run(&["db", "export"]).well().text;
    let tried = store.run(&["sessions", "rm", "--dry-run", "desk"]).well();
    assert!(
        tried.text.starts_with("would remove desk (away "),
        "{tried:?}"
    );
    let missing = store.run(&["sessions", "rm", "desk", "nobody"]);
    missing.badly(1, "client \"nobody\" has no session; nothing is changed");
    assert_eq!(store.run(&["db", "export"]).well().text, before);

    let removed = store.run(&["sessions", "rm", "desk"]).well();
    assert!(
        removed.text.starts_with("removed desk (away "),
        "{removed:?}"
    );
    let left = store.run(&["db", "export"]).well().text;
    assert!(!left.contains("desk") && left.contains("phone"), "{left}");
}

#[test]
fn retained_messages_are_listed_printed_and_removed_by_filter() {
    let store = Filled::new();
    let topics = |words: &[&str]| -> Vec<String> {
        let listed = store.run(words).well().objects();
        listed
            .iter()
            .map(|object| object["topic"].as_str().unwrap().to_owned())
            .collect()
    };
    let all = ["$own/x", "plant/mode", "plant/picture"];
    assert_eq!(topics(&["retained", "ls", "--json"]), all);
    assert_eq!(topics(&["retained", "ls", "--json", "#"]), all[1..]);
    let text = store.run(&["retained", "ls", "+/mode"]).well().text;
    let row: Vec<_> = text.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(row[..3], ["plant/mode", "4", "1"], "{text}");

    let got = store.run(&["retained", "get", "plant/mode"]).well();
    assert_eq!(got.bytes, b"auto\n");
    let got = store
        .run(&["retained", "get", "-N", "plant/picture"])
        .well();
    assert_eq!(got.bytes, b"\xff\x00");
    let got = store
        .run(&["retained", "get", "--json", "plant/picture"])
        .well();
    let object = &got.objects()[0];
    assert_eq!(object["payload_base64"], "/wA=");
    let properties = json!({
        "content-type": "text/plain",
        "user-properties": [["k", "1"], ["k", "2"]],
    });
    assert_eq!(object["properties"], properties);
    let none = store.run(&["retained", "get", "plant"]);
    none.badly(1, "topic \"plant\" has no retained message");

    let tried = store
        .run(&["retained", "rm", "--dry-run", "plant/#"])
        .well();
    let named = "would remove plant/mode (4 B)\nwould remove plant/picture (2 B)\n";
    assert_eq!(tried.text, named);
    assert_eq!(topics(&["retained", "ls", "--json"]), all);
    store.run(&["retained", "rm", "plant/#"]).well();
    assert_eq!(topics(&["retained", "ls", "--json"]), all[..1]);
    let none = store.run(&["retained", "rm", "plant/#"]);
    none.badly(1, "no topic with a retained message matches");
    store
        .run(&["retained", "rm", "plant/#/x"])
        .badly(2, "plant/#/x");
}

#[test]
fn everything_is_exported_as_lines_of_json() {
    let store = Filled::new();
    let objects = store.run(&["db", "export"]).well().objects();
    let of = |kind: &str| -> Vec<&Value> {
        objects
            .iter()
            .filter(|object| object["kind"] == kind)
            .collect()
    };
    assert_eq!(
        of("log"),
        [&json!({ "kind": "log", "log": 0, "first": 1, "next": 21 })]
    );
    let messages = of("message");
    assert_eq!(messages.len(), 20);
    let expected = json!({
        "kind": "message", "log": 0, "number": 2, "topic": "news/today", "qos": 1,
        "retain": false, "received": "2026-09-21T14:13:20Z", "publisher": "sensor",
        "payload": "words",
    });
    assert_eq!(messages[1], &expected);
    assert_eq!(of("session").len(), 2);
    assert_eq!(of("retained").len(), 3);
    let cursor = json!({ "kind": "cursor", "client": "desk", "log": 0, "through": 8 });
    assert_eq!(of("cursor"), [&cursor]);
    assert_eq!(of("outbound")[0]["at"], json!({ "log": 0, "number": 7 }));
    assert_eq!(of("inbound")[0]["client"], "phone");
    assert_eq!(of("subscription")[0]["filter"], "news/#");
    let value = json!({ "kind": "value", "space": "control", "key": "shards", "value": "2" });
    assert_eq!(of("value"), [&value]);
}

#[test]
fn a_directory_without_a_store_or_in_use_is_refused_and_left_alone() {
    let store = Filled::new();
    let empty = store.temp.path().join("empty");
    for words in [&["sessions", "ls"][..], &["backup", "-"], &["db", "export"]] {
        run(&empty, words).badly(66, "empty does not exist");
    }
    assert!(!empty.exists());
    let held = open(&store.path(), options());
    let by = format!("is in use by process {}", std::process::id());
    store.run(&["sessions", "ls"]).badly(69, &by);
    drop(held);
    // Only root can give a directory to somebody else.
    let (path, lock) = (store.path(), store.path().join("lock"));
    if chown(&lock, Some(12_345), None).is_ok() {
        let refused = store.run(&["doctor"]);
        refused.badly(77, "belongs to user 12345, and this is user 0");
        // A broker of ours in a directory that was given to it, as a container's volume.
        chown(&lock, Some(0), None).unwrap();
        chown(&path, Some(12_345), None).unwrap();
        store.run(&["sessions", "ls"]).well();
        chown(&path, Some(0), None).unwrap();
    }
    fs::write(store.path().join("store/format"), "unbroken-store 2\n").unwrap();
    store
        .run(&["sessions", "ls"])
        .badly(65, "use the version that wrote it");
}

#[test]
fn the_directory_is_found_as_the_broker_finds_it() {
    let store = Filled::new();
    let at = |name: &str| store.temp.path().join(name);
    let run = |words: &[&str], variable: (&str, &Path)| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_unbroken"));
        let (name, value) = variable;
        let child = start(command.args(words).env(name, value));
        Ended::from(child.wait_with_output().unwrap())
    };
    let expected = store.run(&["db", "export"]).well().text;
    let config = at("broker.toml");
    fs::write(&config, "[storage]\ndirectory = \"store\"\n").unwrap();
    let named = at("directory");
    fs::write(&named, format!("{}\n", store.path().display())).unwrap();
    let export = ["db", "export"];
    let path = store.path();
    for variable in [
        ("UNBROKEN_CONFIG", &config),
        ("UNBROKEN__STORAGE__DIRECTORY", &path),
        ("UNBROKEN__STORAGE__DIRECTORY_FILE", &named),
    ] {
        let (name, value) = variable;
        assert_eq!(run(&export, (name, value)).well().text, expected, "{name}");
    }
    let by_flag = ["db", "export", "-c", config.to_str().unwrap()];
    assert_eq!(run(&by_flag, ("NO_COLOR", &path)).well().text, expected);
    fs::write(&config, "[storage]\nin_memory = true\n").unwrap();
    run(&by_flag, ("NO_COLOR", &path)).badly(66, "nothing is stored");
    fs::write(&config, "[storage]\nplace = \"store\"\n").unwrap();
    run(&by_flag, ("NO_COLOR", &path)).badly(78, "place");
}

fn files(directory: &Path) -> Vec<std::path::PathBuf> {
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
