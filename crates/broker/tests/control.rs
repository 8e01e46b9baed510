//! The control socket beside a store: what is read through it, and what it refuses.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use unbroken_broker::control::{self, Control, Forget, Operator, Remote};
use unbroken_broker::stored_access::Change;
use unbroken_mqtt_proto::{Properties, QoS, TopicFilter};
use unbroken_store::{
    Batch, Durability, Embedded, Kv, Log, LogId, MessageBytes, MessageRecord, Options, Selection,
    Sequence, Space, Store, StoreError, backup,
};

const LOG: LogId = LogId(2);

struct Beside {
    temp: tempfile::TempDir,
    store: Arc<Embedded>,
    control: Control,
}

impl Beside {
    fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        let mut options = Options::default();
        options.durability = Durability::Off;
        options.generation_bytes = 5_000;
        let store = Embedded::open(&temp.path().join("data"), options).unwrap();
        let store = Arc::new(store);
        let control = start(&store, &temp.path().join("data"));
        let beside = Self {
            temp,
            store,
            control,
        };
        beside.append(1..=40);
        beside
    }

    fn path(&self) -> PathBuf {
        self.temp.path().join("data")
    }

    fn connect(&self) -> Remote {
        Remote::connect(&self.path()).unwrap().unwrap()
    }

    fn append(&self, numbers: std::ops::RangeInclusive<u64>) {
        for number in numbers {
            let mut batch = Batch::new();
            let topic = if number % 4 == 0 { "rare" } else { "often" };
            batch.append(LOG, Sequence(number), message(topic)).put(
                Space::Retained,
                number.to_be_bytes().to_vec(),
                vec![0xfe, 0xff],
            );
            assert!(self.store.commit(&[batch]).unwrap()[0].is_ok());
        }
    }

    /// A line, as it is, and the answer to it.
    fn ask(&self, line: &[u8]) -> String {
        let stream = UnixStream::connect(self.path().join("control")).unwrap();
        ask(&stream, line)
    }
}

fn start(store: &Arc<Embedded>, directory: &Path) -> Control {
    let operator = Deletes(Arc::clone(store));
    control::start(Arc::<Embedded>::clone(store), directory, Box::new(operator)).unwrap()
}

/// In place of the shards.
#[derive(Debug)]
struct Deletes(Arc<Embedded>);

impl Operator for Deletes {
    fn forget(&self, what: Forget) -> Result<(), String> {
        let mut batch = Batch::new();
        match what {
            Forget::Session { client_id } => return Err(format!("{client_id} is busy")),
            Forget::Retained { topic } => {
                batch.delete(Space::Retained, topic.as_bytes().to_vec());
            }
        }
        assert!(self.0.commit(&[batch]).unwrap()[0].is_ok());
        Ok(())
    }

    fn reload(&self) -> Result<Vec<String>, String> {
        Err("there is no configuration".to_owned())
    }

    fn change(&self, _: &Change) -> Result<(), String> {
        Err("no user can be changed here".to_owned())
    }

    fn automatic_bans(&self) -> Vec<(IpAddr, u64)> {
        Vec::new()
    }

    fn failure(&self) -> Option<&str> {
        None
    }
}

fn ask(mut stream: &UnixStream, line: &[u8]) -> String {
    // What it does not want to read may be refused before all is sent.
    let _ = stream.write_all(line);
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).unwrap();
    answer
}

fn message(topic: &str) -> MessageBytes {
    let record = MessageRecord {
        topic,
        qos: QoS::AtLeastOnce,
        retain: false,
        stamp_ms: 1,
        expires_ms: None,
        publisher: None,
        mark: None,
        properties: Properties::EMPTY,
        payload: &[0xff; 100],
    };
    record.encode()
}

fn written(view: &dyn unbroken_store::View) -> Vec<u8> {
    let mut file = Vec::new();
    backup::write(view, &mut file).unwrap();
    file
}

#[test]
fn reads_of_a_connection_see_one_snapshot() {
    let beside = Beside::new();
    let before = written(&*beside.store);
    let remote = beside.connect();
    assert_eq!((&remote).logs().unwrap(), [LOG]);
    beside.append(41..=80);
    while beside.store.trim(LOG, Sequence(60)).unwrap() {}
    assert_eq!(written(&&remote), before);
    let rare = TopicFilter::parse("rare").unwrap();
    let wild = TopicFilter::parse("+").unwrap();
    for (filters, count) in [(vec![rare], 10), (vec![wild], 40), (vec![rare, wild], 40)] {
        let wanted = Selection::new(filters);
        let all = Sequence::FIRST..Sequence::END;
        let chunk = (&remote)
            .read_matching(LOG, all, &wanted, usize::MAX)
            .unwrap();
        assert_eq!((chunk.entries.len(), chunk.next), (count, Sequence(41)));
    }
    // Another sees the store as it is now.
    assert_eq!(written(&&beside.connect()), written(&*beside.store));
    let who = remote.who().unwrap();
    assert_eq!(
        (who.process, &*who.version, who.failure),
        (std::process::id(), env!("CARGO_PKG_VERSION"), None)
    );
    assert!(remote.size_bytes().unwrap() > 0);
}

