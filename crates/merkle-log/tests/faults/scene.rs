//! A lane with random faults, and what is to be said of each.

use super::*;

/// What was done, or said to have been done, to a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Named {
    Lost,
    TailLost,
    Late,
    Found,
    Repaired,
    Duplicate,
    Replayed,
    Altered,
    Injected,
    Forged,
    Conflict,
    FirstIsReal,
    SecondIsReal,
}

#[derive(Clone)]
pub(crate) enum Item {
    Message(Arrival),
    Drop(u64, Hash),
    Checkpoint(Box<Checkpoint>),
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    Lose,
    LoseBurst,
    Duplicate,
    DuplicateOfOld,
    Replay,
    Swap,
    Late,
    AlterThenLate,
    Alter,
    InjectAfter,
    InjectBefore,
    Forge,
    ConflictAfter,
    ConflictBefore,
    Drop,
}

pub(crate) const FAULTS: [Fault; 15] = [
    Fault::Lose,
    Fault::LoseBurst,
    Fault::Duplicate,
    Fault::DuplicateOfOld,
    Fault::Replay,
    Fault::Swap,
    Fault::Late,
    Fault::AlterThenLate,
    Fault::Alter,
    Fault::InjectAfter,
    Fault::InjectBefore,
    Fault::Forge,
    Fault::ConflictAfter,
    Fault::ConflictBefore,
    Fault::Drop,
];

/// SplitMix64: a seed is all there is to know about a run.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

pub(crate) fn arrival(property: &Property) -> Arrival {
    Arrival {
        number: property.sequence,
        leaf: property.digest,
        fits: true,
        resent: property.flags.resent,
        part: None,
    }
}

/// Issues `count` messages and injects `injections` faults into them. Where leaves are folded,
/// copies with other content are not told from duplicates, so there are none.
pub(crate) fn scene(count: u64, injections: u64, hold_leaves: bool, random: &mut Random) -> Scene {
    let hasher = Hasher::xxh3();
    let id = LaneId::new(1).unwrap();
    let mut limits = LaneLimits::default();
    limits.windows_held_max = usize::MAX >> 20;
    limits.message_bytes_max = usize::MAX;
    let mut lane = Lane::new(id, Epoch(0), limits, Duration::ZERO);
    let mut clean = Vec::new();
    // Where an item stands in time, so that moving it is one number.
    let mut at = 0_u64;
    for number in 0..count {
        let property = lane.issue(*b"t", number.to_be_bytes(), &hasher);
        clean.push((at, Item::Message(arrival(&property))));
        at += 1_000;
        let now = STEP * u32::try_from(number).unwrap();
        while let Some(checkpoint) = lane.poll_checkpoint(now, 0, &hasher) {
            let dropped = random.below(100) < 12;
            let delay = random.below(5) / 4 * random.below(900) * 1_000;
            if !dropped {
                clean.push((at + delay + 1, Item::Checkpoint(Box::new(checkpoint))));
            }
        }
    }
    let last = lane.clone().close(0, &hasher).unwrap();
    let mut items = Vec::new();
    let mut expected = Vec::new();
    let mut drops = 0;
    let share = (count - TAIL - 2_000) / injections;
    let mut chosen = std::collections::BTreeMap::new();
    for injection in 0..injections {
        let number = 1_000 + injection * share + random.below(share - 45);
        let kind = FAULTS[usize::try_from(random.below(15)).unwrap()];
        let kind = match kind {
            Fault::ConflictAfter | Fault::ConflictBefore if !hold_leaves => Fault::Forge,
            kind => kind,
        };
        // Copies are compared while their window is open: not across its end.
        let number = if number % 1_024 > 970 {
            number - 60
        } else {
            number
        };
        chosen.insert(number, kind);
    }
    let forged =
        |number: u64| Property::stamp(&hasher, id, Epoch(0), number, b"t", b"forged").digest;
    let mut skip_to = 0;
    for (at, item) in clean {
        let Item::Message(real) = item else {
            items.push((at, item));
            continue;
        };
        let number = real.number;
        if number >= count - TAIL {
            expected.extend([(number, Named::TailLost), (number, Named::Repaired)]);
            continue;
        }
        if number < skip_to {
            expected.extend([(number, Named::Lost), (number, Named::Repaired)]);
            continue;
        }
        let misfit = Arrival {
            fits: false,
            leaf: forged(number),
            ..real
        };
        let other = Arrival {
            leaf: forged(number),
            ..real
        };
        let soon = at + (1 + random.below(40)) * 1_000 + 1;
        let mut send = |at, arrival| items.push((at, Item::Message(arrival)));
        let Some(kind) = chosen.get(&number) else {
            send(at, real);
            continue;
        };
        let mut expect = |named| expected.push((number, named));
        match kind {
            Fault::Lose => {
                expect(Named::Lost);
                expect(Named::Repaired);
            }
            Fault::LoseBurst => {
                skip_to = number + 1 + random.below(20);
                expect(Named::Lost);
                expect(Named::Repaired);
            }
            Fault::Duplicate => {
                send(at, real);
                send(soon, real);
                expect(Named::Duplicate);
            }
            Fault::DuplicateOfOld => {
                send(at, real);
                send(at + count * 100, real);
                expect(Named::Duplicate);
            }
            Fault::Replay => {
                send(at, real);
                send(
                    soon,
                    Arrival {
                        resent: true,
                        ..real
                    },
                );
                expect(Named::Replayed);
            }
            Fault::Swap => {
                send(at + 1_002, real);
                expect(Named::Late);
            }
            Fault::Late => {
                send(soon, real);
                expect(Named::Late);
            }
            Fault::AlterThenLate => {
                send(at, misfit);
                send(soon, real);
                expect(Named::Altered);
                expect(Named::Late);
                expect(Named::Injected);
            }
            Fault::Alter => {
                send(at, misfit);
                expect(Named::Altered);
                expect(Named::Repaired);
            }
            Fault::InjectAfter => {
                send(at, real);
                send(soon, misfit);
                expect(Named::Injected);
            }
            Fault::InjectBefore => {
                send(at - 1, misfit);
                send(at, real);
                expect(Named::Altered);
                expect(Named::Injected);
            }
            Fault::Forge => {
                send(at, other);
                expect(Named::Forged);
                expect(Named::Repaired);
            }
            Fault::ConflictAfter => {
                send(at, real);
                send(soon, other);
                expect(Named::Conflict);
                expect(Named::FirstIsReal);
            }
            Fault::ConflictBefore => {
                send(at, other);
                send(soon, real);
                expect(Named::Conflict);
                expect(Named::SecondIsReal);
                expect(Named::Forged);
                expect(Named::Repaired);
            }
            Fault::Drop => {
                drops += 1;
                items.push((at, Item::Drop(number, real.leaf)));
            }
        }
    }
    items.sort_by_key(|(at, _)| *at);
    let mut items: Vec<Item> = items.into_iter().map(|(_, item)| item).collect();
    items.push(Item::Checkpoint(Box::new(last)));
    expected.sort_unstable();
    Scene {
        lane,
        items,
        expected,
        drops,
    }
}
