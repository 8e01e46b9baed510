//! The broker's shards, the network and the clients of one run: what can happen next, and the
//! driver that does what the shards ask for.
//!
//! Messages between shards are delayed at will, in order for each pair of shards. Bytes are split
//! and delayed at will. A connection that is cut loses what was on its way to the client and some
//! of what was on its way to the broker.

mod driver;
mod kill;
mod links;
mod rights;
mod storage;
mod store_events;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use unbroken_broker_core::{
    ConnectionId, Input, Limits, Shard, ShardId, ShardMessage, ShardOptions, Stats, Totals,
};
use unbroken_mqtt_proto::Version;
use unbroken_store::Durability;

use self::kill::Past;
use self::rights::Rights;
use self::storage::Storage;
use crate::client::Client;
use crate::message::MessageId;
use crate::options::Options;
use crate::oracle::{Oracle, Will};
use crate::rng::Rng;

pub(crate) struct World {
    pub(crate) options: Options,
    pub(crate) rng: Rng,
    /// Draws how much of an output is sealed, if that is done in this run.
    sealing: Option<Rng>,
    pub(crate) now: Instant,
    start: Instant,
    pub(crate) shards: Vec<Shard>,
    pub(crate) totals: Arc<Totals>,
    /// What a shard takes for now: stands still while a turn lasts.
    clocks: Vec<Instant>,
    messages: BTreeMap<(usize, usize), VecDeque<ShardMessage>>,
    /// Connections on their way to another shard: link, shard, unread bytes.
    moves: VecDeque<(usize, usize, Vec<u8>)>,
    /// Links whose CONNECT the driver has to decide about.
    admissions: VecDeque<usize>,
    storage: Storage,
    /// The disk fails: how much longer the broker lives.
    dying: Option<u32>,
    /// By shard: it was told that its store has failed.
    failed: Vec<bool>,
    pub(crate) past: Past,
    /// So many times its machine has ended.
    pub(crate) power_cuts: u32,
    pub(crate) links: Vec<Link>,
    /// Links that are not over yet.
    live: Vec<usize>,
    /// By shard and index of the connection: the link.
    tables: Vec<Vec<Option<usize>>>,
    serial: u32,
    dirty: BTreeSet<usize>,
    pub(crate) clients: Vec<Client>,
    pub(crate) oracle: Oracle,
    rights: Rights,
    /// Packets that the shard has acted on and that were not yet noted.
    used: u64,
    /// The link whose client is being let in.
    admitting: Option<usize>,
    /// What each client had not got when everything had come to rest.
    pub(crate) missing: Vec<Vec<MessageId>>,
    /// Lines of what happened, if wanted.
    pub(crate) trace: Option<VecDeque<String>>,
}

/// A connection between a client and the broker.
pub(crate) struct Link {
    pub(crate) client: usize,
    version: Version,
    at: At,
    /// On the way to the broker and to the client.
    up: Vec<u8>,
    down: Vec<u8>,
    /// What the broker has written of a packet that is not wholly written.
    begun: Vec<u8>,
    /// What of the output is sealed and not written.
    sealed: Vec<u8>,
    /// The client reads and writes it.
    pub(crate) used: bool,
    admitted: bool,
    pub(crate) terms: ConnectTerms,
    /// Given to the broker: what is not yet a whole packet, then the packets not yet acted on.
    partial: Vec<u8>,
    packets: VecDeque<Vec<u8>>,
    /// The messages of the PUBLISH packets in `up` and `packets`, in order.
    pub(crate) published: VecDeque<MessageId>,
}

/// Where the broker has a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum At {
    Shard(usize, ConnectionId),
    Moving,
    Gone,
}

/// What the client said in CONNECT.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ConnectTerms {
    pub(crate) clean: bool,
    pub(crate) expiry_s: u32,
    pub(crate) will: Option<Will>,
}

