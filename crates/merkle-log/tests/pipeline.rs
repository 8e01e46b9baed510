//! A producer, a processor that filters and makes batches, and a receiver that holds what comes
//! against the producer's checkpoints.

#![allow(clippy::unwrap_used, reason = "a test fails by panic")]

use std::time::Duration;

use unbroken_merkle_log::ledger::{
    Account, Answer, Event, Join, Ledger, LedgerLimits, Request, State, StateError, Verdict,
};
use unbroken_merkle_log::{
    DropReason, DropRecord, Epoch, Hasher, Lane, LaneId, LaneLimits, Parents, Property,
};

const SECOND: Duration = Duration::from_secs(1);

struct Pipeline {
    hasher: Hasher,
    lane: Lane,
    ledger: Ledger<Hasher>,
    windows: Vec<(u64, State, Account)>,
    events: Vec<Event>,
}

impl Pipeline {
    fn new() -> Self {
        let hasher = Hasher::xxh3();
        let id = LaneId::new(1).unwrap();
        let mut ledger = Ledger::new(hasher.clone(), LedgerLimits::default(), Join::Beginning);
        ledger.resume(Duration::ZERO);
        Self {
            lane: Lane::new(id, Epoch(0), LaneLimits::default(), Duration::ZERO),
            hasher,
            ledger,
            windows: Vec::new(),
            events: Vec::new(),
        }
    }

    fn issue(&mut self, count: u64) -> Vec<Property> {
        let issue = |_| {
            let payload = self.lane.size().to_be_bytes();
            self.lane.issue(*b"t", payload, &self.hasher)
        };
        (0..count).map(issue).collect()
    }

    fn drop(&mut self, dropped: &[Property]) -> Option<u64> {
        let record = DropRecord::of(DropReason::FILTERED, dropped).unwrap();
        let mut bytes = Vec::new();
        record.encode(&self.hasher, &mut bytes).unwrap();
        let record = DropRecord::parse(&bytes).unwrap();
        let record = record.open(&self.hasher).unwrap();
        self.ledger.dropped(&record, Duration::ZERO)
    }

    fn batch(&mut self, messages: &[Property]) -> Vec<(std::ops::Range<u64>, Verdict)> {
        let parents = Parents::of(&self.hasher, messages).unwrap();
        let parents = Parents::parse_text(&parents.to_text().unwrap()).unwrap();
        let verdicts = self.ledger.parents(&parents, Duration::ZERO);
        let runs = verdicts.into_iter().map(|(_, _, run, is)| (run, is));
        runs.collect()
    }

    /// Tells every checkpoint that is due, and lets the lateness bound pass.
    fn settle(&mut self) {
        while let Some(checkpoint) = self.lane.poll_checkpoint(SECOND, 0, &self.hasher) {
            assert!(self.ledger.checkpoint(&checkpoint, SECOND));
        }
        self.ledger.poll(SECOND * 2);
        for (_, _, event) in self.ledger.take_events() {
            match event {
                Event::Window {
                    numbers,
                    state,
                    account,
                } => {
                    assert!(account.is_lawful(), "{account:?}");
                    self.windows.push((numbers.start, state, account));
                }
                event => self.events.push(event),
            }
        }
    }
}

#[test]
fn a_filter_that_declares_its_drops_is_proven() {
    let mut pipeline = Pipeline::new();
    let messages = pipeline.issue(2_048);
    let (dropped, passed): (Vec<_>, Vec<_>) = messages
        .iter()
        .partition(|message| message.sequence % 3 == 0);
    for message in &passed {
        pipeline.ledger.origin(message, Duration::ZERO);
    }
    assert_eq!(pipeline.drop(&dropped), Some(683));
    assert_eq!(pipeline.drop(&dropped), Some(0));
    pipeline.settle();
    let accounts: Vec<_> = pipeline
        .windows
        .iter()
        .map(|(first, state, account)| (*first, *state, account.arrived, account.dropped))
        .collect();
    assert_eq!(
        accounts,
        [
            (0, State::Proven, 682, 342),
            (1_024, State::Proven, 683, 341)
        ]
    );
}

