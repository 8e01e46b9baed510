//! Packets that do not end: what has come of them waits in the broker's memory.

use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use unbroken_acceptance::raw::{Connect, varint};

use crate::broker::Setup;
use crate::link::{Link, is_early};
use crate::stage::{
    AttackError, Check, MEMORY_MIB, Outcome, Scale, Stage, afterwards_mib, settled_mib, unharmed,
};

/// A CONNECT may have 384 KiB; so much of it is sent.
const CONNECT_BYTES: u32 = 380_000;
/// The same of one that is longer than it may be.
const LONG_CONNECT_BYTES: u32 = 980_000;
const CONNECTS: u64 = 4_000;
/// The end of a PUBLISH of 16 MiB is missing.
const PUBLISH_BYTES: usize = 16 * 1024 * 1024 - 64;
const PUBLISHES: u64 = 150;
const PIECE: usize = 64 * 1024;

pub(super) fn connects(scale: Scale) -> Result<Outcome, AttackError> {
    let setup = Setup {
        config: scale.budgets(),
        has_passwords: true,
        ..Setup::default()
    };
    attack(setup, scale, CONNECTS, &connect(CONNECT_BYTES), Link::open)
}

pub(super) fn long_connects(scale: Scale) -> Result<Outcome, AttackError> {
    let setup = Setup {
        config: scale.budgets(),
        has_passwords: true,
        ..Setup::default()
    };
    let packet = connect(LONG_CONNECT_BYTES);
    attack(setup, scale, CONNECTS, &packet, Link::open)
}

pub(super) fn publishes(scale: Scale) -> Result<Outcome, AttackError> {
    let mut packet = vec![0x30];
    packet.extend(varint(16 * 1024 * 1024 - 5));
    packet.extend([0, 1, b't', 0]);
    packet.resize(PUBLISH_BYTES, b'x');
    let mut number = 0;
    let log_in = |address| {
        number += 1;
        let connect = Connect::v5(&format!("attacker-{number}"));
        Link::connect(address, &connect).map_err(io::Error::other)
    };
    let setup = Setup {
        config: scale.budgets(),
        ..Setup::default()
    };
    attack(setup, scale, PUBLISHES, &packet, log_in)
}

/// The first so many bytes of a CONNECT that has a few more. Its user properties fill it.
fn connect(bytes: u32) -> Vec<u8> {
    let mut packet = vec![0x10];
    packet.extend(varint(bytes + 1_000));
    packet.extend(b"\0\x04MQTT\x05\x02\0\0");
    packet.extend(varint(bytes + 900));
    while packet.len() < bytes as usize {
        packet.extend(b"\x26\0\x01k\x03\xe8");
        packet.extend([b'v'; 1_000]);
    }
    packet.truncate(bytes as usize);
    packet
}

fn attack(
    setup: Setup,
    scale: Scale,
    connections: u64,
    packet: &[u8],
    mut open: impl FnMut(SocketAddr) -> io::Result<Link>,
) -> Result<Outcome, AttackError> {
    let mut stage = Stage::set(setup)?;
    let until = Instant::now() + scale.time();
    let mut senders = Vec::new();
    let mut refused = 0u64;
    for _ in 0..scale.of(connections) {
        match open(stage.broker.address).and_then(Sender::new) {
            Ok(sender) => senders.push(sender),
            // The broker may refuse; that is a way to hold the attack off.
            Err(_) => refused += 1,
        }
    }
    while Instant::now() < until && send_some(&mut senders, packet) {}
    let sent: usize = senders.iter().map(|sender| sender.sent).sum();
    println!(
        "  {} connections, {refused} refused, {} MiB sent",
        senders.len(),
        sent / (1024 * 1024)
    );
    drop(senders);
    let limit = scale.of(MEMORY_MIB);
    let left = settled_mib(&stage, afterwards_mib(limit));
    let ended = stage.broker.has_ended()?;
    let (broker, honest) = stage.finish();
    let mut checks = unharmed(&honest, scale);
    checks.push(Check::mib("memory", broker.usage().peak_mib(), limit));
    checks.push(Check::mib("memory afterwards", left, afterwards_mib(limit)));
    checks.push(Check::must("it goes on", ended.is_none(), ended.is_none()));
    Ok(Outcome::Measured(checks))
}

/// A connection and how much of the packet it has sent.
struct Sender {
    stream: TcpStream,
    sent: usize,
    is_open: bool,
}

impl Sender {
    fn new(link: Link) -> io::Result<Self> {
        let stream = link.into_stream();
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream,
            sent: 0,
            is_open: true,
        })
    }
}

/// A piece for each connection that takes one. Returns whether anything is left to send.
fn send_some(senders: &mut [Sender], packet: &[u8]) -> bool {
    let (mut is_left, mut has_sent) = (false, false);
    for sender in senders.iter_mut().filter(|sender| sender.is_open) {
        let end = packet.len().min(sender.sent + PIECE);
        match sender.stream.write(&packet[sender.sent..end]) {
            Ok(count) => {
                sender.sent += count;
                has_sent |= count > 0;
            }
            Err(error) => sender.is_open = is_early(&error),
        }
        is_left |= sender.is_open && sender.sent < packet.len();
    }
    if !has_sent {
        thread::park_timeout(Duration::from_millis(1));
    }
    is_left
}
