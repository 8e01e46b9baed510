//! No attack, but clients that look like one: they take what they are sent slowly, and acknowledge
//! and ping as they should. None of them is cut, and none is sent a message twice.
//!
//! ```text
//! link 2, 20, 60, 200 KB/s x keep alive 2, 10, 60 s x QoS x version x backlog, retained, live
//! ```
//!
//! All of them are connected at the same time, each over a relay that carries so many bytes per
//! tick. The whole takes ten times the time of another attack: more than 1.5 times the longest keep
//! alive. A shorter one leaves out the keep alives that it cannot try.

use std::collections::HashSet;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use unbroken_acceptance::raw::{
    AckKind, Connect, PINGREQ, Packet, Publish, Subscribe, Version, ack, take_frame,
};
use unbroken_acceptance::slow_link::SlowLink;

use crate::broker::{Broker, Setup};
use crate::link::{Link, LinkError, PATIENCE, is_early};
use crate::stage::{AttackError, Check, Outcome, Scale};

const KILOBYTES_PER_SECOND: [usize; 4] = [2, 20, 60, 200];
const KEEP_ALIVES_S: [u16; 3] = [2, 10, 60];
/// What waits, and what is retained: 12 MB each.
const MESSAGES: u16 = 3_000;
const MESSAGE_BYTES: usize = 4 * 1024;
/// Messages of the publisher that are sent before the first is acknowledged.
const TOGETHER: usize = 100;
/// 240 KB/s: more than the fastest link carries.
const LIVE_EVERY: Duration = Duration::from_millis(17);
const TICK: Duration = Duration::from_millis(2);

pub(super) fn run(scale: Scale) -> Result<Outcome, AttackError> {
    let time = 10 * scale.time();
    let broker = Broker::start(Setup {
        is_durable: true,
        ..Setup::default()
    })?;
    let mut cells = cells(time);
    for cell in cells.iter().filter(|cell| cell.source == Source::Backlog) {
        let mut stream = TcpStream::connect(broker.address)?;
        stream.write_all(&cell.connect().encode())?;
        stream.write_all(&cell.subscribe())?;
        expect_suback(&mut stream, cell.version)?;
    }
    let mut publisher = Link::connect(broker.address, &Connect::v5("publisher"))?;
    for first in (0..MESSAGES).step_by(TOGETHER) {
        let numbers = || (first..MESSAGES).take(TOGETHER);
        let waiting = numbers().map(|number| message("backlog", number.into()));
        publish(&mut publisher, waiting)?;
        let retained = numbers().map(|number| {
            let topic = format!("retained/{number}");
            message(&topic, number.into()).retained()
        });
        publish(&mut publisher, retained)?;
    }
    let links = KILOBYTES_PER_SECOND
        .iter()
        .map(|rate| SlowLink::start(broker.address, rate * 1_000))
        .collect::<io::Result<Vec<_>>>()?;
    for cell in &mut cells {
        cell.begin(&links)?;
    }
    let begin = Instant::now();
    let mut next_live = begin;
    let mut number = 0;
    while begin.elapsed() < time {
        if Instant::now() >= next_live {
            publish(&mut publisher, [message("live", number)])?;
            number += 1;
            next_live += LIVE_EVERY;
        }
        for cell in &mut cells {
            cell.go_on();
        }
        thread::park_timeout(TICK);
    }
    print(&cells);
    let text = broker.log().text();
    let untrue = text.matches("nothing came within").count();
    println!("  {untrue} log lines say that nothing came in time");
    let sum = |count: fn(&Cell) -> u64| cells.iter().map(count).sum::<u64>();
    Ok(Outcome::Measured(vec![
        Check::count("clients cut", sum(|cell| cell.is_cut.into()), 0),
        Check::count("messages sent twice", sum(|cell| cell.repeated), 0),
        Check::must(
            "messages came",
            sum(|cell| cell.taken.len() as u64),
            cells.iter().all(|cell| !cell.taken.is_empty()),
        ),
    ]))
}

fn message(topic: &str, number: u64) -> Publish {
    let mut payload = vec![b'x'; MESSAGE_BYTES];
    payload[..8].copy_from_slice(&number.to_be_bytes());
    Publish::new(topic, payload).qos(1)
}

/// Sends all of them, and waits until all are acknowledged.
fn publish(link: &mut Link, messages: impl IntoIterator<Item = Publish>) -> Result<(), LinkError> {
    let numbered = (1..).zip(messages);
    let packets: Vec<_> = numbered
        .map(|(id, message)| message.packet_id(id).encode(Version::V5))
        .collect();
    link.send(&packets.concat())?;
    for _ in packets {
        link.receive(PATIENCE)?;
    }
    Ok(())
}

fn expect_suback(stream: &mut TcpStream, version: Version) -> Result<(), LinkError> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let (mut unread, mut piece) = (Vec::new(), [0; 256]);
    loop {
        while let Some((first, body)) = take_frame(&mut unread) {
            if let Packet::SubAck(_) = Packet::parse(version, first, &body) {
                return Ok(());
            }
        }
        match stream.read(&mut piece)? {
            0 => return Err(LinkError::Closed),
            count => unread.extend_from_slice(&piece[..count]),
        }
    }
}

