//! The load generator against a relay that loses, repeats, swaps and damages a known number of
//! messages.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on should say where"
)]

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};
use unbroken_bench::relay::{Fate, Relay};
use unbroken_load::{Extent, Figures, Scenario, Settings, Unobserved};

/// Runs the scenario through a relay and returns what the generator counted.
fn figures(
    scenario: Scenario,
    change: impl FnOnce(&mut Settings),
    fate: impl FnMut() -> Fate + Send + 'static,
) -> Figures {
    let relay = Relay::bind(0).unwrap();
    let target = relay.address().unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let thread = thread::spawn(move || relay.run(Duration::ZERO, &stopped, fate));
    let mut settings = Settings::new(target, scenario);
    settings.warm_up = Duration::ZERO;
    settings.extent = Extent::Messages(1_000);
    change(&mut settings);
    let report = unbroken_load::run(settings, &mut Unobserved).unwrap();
    stop.store(true, Ordering::Relaxed);
    thread.join().unwrap().unwrap();
    report.figures.unwrap()
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
