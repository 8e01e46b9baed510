//! A quiet pair beside a publisher at full speed.
//!
//! The flood is ended from outside and has no report, so what it loses is looked for while it
//! flows.

use std::{
    fmt,
    net::SocketAddr,
    ops::ControlFlow,
    sync::{
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
        mpsc::{Sender, channel},
    },
    thread,
    time::{Duration, Instant},
};

use unbroken_load::{
    Extent, LoadError, Observer, Phase, Progress, Report, Scenario, Settings, grouped,
};

use super::{Rounds, is_peer, load, names, precedence};
use crate::{
    error::BenchError,
    figure::{Bar, Figure},
    peer::{OURS, Peer},
    results::P99,
};

/// What the quiet pair found on one broker.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    /// Milliseconds, alone and beside the flood.
    alone_p99: f64,
    beside_p99: f64,
    /// Messages of the flood that were delivered, each second.
    flood: f64,
}

/// Messages a second of the quiet pair.
const QUIET_RATE: f64 = 100.0;
/// How much later its slowest hundredth may come.
const ADDED_MS: f64 = 2.0;
const ROW: &str = "flood";
/// Messages of the flood that are under way at most.
const WINDOW: u32 = 10_000;
/// A run that is ended from outside.
const ENDLESS: Duration = Duration::from_hours(1);

pub(super) fn measure(peer: &Peer, secs: Duration) -> Result<Found, BenchError> {
    let running = peer.start()?;
    let alone = quiet(peer, running.target, secs)?;
    drop(running);

    let running = peer.start()?;
    let (delivered, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let (flows, flowing) = channel();
    thread::scope(|scope| {
        let flooding = scope.spawn(|| {
            precedence::last();
            let mut watch = Watch {
                flows: Some(flows),
                delivered: &delivered,
                stop: &stop,
                is_faulty: false,
            };
            let ended = unbroken_load::run(flood(running.target), &mut watch);
            (ended, watch.is_faulty)
        });
        // If it never flows, it has ended, and says below why.
        let beside = flowing.recv().ok().map(|()| {
            let (began, before) = (Instant::now(), delivered.load(Relaxed));
            let quiet = quiet(peer, running.target, secs);
            let flooded = delivered.load(Relaxed) - before;
            (quiet, per_second(flooded, began.elapsed()))
        });
        stop.store(true, Relaxed);
        match (flooding.join(), beside) {
            (Ok((Err(LoadError::Stopped), false)), Some((beside, flood))) => Ok(Found {
                alone_p99: p99_ms(&alone),
                beside_p99: p99_ms(&beside?),
                flood,
            }),
            (Ok((Err(source), false)), _) => Err(BenchError::Load {
                row: ROW,
                peer: peer.name,
                source: Box::new(source),
            }),
            _ => Err(BenchError::Faulty {
                row: ROW,
                peer: peer.name,
            }),
        }
    })
}

/// The quiet pair for so long; all of its messages have to arrive.
pub(super) fn quiet(peer: &Peer, target: SocketAddr, secs: Duration) -> Result<Report, BenchError> {
    let settings = Settings {
        rate: Some(QUIET_RATE),
        extent: Extent::Time(secs),
        ..Settings::new(target, Scenario::Pairs { connections: 2 })
    };
    precedence::first(|| load(ROW, peer, settings))
}

fn flood(target: SocketAddr) -> Settings {
    Settings {
        payload: 100,
        window: WINDOW,
        batch: 32,
        extent: Extent::Time(ENDLESS),
        warm_up: Duration::ZERO,
        ..Settings::new(target, Scenario::Pairs { connections: 2 })
    }
}

/// Says once that the flood flows, and goes on saying how much, and whether all of it arrives.
struct Watch<'a> {
    flows: Option<Sender<()>>,
    delivered: &'a AtomicU64,
    stop: &'a AtomicBool,
    /// Something was missing between others, repeated or altered, or the connection was closed; or
    /// more had not come than may be under way.
    is_faulty: bool,
}

impl Observer for Watch<'_> {
    fn observe(&mut self, progress: &Progress) -> ControlFlow<()> {
        self.delivered.store(progress.delivered, Relaxed);
        let under_way = progress.published.saturating_sub(progress.delivered);
        self.is_faulty |= progress.faults > 0 || under_way > u64::from(WINDOW);
        if progress.phase == Phase::Measuring
            && progress.delivered > 0
            && let Some(flows) = self.flows.take()
        {
            // Whoever does not listen any more will stop it.
            let _ = flows.send(());
        }
        if self.stop.load(Relaxed) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }
}

