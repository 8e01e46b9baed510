//! Places of a ring, and how they are sorted.
//!
//! Points are hashes, so two passes of a radix sort over the highest 22 bits leave them nearly in
//! order, and an insertion sort does the rest. Much faster than a comparing sort for the
//! millions of places of a simulation.

/// A point on the circle, and the position of the node that has it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Place {
    pub(super) point: u64,
    pub(super) owner: u32,
}

const DIGIT: u32 = 11;
const VALUES: usize = 1 << DIGIT;

/// Sorts by point, and what has the same by `rank`.
pub(super) fn sort<K: Ord>(places: &mut [Place], rank: impl Fn(&Place) -> K) {
    if places.len() > VALUES / 2 {
        let mut other = vec![Place::default(); places.len()];
        pass(places, &mut other, 64 - 2 * DIGIT);
        pass(&other, places, 64 - DIGIT);
        insert(places, rank);
    } else {
        places.sort_unstable_by_key(|place| (place.point, rank(place)));
    }
}

/// Copies in the order of one digit; what has the same stays in its order.
fn pass(from: &[Place], to: &mut [Place], shift: u32) {
    let digit = |place: &Place| {
        usize::try_from((place.point >> shift) % VALUES as u64).expect("it is below 2^11")
    };
    let mut starts = [0; VALUES];
    for place in from {
        starts[digit(place)] += 1;
    }
    let mut sum = 0;
    for start in &mut starts {
        sum += std::mem::replace(start, sum);
    }
    for place in from {
        let start = &mut starts[digit(place)];
        to[*start] = *place;
        *start += 1;
    }
}

fn insert<K: Ord>(places: &mut [Place], rank: impl Fn(&Place) -> K) {
    let is_before =
        |a: &Place, b: &Place| a.point < b.point || (a.point == b.point && rank(a) < rank(b));
    for end in 1..places.len() {
        let place = places[end];
        let mut at = end;
        while at > 0 && is_before(&place, &places[at - 1]) {
            places[at] = places[at - 1];
            at -= 1;
        }
        places[at] = place;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_places_are_sorted_like_few() {
        let hash = |i: u64| i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for count in [0_u32, 1, 2, 1_000, 1_025, 50_000] {
            // Every point twice.
            let place = |owner: u32| Place {
                point: hash(u64::from(owner / 2)),
                owner,
            };
            let mut places: Vec<_> = (0..count).rev().map(place).collect();
            let mut expected: Vec<_> = places.iter().map(|it| (it.point, it.owner)).collect();
            expected.sort_unstable();
            sort(&mut places, |place| place.owner);
            let sorted: Vec<_> = places.iter().map(|it| (it.point, it.owner)).collect();
            assert_eq!(sorted, expected);
        }
    }
}
