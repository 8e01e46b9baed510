//! Packets that make the broker write: thousands of records for one packet, and the records of
//! other clients beside them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use unbroken_acceptance::raw::{Connect, DISCONNECT, Packet, Subscribe, Version};

use crate::broker::{Broker, Setup};
use crate::link::{Link, LinkError, PATIENCE};
use crate::stage::{AttackError, Check, Outcome, Scale, Stage};

const FILTERS: usize = 9_000;
/// Subscriptions of one session at default limits.
const FILTERS_MAX: usize = 10_000;
const ATTACKERS: usize = 4;
/// A client that must be in the log comes so often.
const GUEST_EVERY: Duration = Duration::from_millis(50);
const LINES_PER_SECOND: u64 = 1_000;

pub(super) fn run(scale: Scale) -> Result<Outcome, AttackError> {
    let stage = Stage::set(Setup::default())?;
    let address = stage.broker.address;
    let stop = Arc::new(AtomicBool::new(false));
    let attackers: Vec<_> = (0..ATTACKERS)
        .map(|number| {
            let stop = Arc::clone(&stop);
            thread::spawn(move || flood(address, number, &stop).unwrap_or(0))
        })
        .collect();
    let begin = Instant::now();
    let mut guests = 0;
    while begin.elapsed() < scale.time() {
        let mut guest = Link::connect(address, &Connect::v5(&guest_name(guests)))?;
        guest.send(&DISCONNECT)?;
        guests += 1;
        thread::park_timeout(GUEST_EVERY);
    }
    let seconds = begin.elapsed().as_secs().max(1);
    stop.store(true, Ordering::Relaxed);
    let packets: u64 = attackers
        .into_iter()
        .map(|one| one.join().unwrap_or(0))
        .sum();
    let (broker, honest) = stage.finish();
    let text = settled(&broker);
    let lines = text.lines().count() as u64 / seconds;
    let missing = (0..guests).filter(|guest| {
        let field = format!("client={} ", guest_name(*guest));
        text.lines().filter(|line| line.contains(&field)).count() < 2
    });
    let missing = missing.count() as u64;
    println!(
        "  {packets} packets, {guests} other clients, {} KB/s of log",
        text.len() as u64 / seconds / 1_000
    );
    // How long a packet of thousands of filters takes is not what this is about.
    let refusals = honest.refusals.into();
    let mut checks = vec![Check::count("honest refusals", refusals, 0)];
    checks.push(Check::count(
        "log lines per second",
        lines,
        LINES_PER_SECOND,
    ));
    checks.push(Check::count("clients that the log misses", missing, 0));
    Ok(Outcome::Measured(checks))
}

/// Of one length, so that none is the beginning of another.
fn guest_name(number: u64) -> String {
    format!("guest-{number:06}")
}

fn flood(address: SocketAddr, number: usize, stop: &AtomicBool) -> Result<u64, LinkError> {
    let mut attacker = Link::connect(address, &Connect::v5(&format!("attacker-{number}")))?;
    // As many as a session may have, so that all others are refused.
    subscribe(&mut attacker, "taken", FILTERS_MAX)?;
    let mut sent = 0;
    while !stop.load(Ordering::Relaxed) {
        subscribe(&mut attacker, "refused", FILTERS)?;
        sent += 1;
    }
    Ok(sent)
}

fn subscribe(attacker: &mut Link, lead: &str, count: usize) -> Result<(), LinkError> {
    let request = Subscribe {
        filters: (0..count).map(|at| (format!("{lead}/{at}"), 0)).collect(),
        ..Subscribe::default()
    };
    attacker.send(&request.encode(Version::V5, 1))?;
    while !matches!(attacker.receive(PATIENCE)?, Packet::SubAck(_)) {}
    Ok(())
}

/// The log once nothing comes any more.
fn settled(broker: &Broker) -> String {
    let mut bytes = 0;
    loop {
        let now = broker.log().bytes();
        if now == bytes {
            return broker.log().text();
        }
        bytes = now;
        thread::park_timeout(Duration::from_millis(1_500));
    }
}
