//! The load generator against a relay that loses, repeats, swaps and damages a known number of
//! messages.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on should say where"
)]

use std::{
    ops::ControlFlow,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};
use unbroken_bench::relay::{Fate, Relay};
use unbroken_load::{Extent, Figures, Observer, Progress, Report, Scenario, Settings, Unobserved};

/// Runs the scenario through a relay, without a warm-up, and returns what the generator counted.
fn figures(
    scenario: Scenario,
    change: impl FnOnce(&mut Settings),
    fate: impl FnMut() -> Fate + Send + 'static,
) -> Figures {
    report(scenario, change, fate).figures.unwrap()
}

fn report(
    scenario: Scenario,
    change: impl FnOnce(&mut Settings),
    fate: impl FnMut() -> Fate + Send + 'static,
) -> Report {
    observed(scenario, change, fate, &mut Unobserved)
}

fn observed(
    scenario: Scenario,
    change: impl FnOnce(&mut Settings),
    fate: impl FnMut() -> Fate + Send + 'static,
    observer: &mut dyn Observer,
) -> Report {
    let relay = Relay::bind(0).unwrap();
    let target = relay.address().unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let thread = thread::spawn(move || relay.run(Duration::ZERO, &stopped, fate));
    let mut settings = Settings::new(target, scenario);
    settings.warm_up = Duration::ZERO;
    settings.extent = Extent::Messages(1_000);
    change(&mut settings);
    let report = unbroken_load::run(settings, observer).unwrap();
    stop.store(true, Ordering::Relaxed);
    thread.join().unwrap().unwrap();
    report
}

/// Every hundredth message has this fate, from the fiftieth on.
fn every_hundredth(fate: Fate) -> impl FnMut() -> Fate + Send {
    let mut count = 0;
    move || {
        count += 1;
        if count % 100 == 50 { fate } else { Fate::Pass }
    }
}

#[test]
fn a_faultless_relay_delivers_everything_in_every_scenario() {
    for scenario in [
        Scenario::Pairs { connections: 20 },
        Scenario::Ping {
            pairs: 5,
            listeners: 0,
        },
        Scenario::FanOut { subscribers: 10 },
    ] {
        let figures = figures(scenario, |_| {}, || Fate::Pass);
        assert!(
            figures.tally.is_clean(),
            "{scenario:?}: {:?}",
            figures.tally
        );
        assert!(figures.tally.published >= 1_000);
    }
}

#[test]
fn several_threads_share_the_work_and_add_up() {
    let change = |settings: &mut Settings| settings.threads = 3;
    let figures = figures(Scenario::Pairs { connections: 20 }, change, || Fate::Pass);
    assert!(figures.tally.is_clean());
    assert_eq!(figures.tally.published, 10_000);
}

#[test]
fn batches_and_large_payloads_arrive_unaltered() {
    let change = |settings: &mut Settings| {
        settings.batch = 32;
        settings.payload = 5_000;
    };
    let figures = figures(Scenario::Pairs { connections: 4 }, change, || Fate::Pass);
    assert!(figures.tally.is_clean());
    assert_eq!(figures.tally.delivered, 2_000);
}

#[test]
fn an_open_loop_sends_exactly_what_was_asked() {
    let change = |settings: &mut Settings| settings.rate = Some(20_000.0);
    let figures = figures(Scenario::Pairs { connections: 4 }, change, || Fate::Pass);
    assert!(figures.tally.is_clean());
    assert_eq!(figures.tally.published, 2_000);
}

#[test]
fn lost_messages_are_counted_and_do_not_close_the_window() {
    let figures = figures(
        Scenario::Pairs { connections: 2 },
        |_| {},
        every_hundredth(Fate::Lose),
    );
    assert_eq!((figures.lost, figures.tally.delivered), (10, 990));
    assert!(!figures.tally.is_clean());
}

#[test]
fn repeated_messages_are_counted_and_not_as_deliveries() {
    let figures = figures(
        Scenario::Pairs { connections: 2 },
        |_| {},
        every_hundredth(Fate::Repeat),
    );
    assert_eq!(
        (
            figures.lost,
            figures.tally.duplicated,
            figures.tally.delivered
        ),
        (0, 10, 1_000)
    );
}

#[test]
fn overtaken_messages_are_reordered_and_not_lost() {
    let figures = figures(
        Scenario::Pairs { connections: 2 },
        |_| {},
        every_hundredth(Fate::Overtake),
    );
    assert_eq!(
        (
            figures.lost,
            figures.tally.reordered,
            figures.tally.delivered
        ),
        (0, 10, 1_000)
    );
}

#[test]
fn damaged_messages_are_corrupted_and_never_came_as_they_were() {
    let figures = figures(
        Scenario::Pairs { connections: 2 },
        |_| {},
        every_hundredth(Fate::Damage),
    );
    assert_eq!((figures.lost, figures.tally.corrupted), (10, 10));
}

/// One message of a publisher is under way at a time, so that a fate is that of a known one.
fn with_warm_up(settings: &mut Settings) {
    settings.window = 1;
    settings.warm_up = Duration::from_millis(100);
    settings.extent = Extent::Messages(10);
}

/// Message number `count` has this fate, counted from 1 through warm-up and measured phase.
fn only(count: u32, fate: Fate) -> impl FnMut() -> Fate + Send {
    let mut seen = 0;
    move || {
        seen += 1;
        if seen == count { fate } else { Fate::Pass }
    }
}

#[test]
fn a_message_lost_in_the_warm_up_is_found_and_is_none_of_the_measured_phase() {
    let scenario = Scenario::Pairs { connections: 2 };
    let report = report(scenario, with_warm_up, only(5, Fate::Lose));
    assert!(!report.is_clean(), "{report}");
    let figures = report.figures.unwrap();
    assert_eq!((figures.lost, figures.tally.delivered), (0, 10));
}

#[test]
fn a_delivery_that_was_owed_before_does_not_stand_in_for_one_that_is_lost() {
    let scenario = Scenario::Pairs { connections: 2 };
    // The first is overtaken by the second, which is sent in the measured phase, and the last of
    // that is lost.
    let mut fates = [(1, Fate::Overtake), (11, Fate::Lose)].map(|(at, fate)| only(at, fate));
    let fate = move || {
        let fates = fates.each_mut().map(|fate| fate());
        let other = fates.into_iter().find(|fate| *fate != Fate::Pass);
        other.unwrap_or(Fate::Pass)
    };
    let report = report(scenario, with_warm_up, fate);
    assert!(!report.is_clean(), "{report}");
    let figures = report.figures.unwrap();
    assert_eq!((figures.lost, figures.tally.delivered), (1, 9));
}

/// The most faults that were told while the run went on.
struct Faults(u64);

impl Observer for Faults {
    fn observe(&mut self, progress: &Progress) -> ControlFlow<()> {
        self.0 = self.0.max(progress.faults);
        ControlFlow::Continue(())
    }
}

#[test]
fn a_loss_between_others_is_reported_during_the_run() {
    let mut faults = Faults(0);
    // When nothing moves any more at the end, there is time to be told.
    let change = |_: &mut Settings| {};
    let fate = only(500, Fate::Lose);
    observed(
        Scenario::Pairs { connections: 2 },
        change,
        fate,
        &mut faults,
    );
    assert_eq!(faults.0, 1);
}