#[test]
fn more_filters_than_a_question_can_have_select_the_same() {
    let beside = Beside::new();
    let remote = beside.connect();
    let mut filters: Vec<_> = (0..10_000).map(|n| format!("site/{n:050}/state")).collect();
    filters.push("rare".to_owned());
    let wanted = Selection::new(filters.iter().map(|text| TopicFilter::parse(text).unwrap()));
    // One byte at a time is for who looks for the first.
    for bytes_max in [1, usize::MAX] {
        let (mut from, mut found) = (Sequence::FIRST, Vec::new());
        while from < Sequence(41) {
            let range = from..Sequence::END;
            let chunk = (&remote).read_matching(LOG, range, &wanted, bytes_max);
            let chunk = chunk.unwrap();
            found.extend(chunk.entries.iter().map(|entry| entry.sequence.0));
            from = chunk.next;
        }
        assert!(found.into_iter().eq((1..=10).map(|n| n * 4)));
    }
}

#[test]
fn removals_go_to_the_operator_and_later_reads_see_them() {
    let beside = Beside::new();
    let mut batch = Batch::new();
    batch.put(Space::Retained, b"mode".to_vec(), b"auto".to_vec());
    assert!(beside.store.commit(&[batch]).unwrap()[0].is_ok());
    let remote = beside.connect();
    let found = |remote: &Remote| remote.get(Space::Retained, b"mode").unwrap();
    assert!(found(&remote).is_some());
    remote.remove_retained("mode").unwrap();
    assert!(found(&remote).is_none());
    let error = remote.remove_session("phone").unwrap_err().to_string();
    assert!(error.contains("phone is busy"), "{error}");
}

#[test]
fn the_socket_is_for_the_brokers_user_and_ends_with_the_broker() {
    let beside = Beside::new();
    let socket = beside.path().join("control");
    let mode = fs::metadata(&socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let remote = beside.connect();
    remote.who().unwrap();
    let Beside { temp, control, .. } = beside;
    drop(control);
    assert!(!socket.exists());
    let error = remote.who().unwrap_err();
    assert!(matches!(error, StoreError::Io { .. }), "{error}");
    assert!(
        Remote::connect(&temp.path().join("data"))
            .unwrap()
            .is_none()
    );
}

#[test]
fn a_socket_left_by_a_killed_broker_is_replaced() {
    let beside = Beside::new();
    let other = beside.temp.path().join("other");
    fs::create_dir(&other).unwrap();
    drop(UnixListener::bind(other.join("control")).unwrap());
    assert!(other.join("control").exists());
    assert!(Remote::connect(&other).unwrap().is_none());
    let control = start(&beside.store, &other);
    Remote::connect(&other).unwrap().unwrap().who().unwrap();
    drop(control);
}

#[test]
fn a_directory_with_a_name_too_long_for_an_address_has_a_socket() {
    let beside = Beside::new();
    let long: PathBuf = [beside.temp.path(), Path::new(&"x".repeat(120))]
        .iter()
        .collect();
    fs::create_dir(&long).unwrap();
    let control = start(&beside.store, &long);
    Remote::connect(&long).unwrap().unwrap().who().unwrap();
    drop(control);
    assert!(!long.join("control").exists());
}

#[test]
fn an_unknown_request_is_an_error_and_the_connection_goes_on() {
    let beside = Beside::new();
    let stream = UnixStream::connect(beside.path().join("control")).unwrap();
    for line in [
        &b"hello\n"[..],
        b"{\"ask\":\"fortune\"}\n",
        b"{\"ask\":\"get\",\"space\":\"attic\",\"key\":\"\"}\n",
        b"{\"ask\":\"get\",\"space\":\"lanes\",\"key\":\"%\"}\n",
    ] {
        let answer = ask(&stream, line);
        assert!(answer.contains("does not know the request"), "{answer}");
    }
    let read = b"{\"ask\":\"read\",\"log\":2,\"from\":1,\"until\":9,\"filters\":[\"a/#/b\"],\"bytes_max\":1}\n";
    assert!(ask(&stream, read).contains("a/#/b"));
    assert_eq!(ask(&stream, b"{\"ask\":\"logs\"}\n"), "{\"logs\":[2]}\n");
    // One question too long ends it.
    let endless = vec![b' '; 600_000];
    let answer = beside.ask(&endless);
    assert!(answer.contains("the request has more than"), "{answer}");
}

#[test]
fn connections_beyond_the_limit_are_refused() {
    let beside = Beside::new();
    let mut open: Vec<_> = (0..4).map(|_| beside.connect()).collect();
    for remote in &open {
        remote.who().unwrap();
    }
    let error = beside.connect().who().unwrap_err().to_string();
    assert!(error.contains("4 other commands are reading it"), "{error}");
    // When one has gone there is room again, as soon as that is noticed.
    open.pop();
    while beside.connect().who().is_err() {
        std::thread::yield_now();
    }
}

#[test]
fn an_idle_connection_delays_neither_the_others_nor_the_end() {
    let beside = Beside::new();
    let silent = UnixStream::connect(beside.path().join("control")).unwrap();
    let mut half = UnixStream::connect(beside.path().join("control")).unwrap();
    half.write_all(b"{\"ask\":").unwrap();
    beside.connect().who().unwrap();
    drop(beside);
    for mut stream in [silent, half] {
        let mut rest = Vec::new();
        // Closed, with or without what was not read.
        let _ = stream.read_to_end(&mut rest);
        assert_eq!(rest, b"");
    }
}

#[test]
fn a_reload_that_is_refused_is_answered_with_the_reason() {
    let beside = Beside::new();
    let broker = beside.connect();
    let refused = broker.reload().unwrap_err();
    assert_eq!(refused.to_string(), "there is no configuration");
    // The connection goes on.
    assert!(broker.who().is_ok());
}
