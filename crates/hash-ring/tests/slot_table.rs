//! The bounds of the slot table, on long walks, and its format.

#![expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "the numbers of a test are small"
)]

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use unbroken_hash_ring::simulation::node;
use unbroken_hash_ring::{
    Change, DecodeError, NODES_MAX, Node, NodeId, Refused, Scheme, Shape, SlotTable, StaleChange,
    TableError, Weight, Zone,
};

const SHAPE: Shape = Shape {
    slots: 4_096,
    copies: 3,
};

fn member(number: u64, weight: u16, zones: u64) -> Node {
    Node {
        zone: Zone(number % zones),
        weight: Weight::try_from(weight).expect("a valid weight"),
        ..node(1, number)
    }
}

/// What holds for every table.
fn check(table: &SlotTable) {
    let Shape { slots, copies } = table.shape();
    let nodes = table.nodes();
    let zones: BTreeSet<_> = nodes.iter().map(|node| node.zone).collect();
    let weights: u64 = nodes.iter().map(|node| u64::from(node.weight.get())).sum();
    let mut primaries: BTreeMap<NodeId, u64> = BTreeMap::new();
    for slot in 0..slots {
        let holders: Vec<_> = table.holders(slot).collect();
        let ids: BTreeSet<_> = holders.iter().map(|node| node.id).collect();
        let seen: BTreeSet<_> = holders.iter().map(|node| node.zone).collect();
        let wanted = usize::from(copies).min(nodes.len());
        assert_eq!((holders.len(), ids.len()), (wanted, wanted), "slot {slot}");
        assert_eq!(seen.len(), wanted.min(zones.len()), "zones of slot {slot}");
        *primaries.entry(holders[0].id).or_default() += 1;
    }
    for node in &nodes {
        let most = (u64::from(slots) * u64::from(node.weight.get())).div_ceil(weights);
        let has = primaries.get(&node.id).copied().unwrap_or(0);
        assert!(has <= most, "{node:?} has {has} slots, over {most}");
    }
}

/// The number of replicas that each node has, less the number by its weight.
fn replica_errors(table: &SlotTable) -> Vec<f64> {
    let Shape { slots, copies } = table.shape();
    let nodes = table.nodes();
    let weights: f64 = nodes.iter().map(|node| f64::from(node.weight.get())).sum();
    let all = f64::from(slots) * (usize::from(copies).min(nodes.len()) - 1) as f64;
    let mut replicas: BTreeMap<NodeId, f64> = BTreeMap::new();
    for slot in 0..slots {
        for node in table.holders(slot).skip(1) {
            *replicas.entry(node.id).or_default() += 1.0;
        }
    }
    let error = |node: &Node| {
        let has = replicas.get(&node.id).copied().unwrap_or(0.0);
        has - all * f64::from(node.weight.get()) / weights
    };
    nodes.iter().map(error).collect()
}

/// A walk of joins and leaves between 3 and 60 nodes.
struct Walk {
    state: u64,
    next: u64,
    zones: u64,
    weights: &'static [u16],
}

impl Walk {
    fn draw(&mut self, below: u64) -> u64 {
        self.state = self
            .state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.state >> 33) % below
    }

    fn start(&mut self, shape: Shape) -> SlotTable {
        let nodes: Vec<_> = (0..6).map(|_| self.newcomer()).collect();
        SlotTable::new(shape, &nodes).expect("six nodes")
    }

    fn newcomer(&mut self) -> Node {
        self.next += 1;
        let weight = self.weights[self.next as usize % self.weights.len()];
        member(self.next, weight, self.zones)
    }

    /// The next table, who joined or left, and the least that has to move for it.
    fn step(&mut self, table: &SlotTable) -> (SlotTable, NodeId, f64) {
        let nodes = table.nodes();
        let mut next = table.clone();
        if nodes.len() < 4 || (nodes.len() < 60 && self.draw(2) == 0) {
            let new = self.newcomer();
            next.join(new).expect("it is new");
            let own = f64::from(new.weight.get());
            let others: f64 = nodes.iter().map(|node| f64::from(node.weight.get())).sum();
            (
                next,
                new.id,
                f64::from(table.shape().slots) * own / (own + others),
            )
        } else {
            let gone = nodes[self.draw(nodes.len() as u64) as usize].id;
            let held = (0..table.shape().slots)
                .filter(|slot| table.primary(*slot).map(|it| it.id) == Some(gone));
            let held = held.count() as f64;
            next.leave(gone).expect("it is a member");
            (next, gone, held)
        }
    }
}

