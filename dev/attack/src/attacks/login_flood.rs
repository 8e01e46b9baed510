//! Wrong passwords: each costs the broker a hash, and the attacker nothing.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use unbroken_acceptance::raw::Connect;

use crate::broker::{PASSWORD, Setup, USER};
use crate::link::Link;
use crate::stage::{AttackError, Check, Outcome, Scale, Stage, unharmed};

const FLOOD_EVERY: Duration = Duration::from_millis(8);
const LOGIN_EVERY: Duration = Duration::from_millis(500);
const LOGIN_LIMIT: Duration = Duration::from_secs(1);

pub(super) fn run(scale: Scale) -> Result<Outcome, AttackError> {
    let stage = Stage::set(Setup {
        has_passwords: true,
        ..Setup::default()
    })?;
    let address = stage.broker.address;
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let flood = thread::spawn(move || flood(address, &stopped));
    let (mut worst, mut failed, mut tried) = (Duration::ZERO, 0, 0);
    let until = Instant::now() + scale.time();
    while Instant::now() < until {
        let begin = Instant::now();
        let connect = Connect::v5("right").user_name(USER).password(PASSWORD);
        tried += 1;
        match Link::connect(address, &connect) {
            Ok(_) => worst = worst.max(begin.elapsed()),
            Err(_) => failed += 1,
        }
        thread::park_timeout(LOGIN_EVERY.saturating_sub(begin.elapsed()));
    }
    stop.store(true, Ordering::Relaxed);
    let sent = flood.join().unwrap_or(0);
    println!("  {sent} wrong passwords, {tried} right ones");
    let (_, honest) = stage.finish();
    let mut checks = unharmed(&honest, scale);
    checks.push(Check::count("right passwords refused", failed, 0));
    checks.push(Check::time("slowest right login", worst, LOGIN_LIMIT));
    Ok(Outcome::Measured(checks))
}

/// From the address of the honest users, as behind one NAT.
fn flood(address: SocketAddr, stop: &AtomicBool) -> u64 {
    let connect = Connect::v5("wrong").user_name(USER).password("wrong");
    let packet = connect.encode();
    let mut sent = 0;
    let mut next = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        if let Ok(mut link) = Link::open(address) {
            sent += u64::from(link.send(&packet).is_ok());
        }
        next += FLOOD_EVERY;
        thread::park_timeout(next.saturating_duration_since(Instant::now()));
    }
    sent
}
