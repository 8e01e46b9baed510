//! How many primaries and how many replicas each node should hold.
//!
//! Shares are by largest remainder, except that who holds more than the rounded-down share gets the
//! rounded-up one first: that moves the least.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::node::{Node, Zone};

/// Who takes a share, and how much of it is there already.
#[derive(Clone, Copy, Debug, Default)]
struct Claim {
    weight: u64,
    holds: u32,
    /// Decides between equals.
    id: u64,
}

/// The number of slots of which each seat should be the primary.
pub(super) fn primaries(slots: u32, seats: &[Option<Node>], holds: &[u32]) -> Vec<u32> {
    shares(slots.into(), &claims(seats, holds))
}

/// The number of slots of which each seat should hold a replica.
///
/// In proportion to the weights, as far as it is possible: a zone cannot hold a replica of a slot
/// whose primary it has. If there are fewer zones than copies, that is true of nodes instead.
pub(super) fn replicas(
    slots: u32,
    copies: u8,
    seats: &[Option<Node>],
    primaries: &[u32],
    holds: &[u32],
) -> Vec<u32> {
    let nodes = seats.iter().flatten();
    let copies = nodes.clone().count().min(copies.into());
    let zones: BTreeSet<Zone> = nodes.map(|node| node.zone).collect();
    let by_zone = zones.len() >= copies;
    let claims = claims(seats, holds);
    let mut groups: BTreeMap<u64, Group> = BTreeMap::new();
    for (seat, node) in seats.iter().enumerate() {
        let Some(node) = node else { continue };
        let name = if by_zone { node.zone.0 } else { node.id.0 };
        let group = groups
            .entry(name)
            .or_insert_with(|| Group::new(name, slots));
        group.claim.weight += claims[seat].weight;
        group.claim.holds += holds[seat];
        group.most -= u64::from(primaries[seat]);
        group.seats.push(seat);
    }
    let mut groups: Vec<_> = groups.into_values().collect();
    let demand = (copies as u64).saturating_sub(1) * u64::from(slots);
    let shares = fill(&mut groups, demand);
    let mut replicas = vec![0; seats.len()];
    for (group, share) in groups.iter().zip(shares) {
        let inside: Vec<_> = group.seats.iter().map(|seat| claims[*seat]).collect();
        for (seat, share) in group.seats.iter().zip(self::shares(share, &inside)) {
            replicas[*seat] = share;
        }
    }
    replicas
}

/// Nodes that hold at most one copy of a slot together.
struct Group {
    claim: Claim,
    most: u64,
    seats: Vec<usize>,
}

impl Group {
    fn new(id: u64, slots: u32) -> Self {
        let claim = Claim {
            id,
            ..Claim::default()
        };
        Self {
            claim,
            most: slots.into(),
            seats: Vec::new(),
        }
    }
}

/// Shares in proportion to the weights, but none above what a group can hold.
fn fill(groups: &mut [Group], mut demand: u64) -> Vec<u64> {
    let mut fixed: Vec<Option<u64>> = vec![None; groups.len()];
    loop {
        let open = || {
            groups
                .iter()
                .zip(&fixed)
                .filter(|(_, fixed)| fixed.is_none())
        };
        let weights: u64 = open().map(|(group, _)| group.claim.weight).sum();
        let is_over = |group: &Group| {
            u128::from(demand) * u128::from(group.claim.weight)
                > u128::from(group.most) * u128::from(weights)
        };
        let over: Vec<_> = (0..groups.len())
            .filter(|at| fixed[*at].is_none() && is_over(&groups[*at]))
            .collect();
        if over.is_empty() {
            break;
        }
        for at in over {
            let most = groups[at].most.min(demand);
            fixed[at] = Some(most);
            demand -= most;
        }
    }
    let open = groups.iter().zip(&fixed).map(|(group, fixed)| match fixed {
        Some(_) => Claim::default(),
        None => group.claim,
    });
    let shares = shares(demand, &open.collect::<Vec<_>>());
    let shares = shares.into_iter().map(u64::from);
    fixed
        .into_iter()
        .zip(shares)
        .map(|(fixed, share)| fixed.unwrap_or(share))
        .collect()
}

