//! `unbroken-bench logins`: what a password costs, and what floods of logins do to others.
//!
//! Clients come from addresses of their own in 127.0.0.0/8. A latency is from the opening of a
//! connection to CONNACK. Where first logins are measured, each is of another user: a login that
//! succeeded is remembered, and the second one costs no hash.

use std::{
    collections::VecDeque,
    io::{self, Read as _, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    process::ExitCode,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU16, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use clap::Args;
use socket2::{Domain, Socket, Type};

use crate::{
    arguments::Common,
    error::BenchError,
    figure::{Bar::AtMost, Figure, Record},
    peer::{ARGON2ID, HASHES, Hash, PASSWORD, PBKDF2_101, PBKDF2_210000, Peer, with_passwords},
    record::Described,
};

/// How much is run.
#[derive(Debug, Args)]
pub(crate) struct Logins {
    /// Clients of a fleet that comes back
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    clients: u32,
    /// Seconds of each flood
    #[arg(long, default_value_t = 20)]
    secs: u64,
    #[command(flatten)]
    common: Common,
}

const NOTES: &str =
    "each on a broker of its own. A latency is from the opening of a connection to CONNACK.";

/// Threads that open a fleet's connections.
const OPENERS: usize = 16;
/// Users of a fleet that share a login.
const SHARED_USERS: usize = 500;
/// Hashes of which floods are measured, and how many right logins come each second beside them: a
/// quarter of what one quiet core can hash.
const FLOODED: [(Hash, u32); 2] = [(ARGON2ID, 6), (PBKDF2_210000, 2)];
/// Wrong logins of one address each second.
const WRONG_PER_SECOND: u32 = 1_000;
/// Connections each second that are closed behind CONNECT, and right logins of the same address.
const CLOSED_PER_SECOND: u32 = 120;
const BESIDE_CLOSED_PER_SECOND: u32 = 1;
/// A wrong login is given up after so many others.
const WRONG_OPEN: usize = 2_000;
const PATIENCE: Duration = Duration::from_secs(20);

const HONEST: Ipv4Addr = Ipv4Addr::LOCALHOST;
const HOSTILE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

impl Logins {
    pub(crate) fn run(self) -> Result<ExitCode, BenchError> {
        let machine = self.common.begin()?;
        let peer = with_passwords(&self.common.unbroken()?)?;
        let smoke = self.common.smoke;
        let rounds = self.common.rounds();
        let clients = if smoke { 200 } else { self.clients as usize };
        let time = Duration::from_secs(if smoke { 1 } else { self.secs });
        let mut figures = Vec::new();
        for round in 0..rounds {
            writeln!(io::stderr(), "round {} of {rounds}", round + 1)?;
            let mut found = costs(&peer, if smoke { 2 } else { 20 })?;
            found.extend(fleets(&peer, clients)?);
            for flooded in FLOODED {
                found.extend(floods(&peer, flooded, time)?);
            }
            collect(&mut figures, found);
        }
        let record = Record {
            title: "What a login costs, and what floods of logins do to others",
            notes: NOTES.to_owned(),
            below: "",
            machine,
            rounds,
            peers: Described::all(&[peer])?,
            figures,
        };
        if smoke {
            return Ok(ExitCode::SUCCESS);
        }
        record.write(&self.common.out, "logins")
    }
}

fn collect(figures: &mut Vec<Figure>, found: Vec<(Figure, f64)>) {
    if figures.is_empty() {
        figures.extend(found.into_iter().map(|(figure, value)| figure.with(value)));
        return;
    }
    for (figure, (_, value)) in figures.iter_mut().zip(found) {
        figure.add(value);
    }
}

/// First logins with each kind of hash, one after the other, and then the same again.
fn costs(peer: &Peer, logins: usize) -> Result<Vec<(Figure, f64)>, BenchError> {
    let running = peer.start()?;
    let mut found = Vec::new();
    for hash in HASHES {
        let [first, again] = [(), ()].map(|()| {
            let login = |number| login(HONEST, running.target, &user(hash, number));
            let mut times: Vec<_> = (0..logins).filter_map(login).collect();
            percentile(&mut times, 50)
        });
        let title = format!("first login with {}", hash.shown);
        found.push((Figure::new(hash.kind, "", "ms", None).titled(title), first));
        let title = format!("the same again, {}", hash.shown);
        found.push((Figure::new(hash.kind, "", "ms", None).titled(title), again));
    }
    Ok(found)
}

/// Fleets that connect, lose all their connections at once, and come back.
fn fleets(peer: &Peer, clients: usize) -> Result<Vec<(Figure, f64)>, BenchError> {
    let mut found = Vec::new();
    for (hash, users) in [(PBKDF2_101, clients), (ARGON2ID, SHARED_USERS.min(clients))] {
        let running = peer.start()?;
        for (what, bar) in [("connect first", None), ("come back", Some(AtMost(5.0)))] {
            let began = Instant::now();
            fleet(running.target, hash, (clients, users));
            let title = format!("{clients} clients of one address and {users} users {what}");
            let figure = Figure::new(hash.kind, "", "s", bar).titled(title);
            found.push((figure, began.elapsed().as_secs_f64()));
        }
    }
    Ok(found)
}

/// Each client tries until it is in; then all leave.
fn fleet(target: SocketAddr, hash: Hash, (clients, users): (usize, usize)) {
    let (next, open) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..OPENERS {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= clients {
                        return;
                    }
                    let user = user(hash, number % users);
                    let client = loop {
                        if let Some((client, 0)) = connect(HONEST, target, &user, PASSWORD) {
                            break client;
                        }
                    };
                    open.lock().expect("no opener panics").push(client);
                }
            });
        }
    });
}

