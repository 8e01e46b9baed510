//! How soon a receiver knows, at the limits that everybody has who changes none. The clock is the
//! test's, and time passes for the ledger as it does for a subscriber, in steps of 50 ms.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::time::Duration;

use unbroken_merkle_log::ledger::{Event, Join, Ledger, LedgerLimits};
use unbroken_merkle_log::{Epoch, Hasher, Lane, LaneId, LaneLimits};

const STEP: Duration = Duration::from_millis(50);

/// A lane and its receiver, which hears everything at once but what is lost.
struct Line {
    lane: Lane,
    ledger: Ledger<Hasher>,
    now: Duration,
    /// When messages were issued, by number.
    issued: Vec<Duration>,
    events: Vec<(Duration, Event)>,
}

impl Line {
    fn new() -> Self {
        let (id, limits) = (LaneId::new(7).unwrap(), LaneLimits::default());
        let limits_of_ledger = LedgerLimits::default();
        let mut ledger = Ledger::new(Hasher::xxh3(), limits_of_ledger, Join::Beginning);
        ledger.resume(Duration::ZERO);
        Self {
            lane: Lane::new(id, Epoch(0), limits, Duration::ZERO),
            ledger,
            now: Duration::ZERO,
            issued: Vec::new(),
            events: Vec::new(),
        }
    }

    fn send(&mut self, is_lost: bool) {
        let property = self.lane.issue(*b"t", *b"p", &Hasher::xxh3());
        self.issued.push(self.now);
        if !is_lost {
            self.ledger.message(&property, b"t", b"p", self.now);
        }
        self.note();
    }

    /// Lets time pass, with the producer's checkpoints while there is one.
    fn pass(&mut self, time: Duration, has_producer: bool) {
        let until = self.now + time;
        while self.now < until {
            self.now = (self.now + STEP).min(until);
            let mut speaking = has_producer.then_some(&mut self.lane);
            while let Some(lane) = &mut speaking
                && let Some(checkpoint) = lane.poll_checkpoint(self.now, 0, &Hasher::xxh3())
            {
                self.ledger.checkpoint(&checkpoint, self.now);
            }
            self.ledger.poll(self.now);
            self.note();
        }
    }

    fn note(&mut self) {
        let events = self.ledger.take_events();
        self.events
            .extend(events.map(|(.., event)| (self.now, event)));
    }

    fn first(&self, is_it: impl Fn(&Event) -> bool) -> Option<Duration> {
        let mut events = self.events.iter();
        events.find(|(_, event)| is_it(event)).map(|(at, _)| *at)
    }
}

#[test]
fn a_loss_is_suspected_at_the_next_message_and_confirmed_within_two_seconds() {
    for interval_ms in [10, 130, 700, 3_000, 12_000] {
        // Wherever the heartbeats fall between the messages.
        for lost in 0..(4_000 / interval_ms + 3).min(120) {
            let mut line = Line::new();
            for number in 0..lost + 2 {
                line.send(number == lost);
                line.pass(Duration::from_millis(interval_ms), true);
            }
            line.pass(Duration::from_secs(2), true);
            let at = usize::try_from(lost).unwrap();
            let (lost_at, next_at) = (line.issued[at], line.issued[at + 1]);
            let suspected = line.first(|event| *event == Event::Suspected(lost..lost + 1));
            let confirmed = line.first(is_loss).unwrap();
            // In a slow lane a checkpoint tells before the next message does.
            assert!(suspected == Some(next_at) || confirmed < next_at);
            let in_time = lost_at + Duration::from_secs(2);
            assert!(confirmed <= in_time, "{confirmed:?} at {interval_ms}");
        }
    }
}

fn is_loss(event: &Event) -> bool {
    matches!(event, Event::Lost { .. })
}

#[test]
fn the_loss_of_the_last_messages_is_confirmed_within_two_seconds() {
    for before in 1..30 {
        let mut line = Line::new();
        for number in 0..before + 2 {
            line.send(number >= before);
            line.pass(Duration::from_millis(70), true);
        }
        let lost_at = line.issued[before];
        line.pass(Duration::from_secs(10), true);
        let confirmed = line.first(is_loss).unwrap();
        assert!(
            confirmed <= lost_at + Duration::from_secs(2),
            "{confirmed:?}"
        );
    }
}

#[test]
fn the_loss_of_many_windows_at_the_end_is_confirmed_whole() {
    let windows = 12;
    let mut line = Line::new();
    line.send(false);
    for _ in 1..windows * 1_024 {
        line.send(true);
    }
    // Their checkpoints are read all at once, and no later one tells anything new.
    line.pass(Duration::from_secs(10), true);
    let mut lost = 0;
    for (at, event) in &line.events {
        if let Event::Lost { numbers, .. } = event {
            assert!(*at <= Duration::from_secs(2), "{numbers:?} at {at:?}");
            lost += numbers.end - numbers.start;
        }
    }
    assert_eq!(lost, windows * 1_024 - 1);
}

#[test]
fn silence_is_found_in_two_heartbeats() {
    let limits = LedgerLimits::default();
    // In use, and after a checkpoint that told nothing new.
    let lives = [(1, limits.heartbeat), (30, limits.idle_heartbeat)];
    for (seconds, heartbeat) in lives {
        let mut line = Line::new();
        line.send(false);
        line.pass(Duration::from_secs(seconds), true);
        assert_eq!(line.first(is_silence), None);
        line.pass(heartbeat * 3, false);
        let found = line.first(is_silence).unwrap();
        let since = Duration::from_secs(seconds);
        assert!(found <= since + heartbeat * 2, "{found:?}");
        assert!(found > since + heartbeat / 2, "{found:?}");
    }
}

fn is_silence(event: &Event) -> bool {
    matches!(event, Event::Silent(_))
}

#[test]
fn silence_ends_with_the_next_checkpoint_and_both_say_how_long_it_was() {
    let heartbeat = LedgerLimits::default().heartbeat;
    let mut line = Line::new();
    line.send(false);
    line.pass(Duration::from_secs(1), true);
    line.pass(heartbeat * 5, false);
    line.send(false);
    line.pass(Duration::from_secs(1), true);
    let silences = line.events.iter().filter_map(|(_, event)| match event {
        Event::Silent(since) => Some(("silent", *since)),
        Event::Heard(since) => Some(("heard", *since)),
        _ => None,
    });
    let silences: Vec<_> = silences.collect();
    let [("silent", first), ("heard", whole)] = silences[..] else {
        panic!("{silences:?}");
    };
    assert!(first >= heartbeat * 2 && first < heartbeat * 3, "{first:?}");
    assert!(whole >= heartbeat * 5 && whole < heartbeat * 8, "{whole:?}");
}

#[test]
fn what_is_suspected_is_settled_once_when_all_of_it_is_lost() {
    let mut line = Line::new();
    for number in 0..10 {
        line.send(number == 3 || number == 5);
        line.pass(Duration::from_millis(10), true);
    }
    line.pass(Duration::from_secs(3), true);
    let kinds = line.events.iter().filter_map(|(_, event)| match event {
        Event::Suspected(numbers) => Some(("suspected", numbers.start)),
        Event::Lost { numbers, .. } => Some(("lost", numbers.start)),
        Event::Settled => Some(("settled", 0)),
        _ => None,
    });
    let expect = [
        ("suspected", 3),
        ("suspected", 5),
        ("lost", 3),
        ("lost", 5),
        ("settled", 0),
    ];
    assert_eq!(kinds.collect::<Vec<_>>(), expect);
}