/// What can happen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Choice {
    Action,
    Message,
    Up,
    Down,
    Write,
    Admit,
    Store,
    Read,
    Trim,
    Sync,
    Fail,
    Move,
    Notice,
    Timeout,
    Time,
}

impl World {
    pub(crate) fn new(options: Options, traced: bool) -> Self {
        let start = Instant::now();
        let (shards, totals) = new_shards(&options, start);
        let count = shards.len();
        let durability = options.durability;
        let mut rng = Rng::new(options.seed);
        let sealing = options.seed.is_multiple_of(4);
        let sealing = sealing.then(|| Rng::new(options.seed ^ 0x7365_616c_7300));
        let probes = PROBES;
        let clients: Vec<_> = (0..options.clients + probes)
            .map(|number| {
                let v5 = number >= options.clients || rng.percent(options.v5);
                let version = if v5 { Version::V5 } else { Version::V3_1_1 };
                Client::new(number, format!("c{number}"), version)
            })
            .collect();
        Self {
            oracle: Oracle::new(&options, clients.len()),
            rights: Rights::new(&options),
            options,
            rng,
            sealing,
            now: start,
            start,
            clocks: vec![start; count],
            messages: BTreeMap::new(),
            moves: VecDeque::new(),
            admissions: VecDeque::new(),
            storage: Storage::new(count, durability, start),
            dying: None,
            failed: vec![false; count],
            past: Past::default(),
            power_cuts: 0,
            links: Vec::new(),
            live: Vec::new(),
            tables: vec![Vec::new(); count],
            serial: 0,
            dirty: BTreeSet::new(),
            clients,
            used: 0,
            admitting: None,
            missing: Vec::new(),
            trace: traced.then(VecDeque::new),
            shards,
            totals,
        }
    }

    pub(crate) fn note(&mut self, line: impl FnOnce() -> String) {
        let at = self.now - self.start;
        if let Some(trace) = &mut self.trace {
            let mut text = String::new();
            let _ = write!(text, "{:>12.6} {}", at.as_secs_f64(), readable(&line()));
            trace.push_back(text);
            if trace.len() > TRACE_LINES {
                trace.pop_front();
            }
        }
    }

    /// Lets one thing happen.
    pub(crate) fn step(&mut self) {
        self.live_on();
        self.change_rights();
        let o = &self.options;
        let weights = [
            (Choice::Action, o.action_weight),
            (Choice::Message, o.message_weight),
            (Choice::Up, 30),
            (Choice::Down, 30),
            (Choice::Write, 30),
            (Choice::Admit, 10),
            (Choice::Store, 8),
            (Choice::Read, 8),
            (Choice::Trim, if o.trims { 3 } else { 0 }),
            (
                Choice::Sync,
                if o.durability == Durability::Relaxed {
                    2
                } else {
                    0
                },
            ),
            (Choice::Fail, if o.read_only { 8 } else { 0 }),
            (Choice::Move, 8),
            (Choice::Notice, 3),
            (Choice::Timeout, 10),
            (Choice::Time, 2),
        ];
        let total: u32 = weights.iter().map(|(_, weight)| weight).sum();
        let mut point = self.rng.next() % u64::from(total);
        for (choice, weight) in weights {
            let weight = u64::from(weight);
            if point < weight {
                self.happen(choice);
                break;
            }
            point -= weight;
        }
        self.now += Duration::from_micros(self.rng.between(1, 300) as u64);
        self.check_counts();
    }

    /// Lets things happen until nothing can, without anybody beginning anything new.
    pub(crate) fn settle(&mut self) {
        let order = [
            Choice::Notice,
            Choice::Move,
            Choice::Admit,
            Choice::Message,
            Choice::Store,
            Choice::Read,
            Choice::Timeout,
            Choice::Up,
            Choice::Write,
            Choice::Down,
        ];
        for _ in 0..SETTLE_STEPS {
            self.now += Duration::from_micros(1);
            let mut any = false;
            for choice in order {
                any |= self.happen(choice);
            }
            for client in 0..self.clients.len() {
                self.clients[client].answer();
                any |= self.flush(client);
            }
            if !any {
                return;
            }
        }
        panic!("the broker and its clients do not come to rest");
    }

