//! A quiet pair beside messages with very many receivers.
//!
//! What is judged is the quiet messages that such a message can have held up: those due while it
//! was under way, or soon after. Among all messages of the pair they are few, and a stall of some
//! milliseconds five times a second is in no percentile of all.

use std::{
    fmt, io,
    sync::mpsc::{RecvTimeoutError, Sender, channel},
    thread,
    time::{Duration, Instant},
};

use unbroken_load::process::raise_descriptor_limit;

use super::{
    Rounds, names, precedence,
    probe::{self, Message, p99_ms},
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
    /// Of messages due during or soon after one to the crowd.
    beside_p99: f64,
}

const ROW: &str = "crowd";
const TOPIC: &str = "crowd/all";
/// How much later the slowest hundredth of the quiet messages that are judged may come.
const ADDED_MS: f64 = 2.0;
/// From the acknowledgement of one message to the crowd to the next.
const PAUSE: Duration = Duration::from_millis(200);
/// A quiet message that is due so soon after the acknowledgement is judged: a broker may have
/// acknowledged before it has delivered.
const AFTER: Duration = Duration::from_millis(50);
/// So many of the crowd are asked what came.
const SAMPLE: usize = 100;

/// When a message to the crowd was sent, and when its acknowledgement had come.
type UnderWay = (Instant, Instant);

pub(super) fn measure(peer: &Peer, secs: Duration, crowd: u32) -> Result<Found, BenchError> {
    raise_descriptor_limit();
    let running = peer.start()?;
    // They read nothing meanwhile: the kernel has room for what comes, and the load costs no
    // processor.
    let crowd = gather(&running, crowd)?;
    let quiet = || precedence::first(|| probe::run(running.target, secs));
    let alone = quiet()?;
    let mut publisher = Client::publishing(running.target)?;
    let (stop, stopped) = channel::<()>();
    let (beside, published) = thread::scope(|scope| {
        // What it takes for late would be judged as well.
        let publishing = scope.spawn(move || {
            precedence::first(move || -> io::Result<Vec<UnderWay>> {
                let mut sent = Vec::new();
                loop {
                    let began = Instant::now();
                    publisher.publish(TOPIC, [number(sent.len())])?;
                    sent.push((began, Instant::now()));
                    if stopped.recv_timeout(PAUSE) != Err(RecvTimeoutError::Timeout) {
                        return Ok(sent);
                    }
                }
            })
        });
        let beside = quiet();
        drop::<Sender<()>>(stop);
        (beside, publishing.join())
    });
    let beside = beside?;
    let published = published.map_err(|_| BenchError::Faulty {
        row: ROW,
        peer: peer.name,
    })??;
    ask(crowd, published.len())?;
    Ok(Found {
        alone_p99: p99_ms(&alone),
        beside_p99: p99_ms(held_up(&beside, &published)),
    })
}

/// What one message to the crowd has in it.
fn number(sent: usize) -> [u8; 8] {
    u64::try_from(sent).unwrap_or(u64::MAX).to_be_bytes()
}

/// The quiet messages that were due while one to the crowd was under way, or soon after.
fn held_up<'a>(quiet: &'a [Message], sent: &[UnderWay]) -> impl Iterator<Item = &'a Message> {
    quiet.iter().filter(|message| {
        let mut sent = sent.iter();
        sent.any(|(from, to)| (*from..=*to + AFTER).contains(&message.due))
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

/// Fails unless each of a sample has every message, in order, and is still served.
fn ask(crowd: Vec<Client>, sent: usize) -> io::Result<()> {
    let apart = (crowd.len() / SAMPLE).max(1);
    for (place, client) in crowd.into_iter().enumerate().step_by(apart) {
        let mut messages = client.messages();
        let mut all = || {
            for message in 0..sent {
                let (_, payload) = messages.next()?;
                if payload != number(message) {
                    let text = format!("{payload:02x?} came for message {message}");
                    return Err(io::Error::new(io::ErrorKind::InvalidData, text));
                }
            }
            messages.ping()
        };
        all().map_err(|error| {
            let text = format!("crowd-{place} has not all {sent} messages: {error}");
            io::Error::new(error.kind(), text)
        })?;
    }
    Ok(())
}

pub(super) fn figures(rounds: &Rounds<Found>, crowd: u32) -> Vec<Figure> {
    let mut figures = Vec::new();
    for name in names(rounds) {
        let found = || rounds.iter().filter(|(_, peer, _)| *peer == name);
        let bar = (name == OURS).then_some(Bar::AtMost(ADDED_MS));
        let title = format!("{name}: p99 of a quiet pair while {crowd} others get nothing");
        let mut alone = Figure::new("crowd-alone", "", "ms", None).titled(title);
        let title = format!(
            "{name}: what a message to all of these adds, at most five times a second, to the p99 of quiet messages that are due \
             while it is under way or within {} ms of its acknowledgement",
            AFTER.as_millis()
        );
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

    #[test]
    fn a_stall_of_three_milliseconds_five_times_a_second_is_seen() {
        let began = Instant::now();
        let at = |ms: u64| began + Duration::from_millis(ms);
        // Ten seconds, a message each millisecond; each fifth of a second one waits for all that
        // are due in the three milliseconds after it.
        let stalled = |ms: u64| ms.max(ms / 200 * 200 + 3);
        let quiet: Vec<_> = (0..10_000)
            .map(|ms| Message {
                due: at(ms),
                came: at(stalled(ms)),
            })
            .collect();
        let sent: Vec<_> = (0..50).map(|n| (at(n * 200), at(n * 200 + 1))).collect();
        assert!(p99_ms(held_up(&quiet, &sent)) >= 2.0);
        // Among all it is hardly to be seen.
        assert!(p99_ms(&quiet) < 2.0);
    }
}
