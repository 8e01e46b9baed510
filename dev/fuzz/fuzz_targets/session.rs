//! Any peers, with any bytes at any time, against whole shards: nothing panics, nothing exceeds the
//! limits, what is sent is MQTT, and every connection that ends does so for a reason.
//!
//! Input: one byte for the number of shards and the settings, then operations. An operation is a
//! byte that chooses it and a byte that chooses the connection, followed by what it needs; see
//! [`Broker::operate`]. Golden packets are at hand by number, whole or with one byte changed, so
//! that the fuzzer gets behind CONNECT quickly.

#![no_main]

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use libfuzzer_sys::fuzz_target;
use unbroken_broker_core::{
    Admission, CloseCause, ConnectionId, Event, Grant, Input, Limits, LogId, Message, Output, Peer,
    ReadAnswer, ReadRequest, Record, Settings, Shard, ShardId, ShardMessage, ShardOptions, StoreId,
    Totals,
};
use unbroken_mqtt_proto::{Packet, PacketType, ReasonCode, Version, next_frame};

fuzz_target!(|input: &[u8]| {
    let Some((&settings, operations)) = input.split_first() else {
        return;
    };
    let mut broker = Broker::new(settings);
    let mut bytes = operations.iter().copied();
    while broker.operate(&mut bytes).is_some() {
        broker.check_limits();
    }
    broker.end();
});

struct Broker {
    shards: Vec<Shard>,
    limits: Limits,
    now: Instant,
    has_sys: bool,
    is_durable: bool,
    messages: BTreeMap<(usize, usize), VecDeque<ShardMessage>>,
    stores: Vec<Option<StoreId>>,
    /// What was asked to be stored, by log.
    logs: BTreeMap<LogId, Vec<Arc<Message>>>,
    /// Connections that move, with what they had sent.
    moves: Vec<(usize, usize, Vec<u8>)>,
    links: Vec<Link>,
    serial: u32,
}

#[derive(Default)]
struct Link {
    at: Option<(usize, ConnectionId)>,
    /// The driver does not read while it decides.
    deciding: bool,
    received: Vec<u8>,
}

impl Broker {
    fn new(settings: u8) -> Self {
        let mut limits = Limits::default();
        limits.connections_max = 6;
        limits.sessions_max = 8;
        limits.packet_bytes_max = 2_048;
        limits.receive_maximum = 3;
        limits.inflight_max = 3;
        limits.queue_messages_max = 5;
        limits.queue_bytes_max = 4_096;
        limits.output_bytes_max = 1_024;
        limits.topic_bytes_max = 200;
        limits.topic_levels_max = 8;
        limits.subscriptions_per_session_max = 6;
        limits.subscriptions_max = 20;
        limits.retained_messages_max = 6;
        limits.retained_bytes_max = 1_024;
        limits.topic_aliases_in_max = 3;
        limits.topic_aliases_out_max = 3;
        limits.session_expiry_max_s = 1_000;
        let mut choices = Settings::default();
        choices.durable = settings & 4 != 0;
        choices.keep_alive_max_s = (settings & 8 != 0).then_some(60);
        choices.sys_interval = (settings & 16 != 0).then_some(Duration::from_secs(10));
        let count = settings % 3 + 1;
        let start = Instant::now();
        let totals = Arc::new(Totals::default());
        let shards: Vec<_> = (0..count)
            .map(|id| {
                Shard::new(ShardOptions {
                    id: ShardId(id),
                    shards: count,
                    limits: limits.clone(),
                    settings: choices.clone(),
                    totals: Arc::clone(&totals),
                    seed: 1,
                    start,
                })
            })
            .collect();
        Self {
            has_sys: choices.sys_interval.is_some(),
            is_durable: choices.durable,
            stores: vec![None; shards.len()],
            logs: BTreeMap::new(),
            shards,
            limits,
            now: start,
            messages: BTreeMap::new(),
            moves: Vec::new(),
            links: (0..LINKS).map(|_| Link::default()).collect(),
            serial: 0,
        }
    }

