//! Sessions whose clients are away while the same messages are published to all of them.
//!
//! What they take counts only if the messages are there: the broker says for how many it keeps how
//! many, after a kill where it keeps them on disk, and some sessions, drawn anew in each run, get
//! them all.

use std::{
    collections::BTreeSet,
    hash::{BuildHasher as _, RandomState},
    io,
    net::SocketAddr,
    time::{Duration, Instant},
};

use unbroken_load::process::Process;

use super::row;
use crate::{
    client::Client,
    error::BenchError,
    figure::{Bar, Figure},
    peer::{MEMORY, Peer, STRICT},
};

/// Clients that are being greeted at a time: their sessions are synced together.
const AT_A_TIME: u32 = 500;
const MESSAGES: u32 = 10;
/// Sessions whose messages are looked at.
const DRAWN: u32 = 10;
/// How long the broker may take to say what it keeps: it counts after a start, and says it every
/// ten seconds.
const COUNTING: Duration = Duration::from_mins(1);

pub(super) fn figures(peers: &[Peer], count: u32) -> Result<Vec<Figure>, BenchError> {
    let mut figures = Vec::new();
    for peer in peers {
        let (title, bar) = match peer.name {
            STRICT => ("strict", Some(Bar::AtMost(150.0))),
            MEMORY => ("in memory", None),
            _ => continue,
        };
        let mut running = peer.start()?;
        let began = Instant::now();
        put_to_sleep(running.target, count)?;
        let greeted = began.elapsed();
        publish(running.target)?;
        let megabytes = resident(running.pid())?;
        let title = format!(
            "memory with {count} sleeping sessions, 10 messages each, {title}; they came and went in {:.1} s",
            greeted.as_secs_f64()
        );
        let figure = Figure::new("sleepers", "", "MB", bar).titled(title);
        figures.push(figure.with(megabytes));
        if peer.name == STRICT {
            peer.restart(&mut running)?;
        }
        let whose = format!("{}: the broker", peer.name);
        says(&whose, running.target, "count", count)?;
        says(&whose, running.target, "messages", count * MESSAGES)?;
        if peer.name == STRICT {
            let title = "the same after a restart, when all of it is counted";
            let figure = Figure::new("sleepers restarted", title, "MB", bar);
            figures.push(figure.with(resident(running.pid())?));
        }
        wake_some(peer.name, running.target, count)?;
    }
    Ok(figures)
}

fn resident(pid: u32) -> Result<f64, BenchError> {
    let usage = Process::new(pid).usage()?;
    #[expect(clippy::cast_precision_loss, reason = "memory is far below 2^52 bytes")]
    let megabytes = usage.resident as f64 / 1e6;
    Ok(megabytes)
}

fn put_to_sleep(target: SocketAddr, count: u32) -> Result<(), BenchError> {
    for first in (0..count).step_by(AT_A_TIME as usize) {
        let clients = (first..count.min(first + AT_A_TIME))
            .map(|number| Client::subscribing(target, &name(number), TOPIC));
        for client in clients.collect::<io::Result<Vec<_>>>()? {
            client.leave()?;
        }
    }
    Ok(())
}

fn publish(target: SocketAddr) -> Result<(), BenchError> {
    let mut client = Client::publishing(target)?;
    Ok(client.publish(TOPIC, (0..MESSAGES).map(row::payload))?)
}

/// Waits until the broker says this of its sleeping sessions.
fn says(whose: &str, target: SocketAddr, what: &str, expected: u32) -> Result<(), BenchError> {
    let mut client = Client::passing(target, "reader")?;
    let topic = format!("$SYS/broker/sessions/sleeping/{what}");
    client.subscribe([topic.clone()].into_iter())?;
    let mut messages = client.messages();
    let began = Instant::now();
    let mut said = "nothing".to_owned();
    while began.elapsed() < COUNTING {
        match messages.next() {
            Ok((_, payload)) => said = String::from_utf8_lossy(&payload).into_owned(),
            Err(error) => {
                let what = format!("{whose} said {said} in {topic}, not {expected}: {error}");
                return Err(BenchError::NotKept { what });
            }
        }
        if said == expected.to_string() {
            return Ok(());
        }
    }
    let what = format!("{whose} said {said} in {topic}, not {expected}");
    Err(BenchError::NotKept { what })
}

/// Some sessions get their messages, and what is published now after the last of them.
fn wake_some(peer: &str, target: SocketAddr, count: u32) -> Result<(), BenchError> {
    let random = RandomState::new();
    let mut drawn = BTreeSet::new();
    for draw in 0_u64.. {
        if drawn.len() == DRAWN.min(count) as usize {
            break;
        }
        drawn.insert(random.hash_one(draw) % u64::from(count));
    }
    let mut awake = Vec::new();
    for number in drawn {
        let client = Client::returning(target, &name(number))?;
        awake.push((number, client.messages()));
    }
    Client::publishing(target)?.publish(TOPIC, [row::END])?;
    for (number, mut messages) in awake {
        let whose = format!("{peer}: {}", name(number));
        row::is_whole(&whose, MESSAGES, || Ok(messages.next()?.1))?;
    }
    Ok(())
}

fn name(number: impl std::fmt::Display) -> String {
    format!("sleeper-{number}")
}

const TOPIC: &str = "all";
