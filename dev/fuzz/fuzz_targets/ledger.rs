//! Any bytes as what happens to a lane between a producer and a receiver: whatever happens, the
//! ledger does not panic, keeps its law and its limits, and is the same after a restart.
//!
//! Input: operations of two bytes, what and how much.

#![no_main]

use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use unbroken_merkle_log::ledger::{Arrival, Event, Join, LaneLedger, LedgerLimits, Request, State};
use unbroken_merkle_log::{
    CompactRange, DetailLevel, Digest, Epoch, Hash, Hasher, Lane, LaneId, LaneLimits,
};

struct Line {
    hasher: Hasher,
    limits: LedgerLimits,
    lane: Lane,
    leaves: Vec<Hash>,
    ledger: LaneLedger,
    now: Duration,
}

fuzz_target!(|input: &[u8]| {
    let [join, detail, operations @ ..] = input else {
        return;
    };
    let join = [Join::Beginning, Join::Late, Join::Member][usize::from(join % 3)];
    let mut limits = LaneLimits::default();
    limits.detail = [
        DetailLevel::None,
        DetailLevel::Fingerprints,
        DetailLevel::Leaves,
    ][usize::from(detail % 3)];
    let mut receiving = LedgerLimits::default();
    receiving.open_windows_max = 3;
    receiving.gaps_max = 20;
    let id = LaneId::new(1).expect("not 0");
    let mut line = Line {
        hasher: Hasher::xxh3(),
        limits: receiving,
        lane: Lane::new(id, Epoch(0), limits, Duration::ZERO),
        leaves: Vec::new(),
        ledger: LaneLedger::new(join),
        now: Duration::ZERO,
    };
    for operation in operations.as_chunks::<2>().0 {
        line.apply(operation[0], u64::from(operation[1]));
    }
});

impl Line {
    fn apply(&mut self, what: u8, much: u64) {
        match what % 12 {
            0 | 1 => (0..much * 8).for_each(|_| {
                self.issue();
                self.arrive(self.leaves.len() as u64 - 1, true, false, false);
            }),
            2 => (0..much).for_each(|_| self.issue()),
            3 => self.back(much, |line, number| line.arrive(number, true, false, false)),
            4 => self.back(much, |line, number| {
                line.arrive(number, false, false, false)
            }),
            5 => self.back(much, |line, number| line.arrive(number, true, true, false)),
            6 => self.back(much, |line, number| line.arrive(number, true, false, true)),
            7 => self.back(much, |line, number| {
                let leaf = line.leaves[usize::try_from(number).expect("it is an index")];
                let (limits, digest) = (&line.limits, &line.hasher);
                line.ledger
                    .dropped(number, &[leaf], line.now, limits, digest);
            }),
            8 => self.back(much, |line, number| {
                let begin = number / 32 * 32;
                let mut range = CompactRange::new(begin);
                for leaf in line.leaves.iter().skip(begin as usize).take(32) {
                    range.append(&line.hasher, *leaf);
                }
                let (limits, digest) = (&line.limits, &line.hasher);
                line.ledger.parents(&range, line.now, limits, digest);
            }),
            9 => {
                while let Some(checkpoint) = self.lane.poll_checkpoint(self.now, 0, &self.hasher) {
                    if much % 4 > 0 {
                        let (limits, digest) = (&self.limits, &self.hasher);
                        self.ledger
                            .checkpoint(&checkpoint, self.now, limits, digest);
                    }
                }
            }
            10 => {
                self.now += Duration::from_millis(much * 20);
                self.ledger.poll(self.now, &self.limits, &self.hasher);
            }
            _ => self.ask(),
        }
        self.check();
    }

    fn issue(&mut self) {
        let property = self.lane.issue(*b"t", *b"p", &self.hasher);
        self.leaves.push(property.digest);
    }

    /// Does something with the message so far back.
    fn back(&mut self, much: u64, act: impl FnOnce(&mut Self, u64)) {
        if let Some(number) = (self.leaves.len() as u64).checked_sub(much + 1) {
            act(self, number);
        }
    }

    fn arrive(&mut self, number: u64, fits: bool, resent: bool, forged: bool) {
        let leaf = self.leaves[usize::try_from(number).expect("it is an index")];
        let other = self.hasher.leaf(&[b"forged"]);
        let arrival = Arrival {
            number,
            leaf: if forged { other } else { leaf },
            fits,
            resent,
            part: None,
        };
        let (limits, digest) = (&self.limits, &self.hasher);
        self.ledger.observe(&arrival, self.now, limits, digest);
    }

    fn ask(&mut self) {
        for request in self.ledger.requests() {
            if let Request::Numbers(numbers) = &request {
                for number in self
                    .lane
                    .repair(numbers)
                    .held
                    .into_iter()
                    .flatten()
                    .take(50)
                {
                    self.arrive(number, true, true, false);
                }
            }
            if let Some(answer) = self.lane.answer(&request, &self.hasher) {
                let _ = self.ledger.answer(&answer, &self.hasher);
            }
        }
    }

    fn check(&mut self) {
        for event in self.ledger.take_events() {
            if let Event::Window { state, account, .. } = event {
                assert!(account.is_lawful(), "{state:?} {account:?}");
                assert!(state == State::Unproven || account.open == 0);
                assert!(
                    state != State::Proven || account.issued == account.arrived + account.dropped
                );
            }
        }
        assert!(self.ledger.memory_bytes() < 1 << 20);
        let mut saved = Vec::new();
        self.ledger.save(&self.hasher, &mut saved);
        let restored = LaneLedger::restore(&saved, &self.hasher);
        assert_eq!(restored.as_ref(), Ok(&self.ledger));
    }
}