#[test]
fn a_thousand_joins_and_leaves_move_the_least_and_nothing_between_those_who_stay() {
    let mut walk = Walk {
        state: 1,
        next: 0,
        zones: 5,
        weights: &[1],
    };
    let mut table = walk.start(SHAPE);
    let (mut moved, mut least) = (0, 0.0);
    for step in 0..1_000 {
        let (next, who, needed) = walk.step(&table);
        let moves = table.moves(&next);
        let strays = moves.iter().filter(|it| it.from != who && it.to != who);
        assert_eq!(strays.count(), 0, "step {step}");
        moved += moves.len();
        least += needed;
        if step % 10 == 0 {
            check(&next);
        }
        let change = table.change_to(&next).unwrap();
        assert_eq!(table.changed(&change).as_ref(), Ok(&next));
        table = next;
    }
    assert!(
        moved as f64 / least <= 1.01,
        "{moved} slots moved, {least} had to"
    );
}

#[test]
fn weights_are_kept_on_a_walk() {
    let mut walk = Walk {
        state: 2,
        next: 0,
        zones: 4,
        weights: &[1, 1, 2, 4],
    };
    let mut table = walk.start(SHAPE);
    let (mut moved, mut least, mut strays) = (0, 0.0, 0);
    for step in 0..1_000 {
        let (next, who, needed) = walk.step(&table);
        let moves = table.moves(&next);
        strays += moves
            .iter()
            .filter(|it| it.from != who && it.to != who)
            .count();
        moved += moves.len();
        least += needed;
        if step % 10 == 0 {
            check(&next);
        }
        table = next;
    }
    assert!(
        moved as f64 / least <= 1.01,
        "{moved} slots moved, {least} had to"
    );
    assert!(
        strays as f64 / least <= 0.001,
        "{strays} of {moved} between those who stay"
    );
}

#[test]
fn replicas_are_spread_like_primaries_where_zones_allow_it() {
    for (zones, copies) in [(3, 3), (3, 2), (4, 2), (4, 3), (6, 3), (12, 5), (60, 3)] {
        let shape = Shape { copies, ..SHAPE };
        let nodes: Vec<_> = (0..60).map(|number| member(number, 1, zones)).collect();
        let mut table = SlotTable::new(shape, &nodes).unwrap();
        check(&table);
        let worst = |table: &SlotTable| {
            replica_errors(table)
                .into_iter()
                .fold(0.0, |a: f64, b| a.max(b.abs()))
        };
        assert!(
            worst(&table) <= 2.0,
            "{zones} zones, {copies} copies: {}",
            worst(&table)
        );
        // A whole row of nodes, one in each zone, comes or goes.
        for number in 60..60 + zones {
            table.join(member(number, 1, zones)).unwrap();
        }
        check(&table);
        assert!(
            worst(&table) <= 2.0,
            "{zones} zones, {copies} copies: {}",
            worst(&table)
        );
        for number in 0..zones {
            table.leave(member(number, 1, zones).id).unwrap();
        }
        check(&table);
        assert!(
            worst(&table) <= 2.0,
            "{zones} zones, {copies} copies: {}",
            worst(&table)
        );
    }
}