    /// Nothing is on its way any more.
    pub(crate) fn check_rest(&self) {
        for (number, shard) in self.shards.iter().enumerate() {
            let waiting = shard.stats().messages_waiting;
            let offline =
                self.oracle.sessions.iter().any(|session| {
                    session.exists && session.link.is_none() && session.shard == number
                });
            assert!(
                offline || waiting == 0,
                "shard {number}: {waiting} messages wait though everybody takes what comes"
            );
        }
        for client in &self.clients {
            if client.connected {
                let open = client.outbound.inflight();
                assert!(
                    open == 0,
                    "{open} messages of client {} were never acknowledged",
                    client.number
                );
                assert!(
                    client.pending.is_none(),
                    "client {}: {:?} was never answered",
                    client.number,
                    client.pending
                );
            }
        }
    }

    /// A shard that is not given anything has nothing left to ask for.
    pub(crate) fn check_asked(&mut self) {
        for shard in 0..self.shards.len() {
            let left: Vec<_> = self.shards[shard]
                .handle(self.now, Input::Timeout { heard: self.now })
                .collect();
            assert!(
                left.is_empty(),
                "shard {shard} had asked for something without anybody being told: {left:?}"
            );
        }
    }

    fn happen(&mut self, choice: Choice) -> bool {
        match choice {
            Choice::Action => {
                self.act();
                true
            }
            Choice::Message => self.carry_message(),
            Choice::Up => self.carry_up(),
            Choice::Down => self.carry_down(),
            Choice::Write => self.write(),
            Choice::Admit => self.admit(),
            Choice::Store => self.answer_store(),
            Choice::Read => self.answer_read(),
            Choice::Trim => self.trim(),
            Choice::Sync => self.storage.sync(&mut self.oracle),
            Choice::Fail => self.tell_failed(),
            Choice::Move => self.arrive(),
            Choice::Notice => self.notice(),
            Choice::Timeout => self.time_out(),
            Choice::Time => {
                if self.options.leaps {
                    let time = self.rng.between(1, 8_000) as u64;
                    self.pass_time(Duration::from_millis(time));
                }
                true
            }
        }
    }

    /// A time longer than any turn of a shard.
    pub(crate) fn pass_time(&mut self, time: Duration) {
        self.now += time;
        self.clocks.fill(self.now);
    }

    /// Gives all shards the default limits.
    pub(crate) fn lift_limits(&mut self) {
        for shard in 0..self.shards.len() {
            let mut limits = Limits::default();
            limits.inflight_max = self.options.window;
            self.input(shard, Input::Reconfigured(Box::new(limits)));
        }
        self.options.pipe = usize::MAX;
    }

    fn carry_message(&mut self) -> bool {
        let pairs: Vec<_> = self
            .messages
            .iter()
            .filter(|(_, queue)| !queue.is_empty())
            .map(|(pair, _)| *pair)
            .collect();
        if pairs.is_empty() {
            return false;
        }
        let (from, to) = self.rng.pick(&pairs);
        let Some(message) = self
            .messages
            .get_mut(&(from, to))
            .and_then(VecDeque::pop_front)
        else {
            return false;
        };
        self.note(|| format!("shard {to} reads from {from}: {message:?}"));
        let from = ShardId(u8::try_from(from).expect("at most 64"));
        self.input(to, Input::ShardMessage { from, message });
        true
    }

    fn arrive(&mut self) -> bool {
        let Some((link, shard, unread)) = self.moves.pop_front() else {
            return false;
        };
        self.open_at(link, shard);
        if let At::Shard(shard, connection) = self.links[link].at {
            self.input_of(
                link,
                shard,
                Input::Received {
                    connection,
                    bytes: &unread,
                },
            );
            if !self.options.late_admission {
                self.admit();
            }
        }
        true
    }