/// Right logins beside wrong ones of another address, and beside connections of the same address
/// that are closed at once.
fn floods(
    peer: &Peer,
    (hash, right): (Hash, u32),
    time: Duration,
) -> Result<Vec<(Figure, f64)>, BenchError> {
    let mut found = Vec::new();
    let wrong = format!("{WRONG_PER_SECOND} wrong logins/s of another address");
    let closed =
        format!("{CLOSED_PER_SECOND} logins/s of the same address that are closed at once");
    for (what, is_closed, per_second) in [
        (wrong, false, right),
        (closed, true, BESIDE_CLOSED_PER_SECOND),
    ] {
        let running = peer.start()?;
        let (mut times, refused, sent) = flood(running.target, (hash, per_second), time, is_closed);
        let title =
            |figure| format!("{figure} of {per_second} right logins/s beside {what} ({sent} came)");
        let figure = |unit, bar, text| Figure::new(hash.kind, "", unit, bar).titled(title(text));
        let refused = (figure("", Some(AtMost(0.0)), "refusals"), refused);
        let bar = (!is_closed).then_some(AtMost(1000.0));
        let p99 = (figure("ms", bar, "p99"), percentile(&mut times, 99));
        let median = (figure("ms", None, "median"), percentile(&mut times, 50));
        found.extend([refused, p99, median]);
    }
    Ok(found)
}

/// The latencies in milliseconds of right logins, how many were refused, and how many hostile
/// connections there were.
fn flood(
    target: SocketAddr,
    (hash, per_second): (Hash, u32),
    time: Duration,
    is_closed: bool,
) -> (Vec<f64>, f64, usize) {
    let (over, refused) = (AtomicBool::new(false), AtomicUsize::new(0));
    let times = Mutex::new(Vec::<f64>::new());
    let sent = thread::scope(|scope| {
        let hostile = scope.spawn(|| hostile(target, hash, &over, is_closed));
        let mut pace = Pace::new(per_second);
        let end = Instant::now() + time;
        thread::scope(|scope| {
            for number in 0.. {
                pace.wait();
                if Instant::now() >= end {
                    break;
                }
                let (times, refused) = (&times, &refused);
                let [.., high, low] = (number + 1_usize).to_be_bytes();
                let other = Ipv4Addr::new(127, 1, high, low);
                let source = if is_closed { HOSTILE } else { other };
                scope.spawn(move || match login(source, target, &user(hash, number)) {
                    Some(time) => times.lock().expect("no client panics").push(time),
                    None => drop(refused.fetch_add(1, Ordering::Relaxed)),
                });
            }
        });
        over.store(true, Ordering::Relaxed);
        hostile.join().expect("it does not panic")
    });
    #[expect(clippy::cast_precision_loss, reason = "a small count")]
    let refused = refused.into_inner() as f64;
    (times.into_inner().expect("no client panics"), refused, sent)
}