#[test]
fn with_few_zones_every_zone_has_a_copy() {
    for zones in 1..4 {
        for count in 1..8 {
            let shape = Shape {
                slots: 512,
                copies: 4,
            };
            let nodes: Vec<_> = (0..count)
                .map(|number| member(number, 1 + number as u16 % 3, zones))
                .collect();
            let mut table = SlotTable::new(shape, &nodes).unwrap();
            check(&table);
            table.join(member(100, 5, zones)).unwrap();
            check(&table);
            table.leave(member(0, 1, zones).id).unwrap();
            check(&table);
        }
    }
}

#[test]
fn a_leave_promotes_replicas_so_that_few_slots_are_copied_twice() {
    let nodes: Vec<_> = (0..10).map(|number| member(number, 1, 5)).collect();
    let before = SlotTable::new(SHAPE, &nodes).unwrap();
    let after = before.rebalanced(&nodes[1..]).unwrap();
    let moves = before.moves(&after);
    let had = moves
        .iter()
        .filter(|it| before.holders(it.slot).any(|node| node.id == it.to));
    let had = had.count();
    assert!(had * 10 > moves.len() * 8, "{had} of {}", moves.len());
    // What was on it has to be somewhere else, and hardly more than that.
    let gone = nodes[0].id;
    let held = (0..SHAPE.slots).filter(|slot| before.holders(*slot).any(|node| node.id == gone));
    let (held, copied) = (held.count(), before.new_copies(&after).len());
    assert!(
        copied >= held && copied * 10 < held * 12,
        "{copied} copies for {held}"
    );
}

#[test]
fn a_weight_or_zone_can_change() {
    let mut nodes: Vec<_> = (0..8).map(|number| member(number, 2, 4)).collect();
    let before = SlotTable::new(SHAPE, &nodes).unwrap();
    nodes[3].weight = Weight::try_from(4).unwrap();
    nodes[5].zone = Zone(9);
    let after = before.rebalanced(&nodes).unwrap();
    check(&after);
    assert!(before.moves(&after).iter().all(|it| it.to == nodes[3].id));
    assert_eq!(after.epoch(), before.epoch() + 1);
}

#[test]
fn the_first_table_does_not_depend_on_the_order_of_its_members() {
    let nodes: Vec<_> = (0..30)
        .map(|number| member(number, 1 + number as u16 % 3, 6))
        .collect();
    let mut turned = nodes.clone();
    turned.reverse();
    assert_eq!(
        SlotTable::new(SHAPE, &nodes),
        SlotTable::new(SHAPE, &turned)
    );
}

#[test]
fn what_is_no_table_is_refused() {
    let nodes: Vec<_> = (0..2).map(|number| member(number, 1, 4)).collect();
    let table = |slots, copies, nodes: &[Node]| SlotTable::new(Shape { slots, copies }, nodes);
    assert_eq!(table(0, 1, &nodes), Err(TableError::Slots(0)));
    assert_eq!(table(65_537, 1, &nodes), Err(TableError::Slots(65_537)));
    assert_eq!(table(1, 0, &nodes), Err(TableError::Copies(0)));
    assert_eq!(table(1, 8, &nodes), Err(TableError::Copies(8)));
    assert_eq!(table(1, 1, &[]), Err(TableError::Nodes(0)));
    let twice = [nodes[0], nodes[0]];
    assert_eq!(table(1, 1, &twice), Err(TableError::Repeated(nodes[0].id)));
    let many: Vec<_> = (0..=NODES_MAX as u64)
        .map(|number| member(number, 1, 4))
        .collect();
    assert_eq!(table(1, 1, &many), Err(TableError::Nodes(NODES_MAX + 1)));
    let mut full = table(8, 1, &many[1..]).unwrap();
    assert_eq!(full.join(many[0]), Err(Refused::Full));
    let mut one = table(8, 1, &nodes[..1]).unwrap();
    assert_eq!(one.leave(nodes[0].id), Err(Refused::Last));
    assert_eq!(one.holders(8).count(), 0);
}