    fn notice(&mut self) -> bool {
        let Some(link) = self.some_link(|_, link| !link.used && link.at != At::Gone) else {
            return false;
        };
        self.hang_up(link);
        true
    }

    fn time_out(&mut self) -> bool {
        let due = |shard: &Shard| shard.next_timeout().is_some_and(|at| at <= self.now);
        let shards: Vec<_> = (0..self.shards.len())
            .filter(|shard| due(&self.shards[*shard]))
            .collect();
        if shards.is_empty() {
            return false;
        }
        let shard = self.rng.pick(&shards);
        self.clocks[shard] = self.now;
        self.run_timers(shard, self.now);
        true
    }

    fn run_timers(&mut self, shard: usize, now: Instant) {
        let timeout = Input::Timeout { heard: now };
        let outputs: Vec<_> = self.shards[shard].handle(now, timeout).collect();
        self.carry_out(shard, now, outputs);
        self.oracle.timers_ran(shard, self.failed[shard], now);
    }

    pub(crate) fn stats(&self) -> Vec<&Stats> {
        self.shards.iter().map(Shard::stats).collect()
    }

    fn check_counts(&self) {
        let connected: u64 = self
            .stats()
            .iter()
            .map(|stats| stats.clients_connected)
            .sum();
        let sessions = &self.oracle.sessions;
        let expected = sessions
            .iter()
            .filter(|session| session.link.is_some())
            .count();
        assert_eq!(connected, expected as u64, "clients connected");
        let disconnected: u64 = self
            .stats()
            .iter()
            .map(|stats| stats.clients_disconnected)
            .sum();
        let expected = sessions
            .iter()
            .filter(|s| s.exists && s.link.is_none())
            .count();
        let expected = expected as u64;
        // One that has ended with the broker is there while its will is.
        let orphans = self.oracle.orphans.iter().filter(|orphan| **orphan).count() as u64;
        assert!(
            (expected..=expected + orphans).contains(&disconnected),
            "{disconnected} sessions without a connection, not {expected}"
        );
        for (client, session) in sessions.iter().enumerate() {
            let served = session.link.is_some() && session.expiry_s > 0;
            assert!(
                !(served && self.failed[session.shard]),
                "client {client} has a session that stays, and is served without a store"
            );
        }
        for (number, shard) in self.shards.iter().enumerate() {
            let audit = &shard.stats().audit;
            assert_eq!(
                audit.faults(),
                0,
                "faults named on shard {number}: {audit:?}"
            );
            let imbalance = shard.audit_imbalance();
            assert_eq!(imbalance, 0, "accounts of shard {number}: {audit:?}");
        }
    }
}

fn new_shards(options: &Options, start: Instant) -> (Vec<Shard>, Arc<Totals>) {
    let totals = Arc::new(Totals::default());
    let shards = (0..options.shards).map(|id| {
        Shard::new(ShardOptions {
            id: ShardId(id),
            shards: options.shards,
            limits: options.limits(),
            settings: options.settings(),
            totals: Arc::clone(&totals),
            seed: options.seed,
            start,
        })
    });
    (shards.collect(), totals)
}

/// A line with payloads as text and without the bookkeeping of messages.
fn readable(line: &str) -> String {
    let mut text = String::new();
    let mut rest = line;
    while let Some((before, after)) = rest.split_once("payload: [") {
        let (bytes, behind) = after.split_once(']').unwrap_or((after, ""));
        let letters = bytes.split(", ").filter_map(|byte| byte.parse::<u8>().ok());
        let letters = letters.map(char::from).take_while(|letter| *letter != ':');
        text.push_str(before);
        text.extend(letters);
        rest = behind;
    }
    text.push_str(rest);
    text
}

/// Clients that look at the retained messages in the end.
pub(crate) const PROBES: usize = 3;
const SETTLE_STEPS: usize = 200_000;
/// The disk has been told how far sessions are.
const TOLD_WITHIN: Duration = Duration::from_millis(600);
const TRACE_LINES: usize = 4_000;