    /// One operation; `None` when the input is used up.
    fn operate(&mut self, bytes: &mut impl Iterator<Item = u8>) -> Option<()> {
        let what = bytes.next()?;
        let link = usize::from(bytes.next()?) % LINKS;
        match what % 16 {
            0 => self.open(link, usize::from(what) / 16 % self.shards.len(), &[]),
            1 => self.cut(link),
            2 => {
                let length = usize::from(bytes.next()?);
                let raw: Vec<_> = bytes.by_ref().take(length).collect();
                self.send(link, &raw);
            }
            3 | 4 => {
                let mut packet = golden(bytes.next()?).to_vec();
                let (at, value) = (bytes.next()?, bytes.next()?);
                let at = usize::from(at) % packet.len();
                packet[at] ^= value;
                self.send(link, &packet);
            }
            5..=8 => {
                let packet = golden(bytes.next()?);
                self.send(link, packet);
            }
            9 => {
                self.now += Duration::from_millis(1 << (bytes.next()? % 22));
                self.time_out();
            }
            10 => self.read(link, usize::from(bytes.next()?)),
            11 => {
                self.carry(usize::from(what) / 16);
            }
            12 => self.carry_all(),
            13 => self.store(),
            14 => self.decide(link, what & 16 == 0),
            _ => {
                self.open(link, 0, &[]);
                self.send(link, golden_of(PacketType::Connect, bytes.next()?));
                self.decide(link, true);
                self.carry_all();
            }
        }
        Some(())
    }

    fn open(&mut self, link: usize, shard: usize, unread: &[u8]) {
        if self.links[link].at.is_some() || self.moves.iter().any(|(moving, ..)| *moving == link) {
            return;
        }
        self.serial += 1;
        let connection = ConnectionId {
            index: u32::try_from(link).expect("few"),
            serial: self.serial,
        };
        self.links[link] = Link {
            at: Some((shard, connection)),
            ..Link::default()
        };
        let peer = Peer::default();
        self.input(shard, Input::Opened { connection, peer });
        self.send(link, unread);
    }

    fn send(&mut self, link: usize, bytes: &[u8]) {
        if let Some((shard, connection)) = self.links[link].at
            && self.shards[shard].wants_input(connection)
            && !bytes.is_empty()
        {
            self.input(shard, Input::Received { connection, bytes });
        }
    }

    fn cut(&mut self, link: usize) {
        self.links[link].deciding = false;
        if let Some((shard, connection)) = self.links[link].at.take() {
            let cause = CloseCause::Peer;
            self.input(shard, Input::Closed { connection, cause });
        }
    }

    fn decide(&mut self, link: usize, granted: bool) {
        let Some((shard, connection)) = self.links[link].at else {
            return;
        };
        if std::mem::take(&mut self.links[link].deciding) {
            let admission = if granted {
                Admission::Granted(Grant::anonymous())
            } else {
                let reason = ReasonCode::NotAuthorized;
                let detail = reason.name().into();
                Admission::Refused { reason, detail }
            };
            self.input(
                shard,
                Input::Authenticated {
                    connection,
                    admission,
                },
            );
        }
    }

    fn read(&mut self, link: usize, count: usize) {
        let Some((shard, connection)) = self.links[link].at else {
            return;
        };
        let mut dirty = Vec::new();
        self.shards[shard].take_dirty(&mut dirty, usize::MAX);
        let pending = self.shards[shard].pending_output(connection);
        let bytes = pending[..pending.len().min(count * 8)].to_vec();
        self.shards[shard].wrote(self.now, connection, bytes.len());
        self.time_out();
        self.links[link].hear(&bytes);
    }

    fn store(&mut self) {
        for shard in 0..self.shards.len() {
            if let Some(id) = self.stores[shard].take() {
                self.input(shard, Input::Stored(id));
            }
        }
    }

    fn time_out(&mut self) {
        for shard in 0..self.shards.len() {
            while self.shards[shard]
                .next_timeout()
                .is_some_and(|at| at <= self.now)
            {
                let heard = self.now;
                self.input(shard, Input::Timeout { heard });
            }
        }
    }