#[test]
fn a_table_and_a_change_are_read_back_and_damage_is_refused() {
    let shape = Shape {
        slots: 16,
        copies: 2,
    };
    let nodes: Vec<_> = (0..4).map(|number| member(number, 1, 4)).collect();
    let first = SlotTable::new(shape, &nodes).unwrap();
    // One leaves and one takes its seat.
    let members = [nodes[0], nodes[2], nodes[3], member(9, 1, 4)];
    let second = first.rebalanced(&members).unwrap();
    let third = second.rebalanced(&members[1..]).unwrap();
    for table in [&first, &second, &third] {
        assert_eq!(SlotTable::decode(&table.encode()).as_ref(), Ok(table));
    }
    let change = first.change_to(&third).unwrap();
    assert_eq!(change.epochs(), (1, 3));
    assert_eq!(Change::decode(&change.encode()).as_ref(), Ok(&change));
    assert_eq!(first.changed(&change).as_ref(), Ok(&third));
    let stale = StaleChange::Epoch { from: 1, epoch: 2 };
    assert_eq!(second.changed(&change), Err(stale));
    assert_eq!(third.change_to(&first), None);
    let other = SlotTable::new(shape, &nodes[1..]).unwrap();
    assert_eq!(other.changed(&change), Err(StaleChange::Table));

    let (table, change) = (first.encode(), change.encode());
    for bit in 0..8 * table.len() {
        let mut damaged = table.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(SlotTable::decode(&damaged).is_err(), "bit {bit}");
    }
    for bit in 0..8 * change.len() {
        let mut damaged = change.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(Change::decode(&damaged).is_err(), "bit {bit}");
    }
    for length in 0..table.len() {
        assert!(SlotTable::decode(&table[..length]).is_err());
    }
    assert_eq!(SlotTable::decode(&change), Err(DecodeError::Unknown));
}

/// Bytes with a right check, so that what is behind it is reached.
fn sealed(magic: &[u8], body: &[u8]) -> Vec<u8> {
    let mut bytes = [magic, body].concat();
    // The hash of raw bytes is that of a name.
    let check = unsealed_hash(&bytes);
    bytes.extend(check.to_be_bytes());
    bytes
}

fn unsealed_hash(bytes: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(bytes)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn no_bytes_make_a_reader_panic(
        copies in 0_u8..9, seats in 0_u16..4, slots in 0_u32..6, body: Vec<u8>,
    ) {
        let mut head = vec![1, copies];
        head.extend(seats.to_be_bytes());
        head.extend(slots.to_be_bytes());
        head.extend(&body);
        if let Ok(table) = SlotTable::decode(&sealed(b"UST1", &head)) {
            prop_assert_eq!(SlotTable::decode(&table.encode()), Ok(table));
        }
        if let Ok(change) = Change::decode(&sealed(b"USC1", &head)) {
            prop_assert_eq!(Change::decode(&change.encode()), Ok(change.clone()));
            let shape = Shape { slots: 5, copies: 2 };
            let table = SlotTable::new(shape, &[node(1, 1), node(1, 2)]).unwrap();
            prop_assert!(table.changed(&change).is_err());
        }
    }

    /// Any step between any two sets of members keeps the bounds.
    #[test]
    fn any_step_keeps_the_bounds(
        first in prop::collection::vec((1_u16..50, 1_u64..7), 1..12),
        second in prop::collection::vec((1_u16..50, 1_u64..7), 1..12),
        kept in 0_usize..12, slots in 1_u32..300, copies in 1_u8..6,
    ) {
        let nodes = |offset: u64, spec: &[(u16, u64)]| -> Vec<Node> {
            (offset..).zip(spec).map(|(number, (weight, zone))| Node {
                zone: Zone(*zone),
                ..member(number, *weight, 1)
            }).collect()
        };
        let first = nodes(0, &first);
        let mut second = nodes(100, &second);
        second.extend(first.iter().take(kept));
        let table = SlotTable::new(Shape { slots, copies }, &first).unwrap();
        check(&table);
        let next = table.rebalanced(&second).unwrap();
        check(&next);
        let change = table.change_to(&next).unwrap();
        let change = Change::decode(&change.encode()).unwrap();
        prop_assert_eq!(table.changed(&change), Ok(next));
    }
}
