//! The golden vectors, which fix every hash and the bytes of a table. `testdata/reading.py` reads
//! the same file with code of its own.
//!
//! `HASH_RING_WRITE=1` writes the file anew. A difference is a new format, and needs a new number.

#![expect(
    clippy::cast_possible_truncation,
    reason = "the numbers of a test are small"
)]

use std::fmt::Write;
use std::path::Path;

use serde_json::{Value, json};
use unbroken_hash_ring::simulation::{keys, node};
use unbroken_hash_ring::{
    Jump, Node, NodeId, Rendezvous, Ring, Scheme, Shape, SlotTable, Weight, Zone, key_hash,
};

const KINDS: [(&str, &str); 6] = [
    ("client", ""),
    ("client", "press-7"),
    ("client", "Ventil-größe-3"),
    ("group", "workers/plant/+/temp"),
    ("topic", "plant"),
    ("topic", "press-7"),
];

fn hex(number: u64) -> String {
    format!("{number:016x}")
}

fn bytes(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn members(count: u64, weights: &[u16]) -> Vec<Node> {
    let member = |number: u64| Node {
        id: NodeId::of(&format!("node-{number}")),
        zone: Zone::of(&format!("zone-{}", number % 3)),
        weight: Weight::try_from(weights[number as usize % weights.len()]).expect("a valid vector"),
    };
    (0..count).map(member).collect()
}

fn listed(nodes: &[Node]) -> Value {
    let node = |node: &Node| json!([hex(node.id.0), hex(node.zone.0), node.weight.get()]);
    nodes.iter().map(node).collect()
}

fn vectors() -> Value {
    let hashes = KINDS.map(|(kind, key)| json!([kind, key, hex(key_hash(kind, key.as_bytes()))]));
    let names = ["", "node-0", "zone-0"].map(|name| json!([name, hex(NodeId::of(name).0)]));
    let simulated = [(1, 0), (1, 9_999), (20_130_000, 7)]
        .map(|(seed, number)| json!([seed, number, hex(node(seed, number).id.0)]));
    let probes = keys(1, 24);
    let probes = probes.iter().copied().chain([0, u64::MAX]);

    let weighted = members(5, &[1, 3, 10_000]);
    let ring = Ring::with_nodes(4, members(5, &[1, 2]));
    let mut rendezvous = Rendezvous::new();
    for node in &weighted {
        rendezvous.join(*node).expect("a valid vector");
    }
    let owners = probes
        .clone()
        .map(|key| json!([hex(key), hex(ring.owner(key).expect("a valid vector").0)]));
    let ranked = probes.clone().map(|key| {
        let ids: Vec<_> = rendezvous.ranked(key).iter().map(|id| hex(id.0)).collect();
        json!([hex(key), ids])
    });
    let buckets = probes.flat_map(|key| {
        [1, 2, 57, 4_096, 1_000_000]
            .map(|buckets| json!([hex(key), buckets, Jump::bucket(key, buckets)]))
    });

    let table = |slots, copies, nodes: &[Node]| {
        let table = SlotTable::new(Shape { slots, copies }, nodes).expect("a valid vector");
        json!({ "members": listed(nodes), "table": bytes(&table.encode()) })
    };
    let nodes = members(6, &[1, 1, 2, 4]);
    let first = SlotTable::new(
        Shape {
            slots: 64,
            copies: 3,
        },
        &nodes,
    )
    .expect("a valid vector");
    let second = first.rebalanced(&nodes[1..]).expect("a valid vector");
    let mut others = nodes[1..].to_vec();
    others.push(members(8, &[3])[7]);
    let third = second.rebalanced(&others).expect("a valid vector");
    let steps = [(&first, &second), (&second, &third), (&first, &third)].map(|(from, to)| {
        let change = from.change_to(to).expect("a valid vector");
        let [from, change, to] = [from.encode(), change.encode(), to.encode()].map(|it| bytes(&it));
        json!({ "from": from, "change": change, "to": to })
    });
    json!({
        "hashes": hashes,
        "names": names,
        "simulated nodes": simulated,
        "ring": { "virtual nodes": 4, "members": listed(&members(5, &[1, 2])), "owners": owners.collect::<Value>() },
        "rendezvous": { "members": listed(&weighted), "ranked": ranked.collect::<Value>() },
        "jump": buckets.collect::<Value>(),
        "first tables": [
            table(1, 1, &members(1, &[1])),
            table(64, 1, &members(5, &[1])),
            table(100, 1, &members(7, &[1, 1, 2, 4])),
            table(1_000, 2, &members(9, &[1, 10_000])),
            table(64, 3, &nodes),
            table(16, 5, &members(3, &[2])),
        ],
        "changes": steps,
    })
}

#[test]
fn every_hash_and_every_byte_is_that_of_the_file() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/vectors.json");
    let now = vectors();
    if std::env::var_os("HASH_RING_WRITE").is_some() {
        let text = serde_json::to_string_pretty(&now).unwrap();
        std::fs::write(&path, text + "\n").unwrap();
    }
    let golden: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    for (name, expected) in golden.as_object().unwrap() {
        assert_eq!(&now[name], expected, "{name}");
    }
    assert_eq!(now, golden);
}

#[test]
fn golden_tables_are_read() {
    let golden: Value = serde_json::from_str(include_str!("../testdata/vectors.json")).unwrap();
    let unhex = |text: &Value| -> Vec<u8> {
        let text = text.as_str().unwrap().as_bytes();
        let pairs = text
            .chunks(2)
            .map(|pair| std::str::from_utf8(pair).unwrap());
        pairs
            .map(|pair| u8::from_str_radix(pair, 16).unwrap())
            .collect()
    };
    for step in golden["changes"].as_array().unwrap() {
        let [from, to] = ["from", "to"].map(|name| SlotTable::decode(&unhex(&step[name])).unwrap());
        let change = unbroken_hash_ring::Change::decode(&unhex(&step["change"])).unwrap();
        assert_eq!(from.changed(&change), Ok(to));
    }
}