#[test]
fn a_drop_that_opens_a_window_is_counted_in_it() {
    let mut pipeline = Pipeline::new();
    let messages = pipeline.issue(1_024);
    assert_eq!(pipeline.drop(&messages), Some(1_024));
    pipeline.settle();
    let (_, state, account) = pipeline.windows[0];
    assert_eq!((state, account.dropped), (State::Proven, 1_024));
}

#[test]
fn batches_that_name_their_parents_are_proven() {
    let mut pipeline = Pipeline::new();
    let messages = pipeline.issue(3_000);
    for batch in messages.chunks(100) {
        for (_, verdict) in pipeline.batch(batch) {
            assert_eq!(verdict, Verdict::InOrder);
        }
    }
    pipeline.settle();
    let proven: Vec<_> = pipeline
        .windows
        .iter()
        .map(|(first, state, _)| (*first, *state))
        .collect();
    assert_eq!(proven[..2], [(0, State::Proven), (1_024, State::Proven)]);
    assert_eq!(pipeline.events, []);
}

#[test]
fn a_batch_that_comes_late_or_again_is_called_so() {
    let mut pipeline = Pipeline::new();
    let messages = pipeline.issue(250);
    let (first, second) = (&messages[..100], &messages[100..200]);
    assert_eq!(
        pipeline.batch(second),
        [(100..101, Verdict::Ahead), (101..200, Verdict::InOrder)]
    );
    assert_eq!(pipeline.batch(first), [(0..100, Verdict::Late)]);
    assert_eq!(pipeline.batch(first), [(0..100, Verdict::Duplicate)]);
    // Half of it was seen.
    assert_eq!(
        pipeline.batch(&messages[150..250]),
        [(150..200, Verdict::Repeated), (200..250, Verdict::InOrder)]
    );
    pipeline.settle();
    assert!(pipeline.events.contains(&Event::Suspected(0..100)));
    assert!(
        !pipeline
            .events
            .iter()
            .any(|event| matches!(event, Event::Lost { .. }))
    );
}

#[test]
fn a_message_that_no_batch_names_is_lost() {
    let mut pipeline = Pipeline::new();
    let messages = pipeline.issue(1_024);
    pipeline.batch(&messages[..500]);
    pipeline.batch(&messages[501..]);
    pipeline.settle();
    let lost = Event::Lost {
        numbers: 500..501,
        tail: false,
    };
    assert!(pipeline.events.contains(&lost), "{:?}", pipeline.events);
    let repaired = Property {
        flags: unbroken_merkle_log::Flags {
            resent: true,
            ..Default::default()
        },
        ..messages[500]
    };
    assert_eq!(pipeline.ledger.origin(&repaired, SECOND), Verdict::Repaired);
    pipeline.settle();
    let (first, state, account) = *pipeline.windows.last().unwrap();
    assert_eq!((first, state, account.arrived), (0, State::Proven, 1_024));
}

#[test]
fn a_forged_parent_is_found_and_its_batch_is_asked_for_again() {
    for (from, to, size) in [(64, 128, 2_000), (96, 100, 2_000), (512, 1_024, 1_024)] {
        let mut pipeline = Pipeline::new();
        let messages = pipeline.issue(size);
        let mut forged = messages.clone();
        forged[usize::try_from(from).unwrap() + 1].digest = [3; 16].into();
        pipeline.batch(&messages[..usize::try_from(from).unwrap()]);
        pipeline.batch(&forged[usize::try_from(from).unwrap()..usize::try_from(to).unwrap()]);
        pipeline.batch(&messages[usize::try_from(to).unwrap()..]);
        pipeline.settle();
        for _ in 0..2 {
            let requests: Vec<_> = pipeline.ledger.requests().collect();
            for (lane, epoch, request) in requests {
                let mut bytes = Vec::new();
                request.encode(epoch, &mut bytes);
                let (epoch, request) = Request::parse(&bytes).unwrap();
                if let Some(answer) = pipeline.lane.answer(&request, &pipeline.hasher) {
                    pipeline.ledger.answer(lane, epoch, &answer).unwrap();
                }
            }
        }
        pipeline.settle();
        // The smallest subtree that the batch declared around it.
        let end = if from == 96 { 100 } else { to };
        assert!(
            pipeline.events.contains(&Event::ForgedAmong(from..end)),
            "{:?}",
            pipeline.events
        );
        for number in from..end {
            let message = pipeline.lane.resend(number, &pipeline.hasher).unwrap();
            let verdict = pipeline.ledger.origin(&message.property, SECOND);
            assert_eq!(verdict, Verdict::Repaired);
        }
        pipeline.settle();
        let (_, state, _) = pipeline
            .windows
            .iter()
            .rfind(|(first, ..)| *first == 0)
            .unwrap();
        assert_eq!(*state, State::Proven);
    }
}

