//! A quiet pair beside messages with very many receivers.

use std::{
    fmt, io,
    sync::mpsc::{RecvTimeoutError, Sender, channel},
    thread,
    time::Duration,
};

use unbroken_load::process::raise_descriptor_limit;

use super::{
    Rounds,
    flood::{p99_ms, quiet},
    names,
};
use crate::{
    client::Client,
    error::BenchError,
    figure::{Bar, Figure},
    peer::{OURS, Peer, Running},
};

/// What the quiet pair found on one broker, with the same crowd connected: milliseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    /// While nobody publishes to the crowd.
    alone_p99: f64,
    beside_p99: f64,
}

const ROW: &str = "crowd";
const TOPIC: &str = "crowd/all";
/// How much later the slowest hundredth of the quiet pair may come.
const ADDED_MS: f64 = 2.0;
/// From the acknowledgement of one message to the crowd to the next.
const PAUSE: Duration = Duration::from_millis(200);

pub(super) fn measure(peer: &Peer, secs: Duration, crowd: u32) -> Result<Found, BenchError> {
    raise_descriptor_limit();
    let running = peer.start()?;
    // They read nothing: the kernel has room for what comes, and the load costs no processor.
    let _crowd = gather(&running, crowd)?;
    let alone = quiet(peer, running.target, secs)?;
    let mut publisher = Client::publishing(running.target)?;
    let (stop, stopped) = channel::<()>();
    let (beside, published) = thread::scope(|scope| {
        let publishing = scope.spawn(move || -> io::Result<()> {
            loop {
                publisher.publish(TOPIC, b"to all of you", 1)?;
                if stopped.recv_timeout(PAUSE) != Err(RecvTimeoutError::Timeout) {
                    return Ok(());
                }
            }
        });
        let beside = quiet(peer, running.target, secs);
        drop::<Sender<()>>(stop);
        (beside, publishing.join())
    });
    let beside = beside?;
    let faulty = BenchError::Faulty {
        row: ROW,
        peer: peer.name,
    };
    published.map_err(|_| faulty)??;
    Ok(Found {
        alone_p99: p99_ms(&alone),
        beside_p99: p99_ms(&beside),
    })
}

fn gather(running: &Running, crowd: u32) -> io::Result<Vec<Client>> {
    let one = |n| {
        let mut client = Client::passing(running.target, &format!("crowd-{n}"))?;
        client.subscribe([TOPIC.to_owned()].into_iter())?;
        Ok(client)
    };
    (0..crowd).map(one).collect()
}

pub(super) fn figures(rounds: &Rounds<Found>, crowd: u32) -> Vec<Figure> {
    let mut figures = Vec::new();
    for name in names(rounds) {
        let found = || rounds.iter().filter(|(_, peer, _)| *peer == name);
        let bar = (name == OURS).then_some(Bar::AtMost(ADDED_MS));
        let title = format!("{name}: p99 of a quiet pair while {crowd} others get nothing");
        let mut alone = Figure::new("crowd-alone", "", "ms", None).titled(title);
        let title = format!("{name}: what a message to all of these adds, five times a second");
        let mut added = Figure::new("crowd-added", "", "ms", bar).titled(title);
        for (_, _, found) in found() {
            alone.add(found.alone_p99);
            added.add(found.beside_p99 - found.alone_p99);
        }
        figures.extend([alone, added]);
    }
    figures
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (beside, alone) = (self.beside_p99, self.alone_p99);
        write!(f, "p99 {beside:.2} ms, alone {alone:.2} ms")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_added_is_taken_round_by_round_and_only_ours_has_a_bar() {
        let found = |beside_p99| Found {
            alone_p99: 1.0,
            beside_p99,
        };
        let rounds = [
            (0, OURS, found(2.0)),
            (0, "mosquitto", found(80.0)),
            (1, OURS, found(4.0)),
            (2, OURS, found(3.0)),
        ];
        let figures = figures(&rounds, 10);
        let added: Vec<_> = figures
            .iter()
            .filter(|figure| figure.name() == "crowd-added")
            .map(Figure::median)
            .collect();
        assert_eq!(added, [2.0, 79.0]);
    }
}
