//! The schemes beside naive ones, and what all of them promise.

#![expect(
    clippy::cast_precision_loss,
    reason = "the numbers of a test are small"
)]

use std::collections::BTreeSet;

use proptest::prelude::*;
use unbroken_hash_ring::simulation::{self, keys, movement, node, owners};
use unbroken_hash_ring::{
    Chord, Fingers, Jump, Node, NodeId, Refused, Rendezvous, Ring, Scheme, Shape, SlotTable,
    Weight, key_hash,
};

fn schemes(nodes: &[Node]) -> Vec<(&'static str, Box<dyn Scheme>)> {
    let shape = Shape {
        slots: 1_024,
        copies: 3,
    };
    let mut schemes: Vec<(&str, Box<dyn Scheme>)> = vec![
        ("ring", Box::new(Ring::new(8))),
        (
            "chord",
            Box::new(Chord::new(Ring::new(8), Fingers::OfThePlace)),
        ),
        ("rendezvous", Box::new(Rendezvous::new())),
        ("jump", Box::new(Jump::new())),
    ];
    for (_, scheme) in &mut schemes {
        assert_eq!(scheme.owner(1), None);
        assert_eq!(scheme.leave(NodeId(1)), Err(Refused::Absent));
        for node in nodes {
            scheme.join(*node).expect("it is new");
        }
    }
    let table = SlotTable::new(shape, nodes).expect("there are nodes");
    schemes.push(("slots", Box::new(table)));
    schemes
}

fn members(count: u64) -> Vec<Node> {
    (0..count).map(|number| node(1, number)).collect()
}

#[test]
fn a_join_takes_keys_for_the_new_node_only_and_its_leave_gives_them_back() {
    let keys = keys(1, 20_000);
    for count in [1, 2, 10, 50] {
        for (name, mut scheme) in schemes(&members(count)) {
            let before = owners(&*scheme, &keys);
            let new = node(2, 0);
            assert_eq!(scheme.join(new), Ok(()), "{name}");
            assert_eq!(scheme.join(new), Err(Refused::Present), "{name}");
            let during = owners(&*scheme, &keys);
            let joined = movement(&before, &during, new.id);
            assert!(
                joined.moved > 0 && joined.needless == 0,
                "{name}: {joined:?}"
            );
            assert_eq!(scheme.leave(new.id), Ok(()), "{name}");
            assert_eq!(scheme.leave(new.id), Err(Refused::Absent), "{name}");
            let after = owners(&*scheme, &keys);
            let left = movement(&during, &after, new.id);
            assert_eq!((left.moved, left.needless), (joined.moved, 0), "{name}");
            // The table remembers what came before, and the others do not.
            assert!(name == "slots" || after == before, "{name}");
        }
    }
}

#[test]
fn every_node_is_the_owner_of_something() {
    let nodes = members(20);
    let keys = keys(1, 20_000);
    for (name, scheme) in schemes(&nodes) {
        let owners = owners(&*scheme, &keys);
        assert_eq!(owners.len(), keys.len(), "{name}");
        let shares = simulation::shares(&nodes, &owners);
        assert!(shares[0] > 0.1 && shares[19] < 2.5, "{name}: {shares:?}");
        let [own, all] = [scheme.nodes(), nodes.clone()].map(|nodes| {
            let ids: BTreeSet<_> = nodes.into_iter().map(|node| node.id).collect();
            ids
        });
        assert_eq!(own, all, "{name}");
        assert!(scheme.table_bytes() > 0, "{name}");
    }
}

#[test]
fn weights_count() {
    let weights = [1, 1, 2, 4].map(|weight| Weight::try_from(weight).unwrap());
    let nodes: Vec<_> = (0..)
        .zip(weights)
        .map(|(number, weight)| Node {
            weight,
            ..node(3, number)
        })
        .collect();
    let keys = keys(1, 100_000);
    let mut rendezvous = Rendezvous::new();
    let mut ring = Ring::new(256);
    for node in &nodes {
        rendezvous.join(*node).unwrap();
        ring.join(*node).unwrap();
    }
    for (scheme, tolerance) in [(&rendezvous as &dyn Scheme, 0.03), (&ring, 0.15)] {
        let shares = simulation::shares(&nodes, &owners(scheme, &keys));
        let fair = shares.iter().all(|share| (share - 1.0).abs() < tolerance);
        assert!(fair, "{shares:?}");
    }
    assert_eq!(Jump::new().join(nodes[2]), Err(Refused::Weighted));
    assert!(Weight::try_from(0).is_err() && Weight::try_from(10_001).is_err());
}

