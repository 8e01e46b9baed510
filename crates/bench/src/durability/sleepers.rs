//! Sessions whose clients are away while the same messages are published to all of them.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use unbroken_load::process::Process;

use crate::{
    error::BenchError,
    figure::{Bar, Figure},
    peer::{MEMORY, Peer, STRICT},
};

/// Clients that are being greeted at a time: their sessions are synced together.
const AT_A_TIME: u32 = 500;
const MESSAGES: u16 = 10;
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
        let mut streams = Vec::new();
        for number in first..count.min(first + AT_A_TIME) {
            let mut stream = TcpStream::connect(target)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            let mut bytes = connect(&format!("sleeper-{number}"), false);
            bytes.extend(packet(0x82, &[&[0, 1][..], &string("all"), &[1]].concat()));
            stream.write_all(&bytes)?;
            streams.push(stream);
        }
        for mut stream in streams {
            let mut answers = [0; 4 + 5]; // CONNACK and SUBACK of 3.1.1
            stream.read_exact(&mut answers)?;
            stream.write_all(&[0xe0, 0])?;
        }
    }
    Ok(())
}

fn publish(target: SocketAddr) -> Result<(), BenchError> {
    let mut stream = TcpStream::connect(target)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(&connect("publisher", true))?;
    stream.read_exact(&mut [0; 4])?;
    for id in 1..=MESSAGES {
        let message = [&string("all")[..], &id.to_be_bytes(), &PAYLOAD].concat();
        stream.write_all(&packet(0x32, &message))?;
        stream.read_exact(&mut [0; 4])?;
    }
    Ok(())
}

/// CONNECT of MQTT 3.1.1 without keep alive.
fn connect(client_id: &str, clean: bool) -> Vec<u8> {
    let head = [b"\0\x04MQTT\x04".as_slice(), &[u8::from(clean) << 1, 0, 0]].concat();
    packet(0x10, &[head, string(client_id)].concat())
}

/// A body of less than 16 KiB.
fn packet(first: u8, body: &[u8]) -> Vec<u8> {
    let [high, low] = u16::try_from(body.len()).unwrap_or(u16::MAX).to_be_bytes();
    let mut packet = vec![first];
    if high == 0 && low < 0x80 {
        packet.push(low);
    } else {
        packet.extend([low | 0x80, high << 1 | low >> 7]);
    }
    packet.extend_from_slice(body);
    packet
}

fn string(text: &str) -> Vec<u8> {
    let length = u16::try_from(text.len()).unwrap_or(u16::MAX);
    [&length.to_be_bytes()[..], text.as_bytes()].concat()
}

const PATIENCE: Duration = Duration::from_mins(1);
