//! What lies in the data directory: nothing of what nobody keeps, and in a backup that is made
//! meanwhile all of one moment.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

use unbroken_acceptance::process::binary;
use unbroken_acceptance::raw::{Connect, Packet, Publish};
use unbroken_acceptance::{Broker, Client, Launch};

/// What the broker makes in the background, of the list of its trees: names come and go there while
/// it is looked at, and no message is in it.
const MADE_IN_THE_BACKGROUND: [&str; 3] = ["examining", "list", "list.new"];

/// The bytes of each file below a directory that may hold a message.
fn files(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut directories = vec![directory.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).expect("it can be read") {
            let path = entry.expect("it can be read").path();
            if MADE_IN_THE_BACKGROUND
                .iter()
                .any(|&name| path.ends_with(name))
            {
                continue;
            }
            if path.is_dir() {
                directories.push(path);
            } else if path.is_file() {
                let bytes = fs::read(&path).expect("it can be read");
                found.insert(path, bytes);
            }
        }
    }
    found
}

/// Whatever the mask is that the broker was started with, only its user can read what it makes.
#[test]
fn no_other_user_can_read_a_file_of_the_data_directory() {
    for mask in ["000", "022", "277"] {
        let broker = Launch::config("").durable().umask(mask).start();
        let mut publisher = broker.accept(&Connect::v5("publisher").persistent());
        publisher.publish(Publish::new("news", "x").qos(1).retained());
        let data = broker.data();
        let mode = |path: &Path| {
            let found = fs::symlink_metadata(path).ok()?;
            Some((found.is_dir(), found.permissions().mode() & 0o777))
        };
        assert_eq!(mode(&data), Some((true, 0o700)), "umask {mask}");
        let mut waiting = vec![data];
        while let Some(path) = waiting.pop() {
            // What was there a moment ago may have been removed in the background.
            match mode(&path) {
                Some((true, mode)) => {
                    assert_eq!(mode, 0o700, "umask {mask}: {}", path.display());
                    let entries = fs::read_dir(&path).into_iter().flatten().flatten();
                    waiting.extend(entries.map(|entry| entry.path()));
                }
                Some((false, mode)) => {
                    assert_eq!(mode, 0o600, "umask {mask}: {}", path.display());
                }
                None => {}
            }
        }
    }
}

/// [What is written](../../../docs/durability.md) is what a persistent session needs, and retained.
#[test]
fn what_no_persistent_session_wants_is_not_written() {
    let broker = Launch::config("").durable().start();
    let mut reader = broker.connect("reader");
    reader.subscribe_to("news", 1);
    let mut sleeper = broker.accept(&Connect::v5("sleeper").persistent());
    sleeper.subscribe_to("news", 0);
    sleeper.subscribe_to("other", 1);
    let mut publisher = broker.connect("publisher");
    publisher.publish(Publish::new("news", "first").qos(1));
    reader.take_message("news", "first");
    let before = files(&broker.data());
    assert!(before.keys().any(|path| path.ends_with("acknowledged")));
    for number in 0..500 {
        let payload = number.to_string();
        publisher.publish(Publish::new("news", &payload));
        publisher.publish(Publish::new("news", &payload).qos(1));
        publisher.publish(Publish::new("nobody", &payload).qos(1));
        reader.expect_message("news", &payload);
        reader.take_message("news", &payload);
    }
    let changed: Vec<_> = files(&broker.data())
        .into_iter()
        .filter(|(path, bytes)| before.get(path) != Some(bytes))
        .map(|(path, _)| path)
        .collect();
    assert_eq!(changed, Vec::<PathBuf>::new());
    // And it is seen if something is.
    publisher.publish(Publish::new("other", "kept").qos(1));
    assert_ne!(files(&broker.data()), before);
}

/// Publishes numbers, one after the other, until it is stopped; counts those that were
/// acknowledged.
fn publish_numbers(mut publisher: Client, stop: &AtomicBool, acknowledged: &AtomicU32) -> Client {
    while !stop.load(Ordering::SeqCst) {
        let number = acknowledged.load(Ordering::SeqCst);
        publisher.publish(Publish::new("reader", number.to_string()).qos(1));
        acknowledged.store(number + 1, Ordering::SeqCst);
    }
    publisher
}

fn run(arguments: &[&Path]) {
    let ran = Command::new(binary()).args(arguments).output();
    let ran = ran.expect("the program runs");
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{arguments:?}: {said}");
}

/// The messages that wait for the reader: numbers from 0 on. How many.
fn take_numbers(broker: &Broker) -> u32 {
    let mut publisher = broker.connect("publisher");
    publisher.publish(Publish::new("reader", "end").qos(1));
    let mut reader = broker.accept(&Connect::v5("reader").persistent());
    for number in 0.. {
        let message = match reader.receive() {
            Packet::Publish(message) => message,
            other => panic!("expected a message, got {other:?}"),
        };
        reader.complete(&message);
        if message.payload == b"end" {
            return number;
        }
        let payload = String::from_utf8_lossy(&message.payload);
        assert_eq!(payload, number.to_string());
    }
    unreachable!("there is an end");
}

#[test]
fn a_backup_that_is_made_under_load_has_all_of_one_moment() {
    let mut broker = Launch::config("").durable().start();
    let mut reader = broker.accept(&Connect::v5("reader").persistent());
    reader.subscribe_to("reader", 1);
    reader.disconnect();
    let publisher = broker.connect("publisher");
    let (stop, acknowledged) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU32::new(0)),
    );
    let publishing = thread::spawn({
        let (stop, acknowledged) = (Arc::clone(&stop), Arc::clone(&acknowledged));
        move || publish_numbers(publisher, &stop, &acknowledged)
    });
    let mut backups = Vec::new();
    for number in 1..=3 {
        while acknowledged.load(Ordering::SeqCst) < 100 * number {
            thread::yield_now();
        }
        let before = acknowledged.load(Ordering::SeqCst);
        let file = broker.directory().join(format!("{number}.backup"));
        let data = broker.data();
        run(&[Path::new("backup"), Path::new("--data"), &data, &file]);
        let after = acknowledged.load(Ordering::SeqCst);
        backups.push((file, before, after));
    }
    stop.store(true, Ordering::SeqCst);
    publishing.join().expect("it published").disconnect();
    for (file, before, after) in backups {
        broker.kill();
        fs::remove_dir_all(broker.data()).expect("remove it when it is not needed any more");
        let data = broker.data();
        run(&[Path::new("restore"), Path::new("--data"), &data, &file]);
        broker.start_again();
        let has = take_numbers(&broker);
        // One may have been stored whose acknowledgement was on its way.
        assert!(
            (before..=after + 1).contains(&has),
            "{before} {has} {after}"
        );
    }
}
