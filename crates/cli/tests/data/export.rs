//! What `db export` prints is what the table of docs/cli.md says.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use unbroken_mqtt_proto::{Properties, Property, PropertyBuf, QoS};
use unbroken_store::{Batch, LaneMark, LogId, MessageRecord, Sequence, Space, Store};

use crate::{THEN_MS, open, options, run};

const DOCUMENT: &str = include_str!("../../../../docs/cli.md");
/// A store with a value of each kind; a test of `unbroken-store` sees to it that none is missing.
const EACH_KIND: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../store/testdata/format-1-kinds.backup"
);

/// Of each kind of line the fields that each such line has, and those that only some have.
type Kinds = BTreeMap<String, (BTreeSet<String>, BTreeSet<String>)>;

#[test]
fn each_line_of_the_export_has_the_fields_of_the_documentation_and_no_other() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("store");
    run(&path, &["restore", EACH_KIND]).well();
    let mut properties = PropertyBuf::new();
    properties
        .push(Property::ContentType("text/plain"))
        .unwrap();
    let bare = MessageRecord {
        topic: "bare",
        qos: QoS::AtLeastOnce,
        retain: true,
        stamp_ms: THEN_MS,
        expires_ms: None,
        publisher: None,
        mark: None,
        properties: Properties::EMPTY,
        payload: b"text",
    };
    let full = MessageRecord {
        topic: "full",
        expires_ms: Some(THEN_MS),
        publisher: Some("sensor"),
        mark: Some(LaneMark {
            lane: 1,
            epoch: 2,
            number: 3,
            leaf: [4; 16],
        }),
        properties: properties.as_properties(),
        ..bare
    };
    let mut batch = Batch::new();
    for (number, record) in (1..).zip([bare, full]) {
        batch.append(LogId(0), Sequence(number), record.encode());
        let topic = record.topic.into();
        batch.put(Space::Retained, topic, record.encode().into_bytes());
    }
    let store = open(&path, options());
    assert!(store.commit(&[batch]).unwrap()[0].is_ok());
    drop(store);
    let objects = run(&path, &["db", "export"]).well().objects();
    assert_eq!(exported(&objects), documented());
}

fn exported(objects: &[Value]) -> Kinds {
    let mut kinds = Kinds::new();
    for object in objects {
        let fields = object.as_object().unwrap().keys();
        let fields = fields.filter(|name| *name != "kind");
        let fields = fields.map(|name| name.trim_end_matches("_base64").to_owned());
        let fields: BTreeSet<_> = fields.collect();
        let kind = object["kind"].as_str().unwrap().to_owned();
        let (always, sometimes) = kinds
            .entry(kind)
            .or_insert((fields.clone(), BTreeSet::new()));
        sometimes.extend(always.symmetric_difference(&fields).cloned());
        always.retain(|name| fields.contains(name));
    }
    kinds
}

fn documented() -> Kinds {
    let (_, table) = DOCUMENT.split_once("| kind | fields | in some |").unwrap();
    let rows = table.lines().skip(2).take_while(|line| !line.is_empty());
    rows.map(|row| {
        let names = |cell: &str| -> Vec<String> {
            let names = cell.split('`').skip(1).step_by(2);
            names.map(str::to_owned).collect()
        };
        let mut cells = row.split('|').skip(1).map(names);
        let kind = cells.next().unwrap().remove(0);
        let mut fields = || cells.next().unwrap().into_iter().collect();
        (kind, (fields(), fields()))
    })
    .collect()
}