    fn carry(&mut self, choice: usize) -> bool {
        if let Some((link, to, unread)) = self.moves.pop() {
            self.open(link, to, &unread);
            return true;
        }
        let pairs: Vec<_> = self
            .messages
            .iter()
            .filter(|(_, queue)| !queue.is_empty())
            .map(|(pair, _)| *pair)
            .collect();
        if pairs.is_empty() {
            return false;
        }
        let (from, to) = pairs[choice % pairs.len()];
        if let Some(message) = self
            .messages
            .get_mut(&(from, to))
            .and_then(VecDeque::pop_front)
        {
            let from = ShardId(u8::try_from(from).expect("few"));
            self.input(to, Input::ShardMessage { from, message });
        }
        true
    }

    fn carry_all(&mut self) {
        for _ in 0..ENOUGH {
            if !self.carry(0) {
                return;
            }
        }
        panic!("the shards never stop writing to each other");
    }

    fn input(&mut self, shard: usize, input: Input<'_>) {
        let outputs: Vec<_> = self.shards[shard].handle(self.now, input).collect();
        let ended = |output: &Output| {
            matches!(
                output,
                Output::Event(Event::Disconnected { .. } | Event::Refused { .. })
            )
        };
        let reasons = outputs.iter().filter(|output| ended(output)).count();
        let closed = |output: &Output| matches!(output, Output::Close { .. });
        let closes = outputs.iter().filter(|output| closed(output)).count();
        assert!(closes <= reasons, "{closes} closed for {reasons} reasons");
        let mut reads = Vec::new();
        for output in outputs {
            match output {
                Output::Close {
                    connection,
                    last_words,
                } => {
                    let link = &mut self.links[connection.index as usize];
                    link.at = None;
                    link.deciding = false;
                    link.hear(last_words.unwritten());
                    assert!(link.received.is_empty(), "closed in the middle of a packet");
                }
                Output::Move {
                    connection,
                    to,
                    unread,
                } => {
                    let link = connection.index as usize;
                    self.links[link].at = None;
                    self.moves.push((link, usize::from(to.0), unread));
                }
                Output::Authenticate { connection, .. } => {
                    self.links[connection.index as usize].deciding = true;
                }
                Output::ShardMessage { to, message } => {
                    let pair = (shard, usize::from(to.0));
                    self.messages.entry(pair).or_default().push_back(message);
                }
                Output::Store(request) => {
                    self.stores[shard] = Some(request.id);
                    if let Record::Message { message, .. } = request.record {
                        let position = message.position().expect("it is to be stored");
                        self.logs.entry(position.log).or_default().push(message);
                    }
                }
                Output::Read(request) => reads.push(request),
                // Nothing is trimmed here, and a link is read only if it is wanted.
                Output::Needed(_) | Output::Event(_) => {}
            }
        }
        for request in reads {
            let answer = self.read_log(&request);
            self.input(shard, Input::Read(answer));
        }
    }

    /// Everything that was asked for, matching or not.
    fn read_log(&self, request: &ReadRequest) -> ReadAnswer {
        let log = self.logs.get(&request.log).map_or(&[][..], Vec::as_slice);
        let place = |number| usize::try_from(number).expect("few");
        ReadAnswer {
            session: request.session,
            token: request.token,
            log: request.log,
            messages: log[place(request.after)..place(request.last)].to_vec(),
            through: request.last,
        }
    }

    fn check_limits(&self) {
        let limits = &self.limits;
        let sum = |count: fn(&unbroken_broker_core::Stats) -> u64| -> u64 {
            self.shards.iter().map(|shard| count(shard.stats())).sum()
        };
        let sessions = sum(|s| s.clients_connected + s.clients_disconnected);
        let each = u64::from(limits.queue_messages_max) + u64::from(limits.inflight_max);
        assert!(sum(|s| s.clients_connected) <= limits.connections_max.into());
        assert!(sessions <= limits.sessions_max.into());
        assert!(sum(|s| s.subscriptions) <= limits.subscriptions_max.into());
        // The broker's own words in `$SYS` are not limited.
        let retained = sum(|s| s.retained_messages);
        assert!(self.has_sys || retained <= limits.retained_messages_max.into());
        assert!(self.has_sys || sum(|s| s.retained_bytes) <= limits.retained_bytes_max);
        assert!(sum(|s| s.messages_waiting) <= sessions * each);
        let most = limits.output_bytes_max + 2 * limits.packet_bytes_max;
        for link in &self.links {
            if let Some((shard, connection)) = link.at {
                let pending = self.shards[shard].pending_output(connection).len();
                assert!(
                    pending <= most as usize,
                    "{pending} bytes wait for one peer"
                );
            }
        }
    }

