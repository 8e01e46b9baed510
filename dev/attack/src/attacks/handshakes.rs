//! Handshakes that do not end: peers that fall silent, and peers that go.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use socket2::{Domain, SockAddr, Socket, Type};
use unbroken_acceptance::Transport;
use unbroken_acceptance::door::client_hello;

use crate::broker::Setup;
use crate::link::{Link, PATIENCE};
use crate::stage::{AttackError, Check, Outcome, Scale, Stage, unharmed};

const DOORS: &[Transport] = &[
    Transport::Tls,
    Transport::Ws,
    Transport::Wss,
    Transport::Unix,
];
/// A silent peer is closed after this time.
const DEADLINE: &str = "4s";
const SILENT: u64 = 1_000;
/// How long the broker is watched while they are silent.
const WATCHED: Duration = Duration::from_secs(1);
/// Of one core, beside an honest client: a loop that spins takes all of it.
const IDLE_SHARE: f64 = 0.2;
const MEMORY_MIB: u64 = 128;
/// In a whole attack there is time for more.
const ABORTED_AT_LEAST: usize = 1_000;

const REQUEST: &[u8] = b"GET /mqtt HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n\
    Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
    Sec-WebSocket-Version: 13\r\n\r\n";

const PROXY_HEADER: &[u8] = b"PROXY TCP4 192.0.2.7 127.0.0.1 4711 1883\r\n";
const HALF_A_CONNECT: &[u8] = b"\x10\x10\0\x04MQ";

#[derive(Clone)]
enum To {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl To {
    fn open(&self) -> io::Result<Socket> {
        match self {
            Self::Tcp(address) => Ok(Link::open(*address)?.into_stream().into()),
            Self::Unix(path) => {
                let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
                socket.connect(&SockAddr::unix(path)?)?;
                socket.set_write_timeout(Some(PATIENCE))?;
                Ok(socket)
            }
        }
    }
}

/// What an attacker says at one of the doors before it stops.
struct Beginning {
    to: To,
    bytes: Vec<u8>,
    /// Whether the broker has an answer to it.
    is_answered: bool,
}

fn beginnings(stage: &Stage) -> io::Result<Vec<Beginning>> {
    let hello = client_hello();
    let half = |bytes: &[u8]| bytes[..bytes.len() / 2].to_vec();
    let silent = |to: &To, bytes: &[u8]| Beginning {
        to: to.clone(),
        bytes: bytes.to_vec(),
        is_answered: false,
    };
    let proxied = To::Tcp(stage.broker.proxied().ok_or(ErrorKind::NotFound)?);
    let socket = To::Unix(stage.broker.socket());
    let mut all = vec![
        silent(&To::Tcp(stage.broker.address), HALF_A_CONNECT),
        silent(&proxied, b""),
        silent(&proxied, &half(PROXY_HEADER)),
        silent(&proxied, PROXY_HEADER),
        silent(&proxied, &[PROXY_HEADER, HALF_A_CONNECT].concat()),
        silent(&socket, b""),
        silent(&socket, HALF_A_CONNECT),
    ];
    for door in DOORS.iter().filter(|door| **door != Transport::Unix) {
        let to = stage.broker.door(*door).ok_or(ErrorKind::NotFound)?;
        let to = To::Tcp(to);
        let first = if door.is_secured() { &hello } else { REQUEST };
        all.extend(
            [
                (Vec::new(), false),
                (half(first), false),
                (first.to_vec(), true),
            ]
            .map(|(bytes, is_answered)| Beginning {
                to: to.clone(),
                bytes,
                is_answered,
            }),
        );
    }
    Ok(all)
}

impl Beginning {
    /// Says it, and reads the first byte of the answer if there is one.
    fn say(&self) -> io::Result<Socket> {
        let mut stream = self.to.open()?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(&self.bytes)?;
        if self.is_answered {
            stream.read_exact(&mut [0])?;
        }
        Ok(stream)
    }
}

fn setup() -> Setup {
    Setup {
        config: format!("[limits]\nconnect_timeout = \"{DEADLINE}\"\n"),
        doors: DOORS,
        has_proxy: true,
        ..Setup::default()
    }
}

/// They cost no processor time while they wait, and are closed at the deadline.
pub(super) fn silent(scale: Scale) -> Result<Outcome, AttackError> {
    let stage = Stage::set_with_lead_in(setup(), scale)?;
    let beginnings = beginnings(&stage)?;
    let mut peers = Vec::new();
    let mut refused = 0;
    for beginning in beginnings.iter().cycle() {
        if (peers.len() + refused) as u64 >= scale.of(SILENT) {
            break;
        }
        match beginning.say() {
            Ok(stream) => peers.push(stream),
            Err(_) => refused += 1,
        }
    }
    let usage = stage.broker.usage();
    let (begin, before) = (Instant::now(), usage.cpu_seconds());
    thread::sleep(WATCHED);
    let share = (usage.cpu_seconds() - before) / begin.elapsed().as_secs_f64();
    println!("  {} silent peers, {refused} refused", peers.len());
    let open = peers
        .iter_mut()
        .map(is_closed)
        .filter(|is_closed| !is_closed)
        .count();
    let (broker, honest) = stage.finish();
    let mut checks = unharmed(&honest, scale);
    checks.extend([
        Check::at_most(
            "processor while they are silent",
            format!("{:.0} %", share * 100.0),
            format!("{:.0} %", IDLE_SHARE * 100.0),
            share <= IDLE_SHARE,
        ),
        Check::count("open after the deadline", open as u64, 0),
        Check::mib("memory", broker.usage().peak_mib(), MEMORY_MIB),
    ]);
    Ok(Outcome::Measured(checks))
}

/// Reads up to the end of the connection, which comes as an end or as a reset.
fn is_closed(peer: &mut Socket) -> bool {
    match peer.read_to_end(&mut Vec::new()) {
        Ok(_) => true,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}

/// One after the other as fast as they can be: some end, some are reset.
pub(super) fn aborted(scale: Scale) -> Result<Outcome, AttackError> {
    let stage = Stage::set_with_lead_in(setup(), scale)?;
    let beginnings = beginnings(&stage)?;
    let until = Instant::now() + scale.time();
    let (mut begun, mut refused) = (0, 0);
    for (number, beginning) in beginnings.iter().cycle().enumerate() {
        if begun + refused >= ABORTED_AT_LEAST && Instant::now() >= until {
            break;
        }
        let Ok(stream) = beginning.say() else {
            refused += 1;
            continue;
        };
        begun += 1;
        if number % 2 == 0 {
            stream.set_linger(Some(Duration::ZERO))?;
        }
    }
    println!("  {begun} aborted, {refused} refused");
    let mut stage = stage;
    let ended = stage.broker.has_ended()?;
    let (broker, honest) = stage.finish();
    let mut checks = unharmed(&honest, scale);
    checks.extend([
        Check::count("honest messages lost", honest.lost as u64, 0),
        Check::mib("memory", broker.usage().peak_mib(), MEMORY_MIB),
        Check::must("it goes on", ended.is_none(), ended.is_none()),
    ]);
    Ok(Outcome::Measured(checks))
}
