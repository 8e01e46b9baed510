//! Sessions out of a store that was damaged.

use std::fs;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use unbroken_mqtt_proto::PacketId;
use unbroken_store::quarantine::{self, OnCorruption};
use unbroken_store::session::{Carried, Head, Outbound, Part, key};
use unbroken_store::{
    Batch, Embedded, Kv, Memory, MessageRecord, Options, Space, Store, StoreError,
};

use crate::shard_bus::{join, publish};
use crate::{QOS1, World};

/// Two sessions, and so many more that what the engine holds of them becomes a table.
fn filled(from: &Memory, to: &Embedded) {
    copy(from, to);
    for number in 0.. {
        if to.kept_bytes().unwrap().values > 0 {
            return;
        }
        let mut batch = Batch::new();
        for more in 0..50 {
            // Between those of the two.
            let client = format!("{:04x}", number * 50 + more);
            let head = Head {
                client_id: client.clone(),
                expiry_s: NonZeroU32::MAX,
                offline_since_ms: None,
                user: None,
                mount: None,
            };
            let message = MessageRecord::plain("t", 1, &[7; 1_000]).encode();
            let outbound = Outbound {
                what: Carried::Own(message),
                packet_id: PacketId::new(1),
                qos: QOS1,
                received: false,
                retain: false,
                by_group: false,
                group: None,
                identifiers: Vec::new(),
            };
            let mut put = |part, value| {
                batch.put(Space::Sessions, key(&client, part), value);
            };
            put(Part::Head, head.encode());
            put(Part::Outbound(1), outbound.encode());
        }
        assert!(to.commit(&[batch]).unwrap()[0].is_ok());
    }
}

fn copy(from: &impl Kv, to: &impl Store) {
    for space in Space::ALL {
        let mut batch = Batch::new();
        for pair in from.scan(space, b"", None, usize::MAX).unwrap().pairs {
            batch.put(space, pair.key, pair.value.bytes);
        }
        assert!(to.commit(&[batch]).unwrap()[0].is_ok());
    }
}

/// Flips a bit of these bytes in the table where they are.
fn damage(directory: &Path, bytes: &[u8]) {
    let mut found = 0;
    for tree in entries(&directory.join("store/engine/keyspaces")) {
        for table in entries(&tree.join("tables")) {
            let mut file = fs::read(&table).unwrap();
            let at = file.windows(bytes.len()).position(|at| at == bytes);
            if let Some(at) = at {
                file[at] ^= 1;
                fs::write(&table, file).unwrap();
                found += 1;
            }
        }
    }
    assert_eq!(found, 1);
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap();
    entries.map(|entry| entry.unwrap().path()).collect()
}

/// One that is not has its messages lost in silence: the client does not subscribe again.
#[test]
fn session_present_is_set_if_all_of_a_session_came_out_of_a_damaged_store() {
    let mut world = World::new(1);
    let last = format!("to/be/found/{}", "l".repeat(100));
    for id in ["cut", "whole"] {
        // So many that the head of the session lies in another block than the longest, the last.
        let long = "l".repeat(90);
        let many: Vec<_> = (10..90).map(|it| format!("o/{it}/{long}")).collect();
        let many = many.iter().map(|filter| (filter.as_str(), QOS1));
        let filters = many.chain([("one", QOS1), (&last, QOS1)]);
        let client = world.resident(id, &filters.collect::<Vec<_>>());
        world.broker.cut(client);
    }
    world.settle();
    let temp = tempfile::tempdir().unwrap();
    let store = Embedded::open(temp.path(), Options::default()).unwrap();
    filled(&world.kept.store, &store);
    drop(store);
    // The first that has it.
    damage(temp.path(), b"to/be/found");
    quarantine::mark(temp.path(), &StoreError::damaged("it", "met in use")).unwrap();
    let opened = quarantine::open(temp.path(), Options::default(), OnCorruption::Quarantine);
    let (store, quarantined) = opened.unwrap();
    let lost = quarantined.unwrap().salvaged.lost;
    world.kept.store = Arc::new(Memory::new());
    copy(&store, &*world.kept.store);
    drop(store);
    world.restart();

    let publisher = join(&mut world.broker, "p");
    for (id, topic) in [(1, "one"), (2, &last)] {
        world.broker.send(publisher, publish(topic, "x", QOS1, id));
    }
    world.broker.stored();
    let (_, cut) = world.back("cut");
    assert_eq!(cut, ["CONNACK 0 00"], "{lost:?}");
    let words = "the session of client \"cut\", which ends";
    assert!(lost.iter().any(|it| it.starts_with(words)), "{lost:?}");
    let (_, whole) = world.back("whole");
    let [there, one, two] = &whole[..] else {
        panic!("{whole:?}")
    };
    assert_eq!(there, "CONNACK 1 00");
    // Packet ids begin elsewhere.
    assert!(one.starts_with("PUBLISH one \"x\" q1"), "{one}");
    assert!(two.starts_with("PUBLISH to/be/found/l"), "{two}");
}