    /// The broker stops: everybody is told so, and nothing is left undone.
    fn end(&mut self) {
        for link in 0..LINKS {
            self.decide(link, true);
        }
        self.store();
        self.carry_all();
        for shard in 0..self.shards.len() {
            self.input(shard, Input::Drain);
        }
        assert!(self.links.iter().all(|link| link.at.is_none()));
        self.now += Duration::from_secs(2_000);
        self.time_out();
        self.store();
        self.carry_all();
        for shard in &self.shards {
            let stats = shard.stats();
            assert_eq!(stats.clients_connected, 0);
            if self.is_durable {
                continue; // sessions and what waits for them go on after a restart
            }
            assert_eq!(stats.clients_disconnected, 0);
            assert_eq!(stats.messages_waiting, 0);
            assert_eq!(stats.messages_waiting_bytes, 0);
            assert_eq!(stats.subscriptions, 0);
        }
    }
}

impl Link {
    /// What the broker sends is packets of some version.
    fn hear(&mut self, bytes: &[u8]) {
        self.received.extend_from_slice(bytes);
        let received = std::mem::take(&mut self.received);
        let mut rest = received.as_slice();
        while let Some(frame) = next_frame(rest, u32::MAX).expect("the broker sends frames") {
            let fits = |version: &Version| Packet::decode(frame, *version).is_ok();
            let packet = Version::ALL.iter().any(fits);
            assert!(packet, "not a packet: {:02x?}", frame.bytes);
            rest = &rest[frame.bytes.len()..];
        }
        self.received = rest.to_vec();
    }
}

/// The packets of `crates/mqtt-proto/testdata`, valid ones and others.
fn goldens() -> &'static [Vec<u8>] {
    static PACKETS: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    PACKETS.get_or_init(|| {
        let lines = TESTDATA.iter().flat_map(|file| file.lines());
        let texts = lines.filter_map(|line| line.strip_prefix("bytes = \"")?.strip_suffix('"'));
        let packets = texts.map(|text| {
            let digits = text.split_whitespace();
            digits
                .map(|byte| u8::from_str_radix(byte, 16).expect("two hexadecimal digits"))
                .collect()
        });
        packets
            .filter(|packet: &Vec<u8>| !packet.is_empty())
            .collect()
    })
}

fn golden(choice: u8) -> &'static [u8] {
    let all = goldens();
    // There are more than 256: a step that shares no factor with their number reaches most.
    &all[usize::from(choice) * 7 % all.len()]
}

fn golden_of(packet: PacketType, choice: u8) -> &'static [u8] {
    let of_type = |bytes: &&Vec<u8>| bytes[0] == packet.first_byte();
    let count = goldens().iter().filter(of_type).count();
    let chosen = goldens()
        .iter()
        .filter(of_type)
        .nth(usize::from(choice) % count);
    chosen.expect("the remainder is below the number of them")
}

const TESTDATA: [&str; 6] = [
    include_str!("../../../crates/mqtt-proto/testdata/connect.toml"),
    include_str!("../../../crates/mqtt-proto/testdata/publish.toml"),
    include_str!("../../../crates/mqtt-proto/testdata/acks.toml"),
    include_str!("../../../crates/mqtt-proto/testdata/subscribe.toml"),
    include_str!("../../../crates/mqtt-proto/testdata/unsubscribe.toml"),
    include_str!("../../../crates/mqtt-proto/testdata/disconnect.toml"),
];
const LINKS: usize = 8;
/// Far more messages than an input of any length can cause.
const ENOUGH: usize = 1_000_000;
