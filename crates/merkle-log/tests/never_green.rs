//! Never green by omission: whatever is lost, of messages, checkpoints and directories, each
//! message that a producer issued has come, is named as lost, or lies in what the receiver says is
//! out of scope; and a window that is proven lacks nothing.

#![allow(clippy::unwrap_used, reason = "a test fails by panic")]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::prelude::*;
use unbroken_merkle_log::ledger::{Event, Join, Ledger, LedgerLimits, State};
use unbroken_merkle_log::{
    Checkpoint, Directory, Epoch, Hasher, Lane, LaneId, LaneLimits, OpenLane,
};

const SECOND: Duration = Duration::from_secs(1);

/// An epoch of the lane: how many messages, which of them are lost, and whether its directory and
/// all but its last checkpoint are.
#[derive(Clone, Debug)]
struct Life {
    size: u64,
    lost: BTreeSet<u64>,
    directory_is_lost: bool,
    checkpoints_are_lost: bool,
}

fn lives() -> impl Strategy<Value = Vec<Life>> {
    let numbers = prop_oneof![0..4_u64, 0..1_100_u64];
    let lost = prop::collection::btree_set(numbers, 0..6);
    let life = (1..1_200_u64, lost, any::<bool>(), any::<bool>());
    let life = life.prop_map(
        |(size, lost, directory_is_lost, checkpoints_are_lost)| Life {
            size,
            lost,
            directory_is_lost,
            checkpoints_are_lost,
        },
    );
    prop::collection::vec(life, 1..4)
}

/// What the receiver says of one epoch.
#[derive(Debug, Default)]
struct Said {
    lost: BTreeSet<u64>,
    out_of_scope: u64,
    proven: BTreeSet<u64>,
}

fn hear(ledger: &mut Ledger<Hasher>, checkpoint: &Checkpoint, now: Duration) {
    ledger.checkpoint(checkpoint, now);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn each_message_has_come_or_is_named_or_is_out_of_scope(
        lives in lives(),
        joins_at in 0..3_000_u64,
    ) {
        let hasher = Hasher::xxh3();
        let id = LaneId::new(7).unwrap();
        let mut ledger = Ledger::new(hasher.clone(), LedgerLimits::default(), Join::Late);
        ledger.resume(Duration::ZERO);
        let (mut now, mut sent) = (Duration::ZERO, 0_u64);
        let mut said: BTreeMap<u32, Said> = BTreeMap::new();
        // The epoch in which the receiver joined.
        let mut joined: Option<u32> = None;
        for (epoch, life) in (0..).zip(&lives) {
            let mut lane = Lane::new(id, Epoch(epoch), LaneLimits::default(), now);
            if sent >= joins_at && !life.directory_is_lost {
                joined.get_or_insert(epoch);
                let directory = Directory {
                    producer: 7,
                    epoch: Epoch(epoch),
                    number: 0,
                    time_us: 0,
                    lanes: vec![OpenLane { lane: id, epoch: Epoch(epoch), size: 0 }],
                };
                ledger.directory(&directory, now, |_| true);
            }
            for number in 0..life.size {
                let property = lane.issue(*b"t", number.to_be_bytes(), &hasher);
                let is_there = sent >= joins_at;
                sent += 1;
                if is_there && !life.lost.contains(&number) {
                    joined.get_or_insert(epoch);
                    ledger.message(&property, b"t", &number.to_be_bytes(), now);
                }
                now += Duration::from_millis(2);
                let checkpoint = lane.poll_checkpoint(now, 0, &hasher);
                if is_there && !life.checkpoints_are_lost && let Some(checkpoint) = checkpoint {
                    joined.get_or_insert(epoch);
                    hear(&mut ledger, &checkpoint, now);
                }
            }
            let last = lane.close(0, &hasher).unwrap();
            if sent >= joins_at {
                joined.get_or_insert(epoch);
                hear(&mut ledger, &last, now);
            }
            now += SECOND * 2;
            ledger.poll(now);
            for (_, Epoch(epoch), event) in ledger.take_events() {
                let said = said.entry(epoch).or_default();
                match event {
                    Event::Lost { numbers, .. } => said.lost.extend(numbers),
                    Event::OutOfScope(below) => said.out_of_scope = below,
                    Event::Window { numbers, state, .. } => {
                        said.proven.retain(|number| !numbers.contains(number));
                        if state == State::Proven {
                            said.proven.extend(numbers);
                        }
                    }
                    _ => {}
                }
            }
        }
        let Some(joined) = joined else {
            return Ok(());
        };
        for (epoch, life) in (0..).zip(&lives).skip(joined as usize) {
            let said = said.remove(&epoch).unwrap_or_default();
            prop_assert!(epoch == joined || said.out_of_scope == 0, "epoch {}: {:?}", epoch, said);
            let lost = life.lost.iter().filter(|number| **number < life.size);
            for number in lost.filter(|number| **number >= said.out_of_scope) {
                prop_assert!(said.lost.contains(number), "epoch {epoch}, {number}: {said:?}");
                prop_assert!(!said.proven.contains(number), "epoch {epoch}, {number}");
            }
        }
    }
}
