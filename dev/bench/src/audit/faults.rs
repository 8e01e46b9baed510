//! How well: a million swaps and a million messages with faults, as what goes unseen.

use std::collections::BTreeMap;
use std::time::Duration;

use unbroken_merkle_log::ledger::{
    Arrival, Event, Join, LaneLedger, LedgerLimits, Request, Verdict,
};
use unbroken_merkle_log::{Epoch, Hash, Hasher, Lane, LaneId, LaneLimits};

use crate::figure::{Bar, Figure};

pub(super) fn figures(smoke: bool) -> Vec<Figure> {
    let none = |name, title, unit| Figure::new(name, title, unit, Some(Bar::AtMost(0.0)));
    let count: u32 = if smoke { 50_000 } else { 1_000_000 };
    // As many to a window as the bar has, then twenty times as many.
    let (missing, wrong) = mixed(u64::from(count), u64::from(count) / 1_000);
    let (missing_dense, wrong_dense) = mixed(u64::from(count), u64::from(count) / 50);
    vec![
        none("swaps", "of a million swaps of neighbours", "unseen").with(swaps(count)),
        none(
            "faults",
            "of 1,000 faults among a million messages",
            "unseen",
        )
        .with(missing),
        none("dense", "of 20,000 faults, 20 in each window", "unseen").with(missing_dense),
        none("false", "verdicts on the others, in both", "wrong").with(wrong + wrong_dense),
    ]
}

fn arrival(number: u64, leaf: Hash) -> Arrival {
    Arrival {
        number,
        leaf,
        fits: true,
        resent: false,
        part: None,
    }
}

fn swaps(count: u32) -> f64 {
    let (hasher, limits) = (Hasher::xxh3(), LedgerLimits::default());
    let leaf = Hash::new(&[1; 16]).expect("16 bytes are a hash");
    let mut ledger = LaneLedger::new(Join::Beginning);
    for swap in 0..u64::from(count) {
        for place in [0, 2, 1, 3] {
            let arrival = arrival(swap * 4 + place, leaf);
            ledger.observe(&arrival, Duration::ZERO, &limits, &hasher);
        }
        ledger.take_events();
    }
    let moved = u32::try_from(ledger.moved()).unwrap_or(u32::MAX);
    apart(count, moved)
}

/// How far a count is from what it should be: too many is as wrong as too few.
fn apart(expected: u32, found: u32) -> f64 {
    f64::from(expected.abs_diff(found))
}

/// What is done to a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Lose,
    Repeat,
    Swap,
    Alter,
    Forge,
}

/// Injections every so many messages in turn, and holds what the ledger says against that: how many
/// injected faults were not named, and how many verdicts are wrong.
fn mixed(count: u64, injections: u64) -> (f64, f64) {
    let (hasher, limits) = (Hasher::xxh3(), LedgerLimits::default());
    let id = LaneId::new(7).expect("7 is a lane");
    let mut lane = Lane::new(id, Epoch(0), LaneLimits::default(), Duration::ZERO);
    let mut ledger = LaneLedger::new(Join::Beginning);
    let mut named: BTreeMap<u64, Fault> = BTreeMap::new();
    let mut wrong = 0_u32;
    let step = count / injections;
    let kinds = [
        Fault::Lose,
        Fault::Repeat,
        Fault::Swap,
        Fault::Alter,
        Fault::Forge,
    ];
    let injection_of = |number: u64| {
        let injection = (number % step == step / 2).then_some(number / step)?;
        kinds.get(usize::try_from(injection % 5).ok()?).copied()
    };
    let mut held = None;
    let mut now = Duration::ZERO;
    for number in 0..count {
        let leaf = lane.issue(*b"t", number.to_be_bytes(), &hasher).digest;
        let good = arrival(number, leaf);
        let sent = match injection_of(number) {
            None => vec![good],
            Some(Fault::Lose) => vec![],
            Some(Fault::Repeat) => vec![good, good],
            Some(Fault::Swap) => {
                held = Some(good);
                vec![]
            }
            Some(Fault::Alter) => vec![Arrival {
                fits: false,
                ..good
            }],
            Some(Fault::Forge) => {
                let leaf = Hash::new(&[9; 16]).expect("16 bytes are a hash");
                vec![Arrival { leaf, ..good }]
            }
        };
        let late = held.take_if(|held| held.number < number);
        for arrival in sent.into_iter().chain(late) {
            let verdict = ledger.observe(&arrival, now, &limits, &hasher);
            let found = named_as(verdict, &mut wrong);
            named.extend(found.map(|injection| (arrival.number, injection)));
        }
        now += Duration::from_micros(100);
        while let Some(checkpoint) = lane.poll_checkpoint(now, 0, &hasher) {
            ledger.checkpoint(&checkpoint, now, &limits, &hasher);
        }
        if number % 256 == 0 || number + 1 == count {
            ledger.poll(now, &limits, &hasher);
            ask(&lane, &mut ledger, now, &hasher);
            note(&mut ledger, &mut named, &mut wrong);
        }
    }
    end(&lane, &mut ledger, now, &hasher);
    note(&mut ledger, &mut named, &mut wrong);
    let mut missing = 0_u32;
    for number in 0..count {
        match (injection_of(number), named.get(&number)) {
            (Some(_), None) => missing += 1,
            (is, named) if is.as_ref() != named => wrong += 1,
            _ => {}
        }
    }
    (f64::from(missing), f64::from(wrong))
}