#[test]
fn what_is_said_to_be_no_longer_held_stays_lost_and_is_asked_for_until_it_comes() {
    let mut pipeline = Pipeline::new();
    let messages = pipeline.issue(1_024);
    for message in messages.iter().filter(|message| message.sequence != 7) {
        pipeline.ledger.origin(message, Duration::ZERO);
    }
    pipeline.settle();
    let (lane, epoch, request) = pipeline.ledger.requests().next().unwrap();
    let Request::Numbers(gaps) = request else {
        panic!("{request:?} is not about numbers");
    };
    pipeline
        .ledger
        .answer(lane, epoch, &Answer::NotHeld(gaps.clone()))
        .unwrap();
    let again: Vec<_> = pipeline.ledger.requests().collect();
    assert_eq!(again, [(lane, epoch, Request::Numbers(gaps))]);
    let (_, state, account) = *pipeline.windows.last().unwrap();
    assert_eq!((state, account.lost), (State::Faulty, 1));
    // Should it come all the same, it is taken.
    assert_eq!(pipeline.ledger.origin(&messages[7], SECOND), Verdict::Found);
    assert_eq!(pipeline.ledger.requests().count(), 0);
}

#[test]
fn a_ledger_of_many_lanes_goes_on_from_the_saved_position() {
    let hasher = Hasher::xxh3();
    let mut pipeline = Pipeline::new();
    let mut other = Lane::new(
        LaneId::new(2).unwrap(),
        Epoch(4),
        LaneLimits::default(),
        SECOND,
    );
    let messages = pipeline.issue(3_000);
    let others: Vec<_> = (0..10_u8)
        .map(|number| other.issue(*b"o", [number], &hasher))
        .collect();
    for message in &messages[..1_500] {
        pipeline.ledger.origin(message, Duration::ZERO);
    }
    pipeline.ledger.message(&others[3], b"o", &[3], SECOND / 2);
    pipeline.batch(&messages[1_600..1_700]);
    pipeline.ledger.pause(SECOND / 2);
    assert!(pipeline.ledger.take_events().count() > 0);
    let mut saved = Vec::new();
    pipeline.ledger.save(b"offset 1501", SECOND, &mut saved);

    let restore =
        |bytes: &[u8]| Ledger::restore(bytes, hasher.clone(), LedgerLimits::default(), Join::Late);
    let (mut restored, position) = restore(&saved).unwrap();
    assert_eq!(position, b"offset 1501");
    let mut again = Vec::new();
    restored.save(&position, Duration::ZERO, &mut again);
    assert_eq!(again, saved);
    for ledger in [&mut pipeline.ledger, &mut restored] {
        assert_eq!(ledger.origin(&messages[1_499], SECOND), Verdict::Repeated);
        assert_eq!(ledger.origin(&messages[1_500], SECOND), Verdict::Late);
        assert_eq!(
            ledger.message(&others[3], b"o", &[3], SECOND),
            Verdict::Duplicate
        );
    }
    for at in (0..saved.len()).step_by(131) {
        let mut damaged = saved.clone();
        damaged[at] ^= 1;
        assert_eq!(restore(&damaged).err(), Some(StateError::Tag));
    }
}