/// Sends wrong logins until it is over; returns how many.
fn hostile(target: SocketAddr, hash: Hash, over: &AtomicBool, is_closed: bool) -> usize {
    let per_second = if is_closed {
        CLOSED_PER_SECOND
    } else {
        WRONG_PER_SECOND
    };
    let (mut pace, mut open, mut sent) = (Pace::new(per_second), VecDeque::new(), 0);
    while !over.load(Ordering::Relaxed) {
        pace.wait();
        let user = user(hash, 0);
        let Ok(client) = attempt(HOSTILE, target, &user, "guess") else {
            continue;
        };
        sent += 1;
        if !is_closed {
            open.push_back(client);
            if open.len() > WRONG_OPEN {
                open.pop_front();
            }
        }
    }
    sent
}

/// Whether the user of this number may log in.
pub(crate) fn succeeds(target: SocketAddr, hash: Hash, number: usize) -> bool {
    login(HONEST, target, &user(hash, number)).is_some()
}

/// How many milliseconds a login takes; none if it is refused.
fn login(source: Ipv4Addr, target: SocketAddr, user: &str) -> Option<f64> {
    let began = Instant::now();
    let (_client, code) = connect(source, target, user, PASSWORD)?;
    (code == 0).then(|| began.elapsed().as_secs_f64() * 1000.0)
}

/// The connection and the return code of CONNACK, if there was one.
fn connect(
    source: Ipv4Addr,
    target: SocketAddr,
    user: &str,
    password: &str,
) -> Option<(TcpStream, u8)> {
    let mut client = attempt(source, target, user, password).ok()?;
    let mut connack = [0; 4];
    client.read_exact(&mut connack).ok()?;
    (connack[0] == 0x20).then_some((client, connack[3]))
}

/// Sends CONNECT of 3.1.1 with a clean session.
fn attempt(
    source: Ipv4Addr,
    target: SocketAddr,
    user: &str,
    password: &str,
) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    if source != HONEST {
        bind_to_some_port(&socket, source)?;
    }
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.connect(&target.into())?;
    let mut client = TcpStream::from(socket);
    let mut body = b"\x00\x04MQTT\x04\xc2\x00\x00\x00\x00".to_vec();
    for field in [user, password] {
        body.extend([0, u8::try_from(field.len()).map_err(io::Error::other)?]);
        body.extend(field.as_bytes());
    }
    let length = u8::try_from(body.len()).map_err(io::Error::other)?;
    debug_assert!(length < 128, "one byte says it");
    client.write_all(&[&[0x10, length], &body[..]].concat())?;
    Ok(client)
}

/// Takes ports in turn: among many connections the system finds a free one slowly.
fn bind_to_some_port(socket: &Socket, source: Ipv4Addr) -> io::Result<()> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    const FIRST: u16 = 1 << 14;
    socket.set_reuse_address(true)?;
    let mut bound = Err(io::ErrorKind::AddrInUse.into());
    for _ in 0..100 {
        let port = FIRST + NEXT.fetch_add(1, Ordering::Relaxed) % (3 << 14);
        bound = socket.bind(&SocketAddr::from((source, port)).into());
        if bound.is_ok() {
            break;
        }
    }
    bound
}

fn user(hash: Hash, number: usize) -> String {
    format!("{}-{number}", hash.kind)
}

/// Nearest rank.
fn percentile(values: &mut [f64], percent: usize) -> f64 {
    values.sort_by(f64::total_cmp);
    let rank = (values.len() * percent).div_ceil(100);
    values
        .get(rank.saturating_sub(1))
        .copied()
        .unwrap_or(f64::NAN)
}

/// So many times a second.
struct Pace {
    next: Instant,
    every: Duration,
}

impl Pace {
    fn new(per_second: u32) -> Self {
        Self {
            next: Instant::now(),
            every: Duration::from_secs(1) / per_second,
        }
    }

    fn wait(&mut self) {
        thread::sleep(self.next.saturating_duration_since(Instant::now()));
        self.next += self.every;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_one_of_the_values() {
        let mut values: Vec<_> = (1..=200).rev().map(f64::from).collect();
        let percentiles = [50, 99, 100].map(|percent| percentile(&mut values, percent));
        assert_eq!(
            percentiles.map(f64::to_bits),
            [100.0, 198.0, 200.0].map(f64::to_bits)
        );
        assert!(percentile(&mut [], 99).is_nan());
    }
}