/// The fault that a verdict names; any other fault is wrong.
fn named_as(verdict: Verdict, wrong: &mut u32) -> Option<Fault> {
    match verdict {
        Verdict::InOrder | Verdict::Ahead => None,
        Verdict::Duplicate | Verdict::Repeated => Some(Fault::Repeat),
        Verdict::Late => Some(Fault::Swap),
        Verdict::Altered => Some(Fault::Alter),
        _ => {
            *wrong += 1;
            None
        }
    }
}

/// Closes the lane, and repairs what is missing.
fn end(lane: &Lane, ledger: &mut LaneLedger, now: Duration, hasher: &Hasher) {
    let limits = LedgerLimits::default();
    let last = now + Duration::from_secs(2);
    let end = lane.clone().close(0, hasher).expect("messages were issued");
    ledger.checkpoint(&end, now, &limits, hasher);
    ledger.poll(last, &limits, hasher);
    ask(lane, ledger, last, hasher);
}

/// Has what is lost sent again, and what differs compared, until there is nothing new to ask: what
/// was repaired last may show that a window differs, and each step of its descent asks for the
/// next.
fn ask(lane: &Lane, ledger: &mut LaneLedger, now: Duration, hasher: &Hasher) {
    let mut asked = Vec::new();
    loop {
        let requests = ledger.requests();
        if requests == asked {
            return;
        }
        for request in &requests {
            if let Request::Numbers(numbers) = request {
                for number in lane.repair(numbers).held.into_iter().flatten() {
                    let again = lane.resend(number, hasher).expect("it is held");
                    let arrival = Arrival {
                        resent: true,
                        ..arrival(number, again.property.digest)
                    };
                    ledger.observe(&arrival, now, &LedgerLimits::default(), hasher);
                }
            }
            if let Some(answer) = lane.answer(request, hasher) {
                // One that no longer fits is asked for again.
                let _ = ledger.answer(&answer, hasher);
            }
        }
        asked = requests;
    }
}

fn note(ledger: &mut LaneLedger, named: &mut BTreeMap<u64, Fault>, wrong: &mut u32) {
    for event in ledger.take_events() {
        match event {
            Event::Lost { numbers, .. } => {
                named.extend(numbers.map(|number| (number, Fault::Lose)));
            }
            Event::Forged(numbers) | Event::ForgedAmong(numbers) => {
                named.extend(numbers.map(|number| (number, Fault::Forge)));
            }
            Event::Window { account, .. } => *wrong += u32::from(!account.is_lawful()),
            Event::Injected { .. } | Event::CheckpointContradicts(_) | Event::Silent(_) => {
                *wrong += 1;
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_many_moves_are_as_wrong_as_too_few() {
        assert!([8, 12].iter().all(|found| apart(10, *found) > 0.0));
        assert!(apart(10, 10) <= 0.0);
        assert!(swaps(100) <= 0.0);
    }
}
