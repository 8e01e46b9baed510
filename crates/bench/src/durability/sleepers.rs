//! Sessions whose clients are away while the same messages are published to all of them.

use std::{io, net::SocketAddr, time::Instant};

use unbroken_load::process::Process;

use crate::{
    client::Client,
    error::BenchError,
    figure::{Bar, Figure},
    peer::{MEMORY, Peer, STRICT},
};

/// Clients that are being greeted at a time: their sessions are synced together.
const AT_A_TIME: u32 = 500;
const MESSAGES: u32 = 10;
const PAYLOAD: [u8; 100] = [b'x'; 100];

pub(super) fn figures(peers: &[Peer], count: u32) -> Result<Vec<Figure>, BenchError> {
    let mut figures = Vec::new();
    for peer in peers {
        let (title, bar) = match peer.name {
            STRICT => ("strict", Some(Bar::AtMost(150.0))),
            MEMORY => ("in memory", None),
            _ => continue,
        };
        let running = peer.start()?;
        let began = Instant::now();
        put_to_sleep(running.target, count)?;
        let greeted = began.elapsed();
        publish(running.target)?;
        let usage = Process::new(running.pid()).usage()?;
        #[expect(clippy::cast_precision_loss, reason = "memory is far below 2^52 bytes")]
        let megabytes = usage.resident as f64 / 1e6;
        let title = format!(
            "memory with {count} sleeping sessions, 10 messages each, {title}; they came and went in {:.1} s",
            greeted.as_secs_f64()
        );
        let figure = Figure::new("sleepers", "", "MB", bar).titled(title);
        figures.push(figure.with(megabytes));
    }
    Ok(figures)
}

fn put_to_sleep(target: SocketAddr, count: u32) -> Result<(), BenchError> {
    for first in (0..count).step_by(AT_A_TIME as usize) {
        let clients = (first..count.min(first + AT_A_TIME))
            .map(|number| Client::subscribing(target, &format!("sleeper-{number}"), "all"));
        for client in clients.collect::<io::Result<Vec<_>>>()? {
            client.leave()?;
        }
    }
    Ok(())
}

fn publish(target: SocketAddr) -> Result<(), BenchError> {
    let mut client = Client::publishing(target)?;
    for _ in 0..MESSAGES {
        client.publish("all", &PAYLOAD, 1)?;
    }
    Ok(())
}