/// Shares of a total in proportion to the weights, each rounded down or up.
fn shares(total: u64, claims: &[Claim]) -> Vec<u32> {
    let weights: u64 = claims.iter().map(|claim| claim.weight).sum();
    if weights == 0 {
        return vec![0; claims.len()];
    }
    let number = |share: u64| u32::try_from(share).expect("at most 6 copies of 65,536 slots");
    let exact = |claim: &Claim| {
        let product = total * claim.weight;
        (number(product / weights), product % weights)
    };
    let mut shares: Vec<_> = claims.iter().map(|claim| exact(claim).0).collect();
    let given: u64 = shares.iter().copied().map(u64::from).sum();
    let mut order: Vec<_> = (0..claims.len()).collect();
    order.sort_unstable_by_key(|at| {
        let claim = &claims[*at];
        let (share, remainder) = exact(claim);
        let may_not = remainder == 0;
        (may_not, claim.holds <= share, Reverse(remainder), claim.id)
    });
    let more = usize::try_from(total - given).expect("it is below the number of claims");
    for at in order.into_iter().take(more) {
        shares[at] += 1;
    }
    shares
}

fn claims(seats: &[Option<Node>], holds: &[u32]) -> Vec<Claim> {
    let claim = |(seat, holds): (&Option<Node>, &u32)| {
        let node = seat.as_ref();
        Claim {
            weight: node.map_or(0, |node| node.weight.get().into()),
            holds: *holds,
            id: node.map_or(0, |node| node.id.0),
        }
    };
    seats.iter().zip(holds).map(claim).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::{NodeId, Weight};

    fn check(total: u64, weights_and_holds: &[(u64, u32)], expected: &[u32]) {
        let claim = |(id, (weight, holds)): (u64, &(u64, u32))| Claim {
            weight: *weight,
            holds: *holds,
            id,
        };
        let claims: Vec<_> = (0..).zip(weights_and_holds).map(claim).collect();
        assert_eq!(shares(total, &claims), expected);
    }

    #[test]
    fn shares_are_by_largest_remainder() {
        check(10, &[(1, 0), (1, 0), (1, 0)], &[4, 3, 3]);
        check(10, &[(1, 0), (2, 0), (4, 0)], &[1, 3, 6]);
        check(8, &[(1, 0), (2, 0), (4, 0), (1, 0)], &[1, 2, 4, 1]);
        check(10, &[(1, 0), (0, 7), (1, 0)], &[5, 0, 5]);
        check(10, &[(0, 0)], &[0]);
    }

    #[test]
    fn who_holds_the_rounded_up_share_keeps_it() {
        check(10, &[(1, 3), (1, 3), (1, 4)], &[3, 3, 4]);
        // A share without remainder is never rounded up.
        check(9, &[(1, 3), (1, 3), (1, 4)], &[3, 3, 3]);
    }

    #[test]
    fn a_zone_has_no_more_replicas_than_it_can_hold() {
        let node = |id, zone, weight| {
            let weight = Weight::try_from(weight).unwrap();
            let (id, zone) = (NodeId(id), Zone(zone));
            Some(Node { id, zone, weight })
        };
        // Three quarters of the primaries are in zone 1, so it can hold replicas of one quarter.
        let seats = [node(1, 1, 6), node(2, 2, 1), node(3, 3, 1)];
        let quotas = primaries(800, &seats, &[0; 3]);
        assert_eq!(quotas, [600, 100, 100]);
        assert_eq!(replicas(800, 2, &seats, &quotas, &[0; 3]), [200, 300, 300]);
        assert_eq!(replicas(800, 3, &seats, &quotas, &[0; 3]), [200, 700, 700]);
        assert_eq!(replicas(800, 1, &seats, &quotas, &[0; 3]), [0, 0, 0]);
        // With more copies than nodes each node has a copy of each slot.
        assert_eq!(replicas(800, 5, &seats, &quotas, &[0; 3]), [200, 700, 700]);
    }
}