fn cells(time: Duration) -> Vec<Cell> {
    let mut cells = Vec::new();
    for link in 0..KILOBYTES_PER_SECOND.len() {
        for keep_alive in KEEP_ALIVES_S {
            if Duration::from_secs(keep_alive.into()) * 3 / 2 >= time {
                continue;
            }
            for (qos, version) in (0..3).flat_map(|qos| Version::ALL.map(|it| (qos, it))) {
                for source in [Source::Backlog, Source::Retained, Source::Live] {
                    // At QoS 0 nothing waits for a client that is away.
                    if qos > 0 || source != Source::Backlog {
                        cells.push(Cell::new(link, keep_alive, qos, version, source));
                    }
                }
            }
        }
    }
    cells
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Source {
    Backlog,
    Retained,
    Live,
}

/// One client, and what it has seen.
struct Cell {
    link: usize,
    keep_alive: u16,
    qos: u8,
    version: Version,
    source: Source,
    stream: Option<TcpStream>,
    unread: Vec<u8>,
    unwritten: Vec<u8>,
    next_ping: Instant,
    pinged: Option<Instant>,
    slowest_pong: Duration,
    taken: HashSet<u64>,
    repeated: u64,
    is_cut: bool,
}

impl Cell {
    fn new(link: usize, keep_alive: u16, qos: u8, version: Version, source: Source) -> Self {
        Self {
            link,
            keep_alive,
            qos,
            version,
            source,
            stream: None,
            unread: Vec::new(),
            unwritten: Vec::new(),
            next_ping: Instant::now(),
            pinged: None,
            slowest_pong: Duration::ZERO,
            taken: HashSet::new(),
            repeated: 0,
            is_cut: false,
        }
    }

    fn connect(&self) -> Connect {
        let Self {
            link,
            keep_alive,
            qos,
            version,
            source,
            ..
        } = self;
        let name = format!("{link}-{keep_alive}-{qos}-{}-{source:?}", version.level());
        let connect = Connect::new(*version, &name).keep_alive(self.keep_alive);
        match source {
            Source::Backlog => connect.persistent(),
            Source::Retained | Source::Live => connect,
        }
    }

    fn subscribe(&self) -> Vec<u8> {
        let filter = match self.source {
            Source::Backlog => "backlog",
            Source::Retained => "retained/#",
            Source::Live => "live",
        };
        Subscribe::to(filter, self.qos).encode(self.version, 1)
    }

    fn begin(&mut self, links: &[SlowLink]) -> io::Result<()> {
        let stream = TcpStream::connect(links[self.link].address())?;
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        self.unwritten = self.connect().encode();
        if self.source != Source::Backlog {
            self.unwritten.extend(self.subscribe());
        }
        self.stream = Some(stream);
        self.next_ping = Instant::now() + self.ping_every();
        Ok(())
    }

    /// Like most clients: before the keep alive is over.
    fn ping_every(&self) -> Duration {
        Duration::from_secs(self.keep_alive.into()) * 3 / 4
    }

    fn go_on(&mut self) {
        if self.stream.is_some() && self.exchange().is_err() {
            self.stream = None;
            self.is_cut = true;
        }
    }

    fn exchange(&mut self) -> io::Result<()> {
        let now = Instant::now();
        if now >= self.next_ping {
            self.unwritten.extend(PINGREQ);
            self.next_ping = now + self.ping_every();
            self.pinged.get_or_insert(now);
        }
        let Some(stream) = &mut self.stream else {
            return Ok(());
        };
        let mut piece = [0; 16 * 1024];
        match stream.read(&mut piece) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Err(error) if is_early(&error) => {}
            read => self.unread.extend_from_slice(&piece[..read?]),
        }
        while let Some((first, body)) = take_frame(&mut self.unread) {
            match Packet::parse(self.version, first, &body) {
                Packet::Publish(message) => self.take(&message),
                Packet::Ack(it) => self.unwritten.extend(ack(AckKind::PubComp, it.packet_id)),
                Packet::PingResp => {
                    let waited = self.pinged.take().map(|since| now - since);
                    self.slowest_pong = self.slowest_pong.max(waited.unwrap_or_default());
                }
                Packet::Disconnect(_) => return Err(ErrorKind::ConnectionAborted.into()),
                _ => {}
            }
        }
        let Some(stream) = &mut self.stream else {
            return Ok(());
        };
        match stream.write(&self.unwritten) {
            Err(error) if is_early(&error) => {}
            written => drop(self.unwritten.drain(..written?)),
        }
        Ok(())
    }

    fn take(&mut self, message: &Publish) {
        let number = message.payload.first_chunk().copied();
        let is_new = self.taken.insert(number.map_or(0, u64::from_be_bytes));
        self.repeated += u64::from(!is_new || message.dup);
        match message.qos {
            1 => self
                .unwritten
                .extend(ack(AckKind::PubAck, message.packet_id)),
            2 => self
                .unwritten
                .extend(ack(AckKind::PubRec, message.packet_id)),
            _ => {}
        }
    }
}

fn print(cells: &[Cell]) {
    println!("  link      keep alive  source    clients  cut  twice  messages  slowest PINGRESP");
    for (link, rate) in KILOBYTES_PER_SECOND.iter().enumerate() {
        for keep_alive in KEEP_ALIVES_S {
            for source in [Source::Backlog, Source::Retained, Source::Live] {
                let row = || {
                    cells.iter().filter(move |cell| {
                        (cell.link, cell.keep_alive, cell.source) == (link, keep_alive, source)
                    })
                };
                if row().count() > 0 {
                    println!(
                        "  {rate:>3} KB/s  {keep_alive:>8} s  {:<8}  {:>7}  {:>3}  {:>5}  {:>8}  {:>14.1} s",
                        format!("{source:?}").to_lowercase(),
                        row().count(),
                        row().filter(|cell| cell.is_cut).count(),
                        row().map(|cell| cell.repeated).sum::<u64>(),
                        row().map(|cell| cell.taken.len()).sum::<usize>(),
                        row()
                            .map(|cell| cell.slowest_pong)
                            .max()
                            .unwrap_or_default()
                            .as_secs_f64(),
                    );
                }
            }
        }
    }
}