#[test]
fn jump_gives_up_its_last_node_only() {
    let mut jump = Jump::new();
    for node in members(3) {
        jump.join(node).unwrap();
    }
    assert_eq!(jump.leave(node(1, 0).id), Err(Refused::NotLast));
    assert_eq!(jump.leave(node(1, 2).id), Ok(()));
}

#[test]
fn the_first_choices_of_rendezvous_are_those_of_fewer_nodes() {
    let mut rendezvous = Rendezvous::new();
    for node in members(9) {
        rendezvous.join(node).unwrap();
    }
    for key in keys(1, 100) {
        let ranked = rendezvous.ranked(key);
        assert_eq!((ranked.len(), Some(ranked[0])), (9, rendezvous.owner(key)));
        let mut fewer = rendezvous.clone();
        fewer.leave(ranked[0]).unwrap();
        assert_eq!(fewer.ranked(key), ranked[1..]);
    }
}

#[test]
fn loads_of_a_ring_add_up_to_the_whole() {
    for count in [1, 2, 3, 1_000] {
        let ring = Ring::with_nodes(3, members(count));
        assert_eq!(ring.loads().iter().sum::<u128>(), 1 << 64);
    }
    assert!(Ring::new(1).is_empty() && Ring::new(1).loads().is_empty());
}

#[test]
fn searches_through_all_fingers_of_a_node_take_fewer_hops() {
    let ring = Ring::with_nodes(16, members(200));
    let places = ring.len() as f64;
    let [by_place, by_node] = [Fingers::OfThePlace, Fingers::OfTheNode].map(|fingers| {
        let chord = Chord::new(ring.clone(), fingers);
        simulation::hops(&chord, 1, 5_000)
    });
    let expected = simulation::expected_hops(places);
    assert!(
        (by_place.mean - expected).abs() < 0.15,
        "{by_place:?}, {expected}"
    );
    assert!(
        by_node.mean < by_place.mean - 1.0,
        "{by_node:?}, {by_place:?}"
    );
    assert!(by_place.p99 <= by_place.max && f64::from(by_place.max) < 1.2 * places.log2() + 2.0);
}

#[test]
fn kinds_keep_keys_apart() {
    assert_ne!(key_hash("client", b"a"), key_hash("topic", b"a"));
    assert_ne!(key_hash("a", b"b"), key_hash("", b"a\0b"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The owner is that of the first point behind the key, found by looking at all of them; the
    /// order in which nodes came and went does not matter.
    #[test]
    fn a_ring_is_like_one_that_looks_at_every_point(
        count in 1_u64..60, virtual_nodes in 1_u32..40, seed: u64, probes: [u64; 8],
    ) {
        let nodes: Vec<_> = (0..count).map(|number| node(seed, number)).collect();
        let ring = Ring::with_nodes(virtual_nodes, nodes.clone());
        let mut other = Ring::new(virtual_nodes);
        let extra = node(!seed, 0);
        other.join(extra).unwrap();
        for node in nodes.iter().rev() {
            other.join(*node).unwrap();
        }
        other.leave(extra.id).unwrap();
        let own: Vec<_> = (0..ring.len()).map(|place| ring.point(place)).collect();
        prop_assert!(own.is_sorted());
        for key in probes.into_iter().chain([0, u64::MAX]).chain(own.iter().copied()) {
            let distance = |place: &usize| ring.point(*place).wrapping_sub(key);
            let nearest = (0..ring.len()).min_by_key(distance).unwrap();
            prop_assert_eq!(ring.successor(key), nearest);
            let id = nodes[ring.holder(nearest)].id;
            prop_assert_eq!(ring.owner(key), Some(id));
            prop_assert_eq!(other.owner(key), Some(id));
        }
    }

    /// Every search ends, whatever place it starts from, and within the number of levels.
    #[test]
    fn a_search_arrives(
        count in 1_u64..40, virtual_nodes in 1_u32..10, seed: u64, probes: [u64; 4],
    ) {
        let nodes: Vec<_> = (0..count).map(|number| node(seed, number)).collect();
        let ring = Ring::with_nodes(virtual_nodes, nodes);
        for fingers in [Fingers::OfThePlace, Fingers::OfTheNode] {
            let chord = Chord::new(ring.clone(), fingers);
            for key in probes {
                let target = ring.successor(key);
                for start in 0..ring.len() {
                    let hops = chord.hops(start, key);
                    prop_assert!(hops <= 64);
                    let is_there = match fingers {
                        Fingers::OfThePlace => start == target,
                        Fingers::OfTheNode => ring.holder(start) == ring.holder(target),
                    };
                    prop_assert_eq!(hops == 0, is_there);
                }
                prop_assert!(chord.distinct_fingers(target) <= 64);
            }
        }
    }
}
