//! Writes one of each record as seeds for the fuzz target `store`, one file each, into the folder
//! given or `dev/fuzz/corpus/store`; and a backup for `backup` and batches for `journal`, into the
//! folders beside it.

#![allow(clippy::print_stdout, reason = "a tool that says what it did")]

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

use unbroken_mqtt_proto::{
    PacketId, Properties, Property, PropertyBuf, QoS, RetainHandling, SubscriptionOptions,
};
use unbroken_store::session::{
    Carried, Cursor, Head, Inbound, LogRange, Outbound, Part, Subscription, Will, key,
};
use unbroken_store::{
    Batch, LaneMark, LogId, Memory, MessageBytes, MessageRecord, Position, Sequence, Space, Store,
    backup,
};

fn main() -> io::Result<()> {
    let usual = concat!(env!("CARGO_MANIFEST_DIR"), "/../../dev/fuzz/corpus/store");
    let folder = env::args_os()
        .nth(1)
        .map_or_else(|| PathBuf::from(usual), PathBuf::from);
    fs::create_dir_all(&folder)?;
    let seeds = seeds();
    for (number, (form, bytes)) in seeds.iter().enumerate() {
        let seed = [&[*form], bytes.as_slice()].concat();
        fs::write(folder.join(format!("{form}-{number}")), seed)?;
    }
    println!("{} seeds in {}", seeds.len(), folder.display());
    write_backups(&folder.with_file_name("backup"))?;
    write_journals(&folder.with_file_name("journal"))
}

/// Two batches as the engine has them in a journal, and one that has more than a link.
fn write_journals(folder: &Path) -> io::Result<()> {
    let item = |key: &[u8], value: &[u8]| {
        let length = u8::try_from(value.len()).unwrap_or_default();
        let key_length = u8::try_from(key.len()).unwrap_or_default();
        let head = [2, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, key_length, 0];
        let lengths = [length, 0, 0, 0, length, 0, 0, 0];
        [&head, &lengths[..], key, value].concat()
    };
    let link = |number: u8| {
        let mut link = [0; 25];
        if let Some([.., last, safe]) = link.get_mut(..) {
            (*last, *safe) = (number, 1);
        }
        item(b"link", &link)
    };
    let revision = item(b"revision", &[0, 0, 0, 0, 0, 0, 0, 1]);
    let linked = [&[1, 1][..], &link(1), &[0xFF, 1], &link(2)].concat();
    let more = [&[1, 2][..], &link(3), &revision].concat();
    fs::create_dir_all(folder)?;
    fs::write(folder.join("linked"), linked)?;
    fs::write(folder.join("more"), more)
}

/// A backup, and what lies behind its seals, for the fuzz target of that name.
fn write_backups(folder: &Path) -> io::Result<()> {
    let store = Memory::new();
    let mut batch = Batch::new();
    batch.put(Space::Retained, b"a/b".to_vec(), vec![1; 8]);
    batch.put(Space::Control, b"key".to_vec(), Vec::new());
    if let Some((_, bytes)) = seeds().into_iter().next()
        && let Ok(message) = MessageBytes::parse(bytes)
    {
        batch.append(LogId(1), Sequence::FIRST, message);
    }
    let _ = store.commit(&[batch]); // in memory nothing fails
    let mut file = Vec::new();
    backup::write(&store, &mut file).map_err(io::Error::other)?;
    let line = file.iter().position(|byte| *byte == b'\n').unwrap_or(0) + 1;
    let body = file.get(line + HEAD_BYTES..).unwrap_or_default();
    fs::create_dir_all(folder)?;
    fs::write(folder.join("file"), [&[0], &*file].concat())?;
    fs::write(folder.join("body"), [&[1], body].concat())
}

/// The length and the seal of a block.
const HEAD_BYTES: usize = 36;

fn session() -> (Head, Subscription) {
    let head = Head {
        client_id: "client".into(),
        expiry_s: NonZeroU32::MAX,
        offline_since_ms: Some(1_790_000_000_000),
        user: None,
        mount: None,
    };
    let subscription = Subscription {
        filter: "$share/group/a/+".into(),
        options: SubscriptionOptions {
            qos: QoS::AtLeastOnce,
            no_local: false,
            retain_as_published: true,
            retain_handling: RetainHandling::SendIfNew,
        },
        identifier: Some(NonZeroU32::MIN),
        ended: false,
        retained_due: false,
        ranges: vec![LogRange {
            log: LogId(1),
            from: Sequence(5),
            until: Some(Sequence(900)),
        }],
    };
    (head, subscription)
}

/// Each with the form that the target reads it as.
fn seeds() -> Vec<(u8, Vec<u8>)> {
    let mut properties = PropertyBuf::new();
    // Both are properties of a PUBLISH, and short.
    let _ = properties.push(Property::ContentType("text/plain"));
    let _ = properties.push(Property::UserProperty("key", "value"));
    let least = MessageRecord {
        topic: "a/b",
        qos: QoS::AtLeastOnce,
        retain: false,
        stamp_ms: 1,
        expires_ms: None,
        publisher: None,
        mark: None,
        properties: Properties::EMPTY,
        payload: b"payload",
    };
    let full = MessageRecord {
        qos: QoS::ExactlyOnce,
        retain: true,
        stamp_ms: 1_790_000_000_000,
        expires_ms: Some(1_790_000_060_000),
        publisher: Some("publisher"),
        mark: Some(LaneMark {
            lane: 7,
            epoch: 1,
            number: 300,
            leaf: [9; 16],
        }),
        properties: properties.as_properties(),
        ..least
    };
    let (head, subscription) = session();
    let position = Position {
        log: LogId(1),
        sequence: Sequence(1_000),
    };
    let outbound = |what| Outbound {
        what,
        packet_id: Some(PacketId::FIRST),
        qos: QoS::ExactlyOnce,
        received: true,
        retain: false,
        by_group: false,
        group: None,
        identifiers: vec![NonZeroU32::MIN],
    };
    let cursor = Cursor {
        through: Sequence(77),
    };
    let will = Will {
        delay_s: 30,
        author: None,
        message: full.encode(),
    };
    let filter = "a/+";
    let era = 2;
    vec![
        (0, least.encode().into_bytes()),
        (0, full.encode().into_bytes()),
        (1, head.encode()),
        (2, subscription.encode()),
        (3, cursor.encode()),
        (4, outbound(Carried::Log(position)).encode()),
        (4, outbound(Carried::Own(least.encode())).encode()),
        (5, Inbound::default().encode()),
        (6, will.encode()),
        (7, key("client", Part::Subscription { filter, era })),
        (7, key(&"long".repeat(100), Part::Head)),
    ]
}