pub(super) fn p99_ms(report: &Report) -> f64 {
    P99(report).unwrap_or(f64::NAN) / 1e3
}

#[expect(clippy::cast_precision_loss, reason = "messages are far below 2^52")]
fn per_second(count: u64, time: Duration) -> f64 {
    count as f64 / time.as_secs_f64()
}

pub(super) fn figures(rounds: &Rounds<Found>) -> Vec<Figure> {
    let mut figures = Vec::new();
    for name in names(rounds) {
        let figure = |of: &str, unit, value: fn(&Found) -> f64| {
            let mut figure = Figure::new(ROW, "", unit, None).titled(format!("{name}: {of}"));
            for (_, _, found) in rounds.iter().filter(|(_, peer, _)| *peer == name) {
                figure.add(value(found));
            }
            figure
        };
        figures.push(figure("p99 of a quiet pair, alone", "ms", |found| {
            found.alone_p99
        }));
        figures.push(figure("the same beside a flood", "ms", |found| {
            found.beside_p99
        }));
        figures.push(figure("delivered of the flood", "/s", |found| found.flood));
    }
    let mut added = Figure::new(
        "flood-added",
        "what the flood adds to the quiet pair's p99, ours",
        "ms",
        Some(Bar::AtMost(ADDED_MS)),
    );
    let mut to_peers = Figure::new(
        "flood-to-best",
        "the quiet pair's p99 beside the flood, ours to the best peer's",
        "ratio",
        Some(Bar::AtMost(1.0)),
    );
    for (round, _, ours) in rounds.iter().filter(|(_, name, _)| *name == OURS) {
        added.add(ours.beside_p99 - ours.alone_p99);
        let peers = rounds
            .iter()
            .filter(|(at, name, _)| at == round && is_peer(name));
        let best = peers.map(|(_, _, found)| found.beside_p99).reduce(f64::min);
        if let Some(best) = best {
            to_peers.add(ours.beside_p99 / best);
        }
    }
    figures.push(added);
    // Without a peer there is nothing to compare with.
    if rounds.iter().any(|(_, name, _)| is_peer(name)) {
        figures.push(to_peers);
    }
    figures
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flood = grouped(self.flood);
        write!(
            f,
            "p99 {:.2} ms, alone {:.2} ms ({flood} msgs/s)",
            self.beside_p99, self.alone_p99
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::TWO_SHARDS;

    fn found(beside_p99: f64) -> Found {
        Found {
            alone_p99: 1.0,
            beside_p99,
            flood: 1e5,
        }
    }

    #[track_caller]
    fn check(figures: &[Figure], name: &str, expected: f64) {
        let figure = figures.iter().find(|figure| figure.name() == name);
        let median = figure.map(Figure::median);
        assert_eq!(median, Some(expected), "{name}");
    }

    #[test]
    fn ours_is_compared_with_itself_alone_and_with_the_best_peer_of_the_round() {
        let rounds = [
            (0, "mosquitto", found(8.0)),
            (0, OURS, found(2.0)),
            (0, "nats", found(4.0)),
            // Ours as well, so it is neither compared nor a peer.
            (0, TWO_SHARDS, found(1.0)),
        ];
        let figures = figures(&rounds);
        check(&figures, "flood-added", 1.0);
        check(&figures, "flood-to-best", 0.5);
    }

    #[test]
    fn a_flood_that_is_stopped_is_held_to_what_it_had_lost() {
        let flowing = |delivered, faults| Progress {
            phase: Phase::Measuring,
            in_phase: Duration::ZERO,
            planned: None,
            clients: 2,
            published: 60_000,
            delivered,
            faults,
            latency_classes: [0; _],
        };
        for (progress, is_faulty) in [
            (flowing(50_000, 0), false),
            (flowing(49_999, 0), true),
            (flowing(50_000, 1), true),
        ] {
            let mut watch = Watch {
                flows: None,
                delivered: &AtomicU64::new(0),
                stop: &AtomicBool::new(true),
                is_faulty: false,
            };
            assert!(watch.observe(&progress).is_break());
            assert_eq!(watch.is_faulty, is_faulty, "{progress:?}");
        }
    }

    #[test]
    fn without_a_peer_nothing_is_compared_with_one() {
        let figures = figures(&[(0, OURS, found(2.0)), (0, TWO_SHARDS, found(2.0))]);
        assert!(
            figures
                .iter()
                .all(|figure| figure.name() != "flood-to-best")
        );
    }
}
